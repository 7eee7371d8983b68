"""The registry of algorithms: each one is a transfer and a rule under a name.

Every function here builds a :class:`~headstart.Bandit` from ``dim``, ``seed``, the algorithm's own
options, and whatever else a bandit takes (``noise``, ``intercept``, …). The defaults need no
tuning. ``paper=True`` selects the form that the paper prints, and refuses options that contradict
it; its n, V, δ and α are the options ``horizon``, ``bound``, ``delta`` and ``alpha``, which the
forms named ``"theory"`` use too.

:data:`ALGORITHMS` lists the same functions with their labels, options, printed forms and
references. Experiments and the command line build their policies from it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.rules import UCB, Forced, Rule, Thompson
from headstart.transfer import (
    Bias,
    EmpiricalBayes,
    Gaussian,
    Independent,
    Mixture,
    Oracle,
    Subspace,
    Transfer,
)

__all__ = [
    "ALGORITHMS",
    "DEFAULT",
    "Algorithm",
    "Recipe",
    "bayes_oracle",
    "bias_oful",
    "empirical_bayes",
    "empirical_bayes_ts",
    "lints",
    "linucb",
    "meta_ts",
    "meta_ts_unforced",
    "mixture",
    "projected_linucb",
    "projected_ts",
    "projection_oracle",
]

#: The label of ``Bandit(dim)`` without options, in every table, figure and page.
DEFAULT = "headstart (default)"

OFUL = (
    "Abbasi-Yadkori, Pál and Szepesvári (2011), Improved algorithms for linear stochastic bandits"
)
LINTS = "Agrawal and Goyal (2013), Thompson sampling for contextual bandits with linear payoffs"
CELLA = "Cella, Lazaric and Pontil (2020), Meta-learning with stochastic linear bandits"
BILAJ = "Bilaj, Dhouib and Maghsudi (2024), Meta learning in bandits within shared affine subspaces"
PELEG = "Peleg, Pearl and Meir (2022), Metalearning linear bandits by prior update"


class Recipe(NamedTuple):
    """What makes a bandit an algorithm: its transfer, its rule, and whether it has an intercept.

    ``intercept`` is ``None`` where the caller of a bandit decides.
    """

    transfer: Transfer
    rule: Rule
    intercept: bool | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """An entry of the registry.

    Attributes
    ----------
    name
        The name of its function, and of its policy on the command line.
    label
        The name in tables and figures.
    recipe
        Gives transfer and rule from the number of features and the options.
    printed
        The options that ``paper=True`` fixes; a function gives the value from d and V. ``None``
        where the paper prints no form.
    truth
        What an oracle must know of the tasks: arguments that an experiment takes from its world.
    knows_noise
        Whether an experiment tells it the noise R of a world that states one.
    variant
        The label with options other than the defaults, where that differs.
    reference
        The publication that proposed it; empty for headstart's own.
    """

    name: str
    label: str
    recipe: Callable[..., Recipe]
    printed: Mapping[str, Any] | None = None
    truth: tuple[str, ...] = ()
    knows_noise: bool = True
    variant: str = ""
    reference: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults.

        >>> ALGORITHMS["mixture"].options
        {'radius': 1.0, 'groups': 6, 'intercept': False}
        """
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.recipe).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name not in self.truth
        }

    @property
    def summary(self) -> str:
        """A line on what it is."""
        return (inspect.getdoc(self.recipe) or "").splitlines()[0]

    def label_for(self, options: Mapping[str, Any]) -> str:
        """The label with these options."""
        usual = self.options
        changed = any(usual.get(name) != value for name, value in options.items())
        return self.variant if changed and self.variant else self.label

    def build(self, dim: int, options: Mapping[str, Any]) -> Recipe:
        """Transfer and rule for ``dim`` features, the printed form's if ``paper=True``."""
        given = dict(options)
        if not checks.flag("paper", given.get("paper", False)):
            return self.recipe(dim, **given)
        bound = checks.positive("bound", given.get("bound", 1.0))
        fixed = {
            name: value(dim, bound) if callable(value) else value
            for name, value in (self.printed or {}).items()
        }
        refused = [name for name in given if name in fixed and not equals(given[name], fixed[name])]
        if refused:
            stated = ", ".join(f"{name}={fixed[name]!r}" for name in refused)
            got = ", ".join(checks.describe(given[name]) for name in refused)
            raise InputError(
                f"{' and '.join(refused)} must be left out with paper=True, which stands for "
                f"{stated}; got {got}"
            )
        return self.recipe(dim, **(given | fixed))


def equals(value: Any, wanted: Any) -> bool:
    """Whether an option has this value; an array never has."""
    return np.ndim(value) == 0 and bool(value == wanted)


#: Every algorithm, by name.
ALGORITHMS: dict[str, Algorithm] = {}

P = ParamSpec("P")


def register(label: str, **entry: Any) -> Callable[[Callable[P, Recipe]], Callable[P, Bandit]]:
    """Enter a recipe in :data:`ALGORITHMS`, and make it a constructor of bandits.

    A recipe is given the number of features, with the intercept, in place of ``dim``. It leaves
    ``seed`` and the options of the bandit to the constructor.
    """

    def decorate(recipe: Callable[P, Recipe]) -> Callable[P, Bandit]:
        signature = inspect.signature(recipe)
        algorithm = Algorithm(recipe.__name__, label, recipe, **entry)
        ALGORITHMS[algorithm.name] = algorithm

        @functools.wraps(recipe)
        def constructor(*args: P.args, **keywords: P.kwargs) -> Bandit:
            options = dict(signature.bind(*args, **keywords).arguments)
            dim, seed = checks.dimension(options.pop("dim")), options.pop("seed", None)
            bandit = options.pop("bandit", {})
            features = dim + bool(bandit.get("intercept", False))
            transfer, rule, intercept = algorithm.build(features, options)
            if intercept is not None:
                bandit = bandit | {"intercept": intercept}
            return Bandit(dim, transfer, rule, seed=seed, **bandit)

        shown = signature.replace(return_annotation="Bandit")
        constructor.__signature__ = shown  # type: ignore[attr-defined]
        return constructor

    return decorate


def over_square(dim: int, bound: float) -> float:
    """1/V², the λ that the paper prints."""
    return bound**-2


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
    """LinUCB (OFUL; Abbasi-Yadkori et al. 2011): every task on its own, optimism.

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
    scale: float | str = 1.0,
    horizon: int = 250,
    bound: float = 1.0,
    delta: float | None = None,
    alpha: float | None = None,
    paper: bool = False,
    **bandit: Any,
) -> Recipe:
    """LinTS (Agrawal and Goyal 2013): every task on its own, Thompson sampling.

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
    """B-OFUL (Cella et al. 2020): tasks scatter around a shared mean, optimism.

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
    """P-LinUCB (Bilaj et al. 2024): explore inside the affine subspace that tasks share.

    ``paper=True`` is Algorithms 1 and 2 as printed: CCIPCA, the raw eigengap, the printed radius,
    λ₂ = 1/V², and λ₁ = 100 (the paper asks for λ₁ ≫ λ₂ and names no usable number). ``rank``,
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
    scale: float | str = 1.0,
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
    """P-TS (Bilaj et al. 2024): the prior of P-LinUCB, Thompson sampling.

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
    scale: float | str = 1.0,
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
    scale: float | str = 1.0,
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
    """The paper's oracle (Bilaj et al. 2024): the true mean and subspace are given, optimism.

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
    """The Bayes oracle: the true mean and covariance are given, optimism."""
    return Recipe(Oracle.gaussian(mean, covariance), UCB(radius))


@register(DEFAULT, variant="empirical Bayes", knows_noise=False)
def empirical_bayes(
    dim: int,
    seed: Any = None,
    *,
    radius: float | str = 1.0,
    decay_tasks: float | str = "auto",
    units: str = "free",
    intercept: bool = True,
    **bandit: Any,
) -> Recipe:
    """Empirical Bayes: mean, covariance and noise are estimated from all tasks, optimism.

    Without options this is ``Bandit(dim)``. ``decay_tasks`` is that of
    :class:`~headstart.EmpiricalBayes`, ``units`` is its own.

    >>> empirical_bayes(dim=3).transfer, empirical_bayes(dim=3).rule
    (EmpiricalBayes(), UCB())
    """
    return Recipe(EmpiricalBayes(decay_tasks=decay_tasks, units=units), UCB(radius), intercept)


@register("headstart, Thompson", knows_noise=False)
def empirical_bayes_ts(
    dim: int,
    seed: Any = None,
    *,
    scale: float | str = 1.0,
    decay_tasks: float | str = "auto",
    intercept: bool = False,
    **bandit: Any,
) -> Recipe:
    """Empirical Bayes, Thompson sampling."""
    return Recipe(EmpiricalBayes(decay_tasks=decay_tasks), Thompson(scale), intercept)


@register("mixture", knows_noise=False)
def mixture(
    dim: int,
    seed: Any = None,
    *,
    radius: float | str = 1.0,
    groups: int = 6,
    intercept: bool = False,
    **bandit: Any,
) -> Recipe:
    """A mixture of groups of tasks, each with its own mean and covariance, optimism."""
    return Recipe(Mixture(groups=groups), UCB(radius), intercept)
