"""Learning from rounds that were not choices of the bandit: rows, or sums of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import checks
from headstart.bandit.ledger.additions import add_evidence
from headstart.errors import InputError
from headstart.features.conversion import MAX_VALUE
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence, find_fault
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.bandit.rewards import RewardModel
    from headstart.bandit.state import BanditState

__all__ = [
    "add_task_evidence",
    "decay_weights",
    "linearized_sums",
    "observe_rounds",
    "read_rewards",
    "read_weights",
    "weighted_sums",
]

MAX_SUM = MAX_VALUE**2  # of the entries of evidence
MAX_ROUNDS = 2**53  # of evidence: beyond, a number cannot count one more


def observe_rounds(state: BanditState, name: str, contexts: Any, rewards: Any, weight: Any) -> bool:
    """Learn from rounds of a task that were logged elsewhere."""
    with state.lock:
        ledger = state.ledger
        ledger.entry(name)
        items = None if ledger.items is None else ledger.items.copy()

        def learn_items(labels: Sequence[Any], table: Array) -> None:
            assert items is not None
            count = len(table)
            numbers = ledger.rewards.read_many(read_rewards(rewards, count))
            items.learn_rows([name] * count, numbers, read_weights(weight, count), labels, table)

        writer = None if items is None else learn_items
        offer = state.reader.read(contexts, writer, distinct=False)
        rows = offer.rows
        values = ledger.rewards.read_many(read_rewards(rewards, len(rows)))
        weights = read_weights(weight, len(rows))
        if ledger.decay < 1.0:
            weights = weights * decay_weights(weights, ledger.decay)
        if ledger.rewards.needs_belief:
            belief = ledger.belief_for(name, rows)
            evidence, count = linearized_sums(ledger.rewards, belief, rows, values, weights)
        else:
            evidence, count = weighted_sums(rows, values, weights)
        if state.is_frozen:
            return False
        if count:
            steps = [] if items is None else [(setattr, ledger, "items", items)]
            add_evidence(ledger, name, evidence, count, rows[weights > 0], steps)
        if state.reader.accept(offer, is_frozen=False):
            ledger.set_usual_sizes(state.reader.usual_sizes)
        return True


def add_task_evidence(state: BanditState, name: str, evidence: Any) -> bool:
    """Add evidence to a task, which is made if it is new."""
    with state.lock:
        ledger = state.ledger
        ledger.finish()
        dim = ledger.entries.dim
        want = f"Evidence of one task with {dim} features (the intercept counts as one)"
        if not isinstance(evidence, Evidence) or evidence.moment.shape != (dim,):
            raise checks.refuse("evidence", want, getattr(evidence, "moment", evidence))
        fault = find_fault(evidence.pack()[None], dim, MAX_SUM)
        if fault is not None or not evidence.rounds <= MAX_ROUNDS:
            reason = "more than 2^53 rounds" if fault is None else fault[1]
            raise InputError(f"evidence must be sums of rounds; got {reason}")
        if state.is_frozen:
            return False
        ledger.entries.open(name)
        if evidence.rounds:
            add_evidence(ledger, name, evidence, max(round(evidence.rounds), 1), None)
        return True


def read_rewards(rewards: Any, count: int) -> Array:
    """Rewards as ``count`` finite numbers."""
    want = f"{count} numbers, one per row of contexts"
    values = checks.finite_array("rewards", rewards, want, ndim=1).astype(np.float64)
    if len(values) != count:
        raise InputError(f"rewards must be {want}; got {len(values)}")
    if not np.abs(values).max(initial=0.0) <= MAX_VALUE:
        raise InputError(f"rewards must be below {MAX_VALUE:g} in size; got more")
    return values


def read_weights(weight: Any, count: int) -> Array:
    """Weights of ``count`` rounds, 0 or more; 1 unless given."""
    if weight is None:
        return np.ones(count)
    want = f"a number, or {count} of them, 0 or more"
    values = checks.finite_array("weight", weight, want)
    if values.shape not in ((), (count,)):
        raise checks.refuse("weight", want, values)
    if (values < 0).any():
        raise InputError(f"weight must be {want}; got {values.min():g}")
    return np.array(np.broadcast_to(values, count), dtype=np.float64)


def decay_weights(weights: Array, decay: float) -> Array:
    """Decay^(how many rounds of positive weight come later)."""
    has_weight = weights > 0
    later = has_weight.sum() - has_weight.cumsum()
    factors: Array = decay**later
    return factors


def weighted_sums(rows: Array, rewards: Array, weights: Array) -> tuple[Evidence, int]:
    """The evidence of rounds with weights, and how many have a positive one.

    A round (x, r) of weight w counts as w rounds: w x xᵀ, w r x, w and w r² are added.
    """
    has_weight = weights > 0
    root = np.sqrt(weights[has_weight])
    contexts, targets = rows[has_weight] * root[:, None], rewards[has_weight] * root
    largest = max(np.abs(contexts).max(initial=0.0), np.abs(targets).max(initial=0.0))
    if not largest <= MAX_VALUE:
        raise InputError(f"weight must leave weighted rounds below {MAX_VALUE:g} in size")
    sums = Evidence.zero(rows.shape[1]).add_many(contexts, targets)
    rounds = float(weights[has_weight].sum())
    return Evidence.unchecked(sums.gram, sums.moment, rounds, sums.squares, None), len(root)


def linearized_sums(
    rewards: RewardModel, belief: BaseBelief, rows: Array, values: Array, weights: Array
) -> tuple[Evidence, int]:
    """The evidence of the rounds of a linear model that stand for rounds with weights, in order.

    Also how many have a positive weight.
    """
    places = np.flatnonzero(weights > 0)
    contexts, targets = np.empty((len(places), rows.shape[1])), np.empty(len(places))
    for place, at in enumerate(places):
        weight = float(weights[at])
        context, target = rewards.linearize(belief, rows[at], float(values[at]), weight)
        belief = belief.update(context, target)
        contexts[place], targets[place] = context, target
    sums = Evidence.zero(rows.shape[1]).add_many(contexts, targets)
    rounds = float(weights[places].sum())
    return Evidence.unchecked(sums.gram, sums.moment, rounds, sums.squares, None), len(places)
