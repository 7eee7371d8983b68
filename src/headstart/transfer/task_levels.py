"""Features whose size differs by orders of magnitude between tasks.

The model takes the coefficients of a task to be independent of its contexts. That fails for amounts
that follow the size of the task, such as the monthly sales of a city. Where the reward of task i is
linear in log x, the coefficient of x is about ::

    d log x / dx = 1/x̄_i

with the task's mean x̄_i: a thousand times as large in one task as in another. The mean of such
coefficients, applied to a large task before it has rewards, is far off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.errors import visible
from headstart.records import Array
from headstart.transfer.standardize import CONSTANT_SHARE

LEVEL_TASKS = 256  # that are looked at, at most
MIN_ROUNDS = 5  # of a task, whose mean and variance then say something
MIN_TASKS = 10
TAIL = 0.1  # of the tasks on either side that are not looked at
FAR_RATIO = 10.0  # between the tasks at these ends
NAMED = 5  # features, at most


def varies_in_proportion(rounds: Any, mean: Any, square: Any) -> npt.NDArray[np.bool_]:
    """Which features differ tenfold between tasks, both in their mean and in their deviation.

    Parameters
    ----------
    rounds
        The number of rows of each task.
    mean, square
        The mean and the mean square of each feature in each task, ``(tasks, d)``.

    Examples
    --------
    >>> x = np.geomspace(1.0, 1e3, 20)[:, None, None] * np.arange(1.0, 7.0)[:, None]
    >>> varies_in_proportion(np.full(20, 6), x.mean(1), (x**2).mean(1))
    array([ True])
    >>> x = np.geomspace(1.0, 1e3, 20)[:, None, None] + np.arange(1.0, 7.0)[:, None]
    >>> varies_in_proportion(np.full(20, 6), x.mean(1), (x**2).mean(1))
    array([False])
    """
    found = np.zeros(mean.shape[1], dtype=bool)
    if not len(mean):
        return found
    for feature in range(len(found)):
        each, squares = mean[:, feature], square[:, feature]
        variance = squares - each**2
        least = CONSTANT_SHARE * max(squares.mean(), np.finfo(float).tiny)
        use = (rounds >= MIN_ROUNDS) & (variance > np.maximum(CONSTANT_SHARE * squares, least))
        if use.sum() < MIN_TASKS:
            continue
        each, deviation = each[use] * np.sign(np.median(each[use])), np.sqrt(variance[use])
        ends = [np.quantile(values, (TAIL, 1.0 - TAIL)) for values in (each, deviation)]
        found[feature] = all(low > 0.0 and high >= FAR_RATIO * low for low, high in ends)
    return found


def features_in_proportion(
    gram: Array, shift: Any = 0.0, scale: Any = 1.0
) -> npt.NDArray[np.bool_]:
    """Which features do, by the Gram matrices of tasks, of which the intercept is the last column.

    Features x are in the matrices as (x − ``shift``)/``scale``.
    """
    rounds = np.maximum(gram[:, -1, -1], 1e-300)
    mean = gram[:, -1, :-1] / rounds[:, None]
    square = np.diagonal(gram, axis1=-2, axis2=-1)[:, :-1] / rounds[:, None]
    variance, mean = scale**2 * (square - mean**2), shift + scale * mean
    return varies_in_proportion(rounds, mean, variance + mean**2)


def proportion_notes(names: Sequence[str]) -> list[str]:
    """What follows for features with these names: a sentence, or nothing if there are none.

    >>> proportion_notes([])
    []
    """
    if not names:
        return []
    shown = [visible(str(name), line=True) for name in names[:NAMED]]
    if len(names) > NAMED:
        shown.append(f"{len(names) - NAMED} more")
    one = len(names) == 1
    which = shown[0] if one else ", ".join(shown[:-1]) + " and " + shown[-1]
    verb, each, logarithms = (
        ("differs", "it", "its logarithm") if one else ("differ", "them", "their logarithms")
    )
    return [
        f"{which} {verb} tenfold or more between tasks, in size and in variation, "
        f"so that one unit of {each} hardly has the same effect in all tasks, and first rewards of "
        f"large tasks may be predicted far off: {logarithms} (log1p) may do better"
    ]
