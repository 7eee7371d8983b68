"""Units of features: what tasks tell of them, and that nothing else depends on them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.transfer.empirical_bayes import state as kept_state
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import ContextMoments, Units, change_of_units
from headstart.transfer.mixture import transfer as mixture


def some_tasks(rng, tasks=6, rounds=12, dim=3):
    contexts = rng.normal(size=(tasks, rounds, dim)) * [1.0, 5.0, 0.2] + [0.0, 10.0, -3.0]
    contexts = np.concatenate([contexts, np.ones((tasks, rounds, 1))], -1)
    rewards = rng.normal(size=(tasks, rounds))
    told = [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]
    return contexts, rewards, Tasks.of(told[0]).join(*(Tasks.of(one) for one in told[1:]))


def test_they_are_the_means_and_standard_deviations_of_all_rows():
    contexts, _, tasks = some_tasks(np.random.default_rng(0))
    units = Units.of(tasks, ContextMoments.zero(4), constant=True)
    rows = contexts.reshape(-1, 4)[:, :3]
    np.testing.assert_allclose(units.shift, [*rows.mean(0), 0.0], rtol=1e-9)
    np.testing.assert_allclose(1 / units.inverse, [*rows.std(0), 1.0], rtol=1e-9)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_one_task_tells_to_the_last_digit_what_tasks_of_one_tell(rounds, constant):
    rng = np.random.default_rng(rounds)
    contexts = np.column_stack([rng.normal(3.0, 5.0, (rounds, 3)), np.ones(rounds)])
    contexts[:, 1] = 2.0  # has not varied
    evidence = hs.Evidence.of(contexts, rng.normal(size=rounds))
    offered = ContextMoments.zero(4).add(rng.normal(size=(5, 4)))
    units = Units.of_task(evidence, offered, constant)
    assert units == Units.of(Tasks.of(evidence), offered, constant)
    mean, root = units.to_original(np.zeros(4), np.eye(4) / np.sqrt(0.3))
    np.testing.assert_array_equal(units.isotropic_root(0.3), root)
    assert not mean.any()


def test_evidence_in_units_is_that_of_contexts_in_units():
    contexts, rewards, tasks = some_tasks(np.random.default_rng(1))
    units = Units.of(tasks, ContextMoments.zero(4), constant=True)
    standard = (contexts - units.shift) * units.inverse
    for n in range(len(tasks)):
        direct = hs.Evidence.of(standard[n], rewards[n])
        changed = units.convert_evidence(tasks.task(n))
        np.testing.assert_allclose(changed.gram, direct.gram, atol=1e-9)
        np.testing.assert_allclose(changed.moment, direct.moment, atol=1e-9)


def test_a_prior_predicts_the_same_in_either_units():
    contexts, _, tasks = some_tasks(np.random.default_rng(2))
    units = Units.of(tasks, ContextMoments.zero(4), constant=True)
    rng = np.random.default_rng(3)
    mean, root = rng.normal(size=4), rng.normal(size=(4, 4))
    raw_mean, raw_root = units.to_original(mean, root)
    standard = (contexts - units.shift) * units.inverse
    np.testing.assert_allclose(contexts @ raw_mean, standard @ mean, atol=1e-9)
    np.testing.assert_allclose(contexts @ raw_root, standard @ root, atol=1e-9)


def test_parameters_change_with_the_units():
    rng = np.random.default_rng(4)
    before = Units.of(some_tasks(rng)[2], ContextMoments.zero(4), constant=True)
    after = Units.of(some_tasks(rng)[2], ContextMoments.zero(4), constant=True)
    theta = rng.normal(size=4)
    moved = change_of_units(before, after)[0] @ theta
    nothing = np.zeros((4, 4))
    np.testing.assert_allclose(
        after.to_original(moved, nothing)[0], before.to_original(theta, nothing)[0], atol=1e-9
    )


def test_one_task_with_a_huge_feature_does_not_tell_its_unit():
    _, _, tasks = some_tasks(np.random.default_rng(5))
    huge = hs.Evidence.of([[1e16, 1.0, 1.0, 1.0]], [1.0])
    units = Units.of(tasks, ContextMoments.zero(4), constant=True)
    other = Units.of(tasks.join(Tasks.of(huge)), ContextMoments.zero(4), constant=True)
    assert other.inverse[0] == pytest.approx(units.inverse[0])


def test_before_any_reward_the_contexts_on_offer_tell():
    offers = ContextMoments.zero(3).add(np.array([[1.0, 7.0, 1.0], [3.0, 7.0, 1.0]]))
    units = Units.of(Tasks.empty(3), offers, constant=True)
    np.testing.assert_allclose(units.inverse, [1.0, 0.0, 1.0])
    # The second feature has no unit before it varies, and no say.
    assert not units.to_original(np.ones(3), np.eye(3))[1][1].any()
    offers = offers.add(np.array([[1.0, 9.0, 1.0], [3.0, 9.0, 1.0]]))
    units = Units.of(Tasks.empty(3), offers, constant=True)
    np.testing.assert_allclose(units.inverse, 1.0)


def play(scale, shift, reward_unit, *, tasks=5, rounds=12, rule=None, transfer=None, seed=0):
    """The arms that a bandit chooses, with features and rewards in other units."""
    rng = np.random.default_rng(seed)
    mean, spread = rng.normal(size=3), rng.normal(size=(3, 3))
    bandit = hs.Bandit(3, transfer=transfer, rule=rule, seed=1)
    arms = []
    for number in range(tasks):
        theta = mean + spread @ rng.normal(size=3)
        task = bandit.task(number)
        for _ in range(rounds):
            contexts = rng.normal(size=(6, 3))
            noise = rng.normal()
            choice = task.choose(contexts * scale + shift)
            arms.append(choice.arm)
            reward = float(contexts[choice.arm] @ theta + 0.5 * noise + 2.0)
            task.learn(choice, reward_unit * reward)
        task.close()
    return arms


powers = st.integers(-6, 6).map(lambda power: 10.0**power)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture(groups=2)])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(powers, min_size=3, max_size=3), powers)
def test_no_decision_depends_on_units(transfer, scale, unit):
    assert play(scale, 0.0, unit, transfer=transfer) == play(1.0, 0.0, 1.0, transfer=transfer)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture(groups=2)])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3))
def test_nor_on_where_a_scale_begins(transfer, shift):
    assert play(1.0, shift, 1.0, transfer=transfer) == play(1.0, 0.0, 1.0, transfer=transfer)


def test_with_units_as_given_they_do():
    given_units = hs.EmpiricalBayes(units="given")
    assert play([1e6, 1.0, 1.0], 0.0, 1.0, transfer=given_units) != play(
        1.0, 0.0, 1.0, transfer=given_units
    )


class TestTasksThatAreNoLongerKept:
    """Of older tasks only sums are left, which are in units that nothing else may tell."""

    @pytest.fixture(autouse=True)
    def few_are_kept(self, monkeypatch):
        monkeypatch.setattr(kept_state, "MIN_KEPT_TASKS", 8)
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 8)
        monkeypatch.setattr(mixture, "KEPT_TASKS", 8)

    def close_tasks(self, bandit, count=24, constant_from=99):
        """Tasks around (2, −3); from one of them on the second feature is always 0."""
        rng = np.random.default_rng(0)
        for number in range(count):
            rows = np.column_stack([5.0 + rng.normal(size=(12, 2)), np.ones(12)])
            if number >= constant_from:
                rows[:, 1] = 0.0
            theta = [2.0, -3.0, 1.0] + 0.3 * rng.normal(size=3)
            rewards = rows @ theta + 0.1 * rng.normal(size=12)
            bandit.add_evidence(number, hs.Evidence.of(rows, rewards))
            bandit.task(number).close()

    def assert_learned(self, prior):
        np.testing.assert_allclose(prior.mean[:2], [2.0, -3.0], atol=0.4)
        spread = np.sqrt(np.diag(prior.as_gaussian().covariance))[:2]
        assert (spread > 0.1).all()
        assert (spread < 1.0).all()

    @pytest.mark.parametrize("dim", [2, 3])  # with an intercept that is added, or not
    def test_what_they_told_outlives_the_tasks_that_are_kept(self, dim):
        bandit = hs.Bandit(dim, seed=0, intercept=dim == 2)
        self.close_tasks(bandit)
        for number in range(16, 24):
            bandit.delete(number)
            self.assert_learned(bandit.prior)

    @pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture()])
    def test_what_they_told_of_a_feature_outlives_its_variation(self, transfer):
        bandit = hs.Bandit(2, transfer, seed=0)
        self.close_tasks(bandit, constant_from=12)
        self.assert_learned(bandit.prior)
