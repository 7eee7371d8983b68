"""Fitting a population to very many tasks: each step is one pass over partitions.

``scoring_step`` in :mod:`~headstart.transfer.empirical_bayes.full_covariance.fitting` takes a step
after looking at every task twice, first for the mean and then around it. Here a task is looked at
once: the covariance's step is taken around the mean of the step before. At the maximum the mean
stands still, so both find the same one; near it, and a fit to a few hundred tasks is near it, so
are their steps. (What the mean is uncertain by is shared out among tasks by their average, which
with hundreds of them makes no difference.)

A pass over all tasks is dear, so only two are made, and the steps between look at a few thousand
tasks again and again (:class:`Passes`). With sums S over the few and T over all, and μ₀, Σ₀ where
all were looked at,

    T(μ, Σ) ≈ T(μ₀, Σ₀) + n/m · (S(μ, Σ) − S(μ₀, Σ₀)),

which errs by the product of two small numbers: how much the few differ from all, and how far the
fit has moved since. (Stochastic gradient descent with reduced variance has the same idea.)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import float_if_scalar, matvec, trace, transpose
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.small_matrices import sum_of_products
from headstart.transfer.empirical_bayes.full_covariance.fitting import (
    StepSums,
    covariance_step,
    mean_step,
)
from headstart.transfer.empirical_bayes.full_covariance.gamma import digamma
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    Past,
    posteriors,
    task_posteriors,
)
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    EXPECTED_NOISE_SHARE,
    MIN_NOISE_SHARE,
    imaginary_residuals,
    task_variance,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import Partitions, chunks

__all__ = [
    "PassSums",
    "Passes",
    "counting_noise",
    "partition_totals",
    "step_from_totals",
    "sum_totals",
    "task_totals",
]

FIRST_FIT_TASKS = 512  # tasks that the first fit is made from
SUBSET_TASKS = 2048  # tasks that it is improved on
NOISY_FACTOR = 4.0  # a task with so many times the population's R² counts by its own
#: Steps on these alone, then one on all; some of the former, corrected, and a last one on all.
PASS_SCHEDULE = [False] * 12 + [True] + [False] * 2 + [True]
LOW_RANK_PASSES = 2  # over all tasks, for the low-rank population


class PassSums(NamedTuple):
    """The sums of a pass over some tasks."""

    count: Any  # Σ w
    known: Array  # Σ K
    known_squared: Array  # Σ K²
    outer: Array  # Σ z zᵀ
    total: Array  # Σ z
    residual: Any
    dof: Any
    energy: Any  # Σ r²
    rounds: Any

    def plus(self, other: PassSums) -> PassSums:
        """The sums over the tasks of both."""
        return PassSums(*map(operator.add, self, other))

    def minus(self, other: PassSums) -> PassSums:
        """The sums without those of some tasks."""
        return PassSums(*map(operator.sub, self, other))

    def extrapolate(self, now: PassSums, then: PassSums) -> PassSums:
        """These sums over all tasks, for a fit under which a few of them sum to ``now``.

        Under the fit of these sums, those few summed to ``then``.
        """
        ratio = np.sum(self.count) / np.sum(then.count)
        return PassSums(*(a + ratio * b for a, b in zip(self, now.minus(then), strict=True)))


def task_totals(fit: Fit, tasks: Tasks) -> PassSums:
    """The sums over tasks at hand; the fit may be several, with weights for each.

    A task that is much noisier than the others counts by its own noise, and not for theirs.
    """
    root = symmetric_root(fit.covariance)
    tasks = tasks.replace(noise_variance=np.zeros_like(tasks.noise_variance))
    k, z, _, residual, dof = task_posteriors(fit, root, tasks)
    own, noisy = noisy_tasks(fit, residual, dof)
    if noisy.any():
        at = np.flatnonzero(noisy.any(tuple(range(noisy.ndim - 1))))
        some = tasks[at].replace(noise_variance=np.where(noisy, own, 0.0)[..., at])
        k[..., at, :, :], z[..., at, :] = posteriors(fit, root, some)
    weight = np.broadcast_to(tasks.weight, z.shape[:-1])
    usual = weight * ~noisy
    return PassSums(
        weight.sum(-1),
        (weight[..., None, None] * k).sum(-3),
        sum_of_products(k, None, k, weight),
        transpose(z) @ (weight[..., None] * z),
        (weight[..., None] * z).sum(-2),
        (usual * residual).sum(-1),
        (usual * dof).sum(-1),
        (usual * tasks.squares).sum(-1),
        (usual * tasks.rounds).sum(-1),
    )


def noisy_tasks(fit: Fit, residual: Array, dof: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """R_i² of every task, and which are so noisy that they count by it."""
    own = task_variance(fit.noise_variance, fit.dof, residual, dof)
    return own, np.asarray(own > NOISY_FACTOR * np.asarray(fit.noise_variance)[..., None])


def counting_noise(fit: Fit, tasks: Tasks) -> Array:
    """The noise variance that a task counts by: the population's, but for the noisy ones."""
    tasks = tasks.replace(noise_variance=np.zeros_like(tasks.noise_variance))
    *_, residual, dof = task_posteriors(fit, symmetric_root(fit.covariance), tasks)
    own, noisy = noisy_tasks(fit, residual, dof)
    return np.where(noisy, own, np.asarray(fit.noise_variance)[..., None])


def partition_totals(rows: Array, dim: int, fit: Fit) -> PassSums | None:
    """The sums over a partition's tasks."""
    return sum_totals(task_totals(fit, Tasks.from_batch(some)) for some in chunks(rows, dim))


def sum_totals(parts: Iterable[PassSums | None]) -> PassSums | None:
    """The sums over all tasks, in order; ``None`` where there is none."""
    totals = [part for part in parts if part is not None]
    return functools.reduce(PassSums.plus, totals) if totals else None


def sum_nonempty(parts: Iterable[PassSums | None]) -> PassSums:
    """The same where there are tasks."""
    total = sum_totals(parts)
    assert total is not None
    return total


class Passes:
    """Sums over all tasks, from passes over all or over the first few of them.

    ``complete`` tells whether the latest sums stand for all tasks.
    """

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.few = min(SUBSET_TASKS, len(partitions))
        self.latest: tuple[PassSums, PassSums] | None = None  # of all, and of the few among them

    @property
    def complete(self) -> bool:
        """Whether all tasks were looked at, or the few are all."""
        return self.latest is not None or self.few == len(self.partitions)

    def totals(self, whole: bool, function: Callable[..., PassSums | None], fit: Any) -> PassSums:
        """The sums of ``function(rows, dim, fit)`` over all tasks.

        They are estimated from the first few tasks unless the pass is over the ``whole``.
        """
        few = sum_nonempty(self.partitions.map(function, fit, first=self.few))
        if whole:
            some = self.few < len(self.partitions)
            every = sum_nonempty(self.partitions.map(function, fit)) if some else few
            self.latest = every, few
            return every
        return few if self.latest is None else self.latest[0].extrapolate(few, self.latest[1])


def step_from_totals(
    fit: Fit,
    totals: PassSums,
    strength: Any,
    noise: float = 0.0,
    size: Any = None,
    level: bool = False,
) -> tuple[Fit, StepSums]:
    """The fit after one step, and the sums it took.

    ``size`` is as in ``scoring_step``, and ``level`` as in ``mean_step``.
    """
    dim = fit.mean.shape[-1]
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    own, shift = mean_step(fit, root, totals.known, totals.total, level)
    pull = totals.known @ own @ totals.known / np.asarray(totals.count)[..., None, None]
    even = trace(fit.covariance) / dim if size is None else size
    sums = StepSums(
        root,
        totals.known,
        totals.known_squared,
        totals.outer + (pull + transpose(pull)) / 2 - totals.known,
        np.asarray(even)[..., None, None] * (inverse @ inverse),
    )
    mean = fit.mean + matvec(root, shift)
    variance = noise_from_totals(fit, totals, noise)
    sigma = covariance_step(sums, strength)
    return Fit.unchecked(mean, sigma, root @ own @ root, variance, fit.dof), sums


def noise_from_totals(fit: Fit, totals: PassSums, given: float) -> Any:
    """s², from the residuals of all but the noisy tasks, unless R is given."""
    variance: Any = given**2
    if not given:
        usual = totals.energy / np.maximum(totals.rounds, 1e-300)
        doubt = imaginary_residuals(totals.dof)
        estimate = (totals.residual + doubt * EXPECTED_NOISE_SHARE * usual) / (totals.dof + doubt)
        least = np.maximum(estimate, MIN_NOISE_SHARE * usual)
        variance = np.where(usual > 0, least, fit.noise_variance)
    return float_if_scalar(variance * np.ones_like(np.asarray(totals.energy)))


def past_from_totals(fit: Fit, totals: PassSums) -> Past:
    """The tasks of a pass as their posteriors under the fit that it was made with.

    With m = μ + F z, Σ m and Σ (C + m mᵀ) follow from Σ z, Σ z zᵀ and Σ K.
    """
    root = symmetric_root(fit.covariance)
    count = np.asarray(totals.count)
    away = matvec(root, totals.total)
    first = count[..., None] * fit.mean + away
    eye = count[..., None, None] * np.eye(root.shape[-1])
    spread = root @ (eye - totals.known + totals.outer) @ root
    cross = fit.mean[..., :, None] * away[..., None, :]
    square = fit.mean[..., :, None] * fit.mean[..., None, :]
    second = spread + cross + transpose(cross) + count[..., None, None] * square
    dof, noise = np.asarray(fit.dof), np.asarray(fit.noise_variance)
    logs = np.log(dof * noise / 2.0) - digamma(dof / 2.0)
    return Past.unchecked(
        float_if_scalar(count),
        first,
        second,
        float_if_scalar(count / noise),
        float_if_scalar(count * logs),
    )
