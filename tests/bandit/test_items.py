"""Items known by their ids: what all tasks learn of them, and what each task remembers."""

import copy
import pickle
import random
import uuid

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import resealed

import headstart as hs
from headstart.features.items.repeats import Repeats, effective_count, own_share
from headstart.features.items.vectors import Loading

IDS = hs.Schema(identity=True)
SHOP = hs.Schema(action={"price": hs.number(missing=False)}, identity=True)
VALUES = np.random.default_rng(3).normal(size=40)  # of the items, in every task


def offer(rng, count=6):
    return [int(item) for item in rng.choice(len(VALUES), count, replace=False)]


def run(bandit, tasks=20, rounds=15, seed=0, close=True, noise=0.5, first=0):
    """The mean regret of some tasks."""
    rng, regret = np.random.default_rng(seed), 0.0
    for task in range(first, first + tasks):
        for _ in range(rounds):
            items = offer(rng)
            choice = bandit.task(task).choose(actions=items)
            bandit.learn(choice, float(VALUES[choice.action] + noise * rng.normal()))
            regret += VALUES[items].max() - VALUES[choice.action]
        if close:
            bandit.task(task).close()
    return regret / tasks / rounds


def known(bandit, task="new", items=range(40)):
    """What the columns of items say to a task."""
    return bandit.task(task).encode(actions=list(items)).table


def test_a_new_task_starts_with_what_others_liked():
    bandit = hs.Bandit(IDS, seed=0)
    early = run(bandit, tasks=4)
    run(bandit, seed=1, first=4)
    late = run(bandit, seed=2, first=40)
    assert late < 0.5 * early
    mean = bandit.task("new").predict(actions=list(range(40))).mean
    assert np.corrcoef(mean, VALUES)[0, 1] > 0.9


def test_the_columns_are_those_of_the_formulas():
    bandit = hs.Bandit(SHOP, seed=0)
    rounds = [("a", "x", 2.0), ("a", "y", 0.0), ("b", "x", 1.0), ("c", "z", 1.0)]
    for task, item, reward in rounds:
        choice = bandit.task(task).choose(actions=[{"id": item, "price": 1.0}])
        bandit.learn(choice, reward)
    rewards = np.array([reward for _, _, reward in rounds])
    names = bandit.feature_names
    table = (
        bandit.task("d")
        .encode(actions=[{"id": item, "price": 2.0} for item in ("x", "y", "new")])
        .table
    )
    for row, own in zip(table, ([2.0, 1.0], [0.0], []), strict=True):
        n = len(own)
        value = sum(own) - n * rewards.mean()
        assert row[names.index("id known")] == pytest.approx(n / (n + 5))
        assert row[names.index("id value")] == pytest.approx(
            value / (n + 5) / (0.3 * rewards.std()), abs=1e-12
        )


@pytest.mark.parametrize("how", ["observe", "fit"])
def test_rewards_count_for_items_as_often_as_their_weights_say(how):
    rounds = [("a", "x", 2.0, 3.0), ("b", "x", 4.0, 0.5), ("b", "y", 1.0, 7.0), ("c", "y", 9.0, 0)]
    rows = [dict(zip(("user", "id", "stars", "n"), each, strict=True)) for each in rounds]
    bandit = hs.Bandit(hs.Schema(identity=True, ignore=["n"]), seed=0)
    if how == "fit":
        bandit.fit(rows, task="user", reward="stars", weight="n")
    else:
        for user, item, stars, weight in rounds:
            bandit.task(user).observe([item], [stars], weight=weight)
    stars, weights = (np.array([each[at] for each in rounds]) for at in (2, 3))
    mean = np.average(stars, weights=weights)
    spread = np.sqrt(np.average((stars - mean) ** 2, weights=weights))
    table = known(bandit, items=["x", "y", "new"])
    assert table[:, 1] == pytest.approx([3.5 / 8.5, 7.0 / 12.0, 0.0])
    sums = np.array([8.0 - 3.5 * mean, 7.0 - 7.0 * mean])
    assert table[:, 0] == pytest.approx([*sums / [8.5, 12.0] / (0.3 * spread), 0.0])
    bandit.delete("b")
    assert known(bandit, items=["x", "y"])[:, 1] == pytest.approx([3.0 / 8.0, 0.0])


def test_averages_of_many_ratings_say_more_of_items_than_single_ones():
    rng, errors = np.random.default_rng(0), []
    rows = []
    for user in range(40):
        for item in rng.choice(40, 8, replace=False).tolist():
            count = float(rng.integers(1, 100))
            stars = VALUES[item] + 3.0 * rng.normal() / np.sqrt(count)
            rows.append({"user": user, "id": item, "stars": stars, "n": count})
    for weight, noise in (("n", 3.0), (None, "auto")):
        bandit = hs.Bandit(hs.Schema(identity=True, ignore=["n"]), noise=noise, seed=0)
        bandit.fit(rows, task="user", reward="stars", weight=weight)
        found = bandit.task("new").predict(actions=list(range(40)), level=0.9)
        errors.append(np.sqrt(np.mean((found.mean - VALUES) ** 2)))
        if weight:
            assert np.mean((found.lower < VALUES) & (found.upper > VALUES)) > 0.8
    assert errors[0] < 0.75 * errors[1]


def test_tiny_and_huge_weights_of_items_are_saved(tmp_path):
    bandit = hs.Bandit(IDS, seed=0)
    for task, weight in enumerate([1e-12, 1e-8, 1.0, 1e12]):
        bandit.task(task).observe(["x", f"y{task}"], [1.0, 2.0], weight=weight)
    for deleted in (3, 2):
        bandit.delete(deleted)
        bandit.save(tmp_path / "bandit")
        twin = hs.load(tmp_path / "bandit")
        items = ["x", "y0", "y1", "y2", "y3"]
        np.testing.assert_array_equal(known(twin, items=items), known(bandit, items=items))
        assert np.abs(known(bandit, items=items)).max() < 10.0


def test_offers_are_counted_by_the_next_reward_and_undone_by_deleting():
    def column(bandit, items=("x", "y", "z", "new")):
        place = bandit.feature_names.index("id offered")
        return known(bandit, "reader", list(items))[:, place]

    bandit = hs.Bandit(IDS, seed=0)
    assert (column(bandit) == 0).all()
    ann, bob = bandit.task("ann"), bandit.task("bob")
    choice = ann.choose(actions=["x", "y", "z"], exclude=["z"])
    assert (column(bandit) == 0).all()  # decisions between two rewards rest on the same state
    ann.learn(choice, 1.0)
    bob.choose(actions=["x"])  # never rewarded
    bandit.choose_many(["ann", "cy"], actions=[["x", "y"], ["z", 7]])
    bandit.freeze()
    bob.choose(actions=["new"])
    bandit.unfreeze()
    bob.observe(["x", "x", "y"], [1.0, 2.0, 3.0], weight=[1.0, 1.0, 0.0])
    counts = np.array([5, 2, 1, 1, 0])  # of x, y, z, 7 and new
    mean = counts[counts > 0].mean()
    expected = counts / (counts + mean) - 0.5
    np.testing.assert_allclose(column(bandit, ["x", "y", "z", "7", "new"]), expected)
    twin = pickle.loads(pickle.dumps(bandit))
    twin.task("ann").choose(actions=["new"])  # waits for a reward that never comes
    for name in ("ann", "bob", "cy"):
        twin.delete(name)
    assert (column(twin) == 0).all()
    bandit.delete("bob")
    counts = np.array([2, 2, 1, 1, 0])
    np.testing.assert_allclose(
        column(bandit, ["x", "y", "z", "7", "new"]), counts / (counts + 6 / 4) - 0.5
    )


def test_choices_without_rewards_are_counted_some_day():
    bandit = hs.Bandit(IDS, seed=0)
    task = bandit.task("a")
    for at in range(4095):
        task.choose(actions=["x"] if at else ["x", "y"])
    assert (known(bandit, "b", ["x", "y"])[:, 2] == 0).all()
    task.choose(actions=["x"])
    assert known(bandit, "b", ["x"])[0, 2] > 0


def test_ids_are_the_same_as_text_and_as_numbers_and_their_order_does_not_matter():
    bandit = hs.Bandit(IDS, seed=0)
    run(bandit)
    texts = [str(item) for item in range(40)]
    np.testing.assert_array_equal(known(bandit), known(bandit, items=texts))
    np.testing.assert_array_equal(known(bandit)[::-1], known(bandit, items=range(39, -1, -1)))


def test_a_task_remembers_its_own_rewards_of_an_item():
    def regret(own):
        bandit, rng, total = hs.Bandit(IDS, seed=0), np.random.default_rng(0), 0.0
        for task in range(30):
            taste = rng.normal(size=30)  # of this task alone, and without noise
            for at in range(30):
                items = [int(item) for item in rng.choice(30, 5, replace=False)]
                shown = [item + 100 * at for item in items] if not own else items
                choice = bandit.task(task).choose(actions=shown)
                bandit.learn(choice, float(taste[choice.action % 100]))
                total += taste[items].max() - taste[choice.action % 100]
            bandit.task(task).close()
        return total

    assert regret(own=True) < 0.75 * regret(own=False)


def rounds_of_repeats(own=1.0):
    """Rows of tasks that meet the same items again, with an effect of every pair."""
    rng = np.random.default_rng(0)
    tasks, items = rng.integers(20, size=300), rng.integers(6, size=300)
    effects = own * rng.normal(size=(20, 6)) + 0.5 * rng.normal(size=6)
    rewards = effects[tasks, items] + 0.3 * rng.normal(size=300)
    return effects, {"user": tasks, "id": items, "reward": rewards}


def learned_online(rows, rewards):
    bandit = hs.Bandit(IDS, seed=0)
    for task, item, reward in zip(rows["user"].tolist(), rows["id"].tolist(), rewards, strict=True):
        bandit.learn(bandit.task(task).choose(actions=[item]), float(reward))
    return bandit


@settings(max_examples=6, deadline=None)
@given(level=st.floats(-1e3, 1e3), unit=st.floats(0.01, 100.0), own=st.sampled_from([0.0, 1.0]))
def test_what_is_known_of_items_does_not_depend_on_the_level_of_rewards(level, unit, own):
    _, rows = rounds_of_repeats(own)
    one = learned_online(rows, rows["reward"])
    other = learned_online(rows, unit * (level + rows["reward"]))
    for task in (0, "new"):
        expected, found = known(one, task, range(6)), known(other, task, range(6))
        np.testing.assert_allclose(found[:, :3], expected[:, :3], atol=1e-5)


def mean_square_error(bandit, effects, rows):
    """Of the predicted rewards of items that tasks have met, up to a constant."""
    means = np.array([bandit.task(task).predict(actions=list(range(6))).mean for task in range(20)])
    met = np.zeros(effects.shape, dtype=bool)
    met[rows["user"], rows["id"]] = True
    return np.var((means - effects)[met])


@pytest.mark.parametrize("how", ["fit", "observe"])
def test_rows_tell_a_task_of_items_that_it_meets_again(how):
    effects, rows = rounds_of_repeats()
    bandit = hs.Bandit(IDS, seed=0)
    if how == "fit":
        bandit.fit(rows, task="user", reward="reward")
    else:
        for task in range(20):
            mine = rows["user"] == task
            bandit.task(task).observe({"id": rows["id"][mine]}, rows["reward"][mine])
            bandit.task(task).close()
    assert mean_square_error(bandit, effects, rows) < 0.15 * effects.var()


@pytest.mark.parametrize("options", [{}, {"half_life": 10}])
def test_observed_and_replayed_rounds_are_those_of_choices_that_were_learned_from(
    tmp_path, options
):
    _, rows = rounds_of_repeats()
    rewards, items = rows["reward"], rows["id"]
    one, other = (hs.Bandit(IDS, seed=0, **options) for _ in range(2))
    one.save(tmp_path / "bandit")
    again = hs.load(tmp_path / "bandit")
    with hs.Journal(tmp_path / "journal") as journal:
        for at, task in enumerate(rows["user"].tolist()):
            choice = one.task(task).choose(actions=[items[at]])
            journal.append(choice, rewards[at])
            one.learn(choice, rewards[at])
            other.task(task).observe({"id": items[at : at + 1]}, rewards[at : at + 1])
    assert again.replay(tmp_path / "journal").learned == 300
    for task in range(20):
        expected = one.task(task)
        assert expected.rounds == other.task(task).rounds == again.task(task).rounds
        for field in ("gram", "moment", "rounds", "squares"):
            values = [getattr(each.task(task).evidence, field) for each in (one, other, again)]
            np.testing.assert_allclose(values[1], values[0], atol=1e-9)
            np.testing.assert_allclose(values[2], values[0], atol=1e-9)


def replayed_ratings(seed, replayed=True, **options):
    """The regret of a bandit, of item means and of random choices in late tasks; and R.

    A task is short and has the same few items on offer again and again, in rows of many columns.
    An item has one reward in it, or one with new noise each time.
    """
    rng = np.random.default_rng(seed)
    groups = [f"group {number}" for number in range(24)]
    quality, group = rng.normal(size=60), rng.integers(0, 24, 60)
    schema = hs.Schema(action={"group": hs.category(*groups)}, identity=True)
    bandit, regrets = hs.Bandit(schema, seed=0, **options), []
    counts, sums = np.zeros(60), np.zeros(60)
    for task in range(40):
        rated = rng.choice(60, 12, replace=False)
        own, noise = (1.2, 0.0) if replayed else (0.6, 0.6 * 3**0.5)
        ratings = dict(zip(rated.tolist(), quality[rated] + own * rng.normal(size=12), strict=True))
        for _ in range(12):
            offered = rng.choice(rated, 5, replace=False).tolist()
            errors = noise * rng.normal(size=5)
            values = np.array([ratings[item] for item in offered])
            actions = [{"id": item, "group": groups[group[item]]} for item in offered]
            choice = bandit.task(task).choose(actions=actions)
            bandit.learn(choice, values[choice.arm] + errors[choice.arm])
            best = int((sums[offered] / (counts[offered] + 5)).argmax())
            counts[offered[best]] += 1
            sums[offered[best]] += values[best] + errors[best]
            regrets.append(values.max() - [values[choice.arm], values[best], values.mean()])
        bandit.task(task).close()
    return *np.mean(regrets[200:], axis=0), bandit.report().noise


def test_replayed_ratings_say_nothing_of_the_noise():
    """Rewards that are the same when a task meets their item again would leave R = 0."""
    found = np.array([replayed_ratings(seed) for seed in (10, 11)])
    assert ((found[:, 3] > 1.0) & (found[:, 3] < 1.5)).all()  # it is 1.2
    regret, by_means, at_random, _ = found.mean(0)
    assert regret < 0.9 * by_means < 0.6 * at_random
    assert regret < 1.15 * np.mean([replayed_ratings(seed, noise=1.2)[0] for seed in (10, 11)])


def test_the_noise_is_that_of_first_rewards_where_repeats_are_noisy():
    assert 1.0 < replayed_ratings(12, replayed=False)[-1] < 1.5  # it is 1.2


def test_a_task_that_meets_one_item_again_and_again_counts_its_information():
    bandit, rng = hs.Bandit(IDS, seed=0, noise=1.0), np.random.default_rng(0)
    for task in range(30):
        effects = rng.normal(size=8)
        for item in rng.permutation(np.repeat(np.arange(8), 2)).tolist():
            reward = effects[item] + 0.5 * rng.normal()
            bandit.learn(bandit.task(task).choose(actions=[item]), reward)
    rho = 0.8  # of these effects
    task = bandit.task("new")
    for count in range(1, 30):
        for item, effect in ((3, 1.0), (5, -1.0)):
            bandit.learn(task.choose(actions=[item]), effect + 0.5 * float(rng.normal()))
        assert task.evidence.rounds == pytest.approx(2 * effective_count(count, rho), rel=0.15)
    assert task.rounds == 58
    evidence, belief = task.evidence, task.belief
    expected = belief.prior.belief(evidence)
    assert belief.rounds == pytest.approx(evidence.rounds)
    at = bandit.feature_names.index("id own")
    assert not evidence.gram[at].any()
    np.testing.assert_allclose(np.delete(belief.mean, at), np.delete(expected.mean, at), atol=1e-9)


@pytest.mark.parametrize("transfer", [None, hs.Mixture(), hs.Independent()])
def test_own_rewards_have_a_coefficient_of_one(transfer):
    bandit, rng = hs.Bandit(SHOP, transfer, seed=0), np.random.default_rng(0)
    for task in range(6):
        for at in range(20):
            actions = [{"id": item, "price": float(item)} for item in range(5)]
            choice = bandit.task(task).choose(actions=actions[at % 5 :])
            bandit.learn(choice, 10.0 * float(VALUES[choice.action] + 0.1 * rng.normal()))
        if task % 2:
            bandit.task(task).close()
    at = bandit.feature_names.index("id own")
    for task in range(6):
        belief = bandit.task(task).belief
        one = np.eye(belief.dim)[at][None]
        assert belief.predict(one)[0] == pytest.approx(1.0)
        assert belief.width(one)[0] * belief.noise == pytest.approx(0.0, abs=1e-9)
    table = bandit.task(0).encode(actions=actions).table
    plain = table.copy()
    plain[:, at] = 0.0
    difference = (
        bandit.task(0).predict(bandit.task(0).encode(actions=actions)._replace(table=plain)).mean
    )
    found = bandit.task(0).predict(bandit.task(0).encode(actions=actions)).mean
    np.testing.assert_allclose(found - difference, table[:, at], atol=1e-9)


def test_the_first_tasks_find_out_that_ratings_are_replayed():
    bandit, rng = hs.Bandit(IDS, seed=0), np.random.default_rng(0)
    effects = rng.normal(size=6)
    for item in [0, 1, 2, 3, 4, 5] * 8:
        bandit.learn(bandit.task("a").choose(actions=[item]), float(effects[item]))
    assert bandit.task("a").evidence.rounds < 24


GOODS = hs.Schema(
    context={"hot": hs.boolean(missing=False)},
    action={"price": hs.number(missing=False), "size": hs.number(missing=False)},
    crosses=[("hot", "size"), ("price", "size")],
    identity=True,
)


def goods(shift=0.0, unit=1.0):
    """Offers of the same twelve goods with numbers in other units: a function of their ids."""
    values = np.random.default_rng(1).normal(size=(12, 2))

    def offer(items):
        table = (values[items] + shift) * unit
        return [
            {"id": int(item), "price": price, "size": size}
            for item, (price, size) in zip(items, table.tolist(), strict=True)
        ]

    return offer


def goods_chosen(offer_of, gain=1.0, tasks=5, rounds=14):
    """What tasks choose of goods that return, whose worth to a task is its own."""
    schema = hs.Schema(action=GOODS.action, identity=True)
    bandit, rng, chosen = hs.Bandit(schema, seed=0), np.random.default_rng(2), []
    for task in range(tasks):
        worth = rng.normal(size=12) * (30.0 if task == 1 else 1.0)
        for _ in range(rounds):
            choice = bandit.task(task).choose(offer_of(rng.choice(12, 4, replace=False)))
            bandit.learn(choice, gain * float(worth[choice.action] + 0.3 * rng.normal()))
            chosen.append(choice.action)
        bandit.task(task).close()
    return chosen


numbers = st.lists(st.floats(-100.0, 100.0), min_size=2, max_size=2)
powers = st.integers(-6, 6).map(lambda power: 10.0**power)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(shift=numbers, units=st.lists(powers, min_size=2, max_size=2), gain=powers)
def test_no_decision_depends_on_units_or_origin_of_the_fields_of_returning_items(
    shift, units, gain
):
    assert goods_chosen(goods(shift, units), gain) == goods_chosen(goods())


@pytest.mark.parametrize("how", ["learn", "observe", "fit", "load", "delete"])
def test_a_shift_of_a_field_shifts_the_rows_of_returning_items_as_much(tmp_path, how):
    """Crosses of two fields of actions are mixed as fields are: they do not depend on contexts."""
    rng, rows, shift = np.random.default_rng(0), [], np.array([1e4, -3e3])
    for _ in range(80):
        rows.append((int(rng.integers(4)), int(rng.integers(12)), bool(rng.integers(2))))
    rewards = np.random.default_rng(1).normal(size=(4, 12))
    tables = []
    for offer_of in (goods(), goods(shift)):
        bandit = hs.Bandit(GOODS, seed=0)
        if how == "fit":
            frame = [
                {"user": user, "hot": hot, "r": rewards[user, item]} | offer_of([item])[0]
                for user, item, hot in rows
            ]
            bandit.fit(frame, task="user", reward="r")
        for user, item, hot in [] if how == "fit" else rows:
            task, given = bandit.task(user), {"context": {"hot": hot}}
            if how == "observe":
                task.observe(offer_of([item]), [rewards[user, item]], **given)
            else:
                task.learn(task.choose(actions=offer_of([item]), **given), rewards[user, item])
        if how == "load":
            bandit.save(tmp_path / "bandit")
            bandit = hs.load(tmp_path / "bandit")
        if how == "delete":
            bandit.delete(3)
        task = bandit.task(1)
        tables.append(task.encode(context={"hot": True}, actions=offer_of(list(range(12)))).table)
    names = list(bandit.feature_names)
    change = np.eye(len(names))
    constant = np.zeros(len(names))
    for at, (field, value) in enumerate(zip(("price", "size"), shift, strict=True)):
        constant[names.index(field)] = value
        change[names.index(("size", "price")[at]), names.index("price × size")] = value
    change[names.index("hot"), names.index("hot × size")] = shift[1]
    constant[names.index("price × size")] = shift.prod()
    expected = (tables[0] @ change + constant)[:, :-4]  # vectors depend on the fitted prior
    np.testing.assert_allclose(tables[1][:, :-4], expected, rtol=1e-11, atol=1e-11)
    prices = tables[0][:, names.index("price")]
    assert 0.01 < prices.std() < 0.9 * np.std([row["price"] for row in goods()(list(range(12)))])


def ratings(odd="", tasks=40, rounds=20, seed=0):
    """Rounds of tasks with other rewards of the same 40 items, some of them odd."""
    rng, rows = np.random.default_rng(seed), []
    for task in range(tasks):
        items = rng.choice(40, rounds, replace=False).tolist()
        rewards = VALUES[items] + 0.5 * rng.normal(size=rounds)
        if (odd, task) in (("first noisy", 0), ("noisy", 7)):
            rewards += 1e3 * rng.normal(size=rounds)
        if odd == "huge" and task % 10 == 1:
            rewards[rounds // 2] = 1e6
        if odd == "huge at once" and task % 10 == 1:
            rewards[0] = 1e6
        rows += zip([task] * rounds, items, rewards.tolist(), strict=True)
    return rows


def taught(rows, how="fit"):
    """A bandit that has learned from rounds; what is known of items does not need a prior."""
    bandit = hs.Bandit(IDS, hs.Independent(), seed=0)
    if how == "fit":
        frame = [dict(zip(("user", "id", "r"), row, strict=True)) for row in rows]
        return bandit.fit(frame, task="user", reward="r")
    for at, (task, item, reward) in enumerate(rows):
        bandit.learn(bandit.task(task).choose(actions=[item]), reward)
        if rows[at + 1 : at + 2] and rows[at + 1][0] != task:
            bandit.task(task).close()
    return bandit


@pytest.mark.parametrize("how", ["fit", "learn"])
@pytest.mark.parametrize("odd", ["noisy", "first noisy", "huge", "huge at once"])
def test_noisy_tasks_and_huge_rewards_do_not_spoil_what_is_known_of_items(odd, how):
    def agreement(rows):
        return np.corrcoef(known(taught(rows, how))[:, 0], VALUES)[0, 1]

    assert agreement(ratings(odd)) > agreement(ratings()) - 0.01


@settings(max_examples=10, deadline=None, derandomize=True)
@given(rate=st.floats(0.003, 0.5), high=st.sampled_from([1.0, 50.0]), seed=st.integers(0, 9))
def test_of_rewards_with_two_values_none_is_taken_for_an_outlier(rate, high, seed):
    rows = [
        (task, item, high * float(reward))
        for (task, item, _), reward in zip(
            ratings(), np.random.default_rng(seed).random(800) < rate, strict=True
        )
    ]
    counts = np.bincount([item for _, item, _ in rows], minlength=40)
    assert known(taught(rows))[:, 1] == pytest.approx(counts / (counts + 5))


def test_tasks_with_another_level_or_a_single_reward_count():
    rows = ratings() + [
        (40, f"new {at}", 5.0 + reward) for at, (_, _, reward) in enumerate(ratings(tasks=1))
    ]
    assert (known(taught(rows), items=["new 3", "new 9"])[:, 1] > 0.8 / 6).all()
    rng = np.random.default_rng(0)
    single = [(task, int(rng.integers(40)), float(rng.normal())) for task in range(200)]
    huge = [(task, item, 1e6 if task % 10 == 7 else r) for task, item, r in single]
    usual, odd = (known(taught(each)) for each in (single, huge))
    assert np.corrcoef(usual[:, 0], odd[:, 0])[0, 1] > 0.8


def test_deleting_a_noisy_task_leaves_no_trace():
    bandit = taught(ratings(), "learn")
    before = known(bandit)
    for task, item, reward in ratings("first noisy", tasks=1):
        bandit.learn(bandit.task(f"noisy {task}").choose(actions=[item]), reward)
    bandit.task("noisy 0").close()
    assert np.abs(known(bandit)[:, 0] - before[:, 0]).max() < 0.1 * np.abs(before[:, 0]).max()
    bandit.delete("noisy 0")
    np.testing.assert_allclose(known(bandit), before, atol=1e-9)


def test_a_file_holds_the_items_of_tasks_that_count_for_almost_nothing(tmp_path):
    bandit = taught(ratings(tasks=12), "learn")
    for reward in (1e7, 1.0, -1e7, 2.0):
        for item in ("x", "y"):
            bandit.learn(bandit.task("odd").choose(actions=[item]), reward)
    bandit.save(tmp_path / "bandit")
    twin = hs.load(tmp_path / "bandit")
    for each in (bandit, twin):
        each.learn(each.task("odd").choose(actions=["y"]), 3.0)
    for task in ("odd", "new"):
        np.testing.assert_array_equal(
            *(known(each, task, ["x", "y", 1]) for each in (bandit, twin))
        )
    choices = [each.task("odd").choose(actions=["x", "y"]) for each in (bandit, twin)]
    assert choices[0].score == choices[1].score


def test_a_deleted_task_leaves_nothing():
    bandit = hs.Bandit(IDS, seed=0)
    for name in "ab":
        choice = bandit.task(name).choose(actions=["x"])
        bandit.learn(choice, 1.0 if name == "a" else 3.0)
    bandit.task("a").close()
    alone = hs.Bandit(IDS, seed=0)
    alone.learn(alone.task("b").choose(actions=["x"]), 3.0)
    bandit.delete("a")
    items = ["x", "y"]
    np.testing.assert_allclose(known(bandit, "c", items), known(alone, "c", items), atol=1e-12)
    bandit.delete("b")
    fresh = hs.Bandit(IDS, seed=0)
    np.testing.assert_array_equal(known(bandit, "c", items), known(fresh, "c", items))


def test_deleting_undoes_closing_and_late_rewards():
    bandit = hs.Bandit(IDS, seed=0)
    run(bandit)
    before = known(bandit)
    late = [bandit.task("x").choose(actions=offer(np.random.default_rng(1))) for _ in range(6)]
    bandit.learn(late[:3], [1.0, -1.0, 2.0])
    bandit.task("x").close()
    bandit.learn(late[3:5], [1.0, -1.0])  # after closing
    bandit.learn(bandit.task("x").choose(actions=[1, 2, 3]), 4.0)  # it returns
    bandit.learn(late[5].token, 2.0)
    bandit.task("x").close()
    assert np.abs(known(bandit) - before).max() > 0.01
    bandit.delete("x")
    np.testing.assert_allclose(known(bandit), before, atol=1e-9)


def test_a_late_reward_counts_as_one_in_time():
    rng = np.random.default_rng(5)
    offers = [offer(rng, 1) for _ in range(8)]
    early, late = hs.Bandit(IDS, seed=0), hs.Bandit(IDS, seed=0)
    for bandit in (early, late):
        run(bandit, tasks=5)
        choices = [bandit.task("x").choose(actions=items) for items in offers]
        if bandit is early:
            bandit.learn(choices, [1.0] * 8)
        bandit.task("x").close()
        if bandit is late:
            bandit.learn(choices, [1.0] * 8)
    np.testing.assert_allclose(known(early)[:, :3], known(late)[:, :3], atol=1e-9)
    never = hs.Bandit(IDS, seed=0)
    run(never, tasks=5)
    learned = sorted({item for items in offers for item in items})
    for bandit in (early, late):  # vectors too, each by what the task knew when it was closed
        assert (known(bandit)[learned, 4:] != known(never)[learned, 4:]).all()


def test_vectors_learn_the_expected_least_squares():
    rng, dim = np.random.default_rng(0), 7
    root = rng.normal(size=(dim, dim))
    mean, noise = rng.normal(size=dim), 0.7
    columns = slice(2, 6)
    loading = Loading(mean, (root @ root.T)[columns], noise, columns)
    row, reward, weight = rng.normal(size=dim), 1.3, 2.5
    precision, moment = loading.contribution(row, reward, weight)
    # E‖r − z°θ − wᵀE‖² over draws of θ: its Hessian and gradient at E = 0.
    draws = mean + rng.normal(size=(400_000, dim)) @ root.T
    rest = np.where((np.arange(dim) >= 2) & (np.arange(dim) < 6), 0.0, row)
    loads, residual = draws[:, columns], reward - draws @ rest
    scale = weight / noise**2
    hessian, gradient = loads.T @ loads / len(draws), loads.T @ residual / len(draws)
    np.testing.assert_allclose(precision, scale * hessian, atol=0.02 * np.abs(precision).max())
    np.testing.assert_allclose(moment, scale * gradient, atol=0.02 * np.abs(moment).max())


def test_the_worth_of_repeats_is_that_of_a_random_effect():
    rng, tau, sigma = np.random.default_rng(0), 1.5, 0.8
    sums = Repeats()
    for _ in range(3000):
        effect, rewards = tau * rng.normal(), []
        for at in range(3):
            reward = effect + sigma * rng.normal()
            sums = sums.add(Repeats.of_reward(at, sum(rewards), reward, reward))
            rewards.append(reward)
    assert sums.rho == pytest.approx(tau**2 / (tau**2 + sigma**2), abs=0.03)
    # The posterior mean of the effect, and the information on a common mean, by matrices.
    rho = tau**2 / (tau**2 + sigma**2)
    for count in (1, 2, 5):
        covariance = tau**2 + sigma**2 * np.eye(count)
        gain = tau**2 * np.ones(count) @ np.linalg.inv(covariance)
        assert own_share(count, rho) == pytest.approx(gain.sum())
        information = np.linalg.inv(covariance).sum() * (tau**2 + sigma**2)
        assert effective_count(count, rho) == pytest.approx(information)


@pytest.mark.parametrize("how", ["save", "copy", "pickle"])
def test_what_is_known_of_items_is_saved(tmp_path, how):
    bandit = hs.Bandit(SHOP, seed=0)
    rng = np.random.default_rng(0)

    def play(bandit, seed):
        rng, chosen = np.random.default_rng(seed), []
        for task in range(6):
            for _ in range(8):
                rows = [{"id": item, "price": float(item % 4)} for item in offer(rng)]
                choice = bandit.task(task).choose(actions=rows)
                bandit.learn(choice, float(VALUES[choice.action] + rng.normal()))
                chosen.append((choice.action, choice.score))
            if task % 2:
                bandit.task(task).close()
        return chosen

    play(bandit, 0)
    choice = bandit.task(1).choose(actions=[{"id": 5, "price": 1.0}])
    if how == "save":
        bandit.save(tmp_path / "bandit")
        twin = hs.load(tmp_path / "bandit")
    else:
        twin = copy.copy(bandit) if how == "copy" else pickle.loads(pickle.dumps(bandit))
    for each in (bandit, twin):
        each.learn(choice.token, float(rng.integers(1)))
    assert play(bandit, 1) == play(twin, 1)
    for each in (bandit, twin):
        each.delete(3)
    assert play(bandit, 2) == play(twin, 2)


def test_files_that_say_nonsense_of_items_are_refused(tmp_path):
    bandit, rng = hs.Bandit(SHOP, seed=0), np.random.default_rng(0)
    for task in range(3):
        for _ in range(4):
            rows = [{"id": item, "price": 1.0 + item} for item in offer(rng, 3)]
            bandit.learn(bandit.task(task).choose(actions=rows), float(rng.normal()))
        if task:
            bandit.task(task).close()
    bandit.task(0).choose(actions=[{"id": "waits", "price": 1.0}])
    bandit.save(tmp_path / "source")

    def use(path):
        found = hs.load(path)
        for name in [*found][:3]:
            choice = found.task(name).choose(actions=[{"id": 1, "price": 1.0}])
            found.learn(choice.token, 1.0)
            found.task(name).close()
        found.delete(next(iter(found)))
        found.save(path.with_name("again"))
        hs.load(path.with_name("again"))

    cases = [case for case in resealed.bandit_cases(tmp_path / "source") if "item" in case[0]]
    random.Random(0).shuffle(cases)
    results = [resealed.attempt(case, tmp_path / "file", use) for case in cases[:40]]
    assert results.count("refused") > 30


def test_a_journal_replays_items(tmp_path):
    bandit = hs.Bandit(IDS, seed=0)
    bandit.save(tmp_path / "bandit")
    with hs.Journal(tmp_path / "journal") as journal:
        for at in range(10):
            choice = bandit.task(at % 2).choose(actions=["x", "y", 3])
            journal.append(choice, float(at))
            bandit.learn(choice, float(at))
    again = hs.load(tmp_path / "bandit")
    assert again.replay(tmp_path / "journal").learned == 10
    items, names = ["x", "y", 3, "other"], list(bandit.feature_names)
    told = [at for at, name in enumerate(names) if name != "id offered"]  # by rewards, not choices
    np.testing.assert_allclose(
        known(again, "c", items)[:, told], known(bandit, "c", items)[:, told]
    )


def test_rows_of_last_year_tell_of_items():
    rng = np.random.default_rng(0)
    items = rng.integers(0, 40, 600)
    frame = pandas.DataFrame(
        {"user": rng.integers(0, 30, 600), "id": items, "price": items % 4 + 0.5}
    )
    frame["stars"] = VALUES[items] + 0.3 * rng.normal(size=600)
    bandit = hs.Bandit(SHOP, seed=0).fit(frame, task="user", reward="stars")
    offered = [{"id": item, "price": item % 4 + 0.5} for item in range(40)]
    mean = bandit.task("new").predict(actions=offered).mean
    assert np.corrcoef(mean, VALUES)[0, 1] > 0.9
    task = hs.Bandit(SHOP, seed=0).task("a")
    task.observe(frame[["id", "price"]], frame["stars"])
    assert np.corrcoef(task.predict(actions=offered).mean, VALUES)[0, 1] > 0.9
    bandit.learn(bandit.task(3).choose(actions=offered), 1.0)
    bandit.task(3).close()
    bandit.delete(3)


def test_what_is_known_of_items_is_never_taken_for_an_outlier():
    bandit = hs.Bandit(IDS, seed=0)
    for at in range(64):  # all items are worth the same, up to rounding
        bandit.learn(
            bandit.task(at % 4).choose(actions=[f"item {at % 8}"]), [0.1, 0.7][at // 8 % 2]
        )
    for at in range(64):
        bandit.learn(bandit.task("x").choose(actions=[f"item {at % 8}"]), 1e3 * (at % 8))
    assert bandit.task("x").rounds == 64


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([{"price": 1.0}], "id"),
        ([{"id": "a", "price": 1.0}, {"price": 2.0}], "row 1"),
        (pandas.DataFrame({"price": [1.0, 2.0]}), "index of ids"),
        ([{"id": "", "price": 1.0}], "row 0"),
        (pandas.DataFrame({"id": [7.0, 8.0], "price": [1.0, 2.0]}), "convert them back"),
        ([{"id": "x" * 1001, "price": 1.0}], "row 0"),
        ([{"id": "\ud800", "price": 1.0}], "id"),
        ([{"id": uuid.UUID(int=1), "price": 1.0}], r"got a UUID \(pass its text, str\(id\)\)"),
        ([{"id": np.datetime64("2026-01-01"), "price": 1.0}], "pass its text"),
        ([uuid.UUID(int=1)], "pass its text"),
        ([np.float64(7.0)], r"got 7\.0 at row 0 .*convert them back"),
    ],
)
def test_identity_needs_ids(actions, words):
    bandit = hs.Bandit(SHOP, seed=0)
    with pytest.raises(hs.InputError, match=words):
        bandit.task("a").choose(actions=actions)
    labelled = pandas.DataFrame({"price": [1.0, 2.0]}, index=["p", "q"])
    assert bandit.task("a").choose(labelled).action in ("p", "q")


def test_constant_rewards_and_rules_without_a_root():
    for transfer in (None, hs.Mixture(), hs.Independent()):
        bandit = hs.Bandit(IDS, transfer, seed=0)
        for task in range(3):
            for _ in range(4):
                bandit.learn(bandit.task(task).choose(actions=["x", "y", "z"]), 1.0)
            bandit.task(task).close()
        assert np.isfinite(known(bandit, "new", ["x", "y", "z", "w"])).all()


def test_rewards_of_extreme_sizes_leave_a_bandit_that_works(tmp_path):
    """The precisions of vectors then lose all digits; such sums are left out."""
    bandit, rng = hs.Bandit(SHOP, seed=9), np.random.default_rng(9)
    large = 10.0 ** rng.integers(3, 50)
    for task in range(6):
        for _ in range(8):
            items = rng.choice(6, 3, replace=False).tolist()
            offers = [{"id": item, "price": float(rng.normal())} for item in items]
            choice = bandit.task(task).choose(offers)
            bandit.learn(choice, float(rng.normal() * (large if rng.random() < 0.2 else 1)))
        bandit.task(task).close()
    bandit.save(tmp_path / "bandit")
    again = hs.load(tmp_path / "bandit")
    actions = [{"id": item, "price": 1.0} for item in range(6)]
    assert np.isfinite(again.task("new").encode(actions=actions).table).all()
    again.task(0).delete()
    assert np.isfinite(again.task("new").predict(actions=actions).mean).all()


def test_rows_that_were_encoded_teach_the_items_as_others_do():
    bandit, twin = (hs.Bandit(hs.Schema(identity=True), seed=0) for _ in range(2))
    for at in range(12):
        item, reward = f"item {at % 3}", float(at % 5)
        bandit.task("a").observe([item], [reward])
        rows = twin.task("a").encode([item])
        twin.task("a").observe(rows, [reward])
    offered = [f"item {at}" for at in range(4)]
    np.testing.assert_array_equal(
        *(each.task("a").encode(offered).table for each in (bandit, twin))
    )
    rows = twin.task("a").encode(offered)
    for labels in (None, ["item 0"], "abcd", 4):
        for use in (
            lambda wrong: twin.task("a").observe(wrong, np.ones(4)),
            lambda wrong: twin.task("a").choose(wrong),
        ):
            with pytest.raises(hs.InputError):
                use(rows._replace(labels=labels))
    assert twin.task("a").rounds == 12
