"""Arrow IPC (Feather too): parts are record batches; a file in stream form is one part."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headstart.fleet.reading.columns import Columns, Resolved
from headstart.fleet.reading.problems import Block

__all__ = ["blocks", "pieces", "schema"]

MAGIC = b"ARROW1"


def is_stream(source: pa.NativeFile) -> bool:
    """Whether a file is in the stream form, which can be read only from its beginning."""
    source.seek(0)
    start: bytes = source.read(len(MAGIC))
    source.seek(0)
    return start != MAGIC


def schema(source: pa.NativeFile, path: str, columns: Columns) -> pa.Schema:
    """The columns of a file."""
    if is_stream(source):
        return pa.ipc.open_stream(source).schema
    return pa.ipc.open_file(source).schema


def pieces(source: pa.NativeFile, path: str, rows: int) -> list[tuple[int, int, int | None]]:
    """Ranges of record batches of about that many rows, taking the first batch for typical."""
    if is_stream(source):
        return [(0, 0, None)]
    reader = pa.ipc.open_file(source)
    count = reader.num_record_batches
    if not count:
        return []
    typical = max(1, reader.get_batch(0).num_rows)
    step = max(1, rows // typical)
    return [
        (start, min(start + step, count), typical * (min(start + step, count) - start))
        for start in range(0, count, step)
    ]


def blocks(
    source: pa.NativeFile,
    path: str,
    span: tuple[int, int],
    resolved: Resolved,
    rows: int,
    threads: bool,
) -> Iterator[Block]:
    """The rows of some record batches, at most ``rows`` at a time."""
    first = 0
    for batch in batches(source, span, resolved, threads):
        file = path if span[0] == 0 else f"{path} from record batch {span[0]:,}"
        table = pa.Table.from_batches([batch]).select(resolved.used)
        for start in range(0, table.num_rows, rows):
            yield Block(table.slice(start, rows), file, first + start)
        first += batch.num_rows


def batches(
    source: pa.NativeFile, span: tuple[int, int], resolved: Resolved, threads: bool
) -> Iterator[pa.RecordBatch]:
    """The record batches, with only the columns that are used."""
    stream = is_stream(source)
    opened = pa.ipc.open_stream if stream else pa.ipc.open_file
    names = opened(source).schema.names
    source.seek(0)
    options = pa.ipc.IpcReadOptions(
        included_fields=sorted(names.index(name) for name in resolved.used), use_threads=threads
    )
    reader = opened(source, options=options)
    if stream:
        yield from reader
        return
    for index in range(*span):
        yield reader.get_batch(index)
