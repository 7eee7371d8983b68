"""Numbers for tasks, in the order in which they come up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headstart.fleet.reading.arrays import as_array, as_arrow, filled

__all__ = ["Index"]

DENSE = 1 << 24  # whole numbers below this are looked up in a table
FAR = 8  # how many times as many tasks may be known as are asked for, for Arrow to look them up


class Index:
    """The number of every task, and back.

    Arrow finds many ids ten times as fast as a dictionary does, and lets other threads work
    meanwhile; but it looks at all that are known every time. Where those are many more than are
    asked for, the dictionary is faster.

    Examples
    --------
    >>> index = Index()
    >>> index.numbers(pa.array(["ann", "bob"])).tolist()
    [0, 1]
    >>> index.numbers(pa.array(["cid", "bob"])).tolist()
    [2, 1]
    >>> list(index.places)
    ['ann', 'bob', 'cid']

    A whole number is the same task as its text.

    >>> index.numbers(pa.array([7])), index.numbers(pa.array(["7"]))
    (array([3]), array([3]))
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.known = pa.nulls(0, pa.large_string())  # all ids may have more than 2 GiB of text
        self.recent: list[pa.Array] = []  # in places, and not yet in known
        self.dense = np.full(0, -1, np.int32)  # the number of task 0, 1, 2, …; -1 if not known

    def __len__(self) -> int:
        """How many tasks are known."""
        return len(self.places)

    def numbers(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        """The numbers of tasks, each of which is named once; new ones get the next."""
        if pa.types.is_integer(ids.type):
            return self.numbers_of(as_array(ids))
        ids = ids.cast(pa.large_string())
        if len(self.places) > FAR * len(ids):
            return self.looked_up(ids)
        found = pc.index_in(ids, value_set=self.all_known())
        fresh = as_array(found.is_null())
        numbers: npt.NDArray[np.int64] = filled(found).astype(np.int64)
        if fresh.any():
            numbers[fresh] = self.add(ids.filter(as_arrow(fresh)))
        return numbers

    def numbers_of(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The same for whole numbers, most of which need not become text."""
        if not len(values) or values.min() < 0 or values.max() >= DENSE:
            return self.numbers(as_arrow(values).cast(pa.large_string()))
        high = int(values.max())
        if high >= len(self.dense):
            more = np.full(max(high + 1, 2 * len(self.dense)) - len(self.dense), -1, np.int32)
            self.dense = np.concatenate([self.dense, more])
        found: npt.NDArray[np.int64] = self.dense[values].astype(np.int64)
        fresh = found < 0
        if fresh.any():
            found[fresh] = self.numbers(as_arrow(values[fresh]).cast(pa.large_string()))
            self.dense[values[fresh]] = found[fresh]
        return found

    def looked_up(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        """The same by the dictionary."""
        places = self.places
        numbers = np.fromiter((places.get(name, -1) for name in ids.to_pylist()), np.int64)
        fresh = numbers < 0
        if fresh.any():
            numbers[fresh] = self.add(ids.filter(as_arrow(fresh)))
        return numbers

    def add(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        """Number tasks that are new."""
        start = len(self.places)
        self.places.update((name, start + at) for at, name in enumerate(ids.to_pylist()))
        self.recent.append(ids)
        return np.arange(start, len(self.places))

    def missing(self, ids: pa.Array) -> int:
        """How many of these are not known."""
        ids = ids.cast(pa.large_string())
        if len(self.places) > FAR * len(ids):
            return sum(name not in self.places for name in ids.to_pylist())
        return int(len(ids) - pc.is_in(ids, value_set=self.all_known()).true_count)

    def all_known(self) -> pa.Array:
        """The ids of all tasks, in the order of their numbers."""
        if self.recent:
            self.known = pa.concat_arrays([self.known, *self.recent])
            self.recent = []
        return self.known
