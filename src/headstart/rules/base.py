"""The protocol of every rule, and the base of rules that give each arm an index.

A rule sees a belief through :class:`BeliefLike`: the expected reward of a context (``predict``),
its uncertainty (``width``), and a random draw of the parameter (``draw``). Every rule works on
``(..., K, d)`` contexts: one decision, or many along leading batch axes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from headstart import checks
from headstart.kernels.switch import loops
from headstart.random import CannotStack, StackedStreams
from headstart.records import Array, Settings, reset_inherited
from headstart.rules.ties import (
    Allowed,
    Rng,
    allowed_arms,
    best_arms,
    best_two,
    draw_arm,
    select_by_uniform,
    tie_tolerance,
)

__all__ = ["BeliefLike", "Indexed", "LoopForm", "Pick", "Propensities", "Rule"]

CHUNK = 128  # tasks whose roots are stacked at a time: they must fit into a processor's cache


class BeliefLike(Protocol):
    """What a rule needs to know of a belief.

    The ``"theory"`` and ``"paper"`` radii of :class:`~headstart.rules.UCB` need more: the
    ``prior`` and ``information`` of a :class:`~headstart.Belief`.
    """

    @property
    def rounds(self) -> Any:
        """How many rewards it has seen."""

    @property
    def noise(self) -> Any:
        """R, the scale of the rewards' noise."""

    @property
    def dim(self) -> int:
        """The number of features."""

    def predict(self, contexts: Array) -> Array:
        """The expected reward of each row."""

    def width(self, contexts: Array) -> Array:
        """The standard deviation of each row's expected reward, divided by R."""

    def draw(self, rng: Rng, scale: Any, size: int | None = None) -> Array:
        """Random parameters, spread by ``scale``."""


class Pick(NamedTuple):
    """The decision of a rule: arrays where the belief has batch axes, Python numbers otherwise.

    ``forced`` marks choices that were drawn uniformly, whose evidence is kept apart on request.
    """

    arm: Any
    score: Any
    forced: Any = False


class Propensities(NamedTuple):
    """The probability of each arm.

    ``draws`` is ``None`` where the probabilities are exact, else the number of random draws they
    were estimated from.
    """

    values: Array
    draws: int | None = None


class LoopForm(NamedTuple):
    """A rule as compiled loops know it (:func:`headstart.kernels.compiled.play`).

    ``kind`` is "ucb", "thompson" or "uniform"; ``multiplier`` is γ/R or v/R; the first ``forced``
    rounds of a task are uniformly random.
    """

    kind: str
    multiplier: float
    forced: int = 0

    @property
    def code(self) -> int:
        """The number of the kind in compiled code."""
        return ("ucb", "thompson", "uniform").index(self.kind)

    def forced_of(self, rounds: int) -> int:
        """How many of so many rounds are forced, from the first on: all, if it is uniform."""
        return rounds if self.kind == "uniform" else min(self.forced, rounds)


class Rule(Settings, ABC):
    """An acquisition rule. Rules hold settings, never state.

    A subclass defines :meth:`choose` and :meth:`propensities`; most rules are easier written as an
    :class:`Indexed` rule. Everything else has a default.

    See Also
    --------
    headstart.testing.check_rule : checks of a rule of one's own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reset_inherited(cls, Rule, ("loop_form",))

    @abstractmethod
    def choose(
        self, belief: BeliefLike, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick a row of ``contexts`` (only where ``allowed``, if given)."""

    @abstractmethod
    def propensities(
        self, belief: BeliefLike, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """The probability with which :meth:`choose` picks each row."""

    def choose_many(
        self, beliefs: Sequence[BeliefLike], contexts: Array, streams: Sequence[Any]
    ) -> Pick:
        """One decision for each of several tasks, the same as by :meth:`choose` up to rounding.

        ``contexts`` is ``(n, K, d)``; every task draws from a stream of its own.
        """
        picks = [
            self.choose(belief, table, stream)
            for belief, table, stream in zip(beliefs, contexts, streams, strict=True)
        ]
        return Pick(
            np.array([pick.arm for pick in picks], dtype=np.intp),
            np.array([float(pick.score) for pick in picks]),
            np.array([bool(pick.forced) for pick in picks], dtype=bool),
        )

    def check_bandit(
        self, prior: Any, transfer: object, noise: float | None, half_life: float | None
    ) -> None:
        """Refuse a bandit in which the rule cannot keep what it promises.

        ``prior`` is what the transfer starts from, ``noise`` is R or ``None`` if it is estimated,
        and ``half_life`` is ``None`` if no reward is forgotten.
        """

    @property
    def forces(self) -> bool:
        """Whether some of its choices may be forced: uniformly random, and marked so."""
        return True

    # A shortcut. It is not inherited by a subclass, which may override what it stands for.

    def loop_form(self) -> LoopForm | None:
        """The rule as compiled loops know it; ``None`` if they cannot follow it."""
        return None


@dataclasses.dataclass(frozen=True, repr=False)
class Indexed(Rule):
    """Base of the rules that give each arm an index and pick the largest.

    A rule of this kind implements :meth:`index`. Ties, up to rounding, break uniformly at random
    from the caller's generator. With probability ``explore`` the arm is drawn uniformly instead, so
    that every arm has a known, positive propensity.
    """

    explore: float = dataclasses.field(default=0.0, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reset_inherited(cls, Indexed, ("compiled", "stackable"))

    def __post_init__(self) -> None:
        checks.fraction("explore", self.explore)

    @abstractmethod
    def index(self, belief: BeliefLike, contexts: Array, rng: Rng) -> Array:
        """The index of each arm, ``(..., K)``."""

    def choose(
        self, belief: BeliefLike, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick the arm with the largest index, or with probability ``explore`` any."""
        if contexts.ndim == 2 and not getattr(belief, "batch", ()):
            return self.choose_one(belief, contexts, rng, allowed)
        scores = self.index(belief, contexts, rng)
        best = best_arms(scores, allowed, belief.noise)
        if self.explore:
            free = rng.random(best.shape[:-1]) < self.explore
            best = np.where(free[..., None], allowed_arms(best, allowed), best)
        arms = select_by_uniform(best, rng.random(best.shape[:-1]))
        return Pick(arms, np.take_along_axis(scores, arms[..., None], -1)[..., 0])

    def choose_one(self, belief: BeliefLike, contexts: Array, rng: Rng, allowed: Allowed) -> Pick:
        """One decision: the arm with the largest index, found first and checked for ties then."""
        found = self.compiled(belief, contexts, rng) if allowed is None else None
        if found is not None:
            arm, top, second, scores = found
            alone = second < top - tie_tolerance(top, belief.noise)
        else:
            scores = self.index(belief, contexts, rng)
            if allowed is not None:
                scores = np.where(allowed, scores, -np.inf)
            arm, top, second = best_two(scores)
            alone = second < top - tie_tolerance(top, belief.noise, scores.dtype)
        if self.explore and rng.random() < self.explore:
            arm = draw_arm(allowed_arms(scores, allowed), rng)
        elif not alone:
            arm = draw_arm(best_arms(scores, allowed, belief.noise), rng)
        else:
            return Pick(arm, top)
        return Pick(arm, float(scores[arm]))

    @property
    def forces(self) -> bool:
        """It has no forced choices: those drawn by ``explore`` are not marked."""
        return False

    def choose_many(
        self, beliefs: Sequence[BeliefLike], contexts: Array, streams: Sequence[Any]
    ) -> Pick:
        """As :meth:`Rule.choose_many`, by the index of stacked beliefs where that is possible."""
        arms, scores = np.empty(len(beliefs), dtype=np.intp), np.empty(len(beliefs))
        for start in range(0, len(beliefs), CHUNK):
            part = slice(start, start + CHUNK)
            chunk = beliefs[part], contexts[part], streams[part]
            pick = self.choose_stacked(*chunk) or super().choose_many(*chunk)
            arms[part], scores[part] = pick.arm, pick.score
        return Pick(arms, scores, np.zeros(len(beliefs), dtype=bool))

    def choose_stacked(
        self, beliefs: Sequence[BeliefLike], contexts: Array, streams: Sequence[Any]
    ) -> Pick | None:
        """One decision for each belief by one call of :meth:`index`; ``None`` if it cannot be."""
        kind = type(beliefs[0])
        if self.explore or not self.stackable or loops() is not None:
            return None
        if not hasattr(kind, "stack") or any(type(belief) is not kind for belief in beliefs):
            return None
        stacked: Any = kind.stack(beliefs)
        if stacked is None:
            return None
        rng: Any = StackedStreams(streams)
        try:
            scores = self.index(stacked, contexts, rng)
        except CannotStack:
            return super().choose_many(
                beliefs, contexts, [stream.restarted() for stream in streams]
            )
        arms = scores.argmax(-1)
        top = np.take_along_axis(scores, arms[:, None], -1)
        tied = (scores >= top - tie_tolerance(top, stacked.noise[:, None])).sum(-1) > 1
        for row in np.flatnonzero(tied).tolist():
            pick = self.choose(beliefs[row], contexts[row], streams[row].restarted())
            arms[row], top[row] = pick.arm, pick.score
        return Pick(arms, top[:, 0])

    # Shortcuts. They are not inherited by a subclass, which may override what they stand for.

    @property
    def stackable(self) -> bool:
        """Whether :meth:`index` works for a stack of beliefs, whose ``noise`` has shape ``(n,)``.

        The stack can ``predict``, tell a ``width`` and ``draw``; nothing else is known of it.
        """
        return False

    def compiled(self, belief: BeliefLike, contexts: Array, rng: Rng) -> Any:
        """The best arm, the two largest indices and all of them, by compiled loops if they are on.

        ``None`` where they are off or cannot be used.
        """
        return None

    def propensities(
        self, belief: BeliefLike, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """Exact: the best arms share 1 − ε, all allowed arms share ε."""
        best = best_arms(self.index(belief, contexts, rng), allowed, belief.noise)
        return Propensities(self.with_exploration(best / best.sum(-1, keepdims=True), allowed))

    def with_exploration(self, values: Array, allowed: Allowed) -> Array:
        """Mix the uniform distribution over the allowed arms in."""
        everyone = allowed_arms(values, allowed)
        uniform = everyone / everyone.sum(-1, keepdims=True)
        mixed: Array = (1.0 - self.explore) * values + self.explore * uniform
        return mixed


def arrays_for_loops(belief: BeliefLike, contexts: Array) -> tuple[Array, Array] | None:
    """θ̂ and F of one belief, if compiled loops are on and can be used."""
    if loops() is None or not hasattr(belief, "loop_form"):
        return None
    arrays: tuple[Array, Array] | None = belief.loop_form()
    if arrays is None or arrays[0].ndim != 1:
        return None
    return arrays if contexts.dtype == np.float64 and contexts.flags.c_contiguous else None
