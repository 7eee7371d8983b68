"""How experiments are run: in this process, in several, or by an executor on other machines."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import HeadstartError
from headstart.lab.engine import Trace, simulate
from headstart.lab.experiments.plan import Plan

__all__ = ["ENGINES", "Execution", "Executor", "Progress"]

ENGINES = ("auto", "plain", "compiled", "gpu")
SPAWN = multiprocessing.get_context("spawn")
GPU_LOCK = threading.Lock()  # one experiment at a time

#: Called with the policy-rounds done so far and in all.
Progress = Callable[[float, float], None]
#: ``executor(jobs, function, *arguments)`` runs ``function(job, *arguments)`` for every job and
#: yields the index and the result of each as they come (``Cluster.run_jobs`` on Ray).
Executor = Callable[..., Iterable[tuple[int, Any]]]


def no_progress(label: str) -> contextlib.AbstractContextManager[Progress | None]:
    """Report no progress."""
    return contextlib.nullcontext(None)


@dataclasses.dataclass(frozen=True)
class Execution:
    """How experiments are run. Results depend on it by rounding only, except ``engine="gpu"``.

    Parameters
    ----------
    workers
        The number of processes; as many as there are cores unless given.
    engine
        What plays the rounds: ``"plain"`` (NumPy), ``"compiled"`` (Numba), ``"auto"`` (compiled if
        Numba is installed) or ``"gpu"``. Where a plan cannot run on a GPU, a warning says why and
        it runs on the CPU.
    executor
        Runs the jobs of experiments on other machines, with exactly the same results; ``None`` for
        processes on this machine. A GPU is always this machine's. For a Ray cluster
        (``headstart[fleet]``)::

            from headstart.fleet.engines.cluster import connect

            with connect("ray://head:10001") as cluster:
                run(plan, "results", Execution(executor=cluster.run_jobs))
    progress
        Makes a progress bar for a label: a context manager that gives a function of the
        policy-rounds done and in all, or ``None``.
    stored_only
        Whether to read results from disk and simulate nothing; what is missing is an error.

    Examples
    --------
    >>> Execution(workers=2).workers
    2
    """

    workers: int | None = None
    engine: str = "auto"
    executor: Executor | None = None
    progress: Callable[[str], contextlib.AbstractContextManager[Progress | None]] = no_progress
    stored_only: bool = False

    def __post_init__(self) -> None:
        checks.one_of("engine", self.engine, ENGINES)
        if self.workers is not None:
            checks.integer("workers", self.workers, 1)

    @property
    def processes(self) -> int:
        """The number of processes."""
        return self.workers or os.cpu_count() or 1

    @property
    def cpu_engine(self) -> str:
        """The engine for what runs on the CPU."""
        return "auto" if self.engine == "gpu" else self.engine


def play_jobs(
    jobs: Sequence[Plan], execution: Execution, report: Callable[[float], None]
) -> Generator[tuple[int, dict[str, Trace]], None, None]:
    """Run the jobs of a plan, and yield the index and the result of each as they come.

    ``report`` is called with the policy-rounds played so far.
    """
    engine, on_gpu = execution.cpu_engine, bool(jobs) and jobs[0].device == "gpu"
    if execution.executor is not None and jobs and not on_gpu:
        yield from play_remotely(jobs, execution.executor, engine, report)
    elif execution.processes == 1 or len(jobs) <= 1 or on_gpu:
        rounds_played = 0.0

        def count(rounds: int) -> None:
            nonlocal rounds_played
            rounds_played += rounds
            report(rounds_played)

        for index, job in enumerate(jobs):
            yield index, play(job, count, engine)
    else:
        counter = SPAWN.Value("d", 0.0)
        with process_pool(execution.processes, counter) as pool:
            waiting = {
                pool.submit(play, job, None, engine): index for index, job in enumerate(jobs)
            }
            while waiting:
                done, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting.pop(future), future.result()
                report(counter.value)


def map_jobs(
    function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], execution: Execution
) -> list[Any]:
    """``function(*job)`` of every job, in the order of the jobs."""
    executor = execution.executor
    if not jobs or (executor is None and execution.processes == 1):
        return [function(*job) for job in jobs]
    pool = contextlib.nullcontext(executor) if executor else pool_executor(execution.processes)
    with pool as run_jobs:
        results = dict(run_jobs(jobs, call_remotely, function))
    return [results[index] for index in range(len(jobs))]


@contextlib.contextmanager
def process_pool(
    workers: int, counter: Any = None, niceness: int = 0
) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes with one BLAS thread each; after an exception its processes are ended."""
    with one_thread_each():
        pool = ProcessPoolExecutor(workers, SPAWN, begin_worker, (counter, niceness))
        try:
            yield pool
            pool.shutdown()
        except BaseException as error:
            processes = list((pool._processes or {}).values())
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.kill()
            # The pool's threads block on its queues as long as the other ends are open, also when
            # no worker is left; this process holds these ends.
            inside: Any = pool
            if inside._result_queue is not None:
                inside._result_queue._writer.close()
            if inside._call_queue is not None:
                inside._call_queue._reader.close()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise HeadstartError(
                    "a worker process died (perhaps it ran out of memory): finished jobs are kept; "
                    "run it again, with fewer workers if necessary"
                ) from error
            raise


@contextlib.contextmanager
def pool_executor(workers: int, niceness: int = 0) -> Iterator[Executor]:
    """An executor of processes on this machine, which several threads may use at once.

    With ``niceness``, they yield to other processes as far as the system lets them.
    """
    with process_pool(workers, niceness=niceness) as pool:

        def run_jobs(
            jobs: Sequence[Any], function: Callable[..., Any], *arguments: Any
        ) -> Iterator[tuple[int, Any]]:
            waiting = {
                pool.submit(function, job, *arguments): index for index, job in enumerate(jobs)
            }
            try:
                for future in as_completed(waiting):
                    yield waiting[future], future.result()
            finally:
                for future in waiting:
                    future.cancel()

        yield run_jobs


def play_remotely(
    jobs: Sequence[Plan], executor: Executor, engine: str, report: Callable[[float], None]
) -> Generator[tuple[int, dict[str, Trace]], None, None]:
    """Run the jobs seed by seed with an executor, and yield each job when all its seeds are done.

    A seed's result does not depend on the others of its batch, so a job's result is the same as if
    it had been run in one piece.
    """
    seeds = [(index, at) for index, job in enumerate(jobs) for at in range(len(job.seeds))]
    parts: list[dict[int, dict[str, Trace]]] = [{} for _ in jobs]
    rounds_played = 0.0
    results = iter(executor(seeds, play_seed, list(jobs), engine))
    try:
        for which, traces in results:
            index, at = seeds[which]
            part, size = parts[index], len(jobs[index].seeds)
            part[at] = traces
            if len(part) == size:
                yield index, concatenate([part.pop(each) for each in range(size)])
            rounds_played += jobs[index].work / size
            report(rounds_played)
    finally:
        if isinstance(results, Generator):
            results.close()


def play_seed(seed: tuple[int, int], jobs: Sequence[Plan], engine: str) -> dict[str, Trace]:
    """Run one seed of a job, given by the indices of both, on another machine."""
    index, at = seed
    return play(dataclasses.replace(jobs[index], seeds=(jobs[index].seeds[at],)), None, engine)


def call_remotely(job: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """``function(*job)``, on another machine."""
    return function(*job)


def concatenate(parts: Sequence[dict[str, Trace]]) -> dict[str, Trace]:
    """The traces of all seeds, from those of some."""
    return {
        name: Trace(
            np.concatenate([part[name].regret for part in parts]),
            {
                key: np.concatenate([part[name].probes[key] for part in parts])
                for key in trace.probes
            },
        )
        for name, trace in parts[0].items()
    }


#: In a worker: the shared counter, and the process that started the worker.
WORKER_STATE: list[Any] = []


def begin_worker(counter: Any, niceness: int = 0) -> None:
    """Set a worker process up: the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if niceness and hasattr(os, "nice"):  # not on Windows
        os.nice(niceness)
    WORKER_STATE[:] = [counter, os.getppid()] if counter is not None else []


def play(
    job: Plan, count: Callable[[int], None] | None = None, engine: str = "auto"
) -> dict[str, Trace]:
    """Run one job."""

    def count_shared(rounds: int) -> None:
        if WORKER_STATE:
            with WORKER_STATE[0].get_lock():
                WORKER_STATE[0].value += rounds
            if os.getppid() != WORKER_STATE[1]:
                os._exit(1)  # the parent process has died

    sizes = (job.world, job.policies, job.seeds, job.tasks, job.rounds, job.recorded_rounds)
    if job.device == "gpu":
        from headstart.lab.gpu import engine as gpu

        with GPU_LOCK:
            regrets = gpu.simulate(*sizes, count)
        return {name: Trace(regret, {}) for name, regret in regrets.items()}
    return simulate(*sizes, job.probe, count or count_shared, engine)


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Let processes that are started meanwhile use one BLAS thread each."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
