"""Which column of a log is what: the task, the reward, the features, and what else was logged."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as kinds

from headstart import checks
from headstart.errors import InputError
from headstart.features.schema.encoder import Encoder
from headstart.features.schema.fields import Field
from headstart.features.schema.schema import Schema
from headstart.fleet.reading import types
from headstart.fleet.reading.types import is_list, is_number, is_text
from headstart.settings import Settings
from headstart.worlds import tables

OPTIONAL = ("weight", "timestamp", "round", "chosen", "propensity", "mean_of")


@dataclasses.dataclass(frozen=True, repr=False)
class Columns(Settings):
    """The names of a log's columns.

    Parameters
    ----------
    task
        The id of the task: text or whole numbers. Ids are compared as text, so that 7 and ``"7"``
        are the same task.
    reward
        The reward: numbers or booleans.
    features
        A pattern such as ``"x*"`` (the columns it matches, ``x2`` before ``x10``); names, as a
        tuple or as ``"age,price"``; or the name of one column whose cells are lists of numbers.
        Not with a ``schema``.
    weight
        The weight of a row: one of weight w counts as w equal rows. Rows of weight 0 are left out.
    timestamp
        When it happened.
    round
        Which round of its task a row belongs to, where all arms on offer were logged.
    chosen
        Whether this arm is the one that was shown, where all arms on offer were logged. Only rows
        that were chosen count as evidence; the reward of the others may be missing.
    propensity
        The probability with which the arm was chosen: above 0 where it was, 0 or more elsewhere.
    mean_of
        Of how many rewards the reward is the mean, above 0; 1 unless given.
    schema
        The fields of contexts and actions, each of which is a column of its name, in place of
        ``features``: rows are encoded as those of a :class:`~headstart.Bandit` with this schema.

    Examples
    --------
    >>> Columns(task="user", reward="click", features="x*")
    Columns(task='user', reward='click', features='x*')
    """

    task: str
    reward: str
    features: str | tuple[str, ...] | None = None
    weight: str | None = None
    timestamp: str | None = None
    round: str | None = None
    chosen: str | None = None
    propensity: str | None = None
    mean_of: str | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for role in ("task", "reward", *OPTIONAL):
            name = getattr(self, role)
            if name is None and role in OPTIONAL:
                continue
            if not isinstance(name, str) or not name:
                raise checks.invalid(role, "the name of a column", name)
        given: object = self.features
        if self.schema is not None:
            if not isinstance(self.schema, Schema):
                raise checks.invalid("schema", "a headstart.Schema", self.schema)
            if given is not None:
                raise InputError(
                    "features must not be given together with a schema, which has them"
                )
            given = tuple(self.fields)
        if isinstance(given, list):
            given = tuple(given)
            object.__setattr__(self, "features", given)
        names = given if isinstance(given, tuple) else (given,)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise checks.invalid("features", "names of columns, or a pattern such as 'x*'", given)
        distinct = [name for role, name in self.roles.items() if role not in ("timestamp", "round")]
        for name in distinct:
            if distinct.count(name) > 1:
                raise InputError(
                    f"task, reward, weight, chosen, propensity and mean_of must be different "
                    f"columns; got {name!r} twice"
                )

    @functools.cached_property
    def encoder(self) -> Encoder | None:
        """What encodes rows, where there is a schema."""
        return None if self.schema is None else Encoder(self.schema)

    @functools.cached_property
    def fields(self) -> dict[str, Field | None]:
        """The columns that the schema needs, with their fields; the id alone has none."""
        if self.schema is None:
            return {}
        fields: dict[str, Field | None] = {**self.schema.context, **self.schema.action}
        if self.schema.identity:
            fields.setdefault(self.schema.id, None)
        return fields

    @property
    def text_fields(self) -> list[str]:
        """The columns of the schema that are text, or whole numbers that stand for text."""
        return [name for name, field in self.fields.items() if types.is_text_field(field)]

    @property
    def roles(self) -> dict[str, str]:
        """The single columns that are used, by what they are."""
        names = {role: getattr(self, role) for role in ("task", "reward", *OPTIONAL)}
        return {role: name for role, name in names.items() if name is not None}

    def resolve(
        self, schema: pa.Schema, where: str, partitions: Mapping[str, str | None] | None = None
    ) -> Resolved:
        """Find the columns in a file's schema; ``where`` names the file in errors.

        ``partitions`` are the values that the names of folders give (``day=2024-05-01``). They
        serve as columns that are named, and match no pattern.
        """
        partitions = partitions or {}
        folders = self.partition_types(partitions, schema.names, where)
        names, roles = [*schema.names, *folders], self.roles
        for role, name in roles.items():
            tables.find_column(role, name, names, where)
        features = self.find_features(names, where)
        used = dict.fromkeys([*roles.values(), *features])
        for name in used:
            if names.count(name) > 1:
                raise InputError(f"{where} has {names.count(name)} columns called {name!r}")
        kinds_of = {name: folders.get(name) or schema.field(name).type for name in used}
        for role, name in roles.items():
            types.check_kind(role, name, kinds_of[name], where)
        values = {name: partitions[name] for name in folders}
        if self.schema is not None:
            for name, field in self.fields.items():
                types.check_field(name, field, kinds_of[name], where)
            if self.schema.identity:
                types.check_field(self.schema.id, None, kinds_of[self.schema.id], where)
            return Resolved(self, tuple(features), False, None, kinds_of, values)
        listed = [name for name in features if is_list(kinds_of[name])]
        if listed and len(features) > 1:
            raise InputError(
                f"features must be one column of lists, or several of numbers; in {where}, "
                f"{listed[0]!r} has lists and there are {len(features)} columns"
            )
        for name in features:
            kind = kinds_of[name]
            if not is_number(kind.value_type if listed else kind):
                raise InputError(
                    f"features must be numbers; column {name!r} of {where} has type {kind}: use a "
                    f"schema for it (headstart check --write-schema FILE proposes one)"
                )
        width = None
        if listed and kinds.is_fixed_size_list(kinds_of[features[0]]):
            width = kinds_of[features[0]].list_size
        return Resolved(self, tuple(features), bool(listed), width, kinds_of, values)

    def partition_types(
        self, partitions: Mapping[str, str | None], names: list[str], where: str
    ) -> dict[str, pa.DataType]:
        """The folders' values that are used, and their types: text, or numbers where need be."""
        named = self.features.split(",") if isinstance(self.features, str) else self.features or ()
        text = {self.task, self.round, self.timestamp, *self.text_fields}
        folder_types: dict[str, pa.DataType] = {}
        for name in {*self.roles.values(), *self.fields, *(entry.strip() for entry in named)}:
            if name not in partitions or name in names:
                continue
            folder_types[name] = pa.string() if name in text else pa.float64()
            value = partitions[name]
            try:
                _ = name in text or value is None or float(value)
            except ValueError:
                raise InputError(
                    f"{name} must be a number; the folder of {where} is called {name}={value}"
                ) from None
        return folder_types

    def find_features(self, names: list[str], where: str) -> list[str]:
        """The feature columns: fields, patterns in natural order, names in the order given."""
        roles = {name: role for role, name in self.roles.items() if role != "timestamp"}
        for name, field in self.fields.items():
            what = "the schema's id (identity=True)" if field is None else f"schema: {field.kind}"
            tables.find_column(what, name, names, where)
            if name in roles:
                raise InputError(f"schema must not have the {roles[name]} as a field; got {name!r}")
        entries = self.features or ()
        if isinstance(entries, str):
            split = tuple(entry.strip() for entry in entries.split(",") if entry.strip())
            entries = (entries,) if entries in names else split
        reserved = list(self.roles.values())
        features: dict[str, None] = dict.fromkeys(self.fields)
        for entry in entries:
            if entries.count(entry) > 1:
                raise InputError(f"features must name every column once; got {entry!r} twice")
            check_pattern(entry, names, reserved, where)
            # A column without a name is an index: no pattern means it.
            matches = tables.find_columns("features", entry, names, [*reserved, ""], where)
            features |= dict.fromkeys(sorted(matches, key=natural))
        for name in features:
            if name in roles:
                raise InputError(
                    f"features must not have the {roles[name]} among them; got {name!r}"
                )
        return list(features)


def check_pattern(entry: str, names: list[str], reserved: list[str], where: str) -> None:
    """Refuse what may be the name of a column and a pattern for others."""
    if entry not in names or not ("*" in entry or "?" in entry):
        return
    meant = [name for name in fnmatch.filter(names, entry) if name not in (entry, *reserved)]
    if meant:
        raise InputError(
            f"features must be clear; {entry!r} is a column of {where}, and a pattern for others "
            f"({', '.join(meant[:5])}{', …' if len(meant) > 5 else ''}): rename the column, or "
            f"name the others one by one"
        )


class Resolved(NamedTuple):
    """The columns of one file.

    Attributes
    ----------
    columns
        What was asked for.
    features
        The feature columns; one name where it has lists. With a schema, those of its fields.
    listed
        Whether the features are one column of lists.
    width
        How long the lists are, where the schema says so.
    types
        The Arrow type of every column that is used.
    partitions
        The values of the columns that are not in the file, but in the names of its folders;
        ``None`` where a folder stands for rows without a value.
    """

    columns: Columns
    features: tuple[str, ...]
    listed: bool
    width: int | None
    types: dict[str, pa.DataType]
    partitions: dict[str, str | None]

    @property
    def used(self) -> list[str]:
        """Every column that is read from the file, once."""
        names = dict.fromkeys([*self.columns.roles.values(), *self.features])
        return [name for name in names if name not in self.partitions]

    @property
    def coded(self) -> list[str]:
        """The columns of text with few different values, read as codes where a file has them."""
        named, used = (self.columns.task, *self.columns.fields), self.used
        return [name for name in named if name in used and is_text(self.types[name])]

    def kind(self, role: str) -> pa.DataType:
        """The type of a single column, by what it is."""
        return self.types[self.columns.roles[role]]


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts as people count: x2 before x10.

    >>> sorted(["x10", "x2", "y1", "x1"], key=natural)
    ['x1', 'x2', 'x10', 'y1']
    """
    pieces = re.split(r"([0-9]+)", name)
    return tuple((0, int(piece), piece) if piece.isdigit() else (1, 0, piece) for piece in pieces)


#: What people call the column that says which arm was shown.
FLAGS = ("chosen", "shown", "selected", "displayed", "picked", "played", "served", "taken")


def find_flag(schema: pa.Schema, columns: Columns) -> str | None:
    """A column that seems to say which arm was shown, by its name and type."""
    used = set(columns.roles.values())
    for field in schema:
        name = field.name.lower().removeprefix("is_").removeprefix("was_").removeprefix("arm_")
        if name in FLAGS and field.name not in used and is_number(field.type):
            return str(field.name)
    return None
