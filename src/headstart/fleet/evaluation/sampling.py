"""Drawing the sample of tasks that an evaluation looks at, while a log is read.

Of very many tasks those with the smallest hashes are taken. Which these are is known only when all
is read; until then, the tasks with the smallest hashes so far include them. So one read is enough:
each part of the log gives the rows of tasks that may yet be in the sample, and what is kept of them
is bounded by the number of tasks, not by the number of rows.

Where tasks are split by time, rows of past tasks count until the first future task begins. When
that is takes a read of its own, of the columns of tasks and times alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError
from headstart.fleet.engines.threads import MapJobs
from headstart.fleet.evaluation.sample import (
    ALL,
    Columns,
    Places,
    Plan,
    Sample,
    SampleBuilder,
    columns_of,
    logs_all_arms,
)
from headstart.fleet.reading.hashing import MAX_KEYS, KeyedSums, hash_ids
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.summary import Progress, ReadSummary, report_parts
from headstart.lab.text import count
from headstart.transfer.task_order import Hashes

NO_START = np.iinfo(np.int64).max


def read_sample(
    logs: Logs,
    plan: Plan,
    future: float,
    splits: int | None,
    map_jobs: MapJobs,
    progress: Progress,
) -> tuple[Sample, list[Split]]:
    """What is looked at of a log, and its splits into past and future tasks."""
    split = None
    if logs.columns.timestamp is not None:
        # When tasks begin: a read of the columns of tasks, rewards and times alone.
        tasks = task_counts(plan)
        bare = logs.replace(intercept=False, features_read=False, on_bad_rows="skip")
        for counts in map_jobs(count_part, logs.parts(), bare, plan):
            tasks.merge(counts)
        keys, starts = tasks.keys[: plan.max_tasks], tasks.columns[1][: plan.max_tasks]
        split, cut = split_by_time(starts, future)
        if split is not None:
            plan = plan._replace(cut=cut, offered=keys[split.future])
    sample = draw_sample(logs, plan, map_jobs, progress)
    if split is None:  # rewards of a task are in the order of time all the same, if there is one
        return sample, split_at_random(len(sample.keys), future, splits)
    # Tasks without a row that can be used are not in the sample.
    past, ahead = (np.flatnonzero(np.isin(sample.keys, keys[places])) for places in split)
    return sample, [Split(past, ahead)]


def draw_sample(logs: Logs, plan: Plan, map_jobs: MapJobs, progress: Progress) -> Sample:
    """Read a log once, and keep what an evaluation needs of the tasks in the sample."""
    parts, tasks, summary = logs.parts(), task_counts(plan), ReadSummary()
    builder, smallest, limit = SampleBuilder(logs, plan), np.zeros(0, np.uint64), ALL
    jobs = ((number, part, limit) for number, part in enumerate(parts))  # the limit of then
    results = map_jobs(read_part, jobs, logs, plan)
    for own, counts, blocks in report_parts(parts, results, progress):
        summary.add(own)
        tasks.merge(counts)
        smallest = np.union1d(smallest, counts.keys[: plan.max_tasks + 1])[: plan.max_tasks + 1]
        limit = limit_of(smallest, plan.max_tasks)
        for block in blocks:
            builder.add(block, limit)
    if not len(smallest):
        raise InputError("logs must hold rows with rewards; these have none")
    return builder.sample(tasks, summary, limit)


def task_counts(plan: Plan) -> KeyedSums:
    """Rewards and first times by task: nothing yet."""
    return KeyedSums(np.add, np.minimum, max_keys=max(MAX_KEYS, 2 * plan.max_tasks))


def limit_of(keys: Hashes, count: int) -> int:
    """The hash below which the first ``count`` of sorted hashes are; 2⁶⁴ if there are no more."""
    return int(keys[count]) if len(keys) > count else ALL


def count_part(part: Part, logs: Logs, plan: Plan) -> KeyedSums:
    """How many rewards the tasks of a part have, and when they begin."""
    tasks = task_counts(plan)
    for rows in logs.read(part):
        count_tasks(rows, tasks, plan.seed)
    return tasks


def count_tasks(rows: Rows, tasks: KeyedSums, seed: int) -> Hashes:
    """Add the rewards and first times of a block's tasks; gives their hashes."""
    keys, shown = hash_ids(rows.ids, seed), slice(None) if rows.chosen is None else rows.chosen
    codes = rows.codes[shown]
    counts, starts = np.bincount(codes, minlength=len(keys)), np.full(len(keys), NO_START)
    if rows.timestamps is not None:
        np.minimum.at(starts, codes, rows.timestamps[shown])
    some = counts > 0
    tasks.add(keys[some], counts[some], starts[some])
    return keys


def read_part(
    job: tuple[int, Part, int], logs: Logs, plan: Plan
) -> tuple[ReadSummary, KeyedSums, list[Columns]]:
    """What was read of a part, counts by task, and the rows of tasks that may be in the sample.

    Their hashes are below a limit, and among the first here.
    """
    number, part, limit = job
    tasks, summary, order = task_counts(plan), ReadSummary(), number << 40
    whole, blocks = logs_all_arms(logs), []
    for rows in logs.read(part, transposed=False):
        summary.count(rows)
        rows = rows.as_rounds()
        keys = count_tasks(rows, tasks, plan.seed)
        limit = min(limit, limit_of(tasks.keys, plan.max_tasks))
        use = (keys <= np.uint64(limit - 1))[rows.codes]
        if rows.chosen is not None and not whole:
            use &= rows.chosen
        blocks.append(columns_of(rows, np.flatnonzero(use), keys, order, whole))
        order += rows.count
    return summary, tasks, blocks


#: Random splits: at least, at most, and so many that this is about how many tasks they have in all.
MIN_SPLITS, MAX_SPLITS, TASKS_OF_ALL_SPLITS = 3, 5, 2500


class Split(NamedTuple):
    """The places of past and of future tasks in the sample, both in the order of their hashes."""

    past: Places
    future: Places


def split_at_random(tasks: int, future: float, splits: int | None) -> list[Split]:
    """Several splits of tasks in the order of their hashes, a moving part of them the future.

    All tasks are in the future about equally often. Unless given, there are 3 to 5, the fewer the
    more tasks there are.

    >>> [split.future.tolist() for split in split_at_random(10, 0.3, 3)]
    [[0, 1, 2], [3, 4, 5], [7, 8, 9]]
    """
    ahead = check_split(tasks, future)
    splits = splits or max(MIN_SPLITS, min(MAX_SPLITS, TASKS_OF_ALL_SPLITS // max(tasks, 1)))
    starts = [round(turn / splits * tasks) for turn in range(splits)]
    moving = [np.sort((start + np.arange(ahead)) % tasks) for start in starts]
    return [
        Split(np.delete(np.arange(tasks), future_tasks), future_tasks) for future_tasks in moving
    ]


def split_by_time(starts: npt.NDArray[np.int64], future: float) -> tuple[Split | None, int]:
    """The tasks that start last as the future, and when the first of them starts.

    No split where most tasks start at the same time.
    """
    ahead = check_split(len(starts), future)
    latest = np.sort(np.argsort(starts, kind="stable")[-ahead:])
    cut = int(starts[latest].min())
    past = np.flatnonzero(starts < cut)
    return (Split(past, latest) if len(past) > 1 else None), cut


def check_split(tasks: int, future: float) -> int:
    """How many of so many tasks are the future; refused where they are too few."""
    ahead = round(future * tasks)
    if ahead < 2 or tasks - ahead < 2:
        raise InputError(
            f"evaluate needs at least 2 past and 2 future tasks with rewards; of the "
            f"{count(tasks, 'task')} that it looks at, future={future:g} makes {ahead} the future"
        )
    return ahead
