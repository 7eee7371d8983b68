"""The inner loops of reading logs, compiled by Numba: rows into the sums of their tasks.

Optional, as :mod:`headstart.kernels.compiled` is: ``sums.py`` does the same with NumPy, several
times more slowly. Nothing here holds Python's lock, so several threads may run it at once.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from headstart.fleet.summing.lanes import LANES, add_product, load, number, store, with_lane, zeros

__all__ = ["accumulate", "begin", "change_units", "grouped", "totals"]

# Sums may be reordered, which lets them use a processor's wide registers.
LOOSE = {"reassoc", "contract", "nsz"}
ROWS = 64  # rows of a task that are added at once, at most


def begin() -> None:
    """Have the loops ready that add up rows: compiled, or found in the cache on disk."""
    order, starts = grouped(np.zeros(0, np.int64), 0)
    for kind in (np.float32, np.float64):
        features = np.zeros((0, LANES), kind)
        accumulate(order, starts, order, features, 1, np.zeros(0), np.zeros(0), np.zeros((0, 4)))


@numba.njit(nogil=True, cache=True)
def grouped(codes: Any, tasks: int) -> Any:
    """The rows task by task, and where each task's begin: a counting sort.

    Rows whose code is negative are left out.
    """
    starts = np.zeros(tasks + 1, np.int64)
    for code in codes:
        if code >= 0:
            starts[code + 1] += 1
    for task in range(tasks):
        starts[task + 1] += starts[task]
    order = np.empty(starts[tasks], np.int64)
    ends = starts[:-1].copy()
    for row in range(len(codes)):
        code = codes[row]
        if code >= 0:
            order[ends[code]] = row
            ends[code] += 1
    return order, starts


@numba.njit(nogil=True, cache=True)
def padded(dim: int) -> int:
    """The next multiple of the number of lanes."""
    return (dim + LANES - 1) // LANES * LANES


@numba.njit(nogil=True, cache=True, forceinline=True)
def tile(a: Any, i: int, b: Any, j: int, rows: int, out: Any, k: int, add: bool) -> None:
    """Write eight by eight numbers of aᵀ b, from i and j on, into ``out`` from k and j on.

    Or add them there. a and b have so many rows. The sums stay in registers meanwhile.
    """
    s = t = u = v = w = x = y = z = zeros()
    if add:
        s, t, u, v = load(out, k, j), load(out, k + 1, j), load(out, k + 2, j), load(out, k + 3, j)
        w, x, y = load(out, k + 4, j), load(out, k + 5, j), load(out, k + 6, j)
        z = load(out, k + 7, j)
    for m in range(rows):
        row = load(b, m, j)
        s, t = add_product(s, number(a, m, i), row), add_product(t, number(a, m, i + 1), row)
        u, v = add_product(u, number(a, m, i + 2), row), add_product(v, number(a, m, i + 3), row)
        w, x = add_product(w, number(a, m, i + 4), row), add_product(x, number(a, m, i + 5), row)
        y, z = add_product(y, number(a, m, i + 6), row), add_product(z, number(a, m, i + 7), row)
    store(out, k, j, s)
    store(out, k + 1, j, t)
    store(out, k + 2, j, u)
    store(out, k + 3, j, v)
    store(out, k + 4, j, w)
    store(out, k + 5, j, x)
    store(out, k + 6, j, y)
    store(out, k + 7, j, z)


@numba.njit(nogil=True, cache=True)
def multiply(a: Any, b: Any, out: Any) -> None:
    """Write aᵀ b into ``out``, all of the same size."""
    size = len(out)
    for i in range(0, size, LANES):
        for j in range(0, size, LANES):
            tile(a, i, b, j, size, out, i, False)


@numba.njit(nogil=True, cache=True)
def multiply_upper(a: Any, b: Any, rows: int, out: Any, add: bool) -> None:
    """Write or add aᵀ b where it is symmetric: only tiles that touch the upper triangle."""
    for i in range(0, len(out), LANES):
        for j in range(i, len(out), LANES):
            tile(a, i, b, j, rows, out, i, add)


@numba.njit(nogil=True, cache=True)
def complete(matrix: Any) -> None:
    """Write the upper triangle below the diagonal, too."""
    for i in range(len(matrix)):
        for j in range(i):
            matrix[i, j] = matrix[j, i]


@numba.njit(nogil=True, cache=True)
def add_packed(gram: Any, dim: int, count: float, total: Any) -> None:
    """Add a task's sums to those in their packed form (:meth:`headstart.Evidence.pack`).

    Row and column ``dim`` of gram are the rewards'.
    """
    place, moment = 0, dim * (dim + 1) // 2
    for i in range(dim):
        for j in range(i, dim):
            total[place + j - i] += gram[i, j]
        place += dim - i
        total[moment + i] += gram[i, dim]
    total[moment + dim] += count
    total[moment + dim + 1] += gram[dim, dim]


@numba.njit(nogil=True, cache=True)
def accumulate(
    order: Any,
    starts: Any,
    places: Any,
    features: Any,
    dim: int,
    rewards: Any,
    weights: Any,
    sums: Any,
) -> None:
    """Add rows to the packed sums of their tasks.

    The rows ``order[starts[t]:starts[t + 1]]`` go to ``sums[places[t]]``. Beyond ``dim``, features
    are zeros up to a multiple of the lanes. ``weights`` may be empty: then all rows count once.
    """
    width, weighted = padded(dim + 1), len(weights) > 0
    x = np.zeros((ROWS, width))  # features, and the reward
    y = np.zeros((ROWS, width)) if weighted else x  # the same, each times its row's weight
    gram = np.zeros((width, width))
    for task in range(len(places)):
        start, stop = starts[task], starts[task + 1]
        if start == stop:
            continue
        count = 0.0
        for first in range(start, stop, ROWS):
            rows = min(ROWS, stop - first)
            for k in range(rows):
                row = order[first + k]
                for j in range(0, dim, LANES):
                    store(x, k, j, load(features, row, j))
                x[k, dim] = rewards[row]
                if weighted:
                    count += weights[row]
                    for j in range(0, width, LANES):
                        store(y, k, j, add_product(zeros(), weights[row], load(x, k, j)))
            if not weighted:
                count += rows
            multiply_upper(y, x, rows, gram, first > start)
        add_packed(gram, dim, count, sums[places[task]])


@numba.njit(nogil=True, cache=True)
def product(matrix: Any, vector: Any, out: Any) -> None:
    """Mᵀ v; vectors are matrices of one row."""
    for j in range(0, len(matrix), LANES):
        s, t, u, v = zeros(), zeros(), zeros(), zeros()
        for k in range(0, len(matrix), 4):
            s = add_product(s, number(vector, 0, k), load(matrix, k, j))
            t = add_product(t, number(vector, 0, k + 1), load(matrix, k + 1, j))
            u = add_product(u, number(vector, 0, k + 2), load(matrix, k + 2, j))
            v = add_product(v, number(vector, 0, k + 3), load(matrix, k + 3, j))
        store(out, 0, j, add_product(add_product(s, 1.0, t), 1.0, add_product(u, 1.0, v)))


@numba.njit(nogil=True, cache=True)
def triangular_root(matrix: Any, w: Any, turned: Any) -> None:
    """The lower triangle W = L⁻¹ of eight by eight numbers L Lᵀ, which are overwritten, and Wᵀ."""
    for m in range(LANES):
        store(w, m, 0, with_lane(zeros(), m, 1.0))
    for m in range(LANES):
        pivot = 1.0 / number(matrix, m, m)
        row, other = load(matrix, m, 0), load(w, m, 0)
        for i in range(m + 1, LANES):
            factor = -number(matrix, i, m) * pivot
            store(matrix, i, 0, add_product(load(matrix, i, 0), factor, row))
            store(w, i, 0, add_product(load(w, i, 0), factor, other))
        store(w, m, 0, add_product(zeros(), math.sqrt(pivot), other))
    for m in range(LANES):
        for i in range(LANES):
            turned[m, i] = number(w, i, m)


@numba.njit(nogil=True, cache=True)
def invert(matrix: Any, rows: Any, core: Any) -> None:
    """Turn a positive definite matrix A into −A⁻¹, in its place: Gauss and Jordan's sweep.

    Eight rows P at a time, A_PP = L Lᵀ, W = L⁻¹, Y = W A_P: every other A_ij loses Y_iᵀ Y_j, A_P
    becomes Wᵀ Y, its mirror image likewise, and A_PP becomes −Wᵀ W. ``rows`` has room for two
    times eight rows, ``core`` for three times eight by eight numbers.
    """
    size = len(matrix)
    y, minus = rows
    block, w, turned = core
    for p in range(0, size, LANES):
        own = matrix[p:]
        for k in range(LANES):
            store(block, k, 0, load(own, k, p))
        triangular_root(block, w, turned)
        for j in range(0, size, LANES):
            tile(turned, 0, own, j, LANES, y, 0, False)
        for k in range(LANES):
            for j in range(0, size, LANES):
                store(minus, k, j, add_product(zeros(), -1.0, load(y, k, j)))
            store(y, k, p, add_product(zeros(), -1.0, load(w, k, 0)))
        for j in range(0, size, LANES):
            for i in range(0, size, LANES):
                if i != p:
                    tile(minus, i, y, j, LANES, matrix, i, j != p)
            tile(w, 0, y, j, LANES, own, 0, False)


@numba.njit(nogil=True, cache=True)
def totals(
    table: Any, places: Any, mean: Any, root: Any, scale: float, degrees: float, noisy: float
) -> Any:
    """The sums of a pass over tasks, for one fit.

    The reference is :func:`headstart.transfer.empirical_bayes.passes.partition_totals`.

    ``root`` is F, or any other matrix with prior covariance FᵀF; ``scale`` and ``degrees`` are
    those of the tasks' noise, and ``noisy`` is how many times the scale a task's own variance has
    to be for the task to count by it.
    """
    many, dim = len(places), len(mean)
    width, triangle = padded(dim), dim * (dim + 1) // 2
    wide, turned = np.zeros((width, width)), np.zeros((width, width))
    wide[:dim, :dim], turned[:dim, :dim] = root, root.T
    gram, half, k = (np.zeros((width, width)), np.zeros((width, width)), np.zeros((width, width)))
    known, squared = np.zeros((width, width)), np.zeros((width, width))
    rows, core = np.zeros((2, LANES, width)), np.zeros((3, LANES, LANES))
    centre, theta, pull, other = (
        np.zeros((1, width)),
        np.zeros((1, width)),
        np.zeros((1, width)),
        np.zeros((1, width)),
    )
    centre[0, :dim] = mean
    z = np.zeros((many, width))
    residual = freedom = energy = rounds = 0.0
    for task in range(many):
        row = table[places[task]]
        here = z[task : task + 1]
        variance = scale
        for look in range(2):
            precision = 1.0 / variance
            place = 0
            for i in range(dim):
                for j in range(i, dim):
                    gram[i, j] = row[place + j - i] * precision
                place += dim - i
            complete(gram)
            # −E = −(I + F G Fᵀ)⁻¹
            multiply(gram, turned, half)
            multiply_upper(turned, half, width, k, False)
            for i in range(width):
                k[i, i] += 1.0
            complete(k)
            invert(k, rows, core)
            # z = E F (b − G μ)
            product(gram, centre, other)
            for i in range(dim):
                other[0, i] -= row[triangle + i] / variance
            product(turned, other, pull)
            product(k, pull, here)
            # θ̂ = μ + Fᵀ z, and what it leaves unexplained
            product(wide, here, theta)
            for i in range(dim):
                theta[0, i] += mean[i]
            product(gram, theta, other)
            fitted = 0.0
            left = row[triangle + dim]
            for i in range(dim):
                fitted += theta[0, i] * (2.0 * row[triangle + i] - variance * other[0, i])
                k[i, i] += 1.0  # K = I − E
                left -= k[i, i]
            for i in range(dim, width):
                k[i, i] = 0.0
            if look:
                break
            square, left = max(row[triangle + dim + 1] - fitted, 0.0), max(left, 0.0)
            own = (degrees * scale + square) / (degrees + left)
            if not own > noisy * scale:
                residual += square
                freedom += left
                energy += row[triangle + dim + 1]
                rounds += row[triangle + dim]
                break
            variance = own
        for i in range(dim):
            for j in range(0, width, LANES):
                store(known, i, j, add_product(load(known, i, j), 1.0, load(k, i, j)))
        multiply_upper(k, k, width, squared, True)
    outer = np.zeros((width, width))
    multiply_upper(z, z, many, outer, False)
    complete(squared)
    complete(outer)
    total = np.zeros(width)
    for task in range(many):
        for i in range(width):
            total[i] += z[task, i]
    squares = known[:dim, :dim].copy(), squared[:dim, :dim].copy(), outer[:dim, :dim].copy()
    return (*squares, total[:dim].copy(), residual, freedom, energy, rounds)


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def change_units(packed: Any, across: Any, constant: int, shift: Any, scale: Any) -> None:
    """``Units.packed`` of ``standardize.py``, in place; ``scale`` is what to multiply by."""
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
                row[place] = (left + shift[i] * shift[j] * own) * scale[i] * scale[j]
                place += 1
        for i in range(dim):
            row[triangle + i] = (row[triangle + i] - shift[i] * pull) * scale[i]
