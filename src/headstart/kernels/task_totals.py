"""The sums of passes over very many tasks, compiled by Numba.

Each has a reference in NumPy, which its docstring names. Matrices are padded with zeros to a
multiple of eight columns, so that loops over a row fill a processor's wide registers. Products of
matrices are BLAS's. None of the loops holds Python's lock, so that threads run them at the same
time.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from headstart.kernels.tables import REORDERED_SUMS

LANES = 8  # numbers of a wide register


def prepare() -> None:
    """Prepare the loops: compile them, or load them from the cache on disk."""
    rows, root = np.zeros((0, 4)), np.zeros((LANES, LANES))
    vector, directions = np.zeros(LANES), np.zeros((LANES, 1))
    variances = full_sums(rows, 1, vector, root, 1.0, 1.0, 4.0, 1.0)[-1]
    low_rank_sums(rows, 1, variances, vector, directions, 1.0, np.ones(1), 1.0, root, 1.0)


def padded(array: Any, axes: int = 1) -> Any:
    """A vector or a matrix with zeros up to a multiple of eight along its first axes."""
    lengths = [-length % LANES if axis < axes else 0 for axis, length in enumerate(array.shape)]
    return np.pad(np.ascontiguousarray(array, dtype=np.float64), [(0, more) for more in lengths])


@numba.njit(nogil=True, cache=True)
def unpack(row: Any, dim: int, factor: float, gram: Any) -> None:
    """Write the Gram matrix of a row of packed evidence, times a factor."""
    place = 0
    for i in range(dim):
        for j in range(i, dim):
            value = row[place + j - i] * factor
            gram[i, j] = value
            gram[j, i] = value
        place += dim - i


@numba.njit(nogil=True, cache=True, fastmath=REORDERED_SUMS)
def invert(matrix: Any, dim: int, one: Any, two: Any) -> None:
    """Turn a positive definite matrix, padded with zeros, into its inverse, in its place.

    Gauss and Jordan's sweep, of two columns at a time; ``one`` and ``two`` are buffers for rows.
    """
    width = matrix.shape[1]
    for p in range(0, dim - 1, 2):
        q = p + 1
        a, b, c, d = matrix[p, p], matrix[p, q], matrix[q, p], matrix[q, q]
        scale = 1.0 / (a * d - b * c)
        a, b, c, d = d * scale, -b * scale, -c * scale, a * scale
        for j in range(width):
            one[j] = a * matrix[p, j] + b * matrix[q, j]
            two[j] = c * matrix[p, j] + d * matrix[q, j]
        for i in range(dim):
            if i not in (p, q):
                f, g = matrix[i, p], matrix[i, q]
                for j in range(width):
                    matrix[i, j] -= f * one[j] + g * two[j]
                matrix[i, p] = -(f * a + g * c)
                matrix[i, q] = -(f * b + g * d)
        for j in range(width):
            matrix[p, j] = one[j]
            matrix[q, j] = two[j]
        matrix[p, p], matrix[p, q], matrix[q, p], matrix[q, q] = a, b, c, d
    if dim % 2:
        p = dim - 1
        scale = 1.0 / matrix[p, p]
        for j in range(width):
            one[j] = matrix[p, j] * scale
        for i in range(p):
            f = matrix[i, p]
            for j in range(width):
                matrix[i, j] -= f * one[j]
            matrix[i, p] = -f * scale
        for j in range(width):
            matrix[p, j] = one[j]
        matrix[p, p] = scale


@numba.njit(nogil=True, cache=True)
def full_sums(
    rows: Any,
    dim: int,
    mean: Any,
    root: Any,
    scale: float,
    degrees: float,
    noisy: float,
    limit: float,
) -> Any:
    """The sums of a pass for one population with a full covariance, and the tasks' variances.

    These are the fields of ``PassSums`` after the count, and the noise variance that each task
    counts by. Where a task has lost digits, its variance is 0 and there are no sums. The reference
    is :func:`headstart.transfer.empirical_bayes.refits.passes.task_totals`.

    Parameters
    ----------
    rows, dim
        Packed evidence of tasks, and their number of features.
    mean, root
        μ and F, the symmetric root of the covariance, padded.
    scale, degrees
        s² and ν of the tasks' noise.
    noisy
        A task with more than this many times s² counts by its own variance.
    limit
        A number on the diagonal of F G F that is larger hides the digits of smaller ones.
    """
    width = len(mean)
    triangle = dim * (dim + 1) // 2
    gram, half, k = np.zeros((width, width)), np.zeros((width, width)), np.zeros((width, width))
    known, squared, outer = np.zeros_like(gram), np.zeros_like(gram), np.zeros_like(gram)
    one, two, total = np.zeros(width), np.zeros(width), np.zeros(width)
    away, z, theta = np.zeros(width), np.zeros(width), np.zeros(width)
    variances = np.full(len(rows), scale)
    residual = dof = energy = rounds = 0.0
    for task in range(len(rows)):
        row = rows[task]
        count, energetic = row[triangle + dim], row[triangle + dim + 1]
        for look in range(2):
            variance = variances[task]
            unpack(row, dim, 1.0 / variance, gram)
            # E = (I + F G F)⁻¹
            np.dot(root, gram, half)
            np.dot(half, root, k)
            largest = 0.0
            for i in range(dim):
                largest = max(largest, k[i, i])
                k[i, i] += 1.0
            if not largest <= limit:
                variances[task] = 0.0
                break
            invert(k, dim, one, two)
            # z = E F (b − G μ)
            np.dot(gram, mean, one)
            for i in range(dim):
                away[i] = row[triangle + i] / variance - one[i]
            np.dot(root, away, one)
            np.dot(k, one, z)
            # θ̂ = μ + F z, and what it leaves unexplained
            np.dot(root, z, theta)
            theta += mean
            np.dot(gram, theta, one)
            fitted, left = 0.0, count
            for i in range(dim):
                fitted += theta[i] * (2.0 * row[triangle + i] - variance * one[i])
                for j in range(width):
                    k[i, j] = -k[i, j]
                k[i, i] += 1.0  # K = I − E
                left -= k[i, i]
            if look:
                break
            square, left = max(energetic - fitted, 0.0), max(left, 0.0)
            own = (degrees * scale + square) / (degrees + left)
            if not own > noisy * scale:
                residual += square
                dof += left
                energy += energetic
                rounds += count
                break
            variances[task] = own
        if variances[task] == 0.0:
            break
        np.dot(k, k, half)
        for i in range(dim):
            total[i] += z[i]
            for j in range(width):
                known[i, j] += k[i, j]
                squared[i, j] += half[i, j]
                outer[i, j] += z[i] * z[j]
    sums = known[:dim, :dim], squared[:dim, :dim], outer[:dim, :dim], total[:dim]
    return *sums, residual, dof, energy, rounds, variances


@numba.njit(nogil=True, cache=True)
def add_noise_scores(
    row: Any, dim: int, gram: Any, variance: float, mean: Any, loadings: Any, across: Any,
    spread: float, error: Any, h: Any, v: Any, xm: Any, m: Any, norm: float, scores: Any,
) -> None:  # fmt: skip
    """Add the scores of R² of one task, in the order of ``NoiseScores``.

    The reference is :func:`headstart.transfer.empirical_bayes.low_rank.noise.noise_scores`, which
    names what is given here: ``norm`` is ‖H‖², and ``gram`` is divided by the variance.
    """
    rank, triangle = len(m), dim * (dim + 1) // 2
    trace_h = inside = trace_left = square_left = length = 0.0
    for i in range(dim):
        trace_h += h[i, i]
        length += v[i] * v[i]
        for j in range(rank):
            inside += xm[i, j] * xm[i, j]
    for i in range(rank):
        trace_left += 1.0 - m[i, i]
        for j in range(rank):
            away = (i == j) - m[i, j]
            square_left += away * away
    theta = mean + spread * v + np.dot(loadings, np.dot(across, v))
    image = np.dot(gram, theta)
    fitted = 0.0
    for i in range(dim):
        fitted += theta[i] * (2.0 * row[triangle + i] - variance * image[i])
    taken, inner = np.dot(h, error), np.dot(error, xm)
    slope = gradient = 0.0
    for i in range(dim):
        gradient += taken[i, i]
        for j in range(dim):
            slope += taken[i, j] * h[i, j]
        for j in range(rank):
            gradient -= inner[i, j] * xm[i, j]
    gradient -= spread * slope
    known = spread * trace_h + trace_left
    known_squared = spread**2 * norm + 2.0 * spread * inside + square_left
    left = row[triangle + dim] - known
    square = max(row[triangle + dim + 1] - fitted, 0.0) / variance
    each = (
        left,
        square - left + gradient,
        length - trace_h + slope,
        max(left - known + known_squared, 0.0),
        norm,
        trace_h - spread * norm - inside,
    )
    if np.isfinite(sum(each)):
        for place in range(len(each)):
            scores[place] += each[place]


@numba.njit(nogil=True, cache=True)
def low_rank_sums(
    rows: Any,
    dim: int,
    variances: Any,
    mean: Any,
    loadings: Any,
    spread: float,
    uncertain: Any,
    limit: float,
    error: Any,
    usual: float,
) -> Any:
    """The sums of a pass for one low-rank population: the fields of ``LowRankSums``.

    The reference is ``low_rank_totals`` in
    :mod:`headstart.transfer.empirical_bayes.refits.low_rank_passes`.

    Parameters
    ----------
    rows, dim, variances
        Packed evidence of tasks, their number of features, and the noise variance of each.
    mean, loadings, spread
        μ, padded, the columns of W in use, padded, and σ².
    uncertain
        For each column c, Σ_j Var[c, j] p_j / Σ_j p_j.
    limit
        A task with more information than this times its noise does not count.
    error, usual
        C, the covariance of the error of μ, padded, and the variance of tasks whose scores of R²
        are summed; an empty matrix to sum none.
    """
    width, rank = loadings.shape
    triangle = dim * (dim + 1) // 2
    across = np.ascontiguousarray(loadings.T)
    gram, inverse, a_matrix = (
        np.zeros((width, width)),
        np.zeros((width, width)),
        np.zeros((width, width)),
    )
    precision, removed, outer = np.zeros_like(gram), np.zeros_like(gram), np.zeros_like(gram)
    x, y, image = np.zeros((width, rank)), np.zeros((width, rank)), np.zeros((width, rank))
    inner, m, plain = np.zeros((rank, rank)), np.zeros((rank, rank)), np.zeros((rank, rank))
    squares, middle, mixed = np.zeros((rank, rank)), np.zeros((rank, rank)), np.zeros((rank, rank))
    factors, cross, product = (
        np.zeros((rank, rank)),
        np.zeros((width, rank)),
        np.zeros((width, rank)),
    )
    one, two = np.zeros(max(width, rank)), np.zeros(max(width, rank))
    away, a, v, total = np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(width)
    projected, z, u = np.zeros(rank), np.zeros(rank), np.zeros(rank)
    scores = np.zeros(6)
    count = square = curvature = directions = 0.0
    for task in range(len(rows)):
        row, variance = rows[task], variances[task]
        place, largest = 0, 0.0
        for i in range(dim):
            largest = max(largest, row[place])
            place += dim - i
        if not (largest > 0.0 and largest * spread <= limit * variance):
            continue
        count += 1.0
        unpack(row, dim, 1.0 / variance, gram)
        # A = (I + σ² G)⁻¹ G and a = (I + σ² G)⁻¹ (b − G μ)
        for i in range(dim):
            for j in range(width):
                inverse[i, j] = spread * gram[i, j]
            inverse[i, i] += 1.0
        invert(inverse, dim, one, two)
        np.dot(inverse, gram, a_matrix)
        np.dot(gram, mean, one[:width])
        for i in range(dim):
            away[i] = row[triangle + i] / variance - one[i]
        np.dot(inverse, away, a)
        # The factors of the task: M and z.
        np.dot(a_matrix, loadings, x)
        np.dot(across, x, inner)
        np.dot(across, a, projected)
        size = 0.0
        for i in range(dim):
            size += a_matrix[i, i]
        for i in range(rank):
            for j in range(rank):
                m[i, j] = inner[i, j]
                plain[i, j] = inner[i, j]
            m[i, i] += 1.0 + size * uncertain[i]
            plain[i, i] += 1.0
        invert(m, rank, one, two)
        invert(plain, rank, one, two)
        np.dot(m, projected, z)
        np.dot(plain, projected, u)
        # With the factors integrated out: H = A − X M Xᵀ and v = a − X M Wᵀ a.
        np.dot(x, plain, y)
        np.dot(x.T, x, squares)
        np.dot(a_matrix, x, image)
        np.dot(x.T, image, middle)
        np.dot(plain, squares, mixed)
        np.dot(x, u, v)
        norm = 0.0
        for i in range(rank):
            directions += 1.0 - plain[i, i]
            for j in range(rank):
                m[i, j] += z[i] * z[j]  # Z
                factors[i, j] += m[i, j]
                norm += mixed[i, j] * mixed[j, i] - 2.0 * plain[i, j] * middle[j, i]
        np.dot(x, m, image)
        np.dot(y, x.T, outer)
        for i in range(dim):
            left = a[i] - v[i]
            total[i] += left
            square += left * left
            for j in range(rank):
                cross[i, j] += a[i] * z[j]
                product[i, j] += image[i, j]
            for j in range(width):
                norm += a_matrix[i, j] * a_matrix[i, j]
                precision[i, j] += a_matrix[i, j]
                removed[i, j] += outer[i, j]
        curvature += max(norm, 0.0)
        if len(error) and variance == usual:
            for i in range(dim):
                v[i] = a[i] - v[i]
                for j in range(width):
                    a_matrix[i, j] -= outer[i, j]  # H
            add_noise_scores(
                row, dim, gram, variance, mean, loadings, across, spread, error,
                a_matrix, v, y, plain, max(norm, 0.0), scores,
            )  # fmt: skip
    known = precision - removed
    return (
        count, precision[:dim, :dim], factors, cross[:dim], product[:dim], known[:dim, :dim],
        total[:dim], square, curvature, directions, scores,
    )  # fmt: skip
