"""Logs whose items are known by their ids: rows are kept in memory and learned from in their order.

What is known of an item at a row is what the rows before it have shown, as in
:meth:`headstart.Bandit.fit`. With a timestamp this is the order of time, whatever file a row is in;
otherwise it is the order of files and rows.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.bandit.ledger.items import ItemLedger, new_items
from headstart.bandit.offline.fitting import TaskRows, close_items, fit_task_rows, fitted_features
from headstart.bandit.offline.observation import weighted_sums
from headstart.bandit.rewards import RewardModel, reward_model
from headstart.errors import InputError
from headstart.features.conversion import Features
from headstart.features.items.table import COLUMN_NAMES
from headstart.features.schema.encoder import Encoder
from headstart.fleet.click_fit import check_clicks, task_evidence
from headstart.fleet.engines.threads import Progress
from headstart.fleet.fitted import Fitted, Plan
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.summary import ReadSummary, column_notes
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.transfer.pooled_fit import PooledFit

__all__ = ["ItemRows", "LearnedItems", "fit_item_logs", "learn_items"]

COPIES = 5  # arrays of the size of all features that there are at a time
OVERHEAD = 1000  # bytes of what is kept of a row beside its features

Texts = npt.NDArray[np.object_]


def fit_item_logs(plan: Plan, *, memory: int, progress: Progress | None) -> Fitted:
    """Learn a prior and what is known of items from logs."""
    logs, schema, encoder = plan.logs, plan.logs.columns.schema, plan.logs.columns.encoder
    assert schema is not None
    assert encoder is not None
    logs = logs.replace(lenient=False)  # times are more than a help to find repeated rows
    model = reward_model(plan.reward, False)
    rows, summary = read_rows(logs, memory, model.needs_belief, progress)
    if not len(rows.rewards):
        raise summary.nothing(logs.columns)
    rows = rows.in_time() if logs.columns.timestamp is not None else rows
    learned = learn_items(
        encoder, rows, plan.transfer, plan.noise, model, logs.intercept, plan.standardize
    )
    plan.check_room(len(learned.fit.partitions), learned.rows.contexts.shape[1])
    report(progress, 1.0)
    fields = Features(logs.dim, intercept=logs.intercept).transform(rows.table)
    given = weighted_sums(fields, rows.rewards, rows.weights)[0]
    notes = column_notes(logs.feature_names, logs.intercept, given, summary.sampled)
    if logs.columns.timestamp is None:
        notes.append(
            "there is no timestamp: what was known of an item at a row follows from the order of "
            "files and rows, which is taken for the order of time"
        )
    kept = functools.partial(task_evidence, learned.ids, learned.fit.partitions)
    fitted = Fitted.of(plan, learned.fit, summary, given, notes, kept)
    return fitted._replace(feature_names=encoder.feature_names, items=learned.items)


class LearnedItems(NamedTuple):
    """What rows have taught of items: the ledger, the rows with its columns, and their fit.

    ``ids`` are those of the tasks, by partition of the fit.
    """

    items: ItemLedger
    rows: TaskRows
    fit: PooledFit
    ids: list[list[str]]


def learn_items(
    encoder: Encoder,
    rows: ItemRows,
    transfer: Transfer,
    noise: float | None,
    model: RewardModel,
    intercept: bool,
    standardize: bool,
) -> LearnedItems:
    """Learn from rows in their order, as :meth:`headstart.Bandit.fit` does."""
    features = Features(len(encoder.feature_names), encoder.feature_names, intercept)
    items = new_items(encoder, features, model)
    assert items is not None
    table = np.hstack([rows.table, np.zeros((len(rows.table), len(COLUMN_NAMES)))])
    items.learn_rows(rows.tasks.tolist(), rows.rewards, rows.weights, rows.items.tolist(), table)
    contexts = features.transform(table)
    known = TaskRows(rows.tasks, contexts, rows.rewards, rows.weights, encoder.feature_names)
    fit, ids = fit_task_rows(transfer, noise, model, known, 1.0, intercept, standardize)
    evidence = {
        name: packed
        for at, names in enumerate(ids)
        for name, packed in zip(names, fit.partitions.rows(at), strict=True)
    }
    close_items(
        items,
        fitted_features(features, fit.units),
        transfer.prior(fit.state),
        lambda name: Evidence.unpack(evidence[name], features.dim),
    )
    return LearnedItems(items, known, fit, ids)


def report(progress: Progress | None, share: float) -> None:
    """Say how much of the fit is done."""
    if progress is not None:
        progress("fitting", share, 1.0)


class ItemRows(NamedTuple):
    """Rows in memory: tasks and items by their ids, the columns of fields, rewards and weights."""

    tasks: Texts
    items: Texts
    table: Array
    rewards: Array
    weights: Array
    times: npt.NDArray[np.int64]

    def in_time(self) -> ItemRows:
        """The rows in the order of time; of one time, in an order that no file decides."""
        ranks = [np.unique(part, return_inverse=True)[1] for part in (self.items, self.tasks)]
        order = np.lexsort((self.rewards, *ranks, self.times))
        return ItemRows._make(part[order] for part in self)


def read_rows(
    logs: Logs, memory: int, is_binary: bool, progress: Progress | None
) -> tuple[ItemRows, ReadSummary]:
    """All rows of logs that are evidence, and what was read."""
    summary, parts = ReadSummary(), logs.parts()
    blocks: list[ItemRows] = []
    cost = COPIES * 8 * (logs.width + len(COLUMN_NAMES)) + OVERHEAD
    count = sum(part.rows or 0 for part in parts)
    check_memory(count, cost, memory)
    amounts = [float(part.bytes) for part in parts]
    for place, part in enumerate(parts):
        for block in logs.replace(intercept=False).read(part):
            summary.count(block)
            rows = block.chosen_rows()
            if is_binary:
                check_clicks(rows.rewards, logs)
            blocks.append(item_rows(rows))
            check_memory(summary.rows, cost, memory)
        summary.parts.append(part.key)
        if progress is not None:
            progress("reading", sum(amounts[: place + 1]), sum(amounts))
    if not blocks:
        empty: Any = np.zeros(0)
        return ItemRows(empty, empty, np.zeros((0, logs.dim)), empty, empty, empty), summary
    return ItemRows._make(map(np.concatenate, zip(*blocks, strict=True))), summary


def item_rows(rows: Rows) -> ItemRows:
    """A block of rows, as they are kept."""
    assert rows.items is not None
    names = np.array(rows.names, dtype=object)
    weights = np.ones(rows.count) if rows.weights is None else rows.weights
    times = np.zeros(rows.count, np.int64) if rows.timestamps is None else rows.timestamps
    return ItemRows(
        names[rows.codes], rows.items, np.asarray(rows.features), rows.rewards, weights, times
    )


def check_memory(rows: int, cost: int, memory: int) -> None:
    """Refuse rows that do not fit into memory."""
    if rows * cost > memory:
        raise InputError(
            f"rows are kept in memory where the schema has identity=True: {rows:,} or more take "
            f"about {rows * cost / 2**30:.1f} GiB, and {memory / 2**30:.1f} GiB are allowed; raise "
            f"memory (--memory), fit some of the tasks, or set identity to false"
        )
