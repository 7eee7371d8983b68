"""The sums of very many tasks within a bounded memory.

The sums of as many tasks as fit are kept in one table. Rows of other tasks are spilled: written out
in partitions by the hash of their task, to be summed up one partition at a time
(:mod:`headstart.fleet.summing.shards`). A task with so many rows at hand that they take more bytes
than its sums is summed up before it is spilled, so that nothing is written that is larger than the
rows, and a task with very many rows takes little.
"""

from __future__ import annotations

import itertools
import mmap
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.fleet.reading.arrays import FeatureColumns, as_arrow
from headstart.fleet.reading.hashing import Hashes, hash_ids, id_texts, partition_numbers
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.grams import Packed, Whole, add_by_threads
from headstart.fleet.summing.shards import row_shards, sum_shard
from headstart.fleet.summing.task_index import INDEX_BYTES, TaskIndex
from headstart.model.evidence import packed_size

__all__ = ["Accumulator", "HashedRows", "ReadPlan", "RowBuffer", "partition_count", "unread_blocks"]

Spill = Callable[[Iterator[pa.RecordBatch]], None]

MOST_BUFFERED = 9 << 25  # bytes of rows that are added at once, at most
COLUMN_BYTES = 3 << 20  # that it takes to decode a column: a page, a dictionary, a block
LINE = 64  # bytes of memory that a processor reads together
LOOPS_BYTES = 128 << 20  # that Numba and the compiled loops take


class HashedRows(NamedTuple):
    """Rows that count as evidence, with the hashes of their tasks' ids, which are text."""

    rows: Rows
    hashes: Hashes

    @classmethod
    def of(cls, rows: Rows) -> HashedRows:
        """Of all rows, those that were chosen, where that was logged."""
        rows = rows.chosen_rows()
        ids = id_texts(rows.ids)
        return cls(rows._replace(ids=ids), hash_ids(ids))


class Accumulator:
    """Adds rows up by task, for any number of threads.

    Parameters
    ----------
    dim
        The number of features.
    memory
        How many bytes it may take. Half is for sums, a quarter for rows that wait to be added to
        them, and a quarter for rows that wait to be spilled.
    partitions
        How many shards a spill has: a power of two.
    spill
        Called with the shards of all partitions, in order, when something is spilled.
    threads
        How many add up.
    """

    def __init__(
        self, dim: int, memory: int, partitions: int, spill: Spill, threads: int = 1
    ) -> None:
        self.dim, self.memory, self.threads = dim, memory, threads
        self.partitions, self.spill = partitions, spill
        self.width = packed_size(dim)
        self.capacity = max(1, memory // 2 // (8 * self.width + INDEX_BYTES))
        self.lock = threading.RLock()
        room = min(memory // 4, MOST_BUFFERED)
        self.index, self.table = TaskIndex(), empty_table(self.capacity, self.width)
        self.buffer = RowBuffer(room, dim)
        self.others = TaskIndex()  # tasks that are not in the table, and their rows
        self.waiting = RowBuffer(room, dim)

    def add(self, block: HashedRows) -> None:
        """Add rows."""
        rows, hashes = block
        with self.lock:
            numbers = self.index.numbers(rows.ids, hashes, self.capacity)
            known = numbers >= 0
            if known.all():
                fill(self.buffer, rows, lambda: numbers, self.flush)
                return
            inside = known[rows.codes]
            if inside.any():
                fill(self.buffer, rows.take(inside), lambda: numbers[known], self.flush)
            if not inside.all():
                rest, own = rows.take(~inside), hashes[~known]
                # The numbers change with every spill.
                fill(
                    self.waiting, rest, lambda: self.others.numbers(rest.ids, own), self.spill_rows
                )

    def flush(self) -> None:
        """Add the buffered rows to the table."""
        if self.buffer.count:
            self.buffer.add_to(self.table[: len(self.index)], self.buffer.places, self.threads)
        self.buffer.count = 0

    def spill_rows(self) -> None:
        """Spill the rows of tasks that are not in the table."""
        buffer, tasks = self.waiting, self.others
        if not buffer.count:
            return
        counts = np.bincount(buffer.places, minlength=len(tasks))
        heavy = counts * buffer.features[0].nbytes > 8 * self.width
        if heavy.any():
            sums = np.zeros((int(heavy.sum()), self.width))
            place = np.where(heavy, np.cumsum(heavy) - 1, -1)
            buffer.add_to(sums, place[buffer.places], self.threads)
            order = tasks.order()
            order = order[heavy[order]]
            self.spill(self.sum_shards(tasks, order, sums, place[order]))
        if not heavy.all():
            codes = np.where(heavy[buffer.places], -1, buffer.places)
            columns = buffer.rewards, buffer.weights, buffer.features[:, : self.dim]
            self.spill(row_shards(tasks.hashes, tasks.ids, codes, *columns, self.partitions))
        buffer.count = 0
        self.others = TaskIndex()

    def sum_shards(
        self, tasks: TaskIndex, order: Whole, sums: Packed, places: Whole
    ) -> Iterator[pa.RecordBatch]:
        """The sums of tasks in order, which are at ``places``, partition by partition."""
        hashes = tasks.hashes[order]
        numbers = partition_numbers(hashes, self.partitions)
        edges = np.searchsorted(numbers, np.arange(self.partitions + 1))
        for low, high in itertools.pairwise(edges):
            ids = tasks.ids.take(as_arrow(order[low:high]))
            yield sum_shard(hashes[low:high], ids, sums[places[low:high]])

    def snapshot(self) -> Iterator[pa.RecordBatch]:
        """The sums in the table as shards of all partitions; the table stays as it is."""
        self.flush()
        order = self.index.order()
        return self.sum_shards(self.index, order, self.table, order)

    def finish(self) -> None:
        """Spill everything; nothing can be added afterwards."""
        self.spill_rows()
        self.waiting = RowBuffer(0, self.dim)
        if len(self.index):
            self.spill(self.snapshot())
        self.buffer = RowBuffer(0, self.dim)
        self.index, self.table = TaskIndex(), np.zeros((0, self.width))


def empty_table(rows: int, width: int) -> Packed:
    """Zeros, for which the system gives memory only where they are changed.

    Page by page, not in the large pieces that NumPy asks for: a piece is dear where memory has to
    be fetched from the host of a virtual machine, and tasks are read and written a page at a time.
    """
    memory = mmap.mmap(-1, max(8 * rows * width, 1), access=mmap.ACCESS_COPY)
    return np.frombuffer(memory, np.float64, rows * width).reshape(rows, width)


class ReadPlan(NamedTuple):
    """How memory is divided between those who read and the sums.

    Attributes
    ----------
    readers
        How many threads read at a time.
    rows
        How many rows they read at a time.
    memory
        How many bytes are left for the sums.
    """

    readers: int
    rows: int
    memory: int

    @classmethod
    def of(cls, dim: int, memory: int, workers: int = 1) -> ReadPlan:
        """Of so many features, in so many bytes, for so many threads.

        A quarter of the memory is for reading. Where it is too little for all threads, some only
        add up. An eighth is for sums in any case.
        """
        need = COLUMN_BYTES * (dim + 2)
        readers = int(np.clip(memory // 4 // need, 1, workers))
        left = max(memory - readers * need - LOOPS_BYTES, memory // 8)
        return cls(readers, max(1024, left // 8 // readers // (4 * dim)), left)


def partition_count(rows: int, dim: int, limit: int) -> int:
    """Into how many partitions so many rows are spilled, so that each takes ``limit`` bytes.

    If it takes more, it is summed up in several steps.

    >>> partition_count(10**6, 30, 1 << 20), partition_count(10, 30, 1 << 20)
    (512, 16)
    """
    need = rows * (8 * dim + 40) / limit
    return int(np.clip(2 ** np.ceil(np.log2(max(need, 1.0))), 16, 4096))


def unread_blocks(
    logs: Logs, part: Part, rows: int, position: tuple[int, int] | None = None
) -> Iterator[tuple[tuple[int, int], Rows]]:
    """The blocks of a part, each with the position after it.

    A part that was begun goes on after its ``position``, in blocks of as many rows as before.
    """
    rows, before = (rows, 0) if position is None else position
    for number, block in enumerate(logs.read(part, transposed=False, rows=rows), 1):
        if number > before:
            yield (rows, number), block


class RowBuffer:
    """Rows that wait to be added up: the more a task has at once, the less each takes.

    The memory is used again and again.

    Parameters
    ----------
    memory
        How many bytes it may take.
    dim
        The number of features.
    """

    def __init__(self, memory: int, dim: int) -> None:
        self.memory, self.dim, self.count, self.weighted = memory, dim, 0, False
        self._features: npt.NDArray[Any] = np.zeros((0, dim))  # allocated with the first rows

    def allocate(self, dtype: np.dtype[Any]) -> None:
        """Make room for features of a type."""
        # Every row begins with a line of memory, so that it lies in as few of them as possible.
        many = LINE // dtype.itemsize
        width = -(-self.dim // many) * many
        room = max(self.memory // (dtype.itemsize * width + 20), 1)
        values = np.zeros(room * width + many, dtype)
        start = -values.ctypes.data % LINE // dtype.itemsize
        self._features = values[start : start + room * width].reshape(room, width)
        self._places = np.empty(room, np.int32)
        self._rewards, self._weights = np.empty(room), np.empty(room)

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return self.count == len(self._features)

    @property
    def places(self) -> npt.NDArray[np.int32]:
        """The numbers of the rows' tasks."""
        return self._places[: self.count]

    @property
    def features(self) -> npt.NDArray[Any]:
        """The features; there may be more columns, which mean nothing."""
        return self._features[: self.count]

    @property
    def rewards(self) -> Packed:
        """The rewards."""
        return self._rewards[: self.count]

    @property
    def weights(self) -> Packed:
        """The weights; empty where no row has one."""
        return self._weights[: self.count if self.weighted else 0]

    def take(self, rows: Rows, numbers: Whole, start: int) -> int:
        """Copy rows from a place on, as many as there is room for; gives how many.

        ``numbers`` are those of the tasks in ``rows.ids``. Features of two types are never buffered
        together.
        """
        same = len(self._features) > 0 and self._features.dtype == rows.features.dtype
        if not self.count:
            self.weighted = False
            if not same:
                self.allocate(rows.features.dtype)
        elif not same:
            return 0
        many = min(rows.count - start, len(self._features) - self.count)
        here, there = slice(start, start + many), slice(self.count, self.count + many)
        self._places[there] = numbers[rows.codes[here]]
        if isinstance(rows.features, FeatureColumns):
            rows.features.transpose_into(start, self._features[there])
        else:
            self._features[there, : self.dim] = rows.features[here]
        self._rewards[there] = rows.rewards[here]
        if rows.weights is not None or self.weighted:
            if not self.weighted:
                self._weights[: self.count] = 1.0
                self.weighted = True
            self._weights[there] = 1.0 if rows.weights is None else rows.weights[here]
        self.count += many
        return many

    def add_to(self, sums: Packed, codes: npt.NDArray[Any], threads: int) -> None:
        """Add the rows to the sums that their codes say."""
        columns = self.features, self.dim, self.rewards, self.weights
        add_by_threads(codes, *columns, sums, threads)


def fill(
    buffer: RowBuffer, rows: Rows, numbers: Callable[[], Whole], flush: Callable[[], None]
) -> None:
    """Copy rows into a buffer, which is flushed when it is full."""
    start = 0
    while start < rows.count:
        start += buffer.take(rows, numbers(), start)
        if start < rows.count or buffer.full:
            flush()
