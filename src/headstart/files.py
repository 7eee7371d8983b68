"""Files: arrays and a header on disk, in a format that cannot run code.

A file is a `safetensors <https://github.com/huggingface/safetensors>`_ file whose metadata holds a
format version, a JSON header and a digest of everything. Writing is atomic: a reader, or a crash,
sees the old file or the new one, never a mixture.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import FileError, MissingFileError

__all__ = ["read", "write"]

FORMAT = "headstart"
VERSION = 1

Tensors = Mapping[str, npt.NDArray[Any]]
PathLike = str | os.PathLike[str]


def write(path: PathLike, header: Mapping[str, Any], tensors: Tensors) -> None:
    """Write a file atomically: to a name of its own, flushed to disk, then renamed."""
    from safetensors.numpy import save

    # Through a link, so that what it points to is replaced and not the link.
    target = Path(os.path.realpath(checked_path(path)))
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    text = json.dumps(header, ensure_ascii=False)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "header": text,
        "digest": digest(str(VERSION) + text, arrays),
    }
    content = save(arrays, metadata)
    temporary: Path | None = None
    try:
        name = target.parent / f".{target.name}.{secrets.token_hex(8)}"
        handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        temporary = name
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
        flush_folder(target.parent)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or str(error)
        raise FileError(
            f"path {str(target)!r} could not be written ({reason}); what was there is unchanged"
        ) from error


def read(path: PathLike) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read a file: its header and arrays, checked against the digest."""
    from safetensors import SafetensorError, safe_open

    source = checked_path(path)
    try:
        if stat.S_ISDIR(os.stat(source).st_mode):
            raise FileError(f"path {str(source)!r} must be a headstart file; it is a folder")
        with source.open("rb"):  # says why not, where safe_open would say that nothing is there
            pass
        with safe_open(source, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise FileError(
                    f"path {str(source)!r} must be a headstart file; "
                    f"it is a safetensors file of another program"
                )
            check_version(source, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(
            f"path {str(source)!r} must be a headstart file; nothing is there"
        ) from error
    except (SafetensorError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"path {str(source)!r} must be a headstart file; it is truncated, corrupted or of "
            f"another kind ({error})"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"path {str(source)!r} could not be read ({reason})") from error
    text = metadata.get("header", "")
    if metadata.get("digest") != digest(metadata["version"] + text, tensors):
        raise FileError(f"path {str(source)!r} is corrupted: its content does not match its digest")
    try:
        header: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise FileError(f"path {str(source)!r} is corrupted: its header is no JSON") from error
    return header, tensors


def checked_path(path: PathLike) -> Path:
    """A path, refused by name if it is none."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise checks.refuse("path", "a path, as text or pathlib.Path", path)
    return Path(path)


def check_version(source: Path, metadata: Mapping[str, str]) -> None:
    """Refuse files that a newer headstart has written."""
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) < 1:
        raise FileError(f"path {str(source)!r} is corrupted: it has no format version")
    if int(version) > VERSION:
        raise FileError(
            f"path {str(source)!r} has format version {version}; this headstart reads up to "
            f"{VERSION}: install a newer one"
        )


def digest(text: str, tensors: Tensors) -> str:
    """A hash of the header and of every array with its name, type and shape."""
    hashed = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        hashed.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def flush_folder(folder: Path) -> None:
    """Make a rename durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
