"""Reading logs on one machine: all cores, a budget of memory, going on after an interruption."""

import errno
import json
import os

import numpy as np
import pytest

import headstart as hs
from headstart.errors import FileError, InputError
from headstart.fleet import Logs
from headstart.fleet.engines import threads
from headstart.fleet.engines.threads import gather
from headstart.fleet.summing import checkpoint


@pytest.fixture
def logs(tmp_path, logbook):
    """Six files of 200 rows."""
    for number in range(6):
        logbook.write(tmp_path / f"{number}.parquet", logbook.table(200, 3, 25, seed=number))
    return Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)


def content(gathered):
    return {
        name: row
        for portion in gathered.shelf
        for name, row in zip(portion.names, portion.rows, strict=True)
    }


def alike(left, right):
    ours, theirs = content(left), content(right)
    assert ours.keys() == theirs.keys()
    for name, row in ours.items():
        np.testing.assert_allclose(row, theirs[name], rtol=1e-12, atol=1e-12)
    assert left.tally.rows == right.tally.rows
    assert sorted(left.tally.parts) == sorted(right.tally.parts)


def test_workers_share_the_parts(logs):
    one, several = gather(logs, workers=1), gather(logs, workers=4)
    alike(one, several)
    assert one.tally.rows == 1200
    assert len(one.shelf) == 25


def test_progress_ends_with_everything(logs):
    told = []
    gather(logs, progress=lambda *words: told.append(words))
    assert told[0] == ("reading", 0.0, 1200.0)
    assert told[-1] == ("reading", 1200.0, 1200.0)


def test_little_memory_takes_the_disk(logs, tmp_path):
    small = gather(logs, workers=2, memory=4000, folder=tmp_path / "work")
    alike(small, gather(logs))
    small.shelf.remove()


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("a bad row")])
def test_what_was_interrupted_goes_on(logs, tmp_path, monkeypatch, error):
    folder = tmp_path / "work"
    with monkeypatch.context() as patch:
        read_some(patch, 4, error)
        with pytest.raises(type(error)):
            gather(logs, workers=1, folder=folder)
    known = json.loads((folder / "manifest.json").read_text())
    assert sum(len(entry["parts"]) for entry in known["entries"]) == 4
    with monkeypatch.context() as patch:
        done = read_some(patch, 99, error)
        found = gather(logs, workers=2, folder=folder)
    assert len(done) == 2
    alike(found, gather(logs))


def test_sums_are_kept_now_and_then(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "OFTEN", -1.0)
    folder = tmp_path / "work"
    with monkeypatch.context() as patch:
        read_some(patch, 3, OSError("the power went"))
        patch.setattr(threads.Reading, "keep", noted := keep_first(threads.Reading.keep))
        with pytest.raises(OSError, match="power"):
            gather(logs, workers=1, folder=folder)
    assert noted.calls >= 3
    alike(gather(logs, folder=folder), gather(logs))


def keep_first(keep):
    """Count how often sums are kept."""

    def counted(self):
        counted.calls += 1
        keep(self)

    counted.calls = 0
    return counted


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


def test_a_damaged_manifest_is_told(logs, tmp_path, monkeypatch):
    interrupted(logs, tmp_path / "work", monkeypatch)
    (tmp_path / "work" / "manifest.json").write_text("{")
    with pytest.raises(FileError, match="manifest"):
        gather(logs, folder=tmp_path / "work")


def test_a_full_disk_leaves_no_file(logs, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out" / "prior.headstart"
    out.parent.mkdir()
    monkeypatch.setattr(os, "fsync", full)
    small = threads.Sums

    def tiny(dim, budget, folder, workers):
        return small(dim, 1000, folder, workers)

    monkeypatch.setattr(threads, "Sums", tiny)
    with pytest.raises(FileError, match="No space left"):
        hs.fleet.fit(logs, out=out, resume=tmp_path / "out" / "work")
    assert not list(out.parent.glob("*.headstart"))
    assert not list(out.parent.glob("work/*.evidence"))


def test_a_truncated_file_is_told(logs, tmp_path, logbook):
    path = tmp_path / "3.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"3\.parquet"):
        gather(Logs(str(tmp_path / "*.parquet"), logbook.PLAIN))
