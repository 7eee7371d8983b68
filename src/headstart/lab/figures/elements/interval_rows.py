"""Numbers with intervals, a row for each; and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.lab.figures.elements.axes import error_bars, label_rows, write_beside
from headstart.lab.figures.elements.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.elements.panels import GREY
from headstart.lab.figures.elements.styles import Style
from headstart.lab.figures.elements.text import escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = [
    "IntervalPanel",
    "IntervalPoint",
    "bar_figure",
    "draw_intervals",
    "explore_intervals",
    "interval_figure",
]


class IntervalPoint(NamedTuple):
    """A number with its interval: the row it stands in, and the series it belongs to."""

    row: str
    series: str
    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        return format_interval(self.value, self.low, self.high)


class IntervalPanel(NamedTuple):
    """Points over one horizontal axis, and what they are compared with.

    ``centre`` is marked by a line, with a band of ``margin`` on both sides. ``limits`` are the ends
    of the axis, if they are not left to the points.
    """

    points: Sequence[IntervalPoint]
    heading: str = ""
    centre: float | None = None
    margin: float = 0.0
    limits: tuple[float, float] | None = None


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
    panels = [IntervalPanel(points, centre=0.0 if margin else None, margin=margin)]
    return Figure(
        name,
        title,
        caption,
        table,
        summary,
        lambda: draw_intervals(panels, styles, axis),
        lambda: explore_intervals(panels, styles, axis),
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


class Rows:
    """The heights of the points of each row, and of the names of rows."""

    def __init__(self, points: Sequence[IntervalPoint], single: bool) -> None:
        self.heights = place_rows(points, 0.0 if single else 0.8)
        self.middles = [sum(each) / len(each) for each in self.heights.values()]
        self.bottom = max(map(max, self.heights.values())) + 0.7

    def of(self, points: Sequence[IntervalPoint]) -> list[tuple[IntervalPoint, float]]:
        """Every point with its height."""
        rest = {row: iter(heights) for row, heights in self.heights.items()}
        return [(point, next(rest[point.row])) for point in points]


def draw_intervals(
    panels: Sequence[IntervalPanel], styles: Mapping[str, Style], axis: str, size: float = 0.15
) -> Drawing:
    """For print: panels side by side; the numbers of a single series stand at the right.

    ``size`` is the distance of two points of a row in inches.
    """
    from matplotlib.figure import Figure as Drawing

    single = len(styles) == 1
    rows = Rows(panels[0].points, single)
    height = 0.75 + (0.24 if single else size) * (rows.bottom + 0.7)
    drawing = Drawing(figsize=(DOUBLE, height), layout="constrained")
    handles: dict[str, Any] = {}
    places = drawing.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, panel in zip(places, panels, strict=True):
        if panel.centre is not None:
            low, high = panel.centre - panel.margin, panel.centre + panel.margin
            axes.axvspan(low, high, color="0.9", linewidth=0)
            axes.axvline(panel.centre, color="0.5", linewidth=0.8)
        for point, at in rows.of(panel.points):
            style = styles[point.series]
            if point.low is not None:
                axes.plot([point.low, point.high], [at] * 2, "|-", color=style.colour, markersize=6)
            (handles[point.series],) = axes.plot(
                [point.value], [at], style.marker, color=style.colour, markersize=4
            )
            if single:
                write_beside(axes, str(point), at)
        label_rows(axes, rows.middles, list(rows.heights))
        axes.set_xlim(panel.limits)
        axes.set_title(panel.heading)
        axes.set_xlabel(axis)
        if len(panels) > 1:
            axes.locator_params(axis="x", nbins=4)
    places[0].set_ylim(rows.bottom, -0.7)
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
    panels: Sequence[IntervalPanel], styles: Mapping[str, Style], axis: str, size: int = 20
) -> Any:
    """The same with numbers under the pointer; ``size`` is in pixels."""
    from plotly.subplots import make_subplots

    single = len(styles) == 1
    rows = Rows(panels[0].points, single)
    titles = [escape_plotly(panel.heading) for panel in panels] if panels[0].heading else None
    figure = make_subplots(
        cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles
    )
    for column, panel in enumerate(panels, 1):
        where = {"row": 1, "col": column}
        for series, style in styles.items():
            mine = [each for each in rows.of(panel.points) if each[0].series == series]
            figure.add_scatter(
                x=[point.value for point, _ in mine],
                y=[at for _, at in mine],
                error_x=error_bars([point._asdict() for point, _ in mine], "value"),
                mode="markers",
                name=escape_plotly(series),
                legendgroup=series,
                showlegend=not single and column == 1,
                marker={"color": style.colour, "symbol": style.symbol, "size": 9},
                text=[f"{escape_plotly(point.row)}: {point}" for point, _ in mine],
                hovertemplate="%{text}<extra></extra>",
                **where,
            )
        if panel.centre is not None:
            ends = panel.centre - panel.margin, panel.centre + panel.margin
            figure.add_vrect(*ends, fillcolor=GREY, opacity=0.18, line_width=0, **where)
            figure.add_vline(panel.centre, line={"color": GREY, "width": 1}, **where)
        figure.update_xaxes(title=axis_title(axis), zeroline=False, range=panel.limits, **where)
    figure.update_yaxes(range=[rows.bottom, -0.7], showgrid=False, zeroline=False)
    labels = [escape_plotly(row) for row in rows.heights]
    figure.update_yaxes(tickvals=rows.middles, ticktext=labels, automargin=True, col=1)
    height = int(150 + (38 if single else size) * (rows.bottom + 0.7))
    figure.update_layout(**plotly_layout(height=height))
    if not single:
        figure.update_layout(legend={"y": -55.0 / (height - 110.0)})
    if titles:
        figure.update_layout(margin={"t": 62})  # headings stand below the buttons
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
