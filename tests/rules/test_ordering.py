"""The order of arms under Thompson sampling, beside draws that are kept only where they fit it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.model.base import BaseBelief
from headstart.model.mixture import MixturePrior
from headstart.rules.ordering import draws_in_order


def gaussians(seed, dim, groups):
    rng = np.random.default_rng(seed)
    roots = 0.5 * rng.standard_normal((groups, dim, dim)) + np.eye(dim)
    return rng.dirichlet(np.ones(groups)), rng.standard_normal((groups, dim)), roots


def frequencies_by_rejection(parts, contexts, before, left, rng, times=400_000):
    """How often each arm comes next among independent draws that rank those before first."""
    weights, means, roots = parts
    group = rng.choice(len(weights), times, p=weights)
    noise = rng.standard_normal((times, means.shape[1]))
    scores = (means[group] + np.einsum("nij,nj->ni", roots[group], noise)) @ contexts.T
    offered = left.copy()
    offered[before] = True
    order = np.argsort(-np.where(offered, scores, -np.inf), 1)[:, : len(before) + 1]
    fits = (order[:, :-1] == before).all(1)
    assert fits.sum() > 5_000
    return np.bincount(order[fits, -1], minlength=len(contexts)) / fits.sum()


@pytest.mark.parametrize(
    ("arms", "dim", "positions", "groups"), [(6, 3, 1, 1), (8, 4, 2, 1), (7, 3, 2, 3), (5, 1, 1, 1)]
)
def test_the_next_arm_is_as_frequent_as_among_draws_that_fit(arms, dim, positions, groups):
    rng = np.random.default_rng([arms, dim])
    contexts, parts = rng.standard_normal((arms, dim)), gaussians(3, dim, groups)
    order = np.argsort(-(contexts @ parts[1][0]))
    before, left = order[:positions].tolist(), np.ones(arms, dtype=bool)
    left[before] = False
    left[order[-1]] = False  # an arm that may not be picked
    scores = draws_in_order(parts, 1.0, contexts, rng, before, left, 20_000)
    found = np.bincount(np.where(left, scores, -np.inf).argmax(1), minlength=arms) / len(scores)
    expected = frequencies_by_rejection(parts, contexts, before, left, rng)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_an_order_of_tiny_probability_is_reached():
    """Forty arms in the opposite of their likely order: about one draw in 10^20 has it."""
    contexts = np.random.default_rng(0).standard_normal((40, 40))
    parts = np.ones(1), (contexts.mean(0))[None], np.eye(40)[None]
    before = np.argsort(contexts @ parts[1][0])[:6].tolist()
    scores = draws_in_order(parts, 1.0, contexts, np.random.default_rng(1), before, None, 200)
    ranked = scores[:, before]
    assert (np.diff(ranked, axis=1) <= 1e-9).all()
    rest = np.delete(scores, before, axis=1)
    assert (ranked[:, -1:] >= rest - 1e-9).all()
    assert len(np.unique(scores[:, 0])) > 190


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans())
def test_every_position_has_a_distribution_over_the_arms_that_are_left(seed, mixture):
    """Also with equal arms, and arms that differ in one direction only."""
    rng = np.random.default_rng(seed)
    contexts = rng.integers(-1, 2, (6, 2)).astype(float)
    parts = hs.Prior(rng.standard_normal((2, 2)), np.broadcast_to(np.eye(2), (2, 2, 2)))
    prior = MixturePrior(parts, np.log([0.3, 0.7])) if mixture else hs.Prior.isotropic(2)
    rule, belief = hs.Thompson(draws=200), prior.belief()
    arms = [pick.arm for pick in rule.rank(belief, contexts, rng, 6)]
    assert sorted(arms) == list(range(6))
    for position in range(6):
        stated = rule.rank_propensities(belief, contexts, rng, arms[:position])
        assert stated.values.sum() == pytest.approx(1.0)
        assert (stated.values[arms[:position]] == 0.0).all()
        assert (stated.values[arms[position:]] > 0.0).all()


def test_a_belief_of_ones_own_has_a_draw_for_every_position():
    """Nothing is known of its draws, so that the propensities are those of a new draw."""
    belief = hs.Prior.isotropic(2).belief()

    class Own(BaseBelief):
        rounds, noise, dim = 0.0, 1.0, 2
        predict, width, draw, update = belief.predict, belief.width, belief.draw, belief.update

    contexts = np.array([[1.0, 0.0], [0.99, 0.1], [-1.0, 0.0]])
    rule, rng = hs.Thompson(draws=4000), np.random.default_rng(0)
    stated = rule.rank_propensities(Own(), contexts, rng, [0]).values
    np.testing.assert_allclose(stated, [0.0, 0.5, 0.5], atol=0.04)
    one_draw = rule.rank_propensities(belief, contexts, rng, [0]).values
    assert one_draw[1] > 0.9  # arm 1 is like arm 0, which came first
