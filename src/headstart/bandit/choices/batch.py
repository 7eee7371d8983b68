"""Many choices at once: of many tasks in one call, or several of one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.choices.choice import Choice
from headstart.bandit.choices.decision import Decision, make_ranking
from headstart.errors import InputError
from headstart.features.conversion import arms_not_excluded
from headstart.features.reader import Offer
from headstart.random import Stream
from headstart.records import Array
from headstart.rules import Pick, Rule
from headstart.rules.clipping import check_arms

if TYPE_CHECKING:
    from headstart.bandit.state import BanditState

__all__ = ["Choices", "check_k", "choose_many", "pair_up"]


class Choices(Sequence[Choice]):
    """The choices of several tasks: a sequence of :class:`Choice`, each made on first access.

    Attributes
    ----------
    arms : ndarray of shape (n,)
        The row that each task picked.
    scores : ndarray of shape (n,)
        The rule's index of that row.
    tasks : sequence of str
        The tasks' ids, in the order they were passed.
    """

    def __init__(
        self,
        arms: npt.NDArray[np.intp],
        scores: Array,
        tasks: Sequence[str],
        make: Callable[[int], Choice],
    ) -> None:
        self.arms = arms
        self.scores = scores
        self.tasks = tasks
        self._make = make
        self._cache: dict[int, Choice] = {}

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, place: int) -> Choice: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Choice]: ...
    def __getitem__(self, place: int | slice) -> Choice | Sequence[Choice]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        if at not in self._cache:
            self._cache[at] = self._make(at)
        return self._cache[at]

    def __repr__(self) -> str:
        return f"Choices of {len(self)} tasks"


def choose_many(
    state: BanditState, names: list[str], contexts: Any, exclude: Any = None, k: Any = None
) -> Choices | list[list[Choice]]:
    """Choose an arm for each of several tasks, or with ``k`` a ranking of ``k`` arms."""
    with state.lock:
        ledger, rule, is_frozen = state.ledger, state.rule, state.is_frozen
        ledger.finish()
        writers = [ledger.item_writer(name) for name in names]
        offer = state.reader.read_many(contexts, len(names), writers)
        allowed = allowed_by_task(exclude, offer, len(names))
        tables = offer.rows
        if k is not None:
            for table, mask in zip(tables, allowed, strict=True):
                check_k(k, len(table), mask, ledger.choice_window)
            k = checks.integer("k", k, 1)
        count = 1 if k is None else k
        if rule.bounds is not None:
            for at, (table, mask) in enumerate(zip(tables, allowed, strict=True)):
                check_bounds(rule, len(table), mask, count, f" of contexts[{at}]")
        for name in names:
            entry = ledger.entries.get(name)
            if entry is not None and entry.cached is None:
                ledger.check_evidence(name, ledger.entries.evidence(name))
        for name in names:
            ledger.entries.open(name)
        beliefs: list[Any] = []
        streams: list[Any] = []
        numbers: list[int] = []
        # In this order: using or evicting a task changes the prior of the others.
        for name, rows in zip(names, tables, strict=True):
            entry = ledger.entries[name]
            prepared_choice = ledger.prepare_choice(name, rows, learn_units=not is_frozen)
            key = state.stream_key(name, entry.cached)
            beliefs.append(prepared_choice[0])
            streams.append(Stream(state.streams, key, entry.next_number - entry.first_number))
            numbers.append(entry.next_number)
            ledger.record_belief(name, prepared_choice, key, is_frozen)
            ledger.count_choices(entry, count)
        if k is None:
            picks_by_task = decide_many(rule, beliefs, tables, streams, allowed)
        else:
            decisions = zip(beliefs, tables, streams, allowed, strict=True)
            rankings = [
                rule.rank(belief, rows, stream, k, mask) for belief, rows, stream, mask in decisions
            ]
        for at, name in enumerate(names if offer.labels else ()):
            ledger.count_offer(name, offer.labels[at], allowed[at], is_frozen=is_frozen)
        if state.reader.accept(offer, is_frozen):
            ledger.set_usual_sizes(state.reader.usual_sizes)
        epoch = ledger.entries.epoch

    def ranking(at: int, picks: Sequence[Pick]) -> list[Choice]:
        labels = offer.labels and offer.labels[at]
        decision = Decision(rule, beliefs[at], tables[at], streams[at], allowed[at], labels)
        return make_ranking(
            state, decision, picks, offer.contexts[at], (names[at], numbers[at], epoch)
        )

    if k is not None:
        return [ranking(at, picks) for at, picks in enumerate(rankings)]
    arms, indices, forced = picks_by_task
    scores = ledger.rewards.score(indices)
    arms.flags.writeable = scores.flags.writeable = False  # choices are made from them

    def make(at: int) -> Choice:
        return ranking(at, [Pick(int(arms[at]), float(indices[at]), forced[at])])[0]

    return Choices(arms, scores, names, make)


def allowed_by_task(exclude: Any, offer: Offer, tasks: int) -> list[Any]:
    """Which arms each of several tasks may pick: a mask, or ``None`` for all of them."""
    if exclude is None:
        return [None] * tasks
    want = f"a sequence of {tasks}, for each task its excluded arms or None"
    if not isinstance(exclude, (Sequence, np.ndarray)):
        raise checks.invalid("exclude", want, exclude)
    exclude = checks.entries("exclude", exclude, want)
    if len(exclude) != tasks:
        raise InputError(f"exclude must be {want}; got {len(exclude)}")
    allowed = []
    for at, (rows, table) in enumerate(zip(exclude, offer.rows, strict=True)):
        with checks.errors_at("exclude", at):
            allowed.append(arms_not_excluded(rows, len(table), offer.ids(at)))
    return allowed


def check_bounds(rule: Rule, arms: int, allowed: Any, positions: int, where: str = "") -> None:
    """Refuse a number of arms for which a rule cannot keep the bounds on their probabilities.

    They must hold at the last of ``positions`` too, where fewer arms are left.
    """
    if rule.bounds is not None:
        count = arms if allowed is None else int(allowed.sum())
        where = where if positions == 1 else f" left at position {positions}"
        check_arms(rule.bounds, count + 1 - positions, where)


def decide_many(
    rule: Rule, beliefs: Sequence[Any], tables: Any, streams: Sequence[Any], allowed: Sequence[Any]
) -> Pick:
    """One decision for each of several tasks, those with equally many arms at a time.

    Arms that may not be picked are left out of the tables, which leaves the decisions the same.
    """
    if isinstance(tables, np.ndarray) and not any(mask is not None for mask in allowed):
        return rule.choose_many(beliefs, tables, streams)
    arms_by_task = [
        np.arange(len(table)) if mask is None else mask.nonzero()[0]
        for table, mask in zip(tables, allowed, strict=True)
    ]
    arms, scores = np.empty(len(beliefs), dtype=np.intp), np.empty(len(beliefs))
    forced = np.zeros(len(beliefs), dtype=bool)
    counts = np.array([len(rows) for rows in arms_by_task])
    for count in np.unique(counts):
        places = np.flatnonzero(counts == count).tolist()
        pick = rule.choose_many(
            [beliefs[at] for at in places],
            np.stack([tables[at][arms_by_task[at]] for at in places]),
            [streams[at] for at in places],
        )
        arms[places] = [
            arms_by_task[at][arm] for at, arm in zip(places, pick.arm.tolist(), strict=True)
        ]
        scores[places], forced[places] = pick.score, pick.forced
    return Pick(arms, scores, forced)


def check_k(k: Any, arms: int, allowed: Any, window: int) -> int:
    """``k``, refused if there are fewer arms, or if the window holds fewer choices."""
    count = arms if allowed is None else int(allowed.sum())
    if checks.integer("k", k, 1) > count:
        raise InputError(f"k must be at most the {count} arms that may be picked; got {k}")
    if k > window:
        raise InputError(f"k must be at most choice_window, which is {window}; got {k}")
    return int(k)


def pair_up(choices: Any, rewards: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Choices and rewards as lists of the same length."""
    sequence = isinstance(choices, (list, tuple, Sequence)) and not isinstance(choices, bytes)
    if not sequence and not (isinstance(choices, np.ndarray) and choices.ndim == 1):
        raise checks.invalid("choice", "a Choice, a token, or a sequence of these", choices)
    try:
        values = list(rewards)
    except TypeError:
        raise checks.invalid("reward", f"{len(choices)} numbers, one per choice", rewards) from None
    if len(values) != len(choices):
        raise InputError(
            f"reward must hold as many numbers as there are choices, {len(choices)}; "
            f"got {len(values)}"
        )
    return list(choices), values
