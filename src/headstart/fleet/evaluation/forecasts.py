"""Predicting every reward of a task before learning from it.

Tasks go side by side: the j-th reward of all of them is predicted, then learned, at once. A row
that a task does not have is learned as x = 0, which changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.model.belief import Belief
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array

__all__ = ["Episodes", "Forecast", "forecast", "start_beliefs"]

CHUNK = 256  # tasks side by side: as many as fit the processor's cache
LOG_TWO_PI = float(np.log(2.0 * np.pi))


class Episodes(NamedTuple):
    """The first rounds of tasks, side by side.

    Attributes
    ----------
    features, rewards
        Shapes ``(tasks, rounds, d)`` and ``(tasks, rounds)``; zeros beyond a task's end.
    weights
        How often each round counts; 0 beyond a task's end.
    lengths
        How many rounds of each task are here.
    """

    features: Array
    rewards: Array
    weights: Array
    lengths: Any

    def take(self, tasks: Any) -> Episodes:
        """Some of the tasks."""
        return Episodes(*(values[tasks] for values in self))


class Forecast(NamedTuple):
    """How well rewards were predicted, each before it was learned: shapes ``(tasks, rounds)``.

    ``errors`` are squared; ``scores`` are log densities; ``places`` are the rewards' places in
    their predicted distributions, from 0 to 1. Beyond a task's end all are 0.
    """

    errors: Array
    scores: Array
    places: Array


def forecast(prior: Prior | MixturePrior, episodes: Episodes) -> Forecast:
    """Predict and learn, round after round, from a prior.

    The predicted distribution of a reward is N(xᵀθ̂, R² (1 + ‖x‖²_{B⁻¹})), or a mixture of such.

    Examples
    --------
    A prior that is sure of θ = 2, and a task that agrees:

    >>> episodes = Episodes(np.ones((1, 2, 1)), np.array([[2.0, 3.0]]), np.ones((1, 2)), [2])
    >>> forecast(Prior.gaussian([2.0], [[1e-12]]), episodes).errors.round(6)
    array([[0., 1.]])
    """
    tasks, rounds = episodes.rewards.shape
    found = Forecast(*(np.zeros((tasks, rounds)) for _ in Forecast._fields))
    for at in range(0, tasks, CHUNK):
        rows = slice(at, min(at + CHUNK, tasks))
        forecast_chunk(prior, episodes, rows, found)
    return found


def forecast_chunk(
    prior: Prior | MixturePrior, episodes: Episodes, rows: slice, found: Forecast
) -> None:
    """Predict and learn the tasks of a chunk."""
    belief = start_beliefs(prior, rows.stop - rows.start)
    longest = int(np.max(episodes.lengths[rows], initial=0))
    # Each row in double precision: the belief's roots must stay so.
    features = episodes.features[rows, :longest].astype(np.float64)
    for place in range(longest):
        x, r = features[:, place], episodes.rewards[rows, place]
        weight = episodes.weights[rows, place]
        here = weight > 0
        mean, score, at = predict_rewards(belief, x, r)
        found.errors[rows, place] = np.where(here, (r - mean) ** 2, 0.0)
        found.scores[rows, place] = np.where(here, score, 0.0)
        found.places[rows, place] = np.where(here, at, 0.0)
        if place + 1 < longest:
            # A round that counts w times is one of √w times the size.
            scale = np.sqrt(weight)
            belief = belief.update(x * scale[:, None], r * scale)


def start_beliefs(prior: Prior | MixturePrior, tasks: int) -> Any:
    """The belief before any reward, for so many tasks side by side."""
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    wide = Prior(
        np.broadcast_to(parts.mean, (tasks, *parts.mean.shape)),
        np.broadcast_to(parts.root, (tasks, *parts.root.shape)),
        noise=np.broadcast_to(np.asarray(parts.noise), (tasks, *parts.batch)),
    )
    if isinstance(prior, MixturePrior):
        weights = np.broadcast_to(prior.log_weights, (tasks, *prior.log_weights.shape))
        return MixturePrior(wide, weights).belief()
    return Belief.start(wide)


def predict_rewards(
    belief: Belief | MixtureBelief, x: Array, r: Array
) -> tuple[Array, Array, Array]:
    """The mean, the log density and the place of rewards in their predicted distributions."""
    from scipy.special import logsumexp, ndtr  # only for those who evaluate: it takes a while

    if isinstance(belief, Belief):
        mean = (x * belief.mean).sum(-1)
        variance = belief.noise**2 * (1.0 + belief.width(x[:, None, :])[:, 0] ** 2)
        error = (r - mean) / np.sqrt(variance)
        return mean, -0.5 * (error**2 + np.log(variance) + LOG_TWO_PI), ndtr(error)
    parts = belief.parts
    means = (x[:, None, :] * parts.mean).sum(-1)
    wide = parts.width(x[:, None, None, :])[..., 0]
    variance = np.asarray(parts.noise) ** 2 * (1.0 + wide**2)
    error = (r[:, None] - means) / np.sqrt(variance)
    scores = -0.5 * (error**2 + np.log(variance) + LOG_TWO_PI)
    weights = belief.weights
    return (
        (weights * means).sum(-1),
        logsumexp(belief.log_weights + scores, axis=-1),
        (weights * ndtr(error)).sum(-1),
    )
