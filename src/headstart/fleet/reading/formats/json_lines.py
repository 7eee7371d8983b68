"""JSON lines: one object in each line; parts are ranges of bytes."""

from __future__ import annotations

import collections
import json
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json
import pyarrow.types as kinds

from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.formats.lines import Broken, LineFile
from headstart.fleet.reading.types import field_columns, is_list, is_text_field

__all__ = ["JsonFile"]

BROKEN = "line is not a JSON object"


class JsonFile(LineFile):
    """A file of JSON lines."""

    def find_schema(self, columns: Columns) -> pa.Schema:
        """The types as which columns are read, told from the first lines."""
        seen: dict[str, collections.Counter[type]] = {}
        for entry in map(parse, self.text.splitlines()):
            for name, value in (entry or {}).items():
                seen.setdefault(name, collections.Counter()).update([type(value)])
        if not seen:
            raise pa.ArrowInvalid("no line of its beginning is a JSON object")
        roles = dict.fromkeys(text_columns(columns), "task")
        roles |= {name: role for role, name in columns.roles.items()}
        return pa.schema(
            [(name, column_type(roles.get(name), counts)) for name, counts in seen.items()]
        )

    def sample(self, rows: int) -> dict[str, list[Any]]:
        """About so many of the first rows, all columns, as they are."""
        found = [entry for entry in map(parse, self.text.splitlines()[:rows]) if entry is not None]
        names = dict.fromkeys(name for entry in found for name in entry)
        return {name: [entry.get(name) for entry in found] for name in names}

    def convert(
        self, text: bytes, resolved: Resolved
    ) -> tuple[pa.Table, dict[str, dict[int, str]], Broken]:
        """Lines as a table, its cells that are of another type, and the lines that are no rows."""
        types = pa.schema([(name, resolved.types[name]) for name in resolved.used])
        if not text or text.isspace():
            return types.empty_table(), {}, {}
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                arrow_json.ParseOptions(explicit_schema=types, unexpected_field_behavior="ignore"),
            )
            return table, {}, {}
        except pa.ArrowInvalid:
            # Some line is not what it must be: line by line, which is slower, finds them all.
            return read_line_by_line(text, types, resolved.columns)


def text_columns(columns: Columns) -> list[str]:
    """The columns of a schema that are text, or whole numbers that stand for text."""
    fields = {} if columns.schema is None else field_columns(columns.schema)
    return [name for name, field in fields.items() if is_text_field(field)]


def parse(line: bytes) -> dict[str, Any] | None:
    """A line's object; ``None`` where it has none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def column_type(role: str | None, counts: collections.Counter[type]) -> pa.DataType:
    """What a column is read as, told from its first values."""
    seen = set(counts) - {type(None)}
    if role in ("task", "round"):
        if seen <= {int}:
            return pa.int64()
        return pa.float64() if role == "task" and seen <= {int, float} else pa.string()
    if role == "timestamp":
        if 2 * counts[str] > counts.total() - counts[type(None)]:
            return pa.string()
        return pa.float64() if float in seen else pa.int64()
    if role == "chosen" and bool in seen:
        return pa.bool_()
    if list in seen:
        return pa.list_(pa.float64())
    if dict in seen:
        return pa.struct([])
    if seen == {bool}:
        return pa.bool_()
    return pa.float64() if seen & {bool, int, float} or not seen else pa.string()


def read_line_by_line(
    text: bytes, types: pa.Schema, columns: Columns
) -> tuple[pa.Table, dict[str, dict[int, str]], Broken]:
    """Lines read one by one; values that are not what they must be are set aside."""
    lines = [line for line in text.splitlines() if line.strip()]
    entries = [parse(line) for line in lines]
    broken = {
        place: (BROKEN, repr(lines[place][:60].decode(errors="replace")))
        for place, entry in enumerate(entries)
        if entry is None
    }
    invalid: dict[str, dict[int, str]] = {}
    arrays = []
    texts = {columns.task, columns.round, *text_columns(columns)}
    for field in types:
        kind = pa.string() if field.name in texts else field.type
        given = [entry.get(field.name) for entry in entries if entry is not None]
        values = [convert_cell(kind, value) for value in given]
        wrong = {
            row: repr(value)[:60]
            for row, value in enumerate(given)
            if value is not None and values[row] is None
        }
        if wrong:
            invalid[field.name] = wrong
        arrays.append(pa.array(values, kind))
    return pa.table(arrays, names=types.names), invalid, broken


def convert_cell(kind: pa.DataType, value: Any) -> Any:
    """A JSON value as a type; ``None`` if it is none. Whole numbers may stand for text."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kinds.is_string(kind):
        text = str(value) if whole else value
        return text if isinstance(text, str) and is_text(text) else None
    if kinds.is_integer(kind):
        return value if whole and abs(value) < 2**63 else None
    if kinds.is_boolean(kind):
        return bool(value) if value in (0, 1) else None
    if is_list(kind):
        if not isinstance(value, list):
            return None
        cells = [as_float(one) for one in value]
        gaps = [one is None for one in value]
        return cells if [cell is None for cell in cells] == gaps else None
    return as_float(value)


def is_text(value: str) -> bool:
    r"""Whether text can be encoded: JSON may escape half a character.

    >>> is_text("grün"), is_text("\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_float(value: Any) -> float | None:
    """A JSON number as a float; ``None`` for anything else, and for one that is too large."""
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None
