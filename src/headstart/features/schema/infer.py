"""A schema proposed for a table, with the reasons for each field."""

from __future__ import annotations

import datetime
import importlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.features.conversion import frame_names, is_frame
from headstart.features.schema.categories import is_encodable
from headstart.features.schema.fields import Field, is_missing
from headstart.features.schema.kinds import boolean, category, number, vector
from headstart.features.schema.review import FieldReview, Review, shorten
from headstart.features.schema.schema import Schema, check_name
from headstart.records import Array

MAX_LISTED = 20  # values of a category that is listed; beyond, it is hashed
MAX_BUCKETS = 64
MAX_WHOLE_VALUES = 6  # different whole numbers that are taken for a category with a note
MAX_LISTED_NUMBERS = 100  # different whole numbers, of which more may be ids
MIN_ID_SHARE = 0.3  # of the whole numbers in their range, that ids take
MAX_SKEW = 100.0  # the largest number over the median: beyond, a logarithm is recommended
MAX_CROSSED = 100  # columns of all crosses together: the time of a fit is cubic in them
IDENTITY_NOTE = "identity=True"
NAMED_AS_ID = re.compile(r"(^|_)(id|code|zip|sku)$|[a-z]I[dD]$")
LEAK_NOTE = "one to one with the reward, which it would reveal: left out"
COUNTER_NOTE = "whole numbers that grow with every row: an index or a time, left out"
NAMED_COLUMN = re.compile(r"(?!Unnamed: [0-9]+$).*\S")  # pandas calls columns without a name so
IS_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
MIN_COMPARED_ROWS = 20  # rows from which on columns are compared with each other
MIN_ROWS_PER_ID = 2  # rows of an item, on average, from which on identity is proposed


#: The field that is proposed for a column, if any; what its values are; what to look at.
Proposal = tuple[Field | None, str, str]


def propose(
    frame: Any,
    task: str | None,
    reward: str | None,
    context: Iterable[str],
    id: str,
    ignore: Iterable[str],
) -> Schema:
    """The schema for the rows of a frame (:meth:`Schema.infer`)."""
    columns, sample_notes = read_columns(frame, task, reward)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"frame must have columns of one length; got {sorted(lengths)} values")
    if not lengths or lengths == {0}:
        raise InputError("frame must have at least one row; got none")
    names_of: dict[str, list[str]] = {}
    for argument, value in (("context", context), ("ignore", ignore)):
        entries = checks.entries(argument, value, "a list of column names")
        names_of[argument] = [check_column(argument, name, columns) for name in entries]
    roles = dict.fromkeys(names_of["ignore"], "ignored")
    for role, name in (("task", task), ("reward", reward)):
        if name is not None:
            roles[check_column(role, name, columns)] = role
    check_name("id", id)
    if id != "id":  # which tables of actions without ids do not have
        check_column("id", id, columns)
    names = [name for name in columns if name.strip()]
    review = review_columns(columns, roles, names_of["context"], id)
    review = review._replace(notes=(*review.notes, *sample_notes))
    fields: dict[str, dict[str, Field]] = {"context": {}, "action": {}}
    for each in review.columns:
        if each.field is not None:
            fields["context" if each.role == "context" else "action"][each.name] = each.field
    identity = any(each.role == "id" and each.notes == IDENTITY_NOTE for each in review.columns)
    unused = [each.name for each in review.columns if each.role == "ignored" and each.name in names]
    if not fields["action"] and not identity:
        raise InputError(f"frame must have a column that distinguishes actions; got\n{review}")
    widths = [sum(field.width for field in fields[part].values()) for part in fields]
    crosses: Any = "all" if widths[0] * widths[1] <= MAX_CROSSED else ()
    if not crosses and fields["context"]:
        note = "the context is not crossed with the actions, which would take too many columns:"
        review = review._replace(notes=(*review.notes, f"{note} choose crosses by hand"))
    schema = Schema(**fields, crosses=crosses, identity=identity, id=id, ignore=unused)
    object.__setattr__(schema, "review", review)
    return schema


def read_columns(
    frame: Any, task: str | None = None, reward: str | None = None
) -> tuple[dict[str, list[Any]], list[str]]:
    """The columns of a table, as lists; of a log, those of a sample of rows, and notes on it."""
    if isinstance(frame, (str, os.PathLike)):
        # Logs are read by a part of the library that builds on this one.
        reading = importlib.import_module("headstart.fleet.reading.formats")
        sample: tuple[dict[str, list[Any]], list[str]]
        sample = reading.sample_log(frame, task=task, reward=reward)
        return sample
    if is_frame(frame):
        titles = zip(frame_names("frame", frame), frame.columns, strict=True)
        return {title: frame[name].to_list() for title, name in titles}, []
    if isinstance(frame, np.ndarray) and frame.dtype.names is not None:
        return {name: frame[name].tolist() for name in frame.dtype.names}, []
    if isinstance(frame, Mapping):
        return {str(name): column_values(name, column) for name, column in frame.items()}, []
    if isinstance(frame, Sequence) and frame and all(isinstance(row, Mapping) for row in frame):
        names = dict.fromkeys(str(name) for row in frame for name in row)
        return {name: [row.get(name) for row in frame] for name in names}, []
    want = (
        "a pandas or Polars frame, a list of dicts, an array with names, a dict of columns, or the "
        "path of a log"
    )
    raise checks.invalid("frame", want, frame)


def column_values(name: object, column: Any) -> list[Any]:
    """The values of a column."""
    argument, want = f"column {checks.describe(name)}", "a list of values"
    if isinstance(column, Mapping):
        raise checks.invalid(argument, want, column)
    return checks.entries(argument, column, want)


def check_column(argument: str, name: object, columns: Collection[str]) -> str:
    """The name of a column of the table."""
    if not isinstance(name, str) or name not in columns:
        column_names = ", ".join(map(checks.describe, columns))
        raise checks.invalid(argument, f"a column of the table ({shorten(column_names)})", name)
    return name


def review_columns(
    columns: Mapping[str, Sequence[Any]],
    roles: Mapping[str, str],
    context: Collection[str],
    id: str,
) -> Review:
    """What the columns of a table are; ``roles`` names those that are not fields."""
    count = len(next(iter(columns.values()), ()))
    reviews, notes = [], []
    for place, (name, values) in enumerate(columns.items(), 1):
        role = roles.get(name, "context" if name in context else "action")
        if not NAMED_COLUMN.match(name) and role in ("action", "ignored"):
            title = name if name.strip() else f"(column {place})"
            summary = f"{len(distinct(values)):,} different"
            reviews.append(FieldReview(title, "ignored", None, summary, "no name: an index?"))
        elif role in ("task", "reward", "ignored"):
            reviews.append(review_role(name, role, values))
        elif name == id:
            reviews.append(review_id(name, values))
        else:
            field, summary, note = propose_field(name, values)
            if role == "action" and counts_rows(values):
                field, note = None, COUNTER_NOTE
            reviews.append(FieldReview(name, role if field else "ignored", field, summary, note))
    fields = [each.name for each in reviews if each.role in ("action", "context") and each.field]
    every_role = dict.fromkeys(context, "context") | dict(roles)
    for name, note in find_copies(columns, every_role, fields).items():
        at = next(at for at, each in enumerate(reviews) if each.name == name)
        if note == LEAK_NOTE:
            reviews[at] = reviews[at]._replace(role="ignored", field=None)
        reviews[at] = reviews[at]._replace(notes="; ".join(filter(None, (note, reviews[at].notes))))
    if context and not any(each.role == "action" for each in reviews):
        notes.append("no field of actions is left to be crossed with the context")
    return Review(count, tuple(reviews), tuple(notes))


def review_id(name: str, values: Sequence[Any]) -> FieldReview:
    """What the ids of actions are."""
    items = distinct(values)
    each = len(values) / max(len(items), 1)
    summary = f"{len(items):,} different, {each:,.1f} rows each"
    if len(items) <= MAX_LISTED and all(type(item) is str for item in items):
        field = category(*sorted(items))
        return FieldReview(name, "id", field, summary, "few ids: each has a column of its own")
    if each < MIN_ROWS_PER_ID:
        return FieldReview(name, "id", None, summary, "ids that rarely recur: of little use")
    return FieldReview(name, "id", None, summary, IDENTITY_NOTE)


def propose_field(name: str, values: Sequence[Any]) -> Proposal:
    """The field that is proposed for a column."""
    present = [value for value in values if not is_missing(value)]
    gaps = len(values) - len(present)
    missing = f", {gaps:,} missing" if gaps else ""
    if not present:
        return None, "all missing", "has no value in any row"
    kinds = {kind_of(value) for value in present}
    if kinds == {"boolean"}:
        share = sum(map(bool, present)) / len(present)
        return boolean(missing=gaps > 0), f"true in {share:.0%}{missing}", constant_note(present)
    if kinds == {"vector"}:
        lengths = set(map(len, present))
        if len(lengths) > 1:
            return None, "vectors of several lengths", "not used"
        return vector(lengths.pop(), missing=gaps > 0), f"vectors{missing}", ""
    if kinds <= {"number", "boolean"}:
        return propose_number(name, present, gaps > 0, missing)
    if kinds == {"text"}:
        return propose_category(present, missing)
    if kinds == {"vector", "list"}:
        return None, "vectors", "not all of finite numbers: not used"
    if kinds == {"time"}:
        return None, "times", "not used: give numbers made from them, such as the hour or an age"
    summary = f"{' and '.join(sorted(kinds))} mixed" if len(kinds) > 1 else f"{kinds.pop()} values"
    return None, summary, "not used"


def propose_number(name: str, present: Sequence[Any], has_gaps: bool, missing: str) -> Proposal:
    """The field that is proposed for numbers."""
    numbers = np.array([float(value) for value in present])
    note, different = constant_note(present), distinct(present)
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        note = f"infinite in {infinite} rows: make these missing"
    whole = all(float(value).is_integer() for value in different)
    form = ".0f" if whole and np.abs(numbers).max() < 1e9 else ".4g"
    summary = f"{numbers.min():{form}} to {numbers.max():{form}}{missing}"
    if not note and set(map(float, different)) <= {0.0, 1.0}:
        return boolean(missing=has_gaps), summary, ""
    if not note and whole and NAMED_AS_ID.search(name):
        note = "named like an id: a category with buckets, or to be ignored"
    elif not note and whole and len(different) > 0.9 * len(present) > MAX_LISTED:
        note = "whole numbers that rarely recur: a time or an id?"
    elif not note and whole and 2 < len(different) <= MAX_WHOLE_VALUES:
        note = "few whole numbers: a category, if their order means nothing"
    elif (
        not note and whole and len(different) > MAX_LISTED_NUMBERS and is_dense(numbers, different)
    ):
        note = "many whole numbers: a category with buckets, if they are ids"
    return number(missing=has_gaps), summary, note or skew_note(numbers)


def is_dense(numbers: Array, different: Sequence[Any]) -> bool:
    """Whether whole numbers take a good part of the values in their range, as ids do."""
    return bool(len(different) > MIN_ID_SHARE * (numbers.max() - numbers.min()))


def counts_rows(values: Sequence[Any]) -> bool:
    """Whether a column has a larger whole number in every row than in the row before."""
    if len(values) <= MAX_LISTED or {*map(kind_of, values)} != {"number"}:
        return False
    numbers = np.array(list(map(float, values)))
    return bool((np.diff(numbers) > 0).all() and (numbers == np.floor(numbers)).all())


def skew_note(numbers: Array) -> str:
    """The note on amounts of which a few are far larger than most."""
    skewed = numbers.min() >= 0 and numbers.max() > MAX_SKEW * np.median(numbers) > 0
    return "a few are far larger than most: their logarithm may serve better" if skewed else ""


def review_role(name: str, role: str, values: Sequence[Any]) -> FieldReview:
    """What is found of a column that is not a field."""
    different, note = distinct(values), ""
    if role == "reward" and set(different) == {0, 1}:
        note = 'all 0 or 1: reward="binary"'
    elif role == "reward" and {kind_of(value) for value in different} == {"number"}:
        note = skew_note(np.array([float(value) for value in values if not is_missing(value)]))
    return FieldReview(name, role, None, f"{len(different):,} different", note)


def propose_category(present: Sequence[Any], missing: str) -> Proposal:
    """The field that is proposed for texts."""
    different = distinct(present)
    summary = f"{len(different):,} different{missing}"
    if not all(map(is_encodable, different)):
        return None, summary, "not used: text that is not valid Unicode"
    if len(different) <= MAX_LISTED:
        return category(*sorted(map(str, different))), summary, constant_note(present)
    note = mostly_numbers(present)
    if len(different) > 0.5 * len(present):
        note = note or "most rows have a value of their own: free text or an id?"
        return None, summary, note
    buckets = min(MAX_BUCKETS, 1 << (len(different) - 1).bit_length())
    return category(buckets=buckets), summary, note or "hashed into buckets"


def mostly_numbers(present: Sequence[str]) -> str:
    """The note on texts that are numbers but for a few; empty where they are not."""
    others = [text for text in present if not IS_NUMBER.fullmatch(text.strip())]
    if len(others) > 0.1 * len(present):
        return ""
    if not others:
        return "numbers written as text: convert them for number(), unless they are codes"
    examples = ", ".join(map(repr, distinct(others)[:3]))
    return f"numbers, except {examples} in {len(others)} rows: empty these for number()"


def find_copies(
    columns: Mapping[str, Sequence[Any]], roles: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Notes on named columns that determine the reward or the task, or repeat another column."""
    codes = {name: first_places(columns[name]) for name in dict.fromkeys([*roles, *names])}
    count = max(map(len, codes.values()), default=0)
    if count < MIN_COMPARED_ROWS:
        return {}
    notes: dict[str, str] = {}
    for name in names:
        own = codes[name]
        several = 1 < len(set(own)) <= count / 2  # values that rarely recur determine anything
        for other, role in roles.items():
            if not several or role not in ("reward", "task") or len(set(codes[other])) < 2:
                continue
            pairs, others = len(set(zip(own, codes[other], strict=True))), len(set(codes[other]))
            if own == codes[other]:
                notes[name] = LEAK_NOTE if role == "reward" else "one to one with the task: an id?"
            elif role == "reward" and pairs == len(set(own)):
                notes[name] = "determines the reward: known before the choice?"
            elif role == "task" and name not in roles and pairs == others <= count / 2:
                notes[name] = "the same in all rows of a task: it does not distinguish actions"
        for other in names[: names.index(name)]:
            same = own == codes[other] and name not in notes
            if same and (
                several or [*map(as_key, columns[name])] == [*map(as_key, columns[other])]
            ):
                notes[name] = f"the same as {other}"
    return notes


def first_places(values: Sequence[Any]) -> list[int]:
    """Where each value came first: equal for columns that differ in the names of values alone.

    >>> first_places(["a", "b", "a"]) == first_places([1, 0, 1])
    True
    """
    places: dict[Any, int] = {}
    return [
        places.setdefault(None if is_missing(value) else as_key(value), place)
        for place, value in enumerate(values)
    ]


def as_key(value: Any) -> Any:
    """A value that can be looked up: itself, or what is printed of it."""
    try:
        hash(value)
    except TypeError:
        try:
            return repr(value)
        except RecursionError:
            return id(value)
    return value


def kind_of(value: Any) -> str:
    """Whether a value is a boolean, number, text, time, vector, other list, or of another type."""
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    if isinstance(value, Decimal) or checks.is_real(value):
        try:
            float(value)
        except (OverflowError, ValueError):  # the latter of a signaling NaN
            return "huge number"
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime.date):
        return "time"
    if isinstance(value, (list, tuple, np.ndarray)):
        try:
            return (
                "vector" if len(checks.finite_array("value", value, "numbers", ndim=1)) else "list"
            )
        except InputError:
            return "list"
    return type(value).__name__


def distinct(values: Sequence[Any]) -> list[Any]:
    """The different values that are not missing, in the order of their first places."""
    return list(dict.fromkeys(as_key(value) for value in values if not is_missing(value)))


def constant_note(present: Sequence[Any]) -> str:
    """The note on a column that does not vary."""
    return "the same in all rows" if len(distinct(present)) == 1 else ""
