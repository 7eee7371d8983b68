"""Numbers with intervals, a row for each; and bars."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from headstart.lab.figures.elements import base
from headstart.lab.figures.elements.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.elements.panels import GREY
from headstart.lab.figures.elements.styles import Style
from headstart.lab.text import escape_matplotlib, escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


class IntervalPoint(NamedTuple):
    """A number with its interval: the row it stands in, and the series it belongs to.

    ``note`` is written beside it, and ``hover`` under the pointer, in place of the number itself.
    ``others`` are more numbers of the same kind, with what is written under the pointer.
    """

    row: str
    series: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    hover: str = ""
    others: Sequence[tuple[str, float]] = ()

    def __str__(self) -> str:
        return self.note or format_interval(self.value, self.low, self.high)

    @property
    def numbers(self) -> list[float]:
        """All numbers of the row that are known."""
        values = (self.value, self.low, self.high, *(other for _, other in self.others))
        return [number for number in values if number is not None]


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


@dataclasses.dataclass(frozen=True)
class IntervalRows:
    """Points with intervals, one or several a row, in panels side by side.

    Attributes
    ----------
    panels
        From left to right, with the same rows from top to bottom.
    styles
        The style of each series, in legend order.
    axis
        What the horizontal axis shows.
    size
        The distance of two points of a row, in inches.
    width
        The width of the drawing, in inches.
    log
        Whether the horizontal axis is logarithmic.
    legend
        What points and what other numbers are; without it, those are thin lines.
    note_title
        What stands above the notes.
    """

    panels: Sequence[IntervalPanel]
    styles: Mapping[str, Style]
    axis: str
    size: float = 0.24
    width: float = DOUBLE
    log: bool = False
    legend: tuple[str, str] | None = None
    note_title: str = ""

    @property
    def single(self) -> bool:
        """Whether every row has one point, whose number stands beside it."""
        points = self.panels[0].points
        return len(self.styles) == 1 or all(point.row == point.series for point in points)

    @property
    def heights(self) -> dict[str, list[float]]:
        """The heights of the points of each row."""
        return place_rows(self.panels[0].points, 0.0 if self.single else 0.8)

    @property
    def label_heights(self) -> list[float]:
        """The heights of the names of rows."""
        return [sum(each) / len(each) for each in self.heights.values()]

    @property
    def bottom(self) -> float:
        """The lower end of the vertical axis."""
        return max(map(max, self.heights.values())) + 0.7

    def points_with_heights(self, panel: IntervalPanel) -> Iterator[tuple[IntervalPoint, float]]:
        """Every point with its height; on a log axis intervals end at a tenth of their number."""
        rest = {row: iter(heights) for row, heights in self.heights.items()}
        for point in panel.points:
            if self.log and point.low is not None:
                point = point._replace(low=max(point.low, 0.1 * point.value), note=str(point))
            yield point, next(rest[point.row])

    def ticks(self, panel: IntervalPanel) -> list[float]:
        """Round numbers for a logarithmic axis."""
        ends = [number for point, _ in self.points_with_heights(panel) for number in point.numbers]
        return base.log_ticks(min(ends), max(ends))

    def draw(self) -> Drawing:
        """For print; the numbers of single points stand at the right."""
        from matplotlib.figure import Figure as Drawing
        from matplotlib.lines import Line2D

        size = self.width, 0.75 + self.size * (self.bottom + 0.7)
        drawing = Drawing(figsize=size, layout="constrained")
        handles: dict[str, Any] = {}
        places = drawing.subplots(1, len(self.panels), squeeze=False, sharey=True)[0]
        for axes, panel in zip(places, self.panels, strict=True):
            if panel.centre is not None:
                low, high = panel.centre - panel.margin, panel.centre + panel.margin
                axes.axvspan(low, high, color="0.9", linewidth=0)
                axes.axvline(panel.centre, color="0.5", linewidth=0.8)
            for point, at in self.points_with_heights(panel):
                colour, marker = self.styles[point.series].colour, self.styles[point.series].marker
                others = [other for _, other in point.others]
                if self.legend is None:
                    axes.vlines(others, at - 0.3, at + 0.3, color=colour, linewidth=1.0, alpha=0.75)
                for other in others if self.legend else ():
                    axes.plot([point.value, other], [at] * 2, color="0.8", linewidth=0.8)
                    axes.plot(other, at, "x", color=colour, markersize=4)
                if point.low is not None:
                    axes.plot([point.low, point.high], [at] * 2, "|-", color=colour, markersize=6)
                (handles[point.series],) = axes.plot(
                    [point.value], [at], marker, color=colour, markersize=4, clip_on=not self.log
                )
                if self.single:
                    base.write_beside(axes, escape_matplotlib(str(point)), at)
            base.label_rows(axes, self.label_heights, list(self.heights))
            if self.log:
                ticks = self.ticks(panel)
                axes.set_xscale("log")
                axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                axes.set_xticks([], minor=True)
            axes.set_xlim(panel.limits)
            axes.set_title(panel.heading)
            axes.set_title(self.note_title, loc="right", x=1.01, ha="left", fontsize=7.5)
            axes.set_xlabel(escape_matplotlib(self.axis))
            if len(self.panels) > 1:
                axes.locator_params(axis="x", nbins=4)
        places[0].set_ylim(self.bottom, -0.7)
        handles = {series: handles[series] for series in self.styles if series in handles}
        if self.legend is not None:
            marker_styles = ({"marker": "o", "markersize": 4}, {"marker": "x", "linewidth": 0})
            handles = {
                name: Line2D([], [], color="0.35", **style)  # type: ignore[arg-type]
                for name, style in zip(self.legend, marker_styles, strict=True)
            }
        if self.legend or not self.single:
            columns = min(6, len(handles))
            entries = list(handles.values()), list(handles)
            drawing.legend(*entries, loc="outside lower center", ncols=columns)
        return drawing

    def explore(self) -> Any:
        """The same with numbers under the pointer."""
        from plotly.subplots import make_subplots

        titles = [escape_plotly(panel.heading) for panel in self.panels]
        figure = make_subplots(
            cols=len(self.panels), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles
        )
        for column, panel in enumerate(self.panels, 1):
            where = {"row": 1, "col": column}
            for series, style in self.styles.items():
                own = [each for each in self.points_with_heights(panel) if each[0].series == series]
                shared: dict[str, Any] = {
                    "name": escape_plotly(series),
                    "legendgroup": series,
                    "mode": "markers",
                }
                shared |= {"hovertemplate": "%{text}<extra></extra>", **where}
                figure.add_scatter(
                    x=[point.value for point, _ in own],
                    y=[at for _, at in own],
                    error_x=base.error_bars([point._asdict() for point, _ in own], "value"),
                    showlegend=not self.single and column == 1,
                    marker={"color": style.colour, "symbol": style.symbol, "size": 9},
                    text=[
                        point.hover or escape_plotly(f"{point.row}: {point}") for point, _ in own
                    ],
                    **shared,
                )
                others = [(*other, at) for point, at in own for other in point.others]
                if others:
                    symbol = "line-ns" if self.legend is None else "x-thin"
                    line = {"color": style.colour, "width": 2}
                    figure.add_scatter(
                        x=[value for _, value, _ in others],
                        y=[at for *_, at in others],
                        showlegend=False,
                        marker={"symbol": symbol, "size": 9 if self.legend else 14, "line": line},
                        text=[text for text, *_ in others],
                        **shared,
                    )
            if panel.centre is not None:
                ends = panel.centre - panel.margin, panel.centre + panel.margin
                figure.add_vrect(*ends, fillcolor=GREY, opacity=0.18, line_width=0, **where)
                figure.add_vline(panel.centre, line={"color": GREY, "width": 1}, **where)
            axis: dict[str, Any] = {"title": axis_title(self.axis), "zeroline": False}
            if self.log:
                axis = base.plotly_log_axis(self.axis, self.ticks(panel))
            figure.update_xaxes(range=panel.limits, **axis, **where)
        figure.update_yaxes(range=[self.bottom, -0.7], showgrid=False, zeroline=False)
        labels = [escape_plotly(row) for row in self.heights]
        figure.update_yaxes(tickvals=self.label_heights, ticktext=labels, automargin=True, col=1)
        height = int(150 + (158 if self.single else 133) * self.size * (self.bottom + 0.7))
        figure.update_layout(**plotly_layout(bool(self.panels[0].heading), height=height))
        if not self.single:
            figure.update_layout(legend={"y": -55.0 / (height - 110.0)})
        return figure


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
    table = pl.DataFrame([point._asdict() for point in points])
    table = table.select("row", "series", "value", "low", "high")
    columns = {"": table["row"], "by": table["series"], axis: [str(point) for point in points]}
    summary = pl.DataFrame(columns if len(styles) > 1 else {"": columns[""], axis: columns[axis]})
    panel = IntervalPanel(points, centre=0.0 if margin else None, margin=margin)
    rows = IntervalRows([panel], styles, axis, 0.24 if len(styles) == 1 else 0.15)
    return Figure(name, title, caption, table, summary, rows.draw, rows.explore)


def bar_figure(
    name: str, title: str, caption: str, bars: Mapping[str, int], axes: tuple[str, str], colour: str
) -> Figure:
    """Bars for a distribution; ``axes`` names the horizontal and the vertical one."""
    table = pl.DataFrame({axes[0]: list(bars), axes[1]: list(bars.values())})
    texts = [number(count) if count else "" for count in bars.values()]

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(DOUBLE, 2.2), layout="constrained")
        place = drawing.subplots()
        rectangles = place.bar(range(len(bars)), list(bars.values()), width=0.92, color=colour)
        place.bar_label(rectangles, texts, padding=2, fontsize=7)
        crowded = len(bars) * max(map(len, bars), default=0) > 100
        labels = [label.replace("–", "–\n") if crowded else label for label in bars]
        place.set_xticks(range(len(bars)), labels)
        place.set_xlabel(axes[0])
        place.set_ylabel(axes[1])
        place.margins(x=0.01, y=0.12)
        return drawing

    def explore() -> Any:
        import plotly.graph_objects as go

        figure = go.Figure()
        figure.add_bar(
            x=list(bars),
            y=list(bars.values()),
            marker={"color": colour},
            text=texts,
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: %{y:,}<extra></extra>",
        )
        figure.update_xaxes(type="category", title=axis_title(axes[0]), showgrid=False)
        figure.update_yaxes(title=axis_title(axes[1]), zeroline=False, rangemode="tozero")
        figure.update_layout(**plotly_layout(height=320, bargap=0.08))
        return figure

    return Figure(name, title, caption, table, table, draw, explore)
