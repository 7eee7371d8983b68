"""Columns side by side as the rows of one array: the copy that reading a log cannot avoid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Upright"]

# Rows that are turned at a time, so that they stay in the cache. No power of two: the columns of a
# strip would all fall on the same few lines of the cache.
STRIP = 16_000
PLAIN_STRIP = 4096  # the best without Numba


class Upright:
    """Features as most files have them, column by column; they are turned where they are needed.

    >>> features = Upright([np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])], np.float64)
    >>> features[1:]
    array([[2., 5.],
           [3., 6.]])
    """

    def __init__(self, columns: list[npt.NDArray[Any]], kind: type[np.floating[Any]]) -> None:
        self.columns = columns
        self.dtype = np.dtype(kind)
        self.shape = (len(columns[0]), len(columns))

    def __getitem__(self, index: Any) -> npt.NDArray[Any]:
        """Some of the rows, as an array."""
        some = Upright([column[index] for column in self.columns], self.dtype.type)
        result = np.empty(some.shape, dtype=self.dtype)
        some.turn(0, result)
        return result

    def turn(self, start: int, out: npt.NDArray[Any]) -> None:
        """Write the rows from a place on into an array, which may have more columns.

        With Numba it is two to three times as fast.
        """
        many, dim = len(out), self.shape[1]
        loop = kernel() if many > PLAIN_STRIP else None
        # Very many columns: shorter strips, so that one still fits into the cache.
        width = PLAIN_STRIP if loop is None else max(256, min(STRIP, many, STRIP * 30 // dim))
        room = np.empty((dim, width), dtype=self.dtype) if loop else None
        for at in range(0, many, width):
            strip = out[at : at + width]
            here = slice(start + at, start + at + len(strip))
            if loop is None or room is None:
                for place, values in enumerate(self.columns):
                    strip[:, place] = values[here]
                continue
            for place, values in enumerate(self.columns):
                room[place, : len(strip)] = values[here]
            loop(room, len(strip), strip)


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
