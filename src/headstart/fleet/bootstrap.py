"""Intervals over tasks, by the bootstrap.

Tasks are the independent repetitions, rewards of one task are not: every interval draws whole
tasks with replacement. All estimates of one evaluation use the same draws, so that differences are
paired. A dozen tasks drawn anew vary less than a dozen new tasks would; intervals of means are
widened by what Student's t and the lost degree of freedom say, which is little for a hundred.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from headstart import checks
from headstart.records import Array

__all__ = ["Draws", "Estimate", "crossing", "falling"]

LEVEL = 0.95


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """How often each task is drawn, one row per draw: shape ``(draws, tasks)``.

    Examples
    --------
    >>> draws = Draws.of(tasks=100, seed=0)
    >>> found = draws.ratio(np.arange(100.0), np.ones(100))
    >>> found.value, round(found.low), round(found.high)
    (49.5, 44, 55)
    """

    counts: Array

    @classmethod
    def of(cls, tasks: int, seed: int, draws: int = 2000) -> Draws:
        """Draw as many tasks as there are, so many times."""
        checks.integer("tasks", tasks, 1)
        rng = np.random.default_rng([seed, 0x7A5C])
        even = np.full(tasks, 1.0 / tasks)
        return cls(rng.multinomial(tasks, even, size=draws).astype(np.float32))

    def ratio(self, sums: Array, sizes: Array) -> Estimate:
        """Σ sums / Σ sizes over tasks: a mean over rewards, whose number differs by task."""
        return self.ratios(sums[:, None], sizes[:, None])[0]

    def ratios(self, sums: Array, sizes: Array) -> list[Estimate]:
        """The same for every column."""
        size = sizes.sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = sums.sum(0) / size
            # A draw may hold no task that is long enough: it says nothing of that column.
            drawn = (self.counts @ sums) / (self.counts @ sizes)
        found = []
        wide = widening(self.counts.shape[1])
        for column, value in enumerate(values.tolist()):
            if not size[column] > 0:
                found.append(Estimate(math.nan, math.nan, math.nan))
                continue
            known = drawn[:, column][np.isfinite(drawn[:, column])]
            low, high = ends(known)
            found.append(
                Estimate(float(value), value - wide * (value - low), value + wide * (high - value))
            )
        return found


def ends(values: Array) -> tuple[float, float]:
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


def falling(values: Array, weights: Array) -> Array:
    """The non-increasing curve nearest to these values (pool adjacent violators).

    >>> falling(np.array([5.0, 1.0, 3.0, 2.0]), np.ones(4))
    array([5., 2., 2., 2.])
    """
    heights: list[float] = []
    masses: list[float] = []
    lengths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        length = 1
        while heights and heights[-1] <= value:
            mass = masses[-1] + weight
            value = (heights.pop() * masses.pop() + value * weight) / mass if mass else value
            weight = mass
            length += lengths.pop()
        heights.append(value)
        masses.append(weight)
        lengths.append(length)
    return np.repeat(heights, lengths)


def crossing(curve: Array) -> float:
    """Where a falling curve reaches 0, its points one apart; infinite where it does not.

    >>> crossing(np.array([3.0, 1.0, -1.0])), crossing(np.array([-1.0])), crossing(np.array([1.0]))
    (1.5, 0.0, inf)
    """
    below = np.flatnonzero(curve <= 0.0)
    if not len(below):
        return math.inf
    at = int(below[0])
    if at == 0:
        return 0.0
    above, under = float(curve[at - 1]), float(curve[at])
    return at - 1 + above / (above - under)
