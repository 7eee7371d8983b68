"""Splits of tasks into past and future."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError

__all__ = ["Places", "Split", "split_at_random", "split_by_time"]

Places = npt.NDArray[np.intp]

#: Random splits: at least, at most, and so many that this is about how many tasks they have in all.
FEWEST, MOST, ENOUGH = 3, 5, 2500


class Split(NamedTuple):
    """The places of past and of future tasks in the sample, both in the order of their hashes."""

    past: Places
    future: Places


def split_at_random(tasks: int, future: float, splits: int | None) -> list[Split]:
    """Several splits of tasks in the order of their hashes, a moving part of them the future.

    All tasks are in the future about equally often. Unless given, there are 3 to 5, the fewer the
    more tasks there are.

    >>> [split.future.tolist() for split in split_at_random(10, 0.3, 3)]
    [[0, 1, 2], [3, 4, 5], [7, 8, 9]]
    """
    ahead = check_split(tasks, future)
    splits = splits or max(FEWEST, min(MOST, ENOUGH // max(tasks, 1)))
    found = []
    for turn in range(splits):
        chosen = np.zeros(tasks, dtype=bool)
        chosen[(round(turn / splits * tasks) + np.arange(ahead)) % tasks] = True
        found.append(Split(np.flatnonzero(~chosen), np.flatnonzero(chosen)))
    return found


def split_by_time(starts: npt.NDArray[np.int64], future: float) -> tuple[Split, int]:
    """The tasks that start last as the future, and when the first of them starts."""
    ahead = check_split(len(starts), future)
    latest = np.sort(np.argsort(starts, kind="stable")[-ahead:])
    cut = int(starts[latest].min())
    past = np.flatnonzero(starts < cut)
    if len(past) < 2:
        raise InputError(
            "timestamp must tell earlier from later tasks; here most tasks start at the same time. "
            "Leave it out to split tasks at random"
        )
    return Split(past, latest), cut


def check_split(tasks: int, future: float) -> int:
    """How many of so many tasks are the future; refused where they are too few."""
    ahead = round(future * tasks)
    if ahead < 2 or tasks - ahead < 2:
        raise InputError(
            f"evaluate needs at least 2 past and 2 future tasks; these logs have {tasks} tasks "
            f"with rewards, of which future={future:g} makes {ahead} the future"
        )
    return ahead
