"""Files of lines, CSV and JSON: cut into ranges of bytes, and read in pieces of whole lines."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headstart.errors import InputError
from headstart.fleet.reading.cells import Block
from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.files import compression_of
from headstart.fleet.reading.formats.columnar import Span
from headstart.fleet.reading.rows import BadRows, Example, first_examples

__all__ = ["RANGE", "Broken", "LineFile"]

Broken = dict[int, tuple[str, str]]  # lines that are no rows: by their number, why, what they hold

RANGE = 64 * 2**20  # bytes of a part, and of what is read at a time
SAMPLE = 1 << 20  # bytes from which the kinds of columns are told


class LineFile:
    """A file of lines: parts are ranges of bytes, or all of it where it is compressed."""

    def __init__(
        self, source: pa.NativeFile, path: str, columns: Columns, remote: bool = False
    ) -> None:
        self.source, self.path, self.header_end = source, path, 0
        self.text = read_first_lines(source, path)
        self.schema = self.find_schema(columns) if self.text.strip() else None

    def find_schema(self, columns: Columns) -> pa.Schema:
        """The types as which columns are read, told from the first lines."""
        raise NotImplementedError

    def spans(self, rows: int) -> list[Span]:
        """Ranges of bytes; how many rows they have is not known."""
        size = self.source.size()
        count = 1 if compression_of(self.path) else -(-size // RANGE)
        edges = [size * number // max(count, 1) for number in range(count + 1)]
        return [(start, stop, None) for start, stop in itertools.pairwise(edges) if stop]

    def convert(
        self, text: bytes, resolved: Resolved, threads: bool
    ) -> tuple[pa.Table, dict[str, dict[int, str]], Broken]:
        """Lines as a table, its cells that are of another type, and the lines that are no rows."""
        raise NotImplementedError

    def blocks(
        self, span: tuple[int, int], resolved: Resolved, rows: int, threads: bool
    ) -> Iterator[Block]:
        """The rows of the lines that begin in a range of bytes, a piece of text at a time."""
        file = self.path if span[0] == 0 else f"{self.path} from byte {span[0]:,}"
        first, skip = 0, self.header_end if span[0] == 0 else 0
        for text in whole_lines(self.source, self.path, span):
            text, skip = text.removeprefix(b"\xef\xbb\xbf")[skip:], 0
            table, spoiled, broken = self.convert(text, resolved, threads)
            numbers, bad = None, BadRows()
            if broken:
                examples = [Example(file, first + row, *why) for row, why in broken.items()]
                reasons = collections.Counter(reason for reason, _ in broken.values())
                counts = dict(sorted(reasons.items()))
                bad = BadRows(len(broken), counts, first_examples(examples))
                every = np.arange(table.num_rows + len(broken))
                numbers = first + np.delete(every, list(broken))
            yield Block(table, file, first, numbers, spoiled, bad)
            first += table.num_rows + len(broken)


class SharedStream:
    """A file that stays open when a stream that reads from it is closed."""

    closed = False

    def __init__(self, source: pa.NativeFile) -> None:
        self.source = source

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data: bytes = self.source.read(size)
        return data

    def close(self) -> None:
        """Nothing: whoever lent it closes it."""


def open_decompressed(source: pa.NativeFile, path: str) -> pa.NativeFile:
    """A file's content from its beginning, uncompressed."""
    source.seek(0)
    packed = compression_of(path)
    if packed is None:
        return source
    return pa.CompressedInputStream(pa.PythonFile(SharedStream(source), mode="r"), packed)


def read_first_lines(source: pa.NativeFile, path: str) -> bytes:
    """Whole lines from the beginning of a file, without a byte order mark."""
    stream = open_decompressed(source, path)
    text: bytes = stream.read(SAMPLE)
    if len(text) == SAMPLE:
        while b"\n" not in text:
            more = stream.read(SAMPLE)
            if not more:
                break
            text += more
        text = text[: text.rfind(b"\n") + 1] or text
    return text.removeprefix(b"\xef\xbb\xbf")


def whole_lines(source: pa.NativeFile, path: str, span: tuple[int, int]) -> Iterator[bytes]:
    """The lines that begin in a range of bytes (in all of the file, where it is compressed)."""
    if compression_of(path):
        yield from split_lines(open_decompressed(source, path), None, path)
        return
    start, stop = span
    if start:
        # A line belongs to the range in which it begins.
        source.seek(start - 1)
        start = start - 1 + len(read_rest_of_line(source, path))
    if start < stop:
        source.seek(start)
        yield from split_lines(source, stop - start, path)


def split_lines(stream: pa.NativeFile, length: int | None, path: str) -> Iterator[bytes]:
    """A stream in pieces of whole lines; the last line may go on beyond ``length``."""
    rest = b""
    while length is None or length > 0:
        data = stream.read(RANGE if length is None else min(RANGE, length))
        if not data:
            break
        length = None if length is None else length - len(data)
        text = rest + data if rest else data
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if len(rest) > RANGE:
            raise line_too_long(path)
        if end:
            yield text[:end]
    if rest:
        yield rest + (read_rest_of_line(stream, path) if length == 0 else b"")


def line_too_long(path: str) -> InputError:
    """The error for a file without ends of lines."""
    return InputError(f"a line of {path!r} is longer than {RANGE:,} bytes: is it a file of lines?")


def read_rest_of_line(stream: pa.NativeFile, path: str) -> bytes:
    """What comes up to the next end of a line, that included."""
    pieces: list[bytes] = []
    while data := stream.read(1 << 16):
        end = data.find(b"\n") + 1
        if end:
            return b"".join([*pieces, data[:end]])
        pieces.append(data)
        if sum(map(len, pieces)) > RANGE:
            raise line_too_long(path)
    return b"".join(pieces)
