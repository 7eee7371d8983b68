"""How well several priors predicted the same rewards: errors, likelihoods, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from headstart.fleet.evaluation.bootstrap import Draws, Estimate
from headstart.fleet.evaluation.forecasts import Forecast
from headstart.records import Array

__all__ = [
    "ALONE",
    "AVERAGE",
    "BINS",
    "LEARNED",
    "LEVELS",
    "OFFSET",
    "POOLED",
    "Measures",
    "measure",
]

#: The models, by the names that tables and figures show.
LEARNED, POOLED, OFFSET = "learned prior", "pooled model", "random intercept"
ALONE, AVERAGE = "no prior", "average only"

#: The predictive intervals whose coverage is counted, and the bins of places from 0 to 1.
LEVELS = (0.5, 0.8, 0.95)
BINS = 10


class Measures(NamedTuple):
    """Means over the first rewards of future tasks, with intervals over tasks.

    Attributes
    ----------
    errors
        Mean squared error, by model.
    scores
        Log-likelihood per reward in nats, by model.
    by_position
        Mean squared error of the first, second … reward, by model.
    gains
        By how much one model's log-likelihood per reward is above another's: paired differences,
        by pairs of models.
    savings
        Which share of another model's squared error a model saves, by pairs of models.
    coverage
        The share of rewards inside predictive intervals, by model and level.
    places
        The share of rewards in each tenth of their predicted distributions, by model.
    """

    errors: dict[str, Estimate]
    scores: dict[str, Estimate]
    by_position: dict[str, list[Estimate]]
    gains: dict[tuple[str, str], Estimate]
    savings: dict[tuple[str, str], Estimate]
    coverage: dict[str, dict[float, Estimate]]
    places: dict[str, list[Estimate]]


def measure(
    forecasts: Mapping[str, Forecast], weights: Array, first: int, draws: Draws
) -> Measures:
    """Compare forecasts of the first rewards of every task; ``weights`` say how often each counts.

    Shapes are ``(tasks, rounds)``.
    """
    weights = weights[:, :first]
    errors = {name: weights * each.errors[:, :first] for name, each in forecasts.items()}
    scores = {name: weights * each.scores[:, :first] for name, each in forecasts.items()}
    pairs = [(one, other) for one in forecasts for other in forecasts if one != other]
    # Every estimate is a ratio of sums over rewards: all columns are drawn together.
    columns: dict[Any, tuple[Array, Array]] = {}
    for name, each in forecasts.items():
        at = each.places[:, :first]
        columns["error", name] = errors[name], weights
        columns["score", name] = scores[name], weights
        for place in range(weights.shape[1]):
            columns["position", name, place] = errors[name][:, [place]], weights[:, [place]]
        for level in LEVELS:
            columns["coverage", name, level] = weights * (np.abs(at - 0.5) <= level / 2), weights
        bins = np.minimum((at * BINS).astype(np.int64), BINS - 1)
        for place in range(BINS):
            columns["place", name, place] = weights * (bins == place), weights
    for one, other in pairs:
        columns["gain", one, other] = scores[one] - scores[other], weights
        columns["saving", one, other] = errors[other] - errors[one], errors[other]
    sums, sizes = (
        np.stack([each[part].sum(1) for each in columns.values()], axis=1) for part in (0, 1)
    )
    found = dict(zip(columns, draws.ratios(sums, sizes), strict=True))
    rounds = range(weights.shape[1])
    return Measures(
        {name: found["error", name] for name in forecasts},
        {name: found["score", name] for name in forecasts},
        {name: [found["position", name, place] for place in rounds] for name in forecasts},
        {pair: found["gain", *pair] for pair in pairs},
        {pair: found["saving", *pair] for pair in pairs},
        {name: {level: found["coverage", name, level] for level in LEVELS} for name in forecasts},
        {name: [found["place", name, place] for place in range(BINS)] for name in forecasts},
    )
