"""Tasks under a population: their posteriors, residuals, noise and likelihood.

In coordinates whitened by Σ = F F, with G_i = gram/R_i² and b_i = moment/R_i², a task has ::

    E_i = (I + F G_i F)⁻¹        K_i = I − E_i            the variance removed, 0 … I
    z_i = E_i F (b_i − G_i μ)                             its posterior mean, whitened
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import apply_if, array_namespace, matvec, trace, transpose
from headstart.model.evidence import Evidence
from headstart.model.information_form import (
    MAX_INFORMATION,
    InformationPosterior,
    information_posterior,
)
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.small_matrices import (
    cholesky,
    gaussian_gain,
    has_large_diagonal,
    symmetric_matvec,
    whitened_posteriors,
)
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    task_variance,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

NOISE_ITERATIONS = 3  # each with the noise that the one before has estimated


def posteriors(fit: Fit, root: Array, tasks: Tasks) -> tuple[Array, Array]:
    """K_i and z_i of every task."""
    xp = array_namespace(tasks.gram)
    precision = 1.0 / noise_variances(fit, tasks)
    pulled = symmetric_matvec(tasks.gram, fit.mean[..., None, :])
    surprise = precision[..., None] * (tasks.moment - pulled)
    # Unless its posterior is computed below, a task whose evidence has lost digits is ignored.
    left, z, huge = whitened_posteriors(root, tasks.gram, surprise, precision, MAX_INFORMATION)
    for at, graded in graded_posteriors(fit, root, tasks, huge):
        whiten = xp.linalg.inv(root[at[:-1]])
        half = (whiten @ graded.root) / xp.sqrt(precision[at])
        left[at], z[at] = half @ half.T, whiten @ (graded.mean - fit.mean[at[:-1]])
    return xp.eye(root.shape[-1]) - left, z


def graded_posteriors(
    fit: Fit, root: Array, tasks: Tasks, huge: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, ...], InformationPosterior]]:
    """The posteriors of tasks whose evidence spans too many orders of magnitude for products."""
    if array_namespace(huge) is not np or not huge.any():
        return
    shape = huge.shape
    variance = np.broadcast_to(noise_variances(fit, tasks), shape)
    means = np.broadcast_to(fit.mean, root.shape[:-1])
    gram = np.broadcast_to(tasks.gram, (*shape, *tasks.gram.shape[-2:]))
    moment = np.broadcast_to(tasks.moment, (*shape, tasks.moment.shape[-1]))
    squares = np.broadcast_to(tasks.squares, shape)
    for place in np.argwhere(huge):
        at = tuple(int(number) for number in place)
        start = root[at[:-1]] / np.sqrt(variance[at])
        graded = information_posterior(
            means[at[:-1]], start, gram[at], moment[at], float(squares[at])
        )
        if graded is not None:
            yield at, graded


def noise_variances(fit: Fit, tasks: Tasks) -> Array:
    """R_i² of every task: its own, or the population's where it has not been estimated."""
    xp = array_namespace(tasks.gram)
    own, population = tasks.noise_variance, xp.asarray(fit.noise_variance)[..., None]
    return xp.where(own > 0, own, population)


class TaskPosteriors(NamedTuple):
    """Of every task: K_i, z_i, the posterior mean, and the residuals there.

    ``square`` is the residual sum of squares and ``dof`` its degrees of freedom.
    """

    known: Array
    z: Array
    mean: Array
    square: Array
    dof: Array


def task_posteriors(fit: Fit, root: Array, tasks: Tasks) -> TaskPosteriors:
    """The posteriors of tasks under a population with this root of Σ."""
    xp = array_namespace(tasks.gram)
    known, z = posteriors(fit, root, tasks)
    mean = fit.mean[..., None, :] + matvec(root[..., None, :, :], z)
    fitted = (mean * (2.0 * tasks.moment - symmetric_matvec(tasks.gram, mean))).sum(-1)
    square = xp.maximum(tasks.squares - fitted, 0.0)
    dof = xp.maximum(tasks.rounds - trace(known), 0.0)
    return TaskPosteriors(known, z, mean, square, dof)


def expected_squares(fit: Fit, tasks: Tasks) -> Array:
    """The mean square reward of every task that a fit leads to expect, tr G (Σ + μμᵀ)/n + s²."""
    xp = array_namespace(tasks.gram)
    second = fit.covariance + fit.mean[..., :, None] * fit.mean[..., None, :]
    signal = (tasks.gram * second[..., None, :, :]).sum((-2, -1))
    noise = xp.asarray(fit.noise_variance)[..., None]
    return xp.asarray(signal / xp.maximum(tasks.rounds, 1e-300) + noise)


def estimate_task_noise(fit: Fit, tasks: Tasks, constant: bool = False) -> Tasks:
    """The tasks with R_i² as their residuals under a fit show it.

    The posteriors matter only to tasks that are too short for least squares.
    """
    xp = array_namespace(tasks.gram)

    expected = expected_squares(fit, tasks)

    def variance(square: Array, dof: Array) -> Array:
        usable = usable_residuals(tasks, square, dof, constant, fit.noise_variance, expected)
        return task_variance(fit.noise_variance, fit.dof, usable.square, usable.dof)

    def by_posteriors(own: Array) -> Array:
        root, own = symmetric_root(fit.covariance), tasks.noise_variance
        for _ in range(NOISE_ITERATIONS):
            residuals = task_posteriors(fit, root, tasks.replace(noise_variance=own))
            own = variance(residuals.square, residuals.dof)
        return own

    zeros = xp.zeros_like(tasks.rounds)
    short = (tasks.dof < MIN_RESIDUAL_DOF).any()
    own = apply_if(xp, short, by_posteriors, variance(zeros, zeros))
    return tasks.replace(noise_variance=own)


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
    huge = has_large_diagonal(inner, MAX_INFORMATION)  # digits of what is less are lost
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
    return -0.5 * (tasks.rounds * np.log(variance) + tasks.squares / variance)


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
    return offset + 0.5 * gaussian_gain(inner, matvec(transpose(half), surprise))
