"""The base of all figures: a Matplotlib drawing, a Plotly plot, their table, and their axes."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headstart.lab.experiments.store import writing
from headstart.lab.text import escape_matplotlib, escape_plotly

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

#: Widths of one and of two columns of a paper, in inches.
SINGLE, DOUBLE = 3.5, 7.0
# Round numbers for a logarithmic axis, from coarse to fine: within a decade, then at even steps.
DIGITS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
EVEN_STEPS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """A figure: two renderings and their table.

    Attributes
    ----------
    name
        The stem of its files.
    title, caption
        What it shows: in a few words, and in one or two sentences.
    table
        All numbers of the figure.
    summary
        A shorter table for reading, with intervals written out.
    make_drawing, make_plot
        Functions that make the Matplotlib drawing and the Plotly plot.
    """

    name: str
    title: str
    caption: str
    table: pl.DataFrame
    summary: pl.DataFrame
    make_drawing: Callable[[], Drawing] = dataclasses.field(repr=False)
    make_plot: Callable[[], Any] = dataclasses.field(repr=False)

    def draw(self) -> Drawing:
        """The Matplotlib drawing, for print."""
        with paper_style():
            return self.make_drawing()

    def explore(self) -> Any:
        """The interactive Plotly plot."""
        return self.make_plot()

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write PNG (300 dpi), SVG and the table as CSV, the same bytes for the same numbers."""
        target = Path(folder)
        paths = [target / f"{self.name}.{kind}" for kind in ("png", "svg", "csv")]
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
            with paper_style():
                drawing = self.make_drawing()
                drawing.savefig(paths[0], metadata={"Software": None})
                drawing.savefig(paths[1], metadata={"Date": None, "Creator": None})
            self.table.write_csv(paths[2])
        return paths


def paper_style() -> AbstractContextManager[None]:
    """Matplotlib's settings for print, independent of the user's own."""
    from matplotlib import style as styles

    names = ["default", f"{__package__}.paper"]  # paper.mplstyle
    return styles.context(names)


def axis_title(text: str) -> dict[str, Any]:
    """An axis title for Plotly."""
    return {"text": escape_plotly(text), "font": {"size": 13}}


def plotly_layout(headings: bool = False, **more: Any) -> dict[str, Any]:
    """The layout that all interactive figures share; backgrounds are transparent.

    ``headings`` says whether panels have headings, which stand below Plotly's buttons.
    """
    shared: dict[str, Any] = {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13, "family": "system-ui, sans-serif"},
        "margin": {"l": 70, "r": 15, "t": 62 if headings else 40, "b": 70},
        # Without Plotly's button that uploads the data of a figure.
        "modebar": {
            "remove": ["sendChartToCloud"],
            "bgcolor": "rgba(0,0,0,0)",
            "color": "#999",
            "activecolor": "#3b82c4",
        },
        "height": 460,
        "legend": {
            "orientation": "h",
            "x": 0.5,
            "xanchor": "center",
            "y": -0.18,
            "yanchor": "top",
            "itemwidth": 40,
        },
        "hovermode": "closest",
        "hoverlabel": {"font": {"size": 12}},
    }
    return {**shared, **more}


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis from ``low`` to ``high``: about four to seven.

    >>> log_ticks(0.47, 3.1), log_ticks(0.88, 1.04), log_ticks(1, 40)
    ([0.5, 0.7, 1.0, 1.5, 2.0, 3.0], [0.9, 0.95, 1.0, 1.05], [1.0, 2.0, 5.0, 10.0, 20.0])
    """
    low, high = 0.98 * low, 1.02 * high
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = [[digit * 10.0**power for power in powers for digit in digits] for digits in DIGITS]
    sets += [
        [step * at for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
        for step in EVEN_STEPS
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
