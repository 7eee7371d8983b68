"""The evidence of very many tasks, added up row by row, on disk where memory does not hold it.

A task is a row of numbers, :meth:`headstart.Evidence.pack`, in one table that all threads share.
"""

from __future__ import annotations

import mmap
import secrets
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart import checks
from headstart.fleet.reading.rows import Rows
from headstart.fleet.reading.transpose import Upright
from headstart.fleet.summing.index import Index
from headstart.fleet.summing.loops import compiled, loading
from headstart.fleet.summing.shelf import (
    SEVERAL,
    Packed,
    Portion,
    Shelf,
    mark_of,
    merged,
    write_packed,
)
from headstart.model.evidence import Evidence, packed_size, upper_triangle

__all__ = ["Sums"]

TOGETHER = 1 << 29  # bytes of features that are added at once, at most,
SHARE = 4  # and at most this part of the budget
LINE = 64  # bytes of memory that a processor reads together
EARLY = 1 << 27  # bytes of features that are kept while the compiled loops are being loaded
PIECES = 4  # for each thread, so that none waits long for the last


class Sums:
    """The sums of many tasks, to which rows are added, by any number of threads.

    Parameters
    ----------
    dim
        The number of features.
    budget
        How many bytes of memory the sums may take. When they would take more, they are written to
        a file, sorted, and begun anew; :meth:`shelf` adds the files up.
    folder
        Where these files go; a temporary folder unless given.
    workers
        How many threads add rows up.

    Examples
    --------
    >>> sums = Sums(dim=2)
    >>> ids = pa.array(["ann", "bob"])
    >>> sums.add(Rows(np.array([0, 1, 0], np.int32), ids, np.ones(3), np.eye(3, 2)))
    >>> for names, evidence in sums.items():
    ...     print(names, evidence.rounds, evidence.moment.tolist())
    ['bob'] [1.] [[0.0, 1.0]]
    ['ann'] [2.] [[1.0, 0.0]]
    """

    def __init__(
        self, dim: int, budget: int = 2 << 30, folder: Path | None = None, workers: int = 1
    ) -> None:
        self.dim = checks.dimension(dim)
        self.width = packed_size(dim)
        self.room = min(TOGETHER, checks.integer("budget", budget, 1) // SHARE)
        self.capacity = max(1, (budget - self.room) // (8 * self.width))
        self.runs: list[Path] = []
        self.index = Index()
        self.table = empty_table(self.capacity, self.width)
        self.early: list[Rows] = []
        self.waiting: Waiting | None = None
        self.workers = workers
        self.lock = threading.RLock()  # for whoever adds; hold it to add several blocks as one
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __len__(self) -> int:
        """How many tasks are in memory."""
        return len(self.index)

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
        with self.lock:
            if len(rows.ids) <= self.capacity:
                self.early.append(rows)
            else:
                for start in range(0, len(rows.ids), self.capacity):
                    inside = (rows.codes >= start) & (rows.codes < start + self.capacity)
                    self.early.append(rows.take(inside))
            size = sum(len(rows.codes) * rows.features.dtype.itemsize for rows in self.early)
            if size * self.dim > EARLY or not loading():
                self.add_early()

    def add_early(self) -> None:
        """Add the rows that came while the compiled loops were being loaded."""
        while self.early:
            self.add_shown(self.early[0])
            del self.early[0]  # only now: if there was no room on the disk, nothing was added

    def add_shown(self, rows: Rows) -> None:
        """Add rows of no more tasks than there is room for."""
        places = self.places_of(rows.ids)
        if compiled(len(rows.codes)) is None:
            weights = np.empty(0) if rows.weights is None else rows.weights
            accumulate(rows._replace(features=rows.features[:]), weights, places, self.table)
            return
        # Rows wait until there are many: the more rows a task has at once, the less each takes.
        start, kind = 0, rows.features.dtype
        while start < len(rows.codes):
            if self.waiting is None or self.waiting.features.dtype != kind:
                self.flush()
                self.waiting = Waiting(self.room, self.dim, kind)
            start += self.waiting.take(rows, places, start)
            if self.waiting.full:
                self.flush()

    def flush(self) -> None:
        """Add the rows that wait, every thread those of some tasks."""
        waiting = self.waiting
        if waiting is None or not waiting.count:
            return
        loops, many, tasks = compiled(), slice(0, waiting.count), len(self.index)
        order, starts = loops.grouped(waiting.places[many], tasks)
        weights = waiting.weights[many] if waiting.weighted else np.empty(0)
        features, rewards = waiting.features[many], waiting.rewards[many]
        dim, table = self.dim, self.table
        edges = np.linspace(0, tasks, PIECES * self.workers + 1).astype(int)

        def add(low: int, high: int) -> None:
            rest = starts[low : high + 1], np.arange(low, high)
            loops.accumulate(order, *rest, features, dim, rewards, weights, table)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(add, edges[:-1], edges[1:]))
        waiting.count, waiting.weighted = 0, False

    def add_packed(self, ids: pa.Array, rows: Packed) -> None:
        """Add the packed sums of tasks, each of which is named once."""
        with self.lock:
            for start in range(0, len(ids), self.capacity):
                some = slice(start, start + self.capacity)
                places, more = self.places_of(ids[some]), rows[some]
                for at in range(0, len(places), SEVERAL):  # a little at a time stays in the cache
                    few = slice(at, at + SEVERAL)
                    self.table[places[few]] += more[few]

    def places_of(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        """Where in the table the tasks are; new ones get a place, if need be in an empty table."""
        known = len(self.index)
        if known + len(ids) > self.capacity and known + self.index.missing(ids) > self.capacity:
            self.clear()
        return self.index.numbers(ids)

    def spill(self) -> None:
        """Write all that was added to a file, if there is anything, and begin anew."""
        with self.lock:
            self.add_early()
            self.clear()

    def clear(self) -> None:
        """Write what is in the table, or waits for it, to a file."""
        self.flush()
        if not len(self.index):
            return
        path = self.folder / f"run-{secrets.token_hex(8)}.evidence"
        write_packed(path, self.in_order(), self.dim)
        self.runs.append(path)
        self.table[: len(self.index)] = 0.0
        self.index = Index()

    def in_order(self) -> Iterator[Portion]:
        """The tasks in memory in the order of their marks, some at a time."""
        places = self.index.places
        names = sorted(places, key=mark_of)
        for start in range(0, len(names), SEVERAL):
            some = names[start : start + SEVERAL]
            yield Portion(some, self.table[[places[name] for name in some]])

    def shelf(self, keep: bool = False) -> Shelf:
        """All tasks, each once, with everything that was added; nothing can be added afterwards.

        Files that were written meanwhile are removed, unless they are to be kept.
        """
        self.add_early()
        self.flush()
        self.waiting = None
        if not self.runs:
            return Shelf.in_memory(self.dim, self.index.places, self.table)
        self.spill()
        shelf = Shelf.on_disk(self.dim, merged(self.runs, self.dim), self.folder)
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


def empty_table(rows: int, width: int) -> Packed:
    """Zeros, for which the system gives memory only where they are changed.

    Page by page, not in the large pieces that NumPy asks for: a piece is dear where memory has to
    be fetched from the host of a virtual machine, and tasks are read and written a page at a time.
    """
    memory = mmap.mmap(-1, max(8 * rows * width, 1), access=mmap.ACCESS_COPY)
    return np.frombuffer(memory, np.float64, rows * width).reshape(rows, width)


class Waiting:
    """Room for rows that are to be added together; it is used again and again.

    (Memory that is given back and taken anew for every block costs as much as adding the block.)
    """

    def __init__(self, budget: int, dim: int, kind: np.dtype[Any]) -> None:
        self.dim, self.count, self.weighted = dim, 0, False
        # Every row begins with a line of memory, so that it lies in as few of them as can be.
        many = LINE // kind.itemsize
        width = -(-dim // many) * many
        room = max(budget // (kind.itemsize * width + 24), 1)
        memory = np.zeros(room * width + many, kind)
        start = -memory.ctypes.data % LINE // kind.itemsize
        self.features = memory[start : start + room * width].reshape(room, width)
        self.places = np.empty(room, np.int64)
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
        if isinstance(rows.features, Upright):
            rows.features.turn(start, self.features[there])
        else:
            self.features[there, : self.dim] = rows.features[here]
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


def accumulate(rows: Rows, weights: Packed, places: npt.NDArray[np.int64], table: Packed) -> None:
    """Add rows to the packed sums of their tasks, without Numba."""
    order = np.argsort(rows.codes, kind="stable")
    starts = np.searchsorted(rows.codes[order], np.arange(len(rows.ids) + 1))
    triangle = upper_triangle(rows.features.shape[1])
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
