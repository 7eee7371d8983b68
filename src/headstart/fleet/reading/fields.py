"""The rows that the fields of a schema become, block by block.

Every value is encoded by the field's own ``write``, as in ``choose``. Of a category or a boolean,
each different value of a block is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart import checks
from headstart.features.conversion import MAX_VALUE
from headstart.features.schema.encoder import Encoder
from headstart.features.schema.fields import Field, FieldError, Values, Vector, is_missing
from headstart.fleet.reading.arrays import fill_missing
from headstart.fleet.reading.cells import Cells, as_floats, nulls
from headstart.records import Array

__all__ = ["encode_fields", "read_items"]

MAX_ID = 1000  # characters of an item's id


def encode_fields(cells: Cells, encoder: Encoder) -> Array:
    """The rows of a block by a schema; rows with a value that a field refuses are set aside."""
    table = np.zeros((cells.block.table.num_rows, encoder.width))
    for name, field, place in (*encoder.context, *encoder.action):
        write_field(cells, name, field, table[:, place])
    encoder.write_crosses(table)
    return table


def write_field(cells: Cells, name: str, field: Field, out: Array) -> None:
    """Write the columns of one field."""
    array = cells.array(name)
    what = {"boolean": "true or false", "vector": "a list of numbers"}.get(field.kind, "a number")
    invalid = cells.reject_invalid(f"field {name}", name, what)
    for values, rows, codes in read_values(field, array):
        part = np.zeros((len(values), field.width))
        refused = write_values(field, values, part)
        out[rows] = part[codes]
        for reason, places in refused.items():
            bad_values, bad = np.zeros(len(values), dtype=bool), np.zeros(len(array), dtype=bool)
            bad_values[places] = True
            bad[rows] = bad_values[codes]
            what = f"field {name} {reason}"
            cells.reject(what, bad & ~invalid, lambda row: checks.describe(array[row].as_py()))


def read_values(field: Field, array: pa.Array) -> Iterator[tuple[Values, Any, Any]]:
    """Some values of a column, the rows that have them, and which of the values each row has."""
    every = slice(None)
    if isinstance(field, Vector):
        if kinds.is_null(array.type):
            yield [None] * len(array), every, every
            return
        # Those of the right length as one table, then others.
        regular = (fill_missing(pc.list_value_length(array)) == field.length) & ~nulls(array)
        places, others = np.flatnonzero(regular), np.flatnonzero(~regular)
        if len(places):
            lists = array.take(pa.array(places)) if len(others) else array
            yield as_floats(lists.flatten()).reshape(-1, field.length), places, every
        if len(others):
            yield array.take(pa.array(others)).to_pylist(), others, every
    elif field.is_discrete or kinds.is_dictionary(array.type):
        distinct, codes = read_codes(array)
        gap = [None] if (codes == len(distinct)).any() else []
        yield [*distinct.to_pylist(), *gap], every, codes
    else:
        yield as_floats(array), every, every


def read_codes(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.intp]]:
    """The different values of a column, and which each row has; one more where it has none."""
    coded = array if kinds.is_dictionary(array.type) else array.dictionary_encode()
    codes = fill_missing(coded.indices).astype(np.intp)
    if coded.indices.null_count:
        codes[nulls(coded.indices)] = len(coded.dictionary)
    return coded.dictionary, codes


def write_values(field: Field, values: Values, out: Array) -> dict[str, list[int]]:
    """Write the columns of some values; those that are refused, by reason, are left zeros."""
    try:
        field.write(values, out)
        return {}
    except FieldError:
        out[:] = 0.0
    suspects: Any = range(len(values))
    if isinstance(values, np.ndarray):
        wild = ~(np.abs(values) <= MAX_VALUE)
        suspects = np.flatnonzero(wild if wild.ndim == 1 else wild.any(axis=1)).tolist()
    good, refused = np.ones(len(values), dtype=bool), dict[str, list[int]]()
    for place in suspects:
        try:
            field.write((values[place],), np.zeros((1, field.width)))
        except FieldError as error:
            reason = "is missing" if is_missing(error.got) else f"is not {error.want}"
            refused.setdefault(reason, []).append(place)
            good[place] = False
    usable = np.flatnonzero(good)
    part = np.zeros((len(usable), field.width))
    listed = [values[at] for at in usable.tolist()]
    field.write(values[usable] if isinstance(values, np.ndarray) else listed, part)
    out[usable] = part
    return refused


def read_items(cells: Cells, name: str) -> npt.NDArray[np.object_]:
    """The ids of the items of a block, as text; rows without a usable one are set aside."""
    values, codes = read_codes(cells.array(name))
    texts = [*values.cast(pa.string()).to_pylist(), ""]
    absent = codes == len(values)
    cells.reject("the id is missing", absent, "null")
    fit = np.array([text is not None and 0 < len(text) <= MAX_ID for text in texts], dtype=bool)
    reason = f"the id is not text of 1 to {MAX_ID} characters"
    cells.reject(reason, ~fit[codes] & ~absent, lambda row: repr(texts[codes[row]])[:60])
    return np.asarray(np.array(texts, dtype=object)[codes])
