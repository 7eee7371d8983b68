"""Many choices at once: one for each of many tasks, made in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headstart.bandit.choice import Choice
from headstart.kernels.switch import loops
from headstart.model.belief import Belief, unchecked
from headstart.random import Streams
from headstart.records import Array, frozen
from headstart.rules import UCB, Greedy, Propensities, Rule, Thompson
from headstart.rules.ties import slack

__all__ = ["Choices", "decide", "odds_of"]

CHUNK = 128  # tasks whose roots are stacked at a time: they must fit into a processor's cache


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


def can_stack(rule: Rule, beliefs: Sequence[Any]) -> bool:
    """Whether decisions can be made for a stack of beliefs with one call."""
    if type(rule) not in (UCB, Thompson, Greedy) or rule.explore:  # type: ignore[attr-defined]
        return False
    amount: Any = getattr(rule, "radius", None) or getattr(rule, "scale", None)
    return not isinstance(amount, str) and all(type(belief) is Belief for belief in beliefs)


def decide(
    rule: Any, beliefs: Sequence[Any], contexts: Array, streams: Sequence[Any]
) -> tuple[npt.NDArray[np.intp], Array]:
    """The arm of each belief in its own contexts ``(n, K, d)``, and its score.

    The same decisions as one by one, up to rounding: every task draws from its own stream.
    """
    arms = np.empty(len(beliefs), dtype=np.intp)
    scores = np.empty(len(beliefs))
    if loops() is not None:
        for at, belief in enumerate(beliefs):
            arms[at], scores[at], _ = rule.choose(belief, contexts[at], streams[at])
        return arms, scores
    for start in range(0, len(beliefs), CHUNK):
        part = slice(start, start + CHUNK)
        arms[part], scores[part] = decide_chunk(rule, beliefs[part], contexts[part], streams[part])
    return arms, scores


def decide_chunk(
    rule: Any, beliefs: Sequence[Belief], contexts: Array, streams: Sequence[Any]
) -> tuple[npt.NDArray[np.intp], Array]:
    """The same for few enough at a time."""
    stack = unchecked(
        np.array([belief.mean for belief in beliefs]),
        np.array([belief.root for belief in beliefs]),
        None,
        None,
        np.array([belief.noise for belief in beliefs]),
        beliefs[0].prior,
        None,
        None,
    )
    index = rule.index(stack, contexts, SideBySide(streams))
    arms = index.argmax(-1)
    top = np.take_along_axis(index, arms[:, None], -1)
    tied = (index >= top - slack(top, stack.noise[:, None])).sum(-1) > 1
    for row in np.flatnonzero(tied).tolist():
        pick = rule.choose(beliefs[row], contexts[row], streams[row].afresh())
        arms[row], top[row] = pick.arm, pick.score
    return arms, top[:, 0]


class SideBySide:
    """Tasks' streams, drawn from together."""

    def __init__(self, streams: Sequence[Any]) -> None:
        self.streams = streams

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Normals of a shape whose first axis is the tasks."""
        return np.array([stream.standard_normal(shape[1:]) for stream in self.streams])


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
        context, row = frozen(given[at, arms[at]].copy()), frozen(tables[at, arms[at]].copy())
        mark, task, number = bool(forced[at]), tasks[at], numbers[at]
        arm, score = int(arms[at]), float(scores[at])
        return Choice(arm, score, task, number, mark, context, origin, odds, epoch, row)

    return build
