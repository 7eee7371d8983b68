"""The switch that turns compiled inner loops on and off for the whole process.

They are off by default. With them off, :mod:`headstart.model.belief` and :mod:`headstart.rules`
compute by NumPy, which is the reference; with them on, both call
:mod:`headstart.kernels.compiled` where arrays allow it.
"""

from __future__ import annotations

from typing import Any

from headstart.errors import InputError
from headstart.kernels.forms import load

__all__ = ["loops", "use_numba"]

_loops: list[Any] = [None]


def use_numba(on: bool = True) -> None:
    """Compute decisions and updates with loops compiled by Numba, or with NumPy again.

    Numba is opt-in: ``pip install 'headstart[fast]'``. Decisions are the same up to rounding. The
    first call on a machine compiles for some seconds; the compiled code is cached on disk.

    Parameters
    ----------
    on : bool, default True
        Whether to use the compiled loops.

    Raises
    ------
    InputError
        If Numba is not installed.

    >>> use_numba(False)
    """
    if not on:
        _loops[0] = None
        return
    compiled = load("headstart.kernels.compiled")
    if compiled is None:
        raise InputError(
            "use_numba needs Numba, which is not installed: pip install 'headstart[fast]'"
        )
    _loops[0] = compiled


def loops() -> Any:
    """The compiled loops, or ``None``."""
    return _loops[0]
