"""Ratios of total regret: to a baseline's, and of every setting tried in tuning to the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from headstart.lab.figures.elements.base import SINGLE, Figure
from headstart.lab.figures.elements.interval_rows import IntervalPanel, IntervalPoint, IntervalRows
from headstart.lab.figures.elements.intervals import check_table, describe_seeds, paired_ratios
from headstart.lab.figures.elements.styles import assign_styles
from headstart.lab.figures.regret import whole_tasks
from headstart.lab.text import count, escape_plotly, format_interval, join_words, number


def totals(regret: pl.DataFrame, baseline: str = "LinUCB", name: str = "totals") -> Figure:
    """Total regret ÷ the baseline's on the same seeds, with a paired interval.

    Parameters
    ----------
    regret
        Columns seed, policy, task, round and regret (since the task's start).
    baseline
        The policy to divide by.
    name
        The stem of its files.
    """
    each = whole_tasks(regret).group_by("policy", "seed").agg(total=pl.col("regret").sum())
    table = paired_ratios(each, baseline)
    paired = "paired 95 % intervals by the delta method"
    seeds = describe_seeds(table, paired, "one seed: no intervals")
    caption = (
        f"Total regret ÷ that of {baseline} on the same seeds: ratio of means over {seeds}; "
        "× is the worst seed."
    )
    points, rows = [], []
    for row in table.iter_rows(named=True):
        policy, interval = row["policy"], (row["ratio"], row["low"], row["high"])
        worst = f"{number(row['worst'])} (seed {row['worst_seed']})"
        others = [(f"worst seed: {worst}", row["worst"])]
        points.append(IntervalPoint(policy, policy, *interval, others=others))
        rows.append(
            {
                "policy": policy,
                f"÷ {baseline}": format_interval(*interval),
                "worst seed": worst,
                "mean total": number(row["mean_total"]),
                "seeds": row["seeds"],
            }
        )
    chart = IntervalRows(
        [IntervalPanel(points, centre=1.0)],
        assign_styles(table["policy"].to_list()),
        f"total regret ÷ {baseline}'s (log scale)",
        0.2,
        SINGLE,
        log=True,
        legend=("mean, 95 % interval", "worst seed"),
    )
    title = f"Total regret as a share of {baseline}'s"
    return Figure(name, title, caption, table, pl.DataFrame(rows), chart.draw, chart.explore)


def tuning(table: pl.DataFrame, name: str = "tuning") -> Figure:
    """Every setting tried in tuning, as a multiple of the policy's best, which is marked.

    Parameters
    ----------
    table
        Columns policy, seed and total, and one column per option (null where a policy does not
        have it).
    name
        The stem of its files.
    """
    options = [column for column in table.columns if column not in ("policy", "total", "seed")]
    check_table(table, "table", ("policy", "seed", "total"), ("policy", "seed", *options))
    seeds, total = table["seed"].n_unique(), pl.col("total")
    table = table.group_by("policy", *options, maintain_order=True).agg(total.mean())
    table = table.with_columns(
        ratio=total / total.min().over("policy"),
        chosen=pl.int_range(pl.len()).over("policy") == total.arg_min().over("policy"),
    )
    usual_styles = assign_styles(table["policy"].to_list())
    styles = {policy: style._replace(marker="D") for policy, style in usual_styles.items()}
    settings = [setting(row, options) for row in table.iter_rows(named=True)]
    table = table.with_columns(setting=pl.Series(settings))
    parts = [table.filter(pl.col("policy") == policy) for policy in styles]
    rows = [summary(part, options) for part in parts]
    edges = [f"{row['policy']} ({row['at the edge']})" for row in rows if row["at the edge"] != "–"]
    warning = f" At the edge of its grid: {join_words(edges)}." if edges else ""
    caption = (
        "Mean total regret of every setting tried ÷ that of the policy's best setting: means over "
        f"{count(seeds, 'tuning seed')}, which are not reported, without intervals. Diamonds are "
        f"the settings chosen.{warning}"
    )
    chart = IntervalRows(
        [IntervalPanel([tuning_point(part) for part in parts])],
        styles,
        "mean total regret ÷ that of the policy's best setting (log scale)",
        log=True,
        note_title="chosen setting",
    )
    table = table.select("policy", *options, "total", "ratio", "chosen")
    title = "How much tuning mattered"
    return Figure(name, title, caption, table, pl.DataFrame(rows), chart.draw, chart.explore)


def tuning_point(part: pl.DataFrame) -> IntervalPoint:
    """The chosen setting of a policy, with all others in its row."""
    rows = part.sort("chosen", descending=True, maintain_order=True).rows(named=True)
    hovers = [
        f"{escape_plotly(row['setting'])}<br>total {number(row['total'])}, "
        f"{number(row['ratio'])} × the best"
        for row in rows
    ]
    return IntervalPoint(
        rows[0]["policy"],
        rows[0]["policy"],
        rows[0]["ratio"],
        note=rows[0]["setting"],
        hover=f"{hovers[0]} (chosen)",
        others=[(hover, row["ratio"]) for hover, row in zip(hovers[1:], rows[1:], strict=True)],
    )


def setting(row: dict[str, Any], options: Sequence[str]) -> str:
    """A setting in words: the options that the policy has.

    >>> setting({"lam": "1.0", "radius": None, "rank": "log-gap"}, ["lam", "radius", "rank"])
    'lam 1, rank log-gap'
    """
    parts = []
    for option in options:
        if row[option] is not None:
            value = parse_number(row[option])
            parts.append(f"{option} {row[option] if value is None else format(value, 'g')}")
    return ", ".join(parts)


def parse_number(value: Any) -> float | None:
    """The number that a setting is or spells; a name such as "plug-in" is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def summary(part: pl.DataFrame, options: Sequence[str]) -> dict[str, Any]:
    """One policy's tuning in a line."""
    best, ratios = part.row(part["chosen"].arg_max() or 0, named=True), part["ratio"].to_numpy()
    return {
        "policy": best["policy"],
        "settings tried": len(part),
        "chosen": best["setting"],
        "median ÷ best": number(float(np.median(ratios))),
        "worst ÷ best": number(float(ratios.max())),
        "at the edge": ", ".join(options_at_edge(part, best, options)) or "–",
    }


def options_at_edge(part: pl.DataFrame, best: dict[str, Any], options: Sequence[str]) -> list[str]:
    """Options whose chosen value is the least or the greatest tried: the best may lie beyond."""
    edges = []
    for option in options:
        values = [parse_number(value) for value in part[option].drop_nulls().unique().to_list()]
        numbers = [value for value in values if value is not None]
        choice = parse_number(best[option])
        if choice is not None and len(numbers) > 1 and choice in (min(numbers), max(numbers)):
            edges.append(f"{option} {'lowest' if choice == min(numbers) else 'highest'}")
    return edges
