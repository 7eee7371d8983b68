"""The disk: writing that is done wholly or not at all, and errors that say why.

Every file of headstart is written through :func:`replacing` and read through :func:`opened`.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = folder.name + "/note"
>>> with replacing(path) as draft:
...     draft.write(b"all of it, ")
...     draft.write(b"or nothing")
>>> Path(path).read_bytes()
b'all of it, or nothing'
>>> folder.cleanup()
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import FileError, MissingFileError

__all__ = ["Draft", "opened", "replacing", "telling_why"]

AnyArray = npt.NDArray[Any]
PathLike = str | os.PathLike[str]

# What comes of taking bytes for what they are not.
SENSELESS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def flat(array: AnyArray) -> memoryview:
    """An array's bytes, without copying them if they lie in one piece.

    >>> bytes(flat(np.array([[46, 46], [46, 46]], dtype=np.uint8)))
    b'....'
    """
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Draft:
    """A file that is being written, under a name of its own."""

    def __init__(self, target: Path, name: Path, file: IO[bytes]) -> None:
        self.target = target
        self.name = name
        self.size = 0
        self._file = file

    def write(self, content: bytes | memoryview) -> None:
        """Append bytes."""
        rest = memoryview(content)
        self.size += len(rest)
        with telling_why_not(self.target):
            while len(rest):  # what is not buffered may be written in parts
                rest = rest[self._file.write(rest) :]


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[Draft]:
    """A new file that takes the path's name when all is done; if anything fails, it is gone."""
    # Through a link, so that what it points to is replaced and not the link.
    target = Path(os.path.realpath(checked_path(path)))
    name = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    with telling_why_not(target):
        handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        # Without a buffer, so that closing the file writes nothing and cannot fail again.
        with os.fdopen(handle, "wb", 0) as file:
            yield Draft(target, name, file)
            with telling_why_not(target):
                os.fsync(file.fileno())
        with telling_why_not(target):
            if target.exists():
                os.chmod(name, target.stat().st_mode & 0o777)
            os.replace(name, target)
            flush_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def telling_why_not(target: Path) -> Iterator[None]:
    """Say of a file why it could not be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"path {str(target)!r} could not be written ({reason}); what was there is unchanged"
        ) from error


@contextlib.contextmanager
def telling_why(source: Path, want: str) -> Iterator[None]:
    """Say of a file why it could not be read, or what is wrong with it."""
    try:
        yield
    except FileError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"path {str(source)!r} must be {want}; nothing is there") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"path {str(source)!r} could not be read ({reason})") from error
    except SENSELESS as error:
        raise FileError(
            f"path {str(source)!r} must be {want}; it is truncated, corrupted or of "
            f"another kind ({error})"
        ) from error


def opened(source: Path, want: str) -> IO[bytes]:
    """A file opened for reading; a folder is refused as one."""
    if stat.S_ISDIR(os.stat(source).st_mode):
        raise FileError(f"path {str(source)!r} must be {want}; it is a folder")
    return source.open("rb")


def read_exactly(file: IO[bytes], array: AnyArray) -> None:
    """Fill an array with the bytes that come next."""
    rest = flat(array)
    while len(rest):
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends too early")
        rest = rest[count:]


def checked_path(path: PathLike) -> Path:
    """A path, refused by name if it is none."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise checks.refuse("path", "a path, as text or pathlib.Path", path)
    return Path(path)


def check_version(source: Path, version: str, newest: int) -> None:
    """Refuse files that a newer headstart has written."""
    if not version.isdigit() or int(version) < 1:
        raise FileError(f"path {str(source)!r} is corrupted: it has no format version")
    if int(version) > newest:
        raise FileError(
            f"path {str(source)!r} has format version {version}; this headstart reads up to "
            f"{newest}: install a newer one"
        )


def flush_folder(folder: Path) -> None:
    """Make a rename durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
