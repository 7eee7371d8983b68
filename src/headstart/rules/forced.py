"""Uniformly random choices: always, or for the first rounds of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.model.base import BaseBelief
from headstart.records import Array
from headstart.rules.base import LoopForm, Pick, Propensities, Rule
from headstart.rules.clipping import Bounds, check_arms, checked_bounds
from headstart.rules.ties import Allowed, Mask, Rng, arm_mask, draw_arm, select_by_uniform


@dataclasses.dataclass(frozen=True, repr=False)
class Uniform(Rule):
    """Any arm, with equal probability; the score is the expected reward.

    With ``probability``, a number of arms K is refused if 1/K is outside these bounds.
    """

    probability: Bounds = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_bounds(self.probability))

    def choose(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick any allowed arm."""
        scores = belief.predict(contexts)
        is_allowed = self.check_allowed(arm_mask(scores, allowed))
        if is_allowed.ndim == 1:
            arm = draw_arm(is_allowed, rng)
            return Pick(arm, float(scores[arm]), True)
        arms = select_by_uniform(is_allowed, rng.random(is_allowed.shape[:-1]))
        arm_scores = np.take_along_axis(scores, arms[..., None], -1)[..., 0]
        return Pick(arms, arm_scores, np.ones(arms.shape, dtype=bool))

    def propensities(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """Exact: one over the number of allowed arms."""
        is_allowed = self.check_allowed(arm_mask(contexts[..., 0], allowed))
        return Propensities(is_allowed / is_allowed.sum(-1, keepdims=True))

    def check_allowed(self, is_allowed: Mask) -> Mask:
        """The arms that may be picked, refused if there are too many or too few for the bounds."""
        if self.probability is not None:
            for count in np.unique(is_allowed.sum(-1)).tolist():
                check_arms(self.probability, count)
        return is_allowed

    def loop_form(self) -> LoopForm | None:
        """Uniform in every round."""
        return None if self.probability else LoopForm("uniform", 0.0)


@dataclasses.dataclass(frozen=True, repr=False)
class Forced(Rule):
    """Uniformly random until ``rounds`` rewards have been seen, then another rule.

    The forced choices are marked, so that their evidence can be kept apart: an estimate from random
    rounds alone has no bias from choosing (:class:`~headstart.transfer.Gaussian`). Bounds on the
    probability of every arm (``probability``) are those of ``then``, unless others are given here.
    """

    rounds: int
    then: Rule
    probability: Bounds = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_bounds(self.probability))
        checks.integer("rounds", self.rounds)
        if not isinstance(self.then, Rule):
            raise checks.invalid("then", "a rule", self.then)
        if self.probability is not None and not has_bounds(self.then):
            raise checks.invalid("then", "a rule that has a probability", self.then)

    def choose(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick any allowed arm while forced, else as ``then`` does."""
        forced = np.asarray(belief.rounds) < self.rounds
        if forced.ndim == 0 or forced.all() or not forced.any():
            rule = self.phases[0 if forced.all() else 1]
            return rule.choose(belief, contexts, rng, allowed)
        free, later = (rule.choose(belief, contexts, rng, allowed) for rule in self.phases)
        return Pick(*(np.where(forced, a, b) for a, b in zip(free, later, strict=True)))

    def propensities(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """Uniform while forced, else what ``then`` says."""
        forced = np.asarray(belief.rounds) < self.rounds
        first, then = self.phases
        uniform = first.propensities(belief, contexts, rng, allowed)
        if forced.all():
            return uniform
        later = then.propensities(belief, contexts, rng, allowed)
        return Propensities(np.where(forced[..., None], uniform.values, later.values), later.draws)

    def rank(
        self, belief: BaseBelief, contexts: Array, rng: Rng, count: int, allowed: Allowed = None
    ) -> list[Pick]:
        """Any allowed arms in any order while forced, else as ``then`` does."""
        return self.current_rule(belief).rank(belief, contexts, rng, count, allowed)

    def rank_propensities(
        self,
        belief: BaseBelief,
        contexts: Array,
        rng: Rng,
        before: Sequence[int],
        allowed: Allowed = None,
    ) -> Propensities:
        """Uniform while forced, else what ``then`` says."""
        return self.current_rule(belief).rank_propensities(belief, contexts, rng, before, allowed)

    def fixed_index(self, belief: BaseBelief, contexts: Array) -> Array | None:
        """That of ``then``; none while forced."""
        return self.current_rule(belief).fixed_index(belief, contexts)

    def current_rule(self, belief: BaseBelief) -> Rule:
        """The rule that chooses now for one task."""
        return self.phases[0 if belief.rounds < self.rounds else 1]

    @property
    def bounds(self) -> Bounds:
        """Its own, or those of ``then``: they hold for forced choices too."""
        return self.then.bounds if self.probability is None else self.probability

    @property
    def phases(self) -> tuple[Rule, Rule]:
        """The rule of the forced rounds and the rule of the others."""
        then: Any = self.then
        if self.probability is not None:
            then = dataclasses.replace(then, probability=self.probability)
        return Uniform(probability=self.bounds), then

    def check_bandit(
        self, prior: Any, transfer: object, noise: float | None, half_life: float | None
    ) -> None:
        """Refuse what ``then`` refuses."""
        self.then.check_bandit(prior, transfer, noise, half_life)

    @property
    def analysis_setting(self) -> tuple[str, str] | None:
        """That of ``then``."""
        return self.then.analysis_setting

    def loop_form(self) -> LoopForm | None:
        """That of ``then``, unless it has forced rounds of its own."""
        later = self.then.loop_form()
        if later is None or later.forced or self.bounds:
            return None
        return later._replace(forced=self.rounds)


def has_bounds(rule: Rule) -> bool:
    """Whether ``probability`` is a setting of a rule."""
    return "probability" in getattr(rule, "__dataclass_fields__", {})
