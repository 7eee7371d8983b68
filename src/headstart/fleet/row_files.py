"""Rows of logs in temporary files, from which all rows of some tasks can be read at a time.

Every block of a log becomes a run (:mod:`headstart.fleet.summing.shards`), from which the rows of a
range of hashes can be read, so that rows can be divided as finely as memory asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headstart.bandit.fitting import OneTask, TaskRows, rows_by_task
from headstart.bandit.observation import weighted_sums
from headstart.bandit.rewards import Binary
from headstart.errors import FileError, InputError
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.hashing import hash_ids, id_texts, partition_range
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.shards import gather_rows, read_run, row_shards, write_run
from headstart.fleet.summing.summary import ReadSummary
from headstart.model.evidence import packed_size
from headstart.records import Array

__all__ = ["RowFiles", "StoredPart", "check_clicks", "store_part"]

COPIES = 6  # arrays of the size of the features that are made of rows that are read
SHARDS = 64  # of a run


class StoredPart(NamedTuple):
    """What was stored of a part: the names of its runs, what was read, and the sums of all rows.

    The sums are those of contexts and rewards as they are, packed.
    """

    names: list[str]
    summary: ReadSummary
    pooled: Array


def store_part(job: tuple[int, Part], logs: Logs, folder: Path) -> StoredPart:
    """Store the rows of a part, given with its number, that are evidence."""
    number, part = job
    stored = StoredPart([], ReadSummary(), np.zeros(packed_size(logs.width)))
    for place, block in enumerate(logs.read(part)):
        stored.summary.count(block)
        rows = block.shown()
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
