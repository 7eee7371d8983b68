"""Rules and transfers as plain data, so that a file can name them without holding code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import FileError
from headstart.rules import Rule
from headstart.settings import SETTINGS, full_name
from headstart.transfer import Transfer


def encode(value: Any) -> Any:
    """A rule, a transfer or one of their settings as JSON.

    >>> import headstart as hs
    >>> encode(hs.UCB(radius=2.0))["settings"]["radius"]
    2.0
    """
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    kind, name = type(value), full_name(type(value))
    if SETTINGS.get(name) is not kind or not is_plain_dataclass(kind):
        return {"kind": name, "settings": None}
    fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"kind": name, "settings": fields}


def is_plain_dataclass(kind: type) -> bool:
    """Whether its fields are all there is: its own constructor takes them, and nothing else."""
    fields: dict[str, dataclasses.Field[Any]] = vars(kind).get("__dataclass_fields__", {})
    own = "__dataclass_params__" in vars(kind) and kind.__dataclass_params__.init  # type: ignore[attr-defined]
    return own and all(field.init for field in fields.values())


def decode(value: Any, argument: str) -> Any:
    """The inverse of :func:`encode`; ``argument`` is what the caller may give instead."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return checks.finite_array(argument, value["array"], "settings with arrays of numbers")
    if "tuple" in value:
        return tuple(decode(item, argument) for item in value["tuple"])
    kind, fields = SETTINGS.get(str(value["kind"])), value["settings"]
    if kind is None or fields is None:
        raise FileError(
            f"the file was saved with a {argument} of your own, {checks.describe(value['kind'])}: "
            f"import it before loading, or pass it as load(path, {argument}=…)"
        )
    return kind(**{name: decode(field, argument) for name, field in fields.items()})


def check_kinds(transfer: object, rule: object) -> None:
    """Refuse what is neither a transfer nor ``None``, and what is neither a rule nor ``None``."""
    if not isinstance(transfer, Transfer | None):
        raise checks.invalid("transfer", "a Transfer, such as headstart.Subspace()", transfer)
    if not isinstance(rule, Rule | None):
        raise checks.invalid("rule", "a Rule, such as headstart.UCB()", rule)
