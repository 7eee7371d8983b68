"""Loops over rows of logs and over packed evidence, compiled by Numba.

Each has a reference in NumPy of the same name and arguments, with which it is registered
(:class:`headstart.kernels.forms.Kernel`). Products of matrices are BLAS's. None of them holds
Python's lock, so that threads run them at the same time.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# Sums may be reordered, which lets them use a processor's wide registers.
REORDERED_SUMS = {"reassoc", "contract", "nsz"}
ROWS = 64  # rows of a task that are multiplied at once, at most


def prepare() -> None:
    """Prepare the loops that read and add up rows: compile them, or load them from the cache."""
    order, starts = group_rows(np.zeros(0, np.int64), 0)
    for kind in (np.float32, np.float64):
        features, none = np.zeros((0, 1), kind), np.zeros(0)
        add_rows(order, starts, order, features, 1, none, none, np.zeros((0, 4)))


@numba.njit(
    [numba.void(real[:, ::1], numba.intp, real[:, ::1]) for real in (numba.float32, numba.float64)],
    nogil=True,
    cache=True,
)
def transpose_strip(columns: Any, count: int, rows: Any) -> None:
    """Write the rows of a strip of columns that is in the cache."""
    for row in range(count):
        for place in range(columns.shape[0]):
            rows[row, place] = columns[place, row]


@numba.njit(nogil=True, cache=True)
def group_rows(codes: Any, groups: int) -> Any:
    """The rows group by group, and where each group's begin: a counting sort."""
    starts = np.zeros(groups + 1, np.int64)
    for code in codes:
        if code >= 0:
            starts[code + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    order = np.empty(starts[groups], np.int64)
    ends = starts[:-1].copy()
    for row in range(len(codes)):
        code = codes[row]
        if code >= 0:
            order[ends[code]] = row
            ends[code] += 1
    return order, starts


@numba.njit(nogil=True, cache=True)
def add_rows(
    order: Any,
    starts: Any,
    places: Any,
    features: Any,
    dim: int,
    rewards: Any,
    weights: Any,
    sums: Any,
) -> None:
    """Add rows to the packed sums of their tasks."""
    weighted, size = len(weights) > 0, dim + 1
    room = np.zeros(ROWS * size + features.shape[1])
    x = room[: ROWS * size].reshape(ROWS, size)  # features, and the reward
    y = np.zeros((ROWS, size)) if weighted else x  # the same, each times its row's weight
    gram = np.zeros((size, size))
    for task in range(len(places)):
        total = sums[places[task]]
        for first in range(starts[task], starts[task + 1], ROWS):
            count = min(ROWS, starts[task + 1] - first)
            weight = float(count)
            for k in range(count):
                # All columns, also superfluous ones: loops over a multiple of a register's numbers
                # are faster. What is superfluous is overwritten next.
                source = features[order[first + k]]
                target = room[k * size : k * size + len(source)]
                for j in range(len(source)):
                    target[j] = source[j]
                x[k, dim] = rewards[order[first + k]]
            if weighted:
                weight = 0.0
                for k in range(count):
                    own = weights[order[first + k]]
                    weight += own
                    for j in range(size):
                        y[k, j] = own * x[k, j]
            np.dot(y[:count].T, x[:count], gram)
            add_packed(gram, dim, weight, total)


@numba.njit(nogil=True, cache=True)
def add_packed(gram: Any, dim: int, weight: float, total: Any) -> None:
    """Add sums to those in their packed form; row and column ``dim`` are the rewards'."""
    place, moment = 0, dim * (dim + 1) // 2
    for i in range(dim):
        own, more = total[place : place + dim - i], gram[i, i:dim]
        for j in range(len(own)):
            own[j] += more[j]
        place += dim - i
        total[moment + i] += gram[i, dim]
    total[moment + dim] += weight
    total[moment + dim + 1] += gram[dim, dim]


@numba.njit(nogil=True, cache=True, fastmath=REORDERED_SUMS)
def standardize_rows(packed: Any, across: Any, constant: int, shift: Any, scale: Any) -> None:
    """Packed evidence in other units, in place."""
    dim = len(shift)
    products = np.zeros(dim)
    triangle = dim * (dim + 1) // 2
    for task in range(len(packed)):
        row = packed[task]
        for i in range(dim):
            products[i] = row[across[i]]
        own, pull = products[constant], row[triangle + constant]
        place = 0
        for i in range(dim):
            for j in range(i, dim):
                left = row[place] - shift[i] * products[j] - shift[j] * products[i]
                row[place] = (left + shift[i] * shift[j] * own) / (scale[i] * scale[j])
                place += 1
        for i in range(dim):
            row[triangle + i] = (row[triangle + i] - shift[i] * pull) / scale[i]
