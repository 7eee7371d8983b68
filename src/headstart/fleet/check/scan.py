"""Scanning a log: one read, in bounded memory, that ends in a profile.

Every part of the log gives a :class:`Scan`, and scans add up, so that parts may be read anywhere.
Tasks and rounds are counted by their hashes; of very many, a sample of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart import checks
from headstart.fleet.check.findings import find_problems, notes_on_columns
from headstart.fleet.check.profile import MAX_EXACT_SHARE, Dependence, Profile, RoundCounts
from headstart.fleet.engines.threads import job_runner
from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.hashing import KeyedSums, count_by_doubling, hash_ids
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import BadRows, Rows
from headstart.fleet.summing.summary import (
    Outlier,
    ReadSummary,
    find_outliers,
    no_progress,
    report_parts,
    typical,
)
from headstart.transfer.task_levels import LEVEL_TASKS, varies_in_proportion
from headstart.transfer.task_order import mix_bits

Floats = npt.NDArray[np.float64]

#: Called with the rows (or, where the number of rows is unknown, bytes) read so far, and in all.
Progress = Callable[[float, float], None]

BLOCK = 1 << 16  # rows whose products are added up at a time

MIN_LEFT_SHARE = 1e-5
SHOWN = 1e-3  # a term smaller than this, in standard deviations, is not worth naming …
SHOWN_IF_EXACT = 1e-5  # … unless the relation is exact, and would not be without it


def check(
    logs: Logs,
    *,
    cluster: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Read a log once and say what is in it, and what to fix.

    Bad rows are counted and never refused here; with ``on_bad_rows="error"`` they are among what
    must be fixed. Memory is bounded: of more than two million tasks or rounds, a sample is counted,
    and the profile says so.

    Parameters
    ----------
    logs
        The log.
    cluster, workers
        As for :func:`~headstart.fleet.fit`: a Ray cluster, or this machine, and how many cores.
    progress
        Called with the rows (or, where the number of rows is unknown, bytes) read so far, and
        those there are.
    """
    if not isinstance(logs, Logs):
        raise checks.invalid("logs", "headstart.fleet.Logs", logs)
    parts, scan = logs.parts(), Scan(logs.dim)
    lenient = logs.replace(on_bad_rows="skip", share=logs.survey.share)
    tell = progress or no_progress
    with job_runner(cluster, workers) as map_jobs:
        results = map_jobs(scan_part, parts, lenient)
        for own in report_parts(parts, results, lambda _, *done: tell(*done)):
            scan.merge(own)
    profile = make_profile(scan, logs)
    return dataclasses.replace(
        profile,
        findings=tuple(find_problems(profile, logs)),
        notes=(*profile.notes, *notes_on_columns(profile, logs)),
    )


def scan_part(part: Part, logs: Logs) -> Scan:
    """What one part of a log holds."""
    scan = Scan(logs.dim)
    for rows in logs.read(part, transposed=False):
        scan.add(rows)
    for counts in (scan.tasks, scan.rounds, scan.items, scan.levels):
        counts.combine()  # so that less is sent
    return scan


@dataclasses.dataclass
class ColumnSums:
    """Count n, mean μ, Σ (x − μ)(x − μ)ᵀ and range of columns.

    ``extremes`` are the tasks of the values farthest out.
    """

    count: int
    mean: Floats
    scatter: Floats
    lowest: Floats
    highest: Floats
    extremes: list[str]

    @classmethod
    def zero(cls, dim: int) -> ColumnSums:
        """Those of no rows."""
        ends = np.full(dim, np.inf), np.full(dim, -np.inf)
        return cls(0, np.zeros(dim), np.zeros((dim, dim)), *ends, [""] * dim)

    @classmethod
    def of(cls, table: Floats) -> ColumnSums:
        """Those of some rows, without their tasks."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = table.mean(0)
            centred = table - mean
            mean += centred.mean(0)  # what rounding has left
            scatter = centred.T @ centred
        return cls(len(table), mean, scatter, table.min(0), table.max(0), [])

    def add(self, other: ColumnSums, extreme: Callable[[int], str]) -> None:
        """Add those of other rows, after Chan, Golub & LeVeque (1979).

        ``extreme`` gives the task of the other's value farthest out in a column.
        """
        if not other.count:
            return
        for place in np.flatnonzero(other.sizes() > self.sizes()).tolist():
            self.extremes[place] = extreme(place)
        self.lowest = np.minimum(self.lowest, other.lowest)
        self.highest = np.maximum(self.highest, other.highest)
        before, self.count = self.count, self.count + other.count
        with np.errstate(over="ignore", invalid="ignore"):
            away = other.mean - self.mean
            apart = np.outer(away, away) * (before * other.count / self.count)
            self.scatter = self.scatter + other.scatter + apart
            self.mean = self.mean + away * (other.count / self.count)

    def sizes(self) -> Floats:
        """The largest size of each column; below 0 where there is none."""
        sizes: Floats = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        return sizes if self.count else np.full(len(sizes), -1.0)


class Scan:
    """The sums that a profile is made of. Columns are the features, and the reward last."""

    def __init__(self, dim: int) -> None:
        self.summary = ReadSummary()
        self.tasks = KeyedSums(np.add)
        self.rounds = KeyedSums(np.add, np.add, np.add, np.add)
        self.items = KeyedSums(np.add)
        self.levels = KeyedSums(np.add, np.add, np.add, max_keys=LEVEL_TASKS)
        self.columns = ColumnSums.zero(dim + 1)
        self.binary = True

    def add(self, rows: Rows) -> None:
        """Add a block."""
        self.summary.count(rows)
        keys = hash_ids(rows.ids)
        codes = rows.codes if rows.chosen is None else rows.codes[rows.chosen]
        self.tasks.add(keys, np.bincount(codes, minlength=len(keys)))
        if rows.rounds is not None:  # rows, chosen rows, propensities and rows without, by round
            none, ones = np.zeros(rows.count), np.ones(rows.count)
            chosen = none if rows.chosen is None else rows.chosen.astype(np.float64)
            chances = none if rows.propensities is None else rows.propensities
            counts = ones, chosen, np.nan_to_num(chances), np.isnan(chances) * 1.0
            round_keys = mix_bits(keys[rows.codes] + mix_bits(rows.rounds.view(np.uint64)))
            self.rounds.add(round_keys, *counts)
        evidence = rows.chosen_rows()
        if not evidence.count:
            return
        if evidence.items is not None:
            counted = pa.array(evidence.items, pa.large_string()).value_counts()
            self.items.add(hash_ids(counted.field("values")), as_array(counted.field("counts")))
        self.binary &= bool(((evidence.rewards == 0) | (evidence.rewards == 1)).all())
        for start in range(0, evidence.count, BLOCK):
            here = slice(start, start + BLOCK)
            table = np.column_stack([evidence.features[here], evidence.rewards[here]])
            table = table.astype(np.float64, copy=False)
            extreme = functools.partial(farthest_task, table, evidence.ids, evidence.codes[here])
            self.columns.add(ColumnSums.of(table), extreme)
        self.add_levels(hash_ids(evidence.ids)[evidence.codes[:BLOCK]], evidence.features[:BLOCK])

    def add_levels(self, keys: npt.NDArray[np.uint64], features: npt.NDArray[Any]) -> None:
        """Add the rows, the sums and the sums of squares of features to those of tasks."""
        use = np.flatnonzero(keys <= np.uint64(self.levels.limit - 1))
        table = features[use].astype(np.float64)
        self.levels.add(keys[use], np.ones(len(use)), table, table**2)
        self.levels.combine()

    def unlike_levels(self) -> npt.NDArray[np.bool_]:
        """Which features differ in size by orders of magnitude between tasks."""
        rounds, sums, squares = self.levels.columns
        if not len(rounds):
            return np.zeros(len(self.columns.mean) - 1, dtype=bool)
        return varies_in_proportion(rounds, sums / rounds[:, None], squares / rounds[:, None])

    def merge(self, other: Scan) -> None:
        """Add all that another one has seen."""
        self.summary.add(other.summary)
        self.tasks.merge(other.tasks)
        self.rounds.merge(other.rounds)
        self.items.merge(other.items)
        self.levels.merge(other.levels)
        self.columns.add(other.columns, other.columns.extremes.__getitem__)
        self.binary &= other.binary

    def round_counts(self) -> RoundCounts:
        """What there is to know about the rounds."""
        rows, chosen, propensities, without = self.rounds.columns
        known = without == 0
        return RoundCounts(
            rounds=len(rows),
            share=self.rounds.share,
            repeated=int((rows > 1).sum()),
            arms=float(rows.mean()) if len(rows) else 0.0,
            unchosen=int((chosen == 0).sum()),
            overchosen=int((chosen > 1).sum()),
            summed=int(known.sum()),
            off=int((known & (np.abs(propensities - 1) > 1e-3)).sum()),
        )

    def outliers(self, names: tuple[str, ...]) -> list[Outlier]:
        """Columns that a few rows make up."""
        if self.summary.sampled is None:
            return []
        centre, size = typical(self.summary.sampled)
        count, away = self.columns.count, centre - self.columns.mean
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.diag(self.columns.scatter) + count * away**2
        columns = [*(f"feature {name}" for name in names), "reward"]
        return find_outliers(columns, away, size, squares, count)


def farthest_task(table: Floats, ids: pa.Array, codes: npt.NDArray[Any], column: int) -> str:
    """The task of the row whose value in a column is farthest from 0; tasks are ``ids[codes]``."""
    return str(ids[int(codes[np.abs(table[:, column]).argmax()])].as_py())


def make_profile(scan: Scan, logs: Logs) -> Profile:
    """What a scan of all parts says about a log."""
    names, columns = logs.feature_names, scan.columns
    shown, means, scatter = columns.count, columns.mean, columns.scatter
    outliers = scan.outliers(names)
    relations: tuple[Dependence, ...] = ()
    with np.errstate(invalid="ignore"):
        deviations = np.sqrt(np.maximum(np.diag(scatter), 0.0) / max(shown, 1))
        if shown and np.isfinite(scatter[:-1, :-1]).all():
            far = {outlier.name for outlier in outliers}
            skip = np.array([f"feature {name}" in far for name in names], dtype=bool)
            relations = tuple(dependences(scatter[:-1, :-1], means[:-1], shown, skip))
    lowest, highest = columns.lowest[:-1], columns.highest[:-1]
    constant = tuple(np.array(names)[(lowest == highest) & (shown > 0)].tolist())
    share = scan.tasks.share
    return Profile(
        files=len(logs.files),
        rows=scan.summary.rows + scan.summary.unchosen,
        tasks=scan.tasks.total,
        shown=shown,
        bad=scan.summary.bad,
        weightless=scan.summary.weightless,
        missing=columns_with(scan.summary.bad, " is missing"),
        non_finite=columns_with(scan.summary.bad, " is not finite"),
        too_large=columns_with(scan.summary.bad, " is too large"),
        rewards=tuple(
            float(part[-1]) for part in (columns.lowest, columns.highest, means, deviations)
        ),
        binary=scan.binary and shown > 0,
        features=names,
        means=means[:-1],
        deviations=deviations[:-1],
        lowest=lowest,
        highest=highest,
        constant=constant,
        proportional=tuple(np.array(names)[scan.unlike_levels()].tolist()),
        dependences=relations,
        rank=len(names) - len(relations) - len(constant) if shown else 0,
        outliers=tuple(outliers),
        extremes=tuple(columns.extremes),
        heaviest=scan.summary.heaviest / max(scan.summary.weight, 1e-300),
        histogram=tuple(
            (low, high, round(tasks / share))
            for low, high, tasks in count_by_doubling(scan.tasks.columns[0])
        ),
        task_share=share,
        items=scan.items.total,
        rounds=scan.round_counts() if logs.columns.round is not None else None,
        repeated=(*logs.survey.copies, *scan.summary.repeats(logs.survey.share)),
        notes=(*logs.survey.notes, *scan.summary.reading_notes()),
    )


def columns_with(bad: BadRows, ending: str) -> dict[str, int]:
    """How many rows have a certain fault, by column."""
    return {
        reason.removesuffix(ending): count
        for reason, count in bad.reasons.items()
        if reason.endswith(ending)
    }


def dependences(
    centred: Floats, means: Floats, count: float, skip: npt.NDArray[np.bool_] | None = None
) -> list[Dependence]:
    """Features that are (nearly) linear combinations of features before them and a constant.

    The constant is there because an intercept is, unless it is not wanted.

    Parameters
    ----------
    centred
        Σ (x − μ)(x − μ)ᵀ.
    means
        μ.
    count
        The number of rows.
    skip
        Features that are not compared.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> x = np.column_stack([x, 3.0 + x @ [2.0, -1.0]])
    >>> y = x - x.mean(0)
    >>> (found,) = dependences(y.T @ y, x.mean(0), 50)
    >>> found.feature, [(place, round(factor, 6)) for place, factor in found.terms]
    (2, [(0, 2.0), (1, -1.0)])
    >>> round(found.constant, 6)
    3.0
    """
    from scipy.linalg import solve_triangular  # only for those who check: it takes a while

    spread = np.diag(centred).copy()
    varies = spread > 1e-20 * count * np.maximum(means**2, np.finfo(float).tiny)
    if skip is not None:
        varies &= ~skip
    places = np.flatnonzero(varies)
    scale = np.sqrt(spread[places])
    gram = centred[np.ix_(places, places)] / np.outer(scale, scale)
    deviation = scale / np.sqrt(max(count, 1.0))
    factor = np.zeros_like(gram)
    basis: list[int] = []
    relations = []
    for place in range(len(places)):
        size = len(basis)
        lower = factor[:size, :size]
        row: Floats = np.zeros(0)
        if size:
            row = solve_triangular(lower, gram[basis, place], lower=True)
        left = float(gram[place, place] - row @ row)
        if left > MIN_LEFT_SHARE:
            factor[size, :size] = row
            factor[size, size] = np.sqrt(left)
            basis.append(place)
            continue
        shares = solve_triangular(lower.T, row)
        least = SHOWN_IF_EXACT if left <= MAX_EXACT_SHARE else SHOWN
        order = [index for index in np.argsort(-np.abs(shares)) if abs(shares[index]) > least]
        terms = [
            (int(places[basis[index]]), float(shares[index] * scale[place] / scale[basis[index]]))
            for index in order
        ]
        parts = [factor_ * means[other] for other, factor_ in terms]
        constant = float(means[places[place]] - sum(parts))
        # What rounding leaves of large means, or is as small as terms that are not named, is none.
        sizes = abs(means[places[place]]) + sum(map(abs, parts))
        noise = 1e-9 * sizes + deviation[place] * (1e-6 if left <= MAX_EXACT_SHARE else SHOWN)
        constant = constant if abs(constant) > noise else 0.0
        relations.append(Dependence(int(places[place]), terms, max(left, 0.0), constant))
    return relations
