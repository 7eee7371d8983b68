"""The cache of beliefs: those of the most recently used tasks."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable

from headstart.bandit.ledger.changes import Step
from headstart.bandit.ledger.entries import CachedTask, TaskEntries, TaskEntry


class BeliefCache:
    """The tasks whose beliefs are cached, the one used longest ago first.

    An entry whose belief is evicted keeps its packed evidence. Its belief is computed again, from
    the newest prior, when the task is next used.
    """

    def __init__(self, entries: TaskEntries, size: int, names: Iterable[str] = ()) -> None:
        self.entries = entries
        self.size = size
        self.tasks: OrderedDict[str, TaskEntry] = OrderedDict(
            (name, entries[name]) for name in names
        )

    def __len__(self) -> int:
        return len(self.tasks)

    def touch(self, name: str) -> None:
        """Mark a cached task as the one used last."""
        self.tasks.move_to_end(name)

    def discard(self, name: str) -> None:
        """Remove a task that has no belief any more."""
        self.tasks.pop(name, None)

    def steps_to_store(self, name: str, cached: CachedTask) -> list[Step]:
        """How to cache a belief, and to evict those used longest ago where there are too many."""
        entry = self.entries[name]
        steps: list[Step] = [
            (entry.set_task, None, cached, entry.reward_count),
            (operator.setitem, self.tasks, name, entry),
            (self.touch, name),
        ]
        if name not in self.tasks:
            for oldest in itertools.islice(self.tasks, max(len(self) + 1 - self.size, 0)):
                steps += self.steps_to_evict(oldest)
        return steps

    def steps_to_evict(self, name: str) -> list[Step]:
        """How to keep only the packed evidence of a task."""
        entry = self.entries[name]
        packed = entry.packed
        if entry.cached is not None:
            packed = self.entries.evidence(name).pack()
        return [(entry.set_task, packed, None, entry.reward_count), (self.discard, name)]

    def steps_to_close(self, name: str, *, keep: bool) -> list[Step]:
        """How to keep a task that is closed, which may return, cached, with all rounds in its sums.

        Without ``keep`` a new belief would be better, and it is evicted.
        """
        entry = self.entries[name]
        if not keep:
            return self.steps_to_evict(name)
        if entry.cached is None or not entry.cached.pending:
            return []
        cached = entry.cached._replace(evidence=self.entries.evidence(name), pending=())
        return [(entry.set_task, None, cached, entry.reward_count)]

    def steps_to_clear(self) -> list[Step]:
        """How to evict all beliefs."""
        return [step for name in self.tasks for step in self.steps_to_evict(name)]
