"""Rules that give each arm an index and pick the largest."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.kernels.switch import loops
from headstart.model.base import BaseBelief
from headstart.random import CannotStack, StackedStreams
from headstart.records import Array, reset_inherited
from headstart.rules.base import LoopForm, Pick, Propensities, Rule
from headstart.rules.clipping import (
    Bounds,
    checked_bounds,
    clip_probabilities,
    select_by_probability,
)
from headstart.rules.ties import (
    DOUBLE,
    Allowed,
    Rng,
    arm_mask,
    best_arms,
    best_two,
    draw_arm,
    select_by_uniform,
    tie_tolerance,
)

CHUNK = 128  # tasks whose roots are stacked at a time: they must fit into a processor's cache


@dataclasses.dataclass(frozen=True, repr=False)
class Indexed(Rule):
    """Base of the rules that give each arm an index and pick the largest.

    A rule of this kind implements :meth:`index`. Ties, up to rounding, break uniformly at random
    from the caller's generator. With probability ``explore`` the arm is drawn uniformly instead, so
    that every arm has a known, positive propensity. With ``probability`` the arm is drawn from the
    nearest distribution in which every arm's probability is between a floor and a ceiling
    (:mod:`headstart.rules.clipping`).
    """

    explore: float = dataclasses.field(default=0.0, kw_only=True)
    probability: Bounds = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reset_inherited(cls, Indexed, ("compiled", "index_is_fixed", "stackable"))

    def __post_init__(self) -> None:
        checks.fraction("explore", self.explore)
        object.__setattr__(self, "probability", checked_bounds(self.probability))

    @abstractmethod
    def index(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Array:
        """The index of each arm, ``(..., K)``."""

    def choose(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick the arm with the largest index, or with probability ``explore`` any."""
        if self.probability is not None:
            return self.choose_clipped(belief, contexts, rng, allowed)
        found, noise = None, belief.noise
        if allowed is None and loops() is not None:
            found = self.compiled(belief, contexts, rng)
        if found is None:
            scores = self.index(belief, contexts, rng)
            if scores.ndim > 1:
                return self.choose_batch(scores, rng, allowed, noise)
            if allowed is not None:
                scores = np.where(allowed, scores, -np.inf)
            found = *best_two(scores), scores
        arm, top, second, scores = found
        if not self.explore and second < top - tie_tolerance(top, noise, scores.dtype):
            return tuple.__new__(Pick, (arm, top, False))  # in half the time of a call of the class
        return self.explore_or_break_ties(arm, top, second, scores, rng, allowed, noise)

    def choose_batch(self, scores: Array, rng: Rng, allowed: Allowed, noise: Any) -> Pick:
        """The decisions of a batch, by the index of every arm."""
        best = best_arms(scores, allowed, noise)
        if self.explore:
            free = rng.random(best.shape[:-1]) < self.explore
            best = np.where(free[..., None], arm_mask(best, allowed), best)
        arms = select_by_uniform(best, rng.random(best.shape[:-1]))
        return Pick(arms, np.take_along_axis(scores, arms[..., None], -1)[..., 0])

    def choose_clipped(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed
    ) -> Pick:
        """Draw an arm from its propensities; its score is its index, or the expected reward."""
        values = self.propensities(belief, contexts, rng, allowed).values
        arms = select_by_probability(values, rng.random(values.shape[:-1]))
        fixed = self.index_is_fixed
        scores = self.index(belief, contexts, rng) if fixed else belief.predict(contexts)
        arm_scores = np.take_along_axis(scores, arms[..., None], -1)[..., 0]
        return Pick(arms, arm_scores) if arms.ndim else Pick(int(arms), float(arm_scores))

    def explore_or_break_ties(
        self,
        arm: int,
        top: float,
        second: float,
        scores: Array,
        rng: Rng,
        allowed: Allowed,
        noise: Any,
    ) -> Pick:
        """The arm with the top score, unless exploration or a tie with the second decides."""
        if self.explore and rng.random() < self.explore:
            arm = draw_arm(arm_mask(scores, allowed), rng)
        elif second < top - tie_tolerance(top, noise, scores.dtype):
            return Pick(arm, top)
        else:
            arm = draw_arm(best_arms(scores, allowed, noise), rng)
        return Pick(arm, float(scores[arm]))

    def rank(
        self, belief: BaseBelief, contexts: Array, rng: Rng, count: int, allowed: Allowed = None
    ) -> list[Pick]:
        """As :meth:`Rule.rank`; an index that draws nothing is computed once for all positions."""
        if not self.index_is_fixed or self.probability is not None:
            return super().rank(belief, contexts, rng, count, allowed)
        return self.rank_by(self.index(belief, contexts, rng), belief.noise, rng, count, allowed)

    def rank_by(
        self, scores: Array, noise: Any, rng: Rng, count: int, allowed: Allowed
    ) -> list[Pick]:
        """The first ``count`` arms by their scores, with exploration and ties at each position."""
        left = arm_mask(scores, allowed).copy()
        picks: list[Pick] = []
        for _ in range(count):
            arm, top, second = best_two(np.where(left, scores, -np.inf))
            picks.append(self.explore_or_break_ties(arm, top, second, scores, rng, left, noise))
            left[picks[-1].arm] = False
        return picks

    def loop_form_with(self, kind: str, multiplier: float | str) -> LoopForm | None:
        """The loop form for a multiple of R; ``None`` if that is named or choices are random."""
        if isinstance(multiplier, str) or self.explore or self.probability:
            return None
        return LoopForm(kind, float(multiplier))

    @property
    def forces(self) -> bool:
        """It has no forced choices: those drawn by ``explore`` are not marked."""
        return False

    def choose_many(
        self, beliefs: Sequence[BaseBelief], contexts: Array, streams: Sequence[Any]
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
        self, beliefs: Sequence[BaseBelief], contexts: Array, streams: Sequence[Any]
    ) -> Pick | None:
        """One decision for each belief by one call of :meth:`index`; ``None`` if it cannot be."""
        kind = type(beliefs[0])
        is_randomized = self.explore or self.probability is not None
        if is_randomized or not self.stackable or loops() is not None:
            return None
        if any(type(belief) is not kind for belief in beliefs):
            return None
        stacked: Any = kind.stack(beliefs)
        if stacked is None:
            return None
        rng: Any = StackedStreams(streams)
        try:
            scores = self.index(stacked, contexts, rng)
        except CannotStack:
            return super().choose_many(
                beliefs, contexts, [stream.from_start() for stream in streams]
            )
        arms = scores.argmax(-1)
        top = np.take_along_axis(scores, arms[:, None], -1)
        tied = (scores >= top - tie_tolerance(top, stacked.noise[:, None])).sum(-1) > 1
        for row in np.flatnonzero(tied).tolist():
            pick = self.choose(beliefs[row], contexts[row], streams[row].from_start())
            arms[row], top[row] = pick.arm, pick.score
        return Pick(arms, top[:, 0])

    def fixed_index(self, belief: BaseBelief, contexts: Array) -> Array | None:
        """The index, if it draws nothing."""
        nothing: Any = None
        return self.index(belief, contexts, nothing) if self.index_is_fixed else None

    # Shortcuts. They are not inherited by a subclass, which may override what they stand for.

    @property
    def stackable(self) -> bool:
        """Whether :meth:`index` works for a stack of beliefs, whose ``noise`` has shape ``(n,)``.

        The stack has ``predict``, ``width`` and ``draw``; nothing else may be used.
        """
        return False

    @property
    def index_is_fixed(self) -> bool:
        """Whether :meth:`index` draws nothing, so that one index ranks all arms."""
        return False

    def compiled(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Any:
        """The best arm, the two largest indices and all of them, by compiled loops.

        Called where they are on; ``None`` where they cannot be used.
        """
        return None

    def propensities(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """Exact: the best arms share 1 − ε, all allowed arms share ε; clipped by bounds."""
        best = best_arms(self.index(belief, contexts, rng), allowed, belief.noise)
        return Propensities(self.with_exploration(best / best.sum(-1, keepdims=True), allowed))

    def with_exploration(self, values: Array, allowed: Allowed) -> Array:
        """Mix the uniform distribution over the allowed arms in, and clip to the bounds."""
        is_allowed = arm_mask(values, allowed)
        uniform = is_allowed / is_allowed.sum(-1, keepdims=True)
        mixed: Array = (1.0 - self.explore) * values + self.explore * uniform
        bounds = self.probability
        return mixed if bounds is None else clip_probabilities(mixed, bounds, is_allowed)


def arrays_for_loops(belief: BaseBelief, contexts: Array) -> tuple[Array, Array] | None:
    """θ̂ and F of one belief, if compiled loops can be used."""
    arrays = belief.loop_arrays()
    if arrays is None or arrays[0].ndim != 1 or contexts.ndim != 2:
        return None
    return arrays if contexts.dtype == DOUBLE and contexts.flags.c_contiguous else None


def check_confidence(delta: float | None, horizon: int) -> None:
    """Refuse a δ outside (0, 1) and a horizon below 2."""
    if delta is not None:
        checks.fraction("delta", delta, open_ends=True)
    checks.integer("horizon", horizon, 2)


def delta_or_default(delta: float | None, horizon: int) -> float:
    """δ, or 1/n where it is not given."""
    return 1.0 / horizon if delta is None else delta
