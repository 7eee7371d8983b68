"""Experiments: plans, the same results however they are run, and runs that resume."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import headstart as hs
from headstart.lab import Execution, Plan, probes, run
from headstart.lab.engine import simulate
from headstart.lab.policies import Policy, policy
from headstart.rules import UCB
from headstart.transfer import Oracle
from headstart.worlds import Logged, Synthetic

ALONE = Execution(workers=1)
WORLD = Synthetic(dim=5, rank=2, arms=4)
POLICIES = (policy("linucb"), policy("lints"), policy("bias_oful"))
PLAN = Plan(WORLD, POLICIES, (4, 5, 6), tasks=4, rounds=10, checkpoints=(5, 10))
#: Two jobs in one process: no more than ten seeds share a batch.
LONG = dataclasses.replace(PLAN, seeds=tuple(range(12)), tasks=3)


def reporting(function):
    """Progress that is given to a function, whatever its label."""
    return lambda label: contextlib.nullcontext(function)


def parts(folder):
    return sorted((folder / "parts").glob("*.npz"))


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def assert_same(left, right):
    """The same rows, to the last bit."""
    order = ["policy", "seed", "task", "round"]
    assert_frame_equal(left.regret.sort(order), right.regret.sort(order), check_exact=True)
    order[-1] = "name"
    assert_frame_equal(left.probes.sort(order), right.probes.sort(order), check_exact=True)


# --- Plans --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"policies": ()}, "policy"),
        ({"seeds": ()}, "seed"),
        ({"tasks": 0}, "tasks"),
        ({"tasks": 2.0}, "tasks"),
        ({"rounds": 0}, "rounds"),
        ({"checkpoints": (11,)}, "checkpoints"),
        ({"checkpoints": (0, 10)}, "checkpoints"),
        ({"policies": (policy("linucb"), policy("linucb", lam=2.0))}, "different names"),
        ({"seeds": (1, 2, 1)}, "seed"),
        ({"device": "tpu"}, "device.*'cpu', 'gpu'"),
        ({"device": None}, "device"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_before_anything_runs(change, word):
    with pytest.raises(hs.InputError, match=word):
        dataclasses.replace(PLAN, **change)


def test_two_policies_of_one_name_are_refused_however_many_there_are():
    many = [policy("linucb", f"policy {number}") for number in range(17)]
    many[-1] = many[0]
    with pytest.raises(hs.InputError, match="different names"):
        run(Plan(WORLD, tuple(many), (1,), tasks=1, rounds=2), execution=ALONE)


def test_regret_is_recorded_at_the_last_round_unless_told_otherwise():
    assert dataclasses.replace(PLAN, checkpoints=()).recorded_rounds == (10,)
    assert PLAN.recorded_rounds == (5, 10)


def test_jobs_cover_every_policy_and_seed_once():
    many = tuple(policy("linucb", f"policy {number}") for number in range(37))
    for plan in (PLAN, LONG, dataclasses.replace(LONG, policies=many)):
        jobs = plan.jobs()
        done = [
            (seed, policy.name) for job in jobs for seed in job.seeds for policy in job.policies
        ]
        wanted = [(seed, policy.name) for seed in plan.seeds for policy in plan.policies]
        assert sorted(done) == sorted(wanted)
        assert sum(job.work for job in jobs) == plan.work
        assert len({job.key for job in jobs}) == len(jobs)
        for job in jobs:
            assert len(job.seeds) <= 10  # so that memory stays small
            assert dataclasses.replace(job, seeds=plan.seeds, policies=plan.policies) == plan


def test_a_gpu_takes_many_seeds_at_once_and_eight_policies():
    many = tuple(policy("linucb", f"policy {number}") for number in range(19))
    plan = dataclasses.replace(PLAN, policies=many, seeds=tuple(range(5000)), device="gpu")
    jobs = plan.jobs()
    assert {job.device for job in jobs} == {"gpu"}
    assert max(len(job.seeds) for job in jobs) == 2048
    assert max(len(job.policies) for job in jobs) == 8
    assert len(jobs) == 3 * 3
    assert sum(job.work for job in jobs) == plan.work
    assert len(dataclasses.replace(PLAN, device="gpu").jobs()) == 1


BIG = np.arange(8.0)
TABLE = pl.DataFrame({"user": ["a"] * 4, "x": [0.1, 0.2, 0.3, 0.4], "reward": [0.0, 1.0, 0.0, 1.0]})


def logged(table):
    return Logged(table, task="user", reward="reward", contexts="x", arms=2)


def told(mean):
    return Policy("told", Oracle.gaussian(mean, np.eye(8)), UCB())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({}, {"seeds": (4, 5)}, id="seeds"),
        pytest.param({}, {"tasks": 5}, id="tasks"),
        pytest.param({}, {"rounds": 11}, id="rounds"),
        pytest.param({}, {"checkpoints": (10,)}, id="checkpoints"),
        pytest.param({}, {"probe": probes.residual}, id="probe"),
        pytest.param({}, {"device": "gpu"}, id="device"),
        pytest.param({}, {"world": Synthetic(dim=5, rank=2, arms=4, noise=0.2)}, id="world"),
        pytest.param(
            {}, {"policies": (*POLICIES, policy("projection_oracle"))}, id="one policy more"
        ),
        pytest.param(
            {"policies": (policy("linucb"),)},
            {"policies": (policy("linucb", lam=1 + 1e-15),)},
            id="last digit",
        ),
        pytest.param(
            {"policies": (policy("linucb"),)},
            {"policies": (policy("linucb", "mine"),)},
            id="name",
        ),
        pytest.param(
            {"policies": (policy("projected_linucb", rank=2),)},
            {"policies": (policy("projected_linucb", rank=2, pca="ccipca"),)},
            id="option",
        ),
        pytest.param({"policies": (told(BIG),)}, {"policies": (told(-BIG),)}, id="large arrays"),
        pytest.param(
            {"world": logged(TABLE)},
            {"world": logged(TABLE.with_columns(reward=1 - pl.col("reward")))},
            id="tables",
        ),
    ],
)
def test_a_plans_key_follows_from_everything_that_decides_the_result(one, other):
    """Otherwise a resumed run would take another plan's results for its own."""
    first, second = (dataclasses.replace(PLAN, **change) for change in (one, other))
    assert first.key != second.key
    again = dataclasses.replace(first)
    assert again.key == first.key


# --- Results ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan_with_probe():
    return dataclasses.replace(PLAN, probe=probes.residual)


@pytest.fixture(scope="module")
def here(plan_with_probe):
    return run(plan_with_probe, execution=ALONE)


def test_results_are_a_tidy_table(here, plan_with_probe):
    assert here.regret.schema == {
        "seed": pl.Int64,
        "policy": pl.String,
        "task": pl.Int64,
        "round": pl.Int64,
        "regret": pl.Float64,
    }
    assert here.probes.schema == {
        "seed": pl.Int64,
        "policy": pl.String,
        "task": pl.Int64,
        "name": pl.String,
        "value": pl.Float64,
    }
    assert len(here.regret) == 3 * 3 * 4 * 2
    traces = simulate(WORLD, POLICIES, PLAN.seeds, 4, 10, (5, 10), probes.residual)
    for row in here.regret.iter_rows(named=True):
        place = (PLAN.seeds.index(row["seed"]), row["task"], (5, 10).index(row["round"]))
        assert row["regret"] == traces[row["policy"]].regret[place]
    assert set(here.probes["policy"]) == {"B-OFUL"}
    for row in here.probes.iter_rows(named=True):
        value = traces["B-OFUL"].probes[row["name"]][PLAN.seeds.index(row["seed"]), row["task"]]
        np.testing.assert_equal(row["value"], value)


def test_totals_are_sums_over_tasks_at_the_last_round(here):
    totals = here.totals()
    assert set(totals.columns) == {"policy", "seed", "total"}
    assert len(totals) == 9
    for row in totals.iter_rows(named=True):
        tasks = here.regret.filter(
            (pl.col("policy") == row["policy"])
            & (pl.col("seed") == row["seed"])
            & (pl.col("round") == 10)
        )
        assert row["total"] == pytest.approx(tasks["regret"].sum(), rel=1e-12)


def test_two_processes_give_exactly_what_one_gives(here, plan_with_probe, tmp_path):
    told = []
    there = run(
        plan_with_probe,
        tmp_path,
        Execution(workers=2, progress=reporting(lambda done, all: told.append((done, all)))),
    )
    assert_same(there, here)
    assert {total for _, total in told} == {plan_with_probe.work}
    done = [count for count, _ in told]
    assert done == sorted(done)


def test_the_environment_is_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    from headstart.lab.experiments.execution import one_thread_each

    with one_thread_each():
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_progress_ends_at_the_whole_of_the_work():
    told = []
    run(
        LONG,
        execution=Execution(
            workers=1, progress=reporting(lambda done, all: told.append((done, all)))
        ),
    )
    assert told[0] == (0.0, LONG.work)
    assert told[-1] == (LONG.work, LONG.work)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_workers_must_be_one_or_more():
    with pytest.raises(hs.InputError, match="workers"):
        run(PLAN, execution=Execution(workers=0))


# --- On disk ------------------------------------------------------------------------------------


def test_a_folder_gets_tables_and_a_manifest(here, plan_with_probe, tmp_path):
    found = run(plan_with_probe, tmp_path / "new" / "folder", ALONE)
    folder = tmp_path / "new" / "folder"
    assert_frame_equal(pl.read_parquet(folder / "regret.parquet"), found.regret)
    assert_frame_equal(pl.read_parquet(folder / "probes.parquet"), found.probes)
    said = manifest(folder)
    assert said["key"] == plan_with_probe.key
    assert said["world"] == "Synthetic(dim=5, rank=2, arms=4)"
    assert said["policies"] == {policy.name: repr(policy) for policy in POLICIES}
    assert said["seeds"] == [4, 5, 6]
    assert (said["tasks"], said["rounds"], said["checkpoints"]) == (4, 10, [5, 10])
    assert said["policy_rounds"] == 3 * 3 * 4 * 10
    assert said["jobs_run"] >= 1
    assert said["seconds"] > 0
    assert said["versions"]["numpy"] == np.__version__
    assert said["versions"]["headstart"] == hs.__version__
    assert set(said["versions"]) >= {"python", "scipy", "polars"}


def test_seeds_may_be_numpys_integers(tmp_path):
    """A manifest that cannot be written would cost a finished run."""
    plan = dataclasses.replace(PLAN, seeds=tuple(np.arange(4, 6)), tasks=1)
    run(plan, tmp_path, ALONE)
    assert manifest(tmp_path)["seeds"] == [4, 5]


def test_what_is_finished_is_not_run_again(here, plan_with_probe, tmp_path, monkeypatch):
    run(plan_with_probe, tmp_path, ALONE)

    def never(*args, **kwargs):
        raise AssertionError("simulated again")

    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never)
    again = run(plan_with_probe, tmp_path, ALONE)
    assert_same(again, here)
    assert manifest(tmp_path)["jobs_run"] == 0


def test_results_on_disk_do_not_depend_on_how_many_cores_there_are(
    plan_with_probe, tmp_path, monkeypatch
):
    """A run that was begun with one number of workers is finished with another."""
    run(plan_with_probe, tmp_path, ALONE)

    def never(*args, **kwargs):
        raise AssertionError("simulated again")

    monkeypatch.setattr(
        "headstart.lab.experiments.experiment.play_jobs",
        lambda jobs, *rest: (never(job) for job in jobs),
    )
    run(plan_with_probe, tmp_path, Execution(workers=2))
    assert manifest(tmp_path)["jobs_run"] == 0


def test_another_plan_in_the_same_folder_does_not_take_the_first_ones_results(tmp_path):
    first = run(PLAN, tmp_path, ALONE)
    other = dataclasses.replace(PLAN, world=dataclasses.replace(WORLD, noise=0.5))
    second = run(other, tmp_path, ALONE)
    assert manifest(tmp_path)["jobs_run"] >= 1
    assert not second.regret.equals(first.regret)
    assert_same(run(PLAN, tmp_path, ALONE), first)
    assert manifest(tmp_path)["jobs_run"] == 0


def test_an_interrupted_run_keeps_what_was_finished_and_does_only_the_rest(tmp_path, monkeypatch):
    wanted = run(LONG, tmp_path / "whole", ALONE)
    first = LONG.jobs()[0]

    def interrupt(done, total):
        if done > first.work:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(LONG, tmp_path, Execution(workers=1, progress=reporting(interrupt)))
    kept = parts(tmp_path)
    assert 0 < len(kept) < len(parts(tmp_path / "whole"))
    assert kept == sorted((tmp_path / "parts").iterdir())
    assert not (tmp_path / "regret.parquet").exists()
    told, played = [], []

    def noted(world, policies, seeds, *rest):
        played.extend(seeds)
        return simulate(world, policies, seeds, *rest)

    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", noted)
    found = run(
        LONG,
        tmp_path,
        Execution(workers=1, progress=reporting(lambda done, total: told.append(done))),
    )
    assert sorted(played) == sorted(set(LONG.seeds) - set(first.seeds))
    assert told[0] == first.work  # progress counts what was found
    assert told[-1] == LONG.work
    assert 0 < manifest(tmp_path)["jobs_run"] < manifest(tmp_path / "whole")["jobs_run"]
    assert_same(found, wanted)


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_a_part_that_was_cut_short_is_computed_again(here, plan_with_probe, tmp_path, keep):
    run(plan_with_probe, tmp_path, ALONE)
    part = parts(tmp_path)[0]
    whole = part.read_bytes()
    part.write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    assert_same(run(plan_with_probe, tmp_path, ALONE), here)
    assert manifest(tmp_path)["jobs_run"] == 1
    assert part.read_bytes() == whole


def test_a_part_that_was_damaged_is_computed_again(here, plan_with_probe, tmp_path):
    run(plan_with_probe, tmp_path, ALONE)
    part = parts(tmp_path)[0]
    whole = bytearray(part.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    part.write_bytes(whole)
    assert_same(run(plan_with_probe, tmp_path, ALONE), here)


def test_a_part_that_is_no_archive_is_computed_again(here, plan_with_probe, tmp_path):
    run(plan_with_probe, tmp_path, ALONE)
    parts(tmp_path)[0].write_text("something else")
    assert_same(run(plan_with_probe, tmp_path, ALONE), here)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(hs.FileError, match="cannot be written") as caught:
            run(PLAN, folder, ALONE)
        assert str(tmp_path / "file") in str(caught.value)


def test_tables_that_cannot_be_written_are_refused_by_name(tmp_path):
    (tmp_path / "regret.parquet").mkdir()
    with pytest.raises(hs.FileError, match="cannot be written"):
        run(PLAN, tmp_path, ALONE)


# --- Engines ------------------------------------------------------------------------------------

MIXED = dataclasses.replace(LONG, policies=(*POLICIES, policy("meta_ts", forced_rounds=4)))


@pytest.fixture(scope="module")
def by_plain():
    return run(MIXED, execution=Execution(workers=1, engine="plain"))


def never_again(*args, **kwargs):
    raise AssertionError("simulated again")


@pytest.mark.parametrize("engine", ["compiled", "auto"])
def test_every_engine_finds_the_same(by_plain, engine):
    found = run(MIXED, execution=Execution(workers=1, engine=engine))
    assert found.plan == by_plain.plan
    assert_frame_equal(found.regret, by_plain.regret, check_exact=False, rel_tol=0, abs_tol=1e-9)


def test_the_engine_is_passed_on_to_whoever_plays(monkeypatch, tmp_path):
    asked = []

    def noted(*arguments):
        asked.append(arguments[-1])
        return simulate(*arguments)

    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", noted)
    for engine in ("plain", "compiled", "auto"):
        run(PLAN, execution=Execution(workers=1, engine=engine))
    run(PLAN, execution=ALONE)
    assert asked == ["plain", "compiled", "auto", "auto"]


def test_processes_are_told_the_engine_too(by_plain):
    """To the last bit: the compiled loops add in another order."""
    assert_same(run(MIXED, execution=Execution(workers=2, engine="plain")), by_plain)


@pytest.mark.parametrize(("first", "second"), [("plain", "compiled"), ("compiled", "plain")])
def test_what_one_engine_has_computed_the_other_need_not(tmp_path, monkeypatch, first, second):
    wanted = run(PLAN, tmp_path, Execution(workers=1, engine=first))
    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never_again)
    assert_same(run(PLAN, tmp_path, Execution(workers=1, engine=second)), wanted)
    assert manifest(tmp_path)["jobs_run"] == 0
    assert manifest(tmp_path)["device"] == "cpu"


@pytest.mark.parametrize("engine", ["cuda", "", None, "GPU", 3])
def test_an_engine_that_there_is_not_is_refused_with_those_there_are(engine, tmp_path):
    with pytest.raises(hs.InputError) as caught:
        run(PLAN, tmp_path / "new", Execution(workers=1, engine=engine))
    for word in ("engine", "'auto'", "'plain'", "'compiled'", "'gpu'", repr(engine)):
        assert word in str(caught.value)
    assert not (tmp_path / "new").exists()


# --- Elsewhere ----------------------------------------------------------------------------------


class Elsewhere:
    """Runs jobs one after the other, the last one first, and remembers what it was asked."""

    def __init__(self):
        self.jobs, self.closed = [], 0

    def __call__(self, jobs, function, *arguments):
        self.jobs.append(list(jobs))
        try:
            for place in reversed(range(len(jobs))):
                yield place, function(jobs[place], *arguments)
        finally:
            self.closed += 1


def test_seeds_that_run_elsewhere_give_the_same(plan_with_probe, tmp_path):
    plan = dataclasses.replace(plan_with_probe, seeds=LONG.seeds)
    elsewhere, told = Elsewhere(), []
    found = run(
        plan,
        tmp_path,
        Execution(
            executor=elsewhere, progress=reporting(lambda done, total: told.append((done, total)))
        ),
    )
    assert_same(found, run(plan, execution=ALONE))
    assert not found.probes.is_empty()
    assert [len(jobs) for jobs in elsewhere.jobs] == [len(plan.seeds)]
    assert told[0] == (0.0, plan.work)
    assert told[-1] == (plan.work, plan.work)
    assert len(told) == 1 + len(plan.seeds)
    assert len(parts(tmp_path)) == manifest(tmp_path)["jobs_run"] == len(plan.jobs())


def test_only_what_is_missing_runs_elsewhere(tmp_path):
    elsewhere = Elsewhere()
    wanted = run(LONG, tmp_path, ALONE)
    assert_same(run(LONG, tmp_path, Execution(executor=elsewhere)), wanted)
    assert elsewhere.jobs == []
    parts(tmp_path)[0].unlink()
    assert_same(run(LONG, tmp_path, Execution(executor=elsewhere)), wanted)
    assert len(elsewhere.jobs[0]) < len(LONG.seeds)
    assert manifest(tmp_path)["jobs_run"] == 1


def test_what_runs_elsewhere_is_called_off_when_a_run_is_interrupted(tmp_path):
    elsewhere = Elsewhere()

    def interrupt(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(LONG, tmp_path, Execution(executor=elsewhere, progress=reporting(interrupt)))
    assert caught.tb is not None
    assert elsewhere.closed == 1  # at once, not when the error is forgotten
    kept = len(parts(tmp_path))
    assert 0 < kept < len(LONG.jobs())
    assert_same(
        run(LONG, tmp_path, Execution(executor=elsewhere)),
        run(LONG, execution=ALONE),
    )
    assert manifest(tmp_path)["jobs_run"] == len(LONG.jobs()) - kept


def test_any_iterable_of_places_and_results_will_do():
    def spread(jobs, function, *arguments):
        return [(place, function(job, *arguments)) for place, job in enumerate(jobs)]

    assert_same(run(LONG, execution=Execution(executor=spread)), run(LONG, execution=ALONE))


def test_what_a_gpu_plays_is_not_sent_elsewhere(pretend_gpu):
    elsewhere = Elsewhere()
    run(LONG, execution=Execution(engine="gpu", executor=elsewhere))
    assert pretend_gpu == [LONG.seeds]
    assert elsewhere.jobs == []


# --- A GPU --------------------------------------------------------------------------------------


def test_without_a_gpu_a_warning_says_why_and_the_cpu_does_it(
    here, plan_with_probe, tmp_path, no_gpu
):
    plan = dataclasses.replace(plan_with_probe, probe=None)
    with pytest.warns(UserWarning, match="runs on the CPU: there is no GPU") as told:
        found = run(plan, tmp_path, Execution(workers=1, engine="gpu"))
    assert len(told) == 1
    assert told[0].filename == __file__, "it points at the line that asked"
    assert_frame_equal(found.regret, here.regret, check_exact=True)
    assert found.plan == plan
    assert found.plan.device == manifest(tmp_path)["device"] == "cpu"
    assert manifest(tmp_path)["key"] == plan.key


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"probe": probes.residual}, "probe runs"),
        ({"world": Synthetic(dim=5, rank=2, arms=4, drift=0.1)}, "draws its tasks on the CPU"),
        ({"policies": (policy("mixture"),)}, "mixture learns by"),
        ({"policies": (policy("linucb", radius="theory"),)}, "LinUCB chooses by"),
    ],
)
def test_what_a_gpu_cannot_do_is_said_and_done_elsewhere(pretend_gpu, change, reason):
    plan = dataclasses.replace(PLAN, **change)
    with pytest.warns(UserWarning, match=f"runs on the CPU: .*{reason}"):
        found = run(plan, execution=Execution(workers=1, engine="gpu"))
    assert pretend_gpu == []
    assert_same(found, run(plan, execution=ALONE))


def test_a_gpu_is_used_where_there_is_one(pretend_gpu, tmp_path):
    told = []
    found = run(
        LONG,
        tmp_path,
        Execution(
            workers=2, engine="gpu", progress=reporting(lambda done, all: told.append((done, all)))
        ),
    )
    assert pretend_gpu == [LONG.seeds], "all seeds at once, in this process"
    assert found.plan == dataclasses.replace(LONG, device="gpu")
    assert manifest(tmp_path)["device"] == "gpu"
    assert manifest(tmp_path)["jobs_run"] == 1
    cpu = run(LONG, execution=ALONE)
    order = ["policy", "seed", "task", "round"]
    assert_frame_equal(
        found.regret.sort(order),
        cpu.regret.with_columns(pl.col("regret") + 1.0).sort(order),
        abs_tol=1e-9,
    )
    assert found.probes.is_empty()
    assert told[0] == (0.0, LONG.work)
    assert told[-1] == (LONG.work, LONG.work)


def test_what_a_gpu_has_computed_is_kept(pretend_gpu, tmp_path):
    first = run(PLAN, tmp_path, Execution(workers=1, engine="gpu"))
    again = run(PLAN, tmp_path, Execution(workers=1, engine="gpu"))
    assert len(pretend_gpu) == 1
    assert_same(again, first)
    assert manifest(tmp_path)["jobs_run"] == 0


def test_a_gpus_results_are_not_taken_for_the_cpus_nor_the_other_way_round(pretend_gpu, tmp_path):
    there = run(PLAN, tmp_path, Execution(workers=1, engine="gpu"))
    here = run(PLAN, tmp_path, ALONE)
    assert manifest(tmp_path)["jobs_run"] == 1
    assert manifest(tmp_path)["device"] == "cpu"
    assert (there.regret["regret"] - here.regret["regret"]).min() > 0.9
    assert_same(run(PLAN, tmp_path, Execution(workers=1, engine="gpu")), there)
    assert_same(run(PLAN, tmp_path, ALONE), here)
    assert len(pretend_gpu) == 1
    assert len(parts(tmp_path)) == 2


def test_a_gpus_results_can_be_looked_at_where_there_is_none(
    pretend_gpu, no_gpu, tmp_path, monkeypatch
):
    monkeypatch.setattr("headstart.lab.gpu.missing", lambda: None)
    wanted = run(PLAN, tmp_path, Execution(workers=1, engine="gpu"))
    no_gpu()
    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never_again)
    found = run(
        PLAN, tmp_path, Execution(workers=1, engine="gpu", stored_only=True)
    )  # and without a warning
    assert_same(found, wanted)
    assert found.plan.device == "gpu"
    assert len(pretend_gpu) == 1
    shown = run(
        PLAN, tmp_path, Execution(workers=1, stored_only=True)
    )  # asked for or not, they are what is there
    assert shown.plan.device == "gpu"


def test_what_the_cpu_did_instead_is_found_again(no_gpu, tmp_path, monkeypatch):
    with pytest.warns(UserWarning, match="there is no GPU"):
        wanted = run(PLAN, tmp_path, Execution(workers=1, engine="gpu"))
    monkeypatch.setattr("headstart.lab.experiments.execution.simulate", never_again)
    found = run(PLAN, tmp_path, Execution(workers=1, engine="gpu", stored_only=True))
    assert_same(found, wanted)
    assert found.plan.device == "cpu"


def test_half_of_a_gpus_results_are_not_enough(pretend_gpu, tmp_path):
    many = tuple(policy("linucb", f"policy {number}") for number in range(9))
    plan = dataclasses.replace(PLAN, policies=many)
    run(plan, tmp_path, Execution(workers=1, engine="gpu"))
    assert len(parts(tmp_path)) == len(pretend_gpu) == 2
    parts(tmp_path)[0].unlink()
    with pytest.raises(hs.FileError, match="lacks"):
        run(plan, tmp_path, Execution(workers=1, engine="gpu", stored_only=True))
    run(plan, tmp_path, Execution(workers=1, engine="gpu"))
    assert len(pretend_gpu) == 3, "only the half that is missing"


# --- Ctrl-C -------------------------------------------------------------------------------------

COMMAND = Path(sys.executable).with_name("headstart")


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_ctrl_c_leaves_what_was_finished_and_the_command_resumes(tmp_path):
    """As a terminal sends it: to the command and all its workers."""
    plan = Plan(
        WORLD,
        (policy("linucb"), policy("lints")),
        tuple(range(21)),
        tasks=60,
        rounds=25,
        checkpoints=tuple(range(1, 26)),
    )
    words = [str(COMMAND), "compare", "--policy", "linucb", "--policy", "lints", "--workers", "2"]
    words += ["--world", "synthetic:dim=5,rank=2,arms=4", "--seeds", "21", "--tasks", "60"]
    words += ["--rounds", "25", "--json", "--out"]
    folder = tmp_path / "cut"
    process = subprocess.Popen(
        [*words, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not parts(folder) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    kept = {part: part.stat().st_mtime_ns for part in parts(folder)}
    assert kept
    assert not (folder / "regret.parquet").exists(), "the interrupt came too late"
    assert out == ""
    assert "Traceback" not in err
    alone = [*words, str(folder), "--workers", "1"]  # jobs do not depend on the number of processes
    again = subprocess.run(alone, capture_output=True, text=True, check=True)
    assert len(json.loads(again.stdout)["totals"]) == 2
    assert 0 < manifest(folder)["jobs_run"] < len(plan.jobs())
    assert {part: part.stat().st_mtime_ns for part in kept} == kept
    order = ["policy", "seed", "task", "round"]
    assert_frame_equal(
        pl.read_parquet(folder / "regret.parquet").sort(order),
        run(plan, execution=ALONE).regret.sort(order),
        check_exact=True,
    )
    assert process.returncode == 130
    assert "interrupted" in err
    assert "kept" in err
