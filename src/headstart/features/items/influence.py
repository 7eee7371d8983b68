"""How much the rewards of a task count for what all tasks know of items.

Tasks differ in the noise of their rewards. With d changes from a reward of a task to the next one,
of which D is the sum of squares, halved, and their usual variance V, a task counts ::

    ω = min(1, (ν + d) / (ν + D/(2 V)))        V = Σ ω D / Σ ω d, over all tasks

which is the expected precision of a t distribution with ν degrees of freedom, but for the cap: only
tasks that vary twice as much as is usual count less. Changes do not depend on the level of a task.
The first one is from the latest reward of another task. Equal rewards are no change, so that where
most rewards are 0, the others are not taken for outliers; of two different rewards, ω is 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.records import Array

FREEDOM = 2.0  # ν
SLACK = 2.0  # by how much D/d can be above V
MIN_CHANGE = 1e-9  # of a reward, in its size: below, it is rounding
MIN_INFLUENCE = 1e-200
SETTLING_STEPS = 50


class Settled(NamedTuple):
    """V and Σ ω d when the influence of every task was computed last."""

    variance: float = 0.0
    changes: float = 0.0

    def is_old(self, variance: float, changes: float) -> bool:
        """Whether V has changed by a factor of two since, or there are a quarter more changes.

        >>> Settled(1.0, 10.0).is_old(1.5, 12.0), Settled(1.0, 10.0).is_old(1.5, 13.0)
        (False, True)
        """
        is_near = 0.5 * self.variance <= variance <= 2.0 * self.variance
        return not (is_near and changes <= 1.25 * self.changes)


def influence(squares: Any, changes: Any, variance: float) -> Any:
    """ω of a task, or of many: from D, d and V.

    >>> influence(30.0, 30.0, 1.0), influence(92.0, 22.0, 1.0), influence(5.0, 1.0, 0.0)
    (1.0, 0.5, 1.0)
    """
    if not variance > 0.0:
        return np.ones_like(squares) if isinstance(squares, np.ndarray) else 1.0
    surprise = squares / (SLACK * variance)
    ratio = (FREEDOM + changes) / (FREEDOM + surprise)
    if type(ratio) is float:
        return min(max(ratio, MIN_INFLUENCE), 1.0)
    return np.clip(ratio, MIN_INFLUENCE, 1.0)


def squared_change(reward: float, before: float | None) -> float:
    """Half the square of a change, 0 where there is none."""
    if before is None or abs(reward - before) <= MIN_CHANGE * abs(reward):
        return 0.0
    return 0.5 * (reward - before) ** 2


def settled_variance(
    squares: Array, changes: Array, rest: tuple[float, float], variance: float
) -> float:
    """V as it follows from the ω that follow from V, from a first guess.

    ``rest`` is Σ ω D and Σ ω d of tasks that are not known any more.

    >>> squares, changes = np.array([9.0, 11.0, 10.0, 1e7]), np.full(4, 10.0)
    >>> variance = settled_variance(squares, changes, (0.0, 0.0), variance=1e5)
    >>> influence(squares, changes, variance).round(3)
    array([1., 1., 1., 0.])
    """
    for _ in range(SETTLING_STEPS):
        weights, before = influence(squares, changes, variance), variance
        count = rest[1] + float(weights @ changes)
        variance = (rest[0] + float(weights @ squares)) / count if count else 0.0
        if abs(variance - before) <= 1e-3 * before:
            break
    return variance
