"""The theorem's bound beside the measured curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart import checks
from headstart.lab.figures.elements.base import SINGLE, Figure
from headstart.lab.figures.elements.intervals import check_table
from headstart.lab.figures.elements.panels import Panel, panel_figure
from headstart.lab.figures.elements.styles import assign_styles
from headstart.lab.figures.elements.text import count, number
from headstart.records import Array

if TYPE_CHECKING:
    import polars as pl

__all__ = ["with_bound"]


def with_bound(
    curve: pl.DataFrame,
    bounds: Mapping[str, Sequence[float] | Array],
    policy: str = "P-LinUCB",
    name: str = "bound",
) -> Figure:
    """The theorem's bound beside the measured curve, on a log axis, and how loose it is.

    Parameters
    ----------
    curve
        Columns round, mean, low, high and seeds: one policy's rows of
        :func:`mean_transfer_regret`.
    bounds
        Each bound's values at the same rounds, by name.
    policy
        Whose curve it is.
    name
        The stem of its files.
    """
    import polars as pl

    check_table(curve, "curve", ("round", "mean", "low", "high", "seeds"), ("round",))
    curve = curve.sort("round")
    seeds = count(int(curve["seeds"].item(-1)), "seed")
    numbers = pl.col("mean", "low", "high").cast(pl.Float64)
    parts = [curve.select(pl.lit("measured").alias("line"), pl.col("round"), numbers)]
    # The curve keeps its policy's style; bounds have colours of their own and are never solid.
    shown, loose = {"measured": f"{policy}, measured"}, []
    known = {shown["measured"]: assign_styles([policy])[policy]}
    spare = assign_styles(bounds)
    for place, (label, values) in enumerate(bounds.items()):
        array = checks.finite_array(f"bounds[{label!r}]", values, "a vector", ndim=1)
        if len(array) != len(curve):
            raise checks.refuse(f"bounds[{label!r}]", f"{len(curve)} numbers", np.asarray(values))
        nothing = pl.lit(None, dtype=pl.Float64)
        means = pl.Series("mean", array.astype(np.float64))
        parts.append(
            curve.select(line=pl.lit(label), round="round", mean=means, low=nothing, high=nothing)
        )
        factor = number(float(array[-1]) / float(curve["mean"].item(-1)))
        shown[label] = f"{label} ({factor} × at the end)"
        known[shown[label]] = spare[label]._replace(line=("--", ":", "-.")[place % 3])
        loose.append(f"{label} {factor}")
    table = pl.concat(parts)
    named = table.select(pl.col("line").replace_strict(shown).alias("policy"), pl.exclude("line"))
    title = "transfer regret (reward)"
    panel = Panel(named, "round", "round in the task", title, log=True, known=known)
    last = curve["round"].item(-1)
    after = f"Bound ÷ measured regret after {count(int(last), 'round')}"
    how = f" {after}: {'; '.join(loose)}." if loose else ""
    return panel_figure(
        name,
        "The bound beside the measured regret",
        f"Expected transfer regret of {policy}, mean over {seeds} with a band of 95 % intervals, "
        f"and what the theory promises.{how}",
        [panel],
        (SINGLE, 2.4 + 0.15 * len(known)),
        1,
        table=table,
    )
