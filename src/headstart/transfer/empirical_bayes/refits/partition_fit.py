"""Empirical Bayes for very many tasks, in a few passes over partitions.

The sums of a pass are computed in NumPy or, where Numba is installed and there is enough work, by
the loops of :mod:`headstart.kernels.task_totals`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.kernels import forms
from headstart.model.evidence import Evidence
from headstart.model.information_form import MAX_INFORMATION
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.model.prior import symmetric_root
from headstart.records import Array, combine
from headstart.transfer.empirical_bayes.full_covariance.fitting import StepSums
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.refits.low_rank_passes import (
    LowRankSearch,
    LowRankSums,
    column_uncertainties,
    low_rank_totals,
)
from headstart.transfer.empirical_bayes.refits.passes import (
    FEW_STEPS,
    LOW_RANK_STEPS,
    NOISY_FACTOR,
    Passes,
    PassSums,
    Subset,
    add_up,
    past_from_totals,
    step_from_totals,
    task_totals,
)
from headstart.transfer.empirical_bayes.scoring import (
    candidate_covariances,
    score_ensemble_held_out,
    score_held_out,
    with_task_noise,
)
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState, capacity
from headstart.transfer.empirical_bayes.strength import STRENGTHS, mean_strength
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import Partitions, chunks

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

SCORING_STEPS = {5, 11, 12, 15, 17, 19}  # after which strengths are scored
LOOPS = "headstart.kernels.task_totals"
WORK_PER_ROW = 64  # products of features that are as much work as a row of a log

Sums = tuple[PassSums] | tuple[PassSums, LowRankSums]


def fit_partitions(
    transfer: EmpiricalBayes, partitions: Partitions, noise: float | None = None
) -> EmpiricalBayesState:
    """The state of the tasks of partitions.

    The populations are fitted to the first few thousand tasks, and then corrected by one pass over
    all of them (:class:`~headstart.transfer.empirical_bayes.refits.passes.Passes`).
    """
    count, dim = len(partitions), partitions.dim
    start = transfer.init(dim, noise)
    first = Tasks.from_batch(Evidence.unpack(partitions.slice(0, passes.FIRST_FIT_TASKS), dim))
    # The low-rank population of so few tasks serves the noise of short ones only.
    short = bool((first.rounds < dim + MIN_RESIDUAL_DOF).any())
    state = transfer.update_fit(start.replace(tasks=first), steps=6, low_rank=short)
    if not state.ready:  # no reward at all
        return state.replace(task_count=float(count), fitted_count=float(count))
    search = Search(transfer, partitions, start, state.fit)
    for step, subset in enumerate(FEW_STEPS):
        search.step(subset, step in SCORING_STEPS)
    if transfer.low_rank:
        search.fit_low_rank(first)
    for step, subset in enumerate(search.passes.further_steps, len(FEW_STEPS)):
        search.step(subset, step in SCORING_STEPS)
    return search.finish(state)


class Search:
    """The populations of the tasks of partitions, step by step.

    Now and then the priors of all strengths predict the last tasks, which are left out of the fit
    for that; those that do well decide on the strength of the next, and whether tasks share
    anything at all.
    """

    before: Fit
    totals: PassSums
    others: PassSums
    low_rank: LowRankSearch | None

    def __init__(
        self, transfer: EmpiricalBayes, partitions: Partitions, start: EmpiricalBayesState, fit: Fit
    ) -> None:
        count, dim = len(partitions), partitions.dim
        self.held_rows = partitions.slice(count - min(capacity(dim), count // 4), count)
        self.transfer, self.start, self.count, self.dim = transfer, start, count, dim
        self.passes = Passes(partitions, pass_function(partitions))
        self.held = Tasks.from_batch(Evidence.unpack(self.held_rows, dim))
        self.fit, self.scores, self.support = fit, start.scores, start.support
        self.low, self.low_rank = start.low_rank, None

    @property
    def strength(self) -> Any:
        """How many regularising tasks count."""
        return self.dim * mean_strength(self.scores[..., :-1], STRENGTHS)

    @property
    def known_noise(self) -> float:
        """R where it is given, or estimated by the low-rank population."""
        low = self.low_rank
        if low is None or not low.estimates_noise:
            return self.start.known_noise
        return float(np.sqrt(low.noise))

    def step(self, subset: Subset, scored: bool) -> None:
        """A step of every population, which looks at some tasks."""
        low, arguments = self.low_rank, tuple[Any, ...]()
        if low is not None:
            self.fit, arguments = low.with_noise(self.fit), low.arguments(subset)
        self.before = self.fit
        totals, others = self.sums(subset, self.fit, *arguments)
        self.totals, self.others = totals[0], others[0]
        if low is not None:
            low.step(self.fit, totals[1], others[1])
        strength = self.strength
        self.fit, sums = self.next_fit(self.others, strength)
        if scored:
            self.held = self.held_with_noise(self.fit)
            candidates = candidate_covariances(sums, strength, self.fit)
            self.scores, self.support = score_held_out(self.start, self.fit, candidates, self.held)

    def sums(self, subset: Subset, *arguments: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The sums of a pass, and those without the tasks that are held out if they are in it."""
        sums = self.passes.sums(subset, *arguments)
        if self.passes.stands_for(subset) < self.count:
            return sums, sums
        held = self.passes.function(self.held_rows, self.dim, *arguments)
        return sums, combine(operator.sub, sums, held)

    def next_fit(self, totals: PassSums, strength: Any) -> tuple[Fit, StepSums]:
        """The population with a full covariance after one step, and the sums it took."""
        level = self.transfer.has_level
        return step_from_totals(self.before, totals, strength, self.known_noise, level=level)

    def held_with_noise(self, fit: Fit) -> Tasks:
        """The tasks that are held out, each with its own noise."""
        return with_task_noise(fit, self.held, self.start.known_noise, self.transfer.constant)

    def fit_low_rank(self, first: Tasks) -> None:
        """Fit the low-rank population to the few, if tasks differ along any direction."""
        known, first = self.start.known_noise, first[: self.count - len(self.held)]
        level = self.transfer.has_level
        low = LowRankSearch(self.passes, self.fit, first, known, level)
        self.low = low.population
        if not low.active:
            return
        self.low_rank = low
        for _ in range(LOW_RANK_STEPS):
            fit = low.with_noise(self.fit)
            sums, others = self.sums(Subset.FEW, fit, *low.arguments(Subset.FEW))
            low.step(fit, sums[1], others[1])

    def finish(self, state: EmpiricalBayesState) -> EmpiricalBayesState:
        """The state after all steps.

        The last step is taken once more, with the tasks that were left out and the strength that
        they have chosen.
        """
        low, strength = self.low_rank, self.strength
        population, ensemble = self.low, self.start.ensemble
        if low is not None:
            fit = low.with_noise(self.fit)
            held, others = self.held_with_noise(fit), float(self.count - len(self.held))
            ensemble = score_ensemble_held_out(self.start, fit, low.population, others, held)
            population = low.finish()
        fit, sums = self.next_fit(self.totals, strength)
        before = self.before if low is None else low.with_noise(self.before)
        return state.replace(
            low_rank=population,
            ensemble=ensemble,
            restarted_count=float(self.count) * self.transfer.low_rank,
            tasks=self.held_with_noise(fit),
            past=past_from_totals(before, self.others),
            fit=fit,
            candidates=candidate_covariances(sums, strength, fit),
            scores=self.scores,
            support=self.support * self.count / len(self.held),
            known_squared=sums.known_squared,
            task_count=float(self.count),
            fitted_count=float(self.count),
        )


def pass_function(partitions: Partitions) -> Callable[..., Sums]:
    """The function that sums up the tasks of these partitions, compiled or not."""
    work = len(partitions) * partitions.dim**2 // WORK_PER_ROW
    return partition_totals if forms.load_if_worth(LOOPS, work) is None else compiled_totals


def partition_totals(
    rows: Array, dim: int, fit: Fit, low: LowRank | None = None, scores_noise: bool = False
) -> Sums:
    """The sums over a partition's tasks, for one population or both.

    ``scores_noise`` says whether the scores of R² under the low-rank one are wanted.
    """
    some = list(map(Tasks.from_batch, chunks(rows, dim)))
    full = add_up(task_totals(fit, tasks) for tasks in some)
    if low is None:
        return (full,)
    return full, add_up(low_rank_totals(fit, low, tasks, scores_noise) for tasks in some)


def compiled_totals(
    rows: Array, dim: int, fit: Fit, low: LowRank | None = None, scores_noise: bool = False
) -> Sums:
    """:func:`partition_totals`, compiled; the same up to rounding."""
    loops = forms.load(LOOPS)
    if loops is None:  # on a machine of a cluster without Numba
        return partition_totals(rows, dim, fit, low, scores_noise)
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    mean, root = loops.padded(fit.mean), loops.padded(symmetric_root(fit.covariance), 2)
    noise, dof = float(fit.noise_variance), float(fit.dof)
    *sums, variances = loops.full_sums(
        rows, dim, mean, root, noise, dof, NOISY_FACTOR, MAX_INFORMATION
    )
    if not variances.all():  # a task's evidence spans too many orders of magnitude for the loops
        return partition_totals(rows, dim, fit, low, scores_noise)
    full = PassSums(np.asarray(float(len(rows))), *map(np.asarray, sums))
    if low is None:
        return (full,)
    active = np.flatnonzero(low.active)
    sums = loops.low_rank_sums(
        rows,
        dim,
        variances,
        loops.padded(low.mean),
        loops.padded(low.loadings[:, active]),
        float(low.residual),
        column_uncertainties(low)[active],
        MAX_INFORMATION,
        loops.padded(low.error, 2) if scores_noise else np.zeros((0, 0)),
        noise,
    )
    return full, all_columns(LowRankSums(*map(np.asarray, sums)), active, low.loadings.shape[-1])


def all_columns(totals: LowRankSums, active: Any, rank: int) -> LowRankSums:
    """The sums of some columns of W as those of all, of which the others are zero."""
    factors, shape = totals.count * np.eye(rank), (len(totals.cross), rank)
    cross, product = np.zeros(shape), np.zeros(shape)
    factors[np.ix_(active, active)] = totals.factors
    cross[:, active], product[:, active] = totals.cross, totals.product
    return totals._replace(factors=factors, cross=cross, product=product)
