"""The paper's synthetic experiments: regret curves, the rank sweep, the error of the subspace."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from headstart import theory
from headstart.algorithms import ALGORITHMS, DEFAULT
from headstart.lab import figures, probes
from headstart.lab.experiments.plan import Results
from headstart.lab.policies import PAPER, NamedPolicy, policy
from headstart.lab.report import Section
from headstart.lab.studies.outcome import tuning_sections
from headstart.lab.studies.runner import Runner
from headstart.lab.tuning import Tuning
from headstart.worlds.synthetic import Synthetic

WORLD = Synthetic()
DATA, FIXED = "λ's from data", "λ₁ = 100, λ₂ = 1"  # the forms of the rank sweep


def play_all(runner: Runner) -> tuple[Results, Tuning | None]:
    """The default, with nothing given or tuned, and the paper's algorithms, tuned."""
    policies, tuning = runner.tune_policies("synthetic", WORLD)
    policies = (policy("empirical_bayes"), *policies)
    return runner.run("synthetic", WORLD, policies, probe=probes.residual), tuning


def comparison(runner: Runner, results: Results, tuning: Tuning | None) -> list[Section]:
    """Figures (a) and (b): every policy against rounds and against tasks."""
    flat = Synthetic(dim=3, rank=2, inside=0.4, outside=0.04, offset=0.6)
    sections = [
        Section(
            "Tasks near a plane",
            "The assumption of the paper in three dimensions: what distinguishes tasks is spread "
            "out along a plane, which need not go through zero, and hardly away from it.",
            figures.scatter(flat, seed=1, tasks=200),
        ),
        Section(
            "Expected transfer regret",
            f"The synthetic setting of the paper: d = {WORLD.dim}, p = {WORLD.rank}, "
            f"{runner.scale.rounds} rounds, {runner.scale.tasks} tasks, K = {WORLD.arms} arms, "
            f"noise R = {WORLD.noise:g}. All policies see the same tasks, contexts and noise. "
            f"{DEFAULT} is what hs.Bandit(dim) does: nothing is given to it, and nothing is tuned. "
            + (
                "The other policies' options come with headstart (a quick study does not tune)."
                if tuning is None
                else "Each other policy's exploration multiplier and λ's were tuned on "
                f"{runner.scale.tuning_seeds} other seeds, over the same grids."
            ),
            figures.transfer_regret(results.regret, "synthetic-rounds"),
        ),
        Section(
            "Cumulative regret against tasks",
            "The same runs against the number of tasks.",
            figures.cumulative_regret(results.regret, "synthetic-tasks"),
        ),
        Section(
            "Where transfer begins to help",
            "Regret of each task. The projection policies estimate a subspace once as many tasks "
            "have finished as there are features.",
            figures.per_task_regret(results.regret, name="synthetic-per-task"),
        ),
        Section(
            "Total regret against LinUCB's",
            "",
            figures.totals(results.regret, name="synthetic-totals"),
        ),
    ]
    text = (
        "Every setting that was tried, as a multiple of the same policy's best. λ matters as much "
        "as the algorithm: an untuned comparison is not conclusive."
    )
    title, name = "How much tuning mattered", "synthetic-tuning"
    return [*sections, *tuning_sections(title, text, tuning, name)]


def play_printed(runner: Runner) -> tuple[Results, list[Section]]:
    """The same figures with the constants that the paper prints."""
    results = runner.run("synthetic-printed", WORLD, printed_policies(), probe=probes.residual)
    return results, [
        Section(
            "Expected transfer regret, the paper's printed constants",
            "Algorithms 1 to 3 as printed, nothing tuned: the radius without its square root and "
            "without R, the raw eigengap, CCIPCA, the Thompson scale of the analysis, λ₂ = 1/V² "
            "and λ₁ = 100 (the paper requires λ₁ ≫ λ₂), V = 1, δ = 1/n.",
            figures.transfer_regret(results.regret, "printed-rounds"),
        ),
        Section(
            "Cumulative regret against tasks, the paper's printed constants",
            "The same runs against the number of tasks.",
            figures.cumulative_regret(results.regret, "printed-tasks"),
        ),
        Section(
            "Total regret against LinUCB's, the paper's printed constants",
            "",
            figures.totals(results.regret, name="printed-totals"),
        ),
        Section(
            "Error of the learned subspace, the paper's printed constants",
            "With the raw eigengap choosing the rank.",
            subspace_figure(results, "printed-subspace"),
        ),
    ]


def printed_policies() -> tuple[NamedPolicy, ...]:
    """The paper's algorithms as printed, with V = 1, and the Bayes oracle."""
    return tuple(
        policy(name) if ALGORITHMS[name].printed is None else policy(name, paper=True)
        for name in PAPER
    )


def rank_sweep(runner: Runner) -> tuple[pl.DataFrame, list[Section]]:
    """Figure (c): total regret of P-LinUCB against q = rank P̂⊥."""
    dim, true = WORLD.dim, WORLD.dim - WORLD.rank
    ranks = sorted({dim - q for q in range(0, dim, runner.scale.rank_step)} | {WORLD.rank})
    fixed = {"lam1": 100.0, "lam2": 1.0}
    totals = sweep(runner, "ranks", ranks, {DATA: {}, FIXED: fixed})
    printed_totals = sweep(
        runner,
        "ranks-printed",
        ranks,
        {"printed radius, λ₁ = 100, λ₂ = 1": {**fixed, "radius": "paper"}},
    )
    drawings = [
        figures.rank_sweep(totals.filter(pl.col("policy") == form), true=true, name=name)
        for form, name in ((DATA, "ranks"), (FIXED, "ranks-fixed"))
    ]
    return totals, [
        Section(
            "Total regret against the rank of the projection",
            f"P-LinUCB with a fixed number of projected dimensions q = rank P̂⊥; the tasks have "
            f"{true}. At q = 0 it is LinUCB with λ₂. With λ's fixed, projecting away a "
            "direction that tasks do differ in is costly; with λ's from data, λ₁ falls where the "
            "projection is wrong, and the mistake costs little.",
            drawings,
        ),
        Section(
            "Total regret against the rank of the projection, the paper's printed constants",
            "The same with the radius as printed.",
            figures.rank_sweep(printed_totals, true=true, name="printed-ranks"),
        ),
    ]


def sweep(
    runner: Runner, name: str, ranks: list[int], forms: dict[str, dict[str, Any]]
) -> pl.DataFrame:
    """Total regret of P-LinUCB by form (in the column policy), q and seed."""
    names = {f"{form}|{WORLD.dim - rank}": (form, rank) for form in forms for rank in ranks}
    policies = [
        policy("projected_linucb", name, rank=rank, **forms[form])
        for name, (form, rank) in names.items()
    ]
    totals = runner.run(name, WORLD, policies, checkpoints=()).totals()
    form, rank = (
        pl.col("policy").replace_strict({name: parts[at] for name, parts in names.items()})
        for at in (0, 1)
    )
    return totals.select(policy=form, q=WORLD.dim - rank, seed="seed", total="total")


def bounds(results: Results) -> Section:
    """How loose the bounds are at the paper's setting."""
    from scipy.stats import chi2

    curve = figures.mean_transfer_regret(results.regret)
    oracle = curve.filter(pl.col("policy") == "projection oracle")
    # V must bound ‖θ*‖: all but one task in a thousand are shorter than this.
    norm = WORLD.offset + WORLD.inside * np.sqrt(chi2.ppf(0.999, WORLD.rank))
    rounds = oracle["round"].to_numpy()
    noise, outside = WORLD.noise, WORLD.outside * np.sqrt(WORLD.dim - WORLD.rank)
    lam1, lam2 = noise**2 / WORLD.outside**2, noise**2 / WORLD.inside**2

    lines = {
        name: theory.ucb_regret_bound(
            rounds,
            dim=WORLD.dim,
            rank=rank,
            lam1=first,
            lam2=lam2,
            bound=float(norm),
            residual=float(outside),
            noise=noise,
            delta=1.0 / results.plan.rounds,
        )
        for name, rank, first in (
            ("Theorem 1, known plane", WORLD.rank, lam1),
            ("LinUCB's bound (p = d)", WORLD.dim, lam2),
        )
    }
    holds = all((np.asarray(line) >= oracle["high"].to_numpy()).all() for line in lines.values())
    return Section(
        "The bound beside the curve",
        "Theorem 1 with explicit constants (corrected as documented), for a known "
        "plane and mean, beside the regret of the oracle that knows them (with a tuned radius, "
        "which is smaller than the theorem's); and the same bound without a plane. The bounds "
        + ("hold, and are loose" if holds else "do not hold here")
        + ": they show how regret grows, not how much there is. With a learned plane the analysis "
        "promises nothing at this size.",
        figures.with_bound(oracle, lines, "projection oracle", name="bound"),
    )


def subspace(results: Results) -> Section:
    """Figure (d): how far a new task is from the learned subspace, against tasks."""
    return Section(
        "Error of the learned subspace",
        "W is a new task's distance from the learned affine subspace, and Var_ρ its variance "
        "outside the true one. Even the true subspace leaves E[W]²/Var_ρ ≈ 1 − 1/(2q), so E[W²] "
        "is drawn beside it. B-OFUL projects nothing: its P⊥ is I.",
        subspace_figure(results, "subspace"),
    )


def subspace_figure(results: Results, name: str) -> figures.Figure:
    """The error of the subspace, from the probes of a run."""
    measured, q = results.probes.filter(pl.col("value").is_not_nan()), WORLD.dim - WORLD.rank
    return figures.subspace_error(measured, task_variance(), codimension=q, name=name)


def task_variance() -> float:
    """Var_ρ of the world: the variance of tasks outside the plane."""
    return float(np.square(WORLD.outside) * (WORLD.dim - WORLD.rank))
