"""The paper's synthetic experiments: regret curves, the rank sweep, the error of the subspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.algorithms import ALGORITHMS, DEFAULT
from headstart.lab import figures, probes
from headstart.lab.experiments.plan import Results
from headstart.lab.policies import PAPER, NamedPolicy, policy
from headstart.lab.report import Section
from headstart.lab.studies.runner import Runner
from headstart.worlds.synthetic import Synthetic

if TYPE_CHECKING:
    import polars as pl

    from headstart.lab.tuning import Tuning

__all__ = ["WORLD", "comparison", "play_all", "play_printed", "rank_sweep", "subspace"]

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
            "Regret of each task. The projection policies look for a subspace once as many tasks "
            "have finished as there are features.",
            figures.per_task_regret(results.regret, name="synthetic-per-task"),
        ),
        Section(
            "Total regret against LinUCB's",
            "",
            figures.totals(results.regret, name="synthetic-totals"),
        ),
    ]
    if tuning is not None:
        table = tuning.table.drop("algorithm", "label")
        sections.append(
            Section(
                "How much tuning mattered",
                "Every setting that was tried, as a multiple of the same policy's best. λ matters "
                "as much as the algorithm: an untuned comparison proves little.",
                figures.tuning(table, name="synthetic-tuning"),
            )
        )
    return sections


def play_printed(runner: Runner) -> tuple[Results, list[Section]]:
    """The same figures with the constants that the paper prints."""
    results = runner.run("synthetic-printed", WORLD, printed_policies(), probe=probes.residual)
    return results, [
        Section(
            "Expected transfer regret, the paper's printed constants",
            "Algorithms 1 to 3 as printed, nothing tuned: the radius without its square root and "
            "without R, the raw eigengap, CCIPCA, the Thompson scale of the analysis, λ₂ = 1/V² "
            "and λ₁ = 100 (the paper asks for λ₁ ≫ λ₂), V = 1, δ = 1/n.",
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
    forms = {name: ALGORITHMS[name].printed is not None for name in PAPER}
    return tuple(
        policy(name, paper=True) if printed else policy(name) for name, printed in forms.items()
    )


def rank_sweep(runner: Runner) -> tuple[pl.DataFrame, list[Section]]:
    """Figure (c): total regret of P-LinUCB against q = rank P̂⊥."""
    import polars as pl

    dim, true = WORLD.dim, WORLD.dim - WORLD.rank
    ranks = sorted({dim - q for q in range(0, dim, runner.scale.rank_step)} | {WORLD.rank})
    fixed = {"lam1": 100.0, "lam2": 1.0}
    totals = sweep(runner, "ranks", ranks, {DATA: {}, FIXED: fixed})
    printed = sweep(
        runner,
        "ranks-printed",
        ranks,
        {"printed radius, λ₁ = 100, λ₂ = 1": {**fixed, "radius": "paper"}},
    )
    drawn = [
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
            drawn,
        ),
        Section(
            "Total regret against the rank of the projection, the paper's printed constants",
            "The same with the radius as printed.",
            figures.rank_sweep(printed, true=true, name="printed-ranks"),
        ),
    ]


def sweep(
    runner: Runner, name: str, ranks: list[int], forms: dict[str, dict[str, Any]]
) -> pl.DataFrame:
    """Total regret of P-LinUCB by form (in the column policy), q and seed."""
    import polars as pl

    points = [(form, WORLD.dim - rank, rank) for form in forms for rank in ranks]
    policies = [
        policy("projected_linucb", f"{form}|{q}", rank=rank, **forms[form])
        for form, q, rank in points
    ]
    totals = runner.run(name, WORLD, policies, checkpoints=()).totals()
    index = pl.DataFrame(
        {
            "label": [each.name for each in policies],
            "form": [form for form, *_ in points],
            "q": [q for _, q, _ in points],
        }
    )
    return totals.join(index, left_on="policy", right_on="label", maintain_order="left").select(
        policy="form", q="q", seed="seed", total="total"
    )


def subspace(results: Results) -> list[Section]:
    """Figure (d): how far a new task is from the learned subspace, against tasks."""
    section = Section(
        "Error of the learned subspace",
        "W is a new task's distance from the learned affine subspace, and Var_ρ its variance "
        "outside the true one. Even the true subspace leaves E[W]²/Var_ρ ≈ 1 − 1/(2q), so E[W²] "
        "is drawn beside it. B-OFUL projects nothing: its P⊥ is I.",
        subspace_figure(results, "subspace"),
    )
    return [section]


def subspace_figure(results: Results, name: str) -> figures.Figure:
    """The error of the subspace, from the probes of a run."""
    import polars as pl

    measured = results.probes.filter(pl.col("value").is_not_nan())
    codimension = WORLD.dim - WORLD.rank
    return figures.subspace_error(measured, task_variance(), codimension=codimension, name=name)


def task_variance() -> float:
    """Var_ρ of the world: the variance of tasks outside the plane."""
    return float(np.square(WORLD.outside) * (WORLD.dim - WORLD.rank))
