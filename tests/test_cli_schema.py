"""``headstart check`` proposes a schema for a log, with the reasons, and writes it."""

import gzip
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.fleet.reading.formats import sample_log

WORDS = ("--task", "user", "--reward", "click")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    count = 400
    return pl.DataFrame(
        {
            "user": rng.integers(0, 20, count),
            "click": rng.integers(0, 2, count),
            "when": np.arange(count) + 1_700_000_000,
            "device": rng.choice(["phone", "desktop"], count),
            "price": [None if at % 9 == 0 else float(at % 50) for at in range(count)],
            "brand": [f"brand {number}" for number in rng.integers(0, 60, count)],
            "fresh": rng.integers(0, 2, count),
            "shop_id": rng.integers(1000, 1040, count),
            "title": [f"title {number}" for number in range(count)],
            "id": [f"item {number}" for number in rng.integers(0, 50, count)],
        }
    )


FIELDS = {
    "brand": hs.category(buckets=64),
    "fresh": hs.boolean(missing=False),
    "price": hs.number(),
    "shop_id": hs.number(missing=False),
}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_schema_is_inferred_from_a_log(frame, tmp_path, suffix):
    folder = tmp_path / "day=7"
    folder.mkdir()
    write = {"parquet": "write_parquet", "csv": "write_csv", "jsonl": "write_ndjson"}[suffix]
    for number, start in enumerate((0, 200)):
        getattr(frame[start : start + 200], write)(folder / f"{number}.{suffix}")
    settings = {"task": "user", "reward": "click", "context": ["device"], "ignore": ["when"]}
    schema = hs.Schema.infer(folder, **settings)
    assert schema.context == {"device": hs.category("desktop", "phone")}
    assert schema.action == FIELDS | {"day": hs.number(missing=False)}
    assert schema.identity
    assert schema.ignore == ("title", "when")
    reviews = {each.name: each for each in schema.review.columns}
    assert reviews["shop_id"].notes == "named like an id: a category with buckets, or to be ignored"
    assert "free text or an id?" in reviews["title"].notes
    assert reviews["click"].notes == 'all 0 or 1: reward="binary"'
    with_time = hs.Schema.infer(str(folder), **settings | {"ignore": []}).review
    (when,) = [each for each in with_time.columns if each.name == "when"]
    assert when.notes == "whole numbers that grow with every row: an index or a time, left out"


def test_check_prints_the_schema_and_writes_it(headstart, frame, tmp_path):
    frame.write_parquet(tmp_path / "log.parquet")
    words = (*WORDS, "--timestamp", "when", "--context", "device")
    shown = headstart("check", tmp_path / "log.parquet", *words)
    assert shown.code == 0, shown.err
    assert "400 rows of 20 tasks in 1 file" in shown.out
    assert "the proposed schema, from a sample of 400 rows" in shown.out
    assert "category('desktop', 'phone')" in shown.out
    assert "--write-schema FILE writes it" in shown.out
    path = tmp_path / "schema.json"
    shown = headstart("check", tmp_path / "log.parquet", *words, "--write-schema", path, "--json")
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    schema = hs.Schema.from_file(path)
    assert hs.Schema.from_dict(found["schema"]) == schema
    assert schema.action == FIELDS
    assert found["items"] == 50
    assert [each["role"] for each in found["review"]][:4] == [
        "task",
        "reward",
        "ignored",
        "context",
    ]
    # It can be used as it is, and is never written over.
    shown = headstart("check", tmp_path / "log.parquet", *WORDS, "--schema", path)
    assert shown.code == 0, shown.err
    before = path.read_text()
    shown = headstart("check", tmp_path / "log.parquet", *words, "--write-schema", path)
    assert shown.code == 2
    assert "exists already (--write-schema)" in shown.err
    assert path.read_text() == before


def test_values_that_are_missing_outside_the_sample_are_told(headstart, tmp_path):
    """As in a long table in which two rows have no grade, neither of them in the sample."""
    rng = np.random.default_rng(0)
    count = 40_000
    users, clicks, grades = np.arange(count) // 40, rng.normal(size=count), rng.normal(size=count)
    table = pl.DataFrame({"user": users, "click": clicks, "school grade": grades})
    path = tmp_path / "schema.json"
    table.write_csv(tmp_path / "log.csv")
    sampled = sample_log(tmp_path / "log.csv")[0]["school grade"]
    outside = np.flatnonzero(~np.isin(grades, sampled))[[0, -1]]
    is_gap = pl.Series(np.isin(np.arange(count), outside))
    gaps = table.with_columns(pl.when(~is_gap).then(pl.col("school grade")).alias("school grade"))
    gaps.write_csv(tmp_path / "log.csv")
    shown = headstart("check", tmp_path / "log.csv", *WORDS, "--write-schema", path)
    assert shown.code == 2
    assert "from a sample of 16,000 rows" in shown.out
    told = '--on-bad-rows skip. To accept missing values, set "missing" to true in the schema: '
    assert f"{told}school grade" in " ".join(shown.out.split())
    path.write_text(path.read_text().replace('"missing": false', '"missing": true'))
    assert headstart("check", tmp_path / "log.csv", *WORDS, "--schema", path).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--reward", "clicks"),
            "reward must name a column of the log; got 'clicks' (did you mean",
        ),
        (("--context", "devise"), "context must name a column of the log; got 'devise' (did you"),
        (
            ("--features", "price", "--context", "device"),
            "--context is for a proposed schema",
        ),
        (
            ("--write-schema", "nowhere/schema.json"),
            "'nowhere' is not a folder to write to (--",
        ),
    ],
)
def test_what_cannot_be_proposed_is_refused(headstart, frame, tmp_path, words, message):
    frame.write_csv(tmp_path / "log.csv")
    shown = headstart("check", tmp_path / "log.csv", *WORDS, *words)
    assert shown.code == 2
    assert message in shown.err


@pytest.fixture(scope="module")
def untidy():
    """As real files are: an index without a name, '.' for missing numbers, the reward twice."""
    rng = np.random.default_rng(0)
    count = 20_000
    brand, click = rng.choice(["x", "y", "z"], count), rng.integers(0, 2, count)
    return pl.DataFrame(
        {
            "": np.arange(count),
            "user": np.sort(rng.integers(0, 50, count)),
            "click": click,
            "bought": np.where(click == 1, "yes", "no"),
            "price": np.where(rng.random(count) < 0.02, ".", rng.integers(1, 900, count)),
            "grade": np.where(rng.random(count) < 0.02, "9+", rng.integers(1, 99, count)),
            "brand": brand,
            "maker": np.char.add("maker of ", brand),
            "month": np.arange(count) * 12 // count + 1,
        }
    )


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_what_is_untidy_is_mended_or_told(headstart, untidy, tmp_path, suffix):
    path = tmp_path / f"log.{suffix}"
    text = untidy.write_csv().encode()
    path.write_bytes(gzip.compress(text) if suffix == "csv.gz" else text)
    schema = hs.Schema.infer(path, task="user", reward="click")
    found = {each.name: each for each in schema.review.columns}
    assert found["(column 1)"].role == found["bought"].role == "ignored"
    assert "one to one with the reward" in found["bought"].notes
    assert found["price"].field == hs.number()
    assert found["grade"].notes.startswith("numbers, except '9+' in ")
    assert found["maker"].notes == "the same as brand"
    assert len(schema.review.notes) == (1 if suffix == "csv" else 2)
    shown = headstart("check", path, *WORDS, "--write-schema", tmp_path / "schema.json")
    assert "Note: cells '.', '-' and '?' are missing numbers in price." in shown.out
    table = shown.out.split("the proposed schema")[1].split("Schema(")[0]
    assert max(map(len, table.splitlines())) < 160
    assert "their columns add up to 1" in shown.out
    assert (found["month"].summary == "1 to 12") == (suffix == "csv")
    if suffix == "csv.gz":
        assert "the sample is from the beginning of the file" in shown.out
    assert schema.ignore == ("bought",)
    assert hs.Schema.from_file(tmp_path / "schema.json") == schema


@pytest.mark.parametrize("part", [500, 7_000, 25_000, 60_000])  # rows of a row group or batch
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_sample_is_spread_over_a_file_whatever_its_parts(tmp_path, part, suffix):
    path, count = tmp_path / f"log.{suffix}", 60_000
    table = pa.table({"task": np.arange(count) % 50, "time": np.arange(count)})
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=part)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=part)
    times = np.array(sample_log(path)[0]["time"])
    assert len(np.unique(times)) == len(times)
    assert 15_900 <= len(times) <= 16_100
    assert times.min() == 0
    assert times.max() > 45_000
    assert np.diff(np.sort(times)).max() < 20_000


def test_a_stream_is_sampled_from_its_first_batches(tmp_path):
    table = pa.table({"task": np.arange(60_000) % 50, "time": np.arange(60_000)})
    with pa.ipc.new_stream(tmp_path / "log.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1_000)
    columns, notes = sample_log(tmp_path / "log.arrow")
    assert columns["time"] == list(range(16_000))
    assert "the sample is from the beginning of the file" in notes[0]


def test_a_path_without_rows_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("user,click,x\n")
    with pytest.raises(hs.InputError, match="paths must have rows"):
        hs.Schema.infer(tmp_path / "empty.csv")
    with pytest.raises(hs.HeadstartError, match=r"nothing\.parquet"):
        hs.Schema.infer(tmp_path / "nothing.parquet")


def test_compare_plays_policies_on_rows_of_the_schema(headstart, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.write_csv("log.csv")
    schema = hs.Schema(
        context={"device": hs.category("phone", "desktop")},
        action={"price": hs.number(), "brand": hs.category(buckets=2)},
        crosses=[("device", "price")],
    )
    (tmp_path / "schema.json").write_text(schema.to_json())
    sizes = ("--seeds", 2, "--tasks", 3, "--rounds", 5, "--workers", 1, "--json")
    world = ("--world", "logged:table=log.csv,task=user,reward=click,arms=3")
    words = (*world, "--schema", "schema.json", *sizes, "--policy", "linucb")
    shown = headstart("compare", *words)
    assert shown.code == 0, shown.err
    assert 'schema = "schema.json"' in (tmp_path / "results/comparison/plan.toml").read_text()
    items = hs.Schema(action={"price": hs.number()}, identity=True)
    (tmp_path / "schema.json").write_text(items.to_json())
    shown = headstart("compare", *words)
    assert shown.code == 0, shown.err
    (tmp_path / "schema.json").write_text(hs.Schema(action={"prize": hs.number()}).to_json())
    assert "schema must name a column of the table; got 'prize'" in headstart("compare", *words).err
    shown = headstart("compare", "--world", "synthetic", "--schema", "schema.json", *sizes)
    assert shown.code == 2
    assert "option of synthetic must be one of" in shown.err
