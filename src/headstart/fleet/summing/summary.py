"""What was read of logs: counts, a small sample of rows, and values far out of a column's range.

One such value can outweigh all other rows. Sums of squares hold every row, and so does the standard
deviation by which a feature is divided. A sample of rows tells what is typical, whatever a few rows
hold: a column's median c, and its size s, the median distance from c of the values that differ from
it. Where the root mean square of x − c is much larger than s, few rows make up the sum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError
from headstart.fleet.reading.arrays import FeatureColumns
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.repeats import IdForms, repeated_rows
from headstart.fleet.reading.rows import BadRows, Example, Rows
from headstart.model.evidence import Evidence
from headstart.transfer.standardize import STEADY

__all__ = ["Outlier", "ReadSummary", "RowSample", "column_notes", "find_outliers"]


Array = npt.NDArray[np.float64]

#: How many times s the root mean square is where it is told, and where nothing is learned.
NOTABLE, HIDING = 1e2, 1e6
MOST = 256  # rows of a sample, fewer if they are wide
NUMBERS = 20_000
BLOCK = 32  # rows of a block that are looked at
ADVICE = "a few rows outweigh all others. Repair them, or clip the column or take its logarithm"


class RowSample:
    """A few rows of a log, evenly spread: features, and the reward last."""

    def __init__(self, rows: Array | None = None) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowSample):
            return NotImplemented
        if self.rows is None or other.rows is None:
            return self.rows is other.rows
        return np.array_equal(self.rows, other.rows)

    def add_block(self, rows: Rows) -> None:
        """At some rows of a block."""
        use = np.arange(rows.count) if rows.chosen is None else np.flatnonzero(rows.chosen)
        use = use[:: max(1, -(-len(use) // BLOCK))]
        if not len(use):
            return
        features = rows.features
        if isinstance(features, FeatureColumns):
            columns = [column[use] for column in features.columns]
        else:
            columns = list(features[use].T)
        self.add(RowSample(np.column_stack([*columns, rows.rewards[use]]).astype(np.float64)))

    def add(self, other: RowSample) -> None:
        """Another's rows too; of too many, every second."""
        if other.rows is None:
            return
        rows = other.rows if self.rows is None else np.concatenate([self.rows, other.rows])
        most = int(np.clip(NUMBERS // rows.shape[1], 16, MOST))
        while len(rows) > most:
            rows = rows[::2]
        self.rows = rows

    def typical(self, centred: bool = True) -> tuple[Array, Array]:
        """The median and the size of each column; a size of NaN where all sampled are the same.

        >>> sampled = RowSample(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1e9, 0.0]]))
        >>> sampled.typical()
        (array([2.5, 0. ]), array([ 1., nan]))
        """
        assert self.rows is not None
        centre = np.median(self.rows, 0) if centred else np.zeros(self.rows.shape[1])
        away = np.abs(self.rows - centre)
        sizes = [np.median(part[part > 0]) if (part > 0).any() else np.nan for part in away.T]
        return centre, np.array(sizes)

    @property
    def varies(self) -> npt.NDArray[np.bool_]:
        """Which columns are not the same in all sampled rows."""
        assert self.rows is not None
        return np.asarray(self.rows.min(0) < self.rows.max(0))


class Outlier(NamedTuple):
    """A column that few rows make up: its root mean square in sizes, and its largest, about."""

    name: str
    times: float
    reach: float
    size: float

    @property
    def hides_others(self) -> bool:
        """Whether what the other rows say is lost in rounding."""
        return self.times > HIDING

    def __str__(self) -> str:
        return (
            f"{self.name} has values of about {self.reach:.1e}, {self.reach / self.size:.0e} times "
            f"its usual size ({self.size:.3g})"
        )


def find_outliers(
    names: Sequence[str], centre: Array, size: Array, squares: Array, count: float
) -> list[Outlier]:
    """The columns that few rows make up, from Σ (x − c)² of all rows."""
    found = []
    for name, middle, usual, square in zip(names, centre, size, squares, strict=True):
        rounding = 1e-12 * count * middle * middle
        if not usual > 0 or not square > rounding:
            continue
        times = float(np.sqrt((square - rounding) / max(count, 1.0)) / usual)
        if times > NOTABLE:
            found.append(Outlier(name, times, float(np.sqrt(square)), float(usual)))
    return found


def column_notes(
    names: Sequence[str], intercept: bool, every: Evidence, sampled: RowSample
) -> list[str]:
    """Notes on columns that a few rows make up or that hardly vary; refused where all is lost.

    Parameters
    ----------
    names
        The features; the intercept, if there is one, comes after them.
    intercept
        Whether there is.
    every
        The sums of all rows.
    sampled
        Some of them.
    """
    if sampled.rows is None:
        return []
    dim, count = len(names), float(every.rounds)
    kept = [*range(dim), sampled.rows.shape[1] - 1]  # the features and the reward
    centre, size = (part[kept] for part in sampled.typical(centred=intercept))
    squares = np.append(np.diag(every.gram)[:dim], every.squares)
    sums = np.zeros(dim + 1)
    if intercept:
        sums = np.append(every.gram[dim, :dim], every.moment[dim])
    squares = squares - 2.0 * centre * sums + count * centre**2
    columns = [*(f"feature {name}" for name in names), "reward"]
    found = find_outliers(columns, centre, size, squares, count)
    lost = [outlier for outlier in found if outlier.hides_others]
    if lost:
        more = f" (and {len(lost) - 1} more like it)" if len(lost) > 1 else ""
        raise InputError(
            f"logs must not have values so far out that all others are lost in rounding; "
            f"{lost[0]}{more}: find the rows with headstart check, and repair or remove them"
        )
    notes = [f"{outlier}: {ADVICE}" for outlier in found]
    if intercept:
        mean = sums[:dim] / count
        around = np.diag(every.gram)[:dim] / count - mean**2
        flat = (around <= STEADY * mean**2) & sampled.varies[:dim]
        notes += [
            f"feature {name} varies by less than a millionth of its mean ({mean[at]:.6g}), and "
            f"counts as constant: subtract a constant from it first"
            for at, name in enumerate(names)
            if flat[at]
        ]
    return notes


@dataclasses.dataclass
class ReadSummary:
    """What was read: rows that count, rows that were left out, and the parts they are in.

    Summaries of different rows add up, in any order.

    Attributes
    ----------
    rows
        How many rows count as evidence.
    bad, weightless, unchosen
        How many do not: those that cannot be used, have weight 0, or were not chosen.
    parts
        The keys of the parts.
    least, greatest
        The rewards' range.
    sampled
        A few of the rows, to tell what is usual.
    heaviest
        The largest weight; 0 where rows have none.
    ids
        How ids are written.
    fingerprints
        Of some rows, where a round or a timestamp is logged.
    """

    rows: int = 0
    bad: BadRows = dataclasses.field(default_factory=BadRows)
    weightless: int = 0
    parts: list[str] = dataclasses.field(default_factory=list)
    unchosen: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    sampled: RowSample = dataclasses.field(default_factory=RowSample)
    heaviest: float = 0.0
    ids: IdForms = dataclasses.field(default_factory=IdForms)
    fingerprints: list[Any] = dataclasses.field(default_factory=list)

    def add(self, other: ReadSummary) -> None:
        """Count another's too."""
        self.rows += other.rows
        self.bad = self.bad + other.bad
        self.weightless += other.weightless
        self.parts += other.parts
        self.unchosen += other.unchosen
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)
        self.sampled.add(other.sampled)
        self.heaviest = max(self.heaviest, other.heaviest)
        self.ids.merge(other.ids)
        self.fingerprints += other.fingerprints

    def count(self, rows: Rows) -> None:
        """Count a block."""
        rewards = rows.rewards if rows.chosen is None else rows.rewards[rows.chosen]
        self.rows += len(rewards)
        self.unchosen += rows.count - len(rewards)
        self.bad = self.bad + rows.bad
        self.weightless += rows.weightless
        self.ids.add(rows.ids, rows.spaced)
        if rows.fingerprints is not None:
            self.fingerprints.append(rows.fingerprints)
        if len(rewards):
            self.least = min(self.least, float(rewards.min()))
            self.greatest = max(self.greatest, float(rewards.max()))
            self.sampled.add_block(rows)
            if rows.weights is not None:
                heavy = rows.weights if rows.chosen is None else rows.weights[rows.chosen]
                self.heaviest = max(self.heaviest, float(heavy.max()))

    def notes(self, tasks: int, weight: float = math.inf, share: float = 1.0) -> list[str]:
        """What is odd about so many tasks of this weight in all, from which little is learned."""
        notes = [*self.ids.notes(), *repeated_rows(self.fingerprints, share)]
        if tasks == 1:
            notes.append("there is one task only: what tasks share cannot be learned from one")
        if self.least == self.greatest:
            notes.append(f"every reward is {self.least:g}: there is nothing to learn")
        if self.rows > 2 and self.heaviest > weight / 2.0:
            notes.append(f"a row of weight {self.heaviest:g} counts for more than all others")
        return notes

    def nothing(self, columns: Columns) -> InputError:
        """The error where no row is left to learn from."""
        reasons = []
        if self.bad:
            reasons.append(f"{self.bad.count:,} cannot be used:\n{self.bad}\n")
        if self.weightless:
            reasons.append(f"{self.weightless:,} have weight 0 (--weight {columns.weight})")
        if self.unchosen:
            reasons.append(f"{self.unchosen:,} were not chosen (--chosen {columns.chosen})")
        why = "of their rows, " + " and ".join(reasons) if reasons else "they have no rows"
        return InputError(f"logs must hold rows to learn from; {why}".rstrip())

    def as_json(self) -> dict[str, Any]:
        """For the entry of a checkpoint."""
        return vars(self) | {
            "bad": dataclasses.asdict(self.bad),
            "sampled": None if self.sampled.rows is None else self.sampled.rows.tolist(),
            "ids": vars(self.ids),
            "fingerprints": [keys.astype("<u8").tobytes().hex() for keys in self.fingerprints],
        }

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> ReadSummary:
        """And back."""
        examples = [Example(*example) for example in entry["bad"]["examples"]]
        rows, keys = entry["sampled"], map(bytes.fromhex, entry["fingerprints"])
        changed: dict[str, Any] = {
            "bad": BadRows(**entry["bad"] | {"examples": examples}),
            "sampled": RowSample(None if rows is None else np.array(rows, dtype=np.float64)),
            "ids": IdForms(**entry["ids"]),
            "fingerprints": [np.frombuffer(each, "<u8").astype(np.uint64) for each in keys],
        }
        return cls(**entry | changed)
