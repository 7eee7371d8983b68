"""The algorithms of the literature, and the oracles of the paper's comparison."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from headstart.algorithms.registry import Recipe, register
from headstart.rules import UCB, Forced, Thompson
from headstart.rules.thompson import DEFAULT_SCALE
from headstart.theory import inner_regularisation
from headstart.transfer import Bias, Gaussian, Independent, Oracle, Subspace

__all__ = [
    "bayes_oracle",
    "bias_oful",
    "lints",
    "linucb",
    "meta_ts",
    "meta_ts_unforced",
    "projected_linucb",
    "projected_ts",
    "projection_oracle",
]

OFUL = (
    "Abbasi-Yadkori, Pál and Szepesvári (2011), Improved algorithms for linear stochastic bandits"
)
LINTS = "Agrawal and Goyal (2013), Thompson sampling for contextual bandits with linear payoffs"
CELLA = "Cella, Lazaric and Pontil (2020), Meta-learning with stochastic linear bandits"
BILAJ = "Bilaj, Dhouib and Maghsudi (2024), Meta learning in bandits within shared affine subspaces"
PELEG = "Peleg, Pearl and Meir (2022), Metalearning linear bandits by prior update"


def over_square(dim: int, bound: float) -> float:
    """1/V², the λ that the paper prints."""
    return float(inner_regularisation(bound, 1.0, printed=True))


@register("LinUCB", printed={"lam": over_square, "radius": "paper"}, reference=OFUL)
def linucb(
    dim: int,
    seed: Any = None,
    *,
    lam: float | str = 1.0,
    radius: float | str = 1.0,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """LinUCB (OFUL; Abbasi-Yadkori et al. 2011): every task is learned alone; UCB.

    Nothing is learned from past tasks, except λ with ``lam="plug-in"``. ``paper=True`` is the
    printed radius, with λ = 1/V².

    Parameters
    ----------
    dim
        The number of features of a context.
    seed
        The seed of random choices.
    lam
        λ of :class:`~headstart.Independent`.
    radius
        The exploration of :class:`~headstart.UCB`.
    horizon, bound, delta
        n, V and δ of the forms named ``"theory"`` and ``"paper"``; δ is 1/n unless given.
    paper
        Whether to take the printed form.
    **bandit
        Other arguments of :class:`~headstart.Bandit`.

    Examples
    --------
    >>> linucb(dim=3, seed=0).prior.root[0]
    array([1., 0., 0.])
    >>> linucb(dim=3, paper=True, horizon=1000, bound=2.0).rule
    UCB(radius='paper', horizon=1000)
    """
    return Recipe(Independent(lam=lam, bound=bound), UCB(radius, delta, horizon))


@register("LinTS", printed={"lam": over_square, "scale": "paper"}, reference=LINTS)
def lints(
    dim: int,
    seed: Any = None,
    *,
    lam: float | str = 1.0,
    scale: float | str = DEFAULT_SCALE,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    alpha: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """LinTS (Agrawal and Goyal 2013): every task is learned alone; Thompson sampling.

    ``paper=True`` is the printed scale, with λ = 1/V². The other parameters are those of
    :func:`linucb`, with the ``scale`` of :class:`~headstart.Thompson` and its α in place of the
    radius.
    """
    rule = Thompson(scale, delta=delta, horizon=horizon, alpha=alpha)
    return Recipe(Independent(lam=lam, bound=bound), rule)


@register("B-OFUL", printed={"lam": "theory", "radius": "theory"}, reference=CELLA)
def bias_oful(
    dim: int,
    seed: Any = None,
    *,
    lam: float | str = "plug-in",
    radius: float | str = 1.0,
    method: str = "average",
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """B-OFUL (Cella et al. 2020): the prior mean is learned from past tasks; UCB.

    ``method`` is that of :class:`~headstart.Bias`. ``paper=True`` takes λ and the radius from the
    theory: R²/(n·Var) and the confidence bound, which needs the ``noise``. The other parameters
    are those of :func:`linucb`.
    """
    transfer = Bias(method=method, lam=lam, horizon=horizon, bound=bound)
    return Recipe(transfer, UCB(radius, delta, horizon))


PRINTED_SUBSPACE = {
    "rank": "paper",
    "pca": "paper",
    "shrink": "zero",
    "lam1": 100.0,
    "lam2": "paper",
    # Algorithm 1 prints "if t < d", and at task t there are t − 1 finished ones. It counts all.
    "warmup": lambda dim, bound: max(dim - 1, 1),
    "min_rounds": 1,
}


@register("P-LinUCB", printed={**PRINTED_SUBSPACE, "radius": "paper"}, reference=BILAJ)
def projected_linucb(
    dim: int,
    seed: Any = None,
    *,
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    radius: float | str = 1.0,
    rank: int | str = "log-gap",
    pca: str = "corrected",
    shrink: str = "zero",
    warmup: int | None = None,
    min_rounds: int | None = None,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """P-LinUCB (Bilaj et al. 2024): the affine subspace that tasks share is learned; UCB.

    ``paper=True`` is Algorithms 1 and 2 as printed: CCIPCA, the raw eigengap, the printed radius,
    λ₂ = 1/V², and λ₁ = 100 (the paper requires λ₁ ≫ λ₂ and gives no value). ``rank``,
    ``pca``, ``shrink``, ``lam1``, ``lam2``, ``warmup`` and ``min_rounds`` are those of
    :class:`~headstart.Subspace`; the other parameters are those of :func:`linucb`.

    Examples
    --------
    >>> projected_linucb(dim=5, paper=True, horizon=100, bound=2.0, delta=0.05).rule
    UCB(radius='paper', delta=0.05, horizon=100)
    """
    transfer = Subspace(
        rank, pca, shrink, lam1, lam2, warmup, horizon=horizon, bound=bound, min_rounds=min_rounds
    )
    return Recipe(transfer, UCB(radius, delta, horizon))


@register("P-TS", printed={**PRINTED_SUBSPACE, "scale": "paper"}, reference=BILAJ)
def projected_ts(
    dim: int,
    seed: Any = None,
    *,
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    scale: float | str = DEFAULT_SCALE,
    rank: int | str = "log-gap",
    pca: str = "corrected",
    shrink: str = "zero",
    warmup: int | None = None,
    min_rounds: int | None = None,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    alpha: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """P-TS (Bilaj et al. 2024): the prior of P-LinUCB; Thompson sampling.

    ``paper=True`` is Algorithms 1 and 3 as printed, whose scale is close to random play. The
    parameters are those of :func:`projected_linucb` and :func:`lints`.
    """
    transfer = Subspace(
        rank, pca, shrink, lam1, lam2, warmup, horizon=horizon, bound=bound, min_rounds=min_rounds
    )
    return Recipe(transfer, Thompson(scale, delta=delta, horizon=horizon, alpha=alpha))


@register(
    "M-TS",
    printed={"scale": 1.0, "forced_rounds": None, "estimate": "least-squares"},
    reference=PELEG,
)
def meta_ts(
    dim: int,
    seed: Any = None,
    *,
    lam: float = 1.0,
    scale: float | str = DEFAULT_SCALE,
    forced_rounds: int | None = None,
    estimate: str = "least-squares",
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """M-TS (Peleg et al. 2022): a Gaussian prior learned from forced random rounds.

    ``forced_rounds`` is τ, twice the number of features unless given; ``lam`` and ``estimate`` are
    those of :class:`~headstart.Gaussian`, ``scale`` that of :class:`~headstart.Thompson`.
    ``paper=True`` is the paper's benchmark: τ = 2d, least squares, scale 1.
    """
    rounds = 2 * dim if forced_rounds is None else forced_rounds
    return Recipe(Gaussian(lam=lam, estimate=estimate), Forced(rounds, Thompson(scale)))


@register("M-TS, unforced", reference=PELEG)
def meta_ts_unforced(
    dim: int,
    seed: Any = None,
    *,
    lam: float = 1.0,
    scale: float | str = DEFAULT_SCALE,
    **bandit: Any,
) -> Recipe:
    """M-TS without forced rounds, as a control: ridge estimates from all rounds."""
    return Recipe(Gaussian(lam=lam, forced=False), Thompson(scale))


@register(
    "projection oracle",
    printed={"lam1": 100.0, "lam2": over_square, "radius": "paper"},
    truth=("mean", "basis"),
    reference=BILAJ,
)
def projection_oracle(
    dim: int,
    seed: Any = None,
    *,
    mean: npt.ArrayLike,
    basis: npt.ArrayLike,
    lam1: float = 100.0,
    lam2: float = 1.0,
    radius: float | str = 1.0,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """The paper's oracle (Bilaj et al. 2024): the true mean and subspace are given; UCB.

    ``paper=True`` is Algorithm 2 as printed, with λ₁ = 100 and λ₂ = 1/V². ``mean`` and ``basis``
    are those of :meth:`Oracle.subspace <headstart.Oracle.subspace>`.
    """
    transfer = Oracle.subspace(mean, basis, lam1=lam1, lam2=lam2, bound=bound)
    return Recipe(transfer, UCB(radius, delta, horizon))


@register("Bayes oracle", truth=("mean", "covariance"))
def bayes_oracle(
    dim: int,
    seed: Any = None,
    *,
    mean: npt.ArrayLike,
    covariance: npt.ArrayLike,
    radius: float | str = 1.0,
    **bandit: Any,
) -> Recipe:
    """The Bayes oracle: the true mean and covariance are given; UCB."""
    return Recipe(Oracle.gaussian(mean, covariance), UCB(radius))
