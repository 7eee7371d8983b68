"""Fitting a population to very many tasks: each step is one pass over partitions.

``improve`` in :mod:`~headstart.transfer.empirical_bayes.fitting` takes a step after looking at
every task twice, first for the mean and then around it. Here a task is looked at once: the
covariance's step is taken around the mean of the step before. At the maximum the mean stands still,
so both find the same one; near it, and a fit to a few hundred tasks is near it, so are their steps.
(What the mean is uncertain by is shared out among tasks by their average, which with hundreds of
them makes no difference.)

A pass over all tasks is dear, so only two are made, and the steps between look at a few thousand
tasks again and again (:class:`Passes`). With sums S over the few and T over all, and μ₀, Σ₀ where
all were looked at,

    T(μ, Σ) ≈ T(μ₀, Σ₀) + n/m · (S(μ, Σ) − S(μ₀, Σ₀)),

which errs by the product of two small numbers: how much the few differ from all, and how far the
fit has moved since. (Stochastic gradient descent with reduced variance has the same idea.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import float_if_scalar, matvec, trace, transpose
from headstart.model.evidence import Evidence
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.transfer.empirical_bayes.fitting import (
    Pass,
    Past,
    posteriors,
    recentred,
    residuals,
    shrunk,
    side_by_side,
)
from headstart.transfer.empirical_bayes.gamma import digamma
from headstart.transfer.empirical_bayes.many import Fit, Tasks
from headstart.transfer.empirical_bayes.task_noise import (
    DOUBT,
    ENOUGH,
    LEAST_NOISE,
    SHARE,
    task_variance,
)
from headstart.transfer.partitions import Partitions, chunks

__all__ = [
    "SAMPLE",
    "STEPS",
    "Passes",
    "Totals",
    "added",
    "past_from",
    "stepped",
    "totals_of",
]

SAMPLE = 512  # tasks that the first fit is made from
SOME = 2048  # tasks, at least, that it is improved on
NOISY = 4.0  # a task with so many times the population's R² counts by its own
#: Steps on these alone, then one on all; some of the former, corrected, and a last one on all.
STEPS = [False] * 12 + [True] + [False] * 2 + [True]


class Totals(NamedTuple):
    """The sums of a pass over some tasks."""

    count: Any  # Σ w
    known: Array  # Σ K
    squared: Array  # Σ K²
    outer: Array  # Σ z zᵀ
    total: Array  # Σ z
    residual: Any
    freedom: Any
    energy: Any  # Σ r²
    rounds: Any

    def plus(self, other: Totals) -> Totals:
        """The sums over the tasks of both."""
        return Totals(*(left + right for left, right in zip(self, other, strict=True)))

    def minus(self, other: Totals) -> Totals:
        """The sums without those of some tasks."""
        return Totals(*(left - right for left, right in zip(self, other, strict=True)))

    def corrected(self, now: Totals, then: Totals) -> Totals:
        """These sums over all tasks, for a fit under which a few of them sum to ``now``.

        Under the fit of these sums, those few summed to ``then``.
        """
        ratio = np.sum(self.count) / np.sum(then.count)
        return Totals(
            *(
                all + ratio * (left - right)
                for all, left, right in zip(self, now, then, strict=True)
            )
        )


def totals_of_tasks(fit: Fit, tasks: Tasks) -> Totals:
    """The sums over tasks at hand; the fit may be several, with weights for each.

    A task that is much noisier than the others counts by its own noise, and not for theirs.
    """
    root = symmetric_root(fit.covariance)
    tasks = tasks.replace(noise=np.zeros_like(tasks.noise))
    k, z, residual, freedom = looked_at(fit, root, tasks)
    own = task_variance(fit.noise, fit.freedom, residual, freedom)
    noisy = own > NOISY * np.asarray(fit.noise)[..., None]
    if noisy.any():
        at = np.flatnonzero(noisy.any(tuple(range(noisy.ndim - 1))))
        some = tasks[at].replace(noise=np.where(noisy, own, 0.0)[..., at])
        k[..., at, :, :], z[..., at, :] = looked_at(fit, root, some)[:2]
    weight = np.broadcast_to(tasks.weight, z.shape[:-1])
    usual = weight * ~noisy
    weighted = weight[..., None, None] * k
    return Totals(
        weight.sum(-1),
        weighted.sum(-3),
        side_by_side(weighted) @ transpose(side_by_side(k)),
        transpose(z) @ (weight[..., None] * z),
        (weight[..., None] * z).sum(-2),
        (usual * residual).sum(-1),
        (usual * freedom).sum(-1),
        (usual * tasks.squares).sum(-1),
        (usual * tasks.rounds).sum(-1),
    )


def looked_at(fit: Fit, root: Array, tasks: Tasks) -> tuple[Array, Array, Array, Array]:
    """K, z, the residual sum of squares and its degrees of freedom of every task."""
    k, z = posteriors(fit, root, tasks)
    mean = fit.mean[..., None, :] + matvec(root[..., None, :, :], z)
    return k, z, *residuals(tasks, mean, k)


def totals_of(rows: Array, dim: int, fit: Fit) -> Totals | None:
    """The sums over a partition's tasks."""
    return added(totals_of_tasks(fit, as_tasks(some)) for some in chunks(rows, dim))


def added(parts: Iterable[Totals | None]) -> Totals | None:
    """The sums over all tasks, in order; ``None`` where there is none."""
    total: Totals | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.plus(part)
    return total


def everything(parts: Iterable[Totals | None]) -> Totals:
    """The same where there are tasks."""
    total = added(parts)
    assert total is not None
    return total


class Passes:
    """Sums over all tasks, from passes over all or over the first few partitions.

    ``complete`` tells whether the latest sums stand for all tasks.
    """

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.few = min(int(np.searchsorted(np.cumsum(partitions.sizes), SOME)) + 1, self.many)
        self.latest: tuple[Totals, Totals] | None = None  # of all, and of the few among them

    @property
    def many(self) -> int:
        """How many partitions there are."""
        return len(self.partitions.sizes)

    @property
    def complete(self) -> bool:
        """Whether all tasks were looked at, or the few are all."""
        return self.latest is not None or self.few == self.many

    def over(self, whole: bool, function: Callable[..., Totals | None], fit: Any) -> Totals:
        """The sums ``function(rows, dim, fit)`` of every partition, or what they are about."""
        if whole:
            parts = self.partitions.map(function, fit)
            self.latest = everything(parts), everything(parts[: self.few])
            return self.latest[0]
        few = everything(self.partitions.map(function, fit, first=self.few))
        return few if self.latest is None else self.latest[0].corrected(few, self.latest[1])


def stepped(
    fit: Fit, totals: Totals, strength: Any, noise: float = 0.0, size: Any = None
) -> tuple[Fit, Pass]:
    """The fit after one step, and the pass it took; ``size`` as in ``improve``."""
    dim = fit.mean.shape[-1]
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    own, shift = recentred(fit, root, totals.known, totals.total)
    pull = totals.known @ own @ totals.known / np.asarray(totals.count)[..., None, None]
    even = trace(fit.covariance) / dim if size is None else size
    taken = Pass(
        root,
        totals.known,
        totals.squared,
        totals.outer + (pull + transpose(pull)) / 2 - totals.known,
        np.asarray(even)[..., None, None] * (inverse @ inverse),
    )
    mean = fit.mean + matvec(root, shift)
    variance = noise_found(fit, totals, noise)
    sigma = shrunk(taken, strength)
    return Fit.unchecked(mean, sigma, root @ own @ root, variance, fit.freedom), taken


def noise_found(fit: Fit, totals: Totals, given: float) -> Any:
    """s², from the residuals of all but the noisy tasks, unless R is given."""
    variance: Any = given**2
    if not given:
        usual = totals.energy / np.maximum(totals.rounds, 1e-300)
        doubt = DOUBT * (ENOUGH / (ENOUGH + totals.freedom)) ** 2
        found = (totals.residual + doubt * SHARE * usual) / (totals.freedom + doubt)
        variance = np.where(usual > 0, np.maximum(found, LEAST_NOISE * usual), fit.noise)
    return float_if_scalar(variance * np.ones_like(np.asarray(totals.energy)))


def past_from(fit: Fit, totals: Totals) -> Past:
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
    freedom, noise = np.asarray(fit.freedom), np.asarray(fit.noise)
    logs = np.log(freedom * noise / 2.0) - digamma(freedom / 2.0)
    return Past.unchecked(
        float_if_scalar(count),
        first,
        second,
        float_if_scalar(count / noise),
        float_if_scalar(count * logs),
    )


def as_tasks(evidence: Evidence) -> Tasks:
    """Tasks side by side, from evidence along a batch axis; each counts once."""
    return Tasks.unchecked(
        evidence.gram,
        evidence.moment,
        evidence.rounds,
        evidence.squares,
        np.ones_like(evidence.rounds),
        np.zeros_like(evidence.rounds),
        np.zeros_like(evidence.rounds),
        np.full_like(evidence.rounds, -1.0),
    )
