"""Rules and transfers as plain data, so that a file can name them without holding code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headstart import checks, rules, subspace, transfer
from headstart.errors import FileError

__all__ = ["decode", "encode", "is_known"]

#: The kinds a file may name. Anything else has to be handed to ``load`` by the caller.
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        rules.UCB,
        rules.Thompson,
        rules.Greedy,
        rules.Uniform,
        rules.Forced,
        subspace.ExactPCA,
        subspace.CCIPCA,
        transfer.Independent,
        transfer.Bias,
        transfer.Subspace,
        transfer.Gaussian,
        transfer.EmpiricalBayes,
        transfer.Mixture,
        transfer.Oracle,
    )
}


def encode(value: Any) -> Any:
    """A rule, a transfer or one of their settings as JSON.

    >>> encode(rules.UCB(radius=2.0))["radius"]
    2.0
    """
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    name = type(value).__name__
    if KINDS.get(name) is not type(value):
        return {"foreign": f"{type(value).__module__}.{type(value).__qualname__}"}
    fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"kind": name, **fields}


def decode(value: Any, argument: str) -> Any:
    """The inverse of :func:`encode`; ``argument`` is what the caller may give instead."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return checks.finite_array(argument, value["array"], "settings with arrays of numbers")
    if "foreign" in value:
        raise FileError(
            f"the file was saved with a {argument} of your own, {value['foreign']}: "
            f"pass it as load(path, {argument}=…)"
        )
    fields = {name: decode(field, argument) for name, field in value.items() if name != "kind"}
    kind = KINDS.get(str(value.get("kind")))
    if kind is None:
        raise FileError(
            f"the file names a {argument} this headstart does not know: "
            f"{checks.describe(value.get('kind'))}"
        )
    return kind(**fields)


def is_known(value: Any) -> bool:
    """Whether a rule or a transfer is one of headstart's, not of a user's own kind."""
    return KINDS.get(type(value).__name__) is type(value)
