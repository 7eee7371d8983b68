"""The buckets of all tasks as the portions that a transfer fits, wherever they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from headstart.fleet.summing.shelf import BUCKETS, Portion
from headstart.fleet.summing.standardize import Units
from headstart.records import Array
from headstart.transfer import standardize
from headstart.transfer.partitions import Partitions

__all__ = ["Buckets"]


class Buckets(Partitions):
    """Buckets of tasks.

    ``units`` are what features are counted in, once that is known; ``told`` is called after every
    pass over the buckets.
    """

    def __init__(self, dim: int, sizes: Sequence[int]) -> None:
        self.dim, self.sizes = dim, sizes
        self.units: Units | None = None
        self.told: Callable[[], None] | None = None

    @abstractmethod
    def raw(self, bucket: int) -> Portion:
        """A copy of the tasks of one bucket, of features as they are in the logs."""

    def in_units(self, units: standardize.Units) -> Self:
        """The same object: from here on, its portions are in these units."""
        self.units = Units(*units)
        return self

    def portion(self, bucket: int) -> Portion:
        """The tasks of one bucket."""
        names, rows = self.raw(bucket)
        return Portion(names, rows if self.units is None else self.units.packed(rows))

    def limits(self, first: int | None) -> dict[int, int]:
        """How many tasks of each bucket are among the first; buckets without any are left out."""
        rest = len(self) if first is None else first
        found = {}
        for bucket, size in enumerate(self.sizes):
            if min(size, rest) > 0:
                found[bucket] = min(size, rest)
            rest -= size
        return found

    def each_portion(self) -> Iterator[Portion]:
        """All of them, in order."""
        return (self.portion(bucket) for bucket in range(BUCKETS))

    def rows(self, portion: int) -> Array:
        """The packed evidence of one bucket."""
        return self.portion(portion).rows
