"""The finished evidence of very many tasks, in memory or on disk, in an order of its own.

Tasks are kept in the order of a *mark*, a hash of their id: an order that is the same on every
machine, whatever came first. The marks also divide them into 64 *buckets* of about the same size,
which are merged and fitted one by one.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.errors import FileError
from headstart.fleet.reading.hashing import hash_ids
from headstart.model.evidence import Evidence, packed_size
from headstart.storage.archive import EvidenceFile, write_evidence

__all__ = [
    "BUCKETS",
    "Packed",
    "Portion",
    "Shelf",
    "bucket_of",
    "mark_of",
    "merged",
    "write_packed",
]

SEVERAL = 1024  # tasks that are written or read at a time

Packed = npt.NDArray[np.float64]


BUCKETS = 64


def mark_of(name: str) -> bytes:
    """A hash of a task's id: the same everywhere and as good as random."""
    return int(hash_ids(pa.array([name]))[0]).to_bytes(8, "big") + name.encode()


def bucket_of(mark: bytes) -> int:
    """The bucket of a task, by its mark's first six bits; buckets are ranges of marks.

    >>> bucket_of(mark_of("user-42")) == mark_of("user-42")[0] // 4
    True
    """
    return mark[0] * BUCKETS // 256


class Portion(NamedTuple):
    """The tasks of one bucket, in the order of their marks, with their packed sums."""

    names: list[str]
    rows: Packed


class Shelf:
    """Finished sums of tasks in their 64 buckets, in memory or on disk."""

    def __init__(self, dim: int, sizes: Sequence[int]) -> None:
        self.dim = dim
        self.sizes = list(sizes)
        self.places: list[npt.NDArray[np.int64]] = []
        self.names: list[list[str]] = []
        self.table: Packed | None = None
        self.files: list[Path] = []
        self.keep_alive: Any = None

    def __len__(self) -> int:
        """How many tasks there are."""
        return sum(self.sizes)

    @classmethod
    def in_memory(cls, dim: int, places: Mapping[str, int], table: Packed) -> Shelf:
        """Tasks whose sums are in a table."""
        names, at = list(places), np.fromiter(places.values(), np.int64, len(places))
        marks = hash_ids(pa.array(names, pa.large_string()))
        order = np.argsort(marks)
        shift = np.uint64(64 - BUCKETS.bit_length() + 1)  # the first six bits are left
        edges = np.searchsorted(marks[order] >> shift, np.arange(BUCKETS + 1, dtype=np.uint64))
        shelf = cls(dim, np.diff(edges).tolist())
        for start, stop in itertools.pairwise(edges.tolist()):
            shelf.names.append([names[place] for place in order[start:stop].tolist()])
            shelf.places.append(at[order[start:stop]])
        shelf.table = table
        return shelf

    @classmethod
    def on_disk(cls, dim: int, portions: Iterable[Portion], folder: Path) -> Shelf:
        """The same, a file for each bucket."""
        shelf = cls(dim, [0] * BUCKETS)
        token = secrets.token_hex(8)
        try:
            for bucket, portion in enumerate(portions):
                path = folder / f"bucket-{token}-{bucket:02d}.evidence"
                write_packed(path, [portion], dim)
                shelf.files.append(path)
                shelf.sizes[bucket] = len(portion.names)
        except BaseException:
            shelf.remove()
            raise
        return shelf

    def portion(self, bucket: int) -> Portion:
        """The tasks of one bucket."""
        if self.table is not None:
            return Portion(self.names[bucket], self.table[self.places[bucket]])
        with EvidenceFile(self.files[bucket]) as file:
            blocks = list(file.blocks())
        names = [name for ids, _ in blocks for name in ids]
        empty = np.zeros((0, packed_size(self.dim)))
        return Portion(names, np.concatenate([empty, *(rows for _, rows in blocks)]))

    def where(self, bucket: int) -> tuple[Packed, npt.NDArray[np.int64]]:
        """A table in which the sums of one bucket's tasks are, not to be changed, and the rows."""
        if self.table is not None:
            return self.table, self.places[bucket]
        rows = self.portion(bucket).rows
        return rows, np.arange(len(rows))

    def __iter__(self) -> Iterator[Portion]:
        """The buckets in order."""
        return (self.portion(bucket) for bucket in range(BUCKETS))

    def remove(self) -> None:
        """Let go of the files, if there are any."""
        for path in self.files:
            path.unlink(missing_ok=True)
        if self.keep_alive is not None:
            self.keep_alive.cleanup()


def write_packed(path: Path, portions: Iterable[Portion], dim: int) -> None:
    """Write packed sums to an evidence file."""
    items = (
        (portion.names[at : at + SEVERAL], Evidence.unpack(portion.rows[at : at + SEVERAL], dim))
        for portion in portions
        for at in range(0, len(portion.names), SEVERAL)
    )
    write_evidence(path, items, dim)


def merged(runs: Sequence[Path], dim: int) -> Iterator[Portion]:
    """The buckets of several sorted files, added up task by task; one bucket is in memory."""
    files = [EvidenceFile(run) for run in runs]
    try:
        for file, run in zip(files, runs, strict=True):
            if file.dim != dim:
                raise FileError(f"path {str(run)!r} must hold evidence of dimension {dim}")
        cursors = [Cursor(file) for file in files]
        for bucket in range(BUCKETS):
            found = [cursor.take(bucket) for cursor in cursors]
            names = sorted({name for portion in found for name in portion.names}, key=mark_of)
            places = {name: place for place, name in enumerate(names)}
            total = np.zeros((len(names), packed_size(dim)))
            for portion in found:
                total[[places[name] for name in portion.names]] += portion.rows
            yield Portion(names, total)
    finally:
        for file in files:
            file.close()


class Cursor:
    """A sorted file of evidence, read bucket by bucket."""

    def __init__(self, file: EvidenceFile) -> None:
        self.blocks = file.blocks()
        self.width = packed_size(file.dim)
        self.rest = Portion([], np.zeros((0, self.width)))

    def take(self, bucket: int) -> Portion:
        """The tasks of the next bucket."""
        names: list[str] = []
        parts = [np.zeros((0, self.width))]
        while True:
            inside = 0
            for name in self.rest.names:
                if bucket_of(mark_of(name)) > bucket:
                    break
                inside += 1
            names += self.rest.names[:inside]
            parts.append(self.rest.rows[:inside])
            self.rest = Portion(self.rest.names[inside:], self.rest.rows[inside:])
            if self.rest.names:
                break
            block = next(self.blocks, None)
            if block is None:
                break
            self.rest = Portion(block[0], block[1].astype(np.float64, copy=False))
        return Portion(names, np.concatenate(parts))
