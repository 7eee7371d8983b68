"""How well several priors predicted the same rewards: errors, likelihoods, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
    sizes = weights.sum(1)
    errors = {name: weights * found.errors[:, :first] for name, found in forecasts.items()}
    scores = {name: weights * found.scores[:, :first] for name, found in forecasts.items()}
    pairs = [(one, other) for one in forecasts for other in forecasts if one != other]

    def means(parts: Mapping[str, Array]) -> dict[str, Estimate]:
        return {name: draws.ratio(part.sum(1), sizes) for name, part in parts.items()}

    def differences(parts: Mapping[str, Array]) -> dict[tuple[str, str], Estimate]:
        return {
            (one, other): draws.ratio((parts[one] - parts[other]).sum(1), sizes)
            for one, other in pairs
        }

    coverage: dict[str, dict[float, Estimate]] = {}
    places: dict[str, list[Estimate]] = {}
    for name, found in forecasts.items():
        at = found.places[:, :first]
        coverage[name] = {
            level: draws.ratio((weights * (np.abs(at - 0.5) <= level / 2)).sum(1), sizes)
            for level in LEVELS
        }
        bins = np.minimum((at * BINS).astype(np.int64), BINS - 1)
        shares = np.stack([(weights * (bins == place)).sum(1) for place in range(BINS)], 1)
        places[name] = draws.ratios(shares, np.repeat(sizes[:, None], BINS, 1))
    return Measures(
        means(errors),
        means(scores),
        {name: draws.ratios(part, weights) for name, part in errors.items()},
        differences(scores),
        {
            (one, other): draws.ratio((errors[other] - errors[one]).sum(1), errors[other].sum(1))
            for one, other in pairs
        },
        coverage,
        places,
    )
