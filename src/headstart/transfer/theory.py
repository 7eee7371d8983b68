"""The paper's bound Y on how wrong a learned projection leaves a task, from which it takes λ₁."""

from __future__ import annotations

import math

__all__ = ["projection_error"]


def projection_error(
    *,
    dim: int,
    rank: int,
    tasks: float,
    horizon: int,
    bound: float,
    variance: float,
    gap: float,
    smallest: float,
    noise: float = 1.0,
    printed: bool = False,
) -> float:
    """Y, bounding E‖P̂⊥(θ̄ − θ*)‖².

    ::

        Y   = Var_ρ + β² (1 + 64 √(2p) V²/Δ)² + ε_μ² + 128 p ε_Σ² V²/Δ²
        β   = [R √(d log(1 + n²V²/d) + 2 log n) + √(1/n)] / √λ_min
        ε_μ = 2V log(2t)/t + √(2 log(2t) Var_ρ/t)        ε_Σ² = log(2t)/t

    Parameters
    ----------
    dim, rank, tasks, horizon, bound
        d, p, t, n and V.
    variance
        Var_ρ, the variance outside the plane.
    gap
        Δ, the eigengap σ_p − σ_{p+1}.
    smallest
        λ_min, the smallest eigenvalue of any past task's regularised gram.
    noise
        R.
    printed
        As the paper prints it: 2 in place of 2 log n, no V in ε_μ, and R = 1.

    Notes
    -----
    At the paper's own setting Y is in the billions, dominated by the factor 64 √(2p) V²/Δ: it
    proves a rate, it does not suggest a λ₁.

    >>> round(
    ...     projection_error(
    ...         dim=30,
    ...         rank=15,
    ...         tasks=400,
    ...         horizon=250,
    ...         bound=1.0,
    ...         variance=0.006,
    ...         gap=0.06,
    ...         smallest=0.5,
    ...         noise=0.1,
    ...     )
    ...     / 1e6
    ... )
    178
    """
    extra = 2.0 if printed else 2.0 * math.log(horizon)
    scale, subgaussian = (1.0, 1.0) if printed else (bound, noise)
    inside = dim * math.log(1.0 + horizon**2 * bound**2 / dim) + extra
    beta = (subgaussian * math.sqrt(inside) + math.sqrt(1.0 / horizon)) / math.sqrt(smallest)
    log_tasks = math.log(2.0 * max(tasks, 1.0)) / max(tasks, 1.0)
    mean_error = 2.0 * scale * log_tasks + math.sqrt(2.0 * log_tasks * variance)
    gap = max(gap, 1e-12)
    factor = 1.0 + 64.0 * math.sqrt(2.0 * rank) * bound**2 / gap
    spread_error = 128.0 * rank * log_tasks * bound**2 / gap**2
    return variance + (beta * factor) ** 2 + mean_error**2 + spread_error
