"""What was read of logs: counts, a sample of rows, values far out of range.

A value far out of its column's range can outweigh all other rows in sums of squares, and in the
standard deviation by which a feature is divided. A sample of rows shows what is typical: a column's
median c, and its size s, the median distance from c of the values that differ from it. Where the
root mean square of x − c is much larger than s, few rows make up the sum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headstart.bandit.rewards import RewardModel
from headstart.errors import InputError
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.logs import Part
from headstart.fleet.reading.rows import BadRows, Example, Rows, plain
from headstart.model.evidence import Evidence
from headstart.transfer.standardize import CONSTANT_SHARE

Result = TypeVar("Result")


Array = npt.NDArray[np.float64]

#: How many times s the root mean square is where it is told, and where nothing is learned.
NOTABLE, HIDING = 1e2, 1e6
MAX_SAMPLE_ROWS = 256  # rows of a sample, fewer if they are wide
NUMBERS = 20_000
BLOCK = 32  # rows of a block that are looked at
LARGE_WEIGHT = 2.0  # an average weight that is likely to be a number of rewards
ADVICE = "a few rows outweigh all others. Repair them, or clip the column or take its logarithm"


def thin(*parts: Array | None) -> Array | None:
    """Some of the rows of all parts: every second, again and again, until they are few."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    rows = given[0] if len(given) == 1 else np.concatenate(given)
    most = int(np.clip(NUMBERS // rows.shape[1], 16, MAX_SAMPLE_ROWS))
    while len(rows) > most:
        rows = rows[::2]
    return rows


def sample_block(rows: Rows) -> Array:
    """A few rows of a block, evenly spread: features, and the reward last."""
    use = np.arange(rows.count) if rows.chosen is None else np.flatnonzero(rows.chosen)
    use = use[:: max(1, -(-len(use) // BLOCK))]
    return np.column_stack([rows.features[use], rows.rewards[use]]).astype(np.float64)


def typical(rows: Array, centred: bool = True) -> tuple[Array, Array]:
    """The median and the size of each column; a size of NaN where all rows are the same.

    >>> typical(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1e9, 0.0]]))
    (array([2.5, 0. ]), array([ 1., nan]))
    """
    centre = np.median(rows, 0) if centred else np.zeros(rows.shape[1])
    away = np.abs(rows - centre)
    sizes = [np.median(part[part > 0]) if (part > 0).any() else np.nan for part in away.T]
    return centre, np.array(sizes)


class Outlier(NamedTuple):
    """A column that few rows make up: its root mean square in sizes, and its largest, about."""

    name: str
    times: float
    reach: float
    size: float

    @property
    def drowns_others(self) -> bool:
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
    outliers = []
    for name, middle, usual, square in zip(names, centre, size, squares, strict=True):
        rounding = 1e-12 * count * middle * middle
        if not usual > 0 or not square > rounding:
            continue
        times = float(np.sqrt((square - rounding) / max(count, 1.0)) / usual)
        if times > NOTABLE:
            outliers.append(Outlier(name, times, float(np.sqrt(square)), float(usual)))
    return outliers


def column_notes(
    names: Sequence[str], intercept: bool, every: Evidence, sampled: Array | None
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
    if sampled is None:
        return []
    dim, count = len(names), float(every.gram[-1, -1] if intercept else every.rounds)
    sampled = sampled[:, [*range(dim), -1]]  # the features and the reward
    centre, size = typical(sampled, centred=intercept)
    squares = np.append(np.diag(every.gram)[:dim], every.squares)
    sums = np.zeros(dim + 1)
    if intercept:
        sums = np.append(every.gram[dim, :dim], every.moment[dim])
    squares = squares - 2.0 * centre * sums + count * centre**2
    columns = [*(f"feature {name}" for name in names), "reward"]
    outliers = find_outliers(columns, centre, size, squares, count)
    lost = [outlier for outlier in outliers if outlier.drowns_others]
    if lost:
        more = f" (and {len(lost) - 1} more like it)" if len(lost) > 1 else ""
        raise InputError(
            f"logs must not have values so far out that all others are lost in rounding; "
            f"{lost[0]}{more}: find the rows with headstart check, and repair or remove them"
        )
    notes = [f"{outlier}: {ADVICE}" for outlier in outliers]
    if intercept:
        mean = sums[:dim] / count
        around = np.diag(every.gram)[:dim] / count - mean**2
        flat = (around <= CONSTANT_SHARE * mean**2) & (np.ptp(sampled[:, :dim], axis=0) > 0)
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
        The range of the rewards as they are learned.
    sampled
        A sample of the rows, to determine what is usual.
    heaviest, weight
        The largest weight, and the sum of all; 0 where rows have none.
    whole_id, fraction_id, spaced_id
        Ids of the log: a whole number, such a number with ``.0``, and one with white space around
        it.
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
    sampled: Array | None = None
    heaviest: float = 0.0
    weight: float = 0.0
    whole_id: str = ""
    fraction_id: str = ""
    spaced_id: str = ""
    fingerprints: list[Any] = dataclasses.field(default_factory=list)

    def add(self, other: ReadSummary) -> None:
        """Count another's too."""
        counts = ("rows", "bad", "weightless", "parts", "unchosen", "fingerprints", "weight")
        for name in counts:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.heaviest = max(self.heaviest, other.heaviest)
        self.sampled = thin(self.sampled, other.sampled)
        for name in ("whole_id", "fraction_id", "spaced_id"):
            setattr(self, name, getattr(self, name) or getattr(other, name))

    def count(self, rows: Rows) -> None:
        """Count a block."""
        chosen = slice(None) if rows.chosen is None else rows.chosen
        rewards = rows.rewards[chosen]
        self.rows += len(rewards)
        self.unchosen += rows.count - len(rewards)
        self.bad += rows.bad
        self.weightless += rows.weightless
        self.look_at_ids(rows.ids, rows.spaced)
        if rows.fingerprints is not None:
            self.fingerprints.append(rows.fingerprints)
        if len(rewards):
            self.least = min(self.least, float(rewards.min()))
            self.greatest = max(self.greatest, float(rewards.max()))
            self.sampled = thin(self.sampled, sample_block(rows))
            if rows.weights is not None:
                self.heaviest = max(self.heaviest, float(rows.weights[chosen].max()))
                self.weight += float(rows.weights[chosen].sum())

    def look_at_ids(self, ids: pa.Array, spaced: str) -> None:
        """Look at the ids of a block: at all for ``.0``, at the first for whole numbers."""
        self.spaced_id = self.spaced_id or spaced
        if not self.whole_id:
            self.whole_id = first_match(ids[:1000].cast(pa.string()), r"^-?[0-9]+$")
        if not self.fraction_id and not pa.types.is_integer(ids.type):
            self.fraction_id = first_match(ids.filter(pc.ends_with(ids, ".0")), r"^-?[0-9]+\.0$")

    def reading_notes(self) -> list[str]:
        """Which ids are easily taken for others, and weights for numbers of rewards."""
        notes = []
        if self.whole_id and self.fraction_id:
            notes.append(
                f"task ids such as {self.fraction_id!r} are there beside whole numbers such as "
                f"{self.whole_id!r}: ids are compared as text, so 7.0 and 7 are different tasks"
            )
        if self.spaced_id:
            notes.append(
                f"white space around task ids is removed, as in {self.spaced_id!r}: it is not part "
                f"of an id"
            )
        fractional = self.sampled is not None and (self.sampled[:, -1] % 1.0 != 0).any()
        if self.weight - self.heaviest > LARGE_WEIGHT * self.rows and fractional:
            notes.append(
                f"weights are {self.weight / self.rows:.3g} on average: a row of weight w is w "
                f"equal rewards. If rewards are means of so many, name the column by mean_of "
                f"(--mean-of) instead; else the noise is estimated far too small"
            )
        return notes

    def repeats(self, share: float) -> list[str]:
        """A sentence where rows are logged more than once; fingerprints are those of a share.

        >>> ReadSummary(fingerprints=[np.array([1, 2, 3]), np.array([2])]).repeats(1.0)[0][:42]
        '1 row is there again with the same task, t'
        """
        keys = np.concatenate([np.zeros(0, np.uint64), *self.fingerprints])
        copies = len(keys) - len(np.unique(keys))
        if not copies:
            return []
        if share < 1:
            count = f"about {copies / share:,.0f} rows are"
        else:
            count = "1 row is" if copies == 1 else f"{copies:,} rows are"
        return [
            f"{count} there again with the same task, time or round, reward and features, and "
            f"count again: are rows logged twice?"
        ]

    def reward_range(self, rewards: RewardModel) -> tuple[float, float]:
        """The range of the rewards, as the log has them."""
        ends = rewards.read_many(np.array([self.least, self.greatest]))
        return float(ends.min()), float(ends.max())

    def notes(
        self,
        tasks: int,
        rewards: RewardModel,
        share: float = 1.0,
    ) -> list[str]:
        """Notes on what was read of a number of tasks, where little can be learned."""
        notes = [*self.reading_notes(), *self.repeats(share)]
        notes += no_differences(tasks, *self.reward_range(rewards))
        if self.rows > 2 and self.heaviest > self.weight / 2.0:
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
        ends = {"least": self.least, "greatest": self.greatest}  # which may be infinite
        entry: dict[str, Any] = plain(vars(self)) | ends
        return entry

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> ReadSummary:
        """And back."""
        bad, sampled = entry["bad"], entry["sampled"]
        examples = [Example(**example) for example in bad["examples"]]
        arrays = {
            "bad": BadRows(bad["count"], bad["reasons"], examples),
            "sampled": None if sampled is None else np.array(sampled, dtype=np.float64),
            "fingerprints": [np.array(keys, np.uint64) for keys in entry["fingerprints"]],
        }
        return cls(**entry | arrays)


def no_differences(tasks: int, least: float, greatest: float) -> list[str]:
    """What leaves nothing to learn: a single task, or rewards that are all alike."""
    notes = []
    if tasks == 1:
        notes.append("there is one task only: what tasks share cannot be learned from one")
    if least == greatest:
        notes.append(f"every reward is {least:g}: there is nothing to learn")
    return notes


def first_match(texts: pa.Array, pattern: str) -> str:
    """The first text that matches a pattern, or nothing."""
    matches = texts.filter(pc.match_substring_regex(texts, pattern))
    return matches[0].as_py() if len(matches) else ""


#: Called with what is being done, how much of it is done and how much there is in all.
Progress = Callable[[str, float, float], None]


def no_progress(*_: object) -> None:
    """Report nothing."""


class FinishedParts:
    """How much of some parts was read: rows, or bytes where rows are not known."""

    def __init__(self, parts: Sequence[Part], progress: Progress) -> None:
        in_rows = all(part.rows is not None for part in parts)
        self.left = {part.key: float((part.rows or 0) if in_rows else part.bytes) for part in parts}
        self.reached, self.total, self.progress = 0.0, sum(self.left.values()), progress

    def add(self, keys: Iterable[str]) -> bool:
        """These were read; gives whether some of them are new."""
        more = [self.left.pop(key) for key in keys if key in self.left]
        self.reached += sum(more)
        self.progress("reading", self.reached, self.total)
        return bool(more)


def report_parts(
    parts: Sequence[Part], results: Iterable[Result], progress: Progress
) -> Iterator[Result]:
    """The results of parts, in their order; ``progress`` is called after each was used."""
    finished = FinishedParts(parts, progress)
    for part, result in zip(parts, results, strict=True):
        yield result
        finished.add([part.key])
