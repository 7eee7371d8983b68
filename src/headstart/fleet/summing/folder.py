"""A folder on this machine or behind a URL, whose files are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from headstart.errors import FileError
from headstart.fleet.reading import stores
from headstart.fleet.reading.files import is_url
from headstart.storage import atomic

__all__ = ["Folder"]

CHUNK = 1 << 24  # bytes that are copied at a time


class Folder:
    """Files in one place, which any process that can reach the place can read and write.

    Parameters
    ----------
    place
        A path or a URL.
    storage
        Options for the file system of a URL.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     folder = Folder(path)
    ...     folder.write("note", b"all or nothing")
    ...     print(folder.names(), folder.read("note"))
    ['note'] b'all or nothing'
    """

    def __init__(
        self, place: str | os.PathLike[str], storage: Mapping[str, Any] | None = None
    ) -> None:
        place = os.fspath(place)
        self.remote = is_url(place)
        self.place = place.rstrip("/") if self.remote else os.path.abspath(place)
        self.storage = dict(storage or {})

    def __str__(self) -> str:
        return self.place

    def system(self) -> tuple[fs.FileSystem, str]:
        """The file system, as one of PyArrow's, and the path in it."""
        if not self.remote:
            return fs.LocalFileSystem(), self.place
        system, path = stores.file_system(self.place, self.storage)
        if isinstance(found := getattr(system, "fs", None), fs.FileSystem):
            return found, path
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path

    @contextlib.contextmanager
    def errors(self, name: str = "") -> Iterator[None]:
        """Say which file could not be read or written, and why."""
        whole = f"{self.place}/{name}" if name else self.place
        if self.remote:
            with stores.store_errors(whole, self.storage):
                yield
            return
        try:
            yield
        except OSError as error:
            raise FileError(f"{whole!r} cannot be used ({stores.reason(error)})") from error

    def create(self) -> None:
        """Make the folder, if it is not there; object stores need none."""
        if not self.remote:
            with self.errors():
                Path(self.place).mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        """Whether the folder is there; object stores have none, and any may be written to."""
        return self.remote or Path(self.place).is_dir()

    def names(self) -> list[str]:
        """The files in the folder, sorted; none where there is no folder."""
        system, path = self.system()
        with self.errors():
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)

    def open(self, name: str) -> pa.NativeFile:
        """A file, to be read at any place in it."""
        system, path = self.system()
        with self.errors(name):
            return system.open_input_file(f"{path}/{name}")

    def fetch(self, name: str, target: Path) -> Path:
        """A file on this machine with a file's content: itself, or a copy in another folder."""
        if not self.remote:
            return Path(self.place) / name
        with self.open(name) as source, self.errors(name), (target / name).open("wb") as copy:
            shutil.copyfileobj(source, copy, CHUNK)
        return target / name

    def read(self, name: str, size: int | None = None) -> bytes:
        """A file's content, or its first bytes."""
        with self.open(name) as file, self.errors(name):
            return bytes(file.read(size))

    def write(self, name: str, content: bytes | Path) -> None:
        """Write bytes, or what a file on this machine holds, under a name."""
        if isinstance(content, Path) and content == Path(self.place) / name:  # it is there
            with self.errors(name), content.open("rb") as file:
                os.fsync(file.fileno())
            return
        with contextlib.ExitStack() as stack:
            source = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
            stack.enter_context(source)
            if self.remote:  # a store shows an object when all of it is there
                system, path = self.system()
                stack.enter_context(self.errors(name))
                sink: Any = system.open_output_stream(f"{path}/{name}", compression=None)
            else:
                sink = atomic.atomic_write(Path(self.place) / name)
            shutil.copyfileobj(source, stack.enter_context(sink), CHUNK)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        system, path = self.system()
        with self.errors(name), contextlib.suppress(FileNotFoundError):
            system.delete_file(f"{path}/{name}")
