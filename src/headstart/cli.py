"""The command line: no logic of its own, only words for what the library does."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
except ModuleNotFoundError:  # pragma: no cover - only without the extra
    sys.exit("The headstart command needs the lab extra: pip install 'headstart[lab]'")

from headstart.errors import HeadstartError

if TYPE_CHECKING:
    from headstart.lab.studies import Made

__all__ = ["app", "main"]

app = typer.Typer(
    name="headstart",
    help="Contextual bandits that start ahead: experiments from the command line.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

STUDIES = ("synthetic", "ranks", "subspace", "movielens", "beyond", "all")


def studies_like(incomplete: str) -> list[str]:
    """Studies whose names start so, for the shell's completion."""
    return [name for name in STUDIES if name.startswith(incomplete)]


def policies_like(incomplete: str) -> list[str]:
    """Likewise policies."""
    from headstart.lab.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for results, figures and report.")]
Seeds = Annotated[int | None, typer.Option(min=2, help="How many seeds to report on.")]
Tasks = Annotated[int | None, typer.Option(min=1, help="How many tasks in a row.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; all cores unless given.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder with MovieLens, if it should not be downloaded.")
]
Engine = Annotated[
    str,
    typer.Option(help="What plays the rounds: auto, plain (NumPy), compiled (Numba) or gpu."),
]
Cluster = Annotated[
    str | None, typer.Option(help="Where to run: ray (started here), or ray://host:port.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

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


@app.command()
def reproduce(
    study: Annotated[
        str, typer.Argument(help=f"One of {', '.join(STUDIES)}.", autocompletion=studies_like)
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="A look in under a minute: fewer seeds and tasks.")
    ] = False,
    seeds: Seeds = None,
    tasks: Tasks = None,
    out: Out = Path("results/reproduction"),
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Keep finished jobs of an earlier run.")
    ] = True,
    workers: Workers = None,
    data: Data = None,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Reproduce the paper: figures, tables, claims, and one HTML report."""
    from headstart.lab.studies import reproduce as run

    if study not in STUDIES:
        raise typer.BadParameter(f"one of {', '.join(STUDIES)}", param_hint="study")
    with bars(quiet=as_json) as bar:
        made = run(
            study,
            out,
            quick=quick,
            seeds=seeds,
            tasks=tasks,
            resume=resume,
            workers=workers,
            bar=bar,
            data=data,
            engine=engine,
        )
    tell(made, as_json)


@app.command()
def compare(
    plan: Annotated[
        Path | None, typer.Argument(help=r"A TOML file with \[world], \[\[policy]] and sizes.")
    ] = None,
    world: Annotated[
        str, typer.Option(help="A world and its options: synthetic:rank=3,noise=0.3")
    ] = "synthetic",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy and its options: bias_oful:lam=2. Repeat.", autocompletion=policies_like
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="How many seeds; 8.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many tasks; 100.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of a task; 250.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="The first seed; 0.")] = None,
    out: Out = Path("results/comparison"),
    workers: Workers = None,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Compare any policies on any world, on the same tasks, contexts and noise."""
    from headstart.lab.studies import compare as run
    from headstart.lab.studies.comparison import DEFAULT_POLICIES

    with bars(quiet=as_json) as bar:
        made = run(
            plan,
            world=world,
            policies=policy or DEFAULT_POLICIES,
            seeds=seeds,
            first_seed=first_seed,
            tasks=tasks,
            rounds=rounds,
            out=out,
            workers=workers,
            bar=bar,
            engine=engine,
        )
    tell(made, as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that reproduce or compare has filled.")],
    as_json: Json = False,
) -> None:
    """Make figures and report anew from results on disk; nothing is simulated again."""
    from headstart.lab.studies import rebuild

    with bars(quiet=as_json) as bar:
        made = rebuild(folder, bar=bar)
    tell(made, as_json)


@app.command()
def fit(
    logs: LogPaths,
    task: TaskColumn,
    reward: RewardColumn,
    features: FeatureColumns,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the bandit, for headstart.load.")
    ] = Path("prior.headstart"),
    weight: WeightColumn = None,
    chosen: ChosenColumn = None,
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
    from headstart.fleet.fit import bytes_from, transfer_from
    from headstart.fleet.fit import fit as run
    from headstart.fleet.local import forget

    how, room = transfer_from(transfer), bytes_from(memory)
    columns = Columns(task, reward, features, weight, chosen=chosen)
    options = storage_options(storage)
    rows = Logs(logs, columns, on_bad_rows=on_bad_rows, format=format, storage=options)
    folder = out.with_name(out.name + ".partial")
    if not resume:
        forget(folder)
    with bars(quiet=as_json) as bar, bar("reading") as reading, bar("fitting") as fitting:
        stages = {"reading": reading, "fitting": fitting}
        found = run(
            rows,
            how,
            noise=noise,
            out=out,
            keep_tasks=keep_tasks,
            cluster=cluster,
            workers=workers,
            memory=room,
            resume=folder if cluster is None else None,
            progress=None if as_json else lambda what, done, all: stages[what](done, all),
        )
    summary = {**found.summary(), "out": str(out)}
    if as_json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    table(summary)
    if found.bad:
        say(f"Left out {found.bad.count:,} rows that cannot be used:\n{found.bad}")
    say(f"The bandit is in [bold]{out}[/bold]; headstart.load serves new tasks from it at once.")


@app.command()
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
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the intervals.")] = 0,
    most_tasks: Annotated[
        int, typer.Option(min=4, help="Look at no more tasks than these, chosen by their ids.")
    ] = 20_000,
    intercept: Annotated[
        bool,
        typer.Option("--intercept/--no-intercept", help="Add a constant feature if there is none."),
    ] = True,
    clip: Annotated[
        float | None, typer.Option(help="The largest weight in off-policy estimates; no limit.")
    ] = None,
    out: Out = Path("results/evaluation"),
    as_json: Json = False,
) -> None:
    """Does it help on my data? Learn from some tasks, predict the others, and say so."""
    from headstart.fleet import Columns, Logs
    from headstart.fleet import evaluate as run
    from headstart.fleet.fit import transfer_from
    from headstart.fleet.page import write_page

    columns = Columns(task, reward, features, weight, timestamp, round_id, chosen, propensity)
    options = storage_options(storage)
    rows = Logs(logs, columns, on_bad_rows=on_bad_rows, format=format, storage=options)
    with bars(quiet=as_json) as bar, bar("evaluate") as progress:
        found = run(
            rows,
            transfer=transfer_from(transfer),
            future=future,
            first=first,
            seed=seed,
            most_tasks=most_tasks,
            intercept=intercept,
            clip=clip,
            progress=progress,
        )
    path = write_page(found, out)
    if as_json:
        print(json.dumps({**found.summary(), "report": str(path)}, indent=2, ensure_ascii=False))
        return
    show(found.frame, f"The first {first} rewards of {found.future:,} future tasks")
    say(in_bold(found.verdict.sentence))
    if found.advice:
        say(found.advice)
    say(f"The report is in [bold]{path}[/bold], figures beside it.")


@app.command()
def worlds(as_json: Json = False) -> None:
    """List the worlds that compare knows, with their options."""
    from headstart.lab.studies import list_worlds

    list_out(list_worlds(), "world", as_json)


@app.command()
def policies(as_json: Json = False) -> None:
    """List the policies that compare knows, with their options."""
    from headstart.lab.studies import list_policies

    list_out(list_policies(), "policy", as_json)


@app.command()
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
    with bars(quiet=as_json) as bar, bar("reading") as progress:
        profile = run(opened, progress=progress)
    if as_json:
        print(json.dumps(profile.summary(), indent=2, ensure_ascii=False))
    else:
        print(profile)
    raise typer.Exit(0 if profile.usable else 2)


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


@contextlib.contextmanager
def bars(quiet: bool) -> Iterator[Any]:
    """Progress bars with the time left; none where nobody watches."""
    if quiet:
        yield lambda label: contextlib.nullcontext(None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:

        @contextlib.contextmanager
        def bar(label: str) -> Iterator[Callable[[float, float], None]]:
            task = progress.add_task(label, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
            progress.update(task, completed=1, total=1)

        yield bar


def tell(made: Made, as_json: bool) -> None:
    """What a study has made: a table and where the report is, or JSON."""
    if as_json:
        print(json.dumps(made.summary(), indent=2, ensure_ascii=False))
        return
    show(made.totals, made.title)
    say(f"The report is in [bold]{made.path}[/bold], figures beside it.")


def show(table: Any, title: str) -> None:
    """A Polars table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for column in table.columns:
        shown.add_column(
            column, justify="left" if str(table[column].dtype) == "String" else "right"
        )
    for row in table.iter_rows():
        shown.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(shown)


def table(facts: dict[str, Any]) -> None:
    """Names and figures, one below the other; what is unknown is left out."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    for name, value in facts.items():
        if value is not None and value != "":
            text = f"{value:,}" if isinstance(value, int) else str(value)
            text = f"{value:,.4g}" if isinstance(value, float) else text
            shown.add_row(name.replace("_", " "), text)
    Console().print(shown)


def list_out(rows: list[dict[str, Any]], kind: str, as_json: bool) -> None:
    """Names with options and a line on each."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=True)
    for column in (kind, "what it is", "options"):
        table.add_column(column)
    for row in rows:
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        table.add_row(row["name"], row["about"], options)
    Console().print(table)


def say(text: str) -> None:
    """A line for people."""
    from rich.console import Console

    Console().print(text, soft_wrap=True, highlight=False)


def in_bold(text: str) -> str:
    """Text whose brackets mean nothing to Rich, in bold."""
    from rich.markup import escape

    return f"[bold]{escape(text)}[/bold]"


def main() -> None:
    """Run the command; errors of the library are one line, and exit with 2."""
    try:
        code = app(standalone_mode=False)
    except HeadstartError as error:
        print(f"headstart: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        sys.exit(f"headstart: {error.name} is missing: pip install 'headstart[lab]'")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        # Typer carries a Click of its own, whose errors can be told only by what they can do.
        if not hasattr(error, "show"):
            raise
        error.show()
        code = getattr(error, "exit_code", 2)
    if code == 130:
        print("headstart: interrupted; what was finished is kept.", file=sys.stderr)
    sys.exit(code or 0)
