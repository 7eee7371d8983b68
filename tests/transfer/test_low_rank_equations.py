"""One sweep of the low-rank fit against its equations, written out from contexts and rewards."""

import numpy as np
import pytest

from headstart.model.evidence import Evidence
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.low_rank import fitting
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.low_rank.task_precisions import task_precisions
from headstart.transfer.empirical_bayes.tasks import Tasks

DIM, RANK, RESIDUAL = 6, 3, 0.08


class Problem:
    """Tasks of unequal noise and weights, some observed whole, and a population to start from."""

    def __init__(self, seed, observed):
        rng = np.random.default_rng(seed)
        mean, plane = rng.normal(size=DIM), rng.normal(size=(DIM, 2))

        def draw():
            return mean + plane @ rng.normal(size=2) + 0.2 * rng.normal(size=DIM)

        self.variance, self.weight = rng.uniform(0.02, 0.3, 12), rng.uniform(0.3, 1.0, 12)
        self.rows = []
        for variance in self.variance:
            contexts = rng.normal(size=(rng.integers(4, 16), DIM)) * np.linspace(0.5, 2.0, DIM)
            rewards = contexts @ draw() + np.sqrt(variance) * rng.normal(size=len(contexts))
            self.rows.append((contexts, rewards))
        self.observed = np.array([draw() for _ in range(observed)]).reshape(observed, DIM)
        self.mean, self.loadings = rng.normal(size=DIM), rng.normal(size=(DIM, RANK))
        self.alpha = DIM / (self.loadings**2).sum(0)
        self.weights = np.append(self.weight, np.ones(observed))
        self.count = self.weights.sum()

    def informations(self, covariance):
        """Xᵀ V⁻¹ X and Xᵀ V⁻¹ (r − X μ) of every task, V = X S Xᵀ + R² I."""
        found = []
        for (x, r), variance in zip(self.rows, self.variance, strict=True):
            inverse = np.linalg.inv(x @ covariance @ x.T + variance * np.eye(len(r)))
            found.append((x.T @ inverse @ x, x.T @ inverse @ (r - x @ self.mean)))
        inverse = np.linalg.inv(covariance)
        return found + [(inverse, inverse @ (theta - self.mean)) for theta in self.observed]

    def total(self, parts):
        return sum(weight * part for weight, part in zip(self.weights, parts, strict=True))

    def given(self):
        """What the sweeps take: the population, what tasks tell of it, and the past."""
        evidence = [Evidence.of(*row) for row in self.rows]
        tasks = Tasks.join(*map(Tasks.of, evidence, self.weight))
        empty = np.zeros((DIM, DIM - 1 - RANK))
        low = LowRank.initial(DIM, RESIDUAL).replace(
            mean=self.mean,
            loadings=np.hstack([self.loadings, empty]),
            relevance=RESIDUAL * np.append(self.alpha, empty[0]),
        )
        seen = self.observed
        past = Past.unchecked(float(len(seen)), seen.sum(0), seen.T @ seen, 0.0, 0.0)
        return low, task_precisions(tasks, self.variance, RESIDUAL), past


@pytest.mark.parametrize(("seed", "observed"), [(0, 0), (1, 4)])
def test_a_sweep_for_the_loadings_is_that_of_variational_em(monkeypatch, seed, observed):
    problem = Problem(seed, observed)
    informations, surprises = zip(*problem.informations(RESIDUAL * np.eye(DIM)), strict=True)
    w, total = problem.loadings, problem.total(informations)
    p = np.linalg.eigvalsh(total)
    variance = 1.0 / (p + problem.alpha[:, None])
    uncertainty = (variance * p).sum(1) / p.sum()
    factors, seconds = [], []
    for a_matrix, a in zip(informations, surprises, strict=True):
        own = np.trace(a_matrix) * np.diag(uncertainty)
        m = np.linalg.inv(np.eye(RANK) + w.T @ a_matrix @ w + own)
        factors.append(m @ w.T @ a)
        seconds.append(m + np.outer(factors[-1], factors[-1]))
    lower = np.linalg.cholesky(problem.total(seconds) / problem.count)
    alpha = DIM / (((w @ lower) ** 2).sum(0) + (lower**2).T @ variance.sum(1))
    inverse = np.linalg.inv(lower)
    system = problem.total(
        [np.kron(inverse @ z @ inverse.T, a) for a, z in zip(informations, seconds, strict=True)]
    ) + np.kron(np.diag(alpha), np.eye(DIM))
    right = problem.total(
        [np.outer(inverse @ z, a) for a, z in zip(surprises, factors, strict=True)]
    )
    w = np.linalg.solve(system, right.ravel()).reshape(RANK, DIM).T
    _, rotation = np.linalg.eigh(w.T @ w)
    uncertain = (rotation**2).T @ (1.0 / (p + alpha[:, None])).sum(1)
    relevance = DIM / (((w @ rotation) ** 2).sum(0) + uncertain)

    low, given, past = problem.given()
    near = fitting.sweep_loadings(low, given, past).loadings
    np.testing.assert_allclose(near @ near.T, w @ w.T, rtol=0.03, atol=0.02)
    monkeypatch.setattr(fitting, "CG_STEPS", 100)
    found = fitting.sweep_loadings(low, given, past)
    np.testing.assert_allclose(found.loadings @ found.loadings.T, w @ w.T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.information, RESIDUAL * total, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.relevance[:RANK][::-1], RESIDUAL * relevance, rtol=1e-7)


@pytest.mark.parametrize(("seed", "observed"), [(0, 0), (1, 4)])
def test_the_residual_variance_takes_a_scoring_step_and_new_tasks_are_predicted_as_stated(
    seed, observed
):
    problem = Problem(seed, observed)
    low, given, past = problem.given()
    w, eye = problem.loadings, np.eye(DIM)
    alone = [a for a, _ in problem.informations(RESIDUAL * eye)]
    low = low.replace(information=RESIDUAL * problem.total(alone))
    found = fitting.sweep_mean(low, given, past)
    problem.mean = found.mean  # v_i around the new mean
    h, v = zip(*problem.informations(w @ w.T + RESIDUAL * eye), strict=True)
    known, error = problem.total(h), found.error
    excess = problem.total([v_i @ v_i - np.trace(h_i) for h_i, v_i in zip(h, v, strict=True)])
    excess += np.trace(known @ error @ known) / problem.count
    step = excess / problem.total([(h_i**2).sum() for h_i in h])
    residual = RESIDUAL + step if step > 0 else RESIDUAL / (1.0 - step / RESIDUAL)
    assert found.residual == pytest.approx(residual, rel=1e-9)
    left = [np.linalg.inv(np.eye(RANK) + w.T @ a @ w) for a in alone]
    directions = np.trace(np.eye(RANK) - problem.total(left) / problem.count)
    uncertainty = sum(np.linalg.inv(problem.total(alone) + alpha * eye) for alpha in problem.alpha)
    growth = 1.0 + (directions + 1.0) / (problem.count - directions - 1.0)
    want = growth * w @ w.T + residual * eye + uncertainty + error
    np.testing.assert_allclose(found.covariance, want, rtol=1e-8, atol=1e-10)
