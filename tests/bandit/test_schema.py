"""A bandit with a schema: named contexts and actions, frames, ids, files and tokens."""

import copy
import enum
import pickle

import numpy as np
import pandas
import polars
import pytest

import headstart as hs

SHOP = hs.Schema(
    context={"hour": hs.number(), "device": hs.category("phone", "desktop")},
    action={"price": hs.number(missing=False), "brand": hs.category("x", "y"), "new": hs.boolean()},
    crosses=[("device", "brand"), ("hour", "price")],
)
CONTEXT = {"hour": 20, "device": "phone"}
TEA = {"id": "tea", "price": 3.2, "brand": "x", "new": True}
COFFEE = {"id": "coffee", "price": 4.1, "brand": "y", "new": None}


def offer(rng, count=6, scale=1.0):
    return [
        {
            "id": f"item {at}",
            "price": scale * float(rng.normal(3.0)),
            "brand": str(rng.choice(["x", "y", "w"])),
            "new": bool(rng.random() < 0.5),
        }
        for at in range(count)
    ]


def play(bandit, seed=0, tasks=3, rounds=12, scale=1.0, order=None):
    """The ids chosen over some rounds of some tasks, with rewards that depend on the actions."""
    rng = np.random.default_rng(seed)
    chosen = []
    for task in range(tasks):
        for _ in range(rounds):
            hour, device = int(rng.integers(24)), str(rng.choice(["phone", "desktop"]))
            actions = offer(rng, scale=scale)
            rewards = {
                action["id"]: action["price"] / scale + 2.0 * (action["brand"] == "x")
                for action in actions
            }
            if order is not None:
                actions = [actions[at] for at in order.permutation(len(actions))]
            context = {"hour": hour, "device": device}
            choice = bandit.task(task).choose(context=context, actions=actions)
            chosen.append(choice.action)
            bandit.learn(choice, rewards[choice.action] + float(rng.normal()))
        bandit.task(task).close()
    return chosen


def test_actions_are_chosen_by_name():
    bandit = hs.Bandit(SHOP, seed=0)
    task = bandit.task("ann")
    choice = task.choose(context=CONTEXT, actions=[TEA, COFFEE])
    assert choice.action == ["tea", "coffee"][choice.arm]
    assert task.choose(context=CONTEXT, actions=[TEA, COFFEE], exclude=["tea"]).action == "coffee"
    assert task.choose(context=CONTEXT, actions=[TEA, COFFEE], exclude=[1]).action == "tea"
    numbered = [TEA | {"id": 1}, COFFEE | {"id": 0}]
    assert task.choose(context=CONTEXT, actions=numbered, exclude=[1]).action == 0
    assert task.learn(choice, 1.0)
    assert bandit.feature_names == SHOP.feature_names
    assert bandit.schema == SHOP
    assert len(task.predict(context=CONTEXT, actions=[TEA, COFFEE]).mean) == 2


def test_the_order_of_actions_and_the_units_of_numbers_do_not_matter():
    expected = play(hs.Bandit(SHOP, seed=1))
    assert play(hs.Bandit(SHOP, seed=1), order=np.random.default_rng(5)) == expected
    assert play(hs.Bandit(SHOP, seed=1), scale=1024.0) == expected
    assert len(set(expected)) > 1


def test_the_schema_decides_as_arrays_do():
    named, plain = hs.Bandit(SHOP, seed=3), hs.Bandit(SHOP.width, seed=3)
    rng = np.random.default_rng(0)
    for at in range(30):
        actions = offer(rng)
        table = named.task("a").encode(context=CONTEXT, actions=actions).table
        choices = (
            named.task("a").choose(context=CONTEXT, actions=actions),
            plain.task("a").choose(table),
        )
        assert choices[0].arm == choices[1].arm
        assert choices[0].propensity == choices[1].propensity
        for bandit, choice in zip((named, plain), choices, strict=True):
            bandit.learn(choice, float(at % 3))


def test_encoded_rows_repeat_a_decision():
    bandit = hs.Bandit(SHOP, seed=0)
    play(bandit)
    actions = offer(np.random.default_rng(9))
    rows = bandit.task("new").encode(context=CONTEXT, actions=actions)
    twin = copy.copy(bandit)
    one = bandit.task("new").choose(context=CONTEXT, actions=actions)
    two = twin.task("new").choose(rows)
    assert (one.action, one.score) == (two.action, two.score)


def test_rows_of_frames_keep_their_index_or_id():
    bandit = hs.Bandit(SHOP, seed=0)
    task, rows = bandit.task("a"), [TEA | CONTEXT, COFFEE | CONTEXT]
    frame = pandas.DataFrame(rows)
    for actions in (frame, polars.DataFrame(rows), frame.set_index("id")):
        choice = task.choose(actions)
        assert choice.action == ["tea", "coffee"][choice.arm]
    plain = hs.Bandit(2, seed=0).task("a")
    choice = plain.choose(pandas.DataFrame({"u": [1.0, 0.0], "v": [0.0, 1.0]}, index=["p", "q"]))
    assert choice.action == ["p", "q"][choice.arm]
    assert plain.choose([[1.0, 0.0], [0.0, 1.0]]).action in (0, 1)


def test_many_tasks_choose_as_one_by_one():
    together, alone = hs.Bandit(SHOP, seed=4), hs.Bandit(SHOP, seed=4)
    rng, ids = np.random.default_rng(0), ["ann", "bob", "cy"]
    for _ in range(5):
        context = [{"hour": hour, "device": "phone"} for hour in (1, 2, 3)]
        actions = [offer(rng, 2 + at) for at in range(3)]
        choices = together.choose_many(
            ids, context=context, actions=actions, exclude=[None, ["item 0"], None]
        )
        single = [
            alone.task(id).choose(context=each, actions=rows, exclude=excluded)
            for id, each, rows, excluded in zip(
                ids, context, actions, (None, ["item 0"], None), strict=True
            )
        ]
        assert [each.action for each in choices] == [each.action for each in single]
        for bandit, made in ((together, choices), (alone, single)):
            bandit.learn(made, [1.0, 2.0, 0.0])
    shared = together.choose_many(ids, context=CONTEXT, actions=[TEA, COFFEE])
    assert {choice.action for choice in shared} <= {"tea", "coffee"}
    with pytest.raises(hs.InputError, match="actions"):
        together.choose_many(ids, context=CONTEXT, actions=[[TEA], [COFFEE]])


def test_rows_of_last_year_are_learned_from():
    rng = np.random.default_rng(0)
    rows = [
        offer(rng, 1)[0] | {"user": f"u{at % 8}", "hour": at % 24, "device": "phone"}
        for at in range(160)
    ]
    frame = pandas.DataFrame(rows)
    frame["reward"] = frame["price"] + 2.0 * (frame["brand"] == "x")
    bandit = hs.Bandit(SHOP, seed=0).fit(frame, task="user", reward="reward")
    assert len(bandit) == 8
    values = bandit.task("new").predict(
        context=CONTEXT, actions=[TEA | {"new": True}, TEA | {"id": "b", "brand": "y"}]
    )
    assert values.mean[0] > values.mean[1] + 1.0
    fresh = hs.Bandit(SHOP, seed=0).task("a")
    own = frame.drop(columns=["user", "reward"])
    assert fresh.observe(own, frame["reward"])
    assert fresh.rounds == 160
    with pytest.raises(hs.InputError, match="'new'"):
        hs.Bandit(SHOP).fit(frame.drop(columns="new"), task="user", reward="reward")


def test_a_saved_bandit_continues_with_its_schema(tmp_path):
    bandit = hs.Bandit(SHOP, seed=2)
    play(bandit)
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    assert loaded.schema == SHOP
    twins = [copy.copy(bandit), pickle.loads(pickle.dumps(bandit)), loaded]
    expected = play(bandit, seed=5)
    assert [play(twin, seed=5) for twin in twins] == [expected] * 3
    with pytest.raises(hs.FileError, match="schema"):
        hs.load(tmp_path / "bandit", schema=hs.Schema(action={"price": hs.number()}))


class Drink(str, enum.Enum):  # noqa: UP042 - a StrEnum has its value as its str()
    """Texts with names, whose ``str()`` is the name."""

    TEA = "tea"


@pytest.mark.parametrize("id", ["tea", "Tee ☕", 17, np.int64(17), np.str_("tea"), Drink.TEA])
def test_a_token_carries_the_action(id):
    bandit = hs.Bandit(SHOP, seed=0)
    choice = bandit.task("a").choose(context=CONTEXT, actions=[TEA | {"id": id}])
    again = hs.Choice.from_token(choice.token, choice.origin)
    assert again.action == id
    assert type(again.action) in (str, int)
    assert again == choice
    assert bandit.learn(choice.token, 1.0)


@pytest.mark.parametrize("id", [17, np.int64(17), np.str_("17"), "17"])
def test_a_reward_by_token_counts_for_its_item(id):
    bandits = [hs.Bandit(hs.Schema(identity=True), seed=0) for _ in range(2)]
    for bandit, by_token in zip(bandits, (False, True), strict=True):
        choice = bandit.task("a").choose(actions=[id])
        bandit.learn(choice.token if by_token else choice, 1.0)
    known = [bandit.task("b").encode(actions=[17, 0]).table for bandit in bandits]
    assert known[0][0, 1] > 0
    np.testing.assert_array_equal(*known)


def test_a_number_far_out_is_refused_by_the_name_of_its_action():
    bandit = hs.Bandit(SHOP, seed=0)
    play(bandit)
    match = r"action 'tea' \(row 1\): column \d+ \('price'\) must be within a million times"
    with pytest.raises(hs.InputError, match=match):
        bandit.task("a").choose(context=CONTEXT, actions=[COFFEE, TEA | {"price": 1e12}])


@pytest.mark.parametrize("ids", [(7, 8), ("7", "8"), (np.int64(7), np.int64(8))])
def test_exclude_takes_an_id_as_text(ids):
    task = hs.Bandit(hs.Schema(identity=True), seed=0).task("a")
    assert task.choose(actions=list(ids), exclude=["7"]).action == ids[1]


def test_members_of_an_enumeration_are_their_values():
    schema = hs.Schema(action={"brand": hs.category("tea", "x"), "kind": hs.category(buckets=8)})
    rows = [{"id": id, "brand": id, "kind": id} for id in ("tea", Drink.TEA)]
    tables = [hs.Bandit(schema, seed=0).task("a").encode(actions=[row]).table for row in rows]
    np.testing.assert_array_equal(*tables)


def test_a_fitted_transformer_takes_the_place_of_a_schema(tmp_path):
    compose = pytest.importorskip("sklearn.compose")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    frame = pandas.DataFrame([TEA, COFFEE]).assign(hour=[3, 20])
    parts = [
        ("numbers", preprocessing.StandardScaler(), ["price", "hour"]),
        ("brands", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["brand"]),
    ]
    transformer = compose.ColumnTransformer(parts).fit(frame)
    bandit = hs.Bandit(transformer, seed=0)
    assert bandit.dim == 4
    choice = bandit.task("a").choose(context={"hour": 4}, actions=frame.drop(columns="hour"))
    assert choice.action in ("tea", "coffee")
    np.testing.assert_allclose(
        choice.context, transformer.transform(frame.assign(hour=4))[choice.arm]
    )
    bandit.learn(choice, 1.0)
    bandit.save(tmp_path / "bandit")
    with pytest.raises(hs.FileError, match="transformer"):
        hs.load(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit", schema=transformer)
    assert loaded.task("a").choose(frame).action in ("tea", "coffee")
    with pytest.raises(hs.InputError, match="fitted"):
        hs.Bandit(compose.ColumnTransformer(parts))


def without(action, name):
    return {key: value for key, value in action.items() if key != name}


BAD = {
    "unknown field": (CONTEXT, [TEA, COFFEE | {"colour": "red"}], ["'coffee'", "'colour'"]),
    "missing field": (CONTEXT, [TEA, without(COFFEE, "price")], ["'coffee'", "'price'"]),
    "missing value": (CONTEXT, [TEA, COFFEE | {"price": None}], ["'coffee'", "'price'", "missing"]),
    "text as number": (CONTEXT, [TEA, COFFEE | {"price": "4.1"}], ["'coffee'", "'price'", "'4.1'"]),
    "infinite number": (CONTEXT, [TEA, COFFEE | {"price": np.inf}], ["'coffee'", "'price'", "inf"]),
    "huge number": (CONTEXT, [TEA, COFFEE | {"price": 10**400}], ["'coffee'", "'price'"]),
    "list as number": (CONTEXT, [TEA, COFFEE | {"price": [4.1]}], ["'coffee'", "'price'"]),
    "number as category": (CONTEXT, [TEA, COFFEE | {"brand": 3}], ["'coffee'", "'brand'", "3"]),
    "text as boolean": (CONTEXT, [TEA, COFFEE | {"new": "yes"}], ["'coffee'", "'new'", "'yes'"]),
    "number as boolean": (CONTEXT, [TEA, COFFEE | {"new": 2}], ["'coffee'", "'new'"]),
    "equal ids": (CONTEXT, [TEA, COFFEE, TEA], ["'tea'", "row 2", "row 0"]),
    "equal ids of two types": (CONTEXT, [TEA | {"id": 1}, COFFEE | {"id": "1"}], ["row 1"]),
    "missing id": (CONTEXT, [TEA, without(COFFEE, "id")], ["row 1", "id"]),
    "no id": (CONTEXT, [TEA, COFFEE | {"id": None}], ["row 1", "id"]),
    "id of another type": (CONTEXT, [TEA, COFFEE | {"id": 1.5}], ["row 1", "id"]),
    "not a dict": (CONTEXT, [TEA, 3], ["row 1", "dict"]),
    "ids alone": (CONTEXT, ["tea", "coffee"], ["'tea'", "'brand'"]),
    "numbers": (CONTEXT, [[1.0, 2.0]], ["actions", "schema"]),
    "an array": (CONTEXT, np.ones((2, 3)), ["actions", "schema"]),
    "no actions": (CONTEXT, [], ["at least one"]),
    "one action": (CONTEXT, TEA, ["[action]"]),
    "unknown column": (CONTEXT, pandas.DataFrame([TEA | {"colour": 1}]), ["'colour'"]),
    "missing column": (CONTEXT, pandas.DataFrame([without(TEA, "price")]), ["'price'"]),
    "wrong type in a frame": (
        CONTEXT,
        pandas.DataFrame([TEA, COFFEE | {"brand": 3}]),
        ["'coffee'", "'brand'"],
    ),
    "context lacks a field": ({"hour": 3}, [TEA], ["context", "'device'"]),
    "context with a field too many": (CONTEXT | {"day": 1}, [TEA], ["context", "'day'"]),
    "context of a wrong type": (CONTEXT | {"hour": "late"}, [TEA], ["context", "'hour'"]),
    "category of the context as a number": (CONTEXT | {"device": 1}, [TEA], ["'device'", "1"]),
    "context that is no dict": ([20, "phone"], [TEA], ["context"]),
    "no context": (None, [TEA], ["'device'"]),
    "far out": (CONTEXT, [TEA, COFFEE | {"price": 1e12}], ["price"]),
}


@pytest.mark.parametrize("known", [False, True], ids=["first", "after others"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_action_and_the_field_and_changes_nothing(case, known):
    context, actions, words = BAD[case]
    bandit, expected = hs.Bandit(SHOP, seed=0), hs.Bandit(SHOP, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(4 if known or case == "far out" else 0):
        offered = [TEA, COFFEE, *offer(rng, 3)]
        for each in (bandit, expected):
            each.learn(each.task("a").choose(context=CONTEXT, actions=offered), 1.0)
    with pytest.raises(hs.InputError) as caught:
        bandit.task("a").choose(context=context, actions=actions)
    for word in words:
        assert word in str(caught.value)
    one, two = (
        each.task("a").choose(context=CONTEXT, actions=[TEA]) for each in (bandit, expected)
    )
    assert (one.number, one.score) == (two.number, two.score)


def test_a_context_needs_a_schema():
    task = hs.Bandit(2, seed=0).task("a")
    with pytest.raises(hs.InputError, match="schema"):
        task.choose(context={"hour": 3}, actions=[[1.0, 2.0]])
    assert task.choose(actions=[[1.0, 2.0]]).arm == 0
    with pytest.raises(hs.InputError, match="both"):
        task.choose([[1.0, 2.0]], actions=[[1.0, 2.0]])
    with pytest.raises(hs.HeadstartError, match="no schema"):
        task.encode([[1.0, 2.0]])


def test_a_value_that_no_row_had_is_predicted_near_the_average_of_those_that_rows_had():
    """Rewards far from 0: their level says nothing of how much values of a category differ."""
    rng = np.random.default_rng(0)
    tasks, length = 40, 30
    user = np.repeat(np.arange(tasks), length)
    sex, score = rng.choice(["f", "m"], len(user)), rng.standard_normal(len(user))
    level = 100.0 + 3.0 * rng.standard_normal(tasks)[user]
    reward = level + 2.0 * (sex == "m") + 2.0 * score + 5.0 * rng.standard_normal(len(user))
    schema = hs.Schema(action={"sex": hs.category("f", "m"), "score": hs.number()})
    bandit = hs.Bandit(schema, seed=0)
    frame = {"user": user, "sex": sex.tolist(), "score": score, "reward": reward}
    bandit.fit(frame, task="user", reward="reward")
    actions = [{"sex": value, "score": 0.0} for value in ("f", "m", "M")]
    for name in ("new", 3):
        found = bandit.task(name).predict(actions, level=0.9)
        low, high, new = found.mean
        assert abs(new - (low + high) / 2) < 2.0
        width = found.upper - found.lower
        assert width[2] > width[:2].max()


@pytest.fixture
def transformer():
    compose = pytest.importorskip("sklearn.compose")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    parts = [
        ("numbers", preprocessing.StandardScaler(), ["price"]),
        ("brands", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["brand"]),
    ]
    rows = [{"price": 1.0, "brand": "x"}, {"price": 4.0, "brand": "y"}]
    return compose.ColumnTransformer(parts).fit(pandas.DataFrame(rows))


def test_a_bandit_with_a_transformer_is_fitted_to_rows_of_every_kind(transformer):
    rng = np.random.default_rng(0)
    rows = [
        {"user": int(user), "price": float(price), "brand": str(rng.choice(["x", "y", "z"]))}
        for user, price in zip(rng.integers(0, 8, 60), rng.gamma(3.0, size=60), strict=True)
    ]
    rows = [{**row, "spent": row["price"] + (row["brand"] == "x")} for row in rows]
    frame = pandas.DataFrame(rows)
    columns = {name: frame[name].tolist() for name in frame}
    means = []
    for given in (frame, polars.DataFrame(rows), rows, columns):
        bandit = hs.Bandit(transformer, seed=0).fit(given, task="user", reward="spent")
        assert len(bandit) == 8
        means.append(bandit.prior.mean)
    expected = transformer.transform(frame)
    arrays = {f"x{at}": expected[:, at] for at in range(3)}
    arrays |= {"user": columns["user"], "spent": columns["spent"]}
    plain = hs.Bandit(3, seed=0).fit(arrays, task="user", reward="spent")
    for mean in means:
        np.testing.assert_allclose(mean, plain.prior.mean)


def test_dicts_are_made_frames_for_a_transformer_that_was_fitted_on_one(transformer):
    task = hs.Bandit(transformer, seed=0).task("a")
    actions = [{"id": "tea", "brand": "x", "price": 3.2}, {"id": "mug", "brand": "w", "price": 9}]
    choice = task.choose(actions=actions, exclude=["mug"])
    frame = pandas.DataFrame(actions)
    assert choice.action == "tea"
    np.testing.assert_allclose(choice.context, transformer.transform(frame)[0])
    frame = frame.set_index("id")
    assert task.choose(frame, exclude=["tea"]).action == "mug"  # by the index, too
    with pytest.raises(hs.InputError, match="'hour' is not among the columns"):
        task.choose(context={"hour": 3}, actions=actions)
    with pytest.raises(hs.InputError, match="row 1 must have the fields of the first"):
        task.choose(actions=[actions[0], {"id": "mug", "brand": "w"}])


def test_the_texts_of_an_index_name_the_arms_of_arrays_too():
    bandit = hs.Bandit(1, seed=0)
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}, index=["a", "b", "a", "c"])
    assert bandit.task("ann").choose(frame, exclude=["a", "c"]).action == "b"
    assert bandit.task("ann").choose(frame, exclude=[0, 1, 2]).action == "c"
    with pytest.raises(hs.InputError, match="ids of actions on offer; got 'd'"):
        bandit.task("ann").choose(frame, exclude=["d"])
    choices = bandit.choose_many(["ann", "bob"], [frame, frame[:2]], [["a", "b"], ["a"]])
    assert [choice.action for choice in choices] == ["c", "b"]


def test_errors_of_choose_many_name_the_task():
    bandit = hs.Bandit(SHOP, seed=0)
    wrong = [TEA, {**COFFEE, "price": "4.10"}]
    with pytest.raises(hs.InputError, match=r"ids\[1\]: action 'coffee' \(row 1\): field 'price'"):
        bandit.choose_many(["ann", "bob"], context=CONTEXT, actions=[[TEA], wrong])
    assert len(bandit) == 0
