"""Several arms at a time: rankings of one task, and many tasks with arms of their own."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

RULES = [
    hs.UCB(),
    hs.UCB(explore=0.3),
    hs.Thompson(draws=100),
    hs.Thompson(draws=100, explore=0.3),
    hs.Greedy(),
    hs.Uniform(),
    hs.Forced(3, hs.Thompson(draws=100)),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
TRANSFERS = [hs.EmpiricalBayes(), hs.Independent()]


def table(seed, arms=6, dim=3):
    return np.random.default_rng(seed).standard_normal((arms, dim))


def play(bandit, rounds=20, seed=0):
    rng = np.random.default_rng(seed)
    for at in range(rounds):
        task = bandit.task(at % 4)
        choices = task.choose(rng.standard_normal((5, bandit.dim)), k=2)
        task.learn(choices, [choice.context[0] + rng.standard_normal() for choice in choices])
    return bandit


@each_rule
def test_a_ranking_lists_every_allowed_arm_once(rule):
    bandit = play(hs.Bandit(3, rule=rule, seed=1))
    for exclude, left in (([1, 4], {0, 2, 3, 5}), (None, set(range(6)))):
        choices = bandit.task(0).choose(table(3), exclude, k=len(left))
        assert {choice.arm for choice in choices} == left
        before = []
        for choice in choices:
            assert choice.propensities.sum() == pytest.approx(1.0)
            assert choice.propensity > 0.0
            gone = sorted({*range(6)} - left) + before
            assert (choice.propensities[gone] == 0.0).all()
            before.append(choice.arm)
        assert choices[-1].propensity == 1.0
        np.testing.assert_array_equal(choices[1].context, table(3)[choices[1].arm])


@each_rule
def test_rankings_of_many_tasks_are_those_of_each(rule):
    one, other = (play(hs.Bandit(3, rule=rule, seed=1)) for _ in "12")
    tables = [table(7, arms=5), table(8, arms=4), table(9, arms=6)]
    exclude = [None, [2], [True, False, False, False, False, True]]
    together = other.choose_many([0, 3, "new"], tables, exclude, k=3)
    for name, offer, left_out, choices in zip(
        [0, 3, "new"], tables, exclude, together, strict=True
    ):
        alone = one.task(name).choose(offer, left_out, k=3)
        assert [(c.id, c.arm, c.forced) for c in choices] == [
            (c.id, c.arm, c.forced) for c in alone
        ]
        assert [c.score for c in choices] == pytest.approx([c.score for c in alone])
        for mine, theirs in zip(choices, alone, strict=True):
            np.testing.assert_allclose(mine.propensities, theirs.propensities)
    for choices in together:
        assert other.learn(choices, [1.0, 0.0, 2.0])


def test_many_tasks_are_refused_a_ranking_that_one_of_them_cannot_have():
    bounded = hs.UCB(probability=(0.0, 0.5))
    bandit = hs.Bandit(3, rule=bounded, seed=1)
    before = bandit.report()
    for k, exclude in ((4, None), (0, None), (1.5, None), (3, [None, [0]]), (3, None)):
        with pytest.raises(hs.InputError):
            bandit.choose_many(["a", "b"], [table(1, arms=4), table(2, arms=3)], exclude, k=k)
    assert len(bandit) == 0
    assert bandit.report() == before
    assert bandit.choose_many([], np.empty((0, 2, 3)), k=2) == []
    rankings = bandit.choose_many(["a", "a"], [table(1, arms=4), table(2, arms=3)], k=2)
    assert [choice.number for ranking in rankings for choice in ranking] == [0, 1, 2, 3]


@each_rule
def test_the_first_of_a_ranking_is_the_single_choice(rule):
    one, other = (play(hs.Bandit(3, rule=rule, seed=1)) for _ in "12")
    for at in range(5):
        single, (first,) = one.task(0).choose(table(at)), other.task(0).choose(table(at), k=1)
        assert (single.arm, single.score, single.number) == (first.arm, first.score, first.number)
        np.testing.assert_array_equal(single.propensities, first.propensities)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([hs.UCB(), hs.Greedy(), hs.Thompson()]),
    transfer=st.sampled_from(TRANSFERS),
    order=st.permutations(range(6)),
)
def test_permuted_arms_permute_the_ranking(seed, rule, transfer, order):
    rankings = []
    for rows in (range(6), order):
        bandit = play(hs.Bandit(3, transfer, rule, seed=seed), 6, seed)
        choices = bandit.task(0).choose(table(seed)[list(rows)], k=6)
        rankings.append([rows[choice.arm] for choice in choices])
    assert rankings[0] == rankings[1]


def test_scores_of_a_ranking_descend_and_are_those_of_the_rule():
    bandit = play(hs.Bandit(3, rule=hs.Greedy(), seed=0))
    choices = bandit.task(0).choose(table(9), k=4)
    scores = [choice.score for choice in choices]
    assert scores == sorted(scores, reverse=True)
    expected = np.sort(bandit.task(0).predict(table(9)).mean)[::-1][:4]
    np.testing.assert_allclose(scores, expected)


def test_propensities_with_exploration_and_ties_are_exact():
    """Equal arms share what is not explored, at every position."""
    bandit = hs.Bandit(2, hs.Independent(), hs.Greedy(explore=0.4), noise=1.0, seed=5)
    task = bandit.task(0)
    task.learn(task.choose([[1.0, 0.0]]), 5.0)
    arms = [[1.0, 0.0], [1.0, 0.0], [0.5, 0.0], [0.0, 0.0]]
    for _ in range(20):
        first, second, third = task.choose(arms, k=3)
        np.testing.assert_allclose(first.propensities, [0.4, 0.4, 0.1, 0.1])
        left = {0, 1, 2, 3} - {first.arm}
        best = {0, 1} - {first.arm}
        share = [(a in left) * 0.4 / 3 + (a in best) * 0.6 / len(best) for a in range(4)]
        np.testing.assert_allclose(second.propensities, share)
        assert third.propensities[[first.arm, second.arm]].sum() == 0.0


def test_choices_of_a_ranking_are_learned_from_one_by_one(tmp_path):
    bandit, other = (hs.Bandit(3, seed=0, noise=0.3) for _ in "12")
    choices = bandit.task("a").choose(table(0), k=3)
    assert [choice.number for choice in choices] == [0, 1, 2]
    assert len({choice.token for choice in choices}) == 3
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    bandit.learn(choices[2], 1.0)
    with pytest.raises(hs.ChoiceError, match="learned from"):
        bandit.learn(choices[1:], [0.0, 1.0])
    bandit.learn([choices[0].token, choices[1].token], [0.0, 0.5])
    loaded.learn([choice.token for choice in choices], [0.0, 0.5, 1.0])
    for choice, reward in zip(choices, [0.0, 0.5, 1.0], strict=True):
        other.learn(other.task("a").choose([choice.context]), reward)
    for one in (bandit, loaded):
        expected = other.task("a").evidence
        np.testing.assert_allclose(one.task("a").evidence.gram, expected.gram, rtol=1e-12)
        np.testing.assert_allclose(one.task("a").evidence.moment, expected.moment, rtol=1e-12)
        assert one.task("a").rounds == 3
    assert bandit.task("a").choose(table(1)).number == 3


def test_tasks_that_choose_three_at_a_time_take_new_priors():
    """The number of choices then skips 8, after which a task takes the newest prior."""
    bandit = hs.Bandit(2, noise=1.0, seed=0)
    task = bandit.task("mine")
    rng = np.random.default_rng(0)
    choices = task.choose(rng.standard_normal((4, 2)), k=3)
    task.learn(choices, [1.0, 2.0, 3.0])
    first = task.belief.prior
    for at in range(20):
        other = bandit.task(f"other {at}")
        for _ in range(5):
            other.learn(other.choose(rng.standard_normal((4, 2))), rng.standard_normal() + 4.0)
    for _ in range(3):
        choices = task.choose(rng.standard_normal((4, 2)), k=3)
        task.learn(choices, [1.0, 2.0, 3.0])
    assert task.belief.prior != first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be a whole number, 1 or more; got 0"),
        ({"k": 2.0}, "k must be a whole number, 1 or more; got 2.0"),
        ({"k": True}, "k must be a whole number, 1 or more; got True"),
        ({"k": "3"}, "k must be a whole number, 1 or more; got '3'"),
        ({"k": 7}, "k must be at most the 6 arms that may be picked; got 7"),
        ({"k": 5, "exclude": [0, 1]}, "k must be at most the 4 arms"),
        ({"k": 4, "exclude": np.eye(1, 6, dtype=bool)[0]}, "at most choice_window, which is 3"),
    ],
    ids=str,
)
def test_rankings_that_cannot_be_are_refused(arguments, message, books):
    bandit = hs.Bandit(3, seed=0, choice_window=3)
    bandit.task("a")
    before = books(bandit)
    with pytest.raises(hs.InputError, match=message):
        bandit.task("a").choose(table(0), **arguments)
    assert books(bandit) == before


EXCLUDED = [None, [0], [], np.array([True, False, False]), [1, 2]]


@each_rule
@pytest.mark.parametrize("kind", ["lists", "arrays", "pandas", "polars", "same length"])
def test_many_tasks_with_different_arms_are_decided_as_one_by_one(rule, kind):
    """Lists of different lengths, and arms that are excluded for some tasks."""
    many, single = (play(hs.Bandit(3, rule=rule, seed=1)) for _ in "12")
    sizes = [3] * 5 if kind == "same length" else [4, 2, 5, 3, 4]
    tables = [table([7, at], arms) for at, arms in enumerate(sizes)]
    make = {
        "lists": lambda rows: rows.tolist(),
        "pandas": lambda rows: pd.DataFrame(rows, columns=list("abc")),
        "polars": lambda rows: pl.DataFrame(rows, schema=list("abc")),
    }.get(kind, lambda rows: rows)
    offers = np.array(tables) if kind == "same length" else [make(rows) for rows in tables]
    choices = many.choose_many(range(5), offers, exclude=EXCLUDED)
    expected = [single.task(at).choose(make(rows), EXCLUDED[at]) for at, rows in enumerate(tables)]
    assert [choice.arm for choice in choices] == [choice.arm for choice in expected]
    for one, other in zip(choices, expected, strict=True):
        assert one.score == pytest.approx(other.score)
        np.testing.assert_array_equal(one.context, other.context)
        np.testing.assert_allclose(one.propensities, other.propensities)
    assert many.feature_names == single.feature_names
    assert many.learn(choices, np.arange(5.0)) == single.learn(expected, np.arange(5.0))
    np.testing.assert_allclose(many.task(2).evidence.gram, single.task(2).evidence.gram)


@pytest.mark.parametrize(
    ("contexts", "exclude", "message"),
    [
        ([[[1.0, 2.0]], [[1.0], [2.0]]], None, r"contexts\[1\] must be of shape \(arms, 2\)"),
        ([[[1.0, 2.0]], []], None, r"contexts\[1\] must be of shape"),
        ([[[1.0, 2.0]], [[1.0, np.nan], [1.0, 2.0]]], None, r"contexts\[1\] must be finite"),
        ([[[1.0, 2.0]]] * 3, None, "one table per task"),
        ([[[1.0, 2.0]], [[1.0, 2.0]] * 2, [[1.0, 2.0]]], None, "2 tables, one per task; got 3"),
        ([[[1.0, 2.0]] * 2] * 2, [[0]], "exclude must be a sequence of 2"),
        ([[[1.0, 2.0]] * 2] * 2, 3, "exclude must be a sequence of 2"),
        ([[[1.0, 2.0]] * 2] * 2, [None, [5]], r"exclude\[1\] must hold row numbers"),
        ([[[1.0, 2.0]] * 2] * 2, [None, [0, 1]], r"exclude\[1\] must leave at least one arm"),
        ("ab", None, "contexts must be"),
        (
            [pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"a": [1.0], "c": [2.0]})],
            None,
            r"contexts\[1\] must have the features \['a', 'b'\]",
        ),
    ],
    ids=str,
)
def test_tables_that_cannot_be_read_are_refused(contexts, exclude, message, books):
    bandit = hs.Bandit(2, seed=0)
    bandit.task(0)
    before = books(bandit)
    with pytest.raises(hs.InputError, match=message):
        bandit.choose_many([0, 1], contexts, exclude)
    assert books(bandit) == before
    assert 1 not in bandit


def test_a_table_without_any_axis_is_refused():
    bandit = hs.Bandit(2, seed=0)
    with pytest.raises(hs.InputError, match="contexts"):
        bandit.choose_many(["a", "b"], [np.ones((3, 2)), np.array(1.0)])
    assert len(bandit) == 0
