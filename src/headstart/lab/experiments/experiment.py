"""Experiments: the jobs of a plan are run, and their results go to disk.

A job is some seeds and some policies of a plan. Its result is written as soon as it is finished,
under a name that depends on all its inputs; an interrupted run computes only the missing jobs when
it is started again. In a script, call :func:`run` under ``if __name__ == "__main__":``, because
worker processes import the script (or use one worker).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import warnings
from pathlib import Path

from headstart.lab.experiments.execution import Execution, play_jobs
from headstart.lab.experiments.plan import Plan, Results, gather
from headstart.lab.experiments.store import Store, check_stored

__all__ = ["run"]


def run(
    plan: Plan,
    folder: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    label: str | None = None,
) -> Results:
    """Run a plan.

    Parameters
    ----------
    plan
        What to run.
    folder
        Where finished jobs, tables and a manifest are written. Jobs that are there already are not
        run again. An interrupt leaves what was finished.
    execution
        How to run it; on all cores of this machine unless given.
    label
        The label of the progress bar; the world's name unless given.

    Returns
    -------
    Results
        The regret of every policy, and what the plan's probe measured.
    """
    execution = Execution() if execution is None else execution
    store = None if folder is None else Store(Path(folder))
    if execution.stored_only and store is not None:
        plan = store.device_of(plan)
    elif execution.engine == "gpu":
        plan = on_gpu(plan)
    jobs = plan.jobs()
    stored = {} if store is None else {index: store.find(job) for index, job in enumerate(jobs)}
    done = {index: traces for index, traces in stored.items() if traces is not None}
    missing = [index for index in range(len(jobs)) if index not in done]
    if execution.stored_only:
        check_stored(folder, len(missing), len(jobs))
    before = float(sum(jobs[index].work for index in done))
    start = time.perf_counter()
    with execution.progress(plan.world.name if label is None else label) as progress:

        def report(rounds: float) -> None:
            if progress is not None:
                progress(before + rounds, float(plan.work))

        report(0.0)
        playing = play_jobs([jobs[index] for index in missing], execution, report)
        with contextlib.closing(playing):  # jobs on other machines are cancelled first
            for at, traces in playing:
                index = missing[at]
                done[index] = traces
                if store is not None:
                    store.save(jobs[index], traces)
    results = gather(plan, [(job, done[index]) for index, job in enumerate(jobs)])
    if store is not None:
        store.finish(results, time.perf_counter() - start, len(missing))
    return results


def on_gpu(plan: Plan) -> Plan:
    """The plan for a GPU, if it can run there."""
    from headstart.lab.gpu import why_not

    reason = why_not(plan.world, plan.policies, plan.probe)
    if reason is None:
        return dataclasses.replace(plan, device="gpu")
    warnings.warn(f"the experiment runs on the CPU: {reason}", stacklevel=3)
    return plan
