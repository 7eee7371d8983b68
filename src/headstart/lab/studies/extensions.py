"""Beyond the paper: empirical Bayes and mixtures, in many worlds, against everything else."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import polars as pl

from headstart.algorithms import DEFAULT
from headstart.lab import figures
from headstart.lab.experiments.plan import Results
from headstart.lab.one_seed import play_interleaved, play_logistic_oracle
from headstart.lab.policies import policy
from headstart.lab.report import Claim, Section
from headstart.lab.studies.calibration import calibration
from headstart.lab.studies.few_tasks import SPARSE_WORLDS, few_tasks
from headstart.lab.studies.main_worlds import WORLDS
from headstart.lab.studies.movielens import play_users
from headstart.lab.studies.outcome import Ratios, our_claim, regret_section
from headstart.lab.studies.runner import Runner, shipped_policies
from headstart.worlds.base import World
from headstart.worlds.movielens import MovieLens
from headstart.worlds.synthetic import Synthetic

GROUPED = Synthetic(rank=3, offset=0.0, clusters=3, separation=1.0)
CURVED = Synthetic(curve=1.0, offset=0.0)
CLICKS = Synthetic(logistic=4.0)
MAIN_SEEDS = 48  # seeds of the main table
SEEDS_BESIDE_A_GPU = 48  # seeds of tables that the CPU computes meanwhile
FIGURE_SEEDS = 12  # seeds of the figures that show everybody
FEW_SEEDS = 8  # seeds of studies that take long for each seed
TUNED_PROJECTION, TUNED_LINUCB = "P-LinUCB, tuned λ", "LinUCB, best λ"
UNITS_GIVEN = "empirical Bayes, units given"
BINARY, NO_INTERCEPT = "headstart, binary rewards", "headstart, no intercept"


def synthetic_worlds(runner: Runner) -> tuple[list[Section], list[Claim], pl.DataFrame]:
    """All studies on synthetic worlds: sections, claims of our own, and the main table."""
    seeds = main_seeds(runner)
    (table, head, worlds, thompson), groups, curve, interleaved, click, sparse, coverage = (
        runner.side_by_side(
            main_worlds,
            lambda own: mixture_study(own, "groups"),
            lambda own: mixture_study(own, "curve"),
            interleaved_study,
            clicks,
            lambda own: few_tasks(own, cpu_seeds(own)),
            lambda own: calibration(own, sizes_of_worlds(own), seeds),
        )
    )
    studies = [coverage, worlds, sparse, groups, curve, click, thompson]
    sections = [section for parts, _ in studies for section in parts]
    order = [worlds, sparse, groups, curve, interleaved, click, coverage]
    return [head, *sections], [claim for _, parts in order for claim in parts], table


Study = tuple[list[Section], list[Claim]]


def main_worlds(runner: Runner) -> tuple[pl.DataFrame, Section, Study, Study]:
    """The main table and its section, the worlds one by one, and the first one by Thompson."""
    rows, sections, claims, all_results = [], [], [], []
    for name, world in WORLDS.items():
        results, regret = play_world(runner, name, world)
        row = table_row(name, results)
        rows.append(row)
        all_results.append(results)
        measured = (
            f"÷ LinUCB {row['÷ LinUCB']:.3f}, worst seed {row['worst seed']:.3f}; ÷ Bayes "
            f"oracle {row['÷ Bayes oracle']:.3f}; first ten tasks ÷ LinUCB "
            f"{row['first ten tasks']:.3f}"
        )
        holds = row["worst seed"] <= 1.02
        claims.append(our_claim(f"{DEFAULT} never does worse than LinUCB: {name}", measured, holds))
        sections.append(regret_section(f"{DEFAULT}: {name}", "", regret, slug_of(name)))
    table = pl.DataFrame(rows)
    summary = Section(
        f"Beyond the paper: {DEFAULT}",
        "One configuration, the default, in every world, given neither the noise nor anything "
        f"else, on {len(main_seeds(runner))} seeds; the figures below, with everybody, have fewer. "
        "Total regret is given as a multiple of the Bayes oracle's, of LinUCB's (λ = 1) and "
        "of LinUCB's with the best λ; the regret of the first ten tasks as a multiple of "
        "LinUCB's; and the worst seed's total as a multiple of LinUCB's. The last two columns are "
        "of the same without an intercept and in the units given, which happen to be right in "
        "these worlds: the difference is the cost of estimating the units. The projection policies "
        "have λ's from data, and, in a second version, the best λ₁ and λ₂ of a grid on other "
        "seeds.",
        table=table,
    )
    return table, summary, (sections, claims), ([thompson_section(runner, all_results[0])], [])


def thompson_section(runner: Runner, others: Results) -> Section:
    """Thompson sampling with the default prior, the default, and LinUCB in the same world."""
    last = (runner.scale.rounds,)
    thompson = runner.run(
        "beyond-thompson", others.plan.world, [policy("empirical_bayes_ts")], checkpoints=last
    )
    same = pl.col("seed").is_in(thompson.plan.seeds) & pl.col("policy").is_in(["LinUCB", DEFAULT])
    regret = pl.concat([others.regret.filter(same), thompson.regret])
    return Section(
        "headstart, Thompson: the default prior, sampled",
        "Scale 1, the belief itself, in the paper's setting.",
        figures.totals(regret, name="beyond-thompson-totals"),
        level=2,
    )


def sizes_of_worlds(runner: Runner) -> dict[str, tuple[World, int]]:
    """The worlds of the tables, each with its number of rounds."""
    sizes: dict[str, tuple[World, int]] = {
        name: (world, runner.scale.rounds) for name, world in WORLDS.items()
    }
    return sizes | {name: (sparse.world, sparse.rounds) for name, sparse in SPARSE_WORLDS.items()}


def play_world(runner: Runner, name: str, world: Synthetic) -> tuple[Results, pl.DataFrame]:
    """One world: the table's policies on many seeds, and everybody's regret on a few."""
    given_units = policy("empirical_bayes", UNITS_GIVEN, units="given", intercept=False)
    policies = [policy("linucb"), policy("empirical_bayes"), given_units, policy("bayes_oracle")]
    rivals = [policy("bias_oful"), policy("projected_linucb")]
    if runner.tune:
        fixed = {"linucb": {"radius": 1.0}, "projected_linucb": {"radius": 1.0}}
        (plain, projected), _ = runner.tune_policies(slug_of(name), world, tuple(fixed), fixed)
        policies.append(dataclasses.replace(plain, name=TUNED_LINUCB))
        rivals.append(dataclasses.replace(projected, name=TUNED_PROJECTION))
    seeds, last = main_seeds(runner), (runner.scale.rounds,)
    results = runner.run(slug_of(name), world, policies, seeds=seeds, checkpoints=last)
    first = seeds[:FIGURE_SEEDS]
    others = runner.run(f"{slug_of(name)}-rivals", world, rivals, seeds=first, checkpoints=last)
    shared = results.regret.filter(pl.col("seed").is_in(first))
    return results, pl.concat([shared, others.regret])


def table_row(name: str, results: Results) -> dict[str, Any]:
    """A row of the main table."""
    totals = results.totals()
    names = [name for name in ("Bayes oracle", "LinUCB", TUNED_LINUCB) if name in totals["policy"]]
    against = {baseline: Ratios(totals, baseline) for baseline in names}
    first = Ratios(results.totals(stop=10))
    return {
        "world": name,
        **{f"÷ {baseline}": against[baseline][DEFAULT] for baseline in names},
        "first ten tasks": first[DEFAULT],
        "worst seed": against["LinUCB"].rows[DEFAULT]["worst"],
        "÷ Bayes oracle, units given": against["Bayes oracle"][UNITS_GIVEN],
        "first ten tasks, units given": first[UNITS_GIVEN],
    }


MIXTURES = {
    "groups": (
        GROUPED,
        "in groups",
        "come in groups",
        "Three groups of tasks, each near a three-dimensional affine subspace of its own, "
        "their means 1 apart. The mixture finds the groups, and a task's rewards "
        "determine which it belongs to.",
    ),
    "curve": (
        CURVED,
        "on a curve",
        "lie on a curve",
        "Tasks lie on a closed curve that winds through four dimensions: no affine subspace of "
        "fewer dimensions holds it, but small groups follow it piece by piece.",
    ),
}


def mixture_study(runner: Runner, name: str) -> Study:
    """A mixture against the default where tasks are in groups, or on a curve."""
    world, title, where, text = MIXTURES[name]
    policies = (policy("linucb"), policy("empirical_bayes"), policy("mixture"))
    results = runner.run(f"beyond-{name}", world, policies, seeds=few_seeds(runner))
    ratios = Ratios(results.totals(), DEFAULT)
    claim, measured = f"A mixture is better where tasks {where}", ratios.text("mixture")
    holds = ratios.rows["mixture"]["high"] < 1.0
    section = regret_section(f"Mixtures: tasks {title}", text, results.regret, f"beyond-{name}")
    return [section], [our_claim(claim, f"mixture ÷ {DEFAULT} {measured}", holds)]


def interleaved_study(runner: Runner) -> Study:
    """Fifty tasks at once against the same tasks one by one."""
    seeds = few_seeds(runner)
    at_once = min(50, max(runner.scale.tasks // 2, 1))
    sizes = runner.scale.tasks, runner.scale.rounds
    one, many = (
        runner.play_seeds(
            name, play_interleaved, [(Synthetic(), seed, *sizes, tasks) for seed in seeds]
        )
        for name, tasks in (("beyond-one-by-one", 1), ("beyond-at-once", at_once))
    )
    each = many.sum(1) / one.sum(1)
    claim = our_claim(
        f"With {at_once} tasks running at once, little is lost",
        f"total regret ÷ that of the same tasks one by one: {each.mean():.3f}, worst of "
        f"{len(seeds)} seeds {each.max():.3f}",
        each.mean() <= 1.15,
    )
    return [], [claim]


def clicks(runner: Runner) -> Study:
    """Rewards of 0 and 1 with a logistic link, by a linear and by a logistic model."""
    seeds = few_seeds(runner)
    policies = (
        policy("linucb"),
        policy("empirical_bayes"),
        policy("empirical_bayes", BINARY, reward="binary"),
        policy("empirical_bayes", NO_INTERCEPT, intercept=False),
    )
    results = runner.run("beyond-clicks", CLICKS, policies, seeds=seeds)
    jobs = [(CLICKS, seed, runner.scale.tasks, runner.scale.rounds) for seed in seeds]
    oracle = runner.play_seeds("beyond-clicks-oracle", play_logistic_oracle, jobs)
    totals = results.totals().sort("seed")
    default, binary, no_intercept, linucb = (
        totals.filter(policy=name)["total"].to_numpy()
        for name in (DEFAULT, BINARY, NO_INTERCEPT, "LinUCB")
    )
    ratio, loss, binary_loss, plain_loss = (
        default.sum() / linucb.sum(),
        *(each.sum() / oracle.sum() for each in (default, binary, no_intercept)),
    )
    text = (
        f"Rewards are 1 with probability 1/(1 + exp(−{CLICKS.logistic:g} xᵀθ)), else 0. Over "
        f"{len(seeds)} seeds the total regret of the default, a linear model with an intercept, is "
        f"{ratio:.3f} × LinUCB's, and {loss:.2f} × that of an oracle that is given the mean, the "
        f"covariance and the logistic link. Without the intercept it is {plain_loss:.2f} × the "
        f'oracle\'s, and with reward="binary", a logistic model, {binary_loss:.2f} ×.'
    )
    claim = our_claim(
        "Rewards of 0 and 1 work too",
        f"÷ LinUCB {ratio:.3f}; ÷ an oracle given μ, Σ and the link {loss:.2f}, with "
        f'reward="binary" {binary_loss:.2f}',
        bool((default <= 1.02 * linucb).all()),
    )
    figure = figures.totals(results.regret, name="beyond-clicks-totals")
    return [Section(f"{DEFAULT}: clicks", text, figure, level=2)], [claim]


def ratings(runner: Runner) -> tuple[list[Section], list[Claim]]:
    """MovieLens: the default against the tuned, and what better features add."""
    sections, claims = [], []
    tuned_policies = shipped_policies("movielens", ("linucb", "bias_oful", "projected_linucb"))
    for group in ("men", "women"):
        world = MovieLens(group=group, data=runner.data)
        policies = (*tuned_policies, policy("empirical_bayes"))
        results, tasks = play_users(runner, f"beyond-movielens-{group}", world, policies)
        against = Ratios(results.totals())
        best = min(("B-OFUL", "P-LinUCB"), key=lambda name: against[name])
        ratios = Ratios(results.totals(), best)
        claims.append(
            our_claim(
                f"{DEFAULT} is no worse than the best tuned: MovieLens, {group}",
                f"÷ tuned {best} {ratios.text(DEFAULT)}",
                ratios[DEFAULT] <= 1.0,
            )
        )
        sections.append(
            Section(
                f"{DEFAULT}: MovieLens, {group}",
                f"{tasks} users. LinUCB, B-OFUL and P-LinUCB have the options that were tuned on "
                f"other users; {DEFAULT} is given nothing.",
                figures.totals(results.regret, name=f"beyond-movielens-{group}-totals"),
                level=2,
            )
        )
    return [*sections, better_features(runner)], claims


def better_features(runner: Runner) -> Section:
    """What an intercept and features learned from past users add."""
    rows, column = [], "empirical Bayes, regret a user"
    policies = (policy("linucb"), policy("empirical_bayes", intercept=False))
    contents = {"genres": "18 genres", "learned": "11 learned", "both": "both"}
    for what, intercept in itertools.product(contents, (False, True)):
        world = MovieLens(group="men", data=runner.data, features=what, intercept=intercept)
        name = f"beyond-features-{what}{'-intercept' if intercept else ''}"
        results, tasks = play_users(runner, name, world, policies)
        mean = dict(results.totals().group_by("policy").agg(pl.col("total").mean()).iter_rows())
        rows.append(
            {
                "features": contents[what],
                "intercept": "yes" if intercept else "no",
                "LinUCB, regret a user": mean["LinUCB"] / tasks,
                column: mean["empirical Bayes"] / tasks,
            }
        )
    table = pl.DataFrame(rows)
    table = table.with_columns((pl.col(column) / rows[0][column]).alias("÷ genres alone"))
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
    return dataclasses.replace(scale, seeds=seeds).reported_seeds


def cpu_seeds(runner: Runner) -> tuple[int, ...]:
    """The seeds of tables that a GPU cannot play: fewer where one plays the others meanwhile."""
    seeds = main_seeds(runner)
    return seeds[:SEEDS_BESIDE_A_GPU] if runner.execution.engine == "gpu" else seeds


def few_seeds(runner: Runner) -> tuple[int, ...]:
    """The seeds of studies that take long for each seed."""
    return runner.scale.reported_seeds[:FEW_SEEDS]


def slug_of(name: str) -> str:
    """A name for folders and files."""
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    return "-".join(["beyond", *words])
