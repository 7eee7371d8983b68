"""Fingerprints of experiments, which name their results on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["fingerprint"]


def fingerprint(value: Any) -> str:
    """A hash of everything in a nested value: settings, arrays and tables by their content.

    >>> fingerprint({"a": np.zeros(9)}) == fingerprint({"a": np.zeros(9)})
    True
    >>> fingerprint({"a": np.zeros(9)}) == fingerprint({"a": np.ones(9)})
    False
    """
    hashed = hashlib.blake2b(digest_size=10)
    feed(hashed, value)
    return hashed.hexdigest()


def feed(hashed: Any, value: Any) -> None:
    """Add a value and its parts to a hash, each with its type, so that none collide."""
    hashed.update(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            hashed.update(field.name.encode())
            feed(hashed, getattr(value, field.name))
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype} {value.shape}".encode())
        hashed.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            feed(hashed, key)
            feed(hashed, item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            feed(hashed, item)
    elif hasattr(value, "columns") and hasattr(value, "to_numpy"):
        for name in value.columns:
            hashed.update(str(name).encode())
            feed(hashed, np.asarray(value[name].to_numpy()))
    elif callable(value):
        code = getattr(value, "__code__", None)
        hashed.update(f"{value.__module__}.{value.__qualname__}".encode())
        hashed.update(code.co_code if code is not None else b"")
    else:
        hashed.update(repr(value).encode())
        if isinstance(value, (str, os.PathLike)) and is_file(value):
            status = os.stat(value)
            hashed.update(f"{status.st_size} {status.st_mtime_ns}".encode())


def is_file(value: str | os.PathLike[str]) -> bool:
    """Whether a text is the path of a file, whose size and age then count too."""
    try:
        return Path(value).is_file()
    except (OSError, ValueError):
        return False
