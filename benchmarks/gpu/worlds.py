"""The six worlds of ``headstart reproduce beyond`` on a GPU, with 1,000 seeds.

The default, LinUCB and the Bayes oracle on the same tasks and contexts: total regret, with 95 %
intervals, and how fast the default was played. From the repository's root::

    PYTHONPATH=src python benchmarks/gpu/worlds.py --out benchmarks/gpu/worlds.json

It takes about four minutes on an H200, of which two go by while the first world is compiled.
Another form of the default takes its place by
``--policy empirical_bayes:units=given,intercept=false``. ``--against
empirical_bayes:low_rank=false`` plays one more, and compares the total and the first ten tasks.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from headstart.lab.gpu import engine, why_not
from headstart.lab.policies import NamedPolicy, parse, policy
from headstart.lab.studies.main_worlds import FIRST_REPORTED_SEED, WORLDS
from headstart.transfer.empirical_bayes.state import slots
from headstart.worlds import Synthetic

ROUNDS = 250


def play(
    world: Synthetic, ours: NamedPolicy, rivals: list[NamedPolicy], seeds: int, tasks: int
) -> tuple[dict[str, Any], list[float]]:
    """Regret of every policy, (seeds, tasks), and the seconds of each task of ours."""
    sizes = (range(FIRST_REPORTED_SEED, FIRST_REPORTED_SEED + seeds), tasks, ROUNDS, [ROUNDS])
    times = [time.perf_counter()]
    regret = engine.simulate(world, [ours], *sizes, lambda _: times.append(time.perf_counter()))
    for group in ([policy("linucb"), policy("bayes_oracle")], rivals):
        if group:
            regret |= engine.simulate(world, group, *sizes)
    return {name: regret[..., -1] for name, regret in regret.items()}, list(np.diff(times))


def speed(seconds: list[float], seeds: int, dim: int) -> tuple[float, float]:
    """Policy-rounds per second without the tasks that compile something, and these tasks' time."""
    size = [slots(max(task, 0), dim) for task in range(-2, len(seconds))]
    compiled = [task < 2 or len(set(size[task : task + 3])) > 1 for task in range(len(seconds))]
    others = [time for time, late in zip(seconds, compiled, strict=True) if not late]
    return seeds * ROUNDS * len(others) / sum(others), sum(seconds) - sum(others)


def ratio(ours: Any, theirs: Any) -> list[float]:
    """The ratio of two means of paired numbers, and half of its 95 % interval."""
    value = ours.sum() / theirs.sum()
    error = (ours - value * theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean()
    return [round(float(number), 4) for number in (value, 1.96 * error)]


def row(regret: dict[str, Any], name: str, rivals: list[NamedPolicy]) -> dict[str, Any]:
    """What the table shows of a world: the policy of this name beside LinUCB, oracle and rivals."""
    ours, linucb, oracle = (regret[name] for name in (name, "LinUCB", "Bayes oracle"))
    last = ours.shape[1] * 3 // 4
    against = {}
    for rival in rivals:
        theirs = regret[rival.name]
        against[f"÷ {rival.name}"] = ratio(ours.sum(1), theirs.sum(1))
        against[f"first ten tasks ÷ {rival.name}"] = ratio(
            ours[:, :10].sum(1), theirs[:, :10].sum(1)
        )
    return {
        "÷ Bayes oracle": ratio(ours.sum(1), oracle.sum(1)),
        "last quarter ÷ Bayes oracle": ratio(ours[:, last:].sum(1), oracle[:, last:].sum(1)),
        "÷ LinUCB": ratio(ours.sum(1), linucb.sum(1)),
        "first ten tasks ÷ LinUCB": ratio(ours[:, :10].sum(1), linucb[:, :10].sum(1)),
        "worst seed ÷ LinUCB": round(float((ours.sum(1) / linucb.sum(1)).max()), 4),
        **against,
        "mean total regret": {name: round(float(r.sum(1).mean()), 2) for name, r in regret.items()},
    }


def main() -> None:
    """Play all worlds and write down what was found, world by world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/gpu/worlds.json"))
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--policy", type=parse, default=policy("empirical_bayes"))
    parser.add_argument("--against", type=parse, action="append", default=[])
    options = parser.parse_args()
    results: dict[str, Any] = {"policy": repr(options.policy)}
    results |= {"seeds": options.seeds, "tasks": options.tasks, "rounds": ROUNDS}
    for name, world in WORLDS.items():
        reason = why_not(world, [options.policy, *options.against])
        if reason:
            raise SystemExit(f"this cannot run on a GPU here: {reason}")
        regret, seconds = play(world, options.policy, options.against, options.seeds, options.tasks)
        rate, compiling = speed(seconds, options.seeds, world.dim + 1)
        results[name] = {
            **row(regret, options.policy.name, options.against),
            "seconds of the default": round(sum(seconds), 1),
            "of these, tasks that compile": round(compiling, 1),
            "policy-rounds per second without these": float(f"{rate:.3g}"),
        }
        print(name, json.dumps(results[name], ensure_ascii=False), flush=True)
        options.out.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
