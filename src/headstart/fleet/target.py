"""Where a fit writes its bandit: a file on this machine or behind a URL."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from headstart.bandit import Bandit
from headstart.errors import FileError
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.stores import Folder, is_url
from headstart.storage import atomic, tensor_file
from headstart.storage.atomic import PathLike, checked_path

__all__ = ["Target"]

LONGEST = 1 << 26  # bytes of a header


class Target:
    """A file to write, refused before anything is read if it cannot be written.

    It may be a new file, or one that headstart wrote; never a log.

    Parameters
    ----------
    out
        A path or a URL.
    logs
        The logs that are read; their options of the file system are used for a URL, too.
    """

    def __init__(self, out: PathLike, logs: Logs) -> None:
        path = checked_path(out)
        self.remote = is_url(os.fspath(out))
        self.out = os.fspath(out) if self.remote else str(path)
        place, _, self.name = self.out.rpartition("/")
        self.folder = Folder(place if self.remote else path.parent, logs.storage)
        if self.remote:
            if not self.name or self.out in (file.path for file in logs.files):
                raise FileError(f"out must be a file to write, and not a log; got {self.out!r}")
            exists = self.name in self.folder.names()
        else:
            self.name = path.name
            check_writable(path)
            exists = path.exists()
            for file in logs.files if exists else ():
                if not is_url(file.path) and path.samefile(file.path):
                    raise FileError(f"out must not be one of the logs; got {self.out!r}")
        if exists and not is_replaceable(self.folder, self.name):
            raise FileError(
                f"out must be a new file, or one that headstart wrote; {self.out!r} is something "
                f"else: give another name, or remove it first"
            )

    def write(self, bandit: Bandit) -> None:
        """Write a bandit, all of it or nothing."""
        if not self.remote:
            bandit.save(self.out)
            return
        with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
            path = Path(temporary) / self.name
            bandit.save(path)
            self.folder.write(self.name, path)


def check_writable(path: Path) -> None:
    """Refuse a path where no file can be written."""
    if path.is_dir():
        raise FileError(f"out must be a file to write; {str(path)!r} is a folder")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise FileError(
            f"out cannot be written: {str(path.parent)!r} is no folder that can be written to"
        )
    atomic.check_replaceable(path)


def is_replaceable(folder: Folder, name: str) -> bool:
    """Whether a file is empty or one of headstart's, by how it begins."""
    try:
        start = folder.read(name, 8)
        length = int.from_bytes(start, "little")
        if not start or length > LONGEST:
            return not start
        header = json.loads(folder.read(name, 8 + length)[8:])
        return bool(header["__metadata__"]["format"] == tensor_file.FORMAT)
    except (FileError, OSError, *atomic.DECODING_ERRORS):
        return False
