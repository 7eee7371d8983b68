"""Casting: a table of Arrow's as checked columns, and the reasons for which rows cannot be used.

Columns are those of roles and features, or the fields of a schema. Every value of a field is
encoded by the field's own ``write``, as in ``choose``; of a category or a boolean, each different
value of a block is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart import checks
from headstart.bandit.offline.observation import MIN_WEIGHT
from headstart.features.conversion import MAX_VALUE
from headstart.features.schema.encoder import Encoder
from headstart.features.schema.fields import Field, FieldError, Values, Vector, is_missing
from headstart.fleet.reading.arrays import FeatureColumns, as_array, as_arrow, fill_missing
from headstart.fleet.reading.columns import Resolved
from headstart.fleet.reading.rows import EXAMPLES, BadRows, Example
from headstart.records import Array

Mask = npt.NDArray[np.bool_]
Kind = type[np.floating[Any]]
Matrix = npt.NDArray[np.float32] | npt.NDArray[np.float64]

MAX_ID = 1000  # characters of an item's id

#: What the cells of a role must be, where they need not be numbers.
WANTED = {
    "task": "text or a whole number",
    "timestamp": "a time",
    "chosen": "true or false",
    "round": "text or a number",
}


class Block(NamedTuple):
    """Some rows of a file, as they came.

    Attributes
    ----------
    table
        The columns that are used.
    file
        The file's name, for messages.
    first
        The number of the first row in the file.
    numbers
        The number of each row, where they do not simply follow each other.
    invalid
        Cells that are not what their column must be: by column, by row of the table, their text.
        (They are missing in the table.)
    bad
        Rows that did not make it into the table.
    """

    table: pa.Table
    file: str
    first: int = 0
    numbers: npt.NDArray[np.int64] | None = None
    invalid: Mapping[str, Mapping[int, str]] = {}
    bad: BadRows = BadRows()


class Cells:
    """The columns of a block as arrays; ``mask`` and ``bad`` say which rows cannot be used."""

    def __init__(self, block: Block, resolved: Resolved) -> None:
        self.block, self.resolved = block, resolved
        self.mask: Mask = np.zeros(block.table.num_rows, bool)
        self.bad = block.bad

    def reject(self, reason: str, mask: Mask, text: Callable[[int], str] | str) -> None:
        """Set rows aside for one reason; ``text`` is what they hold."""
        places = np.flatnonzero(mask)
        if not len(places):
            return
        first, numbers, file = self.block.first, self.block.numbers, self.block.file
        examples = [
            Example(
                file,
                first + place if numbers is None else int(numbers[place]),
                reason,
                text if isinstance(text, str) else text(place),
            )
            for place in places[:EXAMPLES].tolist()
        ]
        # A row is counted once, however many reasons there are.
        fresh = int((mask & ~self.mask).sum())
        self.mask |= mask
        self.bad += BadRows(fresh, {reason: len(places)}, examples)

    def column(self, role: str) -> pa.Array:
        """A single column, by what it is."""
        return self.array(self.resolved.columns.roles[role])

    def array(self, name: str) -> pa.Array:
        """A column in one piece; nothing is copied where it is in one piece already."""
        column = self.block.table.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        if kinds.is_dictionary(column.type):
            column = column.unify_dictionaries()
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)

    def reject_invalid(self, role: str, name: str, want: str) -> Mask:
        """Set rows aside whose cells are not what their column must be; which these are."""
        wrong, invalid = np.zeros(self.block.table.num_rows, bool), self.block.invalid.get(name, {})
        wrong[list(invalid)] = True
        self.reject(f"{role} is not {want}", wrong, invalid.__getitem__)
        return wrong

    def missing(
        self, role: str, array: pa.Array, needed: Mask | None = None, name: str = ""
    ) -> Mask:
        """Where a column has no value; rows that need one are set aside."""
        mask = nulls(array)
        absent = mask if needed is None else mask & needed
        name = name or self.resolved.columns.roles[role]
        if name in self.block.invalid:
            absent = absent & ~self.reject_invalid(role, name, WANTED.get(role, "a number"))
        self.reject(f"{role} is missing", absent, "null")
        return mask

    def numbers(self, role: str, needed: Mask | None = None) -> npt.NDArray[np.float64]:
        """A column of finite numbers; NaN where one is missing and not needed."""
        name = self.resolved.columns.roles[role]
        values: npt.NDArray[np.float64] = self.checked(role, name, np.float64, needed)
        return values

    def checked(self, role: str, name: str, kind: Kind, needed: Mask | None = None) -> Any:
        """Numbers as floats; rows with one missing, not finite or too large are set aside."""
        array = self.array(name)
        values = as_floats(array, kind)
        if array.null_count == 0 and all_fit(values):
            return values
        absent = self.missing(role, array, needed, name)
        wild, large = misfits(values, absent)
        if needed is not None:
            # What nobody will look at may be anything; it is made missing.
            values = np.where((wild | large) & ~needed, np.nan, values)
            wild, large = wild & needed, large & needed
        self.reject(f"{role} is not finite", wild, show_value(values))
        self.reject(f"{role} is too large", large, show_value(values))
        return values

    def weights(self) -> npt.NDArray[np.float64]:
        """How often rows count."""
        values = self.numbers("weight")
        self.reject("weight is negative", values < 0, show_value(values))
        return values

    def counts(self, chosen: Mask | None) -> npt.NDArray[np.float64]:
        """Of how many rewards each is the mean."""
        values = self.numbers("mean_of", chosen)
        self.reject("mean_of is not above 0", values < MIN_WEIGHT, show_value(values))
        return values

    def chosen(self) -> Mask:
        """The flag of the arm that was shown."""
        array = self.column("chosen")
        absent = self.missing("chosen", array)
        if kinds.is_boolean(array.type) and not array.null_count:
            flags: Mask = as_array(array)
            return flags
        values = as_floats(array)
        odd = (values != 0) & (values != 1) & ~absent
        self.reject("chosen is neither 0 nor 1", odd, show_value(values))
        return np.asarray(values == 1)

    def propensities(self, chosen: Mask | None) -> npt.NDArray[np.float64]:
        """Probabilities: above 0 for an arm that was shown, 0 or more or missing for the others."""
        values = self.numbers("propensity", chosen)
        with np.errstate(invalid="ignore"):
            low = values <= 0 if chosen is None else np.where(chosen, values <= 0, values < 0)
            odd = low | (values > 1)
        self.reject("propensity is not in (0, 1]", odd & np.isfinite(values), show_value(values))
        return values

    def features(self, width: int) -> Matrix | FeatureColumns:
        """The features: an array of rows, or columns that can be transposed into one."""
        names = self.resolved.features
        if self.resolved.listed:
            return self.lists(names[0], width)
        single = all(fits_single(self.block.table.column(name).type) for name in names)
        kind = np.float32 if single else np.float64
        return FeatureColumns([self.checked(f"feature {name}", name, kind) for name in names], kind)

    def lists(self, name: str, width: int) -> Matrix:
        """Features from one column of lists, all of one width."""
        array = self.array(name)
        absent = self.missing(f"features {name}", array, name=name)
        lengths = fill_missing(pc.list_value_length(array))
        odd = (lengths != width) & ~absent
        self.reject(f"features {name} has not {width} numbers", odd, lambda i: f"{lengths[i]}")
        good = ~(odd | absent)
        cells = (array if good.all() else array.filter(as_arrow(good))).flatten()
        kind = np.float32 if fits_single(array.type.value_type) else np.float64
        values = as_floats(cells, kind).reshape(-1, width)
        fits = not cells.null_count and all_fit(values)
        if not good.all():
            values = spread_rows(values, good)
        if not fits:
            gaps = spread_rows(nulls(cells).reshape(-1, width), good)
            self.reject_numbers(f"features {name}", values, gaps)
        return values

    def reject_numbers(self, what: str, values: Matrix, gaps: Mask) -> None:
        """Set rows aside with a cell missing, not finite or too large."""
        wild, large = misfits(values, gaps)
        reasons = {"has a number missing": gaps, "is not finite": wild, "is too large": large}
        for reason, wrong in reasons.items():

            def offender(row: int, wrong: Mask = wrong) -> str:
                column = int(np.argmax(wrong[row]))
                return "null" if wrong is gaps else f"{values[row, column]} at {column}"

            self.reject(f"{what} {reason}", np.asarray(wrong.any(axis=1)), offender)


def spread_rows(values: npt.NDArray[Any], where: Mask) -> npt.NDArray[Any]:
    """Rows at some places, and zeros elsewhere."""
    every = np.zeros((len(where), *values.shape[1:]), values.dtype)
    every[where] = values
    return every


def nulls(array: pa.Array) -> Mask:
    """Where an array has no value."""
    return as_array(array.is_null()) if array.null_count else np.zeros(len(array), dtype=bool)


def show_value(values: npt.NDArray[Any]) -> Callable[[int], str]:
    """What an array holds at a place, for an example."""
    return lambda place: str(values[place])


def fits_single(kind: pa.DataType) -> bool:
    """Whether every value of a type is exactly a float32."""
    small = kinds.is_primitive(kind) and kind.bit_width <= 16
    return bool(small or kinds.is_float32(kind))


def as_floats(array: pa.Array, kind: Kind = np.float64) -> npt.NDArray[Any]:
    """Numbers as floats, NaN where there is none; without copying where that is possible."""
    if kinds.is_decimal(array.type) or kinds.is_null(array.type):
        array = array.cast(pa.float64())
    if kinds.is_boolean(array.type):
        array = array.cast(pa.uint8())
    return np.asarray(as_array(array), dtype=kind)


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
    large = finite & (np.abs(values) > np.float64(MAX_VALUE))  # never in single precision
    return ~finite & ~absent, large & ~absent


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
