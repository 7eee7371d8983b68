"""One task in a bandit's books."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headstart.belief import Belief
from headstart.evidence import Evidence, packed_size
from headstart.mixture import MixtureBelief
from headstart.records import Array

__all__ = ["Believed", "Entry", "Round"]

Believed = Belief | MixtureBelief
Round = tuple[Array, float, bool]  # context, reward, forced

BLOCK = 32  # how many rounds are added to a live task's evidence at a time


class Entry:
    """One task in the books.

    ``packed`` holds its evidence while it is idle; ``evidence`` and ``belief`` while it is live,
    with the latest rounds ``pending``: they are added to the evidence a block at a time, which is
    many times faster than one by one. The blocks are a matter of calls alone, not of looking.
    Choices are numbered from ``start``: those below ``base`` are settled, bit i of ``learned``
    tells whether number ``base + i`` was learned from, ``number`` is the next to be made.
    """

    __slots__ = (
        "base",
        "belief",
        "built",
        "closed",
        "evidence",
        "key",
        "learned",
        "number",
        "packed",
        "pending",
        "rewards",
        "start",
        "unsure",
    )

    def __init__(self, packed: Array, number: int) -> None:
        self.packed: Array | None = packed
        self.evidence: Evidence | None = None
        self.pending: Sequence[Round] = ()
        self.belief: Believed | None = None
        self.key: npt.NDArray[np.uint64] | None = None
        self.start = number
        self.base = number
        self.learned = 0
        self.number = number
        self.closed = False
        self.unsure = False  # the noise is estimated from this task alone: no other is finished
        self.rewards = 0  # how many this task has seen
        self.built = 0  # how many the others had seen when it took its prior

    def was_learned(self, number: int) -> bool:
        """Whether a choice was learned from, or is older than is remembered."""
        return number < self.base or bool(self.learned >> (number - self.base) & 1)

    def mark_learned(self, number: int, window: int) -> None:
        """Remember that a choice was learned from."""
        if number == self.base and not self.learned and number < self.number:  # as is usual
            self.base += 1
            return
        self.number = max(self.number, number + 1)
        self.learned |= 1 << (number - self.base)
        settled = (~self.learned & (self.learned + 1)).bit_length() - 1  # trailing ones
        self.forget(settled)
        self.forget(self.number - self.base - window)

    def next_number(self, window: int) -> int:
        """Number a new choice; those more than ``window`` back are forgotten."""
        number = self.number
        self.number += 1
        if self.number - self.base > window:
            self.forget(self.number - self.base - window)
        return number

    def forget(self, oldest: int) -> None:
        """Settle so many of the oldest choices, whether they were learned from or not."""
        if oldest > 0:
            self.learned >>= oldest
            self.base += oldest

    def add(self, context: Array, reward: float, forced: bool) -> None:
        """One more round of a live task."""
        if not isinstance(self.pending, list):  # an idle task has none, and no list for them
            self.pending = []
        self.pending.append((context, reward, forced))
        if len(self.pending) >= BLOCK:
            self.evidence = self.total(len(context))
            self.pending = ()

    def total(self, dim: int) -> Evidence:
        """All that the task has shown."""
        evidence = self.evidence
        if evidence is None:
            return Evidence.unpack(self.packed if self.packed is not None else [], dim)
        if not self.pending:
            return evidence
        contexts, rewards, forced = zip(*self.pending, strict=True)
        return evidence.add_many(np.array(contexts), np.array(rewards), np.array(forced))

    def rounds(self, dim: int) -> float:
        """How many rewards the evidence counts."""
        if self.evidence is not None:
            return float(self.evidence.rounds) + len(self.pending)
        assert self.packed is not None
        return float(self.packed[packed_size(dim) - 2])

    def has_rewards(self, dim: int) -> bool:
        """Whether any reward was not zero: without one, nothing tells the noise."""
        if self.evidence is not None:
            return self.evidence.squares > 0 or any(reward for _, reward, _ in self.pending)
        assert self.packed is not None
        return bool(self.packed[packed_size(dim) - 1] > 0)
