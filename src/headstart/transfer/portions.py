"""Very many tasks, divided into portions that may be spread over threads, processes or machines.

A transfer fits them with :meth:`~headstart.transfer.Transfer.refit_portions`: it has functions
applied to every portion, wherever that is, and adds up what comes back in the portions' order. The
sums are then the same to the last bit however many workers there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from headstart.model.evidence import Evidence
from headstart.records import Array

__all__ = ["Listed", "Portions"]

Found = TypeVar("Found")

CHUNK = 256  # tasks that are unpacked at a time


class Portions(ABC):
    """Tasks in a fixed order, in portions: arrays with a row of packed evidence for each task.

    ``dim`` is the number of features and ``sizes`` how many tasks each portion has.
    """

    dim: int
    sizes: Sequence[int]

    def __len__(self) -> int:
        """How many tasks there are in all."""
        return sum(self.sizes)

    @abstractmethod
    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """``function(rows, dim, *arguments)`` of every portion, in the portions' order.

        It must be a function that other processes can find by its name. With ``first``, only so
        many portions are looked at.
        """

    @abstractmethod
    def rows(self, portion: int) -> Array:
        """The packed evidence of one portion's tasks."""

    def each(self) -> Iterator[Evidence]:
        """Every task, one by one."""
        for portion in range(len(self.sizes)):
            for row in self.rows(portion):
                yield Evidence.unpack(row, self.dim)

    def slice(self, start: int, stop: int) -> Array:
        """The tasks from one place in the order to another."""
        found, before = [], 0
        for portion, size in enumerate(self.sizes):
            low, high = max(start - before, 0), min(stop - before, size)
            if low < high:
                found.append(self.rows(portion)[low:high])
            before += size
        return np.concatenate(found) if found else np.zeros((0, 0))


class Listed(Portions):
    """Portions that are at hand.

    >>> both = [Evidence.of([[1.0, 2.0]], [3.0]).pack()[None]] * 2
    >>> portions = Listed(both, dim=2)
    >>> len(portions), portions.map(count_tasks)
    (2, [1, 1])
    """

    def __init__(self, parts: Sequence[Array], dim: int) -> None:
        self.parts = list(parts)
        self.dim = dim
        self.sizes = [len(part) for part in parts]

    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """One after the other."""
        return [function(part, self.dim, *arguments) for part in self.parts[:first]]

    def rows(self, portion: int) -> Array:
        """As they are."""
        return self.parts[portion]


def count_tasks(rows: Array, dim: int) -> int:
    """How many tasks a portion has."""
    return len(rows)


def chunks(rows: Array, dim: int) -> Iterator[Evidence]:
    """A portion's evidence along a batch axis, some tasks at a time."""
    for at in range(0, len(rows), CHUNK):
        yield Evidence.unpack(rows[at : at + CHUNK], dim)
