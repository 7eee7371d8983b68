"""Blocks of rows, and the account of bad ones: both can be taken apart and added up."""

import functools
import operator
import pickle

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headstart.fleet import BadRows, Rows
from headstart.fleet.reading.rows import EXAMPLES, Example


def block():
    return Rows(
        codes=np.array([0, 1, 2, 1], dtype=np.int32),
        ids=pa.array(["a", "b", "c"]),
        rewards=np.array([1.0, np.nan, 3.0, 4.0]),
        features=np.arange(8.0).reshape(4, 2),
        chosen=np.array([True, False, True, True]),
    )


def test_taking_rows_keeps_only_the_names_they_need():
    taken = block().take(np.array([True, False, False, True]))
    assert taken.names == ["a", "b"]
    assert taken.codes.tolist() == [0, 1]
    assert taken.rewards.tolist() == [1.0, 4.0]
    assert taken.features.tolist() == [[0, 1], [6, 7]]
    assert taken.codes.dtype == np.int32
    assert taken.features.flags.c_contiguous
    assert taken.weights is None
    assert taken.count == 2
    assert block().take(np.array([2])).names == ["c"]
    assert block().take(np.zeros(4, dtype=bool)).names == []


def test_only_what_was_shown_is_evidence():
    assert block().chosen_rows().rewards.tolist() == [1.0, 3.0, 4.0]
    everything = block()._replace(chosen=None)
    assert everything.chosen_rows() is everything


def account(numbers):
    """The account of a file in which these rows have no reward."""
    examples = [Example("f", number, "reward is missing", "null") for number in numbers]
    return BadRows(len(numbers), {"reward is missing": len(numbers)}, examples[:EXAMPLES])


@given(st.lists(st.lists(st.integers(0, 99), max_size=4, unique=True), max_size=6), st.randoms())
def test_accounts_add_up_in_any_order(groups, random):
    accounts = [account(sorted(group)) for group in groups]
    total = sum(accounts, BadRows())
    random.shuffle(accounts)
    assert functools.reduce(operator.add, accounts, BadRows()) == total
    assert total.count == sum(map(len, groups))
    assert len(total.examples) <= EXAMPLES
    assert [one.row for one in total.examples] == sorted({n for g in groups for n in g})[:EXAMPLES]


def test_an_account_tells_what_is_wrong():
    total = account([7]) + BadRows(
        2, {"x is missing": 2}, [Example("g", 3, "x is missing", "null")]
    )
    assert str(total).splitlines() == [
        "x is missing: 2 rows, such as row 3 of g (null)",
        "reward is missing: 1 row, such as row 7 of f (null)",
    ]
    assert total
    assert not BadRows()
    assert (total + total).count == 6
    assert pickle.loads(pickle.dumps(total)) == total
