"""What real data does: sparse clicks, one broken task, one absurd reward, one huge context."""

import numpy as np
import pytest

import headstart as hs
from headstart.transfer.portions import Listed


def sparse_clicks(rng, tasks=400, rounds=25, dim=4):
    """Tasks of which a quarter have no click at all, and whose features matter alike."""
    told = []
    for _ in range(tasks):
        contexts = np.c_[rng.standard_normal((rounds, dim)), np.ones(rounds)]
        chance = np.clip(contexts @ [0.03, -0.02, 0.015, 0.0, 0.04], 0.0, 1.0)
        told.append(hs.Evidence.of(contexts, (rng.random(rounds) < chance).astype(float)))
    return told


@pytest.fixture(scope="module")
def told():
    told = sparse_clicks(np.random.default_rng(0))
    assert np.mean([one.squares == 0 for one in told]) > 0.25
    return told


class TestSparseClicks:
    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    def test_they_are_learned_from(self, told, kind):
        transfer = kind(constant=True)
        prior = transfer.prior(transfer.refit(told))
        rate = sum(one.squares for one in told) / sum(one.rounds for one in told)
        assert float(np.mean(prior.noise)) == pytest.approx(np.sqrt(rate * (1 - rate)), rel=0.1)
        assert prior.mean[-1] == pytest.approx(rate, abs=0.01)
        np.testing.assert_allclose(prior.mean[:4], [0.027, -0.018, 0.012, 0.0], atol=0.012)

    def test_in_any_order_and_however_they_are_given(self, told):
        transfer = hs.EmpiricalBayes(constant=True)
        prior = transfer.prior(transfer.refit(told))
        zeros_first = sorted(told, key=lambda one: one.squares)
        other = transfer.prior(transfer.refit(zeros_first))
        np.testing.assert_allclose(other.mean, prior.mean, rtol=1e-6, atol=1e-9)
        rows = np.stack([one.pack() for one in zeros_first])
        listed = transfer.prior(transfer.refit_portions(Listed([rows], dim=5)))
        np.testing.assert_allclose(listed.mean, prior.mean, rtol=1e-6, atol=1e-9)

    def test_no_reward_at_all_claims_nothing(self):
        zeros = [hs.Evidence.of(np.eye(2), [0.0, 0.0])] * 5
        prior = hs.EmpiricalBayes().prior(hs.EmpiricalBayes().refit(zeros))
        assert np.isfinite(prior.root).all()


def play(spoil, tasks=60, rounds=40, seed=0, noise=0.2):
    """Regret of every task of a bandit, each task's noise spoiled by ``spoil(task, noise)``."""
    rng = np.random.default_rng(seed)
    mean, basis = rng.normal(size=6), rng.normal(size=(6, 2))
    bandit = hs.Bandit(6, seed=1)
    regret = np.zeros(tasks)
    for number in range(tasks):
        theta = mean + 0.5 * basis @ rng.normal(size=2)
        task = bandit.task(number)
        errors = spoil(number, noise * rng.normal(size=rounds))
        for k in range(rounds):
            contexts = rng.normal(size=(8, 6))
            values = contexts @ theta
            choice = task.choose(contexts)
            task.learn(choice, float(values[choice.arm] + errors[k]))
            regret[number] += values.max() - values[choice.arm]
        task.close()
    return regret, bandit


@pytest.fixture(scope="module")
def clean():
    return play(lambda number, noise: noise)[0]


class TestNoise:
    def test_one_broken_task_costs_the_others_little(self, clean):
        regret, bandit = play(lambda number, noise: noise * (1000.0 if number == 9 else 1.0))
        others = np.arange(60) != 9
        assert regret[others].mean() < 1.15 * clean[others].mean()
        assert bandit.prior.noise == pytest.approx(0.2, rel=0.15)

    def test_nor_does_one_absurd_reward_in_every_tenth_task(self, clean):
        def spoil(number, noise):
            noise[20] += 1e6 * (number % 10 == 9)
            return noise

        regret, bandit = play(spoil)
        others = np.arange(60) % 10 != 9
        assert regret[others].mean() < 1.2 * clean[others].mean()
        assert bandit.prior.noise == pytest.approx(0.2, rel=0.2)

    def test_a_task_is_as_sure_as_its_own_noise_allows(self):
        loud = np.random.default_rng(5).random(60) < 0.5
        _, bandit = play(lambda number, noise: noise * (5.0 if loud[number] else 1.0))
        noises = np.array([bandit.task(number).belief.noise for number in range(60)])
        assert np.median(noises[loud]) == pytest.approx(1.0, rel=0.2)
        assert np.median(noises[~loud]) == pytest.approx(0.2, rel=0.2)


class TestHugeContexts:
    @pytest.mark.parametrize("size", [1e10, 1e16, 1e40])
    def test_one_leaves_its_task_and_others_as_sure_as_they_were(self, size):
        """Live, idle and after closing; what the row itself says of its task is another matter."""
        rng = np.random.default_rng(3)
        theta = np.array([1.0, -0.5, 0.25])
        bandits = [hs.Bandit(3, seed=0, live=1), hs.Bandit(3, seed=0, live=1)]
        for number in range(8):
            for k in range(15):
                contexts = rng.normal(size=(4, 3))
                noise = rng.normal()
                for bandit in bandits:
                    huge = bandit is bandits[1] and (number, k) == (5, 7)
                    row = contexts[:1] * ([size, 1.0, 1.0] if huge else 1.0)
                    choice = bandit.task(number).choose(row)
                    reward = float(contexts[0] @ theta + 0.1 * noise)
                    bandit.task(number).learn(choice, reward)
            for bandit in bandits:
                bandit.task("other")  # so that the task goes idle
                bandit.task("other").choose(np.eye(3))
                bandit.task(number).close()
        rows = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
        assert np.abs(bandits[1].task(5).predict(rows).mean).max() < 2.0
        for name in (4, 6, "new"):
            plain, odd = (bandit.task(name).predict(rows) for bandit in bandits)
            spread = (plain.upper - plain.lower) / 4
            assert (np.abs(odd.mean - plain.mean) < 3 * spread + 0.1).all()
            ratio = (odd.upper - odd.lower) / (plain.upper - plain.lower)
            assert ((ratio > 0.3) & (ratio < 3.0)).all()
