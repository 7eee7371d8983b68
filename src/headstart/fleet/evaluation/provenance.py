"""Where an evaluation comes from: the log, its columns, and the command that gives the same."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.errors import HeadstartError
from headstart.features.schema.schema import Schema
from headstart.fleet.reading.columns import Columns
from headstart.records import equal_values

if TYPE_CHECKING:
    from headstart.fleet.reading.logs import Logs
    from headstart.transfer import Transfer

__all__ = ["Origin"]

LISTED = 20  # files that are named; of more, so many

ONLY_IN_PYTHON = ("rule", "horizon")  # arguments that the command does not have


class Origin(NamedTuple):
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
        The arguments of :func:`~headstart.fleet.evaluation.evaluate`.
    """

    paths: tuple[str, ...]
    columns: Columns
    reading: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, logs: Logs, options: Mapping[str, Any]) -> Origin:
        """The origin of an evaluation of these logs; of the options, those that change results."""
        reading = {
            "format": logs.format,
            "on_bad_rows": logs.on_bad_rows,
            "storage": tuple(logs.storage),
        }
        elsewhere = ("logs", "cluster", "workers", "progress")
        options = {name: options[name] for name in options if name not in elsewhere}
        return cls(tuple(file.path for file in logs.files), logs.columns, reading, options)

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
        words = ["headstart", "evaluate"]
        words += self.paths if len(self.paths) <= LISTED else ["LOGS"]
        for role, value in self.columns.get_params(deep=False).items():
            if isinstance(value, Schema):
                words += ["--schema", "SCHEMA"]
            elif value is not None:
                words += [f"--{role}", ",".join(value) if isinstance(value, tuple) else value]
        if self.reading["format"] is not None:
            words += ["--format", self.reading["format"]]
        if self.reading["on_bad_rows"] != "error":
            words += ["--on-bad-rows", self.reading["on_bad_rows"]]
        for name in self.reading["storage"]:
            words += ["--storage", f"{name}=…"]
        more, rest = command_options(self.options)
        text = shlex.join([*words, *more])
        if self.columns.schema is not None:
            fields = json.dumps(self.columns.schema.to_dict(), ensure_ascii=False)
            rest = [f"SCHEMA: {fields}", *rest]
        if len(self.paths) > LISTED:
            rest = [f"LOGS: {len(self.paths):,} files", *rest]
        return text + (f"  # {', '.join(rest)}" if rest else "")


def command_options(options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Options that are not the default as words of the command, and those that it does not have."""
    from headstart.fleet.evaluation.evaluate import evaluate

    known = inspect.signature(evaluate).parameters
    words: list[str] = []
    rest: list[str] = []
    for name, value in options.items():
        usual = known[name].default
        flag = "--reward-model" if name == "reward" else f"--{name.replace('_', '-')}"
        if value is None or equal_values(value, usual):
            continue
        if name == "transfer":
            text = transfer_option(value)
            words += [] if text in (None, "empirical_bayes") else [flag, str(text)]
            rest += [f"transfer={value!r}"] if text is None else []
        elif name in ONLY_IN_PYTHON:
            rest.append(f"{name}={value!r}")
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{name.replace('_', '-')}")
        else:
            words += [flag, str(value)]
    return words, rest


def transfer_option(transfer: Transfer) -> str | None:
    """A transfer as the command takes it, or ``None`` where it cannot.

    >>> from headstart import EmpiricalBayes, Subspace
    >>> transfer_option(EmpiricalBayes()), transfer_option(Subspace(rank=3))
    ('empirical_bayes', 'subspace:rank=3')
    """
    from headstart.fleet.options import TRANSFERS, transfer_from

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
        return text if repr(transfer_from(text)) == repr(transfer) else None
    except HeadstartError:
        return None
