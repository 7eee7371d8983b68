"""The interface of worlds, which generate the tasks of experiments.

A world is a set of settings. With a seed it becomes a *population*, in which everything random is
fixed; a population gives *episodes*, one per task: the contexts on offer in every round and what
each arm would earn. All policies of an experiment play the same episodes, so that they are compared
on the same tasks, contexts and noise.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.features.schema.schema import Schema
from headstart.records import Array
from headstart.settings import Settings


class Offer(NamedTuple):
    """What is on offer in a round to a bandit with a schema: arms, and the action of each."""

    arms: npt.NDArray[np.intp]
    actions: list[dict[str, Any]]


class Episode(NamedTuple):
    """One task, with the rewards of all arms in all rounds.

    Attributes
    ----------
    contexts
        The contexts on offer: shape ``(rounds, arms, dim)``.
    values
        The expected reward of each arm: shape ``(rounds, arms)``. Regret is measured by it.
    rewards
        The reward of each arm if it is chosen: shape ``(rounds, arms)``.
    theta
        The task's true parameter, where there is one.
    offers
        What is on offer in each round, where the population has a ``schema``.
    """

    contexts: Array
    values: Array
    rewards: Array
    theta: Array | None = None
    offers: list[Offer] | None = None


@dataclasses.dataclass(frozen=True)
class Truth:
    """The true mean and covariance of θ in a population, and the basis of its subspace."""

    mean: Array
    covariance: Array
    basis: Array | None = None


class Population(ABC):
    """A world with its randomness fixed."""

    #: The seed that fixes it.
    seed: int
    #: The dimension of contexts.
    dim: int
    #: How many tasks there are; ``None`` for as many as wanted.
    tasks: int | None = None
    #: R, if it is known.
    noise: float | None = None
    #: The true distribution of tasks, for oracles; ``None`` if it is unknown.
    truth: Truth | None = None
    #: The schema of the bandits that play, where policies know items by their ids.
    schema: Schema | None = None
    #: Whether these bandits have an intercept, whatever the policy says.
    constant: bool = False

    @abstractmethod
    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task; it does not depend on earlier calls."""

    def population_rng(self) -> np.random.Generator:
        """The generator of what all tasks share."""
        return np.random.default_rng([self.seed, 0])

    def task_rng(self, task: int) -> np.random.Generator:
        """The generator of one task's episode."""
        return np.random.default_rng([self.seed, 1, task])


class World(Settings, ABC):
    """Settings of a world; subclasses are frozen dataclasses."""

    @property
    def name(self) -> str:
        """A short name for tables and figures."""
        return type(self).__name__.lower()

    @abstractmethod
    def population(self, seed: int) -> Population:
        """The population of a seed."""
