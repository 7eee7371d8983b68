"""Logs: files of rows, divided into parts that can be read anywhere and in any order."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart import checks
from headstart.errors import InputError
from headstart.fleet.reading import arrow_files, csv_files, json_lines, parquet_files, sources
from headstart.fleet.reading.blocks import to_rows
from headstart.fleet.reading.columns import Columns, Resolved, is_number, is_text, natural
from headstart.fleet.reading.rows import BadRows, Rows

__all__ = ["Logs", "Part"]

ROWS = 500_000  # about this many rows are a part
BLOCK = 1 << 20  # at most this many rows are a block,
BYTES = 256 * 2**20  # and about this many bytes of features

#: Formats that are read through a map of the file in memory: half the time where it was in memory.
MAPPED = ("arrow", "parquet")

#: For every format, a module with the functions schema, pieces and blocks.
READERS: dict[str, Any] = {
    "parquet": parquet_files,
    "csv": csv_files,
    "arrow": arrow_files,
    "jsonl": json_lines,
}


class Part(NamedTuple):
    """A piece of a log that is read at once: some row groups, batches or bytes of a file.

    Attributes
    ----------
    path
        The file, by its path or URL.
    format
        Its format.
    start, stop
        Which row groups, record batches or bytes.
    rows
        How many rows there are, where that is known without reading them.
    bytes
        About how many bytes of the file it is.
    size, changed
        The file's size and its last change, when the logs were looked at.
    """

    path: str
    format: str
    start: int
    stop: int
    rows: int | None
    bytes: int
    size: int
    changed: str

    @property
    def key(self) -> str:
        """What tells this part from every other: another file, or the file changed, another key."""
        return f"{self.path}|{self.size}|{self.changed}|{self.start}-{self.stop}"


class Logs:
    """Logged rows in any number of files.

    Parameters
    ----------
    paths
        A file, a glob (``"logs/**/*.parquet"``), a folder, a URL that fsspec understands
        (``"s3://bucket/logs/"``), or several.
    columns
        Which column is what.
    on_bad_rows
        ``"error"`` refuses a part with rows that cannot be used, and lists all reasons with
        examples; ``"skip"`` leaves such rows out and counts them.
    format
        ``"parquet"``, ``"csv"``, ``"arrow"`` or ``"jsonl"``, where the names of the files do not
        say it.
    storage
        Options for the file system of a URL, such as keys or an address.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Columns,
        *,
        on_bad_rows: str = "error",
        format: str | None = None,
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(columns, Columns):
            raise checks.refuse("columns", "headstart.fleet.Columns", columns)
        self.columns = columns
        self.on_bad_rows = checks.one_of("on_bad_rows", on_bad_rows, ("error", "skip"))
        self.format = None if format is None else checks.one_of("format", format, sources.FORMATS)
        self.storage = dict(storage or {})
        found = sources.find_files(paths, self.format, self.storage)
        self.files, self.remarks = sources.repeats(found)
        self.flag: str | None = None  # a column that looks like the chosen one, and is not named
        self.surveyed: Survey | None = None
        self.intercept = False
        for file in self.files:
            resolved = self.resolve(file)
            if resolved is not None:
                break
        else:
            raise InputError(f"paths must have rows; {self.files[0].path!r} is empty")
        self.first = file
        self.resolved = resolved
        self.remarks += self.odd()
        width = resolved.width
        if resolved.listed:
            width = self.find_width() if width is None else width
            self.feature_names = tuple(f"{resolved.features[0]}[{i}]" for i in range(width))
        else:
            self.feature_names = resolved.features
        self.dim = len(self.feature_names)

    def for_fit(self, intercept: bool) -> Logs:
        """The same logs with the columns that a fit reads, and a constant feature if wanted."""
        other = copy.copy(self)
        other.intercept = intercept
        features = self.columns.features if self.resolved.listed else self.resolved.features
        other.columns = dataclasses.replace(
            self.columns, features=features, timestamp=None, round=None, propensity=None
        )
        return other

    @property
    def width(self) -> int:
        """How many features rows are read with: the log's, and the intercept if there is one."""
        return self.dim + self.intercept

    def __getstate__(self) -> dict[str, Any]:
        # A worker gets parts one by one and needs no list of them.
        return {**self.__dict__, "surveyed": None}

    def __repr__(self) -> str:
        files = f"{len(self.files)} files" if len(self.files) > 1 else repr(self.files[0].path)
        return f"Logs({files}, {self.columns!r})"

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[tuple[pa.NativeFile, Any]]:
        """A file and the module that reads its format; errors name the file."""
        form = sources.format_of(path, self.format)
        with (
            sources.reading(path, form),
            sources.open_file(path, self.storage, mapped=form in MAPPED) as source,
        ):
            yield source, READERS[form]

    def resolve(self, file: sources.File) -> Resolved | None:
        """Find the columns in one file; ``None`` for a file of lines that has none."""
        with self.opened(file.path) as (source, reader):
            schema = reader.schema(source, file.path, self.columns)
            if schema is None:
                return None
            _ = schema.names  # refused here, if damage has left bytes that are no text
        if self.columns.chosen is None:
            self.flag = flag_in(schema, self.columns)
        return self.columns.resolve(schema, repr(file.path))

    def odd(self) -> list[str]:
        """What is odd about the files as a whole."""
        notes = []
        if self.flag is not None:
            notes.append(
                f"column {self.flag!r} looks as if it says which arm was shown: if rows are arms "
                f"on offer, pass chosen={self.flag!r} (--chosen {self.flag}), and only those that "
                f"were shown count"
            )
        unknown = [file.path for file in self.files if not file.changed]
        if unknown:
            more = "" if len(unknown) == 1 else f" and {len(unknown) - 1:,} more"
            notes.append(
                f"nothing tells whether {unknown[0]!r}{more} has changed since (no time, no ETag): "
                f"a fit that was interrupted reads it again"
            )
        return notes

    def find_width(self) -> int:
        """How long the lists of features are: as most are among the first rows."""
        for file in self.files:
            resolved = self.resolve(file)
            if resolved is None or not resolved.listed:
                continue
            with self.opened(file.path) as (source, reader):
                for start, stop, _ in reader.pieces(source, file.path, ROWS):
                    for block in reader.blocks(
                        source, file.path, (start, stop), resolved, 1024, False
                    ):
                        lengths = pc.list_value_length(block.table.column(resolved.features[0]))
                        for common in pc.mode(lengths.drop_null()).to_pylist():
                            if common["mode"]:
                                return int(common["mode"])
        raise InputError(
            f"features must be lists of numbers; no row of column {self.resolved.features[0]!r} "
            f"has any"
        )

    def survey(self) -> Survey:
        """Look at every file once: whether it fits the first, and which parts it has."""
        if self.surveyed is None:
            # Most of the time is spent waiting, above all for an object store.
            with concurrent.futures.ThreadPoolExecutor(min(16, len(self.files))) as pool:
                looks = list(pool.map(self.look, self.files))
            parts = [part for look in looks for part in look.parts]
            notes = [*self.remarks, *(note for look in looks for note in look.notes)]
            notes += differences({look.task: look.path for look in reversed(looks) if look.task})
            self.surveyed = Survey(parts, notes)
        return self.surveyed

    def look(self, file: sources.File) -> Look:
        """Look at one file."""
        with self.opened(file.path) as (source, reader):
            schema = reader.schema(source, file.path, self.columns)
            if schema is None:
                return Look(file.path, None, [], [f"{file.path!r} is empty"])
            resolved = self.columns.resolve(schema, repr(file.path))
            self.compare(resolved, repr(file.path))
            ranges = reader.pieces(source, file.path, ROWS)
        form = sources.format_of(file.path, self.format)
        total = sum(rows or stop - start for start, stop, rows in ranges) or 1
        parts = []
        for start, stop, rows in ranges:
            share = file.size * (rows or stop - start) // total if len(ranges) > 1 else file.size
            parts.append(Part(file.path, form, start, stop, rows, share, file.size, file.changed))
        kind = resolved.kind("task")
        text = "text" if is_text(getattr(kind, "value_type", kind)) else "whole numbers"
        if form == "csv":  # where everything is text
            text = ""
        return Look(file.path, text, parts, [])

    def compare(self, resolved: Resolved, where: str) -> None:
        """Refuse a file whose columns do not go together with the first file's."""
        first, name = self.resolved, repr(self.first.path)
        if resolved.listed != first.listed:
            raise InputError(
                f"features must be lists in every file or in none; {name} and {where} differ"
            )
        if resolved.listed:
            if resolved.width not in (None, self.dim):
                raise InputError(
                    f"features must be lists of {self.dim} numbers, as in {name}; those of {where} "
                    f"have {resolved.width}"
                )
        elif set(resolved.features) != set(first.features):
            more = sorted(set(resolved.features) - set(first.features), key=natural)
            less = sorted(set(first.features) - set(resolved.features), key=natural)
            said = "; ".join(
                f"{', '.join(map(repr, names[:5]))} {which}"
                for names, which in ((less, "missing"), (more, "too many"))
                if names
            )
            raise InputError(
                f"features must be the same {self.dim} columns in every file, as in {name}; in "
                f"{where} there are {len(resolved.features)} ({said})"
            )
        if "timestamp" in resolved.columns.roles:
            mine, other = (clock(one.kind("timestamp")) for one in (first, resolved))
            if mine and other and mine != other:
                raise InputError(
                    f"timestamp must be of one kind in every file; it has {mine} in {name} and "
                    f"{other} in {where}"
                )

    @property
    def notes(self) -> list[str]:
        """What is odd about the files and yet no reason to refuse them."""
        return list(self.survey().notes)

    def parts(self) -> list[Part]:
        """The pieces to read, in a stable order; each can be read in another process."""
        return list(self.survey().parts)

    def read(self, part: Part, *, threads: bool = False, turned: bool = True) -> Iterator[Rows]:
        """The rows of a part, in blocks of at most a million.

        Parameters
        ----------
        part
            One of :meth:`parts`.
        threads
            Lets PyArrow use several cores for it.
        turned
            Whether features are an array with a row for each row. Otherwise they may stay as the
            file has them, :class:`headstart.fleet.reading.transpose.Upright`, which saves a copy.
        """
        sources.check_unchanged(sources.File(part.path, part.size, part.changed))
        rows = max(1024, min(BLOCK, BYTES // (8 * self.dim)))
        bad, seen = BadRows(), 0
        with self.opened(part.path) as (source, reader):
            schema = reader.schema(source, part.path, self.columns)
            resolved = self.columns.resolve(schema, repr(part.path))
            self.compare(resolved, repr(part.path))
            resolved = resolved._replace(features=self.resolved.features)
            for block in reader.blocks(
                source, part.path, (part.start, part.stop), resolved, rows, threads
            ):
                found = to_rows(block, resolved, self.dim, turned)
                if self.intercept:
                    found = found.with_constant()
                seen += block.table.num_rows + block.bad.count
                if self.on_bad_rows == "skip":
                    yield found
                    continue
                # Once a row is bad, the rest of the part is only looked at: all reasons at once.
                bad += found.bad
                if not bad:
                    yield found
        if bad:
            raise refuse_rows(bad, seen, part, self)


class Look(NamedTuple):
    """What was found in one file: how tasks are written, its parts, and anything odd."""

    path: str
    task: str | None
    parts: list[Part]
    notes: list[str]


class Survey(NamedTuple):
    """What was found in all files."""

    parts: list[Part]
    notes: list[str]


def differences(tasks: Mapping[str | None, str]) -> list[str]:
    """A note where task ids are numbers in one file and text in another."""
    if len(tasks) < 2:
        return []
    said = " and ".join(f"{kind} in {path!r}" for kind, path in sorted(tasks.items(), key=str))
    return [f"task ids are {said}: they are compared as text, so that 7 and '7' are the same task"]


def clock(kind: pa.DataType) -> str:
    """What a timestamp's numbers mean; nothing where none is there."""
    if kinds.is_null(kind):
        return ""
    if kinds.is_integer(kind):
        return "whole numbers"
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "seconds with fractions"
    return "spans of time" if kinds.is_duration(kind) else "times"


#: What people call the column that says which arm was shown.
FLAGS = ("chosen", "shown", "selected", "displayed", "picked", "played", "served", "taken")


def flag_in(schema: pa.Schema, columns: Columns) -> str | None:
    """A column that seems to say which arm was shown, by its name and type."""
    used = set(columns.roles.values())
    for field in schema:
        plain = field.name.lower().removeprefix("is_").removeprefix("was_").removeprefix("arm_")
        if plain in FLAGS and field.name not in used and is_number(field.type):
            return str(field.name)
    return None


def hint_at_chosen(bad: BadRows, logs: Logs) -> str:
    """What to do where most bad rows lack a reward, as arms do that were not shown."""
    if logs.columns.chosen is not None or 2 * bad.reasons.get("reward is missing", 0) < bad.count:
        return ""
    name = "COLUMN" if logs.flag is None else logs.flag
    return (
        f"If the rows without a reward are arms that were on offer and not shown, name the column "
        f"that says which was shown (chosen={name!r}, --chosen {name}). "
    )


def refuse_rows(bad: BadRows, seen: int, part: Part, logs: Logs) -> InputError:
    """The error that lists everything that is wrong with the rows of a part."""
    return InputError(
        f"{bad.count:,} of the {seen:,} rows looked at in {part.path!r} cannot be used (the first "
        f"row is 0):\n{bad}\n{hint_at_chosen(bad, logs)}Repair them, or pass on_bad_rows='skip' "
        f"(--on-bad-rows skip) to leave them out, counted"
    )
