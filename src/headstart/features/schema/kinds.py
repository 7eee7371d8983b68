"""The functions that make fields (``number()``, ``category()``, …), and fields as JSON."""

from __future__ import annotations

import dataclasses

from headstart import checks
from headstart.errors import InputError
from headstart.features.schema.categories import Category
from headstart.features.schema.fields import Boolean, Field, Number, Vector

KINDS: dict[str, type[Field]] = {kind.kind: kind for kind in (Number, Category, Boolean, Vector)}


def number(*, missing: bool = True) -> Number:
    """A field that is a number, in any units.

    Parameters
    ----------
    missing : bool, default True
        Whether it may be missing (``None`` or NaN). It then has a second column, 1 where it is
        missing. With ``False`` there is one column, and a missing number is refused.

    Examples
    --------
    >>> number().column_names("price")
    ['price', 'price missing']
    """
    return Number(missing)


def category(*values: str | int, buckets: int | None = None) -> Category:
    """A field that is one of several values, which have a column each.

    Parameters
    ----------
    *values : str or int
        The values, where they are known. Any other value, and a missing one, has a column of its
        own ("other").
    buckets : int, optional
        For many values, or values that are not known: each has one of so many columns, given by a
        hash of its text (a whole number is the text of its digits). The hash is the same on every
        machine.

    Examples
    --------
    >>> category("phone", "desktop").column_names("device")
    ['device=phone', 'device=desktop', 'device other']
    """
    return Category(tuple(values), buckets)


def boolean(*, missing: bool = True) -> Boolean:
    """A field that is true or false (or 1 or 0).

    Parameters
    ----------
    missing : bool, default True
        Whether it may be missing (``None``), which has a column of its own.
    """
    return Boolean(missing)


def vector(length: int, *, missing: bool = False) -> Vector:
    """A field that is a vector of numbers of fixed length, such as an embedding.

    Parameters
    ----------
    length : int
        How many numbers.
    missing : bool, default False
        Whether it may be missing (``None``), which has a column of its own.
    """
    return Vector(length, missing)


def field_from_json(name: str, value: object) -> Field:
    """The inverse of :meth:`Field.to_json`; ``name`` is the field's name in an error message."""
    kind_name = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind_name, str) or kind_name not in KINDS:
        raise InputError(
            f"schema: field {name!r} must be an object whose type is one of {', '.join(KINDS)}; "
            f"got {checks.describe(kind_name if isinstance(value, dict) else value)}"
        )
    kind = KINDS[kind_name]
    settings = {key: part for key, part in value.items() if key != "type"}
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(kind)})
    if unknown:
        raise InputError(f"schema: field {name!r} has settings that no {kind.kind} has: {unknown}")
    if isinstance(settings.get("values"), list):
        settings["values"] = tuple(settings["values"])
    try:
        return kind(**settings)
    except (InputError, TypeError) as error:
        raise InputError(f"schema: field {name!r} is not valid: {error}") from None
