"""The base of all figures: a Matplotlib drawing, a Plotly plot, and their table."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.lab.experiments.files import writing
from headstart.lab.figures.elements.text import escape_plotly

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["DOUBLE", "SINGLE", "Figure", "axis_title", "paper_style", "plotly_layout"]

#: Widths of one and of two columns of a paper, in inches.
SINGLE, DOUBLE = 3.5, 7.0


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

    ours = {
        "axes.axisbelow": True,
        "axes.edgecolor": "0.3",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.labelsize": 8,
        "axes.linewidth": 0.6,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 8,
        "figure.constrained_layout.h_pad": 0.03,
        "figure.constrained_layout.w_pad": 0.03,
        "figure.dpi": 150,
        "font.size": 8,
        "grid.color": "0.9",
        "grid.linewidth": 0.5,
        "legend.fontsize": 7.5,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "savefig.dpi": 300,
        "svg.fonttype": "path",
        "svg.hashsalt": "headstart",
        "xtick.labelsize": 7.5,
        "xtick.major.width": 0.6,
        "xtick.minor.width": 0.4,
        "ytick.labelsize": 7.5,
        "ytick.major.width": 0.6,
        "ytick.minor.width": 0.4,
    }
    context: AbstractContextManager[None] = styles.context(["default", ours])
    return context


def axis_title(text: str) -> dict[str, Any]:
    """An axis title for Plotly."""
    return {"text": escape_plotly(text), "font": {"size": 13}}


def plotly_layout(**more: Any) -> dict[str, Any]:
    """The layout that all interactive figures share; backgrounds are transparent."""
    shared: dict[str, Any] = {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13, "family": "system-ui, sans-serif"},
        "margin": {"l": 70, "r": 15, "t": 40, "b": 70},
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
