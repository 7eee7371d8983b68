"""Panels: lines with confidence bands over one pair of axes, in Matplotlib and in Plotly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from headstart.lab.figures.elements.base import Figure, axis_title, plotly_layout
from headstart.lab.figures.elements.styles import Style, assign_styles
from headstart.lab.text import escape_matplotlib, escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

GREY = "#767676"


class Note(NamedTuple):
    """An annotation: a point, a horizontal line (no ``x``) or a vertical one (no ``y``)."""

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
    zero
        Whether both axes start at 0.
    heading
        A few words above the axes.
    notes
        What to point out.
    style_overrides
        Styles that differ from the usual ones; legends list these lines first.
    """

    table: pl.DataFrame
    x: str
    x_title: str
    y_title: str
    log: bool = False
    zero: bool = False
    heading: str = ""
    notes: tuple[Note, ...] = ()
    style_overrides: dict[str, Style] = dataclasses.field(default_factory=dict)

    @property
    def styles(self) -> dict[str, Style]:
        """The style of each line, in legend order."""
        usual = assign_styles(self.table["policy"].to_list())
        overrides = self.style_overrides
        listed = overrides | usual | overrides  # in the order of the first, with the last's values
        return {name: style for name, style in listed.items() if name in usual}

    @property
    def floor(self) -> float:
        """The lowest value that a logarithmic axis shows: below all means and levels."""
        levels = [*self.table["mean"].drop_nulls(), *(note.y for note in self.notes)]
        return 0.6 * min((level for level in levels if level is not None and level > 0), default=1)

    def lines(
        self, floor: float, most: int | None = None
    ) -> Iterator[tuple[str, Style, pl.DataFrame]]:
        """Each line's name, style and points: at most ``most`` of them, evenly spread."""
        for name, style in self.styles.items():
            points = self.table.filter(pl.col("policy") == name).sort(self.x)
            if self.log:  # an interval that reaches zero goes down to the axis
                points = points.with_columns(pl.col("mean", "low", "high").clip(floor))
            if most is not None:
                points = points[evenly_spaced(len(points), most)]
            yield name, style, points


def evenly_spaced(length: int, most: int) -> list[int]:
    """Up to ``most`` places spread evenly over ``length``, first and last included.

    >>> evenly_spaced(5, 9), evenly_spaced(101, 3)
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if length <= most:
        return list(range(length))
    return sorted({round(at * (length - 1) / (most - 1)) for at in range(most)})


def summary_table(panel: Panel, most: int = 5) -> pl.DataFrame:
    """One row per line, a few places along the axis as columns, intervals written out."""
    places = panel.table[panel.x].unique().sort().to_list()
    columns = [places[at] for at in evenly_spaced(len(places), most)]
    rows = []
    for name in panel.styles:
        points = {
            point[panel.x]: format_interval(point["mean"], point["low"], point["high"])
            for point in panel.table.filter(pl.col("policy") == name).iter_rows(named=True)
        }
        cells = {
            f"{panel.x} {number(int(place) if place == int(place) else place)}": points.get(
                place, "–"
            )
            for place in columns
        }
        rows.append({"policy": name, **cells})
    return pl.DataFrame(rows)


def panel_figure(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[Panel],
    size: tuple[float, float],
    columns: int = 3,
    *,
    same_y: bool = False,
    table: pl.DataFrame | None = None,
    summary: pl.DataFrame | None = None,
) -> Figure:
    """A figure of panels side by side.

    Parameters
    ----------
    name, title, caption
        As every figure's.
    panels
        From left to right.
    size
        Width and height of the drawing, in inches.
    columns
        The columns of its legend.
    same_y
        Whether the panels share their vertical axis.
    table, summary
        As every figure's; those of the first panel unless given.
    """
    return Figure(
        name,
        title,
        caption,
        panels[0].table if table is None else table,
        summary_table(panels[0]) if summary is None else summary,
        lambda: draw_panels(panels, size, columns, same_y),
        lambda: explore_panels(panels, same_y),
    )


def draw_panels(
    panels: Sequence[Panel], size: tuple[float, float], columns: int, same_y: bool
) -> Drawing:
    """Panels side by side with one legend below, for a paper."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size, layout="constrained")
    places = drawing.subplots(1, len(panels), squeeze=False, sharey=same_y)[0]
    handles: dict[str, Any] = {}
    floor = min(panel.floor for panel in panels)
    for panel, axes in zip(panels, places, strict=True):
        for name, handle in draw_panel(panel, axes, floor).items():
            handles.setdefault(name, handle)
    if same_y:
        for axes in places[1:]:
            axes.set_ylabel("")
    add_legend(drawing, handles, min(columns, len(handles)))
    return drawing


def add_legend(drawing: Drawing, handles: dict[str, Any], columns: int) -> None:
    """A legend below the panels, in ``columns`` columns or as many as fit the width."""
    names = [escape_matplotlib(name) for name in handles]
    for ncols, spacing in [(columns, 1.2), *((fewer, 0.7) for fewer in range(columns, 0, -1))]:
        legend = drawing.legend(
            list(handles.values()),
            names,
            loc="outside lower center",
            ncols=ncols,
            columnspacing=spacing,
            handletextpad=min(0.8, spacing),
            handlelength=2.6 if spacing > 1 else 2.3,
            borderpad=0.2,
        )
        if ncols == 1 or legend.get_window_extent().width <= drawing.bbox.width:
            return
        legend.remove()


def draw_panel(panel: Panel, axes: Axes, floor: float) -> dict[str, Any]:
    """One panel; gives the legend's handles."""
    handles = {}
    if panel.log:
        axes.set_yscale("log")
    total = len(panel.styles)
    for place, (name, style, points) in enumerate(panel.lines(floor)):
        x, mean = points[panel.x].to_numpy(), points["mean"].to_numpy()
        band = points.drop_nulls(["low", "high"])
        axes.fill_between(
            band[panel.x].to_numpy(),
            band["low"].to_numpy(),
            band["high"].to_numpy(),
            color=style.colour,
            alpha=0.2,
            linewidth=0,
        )
        # A handful of markers a line, at other places than its neighbours'.
        step = max(1, len(x) // 6)
        (handles[name],) = axes.plot(
            x,
            mean,
            style.line,
            color=style.colour,
            marker=style.marker,
            markevery=(place * step // max(1, total), step),
            markeredgewidth=0,
        )
    for note in panel.notes:
        draw_note(note, axes)
    axes.margins(x=0.02)
    if panel.log:
        axes.set_ylim(bottom=floor)
    if panel.zero:
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    if panel.heading:
        axes.set_title(panel.heading)
    return handles


def draw_note(note: Note, axes: Axes, height: float = 0.9, left: bool = False) -> None:
    """A point with its label, or a thin line with its label at the end.

    The label of a vertical line is at this height, on its right or ``left``.
    """
    label = escape_matplotlib(note.label)
    line: dict[str, Any] = {"color": note.colour, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}
    small: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "0.25"}
    if note.x is None and note.y is not None:
        axes.axhline(note.y, **line)
        where: Any = ("axes fraction", "data")
        axes.annotate(label, (1, note.y), xycoords=where, xytext=(0, 2), ha="right", **small)
    elif note.y is None and note.x is not None:
        axes.axvline(note.x, **line)
        where = ("data", "axes fraction")
        small |= {"ha": "right", "xytext": (-3, -1)} if left else {"xytext": (3, -1)}
        # Unless stated, below the labels of levels, which are often at the top.
        axes.annotate(label, (note.x, height), xycoords=where, va="top", **small)
    elif note.x is not None and note.y is not None:
        ring: dict[str, Any] = {"markersize": 7, "fillstyle": "none", "markeredgewidth": 1.2}
        axes.plot([note.x], [note.y], "o", color=note.colour, **ring, zorder=5)
        small |= {"color": "0.15", "bbox": {"facecolor": "white", "linewidth": 0, "pad": 1}}
        # Beside the point: below it are the axis' own labels.
        axes.annotate(
            label, (note.x, note.y), xytext=(7, -1), ha="left", va="center", zorder=6, **small
        )


def explore_panels(panels: Sequence[Panel], same_y: bool) -> Any:
    """Panels side by side, with at most 80 points per line, which keeps reports small."""
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=1,
        cols=len(panels),
        shared_yaxes=same_y,
        horizontal_spacing=0.06 if same_y else 0.12,
        subplot_titles=[escape_plotly(panel.heading) for panel in panels],
    )
    in_legend: set[str] = set()
    floor = min(panel.floor for panel in panels)
    for column, panel in enumerate(panels, 1):
        where = {"row": 1, "col": column}
        for name, style, points in panel.lines(floor, 80):
            shared = {"name": escape_plotly(name), "legendgroup": name, **where}
            band = points.drop_nulls(["low", "high"])
            x, low, high = (band[each].to_numpy() for each in (panel.x, "low", "high"))
            figure.add_scatter(
                x=np.concatenate([x, x[::-1]]),
                y=np.concatenate([high, low[::-1]]),
                showlegend=False,
                mode="none",
                fill="toself",
                fillcolor=transparent(style.colour),
                hoverinfo="skip",
                **shared,
            )
            figure.add_scatter(
                x=points[panel.x].to_numpy(),
                y=points["mean"].to_numpy(),
                showlegend=name not in in_legend,
                mode="lines",
                line={"color": style.colour, "dash": style.dash, "width": 2},
                text=[
                    format_interval(*point)
                    for point in points.select("mean", "low", "high").iter_rows()
                ],
                hovertemplate="%{text}",
                **shared,
            )
            in_legend.add(name)
        for note in panel.notes:
            explore_note(figure, note, column, panel.log)
        vertical: dict[str, Any] = {"title": axis_title(panel.y_title), "zeroline": False}
        if panel.log:
            vertical |= {"type": "log", "exponentformat": "power", "dtick": 1}
            vertical["range"] = [math.log10(floor), None]
        if panel.zero:
            vertical["rangemode"] = "tozero"
        if same_y and column > 1:
            vertical.pop("title")
        figure.update_yaxes(**vertical, **where)
        figure.update_xaxes(
            title=axis_title(panel.x_title),
            zeroline=False,
            showgrid=False,
            rangemode="tozero" if panel.zero else "normal",
            spikethickness=1,
            spikecolor=GREY,
            spikedash="dot",
            **where,
        )
    headings = any(panel.heading for panel in panels)
    figure.update_layout(**plotly_layout(headings, hovermode="x unified"))
    return figure


def transparent(colour: str) -> str:
    """A colour that covers a fifth.

    >>> transparent("#0072B2")
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgba({red},{green},{blue},0.2)"


def explore_note(figure: Any, note: Note, column: int, log: bool, left: bool = False) -> None:
    """A point or a thin line with its label."""
    where = {"row": 1, "col": column}
    style = {"color": note.colour, "width": 1, "dash": "dot"}
    label: dict[str, Any] = {"text": escape_plotly(note.label), "showarrow": False}
    label |= {"font": {"size": 11}, **where}
    if note.x is None and note.y is not None:
        figure.add_hline(note.y, line=style, **where)
        # Annotations, unlike everything else, want the logarithm on a logarithmic axis.
        place = {"y": math.log10(note.y) if log else note.y, "yanchor": "bottom"}
        figure.add_annotation(x=1, xanchor="right", **place, **label)
        figure.layout.annotations[-1].update(xref=f"x{column if column > 1 else ''} domain")
    elif note.y is None and note.x is not None:
        figure.add_vline(note.x, line=style, **where)
        side = "right" if left else "left"
        figure.add_annotation(x=note.x, xanchor=side, y=1, yanchor="top", **label)
        figure.layout.annotations[-1].update(yref=f"y{column if column > 1 else ''} domain")
    else:
        figure.add_scatter(
            x=[note.x],
            y=[note.y],
            mode="markers+text",
            marker={"symbol": "circle-open", "size": 13, "color": note.colour, "line_width": 2},
            text=[escape_plotly(note.label)],
            textposition="bottom left",
            showlegend=False,
            hoverinfo="skip",
            **where,
        )
