"""The bare loop: a mean and a square root F of B⁻¹, updated in place, in plain NumPy.

No tasks, no checks, no tokens, nothing saved: what a good NumPy programmer writes for one model.
"""

import math
import pickle

import numpy as np
from problem import NOISE, RIDGE


class Model:
    """B⁻¹ = F Fᵀ; a reward changes F by one rank."""

    def __init__(self, problem):
        self.contexts = problem.contexts
        self.mean = np.zeros(problem.dim)
        self.root = np.eye(problem.dim) / math.sqrt(RIDGE)
        self.rng = np.random.default_rng(problem.seed)

    def learn(self, t, arm, reward):
        context, root, mean = self.contexts[t, arm], self.root, self.mean
        u = context @ root
        square = u @ u
        gain = math.sqrt(1.0 + square)
        v = root @ u
        mean += v * ((reward - context @ mean) / (1.0 + square))
        v /= gain * (1.0 + gain)
        root -= v[:, None] * u

    def sizes(self):
        return {"mean and root, pickled": len(pickle.dumps((self.mean, self.root)))}


class Optimism(Model):
    def choose(self, t):
        contexts = self.contexts[t]
        projected = contexts @ self.root
        width = np.sqrt(np.einsum("ij,ij->i", projected, projected))
        return int((contexts @ self.mean + NOISE * width).argmax())


class Thompson(Model):
    def choose(self, t):
        draw = self.root @ self.rng.standard_normal(len(self.mean))
        return int((self.contexts[t] @ (self.mean + NOISE * draw)).argmax())


VARIANTS = {"ucb": Optimism, "thompson": Thompson}
