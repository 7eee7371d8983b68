"""How much of a task can be subtracted from sums over tasks that are no longer kept.

A task is subtracted as the current fit sees it, not as the fit did that it was added by. What is
left may then be no sums that any tasks have: a negative variance, or a negative precision of the
noise. Sums over tasks are a convex cone. With n tasks, Σ m_i and Σ (C_i + m_i m_iᵀ), and with
Σ E[1/R_i²] = p and Σ E[log R_i²] = l (Jensen's inequality), ::

    M = [[n, Σ m_iᵀ], [Σ m_i, Σ (C_i + m_i m_iᵀ)]] ⪰ 0        l + n log(p/n) ≥ 0

Where M − T of a task T of weight w leaves this cone, a share α of the task is subtracted and the
rest as an average task: M − α T − (1 − α)(w/n) M, which for small α never leaves it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.arrays import transpose
from headstart.records import Array

__all__ = ["subtractable_moments", "subtractable_noise"]

SHARE_OF_LIMIT = 0.99  # of the largest α that stays in the cone, so that not everything is used up
MIN_LEFT = 1e-10  # of a direction, that a subtraction of all must leave: less would be rounding
NOISE_SHARES = 64  # the shares that are tried for the noise


def subtractable_moments(whole: Array, part: Array) -> Array:
    """α for moment matrices M of all and T of one, which must have at most the count of all.

    M − α T − (1 − α)(w/n) M is positive semi-definite while α λ + (1 − α) w/n ≤ 1, with the
    largest eigenvalue λ of M^-½ T M^-½.

    >>> whole = np.diag([4.0, 8.0])
    >>> [float(subtractable_moments(whole, np.diag([1.0, s])).round(2)) for s in (2.0, 9.0, 99.0)]
    [1.0, 0.85, 0.06]
    """
    size = np.sqrt(np.maximum(np.diagonal(whole, axis1=-2, axis2=-1), 1e-300))
    scale = size[..., :, None] * size[..., None, :]
    values, vectors = np.linalg.eigh(whole / scale)
    values = np.maximum(values, 1e-14 * values[..., -1:])
    whiten = vectors / np.sqrt(values)[..., None, :]
    share = np.linalg.eigvalsh(transpose(whiten) @ (part / scale) @ whiten)[..., -1]
    average = part[..., 0, 0] / whole[..., 0, 0]
    limit = SHARE_OF_LIMIT * (1.0 - average) / np.maximum(share - average, 1e-300)
    return np.asarray(np.where(share <= 1.0 - MIN_LEFT, 1.0, np.clip(limit, 0.0, 1.0)))


def subtractable_noise(
    whole: tuple[Any, Any, Any], part: tuple[Any, Any, Any]
) -> tuple[Array, Array]:
    """Return p and l after as much of a task was subtracted as can be.

    ``whole`` and ``part`` are n, p and l of all tasks and of the one.
    """
    (count, precision, logs), (weight, own_precision, own_logs) = (
        [np.asarray(value, dtype=float) for value in sums] for sums in (whole, part)
    )
    left = count - weight
    shares = np.linspace(1.0, 0.0, NOISE_SHARES + 1).reshape(-1, *[1] * count.ndim)
    rest = (1.0 - shares) * weight / count
    precisions = precision - shares * own_precision - rest * precision
    all_logs = logs - shares * own_logs - rest * logs
    excess = all_logs + left * np.log(np.maximum(precisions, 1e-300) / left)
    valid = (precisions > 0) & (excess >= 0)
    valid[-1] = True  # an average task can always be subtracted
    first = valid.argmax(0)[None]
    return (
        np.take_along_axis(precisions, first, 0)[0],
        np.take_along_axis(all_logs, first, 0)[0],
    )
