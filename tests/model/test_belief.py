"""A belief is prior ⊕ evidence: the same by rank-one updates, all at once, or a dense solve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import BayesianRidge, Ridge

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
dims = st.integers(1, 6)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def random_rounds(rng, rounds, dim, batch=()):
    contexts = rng.standard_normal((*batch, rounds, dim))
    return contexts, rng.standard_normal((*batch, rounds))


def random_prior(rng, dim, batch=()):
    """A prior with a non-zero mean and a root that is neither symmetric nor triangular."""
    mean = rng.standard_normal((*batch, dim))
    root = rng.standard_normal((*batch, dim, dim)) + 2.0 * np.eye(dim)
    return hs.Prior(mean, root, noise=0.3, bias=0.5)


def learned(prior, contexts, rewards):
    """The belief by rank-one updates."""
    belief = hs.Belief.start(prior)
    for x, r in zip(contexts, rewards, strict=True):
        belief = belief.learn(x, r)
    return belief


def dense(prior, contexts, rewards):
    """Mean, covariance (in units of R²) and log det B by inverting B as it is written."""
    start = np.linalg.inv(prior.root @ prior.root.T)
    b = start + contexts.T @ contexts
    mean = np.linalg.solve(b, start @ prior.mean + contexts.T @ rewards)
    return mean, np.linalg.inv(b), np.linalg.slogdet(b)[1]


def assert_agree(left, right, tolerance=1e-10):
    np.testing.assert_allclose(left.mean, right.mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(left.covariance, right.covariance, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(left.log_det, right.log_det, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(left.rounds, right.rounds)


def test_one_round_by_hand():
    # λ = 1, x = (1, 0), r = 3: B = diag(2, 1), so θ̂ = (3/2, 0) and log det B = log 2.
    belief = hs.Belief.start(hs.Prior.isotropic(2)).learn([1.0, 0.0], 3.0)
    np.testing.assert_allclose(belief.mean, [1.5, 0.0])
    np.testing.assert_allclose(belief.covariance, [[0.5, 0.0], [0.0, 1.0]])
    assert belief.log_det == pytest.approx(np.log(2.0))
    assert belief.information == pytest.approx(np.log(2.0))
    assert belief.rounds == 1
    np.testing.assert_allclose(belief.width(np.eye(2)), [np.sqrt(0.5), 1.0])
    np.testing.assert_allclose(belief.predict(np.array([[2.0, 7.0]])), [3.0])


def test_covariance_and_noise_are_in_rewards_units_before_and_after():
    """A prior and its belief mean the same by covariance, whatever R is."""
    prior = hs.Prior.isotropic(2, lam=4.0, noise=0.5)
    belief = prior.belief()
    np.testing.assert_allclose(prior.covariance, np.eye(2) / 16)
    np.testing.assert_array_equal(belief.covariance, prior.covariance)
    after = belief.learn([2.0, 0.0], 1.0)  # precision 16 + 4/R² = 32
    np.testing.assert_allclose(after.covariance, np.diag([1 / 32, 1 / 16]))
    deviation = after.noise * after.width(np.eye(2))
    np.testing.assert_allclose(deviation**2, np.diagonal(after.covariance))


def test_before_any_reward_it_is_the_prior():
    prior = random_prior(np.random.default_rng(0), 3)
    for belief in (hs.Belief.start(prior), hs.Belief.of(prior, hs.Evidence.zero(3))):
        np.testing.assert_allclose(belief.mean, prior.mean)
        np.testing.assert_allclose(belief.covariance, prior.covariance)
        assert belief.log_det == pytest.approx(prior.log_det)
        assert (belief.rounds, belief.noise) == (0, 0.3)


@on_random_instances
@given(seeds, dims, st.integers(0, 20))
def test_rank_one_updates_are_the_dense_solve(seed, dim, rounds):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, dim)
    contexts, rewards = random_rounds(rng, rounds, dim)
    belief = learned(prior, contexts, rewards)
    mean, covariance, log_det = dense(prior, contexts, rewards)
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        belief.covariance, prior.noise**2 * covariance, rtol=1e-7, atol=1e-7 * prior.noise**2
    )
    assert belief.log_det == pytest.approx(log_det, abs=1e-7)


@on_random_instances
@given(seeds, dims, st.integers(0, 20))
def test_all_at_once_is_the_sequence_of_updates(seed, dim, rounds):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, dim)
    contexts, rewards = random_rounds(rng, rounds, dim)
    at_once = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
    assert_agree(at_once, learned(prior, contexts, rewards), 1e-8)


@on_random_instances
@given(seeds, st.permutations(range(15)))
def test_order_of_rewards_does_not_matter(seed, order):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, 4)
    contexts, rewards = random_rounds(rng, 15, 4)
    assert_agree(
        learned(prior, contexts, rewards), learned(prior, contexts[order], rewards[order]), 1e-10
    )


@on_random_instances
@given(seeds, st.floats(0.01, 100.0))
def test_mean_is_scikit_learns_ridge_around_the_prior_mean(seed, lam):
    rng = np.random.default_rng(seed)
    contexts, rewards = random_rounds(rng, 12, 4)
    centre = rng.standard_normal(4)
    belief = learned(hs.Prior.isotropic(4, lam=lam, mean=centre), contexts, rewards)
    ridge = Ridge(alpha=lam, fit_intercept=False).fit(contexts, rewards - contexts @ centre)
    np.testing.assert_allclose(belief.mean, centre + ridge.coef_, rtol=1e-7, atol=1e-8)


def test_mean_covariance_and_predictive_deviation_are_those_of_bayesian_ridge():
    rng = np.random.default_rng(3)
    contexts = rng.standard_normal((60, 5))
    rewards = contexts @ rng.standard_normal(5) + 0.2 * rng.standard_normal(60)
    model = BayesianRidge(fit_intercept=False, tol=1e-10, max_iter=1000).fit(contexts, rewards)
    # Its α is 1/R², its λ the precision of θ: our λ = λ/α.
    noise = model.alpha_**-0.5
    prior = hs.Prior.isotropic(5, lam=model.lambda_ / model.alpha_, noise=noise)
    belief = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
    np.testing.assert_allclose(belief.mean, model.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(belief.covariance, model.sigma_, rtol=1e-5, atol=1e-9)
    arms = rng.standard_normal((7, 5))
    mean, deviation = model.predict(arms, return_std=True)
    np.testing.assert_allclose(belief.predict(arms), mean, rtol=1e-5)
    np.testing.assert_allclose(noise * np.sqrt(1 + belief.width(arms) ** 2), deviation, rtol=1e-5)


def test_a_hundred_thousand_ill_conditioned_updates_stay_exact():
    dim, rounds = 50, 100_000
    rng = np.random.default_rng(4)
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    contexts = rng.standard_normal((rounds, dim)) * np.logspace(0, -4, dim) @ turn
    theta = rng.standard_normal(dim)
    rewards = contexts @ theta + 0.1 * rng.standard_normal(rounds)
    gram = contexts.T @ contexts
    assert 5e7 < np.linalg.cond(gram) < 5e8

    lam = 1e-3  # as large as the smallest eigenvalue of the gram: the prior does not hide it
    belief = hs.Belief.start(hs.Prior.isotropic(dim, lam=lam))
    for x, r in zip(contexts, rewards, strict=True):
        belief = belief.update(x, r)

    b = gram + lam * np.eye(dim)
    assert np.linalg.eigvalsh(belief.covariance)[0] > 0
    # B^½ F Fᵀ B^½ = I compares every direction on its own scale, the smallest included.
    values, vectors = np.linalg.eigh(b)
    half = (vectors * np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(half @ belief.covariance @ half, np.eye(dim), atol=1e-6)
    exact = np.linalg.solve(b, contexts.T @ rewards)
    error = belief.mean - exact
    assert np.sqrt(error @ b @ error) < 1e-6 * np.sqrt(exact @ b @ exact)
    np.testing.assert_allclose(belief.mean, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    start_log_det = dim * np.log(lam)
    assert belief.information == pytest.approx(np.linalg.slogdet(b)[1] - start_log_det, rel=1e-6)


def test_float32_is_good_to_four_digits_at_condition_ten_thousand():
    dim, rounds = 20, 5_000
    rng = np.random.default_rng(5)
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    contexts = rng.standard_normal((rounds, dim)) * np.logspace(0, -2, dim) @ turn
    rewards = contexts @ rng.standard_normal(dim) + 0.1 * rng.standard_normal(rounds)
    contexts, rewards = contexts.astype(np.float32), rewards.astype(np.float32)
    wide = contexts.astype(np.float64)
    assert 5e3 < np.linalg.cond(wide.T @ wide) < 5e4

    prior = hs.Prior(np.zeros(dim, np.float32), np.eye(dim, dtype=np.float32))
    belief = learned(prior, contexts, rewards)
    assert belief.mean.dtype == belief.root.dtype == np.float32
    b = np.eye(dim) + wide.T @ wide
    values, vectors = np.linalg.eigh(b)
    half = (vectors * np.sqrt(values)) @ vectors.T
    covariance = belief.root.astype(np.float64) @ belief.root.T.astype(np.float64)
    assert np.linalg.eigvalsh(covariance)[0] > 0
    np.testing.assert_allclose(half @ covariance @ half, np.eye(dim), atol=1e-4)
    exact = np.linalg.solve(b, wide.T @ rewards.astype(np.float64))
    np.testing.assert_allclose(belief.mean, exact, atol=1e-5 * np.abs(exact).max())


def test_a_prior_certain_of_a_direction_never_moves_there():
    prior = hs.Prior([0.5, 2.0], [[1.0, 0.0], [0.0, 0.0]])
    contexts, rewards = random_rounds(np.random.default_rng(6), 10, 2)
    for belief in (
        learned(prior, contexts, rewards),
        hs.Belief.of(prior, hs.Evidence.of(contexts, rewards)),
    ):
        assert belief.mean[1] == 2.0
        assert belief.mean[0] != 0.5
        np.testing.assert_array_equal(belief.covariance[1], [0.0, 0.0])
        assert np.isfinite(belief.information)


def test_learning_can_go_on_from_evidence():
    rng = np.random.default_rng(7)
    prior = random_prior(rng, 3)
    contexts, rewards = random_rounds(rng, 20, 3)
    belief = hs.Belief.of(prior, hs.Evidence.of(contexts[:12], rewards[:12]))
    for x, r in zip(contexts[12:], rewards[12:], strict=True):
        belief = belief.learn(x, r)
    assert_agree(belief, learned(prior, contexts, rewards))


def test_draws_have_the_beliefs_mean_and_covariance():
    rng = np.random.default_rng(8)
    belief = learned(random_prior(rng, 3), *random_rounds(rng, 4, 3))
    draws = belief.draw(np.random.default_rng(9), 2.0, size=200_000)
    assert draws.shape == (200_000, 3)
    covariance = 4.0 * belief.root @ belief.root.T
    spread = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(draws.mean(0), belief.mean, atol=5 * spread.max() / 200_000**0.5)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.02 * spread.max() ** 2)
    single = belief.draw(np.random.default_rng(9), 2.0)
    np.testing.assert_allclose(single, draws[0])  # the same generator, the same draw


def test_batch_axes_are_a_loop():
    rng = np.random.default_rng(10)
    batch = (2, 3)
    prior = random_prior(rng, 4, batch)
    contexts, rewards = random_rounds(rng, 7, 4, batch)
    stepwise = hs.Belief.start(prior)
    for k in range(7):
        stepwise = stepwise.learn(contexts[..., k, :], rewards[..., k])
    direct = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
    arms = rng.standard_normal((*batch, 5, 4))
    for at in np.ndindex(batch):
        one = hs.Prior(prior.mean[at], prior.root[at], noise=0.3)
        alone = learned(one, contexts[at], rewards[at])
        for together in (stepwise, direct):
            assert together.batch == batch
            np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-10)
            np.testing.assert_allclose(together.covariance[at], alone.covariance, atol=1e-10)
            assert together.log_det[at] == pytest.approx(alone.log_det, abs=1e-10)
            assert together.rounds[at] == 7
            np.testing.assert_allclose(
                together.predict(arms)[at], alone.predict(arms[at]), atol=1e-10
            )
            np.testing.assert_allclose(together.width(arms)[at], alone.width(arms[at]), atol=1e-10)
    assert stepwise.draw(rng, 0.3).shape == (*batch, 4)
    assert stepwise.draw(rng, np.full(batch, 0.3), size=9).shape == (9, *batch, 4)


def test_one_prior_serves_a_batch_of_evidence():
    rng = np.random.default_rng(11)
    prior = random_prior(rng, 3)
    contexts, rewards = random_rounds(rng, 6, 3, (4,))
    together = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
    for at in range(4):
        alone = hs.Belief.of(prior, hs.Evidence.of(contexts[at], rewards[at]))
        np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-10)
        np.testing.assert_allclose(together.covariance[at], alone.covariance, atol=1e-10)


def test_a_batch_of_priors_serves_one_evidence():
    rng = np.random.default_rng(12)
    prior = random_prior(rng, 3, (4,))
    evidence = hs.Evidence.of(*random_rounds(rng, 6, 3))
    together = hs.Belief.of(prior, evidence)
    assert np.shape(together.rounds) == together.batch == (4,)
    for at in range(4):
        alone = hs.Belief.of(hs.Prior(prior.mean[at], prior.root[at], noise=0.3), evidence)
        np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-10)


def test_arrays_cannot_be_written_to_and_arguments_are_left_alone():
    rng = np.random.default_rng(13)
    prior = random_prior(rng, 3, (2,))
    x, r = rng.standard_normal((2, 3)), rng.standard_normal(2)
    kept = x.copy(), r.copy()
    start = hs.Belief.start(prior)
    after = start.learn(x, r)
    at_once = hs.Belief.of(prior, hs.Evidence.of(x[:, None, :], r[:, None]))
    for belief in (start, after, at_once):
        for array in (belief.mean, belief.root, belief.information, belief.rounds):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7.0
    with pytest.raises(AttributeError):
        after.mean = np.zeros(3)
    assert (x == kept[0]).all()
    assert (r == kept[1]).all()
    before = after.mean.copy()
    x[:] = r[:] = 0.0  # the caller may go on using its arrays
    np.testing.assert_array_equal(after.mean, before)
    np.testing.assert_array_equal(start.mean, prior.mean)


def belief2():
    return hs.Belief.start(hs.Prior.isotropic(2))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: belief2().learn([1.0], 1.0), "context"),
        (lambda: belief2().learn([[1.0, 0.0]], 1.0), "context"),
        (lambda: belief2().learn([1.0, np.nan], 1.0), "context"),
        (lambda: belief2().learn([1.0, np.inf], 1.0), "context"),
        (lambda: belief2().learn("ab", 1.0), "context"),
        (lambda: belief2().learn([1.0, 0.0], np.nan), "reward"),
        (lambda: belief2().learn([1.0, 0.0], -np.inf), "reward"),
        (lambda: belief2().learn([1.0, 0.0], [1.0]), "reward"),
        (lambda: belief2().learn([1.0, 0.0], None), "reward"),
        (lambda: hs.Belief.of(hs.Prior.isotropic(2), hs.Evidence.zero(3)), "evidence"),
    ],
)
def test_bad_input_is_refused_by_name(call, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        call()


@on_random_instances
@given(seeds, st.integers(1, 12))
def test_a_task_that_alone_tells_its_noise_has_the_likeliest(seed, rounds):
    """θ ~ N(θ̂₀, R² F₀F₀ᵀ), so rewards ~ N(Xθ̂₀, R² (I + X F₀F₀ᵀ Xᵀ)); R² at its maximum."""
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, 4).replace(noise_dof=0.0)
    contexts, rewards = random_rounds(rng, rounds, 4)
    marginal = np.eye(rounds) + contexts @ prior.root @ prior.root.T @ contexts.T
    surprise = rewards - contexts @ prior.mean
    expected = np.sqrt(surprise @ np.linalg.solve(marginal, surprise) / rounds)
    found = hs.Belief.of(prior, hs.Evidence.of(contexts, rewards))
    assert found.noise == pytest.approx(expected, rel=1e-5)
    assert learned(prior, contexts, rewards).noise == pytest.approx(expected, rel=1e-5)
    assert hs.Belief.of(prior, hs.Evidence.zero(4)).noise == prior.noise
