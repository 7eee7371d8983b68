"""What was read, and a folder that keeps it, so that a fit that was interrupted can go on.

The folder has files of evidence and a manifest, which says which parts of the logs are in them.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.errors import FileError, InputError
from headstart.fleet.reading.files import is_url
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.summary import ReadSummary
from headstart.storage import atomic, tensor_file

__all__ = ["OFTEN", "Kept", "check_target", "forget", "kept_in", "locked", "tidy"]

OFTEN = 60.0  # seconds after which sums are kept
LOCK = "lock"
OURS = ("run-*.evidence", "bucket-*.evidence", "probe-*")


class Kept:
    """A folder with the sums of parts that were read, and a manifest of them."""

    def __init__(self, folder: Path, logs: Logs, parts: Sequence[Part]) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.json"
        self.lock = threading.Lock()
        self.started = time.monotonic()
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
        make(folder)
        if self.manifest.exists():
            self.recover(parts)
        names = {name for entry in self.entries for name in entry["files"]}
        self.old_runs = [folder / name for name in sorted(names)]
        self.old = ReadSummary()
        for entry in self.entries:
            self.old.add(ReadSummary.from_json(entry))
        clear(folder, names)  # what was begun, but not finished

    @property
    def parts(self) -> set[str]:
        """The parts that need not be read again."""
        return set(self.old.parts)

    def recover(self, parts: Sequence[Part]) -> None:
        """What an earlier pass has kept, if it was of the same logs with the same settings."""
        again = "begin afresh (--afresh), or put it back as it was"
        with atomic.explain_read_errors(self.manifest, "the manifest of an interrupted fit"):
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

    def add(self, files: Sequence[Path], tally: ReadSummary) -> None:
        """Say that these files hold these parts."""
        if not self.lasting.issuperset(tally.parts):
            return
        entry = {"files": [path.name for path in files], **tally.as_json()}
        with self.lock:
            self.entries.append(entry)
            content = json.dumps({"settings": self.settings, "entries": self.entries}, indent=1)
            with atomic.atomic_write(self.manifest) as draft:
                draft.write(content.encode())


def clear(folder: Path, kept: Iterable[str] = ()) -> None:
    """Remove the files that fits make, but for those that are kept; what else is there stays."""
    for pattern in OURS:
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def make(folder: Path) -> None:
    """Make a folder that can be written to, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    except OSError as error:
        raise FileError(f"folder {str(folder)!r} cannot be made ({error})") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if need be, for one fit at a time; others are refused."""
    make(folder)
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


def forget(folder: Path) -> None:
    """Remove what was kept, and the folder if nothing else is in it."""
    (folder / "manifest.json").unlink(missing_ok=True)
    clear(folder)
    (folder / LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there is something else in it, or it is not there
        folder.rmdir()


def kept_in(folder: Path) -> int:
    """How many rows an interrupted fit has kept; 0 where there is nothing to go on from."""
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        entries = json.loads((folder / "manifest.json").read_text())["entries"]
        return sum(int(entry["rows"]) for entry in entries)
    return 0


def tidy(folder: Path) -> None:
    """Remove a folder from which nothing can go on: one without a manifest that no fit uses."""
    if folder.is_dir() and not (folder / "manifest.json").exists():
        with contextlib.suppress(FileError), locked(folder):
            forget(folder)


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
    if target.stat().st_size and not is_ours(target):
        raise FileError(
            f"out must be a new file, or one that headstart wrote; {str(target)!r} is something "
            f"else: give another name, or remove it first"
        )


def is_ours(path: Path) -> bool:
    """Whether a file is one of headstart's, by how it begins."""
    try:
        with path.open("rb") as file:
            return tensor_file.read_header(file)[0].get("format") == tensor_file.FORMAT
    except (OSError, *atomic.DECODING_ERRORS):
        return False
