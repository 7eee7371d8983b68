"""Rows that wait to be added up together: the more a task has at once, the less each takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.fleet.reading.rows import Rows
from headstart.fleet.reading.transpose import Upright
from headstart.fleet.summing.grams import Packed, Whole

__all__ = ["RowBuffer"]

LINE = 64  # bytes of memory that a processor reads together


class RowBuffer:
    """Rows with the numbers of their tasks; the memory is used again and again.

    Parameters
    ----------
    memory
        How many bytes it may take.
    dim
        The number of features.
    dtype
        Their type.
    """

    def __init__(self, memory: int, dim: int, dtype: np.dtype[Any]) -> None:
        self.dim, self.count, self.weighted = dim, 0, False
        # Every row begins with a line of memory, so that it lies in as few of them as possible.
        many = LINE // dtype.itemsize
        width = -(-dim // many) * many
        room = max(memory // (dtype.itemsize * width + 20), 1)
        values = np.zeros(room * width + many, dtype)
        start = -values.ctypes.data % LINE // dtype.itemsize
        self._features = values[start : start + room * width].reshape(room, width)
        self._places = np.empty(room, np.int32)
        self._rewards, self._weights = np.empty(room), np.empty(room)

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return self.count == len(self._places)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the features."""
        dtype: np.dtype[Any] = self._features.dtype
        return dtype

    @property
    def places(self) -> npt.NDArray[np.int32]:
        """The numbers of the rows' tasks."""
        return self._places[: self.count]

    @property
    def features(self) -> npt.NDArray[Any]:
        """The features; there may be more columns, which mean nothing."""
        return self._features[: self.count]

    @property
    def rewards(self) -> Packed:
        """The rewards."""
        return self._rewards[: self.count]

    @property
    def weights(self) -> Packed:
        """The weights; empty where no row has one."""
        return self._weights[: self.count if self.weighted else 0]

    def take(self, rows: Rows, numbers: Whole, start: int) -> int:
        """Copy rows from a place on, as many as there is room for; gives how many.

        ``numbers`` are those of the tasks in ``rows.ids``.
        """
        many = min(rows.count - start, len(self._places) - self.count)
        here, there = slice(start, start + many), slice(self.count, self.count + many)
        self._places[there] = numbers[rows.codes[here]]
        if isinstance(rows.features, Upright):
            rows.features.turn(start, self._features[there])
        else:
            self._features[there, : self.dim] = rows.features[here]
        self._rewards[there] = rows.rewards[here]
        if rows.weights is not None or self.weighted:
            if not self.weighted:
                self._weights[: self.count] = 1.0
                self.weighted = True
            self._weights[there] = 1.0 if rows.weights is None else rows.weights[here]
        self.count += many
        return many

    def clear(self) -> None:
        """Forget the rows."""
        self.count, self.weighted = 0, False
