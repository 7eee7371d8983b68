"""Checkpoints: what was read of logs so far, in a folder from which an interrupted fit resumes.

The folder, a path or a URL, has runs (:mod:`headstart.fleet.summing.shards`) and *entries*. An
entry is a JSON file that says which runs belong together and what is in them: parts of the logs
that were read to their end, and how many blocks of others. It is written after its runs, so that
what it says is there. Finished partitions may be there too.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.errors import FileError, InputError
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.stores import Folder, Storage
from headstart.fleet.summing.summary import ReadSummary
from headstart.storage import atomic
from headstart.storage.atomic import PathLike

MIN_INTERVAL = 60.0  # seconds between checkpoints, at least
MAX_TIME_SHARE = 0.05  # of the time that writing them may take
LOCK = "lock"
ENTRY = re.compile(r"entry-[0-9a-f]+\.json")
CHECKPOINT_FILE = re.compile(r"(entry|run|partition)-[0-9a-f-]+\.(json|arrow)(\.draft)?")

Position = tuple[int, int]  # how many rows a block has, and how many blocks were read
Positions = Mapping[str, Position]  # by part


class Checkpoint:
    """A folder with what was read of some logs.

    Parameters
    ----------
    place
        The folder's path or URL; it is made if it is not there.
    logs, parts
        What is read. Entries of other logs, or of other settings, are refused.

    Attributes
    ----------
    runs, summary
        The names of the runs of earlier entries, and what is in them.
    positions
        Parts that were begun and not finished.
    """

    def __init__(self, place: PathLike, logs: Logs, parts: Sequence[Part]) -> None:
        self.folder = Folder(place, logs.storage)
        self.folder.create()
        # Where nothing tells whether a file has changed, what was read of it is not used again.
        self.lasting = {part.key for part in parts if part.changed}
        self.settings = {
            "headstart": version("headstart"),
            "columns": repr(logs.columns),
            "features": list(logs.feature_names),
            "on_bad_rows": logs.on_bad_rows,
            "intercept": logs.intercept,
            "minimize": logs.rewards.minimize,
        }
        self.runs: list[str] = []
        self.summary, self.positions = ReadSummary(), dict[str, Position]()
        self.latest: tuple[str, list[str]] | None = None  # entry and runs of the last save
        there, known = set(self.folder.names()), {part.key for part in parts}
        for entry in read_entries(self.folder):
            self.check(entry, known, there)
            self.runs += entry["runs"]
            self.summary.add(entry["summary"])
            for key, position in entry["positions"].items():
                self.positions[key] = max(tuple(position), self.positions.get(key, (0, 0)))
        self.named = set(self.runs)  # runs that entries name
        self.remove_unsaved()

    def check(self, entry: Mapping[str, Any], known: set[str], there: set[str]) -> None:
        """Refuse an entry of other logs or settings, or without its files."""
        failed = f"the fit in {str(self.folder)!r} cannot go on"
        again = "start again (--afresh), or restore it"
        for name, value in self.settings.items():
            if (before := entry["settings"].get(name)) != value:
                raise InputError(f"{failed}: {name} was {before!r} and is {value!r} now; {again}")
        for key in (*entry["summary"].parts, *entry["positions"]):
            if key not in known:
                raise InputError(
                    f"{failed}: file {key.rsplit('|', 3)[0]!r} was changed, moved or removed; "
                    f"{again}"
                )
        for name in entry["runs"]:
            if name not in there:
                raise FileError(f"{failed}: {name} is missing; start again (--afresh)")

    def local_runs(self, folder: Path) -> list[Path]:
        """The runs of earlier entries on this machine, copied to a folder if need be."""
        return [self.folder.fetch(name, folder) for name in self.runs]

    def save(self, runs: Sequence[Path], summary: ReadSummary, positions: Positions) -> None:
        """Replace the entry of the last save: these files hold all that was read since the start.

        They are copied to the folder if they are elsewhere. Runs that only the replaced entry
        names are removed.
        """
        for run in runs:
            if self.latest is None or run.name not in self.latest[1]:
                self.folder.write(run.name, run)
        names, before = [run.name for run in runs], self.latest
        entry = self.write_entry(names, summary, positions)
        if entry is not None:
            self.latest = entry, names
            for name in () if before is None else (before[0], *(set(before[1]) - set(names))):
                self.folder.remove(name)

    def write_entry(
        self, runs: list[str], summary: ReadSummary, positions: Positions
    ) -> str | None:
        """Write an entry and give its name; ``None`` if it has parts that cannot be used again."""
        if not self.lasting.issuperset([*summary.parts, *positions]):
            return None
        content = {
            "settings": self.settings,
            "runs": list(runs),
            "positions": dict(positions),
            "summary": summary.as_json(),
        }
        name = f"entry-{secrets.token_hex(8)}.json"
        self.folder.write(name, json.dumps(content).encode())
        self.named.update(runs)
        return name

    def remove_unsaved(self) -> None:
        """Remove the runs that no entry names."""
        for name in self.folder.names():
            if (
                name.startswith("run-")
                and CHECKPOINT_FILE.fullmatch(name)
                and name not in self.named
            ):
                self.folder.remove(name)


def read_entries(folder: Folder) -> Iterator[dict[str, Any]]:
    """The entries of a checkpoint."""
    for name in folder.names():
        if ENTRY.fullmatch(name):
            with atomic.explain_read_errors(Path(folder.place, name), "the entry of a checkpoint"):
                entry = json.loads(folder.read(name))
                entry["summary"] = ReadSummary.from_json(entry["summary"])
                _ = entry["settings"], entry["runs"], entry["positions"]
            yield entry


@contextlib.contextmanager
def lock_folder(place: PathLike, storage: Storage | None = None) -> Iterator[None]:
    """Hold a folder, which is made if need be, for one fit at a time; others are refused.

    Behind URLs, nothing is locked.
    """
    folder = Folder(place, storage)
    folder.create()
    if folder.remote:
        yield
        return
    with contextlib.ExitStack() as stack:
        with folder.errors(LOCK):
            file = stack.enter_context(open(Path(folder.place) / LOCK, "ab"))
        if atomic.fcntl is not None:
            try:
                atomic.fcntl.flock(file, atomic.fcntl.LOCK_EX | atomic.fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileError(
                    f"another fit is running in {str(folder)!r}: wait for it, or give another "
                    f"name to write to (--out)"
                ) from None
            except OSError:  # not every file system has locks
                pass
        yield


def remove_checkpoint(place: PathLike, storage: Storage | None = None) -> None:
    """Remove a checkpoint, and the folder if nothing else is in it."""
    folder = Folder(place, storage)
    names = sorted(folder.names(), key=lambda name: not ENTRY.fullmatch(name))  # entries first
    for name in names:
        if CHECKPOINT_FILE.fullmatch(name) or name == LOCK:
            folder.remove(name)
    if not folder.remote:
        with contextlib.suppress(OSError):  # there is something else in it, or it is not there
            Path(folder.place).rmdir()


def checkpointed_rows(place: PathLike, storage: Storage | None = None) -> int:
    """How many rows an interrupted fit has read; 0 where there is nothing to resume from."""
    with contextlib.suppress(FileError):
        return sum(int(entry["summary"].rows) for entry in read_entries(Folder(place, storage)))
    return 0


def remove_unused(place: PathLike, storage: Storage | None = None) -> None:
    """Remove a folder from which nothing can be resumed: no entries, and no fit that uses it."""
    folder = Folder(place, storage)
    if folder.exists() and not any(map(ENTRY.fullmatch, folder.names())):
        with contextlib.suppress(FileError), lock_folder(place, storage):
            remove_checkpoint(place, storage)
