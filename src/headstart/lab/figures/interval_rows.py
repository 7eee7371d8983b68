"""Numbers with intervals, a row for each; and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.lab.figures.axes import error_bars, label_rows, write_beside
from headstart.lab.figures.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.panels import GREY
from headstart.lab.figures.styles import Style
from headstart.lab.figures.text import escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["IntervalPoint", "bar_figure", "interval_figure"]


class IntervalPoint(NamedTuple):
    """A number with its interval: the row it stands in, and the series it belongs to."""

    row: str
    series: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format_interval(self.value, self.low, self.high)


def interval_figure(
    name: str,
    title: str,
    caption: str,
    points: Sequence[IntervalPoint],
    styles: Mapping[str, Style],
    axis: str,
    *,
    margin: float = 0.0,
) -> Figure:
    """Points with intervals, one or several a row.

    Parameters
    ----------
    name, title, caption
        As every figure's.
    points
        From top to bottom.
    styles
        The style of each series, in legend order; a single series has no legend.
    axis
        What the horizontal axis shows.
    margin
        For differences: half the width of a band around 0, inside which they do not matter.
    """
    import polars as pl

    table = pl.DataFrame([point._asdict() for point in points])
    columns = {"": table["row"], "by": table["series"], axis: [str(point) for point in points]}
    summary = pl.DataFrame(columns if len(styles) > 1 else {"": columns[""], axis: columns[axis]})
    rows = place_rows(points, 0.0 if len(styles) == 1 else 0.8)
    drawn = points, rows, dict(styles), axis, margin
    return Figure(
        name,
        title,
        caption,
        table,
        summary,
        lambda: draw_intervals(*drawn),
        lambda: explore_intervals(*drawn),
    )


def place_rows(points: Sequence[IntervalPoint], gap: float) -> dict[str, list[float]]:
    """The heights of the points of each row: close together, rows apart by a gap.

    >>> place_rows([IntervalPoint(row, "", 1, 0, 2) for row in "aab"], 0.5)
    {'a': [0.0, 1.0], 'b': [2.5]}
    """
    heights: dict[str, list[float]] = {}
    at = -gap
    for row in dict.fromkeys(point.row for point in points):
        at += gap
        many = sum(point.row == row for point in points)
        heights[row] = [at + place for place in range(many)]
        at += many
    return heights


def with_heights(
    points: Sequence[IntervalPoint], rows: dict[str, list[float]]
) -> list[tuple[IntervalPoint, float]]:
    """Every point with its height."""
    rest = {row: iter(heights) for row, heights in rows.items()}
    return [(point, next(rest[point.row])) for point in points]


def middles(rows: dict[str, list[float]]) -> list[float]:
    """Where the names of rows stand."""
    return [sum(heights) / len(heights) for heights in rows.values()]


def draw_intervals(
    points: Sequence[IntervalPoint],
    rows: dict[str, list[float]],
    styles: dict[str, Style],
    axis: str,
    margin: float,
) -> Drawing:
    """For print; the numbers of a single series stand at the right."""
    from matplotlib.figure import Figure as Drawing

    bottom, single = max(map(max, rows.values())) + 0.7, len(styles) == 1
    height = 0.75 + (0.24 if single else 0.15) * (bottom + 0.7)
    drawing = Drawing(figsize=(DOUBLE, height), layout="constrained")
    axes = drawing.subplots()
    if margin:
        axes.axvspan(-margin, margin, color="0.9", linewidth=0)
        axes.axvline(0, color="0.5", linewidth=0.8)
    handles: dict[str, Any] = {}
    for point, at in with_heights(points, rows):
        style = styles[point.series]
        axes.plot([point.low, point.high], [at] * 2, "|-", color=style.colour, markersize=6)
        (handles[point.series],) = axes.plot(
            [point.value], [at], style.marker, color=style.colour, markersize=4
        )
        if single:
            write_beside(axes, str(point), at)
    label_rows(axes, middles(rows), list(rows))
    axes.set_ylim(bottom, -0.7)
    axes.set_xlabel(axis)
    if not single:
        shown = [series for series in styles if series in handles]
        drawing.legend(
            [handles[series] for series in shown],
            shown,
            loc="outside lower center",
            ncols=min(6, len(shown)),
        )
    return drawing


def explore_intervals(
    points: Sequence[IntervalPoint],
    rows: dict[str, list[float]],
    styles: dict[str, Style],
    axis: str,
    margin: float,
) -> Any:
    """The same with numbers under the pointer."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    figure, bottom, single = go.Figure(), max(map(max, rows.values())) + 0.7, len(styles) == 1
    for series, style in styles.items():
        mine = [(point, at) for point, at in with_heights(points, rows) if point.series == series]
        figure.add_trace(
            go.Scatter(
                x=[point.value for point, _ in mine],
                y=[at for _, at in mine],
                error_x=error_bars([point._asdict() for point, _ in mine], "value"),
                mode="markers",
                name=escape_plotly(series),
                showlegend=not single,
                marker={"color": style.colour, "symbol": style.symbol, "size": 9},
                text=[f"{escape_plotly(point.row)}: {point}" for point, _ in mine],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    if margin:
        figure.add_vrect(-margin, margin, fillcolor=GREY, opacity=0.18, line_width=0)
        figure.add_vline(0, line={"color": GREY, "width": 1})
    figure.update_xaxes(title=axis_title(axis), zeroline=False)
    figure.update_yaxes(
        tickvals=middles(rows),
        ticktext=[escape_plotly(row) for row in rows],
        range=[bottom, -0.7],
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    height = int(150 + (38 if single else 20) * (bottom + 0.7))
    legend = {} if single else {"legend": {"y": -55.0 / (height - 110.0)}}
    layout = plotly_layout(height=height)
    figure.update_layout(**layout)
    figure.update_layout(**legend)
    return figure


def bar_figure(
    name: str,
    title: str,
    caption: str,
    bars: Mapping[str, int],
    axes: tuple[str, str],
    colour: str,
) -> Figure:
    """Bars for a distribution; ``axes`` names the horizontal and the vertical one."""
    import polars as pl

    table = pl.DataFrame({axes[0]: list(bars), axes[1]: list(bars.values())})
    texts = [number(count) if count else "" for count in bars.values()]

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(DOUBLE, 2.2), layout="constrained")
        place = drawing.subplots()
        drawn = place.bar(range(len(bars)), list(bars.values()), width=0.92, color=colour)
        place.bar_label(drawn, texts, padding=2, fontsize=7)
        crowded = len(bars) * max(map(len, bars), default=0) > 100
        written = [label.replace("–", "–\n") if crowded else label for label in bars]
        place.set_xticks(range(len(bars)), written)
        place.set_xlabel(axes[0])
        place.set_ylabel(axes[1])
        place.margins(x=0.01, y=0.12)
        return drawing

    def explore() -> Any:
        import plotly.graph_objects as go

        figure = go.Figure(
            go.Bar(
                x=list(bars),
                y=list(bars.values()),
                marker={"color": colour},
                text=texts,
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{x}: %{y:,}<extra></extra>",
            )
        )
        figure.update_xaxes(type="category", title=axis_title(axes[0]), showgrid=False)
        figure.update_yaxes(title=axis_title(axes[1]), zeroline=False, rangemode="tozero")
        figure.update_layout(**plotly_layout(height=320, bargap=0.08))
        return figure

    return Figure(name, title, caption, table, table, draw, explore)
