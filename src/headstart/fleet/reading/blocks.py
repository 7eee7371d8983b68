"""From a block of a file to :class:`Rows`: whose a row is, when it happened, and its numbers.

Ids are compared as text without the white space around it: the whole number 7, ``"7"`` and
``" 7 "`` are the same task, ``"7.0"`` and ``"07"`` are others. Times are microseconds since 1970.
"""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import FeatureColumns, as_array, as_arrow, fill_missing
from headstart.fleet.reading.cells import (
    Block,
    Cells,
    as_floats,
    encode_fields,
    nulls,
    read_items,
    show_value,
)
from headstart.fleet.reading.columns import Resolved
from headstart.fleet.reading.hashing import hash_ids
from headstart.fleet.reading.rows import Rows, drop_unused_ids
from headstart.fleet.reading.types import is_text, is_time
from headstart.transfer.task_order import Hashes, mix_bits

MAX_ID_LENGTH = 1000  # characters of a task id
DENSE = 8  # whole numbers within so many times their count are counted in a table
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NO_TIME = -(2**63)


def to_rows(block: Block, resolved: Resolved, width: int, share: float, lenient: bool) -> Rows:
    """Check a block and turn it into arrays; rows that cannot be used are left out and counted.

    Parameters
    ----------
    block
        The rows as they came.
    resolved
        The columns of their file.
    width
        How many features there are.
    share
        Of which share of the rows fingerprints are taken.
    lenient
        Whether timestamps and rounds serve the fingerprints alone and may be anything.
    """
    cells, roles = Cells(block, resolved), resolved.columns.roles
    chosen = cells.chosen() if "chosen" in roles else None
    codes, ids, spaced = read_task(cells)
    rewards = cells.numbers("reward", chosen)
    features: Any = np.zeros((len(codes), 0), np.float32)
    items, encoder = None, resolved.columns.encoder
    if resolved.features and encoder is not None:
        features = encode_fields(cells, encoder)
        if encoder.schema.identity:
            items = read_items(cells, encoder.schema.id)
    elif resolved.features:
        features = cells.features(width)
    times = Cells(block, resolved) if lenient else cells
    rows = Rows(
        codes,
        ids,
        rewards,
        features,
        weights=cells.weights() if "weight" in roles else None,
        timestamps=read_times(times, "timestamp") if "timestamp" in roles else None,
        rounds=read_rounds(times) if "round" in roles else None,
        chosen=chosen,
        propensities=cells.propensities(chosen) if "propensity" in roles else None,
        counts=cells.counts(chosen) if "mean_of" in roles else None,
        spaced=spaced,
        items=items,
    )
    unusable, weightless = cells.mask, 0
    if rows.weights is not None:
        empty = rows.weights == 0
        weightless = int((empty & ~unusable).sum())
        unusable = empty | unusable
    rows = rows.take(~unusable) if unusable.any() else rows
    marks = fingerprints(rows, share)
    return rows._replace(bad=cells.bad, weightless=weightless, fingerprints=marks)


def fingerprints(rows: Rows, share: float) -> Hashes | None:
    """Numbers that identify rows that are logged twice; ``None`` without round and timestamp.

    Where a round or a timestamp is logged, two rows of a task that agree in it, in the reward and
    in every feature are most likely the same row. A fingerprint has 64 bits. Those of a share of
    the rows are taken, which is chosen by the task and the time, so that all copies of a row are in
    it or none.
    """
    when = [part for part in (rows.rounds, rows.timestamps) if part is not None]
    if not when or not share:
        return None
    keys = hash_ids(rows.ids)[rows.codes]
    for part in when:
        keys = mix_bits(keys ^ mix_bits(part.view(np.uint64)))
    use = np.flatnonzero(keys < np.uint64(min(share * 2.0**64, 2.0**64 - 2048)))
    keys = keys[use]
    features: Any = rows.features
    columns = features.columns if isinstance(features, FeatureColumns) else features.T
    for column in (rows.rewards, *columns):
        bits = np.ascontiguousarray(column[use], dtype=np.float64).view(np.uint64)
        keys = mix_bits(keys ^ mix_bits(bits + np.uint64(1)))
    return keys


def read_task(cells: Cells) -> tuple[npt.NDArray[np.int32], pa.Array, str]:
    """Which task each row has: codes, the ids they stand for, and one that was trimmed.

    Rows that cannot be used get code 0.
    """
    array = cells.column("task")
    if kinds.is_integer(array.type) and not array.null_count:
        return *number_integers(as_array(array)), ""
    if kinds.is_null(array.type):
        array = array.cast(pa.string())
    absent = cells.missing("task", array)
    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    numbers: npt.NDArray[np.int32] = fill_missing(array.indices).astype(np.int32)
    written, broken = decode_ids(array.dictionary)
    ids = pc.utf8_trim_whitespace(written)
    lengths = as_array(pc.utf8_length(ids))
    for reason, wrong in (
        ("task is missing", lengths == 0),
        (f"task is longer than {MAX_ID_LENGTH} characters", lengths > MAX_ID_LENGTH),
        ("task is not valid text", broken),
    ):
        if wrong.any():
            mask = wrong[numbers] & ~absent
            cells.reject(reason, mask, lambda row: repr(written[int(numbers[row])].as_py())[:60])
    spaced = ""
    if not ids.equals(written):
        spaced = written.filter(pc.not_equal(ids, written))[0].as_py()
    if not len(ids):
        ids = pa.array([""])  # every row is bad
    once = ids.dictionary_encode()
    if len(once.dictionary) < len(ids):  # a dictionary may have a value twice
        numbers = as_array(once.indices).astype(np.int32)[numbers]
        ids = once.dictionary
    return *drop_unused_ids(numbers, ids), spaced


def number_integers(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Codes of whole numbers, and the numbers they stand for.

    >>> number_integers(np.array([7, 5, 7]))[0]
    array([1, 0, 1], dtype=int32)
    """
    least, greatest = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if greatest - least >= DENSE * len(values):
        coded = as_arrow(values).dictionary_encode()
        return as_array(coded.indices).copy(), coded.dictionary
    offset = np.uint64(least % 2**64)  # of numbers of any width, modulo 2⁶⁴
    places = (values.astype(np.uint64) - offset).view(np.int64)
    there = np.zeros(greatest - least + 1, dtype=bool)
    there[places] = True
    codes = (np.cumsum(there, dtype=np.int32) - np.int32(1))[places]
    numbers = np.flatnonzero(there).astype(np.uint64) + offset
    return codes, as_arrow(numbers.astype(values.dtype))


def decode_ids(dictionary: pa.Array) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """Distinct ids as text, empty where they are missing, and which are no valid text."""
    try:
        ids = dictionary.cast(pa.string())
        ids.validate(full=True)
    except pa.ArrowInvalid:
        cells = dictionary.cast(pa.binary()).to_pylist()
        ids = pa.array([(cell or b"").decode(errors="replace") for cell in cells], pa.string())
        return ids, as_array(pc.match_substring(ids, "\ufffd"))
    return ids.fill_null("") if ids.null_count else ids, np.zeros(len(ids), dtype=bool)


def read_times(cells: Cells, role: str) -> npt.NDArray[np.int64]:
    """Times as whole numbers: microseconds since 1970, or whole numbers as they are."""
    array = cells.column(role)
    if is_text(array.type):
        array = parse_times(array, role, cells)
    cells.missing(role, array)
    kind = array.type
    if kinds.is_date(kind):
        array = array.cast(pa.timestamp("us"), safe=False)
    if is_time(array.type):
        span = kinds.is_duration(array.type)
        unit = pa.duration("us") if span else pa.timestamp("us", array.type.tz)
        return fill_missing(array.cast(unit, safe=False).view(pa.int64()))
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        # Fractions are seconds, as clocks of programs give them.
        values = as_floats(array)
        good = np.isfinite(values) & (np.abs(values) <= 9e12)
        cells.reject(f"{role} is not finite", ~good & ~nulls(array), show_value(values))
        return np.round(np.where(good, values, 0.0) * 1e6).astype(np.int64)
    if kinds.is_null(kind) or kinds.is_boolean(kind):
        return np.zeros(len(array), dtype=np.int64)
    if kinds.is_uint64(kind):
        large = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
        cells.reject(f"{role} is too large", as_array(large), "above 2⁶³")
    return fill_missing(array).astype(np.int64, copy=False)


def parse_times(array: pa.Array, role: str, cells: Cells) -> pa.Array:
    """Times from text as people and programs write them; what is no time is bad."""
    for zone in (None, "UTC"):  # all without a zone, or all with one
        with contextlib.suppress(pa.ArrowInvalid):
            return array.cast(pa.timestamp("us", zone)).view(pa.int64()).view(pa.timestamp("us"))
    texts = array.to_pylist()
    parsed = [None if text is None or not text.strip() else since_epoch(text) for text in texts]
    wrong = np.array([moment == NO_TIME for moment in parsed], dtype=bool)
    cells.reject(f"{role} is not a time", wrong, lambda place: repr(texts[place])[:60])
    return pa.array(parsed, pa.int64()).view(pa.timestamp("us"))


def since_epoch(text: str) -> int:
    """Microseconds since 1970, in UTC unless the text has a zone; ``NO_TIME`` if it is no time."""
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return NO_TIME
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
        return fill_missing(array).astype(np.int64, copy=False)
    if not kinds.is_dictionary(kind):
        array = array.dictionary_encode()
    texts = array.dictionary.cast(pa.string())
    if texts.null_count:
        texts = texts.fill_null("")
    numbers = hash_ids(texts).view(np.int64)
    digits = pc.match_substring_regex(texts, "^(0|-?[1-9][0-9]{0,17})$")  # stand for themselves
    numbers[as_array(digits)] = as_array(texts.filter(digits).cast(pa.int64()))
    of_rows: npt.NDArray[np.int64] = np.append(numbers, 0)[fill_missing(array.indices)]
    return of_rows
