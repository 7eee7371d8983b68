"""Lines with bands, side by side in panels: how most figures are drawn, on paper and to explore."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.lab.figures.base import plotly_layout
from headstart.lab.figures.looks import Look, looks
from headstart.lab.figures.text import for_matplotlib, for_plotly, number, with_interval

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

__all__ = ["Mark", "Panel", "brief_table", "draw_panels", "explore_panels"]

GREY = "#767676"


class Mark(NamedTuple):
    """Something to point out: a point, or a level (``x`` is None), or a place (``y`` is None).

    ``mark_x`` and ``mark_y`` of a line say where its label stands.
    """

    label: str
    x: float | None = None
    y: float | None = None
    colour: str = GREY


@dataclasses.dataclass(frozen=True)
class Panel:
    """Lines over one pair of axes.

    Attributes
    ----------
    table
        Columns policy, ``x``, mean, low and high; low and high may be null.
    x
        The column along the horizontal axis.
    x_title, y_title
        What the axes show.
    log
        Whether the vertical axis is logarithmic.
    heading
        A few words above the axes.
    marks
        What to point out.
    known
        Looks that differ from the usual.
    """

    table: pl.DataFrame
    x: str
    x_title: str
    y_title: str
    log: bool = False
    heading: str = ""
    marks: tuple[Mark, ...] = ()
    known: dict[str, Look] = dataclasses.field(default_factory=dict)

    @property
    def looks(self) -> dict[str, Look]:
        """The look of each line, in legend order."""
        found = looks(self.table["policy"].to_list())
        return {name: self.known.get(name, look) for name, look in found.items()}

    @property
    def floor(self) -> float:
        """The lowest value that a logarithmic axis shows: below all means."""
        import polars as pl

        positive = self.table.filter(pl.col("mean") > 0)["mean"]
        least: Any = positive.min()
        return 0.6 * float(least) if len(positive) else 1e-6

    def lines(self, most: int | None = None) -> Iterator[tuple[str, Look, pl.DataFrame]]:
        """Each line's name, look and points: at most about ``most`` of them, evenly spread."""
        import polars as pl

        floor = self.floor
        for name, look in self.looks.items():
            points = self.table.filter(pl.col("policy") == name).sort(self.x)
            if self.log:  # an interval that reaches zero goes down to the axis
                points = points.with_columns(pl.col("mean", "low", "high").clip(floor))
            if most is not None:
                points = points[spread(len(points), most)]
            yield name, look, points


def spread(length: int, most: int) -> list[int]:
    """Up to ``most`` places spread evenly over ``length``, first and last included.

    >>> spread(5, 9), spread(101, 3)
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if length <= most:
        return list(range(length))
    return sorted({round(at * (length - 1) / (most - 1)) for at in range(most)})


def draw_panels(
    panels: Sequence[Panel], size: tuple[float, float], columns: int, same_y: bool = False
) -> Drawing:
    """Panels side by side with one legend below, for a paper."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size, layout="constrained")
    places = drawing.subplots(1, len(panels), squeeze=False, sharey=same_y)[0]
    handles: dict[str, Any] = {}
    for panel, axes in zip(panels, places, strict=True):
        for name, handle in draw_panel(panel, axes).items():
            handles.setdefault(name, handle)
    if same_y:
        for axes in places[1:]:
            axes.set_ylabel("")
    if len(handles) > 1:
        drawing.legend(
            list(handles.values()),
            [for_matplotlib(name) for name in handles],
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            columnspacing=1.2,
        )
    return drawing


def draw_panel(panel: Panel, axes: Axes) -> dict[str, Any]:
    """One panel; gives the legend's handles."""
    handles = {}
    if panel.log:
        axes.set_yscale("log")
    total = len(panel.looks)
    for place, (name, look, points) in enumerate(panel.lines()):
        x, mean = points[panel.x].to_numpy(), points["mean"].to_numpy()
        known = points.drop_nulls(["low", "high"])
        axes.fill_between(
            known[panel.x].to_numpy(),
            known["low"].to_numpy(),
            known["high"].to_numpy(),
            color=look.colour,
            alpha=0.2,
            linewidth=0,
        )
        # A handful of markers a line, at other places than its neighbours'.
        step = max(1, len(x) // 6)
        (handles[name],) = axes.plot(
            x,
            mean,
            look.line,
            color=look.colour,
            marker=look.marker,
            markevery=(place * step // max(1, total), step),
            markeredgewidth=0,
        )
    for mark in panel.marks:
        draw_mark(mark, axes)
    if panel.log:
        axes.set_ylim(bottom=panel.floor)
    axes.margins(x=0.02)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    if panel.heading:
        axes.set_title(panel.heading)
    return handles


def draw_mark(mark: Mark, axes: Axes) -> None:
    """A point with its label, or a thin line with its label at the end."""
    label = for_matplotlib(mark.label)
    if mark.x is None and mark.y is not None:
        axes.axhline(mark.y, color=mark.colour, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.annotate(
            label,
            (1, mark.y),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color="0.25",
        )
    elif mark.y is None and mark.x is not None:
        axes.axvline(mark.x, color=mark.colour, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.annotate(
            label,
            (mark.x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -1),
            textcoords="offset points",
            va="top",
            fontsize=7,
            color="0.25",
        )
    elif mark.x is not None and mark.y is not None:
        axes.plot(
            [mark.x],
            [mark.y],
            "o",
            color=mark.colour,
            markersize=7,
            fillstyle="none",
            markeredgewidth=1.2,
            zorder=5,
        )
        axes.annotate(
            label,
            (mark.x, mark.y),
            xytext=(0, -7),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
            color="0.15",
        )


def explore_panels(panels: Sequence[Panel], same_y: bool = False, most: int = 100) -> Any:
    """The same panels to explore. At most ``most`` points a line, which keeps reports small."""
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]

    figure = make_subplots(
        rows=1,
        cols=len(panels),
        shared_yaxes=same_y,
        horizontal_spacing=0.06 if same_y else 0.12,
        subplot_titles=[for_plotly(panel.heading) for panel in panels],
    )
    listed: set[str] = set()
    for column, panel in enumerate(panels, 1):
        for name, look, points in panel.lines(most):
            where = {"row": 1, "col": column}
            figure.add_traces([band(panel, name, look, points)], rows=1, cols=column)
            figure.add_trace(line(panel, name, look, points, name not in listed), **where)
            listed.add(name)
        for mark in panel.marks:
            explore_mark(figure, mark, column)
        vertical: dict[str, Any] = {"title": for_plotly(panel.y_title), "zeroline": False}
        if panel.log:
            vertical |= {"type": "log", "exponentformat": "power", "dtick": 1}
        if same_y and column > 1:
            vertical.pop("title")
        figure.update_yaxes(row=1, col=column, **vertical)
        figure.update_xaxes(
            row=1, col=column, title=for_plotly(panel.x_title), zeroline=False, showgrid=False
        )
    figure.update_layout(**plotly_layout(hovermode="x unified"))
    return figure


def line(panel: Panel, name: str, look: Look, points: pl.DataFrame, listed: bool) -> Any:
    """A line with its values under the pointer."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    shown = [
        with_interval(mean, low, high)
        for mean, low, high in points.select("mean", "low", "high").iter_rows()
    ]
    return go.Scatter(
        x=points[panel.x].to_numpy(),
        y=points["mean"].to_numpy(),
        name=for_plotly(name),
        legendgroup=name,
        showlegend=listed,
        mode="lines",
        line={"color": look.colour, "dash": look.dash, "width": 2},
        text=shown,
        hovertemplate="%{text}",
    )


def band(panel: Panel, name: str, look: Look, points: pl.DataFrame) -> Any:
    """A line's interval: hidden with its line."""
    import numpy as np
    import plotly.graph_objects as go

    known = points.drop_nulls(["low", "high"])
    x = known[panel.x].to_numpy()
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([known["high"].to_numpy(), known["low"].to_numpy()[::-1]]),
        name=for_plotly(name),
        legendgroup=name,
        showlegend=False,
        mode="none",
        fill="toself",
        fillcolor=see_through(look.colour),
        hoverinfo="skip",
    )


def see_through(colour: str, share: float = 0.2) -> str:
    """A colour that lets what is behind it show.

    >>> see_through("#0072B2")
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def explore_mark(figure: Any, mark: Mark, column: int) -> None:
    """A point or a thin line with its label."""
    where = {"row": 1, "col": column}
    style = {"line": {"color": mark.colour, "width": 1, "dash": "dot"}}
    words = {"annotation_text": for_plotly(mark.label), "annotation_font_size": 11}
    if mark.x is None:
        place = "top right"
        figure.add_hline(mark.y, **style, **words, annotation_position=place, **where)
    elif mark.y is None:
        place = "top right"
        figure.add_vline(mark.x, **style, **words, annotation_position=place, **where)
    else:
        figure.add_scatter(
            x=[mark.x],
            y=[mark.y],
            mode="markers+text",
            marker={"symbol": "circle-open", "size": 13, "color": mark.colour, "line_width": 2},
            text=[for_plotly(mark.label)],
            textposition="bottom center",
            showlegend=False,
            hoverinfo="skip",
            **where,
        )


def brief_table(panel: Panel, most: int = 6) -> pl.DataFrame:
    """One row per line, a few places along the axis as columns, intervals written out."""
    import polars as pl

    places = panel.table[panel.x].unique().sort().to_list()
    shown = [places[at] for at in spread(len(places), most)]
    rows = []
    for name in panel.looks:
        points = {
            point[panel.x]: with_interval(point["mean"], point["low"], point["high"])
            for point in panel.table.filter(pl.col("policy") == name).iter_rows(named=True)
        }
        cells = {f"{panel.x} {number(place)}": points.get(place, "–") for place in shown}
        rows.append({"policy": name, **cells})
    return pl.DataFrame(rows)
