"""Atomic writes, and errors that name the file and the reason.

Files of bandits and of evidence, report pages and checkpoint manifests are written through
:func:`atomic_write`, and read through :func:`open_regular`. Both take regular files only, through
symbolic links; folders, devices, FIFOs and sockets are refused. Results of experiments are written
through :func:`atomic_write` too; journals are appended to.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = folder.name + "/note"
>>> with atomic_write(path) as draft:
...     draft.write(b"all of it, ")
...     draft.write(b"or nothing")
>>> Path(path).read_bytes()
b'all of it, or nothing'
>>> folder.cleanup()
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import FileError, MissingFileError

AnyArray = npt.NDArray[Any]
PathLike = str | os.PathLike[str]

POSIX = os.name == "posix"
fcntl: Any = importlib.import_module("fcntl") if POSIX else None
DESCRIPTOR_FOLDER = "/proc/self/fd"  # open files by their numbers
# Not handed to other programs, not waited for, and bytes as they are.
OPEN_FLAGS = sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
)

# Raised by decoding bytes that are of another kind.
DECODING_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def byte_view(array: AnyArray) -> memoryview:
    """An array's bytes, without copying them if they lie in one piece.

    >>> bytes(byte_view(np.array([[46, 46], [46, 46]], dtype=np.uint8)))
    b'....'
    """
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Draft:
    """A file that is being written, without a name or under a temporary one."""

    def __init__(self, target: Path, file: IO[bytes]) -> None:
        self.target = target
        self.size = 0
        self._file = file

    def write(self, content: bytes | memoryview) -> None:
        """Append bytes."""
        rest = memoryview(content)
        self.size += len(rest)
        with explain_write_errors(self.target):
            while len(rest):  # what is not buffered may be written in parts
                rest = rest[self._file.write(rest) :]

    def read(self, start: int, length: int) -> bytes:
        """Bytes that were written already."""
        with explain_write_errors(self.target):
            content = bytearray(length)
            self._file.seek(start)
            read_exactly(self._file, np.frombuffer(content, np.uint8))
            self._file.seek(self.size)
            return bytes(content)


@contextlib.contextmanager
def atomic_write(path: PathLike, *, private: bool = False) -> Iterator[Draft]:
    """A new file that takes the path's name when it is complete, and is removed on failure.

    A symbolic link is followed: what it points to is replaced, and the link stays. The new file has
    the mode, and where possible the owner and group, of the one that it replaces; where there was
    none, the mode that the umask leaves, or if ``private`` one for its owner alone. It is never
    readable by anyone who may not read the file that it replaces.
    """
    target = check_replaceable(path)
    with explain_write_errors(target):
        remove_stale_drafts(target)
        secret = private or os.path.lexists(target)
        handle, name = open_draft(target, 0o600 if secret else 0o666)
    try:
        # Without a buffer, so that closing the file writes nothing and cannot fail again.
        with os.fdopen(handle, "r+b", 0) as file:
            yield Draft(target, file)
            with explain_write_errors(target):
                os.fsync(handle)
                check_replaceable(target)
                if POSIX:
                    copy_permissions(handle, target)
                    if name is None:
                        name = draft_name(target)
                        link(handle, name)
                    os.replace(name, target)  # before it is closed, while others see its lock
        with explain_write_errors(target):
            if not POSIX:
                assert name is not None
                os.replace(name, target)
            flush_folder(target.parent)
    except BaseException:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
        raise


def check_replaceable(path: PathLike) -> Path:
    """The file that a path stands for, through links, if one may be written there.

    Refused is what exists and is not a regular file. Nothing is opened.
    """
    link = file_path(path, "a file to write")
    with explain_write_errors(link):
        try:
            status = os.stat(link)
        except FileNotFoundError:  # nothing is there, or a link that points to nothing yet
            return Path(os.path.realpath(link))
        if not stat.S_ISREG(status.st_mode):
            raise FileError(
                f"path {str(link)!r} must be a file to write; it is {describe_mode(status.st_mode)}"
            )
        target = Path(os.path.realpath(link))
        # An open file, by a path such as /dev/stdout, that has lost its name.
        if not os.path.lexists(target) and os.path.exists(link):
            raise FileError(f"path {str(link)!r} must be a file to write; it has no name")
        return target


def open_draft(target: Path, mode: int) -> tuple[int, Path | None]:
    """A new file in the target's folder, open and locked; without a name, if the system can."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(DESCRIPTOR_FOLDER):
        with contextlib.suppress(OSError):  # not on every file system
            handle = os.open(target.parent, os.O_TMPFILE | os.O_RDWR | OPEN_FLAGS, mode)
            lock(handle)  # for the moment in which it has a draft's name
            return handle, None
    while True:
        name = draft_name(target)
        handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | OPEN_FLAGS, mode)
        # It was removed by another process before it was locked.
        if not lock(handle) or os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)


def lock(handle: int) -> bool:
    """Lock a draft for as long as it is open; whether that was possible."""
    if not POSIX:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # not on every file system
        return False
    return True


def link(handle: int, name: Path) -> None:
    """Give a name to a file that has none."""
    # With a folder's handle, as otherwise the link in /proc would be linked and not the file.
    folder = os.open(name.parent, os.O_RDONLY)
    try:
        os.link(f"{DESCRIPTOR_FOLDER}/{handle}", name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def copy_permissions(handle: int, target: Path) -> None:
    """Give a draft the owner, group and mode of the file that it is to replace, if there is one."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    for owner, group in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
        with contextlib.suppress(OSError):
            os.fchown(handle, owner, group)
            break
    mode = stat.S_IMODE(old.st_mode) & 0o777
    if os.fstat(handle).st_gid != old.st_gid:  # another group may do what everybody may
        mode = mode & ~0o070 | (mode & 0o007) << 3
    os.fchmod(handle, mode)


def remove_stale_drafts(target: Path) -> None:
    """Remove drafts of the same target whose writers were killed: those that are not locked."""
    if not POSIX:
        return
    ours = re.compile(re.escape(draft_stem(target)) + "[0-9a-f]{16}")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for path in [entry.path for entry in entries if ours.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    if stat.S_ISREG(os.fstat(handle).st_mode):
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        os.unlink(path)
                finally:
                    os.close(handle)


def draft_name(target: Path) -> Path:
    """A name for a draft that no other has."""
    return target.parent / (draft_stem(target) + secrets.token_hex(8))


def draft_stem(target: Path) -> str:
    """What the names of all drafts of one target begin with."""
    name = target.name
    if len(os.fsencode(name)) > 200:  # so that there is room for the rest
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}."


@contextlib.contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Say of a file why it could not be written."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"path {str(target)!r} could not be written ({reason}); what was there is unchanged"
        ) from error


@contextlib.contextmanager
def explain_read_errors(source: Path, want: str) -> Iterator[None]:
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
    except MemoryError as error:
        raise FileError(f"path {str(source)!r} is larger than memory allows") from error
    except DECODING_ERRORS as error:
        raise FileError(
            f"path {str(source)!r} must be {want}; it is truncated, corrupted or of "
            f"another kind ({error})"
        ) from error


def open_regular(source: Path, want: str) -> IO[bytes]:
    """A regular file opened for reading; anything else is refused, without waiting for it."""
    check_regular(source, want, os.stat(source).st_mode)  # a device is not even opened
    handle = os.open(source, os.O_RDONLY | OPEN_FLAGS)
    try:
        # Once more: it may have been replaced.
        check_regular(source, want, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(source: Path, want: str, mode: int) -> None:
    """Refuse to read what is not a regular file."""
    if not stat.S_ISREG(mode):
        raise FileError(f"path {str(source)!r} must be {want}; it is {describe_mode(mode)}")


def describe_mode(mode: int) -> str:
    """What is at a path, in words."""
    for test, words in FILE_KINDS:
        if test(mode):
            return words
    return "something else"


FILE_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
)


def read_exactly(file: IO[bytes], array: AnyArray) -> None:
    """Fill an array with the bytes that come next."""
    rest = byte_view(array)
    while len(rest):
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("it ends too early")
        rest = rest[count:]


def checked_path(path: PathLike) -> Path:
    """A path, refused by name if it is none."""
    want = "a path, as text or pathlib.Path"
    text: object = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise checks.invalid("path", want, path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise checks.invalid("path", f"{want} that the system can encode", text) from None
    return Path(text)


def file_path(path: PathLike, want: str) -> Path:
    """A path that may name a file: a slash at the end says that it is a folder."""
    valid_path = checked_path(path)
    separators = tuple(filter(None, (os.sep, os.altsep)))
    if os.fspath(path).endswith(separators):
        raise FileError(f"path {os.fspath(path)!r} must be {want}; it names a folder")
    return valid_path


def check_version(source: Path, version: str, newest: int, oldest: int = 1) -> None:
    """Refuse files that a newer headstart has written, or one too old."""
    if not version.isdigit() or int(version) < 1:
        raise FileError(f"path {str(source)!r} is corrupted: it has no format version")
    if int(version) > newest:
        raise FileError(
            f"path {str(source)!r} has format version {version}; this headstart reads up to "
            f"{newest}: install a newer one"
        )
    if int(version) < oldest:
        raise FileError(
            f"path {str(source)!r} has format version {version}, of an older headstart; this one "
            f"reads version {oldest} and later"
        )


def flush_folder(folder: Path) -> None:
    """Make a rename durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
