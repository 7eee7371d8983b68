"""Thompson sampling: the arm that is best under a random draw of the parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.kernels.switch import loops
from headstart.model.base import BaseBelief
from headstart.records import Array
from headstart.rules.base import LoopForm, Pick, Propensities, arms_left
from headstart.rules.best_arm import best_arm_probabilities
from headstart.rules.indexed import (
    Indexed,
    arrays_for_loops,
    check_confidence,
    delta_or_default,
)
from headstart.rules.ordering import draws_in_order
from headstart.rules.ties import Allowed, Mask, Rng, arm_mask, best_arms
from headstart.theory import thompson_scale

#: Chosen on synthetic worlds (``benchmarks/thompson.py``): small enough to cost little regret,
#: large enough for choices to remain random.
DEFAULT_SCALE = 0.25

MAX_DRAWS = 2**20  # for a propensity, with an error of 0.0005
MANY_DRAWS = 10_000  # of a belief of unknown kind, for its probabilities of being the best


@dataclasses.dataclass(frozen=True, repr=False)
class Thompson(Indexed):
    """Thompson sampling: draw θ̃ = θ̂ + v F z, pick the largest xᵀθ̃.

    Parameters
    ----------
    scale : float or {"theory", "paper"}, default 0.25
        A number is a multiple of the noise, v = number × R. The default costs little more regret
        than :class:`UCB`; 1 draws from the belief itself, so that an arm is picked with the
        probability that it is the best, and costs 1.4 to 1.8 times as much as UCB. Use 1 where that
        probability is what is wanted, for instance as the propensities of a trial, or where many
        choices are made before any of their rewards is known.
        ``"theory"`` is v = 4R √(log(1/δ) (d+2)/α), for which Theorem 2 bounds the regret: close
        to random play. ``"paper"`` is the same as printed, without R.
    draws : int, default 1000
        The number of draws that a propensity is estimated from, 2²⁰ at most.
    delta, horizon, alpha : float, int and float
        δ, n and α in (0, 1] of these two scales; δ = 1/n and α = 1/log n by default.
    explore : float, default 0
        The probability of a uniformly random choice.
    probability : (float, float), optional
        A floor and a ceiling for every arm's probability, such as ``(0.1, 0.9)``. The arm is drawn
        from the nearest distribution within these bounds, so that its propensity is exact.
        The probabilities that are clipped are those of being the best arm, by quadrature
        (:mod:`headstart.rules.best_arm`).

    See Also
    --------
    headstart.theory.thompson_scale : the formula of the two named scales.
    """

    scale: float | str = DEFAULT_SCALE
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
        checks.integer("draws", self.draws, 1, MAX_DRAWS)
        check_confidence(self.delta, self.horizon)
        if self.alpha is not None and not checks.fraction("alpha", self.alpha) > 0.0:
            raise checks.invalid("alpha", "above 0, and 1 or less", self.alpha)

    def index(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Array:
        """xᵀθ̃."""
        theta = belief.draw(rng, self.draw_scale(belief))
        if theta.ndim == 1:
            return contexts @ theta
        return (contexts @ theta[..., None])[..., 0]

    @property
    def stackable(self) -> bool:
        """The draws of a stack are those of its beliefs, each from its own stream."""
        return True

    def compiled(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Any:
        """By compiled loops."""
        arrays = arrays_for_loops(belief, contexts)
        if arrays is None:
            return None
        normals = rng.standard_normal(belief.dim)
        scale, scores = self.draw_scale(belief), np.empty(len(contexts))
        return *loops().choose_thompson(contexts, *arrays, scale, normals, scores), scores

    def loop_form(self) -> LoopForm | None:
        """Draws of a width that is a multiple of R, unless some choices are uniformly random."""
        return self.loop_form_with("thompson", self.scale)

    @property
    def analysis_setting(self) -> tuple[str, str] | None:
        """A named scale."""
        return ("scale", self.scale) if isinstance(self.scale, str) else None

    def draw_scale(self, belief: BaseBelief) -> Any:
        """V, in rewards' units."""
        if not isinstance(self.scale, str):
            return self.scale * belief.noise
        delta = delta_or_default(self.delta, self.horizon)
        v = thompson_scale(self.horizon, delta=delta, dim=belief.dim, alpha=self.alpha)
        return v if self.scale == "paper" else v * belief.noise

    def propensities(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """Estimated: how often each arm wins among ``draws`` draws, plus half a win each.

        The half (Krichevsky and Trofimov's estimate) keeps every propensity above zero, so that a
        logged choice can be weighted by its inverse. With bounds (``probability``) the propensities
        are exact, because the arm is drawn from them.
        """
        is_allowed = arm_mask(contexts[..., 0], allowed)
        if self.probability is not None:
            values = self.best_arm_probabilities(belief, contexts, is_allowed)
            return Propensities(self.with_exploration(values, allowed))
        if (is_allowed.sum(-1) == 1).all():
            return Propensities(is_allowed.astype(float))
        thetas = belief.draw(rng, self.draw_scale(belief), size=self.draws)
        scores = (contexts @ thetas[..., None])[..., 0]
        wins = best_arms(scores, allowed, belief.noise)
        values = win_shares(wins, is_allowed)
        return Propensities(self.with_exploration(values, allowed), self.draws)

    def rank(
        self, belief: BaseBelief, contexts: Array, rng: Rng, count: int, allowed: Allowed = None
    ) -> list[Pick]:
        """One draw ranks all arms; with ``explore`` or bounds, each position has its own."""
        if self.draws_each_position or belief.gaussian_parts() is None:
            return super().rank(belief, contexts, rng, count, allowed)
        return self.rank_by(self.index(belief, contexts, rng), belief.noise, rng, count, allowed)

    @property
    def draws_each_position(self) -> bool:
        """Whether the arms before a position of a ranking say little about θ."""
        return bool(self.explore) or self.probability is not None

    def best_arm_probabilities(
        self, belief: BaseBelief, contexts: Array, is_allowed: Mask
    ) -> Array:
        """The probability of each arm of being the best of a draw, by quadrature.

        Where the belief does not state which Gaussians it draws from, it is the share of
        :data:`MANY_DRAWS` draws, which are the same at every call.
        """
        scale, parts = self.draw_scale(belief), belief.gaussian_parts()
        if parts is None:
            thetas = belief.draw(np.random.default_rng(0), scale, size=MANY_DRAWS)
            wins = best_arms((contexts @ thetas[..., None])[..., 0], is_allowed, belief.noise)
            return (wins / wins.sum(-1, keepdims=True)).mean(0)
        values, scales = np.zeros(is_allowed.shape), np.broadcast_to(scale, is_allowed.shape[:-1])
        for at in np.ndindex(is_allowed.shape[:-1]):
            group = parts[0][at], parts[1][at], parts[2][at]
            values[at] = best_arm_probabilities(
                group, float(scales[at]), contexts[at], is_allowed[at]
            )
        return values

    def rank_propensities(
        self,
        belief: BaseBelief,
        contexts: Array,
        rng: Rng,
        before: Sequence[int],
        allowed: Allowed = None,
    ) -> Propensities:
        """Estimated: how often each arm comes next among ``draws`` draws that rank those before.

        The draws are those of θ given the positions before (:mod:`headstart.rules.ordering`). They
        depend on each other: standard errors are up to twice those of independent draws.
        """
        left = arms_left(contexts, before, allowed)
        lone = left is not None and left.sum() == 1
        parts = belief.gaussian_parts()
        if parts is None or self.draws_each_position or not before or lone:
            return self.propensities(belief, contexts, rng, left)
        scale = self.draw_scale(belief)
        scores = draws_in_order(parts, scale, contexts, rng, before, left, self.draws)
        values = win_shares(best_arms(scores, left, belief.noise), arm_mask(contexts[:, 0], left))
        return Propensities(values, self.draws)


def win_shares(wins: Mask, is_allowed: Mask) -> Array:
    """The share of draws that each arm wins, where half a win is added to each."""
    counts = (wins / wins.sum(-1, keepdims=True)).sum(0) + 0.5 * is_allowed
    return counts / counts.sum(-1, keepdims=True)
