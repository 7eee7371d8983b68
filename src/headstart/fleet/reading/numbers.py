"""Columns of numbers, checked without a mask where all is well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from headstart.features.conversion import MAX_VALUE
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.problems import Block, Mask, Problems, missing, one_chunk, shows

__all__ = ["all_fit", "as_floats", "misfits", "read_number"]


def as_floats(array: pa.Array, kind: type[np.floating[Any]] = np.float64) -> npt.NDArray[Any]:
    """Numbers as floats, NaN where there is none; without copying where that is possible."""
    if kinds.is_decimal(array.type) or kinds.is_null(array.type):
        array = array.cast(pa.float64())
    if kinds.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = as_array(array)
    result: npt.NDArray[Any] = np.asarray(values, dtype=kind)
    return result


def read_number(
    table: pa.Table,
    role: str,
    name: str,
    block: Block,
    problems: Problems,
    needed: Mask | None = None,
) -> npt.NDArray[np.float64]:
    """A column of finite numbers; NaN where one is missing and not needed."""
    array = one_chunk(table, name)
    values = as_floats(array)
    if array.null_count == 0 and all_fit(values):
        return values
    absent = missing(role, name, array, block, problems, needed)
    wild, large = misfits(values, absent)
    if needed is not None:
        # What nobody will look at may be anything; it is made missing.
        values = np.where((wild | large) & ~needed, np.nan, values)
        wild, large = wild & needed, large & needed
    problems.add(f"{role} is not finite", wild, shows(values))
    problems.add(f"{role} is too large", large, shows(values))
    return values


def all_fit(values: npt.NDArray[Any]) -> bool:
    """Whether all numbers are finite and their squares can be added up, without a mask.

    In single precision a sum that is finite has only finite terms, and none is too large; a sum
    that is not finite may have overflowed.
    """
    if values.dtype != np.float64:
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        return bool(np.isfinite(total) or np.isfinite(values).all())
    # A NaN is the least and the greatest, and within no bounds.
    return not values.size or bool(values.max() <= MAX_VALUE and values.min() >= -MAX_VALUE)


def misfits(values: npt.NDArray[Any], absent: Mask) -> tuple[Mask, Mask]:
    """Where numbers that are there are not finite, and where they are too large."""
    finite = np.isfinite(values)
    if values.dtype != np.float64:
        return ~finite & ~absent, np.zeros(values.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        large = finite & (np.abs(values) > MAX_VALUE)
    return ~finite & ~absent, large & ~absent
