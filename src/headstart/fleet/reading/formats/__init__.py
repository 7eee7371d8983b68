"""File formats of logs: how each is divided into parts, and read as blocks of an Arrow table."""

from typing import Any

from headstart.fleet.reading.formats.columnar import ArrowFile, ParquetFile
from headstart.fleet.reading.formats.csv import CsvFile
from headstart.fleet.reading.formats.json_lines import JsonFile

__all__ = ["READERS"]

READERS: dict[str, Any] = {
    "parquet": ParquetFile,
    "csv": CsvFile,
    "arrow": ArrowFile,
    "jsonl": JsonFile,
}
