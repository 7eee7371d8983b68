"""The books of a bandit: every task's evidence, and what was folded into the prior.

The rules that keep the books right:

- the transfer's state holds exactly the closed tasks, each once, and those of its base if it has
  one: tasks that were fitted elsewhere and are not in the books;
- a closed task whose evidence changes is taken out and folded in again before the prior is next
  asked for; a reopened or deleted one is taken out for good;
- a task's belief is a prior *without* its own evidence, plus its own evidence;
- where a transfer counts running tasks, the latest used of them are joined to the closed ones
  whenever a prior is asked for, and a running task takes a new prior after 8, 32, 128, … choices
  if the others have learned much since its last.

A *live* task has its belief at hand. An *idle* one is only its packed evidence and a few numbers,
and comes alive again from the newest prior.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.belief import Belief
from headstart.entry import Believed, Entry
from headstart.evidence import Evidence
from headstart.mixture import MixtureBelief, believe
from headstart.records import Array, flatten
from headstart.transfer import Transfer
from headstart.transfer.noise import own_noise

__all__ = ["Base", "Ledger"]


class Base(NamedTuple):
    """What the books begin with: the state of tasks that are not in them, and their sums."""

    state: Any
    tasks: float  # how many there were
    pooled: Evidence  # of all of them


class Ledger:
    """All tasks of a bandit, the transfer's state, and the prior that follows from it."""

    def __init__(
        self,
        dim: int,
        transfer: Transfer,
        noise: float | None,
        live: int,
        half_life: float | None = None,
    ) -> None:
        self.dim = dim
        self.fade = 1.0 if half_life is None else 0.5 ** (1.0 / half_life)
        self.half_life = half_life
        self.rewards = 0  # how many were learned from, in all
        self.transfer = transfer
        self.noise = noise
        self.capacity = live
        self.entries: dict[str, Entry] = {}
        self.live: OrderedDict[str, Entry] = OrderedDict()
        self.closed: dict[str, None] = {}  # in the order they were closed
        self.unfolded: dict[str, None] = {}  # closed, but not in the state now
        self.base: Base | None = None
        self.state: Any = self.first_state()
        self.stale = False  # the state must be folded anew
        self.reversals = 0
        self.first_number = 0  # where a new task's numbers start: above every deleted task's
        self.cached_prior: Any = None
        self.cached_with: tuple[str, ...] = ()  # the running tasks that it counts, few enough
        self.cached_at = 0  # how many rewards there were then

    def begin_with(self, base: Base) -> None:
        """Let empty books begin with what was learned elsewhere."""
        self.base = base
        self.state = self.first_state()

    def first_state(self) -> Any:
        """The state before any task of these books."""
        if self.base is not None:
            return self.base.state
        return self.transfer.init(self.dim, self.noise)

    def open(self, task: str) -> Entry:
        """The task's entry, made if there is none."""
        entry = self.entries.get(task)
        if entry is None:
            blank = Evidence.zero(self.dim, forced=self.transfer.keeps_forced).pack()
            entry = self.entries[task] = Entry(blank, self.first_number)
        return entry

    def evidence(self, entry: Entry) -> Evidence:
        """What the task has shown."""
        return entry.total(self.dim)

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Whatever is settled meanwhile is as it was afterwards: when it is settled decides."""
        before = self.state, dict(self.unfolded), self.stale, self.reversals
        try:
            yield
        finally:
            self.state, self.unfolded, self.stale, self.reversals = before

    def prior(self, keep: bool = True) -> Any:
        """Where a new task starts; ``keep`` it for those that come soon, unless only looking."""
        self.settle()
        if self.has_recent_prior():
            return self.cached_prior
        prior = self.transfer.prior(self.joined(self.state, None))
        if keep:
            # Before any reward tells the scale, a prior is good for as long as there is none.
            known = self.noise is not None or any(
                self.entries[name].has_rewards(self.dim) for name in (*self.closed, *self.live)
            )
            self.cached_prior, self.cached_at = prior, self.rewards if known else 0
            self.cached_with = tuple(self.running(None))
        return prior

    def has_recent_prior(self) -> bool:
        """Whether the prior at hand will do: running tasks have not learned much since."""
        if self.cached_prior is None:
            return False
        since = much_more(self.rewards, self.cached_at) or self.rewards > 0 == self.cached_at
        return not (self.transfer.counts_running and since)

    def joined(self, state: Any, task: str | None) -> Any:
        """A state with the running tasks that were used last, but for one, where they count."""
        if not self.transfer.counts_running:
            return state
        running = [self.evidence(self.entries[name]) for name in self.running(task)]
        return self.transfer.joined(state, running) if running else state

    def running(self, task: str | None) -> list[str]:
        """The running tasks that count, the latest used first, but for one."""
        if not self.transfer.counts_running:
            return []
        several = (
            name
            for name, entry in reversed(self.live.items())
            if name != task and entry.rounds(self.dim) > 0
        )
        return list(itertools.islice(several, RUNNING))

    def settle(self) -> None:
        """Bring the transfer's state up to date with the closed tasks."""
        if self.stale:
            self.state = self.folded(self.closed)
            self.unfolded = {task: None for task in self.closed if not self.rounds(task)}
            self.stale = False
            self.reversals = 0
            return
        for task in [task for task in self.unfolded if self.rounds(task)]:
            self.state = self.transfer.fold(self.state, self.evidence(self.entries[task]), 1.0)
            del self.unfolded[task]

    def folded(self, tasks: Iterable[str]) -> Any:
        """The state of these tasks alone, from nothing."""
        evidences = [self.evidence(self.entries[task]) for task in tasks if self.rounds(task)]
        if evidences and self.base is None:
            return self.transfer.refit(evidences, self.noise)
        state = self.first_state()
        for evidence in evidences:
            state = self.transfer.fold(state, evidence, 1.0)
        return state

    def rounds(self, task: str) -> float:
        """How many rewards a task has seen."""
        return self.entries[task].rounds(self.dim)

    def prior_without(self, task: str, keep: bool = True) -> Any:
        """The prior from all tasks but this one."""
        if not self.rounds(task):
            return self.prior(keep)
        self.settle()
        if task not in self.closed:
            # The prior for everybody will do, unless it counts this very task: the one at hand
            # may have counted it when it was still live, or among the latest.
            counted = self.cached_with if self.has_recent_prior() else self.running(None)
            if task not in counted:
                return self.prior(keep)
            return self.transfer.prior(self.joined(self.state, task))
        state = self.state_without(task) if self.transfer.reversible else None
        if state is None:
            state = self.folded(other for other in self.closed if other != task)
        return self.transfer.prior(self.joined(state, task))

    def state_without(self, task: str) -> Any:
        """The state with a folded task taken back; ``None`` if that would lose digits.

        Where a task made up most of a sum, what is left after subtracting it is mostly rounding.
        """
        state = self.transfer.fold(self.state, self.evidence(self.entries[task]), -1.0)
        before, after = flatten(self.state), flatten(state)
        for name, array in after.items():
            if size(array) < 1e-3 * size(before.get(name, array)):
                return None
        return state

    def take_out(self, task: str) -> None:
        """Take a closed task's evidence out of the transfer's state."""
        self.cached_prior = None
        if not self.transfer.reversible:
            self.stale = True
        if self.stale or task in self.unfolded:
            return
        # Sums taken back leave rounding behind: start afresh before it can add up.
        self.reversals += 1
        state = self.state_without(task)
        if state is None or self.reversals > max(64, len(self.closed)):
            self.stale = True
        else:
            self.state = state
            self.unfolded[task] = None

    def close(self, task: str) -> None:
        """Fold a task into the prior, exactly once however often it is called."""
        entry = self.entries[task]
        if entry.closed:
            return
        state = self.state
        counts = self.rounds(task) > 0
        if counts and not self.stale:
            state = self.transfer.fold(state, self.evidence(entry), 1.0)
        self.state = state
        self.cached_prior = None if counts else self.cached_prior
        self.closed[task] = None
        if not counts:
            self.unfolded[task] = None
        entry.closed = True
        self.idle(task)

    def reopen(self, task: str) -> None:
        """Let a closed task run on: its evidence leaves the prior until it is closed again."""
        entry = self.entries[task]
        if not entry.closed:
            return
        self.take_out(task)
        self.forget_closed(task)
        entry.closed = False

    def delete(self, task: str) -> None:
        """Remove a task and what it contributed."""
        entry = self.entries[task]
        if entry.closed:
            self.take_out(task)
            self.forget_closed(task)
        self.first_number = max(self.first_number, entry.number)
        self.cached_prior = None
        self.live.pop(task, None)
        del self.entries[task]

    def forget_closed(self, task: str) -> None:
        """Strike a task from the closed ones; without any, the state is exactly the first one."""
        self.unfolded.pop(task, None)
        del self.closed[task]
        if not self.closed:
            self.state = self.first_state()
            self.stale = False
            self.reversals = 0

    def learn(self, task: str, context: Array, reward: float, forced: bool) -> None:
        """Add one round to a task."""
        entry = self.entries[task]
        if entry.closed:
            self.take_out(task)
        self.rewards += 1
        entry.rewards += 1
        if entry.belief is None:
            evidence = self.evidence(entry).faded(self.fade)
            entry.packed = evidence.add_unchecked(context, reward, forced).pack()
            return
        if self.fade < 1.0:
            evidence = self.evidence(entry).faded(self.fade)
            entry.evidence = evidence.add_unchecked(context, reward, forced)
            entry.belief = counting(believe(entry.belief.prior, entry.evidence), entry.rewards)
        else:
            entry.add(context, reward, forced)
            entry.belief = entry.belief.learn_unchecked(context, reward)
        if entry.unsure:
            entry.belief = self.on_its_own(entry, entry.belief, self.evidence(entry))
        due = self.transfer.counts_running and milestone(entry.number - entry.start)
        if due and much_more(self.rewards - entry.rewards, entry.built):
            self.enliven(task, *self.build(task))

    def belief(self, task: str, keep: bool = True) -> tuple[Believed, bool]:
        """What is believed of a task, and whether only the task itself can tell the noise."""
        entry = self.entries[task]
        if entry.belief is not None:
            return entry.belief, entry.unsure
        return self.build(task, keep)

    def build(self, task: str, keep: bool = True) -> tuple[Believed, bool]:
        """Newest prior (without the task's own evidence) ⊕ evidence."""
        prior = self.prior_without(task, keep)
        entry = self.entries[task]
        evidence = self.evidence(entry)
        belief = believe(prior, evidence if evidence.rounds else None)
        if self.fade < 1.0:
            belief = counting(belief, entry.rewards)
        running = self.live if self.transfer.counts_running else ()
        others = (other for other in itertools.chain(self.closed, running) if other != task)
        fitted = self.base is not None and self.base.pooled.squares > 0
        unsure = (
            self.noise is None
            and not fitted
            and not any(self.entries[other].has_rewards(self.dim) for other in others)
        )
        if unsure:
            belief = self.on_its_own(entry, belief, evidence, afresh=True)
        return belief, unsure

    def on_its_own(
        self, entry: Entry, belief: Believed, evidence: Evidence, afresh: bool = False
    ) -> Believed:
        """The belief of a task that alone tells the noise.

        Its scale is looked at after 1, 2, 4, 8, … rewards (that takes O(d³)), or ``afresh``.
        """
        rewards = entry.rewards
        if rewards and (afresh or rewards & (rewards - 1) == 0):
            prior = self.transfer.alone(evidence)
            if prior is not None:
                return counting(believe(prior, evidence), rewards)
        return with_own_noise(belief, evidence) if isinstance(belief, Belief) else belief

    def refresh(self, task: str) -> None:
        """Let a running task take the newest prior."""
        if not self.entries[task].closed:
            self.enliven(task, *self.build(task))

    def enliven(self, task: str, belief: Believed, unsure: bool) -> None:
        """Keep a task's belief at hand; the one unused longest goes idle if there are too many."""
        entry = self.entries[task]
        if entry.belief is belief:
            self.live.move_to_end(task)
            return
        if entry.evidence is None:
            entry.evidence = self.evidence(entry)
        entry.belief, entry.unsure, entry.packed = belief, unsure, None
        entry.built = self.rewards - entry.rewards
        self.live[task] = entry
        self.live.move_to_end(task)
        while len(self.live) > self.capacity:
            self.idle(next(iter(self.live)))

    def idle(self, task: str) -> None:
        """Keep only a task's packed evidence."""
        entry = self.entries[task]
        if entry.evidence is not None:
            entry.packed = self.evidence(entry).pack()
            entry.pending = ()
        entry.evidence = entry.belief = entry.key = None
        entry.unsure = False
        self.live.pop(task, None)


RUNNING = 64  # how many running tasks count at most


def much_more(now: int, then: int) -> bool:
    """Whether a quarter more than then, and eight at least.

    >>> much_more(9, 1), much_more(9, 2), much_more(125, 100), much_more(124, 100)
    (True, False, True, False)
    """
    return now - then >= max(8, then // 4)


def counting(belief: Believed, rewards: int) -> Believed:
    """The belief with so many rounds: where rewards fade, its evidence says fewer."""
    if isinstance(belief, MixtureBelief):
        rounds = np.full(belief.parts.batch, float(rewards))
        return belief.replace(parts=belief.parts.replace(rounds=rounds))
    return belief.replace(rounds=float(rewards))


def milestone(rounds: int) -> bool:
    """Whether a task's number of choices is 8, 32, 128 or so on.

    >>> [rounds for rounds in range(600) if milestone(rounds)]
    [8, 32, 128, 512]
    """
    return rounds >= 8 and rounds & (rounds - 1) == 0 and rounds.bit_length() % 2 == 0


def size(array: npt.NDArray[Any]) -> float:
    """The largest entry of an array, in absolute value."""
    return float(np.abs(array).max(initial=0.0))


def with_own_noise(belief: Belief, evidence: Evidence) -> Belief:
    """The belief with R as this task alone shows it."""
    noise = own_noise(evidence, belief.prior.mean, belief.mean)
    return belief.replace(noise=noise) if noise > 0 else belief
