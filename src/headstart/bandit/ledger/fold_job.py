"""Jobs: to fold a task into a transfer's state, or to refit it, while other calls go on."""

from __future__ import annotations

from typing import Any, NamedTuple

from headstart.bandit.ledger.entries import TaskEntry
from headstart.bandit.ledger.prior_state import EXACT_REMOVALS, MIN_REMOVALS, PriorState
from headstart.model.evidence import Evidence
from headstart.transfer import Transfer


class FoldJob(NamedTuple):
    """What is needed to fold a task: it takes long, changes nothing and needs no lock."""

    state: Any
    evidence: Evidence
    removal: Evidence | None  # what the state still holds of the task
    entry: TaskEntry
    reward_count: int

    @classmethod
    def of(cls, prior_state: PriorState, name: str) -> FoldJob | None:
        """What is needed to fold a task; ``None`` where nothing is to be folded."""
        entry, evidence = prior_state.entries[name], prior_state.entries.evidence(name)
        if prior_state.needs_refit or not evidence.rounds:
            return None
        removal = prior_state.removals.get(name)
        return cls(prior_state.state, evidence, removal, entry, entry.reward_count)

    def is_current(self, prior_state: PriorState, name: str) -> bool:
        """Whether nothing has changed since the job was made."""
        entry = prior_state.entries.get(name)
        return (
            self.entry is entry
            and self.reward_count == entry.reward_count
            and self.state is prior_state.state
            and self.removal is prior_state.removals.get(name)
        )

    def run(self, transfer: Transfer) -> Any:
        """The state with the task."""
        state = self.state
        if self.removal is not None:
            state = transfer.fold(state, self.removal, -1.0)
        return transfer.fold(state, self.evidence, 1.0)


class RefitJob(NamedTuple):
    """What is needed to refit the closed tasks, after many of them were removed and added again.

    The fit may take seconds. What is closed, reopened or changed meanwhile is removed from the new
    state, or folded into it, before the next prior is computed.
    """

    prior_state: PriorState
    tasks: dict[str, tuple[TaskEntry, int, Evidence]]  # closed, with the numbers of their rewards

    @classmethod
    def of(cls, prior_state: PriorState) -> RefitJob | None:
        """What is needed to refit; ``None`` where that is not due."""
        closed, entries, transfer = prior_state.closed, prior_state.entries, prior_state.transfer
        due = prior_state.removal_count > EXACT_REMOVALS * max(MIN_REMOVALS, len(closed))
        if not due or not transfer.removes_exactly or transfer.keeps_evidence(prior_state.state):
            return None
        return cls(
            prior_state,
            {
                name: (entries[name], entries[name].reward_count, entries.evidence(name))
                for name in closed
                if entries.rounds(name)
            },
        )

    def run(self) -> Any:
        """The state of these tasks."""
        return self.prior_state.refit(evidence for _, _, evidence in self.tasks.values())

    def adopt(self, state: Any) -> None:
        """Take over the new state."""
        prior_state = self.prior_state
        entries, closed = prior_state.entries, prior_state.closed
        if not closed or prior_state.needs_refit:
            return
        removals = {
            name: evidence
            for name, (entry, count, evidence) in self.tasks.items()
            if name not in closed or entries[name] is not entry or entry.reward_count != count
        }
        unfolded = dict.fromkeys(
            name for name in closed if name in removals or name not in self.tasks
        )
        change = state, unfolded, removals, False, prior_state.removal_count
        prior_state.changes.commit((prior_state.put_state, *change))
