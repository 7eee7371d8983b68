"""headstart with many tasks at once: round robin, one call for each decision."""

import itertools

from problem import NOISE, RIDGE

import headstart as hs


class RoundRobin:
    """Every task in turn; all of them have been used before the clock starts.

    ``cache_size`` beliefs are cached; others are computed from the evidence of their tasks.
    """

    multiple = 250  # so that what happens once in many rounds is in every block

    def __init__(self, problem, tasks=1, cache_size=256):
        self.contexts = problem.contexts
        self.bandit = self.make(problem, cache_size)
        names = [f"user-{n:06}" for n in range(tasks)]
        self.turns = itertools.cycle([self.bandit.task(name) for name in names])
        for n in range(tasks):
            t = n % problem.rounds
            self.learn(t, self.choose(t), problem.rewards[t][0])

    def make(self, problem, cache_size):
        transfer = hs.Independent(lam=RIDGE)
        return hs.Bandit(
            problem.dim, transfer, hs.UCB(), NOISE, problem.seed, cache_size=cache_size
        )

    def choose(self, t):
        self.task = next(self.turns)
        self.choice = self.task.choose(self.contexts[t])
        return self.choice.arm

    def learn(self, t, arm, reward):
        self.task.learn(self.choice, reward)


class DefaultRoundRobin(RoundRobin):
    """The same with the default transfer, to which running tasks count."""

    def make(self, problem, cache_size):
        return hs.Bandit(problem.dim, seed=problem.seed, cache_size=cache_size)


VARIANTS = {"alone": RoundRobin, "default": DefaultRoundRobin}
