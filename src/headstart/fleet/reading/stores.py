"""File systems behind URLs: PyArrow's own where it has one, and otherwise those of fsspec.

A :class:`Folder` is on this machine or behind a URL; its files are written as a whole or not at
all.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from headstart.errors import FileError, HeadstartError, InputError, MissingFileError
from headstart.storage import atomic

Storage = Mapping[str, Any]  # options of a file system

WANT = "a path, a glob, a folder or a URL, or several"

#: PyArrow's file systems, and what they call the options of fsspec's.
NATIVE = dict.fromkeys(["s3", "s3a"], "S3FileSystem")
NATIVE |= dict.fromkeys(["gs", "gcs"], "GcsFileSystem")
ANYWHERE = {"anon": "anonymous", "endpoint_url": "endpoint_override"}
KEYS = {"key": "access_key", "secret": "secret_key", "token": "session_token", "region": "region"}
OPTIONS = {"S3FileSystem": ANYWHERE | KEYS, "GcsFileSystem": ANYWHERE}

#: What file systems call the time of a change, or a mark of the content.
STAMPS = ["ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "Last-Modified"]
STAMPS += ["modify", "Content-MD5", "Digest", "sha", "created"]


def is_url(path: str) -> bool:
    """Whether a path is a URL (and not a Windows drive).

    >>> is_url("s3://bucket/log.parquet"), is_url("logs/log.parquet")
    (True, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)", path) is not None


def file_system(url: str, storage: Storage) -> tuple[Any, str]:
    """The file system of a URL, with the methods of fsspec's, and the path in it."""
    scheme, _, path = url.partition("://")
    native = NATIVE.get(scheme.lower())
    if native is not None and set(storage) <= set(OPTIONS[native]):
        with contextlib.suppress(ImportError):  # not every build of PyArrow has them
            getattr(fs, native)
            bucket = path.partition("/")[0]
            with store_errors(url, storage):
                options = json.dumps(dict(storage), sort_keys=True)
                return native_system(scheme.lower(), native, bucket, options), path.rstrip("/")
    try:
        import fsspec

        return fsspec.core.url_to_fs(url, **storage)
    except Exception as error:  # whatever the package for it may raise
        fault = "needs another package" if isinstance(error, ImportError) else "cannot be opened"
        text = explain(error, storage)
        raise InputError(f"paths has a URL that {fault} ({text}); got {url!r}") from error


@functools.lru_cache(64)
def native_system(scheme: str, kind: str, bucket: str, storage: str) -> Any:
    """One of PyArrow's file systems, with the methods of fsspec's."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    class Native(ArrowFSWrapper):  # type: ignore[misc]
        """A folder is listed with all below it at once."""

        cachable = False
        protocol = scheme

        def find(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
            """The files below a folder."""
            selector = fs.FileSelector(path.strip("/"), True, recursive=maxdepth != 1)
            infos = map(self._make_entry, self.fs.get_file_info(selector))
            every = options.get("withdirs")
            files = {info["name"]: info for info in infos if every or info["type"] == "file"}
            return files if options.get("detail") else sorted(files)

    options = {OPTIONS[kind][name]: value for name, value in json.loads(storage).items()}
    address = options.get("endpoint_override")
    if address and "://" in address:
        options["scheme"], _, options["endpoint_override"] = address.rstrip("/").partition("://")
    if kind == "GcsFileSystem":
        options["retry_time_limit"] = datetime.timedelta(seconds=30)  # not a quarter of an hour
    elif not address and "region" not in options:
        options["region"] = fs.resolve_s3_region(bucket)
    return Native(getattr(fs, kind)(**options))


def look_at(system: Any, path: str, url: str) -> Mapping[str, Any]:
    """What a file system says of a path; where nothing is there, why."""
    try:
        return system.info(path)
    except FileNotFoundError as error:
        cause = error.__cause__
        # fsspec says of every HTTP error that the file was not found.
        known = cause is None or isinstance(cause, FileNotFoundError)
        if not known and getattr(cause, "status", 0) not in (404, 410):
            raise cause from None  # type: ignore[misc]
        check_bucket(system, path, url)
        raise MissingFileError(f"paths must be {WANT}; nothing is at {url!r}") from error


def version(system: Any, info: Mapping[str, Any]) -> tuple[int, str]:
    """A file's size, and its ETag or modification time if the file system reports one."""
    if info.get("size") is None or not any(info.get(key) for key in STAMPS):
        info = {**info, **system.info(info["name"])}
    key = next((key for key in STAMPS if info.get(key)), "")
    return int(info.get("size") or 0), f"{key}={plain(info[key])}" if key else ""


def plain(stamp: Any) -> str:
    """A time or a mark as text, the same whether it comes from a listing or not."""
    return str(stamp.timestamp() if isinstance(stamp, datetime.datetime) else stamp)


def is_unchanged(url: str, storage: Storage, size: int, changed: str) -> bool:
    """Whether a file behind a URL still has a version, as far as its file system reports it."""
    system, path = file_system(url, storage)
    with store_errors(url, storage):
        system.invalidate_cache()
        try:
            info = look_at(system, path, url)
        except MissingFileError as error:
            raise MissingFileError(f"{url!r} is gone") from error
    key, _, stamp = changed.partition("=")
    now = info.get(key)
    return (info.get("size") or size) == size and (not now or plain(now) == stamp)


def check_bucket(system: Any, path: str, url: str) -> None:
    """Where nothing was found: raise if there is not even the bucket."""
    try:
        system.info(path.split("/")[0])
    except FileNotFoundError as error:
        text = f"{error} {error.__cause__}"
        words = ("bucket does not exist", "NoSuchBucket", "HeadBucket")
        if is_native(system) or any(word in text for word in words):
            missing = f"paths must be {WANT}; the bucket of {url!r} does not exist"
            raise MissingFileError(missing) from error
    except Exception:  # there may be no buckets at all
        return


def is_native(system: Any) -> bool:
    """Whether a file system is one of PyArrow's."""
    return isinstance(getattr(system, "fs", None), fs.FileSystem)


def open_url(url: str, storage: Storage) -> pa.NativeFile:
    """A file behind a URL, for reading at any place."""
    system, path = file_system(url, storage)
    with store_errors(url, storage):
        if is_native(system):
            return system.fs.open_input_file(path)
        return pa.PythonFile(StoreFile(system.open(path, "rb"), url, storage), mode="r")


@contextlib.contextmanager
def store_errors(place: str, storage: Storage | None = None) -> Iterator[None]:
    """Say what could not be used, and why: packages for URLs raise errors of all kinds."""
    try:
        yield
    except HeadstartError:
        raise
    except FileNotFoundError as error:
        what = f"{place!r} is gone, or was never there"
        raise MissingFileError(f"{what} ({reason(error)})") from error
    except Exception as error:
        raise unreachable(place, error, storage) from error


def unreachable(place: str, error: BaseException, storage: Storage | None = None) -> FileError:
    """The error for a URL that could not be reached, or a path that could not be used."""
    verb = "reached" if is_url(place) else "used"
    return FileError(f"{place!r} could not be {verb} ({explain(error, storage)})")


def explain(error: BaseException, storage: Storage | None) -> str:
    """The cause of a file system's error, and what to do where that is known."""
    text = reason(error)
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError") or (
        "AWS Error ACCESS_DENIED" in text or "AWS Error INVALID_ACCESS_KEY_ID" in text
    ):
        return f"{text}: log in, or pass anon=true (--storage anon=true) for what is public"
    if isinstance(error, TypeError) and "keyword argument" in text and storage:
        return f"{text}: are these its options? {', '.join(storage)} (--storage)"
    if "range requests" in text or "seek streaming" in text or "Got more bytes" in text:
        return "the server gives only whole files: download it, or put simplecache:: before the URL"
    return text


class StoreFile:
    """A file of fsspec's, whose errors say what could not be reached."""

    def __init__(self, file: Any, url: str, storage: Storage) -> None:
        self.file, self.errors = file, functools.partial(store_errors, url, storage)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.file, name)
        if not callable(attribute):
            return attribute

        def call_with_errors(*arguments: Any) -> Any:
            with self.errors():
                return attribute(*arguments)

        return call_with_errors


def reason(error: BaseException) -> str:
    """An error's first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


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

    def __init__(self, place: str | os.PathLike[str], storage: Storage | None = None) -> None:
        atomic.checked_path(place)
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
        system, path = file_system(self.place, self.storage)
        if is_native(system):
            return system.fs, path
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path

    def errors(self, name: str = "") -> contextlib.AbstractContextManager[None]:
        """Say which file could not be read or written, and why."""
        return store_errors(f"{self.place}/{name}".rstrip("/"), self.storage)

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
            infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

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
