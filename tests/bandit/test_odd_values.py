"""Values of odd types are refused by name, whichever way they come in."""

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
    with pytest.raises(hs.InputError, match="'x'"):
        hs.Bandit(schema).task("it").choose(actions=[{"x": nested(), "y": 1.0}])
