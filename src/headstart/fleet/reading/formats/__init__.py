"""File formats of logs: how each is divided into parts, and read as blocks of an Arrow table."""

import contextlib
from collections.abc import Iterator
from typing import Any

from headstart.fleet.reading import files
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.formats.columnar import ArrowFile, ParquetFile
from headstart.fleet.reading.formats.csv import CsvFile
from headstart.fleet.reading.formats.lines import JsonFile
from headstart.fleet.reading.stores import Storage

__all__ = ["open_reader"]

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
        reader = READERS[form](source, path, columns, files.is_url(path))
        if reader.schema is not None:
            _ = reader.schema.names  # refused here, if damage has left bytes that are no text
        yield reader
