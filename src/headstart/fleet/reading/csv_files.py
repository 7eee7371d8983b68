"""CSV: parts are ranges of bytes. Cells that are not what their column must be are bad rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.types as kinds

from headstart.errors import InputError
from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.lines import byte_ranges, sample, whole_lines
from headstart.fleet.reading.problems import Block
from headstart.fleet.reading.rows import BadRows, Example, first_examples

if TYPE_CHECKING:
    import polars as pl

__all__ = ["blocks", "pieces", "schema"]

TRUE = ["1", "1.0", "True", "TRUE", "true"]
FALSE = ["0", "0.0", "False", "FALSE", "false"]
NOTHING = {"", "na", "n/a", "nan", "null", "none", "#n/a", "-nan"}


def header(text: bytes) -> tuple[list[str], str, int]:
    r"""The names in the first line that is not empty, what separates them, and where it ends.

    >>> header(b"\n\ntask,reward\n1,2\n")
    (['task', 'reward'], ',', 14)
    """
    start = len(text) - len(text.lstrip(b"\r\n"))
    end = text.find(b"\n", start) + 1 or len(text)
    line = text[start:end].decode(errors="replace").strip("\r\n")
    if "\r" in line and '"' not in line:
        raise pa.ArrowInvalid("its lines end in CR alone, not in LF or CR LF")
    counts = {mark: line.count(mark) for mark in (",", "\t", ";", "|")}
    mark = "," if counts[","] else max(counts, key=lambda mark: counts[mark])
    return next(csv.reader([line], delimiter=mark), []), mark, end


def schema(source: pa.NativeFile, path: str, columns: Columns) -> pa.Schema | None:
    """The columns of a file, with the types they are read as; ``None`` for an empty file."""
    import polars as pl  # not where no file is CSV

    text = sample(source, path)
    if not text.strip():
        return None
    names, mark, end = header(text)
    read = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    try:
        head = parse(text[end:], names, mark, read, [])
    except pa.ArrowInvalid:
        head = None  # nothing can be told: numbers, until the rows are read
    roles = {name: role for role, name in columns.roles.items()}
    fields = []
    for index, name in enumerate(names):
        cells = None if head is None else pl.Series(head.column(index).to_pylist(), dtype=pl.String)
        fields.append(pa.field(name, column_kind(roles.get(name), name, cells, path)))
    return pa.schema(fields)


def column_kind(role: str | None, name: str, cells: pl.Series | None, path: str) -> pa.DataType:
    """What a column is read as, told from its first cells."""
    import polars as pl  # not where no file is CSV

    filled = pl.Series([], dtype=pl.String) if cells is None else cells.str.strip_chars()
    filled = filled.filter(~filled.str.to_lowercase().is_in(list(NOTHING)))
    if role == "task":
        if len(filled) and all(re.fullmatch(r"-?[0-9]+\.0+", cell) for cell in filled.unique()):
            return pa.float64()  # 7.0 for 7: refused, with a hint
        return pa.string()
    if role == "round":
        return pa.string()
    if role == "chosen":
        return pa.bool_()
    numbers = filled.cast(pl.Float64, strict=False).is_not_null()
    if role == "timestamp":
        if not len(filled) or not numbers.all():
            return pa.string()
        whole = filled.cast(pl.Int64, strict=False).is_not_null().all()
        return pa.int64() if whole else pa.float64()
    if not len(filled) or numbers.any():
        return pa.float64()
    if filled.is_in(TRUE + FALSE).all():
        return pa.bool_()
    return pa.string()


def pieces(source: pa.NativeFile, path: str, rows: int) -> list[tuple[int, int, int | None]]:
    """Ranges of bytes; how many rows they have is not known."""
    return [(start, stop, None) for start, stop in byte_ranges(source, path)]


def parse(
    text: bytes,
    names: list[str],
    mark: str,
    convert: arrow_csv.ConvertOptions,
    invalid: list[Any],
    threads: bool = False,
) -> pa.Table:
    """Lines as a table; those with too many or too few cells are set aside."""

    def set_aside(row: Any) -> str:
        invalid.append(row)
        return "skip"

    if text.isspace():
        text = b""
    read = arrow_csv.ReadOptions(
        column_names=names, use_threads=threads, block_size=max(1 << 20, len(text) + 1)
    )
    if not text:
        wanted = convert.include_columns or names
        return pa.table([pa.array([], convert.column_types[name]) for name in wanted], wanted)
    # Rows are handed over as text: where they cannot be, the file is refused as it is.
    handler = set_aside if is_utf8(text) else None
    options = arrow_csv.ParseOptions(
        delimiter=mark, invalid_row_handler=handler, newlines_in_values=True
    )
    return arrow_csv.read_csv(
        pa.BufferReader(text), read_options=read, parse_options=options, convert_options=convert
    )


def blocks(
    source: pa.NativeFile,
    path: str,
    span: tuple[int, int],
    resolved: Resolved,
    rows: int,
    threads: bool,
) -> Iterator[Block]:
    """The rows of a range of bytes, at most ``rows`` at a time."""
    names, mark, end = header(sample(source, path))
    file = path if span[0] == 0 else f"{path} from byte {span[0]:,}"
    first = 0
    for count, text in enumerate(whole_lines(source, path, span)):
        if span[0] == 0 and count == 0:
            text = text.removeprefix(b"\xef\xbb\xbf")[end:]
        invalid: list[Any] = []
        table, spoiled = convert(text, names, mark, resolved, invalid, path)
        bad, numbers = set_aside(invalid, table.num_rows, file, first)
        for start in range(0, max(table.num_rows, 1), rows):
            part = table.slice(start, rows)
            here = {
                name: {
                    place - start: cell
                    for place, cell in cells.items()
                    if start <= place < start + rows
                }
                for name, cells in spoiled.items()
            }
            which = None if numbers is None else numbers[start : start + rows]
            yield Block(part, file, first + start, which, here, bad if start == 0 else BadRows())
        first += table.num_rows + len(invalid)


def set_aside(
    invalid: list[Any], rows: int, file: str, first: int
) -> tuple[BadRows, np.ndarray[Any, np.dtype[np.int64]] | None]:
    """The account of lines with a wrong number of cells, and the numbers of all other rows."""
    if not invalid:
        return BadRows(), None
    reason = "row has another number of cells than the header"
    examples = [
        Example(
            file,
            first + row.number - 1,
            reason,
            f"{row.actual_columns} for {row.expected_columns}: {row.text[:60]!r}",
        )
        for row in invalid
    ]
    numbers = np.ones(rows + len(invalid), dtype=bool)
    numbers[[row.number - 1 for row in invalid]] = False
    account = BadRows(len(invalid), {reason: len(invalid)}, first_examples(examples))
    return account, first + np.flatnonzero(numbers).astype(np.int64)


def convert(
    text: bytes,
    names: list[str],
    mark: str,
    resolved: Resolved,
    invalid: list[Any],
    path: str,
) -> tuple[pa.Table, Mapping[str, Mapping[int, str]]]:
    """Lines as a table of the right types, and the cells that are not what they must be."""
    types = {name: resolved.types[name] for name in resolved.used}
    options = arrow_csv.ConvertOptions(
        include_columns=resolved.used, column_types=types, true_values=TRUE, false_values=FALSE
    )
    try:
        return parse(text, names, mark, options, invalid), {}
    except pa.ArrowInvalid:
        pass
    # Some cell is not what its column must be: once more as text, then cell by cell.
    invalid.clear()
    options = arrow_csv.ConvertOptions(
        include_columns=resolved.used, column_types=dict.fromkeys(resolved.used, pa.string())
    )
    try:
        table = parse(text, names, mark, options, invalid)
    except pa.ArrowInvalid:
        if not is_utf8(text):
            raise InputError(
                f"{path!r} is not UTF-8 text ({first_odd(text)}): save it as UTF-8"
            ) from None
        raise
    spoiled: dict[str, dict[int, str]] = {}
    for index, name in enumerate(table.column_names):
        if not kinds.is_string(types[name]):
            values, wrong = cells_as(types[name], table.column(index))
            table = table.set_column(index, name, values)
            if wrong:
                spoiled[name] = wrong
    return table, spoiled


def is_utf8(text: bytes) -> bool:
    r"""Whether bytes are UTF-8, told without a copy.

    >>> is_utf8("grün".encode()), is_utf8("grün".encode("latin-1"))
    (True, False)
    """
    offsets = pa.py_buffer(np.array([0, len(text)], dtype=np.int64))
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(text)])
    try:
        whole.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def first_odd(text: bytes) -> str:
    r"""The first place where bytes are not UTF-8.

    >>> print(first_odd("name\ngrün\n".encode("latin-1")))
    b'gr\xfcn'
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        start = text.rfind(b"\n", 0, error.start) + 1
        return repr(text[max(start, error.start - 30) : error.start + 30].splitlines()[0])
    return "in some cell"


def cells_as(kind: pa.DataType, column: pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
    """Cells of text as another type: missing where they cannot be, and what those held."""
    import polars as pl  # not where no file is CSV

    texts = pl.Series(column.to_pylist(), dtype=pl.String).str.strip_chars()
    empty = texts.str.to_lowercase().is_in(list(NOTHING)).fill_null(True)
    if kinds.is_boolean(kind):
        values = pl.select(
            pl.when(texts.is_in(TRUE)).then(True).when(texts.is_in(FALSE)).then(False)
        ).to_series()
    else:
        target = pl.Int64 if kinds.is_integer(kind) else pl.Float64
        values = texts.cast(target, strict=False)
    values = values.to_frame("cell").select(pl.when(~empty).then(pl.col("cell"))).to_series()
    wrong = (values.is_null() & ~empty).arg_true().to_list()
    return values.to_arrow().cast(kind), {place: repr(texts[place])[:60] for place in wrong}
