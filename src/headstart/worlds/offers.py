"""Which arms a drawn round offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.integer[Any]]


def draw_distinct(rng: np.random.Generator, rounds: int, count: int, arms: int) -> Indices:
    """Draw ``arms`` different numbers below ``count`` in every round: shape ``(rounds, arms)``.

    Floyd's method, for all rounds at once: the j-th number is drawn from the first count − arms + j
    + 1, and if the round has it already, the last of those stands in. Its cost does not depend on
    ``count``, which shuffling thousands of movies in every round would.

    >>> np.sort(draw_distinct(np.random.default_rng(0), 2, 3, 3))
    array([[0, 1, 2],
           [0, 1, 2]])
    """
    picks = np.empty((rounds, arms), dtype=np.int64)
    for arm in range(arms):
        last = count - arms + arm
        numbers = rng.integers(last + 1, size=rounds)
        is_repeated = (picks[:, :arm] == numbers[:, None]).any(axis=1)
        picks[:, arm] = np.where(is_repeated, last, numbers)
    # Every set is equally likely, but large numbers come last: policies that break ties by the
    # first arm must not be affected.
    return rng.permuted(picks, axis=1)
