"""Tuning: the same grids for all, the least mean total wins, on the seeds given and no others."""

import dataclasses
import json

import polars as pl
import pytest

from headstart.algorithms import ALGORITHMS
from headstart.lab import Execution, Plan, run
from headstart.lab.policies import PAPER, policy
from headstart.lab.studies.runner import FULL, QUICK, Runner, tuned_options
from headstart.lab.tuning import LAMBDAS, MULTIPLIERS, Tuning, grid, tune
from headstart.worlds import Synthetic

ALONE = Execution(workers=1)
WORLD = Synthetic(dim=4, rank=2, arms=3)
SEEDS, TASKS, ROUNDS = (70, 71), 6, 8
TRIED = ("linucb", "bias_oful", "projected_ts", "bayes_oracle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tuning")


@pytest.fixture(scope="module")
def tuning(folder):
    return tune(WORLD, TRIED, SEEDS, TASKS, ROUNDS, folder=folder, execution=ALONE)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_grid_has_the_same_multipliers(kind):
    tried = [options.get("radius", options.get("scale")) for options in grid(kind)]
    assert sorted(set(tried)) == sorted(MULTIPLIERS)
    assert all(tried.count(number) == tried.count(MULTIPLIERS[0]) for number in MULTIPLIERS)


#: Those that are told how much tasks differ, or find it out by themselves.
WITHOUT_LAMBDA = ("bayes_oracle", "empirical_bayes", "empirical_bayes_ts", "mixture")


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_grid_has_the_same_lambdas(kind):
    settings = grid(kind)
    if kind in WITHOUT_LAMBDA:
        assert all(not set(options) & {"lam", "lam1", "lam2"} for options in settings)
    elif "lam" in settings[0]:
        assert {options["lam"] for options in settings} - {"plug-in"} == set(LAMBDAS)
    else:
        pairs = {
            (options["lam1"], options["lam2"]) for options in settings if options["lam1"] in LAMBDAS
        }
        assert pairs == {(a, b) for a in LAMBDAS for b in LAMBDAS if a > b}


def test_a_grid_is_every_combination_once():
    for kind in ALGORITHMS:
        settings = [tuple(sorted(options.items(), key=str)) for options in grid(kind)]
        assert len(set(settings)) == len(settings)
        for options in grid(kind):
            policy(kind, **options)  # every point of it is a policy


def test_lambdas_from_data_are_one_more_point():
    for kind in ("bias_oful", "projected_linucb", "projected_ts"):
        assert any("plug-in" in options.values() for options in grid(kind))


def test_the_table_has_every_setting_on_every_seed(tuning):
    assert set(tuning.table.columns) == {
        "algorithm",
        "policy",
        "multiplier",
        "lam",
        "lam1",
        "lam2",
        "label",
        "seed",
        "total",
    }
    assert len(tuning.table) == sum(len(grid(kind)) for kind in TRIED) * len(SEEDS)
    for kind in TRIED:
        rows = tuning.table.filter(pl.col("algorithm") == kind)
        assert set(rows["policy"]) == {policy(kind).name}
        wanted = {
            tuple(
                str(options[name]) if name in options else None for name in ("lam", "lam1", "lam2")
            )
            for options in grid(kind)
        }
        assert set(rows.select("lam", "lam1", "lam2").rows()) == wanted
        assert set(rows["multiplier"]) == {str(number) for number in MULTIPLIERS}
    assert not tuning.table.select("label", "seed").is_duplicated().any()


def test_the_least_mean_total_wins(tuning):
    for kind in TRIED:
        rows = tuning.table.filter(pl.col("algorithm") == kind)
        means = {
            label: rows.filter(pl.col("label") == label)["total"].mean()
            for label in rows["label"].unique()
        }
        best = tuning.best[kind]
        label = f"{kind}:" + ",".join(f"{name}={value}" for name, value in best.items())
        assert means[label] == min(means.values())
        assert best in grid(kind)


def test_the_totals_are_those_of_a_run(tuning):
    options = {"radius": 0.5, "lam": 10.0}
    label = "linucb:radius=0.5,lam=10.0"
    mine = policy("linucb", label, **options)
    totals = run(Plan(WORLD, (mine,), SEEDS, TASKS, ROUNDS), execution=ALONE).totals()
    found = tuning.table.filter(pl.col("label") == label)
    assert dict(found.select("seed", "total").rows()) == dict(totals.select("seed", "total").rows())


def test_tuning_uses_the_given_seeds_and_no_others(tuning, folder):
    assert set(tuning.table["seed"]) == set(SEEDS)
    said = json.loads((folder / "manifest.json").read_text())
    assert (said["seeds"], said["tasks"], said["rounds"]) == (list(SEEDS), TASKS, ROUNDS)


def test_the_tuned_policies_bear_their_usual_names(tuning):
    assert tuning.policies() == tuple(policy(kind, **tuning.best[kind]) for kind in TRIED)
    assert [policy.name for policy in tuning.policies()] == [
        "LinUCB",
        "B-OFUL",
        "P-TS",
        "Bayes oracle",
    ]


def test_tuning_again_takes_what_is_on_disk(tuning, folder, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("simulated again")

    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never)
    again = tune(WORLD, TRIED, SEEDS, TASKS, ROUNDS, folder=folder, execution=ALONE)
    assert again.best == tuning.best
    order = ["label", "seed"]
    assert again.table.sort(order).equals(tuning.table.sort(order))


def test_fixed_options_are_set_and_not_tuned():
    found = tune(
        WORLD,
        ("meta_ts",),
        SEEDS[:1],
        2,
        5,
        fixed={"meta_ts": {"forced_rounds": 3, "estimate": "ridge"}},
        execution=ALONE,
    )
    assert found.best["meta_ts"].items() >= {"forced_rounds": 3, "estimate": "ridge"}.items()
    assert len(found.table) == len(grid("meta_ts"))


def test_a_knob_that_is_fixed_is_taken_out_of_the_grid():
    found = tune(
        WORLD,
        ("linucb",),
        SEEDS[:1],
        2,
        5,
        fixed={"linucb": {"lam": 3.0}},
        execution=ALONE,
    )
    assert found.best["linucb"]["lam"] == 3.0
    assert len(found.table) == len(MULTIPLIERS)


# --- In a study ---------------------------------------------------------------------------------


def test_no_seed_is_both_tuned_on_and_reported():
    for scale in (FULL, QUICK):
        assert not set(scale.held_out_seeds) & set(scale.reported_seeds)
        assert len(scale.reported_seeds) == scale.seeds
        assert len(scale.held_out_seeds) == scale.tuning_seeds
    assert FULL.seeds >= 20


def test_the_full_size_is_the_papers():
    assert (FULL.tasks, FULL.rounds) == (400, 250)
    world = Synthetic()
    assert (world.dim, world.rank) == (30, 15)


def test_settings_that_come_along_are_known_policies():
    known = tuned_options()
    assert set(known["synthetic"]) == set(PAPER)
    for study in known.values():
        for kind, options in study.items():
            policy(kind, **options)


def test_a_bench_that_does_not_tune_takes_what_comes_along(tmp_path):
    policies, tuning = Runner(tmp_path, QUICK, tune=False).tune_policies("synthetic", Synthetic())
    assert tuning is None
    known = tuned_options()["synthetic"]
    assert policies == tuple(policy(kind, **known[kind]) for kind in PAPER)
    assert not list(tmp_path.iterdir())


def test_a_bench_that_tunes_keeps_the_best_on_disk(tmp_path):
    scale = dataclasses.replace(QUICK, rounds=5, tuning_seeds=1, tuning_tasks=2)
    policies, tuning = Runner(tmp_path, scale, execution=ALONE).tune_policies(
        "mine", WORLD, ("linucb", "lints")
    )
    assert isinstance(tuning, Tuning)
    assert policies == tuning.policies()
    assert json.loads((tmp_path / "mine-tuning" / "best.json").read_text()) == tuning.best
    assert set(tuning.table["seed"]) == set(scale.held_out_seeds)
