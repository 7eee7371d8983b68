"""The ledger of a bandit: every change of its tasks, cached beliefs and prior goes through here."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.bandit.ledger.cache import BeliefCache
from headstart.bandit.ledger.changes import Changes
from headstart.bandit.ledger.entries import CachedTask, TaskEntries, TaskEntry
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.optional_items import item_round, new_items, with_known_coefficient
from headstart.bandit.ledger.prior_state import PriorState, has_grown
from headstart.bandit.ledger.rounds import task_after_round
from headstart.bandit.rewards import RewardModel
from headstart.bandit.task_belief import LoneTask, refresh_count
from headstart.errors import HeadstartError, TaskError
from headstart.features.conversion import Features
from headstart.features.transformer import AnyEncoder
from headstart.model.base import BaseBelief, BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.rules import Rule
from headstart.transfer import Transfer

MAX_FAILURES = 3  # of a batch of rewards, before the rest of it is dropped
MAX_SIZE_RATIO = 100.0  # of the root mean square of a feature in a task and its usual size

#: A task, the epoch and the number of a choice, its context as the model sees it, its reward,
#: whether it was forced, and the key of its item where items are known by their ids.
RewardedChoice = tuple[str, int, int, Array, float, bool, str | None]
#: A belief to choose from, whether its noise is estimated from its task alone, and what the
#: contexts on offer have determined of units.
PreparedChoice = tuple[BaseBelief, bool, tuple[PriorState, bool] | None]


class Ledger:
    """All tasks of a bandit, the cached beliefs and the prior.

    Parameters
    ----------
    features, encoder
        The features of θ, and what encodes contexts and actions, if anything does.
    transfer
        The way the prior is learned.
    rewards
        What rewards are.
    noise
        R, or ``"auto"`` to estimate it.
    cache_size
        How many beliefs are cached.
    choice_window
        How many of a task's latest choices can be learned from.
    half_life
        The number of rewards of a task after which an earlier one counts half; ``None`` for no
        decay.
    """

    def __init__(
        self,
        features: Features,
        encoder: AnyEncoder | None,
        transfer: Transfer,
        rewards: RewardModel,
        noise: float | str,
        cache_size: int,
        choice_window: int,
        half_life: float | None,
    ) -> None:
        given_noise = rewards.check_noise(noise)
        self.rewards = rewards
        self.half_life = None if half_life is None else checks.positive("half_life", half_life)
        self.decay = 1.0 if self.half_life is None else 0.5 ** (1.0 / self.half_life)
        self.choice_window = checks.integer("choice_window", choice_window, 1)
        transfer = transfer.with_free_intercept() if rewards.needs_belief else transfer
        self.entries = TaskEntries(features.dim, keeps_forced=transfer.keeps_forced)
        self.cache = BeliefCache(self.entries, checks.integer("cache_size", cache_size, 1))
        self.changes = Changes()
        self.prior_state = PriorState(
            self.entries,
            self.cache,
            self.changes,
            transfer,
            rewards.fixed_noise or given_noise,
            scale_is_known=given_noise is not None,
        )
        self.usual_sizes: Array | None = None  # of the features, infinite where they are unknown
        self.batch: Sequence[RewardedChoice] = ()  # being learned from, all or none
        self.batch_done = 0  # how many of them are learned from
        self.batch_failures = 0
        self.items = new_items(encoder, features, rewards)  # where they are known by their ids

    def check_rule(self, rule: Rule) -> None:
        """Refuse a rule that does not fit these rewards and this transfer."""
        self.rewards.check_rule(rule)
        state, transfer = self.prior_state, self.prior_state.transfer
        rule.check_bandit(transfer.prior(state.state), transfer, state.noise, self.half_life)

    def copy(self) -> Ledger:
        """A copy that shares no mutable state."""
        clone = Ledger.__new__(Ledger)
        clone.__dict__.update(self.__dict__)
        clone.entries, clone.changes = self.entries.copy(), Changes()
        clone.cache = BeliefCache(clone.entries, self.cache.size, self.cache.tasks)
        clone.prior_state = self.prior_state.copy(clone.entries, clone.cache, clone.changes)
        clone.items = None if self.items is None else self.items.copy()
        return clone

    def finish(self) -> None:
        """Finish what was interrupted; to be called first after the lock was acquired."""
        if self.changes.steps:
            self.changes.finish()
        if self.batch:
            self.finish_batch()

    def entry(self, name: str) -> TaskEntry:
        """The entry of a task."""
        if self.changes.steps or self.batch:
            self.finish()
        entry = self.entries.get(name)
        if entry is None:
            raise TaskError(f"task {name!r} is unknown here: it was deleted, or never made")
        return entry

    def item_writer(self, name: str) -> Callable[[Sequence[Any], Array], None] | None:
        """Writes what is known of items into the rows on offer to a task."""
        return None if self.items is None else functools.partial(self.items.write, name)

    def belief(self, name: str) -> BaseBelief:
        """The belief of a task, computed if it is not cached; nothing is cached by this."""
        cached = self.entries[name].cached
        return self.compute_belief(name, keep=False)[0] if cached is None else cached.belief

    def belief_for(self, name: str, contexts: Array) -> BaseBelief:
        """The belief of a task if these contexts were on offer; changes nothing."""
        if self.prior_state.may_determine_units(contexts):
            offer, new_units = self.prior_state.with_offer(contexts, update=False)
            if new_units:
                return self.compute_belief(name, offer, keep=False)[0]
        return self.belief(name)

    def compute_belief(
        self, name: str, prior_state: PriorState | None = None, *, keep: bool = True
    ) -> tuple[BaseBelief, bool]:
        """The belief from the newest prior, and whether the scale is known from the task alone.

        The prior does not hold the task's own evidence, unless it is one of so many that leaving it
        out would hardly change the belief. With ``keep`` the prior of a new task is cached.
        """
        prior_state = prior_state or self.prior_state
        belief = prior_state.belief_among_many(name, keep=keep)
        prior = prior_state.prior_without(name, keep=keep) if belief is None else belief.prior
        evidence, count = self.entries.evidence(name), self.entries[name].reward_count
        self.check_evidence(name, evidence, prior)
        alone = not prior_state.has_scale_from_others(name)
        if alone and not count and prior_state.noise is None:
            prior = prior.with_unknown_noise() or prior
        if belief is None:
            belief = prior.belief(evidence if evidence.rounds else None)
        if alone and count:
            belief = self.lone_task(prior_state).belief(belief, evidence)
        belief = with_known_coefficient(self.items, belief)
        return belief if self.decay == 1.0 else belief.with_rounds(float(count)), alone

    def lone_task(self, prior_state: PriorState) -> LoneTask:
        """What the belief of a task rests on while the scale is known from it alone."""
        return LoneTask(prior_state.transfer, prior_state.state, prior_state.noise is not None)

    def check_evidence(self, name: str, evidence: Evidence, prior: BasePrior | None = None) -> None:
        """Refuse a task whose contexts differ so much in size that its sums cannot hold them.

        A context far out of the range of its features is refused when it is passed. The first ones
        are not, because the range is not known yet. If the usual ones turn out to be so much
        smaller that their digits are lost, nothing can be inferred from the sums of the task.
        """
        if self.usual_sizes is None or not evidence.rounds:
            return
        size = np.sqrt(np.maximum(np.diagonal(evidence.gram), 0.0) / evidence.rounds)
        far = size > MAX_SIZE_RATIO * self.usual_sizes
        if not far.any():
            return
        if prior is None:
            cached = self.entries[name].cached
            with self.prior_state.temporary_changes():
                prior = (
                    self.prior_state.prior_without(name, keep=False)
                    if cached is None
                    else cached.belief.prior
                )
        if prior is not None and not prior.can_update_on(evidence):
            at = int(np.flatnonzero(far)[0])
            raise TaskError(
                f"task {name!r} has learned from contexts so far apart in size that its sums "
                f"cannot hold them (feature {at} is {size[at]:.3g} in the root mean square, and "
                f"usually about {self.usual_sizes[at]:.3g}): delete the task; contexts like the "
                f"largest must be scaled or left out"
            )

    def set_usual_sizes(self, sizes: Array) -> None:
        """Set how large the features usually are, as the model sees them."""
        self.usual_sizes = sizes

    def set_items(self, items: ItemLedger | None) -> None:
        """Set what is known of items, which may be a copy that has learned more."""
        self.items = items

    def cache_belief(
        self, name: str, belief: BaseBelief, alone: bool, stream_key: Any = None
    ) -> None:
        """Cache the belief of a task, as the one used last, and the key of its random streams."""
        entry = self.entries[name]
        cached = entry.cached
        if cached is not None and cached.belief is belief:
            self.cache.touch(name)
            if cached.stream_key is None and stream_key is not None:
                entry.keep_stream_key(stream_key)
            return
        others = self.entries.reward_count - entry.reward_count
        if cached is None:
            task = CachedTask(self.entries.evidence(name), (), belief, alone, others, stream_key)
        else:
            task = cached._replace(belief=belief, alone=alone, other_rewards=others)
        self.changes.commit(*self.cache.steps_to_store(name, task))

    def ready_task(self, entry: TaskEntry) -> CachedTask | None:
        """A cached task, if nothing has to be computed before it chooses.

        That is its belief, the key of its random streams, and the units of features.
        """
        task = entry.cached
        if task is None or task.stream_key is None or self.prior_state.units_test is not False:
            return None
        return task

    def prepare_choice(self, name: str, contexts: Array, *, learn_units: bool) -> PreparedChoice:
        """The belief to choose from if these contexts were on offer; changes no task.

        Also whether the noise is estimated from the task alone and, with ``learn_units``, what the
        contexts have determined of the units of features (:meth:`PriorState.with_offer`).
        """
        cached, offer = self.entries[name].cached, None
        if learn_units and self.prior_state.may_determine_units(contexts):
            offer = self.prior_state.with_offer(contexts, update=cached is None)
            if cached is None or offer[1]:
                return *self.compute_belief(name, offer[0]), offer
        elif cached is None:
            return *self.compute_belief(name), None
        return cached.belief, cached.alone, offer

    def record_belief(
        self, name: str, prepared_choice: PreparedChoice, stream_key: Any, is_frozen: bool
    ) -> None:
        """Cache the belief that a choice was made from, and reopen its task if it was closed.

        Nothing is done with a closed task of a frozen bandit.
        """
        belief, alone, offer = prepared_choice
        closed = name in self.prior_state.closed
        if offer is not None:
            self.adopt_offer(*offer)
        if not (closed and is_frozen):
            if closed:
                self.reopen(name)
            self.cache_belief(name, belief, alone, stream_key)

    def count_choices(self, entry: TaskEntry, count: int) -> int:
        """Count choices of a task; returns the number of the first."""
        first = entry.next_number
        if not entry.count_choices(count, self.entries.epoch, self.choice_window):
            for _ in range(count):
                windows = entry.windows_after_choice(self.entries.epoch, self.choice_window)
                self.changes.commit((entry.set_windows, *windows))
        return first

    def count_offer(self, name: str, labels: Any, allowed: Any, *, is_frozen: bool) -> None:
        """Note which items were on offer to a task."""
        if self.items is not None and labels and not is_frozen:
            steps = self.items.add_offer(name, labels, allowed)
            if steps:
                self.changes.commit(*steps)

    def adopt_offer(self, prior_state: PriorState, new_units: bool) -> None:
        """Keep the units of features that contexts on offer have determined."""
        steps = self.prior_state.steps_to_adopt(prior_state)
        if new_units:  # the other beliefs do not know them
            steps += self.cache.steps_to_clear()
        self.changes.commit(*steps)

    def learn_all(self, batch: Sequence[RewardedChoice]) -> None:
        """Learn from rewards that were checked: once this has begun, from all of them."""
        self.batch_done = self.batch_failures = 0
        self.batch = batch
        self.finish_batch()

    def finish_batch(self) -> None:
        """Learn from the rest of a batch."""
        while self.batch_done < len(self.batch):
            try:
                self.learn(self.batch[self.batch_done], self.batch_done + 1)
            except Exception:
                # It may have been a time limit; but what always fails must not be tried whenever
                # the ledger is used.
                self.batch_failures += 1
                if self.batch_failures >= MAX_FAILURES and not self.changes.steps:
                    self.batch = ()
                raise
        self.batch = ()

    def learn(self, choice: RewardedChoice, batch_done: int = 0) -> None:
        """Learn from one reward and mark its choice, or change nothing.

        ``batch_done`` is how many choices of a batch are then learned from.
        """
        name, epoch, number, _, _, forced, item = choice
        entry = self.entries[name]
        before, count = entry.cached, entry.reward_count + 1
        packed, cached, item_steps, weight = None, None, None, 1.0
        if self.items is not None and item is not None:
            weight, choice, item_steps = item_round(self.items, choice)
        if before is None:
            belief = self.compute_belief(name)[0] if self.rewards.needs_belief else None
            context, reward = self.rewards.linearize(belief, *choice[3:5], weight)
            evidence = entry.evidence(self.entries.dim).discount(self.decay)
            packed = evidence.add_unchecked(context, reward, forced, weight).pack()
        else:
            cached = task_after_round(self, before, choice, count, weight)
        windows = entry.windows_after(epoch, number, self.choice_window)
        closed = name in self.prior_state.closed
        steps = self.prior_state.steps_to_change(name) if closed else None
        if item_steps is not None:
            steps = [*(steps or ()), *item_steps]
        if entry.cached is not before or entry.reward_count + 1 != count:
            raise HeadstartError(
                f"task {name!r} was changed by another call while it was learning (did a signal "
                f"handler use the bandit?): nothing was learned from this reward, try again"
            )
        total = self.entries.reward_count + 1
        update = entry, packed, cached, count, windows, total
        if steps is None and not batch_done:
            self.changes.commit_one(self.entries.put_round, update)
        else:
            last_step = (setattr, self, "batch_done", batch_done)
            self.changes.commit((self.entries.put_round, update), *(steps or ()), last_step)
        # By the number of this choice and not of the latest one: several may be made at a time.
        count = number + 1 - entry.first_number
        refreshes = count & (count - 1) == 0 and refresh_count(count) > refresh_count(count - 1)
        if refreshes and cached is not None:
            self.refresh_if_grown(name, cached)

    def refresh_if_grown(self, name: str, cached: CachedTask) -> None:
        """Take the newest prior if the other tasks have learned much since the present one."""
        others = self.entries.reward_count - self.entries[name].reward_count
        has_learned = has_grown(others, cached.other_rewards)
        if has_learned and self.prior_state.transfer.counts_running:
            with contextlib.suppress(TaskError):  # the belief stays if no other can be computed
                self.cache_belief(name, *self.compute_belief(name))

    def close(self, name: str, state: Any = None) -> None:
        """Fold a task into the prior, once however often it is called.

        ``state`` is the transfer's state with the task, if it was computed before.
        """
        if name in self.prior_state.closed:
            return
        belief = self.closing_belief(name)
        steps = self.prior_state.steps_to_close(name, state)
        if self.items is not None and belief is not None:
            steps += self.items.steps_to_close(name, belief)
        steps += self.cache.steps_to_close(name, keep=self.prior_state.transfer.removes_exactly)
        self.changes.commit(*steps)
        self.prior_state.find_units_test()  # so that it does not delay the next choice

    def closing_belief(self, name: str) -> BaseBelief | None:
        """The belief of a task, where the vectors of items learn from it."""
        if self.items is None:
            return None
        with self.prior_state.temporary_changes():
            return self.belief(name)

    def reopen(self, name: str) -> None:
        """Reopen a closed task: its evidence is removed from the prior until it is closed again."""
        if name in self.prior_state.closed:
            items = [] if self.items is None else self.items.steps_to_reopen(name)
            self.changes.commit(*self.prior_state.steps_to_reopen(name), *items)

    def delete(self, name: str) -> None:
        """Remove a task and what it contributed to the prior."""
        self.changes.commit(
            *self.prior_state.steps_to_delete(name),
            *([] if self.items is None else self.items.steps_to_delete(name)),
            (self.cache.discard, name),
            (self.entries.remove, name),
        )

    def refresh(self, name: str) -> None:
        """Give a running task the newest prior."""
        if name not in self.prior_state.closed:
            self.cache_belief(name, *self.compute_belief(name))
