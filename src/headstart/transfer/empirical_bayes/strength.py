"""How strongly to regularise: every task is predicted at many strengths before it is learned from.

A score is the log-likelihood that a strength's prior gave to the latest tasks; what a task counts
falls by a few per cent with every later one.
"""

from __future__ import annotations

import numpy as np

from headstart.arrays import array_namespace
from headstart.records import Array

STRENGTHS = 10.0 ** np.arange(-2.5, 1.01, 0.5)  # that are tried, as multiples of the dimension

SCORE_DECAY = 0.97  # of a task's weight with every later task
MAX_SCORE_DEFICIT = 25.0  # the most that one task counts, in nats
LOG_STRENGTH_PRECISION = 3.0  # of the prior of log strength, around the dimension


def initial_scores(strengths: Array) -> Array:
    """Scores before any task, of strengths given as multiples of the dimension."""
    return -0.5 * LOG_STRENGTH_PRECISION * np.log10(strengths) ** 2


def clip_scores(scores: Array, best: Array, deficit: float = MAX_SCORE_DEFICIT) -> Array:
    """A task's scores, bounded below relative to the best one, so that no outlier decides alone."""
    return array_namespace(scores).maximum(scores, best - deficit)


def mean_strength(scores: Array, strengths: Array) -> Array:
    """The strengths' geometric mean, weighted by how well each has predicted.

    >>> mean_strength(np.array([0.0, 0.0, -99.0]), np.array([0.1, 10.0, 1e3])).round(6)
    np.float64(1.0)
    """
    xp = array_namespace(scores)
    weights = xp.exp(scores - scores.max(-1, keepdims=True))
    return xp.exp((weights * xp.log(strengths)).sum(-1) / weights.sum(-1))
