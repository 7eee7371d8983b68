"""Rewards of 0 and 1 in logs: rows are kept in memory, for they are looked at in several passes.

The sums of a logistic model depend on the beliefs that rewards are expanded around, so one pass
over the rows is not enough, as it is for a linear model.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from headstart import checks
from headstart.bandit.fitting import TaskRows, fit_clicks, rows_by_task, sums_by_task
from headstart.bandit.rewards import Binary
from headstart.errors import InputError
from headstart.fleet.engines.threads import Progress
from headstart.fleet.fit import LEAST, Fitted
from headstart.fleet.reading.logs import Logs
from headstart.fleet.summing.passes import Units
from headstart.fleet.summing.shards import Partition
from headstart.fleet.summing.summary import ReadSummary, oddities
from headstart.fleet.target import Target
from headstart.records import Array
from headstart.storage.atomic import PathLike
from headstart.transfer import EmpiricalBayes, Transfer
from headstart.transfer.pooled_fit import pool
from headstart.transfer.task_order import ordered_partitions

__all__ = ["fit_click_logs"]


def fit_click_logs(
    logs: Logs,
    transfer: Transfer | None = None,
    *,
    intercept: bool = True,
    standardize: bool = True,
    out: PathLike | None = None,
    keep_tasks: bool = False,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Fitted:
    """Learn a prior from logs whose rewards are 0 or 1, for ``Bandit(reward="binary")``.

    Rows are read once and kept in memory. The rewards of every task are expanded around its
    posterior in three passes (:func:`headstart.bandit.fitting.fit_clicks`), so that the order of
    rows does not matter.

    Parameters
    ----------
    logs, transfer, intercept, standardize, out, keep_tasks, progress
        As for :func:`headstart.fleet.fit`.
    memory
        Bytes of memory that the features of all rows may take (2 GiB).
    """
    if not isinstance(logs, Logs):
        raise checks.refuse("logs", "headstart.fleet.Logs", logs)
    if logs.columns.schema is not None and logs.columns.schema.identity:
        raise InputError(
            "schema must not have identity=True to fit logs: set it to false, make the id a "
            "category, or fit rows in memory with Bandit.fit"
        )
    transfer = EmpiricalBayes() if transfer is None else transfer
    if not isinstance(transfer, Transfer) or transfer.keeps_forced:
        want = "a Transfer that learns from all rounds, such as headstart.Subspace()"
        raise checks.refuse("transfer", want, transfer)
    intercept, standardize, keep_tasks = (
        checks.flag(name, value)
        for name, value in (
            ("intercept", intercept),
            ("standardize", standardize),
            ("keep_tasks", keep_tasks),
        )
    )
    memory = checks.integer("memory", memory, LEAST)
    target = None if out is None else Target(out, logs)
    start = time.perf_counter()
    logs, transfer = logs.for_fit(intercept), transfer.with_constant(intercept)
    rows, summary = read_rows(logs, memory, progress)
    if not len(rows.rewards):
        raise summary.nothing(logs.columns)
    names, packed = sums_by_task(rows, 1.0)
    partitions, ids = ordered_partitions(names, packed, logs.width)
    given = pool(partitions)
    odd = oddities(logs.feature_names, intercept, given, summary.sampled)
    if progress is not None:
        progress("fitting", 0.0, 1.0)
    fit = fit_clicks(transfer, rows_by_task(rows, 1.0), given, intercept, standardize)
    if progress is not None:
        progress("fitting", 1.0, 1.0)
    fitted = Fitted(
        transfer=transfer,
        noise=None,
        state=fit.state,
        pooled=fit.pooled,
        units=None if fit.units is None else Units(*fit.units),
        intercept=intercept,
        tasks=len(names),
        rows=summary.rows,
        bad=summary.bad,
        weightless=summary.weightless,
        feature_names=logs.feature_names,
        seconds=time.perf_counter() - start,
        kept=kept_tasks(ids, fit.partitions) if keep_tasks else None,
        notes=(
            *summary.notes(len(names), float(given.rounds), logs.share),
            *logs.survey().copies,
            *odd,
        ),
        reward="binary",
        schema=logs.columns.schema,
    )
    if target is not None:
        target.write(fitted.bandit())
    return fitted


def kept_tasks(ids: list[list[str]], partitions: Any) -> list[Partition]:
    """The tasks' ids and evidence, as a fit keeps them."""
    return [
        Partition(pa.array(names, pa.large_string()), partitions.rows(at))
        for at, names in enumerate(ids)
    ]


def read_rows(logs: Logs, memory: int, progress: Progress | None) -> tuple[TaskRows, ReadSummary]:
    """All rows of logs that count, and what was read."""
    summary, parts = ReadSummary(), logs.parts()
    ids, contexts, rewards, weights = [], [], [], []
    check_room(memory - sum(part.rows or 0 for part in parts) * 8 * logs.width, memory)
    by_rows = all(part.rows is not None for part in parts)
    amounts = [float((part.rows if by_rows else part.bytes) or 0) for part in parts]
    room = memory
    for place, part in enumerate(parts):
        for block in logs.read(part):
            summary.count(block)
            chosen = block if block.chosen is None else block.take(block.chosen)
            contexts.append(np.array(chosen.features, dtype=np.float64))
            room -= contexts[-1].nbytes
            check_room(room, memory)
            check_clicks(chosen.rewards, logs)
            ids.append(np.array(chosen.names, dtype=object)[chosen.codes])
            rewards.append(chosen.rewards)
            weights.append(np.ones(chosen.count) if chosen.weights is None else chosen.weights)
        summary.parts.append(part.key)
        if progress is not None:
            progress("reading", sum(amounts[: place + 1]), sum(amounts))
    none: Any = [np.zeros(0)]
    table = np.concatenate(contexts or [np.zeros((0, logs.width))])
    every: Any = np.concatenate(ids or none)
    values, counts = np.concatenate(rewards or none), np.concatenate(weights or none)
    return TaskRows(every, table, values, counts, logs.feature_names), summary


def check_room(room: int, memory: int) -> None:
    """Refuse rows that do not fit into memory."""
    if room < 0:
        raise InputError(
            f"rows with binary rewards are kept in memory, and take more than the "
            f"{memory / 2**30:.1f} GiB allowed: raise memory (--memory), fit some of the tasks, "
            f"or fit the rewards as numbers (--reward-model number)"
        )


def check_clicks(rewards: Array, logs: Logs) -> None:
    """Refuse rewards other than 0 and 1."""
    try:
        Binary().read_many(rewards)
    except InputError as error:
        raise InputError(f"column {logs.columns.reward!r}: {error}") from None
