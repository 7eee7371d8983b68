"""coba: its LinUCB and LinTS on action features."""

from coba.learners import LinUCBLearner
from coba.learners.lints import LinTSLearner
from problem import NOISE


class Learner:
    """One model for all arms, which are tuples of features; there is no context besides."""

    def __init__(self, problem):
        self.actions = [[tuple(row) for row in rows] for rows in problem.contexts.tolist()]
        self.learner = self.make()

    def choose(self, t):
        self.action, self.chance = self.learner.predict(None, self.actions[t])[:2]
        return self.actions[t].index(self.action)

    def learn(self, t, arm, reward):
        self.learner.learn(None, self.action, reward, self.chance)

    def sizes(self):
        arrays = [value for value in vars(self.learner).values() if hasattr(value, "nbytes")]
        return {"its arrays": sum(array.nbytes for array in arrays)}  # it cannot be pickled


class Optimism(Learner):
    def make(self):
        return LinUCBLearner(alpha=NOISE, features=["a"])


class Thompson(Learner):
    def make(self):
        return LinTSLearner(v=NOISE**2, features=["a"])


VARIANTS = {"ucb": Optimism, "thompson": Thompson}
