"""What a new task changes besides the sums: older tasks are forgotten, and the fit is updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headstart.arrays import apply_if, array_namespace, float_if_scalar
from headstart.records import select
from headstart.transfer.empirical_bayes.full_covariance.population import is_far_larger
from headstart.transfer.empirical_bayes.overflow import sound_step
from headstart.transfer.empirical_bayes.state import FEW_TASKS, EmpiricalBayesState
from headstart.transfer.empirical_bayes.tasks import Tasks

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

CUSUM_LIMIT = 60.0  # evidence, in nats, that tasks are no longer like those before
REFIT_GROWTH = 1 / 32  # the fit is updated whenever tasks have grown by this share
AGAIN_SHARE = 1 / 8  # or such a share of them was added again
REFIT_SHIFT = 0.1  # of the tasks' spread: if removing a task moves the fit by more, it is refitted


def forget(transfer: EmpiricalBayes, state: EmpiricalBayesState) -> EmpiricalBayesState:
    """Older tasks count less, or not at all if the latest ones contradict them."""
    xp = array_namespace(state.scores)
    length = xp.asarray(state.cusum_length)
    changed = xp.asarray((state.cusum < -CUSUM_LIMIT) & (length >= 3))
    fade = (
        1.0 if isinstance(transfer.decay_tasks, str) else float(np.exp(-1.0 / transfer.decay_tasks))
    )
    if fade == 1.0 and xp is np and not changed.any():
        return state
    recent = state.task_ages < length[..., None] - 1.0  # the newest is not among them yet
    keep = xp.where(changed[..., None] & ~recent, 0.0, fade)
    dim = state.fit.mean.shape[-1]
    fresh = transfer.init(dim, state.known_noise or None, np.shape(state.cusum))
    return state.replace(
        tasks=state.tasks.replace(weight=state.tasks.weight * keep),
        past=state.past.discount(float_if_scalar(xp.where(changed, 0.0, fade))),
        scores=xp.where(changed[..., None], fresh.scores, state.scores),
        ensemble=xp.where(changed[..., None], fresh.ensemble, state.ensemble),
        ready=float_if_scalar(xp.where(changed, 0.0, state.ready)),
        cusum=float_if_scalar(xp.where(changed, 0.0, state.cusum)),
        cusum_length=float_if_scalar(xp.where(changed, 0.0, length)),
        fitted_count=float_if_scalar(xp.where(changed, 0.0, state.fitted_count)),
    )


def restart_if_odd(state: EmpiricalBayesState, tasks: Tasks) -> EmpiricalBayesState:
    """A state that is not ready where its fit began with a task far larger than the others.

    ``tasks`` are those of the state, in its units.
    """
    xp = array_namespace(state.fit.mean)
    is_odd = xp.asarray(state.fitted_count <= FEW_TASKS) & is_far_larger(state.fit, tasks)
    return state.replace(ready=float_if_scalar(xp.where(is_odd, 0.0, state.ready)))


def join_again(
    transfer: EmpiricalBayes, state: EmpiricalBayesState, local: Tasks
) -> EmpiricalBayesState:
    """The fit with a task that was removed before and may have learned more: one scoring step.

    Steps against and along the gradients of single tasks leave the rest of the fit as it was, so it
    is updated now and then.
    """
    count = state.readded_count + 1.0
    state = state.replace(fitted_count=state.fitted_count + 1.0, readded_count=count)
    joined = sound_step(lambda before: transfer.leave_out(before, local, sign=-1.0), state)
    if joined is None or np.any(count >= AGAIN_SHARE * state.counting_tasks):
        return transfer.update_fit(state).replace(readded_count=0.0)
    return joined


def update_if_due(transfer: EmpiricalBayes, state: EmpiricalBayesState) -> EmpiricalBayesState:
    """The state with the fit updated where tasks have grown enough, per batch element."""
    xp = array_namespace(state.fit.mean)
    counting = state.tasks.weight.sum(-1) + xp.asarray(state.past.count)
    growth = xp.minimum(counting, state.fitted_count) * REFIT_GROWTH
    due = xp.asarray(state.task_count >= state.fitted_count + growth)
    sums = {name: getattr(state.tasks, name) for name in ("gram", "moment")}

    def without_sums(state: EmpiricalBayesState) -> EmpiricalBayesState:
        """They are large, stay the same, and would be copied out of a compiled branch."""
        return state.replace(tasks=state.tasks.replace(**dict.fromkeys(sums)))

    def update(_: EmpiricalBayesState) -> EmpiricalBayesState:
        return without_sums(select(due, transfer.update_fit(state), state))

    after = apply_if(xp, due.any(), update, without_sums(state))
    return after.replace(tasks=after.tasks.replace(**sums))
