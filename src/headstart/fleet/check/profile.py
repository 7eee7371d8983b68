"""The result of a scan of a log, as text and as data."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import visible
from headstart.fleet.check.findings import Finding
from headstart.fleet.reading.rows import BadRows, plain
from headstart.fleet.summing.summary import Outlier
from headstart.lab.text import count

MAX_BAR_WIDTH = 30  # characters of the longest bar
#: Of a feature's variance, what others leave unexplained of it if they determine it exactly.
MAX_EXACT_SHARE = 1e-10

#: Attributes that have the same name in a summary.
SHARED_NAMES = ["files", "rows", "tasks", "task_share", "items", "missing", "non_finite"]
SHARED_NAMES += [
    "too_large",
    "constant",
    "proportional",
    "rank",
    "rounds",
    "repeated",
    "notes",
    "findings",
]


class RoundCounts(NamedTuple):
    """Statistics of the rounds of a log, or of a sample of them.

    Attributes
    ----------
    rounds
        How many rounds were counted.
    share
        Which share of all rounds that is; 1 for all.
    repeated
        Rounds with more than one row.
    arms
        The mean number of rows of a round.
    unchosen, overchosen
        Rounds with no arm chosen, and with more than one.
    summed, off
        Rounds in which every arm has a propensity, and those of them whose sum is not 1.
    """

    rounds: int
    share: float
    repeated: int
    arms: float
    unchosen: int
    overchosen: int
    summed: int
    off: int


class Dependence(NamedTuple):
    """A feature that is a linear combination of others and a constant.

    Attributes
    ----------
    feature
        The place of the feature.
    terms
        The places of those that make it up, largest share first, and their coefficients.
    unexplained
        The share of its variance that they leave; 0 up to rounding where it is exact.
    constant
        What is added to them.
    """

    feature: int
    terms: list[tuple[int, float]]
    unexplained: float
    constant: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing is left but rounding."""
        return self.unexplained <= MAX_EXACT_SHARE


@dataclasses.dataclass(frozen=True)
class Profile:
    """What :func:`check` found.

    Attributes
    ----------
    files, rows, tasks
        How many there are; rows and tasks without those that cannot be used.
    shown
        How many rows count as evidence: those that were chosen, or all.
    bad
        The rows that cannot be used.
    weightless
        How many rows have weight 0.
    missing, non_finite, too_large
        For every column with such cells, how many rows have one.
    rewards
        Least, greatest, mean and standard deviation.
    binary
        Whether every reward is 0 or 1.
    features
        The names of the features.
    means, deviations, lowest, highest
        Of every feature.
    constant
        Features that never change.
    proportional
        Features that differ tenfold or more between tasks, in size and in variation.
    dependences
        Features that are (nearly) linear combinations of others.
    rank
        How many features are left without those and without constant ones.
    outliers
        Columns dominated by a few rows with values far out of the usual range.
    heaviest
        The share of the largest weight in all weights; 0 where rows have none.
    extremes
        For every feature, and the reward last, the task with the value farthest out.
    histogram
        How many tasks have how many rounds: from, to, tasks.
    items
        How many different ids items have, where the schema knows items by them.
    task_share
        Which share of all tasks was counted; below 1, the numbers of tasks are estimates.
    rounds
        Statistics of rounds, where a round column was given.
    repeated
        What is logged twice: files that are copies of others, and rows.
    notes
        Notes on the files, and how they are treated.
    findings
        What to fix, the worst first.
    """

    files: int
    rows: int
    tasks: int
    shown: int
    bad: BadRows
    weightless: int
    missing: dict[str, int]
    non_finite: dict[str, int]
    too_large: dict[str, int]
    rewards: tuple[float, ...]
    binary: bool
    features: tuple[str, ...]
    means: npt.NDArray[np.float64]
    deviations: npt.NDArray[np.float64]
    lowest: npt.NDArray[np.float64]
    highest: npt.NDArray[np.float64]
    constant: tuple[str, ...]
    proportional: tuple[str, ...]
    dependences: tuple[Dependence, ...]
    rank: int
    outliers: tuple[Outlier, ...]
    extremes: tuple[str, ...]
    heaviest: float
    histogram: tuple[tuple[int, int, int], ...]
    task_share: float
    items: int
    rounds: RoundCounts | None
    repeated: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a prior can be learned from the log as it is."""
        return not any(finding.level == "stop" for finding in self.findings)

    @property
    def single(self) -> int:
        """How many tasks have one row only."""
        return next((tasks for low, high, tasks in self.histogram if low == high == 1), 0)

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers and text, for JSON."""
        columns = self.features, self.means, self.deviations, self.lowest, self.highest
        reward = dict(zip(("least", "greatest", "mean", "deviation"), self.rewards, strict=True))
        summary = {
            "usable": self.usable,
            **{name: getattr(self, name) for name in SHARED_NAMES},
            "rows_of_evidence": self.shown,
            "bad_rows": self.bad,
            "weightless_rows": self.weightless,
            "reward": {**reward, "binary": self.binary},
            "features": [
                dict(zip(("name", "mean", "deviation", "lowest", "highest"), each, strict=True))
                for each in zip(*columns, strict=True)
            ],
            "collinear": [
                {
                    "feature": self.features[one.feature],
                    "terms": {self.features[place]: factor for place, factor in one.terms},
                    "constant": one.constant,
                    "unexplained": one.unexplained,
                }
                for one in self.dependences
            ],
            "far_out": [
                {"column": outlier.name, "value": outlier.reach, "usual": outlier.size}
                for outlier in self.outliers
            ],
            "rounds_per_task": [
                {"from": low, "to": high, "tasks": tasks} for low, high, tasks in self.histogram
            ],
        }
        return plain(summary)

    def __str__(self) -> str:
        about = "" if self.task_share == 1 else "about "
        lines = [
            f"{count(self.rows, 'row')} of {about}{count(self.tasks, 'task')} in "
            f"{count(self.files, 'file')}, {count(len(self.features), 'feature')}"
        ]
        if about:
            lines.append(
                f"tasks are counted by 1 in {round(1 / self.task_share)}, chosen by a hash of "
                f"their ids"
            )
        if self.shown != self.rows:
            lines.append(f"rows that were chosen and count as evidence: {self.shown:,}")
        if self.weightless:
            lines.append(f"rows of weight 0, which are left out: {self.weightless:,}")
        if self.shown:
            least, greatest, mean, deviation = self.rewards
            kind = ", all 0 or 1" if self.binary else ""
            lines.append(
                f"rewards from {least:.4g} to {greatest:.4g}, mean {mean:.4g}, standard deviation "
                f"{deviation:.4g}{kind}"
            )
            moving = self.deviations[self.lowest < self.highest]
            if len(moving):
                lines.append(
                    f"features' standard deviations from {moving.min():.3g} to {moving.max():.3g}; "
                    f"{self.rank} of {len(self.features)} independent"
                )
            lines += ["", "rounds per task", *bars(self.histogram)]
        rounds = self.rounds
        if rounds is not None and rounds.rounds:
            shared = "" if rounds.share == 1 else f" (of 1 in {round(1 / rounds.share)})"
            lines += [
                "",
                f"{count(rounds.rounds, 'round')}{shared}; rows per round: {rounds.arms:.3g}",
            ]
        if self.bad:
            lines += ["", f"rows that cannot be used (the first row is 0): {self.bad.count:,}"]
            lines += [f"  {line}" for line in str(self.bad).splitlines()]
        if self.notes:
            lines += ["", "good to know", *(f"  {note}" for note in self.notes)]
        lines.append("")
        if self.findings:
            lines.append("what to fix")
            lines += [f"  {LEVEL_MARKS[finding.level]} {finding.text}" for finding in self.findings]
        else:
            lines.append("nothing to fix")
        return visible("\n".join(lines))


LEVEL_MARKS = {"stop": "✗", "fix": "!"}


def bars(histogram: tuple[tuple[int, int, int], ...]) -> list[str]:
    """A histogram as lines of text.

    >>> for line in bars(((1, 1, 3), (2, 3, 12))):
    ...     print(line)
      1  ███████▌                       3
    2–3  ██████████████████████████████ 12
    """
    most = max((tasks for _, _, tasks in histogram), default=1)
    labels = [f"{low:,}" if low == high else f"{low:,}–{high:,}" for low, high, _ in histogram]
    width = max(map(len, labels), default=0)
    lines = []
    for label, (_, _, tasks) in zip(labels, histogram, strict=True):
        eighths = max(round(8 * MAX_BAR_WIDTH * tasks / most), int(tasks > 0))
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        lines.append(f"  {label:>{width}}  {bar:<{MAX_BAR_WIDTH}} {tasks:,}")
    return lines
