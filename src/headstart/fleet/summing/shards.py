"""Shards: what is known of the tasks of one partition, before it is summed up.

A shard is an Arrow record batch of either rows (``hash``, ``id``, ``reward``, ``weight`` if there
are weights, and ``features``) or packed sums (``hash``, ``id`` and ``packed``). A *run* is a file,
Arrow IPC, of one shard for each partition in their order. Partitions are ranges of hashes, and
their number is a power of two, so that a run of Q shards can be read in P partitions for any P and
Q.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.errors import FileError
from headstart.fleet.reading.arrays import as_array, as_arrow
from headstart.fleet.reading.hashing import Hashes, partition_range
from headstart.fleet.summing.grams import Packed
from headstart.storage import atomic

__all__ = [
    "matrix_of",
    "read_run",
    "row_shard",
    "run_reader",
    "select_hashes",
    "sum_shard",
    "write_run",
]


def row_shard(
    hashes: Hashes,
    ids: pa.LargeStringArray,
    rewards: Packed,
    weights: Packed | None,
    features: npt.NDArray[Any],
) -> pa.RecordBatch:
    """A shard of rows."""
    columns = {"hash": as_arrow(hashes), "id": ids, "reward": as_arrow(rewards)}
    if weights is not None:
        columns["weight"] = as_arrow(weights)
    columns["features"] = list_array(features)
    return pa.RecordBatch.from_pydict(columns)


def sum_shard(hashes: Hashes, ids: pa.LargeStringArray, packed: Packed) -> pa.RecordBatch:
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


def write_run(path: Path, shards: Iterable[pa.RecordBatch]) -> None:
    """Write a run; the file is there when all of it is written."""
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
def run_reader(path: Path) -> Iterator[Any]:
    """A run that is open for reading; errors name the file."""
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            yield reader
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(f"path {str(path)!r} cannot be read ({reason})") from error
