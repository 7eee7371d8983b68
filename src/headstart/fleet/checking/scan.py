"""Scanning a log: one pass, in bounded memory, that ends in a profile."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.fleet.checking.collinear import Dependence, dependences
from headstart.fleet.checking.findings import look_for, to_know
from headstart.fleet.checking.profile import Profile
from headstart.fleet.checking.rounds import Turns
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.repeats import IdForms, repeated_rows
from headstart.fleet.reading.rows import BadRows, Rows
from headstart.fleet.summing.outliers import Sampled, Stray, strays

__all__ = ["check"]

#: Called with the bytes read so far, and the bytes there are.
Progress = Callable[[float, float], None]


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
