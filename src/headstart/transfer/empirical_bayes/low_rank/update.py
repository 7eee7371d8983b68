"""When and how far the low-rank population of a state is fitted again."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.arrays import apply_if, array_namespace, attempt, float_if_scalar
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.records import Array, select
from headstart.transfer.empirical_bayes.full_covariance.fitting import (
    StepSums,
    feature_variances,
    fit_noise,
)
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import noise_variances
from headstart.transfer.empirical_bayes.low_rank.fitting import fit_low_rank, leave_one_out
from headstart.transfer.empirical_bayes.low_rank.noise import (
    MarginalResiduals,
    marginal_residuals,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, start_low_rank
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState
from headstart.transfer.empirical_bayes.tasks import Tasks

FIRST_FIT_TASKS = 3  # from which on there is a low-rank fit
RESTART_GROWTH = 1 / 4  # a fresh start is made whenever tasks have grown by this share
FRESH_ROUNDS, WARM_ROUNDS = 6, 1  # from the full covariance, and from the fit before
SWEEPS = 2  # of every round
MIN_SCALE = 1e-3  # the least √D, as a share of the mean


def update_low_rank(
    state: EmpiricalBayesState,
    fit: Fit,
    tasks: Tasks,
    scale: Array,
    level: bool = False,
) -> tuple[LowRank, Any]:
    """The low-rank population of tasks in the state's units, and when it was last restarted.

    Dropped directions come back only by a fresh start from the full covariance, ``fit``, and it is
    made wherever the fit before is of no use (the state is not ready).
    """
    xp = array_namespace(tasks.gram)
    count = tasks.weight.sum(-1) + xp.asarray(state.past.count)
    enough = xp.asarray(count >= FIRST_FIT_TASKS)
    full = LowRank.of_fit(fit)
    if xp is np and not enough.any():
        return full, float_if_scalar(np.zeros_like(count))
    restarted = xp.asarray(state.restarted_count)
    growth = xp.maximum(RESTART_GROWTH * xp.minimum(count, restarted), 1.0)
    lost = xp.asarray(state.ready) <= 0
    fresh = xp.asarray(lost | (state.task_count >= restarted + growth))
    low = state.low_rank.with_scale(scale)
    if xp is not np or fresh.any():
        low = select(fresh, start_low_rank(fit, count, scale), low)
    rounds = xp.where(fresh, FRESH_ROUNDS, WARM_ROUNDS)
    low = safe_fit(low, fit, tasks, state.past, rounds, SWEEPS, level)
    restarted = xp.where(fresh, xp.maximum(state.task_count, 1.0), restarted)
    return select(enough, low, full), float_if_scalar(xp.where(enough, restarted, 0.0))


def update_noise(
    low: LowRank, fit: Fit, tasks: Tasks, past: Past, constant: bool
) -> tuple[Fit, Tasks]:
    """The distribution of the tasks' noise, and the tasks with their own.

    Tasks too short for least squares contribute by their marginal likelihood under the low-rank
    fit.
    """
    xp = array_namespace(tasks.gram)
    short = (tasks.dof < MIN_RESIDUAL_DOF) & (tasks.weight > 0)
    counting = tasks.replace(weight=tasks.weight * short)
    zeros = xp.zeros_like(tasks.rounds)

    def residuals(before: MarginalResiduals) -> MarginalResiduals:
        if xp is not np:
            return marginal_residuals(low, counting, noise_variances(fit, tasks))
        at = np.flatnonzero(short.reshape(-1, len(tasks)).any(0))
        with np.errstate(all="ignore"):
            part = marginal_residuals(low, counting[at], noise_variances(fit, tasks[at]))
        square, dof = before.square.copy(), before.dof.copy()
        square[..., at], dof[..., at] = part.square, part.dof
        return MarginalResiduals(square, dof, part.share)

    none = MarginalResiduals(zeros, zeros, xp.ones_like(zeros.sum(-1)))
    square, dof, share = apply_if(xp, short.any(), residuals, none)
    weighted = tasks.replace(weight=tasks.weight * xp.where(short, share[..., None], 1.0))
    fit, weighted = fit_noise(fit, weighted, past, square, dof, constant)
    return fit, tasks.replace(noise_variance=weighted.noise_variance)


def feature_scale(fit: Fit, sums: StepSums, even: bool) -> Array:
    """√D: how much tasks vary along each feature, as far as they have shown it."""
    xp = array_namespace(fit.mean)
    variance = feature_variances(fit, sums.root, sums.known, even=even)
    usual = variance.mean(-1, keepdims=True)
    share = xp.clip(variance / xp.maximum(usual, 1e-300), MIN_SCALE**2, None)
    return xp.asarray(xp.sqrt(share))


def safe_fit(
    low: LowRank,
    fit: Fit,
    tasks: Tasks,
    past: Past,
    rounds: Any,
    sweeps: int,
    level: bool = False,
) -> LowRank:
    """A low-rank fit, or the full one where numbers span too many orders of magnitude for it."""
    full = LowRank.of_fit(fit)
    fitted = attempt(fit_low_rank, low, fit, tasks, past, rounds, sweeps, level)
    return full if fitted is None else select(fitted.finite, fitted, full)


def remove_from_low_rank(state: EmpiricalBayesState, local: Tasks, sign: float = 1.0) -> LowRank:
    """The low-rank population without a task (or with one more), in the state's units."""
    if not np.any(state.restarted_count):
        return state.low_rank
    noise = noise_variances(state.fit, local)
    full = LowRank.of_fit(state.fit)
    without = attempt(leave_one_out, state.low_rank, local, noise, state.counting_tasks, sign)
    if without is None:
        return full
    return select(without.finite & without.active.any(-1), without, full)
