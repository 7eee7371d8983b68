"""The tasks of a bandit: their sufficient statistics and the numbers of their choices."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence, packed_size
from headstart.records import Array

Round = tuple[Array, float, bool]  # context, reward, forced

BLOCK_ROUNDS = 32  # pending rounds that are added to the evidence at a time
MAX_ROUNDS = 2**53  # of a task: beyond, a number cannot count one more
MAX_REWARDS = 2**61  # of all tasks
MAX_EPOCHS = 32  # windows of other epochs that are kept of a task


class ChoiceWindow(NamedTuple):
    """Which choices of one epoch were learned from; those below ``start`` count as learned from.

    Bit i of ``learned_bits`` stands for choice ``start + i``.
    """

    epoch: int
    start: int
    learned_bits: int

    def was_learned(self, number: int) -> bool:
        """Whether a choice was learned from, or is older than the window."""
        return number < self.start or bool(self.learned_bits >> (number - self.start) & 1)

    def advance(self, count: int) -> ChoiceWindow:
        """The window without its ``count`` oldest choices."""
        if count <= 0:
            return self
        return ChoiceWindow(self.epoch, self.start + count, self.learned_bits >> count)

    def after_learning(self, number: int, next_number: int, size: int) -> ChoiceWindow:
        """The window after a choice was learned from, of at most ``size`` choices.

        >>> ChoiceWindow(0, 0, 0b110).after_learning(0, 4, 10)
        ChoiceWindow(epoch=0, start=3, learned_bits=0)
        >>> ChoiceWindow(0, 0, 0b110).after_learning(7, 8, 4)
        ChoiceWindow(epoch=0, start=4, learned_bits=8)
        """
        window = self.advance(next_number - self.start - size)
        bits = window.learned_bits
        if number >= window.start:
            bits |= 1 << (number - window.start)
        trailing_ones = (~bits & (bits + 1)).bit_length() - 1
        return ChoiceWindow(window.epoch, window.start, bits).advance(trailing_ones)


class CachedTask(NamedTuple):
    """What is kept of a task as long as its belief is cached.

    ``evidence`` lacks the ``pending`` rounds: they are added a block at a time, which is many times
    faster than one by one. Only calls that change the task add them, never calls that read it.
    """

    evidence: Evidence
    pending: tuple[Round, ...]
    belief: BaseBelief
    alone: bool  # the noise is estimated from this task alone
    other_rewards: int  # rewards of the other tasks when the prior was computed
    stream_key: npt.NDArray[np.uint64] | None = None

    def with_round(self, context: Array, reward: float, forced: bool) -> tuple[Any, Any]:
        """``evidence`` and ``pending`` after one more round."""
        pending = self.pending + ((context, reward, forced),)  # noqa: RUF005 (twice as fast)
        if len(pending) < BLOCK_ROUNDS:
            return self.evidence, pending
        return add_rounds(self.evidence, pending), ()


def column(dtype: type[np.generic]) -> Any:
    """A field that is saved as a column of numbers, one for each task."""
    return dataclasses.field(metadata={"column": dtype}, default=0)


@dataclasses.dataclass(slots=True, eq=False)
class TaskEntry:
    """One task.

    Its evidence is ``packed``, or in ``cached`` as long as the belief is cached. Choices are
    numbered from ``first_number`` on, and ``next_number`` is the next. Those below ``window_start``
    can no longer be learned from; bit i of ``learned_bits`` stands for ``window_start + i`` and
    says whether that choice was learned from.

    These numbers are those of one ``epoch``: a bandit that was loaded or copied begins a new one,
    because choices that were made after it was saved may have the same numbers. What is known of
    other epochs is in ``other_windows``, in the order of the epochs.

    No value of a field is ever changed in place: fields are assigned, by the methods of this class
    alone. Fields that are a :func:`column` are saved and loaded without further code.
    """

    packed: Array | None
    cached: CachedTask | None = None
    first_number: int = column(np.int64)
    next_number: int = column(np.int64)
    window_start: int = column(np.int64)
    epoch: int = column(np.uint64)
    reward_count: int = column(np.int64)
    learned_bits: int = 0
    other_windows: tuple[ChoiceWindow, ...] = ()

    @property
    def window(self) -> ChoiceWindow:
        """Which choices of the present epoch were learned from."""
        return ChoiceWindow(self.epoch, self.window_start, self.learned_bits)

    def was_learned(self, epoch: int, number: int) -> bool:
        """Whether a choice was learned from, or is older than the window of its epoch."""
        if epoch == self.epoch:
            ahead = number - self.window_start
            return ahead < 0 or bool(self.learned_bits >> ahead & 1)
        if len(self.other_windows) == MAX_EPOCHS and epoch < self.other_windows[0].epoch:
            return True
        return self.other_window(epoch).was_learned(number)

    def other_window(self, epoch: int) -> ChoiceWindow:
        """What is known of the choices of another epoch."""
        for window in self.other_windows:
            if window.epoch == epoch:
                return window
        return ChoiceWindow(epoch, self.first_number, 0)  # below are those of a deleted namesake

    def other_windows_with(self, window: ChoiceWindow) -> tuple[ChoiceWindow, ...]:
        """The newest other windows, with this one in place of the one of its epoch."""
        others = [other for other in self.other_windows if other.epoch != window.epoch]
        return tuple(sorted([*others, window])[-MAX_EPOCHS:])

    @property
    def windows(self) -> tuple[Any, ...]:
        """The arguments of :meth:`set_windows` that change nothing."""
        start, bits, following = self.window_start, self.learned_bits, self.next_number
        return start, bits, following, self.other_windows, self.epoch

    def windows_after(self, epoch: int, number: int, size: int) -> tuple[Any, ...]:
        """The arguments of :meth:`set_windows` after a choice was learned from."""
        start, bits, following = self.window_start, self.learned_bits, self.next_number
        if epoch != self.epoch:
            window = self.other_window(epoch).after_learning(number, number + 1, size)
            return start, bits, following, self.other_windows_with(window), self.epoch
        if number == start and not bits and number < following:  # the usual case
            return start + 1, 0, following, self.other_windows, epoch
        following = max(following, number + 1)
        window = self.window.after_learning(number, following, size)
        return window.start, window.learned_bits, following, self.other_windows, epoch

    def windows_after_choice(self, epoch: int, size: int) -> tuple[Any, ...]:
        """The arguments of :meth:`set_windows` after one more choice, of this epoch."""
        number, following = self.next_number, self.next_number + 1
        if epoch != self.epoch:
            return number, 0, following, self.other_windows_with(self.window), epoch
        window = self.window.advance(following - self.window_start - size)
        return window.start, window.learned_bits, following, self.other_windows, epoch

    def set_windows(
        self, start: int, bits: int, next_number: int, others: tuple[ChoiceWindow, ...], epoch: int
    ) -> None:
        """Set which choices were made and learned from."""
        self.window_start, self.learned_bits, self.next_number = start, bits, next_number
        self.other_windows, self.epoch = others, epoch

    def count_choices(self, count: int, epoch: int, size: int) -> bool:
        """Count choices, if they are of this epoch and the window has room; else ``False``."""
        following = self.next_number + count
        if epoch != self.epoch or following - self.window_start > size:
            return False
        self.next_number = following
        return True

    def set_task(self, packed: Array | None, cached: CachedTask | None, reward_count: int) -> None:
        """Set what was learned, packed or cached."""
        self.packed, self.cached, self.reward_count = packed, cached, reward_count

    def keep_stream_key(self, key: npt.NDArray[np.uint64]) -> None:
        """Keep the key of the task's random streams, as long as its belief is cached."""
        if self.cached is not None:
            self.cached = self.cached._replace(stream_key=key)

    def evidence(self, dim: int) -> Evidence:
        """All that the task has shown."""
        if self.cached is not None:
            return add_rounds(self.cached.evidence, self.cached.pending)
        return Evidence.unpack(self.packed if self.packed is not None else [], dim)

    def packed_without_pending(self) -> Array:
        """The packed evidence without the pending rounds."""
        if self.cached is not None:
            return self.cached.evidence.pack()
        assert self.packed is not None
        return self.packed

    def rounds(self, dim: int) -> float:
        """How many rounds the evidence counts."""
        if self.cached is not None:
            return float(self.cached.evidence.rounds) + len(self.cached.pending)
        assert self.packed is not None
        return float(self.packed[packed_size(dim) - 2])

    def has_rewards(self, dim: int) -> bool:
        """Whether any reward was not zero: otherwise the noise cannot be estimated."""
        if self.cached is not None:
            rewards = (reward for _, reward, _ in self.cached.pending)
            return self.cached.evidence.squares > 0 or any(rewards)
        assert self.packed is not None
        return bool(self.packed[packed_size(dim) - 1] > 0)


class TaskEntries(dict[str, TaskEntry]):
    """The entries of all tasks by id, in the order they were made."""

    def __init__(self, dim: int, *, keeps_forced: bool) -> None:
        super().__init__()
        self.dim = dim
        self.keeps_forced = keeps_forced
        self.reward_count = 0  # over all tasks, deleted ones included
        self.first_number = 0  # of a new task's choices: above those of all deleted tasks
        self.epoch = 0  # of the choices made here: those of a copy, or before a load, differ

    def copy(self) -> TaskEntries:
        """A copy that shares no mutable state."""
        clone = TaskEntries(self.dim, keeps_forced=self.keeps_forced)
        clone.__dict__.update(self.__dict__)
        clone.update((name, copy.copy(entry)) for name, entry in self.items())
        return clone

    def open(self, name: str, epoch: int | None = None) -> TaskEntry:
        """The entry of a task, made if there is none: of this epoch unless another is given."""
        entry = self.get(name)
        if entry is None:
            packed = Evidence.zero(self.dim, forced=self.keeps_forced).pack()
            epoch = self.epoch if epoch is None else epoch
            entry = self[name] = TaskEntry(
                packed, None, self.first_number, self.first_number, self.first_number, epoch
            )
        return entry

    def add_packed(self, name: str, packed: Array) -> None:
        """Add a task of which only the evidence is known."""
        number = self.first_number
        entry = self[name] = TaskEntry(packed, None, number, number, number, self.epoch)
        rounds = entry.rounds(self.dim)
        if not rounds <= MAX_ROUNDS or self.reward_count > MAX_REWARDS:
            raise InputError(
                f"task {checks.describe(name)} must have 2^53 rounds at most; got {rounds:g}: the "
                f"weights of its rows are too large"
            )
        entry.set_task(packed, None, round(rounds))
        self.reward_count += entry.reward_count

    def add_tasks(self, tasks: Iterable[tuple[Sequence[str], Array]]) -> None:
        """Add tasks of which only the evidence is known: ids, and packed evidence."""
        for names, rows in tasks:
            for name, row in zip(names, rows, strict=True):
                self.add_packed(name, row)

    def begin_epoch(self) -> None:
        """Number the choices from here on apart from those of every copy."""
        self.epoch = next_epoch(self.epoch)

    def remove(self, name: str) -> None:
        """Remove a task; a later one of the same name continues its numbers."""
        if name in self:
            self.first_number = max(self.first_number, self[name].next_number)
            del self[name]

    def set_counts(self, reward_count: int, first_number: int, epoch: int) -> None:
        """Set the numbers that concern all tasks."""
        self.reward_count, self.first_number, self.epoch = reward_count, first_number, epoch

    def put_round(self, update: tuple[Any, ...]) -> None:
        """Set what one more reward of a task has changed."""
        entry, entry.packed, entry.cached, entry.reward_count, windows, self.reward_count = update
        entry.window_start, entry.learned_bits, entry.next_number, entry.other_windows, _ = windows

    def evidence(self, name: str) -> Evidence:
        """All that a task has shown."""
        return self[name].evidence(self.dim)

    def rounds(self, name: str) -> float:
        """How many rounds the evidence of a task counts."""
        return self[name].rounds(self.dim)

    def has_rewards(self, name: str) -> bool:
        """Whether any reward of a task was not zero."""
        return self[name].has_rewards(self.dim)


def add_rounds(evidence: Evidence, rounds: tuple[Round, ...]) -> Evidence:
    """Evidence with some rounds added."""
    if not rounds:
        return evidence
    contexts, rewards, forced = zip(*rounds, strict=True)
    marks = None if evidence.forced is None else np.array(forced)
    return evidence.add_many(np.array(contexts), np.array(rewards), marks)


def next_epoch(epoch: int) -> int:
    """A unique epoch above the earlier ones: 24 bits count, 40 are random.

    >>> next_epoch(next_epoch(0)) >> 40
    2
    """
    count = min((epoch >> 40) + 1, 2**24 - 1)
    return count << 40 | int.from_bytes(os.urandom(5), "little")
