"""What all studies share: where results go, how large they are, and how progress is told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headstart.lab.experiment import Plan, Progress, Results, Spread, run
from headstart.lab.policies import PAPER, AnyPolicy, NamedPolicy, policy
from headstart.lab.tuning import Tuning, tune
from headstart.worlds.base import World

__all__ = ["FULL", "QUICK", "Bench", "Scale"]

REPORTED, TUNED_ON = 1000, 9000  # where the seeds start; no seed is both


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large a study is."""

    seeds: int
    tasks: int
    rounds: int = 250
    tuning_seeds: int = 4
    tuning_tasks: int = 120
    sweep: int = 1  # every so many points of a sweep

    @property
    def reported(self) -> tuple[int, ...]:
        """The seeds that results are reported on."""
        return tuple(range(REPORTED, REPORTED + self.seeds))

    @property
    def tuned_on(self) -> tuple[int, ...]:
        """The seeds that settings are tuned on."""
        return tuple(range(TUNED_ON, TUNED_ON + self.tuning_seeds))

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Twenty-five rounds at which regret is recorded."""
        return evenly(self.rounds)


def evenly(rounds: int, points: int = 25) -> tuple[int, ...]:
    """About so many rounds, evenly spread, the last one among them.

    >>> evenly(51, 5)
    (10, 20, 30, 40, 50, 51)
    """
    step = max(1, rounds // points)
    return tuple(sorted({*range(step, rounds + 1, step), rounds}))


FULL = Scale(seeds=20, tasks=400)
QUICK = Scale(seeds=4, tasks=80, sweep=5)


def no_bar(label: str) -> contextlib.AbstractContextManager[Progress | None]:
    """Progress that nobody watches."""
    return contextlib.nullcontext(None)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where a study works.

    Parameters
    ----------
    folder
        Where everything is written; what is there already is not computed again.
    scale
        How large it is.
    tune
        Whether to tune, or to take the settings that come with headstart.
    workers
        Processes; all cores unless given.
    bar
        Makes a progress bar for a label.
    data
        A folder with MovieLens, if it should not be downloaded.
    stored
        Whether to take everything from the folder and simulate nothing.
    engine
        What plays the rounds: see :func:`~headstart.lab.experiment.run`.
    spread
        Runs seeds elsewhere, on a cluster say: see there too.
    """

    folder: Path
    scale: Scale = FULL
    tune: bool = True
    workers: int | None = None
    bar: Callable[[str], contextlib.AbstractContextManager[Progress | None]] = no_bar
    data: Path | None = None
    stored: bool = False
    engine: str = "auto"
    spread: Spread | None = None

    def run(
        self,
        name: str,
        world: World,
        policies: Sequence[AnyPolicy],
        **changes: Any,
    ) -> Results:
        """Run policies on the reported seeds; the results are kept under ``name``."""
        options: dict[str, Any] = {
            "seeds": self.scale.reported,
            "tasks": self.scale.tasks,
            "rounds": self.scale.rounds,
            "checkpoints": self.scale.checkpoints,
        }
        plan = Plan(world, tuple(policies), **{**options, **changes})
        with self.bar(name) as progress:
            return run(
                plan,
                self.folder / name,
                workers=self.workers,
                progress=progress,
                stored=self.stored,
                engine=self.engine,
                spread=self.spread,
            )

    def tuned(
        self,
        name: str,
        world: World,
        kinds: Sequence[str] = PAPER,
        fixed: Mapping[str, Mapping[str, Any]] | None = None,
        tasks: int | None = None,
    ) -> tuple[tuple[NamedPolicy, ...], Tuning | None]:
        """Policies tuned on other seeds, and how; or with the settings that come along."""
        if not self.tune:
            known = shipped()[name]
            return tuple(policy(kind, **known[kind]) for kind in kinds), None
        with self.bar(f"{name}, tuning") as progress:
            tuning = tune(
                world,
                kinds,
                self.scale.tuned_on,
                tasks or self.scale.tuning_tasks,
                self.scale.rounds,
                fixed=fixed,
                folder=self.folder / f"{name}-tuning",
                workers=self.workers,
                progress=progress,
                stored=self.stored,
                engine=self.engine,
                spread=self.spread,
            )
        (self.folder / f"{name}-tuning" / "best.json").write_text(
            json.dumps(tuning.best, indent=2) + "\n"
        )
        return tuning.policies(), tuning


def shipped() -> dict[str, dict[str, dict[str, Any]]]:
    """Settings tuned by a full run (``headstart reproduce all``), by study and policy."""
    text = resources.files("headstart.lab.studies").joinpath("tuned.json").read_text()
    known: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return known
