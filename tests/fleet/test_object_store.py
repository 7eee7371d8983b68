"""Logs in an S3-compatible object store, read by PyArrow's own file system."""

import pyarrow as pa
import pytest

import headstart as hs
from headstart.errors import FileError, MissingFileError
from headstart.fleet import Columns, Logs, check, fit
from headstart.transfer import Bias

PLAIN = Columns("task", "reward", "x*")
FORMATS = ["parquet", "csv", "csv.gz", "jsonl", "arrow"]


def put(store, path, name):
    with store.open_output_stream(f"bucket/{name}", compression=None) as target:
        target.write(path.read_bytes())


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read(form, logbook, tmp_path, store, storage):
    content = logbook.table(rows=300)
    logbook.write(tmp_path / f"log.{form}", content, group=70)
    for name in (f"logs/a.{form}", f"logs/day=1/b.{form}", f"logs/_temporary/0/c.{form}"):
        put(store, tmp_path / f"log.{form}", name)
    once = logbook.wanted(content)
    for paths, times in (
        (f"s3://bucket/logs/a.{form}", 1),
        ("s3://bucket/logs", 2),
        ("s3://bucket/logs/", 2),
        (f"s3://bucket/logs/*.{form}", 1),
        (f"s3://bucket/logs/**/*.{form}", 2),
        (f"s3a://bucket/*/*/b.{form}", 1),
    ):
        found = Logs(paths, PLAIN, storage=storage)
        assert logbook.read(found) == sorted(once * times), paths
        assert all(file.changed for file in found.files)
        assert all(file.path.startswith(paths[:12]) for file in found.files)


def test_the_commands_read_a_store(logbook, tmp_path, store, storage, headstart, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logbook.write(tmp_path / "log.parquet", logbook.table(rows=300), group=100)
    for name in "ab":
        put(store, tmp_path / "log.parquet", f"logs/{name}.parquet")
    words = ["s3://bucket/logs/*.parquet", "--task", "task", "--reward", "reward"]
    words += ["--features", "x*", *(f"--storage={key}={value}" for key, value in storage.items())]
    shown = headstart("check", *words)
    assert shown.code == 0, shown.err
    assert "600 rows of 4 tasks in 2 files" in shown.out
    assert "1 file is a copy of others ('s3://bucket/logs/b.parquet' of" in shown.out
    assert headstart("fit", *words, "--out", "prior", "--workers", "2").code == 0
    here = fit(Logs("log.parquet", PLAIN), Bias())
    there = fit(Logs("s3://bucket/logs/a.parquet", PLAIN, storage=storage), Bias())
    assert abs(here.prior.mean - there.prior.mean).max() < 1e-9
    assert hs.load("prior").report().closed_tasks == 4


def test_a_file_that_changes_is_noticed(logbook, tmp_path, store, storage):
    path = tmp_path / "log.parquet"
    logbook.write(path, logbook.table(rows=300), group=100)
    put(store, path, "log.parquet")
    found = Logs("s3://bucket/log.parquet", PLAIN, storage=storage)
    (part,) = found.parts()
    reading = found.read(part)
    next(reading)
    logbook.write(path, logbook.table(rows=290), group=100)
    put(store, path, "log.parquet")
    with pytest.raises(FileError, match="was changed while the logs were being read"):
        list(reading)
    store.delete_file("bucket/log.parquet")
    with pytest.raises(MissingFileError, match=r"'s3://bucket/log.parquet' is gone"):
        list(found.read(part))


def test_what_is_not_there_is_named(logbook, tmp_path, store, storage):
    (tmp_path / "note.txt").write_text("none")
    put(store, tmp_path / "note.txt", "logs/note.txt")
    for url, message in (
        ("s3://bucket/logs/log.parquet", "nothing is at"),
        ("s3://bucket/logs/*.parquet", "no file matches"),
        ("s3://bucket/logs", "has no file that ends in"),
        ("s3://nowhere/log.parquet", "the bucket of .* does not exist"),
        ("s3://nowhere/*.parquet", "the bucket of .* does not exist"),
    ):
        with pytest.raises(MissingFileError, match=f"{message}.*"):
            Logs(url, PLAIN, storage=storage)


def test_a_store_that_does_not_answer_is_named():
    away = {"endpoint_url": "http://127.0.0.1:9", "key": "us", "secret": "them"}
    with pytest.raises(FileError, match=r"'s3://bucket/log.csv' could not be reached \(.*onnect"):
        Logs("s3://bucket/log.csv", PLAIN, storage=away)


def test_damage_is_told_from_a_store_that_fails(logbook, tmp_path, store, storage):
    path = tmp_path / "log.parquet"
    logbook.write(path, logbook.table(rows=300))
    path.write_bytes(path.read_bytes()[:500])
    put(store, path, "log.parquet")
    with pytest.raises(FileError, match="is truncated, damaged or not Parquet"):
        Logs("s3://bucket/log.parquet", PLAIN, storage=storage)


def test_repeated_rows_in_a_store_are_told_of(logbook, tmp_path, store, storage):
    content = logbook.table(rows=100).append_column("turn", pa.array(range(100)))
    for name, rows in (("a.parquet", content), ("b.parquet", content.slice(50, 5))):
        logbook.write(tmp_path / name, rows)
        put(store, tmp_path / name, name)
    columns = Columns("task", "reward", "x*", round="turn")
    found = check(Logs("s3://bucket", columns, storage=storage))
    assert any(text.startswith("5 rows are there again") for text in found.repeated)
