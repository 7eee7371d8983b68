"""Panels: lines with confidence bands over one pair of axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headstart.lab.figures.elements.styles import Style, assign_styles
from headstart.lab.figures.elements.text import format_interval, number

if TYPE_CHECKING:
    import polars as pl

__all__ = ["GREY", "Mark", "Panel", "summary_table"]

GREY = "#767676"


class Mark(NamedTuple):
    """An annotation: a point, a horizontal line (no ``x``) or a vertical one (no ``y``)."""

    label: str
    x: float | None = None
    y: float | None = None
    colour: str = GREY


@dataclasses.dataclass(frozen=True)
class Panel:
    """Lines over one pair of axes.

    Attributes
    ----------
    table
        Columns policy, ``x``, mean, low and high; low and high may be null.
    x
        The column along the horizontal axis.
    x_title, y_title
        What the axes show.
    log
        Whether the vertical axis is logarithmic.
    zero
        Whether both axes start at 0.
    heading
        A few words above the axes.
    marks
        What to point out.
    known
        Looks that differ from the usual.
    """

    table: pl.DataFrame
    x: str
    x_title: str
    y_title: str
    log: bool = False
    zero: bool = False
    heading: str = ""
    marks: tuple[Mark, ...] = ()
    known: dict[str, Style] = dataclasses.field(default_factory=dict)

    @property
    def styles(self) -> dict[str, Style]:
        """The style of each line, in legend order."""
        usual = assign_styles(self.table["policy"].to_list())
        return {name: self.known.get(name, style) for name, style in usual.items()}

    @property
    def floor(self) -> float:
        """The lowest value that a logarithmic axis shows: below all means and levels."""
        levels = [*self.table["mean"].drop_nulls(), *(mark.y for mark in self.marks)]
        return 0.6 * min((level for level in levels if level is not None and level > 0), default=1)

    def lines(
        self, floor: float, most: int | None = None
    ) -> Iterator[tuple[str, Style, pl.DataFrame]]:
        """Each line's name, style and points: at most ``most`` of them, evenly spread."""
        import polars as pl

        for name, style in self.styles.items():
            points = self.table.filter(pl.col("policy") == name).sort(self.x)
            if self.log:  # an interval that reaches zero goes down to the axis
                points = points.with_columns(pl.col("mean", "low", "high").clip(floor))
            if most is not None:
                points = points[evenly_spaced(len(points), most)]
            yield name, style, points


def evenly_spaced(length: int, most: int) -> list[int]:
    """Up to ``most`` places spread evenly over ``length``, first and last included.

    >>> evenly_spaced(5, 9), evenly_spaced(101, 3)
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if length <= most:
        return list(range(length))
    return sorted({round(at * (length - 1) / (most - 1)) for at in range(most)})


def summary_table(panel: Panel, most: int = 5) -> pl.DataFrame:
    """One row per line, a few places along the axis as columns, intervals written out."""
    import polars as pl

    places = panel.table[panel.x].unique().sort().to_list()
    shown = [places[at] for at in evenly_spaced(len(places), most)]
    rows = []
    for name in panel.styles:
        points = {
            point[panel.x]: format_interval(point["mean"], point["low"], point["high"])
            for point in panel.table.filter(pl.col("policy") == name).iter_rows(named=True)
        }
        cells = {f"{panel.x} {number(place)}": points.get(place, "–") for place in shown}
        rows.append({"policy": name, **cells})
    return pl.DataFrame(rows)
