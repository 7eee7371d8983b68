"""Logged tables: the rows of a round are its arms; without rounds, they are drawn."""

import os
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest

import headstart as hs
from headstart.worlds import Logged


@pytest.fixture
def columns():
    """Two tasks of 6 and 5 rows in rounds of 1 to 3 arms, and one row of a third, shuffled."""
    rows = [
        ("a", 1, 0.1, 0.0, 0.5),
        ("a", 1, 0.2, 0.1, 0.9),
        ("a", 1, 0.3, 0.2, 0.1),
        ("a", 2, 0.4, 0.3, 0.3),
        ("a", 10, 0.5, 0.4, 0.2),
        ("a", 10, 0.6, 0.5, 0.7),
        ("b", 1, 0.7, 0.6, 0.4),
        ("b", 1, 0.8, 0.7, 0.8),
        ("b", 2, 0.9, 0.8, 0.6),
        ("b", 2, 1.0, 0.9, 0.35),
        ("b", 2, 1.1, 1.0, 0.45),
        ("c", 1, 1.2, 1.1, 0.55),
    ]
    order = np.random.default_rng(0).permutation(len(rows))
    names = ("user", "step", "x1", "x2", "gain")
    return {name: [rows[row][column] for row in order] for column, name in enumerate(names)}


@pytest.fixture
def frame(columns):
    return pl.DataFrame(columns)


def logged(table, **settings):
    return Logged(table, **{"task": "user", "reward": "gain", "contexts": "x*", **settings})


def rewards_of(columns, task):
    """The reward by the first feature, which tells rows apart."""
    rows = zip(columns["user"], columns["x1"], columns["gain"], strict=True)
    return {x1: gain for user, x1, gain in rows if user == task}


def test_drawn_rounds_offer_different_rows_of_the_task(columns, frame):
    population = logged(frame, arms=4).population(0)
    assert sorted(population.ids) == ["a", "b"]
    assert (population.tasks, population.dropped, population.dim) == (2, 1, 2)
    assert (population.noise, population.truth, population.lengths) == (None, None, None)
    for task, id in enumerate(population.ids):
        known = rewards_of(columns, id)
        episode = population.episode(task, 50)
        assert episode.contexts.shape == (50, 4, 2)
        for contexts, rewards in zip(episode.contexts, episode.rewards, strict=True):
            assert len(set(contexts[:, 0])) == 4
            assert [known[x1] for x1 in contexts[:, 0]] == list(rewards)
        np.testing.assert_allclose(episode.contexts[..., 1], episode.contexts[..., 0] - 0.1)
        np.testing.assert_array_equal(episode.values, episode.rewards)


def test_rows_of_a_round_are_its_arms_in_order(columns, frame):
    population = logged(frame, round="step").population(0)
    assert dict(zip(population.ids, population.lengths, strict=True)) == {"a": 3, "b": 2, "c": 1}
    task = list(population.ids).index("a")
    episode = population.episode(task, 3)
    assert episode.contexts.shape == (3, 3, 2)
    offered = [sorted(set(contexts[:, 0])) for contexts in episode.contexts]
    assert offered == [[0.1, 0.2, 0.3], [0.4], [0.5, 0.6]]
    np.testing.assert_array_equal(population.episode(task, 2).contexts, episode.contexts[:2])


def test_filling_up_changes_no_regret_and_no_chance(frame, columns):
    """Copies carry their row's own reward, and in the long run each row is as likely as before."""
    known = rewards_of(columns, "a")
    counts = Counter()
    for seed in range(300):
        population = logged(frame, round="step").population(seed)
        episode = population.episode(list(population.ids).index("a"), 3)
        arms = episode.contexts[..., 0]
        assert [known[x1] for x1 in arms.ravel()] == list(episode.rewards.ravel())
        np.testing.assert_array_equal(episode.values.max(axis=1), [0.9, 0.3, 0.7])
        assert len(set(arms[2, :2])) == 2  # the rows themselves come first
        counts.update(arms[2])
    assert sum(counts.values()) == 900
    assert abs(counts[0.5] - 450) < 5 * np.sqrt(300) / 2


def test_tasks_shorter_than_asked_are_refused_or_left_out(frame):
    population = logged(frame, round="step").population(0)
    task = list(population.ids).index("b")
    population.episode(task, 2)
    with pytest.raises(hs.InputError, match=r"rounds must be 2 or fewer for task b.*got 3"):
        population.episode(task, 3)
    population = logged(frame, round="step", min_rounds=3).population(0)
    assert (list(population.ids), population.dropped) == (["a"], 2)


def test_every_kind_of_table_is_the_same_world(frame, columns, tmp_path):
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    tables = [
        frame,
        pd.DataFrame(columns),
        pd.DataFrame(columns).convert_dtypes(),
        pd.DataFrame(columns, index=range(100, 112)),
        tmp_path / "log.parquet",
        str(tmp_path / "log.csv"),
    ]
    for settings in ({"arms": 3}, {"round": "step"}):
        first, *others = (logged(table, **settings).population(4) for table in tables)
        for other in others:
            assert list(other.ids) == list(first.ids)
            for left, right in zip(first.episode(0, 1)[:3], other.episode(0, 1)[:3], strict=True):
                np.testing.assert_array_equal(left, right)


def test_files_are_read_again_when_they_change(frame, tmp_path):
    path = tmp_path / "log.parquet"
    frame.write_parquet(path)
    world = logged(path, arms=1)
    assert world.population(0).tasks == 3
    frame.filter(pl.col("user") != "c").write_parquet(path)
    os.utime(path, ns=(1, 1))
    assert world.population(0).tasks == 2


def test_seeds_fix_everything(frame):
    one, again, other = (logged(frame, arms=3).population(seed) for seed in (1, 1, 2))
    again.episode(1, 5)
    for left, right in zip(one.episode(0, 20)[:3], again.episode(0, 20)[:3], strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.episode(0, 20).contexts, other.episode(0, 20).contexts)
    orders = {tuple(logged(frame, round="step").population(seed).ids) for seed in range(30)}
    assert len(orders) == 6


@pytest.mark.parametrize(
    ("contexts", "want"),
    [
        ("x*", ["x1", "x2"]),
        ("x2", ["x2"]),
        (["x2", "x1"], ["x2", "x1"]),
        (("x2", "x?"), ["x2", "x1"]),
        ("*", ["x1", "x2"]),
        (["step", "x1"], ["step", "x1"]),
    ],
)
def test_contexts_are_named_or_matched(frame, contexts, want):
    population = logged(frame, contexts=contexts, arms=1, round="step").population(0)
    features = frame.sort("user", "step", maintain_order=True).select(want).to_numpy()
    np.testing.assert_array_equal(population.contexts, features)


def test_intercept_noise_and_numbers_as_ids(columns):
    columns["user"] = [ord(name) for name in columns["user"]]
    columns["x1"] = [value > 0.5 for value in columns["x1"]]
    world = logged(pl.DataFrame(columns), intercept=True, noise=0.3, arms=2)
    population = world.population(0)
    assert (population.dim, population.noise) == (3, 0.3)
    assert set(population.ids) == {97, 98}
    contexts = population.episode(0, 5).contexts
    assert (contexts[..., -1] == 1).all()
    assert set(contexts[..., 0].ravel()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "usr"}, ["task", "'usr'", "did you mean 'user'"]),
        ({"reward": "zzz"}, ["reward", "'zzz'", "there are user, step, x1, x2, gain"]),
        ({"round": "steps"}, ["round", "did you mean 'step'"]),
        ({"contexts": ["x1", "x_2"]}, ["contexts", "'x_2'", "did you mean 'x2'"]),
        ({"contexts": "z*"}, ["contexts", "no column matches 'z*'"]),
        ({"contexts": []}, ["contexts", "pattern such as 'x*'"]),
        ({"contexts": ["x1", "gain"]}, ["contexts", "reward", "'gain'"]),
        ({"arms": 0}, ["arms"]),
        ({"min_rounds": 0}, ["min_rounds"]),
        ({"intercept": "no"}, ["intercept", "True or False"]),
        ({"noise": -1}, ["noise", "positive"]),
    ],
)
def test_bad_settings_are_refused(frame, settings, words):
    with pytest.raises(hs.InputError) as caught:
        logged(frame, **settings)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("x2", float("nan"), ["contexts", "finite", "nan at row 7", "'x2'"]),
        ("x2", None, ["contexts", "finite", "nan at row 7", "'x2'"]),
        ("gain", float("inf"), ["reward", "finite", "inf at row 7", "'gain'"]),
        ("user", None, ["task", "missing at row 7", "'user'"]),
        ("step", None, ["round", "missing at row 7", "'step'"]),
    ],
)
def test_missing_and_infinite_entries_are_refused_by_row(columns, make, name, value, words):
    columns[name][7] = value
    with pytest.raises(hs.InputError) as caught:
        logged(make(columns), round="step").population(0)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_words_are_no_contexts(columns, make):
    columns["x1"] = [f"word {value}" for value in columns["x1"]]
    with pytest.raises(hs.InputError, match="contexts must be numbers; column 'x1' has type"):
        logged(make(columns)).population(0)


def test_tables_that_cannot_be_read_are_refused(frame, tmp_path):
    with pytest.raises(hs.MissingFileError, match=r"nothing is at .*log\.csv"):
        logged(tmp_path / "log.csv")
    (tmp_path / "log.parquet").write_text("no such thing")
    with pytest.raises(hs.FileError, match=r"log\.parquet' could not be read"):
        logged(tmp_path / "log.parquet")
    (tmp_path / "log.xlsx").write_text("")
    with pytest.raises(hs.InputError, match=r"table must be .*\.parquet or \.csv"):
        logged(tmp_path / "log.xlsx")
    with pytest.raises(hs.InputError, match="table must be a Polars or pandas frame"):
        logged([1, 2, 3])
    with pytest.raises(hs.InputError, match="got a LazyFrame"):
        logged(frame.lazy())
    twice = pd.DataFrame([[1, 2, 3]], columns=["user", "x1", "x1"])
    with pytest.raises(hs.InputError, match="table must have distinct column names"):
        logged(twice)
    with pytest.raises(hs.InputError, match="table must have rows"):
        logged(frame.head(0)).population(0)
    with pytest.raises(hs.InputError, match="tasks with arms=7 rows or more; the largest of 3 has"):
        logged(frame, arms=7).population(0)


def test_columns_may_be_numbered():
    table = pd.DataFrame([["a", 0.1, 0.5], ["a", 0.2, 0.7]])
    episode = Logged(table, "0", "2", "1", arms=2).population(0).episode(0, 3)
    assert set(episode.contexts.ravel()) == {0.1, 0.2}


def test_whole_numbers_may_turn_into_fractions_late(tmp_path):
    lines = ["user,x1,gain", *["a,1,0"] * 300, "a,0.5,0.25"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    population = logged(tmp_path / "log.csv").population(0)
    assert population.contexts[-1, 0] == 0.5


def test_repr_does_not_print_the_table(frame):
    shown = "Logged(table='12 rows', task='user', reward='gain', contexts='x*', arms=3)"
    assert repr(logged(frame, arms=3)) == shown
    assert logged(frame, arms=3).name == "logged"


def test_contexts_are_encoded_by_a_schema():
    rows = {
        "user": ["a", "a", "b", "b"],
        "gain": [0.0, 1.0, 0.5, 2.0],
        "price": [1.0, None, 3.0, 4.0],
        "brand": ["x", "y", None, "z"],
    }
    schema = hs.Schema(action={"price": hs.number(), "brand": hs.category("x", "y")})
    world = Logged(pl.DataFrame(rows), "user", "gain", schema=schema, arms=2, intercept=True)
    offer = {name: rows[name] for name in ("price", "brand")}
    want = hs.Bandit(schema).task("new").encode(actions=offer).table
    np.testing.assert_array_equal(world.population(0).contexts[:, :-1], want)
    assert (world.population(0).contexts[:, -1] == 1).all()
    for given, message in (
        ({"contexts": "price", "schema": schema}, "contexts must not be given together with"),
        ({"schema": 3}, "schema must be a headstart.Schema, or the path of its JSON"),
        ({"schema": hs.Schema(action={"gain": hs.number()})}, "schema must not have the reward"),
        ({}, "contexts must be names of columns"),
    ):
        with pytest.raises(hs.InputError, match=message):
            Logged(pl.DataFrame(rows), "user", "gain", **given)


COSTS = [([0.0, 1.0], [1.0, 0.0]), ([3.0, 5.5], [-3.0, -5.5])]


@pytest.mark.parametrize(("costs", "rewards"), COSTS)
def test_costs_are_played_as_rewards(costs, rewards):
    table = pl.DataFrame({"user": ["a", "a"], "x1": [0.1, 0.2], "cost": costs})
    world = Logged(table, "user", "cost", contexts="x*", arms=2, minimize=True)
    episode = world.population(0).episode(0, 1)
    order = np.argsort(episode.contexts[0, :, 0])
    np.testing.assert_array_equal(episode.rewards[0, order], rewards)
    np.testing.assert_array_equal(episode.values, episode.rewards)
