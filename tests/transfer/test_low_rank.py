"""The low-rank population against the marginal likelihood written out, and what it recovers."""

import numpy as np
import pytest

from headstart.model.evidence import Evidence
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.fitting import (
    fit_low_rank,
    leave_one_out,
    sweep_loadings,
    sweep_mean,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, start_low_rank
from headstart.transfer.empirical_bayes.low_rank.task_precisions import task_precisions
from headstart.transfer.empirical_bayes.tasks import Tasks

DIM, RANK, NOISE = 12, 2, 0.3


def draw(seed, tasks, rounds=30, residual=0.05):
    """Rounds of tasks with θ = μ + W z + ε, their evidence, and W."""
    rng = np.random.default_rng(seed)
    mean, loadings = rng.normal(size=DIM), rng.normal(size=(DIM, RANK))
    rows = []
    for _ in range(tasks):
        theta = mean + loadings @ rng.normal(size=RANK) + residual * rng.normal(size=DIM)
        contexts = rng.normal(size=(rounds, DIM))
        rows.append((contexts, contexts @ theta + NOISE * rng.normal(size=rounds)))
    return rows, Tasks.join(*(Tasks.of(Evidence.of(*row)) for row in rows)), mean, loadings


def first_fit(seed=0):
    """A first guess that points nowhere in particular."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(DIM, DIM))
    zero = np.zeros((DIM, DIM))
    return Fit.unchecked(np.zeros(DIM), half @ half.T / DIM, zero, NOISE**2, 1e12)


def log_likelihood(low, rows):
    """The density of all rewards: r ~ N(X μ, X (W Wᵀ + σ² I) Xᵀ + R² I), task by task."""
    covariance = low.loadings @ low.loadings.T + low.residual * np.eye(DIM)
    total = 0.0
    for contexts, rewards in rows:
        spread = contexts @ covariance @ contexts.T + NOISE**2 * np.eye(len(rewards))
        away = rewards - contexts @ low.mean
        sign, logdet = np.linalg.slogdet(spread)
        assert sign > 0
        total -= 0.5 * (logdet + away @ np.linalg.solve(spread, away))
    return total


def noises(tasks):
    return np.full(len(tasks), NOISE**2)


def test_without_relevance_determination_no_sweep_lowers_the_likelihood():
    rows, tasks, _, _ = draw(0, tasks=20)
    past = Past.zero(DIM)
    low = start_low_rank(first_fit(), 20.0)
    given = task_precisions(tasks, noises(tasks), low.residual)
    found = [log_likelihood(low, rows)]
    for _ in range(25):
        low = sweep_loadings(low, given, past, automatic=False)
        found.append(log_likelihood(low, rows))
    assert np.all(np.diff(found) > -1e-8 * abs(found[0]))
    assert found[-1] > found[0] + 100
    # σ² and μ climb too; μ is not quite at the maximum, for it is shrunk.
    for _ in range(15):
        low = sweep_mean(low, task_precisions(tasks, noises(tasks), low.residual), past)
        found.append(log_likelihood(low, rows))
    assert found[-1] > found[25] + 10


def test_the_mean_is_the_posterior_mean_under_the_prior_that_is_stated():
    """μ ~ N(0, τ² I + W Wᵀ), with τ² by James and Stein; from contexts and rewards themselves."""
    rows, tasks, _, loadings = draw(2, tasks=5, rounds=8)
    low = start_low_rank(first_fit(), 5.0).replace(residual=0.02)
    low = low.replace(loadings=np.pad(loadings, ((0, 0), (0, low.loadings.shape[1] - RANK))))
    found = sweep_mean(low, task_precisions(tasks, noises(tasks), low.residual), Past.zero(DIM))
    spread = loadings @ loadings.T + low.residual * np.eye(DIM)
    inverses = [np.linalg.inv(x @ spread @ x.T + NOISE**2 * np.eye(len(r))) for x, r in rows]
    known = sum(x.T @ v @ x for v, (x, _) in zip(inverses, rows, strict=True))
    told = sum(x.T @ v @ r for v, (x, r) in zip(inverses, rows, strict=True))
    outside = np.linalg.inv(np.linalg.inv(known) + loadings @ loadings.T)
    ridge = np.linalg.inv(outside + 0.1 * DIM / np.trace(spread) * np.eye(DIM))
    centre = ridge @ outside @ np.linalg.solve(known, told)
    seen = np.trace(ridge @ outside)
    tau = (centre @ centre - np.trace(ridge @ outside @ ridge)) / seen
    assert tau > 0
    prior = tau * np.eye(DIM) + loadings @ loadings.T
    error = np.linalg.inv(known + np.linalg.inv(prior))
    np.testing.assert_allclose(found.error, error, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.mean, error @ told, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("residual", [1e-3, 1e-5])
def test_few_tasks_that_hardly_differ_outside_a_plane_do_not_make_the_mean_uncertain(residual):
    """How large a mean may be is told by all directions that tasks have shown, alike or not."""
    rng = np.random.default_rng(0)
    dim, size, rows = 40, 0.1, []
    mean, loadings = size * rng.normal(size=dim), 0.3 * rng.normal(size=(dim, 1))
    for _ in range(6):
        theta = mean + loadings @ rng.normal(size=1) + residual * rng.normal(size=dim)
        contexts = rng.normal(size=(30, dim))
        rows.append(Tasks.of(Evidence.of(contexts, contexts @ theta + 3.0 * rng.normal(size=30))))
    tasks = Tasks.join(*rows)
    low = LowRank.initial(dim, residual**2)
    pooled = np.linalg.solve(tasks.gram.sum(0), tasks.moment.sum(0))
    wide = np.pad(loadings, ((0, 0), (0, low.loadings.shape[1] - 1)))
    low = low.replace(mean=pooled, loadings=wide)
    given = task_precisions(tasks, np.full(6, 9.0), low.residual)
    for _ in range(5):
        low = sweep_mean(low, given, Past.zero(dim)).replace(residual=low.residual)
    plane = loadings / np.linalg.norm(loadings)
    outside = np.eye(dim) - plane @ plane.T
    assert np.linalg.eigvalsh(outside @ low.error @ outside).max() < 3.0 * size**2
    assert np.linalg.norm(outside @ (low.mean - mean)) < np.linalg.norm(outside @ mean)


def test_it_stops_where_the_likelihood_is_stationary_in_the_residual_variance():
    rows, tasks, _, _ = draw(1, tasks=60)
    low = fit_low_rank(start_low_rank(first_fit(), 60.0), first_fit(), tasks, Past.zero(DIM), 60, 2)
    values = [
        log_likelihood(low.replace(residual=low.residual * factor), rows)
        for factor in (0.8, 1.0, 1.25)
    ]
    assert values[1] > max(values[0], values[2])
    assert np.sqrt(low.residual) == pytest.approx(0.05, rel=0.25)


@pytest.mark.parametrize("seed", range(3))
def test_planted_directions_are_found_and_no_others(seed):
    _, tasks, mean, loadings = draw(seed, tasks=60)
    fit = first_fit(seed)
    low = fit_low_rank(start_low_rank(fit, 60.0), fit, tasks, Past.zero(DIM), 8, 3)
    assert low.active.sum() == RANK
    # Up to a rotation: the same plane, and about the same covariance in it.
    plane = np.linalg.qr(loadings)[0]
    inside = plane @ (plane.T @ low.loadings)
    assert np.linalg.norm(low.loadings - inside) < 0.05 * np.linalg.norm(low.loadings)
    true, found = (np.trace(w.T @ w) for w in (loadings, low.loadings))
    assert found == pytest.approx(true, rel=0.4)
    away = low.mean - mean
    assert away @ np.linalg.solve(low.error, away) < 33.0  # χ² with 12 degrees of freedom, 99.9 %
    # The predictive covariance is at least that of W and σ², by what both are uncertain by.
    least = low.loadings @ low.loadings.T + low.residual * np.eye(DIM)
    assert np.linalg.eigvalsh(low.covariance - least).min() > 0


def test_a_past_task_counts_like_one_that_was_observed_whole():
    """Tasks with so many rounds that θ is known, as evidence and as posteriors."""
    rng = np.random.default_rng(5)
    _, loadings = rng.normal(size=DIM), rng.normal(size=(DIM, RANK))
    thetas = 1.0 + rng.normal(size=(40, RANK)) @ loadings.T + 0.2 * rng.normal(size=(40, DIM))
    whole = 1e7 * np.eye(DIM)
    parts = [
        Tasks.of(Evidence(whole, whole @ theta, 1e7, float(theta @ whole @ theta)))
        for theta in thetas
    ]
    fit = first_fit()
    start = start_low_rank(fit, 40.0)
    seen = fit_low_rank(start, fit, Tasks.join(*parts), Past.zero(DIM), 5, 2)
    gone = Past.unchecked(30.0, thetas[:30].sum(0), thetas[:30].T @ thetas[:30], 0.0, 0.0)
    partly = fit_low_rank(start, fit, Tasks.join(*parts[30:]), gone, 5, 2)
    np.testing.assert_allclose(partly.covariance, seen.covariance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(partly.mean, seen.mean, rtol=1e-4)


def test_weights_count_tasks_and_batches_are_loops():
    _, tasks, _, _ = draw(3, tasks=16)
    fit, past = first_fit(), Past.zero(DIM)
    start = start_low_rank(fit, 20.0)
    twice = Tasks.join(tasks, tasks[:4])
    weighted = tasks.replace(weight=np.r_[np.full(4, 2.0), np.ones(12)])
    one, other = (fit_low_rank(start, fit, some, past, 3, 2) for some in (twice, weighted))
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-8)
    both = [draw(seed, tasks=16)[1] for seed in (3, 4)]
    stacked = Tasks.unchecked(
        *(np.stack([getattr(part, name) for part in both]) for name in Tasks.__slots__)
    )
    pair = fit.repeat(2)
    batch = fit_low_rank(
        start_low_rank(pair, np.full(2, 16.0)), pair, stacked, Past.zero(DIM, (2,)), 3, 2
    )
    for at, part in enumerate(both):
        alone = fit_low_rank(start_low_rank(fit, 16.0), fit, part, past, 3, 2)
        np.testing.assert_allclose(batch.covariance[at], alone.covariance, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(batch.mean[at], alone.mean, rtol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_task_out_or_in_is_nearly_a_fit_without_or_with_it(sign):
    _, tasks, _, _ = draw(6, tasks=50)
    fit, past = first_fit(), Past.zero(DIM)
    some, task = tasks[:49], tasks[49:]
    start = start_low_rank(fit, 50.0)
    everything, others = (fit_low_rank(start, fit, each, past, 20, 3) for each in (tasks, some))
    before, after = (everything, others) if sign > 0 else (others, everything)
    count = 49.0 if sign > 0 else 50.0
    step = leave_one_out(before, task, noises(task), count, sign)
    moved = np.linalg.norm(after.covariance - before.covariance)
    assert np.linalg.norm(after.covariance - step.covariance) < 0.35 * moved
    shift = np.linalg.norm(after.mean - before.mean)
    assert np.linalg.norm(after.mean - step.mean) < 0.35 * shift


def test_the_unit_of_rewards_scales_everything():
    _, tasks, _, _ = draw(7, tasks=20)
    fit, past, unit = first_fit(), Past.zero(DIM), 1e-6
    one = fit_low_rank(start_low_rank(fit, 20.0), fit, tasks, past, 3, 2)
    small = fit.replace(covariance=unit**2 * fit.covariance, noise_variance=unit**2 * NOISE**2)
    scaled = tasks.replace(moment=unit * tasks.moment, squares=unit**2 * tasks.squares)
    other = fit_low_rank(start_low_rank(small, 20.0), small, scaled, past, 3, 2)
    np.testing.assert_allclose(other.covariance, unit**2 * one.covariance, rtol=1e-7)
    np.testing.assert_allclose(other.relevance, one.relevance, rtol=1e-6)
    np.testing.assert_allclose(other.information, one.information, rtol=1e-6)


def test_before_any_direction_it_is_isotropic():
    low = LowRank.initial(3, 4.0)
    np.testing.assert_array_equal(low.covariance, 4.0 * np.eye(3))
    assert not low.active.any()
