"""Logs summed up and fitted on a Ray cluster, by tasks without state.

    read_parts(parts)             →  the shards of every partition, and what was read
    merge_shards(one partition's) →  the partition, its number of tasks and their pooled sums
    apply(partition, call)        →  the result of a pass over its tasks

Results are objects of Ray, which the driver knows by reference. Ray moves and spills them, and
computes them again where a machine is lost, so that a fit gives the same prior or a clear error.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from headstart.errors import InputError
from headstart.fleet.engines.cluster import Cluster, WorkerDied, log
from headstart.fleet.engines.read_tasks import (
    Shards,
    decoded_bytes,
    describe_part,
    read_parts,
    restore_run,
)
from headstart.fleet.engines.threads import Progress, amounts
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.hashing import partition_range
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.checkpoint import Checkpoint
from headstart.fleet.summing.passes import Call
from headstart.fleet.summing.shards import Partition, merge, select_hashes
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.tasks import TaskPartitions
from headstart.model.evidence import packed_size
from headstart.records import Array

__all__ = ["RayPartitions", "gather"]

Result = TypeVar("Result")

GROUP_BYTES = 4 << 30  # a task reads about so many bytes of features,
GROUPS = 2  # but there are so many tasks for each CPU if there are enough parts


def gather(
    cluster: Cluster,
    logs: Logs,
    *,
    memory: int,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
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
        Called as rows (or, where the files do not tell their number, bytes) are read.
    """
    cluster = cluster.with_memory(memory)
    checkpoint = None if checkpoint is None else check_shared(cluster, checkpoint)
    parts, slots = logs.parts(), cluster.slots
    partitions = count_partitions(sum(decoded_bytes(logs, part) for part in parts), memory, slots)
    reading = Reading(cluster, logs, partitions, memory, checkpoint)
    done = set[str]() if checkpoint is None else reading.restore(checkpoint)
    amount = amounts(parts)
    reached, total = sum(amount[key] for key in done), sum(amount.values())
    groups = group_parts(logs, [part for part in parts if part.key not in done], slots)
    for keys in reading.read(groups):
        reached += sum(amount[key] for key in keys)
        if progress is not None:
            progress("reading", reached, total)
    merged = merge_all(cluster, list(zip(*reading.shards, strict=True)), logs.width, memory)
    return RayPartitions(cluster, logs.width, merged), reading.summary


def check_shared(cluster: Cluster, checkpoint: Checkpoint) -> Checkpoint | None:
    """A checkpoint that all machines see; otherwise none, unless there is one to resume from."""
    folder, probe = checkpoint.folder, f"probe-{secrets.token_hex(8)}"
    if folder.remote:
        return checkpoint
    folder.write(probe, b"")
    try:
        if all(cluster.run_everywhere(os.path.exists, os.path.join(folder.place, probe))):
            return checkpoint
    finally:
        folder.remove(probe)
    if checkpoint.runs:
        raise InputError(
            f"the fit in {str(folder)!r} cannot go on: not every machine of the cluster sees that "
            f"folder; go on without cluster, or begin afresh (--afresh)"
        )
    log.warning(
        f"Not every machine of the cluster sees {str(folder)!r}: there are no checkpoints. Give "
        f"a folder that all see, or a URL (--checkpoint)."
    )
    return None


def count_partitions(total: int, memory: int, slots: int) -> int:
    """How many partitions rows of so many bytes are divided into: a power of two.

    The shards of one take as much as a worker's memory at most (they are in Ray's object store),
    and every CPU has some to work on.

    >>> count_partitions(10 << 30, 2 << 30, slots=2), count_partitions(1 << 20, 2 << 30, slots=6)
    (8, 8)
    """
    least = max(-(-total // memory), slots)
    return 1 << (least - 1).bit_length()


def group_parts(logs: Logs, parts: Sequence[Part], slots: int) -> list[list[Part]]:
    """Parts that are read by one task: the fewer tasks, the fewer sums of the same task."""
    sizes = [decoded_bytes(logs, part) for part in parts]
    limit = min(GROUP_BYTES, -(-sum(sizes) // (GROUPS * slots)))
    groups: list[list[Part]] = []
    room = 0
    for part, size in zip(parts, sizes, strict=True):
        if size > room or not groups:
            groups.append([])
            room = limit
        groups[-1].append(part)
        room -= size
    return groups


class Reading:
    """Reads parts of logs on a cluster.

    Attributes
    ----------
    shards
        For each task that has ended, references to the shards of every partition.
    summary
        What was read.
    """

    def __init__(
        self,
        cluster: Cluster,
        logs: Logs,
        partitions: int,
        memory: int,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.cluster, self.partitions, self.memory = cluster, partitions, memory
        self.checkpoint, self.logs = checkpoint, cluster.ray.put(logs)  # sent once
        self.shards: list[list[Any]] = []
        self.summary = ReadSummary()

    def restore(self, checkpoint: Checkpoint) -> set[str]:
        """Use what a checkpoint holds; gives the parts that need not be read."""
        task = self.cluster.task(restore_run, returns=self.partitions)
        for run in checkpoint.runs:
            self.shards.append(list(task.remote(checkpoint.folder, run, self.partitions)))
        self.summary.add(checkpoint.summary)
        return checkpoint.parts

    def read(self, groups: Sequence[list[Part]]) -> Iterator[list[str]]:
        """Read groups of parts, and give the keys of those read, as they come.

        Where a group kills its worker every time, its parts are read one by one, so that the error
        names the one that does.
        """
        task = self.cluster.task(read_parts, returns=self.partitions + 1)
        found, checkpoint = dict[Any, list[Any]](), self.checkpoint

        def submit(parts: list[Part]) -> Any:
            target = None
            if checkpoint is not None:
                begun = {part.key: checkpoint.positions.get(part.key) for part in parts}
                target = checkpoint.folder, secrets.token_hex(8), begun
            *shards, outcome = task.remote(parts, self.partitions, self.memory, self.logs, target)
            found[outcome] = shards
            return outcome

        deadly: list[Part] = []
        for parts, reference in self.cluster.completed(submit, groups):
            try:
                summary, runs = self.cluster.fetch(reference)
            except WorkerDied as error:
                if len(parts) == 1:
                    raise WorkerDied(
                        f"{describe_part(parts[0])} cannot be read: {error} "
                        f"({self.memory / 2**30:.2f} GiB for each worker, --memory)"
                    ) from error
                deadly += parts
                continue
            self.shards.append(found.pop(reference))
            if checkpoint is not None:
                checkpoint.add(runs, summary)
            self.summary.add(summary)
            yield summary.parts
        if deadly:
            yield from self.read([[part] for part in deadly])


def merge_all(
    cluster: Cluster, shards: Sequence[Sequence[Any]], dim: int, memory: int
) -> list[tuple[Any, int, Array]]:
    """Merge the shards of every partition: a reference, the number of tasks and pooled sums.

    Partitions take about the same, because they are ranges of a hash. If the rows and sums of the
    first take more than half of the memory, all are divided further.
    """
    if not shards:
        return []
    size = cluster.fetch(cluster.task(merged_bytes).remote(dim, *shards[0]))
    pieces = 1 << (max(-(-size // (memory // 2)), 1) - 1).bit_length()
    task = cluster.task(merge_shards, returns=2 * pieces)
    found = dict[Any, list[Any]]()

    def submit(partition: int) -> Any:
        references = task.remote(dim, partition, len(shards), pieces, *shards[partition])
        found[references[-1]] = references
        return references[-1]

    merged: dict[int, list[tuple[Any, int, Array]]] = {}
    for partition, reference in cluster.completed(submit, range(len(shards))):
        references = found.pop(reference)
        facts = cluster.fetch_all(references[1::2])
        merged[partition] = [
            (piece, *fact) for piece, fact in zip(references[::2], facts, strict=True) if fact[0]
        ]
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
    """Merge shards of a partition: for each piece of it the tasks, and their number and sum."""
    for piece in range(partition * pieces, (partition + 1) * pieces):
        low, high = partition_range(piece, partitions * pieces)
        merged = merge((select_hashes(each, low, high) for each in itertools.chain(*shards)), dim)
        yield merged
        yield len(merged.rows), merged.rows.sum(0)


def apply(call: Call, dim: int, partition: Partition, limit: int) -> Any:
    """The result of a pass over the first tasks of a partition."""
    return call.prepare(dim)(partition.rows, np.arange(limit))


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
        For each partition a reference to it, how many tasks it has, and their pooled sums.
    """

    def __init__(
        self, cluster: Cluster, dim: int, merged: Sequence[tuple[Any, int, Array]]
    ) -> None:
        super().__init__(dim, [size for _, size, _ in merged])
        self.cluster, self.merged = cluster, merged

    def map(
        self, function: Callable[..., Result], *arguments: Any, first: int | None = None
    ) -> list[Result]:
        """Every partition's, where the partition is."""
        call = self.cluster.ray.put(Call(function, arguments, self.units, len(self)))
        task = self.cluster.task(apply)
        pending = [
            task.remote(call, self.dim, self.merged[number][0], limit)
            for number, limit in self.limits(first).items()
        ]
        results = [self.cluster.fetch(reference) for reference in pending]
        if self.on_pass is not None:
            self.on_pass()
        return results

    def slice(self, start: int, stop: int) -> Array:
        """The tasks from one place in the order to another; no others are sent."""
        task, pending, before = self.cluster.task(take_rows), [], 0
        for reference, size, _ in self.merged:
            low, high = max(start - before, 0), min(stop - before, size)
            if low < high:
                pending.append(task.remote(reference, low, high))
            before += size
        found = [self.cluster.fetch(reference) for reference in pending]
        rows = np.concatenate([np.zeros((0, packed_size(self.dim))), *found])
        return rows if self.units is None else self.units.packed(rows)

    def partition(self, number: int) -> Partition:
        """A copy of one partition."""
        ids, rows = self.cluster.fetch(self.merged[number][0])
        return Partition(ids, np.array(rows))  # what Ray stores cannot be changed

    def pooled(self) -> Array:
        """The sums of all tasks together."""
        return sum((sums for _, _, sums in self.merged), np.zeros(packed_size(self.dim)))
