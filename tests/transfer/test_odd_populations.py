"""Populations that tell little, or the same twice: the prior stays usable however it is fitted."""

import numpy as np
import pytest

import headstart as hs
from headstart.transfer.partitions import PartitionList

TRANSFERS = [
    hs.EmpiricalBayes(constant=True),
    hs.EmpiricalBayes(units="given"),
    hs.EmpiricalBayes(constant=True, low_rank=False),
    hs.Mixture(groups=2, constant=True),
]
each_transfer = pytest.mark.parametrize("transfer", TRANSFERS, ids=repr)


def draw(seed, dim, tasks, rounds, change=None, rewards=None):
    """Tasks that differ along two directions; the last feature is 1."""
    rng = np.random.default_rng(seed)
    mean, loadings = rng.normal(size=dim), rng.normal(size=(dim, 2))
    for _ in range(tasks):
        contexts = np.hstack([rng.normal(size=(rounds, dim - 1)), np.ones((rounds, 1))])
        contexts = contexts if change is None else change(contexts)
        told = contexts @ (mean + loadings @ rng.normal(size=2)) + 0.3 * rng.normal(size=rounds)
        yield hs.Evidence.of(contexts, told if rewards is None else np.full(rounds, rewards))


def folded(transfer, evidences):
    state = transfer.init(evidences[0].dim)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return state


def all_at_once(transfer, evidences):
    rows = np.stack([evidence.pack() for evidence in evidences])
    return transfer.refit_partitions(PartitionList([rows], evidences[0].dim))


ODD = {
    "one task": {"tasks": 1, "rounds": 9},
    "one task of one round": {"tasks": 1, "rounds": 1},
    "one round each": {"tasks": 30, "rounds": 1},
    "rewards all equal": {"tasks": 12, "rounds": 8, "rewards": 2.5},
    "rewards all zero": {"tasks": 5, "rounds": 8, "rewards": 0.0},
    "a constant feature": {
        "tasks": 12,
        "rounds": 8,
        "change": lambda x: x * [0, 1, 1, 1] + [3, 0, 0, 0],
    },
    "a feature of zeros": {"tasks": 12, "rounds": 8, "change": lambda x: x * [0, 1, 1, 1]},
    "a feature twice": {"tasks": 12, "rounds": 8, "change": lambda x: x[:, [1, 1, 2, 3]]},
    "one direction": {"tasks": 12, "rounds": 8, "change": lambda x: x[:, [0, 0, 0, 0]]},
}


@each_transfer
@pytest.mark.parametrize("odd", ODD)
def test_the_prior_stays_a_distribution(transfer, odd):
    evidences = list(draw(0, 4, **ODD[odd]))
    states = [folded(transfer, evidences), transfer.refit(evidences)]
    states.append(all_at_once(transfer, evidences))
    if transfer.reversible:
        states.append(transfer.fold(states[0], evidences[0], -1.0))
    for state in states:
        prior = transfer.prior(state).as_gaussian()
        assert np.isfinite(prior.mean).all()
        assert 0 < prior.noise < np.inf
        values = np.linalg.eigvalsh(prior.covariance)
        assert values[0] >= -1e-9 * values[-1]
        assert 0 < values[-1] < 1e3


@each_transfer
def test_a_feature_that_is_there_twice_counts_twice_alike(transfer):
    evidences = list(draw(1, 4, **ODD["a feature twice"]))
    for state in (folded(transfer, evidences), transfer.refit(evidences)):
        prior = transfer.prior(state).as_gaussian()
        assert prior.mean[0] == pytest.approx(prior.mean[1])
        np.testing.assert_allclose(prior.covariance[0, 2:], prior.covariance[1, 2:], atol=1e-9)
        assert prior.covariance[0, 0] == pytest.approx(prior.covariance[1, 1])


@pytest.mark.parametrize("transfer", TRANSFERS[:3], ids=repr)
def test_the_order_of_features_does_not_matter(transfer):
    """But for the intercept, which is the last."""
    evidences, order = list(draw(2, 5, 15, 7)), np.array([2, 0, 3, 1, 4])
    others = [
        hs.Evidence(each.gram[np.ix_(order, order)], each.moment[order], each.rounds, each.squares)
        for each in evidences
    ]
    for fitted in (folded, hs.EmpiricalBayes.refit, all_at_once):
        one, other = (transfer.prior(fitted(transfer, each)) for each in (evidences, others))
        np.testing.assert_allclose(one.mean[order], other.mean, atol=1e-8)
        covariance = one.covariance[np.ix_(order, order)]
        np.testing.assert_allclose(covariance, other.covariance, atol=1e-8)


@pytest.mark.parametrize("low_rank", [True, False])
def test_directions_that_no_task_has_shown_are_all_alike(low_rank):
    """Three tasks of 20 rounds in 300 features leave 240: no rotation of these changes a sum."""
    transfer = hs.EmpiricalBayes(units="given", low_rank=low_rank)
    evidences = list(draw(3, 300, 3, 20))
    prior = transfer.prior(folded(transfer, evidences))
    values, vectors = np.linalg.eigh(sum(evidence.gram for evidence in evidences))
    unseen = vectors[:, values < 1e-9 * values[-1]]
    assert unseen.shape[1] == 240
    size = np.abs(prior.mean).max()
    assert size > 0
    np.testing.assert_allclose(unseen.T @ prior.mean, 0.0, atol=1e-6 * size)
    outside = unseen.T @ prior.covariance @ unseen
    variance = np.trace(outside) / 240
    assert variance > 0
    np.testing.assert_allclose(outside, variance * np.eye(240), atol=1e-6 * variance)
