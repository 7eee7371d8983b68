"""How often items have been on offer.

Offers are often made by a system that knows something about the items, so that those offered more
often are liked more often. With o offers of an item, and the mean ō of all items that were on
offer, the column is ::

    o / (o + ō) − ½

It is 0 if all items are on offer equally often. It is bounded, so that a column without
information on rewards costs little: with log((o + 1)/(ō + 1)) regret is the same where offers are
informative, and larger where they are not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from headstart.records import Array


class Offers:
    """The numbers of offers by item.

    >>> offers = Offers()
    >>> offers.put(*offers.after(["tea", "milk", "tea"]))
    >>> offers.counts, offers.total
    ({'tea': 2, 'milk': 1}, 3)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.total = 0

    def copy(self) -> Offers:
        """A copy that shares no mutable state."""
        clone = Offers()
        clone.counts, clone.total = self.counts.copy(), self.total
        return clone

    def after(self, keys: Sequence[str]) -> tuple[dict[str, int], int]:
        """What to :meth:`put` after these items were on offer again."""
        before = self.counts.get
        counts = {key: before(key, 0) + 1 for key in keys}
        if len(counts) < len(keys):  # some of them several times
            counts = {key: before(key, 0) + count for key, count in Counter(keys).items()}
        return counts, self.total + len(keys)

    def without(self, other: Offers) -> tuple[dict[str, int], int]:
        """What to :meth:`put` to subtract those of one task."""
        before = self.counts
        counts = {key: before.get(key, 0) - count for key, count in other.counts.items()}
        return counts, self.total - other.total

    def put(self, counts: dict[str, int], total: int) -> None:
        """Set the numbers of some items, and that of all; doing so twice is the same as once."""
        self.counts.update(counts)
        self.total = total
        if counts and min(counts.values()) <= 0:
            for key, count in counts.items():
                if count <= 0:
                    self.counts.pop(key, None)

    def write(self, keys: Sequence[str], out: Array) -> None:
        """Write the column of items."""
        if not self.counts:
            out[:] = 0.0
            return
        usual = self.total / len(self.counts)
        counts = np.fromiter(map(self.counts.get, keys, itertools.repeat(0)), np.float64, len(keys))
        np.divide(counts, counts + usual, out=out)
        out -= 0.5
