"""From logs to a prior: read them once, fit the tasks, and write a bandit with this prior."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headstart import checks
from headstart.bandit.offline.observation import refuse_means
from headstart.bandit.rewards import RewardModel, reward_model
from headstart.errors import InputError
from headstart.fleet.engines import threads
from headstart.fleet.fitted import Fitted, Plan, Target
from headstart.fleet.reading.logs import Logs
from headstart.fleet.row_fit import fit_click_logs, fit_item_logs
from headstart.fleet.summing.checkpoint import Checkpoint, lock_folder, remove_checkpoint
from headstart.fleet.summing.summary import Progress, ReadSummary, column_notes, no_progress
from headstart.fleet.summing.tasks import TaskPartitions, one_blas_thread
from headstart.model.evidence import Evidence
from headstart.storage.atomic import PathLike
from headstart.transfer import EmpiricalBayes, Transfer
from headstart.transfer.pooled_fit import fit_standardized, pool, refuse_forced_rounds

MIN_MEMORY = 64 << 20  # bytes of memory without which it is not worth beginning


def fit(
    logs: Logs,
    transfer: Transfer | None = None,
    *,
    reward: str = "number",
    minimize: bool = False,
    noise: float | None = None,
    intercept: bool = True,
    standardize: bool = True,
    out: PathLike | None = None,
    keep_tasks: bool = False,
    cluster: str | None = None,
    workers: int | None = None,
    memory: int = 2 << 30,
    checkpoint: PathLike | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Learn a prior from logs.

    One pass over the rows adds up every task's evidence; a few passes over the evidence fit what
    tasks share. The result is the same, up to rounding, for any order of rows, any division into
    files, and on every engine.

    Parameters
    ----------
    logs
        What to read.
    transfer
        How to learn; :class:`~headstart.transfer.EmpiricalBayes` unless given.
    reward
        What rewards are, as for :class:`~headstart.Bandit`: ``"number"``, or ``"binary"`` for 0 and
        1. Rows of binary rewards are stored in temporary files, and read in a few passes.
    minimize
        Whether rewards are costs: the smaller, the better. The bandit predicts costs.
    noise
        R, if it is known.
    intercept
        Whether to add a constant feature, so that rewards need not be 0 where all features are.
        The bandit adds it to every context by itself.
    standardize
        Whether features are centred (with an intercept) and divided by their standard deviations
        (without, by their root mean squares), so that their units do not matter. The bandit
        transforms every context in the same way.
    out
        A path or URL to write the bandit to, for :func:`headstart.load`; nowhere unless given.
    keep_tasks
        Keep every task's own evidence, so that known tasks continue from it. Refused if that takes
        more than ``memory``.
    cluster
        ``"ray"`` for the Ray cluster that this process is connected to, or else one started here,
        or the address of one that runs:
        ``"ray://host:port"`` or ``"host:port"``. This machine's cores unless given.
    workers
        How many cores; all unless given, this machine's or the cluster's.
    memory
        The approximate memory limit in bytes (2 GiB): on this machine for all workers together, on
        a cluster for each. Evidence that does not fit goes to disk.
    checkpoint
        The path or URL of a folder where to store what was read, so that a fit that is interrupted
        resumes when it is called again with the same folder, with or without a cluster. It is
        removed when the fit is done. A path must be one that all machines of the cluster see;
        otherwise a message says so, and nothing is stored.
    progress
        Called with ``"reading"`` or ``"fitting"``, how much is done, and how much there is.
    """
    transfer = checked_transfer(logs, transfer, intercept)
    model = reward_model(reward, minimize)
    noise = None if noise is None else model.check_noise(noise)
    if logs.columns.mean_of is not None:
        refuse_means(model)
    checks.flag("standardize", standardize)
    if checks.integer("memory", memory) < MIN_MEMORY:
        raise InputError(f"memory must be at least {MIN_MEMORY >> 20} MiB, in bytes; got {memory}")
    workers = None if workers is None else checks.integer("workers", workers, 1)
    target = None if out is None else Target(out, logs)
    progress, start = progress or no_progress, time.perf_counter()
    most = memory if keep_tasks else 0
    transfer = transfer.with_free_intercept() if model.needs_belief else transfer
    plan = Plan(logs.for_fit(intercept, model), transfer, noise, standardize, most)
    with contextlib.ExitStack() as stack:
        if logs.columns.schema is not None and logs.columns.schema.identity:
            refuse_remote("a schema with identity=True", cluster, checkpoint)
            fitted = fit_item_logs(plan, memory=memory, progress=progress)
        elif model.needs_belief:
            refuse_remote(f"reward={reward!r}", cluster, checkpoint)
            fitted = fit_click_logs(plan, workers=workers, memory=memory, progress=progress)
        else:
            tasks: TaskPartitions
            stored = None
            if checkpoint is not None:
                stack.enter_context(lock_folder(checkpoint, logs.storage))
                stored = Checkpoint(checkpoint, plan.logs, plan.logs.parts())
            shared: Any = {"memory": memory, "checkpoint": stored, "progress": progress}
            if cluster is None:
                here = threads.gather(plan.logs, workers=workers, **shared)
                tasks, summary = stack.enter_context(here)
            else:
                from headstart.fleet.engines import ray
                from headstart.fleet.engines.cluster import connect

                machines = stack.enter_context(connect(cluster, workers))
                tasks, summary = ray.gather(machines, plan.logs, **shared)
            fitted = fit_tasks(plan, tasks, summary, count_passes(transfer, progress))
        fitted = fitted._replace(seconds=time.perf_counter() - start)
        if target is not None:
            target.write(fitted.bandit())
        if checkpoint is not None:
            remove_checkpoint(checkpoint, logs.storage)
    return fitted


def checked_transfer(logs: Logs, transfer: Transfer | None, intercept: bool) -> Transfer:
    """How to learn from logs, EmpiricalBayes unless given; refused if logs are not enough for it.

    It has the setting whether the last feature is constant.
    """
    if not isinstance(logs, Logs):
        raise checks.invalid("logs", "headstart.fleet.Logs", logs)
    transfer = EmpiricalBayes() if transfer is None else transfer
    if not isinstance(transfer, Transfer):
        raise checks.invalid("transfer", "a Transfer, such as headstart.Subspace()", transfer)
    refuse_forced_rounds(transfer)
    return transfer.with_constant(checks.flag("intercept", intercept))


def refuse_remote(what: str, cluster: str | None, checkpoint: PathLike | None) -> None:
    """Refuse what only sums can do: they alone are computed on a cluster, and are checkpointed."""
    for name, value in (("cluster", cluster), ("checkpoint", checkpoint)):
        if value is not None:
            raise checks.invalid(
                name, f"left out with {what}, which is fitted on this machine", value
            )


def fit_tasks(
    plan: Plan, tasks: TaskPartitions, summary: ReadSummary, on_pass: Callable[[], None]
) -> Fitted:
    """Fit the evidence of all tasks, wherever it is; ``on_pass`` is called after every pass."""
    logs = plan.logs
    tasks.on_pass = on_pass
    if not len(tasks):
        raise summary.nothing(logs.columns)
    plan.check_room(len(tasks), logs.width)
    given = pool(tasks)
    notes = column_notes(logs.feature_names, logs.intercept, given, summary.sampled)
    refused = refuse_scales(given, summary, logs.rewards)
    try:
        with one_blas_thread(), np.errstate(all="ignore"):
            fit = fit_standardized(
                plan.transfer,
                tasks,
                given,
                plan.noise,
                intercept=logs.intercept,
                standardize=plan.standardize,
            )
            prior = plan.transfer.prior(fit.state).as_gaussian()
    except np.linalg.LinAlgError:
        raise refused from None
    if not all(np.isfinite(part).all() for part in (prior.mean, prior.root, prior.noise)):
        raise refused
    return Fitted.of(plan, fit, summary, given, notes)


def refuse_scales(every: Evidence, summary: ReadSummary, rewards: RewardModel) -> InputError:
    """The error where numbers differ so much in size that nothing can be computed with them."""
    count = max(float(every.rounds), 1e-300)
    sizes = np.sqrt(np.maximum(np.diag(every.gram), 0.0) / count)
    sizes = sizes[sizes > 0]
    least, greatest = summary.reward_range(rewards)
    ranges = [f"rewards from {least:.3g} to {greatest:.3g}"]
    if len(sizes):
        ranges.append(f"features of sizes from {sizes.min():.3g} to {sizes.max():.3g}")
    if summary.heaviest:
        ranges.append(f"weights up to {summary.heaviest:.3g}")
    return InputError(
        f"logs must not hold numbers that differ too much in size to be computed with; got "
        f"{', '.join(ranges)}: find the rows with headstart check, and repair or remove them"
    )


def count_passes(transfer: Transfer, progress: Progress) -> Callable[[], None]:
    """What to call after every pass over the tasks."""
    many, steps = transfer.partition_passes, itertools.count(1)
    return lambda: progress("fitting", float(min(next(steps), many)), float(many))
