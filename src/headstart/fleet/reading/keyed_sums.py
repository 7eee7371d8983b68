"""Numbers by 64-bit key in bounded memory: tasks or rounds of a log, counted.

Keys are hashes, so that the keys below a limit are a random sample of all. Where there are more
than memory should hold, the limit is halved until they fit; which keys are kept does not depend on
the order in which they come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.fleet.reading.hashing import Hashes

__all__ = ["MAX_KEYS", "KeyedSums", "count_by_doubling"]

MAX_KEYS = 2_000_000
ALL = 2**64


class KeyedSums:
    """Columns of numbers by key; numbers of the same key are combined.

    Parameters
    ----------
    reductions
        How each column is combined: ``np.add``, ``np.minimum`` …
    max_keys
        How many keys are kept, two million unless given; of more, a sample.

    Examples
    --------
    >>> counts = KeyedSums(np.add)
    >>> counts.add(np.array([5, 3, 5], np.uint64), np.ones(3, int))
    >>> counts.add(np.array([3], np.uint64), np.ones(1, int))
    >>> counts.keys, counts.columns[0]
    (array([3, 5], dtype=uint64), array([2, 2]))
    """

    def __init__(self, *reductions: np.ufunc, max_keys: int | None = None) -> None:
        self.reductions, self.max_keys, self.limit = reductions, max_keys or MAX_KEYS, ALL
        self.pending: list[tuple[npt.NDArray[Any], ...]] = []  # the first is in order

    def add(self, keys: Hashes, *columns: npt.NDArray[Any]) -> None:
        """Add numbers; a key may come any number of times."""
        self.pending.append((keys, *columns))
        waiting = sum(len(block[0]) for block in self.pending[1:])
        if waiting > max(self.max_keys, len(self.pending[0][0])):
            self.combine()

    def merge(self, other: KeyedSums) -> None:
        """Add all that another one has."""
        self.limit = min(self.limit, other.limit)
        for block in other.pending:
            self.add(*block)

    def combine(self) -> None:
        """Bring keys into order, each once, and no more than may be kept."""
        if not self.pending:
            return
        keys, *columns = (np.concatenate(parts) for parts in zip(*self.pending, strict=True))
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        keys = keys[starts]
        while np.searchsorted(keys, np.uint64(self.limit - 1), "right") > self.max_keys:
            self.limit //= 2
        kept = slice(0, int(np.searchsorted(keys, np.uint64(self.limit - 1), "right")))
        if len(starts):
            columns = [
                reduction.reduceat(column[order], starts)[kept]
                for reduction, column in zip(self.reductions, columns, strict=True)
            ]
        self.pending = [(keys[kept], *columns)]

    @property
    def keys(self) -> Hashes:
        """The keys that are kept, in order."""
        self.combine()
        return self.pending[0][0] if self.pending else np.zeros(0, np.uint64)

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """The combined numbers of each key, column by column."""
        self.combine()
        return list(self.pending[0][1:]) if self.pending else [np.zeros(0)] * len(self.reductions)

    @property
    def share(self) -> float:
        """Which share of all keys is kept; 1 for all."""
        return self.limit / ALL

    @property
    def total(self) -> int:
        """How many keys there are in all; an estimate where not all are kept."""
        return round(len(self.keys) / self.share)


def count_by_doubling(sizes: npt.NDArray[Any]) -> list[tuple[int, int, int]]:
    """How many of some sizes are 0, 1, 2–3, 4–7 …: from, to and how many, from the least size on.

    >>> count_by_doubling(np.array([1, 5, 7]))
    [(1, 1, 1), (2, 3, 0), (4, 7, 2)]
    """
    bits = np.frexp(np.asarray(sizes, dtype=np.float64))[1]
    counts = np.bincount(bits) if len(bits) else np.zeros(0, int)
    first = int(np.argmax(counts > 0)) if len(counts) else 0
    return [
        ((1 << bit) >> 1, max((1 << bit) - 1, 0), int(counts[bit]))
        for bit in range(first, len(counts))
    ]
