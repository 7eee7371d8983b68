"""What tasks know under a population: their posteriors, residuals and noise.

In coordinates whitened by Σ = F F, with G_i = gram/R_i² and b_i = moment/R_i², a task has ::

    E_i = (I + F G_i F)⁻¹        K_i = I − E_i            what it knows, 0 … I
    z_i = E_i F (b_i − G_i μ)                             its posterior mean, whitened
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import (
    apply_if,
    array_namespace,
    congruence,
    float_if_scalar,
    matvec,
    trace,
    transpose,
)
from headstart.model.information_form import (
    MAX_INFORMATION,
    InformationPosterior,
    information_posterior,
)
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.model.prior import symmetric_root
from headstart.records import Array, Record
from headstart.small_matrices import (
    has_large_diagonal,
    symmetric_matvec,
    whitened_posteriors,
)
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    expected_precision_and_log,
    task_variance,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.subtraction import (
    subtractable_moments,
    subtractable_noise,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

__all__ = ["Past", "TaskPosteriors", "posteriors", "task_posteriors"]

MAX_MEAN = 1e70  # of a parameter, whose square can be summed up
MIN_COUNT = 1e-9  # tasks: fewer are the rounding of none
NOISE_ITERATIONS = 3  # each with the noise that the one before has estimated


def posteriors(fit: Fit, root: Array, tasks: Tasks) -> tuple[Array, Array]:
    """K_i and z_i of every task."""
    xp = array_namespace(tasks.gram)
    precision = 1.0 / noise_variances(fit, tasks)
    pulled = symmetric_matvec(tasks.gram, fit.mean[..., None, :])
    surprise = precision[..., None] * (tasks.moment - pulled)
    # Unless its posterior is found below, a task whose evidence has lost digits tells nothing.
    left, z, huge = whitened_posteriors(root, tasks.gram, surprise, precision, MAX_INFORMATION)
    for at, graded in graded_posteriors(fit, root, tasks, huge):
        whiten = xp.linalg.inv(root[at[:-1]])
        half = (whiten @ graded.root) / xp.sqrt(precision[at])
        left[at], z[at] = half @ half.T, whiten @ (graded.mean - fit.mean[at[:-1]])
    return xp.eye(root.shape[-1]) - left, z


def loses_digits(inner: Array) -> npt.NDArray[np.bool_]:
    """Which F G F have lost digits: their tasks' evidence spans too many orders of magnitude."""
    loses: npt.NDArray[np.bool_] = has_large_diagonal(inner, MAX_INFORMATION)
    return loses


def graded_posteriors(
    fit: Fit, root: Array, tasks: Tasks, huge: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, ...], InformationPosterior]]:
    """The posteriors of such tasks."""
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
    variances: Array = xp.where(own > 0, own, population)
    return variances


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


def estimate_task_noise(fit: Fit, tasks: Tasks, constant: bool = False) -> Tasks:
    """The tasks with R_i² as their residuals under a fit show it.

    The posteriors matter only to tasks that are too short for least squares.
    """
    xp = array_namespace(tasks.gram)

    def variance(square: Array, dof: Array) -> Array:
        usable = usable_residuals(tasks, square, dof, constant, fit.noise_variance)
        return task_variance(fit.noise_variance, fit.dof, usable.square, usable.dof)

    def by_posteriors(own: Array) -> Array:
        root, own = symmetric_root(fit.covariance), tasks.noise_variance
        for _ in range(NOISE_ITERATIONS):
            found = task_posteriors(fit, root, tasks.replace(noise_variance=own))
            own = variance(found.square, found.dof)
        return own

    zeros = xp.zeros_like(tasks.rounds)
    short = (tasks.dof < MIN_RESIDUAL_DOF).any()
    own = apply_if(xp, short, by_posteriors, variance(zeros, zeros))
    return tasks.replace(noise_variance=own)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Past(Record):
    """What is left of tasks whose evidence is no longer at hand.

    Each was replaced by its posterior when it left: ``count``, Σ m_i, Σ (C_i + m_i m_iᵀ),
    Σ E[1/R_i²] and Σ E[log R_i²].
    """

    count: Any
    first: Array
    second: Array
    precision: Any
    logs: Any

    @classmethod
    def zero(cls, dim: int, batch: tuple[int, ...] = ()) -> Past:
        """No task."""
        flat: Any = np.zeros(batch) if batch else 0.0
        return cls.unchecked(
            flat, np.zeros((*batch, dim)), np.zeros((*batch, dim, dim)), flat, flat
        )

    @classmethod
    def of(cls, fit: Fit, tasks: Tasks, constant: bool = False) -> Past:
        """Tasks replaced by their posteriors under a fit.

        A task so far out of the range of others that its square overflows counts for nothing.
        """
        xp = array_namespace(tasks.gram)
        root = symmetric_root(fit.covariance)
        known, _, mean, square, dof = task_posteriors(fit, root, tasks)
        bounded = (xp.abs(mean) <= MAX_MEAN).all(-1)
        weight = xp.where(bounded, tasks.weight, 0.0)
        mean = xp.where(bounded[..., None], mean, 0.0)
        left = xp.where(bounded[..., None, None], xp.eye(known.shape[-1]) - known, 0.0)
        spread = root @ xp.einsum("...n,...nij->...ij", weight, left) @ root
        residuals = usable_residuals(tasks, square, dof, constant, fit.noise_variance)
        precision, logs = (
            xp.where(bounded, part, 0.0)
            for part in expected_precision_and_log(fit.noise_variance, fit.dof, residuals)
        )
        return cls.unchecked(
            weight.sum(-1),
            (weight[..., None] * mean).sum(-2),
            spread + transpose(mean) @ (weight[..., None] * mean),
            (weight * precision).sum(-1),
            (weight * logs).sum(-1),
        )

    def add(self, fit: Fit, tasks: Tasks, constant: bool = False) -> Past:
        """These tasks and others, replaced by their posteriors under a fit."""
        other = Past.of(fit, tasks, constant)
        return Past.unchecked(
            float_if_scalar(self.count + other.count),
            self.first + other.first,
            self.second + other.second,
            float_if_scalar(self.precision + other.precision),
            float_if_scalar(self.logs + other.logs),
        )

    def subtract(self, fit: Fit, tasks: Tasks, constant: bool = False) -> Past:
        """Take tasks out again, by their posteriors under a fit.

        What is left are sums that tasks can have: of what cannot be subtracted, as much as tasks
        of the past have on average is (:mod:`~headstart.transfer.empirical_bayes.subtraction`).
        """
        other = Past.of(fit, tasks, constant)
        count, weight = np.asarray(self.count), np.asarray(other.count)
        some = count - weight > MIN_COUNT  # else none is left
        count, weight = np.where(some, count, 2.0), np.where(some, weight, 1.0)
        whole, part = self.moment_matrix(count), other.moment_matrix(weight)
        share = subtractable_moments(whole, part)[..., None, None]
        left = whole - share * part - (1.0 - share) * (weight / count)[..., None, None] * whole
        precision, logs = subtractable_noise(
            (count, self.precision, self.logs), (weight, other.precision, other.logs)
        )
        return Past.unchecked(
            float_if_scalar(np.where(some, count - weight, 0.0)),
            np.where(some[..., None], left[..., 1:, 0], 0.0),
            np.where(some[..., None, None], left[..., 1:, 1:], 0.0),
            float_if_scalar(np.where(some, precision, 0.0)),
            float_if_scalar(np.where(some, logs, 0.0)),
        )

    def moment_matrix(self, count: Any) -> Array:
        """[[n, Σ m_iᵀ], [Σ m_i, Σ (C_i + m_i m_iᵀ)]] with this n."""
        top = np.concatenate([np.asarray(count)[..., None], self.first], -1)[..., None, :]
        below = np.concatenate([self.first[..., None], self.second], -1)
        return np.concatenate([top, below], -2)

    def discount(self, factor: Any) -> Past:
        """The same, counting less."""
        xp = array_namespace(self.first)
        share = xp.asarray(factor)
        return Past.unchecked(
            float_if_scalar(self.count * share),
            self.first * share[..., None],
            self.second * share[..., None, None],
            float_if_scalar(self.precision * share),
            float_if_scalar(self.logs * share),
        )

    def transform(self, matrix: Array) -> Past:
        """The same tasks, with parameters multiplied by a matrix."""
        return self.replace(
            first=matvec(matrix, self.first), second=congruence(matrix, self.second)
        )
