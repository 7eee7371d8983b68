"""What was read, and a folder that keeps it, so that a fit that was interrupted can go on.

The folder has files of evidence and a manifest, which says which parts of the logs are in them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import FileError, InputError
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.files import is_url
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.repeats import IdForms, repeated_rows
from headstart.fleet.reading.rows import BadRows, Example, Rows
from headstart.fleet.summing.outliers import Sampled
from headstart.storage import atomic, tensor_file

__all__ = ["OFTEN", "Kept", "Tally", "check_target", "forget", "kept_in", "locked", "tidy"]

OFTEN = 60.0  # seconds after which sums are kept
LOCK = "lock"
OURS = ("run-*.evidence", "bucket-*.evidence", "probe-*")


@dataclasses.dataclass
class Tally:
    """What was read: rows that count, rows that were left out, and the parts they are in.

    Attributes
    ----------
    rows
        How many rows count as evidence.
    bad, weightless, unchosen
        How many do not: those that cannot be used, have weight 0, or were not chosen.
    parts
        The keys of the parts.
    least, greatest
        The rewards' range.
    sampled
        A few of the rows, to tell what is usual.
    heaviest
        The largest weight; 0 where rows have none.
    ids
        How ids are written.
    fingerprints
        Of some rows, where a round or a timestamp is logged.
    """

    rows: int = 0
    bad: BadRows = dataclasses.field(default_factory=BadRows)
    weightless: int = 0
    parts: list[str] = dataclasses.field(default_factory=list)
    unchosen: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    sampled: Sampled = dataclasses.field(default_factory=Sampled)
    heaviest: float = 0.0
    ids: IdForms = dataclasses.field(default_factory=IdForms)
    fingerprints: list[Any] = dataclasses.field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another's too."""
        self.rows += other.rows
        self.bad = self.bad + other.bad
        self.weightless += other.weightless
        self.parts += other.parts
        self.unchosen += other.unchosen
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)
        self.sampled.add(other.sampled)
        self.heaviest = max(self.heaviest, other.heaviest)
        self.ids.merge(other.ids)
        self.fingerprints += other.fingerprints

    def count(self, rows: Rows) -> None:
        """Count a block."""
        rewards = rows.rewards if rows.chosen is None else rows.rewards[rows.chosen]
        self.rows += len(rewards)
        self.unchosen += rows.count - len(rewards)
        self.bad = self.bad + rows.bad
        self.weightless += rows.weightless
        self.ids.add(rows.ids, rows.spaced)
        if rows.fingerprints is not None:
            self.fingerprints.append(rows.fingerprints)
        if len(rewards):
            self.least = min(self.least, float(rewards.min()))
            self.greatest = max(self.greatest, float(rewards.max()))
            self.sampled.look(rows)
            if rows.weights is not None:
                heavy = rows.weights if rows.chosen is None else rows.weights[rows.chosen]
                self.heaviest = max(self.heaviest, float(heavy.max()))

    def notes(self, tasks: int, weight: float = math.inf, share: float = 1.0) -> list[str]:
        """What is odd about so many tasks of this weight in all, from which little is learned."""
        notes = [*self.ids.notes(), *repeated_rows(self.fingerprints, share)]
        if tasks == 1:
            notes.append("there is one task only: what tasks share cannot be learned from one")
        if self.least == self.greatest:
            notes.append(f"every reward is {self.least:g}: there is nothing to learn")
        if self.rows > 2 and self.heaviest > weight / 2.0:
            notes.append(f"a row of weight {self.heaviest:g} counts for more than all others")
        return notes

    def nothing(self, columns: Columns) -> InputError:
        """The error where no row is left to learn from."""
        reasons = []
        if self.bad:
            reasons.append(f"{self.bad.count:,} cannot be used:\n{self.bad}\n")
        if self.weightless:
            reasons.append(f"{self.weightless:,} have weight 0 (--weight {columns.weight})")
        if self.unchosen:
            reasons.append(f"{self.unchosen:,} were not chosen (--chosen {columns.chosen})")
        why = "of their rows, " + " and ".join(reasons) if reasons else "they have no rows"
        return InputError(f"logs must hold rows to learn from; {why}".rstrip())

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        examples = [list(example) for example in self.bad.examples]
        return {
            "rows": self.rows,
            "weightless": self.weightless,
            "bad": [self.bad.count, self.bad.reasons, examples],
            "unchosen": self.unchosen,
            "rewards": [self.least, self.greatest] if self.rows else None,
            "sampled": self.sampled.as_json(),
            "heaviest": self.heaviest,
            "ids": vars(self.ids),
            "fingerprints": [keys.astype("<u8").tobytes().hex() for keys in self.fingerprints],
            "parts": self.parts,
        }

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Tally:
        """And back."""
        count, reasons, examples = known["bad"]
        bad = BadRows(count, reasons, [Example(*example) for example in examples])
        unchosen, rewards = known.get("unchosen", 0), known.get("rewards") or (math.inf, -math.inf)
        sampled = known.get("sampled")
        rows = Sampled(None if sampled is None else np.array(sampled, dtype=np.float64))
        parts, (least, most) = list(known["parts"]), rewards
        heaviest = known.get("heaviest", 0.0)
        weightless = known["weightless"]
        ids = IdForms(**known.get("ids", {}))
        keys = [
            np.frombuffer(bytes.fromhex(text), "<u8").astype(np.uint64)
            for text in known.get("fingerprints", [])
        ]
        counts = known["rows"], bad, weightless, parts, unchosen
        return cls(*counts, least, most, rows, heaviest, ids, keys)


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
        self.old = Tally()
        for entry in self.entries:
            self.old.add(Tally.from_json(entry))
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

    def add(self, files: Sequence[Path], tally: Tally) -> None:
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
