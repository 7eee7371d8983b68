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
import numpy.typing as npt

from headstart import checks
from headstart.records import Array

__all__ = ["Draws", "Estimate"]

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
    owners: npt.NDArray[np.intp] | None = None
    wider: float = 1.0

    @classmethod
    def of(
        cls,
        tasks: int,
        seed: int,
        draws: int = 2000,
        owners: npt.NDArray[np.intp] | None = None,
        wider: float = 1.0,
    ) -> Draws:
        """Draw as many tasks as there are, so many times.

        Where tasks were predicted several times, ``owners`` says whose each row of predictions is:
        all rows of a task are drawn together. Intervals are made ``wider`` by a factor.
        """
        checks.integer("tasks", tasks, 1)
        rng = np.random.default_rng([seed, 0x7A5C])
        even = np.full(tasks, 1.0 / tasks)
        counts = rng.multinomial(tasks, even, size=draws).astype(np.float32)
        return cls(counts, owners, wider)

    def by_task(self, values: Array) -> Array:
        """Rows of predictions added up by task."""
        if self.owners is None:
            return values
        total = np.zeros((self.counts.shape[1], *values.shape[1:]))
        np.add.at(total, self.owners, values)
        return total

    def ratio(self, sums: Array, sizes: Array) -> Estimate:
        """Σ sums / Σ sizes over tasks: a mean over rewards, whose number differs by task."""
        return self.ratios(sums[:, None], sizes[:, None])[0]

    def ratios(self, sums: Array, sizes: Array) -> list[Estimate]:
        """The same for every column."""
        sums, sizes = self.by_task(sums), self.by_task(sizes)
        size = sizes.sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = sums.sum(0) / size
            # A draw may hold no task that is long enough: it says nothing of that column.
            drawn = (self.counts @ sums) / (self.counts @ sizes)
        found = []
        wide = self.wider * widening(self.counts.shape[1])
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
