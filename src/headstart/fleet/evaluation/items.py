"""Items known by their ids in an evaluation: what past tasks have shown of them.

The rows of past tasks are learned from in the order of time, each with what was known of its item
before it. The rows of future tasks have what all past tasks have shown, and what the task itself
has met before.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headstart.bandit.ledger.items import ItemLedger, Pair, TaskItems
from headstart.bandit.offline.fitting import sums_by_task
from headstart.bandit.rewards import RewardModel
from headstart.features.conversion import Features
from headstart.features.items.table import COLUMN_NAMES, Totals
from headstart.features.schema.encoder import Encoder
from headstart.fleet.evaluation.sample import Columns, Sample, take_rows
from headstart.fleet.evaluation.sampling import Split
from headstart.fleet.item_fit import ItemRows, learn_items
from headstart.model.evidence import packed_size
from headstart.records import Array
from headstart.transfer import Transfer

__all__ = ["with_items"]


def with_items(
    split: Split | None,
    sample: Sample,
    encoder: Encoder,
    model: RewardModel,
    transfer: Transfer,
    standardize: bool,
) -> Sample:
    """The sample of a split with the columns of items; without a split, all tasks are the past."""
    rows, intercept = sample.rows, sample.intercept is not None
    assert rows is not None
    places = np.arange(len(sample.keys)) if split is None else split.past
    use = np.isin(rows["key"], sample.keys[places])
    if split is not None and sample.cut is not None:
        use &= rows["when"] < sample.cut
    order = np.lexsort((rows["order"], rows["when"]))
    order = order[use[order]]
    past = take_rows(rows, order)
    tasks = np.array([str(key) for key in past["key"].tolist()], dtype=object)
    fields = past["features"][:, : encoder.width].astype(np.float64)
    known = ItemRows(tasks, past["item"], fields, past["reward"], past["weight"], past["when"])
    learned = learn_items(encoder, known, transfer, None, model, intercept, standardize)
    contexts, dim = learned.rows.contexts, learned.rows.contexts.shape[1]
    features = np.zeros((len(rows["key"]), dim))
    features[order] = contexts
    evidence = np.zeros((len(sample.keys), packed_size(dim)))
    names, packed = sums_by_task(learned.rows, 1.0)
    keys = np.array([int(name) for name in names], np.uint64)
    evidence[np.searchsorted(sample.keys, keys)] = packed
    episodes = np.zeros((*sample.episodes.rewards.shape, dim))
    for place in [] if split is None else split.future.tolist():
        first = int(np.searchsorted(rows["key"], sample.keys[place]))
        own = take_rows(rows, np.arange(first, first + int(sample.episodes.lengths[place])))
        episodes[place, : len(own["key"])] = future_rows(learned.items, own, encoder, intercept)
    return dataclasses.replace(
        sample,
        dim=dim,
        intercept=dim - 1 if intercept else None,
        evidence=evidence,
        early=evidence,
        episodes=sample.episodes._replace(features=episodes),
        rows={**rows, "features": features},
    )


def future_rows(items: ItemLedger, own: Columns, encoder: Encoder, intercept: bool) -> Array:
    """The rows of one task that nobody has learned from, each with what the task has met before."""
    fields = own["features"][:, : encoder.width].astype(np.float64)
    table = np.hstack([fields, np.zeros((len(fields), len(COLUMN_NAMES)))])
    name, task = "", TaskItems()
    items.tasks[name] = task
    for key, reward, row in zip(own["item"], own["reward"].tolist(), table, strict=True):
        items.write(name, [key], row[None])
        pair = task.pairs.get(key, Pair())
        task.pairs[key] = pair._replace(rewards=pair.rewards + 1.0, total=pair.total + reward)
        task.set_state(task.totals.add(Totals(1.0, reward, reward**2)), None)
    del items.tasks[name]
    return Features(table.shape[1], intercept=intercept).transform(table)
