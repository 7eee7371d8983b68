"""The first rounds of tasks, in the order in which they happened, out of rows in any order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.fleet.evaluation.forecasts import Episodes
from headstart.fleet.reading.rows import Rows
from headstart.records import Array

__all__ = ["Firsts", "Offers"]

Whole = npt.NDArray[np.int64]

AT_HAND = 2**20  # rows that are collected before the later rounds among them are dropped
MOST_OFFERS = 2**22  # rows of arms that were not chosen, at most


class Offers(NamedTuple):
    """Rounds with all arms on offer, task after task.

    The arms of round i are the rows ``starts[i]`` to ``starts[i + 1]`` of ``features``; the rounds
    of task t are ``tasks[t]`` to ``tasks[t + 1]``. ``chosen`` is the place of the arm shown among
    them, ``propensities`` the probability with which it was. ``totals`` adds up the propensities of
    each round's arms, NaN where an arm has none.
    """

    features: Array
    starts: Whole
    tasks: Whole
    chosen: Whole
    rewards: Array
    propensities: Array
    totals: Array | None = None

    @property
    def arms(self) -> Whole:
        """How many arms each round has."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Whole:
        """Whose each round is."""
        return np.repeat(np.arange(len(self.tasks) - 1), np.diff(self.tasks))


class Firsts:
    """Collects rows, and keeps those of each task's first rounds.

    Rounds are in the order of their timestamps, or else of the files. Where all arms on offer are
    logged (``whole``), all rows of a round are kept; of so many that they would not fit, those of
    fewer rounds.
    """

    def __init__(self, tasks: int, horizon: int, whole: bool) -> None:
        self.tasks = tasks
        self.horizon = horizon
        self.whole = whole
        self.offered = horizon  # rounds whose other arms are kept
        self.seen = 0
        self.waiting = 0
        self.blocks: list[dict[str, npt.NDArray[Any]]] = []

    def add(self, tasks: Whole, rows: Rows) -> None:
        """A block of rows; ``tasks`` says whose each row is, negative for nobody's."""
        mine = tasks >= 0
        if rows.chosen is not None and not self.whole:
            mine = mine & rows.chosen
        use = np.flatnonzero(mine)
        order = self.seen + use
        self.seen += len(rows.codes)
        if not len(use):
            return
        ones = np.ones(len(use))
        self.blocks.append(
            {
                "task": tasks[use],
                "order": order,
                "when": order if rows.timestamps is None else rows.timestamps[use],
                "round": rows.rounds[use] if self.whole and rows.rounds is not None else order,
                "features": rows.features[use],
                "reward": rows.rewards[use],
                "weight": ones if rows.weights is None else rows.weights[use],
                "chosen": np.ones(len(use), bool) if rows.chosen is None else rows.chosen[use],
                "chance": ones if rows.propensities is None else rows.propensities[use],
            }
        )
        self.waiting += len(use)
        if self.waiting > AT_HAND:
            self.tidy()

    def tidy(self) -> dict[str, npt.NDArray[Any]]:
        """Sort what was collected by task and round, and drop what comes too late."""
        names = self.blocks[0].keys()
        rows = {name: np.concatenate([block[name] for block in self.blocks]) for name in names}
        # Rows of a round side by side; the round is where its first row is.
        by_round = np.lexsort((rows["order"], rows["when"], rows["round"], rows["task"]))
        task, round_ = rows["task"][by_round], rows["round"][by_round]
        new = np.ones(len(task), dtype=bool)
        new[1:] = (task[1:] != task[:-1]) | (round_[1:] != round_[:-1])
        group = np.cumsum(new) - 1
        heads = by_round[new]
        sequence = np.lexsort((rows["order"][heads], rows["when"][heads], rows["task"][heads]))
        owner = rows["task"][heads][sequence]
        begins = np.searchsorted(owner, owner)  # where each round's task begins
        rank = np.empty(len(heads), dtype=np.int64)
        rank[sequence] = np.arange(len(heads)) - begins
        place = np.empty(len(task), dtype=np.int64)
        place[by_round] = rank[group]
        chosen = rows["chosen"]
        keep = (place < self.horizon) & (chosen | (place < self.offered))
        while self.offered > 1 and (keep & ~chosen).sum() > MOST_OFFERS:
            self.offered //= 2
            keep = (place < self.horizon) & (chosen | (place < self.offered))
        rows["place"] = place
        final = np.lexsort((rows["order"], place, rows["task"]))
        final = final[keep[final]]
        tidied = {name: values[final] for name, values in rows.items()}
        self.blocks = [{name: tidied[name] for name in names}]
        # What is kept may be much: wait for at least as much again before sorting anew.
        self.waiting = -len(final)
        return tidied

    def finished(self, names: list[str], dim: int) -> tuple[Episodes, Offers | None]:
        """The rounds with rewards, side by side; and all arms on offer, where they were logged."""
        if not self.blocks:
            empty = np.zeros((len(names), 0))
            none = np.zeros((len(names), 0, dim))
            return Episodes(names, none, empty, empty, np.zeros(len(names), np.int64)), None
        rows = self.tidy()
        return self.episodes(rows, names), self.offers(rows) if self.whole else None

    def episodes(self, rows: dict[str, npt.NDArray[Any]], names: list[str]) -> Episodes:
        """Only the arms that were shown."""
        use = np.flatnonzero(rows["chosen"])
        task = rows["task"][use]
        place = np.arange(len(use)) - np.searchsorted(task, task)
        use, task, place = (part[place < self.horizon] for part in (use, task, place))
        lengths = np.bincount(task, minlength=self.tasks)
        shape = (self.tasks, int(lengths.max(initial=0)))
        features = np.zeros((*shape, rows["features"].shape[1]), dtype=rows["features"].dtype)
        rewards, weights = np.zeros(shape), np.zeros(shape)
        features[task, place] = rows["features"][use]
        rewards[task, place] = rows["reward"][use]
        weights[task, place] = rows["weight"][use]
        return Episodes(names, features, rewards, weights, lengths)

    def offers(self, rows: dict[str, npt.NDArray[Any]]) -> Offers:
        """Rounds of which exactly one arm was shown."""
        use = np.flatnonzero(rows["place"] < self.offered)
        task, place = rows["task"][use], rows["place"][use]
        new = np.ones(len(use), dtype=bool)
        new[1:] = (task[1:] != task[:-1]) | (place[1:] != place[:-1])
        group = np.cumsum(new) - 1
        shown = np.bincount(group, rows["chosen"][use], minlength=int(new.sum()))
        good = shown == 1
        inside = good[group]
        use, task, new = use[inside], task[inside], new[inside]
        starts = np.append(np.flatnonzero(new), len(use))
        at = np.flatnonzero(rows["chosen"][use])
        per_task = np.bincount(task[new], minlength=self.tasks)
        return Offers(
            rows["features"][use],
            starts,
            np.append(0, np.cumsum(per_task)),
            at - starts[:-1],
            rows["reward"][use][at],
            rows["chance"][use][at],
            np.bincount(np.cumsum(new) - 1, rows["chance"][use]).astype(np.float64),
        )
