"""headstart's experiments: the eight policies of the paper, on tasks that are drawn meanwhile."""

import time

from headstart.lab.engine import simulate
from headstart.lab.policies import PAPER, policy
from headstart.worlds import Synthetic

LENGTH = 250  # rounds of a task
LARGEST = 2_000  # numbers in the contexts of a round


class NotAvailable(Exception):
    """Too large to be worth the wait."""


class Engine:
    """Seconds for each round of each policy and seed, everything included."""

    def __init__(self, problem, seeds=5):
        if problem.dim * problem.arms > LARGEST:
            raise NotAvailable(f"measured where d × K ≤ {LARGEST}")
        rank = min(15, problem.dim // 2)
        self.world = Synthetic(dim=problem.dim, rank=rank, arms=problem.arms)
        self.policies = [policy(kind) for kind in PAPER]
        self.seeds = range(problem.seed, problem.seed + seeds)

    def seconds_per_round(self, rounds):
        each = len(self.policies) * len(self.seeds) * LENGTH
        tasks = max(2, round(rounds / each))
        begin = time.perf_counter()
        simulate(self.world, self.policies, self.seeds, tasks, LENGTH)
        return (time.perf_counter() - begin) / (tasks * each)


VARIANTS = {"engine": Engine}
