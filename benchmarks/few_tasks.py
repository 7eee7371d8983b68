"""Many features and few tasks, or short tasks: what low-rank candidates add to the default.

The worlds *wide* and *short* of ``headstart reproduce beyond``. The default plays against the same
with a full covariance alone and against the Bayes oracle, on the same tasks, contexts and noise.
The regret per task of each policy is shown by stages of the run, and the ratios with 95 % intervals
over seeds:

    python benchmarks/few_tasks.py --seeds 8
"""

import argparse
import itertools

import numpy as np

from headstart.lab import simulate
from headstart.lab.policies import policy
from headstart.lab.studies.few_tasks import SPARSE_WORLDS

POLICIES = {
    "default": policy("empirical_bayes"),
    "full covariance alone": policy("empirical_bayes", "full covariance alone", low_rank=False),
    "Bayes oracle": policy("bayes_oracle"),
}
STAGES = (0, 10, 25, 50, 100, 200, 400)


def main():
    """Play the worlds and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", nargs="+", choices=SPARSE_WORLDS, default=list(SPARSE_WORLDS))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tasks", type=int, help="fewer tasks than the world has")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    for name in chosen.worlds:
        sparse = SPARSE_WORLDS[name]
        tasks = chosen.tasks or sparse.tasks
        traces = simulate(sparse.world, list(POLICIES.values()), seeds, tasks, sparse.rounds)
        regret = {key: traces[each.name].regret[:, :, -1] for key, each in POLICIES.items()}
        print(f"\n{name}: {len(seeds)} seeds from {chosen.first}, {tasks} tasks\n")
        print_stages(regret, tasks)
        print()
        print_ratios(regret, tasks)


def print_stages(regret, tasks):
    """The regret per task of every policy, by stages of the run."""
    edges = [edge for edge in STAGES if edge < tasks] + [tasks]
    stages = list(itertools.pairwise(edges))
    print(f"| regret per task | {' | '.join(f'{a + 1}–{b}' for a, b in stages)} | all |")
    print(f"|---|{'---:|' * (len(stages) + 1)}")
    for key, each in regret.items():
        cells = [each[:, a:b].mean() for a, b in [*stages, (0, tasks)]]
        print(f"| {key} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)


def print_ratios(regret, tasks):
    """The default against the others: in total, in the first ten tasks and in the last quarter."""
    default = regret["default"]
    parts = {
        "total": slice(None),
        "first ten": slice(10),
        "last quarter": slice(tasks - tasks // 4, None),
    }
    print(f"| default ÷ | {' | '.join(parts)} | worst seed, total |")
    print("|---|---:|---:|---:|---:|")
    for key in list(regret)[1:]:
        ratios = [default[:, at].sum(1) / regret[key][:, at].sum(1) for at in parts.values()]
        cells = [interval(ratio) for ratio in ratios]
        print(f"| {key} | {' | '.join(cells)} | {ratios[0].max():.3f} |", flush=True)


def interval(ratios):
    """The mean over seeds with its 95 % interval (Student's, for few seeds)."""
    from scipy.stats import t

    if len(ratios) < 2:
        return f"{ratios.mean():.3f}"
    half = t.ppf(0.975, len(ratios) - 1) * ratios.std(ddof=1) / np.sqrt(len(ratios))
    return f"{ratios.mean():.3f} ± {half:.3f}"


if __name__ == "__main__":
    main()
