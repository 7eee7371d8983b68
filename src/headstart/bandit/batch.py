"""Many choices at once: one for each of many tasks, made in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headstart.bandit.choice import Choice
from headstart.kernels.switch import loops
from headstart.model.belief import Belief, unchecked
from headstart.random import Stream, Streams
from headstart.records import Array
from headstart.rules import UCB, Greedy, Propensities, Rule, Thompson
from headstart.rules.ties import slack

__all__ = ["Choices", "choose_each", "propensities_of"]

CHUNK_TASKS = 128  # tasks that are stacked at a time: their roots must fit into the CPU's cache


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


def choose_each(
    rule: Any,
    beliefs: Sequence[Any],
    contexts: Array,
    streams: Sequence[Stream],
    generator: Callable[[Any, int], Any],
) -> tuple[npt.NDArray[np.intp], Array, npt.NDArray[np.bool_]]:
    """The arm of each belief in its own contexts ``(n, K, d)``, its score, and if it was forced.

    The decisions are those made one by one, up to rounding: every task draws from its own stream.
    The arrays are read-only.
    """
    arms = np.empty(len(beliefs), dtype=np.intp)
    scores = np.empty(len(beliefs))
    forced = np.zeros(len(beliefs), dtype=bool)
    if can_stack(rule, beliefs):
        for start in range(0, len(beliefs), CHUNK_TASKS):
            part = slice(start, start + CHUNK_TASKS)
            arms[part], scores[part] = choose_stacked(
                rule, beliefs[part], contexts[part], streams[part]
            )
    else:
        for at, (belief, stream) in enumerate(zip(beliefs, streams, strict=True)):
            rng = generator(stream.key, stream.place)
            arms[at], scores[at], forced[at] = rule.choose(belief, contexts[at], rng)
    for array in (arms, scores, forced):
        array.flags.writeable = False
    return arms, scores, forced


def can_stack(rule: Rule, beliefs: Sequence[Any]) -> bool:
    """Whether decisions can be made for a stack of beliefs with one call, and faster."""
    if type(rule) not in (UCB, Thompson, Greedy) or rule.explore:  # type: ignore[attr-defined]
        return False
    amount: Any = getattr(rule, "radius", None) or getattr(rule, "scale", None)
    compiled = loops() is not None
    own = isinstance(amount, str) or not all(type(belief) is Belief for belief in beliefs)
    return not compiled and not own


def choose_stacked(
    rule: Any, beliefs: Sequence[Belief], contexts: Array, streams: Sequence[Any]
) -> tuple[npt.NDArray[np.intp], Array]:
    """The arms and scores of a few beliefs, by one call of the rule for all of them."""
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
    index = rule.index(stack, contexts, StackedStreams(streams))
    arms = index.argmax(-1)
    top = np.take_along_axis(index, arms[:, None], -1)
    tied = (index >= top - slack(top, stack.noise[:, None])).sum(-1) > 1
    for row in np.flatnonzero(tied).tolist():
        pick = rule.choose(beliefs[row], contexts[row], streams[row].afresh())
        arms[row], top[row] = pick.arm, pick.score
    return arms, top[:, 0]


class StackedStreams:
    """The streams of several tasks, drawn from together."""

    def __init__(self, streams: Sequence[Any]) -> None:
        self.streams = streams

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Normals of a shape whose first axis is the tasks."""
        return np.array([stream.standard_normal(shape[1:]) for stream in self.streams])


def propensities_of(
    rule: Rule, belief: Any, table: Array, seed: int, key: Any, position: int, allowed: Any
) -> Propensities:
    """The propensities of a choice, by random numbers of their own: no decision depends on it."""
    stream = Streams(seed).at(key, position, stream=1)
    return rule.propensities(belief, table, stream, allowed)
