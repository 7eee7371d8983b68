"""Logs: check, fit, evaluate."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.cli.options import Cluster, Json, Out, Workers
from headstart.cli.screen import Interrupted, bars, print_json, say, show, table, warn
from headstart.errors import InputError

if TYPE_CHECKING:
    from headstart.fleet import Logs

__all__ = ["check", "evaluate", "fit"]

LogPaths = Annotated[
    list[str],
    typer.Argument(metavar="LOGS", help="Files, globs, folders or URLs (s3://bucket/logs)."),
]
TaskColumn = Annotated[str, typer.Option("--task", help="Column with the task's id.")]
RewardColumn = Annotated[str, typer.Option("--reward", help="Column with the reward.")]
FeatureColumns = Annotated[
    str,
    typer.Option(
        "--features", help="Feature columns: a pattern (x*), names (age,price), or one of lists."
    ),
]
WeightColumn = Annotated[
    str | None, typer.Option("--weight", help="Column that says how often a row counts.")
]
TimeColumn = Annotated[str | None, typer.Option("--timestamp", help="Column with the time.")]
RoundColumn = Annotated[
    str | None, typer.Option("--round", help="Column with the round, if all arms were logged.")
]
ChosenColumn = Annotated[
    str | None, typer.Option("--chosen", help="Column that says which arm was shown.")
]
PropensityColumn = Annotated[
    str | None, typer.Option("--propensity", help="Column with the probability of that.")
]
UnusedTime = Annotated[
    str | None, typer.Option("--timestamp", help="As of check and evaluate; not used here.")
]
UnusedRound = Annotated[
    str | None, typer.Option("--round", help="As of check and evaluate; not used here.")
]
UnusedPropensity = Annotated[
    str | None, typer.Option("--propensity", help="As of check and evaluate; not used here.")
]
LogFormat = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv, arrow or jsonl, if file names do not say it."),
]
OnBadRows = Annotated[
    str, typer.Option("--on-bad-rows", help="error: refuse them all at once; skip: count them.")
]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", help="An option of the URL's file system: anon=true. Repeat."),
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


def fit(
    logs: LogPaths,
    task: TaskColumn,
    reward: RewardColumn,
    features: FeatureColumns,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the bandit, for headstart.load.")
    ] = Path("prior.headstart"),
    weight: WeightColumn = None,
    timestamp: UnusedTime = None,
    round_id: UnusedRound = None,
    chosen: ChosenColumn = None,
    propensity: UnusedPropensity = None,
    format: LogFormat = None,
    on_bad_rows: OnBadRows = "error",
    storage: Storage = None,
    transfer: Annotated[
        str, typer.Option(help="How to learn, and its options: subspace:rank=3.")
    ] = "empirical_bayes",
    noise: Annotated[
        float | None, typer.Option(help="R, the rewards' noise; estimated unless given.")
    ] = None,
    keep_tasks: Annotated[
        bool, typer.Option("--keep-tasks", help="Keep every task's evidence, to go on with it.")
    ] = False,
    intercept: Intercept = True,
    standardize: Standardize = True,
    cluster: Cluster = None,
    workers: Workers = None,
    memory: Annotated[
        str, typer.Option(help="Memory to take; what is more goes to disk.")
    ] = "2GiB",
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Go on with a fit that was interrupted.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Learn a prior from logs, and write a bandit whose new tasks start from it."""
    from headstart.fleet import Columns, Logs
    from headstart.fleet.fit import LEAST, bytes_from, transfer_from
    from headstart.fleet.fit import fit as run
    from headstart.fleet.summing.checkpoint import check_target, forget, kept_in

    local_path(out)
    how, room = transfer_from(transfer), bytes_from(memory)
    if room < LEAST:
        raise InputError(f"memory must be at least {LEAST >> 20} MiB; got {memory!r} (--memory)")
    columns = Columns(task, reward, features, weight, timestamp, round_id, chosen, propensity)
    options = storage_options(storage)
    rows = Logs(logs, columns, on_bad_rows=on_bad_rows, format=format, storage=options)
    check_target(out, rows)
    folder = out.with_name(out.name + ".partial")
    if not resume:
        forget(folder)
    before = kept_in(folder)
    if not as_json:
        tell_notes(rows)
        if before:
            warn(f"Going on: {before:,} rows were read already, and are in {str(folder)!r}.")
    with (
        keeping(folder),
        bars(quiet=as_json) as bar,
        bar("reading", unit_of(rows)) as reading,
        bar("fitting") as fitting,
    ):
        stages = {"reading": reading, "fitting": fitting}
        found = run(
            rows,
            how,
            noise=noise,
            intercept=intercept,
            standardize=standardize,
            out=out,
            keep_tasks=keep_tasks,
            cluster=cluster,
            workers=workers,
            memory=room,
            resume=folder,
            progress=None if as_json else lambda what, done, all: stages[what](done, all),
        )
    summary = {**found.summary(), "out": str(out)}
    if before:
        summary["rows_per_second"] = round((found.rows - before) / max(found.seconds, 1e-9))
    notes = summary.pop("notes", [])
    if as_json:
        summary["notes"] = [*rows.notes, *notes]
        print_json(summary)
        return
    table({**summary, "gain": f"saves {summary['gain']['sentence']}"})
    for note in notes:
        say(f"Note: {note}")
    if found.bad:
        say(f"Left out {found.bad.count:,} rows that cannot be used:\n{found.bad}")
    say(f"The bandit is in {out}; headstart.load serves new tasks from it at once.", bold=True)


def evaluate(
    logs: LogPaths,
    task: TaskColumn,
    reward: RewardColumn,
    features: FeatureColumns,
    weight: WeightColumn = None,
    timestamp: TimeColumn = None,
    round_id: RoundColumn = None,
    chosen: ChosenColumn = None,
    propensity: PropensityColumn = None,
    format: LogFormat = None,
    on_bad_rows: OnBadRows = "error",
    storage: Storage = None,
    transfer: Annotated[
        str, typer.Option(help="How a prior is learned, and its options: subspace:rank=3.")
    ] = "empirical_bayes",
    future: Annotated[
        float, typer.Option(help="The share of tasks that is predicted: the latest, or any.")
    ] = 0.3,
    first: Annotated[int, typer.Option(min=1, help="How many rewards of each count.")] = 10,
    splits: Annotated[
        int | None, typer.Option(min=1, help="How often tasks are divided at random; 3 to 5.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the splits and the intervals.")] = 0,
    most_tasks: Annotated[
        int, typer.Option(min=4, help="Look at no more tasks than these, chosen by their ids.")
    ] = 20_000,
    intercept: Intercept = True,
    standardize: Standardize = True,
    clip: Annotated[
        float | None, typer.Option(help="The largest weight in off-policy estimates; no limit.")
    ] = None,
    out: Out = Path("results/evaluation"),
    as_json: Json = False,
) -> None:
    """Does it help on my data? Learn from some tasks, predict the others, and say so."""
    from headstart.fleet import Columns, Logs
    from headstart.fleet import evaluate as run
    from headstart.fleet.evaluation.page import check_place, write_page
    from headstart.fleet.fit import transfer_from

    local_path(out)
    check_place(out)
    columns = Columns(task, reward, features, weight, timestamp, round_id, chosen, propensity)
    options = storage_options(storage)
    rows = Logs(logs, columns, on_bad_rows=on_bad_rows, format=format, storage=options)
    if not as_json:
        tell_notes(rows)
    with bars(quiet=as_json) as bar, bar("evaluate") as progress:
        found = run(
            rows,
            transfer=transfer_from(transfer),
            future=future,
            first=first,
            splits=splits,
            seed=seed,
            most_tasks=most_tasks,
            intercept=intercept,
            standardize=standardize,
            clip=clip,
            progress=progress,
        )
    path = write_page(found, out)
    if as_json:
        print_json({**found.summary(), "report": str(path)})
        return
    rewards = "reward" if first == 1 else f"{first} rewards"
    show(found.frame, f"The first {rewards} of {found.judged:,} future tasks")
    say(found.verdict.sentence, bold=True)
    say(found.basis)
    for note in found.notes:
        say(f"Note: {note}")
    if found.values:
        show(found.value_frame, "What policies would earn per round")
        say(found.value_note)
    if found.advice:
        say(found.advice)
    say(f"The report is in {path}, figures beside it.", bold=True)


def check(
    logs: LogPaths,
    task: TaskColumn,
    reward: RewardColumn,
    features: FeatureColumns,
    weight: WeightColumn = None,
    timestamp: TimeColumn = None,
    round: RoundColumn = None,
    chosen: ChosenColumn = None,
    propensity: PropensityColumn = None,
    format: LogFormat = None,
    on_bad_rows: OnBadRows = "error",
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Look through logs: what is in them, and what to fix. Exits with 2 if they cannot be used."""
    from headstart.fleet import Columns, Logs
    from headstart.fleet import check as run

    columns = Columns(task, reward, features, weight, timestamp, round, chosen, propensity)
    opened = Logs(
        logs, columns, on_bad_rows=on_bad_rows, format=format, storage=storage_options(storage)
    )
    with bars(quiet=as_json) as bar, bar("reading", "bytes") as progress:
        profile = run(opened, progress=progress)
    if as_json:
        print_json(profile.summary())
    else:
        print(profile)
    raise typer.Exit(0 if profile.usable else 2)


def tell_notes(logs: Logs) -> None:
    """What is odd about the files."""
    for note in logs.notes:
        warn(f"Note: {note}")


def unit_of(logs: Logs) -> str:
    """What the progress of reading counts: rows, if all files tell how many they have."""
    return "rows" if all(part.rows is not None for part in logs.parts()) else "bytes"


def local_path(out: Path) -> None:
    """Refuse a URL as the place for results."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(out)):
        url = str(out).replace(":/", "://", 1)  # a path has lost one of them
        raise InputError(f"out must be a path on this machine; got {url!r} (--out): copy it there")


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """After Ctrl-C say what was kept; where nothing was, leave no folder behind."""
    from headstart.fleet.summing.checkpoint import kept_in, tidy

    try:
        yield
    except KeyboardInterrupt:
        tidy(folder)
        rows = kept_in(folder)
        if not rows:
            raise Interrupted("nothing was read far enough to be kept.") from None
        raise Interrupted(
            f"the {rows:,} rows read so far are kept in {str(folder)!r}: the same command goes on "
            f"from there (--afresh begins anew)."
        ) from None
    except BaseException:
        tidy(folder)
        raise


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
