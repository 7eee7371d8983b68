"""The hash of task ids, by which tasks are ordered, partitioned and sampled.

It is :func:`headstart.transfer.task_order.hash_texts` of the text of an id. A hash is a place among
2⁶⁴: partition p of P holds the tasks whose hash is in the p-th of P equal ranges, and tasks whose
hash is below a limit are a random sample of all. So tasks and rounds of a log are counted in
bounded memory (:class:`KeyedSums`): where there are too many, the limit is halved until they fit,
and which keys are kept does not depend on the order in which they come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.transfer.task_order import Hashes, hash_texts


def hash_ids(ids: pa.Array, seed: int = 0) -> Hashes:
    """The 64-bit hash of every id; whole numbers have the hash of their text.

    >>> hash_ids(pa.array(["7", "user-42"])) == hash_ids(pa.array([7, 42]))
    array([ True, False])
    >>> hash_ids(pa.array(["user-42"]), seed=1) == hash_ids(pa.array(["user-42"]))
    array([False])
    """
    texts = id_texts(ids)
    count = len(texts)
    if not count:
        return np.zeros(0, np.uint64)
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int64, count + 1, 8 * texts.offset)
    low, size = int(ends[0]), int(ends[-1] - ends[0])
    text = np.frombuffer(content, np.uint8, size, low) if size else np.zeros(0, np.uint8)
    return hash_texts(text, ends - low, seed)


def id_texts(ids: pa.Array) -> pa.LargeStringArray:
    """Ids as text; all of them may have more than 2 GiB of it."""
    return ids if ids.type == pa.large_string() else ids.cast(pa.large_string())


def partition_numbers(hashes: Hashes, count: int) -> npt.NDArray[np.int64]:
    """The partition of each hash among ``count``, a power of two: ranges of equal size, in order.

    >>> partition_numbers(np.array([0, 2**62, 2**64 - 1], np.uint64), 4)
    array([0, 1, 3])
    """
    if count == 1:
        return np.zeros(len(hashes), np.int64)
    return (hashes >> np.uint64(65 - count.bit_length())).astype(np.int64)


def partition_range(partition: int, count: int) -> tuple[int, int]:
    """The hashes of a partition: from the first number up to, but without, the second.

    >>> partition_range(3, 4) == (3 * 2**62, 2**64)
    True
    """
    return 2**64 * partition // count, 2**64 * (partition + 1) // count


def power_of_two(count: float) -> int:
    """The least power of two that is not below a number, 1 or more.

    >>> power_of_two(0.3), power_of_two(4), power_of_two(4.1)
    (1, 4, 8)
    """
    return 1 << max(math.ceil(count) - 1, 0).bit_length()


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
        below = slice(0, int(np.searchsorted(keys, np.uint64(self.limit - 1), "right")))
        if len(starts):
            columns = [
                reduction.reduceat(column[order], starts)[below]
                for reduction, column in zip(self.reductions, columns, strict=True)
            ]
        self.pending = [(keys[below], *columns)]

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
    """How many of some sizes are 0, 1, 2–3, 4–7 …: from, to and how many.

    The first and the last range end at the least and at the greatest size.

    >>> count_by_doubling(np.array([1, 5, 6]))
    [(1, 1, 1), (2, 3, 0), (4, 6, 2)]
    """
    if not len(sizes):
        return []
    least, most = int(np.min(sizes)), int(np.max(sizes))
    bits = np.frexp(np.asarray(sizes, dtype=np.float64))[1]
    counts = np.bincount(bits)
    return [
        (max((1 << bit) >> 1, least), min((1 << bit) - 1, most), int(counts[bit]))
        for bit in range(int(np.argmax(counts > 0)), len(counts))
    ]
