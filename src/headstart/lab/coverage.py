"""Coverage: how often the intervals of ``predict`` contain what they are of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart.bandit import Bandit
from headstart.records import Array
from headstart.worlds.base import World

__all__ = ["LEVELS", "measure_coverage"]

#: The nominal coverage of the intervals.
LEVELS = (0.5, 0.8, 0.9, 0.95)
HELD_OUT = 10  # rounds of each task that are not played


def measure_coverage(
    world: World, seed: int, tasks: int, stages: Sequence[int], reward: str = "number"
) -> Array:
    """The shares of arms whose expected reward and whose reward are within their intervals.

    ``Bandit(dim)``, with nothing else given, plays tasks one after another. When a task has had as
    many rewards as a stage says, the first arm of each of ten rounds that are never played is
    predicted. Arms are in random order, so these do not depend on what the bandit has chosen.

    Parameters
    ----------
    world, seed
        Where tasks come from.
    tasks
        How many are played, each for as many rounds as the last stage says.
    stages
        Numbers of rewards, rising; 0 is a new task.
    reward
        As in :class:`~headstart.Bandit`.

    Returns
    -------
    ndarray of shape (tasks, stages, 2, levels)
        The shares for expected rewards, and for single rewards, at every level of :data:`LEVELS`.
    """
    population = world.population(seed)
    bandit = Bandit(population.dim, reward=reward, seed=seed)
    rounds = stages[-1]
    shares = np.empty((tasks, len(stages), 2, len(LEVELS)))
    for number in range(tasks):
        episode, task = population.episode(number, rounds + HELD_OUT), bandit.task(number)
        contexts, *targets = (part[rounds:, 0] for part in episode[:3])
        for k in range(rounds + 1):
            if k in stages:
                for kind, target in enumerate(targets):
                    for at, level in enumerate(LEVELS):
                        predicted = task.predict(contexts, level, of_reward=kind == 1)
                        inside = (predicted.lower <= target) & (target <= predicted.upper)
                        shares[number, stages.index(k), kind, at] = inside.mean()
            if k < rounds:
                choice = task.choose(episode.contexts[k])
                task.learn(choice, float(episode.rewards[k, choice.arm]))
        task.close()
    return shares
