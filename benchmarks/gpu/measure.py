"""How fast experiments run on a GPU: the whole, the rounds alone, and the learning alone.

Run it on a machine with an NVIDIA GPU, CuPy and JAX, from the repository's root::

    PYTHONPATH=src python benchmarks/gpu/measure.py --out benchmarks/gpu/results.json

It needs none of headstart's other dependencies. The whole paper (1,000 seeds of 400 tasks) takes
about a quarter of a minute on an H200.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import cupy as cp
import jax
import numpy as np

from headstart.lab.gpu import engine, why_not
from headstart.lab.gpu.rounds import Rounds
from headstart.lab.policies import PAPER, policy
from headstart.worlds import Synthetic

WORLD = Synthetic()
ROUNDS = 250


def policies() -> list[Any]:
    """The eight policies of the paper."""
    return [policy(kind) for kind in PAPER]


def whole(seeds: int, tasks: int, *, double: bool) -> dict[str, Any]:
    """One experiment from its start: seconds in all, to the second task, and per task then."""
    marks: list[float] = []
    begin = time.perf_counter()
    found = engine.simulate(
        WORLD,
        policies(),
        range(1000, 1000 + seeds),
        tasks,
        ROUNDS,
        [ROUNDS],
        lambda _: marks.append(time.perf_counter()),
        double=double,
    )
    seconds = time.perf_counter() - begin
    steady = float(np.median(np.diff(marks[2:])))
    played = len(PAPER) * seeds * ROUNDS
    return {
        "seeds": seeds,
        "tasks": tasks,
        "precision": "double" if double else "single",
        "seconds": round(seconds, 2),
        "seconds before the second task": round(marks[1] - begin, 2),
        "milliseconds per task": round(1e3 * steady, 2),
        "policy-rounds per second, steady": played / steady,
        "policy-rounds per second, all included": played * tasks / seconds,
        "mean total regret": {
            name: round(float(regret[..., -1].sum(1).mean()), 1) for name, regret in found.items()
        },
        "its standard error": {
            name: round(float(regret[..., -1].sum(1).std() / seeds**0.5), 1)
            for name, regret in found.items()
        },
    }


def parts(seeds: int, *, double: bool) -> dict[str, Any]:
    """The two halves of a task, each alone: playing the rounds, and learning from them."""
    populations = [WORLD.population(seed) for seed in range(seeds)]
    chosen = [policy.for_populations(populations) for policy in policies()]
    rules = engine.loop_forms(chosen)
    playing, learning = [], []
    with engine.double_precision():
        learner = engine.Learner(chosen, seeds, WORLD, double=double)
        names = [policy.name for policy in chosen]
        table = Rounds(WORLD, populations, rules, names, 12, ROUNDS, [ROUNDS], double=double)
        for task in range(12):
            places = [engine.address(part) for part in learner.priors]
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            begin.record()
            table.play(task, *places)
            end.record()
            table.wait()
            playing.append(cp.cuda.get_elapsed_time(begin, end))
            start = time.perf_counter()
            learner.learn(
                jax.dlpack.from_dlpack(table.chosen_contexts),
                jax.dlpack.from_dlpack(table.chosen_rewards),
            )
            jax.block_until_ready(learner.priors)
            learning.append(1e3 * (time.perf_counter() - start))
    play = float(np.median(playing[2:]))
    # Per policy-round: X F and the norms (UCB), or F z and X θ (Thompson), and the update.
    dim, arms = WORLD.dim, WORLD.arms
    update = 6 * dim**2
    ucb, thompson = (
        2 * arms * dim**2 + 4 * arms * dim + update,
        2 * arms * dim + 2 * dim**2 + update,
    )
    operations = sum(ucb if rule.kind == "ucb" else thompson for rule in rules)
    return {
        "seeds": seeds,
        "precision": "double" if double else "single",
        "milliseconds to play a task": round(play, 2),
        "milliseconds to learn from it": round(float(np.median(learning[2:])), 2),
        "policy-rounds per second, playing": len(rules) * seeds * ROUNDS / play * 1e3,
        "teraflops, playing": round(operations * seeds * ROUNDS / play * 1e3 / 1e12, 2),
        "registers per thread": table.kernel.num_regs,
        "bytes spilled per thread": table.kernel.local_size_bytes,
    }


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/gpu/results.json"))
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    asked = parser.parse_args()
    reason = why_not(WORLD, policies())
    if reason:
        raise SystemExit(f"this cannot run on a GPU here: {reason}")
    large = (64, 8) if asked.quick else (1000, 400)
    larger = (64, 8) if asked.quick else (2048, 200)
    results = {
        "about": {
            "gpu": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
            "python": platform.python_version(),
            "cupy": cp.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
        },
        "whole": [
            whole(*large, double=False),
            whole(*larger, double=False),
            whole(*large, double=True),
        ],
        "parts": [parts(large[0], double=False), parts(larger[0], double=False)],
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
