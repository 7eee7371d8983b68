"""The command line: help, lists, comparisons, and errors in one line with exit code 2."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import headstart as hs
from headstart.algorithms import ALGORITHMS
from headstart.cli.screen import print_table

COMMAND = str(Path(sys.executable).with_name("headstart"))
COMMANDS = ("reproduce", "compare", "report", "worlds", "policies", "check", "fit", "evaluate")
WORLD = "synthetic:dim=5,rank=2,arms=4"
TINY = ["--world", WORLD, "--seeds", "4", "--tasks", "6", "--rounds", "20", "--workers", "1"]
ESCAPE = re.compile(r"\x1b\[")


def outside(*words, **variables):
    """The command as a process of its own; its output is piped."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS")
    }
    return subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**kept, **variables},
        timeout=120,
    )


# --- Help ---------------------------------------------------------------------------------------


def test_help_comes_at_once():
    def processor_seconds():  # of the commands: elapsed time depends on what else is running
        spent = os.times()
        return spent.children_user + spent.children_system

    times = []
    for _ in range(3):
        start = processor_seconds()
        shown = outside("--help")
        times.append(processor_seconds() - start)
        assert shown.returncode == 0
    assert 0 < min(times) < 0.5


def test_the_version_is_that_of_the_package(headstart):
    assert headstart("--version").out == f"headstart {hs.__version__}\n"


def test_help_lists_the_commands(headstart):
    shown = headstart("--help")
    assert shown.code == 0
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", shown.out)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "reproduce",
            ["synthetic", "movielens", "--quick", "--seeds", "--out", "--resume", "--data"],
        ),
        ("compare", ["--world", "--policy", "--seeds", "--tasks", "--rounds", "--out", "--json"]),
        ("compare", ["--engine", "auto", "plain", "compiled", "gpu"]),
        ("reproduce", ["--engine", "auto", "plain", "compiled", "gpu"]),
        ("compare", ["--cluster", "ray://host:port"]),
        ("reproduce", ["--cluster", "ray://host:port"]),
        ("report", ["folder"]),
        ("worlds", ["--json"]),
        ("policies", ["--json"]),
    ],
)
def test_every_command_explains_itself(headstart, command, words):
    shown = headstart(command, "--help")
    assert shown.code == 0
    for word in words:
        assert word.lower() in shown.out.lower()


def test_the_help_says_what_a_plan_has(headstart):
    shown = headstart("compare", "--help").out
    assert "[world]" in shown
    assert "[[policy]]" in shown


def test_without_a_command_help_is_shown(headstart):
    shown = headstart()
    assert shown.code in (0, 2)
    for command in COMMANDS:
        assert command in shown.out + shown.err


# --- Lists --------------------------------------------------------------------------------------


def test_policies_as_json(headstart):
    shown = headstart("policies", "--json")
    rows = json.loads(shown.out)
    assert shown.code == 0
    assert [row["name"] for row in rows] == list(ALGORITHMS)
    assert rows[0]["options"] == ALGORITHMS["linucb"].options
    assert rows[0]["reference"].startswith("Abbasi-Yadkori")


def test_worlds_as_json(headstart):
    rows = json.loads(headstart("worlds", "--json").out)
    assert {row["name"] for row in rows} == {"synthetic", "clicks", "movielens", "logged"}
    assert next(row for row in rows if row["name"] == "synthetic")["options"]["dim"] == 30


def test_lists_for_people_have_every_name(headstart):
    shown = headstart("policies")
    for name in ALGORITHMS:
        assert name in shown.out
    shown = headstart("worlds")
    for name in ("synthetic", "movielens", "logged", "rank=15"):
        assert name in shown.out


# --- Comparisons --------------------------------------------------------------------------------


@pytest.fixture
def no_figures(monkeypatch):
    """Drawings take longer than the rest of a tiny comparison, and have tests of their own."""
    monkeypatch.setattr("headstart.lab.figures.Figure.save", lambda *_: [])


def test_a_comparison_as_json(headstart, tmp_path):
    policies = ["--policy", "linucb", "--policy", "bias_oful:lam=2,label=mine"]
    shown = headstart("compare", *TINY, *policies, "--out", tmp_path, "--json")
    assert shown.code == 0
    found = json.loads(shown.out)
    assert {row["policy"] for row in found["totals"]} == {"LinUCB", "mine"}
    assert {"ratio", "low", "high", "worst"} <= set(found["totals"][0])
    assert Path(found["report"]) == tmp_path / "report.html"
    assert (tmp_path / "report.html").exists()
    assert shown.err == ""
    assert len(list((tmp_path / "figures").glob("*.png"))) == 4


def test_a_comparison_ends_with_a_table_and_the_reports_path(headstart, tmp_path, no_figures):
    shown = headstart("compare", *TINY, "--out", tmp_path)
    assert shown.code == 0
    for name in ("LinUCB", "B-OFUL", "P-LinUCB", "ratio", "1.000"):
        assert name in shown.out
    assert str(tmp_path / "report.html") in shown.out.strip().splitlines()[-1]


def test_a_plan_from_a_file(headstart, tmp_path, no_figures):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'seeds = 3\ntasks = 4\nrounds = 10\n[world]\nname = "synthetic"\ndim = 5\nrank = 2\n'
        'arms = 4\n[[policy]]\nname = "linucb"\n'
    )
    shown = headstart("compare", plan, "--out", tmp_path / "out", "--workers", "1", "--json")
    assert shown.code == 0
    assert [row["policy"] for row in json.loads(shown.out)["totals"]] == ["LinUCB"]
    seeds = pl.read_parquet(tmp_path / "out" / "regret.parquet")["seed"].unique()
    assert sorted(seeds) == [0, 1, 2]


def test_an_option_beside_a_plan_is_not_ignored(headstart, tmp_path, no_figures):
    """It counts, or it is refused: never neither."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "seeds = 3\ntasks = 2\nrounds = 5\n[world]\ndim = 5\nrank = 2\n[[policy]]\n"
        'name = "linucb"\n'
    )
    out = tmp_path / "out"
    shown = headstart("compare", plan, "--seeds", "4", "--out", out, "--workers", "1", "--json")
    if shown.code == 0:
        seeds = pl.read_parquet(out / "regret.parquet")["seed"].unique()
        assert sorted(seeds) == [0, 1, 2, 3]
    else:
        assert shown.code == 2
        assert "seeds" in shown.err


def test_engines_find_the_same(headstart, tmp_path, no_figures):
    policies = ["--policy", "linucb", "--policy", "projected_ts:warmup=3"]
    found = {}
    for engine in ("plain", "compiled", "auto"):
        words = [*TINY, *policies, "--engine", engine, "--out", tmp_path / engine, "--json"]
        shown = headstart("compare", *words)
        assert shown.code == 0
        found[engine] = json.loads(shown.out)["totals"]
    for engine in ("compiled", "auto"):
        for ours, theirs in zip(found[engine], found["plain"], strict=True):
            assert ours.keys() == theirs.keys()
            for key, value in theirs.items():
                wanted = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
                assert ours[key] == wanted


def test_without_a_gpu_the_command_says_why_and_goes_on(tmp_path):
    words = ["compare", *TINY, "--policy", "linucb", "--engine", "gpu", "--json", "--out"]
    without = "import sys; sys.modules['cupy'] = None; from headstart.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", without, *words, str(tmp_path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert shown.returncode == 0, shown.stderr
    assert "runs on the CPU: cupy is not installed" in shown.stderr
    assert "pip install 'headstart[gpu]'" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert [row["policy"] for row in json.loads(shown.stdout)["totals"]] == ["LinUCB"]
    assert json.loads((tmp_path / "manifest.json").read_text())["device"] == "cpu"


def test_a_report_is_made_anew(headstart, tmp_path, no_figures, monkeypatch):
    words = [*TINY[:-2], "--policy", "linucb", "--out", tmp_path, "--json"]
    made = headstart("compare", *words)
    assert made.code == 0
    (tmp_path / "report.html").unlink()

    def never(*args, **kwargs):
        raise AssertionError("simulated again")

    monkeypatch.setattr(
        "headstart.lab.experiments.experiment.play_jobs",
        lambda jobs, *_: (never(job) for job in jobs),
    )
    shown = headstart("report", tmp_path)
    assert shown.code == 0
    assert str(tmp_path / "report.html") in shown.out
    assert (tmp_path / "report.html").exists()


# --- Reproducing --------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the command asks of the library, without doing it."""
    from headstart.lab.studies.outcome import Outcome

    calls = []
    table = pl.DataFrame({"policy": ["LinUCB"], "ratio": [1.0], "low": [None]})

    def reproduce(*args, **kwargs):
        calls.append((*args, kwargs))
        return Outcome("a title", tmp_path / "report.html", table)

    monkeypatch.setattr("headstart.lab.studies.reproduction.reproduce", reproduce)
    return calls


def test_reproduce_asks_for_everything_unless_told_otherwise(headstart, asked):
    shown = headstart("reproduce")
    assert shown.code == 0
    study, out, options = asked[0]
    assert (study, str(out)) == ("all", "results/reproduction")
    assert options["resume"] is True
    assert options["quick"] is False
    assert all(options[name] is None for name in ("seeds", "tasks", "data"))
    execution = options["execution"]
    assert (execution.workers, execution.executor, execution.engine) == (None, None, "auto")
    assert "LinUCB" in shown.out
    assert "report.html" in shown.out


def test_reproduce_passes_on_what_it_is_told(headstart, asked, tmp_path):
    words = ["synthetic", "--quick", "--seeds", "5", "--tasks", "7", "--workers", "2", "--afresh"]
    words += ["--engine", "compiled"]
    shown = headstart("reproduce", *words, "--out", tmp_path, "--data", tmp_path, "--json")
    study, out, options = asked[0]
    assert options["execution"].engine == "compiled"
    assert (study, out) == ("synthetic", tmp_path)
    assert (options["quick"], options["seeds"], options["tasks"]) == (True, 5, 7)
    assert options["execution"].workers == 2
    assert (options["resume"], options["data"]) == (False, tmp_path)
    assert json.loads(shown.out)["totals"] == [{"policy": "LinUCB", "ratio": 1.0, "low": None}]


# --- Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "say"),
    [
        (["compare", "--policy", "nonsense"], ["policy", "nonsense", "linucb"]),
        (["compare", "--policy", "linucb:lm=2"], ["linucb", "lm", "lam"]),
        (["compare", "--policy", "linucb:lam=-2"], ["lam", "-2"]),
        (["compare", "--policy", "linucb:lam"], ["option=value"]),
        (["compare", "--world", "moon"], ["world", "moon", "synthetic"]),
        (["compare", "--world", "synthetic:ranks=3"], ["synthetic", "ranks"]),
        (["compare", "--world", "synthetic:rank=99"], ["rank", "99"]),
        (["compare", "--world", "logged"], ["logged", "table"]),
        (["compare", "--policy", "linucb", "--policy", "linucb"], ["different names"]),
        (["compare", "--engine", "warp"], ["engine", "warp", "auto", "plain", "compiled", "gpu"]),
        (
            ["reproduce", "synthetic", "--quick", "--engine", "warp"],
            ["engine", "warp", "auto", "plain", "compiled", "gpu"],
        ),
        (["compare", "--cluster", "spark"], ["cluster", "spark", "ray://host:port"]),
        (["reproduce", "--cluster", "ray://"], ["cluster", "ray://host:port"]),
        (["compare", "nowhere.toml"], ["nowhere.toml"]),
        (["report", "nowhere"], ["nowhere"]),
        (["reproduce", "movielens", "--quick", "--data", "nowhere"], ["nowhere", "ratings.dat"]),
    ],
)
def test_what_cannot_be_is_said_in_one_line(headstart, tmp_path, monkeypatch, words, say):
    monkeypatch.chdir(tmp_path)
    more = ["--seeds", "2", "--tasks", "2", "--workers", "1"] if words[0] == "compare" else []
    shown = headstart(*words, *more)
    assert shown.code == 2
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.startswith("headstart: ")]
    assert len(lines) == 1
    for word in say:
        assert word in lines[0]
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("words", "say"),
    [
        (["nonsense"], ["nonsense"]),
        (["compare", "--nonsense"], ["--nonsense"]),
        (["compare", "--seeds", "1"], ["--seeds", "2"]),
        (["compare", "--seeds", "many"], ["--seeds"]),
        (["compare", "--tasks", "0"], ["--tasks"]),
        (["reproduce", "nonsense"], ["synthetic", "movielens"]),
        (["report"], ["folder"]),
    ],
)
def test_words_that_mean_nothing_are_refused_with_exit_code_2(headstart, words, say):
    shown = headstart(*words)
    assert shown.code == 2
    assert shown.out == ""
    for word in say:
        assert word.lower() in shown.err.lower()
    assert "Traceback" not in shown.err


def test_the_script_itself_exits_with_2_and_no_traceback():
    for words in (["nonsense"], ["compare", "--policy", "nonsense"], ["compare", "--seeds", "1"]):
        shown = outside(*words)
        assert "Traceback" not in shown.stderr
        assert shown.returncode == 2
        assert shown.stdout == ""


def test_ctrl_c_says_what_is_kept(headstart, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("headstart.lab.studies.comparison.compare", interrupted)
    for more in ([], ["--json"]):
        shown = headstart("compare", "--out", tmp_path, *more)
        assert shown.code == 130
        assert "kept" in shown.err


def test_an_error_nobody_expected_is_not_hidden(headstart, monkeypatch):
    def broken():
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("headstart.lab.studies.comparison.list_policies", broken)
    with pytest.raises(ZeroDivisionError):
        headstart("policies")


# --- Colour, pipes, completion ------------------------------------------------------------------


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_piped_output_has_no_escape_codes(variables):
    for words in (["policies"], ["--help"]):
        shown = outside(*words, **variables)
        assert shown.returncode == 0
        assert not ESCAPE.search(shown.stdout + shown.stderr)
        assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_piped_comparison_is_readable(tmp_path):
    shown = outside("compare", *TINY, "--policy", "linucb", "--out", str(tmp_path), NO_COLOR="1")
    assert shown.returncode == 0, shown.stderr
    assert not ESCAPE.search(shown.stdout + shown.stderr)
    assert "LinUCB" in shown.stdout
    assert f"{tmp_path / 'report.html'}" in shown.stdout


def test_no_colour_is_respected_where_colour_would_be_forced():
    """Bold and dim are no colours."""
    forced = outside("--help", FORCE_COLOR="1")
    assert ESCAPE.search(forced.stdout)
    plain = outside("--help", FORCE_COLOR="1", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", plain.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_can_be_shown(shell):
    shown = outside(_HEADSTART_COMPLETE=f"source_{shell}")
    assert shown.returncode == 0
    assert "_HEADSTART_COMPLETE" in shown.stdout
    assert "headstart" in shown.stdout


def test_commands_are_completed():
    shown = outside(_HEADSTART_COMPLETE="complete_bash", COMP_WORDS="headstart rep", COMP_CWORD="1")
    assert shown.stdout.split() == ["reproduce", "report"]


# --- Without the extra --------------------------------------------------------------------------


def without(package, *words):
    """The command where a package is not installed."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['headstart', *{words!r}]; "
        "from headstart.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", timeout=60
    )


@pytest.mark.parametrize("command", ["compare", "reproduce"])
def test_without_ray_the_command_says_how_to_get_it(command):
    shown = without("ray", command, "--cluster", "ray")
    assert shown.returncode == 2
    assert "pip install 'headstart[fleet]'" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("package", ["typer", "polars"])
def test_without_the_extra_the_command_says_how_to_get_it(package):
    shown = without(package, "compare", "--seeds", "2")
    assert shown.returncode not in (0, None)
    assert "pip install 'headstart[lab]'" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "left" not in shown.stderr  # said before any work


def test_no_table_cuts_a_number_off(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    cell = "560,882,790 [94,302,740, 1,300,057,500]"
    print_table(pl.DataFrame({f"squared error {at}": [cell] for at in range(4)}), "errors")
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = [line.split("│")[1] for line in shown.splitlines() if line.startswith("│")]
    assert "".join("".join(rows).split()) == cell.replace(" ", "")
