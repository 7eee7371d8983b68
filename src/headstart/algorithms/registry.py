"""The registry: how an algorithm is named, built, printed and cited."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from headstart import checks
from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.rules import Rule
from headstart.transfer import Transfer

__all__ = ["ALGORITHMS", "Algorithm", "Recipe", "register"]


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
        Whether an experiment gives it the noise R of a world that states one.
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

        >>> from headstart.algorithms import ALGORITHMS
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
        values = dict(options)
        if not checks.flag("paper", values.get("paper", False)):
            return self.recipe(dim, **values)
        bound = checks.positive("bound", values.get("bound", 1.0))
        fixed = {
            name: value(dim, bound) if callable(value) else value
            for name, value in (self.printed or {}).items()
        }
        conflicts = [
            name for name in values if name in fixed and not equals(values[name], fixed[name])
        ]
        if conflicts:
            fixed_text = ", ".join(f"{name}={fixed[name]!r}" for name in conflicts)
            got = ", ".join(checks.describe(values[name]) for name in conflicts)
            raise InputError(
                f"{' and '.join(conflicts)} must be left out with paper=True, which stands for "
                f"{fixed_text}; got {got}"
            )
        return self.recipe(dim, **(values | fixed))


def equals(value: Any, expected: Any) -> bool:
    """Whether an option has this value; an array never has."""
    return np.ndim(value) == 0 and bool(value == expected)


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

        vars(constructor)["__signature__"] = signature.replace(return_annotation="Bandit")
        return constructor

    return decorate
