"""Shards: what is known of the tasks of one partition, before it is summed up.

A shard is an Arrow record batch of either rows (``hash``, ``id``, ``reward``, ``weight`` if there
are weights, and ``features``) or packed sums (``hash``, ``id`` and ``packed``). A *run* is a file,
Arrow IPC, of one shard for each partition in their order. Partitions are ranges of hashes, and
their number is a power of two, so that a run of Q shards can be read in P partitions for any P and
Q.

To finish the sums of tasks, entries of shards are sorted by task, and those of each task are added
up (:func:`merge`). Of runs on disk, one range of hashes is in memory at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.reading.hashing import partition_numbers, partition_range
from headstart.fleet.summing.grams import ADD_ROWS, GROUP_ROWS, Packed, Whole
from headstart.model.evidence import packed_size
from headstart.records import Array
from headstart.storage import atomic
from headstart.transfer.task_order import Hashes


def row_shards(
    hashes: Hashes,
    ids: pa.LargeStringArray,
    codes: npt.NDArray[Any],
    rewards: Packed,
    weights: Packed,
    features: npt.NDArray[Any],
    partitions: int,
) -> Iterator[pa.RecordBatch]:
    """Rows partition by partition; ``codes`` say which of the tasks each has, if not negative.

    Without weights, all rows count once.
    """
    numbers = np.append(partition_numbers(hashes, partitions), -1)
    order, starts = GROUP_ROWS.form(len(codes))(numbers[codes], partitions)
    for low, high in itertools.pairwise(starts):
        rows = order[low:high]
        owners = codes[rows]
        columns = {"hash": as_arrow(hashes[owners]), "id": ids.take(as_arrow(owners))}
        columns["reward"] = as_arrow(rewards[rows])
        if len(weights):
            columns["weight"] = as_arrow(weights[rows])
        yield pa.RecordBatch.from_pydict(columns | {"features": list_array(features[rows])})


def sum_shard(hashes: Hashes, ids: pa.LargeStringArray, packed: Array) -> pa.RecordBatch:
    """A shard of packed sums."""
    columns = {"hash": as_arrow(hashes), "id": ids, "packed": list_array(packed)}
    return pa.RecordBatch.from_pydict(columns)


def list_array(matrix: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """The rows of a matrix, not copied if they lie in one piece."""
    values = as_arrow(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, matrix.shape[1])


def matrix_of(shard: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """The matrix that a column holds, not copied."""
    column = shard.column(name)
    return as_array(column.flatten()).reshape(len(column), column.type.list_size)


def select_hashes(shard: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    """The rows or sums of a shard with low ≤ hash < high."""
    hashes = as_array(shard.column("hash"))
    inside = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
    return shard if inside.all() else shard.filter(as_arrow(inside))


def write_run(path: Path, shards: Iterable[pa.RecordBatch], lasting: bool = False) -> None:
    """Write a run; the file is there when all of it is written, and on disk if ``lasting``."""
    draft = path.with_name(path.name + ".draft")
    try:
        with atomic.explain_write_errors(path):
            writer = None
            with contextlib.ExitStack() as stack:
                sink = stack.enter_context(pa.OSFile(str(draft), "wb"))
                for shard in shards:
                    if writer is None:
                        writer = stack.enter_context(pa.ipc.new_file(sink, shard.schema))
                    writer.write_batch(shard)
            if lasting:
                with draft.open("rb") as file:
                    os.fsync(file.fileno())
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_run(path: Path, low: int = 0, high: int = 2**64) -> Iterator[pa.RecordBatch]:
    """What a run holds of the tasks with low ≤ hash < high, one shard after the other."""
    with run_reader(path) as reader:
        count = reader.num_record_batches
        for place in range(count * low >> 64, min((count * high >> 64) + 1, count)):
            first, end = partition_range(place, count)
            if max(first, low) < min(end, high):
                shard = reader.get_batch(place)
                inside = low <= first and end <= high
                yield shard if inside else select_hashes(shard, low, high)


@contextlib.contextmanager
def run_reader(path: Path, open: Callable[[str], Any] = pa.OSFile) -> Iterator[Any]:
    """A run that is open for reading; errors name the file."""
    want = "a run of sums or rows"
    with (
        atomic.explain_read_errors(path, want),
        open(str(path)) as source,
        pa.ipc.open_file(source) as reader,
    ):
        yield reader


CHUNK_BYTES = 1 << 22
CACHED_TASKS = 64  # whose sums stay in the cache


class Partition(NamedTuple):
    """Tasks in order, by the hash of their ids, with their packed sums."""

    ids: pa.LargeStringArray
    rows: Array


def chunk_tasks(dim: int) -> int:
    """How many tasks are handled at a time: four megabytes of them."""
    return max(64, CHUNK_BYTES // (8 * packed_size(dim)))


def merge(shards: Iterable[pa.RecordBatch], dim: int) -> Partition:
    """The tasks of shards, each once, with everything that the shards say of them."""
    none = Partition(pa.nulls(0, pa.large_string()), np.zeros((0, packed_size(dim))))
    return next(merge_in_chunks(list(shards), dim, 1 << 62), none)


def merge_in_chunks(
    shards: Sequence[pa.RecordBatch], dim: int, step: int | None = None
) -> Iterator[Partition]:
    """The same, ``step`` tasks at a time (four megabytes): sums of few are in memory at once.

    Entries (rows, and after them sums) are sorted by task; the rows of each task are then added up
    (:data:`~headstart.fleet.summing.grams.ADD_ROWS`), and so are its sums.
    """
    shards = [shard for shard in shards if shard.num_rows]
    if not shards:
        return
    rows = [shard for shard in shards if "features" in shard.schema.names]
    sums = [shard for shard in shards if "packed" in shard.schema.names]
    order, starts, ids = group_by_task([*rows, *sums])
    is_row = order < sum(shard.num_rows for shard in rows)
    row_order, row_starts = order[is_row], np.append(0, np.cumsum(is_row))[starts]
    features, rewards, weights = gather_rows(rows, dim)
    owners = np.empty(len(order), np.int64)
    owners[order] = np.repeat(np.arange(len(ids)), np.diff(starts))
    ends = np.cumsum([shard.num_rows for shard in (*rows, *sums)])[len(rows) :]
    add, step = ADD_ROWS.form(len(row_order)), step or chunk_tasks(dim)
    for low in range(0, len(ids), step):
        high = min(low + step, len(ids))
        table = np.zeros((high - low, packed_size(dim)))
        spans = row_starts[low : high + 1]
        if spans[0] < spans[-1]:
            places = np.arange(high - low)
            add(row_order, spans, places, features, dim, rewards, weights, table)
        for shard, end in zip(sums, ends, strict=True):
            add_sums(shard, owners[end - shard.num_rows : end], low, table)
        yield Partition(ids[low:high], table)


def add_sums(shard: pa.RecordBatch, owners: Whole, low: int, table: Packed) -> None:
    """Add the sums of a shard to a table of the tasks from ``low`` on.

    The tasks of a shard, ``owners``, are in order, and each is there once.
    """
    packed = matrix_of(shard, "packed")
    first, last = np.searchsorted(owners, (low, low + len(table)))
    for start in range(first, last, CACHED_TASKS):
        some = slice(start, min(start + CACHED_TASKS, last))
        table[owners[some] - low] += packed[some]


def group_by_task(
    shards: Sequence[pa.RecordBatch],
) -> tuple[Whole, Whole, pa.LargeStringArray]:
    """Entries in the order of their tasks, where those of each task begin, and the tasks' ids."""
    hashes = np.concatenate([as_array(shard.column("hash")) for shard in shards])
    ids = pa.concat_arrays([shard.column("id") for shard in shards])
    order: Whole = np.argsort(hashes, kind="stable")
    names = ids.take(as_arrow(order))
    new = np.diff(hashes[order]) != 0
    differs = as_array(pc.not_equal(names[1:], names[:-1]))
    if (differs & ~new).any():  # ids that share a hash
        order = order_of_tasks(hashes, ids)
        names = ids.take(as_arrow(order))
        differs = as_array(pc.not_equal(names[1:], names[:-1]))
    heads = np.flatnonzero(np.append(True, new | differs)[: len(order)])
    return order, np.append(heads, len(order)), names.take(as_arrow(heads))


def order_of_tasks(hashes: Hashes, ids: pa.LargeStringArray) -> Whole:
    """Places in the order of the hash, and of the id where hashes are the same."""
    ranks: npt.NDArray[np.uint64] = as_array(pc.rank(ids, tiebreaker="dense"))
    return np.lexsort((ranks, hashes))


def gather_rows(shards: Sequence[pa.RecordBatch], dim: int) -> tuple[Packed, Packed, Packed]:
    """The features, rewards and weights of shards of rows; no weights where no shard has any."""
    if not shards:
        return np.zeros((0, dim)), np.zeros(0), np.zeros(0)
    features = np.concatenate([matrix_of(shard, "features") for shard in shards])
    rewards = np.concatenate([as_array(shard.column("reward")) for shard in shards])
    weighted = ["weight" in shard.schema.names for shard in shards]
    weights = [
        as_array(shard.column("weight")) if own else np.ones(shard.num_rows)
        for shard, own in zip(shards, weighted, strict=True)
    ]
    return features, rewards, np.concatenate(weights) if any(weighted) else np.zeros(0)


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
