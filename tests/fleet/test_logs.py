"""Logs: the same rows from any format, split, order and place; bad rows and files are told of."""

import datetime
import gzip
import io
import itertools
import os
import pickle
import tempfile
import typing

import fsspec
import fsspec.implementations.memory
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.errors import FileError, InputError, MissingFileError
from headstart.fleet import Columns, Logs, check, fit
from headstart.fleet.reading import logs
from headstart.fleet.reading.formats import lines
from headstart.fleet.summing.checkpoint import Checkpoint
from headstart.fleet.summing.summary import ReadSummary
from headstart.transfer import Independent

FORMATS = ["parquet", "csv", "csv.gz", "jsonl", "jsonl.gz", "jsonl.zst", "arrow", "arrows"]
FORMATS += ["feather"]
PLAIN = Columns("task", "reward", "x*")

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# The same rows, however they are written


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_rows(form, logbook, tmp_path):
    content = logbook.table(rows=50)
    path = logbook.write(tmp_path / f"log.{form}", content, group=7)
    assert logbook.read(Logs(path, PLAIN)) == logbook.wanted(content)


@given(st.data())
@quick
def test_any_split_order_and_mix_of_formats_gives_the_same_rows(logbook, data):
    content = logbook.table(rows=data.draw(st.integers(1, 40)), seed=data.draw(st.integers(0, 99)))
    order = data.draw(st.permutations(range(len(content))))
    count = data.draw(st.integers(1, 4))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), min_size=count, max_size=count)))
    with tempfile.TemporaryDirectory() as folder:
        for number, (start, stop) in enumerate(itertools.pairwise([0, *cuts, len(content)])):
            form = data.draw(st.sampled_from(FORMATS))
            names = data.draw(st.permutations(content.column_names))
            piece = content.take(pa.array(list(order)[start:stop], pa.int64())).select(names)
            if len(piece):
                logbook.write(f"{folder}/{number}.{form}", piece, data.draw(st.integers(1, 9)))
        assert logbook.read(Logs(folder, PLAIN)) == logbook.wanted(content)


@given(size=st.integers(1, 400), rows=st.integers(1, 30), windows=st.booleans())
@quick
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_ranges_of_bytes_lose_and_repeat_no_line(logbook, form, size, rows, windows):
    content = logbook.table(rows=rows)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = logbook.write(f"{folder}/log.{form}", content)
        if windows:
            with open(path, "rb") as file:
                text = file.read().replace(b"\n", b"\r\n").removesuffix(b"\r\n")
            with open(path, "wb") as file:
                file.write(b"\xef\xbb\xbf" + text)
        patch.setattr(lines, "RANGE", max(size, 120))
        found = Logs(path, PLAIN)
        assert len(found.parts()) == max(1, -(-os.path.getsize(path) // max(size, 120)))
        assert logbook.read(found) == logbook.wanted(content)


def test_large_row_groups_are_read_in_batches(logbook, tmp_path, monkeypatch):
    content = logbook.table(rows=500)
    path = logbook.write(tmp_path / "log.parquet", content, group=300)
    monkeypatch.setattr(logs, "BLOCK_ROWS", 64)
    found = Logs(path, PLAIN)
    sizes = [rows.count for part in found.parts() for rows in found.read(part)]
    assert sum(sizes) == 500
    assert max(sizes) <= 1024
    assert logbook.read(found) == logbook.wanted(content)


def test_many_rows_are_several_parts_with_keys_of_their_own(logbook, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "ROWS", 20)
    content = logbook.table(rows=100)
    for form in ("parquet", "arrow"):
        logbook.write(tmp_path / f"log.{form}", content, group=10)
    found = Logs(str(tmp_path), PLAIN)
    parts = found.parts()
    assert [part.rows for part in parts] == [20] * 10
    assert len({part.key for part in parts}) == 10
    assert [part.key for part in Logs(str(tmp_path), PLAIN).parts()] == [p.key for p in parts]
    assert sum(part.bytes for part in parts) == pytest.approx(sum(f.size for f in found.files), 0.1)
    before = parts[0].key
    logbook.write(tmp_path / "log.arrow", content.slice(1))
    assert Logs(str(tmp_path), PLAIN).parts()[0].key != before


def test_logs_and_parts_travel_to_other_processes(logbook, tmp_path):
    content = logbook.table()
    found = Logs(logbook.write(tmp_path / "log.parquet", content), PLAIN)
    found.parts()
    copy = pickle.loads(pickle.dumps(found))
    assert "survey" not in vars(copy)
    logbook.write(tmp_path / "more.parquet", content.slice(1))
    many = Logs(str(tmp_path), PLAIN)
    assert len(pickle.loads(pickle.dumps(many)).files) == 1  # a worker needs no list of files
    assert copy.feature_names == found.feature_names
    part = pickle.loads(pickle.dumps(found.parts()[0]))
    (rows,) = copy.read(part)
    assert rows.count == 12
    assert "log.parquet" in repr(copy)


def test_single_precision_stays_and_is_exact(logbook, tmp_path):
    for kind in (np.float32, np.float64):
        content = logbook.table(rows=5000, kind=kind)
        rows = logbook.one_block(logbook.write(tmp_path / "log.parquet", content))
        assert rows.features.dtype == kind
        assert rows.features.flags.writeable
        stacked = np.stack([content[f"x{j}"].to_numpy() for j in range(3)], axis=1)
        np.testing.assert_array_equal(rows.features, stacked)
        assert rows.rewards.dtype == np.float64
        assert rows.codes.dtype == np.int32


def test_whole_numbers_too_large_for_single_precision_become_double(logbook, tmp_path):
    content = pa.table({"task": [1], "reward": [1], "x1": [2**24 + 1], "x2": [True]})
    rows = logbook.one_block(logbook.write(tmp_path / "log.parquet", content))
    assert rows.features.tolist() == [[2**24 + 1, 1.0]]
    assert rows.features.dtype == np.float64


def test_rows_are_the_same_without_numba(logbook, tmp_path, monkeypatch):
    from headstart.fleet.reading import arrays

    content = logbook.table(rows=20_000, kind=np.float32)
    path = logbook.write(tmp_path / "log.parquet", content)
    fast = logbook.one_block(path)
    plain = arrays.transpose_strip
    monkeypatch.setattr(arrays.TRANSPOSE_STRIP, "form", lambda *_, **__: plain)
    np.testing.assert_array_equal(logbook.one_block(path).features, fast.features)


# Features in lists


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("fixed", [True, False])
def test_features_may_be_lists(form, fixed, logbook, tmp_path):
    kind = pa.list_(pa.float32(), 3) if fixed else pa.list_(pa.float64())
    vectors = pa.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], kind)
    content = pa.table({"task": ["a", "b", "a"], "reward": [1, 2, 3], "v": vectors})
    path = logbook.write(tmp_path / f"log.{form}", content, group=2)
    found = Logs(path, Columns("task", "reward", "v"))
    assert found.feature_names == ("v[0]", "v[1]", "v[2]")
    assert found.dim == 3
    assert logbook.read(found) == [("a", 1, 1, 2, 3), ("a", 3, 7, 8, 9), ("b", 2, 4, 5, 6)]


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_lists_of_another_width_are_bad_rows(form, logbook, tmp_path):
    vectors = pa.array(
        [[1, 2], [4, 5, 6], None, [1, None], [float("inf"), 1], [3, 4]], pa.list_(pa.float64())
    )
    if form == "jsonl":
        vectors = pa.array([[1, 2], [4, 5, 6], None, [1, None], [1, 1], [3, 4]])
    content = pa.table({"task": ["a"] * 6, "reward": range(6), "v": vectors})
    path = logbook.write(tmp_path / f"log.{form}", content.take([5, 0, 2, 3, 4]))
    rows = logbook.one_block(path, Columns("task", "reward", "v"), on_bad_rows="skip")
    path = logbook.write(tmp_path / f"log.{form}", content)
    columns = Columns("task", "reward", "v")
    good = [[3, 4], [1, 2]] + ([[1, 1]] if form == "jsonl" else [])
    assert rows.features.tolist() == good
    assert rows.bad.reasons["features v is missing"] == 1
    assert rows.bad.reasons["features v has a number missing"] == 1
    found = Logs(path, columns, on_bad_rows="skip")
    assert found.dim == 2  # as most rows have
    (rows,) = found.read(found.parts()[0])
    assert rows.bad.reasons["features v has not 2 numbers"] == 1


def test_fixed_lists_with_a_missing_one(logbook, tmp_path):
    vectors = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2))
    content = pa.table({"task": [1, 2, 3], "reward": [1, 2, 3], "v": vectors})
    for form in ("parquet", "arrow"):
        path = logbook.write(tmp_path / f"log.{form}", content)
        rows = logbook.one_block(path, Columns("task", "reward", "v"), on_bad_rows="skip")
        assert rows.features.tolist() == [[1, 2], [3, 4]]
        assert rows.names == ["1", "3"]


def test_lists_must_have_a_width(logbook, tmp_path):
    content = pa.table(
        {"task": [1], "reward": [1.0], "v": pa.array([None], pa.list_(pa.float64()))}
    )
    path = logbook.write(tmp_path / "log.parquet", content)
    with pytest.raises(InputError, match="no row of column 'v' has any"):
        Logs(path, Columns("task", "reward", "v"))


def test_lists_of_different_widths_in_files_are_refused(logbook, tmp_path):
    for name, width in (("a", 2), ("b", 3)):
        vectors = pa.array([[1.0] * width], pa.list_(pa.float32(), width))
        content = pa.table({"task": [1], "reward": [1.0], "v": vectors})
        logbook.write(tmp_path / f"{name}.parquet", content)
    found = Logs(str(tmp_path), Columns("task", "reward", "v"))
    with pytest.raises(InputError, match=r"lists of 2 numbers, as in .*a\.parquet.*have 3"):
        found.parts()


# Tasks


def ids(logbook, tmp_path, values, name="log.parquet"):
    count = len(values)
    content = pa.table({"task": values, "reward": [0.0] * count, "x": range(count)})
    rows = logbook.one_block(logbook.write(tmp_path / name, content))
    return [rows.names[code] for code in rows.codes]


@pytest.mark.parametrize(
    "values",
    [
        [7, 3, 7],
        [-5, 2**62, -(2**62)],
        [2**40 + 1, 2**40],
        [-3, -2, 5],
        [-(2**63), 2**63 - 1, -(2**63) + 1],
        [-(2**63), -(2**63) + 1],
    ],
)
def test_whole_number_ids_become_digits(values, logbook, tmp_path):
    assert ids(logbook, tmp_path, values) == [str(value) for value in values]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**64 - 1, 0, 5], pa.uint64()),
        pa.array([2**64 - 1, 2**64 - 2], pa.uint64()),
        pa.array([200, 3], pa.uint8()),
        pa.array(["b", "a", "ß", "b"]),
        pa.array(["b", "a"], pa.large_string()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([0, 1, 2], ["a", "b", "a"]),
        pa.DictionaryArray.from_arrays([0, 1, 1], pa.array([30, 20])),
    ],
)
def test_ids_of_every_type(values, logbook, tmp_path):
    expected = [str(value) for value in values.to_pylist()]
    assert ids(logbook, tmp_path, values, "log.arrow") == expected
    assert ids(logbook, tmp_path, values, "log.parquet") == expected


def test_numbers_and_text_are_the_same_ids_and_it_is_said(logbook, tmp_path):
    plain = {"reward": [1.0, 2.0], "x1": [1.0, 2.0]}
    logbook.write(tmp_path / "a.parquet", pa.table({"task": [7, 8], **plain}))
    logbook.write(tmp_path / "b.parquet", pa.table({"task": ["7", "9"], **plain}))
    logbook.write(tmp_path / "c.csv", pa.table({"task": [7, 8], **plain}))
    found = Logs(str(tmp_path), PLAIN)
    assert sorted(row[0] for row in logbook.read(found)) == ["7", "7", "7", "8", "8", "9"]
    (note,) = found.notes
    assert note.startswith("task ids are text in ")
    assert "7 and '7' are the same task" in note
    assert "a.parquet" in note
    assert "b.parquet" in note


def test_white_space_is_no_part_of_an_id(logbook, tmp_path):
    plain = {"reward": [1.0, 2.0], "x1": [1.0, 2.0]}
    logbook.write(tmp_path / "a.parquet", pa.table({"task": [7, 8], **plain}))
    logbook.write(tmp_path / "b.parquet", pa.table({"task": [" 7 ", "7\t"], **plain}))
    (tmp_path / "c.csv").write_text("task,reward,x1\n 7 ,1,2\n  ,1,2\n")
    found = Logs(str(tmp_path), PLAIN, on_bad_rows="skip")
    assert [row[0] for row in logbook.read(found)] == ["7", "7", "7", "7", "8"]
    assert sum(b.bad.count for part in found.parts() for b in found.read(part)) == 1
    for notes in (check(found).notes, fit(found, Independent()).notes):
        assert any("white space around task ids is removed, as in ' 7 '" in note for note in notes)


def test_ids_with_and_without_a_fraction_are_told_of(logbook, tmp_path):
    plain = {"reward": [1.0, 2.0], "x1": [1.0, 2.0]}
    logbook.write(tmp_path / "a.parquet", pa.table({"task": [1, 8], **plain}))
    found = Logs(str(tmp_path), PLAIN)
    assert not any("7.0 and 7" in note for note in check(found).notes)
    logbook.write(tmp_path / "b.parquet", pa.table({"task": ["1.0", "b"], **plain}))
    found = Logs(str(tmp_path), PLAIN)
    assert sorted(row[0] for row in logbook.read(found)) == ["1", "1.0", "8", "b"]
    for notes in (check(found).notes, fit(found, Independent()).notes):
        (note,) = [note for note in notes if "such as '1.0' are there" in note]
        assert "7.0 and 7 are different tasks" in note


def test_fractions_are_no_ids(logbook, tmp_path):
    content = pa.table({"task": [7.0, 8.0], "reward": [1.0, 2.0], "x": [1.0, 2.0]})
    for form in ("parquet", "jsonl", "csv"):
        text = pa.table({**{n: content[n] for n in ("reward", "x")}, "task": ["7.0", "8.0"]})
        path = logbook.write(tmp_path / f"log.{form}", text if form == "csv" else content)
        with pytest.raises(InputError, match=r"is 7\.0 the task 7"):
            Logs(path, PLAIN)


def test_json_ids_may_be_mixed_in_one_file(logbook, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"task": 7, "reward": 1, "x": 1}\n{"task": "7", "reward": 2, "x": 1}\n'
        '{"task": 7.5, "reward": 2, "x": 1}\n{"task": true, "reward": 2, "x": 1}\n'
        '{"task": 99999999999999999999, "reward": 3, "x": 1}\n'
    )
    rows = logbook.one_block(tmp_path / "log.jsonl", on_bad_rows="skip")
    assert rows.names == ["7", "99999999999999999999"]
    assert rows.codes.tolist() == [0, 0, 1]
    assert rows.bad.reasons == {"task is not text or a whole number": 2}


def test_ids_in_csv_stay_as_they_are_written(logbook, tmp_path):
    (tmp_path / "log.csv").write_text("task,reward,x\n007,1,1\nNA,2,1\n7,3,1\n")
    assert logbook.one_block(tmp_path / "log.csv").names == ["007", "NA", "7"]


# What else may be logged


TIMES = [
    pa.array([0, 1], pa.timestamp("s")),
    pa.array([0, 1000], pa.timestamp("ms")),
    pa.array([0, 10**6], pa.timestamp("us")),
    pa.array([0, 10**9 + 1], pa.timestamp("ns")),
    pa.array([0, 10**6], pa.timestamp("us", tz="Europe/Berlin")),
    pa.array([0, 1000], pa.duration("ms")),
    pa.array(["1970-01-01T00:00:00", "1970-01-01 00:00:01"]),
    pa.array(["1970-01-01T00:00:00Z", "1970-01-01T01:00:01+01:00"]),
    pa.array([0.0, 1.0], pa.float64()),
    pa.array([0, 10**6], pa.int64()),
    pa.array([0, 10**6], pa.uint64()),
    pa.array([0, 10**6], pa.uint32()),
]


@pytest.mark.parametrize("times", TIMES, ids=lambda times: str(times.type))
def test_times_of_all_kinds_become_microseconds(times, logbook, tmp_path):
    content = pa.table({"task": ["a", "b"], "reward": [1, 2], "x": [1.0, 2.0], "when": times})
    columns = Columns("task", "reward", "x", timestamp="when")
    rows = logbook.one_block(logbook.write(tmp_path / "log.arrow", content), columns)
    assert rows.timestamps.tolist() == [0, 10**6]
    assert rows.timestamps.dtype == np.int64


def test_dates_become_microseconds(logbook, tmp_path):
    columns = Columns("task", "reward", "x", timestamp="when")
    plain = {"task": ["a"], "reward": [1], "x": [1.0]}
    for kind in (pa.date32(), pa.date64()):
        content = pa.table({**plain, "when": pa.array([datetime.date(1970, 1, 2)], kind)})
        for form in ("parquet", "csv", "jsonl"):
            path = logbook.write(tmp_path / f"log.{form}", content)
            assert logbook.one_block(path, columns).timestamps.tolist() == [86_400_000_000]


def test_what_is_no_time_is_a_bad_row(logbook, tmp_path):
    columns = Columns("task", "reward", "x", timestamp="when")
    plain = {"task": ["a", "b", "c", "d"], "reward": [1] * 4, "x": [1.0] * 4}
    cases = {
        "text": (["1970-01-01", "yesterday", "", None], {"is not a time": 1, "is missing": 2}),
        "real": ([1.0, float("nan"), None, 1e300], {"is not finite": 2, "is missing": 1}),
        "whole": (pa.array([1, 2**63, None, 3], pa.uint64()), {"is too large": 1, "is missing": 1}),
    }
    for name, (when, expected) in cases.items():
        path = logbook.write(tmp_path / f"{name}.parquet", pa.table({**plain, "when": when}))
        rows = logbook.one_block(path, columns, on_bad_rows="skip")
        assert rows.bad.reasons == {f"timestamp {key}": n for key, n in expected.items()}


def test_times_must_be_of_one_kind(logbook, tmp_path):
    plain = {"task": ["a"], "reward": [1], "x": [1.0]}
    logbook.write(tmp_path / "a.parquet", pa.table({**plain, "when": [5]}))
    when = pa.array([5], pa.timestamp("s"))
    logbook.write(tmp_path / "b.parquet", pa.table({**plain, "when": when}))
    found = Logs(str(tmp_path), Columns("task", "reward", "x", timestamp="when"))
    with pytest.raises(InputError, match=r"it has whole numbers in .*a.parquet.* and times in"):
        found.parts()


def offers(**changes):
    plain = {
        "task": ["a", "a", "b", "b"],
        "reward": [1.0, None, None, 0.5],
        "x": [1.0, 2.0, 3.0, 4.0],
        "turn": [1, 1, 1, 1],
        "shown": [True, False, False, True],
        "chance": [0.25, 0.75, None, 0.5],
    }
    return pa.table({**plain, **changes})


OFFERS = Columns("task", "reward", "x", round="turn", chosen="shown", propensity="chance")


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_all_arms_on_offer_may_be_logged(form, logbook, tmp_path):
    rows = logbook.one_block(logbook.write(tmp_path / f"log.{form}", offers()), OFFERS)
    np.testing.assert_array_equal(rows.rewards, [1.0, np.nan, np.nan, 0.5])
    np.testing.assert_array_equal(rows.propensities, [0.25, 0.75, np.nan, 0.5])
    assert rows.chosen.tolist() == [True, False, False, True]
    assert rows.chosen.dtype == bool
    assert rows.rounds.tolist() == [1, 1, 1, 1]
    assert rows.chosen_rows().rewards.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("flags", [[1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0]])
def test_the_flag_may_be_a_number(form, flags, logbook, tmp_path):
    path = logbook.write(tmp_path / f"log.{form}", offers(shown=flags))
    assert logbook.one_block(path, OFFERS).chosen.tolist() == [True, False, False, True]


def test_what_was_not_chosen_may_lack_what_the_others_need(logbook, tmp_path):
    changed = offers(
        reward=[None, float("inf"), 2.0, float("nan")],
        chance=[0.0, 0.0, -0.5, 1.5],
        shown=[1, 0, 0, 2],
    )
    path = logbook.write(tmp_path / "log.parquet", changed)
    rows = logbook.one_block(path, OFFERS, on_bad_rows="skip")
    assert rows.bad.reasons == {
        "chosen is neither 0 nor 1": 1,
        "propensity is not in (0, 1]": 3,
        "reward is missing": 1,
    }
    assert rows.bad.count == 3
    assert rows.count == 1
    assert np.isnan(rows.rewards[0])


def test_rounds_have_the_same_number_in_every_file(logbook, tmp_path):
    codes = []
    for number, turns in enumerate((["p", "q", "p", "r"], ["r", "r", "q", "p"])):
        path = logbook.write(tmp_path / f"{number}.parquet", offers(turn=turns))
        codes.append(dict(zip(turns, logbook.one_block(path, OFFERS).rounds.tolist(), strict=True)))
    assert codes[0] == codes[1]
    assert len(set(codes[0].values())) == 3
    for turns in (["7", "-8", "07", "7"], pa.array(["7", "-8", "07", "7"]).dictionary_encode()):
        path = logbook.write(tmp_path / "log.arrow", offers(turn=turns))
        found = logbook.one_block(path, OFFERS).rounds.tolist()
        assert found[:2] == [7, -8]
        assert found[2] not in (7, -8)
    for turns in (pa.array([1, 2, 1, 2], pa.timestamp("s")), [0.5, 1.5, 0.5, 1.5]):
        found = logbook.one_block(
            logbook.write(tmp_path / "log.parquet", offers(turn=turns)), OFFERS
        )
        assert found.rounds[0] == found.rounds[2] != found.rounds[1]


def test_rows_without_weight_are_left_out_and_counted(logbook, tmp_path):
    columns = Columns("task", "reward", "x", weight="w")
    plain = {"task": list("abcde"), "reward": [1] * 5, "x": [1.0] * 5}
    weights = [1.0, 0.0, 2.5, None, -1.0]
    path = logbook.write(tmp_path / "log.parquet", pa.table({**plain, "w": weights}))
    rows = logbook.one_block(path, columns, on_bad_rows="skip")
    assert rows.names == ["a", "c"]
    assert rows.weights.tolist() == [1.0, 2.5]
    assert rows.weightless == 1
    assert rows.bad.reasons == {"weight is missing": 1, "weight is negative": 1}


# Bad rows


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_bad_rows_are_all_told_of_at_once(form, logbook, tmp_path):
    content = pa.table(
        {
            "task": ["a", None, "", "d", "e" * 1001, "f", "g"],
            "reward": [1.0, 2.0, 3.0, None, 5.0, float("nan"), 7.0],
            "x1": pa.array([1.0, 2.0, 3.0, None, 5.0, 6.0, float("-inf")], pa.float32()),
        }
    )
    path = logbook.write(tmp_path / f"log.{form}", content, group=3)
    found = Logs(path, PLAIN)
    (part,) = found.parts()
    with pytest.raises(InputError) as caught:
        list(found.read(part))
    message = str(caught.value)
    for text in (
        "6 of the 7 rows looked at",
        "task is missing: 2 rows, such as row 1 of ",
        "reward is missing: 1 row, such as row 3 of ",
        "reward is not finite: 1 row, such as row 5 of ",
        "(nan)",
        "feature x1 is missing: 1 row",
        "feature x1 is not finite: 1 row, such as row 6 of ",
        "(-inf)",
        "task is longer than 1000 characters: 1 row, such as row 4 of ",
        "on_bad_rows='skip'",
    ):
        assert text in message
    found = Logs(path, PLAIN, on_bad_rows="skip")
    blocks = list(found.read(found.parts()[0]))
    assert sum(rows.count for rows in blocks) == 1
    assert sum(rows.bad.count for rows in blocks) == 6


def test_a_block_of_bad_rows_only_is_still_told_of(logbook, tmp_path):
    nothing = pa.array([None, None], pa.string())
    for task in (nothing, pa.nulls(2), pa.array([None, None], pa.int64())):
        content = pa.table({"task": task, "reward": [1.0, 2.0], "x": [1.0, 2.0]})
        path = logbook.write(tmp_path / "log.parquet", content)
        rows = logbook.one_block(path, on_bad_rows="skip")
        assert rows.count == 0
        assert rows.names == []
        assert rows.bad.count == 2
        assert rows.features.shape == (0, 1)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_numbers_whose_squares_overflow_are_bad_rows(form, logbook, tmp_path):
    content = pa.table(
        {
            "task": list("abcd"),
            "reward": [1.0, 2e60, 3.0, 4.0],
            "x1": [1.0, 2.0, -1e200, 1e60],
            "w": [1.0, 1.0, 1.0, 1e61],
        }
    )
    path = logbook.write(tmp_path / f"log.{form}", content)
    columns = Columns("task", "reward", "x1", weight="w")
    rows = logbook.one_block(path, columns, on_bad_rows="skip")
    assert rows.names == ["a"]
    assert rows.bad.reasons == {
        "feature x1 is too large": 1,
        "reward is too large": 1,
        "weight is too large": 1,
    }
    lists = pa.table({"task": ["a", "b"], "reward": [1.0, 2.0], "v": [[1.0, 2.0], [1e99, 2.0]]})
    path = logbook.write(tmp_path / "lists.jsonl", lists)
    rows = logbook.one_block(path, Columns("task", "reward", "v"), on_bad_rows="skip")
    assert rows.bad.reasons == {"features v is too large": 1}
    assert rows.bad.examples[0].text == "1e+99 at 0"


def test_single_precision_is_never_too_large(logbook, tmp_path):
    content = logbook.table(rows=2, kind=np.float32)
    large = pa.array([3e38, 3e38], pa.float32())
    path = logbook.write(tmp_path / "log.parquet", content.set_column(2, "x0", large))
    assert logbook.one_block(path).count == 2


def test_arms_without_a_reward_hint_at_chosen(logbook, tmp_path):
    content = offers().drop_columns(["turn", "chance"])
    found = Logs(logbook.write(tmp_path / "log.parquet", content), PLAIN)
    assert "chosen='shown' (--chosen shown)" in found.notes[0]
    with pytest.raises(InputError, match=r"name the column .*--chosen shown\)\. Repair them"):
        list(found.read(found.parts()[0]))
    said = Logs(str(tmp_path), Columns("task", "reward", "x", chosen="shown"))
    assert not said.notes


def test_ids_of_whole_numbers_may_be_missing(logbook, tmp_path):
    content = pa.table({"task": [7, None, 9], "reward": [1.0, 2.0, 3.0], "x": [1.0, 2.0, 3.0]})
    path = logbook.write(tmp_path / "log.parquet", content)
    rows = logbook.one_block(path, on_bad_rows="skip")
    assert rows.names == ["7", "9"]
    assert rows.bad.reasons == {"task is missing": 1}


def test_text_that_cannot_be_decoded_is_a_bad_row(logbook, tmp_path):
    raw = pa.array([b"good", b"\xff\xfe"], pa.binary())
    task = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    content = pa.table({"task": task, "reward": [1.0, 2.0], "x": [1.0, 2.0]})
    path = logbook.write(tmp_path / "log.arrow", content)
    rows = logbook.one_block(path, on_bad_rows="skip")
    assert rows.names == ["good"]
    assert rows.bad.reasons == {"task is not valid text": 1}


def test_cells_of_csv_that_are_no_numbers_are_bad_rows(logbook, tmp_path):
    (tmp_path / "log.csv").write_text(
        "task,reward,x,w,extra\na,1,1,1,hello\nb,oops,2,1,\nc,,3,1,\nd,4,inf,1,\n"
        "e,5\nf,6, 7.5 ,1,\n\ng,7,8,heavy,\n,8,9,1,\n"
    )
    columns = Columns("task", "reward", "x", weight="w")
    rows = logbook.one_block(tmp_path / "log.csv", columns, on_bad_rows="skip")
    assert rows.names == ["a", "f"]
    assert rows.features.tolist() == [[1.0], [7.5]]
    assert rows.bad.reasons == {
        "feature x is not finite": 1,
        "reward is missing": 1,
        "reward is not a number": 1,
        "row has another number of cells than the header": 1,
        "task is missing": 1,
        "weight is not a number": 1,
    }
    places = {one.reason: (one.row, one.text) for one in rows.bad.examples}
    assert places["reward is not a number"] == (1, "'oops'")
    assert places["row has another number of cells than the header"] == (4, "2 for 5: 'e,5'")
    assert places["weight is not a number"] == (6, "'heavy'")
    assert places["task is missing"][0] == 7


def test_flags_of_csv_that_are_neither_are_bad_rows(logbook, tmp_path):
    (tmp_path / "log.csv").write_text("task,reward,x,c\na,1,1,true\nb,2,2,maybe\nc,3,3,0\nd,1,2,\n")
    columns = Columns("task", "reward", "x", chosen="c")
    rows = logbook.one_block(tmp_path / "log.csv", columns, on_bad_rows="skip")
    assert rows.chosen.tolist() == [True, False]
    assert rows.bad.reasons == {"chosen is missing": 1, "chosen is not true or false": 1}


@pytest.mark.parametrize("mark", ["\t", ";", "|"])
def test_csv_may_be_separated_by_other_marks(mark, logbook, tmp_path):
    text = 'task,reward,"x",note\n"a,1",1,2,"two\nlines"\nb,3,4,\n'
    path = tmp_path / "log.csv"
    path.write_text(text.replace('"a,1"', "a").replace(",", mark))
    assert logbook.read(Logs(str(path), PLAIN)) == [("a", 1, 2), ("b", 3, 4)]
    path.write_text(text)
    assert logbook.read(Logs(str(path), PLAIN)) == [("a,1", 1, 2), ("b", 3, 4)]


def test_lines_of_json_that_are_no_objects_are_bad_rows(logbook, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"task": "a", "reward": 1, "x": 1, "when": 5}\n[1]\n{"task": "b", "reward"\n\n'
        '{"task": "c", "reward": "high", "x": 1, "when": 5}\n{"task": "d", "x": 1, "when": 6}\n'
        '{"task": "e", "reward": NaN, "x": 1, "when": 7}\n'
        '{"task": "f", "reward": true, "x": 1, "when": 7}\n'
        '{"task": "g", "reward": 1, "x": 1, "when": "soon"}\n'
        f'{{"task": "h", "reward": 1{"0" * 400}, "x": 1, "when": 8}}\n'
    )
    columns = Columns("task", "reward", "x", timestamp="when")
    rows = logbook.one_block(tmp_path / "log.jsonl", columns, on_bad_rows="skip")
    assert rows.names == ["a", "f"]
    assert rows.bad.count == 7
    assert rows.bad.reasons == {
        "line is not a JSON object": 2,
        "reward is missing": 1,
        "reward is not a number": 2,
        "reward is not finite": 1,
        "timestamp is not a time": 1,
    }
    assert {one.row for one in rows.bad.examples} == {1, 2, 3, 4, 5, 7, 8}


# Files that cannot be read


def test_columns_that_differ_between_files_are_refused(logbook, tmp_path):
    logbook.write(tmp_path / "a.parquet", logbook.table(dim=3))
    logbook.write(tmp_path / "b.parquet", logbook.table(dim=4))
    with pytest.raises(InputError, match=r"same 3 columns.*b\.parquet.* are 4 \('x3' too many"):
        Logs(str(tmp_path), PLAIN).parts()
    logbook.write(tmp_path / "b.parquet", logbook.table(dim=2))
    with pytest.raises(InputError, match="'x2' missing"):
        Logs(str(tmp_path), PLAIN).parts()
    logbook.write(
        tmp_path / "b.parquet", logbook.table().rename_columns(["user", "reward", *"abc"])
    )
    with pytest.raises(InputError, match=r"task must name a column of .*b\.parquet"):
        Logs(str(tmp_path), PLAIN).parts()
    mixed = logbook.table().set_column(1, "reward", pa.array(["1"] * 12))
    logbook.write(tmp_path / "b.parquet", mixed)
    with pytest.raises(InputError, match=r"reward must be numbers.*b\.parquet.* has type string"):
        Logs(str(tmp_path), PLAIN).parts()
    lists = pa.table({"task": ["a"], "reward": [1.0], "x": [[1.0, 2.0]]})
    logbook.write(tmp_path / "b.parquet", lists)
    with pytest.raises(InputError, match="must be lists in every file or in none"):
        Logs(str(tmp_path), PLAIN).parts()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_columns_of_text_are_refused_as_numbers(form, logbook, tmp_path):
    content = logbook.table().set_column(3, "x1", pa.array(["red", "green", "blue"] * 4))
    path = logbook.write(tmp_path / f"log.{form}", content)
    with pytest.raises(
        InputError, match=r"features must be numbers; column 'x1' .* has type string"
    ):
        Logs(path, PLAIN)


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv.gz", "jsonl.zst"])
def test_truncated_files_are_named(form, logbook, tmp_path):
    path = logbook.write(tmp_path / f"log.{form}", logbook.table(rows=5000))
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(FileError, match=r"log\..* is truncated, damaged or not .*copy it again"):
        logbook.read(Logs(path, PLAIN, on_bad_rows="skip"))


def test_damaged_pages_are_named(logbook, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(logbook.table(rows=5000), path, compression="zstd")
    found = Logs(str(path), PLAIN)
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"\xff" * 2000)
    with pytest.raises(FileError, match="was changed while the logs were being read"):
        list(found.read(found.parts()[0]))
    found = Logs(str(path), PLAIN)
    with pytest.raises(FileError, match=r"log\.parquet' is truncated, damaged or not Parquet"):
        list(found.read(found.parts()[0]))
    path.unlink()
    with pytest.raises(MissingFileError, match="is gone"):
        list(found.read(found.parts()[0]))


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv.gz"])
def test_foreign_files_are_named(form, tmp_path):
    (tmp_path / f"log.{form}").write_bytes(b"this is no log at all\n" * 10)
    with pytest.raises(FileError, match="is truncated, damaged or not"):
        Logs(str(tmp_path), PLAIN)


def test_csv_must_be_utf8(tmp_path):
    (tmp_path / "log.csv").write_bytes("task,reward,x\ngrün,1,2\n".encode("latin-1"))
    found = Logs(str(tmp_path), PLAIN)
    with pytest.raises(InputError, match=r"log\.csv' is not UTF-8 text \(b'gr\\xfcn,1,2'\): save"):
        list(found.read(found.parts()[0]))


def test_empty_files_are_noted_and_empty_logs_refused(logbook, tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="paths must have rows"):
        Logs(str(tmp_path), PLAIN)
    (tmp_path / "c.csv").write_text("task,reward,x0,x1,x2\n")
    logbook.write(tmp_path / "d.parquet", logbook.table())
    logbook.write(tmp_path / "e.parquet", logbook.table().slice(0, 0))
    logbook.write(tmp_path / "f.arrow", logbook.table().slice(0, 0))
    found = Logs(str(tmp_path), PLAIN)
    assert logbook.read(found) == logbook.wanted(logbook.table())
    assert len(found.notes) == 2
    assert all("is empty" in note for note in found.notes)
    (tmp_path / "d.parquet").write_bytes(b"")
    with pytest.raises(FileError, match=r"d\.parquet' is truncated"):
        Logs(str(tmp_path), PLAIN).parts()


def test_endless_lines_are_refused(logbook, tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text("task,reward,x\n" + "a" * 2_500_000 + ",1,2\nb,1,2\n")
    monkeypatch.setattr(lines, "RANGE", 1 << 19)
    with pytest.raises(InputError, match=r"a line of '.*log.csv' is longer than"):
        logbook.read(Logs(str(path), PLAIN, on_bad_rows="skip"))


# Where files are


def test_globs_folders_and_lists(logbook, tmp_path):
    (tmp_path / "day=1" / "deep").mkdir(parents=True)
    (tmp_path / "_temporary").mkdir()
    for name in ("day=1/a.parquet", "day=1/deep/b.csv", "c.pq.parquet"):
        logbook.write(tmp_path / name, logbook.table())
    for name in ("_SUCCESS", ".hidden.csv", "notes.txt", "_temporary/x.csv", "day=1/_metadata"):
        (tmp_path / name).write_text("nothing")
    count = lambda paths, **more: len(Logs(paths, PLAIN, **more).files)  # noqa: E731
    assert count(str(tmp_path)) == 3
    assert count(tmp_path) == 3
    assert count(str(tmp_path / "*.parquet")) == 1
    assert count(str(tmp_path / "**" / "*.parquet")) == 2
    assert count(str(tmp_path / "day=[0-9]" / "a.*")) == 1
    assert count([str(tmp_path / "day=1"), str(tmp_path / "day=1" / "a.parquet")]) == 2
    assert count(f"file://{tmp_path}/day=1/a.parquet") == 1
    assert count(f"file://{tmp_path}/**/*.parquet") == 2


HIDDEN = (
    "_temporary/x.csv",
    ".hidden/x.csv",
    "a/_temporary/0/x.csv",
    "_x.csv",
    ".x.csv",
    "a/.x.csv",
)


@pytest.mark.parametrize("store", ["", "memory://bucket/"])
def test_globs_and_folders_leave_out_the_same_names(store, logbook, tmp_path, memory):
    content = logbook.table()
    for name in ("x.csv", "a/x.csv", *HIDDEN):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        path = logbook.write(tmp_path / name, content)
        memory.put_file(path, f"/bucket/{name}")
    place = store or f"{tmp_path}/"
    for paths, count in (
        (place, 2),
        (f"{place}**/*.csv", 2),
        (f"{place}*.csv", 1),
        (f"{place}*/*.csv", 1),
        (f"{place}_temporary/*.csv", 1),  # spelled out
        (f"{place}_temporary", 1),
        (f"{place}**/_temporary/*.csv", 1),
        (f"{place}_x.csv", 1),
    ):
        assert len(Logs(paths, PLAIN).files) == count, paths
    with pytest.raises(MissingFileError, match="no file matches"):
        Logs(f"{place}a/?x.csv", PLAIN)


def test_names_in_this_folder_follow_the_same_rule(logbook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.csv", "_x.csv"):
        logbook.write(tmp_path / name, logbook.table())
    for paths, names in (
        (".", ["./x.csv"]),
        ("*.csv", ["x.csv"]),
        ("./*.csv", ["./x.csv"]),
        ("_*.csv", ["_x.csv"]),
        ("_x.csv", ["_x.csv"]),
    ):
        assert [file.path for file in Logs(paths, PLAIN).files] == names


def test_folders_may_hold_columns(logbook, tmp_path):
    """As Hive and Spark write them, in every format."""
    content = logbook.table(rows=6).drop_columns(["task"])
    for user, form in (("7", "parquet"), ("007", "csv"), ("ann%20b", "jsonl"), ("7", "arrow")):
        folder = tmp_path / f"user={user}" / f"day=2024-05-0{len(user)}"
        folder.mkdir(parents=True, exist_ok=True)
        logbook.write(folder / f"log.{form}", content)
    found = Logs(str(tmp_path), Columns("user", "reward", "x*", timestamp="day"))
    rows = [rows for part in found.parts() for rows in found.read(part)]
    assert sorted(name for block in rows for name in block.names) == ["007", "7", "7", "ann b"]
    first = {block.names[0]: int(block.timestamps[0]) for block in rows}
    assert first["7"] == 1714521600000000
    assert first["007"] - first["7"] == 2 * 86_400_000_000
    assert found.feature_names == ("x0", "x1", "x2")


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_rows_in_a_folder_without_a_value_are_missing_it(form, logbook, tmp_path):
    """As Spark writes rows that have none; a schema may know what to do with it."""
    content = logbook.table(rows=6)
    for day in ("2", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"day={day}").mkdir()
        logbook.write(tmp_path / f"day={day}" / f"log.{form}", content)
    for columns, reason in (
        (Columns("day", "reward", "x*"), "task is missing"),
        (Columns("task", "reward", "day"), "feature day is missing"),
    ):
        found = check(Logs(str(tmp_path), columns))
        assert (found.rows, found.bad.reasons) == (6, {reason: 6})
        with pytest.raises(InputError, match=f"(?s)6 of the 6 rows.*{reason}"):
            fit(Logs(str(tmp_path), columns))
    schema = hs.Schema(action={"day": hs.category(buckets=4)})
    logs = Logs(str(tmp_path), Columns("task", "reward", schema=schema))
    assert check(logs).rows == 12


def test_links_to_one_file_are_read_once(logbook, tmp_path):
    path = logbook.write(tmp_path / "a.parquet", logbook.table())
    (tmp_path / "b.parquet").symlink_to("a.parquet")
    os.link(path, tmp_path / "c.parquet")
    found = Logs([str(tmp_path), f"{tmp_path}/./a.parquet"], PLAIN)
    assert logbook.read(found) == logbook.wanted(logbook.table())
    (note,) = found.notes
    assert note.startswith("3 files are there under several names (")
    assert note.endswith("a.parquet'): each is read once")
    logbook.write(tmp_path / "d.parquet", logbook.table())  # a copy is another file
    assert len(Logs(str(tmp_path), PLAIN).files) == 2


def test_the_format_may_be_said(logbook, tmp_path):
    os.rename(logbook.write(tmp_path / "a.parquet", logbook.table()), tmp_path / "log")
    with pytest.raises(InputError, match="format must be said"):
        Logs(str(tmp_path / "log"), PLAIN)
    found = Logs(str(tmp_path / "log"), PLAIN, format="parquet")
    assert logbook.read(found) == logbook.wanted(logbook.table())


def test_paths_that_lead_nowhere_are_refused(tmp_path):
    for path, message in (
        ("missing.parquet", "nothing is at"),
        ("*.parquet", "no file matches"),
        ("", "the folder .* has no file that ends in"),
    ):
        with pytest.raises(MissingFileError, match=message):
            Logs(str(tmp_path / path) if path else str(tmp_path), PLAIN)
    with pytest.raises(MissingFileError, match="is empty"):
        Logs(str(tmp_path), PLAIN, format="csv")
    (tmp_path / "folder").mkdir()
    (in_bytes,) = os.scandir(os.fsencode(tmp_path))
    for paths in ([], "", [7], None, {"a": 1}, "a\0b", "a\ud800", in_bytes):
        with pytest.raises(InputError, match="paths must be"):
            Logs(paths, PLAIN)


def test_wrong_options_are_refused(logbook, tmp_path):
    path = logbook.write(tmp_path / "log.parquet", logbook.table())
    with pytest.raises(InputError, match="on_bad_rows must be one of 'error', 'skip'; got 'drop'"):
        Logs(path, PLAIN, on_bad_rows="drop")
    with pytest.raises(InputError, match="format must be one of 'parquet'"):
        Logs(path, PLAIN, format="excel")
    with pytest.raises(InputError, match=r"columns must be headstart.fleet.Columns; got 'x'"):
        Logs(path, "x")
    (tmp_path / "log.parquet.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(InputError, match="must be unpacked first"):
        Logs(f"{path}.gz", PLAIN)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


@pytest.mark.parametrize("form", FORMATS)
def test_urls_are_read_through_fsspec(form, logbook, tmp_path, memory):
    content = logbook.table(rows=30)
    path = logbook.write(tmp_path / f"log.{form}", content, group=7)
    memory.put_file(path, f"/bucket/one.{form}")
    memory.put_file(path, f"/bucket/deep/two.{form}")
    once = logbook.wanted(content)
    assert logbook.read(Logs(f"memory://bucket/one.{form}", PLAIN)) == once
    assert logbook.read(Logs(f"memory://bucket/*.{form}", PLAIN)) == once
    assert logbook.read(Logs("memory://bucket", PLAIN)) == sorted(once * 2)
    assert logbook.read(Logs("memory://bucket/", PLAIN)) == sorted(once * 2)
    keys = [part.key for part in Logs("memory://bucket/", PLAIN).parts()]
    assert len(set(keys)) == len(keys)


def test_urls_that_lead_nowhere_are_refused(memory):
    memory.pipe("/bucket/readme.txt", b"")
    for url, message in (
        ("memory://nothing/log.csv", "nothing is at 'memory://nothing/log.csv'"),
        ("memory://nothing/*.csv", "no file matches"),
        ("memory://bucket", "has no file that ends in"),
    ):
        with pytest.raises(MissingFileError, match=message):
            Logs(url, PLAIN)
    with pytest.raises(InputError, match="cannot be opened"):
        Logs("nosuchstore://bucket/log.csv", PLAIN)


class Odd(fsspec.implementations.memory.MemoryFileSystem):
    """A store that tells no times, and fails as it is told to."""

    protocol = "odd"
    store: typing.ClassVar = {}
    fails: typing.ClassVar = {}

    def __init__(self, address=None):
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("odd://", "memory://"))

    def unstrip_protocol(self, name):
        return f"odd:/{name}"

    def info(self, path, **options):
        if "info" in self.fails:
            raise self.fails["info"]
        return {**super().info(path, **options), "created": None}

    def find(self, path, **options):
        found = super().find(path, **options)
        return {name: {"name": name, "type": "file", "size": None} for name in found}

    def _open(self, path, **options):
        if "open" in self.fails:
            raise self.fails["open"]
        file = super()._open(path, **options)
        if "read" in self.fails:
            file = io.BytesIO(file.getvalue())
            file = Broken(file, self.fails["read"])
        return file


class Broken:
    """A file whose end can be read, and nothing else."""

    def __init__(self, file, error):
        self.file, self.error = file, error

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read(self, size=-1):
        if self.file.tell() < 1000:
            raise self.error
        return self.file.read(size)


@pytest.fixture
def odd(logbook, tmp_path):
    fsspec.register_implementation("odd", Odd, clobber=True)
    path = logbook.write(tmp_path / "log.parquet", logbook.table(rows=5000))
    Odd().put_file(path, "/bucket/log.parquet")
    yield Odd.fails
    Odd.store.clear()
    Odd.fails.clear()


class NoCredentialsError(Exception):
    """As botocore calls it."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(111, "Connection refused"), r"reached \(Connection refused\)"),
        (NoCredentialsError("Unable to locate credentials"), r"--storage anon=true"),
        (ValueError("no range requests here"), "put simplecache:: before the URL"),
        (RuntimeError("a\nb"), r"\(a\)"),
        (PermissionError(13, "Forbidden"), "Forbidden"),
    ],
)
def test_errors_of_a_store_are_one_line_with_its_url(error, message, logbook, odd):
    url = "odd://bucket/log.parquet"
    for moment in ("info", "open", "read"):
        odd.clear()
        odd[moment] = error
        with pytest.raises(FileError, match=message) as caught:
            logbook.read(Logs(url, PLAIN))
        assert url in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_error_in_place_of_nothing_is_told(odd):
    hidden = FileNotFoundError("odd://bucket/log.parquet")
    hidden.__cause__ = ConnectionError("Cannot connect to host")
    odd["info"] = hidden
    with pytest.raises(FileError, match="Cannot connect to host"):
        Logs("odd://bucket/log.parquet", PLAIN)
    odd["info"] = FileNotFoundError("The specified bucket does not exist")
    with pytest.raises(MissingFileError, match=r"the bucket of 'odd://bucket.*' does not exist"):
        Logs("odd://bucket/log.parquet", PLAIN)


def test_wrong_options_of_a_store_are_told(odd):
    with pytest.raises(InputError, match=r"cannot be opened.*are these its options\? adress"):
        Logs("odd://bucket/log.parquet", PLAIN, storage={"adress": "here"})


def test_a_store_without_its_package_is_told_at_once(monkeypatch):
    def nothing(*args, **options):
        raise ImportError("Install gcsfs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", nothing)
    with pytest.raises(InputError, match=r"needs another package \(Install gcsfs\); got 'gs://"):
        Logs("gs://bucket/log.parquet", PLAIN, storage={"an_option_of_fsspec": True})


def test_files_of_which_no_time_is_known_are_never_taken_for_unchanged(odd, tmp_path):
    for url in ("odd://bucket/log.parquet", "odd://bucket", "odd://bucket/*.parquet"):
        found = Logs(url, PLAIN)
        (file,) = found.files
        assert file.size > 1000
        assert file.changed == ""
        assert "nothing tells whether 'odd://bucket/log.parquet' has changed" in found.notes[0]
    kept = Checkpoint(tmp_path / "kept", found, found.parts())
    summary = ReadSummary(rows=5000, parts=[part.key for part in found.parts()])
    kept.write_entry([], summary, {})
    assert not Checkpoint(tmp_path / "kept", found, found.parts()).summary.parts


def test_files_of_which_a_time_is_known_have_it_in_their_key(logbook, tmp_path, memory):
    path = logbook.write(tmp_path / "log.parquet", logbook.table())
    for url in ("memory://bucket", "memory://bucket/log.parquet", "memory://bucket/*"):
        keys = []
        for _ in range(2):
            memory.put_file(path, "/bucket/log.parquet")
            keys += [part.key for part in Logs(url, PLAIN).parts()] * 2
        assert len(set(keys)) == 2


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_file_behind_a_url_that_changes_is_noticed(form, logbook, tmp_path, memory, monkeypatch):
    monkeypatch.setattr(logs, "BLOCK_ROWS", 1)
    path = logbook.write(tmp_path / f"log.{form}", logbook.table(rows=3000))
    url = f"memory://bucket/log.{form}"
    for paths in (url, "memory://bucket"):
        memory.put_file(path, f"/bucket/log.{form}")
        found = Logs(paths, PLAIN)
        (part,) = found.parts()
        assert sum(rows.count for rows in found.read(part)) == 3000
        reading = found.read(part)
        next(reading)
        memory.put_file(path, f"/bucket/log.{form}")  # the same bytes, later
        with pytest.raises(FileError, match="was changed while the logs were being read"):
            list(reading)
        with pytest.raises(FileError, match="was changed while the logs were being read"):
            list(found.read(part))
        memory.rm(f"/bucket/log.{form}")
        with pytest.raises(MissingFileError, match=f"log.{form}' is gone"):
            list(found.read(part))


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize(
    "span", [(-100, 100), (100, 127), (2**31 - 5, 2**31 + 5), (2**62, 2**63 - 2)]
)
def test_whole_numbers_of_any_width_are_ids(tmp_path, logbook, kind, span):
    low, high = (int(np.clip(end, np.iinfo(kind).min, np.iinfo(kind).max)) for end in span)
    values = np.random.default_rng(0).integers(low, high, 50, dtype=kind, endpoint=True)
    table = logbook.table(50).set_column(0, "task", [pa.array(values)])
    block = logbook.one_block(logbook.write(tmp_path / "log.parquet", table))
    assert [block.names[code] for code in block.codes] == [str(value) for value in values]
    assert len(set(block.names)) == len(block.names)
