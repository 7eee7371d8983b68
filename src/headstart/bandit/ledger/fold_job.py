"""A job: to fold a task into a transfer's state, while other calls go on."""

from __future__ import annotations

from typing import Any, NamedTuple

from headstart.bandit.ledger.entries import TaskEntry
from headstart.model.evidence import Evidence
from headstart.transfer import Transfer


class FoldJob(NamedTuple):
    """What is needed to fold a task: it takes long, changes nothing and needs no lock."""

    state: Any
    evidence: Evidence
    removal: Evidence | None  # what the state still holds of the task
    entry: TaskEntry
    reward_count: int

    def run(self, transfer: Transfer) -> Any:
        """The state with the task."""
        state = self.state
        if self.removal is not None:
            state = transfer.fold(state, self.removal, -1.0)
        return transfer.fold(state, self.evidence, 1.0)
