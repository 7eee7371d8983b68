"""MABWiser: its linear policies, as they come and as one model for all arms."""

import pickle

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from problem import NOISE, RIDGE


def optimism():
    return LearningPolicy.LinUCB(alpha=NOISE, l2_lambda=RIDGE)


def thompson():
    return LearningPolicy.LinTS(alpha=NOISE, l2_lambda=RIDGE)


class Policy:
    def __init__(self, problem, policy, arms):
        self.contexts = problem.contexts
        self.bandit = MAB(arms, policy, seed=problem.seed)
        self.bandit.fit([arms[0]], [0.0], np.zeros((1, problem.dim)))

    def sizes(self):
        return {"bandit, pickled": len(pickle.dumps(self.bandit))}


class Shared(Policy):
    """A single arm, whose model scores the contexts of all."""

    def __init__(self, problem, policy):
        super().__init__(problem, policy, [0])

    def choose(self, t):
        scores = [each[0] for each in self.bandit.predict_expectations(self.contexts[t])]
        return scores.index(max(scores))

    def learn(self, t, arm, reward):
        self.bandit.partial_fit([0], [reward], self.contexts[t, arm : arm + 1])


class ForEachArm(Policy):
    """A model for each arm, all of which see one context."""

    def __init__(self, problem, policy):
        super().__init__(problem, policy, list(range(problem.arms)))

    def choose(self, t):
        return self.bandit.predict(self.contexts[t, :1])

    def learn(self, t, arm, reward):
        self.bandit.partial_fit([arm], [reward], self.contexts[t, :1])


VARIANTS = {
    "shared ucb": lambda problem: Shared(problem, optimism()),
    "shared thompson": lambda problem: Shared(problem, thompson()),
    "ucb": lambda problem: ForEachArm(problem, optimism()),
    "thompson": lambda problem: ForEachArm(problem, thompson()),
}
