"""The same prior from a Ray cluster, whatever happens to workers, machines or the driver."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.fleet import Logs, fit
from headstart.fleet.engines import cluster as engine
from headstart.fleet.engines.cluster import connect
from headstart.fleet.reading.hashing import partition_range
from headstart.fleet.reading.stores import Folder
from headstart.fleet.summing.checkpoint import checkpointed_rows
from headstart.fleet.summing.shards import merge

ray = pytest.importorskip("ray")
from headstart.fleet.engines import ray as ray_engine  # noqa: E402
from headstart.fleet.engines.ray import merge_shards, read_parts  # noqa: E402

# Ray forks this process to start a machine, and JAX warns of that where another test imported it.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")

LIMIT = 120.0  # seconds after which a test counts as hanging


@pytest.fixture(scope="module")
def running(machines):
    """The test run's cluster."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    return machines


@pytest.fixture(autouse=True)
def limit():
    """End the test run where a test hangs."""

    def stop(*_):
        raise TimeoutError(f"no result after {LIMIT:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def files(tmp_path_factory, logbook):
    """Eight files of 500 rows, in five row groups each."""
    folder = tmp_path_factory.mktemp("logs")
    for number in range(8):
        table = logbook.table(500, 4, 150, seed=number)
        logbook.write(folder / f"{number}.parquet", table, group=100)
    return str(folder / "*.parquet")


@pytest.fixture(scope="module")
def logs(files, logbook):
    """What is in them."""
    return Logs(files, logbook.PLAIN)


@pytest.fixture(scope="module")
def wanted(logs):
    """The prior that this machine finds."""
    return fit(logs, hs.Bias()).prior


def same(left, right):
    for name in ("mean", "covariance", "noise"):
        ours, theirs = np.asarray(getattr(left, name)), np.asarray(getattr(right, name))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())


# --- The same prior -----------------------------------------------------------------------------


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Subspace(rank=1)], ids=repr)
def test_a_cluster_finds_the_same_prior(running, logs, transfer, monkeypatch):
    monkeypatch.setattr("headstart.transfer.empirical_bayes.refits.passes.FIRST_FIT_TASKS", 32)
    monkeypatch.setattr("headstart.transfer.empirical_bayes.refits.passes.SUBSET_TASKS", 64)
    reached = []
    distant = fit(logs, transfer, cluster="ray", progress=lambda *step: reached.append(step))
    here = fit(logs, transfer)
    assert (distant.rows, distant.tasks) == (here.rows, here.tasks) == (4000, 150)
    same(distant.prior, here.prior)
    assert [step for step in reached if step[0] == "reading"][-1] == ("reading", 4000.0, 4000.0)
    assert any(step[0] == "fitting" for step in reached)


def test_tasks_can_be_kept(running, logs, tmp_path):
    fit(logs, hs.Bias(), cluster="ray", keep_tasks=True, out=tmp_path / "prior")
    bandit = hs.load(tmp_path / "prior")
    here = fit(logs, hs.Bias(), keep_tasks=True).bandit()
    assert list(bandit) == list(here)
    for name in here:
        ours, theirs = (one._state.ledger.entries[name].packed for one in (bandit, here))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("memory", [1 << 16, 1 << 28])
def test_tasks_that_do_not_fit_into_memory_are_summed_up_the_same(logs, memory):
    parts, merged = logs.parts(), []
    groups = [list(read_parts(parts[at::2], 4, memory, logs)) for at in range(2)]
    assert [outcome[0].rows for *_, outcome in groups] == [2000, 2000]
    for partition in range(4):
        pieces = list(merge_shards(4, partition, 4, 2, *(group[partition] for group in groups)))
        merged += pieces[::2]
        assert pieces[1::2] == [len(piece.rows) for piece in pieces[::2]]
    shards, _ = read_parts(parts, 1, 1 << 28, logs)
    whole = merge(shards, 4)
    assert [name for part in merged for name in part.ids.to_pylist()] == whole.ids.to_pylist()
    rows = np.concatenate([part.rows for part in merged])
    np.testing.assert_allclose(rows, whole.rows, rtol=1e-12, atol=1e-12)
    assert partition_range(7, 8)[1] == 2**64


def test_rows_of_scattered_tasks_are_sent_as_rows(tmp_path, logbook, monkeypatch):
    monkeypatch.setattr(ray_engine, "SCATTERED_TASKS", 10)
    for tasks, form in ((5, "packed"), (10**6, "features")):
        path = logbook.write(tmp_path / f"{tasks}.parquet", logbook.table(500, 4, tasks))
        log = Logs(path, logbook.PLAIN)
        (shards, (summary, _)) = read_parts(log.parts(), 1, 1 << 28, log)
        counts = {"packed": 0, "features": 0}
        for shard in shards:
            counts[shard.schema.names[-1]] += shard.num_rows
        assert max(counts, key=counts.get) == form
        assert summary.rows == 500
        assert len(merge(shards, 4).rows) == min(tasks, 500)


@pytest.mark.parametrize(
    ("count", "slots", "least", "sizes"),
    [(41, 2, 1, [20, 21]), (3, 8, 1, [1, 1, 1]), (8, 2, 2, [2, 2, 2, 2]), (0, 2, 1, [])],
)
def test_every_slot_reads_about_as_much(logs, monkeypatch, count, slots, least, sizes):
    part = logs.parts()[0]
    groups = ray_engine.group_parts(logs, [part] * count, slots, least)
    assert [len(group) for group in groups] == sizes
    monkeypatch.setattr(ray_engine, "GROUP_BYTES", logs.decoded_bytes(part))
    groups = ray_engine.group_parts(logs, [part] * count, slots, least)
    assert [len(group) for group in groups] == [1] * count


# --- Workers and machines that die ----------------------------------------------------------------


def happens_once(marker):
    """Whether it is the first time that anyone comes here."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for(marker):
    """Wait until a file is there."""
    while not Path(marker).exists():
        time.sleep(0.02)


def kill_worker(folder):
    """``kill -9`` of this very process, the first time that it comes here."""
    if happens_once(f"{folder}/killed"):
        os.kill(os.getpid(), signal.SIGKILL)


def meet_driver(folder):
    """Tell the driver that the work has begun here, and wait until it has removed a machine."""
    Path(f"{folder}/begun-{os.getpid()}").touch()
    wait_for(f"{folder}/removed")


def wait_for_progress(folder):
    """Wait until the driver knows of progress."""
    end = time.monotonic() + 60
    while not Path(f"{folder}/told").exists():
        if time.monotonic() > end:
            raise hs.InputError("no progress was told")
        time.sleep(0.02)


class Watched(Logs):
    """Logs that do something when a file is read."""

    def __init__(self, paths, columns, number, action, folder):
        super().__init__(paths, columns)
        self.number, self.action, self.place = number, action, str(folder)

    def read(self, part, **options):
        if part.path.endswith(f"{self.number}.parquet"):
            self.action(self.place)
        return super().read(part, **options)


@dataclasses.dataclass(frozen=True, repr=False)
class WatchedBias(hs.Bias):
    """A transfer that does something in every pass."""

    action: object = None
    place: str = ""

    def summarize(self, evidence, noise=None):
        self.action(self.place)
        return super().summarize(evidence, noise)


def test_parts_are_told_before_their_task_ends(
    running, files, wanted, tmp_path, logbook, monkeypatch
):
    monkeypatch.setattr(ray_engine, "WATCHED_BYTES", 0)
    reached = []

    def note(stage, done, total):
        if stage == "reading":
            reached.append(done)
            if 0 < done < total:
                (tmp_path / "told").touch()

    logs = Watched(files, logbook.PLAIN, 7, wait_for_progress, tmp_path)
    same(fit(logs, hs.Bias(), cluster="ray", workers=1, progress=note).prior, wanted)
    assert reached == sorted(reached)
    assert reached[-1] == 4000


@contextlib.contextmanager
def losing_a_machine(machines, folder):
    """Remove a machine of the cluster while both work; another takes its place afterwards."""

    def remove():
        while len(list(folder.glob("begun-*"))) < 2:  # on both machines
            time.sleep(0.02)
        lost = next(node for node in machines.list_all_nodes() if not node.head)
        machines.remove_node(lost, allow_graceful=False)
        (folder / "removed").touch()

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(LIMIT)
        machines.add_node(num_cpus=1, object_store_memory=80 << 20)


def test_a_worker_that_is_killed_while_reading_changes_nothing(
    running, files, wanted, tmp_path, logbook
):
    deadly = Watched(files, logbook.PLAIN, "3", kill_worker, tmp_path)
    found = fit(deadly, hs.Bias(), cluster="ray")
    assert (tmp_path / "killed").exists()
    assert found.rows == 4000
    same(found.prior, wanted)


def test_a_worker_that_is_killed_in_a_pass_changes_nothing(running, logs, wanted, tmp_path):
    deadly = WatchedBias(action=kill_worker, place=str(tmp_path))
    same(fit(logs, deadly, cluster="ray").prior, wanted)
    assert (tmp_path / "killed").exists()


def test_a_machine_that_is_lost_while_reading_changes_nothing(
    running, files, wanted, tmp_path, logbook
):
    watched = Watched(files, logbook.PLAIN, "", meet_driver, tmp_path)
    with losing_a_machine(running, tmp_path):
        found = fit(watched, hs.Bias(), cluster="ray")
    assert found.rows == 4000
    same(found.prior, wanted)


def test_a_machine_that_is_lost_in_a_pass_changes_nothing(running, logs, wanted, tmp_path):
    watched = WatchedBias(action=meet_driver, place=str(tmp_path))
    with losing_a_machine(running, tmp_path):
        same(fit(logs, watched, cluster="ray").prior, wanted)


def kill_always(folder):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_part_that_always_kills_its_worker_is_named(
    running, files, tmp_path, logbook, monkeypatch
):
    monkeypatch.setattr(engine, "RETRIES", 0)
    deadly = Watched(files, logbook.PLAIN, "3", kill_always, tmp_path)
    message = (
        r"3\.parquet', row groups 0 to 5 \(500 rows\), cannot be read: its worker died in each"
    )
    with pytest.raises(hs.HeadstartError, match=message):
        fit(deadly, hs.Bias(), cluster="ray")


def test_errors_come_back_as_they_were(running, tmp_path, logbook):
    bad = logbook.table(50, 2, 5).set_column(1, "reward", [[None, *range(49)]])
    logbook.write(tmp_path / "bad.parquet", bad)
    with pytest.raises(hs.InputError, match="reward is missing") as caught:
        fit(Logs(str(tmp_path / "*.parquet"), logbook.PLAIN), cluster="ray")
    assert "Traceback" not in str(caught.value)
    logbook.write(tmp_path / "bad.parquet", logbook.table(0, 2, 5))
    with pytest.raises(hs.InputError, match="they have no rows"):
        fit(Logs(str(tmp_path / "*.parquet"), logbook.PLAIN), cluster="ray")


# --- Checkpoints ----------------------------------------------------------------------------------


class Counted(Logs):
    """Logs that say which files are read, and whose later files cannot be read yet."""

    def __init__(self, paths, columns, folder, storage=None):
        super().__init__(paths, columns, storage=storage)
        self.place = str(folder)

    def read(self, part, **options):
        name = Path(part.path).stem
        if name >= "4" and not Path(f"{self.place}/go").exists():
            raise hs.InputError("a bad row")
        Path(f"{self.place}/read-{name}-{time.time_ns()}").touch()
        return super().read(part, **options)


@pytest.fixture(params=["folder", "s3"])
def checkpoint(request, tmp_path):
    """Where checkpoints go, and the options of its file system."""
    if request.param == "folder":
        return str(tmp_path / "checkpoint"), {}
    request.getfixturevalue("store")
    return "s3://bucket/fits/checkpoint", request.getfixturevalue("storage")


@pytest.mark.parametrize("cluster", ["ray", None])
def test_what_was_interrupted_resumes_with_or_without_the_cluster(
    running, files, wanted, tmp_path, logbook, checkpoint, cluster
):
    place, storage = checkpoint
    counted = Counted(files, logbook.PLAIN, tmp_path, storage)
    with pytest.raises(hs.InputError, match="a bad row"):
        fit(counted, hs.Bias(), cluster="ray", workers=1, checkpoint=place)
    rows = checkpointed_rows(place, storage)
    assert rows in (1000, 2000)  # of whole tasks
    before = len(list(tmp_path.glob("read-*")))
    (tmp_path / "go").touch()
    out = f"{place}.headstart"
    found = fit(counted, hs.Bias(), cluster=cluster, checkpoint=place, out=out)
    assert len(list(tmp_path.glob("read-*"))) - before == 8 - rows // 500
    assert found.rows == 4000
    same(found.prior, wanted)
    assert "checkpoint.headstart" in Folder(place.rpartition("/")[0], storage).names()
    assert not Folder(place, storage).names()


def test_a_folder_that_is_not_seen_by_all_stores_nothing(
    running, logs, wanted, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(engine.Cluster, "run_everywhere", lambda self, exists, path: [True, False])
    monkeypatch.setattr(engine.Cluster, "check_machines", lambda self: None)
    same(fit(logs, hs.Bias(), cluster="ray", checkpoint=tmp_path / "work").prior, wanted)
    assert "there are no checkpoints" in caplog.text


DRIVER = """
import sys, time
from pathlib import Path
import headstart as hs
from headstart.fleet import Columns, Logs, fit

address, pattern, checkpoint = sys.argv[1:]

class Slow(Logs):
    def read(self, part, **options):
        while Path(part.path).stem >= "4":
            time.sleep(0.1)
        return super().read(part, **options)

logs = Slow(pattern, Columns("task", "reward", "x*"))
fit(logs, hs.Bias(), cluster=address, workers=1, checkpoint=checkpoint)
"""


def test_a_driver_that_is_killed_is_resumed(running, files, wanted, tmp_path, logbook):
    place = tmp_path / "checkpoint"
    words = [sys.executable, "-c", DRIVER, running.address, files, str(place)]
    with subprocess.Popen(words) as driver:
        try:
            while not list(place.glob("entry-*.json")):  # of the first task, which reads four files
                assert driver.poll() is None
                time.sleep(0.05)
        finally:
            driver.kill()
    (tmp_path / "go").touch()
    counted = Counted(files, logbook.PLAIN, tmp_path)
    found = fit(counted, hs.Bias(), cluster="ray", checkpoint=place)
    assert len(list(tmp_path.glob("read-*"))) == 4
    assert found.rows == 4000
    same(found.prior, wanted)


# --- Jobs ---------------------------------------------------------------------------------------


def times_ten(job, folder):
    if job == 2 and folder:
        kill_worker(folder)
    return 10 * job


def test_jobs_run_on_the_cluster(running, tmp_path):
    with connect("ray") as cluster:
        found = dict(cluster.run_jobs([3, 1, 2], times_ten, str(tmp_path)))
    assert found == {0: 30, 1: 10, 2: 20}


def test_jobs_are_mapped_in_order_and_taken_a_few_ahead(running):
    taken = []
    jobs = (taken.append(job) or job for job in range(20))
    with connect("ray") as cluster:
        results = cluster.map(times_ten, jobs, "")
        assert next(results) == 0
        assert len(taken) <= 2 * cluster.slots
        assert list(results) == [10 * job for job in range(1, 20)]


# --- Connections --------------------------------------------------------------------------------


def test_addresses_are_checked(logs):
    for address in ("spark", "ray://", "host", 7):
        with pytest.raises(hs.InputError, match="cluster must be"):
            fit(logs, cluster=address)


def test_an_address_wins_over_an_existing_connection_or_is_refused(running):
    with connect(running.address) as cluster:
        assert cluster.slots == 2
    message = "already connected to a Ray cluster at"
    with pytest.raises(hs.InputError, match=message), connect("127.0.0.1:1"):
        pass


def test_another_version_is_refused(running, monkeypatch):
    engine.installed_versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda package: "99.0")
        message = f"has headstart {hs.__version__}, and this one has 99.0: install the same"
        with pytest.raises(hs.HeadstartError, match=message), connect("ray"):
            pass
    engine.installed_versions.cache_clear()
    others = {"Python": "3.1", "headstart": "", "numpy": "9.9"}
    with pytest.raises(hs.HeadstartError, match=r"machine x of the cluster has Python 3\.1, and"):
        engine.check_versions(engine.installed_versions(), others, "x")


def test_a_message_says_that_no_cpu_is_free(running, monkeypatch, tmp_path):
    free, messages = tmp_path / "free", []
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.5)
    monkeypatch.setattr(engine.log, "warning", lambda text: messages.append(text) or free.touch())
    busy = [ray.remote(num_cpus=1)(wait_for).remote(str(free)) for _ in range(2)]
    with connect("ray") as cluster:
        assert list(cluster.map(times_ten, [1], "")) == [10]
    assert "No CPU of the cluster is free (2 in all): waiting for one." in messages
    ray.get(busy)


def test_memory_is_for_each_worker_and_must_fit_a_machine(running):
    with connect("ray") as cluster:
        assert cluster.with_memory(1 << 28).slots == 2
        with pytest.raises(hs.InputError, match="memory must be at most what a machine"):
            cluster.with_memory(1 << 50)


CLIENT = """
import sys
import headstart as hs
from headstart.fleet import Columns, Logs, fit

address, pattern, out = sys.argv[1:]
logs = Logs(pattern, Columns("task", "reward", "x*"))
fit(logs, hs.Bias(), cluster=address, out=out)
"""


def test_a_cluster_elsewhere_is_reached_by_its_address(running, files, logs, tmp_path):
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = [sys.executable, "-m", "ray.util.client.server", "--mode", "specific-server"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--address", running.address]
    with subprocess.Popen([*server, *place], stderr=subprocess.DEVNULL) as serving:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                time.sleep(0.1)
            words = [f"ray://127.0.0.1:{port}", files, str(tmp_path / "out")]
            done = subprocess.run(
                [sys.executable, "-c", CLIENT, *words], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        finally:
            serving.terminate()
    same(hs.load(tmp_path / "out").prior, fit(logs, hs.Bias()).bandit(seed=0).prior)
