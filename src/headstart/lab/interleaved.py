"""Interleaved tasks: several run at once, one round each in turn, through one bandit."""

from __future__ import annotations

import numpy as np

from headstart import checks
from headstart.bandit import Bandit
from headstart.records import Array
from headstart.rules import UCB
from headstart.transfer import EmpiricalBayes
from headstart.worlds.base import Episode, Population, World

__all__ = ["play_interleaved"]


def play_interleaved(world: World, seed: int, tasks: int, rounds: int, at_once: int) -> Array:
    """Regret of every task when ``at_once`` tasks run in turns, and the next starts as one ends.

    The bandit is the default, and estimates the noise. With ``at_once=1``, tasks are sequential.
    """
    checks.integer("at_once", at_once, 1)
    population = world.population(seed)
    bandit = Bandit(population.dim, EmpiricalBayes(), UCB(), seed=seed, cache_size=max(at_once, 2))
    regret = np.zeros(tasks)
    waiting = iter(range(tasks))
    running = [start(population, next(waiting), rounds) for _ in range(min(at_once, tasks))]
    while running:
        still = []
        for number, episode, k in running:
            task = bandit.task(number)
            choice = task.choose(episode.contexts[k])
            task.learn(choice, float(episode.rewards[k, choice.arm]))
            regret[number] += episode.values[k].max() - episode.values[k, choice.arm]
            if k + 1 < rounds:
                still.append((number, episode, k + 1))
                continue
            task.close()
            following = next(waiting, None)
            if following is not None:
                still.append(start(population, following, rounds))
        running = still
    return regret


def start(population: Population, number: int, rounds: int) -> tuple[int, Episode, int]:
    """A task before its first round."""
    return number, population.episode(number, rounds), 0
