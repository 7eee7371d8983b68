"""The average of the full population and of low-rank ones, by how well each has predicted.

The candidates are the population with a full covariance, N(μ₀, Σ₀), and low-rank populations
(:mod:`~headstart.transfer.empirical_bayes.low_rank.fitting`) shrunk by several amounts ν towards
the same variance everywhere::

    S_ν = (1 − ρ) S + ρ (tr S / d) I          ρ = ν d / (N + ν d)

in features multiplied by ``LowRank.scale``.

Before a finished task is learned from, every candidate predicts its rewards. Scores are sums of the
log-likelihoods, those of older tasks fading; weights w are their softmax, where all low-rank
candidates together count as much as the full covariance if they predict alike. A new task's prior
has the mean and the covariance of the weighted mixture::

    m = Σ w_c m_c          C = Σ w_c (S_c + (m_c − m)(m_c − m)ᵀ)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.arrays import array_namespace, matvec, trace, transpose
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.small_matrices import eigh, gaussian_gain
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.strength import clip_scores

#: ν of the low-rank candidates.
SHRINKAGES = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
CANDIDATES = 1 + len(SHRINKAGES)
HANDICAP = 4.0  # nats by which every low-rank candidate starts below the full covariance
#: Scores are about those of the latest third of the tasks, and of so many at least and at most:
#: low-rank candidates often predict badly with a handful of tasks, and soon well.
SCORE_SHARE, MIN_SCORE_TASKS, MAX_SCORE_TASKS = 1 / 3, 3.0, 33.0
MAX_DEFICIT = 10.0  # the most that one task counts against a candidate, in nats
MIN_TASKS = 4.0  # tasks from which on low-rank candidates are scored and count


def initial_ensemble(batch: tuple[int, ...] = ()) -> Array:
    """Scores before any task: of the full covariance, then of the low-rank candidates."""
    scores = np.full((*batch, CANDIDATES), -HANDICAP)
    scores[..., 0] = 0.0
    return scores


def ensemble_weights(scores: Array, count: Any) -> Array:
    """The candidates' weights after ``count`` tasks.

    >>> ensemble_weights(initial_ensemble(), 20.0)[0].round(3)
    np.float64(0.982)
    >>> ensemble_weights(initial_ensemble(), 2.0)[0]
    np.float64(1.0)
    """
    xp = array_namespace(scores, count)
    prior = xp.where(xp.arange(CANDIDATES) == 0, 1.0, 1.0 / len(SHRINKAGES))
    weights = prior * xp.exp(scores - scores.max(-1, keepdims=True))
    few = xp.asarray(count)[..., None] < MIN_TASKS
    weights = xp.where(few, xp.arange(CANDIDATES) == 0, weights)
    return weights / weights.sum(-1, keepdims=True)


def add_ensemble_scores(scores: Array, latest: Array, weight: Any, count: Any) -> Array:
    """Scores with those of one more task, which counts by its weight; the best is 0.

    ``count`` is the number of tasks before it.
    """
    xp = array_namespace(scores, latest)
    latest = clip_scores(latest, latest.max(-1, keepdims=True), MAX_DEFICIT)
    weights = xp.asarray(weight)[..., None]
    window = xp.clip(SCORE_SHARE * xp.asarray(count), MIN_SCORE_TASKS, MAX_SCORE_TASKS)
    new = (1.0 - 1.0 / window[..., None]) ** weights * scores + weights * latest
    return new - new.max(-1, keepdims=True)


def shrink_shares(count: Any, dim: int) -> Array:
    """ρ of every low-rank candidate after ``count`` tasks."""
    xp = array_namespace(count)
    many = SHRINKAGES * dim
    return many / (xp.maximum(xp.asarray(count), 1e-300)[..., None] + many)


def average_prior(
    weights: Array, count: Any, mean: Array, covariance: Array, low: LowRank
) -> tuple[Array, Array]:
    """The mean m and the covariance C of the mixture.

    ``mean`` and ``covariance`` are those of the first candidate.
    """
    xp = array_namespace(mean)
    dim = mean.shape[-1]
    first, others = weights[..., :1], weights[..., 1:]
    shares = shrink_shares(count, dim)
    unshrunk = (others * (1.0 - shares)).sum(-1)[..., None, None]
    isotropic = (others * shares).sum(-1) * trace(low.covariance) / dim
    difference = low.scale * low.mean - mean
    spread = unshrunk * low.covariance + isotropic[..., None, None] * xp.eye(dim)
    across = low.scale[..., :, None] * low.scale[..., None, :]
    total = first[..., None] * covariance + across * spread
    share = (first * (1.0 - first))[..., None]
    between = share * difference[..., :, None] * difference[..., None, :]
    return mean + (1.0 - first) * difference, total + between


def low_rank_likelihoods(low: LowRank, count: Any, variance: Any, evidence: Evidence) -> Array:
    """The log density of a task's rewards under every low-rank candidate.

    Up to what all candidates share, as in ``log_likelihood``. All S_ν have the eigenvectors of S.
    """
    xp = array_namespace(low.mean)
    dim, noise = low.mean.shape[-1], xp.asarray(variance)
    moment = low.scale * evidence.moment
    across = low.scale[..., :, None] * low.scale[..., None, :]
    gram = across * evidence.gram
    values, vectors = eigh(low.covariance)
    values = xp.maximum(values, 0.0)[..., None, :]  # a step that leaves out a task may overshoot
    shares = shrink_shares(count, dim)[..., :, None]
    half = xp.sqrt((1.0 - shares) * values + shares * values.mean(-1, keepdims=True))
    pulled = matvec(gram, low.mean)
    surprise = (moment - pulled) / noise[..., None]
    offset = (low.mean * (2.0 * moment - pulled)).sum(-1) / (2.0 * noise)
    gram = transpose(vectors) @ gram @ vectors / noise[..., None, None]
    inner = half[..., :, None] * gram[..., None, :, :] * half[..., None, :]
    whitened = half * matvec(transpose(vectors), surprise)[..., None, :]
    return xp.asarray(offset[..., None] + 0.5 * gaussian_gain(inner, whitened))
