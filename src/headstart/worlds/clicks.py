"""Clicks: rewards of 0 and 1 at a base rate, with a logistic link."""

from __future__ import annotations

import dataclasses

import numpy as np

from headstart import checks
from headstart.model.logistic import expected_probability, sigmoid
from headstart.records import Array
from headstart.worlds.base import Episode, Population, World
from headstart.worlds.synthetic import covariance_along, random_orthogonal


@dataclasses.dataclass(frozen=True, repr=False)
class Clicks(World):
    """Items that are clicked on with the probability σ(b + xᵀθ*), σ(e) = 1/(1 + exp(−e)).

    θ* = μ + U z + U⊥ e as in :class:`Synthetic`, with the mean μ anywhere. Contexts are N(0, I),
    redrawn every round. The intercept b of a task is normal around a value that makes the average
    arm of the average task be clicked on at the base rate.

    Parameters
    ----------
    dim, rank, arms
        d, the dimension of the subspace that tasks share, and K.
    base_rate
        How often an arm that is picked at random is clicked on, before random clicks.
    offset
        ‖μ‖: the spread of log-odds between arms that all tasks agree on.
    inside, outside
        The spread of log-odds between arms that tasks differ by, in the directions of the subspace
        together and in all others together.
    level
        The standard deviation of b between tasks.
    random
        The share of rounds in which the reward has nothing to do with the arm: 0 or 1, with equal
        probability.
    """

    dim: int = 20
    rank: int = 6
    arms: int = 10
    base_rate: float = 0.05
    offset: float = 0.7
    inside: float = 1.0
    outside: float = 0.1
    level: float = 0.5
    random: float = 0.0

    def __post_init__(self) -> None:
        checks.integer("dim", self.dim, 1)
        checks.integer("rank", self.rank, 0, self.dim)
        checks.integer("arms", self.arms, 1)
        checks.fraction("base_rate", self.base_rate, open_ends=True)
        checks.fraction("random", self.random)
        for name in ("offset", "inside", "outside", "level"):
            checks.non_negative(name, getattr(self, name))

    def population(self, seed: int) -> ClicksPopulation:
        """The population of a seed."""
        return ClicksPopulation(self, checks.integer("seed", seed))


class ClicksPopulation(Population):
    """Directions, mean and intercept, drawn once."""

    def __init__(self, world: Clicks, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.dim = world.dim
        rng = self.population_rng()
        self.frame = random_orthogonal(world.dim, rng)
        mean = rng.standard_normal(world.dim)
        self.mean = world.offset * mean / np.linalg.norm(mean)
        is_inside = np.arange(world.dim) < world.rank
        total = np.where(is_inside, world.inside, world.outside)
        count = np.where(is_inside, max(world.rank, 1), max(world.dim - world.rank, 1))
        self.spreads = total / np.sqrt(count)
        # No truth for oracles, which know linear rewards: θ is that of log-odds.
        self.covariance = covariance_along(self.frame, self.spreads)
        variance = world.offset**2 + float((self.spreads**2).sum()) + world.level**2
        self.intercept = intercept_for(world.base_rate, float(np.sqrt(variance)))

    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task."""
        world = self.world
        rng = self.task_rng(task)
        theta = self.mean + self.frame @ (self.spreads * rng.standard_normal(world.dim))
        level = self.intercept + world.level * rng.standard_normal()
        contexts = rng.standard_normal((rounds, world.arms, world.dim))
        values: Array = sigmoid(level + contexts @ theta)
        values = (1.0 - world.random) * values + 0.5 * world.random
        rewards = (rng.random((rounds, 1)) < values).astype(float)
        return Episode(contexts, values, rewards, theta)


def intercept_for(rate: float, deviation: float) -> float:
    """The b with E σ(b + e) = rate for e ~ N(0, deviation²), by bisection.

    >>> round(intercept_for(0.5, 2.0) + 1.0, 6), round(intercept_for(0.05, 0.0), 3)
    (1.0, -2.944)
    """
    low, high = -60.0, 60.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        rate_there = float(expected_probability(np.array(middle), np.array(deviation)))
        low, high = (middle, high) if rate_there < rate else (low, middle)
    return 0.5 * (low + high)
