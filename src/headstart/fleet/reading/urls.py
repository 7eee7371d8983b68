"""File systems behind URLs, and what their errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from headstart.errors import FileError, HeadstartError, InputError

__all__ = ["Watched", "file_system", "reaching", "reason"]

#: The packages that open URLs; what is not here, fsspec has itself or names in its error.
PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "adl": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "oci": "ocifs",
    "hf": "huggingface_hub",
}


def file_system(url: str, storage: Mapping[str, Any]) -> tuple[Any, str]:
    """The fsspec file system of a URL (fsspec keeps those it has opened), and the path in it."""
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
        scheme = url.partition("://")[0].rpartition("::")[2].lower()
        package = PACKAGES.get(scheme)
        how = f"pip install {package}" if package else str(error)
        raise InputError(
            f"paths has a URL that needs another package: {how}; got {url!r}"
        ) from None
    except Exception as error:  # whatever the package for it may raise
        raise InputError(
            f"paths has a URL that cannot be opened: {url!r} ({why(error, storage)})"
        ) from error


@contextlib.contextmanager
def reaching(url: str, storage: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Say what could not be reached, and why: packages for URLs raise errors of all kinds."""
    try:
        yield
    except HeadstartError:
        raise
    except Exception as error:
        raise FileError(f"{url!r} could not be reached ({why(error, storage)})") from error


def why(error: BaseException, storage: Mapping[str, Any] | None) -> str:
    """The cause of a file system's error, and what to do where that can be told."""
    text = reason(error)
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return f"{text}: log in, or pass anon=true (--storage anon=true) for what is public"
    if isinstance(error, TypeError) and "keyword argument" in text and storage:
        return f"{text}: are these its options? {', '.join(storage)} (--storage)"
    if "range requests" in text or "seek streaming" in text or "Got more bytes" in text:
        return (
            "the server gives files only as a whole: download it, or put simplecache:: before the "
            "URL"
        )
    return text


class Watched:
    """A file behind a URL, whose errors say what could not be reached."""

    def __init__(self, file: Any, url: str, storage: Mapping[str, Any]) -> None:
        self.file, self.url, self.storage = file, url, storage

    @property
    def closed(self) -> bool:
        """Whether it can be read no more."""
        return bool(self.file.closed)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        with reaching(self.url, self.storage):
            data: bytes = self.file.read(size)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place."""
        with reaching(self.url, self.storage):
            return int(self.file.seek(place, whence))

    def tell(self) -> int:
        """The place of the next byte."""
        return int(self.file.tell())

    def close(self) -> None:
        """Read no more."""
        self.file.close()


def reason(error: BaseException) -> str:
    """An error's first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
