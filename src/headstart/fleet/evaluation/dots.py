"""Two kinds of figure that evaluations need besides lines: dots with intervals, and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headstart.fleet.evaluation.bootstrap import Estimate
from headstart.lab.figures.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.styles import Style
from headstart.lab.figures.text import escape_matplotlib, escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["Dot", "bars", "dots"]

GREY = "#767676"


class Dot(NamedTuple):
    """A number with its interval: a line of the figure, and what it belongs to."""

    line: str
    kind: str
    value: Estimate


def dots(
    name: str,
    title: str,
    caption: str,
    found: Sequence[Dot],
    looks: Mapping[str, Style],
    axis: str,
    *,
    zero: bool = False,
    margin: float = 0.0,
) -> Figure:
    """Dots with intervals, one or several a line.

    Parameters
    ----------
    name, title, caption
        As every figure's.
    found
        The dots, from top to bottom.
    looks
        The look of each kind, in legend order; the legend is left out where there is only one.
    axis
        What the horizontal axis shows.
    zero
        Whether to draw a line at 0.
    margin
        Half the width of a band around 0: differences that do not matter.
    """
    import polars as pl

    table = pl.DataFrame(
        {
            "line": [dot.line for dot in found],
            "kind": [dot.kind for dot in found],
            "value": [dot.value.value for dot in found],
            "low": [dot.value.low for dot in found],
            "high": [dot.value.high for dot in found],
        }
    )
    brief = pl.DataFrame(
        {
            "": [dot.line for dot in found],
            "by": [dot.kind for dot in found],
            axis: [format_interval(*dot.value) for dot in found],
        }
    )
    if len(looks) == 1:
        brief = brief.drop("by")
    lines = list(dict.fromkeys(dot.line for dot in found))
    scene = Scene(found, lines, dict(looks), axis, zero, margin)
    return Figure(
        name, title, caption, table, brief, lambda: draw_dots(scene), lambda: explore_dots(scene)
    )


class Scene(NamedTuple):
    """What is drawn."""

    found: Sequence[Dot]
    lines: list[str]
    looks: dict[str, Style]
    axis: str
    zero: bool
    margin: float

    @property
    def heights(self) -> dict[int, float]:
        """Where each dot stands: those of one line close together, lines apart."""
        places: dict[int, float] = {}
        at = 0.0
        for line in self.lines:
            for place, dot in enumerate(self.found):
                if dot.line == line:
                    places[place] = at
                    at += 1.0
            at += 0.0 if len(self.looks) == 1 else 0.8
        return places

    @property
    def ticks(self) -> list[float]:
        """Where the lines' names stand: beside the middle of their dots."""
        places = self.heights
        return [
            float(np.mean([places[at] for at, dot in enumerate(self.found) if dot.line == line]))
            for line in self.lines
        ]

    @property
    def limits(self) -> tuple[float, float]:
        """The vertical axis, from bottom to top."""
        return max(self.heights.values()) + 0.7, -0.7


def draw_dots(scene: Scene) -> Drawing:
    """For paper: the numbers stand at the right where there is room for them."""
    from matplotlib.figure import Figure as Drawing

    single = len(scene.looks) == 1
    low, high = scene.limits
    each = 0.24 if single else 0.15
    drawing = Drawing(figsize=(DOUBLE, 0.75 + each * (low - high)), layout="constrained")
    axes = drawing.subplots()
    if scene.margin:
        axes.axvspan(-scene.margin, scene.margin, color="0.9", linewidth=0)
    if scene.zero:
        axes.axvline(0, color="0.5", linewidth=0.8)
    handles: dict[str, Any] = {}
    for place, dot in enumerate(scene.found):
        look, at = scene.looks[dot.kind], scene.heights[place]
        axes.plot([dot.value.low, dot.value.high], [at] * 2, "|-", color=look.colour, markersize=6)
        (handles[dot.kind],) = axes.plot(
            [dot.value.value], [at], look.marker, color=look.colour, markersize=4
        )
        if single:
            axes.annotate(
                format_interval(*dot.value),
                (1.01, at),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=7,
                annotation_clip=False,
            )
    axes.set_yticks(scene.ticks, [escape_matplotlib(line) for line in scene.lines])
    axes.set_ylim(low, high)
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(scene.axis)
    if not single:
        drawing.legend(
            [handles[kind] for kind in scene.looks if kind in handles],
            [kind for kind in scene.looks if kind in handles],
            loc="outside lower center",
            ncols=min(6, len(handles)),
        )
    return drawing


def explore_dots(scene: Scene) -> Any:
    """The same with numbers under the pointer."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    figure = go.Figure()
    for kind, look in scene.looks.items():
        mine = [dot for dot in scene.found if dot.kind == kind]
        heights = [scene.heights[at] for at, dot in enumerate(scene.found) if dot.kind == kind]
        figure.add_trace(
            go.Scatter(
                x=[dot.value.value for dot in mine],
                y=heights,
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [dot.value.high - dot.value.value for dot in mine],
                    "arrayminus": [dot.value.value - dot.value.low for dot in mine],
                    "thickness": 1.5,
                },
                mode="markers",
                name=escape_plotly(kind),
                showlegend=len(scene.looks) > 1,
                marker={"color": look.colour, "symbol": look.symbol, "size": 9},
                text=[f"{escape_plotly(dot.line)}: {format_interval(*dot.value)}" for dot in mine],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    if scene.margin:
        figure.add_vrect(-scene.margin, scene.margin, fillcolor=GREY, opacity=0.18, line_width=0)
    if scene.zero:
        figure.add_vline(0, line={"color": GREY, "width": 1})
    figure.update_xaxes(title=axis_title(scene.axis), zeroline=False)
    figure.update_yaxes(
        tickvals=scene.ticks,
        ticktext=[escape_plotly(line) for line in scene.lines],
        range=list(scene.limits),
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    single = len(scene.looks) == 1
    low, high = scene.limits
    height = int(150 + (38 if single else 20) * (low - high))
    figure.update_layout(**plotly_layout(height=height))
    if not single:
        figure.update_layout(legend={"y": -55.0 / (height - 110.0)})
    return figure


def bars(
    name: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    counts: Sequence[int],
    axes: tuple[str, str],
    colour: str,
) -> Figure:
    """Bars for a distribution; ``axes`` names the horizontal and the vertical one."""
    import polars as pl

    table = pl.DataFrame({axes[0]: list(labels), axes[1]: list(counts)})

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(DOUBLE, 2.2), layout="constrained")
        place = drawing.subplots()
        place.bar(range(len(labels)), counts, width=0.92, color=colour)
        crowded = len(labels) * max(map(len, labels), default=0) > 100
        written = [label.replace("–", "–\n") if crowded else label for label in labels]
        place.set_xticks(range(len(labels)), written)
        for at, count in enumerate(counts):
            if count:
                place.annotate(
                    number(int(count)), (at, count), xytext=(0, 2), textcoords="offset points",
                    ha="center", fontsize=7,
                )  # fmt: skip
        place.set_xlabel(axes[0])
        place.set_ylabel(axes[1])
        place.margins(x=0.01, y=0.12)
        return drawing

    def explore() -> Any:
        import plotly.graph_objects as go

        figure = go.Figure(
            go.Bar(
                x=list(labels),
                y=list(counts),
                marker={"color": colour},
                text=[number(int(count)) if count else "" for count in counts],
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
