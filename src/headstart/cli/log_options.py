"""Options of the commands on logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ChosenColumn",
    "FeatureColumns",
    "Intercept",
    "LogFormat",
    "LogPaths",
    "OnBadRows",
    "PropensityColumn",
    "RewardColumn",
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
