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
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


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

    with bars(quiet=as_json) as bar:
        made = run(
            plan,
            world=world,
            policies=policy or ["linucb", "bias_oful", "projected_linucb"],
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
def worlds(as_json: Json = False) -> None:
    """List the worlds that compare knows, with their options."""
    from headstart.lab.studies import list_worlds

    list_out(list_worlds(), "world", as_json)


@app.command()
def policies(as_json: Json = False) -> None:
    """List the policies that compare knows, with their options."""
    from headstart.lab.studies import list_policies

    list_out(list_policies(), "policy", as_json)


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
