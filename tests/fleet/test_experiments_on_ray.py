"""Experiments on a Ray cluster: the same results to the last bit, also when workers are killed."""

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import headstart as hs
from headstart.fleet.engines.cluster import connect
from headstart.lab import Execution, Plan, probes, run
from headstart.lab.one_seed import play_interleaved
from headstart.lab.policies import policy
from headstart.lab.studies import reproduction, runner
from headstart.lab.studies.comparison import compare
from headstart.lab.studies.reproduction import reproduce
from headstart.lab.studies.runner import Runner
from headstart.lab.tuning import tune
from headstart.worlds import Synthetic

ray = pytest.importorskip("ray")

ALONE = Execution(workers=1)
WORLD = Synthetic(dim=5, rank=2, arms=4)
PLAN = Plan(
    WORLD, (policy("linucb"), policy("lints"), policy("bias_oful")), tuple(range(7)), 4, 10, (5, 10)
)
TINY = ["--world", "synthetic:dim=5,rank=2,arms=4", "--seeds", "3", "--tasks", "4"]
TINY += ["--rounds", "10", "--policy", "linucb", "--policy", "projected_ts"]


def reporting(function):
    """Progress that is given to a function, whatever its label."""
    return lambda label: contextlib.nullcontext(function)


@pytest.fixture(scope="module", autouse=True)
def run_jobs(machines):
    """What runs jobs on the test run's cluster."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    with connect("ray") as found:
        yield found.run_jobs


@pytest.fixture
def on_ray(run_jobs):
    """Experiments on that cluster."""
    return Execution(executor=run_jobs)


@pytest.fixture
def no_figures(monkeypatch):
    """Drawings take longer than all the rest here."""
    monkeypatch.setattr("headstart.lab.figures.Figure.save", lambda *_: [])


def assert_same(left, right):
    assert_frame_equal(left.regret, right.regret, check_exact=True)
    assert_frame_equal(left.probes, right.probes, check_exact=True)


def parts(folder):
    return sorted(part.relative_to(folder) for part in folder.rglob("parts/*.npz"))


# --- The same results ---------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_a_plan_gives_the_same_to_the_last_bit(tmp_path, engine, run_jobs):
    plan = dataclasses.replace(PLAN, probe=probes.residual)
    told = []
    there = run(
        plan,
        tmp_path / "there",
        Execution(
            engine=engine,
            executor=run_jobs,
            progress=reporting(lambda done, total: told.append((done, total))),
        ),
    )
    here = run(plan, tmp_path / "here", Execution(engine=engine, workers=1))
    assert_same(there, here)
    assert not there.probes.is_empty()
    assert parts(tmp_path / "there") == parts(tmp_path / "here")
    # Progress after every seed, in the same units as here.
    assert told[0] == (0.0, plan.work)
    assert told[-1] == (plan.work, plan.work)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) >= len(plan.seeds)


def test_a_comparison_is_the_same_in_every_file(tmp_path, no_figures, on_ray):
    sizes = {"world": TINY[1], "seeds": 7, "tasks": 4, "rounds": 10}
    there = compare(**sizes, out=tmp_path / "there", execution=on_ray)
    here = compare(**sizes, out=tmp_path / "here", execution=ALONE)
    assert there.totals.equals(here.totals)
    for name in ("regret.parquet", "plan.toml", "report.html"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert parts(tmp_path / "there") == parts(tmp_path / "here")


def test_a_study_is_the_same_in_every_file(tmp_path, no_figures, monkeypatch, on_ray):
    small = dataclasses.replace(runner.QUICK, rounds=10)
    monkeypatch.setattr(reproduction, "QUICK", small)
    sizes = {"quick": True, "seeds": 2, "tasks": 4}
    there = reproduce("subspace", tmp_path / "there", **sizes, execution=on_ray)
    here = reproduce("subspace", tmp_path / "here", **sizes, execution=ALONE)
    assert there.claims == here.claims
    for name in ("study.json", "report.html"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert parts(tmp_path / "there") == parts(tmp_path / "here") != []


def test_tuning_finds_the_same(tmp_path, on_ray):
    sizes = (WORLD, ("linucb",), (1, 2), 2, 5)
    there, here = (
        tune(*sizes, execution=on_ray),
        tune(*sizes, execution=ALONE),
    )
    assert there.table.equals(here.table)
    assert there.best == here.best


def test_what_plays_one_seed_at_a_time_finds_the_same(tmp_path, on_ray):
    scale = dataclasses.replace(runner.QUICK, tasks=4, rounds=10)
    there = Runner(tmp_path / "there", scale, execution=on_ray)
    here = Runner(tmp_path / "here", scale, execution=ALONE)
    jobs = [(WORLD, seed, 4, 10, 2) for seed in (3, 1, 2)]
    found, wanted = (each.play_seeds("at-once", play_interleaved, jobs) for each in (there, here))
    np.testing.assert_array_equal(found, wanted)


def test_a_run_that_was_begun_here_is_finished_there_and_the_other_way_round(tmp_path, on_ray):
    wanted = run(PLAN, tmp_path, ALONE)
    first, second = sorted((tmp_path / "parts").glob("*.npz"))
    first.unlink()
    assert_same(run(PLAN, tmp_path, on_ray), wanted)
    assert json.loads((tmp_path / "manifest.json").read_text())["jobs_run"] == 1
    second.unlink()
    assert_same(run(PLAN, tmp_path, ALONE), wanted)
    assert json.loads((tmp_path / "manifest.json").read_text())["jobs_run"] == 1


# --- What can go wrong --------------------------------------------------------------------------


def die_once(marker):
    """``kill -9`` of this very process, the first time that it comes here."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@dataclasses.dataclass(frozen=True, repr=False)
class Deadly(Synthetic):
    """A world that kills whoever plays seed 4, once."""

    marker: str = ""

    def population(self, seed):
        if seed == 4:
            die_once(self.marker)
        return super().population(seed)


def test_a_killed_worker_changes_nothing(tmp_path, on_ray):
    marker = str(tmp_path / "killed")
    deadly = dataclasses.replace(PLAN, world=Deadly(dim=5, rank=2, arms=4, marker=marker))
    found = run(deadly, tmp_path / "results", on_ray)
    assert Path(marker).exists()
    assert_same(found, run(PLAN, execution=ALONE))


@dataclasses.dataclass(frozen=True, repr=False)
class Refusing(Synthetic):
    def population(self, seed):
        raise hs.InputError("seed must not be asked for")


def test_errors_come_back_as_they_were(on_ray):
    plan = dataclasses.replace(PLAN, world=Refusing(dim=5, rank=2, arms=4))
    with pytest.raises(hs.InputError, match=r"^seed must not be asked for$"):
        run(plan, execution=on_ray)


def test_an_interrupted_run_keeps_what_was_finished(tmp_path, on_ray, run_jobs):
    long = dataclasses.replace(PLAN, seeds=tuple(range(21)))

    def interrupt(done, total):
        if parts(tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(long, tmp_path, Execution(executor=run_jobs, progress=reporting(interrupt)))
    assert len(parts(tmp_path)) == 1 < len(long.jobs())
    assert not (tmp_path / "regret.parquet").exists()
    assert_same(run(long, tmp_path, on_ray), run(long, execution=ALONE))
    assert json.loads((tmp_path / "manifest.json").read_text())["jobs_run"] == len(long.jobs()) - 1


# --- Jobs ---------------------------------------------------------------------------------------


def doze(job, seconds):
    start = time.time()
    time.sleep(seconds)
    return start, time.time()


def test_no_more_jobs_run_at_a_time_than_workers_are_given(machines):
    with connect("ray", workers=1) as cluster:
        spans = sorted(span for _, span in cluster.run_jobs(range(4), doze, 0.1))
    assert len(spans) == 4
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start >= end


class Counted:
    """Counts how often it is sent."""

    sent = 0

    def __reduce__(self):
        type(self).sent += 1
        return (str, ("arrived",))


def second(job, argument):
    return argument


def test_arguments_are_sent_once_not_with_every_job(run_jobs):
    found = [result for _, result in run_jobs(range(10), second, Counted())]
    assert found == ["arrived"] * 10
    assert Counted.sent == 1


def threads(job):
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


def test_workers_use_one_blas_thread(run_jobs):
    pytest.importorskip("threadpoolctl")
    for _, found in run_jobs(range(2), threads):
        assert found
        assert set(found) == {1}


# --- The command --------------------------------------------------------------------------------


def test_the_command_gives_the_same(headstart, tmp_path, no_figures):
    shown = {}
    for name, more in {"here": ["--workers", "1"], "there": ["--cluster", "ray"]}.items():
        found = headstart("compare", *TINY, *more, "--out", tmp_path / name, "--json")
        assert found.code == 0
        assert found.err == ""
        shown[name] = json.loads(found.out)["totals"]
    assert shown["there"] == shown["here"]
    ours, theirs = (pl.read_parquet(tmp_path / name / "regret.parquet") for name in shown)
    assert_frame_equal(ours, theirs, check_exact=True)
    assert ray.is_initialized(), "a cluster that was there before is left as it was"


def test_the_command_shows_a_table(headstart, tmp_path, no_figures):
    shown = headstart("compare", *TINY, "--cluster", "ray", "--out", tmp_path)
    assert shown.code == 0
    assert "LinUCB" in shown.out


@pytest.mark.parametrize("command", [["compare", *TINY], ["reproduce", "synthetic", "--quick"]])
def test_without_ray_the_command_says_how_to_get_it(headstart, tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = headstart(*command, "--cluster", "ray", "--out", tmp_path / "new", "--json")
    assert shown.code == 2
    assert shown.err.startswith("headstart: cluster needs Ray")
    assert "pip install 'headstart[fleet]'" in shown.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [["compare", *TINY], ["reproduce", "synthetic", "--quick"]])
def test_addresses_that_cannot_be_are_refused(headstart, tmp_path, command):
    for address in ("spark", "ray://", "host"):
        shown = headstart(*command, "--cluster", address, "--out", tmp_path / "new", "--json")
        assert shown.code == 2
        assert shown.err.startswith("headstart: cluster must be 'ray', 'ray://host:port'")
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_does_not_answer_is_refused_at_once(
    headstart, tmp_path, monkeypatch, scheme
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    start = time.perf_counter()
    shown = headstart("compare", *TINY, "--cluster", address, "--out", tmp_path / "new", "--json")
    assert time.perf_counter() - start < 10
    assert shown.code == 2
    assert shown.err.startswith(f"headstart: cluster '{address}' cannot be reached (")
    assert not (tmp_path / "new").exists()
