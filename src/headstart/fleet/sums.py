"""The evidence of very many tasks, added up row by row, on disk where memory does not hold it.

A task is a row of numbers, :meth:`headstart.Evidence.pack`. Tasks are kept in the order of a
*mark*, a hash of their id: an order that is the same on every machine, whatever came first. The
marks also divide them into 64 *buckets* of about the same size, which are added up, merged and
fitted one by one: :class:`Sums` while rows come in, :class:`Shelf` when all have.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.archive import EvidenceFile, write_evidence
from headstart.errors import FileError
from headstart.evidence import Evidence, packed_size, upper
from headstart.fleet.rows import Rows

__all__ = ["BUCKETS", "Portion", "Shelf", "Sums", "bucket_of", "compiled", "mark_of"]

BUCKETS = 64
MANY = 1 << 16  # rows that make it worth while to load the compiled loops
SEVERAL = 1024  # tasks that are written or read at a time
TOGETHER = 1 << 27  # bytes of features that are added at once

Packed = npt.NDArray[np.float64]


def mark_of(name: str) -> bytes:
    """A hash of a task's id: the same everywhere and as good as random."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


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


class Sums:
    """The sums of many tasks, to which rows are added.

    Parameters
    ----------
    dim
        The number of features.
    budget
        How many bytes of memory the sums may take. When they would take more, they are written to
        a file, sorted, and begun anew; :meth:`shelf` adds the files up.
    folder
        Where these files go; a temporary folder unless given.

    Examples
    --------
    >>> sums = Sums(dim=2)
    >>> rows = Rows(np.array([0, 1, 0], np.int32), ["ann", "bob"], np.ones(3), np.eye(3, 2))
    >>> sums.add(rows)
    >>> for names, evidence in sums.items():
    ...     print(names, evidence.rounds, evidence.moment.tolist())
    ['bob'] [1.] [[0.0, 1.0]]
    ['ann'] [2.] [[1.0, 0.0]]
    """

    def __init__(self, dim: int, budget: int = 2 << 30, folder: Path | None = None) -> None:
        self.dim = checks.integer("dim", dim, 1)
        self.width = packed_size(dim)
        self.capacity = max(1, checks.integer("budget", budget, 1) // (8 * self.width))
        self.runs: list[Path] = []
        self.places: dict[str, int] = {}
        # All of it at once: the system gives memory only for what is used.
        self.table: Packed = np.zeros((self.capacity, self.width))
        self.waiting: Waiting | None = None
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __len__(self) -> int:
        """How many tasks are in memory."""
        return len(self.places)

    @property
    def folder(self) -> Path:
        """Where files go."""
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="headstart-")
            self._folder = Path(self._temporary.name)
        return self._folder

    def add(self, rows: Rows) -> None:
        """Add rows: those that were chosen, where that was logged."""
        rows = rows.shown()
        if len(rows.names) > self.capacity:
            for start in range(0, len(rows.names), self.capacity):
                inside = (rows.codes >= start) & (rows.codes < start + self.capacity)
                self.add(rows.take(inside))
            return
        places = self.places_of(rows.names)
        loops = compiled(len(rows.codes))
        if loops is None:
            weights = np.empty(0) if rows.weights is None else rows.weights
            accumulate(rows, weights, places, self.table)
            return
        # Rows wait until there are many: the more rows a task has at once, the less each takes.
        start, kind = 0, rows.features.dtype
        while start < len(rows.codes):
            if self.waiting is None or self.waiting.features.dtype != kind:
                self.flush()
                self.waiting = Waiting(
                    max(TOGETHER // (kind.itemsize * self.dim), 1), self.dim, kind
                )
            start += self.waiting.take(rows, places, start)
            if self.waiting.full:
                self.flush()

    def flush(self) -> None:
        """Add the rows that wait."""
        waiting = self.waiting
        if waiting is None or not waiting.count:
            return
        loops, many = compiled(MANY), slice(0, waiting.count)
        order, starts = loops.grouped(waiting.places[many], len(self.places))
        weights = waiting.weights[many] if waiting.weighted else np.empty(0)
        everywhere = np.arange(len(self.places))
        features, rewards = waiting.features[many], waiting.rewards[many]
        loops.accumulate(order, starts, everywhere, features, rewards, weights, self.table)
        waiting.count, waiting.weighted = 0, False

    def add_packed(self, names: Sequence[str], rows: Packed) -> None:
        """Add the packed sums of tasks, each of which is named once."""
        for start in range(0, len(names), self.capacity):
            some = slice(start, start + self.capacity)
            places = self.places_of(names[some])
            self.table[places] += rows[some]

    def merge(self, other: Sums) -> None:
        """Add all of another's sums, and take over its files."""
        if other.dim != self.dim:
            raise checks.refuse("other", f"Sums of dimension {self.dim}", other.dim)
        other.flush()
        names = list(other.places)
        for start in range(0, len(names), SEVERAL):
            some = names[start : start + SEVERAL]
            self.add_packed(some, other.table[start : start + len(some)])
        self.runs += other.runs
        other.runs, other.places = [], {}
        other.table = np.zeros((0, self.width))

    def places_of(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Where in the table the tasks are; new ones get a place, if need be in an empty table."""
        known = self.places
        if len(known) + len(names) > self.capacity:
            fresh = sum(name not in known for name in names)
            if len(known) + fresh > self.capacity:
                self.spill()
                known = self.places
        found = (known.setdefault(name, len(known)) for name in names)
        return np.fromiter(found, np.int64, len(names))

    def spill(self) -> Path | None:
        """Write what is in memory to a file, and begin anew; ``None`` if there is nothing."""
        self.flush()
        if not self.places:
            return None
        path = self.folder / f"run-{secrets.token_hex(8)}.evidence"
        order = sorted(self.places, key=mark_of)
        write_packed(path, self.in_order(order), self.dim)
        self.runs.append(path)
        self.table[: len(self.places)] = 0.0
        self.places = {}
        return path

    def in_order(self, names: Sequence[str]) -> Iterator[Portion]:
        """Tasks in memory, some at a time."""
        for start in range(0, len(names), SEVERAL):
            some = list(names[start : start + SEVERAL])
            yield Portion(some, self.table[[self.places[name] for name in some]])

    def shelf(self, keep: bool = False) -> Shelf:
        """All tasks, each once, with everything that was added; nothing can be added afterwards.

        Files that were written meanwhile are removed, unless they are to be kept.
        """
        self.flush()
        self.waiting = None
        if not self.runs:
            return Shelf.in_memory(self.dim, self.places, self.table)
        self.spill()
        portions = merged(self.runs, self.dim)
        shelf = Shelf.on_disk(self.dim, portions, self.folder)
        shelf.keep_alive = self._temporary
        for run in [] if keep else self.runs:
            run.unlink(missing_ok=True)
        self.runs = []
        return shelf

    def items(self) -> Iterator[tuple[list[str], Evidence]]:
        """The tasks, bucket by bucket, in the order of their marks."""
        for portion in self.shelf():
            if portion.names:
                yield portion.names, Evidence.unpack(portion.rows, self.dim)


class Waiting:
    """Room for rows that are to be added together; it is used again and again.

    (Memory that is given back and taken anew for every block costs as much as adding the block.)
    """

    def __init__(self, room: int, dim: int, kind: np.dtype[Any]) -> None:
        self.count, self.weighted = 0, False
        self.places = np.empty(room, np.int64)
        self.features = np.empty((room, dim), kind)
        self.rewards = np.empty(room)
        self.weights = np.empty(room)

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return self.count == len(self.places)

    def take(self, rows: Rows, places: npt.NDArray[np.int64], start: int) -> int:
        """Copy rows, as many as there is room for; gives how many."""
        many = min(len(rows.codes) - start, len(self.places) - self.count)
        here, there = slice(start, start + many), slice(self.count, self.count + many)
        np.take(places, rows.codes[here], out=self.places[there])
        self.features[there] = rows.features[here]
        self.rewards[there] = rows.rewards[here]
        if rows.weights is not None:
            if not self.weighted:
                self.weights[: self.count] = 1.0
                self.weighted = True
            self.weights[there] = rows.weights[here]
        elif self.weighted:
            self.weights[there] = 1.0
        self.count += many
        return many


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
    def in_memory(cls, dim: int, places: dict[str, int], table: Packed) -> Shelf:
        """Tasks whose sums are in a table."""
        marked = sorted((mark_of(name), name, place) for name, place in places.items())
        shelf = cls(dim, [0] * BUCKETS)
        groups = {key: list(group) for key, group in itertools.groupby(marked, bucket_of_marked)}
        for bucket in range(BUCKETS):
            tasks = groups.get(bucket, [])
            shelf.sizes[bucket] = len(tasks)
            shelf.names.append([name for _, name, _ in tasks])
            shelf.places.append(np.array([place for _, _, place in tasks], dtype=np.int64))
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

    def __iter__(self) -> Iterator[Portion]:
        """The buckets in order."""
        return (self.portion(bucket) for bucket in range(BUCKETS))

    def remove(self) -> None:
        """Let go of the files, if there are any."""
        for path in self.files:
            path.unlink(missing_ok=True)


def bucket_of_marked(task: tuple[bytes, str, int]) -> int:
    """The bucket of a task that comes with its mark."""
    return bucket_of(task[0])


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


_loops: list[Any] = []


def compiled(rows: int) -> Any:
    """The compiled loops, if Numba is there; they are not loaded for a few rows."""
    if not _loops and rows >= MANY:
        try:
            _loops.append(importlib.import_module("headstart.fleet.compiled"))
        except ImportError:
            _loops.append(None)
    return _loops[0] if _loops else None


def accumulate(rows: Rows, weights: Packed, places: npt.NDArray[np.int64], table: Packed) -> None:
    """Add rows to the packed sums of their tasks, without Numba."""
    order = np.argsort(rows.codes, kind="stable")
    starts = np.searchsorted(rows.codes[order], np.arange(len(rows.names) + 1))
    triangle = upper(rows.features.shape[1])
    for task, place in enumerate(places):
        some = order[starts[task] : starts[task + 1]]
        if not len(some):
            continue
        x = rows.features[some].astype(np.float64)
        r = rows.rewards[some]
        w = weights[some] if len(weights) else np.ones(len(some))
        weighted = x * w[:, None]
        pull = w * r
        table[place] += np.concatenate([(weighted.T @ x)[triangle], pull @ x, [w.sum(), pull @ r]])
