"""Forecasts of rewards: each is predicted from what was learned of its task before, then learned.

Tasks go side by side: the j-th reward of all of them is predicted, then learned, at once. A row
that a task does not have is learned as x = 0, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.own_noise import has_own_noise, reward_dof
from headstart.model.prior import Prior
from headstart.records import Array

__all__ = ["CHUNK", "AnyPrior", "Episodes", "Forecast", "forecast", "start_beliefs"]

AnyPrior = Prior | MixturePrior

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

    ``errors`` are squared; ``scores`` are log densities; ``pit`` are the rewards' places in
    their predicted distributions, from 0 to 1 (the probability integral transform). Beyond a task's
    end all are 0.
    """

    errors: Array
    scores: Array
    pit: Array


Score = Callable[[Any, Array, Array, tuple[slice, int]], tuple[Array, Array, Array]]
Expand = Callable[[Any, Array, Array, Array], tuple[Array, Array]]


def forecast(
    prior: AnyPrior,
    episodes: Episodes,
    score: Score | None = None,
    expand: Expand | None = None,
) -> Forecast:
    """Predict and learn, round after round, from a prior.

    Parameters
    ----------
    prior
        Where every task starts.
    episodes
        The rounds.
    score
        ``score(belief, x, r, at)`` is the error, the score and the place of rewards at some places
        of the episodes; :func:`score_rewards` unless given.
    expand
        ``expand(belief, x, r, weight)`` is the round of a linear model that a round is learned as;
        one that counts w times is learned as one of √w times the size, unless given.

    Examples
    --------
    A prior that is sure of θ = 2, and a task that agrees:

    >>> episodes = Episodes(np.ones((1, 2, 1)), np.array([[2.0, 3.0]]), np.ones((1, 2)), [2])
    >>> forecast(Prior.gaussian([2.0], [[1e-12]]), episodes).errors.round(6)
    array([[0., 1.]])
    """
    score, expand = score or score_rewards, expand or weighted_round
    tasks, rounds = episodes.rewards.shape
    result = Forecast(*(np.zeros((tasks, rounds)) for _ in Forecast._fields))
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    has_noise = bool(np.any(has_own_noise(parts.noise_dof)))
    for start in range(0, tasks, CHUNK):
        rows = slice(start, min(start + CHUNK, tasks))
        belief = start_beliefs(prior, rows.stop - rows.start)
        evidence = Evidence.zero(belief.dim, belief.batch)
        longest = int(np.max(episodes.lengths[rows], initial=0))
        # Each row in double precision: the belief's roots must stay so.
        features = episodes.features[rows, :longest].astype(np.float64)
        for place in range(longest):
            at, x = (rows, place), features[:, place]
            r, weight = episodes.rewards[at], episodes.weights[at]
            for out, values in zip(result, score(belief, x, r, at), strict=True):
                out[at] = np.where(weight > 0, values, 0.0)
            if place + 1 < longest:
                learned = expand(belief, x, r, weight)
                belief = belief.update(*learned)
                if has_noise:
                    after = evidence.add_unchecked(*learned)
                    evidence = after.replace(rounds=evidence.rounds + weight)
                    belief = belief.prior.belief(evidence) if belief.needs_rebuild else belief
    return result


def start_beliefs(prior: AnyPrior, tasks: int) -> Any:
    """The belief before any reward, for so many tasks side by side."""
    stack: Any = type(prior).stack
    return stack([prior] * tasks).belief()


def weighted_round(belief: Any, x: Array, r: Array, weight: Array) -> tuple[Array, Array]:
    """A round that counts w times: one of √w times the size."""
    scale = np.sqrt(weight)
    return x * scale[:, None], r * scale


def score_rewards(
    belief: Belief | MixtureBelief, x: Array, r: Array, at: tuple[slice, int]
) -> tuple[Array, Array, Array]:
    """The squared error, the log density and the place of rewards in their distributions.

    A reward is N(xᵀθ̂, R² (1 + ‖x‖²_{B⁻¹})), t where R is uncertain, or a mixture of such.
    """
    from scipy.special import logsumexp  # only for those who evaluate: it takes a while

    if isinstance(belief, MixtureBelief):
        parts, log_weights, rows = belief.parts, belief.log_weights, x[:, None, None, :]
    else:  # a mixture of one
        parts, log_weights, rows = belief, np.zeros((len(x), 1)), x[:, None, :]

    def by_part(values: Any) -> Array:
        """Numbers of tasks and parts: shape ``(tasks, parts)``."""
        return np.broadcast_to(values, parts.batch).reshape(log_weights.shape)

    means, width = by_part(parts.predict(rows)[..., 0]), by_part(parts.width(rows)[..., 0])
    dof = reward_dof(width, *map(by_part, parts.degrees_of_freedom()))
    variance, weights = np.square(by_part(parts.noise)) * (1.0 + width**2), np.exp(log_weights)
    densities, places = t_distribution((r[:, None] - means) / np.sqrt(variance), dof)
    return (
        (r - (weights * means).sum(-1)) ** 2,
        logsumexp(log_weights + densities - 0.5 * np.log(variance), axis=-1),
        (weights * places).sum(-1),
    )


def t_distribution(error: Array, dof: Array) -> tuple[Array, Array]:
    """Log densities and distribution functions of t distributions, normal with ∞ degrees."""
    from scipy.special import gammaln, ndtr, stdtr

    normal = -0.5 * (error**2 + LOG_TWO_PI)
    if np.isinf(dof).all():
        return normal, ndtr(error)
    degrees = np.where(np.isinf(dof), 1.0, dof)
    half = (degrees + 1.0) / 2.0
    constant = gammaln(half) - gammaln(degrees / 2.0) - 0.5 * np.log(np.pi * degrees)
    density = constant - half * np.log1p(error**2 / degrees)
    return (
        np.where(np.isinf(dof), normal, density),
        np.where(np.isinf(dof), ndtr(error), stdtr(degrees, error)),
    )
