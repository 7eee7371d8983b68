"""The figures of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headstart.fleet.evaluation.measures import (
    ALONE,
    AVERAGE,
    BINS,
    LEARNED,
    LEVELS,
    OFFSET,
    POOLED,
    Estimate,
)
from headstart.fleet.evaluation.offpolicy import NAMES
from headstart.fleet.evaluation.verdict import MIN_RELEVANT_SHARE
from headstart.fleet.reading.hashing import count_by_doubling
from headstart.lab.figures.elements.base import DOUBLE, Figure
from headstart.lab.figures.elements.interval_rows import IntervalPoint, bar_figure, interval_figure
from headstart.lab.figures.elements.panels import Note, Panel, panel_figure, summary_table
from headstart.lab.figures.elements.styles import Style
from headstart.lab.text import count, number

if TYPE_CHECKING:
    import polars as pl

    from headstart.fleet.evaluation.result import Evaluation

#: The models keep their colours in all figures, those of the policies they stand for.
STYLES = {
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

INTERVAL_NOTE = "95 % bootstrap intervals over tasks"


def line_table(
    lines: Mapping[str, Sequence[Estimate]], x: str, places: Sequence[float]
) -> pl.DataFrame:
    """Lines as a table."""
    import polars as pl

    rows = [
        {"policy": name, x: float(place), "mean": point.value, "low": point.low, "high": point.high}
        for name, points in lines.items()
        for place, point in zip(places, points, strict=True)
        if math.isfinite(point.value)
    ]
    return pl.DataFrame(rows)


def line_figure(
    name: str, title: str, caption: str, panels: list[Panel], height: float = 2.9
) -> Figure:
    """A figure of lines."""
    import polars as pl

    table = pl.concat([panel.table for panel in panels], how="diagonal")
    brief = summary_table(panels[0], 10).rename({"policy": "model"})
    columns = 3 if len(brief) > 4 else 4  # so that no model is alone in a line of the legend
    return panel_figure(
        name, title, caption, panels, (DOUBLE, height), columns, table=table, summary=brief
    )


def percent(estimate: Estimate, less: float = 0.0) -> Estimate:
    """A share in per cent, less another."""
    return Estimate(*(100.0 * (part - less) for part in estimate))


def errors(evaluation: Evaluation) -> Figure:
    """Squared error of the first, second … reward; the worst model is left out of a closer look."""
    lines = evaluation.measures.by_position
    places = range(1, len(lines[LEARNED]) + 1)
    axes = ("position", "position of the reward in its task", "mean squared error (reward²)")
    panels = [Panel(line_table(lines, "position", places), *axes, style_overrides=STYLES)]
    peaks = {
        name: max(point.value for point in points if math.isfinite(point.value))
        for name, points in lines.items()
    }
    worst, second, *_ = sorted(peaks, key=lambda name: -peaks[name])
    if worst != LEARNED and peaks[worst] > 1.5 * peaks[second]:
        near = {name: points for name, points in lines.items() if name != worst}
        table, heading = line_table(near, "position", places), f"the same without “{worst}”"
        panels.append(Panel(table, *axes, style_overrides=STYLES, heading=heading))
    return line_figure(
        "errors",
        "Error by position",
        f"Every reward of {count(evaluation.judged, 'future task')} is predicted before it is "
        f"learned from; {INTERVAL_NOTE}.",
        panels,
    )


def gains(evaluation: Evaluation) -> Figure:
    """The differences that decide."""
    single = AVERAGE if AVERAGE in evaluation.priors else ALONE
    rivals = [name for name in (POOLED, OFFSET, single) if name in evaluation.priors]
    pairs = [*((LEARNED, rival) for rival in rivals), (POOLED, single)]
    return interval_figure(
        "gains",
        "Which model predicts new tasks better",
        f"The share of the second model's squared error that the first saves, {INTERVAL_NOTE}. "
        f"Inside the grey band, ±{100.0 * MIN_RELEVANT_SHARE:g} %, a difference does not matter.",
        [
            IntervalPoint(
                f"{one} against {other}",
                "difference",
                *percent(evaluation.measures.savings[one, other]),
            )
            for one, other in pairs
        ],
        {"difference": STYLES[LEARNED]},
        "squared error saved (%)",
        margin=100.0 * MIN_RELEVANT_SHARE,
    )


def calibration(evaluation: Evaluation) -> Figure:
    """Coverage of predictive intervals, and where in their distributions rewards fall."""
    covered = {
        name: [percent(by_level[level], less=level) for level in LEVELS]
        for name, by_level in evaluation.measures.coverage.items()
    }
    places = {
        name: [percent(point) for point in points]
        for name, points in evaluation.measures.pit.items()
    }
    panels = [
        Panel(
            line_table(covered, "interval", [100.0 * level for level in LEVELS]),
            "interval",
            "predictive interval (%)",
            "actual − nominal coverage (% points)",
            notes=(Note("", y=0.0),),
            style_overrides=STYLES,
            heading="coverage (0: as nominal)",
        ),
        Panel(
            line_table(places, "place", [(at + 0.5) / BINS for at in range(BINS)]),
            "place",
            "place in the predicted distribution",
            "rewards in this tenth (%)",
            notes=(Note("", y=100.0 / BINS),),
            style_overrides=STYLES,
            heading=f"where rewards fall ({100 // BINS} %: as predicted)",
        ),
    ]
    return line_figure(
        "calibration",
        "Calibration",
        "Left: the share of rewards inside predictive intervals of 50, 80 and 95 %, less that "
        "share. Right: how many rewards fall into each tenth of their predicted distributions; "
        "flat is right, and rewards of few values (clicks, stars) cannot be flat. "
        f"{INTERVAL_NOTE}.",
        panels,
    )


def regret(evaluation: Evaluation) -> Figure:
    """Expected regret round by round, by simulation."""
    gain = evaluation.gain
    lines, looks = {}, {}
    for name, title, curve in zip(
        (LEARNED, POOLED, ALONE),
        (LEARNED, f"{POOLED}, with or without random intercept", "a task that learns alone"),
        100.0 * gain.curves,
        strict=True,
    ):
        lines[title] = [Estimate(value, value, value) for value in curve.tolist()]
        looks[title] = STYLES[name]
    panel = Panel(
        line_table(lines, "rounds", gain.times.tolist()),
        "rounds",
        "rounds that the task has seen",
        "regret (% of random choice)",
        style_overrides=looks,
        heading="",
    )
    return line_figure(
        "regret",
        "Expected regret",
        "What choosing by each model's estimate is expected to lose in the next round, as a share "
        "of what choosing an arm at random loses; simulated from the prior learned from all tasks, "
        "on contexts with the log's second moments.",
        [panel],
    )


def rounds_per_task(rounds: npt.NDArray[np.int64]) -> Figure:
    """How long tasks are."""
    bars = {
        f"{low:,}" if low == high else f"{low:,}–{high:,}": tasks
        for low, high, tasks in count_by_doubling(rounds)
    }
    return bar_figure(
        "rounds-per-task",
        "Rounds per task",
        f"{count(len(rounds), 'task')}, {number(int(rounds.sum()))} rewards; half of the tasks "
        f"have {number(int(np.median(rounds)))} or fewer.",
        bars,
        ("rewards of a task", "tasks"),
        STYLES[POOLED].colour,
    )


def values(evaluation: Evaluation) -> Figure:
    """What policies are estimated to earn."""
    used = {value.estimator for value in evaluation.values}
    return interval_figure(
        "values",
        evaluation.value_title,
        "Replay runs the policy from a task's start, on the rounds in which it picks what was "
        "logged; IPS, SNIPS and doubly robust take its choice once at each logged history, on all "
        f"{number(evaluation.values[0].rounds)} rounds. They need not agree: compare policies by "
        f"one estimator. {INTERVAL_NOTE}.",
        [IntervalPoint(value.policy, value.estimator, *value.value) for value in evaluation.values],
        {name: look for name, look in ESTIMATORS.items() if name in used},
        f"mean {'cost' if evaluation.settings['minimize'] else 'reward'} per round",
    )
