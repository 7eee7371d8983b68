"""Columns of times and of rounds as whole numbers."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, filled
from headstart.fleet.reading.cells import Cells, as_floats, nulls, show_value
from headstart.fleet.reading.columns import is_text, is_time
from headstart.fleet.reading.hashing import hash_ids

__all__ = ["read_rounds", "read_times"]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NEVER = -(2**63)
MICROSECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}


def read_times(cells: Cells, role: str) -> npt.NDArray[np.int64]:
    """Times as whole numbers: microseconds since 1970, or whole numbers as they are."""
    array = cells.column(role)
    if is_text(array.type):
        array = parse_times(array, role, cells)
    cells.missing(role, array)
    kind = array.type
    if kinds.is_date(kind):
        array = array.cast(pa.timestamp("ms" if kinds.is_date64(kind) else "s"))
    if is_time(array.type):
        return microseconds(array)
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        # Fractions are seconds, as clocks of programs give them.
        values = as_floats(array)
        good = np.isfinite(values) & (np.abs(values) <= 9e12)
        cells.reject(f"{role} is not finite", ~good & ~nulls(array), show_value(values))
        return whole_numbers(np.round(np.where(good, values, 0.0) * 1e6))
    if kinds.is_null(kind) or kinds.is_boolean(kind):
        return np.zeros(len(array), dtype=np.int64)
    if kinds.is_uint64(kind):
        large = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
        cells.reject(f"{role} is too large", as_array(large), "above 2⁶³")
    return whole_numbers(filled(array))


def whole_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Numbers as whole numbers of 64 bits; no copy where they are."""
    return values.astype(np.int64, copy=False)


def microseconds(array: pa.Array) -> npt.NDArray[np.int64]:
    """Times of any unit in microseconds; 0 where one is missing."""
    unit = array.type.unit
    ticks = filled(array.view(pa.int64()))
    if unit == "ns":
        return whole_numbers(ticks // 1000)
    return whole_numbers(ticks * np.int64(MICROSECOND[unit]))


def parse_times(array: pa.Array, role: str, cells: Cells) -> pa.Array:
    """Times from text as people and programs write them; what is no time is bad."""
    for zone in (None, "UTC"):  # all without a zone, or all with one
        with contextlib.suppress(pa.ArrowInvalid):
            return array.cast(pa.timestamp("us", zone)).view(pa.int64()).view(pa.timestamp("us"))
    texts = array.to_pylist()
    parsed = [None if text is None or not text.strip() else since_epoch(text) for text in texts]
    wrong = np.array([moment == NEVER for moment in parsed], dtype=bool)
    cells.reject(f"{role} is not a time", wrong, lambda place: repr(texts[place])[:60])
    return pa.array(parsed, pa.int64()).view(pa.timestamp("us"))


def since_epoch(text: str) -> int:
    """Microseconds since 1970, in UTC where the text has no zone; ``NEVER`` where it is no time."""
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return NEVER
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def read_rounds(cells: Cells) -> npt.NDArray[np.int64]:
    """Which round: whole numbers as they are, other values by a number made from their text."""
    array = cells.column("round")
    kind = array.type
    if is_time(kind):
        return read_times(cells, "round")
    cells.missing("round", array)
    if kinds.is_integer(kind) and not kinds.is_uint64(kind):
        return whole_numbers(filled(array))
    if not kinds.is_dictionary(kind):
        array = array.dictionary_encode()
    texts = array.dictionary.cast(pa.string())
    if texts.null_count:
        texts = texts.fill_null("")
    numbers = hash_ids(texts).view(np.int64)
    digits = pc.match_substring_regex(texts, "^(0|-?[1-9][0-9]{0,17})$")  # stand for themselves
    numbers[as_array(digits)] = as_array(texts.filter(digits).cast(pa.int64()))
    return whole_numbers(np.append(numbers, 0)[filled(array.indices)])
