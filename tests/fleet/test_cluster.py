"""The same answers from a Ray cluster, also when workers are killed."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.fleet import Logs, fit
from headstart.fleet.engines import cluster as engine
from headstart.fleet.engines import kept as checkpoint
from headstart.fleet.engines.cluster import connect
from headstart.fleet.engines.kept import Kept

ray = pytest.importorskip("ray")
from headstart.fleet.engines import hand_out  # noqa: E402
from headstart.fleet.engines.spread import Duty, Worker  # noqa: E402


@pytest.fixture(scope="module")
def running(machines):
    """The test run's cluster."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    return machines


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

    def summarize(self, evidence, noise=None):
        die_once(self.marker)
        return super().summarize(evidence, noise)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Subspace(rank=1)], ids=repr)
def test_a_cluster_finds_the_same_prior(running, logs, transfer):
    distant = fit(logs, transfer, cluster="ray", workers=2)
    here = fit(logs, transfer)
    assert (distant.rows, distant.tasks) == (here.rows, here.tasks) == (4000, 150)
    same(distant.prior, here.prior)


def test_passes_over_holders_find_the_same(running, logs, monkeypatch):
    monkeypatch.setattr("headstart.transfer.empirical_bayes.passes.FIRST_FIT_TASKS", 32)
    same(fit(logs, cluster="ray").prior, fit(logs).prior)


def test_tasks_can_be_kept(running, logs, tmp_path):
    fit(logs, hs.Bias(), cluster="ray", keep_tasks=True, out=tmp_path / "prior")
    bandit = hs.load(tmp_path / "prior")
    here = fit(logs, hs.Bias(), keep_tasks=True).bandit()
    assert list(bandit) == list(here)
    for name in here:
        ours, theirs = (one._state.ledger.entries[name].packed for one in (bandit, here))
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
    with connect("ray") as cluster:
        found = dict(cluster.run_jobs([3, 1, 2], times_ten, str(tmp_path / "killed")))
    assert found == {0: 30, 1: 10, 2: 20}


def test_jobs_are_mapped_in_order_and_taken_a_few_ahead(running):
    taken = []
    jobs = (taken.append(job) or job for job in range(20))
    with connect("ray") as cluster:
        results = cluster.map(times_ten, jobs, "")
        assert next(results) == 0
        assert len(taken) <= 2 * cluster.slots
        assert list(results) == [10 * job for job in range(1, 20)]


def times_ten(job, marker):
    if job == 2 and marker:
        die_once(marker)
    return 10 * job


def test_addresses_are_checked(logs):
    for address in ("spark", "ray://", "host", 7):
        with pytest.raises(hs.InputError, match="cluster must be"):
            fit(logs, cluster=address)


def always_die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_job_that_always_kills_its_worker_is_given_up(running):
    with connect("ray") as cluster, pytest.raises(engine.WorkerDied, match="died each of 4 times"):
        list(cluster.map(always_die, [1]))


def test_another_version_is_refused(running, monkeypatch):
    engine.installed_versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda package: "99.0")
        message = f"has headstart {hs.__version__}, and this one has 99.0: install the same"
        with pytest.raises(hs.HeadstartError, match=message), connect("ray"):
            pass
    engine.installed_versions.cache_clear()
    lacking = {"Python": "3.1", "headstart": "", "numpy": "9.9"}
    with pytest.raises(hs.HeadstartError, match=r"machine x of the cluster has Python 3\.1, and"):
        engine.check_versions(engine.installed_versions(), lacking, "x")


def hold_cpu(marker):
    """Run until a file is there."""
    while not Path(marker).exists():
        time.sleep(0.05)


def test_a_message_says_that_no_cpu_is_free(running, monkeypatch, tmp_path):
    marker, messages = tmp_path / "free", []
    monkeypatch.setattr(engine, "PATIENCE", 0.5)
    monkeypatch.setattr(engine.log, "warning", lambda text: messages.append(text) or marker.touch())
    busy = [ray.remote(num_cpus=1)(hold_cpu).remote(str(marker)) for _ in range(2)]
    with connect("ray") as cluster:
        assert list(cluster.map(times_ten, [1], "")) == [10]
    assert "No CPU of the cluster is free (2 in all): waiting for one." in messages
    ray.get(busy)


def test_an_address_wins_over_an_existing_connection_or_is_refused(running):
    with connect(running.address) as cluster:
        assert cluster.slots == 2
    message = "already connected to a Ray cluster at"
    with pytest.raises(hs.InputError, match=message), connect("127.0.0.1:1"):
        pass


def test_memory_that_no_machine_has_is_refused(running):
    with connect("ray") as cluster:
        with pytest.raises(hs.InputError, match="memory must be at most what a machine"):
            cluster.with_memory(1 << 50)
        assert cluster.with_memory(1 << 28).slots == 2


class Failing(Logs):
    """Logs whose later files cannot be read."""

    def read(self, part, **options):
        if part.path.endswith(("6.parquet", "7.parquet")):
            raise hs.InputError("a bad row")
        return super().read(part, **options)


def test_what_was_interrupted_goes_on(running, logs, tmp_path, logbook):
    failing = Failing(str(tmp_path / "*.parquet"), logbook.PLAIN)
    folder = tmp_path / "work"
    with pytest.raises(hs.InputError, match="a bad row"):
        fit(failing, cluster="ray", workers=2, resume=folder)
    known = json.loads((folder / "manifest.json").read_text())
    done = {key.split("|")[0] for entry in known["entries"] for key in entry["parts"]}
    assert 4 <= len(done) <= 6  # each worker has kept what it had
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    here = fit(logs)
    for place in (folder, copy):
        found = fit(logs, cluster="ray", resume=place)
        assert found.rows == 4000
        same(found.prior, here.prior)
        assert not place.exists()


def test_files_are_kept_now_and_then(running, logs, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "OFTEN", -1.0)
    kept = []
    monkeypatch.setattr(Kept, "add", lambda self, files, tally: kept.append((files, tally.parts)))
    found = fit(logs, cluster="ray", resume=tmp_path / "work")
    assert sum(len(some) for _, some in kept) >= 6  # what is left at the end is not kept
    keys = {key for _, some in kept for key in some}
    assert keys <= {part.key for part in logs.parts()}
    assert found.rows == 4000
    same(found.prior, fit(logs).prior)


def test_a_folder_that_is_not_seen_keeps_nothing(running, logs, tmp_path, monkeypatch):
    monkeypatch.setattr(hand_out, "seen_by_all", lambda *_: False)
    same(fit(logs, cluster="ray", resume=tmp_path / "work").prior, fit(logs).prior)
    with monkeypatch.context() as patch:
        patch.setattr(Kept, "parts", {"one"})
        with pytest.raises(hs.InputError, match="not every machine"):
            fit(logs, cluster="ray", resume=tmp_path / "work")


CLIENT = """
import sys
import headstart as hs
from headstart.fleet import Columns, Logs, fit

address, pattern, out = sys.argv[1:]
logs = Logs(pattern, Columns("task", "reward", "x*"))
fit(logs, hs.Bias(), cluster=address, out=out)
"""


def test_a_cluster_elsewhere_is_reached_by_its_address(running, logs, tmp_path):
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inside = running.address
    server = [sys.executable, "-m", "ray.util.client.server", "--mode", "specific-server"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--address", inside]
    with subprocess.Popen([*server, *place], stderr=subprocess.DEVNULL) as serving:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                time.sleep(0.1)
            words = [f"ray://127.0.0.1:{port}", str(tmp_path / "*.parquet"), str(tmp_path / "out")]
            done = subprocess.run(
                [sys.executable, "-c", CLIENT, *words], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        finally:
            serving.terminate()
    same(hs.load(tmp_path / "out").prior, fit(logs, hs.Bias()).bandit(seed=0).prior)


def test_a_worker_that_is_asked_twice_counts_once(running, logs):
    reference, parts = ray.put(logs), tuple(logs.parts())
    worker = Worker(4, 0, 2, 1 << 20)
    for upto in (1, 1, 2):  # as Ray does after a fault of the line
        tally = worker.read(Duty(reference, parts[:upto]))
        assert (tally.rows, tally.parts) == (500, [parts[upto - 1].key])
    whole = Duty(reference, parts)
    first = worker.send(whole)[1]
    worker.settled(whole._replace(sent=(ray.put(first),)))
    again = worker.send(whole)[1]
    for (ids, rows), (same_ids, same_rows) in zip(first, again, strict=True):
        assert ids.equals(same_ids)
        np.testing.assert_array_equal(rows, same_rows)
