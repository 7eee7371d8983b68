"""Values of odd types are refused by name, whichever way they come in."""

import decimal
import fractions

import numpy as np
import pandas as pd
import polars as pl
import pytest

import headstart as hs

ACTIONS = [{"id": "tea", "price": 1.0}, {"id": "rum", "price": 2.0}]


def shop():
    schema = hs.Schema(action={"price": hs.number()}, id="id")
    return hs.Bandit(schema, seed=0).task("it")


def numbers_task():
    return hs.Bandit(1, seed=0).task("it")


def nested(depth=10**5):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: shop().choose(actions=[{"id": "a", "price": np.timedelta64(3, "s")}]), "price"),
        (lambda: shop().choose(actions=ACTIONS, exclude=pl.LazyFrame({"id": ["a"]})), "exclude"),
        (lambda: numbers_task().choose(pd.DataFrame({"x": [pd.DataFrame({"a": [1]})]})), "'x'"),
        (lambda: numbers_task().observe([[1.0]], [1.0], weight=5e-324), "weight"),
    ],
    ids=["span of time", "lazy frame", "frame in a frame", "tiny weight"],
)
def test_odd_values_are_refused_by_name(call, name):
    with pytest.raises(hs.InputError, match=name):
        call()


def test_deep_lists_are_refused_when_they_are_to_be_encoded():
    schema = hs.Schema.infer({"x": [nested()] * 3, "y": [1.0, 2.0, 3.5]})
    assert schema.ignore == ("x",)
    schema = hs.Schema(action={"x": hs.vector(1), "y": hs.number()})
    with pytest.raises(hs.InputError, match="'x'"):
        hs.Bandit(schema).task("it").choose(actions=[{"x": nested(), "y": 1.0}])


LAZY = pl.LazyFrame({"a": [1.0], "b": [2.0]})
FIELDS = {"a": hs.number()}, {"b": hs.number()}
TABLE = {"task": [1, 1, 2], "reward": [1.0, 2.0, 3.0], "price": [1.0, 3.0, 2.0]}


def fit(**changes):
    frame = TABLE | {name: changes.pop(name) for name in ("price", "id") if name in changes}
    bandit = hs.Bandit(1, seed=0)
    bandit.fit(**({"frame": frame, "task": "task", "reward": "reward"} | changes))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: shop().choose(actions=LAZY), "actions"),
        (lambda: shop().choose(actions={"id": ["a"], "price": LAZY}), "'price'"),
        (lambda: shop().choose(actions=[{"id": "a", "price": decimal.Decimal("snan")}]), "price"),
        (lambda: hs.Schema(action=FIELDS[0], ignore=LAZY), "ignore"),
        (lambda: hs.Schema(*FIELDS, crosses=LAZY), "crosses"),
        (lambda: hs.Schema(*FIELDS, crosses=[LAZY]), "crosses"),
        (lambda: hs.Schema(*FIELDS, crosses=[iter("ab")] * 2), "crosses"),
        (lambda: hs.Schema(*FIELDS, crosses=[np.ones((2, 3))], identity=True), "crosses"),
        (lambda: hs.Schema.infer({"a": LAZY}), "'a'"),
        *[
            (lambda name=name, odd=odd: hs.Schema.infer(TABLE, **{name: odd}), name)
            for name in ("task", "reward", "id", "context", "ignore")
            for odd in ({"cost": 1}, [["price"]], LAZY, pd.NA, 10**5000)
        ],
        *[
            (lambda name=name, odd=odd: fit(**{name: odd}), name)
            for name in ("task", "reward", "weight", "features", "price")
            for odd in ({"price": 1}, [["price"]], np.ones(2), LAZY, pd.NA)
        ],
        *[
            (lambda v=v: hs.Bandit(1).choose_many(["a", "b"], [[[1.0]], [[1.0]]], v), "exclude")
            for v in (np.array(1.0), np.ma.masked, LAZY, "ab")
        ],
        (lambda: fit(frame=pd.DataFrame(TABLE | {"price": [1, 2, 10**400]})), "'price'"),
        (lambda: hs.category(*range(2**16), 2**16 - 1), "category .* distinct"),
    ],
)
def test_what_is_no_list_and_no_name_is_refused_by_name(call, name):
    with pytest.raises(hs.InputError, match=name) as caught:
        call()
    assert len(str(caught.value)) < 400


class Doubling:
    """A transformer that makes two rows of each."""

    width = 1

    def transform(self, rows):
        return [[float(row["price"])] for row in rows for _ in range(2)]


class Prices(Doubling):
    def transform(self, rows):
        return super().transform(rows)[::2]


@pytest.mark.parametrize(
    ("transformer", "actions", "context", "reason"),
    [
        (Prices, [{"id": 1, "price": "dear"}], None, "Prices takes; .*ValueError: could not"),
        (Prices, [{"id": 1}], None, "Prices takes; .*KeyError"),
        (Prices, 7, None, "Prices takes; .* 7"),
        (Prices, pd.DataFrame([[1, 2]], columns=["id", "id"]), None, "Prices takes"),
        (Prices, LAZY, None, "Prices takes"),
        (Prices, iter([{"price": 1.0}]), {"hour": 1}, "Prices takes"),
        (Prices, [{"price": 10**400}], None, "Prices takes; .*OverflowError"),
        (Doubling, ACTIONS, None, "one row each"),
    ],
)
def test_what_a_transformer_refuses_is_refused_by_name(transformer, actions, context, reason):
    bandit = hs.Bandit(transformer(), hs.Independent(), seed=0)
    task = bandit.task("it")
    for call in (task.choose, task.predict, task.encode):
        with pytest.raises(hs.InputError, match=reason):
            call(actions=actions, context=context)
    assert hs.Bandit(Prices(), seed=0).task("it").choose(ACTIONS).action in ("tea", "rum")


def test_settings_of_numpy_types_are_written_as_plain_ones():
    fields = {
        "a": hs.number(missing=np.False_),
        "b": hs.boolean(missing=np.True_),
        "c": hs.vector(np.int64(2)),
        "d": hs.category(buckets=np.uint8(4)),
    }
    schema = hs.Schema(action=fields)
    assert hs.Schema.from_json(schema.to_json()) == schema


def test_numbers_too_large_are_not_proposed_as_a_field():
    schema = hs.Schema.infer({"x": [fractions.Fraction(10**400)] * 3, "y": [1.0, 2.0, 3.5]})
    assert list(schema.action) == ["y"]
    assert "huge number" in str(schema.review)


def test_ids_and_numbers_of_128_bits():
    """Polars has whole numbers that NumPy has not."""
    ids = [2**70, 2**70, 5, 5]
    frame = pl.DataFrame({"task": ids, "reward": [1.0, 2.0, 3.0, 4.0], "price": [2**65, 1, 2, 3]})
    assert frame["task"].dtype == frame["price"].dtype == pl.Int128
    bandit = hs.Bandit(1, hs.Independent(), seed=0)
    bandit.fit(frame, task="task", reward="reward")
    assert sorted(bandit) == ["1180591620717411303424", "5"]
    task = shop()
    table = task.encode(pl.DataFrame({"id": ["a", "b"], "price": [2**70, 1]})).table
    assert table[:, 0].tolist() == [2.0**70, 1.0]
