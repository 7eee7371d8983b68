"""Files of lines, CSV and JSON: cut into ranges of bytes, and read in pieces of whole lines."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
from collections.abc import Generator, Iterator

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

RANGE = 64 * 2**20  # bytes of a part, and of the longest line
PIECE = 16 * 2**20  # bytes that are read at a time
BUFFER = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SAMPLE = 1 << 20  # bytes from which the kinds of columns are told


class LineFile:
    """A file of lines: parts are ranges of bytes, or all of it where it is compressed."""

    def __init__(
        self, source: pa.NativeFile, path: str, columns: Columns, remote: bool = False
    ) -> None:
        self.source, self.path, self.header_end = source, path, 0
        with contextlib.closing(read_lines(source, path, 0, SAMPLE, SAMPLE)) as lines:
            self.text = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
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
        self, text: bytes, resolved: Resolved
    ) -> tuple[pa.Table, dict[str, dict[int, str]], Broken]:
        """Lines as a table, its cells that are of another type, and the lines that are no rows."""
        raise NotImplementedError

    def blocks(self, span: tuple[int, int], resolved: Resolved, rows: int) -> Iterator[Block]:
        """The rows of the lines that begin in a range of bytes, a piece of text at a time."""
        file = self.path if span[0] == 0 else f"{self.path} from byte {span[0]:,}"
        first, skip = 0, self.header_end if span[0] == 0 else 0
        for text in read_lines(self.source, self.path, *span, min(PIECE, RANGE)):
            text, skip = text.removeprefix(BYTE_ORDER_MARK)[skip:], 0
            table, invalid, broken = self.convert(text, resolved)
            numbers, bad = None, BadRows()
            if broken:
                examples = [Example(file, first + row, *why) for row, why in broken.items()]
                reasons = collections.Counter(reason for reason, _ in broken.values())
                counts = dict(sorted(reasons.items()))
                bad = BadRows(len(broken), counts, first_examples(examples))
                every = np.arange(table.num_rows + len(broken))
                numbers = first + np.delete(every, list(broken))
            yield Block(table, file, first, numbers, invalid, bad)
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


def read_lines(
    source: pa.NativeFile, path: str, start: int, stop: int, size: int
) -> Generator[bytes]:
    """The lines that begin in a range of bytes, in pieces of about ``size`` bytes.

    Where the file is compressed, all of its lines.
    """
    packed, place = compression_of(path) is not None, 0
    stream = io.BufferedReader(open_decompressed(source, path), BUFFER)
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
