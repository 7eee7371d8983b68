"""The engine of one machine: threads read parts of the logs and add them up together.

Reading and adding up hold no lock of Python's. With a checkpoint, what was read is written there
now and then: the sums, the rows that were spilled, and how far every part was read. A fit that is
interrupted and begun again reads only the rest. Jobs that need nothing of each other run in threads
or on a Ray cluster (:func:`job_runner`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from headstart import checks
from headstart.errors import FileError
from headstart.fleet.engines.cluster import connect, in_order
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing import checkpoint as checkpoints
from headstart.fleet.summing.accumulator import (
    Accumulator,
    partition_count,
    plan_reading,
    unread_blocks,
)
from headstart.fleet.summing.checkpoint import Checkpoint, Position
from headstart.fleet.summing.grams import TABLES
from headstart.fleet.summing.shards import write_run
from headstart.fleet.summing.summary import FinishedParts, Progress, ReadSummary, no_progress
from headstart.fleet.summing.tasks import (
    DiskTasks,
    LocalTasks,
    MemoryTasks,
    one_blas_thread,
    write_partition,
)
from headstart.kernels import forms
from headstart.transfer.empirical_bayes.refits.partition_fit import LOOPS

Result = TypeVar("Result")


@contextlib.contextmanager
def gather(
    logs: Logs,
    *,
    workers: int | None = None,
    memory: int = 2 << 30,
    checkpoint: Checkpoint | None = None,
    progress: Progress = no_progress,
) -> Iterator[tuple[LocalTasks, ReadSummary]]:
    """Read all logs, and add them up by task: the tasks, and what was read for them.

    Parameters
    ----------
    logs
        What to read.
    workers
        How many threads; as many as there are cores unless given.
    memory
        How many bytes of memory it may take, about. What does not fit goes to disk.
    checkpoint
        Where to write what was read, so that an interrupted fit can be resumed. What goes to disk
        otherwise is removed in the end.
    progress
        Called as rows (or, where the number of rows is unknown, bytes) are read.
    """
    workers = os.cpu_count() or 1 if workers is None else checks.integer("workers", workers, 1)
    with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
        folder = Path(temporary)
        if checkpoint is not None and not checkpoint.folder.remote:
            folder = Path(checkpoint.folder.place)
        reading = Reading(logs, folder, checkpoint, workers, memory, progress)
        try:
            reading.run()
            yield reading.finish(), reading.summary
        finally:
            if checkpoint is not None:
                checkpoint.remove_unsaved()


class Reading:
    """What all threads have read, and how far they are."""

    def __init__(
        self,
        logs: Logs,
        folder: Path,
        checkpoint: Checkpoint | None,
        workers: int,
        memory: int,
        progress: Progress,
    ) -> None:
        parts = logs.parts()
        self.logs, self.folder, self.checkpoint = logs, folder, checkpoint
        self.before = ReadSummary() if checkpoint is None else checkpoint.summary
        self.workers, self.limit = workers, memory // (4 * workers)
        self.readers, self.block, left = plan_reading(logs.width, memory, workers)
        rows = logs.survey.rows
        if rows >= forms.MIN_COMPILED_WORK:
            forms.load_in_background(TABLES)
            forms.load_in_background(LOOPS)
        self.partitions = partition_count(rows, logs.width, self.limit)
        self.runs: list[Path] = []  # what was spilled
        self.sums = Accumulator(logs.width, left, self.partitions, self.spill, workers)
        self.lock = self.sums.lock  # for all that follows
        self.summary = ReadSummary()
        self.positions: dict[str, Position] = {}
        self.sound = True  # whether the sums hold what the summary says
        self.started = time.monotonic()
        self.next_save = self.started + checkpoints.MIN_INTERVAL
        self.stop = threading.Event()
        self.finished = FinishedParts(parts, progress)
        self.finished.add(self.before.parts)
        done = set(self.before.parts)
        self.left = iter([part for part in parts if part.key not in done])

    def spill(self, shards: Iterator[Any]) -> None:
        """Write a run of what is spilled."""
        self.runs.append(self.write(shards))

    def write(self, shards: Iterator[Any]) -> Path:
        """Write a run."""
        path = self.folder / f"run-{secrets.token_hex(8)}.arrow"
        write_run(path, shards)
        return path

    def run(self) -> None:
        """Let every thread read parts until there are none, or one fails."""
        with ThreadPoolExecutor(self.readers) as pool:
            futures = [pool.submit(self.read_parts) for _ in range(self.readers)]
            try:
                left = set(futures)
                while left:
                    done, left = wait(left, SIGNAL_INTERVAL, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
            except BaseException:  # Ctrl-C too
                self.stop.set()
                wait(futures)  # for the blocks that are being read, a second or so
                with contextlib.suppress(FileError):  # the first error is what matters
                    self.save()
                raise

    def read_parts(self) -> None:
        """Read parts that nobody has begun."""
        while not self.stop.is_set():
            with self.lock:
                part = next(self.left, None)
            if part is None:
                return
            self.read(part)

    def read(self, part: Part) -> None:
        """Add the blocks of a part, those that were not added before an interruption."""
        before = None if self.checkpoint is None else self.checkpoint.positions.get(part.key)
        blocks = unread_blocks(self.logs, part, self.block, before)
        for position, rows in blocks:
            if self.stop.is_set():
                return
            summary, numbered = ReadSummary(), self.sums.number_tasks(rows)
            summary.count(rows)
            with self.lock:
                self.sound = False
                self.sums.add(*numbered)
                self.summary.add(summary)
                self.positions[part.key] = position
                self.sound = True
                if time.monotonic() > self.next_save:
                    self.save()
        with self.lock:
            self.positions.pop(part.key, None)
            self.summary.parts.append(part.key)
            self.finished.add([part.key])

    def save(self) -> None:
        """Write a checkpoint of all that was read; it replaces the one before.

        The larger the table, the longer it takes and the rarer it is: it takes a twentieth of the
        time at most.
        """
        with self.lock:
            begin, anything = time.monotonic(), self.summary.parts or self.positions
            if self.checkpoint is not None and self.sound and anything:
                table = [self.write(self.sums.snapshot())] if len(self.sums.index) else []
                self.checkpoint.save([*self.runs, *table], self.summary, self.positions)
            end = time.monotonic()
            wait = max(checkpoints.MIN_INTERVAL, (end - begin) / checkpoints.MAX_TIME_SHARE)
            self.next_save = end + wait

    def finish(self) -> LocalTasks:
        """The tasks, when all is read."""
        dim = self.logs.width
        earlier = [] if self.checkpoint is None else self.checkpoint.local_runs(self.folder)
        self.sums.flush()
        if self.runs or earlier:
            self.sums.finish()
            if self.checkpoint is not None:
                self.checkpoint.save(self.runs, self.summary, {})
            files = self.sum_partitions([*earlier, *self.runs])
            tasks: LocalTasks = DiskTasks(dim, files, self.workers)
        else:
            if time.monotonic() - self.started > checkpoints.MIN_INTERVAL:
                self.save()
            self.sums.drop_buffer()
            index = self.sums.index
            tasks = MemoryTasks(dim, index.ids, self.sums.table, index.order(), self.workers)
        self.summary.add(self.before)
        return tasks

    def sum_partitions(self, runs: Sequence[Path]) -> list[Path]:
        """Sum up the partitions of runs, each into a file; those finished before are kept."""
        names = " ".join(sorted(run.name for run in runs)).encode()
        token = f"{hashlib.blake2b(names, digest_size=8).hexdigest()}-{self.partitions}"
        dim = self.logs.width

        def sum_partition(number: int) -> Path:
            path = self.folder / f"partition-{token}-{number:04d}.arrow"
            if not path.exists():
                write_partition(path, runs, dim, number, self.partitions, self.limit)
            return path

        with ThreadPoolExecutor(self.workers) as pool:
            files = list(pool.map(sum_partition, range(self.partitions)))
        if self.checkpoint is None:
            for run in runs:
                run.unlink(missing_ok=True)
        return files


#: ``map_jobs(function, jobs, *shared)`` gives ``function(job, *shared)`` of every job, in the order
#: of the jobs. These are taken from their iterator as there is room for them, so that a job may
#: depend on results of jobs before it. On a cluster, the function must be one that can be imported,
#: and what the jobs share is sent once.
MapJobs = Callable[..., Iterator[Any]]


def map_here(function: Callable[..., Any], jobs: Iterable[Any], *shared: Any) -> Iterator[Any]:
    """One job after the other, in this thread."""
    return (function(job, *shared) for job in jobs)


@contextlib.contextmanager
def job_runner(cluster: str | None = None, workers: int | None = None) -> Iterator[MapJobs]:
    """A function that maps jobs over so many cores, all of them unless given.

    ``cluster`` is ``"ray"``, ``"ray://host:port"`` or ``"host:port"``; this machine unless given.

    >>> with job_runner(workers=2) as map_jobs:
    ...     list(map_jobs(pow, range(4), 2))
    [0, 1, 4, 9]
    """
    workers = None if workers is None else checks.integer("workers", workers, 1)
    if cluster is not None:
        with connect(cluster, workers) as there:
            yield there.map
        return
    cores, running = workers or os.cpu_count() or 1, RunningJobs()
    with one_blas_thread(), ThreadPoolExecutor(cores) as pool:

        def map_jobs(
            function: Callable[..., Any], jobs: Iterable[Any], *shared: Any
        ) -> Iterator[Any]:
            """Jobs in threads: most of the work holds no lock of Python's."""
            futures = (pool.submit(running.run, function, job, *shared) for job in jobs)
            return in_order(futures, lambda: cores, wait_for)

        try:
            yield map_jobs
        except BaseException:  # Ctrl-C too
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise  # when the threads have ended


def wait_for(future: Future[Result]) -> Result:
    """The result of a job.

    Python looks at signals in its main thread alone, which wakes up for them now and then: a signal
    that another thread has received does not end its waiting.
    """
    while not future.done():
        wait([future], SIGNAL_INTERVAL)
    return future.result()


SIGNAL_INTERVAL = 0.5  # seconds


class Stopped(BaseException):
    """Raised in the thread of a job whose result nobody waits for any more."""


class RunningJobs:
    """The threads in which jobs run, so that long ones need not run to their end.

    A job of an evaluation may fit for minutes, in calls of many packages that know of no thread.
    So it is stopped by an exception that Python raises in its thread before the next bytecode: at
    most one call of NumPy later.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.lock = threading.Lock()

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in this thread."""
        own = threading.get_ident()
        with self.lock:
            self.threads.add(own)
        try:
            return function(*arguments)
        finally:
            with self.lock:  # where an exception that is raised now arrives at the latest
                self.threads.discard(own)

    def stop(self) -> None:
        """Stop the jobs that run now."""
        with self.lock:
            for thread in self.threads:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(Stopped)
                )
