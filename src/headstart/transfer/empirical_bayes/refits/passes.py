"""Fitting a population to very many tasks: each step is one pass over partitions.

``scoring_step`` in :mod:`~headstart.transfer.empirical_bayes.full_covariance.fitting` takes a step
after looking at every task twice, first for the mean and then around it. Here a task is looked at
once: the covariance's step is taken around the mean of the step before. At the maximum the mean
stands still, so both find the same one; near it, and a fit to a few hundred tasks is near it, so
are their steps. (What the mean is uncertain by is shared out among tasks by their average, which
with hundreds of them makes no difference.)

A pass over all tasks takes long, so only one is made (:class:`Passes`). The fit is first made to a
few tasks alone. Then there are sums S over m tasks and T over all n, both at the μ₀, Σ₀ of this
fit, and those over all tasks at another μ, Σ are about

    T(μ, Σ) ≈ T(μ₀, Σ₀) + n/m · (S(μ, Σ) − S(μ₀, Σ₀)),

from which two more steps are taken. (Stochastic gradient descent with reduced variance has the same
idea.) That errs by the product of two small numbers: how much the m tasks differ from all, and how
far the fit has moved since. Both are about √(d/m), and what a fit to all tasks is uncertain by is
about √(d/n), so that m = 4 √(n d) makes the first a quarter of the second.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from headstart.arrays import float_if_scalar, matvec, trace, transpose
from headstart.model.prior import symmetric_root
from headstart.records import Array, combine
from headstart.small_matrices import sum_of_products
from headstart.transfer.empirical_bayes.full_covariance.fitting import (
    StepSums,
    covariance_step,
    mean_step,
)
from headstart.transfer.empirical_bayes.full_covariance.gamma import digamma
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    posteriors,
    task_posteriors,
)
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    EXPECTED_NOISE_SHARE,
    MIN_NOISE_SHARE,
    pseudo_residuals,
    task_variance,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import Partitions

FIRST_FIT_TASKS = 512  # tasks that the first fit is made from
SUBSET_TASKS = 2048  # tasks that it is improved on: a few
MORE_TASKS = 4.0  # times √(n d): tasks that then stand for all
NOISY_FACTOR = 4.0  # a task with so many times the population's R² counts by its own
LOW_RANK_STEPS = 2  # of the low-rank population on the few


class Subset(enum.Enum):
    """The tasks that a step sums over, the first in their order: a few, more, or all."""

    FEW = enum.auto()
    MORE = enum.auto()
    ALL = enum.auto()


FEW_STEPS = [Subset.FEW] * 16
#: The steps after these, where the few are not all.
FURTHER_STEPS = [Subset.MORE, Subset.ALL, Subset.MORE, Subset.MORE]

Sums = TypeVar("Sums", bound=tuple[Any, ...])


class PassSums(NamedTuple):
    """The sums of a pass over some tasks, for a population with a full covariance."""

    count: Any  # Σ w
    known: Array  # Σ K
    known_squared: Array  # Σ K²
    outer: Array  # Σ z zᵀ
    total: Array  # Σ z
    residual: Any
    dof: Any
    energy: Any  # Σ r²
    rounds: Any


def add_up(parts: Iterable[Sums]) -> Sums:
    """The sums over the tasks of all parts, of which there is one at least, in their order."""
    return functools.reduce(functools.partial(combine, operator.add), parts)


def task_totals(fit: Fit, tasks: Tasks) -> PassSums:
    """The sums over tasks in memory; the fit may be several, with weights for each.

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


class Passes:
    """Sums over all tasks, most of them estimated from the first few tasks.

    Parameters
    ----------
    partitions
        The tasks.
    function
        ``function(rows, dim, *arguments)`` gives the sums over some tasks, a named tuple of them
        for each population among the arguments.

    Attributes
    ----------
    few
        How many tasks are a few.
    correction
        T − n/m · S of every population, once all were looked at.
    """

    def __init__(self, partitions: Partitions, function: Callable[..., tuple[Any, ...]]) -> None:
        self.partitions, self.function, count = partitions, function, len(partitions)
        self.few = min(SUBSET_TASKS, count)
        more = min(count, int(MORE_TASKS * np.sqrt(count * partitions.dim)))
        self.sizes = {Subset.FEW: self.few, Subset.MORE: max(self.few, more), Subset.ALL: count}
        self.correction: tuple[Any, ...] | None = None

    @property
    def further_steps(self) -> list[Subset]:
        """The subsets of the steps after those on the few."""
        return [] if self.few == len(self.partitions) else FURTHER_STEPS

    def stands_for(self, subset: Subset) -> int:
        """How many tasks the sums of a step stand for."""
        return self.sizes[subset] if self.correction is None else len(self.partitions)

    def sums(self, subset: Subset, *arguments: Any) -> tuple[Any, ...]:
        """The sums for each population.

        Before all tasks were looked at, they are those of a few or of more tasks, and afterwards
        estimates of those of all.
        """
        if subset is not Subset.ALL and self.correction is None:
            return self.add_up(subset, arguments)
        ratio = len(self.partitions) / self.sizes[Subset.MORE]
        more = self.add_up(Subset.MORE, arguments)
        scaled = combine(lambda part: ratio * part, more)
        if subset is Subset.ALL:
            every = self.add_up(subset, arguments)
            self.correction = combine(operator.sub, every, scaled)
            return every
        return combine(operator.add, scaled, self.correction)

    def add_up(self, subset: Subset, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The sums over the tasks that a step looks at, for each population."""
        size = None if subset is Subset.ALL else self.sizes[subset]
        parts = self.partitions.map(self.function, *arguments, first=size)
        return tuple(add_up(each) for each in zip(*parts, strict=True))


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
        doubt = pseudo_residuals(totals.dof)
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
