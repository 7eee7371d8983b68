"""headstart's own algorithms: empirical Bayes and mixtures."""

from __future__ import annotations

from typing import Any

from headstart.algorithms.registry import Recipe, register
from headstart.rules import UCB, Thompson
from headstart.rules.thompson import DEFAULT_SCALE
from headstart.transfer import EmpiricalBayes, Mixture

__all__ = ["DEFAULT", "empirical_bayes", "empirical_bayes_ts", "mixture"]

#: The label of ``Bandit(dim)`` without options, in every table, figure and page.
DEFAULT = "headstart (default)"


@register(DEFAULT, variant="empirical Bayes", knows_noise=False)
def empirical_bayes(
    dim: int,
    seed: Any = None,
    *,
    radius: float | str = 1.0,
    decay_tasks: float | str = "auto",
    units: str = "free",
    low_rank: bool = True,
    intercept: bool = True,
    **bandit: Any,
) -> Recipe:
    """Empirical Bayes: mean, covariance and noise are estimated from all tasks; UCB.

    Without options this is ``Bandit(dim)``. ``decay_tasks``, ``units`` and ``low_rank`` are those
    of :class:`~headstart.EmpiricalBayes`.

    >>> empirical_bayes(dim=3).transfer, empirical_bayes(dim=3).rule
    (EmpiricalBayes(), UCB())
    """
    transfer = EmpiricalBayes(decay_tasks=decay_tasks, units=units, low_rank=low_rank)
    return Recipe(transfer, UCB(radius), intercept)


@register("headstart, Thompson", knows_noise=False)
def empirical_bayes_ts(
    dim: int,
    seed: Any = None,
    *,
    scale: float | str = DEFAULT_SCALE,
    decay_tasks: float | str = "auto",
    intercept: bool = False,
    **bandit: Any,
) -> Recipe:
    """Empirical Bayes; Thompson sampling."""
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
    """A mixture of groups of tasks, each with its own mean and covariance; UCB."""
    return Recipe(Mixture(groups=groups), UCB(radius), intercept)
