"""A connection to a Ray cluster: stateless tasks, their results, and what to say while waiting.

All that runs on the cluster is a Ray task without side effects, so that Ray may run it anywhere and
again: it retries a task whose worker died, computes lost results again, spills results to disk and
places tasks where their arguments are.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import os
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from headstart import checks
from headstart.errors import HeadstartError, InputError
from headstart.fleet.summing.tasks import one_blas_thread

Result = TypeVar("Result")

RETRIES = 3  # how often a task is run again whose worker has died
TASKS_PER_CPU = 2  # tasks for each CPU: one that runs, and the next
BUSY_SECONDS = 5.0  # seconds without a free CPU after which a message says so
SILENT_SECONDS = 30.0  # seconds without a result or progress after which a message says so
POLL = 1.0  # seconds between looks at the progress of tasks

log = logging.getLogger("headstart.fleet")


class WorkerDied(HeadstartError):
    """A task has ended the process that ran it, every time that it was tried."""


@contextlib.contextmanager
def connect(cluster: str, workers: int | None = None) -> Iterator[Cluster]:
    """A connection to a Ray cluster; what is started here is stopped at the end.

    Parameters
    ----------
    cluster
        ``"ray"`` for the cluster that this process is connected to, or else a new one on this
        machine. ``"ray://host:port"`` or ``"host:port"`` for one that runs elsewhere.
    workers
        How many tasks may run at a time; one for each CPU of the cluster unless given.
    """
    address = address_of(cluster)
    # Ray's messages about itself are not for those who read logs. Without the last one, a task
    # that runs out of memory is tried again for ever.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "cluster needs Ray, which is not installed: pip install 'headstart[fleet]'"
        ) from error
    if ray.is_initialized():
        check_same_cluster(ray, address)
        yield Cluster(ray, workers)
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address is None:
            ray.init("local", num_cpus=workers or os.cpu_count(), include_dashboard=False, **quiet)
        else:
            try:
                # Ray itself would try for minutes where nobody listens.
                socket.create_connection(endpoint(address), timeout=10).close()
                ray.init(address=address, **quiet)
            except (OSError, OverflowError, RuntimeError, ValueError) as error:
                raise InputError(
                    f"cluster {cluster!r} cannot be reached ({str(error).splitlines()[0]})"
                ) from error
    with contextlib.suppress(AttributeError):  # what Ray says of dead workers goes to stdout
        ray._private.worker._worker_logs_enabled = False
    try:
        yield Cluster(ray, workers)
    finally:
        ray.shutdown()


def address_of(cluster: str) -> str | None:
    """The address to connect to; ``None`` for the cluster of this process.

    >>> address_of("ray"), address_of("ray://head:10001"), address_of("10.0.0.1:6379")
    (None, 'ray://head:10001', '10.0.0.1:6379')
    """
    want = "'ray', 'ray://host:port' or 'host:port'"
    if cluster == "ray":
        return None
    if not isinstance(cluster, str) or not re.fullmatch("(ray://)?.+:[0-9]+", cluster):
        raise checks.invalid("cluster", want, cluster)
    return cluster


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return host.strip("[]"), int(port)


def check_same_cluster(ray: Any, address: str | None) -> None:
    """Refuse an address other than that of the cluster this process is connected to."""
    if address is None:
        return
    there = str(ray.get_runtime_context().gcs_address)
    with contextlib.suppress(OSError):
        (host, port), (other, other_port) = endpoint(address), endpoint(there)
        if port == other_port and socket.gethostbyname(host) == socket.gethostbyname(other):
            return
    raise InputError(
        f"cluster is {address!r}, but this process is already connected to a Ray cluster at "
        f"{there!r}: call ray.shutdown() first, or pass cluster='ray' to use that one"
    )


class Cluster:
    """Runs functions as stateless tasks on a Ray cluster.

    Parameters
    ----------
    ray
        The module, connected.
    workers
        How many tasks may run at a time; one for each CPU unless given.
    memory
        The bytes that each task asks Ray for.
    """

    def __init__(self, ray: Any, workers: int | None = None, memory: int = 0) -> None:
        self.ray, self.workers, self.memory = ray, workers, memory
        self.watch(None)
        self.versions = installed_versions()
        self.check_machines()
        self.wait_for_cpu()

    def watch(self, made_progress: Callable[[], bool] | None) -> None:
        """Set what is called now and then while waiting, to say whether there was progress."""
        self.made_progress = made_progress or (lambda: False)

    def with_memory(self, memory: int) -> Cluster:
        """The same cluster for tasks that take so many bytes each."""
        return Cluster(self.ray, self.workers, memory)

    def nodes(self) -> list[dict[str, Any]]:
        """The machines that are there now."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    @property
    def slots(self) -> int:
        """How many tasks can run at a time now."""
        if self.workers is not None:
            return self.workers
        return max(sum(self.slots_of(node["Resources"]) for node in self.nodes()), 1)

    def slots_of(self, resources: dict[str, float]) -> int:
        """How many tasks can run at a time on one machine."""
        cpus = int(resources.get("CPU", 0))
        return min(cpus, int(resources.get("memory", 0) // self.memory)) if self.memory else cpus

    # --- Before the work begins -------------------------------------------------------------------

    def run_everywhere(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """``function(*arguments)`` on every machine, also where no CPU is free."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task, references = self.ray.remote(function), []
        for node in self.nodes():
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            placed = task.options(num_cpus=0, max_retries=RETRIES, scheduling_strategy=place)
            references.append(placed.remote(*arguments))
        return self.fetch_all(references)

    def check_machines(self) -> None:
        """Refuse machines with other versions, and memory that none of them has."""
        # A function inside another is sent by value: it runs where headstart is not installed.
        for machine, versions in self.run_everywhere(version_probe()):
            check_versions(self.versions, versions, machine)
        every = [node["Resources"] for node in self.nodes()]
        resources = [each for each in every if each.get("CPU", 0) >= 1]
        if self.memory and resources:
            largest = max(int(each.get("memory", 0)) for each in resources)
            if largest < self.memory:
                raise InputError(
                    f"memory must be at most what a machine of the cluster offers to Ray's tasks, "
                    f"{largest / 2**30:.2f} GiB; got {self.memory / 2**30:.2f} GiB for each worker "
                    f"(--memory)"
                )
            cpus = int(sum(each["CPU"] for each in resources))
            if (slots := sum(map(self.slots_of, resources))) < min(cpus, self.workers or cpus):
                log.warning(
                    f"The cluster has {cpus} CPUs, and memory for {slots} tasks of "
                    f"{self.memory / 2**30:.2f} GiB: a lower --memory uses more of them."
                )

    def wait_for_cpu(self) -> None:
        """Wait until a task can run, and say so if that takes long."""
        reference = self.task(os.getpid)()
        while not self.ray.wait([reference], timeout=BUSY_SECONDS)[0]:
            cpus = int(self.ray.cluster_resources().get("CPU", 0))
            log.warning(
                f"No CPU of the cluster is free ({cpus} in all): waiting for one."
                if cpus
                else "The cluster has no CPUs: waiting for a machine that has."
            )

    # --- Tasks and their results ------------------------------------------------------------------

    def task(self, function: Callable[..., Any], *, returns: int = 1) -> Any:
        """A function as a task: called with arguments, it gives references to its results."""
        remote = self.ray.remote(run_task if returns == 1 else run_generator)
        options: dict[str, Any] = {"memory": self.memory} if self.memory else {}
        remote = remote.options(num_cpus=1, max_retries=RETRIES, num_returns=returns, **options)
        return functools.partial(remote.remote, self.versions, function)

    def wait(self, references: Sequence[Any]) -> list[Any]:
        """Those whose tasks have ended, at least one; a message says if that takes long."""
        begun, told = time.monotonic(), 0.0
        while True:
            ready, _ = self.ray.wait(references, timeout=POLL, fetch_local=False)
            if ready:
                return list(ready)
            if self.made_progress():
                begun, told = time.monotonic(), 0.0
            waiting = time.monotonic() - begun
            if waiting < told + SILENT_SECONDS:
                continue
            told = waiting
            total = int(self.ray.cluster_resources().get("CPU", 0))
            free = int(self.ray.available_resources().get("CPU", 0))
            log.warning(
                f"No task has finished for {waiting:.0f} s; {len(references)} run or wait. The "
                f"cluster has {total} CPUs, of which {free} are free."
            )

    def fetch(self, reference: Any) -> Any:
        """The result of a task; a message says if that takes long."""
        self.wait([reference])
        return self.fetch_all([reference])[0]

    def fetch_all(self, references: Sequence[Any]) -> list[Any]:
        """The results of tasks; errors of this library as if they had happened here."""
        errors = self.ray.exceptions
        try:
            return list(self.ray.get(list(references)))
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, HeadstartError):
                raise cause from None
            raise
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise WorkerDied(
                f"its worker died in each of {RETRIES + 1} attempts ({type(error).__name__}), "
                f"perhaps because it had too little memory"
            ) from error
        except errors.RayError as error:
            raise HeadstartError(
                f"the cluster could not finish the work ({type(error).__name__}: "
                f"{str(error).splitlines()[0]})"
            ) from error

    def completed(
        self, submit: Callable[[Any], Sequence[Any]], jobs: Iterable[Any]
    ) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Every job with the references ``submit(job)`` when its task has ended, in any order.

        Few are submitted ahead, because they cannot be called back: where a task is cancelled just
        as it begins, Ray (2.60) may abort this process.
        """
        rest, waiting = iter(jobs), dict[Any, Any]()
        while True:
            for job in itertools.islice(rest, max(self.window - len(waiting), 0)):
                references = submit(job)
                waiting[references[-1]] = job, references
            if not waiting:
                return
            for last in self.wait(list(waiting)):
                yield waiting.pop(last)

    @property
    def window(self) -> int:
        """How many tasks are submitted at a time."""
        return self.slots if self.workers is not None else TASKS_PER_CPU * self.slots

    def run_jobs(
        self, jobs: Sequence[Any], function: Callable[..., Result], *shared: Any
    ) -> Iterator[tuple[int, Result]]:
        """``function(job, *shared)`` of every job: its index and result, as they come.

        ``shared`` is sent to the cluster once, not with every job. No more than ``workers`` jobs
        run at a time, if that is given. The function must be one that can be imported. Where nobody
        wants the rest, no more jobs are begun.
        """
        task, there = self.task(function), [self.ray.put(each) for each in shared]
        submitted = self.completed(lambda job: [task(job[1], *there)], enumerate(jobs))
        for (index, _), (reference,) in submitted:
            yield index, self.fetch(reference)

    def map(
        self, function: Callable[..., Result], jobs: Iterable[Any], *shared: Any
    ) -> Iterator[Result]:
        """``function(job, *shared)`` of every job, in the order of the jobs.

        Jobs are taken from their iterator as results are: only a few ahead are computed.
        """
        task, there = self.task(function), [self.ray.put(each) for each in shared]
        pending = (task(job, *there) for job in jobs)
        return in_order(pending, lambda: self.window - 1, self.fetch)


def in_order(
    pending: Iterable[Any], ahead: Callable[[], int], finish: Callable[[Any], Result]
) -> Iterator[Result]:
    """The results of jobs that begin as they are taken, of which so many are ahead of the next."""
    begun = collections.deque[Any]()
    for job in pending:
        begun.append(job)
        while len(begun) > ahead():
            yield finish(begun.popleft())
    while begun:
        yield finish(begun.popleft())


def run_task(versions: dict[str, str], function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on a worker, on one core: there is a task for each."""
    check_versions(versions, installed_versions(), socket.gethostname())
    with one_blas_thread():
        return function(*arguments)


def run_generator(
    versions: dict[str, str], function: Callable[..., Iterator[Result]], *arguments: Any
) -> Iterator[Result]:
    """The same for a function with several results, which are stored one by one."""
    check_versions(versions, installed_versions(), socket.gethostname())
    with one_blas_thread():
        yield from function(*arguments)


def version_probe() -> Callable[[], tuple[str, dict[str, str]]]:
    """A function that names the machine and its versions, with the standard library alone."""

    def probe() -> tuple[str, dict[str, str]]:
        import socket
        import sys
        from importlib import metadata

        versions = {"Python": ".".join(map(str, sys.version_info[:2]))}
        for name in ("headstart", "numpy"):
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = ""
        return socket.gethostname(), versions

    return probe


@functools.cache
def installed_versions() -> dict[str, str]:
    """The versions here that must be the same on all machines."""
    return version_probe()()[1]


def check_versions(here: dict[str, str], there: dict[str, str], machine: str) -> None:
    """Refuse to compute with other versions: results might differ, or not be understood."""
    for name, version in here.items():
        if there.get(name) != version:
            other = f"has {name} {there[name]}" if there.get(name) else f"has no {name}"
            raise HeadstartError(
                f"machine {machine} of the cluster {other}, and this one has {version}: install "
                f"the same on all of them"
            )
