"""Options of fits as text, as the command line and provenance have them: transfers and memory."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from headstart import checks
from headstart.transfer import (
    Bias,
    EmpiricalBayes,
    Gaussian,
    Independent,
    Mixture,
    Subspace,
    Transfer,
)

__all__ = ["TRANSFERS", "bytes_from", "transfer_from"]

TRANSFERS: dict[str, type[Transfer]] = {
    "empirical_bayes": EmpiricalBayes,
    "mixture": Mixture,
    "subspace": Subspace,
    "bias": Bias,
    "gaussian": Gaussian,
    "independent": Independent,
}


def transfer_from(text: str) -> Transfer:
    """A transfer from its name, and options after a colon.

    >>> transfer_from("subspace:rank=3,lam2=plug-in"), transfer_from("gaussian")
    (Subspace(rank=3), Gaussian(forced=False))
    """
    name, _, rest = text.partition(":")
    kind = TRANSFERS[checks.one_of("transfer", name.strip(), tuple(TRANSFERS))]
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    options: dict[str, Any] = {"forced": False} if kind is Gaussian else {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise checks.refuse("transfer", "name:option=value,option=value", text)
        checks.one_of(f"option of {name}", key.strip(), known)
        options[key.strip()] = as_option(value.strip())
    return kind(**options)


def as_option(value: str) -> Any:
    """A number, true or false, or text."""
    try:
        return json.loads(value.lower())
    except ValueError:
        return value


UNITS = {"": 30, "k": 10, "m": 20, "g": 30, "t": 40}


def bytes_from(text: str) -> int:
    """An amount of memory: a number, of GiB unless it says otherwise.

    >>> bytes_from("2") == bytes_from("2 GiB") == bytes_from("2048M")
    True
    """
    found = re.fullmatch(r"([0-9.]+)([kmgt]?)(i?b)?", text.strip().lower().replace(" ", ""))
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        raise checks.refuse("memory", "an amount such as 2GiB or 512MiB", text)
    return int(float(found[1]) * 2 ** UNITS[found[2]])
