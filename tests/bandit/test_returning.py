"""Users who return after their task was closed: what they cost, and what they start from."""

import copy
import functools

import numpy as np
import pytest

import headstart as hs
from headstart.bandit.ledger import fold_job
from headstart.transfer.empirical_bayes import state as kept_state

DIM, NOISE = 3, 0.3


def play(bandit, id, rounds, odd=0.0):
    """Rounds of a user around a mean, the same ones in the same order."""
    task, rng = bandit.task(id), np.random.default_rng([hash_of(id), bandit.task(id).rounds])
    theta = np.ones(DIM) + 0.5 * np.random.default_rng(hash_of(id)).standard_normal(DIM) + odd
    contexts = rng.standard_normal((rounds, DIM))
    task.observe(contexts, contexts @ theta + NOISE * rng.standard_normal(rounds))


def hash_of(id):
    return int(str(id)) + 17


@functools.cache
def served(users, cache_size=16, odd=0.0):
    """A bandit with closed users, the first of them an odd one; to be copied."""
    bandit = hs.Bandit(DIM, seed=0, cache_size=cache_size)
    for id in range(users):
        play(bandit, id, 8, odd if id == 0 else 0.0)
        bandit.task(id).close()
    return bandit


def copy_of(*args, **options):
    return copy.copy(served(*args, **options))


@pytest.fixture
def calls(monkeypatch):
    """The names of the methods of the transfer that were called."""
    seen = []
    for name in ("fold", "prior", "with_running", "refit"):
        real = getattr(hs.EmpiricalBayes, name)

        def counted(self, *args, real=real, name=name, **options):
            seen.append(name)
            return real(self, *args, **options)

        monkeypatch.setattr(hs.EmpiricalBayes, name, counted)
    return seen


def left_out(bandit, id):
    """The belief of a closed task from the prior without it."""
    state = bandit._state.ledger.prior_state
    prior = bandit.transfer.prior(state.state_without(str(id)))
    return prior.belief(bandit.task(id).evidence)


def moved(one, other):
    """By how many standard deviations two beliefs differ."""
    whiten = np.linalg.inv(one.root) / one.noise
    return np.linalg.norm(whiten @ (other.mean - one.mean))


class TestBeliefs:
    def test_among_few_tasks_their_own_evidence_is_left_out_exactly(self, same_belief):
        bandit = copy_of(12, cache_size=1)
        for id in (0, 5):
            same_belief(bandit.task(id).belief, left_out(bandit, id))

    def test_among_many_it_makes_little_difference_to_any(self):
        bandit = copy_of(150, odd=6.0)
        bandit.prior  # noqa: B018
        differences = [moved(left_out(bandit, id), bandit.task(id).belief) for id in range(1, 40)]
        assert max(differences) < 0.25
        assert 0.0 < np.median(differences) < 0.1

    def test_an_odd_one_is_left_out_exactly_however_many_there_are(self, same_belief):
        bandit = copy_of(150, odd=6.0)
        same_belief(bandit.task(0).belief, left_out(bandit, 0))

    def test_looking_at_a_belief_does_not_change_what_is_chosen(self, books):
        bandit, other = copy_of(150), copy_of(150)
        for id in (3, 140, 7):
            before = books(bandit)
            bandit.task(id).belief, bandit.prior, bandit.report()
            assert books(bandit) == before
            offer = np.random.default_rng(id).standard_normal((5, DIM))
            one, two = (each.task(id).choose(offer) for each in (bandit, other))
            assert one.arm == two.arm
            assert one.score == two.score
            for each, choice in ((bandit, one), (other, two)):
                each.learn(choice, 1.0)
                each.task(id).close()

    def test_saving_changes_nothing(self, tmp_path):
        bandit = copy_of(150)
        bandit.task("new").choose(np.eye(DIM))  # a prior is cached
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        for id in (3, 140, 3, 7):
            offer = np.random.default_rng(id).standard_normal((5, DIM))
            one, two = (each.task(id).choose(offer) for each in (bandit, loaded))
            assert one.score == two.score
            for each, choice in ((bandit, one), (loaded, two)):
                each.learn(choice, 1.0)
                each.task(id).close()


class TestWork:
    """What a returning user waits for, in calls of the transfer."""

    def test_one_whose_belief_is_cached_waits_for_nothing(self, calls):
        bandit = copy_of(20)
        for id in (18, 19):
            calls.clear()
            choice = bandit.task(id).choose(np.eye(DIM))
            bandit.learn(choice, 1.0)
            assert calls == []
            assert not bandit.task(id).closed
            bandit.task(id).close()

    def test_nor_do_most_of_many_once_there_is_a_prior(self, calls):
        bandit, waits = copy_of(150), []
        bandit.task(0).choose(np.eye(DIM))
        bandit.task(0).close()
        for id in range(1, 31):  # long evicted
            calls.clear()
            bandit.learn(bandit.task(id).choose(np.eye(DIM)), 1.0)
            waits.append(bool(calls))
            bandit.task(id).close()
        assert np.mean(waits) < 0.25

    def test_a_running_task_does_not_wait_for_those_that_returned(self, calls):
        bandit = copy_of(20)
        bandit.task("run").choose(np.eye(DIM))
        bandit.task(19).choose(np.eye(DIM))  # to be removed from the state
        calls.clear()
        bandit.task("another").choose(np.eye(DIM))
        assert calls == []

    def test_choices_never_wait_for_a_refit(self, calls, monkeypatch):
        monkeypatch.setattr(fold_job, "MIN_REMOVALS", 2)
        bandit = copy_of(10)
        for _ in range(12):
            for id in range(10):
                bandit.task(id).choose(np.eye(DIM))
            bandit.task("new").choose(np.eye(DIM))
            bandit.prior  # noqa: B018
            for id in range(10):
                bandit.task(id).close()
        assert "refit" not in calls


class TestPrior:
    def test_it_learns_from_users_who_return(self):
        """A fit of eight rounds of each, once they have had forty, is like one to all forty."""
        bandit = copy_of(40)
        for _ in range(4):
            for id in range(40):
                bandit.task(id).choose(np.eye(DIM))
                play(bandit, id, 8)
                bandit.task(id).close()
        state = bandit._state.ledger.prior_state
        whole = bandit.transfer.prior(
            bandit.transfer.refit([bandit.task(id).evidence for id in range(40)])
        )
        prior = bandit.transfer.prior(state.state)
        assert prior.noise == pytest.approx(whole.noise, rel=1e-6)
        np.testing.assert_allclose(prior.mean, whole.mean, atol=2e-3)
        np.testing.assert_allclose(prior.covariance, whole.covariance, atol=6e-3)


class TestRefits:
    """Where older tasks are sums, they are fitted again after many returns, by a call of close."""

    @pytest.fixture
    def bandit(self, monkeypatch):
        monkeypatch.setattr(fold_job, "MIN_REMOVALS", 2)
        monkeypatch.setattr(fold_job, "EXACT_REMOVALS", 0.4)
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 32)
        bandit = hs.Bandit(DIM, seed=0, cache_size=64)
        for id in range(40):
            play(bandit, id, 6)
            bandit.task(id).close()
        assert bandit._state.ledger.prior_state.state.past_count > 0
        return bandit

    def visit(self, bandit, ids):
        for id in ids:
            bandit.task(id).choose(np.eye(DIM))
            play(bandit, id, 1)
            bandit.task(id).close()

    def test_it_is_that_of_the_closed_tasks(self, bandit, calls):
        self.visit(bandit, range(16))
        assert "refit" not in calls
        self.visit(bandit, [16])
        assert calls.count("refit") == 1
        state = bandit._state.ledger.prior_state
        told = [bandit.task(id).evidence for id in state.closed]
        fresh = bandit.transfer.prior(bandit.transfer.refit(told))
        np.testing.assert_allclose(bandit.transfer.prior(state.state).mean, fresh.mean, rtol=1e-9)
        assert state.removal_count == 0

    def test_what_happens_meanwhile_is_not_lost(self, bandit, monkeypatch, same_prior):
        real, done = hs.EmpiricalBayes.refit, []

        def slow(self, evidences, *args):
            fitted = real(self, evidences, *args)
            if not done:
                done.append(1)
                bandit.delete(30)
                play(bandit, 31, 3)  # a closed task: late rewards
                bandit.task(32).choose(np.eye(DIM))
                play(bandit, "100", 5)
                bandit.task("100").close()
            return fitted

        monkeypatch.setattr(hs.EmpiricalBayes, "refit", slow)
        self.visit(bandit, range(17))
        assert done
        state = bandit._state.ledger.prior_state
        assert set(state.removals) == {"30", "31", "32"}
        assert set(state.unfolded) == {"31", "100"}
        state.update()
        assert not state.removals
        assert not state.unfolded
        assert state.state.task_count == len(state.closed) == 39
        for id in ("31", "100"):
            assert state.state.tasks.find(bandit.task(id).evidence) is not None

    def test_a_frozen_bandit_keeps_its_prior(self, bandit, monkeypatch):
        real = hs.EmpiricalBayes.refit

        def slow(self, evidences, *args):
            fitted = real(self, evidences, *args)
            bandit.freeze()
            return fitted

        monkeypatch.setattr(hs.EmpiricalBayes, "refit", slow)
        self.visit(bandit, range(16))
        state = bandit._state.ledger.prior_state
        self.visit(bandit, [16])
        assert bandit.frozen
        assert state.state.past_count > 0
        assert state.state.tasks.find(bandit.task(16).evidence) is not None
