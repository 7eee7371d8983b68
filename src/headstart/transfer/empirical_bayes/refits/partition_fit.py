"""Empirical Bayes for very many tasks, in a few passes over partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headstart.model.evidence import Evidence
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.records import Array
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.passes import (
    low_rank_step,
    low_rank_totals,
    noise_after_step,
    pass_over,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, start_low_rank
from headstart.transfer.empirical_bayes.low_rank.update import (
    FRESH_ROUNDS,
    SWEEPS,
    WARM_ROUNDS,
    safe_fit,
)
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.refits.passes import (
    PASS_SCHEDULE,
    Passes,
    counting_noise,
    partition_totals,
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

FIRST_NOISE_STEPS = 4  # on the first tasks, where tasks are short
SCORING_STEPS = 5, 11  # on a few of the tasks, after which strengths are scored


def fit_partitions(
    transfer: EmpiricalBayes, partitions: Partitions, noise: float | None = None
) -> EmpiricalBayesState:
    """The state of the tasks of partitions.

    Now and then the priors of all strengths predict the last tasks, which are left out of the fit
    for that; those that do well decide on the strength of the next, and whether tasks share
    anything at all.
    """
    count, dim, level = len(partitions), partitions.dim, transfer.has_level
    start = transfer.init(dim, noise)
    first = Tasks.from_batch(Evidence.unpack(partitions.slice(0, passes.FIRST_FIT_TASKS), dim))
    state = transfer.update_fit(start.replace(tasks=first), steps=6)
    if not state.ready:  # no reward at all
        return state.replace(task_count=float(count), fitted_count=float(count))
    last = partitions.slice(count - min(capacity(dim), count // 4), count)
    held = Tasks.from_batch(Evidence.unpack(last, dim))
    known, fit = state.known_noise, state.fit
    scores, support = state.scores, state.support
    over = Passes(partitions)
    for step, whole in enumerate(PASS_SCHEDULE):
        totals = others = over.totals(whole, partition_totals, fit)
        if over.complete:
            others = totals.minus(task_totals(fit, held))
        before, strength = fit, dim * mean_strength(scores[..., :-1], STRENGTHS)
        fit, sums = step_from_totals(before, others, strength, known, level=level)
        if whole or step in SCORING_STEPS:
            held = with_task_noise(fit, held, known, transfer.constant)
            candidates = candidate_covariances(sums, strength, fit)
            scores, support = score_held_out(start, fit, candidates, held)
    low, ensemble, noise = start.low_rank, start.ensemble, None
    if transfer.low_rank:
        low, ensemble, noise = fit_low_rank_partitions(transfer, partitions, start, fit, held)
    # The last step once more, with these tasks and the strength that they have chosen.
    strength = dim * mean_strength(scores[..., :-1], STRENGTHS)
    fit, sums = step_from_totals(before, totals, strength, known, level=level)
    if noise is not None:
        before, fit = before.replace(noise_variance=noise), fit.replace(noise_variance=noise)
    return state.replace(
        low_rank=low,
        ensemble=ensemble,
        restarted_count=float(count) * transfer.low_rank,
        tasks=with_task_noise(fit, held, known, transfer.constant),
        past=past_from_totals(before, others),
        fit=fit,
        candidates=candidate_covariances(sums, strength, fit),
        scores=scores,
        support=support * count / len(held),
        known_squared=sums.known_squared,
        task_count=float(count),
        fitted_count=float(count),
    )


def fit_low_rank_partitions(
    transfer: EmpiricalBayes,
    partitions: Partitions,
    start: EmpiricalBayesState,
    fit: Fit,
    held: Tasks,
) -> tuple[LowRank, Array, Any]:
    """The low-rank population of all tasks, and the ensemble's scores on tasks that are held out.

    These are left out of the fit for that, and then taken in. Also s², if tasks are too short on
    average to tell it by least squares; else ``None``.
    """
    count, dim, known = len(partitions), partitions.dim, start.known_noise
    level = transfer.has_level
    rows = partitions.slice(0, min(passes.FIRST_FIT_TASKS, count - len(held)))
    first = Tasks.from_batch(Evidence.unpack(rows, dim))
    first = first.replace(noise_variance=counting_noise(fit, first))
    low = start_low_rank(fit, float(len(first)))
    low = safe_fit(low, fit, first, start.past, FRESH_ROUNDS, SWEEPS, level)
    if not low.active.any():
        return low, start.ensemble, None
    short = not known and bool(first.rounds.mean() < dim + MIN_RESIDUAL_DOF)
    for _ in range(FIRST_NOISE_STEPS if short else 0):
        fit = noise_after_step(fit, low_rank_totals(fit, low, first))
        first = first.replace(noise_variance=counting_noise(fit, first))
        low = safe_fit(low, fit, first, start.past, WARM_ROUNDS, SWEEPS, level)
    low = low.replace(information=low.information * (count / len(first)))
    for _ in range(passes.LOW_RANK_PASSES):
        totals = pass_over(partitions, fit, low)
        before, low = low, low_rank_step(low, totals.minus(low_rank_totals(fit, low, held)), level)
        fit = noise_after_step(fit, totals) if short else fit
    held = with_task_noise(fit, held, known, transfer.constant)
    ensemble = score_ensemble_held_out(start, fit, low, float(count - len(held)), held)
    return low_rank_step(before, totals, level), ensemble, fit.noise_variance if short else None
