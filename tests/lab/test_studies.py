"""Studies: the paper's experiments and comparisons of one's own, small, from end to end.

Sizes are cut so that each study takes seconds: what is tested is that everything is written and
says what was measured, not what the paper claims.
"""

import contextlib
import dataclasses
import functools
import json
import tomllib

import numpy as np
import polars as pl
import pytest

import headstart as hs
from headstart.algorithms import DEFAULT
from headstart.lab import Execution, figures
from headstart.lab.engine import simulate
from headstart.lab.experiments.execution import play_jobs
from headstart.lab.figures.elements.intervals import paired_ratios
from headstart.lab.policies import PAPER, parse, split_options
from headstart.lab.report.sections import VERDICTS
from headstart.lab.studies import (
    calibration,
    claims,
    comparison,
    extensions,
    movielens,
    reproduction,
    runner,
    synthetic,
)
from headstart.lab.studies.comparison import compare, list_policies, list_worlds
from headstart.lab.studies.outcome import Findings
from headstart.lab.studies.reproduction import rebuild, reproduce
from headstart.lab.studies.runner import Runner
from headstart.worlds import MovieLens, Synthetic
from headstart.worlds.ratings import GENRES

ROUNDS = 32
ALONE = Execution(workers=1)
SMALL = dataclasses.replace(runner.QUICK, rounds=ROUNDS)


DRAW = figures.Figure.save


def save_table(figure, folder):
    """Save a figure's table alone: drawings take longer than the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.table.write_csv(folder / f"{figure.name}.csv")


@pytest.fixture(scope="module", autouse=True)
def small_sizes():
    """Fewer rounds in all of these tests, and tables of figures without their drawings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "QUICK", SMALL)
        patch.setattr(figures.Figure, "save", save_table)
        yield


@pytest.fixture(scope="module")
def drawings():
    """``with drawings():`` figures are drawn too."""

    @contextlib.contextmanager
    def draw():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures.Figure, "save", DRAW)
            yield

    return draw


@pytest.fixture
def no_simulation(monkeypatch):
    """From here on, nothing may be simulated."""

    def never(*args, **kwargs):
        raise AssertionError("simulated again")

    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never)
    monkeypatch.setattr(
        "headstart.lab.experiments.experiment.play_jobs",
        lambda jobs, *_: (never(job) for job in jobs),
    )


def figures_in(folder, drawn=False):
    """The figures' names; each has all its files, and none is empty."""
    files = sorted((folder / "figures").iterdir())
    names = {file.stem for file in files}
    kinds = ("png", "svg", "csv") if drawn else ("csv",)
    assert {file.name for file in files} == {f"{name}.{kind}" for name in names for kind in kinds}
    for file in files:
        head = file.read_bytes()[:5]
        assert head
        assert {".png": b"\x89PNG\r", ".svg": b"<?xml"}.get(file.suffix, head) == head
    return names


def totals_in(folder):
    """Totals from the table that an experiment wrote."""
    regret = pl.read_parquet(folder / "regret.parquet")
    last = regret.filter(pl.col("round") == regret["round"].max())
    return last.group_by("policy", "seed").agg(total=pl.col("regret").sum())


def check_claims(made, page):
    """Every claim has a verdict, and stands in the report."""
    assert made.claims
    for claim in made.claims:
        assert claim.verdict in VERDICTS
        assert claim.claim
        assert claim.where
        assert claim.measured
        assert claim.claim.split("'")[0].split("≫")[0][:40] in page


# --- The synthetic study ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curves(tmp_path_factory, drawings):
    folder = tmp_path_factory.mktemp("curves")
    with drawings():
        made = reproduce("synthetic", folder, quick=True, seeds=3, tasks=8, execution=ALONE)
    return folder, made, (folder / "report.html").read_text()


def test_the_synthetic_study_draws_the_papers_curves_twice(curves):
    folder, made, page = curves
    assert made.path == folder / "report.html"
    assert figures_in(folder, drawn=True) == {
        "scatter",
        "synthetic-rounds",
        "synthetic-tasks",
        "synthetic-per-task",
        "synthetic-totals",
        "bound",
        "printed-rounds",
        "printed-tasks",
        "printed-totals",
        "printed-subspace",
    }
    for words in ("Expected transfer regret", "Cumulative regret", "printed constants", "claims"):
        assert words in page
    assert "<script src" not in page


def test_the_table_is_total_regret_against_linucbs(curves):
    folder, made, _ = curves
    wanted = paired_ratios(totals_in(folder / "synthetic"), "LinUCB")
    assert made.totals["policy"].to_list() == wanted["policy"].to_list()
    np.testing.assert_allclose(made.totals["ratio"], wanted["ratio"])
    np.testing.assert_allclose(made.totals["low"], wanted["low"])
    assert set(made.totals["policy"]) == {
        DEFAULT,
        "LinUCB",
        "LinTS",
        "B-OFUL",
        "P-LinUCB",
        "P-TS",
        "M-TS",
        "projection oracle",
        "Bayes oracle",
    }
    others = made.totals["ratio"].to_list()[1:]
    assert made.totals["policy"][0] == DEFAULT  # whatever its ratio is
    assert others == sorted(others)
    assert made.title.startswith("synthetic: total regret ÷ LinUCB's, ")


def test_the_default_comes_first_in_every_figure_of_the_comparison(curves):
    folder, *_ = curves
    regret = pl.read_parquet(folder / "synthetic" / "regret.parquet")
    for figure in (
        figures.transfer_regret(regret),
        figures.cumulative_regret(regret),
        figures.per_task_regret(regret),
    ):
        assert figure.draw().legends[0].get_texts()[0].get_text() == DEFAULT
        assert figure.explore().data[0].legendgroup == DEFAULT
    listed = figures.totals(regret).draw().axes[0]
    heights = {label.get_text(): label.get_position()[1] for label in listed.get_yticklabels()}
    low, high = listed.get_ylim()
    assert abs(heights[DEFAULT] - high) == min(abs(height - high) for height in heights.values())
    assert low != high


def test_no_page_of_a_study_has_another_name_for_the_default(curves):
    *_, page = curves
    assert DEFAULT in page
    assert "empirical Bayes" not in page


def test_claims_say_what_was_measured(curves):
    folder, made, page = curves
    check_claims(made, page)
    ratios = {row["policy"]: row for row in made.totals.iter_rows(named=True)}
    first = made.claims[0]
    for policy in ("P-LinUCB", "P-TS", "B-OFUL", "M-TS"):
        assert f"{policy} {ratios[policy]['ratio']:.3f}" in first.measured
    clear = all(
        ratios[ours]["high"] < ratios[other]["low"]
        for ours in ("P-LinUCB", "P-TS")
        for other in ("B-OFUL", "M-TS", "LinUCB")
    )
    ahead = ratios["P-LinUCB"]["ratio"] < ratios["B-OFUL"]["ratio"]
    assert first.verdict == ("holds" if clear else "holds with changes" if ahead else "fails")
    printed = paired_ratios(totals_in(folder / "synthetic-printed"), "LinUCB")
    as_printed = next(claim for claim in made.claims if "printed" in claim.claim)
    own = printed.filter(pl.col("policy") == "P-LinUCB")["ratio"].item()
    assert f"P-LinUCB {own:.3f}" in as_printed.measured


def test_a_summary_is_plain_data(curves):
    _, made, _ = curves
    summary = json.loads(json.dumps(made.summary()))
    assert summary["report"] == str(made.path)
    assert [row["policy"] for row in summary["totals"]] == made.totals["policy"].to_list()
    assert {"claim", "where", "measured", "verdict", "remark"} == set(summary["claims"][0])
    assert len(summary["claims"]) == len(made.claims) == 5


def test_the_report_says_how_it_was_made(curves):
    _, _, page = curves
    for words in (
        "headstart reproduce synthetic --quick --seeds 3 --tasks 8",
        f"3 seeds × 8 tasks × {ROUNDS} rounds",
        "1000–1002",
        "A quick study",
        np.__version__,
    ):
        assert words in page


def test_results_are_kept_with_their_manifests(curves):
    folder, _, _ = curves
    for name, policies in (("synthetic", 9), ("synthetic-printed", 8)):
        said = json.loads((folder / name / "manifest.json").read_text())
        assert said["seeds"] == [1000, 1001, 1002]
        assert len(said["policies"]) == policies
    probes = pl.read_parquet(folder / "synthetic" / "probes.parquet")
    assert set(probes["name"]) == {"W", "W2"}


def test_a_full_study_tunes_and_shows_how_much_tuning_mattered(tmp_path):
    tiny = dataclasses.replace(
        runner.FULL, seeds=2, tasks=2, rounds=5, tuning_seeds=1, tuning_tasks=2
    )
    study = Runner(tmp_path, tiny, execution=ALONE)
    results, tuning = synthetic.play_all(study)
    sections = synthetic.comparison(study, results, tuning)
    (section,) = [section for section in sections if "tuning" in section.title]
    (figure,) = section.figures
    tried = pl.read_parquet(tmp_path / "synthetic-tuning" / "regret.parquet")
    assert set(tried["seed"]) == {9000}
    assert not set(tried["seed"]) & set(results.regret["seed"])
    assert len(figure.table)
    best = json.loads((tmp_path / "synthetic-tuning" / "best.json").read_text())
    assert set(best) == set(PAPER)
    assert any("tuned on 1 other seeds" in section.text for section in sections)


# --- Ranks and subspace -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return folder, reproduce("ranks", folder, quick=True, seeds=2, tasks=4, execution=ALONE)


def test_the_rank_sweep_draws_total_regret_against_q(ranks):
    folder, made = ranks
    assert figures_in(folder) == {"ranks", "ranks-fixed", "printed-ranks"}
    assert sorted(made.totals["q"].unique()) == [0, 5, 10, 15, 20, 25]
    each = totals_in(folder / "ranks")
    for row in made.totals.iter_rows(named=True):
        own = each.filter(pl.col("policy") == f"{row['policy']}|{row['q']}")
        assert row["total"] == pytest.approx(own["total"].mean())
    check_claims(made, (folder / "report.html").read_text())
    least = {
        policy: made.totals.filter(pl.col("policy") == policy).sort("total")["q"][0]
        for policy in ("λ's from data", "λ₁ = 100, λ₂ = 1")
    }
    for policy, q in least.items():
        assert f"q = {q} with {policy}" in made.claims[0].measured
    assert (made.claims[0].verdict == "holds") == (least["λ's from data"] == 15)


def test_the_title_says_what_the_table_shows(ranks):
    """The rank sweep's table has totals, not ratios to a baseline."""
    _, made = ranks
    assert "÷" not in made.title


def test_a_rebuilt_report_is_the_same_and_simulates_nothing(ranks, no_simulation):
    folder, made = ranks
    before = (folder / "report.html").read_bytes()
    drawn = {file.name: file.read_bytes() for file in (folder / "figures").iterdir()}
    (folder / "report.html").unlink()
    again = rebuild(folder, execution=ALONE)
    assert again.path.read_bytes() == before
    assert {file.name: file.read_bytes() for file in (folder / "figures").iterdir()} == drawn
    assert again.totals.equals(made.totals)
    assert list(again.claims) == list(made.claims)


def test_a_report_is_rebuilt_on_a_machine_with_other_cores(ranks, no_simulation):
    folder, _ = ranks
    rebuild(folder, execution=Execution(workers=2))


def test_the_subspace_study_measures_the_distance_of_new_tasks(tmp_path):
    made = reproduce("subspace", tmp_path, quick=True, seeds=2, tasks=36, execution=ALONE)
    assert figures_in(tmp_path) == {"subspace"}
    check_claims(made, (tmp_path / "report.html").read_text())
    assert made.title.startswith("subspace: total regret ÷ B-OFUL's, ")
    assert dict(made.totals.select("policy", "ratio").iter_rows())["B-OFUL"] == 1.0
    assert {"P-LinUCB", "P-TS"} < set(made.totals["policy"])
    measured = pl.read_parquet(tmp_path / "synthetic" / "probes.parquet")
    assert set(measured["policy"]) == {"B-OFUL", "P-LinUCB", "P-TS"}
    late = measured.filter(
        (pl.col("policy") == "B-OFUL") & (pl.col("name") == "W") & (pl.col("task") >= 27)
    )
    share = late["value"].mean() ** 2 / (15 * 0.02**2)
    assert f"B-OFUL {share:.0f}" in made.claims[0].measured


def test_too_few_tasks_to_learn_a_subspace_are_no_crash(tmp_path):
    """Nothing is learned before as many tasks as dimensions: say so, or report what there is."""
    try:
        made = reproduce("subspace", tmp_path, quick=True, seeds=2, tasks=8, execution=ALONE)
    except hs.InputError:
        return
    assert made.path.exists()


def test_the_claims_of_the_text_are_all_put_to_the_test(tmp_path):
    tiny = dataclasses.replace(SMALL, seeds=2, tasks=3)
    found = claims.more_claims(Runner(tmp_path, tiny, tune=False, execution=ALONE))
    said = " ".join(claim.claim for claim in found)
    for words in ("2V", "initial phase", "eigengap", "smaller p", "λ₁ ≫ λ₂", "forced"):
        assert words in said
    for claim in found:
        assert claim.verdict in VERDICTS
        assert claim.measured


# --- MovieLens ----------------------------------------------------------------------------------


def write_movielens(folder, seed=0, users=12, movies=300, genres=18, past=0):
    """Made-up files in the format of MovieLens 1M: all but the first ``past`` have 260 ratings."""
    rng = np.random.default_rng(seed)
    kinds = [
        sorted(rng.choice(genres, size=rng.integers(1, min(genres, 5) + 1), replace=False))
        for _ in range(movies)
    ]
    lines = {
        "users.dat": [
            f"{user + 1}::{'MF'[user % 3 == 0]}::25::{(12, 20)[user % 2]}::48067"
            for user in range(users)
        ],
        "movies.dat": [
            f"{movie + 1}::Movie {movie} (1995)::{'|'.join(GENRES[kind] for kind in kinds[movie])}"
            for movie in range(movies)
        ],
        "ratings.dat": [
            f"{user + 1}::{movie + 1}::{rng.integers(1, 6)}::978300760"
            for user in range(users)
            for movie in rng.permutation(movies)[: 100 if user < past else 260]
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in lines.items():
        (folder / name).write_bytes("".join(f"{line}\n" for line in text).encode("latin-1"))
    return folder


@pytest.fixture(scope="module")
def unverified():
    """The study takes any files in the true format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(movielens, "MovieLens", functools.partial(MovieLens, verify=False))
        yield


@contextlib.contextmanager
def few_worlds():
    """Two worlds of the main table, two more of the calibration, and any files as MovieLens."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, wanted in (
            (extensions, "WORLDS", ("mean off the plane", "no structure")),
            (
                calibration,
                "MORE_WORLDS",
                ("rewards with heavy tails", 'clicks, 5 % (reward="binary")'),
            ),
        ):
            every = getattr(module, name)
            patch.setattr(module, name, {each: every[each] for each in wanted})
        patch.setattr(extensions, "MovieLens", functools.partial(MovieLens, verify=False))
        yield


@pytest.fixture(scope="module")
def farther(tmp_path_factory):
    """Everything beyond the paper, in few worlds."""
    data = write_movielens(tmp_path_factory.mktemp("data") / "ml-1m", users=24, past=6)
    folder = tmp_path_factory.mktemp("beyond")
    sizes = {"quick": True, "seeds": 2, "tasks": 4}
    with few_worlds():
        made = reproduce("beyond", folder, **sizes, data=data, execution=ALONE)
    return made, folder


def test_beyond_the_paper_every_world_has_its_row_and_its_figures(farther):
    made, folder = farther
    assert made.totals["world"].to_list() == ["mean off the plane", "no structure"]
    totals = totals_in(folder / "beyond-no-structure").pivot(
        on="policy", index="seed", values="total"
    )
    row = made.totals.row(1, named=True)
    for baseline in ("LinUCB", "Bayes oracle"):
        ratio = totals[DEFAULT].sum() / totals[baseline].sum()
        assert row[f"÷ {baseline}"] == pytest.approx(ratio, rel=0.02)
    worst = (totals[DEFAULT] / totals["LinUCB"]).max()
    assert row["worst seed"] == pytest.approx(worst)
    names = figures_in(folder)
    assert {"beyond-no-structure-totals", "beyond-no-structure-per-task"} <= names
    assert {"beyond-groups-totals", "beyond-curve-totals", "beyond-clicks-totals"} <= names
    assert {"beyond-wide-totals", "beyond-short-per-task"} <= names
    assert {"calibration-expected", "calibration-rewards"} <= names
    assert {"beyond-movielens-men-totals", "beyond-movielens-women-totals"} <= names


def test_beyond_the_paper_what_it_is_held_to_is_settled(farther):
    _, folder = farther
    page = (folder / "report.html").read_text()
    for words in (
        "What holds",
        "Calibration: nominal and actual",
        "from task 3 to 4 on 2 seeds",
        "contain 85% to 95% of expected rewards: rewards with heavy tails",
        "Low-rank candidates help, wide",
        "running at once",
        "Rewards of 0 and 1",
        "better features",
    ):
        assert words.lower() in page.lower()
    files = (folder / "beyond-at-once" / "parts").glob("*.npz")
    regret = [np.load(path)["result"] for path in files]
    assert [each.shape for each in regret] == [(4,), (4,)]
    assert (np.array(regret) > 0).all()


def test_beyond_the_paper_a_report_is_made_again_without_simulating(farther, no_simulation):
    made, folder = farther
    with few_worlds():
        again = rebuild(folder)
    assert again.totals.equals(made.totals)


@pytest.fixture(scope="module")
def films(tmp_path_factory, unverified):
    data = write_movielens(tmp_path_factory.mktemp("data") / "ml-1m")
    folder = tmp_path_factory.mktemp("movielens")
    made = reproduce("movielens", folder, quick=True, seeds=3, data=data, execution=ALONE)
    return folder, made, (folder / "report.html").read_text()


def test_movielens_is_drawn_for_men_women_and_the_largest_occupation(films):
    folder, made, page = films
    groups = ("men", "women", "programmer")
    assert figures_in(folder) == {
        f"movielens-{group}-{what}"
        for group in groups
        for what in ("rounds", "tasks", "totals", "printed-rounds", "printed-totals")
    }
    for group in groups:
        assert f"MovieLens, {group}" in page
    assert "8 of 8 users" in page  # all the men there are
    assert made.title.startswith("MovieLens, men")


def test_movielens_has_every_policy_that_needs_no_truth(films):
    folder, made, _ = films
    assert set(made.totals["policy"]) == {
        "LinUCB",
        "LinTS",
        "B-OFUL",
        "P-LinUCB",
        "P-TS",
        "M-TS",
        "M-TS, unforced",
        "M-TS, ridge",
    }
    wanted = paired_ratios(totals_in(folder / "movielens-men"), "LinUCB")
    np.testing.assert_allclose(made.totals["ratio"], wanted["ratio"])


def test_movielens_settles_its_claims(films):
    _, made, page = films
    check_claims(made, page)
    said = [claim.claim for claim in made.claims]
    assert any("men" in claim for claim in said)
    assert any("women" in claim for claim in said)
    assert any("singular" in claim for claim in said)


def test_singular_users_are_counted(tmp_path, unverified):
    few = write_movielens(tmp_path / "few", genres=3)
    many = write_movielens(tmp_path / "many")
    shares = [movielens.singular_share(Runner(tmp_path, SMALL, data=data)) for data in (few, many)]
    assert shares[0] == 1.0
    population = MovieLens(data=many, verify=False).population(0)
    singular = [
        np.linalg.matrix_rank(population.episode(user, 36).contexts[:, 0]) < 18
        for user in range(12)
    ]
    assert shares[1] == np.mean(singular)


def test_other_files_than_grouplens_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "MovieLens", MovieLens)
    data = write_movielens(tmp_path / "ml-1m", users=3, movies=260)
    with pytest.raises(hs.FileError, match="GroupLens published"):
        reproduce("movielens", tmp_path / "out", quick=True, data=data, execution=ALONE)


def test_a_data_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(hs.FileError, match=r"ratings\.dat"):
        reproduce("movielens", tmp_path / "out", quick=True, data=tmp_path, execution=ALONE)


# --- Asking for what cannot be ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"study": "nonsense"}, "study"),
        ({"study": "ranks", "seeds": 1}, "seeds"),
        ({"study": "ranks", "tasks": 0}, "tasks"),
        ({"study": "ranks", "tasks": 1.5}, "tasks"),
    ],
)
def test_a_study_that_cannot_be_is_refused_by_name(tmp_path, options, word):
    with pytest.raises(hs.InputError, match=word):
        reproduce(**options, out=tmp_path / "out", quick=True, execution=ALONE)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(hs.FileError, match="cannot be written"):
        reproduce("ranks", tmp_path / "file", quick=True, execution=ALONE)
    with pytest.raises(hs.FileError, match="cannot be written"):
        compare(out=tmp_path / "file", seeds=2, tasks=1, rounds=2, execution=ALONE)


def test_afresh_forgets_earlier_results_and_touches_nothing_else(tmp_path, monkeypatch):
    collected = Findings([], [], "ranks", pl.DataFrame({"policy": ["LinUCB"], "ratio": [1.0]}))
    monkeypatch.setattr(reproduction, "collect", lambda runner, study: [collected])
    out = tmp_path / "out"
    reproduce("ranks", out, quick=True)
    kept = out / "ranks" / "parts" / "old.npz"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    (out / "notes.md").write_text("mine")
    reproduce("ranks", out, quick=True)
    assert kept.exists()
    reproduce("ranks", out, quick=True, resume=False)
    assert not kept.exists()
    assert (out / "notes.md").read_text() == "mine"


def test_afresh_leaves_a_folder_alone_that_no_study_has_filled(tmp_path, monkeypatch):
    collected = Findings([], [], "ranks", pl.DataFrame({"policy": ["LinUCB"], "ratio": [1.0]}))
    monkeypatch.setattr(reproduction, "collect", lambda runner, study: [collected])
    (tmp_path / "notes.md").write_text("mine")
    reproduce("ranks", tmp_path, quick=True, resume=False)
    assert (tmp_path / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("content", [None, "no JSON"])
def test_a_folder_that_no_study_has_filled_has_no_report(tmp_path, content):
    if content:
        (tmp_path / "study.json").write_text(content)
    with pytest.raises(hs.FileError, match=r"reproduce.*compare"):
        rebuild(tmp_path)


# --- Engines ------------------------------------------------------------------------------------


def test_a_study_of_a_gpu_is_rebuilt_where_there_is_none(
    tmp_path, pretend_gpu, no_gpu, no_simulation, monkeypatch
):
    """What the GPU has played is found, and so is what it could not play."""
    sizes = {"quick": True, "seeds": 2, "tasks": 3}
    with monkeypatch.context() as there:
        there.setattr("headstart.lab.gpu.missing", lambda: None)
        there.setattr("headstart.lab.experiments.experiment.play_jobs", play_jobs)
        there.setattr("headstart.lab.experiments.execution.simulate", simulate)
        with pytest.warns(UserWarning, match="runs on the CPU"):
            made = reproduce("ranks", tmp_path, **sizes, execution=Execution(1, "gpu"))
    devices = {json.loads(file.read_text())["device"] for file in tmp_path.glob("*/manifest.json")}
    assert devices == {"cpu", "gpu"}
    assert pretend_gpu
    assert json.loads((tmp_path / reproduction.ARGUMENTS).read_text())["engine"] == "gpu"
    again = rebuild(tmp_path, execution=ALONE)
    assert again.totals.equals(made.totals)
    assert list(again.claims) == list(made.claims)


def test_a_study_made_before_there_were_engines_is_rebuilt(tmp_path, no_simulation, monkeypatch):
    with monkeypatch.context() as there:
        there.setattr("headstart.lab.experiments.experiment.play_jobs", play_jobs)
        there.setattr("headstart.lab.experiments.execution.simulate", simulate)
        made = reproduce("synthetic", tmp_path, quick=True, seeds=2, tasks=3, execution=ALONE)
    note = json.loads((tmp_path / reproduction.ARGUMENTS).read_text())
    del note["engine"]
    (tmp_path / reproduction.ARGUMENTS).write_text(json.dumps(note))
    assert rebuild(tmp_path, execution=ALONE).totals.equals(made.totals)


def test_the_command_that_does_the_same_names_the_engine(tmp_path, pretend_gpu):
    """A GPU's tasks are others than the CPU's: without it, other numbers would come out."""
    sizes = {"quick": True, "seeds": 2, "tasks": 3}
    with pytest.warns(UserWarning, match="runs on the CPU"):
        made = reproduce("ranks", tmp_path, **sizes, execution=Execution(1, "gpu"))
    page = made.path.read_text()
    assert "headstart reproduce ranks --quick" in page
    assert "--engine gpu" in page


def test_a_bad_engine_costs_no_earlier_results(tmp_path):
    """A slip of the pen must not throw a study away."""
    sizes = {"quick": True, "seeds": 2, "tasks": 3}
    reproduce("synthetic", tmp_path, **sizes, execution=ALONE)
    before = sorted(tmp_path.rglob("*.npz"))
    with pytest.raises(hs.InputError, match="engine"):
        reproduce("synthetic", tmp_path, **sizes, resume=False, execution=Execution(1, "warp"))
    assert sorted(tmp_path.rglob("*.npz")) == before
    rebuild(tmp_path, execution=ALONE)


# --- Comparisons of one's own -------------------------------------------------------------------

SIZES = {"seeds": 4, "first_seed": 5, "tasks": 12, "rounds": 25}
TEXTS = (
    "linucb:lam=0.5",
    "bias_oful:lam=plug-in,radius=5e-1",
    "projected_linucb:rank=2,warmup=4,label=two directions",
)
HERE = "synthetic:dim=5,rank=2,arms=4,mean=anywhere"


@pytest.fixture(scope="module")
def compared(tmp_path_factory, drawings):
    folder = tmp_path_factory.mktemp("compared")
    with drawings():
        return folder, compare(world=HERE, policies=TEXTS, **SIZES, out=folder, execution=ALONE)


def test_a_comparison_writes_figures_report_and_tables(compared):
    folder, made = compared
    assert len(figures_in(folder, drawn=True)) == 4
    page = made.path.read_text()
    assert "two directions" in page
    assert "Synthetic(dim=5, rank=2, arms=4, mean=&#x27;anywhere&#x27;)" in page
    assert json.loads((folder / "manifest.json").read_text())["seeds"] == [5, 6, 7, 8]
    assert made.claims == ()
    json.dumps(made.summary())


def test_a_comparison_is_against_the_first_policy(compared):
    folder, made = compared
    wanted = paired_ratios(totals_in(folder), "LinUCB")
    np.testing.assert_allclose(made.totals["ratio"], wanted["ratio"])
    assert set(made.totals["policy"]) == {"LinUCB", "B-OFUL", "two directions"}
    assert "LinUCB's" in made.title


def test_the_plan_that_was_written_does_the_same_again(compared, tmp_path):
    folder, made = compared
    again = compare(folder / "plan.toml", out=tmp_path, execution=ALONE)
    assert again.totals.equals(made.totals)
    assert again.title == made.title
    assert (tmp_path / "plan.toml").read_text() == (folder / "plan.toml").read_text()
    assert again.path.read_bytes() == made.path.read_bytes()


def test_a_comparisons_report_is_rebuilt_without_simulating(compared, no_simulation):
    folder, made = compared
    before = made.path.read_bytes()
    again = rebuild(folder, execution=ALONE)
    assert again.path.read_bytes() == before
    assert again.totals.equals(made.totals)


def test_a_comparison_of_a_gpu_is_rebuilt_where_there_is_none(
    tmp_path, pretend_gpu, no_gpu, no_simulation, monkeypatch
):
    """What ``headstart report`` is for: the results are all there."""
    with monkeypatch.context() as there:
        there.setattr("headstart.lab.gpu.missing", lambda: None)
        there.setattr("headstart.lab.experiments.experiment.play_jobs", play_jobs)
        made = compare(
            world=HERE, policies=TEXTS, **SIZES, out=tmp_path, execution=Execution(engine="gpu")
        )
    assert len(pretend_gpu) == 1
    before = made.path.read_bytes()
    again = rebuild(tmp_path, execution=ALONE)
    assert again.totals.equals(made.totals)
    assert again.path.read_bytes() == before


def test_a_report_made_again_is_that_of_the_last_run(tmp_path, pretend_gpu):
    """Where a folder has a GPU's results and the CPU's, whichever came last."""
    for engine in ("gpu", "auto", "gpu"):
        made = compare(
            world=HERE,
            policies=TEXTS,
            **SIZES,
            out=tmp_path,
            execution=Execution(workers=1, engine=engine),
        )
        before = pl.read_parquet(tmp_path / "regret.parquet")
        again = rebuild(tmp_path, execution=ALONE)
        assert again.totals.equals(made.totals), engine
        assert pl.read_parquet(tmp_path / "regret.parquet").equals(before)


def test_a_comparison_that_the_cpu_did_instead_is_rebuilt(
    tmp_path, no_gpu, no_simulation, monkeypatch
):
    with monkeypatch.context() as there:
        there.setattr("headstart.lab.experiments.experiment.play_jobs", play_jobs)
        there.setattr("headstart.lab.experiments.execution.simulate", simulate)
        with pytest.warns(UserWarning, match="there is no GPU"):
            made = compare(
                world=HERE,
                policies=TEXTS,
                **SIZES,
                out=tmp_path,
                execution=Execution(workers=1, engine="gpu"),
            )
    assert rebuild(tmp_path, execution=ALONE).totals.equals(made.totals)


def test_a_file_says_the_same_as_text(tmp_path, compared):
    plan = tmp_path / "mine.toml"
    plan.write_text(
        """
        seeds = 4
        first_seed = 5
        tasks = 12
        rounds = 25

        [world]
        name = "synthetic"
        dim = 5
        rank = 2
        arms = 4
        mean = "anywhere"

        [[policy]]
        name = "linucb"
        lam = 0.5

        [[policy]]
        name = "bias_oful"
        lam = "plug-in"
        radius = 0.5

        [[policy]]
        name = "projected_linucb"
        label = "two directions"
        rank = 2
        warmup = 4
        """
    )
    made = compare(plan, out=tmp_path / "out", execution=ALONE)
    assert made.totals.equals(compared[1].totals)


@pytest.mark.parametrize(
    ("world", "policies"),
    [
        ("synthetic", ["linucb"]),
        ("synthetic:dim=8,rank=3,noise=1e-3,mean=on", ["bias_oful:lam=1e-7,method=pooled"]),
        ("synthetic", ["linucb:label=λ = 1", "linucb:lam=2,label=λ = 2"]),
        ("synthetic", ["linucb:label=17", "linucb:lam=2,label=1e3"]),
        ("synthetic", ['linucb:label=the "plain" one']),
        ("synthetic", ["linucb:label=C\\new"]),
        ("movielens:group=men,intercept=true,verify=false,data=some\\new folder", ["linucb"]),
    ],
)
def test_every_plan_survives_being_written(tmp_path, world, policies):
    described = split_options("world", world), [split_options("policy", each) for each in policies]
    text = comparison.toml(SIZES, *described)
    (tmp_path / "plan.toml").write_text(text)
    assert comparison.read_plan(tmp_path / "plan.toml") == (SIZES, *described, text)


def test_sizes_may_be_left_out(tmp_path):
    (tmp_path / "plan.toml").write_text('[[policy]]\nname = "linucb"\n')
    sizes, world, policies, _ = comparison.read_plan(tmp_path / "plan.toml")
    assert sizes == {"seeds": 8, "first_seed": 0, "tasks": 100, "rounds": 250}
    assert world == ("synthetic", {})
    assert policies == [("linucb", {})]


POLICY = '[[policy]]\nname = "linucb"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["[[policy]]"]),
        ("tasks = 3\n", ["[[policy]]"]),
        ("[[policy]]\nlam = 2\n", ["[[policy]]", "name"]),
        ('policy = ["linucb"]\n', ["[[policy]]"]),
        ("sizes = 3\n" + POLICY, ["sizes", "seeds", "world"]),
        ("seeds = 1\n" + POLICY, ["seeds", "1"]),
        ("seeds = 2.5\n" + POLICY, ["seeds", "2.5"]),
        ("tasks = 0\n" + POLICY, ["tasks", "0"]),
        ("first_seed = -1\n" + POLICY, ["first_seed", "-1"]),
        ('world = "synthetic"\n' + POLICY, ["world"]),
        ('[world]\nname = "moon"\n' + POLICY, ["world", "moon", "synthetic"]),
        ("[world]\nranks = 3\n" + POLICY, ["option of synthetic", "ranks", "rank"]),
        ('[world]\nrank = "three"\n' + POLICY, ["rank", "three"]),
        ('[world]\nname = "logged"\n' + POLICY, ["logged", "table", "task", "reward"]),
        (POLICY + "lm = 2\n", ["option of linucb", "lm"]),
        (POLICY + "lam = [2]\n", ["lam"]),
        ("this is no TOML", ["not valid TOML", "plan.toml"]),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(hs.HeadstartError) as caught:
        compare(tmp_path / "plan.toml", out=tmp_path / "out", execution=ALONE)
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_report_is_rebuilt_with_the_sizes_that_replaced_a_files(tmp_path):
    plan = tmp_path / "mine.toml"
    plan.write_text(
        'tasks = 9\nseeds = 2\n[world]\nname = "synthetic"\n[[policy]]\nname = "linucb"\n'
    )
    made = compare(plan, tasks=2, rounds=4, out=tmp_path / "out", execution=ALONE)
    assert rebuild(tmp_path / "out", execution=ALONE).totals.equals(made.totals)
    again = tomllib.loads((tmp_path / "out" / "plan.toml").read_text())
    assert (again["tasks"], again["rounds"], again["seeds"]) == (2, 4, 2)


def test_a_report_is_rebuilt_with_any_label(tmp_path):
    policies = ("linucb", 'bias_oful:lam=1e-3,label=☃ 😀 "\\')
    sizes = {"seeds": 2, "tasks": 2, "rounds": 4}
    made = compare(policies=policies, **sizes, out=tmp_path, execution=ALONE)
    assert rebuild(tmp_path, execution=ALONE).totals.equals(made.totals)


def test_a_plan_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(hs.FileError, match=r"nowhere\.toml"):
        compare(tmp_path / "nowhere.toml", out=tmp_path / "out")


@pytest.mark.parametrize("rounds", [1, 7, 51, 99])
def test_any_number_of_rounds_will_do(tmp_path, rounds):
    """Totals are those of the last round, whatever the checkpoints."""
    made = compare(
        world=HERE,
        policies=["linucb"],
        seeds=2,
        tasks=3,
        rounds=rounds,
        out=tmp_path,
        execution=ALONE,
    )
    assert made.totals["ratio"].to_list() == [1.0]
    assert pl.read_parquet(tmp_path / "regret.parquet")["round"].max() == rounds


def test_two_seeds_will_do_however_wide_the_interval(tmp_path):
    made = compare(
        world=HERE,
        policies=TEXTS,
        seeds=2,
        tasks=2,
        rounds=5,
        out=tmp_path,
        execution=ALONE,
    )
    assert made.totals["low"].min() < 0  # so wide that the logarithmic axis cannot show it
    assert made.path.exists()


def test_two_policies_of_one_name_need_labels(tmp_path):
    with pytest.raises(hs.InputError, match="different names"):
        compare(
            world=HERE,
            policies=["linucb", "linucb:lam=2"],
            seeds=2,
            tasks=1,
            rounds=2,
            out=tmp_path,
            execution=ALONE,
        )


def test_logged_data_is_a_world_too(tmp_path):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((400, 3)) / 3
    frame = pl.DataFrame(contexts, schema=["x1", "x2", "x3"]).with_columns(
        user=pl.Series(np.repeat(np.arange(8), 50)),
        reward=pl.Series(contexts @ [1.0, -1.0, 0.5] + 0.1 * rng.standard_normal(400)),
    )
    frame.write_csv(tmp_path / "log.csv")
    made = compare(
        world=f"logged:table={tmp_path / 'log.csv'},task=user,reward=reward,contexts=x*,arms=5",
        policies=["linucb", "bias_oful"],
        seeds=3,
        tasks=8,
        rounds=30,
        out=tmp_path / "out",
        execution=ALONE,
    )
    ratios = dict(made.totals.select("policy", "ratio").rows())
    assert ratios["B-OFUL"] < 1  # all users have the same taste
    again = compare(tmp_path / "out" / "plan.toml", out=tmp_path / "again", execution=ALONE)
    assert again.totals.equals(made.totals)


# --- What there is ------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [list_worlds, list_policies])
def test_lists_are_plain_data_with_a_line_on_each(listed):
    rows = listed()
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        assert {"name", "about", "options"} <= set(row)
        assert row["about"].strip().endswith(".")


def test_every_listed_option_is_taken():
    populations = [Synthetic().population(0)]
    for row in list_policies():
        options = ",".join(
            f"{name}={value}" for name, value in row["options"].items() if value is not None
        )
        listed, usual = (parse(text) for text in (f"{row['name']}:{options}", row["name"]))
        assert listed.for_populations(populations) == usual.for_populations(populations)
    worlds = {row["name"]: row["options"] for row in list_worlds()}
    assert set(worlds) == {"synthetic", "clicks", "movielens", "logged"}
    assert comparison.make_world("synthetic", worlds["synthetic"]) == Synthetic()
    assert worlds["logged"]["table"] == "required"


def test_the_example_in_the_documentation_is_a_plan(tmp_path):
    text = (compare.__doc__ or "").split("::", 1)[1]
    assert tomllib.loads(text)
    (tmp_path / "plan.toml").write_text(text)
    sizes, world, policies, _ = comparison.read_plan(tmp_path / "plan.toml")
    assert sizes["tasks"] == 200
    assert comparison.make_world(*world) == Synthetic(rank=3)
    assert policies == [("projected_linucb", {"label": "three directions", "rank": 3})]


# --- Results of one seed each -------------------------------------------------------------------


def play_squares(seed, count):
    """Something that a seed gives."""
    return float(seed) * np.arange(count) ** 2


def test_results_of_seeds_are_kept_and_damaged_ones_made_again(tmp_path):
    """A disk that was full leaves half a file: it counts as missing, and is no traceback."""
    study = Runner(tmp_path, SMALL, execution=ALONE)
    jobs = [(seed, 3) for seed in (1, 2)]
    first = study.play_seeds("squares", play_squares, jobs)
    np.testing.assert_array_equal(first, [[0, 1, 4], [0, 2, 8]])
    stored = dataclasses.replace(study, execution=Execution(workers=1, stored_only=True))
    np.testing.assert_array_equal(stored.play_seeds("squares", play_squares, jobs), first)
    with pytest.raises(hs.FileError, match="lacks 1 of 3"):
        stored.play_seeds("squares", play_squares, [*jobs, (3, 3)])
    path = next((tmp_path / "squares" / "parts").iterdir())
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(hs.FileError, match="lacks 1 of 2"):
        stored.play_seeds("squares", play_squares, jobs)
    np.testing.assert_array_equal(study.play_seeds("squares", play_squares, jobs), first)
    (tmp_path / "file").write_text("")
    elsewhere = dataclasses.replace(study, folder=tmp_path / "file")
    with pytest.raises(hs.FileError, match="cannot be written"):
        elsewhere.play_seeds("squares", play_squares, jobs)


# --- Parts of a study side by side ---------------------------------------------------------------


def play_part(study, seed):
    """A plan of the study, and jobs of its own."""
    world = Synthetic(dim=4, rank=2, arms=3)
    results = study.run(f"part-{seed}", world, [parse("linucb")], seeds=(seed,), tasks=3)
    doubled = study.play_seeds(f"jobs-{seed}", np.multiply, [(seed, 2.0), (seed, 3.0)])
    return results.regret, doubled


def stop_part(study):
    raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore:the experiment runs on the CPU")
def test_beside_a_gpu_the_cores_play_the_other_parts_with_the_same_results(tmp_path):
    """Here there is none, so that they play all of them."""
    parts = [functools.partial(play_part, seed=seed) for seed in (1, 2, 3)]
    beside = Runner(tmp_path / "a", SMALL, execution=Execution(engine="gpu", workers=2))
    found = beside.side_by_side(*parts)
    wanted = Runner(tmp_path / "b", SMALL, execution=ALONE).side_by_side(*parts)
    for (ours, doubled), (theirs, twice) in zip(found, wanted, strict=True):
        assert ours.equals(theirs)
        np.testing.assert_array_equal(doubled, twice)
    with pytest.raises(ZeroDivisionError):
        beside.side_by_side(parts[0], stop_part)
