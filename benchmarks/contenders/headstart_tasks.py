"""headstart with many tasks at once: round robin, one call for each decision."""

import itertools

from problem import NOISE, RIDGE

import headstart as hs


class RoundRobin:
    """Every task in turn; all of them have been used before the clock starts.

    ``live`` tasks keep their belief at hand; others are rebuilt from their evidence when they come
    back.
    """

    multiple = 250  # so that what happens once in many rounds is in every block

    def __init__(self, problem, tasks=1, live=256):
        self.contexts = problem.contexts
        self.bandit = self.make(problem, live)
        names = [f"user-{n:06}" for n in range(tasks)]
        self.turns = itertools.cycle([self.bandit.task(name) for name in names])
        for n in range(tasks):
            t = n % problem.rounds
            self.learn(t, self.choose(t), problem.rewards[t][0])

    def make(self, problem, live):
        transfer = hs.Independent(lam=RIDGE)
        return hs.Bandit(problem.dim, transfer, hs.UCB(), NOISE, problem.seed, live=live)

    def choose(self, t):
        self.task = next(self.turns)
        self.choice = self.task.choose(self.contexts[t])
        return self.choice.arm

    def learn(self, t, arm, reward):
        self.task.learn(self.choice, reward)


class DefaultRoundRobin(RoundRobin):
    """The same with the default transfer, to which running tasks count."""

    def make(self, problem, live):
        return hs.Bandit(problem.dim, seed=problem.seed, live=live)


VARIANTS = {"alone": RoundRobin, "default": DefaultRoundRobin}
