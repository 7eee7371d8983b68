"""Logged data: any table with a task, a reward and contexts in its rows."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.bandit.rewards import reward_model
from headstart.errors import InputError
from headstart.features.schema.encoder import Encoder
from headstart.features.schema.schema import Schema
from headstart.records import Array
from headstart.settings import Settings
from headstart.worlds import tables
from headstart.worlds.base import Episode, Offer, Population, World
from headstart.worlds.offers import Indices, draw_distinct


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Logged(World):
    """A world from a table: each row has a task, a context, and the reward of that context.

    With a ``round`` column, the rows of one round are the arms on offer, each with its own reward,
    and a task's rounds are played in the order of that column. Without it, each round offers
    ``arms`` different rows of the task, drawn at random. Logged rewards are all that is known, so
    they are the values too. Tasks come in an order drawn by the seed.

    Rounds may offer different numbers of arms. Shorter ones are filled up to the longest of the
    table with repetitions of their own rows, in equal shares (which rows get the last, incomplete
    share is drawn by the seed). The best arm and every regret stay what they were, a policy that
    compares arms is not affected by the copies, and one that chooses at random chooses each row
    with the same probability as before.

    Parameters
    ----------
    table
        A Polars or pandas frame, or the path of a Parquet or CSV file.
    task, reward
        The names of these columns.
    contexts
        The names of the feature columns, or a pattern such as ``"x*"``, or several of both. They
        are used as they are: scale them so that ‖x‖ ≤ 1 where a policy counts on it. Not with a
        ``schema``.
    round
        The name of the column that says which round of its task a row belongs to, if there is one.
    arms
        K, how many rows a drawn round offers. Tasks with fewer rows are left out; the population's
        ``dropped`` counts them. Not used with a ``round`` column.
    intercept
        Appends a feature that is 1 everywhere.
    noise
        R, if it is known.
    min_rounds
        With a ``round`` column, tasks with fewer rounds are left out, and counted in ``dropped``.
    schema
        A :class:`~headstart.Schema`, or the path of its JSON, in place of ``contexts``: every field
        is a column of its name. With ``identity`` so is the id, every policy is played by a bandit
        of its own with this schema, and of rows of one item in a round the first is on offer.
    minimize
        Whether the reward column has costs: rewards are their negatives. Of costs of 0 and 1 they
        are 1 and 0, so that policies of binary rewards can play them; regrets are the same.

    Examples
    --------
    >>> import polars as pl
    >>> from headstart.worlds import Logged
    >>> table = pl.DataFrame(
    ...     {"user": ["a"] * 4, "x1": [0.1, 0.2, 0.3, 0.4], "reward": [0.0, 1.0, 0.0, 1.0]}
    ... )
    >>> world = Logged(table, task="user", reward="reward", contexts="x*", arms=2)
    >>> world.population(seed=0).episode(task=0, rounds=5).contexts.shape
    (5, 2, 1)
    """

    table: Any
    task: str
    reward: str
    contexts: str | Sequence[str] | None = None
    round: str | None = None
    arms: int = 10
    intercept: bool = False
    noise: float | None = None
    min_rounds: int = 1
    schema: Schema | str | os.PathLike[str] | None = None
    minimize: bool = False

    def __post_init__(self) -> None:
        names = tables.column_names(self.table)
        if self.schema is not None:
            object.__setattr__(self, "schema", check_schema(self.schema, self.contexts))
        for argument in ("task", "reward", "round"):
            if argument != "round" or self.round is not None:
                tables.find_column(argument, getattr(self, argument), names)
        if self.reward in self.features(names):
            what = "contexts" if self.schema is None else "schema"
            raise InputError(f"{what} must not have the reward among them; got {self.reward!r}")
        checks.integer("arms", self.arms, 1)
        checks.integer("min_rounds", self.min_rounds, 1)
        checks.flag("intercept", self.intercept)
        checks.flag("minimize", self.minimize)
        if self.noise is not None:
            checks.positive("noise", self.noise)

    def __repr__(self) -> str:
        # A frame as a whole is neither short nor comparable to a default.
        printable = copy.copy(self)
        object.__setattr__(printable, "table", tables.describe(self.table))
        return Settings.__repr__(printable)

    def features(self, names: Sequence[str]) -> list[str]:
        """The names of the feature columns."""
        if isinstance(self.schema, Schema):
            fields = [*self.schema.context, *self.schema.action]
            if self.schema.identity:
                fields = list(dict.fromkeys([*fields, self.schema.id]))
            return [tables.find_column("schema", name, names) for name in fields]
        reserved = [name for name in (self.task, self.reward, self.round) if name is not None]
        return tables.find_columns("contexts", self.contexts, names, reserved)

    def contexts_of(self, frame: Any, names: Sequence[str]) -> Array:
        """The contexts of all rows of the table."""
        contexts: Array
        if isinstance(self.schema, Schema):
            fields = {name: frame[name].to_list() for name in names}
            encoder = Encoder(self.schema)
            if not fields:  # ids alone
                return np.zeros((len(frame), 0))
            contexts = encoder.encode(None, fields, distinct=False).table
        else:
            columns = [tables.numeric_column("contexts", frame, name) for name in names]
            contexts = np.column_stack(columns)
        if self.intercept:
            contexts = np.column_stack([contexts, np.ones(len(frame))])
        return contexts

    def population(self, seed: int) -> LoggedPopulation:
        """The population of a seed."""
        return LoggedPopulation(self, checks.integer("seed", seed))


def check_schema(schema: object, contexts: object) -> Schema:
    """The schema of a world, read from its file if a path is given."""
    if contexts is not None:
        raise InputError("contexts must not be given together with a schema, which has them")
    if isinstance(schema, (str, os.PathLike)):
        schema = Schema.from_file(schema)
    if not isinstance(schema, Schema):
        raise checks.invalid("schema", "a headstart.Schema, or the path of its JSON", schema)
    return schema


class LoggedPopulation(Population):
    """The table's rows, sorted by task and round.

    Attributes
    ----------
    ids
        The ids of the tasks, in the order in which they come.
    dropped
        How many tasks were left out, for having too few rows or rounds.
    lengths
        How many rounds each task has; ``None`` if rounds are drawn.
    """

    def __init__(self, world: Logged, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.noise = world.noise
        features = world.features(tables.column_names(world.table))
        role_columns = [world.task, world.reward, *([] if world.round is None else [world.round])]
        frame = tables.select(world.table, list(dict.fromkeys([*role_columns, *features])))
        if not len(frame):
            raise InputError("table must have rows; got none")
        ids, of_task = tables.factorize("task", frame, world.task)
        of_round: Indices = np.zeros_like(of_task)
        if world.round is not None:
            of_round = tables.factorize("round", frame, world.round)[1]
        order = np.lexsort((of_round, of_task))
        of_task, of_round = of_task[order], of_round[order]
        self.contexts = world.contexts_of(frame, features)[order]
        if isinstance(world.schema, Schema) and world.schema.identity:
            self.schema, self.constant = world.schema, world.intercept
            columns = [frame[name].to_list() for name in features]
            every = [dict(zip(features, row, strict=True)) for row in zip(*columns, strict=True)]
            self.actions = [every[at] for at in order]
            self.items = tables.factorize("schema", frame, world.schema.id)[1][order]
        rewards = tables.numeric_column("reward", frame, world.reward)[order]
        kind = "binary" if np.isin(rewards, (0.0, 1.0)).all() else "number"
        self.rewards = reward_model(kind, world.minimize).read_many(rewards)
        self.dim = self.contexts.shape[1]
        if self.schema is not None:
            self.dim = len(Encoder(self.schema).feature_names) + self.constant
        # Where tasks and rounds begin among the rows, and tasks among the rounds.
        self.first_row = np.searchsorted(of_task, np.arange(len(ids) + 1))
        fresh = np.append(True, (np.diff(of_task) != 0) | (np.diff(of_round) != 0))
        self.round_row = np.append(np.flatnonzero(fresh), len(frame))
        self.first_round = np.searchsorted(self.round_row, self.first_row)
        self.widest = int(np.diff(self.round_row).max())
        self.choose_tasks(ids)

    def choose_tasks(self, ids: Any) -> None:
        """Leave out tasks that are too short, and shuffle the others."""
        world = self.world
        what, limit = f"arms={world.arms} rows", world.arms
        sizes = np.diff(self.first_row)
        if world.round is not None:
            what, limit = f"min_rounds={world.min_rounds} rounds", world.min_rounds
            sizes = np.diff(self.first_round)
        long_enough = np.flatnonzero(sizes >= limit)
        if not len(long_enough):
            raise InputError(
                f"table must have tasks with {what} or more; the largest of {len(ids)} has "
                f"{int(sizes.max())}"
            )
        self.tasks = len(long_enough)
        self.dropped = len(ids) - len(long_enough)
        self.order = self.population_rng().permutation(long_enough)
        self.ids = ids[self.order]
        self.lengths = None if world.round is None else sizes[self.order]

    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task."""
        checks.integer("task", task, 0, len(self.order) - 1)
        checks.integer("rounds", rounds, 1)
        rng = self.task_rng(task)
        row = self.order[task]
        if self.lengths is None:
            start, stop = self.first_row[row], self.first_row[row + 1]
            offers = start + draw_distinct(rng, rounds, int(stop - start), self.world.arms)
        else:
            offers = self.logged_rounds(task, rounds, rng)
        distinct = None
        if self.schema is not None:
            distinct = [self.distinct_items(row) for row in offers]
        rewards = self.rewards[offers]
        return Episode(self.contexts[offers], rewards, rewards.copy(), None, distinct)

    def distinct_items(self, rows: Indices) -> Offer:
        """The arms of a round that are different items; others become copies of the first."""
        _, first, which = np.unique(self.items[rows], return_index=True, return_inverse=True)
        rows[:] = rows[first[which]]
        arms = np.sort(first)
        return Offer(arms, [self.actions[row] for row in rows[arms]])

    def logged_rounds(self, task: int, rounds: int, rng: np.random.Generator) -> Indices:
        """The rows on offer in a task's first rounds, filled up to the same number."""
        assert self.lengths is not None
        if rounds > self.lengths[task]:
            raise InputError(
                f"rounds must be {self.lengths[task]} or fewer for task {self.ids[task]!s}, which "
                f"has no more; got {rounds} (min_rounds={rounds} leaves such tasks out)"
            )
        begin = self.first_round[self.order[task]]
        starts = self.round_row[begin : begin + rounds]
        sizes = self.round_row[begin + 1 : begin + rounds + 1] - starts
        offers = starts[:, None] + np.arange(self.widest)
        for index in np.flatnonzero(sizes < self.widest):
            size, lacking = int(sizes[index]), self.widest - int(sizes[index])
            shares = [rng.permutation(size) for _ in range(-(-lacking // size))]
            offers[index, size:] = starts[index] + np.concatenate(shares)[:lacking]
        return offers
