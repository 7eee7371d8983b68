"""Jobs that need nothing of each other, on this machine's cores or on a Ray cluster."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headstart import checks
from headstart.fleet.summing.passes import one_blas_thread

__all__ = ["MapJobs", "job_runner", "map_here"]

#: ``map_jobs(function, jobs, *shared)`` gives ``function(job, *shared)`` of every job, in the order
#: of the jobs. These are taken from their iterator as there is room for them, so that a job may
#: depend on results of jobs before it. On a cluster, the function must be one that can be imported,
#: and what the jobs share is sent once.
MapJobs = Callable[..., Iterator[Any]]


def map_here(function: Callable[..., Any], jobs: Iterable[Any], *shared: Any) -> Iterator[Any]:
    """One job after the other, in this thread."""
    return (function(job, *shared) for job in jobs)


@contextlib.contextmanager
def job_runner(cluster: str | None = None, workers: int | None = None) -> Iterator[MapJobs]:
    """A function that maps jobs over so many cores, all of them unless given.

    ``cluster`` is ``"ray"``, ``"ray://host:port"`` or ``"host:port"``; this machine unless given.

    >>> with job_runner(workers=2) as map_jobs:
    ...     list(map_jobs(pow, range(4), 2))
    [0, 1, 4, 9]
    """
    workers = None if workers is None else checks.integer("workers", workers, 1)
    if cluster is None:
        cores = workers or os.cpu_count() or 1
        with one_blas_thread(), ThreadPoolExecutor(cores) as pool:
            yield lambda *jobs: map_in_threads(pool, cores, *jobs)
        return
    from headstart.fleet.engines.cluster import connect

    with connect(cluster, workers) as there:
        yield there.map


def map_in_threads(
    pool: ThreadPoolExecutor,
    ahead: int,
    function: Callable[..., Any],
    jobs: Iterable[Any],
    *shared: Any,
) -> Iterator[Any]:
    """Jobs in threads: most of the work holds no lock of Python's."""
    running: collections.deque[Future[Any]] = collections.deque()
    try:
        for job in jobs:
            running.append(pool.submit(function, job, *shared))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
