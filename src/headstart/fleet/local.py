"""One pass over the logs on this machine, on all cores; what is interrupted goes on from there.

Every worker is a thread: reading and adding up hold no lock of Python's. A worker takes one part
of the logs after the other and adds it to sums of its own. With a *folder*, these sums are written
there now and then, and a manifest says which parts are in them: a pass that is interrupted and
begun again reads only the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headstart import checks, disk
from headstart.errors import FileError, InputError
from headstart.fleet.logs import Logs, Part
from headstart.fleet.passes import faster
from headstart.fleet.rows import BadRows, Example, Rows
from headstart.fleet.sums import MANY, Shelf, Sums, compiled
from headstart.records import Array
from headstart.transfer.portions import Portions

__all__ = ["Gathered", "Progress", "Shelved", "Tally", "gather"]

Found = TypeVar("Found")

#: Called with what is being done, how much of it is done and how much there is in all.
Progress = Callable[[str, float, float], None]

OFTEN = 60.0  # seconds after which a worker's sums are kept
READING = 3 << 27  # bytes a worker takes to read, about


@dataclasses.dataclass
class Tally:
    """What was read: rows that count, rows that were left out, and the parts they are in."""

    rows: int = 0
    bad: BadRows = dataclasses.field(default_factory=BadRows)
    weightless: int = 0
    parts: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another's too."""
        self.rows += other.rows
        self.bad = self.bad + other.bad
        self.weightless += other.weightless
        self.parts += other.parts

    def count(self, rows: Rows) -> None:
        """Count a block."""
        self.rows += rows.count if rows.chosen is None else int(rows.chosen.sum())
        self.bad = self.bad + rows.bad
        self.weightless += rows.weightless

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        examples = [list(example) for example in self.bad.examples]
        return {
            "rows": self.rows,
            "weightless": self.weightless,
            "bad": [self.bad.count, self.bad.reasons, examples],
            "parts": self.parts,
        }

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Tally:
        """And back."""
        count, reasons, examples = known["bad"]
        bad = BadRows(count, reasons, [Example(*example) for example in examples])
        return cls(known["rows"], bad, known["weightless"], list(known["parts"]))


class Gathered(NamedTuple):
    """The evidence of every task, and what was read for it."""

    shelf: Shelf
    tally: Tally


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
    budget = max(memory - workers * READING, memory // 4) // workers
    folders = None if kept is None else kept.folder
    crew = [Worker(logs, Sums(logs.dim, budget, folders), kept) for _ in range(workers)]
    if sum(part.rows or 0 for part in missing) >= MANY:  # while the first rows are read
        threading.Thread(target=compiled, args=(MANY,), daemon=True).start()
    run(crew, iter(missing), lambda part: pace.add(amount[part.key]))
    if kept is not None and time.monotonic() - kept.started > OFTEN:
        for worker in crew:
            worker.keep()
    total = Tally()
    first = crew[0].sums
    for worker in crew:
        total.add(worker.tally)
        if worker.sums is not first:
            first.merge(worker.sums)
    if kept is not None:
        first.runs += kept.old_runs
        total.add(kept.old)
    return Gathered(first.shelf(keep=kept is not None), total)


class Shelved(Portions):
    """The buckets of a shelf as portions that this machine's cores work on."""

    def __init__(self, shelf: Shelf, workers: int, told: Callable[[], None] | None = None) -> None:
        self.shelf, self.workers, self.told = shelf, workers, told
        self.dim, self.sizes = shelf.dim, shelf.sizes

    def rows(self, portion: int) -> Array:
        """The packed evidence of one bucket."""
        return self.shelf.portion(portion).rows

    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """Every bucket's, by several threads: most of the work holds no lock of Python's."""
        buckets = range(len(self.sizes))[:first]
        function, arguments = faster(function, arguments, len(self))

        def of(bucket: int) -> Found:
            return function(self.rows(bucket), self.dim, *arguments)

        with ThreadPoolExecutor(self.workers) as pool:
            found = list(pool.map(of, buckets))
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


class Worker:
    """A thread's sums, what they hold, and whether they hold it wholly."""

    def __init__(self, logs: Logs, sums: Sums, kept: Kept | None) -> None:
        self.logs, self.sums, self.kept = logs, sums, kept
        self.tally = Tally()  # everything
        self.fresh = Tally()  # what was not kept yet
        self.unkept = 0  # the first of the files not kept yet
        self.sound = True
        self.last = time.monotonic()

    def read(self, part: Part) -> None:
        """Add one part. If it cannot be read to its end, the sums hold a piece of it."""
        tally = Tally(parts=[part.key])
        for rows in self.logs.read(part):
            self.sound = False
            tally.count(rows)
            self.sums.add(rows)
        self.sound = True
        self.tally.add(tally)
        self.fresh.add(tally)
        if self.kept is not None and time.monotonic() - self.last > OFTEN:
            self.keep()

    def keep(self) -> None:
        """Write the sums to disk, and say so in the manifest."""
        if self.kept is None or not self.sound or not self.fresh.parts:
            return
        self.sums.spill()
        self.kept.add(self.sums.runs[self.unkept :], self.fresh)
        self.unkept = len(self.sums.runs)
        self.fresh = Tally()
        self.last = time.monotonic()


def run(crew: Sequence[Worker], parts: Iterator[Part], finished: Callable[[Part], None]) -> None:
    """Let every worker read parts until there are none, or one fails."""
    lock, stop = threading.Lock(), threading.Event()
    errors: list[BaseException] = []

    def work(worker: Worker) -> None:
        try:
            while not stop.is_set():
                with lock:
                    part = next(parts, None)
                if part is None:
                    worker.sums.flush()
                    return
                worker.read(part)
                finished(part)
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in crew]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)  # so that Ctrl-C is heard
    except KeyboardInterrupt as error:
        stop.set()
        for thread in threads:
            thread.join()  # the parts that are being read, a second or so
        errors.insert(0, error)
    if not errors:
        return
    for worker in crew:
        with contextlib.suppress(FileError):  # the first error is what matters
            worker.keep()
    for worker in crew:
        for path in worker.sums.runs[worker.unkept :]:
            path.unlink(missing_ok=True)
    raise errors[0]


class Kept:
    """A folder with the sums of parts that were read, and a manifest of them."""

    def __init__(self, folder: Path, logs: Logs, parts: Sequence[Part]) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.json"
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.settings = {
            "headstart": version("headstart"),
            "columns": repr(logs.columns),
            "features": list(logs.feature_names),
            "on_bad_rows": logs.on_bad_rows,
        }
        self.entries: list[dict[str, Any]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"folder {str(folder)!r} cannot be made ({error})") from error
        if self.manifest.exists():
            self.recover(parts)
        names = {name for entry in self.entries for name in entry["files"]}
        self.old_runs = [folder / name for name in sorted(names)]
        self.old = Tally()
        for entry in self.entries:
            self.old.add(Tally.from_json(entry))
        for path in folder.glob("*.evidence"):
            if path.name not in names:  # begun, but not finished
                path.unlink(missing_ok=True)

    @property
    def parts(self) -> set[str]:
        """The parts that need not be read again."""
        return set(self.old.parts)

    def recover(self, parts: Sequence[Part]) -> None:
        """What an earlier pass has kept, if it was of the same logs with the same settings."""
        again = "begin afresh (--afresh), or put it back as it was"
        with disk.telling_why(self.manifest, "the manifest of an interrupted fit"):
            known = json.loads(self.manifest.read_text())
            settings, entries = known["settings"], known["entries"]
            keys = [key for entry in entries for key in entry["parts"]]
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise InputError(
                    f"the fit in {str(self.folder)!r} cannot go on: {name} was "
                    f"{settings.get(name)!r} and is {value!r} now; {again}"
                )
        there = {part.key for part in parts}
        for key in keys:
            if key not in there:
                raise InputError(
                    f"the fit in {str(self.folder)!r} cannot go on: file {key.split('|')[0]!r} "
                    f"was changed, moved or removed; {again}"
                )
        for entry in entries:
            for name in entry["files"]:
                if not (self.folder / name).exists():
                    raise FileError(
                        f"the fit in {str(self.folder)!r} cannot go on: {name} is missing; "
                        f"begin afresh (--afresh)"
                    )
        self.entries = entries

    def add(self, files: Sequence[Path], tally: Tally) -> None:
        """Say that these files hold these parts."""
        entry = {"files": [path.name for path in files], **tally.as_json()}
        with self.lock:
            self.entries.append(entry)
            content = json.dumps({"settings": self.settings, "entries": self.entries}, indent=1)
            with disk.replacing(self.manifest) as draft:
                draft.write(content.encode())


def forget(folder: Path) -> None:
    """Remove what was kept."""
    shutil.rmtree(folder, ignore_errors=True)
