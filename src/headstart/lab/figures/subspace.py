"""The effect of the learned subspace: regret against its rank, and its error against tasks."""

from __future__ import annotations

from typing import Any

import polars as pl

from headstart import checks
from headstart.errors import InputError
from headstart.lab.figures.elements.base import DOUBLE, SINGLE, Figure
from headstart.lab.figures.elements.intervals import check_table, describe_seeds, mean_over_seeds
from headstart.lab.figures.elements.panels import Note, Panel, panel_figure, summary_table
from headstart.lab.figures.elements.styles import assign_styles

# The policy that a projection policy becomes without projection.
WITHOUT_PROJECTION = {"P-LinUCB": "LinUCB", "P-TS": "LinTS"}


def rank_sweep(totals: pl.DataFrame, true: int | None = None, name: str = "rank_sweep") -> Figure:
    """Total regret against q = rank P̂⊥, the number of directions projected away.

    Parameters
    ----------
    totals
        Columns policy, q, seed and total.
    true
        The true q, marked by a line.
    name
        The stem of its files.
    """
    check_table(totals, "totals", ("policy", "q", "seed", "total"), ("policy", "q", "seed"))
    table = mean_over_seeds(totals, ["policy", "q"], "total")
    styles = assign_styles(table["policy"].to_list())
    notes, best = [], []
    for policy, style in styles.items():
        line = table.filter(pl.col("policy") == policy)
        least = line.row(int(line["mean"].arg_min() or 0), named=True)
        own = totals.filter(pl.col("policy") == policy)
        wins = own.sort("total", "q").group_by("seed").first()["q"] == least["q"]
        ratio = ""
        plain = line.filter(pl.col("q") == 0)
        if len(plain):
            level = plain["mean"].item()
            label = WITHOUT_PROJECTION.get(policy, policy)
            notes.append(Note(f"{label} (q = 0)", y=level, colour=style.colour))
            ratio = f", {least['mean'] / level:.2f} × that at q = 0"
        notes.append(Note(f"least: q = {least['q']}", least["q"], least["mean"], style.colour))
        best.append(
            f"{policy}'s mean is least at q = {least['q']}{ratio} "
            f"(and in {wins.sum()} of {len(wins)} seeds one by one)"
        )
    if true is not None:
        notes.append(Note("true q", x=true))
    panel = Panel(
        table,
        "q",
        "q = rank P̂⊥, directions projected away",
        "total regret (reward)",
        notes=tuple(notes),
    )
    return panel_figure(
        name,
        "Total regret against the rank of the projection",
        f"Total regret when q directions are projected away: mean over {describe_seeds(table)}; "
        f"q = 0 is no projection. {'; '.join(best)}.",
        [panel],
        (SINGLE, 2.6 if len(styles) == 1 else 2.9),
        summary=summary_table(panel, 7),
    )


def subspace_error(
    probes: pl.DataFrame,
    variance: float,
    window: int = 20,
    codimension: int | None = None,
    name: str = "subspace_error",
) -> Figure:
    """How far E[W]²/Var_ρ and E[W²]/Var_ρ are from 1, against tasks, on a log scale.

    W is how far a new task is from the learned subspace, and Var_ρ is the variance outside the true
    one: 0 says that the subspace is as good as the true one. Both expectations are over tasks and
    seeds: the mean of the last ``window`` tasks, then the mean over seeds; the interval is found
    for the mean and carried through the formula. Tasks with W = 0 are left out: nothing is
    projected away yet.

    Parameters
    ----------
    probes
        Columns seed, policy, task, name and value, with rows named ``"W"`` and ``"W2"``.
    variance
        Var_ρ.
    window
        The number of tasks to average over.
    codimension
        If given, q: a line at 1/(2q), what E[W] squared misses even with a perfect subspace.
    name
        The stem of its files.
    """
    check_table(probes, "probes", ("seed", "policy", "task", "name", "value"), probes.columns[:-1])
    notes: tuple[Note, ...] = ()
    if codimension is not None:
        checks.integer("codimension", codimension, 1)
        label = f"1/(2q) = {1 / (2 * codimension):.2g}: a perfect subspace"
        notes = (Note(label, y=1 / (2 * codimension)),)
    panels: list[Panel] = []
    tables, summaries = [], []
    ratio = pl.col("mean", "low", "high")  # to Var_ρ, or for W to its root
    for probe, quantity, power, expression in (
        ("W", "E[W]²", 0.5, ratio**2),
        ("W2", "E[W²]", 1.0, ratio),
    ):
        means = rolling_mean(probes.filter(pl.col("name") == probe), variance, power, window)
        table = relative_error(means, expression)
        axes, heading = ("task", "task number", "relative error"), f"|{quantity} / Var − 1|"
        panel = Panel(table, *axes, log=True, heading=heading, notes=notes if not panels else ())
        column = pl.lit(quantity).alias("quantity")
        panels.append(panel)
        tables.append(table.with_columns(column))
        summaries.append(summary_table(panel).select(column, pl.all()))
    return panel_figure(
        name,
        "Error of the learned subspace against tasks",
        f"Relative error of E[W]² (left) and of E[W²] (right), with W a new task's distance from "
        f"the learned subspace, where there is one yet: mean over the last {window} tasks and "
        f"{describe_seeds(tables[0])} (a band that reaches the bottom includes 0).",
        panels,
        (DOUBLE, 2.7),
        6,
        same_y=True,
        table=pl.concat(tables),
        summary=pl.concat(summaries),
    )


def rolling_mean(probes: pl.DataFrame, variance: float, power: float, window: int) -> pl.DataFrame:
    """Mean over the last tasks and over seeds of a probe ÷ a power of Var_ρ, with its interval."""
    if probes.is_empty():
        raise InputError("probes must have rows named 'W' and 'W2'")
    scaled = pl.col("value") / checks.positive("variance", variance) ** power
    # A projection onto everything leaves 0 up to rounding.
    nothing = 1e-9 ** (2 * power)
    valid = probes.with_columns(value=scaled, task=pl.col("task") + 1).filter(
        pl.col("value").is_finite() & (pl.col("value") > nothing)
    )
    if valid.is_empty():
        raise InputError("probes must have values above 0: no policy projects anything away")
    mean = pl.col("value").rolling_mean(window, min_samples=1)
    smooth = valid.sort("policy", "seed", "task").with_columns(mean.over("policy", "seed"))
    return mean_over_seeds(smooth, ["policy", "task"], "value")


def relative_error(table: pl.DataFrame, ratio: Any) -> pl.DataFrame:
    """|ratio − 1|, with the interval of the ratio carried over: down to 0 if it includes 1."""
    difference = table.with_columns(ratio - 1)
    low, high = pl.col("low"), pl.col("high")
    nearest = pl.min_horizontal(low.abs(), high.abs())
    return difference.with_columns(
        mean=pl.col("mean").abs(),
        low=pl.when(low.is_null()).then(None).when(low * high <= 0).then(0.0).otherwise(nearest),
        high=pl.when(low.is_null()).then(None).otherwise(pl.max_horizontal(low.abs(), high.abs())),
    )
