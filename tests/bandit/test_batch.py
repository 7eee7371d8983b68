"""Choosing for many tasks in one call: what one call for each would have done, only faster.

A bandit and its twin are given the same rounds: one chooses for all tasks in one call, the other
for one after another. Every choice must be the same, and so must everything that the two know.
"""

import contextlib
import copy
import dataclasses
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import headstart as hs
from headstart.rules import Indexed
from headstart.rules import indexed as module

DIM, ARMS = 3, 4

RULES = [
    hs.UCB(),
    hs.UCB(0.0),
    hs.UCB(explore=0.4),
    hs.Thompson(draws=50),
    hs.Thompson(0.3, explore=0.3, draws=50),
    hs.Thompson("paper", draws=50),
    hs.Greedy(),
    hs.Greedy(explore=0.4),
    hs.Uniform(),
    hs.Forced(3, hs.UCB()),
    hs.Forced(2, hs.Thompson(draws=50)),
]
STACKED = [hs.UCB(), hs.Thompson(draws=50), hs.Greedy()]  # decided for a stack of beliefs
SETTINGS = {
    "default": {},
    "noise given": {"noise": 0.3},
    "independent": {"transfer": hs.Independent(), "noise": 0.3},
    "bias": {"transfer": hs.Bias()},
    "intercept": {"transfer": hs.Independent(), "noise": 0.3, "intercept": True},
    "forgetful": {"transfer": hs.Independent(), "noise": 0.3, "half_life": 5.0, "choice_window": 2},
}

each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
each_rule_and_theory = pytest.mark.parametrize("rule", [*RULES, hs.UCB("theory")], ids=repr)
each_stacked_rule = pytest.mark.parametrize("rule", STACKED, ids=repr)
each_setting = pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)


def offers(seed, tasks, arms=ARMS, dim=DIM):
    return np.random.default_rng(seed).standard_normal((tasks, arms, dim))


def rewards_of(choices, seed=0):
    """Rewards that depend on what was chosen, and differ from task to task."""
    rng = np.random.default_rng(seed)
    return [
        float(choice.context[0] - 0.5 * choice.context[-1]) + 0.3 * rng.standard_normal()
        for choice in choices
    ]


def twins(make, *arguments, **options):
    """Two bandits that will do the same, and whose tokens are the same."""
    one, other = (make(*arguments, **options) for _ in range(2))
    other._state.origin = one._state.origin
    return one, other


def one_by_one(bandit, ids, tables):
    return [bandit.task(id).choose(table) for id, table in zip(ids, tables, strict=True)]


def assert_same_choices(many, single):
    """All that a choice can tell; scores up to rounding."""
    assert len(many) == len(single)
    for one, other in zip(many, single, strict=True):
        assert (one.task, one.number, one.arm) == (other.task, other.number, other.arm)
        assert (one.id, one.token, one.forced) == (other.id, other.token, other.forced)
        assert one.score == pytest.approx(other.score, rel=1e-9, abs=1e-12)
        np.testing.assert_array_equal(one.context, other.context)
        np.testing.assert_array_equal(one.propensities, other.propensities)
        assert one.propensity_draws == other.propensity_draws


def assert_same_call(bandit, other, ids, tables, books):
    """One call for all, one for each: the same choices, and the same books after them."""
    many, single = bandit.choose_many(ids, tables), one_by_one(other, ids, tables)
    assert_same_choices(many, single)
    np.testing.assert_array_equal(many.arms, [choice.arm for choice in single])
    assert many.scores == pytest.approx([choice.score for choice in single], rel=1e-9, abs=1e-12)
    assert list(many.tasks) == [choice.task for choice in single]
    assert books(bandit) == books(other)
    return many, single


def assert_same_game(bandit, other, groups, books, seed=0):
    """Choose and learn for one group of tasks after another."""
    for at, ids in enumerate(groups):
        tables = offers([seed, at], len(ids))
        many, single = assert_same_call(bandit, other, ids, tables, books)
        rewards = rewards_of(single, at)
        assert bandit.learn(many, rewards)
        for choice, reward in zip(single, rewards, strict=True):
            other.learn(choice, reward)
        assert books(bandit) == books(other)


class TestTheSameDecisions:
    @each_rule
    @each_setting
    def test_for_tasks_that_run_and_tasks_that_are_new(self, rule, options, books):
        bandit, other = twins(hs.Bandit, DIM, rule=rule, seed=3, **options)
        groups = [range(2), range(4), range(5), [4, 2, 0], range(6), range(6), [5, "new"]]
        assert_same_game(bandit, other, groups, books)

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(draws=50)], ids=repr)
    def test_with_mixtures(self, rule, books):
        bandit, other = twins(busy, hs.Mixture(groups=2), rule)
        assert_same_game(bandit, other, [["a", "b"], [0, "b", "c", "a"]], books)

    @pytest.mark.filterwarnings("ignore:.*forced rounds")
    def test_where_forced_rounds_are_kept_apart(self, books):
        rule = hs.Forced(2, hs.Thompson(draws=50))
        bandit, other = twins(hs.Bandit, DIM, hs.Gaussian(warmup=2), rule, seed=3)
        assert_same_game(bandit, other, [range(3)] * 4, books)
        marks = [choice.forced for choice in bandit.choose_many([0, "new"], offers(9, 2))]
        assert marks == [False, True]

    @each_rule
    def test_for_a_rule_of_ones_own(self, rule):
        class Mine(type(rule)):
            pass

        mine = Mine(**{name: getattr(rule, name) for name in rule.__dataclass_fields__})
        bandit, other = (hs.Bandit(DIM, rule=own, noise=0.3, seed=3) for own in (mine, rule))
        for at in range(4):
            tables = offers(at, 5)
            many, single = bandit.choose_many(range(5), tables), one_by_one(other, range(5), tables)
            assert [choice.arm for choice in many] == [choice.arm for choice in single]
            rewards = rewards_of(single, at)
            bandit.learn(many, rewards)
            other.learn(single, rewards)

    @pytest.mark.parametrize("stackable", [True, False])
    @pytest.mark.parametrize("draws", [0, 1, 2])
    def test_for_an_index_of_ones_own(self, stackable, draws, books):
        """Computed for a stack if the rule says so, and one by one if it draws several times."""

        calls, may_stack = [], stackable

        @dataclasses.dataclass(frozen=True, repr=False)
        class Noisy(Indexed):
            stackable = may_stack

            def index(self, belief, contexts, rng):
                calls.append(contexts.ndim)
                index = belief.predict(contexts) + belief.width(contexts)
                for _ in range(draws):
                    index = index + rng.standard_normal(index.shape)
                return index

        bandit, other = twins(hs.Bandit, DIM, rule=Noisy(), noise=0.3, seed=3)
        assert_same_game(bandit, other, [range(4)] * 3, books)
        calls.clear()
        bandit.choose_many(range(4), offers(9, 4))
        assert calls == {0: [3], 1: [3], 2: [3, 2, 2, 2, 2]}[draws] if stackable else [2] * 4

    @each_stacked_rule
    @pytest.mark.parametrize("tasks", [3, 4, 5, 9])
    def test_whatever_the_size_of_a_stack(self, rule, tasks, books, monkeypatch):
        monkeypatch.setattr(module, "CHUNK", 4)
        bandit, other = twins(hs.Bandit, DIM, hs.Independent(), rule, 0.3, 3)
        assert_same_game(bandit, other, [range(tasks)] * 3, books)

    @each_stacked_rule
    def test_for_more_tasks_than_are_stacked_at_a_time(self, rule, books):
        tasks = 2 * module.CHUNK + 7
        bandit, other = twins(hs.Bandit, 2, hs.Independent(), rule, 0.3, 3, cache_size=tasks)
        for at in range(2):
            tables = offers(at, tasks, 3, 2)
            many, single = assert_same_call(bandit, other, range(tasks), tables, books)
            rewards = rewards_of(single, at)
            bandit.learn(many, rewards)
            other.learn(single, rewards)

    @each_rule
    def test_for_a_task_that_comes_several_times(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, rule=rule, seed=3)
        assert_same_game(bandit, other, [["a", "b", "a", "a"], ["b", "a"], ["c", "c"]], books)
        numbers = [choice.number for choice in bandit.choose_many(["a", "a"], offers(0, 2))]
        assert numbers == [4, 5]

    @each_rule
    def test_for_one_arm_and_for_many(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, rule=rule, noise=0.3, seed=3)
        for arms in (1, 2, 40, 1):
            assert_same_call(bandit, other, range(3), offers(arms, 3, arms), books)

    @each_stacked_rule
    def test_for_beliefs_whose_noise_differs(self, rule, books):
        """Each task tells its own noise while no other is finished."""
        bandit, other = twins(hs.Bandit, DIM, hs.Bias(), rule, seed=3)
        for each in (bandit, other):
            for id, unit in enumerate((0.01, 1.0, 1000.0)):
                for table in offers(id, 6):
                    choice = each.task(id).choose(table)
                    each.learn(choice, unit * rewards_of([choice], id)[0])
        noises = [bandit.task(id).belief.noise for id in range(3)]
        assert max(noises) > 100 * min(noises)
        assert_same_call(bandit, other, range(3), offers(7, 3), books)

    @each_stacked_rule
    def test_when_one_call_for_all_and_one_for_each_take_turns(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, rule=rule, noise=0.3, seed=3)
        for at in range(6):
            tables, ids = offers(at, 4), [at % 5, 1, 2, 3]
            few = bandit if at % 2 else other
            many = other if at % 2 else bandit
            together, single = many.choose_many(ids, tables), one_by_one(few, ids, tables)
            assert_same_choices(together, single)
            rewards = rewards_of(single, at)
            many.learn(together, rewards)
            few.learn(single, rewards)
            assert books(bandit) == books(other)


def busy(transfer, rule, live=256, tasks=6):
    """Tasks of which every other one is closed."""
    bandit = hs.Bandit(DIM, transfer, rule, noise=0.3, seed=3, cache_size=live)
    for id in range(tasks):
        for table in offers(id, 8):
            choice = bandit.task(id).choose(table)
            bandit.learn(choice, rewards_of([choice], id)[0])
        if id % 2:
            bandit.task(id).close()
    return bandit


TRANSFERS = [None, hs.Bias()]
each_transfer = pytest.mark.parametrize(
    "transfer", TRANSFERS, ids=lambda t: "default" if t is None else repr(t)
)


@each_stacked_rule
@each_transfer
class TestTasksInAnyState:
    """The order of the ids is the order of the decisions: each may change what the next sees."""

    def test_one_that_is_closed_runs_on(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule)
        assert_same_call(bandit, other, [0, 2, 1], offers(9, 3), books)
        assert not bandit.task(1).closed

    def test_a_new_one_after_one_that_was_closed(self, rule, transfer, books):
        """What a closed task has shown leaves the prior as soon as it runs on."""
        bandit, other = twins(busy, transfer, rule)
        assert_same_call(bandit, other, [1, "new"], offers(9, 2), books)

    def test_several_that_were_closed(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule)
        assert_same_call(bandit, other, [1, 3, 0, 5], offers(9, 4), books)

    def test_one_that_was_closed_twice_in_a_call(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule)
        assert_same_call(bandit, other, [1, 0, 1], offers(9, 3), books)

    def test_one_that_was_deleted_is_a_new_one(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule)
        for each in (bandit, other):
            old = each.task(0).choose(offers(8, 1)[0])
            each.delete(0)
            each.delete(1)
        many, _ = assert_same_call(bandit, other, [0, 1], offers(9, 2), books)
        assert bandit.task(0).rounds == 0
        assert many[0].number > old.number
        with pytest.raises(hs.ChoiceError):
            bandit.learn(old, 1.0)

    def test_ones_that_went_idle(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule, live=2)
        for id in (2, 0, 4):
            assert_same_call(bandit, other, [id], offers(id, 1), books)

    @pytest.mark.parametrize("live", [1, 2, 3])
    def test_more_than_are_kept_at_hand(self, rule, transfer, live, books):
        bandit, other = twins(busy, transfer, rule, live=live)
        for at, ids in enumerate([[0, 2, 4, "new", 0], [4, 0, 2], ["a", "b", "c", "d"]]):
            assert_same_call(bandit, other, ids, offers(at, len(ids)), books)

    def test_frozen(self, rule, transfer, books):
        bandit, other = twins(busy, transfer, rule)
        bandit.freeze()
        other.freeze()
        ids = [0, 1, "new", 3, 1]
        many, _ = assert_same_call(bandit, other, ids, offers(9, 5), books)
        assert [bandit.task(id).closed for id in (1, 3)] == [True, True]
        assert bandit.learn(many, np.arange(5.0)) is False
        assert books(bandit) == books(other)
        bandit.unfreeze()
        assert bandit.learn(many, np.arange(5.0)) is True
        assert bandit.task(1).rounds == 8 + 2


actions = st.one_of(
    st.lists(st.sampled_from("abcde"), min_size=1, max_size=6).map(lambda ids: ("choose", ids)),
    st.lists(st.sampled_from("abcde"), min_size=1, max_size=6).map(lambda ids: ("choose", ids)),
    st.sampled_from("abcde").map(lambda id: ("close", id)),
    st.sampled_from("abcde").map(lambda id: ("delete", id)),
    st.sampled_from("abcde").map(lambda id: ("refresh", id)),
)


@pytest.mark.parametrize("transfer", [hs.Bias(), None], ids=["bias", "default"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    history=st.lists(actions, min_size=2, max_size=12),
    live=st.integers(1, 5),
    rule=st.sampled_from(STACKED),
)
def test_whatever_has_happened_to_the_tasks_before(transfer, history, live, rule):
    """Scores to the last few bits: they show which prior a task was given."""
    bandit, other = (hs.Bandit(DIM, transfer, rule, 0.3, 3, cache_size=live) for _ in range(2))
    for at, (kind, what) in enumerate(history):
        if kind == "choose":
            tables = offers(at, len(what))
            many, single = bandit.choose_many(what, tables), one_by_one(other, what, tables)
            assert many.arms.tolist() == [choice.arm for choice in single]
            assert [choice.number for choice in many] == [choice.number for choice in single]
            np.testing.assert_allclose(many.scores, [c.score for c in single], rtol=1e-8)
            rewards = rewards_of(single, at)
            bandit.learn(many, rewards)
            other.learn(single, rewards)
        elif what in bandit:
            getattr(bandit.task(what), kind)()
            getattr(other.task(what), kind)()


class TestTies:
    @each_rule
    def test_each_task_breaks_them_by_its_own_stream(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, rule=rule, noise=0.3, seed=3)
        for at in range(3):
            tables = np.repeat(offers(at, 9, 1), 5, axis=1)  # five times the same arm
            assert_same_call(bandit, other, range(9), tables, books)

    @each_stacked_rule
    def test_also_where_only_some_tasks_and_some_arms_tie(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, hs.Independent(), rule, 0.3, 3)
        for at in range(4):
            tables = offers(at, 12, 6)
            tables[::2, 3:] = tables[::2, :3]  # every arm twice, for every other task
            tables[5] = 0.0  # nothing to tell any arm by
            many, single = assert_same_call(bandit, other, range(12), tables, books)
            rewards = rewards_of(single, at)
            bandit.learn(many, rewards)
            other.learn(single, rewards)

    @each_stacked_rule
    def test_equal_arms_come_equally_often(self, rule):
        bandit = hs.Bandit(2, hs.Independent(), rule, 0.3, 3, cache_size=600)
        tables = np.tile([[1.0, 0.5]], (600, 3, 1))
        arms = bandit.choose_many(range(600), tables).arms
        assert chisquare(np.bincount(arms, minlength=3)).pvalue > 1e-3

    def test_tasks_do_not_share_their_luck(self):
        bandit = hs.Bandit(2, hs.Independent(), seed=3)
        draws = [tuple(bandit.choose_many(range(8), np.ones((8, 4, 2))).arms) for _ in range(20)]
        assert len(set(draws)) == 20
        assert len(set(zip(*draws, strict=True))) == 8


class TestWhatItGives:
    @pytest.fixture(params=[hs.UCB(), hs.UCB(explore=0.2)], ids=repr)
    def many(self, request):
        bandit = hs.Bandit(DIM, hs.Independent(), request.param, 0.3, 3)
        return bandit.choose_many(["a", 7, "c", "a"], offers(0, 4))

    def test_arrays_and_a_choice_for_whoever_asks(self, many):
        assert isinstance(many, hs.Choices)
        assert many.arms.shape == many.scores.shape == (4,)
        assert many.arms.dtype.kind == "i"
        assert list(many.tasks) == ["a", "7", "c", "a"]
        for at, choice in enumerate(many):
            assert isinstance(choice, hs.Choice)
            assert (choice.arm, choice.score) == (many.arms[at], many.scores[at])
            assert type(choice.arm) is int
            assert type(choice.score) is float
            np.testing.assert_array_equal(choice.context, offers(0, 4)[at, choice.arm])

    def test_a_sequence(self, many):
        assert len(many) == 4
        assert many[0] is many[0]
        assert many[-1] is many[3]
        assert many[np.int64(2)] is many[2]
        assert many[1:3] == [many[1], many[2]]
        assert many[::-1] == list(many)[::-1]
        assert many[2] in many
        assert many.index(many[2]) == 2
        assert len(set(many)) == 4
        assert repr(many) == "Choices of 4 tasks"
        for beyond in (4, -5):
            with pytest.raises(IndexError):
                many[beyond]

    def test_choices_cannot_be_changed(self, many):
        with pytest.raises(ValueError, match="read-only"):
            many[0].context[0] = 9.0
        with pytest.raises(AttributeError):
            many[0].arm = 9

    def test_what_is_done_to_its_arrays_changes_no_choice(self, many):
        """Somebody may count arms from one; the rewards are still for the rows that were shown."""
        expected = list(zip(many.arms.tolist(), many.scores.tolist(), strict=True))
        for array in (many.arms, many.scores):
            if array.flags.writeable:
                array[:] = (array + 1) % ARMS
        assert [(choice.arm, choice.score) for choice in many] == expected
        for choice, table in zip(many, offers(0, 4), strict=True):
            np.testing.assert_array_equal(choice.context, table[choice.arm])

    @pytest.mark.parametrize("clone", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(draws=50)], ids=repr)
    def test_a_choice_of_them_can_be_pickled(self, rule, clone):
        bandit = hs.Bandit(DIM, hs.Independent(), rule, 0.3, 3)
        many = bandit.choose_many(["a", "b"], offers(0, 2))
        for choice in many:
            copied = clone(choice)
            assert copied == choice
            assert (copied.arm, copied.score, copied.token) == (
                choice.arm,
                choice.score,
                choice.token,
            )
            np.testing.assert_array_equal(copied.propensities, choice.propensities)
            bandit.learn(copied, 1.0)
            with pytest.raises(hs.ChoiceError):
                bandit.learn(choice, 1.0)

    def test_propensities_are_those_of_the_moment_of_choosing(self):
        early, late = (hs.lints(DIM, seed=3) for _ in range(2))
        stated = [choice.propensities for choice in early.choose_many([1, 2], offers(0, 2))]
        many = late.choose_many([1, 2], offers(0, 2))
        late.learn(many, [5.0, -5.0])
        for at in range(4):
            late.learn(late.choose_many([1, 2], offers(at, 2)), [5.0, 1.0])
        late.task(1).close()
        late.delete(2)
        for choice, before in zip(many, stated, strict=True):
            np.testing.assert_array_equal(choice.propensities, before)

    def test_asking_for_propensities_changes_no_later_decision(self):
        games = []
        for ask in (False, True):
            bandit = hs.lints(DIM, noise=0.3, seed=3)
            arms = []
            for at in range(5):
                many = bandit.choose_many(range(4), offers(at, 4))
                if ask:
                    assert all(choice.propensity > 0 for choice in many)
                arms.append(many.arms.tolist())
                bandit.learn(many, rewards_of(many, at))
            games.append(arms)
        assert games[0] == games[1]


class TestContexts:
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize(
        "form",
        [
            lambda a: a.tolist(),
            lambda a: tuple(a),
            lambda a: [table.tolist() for table in a],
            lambda a: a.astype(np.float32),
            lambda a: a.astype(np.longdouble),
            lambda a: a.astype(">f8"),
            lambda a: np.asfortranarray(a),
            lambda a: np.ascontiguousarray(a.T).T,
            lambda a: np.repeat(a, 2, axis=1)[:, ::2],
            lambda a: a.astype(object),
            lambda a: np.ma.array(a),
        ],
        ids=[
            *("list", "tuple", "lists", "float32", "long double", "big-endian", "fortran"),
            *("transposed", "strided", "object", "masked"),
        ],
    )
    def test_in_any_form(self, form, intercept):
        tables = np.round(offers(0, 3), 2).astype(np.float32).astype(float)
        plain, other = (
            hs.Bandit(DIM, hs.Independent(), hs.Thompson(draws=50), 0.3, 3, intercept=intercept)
            for _ in range(2)
        )
        expected = plain.choose_many([1, 2, 3], tables)
        found = other.choose_many([1, 2, 3], form(tables))
        np.testing.assert_array_equal(found.arms, expected.arms)
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.context, two.context)
            assert one.context.dtype == np.float64
            np.testing.assert_array_equal(one.propensities, two.propensities)

    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("rule", [hs.Thompson(draws=50), hs.UCB(explore=0.3)], ids=repr)
    def test_the_callers_array_is_neither_changed_nor_kept(self, rule, dtype, intercept):
        def fresh():
            return hs.Bandit(DIM, hs.Independent(), rule, 0.3, 3, intercept=intercept)

        array = offers(0, 3).astype(dtype)
        original = array.copy()
        stated = [choice.propensities for choice in fresh().choose_many([1, 2, 3], original)]
        bandit = fresh()
        many = bandit.choose_many([1, 2, 3], array)
        np.testing.assert_array_equal(array, original)
        assert array.flags.writeable
        array[:] = 9.0
        for choice, before, table in zip(many, stated, original, strict=True):
            np.testing.assert_array_equal(choice.context[:DIM], table[choice.arm])
            np.testing.assert_array_equal(choice.propensities, before)
        bandit.learn(many, [1.0, 2.0, 3.0])
        for at, id in enumerate([1, 2, 3]):
            expected = (at + 1.0) * original[at, many.arms[at]].astype(float)
            np.testing.assert_array_equal(bandit.task(id).evidence.moment[:DIM], expected)

    @each_rule_and_theory
    def test_an_intercept_is_added_for_every_rule(self, rule, books):
        bandit, other = twins(hs.Bandit, DIM, hs.Independent(), rule, 0.3, 3, intercept=True)
        assert_same_game(bandit, other, [range(3), range(4), range(4)], books)

    def test_frames_are_put_right_or_refused(self):
        """A frame's columns have names: in another order they must not be taken by position."""
        bandit = hs.Bandit(2, seed=3)
        frame = pd.DataFrame([[1.0, 0.0], [1.0, 0.0]], columns=["price", "age"])
        bandit.task("first").choose(frame)
        with contextlib.suppress(hs.InputError):
            many = bandit.choose_many(["a", "b"], [frame[["age", "price"]]] * 2)
            np.testing.assert_array_equal(many[0].context, [1.0, 0.0])

    def test_the_largest_numbers_are_accepted_and_larger_ones_are_not(self, refused):
        bandit = hs.Bandit(1, noise=1.0, seed=3)
        assert len(bandit.choose_many(["a"], np.array([[[1e60], [-1e60]]]))) == 1
        for large in (np.nextafter(1e60, np.inf), -1.1e60, 1e200, 1e308):
            with refused(bandit, "contexts must be", "below 1e+60", "got"):
                bandit.choose_many(["a"], np.array([[[1.0], [large]]]))

    def test_long_contexts_whose_squares_add_up_to_more_are_fine(self):
        bandit = hs.Bandit(1, hs.Independent(), noise=1.0, seed=3)
        assert len(bandit.choose_many(range(50), np.full((50, 50, 1), 9e59))) == 50


BAD_TABLES = {
    "none": None,
    "text": "abc",
    "number": 1.0,
    "number as array": np.array(1.0),
    "no tasks": np.empty((0, ARMS, DIM)),
    "one table": offers(0, 2)[0],
    "one vector": np.ones(DIM),
    "four axes": np.ones((2, 2, ARMS, DIM)),
    "too few tables": offers(0, 1),
    "too many tables": offers(0, 3),
    "too few columns": offers(0, 2)[..., :2],
    "too many columns": np.ones((2, ARMS, DIM + 1)),
    "no arms": np.empty((2, 0, DIM)),
    "no columns": np.empty((2, ARMS, 0)),
    "ragged": [[[1.0, 2.0, 3.0]], [[1.0, 2.0]]],
    "nan": np.full((2, ARMS, DIM), np.nan),
    "one nan": np.where(np.arange(24).reshape(2, 4, 3) == 17, np.nan, 1.0),
    "nan in float32": np.full((2, ARMS, DIM), np.nan, dtype=np.float32),
    "infinity": np.where(np.arange(24).reshape(2, 4, 3) == 23, -np.inf, 1.0),
    "huge": np.full((2, ARMS, DIM), 2e100),
    "huge list": [[[1.0, 2.0, 2e100]], [[1.0, 2.0, 3.0]]],
    "complex": np.ones((2, ARMS, DIM), dtype=complex),
    "text inside": [[["a", "b", "c"]]] * 2,
    "objects": np.full((2, ARMS, DIM), None),
    "values missing": np.ma.array(np.ones((2, ARMS, DIM)), mask=np.ones((2, ARMS, DIM))),
    "dict": {"a": offers(0, 1)[0], "b": offers(0, 1)[0]},
}
BAD_IDS = {
    "text": ("ids", "ab"),
    "bytes": ("ids", b"ab"),
    "none": ("ids", None),
    "number": ("ids", 2),
    "generator": ("ids", (id for id in "ab")),
    "set": ("ids", {"a", "b"}),
    "dict": ("ids", {"a": 1, "b": 2}),
    "none inside": ("id", ["a", None]),
    "flag inside": ("id", ["a", True]),
    "fraction inside": ("id", ["a", 1.5]),
    "empty name": ("id", ["a", ""]),
    "long name": ("id", ["a", "x" * 1001]),
    "list inside": ("id", ["a", ["b"]]),
    "bytes inside": ("id", ["a", b"b"]),
    "surrogate": ("id", ["a", "\ud800"]),
}


class TestRefusals:
    @pytest.fixture(params=[False, True], ids=["", "intercept"])
    def bandit(self, request):
        bandit = hs.Bandit(DIM, seed=3, intercept=request.param)
        for id, closed in (("a", False), ("b", True)):
            task = bandit.task(id)
            task.learn(task.choose(offers(0, 1)[0]), 1.0)
            if closed:
                task.close()
        return bandit

    @pytest.mark.parametrize("kind", BAD_TABLES)
    @pytest.mark.filterwarnings("always::numpy.exceptions.ComplexWarning")
    def test_bad_contexts_are_refused_and_nothing_changes(self, kind, bandit, refused):
        with refused(bandit, "contexts must", "got"):
            bandit.choose_many(["new", "b"], BAD_TABLES[kind])
        assert list(bandit) == ["a", "b"]
        assert bandit.task("b").closed

    @pytest.mark.parametrize("kind", BAD_IDS)
    def test_bad_ids_are_refused_and_nothing_changes(self, kind, bandit, refused):
        word, ids = BAD_IDS[kind]
        with refused(bandit, f"{word} must be", "got"):
            bandit.choose_many(ids, offers(0, 2))
        assert list(bandit) == ["a", "b"]

    @pytest.mark.parametrize(
        "ids", [("a", "b"), range(2), [np.int64(1), 2], ["ü", "任务"]], ids=repr
    )
    def test_any_sequence_of_ids_will_do(self, ids, bandit):
        many = bandit.choose_many(ids, offers(0, 2))
        assert list(many.tasks) == [str(id) for id in ids]

    def test_a_number_is_the_same_id_as_its_digits(self, bandit):
        many = bandit.choose_many([7, "7"], offers(0, 2))
        assert [choice.id for choice in many] == ["7#0", "7#1"]

    @pytest.mark.parametrize(
        "nothing", [[], (), np.empty((0, ARMS, DIM)), np.empty((0, 0, DIM))], ids=str
    )
    def test_no_tasks_at_all_are_no_choices(self, nothing, bandit, books):
        before = books(bandit)
        many = bandit.choose_many([], nothing)
        assert len(many) == len(many.arms) == len(many.scores) == 0
        assert list(many) == []
        assert bandit.learn(many, [])
        assert books(bandit) == before

    def test_the_ids_may_be_changed_afterwards(self):
        bandit, ids = hs.Bandit(DIM, seed=3), ["a", "b"]
        many = bandit.choose_many(ids, offers(0, 2))
        ids[:] = ["x", "y"]
        assert [choice.task for choice in many] == ["a", "b"]


class TestLearning:
    @pytest.fixture
    def bandit(self):
        return hs.Bandit(DIM, hs.Independent(), hs.UCB(), 0.3, 3)

    @pytest.fixture
    def many(self, bandit):
        return bandit.choose_many(["a", "b", "a"], offers(0, 3))

    def test_from_all_of_them(self, bandit, many):
        assert bandit.learn(many, [1.0, 2.0, 3.0])
        for id, places, rewards in (("a", [0, 2], [1.0, 3.0]), ("b", [1], [2.0])):
            rows = offers(0, 3)[places, many.arms[places]]
            expected, shown = hs.Evidence.of(rows, rewards), bandit.task(id).evidence
            for name in ("gram", "moment", "rounds", "squares"):
                np.testing.assert_allclose(getattr(shown, name), getattr(expected, name))

    @pytest.mark.parametrize("kind", [list, tuple, np.array])
    def test_any_sequence_of_rewards(self, bandit, many, kind):
        assert bandit.learn(many, kind([1, 2, 3]))
        assert bandit.task("a").evidence.squares == 10.0

    def test_from_some_of_them_now_and_from_the_others_later(self, bandit, many):
        bandit.learn(many[1], 2.0)
        bandit.task("a").learn(many[2].token, 3.0)
        assert (bandit.task("a").rounds, bandit.task("b").rounds) == (1, 1)
        bandit.learn(many[:1], [1.0])
        assert bandit.task("a").evidence.squares == 10.0

    def test_in_another_copy_by_their_tokens(self, bandit, many, tmp_path):
        bandit.save(tmp_path / "b")
        there = hs.load(tmp_path / "b")
        bandit.learn(many, [1.0, 2.0, 3.0])
        there.learn([choice.token for choice in many], [1.0, 2.0, 3.0])
        for id in "ab":
            assert there.task(id).belief == bandit.task(id).belief

    @pytest.mark.parametrize("closed", [False, True])
    def test_twice_is_refused_and_nothing_changes(self, bandit, many, closed, refused):
        bandit.learn(many, [1.0, 2.0, 3.0])
        if closed:
            bandit.task("a").close()
        with refused(bandit, "a#0", "already", error=hs.ChoiceError):
            bandit.learn(many, [1.0, 2.0, 3.0])
        for choice in many:
            with refused(bandit, choice.id, "already", error=hs.ChoiceError):
                bandit.learn(choice, 1.0)

    def test_all_or_nothing(self, bandit, many, refused):
        bandit.learn(many[1], 2.0)
        with refused(bandit, "b#0", "already", error=hs.ChoiceError):
            bandit.learn(many, [1.0, 2.0, 3.0])
        with refused(bandit, "reward"):
            bandit.learn(many[::2], [1.0, float("nan")])
        with refused(bandit, "reward", "3"):
            bandit.learn(many, [1.0, 2.0])
        with refused(bandit, "reward"):
            bandit.learn(many, 1.0)
        with refused(bandit, "'b'", error=hs.ChoiceError):
            bandit.task("a").learn(many, [1.0, 2.0, 3.0])
        assert bandit.learn(many[::2], [1.0, 3.0])

    def test_not_of_another_bandit_and_not_of_a_deleted_task(self, bandit, many, refused):
        other = hs.Bandit(DIM, hs.Independent(), hs.UCB(), 0.3, 3)
        other.task("a"), other.task("b")
        with refused(other, "another bandit", error=hs.ChoiceError):
            other.learn(many, [1.0, 2.0, 3.0])
        bandit.delete("b")
        with refused(bandit, "'b'", error=hs.TaskError):
            bandit.learn(many, [1.0, 2.0, 3.0])
        assert bandit.task("a").rounds == 0

    def test_late_after_closing(self, bandit, many):
        for id in "ab":
            bandit.task(id).close()
        bandit.learn(many, [1.0, 2.0, 3.0])
        assert bandit.task("a").closed
        assert (bandit.task("a").rounds, bandit.task("b").rounds) == (2, 1)

    def test_only_as_many_back_as_are_remembered(self, refused):
        bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=3, choice_window=2)
        many = bandit.choose_many(["a"] * 4, offers(0, 4))
        for choice in many[:2]:
            with refused(bandit, "older than the 2 choices", error=hs.ChoiceError):
                bandit.learn(choice, 1.0)
        assert bandit.learn(many[2:], [1.0, 2.0])


class TestThreads:
    @pytest.fixture(autouse=True)
    def _switch_often(self):
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(usual)

    def together(self, *calls):
        barrier = threading.Barrier(len(calls))

        def run(call):
            barrier.wait()
            return call()

        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result() for future in [pool.submit(run, call) for call in calls]]

    def serve(self, bandit, ids, seed):
        arms = []
        for at in range(15):
            many = bandit.choose_many(ids, offers([seed, at], len(ids)))
            arms.append(many.arms.tolist())
            bandit.learn(many, rewards_of(many, [seed, at]))
            arms.append([choice.propensity for choice in many])
        return arms

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(draws=20)], ids=repr)
    def test_on_different_tasks_decide_as_if_alone(self, rule):
        groups = [[f"{n}-{at}" for at in range(3)] for n in range(4)]
        alone, shared = (hs.Bandit(DIM, hs.Independent(), rule, 0.3, 3) for _ in range(2))
        expected = [self.serve(alone, ids, n) for n, ids in enumerate(groups)]
        found = self.together(
            *(lambda n=n, ids=ids: self.serve(shared, ids, n) for n, ids in enumerate(groups))
        )
        assert found == expected
        for ids in groups:
            for id in ids:
                assert shared.task(id).belief == alone.task(id).belief

    def test_on_the_same_tasks_number_every_choice_once_and_lose_no_reward(self):
        bandit = hs.Bandit(DIM, hs.Independent(), hs.Thompson(draws=20), 0.3, 3)
        ids = ["a", "b", "a"]

        def work(seed):
            seen = []
            for at in range(12):
                many = bandit.choose_many(ids, offers([seed, at], 3))
                bandit.learn(many, [1.0, 1.0, 1.0])
                seen += [choice.id for choice in many]
            return seen

        seen = [
            id for mine in self.together(*(lambda n=n: work(n) for n in range(4))) for id in mine
        ]
        assert len(set(seen)) == len(seen) == 4 * 12 * 3
        assert (bandit.task("a").rounds, bandit.task("b").rounds) == (96, 48)
        assert bandit.task("a").evidence.squares == 96.0

    def test_may_ask_one_set_of_choices_for_its_members(self):
        bandit = hs.Bandit(DIM, hs.Independent(), hs.Thompson(draws=20), 0.3, 3)
        many = bandit.choose_many(range(20), offers(0, 20))
        told = self.together(
            *(lambda: [(choice.id, choice.arm, choice.propensity) for choice in many],) * 4
        )
        assert told[0] == told[1] == told[2] == told[3]
