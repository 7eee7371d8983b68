"""Many choices at once: one for each of many tasks, made in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headstart.bandit.choice import Choice
from headstart.random import Streams
from headstart.records import Array
from headstart.rules import Propensities, Rule

__all__ = ["Choices", "propensities_of"]


class Choices(Sequence[Choice]):
    """The choices of several tasks: a sequence of :class:`Choice`, each made on first access.

    Attributes
    ----------
    arms : ndarray of shape (n,)
        The row that each task picked.
    scores : ndarray of shape (n,)
        The rule's index of that row.
    tasks : sequence of str
        The tasks' ids, in the order they were passed.
    """

    def __init__(
        self,
        arms: npt.NDArray[np.intp],
        scores: Array,
        tasks: Sequence[str],
        make: Callable[[int], Choice],
    ) -> None:
        self.arms = arms
        self.scores = scores
        self.tasks = tasks
        self._make = make
        self._made: dict[int, Choice] = {}

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, place: int) -> Choice: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Choice]: ...
    def __getitem__(self, place: int | slice) -> Choice | Sequence[Choice]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        if at not in self._made:
            self._made[at] = self._make(at)
        return self._made[at]

    def __iter__(self) -> Iterator[Choice]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"Choices of {len(self)} tasks"


def propensities_of(
    rule: Rule, belief: Any, table: Array, seed: int, key: Any, position: int, allowed: Any
) -> Propensities:
    """The propensities of a choice, by random numbers of their own: no decision depends on it."""
    stream = Streams(seed).at(key, position, stream=1)
    return rule.propensities(belief, table, stream, allowed)
