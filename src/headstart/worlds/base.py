"""Where tasks come from: the interface of every world.

A world is a set of settings. With a seed it becomes a *population*, in which everything random is
fixed; a population gives *episodes*, one per task: the contexts on offer in every round and what
each arm would earn. All policies of an experiment play the same episodes, so that they are compared
on the same tasks, contexts and noise.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import NamedTuple

from headstart.records import Array, Settings

__all__ = ["Episode", "Population", "Truth", "World"]


class Episode(NamedTuple):
    """One task, played out in advance for every arm.

    Attributes
    ----------
    contexts
        What is on offer: shape ``(rounds, arms, dim)``.
    values
        What each arm is worth, without noise: shape ``(rounds, arms)``. Regret is measured by it.
    rewards
        What each arm earns if it is picked: shape ``(rounds, arms)``.
    theta
        The task's true parameter, where there is one.
    """

    contexts: Array
    values: Array
    rewards: Array
    theta: Array | None = None


@dataclasses.dataclass(frozen=True)
class Truth:
    """What is true of a population, for oracles: mean and covariance of θ, the plane's basis."""

    mean: Array
    covariance: Array
    basis: Array | None = None


class Population(ABC):
    """A world with its randomness fixed."""

    #: The dimension of contexts.
    dim: int
    #: How many tasks there are; ``None`` for as many as wanted.
    tasks: int | None = None
    #: R, if it is known.
    noise: float | None = None
    #: What an oracle would be told, if there is such a thing.
    truth: Truth | None = None

    @abstractmethod
    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task: the same one however often and in whatever order it is asked."""


class World(Settings, ABC):
    """Settings of a world; subclasses are frozen dataclasses."""

    @property
    def name(self) -> str:
        """A short name for tables and figures."""
        return type(self).__name__.lower()

    @abstractmethod
    def population(self, seed: int) -> Population:
        """The population of a seed."""
