"""Shards into the finished sums of their tasks, in order.

Entries of shards (rows, and sums of rows) are sorted by task, and those of each task are added up.
Of runs on disk, one range of hashes is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.summing.grams import ADD_ROWS, Packed, Whole
from headstart.fleet.summing.shards import matrix_of, read_run
from headstart.fleet.summing.task_index import order_of_tasks
from headstart.model.evidence import packed_size

__all__ = ["Partition", "chunk_tasks", "merge", "merge_in_chunks", "merge_runs"]

CHUNK_BYTES = 1 << 22


class Partition(NamedTuple):
    """Tasks in order, by the hash of their ids, with their packed sums."""

    ids: pa.LargeStringArray
    rows: Packed


def chunk_tasks(dim: int) -> int:
    """How many tasks are handled at a time: four megabytes of them."""
    return max(64, CHUNK_BYTES // (8 * packed_size(dim)))


def merge(shards: Iterable[pa.RecordBatch], dim: int) -> Partition:
    """The tasks of shards, each once, with everything that the shards say of them."""
    chunks = list(merge_in_chunks(list(shards), dim))
    if not chunks:
        return Partition(pa.nulls(0, pa.large_string()), np.zeros((0, packed_size(dim))))
    ids, rows = zip(*chunks, strict=True)
    return Partition(pa.concat_arrays(ids), np.concatenate(rows))


def merge_in_chunks(shards: Sequence[pa.RecordBatch], dim: int) -> Iterator[Partition]:
    """The same, some tasks at a time: sums of few tasks are in memory at once.

    Entries (rows, and after them sums) are sorted by task; the rows of each task are then added up
    (:data:`~headstart.fleet.summing.grams.ADD_ROWS`), and so are its sums.
    """
    shards = [shard for shard in shards if shard.num_rows]
    if not shards:
        return
    rows = [shard for shard in shards if "features" in shard.schema.names]
    sums = [shard for shard in shards if "packed" in shard.schema.names]
    both = pa.Table.from_batches([shard.select(["hash", "id"]) for shard in (*rows, *sums)])
    order, starts, ids = group_by_task(both)
    is_row = order < sum(shard.num_rows for shard in rows)
    row_order, sum_order = order[is_row], order[~is_row] - is_row.sum()
    before = np.append(0, np.cumsum(is_row))
    row_starts, sum_starts = before[starts], starts - before[starts]
    features, rewards, weights = gather_rows(rows, dim)
    packed = np.concatenate(
        [np.zeros((0, packed_size(dim))), *(matrix_of(shard, "packed") for shard in sums)]
    )
    add, step = ADD_ROWS.form(len(row_order)), chunk_tasks(dim)
    for low in range(0, len(ids), step):
        high = min(low + step, len(ids))
        table = np.zeros((high - low, packed_size(dim)))
        places = np.arange(high - low)
        spans = row_starts[low : high + 1]
        if spans[0] < spans[-1]:
            add(row_order, spans, places, features, dim, rewards, weights, table)
        spans = sum_starts[low : high + 1]
        held = np.flatnonzero(np.diff(spans))
        if len(held):
            table[held] += np.add.reduceat(
                packed[sum_order[spans[0] : spans[-1]]], spans[held] - spans[0]
            )
        yield Partition(ids[low:high], table)


def group_by_task(entries: pa.Table) -> tuple[Whole, Whole, pa.LargeStringArray]:
    """Entries in the order of their tasks, where those of each task begin, and the tasks' ids."""
    hashes = np.concatenate([as_array(part) for part in entries.column("hash").chunks])
    ids = pa.concat_arrays(entries.column("id").chunks)
    order: Whole = np.argsort(hashes, kind="stable")
    names = ids.take(as_arrow(order))
    new = np.diff(hashes[order]) != 0
    differs = as_array(pc.not_equal(names[1:], names[:-1]))
    if (differs & ~new).any():  # ids that share a hash
        order = order_of_tasks(hashes, ids)
        names = ids.take(as_arrow(order))
        differs = as_array(pc.not_equal(names[1:], names[:-1]))
    heads = np.append(0, np.flatnonzero(new | differs) + 1)
    return order, np.append(heads, len(order)), names.take(as_arrow(heads))


def gather_rows(shards: Sequence[pa.RecordBatch], dim: int) -> tuple[Packed, Packed, Packed]:
    """The features, rewards and weights of shards of rows; no weights where no shard has any."""
    if not shards:
        return np.zeros((0, dim)), np.zeros(0), np.zeros(0)
    features = np.concatenate([matrix_of(shard, "features") for shard in shards])
    rewards = np.concatenate([as_array(shard.column("reward")) for shard in shards])
    if not any("weight" in shard.schema.names for shard in shards):
        return features, rewards, np.zeros(0)
    weights = [
        as_array(shard.column("weight"))
        if "weight" in shard.schema.names
        else np.ones(shard.num_rows)
        for shard in shards
    ]
    return features, rewards, np.concatenate(weights)


def merge_runs(
    runs: Sequence[Path], dim: int, low: int, high: int, limit: int, depth: int = 10
) -> Iterator[Partition]:
    """The tasks of runs with low ≤ hash < high, some at a time.

    Where their shards take more than ``limit`` bytes, the range is halved, up to ``depth`` times.
    """
    shards, size = [], 0
    for run in runs:
        for shard in read_run(run, low, high):
            shards.append(shard)
            size += shard.nbytes
        if size > limit and depth:
            shards.clear()
            middle = (low + high) // 2
            yield from merge_runs(runs, dim, low, middle, limit, depth - 1)
            yield from merge_runs(runs, dim, middle, high, limit, depth - 1)
            return
    yield from merge_in_chunks(shards, dim)
