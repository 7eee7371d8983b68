"""Figures: each as a drawing for print, an interactive plot, and a table.

Every function gives a :class:`Figure`, most of them from tidy Polars tables: ``draw()`` for a
paper, ``explore()`` for a screen, ``table`` for the numbers, ``save(folder)`` for files.
Matplotlib and Plotly are imported when they are needed, not before.
"""

from headstart.lab.figures.coverage import coverage
from headstart.lab.figures.elements.base import Figure
from headstart.lab.figures.elements.styles import Style, assign_styles
from headstart.lab.figures.ratios import totals, tuning
from headstart.lab.figures.regret import (
    cumulative_regret,
    mean_transfer_regret,
    per_task_regret,
    transfer_regret,
    with_bound,
)
from headstart.lab.figures.scatter import scatter
from headstart.lab.figures.spectrum import spectrum
from headstart.lab.figures.subspace import rank_sweep, subspace_error

__all__ = [
    "Figure",
    "Style",
    "assign_styles",
    "coverage",
    "cumulative_regret",
    "mean_transfer_regret",
    "per_task_regret",
    "rank_sweep",
    "scatter",
    "spectrum",
    "subspace_error",
    "totals",
    "transfer_regret",
    "tuning",
    "with_bound",
]
