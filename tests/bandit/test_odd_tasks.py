"""What real data does: sparse clicks, one broken task, one absurd reward, one huge context."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

import headstart as hs
from headstart.model.mixture import MixtureBelief
from headstart.transfer.empirical_bayes import state as kept_state
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.mixture import transfer as mixture
from headstart.transfer.partitions import PartitionList


def sparse_clicks(rng, tasks=400, rounds=25, dim=4, rarity=1.0):
    """Tasks of which a quarter have no click at all, and whose features matter alike."""
    told = []
    for _ in range(tasks):
        contexts = np.c_[rng.standard_normal((rounds, dim)), np.ones(rounds)]
        chance = np.clip(contexts @ [0.03, -0.02, 0.015, 0.0, 0.04], 0.0, 1.0) / rarity
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
        listed = transfer.prior(transfer.refit_partitions(PartitionList([rows], dim=5)))
        np.testing.assert_allclose(listed.mean, prior.mean, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize(
        ("how", "rarity", "rounds"),
        [
            ("fold", 1.0, 8),
            ("fold", 25.0, 25),
            ("refit", 5.0, 25),
            ("refit", 25.0, 25),
            ("partitions", 1.0, 8),
            ("partitions", 5.0, 25),
        ],
    )
    def test_groups_without_a_click_have_the_noise_of_all(self, rarity, rounds, how):
        many = 600 if how == "partitions" else 120
        told = sparse_clicks(np.random.default_rng(1), many, rounds, rarity=rarity)
        transfer = hs.Mixture(constant=True)
        if how == "fold":
            state = transfer.init(5)
            for one in told:
                state = transfer.fold(state, one)
        elif how == "refit":
            state = transfer.refit(told)
        else:
            rows = np.stack([one.pack() for one in told])
            state = transfer.refit_partitions(PartitionList([rows], dim=5))
        prior = transfer.prior(state)
        rate = sum(one.squares for one in told) / (many * rounds)
        deviation = np.sqrt(rate * (1 - rate))
        np.testing.assert_allclose(prior.parts.noise, deviation, rtol=0.35)
        mean = np.exp(prior.log_weights) @ prior.parts.mean[:, -1]
        assert mean == pytest.approx(rate, abs=2.0 * deviation / np.sqrt(many * rounds))

    def test_no_reward_at_all_claims_nothing(self):
        zeros = [hs.Evidence.of(np.eye(2), [0.0, 0.0])] * 5
        prior = hs.EmpiricalBayes().prior(hs.EmpiricalBayes().refit(zeros))
        assert np.isfinite(prior.root).all()


def play(spoil, tasks=60, rounds=40, seed=0, noise=0.2, kind=hs.EmpiricalBayes):
    """Regret of every task of a bandit, each task's noise spoiled by ``spoil(task, noise)``."""
    rng = np.random.default_rng(seed)
    mean, basis = rng.normal(size=6), rng.normal(size=(6, 2))
    bandit = hs.Bandit(6, kind(), seed=1)
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
    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    def test_one_broken_task_costs_the_others_little(self, clean, kind):
        regret, bandit = play(
            lambda number, noise: noise * (1000.0 if number == 9 else 1.0), kind=kind
        )
        others = np.arange(60) != 9
        assert regret[others].mean() < 1.15 * clean[others].mean()
        assert bandit.prior.noise == pytest.approx(0.2, rel=0.15)

    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    def test_nor_does_one_absurd_reward_in_every_tenth_task(self, clean, kind):
        def spoil(number, noise):
            noise[20] += 1e6 * (number % 10 == 9)
            return noise

        regret, bandit = play(spoil, kind=kind)
        others = np.arange(60) % 10 != 9
        assert regret[others].mean() < 1.2 * clean[others].mean()
        assert bandit.prior.noise == pytest.approx(0.2, rel=0.2)

    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    @pytest.mark.parametrize("odd", ["one reward", "noise", "one context"])
    def test_nor_does_the_very_first_task(self, kind, odd):
        """Nothing can tell that it is odd, until there are others."""
        rng, bandit = np.random.default_rng(0), hs.Bandit(4, kind(), seed=0)
        centre, regrets = np.array([1.0, -1.0, 0.5, 0.0]), []
        for number in range(16):
            theta, regret, task = centre + 0.2 * rng.normal(size=4), 0.0, bandit.task(number)
            for turn in range(15):
                contexts = rng.normal(size=(4, 4))
                if odd == "one context" and (number, turn) == (0, 0):
                    contexts[:, 1] *= 1e10
                choice = task.choose(contexts)
                means = contexts @ theta
                reward = means[choice.arm] + 0.1 * rng.normal()
                if odd == "noise" and number == 0:
                    reward += 1e7 * rng.normal()
                if odd == "one reward" and (number, turn) == (0, 0):
                    reward = 1e12
                task.learn(choice, reward)
                regret += means.max() - means[choice.arm]
            task.close()
            regrets.append(regret)
        assert np.mean(regrets[6:]) < 0.7  # about 0.2 without the first; 20 at random
        assert bandit.prior.as_gaussian().noise == pytest.approx(0.1, rel=0.3)

    def test_a_task_is_as_sure_as_its_own_noise_allows(self):
        loud = np.random.default_rng(5).random(60) < 0.5
        _, bandit = play(lambda number, noise: noise * (5.0 if loud[number] else 1.0))
        noises = np.array([bandit.task(number).belief.noise for number in range(60)])
        assert np.median(noises[loud]) == pytest.approx(1.0, rel=0.2)
        assert np.median(noises[~loud]) == pytest.approx(0.2, rel=0.2)

    def test_a_task_unlike_all_others_does_not_outvote_them(self):
        """It shows an effect ten times as large as theirs; the prior forgot its mean for that."""
        rng, common = np.random.default_rng(0), np.r_[0.25, 0.25, np.zeros(6)]
        bandit = hs.Bandit(8, seed=0)
        for number in range(20):
            contexts, task = rng.normal(size=(10, 8)), bandit.task(number)
            theta = common + 0.1 * rng.normal(size=8)
            task.observe(contexts, contexts @ theta + 0.5 * rng.normal(size=10))
            task.close()
        before = bandit.prior.mean[:2]
        bandit.task("odd").observe(np.tile(rng.normal(size=8), (10, 1)), np.full(10, 10.0))
        bandit.task("odd").close()
        assert (before > 0.15).all()
        assert (bandit.prior.mean[:2] > 0.1).all()


def assert_learned(belief, rounds, bandit):
    """A belief is what its prior and the rounds give, one by one."""
    parts = belief.parts if isinstance(belief, MixtureBelief) else belief
    prior = parts.prior
    roots = prior.root / np.asarray(parts.noise_ratio)[..., None, None]
    many = len(prior.mean) if prior.batch else 1
    for group in range(many):
        at = (group,) if prior.batch else ()
        expected = hs.Belief.start(hs.Prior(prior.mean[at], roots[at]))
        for x, reward in rounds:
            expected = expected.learn([*x, *[1.0] * (belief.dim - len(x))], reward)
        sure = np.sqrt(np.diag(expected.covariance))
        assert np.abs(parts.mean[at] - expected.mean).max() < 1e-3 * (0.1 * sure).max()
        np.testing.assert_allclose(np.linalg.norm(parts.root[at], axis=1), sure, rtol=1e-3)


class TestRewardsOfManyMagnitudes:
    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers overflow before it is noticed
    @pytest.mark.parametrize(("turn", "minimize"), [("late", False), ("often", True)])
    @pytest.mark.parametrize(
        ("kind", "size"),
        [*itertools.product(["items", "numbers"], [1e20, 1e36, 9e59]), ("mixture", 9e59)],
    )
    def test_what_was_learned_can_be_saved_and_used(self, kind, turn, minimize, size, tmp_path):
        rng = np.random.default_rng(6)
        items = kind == "items"
        what = hs.Schema(identity=True) if items else 3
        transfer = hs.Mixture(groups=2) if kind == "mixture" else None
        bandit = hs.Bandit(what, transfer, seed=0, minimize=minimize)

        def offer():
            if items:
                return rng.choice(list("abcdefghij"), 4, replace=False).tolist()
            return rng.normal(size=(4, 3))

        for number in range(12):
            for _ in range(3):
                task = bandit.task(number)
                huge = number > 6 if turn == "late" else rng.random() < 0.2
                task.learn(task.choose(offer()), size if huge else float(rng.integers(2)))
            if number % 2:
                bandit.task(number).close()
        bandit.task(3).delete()
        bandit.save(tmp_path / "bandit")
        copy = hs.load(tmp_path / "bandit")
        assert copy.prior == bandit.prior
        for each in (bandit, copy):
            prior = each.prior.as_gaussian()
            assert np.isfinite(prior.mean).all()
            assert np.isfinite(prior.root).all()
            each.task("new").learn(each.task("new").choose(offer()), 1.0)
            assert np.isfinite(each.task("new").belief.mean).all()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_a_task_can_be_taken_out_and_in_again(self):
        rng = np.random.default_rng(1)
        transfer = hs.EmpiricalBayes(units="given")
        state = transfer.init(2)
        contexts = 1e-20 * rng.normal(size=(10, 3, 2))
        rewards = 10.0 ** rng.uniform(0.0, 59.0, (10, 3)) * rng.normal(size=(10, 3))
        tasks = [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]
        for task in tasks:
            state = transfer.fold(state, task)
        for task in tasks[:2]:
            without = transfer.fold(state, task, -1.0)
            for after in (without, transfer.fold(without, task)):
                prior = transfer.prior(after)
                assert np.isfinite(prior.mean).all()
                assert np.isfinite(prior.root).all()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    @pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture(groups=2)])
    @pytest.mark.parametrize("units", ["free", "given"])
    @pytest.mark.parametrize(("size", "reward"), [(1e-59, 1e59), (1e-20, 1e59), (1e59, 1e-59)])
    def test_whatever_was_saved_is_loaded(self, transfer, units, size, reward, tmp_path):
        rng = np.random.default_rng(0)
        bandit = hs.Bandit(2, transfer.replace(units=units), seed=0, cache_size=2)
        for number in range(6):
            task = bandit.task(number)
            for _ in range(3):
                task.learn(task.choose(size * rng.normal(size=(3, 2))), reward * rng.normal())
            if number % 3:
                task.close()
        bandit.save(tmp_path / "bandit")
        assert hs.load(tmp_path / "bandit").prior == bandit.prior
        assert bandit.report().rounds == 18

    def test_a_fit_of_many_tasks_falls_back_to_the_first_of_them(self, monkeypatch):
        """Tasks as short as this do not show a noise of their own.

        With these rewards the fit overflows however its sums are rounded.
        """
        monkeypatch.setattr(passes, "FIRST_FIT_TASKS", 20)
        rng = np.random.default_rng(77)
        scale = np.where(rng.random(60) < 0.2, 1e36, 1.0)[:, None]
        contexts = rng.normal(size=(60, 2, 2))
        rewards = (contexts @ rng.normal(size=(60, 2, 1)))[..., 0] + 0.1 * rng.normal(size=(60, 2))
        rows = hs.Evidence.of(contexts, scale * rewards).pack()
        transfer = hs.Mixture(groups=2)
        with pytest.warns(RuntimeWarning, match="that of the first 20 tasks"):
            state = transfer.refit_partitions(PartitionList([rows], dim=2))
        assert state.task_count == 60
        assert np.isfinite(transfer.prior(state).as_gaussian().root).all()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    def test_so_is_what_is_left_of_older_tasks(self, kind, tmp_path, monkeypatch):
        monkeypatch.setattr(kept_state, "MIN_KEPT_TASKS", 2)
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 2)
        monkeypatch.setattr(mixture, "KEPT_TASKS", 2)
        rng = np.random.default_rng(2)
        bandit = hs.Bandit(2, kind(units="given"), seed=0, intercept=False)
        for number in range(7):
            contexts = 1e-20 * rng.normal(size=(3, 2))
            rewards = 1e59 * rng.normal(size=3) * 10.0 ** -rng.choice([0.0, 20.0, 59.0])
            bandit.add_evidence(number, hs.Evidence.of(contexts, rewards))
            bandit.task(number).close()
        bandit.save(tmp_path / "bandit")
        assert hs.load(tmp_path / "bandit").prior == bandit.prior


class TestHugeContexts:
    @pytest.mark.parametrize("size", [1e8, 1e16, 1e40])
    def test_one_far_out_of_its_features_range_is_refused_and_changes_nothing(self, size):
        """A Gram matrix cannot hold it beside the others."""
        bandits = [hs.Bandit(3, seed=0, cache_size=1), hs.Bandit(3, seed=0, cache_size=1)]
        rng = np.random.default_rng(3)
        for number in range(6):
            for k in range(10):
                contexts = rng.normal(size=(4, 3))
                if (number, k) == (3, 5):
                    with pytest.raises(hs.InputError, match="row 1, column 0"):
                        bandits[1].task(number).choose(contexts * [[1], [size], [1], [1]])
                choices = [bandit.task(number).choose(contexts) for bandit in bandits]
                assert choices[0].arm == choices[1].arm
                for bandit, choice in zip(bandits, choices, strict=True):
                    bandit.task(number).learn(choice, float(contexts[choice.arm].sum()))
            for bandit in bandits:
                bandit.task(number).close()
        assert bandits[0].prior == bandits[1].prior

    def test_odd_units_and_heavy_tails_are_not_far_out(self):
        rng = np.random.default_rng(4)
        bandit = hs.Bandit(3, seed=0)
        for _ in range(300):
            contexts = np.exp(2.0 * rng.normal(size=(5, 3))) * [1e-9, 1.0, 1e9]
            contexts[:, 1] *= rng.random(5) < 0.2
            bandit.task("a").learn(bandit.task("a").choose(contexts), float(rng.normal()))
        assert np.isfinite(bandit.task("a").belief.mean).all()

    @pytest.mark.parametrize(
        "kind",
        [hs.EmpiricalBayes, hs.Mixture, hs.Independent, hs.Bias, hs.Subspace],
    )
    def test_the_first_ones_spoil_their_own_task_at_most(self, kind, tmp_path):
        """Nothing tells yet that they are huge. A task's belief is right, or refused."""
        rng = np.random.default_rng(0)
        shift = np.array([3e3, -5e3, 8e3])
        bandit = hs.Bandit(3, kind(), noise=0.1, seed=0, cache_size=2)
        told = {name: [] for name in "abcdef"}

        def row(name, turn):
            if (name, turn) in [("a", 0), ("a", 1), ("e", 5)]:
                return 8e5 * shift * (1.0 + 1e-4 * rng.normal(size=3))
            return shift + rng.normal(size=3)

        refused = set()
        for name in told:
            for turn in range(12):
                x = row(name, turn)
                try:
                    choice = bandit.task(name).choose([x])
                except hs.InputError:
                    refused.add((name, turn))
                    continue
                reward = float(rng.normal())
                bandit.task(name).learn(choice, reward)
                told[name].append((x, reward))
        assert refused == {("e", 5)}
        bandit.save(tmp_path / "bandit")
        for each in (bandit, hs.load(tmp_path / "bandit")):
            for name, rounds in told.items():
                task = each.task(name)
                try:
                    belief = task.belief
                except hs.TaskError:
                    assert name == "a"
                    with pytest.raises(hs.TaskError, match="delete the task"):
                        task.choose([shift])
                    with pytest.raises(hs.TaskError, match="delete the task"):
                        task.predict([shift])
                    with pytest.raises(hs.TaskError, match="delete the task"):
                        each.choose_many(["b", name, "new"], [[shift]] * 3)
                    with pytest.raises(hs.TaskError, match="delete the task"):
                        task.close()
                    assert "new" not in each
                    assert (task.rounds, task.closed) == (12, False)
                    task.delete()
                    continue
                assert_learned(belief, rounds, each)
                task.close()
            assert_learned(each.task("new").belief, [], each)

    @pytest.mark.parametrize("kind", [hs.EmpiricalBayes, hs.Mixture])
    @pytest.mark.parametrize("size", [1e9, 1e11, 1e16])
    def test_the_very_first_one_makes_no_prior_certain(self, kind, size):
        """Its task shows next to no spread, from which the first guess is made with another."""
        rng = np.random.default_rng(0)
        bandit, centre, regret = hs.Bandit(4, kind(), seed=0), rng.normal(size=4), 0.0
        for number in range(8):
            task, theta = bandit.task(number), centre + 0.3 * rng.normal(size=4)
            for turn in range(25):
                contexts = rng.normal(size=(6, 4))
                values = contexts @ theta
                if (number, turn) == (0, 0):
                    contexts[:, 0] = size
                choice = task.choose(contexts)
                task.learn(choice, values[choice.arm] + 0.2 * rng.normal())
                regret += (number >= 2) * (values.max() - values[choice.arm])
            task.close()
        assert regret < 60.0  # without it about 10; choosing at random about 300

    @pytest.mark.parametrize("size", [1e5, 1e7])
    def test_the_very_first_one_costs_clicks_of_later_tasks_little(self, size):
        """Its task seemed to show that tasks hardly differ, and as narrow a prior was learned."""
        rng, regret = np.random.default_rng(0), 0.0
        bandit = hs.Bandit(4, reward="binary", seed=0)
        for number in range(12):
            task, theta = bandit.task(number), [1.0, -1.0, 0.5, 0.0] + 0.2 * rng.normal(size=4)
            for turn in range(25):
                contexts = rng.normal(size=(4, 4))
                if (number, turn) == (0, 0):
                    contexts[:, 1] *= size
                chances = expit(contexts @ theta - 2.0)
                choice = task.choose(contexts)
                task.learn(choice, rng.random() < chances[choice.arm])
                regret += (number >= 5) * (chances.max() - chances[choice.arm])
            task.close()
        assert regret < 7.0  # without it about 2.5; before, 12

    def test_ordinary_ones_are_not_refused_for_following_rounding(self):
        """Something next to zero came first: the others are not huge for that."""
        bandit = hs.Bandit(1, seed=0)
        task = bandit.task("a")
        for value in (5e-17, 1.0, 2.0, -1.0):
            task.learn(task.choose([[value]]), value)
        assert task.rounds == 4

    @pytest.mark.parametrize("size", [1e10, 1e16, 1e40])
    def test_a_belief_holds_one_in_one_feature(self, size):
        """Prior and evidence by themselves: what the row does not touch is known as before."""
        rng = np.random.default_rng(5)
        contexts = rng.normal(size=(30, 3))
        rewards = contexts @ [1.0, -0.5, 0.25]
        wide = contexts.copy()
        wide[7, 0] = size
        covariance = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
        prior = hs.Prior.gaussian(np.ones(3), covariance, noise=0.1)
        found = hs.Belief.of(prior, hs.Evidence.of(wide, rewards))
        # In the limit the row says θ₀ = r/size, and nothing else.
        rest = np.delete(np.arange(30), 7)
        sure = prior.covariance - np.outer(covariance[:, 0], covariance[0]) / covariance[0, 0]
        shifted = np.ones(3) - covariance[:, 0] / covariance[0, 0]
        sub = hs.Prior.gaussian(shifted[1:], sure[1:, 1:], noise=0.1)
        expected = hs.Belief.of(sub, hs.Evidence.of(contexts[rest][:, 1:], rewards[rest]))
        assert abs(found.mean[0]) < 1e-9
        np.testing.assert_allclose(found.mean[1:], expected.mean, rtol=1e-6)
        np.testing.assert_allclose(found.covariance[1:, 1:], expected.covariance, rtol=1e-6)
