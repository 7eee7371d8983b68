"""The sums that are left of tasks whose evidence is not kept, and how tasks are subtracted.

A task is subtracted as seen by the current fit, not by the fit with which it was added. What is
left may then not be sums of any tasks: a negative variance, or a negative precision of the noise.
Sums over tasks are a convex cone. With n tasks, Σ m_i and Σ (C_i + m_i m_iᵀ), and with Σ E[1/R_i²]
= p and Σ E[log R_i²] = l (Jensen's inequality), ::

    M = [[n, Σ m_iᵀ], [Σ m_i, Σ (C_i + m_i m_iᵀ)]] ⪰ 0        l + n log(p/n) ≥ 0

Where M − T of a task T of weight w leaves this cone, a share α of the task is subtracted and the
rest as an average task: M − α T − (1 − α)(w/n) M, which for small α never leaves it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headstart.arrays import (
    along_batch,
    array_namespace,
    congruence,
    float_if_scalar,
    matvec,
    transpose,
)
from headstart.model.prior import symmetric_root
from headstart.records import Array, Record, combine, select
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import task_posteriors
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    expected_precision_and_log,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

MAX_MEAN = 1e70  # of a parameter, whose square can be summed up
MIN_COUNT = 1e-9  # tasks: fewer are the rounding of none
SHARE_OF_LIMIT = 0.99  # of the largest α that stays in the cone, so that not everything is used up
MIN_LEFT = 1e-10  # of a direction, that a subtraction of all must leave: less would be rounding
NOISE_SHARES = 64  # the shares that are tried for the noise


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Past(Record):
    """Sums over tasks whose evidence is no longer kept.

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

        A task so far out of range that its square overflows is ignored.
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
        return combine(lambda one, more: float_if_scalar(one + more), self, other)

    def subtract(self, fit: Fit, tasks: Tasks, constant: bool = False) -> Past:
        """Subtract tasks, by their posteriors under a fit.

        What is left are sums that tasks can have: in place of what cannot be subtracted, the
        average of the past tasks is.
        """
        removed = Past.of(fit, tasks, constant)
        count, weight = np.asarray(self.count), np.asarray(removed.count)
        has_rest = count - weight > MIN_COUNT  # else none is left
        count, weight = np.where(has_rest, count, 2.0), np.where(has_rest, weight, 1.0)
        whole, part = self.moment_matrix(count), removed.moment_matrix(weight)
        share = subtractable_moments(whole, part)[..., None, None]
        left = whole - share * part - (1.0 - share) * (weight / count)[..., None, None] * whole
        precision, logs = subtractable_noise(
            (count, self.precision, self.logs), (weight, removed.precision, removed.logs)
        )
        after = Past.unchecked(
            float_if_scalar(count - weight),
            left[..., 1:, 0],
            left[..., 1:, 1:],
            float_if_scalar(precision),
            float_if_scalar(logs),
        )
        return select(has_rest, after, Past.zero(self.first.shape[-1], has_rest.shape))

    def moment_matrix(self, count: Any) -> Array:
        """[[n, Σ m_iᵀ], [Σ m_i, Σ (C_i + m_i m_iᵀ)]] with this n."""
        top = np.concatenate([np.asarray(count)[..., None], self.first], -1)[..., None, :]
        below = np.concatenate([self.first[..., None], self.second], -1)
        return np.concatenate([top, below], -2)

    def discount(self, factor: Any) -> Past:
        """The same, counting less."""
        share = array_namespace(self.first).asarray(factor)
        return combine(lambda part: float_if_scalar(part * along_batch(share, part)), self)

    def transform(self, matrix: Array) -> Past:
        """The same tasks, with parameters multiplied by a matrix."""
        return self.replace(
            first=matvec(matrix, self.first), second=congruence(matrix, self.second)
        )


def subtractable_moments(whole: Array, part: Array) -> Array:
    """α for moment matrices M of all and T of one, which must have at most the count of all.

    M − α T − (1 − α)(w/n) M is positive semi-definite while α λ + (1 − α) w/n ≤ 1, with the
    largest eigenvalue λ of M^-½ T M^-½.

    >>> whole = np.diag([4.0, 8.0])
    >>> [float(subtractable_moments(whole, np.diag([1.0, s])).round(2)) for s in (2.0, 9.0, 99.0)]
    [1.0, 0.85, 0.06]
    """
    size = np.sqrt(np.maximum(np.diagonal(whole, axis1=-2, axis2=-1), 1e-300))
    scale = size[..., :, None] * size[..., None, :]
    values, vectors = np.linalg.eigh(whole / scale)
    values = np.maximum(values, 1e-14 * values[..., -1:])
    whiten = vectors / np.sqrt(values)[..., None, :]
    share = np.linalg.eigvalsh(transpose(whiten) @ (part / scale) @ whiten)[..., -1]
    average = part[..., 0, 0] / whole[..., 0, 0]
    limit = SHARE_OF_LIMIT * (1.0 - average) / np.maximum(share - average, 1e-300)
    return np.asarray(np.where(share <= 1.0 - MIN_LEFT, 1.0, np.clip(limit, 0.0, 1.0)))


def subtractable_noise(
    whole: tuple[Any, Any, Any], part: tuple[Any, Any, Any]
) -> tuple[Array, Array]:
    """Return p and l after as much of a task was subtracted as can be.

    ``whole`` and ``part`` are n, p and l of all tasks and of the one.
    """
    (count, precision, logs), (weight, own_precision, own_logs) = (
        [np.asarray(value, dtype=float) for value in sums] for sums in (whole, part)
    )
    left = count - weight
    shares = np.linspace(1.0, 0.0, NOISE_SHARES + 1).reshape(-1, *[1] * count.ndim)
    rest = (1.0 - shares) * weight / count
    precisions = precision - shares * own_precision - rest * precision
    all_logs = logs - shares * own_logs - rest * logs
    excess = all_logs + left * np.log(np.maximum(precisions, 1e-300) / left)
    valid = (precisions > 0) & (excess >= 0)
    valid[-1] = True  # an average task can always be subtracted
    first = valid.argmax(0)[None]
    return (
        np.take_along_axis(precisions, first, 0)[0],
        np.take_along_axis(all_logs, first, 0)[0],
    )
