"""headstart by its public calls: ``task.choose`` and ``task.learn``."""

import gc
import tracemalloc

from problem import NOISE, RIDGE

import headstart as hs

LENGTH = 250  # rounds of a task


class Public:
    """One task of a bandit."""

    def __init__(self, problem):
        self.problem = problem
        self.contexts = problem.contexts
        self.bandit = self.make()
        self.task = self.bandit.task("0")

    def make(self, **settings):
        transfer = hs.Independent(lam=RIDGE)
        seed = self.problem.seed
        return hs.Bandit(self.problem.dim, transfer, self.rule(), NOISE, seed, **settings)

    def choose(self, t):
        self.choice = self.task.choose(self.contexts[t])
        return self.choice.arm

    def learn(self, t, arm, reward):
        self.task.learn(self.choice, reward)

    def sizes(self):
        return {"idle task": self.bytes_of_a_task(1), "live task": self.bytes_of_a_task(100)}

    def bytes_of_a_task(self, live, tasks=50, rounds=8):
        """All that Python and NumPy hold for a further task, with room for ``live`` beliefs."""
        bandit = self.make(cache_size=live)

        def play(names):
            for name in names:
                task = bandit.task(name)
                for t in range(rounds):
                    choice = task.choose(self.contexts[t])
                    task.learn(choice, self.problem.rewards[t][choice.arm])

        def in_use():
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        play(f"early-{n:06}" for n in range(10))  # so that what is only needed once is there
        gc.collect()
        tracemalloc.start()
        before = in_use()
        play(f"user-{n:06}" for n in range(tasks))
        each = (in_use() - before) / tasks
        tracemalloc.stop()
        return round(each)


class Optimism(Public):
    rule = hs.UCB


class Thompson(Public):
    rule = hs.Thompson


class Compiled:
    """With the inner loops compiled, as ``hs.use_numba()`` does for a whole process."""

    def __init__(self, problem):
        hs.use_numba()
        super().__init__(problem)


class CompiledOptimism(Compiled, Optimism):
    pass


class CompiledThompson(Compiled, Thompson):
    pass


class Default(Public):
    """As it comes: an intercept, and the prior, the noise and the units of features are learned."""

    def make(self, **settings):
        return hs.Bandit(self.problem.dim, seed=self.problem.seed, **settings)


class CompiledDefault(Compiled, Default):
    pass


class Closing(Default):
    """As it comes, a new task every 250 rounds: learning what tasks share is included."""

    multiple = LENGTH

    def __init__(self, problem):
        super().__init__(problem)
        self.rounds = self.tasks = 0

    def learn(self, t, arm, reward):
        super().learn(t, arm, reward)
        self.rounds += 1
        if self.rounds == LENGTH:
            self.task.close()
            self.rounds = 0
            self.tasks += 1
            self.task = self.bandit.task(str(self.tasks))


VARIANTS = {
    "ucb": Optimism,
    "thompson": Thompson,
    "compiled ucb": CompiledOptimism,
    "compiled thompson": CompiledThompson,
    "default": Default,
    "compiled default": CompiledDefault,
    "closing": Closing,
}
