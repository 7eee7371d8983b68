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
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headstart.fleet.reading.arrays import as_arrow
from headstart.fleet.reading.hashing import (
    Hashes,
    hash_ids,
    id_texts,
    partition_numbers,
    power_of_two,
)
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.grams import Packed, RowBuffer, Whole, fill
from headstart.fleet.summing.shards import row_shards, sum_shard
from headstart.fleet.summing.task_index import TaskIndex
from headstart.model.evidence import packed_size

__all__ = ["Accumulator", "NumberedRows", "partition_count", "plan_reading"]

Spill = Callable[[Iterator[pa.RecordBatch]], None]

MOST_BUFFERED = 9 << 25  # bytes of rows that are added at once, at most
BLOCK_BYTES = 15_000_000  # of features that are read at a time, at most: more is not used again
COLUMN_BYTES = 3 << 20  # that it takes to decode a column: a page, a dictionary, a block
LOOPS_BYTES = 128 << 20  # that Numba and the compiled loops take
INDEX_BYTES = 64  # for each task, about: hash, number and a short id, and as much while it grows


class NumberedRows(NamedTuple):
    """Rows and the numbers of their tasks.

    The number is −1 where it is not known yet; ``ids`` and ``hashes`` are those of these tasks.
    """

    rows: Rows
    numbers: Whole
    ids: pa.LargeStringArray
    hashes: Hashes


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
        self.touched = 0  # tasks in the table to which something was added
        self.buffer = RowBuffer(room, dim)
        self.others = TaskIndex()  # tasks that are not in the table, and their rows
        self.waiting = RowBuffer(room, dim)

    def number_tasks(self, rows: Rows) -> NumberedRows:
        """Look up the tasks of the rows that were chosen, where that was logged.

        It changes nothing, so that any thread can do it at any time before :meth:`add`.
        """
        rows = rows.chosen_rows()
        numbers = self.index.recall(rows.ids)
        other = numbers < 0
        ids = id_texts(rows.ids if other.all() else rows.ids.filter(as_arrow(other)))
        return NumberedRows(rows, numbers, ids, hash_ids(ids))

    def add(self, rows: Rows, numbers: Whole, ids: pa.LargeStringArray, hashes: Hashes) -> None:
        """Add rows of :meth:`number_tasks`."""
        with self.lock:
            other = np.flatnonzero(numbers < 0)
            if len(other):
                numbers[other] = self.index.numbers(ids, hashes, self.capacity)
                self.index.remember(rows.ids, numbers)
            known = numbers >= 0
            if known.all():
                fill(self.buffer, rows, lambda: numbers, self.flush)
                return
            inside = known[rows.codes]
            if inside.any():
                fill(self.buffer, rows.take(inside), lambda: numbers[known], self.flush)
            if not inside.all():
                outside = ~known[other]
                names, own = ids.filter(as_arrow(outside)), hashes[outside]
                fill(  # with numbers that change with every spill
                    self.waiting,
                    rows.take(~inside),
                    lambda: self.others.numbers(names, own),
                    self.spill_rows,
                )

    def flush(self) -> None:
        """Add the buffered rows to the table."""
        tasks = len(self.index)
        if self.buffer.count:
            # A page that is written before it is read costs half as much.
            self.table[self.touched : tasks] = 0.0
            self.touched = tasks
            self.buffer.add_to(self.table[:tasks], self.buffer.columns()[0], self.threads)
        self.buffer.count = 0

    def spill_rows(self) -> None:
        """Spill the rows of tasks that are not in the table."""
        buffer, tasks = self.waiting, self.others
        if not buffer.count:
            return
        places, features, rewards, weights = buffer.columns()
        counts = np.bincount(places, minlength=len(tasks))
        heavy = counts * features[0].nbytes > 8 * self.width
        if heavy.any():
            sums = np.zeros((int(heavy.sum()), self.width))
            row_of = np.where(heavy, np.cumsum(heavy) - 1, -1)
            buffer.add_to(sums, row_of[places], self.threads)
            order = tasks.order()
            order = order[heavy[order]]
            self.spill(self.sum_shards(tasks, order, sums, row_of[order]))
        if not heavy.all():
            codes = np.where(heavy[places], -1, places)
            columns = rewards, weights, features[:, : self.dim]
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


def plan_reading(dim: int, memory: int, workers: int = 1) -> tuple[int, int, int]:
    """How memory is divided between the threads that read and the sums.

    A quarter of the memory is for reading. Where it is too little for all threads, some only add
    up. An eighth is for sums in any case.

    Returns
    -------
    int, int, int
        How many threads read at a time, how many rows they read at a time, and how many bytes are
        left for the sums.
    """
    need = COLUMN_BYTES * (dim + 2)
    readers = int(np.clip(memory // 4 // need, 1, workers))
    left = max(memory - readers * need - LOOPS_BYTES, memory // 8)
    block = min(left // 8 // readers, BLOCK_BYTES)
    return readers, max(1024, block // (4 * dim)), left


def partition_count(rows: int, dim: int, limit: int) -> int:
    """Into how many partitions so many rows are spilled, so that each takes ``limit`` bytes.

    If it takes more, it is summed up in several steps.

    >>> partition_count(10**6, 30, 1 << 20), partition_count(10, 30, 1 << 20)
    (512, 16)
    """
    return int(np.clip(power_of_two(rows * (8 * dim + 40) / limit), 16, 4096))


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
