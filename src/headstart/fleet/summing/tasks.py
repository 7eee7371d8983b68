"""The finished sums of all tasks, in memory or on disk, in chunks of a few megabytes.

Tasks are in the order of the hash of their ids, whatever was read first and wherever they are kept.
A pass is a function of some tasks at a time.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from headstart.fleet.reading.arrays import as_arrow, own_array
from headstart.fleet.reading.hashing import hash_ids, partition_range
from headstart.fleet.summing.grams import Whole
from headstart.fleet.summing.shards import (
    Partition,
    chunk_tasks,
    matrix_of,
    merge_runs,
    run_reader,
    sum_shard,
    write_run,
)
from headstart.records import Array
from headstart.transfer.partitions import Partitions
from headstart.transfer.standardize import Standardization

Result = TypeVar("Result")


class TaskPartitions(Partitions):
    """Partitions of all tasks, as engines keep them.

    ``units`` are those of the features, once they are known; ``on_pass`` is called after every pass
    over the tasks.
    """

    def __init__(self, dim: int, sizes: Sequence[int]) -> None:
        self.dim = dim
        self.sizes: list[int] = list(sizes)
        self.units: Standardization | None = None
        self.on_pass: Callable[[], None] = lambda: None

    def in_units(self, units: Standardization) -> Self:
        """The same object: from here on, features are in these units."""
        self.units = units
        return self

    @abstractmethod
    def read_partition(self, number: int) -> Partition:
        """The tasks of one partition, of features as they are in the logs."""

    def partition(self, number: int) -> Partition:
        """A copy of the tasks of one partition, in these units."""
        ids, rows = self.read_partition(number)
        return Partition(ids, change_units(rows, self.units))

    def rows(self, partition: int) -> Array:
        """The packed evidence of one partition's tasks, in these units."""
        return self.partition(partition).rows

    def limits(self, first: int | None) -> dict[int, int]:
        """How many tasks of each partition are among the first, where there are any."""
        starts = np.cumsum([0, *self.sizes])
        rest = len(self) if first is None else first
        return {
            number: min(size, rest - int(start))
            for number, (size, start) in enumerate(zip(self.sizes, starts[:-1], strict=True))
            if size and start < rest
        }


class LocalTasks(TaskPartitions):
    """Tasks on this machine: every chunk of them is a partition."""

    def __init__(self, dim: int, sizes: Sequence[int], workers: int) -> None:
        super().__init__(dim, sizes)
        self.workers = workers

    def map(
        self, function: Callable[..., Result], *arguments: Any, first: int | None = None
    ) -> list[Result]:
        """Every chunk's, by several threads: most of the work holds no lock of Python's."""
        call = Call(function, arguments, self.units)

        def answer(number: int, limit: int) -> Any:
            return call(self.read_partition(number).rows[:limit], self.dim)

        limits = self.limits(first)
        with ThreadPoolExecutor(self.workers) as pool:
            results = list(pool.map(answer, limits, limits.values()))
        self.on_pass()
        return results


class MemoryTasks(LocalTasks):
    """Tasks whose sums are in one table.

    Parameters
    ----------
    dim
        The number of features.
    ids, table
        The ids and the packed sums of tasks.
    order
        Which rows of the table are tasks, in their order; all of them unless given.
    workers
        How many threads work on them.
    """

    def __init__(
        self,
        dim: int,
        ids: pa.LargeStringArray,
        table: Array,
        order: Whole | None = None,
        workers: int = 1,
    ) -> None:
        self.ids, self.table = ids, table
        self.order: Whole = np.arange(len(table)) if order is None else order
        self.step = chunk_tasks(dim)
        count = len(self.order)
        sizes = [min(self.step, count - at) for at in range(0, count, self.step)]
        super().__init__(dim, sizes, workers)

    def read_partition(self, number: int) -> Partition:
        """A copy of some tasks."""
        places = self.order[number * self.step : (number + 1) * self.step]
        return Partition(self.ids.take(as_arrow(places)), self.table[places])


def write_partition(
    path: Path, runs: Sequence[Path], dim: int, partition: int, count: int, limit: int
) -> None:
    """Sum up one partition of ``count`` from runs, in ``limit`` bytes of memory, about.

    The file is a run of chunks, and is empty where there are no tasks.
    """
    write_chunks(path, merge_runs(runs, dim, *partition_range(partition, count), limit), True)


def write_chunks(path: Path, chunks: Iterable[Partition], lasting: bool = False) -> None:
    """Write the sums of tasks, some at a time and in their order."""
    write_run(path, (sum_shard(hash_ids(ids), ids, rows) for ids, rows in chunks), lasting)


class DiskTasks(LocalTasks):
    """Tasks whose sums are in files of :func:`write_chunks`: a chunk is read at a time."""

    def __init__(self, dim: int, files: Sequence[Path], workers: int = 1) -> None:
        sizes, self.places = [], list[tuple[Path, int]]()
        for path in (path for path in files if path.stat().st_size):
            with run_reader(path, pa.memory_map) as reader:  # of which only the sizes are read
                for at in range(reader.num_record_batches):
                    self.places.append((path, at))
                    sizes.append(reader.get_batch(at).num_rows)
        super().__init__(dim, sizes, workers)

    def read_partition(self, number: int) -> Partition:
        """One chunk."""
        path, at = self.places[number]
        with run_reader(path) as reader:
            chunk = reader.get_batch(at)
        return Partition(chunk.column("id"), matrix_of(chunk, "packed"))


class Call(NamedTuple):
    """``function(rows, dim, *arguments)`` of the packed evidence of tasks, wherever they are.

    Features are in ``units``, if there are any.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    units: Standardization | None

    def __call__(self, rows: Array, dim: int) -> Any:
        """The function of some tasks."""
        return self.function(change_units(rows, self.units), dim, *self.arguments)


def change_units(rows: Array, units: Standardization | None) -> Array:
    """Array evidence in units, if there are any; rows that may be written to are changed."""
    own = own_array(rows)
    return own if units is None else units.packed(own)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrices here are small, and the cores are busy: more threads would only wait.

    (Without threadpoolctl it takes OPENBLAS_NUM_THREADS=1 in the environment.)
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    with threadpool_limits(1, "blas"):
        yield
