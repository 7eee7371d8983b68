"""The theorem's bound beside the measured curve."""

from __future__ import annotations

import numpy as np

from headstart import theory
from headstart.lab import figures
from headstart.lab.experiments.plan import Results
from headstart.lab.report import Section
from headstart.lab.studies.synthetic import WORLD
from headstart.records import Array

__all__ = ["section"]


def section(results: Results) -> Section:
    """How loose the bounds are at the paper's setting."""
    import polars as pl
    from scipy.stats import chi2

    curve = figures.mean_transfer_regret(results.regret)
    oracle = curve.filter(pl.col("policy") == "projection oracle")
    # V must bound ‖θ*‖: all but one task in a thousand are shorter than this.
    norm = WORLD.offset + WORLD.inside * np.sqrt(chi2.ppf(0.999, WORLD.rank))
    rounds = oracle["round"].to_numpy()
    noise, outside = WORLD.noise, WORLD.outside * np.sqrt(WORLD.dim - WORLD.rank)
    lam1, lam2 = noise**2 / WORLD.outside**2, noise**2 / WORLD.inside**2

    def bound(rank: int, first: float) -> Array:
        values: Array = theory.ucb_regret_bound(
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
        return values

    lines = {
        "Theorem 1, known plane": bound(WORLD.rank, lam1),
        "LinUCB's bound (p = d)": bound(WORLD.dim, lam2),
    }
    held = all((np.asarray(line) >= oracle["high"].to_numpy()).all() for line in lines.values())
    return Section(
        "The bound beside the curve",
        "Theorem 1 with explicit constants (corrected as the documentation tells), for a known "
        "plane and mean, beside the regret of the oracle that knows them (with a tuned radius, "
        "which is smaller than the theorem's); and the same bound without a plane. The bounds "
        + ("hold, and are loose" if held else "do not hold here")
        + ": they show how regret grows, not how much there is. With a learned plane the analysis "
        "promises nothing at this size.",
        figures.with_bound(oracle, lines, "projection oracle", name="bound"),
    )
