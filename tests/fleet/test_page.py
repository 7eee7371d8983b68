"""The page of an evaluation: one file, whole, with every figure and the verdict on top."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from headstart.fleet import Columns, Logs, evaluate, plots
from headstart.fleet.page import write_page

FIGURES = ["calibration", "catching-up", "errors", "gains", "rounds-per-task"]


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
    found = evaluate(Logs(path, Columns("<b>task", "reward", "x*", **more)))
    return found, write_page(found, folder / "out", "<i>mine</i>"), request.param


def test_the_page_is_whole_and_asks_nothing_of_the_network(made):
    found, path, whole = made
    text = path.read_text(encoding="utf-8")
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "src=" not in body
    assert 'href="http' not in body
    assert body.index("<blockquote>") < body.index("Contents")
    assert found.verdict.sentence.split(":")[0] in body
    assert "<i>mine" not in body
    assert "<b>task" not in body
    for title in ("Three answers", "Error by position", "Calibration", "What was done"):
        assert title in body
    assert ("(propensity)" in body) != whole
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
    assert "nats" in plots.gains(found).draw().axes[0].get_xlabel()


def test_rounds_per_task_are_all_there():
    rounds = np.array([1, 1, 3, 20, 49, 50, 1999, 2000])
    figure = plots.rounds_per_task(rounds)
    assert figure.table["tasks"].sum() == len(rounds)
    assert figure.table["rewards of a task"].to_list()[0] == "1"
    assert figure.table["rewards of a task"].to_list()[-1] == "2k–5k"
