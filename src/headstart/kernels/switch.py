"""Compiled inner loops, switched on and off for the whole process."""

from __future__ import annotations

from typing import Any

from headstart.errors import InputError

__all__ = ["loops", "use_numba"]

_loops: list[Any] = [None]


def use_numba(on: bool = True) -> None:
    """Compile the inner loops of decisions and updates with Numba, or go back to NumPy.

    It needs ``pip install 'headstart[fast]'``. Decisions are the same up to rounding. The first
    call on a machine compiles for some seconds; the compiled code is kept on disk.

    >>> use_numba(False)
    """
    if not on:
        _loops[0] = None
        return
    try:
        from headstart.kernels import compiled
    except ImportError as error:
        raise InputError(
            "use_numba needs Numba, which is not installed: pip install 'headstart[fast]'"
        ) from error
    _loops[0] = compiled


def loops() -> Any:
    """The compiled loops, or ``None``."""
    return _loops[0]
