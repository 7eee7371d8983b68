"""The paper, reproduced: studies are run, figures drawn, claims settled, one report written."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart import checks
from headstart.algorithms import DEFAULT
from headstart.errors import FileError
from headstart.lab.experiment import ENGINES
from headstart.lab.figures.intervals import paired_ratios
from headstart.lab.report import Claim, Section, write_report
from headstart.lab.studies import beyond, bounds, claims, movielens, synthetic
from headstart.lab.studies.bench import FULL, QUICK, Bench, no_bar

if TYPE_CHECKING:
    import polars as pl

    from headstart.lab.experiment import Results, Spread

__all__ = ["STUDIES", "Made", "rebuild", "reproduce"]

STUDIES = ("synthetic", "ranks", "subspace", "movielens", "beyond", "all")
NOTE = "study.json"  # what was asked for, so that a report can be made again

TITLE = "Meta Learning in Bandits within Shared Affine Subspaces, reproduced"


@dataclasses.dataclass(frozen=True)
class Made:
    """What a study has made."""

    title: str
    path: Path
    totals: pl.DataFrame
    claims: Sequence[Claim] = ()

    def summary(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "title": self.title,
            "report": str(self.path),
            "totals": self.totals.to_dicts(),
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
        }


def reproduce(
    study: str = "all",
    out: str | os.PathLike[str] = "results/reproduction",
    *,
    quick: bool = False,
    seeds: int | None = None,
    tasks: int | None = None,
    resume: bool = True,
    workers: int | None = None,
    bar: Any = no_bar,
    data: str | os.PathLike[str] | None = None,
    stored: bool = False,
    engine: str = "auto",
    spread: Spread | None = None,
) -> Made:
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
        Fewer seeds and tasks, and settings that come with headstart in place of tuning.
    seeds, tasks
        Other numbers than the study's own.
    resume
        Keep what an earlier, interrupted run has finished.
    workers, bar, data
        Processes, progress bars, and a folder with MovieLens (:class:`Bench`).
    stored
        Make figures and report from what is in the folder; simulate nothing.
    engine
        What plays the rounds (:func:`~headstart.lab.experiment.run`).
    spread
        Runs seeds elsewhere, on a cluster say (likewise).
    """
    checks.one_of("study", study, STUDIES)
    checks.one_of("engine", engine, ENGINES)
    folder = Path(out)
    if not resume:
        forget(folder)
    scale = QUICK if quick else FULL
    if seeds is not None:
        scale = dataclasses.replace(scale, seeds=checks.integer("seeds", seeds, 2))
    if tasks is not None:
        scale = dataclasses.replace(scale, tasks=checks.integer("tasks", tasks, 1))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"folder {str(folder)!r} cannot be written ({error})") from error
    asked = {"study": study, "quick": quick, "seeds": seeds, "tasks": tasks, "engine": engine}
    (folder / NOTE).write_text(json.dumps({**asked, "data": data and str(data)}, indent=2) + "\n")
    files = None if data is None else Path(data)
    bench = Bench(folder, scale, not quick, workers, bar, files, stored, engine, spread)
    return write(bench, *collect(bench, study), asked)


def forget(folder: Path) -> None:
    """Remove what an earlier study has written to a folder, and nothing else."""
    if not (folder / NOTE).exists():
        return
    for part in folder.iterdir():
        if part.is_dir() and ((part / "parts").is_dir() or part.name == "figures"):
            shutil.rmtree(part)
    for name in (NOTE, "report.html"):
        (folder / name).unlink(missing_ok=True)


def collect(bench: Bench, study: str) -> tuple[list[Section], list[Claim], dict[str, pl.DataFrame]]:
    """Run what a study consists of."""
    wanted = [name for name in STUDIES[:-1] if study in (name, "all")]
    sections: list[Section] = []
    settled: list[Claim] = []
    totals: dict[str, pl.DataFrame] = {}
    if "synthetic" in wanted:
        tuned, found = synthetic.comparison(bench)
        printed, more = synthetic.printed(bench)
        sections += [*found, bounds.section(tuned), *more]
        settled += claims.synthetic_claims(tuned, printed)
        totals["synthetic"] = ratios(tuned)
        totals["synthetic, as printed"] = ratios(printed)
    if "ranks" in wanted:
        swept, found = synthetic.rank_sweep(bench)
        sections += found
        settled += claims.rank_claims(swept)
        totals.setdefault("ranks", best_ranks(swept))
    if "subspace" in wanted:
        learned, found = synthetic.subspace(bench)
        sections += found
        settled += claims.subspace_claims(learned)
        totals.setdefault("subspace", ratios(learned, "B-OFUL"))
    if "movielens" in wanted:
        groups, found = movielens.comparison(bench)
        sections += found
        settled += claims.movielens_claims(groups, movielens.singular_share(bench))
        totals |= {f"MovieLens, {name}": ratios(result) for name, result in groups.items()}
    if study == "all":
        settled += claims.more_claims(bench)
    if "beyond" in wanted:
        found, ours, table = beyond.beyond(bench)
        if study == "all" or bench.data is not None:
            more, others = beyond.ratings(bench)
            found, ours = [*found, *more], [*ours, *others]
        own = "What headstart's own algorithms are held to, by the same kind of measurement."
        sections += [*found, Section("Beyond the paper: what holds", own, claims=ours)]
        totals.setdefault(f"beyond the paper, {DEFAULT}", table)
    return sections, settled, totals


def ratios(results: Results, baseline: str = "LinUCB") -> pl.DataFrame:
    """Total regret against a baseline's, for a table on the terminal."""
    return paired_ratios(results.totals(), baseline).select(
        "policy", "ratio", "low", "high", "worst"
    )


def best_ranks(swept: pl.DataFrame) -> pl.DataFrame:
    """Mean total regret by rank of the projection."""
    import polars as pl

    return swept.group_by("policy", "q").agg(total=pl.col("total").mean()).sort("policy", "q")


def write(
    bench: Bench,
    sections: list[Section],
    settled: list[Claim],
    totals: dict[str, pl.DataFrame],
    asked: dict[str, Any],
) -> Made:
    """Figures as files, and the report."""
    for section in sections:
        for figure in section.figures:
            figure.save(bench.folder / "figures")
    scale = bench.scale
    if asked["study"] == "beyond":  # whose main table has more seeds than the paper's figures
        scale = dataclasses.replace(scale, seeds=len(beyond.many(bench)))
    claims_section = Section(
        "The paper's claims",
        "Every claim that an experiment can settle: what we measured, and whether it holds. "
        "Intervals are 95 %, paired over seeds.",
        claims=settled,
    )
    opening = [claims_section] if settled else []
    manifest = {
        "command": command(asked),
        "size": f"{scale.seeds} seeds × {scale.tasks} tasks × {scale.rounds} rounds",
        "reported seeds": f"{scale.reported[0]}–{scale.reported[-1]}",
        "tuning seeds": f"{scale.tuned_on[0]}–{scale.tuned_on[-1]}" if bench.tune else "none",
        "world": repr(synthetic.WORLD),
        "python": platform.python_version(),
        **{name: version(name) for name in ("headstart", "numpy", "scipy", "polars")},
    }
    intro = f"{scale.seeds} seeds, {scale.tasks} tasks, {scale.rounds} rounds."
    if not bench.tune:
        intro = "A quick look, with fewer seeds and tasks than the paper's: " + intro
    path = write_report(bench.folder / "report.html", TITLE, [*opening, *sections], manifest, intro)
    name, table = next(iter(totals.items()))
    what = "mean total regret"
    if "ratio" in table.columns or "world" in table.columns:
        what = f"total regret ÷ {'LinUCB' if 'ratio' in table.columns else 'the baseline'}'s"
    return Made(f"{name}: {what}, {scale.seeds} seeds", path, table, settled)


def command(asked: dict[str, Any]) -> str:
    """The command that does the same."""
    words = ["headstart reproduce", asked["study"]]
    words += ["--quick"] if asked["quick"] else []
    words += [f"--{name} {asked[name]}" for name in ("seeds", "tasks") if asked[name] is not None]
    words += [f"--engine {asked['engine']}"] if asked["engine"] != "auto" else []
    return " ".join(words)


def rebuild(
    folder: str | os.PathLike[str], *, workers: int | None = None, bar: Any = no_bar
) -> Made:
    """Make a study's figures and report anew from what is on disk."""
    from headstart.lab.studies.comparison import PLAN, compare

    home = Path(folder)
    if (home / PLAN).exists():
        return compare(home / PLAN, out=home, workers=workers, bar=bar, stored=True)
    try:
        asked = json.loads((home / NOTE).read_text())
    except (OSError, ValueError) as error:
        raise FileError(
            f"folder {str(home)!r} must be one that 'headstart reproduce' or 'compare' filled; "
            f"it has no readable {NOTE} or {PLAN}"
        ) from error
    return reproduce(**asked, out=home, workers=workers, bar=bar, stored=True)
