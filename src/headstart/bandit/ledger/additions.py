"""Evidence that is added to a task at once: rounds that were not choices of the bandit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headstart.bandit.ledger.changes import Step
from headstart.bandit.ledger.entries import MAX_REWARDS, CachedTask
from headstart.bandit.ledger.ledger import Ledger
from headstart.bandit.ledger.optional_items import with_known_coefficient
from headstart.bandit.task_belief import refresh_count
from headstart.errors import FileError, InputError
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence


def add_evidence(
    ledger: Ledger,
    name: str,
    evidence: Evidence,
    count: int,
    rows: Any,
    more_steps: Sequence[Step] = (),
    place: tuple[int, int] | None = None,
    note: Callable[[], None] | None = None,
) -> None:
    """Add evidence of ``count`` rewards to a task: all of it, or nothing.

    A running task that has no belief takes one, as when it chooses, so that it counts among the
    running tasks. ``rows`` are the contexts as the model sees them, which may determine units of
    features; ``None`` if they are not known. ``more_steps`` are part of the change. With decay, the
    earlier evidence counts less by ``count`` rewards. ``place`` is the epoch and the number of the
    choice that it counts as, which is then learned from. ``note`` is called first, and more than
    once if it is interrupted; nothing is added if it raises a ``FileError``.
    """
    if ledger.entries.reward_count + count > MAX_REWARDS:
        raise InputError(f"the bandit must have {MAX_REWARDS} rewards at most; it would have more")
    entry, closed = ledger.entries[name], name in ledger.prior_state.closed
    if entry.cached is None and not closed:
        if rows is None:
            ledger.cache_belief(name, *ledger.compute_belief(name))
        else:
            belief, alone, offered = ledger.prepare_choice(name, rows, learn_units=True)
            if offered is not None:
                ledger.adopt_offer(*offered)
            ledger.cache_belief(name, belief, alone)
    total = ledger.entries.evidence(name).discount(ledger.decay**count)
    total = total + with_forced(evidence, ledger.entries.keeps_forced)
    rewards = entry.reward_count + count
    before, cached = entry.cached, None
    if before is not None:
        belief = updated_belief(ledger, before, total, rewards)
        cached = before._replace(evidence=total, pending=(), belief=belief)
    packed = total.pack() if cached is None else None
    windows: tuple[Any, ...] = entry.windows
    if place is not None:
        windows = entry.windows_after(*place, ledger.choice_window)
    update = entry, packed, cached, rewards, windows, ledger.entries.reward_count + count
    steps = ledger.prior_state.steps_to_change(name) if closed else []
    steps = [(ledger.entries.put_round, update), *steps, *more_steps]
    failures: list[FileError] = []
    if note is not None:
        steps = [(execute_if_journaled, note, steps, failures)]
    ledger.changes.commit(*steps)
    if failures:
        raise failures[0]
    if cached is not None and refresh_count(rewards) > refresh_count(rewards - count):
        ledger.refresh_if_grown(name, cached)


def execute_if_journaled(
    note: Callable[[], None], steps: Sequence[Step], failures: list[FileError]
) -> None:
    """Note a change and execute its steps, unless it cannot be noted."""
    if not failures:
        try:
            note()
        except FileError as error:
            failures.append(error)
            return
        for function, *arguments in steps:
            function(*arguments)


def updated_belief(
    ledger: Ledger, task: CachedTask, evidence: Evidence, rewards: int
) -> BaseBelief:
    """The belief of a cached task, from its prior and all its evidence."""
    belief: BaseBelief = task.belief.prior.belief(evidence)
    if task.alone:
        belief = ledger.lone_task(ledger.prior_state).belief(belief, evidence)
    belief = with_known_coefficient(ledger.items, belief)
    return belief if ledger.decay == 1.0 else belief.with_rounds(float(rewards))


def with_forced(evidence: Evidence, keeps_forced: bool) -> Evidence:
    """Evidence with forced rounds apart if they are kept, and without otherwise.

    Where it does not say which rounds were forced, none was.
    """
    if not keeps_forced:
        return evidence.replace(forced=None)
    if evidence.forced is None:
        return evidence.replace(forced=Evidence.zero(evidence.dim))
    return evidence
