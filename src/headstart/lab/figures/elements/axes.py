"""Axes that several figures share: one row per name, logarithmic ticks, error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.elements.base import axis_title
from headstart.lab.figures.elements.text import escape_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["error_bars", "label_rows", "log_rows", "log_ticks", "plotly_log_axis", "write_beside"]

# Round numbers for a logarithmic axis, from coarse to fine: within a decade, then at even steps.
DECADES = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
STEPS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis from ``low`` to ``high``: about four to seven.

    >>> log_ticks(0.47, 3.1), log_ticks(0.88, 1.04), log_ticks(1, 40)
    ([0.5, 0.7, 1.0, 1.5, 2.0, 3.0], [0.9, 0.95, 1.0, 1.05], [1.0, 2.0, 5.0, 10.0, 20.0])
    """
    low, high = 0.98 * low, 1.02 * high
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = [[digit * 10.0**power for power in powers for digit in digits] for digits in DECADES]
    sets += [
        [step * at for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
        for step in STEPS
        if (high - low) / step < 20
    ]
    for places in sets:
        inside = [round(place, 10) for place in places if low <= place <= high]
        if len(inside) >= 4:
            return inside[:: math.ceil(len(inside) / 8)]
    return [low, high]


def label_rows(axes: Axes, heights: Sequence[float], names: Sequence[str]) -> None:
    """Give Matplotlib axes a row per name, without a line at the left."""
    axes.set_yticks(heights, [escape_matplotlib(name) for name in names])
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def log_rows(axes: Axes, names: Sequence[str], ticks: Sequence[float], title: str) -> None:
    """Give Matplotlib axes a row per name and a logarithmic horizontal axis."""
    label_rows(axes, range(len(names)), names)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(title)


def write_beside(axes: Axes, text: str, height: float) -> None:
    """Write a note at the right of a row."""
    axes.annotate(
        text,
        (1.01, height),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=7,
        annotation_clip=False,
    )


def plotly_log_axis(title: str, ticks: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis for Plotly."""
    return {
        "type": "log",
        "title": axis_title(title),
        "tickvals": list(ticks),
        "ticktext": [f"{tick:g}" for tick in ticks],
        "zeroline": False,
    }


def error_bars(rows: Sequence[dict[str, Any]], value: str) -> dict[str, Any] | None:
    """Plotly's error bars from ``low`` to ``high`` around a value; ``None`` without intervals."""
    if any(row["low"] is None for row in rows):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["high"] - row[value] for row in rows],
        "arrayminus": [row[value] - row["low"] for row in rows],
    }
