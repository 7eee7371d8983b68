"""Columns side by side as the rows of one array: the copy that reading a log cannot avoid."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.kernels.forms import Kernel

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
        transpose = TRANSPOSE_STRIP.form(many, wait=False)
        if transpose is transpose_strip:
            for at in range(0, many, PLAIN_STRIP):
                strip = out[at : at + PLAIN_STRIP]
                for place, values in enumerate(self.columns):
                    strip[:, place] = values[start + at : start + at + len(strip)]
            return
        # Very many columns: shorter strips, so that one still fits into the cache.
        width = max(256, min(STRIP, many, STRIP * 30 // dim))
        room = np.empty((dim, width), dtype=self.dtype)
        for at in range(0, many, width):
            strip = out[at : at + width]
            for place, values in enumerate(self.columns):
                room[place, : len(strip)] = values[start + at : start + at + len(strip)]
            transpose(room, len(strip), strip)


def transpose_strip(columns: npt.NDArray[Any], count: int, rows: npt.NDArray[Any]) -> None:
    """Write the rows of a strip of columns."""
    rows[:count, : len(columns)] = columns[:, :count].T


TRANSPOSE_STRIP = Kernel(transpose_strip, "headstart.kernels.tables")
