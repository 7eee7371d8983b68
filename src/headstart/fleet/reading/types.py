"""What the cells of a column are, by its Arrow type: for a role, and for a field of a schema."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as kinds

from headstart.errors import InputError
from headstart.features.schema.categories import Category
from headstart.features.schema.fields import Field, Vector
from headstart.features.schema.schema import Schema

__all__ = [
    "check_fields",
    "check_kind",
    "field_columns",
    "is_list",
    "is_number",
    "is_text",
    "is_time",
]

NUMBERS = ("reward", "weight", "propensity")


def is_number(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers (or all missing)."""
    return bool(
        kinds.is_integer(kind)
        or kinds.is_floating(kind)
        or kinds.is_boolean(kind)
        or kinds.is_decimal(kind)
        or kinds.is_null(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether cells of this type are lists."""
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text."""
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def check_kind(role: str, name: str, kind: pa.DataType, where: str) -> None:
    """Refuse a column whose type cannot be what it is said to be."""
    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    got = f"column {name!r} of {where} has type {kind}"
    if role == "task":
        if kinds.is_floating(plain) or kinds.is_decimal(plain):
            raise InputError(
                f"task must be text or whole numbers, not fractions (is 7.0 the task 7?); {got}: "
                f"write the ids as whole numbers, in pandas with .astype('Int64'), or as text"
            )
        if not (is_text(plain) or kinds.is_integer(plain) or kinds.is_null(plain)):
            raise InputError(f"task must be text or whole numbers; {got}: write the ids as text")
    elif role in NUMBERS:
        if not is_number(kind):
            raise InputError(f"{role} must be numbers; {got}")
    elif role == "chosen":
        if not is_number(kind):
            raise InputError(f"chosen must be true and false, or 1 and 0; {got}")
    elif role == "round":
        if not (is_text(plain) or is_number(plain) or is_time(plain)):
            raise InputError(f"round must be text, numbers or times; {got}")
    elif role == "timestamp":
        if kinds.is_time(kind):
            raise InputError(f"timestamp must have a day, not only a time of day; {got}")
        known = is_number(kind) or is_time(kind) or is_text(kind)
        if kinds.is_boolean(kind) or not known:
            raise InputError(f"timestamp must be times, dates or numbers; {got}")


def is_time(kind: pa.DataType) -> bool:
    """Whether cells of this type are points in time, or spans of it."""
    return bool(kinds.is_timestamp(kind) or kinds.is_date(kind) or kinds.is_duration(kind))


def time_unit(kind: pa.DataType) -> str:
    """What a timestamp's numbers mean; nothing where none is there."""
    if kinds.is_null(kind):
        return ""
    if kinds.is_integer(kind):
        return "whole numbers"
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "seconds with fractions"
    return "spans of time" if kinds.is_duration(kind) else "times"


def field_columns(schema: Schema) -> dict[str, Field | None]:
    """The columns that a schema needs, with their fields; the id alone has none."""
    columns: dict[str, Field | None] = {**schema.context, **schema.action}
    if schema.identity:
        columns.setdefault(schema.id, None)
    return columns


def is_text_field(field: Field | None) -> bool:
    """Whether values of a field are text, where a file does not say what they are."""
    if field is None:
        return True
    return isinstance(field, Category) and not isinstance((*field.values, "")[0], int)


def check_fields(schema: Schema, types: Mapping[str, pa.DataType], where: str) -> None:
    """Refuse columns that cannot hold the fields of a schema."""
    for name, field in field_columns(schema).items():
        if field is not None:
            check_field(name, field, types[name], where)
    if schema.identity:
        check_id(schema.id, types[schema.id], where)


def check_field(name: str, field: Field, kind: pa.DataType, where: str) -> None:
    """Refuse a column whose type no value of the field can have."""
    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    if kinds.is_null(plain):
        return
    hint = ""
    if isinstance(field, Vector):
        want = f"lists of {field.length} numbers"
        fits = is_list(plain) and is_number(plain.value_type)
        if fits and kinds.is_fixed_size_list(plain):
            fits = plain.list_size == field.length
        hint = ": a vector needs a column of lists (Parquet, Arrow or JSON lines)"
    elif isinstance(field, Category):
        texts, numbers = is_text(plain), is_number(plain) and not kinds.is_decimal(plain)
        if field.buckets is not None:
            want, fits = "text or whole numbers", texts or numbers
        elif isinstance(field.values[0], str):
            want, fits = "text, as the listed values are", texts
            hint = ": list whole numbers, or make it a number, or a category with buckets"
        else:
            want, fits = "whole numbers, as the listed values are", numbers
            hint = ": list the values as text"
    else:
        boolean = field.kind == "boolean"
        want = "true and false, or 1 and 0" if boolean else "numbers"
        fits = is_number(plain)
        hint = ": make it a category" if is_text(plain) else ""
    if not fits:
        raise InputError(
            f"schema: {field.kind} {name!r} must be {want}; column {name!r} of {where} has type "
            f"{kind}{hint}"
        )


def check_id(name: str, kind: pa.DataType, where: str) -> None:
    """Refuse a column that cannot hold the ids of items."""
    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    if not (is_text(plain) or kinds.is_integer(plain) or kinds.is_null(plain)):
        raise InputError(
            f"schema: the id must be text or whole numbers (identity=True); column {name!r} of "
            f"{where} has type {kind}"
        )
