"""Total regret as a share of a baseline's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headstart.lab.figures.elements.axes import (
    error_bars,
    log_rows,
    log_ticks,
    plotly_log_axis,
    write_beside,
)
from headstart.lab.figures.elements.base import SINGLE, Figure, plotly_layout
from headstart.lab.figures.elements.intervals import describe_seeds, paired_ratios
from headstart.lab.figures.elements.styles import assign_styles
from headstart.lab.figures.elements.text import (
    escape_matplotlib,
    escape_plotly,
    format_interval,
    number,
)
from headstart.lab.figures.regret import whole_tasks

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["totals"]


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
    seeds, bands = describe_seeds(table)
    how = "paired 95 % intervals by the delta method" if bands else "one seed: no intervals"
    caption = (
        f"Total regret ÷ that of {baseline} on the same seeds: ratio of means over {seeds}, {how}; "
        "× is the worst seed."
    )
    rows = [
        {
            "policy": row["policy"],
            f"÷ {baseline}": format_interval(row["ratio"], row["low"], row["high"]),
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

    styles = assign_styles(table["policy"].to_list())
    drawing = Drawing(figsize=(SINGLE, 0.75 + 0.21 * len(table)), layout="constrained")
    axes = drawing.subplots()
    axes.axvline(1, color="0.5", linewidth=0.8)
    for place, row in enumerate(table.iter_rows(named=True)):
        style = styles[row["policy"]]
        axes.plot([row["ratio"], row["worst"]], [place] * 2, "-", color="0.8", linewidth=0.8)
        if row["low"] is not None:
            ends = [positive_low(row), row["high"]]
            axes.plot(ends, [place] * 2, "|-", color=style.colour, linewidth=1.2, markersize=8)
        axes.plot(row["worst"], place, "x", color=style.colour, markersize=4)
        axes.plot(row["ratio"], place, style.marker, color=style.colour, markersize=3.5)
        write_beside(axes, format_interval(row["ratio"], row["low"], row["high"]), place)
    title = f"total regret ÷ {escape_matplotlib(baseline)}'s (log scale)"
    log_rows(axes, table["policy"].to_list(), ticks(table), title)
    axes.set_ylim(len(table) - 0.5, -0.5)
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
    least = min(positive_low(row) for row in table.iter_rows(named=True))
    most: Any = table.select("worst", "high").max_horizontal().max()
    return log_ticks(least, float(most))


def positive_low(row: dict[str, Any]) -> float:
    """The lower end of an interval, kept positive for a logarithmic axis."""
    ratio = float(row["ratio"])
    return ratio if row["low"] is None else max(float(row["low"]), 0.1 * ratio)


def explore(table: pl.DataFrame, baseline: str) -> Any:
    """The interactive plot: one legend entry per policy."""
    import plotly.graph_objects as go

    figure = go.Figure()
    styles = assign_styles(table["policy"].to_list())
    for row in table.iter_rows(named=True):
        name, style = row["policy"], styles[row["policy"]]
        shared = {"legendgroup": name, "name": escape_plotly(name), "y": [escape_plotly(name)]}
        figure.add_trace(
            go.Scatter(
                x=[row["ratio"]],
                error_x=error_bars([row], "ratio"),
                mode="markers",
                marker={"color": style.colour, "symbol": style.symbol, "size": 10},
                hovertemplate=format_interval(row["ratio"], row["low"], row["high"]),
                **shared,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[row["worst"]],
                mode="markers",
                marker={"color": style.colour, "symbol": "x-thin", "size": 9, "line_width": 2}
                | {"line_color": style.colour},
                showlegend=False,
                hovertemplate=f"worst seed ({row['worst_seed']}): {number(row['worst'])}",
                **shared,
            )
        )
    figure.add_vline(1, line={"color": "#767676", "width": 1})
    title = f"total regret ÷ {baseline}'s (log scale)"
    figure.update_xaxes(**plotly_log_axis(title, ticks(table)))
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, automargin=True)
    figure.update_layout(**plotly_layout(height=180 + 34 * len(table)), showlegend=False)
    return figure
