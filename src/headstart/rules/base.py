"""The protocol of every rule.

A rule uses of a belief (:class:`~headstart.model.base.BaseBelief`) the expected reward of a context
(``predict``), its uncertainty (``width``), and a random draw of the parameter (``draw``). Every
rule works on ``(..., K, d)`` contexts: one decision, or many along leading batch axes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart.model.base import BaseBelief
from headstart.records import Array, reset_inherited
from headstart.rules.clipping import Bounds, check_arms
from headstart.rules.ties import Allowed, Rng, arm_mask
from headstart.settings import Settings


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
    """A rule in the form that compiled loops take (:func:`headstart.kernels.compiled.play`).

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

    def forced_rounds(self, rounds: int) -> int:
        """How many of a task's first ``rounds`` rounds are forced; all of a uniform rule."""
        return rounds if self.kind == "uniform" else min(self.forced, rounds)


class Rule(Settings, ABC):
    """An acquisition rule. Rules hold settings, never state.

    A subclass defines :meth:`choose` and :meth:`propensities`; most rules are easier written as an
    :class:`~headstart.rules.Indexed` rule. Everything else has a default.

    See Also
    --------
    headstart.testing.check_rule : checks of a user's own rule.
    """

    #: The floor and the ceiling of every arm's probability, in rules that have this setting.
    probability: Bounds = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reset_inherited(cls, Rule, ("loop_form",))

    @abstractmethod
    def choose(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Pick:
        """Pick a row of ``contexts`` (only where ``allowed``, if given)."""

    @abstractmethod
    def propensities(
        self, belief: BaseBelief, contexts: Array, rng: Rng, allowed: Allowed = None
    ) -> Propensities:
        """The probability with which :meth:`choose` picks each row."""

    def choose_many(
        self, beliefs: Sequence[BaseBelief], contexts: Array, streams: Sequence[Any]
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

    def rank(
        self, belief: BaseBelief, contexts: Array, rng: Rng, count: int, allowed: Allowed = None
    ) -> list[Pick]:
        """Pick ``count`` different rows for one task, best first.

        Each is picked as by :meth:`choose` among the rows that are left. The first is the one that
        :meth:`choose` picks.
        """
        left = arms_left(contexts, (), allowed)
        last = (len(contexts) if left is None else int(left.sum())) + 1 - count
        check_arms(self.bounds, last, f" left at position {count}")
        picks = [self.choose(belief, contexts, rng, allowed)]
        while len(picks) < count:
            left = arms_left(contexts, [pick.arm for pick in picks], allowed)
            picks.append(self.choose(belief, contexts, rng, left))
        return picks

    def rank_propensities(
        self,
        belief: BaseBelief,
        contexts: Array,
        rng: Rng,
        before: Sequence[int],
        allowed: Allowed = None,
    ) -> Propensities:
        """The probability of each row at the next position of :meth:`rank`, given those ``before``.

        A subclass that overrides :meth:`rank` must override this as well.
        """
        return self.propensities(belief, contexts, rng, arms_left(contexts, before, allowed))

    def check_bandit(
        self, prior: Any, transfer: object, noise: float | None, half_life: float | None
    ) -> None:
        """Refuse a bandit for which the rule's guarantee does not hold.

        ``prior`` is what the transfer starts from, ``noise`` is R or ``None`` if it is estimated,
        and ``half_life`` is ``None`` if no reward is forgotten.
        """

    @property
    def analysis_setting(self) -> tuple[str, str] | None:
        """Name and value of a setting that rests on the analysis of linear rewards, if it has one.

        Such a rule is refused where rewards are 0 or 1.
        """
        return None

    def fixed_index(self, belief: BaseBelief, contexts: Array) -> Array | None:
        """The index by which the rule compares arms; ``None`` if there is none, or it is random."""
        return None

    @property
    def bounds(self) -> Bounds:
        """The bounds that hold for every arm's probability."""
        return self.probability

    @property
    def forces(self) -> bool:
        """Whether it may make forced choices, which are uniformly random and are marked."""
        return True

    # A shortcut. It is not inherited by a subclass, which may override what it stands for.

    def loop_form(self) -> LoopForm | None:
        """The rule in the form that compiled loops take; ``None`` if it has none."""
        return None


def arms_left(contexts: Array, before: Sequence[int], allowed: Allowed) -> Allowed:
    """The arms of one task that may be picked after others; as ``allowed`` if there are none."""
    if not len(before):
        return allowed
    left = arm_mask(contexts[..., 0], allowed).copy()
    left[list(before)] = False
    return left
