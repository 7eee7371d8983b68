"""Beyond the paper: empirical Bayes and mixtures, in many worlds, against everything else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.algorithms import DEFAULT
from headstart.errors import FileError
from headstart.lab import figures
from headstart.lab.clicks import play_logistic_oracle
from headstart.lab.figures.intervals import paired_ratios
from headstart.lab.fingerprint import fingerprint
from headstart.lab.jobs import map_jobs
from headstart.lab.overlap import play_overlapping
from headstart.lab.plan import Results
from headstart.lab.policies import policy
from headstart.lab.report import Claim, Section
from headstart.lab.studies.runner import Runner, known_policies
from headstart.records import Array
from headstart.worlds.movielens import MovieLens
from headstart.worlds.synthetic import Synthetic

if TYPE_CHECKING:
    import polars as pl

__all__ = ["WORLDS", "ratings", "synthetic_worlds"]

#: The worlds of the main table, by the name that figures show.
WORLDS = {
    "mean off the plane": Synthetic(),
    "mean off the plane, R = 0.3": Synthetic(noise=0.3),
    "mean anywhere": Synthetic(offset=1.0, mean="anywhere"),
    "three dimensions": Synthetic(rank=3, inside=0.5, offset=1.0, mean="anywhere"),
    "no structure": Synthetic(rank=30, offset=0.0),
    "mean anywhere, R = 0.5": Synthetic(noise=0.5, offset=1.0, mean="anywhere"),
}
GROUPED = Synthetic(rank=3, offset=0.0, clusters=3, apart=1.0)
CURVED = Synthetic(curve=1.0, offset=0.0)
CLICKS = Synthetic(logistic=4.0)
MAIN_SEEDS = 48  # seeds of the main table
FIGURE_SEEDS = 12  # seeds of the figures that show everybody
FEW_SEEDS = 8  # seeds of studies that take long for each seed
TUNED, BEST = "P-LinUCB, tuned λ", "LinUCB, best λ"
GIVEN = "empirical Bayes, units given"


def synthetic_worlds(runner: Runner) -> tuple[list[Section], list[Claim], pl.DataFrame]:
    """All studies on synthetic worlds: sections, claims of our own, and the main table."""
    import polars as pl

    rows, sections, claims = [], [], []
    for name, world in WORLDS.items():
        results, regret = compared(runner, name, world)
        row = summary(name, results)
        rows.append(row)
        claims.append(
            Claim(
                f"{DEFAULT} never does worse than LinUCB: {name}",
                "headstart",
                f"÷ LinUCB {row['÷ LinUCB']:.3f}, worst seed {row['worst seed']:.3f}; ÷ Bayes "
                f"oracle {row['÷ Bayes oracle']:.3f}; first ten tasks ÷ LinUCB "
                f"{row['first ten tasks']:.3f}",
                "holds" if row["worst seed"] <= 1.02 else "fails",
            )
        )
        slug = slug_of(name)
        sections.append(
            Section(
                f"{DEFAULT}: {name}",
                "",
                [
                    figures.totals(regret, name=f"{slug}-totals"),
                    figures.per_task_regret(regret, name=f"{slug}-per-task"),
                ],
                level=2,
            )
        )
    table = pl.DataFrame(rows)
    head = Section(
        f"Beyond the paper: {DEFAULT}",
        "One configuration, the default, in every world, told neither the noise nor anything "
        f"else, on {len(main_seeds(runner))} seeds; the figures below, with everybody, have fewer. "
        "Total regret is given as a multiple of the Bayes oracle's, of LinUCB's (λ = 1) and "
        "of LinUCB's with the best λ; the regret of the first ten tasks as a multiple of "
        "LinUCB's; and the worst seed's total as a multiple of LinUCB's. The last two columns are "
        "of the same without an intercept and in the units given, which happen to be right in "
        "these worlds: the difference is what it costs to find the units out. The projection "
        "policies "
        "have λ's from data, and, in a second version, the best λ₁ and λ₂ of a grid on other "
        "seeds.",
        table=table,
    )
    more, settled = others(runner)
    return [head, *sections, *more], [*claims, *settled], table


def compared(runner: Runner, name: str, world: Synthetic) -> tuple[Results, pl.DataFrame]:
    """One world: the table's policies on many seeds, and everybody's regret on a few."""
    import polars as pl

    given = policy("empirical_bayes", GIVEN, units="given", intercept=False)
    policies = [policy("linucb"), policy("empirical_bayes"), given, policy("bayes_oracle")]
    rivals = [policy("bias_oful"), policy("projected_linucb")]
    if runner.tune:
        fixed = {"linucb": {"radius": 1.0}, "projected_linucb": {"radius": 1.0}}
        (plain, projected), _ = runner.tuned(
            slug_of(name), world, ("linucb", "projected_linucb"), fixed
        )
        policies.append(dataclasses.replace(plain, name=BEST))
        rivals.append(dataclasses.replace(projected, name=TUNED))
    seeds, last = main_seeds(runner), (runner.scale.rounds,)
    results = runner.run(slug_of(name), world, policies, seeds=seeds, checkpoints=last)
    first = seeds[:FIGURE_SEEDS]
    others = runner.run(f"{slug_of(name)}-rivals", world, rivals, seeds=first, checkpoints=last)
    shared = results.regret.filter(pl.col("seed").is_in(first))
    return results, pl.concat([shared, others.regret])


def summary(name: str, results: Results) -> dict[str, Any]:
    """A row of the main table."""
    import polars as pl

    totals = results.totals()
    row: dict[str, Any] = {"world": name}
    for baseline in ("Bayes oracle", "LinUCB", BEST):
        if baseline in totals["policy"]:
            row[f"÷ {baseline}"] = ratio(totals, baseline)["ratio"]
    early = results.regret.filter(pl.col("task") < 10)
    early = early.group_by("seed", "policy").agg(total=pl.col("regret").sum())
    row["first ten tasks"] = ratio(early, "LinUCB")["ratio"]
    row["worst seed"] = ratio(totals, "LinUCB")["worst"]
    row["÷ Bayes oracle, units given"] = ratio(totals, "Bayes oracle", GIVEN)["ratio"]
    row["first ten tasks, units given"] = ratio(early, "LinUCB", GIVEN)["ratio"]
    return row


def ratio(totals: pl.DataFrame, baseline: str, policy: str = DEFAULT) -> dict[str, Any]:
    """A policy's total regret against another's."""
    rows = paired_ratios(totals, baseline).iter_rows(named=True)
    return next(row for row in rows if row["policy"] == policy)


def others(runner: Runner) -> tuple[list[Section], list[Claim]]:
    """Groups of tasks, curves, overlapping tasks, clicks."""
    seeds = runner.scale.reported[:FEW_SEEDS]
    sections, claims = [], []
    both = (policy("linucb"), policy("empirical_bayes"))
    for name, world, words in (
        (
            "groups",
            GROUPED,
            "Three groups of tasks, each near a three-dimensional affine subspace of its own, "
            "their means 1 apart. The mixture finds the groups, and a task's rewards tell which "
            "it belongs to.",
        ),
        (
            "curve",
            CURVED,
            "Tasks lie on a closed curve that winds through four dimensions: no affine subspace of "
            "fewer dimensions holds it, but small groups follow it piece by piece.",
        ),
    ):
        found = runner.run(f"beyond-{name}", world, (*both, policy("mixture")), seeds=seeds)
        measured = ratio(found.totals(), DEFAULT, "mixture")
        claims.append(
            Claim(
                f"A mixture is better where tasks come in {name}"
                if name == "groups"
                else "A mixture is better where tasks lie on a curve",
                "headstart",
                f"mixture ÷ {DEFAULT} {measured['ratio']:.3f} "
                f"[{measured['low']:.3f}, {measured['high']:.3f}]",
                "holds" if measured["high"] < 1.0 else "fails",
            )
        )
        sections.append(
            Section(
                f"Mixtures: tasks {'in groups' if name == 'groups' else 'on a curve'}",
                words,
                [
                    figures.totals(found.regret, name=f"beyond-{name}-totals"),
                    figures.per_task_regret(found.regret, name=f"beyond-{name}-per-task"),
                ],
                level=2,
            )
        )
    claims.append(overlapping(runner, seeds))
    section, claim = clicks(runner, seeds)
    sampled = runner.run("beyond-thompson", Synthetic(), (*both, policy("empirical_bayes_ts")))
    sections += [
        section,
        Section(
            "headstart, Thompson: the default prior, sampled",
            "Scale 1, the belief itself, in the paper's setting.",
            figures.totals(sampled.regret, name="beyond-thompson-totals"),
            level=2,
        ),
    ]
    return sections, [*claims, claim]


def overlapping(runner: Runner, seeds: Sequence[int]) -> Claim:
    """Fifty tasks at once against the same tasks one by one."""
    scale = runner.scale
    at_once = min(50, max(scale.tasks // 2, 1))
    one, many = (
        play_seeds(runner, name, play_overlapping, Synthetic(), seeds, tasks)
        for name, tasks in (("beyond-one-by-one", 1), ("beyond-at-once", at_once))
    )
    each = many.sum(1) / one.sum(1)
    return Claim(
        f"With {at_once} tasks running at once, little is lost",
        "headstart",
        f"total regret ÷ that of the same tasks one by one: {each.mean():.3f}, worst of "
        f"{len(seeds)} seeds {each.max():.3f}",
        "holds" if each.mean() <= 1.15 else "fails",
    )


def clicks(runner: Runner, seeds: Sequence[int]) -> tuple[Section, Claim]:
    """Rewards of 0 and 1 with a logistic link."""
    found = runner.run(
        "beyond-clicks", CLICKS, (policy("linucb"), policy("empirical_bayes")), seeds=seeds
    )
    oracle = play_seeds(runner, "beyond-clicks-oracle", play_logistic_oracle, CLICKS, seeds)
    totals = found.totals().sort("seed")
    ours = totals.filter(policy=DEFAULT)["total"].to_numpy()
    lone = totals.filter(policy="LinUCB")["total"].to_numpy()
    lost = ours.sum() / oracle.sum()
    text = (
        f"Rewards are 1 with probability 1/(1 + exp(−{CLICKS.logistic:g} xᵀθ)), else 0, and the "
        f"model is linear all the same. Over {len(seeds)} seeds its total regret is "
        f"{ours.sum() / lone.sum():.3f} × LinUCB's, and {lost:.2f} × that of an oracle that is "
        "told the mean, the covariance and the logistic link."
    )
    claim = Claim(
        "Rewards of 0 and 1 work too",
        "headstart",
        f"÷ LinUCB {ours.sum() / lone.sum():.3f}; ÷ an oracle told μ, Σ and the link {lost:.2f}",
        "holds" if (ours <= 1.02 * lone).all() else "fails",
    )
    figure = figures.totals(found.regret, name="beyond-clicks-totals")
    return Section(f"{DEFAULT}: clicks", text, figure, level=2), claim


def play_seeds(
    runner: Runner,
    name: str,
    play: Callable[..., Array],
    world: Synthetic,
    seeds: Sequence[int],
    *more: Any,
) -> Array:
    """Regret by seed and task of a function that plays one seed, kept on disk under ``name``."""
    scale, folder = runner.scale, runner.folder / name
    sizes = (tuple(seeds), scale.tasks, scale.rounds, more)
    key = fingerprint((version("headstart"), play.__name__, world, sizes))
    path = folder / f"{key}.npy"
    if path.exists():
        stored: Array = np.load(path)
        return stored
    if runner.execution.stored_only:
        raise FileError(f"folder {str(folder)!r} lacks results of {play.__name__}: run it first")
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    jobs = [(world, seed, scale.tasks, scale.rounds, *more) for seed in seeds]
    regret = np.array(map_jobs(play, jobs, runner.execution))
    np.save(path, regret)
    return regret


def ratings(runner: Runner) -> tuple[list[Section], list[Claim]]:
    """MovieLens: the default against the tuned, and what better features add."""
    sections, claims = [], []
    tuned = known_policies("movielens", ("linucb", "bias_oful", "projected_linucb"))
    for group in ("men", "women"):
        world = MovieLens(group=group, data=runner.data)
        tasks = min(runner.scale.tasks, world.population(0).tasks or runner.scale.tasks)
        seeds = runner.scale.reported[:5]
        found = runner.run(
            f"beyond-movielens-{group}",
            world,
            (*tuned, policy("empirical_bayes")),
            tasks=tasks,
            seeds=seeds,
        )
        totals = found.totals()
        best = min(
            ("B-OFUL", "P-LinUCB"),
            key=lambda name: float(totals.filter(policy=name)["total"].sum()),
        )
        measured = ratio(totals, best)
        claims.append(
            Claim(
                f"{DEFAULT} is no worse than the best tuned: MovieLens, {group}",
                "headstart",
                f"÷ tuned {best} {measured['ratio']:.3f} "
                f"[{measured['low']:.3f}, {measured['high']:.3f}]",
                "holds" if measured["ratio"] <= 1.0 else "fails",
            )
        )
        sections.append(
            Section(
                f"{DEFAULT}: MovieLens, {group}",
                f"{tasks} users. LinUCB, B-OFUL and P-LinUCB have the settings that were tuned on "
                f"other users; {DEFAULT} is told nothing.",
                figures.totals(found.regret, name=f"beyond-movielens-{group}-totals"),
                level=2,
            )
        )
    sections.append(features(runner))
    return sections, claims


def features(runner: Runner) -> Section:
    """What an intercept and features learned from past users add."""
    import polars as pl

    rows, ours = [], "empirical Bayes, regret a user"
    for what in ("genres", "learned", "both"):
        for intercept in (False, True):
            world = MovieLens(group="men", data=runner.data, features=what, intercept=intercept)
            tasks = min(runner.scale.tasks, world.population(0).tasks or runner.scale.tasks)
            seeds = runner.scale.reported[:5]
            name = f"beyond-features-{what}{'-intercept' if intercept else ''}"
            policies = (policy("linucb"), policy("empirical_bayes", intercept=False))
            found = runner.run(name, world, policies, tasks=tasks, seeds=seeds)
            each = found.totals().group_by("policy").agg(pl.col("total").mean())
            total = dict(each.iter_rows())
            rows.append(
                {
                    "features": {"genres": "18 genres", "learned": "11 learned", "both": "both"}[
                        what
                    ],
                    "intercept": "yes" if intercept else "no",
                    "LinUCB, regret a user": total["LinUCB"] / tasks,
                    ours: total["empirical Bayes"] / tasks,
                }
            )
    table = pl.DataFrame(rows)
    table = table.with_columns((pl.col(ours) / rows[0][ours]).alias("÷ genres alone"))
    return Section(
        "MovieLens: better features",
        "Genres explain little of a rating. Here are the same users with a constant feature, and "
        "with features of movies that were learned from other users, those with fewer than 250 "
        "ratings: a movie's mean and ten factors of a low-rank model of their ratings. Regret is "
        "in ratings scaled to [0, 1], summed over a user's rounds.",
        table=table,
        level=2,
    )


def main_seeds(runner: Runner) -> tuple[int, ...]:
    """The seeds of the main table."""
    scale = runner.scale
    seeds = max(MAIN_SEEDS, scale.seeds) if runner.tune else scale.seeds
    return dataclasses.replace(scale, seeds=seeds).reported


def slug_of(name: str) -> str:
    """A name for folders and files."""
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    return "-".join(["beyond", *words])
