"""The paper's synthetic experiments: regret curves, the rank sweep, the error of the subspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.algorithms import ALGORITHMS, DEFAULT
from headstart.lab import figures, probes
from headstart.lab.experiment import Results
from headstart.lab.policies import PAPER, NamedPolicy, policy
from headstart.lab.report import Section
from headstart.lab.studies.bench import Bench
from headstart.worlds.synthetic import Synthetic

if TYPE_CHECKING:
    import polars as pl

    from headstart.lab.tuning import Tuning

__all__ = ["WORLD", "comparison", "printed", "rank_sweep", "subspace"]

WORLD = Synthetic()
PRINTED = {"radius": "paper"}
DATA, FIXED = "λ's from data", "λ₁ = 100, λ₂ = 1"  # the styles of the rank sweep


def everybody(bench: Bench) -> tuple[Results, Tuning | None]:
    """The default, which is told nothing, and the paper's policies, tuned."""
    policies, tuning = bench.tuned("synthetic", WORLD)
    policies = (policy("empirical_bayes"), *policies)
    return bench.run("synthetic", WORLD, policies, probe=probes.residual), tuning


def comparison(bench: Bench) -> tuple[Results, list[Section]]:
    """Figures (a) and (b): every policy against rounds and against tasks."""
    results, tuning = everybody(bench)
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
            f"{bench.scale.rounds} rounds, {bench.scale.tasks} tasks, K = {WORLD.arms} arms, noise "
            f"R = {WORLD.noise:g}. All policies see the same tasks, contexts and noise. {DEFAULT} "
            "is what hs.Bandit(dim) does: it is told nothing and tuned nowhere. "
            + (
                "The other policies' settings come with headstart (a quick look does not tune)."
                if tuning is None
                else "Each other policy's exploration multiplier and λ's were tuned on "
                f"{bench.scale.tuning_seeds} other seeds, over the same grids."
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
        table = tuning.table.drop("kind", "label")
        sections.append(
            Section(
                "How much tuning mattered",
                "Every setting that was tried, as a multiple of the same policy's best. λ matters "
                "as much as the algorithm: an untuned comparison proves little.",
                figures.tuning(table, name="synthetic-tuning"),
            )
        )
    return results, sections


def printed(bench: Bench) -> tuple[Results, list[Section]]:
    """The same figures with the constants that the paper prints."""
    results = bench.run("synthetic-printed", WORLD, printed_policies(), probe=probes.residual)
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


def rank_sweep(bench: Bench) -> tuple[pl.DataFrame, list[Section]]:
    """Figure (c): total regret of P-LinUCB against q = rank P̂⊥."""
    import polars as pl

    dim = WORLD.dim
    ranks = sorted({dim - q for q in range(0, dim, bench.scale.sweep)} | {WORLD.rank})
    fixed = {"lam1": 100.0, "lam2": 1.0}
    styles: dict[str, dict[str, Any]] = {DATA: {}, FIXED: fixed}
    totals = sweep(bench, "ranks", ranks, styles)
    printed = sweep(
        bench, "ranks-printed", ranks, {"printed radius, λ₁ = 100, λ₂ = 1": fixed | PRINTED}
    )
    section = Section(
        "Total regret against the rank of the projection",
        f"P-LinUCB with a fixed number of projected dimensions q = rank P̂⊥; the tasks have "
        f"{dim - WORLD.rank}. At q = 0 it is LinUCB with λ₂. With λ's fixed, projecting away a "
        "direction that tasks do differ in is costly; with λ's from data, λ₁ falls where the "
        "projection is wrong, and the mistake costs little.",
        [
            figures.rank_sweep(
                totals.filter(pl.col("policy") == style), true=dim - WORLD.rank, name=name
            )
            for style, name in ((DATA, "ranks"), (FIXED, "ranks-fixed"))
        ],
    )
    as_printed = Section(
        "Total regret against the rank of the projection, the paper's printed constants",
        "The same with the radius as printed.",
        figures.rank_sweep(printed, true=dim - WORLD.rank, name="printed-ranks"),
    )
    return totals, [section, as_printed]


def sweep(
    bench: Bench, name: str, ranks: list[int], styles: dict[str, dict[str, Any]]
) -> pl.DataFrame:
    """Total regret of P-LinUCB by style, seed and q."""
    import polars as pl

    dim = WORLD.dim
    policies = [
        policy("projected_linucb", f"{style}|{dim - rank}", rank=rank, **options)
        for style, options in styles.items()
        for rank in ranks
    ]
    results = bench.run(name, WORLD, policies, checkpoints=())
    parts = pl.col("policy").str.split("|")
    return results.totals().select(
        policy=parts.list.get(0), q=parts.list.get(1).cast(pl.Int64), seed="seed", total="total"
    )


def subspace(bench: Bench) -> tuple[Results, list[Section]]:
    """Figure (d): how far a new task is from the learned subspace, against tasks."""
    results, _ = everybody(bench)
    section = Section(
        "Error of the learned subspace",
        "W is a new task's distance from the learned affine subspace, and Var_ρ its variance "
        "outside the true one. Even the true subspace leaves E[W]²/Var_ρ ≈ 1 − 1/(2q), so E[W²] "
        "is drawn beside it. B-OFUL projects nothing: its P⊥ is I.",
        subspace_figure(results, "subspace"),
    )
    return results, [section]


def subspace_figure(results: Results, name: str) -> figures.Figure:
    """The error of the subspace, from the probes of a run."""
    import polars as pl

    found = results.probes.filter(pl.col("value").is_not_nan())
    codimension = WORLD.dim - WORLD.rank
    return figures.subspace_error(found, task_variance(), codimension=codimension, name=name)


def task_variance() -> float:
    """Var_ρ of the world: the variance of tasks outside the plane."""
    return float(np.square(WORLD.outside) * (WORLD.dim - WORLD.rank))
