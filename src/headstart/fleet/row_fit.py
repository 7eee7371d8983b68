"""Fits that need the rows of logs and not only their sums: rewards of 0 and 1, items by their ids.

*Rewards of 0 and 1.* The sums of a logistic model depend on the beliefs that rewards are expanded
around, so one pass over the rows is not enough, as it is for a linear model. Rows are read once,
and every block of a log becomes a run (:mod:`headstart.fleet.summing.shards`) in a temporary file.
In every pass the tasks of ranges of hashes are read, and expanded by several threads.

*Items by their ids.* Rows are kept in memory and learned from in their order: what is known of an
item at a row is what the rows before it have shown, as in :meth:`headstart.Bandit.fit`. With a
timestamp this is the order of time, whatever file a row is in; otherwise it is the order of files
and rows.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.optional_items import new_items
from headstart.bandit.offline import fitting
from headstart.bandit.offline.click_fit import CLICK_PASSES, expand_tasks, fit_clicks, no_progress
from headstart.bandit.offline.fitting import OneTask, TaskRows
from headstart.bandit.offline.observation import rounds_of_means, weighted_sums
from headstart.bandit.rewards import RewardModel
from headstart.errors import FileError, InputError
from headstart.features.conversion import Features
from headstart.features.items.table import COLUMN_NAMES
from headstart.features.schema.encoder import Encoder
from headstart.fleet.engines.threads import MapJobs, job_runner
from headstart.fleet.fitted import Fitted, Plan
from headstart.fleet.reading.hashing import hash_ids, id_texts, partition_range, power_of_two
from headstart.fleet.reading.logs import BLOCK_ROWS, Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.shards import (
    Partition,
    chunk_tasks,
    gather_rows,
    group_by_task,
    read_run,
    row_shards,
    write_run,
)
from headstart.fleet.summing.summary import Progress, ReadSummary, column_notes, report_parts
from headstart.fleet.summing.tasks import DiskTasks, MemoryTasks, write_chunks
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.transfer.pooled_fit import PooledFit, pool
from headstart.transfer.standardize import Standardization

CLICK_COPIES = 6  # arrays of the size of the features that are made of rows that are read
SHARDS = 64  # of a run
RANGE_ROWS = 1 << 15  # expanded at a time, about; an interrupt takes effect after them
ITEM_COPIES = 5  # arrays of the size of all features that there are at a time
ROW_OVERHEAD_BYTES = 1000  # bytes of what is kept of a row beside its features

Texts = npt.NDArray[np.object_]


def fit_click_logs(plan: Plan, *, workers: int | None, memory: int, progress: Progress) -> Fitted:
    """Learn a prior from logs whose rewards are 0 or 1, for ``Bandit(reward="binary")``.

    The rewards of every task are expanded around its posterior in a few passes
    (:mod:`headstart.bandit.offline.click_fit`), so that the order of rows does not matter.
    """
    logs, intercept, cores = plan.logs, plan.logs.intercept, workers or os.cpu_count() or 1
    with (
        tempfile.TemporaryDirectory(prefix="headstart-") as folder,
        job_runner(None, cores) as map_jobs,
    ):
        rows = ClickRows(logs, Path(folder), memory // cores, cores, map_jobs, progress)
        summary, given = rows.store(), rows.task_sums()
        pooled = pool(given)
        notes = column_notes(logs.feature_names, intercept, pooled, summary.sampled)
        fit = fit_clicks(
            plan.transfer, rows.expand, given, pooled, intercept, plan.standardize, rows.report
        )
        rows.report(1.0)
        plan.check_room(len(fit.partitions), logs.width)
        return Fitted.of(plan, fit, summary, pooled, notes)


class ClickRows:
    """The rows of logs in temporary files, and the evidence of their tasks in every pass.

    Rows are divided into ``ranges`` of hashes of about equal numbers of tasks, a power of two, so
    that the rows of one range take about ``room`` bytes or less, and that threads share them. The
    evidence of the latest pass is in files beside the rows, one for each range.
    """

    def __init__(
        self,
        logs: Logs,
        folder: Path,
        room: int,
        cores: int,
        map_jobs: MapJobs,
        progress: Progress,
    ) -> None:
        self.logs, self.folder, self.room, self.cores = logs, folder, room, cores
        self.map_jobs, self.progress = map_jobs, progress
        self.runs: list[Path] = []
        self.ranges, self.passes = 1, 0

    def store(self) -> ReadSummary:
        """Read all rows once, and store them: what was read."""
        parts, summary = self.logs.parts(), ReadSummary()
        stored = self.map_jobs(self.store_part, list(enumerate(parts)))
        for runs, read in report_parts(parts, stored, self.progress):
            self.runs += runs
            summary.add(read)
        if not self.runs:
            raise summary.nothing(self.logs.columns)
        needed = CLICK_COPIES * 8 * self.logs.width * summary.rows
        few = min(power_of_two(summary.rows / RANGE_ROWS), SHARDS)  # more would read shards twice
        self.ranges = max(power_of_two(needed / max(self.room, 1)), few)
        return summary

    def store_part(self, job: tuple[int, Part]) -> tuple[list[Path], ReadSummary]:
        """Store the rows of a part, given with its number, that are evidence, a block at a time.

        Gives its runs, and what was read.
        """
        (number, part), logs, runs, summary = job, self.logs, list[Path](), ReadSummary()
        size = max(1024, min(BLOCK_ROWS, self.room // (CLICK_COPIES * 8 * logs.width)))
        blocks = evidence_blocks(logs, part, summary, rows=size)
        for place, (rows, weights) in enumerate(blocks):
            features, ids = np.asarray(rows.features), id_texts(rows.ids)
            columns = rows.codes, rows.rewards, weights, features
            runs.append(self.folder / f"{number}-{place}.arrow")
            with suggest_other_folder():
                write_run(runs[-1], row_shards(hash_ids(ids), ids, *columns, SHARDS))
        return runs, summary

    def report(self, share: float) -> None:
        """Report that a share of the passes is done."""
        self.progress("fitting", share, 1.0)

    def task_sums(self) -> DiskTasks:
        """The sums of contexts and rewards of all tasks, as they are."""
        files = list(self.map_jobs(self.write_range, range(self.ranges), fitting.task_sums))
        return DiskTasks(self.logs.width, files, self.cores)

    def expand(self, prior: Prior, units: Standardization | None) -> DiskTasks:
        """The evidence of all tasks."""
        files = list[Path]()
        sums = partial(expand_tasks, prior=prior, units=units)
        for path in self.map_jobs(self.write_range, range(self.ranges), sums):
            files.append(path)
            self.report((self.passes + 0.5 * len(files) / self.ranges) / CLICK_PASSES)
        self.passes += 1
        return DiskTasks(self.logs.width, files, self.cores)

    def write_range(self, number: int, sums: Callable[[Sequence[OneTask]], Array]) -> Path:
        """Write the sums of the tasks of a range of hashes into a file, in their order."""
        path, dim = self.folder / f"range-{number}.arrow", self.logs.width
        span, step = partition_range(number, self.ranges), chunk_tasks(dim)
        shards = [shard for run in self.runs for shard in read_run(run, *span)]
        order, starts, ids = group_by_task(shards)
        columns = [column[order].astype(np.float64) for column in gather_rows(shards, dim)]
        tasks = [
            OneTask("", *(column[low:high] for column in columns))
            for low, high in itertools.pairwise(starts)
        ]
        pieces = (slice(at, at + step) for at in range(0, len(tasks), step))
        chunks = (Partition(ids[at], sums(tasks[at])) for at in pieces)
        with suggest_other_folder():
            write_chunks(path, chunks)
        return path


@contextlib.contextmanager
def suggest_other_folder() -> Iterator[None]:
    """Say what to do where a temporary file could not be written."""
    try:
        yield
    except FileError as error:
        raise FileError(f"{error}: give a folder with more room (TMPDIR)") from error


def evidence_blocks(
    logs: Logs, part: Part, summary: ReadSummary, rows: int = BLOCK_ROWS
) -> Iterator[tuple[Rows, npt.NDArray[np.float64]]]:
    """Blocks of the rows of a part that are evidence, and their weights; ``summary`` counts all."""
    for block in logs.read(part, rows=rows):
        summary.count(block)
        chosen = block.chosen_rows()
        if chosen.count:
            yield chosen, np.ones(chosen.count) if chosen.weights is None else chosen.weights
    summary.parts.append(part.key)


def fit_item_logs(plan: Plan, *, memory: int, progress: Progress) -> Fitted:
    """Learn a prior and what is known of items from logs."""
    logs, schema, encoder = plan.logs, plan.logs.columns.schema, plan.logs.columns.encoder
    assert schema is not None
    assert encoder is not None
    logs = logs.replace(lenient=False)  # times are more than a help to find repeated rows
    rows, summary = read_rows(logs, memory, progress)
    rows = rows.in_time() if logs.columns.timestamp is not None else rows
    learned = learn_items(
        encoder,
        rows,
        plan.transfer,
        plan.noise,
        logs.rewards,
        logs.intercept,
        plan.standardize,
        lambda share: progress("fitting", share, 1.0),
    )
    names, dim = list(itertools.chain(*learned.ids)), learned.rows.contexts.shape[1]
    plan.check_room(len(names), dim)
    progress("fitting", 1.0, 1.0)
    fields = Features(logs.dim, intercept=logs.intercept).transform(rows.table)
    given = weighted_sums(*rounds_of_means(fields, rows.rewards, rows.counts), rows.weights)
    notes = column_notes(logs.feature_names, logs.intercept, given, summary.sampled)
    if logs.columns.timestamp is None:
        notes.append(
            "there is no timestamp: what was known of an item at a row follows from the order of "
            "files and rows, which is taken for the order of time"
        )
    packed = learned.fit.partitions.slice(0, len(names))
    tasks = MemoryTasks(dim, pa.array(names, pa.large_string()), packed)
    fitted = Fitted.of(plan, learned.fit._replace(partitions=tasks), summary, given, notes)
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
    progress: Callable[[float], None] = no_progress,
) -> LearnedItems:
    """Learn from rows in their order, as :meth:`headstart.Bandit.fit` does."""
    features = Features(len(encoder.feature_names), encoder.feature_names, intercept)
    items = new_items(encoder, features, model)
    assert items is not None
    table = np.hstack([rows.table, np.zeros((len(rows.table), len(COLUMN_NAMES)))])
    weights = items.learn_rows(
        rows.tasks.tolist(), rows.rewards, rows.weights, rows.items.tolist(), table
    )
    contexts = features.transform(table)
    contexts, rewards = items.own.subtract(features, contexts, rows.rewards)
    known = TaskRows(rows.tasks, contexts, rewards, weights, encoder.feature_names)
    known = known.as_means(rows.counts)
    fit, ids = fitting.fit_task_rows(
        transfer, noise, model, known, 1.0, intercept, standardize, progress
    )
    fitting.close_items(items, fitting.fitted_features(features, fit.units), transfer, fit, ids)
    return LearnedItems(items, known, fit, ids)


class ItemRows(NamedTuple):
    """Rows in memory: tasks and items by their ids, the columns of fields, rewards and weights.

    Each reward is the mean of ``counts``.
    """

    tasks: Texts
    items: Texts
    table: Array
    rewards: Array
    weights: Array
    counts: Array
    times: npt.NDArray[np.int64]

    def in_time(self) -> ItemRows:
        """The rows in the order of time; of one time, in an order that no file decides."""
        ranks = [np.unique(part, return_inverse=True)[1] for part in (self.items, self.tasks)]
        order = np.lexsort((self.rewards, *ranks, self.times))
        return ItemRows._make(part[order] for part in self)


def read_rows(logs: Logs, memory: int, progress: Progress) -> tuple[ItemRows, ReadSummary]:
    """All rows of logs that are evidence, and what was read; refused where there are none."""
    summary, parts = ReadSummary(), logs.parts()
    blocks: list[ItemRows] = []
    cost = ITEM_COPIES * 8 * (logs.width + len(COLUMN_NAMES)) + ROW_OVERHEAD_BYTES
    check_memory(sum(part.rows or 0 for part in parts), cost, memory)
    for part in report_parts(parts, parts, progress):
        for block in evidence_blocks(logs.replace(intercept=False), part, summary):
            blocks.append(item_rows(*block))
            check_memory(summary.rows, cost, memory)
    if not blocks:
        raise summary.nothing(logs.columns)
    return ItemRows._make(map(np.concatenate, zip(*blocks, strict=True))), summary


def item_rows(rows: Rows, weights: Array) -> ItemRows:
    """A block of rows, as they are kept."""
    assert rows.items is not None
    names = np.array(rows.names, dtype=object)
    times = np.zeros(rows.count, np.int64) if rows.timestamps is None else rows.timestamps
    counts = np.ones(rows.count) if rows.counts is None else rows.counts
    table = np.asarray(rows.features)
    return ItemRows(names[rows.codes], rows.items, table, rows.rewards, weights, counts, times)


def check_memory(rows: int, cost: int, memory: int) -> None:
    """Refuse rows that do not fit into memory."""
    if rows * cost > memory:
        raise InputError(
            f"rows are kept in memory where the schema has identity=True: {rows:,} or more take "
            f"about {rows * cost / 2**30:.1f} GiB, and {memory / 2**30:.1f} GiB are allowed; raise "
            f"memory (--memory), fit some of the tasks, or set identity to false"
        )
