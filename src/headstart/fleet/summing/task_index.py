"""Numbers for tasks, in the order in which they come up, without a Python object for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.reading.hashing import Hashes
from headstart.fleet.summing.grams import Whole

__all__ = ["INDEX_BYTES", "TaskIndex", "order_of_tasks"]

INDEX_BYTES = 64  # for each task, about: hash, number and a short id, and as much while it grows


class TaskIndex:
    """The number of every task: a sorted array of hashes, and the ids in the order of numbers.

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

    def __len__(self) -> int:
        return len(self.hashes)

    def numbers(self, ids: pa.LargeStringArray, hashes: Hashes, room: int = 1 << 62) -> Whole:
        """The numbers of tasks, each of which is named once.

        New ones get the next number while there are fewer than ``room``, and −1 after that.
        """
        numbers = np.full(len(ids), -1, np.int64)
        known = np.zeros(len(ids), dtype=bool)
        if len(self.sorted):
            at = np.minimum(np.searchsorted(self.sorted, hashes), len(self.sorted) - 1)
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
            order = np.argsort(hashes[fresh])
            at = np.searchsorted(self.sorted, hashes[fresh][order])
            self.sorted = np.insert(self.sorted, at, hashes[fresh][order])
            self.places = np.insert(self.places, at, numbers[fresh][order])
        for place in np.flatnonzero(other):
            name = ids[int(place)].as_py()
            if name not in self.collisions and len(self) < room:
                one = slice(int(place), int(place) + 1)
                self.collisions[name] = int(self.append(ids[one], hashes[one])[0])
            numbers[place] = self.collisions.get(name, -1)
        return numbers

    def append(self, ids: pa.LargeStringArray, hashes: Hashes) -> Whole:
        """Number new tasks."""
        start = len(self)
        self.ids = pa.concat_arrays([self.ids, ids])
        self.hashes = np.concatenate([self.hashes, hashes])
        return np.arange(start, len(self))

    def order(self) -> Whole:
        """The numbers in the order of tasks: by hash, then by id."""
        return order_of_tasks(self.hashes, self.ids) if self.collisions else self.places


def order_of_tasks(hashes: Hashes, ids: pa.LargeStringArray) -> Whole:
    """Places in the order of the hash, and of the id where hashes are the same."""
    ranks: npt.NDArray[np.uint64] = as_array(pc.rank(ids, tiebreaker="dense"))
    return np.lexsort((ranks, hashes))
