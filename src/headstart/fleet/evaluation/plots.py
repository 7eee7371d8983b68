"""The figures of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headstart.fleet.evaluation.bootstrap import Estimate
from headstart.fleet.evaluation.dots import Dot, bars, dots
from headstart.fleet.evaluation.measures import (
    ALONE,
    AVERAGE,
    BINS,
    LEARNED,
    LEVELS,
    OFFSET,
    POOLED,
)
from headstart.fleet.evaluation.offpolicy import NAMES
from headstart.fleet.evaluation.verdict import RELEVANT
from headstart.fleet.reading.keyed_sums import count_by_doubling
from headstart.lab.figures.base import DOUBLE, Figure
from headstart.lab.figures.matplotlib_panels import draw_panels
from headstart.lab.figures.panels import Mark, Panel, summary_table
from headstart.lab.figures.plotly_panels import explore_panels
from headstart.lab.figures.styles import Style
from headstart.lab.figures.text import count, number

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

    from headstart.fleet.evaluation.result import Evaluation

__all__ = ["LOOKS", "calibration", "errors", "gains", "regret", "rounds_per_task", "values"]

#: The models keep their colours in all figures, those of the policies they stand for.
LOOKS = {
    LEARNED: Style("#D55E00", "-", "X"),
    POOLED: Style("#0072B2", "--", "D"),
    OFFSET: Style("#009E73", "--", "^"),
    AVERAGE: Style("#767676", ":", "h"),
    ALONE: Style("#E69F00", "-.", "o"),
}

ESTIMATORS = {
    NAMES["logged"]: Style("#767676", "-", "o"),
    NAMES["replay"]: Style("#D55E00", "-", "X"),
    NAMES["weighted"]: Style("#CC79A7", "-", "v"),
    NAMES["ips"]: Style("#E69F00", "-", "s"),
    NAMES["snips"]: Style("#009E73", "-", "^"),
    NAMES["dr"]: Style("#0072B2", "-", "D"),
}

ALL = "95 % intervals by drawing tasks anew"


class Models(Panel):
    """Lines of models, the learned prior first."""

    @property
    def looks(self) -> dict[str, Style]:
        """The look of each line, in the order of the models."""
        there = set(self.table["policy"].to_list())
        return {name: look for name, look in self.known.items() if name in there}


def tidy(lines: Mapping[str, Sequence[Estimate]], x: str, places: Sequence[float]) -> pl.DataFrame:
    """Lines as a table."""
    import polars as pl

    rows = [
        {"policy": name, x: float(place), "mean": point.value, "low": point.low, "high": point.high}
        for name, points in lines.items()
        for place, point in zip(places, points, strict=True)
        if math.isfinite(point.value)
    ]
    return pl.DataFrame(rows)


def lined(name: str, title: str, caption: str, panels: list[Panel], height: float = 2.9) -> Figure:
    """A figure of lines."""
    import polars as pl

    tables = [panel.table for panel in panels]
    table = tables[0] if len(tables) == 1 else pl.concat(tables, how="diagonal")

    def draw() -> Drawing:
        from matplotlib.ticker import NullFormatter

        drawing = draw_panels(panels, (DOUBLE, height), 4)
        for axes, panel in zip(drawing.axes, panels, strict=True):
            if panel.log:
                found = ticks(*axes.get_ylim())
                axes.set_yticks(found, [f"{value:g}" for value in found])
                axes.yaxis.set_minor_formatter(NullFormatter())
        return drawing

    def explore() -> Any:
        figure = explore_panels(panels)
        for column, panel in enumerate(panels, 1):
            if panel.log:
                low = min(each.floor for each in panels)
                high = 1.15 * float(np.nanmax(panel.table.select("mean", "high").to_numpy()))
                found = ticks(low, high)
                figure.update_yaxes(
                    row=1,
                    col=column,
                    range=[math.log10(low), math.log10(high)],
                    tickvals=found,
                    ticktext=[f"{value:g}" for value in found],
                )
        return figure

    brief = summary_table(panels[0], 10).rename({"policy": "model"})
    return Figure(name, title, caption, table, brief, draw, explore)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: few enough to read, enough to read values by.

    >>> ticks(0.15, 12.0), ticks(0.9, 1.6), ticks(0.01, 1e5)[::2]
    ([0.2, 0.5, 1.0, 2.0, 5.0, 10.0], [1.0, 1.2, 1.4, 1.6], [0.01, 1.0, 100.0, 10000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        found = [float(f"{part}e{power}") for power in range(first, last + 1) for part in parts]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 4:
            return found[:: math.ceil(len(found) / 9)]
    return evenly(low, high)


def evenly(low: float, high: float) -> list[float]:
    """Round numbers at equal distances, four or five of them or a few more."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2.0))
    step *= next((factor for factor in (5, 2) if (high - low) / (factor * step) >= 3), 1)
    return [
        round(at * step, 12) for at in range(math.ceil(low / step), math.floor(high / step) + 1)
    ]


def errors(found: Evaluation) -> Figure:
    """Squared error of the first, second … reward; the worst model is left out of a closer look."""
    lines = found.measures.by_position
    places = range(1, len(lines[LEARNED]) + 1)
    axes = ("position of the reward in its task", "mean squared error (reward²)")
    everything = tidy(lines, "position", places)
    best = min(point.value for point in lines[LEARNED] if math.isfinite(point.value))
    far = max(point.value for point in lines[ALONE] if math.isfinite(point.value)) > 3.0 * best
    panels: list[Panel] = [
        Models(everything, "position", *axes, log=far, known=LOOKS, heading="log scale" * far)
    ]
    if far:
        near = tidy(
            {name: part for name, part in lines.items() if name != ALONE}, "position", places
        )
        panels.append(
            Models(near, "position", *axes, known=LOOKS, heading=f"the same without “{ALONE}”")
        )
    return lined(
        "errors",
        "Error by position",
        f"Every reward of {count(found.judged, 'future task')} is predicted before it is learned "
        f"from; {ALL}.",
        panels,
    )


def gains(found: Evaluation) -> Figure:
    """The differences that decide."""
    single = AVERAGE if AVERAGE in found.priors else ALONE
    rivals = [name for name in (POOLED, OFFSET, single) if name in found.priors]
    pairs = [*((LEARNED, rival) for rival in rivals), (POOLED, single)]
    return dots(
        "gains",
        "Which model predicts new tasks better",
        f"The share of the second model's squared error that the first saves, {ALL}. Inside the "
        f"grey band, ±{100.0 * RELEVANT:g} %, a difference does not matter.",
        [
            Dot(
                f"{one} − {other}",
                "difference",
                Estimate(*(100.0 * part for part in found.measures.savings[one, other])),
            )
            for one, other in pairs
        ],
        {"difference": LOOKS[LEARNED]},
        "squared error saved (%)",
        zero=True,
        margin=100.0 * RELEVANT,
    )


def calibration(found: Evaluation) -> Figure:
    """Coverage of predictive intervals, and where in their distributions rewards fall."""
    covered = {
        name: [Estimate(*(100.0 * (part - level) for part in by_level[level])) for level in LEVELS]
        for name, by_level in found.measures.coverage.items()
    }
    places = {
        name: [Estimate(*(100.0 * part for part in point)) for point in points]
        for name, points in found.measures.places.items()
    }
    panels: list[Panel] = [
        Models(
            tidy(covered, "interval", [100.0 * level for level in LEVELS]),
            "interval",
            "predictive interval (%)",
            "covered − promised (% points)",
            marks=(Mark("", y=0.0),),
            known=LOOKS,
            heading="coverage (0: as promised)",
        ),
        Models(
            tidy(places, "place", [(at + 0.5) / BINS for at in range(BINS)]),
            "place",
            "place in the predicted distribution",
            "rewards in this tenth (%)",
            marks=(Mark("", y=100.0 / BINS),),
            known=LOOKS,
            heading=f"where rewards fall ({100 // BINS} %: as predicted)",
        ),
    ]
    return lined(
        "calibration",
        "Calibration",
        "Left: the share of rewards inside predictive intervals of 50, 80 and 95 %, less that "
        "share. Right: how many rewards fall into each tenth of their predicted distributions; "
        f"flat is right, and rewards of few values (clicks, stars) cannot be flat. {ALL}.",
        panels,
    )


def regret(found: Evaluation) -> Figure:
    """Expected regret round by round, by simulation."""
    gain = found.gain
    lines, looks = {}, {}
    for name, title, curve in zip(
        (LEARNED, POOLED, ALONE),
        (LEARNED, f"{POOLED}, with or without random intercept", "a task that learns alone"),
        100.0 * gain.curves,
        strict=True,
    ):
        lines[title] = [Estimate(value, value, value) for value in curve.tolist()]
        looks[title] = LOOKS[name]
    panel = Models(
        tidy(lines, "rounds", gain.times.tolist()),
        "rounds",
        "rounds that the task has seen",
        "regret (% of random choice)",
        known=looks,
        heading="",
    )
    return lined(
        "regret",
        "Expected regret",
        "What choosing by each model's estimate is expected to lose in the next round, as a share "
        "of what choosing an arm at random loses; simulated from the prior learned from all tasks, "
        "on contexts with the log's second moments.",
        [panel],
    )


def rounds_per_task(rounds: npt.NDArray[np.int64]) -> Figure:
    """How long tasks are."""
    bins = count_by_doubling(rounds)
    labels = [f"{low:,}" if low == high else f"{low:,}–{high:,}" for low, high, _ in bins]
    return bars(
        "rounds-per-task",
        "Rounds per task",
        f"{count(len(rounds), 'task')}, {number(int(rounds.sum()))} rewards; half of the tasks "
        f"have {number(int(np.median(rounds)))} or fewer.",
        labels,
        [tasks for _, _, tasks in bins],
        ("rewards of a task", "tasks"),
        LOOKS[POOLED].colour,
    )


def values(found: Evaluation) -> Figure:
    """What policies are estimated to earn."""
    used = {value.estimator for value in found.values}
    return dots(
        "values",
        "What policies would earn",
        "Replay runs the policy from a task's start, on the rounds in which it picks what was "
        "logged; IPS, SNIPS and doubly robust take its choice once at each logged history, on all "
        f"{number(found.values[0].rounds)} rounds. They need not agree: compare policies by one "
        f"estimator. {ALL}.",
        [Dot(value.policy, value.estimator, value.value) for value in found.values],
        {name: look for name, look in ESTIMATORS.items() if name in used},
        "mean reward per round",
    )
