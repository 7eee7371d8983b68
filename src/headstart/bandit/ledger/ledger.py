"""The books of a bandit: every task's evidence, and what was folded into the prior.

The rules that keep the books right:

- the transfer's state holds exactly the closed tasks, each once, and those of its base if it has
  one: tasks that were fitted elsewhere and are not in the books;
- a closed task whose evidence changes is taken out and folded in again before the prior is next
  asked for; a reopened or deleted one is taken out for good (where that takes long and loses no
  digits, only when a prior is next asked for);
- a task's belief is a prior *without* its own evidence, plus its own evidence;
- where a transfer counts running tasks, the latest used of them are joined to the closed ones
  whenever a prior is asked for, and a running task takes a new prior after 8, 32, 128, … choices
  if the others have learned much since its last.

A *live* task has its belief at hand. An *idle* one is only its packed evidence and a few numbers,
and comes alive again from the newest prior.

An exception may come at any moment: Ctrl-C, a signal's handler that raises, a time limit. So a
change is worked out first, as steps that give the same when they are taken twice, and then made by
one store, of :attr:`Ledger.unfinished`. Steps not taken yet are taken before the books are used
again (:meth:`Ledger.finish`), as are the rounds left of a batch. The same holds for a process that
forks while another of its threads is changing something: the child finds the books as they were,
or finishes the change.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.bandit.ledger.entries import BaseBelief, Entry, forget, total
from headstart.errors import HeadstartError, TaskError
from headstart.model.base import BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array, flatten
from headstart.transfer import Transfer

__all__ = ["Base", "Ledger", "Told"]

Step = tuple[Any, ...]  # a function, and what to call it with
Told = tuple[str, int, int, Array, float, bool]  # as Ledger.learn takes it


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
        self.owing: dict[str, Evidence] = {}  # what the state still holds, and is to be taken out
        self.base: Base | None = None
        self.returned: dict[str, None] = {}  # tasks that went on after they were closed
        self.state: Any = self.first_state()
        self.blank = transfer.unit_free  # some features may have no unit yet
        self.offers = 0  # how many contexts on offer have told of units
        self.usual: Array | None = None  # how large features usually are
        self.stale = False  # the state must be folded anew
        self.reversals = 0
        self.first_number = 0  # where a new task's numbers start: above every deleted task's
        self.cached_prior: Any = None
        self.cached_with: tuple[str, ...] = ()  # the running tasks that it counts, few enough
        self.cached_at = 0  # how many rewards there were then
        self.epoch = 0  # marks the choices made here: those of a copy, or before a load, differ
        self.unfinished: Sequence[Step] = ()  # a change that was decided on
        self.batch: Sequence[Told] = ()  # rewards that are being learned from, all or none
        self.done = 0  # how many of them are learned from
        self.failures = 0  # how often one of them has failed
        self.memory = 0  # how many choices they leave remembered

    def commit(self, *steps: Step) -> None:
        """Make a change: steps that may be taken again, should an exception come in between."""
        self.unfinished = steps
        self.finish_steps()

    def finish_steps(self) -> None:
        """Take the steps of a change."""
        for step in self.unfinished:
            step[0](*step[1:])
        self.unfinished = ()

    def finish(self) -> None:
        """Finish whatever was interrupted; whoever has taken the lock calls this first."""
        if self.unfinished:
            self.finish_steps()
        if self.batch:
            self.finish_batch()

    def copied(self) -> Ledger:
        """Books of their own with the same content."""
        twin = copy.copy(self)
        twin.entries = {name: copy.copy(entry) for name, entry in self.entries.items()}
        twin.live = OrderedDict((name, twin.entries[name]) for name in self.live)
        twin.closed, twin.unfolded = self.closed.copy(), self.unfolded.copy()
        twin.returned, twin.owing = self.returned.copy(), self.owing.copy()
        return twin

    def begin_with(self, base: Base) -> None:
        """Let empty books begin with what was learned elsewhere."""
        self.base = base
        self.state = self.first_state()

    def first_state(self) -> Any:
        """The state before any task of these books."""
        if self.base is not None:
            return self.base.state
        return self.with_offers(self.transfer.init(self.dim, self.noise))

    def with_offers(self, state: Any) -> Any:
        """A state from nothing that knows what the present one was told by offers."""
        if not self.transfer.unit_free or not hasattr(self, "state"):
            return state
        return self.transfer.carry_contexts(state, self.state)

    def offer(self, table: Array) -> None:
        """Take the units of features from contexts on offer, where no reward has told them.

        Beliefs that did not know one of these units are built anew when they are next used.
        """
        before = self.transfer.unscaled_features(self.state)
        if not before.any():
            self.commit((setattr, self, "blank", False))
            return
        state = self.transfer.observe_contexts(self.state, table)
        after = self.transfer.unscaled_features(state)
        steps: list[Step] = [(setattr, self, "state", state)]
        if (after != before).any():
            steps.append((setattr, self, "cached_prior", None))
            for task in self.live:
                steps += self.idling(task)
        self.commit(*steps, (setattr, self, "offers", self.offers + 1))

    def put_offers(self, state: Any, offers: int, blank: bool) -> None:
        """Go back to before an offer."""
        if self.offers != offers:
            self.commit(
                (setattr, self, "state", state),
                (setattr, self, "offers", offers),
                (setattr, self, "blank", blank),
                (setattr, self, "cached_prior", None),
            )

    def belief_at(self, task: str, table: Array) -> BaseBelief:
        """What is believed of a task, for looking at contexts that need not have been on offer."""
        if self.blank and self.transfer.unscaled_features(self.state).any():
            state = self.transfer.observe_contexts(self.state, table)
            if (
                self.transfer.unscaled_features(state)
                != self.transfer.unscaled_features(self.state)
            ).any():
                looked = self.copied()
                looked.state, looked.cached_prior = state, None
                return looked.build(task, keep=False)[0]
        return self.belief(task, keep=False)[0]

    def open(self, task: str, epoch: int | None = None) -> Entry:
        """The task's entry, made if there is none: in this epoch, or in one that is given."""
        entry = self.entries.get(task)
        if entry is None:
            blank = Evidence.zero(self.dim, forced=self.transfer.keeps_forced).pack()
            entry = self.entries[task] = Entry(
                blank, self.first_number, self.epoch if epoch is None else epoch
            )
        return entry

    def evidence(self, entry: Entry) -> Evidence:
        """What the task has shown."""
        return entry.total(self.dim)

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Whatever is settled meanwhile is as it was afterwards: when it is settled decides."""
        self.finish()
        before = self.state, dict(self.unfolded), self.stale, self.reversals, dict(self.owing)
        try:
            yield
        finally:
            self.finish()
            self.commit((self.put_state, *before))

    def put_state(
        self,
        state: Any,
        unfolded: dict[str, None],
        stale: bool,
        reversals: int,
        owing: dict[str, Evidence],
    ) -> None:
        """Keep a transfer's state, and what it says of it."""
        self.state, self.unfolded, self.stale = state, unfolded, stale
        self.reversals, self.owing = reversals, owing

    def put_prior(self, prior: Any, rewards: int, counted: tuple[str, ...]) -> None:
        """Keep a prior at hand, with the number of rewards and the running tasks it counts."""
        self.cached_prior, self.cached_at, self.cached_with = prior, rewards, counted

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
            rewards = self.rewards if known else 0
            self.commit((self.put_prior, prior, rewards, tuple(self.running(None))))
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
        return self.transfer.with_running(state, running) if running else state

    def running(self, task: str | None) -> list[str]:
        """The running tasks that count, the latest used first, but for one."""
        if not self.transfer.counts_running:
            return []
        several = (
            name
            for name, entry in reversed(self.live.items())
            if name != task and not entry.closed and entry.rounds(self.dim) > 0
        )
        return list(itertools.islice(several, RUNNING))

    def settle(self) -> None:
        """Bring the transfer's state up to date with the closed tasks."""
        if self.stale:
            state = self.folded(self.closed)
            unfolded = {task: None for task in self.closed if not self.rounds(task)}
            self.commit((self.put_state, state, unfolded, False, 0, {}))
            return
        for task, evidence in list(self.owing.items()):
            state = self.transfer.fold(self.state, evidence, -1.0)
            self.commit((setattr, self, "state", state), (self.owing.pop, task, None))
        for task in [task for task in self.unfolded if self.rounds(task)]:
            state = self.transfer.fold(self.state, self.evidence(self.entries[task]), 1.0)
            self.commit((setattr, self, "state", state), (self.unfolded.pop, task, None))

    def folded(self, tasks: Iterable[str]) -> Any:
        """The state of these tasks alone, from nothing."""
        evidences = [self.evidence(self.entries[task]) for task in tasks if self.rounds(task)]
        if evidences and self.base is None:
            return self.with_offers(self.transfer.refit(evidences, self.noise))
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
        if len(self.closed) > RUNNING:  # running tasks would add little, and take long to fit
            return self.transfer.prior(state)
        return self.transfer.prior(self.joined(state, task))

    def state_without(self, task: str) -> Any:
        """The state with a folded task taken back; ``None`` if that would lose digits.

        Where a task made up most of a sum, what is left after subtracting it is mostly rounding.
        """
        state = self.transfer.fold(self.state, self.evidence(self.entries[task]), -1.0)
        if self.transfer.removes_exactly:
            return state
        before, after = flatten(self.state), flatten(state)
        for name, array in after.items():
            if size(array) < 1e-3 * size(before.get(name, array)):
                return None
        return state

    def taking_out(self, task: str, forget: bool = True) -> list[Step]:
        """How to take a closed task's evidence out of the transfer's state.

        The prior at hand is to ``forget``, unless the task counts for it as one that runs.
        """
        steps: list[Step] = [(setattr, self, "cached_prior", None)] if forget else []
        if self.stale or not self.transfer.reversible:
            return [*steps, (setattr, self, "stale", True)]
        if task in self.unfolded:
            return steps
        # Sums taken back leave rounding behind: start afresh before it can add up.
        reversals = self.reversals + 1
        steps.append((setattr, self, "reversals", reversals))
        if self.transfer.removes_exactly:
            # It can wait until a prior is asked for: a task that returns is not held up by it.
            if reversals > DROPS * max(64, len(self.closed)):
                return [*steps, (setattr, self, "stale", True)]
            evidence = self.evidence(self.entries[task])
            steps.append((operator.setitem, self.owing, task, evidence))
            return [*steps, (operator.setitem, self.unfolded, task, None)]
        state = self.state_without(task)
        if state is None or reversals > max(64, len(self.closed)):
            return [*steps, (setattr, self, "stale", True)]
        steps.append((setattr, self, "state", state))
        return [*steps, (operator.setitem, self.unfolded, task, None)]

    def striking(self, task: str, forget: bool = True) -> list[Step]:
        """How to strike a task from the closed ones; with none left, the state is the first one."""
        steps = self.taking_out(task, forget)
        steps += [(self.unfolded.pop, task, None), (self.closed.pop, task, None)]
        if len(self.closed) == 1:
            steps.append((self.put_state, self.first_state(), {}, False, 0, {}))
        return steps

    def close(self, task: str, folded: Any = None) -> None:
        """Fold a task into the prior, exactly once however often it is called.

        ``folded`` is the state that this gives, if it was computed before: without what is owed of
        the task, and with all that it has shown.
        """
        entry = self.entries[task]
        if entry.closed:
            return
        steps: list[Step] = []
        if task in self.owing and folded is None:
            self.settle()
        if not self.rounds(task) > 0:
            steps.append((operator.setitem, self.unfolded, task, None))
        else:
            if task not in self.returned:  # whose evidence hardly changes the prior at hand
                steps.append((setattr, self, "cached_prior", None))
            if not self.stale:
                if folded is None:
                    folded = self.transfer.fold(self.state, self.evidence(entry), 1.0)
                steps += [(setattr, self, "state", folded), (self.owing.pop, task, None)]
        steps += [(operator.setitem, self.closed, task, None), (setattr, entry, "closed", True)]
        # A task that returns finds its belief at hand, as one that was never closed would.
        self.commit(*steps, *(() if self.transfer.removes_exactly else self.idling(task)))

    def reopen(self, task: str) -> None:
        """Let a closed task run on: its evidence leaves the prior until it is closed again.

        Where running tasks count, the prior at hand stays: it counts this one all the same.
        """
        entry = self.entries[task]
        if not entry.closed:
            return
        counted = self.transfer.counts_running and task not in self.unfolded
        steps = self.striking(task, forget=not counted)
        if counted:
            with_it = (*(name for name in self.cached_with if name != task), task)
            steps.append((setattr, self, "cached_with", with_it))
            steps.append((operator.setitem, self.returned, task, None))
        self.commit(*steps, (setattr, entry, "closed", False))

    def delete(self, task: str) -> None:
        """Remove a task and what it contributed."""
        entry = self.entries[task]
        first = max(self.first_number, entry.number)
        self.commit(
            *(self.striking(task) if entry.closed else ()),
            (setattr, self, "first_number", first),
            (setattr, self, "cached_prior", None),
            (self.live.pop, task, None),
            (self.returned.pop, task, None),
            (self.entries.pop, task, None),
        )

    def number_choice(self, entry: Entry, memory: int) -> None:
        """Count a choice that was made; those more than ``memory`` back are forgotten."""
        number = entry.number
        if entry.epoch != self.epoch:
            others = entry.others_with(entry.epoch, entry.base, entry.learned)
            self.commit((entry.put_marks, number, 0, number + 1, others, self.epoch))
        elif number + 1 - entry.base > memory:
            marks = *forget(entry.base, entry.learned, number + 1 - entry.base - memory), number + 1
            self.commit((entry.put_marks, *marks, entry.others, entry.epoch))
        else:
            entry.number = number + 1

    def learn_all(self, batch: Sequence[Told], memory: int) -> None:
        """Learn from rewards that were checked: once this has begun, from all of them."""
        self.memory, self.done, self.failures = memory, 0, 0
        self.batch = batch
        self.finish_batch()

    def finish_batch(self) -> None:
        """Learn from the rest of a batch."""
        while self.done < len(self.batch):
            try:
                self.learn(*self.batch[self.done], self.memory, self.done + 1)
            except Exception:
                # A time limit that raises may have come; but what always fails must not be tried
                # whenever the books are opened.
                self.failures += 1
                if self.failures >= ATTEMPTS and not self.unfinished:
                    self.batch = ()
                raise
        self.batch = ()

    def learn(
        self,
        task: str,
        epoch: int,
        number: int,
        context: Array,
        reward: float,
        forced: bool,
        memory: int,
        done: int = 0,
    ) -> None:
        """Learn from one reward: its round counts, and its choice is marked, or nothing changes.

        ``done`` tells how many of a batch are learned from then.
        """
        entry = self.entries[task]
        before, rewards = entry.belief, entry.rewards + 1
        packed, evidence, pending, belief = entry.packed, entry.evidence, entry.pending, before
        if before is None:
            sums = self.evidence(entry).discounted(self.fade).add_unchecked(context, reward, forced)
            packed, evidence = sums.pack(), None
        elif self.fade < 1.0:
            evidence = (
                self.evidence(entry).discounted(self.fade).add_unchecked(context, reward, forced)
            )
            belief = before.prior.belief(evidence).with_rounds(float(rewards))
            pending = ()
        else:
            evidence, pending = entry.with_round(context, reward, forced)
            belief = before.update(context, reward)
            if belief.needs_rebuild:
                belief = rebuilt(belief, before, total(evidence, pending))
        if entry.unsure and rewards & (rewards - 1) == 0 and evidence is not None:
            belief = self.on_its_own(rewards, belief, total(evidence, pending))
        marks = entry.marks(epoch, number, memory)
        steps = self.taking_out(task) if entry.closed else None
        if entry.belief is not before or entry.rewards + 1 != rewards:
            raise HeadstartError(
                f"task {task!r} was changed by another call while it was learning (did a signal "
                f"handler use the bandit?): nothing was learned from this reward, try again"
            )
        shown = packed, evidence, pending, belief, rewards
        round = entry, shown, marks, (self.rewards + 1, done)
        put = self.put_round
        if steps is None:  # as is usual: the same as below, and faster
            self.unfinished = ((put, round),)
            put(round)
            self.unfinished = ()
        else:
            self.commit((put, round), *steps)
        if before is None:
            return
        due = self.transfer.counts_running and milestone(entry.number - entry.start)
        if due and much_more(self.rewards - entry.rewards, entry.built):
            with contextlib.suppress(TaskError):  # what cannot be built anew goes on as it is
                self.enliven(task, *self.build(task))

    def put_round(self, round: tuple[Any, ...]) -> None:
        """Write a round into the books."""
        entry, shown, marks, counts = round
        entry.packed, entry.evidence, entry.pending, entry.belief, entry.rewards = shown
        entry.base, entry.learned, entry.number, entry.others = marks
        self.rewards, self.done = counts

    def belief(self, task: str, keep: bool = True) -> tuple[BaseBelief, bool]:
        """What is believed of a task, and whether only the task itself can tell the noise."""
        entry = self.entries[task]
        if entry.belief is not None:
            return entry.belief, entry.unsure
        return self.build(task, keep)

    def build(self, task: str, keep: bool = True) -> tuple[BaseBelief, bool]:
        """Newest prior (without the task's own evidence) ⊕ evidence."""
        prior = self.prior_without(task, keep)
        entry = self.entries[task]
        evidence = self.evidence(entry)
        self.check_sums(task, evidence, prior)
        belief = prior.belief(evidence if evidence.rounds else None)
        if self.fade < 1.0:
            belief = belief.with_rounds(float(entry.rewards))
        running = self.live if self.transfer.counts_running else ()
        others = (other for other in itertools.chain(self.closed, running) if other != task)
        fitted = self.base is not None and self.base.pooled.squares > 0
        unsure = (
            self.noise is None
            and not fitted
            and not any(self.entries[other].has_rewards(self.dim) for other in others)
        )
        if unsure:
            belief = self.on_its_own(entry.rewards, belief, evidence)
        return belief, unsure

    def on_its_own(self, rewards: int, belief: BaseBelief | None, evidence: Evidence) -> Any:
        """The belief of a task that alone tells the noise; O(d³), so only after 1, 2, 4, … rewards.

        In between, the belief tells the noise by itself: the prior says nothing of it.
        """
        prior = self.transfer.single_task_prior(self.state, evidence) if rewards else None
        if prior is None and belief is not None:
            prior = belief.prior.with_unknown_noise()
            if prior == belief.prior:
                return belief
        if prior is None or not prior.determined_by(evidence):
            return belief
        belief = prior.belief(evidence if rewards else None)
        return belief if self.fade == 1.0 else belief.with_rounds(float(rewards))

    def check_sums(self, task: str, evidence: Evidence, prior: BasePrior | None = None) -> None:
        """Refuse a task that has learned from contexts whose sums cannot hold the usual ones.

        A context far out of its features' range is refused when it comes. The first ones are not:
        nothing tells their range yet. If the usual ones turn out to be so much smaller that their
        digits are lost, nothing can be told from the task's sums.
        """
        if self.usual is None or not evidence.rounds:
            return
        size = np.sqrt(np.maximum(np.diagonal(evidence.gram), 0.0) / evidence.rounds)
        far = size > FAR * self.usual
        if not far.any():
            return
        if prior is None:
            belief = self.entries[task].belief
            with self.looking():
                prior = self.prior_without(task, keep=False) if belief is None else belief.prior
        if prior is not None and not prior.determined_by(evidence):
            at = int(np.flatnonzero(far)[0])
            raise TaskError(
                f"task {task!r} has learned from contexts so far apart in size that its sums "
                f"cannot hold them (feature {at} is {size[at]:.3g} in the root mean square, and "
                f"usually about {self.usual[at]:.3g}): delete the task; contexts like the largest "
                f"must be scaled or left out"
            )

    def refresh(self, task: str) -> None:
        """Let a running task take the newest prior."""
        if not self.entries[task].closed:
            self.enliven(task, *self.build(task))

    def enliven(self, task: str, belief: BaseBelief, unsure: bool) -> None:
        """Keep a task's belief at hand; the one unused longest goes idle if there are too many."""
        entry = self.entries[task]
        if entry.belief is belief:
            self.live.move_to_end(task)
            return
        evidence = self.evidence(entry) if entry.evidence is None else entry.evidence
        built = self.rewards - entry.rewards
        steps: list[Step] = [
            (entry.put_belief, None, evidence, entry.pending, belief, unsure, built),
            (operator.setitem, self.live, task, entry),
            (self.live.move_to_end, task),
        ]
        if task not in self.live:
            too_many = len(self.live) + 1 - self.capacity
            for oldest in itertools.islice(self.live, max(too_many, 0)):
                steps += self.idling(oldest)
        self.commit(*steps)

    def idling(self, task: str) -> list[Step]:
        """How to keep only a task's packed evidence."""
        entry = self.entries[task]
        packed = entry.packed if entry.evidence is None else self.evidence(entry).pack()
        return [
            (entry.put_belief, packed, None, (), None, False, entry.built),
            (setattr, entry, "key", None),
            (self.live.pop, task, None),
        ]


def rebuilt(belief: BaseBelief, before: BaseBelief, evidence: Evidence) -> BaseBelief:
    """A belief computed anew from prior and evidence; as it was where the latter has lost digits.

    ``before`` is the belief without the latest reward.
    """
    prior: BasePrior = before.prior
    return prior.belief(evidence) if prior.determined_by(evidence) else belief.as_scaled(before)


FAR = 100.0  # times the usual size, in the root mean square: no feature of one range is like that
ATTEMPTS = 3  # how often learning from a reward of a batch may fail
RUNNING = 64  # how many running tasks count at most
DROPS = 4  # how many times as often a task may be taken out where no digits are lost


def much_more(now: int, then: int) -> bool:
    """Whether a quarter more than then, and eight at least.

    >>> much_more(9, 1), much_more(9, 2), much_more(125, 100), much_more(124, 100)
    (True, False, True, False)
    """
    return now - then >= max(8, then // 4)


def milestone(rounds: int) -> bool:
    """Whether a task's number of choices is 8, 32, 128 or so on.

    >>> [rounds for rounds in range(600) if milestone(rounds)]
    [8, 32, 128, 512]
    """
    return rounds >= 8 and rounds & (rounds - 1) == 0 and rounds.bit_length() % 2 == 0


def size(array: npt.NDArray[Any]) -> float:
    """The largest entry of an array, in absolute value."""
    return float(np.abs(array).max(initial=0.0))
