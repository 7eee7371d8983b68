"""Parquet and Arrow IPC (Feather too): parts are row groups and record batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from headstart.fleet.reading.cells import Block
from headstart.fleet.reading.columns import Columns, Resolved

Span = tuple[int, int, int | None]  # from, to, and how many rows, where that is known

MAGIC = b"ARROW1"
SAMPLES = 4  # places of a file that a sample of rows is from
BUFFER = 1 << 18  # bytes of a column that are read at a time


class ParquetFile:
    """A Parquet file.

    Parameters
    ----------
    source
        The file, open.
    path
        Its name, for messages.
    columns
        What will be read.
    remote
        Whether it is worth while to fetch all columns of a row group at once.
    """

    def __init__(self, source: pa.NativeFile, path: str, columns: Columns, remote: bool) -> None:
        self.source, self.path, self.remote = source, path, remote
        self.metadata = pq.read_metadata(source)
        self.schema: pa.Schema | None = self.metadata.schema.to_arrow_schema()

    def spans(self, rows: int) -> list[Span]:
        """Ranges of row groups of about that many rows."""
        ranges: list[Span] = []
        start = size = 0
        for group in range(self.metadata.num_row_groups):
            more = self.metadata.row_group(group).num_rows
            if size and size + more > rows:
                ranges.append((start, group, size))
                start, size = group, 0
            size += more
        return [*ranges, (start, self.metadata.num_row_groups, size)] if size else ranges

    def blocks(self, span: tuple[int, int], resolved: Resolved, rows: int) -> Iterator[Block]:
        """The rows of some row groups, at most ``rows`` at a time."""
        # Text is read as codes into a dictionary: that is how it lies in the file.
        reader = pq.ParquetFile(
            self.source,
            metadata=self.metadata,
            read_dictionary=resolved.coded,
            pre_buffer=self.remote,
            buffer_size=0 if self.remote else BUFFER,
        )
        first = sum(self.metadata.row_group(group).num_rows for group in range(span[0]))
        for group in range(*span):
            for batch in reader.iter_batches(
                batch_size=rows, row_groups=[group], columns=resolved.used, use_threads=False
            ):
                yield Block(pa.Table.from_batches([batch]), self.path, first)
                first += batch.num_rows

    is_seekable = True
    marked: tuple[str, ...] = ()  # as of lines

    def sample(self, rows: int) -> pa.Table:
        """About so many rows of all columns, from places that are evenly spread."""
        reader = pq.ParquetFile(self.source, metadata=self.metadata)
        count = self.metadata.num_row_groups
        groups, places = spread(count, self.metadata.num_rows / max(count, 1), rows)
        size = -(-rows // max(len(groups) * places, 1))
        batches = []
        for group in groups:
            pieces = -(-self.metadata.row_group(group).num_rows // size)
            chosen = evenly(pieces, places)
            some = reader.iter_batches(batch_size=size, row_groups=[group])
            for number, batch in enumerate(itertools.islice(some, max(chosen, default=-1) + 1)):
                if number in chosen:
                    batches.append(batch)
        return pa.Table.from_batches(batches, self.schema)


class ArrowFile:
    """An Arrow IPC file, or a stream of Arrow's, which can be read only from its beginning."""

    def __init__(self, source: pa.NativeFile, path: str, columns: Columns, remote: bool) -> None:
        self.source, self.path = source, path
        source.seek(0)
        self.stream = source.read(len(MAGIC)) != MAGIC
        self.schema: pa.Schema | None = self.open().schema

    def open(self, options: pa.ipc.IpcReadOptions | None = None) -> pa.RecordBatchReader:
        """A reader of all record batches."""
        self.source.seek(0)
        return (pa.ipc.open_stream if self.stream else pa.ipc.open_file)(
            self.source, options=options
        )

    def spans(self, rows: int) -> list[Span]:
        """Ranges of record batches of about that many rows, taking the first batch for typical."""
        if self.stream:
            return [(0, 0, None)]
        reader = self.open()
        count = reader.num_record_batches
        typical = max(1, reader.get_batch(0).num_rows) if count else 1
        step = max(1, rows // typical)
        return [
            (start, min(start + step, count), typical * (min(start + step, count) - start))
            for start in range(0, count, step)
        ]

    def blocks(self, span: tuple[int, int], resolved: Resolved, rows: int) -> Iterator[Block]:
        """The rows of some record batches, at most ``rows`` at a time."""
        assert self.schema is not None
        places = sorted(self.schema.names.index(name) for name in resolved.used)
        reader = self.open(pa.ipc.IpcReadOptions(included_fields=places, use_threads=False))
        batches = reader if self.stream else map(reader.get_batch, range(*span))
        file = self.path if span[0] == 0 else f"{self.path} from record batch {span[0]:,}"
        first = 0
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                yield Block(pa.Table.from_batches([piece]), file, first + start)
            first += batch.num_rows

    marked: tuple[str, ...] = ()  # as of lines

    @property
    def is_seekable(self) -> bool:
        """Whether a sample of rows can be from all of the file."""
        return not self.stream

    def sample(self, rows: int) -> pa.Table:
        """About so many rows of all columns, from places that are evenly spread."""
        reader = self.open()
        if self.stream:
            batches = first_batches(reader, rows)
            places = max(SAMPLES // max(len(batches), 1), 1)
        else:
            count = reader.num_record_batches
            typical = reader.get_batch(0).num_rows if count else 0
            numbers, places = spread(count, typical, rows)
            batches = [reader.get_batch(number) for number in numbers]
        size = -(-rows // max(len(batches) * places, 1))
        pieces = [
            batch.slice(size * place, size)
            for batch in batches
            for place in evenly(-(-batch.num_rows // size), places)
        ]
        return pa.Table.from_batches(pieces, self.schema)


def first_batches(reader: pa.RecordBatchReader, rows: int) -> list[pa.RecordBatch]:
    """The first record batches of a stream: a few, and enough for so many rows."""
    batches = list[pa.RecordBatch]()
    for batch in reader:
        batches.append(batch)
        rows -= batch.num_rows
        if rows <= 0 and len(batches) >= SAMPLES:
            break
    return batches


def spread(count: int, typical: float, rows: int) -> tuple[list[int], int]:
    """The parts of a file that a sample of rows is from, and from how many places of each.

    The file has ``count`` parts of ``typical`` rows. Parts are read from their beginning, so there
    is more than one place in a part only where there are few parts.

    >>> spread(1, 60_000, 16_000), spread(2, 30_000, 16_000), spread(9, 7_000, 16_000)
    (([0], 4), ([0, 1], 2), ([0, 2, 4, 6], 1))
    >>> len(spread(60, 1_000, 16_000)[0])
    16
    """
    parts = evenly(count, max(SAMPLES, math.ceil(rows / max(typical, 1.0))))
    return parts, max(SAMPLES // max(len(parts), 1), 1)


def evenly(count: int, most: int) -> list[int]:
    """At most so many numbers below ``count``, evenly spread.

    >>> evenly(3, 4), evenly(9, 4)
    ([0, 1, 2], [0, 2, 4, 6])
    """
    return [count * number // min(count, most) for number in range(min(count, most))]
