"""JSON lines: one object in each line; parts are ranges of bytes."""

from __future__ import annotations

import collections
import json
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json
import pyarrow.types as kinds

from headstart.fleet.reading.columns import Columns, Resolved, is_list
from headstart.fleet.reading.lines import byte_ranges, sample, whole_lines
from headstart.fleet.reading.problems import Block
from headstart.fleet.reading.rows import BadRows, Example, first_examples

__all__ = ["blocks", "pieces", "schema"]

NUMBERS = {bool, int, float}


def schema(source: pa.NativeFile, path: str, columns: Columns) -> pa.Schema | None:
    """The columns of a file, told from its first lines; ``None`` for an empty file."""
    lines = [line for line in sample(source, path).splitlines() if line.strip()]
    if not lines:
        return None
    found: dict[str, collections.Counter[type]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            for name, value in entry.items():
                counts = found.setdefault(name, collections.Counter())
                counts.update(() if value is None else (type(value),))
    if not found:
        raise pa.ArrowInvalid("no line of its beginning is a JSON object")
    roles = {name: role for role, name in columns.roles.items()}
    return pa.schema([(name, column_kind(roles.get(name), seen)) for name, seen in found.items()])


def column_kind(role: str | None, counts: collections.Counter[type]) -> pa.DataType:
    """What a column is read as, told from its first values."""
    seen = set(counts)
    if role in ("task", "round"):
        if seen <= {int}:
            return pa.int64()
        return pa.float64() if role == "task" and seen <= {int, float} else pa.string()
    if role == "timestamp":
        if 2 * counts[str] > counts.total():
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
    return pa.float64() if seen & NUMBERS or not seen else pa.string()


def pieces(source: pa.NativeFile, path: str, rows: int) -> list[tuple[int, int, int | None]]:
    """Ranges of bytes; how many rows they have is not known."""
    return [(start, stop, None) for start, stop in byte_ranges(source, path)]


def blocks(
    source: pa.NativeFile,
    path: str,
    span: tuple[int, int],
    resolved: Resolved,
    rows: int,
    threads: bool,
) -> Iterator[Block]:
    """The rows of a range of bytes, at most ``rows`` at a time."""
    file = path if span[0] == 0 else f"{path} from byte {span[0]:,}"
    types = pa.schema([(name, resolved.types[name]) for name in resolved.used])
    ids = {resolved.columns.task, resolved.columns.round}
    first = 0
    for text in whole_lines(source, path, span):
        text = text.removeprefix(b"\xef\xbb\xbf")
        if not text or text.isspace():
            continue
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=threads, block_size=len(text) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=types, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            # Some line is not what it must be: line by line, which is slower and finds them all.
            for block in careful(text, file, first, types, ids, rows):
                first += block.table.num_rows + block.bad.count
                yield block
            continue
        for start in range(0, table.num_rows, rows):
            yield Block(table.slice(start, rows), file, first + start)
        first += table.num_rows


def careful(
    text: bytes, file: str, first: int, types: pa.Schema, ids: Collection[str | None], rows: int
) -> Iterator[Block]:
    """Lines read one by one; values that are not what they must be are set aside."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    for start in range(0, len(lines), rows):
        entries: list[dict[str, Any]] = []
        places, broken = [], []
        for place, line in enumerate(lines[start : start + rows], first + start):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if isinstance(entry, dict):
                entries.append(entry)
                places.append(place)
            else:
                shown = repr(line[:60].decode(errors="replace"))
                broken.append(Example(file, place, "line is not a JSON object", shown))
        spoiled: dict[str, dict[int, str]] = {}
        arrays = []
        for field in types:
            kind = pa.string() if field.name in ids else field.type
            values, wrong = [], {}
            for row, entry in enumerate(entries):
                value, fits = cell(entry.get(field.name), kind)
                values.append(value)
                if not fits:
                    wrong[row] = repr(entry[field.name])[:60]
            if wrong:
                spoiled[field.name] = wrong
            arrays.append(pa.array(values, kind))
        bad = BadRows()
        if broken:
            reason = "line is not a JSON object"
            bad = BadRows(len(broken), {reason: len(broken)}, first_examples(broken))
        table = pa.table(arrays, names=types.names) if types.names else pa.table({})
        numbers = np.array(places, dtype=np.int64)
        yield Block(table, file, first + start, numbers, spoiled, bad)


def cell(value: Any, kind: pa.DataType) -> tuple[Any, bool]:
    """A JSON value as a type, and whether it is one; whole numbers may stand for text."""
    if value is None:
        return None, True
    whole = isinstance(value, int) and not isinstance(value, bool)
    result: Any = None
    if kinds.is_string(kind):
        result = value if isinstance(value, str) else str(value) if whole else None
        if isinstance(result, str) and not is_text(result):
            result = None
    elif kinds.is_integer(kind):
        result = value if whole and abs(value) < 2**63 else None
    elif kinds.is_boolean(kind):
        result = bool(value) if value in (0, 1) else None
    elif is_list(kind):
        if isinstance(value, list):
            cells = [as_float(one) for one in value]
            fits = all(
                one is None or got is not None for one, got in zip(value, cells, strict=True)
            )
            result = cells if fits else None
    else:
        result = as_float(value)
    return result, result is not None


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
