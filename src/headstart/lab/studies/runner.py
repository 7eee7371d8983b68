"""What all studies share: where their results go, how large they are, and how they are run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headstart.lab.experiments.execution import Execution, map_jobs, pool_executor
from headstart.lab.experiments.experiment import run
from headstart.lab.experiments.plan import Plan, Results
from headstart.lab.experiments.store import Store, check_stored, fingerprint
from headstart.lab.policies import PAPER, AnyPolicy, NamedPolicy, policy
from headstart.lab.studies.main_worlds import FIRST_REPORTED_SEED, FIRST_TUNING_SEED
from headstart.lab.tuning import Tuning, tune
from headstart.records import Array
from headstart.worlds.base import World

NICENESS = 10  # of processes beside the one that uses a GPU, which has to compile meanwhile


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large a study is."""

    seeds: int
    tasks: int
    rounds: int = 250
    tuning_seeds: int = 4
    tuning_tasks: int = 120
    rank_step: int = 1  # of the sweep over ranks

    @property
    def reported_seeds(self) -> tuple[int, ...]:
        """The seeds that results are reported on."""
        return tuple(range(FIRST_REPORTED_SEED, FIRST_REPORTED_SEED + self.seeds))

    @property
    def held_out_seeds(self) -> tuple[int, ...]:
        """The seeds that options are tuned on."""
        return tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds))

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Twenty-five rounds at which regret is recorded."""
        return even_checkpoints(self.rounds)


def even_checkpoints(rounds: int, count: int = 25) -> tuple[int, ...]:
    """About ``count`` rounds, evenly spaced, the last one among them.

    >>> even_checkpoints(51, 5)
    (10, 20, 30, 40, 50, 51)
    """
    step = max(1, rounds // count)
    return tuple(sorted({*range(step, rounds + 1, step), rounds}))


FULL = Scale(seeds=20, tasks=400)
QUICK = Scale(seeds=4, tasks=80, rank_step=5)


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs the experiments of a study.

    Parameters
    ----------
    folder
        Where everything is written; results that are there already are not computed again.
    scale
        How large the study is.
    tune
        Whether to tune, or to take the options that come with headstart.
    data
        A folder with MovieLens, if it should not be downloaded.
    execution
        How experiments are run.
    """

    folder: Path
    scale: Scale = FULL
    tune: bool = True
    data: Path | None = None
    execution: Execution = dataclasses.field(default_factory=Execution)

    def run(
        self, name: str, world: World, policies: Sequence[AnyPolicy], **changes: Any
    ) -> Results:
        """Run policies on the reported seeds; the results are kept under ``name``."""
        sizes: dict[str, Any] = {
            "seeds": self.scale.reported_seeds,
            "tasks": self.scale.tasks,
            "rounds": self.scale.rounds,
            "checkpoints": self.scale.checkpoints,
        }
        plan = Plan(world, tuple(policies), **{**sizes, **changes})
        return run(plan, self.folder / name, self.execution, name)

    def play_seeds(
        self, name: str, play: Callable[..., Array], jobs: Sequence[tuple[Any, ...]]
    ) -> Array:
        """``play(*job)`` of every job, one for each seed, stacked; each is kept under ``name``."""
        store = Store(self.folder / name)
        keys = [fingerprint((version("headstart"), play.__name__, job)) for job in jobs]
        results = [store.read(key) for key in keys]
        missing = [at for at, arrays in enumerate(results) if not arrays]
        if self.execution.stored_only:
            check_stored(store.folder, len(missing), len(jobs))
        new_results = map_jobs(play, [jobs[at] for at in missing], self.execution)
        for at, result in zip(missing, new_results, strict=True):
            results[at] = {"result": result}
            store.write(keys[at], {"result": result})
        return np.stack([arrays["result"] for arrays in results if arrays])

    def side_by_side(self, *parts: Callable[[Runner], Any]) -> list[Any]:
        """What parts of a study return, each given a runner.

        With a GPU, which the first is for, cores play the others meanwhile.
        """
        execution = self.execution
        if execution.engine != "gpu" or execution.stored_only or execution.executor is not None:
            return [part(self) for part in parts]
        # After an exception the processes end first, and then the threads that wait for them.
        with (
            ThreadPoolExecutor(len(parts)) as threads,
            pool_executor(execution.processes, NICENESS) as executor,
        ):
            shared = dataclasses.replace(execution, executor=executor)
            runner = dataclasses.replace(self, execution=shared)
            others = [threads.submit(part, runner) for part in parts[1:]]
            return [parts[0](runner), *(other.result() for other in others)]

    def tune_policies(
        self,
        name: str,
        world: World,
        algorithms: Sequence[str] = PAPER,
        fixed: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> tuple[tuple[NamedPolicy, ...], Tuning | None]:
        """Policies with options tuned on held-out seeds, and the tuning; or without tuning."""
        if not self.tune:
            return shipped_policies(name, algorithms), None
        folder = self.folder / f"{name}-tuning"
        tuning = tune(
            world,
            algorithms,
            self.scale.held_out_seeds,
            self.scale.tuning_tasks,
            self.scale.rounds,
            fixed=fixed,
            folder=folder,
            execution=self.execution,
            label=f"{name}, tuning",
        )
        (folder / "best.json").write_text(json.dumps(tuning.best, indent=2) + "\n")
        return tuning.policies(), tuning


def shipped_policies(study: str, algorithms: Sequence[str]) -> tuple[NamedPolicy, ...]:
    """Policies with the options that a full run has tuned, which come with headstart."""
    options = tuned_options()[study]
    return tuple(policy(name, **options[name]) for name in algorithms)


def tuned_options() -> dict[str, dict[str, dict[str, Any]]]:
    """Options tuned by a full run (``headstart reproduce all``), by study and algorithm."""
    text = resources.files("headstart.lab.studies").joinpath("tuned.json").read_text()
    return json.loads(text)
