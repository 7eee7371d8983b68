"""Where logs are: files, globs, folders and URLs, and how they are opened."""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from headstart import checks
from headstart.errors import FileError, HeadstartError, InputError, MissingFileError
from headstart.fleet.reading.urls import Watched, file_system, reaching, reason

__all__ = [
    "FORMATS",
    "File",
    "find_files",
    "format_of",
    "is_url",
    "open_file",
    "reading",
    "repeats",
]

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
    """One file: its path or URL, its size in bytes, and when or what it was last changed to.

    Where nothing tells whether a file has changed, ``changed`` is empty.
    """

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
    """All files that are meant, in the order of their names within each entry."""
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


def repeats(files: Sequence[File]) -> tuple[list[File], list[str]]:
    """Every file once, and a note where paths lead to the same file on this machine."""
    kept: dict[tuple[Any, ...], File] = {}
    again: list[tuple[str, str]] = []
    for file in files:
        first = kept.setdefault(identity(file.path), file)
        if first is not file:
            again.append((file.path, first.path))
    if not again:
        return list(files), []
    count = "1 file is" if len(again) == 1 else f"{len(again):,} files are"
    one, other = again[0]
    note = f"{count} there under several names ({one!r} is {other!r}): each is read once"
    return list(kept.values()), [note]


def identity(path: str) -> tuple[Any, ...]:
    """What tells a file from every other, whatever links lead to it."""
    if is_url(path):
        return (path,)
    stamp = os.stat(path)
    return (stamp.st_dev, stamp.st_ino) if stamp.st_ino else (os.path.realpath(path),)


#: What file systems call the time of a change, or a mark of the content.
STAMPS = (
    "ETag",
    "etag",
    "mtime",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "modify",
    "Content-MD5",
    "Digest",
    "sha",
    "created",
)


def find_urls(url: str, given: str | None, storage: Mapping[str, Any]) -> list[File]:
    """Files at a URL."""
    system, path = file_system(url, storage)
    with reaching(url, storage):
        system.invalidate_cache()  # what was listed before may have changed
        alone = False
        if glob.has_magic(path):
            found = system.glob(path, detail=True).values()
            infos = [info for info in found if info["type"] == "file"]
            if not infos:
                check_bucket(system, path, url)
                raise MissingFileError(f"paths must be {WANT}; no file matches {url!r}")
        else:
            info = look_at(system, path, url)
            if info["type"] == "directory" or (may_list(path) and system.isdir(path)):
                found = system.find(path, detail=True).items()
                infos = [info for name, info in found if wanted(name, path, given)]
                if not infos:
                    raise nothing_in(url, given)
            else:
                infos, alone = [info], True
        files = []
        infos = sorted(told_of(system, infos), key=lambda info: str(info["name"]))
        for info in infos:
            stamp = next((info[key] for key in STAMPS if info.get(key)), "")
            name = url if alone else system.unstrip_protocol(info["name"])
            files.append(File(name, int(info.get("size") or 0), str(stamp)))
        return files


def look_at(system: Any, path: str, url: str) -> Mapping[str, Any]:
    """What a file system says of a path; where nothing is there, why."""
    try:
        info: Mapping[str, Any] = system.info(path)
        return info
    except FileNotFoundError as error:
        check_bucket_error(error, url)
        cause = error.__cause__
        # fsspec says of every HTTP error that the file was not found.
        known = cause is None or isinstance(cause, FileNotFoundError)
        if not known and getattr(cause, "status", 0) not in (404, 410):
            raise cause from None  # type: ignore[misc]
        raise MissingFileError(f"paths must be {WANT}; nothing is at {url!r}") from error


def check_bucket(system: Any, path: str, url: str) -> None:
    """Where nothing was found: raise if there is not even the bucket."""
    try:
        system.info(path.split("/")[0])
    except FileNotFoundError as error:
        check_bucket_error(error, url)
    except Exception:  # there may be no buckets at all
        return


def check_bucket_error(error: FileNotFoundError, url: str) -> None:
    """Raise if an error says that there is no such bucket."""
    text = f"{error} {error.__cause__}"
    if any(word in text for word in ("bucket does not exist", "NoSuchBucket", "HeadBucket")):
        raise MissingFileError(f"paths must be {WANT}; the bucket of {url!r} does not exist")


def may_list(path: str) -> bool:
    """Whether a path that is a file may be a page with links (over HTTP): not if it is a log."""
    with contextlib.suppress(InputError):
        return path.endswith("/") or not format_of(path, None)
    return True


def told_of(system: Any, infos: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What is known of files; those whose listing has no size or time are asked for one by one."""

    def ask(info: Mapping[str, Any]) -> Mapping[str, Any]:
        if info.get("size") is not None and any(info.get(key) for key in STAMPS):
            return info
        return {**info, **system.info(info["name"]), "name": info["name"]}

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(ask, infos))


def open_file(path: str, storage: Mapping[str, Any], *, mapped: bool = False) -> pa.NativeFile:
    """Open a file for reading at any place; ``mapped`` where it is best not read as a whole."""
    if not is_url(path):
        return pa.memory_map(path) if mapped else pa.OSFile(path)
    system, inside = file_system(path, storage)
    try:
        with reaching(path, storage):
            file = system.open(inside, "rb")
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise MissingFileError(f"{path!r} is gone") from error
        raise
    return pa.PythonFile(Watched(file, path, storage), mode="r")


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
    except (OSError, EOFError, UnicodeError, csv.Error, RecursionError, pa.ArrowException) as error:
        raise FileError(
            f"{path!r} is truncated, damaged or not {NAMES[form]} ({reason(error)}): write or copy "
            f"it again, leave it out, or say what it is with format= or --format"
        ) from error


NAMES = {"parquet": "Parquet", "csv": "CSV", "arrow": "Arrow IPC", "jsonl": "JSON lines"}
