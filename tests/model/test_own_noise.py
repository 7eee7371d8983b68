"""The noise of one task: its estimate from few rewards, and what it does to intervals."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.model.own_noise import reward_scale, t_quantile, task_noise


def log_posterior(log_ratio, prior, x, r):
    """Of c = R²/R₀², in log c, up to a constant: rewards are Gaussian given R, θ integrated out."""
    ratio, unit = np.exp(log_ratio), prior.noise**2
    covariance = x @ prior.covariance @ x.T + ratio * unit * np.eye(len(r))
    likelihood = scipy.stats.multivariate_normal(x @ prior.mean, covariance).logpdf(r)
    dof = prior.noise_dof
    return likelihood - dof / 2 * log_ratio - dof / (2 * ratio)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 6, 20]), st.sampled_from([1.5, 4.0, 20.0]))
def test_the_noise_of_a_task_is_the_likeliest_given_its_rewards(seed, rounds, dof):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4)) * np.array([1.0, 1.0, 0.1, 1e-3])
    mean = rng.normal(size=4)
    prior = hs.Prior(mean, root, noise=0.5, noise_dof=dof)
    x = rng.normal(size=(rounds, 4))
    noise = 0.5 * np.sqrt(dof / rng.chisquare(dof))
    r = x @ (mean + 0.5 * root @ rng.normal(size=4)) + noise * rng.normal(size=rounds)
    estimate = task_noise(prior, hs.Evidence.of(x, r))
    at = 2 * np.log(estimate / 0.5)
    step = 1e-3
    slope, bend = (
        np.dot(weights, [log_posterior(at + move, prior, x, r) for move in (-step, 0, step)])
        for weights in ([-0.5 / step, 0, 0.5 / step], [1 / step**2, -2 / step**2, 1 / step**2])
    )
    # How far Newton's method would still go.
    assert abs(slope / min(bend, -0.1)) < 0.05


def test_a_single_noise_is_left_alone():
    prior = hs.Prior.gaussian([0.0, 0.0], np.eye(2), noise=0.3)
    assert task_noise(prior, hs.Evidence.of(np.eye(2), [5.0, -5.0])) == 0.3
    assert hs.Belief.start(prior).degrees_of_freedom() == (np.inf, np.inf)


@pytest.mark.parametrize("rounds", [1, 3, 40])
def test_evidence_in_single_precision_gives_the_same_noise(rounds):
    """What rounding adds to the rank of a few contexts does not count."""
    rng = np.random.default_rng(rounds)
    root = rng.standard_normal((6, 6)) / 3
    prior = hs.Prior(rng.standard_normal(6), root, noise=0.5, noise_dof=8.0)
    for _ in range(10):
        x, r = rng.standard_normal((rounds, 6)), 5.0 * rng.standard_normal(rounds)
        exact, rounded = (
            task_noise(prior, hs.Evidence.of(x.astype(kind), r.astype(kind)))
            for kind in (np.float64, np.float32)
        )
        assert rounded == pytest.approx(exact, rel=1e-4)


def test_the_distribution_of_a_reward_is_that_of_its_larger_part():
    for dof in (1.0, 3.0, 50.0):
        scale, found = reward_scale(np.array([0.0, 1e3]), dof + 7.0, dof)
        np.testing.assert_allclose(found, [dof, dof + 7.0], rtol=1e-3)
        np.testing.assert_allclose(scale, [1.0, 1e3], rtol=1e-3)
    scale, found = reward_scale(np.array([1.0]), np.inf, np.inf)
    assert np.isinf(found)
    assert scale == pytest.approx(math.sqrt(2.0))


@pytest.mark.parametrize("noise_dof", [2.0, 4.0, 30.0])
@pytest.mark.parametrize("more", [5.0, np.inf])
def test_intervals_of_rewards_hold_as_much_as_they_say(noise_dof, more):
    """What the sum of w t₁ and t₂ has in them, by the integral over t₂."""
    width, mean_dof = np.array([0.3, 1.0, 2.5, 6.0]), noise_dof + more
    part = scipy.stats.norm if np.isinf(more) else scipy.stats.t(mean_dof)
    noise = scipy.stats.t(noise_dof).ppf((np.arange(20_000) + 0.5) / 20_000)
    scale, dof = reward_scale(width, mean_dof, noise_dof)
    for level, least, most in ((0.8, 0.77, 0.81), (0.9, 0.885, 0.91), (0.95, 0.945, 0.962)):
        for w, half in zip(width, scale * t_quantile(level, dof), strict=True):
            inside = (part.cdf((half - noise) / w) - part.cdf((-half - noise) / w)).mean()
            assert least < inside < most


@pytest.fixture(scope="module")
def noisy_bandit():
    """A bandit fitted to tasks whose noise differs by a factor of ten and more, ν = 2."""
    rng = np.random.default_rng(0)
    tasks, rounds = 200, 15
    x, r, _ = noisy_tasks(rng, tasks, rounds)
    rows = {"task": np.repeat(np.arange(tasks), rounds), "reward": r.ravel()}
    rows |= {"a": x[..., 0].ravel(), "b": x[..., 1].ravel()}
    return hs.Bandit(dim=2, seed=0).fit(rows, task="task", reward="reward")


def noisy_tasks(rng, tasks, rounds):
    noise = 0.5 * np.sqrt(2 / rng.chisquare(2, size=(tasks, 1)))
    x = rng.normal(size=(tasks, rounds, 2))
    theta = np.array([1.0, -1.0]) + 0.5 * rng.normal(size=(tasks, 2))
    mean = 3.0 + np.einsum("nkd,nd->nk", x, theta)
    return x, mean + noise * rng.normal(size=(tasks, rounds)), mean


def test_intervals_of_tasks_that_differ_in_noise_hold_from_the_first_reward_on(noisy_bandit):
    inside = {"reward": [], "99": [], "mean": []}
    errors = []
    new_tasks = zip(*noisy_tasks(np.random.default_rng(1), 150, 8), strict=True)
    for at, (x, r, mean) in enumerate(new_tasks):
        task = noisy_bandit.task(f"new {at}")
        for row, reward, expected in zip(x, r, mean, strict=True):
            for name, level in (("reward", 0.9), ("99", 0.99)):
                interval = task.predict([row], level, of_reward=True)
                inside[name].append(interval.lower[0] <= reward <= interval.upper[0])
            interval = task.predict([row], 0.9)
            inside["mean"].append(interval.lower[0] <= expected <= interval.upper[0])
            errors.append(interval.mean[0] - expected)
            task.observe([row], [reward])
        task.delete()
    # With one noise for all tasks: 0.78, 0.90, 0.80, and an error of 0.81.
    assert 0.85 < np.mean(inside["reward"]) < 0.95
    assert np.mean(inside["99"]) > 0.97
    assert 0.85 < np.mean(inside["mean"]) < 0.95
    assert np.sqrt(np.mean(np.square(errors))) < 0.65
