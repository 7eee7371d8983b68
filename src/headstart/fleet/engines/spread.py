"""Evidence on a Ray cluster: actors read parts of the logs, exchange, and keep what is theirs.

Every worker, an actor, reads parts one after the other (``hand_out.py``). When all are read, it
sends the tasks of every bucket to the worker that keeps it, and then answers passes over its own.
Ray starts a worker again that has died; every call says what the worker must have read and where
the others have left what they sent, so that one that has lost everything makes it good before it
answers. What is added up is added up in the buckets' order: the answer does not depend on any of
this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from headstart.fleet.engines.cluster import fetch_all
from headstart.fleet.reading.arrays import as_arrow
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing.loops import load_soon
from headstart.fleet.summing.merging import Partition
from headstart.fleet.summing.passes import Call, one_blas_thread
from headstart.fleet.summing.shelf import BUCKETS, Packed, Portion, Shelf
from headstart.fleet.summing.summary import ReadSummary
from headstart.fleet.summing.sums import Sums
from headstart.fleet.summing.tasks import TaskPartitions

__all__ = ["Duty", "Spread", "Worker"]

Found = TypeVar("Found")


WHOLE = 1 << 28  # bytes of features; a part of no more is added all at once


def blocks_of(logs: Logs, part: Part) -> Iterable[Rows]:
    """The rows of a part: a list, or one block after the other if it is too large to be held."""
    size = 2 * part.bytes if part.rows is None else 8 * logs.width * part.rows
    blocks = logs.read(part, turned=False)
    return list(blocks) if size <= WHOLE else blocks


class Duty(NamedTuple):
    """What a worker must have.

    Attributes
    ----------
    logs
        A reference to the logs.
    parts
        The parts of them that it reads.
    folder
        Where files of evidence go, if all machines see it.
    files
        Evidence of parts that need not be read again: an earlier fit has kept it, or this one.
    sent
        References to what others have read for this worker.
    """

    logs: Any
    parts: tuple[Part, ...] = ()
    folder: Path | None = None
    files: tuple[Path, ...] = ()
    sent: tuple[Any, ...] = ()


class Worker:
    """Reads parts of the logs, and keeps some buckets: every ``workers``-th from ``place`` on."""

    def __init__(self, dim: int, place: int, workers: int, budget: int) -> None:
        self.dim, self.budget = dim, budget
        self.place, self.workers = place, workers
        self.shelf: Shelf | None = None  # all that was read here
        self.begin(Duty(None))
        load_soon()

    def begin(self, duty: Duty) -> None:
        """With nothing but what is in files."""
        if self.shelf is not None:
            self.shelf.remove()
        self.sums = Sums(self.dim, self.budget, duty.folder)
        self.sums.runs = list(duty.files)
        self.folder, self.files = duty.folder, duty.files
        self.parts: list[str] = []  # what was read besides,
        self.latest = ReadSummary()  # and the account of the last of them
        self.shelf = None
        self.held: Shelf | None = None  # all of the own buckets, from everywhere

    @property
    def buckets(self) -> range:
        """Those that are kept here."""
        return range(self.place, BUCKETS, self.workers)

    def sees(self, path: Path) -> bool:
        """Whether a file is there, for this worker too."""
        return path.exists()

    def has(self, duty: Duty) -> bool:
        """Whether it has read just that."""
        parts = [part.key for part in duty.parts]
        return (self.folder, self.files, self.parts) == (duty.folder, duty.files, parts)

    def read(self, duty: Duty) -> ReadSummary:
        """Read what was not read yet; gives the account of the last part, also if asked again."""
        import ray

        logs = ray.get(duty.logs)
        if not self.has(duty._replace(parts=duty.parts[: len(self.parts)])):
            self.begin(duty)  # started again, or it has failed in the midst of a part
        for part in duty.parts[len(self.parts) :]:
            tally = ReadSummary(parts=[part.key])
            blocks = blocks_of(logs, part)
            self.parts.append("")  # for the case that it cannot be read to its end
            for rows in blocks:
                tally.count(rows)
                self.sums.add(rows)
            self.parts[-1], self.latest = part.key, tally
        return self.latest

    def keep(self, duty: Duty) -> tuple[Path, ...]:
        """Write what was read to files, in the folder that all can see; gives the new ones."""
        self.read(duty)
        self.sums.spill()
        self.files, self.parts = tuple(self.sums.runs), []
        return self.files[len(duty.files) :]

    def send(self, duty: Duty) -> Any:
        """For every worker the buckets that it keeps; nothing for this one."""
        if self.shelf is not None:  # asked again, when what others sent is among it
            self.begin(duty)
        self.read(duty)
        self.shelf = self.sums.shelf(keep=self.folder is not None)
        found = [
            [] if whose == self.place else list(self.packed(range(whose, BUCKETS, self.workers)))
            for whose in range(self.workers)
        ]
        return found if self.workers > 1 else found[0]

    def packed(self, buckets: range) -> Iterator[tuple[pa.Array, Packed]]:
        """Ids and sums of the tasks of some buckets, as they were read here."""
        assert self.shelf is not None
        if self.shelf.table is None:  # one bucket at a time: they are on disk
            for bucket in buckets:
                names, rows = self.shelf.portion(bucket)
                yield pa.array(names, pa.string()), rows
            return
        places = np.concatenate([self.shelf.places[bucket] for bucket in buckets])
        yield self.sums.index.all_known().take(as_arrow(places)), self.shelf.table[places]

    def settled(self, duty: Duty) -> Shelf:
        """The own buckets, with what others have sent."""
        if self.held is not None:
            return self.held
        import ray

        if self.shelf is None:
            self.read(duty)
            self.shelf = self.sums.shelf(keep=self.folder is not None)
        sums = self.sums
        if self.shelf.table is None:  # what was read is on disk
            sums = Sums(self.dim, self.budget)
            for ids, rows in self.packed(self.buckets):
                sums.add_packed(ids, rows)
            self.shelf.remove()
        known = len(sums)
        for reference in duty.sent:
            for ids, rows in ray.get(reference):
                sums.add_packed(ids, rows)
        # Where others have seen no other tasks, the shelf holds what they have sent already.
        fresh = self.shelf.table is None or sums.runs or len(sums) > known
        self.held = sums.shelf() if fresh else self.shelf
        return self.held

    def sizes(self, duty: Duty) -> dict[int, int]:
        """How many tasks each bucket has."""
        shelf = self.settled(duty)
        return {bucket: shelf.sizes[bucket] for bucket in self.buckets}

    def portion(self, duty: Duty, bucket: int) -> Portion:
        """The tasks of one bucket."""
        return self.settled(duty).portion(bucket)

    def apply(self, duty: Duty, call: Call, limits: dict[int, int]) -> dict[int, Any]:
        """The answers for the first tasks of every bucket here."""
        shelf, run = self.settled(duty), call.prepare(self.dim)
        found = {}
        with one_blas_thread():
            for each in self.buckets:
                if each in limits:
                    table, places = shelf.where(each)
                    found[each] = run(table, places[: limits[each]])
        return found


class Spread(TaskPartitions):
    """Buckets that are kept by workers on a cluster."""

    def __init__(
        self, ray: Any, workers: Sequence[Any], duties: Sequence[Duty], dim: int, tally: ReadSummary
    ) -> None:
        super().__init__(dim, [0] * BUCKETS)
        sizes = self.sizes
        self.ray, self.workers, self.tally = ray, list(workers), tally
        self.duties = [ray.put(duty) for duty in duties]  # once: they go with every call
        for held in fetch_all(
            ray, [worker.sizes.remote(duty) for worker, duty in self.each_worker()]
        ):
            for bucket, size in held.items():
                sizes[bucket] = size

    def each_worker(self) -> Iterator[tuple[Any, Any]]:
        """The workers, each with its duty."""
        return zip(self.workers, self.duties, strict=True)

    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """Every bucket's, by the workers that keep them."""
        call = Call(function, arguments, self.units, len(self))
        found: dict[int, Found] = {}
        limits = self.limits(first)
        calls = [worker.apply.remote(duty, call, limits) for worker, duty in self.each_worker()]
        for part in fetch_all(self.ray, calls):
            found |= part
        if self.on_pass is not None:
            self.on_pass()
        return [found[bucket] for bucket in sorted(found)]

    def partition(self, number: int) -> Partition:
        """The tasks of one bucket."""
        place = number % len(self.workers)
        call = self.workers[place].portion.remote(self.duties[place], number)
        (portion,) = fetch_all(self.ray, [call])
        return Partition(pa.array(portion.names, pa.large_string()), np.array(portion.rows))
