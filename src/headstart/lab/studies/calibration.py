"""Calibration: nominal and actual coverage of the intervals of ``predict``, in every world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from headstart.lab import figures
from headstart.lab.experiments.plan import tidy
from headstart.lab.figures.elements.intervals import mean_over_seeds
from headstart.lab.one_seed import HELD_OUT, LEVELS, measure_coverage
from headstart.lab.report import Claim, Section
from headstart.lab.studies.runner import Runner
from headstart.lab.text import format_interval, join_words
from headstart.worlds import Clicks, Synthetic, World

MAX_SEEDS, MAX_TASKS = 24, 100
STAGES = (0, 5, 25, 100)  # rewards that a task has had
SKIPPED = 10  # tasks from which the prior is learned first
LEVEL, MARGIN = 0.9, 0.05  # what the claims are about
KINDS = ("an arm's expected reward", "a single reward")
BINARY = ' (reward="binary")'
#: Worlds beyond those of the other studies.
MORE_WORLDS: dict[str, World] = {
    "tasks with heavy tails": Synthetic(task_dof=3.5),
    "rewards with heavy tails": Synthetic(reward_dof=3.5),
    f"logistic{BINARY}": Synthetic(logistic=4.0),
    f"clicks, 5 %{BINARY}": Clicks(),
}


def calibration(
    runner: Runner, worlds: Mapping[str, tuple[World, int]], seeds: Sequence[int]
) -> tuple[list[Section], list[Claim]]:
    """Nominal and actual coverage in worlds, each with its number of rounds, and in others.

    Parameters
    ----------
    runner
        Runs the experiments.
    worlds
        Worlds and the number of their rounds, by name.
    seeds
        The seeds; the first 24 of them are used.
    """
    longest, tasks = runner.scale.rounds, min(MAX_TASKS, runner.scale.tasks)
    skipped, seeds = min(SKIPPED, tasks // 2), tuple(seeds[:MAX_SEEDS])
    everything = {**worlds, **{name: (world, longest) for name, world in MORE_WORLDS.items()}}
    spans = {f"{skipped + 1}–{tasks}": slice(skipped, None)}  # the tasks of a row of the table
    if skipped:
        spans[f"1–{skipped}"] = slice(skipped)
    frames: dict[str, list[pl.DataFrame]] = {span: [] for span in spans}
    for name, (world, rounds) in everything.items():
        stages = tuple(stage for stage in STAGES if stage <= rounds)
        reward = "binary" if name.endswith(BINARY) else "number"
        jobs = [(world, seed, tasks, stages, reward) for seed in seeds]
        labels = [f"after {stage} rewards" if stage else "new task" for stage in stages]
        index = {"seed": seeds, "stage": labels, "kind": KINDS, "level": LEVELS}
        shares = runner.play_seeds("beyond-calibration", measure_coverage, jobs)
        for span, part in spans.items():
            frames[span].append(tidy(index, "share", shares[:, part].mean(1), world=name))
    expected, single = (
        {
            span: pl.concat(parts).filter(pl.col("kind") == kind).drop("kind")
            for span, parts in frames.items()
        }
        for kind in KINDS
    )
    late_tasks, rewards = (next(iter(by_span.values())) for by_span in (expected, single))
    # Whatever its interval is, a reward of 0 or 1 is in it with a probability of its own.
    rewards = rewards.filter(~pl.col("world").str.ends_with(BINARY))
    drawings = [figures.coverage(late_tasks, KINDS[0], "calibration-expected")]
    if len(rewards):
        drawings.append(figures.coverage(rewards, KINDS[1], "calibration-rewards"))
    rows = [pl.DataFrame(list(coverage_rows(*item))) for item in expected.items()]
    section = Section(
        "Calibration: nominal and actual coverage of the intervals of predict",
        "Bandit(dim), with nothing else given, plays tasks one after another. Before the first "
        f"reward of a task and after {', '.join(map(str, STAGES[1:]))} of them, as far as tasks "
        f"are that long, it predicts {HELD_OUT} arms of rounds that it never plays; which arms "
        "does not depend on its choices. Coverage is the share of these intervals that contain "
        "the arm's expected reward (the first figure) or its reward (the second). It is counted "
        f"from task {skipped + 1} to {tasks} on {len(seeds)} seeds; the table shows the 90 % "
        "intervals of expected rewards, below them for the tasks before. 95 % intervals of "
        "coverage are over seeds, because the tasks of a seed share what was learned; *clearly "
        "off* are stages whose interval does not include 90 %, one in twenty of them by chance. "
        "Tasks and rewards with heavy tails have a Student distribution of 3.5 degrees of freedom. "
        "Intervals of single rewards are not counted where rewards are 0 or 1.",
        drawings,
        pl.concat(rows, how="diagonal"),
        level=2,
    )
    return [section], [coverage_claim(name, late_tasks) for name in everything]


def coverage_rows(tasks: str, shares: pl.DataFrame) -> Iterator[dict[str, str]]:
    """Rows of the table of 90 % intervals: coverage by stage, and the verdict it supports."""
    shares = shares.filter(pl.col("level") == LEVEL)
    means = mean_over_seeds(shares, ["world", "stage"], "share")
    rows = {(row["world"], row["stage"]): row for row in means.iter_rows(named=True)}
    for (world,), own in shares.group_by("world", maintain_order=True):
        cells = {stage: rows[world, stage] for stage in own["stage"].unique(maintain_order=True)}
        narrow = [stage for stage, row in cells.items() if row["high"] < LEVEL]
        wide = [stage for stage, row in cells.items() if row["low"] > LEVEL]
        deviations = {"too narrow": narrow, "too wide": wide}
        yield {
            "world": str(world),
            "tasks": tasks,
            **{
                stage: format_interval(row["mean"], row["low"], row["high"])
                for stage, row in cells.items()
            },
            "clearly off": "; ".join(
                f"{what}: {join_words(stages)}" for what, stages in deviations.items() if stages
            )
            or "–",
        }


def coverage_claim(world: str, shares: pl.DataFrame) -> Claim:
    """Whether 90 % intervals of a world contain between 85 and 95 %, at every stage.

    It holds if the interval of each stage is within these bounds, fails if one is outside them,
    and is not settled otherwise.
    """
    own = shares.filter((pl.col("world") == world) & (pl.col("level") == LEVEL))
    means = mean_over_seeds(own, ["stage"], "share")
    rows = {row["stage"]: row for row in means.iter_rows(named=True)}
    stages = [rows[stage] for stage in own["stage"].unique(maintain_order=True)]
    least, most = LEVEL - MARGIN, LEVEL + MARGIN
    verdict = "not settled"
    if all(least <= row["low"] and row["high"] <= most for row in stages):
        verdict = "holds"
    elif any(row["high"] < least or row["low"] > most for row in stages):
        verdict = "fails"
    measured = ", ".join(
        f"{row['stage']} {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in stages
    )
    claim = f"Intervals of {LEVEL:.0%} contain {least:.0%} to {most:.0%} of expected rewards"
    return Claim(f"{claim}: {world}", "headstart", measured, verdict)
