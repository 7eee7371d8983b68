"""Logs summed up and fitted on a Ray cluster, by tasks without state.

    read_parts(parts)             →  the shards of every partition, and what was read
    merge_shards(one partition's) →  the partition, and its number of tasks
    apply(partition, call)        →  the result of a pass over its tasks

Results are objects of Ray, which the driver knows by reference. Ray moves and spills them, and
computes them again where a machine is lost, so that a fit gives the same prior or a clear error.
"""

from __future__ import annotations

import itertools
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headstart.errors import InputError
from headstart.fleet.engines.cluster import POLL, Cluster, WorkerDied, log
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.hashing import partition_range, power_of_two
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.reading.stores import Folder
from headstart.fleet.summing.accumulator import Accumulator, plan_reading, unread_blocks
from headstart.fleet.summing.checkpoint import Checkpoint, Position
from headstart.fleet.summing.shards import Partition, merge, read_run, select_hashes, write_run
from headstart.fleet.summing.summary import FinishedParts, Progress, ReadSummary, no_progress
from headstart.fleet.summing.tasks import Call, TaskPartitions, change_units
from headstart.model.evidence import packed_size
from headstart.records import Array

Result = TypeVar("Result")
Shards = list[pa.RecordBatch]

GROUP_BYTES = 8 << 30  # a task reads so many bytes of features at most, if parts have no more
WATCHED_BYTES = 4 << 30  # to be read in each slot, from which on parts are told one by one
CHECKPOINTS = 2  # tasks for each slot that read and store what they have read, at least
SCATTERED_TASKS = 4096  # tasks whose sums a reader keeps where most have few rows


def gather(
    cluster: Cluster,
    logs: Logs,
    *,
    memory: int,
    checkpoint: Checkpoint | None = None,
    progress: Progress = no_progress,
) -> tuple[RayPartitions, ReadSummary]:
    """Read logs on a cluster, and sum them up by task; gives the tasks, and what was read.

    Parameters
    ----------
    cluster
        Where to run.
    logs
        What to read.
    memory
        How many bytes each worker may take; every task asks Ray for so many.
    checkpoint
        Where every task that reads stores what it has read, so that an interrupted fit can resume.
    progress
        Called as rows (or, where the number of rows is unknown, bytes) are read.
    """
    cluster = cluster.with_memory(memory)
    parts, slots, summary = logs.parts(), cluster.slots, ReadSummary()
    partitions = count_partitions(sum(logs.decoded_bytes(part) for part in parts), memory, slots)
    shards: list[Any] = []  # for each task that reads, references to those of every partition
    if checkpoint is not None and is_shared(cluster, checkpoint):
        restore = cluster.task(restore_run, returns=partitions)
        shards += [restore(checkpoint.folder, run, partitions) for run in checkpoint.runs]
        summary.add(checkpoint.summary)
    else:
        checkpoint = None
    done = set(summary.parts)
    rest = [part for part in parts if part.key not in done]
    groups = group_parts(logs, rest, slots, 1 if checkpoint is None else CHECKPOINTS)
    there = cluster.ray.put(logs)  # sent once
    finished, actor = FinishedParts(parts, progress), None
    finished.add(summary.parts)
    if sum(logs.decoded_bytes(part) for part in rest) > slots * WATCHED_BYTES:
        actor = watch_parts(cluster, finished)
    for references, added in read_groups(
        cluster, there, groups, partitions, memory, checkpoint, actor
    ):
        shards.append(references)
        summary.add(added)
        finished.add(added.parts)
    cluster.watch(None)
    merged = merge_all(cluster, list(zip(*shards, strict=True)), logs.width, memory)
    return RayPartitions(cluster, logs.width, merged), summary


def is_shared(cluster: Cluster, checkpoint: Checkpoint) -> bool:
    """Whether all machines see a checkpoint; refused if not, and there is one to resume from."""
    folder, probe = checkpoint.folder, f"probe-{secrets.token_hex(8)}"
    if folder.remote:
        return True
    folder.write(probe, b"")
    try:
        if all(cluster.run_everywhere(os.path.exists, os.path.join(folder.place, probe))):
            return True
    finally:
        folder.remove(probe)
    if checkpoint.runs:
        raise InputError(
            f"the fit in {str(folder)!r} cannot go on: not every machine of the cluster sees that "
            f"folder; go on without cluster, or start again (--afresh)"
        )
    log.warning(
        f"Not every machine of the cluster sees {str(folder)!r}: there are no checkpoints. Give "
        f"a folder that all see, or a URL (--checkpoint)."
    )
    return False


def count_partitions(total: int, memory: int, slots: int) -> int:
    """How many partitions rows of so many bytes are divided into: a power of two.

    The shards of one take as much as a worker's memory at most (they are in Ray's object store),
    and every CPU has some to work on. There are two at least: a task with one result is no
    generator to Ray.

    >>> count_partitions(10 << 30, 2 << 30, slots=2), count_partitions(1 << 20, 2 << 30, slots=6)
    (8, 8)
    """
    return power_of_two(max(total / memory, slots, 2))


def count_groups(total: int, slots: int, least: int) -> int:
    """How many groups parts of so many bytes are read in: as many for every slot.

    The fewer groups, the fewer sums of the same task; ``least`` are for every slot.

    >>> count_groups(10 << 30, 2, 1), count_groups(10 << 30, 2, 2), count_groups(100 << 30, 2, 2)
    (2, 4, 14)
    """
    return slots * max(math.ceil(total / (slots * GROUP_BYTES)), least)


def group_parts(logs: Logs, parts: Sequence[Part], slots: int, least: int) -> list[list[Part]]:
    """Parts that are read by one task: :func:`count_groups`, of about as many bytes each."""
    ends = list(itertools.accumulate(logs.decoded_bytes(part) for part in parts))
    total = max(ends, default=0)
    count = count_groups(total, slots, least)
    groups: dict[int, list[Part]] = {}
    for part, end in zip(parts, ends, strict=True):
        groups.setdefault(end * count // (total + 1), []).append(part)
    return list(groups.values())


def read_groups(
    cluster: Cluster,
    logs: Any,
    groups: Sequence[list[Part]],
    partitions: int,
    memory: int,
    checkpoint: Checkpoint | None,
    actor: Any,
) -> Iterator[tuple[list[Any], ReadSummary]]:
    """Read groups of parts: references to the shards of every partition, and what was read.

    ``logs`` is a reference, and ``actor`` is told of parts. Where a group kills its worker every
    time, its parts are read one by one, so that the error names the one that does.
    """
    task, deadly = cluster.task(read_parts, returns=partitions + 1), list[Part]()

    def submit(parts: list[Part]) -> Any:
        target = None
        if checkpoint is not None:
            begun = {part.key: checkpoint.positions.get(part.key) for part in parts}
            target = checkpoint.folder, secrets.token_hex(8), begun
        return task(parts, partitions, memory, logs, target, actor)

    for parts, (*shards, outcome) in cluster.completed(submit, groups):
        try:
            summary, runs = cluster.fetch(outcome)
        except WorkerDied as error:
            if len(parts) == 1:
                raise WorkerDied(
                    f"{parts[0].describe()} cannot be read: {error} "
                    f"({memory / 2**30:.2f} GiB for each worker, --memory)"
                ) from error
            deadly += parts
            continue
        if checkpoint is not None:
            checkpoint.write_entry(runs, summary, {})
        yield shards, summary
    if deadly:
        single = [[part] for part in deadly]
        yield from read_groups(cluster, logs, single, partitions, memory, checkpoint, actor)


def watch_parts(cluster: Cluster, finished: FinishedParts) -> Any:
    """An actor that workers tell of parts before their task ends."""

    class Keys:  # sent by value: what holds it imports nothing
        def __init__(self) -> None:
            self.keys: list[str] = []

        def append(self, key: str) -> None:
            self.keys.append(key)

        def take(self) -> list[str]:
            keys, self.keys = self.keys, []
            return keys

    ray, answer = cluster.ray, None
    actor = ray.remote(Keys).options(num_cpus=0).remote()

    def made_progress() -> bool:
        nonlocal answer
        # An answer that is late is waited for again: the keys in it are in no other.
        answer = answer or actor.take.remote()
        try:
            more, answer = ray.get(answer, timeout=POLL), None
        except ray.exceptions.RayError:  # late, or the actor is lost
            return False
        return bool(more) and finished.add(more)

    cluster.watch(made_progress)
    return actor


def read_parts(
    parts: Sequence[Part],
    partitions: int,
    memory: int,
    logs: Logs,
    target: tuple[Folder, str, dict[str, Position | None]] | None = None,
    actor: Any = None,
) -> Iterator[Any]:
    """Read parts of logs: the shards of every partition, and last what was read.

    With a ``target``, that is written to a folder, too, in runs whose names have a token. Parts
    that were begun by an earlier fit go on after their positions. An ``actor`` is told of every
    part that was read (:func:`watch_parts`).
    """
    folder, token, begun = (None, "", {}) if target is None else target
    with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
        runs: list[Path] = []

        def spill(shards: Iterator[pa.RecordBatch]) -> None:
            runs.append(Path(temporary) / f"run-{token}-{len(runs)}.arrow")
            write_run(runs[-1], shards)

        (_, size, left), summary = plan_reading(logs.width, memory), ReadSummary()
        sums = Accumulator(logs.width, left, partitions, spill)
        for part in parts:
            for _, rows in unread_blocks(logs, part, size, begun.get(part.key)):
                if not summary.rows and is_scattered(logs, parts, rows):
                    sums.capacity = min(sums.capacity, SCATTERED_TASKS)
                summary.count(rows)
                sums.add(*sums.number_tasks(rows))
            summary.parts.append(part.key)
            if actor is not None:
                actor.append.remote(part.key)
        rest: Iterator[pa.RecordBatch] = iter(())
        if folder is None:
            rest = sums.snapshot()
        else:
            sums.finish()
            for run in runs:
                folder.write(run.name, run)
        for partition in range(partitions):
            low, high = partition_range(partition, partitions)
            shards = [shard for run in runs for shard in read_run(run, low, high)]
            shards += itertools.islice(rest, 1)
            yield [shard for shard in shards if shard.num_rows]
        yield summary, [run.name for run in runs]


def is_scattered(logs: Logs, parts: Sequence[Part], block: Rows) -> bool:
    """Whether the rows of most tasks in parts take fewer bytes than their sums, by a first block.

    Then they are better sent as rows. If n rows fall on T tasks at random, about T (1 − exp(−n/T))
    of the tasks have any, which gives n/T.
    """
    each = rows = block.count / max(len(block.ids), 1)
    for _ in range(20):  # Newton's method, from above
        rows -= (rows + each * math.expm1(-rows)) / (1.0 - each * math.exp(-rows))
    every = sum(logs.decoded_bytes(part) for part in parts)
    return every * rows < 8 * packed_size(logs.width) * max(block.count, 1)


def restore_run(folder: Folder, run: str, partitions: int) -> Iterator[Shards]:
    """The shards of every partition in a run of a checkpoint."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
        path = folder.fetch(run, Path(temporary))
        for partition in range(partitions):
            yield list(read_run(path, *partition_range(partition, partitions)))


def merge_all(
    cluster: Cluster, shards: Sequence[Sequence[Any]], dim: int, memory: int
) -> list[tuple[Any, int]]:
    """Merge the shards of every partition: a reference to it, and the number of its tasks.

    Partitions take about the same, because they are ranges of a hash. If the rows and sums of the
    first take more than half of the memory, all are divided further.
    """
    if not shards:
        return []
    size = cluster.fetch(cluster.task(merged_bytes)(dim, *shards[0]))
    pieces = power_of_two(size / (memory // 2))
    task = cluster.task(merge_shards, returns=2 * pieces)
    merged: dict[int, list[tuple[Any, int]]] = {}
    for partition, references in cluster.completed(
        lambda partition: task(dim, partition, len(shards), pieces, *shards[partition]),
        range(len(shards)),
    ):
        sized = zip(references[::2], cluster.fetch_all(references[1::2]), strict=True)
        merged[partition] = [(piece, size) for piece, size in sized if size]
    return [piece for partition in range(len(shards)) for piece in merged[partition]]


def merged_bytes(dim: int, *shards: Shards) -> int:
    """How many bytes it takes to merge shards, about: they and the sums of their tasks."""
    every = list(itertools.chain(*shards))
    hashes = [np.zeros(0, np.uint64), *(as_array(shard.column("hash")) for shard in every)]
    tasks = len(np.unique(np.concatenate(hashes)))
    return sum(int(shard.nbytes) for shard in every) + 8 * packed_size(dim) * tasks


def merge_shards(
    dim: int, partition: int, partitions: int, pieces: int, *shards: Shards
) -> Iterator[Any]:
    """Merge shards of a partition: for each piece of it the tasks, and their number."""
    for piece in range(partition * pieces, (partition + 1) * pieces):
        low, high = partition_range(piece, partitions * pieces)
        merged = merge((select_hashes(each, low, high) for each in itertools.chain(*shards)), dim)
        yield merged
        yield len(merged.rows)


def apply(call: Call, dim: int, partition: Partition, limit: int) -> Any:
    """The result of a pass over the first tasks of a partition."""
    return call(partition.rows[:limit], dim)


def take_rows(partition: Partition, low: int, high: int) -> Array:
    """The sums of some tasks of a partition."""
    return partition.rows[low:high]


class RayPartitions(TaskPartitions):
    """Tasks in partitions that are objects of Ray.

    Parameters
    ----------
    cluster
        Where they are.
    dim
        The number of features.
    merged
        For each partition a reference to it, and how many tasks it has.
    """

    def __init__(self, cluster: Cluster, dim: int, merged: Sequence[tuple[Any, int]]) -> None:
        super().__init__(dim, [size for _, size in merged])
        self.cluster, self.merged = cluster, merged

    def map(
        self, function: Callable[..., Result], *arguments: Any, first: int | None = None
    ) -> list[Result]:
        """Every partition's, where the partition is."""
        call = self.cluster.ray.put(Call(function, arguments, self.units))
        task = self.cluster.task(apply)
        pending = [
            task(call, self.dim, self.merged[number][0], limit)
            for number, limit in self.limits(first).items()
        ]
        results = list(map(self.cluster.fetch, pending))
        self.on_pass()
        return results

    def slice(self, start: int, stop: int) -> Array:
        """The tasks from one place in the order to another; no others are sent."""
        task, pending, before = self.cluster.task(take_rows), [], 0
        for reference, size in self.merged:
            low, high = max(start - before, 0), min(stop - before, size)
            if low < high:
                pending.append(task(reference, low, high))
            before += size
        parts = [np.zeros((0, packed_size(self.dim))), *map(self.cluster.fetch, pending)]
        return change_units(np.concatenate(parts), self.units)

    def read_partition(self, number: int) -> Partition:
        """One partition, which cannot be changed."""
        partition: Partition = self.cluster.fetch(self.merged[number][0])
        return partition
