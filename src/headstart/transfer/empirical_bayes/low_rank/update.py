"""When and how far the low-rank population of a state is fitted again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.records import Array
from headstart.transfer.empirical_bayes.fitting import StepSums, feature_variances
from headstart.transfer.empirical_bayes.low_rank.fitting import fit_low_rank, leave_one_out
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, start_low_rank
from headstart.transfer.empirical_bayes.population import Fit
from headstart.transfer.empirical_bayes.posteriors import Past, noise_variances
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState
from headstart.transfer.empirical_bayes.tasks import Tasks

__all__ = ["feature_scale", "remove_from_low_rank", "update_low_rank"]

FIRST_FIT_TASKS = 3  # from which on there is a low-rank fit
RESTART_GROWTH = 1 / 4  # a fresh start is made whenever tasks have grown by this share
FRESH_ROUNDS, FRESH_SWEEPS = 6, 2  # from the full covariance
WARM_ROUNDS, WARM_SWEEPS = 1, 2  # from the fit before
MIN_SCALE = 1e-3  # the least √D, as a share of the mean


def update_low_rank(
    state: EmpiricalBayesState,
    fit: Fit,
    tasks: Tasks,
    scale: Array,
    lost: npt.NDArray[np.bool_],
) -> tuple[LowRank, float]:
    """The low-rank population of tasks in the state's units, and when it last began anew.

    Dropped directions come back only by a fresh start from the full covariance, ``fit``, and it is
    made wherever the fit before is of no use (``lost``).
    """
    count = tasks.weight.sum(-1) + np.asarray(state.past.count)
    if np.max(count) < FIRST_FIT_TASKS:
        return LowRank.of_fit(fit), 0.0
    growth = RESTART_GROWTH * min(float(np.max(count)), state.restarted_count)
    due = state.task_count >= state.restarted_count + max(growth, 1.0)
    low, restarted = state.low_rank, state.restarted_count
    due = due or bool(lost.all())
    if not due:
        low = safe_fit(low.with_scale(scale), fit, tasks, state.past, WARM_ROUNDS, WARM_SWEEPS)
    if due or lost.any():
        start = start_low_rank(fit, count, scale)
        fresh = safe_fit(start, fit, tasks, state.past, FRESH_ROUNDS, FRESH_SWEEPS)
        low = fresh if due else low.where(~lost, fresh)
        restarted = max(state.task_count, 1.0)
    return low, restarted


def feature_scale(fit: Fit, sums: StepSums, even: bool) -> Array:
    """√D: how much tasks vary along each feature, as far as they have shown it."""
    variance = feature_variances(fit, sums.root, sums.known, even=even)
    usual = variance.mean(-1, keepdims=True)
    share = np.clip(variance / np.maximum(usual, 1e-300), MIN_SCALE**2, None)
    return np.asarray(np.sqrt(share))


def safe_fit(low: LowRank, fit: Fit, tasks: Tasks, past: Past, *sweeps: int) -> LowRank:
    """A low-rank fit, or the full one where numbers span too many orders of magnitude for it."""
    try:
        with np.errstate(all="ignore"):
            found = fit_low_rank(low, fit, tasks, past, *sweeps)
    except np.linalg.LinAlgError:
        return LowRank.of_fit(fit)
    return found.where(found.finite, LowRank.of_fit(fit))


def remove_from_low_rank(state: EmpiricalBayesState, local: Tasks, sign: float = 1.0) -> LowRank:
    """The low-rank population without a task (or with one more), in the state's units."""
    if not state.restarted_count:
        return state.low_rank
    noise = noise_variances(state.fit, local)
    full = LowRank.of_fit(state.fit)
    try:
        with np.errstate(all="ignore"):
            found = leave_one_out(state.low_rank, local, noise, state.counting_tasks, sign)
    except np.linalg.LinAlgError:
        return full
    return found.where(found.finite & found.active.any(-1), full)
