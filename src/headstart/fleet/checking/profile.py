"""What is in a log, and what to fix in it: one pass, in bounded memory."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import visible
from headstart.fleet.checking.collinear import Dependence, dependences
from headstart.fleet.checking.findings import Finding, counted, look_for, to_know
from headstart.fleet.checking.rounds import TurnCounts, Turns
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.repeats import IdForms, repeated_rows
from headstart.fleet.reading.rows import BadRows, Rows
from headstart.fleet.summing.outliers import Sampled, Stray, strays

__all__ = ["Profile", "check"]

#: Called with the bytes read so far, and the bytes there are.
Progress = Callable[[float, float], None]

WIDEST = 30  # characters of the longest bar


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
    dependences
        Features that are (nearly) linear combinations of others.
    rank
        How many features are left without those and without constant ones.
    strays
        Columns that a few rows make up, because these have values far out of the usual range.
    heaviest
        The share of the largest weight in all weights; 0 where rows have none.
    extremes
        For every feature, and the reward last, the task with the value farthest out.
    histogram
        How many tasks have how many rounds: from, to, tasks.
    turns
        What was found among the rounds, where a round column was given.
    repeated
        What is logged twice: files that are copies of others, and rows.
    notes
        What is odd about the files, and what will be done about them.
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
    rewards: tuple[float, float, float, float]
    binary: bool
    features: tuple[str, ...]
    means: npt.NDArray[np.float64]
    deviations: npt.NDArray[np.float64]
    lowest: npt.NDArray[np.float64]
    highest: npt.NDArray[np.float64]
    constant: tuple[str, ...]
    dependences: tuple[Dependence, ...]
    rank: int
    strays: tuple[Stray, ...]
    extremes: tuple[str, ...]
    heaviest: float
    histogram: tuple[tuple[int, int, int], ...]
    turns: TurnCounts | None
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
        least, greatest, mean, deviation = (number(value) for value in self.rewards)
        turns = None if self.turns is None else self.turns._asdict()
        return {
            "usable": self.usable,
            "files": self.files,
            "rows": self.rows,
            "tasks": self.tasks,
            "rows_of_evidence": self.shown,
            "bad_rows": {
                "count": self.bad.count,
                "reasons": self.bad.reasons,
                "examples": [example._asdict() for example in self.bad.examples],
            },
            "weightless_rows": self.weightless,
            "missing": self.missing,
            "non_finite": self.non_finite,
            "too_large": self.too_large,
            "reward": {
                "least": least,
                "greatest": greatest,
                "mean": mean,
                "deviation": deviation,
                "binary": self.binary,
            },
            "features": [
                {
                    "name": name,
                    "mean": number(self.means[place]),
                    "deviation": number(self.deviations[place]),
                    "lowest": number(self.lowest[place]),
                    "highest": number(self.highest[place]),
                }
                for place, name in enumerate(self.features)
            ],
            "constant": list(self.constant),
            "rank": self.rank,
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
                {"column": stray.name, "value": number(stray.reach), "usual": stray.size}
                for stray in self.strays
            ],
            "rounds_per_task": [
                {"from": low, "to": high, "tasks": tasks} for low, high, tasks in self.histogram
            ],
            "rounds": turns,
            "repeated": list(self.repeated),
            "notes": list(self.notes),
            "findings": [finding._asdict() for finding in self.findings],
        }

    def __str__(self) -> str:
        lines = [
            f"{counted(self.rows, 'row')} of {counted(self.tasks, 'task')} in "
            f"{counted(self.files, 'file')}, {counted(len(self.features), 'feature')}"
        ]
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
        if self.turns is not None and self.turns.rounds:
            shared = "" if self.turns.share == 1 else f" (of 1 in {round(1 / self.turns.share)})"
            lines += [
                "",
                f"{counted(self.turns.rounds, 'round')}{shared} with "
                f"{counted(self.turns.arms, 'row')} on average",
            ]
        if self.bad:
            lines += ["", f"rows that cannot be used (the first row is 0): {self.bad.count:,}"]
            lines += [f"  {line}" for line in str(self.bad).splitlines()]
        if self.notes:
            lines += ["", "good to know", *(f"  {note}" for note in self.notes)]
        lines.append("")
        if self.findings:
            lines.append("what to fix")
            lines += [f"  {MARKS[finding.level]} {finding.text}" for finding in self.findings]
        else:
            lines.append("nothing to fix")
        return visible("\n".join(lines))


MARKS = {"stop": "✗", "fix": "!"}


def number(value: float) -> float | None:
    """A number for JSON, which knows no NaN."""
    return float(value) if math.isfinite(value) else None


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
        eighths = round(8 * WIDEST * tasks / most)
        if tasks and not eighths:
            eighths = 1
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        lines.append(f"  {label:>{width}}  {bar:<{WIDEST}} {tasks:,}")
    return lines


class Tally:
    """The sums that a profile is made of."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.rows = self.shown = self.weightless = 0
        self.bad = BadRows()
        self.tasks: dict[str, int] = {}
        self.turns = Turns()
        self.shift: npt.NDArray[np.float64] | None = None
        self.total = np.zeros(dim)
        self.gram = np.zeros((dim, dim))
        self.lowest = np.full(dim, np.inf)
        self.highest = np.full(dim, -np.inf)
        self.reward_shift = 0.0
        self.reward_sums = np.zeros(2)
        self.least, self.greatest = math.inf, -math.inf
        self.binary = True
        self.sampled = Sampled()
        self.extremes = [""] * (dim + 1)
        self.heaviest, self.weight = 0.0, 0.0
        self.ids = IdForms()
        self.fingerprints: list[npt.NDArray[np.uint64]] = []

    def add(self, rows: Rows) -> None:
        """Count a block."""
        self.bad += rows.bad
        self.weightless += rows.weightless
        self.rows += rows.count
        self.turns.add(rows)
        self.ids.add(rows.ids, rows.spaced)
        if rows.fingerprints is not None:
            self.fingerprints.append(rows.fingerprints)
        evidence = rows.shown()
        for name in rows.names:
            self.tasks.setdefault(name, 0)
        if not evidence.count:
            return
        self.shown += evidence.count
        counts = np.bincount(evidence.codes, minlength=len(evidence.names)).tolist()
        for name, count in zip(evidence.names, counts, strict=True):
            self.tasks[name] += count
        self.sampled.look(evidence)
        if evidence.weights is not None:
            self.heaviest = max(self.heaviest, float(evidence.weights.max()))
            self.weight += float(evidence.weights.sum())
        names = evidence.names
        at = self.add_rewards(evidence.rewards)
        if at is not None:
            self.extremes[-1] = names[evidence.codes[at]]
        for start in range(0, evidence.count, 1 << 16):
            block = evidence.features[start : start + (1 << 16)].astype(np.float64)
            for place, row in self.add_features(block):
                self.extremes[place] = names[evidence.codes[start + row]]

    def add_rewards(self, rewards: npt.NDArray[np.float64]) -> int | None:
        """Sums of rewards, taken from the first to keep digits; gives a new extreme's place."""
        if self.least == math.inf:
            self.reward_shift = float(rewards[0])
        before = max(abs(self.least), abs(self.greatest)) if self.least < math.inf else -1.0
        self.least = min(self.least, float(rewards.min()))
        self.greatest = max(self.greatest, float(rewards.max()))
        self.binary = self.binary and bool(((rewards == 0) | (rewards == 1)).all())
        with np.errstate(over="ignore"):
            centred = rewards - self.reward_shift
            self.reward_sums += centred.sum(), (centred * centred).sum()
        if max(abs(self.least), abs(self.greatest)) > before:
            return int(np.abs(rewards).argmax())
        return None

    def add_features(self, features: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
        """Sums of features and their products; gives the places and rows of new extremes.

        They are taken from the first block's medians, which a row that is far out does not move.
        """
        before = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        if self.shift is None:
            before[:] = -1.0
            self.shift = np.median(features, axis=0)
        self.lowest = np.minimum(self.lowest, features.min(axis=0))
        self.highest = np.maximum(self.highest, features.max(axis=0))
        farther = np.flatnonzero(np.maximum(np.abs(self.lowest), np.abs(self.highest)) > before)
        rows = np.abs(features[:, farther]).argmax(axis=0) if len(farther) else []
        found = list(zip(farther.tolist(), np.asarray(rows).tolist(), strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            features -= self.shift
            self.total += features.sum(axis=0)
            self.gram += features.T @ features
        return found

    def far_out(self, names: tuple[str, ...]) -> list[Stray]:
        """Columns that a few rows make up."""
        if self.sampled.rows is None or self.shift is None:
            return []
        centre, size = self.sampled.typical()
        shift = np.append(self.shift, self.reward_shift)
        sums = np.append(self.total, self.reward_sums[0])
        squares = np.append(np.diag(self.gram), self.reward_sums[1])
        away = centre - shift
        with np.errstate(over="ignore", invalid="ignore"):
            squares = squares - 2.0 * away * sums + self.shown * away**2
        columns = [*(f"feature {name}" for name in names), "reward"]
        return strays(columns, away, size, squares, self.shown)

    def profile(self, logs: Logs) -> Profile:
        """What the sums say."""
        count = max(self.shown, 1)
        offset = self.total / count
        means = offset + (0 if self.shift is None else self.shift)
        with np.errstate(over="ignore", invalid="ignore"):
            centred = self.gram - count * np.outer(offset, offset)
            spread = np.maximum(np.diag(centred), 0.0)
            found: tuple[Dependence, ...] = ()
            out = self.far_out(logs.feature_names)
            far = {stray.name for stray in out}
            skip = np.array([f"feature {name}" in far for name in logs.feature_names])
            if self.shown and np.isfinite(centred).all():
                found = tuple(dependences(centred, means, count, skip))
        steady = self.lowest == self.highest if self.shown else np.zeros(self.dim, dtype=bool)
        constant = tuple(np.array(logs.feature_names)[steady].tolist())
        drift = self.reward_sums[0] / count
        variance = max(self.reward_sums[1] / count - drift * drift, 0.0)
        return Profile(
            files=len(logs.files),
            rows=self.rows,
            tasks=len(self.tasks),
            shown=self.shown,
            bad=self.bad,
            weightless=self.weightless,
            missing=columns_with(self.bad, " is missing"),
            non_finite=columns_with(self.bad, " is not finite"),
            too_large=columns_with(self.bad, " is too large"),
            rewards=(
                self.least,
                self.greatest,
                float(drift + self.reward_shift),
                math.sqrt(variance),
            ),
            binary=self.binary and self.shown > 0,
            features=logs.feature_names,
            means=means,
            deviations=np.sqrt(spread / count),
            lowest=self.lowest,
            highest=self.highest,
            constant=constant,
            dependences=found,
            rank=self.dim - len(found) - len(constant) if self.shown else 0,
            strays=tuple(out),
            extremes=tuple(self.extremes),
            heaviest=self.heaviest / self.weight if self.weight else 0.0,
            histogram=doubling(self.tasks),
            turns=self.turns.counts() if logs.columns.round is not None else None,
            repeated=(
                *logs.survey().copies,
                *repeated_rows(self.fingerprints, logs.survey().share),
            ),
            notes=(*logs.survey().notes, *self.ids.notes()),
        )


def columns_with(bad: BadRows, ending: str) -> dict[str, int]:
    """How many rows have a certain fault, by column."""
    return {
        reason.removesuffix(ending): count
        for reason, count in bad.reasons.items()
        if reason.endswith(ending)
    }


def doubling(tasks: dict[str, int]) -> tuple[tuple[int, int, int], ...]:
    """How many tasks have 1, 2–3, 4–7, … rounds.

    >>> doubling({"a": 1, "b": 5, "c": 7})
    ((1, 1, 1), (2, 3, 0), (4, 7, 2))
    """
    sizes = np.fromiter(tasks.values(), dtype=np.int64, count=len(tasks))
    if not len(sizes):
        return ()
    bins = np.bincount([int(size).bit_length() for size in sizes.tolist()])
    first = int(np.flatnonzero(bins)[0])
    return tuple(
        (1 << (bits - 1), (1 << bits) - 1, int(bins[bits])) if bits else (0, 0, int(bins[0]))
        for bits in range(first, len(bins))
    )


def check(logs: Logs, *, progress: Progress | None = None) -> Profile:
    """Read a log once and say what is in it, and what to fix.

    Bad rows are counted and never refused here; with ``on_bad_rows="error"`` they are among what
    must be fixed. Memory is bounded: sums, and a count for every task.

    Parameters
    ----------
    logs
        The log.
    progress
        Called with the bytes read so far, and the bytes there are.
    """
    if not isinstance(logs, Logs):
        raise checks.refuse("logs", "headstart.fleet.Logs", logs)
    lenient = copy.copy(logs)
    lenient.on_bad_rows = "skip"
    parts = lenient.parts()
    logs.surveyed, lenient.share = lenient.surveyed, lenient.survey().share
    whole = sum(part.bytes for part in parts)
    done = 0
    tally = Tally(logs.dim)
    for part in parts:
        for rows in lenient.read(part, threads=True):
            tally.add(rows)
        done += part.bytes
        if progress is not None:
            progress(done, whole)
    profile = tally.profile(logs)
    return dataclasses.replace(
        profile,
        findings=tuple(look_for(profile, logs)),
        notes=(*profile.notes, *to_know(profile)),
    )
