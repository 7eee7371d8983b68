"""Tuning: exploration and regularisation of every algorithm, over the same grids.

Exploration is a multiple of the noise; regularisation is λ (for projections λ₁ and λ₂, the first
the larger). Where an algorithm can take its λ from data (``"plug-in"``), that is one more point of
its grid. Tuning uses seeds that are never reported on.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from headstart.algorithms import ALGORITHMS
from headstart.lab.experiments.execution import Execution
from headstart.lab.experiments.experiment import run
from headstart.lab.experiments.plan import Plan
from headstart.lab.policies import NamedPolicy, policy
from headstart.worlds.base import World

__all__ = ["LAMBDAS", "MULTIPLIERS", "Tuning", "grid", "tune"]

MULTIPLIERS = (0.125, 0.25, 0.5, 1.0, 2.0)
LAMBDAS = (0.01, 0.1, 1.0, 10.0, 100.0)
LAMBDA_NAMES = ("lam", "lam1", "lam2")
#: R²/variance outside and inside the plane of ``Synthetic()``: the best λ's of an oracle there.
TRUE_LAMBDAS = {"lam1": 25.0, "lam2": 0.16}


def grid(algorithm: str) -> list[dict[str, Any]]:
    """All options of an algorithm that tuning tries.

    >>> len(grid("linucb")), len(grid("projected_linucb"))
    (30, 55)
    """
    entry = ALGORITHMS[algorithm]
    exploration = "radius" if "radius" in entry.options else "scale"
    points: list[dict[str, Any]] = [{}]
    if "lam1" in entry.options:
        points = [
            {"lam1": large, "lam2": small}
            for small, large in itertools.product(LAMBDAS, LAMBDAS)
            if small < large
        ]
        points.append(TRUE_LAMBDAS if entry.truth else {"lam1": "plug-in", "lam2": "plug-in"})
    elif "lam" in entry.options:
        points = [{"lam": lam} for lam in LAMBDAS]
        if not algorithm.startswith("meta_ts"):  # whose λ matters only before it has a covariance
            points.append({"lam": "plug-in"})
    return [{exploration: multiplier, **lam} for lam in points for multiplier in MULTIPLIERS]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was tried, and what was best.

    ``table`` has the columns algorithm, policy, multiplier, lam, lam1, lam2, label, seed and total;
    ``best`` has the options of each algorithm.
    """

    table: pl.DataFrame
    best: dict[str, dict[str, Any]]

    def policies(self) -> tuple[NamedPolicy, ...]:
        """The tuned policies."""
        return tuple(policy(algorithm, **options) for algorithm, options in self.best.items())


def tune(
    world: World,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    *,
    fixed: Mapping[str, Mapping[str, Any]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    label: str = "tuning",
) -> Tuning:
    """Try every algorithm's grid on the same seeds, and keep the options with least total regret.

    Parameters
    ----------
    world
        Where tasks come from.
    algorithms
        Names in :data:`headstart.algorithms.ALGORITHMS`.
    seeds, tasks, rounds
        The size of the experiment.
    fixed
        Options that are set for an algorithm, and not tuned.
    folder, execution, label
        As for :func:`~headstart.lab.experiments.experiment.run`.
    """
    fixed = fixed or {}
    policies: dict[str, NamedPolicy] = {}
    for algorithm in algorithms:
        for point in grid(algorithm):
            options = {**point, **fixed.get(algorithm, {})}
            name = f"{algorithm}:" + ",".join(f"{key}={value}" for key, value in options.items())
            policies[name] = policy(algorithm, name, **options)  # once, where fixed ones coincide
    plan = Plan(world, tuple(policies.values()), tuple(seeds), tasks, rounds)
    rows = []
    for row in run(plan, folder, execution, label).totals().iter_rows(named=True):
        named_policy = policies[row["policy"]]
        options = dict(named_policy.options)
        rows.append(
            {
                "algorithm": named_policy.algorithm,
                "policy": named_policy.entry.label,
                "multiplier": str(options.get("radius", options.get("scale"))),
                **{name: str(options[name]) if name in options else None for name in LAMBDA_NAMES},
                "label": row["policy"],
                "seed": row["seed"],
                "total": row["total"],
            }
        )
    table = pl.DataFrame(rows, infer_schema_length=None)
    means = table.group_by("algorithm", "label").agg(mean=pl.col("total").mean())
    best = {}
    for algorithm in algorithms:
        first = means.filter(pl.col("algorithm") == algorithm).sort("mean", "label")
        best[algorithm] = dict(policies[first["label"][0]].options)
    return Tuning(table, best)
