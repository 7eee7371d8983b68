"""The world of clicks, and experiments with binary rewards in it."""

import numpy as np
import pytest

import headstart as hs
from headstart.lab import simulate
from headstart.lab.policies import Policy, parse
from headstart.worlds import Clicks

SMALL = Clicks(dim=4, rank=2, arms=3, base_rate=0.2)


@pytest.mark.parametrize("rate", [0.015, 0.3])
def test_an_average_arm_is_clicked_on_at_the_base_rate(rate):
    for random in (0.0, 0.2):
        population = Clicks(base_rate=rate, random=random, arms=2).population(0)
        episodes = [population.episode(task, 50) for task in range(400)]
        values = np.stack([episode.values for episode in episodes])
        wanted = (1 - random) * rate + random / 2
        error = values.mean((1, 2)).std() / 20
        assert abs(values.mean() - wanted) < 4 * error
        clicks = np.stack([episode.rewards for episode in episodes])
        assert set(np.unique(clicks)) == {0.0, 1.0}
        assert abs((clicks - values).mean()) < 4 * np.sqrt(values.mean() / clicks.size) * 2


def test_tasks_differ_as_the_population_says():
    population = SMALL.population(3)
    drawn = np.array([population.episode(task, 1).theta for task in range(3000)])
    np.testing.assert_allclose(drawn.mean(0), population.mean, atol=0.08)
    np.testing.assert_allclose(np.cov(drawn.T), population.covariance, atol=0.08)
    again = SMALL.population(3).episode(7, 5)
    np.testing.assert_array_equal(again.rewards, population.episode(7, 5).rewards)
    assert population.truth is None


def test_an_experiment_decides_as_the_bandit():
    """The batched engine and the bandit learn from clicks alike."""
    binary = Policy("binary", hs.Independent(), hs.UCB(), intercept=True, reward="binary")
    found = simulate(SMALL, [binary], [5, 6], tasks=2, rounds=30)["binary"].regret[..., -1]
    for place, seed in enumerate((5, 6)):
        population = SMALL.population(seed)
        bandit = hs.Bandit(4, hs.Independent(), reward="binary", intercept=True, seed=0)
        for number in range(2):
            episode, task, regret = population.episode(number, 30), bandit.task(number), 0.0
            for k in range(30):
                choice = task.choose(episode.contexts[k])
                task.learn(choice, episode.rewards[k, choice.arm])
                regret += episode.values[k].max() - episode.values[k, choice.arm]
            assert found[place, number] == pytest.approx(regret, rel=1e-9)


def test_every_algorithm_takes_the_option():
    policies = [parse("linucb:reward=binary"), parse("empirical_bayes:reward=binary,label=ours")]
    traces = simulate(SMALL, policies, [0], tasks=4, rounds=20)
    assert all(np.isfinite(trace.regret).all() for trace in traces.values())
    with pytest.raises(hs.InputError, match="reward must be one of 'number', 'binary'"):
        parse("linucb:reward=clicks")
