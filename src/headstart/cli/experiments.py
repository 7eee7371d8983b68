"""Experiments: reproduce, compare, report, worlds, policies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart.cli.options import Cluster, Json, Out, Workers
from headstart.cli.screen import print_entries, print_outcome, progress_bars
from headstart.lab.studies import STUDIES

if TYPE_CHECKING:
    from headstart.lab.experiments.execution import Execution


def complete_study(incomplete: str) -> list[str]:
    """The studies whose names start so, for the shell's completion."""
    return [name for name in STUDIES if name.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[str]:
    """The algorithms whose names start so."""
    from headstart.algorithms import ALGORITHMS

    return [name for name in ALGORITHMS if name.startswith(incomplete)]


Seeds = Annotated[int | None, typer.Option(min=2, help="Number of seeds to report on.")]
Tasks = Annotated[int | None, typer.Option(min=1, help="Number of tasks.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder with the MovieLens files; downloaded by default.")
]
Engine = Annotated[str, typer.Option(help="Engine: auto, plain (NumPy), compiled (Numba) or gpu.")]


def reproduce(
    study: Annotated[
        str, typer.Argument(help=f"One of {', '.join(STUDIES)}.", autocompletion=complete_study)
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds and tasks; takes under a minute.")
    ] = False,
    seeds: Seeds = None,
    tasks: Tasks = None,
    out: Out = Path("results/reproduction"),
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Reuse finished jobs, or start again.")
    ] = True,
    workers: Workers = None,
    data: Data = None,
    engine: Engine = "auto",
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Reproduce the paper: figures, tables, claims, and an HTML report."""
    from headstart.lab.studies.reproduction import reproduce as run

    if study not in STUDIES:
        raise typer.BadParameter(f"one of {', '.join(STUDIES)}", param_hint="study")
    with execution_of(workers, engine, cluster, quiet=as_json) as execution:
        outcome = run(
            study,
            out,
            quick=quick,
            seeds=seeds,
            tasks=tasks,
            resume=resume,
            data=data,
            execution=execution,
        )
    print_outcome(outcome, as_json)


def compare(
    plan: Annotated[
        Path | None, typer.Argument(help=r"TOML file with \[world], \[\[policy]] and sizes.")
    ] = None,
    world: Annotated[
        str, typer.Option(help="World and its options: synthetic:rank=3,noise=0.3.")
    ] = "synthetic",
    schema: Annotated[
        Path | None, typer.Option("--schema", help="JSON file of the schema, for the world logged.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy and its options: bias_oful:lam=2; repeatable.",
            autocompletion=complete_policy,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Number of seeds; default 8.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Number of tasks; default 100.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds per task; default 250.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="First seed; default 0.")] = None,
    out: Out = Path("results/comparison"),
    workers: Workers = None,
    engine: Engine = "auto",
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Compare policies in a world, on the same tasks, contexts and noise."""
    from headstart.lab.studies.comparison import DEFAULT_POLICIES
    from headstart.lab.studies.comparison import compare as run

    with execution_of(workers, engine, cluster, quiet=as_json) as execution:
        outcome = run(
            plan,
            world=world,
            schema=schema,
            policies=policy or DEFAULT_POLICIES,
            seeds=seeds,
            first_seed=first_seed,
            tasks=tasks,
            rounds=rounds,
            out=out,
            execution=execution,
        )
    print_outcome(outcome, as_json)


def report(
    folder: Annotated[Path, typer.Argument(help="Folder written by reproduce or compare.")],
    as_json: Json = False,
) -> None:
    """Draw figures and write the report again from results on disk; nothing is simulated."""
    from headstart.lab.studies.reproduction import rebuild

    with execution_of(quiet=as_json) as execution:
        outcome = rebuild(folder, execution)
    print_outcome(outcome, as_json)


@contextlib.contextmanager
def execution_of(
    workers: int | None = None, engine: str = "auto", cluster: str | None = None, *, quiet: bool
) -> Iterator[Execution]:
    """How to run experiments, with progress bars; connected to a cluster until the end."""
    from headstart.lab.experiments.execution import Execution

    with progress_bars(quiet) as bar, contextlib.ExitStack() as connection:
        executor = None
        if cluster is not None:
            from headstart.fleet.engines.cluster import connect

            with bar("connecting to the cluster"):
                executor = connection.enter_context(connect(cluster, workers)).run_jobs
        yield Execution(workers, engine, executor, bar)


def worlds(as_json: Json = False) -> None:
    """List the worlds for compare, with their options."""
    from headstart.lab.studies.comparison import list_worlds

    print_entries(list_worlds(), "world", as_json)


def policies(as_json: Json = False) -> None:
    """List the policies for compare, with their options."""
    from headstart.lab.studies.comparison import list_policies

    print_entries(list_policies(), "policy", as_json)
