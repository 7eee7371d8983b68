"""How far the reading of logs has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from headstart.fleet.engines.cluster import POLL, Cluster
from headstart.fleet.reading.logs import Part

__all__ = ["FinishedParts", "Progress", "amounts", "no_progress", "report_parts"]

Result = TypeVar("Result")

#: Called with what is being done, how much of it is done and how much there is in all.
Progress = Callable[[str, float, float], None]


def no_progress(*_: object) -> None:
    """Nothing is told."""


def amounts(parts: Sequence[Part]) -> dict[str, float]:
    """How much there is to read in each part: rows, or bytes where rows are not known."""
    if all(part.rows is not None for part in parts):
        return {part.key: float(part.rows or 0) for part in parts}
    return {part.key: float(part.bytes) for part in parts}


def report_parts(
    parts: Sequence[Part], results: Iterable[Result], progress: Progress
) -> Iterator[Result]:
    """The results of parts, in their order; ``progress`` is called after each was used."""
    sizes, done = amounts(parts), 0.0
    for part, result in zip(parts, results, strict=True):
        yield result
        done += sizes[part.key]
        progress("reading", done, sum(sizes.values()))


class FinishedParts:
    """Which parts were read so far, of which a worker's are known before its task ends.

    Parameters
    ----------
    cluster
        Where they are read.
    parts
        All of them.
    progress
        Called whenever more were read.
    """

    def __init__(self, cluster: Cluster, parts: Sequence[Part], progress: Progress) -> None:
        self.cluster, self.amounts, self.progress = cluster, amounts(parts), progress
        self.keys, self.actor = set[str](), None

    def add(self, keys: Iterable[str]) -> bool:
        """These were read; gives whether some of them are new."""
        before = len(self.keys)
        self.keys.update(keys)
        reached = sum(self.amounts[key] for key in self.keys)
        self.progress("reading", reached, sum(self.amounts.values()))
        return len(self.keys) > before

    def watch(self) -> None:
        """Start an actor that workers tell of parts; if it is lost, less progress is shown."""

        class Keys:  # sent by value: what holds it imports nothing
            def __init__(self) -> None:
                self.keys: list[str] = []

            def append(self, key: str) -> None:
                self.keys.append(key)

            def since(self, count: int) -> list[str]:
                return self.keys[count:]

        ray, count = self.cluster.ray, 0
        self.actor = actor = ray.remote(Keys).options(num_cpus=0).remote()

        def made_progress() -> bool:
            nonlocal count
            try:
                more = ray.get(actor.since.remote(count), timeout=POLL)
            except ray.exceptions.RayError:
                return False
            count += len(more)
            return bool(more) and self.add(more)

        self.cluster.made_progress = made_progress
