"""CSV: parts are ranges of bytes. Cells that are not what their column must be are bad rows."""

from __future__ import annotations

import contextlib
import csv
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.types as kinds

from headstart.errors import InputError
from headstart.features.schema.categories import Category
from headstart.features.schema.fields import Boolean, Field
from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.formats.columnar import evenly
from headstart.fleet.reading.formats.lines import Broken, Invalid, LineFile, convert_cells
from headstart.fleet.reading.types import is_text_field

TRUE = ["1", "1.0", "True", "TRUE", "true"]
FALSE = ["0", "0.0", "False", "FALSE", "false"]
MISSING_MARKS = [".", "-", "?"]  # cells that stand for a missing number
MISSING_TEXTS = {"", "na", "n/a", "nan", "null", "none", "#n/a", "-nan", *MISSING_MARKS}
WRONG_WIDTH = "row has another number of cells than the header"
OPEN_QUOTE = "row has a quote that is not closed in its line"


class CsvFile(LineFile):
    """A CSV file."""

    is_quoted = True

    def find_schema(self, columns: Columns) -> pa.Schema:
        """The types as which columns are read, inferred from the first rows."""
        self.names, self.mark, self.header_end = read_header(self.text, self.path, columns)
        body = self.text[self.header_end :]
        try:
            texts, broken = self.parse(body, text_options(self.names))
            lines = sum(map(bool, body.splitlines()))
            self.has_breaks = texts.num_rows + len(broken) < lines
        except pa.ArrowInvalid:  # nothing can be inferred: numbers, until the rows are read
            texts = pa.table([pa.nulls(0, pa.string())] * len(self.names), self.names)
        roles = {name: role for role, name in columns.roles.items()}
        fields = {name: field for name, field in columns.fields.items() if name not in roles}
        roles |= {name: "task" for name, field in fields.items() if field is None}
        pairs = zip(self.names, texts.columns, strict=True)
        return pa.schema(
            [(name, column_type(roles.get(name), fields.get(name), cells)) for name, cells in pairs]
        )

    def sample(self, rows: int) -> pa.Table:
        """About so many rows, all columns, each of the type that all its cells fit."""
        table, _ = self.parse(self.sample_text(rows), text_options(self.names))
        columns = table.take(pa.array(evenly(table.num_rows, rows), pa.int64())).columns
        arrays = [natural_type(column) for column in columns]
        self.marked = tuple(
            name
            for name, cells, array in zip(self.names, columns, arrays, strict=True)
            if not kinds.is_string(array.type)
            and pc.any(pc.is_in(cells, pa.array(MISSING_MARKS))).as_py()
        )
        return pa.table(arrays, names=self.names)

    def convert(self, text: bytes, resolved: Resolved) -> tuple[pa.Table, Invalid, Broken]:
        """Lines as a table, its cells that are of another type, and the lines that are no rows."""
        used = resolved.used
        types = {name: resolved.types[name] for name in used}
        options = arrow_csv.ConvertOptions(
            include_columns=used, column_types=types, true_values=TRUE, false_values=FALSE
        )
        try:
            table, broken = self.parse(text, options)
            return empty_as_missing(table, resolved.columns), {}, broken
        except pa.ArrowInvalid:
            pass
        # Some cell is not what its column must be: once more as text, then cell by cell.
        try:
            table, broken = self.parse(text, text_options(used))
        except pa.ArrowInvalid:
            if not (fault := not_utf8(text)):
                raise
            raise refuse_encoding(self.path, fault) from None
        invalid = {}
        for index, name in enumerate(used):
            if not kinds.is_string(types[name]):
                values, wrong = convert_texts(types[name], table.column(index))
                table = table.set_column(index, name, values)
                if wrong:
                    invalid[name] = wrong
        return empty_as_missing(table, resolved.columns), invalid, broken

    def parse(self, text: bytes, options: arrow_csv.ConvertOptions) -> tuple[pa.Table, Broken]:
        """Lines as a table, and the rows that do not fit into it.

        A quote that is not closed would take up the lines after it. Where that happens, every line
        is a row, and those with such a quote do not fit.
        """
        table, broken = self.read(text, options)
        if not self.swallows(text, table.num_rows + len(broken)):
            return table, broken
        lines = [line for line in text.splitlines() if line]
        closed, unclosed = [], {}
        for number, line in enumerate(lines):
            if self.count_cells(line.decode(errors="replace")):
                closed.append(number)
            else:
                unclosed[number] = OPEN_QUOTE, repr(line[:60].decode(errors="replace"))
        table, broken = self.read(b"\n".join(lines[number] for number in closed), options)
        return table, unclosed | {closed[row]: why for row, why in broken.items()}

    def swallows(self, text: bytes, rows: int) -> bool:
        """Whether lines that look like rows are inside quotes that begin in a line before them."""
        if b'"' not in text or rows == text.count(b"\n") + (not text.endswith(b"\n")):
            return False
        lines = [line for line in text.decode(errors="replace").splitlines() if line]
        if rows == len(lines):
            return False
        reader, before = csv.reader(lines, delimiter=self.mark), 0
        try:
            for _ in reader:
                first, *others = lines[before : reader.line_num]
                before = reader.line_num
                if others and first.count(self.mark) >= len(self.names) - 1:
                    for line in others:
                        if len(self.names) == (self.count_cells(line) or line.count(self.mark) + 1):
                            return True
        except csv.Error:  # a cell of more than 128 KiB
            return True
        return False

    def count_cells(self, line: str) -> int:
        """How many cells a line has; 0 where a quote is not closed in it."""
        reader = csv.reader([line, ""], delimiter=self.mark)
        try:
            cells = next(reader)
        except csv.Error:  # a cell of more than 128 KiB
            return 0
        return len(cells) if reader.line_num == 1 else 0

    def read(self, text: bytes, options: arrow_csv.ConvertOptions) -> tuple[pa.Table, Broken]:
        """Lines as a table, and those with too many or too few cells."""
        if not text or text.isspace():
            wanted = options.include_columns or self.names
            types = options.column_types
            return pa.table([pa.nulls(0, types.get(name)) for name in wanted], wanted), {}
        broken: Broken = {}

        def set_aside(row: Any) -> str:
            shown = f"{row.actual_columns} for {row.expected_columns}: {row.text[:60]!r}"
            broken[row.number - 1] = WRONG_WIDTH, shown
            return "skip"

        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(
                column_names=self.names, use_threads=False, block_size=max(1 << 20, len(text) + 1)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.mark,
                newlines_in_values=True,
                # Rows are handed over as text: where they cannot be, the file is refused as it is.
                invalid_row_handler=None if not_utf8(text) else set_aside,
            ),
            convert_options=options,
        )
        return table, broken


def read_header(text: bytes, path: str, columns: Columns) -> tuple[list[str], str, int]:
    r"""The names in the first line that is not empty, what separates them, and where it ends.

    >>> read_header(b"\n\ntask,reward\n1,2\n", "log.csv", Columns("task", "reward", "x"))
    (['task', 'reward'], ',', 14)
    """
    start = len(text) - len(text.lstrip(b"\r\n"))
    end = text.find(b"\n", start) + 1 or len(text)
    line = text[start:end].decode(errors="replace").strip("\r\n")
    if "\0" in line:  # two or four bytes for each character
        raise refuse_encoding(path, repr(text[start : min(end, start + 40)]))
    if "\r" in line:
        raise pa.ArrowInvalid("its lines end in CR alone, not in LF or CR LF")
    marks = sorted(",\t;|", key=line.count, reverse=True)
    marks.sort(key=lambda mark: mark != ("\t" if ".tsv" in path.lower() else ","))
    marks = [mark for mark in marks if mark in line] or [","]
    split = {mark: next(csv.reader([line], delimiter=mark), []) for mark in marks}
    # A name may have a comma: what separates names leaves those that are looked for.
    wanted = set(columns.roles.values())
    mark = next((mark for mark in marks if wanted <= set(split[mark])), marks[0])
    return split[mark], mark, end


def column_type(role: str | None, field: Field | None, cells: pa.ChunkedArray) -> pa.DataType:
    """What the column of a role or a field is read as, inferred from its first cells."""
    if role == "task":
        # 7.0 for 7 is refused, with a hint
        return pa.float64() if are_whole_fractions(cells) else pa.string()
    if role == "round":
        return pa.string()
    if role == "chosen" or isinstance(field, Boolean):
        return pa.bool_()
    if role == "timestamp":
        for kind in (pa.int64(), pa.float64()):
            values, wrong = convert_texts(kind, cells)
            if not wrong and values.null_count < len(values):
                return kind
        return pa.string()
    if isinstance(field, Category):
        if is_text_field(field):
            # Frames write whole numbers as 7.0 where some are missing: 7 is what is served.
            numbers = field.buckets is not None and are_whole_fractions(cells)
            return pa.float64() if numbers else pa.string()
        return pa.float64() if convert_texts(pa.int64(), cells)[1] else pa.int64()
    values, wrong = convert_texts(pa.float64(), cells)
    if wrong and not convert_texts(pa.bool_(), cells)[1]:
        return pa.bool_()
    return pa.float64() if not wrong or values.null_count < len(values) else pa.string()


def are_whole_fractions(cells: pa.ChunkedArray) -> bool:
    """Whether cells are whole numbers that are written as 7.0."""
    texts = [cell for cell in cells.to_pylist() if cell.strip().lower() not in MISSING_TEXTS]
    return bool(texts) and all(re.fullmatch(r"-?[0-9]+\.0+", cell.strip()) for cell in texts)


def empty_as_missing(table: pa.Table, columns: Columns) -> pa.Table:
    """A table in which categories and ids that are empty are missing, as frames read them."""
    for index, name in enumerate(table.column_names):
        if name in columns.fields and kinds.is_string(table.column(index).type):
            table = table.set_column(index, name, without_empty(table.column(index)))
    return table


def without_empty(texts: Any) -> Any:
    """Text, missing where it is empty."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def natural_type(column: pa.ChunkedArray) -> pa.Array:
    """Cells as whole numbers, numbers or booleans if all of them are; else as text."""
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        values, wrong = convert_texts(kind, column)
        if not wrong:
            return values
    return without_empty(pa.chunked_array(column, pa.string()).combine_chunks())


def text_options(names: list[str]) -> arrow_csv.ConvertOptions:
    """Options that leave all cells as they are."""
    return arrow_csv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(names, pa.string())
    )


def convert_texts(kind: pa.DataType, column: pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
    """Cells of text as another type: missing where they cannot be, and what those held."""
    texts = pc.utf8_trim_whitespace(pa.chunked_array(column, pa.string()).combine_chunks())
    empty = pc.is_in(pc.utf8_lower(texts), pa.array(sorted(MISSING_TEXTS)))
    texts = pc.if_else(empty, pa.scalar(None, pa.string()), texts)
    if not kinds.is_boolean(kind):
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(kind), {}
    return convert_cells(kind, texts.to_pylist(), parse_cell)


def parse_cell(kind: pa.DataType, text: str) -> float | None:
    """One cell as a number or a flag; ``None`` where it is none."""
    if kinds.is_boolean(kind):
        return True if text in TRUE else False if text in FALSE else None
    whole = kinds.is_integer(kind)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        return None
    # Python knows more ways to write a number than files have.
    plain = text.isascii() and "_" not in text
    return value if plain and (not whole or abs(value) < 2**63) else None


def refuse_encoding(path: str, fault: str) -> InputError:
    """The error for a file in another encoding, of which ``fault`` is a part."""
    return InputError(f"{path!r} is not UTF-8 text ({fault}): save it as UTF-8")


def not_utf8(text: bytes) -> str:
    r"""The first place where bytes are not UTF-8; empty where they are.

    >>> print(not_utf8("name\ngrün\n".encode("latin-1")), not_utf8("grün".encode()) == "")
    b'gr\xfcn' True
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        start = text.rfind(b"\n", 0, error.start) + 1
        return repr(text[max(start, error.start - 30) : error.start + 30].splitlines()[0])
    return ""
