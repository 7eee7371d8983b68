"""Options that several commands share, and how they are read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.errors import InputError
from headstart.features.schema import Schema

if TYPE_CHECKING:
    from headstart.fleet import Logs

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for results, figures and report.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of processes; default all cores.")]
Cluster = Annotated[
    str | None, typer.Option(help="Ray cluster: ray (started here), or ray://host:port.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TransferText = Annotated[str, typer.Option(help="Transfer and its options: subspace:rank=3.")]
RewardModel = Annotated[str, typer.Option(help="number, or binary for rewards of 0 and 1.")]
Minimize = Annotated[bool, typer.Option("--minimize", help="Rewards are costs: less is better.")]
Intercept = Annotated[
    bool, typer.Option("--intercept/--no-intercept", help="Add a constant feature.")
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize/--no-standardize",
        help="Centre features and divide them by their standard deviations.",
    ),
]

Column = str | None


@dataclasses.dataclass
class LogOptions:
    """The options that name logs and how to read them; each field is one of them."""

    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOGS", help="Files, globs, folders or URLs (s3://bucket/logs)."),
    ]
    task: Annotated[str, typer.Option(help="Column with the task id.")]
    reward: Annotated[
        str,
        typer.Option(help="Column with the reward; larger is better, unless --minimize is given."),
    ]
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Feature columns: a pattern (x*), names (age,price), or one of lists; repeatable."
        ),
    ] = None
    schema: Annotated[
        Path | None, typer.Option(help="JSON file of the schema (headstart check proposes one).")
    ] = None
    weight: Annotated[
        Column, typer.Option(help="Column with weights: how many equal rows a row stands for.")
    ] = None
    mean_of: Annotated[
        Column, typer.Option(help="Column with how many rewards each reward is the mean of.")
    ] = None
    timestamp: Annotated[
        Column, typer.Option(help="Column with the time, for the order and to find repeated rows.")
    ] = None
    round: Annotated[
        Column,
        typer.Option(help="Column with the round id, if all arms were logged, or to find repeats."),
    ] = None
    chosen: Annotated[Column, typer.Option(help="Column that marks the arm shown.")] = None
    propensity: Annotated[
        Column, typer.Option(help="Column with the probability of the arm shown; not used by fit.")
    ] = None
    format: Annotated[
        str | None, typer.Option(help="parquet, csv, arrow or jsonl; by default from file names.")
    ] = None
    on_bad_rows: Annotated[
        str, typer.Option(help="error: report all unusable rows; skip: count and skip.")
    ] = "error"
    storage: Annotated[
        list[str] | None,
        typer.Option(help="Option of the URL's file system (anon=true); repeatable."),
    ] = None

    @property
    def roles(self) -> dict[str, str | None]:
        """The columns that are not features, by role."""
        names = (
            "task",
            "reward",
            "weight",
            "timestamp",
            "round",
            "chosen",
            "propensity",
            "mean_of",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options of a file system from KEY=VALUE; values that are JSON are read as such."""
        options: dict[str, Any] = {}
        for entry in self.storage or []:
            name, sign, value = entry.partition("=")
            if not sign or not name:
                raise typer.BadParameter(f"KEY=VALUE; got {entry!r}", param_hint="--storage")
            try:
                options[name] = json.loads(value)
            except ValueError:
                options[name] = value
        return options

    def open(self, schema: Schema | None = None) -> Logs:
        """The logs, with the features or the file of a schema given, or else with ``schema``."""
        from headstart.fleet import Columns, Logs

        if schema is None and bool(self.features) == (self.schema is not None):
            raise InputError(
                "either --features or --schema must be given, and not both; headstart check "
                "--write-schema FILE proposes a schema for these logs"
            )
        if self.schema is not None:
            schema = Schema.from_file(self.schema)
        features = ",".join(self.features) if self.features else None
        columns = Columns(features=features, schema=schema, **self.roles)  # type: ignore[arg-type]
        how: dict[str, Any] = {"format": self.format, "on_bad_rows": self.on_bad_rows}
        return Logs(self.logs, columns, storage=self.storage_options, **how)


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter, a :class:`LogOptions`, is given by separate options.

    Typer reads the options of a command from its signature.
    """
    fields = inspect.signature(LogOptions, eval_str=True).parameters
    _, *others = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(LogOptions(**{name: values.pop(name) for name in fields}), **values)

    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*fields.values(), *others)
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def progress_unit(logs: Logs) -> str:
    """The unit of progress: rows if all files state how many they have, else bytes."""
    return "rows" if all(part.rows is not None for part in logs.parts()) else "bytes"
