"""A Ray cluster: connecting to one, asking it, and running jobs on it."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from headstart import checks
from headstart.errors import HeadstartError, InputError
from headstart.fleet.summing.passes import one_blas_thread

__all__ = ["asked", "connected", "run_jobs"]

Found = TypeVar("Found")

RETRIES = 5  # how often a task is run again whose worker has died
AHEAD = 2  # jobs for each core: one that runs, and the next


@contextlib.contextmanager
def connected(cluster: str, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster; what is started here is stopped at the end.

    ``"ray"`` is a cluster that this process already has, or a new one with so many workers.
    ``"ray://host:port"`` and ``"host:port"`` are clusters that run elsewhere.
    """
    address = address_of(cluster)
    try:
        # Ray's own words about itself are not for those who read logs.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    except ImportError as error:
        raise InputError(
            "cluster needs Ray, which is not installed: pip install 'headstart[fleet]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address is None:
            ray.init(num_cpus=workers or os.cpu_count(), include_dashboard=False, **quiet)
        else:
            try:
                look_for(address)
                ray.init(address=address, **quiet)
            except (OSError, OverflowError, RuntimeError, ValueError) as error:
                raise InputError(
                    f"cluster {cluster!r} cannot be reached ({str(error).splitlines()[0]})"
                ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def address_of(cluster: str) -> str | None:
    """The address to connect to; ``None`` for a cluster of one's own.

    >>> address_of("ray"), address_of("ray://head:10001"), address_of("10.0.0.1:6379")
    (None, 'ray://head:10001', '10.0.0.1:6379')
    """
    want = "'ray', 'ray://host:port' or 'host:port'"
    if not isinstance(cluster, str):
        raise checks.refuse("cluster", want, cluster)
    if cluster == "ray":
        return None
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise checks.refuse("cluster", want, cluster)
    return cluster


def cores(ray: Any) -> int:
    """How many cores the cluster has now."""
    return int(ray.cluster_resources().get("CPU", 1)) or 1


def look_for(address: str) -> None:
    """Raise ``OSError`` if nobody listens there; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
        pass


def asked(ray: Any, references: Sequence[Any]) -> list[Any]:
    """What the cluster answers; errors of this library as if they had happened here."""
    try:
        answers: list[Any] = ray.get(list(references))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, HeadstartError):
            raise cause from None
        raise
    except ray.exceptions.RayError as error:
        raise HeadstartError(
            f"the cluster could not finish the work ({type(error).__name__}: "
            f"{str(error).splitlines()[0]})"
        ) from error
    return answers


def run_jobs(
    jobs: Sequence[Any],
    function: Callable[..., Found],
    *arguments: Any,
    cluster: str = "ray",
    workers: int | None = None,
) -> Iterator[tuple[int, Found]]:
    """``function(job, *arguments)`` of every job, on a cluster: its place and result as it comes.

    Arguments are sent to the cluster once, not with every job. No more than ``workers`` jobs run at
    a time, if that is given. A job whose worker dies is run again. The function must be one that
    can be imported. Where nobody wants the rest, no more jobs are begun.
    """
    with connected(cluster, workers) as ray:
        shared = [ray.put(each) for each in (function, *arguments)]
        task = ray.remote(run_job).options(max_retries=RETRIES, num_cpus=1)
        rest, waiting = enumerate(jobs), dict[Any, int]()
        while True:
            # Few are sent ahead, because they cannot be called back: where a task is cancelled just
            # as it begins, Ray (2.60) may abort this process.
            most = AHEAD * cores(ray) if workers is None else workers
            for place, job in itertools.islice(rest, max(most - len(waiting), 0)):
                waiting[task.remote(job, *shared)] = place
            if not waiting:
                return
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference, found in zip(ready, asked(ray, ready), strict=True):
                yield waiting.pop(reference), found


def run_job(job: Any, function: Callable[..., Found], *arguments: Any) -> Found:
    """One job, on one core: there is a job for each."""
    with one_blas_thread():
        return function(job, *arguments)
