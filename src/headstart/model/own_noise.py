"""The noise of one task, where the prior leaves it to the task's own rewards.

How it enters a belief is in :mod:`headstart.model.belief`.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.arrays import array_namespace
from headstart.model.prior import ONE_NOISE
from headstart.records import Array
from headstart.small_matrices import eigh, spd_inverse

if TYPE_CHECKING:
    from headstart.model.evidence import Evidence
    from headstart.model.prior import Prior

MIN_RESIDUAL_DOF = 4  # degrees of freedom at which residuals determine the noise
MAX_EARLY_DOF = 32.0  # ν below which a few rewards are informative about R
RANK_SHARE = 1e-9  # of the largest eigenvalue: below, rewards carry no information
NOISE_STEPS = 8
MATCHED_LEVELS = 0.8, 0.975  # of intervals of rewards, by which their distribution is chosen
MAX_MATCHED_DOF = 1e4  # beyond, a t distribution is taken for a normal one


def has_own_noise(dof: Any) -> Any:
    """Whether ν allows tasks their own noise, and its scale is known beforehand."""
    dof = array_namespace(dof).asarray(dof)
    return (dof > 0) & (dof < ONE_NOISE)


def is_fixed(dof: Any) -> bool:
    """Whether ν is one number that allows no task its own noise with a known scale."""
    return type(dof) is float and not 0.0 < dof < ONE_NOISE


def noise_from_rewards(prior: Prior, square: Any, rounds: Any, before: Any) -> Any:
    """R from S where nothing else determines it; as before where the prior does, or S is zero."""
    if type(square) is float and type(prior.noise_dof) is float:
        has_scale = prior.noise_dof == 0.0 and square > 0.0
        return math.sqrt(square / max(rounds, 1e-300)) if has_scale else before
    xp = array_namespace(square)
    has_scale = (xp.asarray(prior.noise_dof) == 0) & (xp.asarray(square) > 0)
    if xp is np and not has_scale.any():
        return before
    noise = xp.where(has_scale, xp.sqrt(square / xp.maximum(rounds, 1e-300)), before)
    return noise if noise.ndim else float(noise)


def rounds_before_noise(dof: Any, dim: int) -> Any:
    """The number of rewards after which a task's R is estimated from them, by ν and d.

    A few rewards outweigh the prior's R where tasks differ much in their noise. Otherwise the
    residuals of least squares determine it, and nothing is computed before there are any.
    """
    xp = array_namespace(dof)
    early = xp.asarray(dof) < MAX_EARLY_DOF
    rounds = xp.where(early, 1, dim + MIN_RESIDUAL_DOF)
    return rounds if rounds.ndim else int(rounds)


def is_noise_due(dof: Any, dim: int, rounds: Any) -> Any:
    """Whether a task with ν has its own R, and ``rounds`` rewards suffice to estimate it."""
    return has_own_noise(dof) & (rounds >= rounds_before_noise(dof, dim))


def rebuild_rounds(dof: Any, dim: int, rounds: int) -> list[int]:
    """The rounds of a task before the last after which its belief is computed again.

    They are powers of two. Of a batch with many ν, they are those of any of its tasks.

    >>> rebuild_rounds(100.0, 6, 40), rebuild_rounds(5.0, 6, 40), rebuild_rounds(0.0, 6, 40)
    ([16, 32], [1, 2, 4, 8, 16, 32], [])
    """
    each = np.reshape(np.asarray(dof), -1)  # which may have been another library's
    return [count for count in powers_of_two(rounds) if is_noise_due(each, dim, count).any()]


def powers_of_two(stop: int) -> list[int]:
    """1, 2, 4 and so on, as far as they are less than ``stop``."""
    return [2**power for power in range(stop.bit_length()) if 2**power < stop]


def task_noise(prior: Prior, evidence: Evidence) -> Any:
    """R of a task from the prior's and from its rewards, where it may have its own.

    With c = R²/R₀², and the eigenvalues λ and the coordinates y of the rewards in the eigenvectors
    of F₀ᵀ gram F₀, the most likely c given θ ~ N(θ̂₀, R₀² F₀ F₀ᵀ) and R² ~ ν R₀²/χ²_ν solves ::

        c = (ν + ρ) / (ν + f)       ρ = RSS/R₀² + Σ_j (c/(λ_j + c))² y_j²/R₀²
                                    f = k − rank + Σ_j c/(λ_j + c)

    RSS is that of least squares, all that counts after many rewards (λ ≫ c).
    """
    if is_fixed(prior.noise_dof):
        return prior.noise
    xp = array_namespace(evidence.gram)
    own = is_noise_due(prior.noise_dof, prior.dim, xp.asarray(evidence.rounds))
    if xp is np and not np.any(own):
        return prior.noise
    root, unit = prior.root, xp.asarray(prior.noise) ** 2
    inner = root.swapaxes(-1, -2) @ evidence.gram @ root
    fitted_moment = (evidence.gram @ prior.mean[..., None])[..., 0]
    surprise = (root.swapaxes(-1, -2) @ (evidence.moment - fitted_moment)[..., None])[..., 0]
    raw = evidence.squares - (prior.mean * (2.0 * evidence.moment - fitted_moment)).sum(-1)
    values, vectors = eigh(inner)
    values = xp.maximum(values, 0.0)
    rounding = 10.0 * prior.dim * float(np.finfo(evidence.gram.dtype).eps)  # of evidence in float32
    seen = values > max(RANK_SHARE, rounding) * values[..., -1:]
    squares = (vectors.swapaxes(-1, -2) @ surprise[..., None])[..., 0] ** 2
    squares = xp.where(seen, squares / xp.where(seen, values, 1.0), 0.0) / unit[..., None]
    rest = xp.maximum(raw / unit - squares.sum(-1), 1e-12 * xp.asarray(raw) / unit)
    free = xp.maximum(xp.asarray(evidence.rounds) - seen.sum(-1), 0.0)
    many, ratio = xp.asarray(prior.noise_dof), xp.ones_like(free)
    for _ in range(NOISE_STEPS):
        share = xp.where(seen, ratio[..., None] / (values + ratio[..., None]), 0.0)
        residual = xp.maximum(rest, 0.0) + (share**2 * squares).sum(-1)
        ratio = (many + residual) / (many + free + share.sum(-1))
    noise = xp.where(own, xp.sqrt(ratio * unit), prior.noise)
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


def reward_scale(width: Array, of_mean: Any, of_noise: Any) -> tuple[Array, Array]:
    """The scale, in R, and the degrees of freedom of the t distribution that stands for a reward.

    A reward is the sum of xᵀθ, w t₁ with ``of_mean`` degrees of freedom, and of noise t₂ with
    ``of_noise``. Its central interval of a level is close to ::

        √(w² q₁² + q₂²)        q₁, q₂ the quantiles of t₁ and t₂ at that level

    which is exact where both are normal and where one is all. The distribution is the one that has
    these intervals at the two :data:`MATCHED_LEVELS`. (One with the same variance, after Welch and
    Satterthwaite, has far too short intervals where the noise has two or three degrees of freedom.)

    >>> reward_scale(np.array([2.0]), np.inf, np.inf)
    (array([2.23606798]), array([inf]))
    >>> scale, dof = reward_scale(np.array([0.0, 2.0]), np.inf, 3.0)
    >>> scale.round(3), dof.round(1)
    (array([1.   , 2.145]), array([3. , 6.9]))
    """
    dofs = np.asarray(of_mean), np.asarray(of_noise)
    if all(np.isinf(dof).all() for dof in dofs):
        return np.sqrt(1.0 + width**2), np.full(width.shape, np.inf)
    ends = []
    for level in MATCHED_LEVELS:
        mean, noise = (t_quantile(level, dof) for dof in dofs)
        ends.append(np.sqrt((width * mean) ** 2 + noise**2))
    ratios, log_dof = quantile_ratios()
    found = np.exp(np.interp(-np.log(ends[1] / ends[0]), ratios, log_dof))
    dof = np.where(found < MAX_MATCHED_DOF, found, np.inf)
    return ends[0] / t_quantile(MATCHED_LEVELS[0], dof), dof


@functools.cache
def quantile_ratios() -> tuple[Array, Array]:
    """Minus the log ratio of a t distribution's ends at the matched levels, and its log dof."""
    dof = np.geomspace(0.5, MAX_MATCHED_DOF, 500)
    low, high = (t_quantile(level, dof) for level in MATCHED_LEVELS)
    return -np.log(high / low), np.log(dof)


def normal_quantile(level: float) -> float:
    """Q such that a standard normal is between −q and q with the probability ``level``.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    from scipy.special import ndtri  # importing headstart must stay cheap

    return float(ndtri(0.5 + level / 2.0))


def t_quantile(level: float, dof: Any) -> Any:
    """The same for t distributions; of infinite ``dof`` they are normal."""
    from scipy.special import stdtrit

    normal = normal_quantile(level)
    if np.isinf(dof).all():
        return normal
    return np.where(np.isinf(dof), normal, -stdtrit(dof, (1.0 - level) / 2.0))


def nearest_noise_ratio(prior: Prior, noise: Any) -> Any:
    """The power of two nearest to R/R₀, where a task may have its own R."""
    if not prior.batch and is_fixed(prior.noise_dof):
        return 1.0
    xp = array_namespace(prior.root, noise)
    power = xp.log2(xp.asarray(noise) / xp.asarray(prior.noise))
    ratio = xp.where(has_own_noise(prior.noise_dof), xp.exp2(xp.rint(power)), 1.0)
    ratio = xp.array(xp.broadcast_to(ratio, prior.batch)) if prior.batch else ratio
    return ratio if ratio.ndim else float(ratio)
