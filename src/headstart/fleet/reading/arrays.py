"""From Arrow's arrays to NumPy's and back, and from columns to rows, without pandas.

Arrow's own ``to_numpy``, ``array`` and ``fill_null`` load it where it is installed, which takes
longer than reading a million rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from headstart.kernels.forms import Kernel


def as_array(array: pa.Array) -> npt.NDArray[Any]:
    """The values of an array; numbers of which none is missing are not copied.

    >>> as_array(pa.array([1, 2])), as_array(pa.array([True, False])), as_array(pa.array([1, None]))
    (array([1, 2]), array([ True, False]), array([ 1., nan]))
    """
    if array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if kinds.is_boolean(array.type):
        return as_array(array.cast(pa.uint8())).view(np.bool_)
    if kinds.is_integer(array.type) or kinds.is_floating(array.type):
        values = np.from_dlpack(array)
        values.flags.writeable = False  # they are Arrow's
        return values
    return np.asarray(array.to_numpy(zero_copy_only=False))


def fill_missing(array: pa.Array) -> npt.NDArray[Any]:
    """Whole numbers, 0 where one is missing.

    >>> fill_missing(pa.array([1, None, 3]))
    array([1, 0, 3])
    """
    if not array.null_count:
        return as_array(array)
    memory = [None, array.buffers()[1]]
    whole = pa.Array.from_buffers(array.type, len(array), memory, offset=array.offset)
    values = as_array(whole).copy()
    values[as_array(array.is_null())] = 0
    return values


def as_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers, or true and false, as an Arrow array; numbers are not copied.

    >>> as_arrow(np.array([True, False])).to_pylist(), as_arrow(np.array([1, 2])).to_pylist()
    ([True, False], [1, 2])
    """
    if values.dtype == np.bool_:
        return as_arrow(values.view(np.uint8)).cast(pa.bool_())
    memory = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, memory])


# Rows that are transposed at a time, so that they stay in the cache. No power of two: the columns
# of a strip would all fall on the same few lines of the cache.
STRIP = 16_000


class FeatureColumns:
    """Features as most files have them, column by column; transposed where they are needed.

    >>> features = FeatureColumns(
    ...     [np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])], np.float64
    ... )
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
        some = FeatureColumns([column[index] for column in self.columns], self.dtype.type)
        result = np.empty(some.shape, dtype=self.dtype)
        some.transpose_into(0, result)
        return result

    def transpose_into(self, start: int, out: npt.NDArray[Any]) -> None:
        """Write the rows from a place on into an array, which may have more columns.

        With Numba it is two to three times as fast.
        """
        many, dim = len(out), self.shape[1]
        transpose = TRANSPOSE_STRIP.form(many, wait=False)
        # Very many columns: shorter strips, so that one still fits into the cache.
        width = max(256, min(STRIP, many, STRIP * 30 // dim))
        room = np.empty((dim, width), dtype=self.dtype)
        for at in range(0, many, width):
            strip = out[at : at + width]
            for place, values in enumerate(self.columns):
                room[place, : len(strip)] = values[start + at : start + at + len(strip)]
            transpose(room, len(strip), strip)


def own_array(values: npt.NDArray[Any] | FeatureColumns) -> npt.NDArray[Any]:
    """An array that may be written to; what Arrow lends may not."""
    if isinstance(values, FeatureColumns):
        return values[:]
    return values if values.flags.writeable else values.copy()


def transpose_strip(columns: npt.NDArray[Any], count: int, rows: npt.NDArray[Any]) -> None:
    """Write the rows of a strip of columns."""
    rows[:count, : len(columns)] = columns[:, :count].T


TRANSPOSE_STRIP = Kernel(transpose_strip, "headstart.kernels.tables")
