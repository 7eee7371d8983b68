"""Logs: fit and evaluate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart import checks
from headstart.cli.options import (
    Cluster,
    Intercept,
    Json,
    LogOptions,
    Minimize,
    Out,
    RewardModel,
    Standardize,
    TransferText,
    Workers,
    progress_unit,
    with_log_options,
)
from headstart.cli.screen import (
    Interrupted,
    print_facts,
    print_json,
    print_table,
    print_text,
    progress_bars,
    warn,
)
from headstart.errors import InputError

if TYPE_CHECKING:
    from headstart.fleet import Logs


@with_log_options
def fit(
    logs: LogOptions,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Path or URL for the bandit (headstart.load).")
    ] = "prior.headstart",
    transfer: TransferText = "empirical_bayes",
    reward_model: RewardModel = "number",
    minimize: Minimize = False,
    noise: Annotated[
        float | None, typer.Option(help="Noise scale R; estimated by default.")
    ] = None,
    keep_tasks: Annotated[
        bool,
        typer.Option("--keep-tasks", help="Store every task's evidence, to resume tasks."),
    ] = False,
    intercept: Intercept = True,
    standardize: Standardize = True,
    cluster: Cluster = None,
    workers: Workers = None,
    memory: Annotated[
        str,
        typer.Option(help="Memory limit (on a cluster: of each worker); beyond it, disk."),
    ] = "2GiB",
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder or URL for checkpoints; by default beside --out.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Resume an interrupted fit, or start again.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Fit a prior to logs, and write a bandit whose new tasks start from it."""
    from headstart.fleet.fit import MIN_MEMORY
    from headstart.fleet.fit import fit as run
    from headstart.fleet.fitted import Target
    from headstart.fleet.options import parse_bytes, parse_transfer
    from headstart.fleet.summing.checkpoint import checkpointed_rows, lock_folder, remove_checkpoint

    how, room = parse_transfer(transfer), parse_bytes(memory)
    check_reward_model(reward_model, noise)
    if room < MIN_MEMORY:
        raise InputError(
            f"memory must be at least {MIN_MEMORY >> 20} MiB; got {memory!r} (--memory)"
        )
    rows = logs.open()
    options, fields = rows.storage, rows.columns.schema
    Target(out, rows)
    place = out + ".partial" if checkpoint is None else checkpoint
    is_resumable = reward_model == "number" and not (fields is not None and fields.identity)
    if not resume:
        with lock_folder(place, options):
            remove_checkpoint(place, options)
    before = checkpointed_rows(place, options)
    if not as_json:
        print_notes(rows)
        if before:
            warn(f"Resuming: {before:,} rows were read before, and are in {place!r}.")
    with (
        reporting_interrupt(place, options),
        progress_bars(quiet=as_json) as bar,
        bar("reading", progress_unit(rows)) as reading,
        bar("fitting") as fitting,
    ):
        stages = {"reading": reading, "fitting": fitting}
        shared: dict[str, Any] = {
            "intercept": intercept,
            "standardize": standardize,
            "out": out,
            "keep_tasks": keep_tasks,
            "memory": room,
            "reward": reward_model,
            "minimize": minimize,
            "checkpoint": place if is_resumable else checkpoint,
            "progress": None if as_json else lambda what, done, all: stages[what](done, all),
        }
        fitted = run(rows, how, noise=noise, cluster=cluster, workers=workers, **shared)
    summary = {**fitted.summary(), "out": out}
    if before:
        summary["rows_per_second"] = round((fitted.rows - before) / max(fitted.seconds, 1e-9))
    notes = summary.pop("notes", [])
    if as_json:
        summary["notes"] = list(dict.fromkeys([*rows.notes, *notes]))
        print_json(summary)
        return
    gain = summary.pop("gain")["sentence"]
    zero_counts = [name for name in ("bad_rows", "weightless_rows") if not summary[name]]
    print_facts({name: value for name, value in summary.items() if name not in zero_counts})
    print_text(f"Expected gain of a new task from this prior: {gain}.")
    print_new_notes(notes, rows)
    if fitted.bad:
        print_text(f"Left out {fitted.bad.count:,} rows that cannot be used:\n{fitted.bad}")
    print_text(f"The bandit is in {out}; headstart.load(path) loads it for new tasks.", bold=True)


@with_log_options
def evaluate(
    logs: LogOptions,
    transfer: TransferText = "empirical_bayes",
    reward_model: RewardModel = "number",
    minimize: Minimize = False,
    future: Annotated[
        float, typer.Option(help="Share of tasks to predict: the latest, or random ones.")
    ] = 0.3,
    first: Annotated[
        int, typer.Option(min=1, help="Number of rewards of each task to predict.")
    ] = 10,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Number of random splits; 3 to 5 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of splits and intervals.")] = 0,
    most_tasks: Annotated[
        int, typer.Option(min=4, help="Maximum number of tasks, sampled by id.")
    ] = 20_000,
    intercept: Intercept = True,
    standardize: Standardize = True,
    clip: Annotated[
        float | None, typer.Option(help="Limit of importance weights; none by default.")
    ] = None,
    cluster: Cluster = None,
    workers: Workers = None,
    out: Out = Path("results/evaluation"),
    as_json: Json = False,
) -> None:
    """Evaluate whether transfer helps: fit on some tasks of the logs, predict the others."""
    from headstart.fleet import evaluate as run
    from headstart.fleet.evaluation.offpolicy import ESTIMATOR_NOTE
    from headstart.fleet.evaluation.page import check_place, write_page
    from headstart.fleet.evaluation.result import LEGEND
    from headstart.fleet.options import parse_transfer

    check_place(out)
    if (out / "report.html").exists():
        warn(f"Note: {str(out)!r} has the report of an earlier evaluation; it will be replaced.")
    check_reward_model(reward_model, None)
    rows = logs.open()
    if not as_json:
        print_notes(rows)
    with (
        saying_that_nothing_was_written(),
        progress_bars(quiet=as_json) as bar,
        bar("evaluate") as progress,
    ):
        evaluation = run(
            rows,
            transfer=parse_transfer(transfer),
            reward=reward_model,
            minimize=minimize,
            future=future,
            first=first,
            splits=splits,
            seed=seed,
            most_tasks=most_tasks,
            intercept=intercept,
            standardize=standardize,
            clip=clip,
            cluster=cluster,
            workers=workers,
            progress=progress,
        )
    path = write_page(evaluation, out)
    if as_json:
        print_json({**evaluation.summary(), "report": str(path)})
        return
    rewards = "reward" if first == 1 else f"{first} rewards"
    print_table(evaluation.frame, f"The first {rewards} of {evaluation.judged:,} future tasks")
    print_text(LEGEND + "\n")
    print_text(evaluation.verdict.sentence, bold=True)
    print_text(evaluation.basis + "\n")
    print_new_notes(evaluation.notes, rows)
    if evaluation.values:
        print_table(evaluation.value_frame, f"{evaluation.value_title} per round")
        print_text(ESTIMATOR_NOTE)
    if evaluation.advice:
        print_text(evaluation.advice)
    print_text(f"The report is in {path}, with its figures in the same folder.", bold=True)


def print_notes(logs: Logs) -> None:
    """Print notes on the files to standard error."""
    for note in logs.notes:
        warn(f"Note: {note}")


def print_new_notes(notes: Iterable[str], logs: Logs) -> None:
    """Print notes other than those on the files, which were printed before the work."""
    for note in notes:
        if note not in logs.notes:
            print_text(f"Note: {note}")


def check_reward_model(reward_model: str, noise: float | None) -> None:
    """Refuse an unknown reward model, and a noise that it does not have."""
    from headstart.bandit.rewards import REWARD_MODELS

    checks.one_of("reward-model", reward_model, REWARD_MODELS)
    if noise is not None and reward_model != "number":
        raise checks.invalid("--noise", f"left out with --reward-model {reward_model}", noise)


@contextlib.contextmanager
def saying_that_nothing_was_written() -> Iterator[None]:
    """After Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("nothing was written.") from None


@contextlib.contextmanager
def reporting_interrupt(place: str, storage: dict[str, Any]) -> Iterator[None]:
    """After Ctrl-C, say what was stored; an empty folder is removed."""
    from headstart.fleet.summing.checkpoint import checkpointed_rows, remove_unused

    try:
        yield
    except KeyboardInterrupt:
        remove_unused(place, storage)
        rows = checkpointed_rows(place, storage)
        if not rows:
            raise Interrupted("nothing was kept: the same command starts again.") from None
        raise Interrupted(
            f"the {rows:,} rows read so far are kept in {place!r}: the same command resumes from "
            f"there (--afresh starts again)."
        ) from None
    except BaseException:
        remove_unused(place, storage)
        raise
