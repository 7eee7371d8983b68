"""Options of the commands on logs, and what they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.errors import InputError

if TYPE_CHECKING:
    from headstart.features.schema import Schema
    from headstart.fleet import Logs

__all__ = [
    "ChosenColumn",
    "FeatureColumns",
    "Intercept",
    "LogFormat",
    "LogPaths",
    "OnBadRows",
    "PropensityColumn",
    "RewardColumn",
    "RewardModel",
    "RoundColumn",
    "RoundOfRepeats",
    "SchemaFile",
    "Standardize",
    "Storage",
    "TaskColumn",
    "TimeColumn",
    "TimeOfRepeats",
    "UnusedPropensity",
    "WeightColumn",
    "open_logs",
    "progress_unit",
    "storage_options",
]

UNUSED = "Accepted as by check and evaluate; not used by fit."

LogPaths = Annotated[
    list[str],
    typer.Argument(metavar="LOGS", help="Files, globs, folders or URLs (s3://bucket/logs)."),
]
TaskColumn = Annotated[str, typer.Option("--task", help="Column with the task id.")]
RewardColumn = Annotated[str, typer.Option("--reward", help="Column with the reward.")]
FeatureColumns = Annotated[
    str | None,
    typer.Option(
        "--features", help="Feature columns: a pattern (x*), names (age,price), or one of lists."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="JSON file of the schema (headstart check proposes one)."),
]
WeightColumn = Annotated[str | None, typer.Option("--weight", help="Column with row weights.")]
TimeColumn = Annotated[str | None, typer.Option("--timestamp", help="Column with the time.")]
RoundColumn = Annotated[
    str | None, typer.Option("--round", help="Column with the round id, if all arms were logged.")
]
ChosenColumn = Annotated[
    str | None, typer.Option("--chosen", help="Column that marks the arm shown.")
]
PropensityColumn = Annotated[
    str | None, typer.Option("--propensity", help="Column with the probability of the arm shown.")
]
TimeOfRepeats = Annotated[
    str | None, typer.Option("--timestamp", help="Column with the time, to find repeated rows.")
]
RoundOfRepeats = Annotated[
    str | None, typer.Option("--round", help="Column with the round, to find repeated rows.")
]
UnusedPropensity = Annotated[str | None, typer.Option("--propensity", help=UNUSED)]
LogFormat = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv, arrow or jsonl; by default from file names."),
]
OnBadRows = Annotated[
    str,
    typer.Option("--on-bad-rows", help="error: report all unusable rows; skip: count and skip."),
]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", help="Option of the URL's file system (anon=true); repeatable."),
]
RewardModel = Annotated[
    str, typer.Option("--reward-model", help="number, or binary for rewards of 0 and 1.")
]
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


def open_logs(
    paths: list[str],
    features: str | None,
    schema: Path | Schema | None,
    format: str | None,
    on_bad_rows: str,
    storage: list[str] | None,
    **roles: str | None,
) -> Logs:
    """The logs that options name, with features, or with a schema or the file of one."""
    from headstart.features.schema import Schema
    from headstart.fleet import Columns, Logs

    if (features is None) == (schema is None):
        raise InputError(
            "either --features or --schema must be given, and not both; headstart check "
            "--write-schema FILE proposes a schema for these logs"
        )
    if isinstance(schema, Path):
        schema = Schema.from_file(schema)
    columns = Columns(features=features, schema=schema, **roles)  # type: ignore[arg-type]
    options = storage_options(storage)
    return Logs(paths, columns, on_bad_rows=on_bad_rows, format=format, storage=options)


def progress_unit(logs: Logs) -> str:
    """The unit of progress: rows if all files state how many they have, else bytes."""
    return "rows" if all(part.rows is not None for part in logs.parts()) else "bytes"


def storage_options(given: list[str] | None) -> dict[str, Any]:
    """Options of a file system from KEY=VALUE; values that are JSON are read as such."""
    options: dict[str, Any] = {}
    for entry in given or []:
        name, sign, value = entry.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"KEY=VALUE; got {entry!r}", param_hint="--storage")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
