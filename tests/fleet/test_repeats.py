"""Files and rows that are logged twice: found, and told by check, fit and evaluate."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from headstart.bandit.rewards import RewardModel
from headstart.errors import FileError
from headstart.fleet import Columns, Logs, check, evaluate, fit
from headstart.fleet.reading import files, logs
from headstart.fleet.summing.checkpoint import lock_folder, remove_checkpoint
from headstart.fleet.summing.summary import ReadSummary
from headstart.transfer import Independent

TIMED = Columns("task", "reward", "x*", timestamp="when")


def timed(logbook, rows=400, seed=0, **more):
    when = np.arange(rows) * 1_000_000 + seed
    return logbook.table(rows, seed=seed).append_column("when", pa.array(when, pa.timestamp("us")))


def said(found, words):
    """What check and fit say of some logs."""
    profile, fitted = check(found), fit(found, Independent())
    told = [finding.text for finding in profile.findings if words in finding.text]
    assert told == list(profile.summary()["repeated"])
    assert told == [note for note in fitted.notes if words in note]
    return told


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_copies_of_files_are_told_of(form, logbook, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SAMPLE", 100)
    logbook.write(tmp_path / f"a.{form}", logbook.table(200))
    logbook.write(tmp_path / f"b.{form}", logbook.table(200, seed=1))
    assert not said(Logs(str(tmp_path), logbook.PLAIN), "cop")
    shutil.copy(tmp_path / f"a.{form}", tmp_path / f"c.{form}")
    found = Logs(str(tmp_path), logbook.PLAIN)
    (note,) = said(found, "cop")
    assert note.startswith("1 file is a copy of others ('")
    assert f"c.{form}' of '" in note
    assert note.endswith(f"a.{form}'): their rows count twice")
    assert note in found.notes
    assert check(found).usable


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_repeated_rows_are_told_of(form, logbook, tmp_path):
    content = timed(logbook)
    logbook.write(tmp_path / f"a.{form}", content)
    assert not said(Logs(str(tmp_path), TIMED), "there again")
    logbook.write(tmp_path / f"b.{form}", content.slice(100, 30))
    (note,) = said(Logs(str(tmp_path), TIMED), "there again")
    assert note.startswith("30 rows are there again with the same task")
    # Nothing tells rows apart without a time, and two rows at one time may differ.
    assert not said(Logs(str(tmp_path), logbook.PLAIN), "there again")
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    at_once = content.set_column(5, "when", pa.array([0] * 400, pa.timestamp("us")))
    distinct = at_once.set_column(2, "x0", pa.array(np.arange(400.0)))
    logbook.write(tmp_path / f"a.{form}", distinct)
    assert not said(Logs(str(tmp_path), TIMED), "there again")


def test_evaluate_tells_of_both(logbook, tmp_path):
    logbook.write(tmp_path / "a.parquet", timed(logbook))
    shutil.copy(tmp_path / "a.parquet", tmp_path / "b.parquet")
    found = evaluate(Logs(str(tmp_path), TIMED), transfer=Independent(), future=0.5)
    assert any(note.startswith("1 file is a copy of others") for note in found.notes)
    assert any(note.startswith("400 rows are there again") for note in found.notes)


def test_of_many_rows_a_share_is_compared(logbook, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FINGERPRINTS", 1000)
    content = timed(logbook, 8000)
    logbook.write(tmp_path / "a.parquet", content, group=500)
    logbook.write(
        tmp_path / "b.parquet",
        content.slice(0, 4000).set_column(5, "when", content["when"].slice(0, 4000)),
        group=300,
    )
    found = Logs(str(tmp_path), TIMED)
    (note,) = said(found, "there again")
    assert note.startswith("about ")
    assert 3000 < float(note.split()[1].replace(",", "")) < 5000
    found = found.for_fit(intercept=True)
    kept = [rows.fingerprints for part in found.parts() for rows in found.read(part)]
    assert 700 < sum(map(len, kept)) < 1300


def test_times_that_cannot_be_read_do_not_keep_a_fit_from_it(logbook, tmp_path):
    content = timed(logbook)
    when = pa.array(["soon", *["2024-05-01"] * 399])
    logbook.write(tmp_path / "a.parquet", content.set_column(5, "when", when))
    assert fit(Logs(str(tmp_path), TIMED), Independent()).rows == 400


def test_a_tally_keeps_what_was_seen():
    tally = ReadSummary(rows=2, fingerprints=[np.array([1, 2**63], np.uint64)])
    tally.look_at_ids(pa.array(["7.0", "7"]), " 7")
    again = ReadSummary.from_json(json.loads(json.dumps(tally.as_json())))
    assert (again.whole_id, again.fraction_id, again.spaced_id) == ("7", "7.0", " 7")
    assert again.least == np.inf
    tally.add(again)
    assert len(tally.notes(2, RewardModel())) == 3


def test_one_fit_at_a_time_in_a_folder(logbook, tmp_path, headstart, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logbook.write(tmp_path / "a.parquet", logbook.table(100))
    folder = tmp_path / "prior.partial"
    words = ["fit", "a.parquet", "--task", "task", "--reward", "reward", "--features", "x*"]
    words += ["--out", "prior", "--workers", "1", "--json"]
    with lock_folder(folder):
        (folder / "run-1.arrow").touch()  # the other's
        for more in ([], ["--afresh"]):
            shown = headstart(*words, *more)
            assert shown.code != 0
            assert "another fit is running in" in shown.err
            assert (folder / "run-1.arrow").exists()
        with pytest.raises(FileError, match="another fit is running in"):
            fit(Logs("a.parquet", logbook.PLAIN), Independent(), checkpoint=folder)
        remove_checkpoint(folder)
    assert headstart(*words).code == 0
    assert not folder.exists()
