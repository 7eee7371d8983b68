"""The regret of Thompson sampling: the two events, and Theorem 2 with its constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import float_if_scalar
from headstart.theory.confidence import (
    bias_radius,
    confidence_radius,
    elliptical_bound,
    information_bound,
    inner_and_outer,
)
from headstart.theory.regret import regularisation

__all__ = [
    "anti_concentration",
    "draw_radius",
    "printed_anti_concentration",
    "thompson_radius",
    "thompson_regret_bound",
    "thompson_regret_rate",
    "thompson_scale",
]


def thompson_radius(
    horizon: int,
    *,
    delta: float,
    dim: int,
    rank: int,
    lam1: float,
    lam2: float,
    bound: npt.ArrayLike,
    residual: npt.ArrayLike,
    noise: float = 1.0,
    printed: bool = False,
) -> Any:
    """l_n: in all rounds and for all arms, abs(xᵀ(θ̂ − θ*)) ≤ l_n ‖x‖_{B⁻¹} (the event E_r).

    ::

        l_n = R √(S_n + log(n⁴/δ²)) + √(λ₁W² + λ₂V²)
        l_n = √(2 log(1/δ) (d+2) log n + 2K²),  K = √λ₁ V + (λ₂/√λ₁) W        as printed

    It fails with probability at most δ/n². Corrected: δ/n² in place of δ gives log(n⁴/δ²), not
    log(n²/δ²); R; λ₁ and λ₂ are swapped in K. The printed product stands for the sum only if
    S_n ≤ d log n (true if pλ₂ and qλ₁ are n/(n−1) or more, which λ₁ = 1/√Y is not) and δ is small:
    log(1/δ) ≥ (d+4) log n / ((d+2) log n − 2), so always below 1/e.

    Parameters
    ----------
    horizon
        n, 2 or more.
    delta, dim, rank, lam1, lam2, bound, residual, noise
        δ, d, p, λ₁, λ₂, V, W and R.
    printed
        As printed.

    Examples
    --------
    >>> plane = dict(dim=30, rank=15, lam1=25.0, lam2=0.16, bound=1.1, residual=0.08, noise=0.1)
    >>> round(thompson_radius(250, delta=1 / 250, **plane), 2)
    1.65
    >>> round(thompson_radius(250, delta=1 / 250, **plane, printed=True), 1)
    44.9
    """
    n = checks.integer("horizon", horizon, 2)
    sizes: dict[str, Any] = {"dim": dim, "rank": rank, "lam1": lam1, "lam2": lam2}
    if printed:
        doubt = math.log(1.0 / checks.fraction("delta", delta, open_ends=True))
        k = bias_radius(bound=bound, residual=residual, form="swapped", **sizes)
        return float_if_scalar(np.sqrt(2.0 * doubt * (dim + 2) * math.log(n) + 2.0 * k**2))
    return confidence_radius(
        information_bound(n, **sizes),
        delta=delta / n**2,
        bound=bound,
        residual=residual,
        noise=noise,
        **sizes,
    )


def thompson_scale(
    horizon: int, *, delta: float, dim: int, noise: float = 1.0, alpha: float | None = None
) -> float:
    """v, the scale of the draw θ̃ ~ N(θ̂, v² B⁻¹).

    ::

        v = 4R √(log(1/δ) (d+2)/α),    α = 1/log n unless given

    Corrected: R, which is not printed. In a direction x the draw has variance v² ‖x‖²_{B⁻¹}; the
    proof prints v ‖x‖_{B⁻¹}.

    Parameters
    ----------
    horizon, delta, dim, noise, alpha
        n, δ, d, R and α in (0, 1].

    Examples
    --------
    >>> round(thompson_scale(250, delta=1 / 250, dim=30))
    125
    """
    n = checks.integer("horizon", horizon, 2)
    a = 1.0 / math.log(n) if alpha is None else checks.positive("alpha", alpha)
    doubt = math.log(1.0 / checks.fraction("delta", delta, open_ends=True))
    return checks.positive("noise", noise) * 4.0 * math.sqrt(doubt * (dim + 2) / a)


def draw_radius(horizon: int, *, dim: int, tight: bool = False) -> float:
    """What ‖B^½(θ̃ − θ̂)‖/v stays under with probability 1 − 1/n² (the event E_θ).

    ::

        √(2d + 6 log n)        tight: √(d + √(8 d log n) + 4 log n)

    The tail of a χ² variable; the second form is what the proof has before its last step.

    Parameters
    ----------
    horizon, dim
        n and d.
    tight
        The second form.

    Examples
    --------
    >>> round(draw_radius(250, dim=30), 2), round(draw_radius(250, dim=30, tight=True), 2)
    (9.65, 9.41)
    """
    log_n = math.log(checks.integer("horizon", horizon, 1))
    d = checks.integer("dim", dim, 1)
    if tight:
        return math.sqrt(d + math.sqrt(8.0 * d * log_n) + 4.0 * log_n)
    return math.sqrt(2.0 * d + 6.0 * log_n)


def anti_concentration(ratio: npt.ArrayLike) -> Any:
    """c: the least chance that a draw lifts the best arm above its true value by l_n ‖x‖.

    ::

        P(N(0, 1) ≥ Z) ≥ exp(−Z²)/(4√π) = c,    Z = 2 l_n/v

    Parameters
    ----------
    ratio
        Z.

    Examples
    --------
    >>> round(anti_concentration(1.0), 4)
    0.0519
    """
    z = np.asarray(ratio, dtype=float)
    return float_if_scalar(np.exp(-(z**2)) / (4.0 * math.sqrt(math.pi)))


def printed_anti_concentration(horizon: int, alpha: float | None = None) -> float:
    """c_n as printed.

    ::

        c_n = 1/(4e √(π n^α)),    α = 1/log n unless given

    It takes Z² ≤ (α/2) log n + 1 for granted, and with it αK²/(8 log(1/δ)(d+2)) ≤ 1.

    Parameters
    ----------
    horizon, alpha
        n and α.

    Examples
    --------
    >>> round(printed_anti_concentration(250), 4)
    0.0315
    """
    n = checks.integer("horizon", horizon, 2)
    power = 1.0 if alpha is None else checks.positive("alpha", alpha) * math.log(n)
    return math.exp(-1.0 - power / 2.0) / (4.0 * math.sqrt(math.pi))


def thompson_regret_bound(
    rounds: npt.ArrayLike,
    *,
    horizon: int,
    delta: float,
    dim: int,
    rank: int,
    lam1: float,
    lam2: float,
    bound: float,
    residual: float,
    noise: float = 1.0,
    scale: float | None = None,
    printed: bool = False,
) -> Any:
    """Theorem 2 with its constants: the expected regret of n rounds of Thompson sampling.

    ::

        R(k) ≤ G (1 + g/(l c)) √(2 k S_k) + k (G/c + 2V (1 + δ))/n²
        g = l + v √(2d + 6 log n)        G = max(g, 2V)        c = exp(−4l²/v²)/(4√π)

    with l = l_n from :func:`thompson_radius`, for k ≤ n rounds and for any scale v. W must bound
    every task's: unlike Theorem 1's, this bound is not concave in W, and Jensen's inequality, by
    which the paper replaces W, does not apply.

    Corrected: l_n; c from v as it is, so that nothing need be assumed of K; min(1, ‖x‖_{B⁻¹}) for
    ‖x‖_{B⁻¹} (which the proof takes to be at most 1) at the price of G; both failures cost 2V. The
    expectation is taken round by round; that needs no martingale inequality, and 2 in place of 3.

    Printed (the last line with constants, for all n rounds)::

        g²/(l c_n) (√(18 k S_k) + √(128 k log(2/δ))) + 2g/(c_n n²)

    Parameters
    ----------
    rounds
        k ≤ n, a number or an array of them.
    horizon
        n.
    delta, dim, rank, lam1, lam2, bound, residual, noise
        δ, d, p, λ₁, λ₂, V, W and R. ``rank=dim`` gives the bound of LinTS with λ = λ₂.
    scale
        v; :func:`thompson_scale` unless given.
    printed
        As printed, with the printed l_n, v and c_n.

    Examples
    --------
    >>> plane = dict(dim=30, rank=15, lam1=25.0, lam2=0.16, bound=1.1, residual=0.2, noise=0.1)
    >>> f"{thompson_regret_bound(250, horizon=250, delta=1 / 250, **plane):.1e}"
    '1.1e+07'
    """
    inner_and_outer(dim, rank)
    sizes: dict[str, Any] = {"dim": dim, "rank": rank, "lam1": lam1, "lam2": lam2}
    radius = thompson_radius(
        horizon, delta=delta, bound=bound, residual=residual, noise=noise, printed=printed, **sizes
    )
    if scale is None:
        scale = thompson_scale(horizon, delta=delta, dim=dim, noise=1.0 if printed else noise)
    k = np.asarray(rounds, dtype=float)
    s = information_bound(k, **sizes)
    widths = np.sqrt(k * elliptical_bound(s))
    reach = radius + checks.positive("scale", scale) * draw_radius(horizon, dim=dim)
    if printed:
        chance = printed_anti_concentration(horizon)
        noise_term = np.sqrt(128.0 * k * math.log(2.0 / delta))
        main = reach**2 / (radius * chance) * (3.0 * widths + noise_term)
        return float_if_scalar(main + 2.0 * reach / (chance * horizon**2))
    chance = anti_concentration(2.0 * radius / scale)
    waiting = 1.0 / chance if chance > 0.0 else math.inf
    most = max(reach, 2.0 * bound)
    main = most * (1.0 + reach / radius * waiting) * widths
    return float_if_scalar(main + k * (most * waiting + 2.0 * bound * (1.0 + delta)) / horizon**2)


def thompson_regret_rate(
    rounds: npt.ArrayLike, *, dim: int, rank: int, bound: float, error: float
) -> Any:
    """The expression inside the O() of Theorem 2.

    ::

        (d^{3/2} log n + d^{1/2} (log n)²) √(n S_n),    λ₁ = 1/√Y,  λ₂ = 1/V²

    Parameters
    ----------
    rounds, dim, rank, bound
        n, d, p and V.
    error
        Y, or Var_ρ.

    Examples
    --------
    >>> f"{thompson_regret_rate(250, dim=30, rank=15, bound=1.0, error=0.006):.1e}"
    '1.3e+05'
    """
    lam1, lam2 = regularisation(error, bound, printed=True)
    n = np.asarray(rounds, dtype=float)
    s = information_bound(n, dim=dim, rank=rank, lam1=lam1, lam2=lam2)
    log_n = np.log(n)
    return float_if_scalar((dim**1.5 * log_n + dim**0.5 * log_n**2) * np.sqrt(n * s))
