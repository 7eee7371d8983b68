"""Where logs are: files, globs, folders and URLs, and how they are opened."""

from __future__ import annotations

import collections
import contextlib
import csv
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from headstart import checks
from headstart.errors import FileError, HeadstartError, InputError, MissingFileError
from headstart.fleet.reading import stores
from headstart.fleet.reading.stores import WANT, Storage, is_url

#: The formats, and how the names of their files end.
FORMATS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv"),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "jsonl": (".jsonl", ".ndjson"),
}
NAMES = {"parquet": "Parquet", "csv": "CSV", "arrow": "Arrow IPC", "jsonl": "JSON lines"}
ENDINGS = ", ".join(ending for endings in FORMATS.values() for ending in endings)
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}

#: Formats that are memory-mapped: half the time where the file is in the system's cache.
MAPPED = ("arrow", "parquet")

SAMPLES, SAMPLE = 16, 1 << 16  # files of one size are compared at so many places of so many bytes


class File(NamedTuple):
    """One file: its path or URL, its size in bytes, and its modification time or ETag.

    If a change of the file cannot be detected, ``changed`` is empty.
    """

    path: str
    size: int
    changed: str


def compression_of(path: str) -> str | None:
    """How a file is compressed, by its name."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def format_of(path: str, given: str | None) -> str:
    """The format of a file: the one given, or the one its name says."""
    if given is not None:
        return given
    packed = compression_of(path)
    name = os.path.splitext(path.lower())[0] if packed else path.lower()
    known = next((known for known, ends in FORMATS.items() if name.endswith(ends)), None)
    if known is None:
        raise InputError(
            f"format must be said where the name of a file does not end in {ENDINGS}; got {path!r} "
            f"(pass format= or --format, one of {', '.join(FORMATS)})"
        )
    if packed and known not in ("csv", "jsonl"):
        raise InputError(
            f"paths has a file that must be unpacked first: {path!r} ({NAMES[known]} is "
            f"compressed inside, if at all)"
        )
    return known


def is_log(path: str, given: str | None) -> bool:
    """Whether a file is of a known format."""
    try:
        return bool(format_of(path, given))
    except InputError:
        return False


def find_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    given: str | None,
    storage: Storage,
) -> tuple[list[File], list[str]]:
    """All files that are meant, in the order of their names within each entry; notes on links."""
    entries = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(entries, (list, tuple)) or not entries:
        raise checks.invalid("paths", WANT, paths)
    by_path: dict[str, File] = {}
    for entry in entries:
        path = os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else ""
        try:
            if not isinstance(path, str) or not path or "\0" in path:
                raise checks.invalid("paths", WANT, entry)
            os.fsencode(path)
        except UnicodeEncodeError:
            raise checks.invalid("paths", WANT, entry) from None
        if path.startswith("file://"):
            path = fs.FileSystem.from_uri(path)[1] if "*" not in path else path[len("file://") :]
        files = find_urls(path, given, storage) if is_url(path) else find_local(path, given)
        by_path |= {file.path: file for file in sorted(files)}
    return drop_links(list(by_path.values()))


def find_local(path: str, given: str | None) -> list[File]:
    """Files on this machine."""
    path = os.path.expanduser(path)
    names, folder = [path], os.path.isdir(path)
    if folder or (glob.has_magic(path) and not os.path.isfile(path)):
        pattern = os.path.join(glob.escape(path), "**", "*") if folder else path
        names = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
        names = [name for name in names if is_log(name, given)] if folder else names
        names = drop_hidden(names, path, given)
    elif not os.path.isfile(path):
        raise MissingFileError(f"paths must be {WANT}; nothing is at {path!r}")
    return [File(name, (stat := os.stat(name)).st_size, str(stat.st_mtime_ns)) for name in names]


def find_urls(url: str, given: str | None, storage: Storage) -> list[File]:
    """Files at a URL."""
    system, path = stores.file_system(url, storage)
    with stores.store_errors(url, storage):
        system.invalidate_cache()  # what was listed before may have changed
        if glob.has_magic(path):
            infos = system.glob(path, detail=True)
            infos = {name: info for name, info in infos.items() if info["type"] == "file"}
            if not infos:
                stores.check_bucket(system, path, url)
        else:
            info = stores.look_at(system, path, url)
            # A page with links is a folder over HTTP, but a log is not.
            listable = path.endswith("/") or not is_log(path, None)
            if info["type"] != "directory" and not (listable and system.isdir(path)):
                return [File(url, *stores.version(system, info))]
            infos = system.find(path, detail=True)
            infos = {name: info for name, info in infos.items() if is_log(name, given)}
        names = drop_hidden(list(infos), path, given, url)
        with ThreadPoolExecutor(16) as pool:  # some listings have no sizes or times
            versions = pool.map(lambda name: stores.version(system, infos[name]), names)
        whole = [system.unstrip_protocol(name) for name in names]
        return [File(name, *version) for name, version in zip(whole, versions, strict=True)]


def drop_hidden(
    names: list[str], pattern: str, given: str | None, url: str | None = None
) -> list[str]:
    """Names that a folder or a glob stands for, without hidden files, drafts and markers.

    These have a ``.`` or ``_`` at the beginning of a part of their path that was not spelled out. A
    glob that names such a part itself (``logs/*/_old/*.csv``) means them.
    """
    pattern, magic = pattern.replace(os.sep, "/"), glob.has_magic(pattern)
    fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0] if magic else pattern.rstrip("/")
    hidden = re.compile(r"(^|/)[._]")
    if not (magic and hidden.search(pattern[len(fixed) :])):
        names = [
            name for name in names if not hidden.search(name.replace(os.sep, "/")[len(fixed) :])
        ]
    if names:
        return names
    shown = url or pattern
    if magic:
        raise MissingFileError(f"paths must be {WANT}; no file matches {shown!r}")
    lacks = "is empty" if given else f"has no file that ends in {ENDINGS}"
    raise MissingFileError(f"paths must be {WANT}; the folder {shown!r} {lacks}")


def drop_links(files: list[File]) -> tuple[list[File], list[str]]:
    """Every file once, and a note where paths lead to the same file on this machine."""
    distinct, pairs = first_of_each(files, map(identity, files))
    if not pairs:
        return files, []
    count = "1 file is" if len(pairs) == 1 else f"{len(pairs):,} files are"
    one, other = pairs[0]
    note = f"{count} there under several names ({one!r} is {other!r}): each is read once"
    return distinct, [note]


def first_of_each(
    files: Sequence[File], keys: Iterable[Any]
) -> tuple[list[File], list[tuple[str, str]]]:
    """The first file with each key, and the paths of every other beside that of the first."""
    first: dict[Any, File] = {}
    pairs = [
        (file.path, known.path)
        for file, key in zip(files, keys, strict=True)
        if (known := first.setdefault(key, file)) is not file
    ]
    return list(first.values()), pairs


def identity(file: File) -> tuple[Any, ...]:
    """What identifies a file, independently of links to it."""
    if is_url(file.path):
        return (file.path,)
    stat = os.stat(file.path)
    return (stat.st_dev, stat.st_ino) if stat.st_ino else (os.path.realpath(file.path),)


def find_copies(files: Sequence[File], storage: Storage) -> list[str]:
    """A sentence where files have the same content; their rows count as often as they are there.

    Files of the same size are compared at 16 places, up to a megabyte in all; behind URLs, where
    each takes a request, at their beginning and end.
    """
    sizes = collections.Counter(file.size for file in files)
    alike = [file for file in files if file.size and sizes[file.size] > 1]
    with ThreadPoolExecutor(16) as pool:
        digests = pool.map(lambda file: (file.size, digest(file, storage)), alike)
        _, pairs = first_of_each(alike, digests)
    if not pairs:
        return []
    count = "1 file is a copy" if len(pairs) == 1 else f"{len(pairs):,} files are copies"
    return [f"{count} of others ({pairs[0][0]!r} of {pairs[0][1]!r}): their rows count twice"]


def digest(file: File, storage: Storage) -> bytes:
    """A hash of some of a file's content, of all of it if it is small."""
    content = hashlib.blake2b(digest_size=16)
    with file_errors(file.path, None), open_file(file.path, storage) as source:
        gaps = 1 if is_url(file.path) else SAMPLES - 1
        step = max((file.size - SAMPLE) // gaps, SAMPLE)
        for start in range(0, file.size, step):
            source.seek(start)
            content.update(source.read(SAMPLE))
    return content.digest()


def partitions_of(path: str) -> dict[str, str | None]:
    """The columns that the names of folders stand for, as Hive writes them; ``None`` for no value.

    >>> partitions_of("logs/day=2024-05-01/user=a%20b/part-0.parquet")
    {'day': '2024-05-01', 'user': 'a b'}
    """
    keys = dict.fromkeys(re.findall(r"([^/=]+)=[^/]*/", path))
    if not keys:
        return {}
    import pyarrow.dataset as ds  # only where need be: it takes a while to load

    hive = ds.HivePartitioning(pa.schema([(key, pa.string()) for key in keys]))
    values = ds.get_partition_keys(hive.parse(path))
    return {key: values[key] for key in keys if key in values}


def open_file(path: str, storage: Storage, *, mapped: bool = False) -> pa.NativeFile:
    """Open a file for reading at any place; ``mapped`` where it is best not read as a whole."""
    if is_url(path):
        return stores.open_url(path, storage)
    return pa.memory_map(path) if mapped else pa.OSFile(path)


def check_unchanged(file: File, storage: Storage) -> None:
    """Refuse a file that is not the one that was looked at."""
    if is_url(file.path):
        same = stores.is_unchanged(file.path, storage, file.size, file.changed)
    else:
        try:
            stat = os.stat(file.path)
        except OSError as error:
            raise MissingFileError(f"{file.path!r} is gone ({error.strerror})") from error
        same = (stat.st_size, str(stat.st_mtime_ns)) == (file.size, file.changed)
    if not same:
        raise FileError(f"{file.path!r} was changed while the logs were being read: start again")


@contextlib.contextmanager
def file_errors(path: str, form: str | None) -> Iterator[None]:
    """Name the file that could not be read, and say what to do."""
    try:
        yield
    except HeadstartError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{path!r} is gone ({stores.reason(error)})") from error
    except PermissionError as error:
        raise FileError(f"{path!r} may not be read ({stores.reason(error)})") from error
    except (OSError, EOFError, UnicodeError, csv.Error, RecursionError, pa.ArrowException) as error:
        if is_url(path) and re.search("AWS Error|google::cloud|Azure", str(error)):
            raise stores.unreachable(path, error) from error
        kind = "readable" if form is None else NAMES[form]
        raise FileError(
            f"{path!r} is truncated, damaged or not {kind} ({stores.reason(error)}): write or copy "
            f"it again, leave it out, or say what it is with format= or --format"
        ) from error
