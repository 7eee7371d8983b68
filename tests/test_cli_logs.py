"""The commands on logs: what they refuse to write over, what they keep, and what they tell."""

import inspect
import io
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs

WORDS = ["--task", "task", "--reward", "reward", "--features", "x*"]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch, tmp_path):
    """Every test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def screen():
    """The names of the module that shows progress, as the commands see it."""
    from headstart import cli

    (fit,) = [one.callback for one in cli.app.registered_commands if one.callback.__name__ == "fit"]
    return inspect.unwrap(fit).__globals__["progress_bars"].__wrapped__.__globals__


@pytest.fixture
def logs(tmp_path):
    """Four files of 200 rows."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(4):
        rng = np.random.default_rng(number)
        columns = {"task": rng.integers(0, 20, 200), "reward": rng.normal(size=200)}
        columns |= {f"x{j}": rng.normal(size=200) for j in range(3)}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


def test_a_log_is_never_written_over(headstart, logs, tmp_path):
    os.link(logs / "1.parquet", tmp_path / "link")
    for out in (logs / "1.parquet", tmp_path / "link", "./logs/1.parquet"):
        before = (logs / "1.parquet").read_bytes()
        shown = headstart("fit", "logs", *WORDS, "--out", out)
        assert shown.code == 2
        assert "and not a log" in shown.err
        assert (logs / "1.parquet").read_bytes() == before


def test_features_may_be_given_by_several_options(headstart, logs):
    words = ["--task", "task", "--reward", "reward", "--features", "x0", "--features", "x1,x2"]
    assert "3 features" in headstart("check", "logs", *words).out
    assert "twice" in headstart("check", "logs", *words, "--features", "x0").err


def test_only_bandits_are_written_over(headstart, logs, tmp_path):
    note = tmp_path / "note"
    note.write_text("do not lose this")
    shown = headstart("fit", "logs", *WORDS, "--out", "note")
    assert shown.code == 2
    assert "'note' is something else: give another name, or remove it first" in shown.err
    assert note.read_text() == "do not lose this"
    note.write_text("")
    for _ in range(2):
        assert headstart("fit", "logs", *WORDS, "--out", "note", "--workers", "1").code == 0
    assert hs.load(note).report().closed_tasks == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["fit", "--out", "s3://bucket/"],
            "out must be a file to write, and not a log; got 's3://",
        ),
        (["evaluate", "--out", "gs://bucket/report"], "out must be a path on this machine"),
        (["fit", "--memory", "1KB"], "memory must be at least 64 MiB; got '1KB' (--memory)"),
        (["check", "--features", "x1,x1"], "features must name every column once; got 'x1' twice"),
    ],
)
def test_what_cannot_be_is_refused_at_once(words, message, headstart, logs, tmp_path):
    shown = headstart(words[0], "logs", *WORDS, *words[1:])
    assert shown.code == 2
    assert message in shown.err
    assert os.listdir(tmp_path) == ["logs"]


def test_the_same_words_do_for_all_commands(headstart, logs):
    words = [*WORDS, "--timestamp", "x2", "--round", "x1", "--workers", "1", "--json"]
    shown = headstart("fit", "logs", *words)
    assert json.loads(shown.out)["features"] == 1  # they are still no features
    words = [*WORDS, "--propensity", "chance", "--workers", "1"]
    assert "propensity must name a column" in headstart("fit", "logs", *words).err
    shown = headstart("fit", "--help").out
    assert shown.count("not used by fit") == 1


def test_notes_are_told_before_the_work(headstart, logs):
    (logs / "z.parquet").symlink_to("0.parquet")
    shown = headstart("fit", "logs", *WORDS, "--workers", "1")
    assert shown.err.startswith("Note: 1 file is there under several names ('logs/z.parquet' is")
    shown = headstart("fit", "logs", *WORDS, "--workers", "1", "--json")
    assert "several names" in json.loads(shown.out)["notes"][0]
    assert shown.err == ""


def test_notes_on_what_was_learned_are_told(headstart, logs, monkeypatch):
    from headstart.fleet import Fitted

    plain = Fitted.summary
    monkeypatch.setattr(Fitted, "summary", lambda self: {**plain(self), "notes": ["one task only"]})
    assert "Note: one task only" in headstart("fit", "logs", *WORDS, "--workers", "1").out


def test_an_error_leaves_no_empty_folder(headstart, logs, tmp_path):
    for path in logs.iterdir():
        table = pq.read_table(path)
        nothing = pa.nulls(len(table), pa.float64())
        pq.write_table(table.set_column(1, "reward", nothing), path)
    shown = headstart("fit", "logs", *WORDS)
    assert shown.code == 2
    assert "reward is missing: 200 rows" in shown.err
    assert os.listdir(tmp_path) == ["logs"]


def test_after_ctrl_c_the_same_command_goes_on(headstart, logs, tmp_path, screen):
    def interrupt(*line, **options):
        raise KeyboardInterrupt

    words = ["fit", "logs", *WORDS, "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(screen, "PROGRESS_SECONDS", 0.0)
        patch.setitem(
            screen, "progress_text", lambda task, unit: task.completed == 400 and interrupt()
        )
        shown = headstart(*words)
    assert shown.code == 130
    assert shown.err.endswith(
        "headstart: interrupted; the 400 rows read so far are kept in 'prior.headstart.partial': "
        "the same command resumes from there (--afresh starts again).\n"
    )
    shown = headstart(*words)
    assert shown.code == 0
    assert "Resuming: 400 rows were read before" in shown.err
    assert re.search(r"rows +│ +800 ", shown.out)
    assert sorted(os.listdir(tmp_path)) == ["logs", "prior.headstart"]


def test_ctrl_c_with_nothing_kept_leaves_nothing(headstart, logs, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("headstart.fleet.engines.threads.Reading.run", interrupted)
    shown = headstart("fit", "logs", *WORDS)
    assert shown.code == 130
    assert "nothing was kept" in shown.err
    assert os.listdir(tmp_path) == ["logs"]


def test_without_a_terminal_progress_is_lines(headstart, logs, monkeypatch, screen):
    assert headstart("fit", "logs", *WORDS, "--workers", "1").err == ""
    monkeypatch.setitem(screen, "PROGRESS_SECONDS", 0.0)
    shown = headstart("fit", "logs", *WORDS, "--workers", "1")
    line = r"reading: 50 % of 800 rows, [0-9.,]+( million)? rows/s, [0-9]+ s left\n"
    assert re.search(line, shown.err)
    assert re.search(r"reading: [0-9]+ % of 800 rows", headstart("check", "logs", *WORDS).err)


def test_what_was_done_before_is_no_speed(monkeypatch, screen, capsys):
    now = [0.0]
    monkeypatch.setitem(screen, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with screen["progress_bars"](quiet=False) as bar, bar("reading", "rows") as show:
        for now[0], done in ((5.0, 9.0e6), (6.0, 9.1e6), (16.0, 9.2e6), (46.0, 9.3e6)):
            show(done, 10e6)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading: 92 % of 10.0 million rows, 10,000 rows/s, 1 min 20 s left",
        "reading: 93 % of 10.0 million rows, 5,000 rows/s, 2 min 20 s left",
    ]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_terminal_without_unicode_gets_what_it_can_show(logs, monkeypatch, more):
    from headstart.cli import main

    rows = pq.read_table(logs / "0.parquet")
    pq.write_table(rows.rename_columns(["task", "reward", "x0", "x1", "xß"]), logs / "0.parquet")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.argv", ["headstart", "check", "logs/0.parquet", *WORDS, *more])
    with pytest.raises(SystemExit) as leave:
        main()
    stream.flush()
    shown = stream.buffer.getvalue().decode("ascii")
    assert leave.value.code == 0
    if more:
        assert [each["name"] for each in json.loads(shown)["features"]] == ["x0", "x1", "xß"]
    else:
        assert re.search(r"[0-9]+-[0-9]+ +#+\?? +[0-9]+\n", shown)  # of the histogram
