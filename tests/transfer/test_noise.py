"""The noise scale R: from residuals, in the rewards' unit, and never quite zero."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.transfer.noise import LAMBDA_GRID, NoiseScale, Spectrum, task_scale

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def estimate(evidences, weights=None, noise=None):
    """R after these tasks."""
    scale = NoiseScale.start(noise)
    for at, evidence in enumerate(evidences):
        scale = scale.fold(evidence, 1.0 if weights is None else weights[at])
    return scale.value


def simulated(rng, tasks, rounds, dim, noise=0.3, spread=1.0):
    contexts = rng.standard_normal((tasks, rounds, dim))
    thetas = spread * rng.standard_normal((tasks, dim))
    rewards = (contexts @ thetas[..., None])[..., 0] + noise * rng.standard_normal((tasks, rounds))
    return [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]


def test_residual_estimate_by_hand():
    # One feature, always 1: each task is a mean ± s. 12 rounds leave RSS = 12 s² and 11 degrees of
    # freedom; s = 1 around 5 and s = 2 around −3 give R² = (12 + 48)/22.
    first = hs.Evidence.of(np.ones((12, 1)), 5.0 + np.tile([1.0, -1.0], 6))
    second = hs.Evidence.of(np.ones((12, 1)), -3.0 + np.tile([2.0, -2.0], 6))
    assert estimate([first, second]) == pytest.approx(math.sqrt(60 / 22))


def test_weights_count_tasks():
    first = hs.Evidence.of(np.ones((12, 1)), 5.0 + np.tile([1.0, -1.0], 6))
    second = hs.Evidence.of(np.ones((12, 1)), -3.0 + np.tile([2.0, -2.0], 6))
    weighted = estimate([first, second], weights=[1.0, 3.0])
    assert weighted == pytest.approx(math.sqrt((12 + 3 * 48) / 44))
    assert estimate([first, second, second], [1.0, 3.0, -2.0]) == pytest.approx(
        estimate([first, second])
    )


@on_random_instances
@given(seeds)
def test_residual_estimate_is_least_squares(seed):
    rng = np.random.default_rng(seed)
    squares, dof, evidences = 0.0, 0, []
    for _ in range(4):
        contexts, rewards = rng.standard_normal((12, 4)), rng.standard_normal(12)
        theta = np.linalg.lstsq(contexts, rewards, rcond=None)[0]
        squares += ((rewards - contexts @ theta) ** 2).sum()
        dof += 12 - 4
        evidences.append(hs.Evidence.of(contexts, rewards))
    assert estimate(evidences) == pytest.approx(math.sqrt(squares / dof), rel=1e-8)


def test_a_singular_gram_leaves_more_freedom():
    # The second feature is never shown: rank 1, so 24 − 1 degrees of freedom.
    contexts = np.column_stack([np.ones(24), np.zeros(24)])
    evidence = hs.Evidence.of(contexts, 5.0 + np.tile([1.0, -1.0], 12))
    assert estimate([evidence]) == pytest.approx(math.sqrt(24 / 23))


def test_short_tasks_use_the_marginal_likelihood_by_hand():
    # One feature, 1; rewards 1 and 3. θ ~ N(0, R²): n R² = Σr² − moment²/(gram + 1) = 10 − 16/3.
    evidence = hs.Evidence.of([[1.0], [1.0]], [1.0, 3.0])
    assert estimate([evidence]) == pytest.approx(math.sqrt((10 - 16 / 3) / 2))


@on_random_instances
@given(seeds)
def test_marginal_estimate_is_the_quadratic_form_of_the_marginal(seed):
    rng = np.random.default_rng(seed)
    total, rounds, evidences = 0.0, 0, []
    for _ in range(3):
        contexts, rewards = rng.standard_normal((3, 5)), rng.standard_normal(3)
        marginal = np.eye(3) + contexts @ contexts.T
        total += rewards @ np.linalg.solve(marginal, rewards)
        rounds += 3
        evidences.append(hs.Evidence.of(contexts, rewards))
    assert estimate(evidences) == pytest.approx(math.sqrt(total / rounds), rel=1e-7)


def test_tasks_as_long_as_their_dimension_leave_no_residuals_to_trust():
    rng = np.random.default_rng(0)
    found = estimate(simulated(rng, tasks=50, rounds=5, dim=5))
    assert 0.3 <= found < 1.5  # errs on the large side


def test_close_to_the_truth():
    rng = np.random.default_rng(1)
    for noise in (0.05, 0.3, 2.0):
        assert estimate(simulated(rng, 60, 30, 5, noise)) == pytest.approx(noise, rel=0.06)
        # Two rounds more than dimensions are enough if there are many tasks, and no bias is left.
        assert estimate(simulated(rng, 1500, 7, 5, noise)) == pytest.approx(noise, rel=0.06)


@on_random_instances
@given(seeds, st.floats(1e-5, 1e5), st.integers(1, 12))
def test_the_unit_of_rewards_is_the_unit_of_noise(seed, unit, rounds):
    rng = np.random.default_rng(seed)
    contexts, rewards = rng.standard_normal((6, rounds, 3)), rng.standard_normal((6, rounds))
    one = estimate([hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)])
    other = estimate([hs.Evidence.of(x, unit * r) for x, r in zip(contexts, rewards, strict=True)])
    assert other == pytest.approx(unit * one, rel=1e-8)


def test_rewards_without_noise_do_not_make_it_zero():
    rng = np.random.default_rng(2)
    contexts = rng.standard_normal((100, 3))
    found = estimate([hs.Evidence.of(contexts, contexts @ [1.0, 2.0, 3.0])])
    marginal = estimate([hs.Evidence.of(contexts[:10], contexts[:10] @ [1.0, 2.0, 3.0])])
    assert 0 < found < 0.01 * marginal


def test_nothing_known_is_one():
    assert estimate([]) == 1.0
    assert estimate([hs.Evidence.of(np.ones((9, 1)), np.zeros(9))]) == 1.0


def test_given_noise_is_kept():
    rng = np.random.default_rng(3)
    assert estimate(simulated(rng, 5, 30, 3), noise=0.7) == 0.7


def test_batch_axes_are_a_loop():
    rng = np.random.default_rng(4)
    contexts, rewards = rng.standard_normal((3, 2, 25, 4)), rng.standard_normal((3, 2, 25))
    scale = NoiseScale.start(None, (2,))
    for x, r in zip(contexts, rewards, strict=True):
        evidence = hs.Evidence.of(x, r)
        scale = scale.fold(evidence, 1.0)
    for at in range(2):
        alone = estimate([hs.Evidence.of(contexts[k, at], rewards[k, at]) for k in range(3)])
        assert scale.value[at] == pytest.approx(alone)


class TestOwnScale:
    """R and λ of one task, where no other can tell."""

    @on_random_instances
    @given(seeds, st.integers(1, 15))
    def test_they_are_the_likeliest_of_a_grid(self, seed, rounds):
        """Under r ~ N(0, R² (I + X Xᵀ/λ)), with log₁₀ (λ/mean ‖x‖²) ~ N(0, 1), R² at its best."""
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((rounds, 4))
        rewards = contexts @ rng.standard_normal(4) * 3 + rng.standard_normal(rounds)
        noise, lam = task_scale(hs.Evidence.of(contexts, rewards))
        grid = LAMBDA_GRID * (contexts**2).sum(1).mean()
        variances, scores = [], []
        for value in grid:
            marginal = np.eye(rounds) + contexts @ contexts.T / value
            square = rewards @ np.linalg.solve(marginal, rewards) / rounds
            variances.append(square)
            scores.append(-0.5 * rounds * np.log(square) - 0.5 * np.linalg.slogdet(marginal)[1])
        scores -= 0.5 * np.log10(LAMBDA_GRID) ** 2
        best = int(np.argmin(np.abs(grid - lam)))
        assert scores[best] >= max(scores) - 1e-6
        assert lam == pytest.approx(grid[best])
        assert noise == pytest.approx(math.sqrt(variances[best]), rel=1e-5)

    def test_with_many_rounds_they_are_those_of_the_task(self):
        rng = np.random.default_rng(0)
        for size, scale in ((0.1, 1.0), (3.0, 0.5), (20.0, 2.0)):
            theta, contexts = size * rng.standard_normal(8), rng.standard_normal((400, 8))
            rewards = contexts @ theta + scale * rng.standard_normal(400)
            noise, lam = task_scale(hs.Evidence.of(contexts, rewards))
            assert noise == pytest.approx(scale, rel=0.1)
            assert 1 / 3 < lam / (scale**2 / np.mean(theta**2)) < 3

    @pytest.mark.parametrize("rounds", [1, 2, 3, 20])
    @pytest.mark.parametrize("unit", [1e-3, 1e3])
    def test_units_of_rewards_and_contexts_go_through(self, rounds, unit):
        rng = np.random.default_rng(rounds)
        contexts, rewards = rng.standard_normal((rounds, 3)), rng.standard_normal(rounds)
        noise, lam = task_scale(hs.Evidence.of(contexts, rewards))
        assert task_scale(hs.Evidence.of(contexts, unit * rewards)) == pytest.approx(
            (unit * noise, lam)
        )
        assert task_scale(hs.Evidence.of(unit * contexts, rewards)) == pytest.approx(
            (noise, unit**2 * lam)
        )

    def test_both_are_one_before_the_first_reward_that_is_not_zero(self):
        assert task_scale(hs.Evidence.zero(3)) == (1.0, 1.0)
        assert task_scale(hs.Evidence.of(np.eye(3), np.zeros(3))) == (1.0, 1.0)

    def test_rewards_without_noise_or_contexts_of_zero_stay_finite(self):
        for contexts, rewards in ((np.eye(3), [1.0, 2.0, 3.0]), (np.zeros((2, 3)), [1.0, 1.0])):
            noise, lam = task_scale(hs.Evidence.of(contexts, rewards))
            assert 0 < noise < np.inf
            assert 0 < lam < np.inf

    def test_batch_axes_are_a_loop(self):
        rng = np.random.default_rng(6)
        contexts, rewards = rng.standard_normal((3, 9, 4)), rng.standard_normal((3, 9))
        rewards[1] = 0.0
        noise, lam = task_scale(hs.Evidence.of(contexts, rewards))
        for at in range(3):
            alone = task_scale(hs.Evidence.of(contexts[at], rewards[at]))
            assert (noise[at], lam[at]) == pytest.approx(alone)


def test_spectrum_gives_estimate_error_and_blanks_of_dense_algebra():
    rng = np.random.default_rng(5)
    evidence = hs.Evidence.of(rng.standard_normal((9, 3)), rng.standard_normal(9))
    spectrum = Spectrum.of(evidence)
    for lam in (0.0, 0.3):
        inverse = np.linalg.inv(evidence.gram + lam * np.eye(3))
        np.testing.assert_allclose(spectrum.estimate(lam), inverse @ evidence.moment)
        np.testing.assert_allclose(spectrum.error(lam), inverse @ evidence.gram @ inverse)
        blank = np.eye(3) - inverse @ evidence.gram
        np.testing.assert_allclose(spectrum.squared_bias(lam), blank @ blank, atol=1e-12)
