"""Many choices at once: one for each of many tasks, made in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headstart.bandit.choice import Choice
from headstart.random import Streams
from headstart.records import Array, set_read_only
from headstart.rules import Propensities, Rule

__all__ = ["Choices", "odds_of"]


class Choices(Sequence[Choice]):
    """What many tasks chose: arrays, and a :class:`Choice` for whoever asks for one.

    Attributes
    ----------
    arms
        The row that each task picked.
    scores
        The rule's index of that row.
    tasks
        The tasks' ids, in the order they were given.
    """

    def __init__(
        self,
        arms: npt.NDArray[np.intp],
        scores: Array,
        tasks: Sequence[str],
        build: Callable[[int], Choice],
    ) -> None:
        self.arms = arms
        self.scores = scores
        self.tasks = tasks
        self._build = build
        self._built: dict[int, Choice] = {}

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
        if at not in self._built:
            self._built[at] = self._build(at)
        return self._built[at]

    def __iter__(self) -> Iterator[Choice]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"Choices of {len(self)} tasks"


def odds_of(
    rule: Rule, belief: Any, table: Array, seed: int, key: Any, position: int, allowed: Any
) -> Propensities:
    """The propensities of a choice, from a stream of its own: asking changes no decision."""
    stream = Streams(seed).at(key, position, stream=1)
    return rule.propensities(belief, table, stream, allowed)


def builder(
    rule: Rule,
    seed: int,
    origin: bytes,
    epoch: int,
    arms: Any,
    scores: Any,
    tasks: Sequence[str],
    numbers: Sequence[int],
    beliefs: Sequence[Any],
    tables: Array,
    given: Array,
    streams: Sequence[Any],
    forced: Any,
) -> Callable[[int], Choice]:
    """What makes one of many choices, when it is asked for."""

    def build(at: int) -> Choice:
        stream = streams[at]
        odds = partial(odds_of, rule, beliefs[at], tables[at], seed, stream.key, stream.place, None)
        context, row = (
            set_read_only(given[at, arms[at]].copy()),
            set_read_only(tables[at, arms[at]].copy()),
        )
        mark, task, number = bool(forced[at]), tasks[at], numbers[at]
        arm, score = int(arms[at]), float(scores[at])
        return Choice(arm, score, task, number, mark, context, origin, odds, epoch, row)

    return build
