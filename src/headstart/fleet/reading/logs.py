"""Logs: files of rows, divided into parts that can be read anywhere and in any order."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart import checks
from headstart.bandit.rewards import RewardModel
from headstart.errors import HeadstartError, InputError
from headstart.fleet.reading import files
from headstart.fleet.reading.arrays import own_array
from headstart.fleet.reading.blocks import to_rows
from headstart.fleet.reading.cells import Block
from headstart.fleet.reading.columns import Columns, Resolved, find_flag, natural
from headstart.fleet.reading.formats import open_reader
from headstart.fleet.reading.rows import BadRows, Rows
from headstart.fleet.reading.types import is_number, is_text, time_unit

ROWS = 500_000  # about this many rows are a part
BLOCK_ROWS = 1 << 20  # at most this many rows are a block,
MAX_FINGERPRINTS = 1 << 18  # fingerprints of a log, about
FRUGAL_ROWS = 1 << 17  # fewer than this if memory is scarce,
BYTES = 256 * 2**20  # and about this many bytes of features
FIELD_GAP = "field  is missing"  # a reason why a row is bad, without the name of the field


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
        """A key of this part: it differs for another part, and when the file has changed."""
        return f"{self.path}|{self.size}|{self.changed}|{self.start}-{self.stop}"

    def describe(self) -> str:
        """Which file, and which rows of it."""
        unit = {"parquet": "row groups", "arrow": "record batches"}.get(self.format, "bytes")
        rows = "" if self.rows is None else f" ({self.rows:,} rows)"
        return f"{self.path!r}, {unit} {self.start:,} to {self.stop:,}{rows},"


class Logs:
    """Logged rows in any number of files.

    Parameters
    ----------
    paths
        A file, a glob (``"logs/**/*.parquet"``), a folder, a URL
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
            raise checks.invalid("columns", "headstart.fleet.Columns", columns)
        self.columns = columns
        self.on_bad_rows = checks.one_of("on_bad_rows", on_bad_rows, ("error", "skip"))
        self.format = None if format is None else checks.one_of("format", format, files.FORMATS)
        self.storage = dict(storage or {})
        self.files, self.remarks = files.find_files(paths, self.format, self.storage)
        self.flag: str | None = None  # a column that looks like the chosen one, and is not named
        self.intercept = False
        self.features_read = True
        self.share = 0.0  # of the rows, whose fingerprints are taken
        self.lenient = False  # whether timestamps and rounds serve the fingerprints alone
        self.rewards = RewardModel()  # what rewards are: they are read as they are learned
        for file in self.files:
            with self.open_reader(file.path) as reader:
                if reader.schema is None:  # a file of lines that has none
                    continue
                if columns.chosen is None:
                    self.flag = find_flag(reader.schema, columns)
                resolved = self.resolve(reader, file.path)
                break
        else:
            raise InputError(f"paths must have rows; {self.files[0].path!r} is empty")
        self.first, self.resolved = file, resolved
        self.remarks += self.file_notes()
        self.feature_names = resolved.features
        if columns.schema is not None:
            self.feature_names = columns.schema.feature_names
        elif resolved.listed:
            width = self.find_width() if resolved.width is None else resolved.width
            self.feature_names = tuple(f"{resolved.features[0]}[{i}]" for i in range(width))
        self.dim = len(self.feature_names)

    def replace(self, **attributes: Any) -> Logs:
        """The same logs with other attributes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | attributes)
        return other

    def for_fit(self, intercept: bool, rewards: RewardModel | None = None) -> Logs:
        """The same logs with the columns that a fit reads, and a constant feature if wanted.

        ``rewards`` says what rewards are; numbers to be maximized unless given.
        """
        columns = dataclasses.replace(self.columns, propensity=None)
        if self.columns.schema is None and not self.resolved.listed:
            columns = dataclasses.replace(columns, features=self.resolved.features)
        model = RewardModel() if rewards is None else rewards
        other = self.replace(intercept=intercept, lenient=True, columns=columns, rewards=model)
        return other.replace(share=other.survey.share)

    @property
    def width(self) -> int:
        """How many features rows are read with: the log's, and the intercept if there is one."""
        return self.dim + self.intercept

    def __getstate__(self) -> dict[str, Any]:
        # A worker gets parts one by one and needs no list of them, or of files.
        state = {name: value for name, value in vars(self).items() if name != "survey"}
        return {**state, "files": [self.first]}

    def __repr__(self) -> str:
        many = f"{len(self.files)} files" if len(self.files) > 1 else repr(self.files[0].path)
        return f"Logs({many}, {self.columns!r})"

    def open_reader(self, path: str, frugal: bool = False) -> AbstractContextManager[Any]:
        """The reader of a file."""
        return open_reader(path, self.columns, self.format, self.storage, frugal)

    def resolve(self, reader: Any, path: str) -> Resolved:
        """Find the columns in one file and in the names of its folders."""
        return self.columns.resolve(reader.schema, repr(path), files.partitions_of(path))

    def file_notes(self) -> list[str]:
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
            with self.open_reader(file.path) as reader:
                resolved = None if reader.schema is None else self.resolve(reader, file.path)
                if resolved is None or not resolved.listed:
                    continue
                for start, stop, _ in reader.spans(ROWS):
                    for block in reader.blocks((start, stop), resolved, 1024):
                        lengths = pc.list_value_length(block.table.column(resolved.features[0]))
                        for common in pc.mode(lengths.drop_null()).to_pylist():
                            if common["mode"]:
                                return int(common["mode"])
        name = self.resolved.features[0]
        raise InputError(f"features must be lists of numbers; no row of column {name!r} has any")

    @functools.cached_property
    def survey(self) -> Survey:
        """What a look at every file has found: whether it fits the first, and its parts."""
        # Most of the time is spent waiting, above all for an object store.
        with concurrent.futures.ThreadPoolExecutor(min(16, len(self.files))) as pool:
            looks = list(pool.map(self.survey_file, self.files))
        parts = [part for some, _ in looks for part in some]
        kinds = {file.path: kind for file, (_, kind) in zip(self.files, looks, strict=True)}
        notes = [*self.remarks, *describe_id_types(kinds)]
        notes += [f"{path!r} is empty" for path, kind in kinds.items() if kind is None]
        copies = files.find_copies(self.files, self.storage)
        rows = sum(part.rows or part.bytes // (4 * self.dim + 8) for part in parts)
        return Survey(parts, rows, notes, copies, min(1.0, MAX_FINGERPRINTS / max(rows, 1)))

    def survey_file(self, file: files.File) -> tuple[list[Part], str | None]:
        """The parts of one file, and how its ids are written; ``None`` where it is empty."""
        with self.open_reader(file.path) as reader:
            if reader.schema is None:
                return [], None
            resolved = self.resolve(reader, file.path)
            self.compare(resolved, repr(file.path))
            spans = reader.spans(ROWS)
        form = files.format_of(file.path, self.format)
        total = sum(rows or stop - start for start, stop, rows in spans) or 1
        parts = []
        for start, stop, rows in spans:
            share = file.size * (rows or stop - start) // total if len(spans) > 1 else file.size
            parts.append(Part(file.path, form, start, stop, rows, share, file.size, file.changed))
        kind = resolved.kind("task")
        text = "text" if is_text(getattr(kind, "value_type", kind)) else "whole numbers"
        return parts, "" if form == "csv" else text  # in CSV all is text

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
            here, there = set(resolved.features), set(first.features)
            differences = "; ".join(
                f"{', '.join(map(repr, sorted(names, key=natural)[:5]))} {which}"
                for names, which in ((there - here, "missing"), (here - there, "too many"))
                if names
            )
            raise InputError(
                f"features must be the same {self.dim} columns in every file, as in {name}; in "
                f"{where} there are {len(resolved.features)} ({differences})"
            )
        if "timestamp" in resolved.columns.roles and not self.lenient:
            mine, other = (time_unit(one.kind("timestamp")) for one in (first, resolved))
            if mine and other and mine != other:
                raise InputError(
                    f"timestamp must be of one kind in every file; it has {mine} in {name} and "
                    f"{other} in {where}"
                )

    @property
    def notes(self) -> list[str]:
        """What is odd about the files and yet no reason to refuse them."""
        return [*self.survey.notes, *self.survey.copies]

    def parts(self) -> list[Part]:
        """The pieces to read, in a stable order; each can be read in another process."""
        return list(self.survey.parts)

    def decoded_bytes(self, part: Part) -> int:
        """About how many bytes the rows of a part take in memory, at most."""
        return 2 * part.bytes if part.rows is None else 8 * (self.width + 4) * part.rows

    def read(
        self, part: Part, *, transposed: bool = True, rows: int = BLOCK_ROWS
    ) -> Iterator[Rows]:
        """The rows of a part, in blocks of at most a million.

        Parameters
        ----------
        part
            One of :meth:`parts`.
        transposed
            Whether features are an array with a row for each row. Otherwise they may stay as the
            file has them, :class:`~headstart.fleet.reading.arrays.FeatureColumns`, and arrays may
            be read-only, which saves copies.
        rows
            How many rows a block has, at most.

        Raises
        ------
        FileError
            If the file has changed since the logs were opened, or while it was read.
        """
        file = files.File(part.path, part.size, part.changed)
        files.check_unchanged(file, self.storage)
        rows = max(1024, min(rows, BYTES // (8 * max(self.dim, 1))))
        bad, seen = BadRows(), 0
        try:
            for block, resolved in self.blocks(part, rows):
                usable = to_rows(block, resolved, self.dim, self.share, self.lenient)
                usable = self.as_learned(usable)
                usable = usable.with_constant() if self.intercept else usable
                usable = usable.map(own_array) if transposed else usable
                seen += block.table.num_rows + block.bad.count
                # Once a row is bad, the rest of the part is only looked at: all reasons at once.
                bad += usable.bad
                if self.on_bad_rows == "skip" or not bad:
                    yield from usable.split(rows)
        except HeadstartError:
            files.check_unchanged(file, self.storage)  # if it was changed, that is why
            raise
        files.check_unchanged(file, self.storage)
        if bad and self.on_bad_rows == "error":
            raise refuse_rows(bad, seen, part, self)

    def as_learned(self, rows: Rows) -> Rows:
        """Rows with the rewards that a model learns from: of a cost, its negative.

        Rewards of arms that were not chosen are learned by nobody and left out.
        """
        if self.rewards == RewardModel():
            return rows
        use = slice(None) if rows.chosen is None else rows.chosen
        rewards = np.full(rows.count, np.nan)
        try:
            rewards[use] = self.rewards.read_many(rows.rewards[use])
        except InputError as error:
            raise InputError(f"column {self.columns.reward!r}: {error}") from None
        return rows._replace(rewards=rewards)

    def blocks(self, part: Part, rows: int) -> Iterator[tuple[Block, Resolved]]:
        """The rows of a part as they are in its file and in the names of its folders."""
        with self.open_reader(part.path, frugal=rows < FRUGAL_ROWS) as reader:
            resolved = self.resolve(reader, part.path)
            self.compare(resolved, repr(part.path))
            features = self.resolved.features if self.features_read else ()
            resolved = resolved._replace(features=features)
            for block in reader.blocks((part.start, part.stop), resolved, rows):
                table = block.table
                for name, value in resolved.partitions.items():
                    kind = resolved.types[name]
                    cell = float(value) if value is not None and is_number(kind) else value
                    column = pa.repeat(pa.scalar(cell, kind), table.num_rows)
                    table = table.append_column(name, column)
                yield block._replace(table=table), resolved


class Survey(NamedTuple):
    """What was found in all files.

    There are about so many ``rows``. ``copies`` describes files that are there twice; to find
    repeated rows, fingerprints are taken of a ``share`` of the rows.
    """

    parts: list[Part]
    rows: int
    notes: list[str]
    copies: list[str]
    share: float


def describe_id_types(kinds: dict[str, str | None]) -> list[str]:
    """A note where task ids are numbers in one file and text in another, by the files' paths."""
    first = {kind: path for path, kind in reversed(kinds.items()) if kind}
    if len(first) < 2:
        return []
    both = " and ".join(f"{kind} in {path!r}" for kind, path in sorted(first.items()))
    return [f"task ids are {both}: they are compared as text, so that 7 and '7' are the same task"]


def refuse_rows(bad: BadRows, seen: int, part: Part, logs: Logs) -> InputError:
    """The error that lists everything that is wrong with the rows of a part."""
    hint = "".join(f"{text[0].upper()}{text[1:]}. " for text in advise(bad, logs))
    return InputError(
        f"{bad.count:,} of the {seen:,} rows looked at in {part.path!r} cannot be used (the first "
        f"row is 0):\n{bad}\n{hint}Repair them, or pass on_bad_rows='skip' (--on-bad-rows skip) to "
        f"leave them out, counted"
    )


def advise(bad: BadRows, logs: Logs) -> list[str]:
    """What rows that cannot be used may be, and how to say so."""
    advice = []
    if logs.columns.chosen is None and 2 * bad.reasons.get("reward is missing", 0) >= bad.count:
        name = logs.flag or "COLUMN"
        advice.append(
            f"if the rows without a reward are arms that were on offer and not shown, name the "
            f"column that says which was shown: chosen={name!r} (--chosen {name})"
        )
    gaps = [reason[6:-11] for reason in bad.reasons if reason[:6] + reason[-11:] == FIELD_GAP]
    if gaps:
        advice.append(
            f'to accept missing values, set "missing" to true in the schema: {", ".join(gaps)}'
        )
    if any(reason.startswith("feature ") and "not a number" in reason for reason in bad.reasons):
        advice.append(
            "columns of text are features by a schema in place of --features (headstart check "
            "--write-schema FILE proposes one)"
        )
    return advice
