"""An oracle for rewards of 0 and 1 that is given the logistic link."""

from __future__ import annotations

import numpy as np

from headstart.errors import InputError
from headstart.records import Array
from headstart.worlds.synthetic import Synthetic

__all__ = ["play_logistic_oracle"]


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
