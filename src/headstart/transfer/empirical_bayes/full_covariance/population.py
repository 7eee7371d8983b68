"""The Gaussian population that is fitted to tasks."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.arrays import (
    apply_if,
    array_namespace,
    congruence,
    float_if_scalar,
    matvec,
    stable_argsort,
    trace,
)
from headstart.model.evidence import Evidence
from headstart.model.prior import ONE_NOISE
from headstart.records import Array, Record, combine, select
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.noise import task_scale

INITIAL_FIT_TASKS = 64  # tasks that a first guess is made from, at most
LARGE_SHARE = 0.1  # of tasks whose rewards are large, by which others may be rounding
ROUNDING_SHARE = 1e-12  # of the mean square reward of these tasks: below, rewards are rounding
MAX_LOG_RATIO = math.log(1e6)  # of the variances that a first guess is made from, to their median
FAR_LARGER = 1e4  # a mean square, than that of most tasks
FAR_REACH = 100.0  # the same of contexts, weighted as they are in the sums
INITIAL_DOF = 128.0  # how alike the tasks' noise is taken to be before there are tasks


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit(Record):
    """μ, Σ, the covariance of μ's own error, and the distribution of the tasks' noise.

    A task's R_i² is scaled-inverse-χ² with scale ``noise_variance`` and ``dof`` degrees of
    freedom (:mod:`~headstart.transfer.empirical_bayes.full_covariance.task_noise`). Σ and μ's error
    are in reward units, as everywhere.
    """

    mean: Array
    covariance: Array
    error: Array
    noise_variance: Any
    dof: Any = ONE_NOISE

    @classmethod
    def isotropic(cls, mean: Array, variance: Any, noise_variance: Any) -> Fit:
        """The same variance everywhere."""
        xp = array_namespace(mean, variance)
        covariance = xp.asarray(variance)[..., None, None] * xp.eye(mean.shape[-1])
        dof = float_if_scalar(xp.full(mean.shape[:-1], INITIAL_DOF))
        return cls.unchecked(mean, covariance, xp.zeros_like(covariance), noise_variance, dof)

    @classmethod
    def initial(cls, tasks: Tasks, known_noise: float) -> tuple[Fit, npt.NDArray[np.bool_]]:
        """A first guess from the scale of the first tasks that have one, and whether any has.

        Half of their mean square is attributed to the mean, half to the spread. Tasks whose rewards
        are all zero, or so small compared with those of others that they are rounding, are ignored,
        however many they are. So are tasks with contexts far larger than most tasks': next to these
        contexts, θ looks as if it hardly varied.
        """
        xp = array_namespace(tasks.gram)
        size = xp.where(tasks.weight > 0, tasks.squares / xp.maximum(tasks.rounds, 1e-300), 0.0)
        many = (size > 0).sum(-1, keepdims=True)
        above = xp.maximum((many * LARGE_SHARE).astype(int), many > 2)  # one may be odd
        large = xp.take_along_axis(xp.sort(size, axis=-1), size.shape[-1] - 1 - above, -1)
        informative = (size > 0) & (size >= ROUNDING_SHARE * large)
        reach = trace(tasks.gram) / xp.maximum(tasks.rounds, 1e-300)
        informative &= reach <= FAR_REACH * lower_median(reach, informative & (reach > 0))
        order = stable_argsort(~informative)[..., :INITIAL_FIT_TASKS]
        first = tasks.take(order)
        noise, lam = task_scale(
            Evidence.unchecked(first.gram, first.moment, first.rounds, first.squares, None)
        )
        counts = xp.take_along_axis(informative, order, -1)
        variance = robust_geometric_mean(xp.asarray(noise) ** 2, counts)
        spread = robust_geometric_mean(xp.asarray(noise) ** 2 / lam, counts) / 2.0
        if known_noise:
            variance = known_noise**2 * xp.ones_like(spread)
        mean = xp.zeros_like(first.moment[..., 0, :])
        fit = cls.isotropic(mean, float_if_scalar(spread), float_if_scalar(variance))
        return fit, xp.asarray(counts.any(-1))

    @property
    def mean_square(self) -> Array:
        """s², the mean square of θ per dimension."""
        xp = array_namespace(self.mean)
        total = xp.asarray(trace(self.covariance) + (self.mean**2).sum(-1))
        return total / self.mean.shape[-1]

    def isotropic_moments(self) -> tuple[Array, Array]:
        """The mean and the covariance of the isotropic prior: 0 and s² I."""
        xp = array_namespace(self.mean)
        eye = xp.eye(self.mean.shape[-1])
        return xp.zeros_like(self.mean), self.mean_square[..., None, None] * eye

    def repeat(self, number: int) -> Fit:
        """``number`` copies of the population along a new first axis."""
        return combine(lambda part: np.repeat(np.asarray(part)[None], number, 0), self)

    def transform(self, matrix: Array) -> Fit:
        """The population of the parameters multiplied by a matrix."""
        return self.replace(
            mean=matvec(matrix, self.mean),
            covariance=congruence(matrix, self.covariance),
            error=congruence(matrix, self.error),
        )

    def where_ready(self, ready: Any) -> Fit:
        """The same population, or N(0, I) with R = 1 where no reward has determined the scale."""
        xp = array_namespace(self.mean)
        ones = xp.ones_like(xp.asarray(self.noise_variance))
        unknown = Fit.isotropic(xp.zeros_like(self.mean), ones, ones)
        return select(xp.asarray(ready) > 0, self, unknown)

    def differs_from(self, other: Fit, share: float) -> bool:
        """Whether another fit is away by more than a share of the tasks' spread."""
        spread = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        scale = np.sqrt(spread[..., :, None] * spread[..., None, :])
        wider = np.abs(other.covariance - self.covariance) > share * scale
        return bool(wider.any() or ((other.mean - self.mean) ** 2 > share**2 * spread).any())


def robust_geometric_mean(values: Array, counts: Array) -> Array:
    """The geometric mean of positive values that count; others are held near their median.

    One task with contexts far out of range would give a spread near 0, from which a fit recovers
    only after many steps.

    >>> robust_geometric_mean(np.array([1e-20, 1.0, 1.0]), np.ones(3, bool)).round(12)
    np.float64(0.01)
    """
    xp = array_namespace(values)
    number = xp.maximum(counts.sum(-1, keepdims=True), 1)
    logs = xp.log(values)
    ranked = xp.sort(xp.where(counts, logs, -xp.inf), axis=-1)
    middle = xp.take_along_axis(ranked, ranked.shape[-1] - 1 - (number - 1) // 2, -1)
    held = xp.clip(logs, middle - MAX_LOG_RATIO, middle + MAX_LOG_RATIO)
    mean: Array = xp.exp((counts / number * xp.where(counts, held, 0.0)).sum(-1))
    return mean


def lower_median(values: Array, counts: Array) -> Array:
    """The lower median of the values that count, with the last axis kept; ∞ if there are none.

    >>> lower_median(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, True, False]))
    array([2.])
    """
    xp = array_namespace(values)
    if not values.shape[-1]:
        return xp.full((*values.shape[:-1], 1), xp.inf)
    ranked = xp.sort(xp.where(counts, values, xp.inf), axis=-1)
    middle = xp.maximum(counts.sum(-1, keepdims=True) - 1, 0) // 2
    return xp.asarray(xp.take_along_axis(ranked, middle, -1))


def is_far_larger(fit: Fit, tasks: Tasks) -> Any:
    """Whether θ is far larger in a fit than in most of several tasks.

    The fit then began with a task that was odd, and would take very many steps to recover.
    """
    xp = array_namespace(tasks.gram)
    reach = trace(tasks.gram) / fit.mean.shape[-1]
    counts = (tasks.weight > 0) & (tasks.squares > 0) & (reach > 0)
    size = tasks.squares / xp.where(counts, reach, 1.0)
    usual = lower_median(size, counts)[..., 0]
    return (counts.sum(-1) > 1) & (fit.mean_square > FAR_LARGER * usual)


def begin_fit(fit: Fit, ready: Any, tasks: Tasks, known_noise: float) -> tuple[Fit, Any]:
    """The fit with a first guess from tasks where it is not ``ready``, and where it is now."""
    xp = array_namespace(fit.mean)
    begun = xp.asarray(ready) > 0

    def begin(before: tuple[Fit, Any]) -> tuple[Fit, Any]:
        fresh, known = Fit.initial(tasks, known_noise)
        now = float_if_scalar(xp.where(begun | known, 1.0, 0.0))
        return select(begun, before[0], fresh), now

    if not len(tasks):
        return fit, ready
    return apply_if(xp, ~begun.all(), begin, (fit, ready))
