"""Downloads that resume, run in one process at a time, and show their progress."""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

CHUNK_BYTES = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 3  # how many connections may break before a download fails

#: Called with the bytes received so far and in all (``None`` if not known).
Progress = Callable[[int, int | None], None]


def download(url: str, part: Path, progress: Progress) -> None:
    """Download into ``part``, resuming from its end, also after the connection breaks."""
    for attempts_left in reversed(range(ATTEMPTS)):
        before = part.stat().st_size if part.exists() else 0
        try:
            download_rest(url, part, before, progress)
            return
        except urllib.error.URLError:  # no connection, or no such file: a retry would fail too
            raise
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            if not attempts_left or not part.exists() or part.stat().st_size == before:
                raise


def download_rest(url: str, part: Path, done: int, progress: Progress) -> None:
    """One request, for what is missing after the first ``done`` bytes."""
    headers = {"User-Agent": "headstart"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if done and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all of it is there, or too much, which the checksum detects
        raise
    with response:
        resumed = response.status == HTTPStatus.PARTIAL_CONTENT
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done} of {total} bytes")


def describe_failure(error: Exception) -> str:
    """Why a download failed, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"there is no connection ({error.reason})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f" ({error.filename})" if error.filename else "")
    return str(error) or type(error).__name__


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; ``path`` is the lock file."""
    with path.open("w") as file:
        # Windows has no such lock: two first runs at once corrupt their download, which the
        # checksum detects.
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Progress]:
    """A progress bar, if there is a terminal to draw it on."""
    try:
        from rich import console, progress
    except ImportError:
        yield lambda done, total: None
        return
    terminal = console.Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    silent = not terminal.is_terminal
    with progress.Progress(*columns, console=terminal, disable=silent) as bar:
        row = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)
