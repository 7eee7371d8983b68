"""How far a task has moved its own belief by way of the prior, compared with leaving it out."""

import functools
import math

import numpy as np
import pytest

import headstart as hs

DIM, NOISE = 4, 0.3
TRANSFER = hs.EmpiricalBayes()


def evidence_of(theta, rounds, seed, seen=None):
    """Rounds of one task; without ``seen`` features the last one is always 0."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((rounds, DIM))
    contexts[:, -1] *= seen is not None
    return hs.Evidence.of(contexts, contexts @ theta + NOISE * rng.standard_normal(rounds))


@functools.cache
def told(odd=False, rank=2, tasks=200):
    """Tasks around a mean; the last one may be far from it."""
    rng = np.random.default_rng(7)
    directions = rng.standard_normal((DIM, rank))
    thetas = np.ones(DIM) + rng.standard_normal((tasks, rank)) @ directions.T
    thetas[-1] += 8.0 * odd * rng.standard_normal(DIM)
    return [evidence_of(theta, 15, at, seen=True) for at, theta in enumerate(thetas)]


@functools.cache
def state_of(odd=False, rank=2):
    state = TRANSFER.init(DIM)
    for evidence in told(odd, rank):
        state = TRANSFER.fold(state, evidence)
    return state


def moved(one, other):
    """By how much two beliefs differ in mean and spread, in standard deviations of the first."""
    whiten = np.linalg.inv(one.root) / one.noise
    spread = whiten @ other.covariance @ whiten.T - np.eye(DIM)
    return np.linalg.norm(whiten @ (other.mean - one.mean)), np.linalg.norm(spread, 2)


@pytest.mark.parametrize("rank", [1, 2, DIM])
def test_it_is_about_what_leaving_the_task_out_changes(rank):
    state = state_of(rank=rank)
    prior, ratios = TRANSFER.prior(state), []
    for evidence in told(rank=rank)[::8]:
        belief = prior.belief(evidence)
        without = TRANSFER.prior(TRANSFER.fold(state, evidence, -1.0)).belief(evidence)
        change, influence = max(moved(without, belief)), TRANSFER.own_influence(state, belief)
        if influence <= 0.2:  # what a bandit does not leave out
            assert change < 0.25
        ratios.append(influence / change)
    assert np.median(ratios) > 0.5
    assert rank < DIM or np.median(ratios) < 2.0  # otherwise it may be an overestimate


def test_it_is_large_for_a_task_far_from_the_others():
    state, evidences = state_of(odd=True), told(odd=True)
    prior = TRANSFER.prior(state)
    usual = [TRANSFER.own_influence(state, prior.belief(each)) for each in evidences[:50]]
    assert TRANSFER.own_influence(state, prior.belief(evidences[-1])) > 5 * np.median(usual)
    assert TRANSFER.own_influence(state, prior.belief(evidences[-1])) > 0.2


def test_it_is_large_for_the_only_task_that_has_seen_a_feature():
    theta, state = np.ones(DIM), TRANSFER.init(DIM)
    evidences = [evidence_of(theta + 0.3, 15, at) for at in range(150)]
    evidences.append(evidence_of(theta + np.array([0, 0, 0, 5.0]), 15, 1000, seen=True))
    for evidence in evidences:
        state = TRANSFER.fold(state, evidence)
    belief = TRANSFER.prior(state).belief(evidences[-1])
    assert TRANSFER.own_influence(state, belief) > 0.2


def test_it_falls_with_the_number_of_tasks():
    means = []
    for tasks in (50, 100, 200):
        state = TRANSFER.init(DIM)
        for evidence in told()[:tasks]:
            state = TRANSFER.fold(state, evidence)
        prior = TRANSFER.prior(state)
        means.append(
            np.mean([TRANSFER.own_influence(state, prior.belief(each)) for each in told()[:40]])
        )
    assert means[0] > means[1] > means[2]


def test_it_does_not_depend_on_units():
    scales = np.array([1e3, 1.0, 1e-2, 7.0])
    state, scaled = state_of(), TRANSFER.init(DIM)
    evidences = [
        each.replace(gram=scales[:, None] * scales * each.gram, moment=scales * each.moment)
        for each in told()
    ]
    for evidence in evidences:
        scaled = TRANSFER.fold(scaled, evidence)
    for at in (0, 50):
        one = TRANSFER.own_influence(state, TRANSFER.prior(state).belief(told()[at]))
        other = TRANSFER.own_influence(scaled, TRANSFER.prior(scaled).belief(evidences[at]))
        assert other == pytest.approx(one, rel=1e-5)


def test_it_is_not_known_of_other_transfers_and_beliefs():
    bias = hs.Bias()
    state = bias.fold(bias.init(DIM), told()[0])
    assert bias.own_influence(state, bias.prior(state).belief(told()[0])) == math.inf
    assert TRANSFER.own_influence(state_of(), object()) == math.inf
