"""The life of a task: opened, closed, resumed, corrected by late rewards, deleted.

What a user may rely on is one sentence: the prior is what the transfer makes of the evidence of the
closed tasks, whatever happened on the way there; and a task's belief is a prior that does not hold
its own evidence, plus its evidence.
"""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

import headstart as hs
from headstart.rules import Indexed

DIM = 3

TRANSFERS = {
    "exact": hs.Subspace(),
    "exact, rank 1": hs.Subspace(rank=1, warmup=2, min_rounds=1, lam1=25.0),
    "to the mean": hs.Subspace(shrink="mean", warmup=2),
    "ccipca": hs.Subspace(rank=1, pca="ccipca", warmup=2, min_rounds=1, lam1=25.0),
    "ccipca, weng": hs.Subspace(pca=hs.CCIPCA(start="weng"), rank=1, warmup=2, lam1=25.0),
    "bias": hs.Bias(),
    "pooled": hs.Bias(method="pooled", lam=2.0),
    "independent": hs.Independent(lam="plug-in"),
    "control": hs.Gaussian(forced=False, warmup=2),
    "forced": hs.Gaussian(warmup=2),
    "oracle": hs.Oracle.gaussian(np.ones(DIM), 0.1 * np.eye(DIM)),
}

each_transfer = pytest.mark.parametrize("transfer", TRANSFERS.values(), ids=TRANSFERS)


def make(transfer=None, noise="auto", **options):
    picking = hs.UCB()
    if transfer is not None and transfer.keeps_forced:
        picking = hs.Forced(4, picking)
    return hs.Bandit(DIM, transfer or hs.Subspace(), picking, noise, 0, **options)


def prior_from(bandit, tasks, noise=None):
    """What the transfer makes of these tasks' evidence alone."""
    evidences = [bandit.task(id).evidence for id in tasks if bandit.task(id).rounds]
    transfer = bandit.transfer
    if not evidences:
        return transfer.prior(transfer.init(DIM, noise))
    return transfer.prior(transfer.refit(evidences, noise))


def finish(bandit, ids, world, play, rounds=8):
    for id in ids:
        play(bandit, id, world(seed=hash_of(id), rounds=rounds, dim=DIM))
        bandit.task(id).close()


def hash_of(id):
    return sum(str(id).encode()) + 17


class TestClosing:
    @each_transfer
    def test_the_prior_is_the_transfer_of_the_closed_tasks(self, transfer, world, play, same_prior):
        bandit = make(transfer)
        finish(bandit, "abcdef", world, play)
        play(bandit, "open", world(seed=99, rounds=5, dim=DIM))
        same_prior(bandit.prior, prior_from(bandit, "abcdef"))
        assert [bandit.task(id).closed for id in bandit] == [True] * 6 + [False]

    @each_transfer
    def test_closing_twice_changes_nothing(self, transfer, world, play, content):
        bandit = make(transfer)
        finish(bandit, "abc", world, play)
        before = content(bandit)
        for _ in range(3):
            for id in "abc":
                bandit.task(id).close()
        assert content(bandit) == before

    def test_an_open_task_does_not_touch_the_prior(self, world, play):
        bandit = make()
        finish(bandit, "abc", world, play)
        before = bandit.prior
        play(bandit, "open", world(seed=1, rounds=20, dim=DIM))
        assert bandit.prior == before

    @each_transfer
    def test_a_task_without_rewards_adds_nothing(self, transfer, world, play):
        bandit = make(transfer)
        finish(bandit, "abcd", world, play)
        before = bandit.prior
        bandit.task("empty").choose(np.eye(DIM))
        bandit.task("empty").close()
        bandit.task("never chosen").close()
        assert bandit.prior == before
        assert bandit.task("empty").closed

    def test_the_first_prior_is_that_of_no_tasks(self, same_prior):
        for noise in ("auto", 0.3):
            bandit = make(noise=noise)
            known = None if noise == "auto" else noise
            same_prior(bandit.prior, prior_from(bandit, [], known))


class TestLateRewards:
    @each_transfer
    def test_a_late_reward_is_as_good_as_one_in_time(
        self, transfer, world, same_prior, same_belief
    ):
        """The same choices; in one bandit every third reward comes after all tasks are closed."""
        tasks = {id: world(seed=hash_of(id), rounds=9, dim=DIM) for id in "abcdef"}
        bandits = []
        for late in (False, True):
            bandit, postponed = make(transfer, noise=0.5), []
            for id, rounds in tasks.items():
                task = bandit.task(id)
                choices = [task.choose(offer[:1]) for offer in rounds.offers]
                for at, choice in enumerate(choices):
                    if late and at % 3 == 1:
                        postponed.append((choice, rounds.rewards[at, 0]))
                    else:
                        task.learn(choice, rounds.rewards[at, 0])
            for id in tasks:
                bandit.task(id).close()
            for choice, reward in postponed:
                bandit.learn(choice, reward)
            bandits.append(bandit)
        in_time, too_late = bandits
        same_prior(too_late.prior, in_time.prior)
        for id in tasks:
            assert too_late.task(id).closed
            assert too_late.task(id).rounds == in_time.task(id).rounds == 9
            same_belief(too_late.task(id).belief, in_time.task(id).belief)

    @each_transfer
    @pytest.mark.parametrize("look", [False, True])
    def test_a_task_closed_before_its_first_reward_keeps_its_place(
        self, transfer, look, world, play, same_prior
    ):
        """CCIPCA depends on the order of tasks: a late first reward must not change it."""
        early, late = make(transfer, noise=0.5), make(transfer, noise=0.5)
        offers = world(seed=5, rounds=6, dim=DIM)
        for bandit in (early, late):
            task = bandit.task("first")
            choices = [task.choose(offer[:1]) for offer in offers.offers]
            if bandit is early:
                task.learn(choices, offers.rewards[:, 0])
            task.close()
            finish(bandit, "abcd", world, play)
            if look:
                bandit.prior  # noqa: B018
            if bandit is late:
                task.learn(choices, offers.rewards[:, 0])
        same_prior(late.prior, prior_from(late, ["first", *"abcd"], 0.5))
        for id in "abcd":  # their choices differed, so only this is comparable
            assert early.task(id).closed
            assert late.task(id).closed
        same_prior(early.prior, prior_from(early, ["first", *"abcd"], 0.5))

    def test_rounding_does_not_add_up_over_many_late_rewards(self, world, play, same_prior):
        bandit = make()
        finish(bandit, "abcdef", world, play)
        rng = np.random.default_rng(0)
        choices = {id: [bandit.task(id).choose(rng.standard_normal((1, DIM)))] for id in "abcdef"}
        for id in "abcdef":
            choices[id] += [
                bandit.task(id).choose(rng.standard_normal((1, DIM))) for _ in range(60)
            ]
            bandit.task(id).close()
        for at in range(60):
            for id in "abcdef":
                bandit.task(id).learn(choices[id][at], rng.standard_normal())
                bandit.prior  # noqa: B018
        same_prior(bandit.prior, prior_from(bandit, "abcdef"))

    def test_a_late_reward_does_not_reopen(self, world, play):
        bandit = make()
        task = bandit.task("a")
        choice = task.choose(np.eye(DIM))
        task.close()
        task.learn(choice, 1.0)
        assert task.closed
        assert task.rounds == 1
        assert bandit.report().closed_tasks == 1


class TestResuming:
    @each_transfer
    def test_choosing_reopens_and_the_evidence_leaves_the_prior(
        self, transfer, world, play, same_prior
    ):
        bandit = make(transfer)
        finish(bandit, "abcdef", world, play)
        task = bandit.task("c")
        assert task.closed
        choice = task.choose(np.eye(DIM))
        assert not task.closed
        same_prior(bandit.prior, prior_from(bandit, "abdef"))
        task.learn(choice, 0.5)
        same_prior(bandit.prior, prior_from(bandit, "abdef"))
        task.close()
        same_prior(bandit.prior, prior_from(bandit, "abdefc"))
        assert task.rounds == 9

    def test_only_choosing_reopens(self, world, play):
        bandit = make()
        finish(bandit, "ab", world, play)
        task = bandit.task("a")
        task.predict(np.eye(DIM))
        task.refresh()
        task.belief, task.evidence, repr(task)
        assert task.closed

    @each_transfer
    def test_a_resumed_task_starts_from_the_others_and_its_own_evidence(
        self, transfer, world, play, same_belief
    ):
        bandit = make(transfer, noise=0.5)
        finish(bandit, "abcdef", world, play)
        task = bandit.task("b")
        expected = hs.Belief.of(prior_from(bandit, "acdef", 0.5), task.evidence)
        task.choose(np.eye(DIM))
        same_belief(task.belief, expected)


class TestBeliefs:
    @each_transfer
    @pytest.mark.parametrize("noise", ["auto", 0.5])
    def test_a_closed_task_is_believed_without_its_own_evidence_twice(
        self, transfer, noise, world, play, same_belief
    ):
        bandit = make(transfer, noise)
        finish(bandit, "abcdef", world, play)
        for id in "abcdef":
            others = [other for other in "abcdef" if other != id]
            prior = prior_from(bandit, others, None if noise == "auto" else noise)
            same_belief(bandit.task(id).belief, hs.Belief.of(prior, bandit.task(id).evidence))

    @each_transfer
    def test_a_running_task_keeps_its_prior_until_it_is_refreshed(
        self, transfer, world, play, same_belief
    ):
        bandit = make(transfer, noise=0.5)
        play(bandit, "run", world(seed=3, rounds=6, dim=DIM))
        task, first = bandit.task("run"), bandit.prior
        finish(bandit, "abcdef", world, play)
        same_belief(task.belief, hs.Belief.of(first, task.evidence))
        task.refresh()
        newest = prior_from(bandit, "abcdef", 0.5)
        same_belief(task.belief, hs.Belief.of(newest, task.evidence))
        play(bandit, "run", world(seed=4, rounds=6, dim=DIM))
        same_belief(task.belief, hs.Belief.of(newest, task.evidence))

    def test_the_only_task_tells_its_noise_itself_closed_or_not(self, world, play, same_belief):
        bandit = make()
        play(bandit, "a", world(seed=3, rounds=12, dim=DIM, noise=5.0))
        task = bandit.task("a")
        running = task.belief
        assert running.noise > 1.5
        task.close()
        same_belief(task.belief, running)

    def test_refreshing_a_resumed_task_leaves_its_own_evidence_out(self, world, play, same_belief):
        bandit = make(noise=0.5)
        finish(bandit, "abcde", world, play)
        task = bandit.task("a")
        task.choose(np.eye(DIM))
        finish(bandit, "fg", world, play)
        task.refresh()
        prior = prior_from(bandit, "bcdefg", 0.5)
        same_belief(task.belief, hs.Belief.of(prior, task.evidence))

    def test_refreshing_changes_neither_evidence_nor_prior(self, world, play):
        bandit = make()
        finish(bandit, "abcd", world, play)
        play(bandit, "run", world(seed=3, rounds=6, dim=DIM))
        task = bandit.task("run")
        evidence, prior = task.evidence, bandit.prior
        task.refresh()
        task.refresh()
        assert task.evidence == evidence
        assert bandit.prior == prior

    def test_a_new_task_starts_from_the_newest_prior(self, world, play):
        bandit = make()
        finish(bandit, "abcdef", world, play)
        assert bandit.task("new").belief == hs.Belief.start(bandit.prior)

    def test_an_idle_task_takes_the_newest_prior(self, world, play, same_belief):
        bandit = make(noise=0.5, cache_size=1)
        play(bandit, "idle", world(seed=1, rounds=6, dim=DIM))
        finish(bandit, "abcdef", world, play)
        task = bandit.task("idle")
        expected = hs.Belief.of(prior_from(bandit, "abcdef", 0.5), task.evidence)
        same_belief(task.belief, expected)


class TestDeleting:
    @each_transfer
    @pytest.mark.parametrize("look", [False, True])
    def test_a_closed_task_is_taken_out_of_the_prior(
        self, transfer, look, world, play, same_prior, same_belief
    ):
        bandit = make(transfer)
        finish(bandit, "abcdef", world, play)
        if look:
            bandit.prior  # noqa: B018
        bandit.delete("b")
        bandit.task("e").delete()
        assert list(bandit) == list("acdf")
        same_prior(bandit.prior, prior_from(bandit, "acdf"))
        prior = prior_from(bandit, "cdf")
        same_belief(bandit.task("a").belief, hs.Belief.of(prior, bandit.task("a").evidence))

    def test_an_open_task_leaves_no_trace(self, world, play):
        bandit = make()
        finish(bandit, "abcd", world, play)
        before = bandit.prior
        play(bandit, "open", world(seed=9, rounds=5, dim=DIM))
        bandit.delete("open")
        assert bandit.prior == before
        assert "open" not in bandit

    @each_transfer
    def test_without_any_task_the_prior_is_the_first_one_exactly(self, transfer, world, play):
        bandit = make(transfer)
        first = bandit.prior
        finish(bandit, "abc", world, play)
        for id in "cab":
            bandit.delete(id)
        assert bandit.prior == first
        assert bandit.report().rounds == 0

    @pytest.mark.parametrize("closed", [False, True])
    def test_old_choices_are_refused_even_if_the_id_is_used_again(self, closed, refused):
        bandit = make()
        task = bandit.task("a")
        choices = [task.choose(np.eye(DIM)) for _ in range(5)]
        task.learn(choices[0], 1.0)
        if closed:
            task.close()
        task.delete()
        again = bandit.task("a")
        fresh = again.choose(np.eye(DIM))
        for choice in choices:
            with refused(bandit, choice.id, error=hs.ChoiceError):
                again.learn(choice, 1.0)
            with refused(bandit, error=hs.ChoiceError):
                bandit.learn(choice.token, 1.0)
        assert again.rounds == 0
        assert again.learn(fresh, 1.0)

    def test_an_outlier_leaves_no_rounding_behind(self, world, play, same_prior):
        """A task whose rewards came in the wrong unit is deleted: the others must be unharmed."""
        bandit = make()
        for id in "abcxdefg":
            rounds = world(seed=hash_of(id), rounds=8, dim=DIM)
            if id == "x":
                rounds.rewards *= 1e8
            play(bandit, id, rounds)
            bandit.task(id).close()
        bandit.delete("x")
        same_prior(bandit.prior, prior_from(bandit, "abcdefg"))

    @each_transfer
    def test_tasks_without_any_success_stay_exactly_zero(self, transfer, world, play, same_prior):
        """Sums taken back must not leave rounding where there is nothing: it would look like R."""
        bandit = make(transfer)
        for id in "xabcd":
            rounds = world(seed=hash_of(id), rounds=8, dim=DIM)
            if id != "x":
                rounds.rewards *= 0.0
            play(bandit, id, rounds)
            bandit.task(id).close()
        bandit.prior  # noqa: B018
        bandit.delete("x")
        same_prior(bandit.prior, prior_from(bandit, "abcd"))

    @each_transfer
    def test_tasks_without_any_success_do_not_blind_the_next_one(self, transfer, world, play):
        """No click in the first tasks is no proof that there will never be one."""
        bandit = make(transfer)
        for id in "abcd":
            rounds = world(seed=hash_of(id), rounds=8, dim=DIM)
            rounds.rewards *= 0.0
            play(bandit, id, rounds)
            bandit.task(id).close()
        rounds = world(seed=1, rounds=40, dim=DIM, noise=0.01)
        play(bandit, "new", rounds)
        error = np.linalg.norm(bandit.task("new").belief.mean - rounds.theta)
        assert error < 0.5 * np.linalg.norm(rounds.theta)

    def test_deleting_one_of_many_open_tasks_leaves_the_others_alone(self, world, play):
        bandit = make()
        for id in "abc":
            play(bandit, id, world(seed=hash_of(id), rounds=5, dim=DIM))
        before = {id: bandit.task(id).evidence for id in "ac"}
        bandit.delete("b")
        assert {id: bandit.task(id).evidence for id in "ac"} == before


class TestFreezing:
    def test_nothing_is_learned_while_frozen(self, world, play, content):
        bandit = make()
        finish(bandit, "abc", world, play)
        play(bandit, "open", world(seed=1, rounds=5, dim=DIM))
        task = bandit.task("open")
        choice = task.choose(np.eye(DIM))
        bandit.freeze()
        assert bandit.frozen
        before = content(bandit)
        assert task.learn(choice, 1.0) is False
        assert bandit.learn([choice.token], [1.0]) is False
        task.close()
        task.refresh()
        assert content(bandit) == before

    def test_choices_go_on_and_a_closed_task_stays_closed(self, world, play):
        bandit = make()
        finish(bandit, "abc", world, play)
        prior = bandit.prior
        bandit.freeze()
        choice = bandit.task("a").choose(np.eye(DIM))
        assert choice.arm in range(DIM)
        assert bandit.task("a").closed
        assert bandit.prior == prior
        assert bandit.task("new").choose(np.eye(DIM)).arm in range(DIM)

    def test_frozen_choices_differ_from_round_to_round(self):
        bandit = hs.Bandit(DIM, rule=hs.Uniform(), seed=0)
        bandit.task("a").close()
        bandit.freeze()
        assert len({bandit.task("a").choose(np.eye(DIM)).arm for _ in range(50)}) == DIM

    def test_bad_calls_are_refused_as_ever(self, refused):
        bandit = make()
        task = bandit.task("a")
        choice = task.choose(np.eye(DIM))
        bandit.freeze()
        with refused(bandit, "reward"):
            task.learn(choice, float("nan"))
        with refused(bandit, error=hs.ChoiceError):
            task.learn("no token", 1.0)

    def test_what_was_chosen_while_frozen_can_be_learned_afterwards(self, world, play):
        bandit = make()
        finish(bandit, "a", world, play)
        bandit.freeze()
        choices = [bandit.task("a").choose(np.eye(DIM)), bandit.task("b").choose(np.eye(DIM))]
        bandit.unfreeze()
        assert not bandit.frozen
        assert bandit.learn(choices, [1.0, 2.0]) is True
        assert bandit.task("a").rounds == 9
        assert bandit.task("b").rounds == 1


def test_a_thousand_tasks_open_at_once_keep_to_themselves():
    """Rewards arrive in random order, some never: each task is the sum of its own rounds."""
    rng = np.random.default_rng(0)
    bandit = hs.Bandit(dim=4, seed=0, cache_size=64, intercept=False)
    pending, expected = [], {}
    for _ in range(6):
        for id in rng.permutation(1000):
            choice = bandit.task(int(id)).choose(rng.standard_normal((3, 4)))
            pending.append((choice.token if rng.random() < 0.2 else choice, choice, str(id)))
    order = rng.permutation(len(pending))[: int(0.8 * len(pending))]
    for at in order:
        given, choice, id = pending[at]
        reward = float(rng.standard_normal())
        (bandit if rng.random() < 0.5 else bandit.task(id)).learn(given, reward)
        expected.setdefault(id, []).append((choice.context, reward))
    assert len(bandit) == 1000
    assert bandit.report().open_tasks == 1000
    assert bandit.report().rounds == len(order)
    for id in bandit:
        shown = bandit.task(id).evidence
        contexts = np.array([x for x, _ in expected.get(id, [])]).reshape(-1, 4)
        sums = hs.Evidence.of(contexts, [r for _, r in expected.get(id, [])])
        for name in ("gram", "moment", "rounds", "squares"):
            np.testing.assert_allclose(
                getattr(shown, name), getattr(sums, name), rtol=1e-12, atol=1e-12
            )


class Life(RuleBasedStateMachine):
    """Any sequence of calls, next to a model that stores raw rounds and recomputes everything."""

    transfer = hs.Subspace()
    noise: float | None = None
    choices = Bundle("choices")
    ids = st.sampled_from("abcde")
    seeds = st.integers(0, 10_000)

    def __init__(self):
        super().__init__()
        self.bandit = hs.Bandit(
            2,
            self.transfer,
            hs.Thompson(),
            "auto" if self.noise is None else self.noise,
            0,
            cache_size=2,
        )
        self.rounds = {}  # id: raw rounds
        self.closed = []  # ids, in the order they were closed
        self.life = {}  # id: which task of that name this is
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        self.folder.cleanup()

    def evidence(self, id):
        contexts = np.array([x for x, _ in self.rounds[id]]).reshape(-1, 2)
        return hs.Evidence.of(contexts, [r for _, r in self.rounds[id]])

    def prior(self, *without):
        told = [self.evidence(id) for id in self.closed if self.rounds[id] and id not in without]
        if not told:
            return self.transfer.prior(self.transfer.init(2, self.noise))
        return self.transfer.prior(self.transfer.refit(told, self.noise))

    def is_known(self, told):
        id, number, *_ = told
        return id in self.rounds and self.life[id] == number

    @rule(target=choices, id=ids, seed=seeds, as_token=st.booleans())
    def choose(self, id, seed, as_token):
        if id not in self.rounds:
            self.rounds[id] = []
            self.life[id] = self.life.get(id, 0) + 1
        if id in self.closed:
            self.closed.remove(id)
        offer = np.random.default_rng(seed).standard_normal((2, 2))
        choice = self.bandit.task(id).choose(offer)
        np.testing.assert_array_equal(choice.context, offer[choice.arm])
        return id, self.life[id], choice.token if as_token else choice, choice.context, seed

    @rule(told=consumes(choices), through_task=st.booleans())
    def learn(self, told, through_task):
        id, _, choice, context, seed = told
        if not self.is_known(told):
            with pytest.raises((hs.ChoiceError, hs.TaskError)):
                self.bandit.learn(choice, 1.0)
            return
        reward = float(np.random.default_rng(seed + 1).standard_normal())
        (self.bandit.task(id) if through_task else self.bandit).learn(choice, reward)
        self.rounds[id].append((context, reward))
        with pytest.raises(hs.ChoiceError):
            self.bandit.learn(choice, reward)

    @rule(some=st.lists(consumes(choices), min_size=2, max_size=4))
    def learn_many(self, some):
        known = [told for told in some if self.is_known(told)]
        rewards = [float(seed) / 5000 - 1 for *_, seed in some]
        if len(known) < len(some):
            with pytest.raises((hs.ChoiceError, hs.TaskError)):
                self.bandit.learn([told[2] for told in some], rewards)
            return
        self.bandit.learn([told[2] for told in some], rewards)
        for told, reward in zip(some, rewards, strict=True):
            self.rounds[told[0]].append((told[3], reward))

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def close(self, data):
        id = data.draw(st.sampled_from(sorted(self.rounds)))
        self.bandit.task(id).close()
        if id not in self.closed:
            self.closed.append(id)

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def delete(self, data):
        id = data.draw(st.sampled_from(sorted(self.rounds)))
        self.bandit.delete(id)
        del self.rounds[id]
        if id in self.closed:
            self.closed.remove(id)

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def refresh(self, data):
        id = data.draw(st.sampled_from(sorted(self.rounds)))
        self.bandit.task(id).refresh()
        self.check_belief(id, self.prior(id))

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def look_at_a_closed_task(self, data):
        id = data.draw(st.sampled_from(self.closed))
        self.check_belief(id, self.prior(id))

    @rule()
    def save_and_load(self):
        path = Path(self.folder.name) / "saved"
        self.bandit.save(path)
        self.bandit = hs.load(path)

    @rule()
    def ask_for_the_prior(self):
        expected, prior = self.prior(), self.bandit.prior
        scale = max(float(np.abs(expected.mean).max()), float(expected.noise))
        np.testing.assert_allclose(prior.noise, expected.noise, rtol=1e-9)
        np.testing.assert_allclose(prior.mean, expected.mean, rtol=1e-9, atol=1e-9 * scale)
        size = float(np.abs(expected.covariance).max())
        np.testing.assert_allclose(
            prior.covariance, expected.covariance, rtol=1e-9, atol=1e-9 * size
        )

    def check_belief(self, id, prior):
        belief = self.bandit.task(id).belief
        expected = hs.Belief.of(prior, self.evidence(id))
        scale = max(1.0, float(np.abs(expected.mean).max()))
        np.testing.assert_allclose(belief.mean, expected.mean, rtol=1e-8, atol=1e-8 * scale)
        # In units of R²: a task that alone tells the noise has another R than its prior.
        scaled, wanted = (each.root @ each.root.T for each in (belief, expected))
        np.testing.assert_allclose(scaled, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())

    @invariant()
    def the_books_are_right(self):
        assert set(self.bandit) == set(self.rounds)
        for id in self.rounds:
            task = self.bandit.task(id)
            assert task.closed == (id in self.closed)
            shown, expected = task.evidence, self.evidence(id)
            assert task.rounds == len(self.rounds[id])
            np.testing.assert_allclose(shown.gram, expected.gram, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(shown.moment, expected.moment, rtol=1e-12, atol=1e-12)


class LifeWithBias(Life):
    transfer = hs.Bias()


class LifeWithCCIPCA(Life):
    transfer = hs.Subspace(rank=1, pca="ccipca", warmup=2, min_rounds=1, lam1=25.0, lam2=1.0)
    noise = 0.5


for machine in (Life, LifeWithBias, LifeWithCCIPCA):
    machine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)

TestLifeWithSubspace = Life.TestCase
TestLifeWithBias = LifeWithBias.TestCase
TestLifeWithCCIPCA = LifeWithCCIPCA.TestCase


class Refusing(Indexed):
    """A rule that refuses to choose as long as it is told to."""

    refuses = False

    def index(self, belief, contexts, rng):
        if Refusing.refuses:
            raise hs.InputError("not now")
        return belief.predict(contexts)


def test_a_choice_that_the_rule_refuses_leaves_the_prior_with_the_closed_tasks(monkeypatch):
    """Also where a task is about to leave the prior, and a feature has just got its unit."""
    rng = np.random.default_rng(0)
    bandit = hs.Bandit(2, rule=Refusing(), noise=0.3, seed=0)

    def play(id, times):
        for _ in range(times):
            contexts = np.column_stack([rng.standard_normal(3), np.ones(3)])
            bandit.learn(bandit.task(id).choose(contexts), float(rng.standard_normal()))

    for id in "abc":
        play(id, 5)
        bandit.task(id).close()
    play("a", 1)  # which runs again, and is removed from the prior when one is next computed
    monkeypatch.setattr(Refusing, "refuses", True)
    with pytest.raises(hs.InputError, match="not now"):
        bandit.task("new").choose(rng.standard_normal((3, 2)))
    monkeypatch.undo()
    play("d", 3)
    prior_state = bandit._state.ledger.prior_state
    prior_state.update()
    closed = [bandit.task(id).evidence.squares for id in "bc"]
    assert sorted(prior_state.state.tasks.squares) == sorted(closed)


def test_every_number_of_a_task_is_saved_and_loaded(tmp_path):
    bandit = hs.Bandit(2, seed=0, choice_window=4)
    bandit.task("a").choose(np.eye(2))
    bandit.delete("a")  # the numbers of the next one start higher
    choices = [bandit.task("a").choose(np.eye(2)) for _ in range(7)]
    bandit.learn(choices[5], 1.0)
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    before, after = (each._state.ledger.entries["a"] for each in (bandit, loaded))
    for field in dataclasses.fields(before):
        if field.name not in ("packed", "cached"):
            value = getattr(before, field.name)
            assert getattr(after, field.name) == value
            assert value or field.name in ("epoch", "other_windows")
    assert after.evidence(3) == before.evidence(3)


def test_a_unit_leaves_with_the_task_that_told_it(tmp_path):
    """Contexts on offer tell it from then on, after a load and without one."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(36, 2))
    contexts[12:, 0] = 1.0  # varies in task a alone
    rewards = contexts @ [1.0, 2.0] + 0.1 * rng.normal(size=36)
    rows = {"x0": contexts[:, 0], "x1": contexts[:, 1], "reward": rewards}
    bandit = hs.Bandit(2, seed=0)
    bandit.fit({"task": np.repeat(["a", "b", "c"], 12), **rows}, task="task", reward="reward")
    for name in ("new", "a", "b", "c", "d"):  # the choice reopens a, which stays open
        task = bandit.task(name)
        choice = task.choose(np.c_[np.ones(4), rng.normal(size=4)])
        if name in ("b", "c", "d"):
            task.learn(choice, 1.0)
            task.close()
    bandit.save(tmp_path / "bandit")
    again = hs.load(tmp_path / "bandit")
    offers = rng.normal(size=(4, 2))
    for name in ("a", "b", "new", "another"):
        expected = again.task(name).predict(offers).mean
        np.testing.assert_allclose(bandit.task(name).predict(offers).mean, expected, rtol=1e-9)
