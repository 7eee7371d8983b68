"""What the cells of a column are, by its Arrow type: for a role, and for a field of a schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from headstart.errors import InputError
from headstart.features.schema.categories import Category
from headstart.features.schema.fields import Field, Vector


def is_number(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers (or all missing)."""
    tests = kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal, kinds.is_null
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    """Whether cells of this type are lists."""
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text."""
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_time(kind: pa.DataType) -> bool:
    """Whether cells of this type are points in time, or spans of it."""
    return bool(kinds.is_timestamp(kind) or kinds.is_date(kind) or kinds.is_duration(kind))


def is_id(kind: pa.DataType) -> bool:
    """Whether cells of this type can be ids."""
    return is_text(kind) or bool(kinds.is_integer(kind) or kinds.is_null(kind))


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values that codes stand for; a type that is not coded is its own."""
    return kind.value_type if kinds.is_dictionary(kind) else kind


#: What the cells of a role must be, where they need not be numbers.
ROLE_TYPES = {
    "task": "be text or whole numbers",
    "chosen": "be true and false, or 1 and 0",
    "round": "be text, numbers or times",
    "timestamp": "be times, dates or numbers",
}


def check_kind(role: str, name: str, kind: pa.DataType, where: str) -> None:
    """Refuse a column whose type cannot be what it is said to be."""
    plain, want, hint, fits = value_type(kind), ROLE_TYPES.get(role, "be numbers"), "", False
    if role == "task":
        fits, hint = is_id(plain), ": write the ids as text"
        if kinds.is_floating(plain) or kinds.is_decimal(plain):
            want += ", not fractions (is 7.0 the task 7?)"
            hint = ": write the ids as whole numbers, in pandas with .astype('Int64'), or as text"
    elif role == "round":
        fits = is_text(plain) or is_number(plain) or is_time(plain)
    elif role == "timestamp" and kinds.is_time(kind):
        want = "have a day, not only a time of day"
    elif role == "timestamp":
        fits = (is_number(kind) or is_time(kind) or is_text(kind)) and not kinds.is_boolean(kind)
    else:
        fits = is_number(kind)
        if role == "reward" and is_text(plain):
            hint = ": write two outcomes, such as yes and no, as 1 and 0"
    if not fits:
        raise InputError(f"{role} must {want}; column {name!r} of {where} has type {kind}{hint}")


def time_unit(kind: pa.DataType) -> str:
    """What a timestamp's numbers mean; nothing where none is there."""
    if kinds.is_null(kind):
        return ""
    if kinds.is_integer(kind):
        return "whole numbers"
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "seconds with fractions"
    return "spans of time" if kinds.is_duration(kind) else "times"


def is_text_field(field: Field | None) -> bool:
    """Whether values of a field are text, where a file does not say what they are."""
    if field is None:
        return True
    return isinstance(field, Category) and not isinstance((*field.values, "")[0], int)


def check_field(name: str, field: Field | None, kind: pa.DataType, where: str) -> None:
    """Refuse a column whose type no value of the field can have; ``None`` stands for item ids."""
    what = "the id" if field is None else f"{field.kind} {name!r}"
    plain, hint = value_type(kind), ""
    texts, numbers = is_text(plain), is_number(plain)
    if field is None:
        want, fits = "text or whole numbers (identity=True)", is_id(plain)
    elif isinstance(field, Vector):
        want = f"lists of {field.length} numbers"
        fits = is_list(plain) and is_number(plain.value_type)
        if fits and kinds.is_fixed_size_list(plain):
            fits = plain.list_size == field.length
        hint = ": a vector needs a column of lists (Parquet, Arrow or JSON lines)"
    elif isinstance(field, Category):
        numbers = numbers and not kinds.is_decimal(plain)
        if field.buckets is not None:
            want, fits = "text or whole numbers", texts or numbers
        elif isinstance(field.values[0], str):
            want, fits = "text, as the listed values are", texts
            hint = ": list whole numbers, or make it a number, or a category with buckets"
        else:
            want, fits = "whole numbers, as the listed values are", numbers
            hint = ": list the values as text"
    else:
        want = "true and false, or 1 and 0" if field.kind == "boolean" else "numbers"
        fits, hint = numbers, ": make it a category" if texts else ""
    if not (fits or kinds.is_null(plain)):
        raise InputError(
            f"schema: {what} must be {want}; column {name!r} of {where} has type {kind}{hint}"
        )
