"""Options as text: read from the command line, and written as the command that gives the same."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from headstart import checks
from headstart.errors import HeadstartError
from headstart.features.schema.schema import Schema
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.logs import Logs
from headstart.lab.policies import split_options
from headstart.records import equal_values
from headstart.transfer import (
    Bias,
    EmpiricalBayes,
    Gaussian,
    Independent,
    Mixture,
    Subspace,
    Transfer,
)

TRANSFERS: dict[str, type[Transfer]] = {
    "empirical_bayes": EmpiricalBayes,
    "mixture": Mixture,
    "subspace": Subspace,
    "bias": Bias,
    "gaussian": Gaussian,
    "independent": Independent,
}
UNITS = {"": 30, "k": 10, "m": 20, "g": 30, "t": 40}

LISTED = 20  # files that are named; of more, so many

ONLY_IN_PYTHON = ("rule", "horizon")  # arguments that the command does not have
WITHOUT_EFFECT = ("logs", "cluster", "workers", "progress")  # arguments that change no results


def parse_bytes(text: str) -> int:
    """An amount of memory: a number, of GiB unless it says otherwise.

    >>> parse_bytes("2") == parse_bytes("2 GiB") == parse_bytes("2048M")
    True
    """
    amount = re.fullmatch(
        r"([0-9]+\.?[0-9]*|\.[0-9]+)([kmgt]?)(i?b)?", text.strip().lower().replace(" ", "")
    )
    if amount is None:
        raise checks.invalid("memory", "an amount such as 2GiB or 512MiB", text)
    return int(float(amount[1]) * 2 ** UNITS[amount[2]])


def parse_transfer(text: str) -> Transfer:
    """A transfer from its name, and options after a colon.

    >>> parse_transfer("subspace:rank=3,lam2=plug-in"), parse_transfer("gaussian")
    (Subspace(rank=3), Gaussian(forced=False))
    """
    name, given = split_options("transfer", text)
    kind = TRANSFERS[checks.one_of("transfer", name, tuple(TRANSFERS))]
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in given:
        checks.one_of(f"option of {name}", key, known)
    return kind(**({"forced": False} if kind is Gaussian else {}) | given)


def format_transfer(transfer: Transfer) -> str | None:
    """A transfer as the command takes it, or ``None`` where it cannot.

    >>> format_transfer(EmpiricalBayes()), format_transfer(Subspace(rank=3))
    ('empirical_bayes', 'subspace:rank=3')
    """
    name = next((name for name, kind in TRANSFERS.items() if type(transfer) is kind), None)
    if name is None:
        return None
    given = [
        f"{field.name}={getattr(transfer, field.name)}"
        for field in dataclasses.fields(transfer)  # type: ignore[arg-type]
        if not equal_values(getattr(transfer, field.name), field.default)
    ]
    text = name + (":" + ",".join(given) if given else "")
    try:
        return text if repr(parse_transfer(text)) == repr(transfer) else None
    except HeadstartError:
        return None


class Provenance(NamedTuple):
    """What was evaluated, and how.

    Attributes
    ----------
    paths
        The files of the log, in the order in which they are read.
    columns
        Which column is what.
    reading
        How the log was opened: ``format`` and ``on_bad_rows``; of ``storage`` only the names, for
        its values may be secret.
    options
        The arguments of :func:`~headstart.fleet.evaluate` that are not its defaults.
    """

    paths: tuple[str, ...]
    columns: Columns
    reading: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, logs: Logs, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> Provenance:
        """Of an evaluation of these logs; of the options, those that change results."""
        reading = {"format": logs.format, "on_bad_rows": logs.on_bad_rows}
        given = {
            name: value
            for name, value in options.items()
            if not (name in WITHOUT_EFFECT or value is None or equal_values(value, defaults[name]))
        }
        paths = tuple(file.path for file in logs.files)
        return cls(paths, logs.columns, reading | {"storage": tuple(logs.storage)}, given)

    @property
    def files(self) -> list[str]:
        """The files' paths, not too many."""
        rest = len(self.paths) - LISTED
        return [*self.paths[:LISTED], *([f"… and {rest:,} more"] if rest > 0 else [])]

    @property
    def order(self) -> str:
        """What says which reward of a task came first."""
        if self.columns.timestamp is not None:
            return f"by the column {self.columns.timestamp!r}, then as rows lie in the files"
        return (
            "as rows lie in the files, file after file: no timestamp was given, so this is taken "
            "for the order in which they happened"
        )

    @property
    def command(self) -> str:
        """A command that gives the same; what it cannot say stands behind a #."""
        words, rest = ["headstart", "evaluate"], list[str]()
        if len(self.paths) <= LISTED:
            words += self.paths
        else:
            words.append("LOGS")
            rest.append(f"LOGS: {len(self.paths):,} files")
        for role, value in self.columns.get_params(deep=False).items():
            if isinstance(value, Schema):
                words += ["--schema", "SCHEMA"]
                rest.append(f"SCHEMA: {json.dumps(value.to_dict(), ensure_ascii=False)}")
            elif value is not None:
                text = ",".join(value) if isinstance(value, tuple) else value
                words += [f"--{role.replace('_', '-')}", text]
        if self.reading["format"] is not None:
            words += ["--format", self.reading["format"]]
        if self.reading["on_bad_rows"] != "error":
            words += ["--on-bad-rows", self.reading["on_bad_rows"]]
        for name in self.reading["storage"]:
            words += ["--storage", f"{name}=…"]
        for name, value in self.options.items():
            option = "reward-model" if name == "reward" else name.replace("_", "-")
            text = format_transfer(value) if name == "transfer" else str(value)
            if text is None or name in ONLY_IN_PYTHON:
                rest.append(f"{name}={value!r}")
            elif isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            elif text != "empirical_bayes":
                words += [f"--{option}", text]
        return shlex.join(words) + (f"  # {', '.join(rest)}" if rest else "")
