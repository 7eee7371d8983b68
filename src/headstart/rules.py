"""Rules: how to choose among the contexts on offer, and with what probability.

A rule sees a belief only through what every belief can tell: the expected reward of a context
(``predict``), how uncertain that is (``width``), and a random draw of the parameter (``draw``).
Any object with these can take the place of :class:`~headstart.belief.Belief`.

Every rule works on ``(..., K, d)`` contexts: one decision, or many along leading batch axes.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from headstart import checks
from headstart.belief import Belief
from headstart.errors import InputError
from headstart.records import Array, Settings
from headstart.speed import loops
from headstart.theory import thompson_scale
from headstart.ties import Mask, best_two, fall_on, leaders, open_arms, pick_among, slack

__all__ = [
    "UCB",
    "BeliefLike",
    "Forced",
    "Greedy",
    "Indexed",
    "Pick",
    "Propensities",
    "Rule",
    "Thompson",
    "Uniform",
]


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


@dataclasses.dataclass(frozen=True, repr=False)
class UCB(Indexed):
    """Optimism: the arm with the largest xᵀθ̂ + γ‖x‖_{B⁻¹}.

    Parameters
    ----------
    radius
        How much to explore. A number is a multiple of the noise: γ = number × R; 1 is a good start.
        ``"theory"`` is the confidence radius of the corrected analysis::

            γ = R √(log det B − log det B₀ + 2 log(1/δ)) + bias

        with the bias that the prior knows. With probability 1 − δ, no arm of any round of a task
        has abs(xᵀ(θ̂ − θ*)) > γ ‖x‖_{B⁻¹}, if the noise is R-sub-Gaussian and ‖θ*‖ is no larger
        than the transfer's ``bound``. What cannot keep this is refused: a prior that states no
        bound (:class:`~headstart.transfer.Gaussian`, :class:`~headstart.transfer.EmpiricalBayes`,
        mixtures, the Bayes oracle), and a bandit that estimates R or forgets.
        ``"paper"`` is Algorithm 2 as printed, without the square root and without R.
    delta
        δ, the probability with which the theory's interval may fail; 1/``horizon`` unless given.
    horizon
        n, the number of rounds a task is expected to last.
    explore
        The probability of a uniformly random choice.

    Examples
    --------
    >>> import headstart as hs
    >>> belief = hs.Belief.start(hs.Prior.isotropic(2)).learn([1.0, 0.0], 0.2)
    >>> UCB().choose(belief, np.eye(2), np.random.default_rng(0)).arm  # the arm not tried yet
    1
    """

    radius: float | str = 1.0
    delta: float | None = None
    horizon: int = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.radius, str):
            checks.one_of("radius", self.radius, ("theory", "paper"))
        else:
            checks.non_negative("radius", self.radius)
        check_confidence(self.delta, self.horizon)

    def index(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Array:
        """xᵀθ̂ + γ‖x‖_{B⁻¹}."""
        gamma = self.gamma(belief)
        index = belief.width(contexts)
        index *= gamma[..., None] if isinstance(gamma, np.ndarray) else gamma
        index += belief.predict(contexts)
        return index

    def compiled(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Any:
        """By compiled loops."""
        compiled = loops()
        if compiled is None or not is_plain(belief, contexts):
            return None
        scores = np.empty(len(contexts))
        gamma = self.gamma(belief)
        return *compiled.choose_ucb(contexts, belief.mean, belief.root, gamma, scores), scores

    def gamma(self, belief: BeliefLike) -> Any:
        """γ, in rewards' units."""
        if not isinstance(self.radius, str):
            return self.radius * belief.noise
        prior = getattr(belief, "prior", None)
        information = getattr(belief, "information", None)
        if prior is None or information is None:
            raise InputError(
                f"radius must be a number for a {type(belief).__name__}, which knows no bias; "
                f"got {self.radius!r}"
            )
        bias = stated_bias(self.radius, prior)
        certainty = information + 2.0 * math.log(1.0 / confidence(self.delta, self.horizon))
        return (certainty if self.radius == "paper" else belief.noise * np.sqrt(certainty)) + bias


@dataclasses.dataclass(frozen=True, repr=False)
class Thompson(Indexed):
    """Thompson sampling: draw θ̃ = θ̂ + v F z, pick the largest xᵀθ̃.

    Parameters
    ----------
    scale
        A number is a multiple of the noise, v = number × R; 1 draws from the belief itself.
        ``"theory"`` is v = 4R √(log(1/δ) (d+2)/α), for which Theorem 2 bounds the regret: close
        to random play. ``"paper"`` is the same as printed, without R.
    draws
        How many draws a propensity is estimated from.
    delta, horizon, alpha
        δ, n and α in (0, 1] of these two scales; δ = 1/n and α = 1/log n unless given.
    explore
        The probability of a uniformly random choice.
    """

    scale: float | str = 1.0
    draws: int = 1000
    delta: float | None = None
    horizon: int = 250
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.scale, str):
            checks.one_of("scale", self.scale, ("theory", "paper"))
        else:
            checks.non_negative("scale", self.scale)
        checks.integer("draws", self.draws, 1)
        check_confidence(self.delta, self.horizon)
        if self.alpha is not None and not checks.fraction("alpha", self.alpha) > 0.0:
            raise checks.refuse("alpha", "above 0, and 1 or less", self.alpha)

    def index(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Array:
        """xᵀθ̃."""
        theta = belief.draw(rng, self.spread(belief))
        if theta.ndim == 1:
            sampled: Array = contexts @ theta
            return sampled
        batched: Array = (contexts @ theta[..., None])[..., 0]
        return batched

    def compiled(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Any:
        """By compiled loops."""
        compiled = loops()
        if compiled is None or not is_plain(belief, contexts):
            return None
        normals = rng.standard_normal(belief.dim)
        scale, scores = self.spread(belief), np.empty(len(contexts))
        found = compiled.choose_thompson(contexts, belief.mean, belief.root, scale, normals, scores)
        return *found, scores

    def spread(self, belief: BeliefLike) -> Any:
        """V, in rewards' units."""
        if not isinstance(self.scale, str):
            return self.scale * belief.noise
        delta = confidence(self.delta, self.horizon)
        v = thompson_scale(self.horizon, delta=delta, dim=belief.dim, alpha=self.alpha)
        return v if self.scale == "paper" else v * belief.noise

    def propensities(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Propensities:
        """Estimated: how often each arm wins among ``draws`` draws, plus half a win each.

        The half (Krichevsky and Trofimov's estimate) keeps every propensity above zero, so that a
        logged choice can be weighted by its inverse.
        """
        everyone = open_arms(contexts[..., 0], allowed)
        if (everyone.sum(-1) == 1).all():
            return Propensities(everyone.astype(float))
        thetas = belief.draw(rng, self.spread(belief), size=self.draws)
        scores = (contexts @ thetas[..., None])[..., 0]
        wins = leaders(scores, allowed, belief.noise)
        counts = (wins / wins.sum(-1, keepdims=True)).sum(0) + 0.5 * everyone
        values = counts / counts.sum(-1, keepdims=True)
        return Propensities(self.with_exploration(values, allowed), self.draws)


@dataclasses.dataclass(frozen=True, repr=False)
class Greedy(Indexed):
    """No exploration beyond ``explore``: the arm with the largest expected reward xᵀθ̂."""

    def index(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Array:
        """xᵀθ̂."""
        return belief.predict(contexts)


@dataclasses.dataclass(frozen=True, repr=False)
class Uniform(Rule):
    """Any arm, with equal probability; the score is the expected reward."""

    def choose(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Pick:
        """Pick any open arm."""
        scores = belief.predict(contexts)
        everyone = open_arms(scores, allowed)
        if everyone.ndim == 1:
            arm = pick_among(everyone, rng)
            return Pick(arm, float(scores[arm]), True)
        arms = fall_on(everyone, rng.random(everyone.shape[:-1]))
        chosen = np.take_along_axis(scores, arms[..., None], -1)[..., 0]
        return Pick(arms, chosen, np.ones(arms.shape, dtype=bool))

    def propensities(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Propensities:
        """Exact: one over the number of open arms."""
        everyone = open_arms(contexts[..., 0], allowed)
        return Propensities(everyone / everyone.sum(-1, keepdims=True))


@dataclasses.dataclass(frozen=True, repr=False)
class Forced(Rule):
    """Uniformly random until ``rounds`` rewards have been seen, then another rule.

    The forced choices are marked, so that their evidence can be kept apart: an estimate from random
    rounds alone has no bias from choosing (:class:`~headstart.transfer.Gaussian`).
    """

    rounds: int
    then: Rule

    def __post_init__(self) -> None:
        checks.integer("rounds", self.rounds)
        if not isinstance(self.then, Rule):
            raise checks.refuse("then", "a rule", self.then)

    def choose(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Pick:
        """Pick any open arm while forced, else as ``then`` does."""
        forced = np.asarray(belief.rounds) < self.rounds
        if forced.ndim == 0 or forced.all() or not forced.any():
            rule = Uniform() if forced.all() else self.then
            return rule.choose(belief, contexts, rng, allowed)
        free, later = (
            rule.choose(belief, contexts, rng, allowed) for rule in (Uniform(), self.then)
        )
        return Pick(*(np.where(forced, a, b) for a, b in zip(free, later, strict=True)))

    def propensities(
        self,
        belief: BeliefLike,
        contexts: Array,
        rng: np.random.Generator,
        allowed: Mask | None = None,
    ) -> Propensities:
        """Uniform while forced, else what ``then`` says."""
        forced = np.asarray(belief.rounds) < self.rounds
        uniform = Uniform().propensities(belief, contexts, rng, allowed)
        if forced.all():
            return uniform
        later = self.then.propensities(belief, contexts, rng, allowed)
        return Propensities(np.where(forced[..., None], uniform.values, later.values), later.draws)


def is_plain(belief: object, contexts: Array) -> TypeGuard[Belief]:
    """Whether a belief is one Gaussian, and everything in double precision, row after row."""
    if type(belief) is not Belief or belief.mean.ndim != 1:
        return False
    mean, root = belief.mean, belief.root
    wide = contexts.dtype == mean.dtype == root.dtype == np.float64
    ordered = contexts.flags.c_contiguous and mean.flags.c_contiguous and root.flags.c_contiguous
    return bool(wide and ordered)


def named_radius(rule: Rule) -> str | None:
    """The radius of a rule that takes it from an analysis; ``None`` for any other rule.

    >>> named_radius(Forced(3, UCB("theory"))), named_radius(UCB(2.0))
    ('theory', None)
    """
    while isinstance(rule, Forced):
        rule = rule.then
    named = isinstance(rule, UCB) and isinstance(rule.radius, str)
    return rule.radius if named else None  # type: ignore[attr-defined]


def stated_bias(radius: str, prior: Any, of: object = None) -> Any:
    """The bias that a prior, which is ``of`` this, states for a radius; refused if it has none.

    >>> import headstart as hs
    >>> stated_bias("theory", hs.Prior.isotropic(2, bias=0.5))
    0.5
    """
    bias = getattr(prior, "printed_bias" if radius == "paper" else "bias", math.inf)
    if not np.isfinite(bias).all():
        which = "a prior that" if of is None else f"{of!r}, which"
        want = f"a number with {which} states no bound on how far θ may be from the prior's mean"
        raise checks.refuse("radius", want, radius)
    return bias


def check_confidence(delta: float | None, horizon: int) -> None:
    """Refuse a δ outside (0, 1) and a horizon below 2."""
    if delta is not None:
        checks.fraction("delta", delta, open_ends=True)
    checks.integer("horizon", horizon, 2)


def confidence(delta: float | None, horizon: int) -> float:
    """δ, or 1/n where it is not given."""
    return 1.0 / horizon if delta is None else delta
