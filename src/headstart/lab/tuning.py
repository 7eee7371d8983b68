"""Tuning: every policy's two knobs over the same grids, on seeds that are never reported.

How much to explore is a multiple of the noise; how much to regularise is λ (for projections λ₁ and
λ₂, the first the larger). Where a policy can choose its λ from data (``"plug-in"``), that is one
more point of its grid.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headstart.algorithms import ALGORITHMS
from headstart.lab.experiment import Plan, Progress, Spread, run
from headstart.lab.policies import NamedPolicy, policy
from headstart.worlds.base import World

if TYPE_CHECKING:
    import os

    import polars as pl

__all__ = ["LAMBDAS", "MULTIPLIERS", "Tuning", "grid", "tune"]

MULTIPLIERS = (0.125, 0.25, 0.5, 1.0, 2.0)
LAMBDAS = (0.01, 0.1, 1.0, 10.0, 100.0)
LAMBDA_NAMES = ("lam", "lam1", "lam2")


def grid(kind: str) -> list[dict[str, Any]]:
    """All settings of a policy that tuning tries.

    >>> len(grid("linucb")), len(grid("projected_linucb"))
    (30, 55)
    """
    knobs = ALGORITHMS[kind].options
    amount = "radius" if "radius" in knobs else "scale"
    single: list[dict[str, Any]] = [{"lam": lam} for lam in LAMBDAS]
    pairs = [
        {"lam1": large, "lam2": small}
        for small, large in itertools.product(LAMBDAS, LAMBDAS)
        if small < large
    ]
    regularised: list[dict[str, Any]] = [{}]
    if "lam1" in knobs:
        extra = {"lam1": 25.0, "lam2": 0.16} if "oracle" in kind else plug_in("lam1", "lam2")
        regularised = [*pairs, extra]
    elif "lam" in knobs:
        # M-TS uses its λ only until it has a covariance: there is nothing to plug in.
        regularised = single if "meta" in kind else [*single, plug_in("lam")]
    return [{amount: number, **lam} for lam in regularised for number in MULTIPLIERS]


def plug_in(*names: str) -> dict[str, Any]:
    """These λ's from data."""
    return dict.fromkeys(names, "plug-in")


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was tried, and what was best.

    ``table`` has the columns kind, policy, multiplier, lam, lam1, lam2, label, seed and total;
    ``best`` the options of each kind.
    """

    table: pl.DataFrame
    best: dict[str, dict[str, Any]]

    def policies(self) -> tuple[NamedPolicy, ...]:
        """The tuned policies."""
        return tuple(policy(kind, **options) for kind, options in self.best.items())


def tune(
    world: World,
    kinds: Sequence[str],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    *,
    fixed: Mapping[str, Mapping[str, Any]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    stored: bool = False,
    engine: str = "auto",
    spread: Spread | None = None,
) -> Tuning:
    """Try every policy's grid on the same seeds, and keep the setting with the least total regret.

    ``fixed`` holds options that are set for a kind and not tuned. The rest is as
    :func:`~headstart.lab.experiment.run` has it.
    """
    import polars as pl

    fixed = fixed or {}
    settings: dict[str, tuple[str, dict[str, Any]]] = {}
    policies = []
    for kind in kinds:
        for options in grid(kind):
            chosen = {**options, **fixed.get(kind, {})}
            label = f"{kind}:" + ",".join(f"{name}={value}" for name, value in chosen.items())
            if label in settings:  # a fixed knob makes points of the grid alike
                continue
            settings[label] = (kind, chosen)
            policies.append(policy(kind, label, **chosen))
    plan = Plan(world, tuple(policies), tuple(seeds), tasks, rounds)
    found = run(
        plan,
        folder,
        workers=workers,
        progress=progress,
        stored=stored,
        engine=engine,
        spread=spread,
    )
    totals = found.totals()
    rows = []
    for row in totals.iter_rows(named=True):
        kind, chosen = settings[row["policy"]]
        rows.append(
            {
                "kind": kind,
                "policy": ALGORITHMS[kind].label,
                "multiplier": str(chosen.get("radius", chosen.get("scale"))),
                **{name: str(chosen[name]) if name in chosen else None for name in LAMBDA_NAMES},
                "label": row["policy"],
                "seed": row["seed"],
                "total": row["total"],
            }
        )
    table = pl.DataFrame(rows, infer_schema_length=None)
    means = table.group_by("kind", "label").agg(mean=pl.col("total").mean()).sort("mean", "label")
    best = {}
    for kind in kinds:
        winner = means.filter(pl.col("kind") == kind).row(0, named=True)
        best[kind] = settings[winner["label"]][1]
    return Tuning(table, best)
