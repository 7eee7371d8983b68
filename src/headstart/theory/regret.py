"""The regret of optimism: Theorem 1, with its constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, float_if_scalar
from headstart.theory.confidence import (
    bias_radius,
    confidence_radius,
    elliptical_bound,
    information_bound,
    noise_radius,
)

__all__ = [
    "estimation_ridge",
    "inner_regularisation",
    "outer_regularisation",
    "regularisation",
    "ucb_regret_bound",
    "ucb_regret_rate",
]


def regularisation(
    error: float, bound: float, noise: float = 1.0, *, printed: bool = False
) -> tuple[float, float]:
    """λ₁ and λ₂ of the theorems.

    ::

        λ₁ = R²/Y        λ₂ = R²/V²
        λ₁ = 1/√Y        λ₂ = 1/V²        as printed

    Corrected: λ has the unit of R² over a variance. The printed λ₁ depends on the rewards' unit.

    Parameters
    ----------
    error
        Y, or Var_ρ where P and μ are known.
    bound, noise
        V and R.
    printed
        As printed.

    Examples
    --------
    >>> regularisation(0.25, 2.0, noise=0.5), regularisation(0.25, 2.0, printed=True)
    ((1.0, 0.0625), (2.0, 0.25))
    """
    y, v = checks.positive("error", error), checks.positive("bound", bound)
    scale = checks.positive("noise", noise)
    lam1 = outer_regularisation(y, scale, printed=printed)
    return float(lam1), float(inner_regularisation(v, scale, printed=printed))


def outer_regularisation(error: Any, noise: Any, *, printed: bool = False) -> Any:
    """λ₁ of :func:`regularisation`, for arrays of NumPy or JAX and without checks."""
    xp = array_namespace(error, noise)
    return 1.0 / xp.sqrt(error) if printed else xp.asarray(noise) ** 2 / error


def inner_regularisation(bound: float, noise: Any, *, printed: bool = False) -> Any:
    """λ₂ of :func:`regularisation`, for arrays of NumPy or JAX and without checks."""
    xp = array_namespace(noise)
    return (1.0 if printed else xp.asarray(noise) ** 2) / bound**2


def estimation_ridge(horizon: int, bound: float) -> float:
    """1/(nV²), the λ of the ridge estimates that the prior is learned from.

    >>> estimation_ridge(horizon=250, bound=1.0)
    0.004
    """
    return 1.0 / (horizon * bound**2)


def ucb_regret_bound(
    rounds: npt.ArrayLike,
    *,
    dim: int,
    rank: int,
    lam1: float,
    lam2: float,
    bound: float,
    residual: npt.ArrayLike,
    noise: float = 1.0,
    delta: float,
    expected: bool = True,
    printed: bool = False,
) -> Any:
    """Theorem 1 with its constants: the regret of n rounds of UCB with the theory's radius.

    ::

        R(n) ≤ 2 (γ + (V − γ₀)₊) √(2 n S_n)  [+ 2V n δ, if expected]
        γ  = R √(S_n + 2 log(1/δ)) + √(λ₁W² + λ₂V²)        γ₀ = the same at W = 0

    Without the last term it holds with probability 1 − δ; with it, on average. It is concave in W²,
    so that √E[W²] may stand for W on average over tasks (if each is played with its own W in the
    radius): √Var_ρ where P and μ are known, else :func:`~headstart.theory.learned_residual`.

    Corrected: the proof drops a factor 2 (regret ≤ 2γ‖x‖); Σ‖x‖² ≤ 2S needs λ_min(B_0) ≥ 1, and
    where it fails the regret's own limit of 2V per round is used, which is (V − γ₀)₊; the radius
    (:func:`~headstart.theory.confidence_radius`); and failure, with probability δ, adds 2Vn.

    Printed (the last lines of the proof; it fails for p = d and large V)::

        (√(S_n + 2 log(1/δ)) + √λ₂ V + (λ₁/√λ₂) W) √(2 n S_n)

    Parameters
    ----------
    rounds
        n, a number or an array of them.
    dim, rank, lam1, lam2
        d, p, λ₁ and λ₂. ``rank=dim`` gives the bound of LinUCB (OFUL) with λ = λ₂, ``rank=0`` that
        of B-OFUL with λ = λ₁.
    bound, residual, noise, delta
        V, W, R and δ (the paper's is 1/n).
    expected
        Add the expected regret if the radius fails.
    printed
        As printed.

    Notes
    -----
    It holds for any contexts, and is loose for ordinary ones: at the paper's setting it is about
    sixty times the regret, and just below 2Vn, which no regret can exceed.

    Examples
    --------
    >>> plane = dict(dim=30, rank=15, lam1=25.0, lam2=0.16, bound=1.1, residual=0.08, noise=0.1)
    >>> round(ucb_regret_bound(250, **plane, delta=1 / 250))
    607
    >>> round(ucb_regret_bound(250, **(plane | {"rank": 30}), delta=1 / 250))
    774
    """
    sizes: dict[str, Any] = {"dim": dim, "rank": rank, "lam1": lam1, "lam2": lam2}
    n = np.asarray(rounds, dtype=float)
    v = checks.positive("bound", bound)
    s = information_bound(n, **sizes)
    widths = np.sqrt(n * elliptical_bound(s))
    gamma = confidence_radius(
        s,
        delta=delta,
        bound=v,
        residual=residual,
        noise=noise,
        form="lemma" if printed else "corrected",
        **sizes,
    )
    if printed:
        return float_if_scalar(gamma * widths)
    least = noise_radius(s, delta, noise) + bias_radius(bound=v, residual=0.0, **sizes)
    total = 2.0 * (gamma + np.maximum(0.0, v - least)) * widths
    return float_if_scalar(total + (2.0 * v * delta * n if expected else 0.0))


def ucb_regret_rate(
    rounds: npt.ArrayLike, *, dim: int, rank: int, bound: float, error: float
) -> Any:
    """The expression inside the O() of Theorem 1.

    ::

        √n (p log(1 + nV²/p) + q log(1 + n√Y/q))

    with Var_ρ for Y where P and μ are known. No constant makes it a bound: a first round costs up
    to 2V, and this grows like log V; at small V every round costs V, and this falls like V².

    Parameters
    ----------
    rounds, dim, rank, bound
        n, d, p and V.
    error
        Y, or Var_ρ.

    Examples
    --------
    >>> round(ucb_regret_rate(250, dim=30, rank=15, bound=1.0, error=0.006))
    878
    """
    lam1, lam2 = regularisation(error, bound, printed=True)
    s = information_bound(rounds, dim=dim, rank=rank, lam1=lam1, lam2=lam2)
    return float_if_scalar(np.sqrt(np.asarray(rounds, dtype=float)) * s)
