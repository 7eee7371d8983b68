"""How well several priors predicted the same rewards: errors, likelihoods, calibration, a lead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headstart.fleet.bootstrap import Draws, Estimate, crossing, ends, falling
from headstart.fleet.forecasts import Episodes, Forecast
from headstart.records import Array

__all__ = [
    "ALONE",
    "AVERAGE",
    "BINS",
    "LEARNED",
    "LEVELS",
    "POOLED",
    "Lead",
    "Measures",
    "lead",
    "measure",
]

#: The models, by the names that tables and figures show.
LEARNED, POOLED = "learned prior", "pooled model"
ALONE, AVERAGE = "no prior", "average only"

#: The predictive intervals whose coverage is counted, and the bins of places from 0 to 1.
LEVELS = (0.5, 0.8, 0.95)
BINS = 10
ENOUGH = 10  # tasks that a position must have to count in a curve


class Lead(NamedTuple):
    """How many rounds a learner needs to predict as well as a prior does with none.

    ``looked`` is how many rounds were looked at; a learner that has not caught up by then needs
    more, and its number is infinite. ``curve`` is by how much its squared error is larger after
    0, 1, 2 … rounds.
    """

    rounds: Estimate
    looked: int
    curve: list[Estimate]

    @property
    def unit(self) -> str:
        """The word that follows the number."""
        return "round" if math.isinf(self.rounds.value) and self.looked == 1 else "rounds"

    def __str__(self) -> str:
        if math.isinf(self.rounds.value):
            return f"more than {self.looked}"
        high = "∞" if math.isinf(self.rounds.high) else f"{self.rounds.high:.1f}"
        return f"{self.rounds.value:.1f} [{self.rounds.low:.1f}, {high}]"


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
    coverage
        The share of rewards inside predictive intervals, by model and level.
    places
        The share of rewards in each tenth of their predicted distributions, by model.
    """

    errors: dict[str, Estimate]
    scores: dict[str, Estimate]
    by_position: dict[str, list[Estimate]]
    gains: dict[tuple[str, str], Estimate]
    coverage: dict[str, dict[float, Estimate]]
    places: dict[str, list[Estimate]]


def measure(
    forecasts: Mapping[str, Forecast], episodes: Episodes, first: int, draws: Draws
) -> Measures:
    """Compare forecasts of the first rewards of every task."""
    weights = episodes.weights[:, :first]
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
        coverage,
        places,
    )


def lead(start: Array, learner: Forecast, episodes: Episodes, draws: Draws) -> Lead:
    """How many rounds a learner needs to predict as well as a prior's mean ``start`` at once.

    Both predict the same rewards: the j-th of every task, by the learner after j − 1 rounds and by
    xᵀ start. Noise and hard rewards then cancel, and it does not matter that long tasks may differ
    from short ones. The difference falls with j; where it reaches 0 the learner has caught up.
    """
    weights = episodes.weights
    there = (weights > 0).sum(0)
    looked = int((there >= min(ENOUGH, there.max(initial=0))).sum())
    weights = weights[:, :looked]
    rewards = episodes.rewards[:, :looked]
    flat = episodes.features[:, :looked].astype(np.float64) @ start
    behind = weights * (learner.errors[:, :looked] - (rewards - flat) ** 2)
    curve = draws.ratios(behind, weights)
    sizes = weights.sum(0)
    value = crossing(falling(np.array([point.value for point in curve]), sizes))
    drawn_sizes = draws.counts @ weights
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (draws.counts @ behind) / drawn_sizes
    found = []
    for heights, counts in zip(drawn, drawn_sizes, strict=True):
        known = counts > 0
        found.append(crossing(falling(heights[known], counts[known])))
    return Lead(Estimate(value, *ends(np.array(found))), looked, curve)
