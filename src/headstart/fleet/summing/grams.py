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

from headstart.fleet.reading.arrays import FeatureColumns
from headstart.fleet.reading.rows import Rows
from headstart.kernels.forms import Kernel
from headstart.model.evidence import upper_triangle

Packed = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

TABLES = "headstart.kernels.tables"
LINE = 64  # bytes of memory that a processor reads together
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
        shared = [add_piece(*pair) for pair in pairs]
    else:
        with ThreadPoolExecutor(threads) as pool:
            shared = list(pool.map(lambda pair: add_piece(*pair), pairs))
    for task, own in (one for piece in shared for one in piece):
        sums[task] += own


class RowBuffer:
    """Rows that wait to be added up: the more a task has at once, the less each takes.

    The memory is used again and again.

    Parameters
    ----------
    memory
        How many bytes it may take.
    dim
        The number of features.
    """

    def __init__(self, memory: int, dim: int) -> None:
        self.memory, self.dim, self.count, self.weighted = memory, dim, 0, False
        self._features: npt.NDArray[Any] = np.zeros((0, dim))  # allocated with the first rows

    def allocate(self, dtype: np.dtype[Any]) -> None:
        """Make room for features of a type."""
        # Every row begins with a line of memory, so that it lies in as few of them as possible.
        many = LINE // dtype.itemsize
        width = -(-self.dim // many) * many
        room = max(self.memory // (dtype.itemsize * width + 20), 1)
        values = np.zeros(room * width + many, dtype)
        start = -values.ctypes.data % LINE // dtype.itemsize
        self._features = values[start : start + room * width].reshape(room, width)
        self._places = np.empty(room, np.int32)
        self._rewards, self._weights = np.empty(room), np.empty(room)

    def clear(self) -> None:
        """Forget the rows; the memory is kept."""
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return self.count == len(self._features)

    def columns(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any], Packed, Packed]:
        """The numbers of the rows' tasks, features, rewards and weights.

        Features may have more columns, which mean nothing. There are no weights where no row has
        one.
        """
        here, weighted = slice(self.count), slice(self.count if self.weighted else 0)
        arrays = self._places[here], self._features[here], self._rewards[here]
        return *arrays, self._weights[weighted]

    def take(self, rows: Rows, numbers: Whole, start: int) -> int:
        """Copy rows from a place on, as many as there is room for; gives how many.

        ``numbers`` are those of the tasks in ``rows.ids``. Features of two types are never buffered
        together.
        """
        same = len(self._features) > 0 and self._features.dtype == rows.features.dtype
        if not self.count:
            self.weighted = False
            if not same:
                self.allocate(rows.features.dtype)
        elif not same:
            return 0
        many = min(rows.count - start, len(self._features) - self.count)
        here, there = slice(start, start + many), slice(self.count, self.count + many)
        self._places[there] = numbers[rows.codes[here]]
        if isinstance(rows.features, FeatureColumns):
            rows.features.transpose_into(start, self._features[there])
        else:
            self._features[there, : self.dim] = rows.features[here]
        self._rewards[there] = rows.rewards[here]
        if rows.weights is not None or self.weighted:
            if not self.weighted:
                self._weights[: self.count] = 1.0
                self.weighted = True
            self._weights[there] = 1.0 if rows.weights is None else rows.weights[here]
        self.count += many
        return many

    def add_to(self, sums: Packed, codes: npt.NDArray[Any], threads: int) -> None:
        """Add the rows to the sums that their codes say."""
        _, features, rewards, weights = self.columns()
        add_by_threads(codes, features, self.dim, rewards, weights, sums, threads)
