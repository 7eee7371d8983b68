"""Running tasks learn from each other: each from all others, none from itself, nothing twice."""

import contextlib
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import headstart as hs
from headstart.bandit.ledger import prior_state

DIM, NOISE = 4, 0.2
GIVEN = hs.EmpiricalBayes(units="given")  # whose prior before any task is not singular
MEAN = np.array([1.0, -1.0, 0.5, 0.0])
COVARIANCE = np.diag([0.5, 0.05, 0.01, 0.01])


def theta_of(id):
    return np.random.default_rng(id + 1000).multivariate_normal(MEAN, COVARIANCE)


def go_on(bandit, id, rounds, start=0):
    """Play some rounds of a task of that population; gives the arms."""
    arms = []
    for at in range(start, start + rounds):
        rng = np.random.default_rng([id, at])
        offer = rng.standard_normal((4, DIM))
        choice = bandit.task(id).choose(offer)
        bandit.learn(choice, offer[choice.arm] @ theta_of(id) + NOISE * rng.standard_normal())
        arms.append(choice.arm)
    return arms


def in_turns(bandit, ids, rounds, start=0):
    arms = {id: [] for id in ids}
    for at in range(start, start + rounds):
        for id in ids:
            arms[id] += go_on(bandit, id, 1, at)
    return arms


def from_others(bandit, id, others, noise=None):
    """By hand: finished tasks, and these running ones, as the transfer joins them."""
    transfer, finished = bandit.transfer, [n for n in bandit if bandit.task(n).closed]
    assert not finished, "here all tasks run"
    state = transfer.init(bandit.prior.dim, noise)
    return transfer.prior(transfer.with_running(state, [bandit.task(n).evidence for n in others]))


def apart(prior):
    """KL(population ‖ prior), in nats, of all but the intercept."""
    precision, shift = np.linalg.inv(prior.covariance[:DIM, :DIM]), MEAN - prior.mean[:DIM]
    ratio = precision @ COVARIANCE
    return 0.5 * (np.trace(ratio) - DIM + shift @ precision @ shift - np.linalg.slogdet(ratio)[1])


class TestWhatANewTaskStartsFrom:
    @pytest.mark.parametrize("noise", ["auto", NOISE])
    def test_it_is_what_the_running_tasks_know(self, noise, same_prior):
        bandit = hs.Bandit(DIM, GIVEN, noise=noise, seed=0)
        in_turns(bandit, range(6), rounds=20)
        empty = hs.Bandit(DIM, GIVEN, noise=noise).prior
        assert bandit.prior != empty
        assert apart(bandit.prior) < 0.3 * apart(empty)
        expected = from_others(bandit, None, range(6), None if noise == "auto" else noise)
        same_prior(bandit.prior, expected)

    def test_it_comes_closer_to_the_truth_as_they_learn(self):
        bandit, errors = hs.Bandit(DIM, noise=NOISE, seed=0), []
        for start in (0, 5, 20):
            in_turns(bandit, range(10), 5 if start < 20 else 20, start)
            errors.append(apart(bandit.prior))
        assert errors[0] > errors[1] > errors[2]

    def test_finished_and_running_tasks_count_together(self, same_prior):
        bandit = hs.Bandit(DIM, GIVEN, noise=NOISE, seed=0)
        for id in range(5):
            go_on(bandit, id, 20)
            bandit.task(id).close()
        finished = bandit.prior
        in_turns(bandit, range(5, 10), rounds=20)
        transfer, state = bandit.transfer, bandit.transfer.init(DIM, NOISE)
        for id in range(5):
            state = transfer.fold(state, bandit.task(id).evidence)
        same_prior(finished, transfer.prior(state))
        running = [bandit.task(id).evidence for id in range(5, 10)]
        same_prior(bandit.prior, transfer.prior(transfer.with_running(state, running)))

    def test_it_is_never_far_behind(self):
        """A prior may be kept for a while: until there are a quarter more rewards, and eight."""
        bandit = hs.Bandit(DIM, Sums(), noise=1.0, seed=0)
        for at in range(120):
            go_on(bandit, at % 5, 1, at)
            missing = at + 1 - seen_by(bandit.prior)
            assert 0 <= missing < max(8, (at + 1) / 4)

    def test_only_so_many_of_the_latest_used_count(self, monkeypatch, same_prior):
        monkeypatch.setattr(prior_state, "MAX_RUNNING", 2)
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
        in_turns(bandit, range(5), rounds=12)
        go_on(bandit, 1, 1, start=12)
        bandit.task(3).refresh()
        same_prior(bandit.task(3).belief.prior, from_others(bandit, 3, [1, 4], NOISE))

    def test_a_task_that_went_idle_counts_again_when_it_is_back(self, same_prior):
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0, cache_size=2)
        in_turns(bandit, range(3), rounds=12)
        bandit.task(2).refresh()
        same_prior(bandit.task(2).belief.prior, from_others(bandit, 2, [1], NOISE))
        go_on(bandit, 0, 1, start=12)
        bandit.task(2).refresh()
        same_prior(bandit.task(2).belief.prior, from_others(bandit, 2, [0], NOISE))

    def test_without_sharing_only_finished_tasks_count(self):
        alone = hs.EmpiricalBayes(running=False, units="given")
        bandit = hs.Bandit(DIM, alone, noise=NOISE, seed=0)
        in_turns(bandit, range(6), rounds=20)
        assert bandit.prior == hs.Bandit(DIM, alone, noise=NOISE).prior

    def test_a_deleted_task_leaves_no_trace(self, same_prior):
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
        in_turns(bandit, range(4), rounds=20)
        assert bandit.prior != from_others(bandit, None, [0, 1, 2], NOISE)
        bandit.delete(3)
        same_prior(bandit.prior, from_others(bandit, None, [0, 1, 2], NOISE))

    def test_tasks_that_start_together_find_their_scale_together(self):
        """From the first reward on, whatever the unit: nobody may start from R = 1 any more."""
        believed = []
        for unit in (1.0, 1024.0):
            bandit = hs.Bandit(DIM, seed=0)
            first, second = bandit.task("first"), bandit.task("second")
            first.learn(first.choose(np.eye(DIM)), unit)
            second.learn(second.choose(np.eye(DIM)), 2.0 * unit)
            believed.append([task.belief.noise / unit for task in (first, second)])
        np.testing.assert_allclose(believed[0], believed[1], rtol=1e-9)


class TestWhatARunningTaskBelieves:
    @pytest.mark.parametrize("noise", ["auto", NOISE])
    def test_a_prior_from_the_others_and_its_own_evidence(self, noise, same_belief):
        bandit = hs.Bandit(DIM, noise=noise, seed=0)
        in_turns(bandit, range(5), rounds=15)
        for id in range(5):
            bandit.task(id).refresh()
            others = [other for other in range(5) if other != id]
            prior = from_others(bandit, id, others, None if noise == "auto" else noise)
            expected = hs.Belief.of(prior, bandit.task(id).evidence)
            same_belief(bandit.task(id).belief, expected)

    def test_what_it_has_shown_itself_is_never_in_its_prior(self):
        """Two bandits that differ in one task's rewards only: that task starts alike in both."""
        priors = []
        for surprise in (0.0, 5.0):
            bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
            in_turns(bandit, range(4), rounds=15)
            task = bandit.task("mine")
            for _ in range(6):
                task.learn(task.choose(np.eye(DIM)[:1]), surprise)
            task.refresh()
            priors.append(task.belief.prior)
        assert priors[0] == priors[1]

    def test_refreshing_brings_what_others_learned_meanwhile(self):
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
        go_on(bandit, 0, 3)
        task = bandit.task(0)
        before, evidence = task.belief, task.evidence
        in_turns(bandit, range(1, 8), rounds=20)
        assert task.belief == before
        task.refresh()
        assert apart(task.belief.prior) < 0.5 * apart(before.prior)
        assert task.evidence == evidence

    def test_a_frozen_bandit_refreshes_nothing(self):
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
        in_turns(bandit, range(3), rounds=10)
        before = bandit.task(0).belief
        bandit.freeze()
        bandit.task(0).refresh()
        assert bandit.task(0).belief is before

    def test_tasks_at_the_same_time_fare_better_together(self):
        """Ten tasks in turns, thirty rounds each: less regret than if none knew of the others."""
        lost = {True: 0.0, False: 0.0}
        for running in lost:
            for seed in range(3):
                bandit = hs.Bandit(DIM, hs.EmpiricalBayes(running=running), seed=seed)
                for at in range(30):
                    for id in range(10):
                        rng = np.random.default_rng([seed, id, at])
                        offer = rng.standard_normal((4, DIM))
                        worth = offer @ theta_of(10 * seed + id)
                        choice = bandit.task(id).choose(offer)
                        bandit.learn(choice, worth[choice.arm] + NOISE * rng.standard_normal())
                        lost[running] += worth.max() - worth[choice.arm]
        assert lost[True] < 0.95 * lost[False]


@dataclasses.dataclass(frozen=True)
class Counts(hs.Transfer):
    """Tells by its prior's mean how many rewards of each task it was given.

    (The contexts of task i are eᵢ and its rewards 1.)
    """

    reversible = True
    counts_running = True

    def init(self, dim, noise=None, batch=()):
        return np.zeros(dim)

    def fold(self, state, evidence, weight=1.0):
        return state + weight * evidence.moment

    def with_running(self, state, running):
        return sum((evidence.moment for evidence in running), state)

    def prior(self, state):
        return hs.Prior(state, np.eye(len(state)))


class TestNoTaskLearnsFromItself:
    """A prior may be kept and used again: but not for a task whose rewards it has counted."""

    def bandit(self, **options):
        return hs.Bandit(5, Counts(), hs.Uniform(), noise=1.0, seed=0, **options)

    def play(self, bandit, id, rounds=1):
        for _ in range(rounds):
            bandit.learn(bandit.task(id).choose(np.eye(5)[[id]]), 1.0)

    def given(self, bandit, id):
        """How many rewards of each task are in the prior of one."""
        return bandit.task(id).belief.prior.mean.astype(int).tolist()

    def reloaded(self, bandit, tmp_path):
        bandit.save(tmp_path / "b")
        return hs.load(tmp_path / "b", transfer=Counts())

    def test_what_the_fake_tells(self):
        bandit = self.bandit()
        self.play(bandit, 0, 9)
        self.play(bandit, 1, 9)
        assert self.given(bandit, 1) == [9, 0, 0, 0, 0]
        bandit.task(2).choose(np.eye(5)[[2]])
        assert self.given(bandit, 2) == [9, 9, 0, 0, 0]
        bandit.task(0).refresh()
        assert self.given(bandit, 0) == [0, 9, 0, 0, 0]

    @pytest.mark.parametrize("reload", [False, True])
    def test_when_it_runs_on(self, reload, tmp_path):
        bandit = self.bandit()
        self.play(bandit, 0, 10)
        bandit.task(1).choose(np.eye(5)[[1]])  # a prior is kept, with ten rewards of task 0
        if reload:
            bandit = self.reloaded(bandit, tmp_path)
        bandit.task(0).refresh()
        assert self.given(bandit, 0) == [0] * 5

    @pytest.mark.parametrize("reload", [False, True])
    def test_when_it_is_back_from_idle(self, reload, tmp_path):
        bandit = self.bandit(cache_size=2)
        self.play(bandit, 0, 10)
        bandit.task(1).choose(np.eye(5)[[1]])  # a prior is kept, with ten rewards of task 0
        bandit.task(2).choose(np.eye(5)[[2]])  # for which there is no room any more
        if reload:
            bandit = self.reloaded(bandit, tmp_path)
        assert self.given(bandit, 0) == [0] * 5  # looked at while it is idle
        bandit.task(0).choose(np.eye(5)[[0]])
        assert self.given(bandit, 0) == [0] * 5

    def test_when_others_were_used_after_it(self, monkeypatch):
        """Only the latest used count: a task may be in a prior that is kept, and not count now."""
        monkeypatch.setattr(prior_state, "MAX_RUNNING", 2)
        bandit = self.bandit()
        self.play(bandit, 0, 10)
        for id in (1, 2, 3):
            self.play(bandit, id)
        bandit.task(0).refresh()
        assert self.given(bandit, 0)[0] == 0

    def test_when_it_is_closed_and_runs_on(self):
        bandit = self.bandit()
        self.play(bandit, 0, 10)
        bandit.task(0).close()
        bandit.task(1).choose(np.eye(5)[[1]])
        assert self.given(bandit, 1) == [10, 0, 0, 0, 0]
        assert self.given(bandit, 0) == [0] * 5
        self.play(bandit, 0)
        assert self.given(bandit, 0) == [0] * 5

    def test_when_many_choose_in_one_call(self):
        bandit = self.bandit(cache_size=3)
        self.play(bandit, 0, 10)
        self.play(bandit, 1, 10)
        for ids in ([2, 3, 4], [0, 1], [4, 3, 2, 1, 0], [1, 1]):
            bandit.choose_many(ids, np.eye(5)[ids][:, None])
            for id in ids:
                assert self.given(bandit, id)[id] == 0

    def test_a_prior_that_is_kept_serves_those_it_does_not_count(self):
        """So that tasks which come and go do not each cost a new one."""
        bandit, made = self.bandit(cache_size=2), []
        real = Counts.prior
        self.play(bandit, 0, 40)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Counts, "prior", lambda self, state: made.append(1) or real(self, state))
            for _ in range(5):
                for id in (1, 2, 3, 4):
                    bandit.task(id).choose(np.eye(5)[[id]])
        assert len(made) <= 1


class SelfTaught(RuleBasedStateMachine):
    """Tasks in any order of life, with room for few: none is ever given its own rewards."""

    ids = st.integers(0, 4)

    def __init__(self):
        super().__init__()
        self.bandit = None
        self.late = []
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        self.folder.cleanup()

    @initialize(live=st.integers(1, 5))
    def start(self, live):
        self.bandit = hs.Bandit(5, Counts(), hs.Uniform(), noise=1.0, seed=0, cache_size=live)

    def choose(self, id):
        return self.bandit.task(id).choose(np.eye(5)[[id]])

    @rule(id=ids, times=st.integers(1, 12))
    def play(self, id, times):
        for _ in range(times):
            self.bandit.learn(self.choose(id), 1.0)

    @rule(id=ids)
    def only_choose(self, id):
        self.late.append(self.choose(id))

    @rule(ids=st.lists(ids, min_size=1, max_size=6))
    def choose_many(self, ids):
        self.late += self.bandit.choose_many(ids, np.eye(5)[ids][:, None])

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def learn_late(self, data):
        choice = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        with contextlib.suppress(hs.ChoiceError, hs.TaskError):  # it may have been deleted since
            self.bandit.learn(choice, 1.0)

    @rule(id=ids, how=st.sampled_from(["close", "refresh", "delete"]))
    def end(self, id, how):
        if id in self.bandit:
            getattr(self.bandit.task(id), how)()

    @rule()
    def save_and_load(self):
        path = Path(self.folder.name) / "saved"
        self.bandit.save(path)
        self.bandit = hs.load(path, transfer=Counts())

    @invariant()
    def nobody_is_told_of_itself(self):
        for id in self.bandit or ():
            prior = self.bandit.task(id).belief.prior
            assert prior.mean[int(id)] == 0
            assert (prior.mean >= 0).all()

    @invariant()
    def what_a_new_task_would_be_told_is_true(self):
        if self.bandit is not None:
            shown = [self.bandit.task(id).rounds if id in self.bandit else 0 for id in range(5)]
            assert (self.bandit.prior.mean <= shown).all()


SelfTaught.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestNobodyIsEverToldOfItself = SelfTaught.TestCase


class TestUnits:
    @pytest.mark.parametrize("silent", [0, 1, 3, 6, 11])
    def test_tasks_side_by_side_decide_alike_in_any_unit(self, silent):
        """Also if the first rewards are zero, which tell no scale: clicks begin like that."""

        def history(unit):
            bandit, arms = hs.Bandit(3, seed=7), []
            for at in range(6):
                for id in range(at, at + 4):  # a task starts in every turn
                    rng = np.random.default_rng([id, at])
                    offer = rng.standard_normal((5, 3))
                    choice = bandit.task(id).choose(offer)
                    reward = offer[choice.arm] @ [1.0, 0.5, 0.2] + 0.3 * rng.standard_normal()
                    bandit.learn(choice, unit * float(reward) * (len(arms) >= silent))
                    arms.append(choice.arm)
            return arms

        # Powers of two scale without rounding: the decisions must agree even where scores tie.
        assert history(1024.0) == history(1.0) == history(1 / 1024)


class TestMilestones:
    def changes(self, rounds, meanwhile):
        """After which of its choices a task has another prior, and the others' part in that."""
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
        in_turns(bandit, range(1, 5), rounds=10)
        prior, changed = None, []
        for at in range(rounds):
            go_on(bandit, 0, 1, at)
            now = bandit.task(0).belief.prior
            if at and not close(prior, now):
                changed.append(at + 1)
            prior = now
            meanwhile(bandit, at)
        return changed

    def test_a_task_takes_a_new_prior_after_8_32_and_128_choices(self):
        def others_learn(bandit, at):
            go_on(bandit, 1 + at % 4, 2, 10 + 2 * at)

        assert self.changes(140, others_learn) == [8, 32, 128]

    def test_not_if_the_others_have_learned_nothing(self):
        assert self.changes(40, lambda bandit, at: None) == []

    def test_nor_if_they_have_learned_little(self):
        """Six rewards more than forty are not much, however many the task itself has seen."""

        def others_learn(bandit, at):
            if at < 6:
                go_on(bandit, 1 + at % 4, 1, 10 + at)

        assert self.changes(40, others_learn) == []

    def test_nor_where_running_tasks_do_not_count(self):
        bandit = hs.Bandit(DIM, hs.EmpiricalBayes(running=False), noise=NOISE, seed=0)
        go_on(bandit, 0, 1)
        prior = bandit.task(0).belief.prior
        for at in range(1, 40):
            go_on(bandit, 0, 1, at)
            go_on(bandit, 1, 2, 2 * at)
            if at == 20:
                bandit.task(1).close()
        assert bandit.task(0).belief.prior is prior


def close(one, other):
    return np.allclose(one.mean, other.mean, rtol=1e-9, atol=1e-12) and np.allclose(
        one.covariance, other.covariance, rtol=1e-9, atol=1e-12
    )


class TestLooking:
    """What is only asked for changes no decision, and a file changes none either."""

    def play(self, bandit, look=lambda bandit: bandit):
        arms = []
        for at in range(12):
            for id in range(at, at + 3):  # a task starts in every turn, and one ends
                arms += go_on(bandit, id, 1, at)
                bandit = look(bandit)
            bandit.task(at).close()
        return arms, bandit.task("new").belief

    def test_asking_for_priors_and_reports_changes_no_decision(self):
        def look(bandit):
            bandit.report(), repr(bandit)
            for id in bandit:
                bandit.task(id).belief, bandit.task(id).predict(np.eye(DIM))
            return bandit

        plain, believed = self.play(hs.Bandit(DIM, seed=0))
        asked, also_believed = self.play(hs.Bandit(DIM, seed=0), look)
        assert asked == plain
        assert also_believed == believed

    def test_nor_does_it_change_what_a_new_task_starts_from(self):
        """Three rewards later: the same, whether somebody had looked or not."""
        started = []
        for look in (False, True):
            bandit = hs.Bandit(DIM, noise=NOISE, seed=0)
            in_turns(bandit, range(3), rounds=8)
            if look:
                bandit.report()
            in_turns(bandit, range(3), rounds=1, start=8)
            started.append(bandit.task("new").belief.prior)
        assert started[0] == started[1]

    def test_saving_and_loading_in_the_middle_changes_no_decision(self, tmp_path):
        def look(bandit):
            bandit.save(tmp_path / "b")
            return hs.load(tmp_path / "b")

        plain, believed = self.play(hs.Bandit(DIM, seed=0))
        reloaded, also_believed = self.play(hs.Bandit(DIM, seed=0), look)
        assert reloaded == plain
        assert also_believed == believed

    @pytest.mark.parametrize("rounds", [5, 8, 30])
    def test_a_loaded_bandit_goes_on_exactly(self, rounds, tmp_path, lasting):
        bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0)
        in_turns(bandit, range(4), rounds)
        bandit.task(2).close()
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert lasting(loaded) == lasting(bandit)
        for id in (0, 9, 3, 2):  # running, new, running, reopened
            assert go_on(loaded, id, 30, rounds) == go_on(bandit, id, 30, rounds)
        assert lasting(loaded) == lasting(bandit)
        assert loaded.prior == bandit.prior


@dataclasses.dataclass(frozen=True)
class Sums(hs.Transfer):
    """Tells by its prior which rewards it was given: mean Σ r x, and their number."""

    reversible = True
    counts_running = True

    def init(self, dim, noise=None, batch=()):
        return hs.Evidence.zero(dim)

    def fold(self, state, evidence, weight=1.0):
        if weight > 0:
            return state + evidence
        return hs.Evidence(
            state.gram - evidence.gram,
            state.moment - evidence.moment,
            state.rounds - evidence.rounds,
            max(state.squares - evidence.squares, 0.0),
        )

    def with_running(self, state, running):
        return sum(running, state)

    def prior(self, state):
        return hs.Prior(state.moment, np.eye(state.dim), bias=state.rounds)


def seen_by(prior):
    """How many rewards the prior of :class:`Sums` was given."""
    return prior.bias


class Sharing(RuleBasedStateMachine):
    """Tasks in any order of life; what each starts from is compared with the raw rounds."""

    ids = st.integers(0, 4)

    def __init__(self):
        super().__init__()
        self.bandit = hs.Bandit(2, Sums(), hs.Uniform(), noise=1.0, seed=0)
        self.rounds = {}  # id: raw rounds
        self.count = 0
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        self.folder.cleanup()

    def sums(self, without=None):
        told = [pair for id in self.rounds if id != without for pair in self.rounds[id]]
        return sum((r * x for x, r in told), np.zeros(2)), len(told)

    def known(self, data):
        return data.draw(st.sampled_from(sorted(self.rounds)))

    @rule(id=ids, times=st.integers(1, 9))
    def play(self, id, times):
        for _ in range(times):
            choice = self.bandit.task(id).choose(np.eye(2))
            self.count += 1
            self.bandit.learn(choice, float(self.count))
            self.rounds.setdefault(id, []).append((choice.context, float(self.count)))

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def close(self, data):
        self.bandit.task(self.known(data)).close()

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def late_reward(self, data):
        id = self.known(data)
        choice = self.bandit.task(id).choose(np.eye(2))
        self.bandit.task(id).close()
        self.bandit.learn(choice, 0.5)
        self.rounds[id].append((choice.context, 0.5))

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def delete(self, data):
        id = self.known(data)
        self.bandit.delete(id)
        del self.rounds[id]

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def refresh(self, data):
        self.bandit.task(self.known(data)).refresh()

    @rule()
    def save_and_load(self):
        path = Path(self.folder.name) / "saved"
        self.bandit.save(path)
        self.bandit = hs.load(path, transfer=Sums())

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def what_a_task_would_start_from(self, data):
        """All rewards but its own, each once, whether their tasks run or have finished."""
        id = self.known(data)
        self.bandit.task(id).refresh()  # does nothing to a finished task, which has no belief
        prior = self.bandit.task(id).belief.prior
        mean, count = self.sums(without=id)
        np.testing.assert_allclose(prior.mean, mean, rtol=1e-9, atol=1e-9)
        assert seen_by(prior) == count


Sharing.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestNothingIsLostOrCountedTwice = Sharing.TestCase
