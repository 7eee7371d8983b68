"""Numbers for tasks, in the order in which they come up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.reading.hashing import Hashes, partition_numbers, power_of_two
from headstart.fleet.summing.grams import Whole
from headstart.fleet.summing.shards import order_of_tasks

__all__ = ["TaskIndex"]

SMALL_IDS = 1 << 22  # whole numbers below this are looked up in a table


class TaskIndex:
    """The number of every task: a sorted array of hashes, and the ids in the order of numbers.

    Hashes are spread evenly, so that their leading bits say about where one is. The numbers of
    tasks whose ids are small whole numbers are in a table, too.

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
        self.starts: Whole = np.zeros(2, np.int64)  # of the sorted hashes, by their leading bits
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
        values = values[small]
        missing = int(values.max(initial=-1)) + 1 - len(self.small)
        if missing > 0:
            more = np.full(max(missing, len(self.small)), -1, np.int32)
            self.small = np.concatenate([self.small, more])
        self.small[values] = numbers[small]

    def search(self, hashes: Hashes) -> Whole:
        """Where hashes are among the sorted ones, if they are there."""
        last = len(self.sorted) - 1
        at = np.minimum(self.starts[partition_numbers(hashes, len(self.starts) - 1)], last)
        behind = np.flatnonzero((self.sorted[at] < hashes) & (at < last))
        while len(behind):
            at[behind] += 1
            behind = behind[(self.sorted[at[behind]] < hashes[behind]) & (at[behind] < last)]
        return at

    def insert(self, hashes: Hashes, numbers: Whole) -> None:
        """Sort hashes in, with the numbers of their tasks."""
        order = np.argsort(hashes)
        at = np.searchsorted(self.sorted, hashes[order])
        self.sorted = np.insert(self.sorted, at, hashes[order])
        self.places = np.insert(self.places, at, numbers[order])
        ranges = power_of_two(len(self.sorted))
        counts = np.bincount(partition_numbers(self.sorted, ranges), minlength=ranges)
        self.starts = np.append(0, np.cumsum(counts))

    def append(self, ids: pa.LargeStringArray, hashes: Hashes) -> Whole:
        """Number new tasks."""
        start = len(self)
        self.ids = pa.concat_arrays([self.ids, ids])
        self.hashes = np.concatenate([self.hashes, hashes])
        return np.arange(start, len(self))

    def order(self) -> Whole:
        """The numbers in the order of tasks: by hash, then by id."""
        return order_of_tasks(self.hashes, self.ids) if self.collisions else self.places
