"""Many features and few tasks, or short ones: what low-rank candidates add to the default."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl

from headstart.algorithms import DEFAULT
from headstart.lab.experiments.plan import Results
from headstart.lab.policies import policy
from headstart.lab.report import Claim, Section
from headstart.lab.studies.outcome import Ratios, our_claim, regret_section
from headstart.lab.studies.runner import FULL, Runner
from headstart.worlds.synthetic import Synthetic

FULL_COVARIANCE = "full covariance alone"


@dataclasses.dataclass(frozen=True)
class SparseWorld:
    """A world with its own numbers of tasks and rounds, and limits for the regret of the default.

    ``max_ratio`` limits its total regret as a multiple of that of the full covariance alone, and
    ``max_last_quarter`` that of the last quarter of the tasks as a multiple of the Bayes oracle's.
    """

    world: Synthetic
    tasks: int
    rounds: int
    max_ratio: float
    max_last_quarter: float | None = None


SPARSE_WORLDS = {
    "wide": SparseWorld(
        Synthetic(dim=100, rank=5, arms=10, noise=0.2, inside=0.4, outside=0.01, offset=0.8),
        tasks=200,
        rounds=150,
        max_ratio=0.75,
        max_last_quarter=1.4,
    ),
    "short": SparseWorld(
        Synthetic(rank=5, arms=10, noise=0.3, contexts="sphere"),
        tasks=600,
        rounds=25,
        max_ratio=0.95,
    ),
}


def few_tasks(runner: Runner, seeds: Sequence[int]) -> tuple[list[Section], list[Claim]]:
    """The default against the same without low-rank candidates, in worlds of few or short tasks."""
    rows, sections, claims = [], [], []
    full = policy("empirical_bayes", FULL_COVARIANCE, low_rank=False)
    policies = (policy("linucb"), policy("empirical_bayes"), full, policy("bayes_oracle"))
    for name, sparse in SPARSE_WORLDS.items():
        tasks = max(4, sparse.tasks * min(runner.scale.tasks, FULL.tasks) // FULL.tasks)
        results = runner.run(
            f"beyond-{name}",
            sparse.world,
            policies,
            seeds=seeds,
            tasks=tasks,
            rounds=sparse.rounds,
            checkpoints=(sparse.rounds,),
        )
        row = sparse_row(name, results, tasks)
        rows.append(row)
        claims.append(sparse_claim(name, sparse, row))
        title, stem = f"{DEFAULT}: {name}", f"beyond-{name}"
        sections.append(regret_section(title, "", results.regret, stem))
    head = Section(
        "Many features, few tasks",
        "Wide: 100 features of which tasks differ along 5, 150 rounds a task. Short: 30 features, "
        "25 rounds a task, contexts uniform on the sphere. The default averages a full covariance "
        "with low-rank ones by how well each has predicted; the other policy is the full "
        f"covariance alone. {len(seeds)} seeds.",
        table=pl.DataFrame(rows),
        level=2,
    )
    return [head, *sections], claims


def sparse_row(name: str, results: Results, tasks: int) -> dict[str, Any]:
    """A row of the table."""
    totals, last = results.totals(), results.totals(tasks - tasks // 4)
    against = Ratios(totals, FULL_COVARIANCE)
    return {
        "world": name,
        "÷ full covariance": against[DEFAULT],
        "worst seed": against.rows[DEFAULT]["worst"],
        "÷ Bayes oracle": Ratios(totals, "Bayes oracle")[DEFAULT],
        "last quarter ÷ Bayes oracle": Ratios(last, "Bayes oracle")[DEFAULT],
        "÷ LinUCB": Ratios(totals)[DEFAULT],
    }


def sparse_claim(name: str, sparse: SparseWorld, row: dict[str, Any]) -> Claim:
    """The requirement on the default in one of the worlds."""
    total, last = row["÷ full covariance"], row["last quarter ÷ Bayes oracle"]
    holds = total <= sparse.max_ratio and (
        sparse.max_last_quarter is None or last <= sparse.max_last_quarter
    )
    requirement = f"at most {sparse.max_ratio} × the full covariance"
    if sparse.max_last_quarter is not None:
        requirement += f", the last quarter {sparse.max_last_quarter} × the Bayes oracle"
    measured = (
        f"÷ full covariance {total:.3f}, worst seed {row['worst seed']:.3f}; last quarter ÷ Bayes "
        f"oracle {last:.3f}"
    )
    claim = f"Low-rank candidates help, {name}: {requirement}"
    return our_claim(claim, measured, holds)
