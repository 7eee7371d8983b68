"""The column that says whose a row is, and the one rule for ids.

Ids are compared as text without the white space around it: the whole number 7, ``"7"`` and
``" 7 "`` are the same task, ``"7.0"`` and ``"07"`` are others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, filled
from headstart.fleet.reading.cells import Cells
from headstart.fleet.reading.rows import drop_unused_ids

__all__ = ["read_task"]

LONGEST = 1000  # characters of a task id


def read_task(cells: Cells) -> tuple[npt.NDArray[np.int32], pa.Array, str]:
    """Which task each row has: codes, the ids they stand for, and one that was trimmed.

    Rows that cannot be used get code 0.
    """
    array = cells.column("task")
    if kinds.is_integer(array.type) and not array.null_count:
        coded = array.dictionary_encode()
        return as_array(coded.indices).copy(), coded.dictionary, ""
    if kinds.is_null(array.type):
        array = array.cast(pa.string())
    absent = cells.missing("task", array)
    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    numbers: npt.NDArray[np.int32] = filled(array.indices).astype(np.int32)
    written, broken = decode_ids(array.dictionary)
    ids = pc.utf8_trim_whitespace(written)
    lengths = as_array(pc.utf8_length(ids))
    for reason, wrong in (
        ("task is missing", lengths == 0),
        (f"task is longer than {LONGEST} characters", lengths > LONGEST),
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
