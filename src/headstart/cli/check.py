"""Logs: check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.cli.options import (
    Cluster,
    Json,
    LogOptions,
    Workers,
    progress_unit,
    with_log_options,
)
from headstart.cli.screen import print_json, progress_bars
from headstart.errors import FileError, InputError, visible
from headstart.features.schema import Schema


@with_log_options
def check(
    logs: LogOptions,
    context: Annotated[
        str,
        typer.Option(help="Columns of the context (device,hour), for the proposed schema."),
    ] = "",
    id: Annotated[
        str, typer.Option("--id", help="Column with the item id, for the proposed schema.")
    ] = "id",
    write_schema: Annotated[
        Path | None, typer.Option("--write-schema", help="New file for the proposed schema.")
    ] = None,
    cluster: Cluster = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Check logs: what they contain, and what to fix. Exits with 2 if they cannot be used.

    Without --features and --schema, a schema is proposed, with a review of every column.
    """
    from headstart.fleet import check as run
    from headstart.fleet.reading.formats import sample_log

    proposed = None
    if not logs.features and logs.schema is None:
        if write_schema is not None:
            check_new(write_schema)
        sample, sample_notes = sample_log(
            logs.logs, logs.format, logs.storage_options, logs.task, logs.reward
        )
        context_columns = [name.strip() for name in context.split(",") if name.strip()]
        proposed = propose_schema(sample, logs.roles, context_columns, id)
    else:
        for name, value in (("--context", context), ("--write-schema", write_schema)):
            if value:
                raise InputError(
                    f"{name} is for a proposed schema: leave out --features and --schema"
                )
    opened = logs.open(proposed)
    with progress_bars(quiet=as_json) as bar, bar("reading", progress_unit(opened)) as progress:
        profile = run(opened, cluster=cluster, workers=workers, progress=progress)
    if write_schema is not None and proposed is not None:
        write_text(write_schema, proposed.to_json() + "\n")
    if as_json:
        summary: dict[str, Any] = profile.summary()
        if proposed is not None and proposed.review is not None:
            summary["schema"] = proposed.to_dict()
            summary["review"] = [
                {**each._asdict(), "field": each.field and each.field.to_json()}
                for each in proposed.review.columns
            ]
        print_json(summary)
    else:
        print(profile)
        if proposed is not None:
            print_proposal(proposed, sample_notes, write_schema)
    raise typer.Exit(0 if profile.usable else 2)


def propose_schema(
    columns: dict[str, list[Any]], roles: Mapping[str, str | None], context: list[str], id: str
) -> Schema:
    """The schema proposed for a sample of a log; errors name the options."""
    from headstart.worlds.tables import find_column

    for role, name in roles.items():
        if name is not None:
            find_column(role, name, list(columns), "the log")
    for name in context:
        find_column("context", name, list(columns), "the log")
    others = [name for role, name in roles.items() if role not in ("task", "reward") and name]
    return Schema.infer(
        columns,
        task=roles["task"],
        reward=roles["reward"],
        context=context,
        id=id,
        ignore=[name for name in dict.fromkeys(others) if name not in context],
    )


def print_proposal(schema: Schema, notes: list[str], path: Path | None) -> None:
    """Print a proposed schema, with the review of every column."""
    from headstart.lab.text import join_words

    where = f"It is in {path}" if path is not None else "--write-schema FILE writes it"
    print(visible(f"\nthe proposed schema, from a sample of {schema.review}\n"))
    print(visible(repr(schema)))
    for note in notes:
        print(f"Note: {note}.")
    doubtful = [
        each.name
        for each in (schema.review.columns if schema.review else ())
        if each.notes and each.field is not None
    ]
    if doubtful:
        print(
            visible(
                f"Check {join_words(doubtful)} before you use it: give a column that is not a "
                f"feature its role (--timestamp, --round, --weight), or leave it out of the schema."
            )
        )
    if not schema.context:
        print(
            "All fields are of actions: name those of the context with --context, if there are any."
        )
    print(visible(f"{where}: review it, correct it, and pass it to fit with --schema."))


def check_new(path: Path) -> None:
    """Refuse a path where no new file can be written."""
    if path.exists():
        raise FileError(f"{str(path)!r} exists already (--write-schema): give another name")
    if not path.parent.is_dir():
        raise FileError(f"{str(path.parent)!r} is not a folder to write to (--write-schema)")


def write_text(path: Path, text: str) -> None:
    """Write a new file."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be written ({error})") from None
