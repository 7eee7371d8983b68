"""Columns side by side as the rows of one array: the copy that reading a log cannot avoid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["side_by_side"]

# Rows that are turned at a time, so that they stay in the cache. No power of two: the columns of a
# strip would all fall on the same few lines of the cache.
STRIP = 16_000
PLAIN_STRIP = 4096  # the best without Numba


def side_by_side(
    columns: list[npt.NDArray[Any]], rows: int, kind: type[np.floating[Any]]
) -> npt.NDArray[Any]:
    """Columns as the rows of one C-contiguous array; with Numba two to three times as fast.

    >>> side_by_side([np.array([1.0, 2.0]), np.array([3.0, 4.0])], 2, np.float64)
    array([[1., 3.],
           [2., 4.]])
    """
    result = np.empty((rows, len(columns)), dtype=kind)
    turn = kernel() if rows > PLAIN_STRIP else None
    if turn is None:
        for start in range(0, rows, PLAIN_STRIP):
            strip = result[start : start + PLAIN_STRIP]
            for place, values in enumerate(columns):
                strip[:, place] = values[start : start + PLAIN_STRIP]
        return result
    width = min(STRIP, rows)
    # Very many columns: shorter strips, so that one still fits into the cache.
    width = max(256, min(width, STRIP * 30 // len(columns)))
    room = np.empty((len(columns), width), dtype=kind)
    for start in range(0, rows, width):
        count = min(width, rows - start)
        for place, values in enumerate(columns):
            room[place, :count] = values[start : start + count]
        turn(room, count, result[start : start + count])
    return result


@functools.cache
def kernel() -> Callable[[Any, int, Any], None] | None:
    """The compiled loop, or ``None`` without Numba."""
    try:
        import numba
    except ImportError:
        return None

    compiled: Callable[[Any, int, Any], None] = numba.njit(
        [
            numba.void(real[:, ::1], numba.intp, real[:, ::1])
            for real in (numba.float32, numba.float64)
        ],
        nogil=True,
        cache=True,
    )(turn_rows)
    return compiled


def turn_rows(columns: Any, count: int, rows: Any) -> None:
    """Write rows one after another, from columns that are in the cache."""
    for row in range(count):
        for place in range(columns.shape[0]):
            rows[row, place] = columns[place, row]
