"""One task in a bandit's books."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence, packed_size
from headstart.records import Array

__all__ = ["BaseBelief", "Entry", "Round", "Window", "next_epoch"]

Round = tuple[Array, float, bool]  # context, reward, forced

Window = tuple[int, int, int]  # epoch, base, learned
Marks = tuple[int, int, int, tuple[Window, ...]]

BLOCK = 32  # how many rounds are added to a live task's evidence at a time
EPOCHS = 32  # how many other epochs are remembered of a task


class Entry:
    """One task in the books.

    ``packed`` holds its evidence while it is idle; ``evidence`` and ``belief`` while it is live,
    with the latest rounds ``pending``: they are added to the evidence a block at a time, which is
    many times faster than one by one. The blocks are a matter of calls alone, not of looking.
    Choices are numbered from ``start``: those below ``base`` are settled, bit i of ``learned``
    tells whether number ``base + i`` was learned from, ``number`` is the next to be made.

    These numbers are those of one ``epoch``: a bandit that was loaded or copied begins a new one,
    because choices made after it was saved, by whoever, may have the same numbers. What is known of
    other epochs is in ``others``, as ``(epoch, base, learned)`` in the order of the epochs.

    Nothing that a field holds is ever changed in place: fields are replaced.
    """

    __slots__ = (
        "base",
        "belief",
        "built",
        "closed",
        "epoch",
        "evidence",
        "key",
        "learned",
        "number",
        "others",
        "packed",
        "pending",
        "rewards",
        "start",
        "unsure",
    )

    def __init__(self, packed: Array, number: int, epoch: int = 0) -> None:
        self.packed: Array | None = packed
        self.evidence: Evidence | None = None
        self.pending: tuple[Round, ...] = ()
        self.belief: BaseBelief | None = None
        self.key: npt.NDArray[np.uint64] | None = None
        self.start = number
        self.base = number
        self.learned = 0
        self.number = number
        self.epoch = epoch
        self.others: tuple[Window, ...] = ()
        self.closed = False
        self.unsure = False  # the noise is estimated from this task alone: no other is finished
        self.rewards = 0  # how many this task has seen
        self.built = 0  # how many the others had seen when it took its prior

    def was_learned(self, epoch: int, number: int) -> bool:
        """Whether a choice was learned from, or is older than is remembered."""
        base, learned = self.base, self.learned
        if epoch != self.epoch:
            if len(self.others) == EPOCHS and epoch < self.others[0][0]:
                return True
            _, base, learned = self.window(epoch)
        return number < base or bool(learned >> (number - base) & 1)

    def window(self, epoch: int) -> Window:
        """What is known of the choices of another epoch."""
        for window in self.others:
            if window[0] == epoch:
                return window
        return epoch, self.start, 0  # a deleted task of the same name had numbers below

    def marks(self, epoch: int, number: int, memory: int) -> Marks:
        """``base``, ``learned``, ``number`` and ``others`` once a choice was learned from."""
        base, learned, top = self.base, self.learned, self.number
        if epoch != self.epoch:
            known = settled(*self.window(epoch)[1:], number, number + 1, memory)
            return base, learned, top, self.others_with(epoch, *known)
        if number == base and not learned and number < top:  # as is usual
            return base + 1, 0, top, self.others
        top = max(top, number + 1)
        return *settled(base, learned, number, top, memory), top, self.others

    def others_with(self, epoch: int, base: int, learned: int) -> tuple[Window, ...]:
        """What is known of the newest other epochs, once so much is known of one."""
        others = [window for window in self.others if window[0] != epoch]
        return tuple(sorted([*others, (epoch, base, learned)])[-EPOCHS:])

    def put_marks(
        self, base: int, learned: int, number: int, others: tuple[Window, ...], epoch: int
    ) -> None:
        """Note which choices were made and learned from."""
        self.base, self.learned, self.number = base, learned, number
        self.others, self.epoch = others, epoch

    def put_belief(
        self,
        packed: Array | None,
        evidence: Evidence | None,
        pending: tuple[Round, ...],
        belief: BaseBelief | None,
        unsure: bool,
        built: int,
    ) -> None:
        """Keep a belief, or none."""
        self.packed, self.evidence, self.pending = packed, evidence, pending
        self.belief, self.unsure, self.built = belief, unsure, built

    def with_round(
        self, context: Array, reward: float, forced: bool
    ) -> tuple[Evidence, tuple[Round, ...]]:
        """``evidence`` and ``pending`` of a live task after one more round."""
        assert self.evidence is not None
        pending = self.pending + ((context, reward, forced),)  # noqa: RUF005 (twice as fast)
        if len(pending) < BLOCK:
            return self.evidence, pending
        return total(self.evidence, pending), ()

    def total(self, dim: int) -> Evidence:
        """All that the task has shown."""
        evidence = self.evidence
        if evidence is None:
            return Evidence.unpack(self.packed if self.packed is not None else [], dim)
        return total(evidence, self.pending)

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


def total(evidence: Evidence, pending: tuple[Round, ...]) -> Evidence:
    """Evidence with the rounds that are pending."""
    if not pending:
        return evidence
    contexts, rewards, forced = zip(*pending, strict=True)
    return evidence.add_many(np.array(contexts), np.array(rewards), np.array(forced))


def settled(base: int, learned: int, number: int, top: int, memory: int) -> tuple[int, int]:
    """``base`` and ``learned`` once a number was learned from, the next to be made being ``top``.

    >>> settled(0, 0b110, 0, 4, 10), settled(0, 0b110, 7, 8, 4)
    ((3, 0), (4, 8))
    """
    base, learned = forget(base, learned, top - base - memory)
    if number >= base:
        learned |= 1 << (number - base)
    return forget(base, learned, (~learned & (learned + 1)).bit_length() - 1)  # trailing ones


def forget(base: int, learned: int, oldest: int) -> tuple[int, int]:
    """Settle so many of the oldest choices, whether they were learned from or not."""
    return (base + oldest, learned >> oldest) if oldest > 0 else (base, learned)


def next_epoch(epoch: int) -> int:
    """An epoch that nobody else has, above those before it: 24 bits that count, 40 at random.

    >>> next_epoch(next_epoch(0)) >> 40
    2
    """
    count = min((epoch >> 40) + 1, 2**24 - 1)
    return count << 40 | int.from_bytes(os.urandom(5), "little")
