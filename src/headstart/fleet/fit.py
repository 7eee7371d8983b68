"""From logs to a prior: read them once, fit the tasks, and write a bandit that starts ahead."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.bandit import Bandit
from headstart.bandit.ledger.prior_state import BaseFit
from headstart.bandit.report import Report
from headstart.errors import InputError
from headstart.features.conversion import Features
from headstart.features.schema.schema import Schema
from headstart.fleet.engines import threads
from headstart.fleet.engines.threads import Progress
from headstart.fleet.reading.files import is_url
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.rows import BadRows
from headstart.fleet.summing.checkpoint import Checkpoint, lock_folder, remove_checkpoint
from headstart.fleet.summing.passes import Units, one_blas_thread
from headstart.fleet.summing.shards import Partition
from headstart.fleet.summing.summary import ReadSummary, oddities
from headstart.fleet.summing.tasks import TaskPartitions
from headstart.fleet.target import Target
from headstart.model.evidence import Evidence, packed_size
from headstart.rules import Rule
from headstart.storage.atomic import PathLike, checked_path
from headstart.transfer import (
    EmpiricalBayes,
    Transfer,
)
from headstart.transfer.pooled_fit import fit_standardized

__all__ = ["Fitted", "fit"]

LEAST = 64 << 20  # bytes of memory without which it is not worth beginning


class Fitted(NamedTuple):
    """What logs have taught.

    Attributes
    ----------
    transfer, noise
        How the prior was learned, and R where it was given.
    state
        The transfer's state after all tasks, of features in their units.
    pooled
        The sums of all tasks together, of features in their units.
    units
        What was taken from each feature and what it was divided by, if they were standardized.
    intercept
        Whether a constant feature was added after the log's.
    tasks, rows
        How many there were; rows that count as evidence.
    bad, weightless
        The rows that were left out: those that cannot be used, and those of weight 0.
    feature_names
        The features, in the order in which a context has them.
    seconds
        How long it took.
    kept
        Every task's own evidence, where it was asked for, of features in their units.
    notes
        What is odd about the logs: a single task, rewards that are all alike.
    reward
        What rewards are, as in :class:`~headstart.Bandit`.
    schema
        The schema that the rows were encoded by, with which the bandit serves.
    """

    transfer: Transfer
    noise: float | None
    state: Any
    pooled: Evidence
    units: Units | None
    intercept: bool
    tasks: int
    rows: int
    bad: BadRows
    weightless: int
    feature_names: tuple[str, ...]
    seconds: float
    kept: list[Partition] | None = None
    notes: tuple[str, ...] = ()
    reward: str = "number"
    schema: Schema | None = None

    @property
    def prior(self) -> Any:
        """Where a new task starts, for features as the logs have them (the intercept last)."""
        prior = self.transfer.prior(self.state)
        return prior if self.units is None else self.units.undone(prior)

    def bandit(self, rule: Rule | None = None, seed: Any = None) -> Bandit:
        """A bandit whose new tasks start from this prior.

        Tasks that were kept are in it, closed: they go on from their own evidence, and what they
        have shown is taken out of the prior that they get.
        """
        given, shift, scale = self.pooled.dim - self.intercept, None, None
        if self.units is not None:
            shift, scale = (
                tuple(part[:given].tolist()) for part in (self.units.shift, self.units.scale)
            )
        kept = None if self.kept is None else [(ids.to_pylist(), rows) for ids, rows in self.kept]
        return Bandit.from_fit(
            BaseFit(self.state, float(self.tasks), self.pooled),
            Features(given, self.feature_names, self.intercept, shift, scale),
            self.transfer,
            rule,
            "auto" if self.noise is None else self.noise,
            seed,
            tasks=kept,
            reward=self.reward,
            schema=self.schema,
        )

    def report(self) -> Report:
        """What was learned."""
        return self._replace(kept=None).bandit(seed=0).report()

    def summary(self) -> dict[str, Any]:
        """The figures that people ask for first."""
        report = self.report()
        return {
            "rows": self.rows,
            "tasks": self.tasks,
            "bad_rows": self.bad.count,
            "weightless_rows": self.weightless,
            "features": len(self.feature_names),
            "intercept": self.intercept,
            "standardized": self.units is not None,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / max(self.seconds, 1e-9)),
            "transfer": repr(self.transfer),
            "reward_model": self.reward,
            "noise": report.noise,
            "rank": report.rank,
            "effective_rank": report.effective_rank,
            "gain": report.gain.summary(),
            "note": report.note,
            "notes": list(self.notes),
        }


def fit(
    logs: Logs,
    transfer: Transfer | None = None,
    *,
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
    tasks share. The answer is the same, up to rounding, whatever order the rows are in, however
    they are divided into files, and wherever it is computed.

    Parameters
    ----------
    logs
        What to read.
    transfer
        How to learn; :class:`~headstart.transfer.EmpiricalBayes` unless given.
    noise
        R, if it is known.
    intercept
        Whether to add a constant feature, so that rewards need not be 0 where all features are.
        The bandit adds it to every context by itself.
    standardize
        Whether features are centred (with an intercept) and divided by their standard deviations
        (without, by their root mean squares), so that it does not matter in which units they come.
        The bandit does so with every context by itself.
    out
        A path or URL to write the bandit to, for :func:`headstart.load`; nowhere unless given.
    keep_tasks
        Keep every task's own evidence, so that known tasks go on where they were. It is refused if
        that takes more than ``memory``.
    cluster
        ``"ray"`` for the Ray cluster that this process is connected to, or else one started here,
        or the address of one that runs:
        ``"ray://host:port"`` or ``"host:port"``. This machine's cores unless given.
    workers
        How many cores; all unless given, this machine's or the cluster's.
    memory
        Bytes of memory to take, about (2 GiB): on this machine by all workers together, on a
        cluster by each. Evidence that does not fit goes to disk.
    checkpoint
        The path or URL of a folder where to store what was read, so that a fit that is interrupted
        resumes when it is called again with the same folder, with or without a cluster. It is
        removed when the fit is done. A path must be one that all machines of the cluster see;
        otherwise a message says so, and nothing is stored.
    progress
        Called with ``"reading"`` or ``"fitting"``, how much is done, and how much there is.
    """
    if not isinstance(logs, Logs):
        raise checks.refuse("logs", "headstart.fleet.Logs", logs)
    if logs.columns.schema is not None and logs.columns.schema.identity:
        raise InputError(
            "schema must not have identity=True to fit logs: set it to false, make the id a "
            "category, or fit rows in memory with Bandit.fit"
        )
    transfer = EmpiricalBayes() if transfer is None else transfer
    if not isinstance(transfer, Transfer):
        raise checks.refuse("transfer", "a Transfer, such as headstart.Subspace()", transfer)
    if transfer.keeps_forced:
        raise InputError(
            f"transfer must learn from all rounds; {transfer!r} learns from forced rounds alone, "
            f"which logs do not mark: use Gaussian(forced=False)"
        )
    noise = None if noise is None else checks.positive("noise", noise)
    for name, value in (("intercept", intercept), ("standardize", standardize)):
        if not isinstance(value, bool):
            raise checks.refuse(name, "True or False", value)
    if checks.integer("memory", memory) < LEAST:
        raise InputError(f"memory must be at least {LEAST >> 20} MiB, in bytes; got {memory}")
    workers = None if workers is None else checks.integer("workers", workers, 1)
    target = None if out is None else Target(out, logs)
    start = time.perf_counter()
    on_pass = count_passes(transfer, progress)
    most = memory if keep_tasks else 0
    plan = Plan(
        logs.for_fit(intercept), transfer.with_constant(intercept), noise, standardize, most
    )
    with contextlib.ExitStack() as stack:
        place, stored = None if checkpoint is None else check_place(checkpoint), None
        if place is not None:
            stack.enter_context(lock_folder(place, logs.storage))
            stored = Checkpoint(place, plan.logs, plan.logs.parts())
        tasks: TaskPartitions
        if cluster is None:
            tasks, summary = stack.enter_context(
                threads.gather(
                    plan.logs, workers=workers, memory=memory, checkpoint=stored, progress=progress
                )
            )
        else:
            from headstart.fleet.engines import ray
            from headstart.fleet.engines.cluster import connect

            machines = stack.enter_context(connect(cluster, workers))
            tasks, summary = ray.gather(
                machines, plan.logs, memory=memory, checkpoint=stored, progress=progress
            )
        tasks.on_pass = on_pass
        fitted = fit_tasks(plan, tasks, summary)._replace(seconds=time.perf_counter() - start)
        if target is not None:
            target.write(fitted.bandit())
        if place is not None:
            remove_checkpoint(place, logs.storage)
    return fitted


def check_place(checkpoint: PathLike) -> str:
    """A folder's path or URL, refused by name if it is neither."""
    return os.fspath(checkpoint) if is_url(str(checkpoint)) else str(checked_path(checkpoint))


class Plan(NamedTuple):
    """What to learn from, and how; tasks are kept if they take no more than so many bytes."""

    logs: Logs
    transfer: Transfer
    noise: float | None
    standardize: bool
    keep_bytes: int


def fit_tasks(plan: Plan, tasks: TaskPartitions, summary: ReadSummary) -> Fitted:
    """Fit the evidence of all tasks, wherever it is."""
    logs, count = plan.logs, len(tasks)
    if not count:
        raise summary.nothing(logs.columns)
    if plan.keep_bytes:
        check_room(count, 8 * packed_size(logs.width), plan.keep_bytes)
    every = Evidence.unpack(tasks.pooled(), logs.width)
    odd = oddities(logs.feature_names, logs.intercept, every, summary.sampled)
    refused = refuse_scales(summary, every)
    try:
        with one_blas_thread(), np.errstate(all="ignore"):
            state, every, _, _ = fit_standardized(
                plan.transfer,
                tasks,
                every,
                plan.noise,
                intercept=logs.intercept,
                standardize=plan.standardize,
            )
            prior = plan.transfer.prior(state).as_gaussian()
    except np.linalg.LinAlgError:
        raise refused from None
    if not all(np.isfinite(part).all() for part in (prior.mean, prior.root, prior.noise)):
        raise refused
    return Fitted(
        transfer=plan.transfer,
        noise=plan.noise,
        state=state,
        pooled=every,
        units=tasks.units,
        intercept=logs.intercept,
        tasks=count,
        rows=summary.rows,
        bad=summary.bad,
        weightless=summary.weightless,
        feature_names=logs.feature_names,
        seconds=0.0,
        kept=list(tasks.partitions()) if plan.keep_bytes else None,
        notes=(
            *summary.notes(count, float(every.rounds), logs.share),
            *logs.survey().copies,
            *odd,
        ),
        schema=logs.columns.schema,
    )


def refuse_scales(summary: ReadSummary, every: Evidence) -> InputError:
    """The error where numbers differ so much in size that nothing can be computed with them."""
    count = max(float(every.rounds), 1e-300)
    sizes = np.sqrt(np.maximum(np.diag(every.gram), 0.0) / count)
    sizes = sizes[sizes > 0]
    ranges = [f"rewards from {summary.least:.3g} to {summary.greatest:.3g}"]
    if len(sizes):
        ranges.append(f"features of sizes from {sizes.min():.3g} to {sizes.max():.3g}")
    if summary.heaviest:
        ranges.append(f"weights up to {summary.heaviest:.3g}")
    return InputError(
        f"logs must not hold numbers that differ too much in size to be computed with; got "
        f"{', '.join(ranges)}: find the rows with headstart check, and repair or remove them"
    )


def check_room(tasks: int, size: int, memory: int) -> None:
    """Refuse to keep tasks of which a bandit would hold more than fits into memory."""
    if tasks * size > memory:
        raise InputError(
            f"keep_tasks holds the evidence of all tasks in memory: {tasks:,} tasks take "
            f"{tasks * size / 2**30:.1f} GiB, more than the {memory / 2**30:.1f} GiB of memory "
            f"allowed; raise memory (--memory), or fit without keep_tasks (--keep-tasks)"
        )


def count_passes(transfer: Transfer, progress: Progress | None) -> Callable[[], None] | None:
    """What to call after every pass over the tasks."""
    if progress is None:
        return None
    many, steps = transfer.partition_passes, itertools.count(1)
    return lambda: progress("fitting", float(min(next(steps), many)), float(many))
