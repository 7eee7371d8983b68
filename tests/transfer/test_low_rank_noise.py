"""The noise of short tasks under a low-rank population, against densities written out."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import multivariate_normal

import headstart as hs
from headstart.transfer.empirical_bayes.low_rank.noise import (
    NoiseScores,
    marginal_residuals,
    noise_scores,
    noise_step,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.low_rank.task_precisions import scale_tasks, task_precisions
from headstart.transfer.empirical_bayes.tasks import Tasks

DIM, ROUNDS, NOISE = 6, 5, 0.4


def population(seed):
    """A low-rank population with features of other scales, and tasks drawn from it."""
    rng = np.random.default_rng(seed)
    low = LowRank.initial(DIM, 1.0).replace(
        scale=rng.uniform(0.5, 2.0, size=DIM),
        mean=rng.normal(size=DIM),
        loadings=np.linalg.qr(rng.normal(size=(DIM, DIM - 1)))[0] * [0.8, 0.5, 0.0, 0.0, 0.0],
        residual=0.04,
    )
    covariance = low.loadings @ low.loadings.T + 0.04 * np.eye(DIM)
    rows = []
    for _ in range(30):
        theta = low.scale * rng.multivariate_normal(low.mean, covariance)
        contexts = rng.normal(size=(ROUNDS, DIM))
        rows.append((contexts, contexts @ theta + NOISE * rng.normal(size=ROUNDS)))
    return low, rows, Tasks.join(*(Tasks.of(hs.Evidence.of(*row)) for row in rows))


def density(low, row, variance, residual):
    """The log density of a task's rewards."""
    contexts, rewards = row[0] * low.scale, row[1]
    covariance = low.loadings @ low.loadings.T + residual * np.eye(DIM)
    spread = contexts @ covariance @ contexts.T + variance * np.eye(ROUNDS)
    return multivariate_normal(contexts @ low.mean, spread).logpdf(rewards)


def scores_of(low, tasks, variance):
    """The scores of all tasks, with the same noise."""
    local, noise = scale_tasks(tasks, low.scale), np.full(len(tasks), variance)
    given = task_precisions(local, noise, low.residual)
    assert given.weight.all()
    return noise_scores(low, local, noise, given)


def test_scores_are_the_derivatives_and_the_expected_information_of_the_density():
    low, rows, tasks = population(0)
    variance, residual, step = 0.3, low.residual, 1e-4
    scores = scores_of(low, tasks, variance)
    for at, row in enumerate(rows):
        up, down = (density(low, row, variance * np.exp(h), residual) for h in (step, -step))
        assert scores.gradient[at] == pytest.approx((up - down) / step, rel=1e-5)
        up, down = (density(low, row, variance, residual + h) for h in (step / 10, -step / 10))
        assert scores.slope[at] == pytest.approx((up - down) * 10 / step, rel=1e-4)
        contexts = row[0] * low.scale
        covariance = low.loadings @ low.loadings.T + residual * np.eye(DIM)
        inverse = np.linalg.inv(contexts @ covariance @ contexts.T + variance * np.eye(ROUNDS))
        noise, other = variance * inverse, inverse @ contexts @ contexts.T
        assert scores.information[at] == pytest.approx(np.trace(noise @ noise))
        assert scores.curvature[at] == pytest.approx(np.trace(other @ other))
        assert scores.shared[at] == pytest.approx(np.trace(noise @ other))
    # What μ takes up: the derivative of −log det of what all tasks tell of it.
    half = np.random.default_rng(1).normal(size=(DIM, DIM))
    error = half @ half.T / 50
    taken = scores_of(low.replace(error=error), tasks, variance)
    information = []
    for h in (step, -step):
        spread = contexts @ covariance @ contexts.T + variance * np.exp(h) * np.eye(ROUNDS)
        information.append(contexts.T @ np.linalg.solve(spread, contexts))
    change = -np.trace((information[0] - information[1]) @ error) / (2 * step)
    assert taken.gradient[-1] - scores.gradient[-1] == pytest.approx(change, rel=1e-4)


def test_steps_end_at_the_maximum_of_the_marginal_likelihood():
    low, rows, tasks = population(2)

    def total(point):
        return -sum(density(low, row, *np.exp(point)) for row in rows)

    best = minimize(total, np.log([0.16, 0.04]), method="Nelder-Mead", tol=1e-8)
    variance, residual = np.exp(best.x)
    at_best = low.replace(residual=residual)
    found = marginal_residuals(at_best, tasks, np.full(30, variance))
    assert found.square.sum() == pytest.approx(variance * found.dof.sum(), rel=1e-3)
    # From elsewhere the residuals lead there: their mean square is the next R².
    for _ in range(12):
        total_scores = NoiseScores(*(each.sum() for each in scores_of(low, tasks, variance)))
        step, _ = noise_step(total_scores)
        along = (total_scores.slope - total_scores.shared * step) / total_scores.curvature
        low = low.replace(residual=max(low.residual + along, low.residual / 3))
        variance = variance * np.exp(step)
    assert variance == pytest.approx(np.exp(best.x[0]), rel=0.01)
    assert low.residual == pytest.approx(residual, rel=0.02)


def test_noise_is_estimated_from_tasks_shorter_than_their_dimension():
    """About as if the population were known; a full covariance takes noise for differences."""
    rng = np.random.default_rng(3)
    dim, rounds, noise = 20, 15, 0.3
    plane, mean = np.linalg.qr(rng.normal(size=(dim, 3)))[0], rng.normal(size=dim) / 10
    rows, covariance = [], 0.09 * plane @ plane.T
    for _ in range(60):
        theta = mean + 0.3 * plane @ rng.normal(size=3)
        contexts = rng.normal(size=(rounds, dim)) / np.sqrt(dim)
        rows.append((contexts, contexts @ theta + noise * rng.normal(size=rounds)))

    def known_population(log_variance):
        return -sum(
            multivariate_normal(
                contexts @ mean,
                contexts @ covariance @ contexts.T + np.exp(log_variance) * np.eye(rounds),
            ).logpdf(rewards)
            for contexts, rewards in rows
        )

    best = np.exp(minimize_scalar(known_population, bounds=(-4, -1), method="bounded").x / 2)
    tasks = [hs.Evidence.of(contexts, rewards) for contexts, rewards in rows]
    found = {}
    for low_rank in (True, False):
        transfer = hs.EmpiricalBayes(low_rank=low_rank)
        state = transfer.init(dim)
        for task in tasks:
            state = transfer.fold(state, task)
        together = transfer.prior(transfer.refit(tasks)).noise
        found[low_rank] = np.array([transfer.prior(state).noise, together])
    np.testing.assert_allclose(found[True], best, rtol=0.06)
    assert (found[False] < 0.85 * best).all()


def test_short_and_long_tasks_of_a_batch_are_as_one_by_one():
    rng = np.random.default_rng(4)
    dim, transfer = 8, hs.EmpiricalBayes()
    mean, direction = rng.normal(size=dim), rng.normal(size=dim)
    batches = []
    for task in range(14):
        parts = []
        for element in range(2):  # one of the two is short
            rounds = 5 if (task + element) % 2 else 40
            contexts = rng.normal(size=(rounds, dim))
            theta = mean + direction * rng.normal()
            rewards = contexts @ theta + NOISE * rng.normal(size=rounds)
            parts.append(hs.Evidence.of(contexts, rewards))
        batches.append(parts)
    state = transfer.init(dim, batch=(2,))
    for parts in batches:
        state = transfer.fold(
            state,
            hs.Evidence(
                *(
                    np.stack([getattr(part, name) for part in parts])
                    for name in ("gram", "moment", "rounds", "squares")
                )
            ),
        )
    prior = transfer.prior(state)
    for element in range(2):
        alone = transfer.init(dim)
        for parts in batches:
            alone = transfer.fold(alone, parts[element])
        own = transfer.prior(alone)
        np.testing.assert_allclose(prior.noise[element], own.noise, rtol=1e-8)
        np.testing.assert_allclose(prior.covariance[element], own.covariance, rtol=1e-6, atol=1e-9)
        assert own.noise == pytest.approx(NOISE, rel=0.15)
