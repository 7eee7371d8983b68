"""The manifest of what workers on a cluster have read, until they share that of threads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headstart.errors import FileError, InputError
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.checkpoint import make_folder, remove_files
from headstart.fleet.summing.summary import ReadSummary
from headstart.storage import atomic

__all__ = ["OFTEN", "Kept"]

OFTEN = 60.0  # seconds after which sums are kept


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
        make_folder(folder)
        if self.manifest.exists():
            self.recover(parts)
        names = {name for entry in self.entries for name in entry["files"]}
        self.old_runs = [folder / name for name in sorted(names)]
        self.old = ReadSummary()
        for entry in self.entries:
            self.old.add(ReadSummary.from_json(entry))
        remove_files(folder, names)  # what was begun, but not finished

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
