"""The compiled loops: loaded where there are rows enough, and while the first of them are read."""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

__all__ = ["MANY", "compiled", "load_soon", "loading"]

MANY = 1 << 16  # rows that make it worth while to load them

_found: list[Any] = []
_loader: list[threading.Thread] = []


def compiled(rows: int = MANY) -> Any:
    """``compiled.py``, if Numba is there; it is not loaded for a few rows."""
    if not _found and rows >= MANY:
        for thread in _loader:
            thread.join()
        load()
    return _found[0] if _found else None


def load() -> None:
    """Load them, if that was not done yet."""
    try:
        module = importlib.import_module("headstart.fleet.summing.compiled")
        module.begin()
    except ImportError:
        module = None
    if not _found:
        _found.append(module)


def load_soon() -> None:
    """Begin to load them, and do not wait for it."""
    if not _found and not loading():
        _loader[:] = [threading.Thread(target=quietly, daemon=True)]
        _loader[0].start()


def quietly() -> None:
    """Load them; what goes wrong is told to whoever needs them."""
    with contextlib.suppress(Exception):
        load()


def loading() -> bool:
    """Whether that is still under way."""
    return any(thread.is_alive() for thread in _loader)
