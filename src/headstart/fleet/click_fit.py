"""Rewards of 0 and 1 in logs: a few passes over rows that are stored in temporary files.

The sums of a logistic model depend on the beliefs that rewards are expanded around, so one pass
over the rows is not enough, as it is for a linear model. Rows are read once, and every block of a
log becomes a run (:mod:`headstart.fleet.summing.shards`). In every pass the tasks of a range of
hashes are read, and expanded by several threads; ranges are as small as memory asks for.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headstart.bandit.offline.fitting import (
    CLICK_PASSES,
    OneTask,
    TaskRows,
    expand_tasks,
    fit_clicks,
    rows_by_task,
)
from headstart.bandit.offline.observation import weighted_sums
from headstart.bandit.rewards import Binary
from headstart.errors import FileError, InputError
from headstart.fleet.engines.threads import MapJobs, Progress, amounts, job_runner
from headstart.fleet.fitted import Fitted, Plan
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.hashing import hash_ids, id_texts, partition_range
from headstart.fleet.reading.logs import BLOCK, Logs, Part
from headstart.fleet.summing.shards import Partition, gather_rows, read_run, row_shards, write_run
from headstart.fleet.summing.summary import ReadSummary, column_notes
from headstart.model.evidence import Evidence, packed_size
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import standardize
from headstart.transfer.partitions import PartitionList
from headstart.transfer.task_order import PARTITION, ordered_partitions

__all__ = [
    "RowFiles",
    "StoredPart",
    "check_clicks",
    "fit_click_logs",
    "store_part",
    "task_evidence",
]


def fit_click_logs(
    plan: Plan, *, workers: int | None, memory: int, progress: Progress | None
) -> Fitted:
    """Learn a prior from logs whose rewards are 0 or 1, for ``Bandit(reward="binary")``.

    The rewards of every task are expanded around its posterior in a few passes, by
    :func:`headstart.bandit.offline.fitting.fit_clicks`, so that the order of rows does not matter.
    """
    logs, intercept = plan.logs, plan.logs.intercept
    with (
        tempfile.TemporaryDirectory(prefix="headstart-") as temporary,
        job_runner(None, workers) as map_jobs,
    ):
        folder, threads = Path(temporary), workers or os.cpu_count() or 1
        room = memory // threads
        block = max(1024, min(BLOCK, room // (COPIES * 8 * logs.width)))
        names, summary, given = store_rows(plan, folder, block, map_jobs, progress)
        files = RowFiles.of(folder, names, logs, summary.rows, room)
        notes = column_notes(logs.feature_names, intercept, given, summary.sampled)
        passes = ClickPasses(files, map_jobs, progress)
        fit = fit_clicks(plan.transfer, passes.expand, given, intercept, plan.standardize)
        plan.check_room(len(fit.partitions), logs.width)
        evidence = functools.partial(task_evidence, passes.ids, fit.partitions)
        return Fitted.of(plan, fit, summary, given, notes, evidence)


def store_rows(
    plan: Plan, folder: Path, block: int, map_jobs: MapJobs, progress: Progress | None
) -> tuple[list[str], ReadSummary, Evidence]:
    """Read all rows once, a block at a time, and store them.

    Returns the names of files, what was read, and the sums of rows.
    """
    logs, parts = plan.logs, plan.logs.parts()
    amount = amounts(parts)
    names, summary, pooled, done = [], ReadSummary(), np.zeros(packed_size(logs.width)), 0.0
    stored = map_jobs(store_part, list(enumerate(parts)), logs, folder, block)
    for part, found in zip(parts, stored, strict=True):
        names += found.names
        summary.add(found.summary)
        pooled += found.pooled
        done += amount[part.key]
        if progress is not None:
            progress("reading", done, sum(amount.values()))
    if not names:
        raise summary.nothing(logs.columns)
    return names, summary, Evidence.unpack(pooled, logs.width)


class ClickPasses:
    """The evidence of tasks whose rows are stored, expanded anew in every pass.

    ``ids`` are those of the tasks, by partition; the evidence of a pass is in a file beside the
    rows.
    """

    def __init__(self, files: RowFiles, map_jobs: MapJobs, progress: Progress | None) -> None:
        self.files, self.map_jobs, self.progress = files, map_jobs, progress
        self.ids: list[list[str]] = []
        self.done = 0

    def expand(self, prior: Prior, units: standardize.Units | None) -> PartitionList:
        """The evidence of all tasks, in the order of the hashes of their ids."""
        names: list[str] = []
        path, size = self.files.folder / f"pass-{self.done}", packed_size(self.files.width)
        total = float(CLICK_PASSES * self.files.ranges)
        jobs = self.map_jobs(expand_range, range(self.files.ranges), self.files, prior, units)
        with path.open("wb") as file:
            for number, (found, packed) in enumerate(jobs):
                names += found
                packed.tofile(file)
                if self.progress is not None:
                    before = self.done * self.files.ranges
                    self.progress("fitting", float(before + number + 1), total)
        with contextlib.suppress(OSError):  # that of the pass before is not needed any more
            (self.files.folder / f"pass-{self.done - 1}").unlink()
        self.done += 1
        table: Any = np.memmap(path, np.float64, "r", shape=(len(names), size))
        starts = range(0, len(names), PARTITION)
        self.ids = [names[start : start + PARTITION] for start in starts]
        parts = [table[start : start + PARTITION] for start in starts]
        return PartitionList(parts, self.files.width)


def expand_range(
    number: int, files: RowFiles, prior: Prior, units: standardize.Units | None
) -> tuple[list[str], Array]:
    """The ids and the packed evidence of the tasks of a range of hashes."""
    tasks = files.tasks(number)
    if not tasks:
        return [], np.zeros((0, packed_size(files.width)))
    names = [task.name for task in tasks]
    partitions, ids = ordered_partitions(names, expand_tasks(tasks, prior, units), files.width)
    return [name for part in ids for name in part], np.concatenate(partitions.parts)


def task_evidence(ids: list[list[str]], partitions: Any) -> list[Partition]:
    """The tasks' ids and evidence, as a fit keeps them."""
    return [
        Partition(pa.array(names, pa.large_string()), np.array(partitions.rows(at)))
        for at, names in enumerate(ids)
    ]


COPIES = 6  # arrays of the size of the features that are made of rows that are read
SHARDS = 64  # of a run


class StoredPart(NamedTuple):
    """What was stored of a part: the names of its runs, what was read, and the sums of all rows.

    The sums are those of contexts and rewards as they are, packed.
    """

    names: list[str]
    summary: ReadSummary
    pooled: Array


def store_part(job: tuple[int, Part], logs: Logs, folder: Path, block: int) -> StoredPart:
    """Store the rows of a part, given with its number, that are evidence, a block at a time."""
    number, part = job
    stored = StoredPart([], ReadSummary(), np.zeros(packed_size(logs.width)))
    for place, read in enumerate(logs.read(part, rows=block)):
        stored.summary.count(read)
        rows = read.chosen_rows()
        check_clicks(rows.rewards, logs)
        if not rows.count:
            continue
        stored.names.append(f"{number}-{place}.arrow")
        weights = np.ones(rows.count) if rows.weights is None else rows.weights
        features, ids = np.asarray(rows.features), id_texts(rows.ids)
        columns = rows.codes, rows.rewards, weights, features
        try:
            write_run(folder / stored.names[-1], row_shards(hash_ids(ids), ids, *columns, SHARDS))
        except FileError as error:
            raise FileError(f"{error}: give a folder with more room (TMPDIR)") from error
        sums, _ = weighted_sums(features.astype(np.float64), rows.rewards, weights)
        stored.pooled[:] += sums.pack()
    stored.summary.parts.append(part.key)
    return stored


class RowFiles(NamedTuple):
    """Runs of rows, divided into ranges of hashes of about equal numbers of tasks.

    Attributes
    ----------
    folder, names
        Where they are.
    width
        How many features they have.
    ranges
        The number of ranges, a power of two.
    """

    folder: Path
    names: list[str]
    width: int
    ranges: int

    @classmethod
    def of(cls, folder: Path, names: Sequence[str], logs: Logs, rows: int, room: int) -> RowFiles:
        """Divided so that the rows of one range take about ``room`` bytes."""
        needed = COPIES * 8 * logs.width * rows / max(room, 1)
        return cls(folder, list(names), logs.width, 1 << max(0, int(np.ceil(np.log2(needed)))))

    def tasks(self, number: int) -> list[OneTask]:
        """The tasks of a range and all their rows, in the order of the tasks' hashes."""
        span, paths = partition_range(number, self.ranges), map(self.folder.joinpath, self.names)
        shards = [shard for path in paths for shard in read_run(path, *span) if shard.num_rows]
        if not shards:
            return []
        ids = pa.concat_arrays([shard.column("id") for shard in shards]).dictionary_encode()
        names = np.array(ids.dictionary.to_pylist(), dtype=object)[as_array(ids.indices)]
        features, rewards, weights = gather_rows(shards, self.width)
        rows = TaskRows(names, features.astype(np.float64), rewards, weights, ())
        return rows_by_task(rows, 1.0)


def check_clicks(rewards: Array, logs: Logs) -> None:
    """Refuse rewards other than 0 and 1."""
    try:
        Binary().read_many(rewards)
    except InputError as error:
        raise InputError(f"column {logs.columns.reward!r}: {error}") from None
