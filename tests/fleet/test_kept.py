"""What was read, what it comes to, and what is kept of it."""

import json

import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.bandit.rewards import RewardModel
from headstart.fleet import Columns, Logs, fit
from headstart.fleet.reading.rows import BadRows, Example, Rows
from headstart.fleet.summing.checkpoint import checkpointed_rows, remove_unused
from headstart.fleet.summing.summary import ReadSummary


def rows(rewards, chosen=None, **more):
    count = len(rewards)
    flags = None if chosen is None else np.array(chosen)
    codes, ids = np.zeros(count, np.int32), pa.array(["a"])
    return Rows(codes, ids, np.array(rewards), np.zeros((count, 1)), chosen=flags, **more)


def test_a_tally_counts_and_travels():
    tally = ReadSummary(parts=["p"])
    tally.count(rows([1.0, np.nan, 3.0], [True, False, True], weightless=2))
    other = ReadSummary(parts=["q"])
    other.count(rows([-1.0]))
    tally.add(other)
    assert (tally.rows, tally.unchosen, tally.weightless) == (3, 1, 2)
    assert (tally.least, tally.greatest, tally.parts) == (-1.0, 3.0, ["p", "q"])
    assert ReadSummary.from_json(tally.as_json()).as_json() == tally.as_json()
    assert ReadSummary.from_json(ReadSummary().as_json()).as_json() == ReadSummary().as_json()


def test_little_to_learn_is_told():
    tally = ReadSummary()
    tally.count(rows([2.0, 2.0]))
    assert tally.notes(1, RewardModel()) == [
        "there is one task only: what tasks share cannot be learned from one",
        "every reward is 2: there is nothing to learn",
    ]
    tally.count(rows([3.0]))
    assert not tally.notes(2, RewardModel())


def test_nothing_to_learn_from_is_told():
    columns = Columns("task", "reward", "x", weight="w", chosen="shown")
    bad = BadRows(1, {"reward is missing": 1}, [Example("a", 7, "reward is missing", "null")])
    for tally, words in (
        (ReadSummary(), "they have no rows"),
        (ReadSummary(weightless=3), "of their rows, 3 have weight 0 (--weight w)"),
        (ReadSummary(unchosen=9), "of their rows, 9 were not chosen (--chosen shown)"),
        (
            ReadSummary(bad=bad),
            "of their rows, 1 cannot be used:\nreward is missing: 1 row, such as",
        ),
    ):
        assert words in str(tally.nothing(columns))


def test_a_folder_from_which_nothing_can_go_on_is_removed(tmp_path):
    folder = tmp_path / "kept"
    assert checkpointed_rows(folder) == 0
    remove_unused(folder)
    folder.mkdir()
    (folder / "run-1.arrow").touch()
    remove_unused(folder)
    assert not folder.exists()
    folder.mkdir()
    for name, rows in (("entry-1.json", 5), ("entry-2.json", 7)):
        entry = {
            "settings": {},
            "runs": [],
            "positions": {},
            "summary": ReadSummary(rows=rows).as_json(),
        }
        (folder / name).write_text(json.dumps(entry))
    remove_unused(folder)
    assert checkpointed_rows(folder) == 12
    (folder / "entry-1.json").write_text("{}")
    assert checkpointed_rows(folder) == 0


def test_files_of_others_stay(tmp_path, logbook):
    logbook.write(tmp_path / "0.parquet", logbook.table(100, 3, 25))
    logs = Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("thesis.txt", "mine.evidence"):
        (folder / name).write_text("years of work")
    fit(logs, hs.Bias(), checkpoint=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.evidence", "thesis.txt"]


@pytest.mark.filterwarnings("ignore:no population fits")
def test_a_weight_that_cannot_be_counted_is_refused(headstart, tmp_path):
    """A row of weight w counts as w rows, of which a task may have 2^53."""
    lines = [f"{at % 3},{at % 2},{at % 5},{1e20 if at == 4 else 1}" for at in range(30)]
    (tmp_path / "log.csv").write_text("\n".join(["user,click,x,w", *lines]))
    words = ["--task", "user", "--reward", "click", "--features", "x", "--weight", "w"]
    out = tmp_path / "prior"
    shown = headstart("fit", tmp_path / "log.csv", *words, "--keep-tasks", "--out", out)
    assert shown.code == 2
    assert "'1' must have 2^53 rounds at most; got 1e+20: the weights" in shown.err
    assert not out.exists()
