"""Numbers for tasks, in the order in which they come up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Index"]

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
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.known = pa.array([], pa.string())
        self.recent: list[pa.StringArray] = []  # in places, and not yet in known

    def __len__(self) -> int:
        """How many tasks are known."""
        return len(self.places)

    def numbers(self, ids: pa.StringArray) -> npt.NDArray[np.int64]:
        """The numbers of tasks, each of which is named once; new ones get the next."""
        if len(self.places) > FAR * len(ids):
            return self.looked_up(ids)
        if self.recent:
            self.known = pa.concat_arrays([self.known, *self.recent])
            self.recent = []
        found = pc.index_in(ids, value_set=self.known)
        fresh = found.is_null().to_numpy(zero_copy_only=False)
        numbers: npt.NDArray[np.int64] = found.fill_null(0).to_numpy().astype(np.int64)
        if fresh.any():
            numbers[fresh] = self.add(ids.filter(pa.array(fresh)))
        return numbers

    def looked_up(self, ids: pa.StringArray) -> npt.NDArray[np.int64]:
        """The same by the dictionary."""
        places = self.places
        numbers = np.fromiter((places.get(name, -1) for name in ids.to_pylist()), np.int64)
        fresh = numbers < 0
        if fresh.any():
            numbers[fresh] = self.add(ids.filter(pa.array(fresh)))
        return numbers

    def add(self, ids: pa.StringArray) -> npt.NDArray[np.int64]:
        """Number tasks that are new."""
        start = len(self.places)
        self.places.update((name, start + at) for at, name in enumerate(ids.to_pylist()))
        self.recent.append(ids)
        return np.arange(start, len(self.places))

    def missing(self, ids: pa.StringArray) -> int:
        """How many of these are not known."""
        if len(self.places) > FAR * len(ids):
            return sum(name not in self.places for name in ids.to_pylist())
        values = pa.concat_arrays([self.known, *self.recent])
        return int(len(ids) - pc.is_in(ids, value_set=values).true_count)
