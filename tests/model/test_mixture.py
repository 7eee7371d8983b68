"""A belief in several groups at once: Bayes' rule over groups, and the moments of the mixture."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import headstart as hs
from headstart.model.mixture import LOG_ZERO, MixtureBelief, MixturePrior

seeds = st.integers(0, 2**32 - 1)
dims = st.integers(1, 5)
numbers = st.integers(1, 4)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)
NOISE = 0.3


def random_mixture(rng, dim, groups, batch=(), noise=NOISE):
    """Groups with means, weights and roots of their own; the roots are of no special form."""
    shape = (*batch, groups)
    mean = rng.standard_normal((*shape, dim))
    root = rng.standard_normal((*shape, dim, dim)) + np.eye(dim)
    weights = rng.dirichlet(np.ones(groups), batch)
    parts = hs.Prior(mean, root, noise=np.full(shape, noise), bias=np.full(shape, 0.5))
    return MixturePrior(parts, np.log(weights))


def random_rounds(rng, rounds, dim, batch=()):
    contexts = rng.standard_normal((*batch, rounds, dim))
    return contexts, rng.standard_normal((*batch, rounds))


def learned(prior, contexts, rewards):
    """The belief by one update after another."""
    belief = prior.belief()
    for k in range(rewards.shape[-1]):
        belief = belief.update(contexts[..., k, :], rewards[..., k])
    return belief


def some_belief(seed=0, dim=3, groups=3, rounds=2, batch=()):
    rng = np.random.default_rng(seed)
    prior = random_mixture(rng, dim, groups, batch)
    return learned(prior, *random_rounds(rng, rounds, dim, batch))


def moments_of(belief):
    """Mean and covariance of θ, by the law of total variance, in rewards' units."""
    mean, covariance = 0.0, 0.0
    for weight, centre, spread in zip(
        belief.weights, belief.parts.mean, belief.parts.covariance, strict=True
    ):
        mean = mean + weight * centre
        covariance = covariance + weight * (spread + np.outer(centre, centre))
    return mean, covariance - np.outer(mean, mean)


def one_of(prior, at):
    """One mixture out of a batch."""
    parts = prior.parts
    scalars = {name: getattr(parts, name)[at] for name in ("noise", "bias")}
    return MixturePrior(hs.Prior(parts.mean[at], parts.root[at], **scalars), prior.log_weights[at])


def assert_agree(left, right, tolerance=1e-8):
    np.testing.assert_allclose(left.weights, right.weights, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(left.parts.mean, right.parts.mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        left.parts.covariance, right.parts.covariance, rtol=tolerance, atol=tolerance
    )
    np.testing.assert_array_equal(left.rounds, right.rounds)


class TestLearning:
    def test_one_round_by_hand(self):
        # R = 1, groups N(0, 1) and N(4, 1), x = 1, r = 0: both see the reward with variance 2, so
        # the weights are as 1 : exp(−4²/4), and the posterior means 0 and 2.
        parts = hs.Prior([[0.0], [4.0]], np.ones((2, 1, 1)), noise=np.ones(2))
        belief = MixturePrior(parts, np.log([0.5, 0.5])).belief()
        belief = belief.update(np.array([1.0]), 0.0)
        np.testing.assert_allclose(belief.weights[1] / belief.weights[0], np.exp(-4.0))
        np.testing.assert_allclose(belief.parts.mean, [[0.0], [2.0]])
        np.testing.assert_allclose(belief.mean, [2.0 * belief.weights[1]])
        assert (belief.rounds, belief.noise, belief.dim, belief.batch) == (1.0, 1.0, 1, ())

    @on_random_instances
    @given(seeds, dims, numbers, st.integers(0, 15))
    def test_one_by_one_is_all_at_once(self, seed, dim, groups, rounds):
        rng = np.random.default_rng(seed)
        prior = random_mixture(rng, dim, groups)
        contexts, rewards = random_rounds(rng, rounds, dim)
        at_once = prior.belief(hs.Evidence.of(contexts, rewards))
        assert_agree(at_once, learned(prior, contexts, rewards))

    @on_random_instances
    @given(seeds, dims, numbers, st.integers(0, 8))
    def test_weights_are_those_of_bayes_rule_on_the_raw_rewards(self, seed, dim, groups, rounds):
        rng = np.random.default_rng(seed)
        prior = random_mixture(rng, dim, groups)
        contexts, rewards = random_rounds(rng, rounds, dim)
        logs = prior.log_weights.copy()
        for group in range(groups if rounds else 0):
            covariance = contexts @ prior.parts.covariance[group] @ contexts.T
            density = stats.multivariate_normal(
                contexts @ prior.parts.mean[group], covariance + NOISE**2 * np.eye(rounds)
            )
            logs[group] += density.logpdf(rewards)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        for belief in (
            learned(prior, contexts, rewards),
            prior.belief(hs.Evidence.of(contexts, rewards)),
        ):
            np.testing.assert_allclose(belief.weights, weights, rtol=1e-6, atol=1e-9)
            assert belief.weights.sum() == pytest.approx(1.0, abs=1e-12)

    @on_random_instances
    @given(seeds, st.permutations(range(9)))
    def test_order_of_rewards_does_not_matter(self, seed, order):
        rng = np.random.default_rng(seed)
        prior = random_mixture(rng, 3, 3)
        contexts, rewards = random_rounds(rng, 9, 3)
        assert_agree(
            learned(prior, contexts, rewards), learned(prior, contexts[order], rewards[order])
        )

    @on_random_instances
    @given(seeds, dims, numbers)
    def test_each_group_learns_as_if_it_were_alone(self, seed, dim, groups):
        rng = np.random.default_rng(seed)
        prior = random_mixture(rng, dim, groups)
        contexts, rewards = random_rounds(rng, 6, dim)
        belief = learned(prior, contexts, rewards)
        for group in range(groups):
            alone = hs.Belief.start(
                hs.Prior(prior.parts.mean[group], prior.parts.root[group], noise=NOISE)
            )
            for x, r in zip(contexts, rewards, strict=True):
                alone = alone.learn(x, r)
            np.testing.assert_allclose(belief.parts.mean[group], alone.mean, atol=1e-9)
            np.testing.assert_allclose(belief.parts.covariance[group], alone.covariance, atol=1e-9)

    def test_learning_can_go_on_from_evidence(self):
        rng = np.random.default_rng(1)
        prior = random_mixture(rng, 3, 3)
        contexts, rewards = random_rounds(rng, 12, 3)
        belief = prior.belief(hs.Evidence.of(contexts[:7], rewards[:7]))
        for x, r in zip(contexts[7:], rewards[7:], strict=True):
            belief = belief.update(x, r)
        assert_agree(belief, learned(prior, contexts, rewards))

    def test_rewards_that_no_group_expects_leave_it_finite(self):
        rng = np.random.default_rng(2)
        prior = random_mixture(rng, 3, 4)
        contexts, rewards = random_rounds(rng, 5, 3)
        for belief in (
            learned(prior, contexts, 1e4 * rewards),
            prior.belief(hs.Evidence.of(contexts, 1e4 * rewards)),
        ):
            assert np.isfinite(belief.log_weights).all()
            assert belief.weights.sum() == pytest.approx(1.0, abs=1e-12)
            for value in belief.moments(contexts):
                assert np.isfinite(value).all()

    def test_a_gaussian_prior_gives_a_gaussian_belief(self):
        rng = np.random.default_rng(3)
        prior = hs.Prior(rng.standard_normal(3), np.eye(3), noise=NOISE)
        evidence = hs.Evidence.of(*random_rounds(rng, 6, 3))
        assert prior.belief() == hs.Belief.start(prior)
        assert prior.belief(evidence) == hs.Belief.of(prior, evidence)

    def test_no_evidence_changes_nothing(self):
        prior = random_mixture(np.random.default_rng(4), 3, 3)
        for belief in (prior.belief(), prior.belief(hs.Evidence.zero(3))):
            np.testing.assert_allclose(belief.log_weights, prior.log_weights, atol=1e-12)
            np.testing.assert_allclose(belief.parts.mean, prior.parts.mean)
            np.testing.assert_allclose(
                belief.mean, (np.exp(prior.log_weights)[:, None] * prior.parts.mean).sum(0)
            )
            assert (belief.rounds, belief.noise) == (0.0, NOISE)


class TestMoments:
    @on_random_instances
    @given(seeds, dims, numbers, st.integers(0, 4))
    def test_predict_and_width_are_mean_and_deviation_of_the_mixture(
        self, seed, dim, groups, rounds
    ):
        rng = np.random.default_rng(seed)
        belief = learned(random_mixture(rng, dim, groups), *random_rounds(rng, rounds, dim))
        arms = rng.standard_normal((6, dim))
        mean, covariance = moments_of(belief)
        np.testing.assert_allclose(belief.mean, mean, atol=1e-10)
        np.testing.assert_allclose(belief.predict(arms), arms @ mean, atol=1e-9)
        deviation = np.sqrt(np.einsum("ki,ij,kj->k", arms, covariance, arms))
        np.testing.assert_allclose(NOISE * belief.width(arms), deviation, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(belief.moments(arms)[0], belief.predict(arms))
        np.testing.assert_array_equal(belief.moments(arms)[1], belief.width(arms))

    def test_they_are_those_of_random_draws(self):
        belief = some_belief(rounds=1)
        arms = np.random.default_rng(9).standard_normal((4, 3))
        values = belief.draw(np.random.default_rng(5), NOISE, size=100_000) @ arms.T
        mean, width = belief.predict(arms), belief.width(arms)
        np.testing.assert_allclose(
            values.mean(0), mean, atol=5 * NOISE * width.max() / 100_000**0.5
        )
        np.testing.assert_allclose(values.std(0), NOISE * width, rtol=0.02)

    @pytest.mark.parametrize("rounds", [0, 1, 3])
    def test_draws_have_the_mixtures_mean_and_covariance(self, rounds):
        belief = some_belief(rounds=rounds)
        draws = belief.draw(np.random.default_rng(5), NOISE, size=100_000)
        assert draws.shape == (100_000, 3)
        mean, covariance = moments_of(belief)
        spread = np.sqrt(covariance.diagonal().max())
        np.testing.assert_allclose(draws.mean(0), mean, atol=5 * spread / 100_000**0.5)
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.03 * spread**2)

    def test_single_draws_have_them_too(self):
        belief, rng = some_belief(rounds=1), np.random.default_rng(6)
        draws = np.array([belief.draw(rng, NOISE) for _ in range(20_000)])
        mean, covariance = moments_of(belief)
        spread = np.sqrt(covariance.diagonal().max())
        np.testing.assert_allclose(draws.mean(0), mean, atol=5 * spread / 20_000**0.5)
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06 * spread**2)

    @pytest.mark.parametrize("batch", [(2,), (2, 2)], ids=str)
    def test_so_have_draws_of_a_batch(self, batch):
        rng = np.random.default_rng(7)
        prior = random_mixture(rng, 2, 3, batch)
        contexts, rewards = random_rounds(rng, 2, 2, batch)
        belief = learned(prior, contexts, rewards)
        many = belief.draw(rng, np.full(batch, NOISE), size=40_000)
        assert many.shape == (40_000, *batch, 2)
        few = np.array([belief.draw(rng, NOISE) for _ in range(4_000)])
        assert few.shape == (4_000, *batch, 2)
        for at in np.ndindex(batch):
            mean, covariance = moments_of(learned(one_of(prior, at), contexts[at], rewards[at]))
            spread = np.sqrt(covariance.diagonal().max())
            for draws, tolerance in ((many, 0.05), (few, 0.15)):
                own = draws[(slice(None), *at)]
                np.testing.assert_allclose(own.mean(0), mean, atol=5 * spread / len(own) ** 0.5)
                np.testing.assert_allclose(np.cov(own.T), covariance, atol=tolerance * spread**2)

    def test_scale_widens_every_group_around_its_own_mean(self):
        belief = some_belief()
        still = belief.draw(np.random.default_rng(0), 0.0, size=3_000)
        counts = [(still == centre).all(-1).mean() for centre in belief.parts.mean]
        np.testing.assert_allclose(counts, belief.weights, atol=5 * 0.5 / 3_000**0.5)
        wide, narrow = (
            belief.draw(np.random.default_rng(0), scale, size=500) - still[:500]
            for scale in (0.6, 0.3)
        )
        np.testing.assert_allclose(wide, 2.0 * narrow, atol=1e-9)

    @on_random_instances
    @given(seeds, dims, numbers, st.sampled_from([(), (2,), (2, 3)]))
    def test_one_gaussian_can_stand_for_a_mixture(self, seed, dim, groups, batch):
        prior = random_mixture(np.random.default_rng(seed), dim, groups, batch)
        whole = prior.as_gaussian()
        assert isinstance(whole, hs.Prior)
        assert whole.batch == prior.batch == batch
        assert whole.dim == prior.dim == dim
        np.testing.assert_allclose(whole.noise, NOISE)
        for at in np.ndindex(batch):
            mean, covariance = moments_of(one_of(prior, at).belief())
            np.testing.assert_allclose(whole.mean[at], mean, atol=1e-10)
            np.testing.assert_allclose(whole.covariance[at], covariance, atol=1e-8)


class TestBatches:
    @pytest.mark.parametrize("batch", [(1,), (4,), (2, 3)], ids=str)
    def test_batch_axes_are_a_loop(self, batch):
        rng = np.random.default_rng(10)
        prior = random_mixture(rng, 4, 3, batch)
        contexts, rewards = random_rounds(rng, 7, 4, batch)
        stepwise = learned(prior, contexts, rewards)
        direct = prior.belief(hs.Evidence.of(contexts, rewards))
        arms = rng.standard_normal((*batch, 5, 4))
        for together in (stepwise, direct):
            assert together.batch == together.rounds.shape == together.noise.shape == batch
            assert together.predict(arms).shape == together.width(arms).shape == (*batch, 5)
            for at in np.ndindex(batch):
                alone = learned(one_of(prior, at), contexts[at], rewards[at])
                np.testing.assert_allclose(together.weights[at], alone.weights, atol=1e-9)
                np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-9)
                np.testing.assert_allclose(
                    together.predict(arms)[at], alone.predict(arms[at]), atol=1e-9
                )
                np.testing.assert_allclose(
                    together.width(arms)[at], alone.width(arms[at]), atol=1e-9
                )
                assert together.rounds[at] == alone.rounds == 7
                assert together.noise[at] == alone.noise == NOISE

    def test_one_noise_serves_a_batch(self):
        rng = np.random.default_rng(11)
        each = random_mixture(rng, 3, 2, (4,))
        shared = MixturePrior(
            hs.Prior(each.parts.mean, each.parts.root, noise=NOISE), each.log_weights
        )
        contexts, rewards = random_rounds(rng, 5, 3, (4,))
        left, right = learned(shared, contexts, rewards), learned(each, contexts, rewards)
        assert_agree(left, right)
        np.testing.assert_allclose(np.broadcast_to(left.noise, (4,)), right.noise)
        np.testing.assert_allclose(np.broadcast_to(shared.noise, (4,)), each.noise)

    def test_padding_changes_no_decision(self):
        rng = np.random.default_rng(12)
        priors = [
            hs.Prior(rng.standard_normal(3), np.eye(3), noise=0.2),
            random_mixture(rng, 3, 2, noise=0.4),
            random_mixture(rng, 3, 4, noise=0.1),
        ]
        together = MixturePrior.stack(priors).belief()
        alone = [prior.belief() for prior in priors]
        np.testing.assert_allclose(together.noise, [0.2, 0.4, 0.1])
        for _ in range(15):
            arms = rng.standard_normal((3, 6, 3))
            picked = hs.UCB().choose(together, arms, rng)
            single = [
                hs.UCB().choose(belief, own, rng) for belief, own in zip(alone, arms, strict=True)
            ]
            np.testing.assert_array_equal(picked.arm, [pick.arm for pick in single])
            np.testing.assert_allclose(picked.score, [pick.score for pick in single], atol=1e-9)
            x, r = arms[np.arange(3), picked.arm], rng.standard_normal(3)
            together = together.update(x, r)
            alone = [belief.update(x[at], r[at]) for at, belief in enumerate(alone)]
        np.testing.assert_allclose(together.weights[0], [1.0, 0.0, 0.0, 0.0])
        for at in (1, 2):
            kept = len(alone[at].weights)
            np.testing.assert_allclose(together.weights[at, :kept], alone[at].weights, atol=1e-9)
            np.testing.assert_array_equal(together.weights[at, kept:], 0.0)

    def test_padding_changes_no_draw(self):
        rng = np.random.default_rng(13)
        mixture = random_mixture(rng, 3, 2)
        padded = mixture.with_groups(5)
        assert padded.with_groups(5).log_weights.shape == (5,)
        for seed in range(200):
            plain, wide = (
                prior.belief().draw(np.random.default_rng(seed), NOISE)
                for prior in (mixture, padded)
            )
            np.testing.assert_array_equal(plain, wide)

    def test_stacking_keeps_every_number_of_a_prior(self):
        prior = hs.Prior([1.0, 2.0], np.eye(2), noise=0.5, bias=0.25, printed_bias=0.75)
        parts = MixturePrior.stack([prior, random_mixture(np.random.default_rng(0), 2, 3)]).parts
        assert parts.batch == (2, 3)
        for name in ("noise", "bias", "printed_bias"):
            np.testing.assert_array_equal(getattr(parts, name)[0], getattr(prior, name))

    @on_random_instances
    @given(seeds, st.integers(1, 3), st.integers(1, 4))
    def test_a_group_that_never_occurs_gets_no_weight(self, seed, groups, more):
        rng = np.random.default_rng(seed)
        padded = random_mixture(rng, 3, groups).with_groups(groups + more)
        np.testing.assert_array_equal(padded.log_weights[groups:], LOG_ZERO)
        contexts, rewards = random_rounds(rng, 10, 3)
        rewards = rewards * 10.0 ** rng.uniform(-2, 3)
        for belief in (
            learned(padded, contexts, rewards),
            padded.belief(hs.Evidence.of(contexts, rewards)),
        ):
            np.testing.assert_array_equal(belief.weights[groups:], 0.0)
            assert belief.weights.sum() == pytest.approx(1.0, abs=1e-12)
            draws = belief.draw(rng, 0.0, size=200)
            assert (draws[:, None] == belief.parts.mean[:groups]).all(-1).any(-1).all()


class TestMixtureOfOne:
    @on_random_instances
    @given(seeds, dims, st.integers(0, 8))
    def test_it_is_the_plain_belief(self, seed, dim, rounds):
        rng = np.random.default_rng(seed)
        prior = hs.Prior(rng.standard_normal(dim), rng.standard_normal((dim, dim)), noise=NOISE)
        contexts, rewards = random_rounds(rng, rounds, dim)
        plain = hs.Belief.start(prior)
        for x, r in zip(contexts, rewards, strict=True):
            plain = plain.learn(x, r)
        arms = rng.standard_normal((5, dim))
        for belief in (
            learned(MixturePrior.of(prior), contexts, rewards),
            MixturePrior.of(prior).belief(hs.Evidence.of(contexts, rewards)),
        ):
            np.testing.assert_array_equal(belief.weights, [1.0])
            np.testing.assert_allclose(belief.mean, plain.mean, atol=1e-8)
            np.testing.assert_allclose(belief.predict(arms), plain.predict(arms), atol=1e-8)
            np.testing.assert_allclose(belief.width(arms), plain.width(arms), atol=1e-8)
            assert (belief.rounds, belief.noise, belief.dim) == (rounds, NOISE, dim)
            for rule in (hs.UCB(), hs.Greedy()):
                picks = [
                    rule.choose(one, arms, np.random.default_rng(0)) for one in (belief, plain)
                ]
                assert picks[0].arm == picks[1].arm
        whole = MixturePrior.of(prior).as_gaussian()
        np.testing.assert_allclose(whole.mean, prior.mean)
        np.testing.assert_allclose(whole.covariance, prior.covariance, atol=1e-10)

    def test_its_draws_are_the_beliefs_once_the_group_is_drawn(self):
        prior = hs.Prior([1.0, -1.0], [[1.0, 0.5], [0.0, 2.0]], noise=NOISE)
        rngs = [np.random.default_rng(3) for _ in range(2)]
        rngs[1].random()  # the group
        np.testing.assert_allclose(
            MixturePrior.of(prior).belief().draw(rngs[0], 0.7),
            hs.Belief.start(prior).draw(rngs[1], 0.7),
        )


RULES = [
    hs.UCB(),
    hs.UCB(0.0),
    hs.UCB(2.5, explore=0.2),
    hs.Thompson(draws=2_000),
    hs.Thompson(0.5, draws=2_000, explore=0.1),
    hs.Thompson("paper"),
    hs.Greedy(),
    hs.Greedy(explore=0.3),
    hs.Uniform(),
    hs.Forced(4, hs.UCB()),
    hs.Forced(1, hs.Thompson(draws=2_000)),
]

each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


class TestRules:
    ARMS = np.random.default_rng(7).standard_normal((5, 3))

    @each_rule
    def test_a_pick_is_an_open_row_with_its_score(self, rule):
        belief, rng = some_belief(), np.random.default_rng(0)
        allowed = np.array([True, False, True, True, False])
        for mask in (None, allowed):
            pick = rule.choose(belief, self.ARMS, rng, mask)
            assert type(pick.arm) is int
            assert type(pick.score) is float
            assert np.isfinite(pick.score)
            assert mask is None or mask[pick.arm]

    @each_rule
    def test_it_picks_as_often_as_it_says(self, rule):
        belief, rng = some_belief(), np.random.default_rng(0)
        allowed = np.array([True, True, True, False, True])
        stated = rule.propensities(belief, self.ARMS, rng, allowed)
        assert stated.values.sum() == pytest.approx(1.0, abs=1e-12)
        assert stated.values[3] == 0.0
        picks = [rule.choose(belief, self.ARMS, rng, allowed).arm for _ in range(1000)]
        counts = np.bincount(picks, minlength=5) / len(picks)
        tolerance = 4.5 * np.sqrt(0.25 / 1000 + (0.25 / stated.draws if stated.draws else 0))
        np.testing.assert_allclose(counts, stated.values, atol=tolerance)

    @each_rule
    def test_it_decides_for_a_batch_at_once(self, rule):
        belief = some_belief(batch=(2, 3))
        rng = np.random.default_rng(5)
        arms = rng.standard_normal((2, 3, 5, 3))
        pick = rule.choose(belief, arms, rng)
        assert pick.arm.shape == pick.score.shape == (2, 3)
        assert np.isfinite(pick.score).all()
        stated = rule.propensities(belief, arms, rng)
        assert stated.values.shape == (2, 3, 5)
        np.testing.assert_allclose(stated.values.sum(-1), 1.0)

    def test_ucb_adds_the_mixtures_deviation(self):
        belief = some_belief()
        mean, covariance = moments_of(belief)
        deviation = np.sqrt(np.einsum("ki,ij,kj->k", self.ARMS, covariance, self.ARMS))
        index = self.ARMS @ mean + 1.5 * deviation
        pick = hs.UCB(1.5).choose(belief, self.ARMS, np.random.default_rng(0))
        assert pick.arm == index.argmax()
        assert pick.score == pytest.approx(index.max())

    @pytest.mark.parametrize("radius", ["theory", "paper"])
    def test_a_radius_that_needs_a_bias_is_refused(self, radius):
        with pytest.raises(hs.InputError, match="radius must be a number for a MixtureBelief"):
            hs.UCB(radius).choose(some_belief(), self.ARMS, np.random.default_rng(0))


class TestRecords:
    def test_arrays_cannot_be_written_to_and_arguments_are_left_alone(self):
        rng = np.random.default_rng(14)
        prior = random_mixture(rng, 3, 2)
        x, r = rng.standard_normal(3), 0.5
        kept = x.copy(), prior.log_weights.copy(), prior.parts.mean.copy()
        start = prior.belief()
        after = start.update(x, r)
        at_once = prior.belief(hs.Evidence.of(x[None], [r]))
        stacked = MixturePrior.stack([prior, prior.with_groups(3)])
        for record in (prior, stacked, start, after, at_once):
            for array in (record.log_weights, record.parts.mean, record.parts.root):
                assert not array.flags.writeable
        x[:] = 0.0
        assert_agree(after, at_once)
        np.testing.assert_array_equal(prior.log_weights, kept[1])
        np.testing.assert_array_equal(prior.parts.mean, kept[2])
        assert (kept[0] != x).all()

    def test_they_are_compared_printed_and_copied_like_other_records(self):
        prior = random_mixture(np.random.default_rng(15), 2, 2)
        for thing in (prior, prior.belief(), some_belief()):
            for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
                assert type(twin) is type(thing)
                assert twin == thing
                assert repr(twin) == repr(thing)
            assert thing != thing.replace(log_weights=thing.log_weights - 1.0)
        assert isinstance(prior.belief(), MixtureBelief)
        assert repr(prior).startswith("MixturePrior(parts=Prior(")
