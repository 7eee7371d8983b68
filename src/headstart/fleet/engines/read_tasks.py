"""What a task on a cluster does that reads parts of logs, and what can be said of parts."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.fleet.reading.hashing import partition_range
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.accumulator import (
    Accumulator,
    HashedRows,
    ReadPlan,
    unread_blocks,
)
from headstart.fleet.summing.checkpoint import Position
from headstart.fleet.summing.folder import Folder
from headstart.fleet.summing.shards import read_run, write_run
from headstart.fleet.summing.summary import ReadSummary
from headstart.model.evidence import packed_size

__all__ = ["Shards", "decoded_bytes", "describe_part", "read_parts", "restore_run"]

Shards = list[pa.RecordBatch]

SCATTERED_TASKS = 4096  # tasks whose sums a reader keeps where most have few rows


def decoded_bytes(logs: Logs, part: Part) -> int:
    """About how many bytes the rows of a part take in memory, at most."""
    return 2 * part.bytes if part.rows is None else 8 * (logs.width + 4) * part.rows


def describe_part(part: Part) -> str:
    """Which file, and which rows of it."""
    unit = {"parquet": "row groups", "arrow": "record batches"}.get(part.format, "bytes")
    rows = "" if part.rows is None else f" ({part.rows:,} rows)"
    return f"{part.path!r}, {unit} {part.start:,} to {part.stop:,}{rows},"


def read_parts(
    parts: Sequence[Part],
    partitions: int,
    memory: int,
    logs: Logs,
    target: tuple[Folder, str, dict[str, Position | None]] | None = None,
) -> Iterator[Any]:
    """Read parts of logs: the shards of every partition, and last what was read.

    With a ``target``, that is written to a folder, too, in runs whose names have a token. Parts
    that were begun by an earlier fit go on after their positions.
    """
    folder, token, begun = (None, "", {}) if target is None else target
    with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
        runs: list[Path] = []

        def spill(shards: Iterator[pa.RecordBatch]) -> None:
            runs.append(Path(temporary) / f"run-{token}-{len(runs)}.arrow")
            write_run(runs[-1], shards)

        plan, summary = ReadPlan.of(logs.width, memory), ReadSummary()
        sums = Accumulator(logs.width, plan.memory, partitions, spill)
        for part in parts:
            for _, rows in unread_blocks(logs, part, plan.rows, begun.get(part.key)):
                if not summary.rows and is_scattered(logs, parts, rows):
                    sums.capacity = min(sums.capacity, SCATTERED_TASKS)
                summary.count(rows)
                sums.add(HashedRows.of(rows))
            summary.parts.append(part.key)
        sums.spill_rows()
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
    of the tasks have any, which gives T.
    """
    rows, tasks = max(block.count, 1), max(len(block.ids), 1)
    low, high = float(tasks), 1e12
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if -middle * np.expm1(-rows / middle) < tasks else (low, middle)
    every = sum(decoded_bytes(logs, part) for part in parts)
    return bool(every / low < 8 * packed_size(logs.width))


def restore_run(folder: Folder, run: str, partitions: int) -> Iterator[Shards]:
    """The shards of every partition in a run of a checkpoint."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
        path = folder.fetch(run, Path(temporary))
        for partition in range(partitions):
            yield list(read_run(path, *partition_range(partition, partitions)))
