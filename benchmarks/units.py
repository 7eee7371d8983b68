"""What it costs to find out the features' units: the default beside the same in the units given.

In the worlds of ``headstart reproduce beyond`` the given units happen to be right, and there is no
intercept to learn. Total regret and that of the first ten tasks, on paired seeds:

    python benchmarks/units.py --seeds 12 --tasks 400
"""

import argparse

import numpy as np

from headstart.lab import simulate
from headstart.lab.policies import policy
from headstart.lab.studies.main_worlds import WORLDS


def interval(ratios: np.ndarray) -> str:
    """A mean with what it is uncertain by, 95 %."""
    return f"{ratios.mean():.3f} ± {1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=250)
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    given = policy("empirical_bayes", units="given", intercept=False)
    policies = [policy("empirical_bayes"), given, policy("bayes_oracle"), policy("linucb")]
    print("| world | default ÷ units given | first ten tasks | default ÷ Bayes oracle | ÷ LinUCB |")
    print("|---|---:|---:|---:|---:|")
    for name, world in WORLDS.items():
        traces = simulate(world, policies, list(seeds), chosen.tasks, chosen.rounds)
        ours, theirs, oracle, alone = (traces[each.name].regret[:, :, -1] for each in policies)
        cells = [
            interval(ours.sum(1) / theirs.sum(1)),
            interval(ours[:, :10].sum(1) / theirs[:, :10].sum(1)),
            interval(ours.sum(1) / oracle.sum(1)),
            interval(ours.sum(1) / alone.sum(1)),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
