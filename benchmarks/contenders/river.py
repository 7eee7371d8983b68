"""river: its Bayesian regression as one model for all arms, and its LinUCB."""

import math
import pickle

from problem import NOISE, RIDGE
from river.bandit import LinUCBDisjoint
from river.linear_model import BayesianLinearRegression


class Regression:
    """Features are a dictionary for each arm, and are scored one arm after another."""

    def __init__(self, problem):
        self.features = [
            [dict(enumerate(row)) for row in rows] for rows in problem.contexts.tolist()
        ]
        self.model = BayesianLinearRegression(alpha=RIDGE, beta=1.0)

    def choose(self, t):
        scores = []
        for features in self.features[t]:
            reward = self.model.predict_one(features, with_dist=True)
            width = math.sqrt(max(0.0, reward.sigma**2 - 1.0))  # without the noise it adds
            scores.append(reward.mu + NOISE * width)
        return scores.index(max(scores))

    def learn(self, t, arm, reward):
        self.model.learn_one(self.features[t][arm], reward)

    def sizes(self):
        return {"regression, pickled": len(pickle.dumps(self.model))}


class ForEachArm:
    """A model for each arm, all of which see one context."""

    def __init__(self, problem):
        self.features = [dict(enumerate(rows[0])) for rows in problem.contexts.tolist()]
        self.policy = LinUCBDisjoint(alpha=RIDGE, seed=problem.seed)
        self.arms = list(range(problem.arms))

    def choose(self, t):
        return self.policy.pull(self.arms, self.features[t])

    def learn(self, t, arm, reward):
        self.policy.update(arm, self.features[t], reward)

    def sizes(self):
        return {"policy, pickled": len(pickle.dumps(self.policy))}


VARIANTS = {"regression": Regression, "ucb": ForEachArm}
