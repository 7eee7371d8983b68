"""Parquet: parts are row groups, read one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headstart.fleet.reading.columns import Columns, Resolved, is_text
from headstart.fleet.reading.problems import Block

__all__ = ["blocks", "pieces", "schema"]

LARGE = 256 * 2**20  # bytes: a row group beyond this is read in batches, more slowly


def schema(source: pa.NativeFile, path: str, columns: Columns) -> pa.Schema:
    """The columns of a file."""
    return pq.read_schema(source)


def pieces(source: pa.NativeFile, path: str, rows: int) -> list[tuple[int, int, int | None]]:
    """Ranges of row groups of about that many rows: from, to, and how many rows they have."""
    metadata = pq.read_metadata(source)
    ranges: list[tuple[int, int, int | None]] = []
    start = size = 0
    for group in range(metadata.num_row_groups):
        more = metadata.row_group(group).num_rows
        if size and size + more > rows:
            ranges.append((start, group, size))
            start, size = group, 0
        size += more
    if size:
        ranges.append((start, metadata.num_row_groups, size))
    return ranges


def blocks(
    source: pa.NativeFile,
    path: str,
    span: tuple[int, int],
    resolved: Resolved,
    rows: int,
    threads: bool,
) -> Iterator[Block]:
    """The rows of some row groups, at most ``rows`` at a time."""
    # Text is read as codes into a dictionary: that is how it lies in the file.
    task = resolved.columns.task
    coded = [task] if is_text(resolved.types[task]) else []
    reader = pq.ParquetFile(source, read_dictionary=coded)
    metadata = reader.metadata
    first = sum(metadata.row_group(group).num_rows for group in range(span[0]))
    for group in range(*span):
        for table in group_tables(reader, group, resolved.used, rows, threads):
            for start in range(0, table.num_rows, rows):
                yield Block(table.slice(start, rows), path, first + start)
            first += table.num_rows


def group_tables(
    reader: Any, group: int, names: list[str], rows: int, threads: bool
) -> Iterator[pa.Table]:
    """One row group: whole if it is not too large, or else in batches."""
    metadata = reader.metadata.row_group(group)
    wanted = set(names)
    size = sum(
        metadata.column(index).total_uncompressed_size
        for index in range(metadata.num_columns)
        if metadata.column(index).path_in_schema.split(".")[0] in wanted
        or metadata.column(index).path_in_schema in wanted
    )
    if size <= LARGE:
        yield reader.read_row_group(group, columns=names, use_threads=threads)
        return
    for batch in reader.iter_batches(
        batch_size=rows, row_groups=[group], columns=names, use_threads=threads
    ):
        yield pa.Table.from_batches([batch])
