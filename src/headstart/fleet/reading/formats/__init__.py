"""File formats of logs: how each is divided into parts, and read as blocks of an Arrow table.

A schema can be proposed from a sample of the rows with all columns.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headstart.errors import InputError
from headstart.fleet.reading import files
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.formats.columnar import ArrowFile, ParquetFile, evenly
from headstart.fleet.reading.formats.csv import CsvFile
from headstart.fleet.reading.formats.lines import JsonFile
from headstart.fleet.reading.stores import Storage, is_url

__all__ = ["open_reader", "sample_log"]

READERS: dict[str, Any] = {
    "parquet": ParquetFile,
    "csv": CsvFile,
    "arrow": ArrowFile,
    "jsonl": JsonFile,
}


@contextlib.contextmanager
def open_reader(
    path: str, columns: Columns, given: str | None, storage: Storage, frugal: bool
) -> Iterator[Any]:
    """The reader of a file; errors name the file.

    A file that is mapped into memory is read faster, but all that was read of it counts as memory
    in use, so a ``frugal`` reader does not.
    """
    form = files.format_of(path, given)
    mapped = form in files.MAPPED and not frugal
    with files.file_errors(path, form), files.open_file(path, storage, mapped=mapped) as source:
        reader = READERS[form](source, path, columns, is_url(path))
        if reader.schema is not None:
            _ = reader.schema.names  # refused here, if damage has left bytes that are no text
        yield reader


FILES = 16  # that a sample is from
ROWS = 16_000


def sample_log(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str | None = None,
    storage: Mapping[str, Any] | None = None,
    task: str | None = None,
    reward: str | None = None,
) -> tuple[dict[str, list[Any]], list[str]]:
    """Rows of up to 16 files, by columns, and what to know of them.

    They are spread over each file, or at its beginning where it is compressed.

    Parameters
    ----------
    paths, format, storage
        As for :class:`~headstart.fleet.Logs`.
    task, reward
        The names of these columns, if they are known: they determine the separator of a CSV file.
    """
    every_file, _ = files.find_files(paths, format, storage or {})
    chosen = [every_file[place] for place in evenly(len(every_file), FILES)]
    needed = Columns(task or "task", reward or "reward", "*")
    tables: list[tuple[int, dict[str, list[Any]]]] = []
    beginnings, marked = 0, dict[str, None]()
    for file in chosen:
        with open_reader(file.path, needed, format, storage or {}, frugal=True) as reader:
            if reader.schema is None:
                continue
            table = reader.sample(-(-ROWS // len(chosen)))
            beginnings += not reader.is_seekable
            marked |= dict.fromkeys(reader.marked)
        plain = table.to_pydict() if isinstance(table, pa.Table) else table
        count = max(map(len, plain.values()), default=0)
        folders = {
            name: [folder_value(text)] * count
            for name, text in files.partitions_of(file.path).items()
        }
        tables.append((count, folders | plain))
    if not any(count for count, _ in tables):
        raise InputError(f"paths must have rows; {every_file[0].path!r} has none")
    every = dict.fromkeys(name for _, table in tables for name in table)
    notes = []
    if len(chosen) < len(every_file):
        notes.append(f"the sample is from {len(chosen)} of {len(every_file):,} files")
    if beginnings:
        notes.append(
            "the sample is from the beginning of the file, which cannot be read elsewhere: values "
            "that come later may be missing here"
        )
    if marked:
        notes.append(f"cells '.', '-' and '?' are missing numbers in {', '.join(marked)}")
    columns = {
        name: [
            float(value) if isinstance(value, Decimal) else value
            for count, table in tables
            for value in table.get(name, [None] * count)
        ]
        for name in every
    }
    return columns, notes


def folder_value(text: str | None) -> Any:
    """What the name of a folder says: a number, or text, or nothing."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
