"""Explanations of choices: contributions of features, and what sets a task apart."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import headstart as hs

RULES = [hs.UCB(), hs.Greedy(), hs.Thompson(), hs.Uniform(), hs.Forced(2, hs.UCB())]


def played(rule=None, seed=0, tasks=6, **options):
    """A bandit whose tasks agree on the first feature and differ in the second."""
    bandit = hs.Bandit(3, rule=rule, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for id in range(tasks):
        contexts = rng.standard_normal((25, 3)) * [1.0, 2.0, 0.5] + [0.0, 10.0, 0.0]
        theta = [1.0, (-1.0) ** id, 0.0]
        rewards = 3.0 + contexts @ theta + 0.3 * rng.standard_normal(25)
        bandit.task(id).observe(contexts, rewards)
        bandit.task(id).close()
    return bandit


def offer(seed=9, arms=4):
    return np.random.default_rng(seed).normal([0.0, 10.0, 0.0], 1.0, (arms, 3))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("against", ["runner-up", "average", 2])
def test_contributions_add_up_to_the_difference_of_predictions(rule, against):
    bandit = played(rule)
    task = bandit.task(0)
    choice = task.choose(offer(), exclude=[1])
    if choice.arm == against:
        against = 0
    found = task.explain(choice, against=against)
    predicted = task.predict(offer()).mean
    left = [arm for arm in (0, 2, 3) if arm != choice.arm]
    rivals = left if found.other is None else [found.other]
    assert set(rivals) <= set(left)
    expected = predicted[choice.arm] - predicted[rivals].mean()
    assert found.difference[0] == pytest.approx(expected)
    assert found.contributions.estimate.sum() == pytest.approx(expected)
    assert found.contributions.estimate[-1] == 0.0  # the intercept, which all arms share
    np.testing.assert_allclose(found.values, [*offer()[choice.arm], 1.0])
    np.testing.assert_allclose(found.other_values, [*offer()[rivals].mean(0), 1.0])
    assert found.propensity == choice.propensity
    if isinstance(rule, (hs.UCB, hs.Greedy)) and against == "runner-up":
        assert found.difference[0] + found.bonus >= -1e-9  # or it would not have won


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.floats(0.5, 0.99))
def test_intervals_are_those_of_the_posterior(seed, level):
    bandit = played(hs.Greedy(), tasks=2, transfer=hs.Independent(), noise=0.3, intercept=True)
    task = bandit.task(seed % 2)
    choice = task.choose(offer(seed))
    belief = task.belief
    found = task.explain(choice, level=level)
    quantile, deviation = norm.ppf(0.5 + level / 2), np.sqrt(np.diag(belief.covariance))
    gap = np.append(offer(seed)[choice.arm] - offer(seed)[found.other], 0.0)
    half = quantile * np.abs(gap) * deviation
    np.testing.assert_allclose(found.contributions.upper, gap * belief.mean + half, atol=1e-9)
    half = quantile * np.sqrt(gap @ belief.covariance @ gap)
    assert found.difference[1] == pytest.approx(gap @ belief.mean - half)
    np.testing.assert_allclose(found.task.estimate, belief.mean)
    np.testing.assert_allclose(found.task.lower, belief.mean - quantile * deviation)
    np.testing.assert_allclose(found.average, 0.0)
    assert found.level == level


def test_a_task_is_set_apart_by_what_it_does_not_share():
    bandit = played(tasks=12)
    task = bandit.task(3)
    found = task.explain(task.choose(offer()))
    away = np.abs(found.task.estimate - found.average)
    assert found.task.features[int(away[:3].argmax())] == "x1"
    assert found.task.lower[1] < -1.0 < found.task.upper[1]
    assert abs(found.average[0] - 1.0) < 0.2
    new = bandit.task("new")
    fresh = new.explain(new.choose(offer()))
    np.testing.assert_allclose(fresh.task.estimate, fresh.average)


def test_coefficients_are_in_the_units_of_features_as_they_were_given():
    """A fit standardizes features; the explanation does not show it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": np.repeat(np.arange(40), 30),
            "price": rng.uniform(100.0, 900.0, 1200),
            "stars": rng.uniform(1.0, 5.0, 1200),
        }
    )
    frame["spent"] = 50.0 - 0.1 * frame.price + 4.0 * frame.stars + rng.normal(size=1200)
    bandit = hs.Bandit(2, rule=hs.Greedy(), seed=0).fit(frame, task="user", reward="spent")
    task = bandit.task(7)
    choice = task.choose(pd.DataFrame({"price": [200.0, 300.0], "stars": [3.0, 4.0]}))
    found = task.explain(choice)
    assert found.task.features == ("price", "stars", "intercept")
    np.testing.assert_allclose(found.task.estimate, [-0.1, 4.0, 50.0], rtol=0.05)
    np.testing.assert_allclose(found.average, [-0.1, 4.0, 50.0], rtol=0.05)
    np.testing.assert_allclose(found.values, [200.0, 3.0, 1.0])
    np.testing.assert_allclose(found.contributions.estimate, [10.0, -4.0, 0.0], rtol=0.05)
    text = repr(found)
    assert "arm 0 compared with arm 1" in text
    assert text.index("price") < text.index("stars")


def test_later_rewards_do_not_change_an_explanation():
    bandit = played(hs.UCB())
    task = bandit.task(0)
    choices = task.choose(offer(), k=2)
    before = [repr(task.explain(choice)) for choice in choices]
    task.learn(choices, [100.0, -100.0])
    assert [repr(task.explain(choice)) for choice in choices] == before
    assert task.explain(choices[1]).other != choices[0].arm  # it was gone


def test_a_lone_arm_is_compared_with_itself():
    task = played().task(0)
    found = task.explain(task.choose(offer(arms=1)))
    assert found.other is None
    assert found.difference == (0.0, 0.0, 0.0)
    assert found.bonus == 0.0
    assert "the only arm" in repr(found)


def test_groups_have_intervals_too_and_many_features_are_shortened():
    bandit = hs.Bandit(20, hs.Mixture(2), seed=0)
    task = bandit.task(0)
    contexts = np.random.default_rng(0).standard_normal((30, 20))
    task.observe(contexts, contexts[:, 3])
    found = task.explain(task.choose(contexts[:5]))
    assert (found.task.lower <= found.task.estimate).all()
    assert "… and 8 more" in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "best"}, "against must be one of 'runner-up', 'average'; got 'best'"),
        ({"against": 9}, "against must be a whole number from 0 to 3; got 9"),
        ({"against": 1.5}, "against must be a whole number"),
        ({"against": 1}, "another arm that could be picked; got 1"),
        ({"level": 1.0}, "level must be a number strictly between 0 and 1"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options, message):
    task = played(tasks=1).task(0)
    with pytest.raises(hs.InputError, match=message):
        task.explain(task.choose(offer(), exclude=[1]), **options)


def test_choices_that_cannot_be_explained_are_refused():
    bandit = played(tasks=2)
    choice = bandit.task(0).choose(offer())
    with pytest.raises(hs.InputError, match="choice must be a Choice"):
        bandit.task(0).explain(choice.token)
    with pytest.raises(hs.ChoiceError, match="not one of task '1'"):
        bandit.task(1).explain(choice)
    with pytest.raises(hs.ChoiceError, match="not one of task '0'"):
        played(tasks=2).task(0).explain(choice)
    for other in (pickle.loads(pickle.dumps(choice)), copy.copy(choice)):
        with pytest.raises(hs.ChoiceError, match="does not carry what was on offer"):
            bandit.task(0).explain(other)


def test_the_columns_of_a_field_are_added_up():
    """Flags of a category are known beside the intercept only by their differences."""
    schema = hs.Schema(action={"price": hs.number(), "brand": hs.category("x", "y")})
    rng = np.random.default_rng(0)
    brands, prices = rng.choice(["x", "y"], 300), rng.uniform(1.0, 3.0, 300)
    spent = (brands == "x") * 2.0 - prices + 0.1 * rng.standard_normal(300)
    frame = {"user": np.arange(300) % 10, "spent": spent, "price": prices, "brand": brands}
    bandit = hs.Bandit(schema, rule=hs.Greedy(), seed=0).fit(frame, task="user", reward="spent")
    task = bandit.task("new")
    arms = [{"id": "tea", "price": 1.1, "brand": "x"}, {"id": "milk", "price": 1.1, "brand": "y"}]
    found = task.explain(task.choose(actions=arms))
    assert found.contributions.features == ("brand", "price", "intercept")
    assert found.contributions.estimate[[1, 2]].tolist() == [0.0, 0.0]
    ends = [part[0] for part in found.contributions[1:]]
    np.testing.assert_allclose(ends, found.difference)  # brands are all that differs
    coefficients = dict(zip(found.task.features, found.task.estimate, strict=True))
    assert ends[0] == pytest.approx(coefficients["brand=x"] - coefficients["brand=y"])
    text = repr(found)
    assert "brand=" not in text
    row = next(line.split() for line in text.splitlines() if line.split()[0] == "brand")
    assert row[1:3] == ["x", "y"]
    assert "nothing sets the task apart from an average one yet" in text


def test_actions_are_called_by_their_ids():
    schema = hs.Schema(action={"price": hs.number(), "brand": hs.category("x", "y")})
    task = hs.Bandit(schema, rule=hs.Greedy(), seed=0).task("ann")
    tea, milk = (
        {"id": "tea", "price": 3.0, "brand": "x"},
        {"id": "milk", "price": 1.0, "brand": "y"},
    )
    task.observe([tea, milk] * 10, [0.0, 1.0] * 10)
    choice = task.choose(actions=[tea, milk])
    found = task.explain(choice)
    assert (found.action, found.other_action) == ("milk", "tea")
    assert "'milk' compared with 'tea'" in repr(found)
    assert set(found.task.features) >= {"price", "brand=x", "brand=y", "intercept"}


def test_a_category_is_named_where_it_counts_less():
    schema = hs.Schema(action={"brand": hs.category("x", "y")}, identity=True)
    bandit, rng = hs.Bandit(schema, rule=hs.Greedy(), seed=0), np.random.default_rng(0)
    effects = rng.normal(size=(6, 8))  # of items in tasks, which are remembered
    offers = [{"id": item, "brand": "xy"[item % 2]} for item in range(8)]
    for _ in range(30):
        for user in range(6):
            item = int(rng.integers(8))
            reward = [effects[user, item] + 0.2 * rng.normal()]
            bandit.task(user).observe([offers[item]], reward)
    text = str(bandit.task(0).explain(bandit.task(0).choose(actions=offers[:4])))
    assert re.search(r"\n +brand .*\d × [xy]\b", text)
