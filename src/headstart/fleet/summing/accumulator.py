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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.fleet.reading.arrays import Upright, as_arrow
from headstart.fleet.reading.hashing import Hashes, hash_ids, id_texts, partition_numbers
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.grams import GROUP_ROWS, Packed, Whole, add_by_threads
from headstart.fleet.summing.shards import row_shard, sum_shard
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.task_index import INDEX_BYTES, TaskIndex
from headstart.model.evidence import packed_size

__all__ = [
    "Accumulator",
    "HashedRows",
    "ReadPlan",
    "RowBuffer",
    "collect",
    "partition_count",
    "unread_blocks",
]

Spill = Callable[[Iterator[pa.RecordBatch]], None]

MOST_BUFFERED = 9 << 25  # bytes of rows that are added at once, at most
COLUMN_BYTES = 3 << 20  # that it takes to decode a column: a page, a dictionary, a block
LOOPS_BYTES = 128 << 20  # that Numba and the compiled loops take


class HashedRows(NamedTuple):
    """Rows that count as evidence, with the hashes of their tasks' ids, which are text."""

    rows: Rows
    hashes: Hashes

    @classmethod
    def of(cls, rows: Rows) -> HashedRows:
        """Of all rows, those that were chosen, where that was logged."""
        rows = rows.shown()
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
        self.index, self.table = TaskIndex(), empty_table(self.capacity, self.width)
        self.buffer: RowBuffer | None = None
        self.others = TaskIndex()  # tasks that are not in the table, and their rows
        self.waiting: RowBuffer | None = None

    def add(self, block: HashedRows) -> None:
        """Add rows."""
        rows, hashes = block
        with self.lock:
            numbers = self.index.numbers(rows.ids, hashes, self.capacity)
            known = numbers >= 0
            if known.all():
                self.add_known(rows, numbers)
                return
            inside = known[rows.codes]
            if inside.any():
                self.add_known(rows.take(inside), numbers[known])
            if not inside.all():
                self.add_unknown(rows.take(~inside), hashes[~known])

    def add_known(self, rows: Rows, numbers: Whole) -> None:
        """Buffer rows of tasks in the table."""
        start = 0
        while start < rows.count:
            if self.buffer is None or self.buffer.dtype != rows.features.dtype:
                self.flush()
                room = min(self.memory // 4, MOST_BUFFERED)
                self.buffer = RowBuffer(room, self.dim, rows.features.dtype)
            start += self.buffer.take(rows, numbers, start)
            if self.buffer.full:
                self.flush()

    def flush(self) -> None:
        """Add the buffered rows to the table."""
        if self.buffer is not None and self.buffer.count:
            sums = self.table[: len(self.index)]
            add_buffered(self.buffer, self.buffer.places, sums, self.threads)
            self.buffer.clear()

    def add_unknown(self, rows: Rows, hashes: Hashes) -> None:
        """Buffer rows of tasks that the table has no room for."""
        start = 0
        while start < rows.count:
            if self.waiting is None or self.waiting.dtype != rows.features.dtype:
                self.spill_rows()
                room = min(self.memory // 4, MOST_BUFFERED)
                self.waiting = RowBuffer(room, self.dim, rows.features.dtype)
            start += self.waiting.take(rows, self.others.numbers(rows.ids, hashes), start)
            if self.waiting.full:
                self.spill_rows()

    def spill_rows(self) -> None:
        """Spill the rows of tasks that are not in the table."""
        buffer, tasks = self.waiting, self.others
        if buffer is None or not buffer.count:
            return
        bytes_per_row = buffer.features.shape[1] * buffer.dtype.itemsize
        counts = np.bincount(buffer.places, minlength=len(tasks))
        heavy = counts * bytes_per_row > 8 * self.width
        if heavy.any():
            sums = np.zeros((int(heavy.sum()), self.width))
            place = np.where(heavy, np.cumsum(heavy) - 1, -1)
            add_buffered(buffer, place[buffer.places], sums, self.threads)
            order = tasks.order()
            order = order[heavy[order]]
            self.spill(self.sum_shards(tasks, order, sums[place[order]]))
        if not heavy.all():
            self.spill(self.row_shards(tasks, buffer, ~heavy))
        buffer.clear()
        self.others = TaskIndex()

    def row_shards(
        self, tasks: TaskIndex, buffer: RowBuffer, used: npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """The buffered rows of some tasks, partition by partition."""
        partition = np.where(used, partition_numbers(tasks.hashes, self.partitions), -1)
        order, starts = GROUP_ROWS.form(buffer.count)(partition[buffer.places], self.partitions)
        for low, high in itertools.pairwise(starts):
            rows = order[low:high]
            owner = buffer.places[rows]
            yield row_shard(
                tasks.hashes[owner],
                tasks.ids.take(as_arrow(owner)),
                buffer.rewards[rows],
                buffer.weights[rows] if buffer.weighted else None,
                buffer.features[rows, : self.dim],
            )

    def sum_shards(
        self, tasks: TaskIndex, order: Whole, sums: Packed, places: Whole | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The sums of tasks in order, or at ``places``, partition by partition."""
        hashes = tasks.hashes[order]
        edges = np.searchsorted(
            partition_numbers(hashes, self.partitions), np.arange(self.partitions + 1)
        )
        for low, high in itertools.pairwise(edges):
            some = order[low:high]
            packed = sums[low:high] if places is None else sums[places[low:high]]
            yield sum_shard(hashes[low:high], tasks.ids.take(as_arrow(some)), packed)

    def snapshot(self) -> Iterator[pa.RecordBatch]:
        """The sums in the table as shards of all partitions; the table stays as it is."""
        self.flush()
        order = self.index.order()
        return self.sum_shards(self.index, order, self.table, order)

    def finish(self) -> None:
        """Spill everything; nothing can be added afterwards."""
        self.spill_rows()
        self.waiting = None
        if len(self.index):
            self.spill(self.snapshot())
        self.buffer = None
        self.index, self.table = TaskIndex(), np.zeros((0, self.width))


def add_buffered(buffer: RowBuffer, codes: npt.NDArray[Any], sums: Packed, threads: int) -> None:
    """Add the rows of a buffer to the sums that their codes say."""
    add_by_threads(
        codes, buffer.features, buffer.dim, buffer.rewards, buffer.weights, sums, threads
    )


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
    for number, block in enumerate(logs.read(part, turned=False, rows=rows), 1):
        if number > before:
            yield (rows, number), block


def collect(
    logs: Logs, parts: Iterable[Part], partitions: int, memory: int, threads: int = 1
) -> tuple[list[list[pa.RecordBatch]], ReadSummary]:
    """Read some parts of logs: the shards of every partition, and what was read.

    Where the sums of all their tasks fit into memory, the shards are sums, one for each task.
    """
    shards: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]

    def keep(found: Iterator[pa.RecordBatch]) -> None:
        for place, shard in enumerate(found):
            if shard.num_rows:
                shards[place].append(shard)

    plan = ReadPlan.of(logs.width, memory)
    sums = Accumulator(logs.width, plan.memory, partitions, keep, threads)
    summary = ReadSummary()
    for part in parts:
        for _, rows in unread_blocks(logs, part, plan.rows):
            summary.count(rows)
            sums.add(HashedRows.of(rows))
        summary.parts.append(part.key)
    sums.finish()
    return shards, summary


LINE = 64  # bytes of memory that a processor reads together


class RowBuffer:
    """Rows with the numbers of their tasks; the memory is used again and again.

    Parameters
    ----------
    memory
        How many bytes it may take.
    dim
        The number of features.
    dtype
        Their type.
    """

    def __init__(self, memory: int, dim: int, dtype: np.dtype[Any]) -> None:
        self.dim, self.count, self.weighted = dim, 0, False
        # Every row begins with a line of memory, so that it lies in as few of them as possible.
        many = LINE // dtype.itemsize
        width = -(-dim // many) * many
        room = max(memory // (dtype.itemsize * width + 20), 1)
        values = np.zeros(room * width + many, dtype)
        start = -values.ctypes.data % LINE // dtype.itemsize
        self._features = values[start : start + room * width].reshape(room, width)
        self._places = np.empty(room, np.int32)
        self._rewards, self._weights = np.empty(room), np.empty(room)

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return self.count == len(self._places)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the features."""
        dtype: np.dtype[Any] = self._features.dtype
        return dtype

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

        ``numbers`` are those of the tasks in ``rows.ids``.
        """
        many = min(rows.count - start, len(self._places) - self.count)
        here, there = slice(start, start + many), slice(self.count, self.count + many)
        self._places[there] = numbers[rows.codes[here]]
        if isinstance(rows.features, Upright):
            rows.features.turn(start, self._features[there])
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

    def clear(self) -> None:
        """Forget the rows."""
        self.count, self.weighted = 0, False
