"""How experiments are run: processes, engine, executor and progress, in one record."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any

from headstart import checks

__all__ = ["ENGINES", "Execution", "Executor", "Progress"]

ENGINES = ("auto", "plain", "compiled", "gpu")

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
    """How experiments are run. Results do not depend on it, except on ``engine="gpu"``.

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
