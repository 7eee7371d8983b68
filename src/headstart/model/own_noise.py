"""The noise of one task, where the prior leaves it to the task's own rewards.

How it enters a belief is in :mod:`headstart.model.belief`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.arrays import array_namespace
from headstart.model.prior import ONE_NOISE
from headstart.records import Array
from headstart.small_matrices import spd_inverse

if TYPE_CHECKING:
    from headstart.model.evidence import Evidence
    from headstart.model.prior import Prior

__all__ = [
    "MIN_RESIDUAL_FREEDOM",
    "has_own_noise",
    "least_squares_residual",
    "nearest_scale",
    "noise_from_rewards",
    "task_noise",
]

MIN_RESIDUAL_FREEDOM = 4  # degrees of freedom from which on residuals tell the noise


def has_own_noise(prior: Prior) -> Any:
    """Whether a task may have a noise of its own, and its size is known beforehand."""
    xp = array_namespace(prior.noise_freedom)
    freedom = xp.asarray(prior.noise_freedom)
    return (freedom > 0) & (freedom < ONE_NOISE)


def is_fixed(freedom: Any) -> bool:
    """Whether ν is one number, by which no task has a noise of its own whose size is known."""
    return type(freedom) is float and not 0.0 < freedom < ONE_NOISE


def noise_from_rewards(prior: Prior, square: Any, rounds: Any, before: Any) -> Any:
    """R from S where nothing else tells it; as before where the prior does, or S is zero."""
    if type(square) is float and type(prior.noise_freedom) is float:
        has_scale = prior.noise_freedom == 0.0 and square > 0.0
        return math.sqrt(square / max(rounds, 1e-300)) if has_scale else before
    xp = array_namespace(square)
    has_scale = (xp.asarray(prior.noise_freedom) == 0) & (xp.asarray(square) > 0)
    if xp is np and not has_scale.any():
        return before
    noise = xp.where(has_scale, xp.sqrt(square / xp.maximum(rounds, 1e-300)), before)
    return noise if noise.ndim else float(noise)


def task_noise(prior: Prior, evidence: Evidence) -> Any:
    """R of a task from the prior's and from its residuals, where it may have its own."""
    if is_fixed(prior.noise_freedom):
        return prior.noise
    xp = array_namespace(evidence.gram)
    own = has_own_noise(prior)
    has_residuals = own & (xp.asarray(evidence.rounds) >= prior.dim + MIN_RESIDUAL_FREEDOM)
    if xp is np and not np.any(has_residuals):
        return prior.noise
    root = prior.root
    inner = root.swapaxes(-1, -2) @ evidence.gram @ root
    fitted_moment = (evidence.gram @ prior.mean[..., None])[..., 0]
    surprise = (root.swapaxes(-1, -2) @ (evidence.moment - fitted_moment)[..., None])[..., 0]
    raw = evidence.squares - (prior.mean * (2.0 * evidence.moment - fitted_moment)).sum(-1)
    square, freedom = least_squares_residual(inner, surprise, raw, evidence.rounds)
    many = xp.asarray(prior.noise_freedom)
    variance = (many * xp.asarray(prior.noise) ** 2 + square) / (many + freedom)
    noise = xp.where(own & (freedom >= MIN_RESIDUAL_FREEDOM), xp.sqrt(variance), prior.noise)
    return noise if noise.ndim else float(noise)


def least_squares_residual(
    gram: Array, moment: Array, squares: Any, rounds: Any
) -> tuple[Array, Array]:
    """The residual sum of squares of least squares, and its degrees of freedom k − rank."""
    xp = array_namespace(gram)
    dim = gram.shape[-1]
    size = xp.trace(gram, axis1=-2, axis2=-1)[..., None, None] / dim
    ridge = 1e-9 * xp.where(size > 0, size, 1.0) * xp.eye(dim)
    inverse = spd_inverse(gram + ridge)
    rank = dim - (inverse * ridge).sum((-1, -2))
    fitted = (moment * (inverse @ moment[..., None])[..., 0]).sum(-1)
    square = xp.maximum(squares - fitted, 1e-12 * xp.asarray(squares))
    return xp.maximum(square, 0.0), xp.maximum(xp.asarray(rounds) - rank, 0.0)


def nearest_scale(prior: Prior, noise: Any) -> Any:
    """The power of two nearest to R/R₀, where a task may have its own R."""
    if not prior.batch and is_fixed(prior.noise_freedom):
        return 1.0
    xp = array_namespace(prior.root, noise)
    ratio = xp.log2(xp.asarray(noise) / xp.asarray(prior.noise))
    scale = xp.where(has_own_noise(prior), xp.exp2(xp.rint(ratio)), 1.0)
    scale = xp.array(xp.broadcast_to(scale, prior.batch)) if prior.batch else scale
    return scale if scale.ndim else float(scale)
