"""The same answers from a Ray cluster, also when workers are killed."""

import dataclasses
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.fleet import Logs, cluster, fit

ray = pytest.importorskip("ray")


@pytest.fixture(scope="session")
def running():
    """One local cluster for the whole test run."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    with cluster.connected("ray", workers=2) as found:
        yield found


@pytest.fixture
def logs(tmp_path, logbook):
    """Eight files of 500 rows."""
    for number in range(8):
        path = tmp_path / f"{number}.parquet"
        logbook.write(path, logbook.table(500, 4, 150, seed=number), group=100)
    return Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)


def same(left, right):
    for name in ("mean", "covariance", "noise"):
        ours, theirs = np.asarray(getattr(left, name)), np.asarray(getattr(right, name))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())


def die_once(marker):
    """``kill -9`` of this very process, the first time that it comes here."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Logs):
    """Logs that kill whoever reads the third file, once."""

    marker = ""

    def read(self, part, **options):
        if "3.parquet" in part.path:
            die_once(self.marker)
        return super().read(part, **options)


@dataclasses.dataclass(frozen=True, repr=False)
class Fatal(hs.Bias):
    """A transfer that kills whoever holds tasks, once."""

    marker: str = ""

    def gathered(self, evidence, noise=None):
        die_once(self.marker)
        return super().gathered(evidence, noise)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Subspace(rank=1)], ids=repr)
def test_a_cluster_finds_the_same_prior(running, logs, transfer):
    distant = fit(logs, transfer, cluster="ray", workers=2)
    here = fit(logs, transfer)
    assert (distant.rows, distant.tasks) == (here.rows, here.tasks) == (4000, 150)
    same(distant.prior, here.prior)


def test_passes_over_holders_find_the_same(running, logs, monkeypatch):
    monkeypatch.setattr("headstart.transfer.empirical.SAMPLE", 32)
    same(fit(logs, cluster="ray").prior, fit(logs).prior)


def test_tasks_can_be_kept(running, logs, tmp_path):
    fit(logs, hs.Bias(), cluster="ray", keep_tasks=True, out=tmp_path / "prior")
    bandit = hs.load(tmp_path / "prior")
    here = fit(logs, hs.Bias(), keep_tasks=True).bandit()
    assert list(bandit) == list(here)
    for name in here:
        ours, theirs = (one._ledger.entries[name].packed for one in (bandit, here))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_killed_reader_changes_nothing(running, logs, tmp_path, logbook):
    deadly = Deadly(str(tmp_path / "*.parquet"), logbook.PLAIN)
    deadly.marker = str(tmp_path / "killed")
    found = fit(deadly, cluster="ray", workers=2)
    assert Path(deadly.marker).exists()
    assert found.rows == 4000
    same(found.prior, fit(logs).prior)


def test_a_killed_holder_changes_nothing(running, logs, tmp_path):
    marker = str(tmp_path / "killed")
    found = fit(logs, Fatal(marker=marker), cluster="ray", workers=2)
    assert Path(marker).exists()
    same(found.prior, fit(logs, hs.Bias()).prior)


def test_errors_come_back_as_they_were(running, tmp_path, logbook):
    table = logbook.table(50, 2, 5)
    bad = table.set_column(1, "reward", [[None, *range(49)]])
    logbook.write(tmp_path / "bad.parquet", bad)
    logs = Logs(str(tmp_path / "*.parquet"), logbook.PLAIN)
    with pytest.raises(hs.InputError, match="reward is missing") as caught:
        fit(logs, cluster="ray")
    assert "Traceback" not in str(caught.value)


def test_jobs_run_on_the_cluster(running, tmp_path):
    jobs = [3, 1, 2]
    found = dict(cluster.run_jobs(jobs, times_ten, str(tmp_path / "killed")))
    assert found == {0: 30, 1: 10, 2: 20}


def times_ten(job, marker):
    if job == 2:
        die_once(marker)
    return 10 * job


def test_addresses_are_checked(logs):
    for address in ("spark", "ray://", "host", 7):
        with pytest.raises(hs.InputError, match="cluster must be"):
            fit(logs, cluster=address)
