"""Where logs are: files, globs, folders and URLs, and how they are opened."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from headstart import checks
from headstart.errors import FileError, HeadstartError, InputError, MissingFileError

__all__ = ["FORMATS", "File", "find_files", "format_of", "open_file", "reading"]

#: The formats, and how the names of their files end.
FORMATS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv"),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "jsonl": (".jsonl", ".ndjson"),
}
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
WANT = "a path, a glob, a folder or a URL, or several"


class File(NamedTuple):
    """One file: its path or URL, its size in bytes, and when or what it was last changed to."""

    path: str
    size: int
    changed: str


def is_url(path: str) -> bool:
    """Whether a path is a URL (and not a Windows drive).

    >>> is_url("s3://bucket/log.parquet"), is_url("logs/log.parquet")
    (True, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)", path) is not None


def packing(path: str) -> str | None:
    """How a file is compressed, by its name."""
    return PACKED.get(os.path.splitext(path)[1].lower())


def format_of(path: str, given: str | None) -> str:
    """The format of a file: the one given, or the one its name says."""
    if given is not None:
        return checks.one_of("format", given, FORMATS)
    name = path.lower()
    if packing(path):
        name = os.path.splitext(name)[0]
    for known, endings in FORMATS.items():
        if name.endswith(endings):
            if packing(path) and known not in ("csv", "jsonl"):
                raise InputError(
                    f"paths has a file that must be unpacked first: {path!r} ({NAMES[known]} is "
                    f"compressed inside, if at all)"
                )
            return known
    ends = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    raise InputError(
        f"format must be said where the name of a file does not end in {ends}; got {path!r} "
        f"(pass format= or --format, one of {', '.join(FORMATS)})"
    )


def find_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    given: str | None,
    storage: Mapping[str, Any],
) -> list[File]:
    """All files that are meant, each once, in the order of their names within each entry."""
    entries = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(entries, (list, tuple)) or not entries:
        raise checks.refuse("paths", WANT, paths)
    found: dict[str, File] = {}
    for entry in entries:
        if not isinstance(entry, (str, os.PathLike)) or not os.fspath(entry):
            raise checks.refuse("paths", WANT, entry)
        path = os.fspath(entry)
        if path.startswith("file://"):
            path = fs.FileSystem.from_uri(path)[1] if "*" not in path else path[len("file://") :]
        files = find_urls(path, given, storage) if is_url(path) else find_local(path, given)
        for file in files:
            found[file.path] = file
    return list(found.values())


def find_local(path: str, given: str | None) -> list[File]:
    """Files on this machine."""
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        names = [path]
    elif os.path.isdir(path):
        inside = glob.glob(os.path.join(glob.escape(path), "**", "*"), recursive=True)
        names = [name for name in inside if os.path.isfile(name) and wanted(name, path, given)]
        if not names:
            raise nothing_in(path, given)
    elif glob.has_magic(path):
        names = [name for name in glob.glob(path, recursive=True) if os.path.isfile(name)]
        if not names:
            raise MissingFileError(f"paths must be {WANT}; no file matches {path!r}")
    else:
        raise MissingFileError(f"paths must be {WANT}; nothing is at {path!r}")
    files = []
    for name in sorted(names):
        stamp = os.stat(name)
        files.append(File(name, stamp.st_size, str(stamp.st_mtime_ns)))
    return files


def wanted(name: str, folder: str, given: str | None) -> bool:
    """Whether a file in a folder is a log: not hidden, not a marker, of a known format."""
    inside = os.path.relpath(name, folder).replace(os.sep, "/").split("/")
    if any(piece.startswith((".", "_")) for piece in inside):
        return False
    if given is not None:
        return True
    with contextlib.suppress(InputError):
        return bool(format_of(name, None))
    return False


def nothing_in(path: str, given: str | None) -> MissingFileError:
    """The error for a folder without logs."""
    ends = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    return MissingFileError(
        f"paths must be {WANT}; the folder {path!r} has no file that ends in {ends}"
        if given is None
        else f"paths must be {WANT}; the folder {path!r} is empty"
    )


def find_urls(url: str, given: str | None, storage: Mapping[str, Any]) -> list[File]:
    """Files at a URL."""
    system, path = file_system(url, storage)
    with reaching(url):
        if glob.has_magic(path):
            names = system.glob(path)
            infos = [info for info in map(system.info, names) if info["type"] == "file"]
            if not infos:
                raise MissingFileError(f"paths must be {WANT}; no file matches {url!r}")
        elif not system.exists(path):
            raise MissingFileError(f"paths must be {WANT}; nothing is at {url!r}")
        elif system.isdir(path):
            infos = [
                info
                for name, info in system.find(path, detail=True).items()
                if wanted(name, path, given)
            ]
            if not infos:
                raise nothing_in(url, given)
        else:
            infos = [system.info(path)]
        files = []
        for info in sorted(infos, key=lambda info: str(info["name"])):
            stamp = next(
                (
                    info[key]
                    for key in ("ETag", "etag", "mtime", "LastModified", "created")
                    if info.get(key)
                ),
                "",
            )
            name = (
                system.unstrip_protocol(info["name"])
                if len(infos) > 1 or glob.has_magic(path) or system.isdir(path)
                else url
            )
            files.append(File(name, int(info.get("size") or 0), str(stamp)))
        return files


def file_system(url: str, storage: Mapping[str, Any]) -> tuple[Any, str]:
    """The fsspec file system of a URL (fsspec keeps those it has opened), and the path in it.

    Where fsspec lacks a package for it, PyArrow's own S3, Google Cloud, Azure and Hadoop are used.
    """
    try:
        import fsspec
    except ModuleNotFoundError:
        raise InputError(
            f"paths has a URL, which needs fsspec: pip install 'headstart[fleet]'; got {url!r}"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(url, **storage)
        return system, path
    except ImportError as error:
        with contextlib.suppress(pa.ArrowException, ValueError, OSError):
            if not storage:
                from fsspec.implementations.arrow import ArrowFSWrapper

                native, path = fs.FileSystem.from_uri(url)
                return ArrowFSWrapper(native), path
        raise InputError(f"paths has a URL that needs another package: {url!r} ({error})") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"paths has a URL that cannot be opened: {url!r} ({error})") from None


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Say what could not be reached, and why."""
    try:
        yield
    except HeadstartError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FileError(f"{url!r} could not be reached ({reason(error)})") from error


def open_file(path: str, storage: Mapping[str, Any], *, mapped: bool = False) -> pa.NativeFile:
    """Open a file for reading at any place; ``mapped`` where it is best not read as a whole."""
    if not is_url(path):
        return pa.memory_map(path) if mapped else pa.OSFile(path)
    system, inside = file_system(path, storage)
    return fs.PyFileSystem(fs.FSSpecHandler(system)).open_input_file(inside)


def check_unchanged(file: File) -> None:
    """Refuse a file that is not the one that was looked at (told only for local files)."""
    if is_url(file.path):
        return
    try:
        stamp = os.stat(file.path)
    except OSError as error:
        raise MissingFileError(f"{file.path!r} is gone ({error.strerror})") from error
    if (stamp.st_size, str(stamp.st_mtime_ns)) != (file.size, file.changed):
        raise FileError(f"{file.path!r} was changed while the logs were being read: start again")


@contextlib.contextmanager
def reading(path: str, form: str) -> Iterator[None]:
    """Name the file that could not be read, and say what to do."""
    try:
        yield
    except HeadstartError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{path!r} is gone ({reason(error)})") from error
    except PermissionError as error:
        raise FileError(f"{path!r} may not be read ({reason(error)})") from error
    except (OSError, EOFError, pa.ArrowException) as error:
        raise FileError(
            f"{path!r} is truncated, damaged or not {NAMES[form]} ({reason(error)}): write or copy "
            f"it again, leave it out, or say what it is with format= or --format"
        ) from error


NAMES = {"parquet": "Parquet", "csv": "CSV", "arrow": "Arrow IPC", "jsonl": "JSON lines"}


def reason(error: BaseException) -> str:
    """An error's first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
