"""The inner loops of reading logs, compiled by Numba: rows into the sums of their tasks.

Optional, as :mod:`headstart.compiled` is: :mod:`headstart.fleet.sums` does the same with NumPy,
several times more slowly. Nothing here holds Python's lock, so several threads may run it at once.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["accumulate", "change_units", "grouped", "totals"]

# Sums may be reordered, which lets them use a processor's wide registers.
LOOSE = {"reassoc", "contract", "nsz"}
LANES = 8  # numbers in a wide register: rows are padded to a multiple of it


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


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def add_four(x: Any, y: Any, gram: Any, dim: int, width: int) -> None:
    """Σ y xᵀ of four rows. The whole square: half of it would not fill the registers."""
    for i in range(dim):
        a, b, c, d = y[0, i], y[1, i], y[2, i], y[3, i]
        for j in range(width):
            gram[i, j] += a * x[0, j] + b * x[1, j] + c * x[2, j] + d * x[3, j]


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def add_eight(x: Any, y: Any, gram: Any, dim: int, width: int) -> None:
    """Σ y xᵀ of eight rows: the sums are read and written once for all of them."""
    for i in range(dim):
        a, b, c, d = y[0, i], y[1, i], y[2, i], y[3, i]
        e, f, g, h = y[4, i], y[5, i], y[6, i], y[7, i]
        for j in range(width):
            first = a * x[0, j] + b * x[1, j] + c * x[2, j] + d * x[3, j]
            second = e * x[4, j] + f * x[5, j] + g * x[6, j] + h * x[7, j]
            gram[i, j] += first + second


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def add_packed(gram: Any, moment: Any, count: float, squares: float, total: Any) -> None:
    """Add a task's sums to those in their packed form (:meth:`headstart.Evidence.pack`)."""
    dim = len(gram)
    place = 0
    for i in range(dim):
        for j in range(i, dim):
            total[place] += gram[i, j]
            place += 1
    for j in range(dim):
        total[place + j] += moment[j]
    total[place + dim] += count
    total[place + dim + 1] += squares


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def accumulate(
    order: Any, starts: Any, places: Any, features: Any, rewards: Any, weights: Any, sums: Any
) -> None:
    """Add rows to the packed sums of their tasks.

    The rows ``order[starts[t]:starts[t + 1]]`` go to ``sums[places[t]]``. ``weights`` may be empty:
    then all rows count once.
    """
    dim = features.shape[1]
    width = (dim + LANES - 1) // LANES * LANES
    weighted = len(weights) > 0
    x = np.zeros((LANES, width))
    y = np.zeros((LANES, width))  # the same, each times its row's weight
    gram = np.zeros((dim, width))
    moment = np.zeros(width)
    for task in range(len(places)):
        start, stop = starts[task], starts[task + 1]
        if start == stop:
            continue
        gram[:] = 0.0
        moment[:] = 0.0
        count = 0.0
        squares = 0.0
        for at in range(start, stop, LANES):
            many = min(LANES, stop - at)
            for k in range(many):
                row = order[at + k]
                weight = weights[row] if weighted else 1.0
                reward = rewards[row]
                pull = weight * reward
                count += weight
                squares += pull * reward
                for j in range(dim):
                    x[k, j] = features[row, j]
                for j in range(width):
                    moment[j] += pull * x[k, j]
                if weighted:
                    for j in range(width):
                        y[k, j] = weight * x[k, j]
            few = 4 if many <= 4 else LANES
            for k in range(many, few):
                x[k, :] = 0.0
                y[k, :] = 0.0
            if few == 4 and weighted:
                add_four(x, y, gram, dim, width)
            elif few == 4:
                add_four(x, x, gram, dim, width)
            elif weighted:
                add_eight(x, y, gram, dim, width)
            else:
                add_eight(x, x, gram, dim, width)
        add_packed(gram, moment, count, squares, sums[places[task]])


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def multiply(a: Any, b: Any, out: Any, dim: int, width: int) -> None:
    """Add a b to ``out``, eight rows of b at a time; beyond dim there are zeros up to width."""
    for i in range(dim):
        for k in range(0, width, LANES):
            c, d, e, f = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            g, h, m, n = a[i, k + 4], a[i, k + 5], a[i, k + 6], a[i, k + 7]
            for j in range(width):
                first = c * b[k, j] + d * b[k + 1, j] + e * b[k + 2, j] + f * b[k + 3, j]
                second = g * b[k + 4, j] + h * b[k + 5, j] + m * b[k + 6, j] + n * b[k + 7, j]
                out[i, j] += first + second


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def invert(a: Any, rows: Any, dim: int, width: int) -> None:
    """Invert a positive definite matrix in its place, by Gauss and Jordan's elimination.

    Without pivoting, which such matrices do not need; four rows at a time, so that the others are
    read and written a quarter as often. Beyond dim it must be the identity.
    """
    for k in range(0, dim, 4):
        for m in range(k, k + 4):
            scale = 1.0 / a[m, m]
            a[m, m] = 1.0
            for j in range(width):
                rows[m - k, j] = a[m, j] * scale
            for i in range(k, k + 4):
                if i != m:
                    factor = a[i, m]
                    a[i, m] = 0.0
                    for j in range(width):
                        a[i, j] -= factor * rows[m - k, j]
            for j in range(width):
                a[m, j] = rows[m - k, j]
        for m in range(4):
            for j in range(width):
                rows[m, j] = a[k + m, j]
        for i in range(dim):
            if k <= i < k + 4:
                continue
            b, c, d, e = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            for m in range(4):
                a[i, k + m] = 0.0
            for j in range(width):
                a[i, j] -= b * rows[0, j] + c * rows[1, j] + d * rows[2, j] + e * rows[3, j]


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def totals(packed: Any, mean: Any, root: Any, variance: float) -> Any:
    """The sums of a pass over tasks: :func:`headstart.transfer.passes.totals_of`, for one fit."""
    many, dim = len(packed), len(mean)
    width = (dim + LANES - 1) // LANES * LANES
    triangle = dim * (dim + 1) // 2
    wide = np.zeros((width, width))
    wide[:dim, :dim] = root
    gram = np.zeros((width, width))
    half = np.zeros((width, width))
    k = np.zeros((width, width))
    rows = np.zeros((4, width))
    known = np.zeros((dim, width))
    squared = np.zeros((dim, width))
    outer = np.zeros((dim, width))
    total = np.zeros(width)
    pull = np.zeros(width)
    z = np.zeros(width)
    theta = np.zeros(width)
    residual = freedom = energy = rounds = 0.0
    for task in range(many):
        row = packed[task]
        place = 0
        for i in range(dim):
            for j in range(i, dim):
                gram[i, j] = row[place]
                gram[j, i] = row[place]
                place += 1
        # E = (I + F G F / R²)⁻¹, and K = I − E
        half[:] = 0.0
        k[:] = 0.0
        multiply(wide, gram, half, dim, width)
        multiply(half, wide, k, dim, width)
        for i in range(dim):
            for j in range(width):
                k[i, j] /= variance
        for i in range(width):
            k[i, i] += 1.0
        invert(k, rows, dim, width)
        for i in range(dim):
            for j in range(width):
                k[i, j] = -k[i, j]
            k[i, i] += 1.0
        for i in range(dim, width):
            k[i, i] = 0.0
        # z = E F (b − G μ) / R²
        for i in range(dim):
            surprise = row[triangle + i]
            for j in range(dim):
                surprise -= gram[i, j] * mean[j]
            theta[i] = surprise / variance
        for i in range(dim):
            value = 0.0
            for j in range(dim):
                value += wide[i, j] * theta[j]
            pull[i] = value
        for i in range(dim):
            value = pull[i]
            for j in range(dim):
                value -= k[i, j] * pull[j]
            z[i] = value
        # θ̂ = μ + F z, and what it leaves unexplained
        for i in range(dim):
            value = mean[i]
            for j in range(dim):
                value += wide[i, j] * z[j]
            theta[i] = value
        fitted = 0.0
        left = row[triangle + dim]
        for i in range(dim):
            value = 2.0 * row[triangle + i]
            for j in range(dim):
                value -= gram[i, j] * theta[j]
            fitted += theta[i] * value
            left -= k[i, i]
        residual += max(row[triangle + dim + 1] - fitted, 0.0)
        freedom += max(left, 0.0)
        energy += row[triangle + dim + 1]
        rounds += row[triangle + dim]
        multiply(k, k, squared, dim, width)
        for i in range(dim):
            total[i] += z[i]
            for j in range(width):
                known[i, j] += k[i, j]
                outer[i, j] += z[i] * z[j]
    return known, squared, outer, total, residual, freedom, energy, rounds


@numba.njit(nogil=True, cache=True, fastmath=LOOSE)
def change_units(packed: Any, across: Any, constant: int, shift: Any, scale: Any) -> None:
    """:meth:`headstart.fleet.units.Units.packed`, in place; ``scale`` is what to multiply by."""
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
