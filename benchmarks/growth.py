"""How headstart's time grows with tasks, with seeds and with processes.

Growth with features and arms is read from the grid that all contenders play.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog import Contender
from crew import ONE_THREAD, worker_processes
from measure import Effort, Entry, race

HERE = Path(__file__).parent
DIM, ARMS = 30, 20
LIVE = 256  # how many tasks keep their belief at hand unless told otherwise


@dataclasses.dataclass(frozen=True)
class Point:
    """One point of a curve: where it is, and what to run there."""

    curve: str
    at: int
    file: str
    variant: str
    options: dict[str, int]

    @property
    def name(self) -> str:
        """A name that no other point has."""
        return f"{self.curve}, {self.at}"


def task_points(counts: Sequence[int]) -> list[Point]:
    """Tasks in turn, or all in one call."""
    points = []
    for count in counts:
        for curve, file, variant, options in (
            ("all beliefs at hand", "headstart_tasks", "alone", {"cache_size": max(count, LIVE)}),
            (f"{LIVE} beliefs at hand", "headstart_tasks", "alone", {"cache_size": LIVE}),
            (
                f"default transfer, {LIVE} at hand",
                "headstart_tasks",
                "default",
                {"cache_size": LIVE},
            ),
            ("all in one call", "headstart_batch", "batch", {}),
        ):
            points.append(Point(curve, count, file, variant, {"tasks": count, **options}))
    return points


def seed_points(counts: Sequence[int]) -> list[Point]:
    """Seeds in one batch of the experiment engine."""
    return [
        Point("experiment engine", count, "headstart_engine", "engine", {"seeds": count})
        for count in counts
    ]


def measure_points(
    points: Sequence[Point], effort: Effort, seed: int, log: Callable[[str], None]
) -> dict[str, Any]:
    """Time all points, interleaved."""
    crew = [Contender(point.name, point.file, point.variant) for point in points]
    with worker_processes(crew) as (members, failures):
        entries = [
            Entry(
                point.name,
                members[point.name],
                {"dim": DIM, "arms": ARMS, "seed": seed, "options": point.options},
            )
            for point in points
            if point.name in members
        ]
        timings = race(entries, effort, seed, log)
    timings.failures.update(failures)
    return {
        "points": [{"curve": it.curve, "at": it.at, "name": it.name} for it in points],
        **dataclasses.asdict(timings),
    }


def measure_processes(tasks: int, repetitions: int) -> dict[str, Any]:
    """Time an experiment on one process and on two; they must not share a core."""
    done = subprocess.run(
        [sys.executable, str(HERE / "processes.py"), str(tasks), str(repetitions)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    timings: dict[str, Any] = json.loads(done.stdout)
    return timings
