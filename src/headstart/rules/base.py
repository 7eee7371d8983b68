"""What every rule is: a protocol of two methods, and the base of rules that give arms an index.

A rule sees a belief only through what every belief can tell (:class:`BeliefLike`): the expected
reward of a context (``predict``), how uncertain that is (``width``), and a random draw of the
parameter (``draw``). Every rule works on ``(..., K, d)`` contexts: one decision, or many along
leading batch axes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from headstart import checks
from headstart.model.belief import Belief
from headstart.records import Array, Settings
from headstart.rules.ties import Mask, best_two, fall_on, leaders, open_arms, pick_among, slack

__all__ = ["BeliefLike", "Indexed", "Pick", "Propensities", "Rule"]


class BeliefLike(Protocol):
    """What a rule needs to know of a belief."""

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
        """The uncertainty of each row's expected reward, in units of R."""

    def draw(self, rng: np.random.Generator, scale: Any, size: int | None = None) -> Array:
        """Random parameters, spread by ``scale``."""


class Pick(NamedTuple):
    """What a rule decided: arrays where the belief has batch axes, plain numbers otherwise."""

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


class Rule(Settings, ABC):
    """A way to choose. Rules hold settings, never state."""

    @abstractmethod
    def choose(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Pick:
        """Pick a row of ``contexts`` (only where ``allowed``, if given)."""

    @abstractmethod
    def propensities(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Propensities:
        """The probability with which :meth:`choose` picks each row."""


@dataclasses.dataclass(frozen=True, repr=False)
class Indexed(Rule):
    """Base of the rules that give each arm an index and pick the largest.

    A rule of this kind implements :meth:`index`. Ties, up to rounding, break uniformly at random
    from the caller's generator. With probability ``explore`` the arm is drawn uniformly instead, so
    that every arm has a known, positive propensity.
    """

    explore: float = dataclasses.field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        checks.fraction("explore", self.explore)

    @abstractmethod
    def index(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Array:
        """The index of each arm, ``(..., K)``."""

    def choose(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Pick:
        """Pick the arm with the largest index, or with probability ``explore`` any."""
        if contexts.ndim == 2 and not getattr(belief, "batch", ()):
            return self.choose_one(belief, contexts, rng, allowed)
        scores = self.index(belief, contexts, rng)
        best = leaders(scores, allowed, belief.noise)
        if self.explore:
            free = rng.random(best.shape[:-1]) < self.explore
            best = np.where(free[..., None], open_arms(best, allowed), best)
        arms = fall_on(best, rng.random(best.shape[:-1]))
        return Pick(arms, np.take_along_axis(scores, arms[..., None], -1)[..., 0])

    def choose_one(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None,
    ) -> Pick:
        """One decision: the arm with the largest index, found first and checked for ties then."""
        found = self.compiled(belief, contexts, rng) if allowed is None else None
        if found is not None:
            arm, top, second, scores = found
            alone = second < top - slack(top, belief.noise)
        else:
            scores = self.index(belief, contexts, rng)
            if allowed is not None:
                scores = np.where(allowed, scores, -np.inf)
            arm, top, second = best_two(scores)
            alone = second < top - slack(top, belief.noise, scores.dtype)
        if self.explore and rng.random() < self.explore:
            arm = pick_among(open_arms(scores, allowed), rng)
        elif not alone:
            arm = pick_among(leaders(scores, allowed, belief.noise), rng)
        else:
            return Pick(arm, top)
        return Pick(arm, float(scores[arm]))

    def compiled(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Any:
        """The best arm, the two largest indices and all of them, by compiled loops if they are on.

        ``None`` where they are off or cannot be used.
        """
        return None

    def propensities(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Propensities:
        """Exact: the leaders share 1 − ε, all arms share ε."""
        best = leaders(self.index(belief, contexts, rng), allowed, belief.noise)
        return Propensities(self.with_exploration(best / best.sum(-1, keepdims=True), allowed))

    def with_exploration(self, values: Array, allowed: Mask | None) -> Array:
        """Mix the uniform distribution over the open arms in."""
        everyone = open_arms(values, allowed)
        uniform = everyone / everyone.sum(-1, keepdims=True)
        mixed: Array = (1.0 - self.explore) * values + self.explore * uniform
        return mixed


def is_plain(belief: object, contexts: Array) -> TypeGuard[Belief]:
    """Whether a belief is one Gaussian, and everything in double precision, row after row."""
    if type(belief) is not Belief or belief.mean.ndim != 1:
        return False
    mean, root = belief.mean, belief.root
    wide = contexts.dtype == mean.dtype == root.dtype == np.float64
    ordered = contexts.flags.c_contiguous and mean.flags.c_contiguous and root.flags.c_contiguous
    return bool(wide and ordered)
