"""Columns by name, pattern or list, found in a schema or refused with a hint."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart.errors import InputError
from headstart.fleet import Columns
from headstart.fleet.reading.columns import natural
from headstart.fleet.reading.hashing import hash_ids

NUMBER = pa.float64()


def schema(**more):
    plain = {"task": pa.string(), "reward": NUMBER, "x10": NUMBER, "x2": NUMBER, "x1": NUMBER}
    return pa.schema(list({**plain, **more}.items()))


def resolve(features="x*", given=None, **more):
    columns = Columns("task", "reward", features, **(given or {}))
    return columns.resolve(schema(**more), "'log.parquet'")


def test_a_pattern_takes_columns_in_natural_order():
    assert resolve().features == ("x1", "x2", "x10")


def test_a_pattern_leaves_out_columns_that_are_something_else():
    assert resolve("*").features == ("x1", "x2", "x10")
    assert resolve("x*", {"weight": "x2"}).features == ("x1", "x10")


def test_names_keep_their_order():
    assert resolve("x10, x1").features == ("x10", "x1")
    assert resolve(("x2", "x1")).features == ("x2", "x1")
    assert resolve(["x2", "x1"]).features == ("x2", "x1")
    assert resolve("price,x1*", price=NUMBER).features == ("price", "x1", "x10")


def test_what_is_named_twice_is_refused():
    for features in ("x1,x1", ("x2", "x1", "x2"), "x*,x*"):
        with pytest.raises(InputError, match=r"every column once; got 'x.?\*?' twice"):
            resolve(features)
    assert resolve("x10,x*").features == ("x10", "x1", "x2")


def test_a_name_that_is_also_a_pattern_is_refused():
    with pytest.raises(InputError, match=r"'x\*' is a column .* \(x10, x2, x1\): rename"):
        resolve(**{"x*": NUMBER})
    assert resolve("v*", **{"v*": NUMBER}).features == ("v*",)


def test_a_name_with_a_comma_is_found():
    assert resolve("a,b", **{"a,b": NUMBER}).features == ("a,b",)


def test_a_list_column_gives_its_width_where_it_is_known():
    found = resolve("v", v=pa.list_(pa.float32(), 4))
    assert found.listed
    assert found.width == 4
    found = resolve("v", v=pa.list_(pa.float32()))
    assert found.listed
    assert found.width is None
    assert not resolve().listed


def test_used_columns_are_read_once():
    found = resolve("x1", {"round": "when", "timestamp": "when"}, when=pa.int64())
    assert found.used == ["task", "reward", "when", "x1"]
    assert found.kind("round") == pa.int64()


def test_columns_travel_and_print():
    columns = Columns("task", "reward", "x*", weight="w")
    assert pickle.loads(pickle.dumps(columns)) == columns
    assert repr(columns) == "Columns(task='task', reward='reward', features='x*', weight='w')"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("task", "reward", ()), "features must be names"),
        (("task", "reward", ("x", 3)), "features must be names"),
        (("task", "reward", "  "), "features must be names"),
        (("", "reward", "x"), "task must be the name of a column"),
        ((None, "reward", "x"), "task must be the name of a column; got None"),
        (("task", 7, "x"), "reward must be the name of a column; got 7"),
        (("task", "task", "x"), "must be different columns; got 'task' twice"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Columns(*arguments)


def test_a_missing_column_is_refused_with_a_hint():
    with pytest.raises(InputError, match=r"reward must name a column of 'a'; got 'rewrd' \(did yo"):
        Columns("task", "rewrd", "x*").resolve(schema(), "'a'")
    with pytest.raises(InputError, match=r"no column matches 'z\*'"):
        resolve("z*")
    with pytest.raises(InputError, match=r"features must name a column .*did you mean 'x1'"):
        resolve("x1,xx1")
    with pytest.raises(InputError, match=r"weight must name a column of 'log.parquet'"):
        resolve(given={"weight": "w"})


@pytest.mark.parametrize(
    ("role", "kind", "message"),
    [
        ("task", pa.float64(), r"is 7\.0 the task 7.*column 'task' of 'log.parquet' has type doub"),
        ("task", pa.timestamp("s"), "task must be text or whole numbers"),
        ("task", pa.list_(pa.string()), "task must be text or whole numbers"),
        (
            "reward",
            pa.string(),
            "reward must be numbers; column 'reward' .* has type string: write two outcomes, such "
            "as yes and no, as 1 and 0",
        ),
        ("x1", pa.string(), "features must be numbers; column 'x1' .* has type string"),
        ("x1", pa.list_(NUMBER), "one column of lists, or several of numbers"),
        ("weight", pa.string(), "weight must be numbers"),
        ("propensity", pa.binary(), "propensity must be numbers"),
        ("chosen", pa.string(), "chosen must be true and false, or 1 and 0"),
        ("round", pa.list_(NUMBER), "round must be text, numbers or times"),
        ("timestamp", pa.time32("s"), "must have a day, not only a time of day"),
        ("timestamp", pa.bool_(), "timestamp must be times, dates or numbers"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(role, kind, message):
    given = {} if role in ("task", "reward", "x1") else {role: role}
    with pytest.raises(InputError, match=message):
        resolve(given=given, **{role: kind})


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.large_string(),
        pa.string_view(),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.int64()),
    ],
)
def test_ids_may_be_any_kind_of_text_or_whole_number(kind):
    assert resolve(task=kind).kind("task") == kind


def test_the_reward_is_no_feature():
    with pytest.raises(InputError, match="features must not have the reward among them"):
        resolve("x1,reward")
    assert resolve("x1,when", {"timestamp": "when"}, when=pa.int64()).features == ("x1", "when")


def test_the_names_of_folders_give_columns_that_are_named():
    folders = {"day": "2024-05-01", "user": "7", "x3": "2.5"}
    found = Columns("user", "reward", "x*", timestamp="day").resolve(schema(), "'a'", folders)
    assert found.partitions == {"user": "7", "day": "2024-05-01"}  # no pattern means a folder
    assert found.kind("task") == found.kind("timestamp") == pa.string()
    assert found.used == ["reward", "x1", "x2", "x10"]
    named = Columns("task", "reward", ("x1", "x3")).resolve(schema(), "'a'", folders)
    assert named.partitions == {"x3": "2.5"}
    with pytest.raises(
        InputError, match="user must be a number; the folder of 'a' is called user=ann"
    ):
        Columns("task", "reward", "x1,user").resolve(schema(), "'a'", {"user": "ann"})


def test_two_columns_of_one_name_are_refused():
    twice = pa.schema([("task", pa.string()), ("reward", NUMBER), ("x1", NUMBER), ("x1", NUMBER)])
    with pytest.raises(InputError, match="'a' has 2 columns called 'x1'"):
        Columns("task", "reward", "x1").resolve(twice, "'a'")


def test_natural_order():
    names = ["x10", "x2", "x", "x2y10", "x2y9", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "x", "x2", "x2y9", "x2y10", "x10"]


@given(
    st.lists(st.text(max_size=30).filter(lambda text: text.isprintable()), max_size=40),
    st.integers(0, 40),
)
@example(["a", "a\0", "", "ä" * 9, "12345678", "123456789"], 1)
def test_ids_have_hashes_of_their_own(ids, start):
    """Compared with the same hash of one id at a time, written as a loop over its bytes."""
    found = hash_ids(pa.array(ids, pa.string()))
    assert found.tolist() == [looped_hash(text.encode()) for text in ids]
    assert len(set(found.tolist())) == len(set(ids))
    seeded = hash_ids(pa.array(ids, pa.string()), seed=3).tolist()
    assert seeded == [looped_hash(text.encode(), seed=3) for text in ids]
    sliced = pa.array(ids, pa.string())[start:]  # an array may begin anywhere in its buffers
    assert hash_ids(sliced).tolist() == found[start:].tolist()


def looped_hash(text, seed=0, bits=2**64):
    def mix(key):
        key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % bits
        key = (key ^ (key >> 27)) * 0x94D049BB133111EB % bits
        return key ^ (key >> 31)

    key = mix((len(text) + mix(seed + 0x9E3779B97F4A7C15)) % bits)
    for at in range(0, len(text), 8):
        key = mix(key ^ int.from_bytes(text[at : at + 8].ljust(8, b"\0"), "little"))
    return key


def test_no_pattern_means_a_column_without_a_name():
    """An index that was written with the rows."""
    schema = pa.schema([(name, pa.float64()) for name in ("", "reward", "x")])
    schema = schema.append(pa.field("task", pa.string()))
    assert Columns("task", "reward", "*").resolve(schema, "log").features == ("x",)
