"""The page of an evaluation: one file, whole, with every figure and the verdict on top."""

import dataclasses
import html
import json
import re
import types

import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.errors import FileError
from headstart.fleet import Columns, Logs, evaluate
from headstart.fleet.evaluation import plots
from headstart.fleet.evaluation.page import check_place, write_page

FIGURES = ["calibration", "errors", "gains", "regret", "rounds-per-task"]


def table(whole):
    rng = np.random.default_rng(0)
    rows = []
    for task in range(40):
        theta = np.array([1.0, -0.5]) + 0.3 * rng.normal(size=2)
        for place in range(int(rng.integers(2, 8))):
            for arm in range(2 if whole else 1):
                x = rng.normal(size=2)
                row = {"<b>task": f"t{task}", "reward": float(x @ theta), "x0": x[0], "x1": x[1]}
                if whole:
                    row |= {"round": place, "chosen": arm == place % 2, "chance": 0.5}
                rows.append(row)
    return pa.Table.from_pylist(rows)


@pytest.fixture(scope="module", params=[False, True], ids=["shown arms", "all arms"])
def made(request, tmp_path_factory, logbook):
    folder = tmp_path_factory.mktemp("page")
    path = logbook.write(folder / "log.parquet", table(request.param))
    more = {"round": "round", "chosen": "chosen", "propensity": "chance"} if request.param else {}
    logs = Logs(path, Columns("<b>task", "reward", "x*", **more))
    found = evaluate(logs, transfer=hs.Bias(), splits=1)
    return found, write_page(found, folder / "out"), request.param


def test_the_page_is_whole_and_asks_nothing_of_the_network(made):
    found, path, whole = made
    text = path.read_text(encoding="utf-8")
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "src=" not in body
    assert 'href="http' not in body
    assert body.index("<blockquote>") < body.index("Contents")
    assert found.verdict.sentence.split(":")[0] in body
    assert "<b>task" not in body
    for title in (
        "Possible answers",
        "Error by position",
        "Expected gain",
        "Calibration",
        "What was done",
    ):
        assert title in body
    assert ("(--propensity)" in body) != whole
    titles = re.findall("<h2>(.*?)</h2>", body)
    assert len(set(titles)) == len(titles)
    data = re.findall(r'<script type="application/json" id="plot-\d+">(.*?)</script>', text)
    assert len(data) == 5 + whole
    for plot in data:
        assert json.loads(plot)["data"]


def test_figures_lie_beside_it(made):
    _, path, whole = made
    wanted = sorted([*FIGURES, "values"] if whole else FIGURES)
    for kind in ("png", "svg", "csv"):
        assert sorted(p.stem for p in (path.parent / "figures").glob(f"*.{kind}")) == wanted


def test_axes_are_named(made):
    found, _, _ = made
    drawn = plots.errors(found).draw()
    assert drawn.axes[0].get_xlabel() == "position of the reward in its task"
    assert "reward²" in drawn.axes[0].get_ylabel()
    assert "squared error saved" in plots.gains(found).draw().axes[0].get_xlabel()
    assert "% of random choice" in plots.regret(found).draw().axes[0].get_ylabel()


def test_rounds_per_task_are_all_there():
    rounds = np.array([1, 1, 3, 20, 49, 50, 1999, 2000])
    figure = plots.rounds_per_task(rounds)
    assert figure.table["tasks"].sum() == len(rounds)
    labels = figure.table["rewards of a task"].to_list()
    assert labels[0] == "1"
    assert labels[-1] == "1,024–2,000"


def test_a_model_that_is_far_behind_is_left_out_of_a_closer_look(made):
    found, _, _ = made
    far = dict(found.measures.by_position)
    far["no prior"] = [point._replace(value=9.0, low=8.0, high=10.0) for point in far["no prior"]]
    changed = dataclasses.replace(found, measures=found.measures._replace(by_position=far))
    whole, closer = plots.errors(changed).draw().axes
    assert whole.get_ylim()[1] > 9.0 > closer.get_ylim()[1]


def test_the_page_says_how_it_was_made(made):
    _, path, whole = made
    text = path.read_text(encoding="utf-8")
    end = html.unescape(text[text.index("<h2>How this was made</h2>") :])
    assert "log.parquet" in end
    assert "headstart evaluate " in end
    assert hs.__version__ in end
    assert "UTC" in end
    assert "no timestamp was given" in end
    assert ("effective rounds" in text) == whole


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    check_place(tmp_path)
    check_place(tmp_path / "new" / "deeper")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(FileError, match="must be a folder; it is a file"):
        check_place(file)
    with pytest.raises(FileError, match="file' is a file"):
        check_place(file / "out")
    monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=2**20))
    with pytest.raises(FileError, match=r"has room for 1\.0 MiB; a page needs"):
        check_place(tmp_path)

    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    with pytest.raises(FileError, match=r"could not be written \(Permission denied\)"):
        check_place(tmp_path)


@pytest.mark.parametrize("made", [False], indirect=True, ids=["shown arms"])
def test_a_page_is_written_wholly_or_not_at_all(made, tmp_path, monkeypatch):
    found, _, _ = made
    (tmp_path / "old" / "figures").mkdir(parents=True)
    (tmp_path / "old" / "report.html").write_text("before")
    (tmp_path / "old" / "figures" / "mine.txt").write_text("kept")
    (tmp_path / "old" / "figures" / "values.png").write_text("of another log")
    write = plots.Figure.save

    def full(figure, folder):
        if figure.name == "calibration":
            raise FileError("folder cannot be written") from OSError(28, "No space left on device")
        return write(figure, folder)

    with monkeypatch.context() as patch:
        patch.setattr(plots.Figure, "save", full)
        for name in ("old", "new/deeper"):
            with pytest.raises(FileError, match=r"written \(No space left on device\)"):
                write_page(found, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old" / "report.html").read_text() == "before"
    inside = sorted(path.name for path in (tmp_path / "old").rglob("*"))
    assert inside == ["figures", "mine.txt", "report.html", "values.png"]
    path = write_page(found, tmp_path / "old")
    assert "</html>" in path.read_text(encoding="utf-8")
    names = {path.name for path in (path.parent / "figures").iterdir()}
    assert {"mine.txt", "errors.svg"} <= names
    assert "values.png" not in names
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == ["figures", "report.html"]
