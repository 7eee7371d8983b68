"""How far a learned subspace may be off: the errors of Lemma 4, and Y that they add up to."""

from __future__ import annotations

import math

from headstart import checks

__all__ = [
    "bernstein_covariance_error",
    "covariance_error",
    "gram_eigenvalue",
    "learned_residual",
    "mean_error",
    "plane_error",
    "projection_error",
    "ridge_error",
]


def gram_eigenvalue(
    rounds: float, *, dim: int, spread: float, delta: float, lam: float = 0.0, printed: bool = False
) -> float:
    """A lower bound on λ_min(A_n), A_n = λI + Σ x xᵀ, with probability 1 − δ.

    ::

        λ_min(A_n) ≥ λ + n κ max(0, 1 − √(2 log(d/δ)/(n κ)))
        λ_min(A_n) ≥ log n                                        as printed

    for ‖x‖ ≤ 1 and contexts that are drawn, not chosen, with E[x xᵀ] ⪰ κI: the matrix Chernoff
    inequality (Tropp 2012).

    Corrected: the appendix takes the second line from Lai and Wei (1982), who do not claim it:
    their theorem *assumes* that λ_min grows faster than log λ_max. It fails for contexts that lie
    in a plane (λ_min(A_n) = λ for ever), for few rounds, and for what a learner chooses, who soon
    picks almost the same direction every time. Nothing but λ holds for all of these, and
    :func:`ridge_error` requires the observed eigenvalue.

    Parameters
    ----------
    rounds, dim, delta, lam
        n, d, δ and λ.
    spread
        κ, the smallest eigenvalue of E[x xᵀ]; never more than 1/d.
    printed
        As printed.

    Examples
    --------
    >>> round(gram_eigenvalue(2000, dim=10, spread=0.1, delta=0.05), 1)
    154.0
    >>> gram_eigenvalue(
    ...     250, dim=30, spread=1 / 30, delta=1 / 250, lam=0.004
    ... )  # too few rounds for a bound
    0.004
    >>> round(gram_eigenvalue(250, dim=30, spread=1 / 30, delta=1 / 250, printed=True), 1)
    5.5
    """
    n = checks.positive("rounds", rounds)
    if printed:
        return math.log(n)
    information = n * checks.positive("spread", spread)
    doubt = math.log(
        checks.integer("dim", dim, 1) / checks.fraction("delta", delta, open_ends=True)
    )
    short = math.sqrt(2.0 * doubt / information)
    return checks.non_negative("lam", lam) + information * max(0.0, 1.0 - short)


def ridge_error(
    *,
    dim: int,
    horizon: int,
    bound: float,
    smallest: float,
    noise: float = 1.0,
    form: str = "corrected",
) -> float:
    """β_d, bounding ‖θ(i) − θ*(i)‖ with probability 1 − 1/n: a ridge estimate with λ = 1/(nV²).

    ::

        "corrected"   [R √(d log(1 + n²V²/d) + 2 log n) + 1/√n] / √λ_min
        "printed"     [  √(d log(1 + n²V²/d) + 2)       + 1/√n] / √λ_min    Lemma 4
        "appendix"       √(d log(1 + n²V²/d) + 2)/λ_min + 1/√n              its proof

    Corrected: log(1/δ²) at δ = 1/n is 2 log n; R; and λ_min enters as the body has it.

    Parameters
    ----------
    dim, horizon, bound, noise
        d, n, V and R.
    smallest
        λ_min, the smallest eigenvalue of any past task's gram + λI.
    form
        Which of the three.

    Examples
    --------
    >>> sizes = dict(dim=30, horizon=250, bound=1.0, smallest=4.0)
    >>> round(ridge_error(**sizes, noise=0.1), 3), round(ridge_error(**sizes, form="printed"), 2)
    (0.807, 7.64)
    """
    checks.one_of("form", form, ("corrected", "printed", "appendix"))
    right = form == "corrected"
    inside = dim * math.log(1.0 + horizon**2 * bound**2 / dim)
    chance = math.sqrt(inside + (2.0 * math.log(horizon) if right else 2.0))
    bias = math.sqrt(1.0 / horizon)
    if form == "appendix":
        return chance / smallest + bias
    return ((noise if right else 1.0) * chance + bias) / math.sqrt(smallest)


def mean_error(
    tasks: float, variance: float, bound: float = 1.0, *, printed: bool = False
) -> float:
    """ε_μ, bounding ‖P⊥(θ̄* − μ)‖ with probability 1 − 1/t.

    ::

        ε_μ = 2V log(2t)/t + √(2 log(2t) Var_ρ/t)

    Corrected: the first term is printed without V, and so has no unit. (It comes from Bernstein's
    inequality for vectors; with ‖θ* − μ‖ ≤ 2V, 4V/3 would do for 2V.)

    Parameters
    ----------
    tasks, variance, bound
        t, Var_ρ and V.
    printed
        Without V.

    Examples
    --------
    >>> round(mean_error(400, 0.006), 4)
    0.0476
    """
    log_tasks = math.log(2.0 * max(tasks, 1.0)) / max(tasks, 1.0)
    return 2.0 * (1.0 if printed else bound) * log_tasks + math.sqrt(2.0 * log_tasks * variance)


def covariance_error(tasks: float, constant: float = 1.0) -> float:
    """ε_Σ as printed, "bounding" ‖Σ* − Σ‖ with probability 1 − 1/t.

    ::

        ε_Σ = √(C log(2t)/t)

    The paper calls C an absolute constant. It cannot be one: it has the unit of V⁴, and grows with
    the dimension: at C = 1 and t = 200, tasks with unit variances in d = 2, 10, 50 directions have
    0.6, 2 and 7 times this error. :func:`bernstein_covariance_error` has no hidden constant.

    Parameters
    ----------
    tasks, constant
        t and C.

    Examples
    --------
    >>> round(covariance_error(400), 3)
    0.129
    """
    tasks = max(tasks, 1.0)
    return math.sqrt(constant * math.log(2.0 * tasks) / tasks)


def bernstein_covariance_error(
    tasks: float, *, dim: int, bound: float, largest: float, total: float
) -> float:
    """A bound on E‖Σ* − Σ‖ with explicit constants: the matrix Bernstein inequality (Tropp 2015).

    ::

        E‖Σ* − Σ‖ ≤ √(2 b ‖Σ‖ log(2d)/t) + 2 b log(2d)/(3t) + tr Σ/t,    b = (2V)²

    where Σ* = (1/t) Σ (θ*(i) − θ̄*)(θ*(i) − θ̄*)ᵀ; the last term is for θ̄* in place of μ.

    Parameters
    ----------
    tasks, dim, bound
        t, d and V.
    largest, total
        ‖Σ‖, the largest eigenvalue, and tr Σ = Var_max.

    Examples
    --------
    >>> round(bernstein_covariance_error(400, dim=30, bound=1.0, largest=0.06, total=1.0), 2)
    0.1
    """
    tasks = max(tasks, 1.0)
    size, terms = (2.0 * bound) ** 2, math.log(2.0 * dim)
    first = math.sqrt(2.0 * size * largest * terms / tasks)
    return first + 2.0 * size * terms / (3.0 * tasks) + total / tasks


def plane_error(
    covariance_error: float,
    *,
    rank: int,
    gap: float,
    frobenius: float | None = None,
    printed: bool = False,
) -> float:
    """The theorem of Davis and Kahan, as Yu et al. have it: a bound on ‖P̂ − P‖.

    ::

        "corrected"   2 min(√p ‖Σ̂ − Σ‖, ‖Σ̂ − Σ‖_F) / Δ        never more than 1
        "printed"     √32 min(√p ‖Σ̂ − Σ‖, ‖Σ̂ − Σ‖_F) / Δ

    Corrected: Yu et al. bound ‖P̂ − P‖, the sine of the largest angle, by 2 min(·)/Δ. The appendix
    uses the eigenvectors, and loses a factor √8. The Frobenius norm is the smaller of the two for
    errors of low rank; for those of many directions it is up to √(d/p) times the other. Y of
    :func:`projection_error` has the first branch and the printed constant.

    Parameters
    ----------
    covariance_error
        ‖Σ̂ − Σ‖, the largest eigenvalue in absolute value.
    rank, gap
        p, and Δ = σ_p − σ_{p+1}.
    frobenius
        ‖Σ̂ − Σ‖_F, if it is known.
    printed
        With the printed constant, and not capped.

    Examples
    --------
    >>> round(plane_error(0.001, rank=2, gap=0.1), 3)
    0.028
    >>> round(plane_error(0.001, rank=2, gap=0.1, frobenius=0.001), 3)
    0.02
    >>> round(plane_error(0.001, rank=2, gap=0.1, printed=True), 3)
    0.08
    """
    size = math.sqrt(rank) * covariance_error
    if frobenius is not None:
        size = min(size, frobenius)
    error = (math.sqrt(32.0) if printed else 2.0) * size / max(gap, 1e-12)
    return error if printed else min(1.0, error)


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
    constant: float = 1.0,
) -> float:
    """Y, bounding E‖P̂⊥(θ̄ − θ*)‖² up to a factor of 4 (the sum of four squares).

    ::

        Y = Var_ρ + b (1 + 64 √(2p) V²/Δ)² + m + 128 p s V²/Δ²

        corrected   b = β_d² + 4V²/n    m = ε_μ² + 4V²/t    s = ε_Σ² + 16V⁴/t
        printed     b = β_d²            m = ε_μ²            s = ε_Σ²

    with β_d from :func:`ridge_error`, ε_μ from :func:`mean_error` and ε_Σ from
    :func:`covariance_error`. The factors come from 2V ‖P̂ − P‖ and :func:`plane_error`, with
    ‖Σ̂ − Σ‖ ≤ 8V e + ‖Σ* − Σ‖, e the root mean square of the past tasks' ‖θ(i) − θ*(i)‖.

    Corrected: β_d, ε_μ and ε_Σ each hold with some probability only, and an expectation has a term
    for where they fail: with probability 1/n for each past task and 1/t, and then by 2V, 2V and 4V²
    at most, if ‖θ(i)‖ ≤ V as the paper assumes. The proof takes expectations as if they never did.

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
        As the paper prints it: 2 in place of 2 log n, no V in ε_μ, R = 1, and nothing for where
        β_d, ε_μ and ε_Σ fail.
    constant
        C of ε_Σ.

    Notes
    -----
    At the paper's own setting Y is in the millions to billions, dominated by the factor
    64 √(2p) V²/Δ: it proves a rate, it does not suggest a λ₁. W² never exceeds 4V²
    (:func:`learned_residual`).

    Examples
    --------
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
    beta = ridge_error(
        dim=dim,
        horizon=horizon,
        bound=bound,
        smallest=smallest,
        noise=noise,
        form="printed" if printed else "corrected",
    )
    gap = max(gap, 1e-12)
    factor = 1.0 + 64.0 * math.sqrt(2.0 * rank) * bound**2 / gap
    squares = [
        beta**2,
        mean_error(tasks, variance, bound, printed=printed) ** 2,
        covariance_error(tasks, constant) ** 2,
    ]
    if not printed:
        chances = (1.0 / horizon, 1.0 / max(tasks, 1.0), 1.0 / max(tasks, 1.0))
        most = (4.0 * bound**2, 4.0 * bound**2, 16.0 * bound**4)
        squares = [s + c * m for s, c, m in zip(squares, chances, most, strict=True)]
    estimate, mean, spread = squares
    return variance + estimate * factor**2 + mean + 128.0 * rank * spread * bound**2 / gap**2


def learned_residual(error: float, bound: float) -> float:
    """A bound on √E[W²] for a learned plane: Lemma 4 with its constant, or what is always true.

    ::

        √E[W²] ≤ min(2 √Y, 2V)

    The 2 of 2√Y is (a + b + c + e)² ≤ 4 (a² + b² + c² + e²), which the paper's O() hides; 2V holds
    where ‖θ̄‖ ≤ V, as the paper assumes. At ordinary settings 2V is the smaller one by far.

    Parameters
    ----------
    error, bound
        Y and V.

    Examples
    --------
    >>> learned_residual(0.01, 1.0), learned_residual(1e9, 1.0)
    (0.2, 2.0)
    """
    return min(2.0 * math.sqrt(error), 2.0 * bound)
