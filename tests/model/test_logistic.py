"""Rewards of 0 and 1 as rounds of a linear model, against independent solvers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.special import expit

import headstart as hs
from headstart.model.logistic import (
    expected_probability,
    linearize,
    posterior_evidence,
    posterior_mode,
)

MEANS = st.floats(-200.0, 200.0)
VARIANCES = st.floats(-8.0, 12.0).map(lambda power: 10.0**power)


def brent_mode(mean, variance, reward):
    """The mode by Brent's method; r − σ(e) is written so that it keeps its digits."""
    sign = 2 * reward - 1

    def slope(odds):
        return odds - mean - variance * sign * expit(-sign * odds)

    ends = sorted((mean, mean + variance * sign * expit(-sign * mean)))
    for end, sign_there in zip(ends, (-1.0, 1.0), strict=True):
        if slope(end) * sign_there <= 0:  # it is the root, but for rounding
            return end
    return brentq(slope, *ends, xtol=1e-13, rtol=1e-14)


@given(mean=MEANS, variance=VARIANCES, reward=st.sampled_from([0, 1]))
def test_the_mode_is_that_of_brents_method(mean, variance, reward):
    sign = 2 * reward - 1
    wanted = brent_mode(mean, variance, reward)
    found = sign * posterior_mode(sign * mean, variance)
    assert found == pytest.approx(wanted, rel=1e-8, abs=1e-8)


@given(
    mean=st.floats(-60.0, 60.0).map(lambda power: np.sign(power) * 10.0 ** abs(power)),
    variance=st.floats(-12.0, 120.0).map(lambda power: 10.0**power),
)
def test_the_mode_is_found_however_large_contexts_are(mean, variance):
    mode = posterior_mode(float(mean), variance)
    miss = expit(-mode)
    bend = 1.0 + variance * miss * (1.0 - miss)
    error = mode - mean - variance * miss
    assert abs(error) <= 4e-9 * (1.0 + abs(mode)) * bend + 1e-14 * abs(mean)


def gaussian_mean(function, mean, variance):
    """The mean of a function of e ~ N(mean, variance)."""
    spread = np.sqrt(variance)
    density = lambda z: np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)  # noqa: E731
    return quad(lambda z: density(z) * function(mean + spread * z), -12.0, 12.0)[0]


def dense_steps(prior, contexts, clicks):
    """Mean and covariance after rewards, one by one, with dense matrices and Brent's method."""
    mean, covariance = prior.mean.copy(), prior.covariance.copy()
    for x, r in zip(contexts, clicks, strict=True):
        mode = brent_mode(float(x @ mean), float(x @ covariance @ x), int(r))
        spread = 1.0 / (expit(mode) * expit(-mode) + 1.0 / (x @ covariance @ x))
        chance = gaussian_mean(expit, mode, min(spread, 2.0))
        curvature = gaussian_mean(lambda e: expit(e) * expit(-e), mode, min(spread, 1.0))
        miss = 1.0 - chance if r else chance
        curvature = max(curvature, miss**2 / (-2.0 * np.log(1.0 - miss)))
        target = mode + (r - chance) / curvature
        gain = covariance @ x / (1.0 / curvature + x @ covariance @ x)
        mean = mean + gain * (target - x @ mean)
        covariance = covariance - np.outer(gain, covariance @ x)
    return mean, covariance


def sequence(prior, contexts, clicks):
    """The belief after rewards one by one, and their evidence."""
    belief, evidence = prior.belief(), hs.Evidence.zero(prior.dim)
    for x, r in zip(contexts, clicks, strict=True):
        row, target = linearize(belief, x, float(r))
        belief, evidence = belief.learn(row, target), evidence.add(row, target)
    return belief, evidence


def clicks_of(seed, rounds, theta, level):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((rounds, len(theta)))
    contexts[:, -1] = 1.0
    odds = contexts[:, :-1] @ theta[:-1] + level
    return contexts, rng.random(rounds) < expit(odds)


def test_beliefs_and_evidence_are_those_of_dense_steps():
    contexts, clicks = clicks_of(0, 80, np.array([1.0, -2.0, 0.0]), -1.0)
    prior = hs.Prior.gaussian([0.2, 0.0, -1.0], np.diag([1.0, 2.0, 4.0]))
    belief, evidence = sequence(prior, contexts, clicks)
    mean, covariance = dense_steps(prior, contexts, clicks)
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(belief.covariance, covariance, rtol=1e-3, atol=1e-5)
    again = prior.belief(evidence)
    np.testing.assert_allclose(again.mean, belief.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(again.covariance, belief.covariance, rtol=1e-7, atol=1e-9)
    assert evidence.rounds == 80


@pytest.mark.parametrize("level", [-3.0, 0.0, 1.5])
def test_the_posterior_in_two_dimensions_is_near_the_exact_one(level):
    """Errors in units of the exact standard deviation; a Gaussian has none of the skewness."""
    prior = hs.Prior.gaussian([0.5, level], np.diag([1.0, 0.5]))
    axis = np.linspace(-4.5, 4.5, 91)
    grid = prior.mean + np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    away, wide = [], []
    for seed in range(12):
        theta = prior.mean + np.random.default_rng(seed).standard_normal(2) * (1.0, 0.7)
        contexts, clicks = clicks_of(seed, 60, theta, theta[1])
        log = -np.logaddexp(0.0, (1.0 - 2.0 * clicks) * (grid @ contexts.T)).sum(1)
        log = log - 0.5 * ((grid - prior.mean) ** 2 / np.diag(prior.covariance)).sum(1)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ grid
        deviation = np.sqrt(weight @ (grid - mean) ** 2)
        belief, _ = sequence(prior, contexts, clicks)
        away.append((belief.mean - mean) / deviation)
        wide.append(np.sqrt(np.diag(belief.covariance)) / deviation)
    assert np.abs(np.mean(away, 0)).max() < 0.2
    assert np.abs(away).max() < 0.5
    assert 0.8 < np.min(wide) < np.max(wide) < 1.2


@pytest.mark.parametrize(("mean", "variance"), [(-3.7, 1.25), (-3.0, 2.0), (0.0, 1.25)])
def test_predicted_rates_are_nearly_those_of_the_population(mean, variance):
    """Over all sequences of 8 rewards, exact posteriors predict the prior's rate on average."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(80)
    chances, shares = expit(mean + np.sqrt(variance) * nodes), shares / shares.sum()

    def total(belief, clicks, misses):
        """The predicted rate times the probability of a sequence, over all that begin like this."""
        if clicks + misses == 8:
            rate = expected_probability(belief.mean[0], np.sqrt(belief.covariance[0, 0]))
            return float(rate * (shares @ (chances**clicks * (1.0 - chances) ** misses)))
        one, zero = (belief.learn(*linearize(belief, np.ones(1), r)) for r in (1.0, 0.0))
        return total(one, clicks + 1, misses) + total(zero, clicks, misses + 1)

    prior = hs.Prior.gaussian([mean], [[variance]])
    assert 0.999 < total(prior.belief(), 0, 0) / (shares @ chances) < 1.08


@given(
    x=st.lists(st.floats(-30.0, 30.0), min_size=2, max_size=2),
    r=st.sampled_from([0.0, 1.0]),
    weight=st.floats(0.1, 10.0),
)
def test_a_click_on_x_is_no_click_on_minus_x(x, r, weight):
    belief = hs.Prior.gaussian([0.5, -1.0], [[2.0, 0.3], [0.3, 1.0]]).belief()
    row, target = linearize(belief, np.array(x), r, weight)
    other, opposite = linearize(belief, -np.array(x), 1.0 - r, weight)
    np.testing.assert_allclose(other, -row, rtol=1e-9)
    assert opposite == pytest.approx(-target, rel=1e-6, abs=1e-9)
    two = np.array([x, x])
    batch = hs.Prior.stack([belief.prior, belief.prior]).belief()
    rows, targets = linearize(batch, two, np.array([r, r]), weight)
    np.testing.assert_allclose(rows[1], row, rtol=1e-9)
    assert targets[1] == pytest.approx(target, rel=1e-6, abs=1e-9)


def test_a_weight_counts_like_repetitions():
    prior = hs.Prior.isotropic(1)
    for r in (0.0, 1.0):
        row, target = linearize(prior.belief(), np.array([1.0]), r, 4.0)
        belief = prior.belief().learn(row, target)
        repeated, _ = sequence(prior, np.ones((4, 1)), [r] * 4)
        assert abs(belief.mean[0] - repeated.mean[0]) < 0.15
        assert belief.covariance[0, 0] == pytest.approx(repeated.covariance[0, 0], rel=0.2)


@pytest.mark.parametrize("level", [-4.0, 0.0, 30.0])  # 30: every reward is 1
def test_evidence_around_the_posterior_is_that_of_the_nearest_gaussian(level):
    """By minimizing the Kullback-Leibler divergence over means and Cholesky factors."""
    contexts, clicks = clicks_of(3, 80, np.array([2.0, -1.0, 0.0]), level)
    weights = np.random.default_rng(0).uniform(0.5, 3.0, 80)
    prior = hs.Prior.gaussian([0.5, 0.0, -1.0], [[1.0, 0.5, 0.0], [0.5, 2.0, 0.0], [0.0, 0.0, 9.0]])
    precision, signs = np.linalg.inv(prior.covariance), 2.0 * clicks - 1.0
    nodes, shares = np.polynomial.hermite_e.hermegauss(60)
    shares /= shares.sum()

    def odds_of(values):
        factor = np.zeros((3, 3))
        factor[np.tril_indices(3)] = values[3:]
        spread = np.linalg.norm(contexts @ factor, axis=1)
        return factor, (contexts @ values[:3])[:, None] + spread[:, None] * nodes

    def divergence(values):
        factor, odds = odds_of(values)
        away = values[:3] - prior.mean
        entropy = np.log(np.abs(np.diag(factor))).sum()
        prior_part = away @ precision @ away / 2 + np.trace(precision @ factor @ factor.T) / 2
        return prior_part - entropy + weights @ (np.logaddexp(0, -signs[:, None] * odds) @ shares)

    start = np.append(prior.mean, np.eye(3)[np.tril_indices(3)])
    best = minimize(divergence, start, method="BFGS", options={"gtol": 1e-7}).x
    factor, odds = odds_of(best)
    missed = expit(-signs[:, None] * odds) @ shares
    bend = (expit(odds) * expit(-odds)) @ shares
    inverse = np.linalg.inv(precision + (contexts.T * (weights * bend)) @ contexts)
    np.testing.assert_allclose(inverse, factor @ factor.T, rtol=1e-2, atol=1e-4)
    # A parabola rises from a reward that was not expected by no more than the likelihood does.
    bend = np.maximum(bend, missed**2 / (-2.0 * np.log1p(-missed)))
    inverse = np.linalg.inv(precision + (contexts.T * (weights * bend)) @ contexts)
    order = np.random.default_rng(1).permutation(80)
    for rows in (np.arange(80), order):
        found = posterior_evidence(prior, contexts[rows], clicks[rows], weights[rows])
        assert found.rounds == pytest.approx(weights.sum())
        belief = prior.belief(found)
        np.testing.assert_allclose(belief.mean, best[:3], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(belief.covariance, inverse, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("deviation", [0.0, 0.1, 1.0, 5.0, 19.0, 40.0])
def test_expected_probabilities_are_integrals(deviation):
    for mean in (-9.0, -3.0, 0.0, 2.5):

        def integrand(z, mean=mean):
            return expit(mean + deviation * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

        step = min(max(-mean / deviation, -8.0), 8.0) if deviation else 0.0
        wanted = quad(integrand, -9.0, 9.0, points=[step], limit=200)[0]
        found = float(expected_probability(np.array(mean), np.array(deviation)))
        assert found == pytest.approx(wanted, rel=1e-9 if deviation < 6 else 2e-3)
