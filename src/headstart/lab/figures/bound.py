"""The theorem's bound beside the measured curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart import checks
from headstart.lab.figures.base import SINGLE, Figure
from headstart.lab.figures.curves import Panel, brief_table, draw_panels, explore_panels
from headstart.lab.figures.intervals import need
from headstart.lab.figures.looks import looks
from headstart.lab.figures.text import count, listing, number
from headstart.records import Array

if TYPE_CHECKING:
    import polars as pl

__all__ = ["with_bound"]


def with_bound(
    curve: pl.DataFrame,
    bounds: Mapping[str, Sequence[float] | Array],
    policy: str = "P-LinUCB",
    seeds: int | None = None,
    name: str = "bound",
) -> Figure:
    """The theorem's bound beside the measured curve, on a log axis, and how loose it is.

    Parameters
    ----------
    curve
        Columns round, mean, low and high, such as one policy's rows of
        ``transfer_regret(regret).table``.
    bounds
        Each bound's values at the same rounds, by name.
    policy
        Whose curve it is.
    seeds
        How many seeds the curve is a mean over, unless it has a column of that name.
    name
        The stem of its files.
    """
    import polars as pl

    need(curve, "curve", ("round", "mean", "low", "high"), ("round",))
    curve = curve.sort("round")
    if seeds is None and "seeds" in curve.columns:
        seeds = int(curve["seeds"].item(-1))
    measured = f"{policy}, measured"
    numbers = pl.col("mean", "low", "high").cast(pl.Float64)
    parts = [curve.select(pl.lit(measured).alias("policy"), pl.col("round"), numbers)]
    final, loose = float(curve["mean"].item(-1)), []
    for label, values in bounds.items():
        array = checks.finite_array(f"bounds[{label!r}]", values, "a vector", ndim=1)
        if len(array) != len(curve):
            raise checks.refuse(f"bounds[{label!r}]", f"{len(curve)} numbers", np.asarray(values))
        nothing = pl.lit(None, dtype=pl.Float64)
        line = curve.select(
            pl.lit(label).alias("policy"),
            pl.col("round"),
            pl.Series("mean", array.astype(np.float64)),
            nothing.alias("low"),
            nothing.alias("high"),
        )
        parts.append(line)
        loose.append(f"{label} is {number(float(array[-1]) / final)} × the measured regret")
    table = pl.concat(parts)
    # The curve keeps its policy's look; bounds are dotted and dashed in colours of their own.
    known = {measured: looks([policy])[policy]}
    panel = Panel(
        table,
        "round",
        "round in the task",
        "transfer regret (reward, log scale)",
        True,
        known=known,
    )
    last = curve["round"].item(-1)
    over = "" if seeds is None else f" over {count(seeds, 'seed')}"
    how = f" After {count(int(last), 'round')}, {listing(loose)}." if loose else ""
    return Figure(
        name,
        "The bound beside the measured regret",
        f"Expected transfer regret of {policy}, mean{over} with a band of 95 % intervals, and what "
        f"the theory promises.{how}",
        table,
        brief_table(panel),
        lambda: draw_panels([panel], (SINGLE, 2.8), 2),
        lambda: explore_panels([panel]),
    )
