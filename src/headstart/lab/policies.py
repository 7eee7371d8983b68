"""Policies: transfers and rules under the names that tables and figures show.

A :class:`Policy` is any transfer and rule. A :class:`NamedPolicy` is an algorithm of the registry
(:data:`headstart.algorithms.ALGORITHMS`) with options; its transfer and rule are built when the
world is known, because some depend on the number of features, and oracles on the truth.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.algorithms import ALGORITHMS, Algorithm, Recipe
from headstart.bandit.rewards import REWARD_MODELS
from headstart.errors import InputError
from headstart.rules import Rule
from headstart.settings import Settings
from headstart.transfer import Transfer
from headstart.worlds.base import Population

__all__ = ["PAPER", "AnyPolicy", "NamedPolicy", "Policy", "parse", "policy"]

#: The algorithms of the paper's comparison, in the order tables show them.
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

# With this truth, an oracle's options can be checked before its world is known.
PLACEHOLDER_TRUTH = {"mean": np.zeros(1), "basis": np.ones((1, 1)), "covariance": np.ones((1, 1))}


@dataclasses.dataclass(frozen=True, repr=False)
class Policy(Settings):
    """A transfer and a rule under the name that tables and figures show.

    Parameters
    ----------
    name
        Its name, which also seeds its random choices.
    transfer, rule
        How it learns a prior, and how it chooses.
    knows_noise
        Whether it is given the noise R of a world that states one.
    intercept
        Whether a constant feature is added to contexts.
    reward
        What rewards are, as in :class:`~headstart.Bandit`: ``"number"`` or ``"binary"``.

    Examples
    --------
    >>> from headstart import UCB, Bias
    >>> Policy("mine", Bias(lam=2.0), UCB(0.5))
    Policy(name='mine', transfer=Bias(lam=2.0), rule=UCB(radius=0.5))
    """

    name: str
    transfer: Transfer
    rule: Rule
    knows_noise: bool = True
    intercept: bool = False
    reward: str = "number"

    def __post_init__(self) -> None:
        checks.one_of("reward", self.reward, REWARD_MODELS)

    def for_populations(self, populations: Sequence[Population]) -> Policy:
        """The policy itself: it is the same for all populations."""
        return self


@dataclasses.dataclass(frozen=True, repr=False)
class NamedPolicy(Settings):
    """An algorithm of the registry with options, made by :func:`policy` or :func:`parse`."""

    name: str
    algorithm: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        option_names = (*self.entry.options, "label", "reward")
        for option in self.options:
            checks.one_of(f"option of {self.algorithm}", option, option_names)
        checks.one_of("reward", self.reward, REWARD_MODELS)
        recipe = self.build(1, {name: PLACEHOLDER_TRUTH[name] for name in self.entry.truth})
        if recipe.intercept is not None:
            checks.flag("intercept", recipe.intercept)

    @property
    def entry(self) -> Algorithm:
        """Its entry in the registry."""
        return ALGORITHMS[checks.one_of("policy", self.algorithm, ALGORITHMS)]

    def __repr__(self) -> str:
        label = {} if self.name == self.entry.label_for(self.options) else {"label": self.name}
        options = [f"{name}={value!r}" for name, value in {**label, **self.options}.items()]
        return f"policy({', '.join([repr(self.algorithm), *options])})"

    @property
    def reward(self) -> Any:
        """What rewards are: an option of every algorithm."""
        return self.options.get("reward", "number")

    def build(self, dim: int, truth: Mapping[str, Any]) -> Recipe:
        """Transfer, rule and intercept for ``dim`` features."""
        options = {name: value for name, value in self.options.items() if name != "reward"}
        return self.entry.build(dim, {**options, **truth})

    def for_populations(self, populations: Sequence[Population]) -> Policy:
        """Transfer and rule for these populations, with their truths if it is an oracle."""
        truth = {name: known_truth(populations, name) for name in self.entry.truth}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning was given when the policy was made
            transfer, rule, intercept = self.build(populations[0].dim, truth)
        knows_noise, reward = self.entry.knows_noise, self.reward
        return Policy(self.name, transfer, rule, knows_noise, bool(intercept), reward)


AnyPolicy = Policy | NamedPolicy


def known_truth(populations: Sequence[Population], name: str) -> Any:
    """One field of the populations' truths, stacked; refused where a world does not have it."""
    truths = [population.truth for population in populations]
    if any(truth is None for truth in truths):
        raise InputError("the world has no known truth for an oracle: leave the oracles out")
    values = [getattr(truth, name) for truth in truths]
    if any(value is None for value in values):
        raise InputError(f"the world has no single subspace for an oracle: its {name} is unknown")
    return np.stack(values)


def policy(algorithm: str, /, label: object = None, **options: Any) -> NamedPolicy:
    """A policy from the name of an algorithm and its options.

    Parameters
    ----------
    algorithm
        A name in :data:`headstart.algorithms.ALGORITHMS`, such as ``"projected_linucb"``.
    label
        The name that tables and figures show; the algorithm's own unless given.
    **options
        Options of the algorithm, such as ``rank=3`` or ``paper=True``; or ``reward="binary"``.

    Examples
    --------
    >>> policy("empirical_bayes").name, policy("empirical_bayes", radius=2.0).name
    ('headstart (default)', 'empirical Bayes')
    """
    entry = ALGORITHMS[checks.one_of("policy", algorithm, ALGORITHMS)]
    name = entry.label_for(options) if label is None else str(label)
    return NamedPolicy(name, algorithm, options)


def parse(text: str) -> NamedPolicy:
    """A policy from text: the name of an algorithm, and options after a colon.

    >>> parse("bias_oful:lam=2,radius=0.5")
    policy('bias_oful', lam=2, radius=0.5)
    """
    algorithm, options = split_options("policy", text)
    return policy(algorithm, **options)


def split_options(what: str, text: str) -> tuple[str, dict[str, Any]]:
    """A name and its options from ``name:option=value,option=value``.

    >>> split_options("world", "movielens:group=men,intercept=true,arms=5")
    ('movielens', {'group': 'men', 'intercept': True, 'arms': 5})
    """
    name, _, rest = text.partition(":")
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise checks.invalid(what, "name:option=value,option=value", text)
        options[key.strip()] = value_from(value.strip())
    return name.strip(), options


def value_from(text: str) -> bool | int | float | str:
    """The truth value or number that a text spells, or the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
