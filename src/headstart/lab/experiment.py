"""Experiments: a plan is split into jobs, the jobs run on all cores, and results go to disk.

A job is some seeds and some policies of a plan. Its result is written as soon as it is done, under
a name that follows from what it computed; a run that is interrupted and started again does only the
jobs that are missing. In a script of your own, call :func:`run` under ``if __name__ ==
"__main__":``, because worker processes import the script anew (or pass ``workers=1``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import checks
from headstart.errors import FileError, HeadstartError, InputError
from headstart.lab.engine import Probe, Trace, check_plan, simulate
from headstart.lab.fingerprint import fingerprint
from headstart.lab.policies import AnyPolicy
from headstart.lab.store import Store
from headstart.records import Settings
from headstart.worlds.base import World

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Plan", "Results", "run"]

#: Called with the policy-rounds done so far and in all.
Progress = Callable[[float, float], None]
#: ``spread(jobs, function, *arguments)`` runs ``function(job, *arguments)`` of every job somewhere
#: and gives each job's place and result as they come, as ``run_jobs`` on a cluster does.
Spread = Callable[..., Iterable[tuple[int, Any]]]


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Settings):
    """Which policies play how many tasks of which world.

    Parameters
    ----------
    world
        Where tasks come from.
    policies
        Who plays. All see the same tasks, contexts and noise.
    seeds
        One population each.
    tasks, rounds
        How many tasks, and rounds in each.
    checkpoints
        Rounds at which regret is recorded; the last one unless given.
    probe
        A function of the library or of a module of yours that measures something at each task's
        start.
    device
        ``"cpu"``, or ``"gpu"``: the same populations, but other tasks, contexts and noise, and
        single precision. What one of them has computed is not taken for the other's.
    """

    world: World
    policies: tuple[AnyPolicy, ...]
    seeds: tuple[int, ...]
    tasks: int = 400
    rounds: int = 250
    checkpoints: tuple[int, ...] = ()
    probe: Probe | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        checks.one_of("device", self.device, ("cpu", "gpu"))
        if not self.policies or not self.seeds:
            raise InputError("a plan needs at least one policy and one seed")
        names = [policy.name for policy in self.policies]
        for what, given in (
            ("policies with different names", names),
            ("different seeds", self.seeds),
        ):
            if len(set(given)) < len(given):
                raise InputError(f"a plan needs {what}; got {list(given)}")
        check_plan(self.tasks, self.rounds, self.checkpoints or None)

    @property
    def marks(self) -> tuple[int, ...]:
        """The rounds at which regret is recorded."""
        return self.checkpoints or (self.rounds,)

    @property
    def work(self) -> int:
        """How many policy-rounds it takes."""
        return len(self.policies) * len(self.seeds) * self.tasks * self.rounds

    @property
    def key(self) -> str:
        """A name that follows from everything that decides the result."""
        return fingerprint((version("headstart"), self))

    def jobs(self) -> list[Plan]:
        """The plan in parts: by seeds, and by policies where there are many.

        The parts do not depend on how many processes there are, so that a run can be resumed with
        another number of them. Several seeds a batch make good use of a core; every job repeats
        the drawing of contexts, so policies are split only in large sweeps, or where there are too
        few seeds to keep several cores busy. A GPU takes many seeds at once, and eight policies.
        """
        if self.device == "gpu":
            return self.split(2048, 8)
        parts = math.ceil(len(self.seeds) / 5)
        size = min(16, max(4, math.ceil(len(self.policies) * parts / 4)))
        return self.split(5, size)

    def split(self, seeds: int, policies: int) -> list[Plan]:
        """Parts of at most so many seeds and policies."""
        parts = [self.seeds[at : at + seeds] for at in range(0, len(self.seeds), seeds)]
        groups = [
            self.policies[at : at + policies] for at in range(0, len(self.policies), policies)
        ]
        return [
            dataclasses.replace(self, seeds=part, policies=group)
            for part in parts
            for group in groups
        ]


@dataclasses.dataclass(frozen=True)
class Results:
    """What a plan measured, as tidy tables.

    ``regret`` has the columns seed, policy, task, round and regret (since the task's start);
    ``probes`` has seed, policy, task, name and value.
    """

    plan: Plan
    regret: pl.DataFrame
    probes: pl.DataFrame

    def totals(self) -> pl.DataFrame:
        """Total regret of every seed and policy."""
        import polars as pl

        last = self.regret.filter(pl.col("round") == self.plan.rounds)
        sums = last.group_by("policy", "seed", maintain_order=True).agg(
            total=pl.col("regret").sum()
        )
        return sums.sort("policy", "seed")


def run(
    plan: Plan,
    folder: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    stored: bool = False,
    engine: str = "auto",
    spread: Spread | None = None,
) -> Results:
    """Run a plan on all cores, or on ``workers`` of them.

    ``engine`` is ``"plain"`` (NumPy), ``"compiled"`` (Numba), ``"auto"`` (compiled if Numba is
    installed) or ``"gpu"``. Where a plan cannot run on a GPU, a warning says why and it runs on the
    CPU.

    With a ``folder``, finished jobs are kept there and not run again, and a manifest says what was
    run. ``KeyboardInterrupt`` leaves what was finished. With ``stored``, nothing is run: what is
    not in the folder is refused.

    With ``spread``, every seed is run elsewhere, with exactly the same results:
    ``spread(jobs, function, *arguments)`` gives the place of each job and
    ``function(job, *arguments)`` as they come. On a Ray cluster (``headstart[fleet]``)::

        from headstart.fleet.engines.cluster import connected, run_jobs

        with connected("ray://head:10001"):
            run(plan, "results", spread=run_jobs)

    What a GPU plays, it plays here.
    """
    checks.one_of("engine", engine, ENGINES)
    workers = os.cpu_count() or 1 if workers is None else checks.integer("workers", workers, 1)
    store = None if folder is None else Store(Path(folder))
    if stored and store is not None:
        plan = store.device_of(plan)
    elif engine == "gpu":
        plan = on_gpu(plan)
    engine = "auto" if engine == "gpu" else engine
    jobs = plan.jobs()
    done: dict[int, dict[str, Trace]] = {}
    if store is not None:
        for place, job in enumerate(jobs):
            found = store.find(job)
            if found is not None:
                done[place] = found
    finished = float(sum(jobs[place].work for place in done))

    def tell(more: float) -> None:
        if progress is not None:
            progress(finished + more, float(plan.work))

    tell(0.0)
    start = time.perf_counter()
    missing = [place for place in range(len(jobs)) if place not in done]
    if stored and missing:
        raise FileError(
            f"folder {str(folder)!r} lacks {len(missing)} of {len(jobs)} jobs of this experiment "
            f"(unfinished, or of another version of headstart): run it again"
        )
    playing = play_all([jobs[place] for place in missing], workers, tell, engine, spread)
    with contextlib.closing(playing):  # what runs elsewhere is called off before anything else
        for at, traces in playing:
            place = missing[at]
            done[place] = traces
            if store is not None:
                store.keep(jobs[place], traces)
    results = gather(plan, [(jobs[place], done[place]) for place in range(len(jobs))])
    if store is not None:
        store.finish(results, time.perf_counter() - start, len(missing))
    return results


ENGINES = ("auto", "plain", "compiled", "gpu")


def on_gpu(plan: Plan) -> Plan:
    """The plan for a GPU, if it can run there."""
    from headstart.lab.gpu import why_not

    reason = why_not(plan.world, plan.policies, plan.probe)
    if reason is None:
        return dataclasses.replace(plan, device="gpu")
    warnings.warn(f"the experiment runs on the CPU: {reason}", stacklevel=3)
    return plan


def play_all(
    jobs: Sequence[Plan],
    workers: int,
    tell: Callable[[float], None],
    engine: str,
    spread: Spread | None = None,
) -> Generator[tuple[int, dict[str, Trace]], None, None]:
    """Run jobs, in this process or in others, and give each result as it comes."""
    if spread is not None and jobs and jobs[0].device != "gpu":
        yield from play_elsewhere(jobs, tell, engine, spread)
        return
    if workers == 1 or len(jobs) <= 1 or jobs[0].device == "gpu":
        played = 0.0

        def count(rounds: int) -> None:
            nonlocal played
            played += rounds
            tell(played)

        for place, job in enumerate(jobs):
            yield place, play(job, count, engine)
        return
    context = multiprocessing.get_context("spawn")
    counter = context.Value("d", 0.0)
    with one_thread_each():
        pool = ProcessPoolExecutor(workers, context, begin_worker, (counter,))
        try:
            waiting = {
                pool.submit(play, job, None, engine): place for place, job in enumerate(jobs)
            }
            while waiting:
                done, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting.pop(future), future.result()
                tell(counter.value)
            pool.shutdown()
        except BaseException as error:
            # Nobody wants the rest: do not wait for it.
            processes = list((pool._processes or {}).values())
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.kill()
            # The pool's threads read what workers wrote, and write what they would read, for as
            # long as anybody has the other end, even if there are no workers any more: we do.
            inside: Any = pool
            if inside._result_queue is not None:
                inside._result_queue._writer.close()
            if inside._call_queue is not None:
                inside._call_queue._reader.close()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise HeadstartError(
                    "a worker process died (out of memory, perhaps): what was finished is kept; "
                    "run it again, with fewer workers if need be"
                ) from error
            raise


def play_elsewhere(
    jobs: Sequence[Plan], tell: Callable[[float], None], engine: str, spread: Spread
) -> Generator[tuple[int, dict[str, Trace]], None, None]:
    """Run every seed of the jobs where ``spread`` does, and give a job's result when it is whole.

    A seed's result is the same whichever others share its batch, so a job can be put together again
    of its seeds, to be kept under the same name as anywhere.
    """
    seeds = [(place, at) for place, job in enumerate(jobs) for at in range(len(job.seeds))]
    found: list[dict[int, dict[str, Trace]]] = [{} for _ in jobs]
    played = 0.0
    spreading = iter(spread(seeds, play_seed, list(jobs), engine, version("headstart")))
    try:
        for which, traces in spreading:
            place, at = seeds[which]
            parts, many = found[place], len(jobs[place].seeds)
            parts[at] = traces
            if len(parts) == many:
                yield place, merged([parts.pop(each) for each in range(many)])
            played += jobs[place].work / many
            tell(played)
    finally:
        if isinstance(spreading, Generator):
            spreading.close()


def play_seed(
    seed: tuple[int, int], jobs: Sequence[Plan], engine: str, release: str
) -> dict[str, Trace]:
    """Run one seed of a job, given by the places of both, on a machine with the same headstart."""
    same_release(release)
    place, at = seed
    return play(dataclasses.replace(jobs[place], seeds=(jobs[place].seeds[at],)), None, engine)


def same_release(release: str) -> None:
    """Refuse to compute for another version of headstart: results might differ."""
    here = version("headstart")
    if here != release:
        raise HeadstartError(
            f"the cluster's machines have headstart {here}, and this one has {release}: "
            "install the same on all of them"
        )


def merged(parts: Sequence[dict[str, Trace]]) -> dict[str, Trace]:
    """The traces of some seeds, and of others, as those of all."""
    return {
        name: Trace(
            np.concatenate([part[name].regret for part in parts]),
            {
                key: np.concatenate([part[name].probed[key] for part in parts])
                for key in trace.probed
            },
        )
        for name, trace in parts[0].items()
    }


SHARED: list[Any] = []  # in a worker: the counter, and the process that started it


def begin_worker(counter: Any) -> None:
    """Set a worker process up: the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    SHARED[:] = [counter, os.getppid()]


def play(
    job: Plan, count: Callable[[int], None] | None = None, engine: str = "auto"
) -> dict[str, Trace]:
    """Run one job."""

    def shared(rounds: int) -> None:
        if SHARED:
            with SHARED[0].get_lock():
                SHARED[0].value += rounds
            if os.getppid() != SHARED[1]:
                os._exit(1)  # whoever wanted the result is gone

    if job.device == "gpu":
        from headstart.lab.gpu import engine as gpu

        found = gpu.simulate(
            job.world, job.policies, job.seeds, job.tasks, job.rounds, job.marks, count
        )
        return {name: Trace(regret, {}) for name, regret in found.items()}
    return simulate(
        job.world,
        job.policies,
        job.seeds,
        job.tasks,
        job.rounds,
        job.marks,
        job.probe,
        count or shared,
        engine,
    )


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Workers use one BLAS thread: they are as many as there are cores."""
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


def gather(plan: Plan, parts: Sequence[tuple[Plan, dict[str, Trace]]]) -> Results:
    """All jobs' results as two tidy tables."""
    import polars as pl

    marks = np.asarray(plan.marks)
    regrets, probes = [empty_regret()], [empty_probes()]
    for job, traces in parts:
        seeds = np.asarray(job.seeds)
        tasks = np.arange(job.tasks)
        for name, trace in traces.items():
            seed, task, mark = np.meshgrid(seeds, tasks, marks, indexing="ij")
            columns = {"seed": seed, "task": task, "round": mark, "regret": trace.regret}
            frame = pl.DataFrame({key: value.ravel() for key, value in columns.items()})
            regrets.append(frame.with_columns(policy=pl.lit(name)).select(regrets[0].columns))
            for key, values in trace.probed.items():
                seed, task = np.meshgrid(seeds, tasks, indexing="ij")
                columns = {"seed": seed, "task": task, "value": values}
                frame = pl.DataFrame({key: value.ravel() for key, value in columns.items()})
                frame = frame.with_columns(policy=pl.lit(name), name=pl.lit(key))
                probes.append(frame.select(probes[0].columns))
    return Results(plan, pl.concat(regrets), pl.concat(probes))


def empty_regret() -> pl.DataFrame:
    """The regret table without rows."""
    import polars as pl

    whole = {"seed": pl.Int64, "policy": pl.String, "task": pl.Int64, "round": pl.Int64}
    return pl.DataFrame(schema={**whole, "regret": pl.Float64})


def empty_probes() -> pl.DataFrame:
    """The table of probes without rows."""
    import polars as pl

    whole = {"seed": pl.Int64, "policy": pl.String, "task": pl.Int64}
    return pl.DataFrame(schema={**whole, "name": pl.String, "value": pl.Float64})
