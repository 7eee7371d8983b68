"""The actual coverage of intervals compared with the nominal one."""

from __future__ import annotations

import itertools

import polars as pl

from headstart.lab.figures.elements.base import Figure
from headstart.lab.figures.elements.interval_rows import IntervalPanel, IntervalPoint, IntervalRows
from headstart.lab.figures.elements.intervals import check_table, describe_seeds, mean_over_seeds
from headstart.lab.figures.elements.styles import Style

#: Okabe and Ito's colours, in the order of the stages.
STYLES = (
    Style("#D55E00", marker="^"),
    Style("#E69F00", marker="o"),
    Style("#56B4E9", marker="s"),
    Style("#0072B2", marker="D"),
)


def coverage(shares: pl.DataFrame, what: str, name: str = "coverage") -> Figure:
    """Actual coverage by world and number of rewards, a panel for each nominal level.

    Parameters
    ----------
    shares
        Columns world, stage, level, seed and share: which share of the intervals of this nominal
        level contain their target. There are at most four stages.
    what
        What the intervals are of, in a few words.
    name
        The stem of its files.
    """
    key = ("world", "stage", "level", "seed")
    check_table(shares, "shares", (*key, "share"), key)
    table = mean_over_seeds(shares, key[:-1], "share")
    table = table.with_columns(pl.col("low", "high").clip(0.0, 1.0))
    worlds, stages = (list(shares[column].unique(maintain_order=True)) for column in key[:2])
    styles = dict(zip(stages, STYLES, strict=False))
    cells = {row[:3]: row[3:6] for row in table.iter_rows()}
    panels = []
    for level in sorted(table["level"].unique()):
        places = [place for place in itertools.product(worlds, stages) if (*place, level) in cells]
        points = [IntervalPoint(*place, *cells[(*place, level)]) for place in places]
        # The axis extends a little beyond all intervals.
        ends = [level, *(number for point in points for number in point.numbers)]
        limits = max(0.0, min(ends) - 0.03), min(1.0, max(ends) + 0.03)
        panels.append(IntervalPanel(points, f"nominal {level:.0%}", level, limits=limits))
    summary = pl.DataFrame(
        [
            {"world": same[0].row, "rewards so far": same[0].series}
            | {panel.heading: str(point) for panel, point in zip(panels, same, strict=True)}
            for same in zip(*(panel.points for panel in panels), strict=True)
        ]
    )
    rows = IntervalRows(panels, styles, "actual coverage", 0.1 if len(styles) > 1 else 0.24)
    seeds = describe_seeds(table, "with 95 % intervals over seeds")
    return Figure(
        name,
        f"Coverage of intervals of {what}",
        f"Share of intervals of {what} that contain it: mean over {seeds}. A line "
        "marks the nominal coverage: points to its left say that intervals are too narrow.",
        table,
        summary,
        rows.draw,
        rows.explore,
    )
