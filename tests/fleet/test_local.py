"""Reading logs on one machine: all cores, a budget of memory, going on after an interruption."""

import errno
import json
import os
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.errors import FileError, InputError
from headstart.fleet import Logs
from headstart.fleet.engines import threads
from headstart.fleet.reading.hashing import hash_ids
from headstart.fleet.summing import checkpoint
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.tasks import DiskTasks
from headstart.transfer.pooled_fit import pool


@pytest.fixture
def logs(tmp_path, logbook):
    """Six files of 200 rows."""
    for number in range(6):
        logbook.write(tmp_path / f"{number}.parquet", logbook.table(200, 3, 25, seed=number))
    return Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)


def gather(logs, folder=None, **options):
    """All tasks and their sums, and what was read."""
    if folder is not None:
        options["checkpoint"] = checkpoint.Checkpoint(folder, logs, logs.parts())
    with threads.gather(logs, **options) as (tasks, summary):
        found = {
            name: row
            for ids, rows in map(tasks.partition, range(len(tasks.sizes)))
            for name, row in zip(ids.to_pylist(), rows, strict=True)
        }
        assert len(found) == len(tasks)
        names = hash_ids(pa.array(list(found)))
        assert (np.diff(names.astype(object)) > 0).all()
        total = pool(tasks).pack()
        np.testing.assert_allclose(total, sum(found.values()), rtol=1e-12, atol=1e-12)
    return found, summary


def alike(left, right):
    (ours, read), (theirs, wanted) = left, right
    assert ours.keys() == theirs.keys()
    for name, row in ours.items():
        np.testing.assert_allclose(row, theirs[name], rtol=1e-12, atol=1e-12)
    assert read.rows == wanted.rows
    assert sorted(read.parts) == sorted(wanted.parts)


def test_workers_share_the_parts(logs):
    one, several = gather(logs, workers=1), gather(logs, workers=4)
    alike(one, several)
    assert one[1].rows == 1200
    assert len(one[0]) == 25


def test_progress_ends_with_everything(logs):
    told = []
    gather(logs, progress=lambda *words: told.append(words))
    assert told[0] == ("reading", 0.0, 1200.0)
    assert told[-1] == ("reading", 1200.0, 1200.0)


@pytest.mark.parametrize("folder", [None, "work"])
def test_little_memory_takes_the_disk(logs, tmp_path, folder):
    place = None if folder is None else tmp_path / folder
    alike(gather(logs, workers=2, memory=32_000, folder=place), gather(logs))
    store = None if place is None else checkpoint.Checkpoint(place, logs, logs.parts())
    with threads.gather(logs, memory=32_000, checkpoint=store) as (tasks, _):
        assert isinstance(tasks, DiskTasks)


def read_some(monkeypatch, count, error):
    """Let reading fail after so many parts."""
    read, done = Logs.read, []

    def failing(self, part, **options):
        if len(done) >= count:
            raise error
        done.append(part)
        return read(self, part, **options)

    monkeypatch.setattr(Logs, "read", failing)
    return done


@pytest.mark.parametrize("memory", [32_000, 1 << 24])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("a bad row")])
def test_what_was_interrupted_goes_on(logs, tmp_path, monkeypatch, error, memory):
    folder = tmp_path / "work"
    with monkeypatch.context() as patch:
        read_some(patch, 4, error)
        with pytest.raises(type(error)):
            gather(logs, workers=1, folder=folder, memory=memory)
    (entry,) = [json.loads(path.read_text()) for path in folder.glob("entry-*.json")]
    assert len(entry["summary"]["parts"]) == 4
    with monkeypatch.context() as patch:
        done = read_some(patch, 99, error)
        found = gather(logs, workers=2, folder=folder)
    assert len(done) == 2
    alike(found, gather(logs))


@pytest.mark.parametrize("memory", [32_000, 1 << 24])
def test_a_part_that_was_begun_goes_on_after_its_last_block(tmp_path, logbook, monkeypatch, memory):
    logbook.write(tmp_path / "0.csv.gz", logbook.table(9000, 3, 25))
    logs = Logs(str(tmp_path / "*.csv.gz"), logbook.PLAIN)
    (part,) = logs.parts()
    monkeypatch.setattr(checkpoint, "MAX_TIME_SHARE", np.inf)
    monkeypatch.setattr(checkpoint, "MIN_INTERVAL", -1.0)  # after every block
    monkeypatch.setattr(
        threads, "plan_reading", lambda dim, memory, workers: (workers, 1024, memory)
    )
    folder, counts = tmp_path / "work", []
    count = ReadSummary.count

    def failing(self, rows):
        if len(counts) == 4:
            raise KeyboardInterrupt
        counts.append(rows.count)
        count(self, rows)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(ReadSummary, "count", failing)
            counts.clear()
            with pytest.raises(KeyboardInterrupt):
                gather(logs, workers=1, folder=folder, memory=memory)
    assert checkpoint.checkpointed_rows(folder) == 8 * 1024
    found = gather(logs, folder=folder)
    assert found[1].rows == 9000
    assert found[1].parts == [part.key]
    alike(found, gather(logs))


def test_checkpoints_that_take_long_are_rare(tmp_path, logbook, monkeypatch):
    logs = Logs(logbook.write(tmp_path / "0.csv.gz", logbook.table(9000, 3, 25)), logbook.PLAIN)
    monkeypatch.setattr(checkpoint, "MIN_INTERVAL", 0.0)
    monkeypatch.setattr(
        threads, "plan_reading", lambda dim, memory, workers: (workers, 1024, memory)
    )
    begun, save = [], checkpoint.Checkpoint.save

    def slow(self, *content):
        begun.append(time.monotonic())
        time.sleep(0.3)
        save(self, *content)

    monkeypatch.setattr(checkpoint.Checkpoint, "save", slow)
    gather(logs, workers=1, folder=tmp_path / "work")
    during = begun[:-1]  # the last is written when all is read
    assert during
    assert all(np.diff(during) > 6.0)  # none follows: the nine blocks are read by then


def test_a_long_part_does_not_keep_others_waiting(tmp_path, logbook, monkeypatch):
    logbook.write(tmp_path / "0.csv.gz", logbook.table(20_000, 3, 25))
    for number in range(1, 5):
        logbook.write(tmp_path / f"{number}.csv.gz", logbook.table(200, 3, 25, seed=number))
    logs = Logs(str(tmp_path / "*.csv.gz"), logbook.PLAIN)
    monkeypatch.setattr(checkpoint, "MAX_TIME_SHARE", np.inf)
    monkeypatch.setattr(checkpoint, "MIN_INTERVAL", -1.0)
    monkeypatch.setattr(
        threads, "plan_reading", lambda dim, memory, workers: (workers, 1024, memory)
    )
    others, read = threading.Event(), threads.unread_blocks

    def slow(logs, part, rows, position):
        for number, block in enumerate(read(logs, part, rows, position)):
            if part.path.endswith("0.csv.gz") and number == 3:
                assert others.wait(20)  # until all others are read and saved
            yield block

    def finished(stage, done, total):
        if total - done <= max(part.bytes for part in logs.parts()):
            others.set()

    monkeypatch.setattr(threads, "unread_blocks", slow)
    found = gather(logs, workers=2, folder=tmp_path / "work", progress=finished)
    monkeypatch.undo()
    alike(found, gather(logs))


def test_finished_partitions_are_not_summed_again(logs, tmp_path, monkeypatch):
    folder, write, written = tmp_path / "work", threads.write_partition, []

    def failing(*given):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(given[0].name)
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(threads, "write_partition", failing)
        with pytest.raises(KeyboardInterrupt):
            gather(logs, workers=1, memory=32_000, folder=folder)
    before = list(written)
    with monkeypatch.context() as patch:
        written.clear()
        patch.setattr(
            threads,
            "write_partition",
            lambda *given: written.append(given[0].name) or write(*given),
        )
        found = gather(logs, workers=1, memory=32_000, folder=folder)
    assert len(before) == 5
    assert set(before).isdisjoint(written)
    alike(found, gather(logs))


def interrupted(logs, folder, monkeypatch):
    with monkeypatch.context() as patch:
        read_some(patch, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            gather(logs, workers=1, folder=folder)


def test_changed_files_are_named(logs, tmp_path, monkeypatch, logbook):
    interrupted(logs, tmp_path / "work", monkeypatch)
    logbook.write(tmp_path / "0.parquet", logbook.table(100, 3, 25, seed=9))
    changed = Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)
    with pytest.raises(InputError, match=r"0\.parquet' was changed.*--afresh"):
        gather(changed, folder=tmp_path / "work")


def test_changed_settings_are_named(logs, tmp_path, monkeypatch, logbook):
    interrupted(logs, tmp_path / "work", monkeypatch)
    other = Logs(str(tmp_path / "*.parquet"), logbook.PLAIN, on_bad_rows="skip")
    with pytest.raises(InputError, match="on_bad_rows was 'error' and is 'skip'"):
        gather(other, folder=tmp_path / "work")


def test_new_files_are_read_too(logs, tmp_path, monkeypatch, logbook):
    interrupted(logs, tmp_path / "work", monkeypatch)
    logbook.write(tmp_path / "9.parquet", logbook.table(50, 3, 25, seed=9))
    more = Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)
    alike(gather(more, folder=tmp_path / "work"), gather(more))


def test_a_damaged_entry_is_told(logs, tmp_path, monkeypatch):
    interrupted(logs, tmp_path / "work", monkeypatch)
    for path in (tmp_path / "work").glob("entry-*.json"):
        path.write_text("{")
    with pytest.raises(FileError, match="entry"):
        gather(logs, folder=tmp_path / "work")


def test_a_full_disk_leaves_no_file(logs, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out" / "prior.headstart"
    out.parent.mkdir()
    monkeypatch.setattr(os, "fsync", full)
    small = threads.Accumulator
    monkeypatch.setattr(threads, "Accumulator", lambda dim, memory, *rest: small(dim, 1000, *rest))
    with pytest.raises(FileError, match="No space left"):
        hs.fleet.fit(logs, out=out, checkpoint=tmp_path / "out" / "work")
    assert not list(out.parent.glob("*.headstart"))
    assert not list(out.parent.glob("work/*.arrow*"))


def test_a_truncated_file_is_told(logs, tmp_path, logbook):
    path = tmp_path / "3.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"3\.parquet"):
        gather(Logs(str(tmp_path / "*.parquet"), logbook.PLAIN))
