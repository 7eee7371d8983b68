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
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.reading.hashing import hash_ids, id_texts, partition_numbers, power_of_two
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.grams import Packed, RowBuffer, Whole
from headstart.fleet.summing.shards import order_of_tasks, row_shards, sum_shard
from headstart.model.evidence import packed_size
from headstart.transfer.task_order import Hashes

Spill = Callable[[Iterator[pa.RecordBatch]], None]

MOST_BUFFERED = 9 << 25  # bytes of rows that are added at once, at most
BLOCK_BYTES = 15_000_000  # of features that are read at a time, at most: more is not used again
COLUMN_BYTES = 3 << 20  # that it takes to decode a column: a page, a dictionary, a block
LOOPS_BYTES = 128 << 20  # that Numba and the compiled loops take
SMALL_IDS = 1 << 22  # whole numbers below this are looked up in a table
INDEX_BYTES = 64  # for each task, about: hash, number and a short id, and as much while it grows


class NumberedRows(NamedTuple):
    """Rows and the numbers of their tasks.

    The number is −1 where it is not known yet; ``ids`` and ``hashes`` are those of these tasks.
    """

    rows: Rows
    numbers: Whole
    ids: pa.LargeStringArray
    hashes: Hashes


class TaskIndex:
    """The number of every task: a sorted array of hashes, and the ids in the order of numbers.

    The numbers of tasks whose ids are small whole numbers are in a table, too.

    Examples
    --------
    >>> from headstart.fleet.reading.hashing import hash_ids
    >>> index = TaskIndex()
    >>> ids = pa.array(["ann", "bob"], pa.large_string())
    >>> index.numbers(ids, hash_ids(ids)).tolist()
    [0, 1]
    >>> ids = pa.array(["cid", "bob", "dan"], pa.large_string())
    >>> index.numbers(ids, hash_ids(ids), room=3).tolist()
    [2, 1, -1]
    """

    def __init__(self) -> None:
        self.ids = pa.nulls(0, pa.large_string())  # by number
        self.hashes: Hashes = np.zeros(0, np.uint64)  # by number
        self.sorted: Hashes = np.zeros(0, np.uint64)
        self.places: Whole = np.zeros(0, np.int64)  # the numbers of the sorted hashes
        self.collisions: dict[str, int] = {}  # tasks with the hash of another
        self.small = np.full(0, -1, np.int32)  # the numbers of tasks 0, 1, 2 …, −1 where not known

    def __len__(self) -> int:
        return len(self.hashes)

    def numbers(self, ids: pa.LargeStringArray, hashes: Hashes, room: int = 1 << 62) -> Whole:
        """The numbers of tasks, each of which is named once.

        New ones get the next number while there are fewer than ``room``, and −1 after that.
        """
        numbers = np.full(len(ids), -1, np.int64)
        known = np.zeros(len(ids), dtype=bool)
        if len(self.sorted):
            at = self.search(hashes)
            known = self.sorted[at] == hashes
            numbers[known] = self.places[at[known]]
        other = np.zeros(len(ids), dtype=bool)  # its hash is another's
        if known.any():
            mine = ids if known.all() else ids.filter(as_arrow(known))
            theirs = self.ids.take(as_arrow(numbers[known]))
            if not mine.equals(theirs):
                other[known] = as_array(pc.not_equal(mine, theirs))
        fresh = np.flatnonzero(~known)
        first = np.unique(hashes[fresh], return_index=True)[1]
        if len(first) < len(fresh):
            other[np.delete(fresh, first)] = True
            fresh = fresh[np.sort(first)]
        fresh = fresh[: max(room - len(self), 0)]
        if len(fresh):
            numbers[fresh] = self.append(ids.take(as_arrow(fresh)), hashes[fresh])
            self.insert(hashes[fresh], numbers[fresh])
        for place in np.flatnonzero(other):
            name = ids[int(place)].as_py()
            if name not in self.collisions and len(self) < room:
                one = slice(int(place), int(place) + 1)
                self.collisions[name] = int(self.append(ids[one], hashes[one])[0])
            numbers[place] = self.collisions.get(name, -1)
        return numbers

    def recall(self, ids: pa.Array) -> Whole:
        """The numbers of tasks that are small whole numbers, −1 where they are not known."""
        numbers, table = np.full(len(ids), -1, np.int64), self.small
        if kinds.is_integer(ids.type):
            values = as_array(ids)
            inside = (values >= 0) & (values < len(table))
            numbers[inside] = table[values[inside]]
        return numbers

    def remember(self, ids: pa.Array, numbers: Whole) -> None:
        """Keep the numbers of tasks for :meth:`recall`."""
        if not kinds.is_integer(ids.type):
            return
        values = as_array(ids)
        small = (values >= 0) & (values < SMALL_IDS) & (numbers >= 0)
        if not small.any():
            return
        values = values[small]
        missing = int(values.max()) + 1 - len(self.small)
        if missing > 0:
            more = np.full(max(missing, len(self.small)), -1, np.int32)
            self.small = np.concatenate([self.small, more])
        self.small[values] = numbers[small]

    def search(self, hashes: Hashes) -> Whole:
        """Where hashes are among the sorted ones, if they are there."""
        order, at = np.argsort(hashes), np.empty(len(hashes), np.int64)
        at[order] = np.searchsorted(self.sorted, hashes[order])  # in order it is faster
        return np.minimum(at, len(self.sorted) - 1)

    def insert(self, hashes: Hashes, numbers: Whole) -> None:
        """Sort hashes in, with the numbers of their tasks."""
        order = np.argsort(hashes)
        at = np.searchsorted(self.sorted, hashes[order])
        self.sorted = np.insert(self.sorted, at, hashes[order])
        self.places = np.insert(self.places, at, numbers[order])

    def append(self, ids: pa.LargeStringArray, hashes: Hashes) -> Whole:
        """Number new tasks."""
        start = len(self)
        self.ids = pa.concat_arrays([self.ids, ids])
        self.hashes = np.concatenate([self.hashes, hashes])
        return np.arange(start, len(self))

    def order(self) -> Whole:
        """The numbers in the order of tasks: by hash, then by id."""
        return order_of_tasks(self.hashes, self.ids) if self.collisions else self.places


class Accumulator:
    """Adds rows up by task, for any number of threads.

    Parameters
    ----------
    dim
        The number of features.
    memory
        How many bytes it may take. Half is for sums, a quarter for rows that wait to be added to
        them or spilled, and a quarter for what that takes.
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
        self.dim, self.threads = dim, threads
        self.partitions, self.spill = partitions, spill
        self.width = packed_size(dim)
        # How many tasks have their sums in the table, at most; whoever adds may lower it.
        self.capacity = max(1, memory // 2 // (8 * self.width + INDEX_BYTES))
        self.lock = threading.RLock()
        self.index, self.table = TaskIndex(), empty_table(self.capacity, self.width)
        self.touched = 0  # tasks in the table to which something was added
        self.others = TaskIndex()  # tasks of buffered rows that are not in the table
        self.buffer = RowBuffer(min(memory // 4, MOST_BUFFERED), dim)

    def drop_buffer(self) -> None:
        """Free the memory of buffered rows, after :meth:`flush`; no rows can be added then."""
        self.buffer = RowBuffer(0, self.dim)

    def number_tasks(self, rows: Rows) -> NumberedRows:
        """Look up the tasks of the rows that were chosen, where that was logged.

        It changes nothing, so that any thread can do it at any time before :meth:`add`.
        """
        rows = rows.chosen_rows().as_rounds()
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
            outside = np.flatnonzero(numbers[other] < 0)
            names, start = ids.take(as_arrow(outside)), 0
            while start < rows.count:
                if len(outside):  # the other tasks have ~0, ~1, ~2 … until the next flush
                    numbers[other[outside]] = ~self.others.numbers(names, hashes[outside])
                start += self.buffer.take(rows, numbers, start)
                if start < rows.count or self.buffer.full:
                    self.flush()

    def flush(self) -> None:
        """Add the buffered rows to the table, and spill those of other tasks."""
        if self.buffer.count:
            if len(self.others):
                self.spill_rows()
            tasks = len(self.index)
            # A page that is written before it is read costs half as much.
            self.table[self.touched : tasks] = 0.0
            self.touched = tasks
            self.buffer.add_to(self.table[:tasks], self.buffer.columns()[0], self.threads)
        self.buffer.clear()

    def spill_rows(self) -> None:
        """Spill the buffered rows of tasks that are not in the table."""
        places, features, rewards, weights = self.buffer.columns()
        tasks, codes = self.others, np.maximum(~places, -1)
        counts = np.bincount(codes + 1, minlength=len(tasks) + 1)[1:]
        heavy = counts * features[0].nbytes > 8 * self.width
        if heavy.any():
            sums = np.zeros((int(heavy.sum()), self.width))
            row_of = np.append(np.where(heavy, np.cumsum(heavy) - 1, -1), -1)
            self.buffer.add_to(sums, row_of[codes], self.threads)
            order = tasks.order()
            order = order[heavy[order]]
            self.spill(self.sum_shards(tasks, order, sums, row_of[order]))
        if not heavy.all():
            codes = np.where(np.append(heavy, True)[codes], -1, codes)
            columns = rewards, weights, features[:, : self.dim]
            self.spill(row_shards(tasks.hashes, tasks.ids, codes, *columns, self.partitions))
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
        shards = self.snapshot()
        self.drop_buffer()
        if len(self.index):
            self.spill(shards)
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
