"""Very many tasks, divided into partitions that may be spread over threads, processes or machines.

A transfer fits them with :meth:`~headstart.transfer.Transfer.refit_partitions`. It maps functions
over the partitions, wherever they are, and adds up the results in their order, so that the
sums are the same to the last bit however many workers there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.transfer.standardize import Standardization

Result = TypeVar("Result")

CHUNK_TASKS = 256  # tasks that are unpacked at a time


class Partitions(ABC):
    """Tasks in a fixed order, in partitions: arrays with a row of packed evidence for each task.

    ``dim`` is the number of features and ``sizes`` how many tasks each partition has.
    """

    dim: int
    sizes: Sequence[int]

    def __len__(self) -> int:
        """How many tasks there are in all."""
        return sum(self.sizes)

    @abstractmethod
    def map(
        self, function: Callable[..., Result], *arguments: Any, first: int | None = None
    ) -> list[Result]:
        """``function(rows, dim, *arguments)`` of all tasks, some at a time and in their order.

        It must be a function that other processes can find by its name. With ``first``, only so
        many tasks are looked at, so that it does not depend on how they are partitioned.
        """

    @abstractmethod
    def in_units(self, units: Standardization) -> Partitions:
        """The same tasks, of features in these units."""

    @abstractmethod
    def rows(self, partition: int) -> Array:
        """The packed evidence of one partition's tasks."""

    def evidences(self) -> Iterator[Evidence]:
        """Every task, one by one."""
        for partition in range(len(self.sizes)):
            for row in self.rows(partition):
                yield Evidence.unpack(row, self.dim)

    def slice(self, start: int, stop: int) -> Array:
        """The tasks from one place in the order to another."""
        slices, before = [], 0
        for partition, size in enumerate(self.sizes):
            low, high = max(start - before, 0), min(stop - before, size)
            if low < high:
                slices.append(self.rows(partition)[low:high])
            before += size
        return np.concatenate(slices) if slices else np.zeros((0, 0))


class PartitionList(Partitions):
    """Partitions in this process's memory.

    >>> both = [Evidence.of([[1.0, 2.0]], [3.0]).pack()[None]] * 2
    >>> partitions = PartitionList(both, dim=2)
    >>> len(partitions), partitions.map(lambda rows, dim: len(rows))
    (2, [1, 1])
    """

    def __init__(self, parts: Sequence[Array], dim: int) -> None:
        self.parts = list(parts)
        self.dim = dim
        self.sizes = [len(part) for part in parts]

    def map(
        self, function: Callable[..., Result], *arguments: Any, first: int | None = None
    ) -> list[Result]:
        """One after the other."""
        parts, rest = [], len(self) if first is None else first
        for part in self.parts:
            parts.append(part[: max(rest, 0)])
            rest -= len(part)
        return [function(part, self.dim, *arguments) for part in parts if len(part)]

    def in_units(self, units: Standardization) -> PartitionList:
        """Changed at once."""
        return PartitionList(
            [units.packed(part.astype(np.float64)) for part in self.parts], self.dim
        )

    def rows(self, partition: int) -> Array:
        """As they are."""
        return self.parts[partition]


def chunks(rows: Array, dim: int) -> Iterator[Evidence]:
    """A partition's evidence along a batch axis, some tasks at a time."""
    for at in range(0, len(rows), CHUNK_TASKS):
        yield Evidence.unpack(rows[at : at + CHUNK_TASKS], dim)
