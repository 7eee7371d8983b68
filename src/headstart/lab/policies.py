"""Policies for experiments: a transfer and a rule under a name, with their two knobs.

Every policy of the paper's comparison is here. Their constructors take the two knobs that matter,
so that all can be tuned over the same grids: how much to explore (``radius`` or ``scale``) and how
much to regularise (``lam``, or ``lam1`` and ``lam2``).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.records import Settings
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
from headstart.worlds.base import Population

__all__ = ["DEFAULT", "PAPER", "POLICIES", "Policy", "Told", "parse"]

#: What a user gets who asks for nothing in particular, in every table, figure and page.
DEFAULT = "headstart (default)"


@dataclasses.dataclass(frozen=True, repr=False)
class Told(Settings):
    """An oracle before it is told the truth, which it gets from each population.

    ``kind`` is ``"projection"`` (mean and subspace, with λ₁ and λ₂) or ``"bayes"`` (mean and
    covariance).
    """

    kind: str
    lam1: float = 100.0
    lam2: float = 1.0

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, ("projection", "bayes"))
        checks.positive("lam1", self.lam1)
        checks.positive("lam2", self.lam2)

    def tell(self, populations: Sequence[Population]) -> Oracle:
        """The oracle of these populations, one per batch element."""
        truths = [population.truth for population in populations]
        known = [truth for truth in truths if truth is not None]
        if len(known) < len(truths):
            raise InputError("this world has no truth to tell an oracle: leave the oracles out")
        mean = np.stack([truth.mean for truth in known])
        if self.kind == "bayes":
            return Oracle.gaussian(mean, np.stack([truth.covariance for truth in known]))
        bases = [truth.basis for truth in known if truth.basis is not None]
        if len(bases) < len(known):
            raise InputError("this world has no single subspace to tell the projection oracle")
        return Oracle.subspace(mean, np.stack(bases), lam1=self.lam1, lam2=self.lam2)


@dataclasses.dataclass(frozen=True, repr=False)
class ForcedTwice(Settings):
    """Twice as many forced rounds as there are dimensions, then another rule (M-TS's τ = 2d)."""

    then: Rule

    def rule_for(self, dim: int) -> Forced:
        """The rule in so many dimensions."""
        return Forced(2 * dim, self.then)


@dataclasses.dataclass(frozen=True, repr=False)
class Policy(Settings):
    """A transfer and a rule under the name that tables and figures show.

    A policy is told the noise R of a world that has one, unless it should find out by itself.

    Examples
    --------
    >>> Policy("mine", Bias(lam=2.0), UCB(0.5))
    Policy(name='mine', transfer=Bias(lam=2.0), rule=UCB(radius=0.5))
    """

    name: str
    transfer: Transfer | Told
    rule: Rule | ForcedTwice
    knows_noise: bool = True
    intercept: bool = False

    def rule_for(self, dim: int) -> Rule:
        """The rule to use in so many dimensions."""
        return self.rule.rule_for(dim) if isinstance(self.rule, ForcedTwice) else self.rule

    def prepared(self, populations: Sequence[Population]) -> Transfer:
        """The transfer to use on these populations."""
        if isinstance(self.transfer, Told):
            return self.transfer.tell(populations)
        return self.transfer


def linucb(lam: float | str = 1.0, radius: float | str = 1.0) -> Policy:
    """LinUCB: every task alone, optimism."""
    return Policy("LinUCB", Independent(lam=lam), UCB(radius))


def lints(lam: float | str = 1.0, scale: float | str = 1.0) -> Policy:
    """LinTS: every task alone, Thompson sampling."""
    return Policy("LinTS", Independent(lam=lam), Thompson(scale))


def bias_oful(
    lam: float | str = "plug-in", radius: float | str = 1.0, method: str = "average"
) -> Policy:
    """B-OFUL: tasks around a shared mean."""
    return Policy("B-OFUL", Bias(method=method, lam=lam), UCB(radius))


def projected_linucb(
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    radius: float | str = 1.0,
    rank: int | str = "log-gap",
    pca: str = "corrected",
    shrink: str = "zero",
    warmup: int | None = None,
) -> Policy:
    """P-LinUCB: the paper's projection, optimism."""
    transfer = Subspace(rank=rank, pca=pca, shrink=shrink, lam1=lam1, lam2=lam2, warmup=warmup)
    return Policy("P-LinUCB", transfer, UCB(radius))


def projected_ts(
    lam1: float | str = "plug-in",
    lam2: float | str = "plug-in",
    scale: float | str = 1.0,
    rank: int | str = "log-gap",
    pca: str = "corrected",
    shrink: str = "zero",
    warmup: int | None = None,
) -> Policy:
    """P-TS: the paper's projection, Thompson sampling."""
    transfer = Subspace(rank=rank, pca=pca, shrink=shrink, lam1=lam1, lam2=lam2, warmup=warmup)
    return Policy("P-TS", transfer, Thompson(scale))


def meta_ts(
    lam: float = 1.0,
    scale: float | str = 1.0,
    forced_rounds: int | None = None,
    estimate: str = "least-squares",
) -> Policy:
    """M-TS: a Gaussian prior from forced random rounds, 2d of them unless given."""
    transfer = Gaussian(lam=lam, estimate=estimate)
    later = Thompson(scale)
    rule = ForcedTwice(later) if forced_rounds is None else Forced(forced_rounds, later)
    return Policy("M-TS", transfer, rule)


def meta_ts_unforced(lam: float = 1.0, scale: float | str = 1.0) -> Policy:
    """M-TS's control: no forced rounds, ridge estimates from all rounds."""
    return Policy("M-TS, unforced", Gaussian(lam=lam, forced=False), Thompson(scale))


def projection_oracle(lam1: float = 25.0, lam2: float = 0.16, radius: float | str = 1.0) -> Policy:
    """The paper's oracle: true subspace and mean."""
    return Policy("projection oracle", Told("projection", lam1, lam2), UCB(radius))


def bayes_oracle(radius: float | str = 1.0) -> Policy:
    """True mean and covariance: the floor."""
    return Policy("Bayes oracle", Told("bayes"), UCB(radius))


def empirical_bayes(
    radius: float | str = 1.0,
    memory: float | str = "auto",
    units: str = "free",
    intercept: int = 1,
) -> Policy:
    """Mean, covariance and noise learned from all tasks, optimism; it is told nothing.

    Without options it is headstart's default, and named so.

    >>> empirical_bayes().name, empirical_bayes(radius=2.0).name
    ('headstart (default)', 'empirical Bayes')
    """
    usual = (radius, memory, units, intercept) == (1.0, "auto", "free", 1)
    transfer = EmpiricalBayes(memory=memory, units=units)
    name = DEFAULT if usual else "empirical Bayes"
    return Policy(name, transfer, UCB(radius), False, bool(intercept))


def empirical_bayes_ts(scale: float | str = 1.0, memory: float | str = "auto") -> Policy:
    """The same with Thompson sampling."""
    transfer = EmpiricalBayes(memory=memory)
    return Policy("headstart, Thompson", transfer, Thompson(scale), False)


def mixture(radius: float | str = 1.0, groups: int = 6) -> Policy:
    """Groups of tasks, each with its own mean and covariance, optimism; it is told nothing."""
    return Policy("mixture", Mixture(groups=groups), UCB(radius), False)


#: The policies that the command line knows, by name.
POLICIES: dict[str, Callable[..., Policy]] = {
    make.__name__: make
    for make in (
        linucb,
        lints,
        bias_oful,
        projected_linucb,
        projected_ts,
        meta_ts,
        meta_ts_unforced,
        projection_oracle,
        bayes_oracle,
        empirical_bayes,
        empirical_bayes_ts,
        mixture,
    )
}


#: The policies of the paper's comparison, in the order tables show them.
PAPER = (
    "linucb",
    "lints",
    "bias_oful",
    "projected_linucb",
    "projected_ts",
    "meta_ts",
    "projection_oracle",
    "bayes_oracle",
)


def parse(text: str) -> Policy:
    """A policy from text: a name, and options after a colon.

    >>> parse("bias_oful:lam=2,radius=0.5")
    Policy(name='B-OFUL', transfer=Bias(lam=2), rule=UCB(radius=0.5))
    """
    name, _, rest = text.partition(":")
    checks.one_of("policy", name.strip(), tuple(POLICIES))
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise checks.refuse("policy", "name:option=value,option=value", text)
        options[key.strip()] = number_or_text(value.strip())
    return make_policy(name.strip(), options)


def make_policy(name: str, options: dict[str, Any]) -> Policy:
    """A policy from its name and options; ``label`` renames it."""
    make = POLICIES[checks.one_of("policy", name, tuple(POLICIES))]
    options = dict(options)
    label = options.pop("label", None)
    known = inspect.signature(make).parameters
    for key in options:
        checks.one_of(f"option of {name}", key, (*known, "label"))
    policy = make(**options)
    return policy if label is None else dataclasses.replace(policy, name=str(label))


def number_or_text(value: str) -> int | float | str:
    """The number a text spells, or the text."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
