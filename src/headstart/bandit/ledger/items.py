"""What tasks have contributed to the statistics of items: learned, folded, and removed again.

A reward counts for the item at once. The item's vector learns when the task is closed, from all
rewards since it was closed last; a late reward of a closed task is folded by the loading that the
task was closed with. Offers count from the next reward on, of whichever task, so that the decisions
in between rest on the same state. What a task has contributed is kept, so that it can be deleted.
"""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.bandit.ledger.changes import Step
from headstart.bandit.ledger.influences import (
    change_of,
    compared_after,
    next_weights,
    weigh_again,
)
from headstart.bandit.ledger.task_items import NO_REWARDS, Pair, TaskItems
from headstart.bandit.rewards import RewardModel
from headstart.features.conversion import Features
from headstart.features.items.influence import Settled, influence
from headstart.features.items.own import OwnColumn
from headstart.features.items.repeats import Repeats, effective_count, first_error, own_share
from headstart.features.items.table import (
    COLUMN_NAMES,
    MIN_COUNT,
    OWN,
    ItemTable,
    ItemUpdate,
    RewardSums,
)
from headstart.features.items.vectors import RANK, Loading
from headstart.features.schema.encoder import Columns
from headstart.features.schema.rows import item_key
from headstart.model.base import BaseBelief
from headstart.records import Array

MAX_WAITING = 4096  # offers that wait for a reward


class ItemLedger:
    """The statistics of items, and what each task has contributed.

    Parameters
    ----------
    features
        The columns of rows; the last of them are those of items.
    action_columns
        The columns that are of actions alone.
    number_columns
        Those of them whose origin is arbitrary.
    rewards
        What rewards are.
    """

    def __init__(
        self,
        features: Features,
        action_columns: Columns,
        number_columns: npt.NDArray[np.intp],
        rewards: RewardModel,
    ) -> None:
        self.rewards = rewards
        self.table = ItemTable()
        self.tasks: dict[str, TaskItems] = {}
        self.waiting: list[tuple[str, list[str]]] = []  # offers that do not count yet
        self.compared: tuple[str, ...] = ()  # tasks with which first rewards of others are compared
        self.features = features
        self.action_columns, self.number_columns = action_columns, number_columns
        self.first_column = features.context_dim - len(COLUMN_NAMES)
        self.field_count = len(number_columns)
        self.own = OwnColumn(self.first_column + OWN, not rewards.needs_belief)
        self.vector_columns = slice(features.context_dim - RANK, features.context_dim)

    def copy(self) -> ItemLedger:
        """A copy that shares no mutable state."""
        clone = copy.copy(self)
        clone.table = self.table.copy()
        clone.tasks = {name: task.copy() for name, task in self.tasks.items()}
        clone.waiting = self.waiting.copy()
        return clone

    def restore(
        self,
        table: ItemTable,
        tasks: dict[str, TaskItems],
        waiting: list[tuple[str, list[str]]],
        compared: tuple[str, ...],
    ) -> None:
        """Set everything to what was read from a file, before any call."""
        self.table, self.tasks, self.waiting, self.compared = table, tasks, waiting, compared

    def forget_tasks(self) -> None:
        """Forget what each task has contributed: it stays for good."""
        self.tasks.clear()
        self.table.forgotten = self.table.totals

    def write(self, name: str, labels: Sequence[Any], table: Array) -> None:
        """Write what is known of items into the rows on offer to a task."""
        keys = [label if type(label) is str else item_key(label) for label in labels]
        self.write_columns(self.tasks.get(name), keys, table)

    def write_columns(self, task: TaskItems | None, keys: Sequence[str], table: Array) -> None:
        """Write the columns of items into rows on offer to a task, if it is known."""
        columns = self.table.columns(keys)
        if task is not None and self.table.totals.repeats.rho > 0.0:
            self.mix_own_rewards(task, keys, columns, table)
        table[:, self.first_column :] = columns

    def write_rounds(
        self,
        keys: Sequence[str],
        rewards: Sequence[float],
        weights: Sequence[float],
        table: Array,
    ) -> None:
        """Write what is known of items into the rows of a task that nothing is learned from.

        Each is written as the rounds before it have shown the task its items.
        """
        task = TaskItems()
        for key, reward, weight, row in zip(keys, rewards, weights, table, strict=True):
            self.write_columns(task, [key], row[None])
            pair = task.pairs.get(key, NO_REWARDS)
            task.pairs[key] = Pair(pair.rewards + weight, pair.total + weight * reward)
            more, doubt = self.sums_of_reward(task, row, reward, weight, Repeats())
            own = task.totals.add(more)
            task.set_state(own, reward, next_weights(self.table, (), task, own, doubt)[0][1])

    def mix_own_rewards(
        self, task: TaskItems, keys: Sequence[str], columns: Array, table: Array
    ) -> None:
        """Replace what is known of items by the task's own rewards of them, by their share.

        ``columns`` are those of the items, and ``table`` holds those of the actions.
        """
        if task.pairs.keys().isdisjoint(keys):
            return
        pairs = list(map(task.pairs.get, keys, itertools.repeat(NO_REWARDS)))
        counts = np.fromiter(map(operator.itemgetter(0), pairs), np.float64, len(pairs))
        sums = np.fromiter(map(operator.itemgetter(1), pairs), np.float64, len(pairs))
        own = own_share(counts, self.table.totals.repeats.rho)
        rest = 1.0 - own
        columns[:, 0] *= rest
        columns[:, 2:] *= rest[:, None]
        columns[:, OWN] = own * (sums / np.maximum(counts, 1.0) - self.own_level(task))
        table[:, self.action_columns] *= rest[:, None]
        table[:, self.number_columns] += own[:, None] * task.totals.mean_fields

    def add_offer(self, name: str, labels: Sequence[Any], allowed: Any = None) -> list[Step]:
        """Note that items were on offer to a task; how to count those that have waited too long."""
        labels_on_offer = labels if allowed is None else itertools.compress(labels, allowed)
        keys = [label if type(label) is str else item_key(label) for label in labels_on_offer]
        self.tasks.setdefault(name, TaskItems())
        self.waiting.append((name, keys))
        return self.steps_to_count() if len(self.waiting) >= MAX_WAITING else []

    def steps_to_count(self) -> list[Step]:
        """How to count the offers that have waited."""
        if not self.waiting:
            return []
        offers = self.table.offers
        every = list(itertools.chain.from_iterable(keys for _, keys in self.waiting))
        by_task: dict[str, list[str]] = {}
        for name, keys in self.waiting:
            by_task.setdefault(name, []).extend(keys)
        steps: list[Step] = [(offers.put, *offers.after(every))]
        for name, keys in by_task.items():
            own = self.tasks[name].offers
            steps.append((own.put, *own.after(keys)))
        return [*steps, (setattr, self, "waiting", [])]

    def sums_of_reward(
        self, task: TaskItems, row: Array, reward: float, weight: float, repeats: Repeats
    ) -> tuple[RewardSums, float]:
        """What one more reward adds to the sums of a task, and what is doubtful of it."""
        change, doubt = change_of(task, reward, self.tasks, self.compared)
        sums = weight, weight * reward, weight * reward**2, repeats, change, float(change > 0.0)
        return RewardSums(*sums, weight * row[self.number_columns]), doubt

    def own_level(self, task: TaskItems) -> float:
        """m₀, the mean reward of a task, shrunken towards that of all rewards."""
        return (task.totals.total + self.table.totals.mean) / (task.totals.rewards + 1.0)

    def steps_to_learn(
        self,
        name: str,
        key: str,
        row: Array,
        reward: float,
        *,
        weight: float = 1.0,
        is_encoded: bool = False,
    ) -> tuple[float, list[Step]]:
        """How to add a reward of an item in a task, which counts ``weight`` times.

        Also the number of first rewards that it is worth: the weight of its round, but where the
        linear model is not one of rewards, whose noise is known. The row is as the model sees it
        or, if ``is_encoded``, as the encoder gave it.
        """
        task = self.tasks.get(name) or TaskItems()
        table, pair = self.table, task.pairs.get(key, NO_REWARDS)
        task_sums = task.totals.rewards, task.totals.total
        item_sums = table.count_and_sum(key)
        error = first_error(reward, item_sums, task_sums, table.totals.mean)
        is_rough = item_sums[0] < 1.0
        repeats = Repeats.of_reward(
            pair.rewards, pair.total, reward, error, weight, is_rough=is_rough
        )
        encoded_row = row if is_encoded else self.features.original_row(row)
        increment, doubt = self.sums_of_reward(task, encoded_row, reward, weight, repeats)
        own = task.totals.add(increment)
        is_settled = not table.settled.is_old(table.totals.variance, table.totals.changes)
        known = () if is_settled else self.tasks.values()
        weights = next_weights(table, known, task, own, doubt)
        updates, totals = weigh_again(table, weights)
        ratio = weights[0][1]
        totals = totals.add(increment, ratio)
        settled = table.settled if is_settled else Settled(totals.variance, totals.changes)
        count, total = pair.rewards + weight, pair.total + weight * reward
        effective = effective_count(count, totals.repeats.rho)
        share, gain = effective * total / count, max(effective - pair.weight, 0.0)
        before = updates.pop(key, None) or item_sums
        update = ItemUpdate(
            before[0] + ratio * (effective - pair.weight),
            before[1] + ratio * (share - pair.share),
        )
        target = reward
        if self.own.known and encoded_row[self.own.at]:
            target, encoded_row = reward - float(encoded_row[self.own.at]), encoded_row.copy()
            encoded_row[self.own.at] = 0.0
        sums = count, total, effective, share
        if task.loading is not None:
            more = self.contribution(task.loading, encoded_row, target, gain)
            precision, moment = table.precision_and_moment(key)
            update = update._replace(precision=precision + more[0], moment=moment + more[1])
            new_pair = Pair(
                *sums,
                *pair[4:7],
                more[0] if pair.precision is None else pair.precision + more[0],
                more[1] if pair.moment is None else pair.moment + more[1],
            )
        else:
            pending_row = 0.0 if pair.pending_row is None else pair.pending_row
            new_pair = Pair(
                *sums,
                pair.pending_weight + gain,
                pair.pending_total + gain * target,
                pending_row + gain * encoded_row,
                pair.precision,
                pair.moment,
            )
        return gain if self.own.known else weight, [
            *self.steps_to_count(),
            (self.tasks.setdefault, name, task),
            *((table.put, other, known) for other, known in updates.items()),
            (task.pairs.__setitem__, key, new_pair),
            (setattr, self, "compared", compared_after(name, task, ratio, self.compared)),
            *((other.set_state, other.totals, other.last, new) for other, new in weights[1:]),
            (task.set_state, own, reward, ratio),
            (setattr, table, "settled", settled),
            (table.put, key, update),
            (table.set_totals, totals),
        ]

    def steps_to_close(self, name: str, belief: BaseBelief) -> list[Step]:
        """How to let the vectors of items learn from a task that is closed with this belief."""
        task = self.tasks.get(name) or TaskItems()
        own, table = task.totals, self.table
        weight = float(influence(own.change_squares, own.changes, table.totals.variance))
        loading = Loading.of(belief, self.features, self.vector_columns, weight)
        updates, totals = weigh_again(table, [(task, weight)])
        steps: list[Step] = [
            (self.tasks.setdefault, name, task),
            *((table.put, key, update) for key, update in updates.items()),
            (task.set_state, own, task.last, weight),
            (task.set_loading, loading),
            (table.set_totals, totals),
        ]
        for key, pair in task.pairs.items():
            if pair.pending_row is None:
                continue
            new_pair = pair._replace(pending_weight=0.0, pending_total=0.0, pending_row=None)
            if pair.pending_weight > 0:
                count = pair.pending_weight
                row, reward = pair.pending_row / count, pair.pending_total / count
                precision, moment = self.contribution(loading, row, reward, count)
                before = table.precision_and_moment(key)
                known = updates.get(key) or table.count_and_sum(key)
                update = ItemUpdate(*known[:2], before[0] + precision, before[1] + moment)
                steps.append((table.put, key, update))
                if pair.precision is not None and pair.moment is not None:
                    precision, moment = precision + pair.precision, moment + pair.moment
                new_pair = new_pair._replace(precision=precision, moment=moment)
            steps.append((task.pairs.__setitem__, key, new_pair))
        return steps

    def close_all(self, features: Features, belief: Callable[[str], BaseBelief]) -> None:
        """Let the vectors of items learn from all tasks of a fit, which may have new features.

        Only for a copy that is not in use yet: an interrupt leaves it incomplete.
        """
        self.features = features
        for name in self.tasks:
            for function, *arguments in self.steps_to_close(name, belief(name)):
                function(*arguments)

    def contribution(
        self, loading: Loading, row: Array, reward: float, weight: float
    ) -> tuple[Array, Array]:
        """What rounds with this mean row and mean reward add to P and H of their item."""
        target, share = self.rewards.working_reward(float(loading.mean @ row), reward)
        return loading.contribution(row, target, share * weight)

    def steps_to_reopen(self, name: str) -> list[Step]:
        """How to let a closed task run on: later rewards wait until it is closed again."""
        task = self.tasks.get(name)
        return [] if task is None else [(task.set_loading, None)]

    def steps_to_delete(self, name: str) -> list[Step]:
        """How to remove a task, and what it has contributed."""
        task = self.tasks.get(name)
        if task is None:
            return []
        table, steps = self.table, []
        for key, pair in task.pairs.items():
            count, total = table.count_and_sum(key)
            update = ItemUpdate(
                count - task.influence * pair.weight, total - task.influence * pair.share
            )
            if pair.precision is not None and pair.moment is not None:
                precision, moment = table.precision_and_moment(key)
                update = update._replace(
                    precision=precision - pair.precision, moment=moment - pair.moment
                )
            steps.append((table.put, key, update))
        totals = table.totals.add(task.totals, -task.influence)
        if totals.rewards <= MIN_COUNT * table.totals.rewards:
            totals = RewardSums()  # without the rounding of differences
        waiting = [each for each in self.waiting if each[0] != name]
        return [
            *steps,
            (table.offers.put, *table.offers.without(task.offers)),
            (setattr, self, "waiting", waiting),
            (table.set_totals, totals),
            (self.tasks.pop, name, None),
        ]

    def learn_rows(
        self,
        names: Sequence[str],
        rewards: Array,
        weights: Array,
        labels: Sequence[Any],
        table: Array,
        *,
        write: bool = True,
    ) -> Array:
        """Learn from logged rounds, in their order, and write what was known before each.

        Without ``write``, rows are taken as they are. A round counts as often as its weight says,
        but as one offer; one of weight 0 is left out. Returned are the weights with which rounds
        are evidence. Only for a copy that is not in use yet: an interrupt leaves it incomplete.
        """
        worth = weights.copy()
        for at, (name, label, row) in enumerate(zip(names, labels, table, strict=True)):
            if write:
                self.write(name, [label], row[None])
            if not weights[at] > MIN_COUNT:
                continue
            self.add_offer(name, [label])
            reward = float(rewards[at])
            padded = np.append(row, 1.0) if self.features.intercept else row
            worth[at], steps = self.steps_to_learn(
                name, item_key(label), padded, reward, weight=float(weights[at]), is_encoded=True
            )
            for function, *arguments in steps:
                function(*arguments)
        return worth
