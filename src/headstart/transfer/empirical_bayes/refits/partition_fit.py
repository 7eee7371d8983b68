"""Empirical Bayes for very many tasks, in a few passes over partitions."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.model.evidence import Evidence
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.transfer.empirical_bayes.full_covariance.fitting import StepSums
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.search import LowRankSearch
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.refits.partition_totals import pass_function
from headstart.transfer.empirical_bayes.refits.passes import (
    FEW_STEPS,
    LOW_RANK_STEPS,
    Look,
    Passes,
    PassSums,
    combine,
    past_from_totals,
    step_from_totals,
    task_totals,
)
from headstart.transfer.empirical_bayes.scoring import (
    STRENGTHS,
    candidate_covariances,
    score_ensemble_held_out,
    score_held_out,
    with_task_noise,
)
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState, capacity
from headstart.transfer.empirical_bayes.strength import mean_strength
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import Partitions

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

__all__ = ["fit_partitions"]

SCORING_STEPS = {5, 11, 12, 15, 17, 19}  # after which strengths are scored


def fit_partitions(
    transfer: EmpiricalBayes, partitions: Partitions, noise: float | None = None
) -> EmpiricalBayesState:
    """The state of the tasks of partitions.

    The populations are fitted to the first few thousand tasks, and then corrected by one look at
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
    for step, look in enumerate(FEW_STEPS):
        search.step(look, step in SCORING_STEPS)
    if transfer.low_rank:
        search.fit_low_rank(first)
    for step, look in enumerate(search.over.further_steps, len(FEW_STEPS)):
        search.step(look, step in SCORING_STEPS)
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
        last = partitions.slice(count - min(capacity(dim), count // 4), count)
        self.transfer, self.start, self.count, self.dim = transfer, start, count, dim
        self.over = Passes(partitions, pass_function(partitions))
        self.held = Tasks.from_batch(Evidence.unpack(last, dim))
        self.fit, self.scores, self.support = fit, start.scores, start.support
        self.low, self.low_rank = start.low_rank, None

    @property
    def strength(self) -> Any:
        """How many regularising tasks count."""
        return self.dim * mean_strength(self.scores[..., :-1], STRENGTHS)

    @property
    def known_noise(self) -> float:
        """R where it is given, or where the low-rank population tells it."""
        low = self.low_rank
        if low is None or not low.tells_noise:
            return self.start.known_noise
        return float(np.sqrt(low.noise))

    def step(self, look: Look, scored: bool) -> None:
        """A step of every population, which looks at some tasks."""
        low = self.low_rank
        if low is None:
            (self.totals,) = self.over.sums(look, self.fit)
        else:
            self.fit = low.with_noise(self.fit)
            self.totals, sums = self.over.sums(look, self.fit, *low.arguments(look))
            low.step(self.fit, sums)
        self.before, self.others = self.fit, self.totals
        if self.over.stands_for(look) == self.count:
            self.others = combine(operator.sub, self.totals, task_totals(self.fit, self.held))
        strength = self.strength
        self.fit, sums = self.next_fit(self.others, strength)
        if scored:
            self.held = self.held_with_noise(self.fit)
            candidates = candidate_covariances(sums, strength, self.fit)
            self.scores, self.support = score_held_out(self.start, self.fit, candidates, self.held)

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
        low = LowRankSearch(self.over, self.held, self.fit, first, known, level)
        self.low = low.population
        if not low.active:
            return
        self.low_rank = low
        for _ in range(LOW_RANK_STEPS):
            fit = low.with_noise(self.fit)
            low.step(fit, self.over.sums(Look.FEW, fit, *low.arguments(Look.FEW))[1])

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
