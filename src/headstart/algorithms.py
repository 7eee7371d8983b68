"""The literature's algorithms by name: each one a transfer and a rule.

Every constructor takes ``dim`` and ``seed``, whatever else :class:`~headstart.Bandit` takes
(``noise``, ``intercept``, …), and the one number that says how much to explore. Defaults are the
best that is known without tuning; ``paper=True`` gives the form that the paper prints, and a
setting that contradicts it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.rules import UCB, Forced, Thompson
from headstart.transfer import Bias, Gaussian, Independent, Oracle, Subspace

__all__ = [
    "bayes_oracle",
    "bias_oful",
    "lints",
    "linucb",
    "meta_ts",
    "projected_linucb",
    "projected_ts",
    "projection_oracle",
]


P = ParamSpec("P")


def printed(**settings: Any) -> Callable[[Callable[P, Bandit]], Callable[P, Bandit]]:
    """Let ``paper=True`` stand for these settings of a constructor, and refuse any other value."""

    def decorate(make: Callable[P, Bandit]) -> Callable[P, Bandit]:
        @functools.wraps(make)
        def constructor(*args: P.args, **keywords: P.kwargs) -> Bandit:
            given: dict[str, Any] = dict(keywords)
            paper = given.get("paper", False)
            if not isinstance(paper, (bool, np.bool_)):
                raise checks.refuse("paper", "True or False", paper)
            if not paper:
                return make(*args, **keywords)
            against = [
                name
                for name, value in settings.items()
                if name in given and not (np.ndim(given[name]) == 0 and given[name] == value)
            ]
            if against:
                fixed = ", ".join(f"{name}={settings[name]!r}" for name in against)
                raise InputError(
                    f"{' and '.join(against)} must be left out with paper=True, which stands for "
                    f"{fixed}; got {', '.join(checks.describe(given[name]) for name in against)}"
                )
            return make(*args, **(given | settings))

        return constructor

    return decorate


@printed(lam=1.0, radius="paper")
def linucb(
    dim: int,
    seed: Any = None,
    *,
    lam: float | str = 1.0,
    radius: float | str = 1.0,
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """LinUCB (OFUL; Abbasi-Yadkori et al. 2011): every task on its own, optimism.

    Nothing is learned from past tasks unless ``lam="plug-in"`` takes λ from their size.
    ``paper=True`` is the printed radius, with λ = 1/V².

    >>> linucb(dim=3, seed=0).prior.root[0]
    array([1., 0., 0.])
    """
    return Bandit(dim, Independent(lam=lam), UCB(radius), seed=seed, **other)


@printed(lam=1.0, scale="paper")
def lints(
    dim: int,
    seed: Any = None,
    *,
    lam: float | str = 1.0,
    scale: float | str = 1.0,
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """Linear Thompson sampling (Agrawal and Goyal 2013): every task on its own.

    ``paper=True`` is the printed scale, with λ = 1/V².
    """
    return Bandit(dim, Independent(lam=lam), Thompson(scale), seed=seed, **other)


@printed(lam="theory", radius="theory")
def bias_oful(
    dim: int,
    seed: Any = None,
    *,
    method: str = "average",
    lam: float | str = "plug-in",
    radius: float | str = 1.0,
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """B-OFUL (Cella et al. 2020): tasks scatter around a shared mean.

    ``paper=True`` takes λ and the radius from the theory: R²/(n·Var) and the confidence bound,
    which needs the ``noise``.
    """
    return Bandit(dim, Bias(method=method, lam=lam), UCB(radius), seed=seed, **other)


@printed(rank="paper", radius="paper", lam1=100.0, lam2="paper")
def projected_linucb(
    dim: int,
    seed: Any = None,
    *,
    rank: int | str = "log-gap",
    radius: float | str = 1.0,
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """P-LinUCB (Bilaj et al. 2024): explore inside the affine subspace that tasks share.

    ``paper=True`` is Algorithms 1 and 2 as printed: CCIPCA, the raw eigengap, the printed radius,
    λ₂ = 1/V², and λ₁ = 100 (the paper asks for λ₁ ≫ λ₂ and names no usable number).
    """
    transfer = projected(dim, rank, lam1, lam2, paper, bool(other.get("intercept", False)))
    return Bandit(dim, transfer, UCB(radius), seed=seed, **other)


@printed(rank="paper", scale="paper", lam1=100.0, lam2="paper")
def projected_ts(
    dim: int,
    seed: Any = None,
    *,
    rank: int | str = "log-gap",
    scale: float | str = 1.0,
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """P-TS (Bilaj et al. 2024): the same prior as P-LinUCB, Thompson sampling.

    ``paper=True`` is Algorithms 1 and 3 as printed, whose scale is close to random play.
    """
    transfer = projected(dim, rank, lam1, lam2, paper, bool(other.get("intercept", False)))
    return Bandit(dim, transfer, Thompson(scale), seed=seed, **other)


def projected(
    dim: int, rank: int | str, lam1: float | str, lam2: float | str, paper: bool, intercept: bool
) -> Subspace:
    """The transfer of P-LinUCB and P-TS."""
    if not paper:
        return Subspace(rank=rank, lam1=lam1, lam2=lam2)
    dim = checks.dimension(dim) + intercept
    # Algorithm 1 prints "if t < d", and at task t there are t − 1 finished ones. It counts all.
    return Subspace(
        rank=rank, pca="paper", lam1=lam1, lam2=lam2, warmup=max(dim - 1, 1), min_rounds=1
    )


@printed(forced=True, forced_rounds=None, estimate="least-squares", scale=1.0)
def meta_ts(
    dim: int,
    seed: Any = None,
    *,
    forced: bool = True,
    forced_rounds: int | None = None,
    estimate: str = "least-squares",
    scale: float | str = 1.0,
    paper: bool = False,
    **other: Any,
) -> Bandit:
    """M-TS (Peleg et al. 2022): a Gaussian prior learned from forced random rounds.

    ``forced_rounds`` is τ, 2d unless given. ``forced=False`` is the control without forced rounds,
    on ridge estimates. ``paper=True`` is the paper's benchmark: forced, least squares, scale 1.
    """
    transfer = Gaussian(forced=forced, estimate=estimate)
    rule: Any = Thompson(scale)
    if forced:
        features = checks.dimension(dim) + bool(other.get("intercept", False))
        rule = Forced(2 * features if forced_rounds is None else forced_rounds, rule)
    return Bandit(dim, transfer, rule, seed=seed, **other)


def projection_oracle(
    dim: int,
    seed: Any = None,
    *,
    mean: npt.ArrayLike,
    basis: npt.ArrayLike,
    lam1: float = 100.0,
    lam2: float = 1.0,
    rule: Any = None,
    **other: Any,
) -> Bandit:
    """The paper's oracle: true subspace and mean given."""
    transfer = Oracle.subspace(mean, basis, lam1=lam1, lam2=lam2)
    return Bandit(dim, transfer, rule, seed=seed, **other)


def bayes_oracle(
    dim: int,
    seed: Any = None,
    *,
    mean: npt.ArrayLike,
    covariance: npt.ArrayLike,
    rule: Any = None,
    **other: Any,
) -> Bandit:
    """True mean and covariance given: the floor for all of these."""
    return Bandit(dim, Oracle.gaussian(mean, covariance), rule, seed=seed, **other)
