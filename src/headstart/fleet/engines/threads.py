"""One pass over the logs on this machine, on all cores; what is interrupted goes on from there.

Every worker is a thread: reading and adding up hold no lock of Python's. A worker takes one part
of the logs after the other and adds it to the sums that all share. With a *folder*, these sums are
written there now and then, and a manifest says which parts are in them: a pass that is interrupted
and begun again reads only the rest.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headstart import checks
from headstart.errors import FileError
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing import checkpoint
from headstart.fleet.summing.buckets import Buckets
from headstart.fleet.summing.checkpoint import Kept
from headstart.fleet.summing.loops import MANY, load_soon
from headstart.fleet.summing.passes import Call
from headstart.fleet.summing.shelf import Portion, Shelf
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.sums import Sums

__all__ = ["Gathered", "Progress", "Shelved", "gather"]

Found = TypeVar("Found")

#: Called with what is being done, how much of it is done and how much there is in all.
Progress = Callable[[str, float, float], None]

READING = 3 << 27  # bytes a worker takes to read, about
WHOLE = 1 << 28  # bytes of features; a part of no more is added all at once


class Gathered(NamedTuple):
    """The evidence of every task, and what was read for it."""

    shelf: Shelf
    tally: ReadSummary


def gather(
    logs: Logs,
    *,
    workers: int | None = None,
    memory: int = 2 << 30,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Gathered:
    """Read all logs, and add them up by task.

    Parameters
    ----------
    logs
        What to read.
    workers
        How many threads; as many as there are cores unless given.
    memory
        How many bytes of memory it may take, about. Sums that do not fit go to disk.
    folder
        Where to keep what was read, so that an interrupted pass can go on. It is made if need be.
    progress
        Called as rows (or, where the files do not tell their number, bytes) are read.
    """
    workers = os.cpu_count() or 1 if workers is None else checks.integer("workers", workers, 1)
    parts = logs.parts()
    kept = None if folder is None else Kept(folder, logs, parts)
    done = set() if kept is None else kept.parts
    missing = [part for part in parts if part.key not in done]
    amount = amounts(parts)
    pace = Pace(sum(amount[part.key] for part in parts), progress)
    pace.add(sum(amount[part.key] for part in parts if part.key in done))
    workers = max(1, min(workers, len(missing)))
    budget = max(memory - workers * READING, memory // 4)
    sums = Sums(logs.width, budget, None if kept is None else kept.folder, workers)
    reading = Reading(logs, sums, kept)
    if sum(part.rows or 0 for part in missing) >= MANY:  # while the first rows are read
        load_soon()
    run(reading, workers, iter(missing), lambda part: pace.add(amount[part.key]))
    if kept is not None:
        if time.monotonic() - kept.started > checkpoint.OFTEN:
            reading.keep()
        sums.runs += kept.old_runs
        reading.tally.add(kept.old)
    return Gathered(sums.shelf(keep=kept is not None), reading.tally)


class Shelved(Buckets):
    """The buckets of a shelf as portions that this machine's cores work on."""

    def __init__(self, shelf: Shelf, workers: int) -> None:
        super().__init__(shelf.dim, shelf.sizes)
        self.shelf, self.workers = shelf, workers

    def raw(self, bucket: int) -> Portion:
        """The tasks of one bucket."""
        return self.shelf.portion(bucket)

    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """Every bucket's, by several threads: most of the work holds no lock of Python's."""
        answer = Call(function, arguments, self.units, len(self)).of(self.shelf)
        with ThreadPoolExecutor(self.workers) as pool:
            limits = self.limits(first)
            found = list(pool.map(answer, limits, limits.values()))
        if self.told is not None:
            self.told()
        return found


class Pace:
    """How far the reading has come."""

    def __init__(self, total: float, progress: Progress | None) -> None:
        self.total, self.done, self.progress = total, 0.0, progress
        self.lock = threading.Lock()

    def add(self, more: float) -> None:
        """So much more is done."""
        with self.lock:
            self.done += more
            if self.progress is not None:
                self.progress("reading", self.done, self.total)


def amounts(parts: Sequence[Part]) -> dict[str, float]:
    """How much there is to read in each part: rows, or bytes where rows are not known."""
    if all(part.rows is not None for part in parts):
        return {part.key: float(part.rows or 0) for part in parts}
    return {part.key: float(part.bytes) for part in parts}


def blocks_of(logs: Logs, part: Part) -> Iterable[Rows]:
    """The rows of a part: a list, or one block after the other if it is too large to be held.

    If a part of the first kind cannot be read, that is told before any of it is there.
    """
    size = 2 * part.bytes if part.rows is None else 8 * logs.width * part.rows
    blocks = logs.read(part, turned=False)
    return list(blocks) if size <= WHOLE else blocks


class Reading:
    """What all threads have read: their sums, and the parts that are in them."""

    def __init__(self, logs: Logs, sums: Sums, kept: Kept | None) -> None:
        self.logs, self.sums, self.kept = logs, sums, kept
        self.tally = ReadSummary()  # everything
        self.fresh = ReadSummary()  # what was not kept yet
        self.unkept = 0  # the first of the files not kept yet
        self.torn = 0  # parts of which the sums hold a piece
        self.due = time.monotonic() + checkpoint.OFTEN
        self.stop = threading.Event()
        self.changed = threading.Condition(sums.lock)

    def read(self, part: Part) -> None:
        """Add one part: all of it or nothing, if it is not too large to be held."""
        blocks = blocks_of(self.logs, part)
        with self.changed if isinstance(blocks, list) else contextlib.nullcontext():
            self.add(part, blocks)

    def add(self, part: Part, blocks: Iterable[Rows]) -> None:
        """Add blocks; if it fails in their midst, the part stays torn."""
        tally = ReadSummary(parts=[part.key])
        with self.changed:
            self.torn += 1
        for rows in blocks:
            tally.count(rows)
            self.sums.add(rows)
        with self.changed:
            self.torn -= 1
            self.tally.add(tally)
            self.fresh.add(tally)
            self.changed.notify_all()

    def keep_now_and_then(self) -> None:
        """Keep the sums if it is time, as soon as no part is torn."""
        if self.kept is None or time.monotonic() < self.due:
            return
        with self.changed:
            self.changed.wait_for(
                lambda: not self.torn or self.stop.is_set() or time.monotonic() < self.due
            )
            if time.monotonic() >= self.due:
                self.keep()
                self.changed.notify_all()  # whoever waited for it need not wait any more

    def keep(self) -> None:
        """Write the sums to disk, and say so in the manifest."""
        if self.kept is None or self.torn or not self.fresh.parts:
            return
        self.sums.spill()
        self.kept.add(self.sums.runs[self.unkept :], self.fresh)
        self.unkept = len(self.sums.runs)
        self.fresh = ReadSummary()
        self.due = time.monotonic() + checkpoint.OFTEN

    def end(self) -> None:
        """Let the threads stop after the parts they read."""
        self.stop.set()
        with self.changed:
            self.changed.notify_all()


def run(
    reading: Reading, workers: int, parts: Iterator[Part], finished: Callable[[Part], None]
) -> None:
    """Let every worker read parts until there are none, or one fails."""
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not reading.stop.is_set():
                with lock:
                    part = next(parts, None)
                if part is None:
                    return
                reading.read(part)
                finished(part)
                reading.keep_now_and_then()
        except BaseException as error:
            errors.append(error)
            reading.end()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)  # so that Ctrl-C is heard
    except KeyboardInterrupt as error:
        reading.end()
        for thread in threads:
            thread.join()  # the parts that are being read, a second or so
        errors.insert(0, error)
    if not errors:
        return
    with contextlib.suppress(FileError):  # the first error is what matters
        reading.keep()
    for path in reading.sums.runs[reading.unkept :]:
        path.unlink(missing_ok=True)
    raise errors[0]
