"""The textbook loop: B and b, and ``np.linalg.inv`` after every reward."""

import pickle

import numpy as np
from problem import NOISE, RIDGE


class Model:
    """B = λI + Σ x xᵀ and b = Σ r x, inverted anew each round."""

    def __init__(self, problem):
        self.contexts = problem.contexts
        self.precision = RIDGE * np.eye(problem.dim)
        self.moment = np.zeros(problem.dim)
        self.covariance = np.linalg.inv(self.precision)
        self.mean = self.covariance @ self.moment
        self.rng = np.random.default_rng(problem.seed)

    def learn(self, t, arm, reward):
        context = self.contexts[t, arm]
        self.precision += np.outer(context, context)
        self.moment += reward * context
        self.covariance = np.linalg.inv(self.precision)
        self.mean = self.covariance @ self.moment

    def sizes(self):
        return {"B and b, pickled": len(pickle.dumps((self.precision, self.moment)))}


class Optimism(Model):
    def choose(self, t):
        contexts = self.contexts[t]
        squares = np.einsum("ij,ij->i", contexts @ self.covariance, contexts)
        return int((contexts @ self.mean + NOISE * np.sqrt(squares)).argmax())


class Thompson(Model):
    def choose(self, t):
        draw = self.rng.multivariate_normal(self.mean, NOISE**2 * self.covariance)
        return int((self.contexts[t] @ draw).argmax())


VARIANTS = {"ucb": Optimism, "thompson": Thompson}
