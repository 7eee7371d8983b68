"""Regret against rounds and against tasks, and the theorem's bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from headstart import checks
from headstart.lab.figures.elements.base import SINGLE, Figure
from headstart.lab.figures.elements.intervals import check_table, describe_seeds, mean_over_seeds
from headstart.lab.figures.elements.panels import Panel, panel_figure
from headstart.lab.figures.elements.styles import assign_styles
from headstart.lab.text import count, number
from headstart.records import Array

COLUMNS = ("seed", "policy", "task", "round", "regret")
KEY = COLUMNS[:-1]
PAIRED_NOTE = (
    "All policies met the same tasks and noise, so differences are more certain than bands suggest."
)


def transfer_regret(regret: pl.DataFrame, name: str = "transfer_regret") -> Figure:
    """Expected transfer regret against rounds: the mean over tasks of the regret in a task so far.

    Parameters
    ----------
    regret
        Columns seed, policy, task, round (the checkpoints) and regret (since the task's start).
    name
        The stem of its files.
    """
    table = mean_transfer_regret(regret)
    tasks = regret["task"].n_unique()
    title = "expected transfer regret (reward)"
    panel = Panel(table, "round", "round in the task", title, zero=True)
    what = f"Regret in a task so far, averaged over {count(tasks, 'task')}"
    return curve_figure(name, "Expected transfer regret against rounds", what, panel)


def mean_transfer_regret(regret: pl.DataFrame) -> pl.DataFrame:
    """The table behind :func:`transfer_regret`: mean and interval by policy and round."""
    check_table(regret, "regret", COLUMNS, KEY)
    each = regret.group_by("policy", "round", "seed", maintain_order=True).agg(
        pl.col("regret").mean()
    )
    return mean_over_seeds(each, ["policy", "round"], "regret")


def cumulative_regret(regret: pl.DataFrame, name: str = "cumulative_regret") -> Figure:
    """Cumulative regret against tasks; see :func:`transfer_regret` for the parameters."""
    each = whole_tasks(regret).with_columns(pl.col("regret").cum_sum().over("policy", "seed"))
    table = mean_over_seeds(each, ["policy", "task"], "regret")
    panel = Panel(table, "task", "tasks finished", "cumulative regret (reward)", zero=True)
    what = f"Regret summed over all tasks so far, each of {rounds_of(regret)}"
    return curve_figure(name, "Cumulative regret against tasks", what, panel)


def per_task_regret(
    regret: pl.DataFrame, window: int = 10, name: str = "per_task_regret"
) -> Figure:
    """Regret of each task against its number: shows where transfer starts to help.

    Parameters
    ----------
    regret
        As for :func:`transfer_regret`.
    window
        Each point is the mean of this many tasks, the last of them at the point (of fewer at the
        start).
    name
        The stem of its files.
    """
    checks.integer("window", window, 1)
    mean = pl.col("regret").rolling_mean(window, min_samples=1)
    each = whole_tasks(regret).with_columns(mean.over("policy", "seed"))
    table = mean_over_seeds(each, ["policy", "task"], "regret")
    title = "regret of a task (reward)"
    panel = Panel(table, "task", "task number", title, zero=True)
    what = f"Regret of a task of {rounds_of(regret)}, as the mean of the last {window} tasks"
    if window == 1:
        what = f"Regret of each task of {rounds_of(regret)}"
    return curve_figure(name, "Regret of each task", what, panel)


def whole_tasks(regret: pl.DataFrame) -> pl.DataFrame:
    """The regret of whole tasks, in order; tasks are counted from 1."""
    check_table(regret, "regret", COLUMNS, KEY)
    last = regret.filter(pl.col("round") == pl.col("round").max())
    return last.with_columns(pl.col("task") + 1).sort("policy", "seed", "task")


def rounds_of(regret: pl.DataFrame) -> str:
    """The length of a task in words."""
    last: Any = regret["round"].max()
    return count(int(last), "round")


def curve_figure(name: str, title: str, what: str, panel: Panel) -> Figure:
    """A figure of one panel of regret."""
    bands = f"bands are 95 % intervals over seeds. {PAIRED_NOTE}"
    caption = f"{what}: mean over {describe_seeds(panel.table, bands, 'no intervals.')}"
    return panel_figure(name, title, caption, [panel], (SINGLE, 3.0))


def with_bound(
    curve: pl.DataFrame,
    bounds: Mapping[str, Sequence[float] | Array],
    policy: str = "P-LinUCB",
    name: str = "bound",
) -> Figure:
    """The theorem's bound and the measured curve, on a log axis, and how loose the bound is.

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
    check_table(curve, "curve", ("round", "mean", "low", "high", "seeds"), ("round",))
    curve = curve.sort("round")
    seeds = count(int(curve["seeds"].item(-1)), "seed")
    numbers = pl.col("mean", "low", "high").cast(pl.Float64)
    parts = [curve.select(pl.lit("measured").alias("line"), pl.col("round"), numbers)]
    # The curve keeps its policy's style; bounds have colours of their own and are never solid.
    labels, ratios = {"measured": f"{policy}, measured"}, []
    styles = {labels["measured"]: assign_styles([policy])[policy]}
    bound_styles = assign_styles(bounds)
    for place, (label, values) in enumerate(bounds.items()):
        array = checks.finite_array(f"bounds[{label!r}]", values, "a vector", ndim=1)
        if len(array) != len(curve):
            raise checks.invalid(f"bounds[{label!r}]", f"{len(curve)} numbers", np.asarray(values))
        nothing = pl.lit(None, dtype=pl.Float64)
        means = pl.Series("mean", array.astype(np.float64))
        parts.append(
            curve.select(line=pl.lit(label), round="round", mean=means, low=nothing, high=nothing)
        )
        factor = number(float(array[-1]) / float(curve["mean"].item(-1)))
        labels[label] = f"{label} ({factor} × at the end)"
        styles[labels[label]] = bound_styles[label]._replace(line=("--", ":", "-.")[place % 3])
        ratios.append(f"{label} {factor}")
    table = pl.concat(parts)
    lines = table.select(pl.col("line").replace_strict(labels).alias("policy"), pl.exclude("line"))
    title = "transfer regret (reward)"
    panel = Panel(lines, "round", "round in the task", title, log=True, style_overrides=styles)
    last = curve["round"].item(-1)
    after = f"Bound ÷ measured regret after {count(int(last), 'round')}"
    how = f" {after}: {'; '.join(ratios)}." if ratios else ""
    return panel_figure(
        name,
        "The bound beside the measured regret",
        f"Expected transfer regret of {policy}, mean over {seeds} with a band of 95 % intervals, "
        f"and the theoretical bounds.{how}",
        [panel],
        (SINGLE, 2.4 + 0.15 * len(styles)),
        1,
        table=table,
    )
