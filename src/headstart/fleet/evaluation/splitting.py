"""Tasks of a log as past and future: what the past ones have shown, and the future ones' rounds.

Two passes over the log: the first counts tasks, the second gathers. What is kept is bounded by the
number of tasks, not by the number of rows: sums of the past, and the first rounds of the future.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError
from headstart.fleet.evaluation.forecasts import Episodes
from headstart.fleet.evaluation.gathering import Firsts, Offers
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.rows import BadRows, Rows
from headstart.fleet.summing.outliers import Sampled
from headstart.fleet.summing.standardize import Units
from headstart.model.evidence import Evidence
from headstart.records import Array

__all__ = ["Census", "Gathered", "Sample", "Split", "census", "gather", "split", "splits"]

Progress = Callable[[float], None]

#: Random splits: at least, at most, and so many that this is about how many tasks they have in all.
FEWEST, MOST, ENOUGH = 3, 5, 2500


class Census(NamedTuple):
    """Who is in a log.

    ``rounds`` and ``starts`` are by task: how many rewards, and the first timestamp if there are
    any.
    """

    names: list[str]
    rounds: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64] | None
    bad: BadRows


class Split(NamedTuple):
    """Past and future tasks. Rows of past tasks count until ``cut``, if it is given."""

    past: list[str]
    future: list[str]
    cut: int | None


class Gathered(NamedTuple):
    """What was read of the tasks that are looked at.

    Attributes
    ----------
    names
        The tasks, by number, in the order of their hashes.
    whole
        The evidence of every task, all its rows, along one batch axis.
    early
        The evidence before the cut, where there is one; the same as ``whole`` otherwise.
    episodes
        The first rounds of every task.
    offers
        All arms on offer to the future tasks of the first split, where they were logged.
    intercept
        Which feature is constant.
    lowest, highest
        Each task's least and greatest reward.
    """

    names: list[str]
    whole: Evidence
    early: Evidence
    episodes: Episodes
    offers: Offers | None
    intercept: int | None
    lowest: Array
    highest: Array

    def sampled(self) -> Sampled:
        """Some of the rows."""
        here = self.episodes.weights > 0
        features, rewards = self.episodes.features[here], self.episodes.rewards[here]
        found = Sampled()
        found.add(Sampled(np.column_stack([features, rewards]).astype(np.float64)))
        return found

    def part(self, parted: Split) -> Sample:
        """The past and the future of one split."""
        places = {name: at for at, name in enumerate(self.names)}
        past, future = (
            np.array([places[name] for name in names], dtype=np.intp)
            for names in (parted.past, parted.future)
        )
        evidence = self.whole if parted.cut is None else self.early
        rounds = self.episodes
        episodes = Episodes(parted.future, *(part[future] for part in tuple(rounds)[1:]))
        return Sample(taken(evidence, past), episodes, self.offers, self.intercept, future)


class Sample(NamedTuple):
    """What one split looks at.

    ``past`` is the evidence of the past tasks along one batch axis; ``intercept`` says which
    feature is constant; ``offers`` has all arms on offer to future tasks, where they were logged;
    ``places`` are the future tasks' numbers.
    """

    past: Evidence
    episodes: Episodes
    offers: Offers | None
    intercept: int | None
    places: npt.NDArray[np.intp]


def taken(evidence: Evidence, places: npt.NDArray[np.intp]) -> Evidence:
    """The evidence of some tasks."""
    gram, moment = evidence.gram[places], evidence.moment[places]
    return Evidence(gram, moment, evidence.rounds[places], evidence.squares[places])


def census(logs: Logs, progress: Progress) -> Census:
    """Count tasks, and find each one's start."""
    places: dict[str, int] = {}
    bad = BadRows()
    rounds = np.zeros(0, dtype=np.int64)
    starts = np.zeros(0, dtype=np.int64)
    timed = False
    parts = logs.parts()
    for done, part in enumerate(parts, 1):
        for block in logs.read(part, turned=False):
            bad = bad + block.bad
            rows = block.shown()
            if not len(rows.codes):
                continue
            at = numbered(rows.names, places)
            rounds = longer(rounds, len(places), 0)
            np.add.at(rounds, at, np.bincount(rows.codes, minlength=len(at)))
            if rows.timestamps is not None:
                timed = True
                starts = longer(starts, len(places), np.iinfo(np.int64).max)
                np.minimum.at(starts, at[rows.codes], rows.timestamps)
        progress(done / len(parts))
    size = len(places)
    return Census(list(places), rounds[:size], starts[:size] if timed else None, bad)


def numbered(names: list[str], places: dict[str, int]) -> npt.NDArray[np.int64]:
    """The numbers of tasks; new ones get the next."""
    return np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)


def longer(array: npt.NDArray[np.int64], size: int, fill: int) -> npt.NDArray[np.int64]:
    """An array with room for so many tasks; it grows in large steps."""
    if len(array) >= size:
        return array
    more = np.full(max(size, 2 * len(array)) - len(array), fill, dtype=np.int64)
    return np.concatenate([array, more])


def mark(name: str, seed: int) -> int:
    """A number that is as good as random, and the same everywhere, for an id and a seed.

    >>> mark("user-42", 0) == mark("user-42", 0) != mark("user-42", 1)
    True
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8, salt=seed.to_bytes(16, "little"))
    return int.from_bytes(digest.digest(), "little")


def split(found: Census, future: float, seed: int, most_tasks: int, turn: float = 0.0) -> Split:
    """Past and future tasks: by time where there is any, else as a hash of their ids falls.

    ``turn``, from 0 to 1, is where the future begins in the order of the hashes: over several
    turns that are evenly spread, all tasks are in the future about equally often.
    """
    names = found.names
    order = sorted(range(len(names)), key=lambda at: (mark(names[at], seed), names[at]))
    order = order[:most_tasks]
    ahead = round(future * len(order))
    if ahead < 2 or len(order) - ahead < 2:
        raise InputError(
            f"evaluate needs at least 2 past and 2 future tasks; these logs have "
            f"{len(order)} tasks with rewards, of which future={future:g} makes {ahead} the future"
        )
    if found.starts is None:
        start = round(turn * len(order))
        chosen = set((order[start:] + order[:start])[:ahead])
        cut = None
    else:
        begins = found.starts
        latest = sorted(order, key=lambda at: (int(begins[at]), mark(names[at], seed)))
        chosen = set(latest[-ahead:])
        cut = int(begins[latest[-ahead]])
        order = [at for at in order if at in chosen or int(begins[at]) < cut]
        if len(order) - ahead < 2:
            raise InputError(
                "timestamp must tell earlier from later tasks; here most tasks start at the same "
                "time. Leave it out to split tasks at random"
            )
    # The past in the order of its hash: a fit may leave the last tasks out to judge itself by.
    return Split(
        [names[at] for at in order if at not in chosen],
        sorted(names[at] for at in chosen),
        cut,
    )


def splits(
    found: Census, future: float, seed: int, most_tasks: int, many: int | None = None
) -> list[Split]:
    """Several splits, evenly turned; one where time decides. Fewer unless given of many tasks."""
    if found.starts is not None:
        return [split(found, future, seed, most_tasks)]
    if many is None:
        tasks = max(1, min(len(found.names), most_tasks))
        many = max(FEWEST, min(MOST, ENOUGH // tasks))
    return [split(found, future, seed, most_tasks, at / many) for at in range(many)]


def gather(
    logs: Logs,
    parted: list[Split],
    first: int,
    horizon: int,
    intercept: int | None,
    progress: Progress,
) -> Gathered:
    """Sum up every task and keep its first rounds; of the first split's future all arms on offer.

    ``intercept`` is the constant feature; where it is the number of features, one is added.
    """
    dim = logs.dim + (intercept == logs.dim)
    one, cut = parted[0], parted[0].cut
    names = [*one.past, *one.future]
    numbers = {name: at for at, name in enumerate(names)}
    later = {name: at for at, name in enumerate(one.future)}
    sums, early = Sums(len(names), dim), None if cut is None else Sums(len(names), dim)
    columns = logs.columns
    whole = None not in (columns.round, columns.chosen, columns.propensity)
    firsts = Firsts(len(names), first, whole)
    offered = Firsts(len(later), horizon, whole=True) if whole else None
    parts = logs.parts()
    for done, part in enumerate(parts, 1):
        for block in logs.read(part):
            rows = block if dim == logs.dim else block.with_constant()
            tasks = numbers_of(rows, numbers)
            counts = tasks >= 0
            if rows.chosen is not None:
                counts &= rows.chosen
            sums.add(tasks, rows, np.flatnonzero(counts))
            if early is not None and cut is not None and rows.timestamps is not None:
                early.add(tasks, rows, np.flatnonzero(counts & (rows.timestamps < cut)))
            firsts.add(tasks, rows)
            if offered is not None:
                offered.add(numbers_of(rows, later), rows)
        progress(done / len(parts))
    episodes, _ = firsts.finished(names, dim)
    offers = None if offered is None else offered.finished(one.future, dim)[1]
    everything = sums.evidence()
    before = everything if early is None else early.evidence()
    return Gathered(
        names, everything, before, episodes, offers, intercept, sums.lowest, sums.highest
    )


def numbers_of(rows: Rows, numbers: dict[str, int]) -> npt.NDArray[np.int64]:
    """Whose each row is; −1 for nobody's."""
    places = [numbers.get(name, -1) for name in rows.names]
    return np.array(places, dtype=np.int64)[rows.codes]


def units_of(evidence: Evidence, intercept: int | None) -> Units:
    """The units of features among these tasks."""
    return Units.of(summed(evidence), intercept)


def summed(evidence: Evidence) -> Evidence:
    """The sums of all tasks together."""
    parts = (evidence.gram, evidence.moment, evidence.rounds, evidence.squares)
    return Evidence(*(part.sum(0) for part in parts))


def in_units(sample: Sample, units: Units) -> Sample:
    """The same with features in their units."""
    offers, rounds = sample.offers, sample.episodes
    # By hand: the length of episodes is not that of a tuple.
    episodes = Episodes(
        rounds.names,
        units.contexts(rounds.features),
        rounds.rewards,
        rounds.weights,
        rounds.lengths,
    )
    return sample._replace(
        past=units.evidence(sample.past),
        episodes=episodes,
        offers=offers and offers._replace(features=units.contexts(offers.features)),
    )


class Sums:
    """Evidence by task, added up block by block."""

    def __init__(self, tasks: int, dim: int) -> None:
        self.gram = np.zeros((tasks, dim, dim))
        self.moment = np.zeros((tasks, dim))
        self.rounds = np.zeros(tasks)
        self.squares = np.zeros(tasks)
        self.lowest, self.highest = np.full(tasks, np.inf), np.full(tasks, -np.inf)

    def add(self, tasks: npt.NDArray[np.int64], rows: Rows, use: npt.NDArray[np.intp]) -> None:
        """Some of a block's rows; ``tasks`` says whose each row is."""
        if not len(use):
            return
        use = use[np.argsort(tasks[use], kind="stable")]
        owner = tasks[use]
        edges = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
        x, r = rows.features[use].astype(np.float64), rows.rewards[use]
        weight = np.ones(len(use)) if rows.weights is None else rows.weights[use]
        heavy = x if rows.weights is None else x * weight[:, None]
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            at = owner[start]
            self.gram[at] += heavy[start:stop].T @ x[start:stop]
            self.moment[at] += r[start:stop] @ heavy[start:stop]
        np.add.at(self.rounds, owner, weight)
        np.add.at(self.squares, owner, weight * r * r)
        np.minimum.at(self.lowest, owner, r)
        np.maximum.at(self.highest, owner, r)

    def evidence(self) -> Evidence:
        """All tasks along one batch axis."""
        gram = (self.gram + self.gram.swapaxes(-1, -2)) / 2.0
        return Evidence(gram, self.moment, self.rounds, self.squares)
