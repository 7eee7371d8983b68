"""Reading logs on a Ray cluster: parts are handed out to whoever is free.

With a folder that all machines see, what the workers have read is kept there now and then, as it is
on one machine: a fit that is interrupted can go on, on the cluster or without it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import InputError
from headstart.fleet.engines import kept as checkpoint
from headstart.fleet.engines.cluster import fetch_all
from headstart.fleet.engines.kept import Kept
from headstart.fleet.engines.spread import Duty, Spread, Worker
from headstart.fleet.engines.threads import Progress, amounts
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.summing.shelf import BUCKETS
from headstart.fleet.summing.summary import ReadSummary

__all__ = ["gathered"]

READING = 3 << 27  # bytes a worker takes to read, about
AHEAD = 2  # parts that a worker is given at a time, so that it need not wait for the next


@contextlib.contextmanager
def gathered(
    ray: Any,
    logs: Logs,
    *,
    workers: int | None = None,
    memory: int = 2 << 30,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[Spread]:
    """Read all logs on the cluster; the evidence stays there, for as long as it is needed."""
    there = int(ray.cluster_resources().get("CPU", 1)) or 1
    workers = min(there if workers is None else workers, there, BUCKETS)
    budget = max(memory - workers * READING, memory // 4) // workers
    parts = logs.parts()
    kept = None if folder is None else Kept(folder.absolute(), logs, parts)
    actor = ray.remote(Worker).options(
        num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
    )
    crew = [actor.remote(logs.width, place, workers, budget) for place in range(workers)]
    try:
        if kept is not None and not seen_by_all(ray, crew, kept.folder):
            if kept.parts:
                raise InputError(
                    f"the fit in {str(kept.folder)!r} cannot go on: not every machine of the "
                    f"cluster sees that folder; go on without cluster, or begin afresh (--afresh)"
                )
            kept = None
        reading = HandOut(ray, crew, ray.put(logs), kept)
        reading.run(parts, amounts(parts), progress)
        sent = [
            worker.send.options(num_returns=workers).remote(duty)
            for worker, duty in zip(crew, reading.duties, strict=True)
        ]
        sent = sent if workers > 1 else [[one] for one in sent]
        others = [
            tuple(found[place] for whose, found in enumerate(sent) if whose != place)
            for place in range(workers)
        ]
        duties = [
            duty._replace(sent=theirs) for duty, theirs in zip(reading.duties, others, strict=True)
        ]
        yield Spread(ray, crew, duties, logs.width, reading.tally)
    finally:
        for worker in crew:
            ray.kill(worker)


def seen_by_all(ray: Any, crew: Sequence[Any], folder: Path) -> bool:
    """Whether every worker finds a file that was just made in a folder."""
    probe = folder / f"probe-{secrets.token_hex(8)}"
    probe.touch()
    try:
        return all(fetch_all(ray, [worker.sees.remote(probe) for worker in crew]))
    finally:
        probe.unlink(missing_ok=True)


class HandOut:
    """Which worker was given what, and what all have read."""

    def __init__(self, ray: Any, crew: Sequence[Any], logs: Any, kept: Kept | None) -> None:
        self.ray, self.crew, self.kept = ray, crew, kept
        self.duties = [Duty(logs) for _ in crew]
        if kept is not None:
            for place in range(len(crew)):
                files = tuple(kept.old_runs[place :: len(crew)])
                self.duties[place] = Duty(logs, folder=kept.folder, files=files)
        self.tally = ReadSummary()
        if kept is not None:
            self.tally.add(kept.old)
        self.fresh = [ReadSummary() for _ in crew]  # what was not kept yet
        self.due = [time.monotonic() + checkpoint.OFTEN for _ in crew]
        self.waiting: dict[Any, tuple[int, Part | None]] = {}

    def run(self, parts: Sequence[Part], amount: dict[str, float], progress: Any) -> None:
        """Have all parts read."""
        done = set() if self.kept is None else self.kept.parts
        left = iter([part for part in parts if part.key not in done])
        total = sum(amount.values())
        reached = sum(amount[key] for key in done)
        try:
            for place in range(len(self.crew)):
                self.give(place, left)
            while self.waiting:
                if progress is not None:
                    progress("reading", reached, total)
                ready, _ = self.ray.wait(list(self.waiting), num_returns=1)
                place, part = self.take(ready[0])
                reached += 0.0 if part is None else amount[part.key]
                self.give(place, left)
        except BaseException:
            self.keep_what_is_read()
            raise
        if progress is not None:
            progress("reading", total, total)

    def busy(self, place: int) -> int:
        """How many calls a worker has not answered."""
        return sum(whose == place for whose, _ in self.waiting.values())

    def give(self, place: int, left: Iterator[Part]) -> None:
        """Something to do, if there is anything: to keep what it has, if it is time, or parts."""
        if self.kept is not None and time.monotonic() > self.due[place]:
            if self.busy(place):
                return  # nothing more, until it has answered
            if self.fresh[place].parts:
                self.waiting[self.crew[place].keep.remote(self.duties[place])] = place, None
                return
        while self.busy(place) < AHEAD and (part := next(left, None)) is not None:
            duty = self.duties[place] = self.duties[place]._replace(
                parts=(*self.duties[place].parts, part)
            )
            self.waiting[self.crew[place].read.remote(duty)] = place, part

    def take(self, reference: Any) -> tuple[int, Part | None]:
        """What a worker answers: a part was read, or files were written."""
        place, part = self.waiting.pop(reference)
        (found,) = fetch_all(self.ray, [reference])
        if part is not None:
            self.tally.add(found)
            self.fresh[place].add(found)
            return place, part
        assert self.kept is not None
        self.kept.add(found, self.fresh[place])
        self.fresh[place] = ReadSummary()
        self.due[place] = time.monotonic() + checkpoint.OFTEN
        duty = self.duties[place]
        self.duties[place] = duty._replace(parts=(), files=(*duty.files, *found))
        return place, part

    def keep_what_is_read(self) -> None:
        """After an error: let the workers finish, and keep what they have."""
        if self.kept is None:
            return
        for reference in list(self.waiting):
            with contextlib.suppress(Exception):  # the first error is what matters
                self.take(reference)
        self.waiting.clear()
        for place, worker in enumerate(self.crew):
            read, duty = set(self.fresh[place].parts), self.duties[place]
            duty = duty._replace(parts=tuple(part for part in duty.parts if part.key in read))
            with contextlib.suppress(Exception):
                if read and all(fetch_all(self.ray, [worker.has.remote(duty)])):
                    reference = worker.keep.remote(duty)
                    self.waiting[reference] = place, None
                    self.take(reference)
