"""What choices are made from, and the choices that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headstart.bandit.choice import Choice
from headstart.random import Streams
from headstart.records import Array, set_read_only
from headstart.rules import Pick, Propensities, Rule

__all__ = ["Decision", "make_choices"]


class Decision:
    """What a choice was made from; called, it gives the propensities of the choice.

    Attributes
    ----------
    rule, belief, table
        The rule, the belief, and the arms as the model sees them.
    seed, key, position
        Where the choice's random numbers come from.
    allowed
        The arms that could be picked; ``None`` for all.
    before
        The arms that were picked for the positions before, in a ranking.
    labels
        What the arms are called; ``None`` where they have only numbers.
    """

    __slots__ = (
        "allowed",
        "before",
        "belief",
        "key",
        "labels",
        "position",
        "rule",
        "seed",
        "table",
    )

    def __init__(
        self,
        rule: Rule,
        belief: Any,
        table: Array,
        seed: int,
        key: Any,
        position: int,
        allowed: Any,
        before: Sequence[int] = (),
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.rule, self.belief, self.table = rule, belief, table
        self.seed, self.key, self.position = seed, key, position
        self.allowed, self.before, self.labels = allowed, before, labels

    def __call__(self) -> Propensities:
        """The propensities, by random numbers of their own: no decision depends on it."""
        stream = Streams(self.seed).at(self.key, self.position, stream=1)
        if self.before:
            rank = self.rule.rank_propensities
            return rank(self.belief, self.table, stream, self.before, self.allowed)
        return self.rule.propensities(self.belief, self.table, stream, self.allowed)

    def label(self, arm: int) -> Any:
        """What an arm is called: its number unless it has a label."""
        return self.labels[arm] if self.labels else arm


def make_choices(
    decision: Decision,
    picks: Sequence[Pick],
    given: Array,
    which_task: tuple[str, int, int],
    key: bytes,
    score: Callable[[Any], Any],
) -> list[Choice]:
    """The choices of one task, of which each is made after those before it.

    Parameters
    ----------
    decision
        What the first was made from.
    picks
        The arms.
    given
        The contexts as they were passed.
    which_task
        The task, the number of its first choice, and the epoch.
    key
        What marks the choices of the bandit.
    score
        What the index of an arm is in the units of rewards.
    """
    name, number, epoch = which_task
    d, choices = decision, []
    arms: tuple[int, ...] = ()
    for arm, index, forced in picks:
        if arms:
            place = (d.seed, d.key, d.position, d.allowed, arms, d.labels)
            decision = Decision(d.rule, d.belief, d.table, *place)
        context = set_read_only(given[arm].copy())
        row = set_read_only(d.table[arm].copy())
        which = name, number + len(arms), bool(forced)
        choices.append(
            Choice(arm, score(index), *which, context, key, decision, epoch, row, d.label(arm))
        )
        arms = (*arms, arm)
    return choices
