"""bandit.fit: the prior that a fit of the same rows as a log gives."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart import fleet
from headstart.bandit.state import BanditState


def rows_of(tasks, seed=0, length=10):
    """Rows of tasks that differ in one direction, in units that differ, with weights."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.repeat(np.arange(tasks), length))
    x = rng.standard_normal((len(owner), 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, 0.0]
    theta = np.array([1.0, 0.02, 50.0]) * (1.0 + 0.5 * rng.standard_normal((tasks, 1)))
    reward = (x * theta[owner]).sum(1) + rng.standard_normal(len(owner))
    columns = {f"x{at}": x[:, at] for at in range(3)}
    return {
        "user": np.array([f"user {n}" for n in owner]),
        **columns,
        "reward": reward,
        "weight": rng.integers(0, 4, len(owner)).astype(float),
    }


def fit_log(folder, rows, *options, weight=None, **settings):
    pq.write_table(pa.table(rows), folder / "log.parquet")
    columns = fleet.Columns("user", "reward", "x*", weight=weight)
    logs = fleet.Logs(str(folder / "log.parquet"), columns)
    return fleet.fit(logs, *options, keep_tasks=True, **settings)


def assert_same_prior(ours, theirs):
    ours, theirs = ours.as_gaussian(), theirs.as_gaussian()
    for name in ("mean", "covariance", "noise"):
        one, other = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(other).max())


CASES = {
    "default": (40, hs.EmpiricalBayes(), {}, {}),
    "many tasks": (700, hs.EmpiricalBayes(), {}, {}),
    "weights": (40, hs.EmpiricalBayes(), {"weight": "weight"}, {}),
    "as they are": (40, hs.EmpiricalBayes(), {"standardize": False}, {}),
    "no intercept": (40, hs.EmpiricalBayes(), {}, {"intercept": False}),
    "noise": (40, hs.EmpiricalBayes(), {}, {"noise": 1.0}),
    "bias": (40, hs.Bias(), {}, {"intercept": True}),
    "ccipca": (40, hs.Subspace(rank=2, pca="ccipca"), {}, {"intercept": True}),
    "mixture": (40, hs.Mixture(2), {}, {}),
}


@pytest.mark.parametrize(("tasks", "transfer", "options", "settings"), CASES.values(), ids=CASES)
def test_the_prior_is_that_of_a_fit_of_the_same_rows(tmp_path, tasks, transfer, options, settings):
    rows = rows_of(tasks)
    if "weight" not in options:
        del rows["weight"]
    bandit = hs.Bandit(3, transfer, seed=0, **settings)
    assert bandit.fit(rows, task="user", reward="reward", **options) is bandit
    fitted = fit_log(tmp_path, rows, transfer, **options, **({"intercept": True} | settings))
    expected = fitted.bandit(seed=0)
    assert_same_prior(bandit.prior, expected.prior)
    assert set(bandit) == set(expected)
    assert bandit.feature_names == expected.feature_names == ("x0", "x1", "x2")
    offer = np.array([[5.0, 30.0, 0.01], [4.0, -80.0, 0.02]])
    for id in ("user 3", "a new one"):  # a known task goes on
        ours, theirs = (one.task(id).predict(offer) for one in (bandit, expected))
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-6)
        np.testing.assert_allclose(ours.upper, theirs.upper, rtol=1e-6)
    assert bandit.task("user 3").rounds == expected.task("user 3").rounds > 0


@pytest.mark.parametrize("kind", ["pandas", "polars", "index", "lists", "whole numbers"])
def test_frames_dicts_and_ids_of_any_kind_are_read(kind):
    rows = rows_of(12)
    del rows["weight"]
    expected = hs.Bandit(3, seed=0).fit(rows, task="user", reward="reward")
    if kind == "whole numbers":
        ids = np.array([int(name.split()[1]) for name in rows["user"]])
        made = [rows | {"user": ids}, rows | {"user": ids.astype(object).astype(str)}]
        one, other = (hs.Bandit(3, seed=0).fit(r, task="user", reward="reward") for r in made)
        assert_same_prior(one.prior, other.prior)
        assert set(one) == {str(id) for id in range(12)}
        return
    make = {
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "index": lambda rows: pd.DataFrame(rows, index=np.arange(len(rows["x0"]))[::-1]),
        "lists": lambda rows: {name: column.tolist() for name, column in rows.items()},
    }[kind]
    bandit = hs.Bandit(3, seed=0).fit(make(rows), task="user", reward="reward")
    assert_same_prior(bandit.prior, expected.prior)


def test_a_fitted_bandit_chooses_learns_and_is_saved(tmp_path):
    rows = rows_of(30)
    bandit = hs.Bandit(3, seed=1).fit(rows, task="user", reward="reward", weight="weight")
    task = bandit.task("user 5")
    frame = pd.DataFrame({"x2": [0.1, 0.0], "x0": [1.0, 2.0], "x1": [3.0, 4.0]})
    choice = task.choose(frame)
    np.testing.assert_array_equal(choice.context, frame.loc[choice.arm, ["x0", "x1", "x2"]])
    bandit.learn(choice, 2.0)
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    assert loaded.task("user 6").choose(frame).arm == bandit.task("user 6").choose(frame).arm
    bandit.delete("user 7")
    assert "user 7" not in bandit


def test_with_a_half_life_later_rows_of_a_task_count_more():
    rows = {"t": ["a"] * 3 + ["b"] * 3, "x": [1.0, 2.0, 3.0] * 2, "r": [1.0, 0.0, 2.0] * 2}
    bandit = hs.Bandit(1, seed=0, half_life=1.0).fit(rows, task="t", reward="r", standardize=False)
    assert bandit.task("a").evidence.rounds == pytest.approx(1.75)
    assert bandit.task("a").evidence.moment[0] == pytest.approx(6.0 + 0.0 + 0.25)


def nested(depth):
    return (nested(depth - 1),) if depth else ()


GOOD = {"t": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "r": [1.0, 0.0, 2.0]}
BAD = {
    "no frame": (3, {}, "frame must be a pandas or Polars frame, a list of dicts, an array"),
    "array": (np.ones((3, 3)), {}, "frame must be a pandas or Polars frame"),
    "unknown task": (
        GOOD,
        {"task": "user"},
        r"task must be the name of a column \('t', 'x', 'r'\)",
    ),
    "unknown reward": (GOOD, {"reward": "y"}, "reward must be the name of a column"),
    "unknown weight": (GOOD, {"weight": "w"}, "weight must be the name of a column"),
    "unknown feature": (GOOD, {"features": ["z"]}, "features must be the name of a column"),
    "text as features": (GOOD, {"features": "x"}, "features must be a list of column names"),
    "reward as task": (GOOD | {"t": [1, 2, 1]}, {"reward": "t"}, "must be different columns"),
    "reward as weight": (GOOD, {"weight": "r"}, "must be different columns"),
    "reward as feature": (GOOD, {"features": ["r"]}, "features must not hold 'r'"),
    "too many features": (GOOD | {"z": [1.0] * 3}, {}, "1 different columns .* got 2"),
    "no rows": ({"t": [], "x": [], "r": []}, {}, "at least one row"),
    "other lengths": (GOOD | {"x": [1.0, 2.0]}, {}, "column 'x' must have 3 rows"),
    "missing value": (GOOD | {"x": [1.0, np.nan, 2.0]}, {}, "'x'.* finite"),
    "missing in frame": (pd.DataFrame(GOOD | {"x": [1.0, None, 2.0]}), {}, "finite everywhere"),
    "text in a feature": (pd.DataFrame(GOOD | {"x": ["a", "b", "c"]}), {}, "must be numbers"),
    "missing reward": (
        GOOD | {"r": [1.0, np.nan, 2.0]},
        {},
        "column 'r': rewards must be finite .*leave out rows",
    ),
    "missing task": (GOOD | {"t": ["a", None, "b"]}, {}, "task: id must be text"),
    "fraction as task": (GOOD | {"t": [1.5, 1.0, 2.0]}, {}, "task: id must be text"),
    "negative weight": (GOOD | {"w": [1.0, -1.0, 1.0]}, {"weight": "w"}, "weight must be"),
    "no weight": (GOOD | {"w": [0.0] * 3}, {"weight": "w"}, "above 0 in at least one row"),
    "huge weight": (GOOD | {"w": [1.0, 1e20, 1.0]}, {"weight": "w"}, "add up to 2.53 rounds"),
    "deep": (GOOD | {"r": [nested(99)] * 3}, {}, "column 'r' must be one value per row"),
    "sets as tasks": (GOOD | {"t": [{1}, {2}, {3}]}, {}, "task: id must be text"),
    "two axes": (GOOD | {"t": np.ones((3, 1))}, {}, "column 't' must have one value per row"),
}


@pytest.mark.parametrize(("frame", "changes", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_refused_and_change_nothing(frame, changes, message, books):
    bandit = hs.Bandit(1, seed=0)
    before = books(bandit)
    with pytest.raises(hs.InputError, match=message):
        bandit.fit(frame, **({"task": "t", "reward": "r"} | changes))
    assert books(bandit) == before


def test_only_a_new_bandit_is_fitted():
    bandit = hs.Bandit(1, seed=0)
    bandit.task("a")
    with pytest.raises(hs.HeadstartError, match="without tasks"):
        bandit.fit(GOOD, task="t", reward="r")
    bandit.delete("a")
    bandit.freeze()
    with pytest.raises(hs.HeadstartError, match="frozen"):
        bandit.fit(GOOD, task="t", reward="r")
    with pytest.raises(hs.InputError, match="forced"):
        hs.Bandit(1, hs.Gaussian(), hs.Forced(2, hs.UCB())).fit(GOOD, task="t", reward="r")


def test_choices_of_a_deleted_namesake_are_refused_after_a_fit():
    bandit = hs.Bandit(1, seed=0)
    choice = bandit.task("a").choose([[1.0]])
    bandit.delete("a")
    bandit.fit(GOOD, task="t", reward="r")
    with pytest.raises(hs.ChoiceError):
        bandit.learn(choice, 1.0)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("from_log", [True, False])
def test_values_far_out_of_those_fitted_are_refused_at_once(from_log, standardize, tmp_path):
    rows = rows_of(20) | {"x3": np.zeros(200)}
    del rows["weight"]
    if from_log:
        bandit = fit_log(tmp_path, rows, standardize=standardize).bandit(seed=0)
        bandit.save(tmp_path / "fitted.headstart")
        bandit = hs.load(tmp_path / "fitted.headstart")
    else:
        bandit = hs.Bandit(4, seed=0)
        bandit.fit(rows, task="user", reward="reward", standardize=standardize)
    usual = [[5.0, 100.0, 0.01, 0.0]]
    before = bandit.task("new").predict(usual).mean
    for far in ([1e15, 1.0, 0.0, 0.0], [5.0, 1e15, 0.0, 0.0], [5.0, 1.0, 1e6, 0.0]):
        with pytest.raises(hs.InputError, match="within a million times the usual size"):
            bandit.task("new").choose([far, *usual])
    np.testing.assert_array_equal(bandit.task("new").predict(usual).mean, before)
    # Larger values than before are not far out, nor is any of a feature that was always 0.
    task = bandit.task("new")
    task.learn(task.choose([[500.0, 1e5, 1.0, 0.0], [5.0, 1.0, 0.0, 1e9]]), 1.0)


@pytest.mark.parametrize("value", [1e9, -1e16])
@pytest.mark.parametrize("schema", [False, True])
def test_a_row_far_out_of_all_others_is_refused(schema, value):
    rows = rows_of(20)
    rows["x1"] = rows["x1"].copy()
    rows["x1"][33] = value
    names = [name for name in rows if name.startswith("x")]
    fields = {name: hs.number(missing=False) for name in names}
    bandit = hs.Bandit(hs.Schema(action=fields) if schema else len(names), seed=0)
    with pytest.raises(hs.InputError, match=r"'x1'.* a million times .* in row 33"):
        bandit.fit(rows, task="user", reward="reward", weight="weight")
    assert bandit.report().rounds == 0
    rows["weight"] = rows["weight"].copy()
    rows["weight"][33] = 0.0  # then it is left out
    bandit.fit(rows, task="user", reward="reward", weight="weight")


def test_one_large_value_does_not_set_the_unit_of_its_feature():
    """Of many tasks, which are fitted in few steps."""
    rng, tasks, rounds = np.random.default_rng(0), 600, 8
    contexts = rng.normal(size=(tasks, rounds, 2))
    theta = [1.0, -1.0] + 0.2 * rng.normal(size=(tasks, 2))
    rewards = np.einsum("nrd,nd->nr", contexts, theta) + 0.1 * rng.normal(size=(tasks, rounds))
    contexts[3, 4, 1] = 4e5
    columns = contexts.reshape(-1, 2).T
    rows = {"x0": columns[0], "x1": columns[1], "r": rewards.ravel()}
    rows["t"] = np.repeat(np.arange(tasks), rounds)
    bandit = hs.Bandit(2, seed=0).fit(rows, task="t", reward="r")
    first, second = (bandit.task("new").predict([row]) for row in ([1.0, 0.0], [0.0, 1.0]))
    assert [first.mean[0], second.mean[0]] == pytest.approx([1.0, -1.0], abs=0.05)
    deviations = [(one.upper - one.lower)[0] / 2 / 1.96 for one in (first, second)]
    assert deviations == pytest.approx([0.2, 0.2], rel=0.25)


def rows_with_one_value(model, size, seed, mean):
    """Rows of twelve short tasks, one of which has a value far out of its feature's others."""
    rng, tasks, dim = np.random.default_rng(seed), 12, 4
    rounds = 60 if model == "binary" else 12
    own = np.resize([1.0, -1.0, 0.5], dim) + 0.5 * rng.normal(size=(tasks, dim))
    contexts = rng.normal(size=(tasks, rounds, dim))
    means = np.einsum("nrd,nd->nr", contexts, own)
    draw = rng.normal(size=means.shape)
    chances = 1.0 / (1.0 + np.exp(1.0 - means))
    rewards = rng.random(means.shape) < chances if model == "binary" else means + draw
    if size is not None:
        contexts[0, 7, 0] = size
    rows = {f"x{at}": contexts[..., at].ravel() + mean for at in range(dim)}
    return own, rows | {"t": np.repeat(np.arange(tasks), rounds), "r": rewards.ravel() + 0.0}


@pytest.mark.parametrize(
    ("model", "size", "mean"),
    [("number", 300, 0), ("number", 3e4, 2000), ("binary", 3e3, 0), ("binary", 3e4, 2000)],
)
def test_one_large_value_does_not_spoil_other_tasks(model, size, mean):
    """Its feature's coefficient was lost: nearly 0 for all tasks with binary rewards."""
    points, errors = np.random.default_rng(9).normal(size=(30, 4)), []
    for value in (None, size):
        error = 0.0
        for seed in range(2):
            own, rows = rows_with_one_value(model, value, seed, mean)
            bandit = hs.Bandit(4, reward=model, seed=0).fit(rows, task="t", reward="r")
            for task in range(1, 12, 3):
                expected = points @ own[task]
                if model == "binary":
                    expected = 1.0 / (1.0 + np.exp(1.0 - expected))
                found = bandit.task(task).predict(points + mean).mean
                error += ((found - expected) ** 2).sum()
        errors.append(error)
    assert errors[1] < 1.15 * errors[0]


def test_rows_may_be_dicts_or_an_array_with_names():
    rows = rows_of(12)
    del rows["weight"]
    expected = hs.Bandit(3, seed=0).fit(rows, task="user", reward="reward").prior
    frame = pd.DataFrame(rows)
    table = frame.astype({"user": "U10"}).to_records(index=False)
    for given in (frame.to_dict("records"), np.asarray(table)):
        assert_same_prior(
            hs.Bandit(3, seed=0).fit(given, task="user", reward="reward").prior, expected
        )
    with pytest.raises(hs.InputError, match="at least one row; got none"):
        hs.Bandit(3, seed=0).fit([], task="user", reward="reward")
    dicts = frame.to_dict("records")
    del dicts[4]["x1"]
    with pytest.raises(hs.InputError, match=r"the same fields in every row; .* in row 4"):
        hs.Bandit(3, seed=0).fit(dicts, task="user", reward="reward")


def test_ids_that_a_frame_has_made_floats_are_refused_with_the_reason():
    rows = {"user": [1.0, 2.0], "x": [1.0, 2.0], "reward": [1.0, 2.0]}
    with pytest.raises(hs.InputError, match=r"task: id .*; got 1.0 \(frames turn whole numbers"):
        hs.Bandit(1, seed=0).fit(rows, task="user", reward="reward")


def test_a_fit_that_is_interrupted_at_its_end_is_finished(monkeypatch):
    rows = {"user": ["a", "a", "b"], "price": [1.0, 2.0, 1.5], "bought": [1, 0, 1]}
    bandit, interrupts = hs.Bandit(1, seed=0), []

    def set_or_interrupt(state, name, value):
        if name == "ledger" and not interrupts:
            interrupts.append(name)
            raise KeyboardInterrupt
        object.__setattr__(state, name, value)

    monkeypatch.setattr(BanditState, "__setattr__", set_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        bandit.fit(rows, task="user", reward="bought")
    assert interrupts
    assert len(bandit) == 2
    assert bandit.task("a").rounds == 2
    whole = hs.Bandit(1, seed=0).fit(rows, task="user", reward="bought")
    np.testing.assert_array_equal(bandit.prior.mean, whole.prior.mean)


@pytest.mark.parametrize("name", ["user", "reward", "count", "x"])
def test_masked_values_of_any_column_are_refused(name):
    """NumPy would read what is behind the mask."""
    frame = {"user": [1, 1, 2], "reward": [1.0, 2.0, 3.0], "count": [1.0] * 3, "x": [1.0, 3.0, 2.0]}
    frame[name] = np.ma.array(frame[name], mask=[False, True, False])
    records = np.ma.zeros(3, dtype=[(key, float) for key in frame])
    for key, column in frame.items():
        records[key] = column
    for given in (frame, records):
        bandit = hs.Bandit(1)
        with pytest.raises(hs.InputError, match=rf"{name}\b.*masked"):
            bandit.fit(given, task="user", reward="reward", weight="count")
        assert len(bandit) == 0


@pytest.mark.parametrize("name", ["user", "reward", "count"])
def test_so_are_those_beside_a_schema_whose_fields_may_be_missing(name):
    frame = {"user": [1, 1, 2], "reward": [1.0, 2.0, 3.0], "count": [1.0] * 3}
    frame["x"] = np.ma.array([1.0, 3.0, 2.0], mask=[False, True, False])
    bandit = hs.Bandit(hs.Schema(action={"x": hs.number()}))
    masked = {name: np.ma.array(frame[name], mask=[False, True, False])}
    with pytest.raises(hs.InputError, match=rf"{name}\b.*masked"):
        bandit.fit(frame | masked, task="user", reward="reward", weight="count")
    bandit.fit(frame, task="user", reward="reward", weight="count")
    missing = [bandit.task(id).evidence.gram[1, 1] for id in "12"]
    assert missing[0] != missing[1]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_fit_of_rewards_without_noise_can_be_read_again(seed, tmp_path):
    """All tasks are alike, so that no direction is left in which they differ."""
    rng = np.random.default_rng(seed)
    schema = hs.Schema(
        context={"device": hs.category("phone", "desktop")},
        action={"price": hs.number(), "brand": hs.category(buckets=4)},
        crosses=[("device", "price")],
    )
    rows = {
        "user": rng.integers(0, 30, 900),
        "device": rng.choice(["phone", "desktop"], 900),
        "price": rng.gamma(3.0, 5.0, 900),
        "brand": rng.choice(["x", "y", "z"], 900),
    }
    rows["spent"] = 0.1 * rows["price"] * (rows["device"] == "phone")
    bandit = hs.Bandit(schema, seed=0).fit(rows, task="user", reward="spent")
    bandit.save(tmp_path / "fitted.headstart")
    again = hs.load(tmp_path / "fitted.headstart")
    np.testing.assert_array_equal(again.prior.mean, bandit.prior.mean)
