"""The column that says whose a row is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, as_arrow, filled
from headstart.fleet.reading.problems import Block, Problems, missing, one_chunk
from headstart.fleet.reading.rows import compact

__all__ = ["read_task"]

LONGEST = 1000  # characters of a task id


def read_task(
    table: pa.Table, name: str, block: Block, problems: Problems
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Which task each row has: codes, and the ids they stand for; bad rows get code 0."""
    column = table.column(name)
    if kinds.is_dictionary(column.type) and column.num_chunks > 1:
        column = column.unify_dictionaries()
    array = one_chunk(pa.table({name: column}), name)
    if kinds.is_integer(array.type) and not array.null_count:
        return number_codes(as_array(array))
    if kinds.is_null(array.type):
        array = array.cast(pa.string())
    absent = missing("task", name, array, block, problems, None)
    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    numbers: npt.NDArray[np.int32] = filled(array.indices).astype(np.int32)
    ids, wrong = checked_ids(array.dictionary)
    for reason, places in wrong.items():
        mask = np.isin(numbers, places) & ~absent
        problems.add(reason, mask, lambda place: repr(ids[int(numbers[place])].as_py())[:60])
    if not len(ids):
        ids = pa.array([""])  # every row is bad
    once = ids.dictionary_encode()
    if len(once.dictionary) < len(ids):  # a dictionary may have a value twice
        numbers = as_array(once.indices).astype(np.int32)[numbers]
        ids = once.dictionary
    return compact(numbers, ids)


def number_codes(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Codes and distinct whole numbers: by a table where they are close together, or sorted.

    >>> codes, ids = number_codes(np.array([7, 3, 7]))
    >>> codes.tolist(), ids.to_pylist()
    ([1, 0, 1], [3, 7])
    """
    if not len(values):
        return np.zeros(0, dtype=np.int32), as_arrow(values)
    low, high = int(values.min()), int(values.max())
    close = max(4 * len(values), 1 << 16)
    if high - low >= close:
        unique, inverse = np.unique(values, return_inverse=True)
        return inverse.astype(np.int32), as_arrow(unique)
    wide = np.uint64 if values.dtype == np.uint64 else np.int64
    if low >= 0 and high < close:  # the numbers are places already
        places, low = values, 0
    else:
        places, high = (values.astype(wide) - wide(low)).astype(np.intp), high - low
    used = np.zeros(high + 1, dtype=bool)
    used[places] = True
    unique = np.flatnonzero(used)
    code = np.empty(len(used), dtype=np.int32)
    code[unique] = np.arange(len(unique), dtype=np.int32)
    return code[places], as_arrow(unique.astype(wide) + wide(low))


def checked_ids(dictionary: pa.Array) -> tuple[pa.StringArray, dict[str, list[int]]]:
    """Distinct ids as text, and those that cannot be ids, by the reason."""
    wrong: dict[str, list[int]] = {}
    try:
        ids = dictionary.cast(pa.string())
        ids.validate(full=True)
    except pa.ArrowInvalid:
        cells = dictionary.cast(pa.binary()).to_pylist()
        texts = [None if cell is None else cell.decode(errors="replace") for cell in cells]
        ids = pa.array(texts, pa.string())
        broken = [place for place, text in enumerate(texts) if text and "\ufffd" in text]
        wrong["task is not valid text"] = broken
    if ids.null_count:
        ids = ids.fill_null("")
    lengths = as_array(pc.utf8_length(ids))
    for reason, mask in (
        ("task is missing", lengths == 0),
        (f"task is longer than {LONGEST} characters", lengths > LONGEST),
    ):
        if mask.any():
            wrong[reason] = np.flatnonzero(mask).tolist()
    return ids, wrong
