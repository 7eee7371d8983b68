"""The belief of one task over its life, as bandits and experiments share it."""

import numpy as np
import pytest

import headstart as hs
from headstart.bandit.task_belief import LoneTask, next_belief

DIM, ROUNDS = 3, 40


def rounds(seed, batch=()):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((*batch, ROUNDS, DIM))
    noise = 0.5 * rng.standard_normal((*batch, ROUNDS))
    return contexts, contexts @ np.arange(1.0, DIM + 1) + noise


def life(prior, contexts, rewards, alone=None):
    """The beliefs after each reward, and after how many the evidence was asked for."""
    belief, beliefs, asked = prior.belief(), [], []
    for k in range(ROUNDS):

        def evidence(k=k):
            asked.append(k + 1)
            return hs.Evidence.of(contexts[..., : k + 1, :], rewards[..., : k + 1])

        x, r = contexts[..., k, :], rewards[..., k]
        belief = next_belief(belief, x, r if r.ndim else float(r), k + 1, evidence, alone)
        beliefs.append(belief)
    return beliefs, asked


def test_with_a_known_noise_no_evidence_is_needed():
    contexts, rewards = rounds(0)
    prior = hs.Prior.isotropic(DIM, noise=0.5)
    beliefs, asked = life(prior, contexts, rewards)
    assert asked == []
    exact = prior.belief(hs.Evidence.of(contexts, rewards))
    np.testing.assert_allclose(beliefs[-1].mean, exact.mean, rtol=1e-9)


@pytest.mark.parametrize(("noise_dof", "times"), [(2.0, [1, 2, 4, 8, 16, 32]), (50.0, [8, 16, 32])])
def test_a_noise_left_to_the_task_is_estimated_again_after_some_rewards(noise_dof, times):
    contexts, rewards = rounds(1)
    prior = hs.Prior.isotropic(DIM, noise=0.1).replace(noise_dof=noise_dof)
    beliefs, asked = life(prior, contexts, rewards)
    assert asked == times
    for count in asked:
        exact = prior.belief(hs.Evidence.of(contexts[:count], rewards[:count]))
        assert beliefs[count - 1].noise == exact.noise
        np.testing.assert_array_equal(beliefs[count - 1].mean, exact.mean)


def test_a_task_that_alone_tells_the_noise_is_computed_again_after_1_2_4_rewards():
    contexts, rewards = rounds(2)
    transfer = hs.EmpiricalBayes()
    state = transfer.init(DIM)
    beliefs, asked = life(transfer.prior(state), contexts, rewards, LoneTask(transfer, state))
    assert set(asked) == {1, 2, 4, 8, 16, 32}
    for count in asked:
        seen = hs.Evidence.of(contexts[:count], rewards[:count])
        exact = transfer.single_task_prior(state, seen).belief(seen)
        np.testing.assert_array_equal(beliefs[count - 1].mean, exact.mean)


def test_without_a_prior_for_it_the_noise_is_left_to_the_task():
    contexts, rewards = rounds(3)
    transfer = hs.Independent()
    state = transfer.init(DIM)
    seen = hs.Evidence.of(contexts, rewards)
    lone = LoneTask(transfer, state)
    belief = lone.belief(transfer.prior(state).belief(seen), seen)
    exact = transfer.prior(state).with_unknown_noise().belief(seen)
    assert belief.noise == exact.noise != transfer.prior(state).noise
    assert lone.belief(belief, seen) is belief


def test_a_batch_of_tasks_is_as_each_of_them():
    contexts, rewards = rounds(4, (2,))
    prior = hs.Prior(np.zeros((2, DIM)), np.stack([np.eye(DIM)] * 2), noise_dof=2.0)
    batch, _ = life(prior, contexts, rewards)
    for at in range(2):
        own, _ = life(
            hs.Prior(np.zeros(DIM), np.eye(DIM), noise_dof=2.0), contexts[at], rewards[at]
        )
        np.testing.assert_allclose(batch[-1].mean[at], own[-1].mean, rtol=1e-12)
