"""The weight of a task's own rewards of an item, if the task meets the item again.

The reward of an item in a task is r = f + u + ε: f is what the model predicts, u an effect of this
item in this task with variance τ², and ε noise with variance σ². The share ρ = τ² / (τ² + σ²) of
the variance is estimated from repeats::

    1 − ρ = (variance of rewards within an item of a task) / (variance of first rewards)

The latter is about the means of the item in other tasks and of the task with other items, which
depend neither on the level of rewards nor on how soon the model has learned it. With n and m
rewards they are uncertain themselves, and a squared error is divided by 1 + 1/n + 1/m. Errors of
items that no other task has had are about the mean of the task alone. They are too large by what
items differ, so they only stand for ten rewards, until there are others.

After n rewards with mean m, the best prediction is (1 − s) f + s m with s = nρ / (nρ + 1 − ρ); and
the n rewards are as informative of f as a(n) = 1 / (ρ + (1 − ρ)/n) first rewards. So a repeat is
learned as a round of the weight a(n+1) − a(n), of the reward less s (m − m₀), m₀ being the mean
reward of the task. A reward that is the same whenever the task meets the item adds nothing then,
neither to the belief nor to the estimate of the noise, which is that of first rewards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

PRIOR_REPEATS = 10.0  # repeats that count for ρ = 0
PRIOR_FIRSTS = 10.0  # first rewards that errors about the means of tasks alone stand for
MAX_RHO = 0.999


class Repeats(NamedTuple):
    """Sums from which ρ is estimated; those of several tasks add up.

    Attributes
    ----------
    squares, repeats
        The sum of squares of rewards about the mean of their item in their task, and its degrees of
        freedom.
    error_squares, firsts
        The sum of squared errors (see :func:`first_error`) of the rewards of items that a task met
        for the first time, and their number.
    rough_squares, roughs
        The same for items that no other task has had.
    """

    squares: float = 0.0
    repeats: float = 0.0
    error_squares: float = 0.0
    firsts: float = 0.0
    rough_squares: float = 0.0
    roughs: float = 0.0

    def add(self, other: Repeats, weight: float = 1.0) -> Repeats:
        """The sums of both, the other with a weight, which may be negative; never below 0."""
        pairs = zip(self, other, strict=True)
        return Repeats._make([max(one + weight * two, 0.0) for one, two in pairs])

    @classmethod
    def of_reward(
        cls,
        count: float,
        total: float,
        reward: float,
        error: float | None,
        weight: float = 1.0,
        *,
        is_rough: bool = False,
    ) -> Repeats:
        """What a reward of an item adds, of which the task had ``count`` that sum to ``total``.

        A reward of any ``weight`` is one repeat. The ``error`` of a first one is rough if no other
        task has had the item.
        """
        if count:
            return cls(count / (count + weight) * (reward - total / count) ** 2, 1.0)
        if error is None:
            return cls()
        square = error**2
        return cls(0.0, 0.0, 0.0, 0.0, square, 1.0) if is_rough else cls(0.0, 0.0, square, 1.0)

    @property
    def rho(self) -> float:
        """ρ, shrunken towards 0.

        >>> Repeats(squares=0.0, repeats=30.0, error_squares=8.0, firsts=10.0).rho
        0.75
        """
        errors, firsts = self.error_squares, self.firsts
        if self.roughs:
            errors += PRIOR_FIRSTS * self.rough_squares / self.roughs
            firsts += PRIOR_FIRSTS
        if not self.repeats or not errors:
            return 0.0
        within, first = self.squares / self.repeats, errors / firsts
        shrinkage = self.repeats / (self.repeats + PRIOR_REPEATS)
        return min(max(shrinkage * (1.0 - within / first), 0.0), MAX_RHO)


def first_error(
    reward: float, item: tuple[float, float], task: tuple[float, float], mean: float
) -> float | None:
    """How far a task's first reward of an item is from the means of both, with variance τ² + σ².

    ``item`` and ``task`` are counts and sums of their rewards so far, and ``mean`` is that of all
    rewards. An item without any is expected to be as the task is; ``None`` if the task has none.

    >>> first_error(5.0, (2.0, 6.0), (2.0, 10.0), mean=4.0)
    0.7071067811865475
    """
    if task[0] < 1.0:
        return None
    if item[0] < 1.0:
        return (reward - task[1] / task[0]) / math.sqrt(1.0 + 1.0 / task[0])
    expected = item[1] / item[0] + task[1] / task[0] - mean
    return (reward - expected) / math.sqrt(1.0 + 1.0 / item[0] + 1.0 / task[0])


def own_share(count: Any, rho: float) -> Any:
    """The share s of a task's own mean in the prediction, after ``count`` rewards.

    >>> own_share(1, 0.5), own_share(0, 0.5), own_share(9, 0.0)
    (0.5, 0.0, 0.0)
    """
    return count * rho / (count * rho + 1.0 - rho)


def effective_count(count: float, rho: float) -> float:
    """The number of first rewards that ``count`` rewards of one item in one task are worth.

    >>> effective_count(5.0, 0.0), effective_count(5.0, 1.0), effective_count(1.0, 0.3)
    (5.0, 1.0, 1.0)
    """
    return 1.0 / (rho + (1.0 - rho) / count)
