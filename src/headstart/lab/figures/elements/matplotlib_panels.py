"""Panels of lines and bands as Matplotlib drawings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.elements.panels import Mark, Panel
from headstart.lab.figures.elements.text import escape_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

__all__ = ["draw_mark", "draw_panels"]


def draw_panels(
    panels: Sequence[Panel], size: tuple[float, float], columns: int, same_y: bool = False
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
    """A legend below the panels, in so many columns or as many as fit the width."""
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
        known = points.drop_nulls(["low", "high"])
        axes.fill_between(
            known[panel.x].to_numpy(),
            known["low"].to_numpy(),
            known["high"].to_numpy(),
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
    for mark in panel.marks:
        draw_mark(mark, axes)
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


def draw_mark(mark: Mark, axes: Axes, height: float = 0.9, left: bool = False) -> None:
    """A point with its label, or a thin line with its label at the end.

    The label of a vertical line is at this height, on its right or ``left``.
    """
    label = escape_matplotlib(mark.label)
    line: dict[str, Any] = {"color": mark.colour, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}
    small: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "0.25"}
    if mark.x is None and mark.y is not None:
        axes.axhline(mark.y, **line)
        where: Any = ("axes fraction", "data")
        axes.annotate(label, (1, mark.y), xycoords=where, xytext=(0, 2), ha="right", **small)
    elif mark.y is None and mark.x is not None:
        axes.axvline(mark.x, **line)
        where = ("data", "axes fraction")
        small |= {"ha": "right", "xytext": (-3, -1)} if left else {"xytext": (3, -1)}
        # Unless stated, below the labels of levels, which are often at the top.
        axes.annotate(label, (mark.x, height), xycoords=where, va="top", **small)
    elif mark.x is not None and mark.y is not None:
        ring: dict[str, Any] = {"markersize": 7, "fillstyle": "none", "markeredgewidth": 1.2}
        axes.plot([mark.x], [mark.y], "o", color=mark.colour, **ring, zorder=5)
        small |= {"color": "0.15", "bbox": {"facecolor": "white", "linewidth": 0, "pad": 1}}
        # Beside the point: below it are the axis' own labels.
        axes.annotate(
            label, (mark.x, mark.y), xytext=(7, -1), ha="left", va="center", zorder=6, **small
        )
