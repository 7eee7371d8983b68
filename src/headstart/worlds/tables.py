"""Columns of any table: a Polars or pandas frame, a Parquet file or a CSV file."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import FileError, InputError, MissingFileError
from headstart.features.conversion import frame_names
from headstart.records import Array
from headstart.worlds.offers import Indices

WANT = "a Polars or pandas frame, or the path of a .parquet or .csv file"


def is_path(table: object) -> bool:
    """Whether a table is given by its path."""
    return isinstance(table, (str, os.PathLike))


def describe(table: Any) -> str:
    """A table in a few words.

    >>> describe("log.csv")
    'log.csv'
    """
    return os.fspath(table) if is_path(table) else f"{len(table)} rows"


def column_names(table: Any) -> list[str]:
    """The names of a table's columns; of a file only the beginning is read."""
    if is_path(table):
        return list(load(table, None).columns)
    # A lazy frame has columns too, but no rows yet.
    if hasattr(table, "collect") or not hasattr(table, "columns"):
        raise checks.invalid("table", WANT, table)
    return frame_names("table", table)


def select(table: Any, names: Sequence[str]) -> Any:
    """A frame with at least these columns."""
    if is_path(table):
        return load(table, tuple(names))
    if all(isinstance(name, str) for name in table.columns):
        return table
    return table.set_axis(column_names(table), axis=1)  # in pandas, names may be numbers


def load(table: str | os.PathLike[str], names: tuple[str, ...] | None) -> Any:
    """Some columns of a file, remembered until the file changes; ``None`` for no row of any."""
    path = Path(table).expanduser()
    if not path.exists():
        raise MissingFileError(f"table must be {WANT}; nothing is at {str(path)!r}")
    stamp = path.stat()
    return load_file(path, stamp.st_mtime_ns, stamp.st_size, names)


@functools.lru_cache(maxsize=8)
def load_file(path: Path, changed: int, size: int, names: tuple[str, ...] | None) -> Any:
    """Some columns of a file that was last changed then and has that size."""
    try:
        import polars as pl
    except ImportError as error:
        raise ImportError(
            "reading a table from a file needs polars: pip install 'headstart[lab]'"
        ) from error
    kind = path.suffix.lower()
    columns = None if names is None else list(names)
    rows = 0 if names is None else None
    try:
        if kind in (".parquet", ".pq"):
            return pl.read_parquet(path, columns=columns, n_rows=rows)
        if kind == ".csv":
            # A column may look like whole numbers for long before the first fraction.
            return pl.read_csv(path, columns=columns, n_rows=rows, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise FileError(f"table {str(path)!r} could not be read ({error})") from error
    raise checks.invalid("table", WANT, str(path))


def find_column(argument: str, name: object, names: Sequence[str], where: str = "the table") -> str:
    """The name of a column, if there is one of that name."""
    if isinstance(name, str) and name in names:
        return name
    close = difflib.get_close_matches(str(name), names, n=1)
    examples = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    hint = f"did you mean {close[0]!r}?" if close else f"there are {examples}"
    raise InputError(
        f"{argument} must name a column of {where}; got {checks.describe(name)} ({hint})"
    )


def find_columns(
    argument: str,
    patterns: object,
    names: Sequence[str],
    reserved: Sequence[str],
    where: str = "the table",
) -> list[str]:
    """The columns meant by names and patterns; patterns never mean the ``reserved`` ones.

    >>> find_columns("contexts", ["x*", "age"], ["task", "x1", "age", "x2"], ["task"])
    ['x1', 'x2', 'age']
    """
    entries = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(entries, (list, tuple)) or not entries:
        raise checks.invalid(argument, "names of columns, or a pattern such as 'x*'", patterns)
    columns: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, str) and entry not in names and ("*" in entry or "?" in entry):
            open_names = [name for name in names if name not in reserved]
            matches = fnmatch.filter(open_names, entry)
            if not matches:
                raise InputError(
                    f"{argument} must name columns of {where}; no column matches {entry!r} "
                    f"(there are {', '.join(open_names[:20])})"
                )
            columns |= dict.fromkeys(matches)
        else:
            columns[find_column(argument, entry, names, where)] = None
    return list(columns)


def numeric_column(argument: str, frame: Any, name: str) -> Array:
    """A column of finite numbers."""
    series = frame[name]
    try:
        if hasattr(series, "isna"):  # the missing value of pandas is not a number
            column = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            column = series.to_numpy()
        if column.dtype.kind not in "biufO":
            raise TypeError
        array: Array = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{argument} must be numbers; column {name!r} has type {series.dtype}"
        ) from None
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{argument} must be finite everywhere; got {array[row]} at row {row} (the first row "
            f"is 0), column {name!r}"
        )
    return array


def factorize(argument: str, frame: Any, name: str) -> tuple[npt.NDArray[Any], Indices]:
    """The different values of a column, sorted, and which one each row has."""
    series = frame[name]
    missing = series.isna() if hasattr(series, "isna") else series.is_null()
    column = series.to_numpy()
    absent = np.asarray(missing.to_numpy(), dtype=bool)
    if column.dtype.kind == "f":
        absent = absent | np.isnan(column)
    if absent.any():
        raise InputError(
            f"{argument} must be known everywhere; it is missing at row {int(np.argmax(absent))} "
            f"(the first row is 0), column {name!r}"
        )
    try:
        values, inverse = np.unique(column, return_inverse=True)
    except TypeError as error:
        raise InputError(
            f"{argument} must have values of one kind; column {name!r} has several ({error})"
        ) from None
    return values, inverse
