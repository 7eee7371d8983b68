"""headstart with many tasks in one call: ``bandit.choose_many``, then one ``learn`` for all."""

import time

import numpy as np
from problem import NOISE, RIDGE

import headstart as hs

MOST_TASKS, LEAST_TASKS = 2_000, 64
MOST_NUMBERS = 4_000_000  # of beliefs and contexts together


class NotAvailable(Exception):
    """This headstart cannot do it."""


class Batch:
    """A decision for each of many tasks at once; all beliefs are at hand."""

    def __init__(self, problem, tasks=None):
        dim, arms = problem.dim, problem.arms
        if not hasattr(hs.Bandit, "choose_many"):
            raise NotAvailable("this version of headstart has no Bandit.choose_many")
        if tasks is None:
            tasks = MOST_NUMBERS // (dim * dim + arms * dim)
            tasks = min(MOST_TASKS, max(LEAST_TASKS, tasks))
        transfer = hs.Independent(lam=RIDGE)
        self.bandit = hs.Bandit(dim, transfer, hs.UCB(), NOISE, problem.seed, cache_size=tasks)
        self.names = [f"user-{n:06}" for n in range(tasks)]
        for name in self.names:
            self.bandit.task(name)
        self.places = np.arange(tasks)
        rows = self.places % problem.rounds
        self.contexts = problem.contexts[rows]
        self.rewards = np.asarray(problem.rewards)[rows]
        self.play()  # after this, every task has a belief

    def play(self):
        choices = self.bandit.choose_many(self.names, self.contexts)
        self.bandit.learn(choices, self.rewards[self.places, choices.arms])

    def seconds_per_round(self, rounds):
        """Seconds for each decision, of as many calls as there are rounds to play."""
        calls = max(1, round(rounds / len(self.names)))
        begin = time.perf_counter()
        for _ in range(calls):
            self.play()
        return (time.perf_counter() - begin) / (calls * len(self.names))


class Choosing(Batch):
    """The decisions alone; what they earn is not learned, but for three rounds before."""

    def __init__(self, problem, tasks=None):
        super().__init__(problem, tasks)
        for _ in range(3):  # tasks that know nothing would find all arms alike
            super().play()

    def play(self):
        self.bandit.choose_many(self.names, self.contexts)


VARIANTS = {"batch": Batch, "choosing": Choosing}
