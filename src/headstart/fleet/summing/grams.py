"""Rows into the packed sums of their tasks: the one place where Gram matrices are accumulated.

The sums of a task are those of :meth:`headstart.Evidence.pack`. With weights w (1 unless given) and
Z = [X r], its rows and rewards side by side, all of them but the count are in Zᵀ diag(w) Z.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.kernels.forms import Kernel
from headstart.model.evidence import packed_size, upper_triangle

__all__ = ["ADD_ROWS", "GROUP_ROWS", "TABLES", "Packed", "Whole", "add_by_threads", "sum_rows"]

Packed = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

TABLES = "headstart.kernels.tables"
PIECES = 4  # for each thread, so that none waits long for the last


def group_rows(codes: npt.NDArray[Any], groups: int) -> tuple[Whole, Whole]:
    """The rows group by group, and where each group's begin; negative codes are left out.

    >>> order, starts = group_rows(np.array([1, 0, -1, 1]), 3)
    >>> order.tolist(), starts.tolist()
    ([1, 0, 3], [0, 1, 3, 3])
    """
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(groups + 1))
    return order[starts[0] :], starts - starts[0]


def add_rows(
    order: Whole,
    starts: Whole,
    places: Whole,
    features: npt.NDArray[Any],
    dim: int,
    rewards: Packed,
    weights: Packed,
    sums: Packed,
) -> None:
    """Add rows to the packed sums of their tasks.

    Parameters
    ----------
    order, starts
        The rows ``order[starts[t]:starts[t + 1]]`` are those of task t.
    places
        Which row of ``sums`` each task has.
    features, dim
        The features are the first ``dim`` columns.
    rewards, weights
        Of each row; without weights, all rows count once.
    sums
        Changed in place.
    """
    triangle = upper_triangle(dim)
    for task, place in enumerate(places):
        some = order[starts[task] : starts[task + 1]]
        if len(some):
            z = np.column_stack([features[some, :dim].astype(np.float64), rewards[some]])
            w = weights[some] if len(weights) else np.ones(len(some))
            gram = (z * w[:, None]).T @ z
            parts = gram[triangle], gram[:dim, dim], [w.sum(), gram[dim, dim]]
            sums[place] += np.concatenate(parts)


GROUP_ROWS = Kernel(group_rows, TABLES)
ADD_ROWS = Kernel(add_rows, TABLES)


def add_by_threads(
    codes: npt.NDArray[Any],
    features: npt.NDArray[Any],
    dim: int,
    rewards: Packed,
    weights: Packed,
    sums: Packed,
    threads: int = 1,
) -> None:
    """Add rows to the sums of their tasks, ``sums[code]``; every thread as many rows.

    The rows of one task may fall to several threads. Each adds them up apart, so that no two change
    the same sums.
    """
    work = len(codes)
    order, starts = GROUP_ROWS.form(work)(codes, len(sums))
    add = ADD_ROWS.form(work)
    edges = np.linspace(0, len(order), (PIECES * threads if threads > 1 else 1) + 1).astype(int)

    def add_piece(low: int, high: int) -> list[tuple[int, Packed]]:
        first = int(np.searchsorted(starts, low, "right")) - 1
        last = int(np.searchsorted(starts, high, "left"))
        whole_spans = starts[first : last + 1]
        spans = np.clip(whole_spans, low, high)
        whole = np.diff(spans) == np.diff(whole_spans)
        shared = []
        for at in np.flatnonzero(~whole):  # the first, the last, both or none
            own = np.zeros((1, sums.shape[1]))
            one = np.zeros(1, np.int64)
            add(order, spans[at : at + 2], one, features, dim, rewards, weights, own)
            shared.append((first + int(at), own[0]))
        inner = np.flatnonzero(whole)
        if len(inner):
            span = spans[inner[0] : inner[-1] + 2]
            add(order, span, first + inner, features, dim, rewards, weights, sums)
        return shared

    pairs = [(low, high) for low, high in itertools.pairwise(edges) if low < high]
    if threads == 1:
        found = [add_piece(*pair) for pair in pairs]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda pair: add_piece(*pair), pairs))
    for task, own in (one for piece in found for one in piece):
        sums[task] += own


def sum_rows(
    codes: npt.NDArray[Any],
    tasks: int,
    features: npt.NDArray[Any],
    rewards: Packed,
    weights: Packed | None = None,
) -> Packed:
    """The packed sums of tasks, from rows at hand; rows with a negative code are left out.

    >>> sum_rows(np.array([1, 1]), 2, np.array([[1.0], [2.0]]), np.array([3.0, 4.0])).tolist()
    [[0.0, 0.0, 0.0, 0.0], [5.0, 11.0, 2.0, 25.0]]
    """
    dim = features.shape[1]
    sums = np.zeros((tasks, packed_size(dim)))
    weights = np.empty(0) if weights is None else weights
    add_by_threads(codes, features, dim, rewards, weights, sums)
    return sums
