"""A schema: what is written down, how it is encoded, and what is refused."""

import datetime
import hashlib
import json
import os
import time
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pandas
import polars
import pytest
from hypothesis import given, settings

import headstart as hs
from headstart.features.schema.encoder import Encoder

SHOP = hs.Schema(
    context={"hour": hs.number(), "device": hs.category("phone", "desktop")},
    action={
        "price": hs.number(),
        "brand": hs.category(buckets=4),
        "new": hs.boolean(missing=False),
        "size": hs.category(1, 2, 3),
        "look": hs.vector(2, missing=True),
    },
    crosses=[("device", "price"), ("hour", "brand"), ("price", "new")],
)

SHOP_WITH_VIEW = {
    "context": {"hour": hs.number(missing=False), "view": hs.vector(2)},
    "action": {"price": hs.number(missing=False)},
    "crosses": [("hour", "price"), ("view", "hour")],
}

maybe = st.none() | st.just(float("nan"))
numbers = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6) | maybe
actions = st.fixed_dictionaries(
    {
        "price": numbers,
        "brand": st.sampled_from(["x", "y", "zed", "5", "é"]) | maybe,
        "new": st.booleans(),
        "size": st.sampled_from([1, 2, 3, 4]) | maybe,
        "look": st.lists(st.floats(-9, 9), min_size=2, max_size=2) | st.none(),
    }
)
contexts = st.fixed_dictionaries(
    {"hour": numbers, "device": st.sampled_from(["phone", "desktop", "watch"]) | maybe}
)


def missing(value):
    return value is None or value != value


def reference(context, action):
    """One row, cell by cell, from the description in the documentation."""
    row = {}
    everything = context | action
    for name in ("hour", "price"):
        none = missing(everything[name])
        row[name] = {name: 0.0 if none else float(everything[name]), f"{name} missing": float(none)}
    row["device"] = {
        f"device={value}": float(context["device"] == value) for value in ("phone", "desktop")
    }
    row["device"]["device other"] = float(context["device"] not in ("phone", "desktop"))
    bucket = None
    if not missing(action["brand"]):
        digest = hashlib.blake2b(str(action["brand"]).encode(), digest_size=8).digest()
        bucket = sum(byte << (8 * at) for at, byte in enumerate(digest)) % 4
    row["brand"] = {f"brand#{at}": float(at == bucket) for at in range(4)}
    row["brand"]["brand missing"] = float(bucket is None)
    row["new"] = {"new": float(action["new"])}
    row["size"] = {f"size={value}": float(action["size"] == value) for value in (1, 2, 3)}
    row["size"]["size other"] = float(action["size"] not in (1, 2, 3))
    look = action["look"] or [0.0, 0.0]
    row["look"] = {f"look[{at}]": look[at] for at in range(2)}
    row["look"]["look missing"] = float(action["look"] is None)
    cells = {name: value for field in row.values() for name, value in field.items()}
    for one, two in SHOP.crosses:
        for left, a in row[one].items():
            for right, b in row[two].items():
                cells[f"{left} × {right}"] = a * b
    return cells


@settings(max_examples=60, deadline=None)
@given(context=contexts, offered=st.lists(actions, min_size=1, max_size=4), data=st.data())
def test_rows_are_those_of_an_independent_encoding(context, offered, data):
    encoder, schema = Encoder(SHOP), SHOP
    expected = [
        [reference(context, action)[name] for name in schema.feature_names] for action in offered
    ]
    for _ in range(2):  # the second time from rows that are known
        np.testing.assert_array_equal(encoder.encode(context, offered).table, expected)
    # Neither the order of actions nor that of fields matters, nor where the context stands.
    order = data.draw(st.permutations(range(len(offered))))
    names = data.draw(st.permutations(list(offered[0])))
    other = hs.Schema(
        context=dict(reversed(schema.context.items())),
        action={name: schema.action[name] for name in names},
        crosses=[pair[::-1] for pair in reversed(schema.crosses)],
    )
    assert other == schema
    shuffled = [{name: offered[at][name] for name in names} for at in order]
    again = Encoder(other).encode(context, shuffled).table
    np.testing.assert_array_equal(again, np.array(expected)[list(order)])
    joined = Encoder(other).encode(None, [action | context for action in offered]).table
    np.testing.assert_array_equal(joined, expected)
    parts = [encoder.encode(context, [action]).table for action in offered]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_frames_and_arrays_with_names_are_rows():
    schema = hs.Schema(
        action={
            "price": hs.number(),
            "brand": hs.category("x", "y"),
            "new": hs.boolean(),
            "look": hs.vector(2),
        },
        ignore=["title"],
    )
    rows = [
        {"id": 7, "price": 1.5, "brand": "x", "new": True, "look": [1.0, 2.0], "title": "a"},
        {"id": 9, "price": None, "brand": None, "new": None, "look": [0.0, 4.0], "title": "b"},
    ]
    expected = Encoder(schema).encode(None, rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    named = np.array(
        [(7, 1.5, "x", True, [1.0, 2.0]), (9, np.nan, None, None, [0.0, 4.0])],
        dtype=[("id", int), ("price", float), ("brand", "O"), ("new", "O"), ("look", float, 2)],
    )
    table = pandas.DataFrame(columns)
    typed = table.astype({"price": "Float64", "brand": "category", "new": "boolean"})
    for actions in (table, typed, polars.DataFrame(columns), columns, named):
        encoded = Encoder(schema).encode(None, actions)
        np.testing.assert_array_equal(encoded.table, expected.table)
        assert list(encoded.labels) == [7, 9]
    labelled = Encoder(schema).encode(None, table.set_index("id"))
    assert labelled.labels == [7, 9]


def test_a_schema_is_plain_json():
    text = SHOP.to_json()
    assert hs.Schema.from_json(text) == SHOP
    assert json.loads(text)["headstart_schema"] == 1
    assert eval(repr(SHOP), vars(hs)) == SHOP
    everything = hs.Schema(
        action={"id": hs.category("a", "b")}, identity=True, id="id", ignore=["note"]
    )
    assert hs.Schema.from_json(everything.to_json()) == everything


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "headstart_schema"),
        ("{", "JSON"),
        ('{"headstart_schema": 2}', "version 1"),
        ('{"headstart_schema": 1, "actions": {}}', "actions"),
        ('{"headstart_schema": 1, "action": {"a": 3}}', "'a'"),
        ('{"headstart_schema": 1, "action": {"a": {"type": "text"}}}', "'a'"),
        ('{"headstart_schema": 1, "action": {"a": {"type": "number", "unit": 1}}}', "unit"),
        ('{"headstart_schema": 1, "action": {"a": {"type": "vector", "length": -1}}}', "'a'"),
        ('{"headstart_schema": 1, "action": {"a": {"type": "category", "values": 3}}}', "'a'"),
        ('{"headstart_schema": 1, "action": []}', "action"),
    ],
)
def test_json_that_is_no_schema_is_refused(text, words):
    with pytest.raises(hs.InputError, match=words):
        hs.Schema.from_json(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "action"),
        ({"action": {"a": float}}, "'a'"),
        ({"action": [hs.number()]}, "action"),
        ({"action": {3: hs.number()}}, "name"),
        ({"action": {"a": hs.number()}, "context": {"a": hs.number()}}, "'a'"),
        ({"action": {"a": hs.number()}, "context": {"id": hs.number()}}, "'id'"),
        ({"action": {"a": hs.number()}, "crosses": [("a", "b")]}, "'b'"),
        ({"action": {"a": hs.number()}, "crosses": [("a", "a")]}, "twice"),
        ({"action": {"a": hs.number()}, "crosses": ["ab"]}, "pairs"),
        ({"action": {"a": hs.number()}, "crosses": "some"}, "all"),
        ({"action": {"a": hs.number()}, "crosses": [("a", "id")], "identity": True}, "category"),
        ({"action": {"a": hs.number()}, "ignore": ["a"]}, "ignore"),
        ({"action": {"a": hs.number()}, "ignore": "title"}, "ignore"),
        ({"action": {"a": hs.number()}, "identity": 1}, "identity"),
    ],
)
def test_a_schema_that_means_nothing_is_refused(settings, words):
    with pytest.raises(hs.InputError, match=words):
        hs.Schema(**settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hs.category(),
        lambda: hs.category("a", buckets=3),
        lambda: hs.category("a", 1),
        lambda: hs.category("a", "a"),
        lambda: hs.category(buckets=1),
        lambda: hs.category(1.5),
        lambda: hs.vector(0),
        lambda: hs.number(missing=1),
    ],
)
def test_fields_that_mean_nothing_are_refused(make):
    with pytest.raises(hs.InputError):
        make()


def test_a_context_that_cannot_matter_is_warned_of():
    fields = {"context": {"hour": hs.number()}, "action": {"price": hs.number()}}
    with pytest.warns(UserWarning, match="crosses"):
        hs.Schema(**fields)
    assert hs.Schema(**fields, crosses="all") == hs.Schema(**fields, crosses=[("price", "hour")])
    assert hs.Schema(**fields, crosses=()).crosses == ()


def test_many_different_actions_are_encoded_the_same_as_few():
    schema = hs.Schema(action={"price": hs.number(), "brand": hs.category(buckets=300)})
    encoder = Encoder(schema)
    for start in range(0, 9000, 500):  # more than are remembered
        rows = [{"price": float(at), "brand": f"b{at}"} for at in range(start, start + 500)]
        table = encoder.encode(None, rows).table
        fresh = Encoder(schema).encode(None, rows[-3:]).table
        np.testing.assert_array_equal(table[-3:], fresh)
        np.testing.assert_array_equal(encoder.encode(None, rows[-3:]).table, fresh)


def test_what_was_encoded_before_is_neither_shared_nor_trusted():
    encoder = Encoder(hs.Schema(**SHOP_WITH_VIEW))
    context = {"hour": 3.0, "view": (1.0, 2.0)}
    offered = [{"price": -1.5}, {"price": 2.0}]
    first = encoder.encode(context, offered).table
    expected = first.copy()
    first[:] = 7.0  # the caller's own
    np.testing.assert_array_equal(encoder.encode(context, offered).table, expected)
    context["hour"], offered[1]["price"] = 4.0, 5.0  # changed in place
    changed = encoder.encode(context, offered).table
    assert encoder.schema.feature_names[4:] == (
        "hour × view[0]",
        "hour × view[1]",
        "hour × price",
    )
    assert changed.tolist() == [[4, 1, 2, -1.5, 4, 8, -6], [4, 1, 2, 5, 4, 8, 20]]
    view = [1.0, 2.0]  # a value that has no hash
    before = encoder.encode(context | {"view": view}, offered).table
    view[0] = 9.0
    after = encoder.encode(context | {"view": view}, offered).table
    assert (before[:, 1] == 1.0).all()
    assert (after[:, 1] == 9.0).all()
    # What is refused is refused after equal values were taken.
    with pytest.raises(hs.InputError, match="context must be a dict"):
        encoder.encode(pandas.Series({"hour": 4.0, "view": (1.0, 2.0)}), offered)
    with pytest.raises(hs.InputError, match="field 'vie' is not in the schema"):
        encoder.encode(context | {"vie": 1.0}, offered)
    with pytest.raises(hs.InputError, match="field 'hour' is missing"):
        encoder.encode({"view": (1.0, 2.0), "hours": 4.0}, offered)
    for at in range(5000):  # more contexts than are kept
        encoder.encode({"hour": float(at), "view": (1.0, 2.0)}, offered[:1])
    np.testing.assert_array_equal(encoder.encode(context, offered).table, changed)


def test_what_is_the_same_in_all_rows_of_a_task_is_noted():
    """As the type of a school, where its pupils are the rows."""
    rng = np.random.default_rng(0)
    school = np.repeat(np.arange(20), 15)
    frame = {
        "school": school,
        "type": np.where(school % 3, "mixed", "girls"),
        "intake": rng.choice(["low", "high"], 300),
        "place": np.repeat(rng.normal(size=20), 15),
        "result": rng.normal(size=300),
    }
    names = {"task": "school", "reward": "result"}
    reviews = {each.name: each for each in hs.Schema.infer(frame, **names).review.columns}
    assert (
        reviews["type"].notes == "the same in all rows of a task: it does not distinguish actions"
    )
    assert reviews["place"].notes == "one to one with the task: an id?"
    assert not reviews["intake"].notes
    told = hs.Schema.infer(frame, **names, context=["type"]).review  # as a context should be
    assert not {each.name: each for each in told.columns}["type"].notes
    alone = {name: column[:100] for name, column in frame.items()} | {"school": np.arange(100)}
    review = hs.Schema.infer(alone, **names).review  # tasks of one row each
    assert not {each.name: each for each in review.columns}["type"].notes


def test_what_counts_the_rows_is_no_field():
    """As row names that were written with a table, the number of a student, or a time."""
    rng = np.random.default_rng(0)
    spent = np.where(rng.random(300) < 0.3, 0.0, np.exp(3.0 + 2.0 * rng.normal(size=300)))
    frame = {
        "rownames": np.arange(1, 301),
        "shop": np.repeat(np.arange(10), 30),
        "visitor": 1000 + 7 * np.arange(300),
        "grade": np.arange(300) / 300,
        "age": rng.integers(18, 1900, 300),
        "spent": spent,
    }
    inferred = hs.Schema.infer(frame, task="shop", reward="spent")
    assert set(inferred.action) == {"grade", "age"}
    assert inferred.ignore == ("rownames", "visitor")
    reviews = {each.name: each for each in inferred.review.columns}
    assert reviews["rownames"].summary == "1 to 300"
    assert "an index or a time, left out" in reviews["visitor"].notes
    assert "their logarithm may serve better" in reviews["spent"].notes
    assert not reviews["shop"].notes
    steady = hs.Schema.infer(frame | {"spent": np.sqrt(spent)}, task="shop", reward="spent")
    assert not steady.review.columns[-1].notes
    # Where the user says that it is a field, it is one.
    told = hs.Schema.infer(frame, task="shop", reward="spent", context=["visitor"])
    assert told.context == {"visitor": hs.number(missing=False)}


def test_a_schema_is_inferred_with_a_review():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "user": rng.integers(0, 9, 200),
            "id": [f"item {at % 50}" for at in range(200)],
            "price": [None, *rng.gamma(2.0, size=199)],
            "stock": rng.integers(0, 2, 200),
            "level": rng.integers(1, 5, 200),
            "brand": rng.choice(["x", "y"], 200),
            "maker": [f"maker {at % 40}" for at in range(200)],
            "title": [f"title {at}" for at in range(200)],
            "nothing": None,
            "mixed": ["a", 1] * 100,
            "look": [[1.0, 2.0]] * 200,
            "device": rng.choice(["phone", "desktop"], 200),
            "reward": rng.random(200),
            "sales": np.exp(3.0 * rng.normal(size=200)),
        }
    )
    expected = hs.Schema(
        context={"device": hs.category("desktop", "phone")},
        action={
            "price": hs.number(),
            "stock": hs.boolean(missing=False),
            "level": hs.number(missing=False),
            "brand": hs.category("x", "y"),
            "maker": hs.category(buckets=64),
            "look": hs.vector(2),
            "sales": hs.number(missing=False),
        },
        crosses=(),
        identity=True,
        ignore=["title", "nothing", "mixed"],
    )
    named = {"task": "user", "reward": "reward", "context": ["device"]}
    inferred = hs.Schema.infer(frame, **named)
    assert inferred == expected
    text = str(inferred.review)
    for word in (
        "200 rows",
        "identity=True",
        "free text",
        "1 missing",
        "hashed",
        "mixed",
        "logarithm",
    ):
        assert word in text
    as_dicts = [
        {name: value for name, value in row.items() if name != "nothing"}
        for row in frame.to_dict("records")
    ]
    again = hs.Schema.infer(polars.DataFrame(frame.drop(columns="mixed")), **named)
    assert again.action == expected.action
    assert hs.Schema.infer(as_dicts, **named).action == expected.action
    assert "not crossed" in text  # with 75 columns of actions
    narrow = hs.Schema.infer(frame, **named, ignore=["maker", "look"])
    assert (
        narrow.crosses
        == hs.Schema(context=narrow.context, action=narrow.action, crosses="all").crosses
    )
    bandit = hs.Bandit(narrow, seed=0).fit(frame, task="user", reward="reward")
    assert len(bandit) == 9


@pytest.mark.parametrize(
    ("frame", "settings", "words"),
    [
        (3, {}, "frame"),
        ({"a": []}, {}, "row"),
        ({"a": 3.0, "b": [1]}, {}, "column 'a' must be a list"),
        (pandas.DataFrame({"id": [1.5]}), {"ignore": ["id"]}, "distinguishes actions"),
        ({"a": [1, 2]}, {"id": "product"}, "id must be a column of the table .*'product'"),
        ({"a": [np.array(1.0)] * 3}, {"context": ["a"]}, "distinguishes actions"),
        ({"a": "text"}, {}, "column 'a' must be a list"),
        (pandas.DataFrame({"id": [], "a": []}), {}, "row"),
        ({"a": [1, 2], "b": [1]}, {}, "one length"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), {}, "distinct"),
        ({"a": [1, 2]}, {"task": "user"}, "'user'"),
        ({"a": [1, 2]}, {"context": "a"}, "context"),
        ({"a": [1, 2]}, {"context": ["a"]}, "distinguishes actions"),
    ],
)
def test_a_table_that_tells_nothing_is_refused(frame, settings, words):
    with pytest.raises(hs.InputError, match=words):
        hs.Schema.infer(frame, **settings)


def nested(depth=100_000):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class TestHostileSchemas:
    """What cannot be meant is refused by name, in any file and in any row."""

    SCHEMA = hs.Schema(
        context={"shop": hs.category(buckets=3)},
        action={"kind": hs.category("a", "b"), "price": hs.number(), "place": hs.vector(2)},
        crosses=(),
    )

    @pytest.mark.parametrize(
        "change",
        [
            {"action": {"price": {"type": []}}},
            {"action": {"price": {"type": {}}}},
            {"action": {"price": {"type": "category", "values": [[1], {}]}}},
            {"action": {"price": {"type": "category", "values": {"a": 1}}}},
            {"action": {"price": {"type": "category", "values": "abc"}}},
            {"action": {"price": {"type": "category", "values": 0, "buckets": 3}}},
            {"action": {"price": {"type": "category", "values": [10**1200, 1]}}},
            {"action": {"price": {"type": "category", "values": ["\ud800"]}}},
            {"action": {"\ud800": {"type": "number"}}},
            {"action": {"price": {"type": "vector", "length": 2**70}}},
            {"crosses": [[["price"], "kind"]]},
            {"crosses": [[{}, None]]},
            {"ignore": [[1]]},
            {1: 2, "other": 3},
        ],
    )
    def test_parts_that_cannot_be(self, change):
        with pytest.raises(
            hs.InputError, match=r"schema|category|crosses|name|vector|length|ignore"
        ):
            hs.Schema.from_dict(self.SCHEMA.to_dict() | change)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\0", b"\xff"])
    def test_text_that_is_no_schema(self, text):
        with pytest.raises(hs.InputError, match="schema"):
            hs.Schema.from_json(text)

    @pytest.mark.parametrize("path", ["a\0b", "a\ud800", b"a", 3, None])
    def test_paths_that_cannot_be(self, path):
        with pytest.raises(hs.InputError, match="path"):
            hs.Schema.from_file(path)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
    def test_files_that_are_no_files_are_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        for path in (tmp_path / "fifo", tmp_path, tmp_path / "nothing"):
            with pytest.raises(hs.FileError, match="schema"):
                hs.Schema.from_file(path)

    @pytest.mark.parametrize(
        "value",
        [nested(), {1}, 10**5000, float("inf"), b"a", (1, (2,))],
        ids=range(6),
    )
    def test_values_that_cannot_be(self, value):
        task = hs.Bandit(self.SCHEMA, seed=0).task("a")
        row = {"kind": "a", "price": 1.0, "place": [1.0, 2.0]}
        for wrong in ({"price": value}, {"place": value}, {"id": value}):
            with pytest.raises(hs.InputError, match=r"price|place|id"):
                task.choose([row | wrong], context={"shop": "x"})
        for context in (value, {"shop": value}):
            with pytest.raises(hs.InputError, match="context"):
                task.choose([row], context=context)
        task.choose([row | {"place": [1.0, 2.0]}], context={"shop": "x"})
        for actions in ([value], value, [polars.DataFrame({"a": [1.0]})]):
            with pytest.raises(hs.InputError, match="action"):
                task.choose(actions, context={"shop": "x"})

    def test_arrays_without_axes_are_no_lists(self):
        price = {"price": hs.number()}
        for settings_of in (
            {"ignore": np.array(1.0)},
            {"crosses": np.array(1.0)},
            {"crosses": [np.ma.masked]},
        ):
            with pytest.raises(hs.InputError, match=r"ignore|crosses"):
                hs.Schema(action=price, **settings_of)
        task = hs.Bandit(hs.Schema(action=price), seed=0).task("a")
        rows = [{"id": 1, "price": 1.0}, {"id": 2, "price": 2.0}]
        for exclude in (np.ma.masked, np.array(1), [([1],)]):
            with pytest.raises(hs.InputError, match="exclude"):
                task.choose(rows, exclude)

    def test_thousands_of_fields_take_no_time(self):
        action = {f"x{number}": {"type": "number"} for number in range(20_000)}
        start = time.perf_counter()
        with pytest.warns(UserWarning, match="40,000 columns"):
            schema = hs.Schema.from_dict({"headstart_schema": 1, "action": action})
        assert schema.width == 40_000
        assert time.perf_counter() - start < 4.0


def test_a_list_of_values_is_refused_with_the_call_that_is_meant():
    for values in (["a", "b"], ("a", "b"), np.array(["a", "b"])):
        with pytest.raises(hs.InputError, match=r"one by one, category\('a', 'b'\)"):
            hs.category(values)
    with pytest.raises(hs.InputError, match="a Schema or a transformer; got a dict"):
        hs.Bandit({"price": hs.number()})


def test_errors_say_what_is_wrong_with_a_vector():
    encoder = Encoder(hs.Schema(action={"look": hs.vector(3)}))
    for value, found in (
        ([1.0, 2.0], "got 2 numbers"),
        ([1.0, np.nan, 2.0], r"got nan at index \(1,\)"),
        ([1.0, None, 2.0], r"got None at index \(1,\)"),
        ("text", "got 'text'"),
    ):
        with pytest.raises(hs.InputError, match=f"vector of 3 finite numbers; {found}"):
            encoder.encode(None, [{"look": value}])


def test_vectors_may_be_missing_in_columns_of_arrays():
    schema = hs.Schema(action={"look": hs.vector(2, missing=True)})
    column = polars.Series("look", [[1.0, 2.0], None], dtype=polars.Array(polars.Float64, 2))
    table = Encoder(schema).encode(None, polars.DataFrame([column])).table
    np.testing.assert_array_equal(table, [[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"action": {"brand": hs.category(*map(str, range(2000)))}}, "2,001 of them for 'brand'"),
        (
            {
                "context": {"city": hs.category(buckets=64)},
                "action": {"brand": hs.category(buckets=64)},
                "crosses": "all",
            },
            "4,225 of them for 'city × brand'",
        ),
    ],
)
def test_schemas_of_many_columns_warn(fields, name):
    with pytest.warns(UserWarning, match=name):
        hs.Schema(**fields)


def test_numbers_that_are_written_as_text_are_noted():
    rows = {"id": list(range(60)), "price": [f"{n / 7:.3f}" for n in range(60)]}
    rows["zip"] = [f"{n % 25:05}" for n in range(60)]
    rows["stock"] = list(range(60))
    notes = {each.name: each.notes for each in hs.Schema.infer(rows).review.columns}
    assert (
        notes["price"]
        == notes["zip"]
        == ("numbers written as text: convert them for number(), unless they are codes")
    )


def test_whole_numbers_that_may_be_ids_are_noted():
    rng = np.random.default_rng(0)
    rows = {
        "teacher": rng.integers(1, 400, 3000),
        "age": rng.integers(18, 90, 3000),
        "stock": np.rint(rng.lognormal(5.0, 1.0, 3000)),
        "weight": rng.integers(1, 400, 3000) / 10.0,
    }
    notes = {each.name: each.notes for each in hs.Schema.infer(rows).review.columns}
    assert notes.pop("teacher").startswith("many whole numbers: a category")
    assert not any(notes.values())


@pytest.mark.parametrize(
    ("values", "field", "note"),
    [
        ([["red", "blue"]] * 3, None, "not used"),  # tags, as many for every product
        ([[]] * 3, None, "not used"),
        ([[[1, 2], [3, 4]]] * 3, None, "not used"),
        ([[1.0, 2.0], [1.0, float("nan")], [3.0, 4.0]], None, "not all of finite numbers"),
        ([(1, 2), (3, 4), None], hs.vector(2, missing=True), ""),
        ([Decimal("1.50"), Decimal("2.25"), Decimal("NaN")], hs.number(), ""),
        ([pandas.Timestamp("2024-05-01 12:00")] * 3, None, "such as the hour or an age"),
        ([datetime.date(2024, 5, 1)] * 3, None, "such as the hour or an age"),
        ([1.0, 2.5, float("inf")], hs.number(missing=False), "infinite in 1 rows"),
        (["a", "b", "\ud800"], None, "not valid Unicode"),
    ],
)
def test_only_fields_that_take_the_values_are_inferred(values, field, note):
    rows = {"x": values, "y": [1.0, 2.0, 3.5]}
    schema = hs.Schema.infer(rows)
    assert schema.action.get("x") == field
    assert note in schema.review.columns[0].notes
    if field is not None and not note:
        assert np.isfinite(Encoder(schema).encode(None, rows).table).all()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (hs.number(), [1.0, 2.0, 3.0]),
        (hs.number(), [1, 2, 3]),
        (hs.boolean(), [True, False, True]),
        (hs.category("a", "b"), ["a", "b", "a"]),
    ],
)
def test_masked_values_of_columns_are_missing(field, values):
    task = hs.Bandit(hs.Schema(action={"x": field}), seed=0).task("it")
    masked = np.ma.array(values, mask=[False, True, False])
    expected = task.encode(actions={"x": [values[0], None, values[2]]}).table
    np.testing.assert_array_equal(task.encode(actions={"x": masked}).table, expected)
    strict = hs.Bandit(hs.Schema(action={"x": hs.number(missing=False)}), seed=0).task("it")
    if isinstance(field, type(hs.number())):
        with pytest.raises(hs.InputError, match="row 1: field 'x'"):
            strict.encode(actions={"x": masked})


def test_vectors_with_masked_numbers_are_refused():
    task = hs.Bandit(hs.Schema(action={"x": hs.vector(2)}), seed=0).task("it")
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    with pytest.raises(hs.InputError, match="masked"):
        task.encode(actions={"x": masked})
