"""Reading actions: frames, lists of dicts, arrays with names, and lists of ids."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.features.conversion import column_array, frame_names, is_frame
from headstart.features.schema.fields import Values, is_missing

WANT = "a list of dicts, a data frame, an array with names, or a list of ids"


class ActionSpec(NamedTuple):
    """What is known of the fields of rows.

    Attributes
    ----------
    fields
        Those that every row must have.
    shared
        Those that rows may have instead of the context.
    id
        The name of the id.
    ignore
        Those that are not used.
    identity
        Whether every row must have an id.
    distinct
        Whether ids must differ.
    """

    fields: tuple[str, ...]
    shared: tuple[str, ...]
    id: str
    ignore: frozenset[str]
    identity: bool
    distinct: bool


class ActionRows(NamedTuple):
    """Actions by columns.

    Attributes
    ----------
    size
        How many actions there are.
    labels
        The id of each, or its label in the index of a frame; ``None`` where there is neither.
    has_ids
        Whether the labels are ids that were given.
    columns
        The values of each field.
    """

    size: int
    labels: Sequence[Any] | None
    has_ids: bool
    columns: dict[str, Values]


def read_actions(actions: Any, spec: ActionSpec) -> ActionRows:
    """The columns of the actions on offer."""
    if type(actions) is list and actions and set(map(type, actions)) == {dict}:
        rows = from_dicts(actions, spec)  # the usual case
    elif is_frame(actions):
        rows = from_frame(actions, spec)
    elif isinstance(actions, np.ndarray) and actions.dtype.names is not None:
        names = actions.dtype.names
        rows = from_columns({name: actions[name] for name in names}, len(actions), spec)
    elif isinstance(actions, Mapping):
        rows = from_mapping(actions, spec)
    else:
        rows = from_sequence(actions, spec)
    if not rows.size:
        raise InputError("actions must hold at least one action; got none")
    if rows.has_ids:
        check_ids(rows.labels or (), distinct=spec.distinct)
    elif spec.identity:
        raise InputError(
            f"action at row 0: the id is missing, which the schema needs (identity=True): give "
            f"every action an {spec.id!r}, a frame an {spec.id!r} column or an index of ids"
        )
    return rows


def from_sequence(actions: Any, spec: ActionSpec) -> ActionRows:
    """A sequence of mappings, or of ids."""
    items = checks.entries("actions", actions, WANT)
    if any(isinstance(action, Mapping) for action in items):
        for place, action in enumerate(items):
            if not isinstance(action, Mapping):
                got = checks.describe(action)
                raise InputError(f"action at row {place} must be a dict, as others are; got {got}")
        return from_dicts([dict(action) for action in items], spec)
    for place, action in enumerate(items):
        if not isinstance(action, str) and not checks.is_whole(action):
            got = checks.describe(action)
            raise InputError(
                f"actions must be {WANT}, where the bandit has a schema; got {got} at row {place}"
                f"{checks.id_hint(action)}"
            )
    if items and set(spec.fields) - {spec.id}:
        first = next(name for name in spec.fields if name != spec.id)
        raise InputError(
            f"action {checks.describe(items[0])} (row 0): field {first!r} is missing: give "
            f"actions as dicts with the fields {list(spec.fields)}, not as ids alone"
        )
    return ActionRows(len(items), items, True, {spec.id: items})


def from_dicts(rows: list[dict[str, Any]], spec: ActionSpec) -> ActionRows:
    """Actions as dicts, each with all fields."""
    first = rows[0]
    names = [*spec.fields]
    if spec.shared:
        names += [name for name in spec.shared if name in first]
    has_id = spec.id in first
    if has_id and spec.id not in spec.fields:
        names.append(spec.id)
    if not names:
        raise unknown_field(rows, spec, names)
    try:
        values = list(map(operator.itemgetter(*names), rows))
    except KeyError:
        raise missing_field(rows, spec, names) from None
    if sum(map(len, rows)) != len(rows) * len(names):
        expected_names = {*names, *spec.ignore}
        if any(set(row) - expected_names for row in rows):
            raise unknown_field(rows, spec, names)
    columns: dict[str, Values]
    columns = (
        dict(zip(names, zip(*values, strict=True), strict=True))
        if len(names) > 1
        else {names[0]: values}
    )
    labels: Any = columns[spec.id] if has_id else None
    return ActionRows(len(rows), labels, has_id, columns)


def missing_field(
    rows: Sequence[Mapping[str, Any]], spec: ActionSpec, names: Iterable[str]
) -> InputError:
    """The refusal of an action that lacks a field."""
    for place, row in enumerate(rows):
        for name in names:
            if name not in row:
                label = action_label(place, row.get(spec.id))
                what = "the id" if name == spec.id else f"field {name!r}"
                hint = "" if name == spec.id else " (a value that is not known is None)"
                return InputError(f"{label}: {what} is missing{hint}")
    raise AssertionError


def unknown_field(
    rows: Sequence[Mapping[str, Any]], spec: ActionSpec, names: Iterable[str]
) -> InputError:
    """The refusal of an action with a field that the schema does not have."""
    expected_names = {*names, *spec.ignore}
    for place, row in enumerate(rows):
        extra = sorted(str(name) for name in row if name not in expected_names)
        if extra:
            label = action_label(place, row.get(spec.id))
            return InputError(f"{label}: {unknown_names(extra, spec)}")
    return InputError("action at row 0 has no fields and no id")


def unknown_names(extra: Sequence[str], spec: ActionSpec) -> str:
    """The message about fields that the schema does not have."""
    return (
        f"field {extra[0]!r} is not in the schema, whose actions have {list(spec.fields)} "
        f"(name it in ignore= if it is not to be used)"
    )


def from_frame(frame: Any, spec: ActionSpec) -> ActionRows:
    """A pandas or Polars frame: one row per action; the index labels them if there is no id."""
    columns = {}
    for place, name in enumerate(frame_names("actions", frame)):
        column = frame[frame.columns[place]]
        values = column_array(column)
        as_list = values.dtype.kind not in "fiub"
        if values.ndim > 1 and values.dtype.kind == "f":  # vectors: NaN where one is missing
            as_list = bool(np.isnan(values).any())
        columns[name] = column.to_list() if as_list else values
    rows = from_columns(columns, len(frame), spec)
    index = getattr(frame, "index", None)
    if rows.labels is None and index is not None:
        has_names = type(index).__name__ != "RangeIndex" or index.name is not None
        return rows._replace(labels=index.to_list(), has_ids=has_names)
    return rows


def from_mapping(columns: Mapping[str, Any], spec: ActionSpec) -> ActionRows:
    """A dict of columns, all of one length."""
    values_by_name: dict[str, Values] = {}
    for name, column in columns.items():
        if not isinstance(column, np.ndarray) or not column.ndim:
            argument = f"actions: column {checks.describe(name)}"
            want = "a list of values (one action alone is [action])"
            column = checks.entries(argument, column, want)
        values_by_name[str(name)] = column
    lengths = {len(column) for column in values_by_name.values()}
    if len(lengths) > 1:
        raise InputError(f"actions must have columns of one length; got {sorted(lengths)} values")
    return from_columns(values_by_name, max(lengths, default=0), spec)


def from_columns(columns: dict[str, Values], count: int, spec: ActionSpec) -> ActionRows:
    """Actions by columns, all of them known and none missing."""
    expected_names = {*spec.fields, *spec.shared, *spec.ignore, spec.id}
    extra = sorted(name for name in columns if name not in expected_names)
    if extra:
        raise InputError(f"actions: {unknown_names(extra, spec)}")
    for name in spec.fields:
        if name not in columns and count:
            raise InputError(f"actions: the column {name!r} is missing, in all {count} rows")
    fields = {name: column for name, column in columns.items() if name not in spec.ignore}
    ids = fields.get(spec.id)
    labels = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return ActionRows(count, labels, ids is not None, fields)


def check_ids(labels: Sequence[Any], *, distinct: bool = True) -> None:
    """Refuse ids that are missing, no ids, or the same for two actions."""
    keys, kinds = labels, set(map(type, labels))
    if kinds == {str}:
        usual = len("".join(labels)) <= 1000 or max(map(len, labels)) <= 1000
        usual = usual and "" not in labels
    else:
        usual = kinds == {int} and min(labels) >= -(2**63) and max(labels) < 2**63
    if not usual:
        keys = [check_id(label, place) for place, label in enumerate(labels)]
    if distinct and len(set(keys)) < len(keys):
        firsts: dict[Any, int] = {}
        for place, key in enumerate(keys):
            if key in firsts:
                raise InputError(
                    f"action {checks.describe(labels[place])} (row {place}): the id is that of row "
                    f"{firsts[key]} too; ids must be distinct"
                )
            firsts[key] = place


def check_id(label: Any, place: int) -> Any:
    """An id, or a label of an index, as what it is compared by."""
    if is_missing(label):
        raise InputError(f"action at row {place}: the id is missing (None or NaN)")
    if isinstance(label, str) or checks.is_whole(label):
        return item_key(label, place)
    parts = label if type(label) is tuple else (label,)  # of an index of several levels
    if isinstance(label, (float, bytes)) or any(
        isinstance(part, Collection) and not isinstance(part, str) for part in parts
    ):
        refuse_id(label, place)
    if not checks.is_hashable(label):
        refuse_id(label, place)
    return label  # a date, or a tuple


def item_key(label: Any, place: int = 0) -> str:
    """The id of an item as text, by which it is known to all tasks."""
    if type(label) is str and 0 < len(label) <= 1000:
        return label
    try:
        return checks.task_name(label)
    except InputError:
        refuse_id(label, place)


def refuse_id(label: Any, place: int) -> NoReturn:
    """Refuse what cannot be the id of an item."""
    raise InputError(
        f"action at row {place}: the id must be text of 1 to 1000 characters, or a whole number; "
        f"got {checks.describe(label)}{checks.id_hint(label)}"
    )


def action_label(place: int, label: Any = None) -> str:
    """An action in an error message."""
    if label is None:
        return f"action at row {place}"
    return f"action {checks.describe(label)} (row {place})"
