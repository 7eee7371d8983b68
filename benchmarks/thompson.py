"""How wide Thompson sampling should draw: regret of several scales as a multiple of UCB's.

Run it from the repository's root, on a GPU if there is one (``headstart[gpu]``)::

    python benchmarks/thompson.py --engine gpu --seeds 64
    python benchmarks/thompson.py --engine cpu --seeds 8 --tasks 120

Each Thompson policy is compared with the UCB policy of the same prior, on the same seeds, in the
six worlds of ``headstart reproduce beyond``. The first of the seeds is 80000, and the default scale
was chosen on others.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from headstart.lab.policies import NamedPolicy, policy
from headstart.lab.studies.main_worlds import WORLDS
from headstart.worlds import Synthetic

#: Thompson policy and the UCB policy with the same prior. The last cannot run on a GPU.
PAIRS = {
    "lints": "linucb",
    "projected_ts": "projected_linucb",
    "empirical_bayes_ts": "empirical_bayes",
}
ON_GPU = ("lints", "projected_ts")


def totals_on_gpu(world: Synthetic, policies: Sequence[NamedPolicy], arguments: Any) -> Any:
    """Each policy's total regret by seed."""
    from headstart.lab.gpu.engine import simulate

    seeds = range(arguments.first, arguments.first + arguments.seeds)
    marks = [arguments.rounds]
    found = simulate(world, policies, list(seeds), arguments.tasks, arguments.rounds, marks)
    return {name: regret[:, :, -1].sum(1) for name, regret in found.items()}


def total_on_cpu(job: tuple[Synthetic, NamedPolicy, int, int, int]) -> float:
    """One policy's total regret on one seed."""
    from headstart.lab.engine import simulate

    world, each, seed, tasks, rounds = job
    return float(simulate(world, [each], [seed], tasks, rounds)[each.name].regret[..., -1].sum())


def totals_on_cpu(world: Synthetic, policies: Sequence[NamedPolicy], arguments: Any) -> Any:
    """Each policy's total regret by seed, one process for each core."""
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    size = arguments.tasks, arguments.rounds
    jobs = [(world, each, seed, *size) for each in policies for seed in seeds]
    with ProcessPoolExecutor() as pool:
        found = np.reshape(list(pool.map(total_on_cpu, jobs)), (len(policies), len(seeds)))
    return {each.name: row for each, row in zip(policies, found, strict=True)}


def main() -> None:
    """Print a row for each world and pair, a column for each scale."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=("gpu", "cpu"), default="cpu")
    parser.add_argument("--first", type=int, default=80000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=250)
    parser.add_argument("--scales", default="0.1,0.25,0.5,1")
    arguments = parser.parse_args()
    scales = [float(text) for text in arguments.scales.split(",")]
    gpu = arguments.engine == "gpu"
    pairs = {name: ucb for name, ucb in PAIRS.items() if name in ON_GPU or not gpu}
    print(f"{'world':30}{'policy':22}" + "".join(f"{scale:>14g}" for scale in scales))
    for label, world in WORLDS.items():
        policies = [policy(ucb, ucb) for ucb in pairs.values()]
        for name in pairs:
            options = {} if name in ON_GPU else {"intercept": True}  # as its UCB policy has
            policies += [
                policy(name, f"{name} {scale}", scale=scale, **options) for scale in scales
            ]
        found = (totals_on_gpu if gpu else totals_on_cpu)(world, policies, arguments)
        for name, ucb in pairs.items():
            cells = []
            for scale in scales:
                ratio = found[f"{name} {scale}"] / found[ucb]
                error = ratio.std(ddof=1) / np.sqrt(len(ratio))
                cells.append(f"{ratio.mean():>7.3f} ±{error:.3f}")
            print(f"{label:30}{name:22}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
