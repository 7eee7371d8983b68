"""The log-likelihood of tasks under a population."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.arrays import array_namespace, matvec, transpose
from headstart.model.evidence import Evidence
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.small_matrices import cholesky, gaussian_gain
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    graded_posteriors,
    loses_digits,
    noise_variances,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

__all__ = ["log_likelihood", "noise_likelihood", "task_likelihoods"]


def task_likelihoods(fit: Fit, tasks: Tasks, root: Array | None = None) -> Array:
    """:func:`log_likelihood` of every task, under every population of a batch.

    ``root`` stands for that of the covariance, if another is meant.
    """
    root = symmetric_root(fit.covariance) if root is None else root
    around, mean = root[..., None, :, :], fit.mean[..., None, :]
    variance = noise_variances(fit, tasks)
    pulled = matvec(tasks.gram, mean)
    offset = (mean * (2.0 * tasks.moment - pulled)).sum(-1) / (2.0 * variance)
    inner = around @ (tasks.gram / variance[..., None, None]) @ around
    surprise = matvec(around, (tasks.moment - pulled) / variance[..., None])
    huge = loses_digits(inner)
    if huge.any():
        inner = np.where(huge[..., None, None], 0.0, inner)
        surprise = np.where(huge[..., None], 0.0, surprise)
    gain: Array = offset + 0.5 * gaussian_gain(inner, surprise)
    squares = np.broadcast_to(tasks.squares, gain.shape)
    for at, graded in graded_posteriors(fit, root, tasks, huge):
        own = np.broadcast_to(variance, gain.shape)[at]
        gain[at] = 0.5 * ((squares[at] - graded.square) / own - graded.information)
    return gain


def noise_likelihood(fit: Fit, tasks: Tasks) -> Array:
    """What :func:`task_likelihoods` leaves out: it depends on R alone, −½ (n log R² + Σr²/R²)."""
    variance = noise_variances(fit, tasks)
    rest: Array = -0.5 * (tasks.rounds * np.log(variance) + tasks.squares / variance)
    return rest


def log_likelihood(mean: Array, covariance: Array, noise: Any, evidence: Evidence) -> Array:
    """The log density of a task's rewards under a prior, up to what all priors share.

    ``covariance`` may have one axis more than ``mean``: several priors with the same mean.
    """
    xp = array_namespace(evidence.gram)
    variance = xp.asarray(noise)
    pulled = matvec(evidence.gram, mean)
    surprise = (evidence.moment - pulled) / variance[..., None]
    offset = (mean * (evidence.moment + (evidence.moment - pulled))).sum(-1) / (2.0 * variance)
    gram = evidence.gram / variance[..., None, None]
    if covariance.ndim > gram.ndim:
        gram, surprise, offset = gram[..., None, :, :], surprise[..., None, :], offset[..., None]
    try:
        half = cholesky(covariance)
    except np.linalg.LinAlgError:  # so unequal directions that rounding hides the small ones
        half = symmetric_root(covariance)
    inner = transpose(half) @ gram @ half
    gain: Array = offset + 0.5 * gaussian_gain(inner, matvec(transpose(half), surprise))
    return gain
