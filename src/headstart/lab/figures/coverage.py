"""The coverage of intervals, beside what they promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headstart.lab.figures.axes import error_bars, label_rows
from headstart.lab.figures.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.interval_rows import IntervalPoint, middles, place_rows, with_heights
from headstart.lab.figures.intervals import check_table, describe_seeds, mean_over_seeds
from headstart.lab.figures.panels import GREY
from headstart.lab.figures.styles import Style
from headstart.lab.figures.text import escape_plotly

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["coverage"]

#: Okabe and Ito's colours, in the order of the stages.
STYLES = (
    Style("#D55E00", marker="^"),
    Style("#E69F00", marker="o"),
    Style("#56B4E9", marker="s"),
    Style("#0072B2", marker="D"),
)
GAP = 1.0  # between the rows of two worlds
AXIS = "actual coverage"
Panels = dict[float, list[IntervalPoint]]


def coverage(shares: pl.DataFrame, what: str, name: str = "coverage") -> Figure:
    """Actual coverage by world and number of rewards, a panel for each nominal level.

    Parameters
    ----------
    shares
        Columns world, stage, level, seed and share: which share of the intervals of this nominal
        level contain their target. There are at most four stages.
    what
        What the intervals are of, in a few words.
    name
        The stem of its files.
    """
    import polars as pl

    key = ("world", "stage", "level", "seed")
    check_table(shares, "shares", (*key, "share"), key)
    table = mean_over_seeds(shares, key[:-1], "share")
    table = table.with_columns(pl.col("low", "high").clip(0.0, 1.0))
    worlds, stages = (list(shares[column].unique(maintain_order=True)) for column in key[:2])
    levels = sorted(table["level"].unique())
    styles = dict(zip(stages, STYLES, strict=False))
    cells = {row[:3]: row[3:6] for row in table.iter_rows()}
    panels: Panels = {
        level: [
            IntervalPoint(world, stage, *cells[world, stage, level])
            for world in worlds
            for stage in stages
            if (world, stage, level) in cells
        ]
        for level in levels
    }
    summary = pl.DataFrame(
        [
            {"world": first.row, "rewards so far": first.series}
            | {
                f"nominal {level:.0%}": str(point)
                for level, point in zip(levels, same, strict=True)
            }
            for same in zip(*panels.values(), strict=True)
            for first in same[:1]
        ]
    )
    seeds, bars = describe_seeds(table)
    shown = "with 95 % intervals over seeds" if bars else "no intervals"
    return Figure(
        name,
        f"Coverage of intervals of {what}",
        f"Share of intervals of {what} that contain it: mean over {seeds}, {shown}. A line marks "
        "the nominal coverage: points to its left say that intervals are too narrow.",
        table,
        summary,
        lambda: draw(panels, styles),
        lambda: explore(panels, styles),
    )


def left_end(points: list[IntervalPoint], level: float) -> float:
    """Where the axis of a panel begins: left of all points, and of the line."""
    lowest = min(point.low if point.low is not None else point.value for point in points)
    return max(0.0, min(lowest, level) - 0.03)


def right_end(points: list[IntervalPoint], level: float) -> float:
    """Where the axis of a panel ends: right of all points, and of the line."""
    highest = max(point.high if point.high is not None else point.value for point in points)
    return min(1.0, max(highest, level) + 0.03)


def draw(panels: Panels, styles: dict[str, Style]) -> Drawing:
    """For print: panels side by side, with the same rows."""
    from matplotlib.figure import Figure as Drawing

    rows = place_rows(next(iter(panels.values())), GAP)
    bottom = max(map(max, rows.values())) + 1.0
    drawing = Drawing(figsize=(DOUBLE, 1.0 + 0.095 * bottom), layout="constrained")
    places = drawing.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    handles: dict[str, Any] = {}
    for axes, (level, points) in zip(places, panels.items(), strict=True):
        axes.axvline(level, color="0.35", linewidth=0.9)
        for point, at in with_heights(points, rows):
            style = styles[point.series]
            if point.low is not None:
                axes.plot([point.low, point.high], [at] * 2, "-", color=style.colour, linewidth=1)
            (handles[point.series],) = axes.plot(
                [point.value], [at], style.marker, color=style.colour, markersize=3
            )
        label_rows(axes, middles(rows), list(rows))
        axes.set_xlim(left_end(points, level), right_end(points, level))
        axes.locator_params(axis="x", nbins=4)
        axes.set_title(f"nominal {level:.0%}")
        axes.set_xlabel(AXIS)
    places[0].set_ylim(bottom, -1.0)
    shown = [series for series in styles if series in handles]
    drawing.legend(
        [handles[series] for series in shown], shown, loc="outside lower center", ncols=len(shown)
    )
    return drawing


def explore(panels: Panels, styles: dict[str, Style]) -> Any:
    """The interactive plot."""
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]

    rows = place_rows(next(iter(panels.values())), GAP)
    bottom = max(map(max, rows.values())) + 1.0
    titles = [f"nominal {level:.0%}" for level in panels]
    figure = make_subplots(
        cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles
    )
    for column, (level, points) in enumerate(panels.items(), 1):
        for series, style in styles.items():
            mine = [
                (point, at) for point, at in with_heights(points, rows) if point.series == series
            ]
            figure.add_scatter(
                x=[point.value for point, _ in mine],
                y=[at for _, at in mine],
                error_x=error_bars([point._asdict() for point, _ in mine], "value"),
                mode="markers",
                name=escape_plotly(series),
                legendgroup=series,
                showlegend=column == 1,
                marker={"color": style.colour, "symbol": style.symbol, "size": 7},
                text=[f"{escape_plotly(point.row)}, {series}: {point}" for point, _ in mine],
                hovertemplate="%{text}<extra></extra>",
                row=1,
                col=column,
            )
        figure.add_vline(level, line={"color": GREY, "width": 1}, row=1, col=column)
        ends = [left_end(points, level), right_end(points, level)]
        figure.update_xaxes(title=axis_title(AXIS), range=ends, zeroline=False, row=1, col=column)
    figure.update_yaxes(range=[bottom, -1.0], showgrid=False, zeroline=False)
    figure.update_yaxes(
        tickvals=middles(rows),
        ticktext=[escape_plotly(row) for row in rows],
        automargin=True,
        col=1,
    )
    height = int(180 + 13 * bottom)
    figure.update_layout(**plotly_layout(height=height))
    figure.update_layout(legend={"y": -60.0 / (height - 110.0)}, margin={"t": 62})
    return figure
