"""The paper, reproduced: studies are run, figures drawn, claims tested, one report written."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from headstart import checks
from headstart.algorithms import DEFAULT
from headstart.errors import FileError
from headstart.lab.experiments.execution import Execution
from headstart.lab.experiments.store import versions, writing
from headstart.lab.report import Section, write_report
from headstart.lab.studies import STUDIES, claims, extensions, movielens, synthetic
from headstart.lab.studies.comparison import PLAN, compare
from headstart.lab.studies.outcome import Findings, Outcome, ratios
from headstart.lab.studies.runner import FULL, QUICK, Runner

__all__ = ["rebuild", "reproduce"]

ARGUMENTS = "study.json"  # the arguments of a study, so that its report can be written again

TITLE = "Meta Learning in Bandits within Shared Affine Subspaces, reproduced"


def reproduce(
    study: str = "all",
    out: str | os.PathLike[str] = "results/reproduction",
    *,
    quick: bool = False,
    seeds: int | None = None,
    tasks: int | None = None,
    resume: bool = True,
    data: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
) -> Outcome:
    """Run the paper's experiments and write figures and report.

    Parameters
    ----------
    study
        ``"synthetic"`` (regret curves), ``"ranks"`` (regret against the projection's rank),
        ``"subspace"`` (error of the learned subspace), ``"movielens"``, ``"beyond"`` (empirical
        Bayes and mixtures in many worlds), or ``"all"`` of them.
    out
        The folder for everything.
    quick
        Fewer seeds and tasks, and options that come with headstart in place of tuning.
    seeds, tasks
        Other numbers than the study's own.
    resume
        Keep what an earlier, interrupted run has finished.
    data
        A folder with MovieLens, if it should not be downloaded.
    execution
        How experiments are run; on all cores of this machine unless given.

    Returns
    -------
    Outcome
        The main table, the claims, and where the report is.
    """
    checks.one_of("study", study, STUDIES)
    execution = Execution() if execution is None else execution
    folder = Path(out)
    if not resume:
        remove_results(folder)
    scale = QUICK if quick else FULL
    if seeds is not None:
        scale = dataclasses.replace(scale, seeds=checks.integer("seeds", seeds, 2))
    if tasks is not None:
        scale = dataclasses.replace(scale, tasks=checks.integer("tasks", tasks, 1))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    arguments = {"study": study, "quick": quick, "seeds": seeds, "tasks": tasks}
    arguments |= {"engine": execution.engine, "data": data and str(data)}
    (folder / ARGUMENTS).write_text(json.dumps(arguments, indent=2) + "\n")
    files = None if data is None else Path(data)
    runner = Runner(folder, scale, not quick, files, execution)
    return write(runner, list(collect(runner, study)), arguments)


def remove_results(folder: Path) -> None:
    """Remove what an earlier study has written to a folder, and nothing else."""
    if not (folder / ARGUMENTS).exists():
        return
    for part in folder.iterdir():
        if part.is_dir() and ((part / "parts").is_dir() or part.name == "figures"):
            shutil.rmtree(part)
    for name in (ARGUMENTS, "report.html"):
        (folder / name).unlink(missing_ok=True)


def collect(runner: Runner, study: str) -> Iterator[Findings]:
    """Run a study, or all of them one after another."""
    studies = {study} if study != "all" else set(STUDIES)
    if studies & {"synthetic", "subspace"}:
        results, tuning = synthetic.play_all(runner)
    if "synthetic" in studies:
        printed, printed_sections = synthetic.play_printed(runner)
        yield Findings(
            [
                *synthetic.comparison(runner, results, tuning),
                synthetic.bounds(results),
                *printed_sections,
            ],
            claims.synthetic_claims(results, printed),
            "synthetic: total regret ÷ LinUCB's",
            ratios(results),
        )
    if "ranks" in studies:
        totals, sections = synthetic.rank_sweep(runner)
        means = totals.group_by("policy", "q").agg(total=pl.col("total").mean()).sort("policy", "q")
        yield Findings(sections, claims.rank_claims(totals), "ranks: mean total regret", means)
    if "subspace" in studies:
        title, table = "subspace: total regret ÷ B-OFUL's", ratios(results, "B-OFUL")
        yield Findings([synthetic.subspace(results)], claims.subspace_claims(results), title, table)
    if "movielens" in studies:
        groups, sections = movielens.comparison(runner)
        study_claims = claims.movielens_claims(groups, movielens.singular_share(runner))
        study_claims += claims.more_claims(runner) if study == "all" else []
        title, table = "MovieLens, men: total regret ÷ LinUCB's", ratios(groups["men"])
        yield Findings(sections, study_claims, title, table)
    if "beyond" in studies:
        sections, own_claims, table = extensions.synthetic_worlds(runner)
        if study == "all" or runner.data is not None:
            more, others = extensions.ratings(runner)
            sections, own_claims = [*sections, *more], [*own_claims, *others]
        text = "Requirements on headstart's own algorithms, tested in the same way."
        claims_section = Section("Beyond the paper: what holds", text, claims=own_claims)
        title = f"beyond the paper, {DEFAULT}: total regret ÷ the baseline's"
        yield Findings([*sections, claims_section], [], title, table)


def write(runner: Runner, findings: Sequence[Findings], arguments: dict[str, Any]) -> Outcome:
    """Write figures and report; the first study's table is the main one."""
    sections = [section for study in findings for section in study.sections]
    all_claims = [claim for study in findings for claim in study.claims]
    for section in sections:
        for figure in section.figures:
            figure.save(runner.folder / "figures")
    scale = runner.scale
    if arguments["study"] == "beyond":  # whose main table has more seeds than the paper's figures
        scale = dataclasses.replace(scale, seeds=len(extensions.main_seeds(runner)))
    if all_claims:
        text = (
            "Every claim that an experiment can settle: what we measured, and whether it holds. "
            "Intervals are 95 %, paired over seeds."
        )
        sections.insert(0, Section("The paper's claims", text, claims=all_claims))
    held_out = scale.held_out_seeds
    tuning_seeds = f"{held_out[0]}–{held_out[-1]}" if runner.tune else "none"
    manifest = {
        "command": command(arguments),
        "size": f"{scale.seeds} seeds × {scale.tasks} tasks × {scale.rounds} rounds",
        "reported seeds": f"{scale.reported_seeds[0]}–{scale.reported_seeds[-1]}",
        "tuning seeds": tuning_seeds,
        "world": repr(synthetic.WORLD),
        **versions(),
    }
    intro = f"{scale.seeds} seeds, {scale.tasks} tasks, {scale.rounds} rounds."
    if not runner.tune:
        intro = "A quick study, with fewer seeds and tasks than the paper's: " + intro
    path = write_report(runner.folder / "report.html", TITLE, sections, manifest, intro)
    return Outcome(f"{findings[0].title}, {scale.seeds} seeds", path, findings[0].table, all_claims)


def command(arguments: dict[str, Any]) -> str:
    """The command that does the same."""
    words = ["headstart reproduce", arguments["study"]]
    words += ["--quick"] if arguments["quick"] else []
    sizes = {name: arguments[name] for name in ("seeds", "tasks")}
    words += [f"--{name} {value}" for name, value in sizes.items() if value is not None]
    words += [f"--engine {arguments['engine']}"] if arguments["engine"] != "auto" else []
    return " ".join(words)


def rebuild(folder: str | os.PathLike[str], execution: Execution | None = None) -> Outcome:
    """Write a study's figures and report again from the results on disk.

    Parameters
    ----------
    folder
        A folder that :func:`reproduce` or :func:`~headstart.lab.studies.comparison.compare` wrote.
    execution
        Its progress bars are used; nothing is simulated.
    """
    home = Path(folder)
    execution = Execution() if execution is None else execution
    from_disk = dataclasses.replace(execution, stored_only=True)
    if (home / PLAN).exists():
        return compare(home / PLAN, out=home, execution=from_disk)
    try:
        arguments = json.loads((home / ARGUMENTS).read_text())
    except (OSError, ValueError) as error:
        raise FileError(
            f"folder {str(home)!r} must be one that 'headstart reproduce' or 'compare' filled; "
            f"it has no readable {ARGUMENTS} or {PLAN}"
        ) from error
    from_disk = dataclasses.replace(from_disk, engine=arguments.pop("engine", "auto"))
    return reproduce(**arguments, out=home, execution=from_disk)
