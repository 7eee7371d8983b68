"""From an Arrow table to :class:`Rows`: every cell checked, in a few passes over whole columns."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.columns import Resolved, is_text, is_time
from headstart.fleet.rows import EXAMPLES, BadRows, Example, Rows, compact, first_examples
from headstart.fleet.turning import side_by_side

__all__ = ["Block", "to_rows"]

Mask = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float32] | npt.NDArray[np.float64]

LONGEST = 1000  # characters of a task id
MICROSECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}


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
    spoiled
        Cells that are not what their column must be: by column, by row of the table, their text.
        (They are missing in the table.)
    bad
        Rows that did not make it into the table.
    """

    table: pa.Table
    file: str
    first: int = 0
    numbers: npt.NDArray[np.int64] | None = None
    spoiled: Mapping[str, Mapping[int, str]] = {}
    bad: BadRows = BadRows()


class Problems:
    """The rows of a block that cannot be used, while they are being found."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.mask: Mask | None = None
        self.account = block.bad

    def add(self, reason: str, mask: Mask, text: Callable[[int], str] | str) -> None:
        """Rows that are bad for one reason, and what they hold."""
        places = np.flatnonzero(mask)
        if not len(places):
            return
        examples = []
        for place in places[:EXAMPLES].tolist():
            shown = text if isinstance(text, str) else text(place)
            examples.append(Example(self.block.file, self.number(place), reason, shown))
        fresh = len(places) if self.mask is None else int((mask & ~self.mask).sum())
        self.mask = mask.copy() if self.mask is None else self.mask | mask
        # A row is counted once, however many reasons there are.
        self.account = BadRows(
            self.account.count + fresh,
            dict(
                sorted(
                    {
                        **self.account.reasons,
                        reason: self.account.reasons.get(reason, 0) + len(places),
                    }.items()
                )
            ),
            first_examples([*self.account.examples, *examples]),
        )

    def number(self, place: int) -> int:
        """The number of a row in its file."""
        numbers = self.block.numbers
        return self.block.first + place if numbers is None else int(numbers[place])


def to_rows(block: Block, resolved: Resolved, width: int) -> Rows:
    """Check a block and turn it into arrays; rows that cannot be used are left out and counted."""
    table = block.table
    problems = Problems(block)
    roles = resolved.columns.roles
    chosen = read_chosen(table, roles, block, problems)
    codes, names = read_task(table, roles["task"], block, problems)
    rewards = read_number(table, "reward", roles["reward"], block, problems, needed=chosen)
    features = read_features(table, resolved, width, block, problems)
    weights = propensities = timestamps = rounds = None
    if "weight" in roles:
        weights = read_number(table, "weight", roles["weight"], block, problems)
        problems.add("weight is negative", weights < 0, shows(weights))
    if "propensity" in roles:
        propensities = read_propensity(table, roles["propensity"], block, problems, chosen)
    if "timestamp" in roles:
        timestamps = read_times(table, "timestamp", roles["timestamp"], block, problems)
    if "round" in roles:
        rounds = read_rounds(table, roles["round"], block, problems)
    rows = Rows(
        codes,
        names,
        rewards,
        features,
        weights,
        timestamps,
        rounds,
        chosen,
        propensities,
        problems.account,
    )
    kept = None if problems.mask is None else ~problems.mask
    if weights is not None and not weights.all():
        empty = weights == 0
        good = empty if kept is None else empty & kept
        rows = rows._replace(weightless=int(good.sum()))
        kept = ~empty if kept is None else kept & ~empty
    if kept is not None:
        return rows.take(kept)
    return rows._replace(
        rewards=owned(rewards),
        features=owned(features),
        weights=owned(weights),
        timestamps=owned(timestamps),
        rounds=owned(rounds),
        chosen=owned(chosen),
        propensities=owned(propensities),
    )


def owned(array: Any) -> Any:
    """An array that may be written to; what Arrow lends may not."""
    return array if array is None or array.flags.writeable else array.copy()


def shows(values: npt.NDArray[Any]) -> Callable[[int], str]:
    """What an array holds at a place, for an example."""
    return lambda place: str(values[place])


def one_chunk(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece; nothing is copied where it is in one piece already."""
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def nulls(array: pa.Array) -> Mask:
    """Where an array has no value."""
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def missing(
    role: str, name: str, array: pa.Array, block: Block, problems: Problems, needed: Mask | None
) -> Mask:
    """Where a column has no value; rows that need one are bad."""
    mask = nulls(array)
    absent = mask if needed is None else mask & needed
    spoiled = block.spoiled.get(name, {})
    if spoiled:
        wrong = np.zeros(len(array), dtype=bool)
        wrong[list(spoiled)] = True
        problems.add(f"{role} is not {WANTED.get(role, 'a number')}", wrong, spoiled.__getitem__)
        absent = absent & ~wrong
    problems.add(f"{role} is missing", absent, "null")
    return mask


WANTED = {
    "task": "text or a whole number",
    "timestamp": "a time",
    "chosen": "true or false",
    "round": "text or a number",
}


def as_floats(array: pa.Array, kind: type[np.floating[Any]] = np.float64) -> npt.NDArray[Any]:
    """Numbers as floats, NaN where there is none; without copying where that is possible."""
    if kinds.is_decimal(array.type) or kinds.is_null(array.type):
        array = array.cast(pa.float64())
    if kinds.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = array.to_numpy(zero_copy_only=False)
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
    if array.null_count == 0 and all_finite(values):
        return values
    absent = missing(role, name, array, block, problems, needed)
    wild = ~np.isfinite(values) & ~absent
    if needed is not None:
        # What nobody will look at may be anything; it is made missing.
        values = np.where(wild & ~needed, np.nan, values)
        wild = wild & needed
    problems.add(f"{role} is not finite", wild, shows(values))
    return values


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Whether all numbers are finite, in one pass and without a mask.

    A sum that is finite has only finite terms; one that is not may have overflowed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    return bool(np.isfinite(total) or np.isfinite(values).all())


def read_task(
    table: pa.Table, name: str, block: Block, problems: Problems
) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Which task each row has: codes and names; bad rows get code 0."""
    column = table.column(name)
    if kinds.is_dictionary(column.type) and column.num_chunks > 1:
        column = column.unify_dictionaries()
    array = one_chunk(pa.table({name: column}), name)
    if kinds.is_integer(array.type) and not array.null_count:
        return number_codes(array.to_numpy(zero_copy_only=False))
    if kinds.is_null(array.type):
        array = array.cast(pa.string())
    absent = missing("task", name, array, block, problems, None)
    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices
    if codes.null_count:
        codes = codes.fill_null(0)
    numbers: npt.NDArray[np.int32] = codes.to_numpy(zero_copy_only=False).astype(np.int32)
    names, wrong = task_names(array.dictionary)
    for reason, places in wrong.items():
        mask = np.isin(numbers, places) & ~absent
        problems.add(reason, mask, lambda place: repr(names[numbers[place]])[:60])
    if not names:
        names = [""]  # every row is bad
    if len(set(names)) < len(names):  # a dictionary may have a value twice
        first = {text: code for code, text in reversed(list(enumerate(names)))}
        numbers = np.array([first[text] for text in names], dtype=np.int32)[numbers]
    return compact(numbers, names)


def number_codes(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Codes and names of whole numbers: by a table where they are close together, or sorted.

    >>> number_codes(np.array([7, 3, 7]))
    (array([1, 0, 1], dtype=int32), ['3', '7'])
    """
    if not len(values):
        return np.zeros(0, dtype=np.int32), []
    low, high = int(values.min()), int(values.max())
    if high - low >= max(4 * len(values), 1 << 16):
        unique, inverse = np.unique(values, return_inverse=True)
        return inverse.astype(np.int32), digits(unique)
    if low < 0 or high >= 1 << 31:  # else the numbers are places already
        values, high = (values - values.dtype.type(low)).astype(np.intp), high - low
    else:
        low = 0
    used = np.zeros(high + 1, dtype=bool)
    used[values] = True
    unique = np.flatnonzero(used)
    place = np.empty(len(used), dtype=np.int32)
    place[unique] = np.arange(len(unique), dtype=np.int32)
    names = digits(unique) if low == 0 else [str(one + low) for one in unique.tolist()]
    return place[values], names


def digits(numbers: npt.NDArray[Any]) -> list[str]:
    """Whole numbers as text; Arrow is faster at it than Python."""
    texts: list[str] = pa.array(numbers).cast(pa.string()).to_pylist()
    return texts


def task_names(dictionary: pa.Array) -> tuple[list[str], dict[str, list[int]]]:
    """Distinct task ids as text, and those that cannot be ids, by the reason."""
    wrong: dict[str, list[int]] = {}
    names: list[str] = []
    try:
        cells = dictionary.to_pylist()
    except UnicodeDecodeError:
        cells = [
            value.decode(errors="replace") for value in dictionary.cast(pa.binary()).to_pylist()
        ]
        broken = [place for place, text in enumerate(cells) if "\ufffd" in text]
        wrong["task is not valid text"] = broken
    for place, cell in enumerate(cells):
        text = "" if cell is None else str(cell)
        if cell is None or not text:
            wrong.setdefault("task is missing", []).append(place)
        elif len(text) > LONGEST:
            reason = f"task is longer than {LONGEST} characters"
            wrong.setdefault(reason, []).append(place)
        names.append(text)
    return names, wrong


def read_features(
    table: pa.Table, resolved: Resolved, width: int, block: Block, problems: Problems
) -> Matrix:
    """The features, row by row, in one C-contiguous array."""
    if resolved.listed:
        return read_lists(table, resolved.features[0], width, block, problems)
    arrays = [one_chunk(table, name) for name in resolved.features]
    single = all(fits_single(array.type) for array in arrays)
    kind = np.float32 if single else np.float64
    columns = [as_floats(array, kind) for array in arrays]
    for name, array, values in zip(resolved.features, arrays, columns, strict=True):
        if array.null_count == 0 and all_finite(values):
            continue
        absent = missing(f"feature {name}", name, array, block, problems, None)
        wild = ~np.isfinite(values) & ~absent
        problems.add(f"feature {name} is not finite", wild, shows(values))
    return side_by_side(columns, len(table), kind)


def fits_single(kind: pa.DataType) -> bool:
    """Whether every value of a type is exactly a float32."""
    return bool(
        kinds.is_float32(kind)
        or kinds.is_float16(kind)
        or kinds.is_boolean(kind)
        or kinds.is_int8(kind)
        or kinds.is_uint8(kind)
        or kinds.is_int16(kind)
        or kinds.is_uint16(kind)
    )


def read_lists(table: pa.Table, name: str, width: int, block: Block, problems: Problems) -> Matrix:
    """Features from one column of lists, all of one width."""
    array = one_chunk(table, name)
    absent = missing(f"features {name}", name, array, block, problems, None)
    kind = np.float32 if fits_single(array.type.value_type) else np.float64
    if kinds.is_fixed_size_list(array.type) and not array.null_count:
        cells = array.flatten()
    else:
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        odd = (lengths != width) & ~absent
        problems.add(f"features {name} has not {width} numbers", odd, lambda i: f"{lengths[i]}")
        good = ~(odd | absent)
        if good.all():
            cells = array.flatten()
        else:
            values = np.zeros((len(array), width), dtype=kind)
            part = array.filter(pa.array(good)).flatten()
            values[good] = check_cells(part, name, width, kind, np.flatnonzero(good), problems)
            return values
    return check_cells(cells, name, width, kind, np.arange(len(array)), problems)


def check_cells(
    cells: pa.Array,
    name: str,
    width: int,
    kind: type[np.floating[Any]],
    places: npt.NDArray[np.intp],
    problems: Problems,
) -> npt.NDArray[Any]:
    """The cells of lists as rows; those with a cell missing or not finite are bad."""
    flat = as_floats(cells, kind)
    values = flat.reshape(-1, width)
    if cells.null_count == 0 and all_finite(flat):
        return values
    total = len(problems.block.table)
    gaps = nulls(cells).reshape(-1, width)
    wild = ~np.isfinite(values) & ~gaps
    for reason, cell_mask, text in (
        (f"features {name} has a number missing", gaps, "null"),
        (f"features {name} is not finite", wild, None),
    ):
        mask = np.zeros(total, dtype=bool)
        mask[places[cell_mask.any(axis=1)]] = True

        def offender(place: int, cell_mask: Mask = cell_mask) -> str:
            row = int(np.searchsorted(places, place))
            column = int(np.argmax(cell_mask[row]))
            return f"{values[row, column]} at {column}"

        problems.add(reason, mask, text or offender)
    return values


def read_chosen(
    table: pa.Table, roles: Mapping[str, str], block: Block, problems: Problems
) -> Mask | None:
    """The flag of the arm that was shown."""
    if "chosen" not in roles:
        return None
    array = one_chunk(table, roles["chosen"])
    absent = missing("chosen", roles["chosen"], array, block, problems, None)
    if kinds.is_boolean(array.type) and not array.null_count:
        flags: Mask = array.to_numpy(zero_copy_only=False)
        return flags
    values = as_floats(array)
    odd = (values != 0) & (values != 1) & ~absent
    problems.add("chosen is neither 0 nor 1", odd, shows(values))
    shown: Mask = values == 1
    return shown


def read_propensity(
    table: pa.Table, name: str, block: Block, problems: Problems, chosen: Mask | None
) -> npt.NDArray[np.float64]:
    """Probabilities: above 0 for an arm that was shown, 0 or more or missing for the others."""
    values = read_number(table, "propensity", name, block, problems, needed=chosen)
    with np.errstate(invalid="ignore"):
        low = values <= 0 if chosen is None else np.where(chosen, values <= 0, values < 0)
        odd = low | (values > 1)
    problems.add("propensity is not in (0, 1]", odd & np.isfinite(values), shows(values))
    return values


def read_times(
    table: pa.Table, role: str, name: str, block: Block, problems: Problems
) -> npt.NDArray[np.int64]:
    """Times as whole numbers: microseconds since 1970, or whole numbers as they are."""
    array = one_chunk(table, name)
    if is_text(array.type):
        array = parse_times(array, role, name, problems)
    missing(role, name, array, block, problems, None)
    kind = array.type
    if kinds.is_date(kind):
        array = (
            array.cast(pa.timestamp("ms"))
            if kinds.is_date64(kind)
            else array.cast(pa.timestamp("s"))
        )
    if is_time(array.type):
        return microseconds(array)
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        # Fractions are seconds, as clocks of programs give them.
        values = as_floats(array)
        wild = ~np.isfinite(values) & ~nulls(array)
        wild |= np.abs(np.where(np.isfinite(values), values, 0.0)) > 9e12
        problems.add(f"{role} is not finite", wild, shows(values))
        good = np.where(wild | ~np.isfinite(values), 0.0, values)
        return whole_numbers(np.round(good * 1e6))
    if kinds.is_null(kind) or kinds.is_boolean(kind):
        return np.zeros(len(array), dtype=np.int64)
    if kinds.is_uint64(kind):
        large = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
        problems.add(f"{role} is too large", large.to_numpy(zero_copy_only=False), "above 2⁶³")
        return whole_numbers(array.fill_null(0).to_numpy(zero_copy_only=False))
    return whole_numbers(array.fill_null(0).to_numpy(zero_copy_only=False))


def whole_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Numbers as whole numbers of 64 bits; no copy where they are."""
    return values.astype(np.int64, copy=False)


def microseconds(array: pa.Array) -> npt.NDArray[np.int64]:
    """Times of any unit in microseconds; 0 where one is missing."""
    unit = array.type.unit
    ticks = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if unit == "ns":
        return whole_numbers(ticks // 1000)
    return whole_numbers(ticks * np.int64(MICROSECOND[unit]))


def parse_times(array: pa.Array, role: str, name: str, problems: Problems) -> pa.Array:
    """Times from text as people and programs write them; what is no time is bad."""
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        pass
    parsed: list[int | None] = []
    wrong = np.zeros(len(array), dtype=bool)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    for place, text in enumerate(array.to_pylist()):
        parsed.append(None)
        if text is None or not text.strip():
            continue
        try:
            moment = datetime.datetime.fromisoformat(text.strip())
        except ValueError:
            wrong[place] = True
            parsed[-1] = 0
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        parsed[-1] = (moment - epoch) // datetime.timedelta(microseconds=1)
    cells = array.to_pylist()
    problems.add(f"{role} is not a time", wrong, lambda place: repr(cells[place])[:60])
    return pa.array(parsed, pa.int64()).view(pa.timestamp("us"))


def read_rounds(
    table: pa.Table, name: str, block: Block, problems: Problems
) -> npt.NDArray[np.int64]:
    """Which round: whole numbers as they are, other values by a number made from their text."""
    array = one_chunk(table, name)
    missing("round", name, array, block, problems, None)
    kind = array.type
    if kinds.is_integer(kind) and not kinds.is_uint64(kind):
        return whole_numbers(array.fill_null(0).to_numpy(zero_copy_only=False))
    if is_time(kind):
        return read_times(table, "round", name, block, problems)
    if not kinds.is_dictionary(kind):
        array = array.dictionary_encode()
    texts = array.dictionary.to_pylist()
    numbers = np.array([text_number(str(text)) for text in texts] or [0], dtype=np.int64)
    return whole_numbers(numbers[array.indices.fill_null(0).to_numpy(zero_copy_only=False)])


def text_number(text: str) -> int:
    """A whole number that stands for a text, the same everywhere; digits stand for themselves.

    >>> text_number("12"), text_number("a") == text_number("a"), text_number("a") < 2**63
    (12, True, True)
    """
    if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
        return int(text)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
