"""Checks of beliefs and of the priors that they start from."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headstart.bandit import Bandit, load
from headstart.model.base import BaseBelief, BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.rules import UCB, Thompson
from headstart.testing.samples import belief_after, bytes_of, require, run_checks
from headstart.transfer import Transfer

DRAWS = 20_000


def check_belief(belief: BaseBelief) -> None:
    """Check that a belief, and its prior, do what rules, bandits and files expect of them.

    Parameters
    ----------
    belief
        The belief of one task before any reward, as ``prior.belief()`` gives it.

    Raises
    ------
    AssertionError
        Which check has failed, and how.

    See Also
    --------
    check_rule, check_transfer
    """
    require(isinstance(belief, BaseBelief), f"{belief!r} is not a BaseBelief")
    require(isinstance(belief.prior, BasePrior), f"its prior {belief.prior!r} is not a BasePrior")
    require(belief.rounds == 0 and belief.batch == (), "give one belief before any reward")
    run_checks(belief, BELIEF_CHECKS)


def rounds_for(belief: BaseBelief) -> tuple[Array, Array]:
    """Contexts and rewards of nine rounds."""
    rng = np.random.default_rng(11)
    contexts = rng.standard_normal((9, belief.dim))
    return contexts, contexts[:, 0] + belief.noise * rng.standard_normal(9)


def has_means_widths_and_draws(belief: BaseBelief) -> None:
    """Predictions and widths have one number per row; draws spread as the widths say."""
    after = belief_after(belief, *rounds_for(belief))
    table = np.random.default_rng(5).standard_normal((4, belief.dim))
    mean, width = after.predict(table), after.width(table)
    require(mean.shape == width.shape == (4,), f"shapes {mean.shape} and {width.shape}")
    require((width >= 0).all() and np.isfinite(mean).all(), "a width is negative, or no number")
    require(after.draw(np.random.default_rng(0), 1.0).shape == (belief.dim,), "shape of a draw")
    draws = after.draw(np.random.default_rng(0), after.noise, size=DRAWS) @ table.T
    deviation = after.noise * width
    np.testing.assert_allclose(draws.mean(0), mean, atol=6 * deviation.max() / DRAWS**0.5)
    np.testing.assert_allclose(draws.std(0), deviation, rtol=0.1, atol=1e-12)


def states_its_gaussians(belief: BaseBelief) -> None:
    """If it states which Gaussians it draws from, they have its means and widths."""
    after = belief_after(belief, *rounds_for(belief))
    parts = after.gaussian_parts()
    if parts is None:
        return
    weights, means, roots = parts
    table = np.random.default_rng(5).standard_normal((4, belief.dim))
    np.testing.assert_allclose(weights.sum(), 1.0)
    each = means @ table.T
    mean = weights @ each
    np.testing.assert_allclose(mean, after.predict(table), rtol=1e-9, atol=1e-12)
    spread = after.noise**2 * ((table @ roots) ** 2).sum(-1) + (each - mean) ** 2
    deviation = after.noise * after.width(table)
    np.testing.assert_allclose(np.sqrt(weights @ spread), deviation, rtol=0.1, atol=1e-12)


def counts_its_rounds(belief: BaseBelief) -> None:
    """The number of rewards grows by one with each; other counts can be put in."""
    contexts, rewards = rounds_for(belief)
    require(
        belief_after(belief, contexts, rewards).rounds == len(rewards), "wrong number of rounds"
    )
    require(belief.with_rounds(7.0).rounds == 7.0, "with_rounds has no effect")


def is_determined_by_its_sums(belief: BaseBelief) -> None:
    """Learning one by one, in any order, and prior.belief(evidence) give the same posterior."""
    contexts, rewards = rounds_for(belief)
    at_once = belief.prior.belief(Evidence.of(contexts, rewards))
    table = np.random.default_rng(5).standard_normal((4, belief.dim))
    for order in (slice(None), slice(None, None, -1)):
        after = belief_after(belief, contexts[order], rewards[order])
        require(type(after) is type(at_once), f"{type(after)} by rounds, {type(at_once)} by sums")
        np.testing.assert_allclose(after.predict(table), at_once.predict(table), rtol=1e-7)
        np.testing.assert_allclose(after.width(table), at_once.width(table), rtol=1e-7)
        np.testing.assert_allclose(after.noise, at_once.noise, rtol=1e-7)


def is_immutable(belief: BaseBelief) -> None:
    """Learning changes neither the belief nor the contexts, and returns read-only arrays."""
    contexts, rewards = rounds_for(belief)
    before = bytes_of(belief, contexts)
    after = belief_after(belief, contexts, rewards)
    after.predict(contexts), after.width(contexts), after.draw(np.random.default_rng(0), 1.0)
    require(bytes_of(belief, contexts) == before, "an argument was changed")
    for field in dataclasses.fields(after):
        value = getattr(after, field.name)
        if isinstance(value, np.ndarray):
            require(not value.flags.writeable, f"its {field.name} can be written to")


def separates_from_its_prior(belief: BaseBelief) -> None:
    """It can be separated from its prior and joined to it again."""
    after = belief_after(belief, *rounds_for(belief))
    bare, prior = after.split_prior()
    require(bare.with_prior(prior) == after, "it differs when it is joined to its prior again")


def stacks_as_one_by_one(belief: BaseBelief) -> None:
    """If it can be stacked, the stack predicts and has widths as each of its beliefs."""
    contexts, rewards = rounds_for(belief)
    beliefs = [belief_after(belief, contexts[:count], rewards[:count]) for count in (0, 3, 9)]
    stack = type(belief).stack(beliefs)
    if stack is None:
        return
    tables = np.random.default_rng(5).standard_normal((3, 4, belief.dim))
    for name in ("predict", "width"):
        alone = [getattr(one, name)(table) for one, table in zip(beliefs, tables, strict=True)]
        np.testing.assert_allclose(getattr(stack, name)(tables), alone, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stack.noise, [one.noise for one in beliefs])


def serves_in_a_bandit(belief: BaseBelief) -> None:
    """Bandits decide alike with it one by one, together, idle, and after saving and loading."""
    transfer = ConstantPrior(belief.prior)
    for rule in (UCB(), Thompson()):
        one, other, idle = (
            Bandit(
                belief.dim, transfer, rule, belief.noise, seed=3, cache_size=size, intercept=False
            )
            for size in (99, 99, 2)
        )
        arms = serve(one, 0)
        require(serve(other, 0, together=True) == arms, "choose_many decides differently")
        if isinstance(rule, UCB):  # a root is not unique, and draws go through it
            require(serve(idle, 0) == arms, "a belief that is recomputed decides differently")
        require(type(one.task(0).belief) is type(belief), "the bandit has another kind of belief")
        require(one.task(0).predict(np.eye(belief.dim)).mean.shape == (belief.dim,), "predict")
        one.report()
        with tempfile.TemporaryDirectory() as folder:
            one.save(Path(folder) / "bandit")
            loaded = load(Path(folder) / "bandit", transfer=transfer)
        require(loaded.task(0).belief == one.task(0).belief, "a loaded belief differs")
        require(serve(loaded, 1) == serve(one, 1), "a loaded bandit decides differently")


@dataclasses.dataclass(frozen=True, repr=False)
class ConstantPrior(Transfer):
    """A transfer whose prior is always the same."""

    constant_prior: BasePrior

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> Any:
        """Nothing to remember."""
        return {"tasks": 0.0}

    def fold(self, state: Any, evidence: Evidence, weight: float = 1.0) -> Any:
        """Nothing to learn."""
        return {"tasks": state["tasks"] + weight}

    def prior(self, state: Any) -> BasePrior:
        """That one."""
        return self.constant_prior


def serve(bandit: Bandit, seed: int, together: bool = False) -> list[list[int]]:
    """The arms that a few tasks choose, one by one or in one call."""
    arms = []
    for at in range(12):
        tables = np.random.default_rng([seed, at]).standard_normal((5, 4, bandit.dim))
        choices = (
            list(bandit.choose_many(range(5), tables))
            if together
            else [bandit.task(id).choose(table) for id, table in enumerate(tables)]
        )
        bandit.learn(choices, [float(choice.context[0]) for choice in choices])
        arms.append([choice.arm for choice in choices])
    return arms


#: Checks of beliefs, each called with one before any reward.
BELIEF_CHECKS = (
    has_means_widths_and_draws,
    states_its_gaussians,
    counts_its_rounds,
    is_determined_by_its_sums,
    is_immutable,
    separates_from_its_prior,
    stacks_as_one_by_one,
    serves_in_a_bandit,
)
