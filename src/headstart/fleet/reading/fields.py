"""The rows that the fields of a schema become, block by block.

Every value is encoded by the field's own ``write``, as in ``choose``. Of a category or a boolean,
each different value of a block is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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
from headstart.fleet.reading.cells import Cells, Mask, as_floats, nulls
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


class Batch(NamedTuple):
    """Values of a field, and the rows that have each of them.

    Attributes
    ----------
    values
        The values.
    rows
        The rows of the values, one for each; ``None`` for all rows of the block.
    codes
        The value of each row, where rows share values; ``rows`` is ``None`` then.
    """

    values: Values
    rows: npt.NDArray[np.intp] | None = None
    codes: npt.NDArray[Any] | None = None

    def spread(self, of_values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """What each row of the block has of something that each value has; zeros elsewhere."""
        if self.codes is not None:
            return of_values.take(self.codes, 0)
        if self.rows is None:
            return of_values
        every = np.zeros((count, *of_values.shape[1:]), of_values.dtype)
        every[self.rows] = of_values
        return every


def write_field(cells: Cells, name: str, field: Field, out: Array) -> None:
    """Write the columns of one field."""
    array = cells.array(name)
    invalid = np.zeros(len(array), dtype=bool)
    wrong = cells.block.invalid.get(name, {})
    if wrong:
        invalid[list(wrong)] = True
        what = {"boolean": "true or false", "vector": "a list of numbers"}.get(
            field.kind, "a number"
        )
        cells.reject(f"field {name} is not {what}", invalid, wrong.__getitem__)
    for batch in read_batches(field, array):
        if batch.codes is None and batch.rows is None:
            part = out
        else:
            part = np.zeros((len(batch.values), field.width))
        refused = write_values(field, batch.values, part)
        if part is not out:
            rows = slice(None) if batch.rows is None else batch.rows
            out[rows] = part if batch.codes is None else part.take(batch.codes, 0)
        for reason, places in refused.items():
            mask = np.zeros(len(batch.values), dtype=bool)
            mask[places] = True
            bad = batch.spread(mask, len(array)) & ~invalid
            cells.reject(f"field {name} {reason}", bad, lambda row: show_cell(array, row))


def show_cell(array: pa.Array, row: int) -> str:
    """A cell, for an example."""
    return checks.describe(array[row].as_py())


def read_batches(field: Field, array: pa.Array) -> Iterator[Batch]:
    """The values of a column."""
    if isinstance(field, Vector):
        yield from read_vectors(field, array)
    elif field.is_discrete or kinds.is_dictionary(array.type):
        coded = array if kinds.is_dictionary(array.type) else array.dictionary_encode()
        values = coded.dictionary.to_pylist()
        codes = fill_missing(coded.indices).astype(np.intp)
        if coded.indices.null_count:
            codes[nulls(coded.indices)] = len(values)
            values = [*values, None]
        yield Batch(values, codes=codes)
    else:
        yield Batch(as_floats(array))


def read_vectors(field: Vector, array: pa.Array) -> Iterator[Batch]:
    """The vectors of a column of lists: those of the right length as one table, then others."""
    if kinds.is_null(array.type):
        yield Batch([None] * len(array))
        return
    regular = (fill_missing(pc.list_value_length(array)) == field.length) & ~nulls(array)
    places = np.flatnonzero(regular)
    if len(places):
        cells = array if regular.all() else array.take(pa.array(places))
        yield Batch(as_floats(cells.flatten()).reshape(-1, field.length), places)
    others = np.flatnonzero(~regular)
    if len(others):
        yield Batch(array.take(pa.array(others)).to_pylist(), others)


def write_values(field: Field, values: Values, out: Array) -> dict[str, list[int]]:
    """Write the columns of some values; those that are refused, by reason, are left zeros."""
    try:
        field.write(values, out)
        return {}
    except FieldError:
        out[:] = 0.0
    refused: dict[str, list[int]] = {}
    for place in suspects(values):
        try:
            field.write((values[place],), np.zeros((1, field.width)))
        except FieldError as error:
            reason = "is missing" if is_missing(error.got) else f"is not {error.want}"
            refused.setdefault(reason, []).append(place)
    good = np.ones(len(values), dtype=bool)
    for places in refused.values():
        good[places] = False
    kept = np.flatnonzero(good)
    part = np.zeros((len(kept), field.width))
    listed = [values[at] for at in kept.tolist()]
    field.write(values[kept] if isinstance(values, np.ndarray) else listed, part)
    out[kept] = part
    return refused


def suspects(values: Values) -> list[int]:
    """The places of values that a field may refuse."""
    if not isinstance(values, np.ndarray):
        return list(range(len(values)))
    odd: Mask = ~(np.abs(values) <= MAX_VALUE)
    return np.flatnonzero(odd if odd.ndim == 1 else odd.any(axis=1)).tolist()


def read_items(cells: Cells, name: str) -> npt.NDArray[np.object_]:
    """The ids of the items of a block, as text; rows without a usable one are set aside."""
    array = cells.array(name)
    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    texts = array.dictionary.cast(pa.string()).to_pylist()
    absent = nulls(array.indices)
    cells.reject("the id is missing", absent, "null")
    codes = fill_missing(array.indices).astype(np.intp)
    fit = np.array([text is not None and 0 < len(text) <= MAX_ID for text in texts], dtype=bool)
    bad = ~np.append(fit, True)[codes] & ~absent
    reason = f"the id is not text of 1 to {MAX_ID} characters"
    cells.reject(reason, bad, lambda row: repr(texts[codes[row]])[:60])
    named = np.array([*texts, ""], dtype=object)
    return np.asarray(named[codes])
