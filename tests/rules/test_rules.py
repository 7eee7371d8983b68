"""Rules: which arm they pick, with what probability, and what they need to know of a belief."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

import headstart as hs
from headstart import theory
from headstart.model.base import BaseBelief
from headstart.rules.ties import best_arms, best_two, select_by_uniform, tie_tolerance

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)

ALL_RULES = [
    hs.UCB(),
    hs.UCB("theory"),
    hs.UCB("paper"),
    hs.UCB(explore=0.3),
    hs.Thompson(),
    hs.Thompson("paper"),
    hs.Thompson(explore=0.3),
    hs.Greedy(),
    hs.Greedy(explore=0.3),
    hs.Uniform(),
    hs.Forced(3, hs.UCB()),
    hs.Forced(1000, hs.UCB()),
    hs.Forced(3, hs.Thompson(explore=0.1)),
]
each_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=repr)


def random_belief(seed, dim=3, rounds=5, noise=0.5, unit=1.0):
    """A belief after a few rounds; ``unit`` scales everything that is measured in rewards."""
    rng = np.random.default_rng(seed)
    prior = hs.Prior(
        unit * rng.standard_normal(dim),
        rng.standard_normal((dim, dim)) + 2 * np.eye(dim),
        noise=unit * noise,
        bias=unit * 0.4,
        printed_bias=0.9,
    )
    contexts = rng.standard_normal((rounds, dim))
    return hs.Belief.of(prior, hs.Evidence.of(contexts, unit * rng.standard_normal(rounds)))


def random_arms(seed, arms=6, dim=3, batch=()):
    return np.random.default_rng(seed + 1).standard_normal((*batch, arms, dim))


def stacked(beliefs):
    """Beliefs as one along a batch axis."""
    prior = hs.Prior(
        np.stack([b.prior.mean for b in beliefs]),
        np.stack([b.prior.root for b in beliefs]),
        noise=np.array([b.noise for b in beliefs]),
        bias=np.array([b.prior.bias for b in beliefs]),
        printed_bias=np.array([b.prior.printed_bias for b in beliefs]),
    )
    return hs.Belief.start(prior).replace(
        mean=np.stack([b.mean for b in beliefs]),
        root=np.stack([b.root for b in beliefs]),
        information=np.array([b.information for b in beliefs]),
        rounds=np.array([b.rounds for b in beliefs]),
    )


def frequencies(rule, belief, contexts, allowed=None, times=20_000):
    """How often each arm is picked."""
    rng = np.random.default_rng(42)
    counts = np.zeros(len(contexts))
    for _ in range(times):
        counts[rule.choose(belief, contexts, rng, allowed).arm] += 1
    return counts


class Fake(BaseBelief):
    """The least a belief can be: no information, no root."""

    rounds, noise, dim = 2, 0.5, 2

    def predict(self, contexts):
        return contexts[..., 0]

    def width(self, contexts):
        return np.abs(contexts[..., 1])

    def draw(self, rng, scale, size=None):
        shape = (2,) if size is None else (size, 2)
        return np.array([1.0, 0.0]) + scale * rng.standard_normal(shape)

    def update(self, x, r):
        return self


def test_ucb_by_hand():
    # After x = (1, 0), r = 0.2 with λ = 1: θ̂ = (0.1, 0), widths √½ and 1. With R = 0.5, radius 2:
    belief = hs.Belief.start(hs.Prior.isotropic(2, noise=0.5)).learn([1.0, 0.0], 0.2)
    index = hs.UCB(2.0).index(belief, np.eye(2), np.random.default_rng(0))
    np.testing.assert_allclose(index, [0.1 + math.sqrt(0.5), 1.0])
    pick = hs.UCB(2.0).choose(belief, np.eye(2), np.random.default_rng(0))
    assert (pick.arm, pick.score, pick.forced) == (1, pytest.approx(1.0), False)


def test_theory_radius_by_hand():
    # λ = 4, one round with x = (1, 0): det B = 5 · 4, det B₀ = 16. R = 0.5, bias 0.7, δ = 0.1.
    prior = hs.Prior.isotropic(2, lam=4.0, noise=0.5, bias=0.7)
    belief = hs.Belief.start(prior).learn([1.0, 0.0], 1.0)
    gamma = hs.UCB("theory", delta=0.1).gamma(belief)
    assert gamma == pytest.approx(0.5 * math.sqrt(math.log(20 / 16) + 2 * math.log(10)) + 0.7)
    index = hs.UCB("theory", delta=0.1).index(belief, np.eye(2), None)
    np.testing.assert_allclose(index, [0.2 + gamma * math.sqrt(1 / 5), gamma / 2])


def test_paper_radius_by_hand():
    # Algorithm 2: log(det B/(δ² λ1^q λ2^p)) + the printed bias; no square root, no R.
    prior = hs.Prior.isotropic(2, lam=4.0, noise=0.5, bias=0.7).replace(printed_bias=3.0)
    belief = hs.Belief.start(prior).learn([1.0, 0.0], 1.0)
    gamma = hs.UCB("paper", delta=0.1).gamma(belief)
    assert gamma == pytest.approx(math.log(20 / (0.1**2 * 4**2)) + 3.0)


@pytest.mark.parametrize("radius", ["theory", "paper"])
def test_delta_is_one_over_the_horizon_unless_given(radius):
    belief = random_belief(0)
    assert hs.UCB(radius, horizon=40).gamma(belief) == pytest.approx(
        hs.UCB(radius, delta=1 / 40).gamma(belief)
    )


@on_random_instances
@given(seeds, st.floats(0.01, 0.5))
def test_radii_follow_their_formulas(seed, delta):
    belief = random_belief(seed)
    log_ratio = (
        np.linalg.slogdet(belief.prior.covariance)[1] - np.linalg.slogdet(belief.covariance)[1]
    )
    certainty = log_ratio + 2 * math.log(1 / delta)
    theory = 0.5 * math.sqrt(certainty) + 0.4
    assert hs.UCB("theory", delta=delta).gamma(belief) == pytest.approx(theory, rel=1e-8)
    assert hs.UCB("paper", delta=delta).gamma(belief) == pytest.approx(certainty + 0.9, rel=1e-8)
    assert hs.UCB(1.5).gamma(belief) == pytest.approx(0.75)


def test_theory_interval_holds_the_truth():
    """The guarantee: |xᵀ(θ̂ − θ*)| ≤ γ‖x‖ for all x at once, but for a fraction δ of tasks."""
    rng = np.random.default_rng(1)
    rule, misses = hs.UCB("theory", delta=0.05), 0
    for _ in range(300):
        theta = rng.standard_normal(3)
        theta /= np.linalg.norm(theta)
        prior = hs.Prior.isotropic(3, lam=2.0, noise=0.3, bias=math.sqrt(2.0))
        contexts = rng.standard_normal((30, 3))
        rewards = contexts @ theta + 0.3 * rng.standard_normal(30)
        belief = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
        error = belief.mean - theta
        distance = math.sqrt(error @ np.linalg.solve(belief.covariance / 0.3**2, error))
        misses += distance > rule.gamma(belief)
    assert misses <= 15


@on_random_instances
@given(seeds)
def test_indexed_rules_pick_the_largest_index(seed):
    belief, arms = random_belief(seed), random_arms(seed)
    inverse = belief.covariance / belief.noise**2
    mean = arms @ belief.mean
    width = np.sqrt(np.einsum("ki,ij,kj->k", arms, inverse, arms))
    rng = np.random.default_rng(0)
    assert hs.Greedy().choose(belief, arms, rng).arm == mean.argmax()
    pick = hs.UCB(2.0).choose(belief, arms, rng)
    assert pick.arm == (mean + 1.0 * width).argmax()
    assert pick.score == pytest.approx((mean + width).max())


def test_thompson_scores_come_from_the_belief():
    belief, arms = random_belief(2), random_arms(2)
    rule, rng = hs.Thompson(1.5), np.random.default_rng(3)
    scores = np.array([rule.index(belief, arms, rng) for _ in range(40_000)])
    spread = 1.5**2 * arms @ belief.covariance @ arms.T
    deviation = np.sqrt(np.diagonal(spread).max())
    np.testing.assert_allclose(scores.mean(0), arms @ belief.mean, atol=5 * deviation / 200)
    np.testing.assert_allclose(np.cov(scores.T), spread, atol=0.04 * deviation**2)


def test_thompson_spread_is_a_multiple_of_the_noise_or_as_printed():
    belief = random_belief(4)
    assert hs.Thompson(3.0).draw_scale(belief) == pytest.approx(1.5)
    # v = 4 √(log(1/δ) (d+2)/α), α = 1/log n, δ = 1/n; about 125 at d = 30, n = 250.
    printed = 4 * math.sqrt(math.log(100) * (3 + 2) * math.log(100))
    assert hs.Thompson("paper", horizon=100).draw_scale(belief) == pytest.approx(printed)
    corrected = theory.thompson_scale(100, delta=0.2, dim=belief.dim, noise=belief.noise, alpha=0.5)
    told = hs.Thompson("theory", horizon=100, delta=0.2, alpha=0.5)
    assert told.draw_scale(belief) == pytest.approx(corrected)
    assert hs.Thompson("paper", horizon=100, delta=0.2, alpha=0.5).draw_scale(
        belief
    ) == pytest.approx(corrected / belief.noise)
    assert hs.Thompson("paper").draw_scale(random_belief(5, dim=30)) == pytest.approx(125, abs=1)
    given = 4 * math.sqrt(math.log(1 / 0.2) * 5 * math.log(250))
    assert hs.Thompson("paper", delta=0.2).draw_scale(belief) == pytest.approx(given)


def test_thompson_with_scale_zero_is_greedy():
    for seed in range(20):
        belief, arms, rng = random_belief(seed), random_arms(seed), np.random.default_rng(0)
        greedy = hs.Greedy().choose(belief, arms, rng).arm
        assert hs.Thompson(0.0).choose(belief, arms, rng).arm == greedy
        assert hs.UCB(0.0).choose(belief, arms, rng).arm == greedy


@pytest.mark.parametrize("unit", [1e-6, 0.01, 3.0, 1e5])
@pytest.mark.parametrize(
    "rule",
    [hs.UCB(1.3), hs.UCB("theory"), hs.Thompson(0.7), hs.Greedy(), hs.Uniform()],
    ids=repr,
)
def test_the_unit_of_rewards_changes_no_decision(rule, unit):
    for seed in range(20):
        arms = random_arms(seed)
        here = rule.choose(random_belief(seed), arms, np.random.default_rng(seed))
        there = rule.choose(random_belief(seed, unit=unit), arms, np.random.default_rng(seed))
        assert here.arm == there.arm
        assert there.score == pytest.approx(unit * here.score, rel=1e-7, abs=1e-9 * unit)


@pytest.mark.parametrize("unit", [0.01, 1000.0])
@pytest.mark.parametrize(
    "make",
    [
        hs.Bandit,
        hs.linucb,
        hs.lints,
        hs.bias_oful,
        hs.projected_linucb,
        hs.projected_ts,
        hs.meta_ts,
    ],
    ids=lambda make: make.__name__,
)
def test_the_unit_of_rewards_changes_no_decision_of_a_bandit(make, unit):
    """With the noise estimated, across tasks, from the very first round on."""

    def arms_picked(scale):
        bandit, picked = make(dim=3, seed=1), []
        rng = np.random.default_rng(2)
        for t in range(8):
            task = bandit.task(t)
            theta = rng.standard_normal(3)
            for _ in range(12):
                arms, noise = rng.standard_normal((4, 3)), rng.standard_normal()
                choice = task.choose(arms)
                task.learn(choice, scale * (arms[choice.arm] @ theta + 0.3 * noise))
                picked.append(choice.arm)
            task.close()
        return picked

    assert arms_picked(unit) == arms_picked(1.0)


def test_exact_propensities_by_hand():
    fake, rng = Fake(), np.random.default_rng(0)
    arms = np.array([[1.0, 0.0], [3.0, 0.0], [3.0, 0.0], [2.0, 9.0]])
    closed_second = np.array([True, False, True, True])
    cases = [
        (hs.Greedy(), None, [0, 1 / 2, 1 / 2, 0]),
        (hs.Greedy(explore=0.2), None, [0.05, 0.45, 0.45, 0.05]),
        (hs.Greedy(explore=0.3), closed_second, [0.1, 0, 0.8, 0.1]),
        (hs.UCB(1.0), None, [0, 0, 0, 1]),
        (hs.UCB(1.0, explore=1.0), None, [0.25] * 4),
        (hs.Uniform(), None, [0.25] * 4),
        (hs.Uniform(), closed_second, [1 / 3, 0, 1 / 3, 1 / 3]),
        (hs.Forced(3, hs.Greedy()), None, [0.25] * 4),  # two rewards seen: still forced
        (hs.Forced(2, hs.Greedy()), None, [0, 1 / 2, 1 / 2, 0]),
        (hs.Forced(2, hs.Greedy()), closed_second, [0, 0, 1, 0]),
    ]
    for rule, allowed, expected in cases:
        found = rule.propensities(fake, arms, rng, allowed)
        np.testing.assert_allclose(found.values, expected, atol=1e-15, err_msg=repr(rule))
        assert found.draws is None


@pytest.mark.parametrize(
    "rule",
    [
        hs.Greedy(explore=0.4),
        hs.UCB(0.0, explore=0.25),
        hs.Uniform(),
        hs.Forced(2, hs.UCB(0.0, explore=0.1)),
        hs.Forced(3, hs.UCB()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("allowed", [None, np.array([True, True, False, True, True])])
def test_choices_come_as_often_as_their_exact_propensities_say(rule, allowed):
    arms = np.array([[1.0, 0.0], [3.0, 0.0], [3.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    odds = rule.propensities(Fake(), arms, np.random.default_rng(0), allowed).values
    assert odds.sum() == pytest.approx(1.0)
    counts = frequencies(rule, Fake(), arms, allowed, times=8000)
    possible = odds > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert chisquare(counts[possible], 8000 * odds[possible]).pvalue > 1e-4


def two_arm_probability(belief, arms, scale):
    """P(x₁ᵀθ̃ > x₂ᵀθ̃) in closed form."""
    difference = arms[0] - arms[1]
    deviation = scale / belief.noise * math.sqrt(difference @ belief.covariance @ difference)
    return norm.cdf(difference @ belief.mean / deviation)


@pytest.mark.parametrize("seed", range(5))
def test_thompsons_propensities_estimate_the_closed_form_of_two_arms(seed):
    belief, arms = random_belief(seed), random_arms(seed, arms=2)
    truth = two_arm_probability(belief, arms, scale=2.0 * 0.5)
    rule = hs.Thompson(2.0, draws=20_000)
    found = rule.propensities(belief, arms, np.random.default_rng(seed))
    assert found.draws == 20_000
    assert found.values.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(found.values, [truth, 1 - truth], atol=0.02)
    counts = frequencies(rule, belief, arms, times=4000)
    np.testing.assert_allclose(counts[0] / 4000, truth, atol=0.04)


def test_thompsons_propensities_mix_exploration_in():
    belief, arms = random_belief(0), random_arms(0, arms=2)
    truth = two_arm_probability(belief, arms, scale=0.5)
    found = hs.Thompson(1.0, draws=20_000, explore=0.4).propensities(
        belief, arms, np.random.default_rng(0)
    )
    assert found.values[0] == pytest.approx(0.6 * truth + 0.2, abs=0.02)


def test_thompsons_propensities_are_never_zero_for_an_open_arm():
    hopeless = np.array([[5.0, 0.0], [-5.0, 0.0], [-9.0, 0.0]])
    allowed = np.array([True, True, False])
    rule = hs.Thompson(0.01, draws=100)
    values = rule.propensities(Fake(), hopeless, np.random.default_rng(0), allowed).values
    np.testing.assert_allclose(values, [100.5 / 101, 0.5 / 101, 0.0])


@each_rule
def test_excluded_arms_are_never_picked_and_have_no_propensity(rule):
    belief, arms = random_belief(6), random_arms(6)
    rng = np.random.default_rng(0)
    for seed in range(30):
        allowed = np.random.default_rng(seed).random(6) < 0.5
        allowed[seed % 6] = True
        odds = rule.propensities(belief, arms, rng, allowed).values
        assert (odds[~allowed] == 0).all()
        assert odds.sum() == pytest.approx(1.0)
        for _ in range(10):
            assert allowed[rule.choose(belief, arms, rng, allowed).arm]


@each_rule
def test_a_lone_arm_is_certain(rule):
    belief, rng = random_belief(7), np.random.default_rng(0)
    pick = rule.choose(belief, np.ones((1, 3)), rng)
    odds = rule.propensities(belief, np.ones((1, 3)), rng)
    assert (pick.arm, odds.values.tolist(), odds.draws) == (0, [1.0], None)
    only = np.array([False, False, True])
    assert rule.choose(belief, np.ones((3, 3)), rng, only).arm == 2
    assert rule.propensities(belief, np.ones((3, 3)), rng, only).values.tolist() == [0, 0, 1]


@pytest.mark.parametrize("rule", [hs.UCB(0.0), hs.Greedy(), hs.Thompson(1e-3)], ids=repr)
def test_ties_break_uniformly(rule):
    belief = random_belief(8)
    best = belief.mean / np.linalg.norm(belief.mean)
    arms = np.vstack([-9 * best, best, best, -9 * best, best]) * 3
    counts = frequencies(rule, belief, arms, times=6000)
    assert counts[[0, 3]].sum() == 0
    assert chisquare(counts[[1, 2, 4]]).pvalue > 1e-4


@on_random_instances
@given(seeds, st.integers(2, 40), st.integers(1, 12))
def test_equal_contexts_tie_wherever_they_stand(seed, arms, dim):
    """Rounding can give equal rows scores that differ in the last bits: that is no difference."""
    belief = random_belief(seed, dim=dim)
    row = np.random.default_rng(seed).standard_normal(dim)
    table = np.tile(row, (arms, 1))
    for rule in (hs.UCB(), hs.Greedy(), hs.UCB("theory")):
        values = rule.propensities(belief, table, np.random.default_rng(0)).values
        np.testing.assert_allclose(values, 1 / arms)


def test_equal_contexts_tie_where_the_expected_reward_cancels_to_nothing():
    rng = np.random.default_rng(0)
    for _ in range(50):
        belief = random_belief(int(rng.integers(1000)), dim=12)
        row = rng.standard_normal(12)
        row -= belief.mean * (row @ belief.mean) / (belief.mean @ belief.mean)
        values = hs.Greedy().propensities(belief, np.tile(row, (7, 1)), rng).values
        np.testing.assert_allclose(values, 1 / 7)


@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=60))
def test_the_two_best_of_few_and_of_many_arms(scores):
    arm, top, second = best_two(np.array(scores, dtype=np.float32))
    assert arm == int(np.argmax(scores))
    assert [top, second] == sorted([*scores, -np.inf], reverse=True)[:2]


def test_close_is_not_equal():
    scores = np.array([1.0, 1.0 + 1e-12, 0.5])
    assert best_arms(scores, None).tolist() == [False, True, False]


class TestTies:
    """Which arms are equal, and which of them is taken."""

    def test_how_close_is_equal(self):
        ulp = 2.0**-52
        assert tie_tolerance(3.0, 0.0) == tie_tolerance(-3.0, 0.0) == 64 * 3 * ulp
        assert (
            tie_tolerance(0.0, 0.5) == 32 * ulp
        )  # where scores cancel to nothing, R is the measure
        np.testing.assert_allclose(tie_tolerance(np.array([1.0, 2.0]), 1.0), [128 * ulp, 192 * ulp])

    @pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
    def test_the_measure_is_relative(self, unit):
        scores = unit * np.array([1.0, 1.0 - 2.0**-48, 1.0 - 2.0**-40, -1.0])
        assert best_arms(scores, None).tolist() == [True, True, False, False]
        assert best_arms(-scores[:3], None).tolist() == [False, False, True]

    def test_each_row_of_a_batch_by_its_own_noise(self):
        scores = np.array([[0.0, 1e-12]] * 3)
        found = best_arms(scores, None, np.array([0.0, 1.0, 1e3]))
        assert found.tolist() == [[False, True], [False, True], [True, True]]
        allowed = np.array([True, False])
        assert best_arms(scores, allowed, 0.0).tolist() == [[True, False]] * 3

    def test_every_marked_arm_has_its_share_of_the_unit_interval(self):
        mask = np.array([False, True, False, True, True])
        edges = np.array([0.0, 0.33, 0.34, 0.66, 0.67, np.nextafter(1.0, 0.0)])
        assert select_by_uniform(np.tile(mask, (6, 1)), edges).tolist() == [1, 1, 3, 3, 4, 4]

    @on_random_instances
    @given(seeds, st.integers(1, 9))
    def test_only_marked_arms_are_taken_whatever_the_number(self, seed, arms):
        rng = np.random.default_rng(seed)
        mask = rng.random((2, 5, arms)) < 0.4
        mask[..., rng.integers(arms)] = True
        for uniform in (np.zeros((2, 5)), rng.random((2, 5)), np.full((2, 5), 1.0 - 2.0**-53)):
            taken = select_by_uniform(mask, uniform)
            assert taken.shape == (2, 5)
            assert np.take_along_axis(mask, taken[..., None], -1).all()

    def test_marked_arms_are_equally_likely(self):
        mask = np.array([True, False, True, True, False, True, True, False, True, True])
        taken = select_by_uniform(
            np.tile(mask, (20_000, 1)), np.random.default_rng(0).random(20_000)
        )
        counts = np.bincount(taken, minlength=10)
        assert counts[~mask].sum() == 0
        assert chisquare(counts[mask]).pvalue > 1e-4

    @pytest.mark.parametrize(
        "rule", [hs.UCB(0.0), hs.Greedy(), hs.Thompson(1e-3), hs.Uniform()], ids=repr
    )
    def test_a_batch_breaks_them_uniformly(self, rule):
        belief = random_belief(8)
        best = belief.mean / np.linalg.norm(belief.mean)
        table = 3 * np.vstack([-9 * best, best, best, -9 * best, best])
        many = np.broadcast_to(table, (6000, 5, 3))
        allowed = np.array([True, True, True, False, True])
        together, rng = stacked([belief] * 6000), np.random.default_rng(0)
        for mask, open_ones in ((None, [1, 2, 4]), (allowed, [1, 2, 4])):
            arms = rule.choose(together, many, rng, mask).arm
            counts = np.bincount(arms, minlength=5)
            if isinstance(rule, hs.Uniform):
                open_ones = range(5) if mask is None else np.flatnonzero(mask)
            assert counts[open_ones].sum() == 6000
            assert chisquare(counts[open_ones]).pvalue > 1e-4

    @pytest.mark.parametrize("rule", [hs.UCB(0.0), hs.Greedy(), hs.Thompson(1e-3)], ids=repr)
    @pytest.mark.parametrize("explore", [0.0, 0.5])
    def test_one_decision_breaks_them_among_the_arms_that_are_open(self, rule, explore):
        rule = dataclasses.replace(rule, explore=explore)
        belief = random_belief(8)
        best = belief.mean / np.linalg.norm(belief.mean)
        arms = 3 * np.vstack([best, -9 * best, best, best, best])
        allowed = np.array([True, True, False, True, False])
        counts = frequencies(rule, belief, arms, allowed, times=3000)
        expected = (1 - explore) * np.array([0.5, 0, 0, 0.5, 0]) + explore * allowed / 3
        assert counts[~allowed].sum() == 0
        np.testing.assert_allclose(counts / 3000, expected, atol=4 * math.sqrt(0.25 / 3000))

    def test_an_excluded_arm_does_not_count_as_the_best(self):
        """Nor does it make a lone leader look tied."""
        arms = np.array([[3.0, 0.0], [1.0, 0.0], [3.0, 0.0], [2.0, 0.0]])
        allowed = np.array([False, True, False, True])
        pick = hs.Greedy().choose(Fake(), arms, NoRandomness(), allowed)
        assert (pick.arm, pick.score) == (3, 2.0)

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Greedy(), hs.UCB("theory")], ids=repr)
    def test_a_lone_leader_costs_no_randomness(self, rule):
        for seed in range(10):
            belief, arms = random_belief(seed), random_arms(seed)
            pick = rule.choose(belief, arms, NoRandomness())
            assert pick.arm == rule.index(belief, arms, None).argmax()

    @pytest.mark.parametrize("rule", [hs.UCB(explore=1.0), hs.Greedy(explore=1.0)], ids=repr)
    def test_full_exploration_is_uniform_and_scores_what_it_picks(self, rule):
        belief, arms = random_belief(3), random_arms(3)
        index = rule.index(belief, arms, None)
        rng = np.random.default_rng(0)
        picks = [rule.choose(belief, arms, rng) for _ in range(3000)]
        assert chisquare(np.bincount([pick.arm for pick in picks], minlength=6)).pvalue > 1e-4
        assert all(pick.score == index[pick.arm] for pick in picks)

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Greedy()], ids=repr)
    @pytest.mark.parametrize("dim", [5, 8, 16])
    def test_equal_contexts_tie_in_single_precision_too(self, rule, dim):
        """Its last bits are larger ones."""
        for seed in range(10):
            rng = np.random.default_rng(seed)
            prior = hs.Prior(
                rng.standard_normal(dim).astype(np.float32),
                (rng.standard_normal((dim, dim)) + 2 * np.eye(dim)).astype(np.float32),
                noise=0.5,
            )
            table = np.tile(rng.standard_normal(dim).astype(np.float32), (23, 1))
            belief = hs.Belief.start(prior)
            values = rule.propensities(belief, table, rng).values
            np.testing.assert_allclose(values, 1 / 23, rtol=1e-5)
            picked = {rule.choose(belief, table, rng).arm for _ in range(60)}
            assert len(picked) > 10


class NoRandomness:
    """A generator that must not be used."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was drawn")


@pytest.mark.parametrize("rule", [rule for rule in ALL_RULES if hasattr(rule, "index")], ids=repr)
def test_one_offer_may_serve_a_batch_of_beliefs(rule):
    beliefs, arms = [random_belief(seed) for seed in range(4)], random_arms(5)
    together = stacked(beliefs)
    values = rule.propensities(together, arms, np.random.default_rng(0)).values
    pick = rule.choose(together, arms, np.random.default_rng(0))
    assert values.shape == (4, 6)
    assert np.shape(pick.arm) == np.shape(pick.score) == (4,)
    assert (np.take_along_axis(values, np.asarray(pick.arm)[:, None], -1) > 0).all()


@each_rule
def test_the_same_generator_gives_the_same_choice(rule):
    belief, arms = random_belief(9), np.tile(random_arms(9, arms=2), (4, 1))  # every arm four times

    def picks(seed):
        rng = np.random.default_rng(seed)
        return [rule.choose(belief, arms, rng).arm for _ in range(50)]

    assert picks(1) == picks(1)
    assert picks(1) != picks(2)
    assert all(type(arm) is int for arm in picks(1))


@each_rule
def test_asking_changes_nothing(rule):
    belief, arms, allowed = random_belief(10), random_arms(10), np.array([True] * 5 + [False])
    kept = arms.copy(), allowed.copy(), belief.mean.copy(), belief.root.copy()
    rule.choose(belief, arms, np.random.default_rng(0), allowed)
    rule.propensities(belief, arms, np.random.default_rng(0), allowed)
    for now, before in zip((arms, allowed, belief.mean, belief.root), kept, strict=True):
        np.testing.assert_array_equal(now, before)
    assert arms.flags.writeable
    assert allowed.flags.writeable


@pytest.mark.parametrize(
    "rule",
    [
        hs.UCB(),
        hs.UCB(explore=0.5),
        hs.Thompson(),
        hs.Greedy(),
        hs.Uniform(),
        hs.Forced(9, hs.UCB()),
        hs.Forced(1, hs.Thompson()),
    ],
    ids=repr,
)
def test_any_object_that_can_predict_widen_and_draw_is_a_belief(rule):
    arms = np.array([[0.1, 0.2], [0.7, 0.1], [0.3, 3.0]])
    pick = rule.choose(Fake(), arms, np.random.default_rng(0))
    odds = rule.propensities(Fake(), arms, np.random.default_rng(0))
    assert pick.arm in range(3)
    assert odds.values.sum() == pytest.approx(1.0)
    if rule == hs.UCB():
        assert (pick.arm, pick.score) == (2, pytest.approx(0.3 + 0.5 * 3.0))


@pytest.mark.parametrize("radius", ["theory", "paper"])
def test_a_belief_without_a_bias_cannot_give_a_confidence_radius(radius):
    with pytest.raises(hs.InputError, match=r"\bradius\b"):
        hs.UCB(radius).choose(Fake(), np.eye(2), np.random.default_rng(0))


def test_forced_marks_its_rounds_and_then_hands_over():
    prior = hs.Prior.isotropic(2)
    belief, rule = hs.Belief.start(prior), hs.Forced(2, hs.Greedy())
    rng = np.random.default_rng(0)
    marks = []
    for _ in range(4):
        pick = rule.choose(belief, np.eye(2), rng)
        marks.append(bool(pick.forced))
        belief = belief.learn(np.eye(2)[pick.arm], 1.0 + pick.arm)
    assert marks == [True, True, False, False]


@pytest.mark.parametrize(
    "rule",
    [hs.UCB(1.2), hs.UCB("theory"), hs.UCB("paper"), hs.Greedy(), hs.Greedy(explore=0.2)],
    ids=repr,
)
def test_batch_axes_are_a_loop(rule):
    beliefs = [random_belief(seed) for seed in range(5)]
    arms = random_arms(11, batch=(5,))
    allowed = np.random.default_rng(12).random((5, 6)) < 0.7
    allowed[:, 0] = True
    rng = np.random.default_rng(0)
    together = stacked(beliefs)
    odds = rule.propensities(together, arms, rng, allowed).values
    pick = rule.choose(together, arms, rng, allowed)
    assert pick.arm.shape == pick.score.shape == (5,)
    for at, belief in enumerate(beliefs):
        alone = rule.propensities(belief, arms[at], rng, allowed[at]).values
        np.testing.assert_allclose(odds[at], alone, atol=1e-12)
        assert alone[pick.arm[at]] > 0
        index = rule.index(belief, arms[at], rng)
        assert pick.score[at] == pytest.approx(index[pick.arm[at]])
        if not rule.explore:
            assert pick.arm[at] == rule.choose(belief, arms[at], rng, allowed[at]).arm


def test_batches_of_random_rules_have_the_frequencies_of_a_loop():
    beliefs = [random_belief(seed) for seed in range(2)]
    arms = np.broadcast_to(random_arms(13, arms=3), (2, 3, 3))
    together, rng = stacked(beliefs), np.random.default_rng(0)
    for rule in (hs.Thompson(2.0, draws=20_000), hs.Uniform(), hs.Greedy(explore=0.5)):
        odds = rule.propensities(together, arms, rng).values
        picks = np.array([rule.choose(together, arms, rng).arm for _ in range(4000)])
        for at, belief in enumerate(beliefs):
            alone = rule.propensities(belief, arms[at], rng).values
            np.testing.assert_allclose(odds[at], alone, atol=0.02)
            counts = np.bincount(picks[:, at], minlength=3)
            np.testing.assert_allclose(counts / 4000, alone, atol=0.04)


def test_a_batch_may_be_forced_in_part():
    beliefs = [random_belief(0, rounds=1), random_belief(1, rounds=9)]
    together, arms = stacked(beliefs), random_arms(14, batch=(2,))
    rule, rng = hs.Forced(5, hs.Greedy()), np.random.default_rng(0)
    picks = [rule.choose(together, arms, rng) for _ in range(200)]
    assert all(pick.forced.tolist() == [True, False] for pick in picks)
    assert {int(pick.arm[0]) for pick in picks} == set(range(6))
    best = hs.Greedy().choose(beliefs[1], arms[1], rng).arm
    assert {int(pick.arm[1]) for pick in picks} == {best}
    odds = rule.propensities(together, arms, rng).values
    np.testing.assert_allclose(odds[0], 1 / 6)
    assert odds[1, best] == 1.0


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.UCB(-1.0), "radius"),
        (lambda: hs.UCB(np.nan), "radius"),
        (lambda: hs.UCB(np.inf), "radius"),
        (lambda: hs.UCB("wide"), "radius"),
        (lambda: hs.UCB(None), "radius"),
        (lambda: hs.UCB(True), "radius"),
        (lambda: hs.UCB(delta=0.0), "delta"),
        (lambda: hs.UCB(delta=1.0), "delta"),
        (lambda: hs.UCB(horizon=1), "horizon"),
        (lambda: hs.UCB(horizon=2.5), "horizon"),
        (lambda: hs.UCB(explore=-0.1), "explore"),
        (lambda: hs.UCB(explore=1.1), "explore"),
        (lambda: hs.Greedy(explore=np.nan), "explore"),
        (lambda: hs.Thompson(-1.0), "scale"),
        (lambda: hs.Thompson("wide"), "scale"),
        (lambda: hs.Thompson("theory", alpha=0.0), "alpha"),
        (lambda: hs.Thompson("theory", alpha=1.5), "alpha"),
        (lambda: hs.Thompson(draws=0), "draws"),
        (lambda: hs.Thompson(draws=10.0), "draws"),
        (lambda: hs.Thompson(delta=2.0), "delta"),
        (lambda: hs.Thompson(horizon=0), "horizon"),
        (lambda: hs.Forced(-1, hs.UCB()), "rounds"),
        (lambda: hs.Forced(1.5, hs.UCB()), "rounds"),
        (lambda: hs.Forced(1, "ucb"), "then"),
        (lambda: hs.Forced(1, hs.UCB), "then"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
