"""How much each task counts in the statistics of items: when it is computed, and what follows.

It is computed at 1, 2, 4, … rewards of a task, at once if it falls by half, and when the task is
closed; and that of all tasks when V or the number of changes has changed much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from headstart.bandit.ledger.task_items import TaskItems
from headstart.features.items.influence import influence, settled_variance, squared_change
from headstart.features.items.table import ItemTable, ItemUpdate, RewardSums

COMPARED = 2  # tasks that the first reward of another task is compared with

Weights = list[tuple[TaskItems, float]]  # tasks, and how much each is to count


def change_of(
    task: TaskItems, reward: float, tasks: Mapping[str, TaskItems], compared: Sequence[str]
) -> tuple[float, float]:
    """Half the square of the change to a reward from the latest one of its task.

    Of the first reward of a task, from the nearest of two other tasks: one of them may be odd. With
    only one of them, it is the second number: a doubt until the task's next reward.
    """
    if task.last is not None:
        return squared_change(reward, task.last), 0.0
    found = [tasks[name] for name in compared if name in tasks]
    changes = [squared_change(reward, other.last) for other in found if is_usual(other.influence)]
    if len(changes) == COMPARED:
        return min(changes), 0.0
    return 0.0, sum(changes)


def compared_after(
    name: str, task: TaskItems, weight: float, compared: tuple[str, ...]
) -> tuple[str, ...]:
    """The tasks to compare first rewards with, after a reward of a task that counts so much."""
    if task.last is not None or not is_usual(weight):
        return compared
    return (*(other for other in compared if other != name), name)[-COMPARED:]


def is_usual(weight: float) -> bool:
    """Whether a task that counts so much is one to compare others with."""
    return weight >= 0.5


def next_weights(
    table: ItemTable,
    tasks: Iterable[TaskItems],
    task: TaskItems,
    own: RewardSums,
    doubt: float = 0.0,
) -> Weights:
    """How much a task is to count once its rewards have these sums.

    With ``tasks``, which are all, also how much these are to, under the V that follows.
    """
    variance, known, others = table.totals.variance, list(tasks), Weights()
    if known:
        sums = np.array([(each.totals.change_squares, each.totals.changes) for each in known])
        rest = table.forgotten.change_squares, table.forgotten.changes
        variance = settled_variance(sums[:, 0], sums[:, 1], rest, variance)
        new = influence(sums[:, 0], sums[:, 1], variance).tolist()
        others = [pair for pair in zip(known, new, strict=True) if pair[0] is not task]
    squares, changes = own.change_squares + doubt, own.changes + (doubt > 0.0)
    weight = float(influence(squares, changes, variance))
    is_due = int(own.rewards).bit_length() > int(task.totals.rewards).bit_length()
    if not (is_due or known or weight < 0.5 * task.influence):
        weight = task.influence
    return [(task, weight), *others]


def weigh_again(table: ItemTable, weights: Weights) -> tuple[dict[str, ItemUpdate], RewardSums]:
    """The items of tasks and the totals, if the tasks count as much as is given with them.

    With several tasks, which are then all, totals are added up anew: differences would hold only
    the rounding of rewards that are larger by many orders of magnitude.
    """
    is_complete, updates = len(weights) > 1, dict[str, ItemUpdate]()
    totals = table.forgotten if is_complete else table.totals
    for task, weight in weights:
        more = weight - task.influence
        if is_complete or more:
            totals = totals.add(task.totals, weight if is_complete else more)
        if more:
            for key, pair in task.pairs.items():
                count, total = (updates.get(key) or table.count_and_sum(key))[:2]
                updates[key] = ItemUpdate(count + more * pair.weight, total + more * pair.share)
    return updates, totals
