"""bayesianbandits: one learner for all arms by an arm featurizer, and a learner for each arm."""

import pickle

import numpy as np
from bayesianbandits import (
    Arm,
    ContextualAgent,
    FunctionArmFeaturizer,
    LipschitzContextualAgent,
    NormalRegressor,
    ThompsonSampling,
    UpperConfidenceBound,
)
from problem import NOISE, RIDGE


def learner():
    """The same prior and noise as everyone's: precision λ/R², noise precision 1/R²."""
    return NormalRegressor(alpha=RIDGE / NOISE**2, beta=1.0 / NOISE**2)


class ByArm:
    """A featurizer's function: a context holds the features of all arms, one after another."""

    def __init__(self, dim):
        self.dim = dim

    def __call__(self, contexts, arms):
        return contexts.reshape(len(contexts), -1, self.dim)[:, arms].transpose(0, 2, 1)


class Agent:
    def choose(self, t):
        return self.agent.pull(self.contexts[t])[0]

    def learn(self, t, arm, reward):
        self.agent.update(self.contexts[t], np.array([reward]))

    def sizes(self):
        return {"agent, pickled": len(pickle.dumps(self.agent))}


class Shared(Agent):
    def __init__(self, problem, policy):
        self.contexts = problem.contexts.reshape(problem.rounds, 1, -1)
        arms = [Arm(n, learner=None) for n in range(problem.arms)]
        featurizer = FunctionArmFeaturizer(ByArm(problem.dim))
        self.agent = LipschitzContextualAgent(
            arms, policy, featurizer, learner(), random_seed=problem.seed
        )


class ForEachArm(Agent):
    def __init__(self, problem, policy):
        self.contexts = problem.contexts[:, :1]
        arms = [Arm(n, learner=learner()) for n in range(problem.arms)]
        self.agent = ContextualAgent(arms, policy, random_seed=problem.seed)


VARIANTS = {
    "shared ucb": lambda problem: Shared(problem, UpperConfidenceBound(alpha=0.84)),
    "shared thompson": lambda problem: Shared(problem, ThompsonSampling()),
    "ucb": lambda problem: ForEachArm(problem, UpperConfidenceBound(alpha=0.84)),
    "thompson": lambda problem: ForEachArm(problem, ThompsonSampling()),
}
