"""The tasks in the sample of an evaluation: their evidence, and the rounds they began with."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError
from headstart.fleet.evaluation.rollouts import Episodes, Offers
from headstart.fleet.reading.hashing import KeyedSums
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.grams import ADD_ROWS
from headstart.fleet.summing.summary import ReadSummary
from headstart.model.evidence import packed_size
from headstart.records import Array
from headstart.transfer.task_order import Hashes

Columns = dict[str, npt.NDArray[Any]]
Places = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

ROWS_AT_HAND = 2**18  # rows that are collected before they are added up
OFFER_BYTES = 2**28  # of the features of arms on offer, at most
ROW_BYTES = 2**31  # of the features of all rows, where they are kept
ALL = 2**64  # above every hash


class Plan(NamedTuple):
    """What is taken of a log.

    Attributes
    ----------
    seed
        Of the hash by which tasks are ordered and sampled.
    max_tasks
        How many tasks are in the sample at most.
    first
        How many rounds of each task are kept.
    horizon
        Of how many rounds all arms on offer are kept, where they were logged.
    cut
        Rows before this time are known where the future begins, if tasks are split by time.
    offered
        The hashes of the tasks whose arms on offer are kept; all unless given.
    all_rows
        Whether all rows with a reward are kept.
    """

    seed: int
    max_tasks: int
    first: int
    horizon: int
    cut: int | None = None
    offered: Hashes | None = None
    all_rows: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """What was read of the tasks in the sample, in the order of their hashes.

    Attributes
    ----------
    keys
        The tasks' hashes.
    dim
        How many features there are, the intercept included.
    intercept
        Which feature is constant.
    evidence
        The packed evidence of every task, all its rows.
    early
        The packed evidence before the cut, where there is one; the same as ``evidence`` otherwise.
    lowest, highest
        Each task's least and greatest reward.
    episodes
        The first rounds of every task.
    arms
        All rows of rounds with arms on offer, where these were logged.
    rounds
        How many rewards each task of the log has; of very many tasks, of a sample.
    tasks
        How many tasks the log has; an estimate unless it is ``exact``.
    exact
        Whether all tasks of the log were counted.
    summary
        What was read.
    cut
        When the future begins, where tasks are split by time.
    arms_limit
        The hash below which tasks have all their arms on offer in ``arms``.
    rows
        All rows with a reward, in the order of tasks, where they were kept.
    """

    keys: Hashes
    dim: int
    intercept: int | None
    evidence: Floats
    early: Floats
    lowest: Array
    highest: Array
    episodes: Episodes
    arms: Columns | None
    rounds: npt.NDArray[np.int64]
    tasks: int
    exact: bool
    summary: ReadSummary
    cut: int | None
    arms_limit: int
    rows: Columns | None = None

    def notes(self) -> list[str]:
        """What was left out of so many tasks or rows, if anything."""
        notes = []
        about = "" if self.exact else "about "
        if len(self.keys) < self.tasks:
            notes.append(
                f"{len(self.keys):,} of {about}{self.tasks:,} tasks were looked at, chosen by a "
                f"hash of their ids (--most-tasks)"
            )
        if self.arms_limit < ALL:
            notes.append(
                "policies were valued on a part of the future tasks, as many as memory holds"
            )
        return notes

    def offers(self, future: Places) -> Offers:
        """The rounds of some tasks of which exactly one arm was shown, with all arms on offer.

        Of so many rows that they were not kept, those of fewer tasks.
        """
        assert self.arms is not None  # the log has all arms
        return Offers.of_rows(take_rows(self.arms, np.isin(self.arms["key"], self.keys[future])))


def logs_all_arms(logs: Logs) -> bool:
    """Whether all arms on offer are logged, with what off-policy estimates need."""
    columns = logs.columns
    return None not in (columns.round, columns.chosen, columns.propensity)


def columns_of(rows: Rows, places: Places, keys: Hashes, first: int, whole: bool) -> Columns:
    """Some rows of a block, column by column; what a log does not have is 1, or a row's number."""
    ones, order = np.ones(len(places)), first + places
    return {
        "key": keys[rows.codes[places]],
        "order": order,
        "when": order if rows.timestamps is None else rows.timestamps[places],
        "round": rows.rounds[places] if whole and rows.rounds is not None else order,
        "features": rows.features[places],
        "reward": rows.rewards[places],
        "weight": ones if rows.weights is None else rows.weights[places],
        "chosen": np.ones(len(places), bool) if rows.chosen is None else rows.chosen[places],
        "propensity": ones if rows.propensities is None else rows.propensities[places],
    } | ({} if rows.items is None else {"item": rows.items[places]})


class SampleBuilder:
    """Adds rows up by task, and keeps those of each task's first rounds.

    Rounds are in the order of their timestamps, or else of the files; the place of a round is that
    of its first row.
    """

    def __init__(self, logs: Logs, plan: Plan) -> None:
        self.plan, self.dim = plan, logs.width
        self.intercept = logs.dim if logs.intercept else None
        self.whole = logs_all_arms(logs)
        self.keys, zeros = np.zeros(0, np.uint64), np.zeros((0, packed_size(self.dim)))
        self.sums = {"lowest": np.zeros(0), "highest": np.zeros(0), "evidence": zeros}
        if plan.cut is not None:
            self.sums["early"] = zeros
        self.waiting: list[Columns] = []
        self.first_rounds: list[Columns] = []
        self.arms_limit = ALL

    def add(self, block: Columns, limit: int) -> None:
        """Add rows; tasks whose hashes are not below ``limit`` are not in the sample."""
        self.waiting.append(block)
        if sum(len(block["key"]) for block in self.waiting) > ROWS_AT_HAND:
            self.fold(limit)

    def fold(self, limit: int) -> None:
        """Add up the rows that wait, and let go of those that nothing else needs."""
        if not self.waiting:
            return
        rows, self.waiting = concat_rows(self.waiting), []
        rows = take_rows(rows, rows["key"] <= np.uint64(limit - 1))
        order = np.argsort(rows["key"], kind="stable")
        shown = take_rows(rows, order[rows["chosen"][order]])
        self.set_tasks(np.union1d(self.keys, shown["key"]), limit)
        self.add_up(shown)
        self.keep_first_rounds(rows, limit)

    def set_tasks(self, keys: Hashes, limit: int) -> None:
        """Change the tasks in the sample."""
        keys = keys[keys <= np.uint64(limit - 1)]
        old = self.keys <= np.uint64(limit - 1)
        places = np.searchsorted(keys, self.keys[old])
        self.keys = keys
        if len(places) == len(old) == len(keys):
            return
        for name, before in self.sums.items():
            empty = {"lowest": np.inf, "highest": -np.inf}.get(name, 0.0)
            self.sums[name] = np.full((len(keys), *before.shape[1:]), empty)
            self.sums[name][places] = before[old]

    def add_up(self, rows: Columns) -> None:
        """Add rows, in the order of their tasks, to the tasks' sums."""
        if not len(rows["key"]):
            return
        starts = np.flatnonzero(np.append(True, rows["key"][1:] != rows["key"][:-1]))
        places = np.searchsorted(self.keys, rows["key"][starts])
        reward, weight, features = rows["reward"], rows["weight"], rows["features"]
        for name, end in (("lowest", np.minimum), ("highest", np.maximum)):
            own = end.reduceat(reward, starts)
            self.sums[name][places] = end(self.sums[name][places], own)
        add, edges = ADD_ROWS.form(len(reward)), np.append(starts, len(reward))
        spans = np.arange(len(reward)), edges, places, features, self.dim, reward
        add(*spans, weight, self.sums["evidence"])
        if self.plan.cut is not None:
            add(*spans, weight * (rows["when"] < self.plan.cut), self.sums["early"])

    def keep_first_rounds(self, rows: Columns, limit: int) -> None:
        """Keep the rows of first rounds; where all arms were logged, all arms of more rounds."""
        rows = concat_rows([*self.first_rounds, rows])
        rows = take_rows(rows, rows["key"] <= np.uint64(limit - 1))
        rank, head = round_ranks(rows, self.whole)
        chosen, key = rows["chosen"], rows["key"]
        keep = (rank < self.plan.first) & (chosen | head)
        if self.plan.all_rows:
            keep |= chosen
            if int(keep.sum()) * 8 * self.dim > ROW_BYTES:
                raise InputError(
                    f"all rows of the tasks looked at are kept in memory with binary rewards, and "
                    f"take more than {ROW_BYTES >> 30} GiB: look at fewer tasks (most_tasks, "
                    f"--most-tasks)"
                )
        if self.whole:
            arms = (rank < self.plan.horizon) & (key <= np.uint64(self.arms_limit - 1))
            if self.plan.offered is not None:
                arms &= np.isin(key, self.plan.offered)
            room = OFFER_BYTES // max(1, rows["features"].itemsize * self.dim)
            if arms.sum() > room:  # those of fewer tasks
                self.arms_limit = int(np.sort(key[arms])[room])
                arms &= key < self.arms_limit
            keep |= arms
        final = np.lexsort((rows["order"], rank, key))
        final = final[keep[final]]
        self.first_rounds = [take_rows(rows, final)]
        self.ranks = rank[final]

    def sample(self, tasks: KeyedSums, summary: ReadSummary, limit: int) -> Sample:
        """All that was read."""
        self.fold(limit)
        self.set_tasks(self.keys, limit)
        (rows,) = self.first_rounds
        inside = np.isin(rows["key"], self.keys)
        arms, shown = None, take_rows(rows, inside & rows["chosen"])
        if self.whole:
            inside &= self.ranks < self.plan.horizon
            arms = take_rows(rows, inside & (rows["key"] <= np.uint64(self.arms_limit - 1)))
        return Sample(
            keys=self.keys,
            dim=self.dim,
            intercept=self.intercept,
            **{"early": self.sums["evidence"], **self.sums},
            episodes=self.episodes(shown),
            arms=arms,
            rounds=tasks.columns[0],
            tasks=tasks.total,
            exact=tasks.share == 1.0,
            summary=summary,
            cut=self.plan.cut,
            arms_limit=self.arms_limit,
            rows=shown if self.plan.all_rows else None,
        )

    def episodes(self, rows: Columns) -> Episodes:
        """The first rounds of every task, side by side."""
        task = np.searchsorted(self.keys, rows["key"])
        place = np.arange(len(task)) - np.searchsorted(task, task)
        use = np.flatnonzero(place < self.plan.first)
        task, place = task[use], place[use]
        lengths = np.bincount(task, minlength=len(self.keys))
        shape = (len(self.keys), int(lengths.max(initial=0)))
        features = np.zeros((*shape, self.dim), dtype=rows["features"].dtype)
        rewards, weights = np.zeros(shape), np.zeros(shape)
        features[task, place] = rows["features"][use]
        rewards[task, place] = rows["reward"][use]
        weights[task, place] = rows["weight"][use]
        return Episodes(features, rewards, weights, lengths)


def concat_rows(blocks: list[Columns]) -> Columns:
    """Blocks of rows as one."""
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def take_rows(rows: Columns, index: npt.NDArray[Any]) -> Columns:
    """Some of the rows."""
    return {name: values[index] for name, values in rows.items()}


def round_ranks(rows: Columns, whole: bool) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Which round of its task each row belongs to, from 0 on, and which rows begin a round.

    Without ``whole`` every row is a round.
    """
    key, when, order = rows["key"], rows["when"], rows["order"]
    head = np.ones(len(key), dtype=bool)
    group: Places = np.arange(len(key))
    if whole:
        by_round = np.lexsort((order, when, rows["round"], key))
        task, number = key[by_round], rows["round"][by_round]
        new = np.append(True, (task[1:] != task[:-1]) | (number[1:] != number[:-1]))[: len(key)]
        head[by_round] = new
        group[by_round] = np.cumsum(new) - 1
        heads = by_round[new]
    else:
        heads = group
    sequence = np.lexsort((order[heads], when[heads], key[heads]))
    owner = key[heads][sequence]
    rank = np.empty(len(heads), dtype=np.intp)
    rank[sequence] = np.arange(len(heads)) - np.searchsorted(owner, owner)
    return rank[group], head
