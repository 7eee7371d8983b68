"""Simulations of one seed that the engine does not run: coverage, interleaved tasks, an oracle."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

import numpy as np

from headstart import checks
from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.records import Array
from headstart.worlds.base import World
from headstart.worlds.synthetic import Synthetic

#: The nominal coverage of the intervals.
LEVELS = (0.5, 0.8, 0.9, 0.95)
HELD_OUT = 10  # rounds of each task that are not played


def measure_coverage(
    world: World, seed: int, tasks: int, stages: Sequence[int], reward: str = "number"
) -> Array:
    """The shares of arms whose expected reward and whose reward are within their intervals.

    ``Bandit(dim)``, with nothing else given, plays tasks one after another. At each stage, a number
    of rewards of the task, the first arm of each of ten rounds that are never played is predicted.
    Arms are in random order, so these do not depend on what the bandit has chosen.

    Parameters
    ----------
    world, seed
        Where tasks come from.
    tasks
        The number of tasks, each of as many rounds as the last stage.
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


def play_interleaved(world: World, seed: int, tasks: int, rounds: int, at_once: int) -> Array:
    """Regret of every task when ``at_once`` tasks take turns, and a new one starts as one ends.

    The bandit is the default, and estimates the noise. With ``at_once=1``, tasks are sequential.
    """
    checks.integer("at_once", at_once, 1)
    population = world.population(seed)
    bandit = Bandit(population.dim, seed=seed, cache_size=max(at_once, 2))
    regret = np.zeros(tasks)
    waiting = ((number, population.episode(number, rounds), 0) for number in range(tasks))
    running = deque(itertools.islice(waiting, at_once))
    while running:
        number, episode, k = running.popleft()
        task = bandit.task(number)
        choice = task.choose(episode.contexts[k])
        task.learn(choice, float(episode.rewards[k, choice.arm]))
        regret[number] += episode.values[k].max() - episode.values[k, choice.arm]
        if k + 1 < rounds:
            running.append((number, episode, k + 1))
        else:
            task.close()
            running.extend(itertools.islice(waiting, 1))
    return regret


def play_logistic_oracle(world: Synthetic, seed: int, tasks: int, rounds: int) -> Array:
    """Regret of every task for a policy that is given μ, Σ and the logistic link.

    With p = 1/(1 + exp(−a xᵀθ)), its Gaussian belief N(θ̂, C) is corrected after every click by one
    step of the extended Kalman filter, and it plays the largest xᵀθ̂ + ‖x‖_C::

        w = a² p(1−p)      C ← C − w C x xᵀ C / (1 + w xᵀCx)      θ̂ ← θ̂ + a (r − p) C x
    """
    slope = world.logistic
    if not slope:
        raise InputError("world must have logistic rewards (logistic above 0); got none")
    population = world.population(seed)
    truth = population.truth
    assert truth is not None
    regret = np.zeros(tasks)
    for number in range(tasks):
        episode = population.episode(number, rounds)
        mean, covariance = truth.mean.copy(), truth.covariance.copy()
        for k, contexts in enumerate(episode.contexts):
            spread = np.einsum("ki,ij,kj->k", contexts, covariance, contexts)
            arm = int(np.argmax(contexts @ mean + np.sqrt(np.maximum(spread, 0.0))))
            x = contexts[arm]
            chance = 1.0 / (1.0 + np.exp(-slope * float(x @ mean)))
            weight = slope**2 * chance * (1.0 - chance)
            gain = covariance @ x
            covariance -= np.outer(gain, gain) * (weight / (1.0 + weight * float(x @ gain)))
            mean += slope * (float(episode.rewards[k, arm]) - chance) * (covariance @ x)
            regret[number] += episode.values[k].max() - episode.values[k, arm]
    return regret
