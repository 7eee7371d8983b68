"""Files of lines: cut into ranges of bytes, and read in pieces of whole lines; JSON lines."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json
import pyarrow.types as kinds

from headstart.errors import InputError
from headstart.fleet.reading.cells import Block
from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.files import compression_of
from headstart.fleet.reading.formats.columnar import Span, evenly
from headstart.fleet.reading.rows import BadRows, Example, first_examples
from headstart.fleet.reading.types import is_list

Broken = dict[int, tuple[str, str]]  # lines that are no rows: by their number, why, what they hold
Invalid = dict[str, dict[int, str]]  # cells of another type: by column and row, what they hold

RANGE = 64 * 2**20  # bytes of a part, and of the longest line
PIECE = 16 * 2**20  # bytes that are read at a time
BUFFER = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SAMPLE_BYTES = 1 << 20  # bytes from which the kinds of columns are inferred
ROWS_PER_PLACE = 1000  # rows of a sample that are from one place of the file


class LineFile:
    """A file of lines: parts are ranges of bytes, or all of it where it cannot be divided."""

    marked: tuple[str, ...] = ()  # columns of numbers with cells that stand for a missing one
    is_quoted = False  # whether line breaks may be in quotes
    has_breaks = False  # whether some are

    def __init__(self, source: pa.NativeFile, path: str, columns: Columns, remote: bool) -> None:
        self.source, self.path, self.header_end = source, path, 0
        with contextlib.closing(read_lines(source, path, 0, SAMPLE_BYTES, SAMPLE_BYTES)) as lines:
            self.text = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
        self.schema = self.find_schema(columns) if self.text.strip() else None

    def find_schema(self, columns: Columns) -> pa.Schema:
        """The types as which columns are read, inferred from the first lines."""
        raise NotImplementedError

    def spans(self, rows: int) -> list[Span]:
        """Ranges of bytes; how many rows they have is not known."""
        size = self.source.size()
        count = -(-size // RANGE) if self.is_seekable else 1
        edges = [size * number // max(count, 1) for number in range(count + 1)]
        return [(start, stop, None) for start, stop in itertools.pairwise(edges) if stop]

    def convert(self, text: bytes, resolved: Resolved) -> tuple[pa.Table, Invalid, Broken]:
        """Lines as a table, its cells that are of another type, and the lines that are no rows."""
        raise NotImplementedError

    @property
    def is_seekable(self) -> bool:
        """Whether a row can be found at any place: not if lines may be parts of a row."""
        return not compression_of(self.path) and not self.has_breaks

    def sample_text(self, rows: int) -> bytes:
        """Lines of about so many rows: of places evenly spread over the file if it is seekable."""
        body, size = self.text[self.header_end :], self.source.size()
        length = len(body) / max(body.count(b"\n"), 1)
        wanted = min(int(1.1 * rows * length) + 1, PIECE)
        places = max(rows // ROWS_PER_PLACE, 1) if self.is_seekable and wanted < size else 1
        step, pieces = self.header_end + -(-wanted // places), []
        for start in evenly(size, places):
            piece = next(read_lines(self.source, self.path, start, start + step, step), b"")
            if start == 0:
                piece = piece.removeprefix(BYTE_ORDER_MARK)[self.header_end :]
            pieces.append(piece if piece.endswith(b"\n") else piece + b"\n")
        return b"".join(pieces)

    def blocks(self, span: tuple[int, int], resolved: Resolved, rows: int) -> Iterator[Block]:
        """The rows of the lines that begin in a range of bytes, a piece of text at a time."""
        file = self.path if span[0] == 0 else f"{self.path} from byte {span[0]:,}"
        first, skip = 0, self.header_end if span[0] == 0 else 0
        size = min(PIECE, RANGE)
        for text in read_lines(self.source, self.path, *span, size, self.is_quoted):
            text, skip = text.removeprefix(BYTE_ORDER_MARK)[skip:], 0
            table, invalid, broken = self.convert(text, resolved)
            numbers, bad = None, BadRows()
            if broken:
                examples = [Example(file, first + row, *why) for row, why in broken.items()]
                counts = collections.Counter(sorted(reason for reason, _ in broken.values()))
                bad = BadRows(len(broken), dict(counts), first_examples(examples))
                every = np.arange(table.num_rows + len(broken))
                numbers = first + np.delete(every, list(broken))
            yield Block(table, file, first, numbers, invalid, bad)
            first += table.num_rows + len(broken)


class SharedStream:
    """A file that stays open when a stream that reads from it is closed."""

    closed = False

    def __init__(self, source: pa.NativeFile) -> None:
        self.read = source.read

    def close(self) -> None:
        """Nothing: whoever lent it closes it."""


def read_lines(
    source: pa.NativeFile, path: str, start: int, stop: int, size: int, is_quoted: bool = False
) -> Generator[bytes]:
    """The lines that begin in a range of bytes, in pieces of about ``size`` bytes.

    Where the file is compressed, all of its lines. Where line breaks may be in quotes, a piece ends
    with a row, unless its quotes are not closed soon.
    """
    source.seek(0)
    packed, place, content = compression_of(path), 0, source
    if packed:
        content = pa.CompressedInputStream(pa.PythonFile(SharedStream(source), mode="r"), packed)
    stream = io.BufferedReader(content, BUFFER)
    try:
        if start and not packed:  # a line belongs to the range in which it begins
            stream.seek(start - 1)
            place = start - 1 + len(read_line(stream, path))
        while packed or place < stop:
            text = stream.read(size if packed else min(size, stop - place))
            if not text:
                return
            if not text.endswith(b"\n"):
                text += read_line(stream, path)
            if is_quoted and text.count(b'"') % 2:
                left = SAMPLE_BYTES if packed else min(stop - place - len(text), SAMPLE_BYTES)
                text += close_quotes(stream, path, left)
            place += len(text)
            yield text
    finally:
        stream.detach()  # the source stays open


def read_line(stream: io.BufferedReader, path: str) -> bytes:
    """What comes up to the next end of a line, that included."""
    line = stream.readline(RANGE + 1)
    if len(line) > RANGE:
        raise InputError(
            f"a line of {path!r} is longer than {RANGE:,} bytes: is it a file of lines?"
        )
    return line


def close_quotes(stream: io.BufferedReader, path: str, most: int) -> bytes:
    """The lines up to the one in which quotes are closed, of so many bytes at most."""
    lines = b""
    while len(lines) < most:
        line = read_line(stream, path)
        lines += line
        if not line or line.count(b'"') % 2:
            break
    return lines


def convert_cells(
    kind: pa.DataType, cells: list[Any], convert: Callable[[pa.DataType, Any], Any]
) -> tuple[pa.Array, dict[int, str]]:
    """Cells as another type: missing where ``convert`` gives ``None``, and what those held."""
    values = [None if cell is None else convert(kind, cell) for cell in cells]
    wrong = {
        row: repr(cell)[:60]
        for row, (cell, value) in enumerate(zip(cells, values, strict=True))
        if value is None and cell is not None
    }
    return pa.array(values, kind), wrong


class JsonFile(LineFile):
    """A file of JSON lines: one object in each line."""

    def find_schema(self, columns: Columns) -> pa.Schema:
        """The types as which columns are read, inferred from the first lines."""
        seen: dict[str, collections.Counter[type]] = {}
        for entry in map(parse_object, self.text.splitlines()):
            for name, value in (entry or {}).items():
                seen.setdefault(name, collections.Counter()).update([type(value)])
        if not seen:
            raise pa.ArrowInvalid("no line of its beginning is a JSON object")
        roles = dict.fromkeys(columns.text_fields, "task")
        roles |= {name: role for role, name in columns.roles.items()}
        return pa.schema(
            [(name, json_type(roles.get(name), counts)) for name, counts in seen.items()]
        )

    def sample(self, rows: int) -> dict[str, list[Any]]:
        """About so many rows, all columns, as they are."""
        texts = self.sample_text(rows).splitlines()
        lines = (parse_object(texts[place]) for place in evenly(len(texts), rows))
        entries = [entry for entry in lines if entry is not None]
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: [entry.get(name) for entry in entries] for name in names}

    def convert(self, text: bytes, resolved: Resolved) -> tuple[pa.Table, Invalid, Broken]:
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
            pass
        # Some line is not what it must be: line by line, which is slower, finds them all.
        lines = [line for line in text.splitlines() if line.strip()]
        entries = [parse_object(line) for line in lines]
        broken = {
            row: ("line is not a JSON object", repr(lines[row][:60].decode(errors="replace")))
            for row, entry in enumerate(entries)
            if entry is None
        }
        columns, invalid = resolved.columns, {}
        texts, arrays = {columns.task, columns.round, *columns.text_fields}, []
        for field in types:
            kind = pa.string() if field.name in texts else field.type
            given = [entry.get(field.name) for entry in entries if entry is not None]
            values, wrong = convert_cells(kind, given, json_value)
            arrays.append(values)
            if wrong:
                invalid[field.name] = wrong
        return pa.table(arrays, names=types.names), invalid, broken


def parse_object(line: bytes) -> dict[str, Any] | None:
    """A line's object; ``None`` where it has none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def json_type(role: str | None, counts: collections.Counter[type]) -> pa.DataType:
    """What a column is read as, inferred from its first values."""
    seen = set(counts) - {type(None)}
    if role in ("task", "round"):
        if seen <= {int}:
            return pa.int64()
        return pa.float64() if role == "task" and seen <= {int, float} else pa.string()
    if role == "timestamp":
        if 2 * counts[str] > counts.total() - counts[type(None)]:
            return pa.string()
        return pa.float64() if float in seen else pa.int64()
    if seen == {bool} or (role == "chosen" and bool in seen):
        return pa.bool_()
    if list in seen:
        return pa.list_(pa.float64())
    if dict in seen:
        return pa.struct([])
    return pa.float64() if seen & {bool, int, float} or not seen else pa.string()


def json_value(kind: pa.DataType, value: Any) -> Any:
    """A JSON value as a type; ``None`` if it is none. Whole numbers may stand for text."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kinds.is_string(kind):
        text = str(value) if whole else value
        if not isinstance(text, str):
            return None
        return text if text.encode(errors="ignore").decode() == text else None  # half a character
    if kinds.is_integer(kind):
        return value if whole and abs(value) < 2**63 else None
    if kinds.is_boolean(kind):
        return bool(value) if value in (0, 1) else None
    if is_list(kind):
        if not isinstance(value, list):
            return None
        cells = [as_float(one) for one in value]
        fits = all(cell is not None or one is None for cell, one in zip(cells, value, strict=True))
        return cells if fits else None
    return as_float(value)


def as_float(value: Any) -> float | None:
    """A JSON number as a float; ``None`` for anything else, and for one that is too large."""
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None
