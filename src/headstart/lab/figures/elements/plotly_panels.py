"""Panels of lines and bands as Plotly plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.elements.base import axis_title, plotly_layout
from headstart.lab.figures.elements.panels import GREY, Mark, Panel
from headstart.lab.figures.elements.styles import Style
from headstart.lab.figures.elements.text import escape_plotly, format_interval

if TYPE_CHECKING:
    import polars as pl

__all__ = ["explore_mark", "explore_panels"]


def explore_panels(panels: Sequence[Panel], same_y: bool = False, most: int = 80) -> Any:
    """Panels side by side, with at most ``most`` points per line, which keeps reports small."""
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=1,
        cols=len(panels),
        shared_yaxes=same_y,
        horizontal_spacing=0.06 if same_y else 0.12,
        subplot_titles=[escape_plotly(panel.heading) for panel in panels],
    )
    listed: set[str] = set()
    floor = min(panel.floor for panel in panels)
    for column, panel in enumerate(panels, 1):
        for name, style, points in panel.lines(floor, most):
            where = {"row": 1, "col": column}
            figure.add_traces([band(panel, name, style, points)], rows=1, cols=column)
            figure.add_trace(line(panel, name, style, points, name not in listed), **where)
            listed.add(name)
        for mark in panel.marks:
            explore_mark(figure, mark, column, panel.log)
        vertical: dict[str, Any] = {"title": axis_title(panel.y_title), "zeroline": False}
        if panel.log:
            vertical |= {"type": "log", "exponentformat": "power", "dtick": 1}
            vertical["range"] = [math.log10(floor), None]
        if panel.zero:
            vertical["rangemode"] = "tozero"
        if same_y and column > 1:
            vertical.pop("title")
        figure.update_yaxes(row=1, col=column, **vertical)
        figure.update_xaxes(
            row=1,
            col=column,
            title=axis_title(panel.x_title),
            zeroline=False,
            showgrid=False,
            rangemode="tozero" if panel.zero else "normal",
            spikethickness=1,
            spikecolor=GREY,
            spikedash="dot",
        )
    figure.update_layout(**plotly_layout(hovermode="x unified"))
    if any(panel.heading for panel in panels):
        figure.update_layout(margin={"t": 62})  # headings stand below the buttons
    return figure


def line(panel: Panel, name: str, style: Style, points: pl.DataFrame, listed: bool) -> Any:
    """A line with its values under the pointer."""
    import plotly.graph_objects as go

    shown = [
        format_interval(mean, low, high)
        for mean, low, high in points.select("mean", "low", "high").iter_rows()
    ]
    return go.Scatter(
        x=points[panel.x].to_numpy(),
        y=points["mean"].to_numpy(),
        name=escape_plotly(name),
        legendgroup=name,
        showlegend=listed,
        mode="lines",
        line={"color": style.colour, "dash": style.dash, "width": 2},
        text=shown,
        hovertemplate="%{text}",
    )


def band(panel: Panel, name: str, style: Style, points: pl.DataFrame) -> Any:
    """A line's interval: hidden with its line."""
    import numpy as np
    import plotly.graph_objects as go

    known = points.drop_nulls(["low", "high"])
    x = known[panel.x].to_numpy()
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([known["high"].to_numpy(), known["low"].to_numpy()[::-1]]),
        name=escape_plotly(name),
        legendgroup=name,
        showlegend=False,
        mode="none",
        fill="toself",
        fillcolor=transparent(style.colour),
        hoverinfo="skip",
    )


def transparent(colour: str, share: float = 0.2) -> str:
    """A colour with transparency.

    >>> transparent("#0072B2")
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def explore_mark(figure: Any, mark: Mark, column: int, log: bool, left: bool = False) -> None:
    """A point or a thin line with its label."""
    where = {"row": 1, "col": column}
    style = {"color": mark.colour, "width": 1, "dash": "dot"}
    label: dict[str, Any] = {"text": escape_plotly(mark.label), "showarrow": False}
    label |= {"font": {"size": 11}, **where}
    if mark.x is None and mark.y is not None:
        figure.add_hline(mark.y, line=style, **where)
        # Annotations, unlike everything else, want the logarithm on a logarithmic axis.
        place = {"y": math.log10(mark.y) if log else mark.y, "yanchor": "bottom"}
        figure.add_annotation(x=1, xanchor="right", **place, **label)
        figure.layout.annotations[-1].update(xref=f"x{column if column > 1 else ''} domain")
    elif mark.y is None and mark.x is not None:
        figure.add_vline(mark.x, line=style, **where)
        side = "right" if left else "left"
        figure.add_annotation(x=mark.x, xanchor=side, y=1, yanchor="top", **label)
        figure.layout.annotations[-1].update(yref=f"y{column if column > 1 else ''} domain")
    else:
        figure.add_scatter(
            x=[mark.x],
            y=[mark.y],
            mode="markers+text",
            marker={"symbol": "circle-open", "size": 13, "color": mark.colour, "line_width": 2},
            text=[escape_plotly(mark.label)],
            textposition="bottom left",
            showlegend=False,
            hoverinfo="skip",
            **where,
        )
