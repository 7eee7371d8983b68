"""When the fit of empirical Bayes is updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.arrays import apply_if, array_namespace
from headstart.records import select
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

__all__ = ["update_if_due"]

REFIT_GROWTH = 1 / 32  # the fit is updated whenever tasks have grown by this share


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
    updated: EmpiricalBayesState = after.replace(tasks=after.tasks.replace(**sums))
    return updated
