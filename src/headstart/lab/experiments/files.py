"""Files of results: arrays that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from headstart.errors import FileError
from headstart.records import Array

__all__ = ["read_arrays", "write_arrays", "writing"]


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise a :class:`~headstart.FileError` where a folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise FileError(f"folder {str(folder)!r} cannot be written ({error})") from error


def read_arrays(path: Path) -> dict[str, Array] | None:
    """The arrays of a file by name; ``None`` if it is missing, truncated or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a file, atomically."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with writing(path.parent.parent):
        try:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # a name may not be "file"
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
