"""The state of the transfer: which tasks it holds, and the prior that follows from it.

The invariants:

- the state holds exactly the closed tasks, each once, and those of the fit that the bandit started
  from, if it started from one;
- a closed task whose evidence changes is removed, and folded in again before the next prior is
  computed; a task that is reopened or deleted is removed permanently. Where removing takes long and
  loses no digits, it is postponed until the next prior is computed, or the task closed again;
- the prior of a task is computed without the task's own evidence, unless it is one of many closed
  tasks and leaving it out would hardly change its belief;
- where a transfer counts running tasks, those used last are joined to the closed ones whenever a
  prior is computed.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

from headstart.arrays import max_abs
from headstart.bandit.ledger.cache import BeliefCache
from headstart.bandit.ledger.changes import Changes, Step
from headstart.bandit.ledger.entries import TaskEntries
from headstart.model.evidence import Evidence
from headstart.records import Array, flatten
from headstart.transfer import Transfer

MAX_RUNNING = 64  # running tasks that count, at most
MIN_REMOVALS = 64  # removals, or as many as there are closed tasks, after which rounding adds up
EXACT_REMOVALS = 4  # times as many where no digits are lost, but older tasks are sums
FEW_TASKS = 8  # for each feature: among so few, leaving out one task matters
#: How far a task may have moved its own belief by way of the prior, in standard deviations.
MAX_INFLUENCE = 0.2
MIN_SHARE = 1e-3  # of a sum that must be left after a removal, or it is mostly rounding


class StartingFit(NamedTuple):
    """A fit of tasks that are not tasks of the bandit: their state, number and pooled evidence."""

    state: Any
    task_count: float
    pooled: Evidence


class CachedPrior(NamedTuple):
    """A prior with the number of rewards and the running tasks that it counts."""

    prior: Any
    reward_count: int
    running: dict[str, None]


class PriorState:
    """The transfer's state with the tasks it holds, and the last prior."""

    def __init__(
        self,
        entries: TaskEntries,
        cache: BeliefCache,
        changes: Changes,
        transfer: Transfer,
        noise: float | None,
        *,
        scale_is_known: bool,
    ) -> None:
        self.entries = entries
        self.cache = cache
        self.changes = changes
        self.transfer = transfer
        self.noise = noise
        self.scale_is_known = scale_is_known  # of θ, before any reward
        self.base: StartingFit | None = None
        self.state: Any = transfer.init(entries.dim, noise)
        self.closed: dict[str, None] = {}  # in the order they were closed
        self.unfolded: dict[str, None] = {}  # closed, but not in the state
        self.removals: dict[str, Evidence] = {}  # in the state, and to be removed
        self.reopened: dict[str, None] = {}  # tasks that were used after they were closed
        self.needs_refit = False
        self.removal_count = 0  # since the last refit
        self.cached: CachedPrior | None = None

    def copy(self, entries: TaskEntries, cache: BeliefCache, changes: Changes) -> PriorState:
        """The same state for a copy of the other parts of the ledger."""
        clone = copy.copy(self)
        clone.state = self.state
        clone.restore(entries=entries, cache=cache, changes=changes)
        for name in ("closed", "unfolded", "removals", "reopened"):
            setattr(clone, name, getattr(self, name).copy())
        if self.cached is not None:
            clone.cached = self.cached._replace(running=self.cached.running.copy())
        return clone

    def restore(self, **fields: Any) -> None:
        """Set fields to what was fitted elsewhere, or read from a file, before any call."""
        for name, value in fields.items():
            setattr(self, name, value)

    def start_from(self, fit: StartingFit, *, is_base: bool) -> None:
        """Start from a fit, before any call.

        It is of tasks that the bandit does not have (``is_base``), or of all that it has, which are
        then closed.
        """
        self.base, self.state = fit if is_base else None, fit.state
        self.closed = dict.fromkeys(self.entries)

    def first_state(self) -> Any:
        """The state without any task of the bandit."""
        if self.base is not None:
            return self.base.state
        return self.keep_units(self.transfer.init(self.entries.dim, self.noise))

    def keep_units(self, state: Any) -> Any:
        """A new state, with what the present one knows of the contexts on offer."""
        return self.transfer.carry_contexts(state, self.state) if self.transfer.unit_free else state

    def steps_to_forget_prior(self) -> list[Step]:
        """How to have the next prior computed again."""
        return [(setattr, self, "cached", None)]

    def put_state(
        self, state: Any, unfolded: Any, removals: Any, needs_refit: bool, removal_count: int
    ) -> None:
        """Set the transfer's state and what it lacks."""
        self.state, self.unfolded, self.removals = state, unfolded, removals
        self.needs_refit, self.removal_count = needs_refit, removal_count

    @contextlib.contextmanager
    def temporary_changes(self) -> Iterator[None]:
        """A context manager that restores the state, because the time of an update matters."""
        self.changes.finish()
        parts = self.state, dict(self.unfolded), dict(self.removals)
        before = *parts, self.needs_refit, self.removal_count
        try:
            yield
        finally:
            self.changes.finish()
            self.changes.commit((self.put_state, *before))

    @property
    def state(self) -> Any:
        """The transfer's state."""
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state
        self.units_test: Any = None  # not known yet

    def may_determine_units(self, contexts: Array) -> bool:
        """Whether contexts on offer may determine units that are not known, by a quick test.

        A unit is lost when the tasks that determined it leave the state.
        """
        test = self.find_units_test() if self.units_test is None else self.units_test
        return test if isinstance(test, bool) else bool(test(contexts))

    def find_units_test(self) -> Any:
        """The answer of :meth:`may_determine_units`, or a function that gives it."""
        transfer, state = self.transfer, self.state
        unknown = transfer.unit_free and bool(transfer.unscaled_features(state).any())
        self.units_test = unknown and (transfer.units_test(state) or True)
        return self.units_test

    def with_offer(self, contexts: Array, *, update: bool) -> tuple[Self, bool]:
        """The same after contexts were on offer, and whether they have determined new units.

        Units of features come from the contexts on offer where no reward has determined them.
        With ``update`` the state can be used to compute a prior.
        """
        transfer, unknown = self.transfer, self.transfer.unscaled_features(self.state)

        def observe(state: Any) -> Any:
            return transfer.observe_contexts(state, contexts) if unknown.any() else state

        new_state = observe(self.state)
        new_units = bool((transfer.unscaled_features(new_state) != unknown).any())
        before = self.state
        if update or new_units:  # of this one, because the new one shares what is to be folded
            self.update()
        if self.state is not before:
            new_state = observe(self.state)
        clone = copy.copy(self)
        clone.state = new_state
        clone.cached = None if new_units else self.cached
        return clone, new_units

    def steps_to_adopt(self, other: PriorState) -> list[Step]:
        """How to take over what :meth:`with_offer` returned."""
        return [(setattr, self, name, getattr(other, name)) for name in ("state", "cached")]

    def prior(self, *, keep: bool = True) -> Any:
        """The prior of a new task; with ``keep`` it is cached."""
        if self.cached is not None and self.is_recent(self.cached):
            return self.cached.prior
        self.update()
        prior = self.transfer.prior(self.with_running(self.state, None))
        if keep:
            # Before any reward, the scale is unknown, and a prior is valid until the first one.
            has_scale = self.noise is not None or any(
                self.entries.has_rewards(name) for name in (*self.closed, *self.cache.tasks)
            )
            count = self.entries.reward_count if has_scale else 0
            cached = CachedPrior(prior, count, dict.fromkeys(self.running_tasks(None)))
            self.changes.commit((setattr, self, "cached", cached))
        return prior

    def is_recent(self, cached: CachedPrior) -> bool:
        """Whether running tasks, where they count, have not learned much since a prior."""
        count = self.entries.reward_count
        has_learned = has_grown(count, cached.reward_count) or count > 0 == cached.reward_count
        return not (self.transfer.counts_running and has_learned)

    def running_tasks(self, excluded: str | None) -> list[str]:
        """The running tasks that count, the one used last first, without one of them."""
        if not self.transfer.counts_running:
            return []
        running = (
            name
            for name in reversed(self.cache.tasks)
            if name != excluded and name not in self.closed and self.entries.rounds(name) > 0
        )
        return list(itertools.islice(running, MAX_RUNNING))

    def with_running(self, state: Any, excluded: str | None) -> Any:
        """A state joined by the running tasks that count, without one of them."""
        running = [self.entries.evidence(name) for name in self.running_tasks(excluded)]
        return self.transfer.with_running(state, running) if running else state

    def update(self) -> None:
        """Bring the state up to date with the closed tasks."""
        if self.needs_refit:
            state = self.refit(self.entries.evidence(name) for name in self.closed)
            unfolded = {name: None for name in self.closed if not self.entries.rounds(name)}
            self.changes.commit((self.put_state, state, unfolded, {}, False, 0))
            return
        for name, evidence in list(self.removals.items()):
            state = self.transfer.fold(self.state, evidence, -1.0)
            self.changes.commit((setattr, self, "state", state), (self.removals.pop, name, None))
        for name in [name for name in self.unfolded if self.entries.rounds(name)]:
            state = self.transfer.fold(self.state, self.entries.evidence(name), 1.0)
            self.changes.commit((setattr, self, "state", state), (self.unfolded.pop, name, None))

    def refit(self, evidences: Iterable[Evidence]) -> Any:
        """The state of the tasks with this evidence alone."""
        evidences = [evidence for evidence in evidences if evidence.rounds]
        if evidences and self.base is None:
            return self.keep_units(self.transfer.refit(evidences, self.noise))
        state = self.first_state()
        for evidence in evidences:
            state = self.transfer.fold(state, evidence, 1.0)
        return state

    def prior_without(self, name: str, *, keep: bool = True) -> Any:
        """The prior from all tasks but one."""
        if not self.entries.rounds(name):
            return self.prior(keep=keep)
        if name not in self.closed:
            # The prior of a new task will do, unless it counts this very task: the cached one may
            # have counted it when its belief was cached, or among those used last.
            cached = self.cached
            recent = cached is not None and self.is_recent(cached)
            running = cached.running if cached is not None and recent else self.running_tasks(None)
            if name not in running:
                return self.prior(keep=keep)
            self.update()
            return self.transfer.prior(self.with_running(self.state, name))
        self.update()
        state = self.state_without(name) if self.transfer.reversible else None
        if state is None:
            others = (other for other in self.closed if other != name)
            state = self.refit(self.entries.evidence(other) for other in others)
        if len(self.closed) > MAX_RUNNING:  # running tasks would add little, and take long to fit
            return self.transfer.prior(state)
        return self.transfer.prior(self.with_running(state, name))

    def belief_among_many(self, name: str, *, keep: bool = True) -> Any:
        """The belief of one of many closed tasks, where leaving it out would hardly change it."""
        few = len(self.closed) <= max(MAX_RUNNING, FEW_TASKS * self.entries.dim)
        if few or not self.transfer.removes_exactly or not self.entries.rounds(name):
            return None
        cached, prior = self.cached, None
        if cached is not None and self.is_recent(cached):
            if name in self.closed or (name in self.reopened and name in cached.running):
                prior = cached.prior
        elif name in self.closed and not self.running_tasks(None):
            prior = self.prior(keep=keep)
        elif name in self.closed:  # to fit those that run would take longer than to leave it out
            self.update()
            prior = self.transfer.prior(self.state)
        if prior is None:
            return None
        belief = prior.belief(self.entries.evidence(name))
        influence = self.transfer.own_influence(self.state, belief)
        return belief if influence <= MAX_INFLUENCE else None

    def state_without(self, name: str) -> Any:
        """The state with a folded task removed; ``None`` if too many digits would be lost."""
        state = self.transfer.fold(self.state, self.entries.evidence(name), -1.0)
        if self.transfer.removes_exactly:
            return state
        before, after = flatten(self.state), flatten(state)
        for part, array in after.items():
            if max_abs(array) < MIN_SHARE * max_abs(before.get(part, array)):
                return None
        return state

    def has_scale_from_others(self, name: str) -> bool:
        """Whether the scale of θ and the noise are given, or other tasks have had rewards."""
        has_fit = self.base is not None and self.base.pooled.squares > 0
        if self.scale_is_known or has_fit:
            return True
        running = self.cache.tasks if self.transfer.counts_running else ()
        others = (other for other in itertools.chain(self.closed, running) if other != name)
        return any(self.entries.has_rewards(other) for other in others)

    def steps_to_close(self, name: str, state: Any = None) -> list[Step]:
        """How to add a task to the closed ones.

        ``state`` is the one with the task, if it was computed before
        (:mod:`~headstart.bandit.ledger.fold_job`).
        """
        steps: list[Step] = [(operator.setitem, self.closed, name, None)]
        if not self.entries.rounds(name):
            return [*steps, (operator.setitem, self.unfolded, name, None)]
        if name not in self.reopened:  # whose evidence hardly changes the cached prior
            steps += self.steps_to_forget_prior()
        if not self.needs_refit:
            if state is None:
                if name in self.removals:
                    self.update()
                state = self.transfer.fold(self.state, self.entries.evidence(name), 1.0)
            steps += [(setattr, self, "state", state), (self.removals.pop, name, None)]
        return steps

    def steps_to_reopen(self, name: str) -> list[Step]:
        """How to remove a task from the closed ones until it is closed again.

        Where running tasks count, the cached prior stays: it counts this task all the same.
        """
        if not self.transfer.counts_running or name in self.unfolded:
            return self.steps_to_forget_prior() + self.steps_to_drop(name)
        steps = [*self.steps_to_drop(name), (operator.setitem, self.reopened, name, None)]
        if self.cached is not None:
            steps.append((operator.setitem, self.cached.running, name, None))
        return steps

    def steps_to_delete(self, name: str) -> list[Step]:
        """How to remove a task permanently."""
        steps = self.steps_to_drop(name) if name in self.closed else []
        return [*steps, *self.steps_to_forget_prior(), (self.reopened.pop, name, None)]

    def steps_to_drop(self, name: str) -> list[Step]:
        """How to remove a task from the closed ones; without any, the state is the first one."""
        steps = self.steps_to_remove(name)
        steps += [(self.unfolded.pop, name, None), (self.closed.pop, name, None)]
        if len(self.closed) == 1:
            steps.append((self.put_state, self.first_state(), {}, {}, False, 0))
        return steps

    def steps_to_remove(self, name: str) -> list[Step]:
        """How to remove the evidence of a closed task from the state."""
        refit: Step = (setattr, self, "needs_refit", True)
        if self.needs_refit or not self.transfer.reversible:
            return [refit]
        if name in self.unfolded:
            return []
        # Every removal leaves rounding errors in the sums: refit before they add up.
        count = self.removal_count + 1
        steps: list[Step] = [(setattr, self, "removal_count", count)]
        if self.transfer.removes_exactly:  # and they are refitted when a task is closed
            steps.append((operator.setitem, self.removals, name, self.entries.evidence(name)))
        else:
            state = self.state_without(name)
            if state is None or count > max(MIN_REMOVALS, len(self.closed)):
                return [*steps, refit]
            steps.append((setattr, self, "state", state))
        return [*steps, (operator.setitem, self.unfolded, name, None)]

    def steps_to_change(self, name: str) -> list[Step]:
        """How to prepare for a change of a closed task's evidence."""
        return self.steps_to_forget_prior() + self.steps_to_remove(name)


def has_grown(count: int, before: int) -> bool:
    """Whether a count has grown by a quarter, and by eight at least.

    >>> has_grown(9, 1), has_grown(9, 2), has_grown(125, 100), has_grown(124, 100)
    (True, False, True, False)
    """
    return count - before >= max(8, before // 4)
