"""Rows of logs in temporary files, from which all rows of some tasks can be read at a time.

Every block of a log becomes a few files with its rows in the order of the hashes of their tasks. A
range of hashes is then a slice of each, so that rows can be divided as finely as memory asks for.
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
from headstart.fleet.reading.hashing import hash_ids, id_texts, partition_range
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.summary import ReadSummary
from headstart.model.evidence import packed_size
from headstart.records import Array

__all__ = ["RowFiles", "StoredPart", "check_clicks", "store_part"]

COPIES = 6  # arrays of the size of the features that are made of rows that are read


class StoredPart(NamedTuple):
    """What was stored of a part: the names of its files, what was read, and the sums of all rows.

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
        if rows.count:
            name = f"{number}-{place}"
            stored.names.append(name)
            stored.pooled[:] += store_rows(rows, folder / name)
    stored.summary.parts.append(part.key)
    return stored


def store_rows(rows: Rows, path: Path) -> Array:
    """Store rows in the order of their tasks' hashes; returns their sums."""
    hashes = hash_ids(rows.ids)
    by_hash = np.argsort(hashes, kind="stable")
    rank = np.empty(len(by_hash), np.intp)
    rank[by_hash] = np.arange(len(by_hash))
    order = np.argsort(rank[rows.codes], kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(rank[rows.codes], minlength=len(rank))))
    weights = np.ones(rows.count) if rows.weights is None else rows.weights
    features = np.asarray(rows.features)
    ids = id_texts(rows.ids).take(pa.array(by_hash))
    try:
        np.save(f"{path}.tasks.npy", hashes[by_hash])
        np.save(f"{path}.starts.npy", starts)
        np.save(f"{path}.features.npy", features[order])
        np.save(f"{path}.rewards.npy", np.column_stack([rows.rewards, weights])[order])
        batch = pa.record_batch([ids], ["id"])
        with pa.OSFile(f"{path}.ids", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
    except OSError as error:
        raise FileError(
            f"rows cannot be stored in the temporary folder {str(path.parent)!r} ({error}): give "
            f"another with more room (TMPDIR)"
        ) from None
    return weighted_sums(features.astype(np.float64), rows.rewards, weights)[0].pack()


class RowFiles(NamedTuple):
    """Rows that were stored, divided into ranges of hashes of about equal numbers of tasks.

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
        low, high = partition_range(number, self.ranges)
        ids, tables = [], []
        for name in self.names:
            path = self.folder / name
            hashes = np.load(f"{path}.tasks.npy", mmap_mode="r")
            first = int(np.searchsorted(hashes, np.uint64(low)))
            last = int(np.searchsorted(hashes, np.uint64(high - 1), "right"))
            if first == last:
                continue
            starts = np.load(f"{path}.starts.npy", mmap_mode="r")[first : last + 1]
            here = slice(int(starts[0]), int(starts[-1]))
            with pa.memory_map(f"{path}.ids") as file:
                texts = pa.ipc.open_file(file).get_batch(0).column(0).slice(first, last - first)
                ids.append(np.repeat(np.array(texts.to_pylist(), dtype=object), np.diff(starts)))
            features = np.load(f"{path}.features.npy", mmap_mode="r")[here]
            values = np.load(f"{path}.rewards.npy", mmap_mode="r")[here]
            tables.append(np.column_stack([features, values]))
        if not ids:
            return []
        table = np.concatenate(tables, dtype=np.float64)
        rows = TaskRows(np.concatenate(ids), table[:, :-2], table[:, -2], table[:, -1], ())
        return rows_by_task(rows, 1.0)


def check_clicks(rewards: Array, logs: Logs) -> None:
    """Refuse rewards other than 0 and 1."""
    try:
        Binary().read_many(rewards)
    except InputError as error:
        raise InputError(f"column {logs.columns.reward!r}: {error}") from None
