"""The spectrum of tasks: their standard deviation along each principal direction."""

from __future__ import annotations

import itertools
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from headstart import checks
from headstart.algorithms import DEFAULT
from headstart.bandit.reports.report import Report
from headstart.errors import InputError
from headstart.lab.figures.elements.base import (
    SINGLE,
    Figure,
    axis_title,
    error_bars,
    log_ticks,
    plotly_layout,
    plotly_log_axis,
)
from headstart.lab.figures.elements.panels import Note, draw_note, explore_note
from headstart.lab.figures.elements.styles import KNOWN_STYLES
from headstart.lab.text import count, escape_matplotlib, escape_plotly, format_interval, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

STYLE = KNOWN_STYLES[DEFAULT]
TITLE = "Spread of tasks by principal direction"
X_TITLE = "number of the principal direction, widest first"
Y_TITLE = ("standard deviation of tasks", "(reward per unit of feature)")
# Variances below this share of the largest are zeros up to rounding.
ROUNDING = 1e-12


class Scene(NamedTuple):
    """The rows to draw, the number of directions, the note, and the sentence above."""

    points: pl.DataFrame
    dim: int
    note: Note | None
    sentence: str

    @property
    def bars(self) -> bool:
        """Whether intervals are known."""
        return self.points["low"].null_count() == 0

    @property
    def label(self) -> str:
        """The legend's label of points and bars."""
        return "estimate, 95 % interval" if self.bars else "estimate"

    @property
    def left(self) -> bool:
        """Whether the line's label stands on its left, where there is more room."""
        return self.note is not None and (self.note.x or 0.0) > 0.6 * self.dim

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the vertical axis: a little below all values; above them, room for a label.

        An interval is followed for a decade at most.
        """
        sd, least, most = (self.points[name].to_numpy() for name in ("sd", "low", "high"))
        low, high = float(sd.min()), float(sd.max())
        if self.bars:
            low, high = max(float(least.min()), 0.1 * low), min(float(most.max()), 10.0 * high)
        reach = max(high / low, 2.0)
        return low * reach**-0.06, high * reach ** (0.06 if self.note is None else 0.18)

    @property
    def y_ticks(self) -> list[float]:
        """Round numbers on the vertical axis; powers of ten alone where it spans many."""
        low, high = self.limits
        if high < 100.0 * low:
            return log_ticks(low, high)
        powers = range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)
        return [10.0**power for power in powers]


def spectrum(report: Report, name: str = "spectrum") -> Figure:
    """Standard deviation of tasks along each principal direction, on a log scale.

    With 95 % intervals and a line at the effective rank, where the transfer knows them, and a
    sentence that says how far ahead a new task gets.

    Parameters
    ----------
    report
        The ``bandit.report()`` of a bandit that learns how tasks vary.
    name
        The stem of its files.
    """
    values = variances(report)
    columns: dict[str, Any] = {
        "direction": range(1, len(values) + 1),
        "variance": values,
        "sd": np.sqrt(values),
        "low": None if report.lower is None else np.sqrt(np.maximum(report.lower, 0.0)),
        "high": None if report.upper is None else np.sqrt(np.maximum(report.upper, 0.0)),
    }
    table = pl.DataFrame(columns, schema_overrides={"low": pl.Float64, "high": pl.Float64})
    points = table.filter(pl.col("variance") > ROUNDING * values[0])
    rank = report.effective_rank
    note = None if rank is None else Note(f"effective rank {rank:.1f}", x=rank)
    scene = Scene(points, len(values), note, sentence(report))
    widest = pl.DataFrame(
        [
            {
                "direction": row["direction"],
                "standard deviation": format_interval(row["sd"], row["low"], row["high"]),
                "share of the variance": f"{row['variance'] / values.sum():.1%}",
            }
            for row in table.head(10).iter_rows(named=True)
        ]
    )
    words = caption(report, scene)
    return Figure(name, TITLE, words, table, widest, lambda: draw(scene), lambda: explore(scene))


def variances(report: Report) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The eigenvalues of a report, refused if it has none."""
    if not isinstance(report, Report):
        raise checks.invalid("report", "what bandit.report() gives", report)
    if report.eigenvalues is None:
        why = f" ({report.note})" if report.note else ""
        raise InputError(
            "report must have eigenvalues: of a bandit with a transfer that learns how tasks "
            "spread, such as EmpiricalBayes() or Subspace(), and with finished tasks; "
            f"got none from {report.transfer}{why}"
        )
    values = np.maximum(np.asarray(report.eigenvalues, dtype=np.float64), 0.0)
    if not values.any():
        raise InputError(
            "report must have an eigenvalue above 0: of a bandit with finished tasks that differ; "
            f"got none above 0 after {count(report.closed_tasks, 'task')}"
        )
    return values


def sentence(report: Report) -> str:
    """The expected gain of a new task, and the evidence for it, in a sentence."""
    lead = f"A new task is expected to save {report.gain}"
    if report.support is None or report.closed_tasks < 2:
        return f"{lead}."
    side = "for" if report.support > 0 else "against"
    each = number(abs(report.support) / report.closed_tasks)
    return f"{lead}; the evidence {side} transfer is {each} nats a task."


def caption(report: Report, scene: Scene) -> str:
    """The caption."""
    parts = [
        "Standard deviation of tasks along each of their principal directions, learned from "
        f"{count(report.closed_tasks, 'finished task')}: "
        f"{'bars are 95 % intervals' if scene.bars else 'no intervals'}."
    ]
    hidden = scene.dim - len(scene.points)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        parts.append(f"{count(hidden, 'direction')} without variance {verb} not drawn.")
    if report.effective_rank is not None:
        parts.append(
            f"The effective rank, {report.effective_rank:.1f} of {report.dim}, is the "
            "number of directions in which tasks differ, weighted by their effect on rewards."
        )
    parts.append(scene.sentence)
    if report.note:
        parts.append(f"Note: {report.note}.")
    return " ".join(parts)


def draw(scene: Scene) -> Drawing:
    """Points with bars, a thin line at the effective rank, and the sentence under the title."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(SINGLE, 2.9), layout="constrained")
    axes = drawing.subplots()
    axes.set_yscale("log")
    x, sd = scene.points["direction"].to_numpy(), scene.points["sd"].to_numpy()
    few, spread = scene.dim <= 30, None
    if scene.bars:
        spread = np.stack([sd - scene.points["low"].to_numpy(), scene.points["high"] - sd])
    axes.errorbar(
        x,
        sd,
        yerr=spread,
        fmt=STYLE.marker,
        color=STYLE.colour,
        markersize=4.0 if few else 1.5,
        elinewidth=1.0 if few else 0.6,
        capsize=2 if few else 0,
        label=scene.label,
        zorder=3,
    )
    if scene.note is not None:
        draw_note(scene.note, axes, 1.0, left=scene.left)
    axes.set_xlim(0.5, scene.dim + 0.5)
    axes.set_ylim(*scene.limits)
    axes.set_xticks(x_ticks(scene.dim))
    axes.set_yticks(scene.y_ticks, [f"{place:g}" for place in scene.y_ticks])
    axes.set_yticks([], minor=True)
    axes.set_xlabel(X_TITLE)
    axes.set_ylabel("\n".join(Y_TITLE))
    text = axes.annotate(
        "\n".join(escape_matplotlib(line) for line in wrap_sentence(scene.sentence)),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        va="bottom",
        fontsize=7,
        color="0.25",
    )
    axes.annotate(TITLE, (0, 1), xycoords=text, xytext=(0, 4), textcoords="offset points")
    drawing.legend(loc="outside lower center", handlelength=1.2)
    return drawing


def wrap_sentence(text: str, width: int = 54) -> list[str]:
    """A sentence in lines that fit over the axes; its halves are on separate lines.

    >>> wrap_sentence("This is so; that is not.")
    ['This is so;', 'that is not.']
    """
    halves = text.replace("; ", ";\n").split("\n")
    return [line for half in halves for line in textwrap.wrap(half, width)]


def x_ticks(dim: int) -> list[int]:
    """Directions to write on the axis: all of a few, round ones of many, the first always.

    >>> x_ticks(4), x_ticks(30)
    ([1, 2, 3, 4], [1, 5, 10, 15, 20, 25, 30])
    """
    if dim <= 12:
        return list(range(1, dim + 1))
    steps = (step * 10**power for power in itertools.count() for step in (5, 10, 20))
    step = next(step for step in steps if dim // step <= 8)
    return [1, *range(step, dim + 1, step)]


def explore(scene: Scene) -> Any:
    """The interactive plot."""
    from plotly.subplots import make_subplots

    rows = list(scene.points.iter_rows(named=True))
    bars = error_bars(rows, "sd")
    figure = make_subplots()
    figure.add_scatter(
        x=[row["direction"] for row in rows],
        y=[row["sd"] for row in rows],
        error_y=None if bars is None else bars | {"thickness": 1.5},
        mode="markers",
        name=scene.label,
        showlegend=True,
        marker={"color": STYLE.colour, "symbol": STYLE.symbol, "size": 9},
        text=[format_interval(row["sd"], row["low"], row["high"]) for row in rows],
        hovertemplate="direction %{x}: %{text}<extra></extra>",
    )
    if scene.note is not None:
        explore_note(figure, scene.note, 1, log=True, left=scene.left)
    figure.update_xaxes(
        title=axis_title(X_TITLE),
        range=[0.5, scene.dim + 0.5],
        tickvals=x_ticks(scene.dim),
        showgrid=False,
        zeroline=False,
    )
    axis = plotly_log_axis("", scene.y_ticks) | {"range": np.log10(scene.limits).tolist()}
    axis["title"]["text"] = "<br>".join(Y_TITLE)
    figure.update_yaxes(**axis)
    text = "<br>".join(escape_plotly(line) for line in wrap_sentence(scene.sentence))
    figure.update_layout(
        **plotly_layout(margin={"l": 90, "r": 15, "t": 100, "b": 70}),
        title={
            "text": f"{escape_plotly(TITLE)}<br><span style='font-size:12px'>{text}</span>",
            "font": {"size": 15},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
        },
    )
    return figure
