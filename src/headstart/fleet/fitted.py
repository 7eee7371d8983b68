"""What a fit of logs has learned, the bandit that starts from it, and where that is written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from headstart.bandit import Bandit
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.prior_state import StartingFit
from headstart.bandit.offline.fitting import fitted_features
from headstart.bandit.reports.report import Report
from headstart.errors import FileError, InputError
from headstart.features.conversion import Features
from headstart.features.schema.schema import Schema
from headstart.fleet.reading.logs import Logs
from headstart.fleet.reading.rows import BadRows
from headstart.fleet.reading.stores import Folder, is_url
from headstart.fleet.summing.shards import Partition
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.tasks import TaskPartitions
from headstart.model.evidence import Evidence, packed_size
from headstart.rules import Rule
from headstart.storage import atomic, tensor_file
from headstart.storage.atomic import PathLike, checked_path
from headstart.transfer import Transfer
from headstart.transfer.pooled_fit import PooledFit
from headstart.transfer.standardize import Standardization


class Plan(NamedTuple):
    """What to learn from, and how.

    Attributes
    ----------
    logs, transfer, noise, standardize
        As for :func:`headstart.fleet.fit`; the logs and the transfer know of the intercept, and
        the logs of what rewards are.
    keep_bytes
        Tasks are kept if they take no more than so many bytes; 0 to keep none.
    """

    logs: Logs
    transfer: Transfer
    noise: float | None
    standardize: bool
    keep_bytes: int

    def check_room(self, tasks: int, dim: int) -> None:
        """Refuse to keep tasks of which a bandit would hold more than fits into memory."""
        size = 8 * packed_size(dim) * tasks
        if self.keep_bytes and size > self.keep_bytes:
            raise InputError(
                f"keep_tasks holds the evidence of all tasks in memory: {tasks:,} tasks take "
                f"{size / 2**30:.1f} GiB, more than the {self.keep_bytes / 2**30:.1f} GiB of "
                f"memory allowed; raise memory (--memory), or fit without keep_tasks (--keep-tasks)"
            )


class Fitted(NamedTuple):
    """The result of a fit of logs.

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
    evidence
        Every task's own evidence, where it was asked for, of features in their units.
    notes
        Notes on the logs: a single task, rewards that are all alike.
    reward, minimize
        What rewards are, as in :class:`~headstart.Bandit`. The state and the prior of costs are
        those of the reward −cost.
    schema
        The schema that the rows were encoded by, with which the bandit serves.
    items
        What was learned of items, where the schema knows them by their ids.
    """

    transfer: Transfer
    noise: float | None
    state: Any
    pooled: Evidence
    units: Standardization | None
    intercept: bool
    tasks: int
    rows: int
    bad: BadRows
    weightless: int
    feature_names: tuple[str, ...]
    seconds: float
    evidence: list[Partition] | None = None
    notes: tuple[str, ...] = ()
    reward: str = "number"
    minimize: bool = False
    schema: Schema | None = None
    items: ItemLedger | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        fit: PooledFit,
        summary: ReadSummary,
        given: Evidence,
        column_notes: Iterable[str],
    ) -> Fitted:
        """The result of a plan.

        Parameters
        ----------
        plan, fit
            What was to be learned, and what was; of tasks in :class:`TaskPartitions`.
        summary, given
            What was read, and the sums of all its rows, of features as the logs have them.
        column_notes
            What is odd about the columns.
        """
        logs, tasks, kept = plan.logs, fit.partitions, None
        notes = summary.notes(len(tasks), logs.rewards, logs.share)
        if plan.keep_bytes:
            assert isinstance(tasks, TaskPartitions)
            kept = list(map(tasks.partition, range(len(tasks.sizes))))
        return cls(
            transfer=plan.transfer,
            noise=plan.noise,
            state=fit.state,
            pooled=fit.pooled,
            units=fit.units,
            intercept=logs.intercept,
            tasks=len(tasks),
            rows=summary.rows,
            bad=summary.bad,
            weightless=summary.weightless,
            feature_names=logs.feature_names,
            seconds=0.0,
            evidence=kept,
            notes=(*notes, *logs.survey.copies, *column_notes),
            reward=logs.rewards.name,
            minimize=logs.rewards.minimize,
            schema=logs.columns.schema,
        )

    @property
    def prior(self) -> Any:
        """The prior of a new task, for features in the units of the logs (the intercept last)."""
        prior = self.transfer.prior(self.state)
        return prior if self.units is None else self.units.original_prior(prior)

    def bandit(self, rule: Rule | None = None, seed: Any = None) -> Bandit:
        """A bandit whose new tasks start from this prior.

        Tasks that were kept are in it, closed: they continue from their own evidence, under a prior
        that excludes it.
        """
        tasks, items = None, None if self.items is None else self.items.copy()
        if self.evidence is not None:
            tasks = [(ids.to_pylist(), rows) for ids, rows in self.evidence]
        elif items is not None:
            items.forget_tasks()
        given = Features(self.pooled.dim - self.intercept, self.feature_names, self.intercept)
        return Bandit.from_fit(
            StartingFit(self.state, float(self.tasks), self.pooled),
            fitted_features(given, self.units),
            self.transfer,
            rule,
            "auto" if self.noise is None else self.noise,
            seed,
            tasks=tasks,
            reward=self.reward,
            minimize=self.minimize,
            schema=self.schema,
            items=items,
        )

    def report(self) -> Report:
        """What was learned."""
        return self._replace(evidence=None).bandit(seed=0).report()

    def summary(self) -> dict[str, Any]:
        """The main figures."""
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
            "minimize": self.minimize,
            "noise": report.noise,
            "rank": report.rank,
            "effective_rank": report.effective_rank,
            "gain": report.gain.summary(),
            "note": report.note,
            "notes": list(self.notes),
        }


MAX_HEADER_BYTES = 1 << 26  # bytes of a header


class Target:
    """A file to write, refused before anything is read if it cannot be written.

    It may be a new file, or one that headstart wrote; never a log.

    Parameters
    ----------
    out
        A path or a URL.
    logs
        The logs that are read; their options of the file system are used for a URL, too.
    """

    def __init__(self, out: PathLike, logs: Logs) -> None:
        path, self.out, self.remote = checked_path(out), os.fspath(out), is_url(os.fspath(out))
        place, _, self.name = self.out.rpartition("/")
        self.folder = Folder(place if self.remote else path.parent, logs.storage)
        if self.remote:
            is_log = self.out in (file.path for file in logs.files)
        else:
            check_writable(path)
            local = [file.path for file in logs.files if not is_url(file.path)]
            is_log, self.name = path.exists() and any(map(path.samefile, local)), path.name
        if is_log or not self.name:
            raise FileError(f"out must be a file to write, and not a log; got {self.out!r}")
        exists = self.name in self.folder.names() if self.remote else path.exists()
        if exists and not is_replaceable(self.folder, self.name):
            raise FileError(
                f"out must be a new file, or one that headstart wrote; {self.out!r} is something "
                f"else: give another name, or remove it first"
            )

    def write(self, bandit: Bandit) -> None:
        """Write a bandit, all of it or nothing."""
        if not self.remote:
            bandit.save(self.out)
            return
        with tempfile.TemporaryDirectory(prefix="headstart-") as temporary:
            path = Path(temporary) / self.name
            bandit.save(path)
            self.folder.write(self.name, path)


def check_writable(path: Path) -> None:
    """Refuse a path where no file can be written."""
    if path.is_dir():
        raise FileError(f"out must be a file to write; {str(path)!r} is a folder")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise FileError(
            f"out cannot be written: {str(path.parent)!r} is no folder that can be written to"
        )
    atomic.check_replaceable(path)


def is_replaceable(folder: Folder, name: str) -> bool:
    """Whether a file is empty or one of headstart's, by how it begins."""
    try:
        start = folder.read(name, 8)
        length = int.from_bytes(start, "little")
        if not start or length > MAX_HEADER_BYTES:
            return not start
        header = json.loads(folder.read(name, 8 + length)[8:])
        return bool(header["__metadata__"]["format"] == tensor_file.FORMAT)
    except (FileError, OSError, *atomic.DECODING_ERRORS):
        return False
