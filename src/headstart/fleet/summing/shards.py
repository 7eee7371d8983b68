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
from headstart.fleet.reading.hashing import Hashes
from headstart.fleet.summing.grams import Packed
from headstart.storage import atomic

__all__ = ["matrix_of", "read_run", "row_shard", "select_hashes", "sum_shard", "write_run"]


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
    """Write a run; the file is there when all of it is on disk."""
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
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_run(path: Path, partition: int = 0, partitions: int = 1) -> Iterator[pa.RecordBatch]:
    """The shards of one partition of a run, one after the other."""
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            count = reader.num_record_batches
            low, high = 2**64 * partition // partitions, 2**64 * (partition + 1) // partitions
            first = count * partition // partitions
            for place in range(first, max(count * (partition + 1) // partitions, first + 1)):
                shard = reader.get_batch(place)
                yield shard if count >= partitions else select_hashes(shard, low, high)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(f"path {str(path)!r} cannot be read ({reason})") from error
