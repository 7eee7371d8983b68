"""How far an estimate may be off: Lemmas 1 to 3, and the sum of squared widths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, float_if_scalar

__all__ = [
    "bias_radius",
    "bias_term",
    "confidence_radius",
    "elliptical_bound",
    "information_bound",
    "noise_radius",
    "radius_with_bias",
]


def information_bound(
    rounds: npt.ArrayLike, *, dim: int, rank: int, lam1: float, lam2: float, tight: bool = False
) -> Any:
    """S_k, an upper bound on log det B_k − log det B_0 if ‖x‖ ≤ 1 (Lemma 2).

    ::

        S_k = p log(1 + k/(p λ₂)) + q log(1 + k/(q λ₁))

    A term without directions (p = 0 or q = 0) is 0. Belief calls the left side ``information``.

    Parameters
    ----------
    rounds
        k, a number or an array of them.
    dim, rank
        d and p.
    lam1, lam2
        λ₁ (outside the plane, q directions) and λ₂ (inside, p directions).
    tight
        Give the least upper bound instead. S_k spends the k units of Σ‖x‖² twice, inside and
        outside; they can be spent only once, k = k₁ + k₂, best by filling up to one level::

            max  p log(1 + k₁/(p λ₂)) + q log(1 + k₂/(q λ₁))

        For p = 0 and p = d there is no difference.

    Examples
    --------
    >>> round(information_bound(100, dim=4, rank=2, lam1=100.0, lam2=1.0), 3)
    8.675
    >>> round(information_bound(100, dim=4, rank=2, lam1=100.0, lam2=1.0, tight=True), 3)
    7.864
    """
    p, q = inner_and_outer(dim, rank)
    outer, inner = checks.positive("lam1", lam1), checks.positive("lam2", lam2)
    k = np.asarray(rounds, dtype=float)
    inside, outside = k, k
    if tight and p and q:
        # Both groups of directions are raised to one level, unless one starts above it.
        level = (k + p * inner + q * outer) / dim
        inside = np.clip(p * (level - inner), 0.0, k)
        outside = k - inside
    total = np.zeros_like(k)
    if p:
        total = total + p * np.log1p(inside / (p * inner))
    if q:
        total = total + q * np.log1p(outside / (q * outer))
    return float_if_scalar(total)


def elliptical_bound(
    information: npt.ArrayLike, *, smallest: float | None = None, printed: bool = False
) -> Any:
    """A bound on the sum of squared widths of the arms that were picked.

    ::

        Σ min(1, ‖x‖²_{B⁻¹}) ≤ 2 S                       always
        Σ ‖x‖²_{B⁻¹} ≤ S u / log(1 + u),  u = 1/λ_min    with λ_min = λ_min(B_0) given
        Σ ‖x‖²_{B⁻¹} ≤ 2 S                               as printed

    Corrected: the printed form needs λ_min ≥ 1 (Lemma 11 of Abbasi-Yadkori et al. has it as a
    condition). A single round at λ = 0.01 has width² 100, where 2 S = 9.2. The second line is exact
    for one such round; for λ_min ≥ 1 it is at most S/log 2, less than 2 S.

    Parameters
    ----------
    information
        log det B_n − log det B_0, or S_n, which bounds it.
    smallest
        λ_min(B_0) = min(λ₁, λ₂): bound the sum itself, not that of min(1, ·).
    printed
        The printed bound, for any λ_min.

    Examples
    --------
    >>> one_round = information_bound(1, dim=1, rank=1, lam1=1.0, lam2=0.01)
    >>> round(elliptical_bound(one_round, printed=True), 1)
    9.2
    >>> round(elliptical_bound(one_round, smallest=0.01), 1)
    100.0
    """
    s = np.asarray(information, dtype=float)
    if smallest is None or printed:
        return float_if_scalar(2.0 * s)
    largest = 1.0 / checks.positive("smallest", smallest)
    return float_if_scalar(s * largest / np.log1p(largest))


def noise_radius(information: npt.ArrayLike, delta: float, noise: float = 1.0) -> Any:
    """A bound on ‖Dᵀε‖_{B⁻¹} in all rounds at once, with probability 1 − δ (Lemma 1).

    ::

        ‖Dᵀε‖_{B_k⁻¹} ≤ R √(log det B_k − log det B_0 + 2 log(1/δ))    for all k

    Corrected: the lemma is printed for one k and R = 1. It holds for all k together, however the
    arms are chosen, and nearly with equality: for contexts of growing length in one dimension, a
    radius 0.9 times as large fails more often than δ.

    Parameters
    ----------
    information
        log det B_k − log det B_0, or S_k, which bounds it.
    delta, noise
        δ and R.

    Examples
    --------
    >>> round(noise_radius(0.0, delta=0.05), 3)
    2.448
    """
    return radius_with_bias(information, delta=delta, bias=0.0, noise=noise)


def radius_with_bias(
    information: npt.ArrayLike,
    *,
    delta: float,
    bias: Any,
    noise: Any = 1.0,
    form: str = "corrected",
) -> Any:
    """γ_k of :func:`confidence_radius`, for a bias that is known.

    ::

        "corrected"   R √(I_k + 2 log(1/δ)) + bias
        "lemma"         √(I_k + 2 log(1/δ)) + bias
        "algorithm"       I_k + 2 log(1/δ)  + bias

    Parameters
    ----------
    information, delta, noise
        I_k, δ and R.
    bias
        A bound on ‖θ* − θ̂₀‖ in the norm of B₀ (:func:`bias_radius`).
    form
        Which of the three.

    Examples
    --------
    >>> round(radius_with_bias(3.0, delta=0.05, bias=0.5, noise=0.1), 3)
    0.8
    """
    checks.one_of("form", form, ("corrected", "lemma", "algorithm"))
    if not np.all(np.asarray(noise) > 0):
        raise checks.invalid("noise", "a positive finite number", noise)
    doubt = 2.0 * math.log(1.0 / checks.fraction("delta", delta, open_ends=True))
    squared = np.asarray(information, dtype=float) + doubt
    if form == "algorithm":
        return float_if_scalar(squared + bias)
    return float_if_scalar(
        (np.asarray(noise) if form == "corrected" else 1.0) * np.sqrt(squared) + bias
    )


def bias_radius(
    *,
    dim: int,
    rank: int,
    lam1: float,
    lam2: float,
    bound: npt.ArrayLike,
    residual: npt.ArrayLike,
    form: str = "corrected",
) -> Any:
    """The bias: what shrinkage to a wrong point adds to the radius.

    ::

        "corrected"   √(λ₁W² + λ₂V²)          exact before the first round, if ‖P̂θ*‖ = V
        "printed"     √λ₂ V + (λ₁/√λ₂) W      Lemma 3
        "swapped"     √λ₁ V + (λ₂/√λ₁) W      K of the Thompson analysis

    Corrected: Lemma 3 divides by the smallest eigenvalue of B where B ⪰ λ₁P̂⊥ + λ₂P̂ gives each term
    its own. For λ₁ > λ₂ the printed W term is too large by √(λ₁/λ₂); for λ₁ < λ₂, which the printed
    λ₁ = 1/√Y makes it, it is too small by that factor, and the lemma fails. K has λ₁ and λ₂
    swapped, and fails wherever W > V or λ₁ < λ₂.

    Parameters
    ----------
    dim, rank, lam1, lam2
        d, p, λ₁ and λ₂.
    bound
        V, a bound on ‖P̂θ*‖; does not matter if p = 0 (except in the swapped form).
    residual
        W; does not matter if q = 0.
    form
        Which of the three.

    Examples
    --------
    >>> sizes = dict(dim=4, rank=2, lam1=100.0, lam2=1.0, bound=1.0, residual=0.1)
    >>> [round(bias_radius(**sizes, form=form), 2) for form in ("corrected", "printed", "swapped")]
    [1.41, 11.0, 10.01]
    """
    p, q = inner_and_outer(dim, rank)
    outer, inner = checks.positive("lam1", lam1), checks.positive("lam2", lam2)
    checks.one_of("form", form, ("corrected", "printed", "swapped"))
    v = np.asarray(bound, dtype=float) * (p > 0 or form == "swapped")
    w = np.asarray(residual, dtype=float) * (q > 0)
    return float_if_scalar(bias_term(v, w, outer, inner, form))


def bias_term(bound: Any, residual: Any, lam1: Any, lam2: Any, form: str = "corrected") -> Any:
    """The formulas of :func:`bias_radius`, for arrays of NumPy or JAX and without checks.

    ``bound`` (V) must be 0 where p = 0, and ``residual`` (W) where q = 0.

    >>> float(bias_term(3.0, 4.0, 1.0, 1.0))
    5.0
    """
    xp = array_namespace(bound, residual, lam1, lam2)
    if form == "corrected":
        return xp.sqrt(lam1 * residual**2 + lam2 * bound**2)
    if form == "swapped":
        lam1, lam2 = lam2, lam1
    return xp.sqrt(lam2) * bound + lam1 / xp.sqrt(lam2) * residual


def confidence_radius(
    information: npt.ArrayLike,
    *,
    delta: float,
    dim: int,
    rank: int,
    lam1: float,
    lam2: float,
    bound: npt.ArrayLike,
    residual: npt.ArrayLike,
    noise: float = 1.0,
    form: str = "corrected",
) -> Any:
    """γ_k, a bound on ‖θ̂_k − θ*‖_{B_k} in all rounds at once, with probability 1 − δ.

    ::

        "corrected"   R √(I_k + 2 log(1/δ)) + √(λ₁W² + λ₂V²)
        "lemma"         √(I_k + 2 log(1/δ)) + √λ₂ V + (λ₁/√λ₂) W    Lemma 3 as printed
        "algorithm"       I_k + 2 log(1/δ)  + √λ₂ V + (λ₁/√λ₂) W    Algorithm 2 as printed

    with I_k = log det B_k − log det B_0. Corrected: R; the square root that Algorithm 2 lacks; the
    bias (see :func:`bias_radius`).

    Parameters
    ----------
    information
        I_k, or S_k from :func:`information_bound`, which bounds it.
    delta, dim, rank, lam1, lam2, bound, residual, noise
        δ, d, p, λ₁, λ₂, V, W and R.
    form
        Which of the three.

    Examples
    --------
    At the paper's setting (d = 30, p = 15, n = 250) with R = 0.1, W = 0.08 and V = 1.1:

    >>> sizes = dict(dim=30, rank=15, lam1=25.0, lam2=0.16)
    >>> for form in ("corrected", "lemma", "algorithm"):
    ...     radius = confidence_radius(
    ...         information_bound(250, **sizes),
    ...         delta=1 / 250,
    ...         bound=1.1,
    ...         residual=0.08,
    ...         noise=0.1,
    ...         form=form,
    ...         **sizes,
    ...     )
    ...     print(form, round(radius, 2))
    corrected 1.54
    lemma 14.85
    algorithm 93.98
    """
    checks.one_of("form", form, ("corrected", "lemma", "algorithm"))
    checks.positive("noise", noise)
    bias = bias_radius(
        dim=dim,
        rank=rank,
        lam1=lam1,
        lam2=lam2,
        bound=bound,
        residual=residual,
        form="corrected" if form == "corrected" else "printed",
    )
    return radius_with_bias(information, delta=delta, bias=bias, noise=noise, form=form)


def inner_and_outer(dim: int, rank: int) -> tuple[int, int]:
    """P and q, checked."""
    d = checks.integer("dim", dim, 1)
    p = checks.integer("rank", rank, 0, d)
    return p, d - p
