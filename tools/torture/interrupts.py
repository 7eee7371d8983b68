"""Exceptions that come from outside: Ctrl-C, a signal's handler, a time limit.

Every step is done by two bandits that were loaded from one file: in one it is interrupted at a
random line (or, in every fourth case, by a signal at a random time) and tried again, in the other
it is not. Afterwards both have counted the same rewards, and what the interrupted one believes of
a task is what its prior and its evidence give.
"""

from __future__ import annotations

import functools
import linecache
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from common import DIM, Case, Changed, fresh, inner, state

import headstart as hs
from headstart.model.prior import ONE_NOISE

SHARE = 2.5
PACKAGE = str(Path(hs.__file__).parent) + os.sep


class TimeLimit(Exception):
    """What a handler of SIGALRM may raise."""


@functools.cache
def leaves(file: str, line: int) -> bool:
    """Whether a line may be the end of a with statement, or a try, where no signal is handled.

    Neither calls anything. CPython's table of handlers has a gap at ``try:``, through which only a
    tracer's exception can leave an enclosing with statement without releasing its lock.
    """
    return linecache.getline(file, line).strip().startswith(("with", "try:"))


class Tracer:
    """Counts the lines of the package that are run, and raises an exception at one of them."""

    def __init__(self, line: int | None = None, error: type[BaseException] = TimeLimit) -> None:
        self.line, self.error, self.count, self.at = line, error, 0, ""

    def __enter__(self) -> Tracer:
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_) -> None:
        sys.settrace(None)

    def trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            file, line = frame.f_code.co_filename, frame.f_lineno
            if not leaves(file, line):
                self.count += 1
                if self.count == self.line:
                    source = linecache.getline(file, line).strip()
                    self.at = f"{Path(file).name}:{line} ({source})"
                    raise self.error("interrupted")
        return self.trace


def attack(case: Case) -> None:
    bandit = fresh(case, binary=False)
    (case.folder / "twin").write_bytes(state(bandit, case.folder))
    twin = hs.load(case.folder / "twin")
    error = case.pick([KeyboardInterrupt, TimeLimit])
    by_signal = case.number % 4 == 3 and threading.current_thread() is threading.main_thread()
    lost: list[str] = []
    for step in steps(case):
        begin = time.perf_counter()
        with Tracer() as seen:
            step(twin)
        taken = time.perf_counter() - begin
        before = len(lost)
        try:
            if by_signal:
                signalled(lambda: step(bandit), case.rng.uniform(0.0, taken / 4), error)  # noqa: B023
            else:
                with Tracer(int(case.rng.integers(1, 2 * seen.count + 2)), error) as told:
                    step(bandit)
        except error:
            lost.append("a signal" if by_signal else told.at)
        except hs.HeadstartError as refusal:
            raise Changed(f"after {lost}: refused {refusal}") from refusal
        if len(lost) > before:
            try:
                step(bandit)  # again
            except (hs.ChoiceError, hs.TaskError) as refusal:
                if not str(refusal).startswith(("choice", "task")):
                    raise
        compare(bandit, twin, lost)
        settle(bandit, twin)
    compare_beliefs(bandit, lost)
    alive = threading.Thread(target=lambda: bandit.task("task 0").rounds, daemon=True)
    alive.start()
    alive.join(5)
    if alive.is_alive():
        raise Changed(f"another thread waits forever; interrupted at {lost}")
    for name in twin:
        for one in (bandit, twin):
            one.task(name).close()
    near("the prior", prior_of(bandit), prior_of(twin), 1e-6, lost)


def steps(case: Case):
    """What to do to a bandit, one thing after the other; the same for both.

    There is one arm on offer, so that a lost choice changes nothing but numbers.
    """
    for _ in range(int(case.rng.integers(2, 7))):
        names = [f"task {number}" for number in case.rng.permutation(7)[:3]]
        rows, reward = case.rng.normal(size=(3, 1, DIM)), float(case.rng.normal())
        kind = case.pick(
            ["learn"] * 3
            + ["late", "close", "choose", "many", "several", "delete", "refresh"]
            + ["observe"] * 2
            + ["evidence"]
        )
        if kind in ("learn", "late"):
            held: dict[int, hs.Choice] = {}
            yield lambda bandit: held.setdefault(  # noqa: B023
                id(bandit),
                bandit.task(names[0]).choose(rows[0]),  # noqa: B023
            )
            if kind == "late":
                yield lambda bandit: bandit.task(names[0]).close()  # noqa: B023
            yield lambda bandit: bandit.learn(held[id(bandit)], reward)  # noqa: B023
        elif kind == "many":
            several: dict[int, hs.Choices] = {}
            yield lambda bandit: several.setdefault(  # noqa: B023
                id(bandit),
                bandit.choose_many(names, rows),  # noqa: B023
            )
            yield lambda bandit: bandit.learn(several[id(bandit)], [reward] * 3)  # noqa: B023
        elif kind == "several":
            ranked: dict[int, list[hs.Choice]] = {}
            table = np.repeat(rows[0], 3, axis=0)
            yield lambda bandit: ranked.setdefault(  # noqa: B023
                id(bandit),
                bandit.task(names[0]).choose(table, k=2),  # noqa: B023
            )
            yield lambda bandit: bandit.learn(ranked[id(bandit)], [reward] * 2)  # noqa: B023
        elif kind in ("observe", "evidence"):
            before: dict[int, int] = {}
            yield lambda bandit: before.setdefault(id(bandit), bandit.task(names[0]).rounds)  # noqa: B023
            yield (
                lambda bandit: (
                    bandit.task(names[0]).rounds > before[id(bandit)]  # noqa: B023
                    or add_rounds(bandit, names[0], kind, rows[:, 0], reward)  # noqa: B023
                )
            )
        elif kind == "choose":
            yield lambda bandit: bandit.task(names[0]).choose(rows[0])  # noqa: B023
        elif kind == "delete":
            yield lambda bandit: names[0] not in bandit or bandit.delete(names[0])  # noqa: B023
        else:
            yield lambda bandit: getattr(bandit.task(names[0]), kind)()  # noqa: B023


def add_rounds(bandit: hs.Bandit, name: str, kind: str, rows: np.ndarray, reward: float) -> None:
    """Rounds that were no choices, as rows or as their sums."""
    rewards = np.full(len(rows), reward)
    if kind == "observe":
        bandit.task(name).observe(rows, rewards)
    else:
        bandit.add_evidence(name, hs.Evidence.of(inner(bandit, rows), rewards))


def signalled(step, delay: float, error: type[BaseException]) -> None:
    def handle(*_):
        raise error("interrupted")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        step()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compare(bandit: hs.Bandit, twin: hs.Bandit, lost: list[str]) -> None:
    """The same tasks with the same rewards."""
    if list(bandit) != list(twin):
        raise Changed(f"tasks {list(bandit)}, not {list(twin)}; interrupted at {lost}")
    for name in twin:
        one, other = bandit.task(name), twin.task(name)
        if (one.rounds, one.closed) != (other.rounds, other.closed):
            raise Changed(
                f"a task has {one.rounds} rewards, not {other.rounds}, and is closed: "
                f"{one.closed}, not {other.closed}; interrupted at {lost}"
            )
        near("evidence", one.evidence.pack(), other.evidence.pack(), 1e-9, lost)


def compare_beliefs(bandit: hs.Bandit, lost: list[str]) -> None:
    """Beliefs are what their priors and the evidence give."""
    for name in bandit:
        belief = bandit.task(name).belief
        if isinstance(belief, hs.Belief):
            # The prior as the belief has scaled it: its own noise is renewed only now and then.
            start = belief.prior.root / belief.noise_ratio
            prior = belief.prior.replace(root=start, noise_dof=ONE_NOISE)
            rebuilt = hs.Belief.of(prior, bandit.task(name).evidence)
            near("a belief's mean", belief.mean, rebuilt.mean, 1e-6, lost)
            # In units of R²: the noise is renewed only now and then too.
            scaled, wanted = (each.root @ each.root.T for each in (belief, rebuilt))
            near("a belief's covariance", scaled, wanted, 1e-6, lost)


def settle(*bandits: hs.Bandit) -> None:
    """Let all that waits for the next prior be folded in, or taken out, now.

    A fit that is improved step by step depends a little on when that is, and a choice that is made
    again, after its task was reopened, asks for a prior that the other bandit does not need.
    """
    for bandit in bandits:
        with bandit._state.lock:
            bandit._state.ledger.finish()
            bandit._state.ledger.prior_state.update()


def prior_of(bandit: hs.Bandit) -> np.ndarray:
    prior = bandit.prior.as_gaussian()
    return np.concatenate([prior.mean, prior.covariance.ravel()])


def near(what: str, left, right, tolerance: float, lost: list[str]) -> None:
    error, size = np.abs(np.subtract(left, right)).max(), np.abs(right).max()
    if not error <= tolerance * max(1e-9, size):
        raise Changed(f"{what} is off by {error:.2g} of {size:.2g}; interrupted at {lost}")
