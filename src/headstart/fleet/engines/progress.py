"""How far the reading of logs has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from headstart.fleet.engines.cluster import POLL, Cluster
from headstart.fleet.reading.logs import Part

__all__ = ["FinishedParts", "Progress", "no_progress", "report_parts", "watch_parts"]

Result = TypeVar("Result")

#: Called with what is being done, how much of it is done and how much there is in all.
Progress = Callable[[str, float, float], None]


def no_progress(*_: object) -> None:
    """Nothing is told."""


class FinishedParts:
    """How much of some parts was read: rows, or bytes where rows are not known."""

    def __init__(self, parts: Sequence[Part], progress: Progress) -> None:
        in_rows = all(part.rows is not None for part in parts)
        self.left = {part.key: float((part.rows or 0) if in_rows else part.bytes) for part in parts}
        self.reached, self.total, self.progress = 0.0, sum(self.left.values()), progress

    def add(self, keys: Iterable[str]) -> bool:
        """These were read; gives whether some of them are new."""
        more = [self.left.pop(key) for key in keys if key in self.left]
        self.reached += sum(more)
        self.progress("reading", self.reached, self.total)
        return bool(more)


def report_parts(
    parts: Sequence[Part], results: Iterable[Result], progress: Progress
) -> Iterator[Result]:
    """The results of parts, in their order; ``progress`` is called after each was used."""
    finished = FinishedParts(parts, progress)
    for part, result in zip(parts, results, strict=True):
        yield result
        finished.add([part.key])


def watch_parts(cluster: Cluster, finished: FinishedParts) -> Any:
    """An actor that workers tell of parts before their task ends.

    If it is lost, less progress is shown.
    """

    class Keys:  # sent by value: what holds it imports nothing
        def __init__(self) -> None:
            self.keys: list[str] = []

        def append(self, key: str) -> None:
            self.keys.append(key)

        def take(self) -> list[str]:
            keys, self.keys = self.keys, []
            return keys

    ray, answer = cluster.ray, None
    actor = ray.remote(Keys).options(num_cpus=0).remote()

    def made_progress() -> bool:
        nonlocal answer
        # An answer that is late is waited for again: the keys in it are in no other.
        answer = answer or actor.take.remote()
        try:
            more, answer = ray.get(answer, timeout=POLL), None
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError:
            answer = None
            return False
        return bool(more) and finished.add(more)

    cluster.watch(made_progress)
    return actor
