"""A folder that keeps what was read, so that a fit that was interrupted can be resumed.

The folder has runs (:mod:`headstart.fleet.summing.shards`) and a manifest of *entries*. An entry
says which files belong together and what is in them: parts of the logs that were read to their end,
and how many blocks of others. When all is read, the finished partitions are listed too.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import FileError, InputError
from headstart.fleet.reading.files import is_url
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.tasks import PartitionFile
from headstart.storage import atomic, tensor_file

__all__ = [
    "INTERVAL",
    "Checkpoint",
    "Position",
    "check_target",
    "checkpointed_rows",
    "lock_folder",
    "remove_checkpoint",
    "remove_unused",
]

INTERVAL = 60.0  # seconds between checkpoints
LOCK, MANIFEST = "lock", "manifest.json"
OURS = ("run-*.arrow*", "partition-*.arrow*", "probe-*", "run-*.evidence", "bucket-*.evidence")

Position = tuple[int, int]  # how many rows a block has, and how many blocks were read


class Checkpoint:
    """A folder with what was read of some logs.

    Parameters
    ----------
    folder
        The folder, which is made if it is not there.
    logs, parts
        What is read. A manifest of other logs, or of other settings, is refused.

    Attributes
    ----------
    files, summary
        The runs of all earlier entries, and what is in them.
    positions
        Parts that were begun and not finished.
    """

    def __init__(self, folder: Path, logs: Logs, parts: Sequence[Part]) -> None:
        self.folder, self.manifest = folder, folder / MANIFEST
        self.lock = threading.Lock()
        # Where nothing tells whether a file has changed, what was read of it is not used again.
        self.lasting = {part.key for part in parts if part.changed}
        self.settings = {
            "headstart": version("headstart"),
            "columns": repr(logs.columns),
            "features": list(logs.feature_names),
            "on_bad_rows": logs.on_bad_rows,
            "intercept": logs.intercept,
        }
        self.entries: list[dict[str, Any]] = []
        self.latest: dict[str, Any] | None = None  # the entry that is replaced by every save
        self.partitions: dict[str, Any] = {}
        self.synced: set[Path] = set()
        make_folder(folder)
        if self.manifest.exists():
            self.recover({part.key for part in parts})
        self.files = [folder / name for entry in self.entries for name in entry["files"]]
        self.summary, self.positions = ReadSummary(), dict[str, Position]()
        for entry in self.entries:
            self.summary.add(ReadSummary.from_json(entry))
            for key, position in entry["positions"].items():
                self.positions[key] = max(tuple(position), self.positions.get(key, (0, 0)))
        remove_files(folder, self.file_names())

    def recover(self, known: set[str]) -> None:
        """Read the manifest of an earlier fit of the same logs with the same settings."""
        again = "begin afresh (--afresh), or put it back as it was"
        with atomic.explain_read_errors(self.manifest, "the manifest of an interrupted fit"):
            found = json.loads(self.manifest.read_text())
            settings, entries = found["settings"], found["entries"]
            partitions = found["partitions"]
            keys = [key for one in entries for key in (*one["parts"], *one["positions"])]
            files = [name for one in entries for name in one["files"]]
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise InputError(
                    f"the fit in {str(self.folder)!r} cannot go on: {name} was "
                    f"{settings.get(name)!r} and is {value!r} now; {again}"
                )
        for key in keys:
            if key not in known:
                raise InputError(
                    f"the fit in {str(self.folder)!r} cannot go on: file {key.split('|')[0]!r} "
                    f"was changed, moved or removed; {again}"
                )
        for name in files:
            if not (self.folder / name).exists():
                raise FileError(
                    f"the fit in {str(self.folder)!r} cannot go on: {name} is missing; "
                    f"begin afresh (--afresh)"
                )
        self.entries, self.partitions = entries, partitions

    def file_names(self) -> set[str]:
        """The files that the manifest names."""
        every = [*self.entries, *([] if self.latest is None else [self.latest])]
        return {name for entry in every for name in entry["files"]} | self.partitions.keys()

    @property
    def parts(self) -> set[str]:
        """The parts that need not be read again."""
        return set(self.summary.parts)

    def add(self, files: Sequence[Path], summary: ReadSummary) -> None:
        """Add an entry: these files hold these parts."""
        self.write([*self.entries, self.entry(files, summary, {})], None)

    def save(
        self,
        files: Sequence[Path],
        summary: ReadSummary,
        positions: Mapping[str, Position],
    ) -> None:
        """Replace the entry of the last save: these files hold all that was read since the start.

        Files that only the replaced entry named are removed.
        """
        before = [] if self.latest is None else self.latest["files"]
        self.write(self.entries, self.entry(files, summary, positions))
        now = set() if self.latest is None else set(self.latest["files"])
        for name in set(before) - now:
            (self.folder / name).unlink(missing_ok=True)

    def entry(
        self, files: Sequence[Path], summary: ReadSummary, positions: Mapping[str, Position]
    ) -> dict[str, Any] | None:
        """An entry; ``None`` if it has parts that cannot be used again."""
        if not self.lasting.issuperset([*summary.parts, *positions]):
            return None
        for path in files:
            self.sync(path)
        names = [path.name for path in files]
        return {"files": names, "positions": dict(positions), **summary.as_json()}

    def write(self, entries: Sequence[Any], latest: dict[str, Any] | None) -> None:
        """Write the manifest."""
        with self.lock:
            self.entries = [entry for entry in entries if entry is not None]
            self.latest = self.latest if latest is None else latest
            every = [*self.entries, *([] if self.latest is None else [self.latest])]
            content = {
                "settings": self.settings,
                "entries": every,
                "partitions": self.partitions,
            }
            with atomic.atomic_write(self.manifest) as draft:
                draft.write(json.dumps(content, indent=1).encode())

    def sync(self, path: Path) -> None:
        """Have a file on disk before the manifest names it."""
        if path not in self.synced:
            with atomic.explain_write_errors(path), path.open("rb") as file:
                os.fsync(file.fileno())
            self.synced.add(path)

    def add_partition(self, file: PartitionFile) -> None:
        """Add a finished partition."""
        self.sync(file.path)
        self.partitions[file.path.name] = [file.sizes, file.total.tolist()]
        self.write(self.entries, None)

    def partition(self, path: Path) -> PartitionFile | None:
        """A partition that was finished before, if it is there."""
        found = self.partitions.get(path.name)
        if found is None or not path.exists():
            return None
        return PartitionFile(path, found[0], np.array(found[1]))


def remove_files(folder: Path, kept: Iterable[str] = ()) -> None:
    """Remove the files that fits make, but for those that are kept; what else is there stays."""
    for pattern in OURS:
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    except OSError as error:
        raise FileError(f"folder {str(folder)!r} cannot be made ({error})") from error


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if need be, for one fit at a time; others are refused."""
    make_folder(folder)
    with open(folder / LOCK, "ab") as file:  # locked until it is closed
        if atomic.locks is not None:
            try:
                atomic.locks.flock(file, atomic.locks.LOCK_EX | atomic.locks.LOCK_NB)
            except BlockingIOError:
                raise FileError(
                    f"another fit is running in {str(folder)!r}: wait for it, or give another "
                    f"name to write to (--out)"
                ) from None
            except OSError:  # not every file system has locks
                pass
        yield


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint, and the folder if nothing else is in it."""
    (folder / MANIFEST).unlink(missing_ok=True)
    remove_files(folder)
    (folder / LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there is something else in it, or it is not there
        folder.rmdir()


def checkpointed_rows(folder: Path) -> int:
    """How many rows an interrupted fit has read; 0 where there is nothing to resume from."""
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        entries = json.loads((folder / MANIFEST).read_text())["entries"]
        return sum(int(entry["rows"]) for entry in entries)
    return 0


def remove_unused(folder: Path) -> None:
    """Remove a folder from which nothing can be resumed: no manifest, and no fit that uses it."""
    if folder.is_dir() and not (folder / MANIFEST).exists():
        with contextlib.suppress(FileError), lock_folder(folder):
            remove_checkpoint(folder)


def check_target(target: Path, logs: Logs) -> None:
    """Refuse to write a bandit over a log, or over anything else that is no bandit."""
    if target.is_dir():
        return
    atomic.check_replaceable(target)
    if not target.exists():
        return
    for file in logs.files:
        if not is_url(file.path) and target.samefile(file.path):
            raise FileError(f"out must not be one of the logs; got {str(target)!r}")
    if target.stat().st_size and not is_bandit_file(target):
        raise FileError(
            f"out must be a new file, or one that headstart wrote; {str(target)!r} is something "
            f"else: give another name, or remove it first"
        )


def is_bandit_file(path: Path) -> bool:
    """Whether a file is one of headstart's, by how it begins."""
    try:
        with path.open("rb") as file:
            return tensor_file.read_header(file)[0].get("format") == tensor_file.FORMAT
    except (OSError, *atomic.DECODING_ERRORS):
        return False
