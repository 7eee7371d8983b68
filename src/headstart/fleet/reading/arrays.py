"""From Arrow's arrays to NumPy's, and back, without pandas.

Arrow's own ``to_numpy``, ``array`` and ``fill_null`` load it where it is installed, which takes
longer than reading a million rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

__all__ = ["as_array", "as_arrow", "filled"]


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


def filled(array: pa.Array) -> npt.NDArray[Any]:
    """Whole numbers, 0 where one is missing.

    >>> filled(pa.array([1, None, 3]))
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
