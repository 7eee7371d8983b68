"""What low-rank candidates cost: the time of a finished task and of a decision, and the state.

The default and the same without low-rank candidates play the same tasks in turn; processor time of
``task.close()``, which includes the fit, and of choosing and learning:

    python benchmarks/finished_tasks.py
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import headstart as hs
from headstart.records import flatten

ARMS = 10
SIZES = ((30, 100, 200), (30, 25, 200), (100, 150, 60))  # features, rounds and tasks


def play(bandit: hs.Bandit, user: int, contexts: Any, rewards: Any) -> tuple[float, float]:
    """The seconds of all decisions of a task but the first, which makes its prior, and of its end.

    ``rewards`` are those of all arms in every round.
    """
    task, start = bandit.task(user), 0.0
    for number, (offer, paid) in enumerate(zip(contexts, rewards, strict=True)):
        if number == 1:
            start = time.process_time()
        choice = task.choose(offer)
        task.learn(choice, paid[choice.arm])
    middle = time.process_time()
    task.close()
    return middle - start, time.process_time() - middle


def compare(dim: int, rounds: int, tasks: int) -> str:
    """A row of the table."""
    rng = np.random.default_rng(0)
    plane, mean = np.linalg.qr(rng.normal(size=(dim, 5)))[0], 0.8 * rng.normal(size=dim) / dim**0.5
    full = hs.EmpiricalBayes(low_rank=False)
    bandits = [hs.Bandit(dim, seed=0), hs.Bandit(dim, seed=0, transfer=full, intercept=True)]
    seconds = np.zeros((2, 2))
    for user in range(tasks):
        theta = mean + 0.4 * plane @ rng.normal(size=5)
        contexts = rng.normal(size=(rounds, ARMS, dim)) / np.sqrt(dim)
        rewards = contexts @ theta + 0.2 * rng.normal(size=(rounds, 1))
        for at in (0, 1) if user % 2 else (1, 0):
            seconds[at] += play(bandits[at], user, contexts, rewards)
    (decide, end), (decide_alone, end_alone) = seconds
    ends = f"{1e3 * end / tasks:.1f} | {1e3 * end_alone / tasks:.1f} | {end / end_alone:.2f}"
    sizes = f"{decide / decide_alone:.2f} | {100 * low_rank_share(dim + 1, tasks):.1f} %"
    return f"| {dim} | {rounds} | {tasks} | {ends} | {sizes} |"


def low_rank_share(dim: int, tasks: int) -> float:
    """The numbers of the state that low-rank candidates need, as a share of all others."""
    state = hs.EmpiricalBayes().init(dim)
    own = sum(np.size(part) for part in flatten(state.low_rank).values()) + state.ensemble.size
    kept = tasks * (dim**2 + dim + 6)
    rest = sum(np.size(part) for part in flatten(state).values()) - own
    return own / (rest + kept)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    print(
        "| features | rounds | tasks | finished task, ms | without, ms | ÷ | decision, ÷ | state |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for size in SIZES:
        print(compare(*size), flush=True)


if __name__ == "__main__":
    main()
