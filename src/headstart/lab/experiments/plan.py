"""What an experiment is: a plan, the jobs it is split into, and the tables of its results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.lab.engine import Probe, Trace, check_sizes
from headstart.lab.experiments.store import fingerprint
from headstart.lab.policies import AnyPolicy
from headstart.records import Array
from headstart.settings import Settings
from headstart.worlds.base import World

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Plan", "Results"]


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Settings):
    """The world, the policies, and the number of tasks and rounds of an experiment.

    Parameters
    ----------
    world
        Where tasks come from.
    policies
        The policies. All see the same tasks, contexts and noise.
    seeds
        One population each.
    tasks, rounds
        How many tasks, and rounds in each.
    checkpoints
        Rounds at which regret is recorded; the last one unless given.
    probe
        A function of the library or of a module of yours that measures something at each task's
        start.
    device
        ``"cpu"``, or ``"gpu"``: the same populations, but other tasks, contexts and noise, and
        single precision. Results of the two are stored separately.
    """

    world: World
    policies: tuple[AnyPolicy, ...]
    seeds: tuple[int, ...]
    tasks: int = 400
    rounds: int = 250
    checkpoints: tuple[int, ...] = ()
    probe: Probe | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        checks.one_of("device", self.device, ("cpu", "gpu"))
        if not self.policies or not self.seeds:
            raise InputError("a plan needs at least one policy and one seed")
        names = [policy.name for policy in self.policies]
        for what, values in (
            ("policies with different names", names),
            ("different seeds", self.seeds),
        ):
            if len(set(values)) < len(values):
                raise InputError(f"a plan needs {what}; got {list(values)}")
        check_sizes(self.tasks, self.rounds, self.checkpoints or None)

    @property
    def recorded_rounds(self) -> tuple[int, ...]:
        """The rounds at which regret is recorded."""
        return self.checkpoints or (self.rounds,)

    @property
    def work(self) -> int:
        """The number of policy-rounds."""
        return len(self.policies) * len(self.seeds) * self.tasks * self.rounds

    @property
    def key(self) -> str:
        """A name that depends on everything that determines the result."""
        return fingerprint((version("headstart"), self))

    def jobs(self) -> list[Plan]:
        """The plan in parts: by seeds, and by policies where there are many.

        The parts do not depend on how many processes there are, so that a run can be resumed with
        another number of them. Several seeds a batch make good use of a core; every job repeats
        the drawing of contexts, so policies are split only in large sweeps, or where there are too
        few seeds to keep several cores busy. A GPU takes many seeds at once, and eight policies.
        """
        seeds, policies = 2048, 8
        if self.device == "cpu":
            seeds, work = 5, len(self.policies) * math.ceil(len(self.seeds) / 5)
            policies = min(16, max(4, math.ceil(work / 4)))
        return [
            dataclasses.replace(
                self, seeds=self.seeds[i : i + seeds], policies=self.policies[j : j + policies]
            )
            for i in range(0, len(self.seeds), seeds)
            for j in range(0, len(self.policies), policies)
        ]


@dataclasses.dataclass(frozen=True)
class Results:
    """What a plan measured, as tidy tables.

    ``regret`` has the columns seed, policy, task, round and regret (since the task's start);
    ``probes`` has seed, policy, task, name and value.
    """

    plan: Plan
    regret: pl.DataFrame
    probes: pl.DataFrame

    def totals(self, start: int = 0, stop: int | None = None) -> pl.DataFrame:
        """Total regret of every seed and policy, in all tasks or in those from start to stop."""
        import polars as pl

        last = self.regret.filter(pl.col("round") == self.plan.rounds, pl.col("task") >= start)
        if stop is not None:
            last = last.filter(pl.col("task") < stop)
        groups = last.group_by("policy", "seed", maintain_order=True)
        return groups.agg(total=pl.col("regret").sum()).sort("policy", "seed")


def gather(plan: Plan, parts: Sequence[tuple[Plan, dict[str, Trace]]]) -> Results:
    """All jobs' results as two tidy tables."""
    import polars as pl

    schema = {"seed": pl.Int64, "policy": pl.String, "task": pl.Int64}
    regrets = [pl.DataFrame(schema={**schema, "round": pl.Int64, "regret": pl.Float64})]
    probes = [pl.DataFrame(schema={**schema, "name": pl.String, "value": pl.Float64})]
    for job, traces in parts:
        index = {"seed": np.asarray(job.seeds), "task": np.arange(job.tasks)}
        rounds = {"round": np.asarray(plan.recorded_rounds)}
        for name, trace in traces.items():
            frame = tidy({**index, **rounds}, "regret", trace.regret, policy=name)
            regrets.append(frame.select(regrets[0].columns))
            for key, values in trace.probes.items():
                frame = tidy(index, "value", values, policy=name, name=key)
                probes.append(frame.select(probes[0].columns))
    return Results(plan, pl.concat(regrets), pl.concat(probes))


def tidy(index: dict[str, Any], column: str, values: Array, **labels: str) -> pl.DataFrame:
    """An array as a table with a row per element: the index of every axis, and labels."""
    import polars as pl

    grid = np.meshgrid(*index.values(), indexing="ij")
    columns = dict(zip(index, grid, strict=True)) | {column: values}
    frame = pl.DataFrame({key: value.ravel() for key, value in columns.items()})
    return frame.with_columns(pl.lit(label).alias(key) for key, label in labels.items())
