"""The public checks find what is wrong with a rule, a transfer or a belief."""

import dataclasses

import numpy as np
import pytest

import headstart as hs
from headstart.model.base import BaseBelief
from headstart.rules import Indexed, Pick, Propensities
from headstart.testing import check_belief, check_rule, check_transfer

frozen = dataclasses.dataclass(frozen=True, repr=False)


@frozen
class MixesTasks(Indexed):
    """Its index of one task depends on the others of a batch."""

    def index(self, belief, contexts, rng):
        return np.abs(belief.predict(contexts) - contexts.mean())


@frozen
class DecidesOtherwiseForMany(hs.Greedy):
    def choose_many(self, beliefs, contexts, streams):
        return super().choose_many(beliefs, -contexts, streams)


@frozen
class MisstatesItsOdds(hs.Rule):
    def choose(self, belief, contexts, rng, allowed=None):
        arms = np.flatnonzero(np.ones(len(contexts)) if allowed is None else allowed)
        arm = int(arms[0])
        return Pick(arm, float(belief.predict(contexts)[arm]))

    def propensities(self, belief, contexts, rng, allowed=None):
        everyone = np.ones(len(contexts)) if allowed is None else allowed.astype(float)
        return Propensities(everyone / everyone.sum())


@frozen
class Writes(Indexed):
    def index(self, belief, contexts, rng):
        contexts *= 2.0
        return belief.predict(contexts)


@dataclasses.dataclass(repr=False)
class Mutable(Indexed.__mro__[1]):
    margin: float = 1.0

    choose, propensities = hs.Uniform.choose, hs.Uniform.propensities


@pytest.mark.parametrize(
    ("rule", "failed"),
    [
        (MixesTasks(), "handles_batch_axes"),
        (DecidesOtherwiseForMany(), "decides_for_many_as_one_by_one"),
        (MisstatesItsOdds(), "picks_as_often_as_it_states"),
        (Writes(), "picks_a_row_with_its_score"),
        (Mutable(), "is_a_frozen_dataclass"),
    ],
    ids=lambda thing: thing if isinstance(thing, str) else type(thing).__name__,
)
def test_a_wrong_rule_fails_the_check_that_is_named(rule, failed):
    with pytest.raises(AssertionError, match=rf"^{type(rule).__name__}.* fails {failed} \("):
        check_rule(rule)


@frozen
class Sum(hs.Transfer):
    """Tasks share their mean estimate."""

    def init(self, dim, noise=None, batch=()):
        return {"total": np.zeros(dim), "count": 0.0, "noise": noise or 1.0}

    def fold(self, state, evidence, weight=1.0):
        total = state["total"] + weight * evidence.ridge(1.0)
        return state | {"total": total, "count": state["count"] + weight}

    def prior(self, state):
        mean = state["total"] / max(state["count"], 1.0)
        return hs.Prior.isotropic(len(mean), mean=mean, noise=state["noise"])


@frozen
class WritesIntoItsState(Sum):
    def fold(self, state, evidence, weight=1.0):
        state["total"] += evidence.ridge(1.0)
        return state | {"count": state["count"] + weight}


@frozen
class RefitsOtherwise(Sum):
    def refit(self, evidences, noise=None, weights=None):
        return self.init(3, noise)


@frozen
class SaysItIsReversible(Sum):
    reversible = True

    def fold(self, state, evidence, weight=1.0):
        return super().fold(state, evidence, abs(weight))


@frozen
class SaysItIsFixed(Sum):
    def prior_is_known(self, noise):
        return noise is not None


@frozen
class ForgetsTheNoise(Sum):
    def prior(self, state):
        return super().prior(state).replace(noise=7.0)


def test_a_right_transfer_passes():
    check_transfer(Sum())


@pytest.mark.parametrize(
    ("transfer", "failed"),
    [
        (WritesIntoItsState(), "gives_a_prior_at_any_time|refits_as_it_folds|leaves_its_arguments"),
        (RefitsOtherwise(), "refits_as_it_folds"),
        (SaysItIsReversible(), "takes_back_what_is_reversible"),
        (SaysItIsFixed(), "keeps_a_fixed_prior"),
        (ForgetsTheNoise(), "gives_a_prior_at_any_time"),
    ],
    ids=lambda thing: thing if isinstance(thing, str) else type(thing).__name__,
)
def test_a_wrong_transfer_fails_the_check_that_is_named(transfer, failed):
    with pytest.raises(AssertionError, match=rf"^{type(transfer).__name__}.* fails ({failed}) \("):
        check_transfer(transfer)


class Clips(hs.Belief):
    """Its posterior depends on the order of the rewards."""

    def update(self, x, r):
        return super().update(x, np.clip(r, -0.1, 0.1))


class TooSure(hs.Belief):
    """Its draws do not spread as its widths say."""

    def draw(self, rng, scale, size=None):
        return super().draw(rng, 0.1 * scale, size)


class Stacks(hs.Belief):
    @classmethod
    def stack(cls, beliefs):
        return hs.Belief.stack([belief.replace(mean=-belief.mean) for belief in beliefs])


def test_the_library_has_right_ones_and_they_are_found():
    check_belief(hs.Prior.isotropic(3, noise=0.5).belief())
    assert issubclass(hs.Belief, BaseBelief)


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        (Clips, "is_determined_by_its_sums"),
        (TooSure, "has_means_widths_and_draws"),
        (Stacks, "stacks_as_one_by_one"),
    ],
)
def test_a_wrong_belief_fails_the_check_that_is_named(kind, failed):
    class Own(hs.Prior):
        def belief(self, evidence=None):
            return kind.start(self) if evidence is None else kind.of(self, evidence)

    with pytest.raises(AssertionError, match=rf"^{kind.__name__}.* fails {failed} \("):
        check_belief(Own(np.ones(3), np.eye(3), noise=0.5).belief())


def test_a_belief_with_rewards_is_refused():
    belief = hs.Prior.isotropic(3).belief().learn([1.0, 0.0, 0.0], 1.0)
    with pytest.raises(AssertionError, match="before any reward"):
        check_belief(belief)
