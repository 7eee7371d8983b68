"""Bounds on the probability of every arm, and the probabilities of being the best arm."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm

import headstart as hs
from headstart.model.base import BaseBelief
from headstart.model.mixture import MixturePrior
from headstart.rules.best_arm import best_arm_probabilities, largest_entry_probabilities
from headstart.rules.clipping import clip_probabilities, select_by_probability

EVERYONE = np.ones(4, dtype=bool)
distributions = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda p: sum(p) > 0.1)


def some_belief(seed=0, dim=3):
    rng = np.random.default_rng(seed)
    prior = hs.Prior(rng.standard_normal(dim), np.eye(dim), noise=0.5)
    return prior.belief(hs.Evidence.of(rng.standard_normal((5, dim)), rng.standard_normal(5)))


def arms(seed=1, count=4, dim=3):
    return np.random.default_rng(seed).standard_normal((count, dim))


class TestTheClippedDistribution:
    # SciPy's older minimizer says that it stepped a rounding error beyond a bound.
    @pytest.mark.filterwarnings("ignore:Values in x were outside bounds")
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(distributions, st.floats(0.0, 0.25), st.floats(0.26, 1.0))
    def test_is_the_nearest_one_within_the_bounds(self, weights, floor, ceiling):
        p = np.array(weights) / np.sum(weights)
        q = clip_probabilities(p, (floor, ceiling), EVERYONE)
        assert q.sum() == pytest.approx(1.0, abs=1e-12)
        assert (q >= floor).all()
        assert (q <= ceiling).all()
        found = minimize(
            lambda other: ((other - p) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(floor, ceiling)] * 4,
            constraints={"type": "eq", "fun": lambda other: other.sum() - 1.0},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(q, found.x, atol=1e-5)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(distributions, st.permutations(range(4)))
    def test_moves_with_the_arms_and_stays_if_it_is_within_the_bounds(self, weights, order):
        p, order = np.array(weights) / np.sum(weights), list(order)
        q = clip_probabilities(p, (0.1, 0.6), EVERYONE)
        np.testing.assert_allclose(clip_probabilities(p[order], (0.1, 0.6), EVERYONE), q[order])
        np.testing.assert_allclose(clip_probabilities(q, (0.1, 0.6), EVERYONE), q, atol=1e-12)
        np.testing.assert_allclose(clip_probabilities(p, (0.0, 1.0), EVERYONE), p, atol=1e-12)

    def test_of_two_arms_is_plain_clipping(self):
        for p in np.linspace(0.0, 1.0, 21):
            q = clip_probabilities(np.array([p, 1 - p]), (0.2, 0.8), np.ones(2, dtype=bool))
            np.testing.assert_allclose(q, [np.clip(p, 0.2, 0.8), np.clip(1 - p, 0.2, 0.8)])

    def test_arms_are_drawn_from_it(self):
        values, times = np.array([0.0, 0.1, 0.0, 0.6, 0.3, 0.0]), 20_000
        drawn = select_by_probability(
            np.broadcast_to(values, (times, 6)), np.random.default_rng(0).random(times)
        )
        np.testing.assert_allclose(np.bincount(drawn, minlength=6) / times, values, atol=0.012)
        ends = select_by_probability(np.array([values] * 2), np.array([0.0, 1.0 - 2**-53]))
        assert ends.tolist() == [1, 4]


class TestTheBestArm:
    def test_two_arms_and_one_direction_are_exact(self):
        parts = np.ones(1), np.array([[0.3, -0.2]]), np.array([[[1.0, 0.0], [0.7, 0.4]]])
        contexts = np.array([[1.0, 0.5], [-0.4, 0.8]])
        gap = contexts[0] - contexts[1]
        expected = norm.cdf(gap @ parts[1][0] / (2.0 * np.linalg.norm(gap @ parts[2][0])))
        found = best_arm_probabilities(parts, 2.0, contexts, np.ones(2, dtype=bool))
        assert found[0] == pytest.approx(expected, abs=1e-12)
        # Lines 0, t − 1 and −t − 1: the first is the highest between −1 and 1.
        found = largest_entry_probabilities(
            np.array([0.0, -1.0, -1.0]), np.array([[0.0], [1.0], [-1.0]])
        )
        np.testing.assert_allclose(found, [1 - 2 * norm.cdf(-1), norm.cdf(-1), norm.cdf(-1)])

    @pytest.mark.parametrize(("seed", "count", "dim"), [(0, 3, 2), (1, 4, 6), (2, 5, 3), (3, 5, 9)])
    def test_several_arms_agree_with_the_multivariate_normal_distribution(self, seed, count, dim):
        rng = np.random.default_rng(seed)
        centres, slopes = 0.5 * rng.standard_normal(count), rng.standard_normal((count, dim))
        found = largest_entry_probabilities(centres, slopes)
        for arm in range(count):
            others = np.delete(np.arange(count), arm)
            gap = slopes[others] - slopes[arm]
            expected = multivariate_normal.cdf(
                np.zeros(count - 1),
                centres[others] - centres[arm],
                gap @ gap.T,
                allow_singular=True,
                abseps=1e-6,
                releps=1e-6,
                maxpts=400_000,
            )
            assert found[arm] == pytest.approx(expected, abs=5e-4)

    def test_many_arms_agree_with_draws(self):
        rng = np.random.default_rng(0)
        centres, slopes = 0.3 * rng.standard_normal(20), rng.standard_normal((20, 10))
        best = (centres + rng.standard_normal((400_000, 10)) @ slopes.T).argmax(1)
        expected = np.bincount(best, minlength=20) / len(best)
        np.testing.assert_allclose(
            largest_entry_probabilities(centres, slopes), expected, atol=4e-3
        )

    def test_very_many_arms_agree_with_draws(self):
        rng = np.random.default_rng(1)
        centres, slopes = rng.standard_normal(500), rng.standard_normal((500, 5))
        best = (centres + rng.standard_normal((40_000, 5)) @ slopes.T).argmax(1)
        expected = np.bincount(best, minlength=500) / len(best)
        np.testing.assert_allclose(
            largest_entry_probabilities(centres, slopes), expected, atol=8e-3
        )

    def test_equal_arms_share_and_certain_arms_win(self):
        parts = np.ones(1), np.array([[1.0, 0.0]]), 0.1 * np.eye(2)[None]
        contexts = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.3], [1.0, 0.0], [9.0, 0.0]])
        found = best_arm_probabilities(parts, 1.0, contexts, np.arange(5) < 4)
        np.testing.assert_allclose(found, [1 / 3, 1 / 3, 0.0, 1 / 3, 0.0])
        certain = np.ones(1), np.array([[1.0, 0.0]]), np.zeros((1, 2, 2))
        found = best_arm_probabilities(certain, 1.0, contexts, np.ones(5, dtype=bool))
        np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 0.0, 1.0])

    def test_groups_are_mixed_by_their_weights(self):
        groups = hs.Prior(np.array([[3.0, 0.0], [0.0, 3.0]]), np.array([0.1 * np.eye(2)] * 2))
        belief = MixturePrior(groups, np.log([0.3, 0.7])).belief()
        rule = hs.Thompson(probability=(0.0, 1.0))
        stated = rule.propensities(belief, np.eye(2), np.random.default_rng(0))
        np.testing.assert_allclose(stated.values, [0.3, 0.7], atol=1e-12)


RULES = [
    hs.UCB(probability=(0.1, 0.6)),
    hs.UCB(explore=0.3, probability=(0.05, 0.5)),
    hs.Greedy(probability=(0.0, 0.7)),
    hs.Thompson(probability=(0.1, 0.6)),
    hs.Thompson(0.3, explore=0.2, probability=(0.1, 1.0)),
    hs.Uniform(probability=(0.1, 0.6)),
    hs.Forced(3, hs.Thompson(), probability=(0.1, 0.6)),
    hs.Forced(9, hs.UCB(probability=(0.1, 0.6))),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


@each_rule
def test_every_choice_of_a_bandit_has_an_exact_propensity_within_the_bounds(rule, tmp_path):
    floor, ceiling = rule.bounds
    bandit = hs.Bandit(3, rule=rule, seed=0)
    task, picked, stated = bandit.task("a"), np.zeros(4), np.zeros(4)
    for at in range(300):
        choice = task.choose(arms(at % 3))
        assert not choice.propensity_is_estimate
        assert floor <= choice.propensities.min() <= choice.propensities.max() <= ceiling
        assert choice.propensities.sum() == pytest.approx(1.0)
        picked[choice.arm] += 1
        stated += choice.propensities
        if at < 20:
            task.learn(choice, choice.context[0])
    np.testing.assert_allclose(picked / 300, stated / 300, atol=4.5 * np.sqrt(0.25 / 300))
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    assert loaded.rule == rule
    assert loaded.task("a").choose(arms()).propensity == task.choose(arms()).propensity


def test_clipped_thompson_sampling_clips_what_thompson_sampling_does():
    belief, contexts = some_belief(), arms(7, 3)
    plain = hs.Thompson(draws=100_000).propensities(belief, contexts, np.random.default_rng(0))
    clipped = hs.Thompson(probability=(0.15, 0.6)).propensities(belief, contexts, None)
    expected = clip_probabilities(plain.values, (0.15, 0.6), np.ones(3, dtype=bool))
    np.testing.assert_allclose(clipped.values, expected, atol=0.006)
    mixed = hs.Thompson(explore=0.5, probability=(0.0, 1.0)).propensities(belief, contexts, None)
    np.testing.assert_allclose(mixed.values, 0.5 * plain.values + 0.5 / 3, atol=0.006)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.permutations(range(4)), st.sampled_from(RULES))
def test_permuted_arms_permute_the_propensities(seed, order, rule):
    belief, contexts, order = some_belief(seed), arms(seed), list(order)
    values = rule.propensities(belief, contexts, None).values
    permuted = rule.propensities(belief, contexts[order], None).values
    np.testing.assert_allclose(permuted, values[order], atol=1e-9)


def test_rankings_keep_the_bounds_at_every_position():
    task = hs.Bandit(3, rule=hs.Thompson(probability=(0.1, 0.5)), seed=0).task("a")
    choices = task.choose(arms(2, 5), k=4)
    gone = []
    for choice in choices:
        left = np.delete(choice.propensities, gone)
        assert 0.1 <= left.min() <= left.max() <= 0.5
        assert choice.propensities.sum() == pytest.approx(1.0)
        gone.append(choice.arm)
    with pytest.raises(hs.InputError, match=r"for 1 arm left at position 5: 1 × 0\.5 is below 1"):
        task.choose(arms(2, 5), k=5)


def test_a_belief_of_ones_own_is_clipped_too():
    belief = some_belief()

    class Own(BaseBelief):
        rounds, noise, dim = 5.0, belief.noise, belief.dim
        predict, width, draw, update = belief.predict, belief.width, belief.draw, belief.update

    rule = hs.Thompson(probability=(0.1, 0.6))
    ours, theirs = (rule.propensities(one, arms(), None).values for one in (Own(), belief))
    np.testing.assert_allclose(ours, theirs, atol=0.03)
    np.testing.assert_array_equal(ours, rule.propensities(Own(), arms(), None).values)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (0.1, "probability must be a floor and a ceiling"),
        ("ab", "probability must be a floor and a ceiling"),
        ((0.1,), "probability must be a floor and a ceiling"),
        ((0.1, 0.5, 0.9), "probability must be a floor and a ceiling"),
        ((-0.1, 0.9), "probability must be a number from 0 to 1"),
        ((0.1, 1.1), "probability must be a number from 0 to 1"),
        ((0.1, np.nan), "probability must be a number from 0 to 1"),
        ((True, False), "probability must be a number from 0 to 1"),
        ((0.5, 0.5), "not below"),
        ((0.6, 0.5), "not below"),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [hs.UCB, hs.Uniform, lambda **o: hs.Forced(1, hs.UCB(), **o)])
def test_bad_bounds_are_refused(bounds, message, make):
    with pytest.raises(hs.InputError, match=message):
        make(probability=bounds)


@each_rule
def test_numbers_of_arms_that_cannot_keep_the_bounds_change_nothing(rule, books):
    bandit = hs.Bandit(3, rule=rule, seed=0)
    bandit.task("a")
    before = books(bandit)
    floor, ceiling = rule.bounds
    many = 25 if floor else None
    for count in (many, 1 if ceiling < 1.0 else None):
        if count is None:
            continue
        with pytest.raises(hs.InputError, match=f"cannot hold for {count} arm"):
            bandit.task("a").choose(arms(0, count))
        with pytest.raises(hs.InputError, match=rf"{count} arms? of contexts\[1\]"):
            bandit.choose_many(["a", "b"], [arms(0, 4), arms(0, count)])
    if ceiling < 1.0:
        with pytest.raises(hs.InputError, match="cannot hold for 1 arm"):
            bandit.task("a").choose(arms(0, 4), exclude=[0, 1, 2])
    assert books(bandit) == before


def test_settings_are_equal_however_the_bounds_were_written():
    written = [(0.1, 0.9), [0.1, 0.9], np.array([0.1, 0.9])]
    for one, other in itertools.pairwise(written):
        assert hs.UCB(probability=one) == hs.UCB(probability=other)
    assert repr(hs.UCB(probability=[0, 1])) == "UCB(probability=(0.0, 1.0))"
    bounded = hs.Forced(2, hs.Thompson(), probability=(0.1, 0.9))
    assert bounded.loop_form() is None  # compiled loops do not know bounds
    assert hs.UCB(probability=(0.1, 0.9)).loop_form() is None
