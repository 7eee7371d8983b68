"""Learning from rounds that were not choices of the bandit: rows, or sums of rows."""

from __future__ import annotations

import functools
import hmac
import json
from typing import Any

import numpy as np

from headstart import checks
from headstart.arrays import max_abs
from headstart.bandit.choices.choice import keyed_digest
from headstart.bandit.files.journal import Journal
from headstart.bandit.ledger.additions import add_evidence
from headstart.bandit.ledger.entries import MAX_ROUNDS
from headstart.bandit.rewards import RewardModel
from headstart.bandit.state import BanditState
from headstart.errors import InputError
from headstart.features.conversion import MAX_VALUE
from headstart.features.schema.encoder import EncodedRows
from headstart.features.schema.rows import item_key
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence, find_fault
from headstart.records import Array

MIN_WEIGHT = 1.0 / MAX_VALUE  # of a round that counts
MAX_MEAN_OF = 1e9  # rewards that one is the mean of: its round is √n times as large as others
MAX_SUM = MAX_VALUE**2  # of the entries of evidence


def observe_rounds(
    state: BanditState,
    name: str,
    contexts: Any,
    rewards: Any,
    weight: Any,
    mean_of: Any = None,
    journal: Any = None,
    place: tuple[int, int] | None = None,
) -> bool:
    """Learn from rounds of a task that were logged elsewhere.

    With a ``journal`` they are recorded first, as a choice of the task would be. ``place`` is the
    epoch and the number of that choice, when they are replayed.
    """
    if journal is not None and not isinstance(journal, Journal):
        raise checks.invalid("journal", "a Journal", journal)
    with state.lock:
        ledger = state.ledger
        entry = ledger.entry(name)
        items = None if ledger.items is None else ledger.items.copy()
        worth = None  # the weights with which rounds of items are evidence

        def learn_items(labels: Any, table: Array, *, write: bool = True) -> None:
            nonlocal worth
            assert items is not None
            count = len(table)
            numbers = ledger.rewards.read_many(read_rewards(rewards, count))
            given = read_weights(weight, count)
            worth = items.learn_rows([name] * count, numbers, given, labels, table, write=write)

        writer = None if items is None else learn_items
        offer = state.reader.read(contexts, writer, distinct=False)
        if items is not None and isinstance(contexts, EncodedRows):
            learn_items(offer.labels, offer.contexts, write=False)
        rows = offer.rows
        values = read_rewards(rewards, len(rows))
        row_weights, counts = read_weights(weight, len(rows)), None
        numbers = ledger.rewards.read_many(values)
        weights = row_weights if worth is None else worth
        if items is not None:
            rows, numbers = items.own.subtract(items.features, rows, numbers)
        seen = rows[row_weights > 0]
        if mean_of is not None:
            counts = read_counts(mean_of, len(rows), ledger.rewards)
            rows, numbers = rounds_of_means(rows, numbers, counts)
        if ledger.decay < 1.0:
            weights = weights * decay_weights(row_weights, ledger.decay)
        if ledger.rewards.needs_belief:
            belief = ledger.belief_for(name, rows)
            evidence = linearized_sums(ledger.rewards, belief, rows, numbers, weights)
        else:
            evidence = weighted_sums(rows, numbers, weights)
        count = int((row_weights > 0).sum())
        if state.is_frozen:
            return False
        if count:
            note = None
            if journal is not None:
                place = ledger.entries.epoch, ledger.count_choices(entry, 1)
                labels = None if items is None else offer.labels
                rounds = offer.contexts, values, row_weights, counts
                line = rounds_entry(state.origin, name, place, *rounds, labels)
                note = functools.partial(journal.append_entry, line)
            steps = [] if items is None else [(ledger.set_items, items)]
            add_evidence(ledger, name, evidence, count, seen, steps, place, note)
        if state.reader.accept(offer, False):
            ledger.set_usual_sizes(state.reader.usual_sizes)
        return True


def rounds_entry(
    origin: bytes,
    name: str,
    place: tuple[int, int],
    contexts: Array,
    rewards: Array,
    weights: Array,
    counts: Array | None,
    labels: Any,
) -> dict[str, Any]:
    """The line of a journal that records rounds, sealed with the bandit's identity."""
    entry = {
        "task": name,
        "epoch": place[0],
        "number": place[1],
        "contexts": contexts.tolist(),
        "rewards": rewards.tolist(),
        "weights": weights.tolist(),
        "mean_of": None if counts is None else counts.tolist(),
        "labels": None if labels is None else [item_key(label) for label in labels],
    }
    return entry | {"seal": seal_of(entry, origin)}


def seal_of(entry: dict[str, Any], origin: bytes) -> str:
    """The keyed digest of a line without its seal."""
    return keyed_digest(json.dumps(entry).encode(), origin).hex()


def replay_entry(state: BanditState, entry: dict[str, Any]) -> bool:
    """Learn from a line of a journal, unless that was done before."""
    if "token" in entry:
        return state.replay(entry["token"], entry["reward"])
    with state.lock:
        rest = {field: value for field, value in entry.items() if field != "seal"}
        seal = entry["seal"].encode(errors="replace")
        if not hmac.compare_digest(seal_of(rest, state.origin).encode(), seal):
            raise InputError("the rounds are damaged, or belong to another bandit than this one")
        name = checks.task_name(entry["task"])
        epoch = checks.integer("epoch", entry["epoch"], 0, 2**64 - 1)
        place = epoch, checks.integer("number", entry["number"], 0, 2**61)
        contexts = checks.finite_array("contexts", entry["contexts"], "rows of numbers", ndim=2)
        is_new = name not in state.ledger.entries
        if state.was_replayed(name, *place):
            return False
        offer: Any = contexts
        if state.reader.encoder is not None:
            offer = EncodedRows(contexts, entry["labels"], entry["labels"] is not None)
        rounds = offer, entry["rewards"], entry["weights"], entry["mean_of"]
        try:
            return observe_rounds(state, name, *rounds, place=place)
        except InputError:
            if is_new:
                state.ledger.entries.remove(name)
            raise


def add_task_evidence(state: BanditState, name: str, evidence: Any) -> bool:
    """Add evidence to a task; a new task is created."""
    with state.lock:
        ledger = state.ledger
        ledger.finish()
        dim = ledger.entries.dim
        want = f"Evidence of one task with {dim} features (the intercept counts as one)"
        if not isinstance(evidence, Evidence):
            raise checks.invalid("evidence", want, evidence)
        if evidence.moment.shape != (dim,):
            raise InputError(f"evidence must be {want}; got Evidence of {evidence.moment.shape}")
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
    if not max_abs(values) <= MAX_VALUE:
        raise InputError(f"rewards must be below {MAX_VALUE:g} in size; got more")
    return values


def read_weights(weight: Any, count: int) -> Array:
    """Weights of ``count`` rounds, 0 or more; 1 unless given."""
    if weight is None:
        return np.ones(count)
    want = f"a number, or {count} of them, 0 or more"
    values = checks.finite_array("weight", weight, want)
    if values.shape not in ((), (count,)):
        raise checks.invalid("weight", want, values)
    if (values < 0).any():
        raise InputError(f"weight must be {want}; got {values.min():g}")
    weights = np.array(np.broadcast_to(values, count), dtype=np.float64)
    tiny = weights[(weights > 0) & (weights < MIN_WEIGHT)]
    if tiny.size:
        raise InputError(f"weight must be 0, or at least {MIN_WEIGHT:g}; got {tiny.min():g}")
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not total <= MAX_ROUNDS:
        raise InputError(f"weight must add up to 2^53 rounds at most; got {total:g}")
    return weights


def read_counts(mean_of: Any, count: int, model: RewardModel) -> Array:
    """Of how many rewards each of ``count`` rewards is the mean, above 0."""
    refuse_means(model)
    want = f"a number, or {count} of them, above 0 and at most {MAX_MEAN_OF:g}"
    values = checks.finite_array("mean_of", mean_of, want)
    usable = (values >= MIN_WEIGHT) & (values <= MAX_MEAN_OF)
    if values.shape not in ((), (count,)) or not usable.all():
        raise checks.invalid("mean_of", want, mean_of)
    return np.array(np.broadcast_to(values, count), dtype=np.float64)


def refuse_means(model: RewardModel) -> None:
    """Refuse means of rewards of 0 and 1, which are their shares."""
    if model.needs_belief:
        raise InputError(
            "mean_of must be left out where rewards are 0 or 1 (binary): of n rewards of which k "
            "are 1, write a row with reward 1 and weight k, and one with reward 0 and weight n − k"
        )


def rounds_of_means(rows: Array, rewards: Array, counts: Array) -> tuple[Array, Array]:
    """The rounds that stand for means of n rewards of the same context.

    The noise of a mean is R/√n. Of √n times the size, it has the noise R, as any other round.
    """
    root = np.sqrt(counts)
    return rows * root[:, None], rewards * root


def decay_weights(weights: Array, decay: float) -> Array:
    """Decay^(how many rounds of positive weight come later)."""
    has_weight = weights > 0
    later = has_weight.sum() - has_weight.cumsum()
    return decay**later


def weighted_sums(rows: Array, rewards: Array, weights: Array) -> Evidence:
    """The evidence of rounds with weights.

    A round (x, r) of weight w counts as w rounds: w x xᵀ, w r x, w and w r² are added.
    """
    has_weight = weights > 0
    root = np.sqrt(weights[has_weight])
    contexts, targets = rows[has_weight] * root[:, None], rewards[has_weight] * root
    largest = max(max_abs(contexts), max_abs(targets))
    if not largest <= MAX_VALUE:
        raise InputError(f"weight must leave weighted rounds below {MAX_VALUE:g} in size")
    return sums_of_rounds(contexts, targets, weights[has_weight])


def linearized_sums(
    rewards: RewardModel, belief: BaseBelief, rows: Array, values: Array, weights: Array
) -> Evidence:
    """The evidence of the rounds of a linear model that stand for rounds with weights, in order."""
    places = np.flatnonzero(weights > 0)
    contexts, targets = np.empty((len(places), rows.shape[1])), np.empty(len(places))
    for place, at in enumerate(places):
        weight = float(weights[at])
        context, target = rewards.linearize(belief, rows[at], float(values[at]), weight)
        belief = belief.update(context, target)
        contexts[place], targets[place] = context, target
    return sums_of_rounds(contexts, targets, weights[places])


def sums_of_rounds(contexts: Array, targets: Array, weights: Array) -> Evidence:
    """The evidence of rounds that were multiplied by the roots of their weights."""
    sums = Evidence.zero(contexts.shape[1]).add_many(contexts, targets)
    return Evidence.unchecked(sums.gram, sums.moment, float(weights.sum()), sums.squares, None)
