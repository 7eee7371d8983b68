"""Total regret as a share of a baseline's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.base import SINGLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.intervals import paired_ratios, seeds_of
from headstart.lab.figures.looks import looks
from headstart.lab.figures.regret import whole_tasks
from headstart.lab.figures.text import for_matplotlib, for_plotly, number, with_interval

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["totals"]

# Round numbers for a logarithmic axis, from coarse to fine: within a decade, then at even steps.
DECADES = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))
STEPS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


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
    import polars as pl

    each = whole_tasks(regret).group_by("policy", "seed").agg(total=pl.col("regret").sum())
    table = paired_ratios(each, baseline)
    seeds, bands = seeds_of(table)
    how = "paired 95 % intervals by the delta method" if bands else "one seed: no intervals"
    caption = (
        f"Total regret ÷ that of {baseline} on the same seeds: ratio of means over {seeds}, {how}; "
        "× is the worst seed."
    )
    rows = [
        {
            "policy": row["policy"],
            f"÷ {baseline}": with_interval(row["ratio"], row["low"], row["high"]),
            "worst seed": f"{number(row['worst'])} (seed {row['worst_seed']})",
            "mean total": number(row["mean_total"]),
            "seeds": row["seeds"],
        }
        for row in table.iter_rows(named=True)
    ]
    return Figure(
        name,
        f"Total regret as a share of {baseline}'s",
        caption,
        table,
        pl.DataFrame(rows),
        lambda: draw(table, baseline),
        lambda: explore(table, baseline),
    )


def draw(table: pl.DataFrame, baseline: str) -> Drawing:
    """A dot, an interval and the worst seed for each policy; the best policy on top."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    style = looks(table["policy"].to_list())
    drawing = Drawing(figsize=(SINGLE, 0.75 + 0.21 * len(table)), layout="constrained")
    axes = drawing.subplots()
    axes.set_xscale("log")
    axes.axvline(1, color="0.5", linewidth=0.8)
    for place, row in enumerate(table.iter_rows(named=True)):
        look = style[row["policy"]]
        axes.plot([row["ratio"], row["worst"]], [place] * 2, "-", color="0.8", linewidth=0.8)
        if row["low"] is not None:
            ends = [drawable(row), row["high"]]
            axes.plot(ends, [place] * 2, "|-", color=look.colour, linewidth=1.2, markersize=8)
        axes.plot(row["worst"], place, "x", color=look.colour, markersize=4)
        axes.plot(row["ratio"], place, look.marker, color=look.colour, markersize=3.5)
        axes.annotate(
            with_interval(row["ratio"], row["low"], row["high"]),
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(table)), [for_matplotlib(name) for name in table["policy"]])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    places = ticks(table)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"total regret ÷ {for_matplotlib(baseline)}'s (log scale)")
    grey = "0.35"
    drawing.legend(
        [
            Line2D([], [], color=grey, marker="o", linewidth=1.2, markersize=3.5),
            Line2D([], [], color=grey, marker="x", linewidth=0, markersize=4),
        ],
        ["mean, 95 % interval", "worst seed"],
        loc="outside lower center",
        ncols=2,
    )
    return drawing


def ticks(table: pl.DataFrame) -> list[float]:
    """Round numbers around the ratios."""
    least = min(drawable(row) for row in table.iter_rows(named=True))
    most: Any = table.select("worst", "high").max_horizontal().max()
    return log_ticks(least, float(most))


def drawable(row: dict[str, Any]) -> float:
    """The lower end of an interval on a logarithmic axis, where 0 and below have no place."""
    ratio = float(row["ratio"])
    return ratio if row["low"] is None else max(float(row["low"]), 0.1 * ratio)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis from ``low`` to ``high``: about four to seven.

    >>> log_ticks(0.47, 3.1), log_ticks(0.88, 1.04), log_ticks(1, 40)
    ([0.5, 0.7, 1.0, 1.5, 2.0, 3.0], [0.9, 0.95, 1.0, 1.05], [1.0, 2.0, 5.0, 10.0, 20.0])
    """
    low, high = 0.98 * low, 1.02 * high
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = [[digit * 10.0**power for power in powers for digit in digits] for digits in DECADES]
    sets += [
        [step * at for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
        for step in STEPS
        if (high - low) / step < 20
    ]
    for places in sets:
        inside = [round(place, 10) for place in places if low <= place <= high]
        if len(inside) >= 4:
            return inside if len(inside) <= 8 else inside[::2]
    return [low, high]


def explore(table: pl.DataFrame, baseline: str) -> Any:
    """The same to explore: one entry of the legend per policy."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    figure = go.Figure()
    for row in table.iter_rows(named=True):
        name, look = row["policy"], looks(table["policy"].to_list())[row["policy"]]
        spread = None
        if row["low"] is not None:
            spread = {
                "type": "data",
                "symmetric": False,
                "array": [row["high"] - row["ratio"]],
                "arrayminus": [row["ratio"] - row["low"]],
            }
        shared = {"legendgroup": name, "name": for_plotly(name), "y": [for_plotly(name)]}
        figure.add_trace(
            go.Scatter(
                x=[row["ratio"]],
                error_x=spread,
                mode="markers",
                marker={"color": look.colour, "symbol": look.symbol, "size": 10},
                hovertemplate=with_interval(row["ratio"], row["low"], row["high"]),
                **shared,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[row["worst"]],
                mode="markers",
                marker={"color": look.colour, "symbol": "x-thin", "size": 9, "line_width": 2}
                | {"line_color": look.colour},
                showlegend=False,
                hovertemplate=f"worst seed ({row['worst_seed']}): {number(row['worst'])}",
                **shared,
            )
        )
    figure.add_vline(1, line={"color": "#767676", "width": 1})
    places = ticks(table)
    figure.update_xaxes(
        type="log",
        title=axis_title(f"total regret ÷ {baseline}'s (log scale)"),
        tickvals=places,
        ticktext=[f"{place:g}" for place in places],
        zeroline=False,
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, automargin=True)
    figure.update_layout(**plotly_layout(height=180 + 34 * len(table)), showlegend=False)
    return figure
