"""A decision: the belief, the rule and the rows that choices and their propensities come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.bandit.choices.choice import Choice
from headstart.random import Stream
from headstart.records import Array, draft_class, set_read_only
from headstart.rules import Pick, Propensities, Rule

if TYPE_CHECKING:
    from headstart.bandit.state import BanditState


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Decision:
    """What a choice was made from. Calling it returns the propensities of the choice.

    Attributes
    ----------
    rule, belief, table
        The rule, the belief, and the arms as the model sees them.
    stream
        Where the choice's random numbers come from.
    allowed
        The arms that could be picked; ``None`` for all.
    labels
        The names of the arms; ``None`` if they have only numbers.
    before
        The arms that were picked for the positions before, in a ranking.
    """

    rule: Rule
    belief: Any
    table: Array
    stream: Stream
    allowed: Any
    labels: Sequence[Any] | None
    before: Sequence[int] = ()

    def after(self, arms: Sequence[int]) -> Decision:
        """The same in a ranking, after some arms were picked."""
        return dataclasses.replace(self, before=arms)

    def __call__(self) -> Propensities:
        """The propensities. Their random numbers are separate: no decision depends on them."""
        stream = self.stream.apart()
        if self.before:
            rank = self.rule.rank_propensities
            return rank(self.belief, self.table, stream, self.before, self.allowed)
        return self.rule.propensities(self.belief, self.table, stream, self.allowed)

    def label(self, arm: int) -> Any:
        """The name of an arm: its label, or else its number."""
        return self.labels[arm] if self.labels else arm


DRAFT = draft_class(Choice)


def make_choice(
    state: BanditState,
    decision: Decision,
    pick: Pick,
    contexts: Array,
    place: tuple[str, int, int],
) -> Choice:
    """The choice of an arm that a rule has picked.

    Parameters
    ----------
    state
        The bandit.
    decision
        What the choice is made from.
    pick
        The arm.
    contexts
        The contexts as they were passed.
    place
        The task, the number of the choice, and the epoch.
    """
    arm, index, forced = pick
    task, number, epoch = place
    row = decision.table[arm].copy()
    row.setflags(False)  # read-only; the keyword (write=) would take longer than the call
    features, score = state.reader.features, state.ledger.rewards.score(index)
    if features.units is None:
        context = row[: features.context_dim]
    else:  # as it was given
        context = set_read_only(contexts[arm].copy())
    label = decision.labels[arm] if decision.labels else arm
    draft: Any = DRAFT(
        arm, score, task, number, bool(forced), context, state.origin, decision, epoch, label
    )
    draft.row, draft.__class__ = row, Choice
    choice: Choice = draft
    return choice


def make_ranking(
    state: BanditState,
    decision: Decision,
    picks: Sequence[Pick],
    contexts: Array,
    place: tuple[str, int, int],
) -> list[Choice]:
    """The choices of a ranking, each given those before it (:func:`make_choice`)."""
    task, number, epoch = place
    choices: list[Choice] = []
    for pick in picks:
        later = decision.after([choice.arm for choice in choices])
        place = task, number + len(choices), epoch
        choices.append(make_choice(state, later, pick, contexts, place))
    return choices
