"""How well several priors predicted the same rewards: errors, likelihoods, calibration.

Intervals are over tasks, by the bootstrap. Tasks are the independent repetitions, rewards of one
task are not: every interval draws whole tasks with replacement. All estimates of one evaluation use
the same draws, so that differences are paired. A dozen tasks drawn anew vary less than a dozen new
tasks would; intervals of means are widened by what Student's t and the lost degree of freedom say,
which is little for a hundred. What cannot be negative, such as an error, is widened in logarithms,
and shares end at 1, so that no interval has values that are impossible.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.fleet.evaluation.rollouts import Forecast
from headstart.records import Array

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
    pit
        The share of rewards in each tenth of their predicted distributions, by model.
    """

    errors: dict[str, Estimate]
    scores: dict[str, Estimate]
    by_position: dict[str, list[Estimate]]
    gains: dict[tuple[str, str], Estimate]
    savings: dict[tuple[str, str], Estimate]
    coverage: dict[str, dict[float, Estimate]]
    pit: dict[str, list[Estimate]]


def measure(
    forecasts: dict[str, Forecast], weights: Array, first: int, bootstrap: Bootstrap
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
        at = each.pit[:, :first]
        columns["error", name] = errors[name], weights
        columns["score", name] = scores[name], weights
        for place in range(weights.shape[1]):
            columns["position", name, place] = errors[name][:, [place]], weights[:, [place]]
        for level in LEVELS:
            columns["coverage", name, level] = weights * (np.abs(at - 0.5) <= level / 2), weights
        bins = np.minimum((at * BINS).astype(np.int64), BINS - 1)
        for place in range(BINS):
            columns["pit", name, place] = weights * (bins == place), weights
    for one, other in pairs:
        columns["gain", one, other] = scores[one] - scores[other], weights
        columns["ratio", one, other] = errors[one], errors[other]
    sums, sizes = (
        np.stack([each[part].sum(1) for each in columns.values()], axis=1) for part in (0, 1)
    )
    ratios = dict(zip(columns, bootstrap.ratios(sums, sizes), strict=True))
    rounds = range(weights.shape[1])
    return Measures(
        {name: ratios["error", name] for name in forecasts},
        {name: ratios["score", name] for name in forecasts},
        {name: [ratios["position", name, place] for place in rounds] for name in forecasts},
        {pair: ratios["gain", *pair] for pair in pairs},
        {pair: share_saved(ratios["ratio", *pair]) for pair in pairs},
        {name: {level: ratios["coverage", name, level] for level in LEVELS} for name in forecasts},
        {name: [ratios["pit", name, place] for place in range(BINS)] for name in forecasts},
    )


LEVEL = 0.95
CHUNK = 100  # draws that are made at a time


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def share_saved(ratio: Estimate) -> Estimate:
    """The share that is saved, at most 1, from the ratio of what is left.

    >>> share_saved(Estimate(0.75, 0.5, 2.0))
    Estimate(value=0.25, low=-1.0, high=0.5)
    """
    return Estimate(1.0 - ratio.value, 1.0 - ratio.high, 1.0 - ratio.low)


@dataclasses.dataclass(frozen=True, eq=False)
class Bootstrap:
    """Whole tasks drawn with replacement, as many as there are, again and again.

    Parameters
    ----------
    tasks
        How many tasks there are.
    seed
        Of the draws.
    count
        How often they are drawn.
    owners
        Where tasks were predicted several times, whose each row of predictions is: all rows of a
        task are drawn together.
    wider
        By what factor intervals are made wider.

    Examples
    --------
    >>> bootstrap = Bootstrap(tasks=100, seed=0)
    >>> (mean,) = bootstrap.ratios(np.arange(100.0)[:, None], np.ones((100, 1)))
    >>> mean.value, round(mean.low), round(mean.high)
    (49.5, 44, 55)
    """

    tasks: int
    seed: int
    count: int = 2000
    owners: npt.NDArray[np.intp] | None = None
    wider: float = 1.0

    def by_task(self, values: Array) -> Array:
        """Rows of predictions added up by task."""
        if self.owners is None:
            return values
        from scipy.sparse import csr_array  # only for those who evaluate: it takes a while

        places, ones = np.arange(len(self.owners)), np.ones(len(self.owners))
        total: Array = csr_array((ones, (self.owners, places)), (self.tasks, len(ones))) @ values
        return total

    def ratios(self, sums: Array, sizes: Array) -> list[Estimate]:
        """Σ sums / Σ sizes over tasks: means over rewards, whose number differs by task.

        Every column is one. The draws are made anew, so many columns at once are best.
        """
        columns = sums.shape[1]
        both = self.by_task(np.concatenate([sums, sizes], axis=1))
        size, rng = both[:, columns:].sum(0), np.random.default_rng([self.seed, 0x7A5C])
        drawn, even = np.empty((self.count, columns)), np.full(self.tasks, 1.0 / self.tasks)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = both[:, :columns].sum(0) / size
            for at in range(0, self.count, CHUNK):
                counts = rng.multinomial(self.tasks, even, size=min(CHUNK, self.count - at))
                totals = counts.astype(np.float64) @ both
                # A draw may hold no task that is long enough: it says nothing of that column.
                drawn[at : at + len(counts)] = totals[:, :columns] / totals[:, columns:]
        wide = self.wider * widening(self.tasks)
        is_positive = np.all(sums >= 0.0, axis=0)
        is_share = is_positive & np.all(sums <= sizes, axis=0)
        estimates = []
        for column, value in enumerate(values.tolist()):
            if not size[column] > 0:
                estimates.append(Estimate(math.nan, math.nan, math.nan))
                continue
            low, high = interval_ends(drawn[np.isfinite(drawn[:, column]), column])
            in_logs = bool(is_positive[column]) and value > 0.0
            low, high = (widened(value, end, wide, in_logs) for end in (low, high))
            estimates.append(Estimate(value, low, min(high, 1.0) if is_share[column] else high))
        return estimates


def widened(value: float, end: float, wide: float, in_logs: bool) -> float:
    """The end of an interval, so many times as far from the value: log(end) if ``in_logs``.

    >>> widened(1.0, 0.25, 2.0, False), round(widened(1.0, 0.25, 2.0, True), 4)
    (-0.5, 0.0625)
    """
    if not in_logs:
        return value + wide * (end - value)
    log = math.log(value)
    return math.exp(min(log + wide * (math.log(end) - log), 700.0)) if end > 0.0 else 0.0


def interval_ends(values: Array) -> tuple[float, float]:
    """The ends of the interval that holds the middle 95 % of the draws."""
    outside = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(values, [outside, 1.0 - outside], method="nearest")
    return float(low), float(high)


def widening(tasks: int) -> float:
    """How much wider than the bootstrap's an interval over so many tasks must be.

    >>> round(widening(12), 2), round(widening(1000), 2)
    (1.17, 1.0)
    """
    if tasks < 2:
        return math.inf
    from scipy.special import ndtri, stdtrit  # only for those who evaluate: it takes a while

    normal = float(ndtri(0.5 + LEVEL / 2.0))
    student = float(stdtrit(tasks - 1, 0.5 + LEVEL / 2.0))
    return student / normal * math.sqrt(tasks / (tasks - 1))
