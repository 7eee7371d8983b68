"""The average of the full covariance and low-rank candidates, as a bandit uses it."""

import itertools

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

import headstart as hs
from headstart.transfer.empirical_bayes.low_rank.ensemble import (
    SHRINKAGES,
    average_prior,
    ensemble_weights,
    initial_ensemble,
    low_rank_likelihoods,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.scoring import full_prior
from headstart.transfer.partitions import PartitionList

DIM, RANK, NOISE = 40, 3, 0.2


def world(seed, dim=DIM, units=1.0):
    """Draws tasks that differ along few of many features."""
    rng = np.random.default_rng(seed)
    plane, mean = np.linalg.qr(rng.normal(size=(dim, RANK)))[0], rng.normal(size=dim) / 4
    scale = units ** rng.normal(size=dim)

    def draw(rounds=50):
        theta = mean + 0.6 * plane @ rng.normal(size=RANK)
        contexts = rng.normal(size=(rounds, dim))
        rewards = contexts @ theta + NOISE * rng.normal(size=rounds)
        return hs.Evidence.of(contexts * scale, rewards)

    return draw, mean


def folded(tasks, transfer):
    state = transfer.init(tasks[0].dim)
    for task in tasks:
        state = transfer.fold(state, task)
    return state


def candidates(seed, count):
    """Some full prior and some low-rank fit, and every candidate written out."""
    rng = np.random.default_rng(seed)
    half, other = rng.normal(size=(2, 4, 4))
    mean, covariance = rng.normal(size=4), half @ half.T
    low = LowRank.initial(4, 1.0).replace(
        scale=rng.uniform(0.5, 2.0, size=4), mean=rng.normal(size=4), covariance=other @ other.T
    )
    found = [(mean, covariance)]
    for nu in SHRINKAGES:
        rho = nu * 4 / (count + nu * 4)
        shrunk = (1 - rho) * low.covariance + rho * np.trace(low.covariance) / 4 * np.eye(4)
        found.append((low.scale * low.mean, np.outer(low.scale, low.scale) * shrunk))
    return low, found


def test_a_covariance_that_a_step_has_left_indefinite_has_densities():
    low, _ = candidates(0, 12)
    low = low.replace(covariance=low.covariance - 2.0 * np.trace(low.covariance) * np.eye(4))
    task = hs.Evidence.of(np.eye(4), np.ones(4))
    with np.errstate(all="raise"):
        assert np.isfinite(low_rank_likelihoods(low, 12.0, 0.5, task)).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_average_has_the_moments_of_the_mixture(seed):
    low, found = candidates(seed, 12.0)
    scores = np.random.default_rng(seed).normal(size=7)
    weights = ensemble_weights(scores, 12.0)
    np.testing.assert_allclose(weights, softmax(scores - np.log(6.0) * (np.arange(7) > 0)))
    mean, covariance = average_prior(weights, 12.0, *found[0], low)
    want = sum(w * m for w, (m, _) in zip(weights, found, strict=True))
    second = sum(w * (c + np.outer(m, m)) for w, (m, c) in zip(weights, found, strict=True))
    np.testing.assert_allclose(mean, want)
    np.testing.assert_allclose(covariance, second - np.outer(want, want))


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_log_densities_of_the_rewards(seed):
    low, found = candidates(seed, 12.0)
    rng = np.random.default_rng(seed)
    contexts, rewards = rng.normal(size=(6, 4)), rng.normal(size=6)
    scores = low_rank_likelihoods(low, 12.0, 0.25, hs.Evidence.of(contexts, rewards))
    want = [
        multivariate_normal(contexts @ m, contexts @ c @ contexts.T + 0.25 * np.eye(6)).logpdf(
            rewards
        )
        for m, c in found[1:]
    ]
    np.testing.assert_allclose(np.diff(scores), np.diff(want), rtol=1e-9)
    assert ensemble_weights(initial_ensemble(), 3.0)[0] == 1.0  # too few tasks


@pytest.mark.parametrize(("seed", "units"), [(0, 1.0), (1, 10.0)])
def test_with_many_features_and_few_tasks_the_low_rank_candidates_count_and_help(seed, units):
    transfer = hs.EmpiricalBayes()
    draw = world(seed, units=units)[0]
    state = folded([draw() for _ in range(30)], transfer)
    assert state.ensemble_weights[0] < 0.1
    explained = transfer.explain(state)
    least, most = explained.rank_interval
    assert least <= RANK <= most
    assert explained.weights["low rank"] > 0.9
    # New tasks are likelier than under the full covariance alone.
    alone = state.replace(ensemble=np.where(np.arange(7) == 0, 0.0, -1e9))
    gains = []
    for task in [draw() for _ in range(8)]:
        ours, full = (transfer.fold(each, task).support - each.support for each in (state, alone))
        gains.append(ours - full)
    assert np.mean(gains) > 1.0


def test_without_structure_the_full_covariance_keeps_the_weight():
    rng = np.random.default_rng(0)
    transfer, tasks = hs.EmpiricalBayes(), []
    spread = rng.uniform(0.2, 2.0, size=6)
    for _ in range(60):
        contexts = rng.normal(size=(40, 6))
        theta = spread * rng.normal(size=6)
        tasks.append(hs.Evidence.of(contexts, contexts @ theta + 0.1 * rng.normal(size=40)))
    state = folded(tasks, transfer)
    prior = transfer.prior(state)
    _, covariance = full_prior(state)
    ratio = np.linalg.eigvalsh(np.linalg.solve(np.diag(spread**2), prior.covariance))
    assert 0.4 < ratio.min() < ratio.max() < 2.5
    assert np.isfinite(covariance).all()


@pytest.mark.parametrize(("count", "dim", "rounds"), [(700, 10, 6), (2500, 6, 4)])
def test_any_split_of_very_many_tasks_gives_the_same_prior(count, dim, rounds):
    """More tasks than the first fit is made from, and more than it is improved on."""
    draw, mean = world(5, dim=dim)
    tasks = [draw(rounds=rounds) for _ in range(count)]
    rows = np.array([task.pack() for task in tasks])
    transfer, states = hs.EmpiricalBayes(units="given"), []
    for many in (1, 7):
        edges = np.linspace(0, len(rows), many + 1).astype(int)
        parts = [rows[a:b] for a, b in itertools.pairwise(edges)]
        states.append(transfer.refit_partitions(PartitionList(parts, dim)))
    for state in states[1:]:
        np.testing.assert_allclose(state.ensemble, states[0].ensemble, atol=1e-7)
        one, other = transfer.prior(states[0]), transfer.prior(state)
        scale = np.abs(one.covariance).max()
        np.testing.assert_allclose(other.covariance, one.covariance, atol=1e-9 * scale, rtol=0)
        np.testing.assert_allclose(other.mean, one.mean, atol=1e-9)
    # The low-rank population is that of the tasks.
    low = states[0].low_rank
    square = (low.loadings**2).sum(0)
    assert square[RANK - 1] > 20 * square[RANK]
    np.testing.assert_allclose(low.mean, mean, atol=0.12)
    assert transfer.prior(states[0]).noise == pytest.approx(NOISE, rel=0.05)
    together = transfer.refit(tasks[:512]).low_rank
    inside = np.linalg.qr(together.loadings[:, :RANK])[0]
    assert np.linalg.norm(inside.T @ np.linalg.qr(low.loadings[:, :RANK])[0]) > 0.98 * np.sqrt(RANK)
