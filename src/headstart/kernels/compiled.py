"""The inner loops, compiled by Numba: one decision, one update, and all rounds of a task.

Opt-in: ``pip install 'headstart[fast]'`` and :func:`headstart.use_numba`. The reference of each
function is in NumPy: :func:`choose_ucb` and :func:`choose_thompson` are the indices of
:class:`headstart.rules.UCB` and :class:`headstart.rules.Thompson`, :func:`learn` is
:meth:`headstart.Belief.update`, and :func:`play` is :func:`headstart.lab.engine.play`. Sums are
formed in another order, so that results agree up to rounding. Numba takes about half a second to
import; nothing imports this module before it is switched on.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from headstart.kernels.tables import REORDERED_SUMS

number = numba.float64
vector = numba.types.Array(number, 1, "C", readonly=True)
matrix = numba.types.Array(number, 2, "C", readonly=True)
cube = numba.types.Array(number, 3, "C", readonly=True)
choice = numba.types.Tuple((numba.intp, number, number))
pair = numba.types.Tuple((number, number))

compiled = numba.njit


@compiled(inline="always")
def best_two(scores: Any) -> Any:
    """The arm with the largest score, that score, and the second largest."""
    arm, top, second = 0, -math.inf, -math.inf
    for k in range(len(scores)):
        if scores[k] > top:
            arm, top, second = k, scores[k], top
        elif scores[k] > second:
            second = scores[k]
    return arm, top, second


@compiled(inline="always")
def pick_arm(scores: Any, uniform: float, noise: float) -> Any:
    """The arm with the largest score; among equals up to rounding, the one ``uniform`` falls on.

    The reference is :func:`headstart.rules.ties.best_arms` followed by
    :func:`headstart.rules.ties.select_by_uniform`.
    """
    arm, top, second = best_two(scores)
    edge = top - 64 * 2.220446049250313e-16 * (abs(top) + noise)
    if second < edge:
        return arm
    count = 0
    for score in scores:
        count += score >= edge
    wanted = min(int(uniform * count), count - 1)
    for k in range(len(scores)):
        if scores[k] >= edge:
            if wanted == 0:
                return k
            wanted -= 1
    return arm


@compiled(fastmath=REORDERED_SUMS)
def score_ucb(contexts: Any, mean: Any, root: Any, gamma: float, scores: Any) -> None:
    """xᵀθ̂ + γ‖Fᵀx‖ of every arm."""
    projected = np.dot(contexts, root)
    arms, dim = contexts.shape
    for k in range(arms):
        expected = 0.0
        square = 0.0
        for j in range(dim):
            expected += contexts[k, j] * mean[j]
            square += projected[k, j] * projected[k, j]
        scores[k] = expected + gamma * math.sqrt(square)


@compiled(fastmath=REORDERED_SUMS)
def score_thompson(
    contexts: Any, mean: Any, root: Any, scale: float, normals: Any, scores: Any
) -> None:
    """xᵀθ̃ of every arm, θ̃ = θ̂ + v F z."""
    arms, dim = contexts.shape
    theta = np.empty(dim)
    for i in range(dim):
        step = 0.0
        for j in range(dim):
            step += root[i, j] * normals[j]
        theta[i] = mean[i] + scale * step
    for k in range(arms):
        score = 0.0
        for i in range(dim):
            score += contexts[k, i] * theta[i]
        scores[k] = score


@compiled(fastmath=REORDERED_SUMS)
def update(mean: Any, root: Any, x: Any, reward: float, new_mean: Any, new_root: Any) -> Any:
    """The square-root update of :mod:`headstart.model.belief`; the old and new arrays may be one.

    Gives s = xᵀB⁻¹x and the error r − xᵀθ̂.
    """
    dim = len(mean)
    u = np.zeros(dim)
    expected = 0.0
    for i in range(dim):
        expected += x[i] * mean[i]
        for j in range(dim):
            u[j] += x[i] * root[i, j]
    s = 0.0
    for j in range(dim):
        s += u[j] * u[j]
    g = math.sqrt(1.0 + s)
    shrink = 1.0 / (g * (1.0 + g))
    away = reward - expected
    error = away / (1.0 + s)
    for i in range(dim):
        gain = 0.0
        for j in range(dim):
            gain += root[i, j] * u[j]
        new_mean[i] = mean[i] + gain * error
        gain *= shrink
        for j in range(dim):
            new_root[i, j] = root[i, j] - gain * u[j]
    return s, away


@compiled([choice(matrix, vector, matrix, number, number[::1])], cache=True)
def choose_ucb(contexts: Any, mean: Any, root: Any, gamma: float, scores: Any) -> Any:
    """Fill ``scores`` with the arms' indices; the best arm, its index and the second best index.

    (Arrays are handed in: to return one takes longer than to fill it.)
    """
    score_ucb(contexts, mean, root, gamma, scores)
    return best_two(scores)


@compiled([choice(matrix, vector, matrix, number, vector, number[::1])], cache=True)
def choose_thompson(
    contexts: Any, mean: Any, root: Any, scale: float, normals: Any, scores: Any
) -> Any:
    """Likewise, by a draw through the root."""
    score_thompson(contexts, mean, root, scale, normals, scores)
    return best_two(scores)


@compiled([pair(vector, matrix, vector, number, number[::1], number[:, ::1])], cache=True)
def learn(mean: Any, root: Any, x: Any, reward: float, new_mean: Any, new_root: Any) -> Any:
    """Fill in a belief's new mean and root after one round; gives s and the error."""
    return update(mean, root, x, reward, new_mean, new_root)


@compiled([number(matrix, number[:, ::1])], fastmath=REORDERED_SUMS, cache=True)
def read(contexts: Any, rows: Any) -> Any:
    """Fill ``rows`` with the contexts, and with ones beside them; gives Σ x² of the contexts."""
    arms, dim = contexts.shape
    squares = 0.0
    for k in range(arms):
        for i in range(dim):
            squares += contexts[k, i] * contexts[k, i]
            rows[k, i] = contexts[k, i]
        rows[k, dim:] = 1.0
    return squares


@compiled(fastmath=REORDERED_SUMS)
def tridiagonalize(gram: Any, moment: Any, beside: Any) -> None:
    """Gram → Q Gram Qᵀ with three diagonals and moment → Q moment, in place, by reflections.

    The two diagonals beside the main one, which are equal, are written into ``beside``.
    """
    dim = len(moment)
    image = np.empty(dim)
    for k in range(dim - 1):
        length = 0.0
        for i in range(k + 1, dim):
            length += gram[k, i] * gram[k, i]
        length = math.copysign(math.sqrt(length), -gram[k, k + 1])
        v = gram[k]  # from k + 1 on
        beside[k] = length
        square = 2.0 * length * (length - v[k + 1])  # ‖v‖² after the next line
        v[k + 1] -= length
        if square <= 0.0:
            continue
        on_moment = 0.0
        along = 0.0
        for i in range(k + 1, dim):
            total = 0.0
            for j in range(k + 1, dim):
                total += gram[i, j] * v[j]
            image[i] = total * 2.0 / square
            along += image[i] * v[i]
            on_moment += moment[i] * v[i]
        for i in range(k + 1, dim):
            image[i] -= along / square * v[i]
            moment[i] -= 2.0 * on_moment / square * v[i]
        for i in range(k + 1, dim):
            for j in range(k + 1, dim):
                gram[i, j] -= v[i] * image[j] + image[i] * v[j]


@compiled([numba.void(matrix, vector, vector, number[::1], number[::1])], cache=True)
def ridge_terms(gram: Any, moment: Any, lambdas: Any, fitted: Any, log_dets: Any) -> None:
    """Fill in :func:`headstart.transfer.noise.ridge_terms` of one task, without eigenvalues.

    A matrix with three diagonals is factored in O(d) for every λ. Its pivots are λ or more.
    """
    dim = len(moment)
    size = 0.0
    for i in range(dim):
        size += gram[i, i]
    scale = 1.0 / size if size > 0.0 else 1.0  # products of a reflection might overflow
    local, c, beside = gram * scale, moment.copy(), np.zeros(dim)
    tridiagonalize(local, c, beside)
    for at in range(len(lambdas)):
        lam = lambdas[at] * scale
        total, product, log_det = 0.0, 1.0, 0.0
        pivot, solved, across = 1.0, 0.0, 0.0
        for i in range(dim):
            share = across / pivot
            pivot = max(local[i, i] + lam - share * across, lam)
            solved = c[i] - share * solved
            across = beside[i]
            total += solved * solved / pivot
            product *= pivot / lam
            if product > 1e150:
                log_det += math.log(product)
                product = 1.0
        fitted[at] = total * scale
        log_dets[at] = log_det + math.log(product)


@compiled(
    [
        numba.types.Tuple((number, number, number))(
            matrix, vector, matrix, vector, number, number[::1], number[:, ::1]
        )
    ],
    fastmath=REORDERED_SUMS,
    cache=True,
)
def posterior(
    start: Any, mean: Any, gram: Any, moment: Any, squares: float, new_mean: Any, new_root: Any
) -> Any:
    """Fill in the mean and root of :func:`headstart.model.belief.posterior`.

    Gives the information, S before rounding is cut off, and the most information in a direction of
    the prior's root; that is infinite where rounding has left no factor.
    """
    dim = len(mean)
    inner = np.dot(start.T, np.dot(gram, start))
    most = information = 0.0
    for j in range(dim):
        most = max(most, inner[j, j])
        inner[j, j] += 1.0
        for i in range(j, dim):
            total = inner[i, j]
            for k in range(j):
                total -= inner[i, k] * inner[j, k]
            if i > j:
                inner[i, j] = total / inner[j, j]
            elif total > 0.0:
                inner[j, j] = math.sqrt(total)
                information += math.log(total)
            else:
                return 0.0, 0.0, math.inf
    surprise = moment - np.dot(gram, mean)
    along = np.zeros(dim)
    for i in range(dim):
        for j in range(dim):
            total = start[i, j]
            for k in range(j):
                total -= inner[j, k] * new_root[i, k]
            new_root[i, j] = total / inner[j, j]
            along[j] += new_root[i, j] * surprise[i]
    square = squares
    for i in range(dim):
        step = 0.0
        for j in range(dim):
            step += new_root[i, j] * along[j]
        new_mean[i] = mean[i] + step
        square -= mean[i] * (moment[i] + surprise[i]) + step * surprise[i]
    return information, square, most


@compiled(
    [
        numba.void(
            cube, matrix, number[::1], number[:, ::1], numba.intp, number, numba.intp,
            matrix, vector, number, numba.intp, numba.intp, numba.intp[::1],
        )
    ],
    cache=True,
)  # fmt: skip
def play(
    contexts: Any, rewards: Any, mean: Any, root: Any, kind: int, multiplier: float, forced: int,
    normals: Any, uniforms: Any, noise: float, start: int, stop: int, arms: Any,
) -> None:  # fmt: skip
    """The rounds of one task from ``start`` to ``stop``; belief and ``arms`` are changed in place.

    ``kind`` is 0 for UCB, 1 for Thompson sampling, 2 for uniform choices
    (:attr:`headstart.rules.LoopForm.code`); ``multiplier`` is γ/R or v/R; ``uniforms`` decide
    forced choices and ties; ``noise`` is R.
    """
    offered = contexts.shape[1]
    scores = np.empty(offered)
    for k in range(start, stop):
        if k < forced or kind == 2:
            scores[:] = 0.0
        elif kind == 1:
            score_thompson(contexts[k], mean, root, multiplier * noise, normals[k], scores)
        else:
            score_ucb(contexts[k], mean, root, multiplier * noise, scores)
        arm = pick_arm(scores, uniforms[k], noise)
        arms[k] = arm
        update(mean, root, contexts[k, arm], rewards[k, arm], mean, root)
