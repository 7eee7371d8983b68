"""Rules as compiled loops know them: a kind, an amount, and forced rounds first."""

from __future__ import annotations

from typing import NamedTuple

from headstart.rules import UCB, Forced, Greedy, Rule, Thompson, Uniform

__all__ = ["KINDS", "PlainRule", "plain_rule"]


#: The kinds of plain rules, as compiled loops number them.
KINDS = {"ucb": 0, "thompson": 1, "uniform": 2}


class PlainRule(NamedTuple):
    """``kind`` is ucb, thompson or uniform; ``amount`` is in units of R."""

    kind: str
    amount: float
    forced: int = 0

    def forced_of(self, rounds: int) -> int:
        """How many of so many rounds are forced, from the first on: all, if it is uniform."""
        return rounds if self.kind == "uniform" else min(self.forced, rounds)


def plain_rule(rule: Rule) -> PlainRule | None:
    """What a rule comes down to; ``None`` for one that only its own code can follow.

    >>> plain_rule(Forced(10, Thompson(0.5)))
    PlainRule(kind='thompson', amount=0.5, forced=10)
    """
    if type(rule) is Forced:
        later = plain_rule(rule.then)
        return None if later is None or later.forced else later._replace(forced=rule.rounds)
    if type(rule) is Uniform:
        return PlainRule("uniform", 0.0)
    if type(rule) is Greedy and not rule.explore:
        return PlainRule("ucb", 0.0)
    if type(rule) is UCB and not rule.explore and not isinstance(rule.radius, str):
        return PlainRule("ucb", float(rule.radius))
    if type(rule) is Thompson and not rule.explore and not isinstance(rule.scale, str):
        return PlainRule("thompson", float(rule.scale))
    return None
