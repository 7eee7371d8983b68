"""The floor: the arithmetic of a round at the rate at which this core multiplies large matrices.

No program that does this arithmetic in float64 on one core can be faster than this.
"""

import time

import numpy as np

SIZE, TIMES = 512, 8


class Floor:
    """Time so many large products, and say how long a round's operations would take."""

    def __init__(self, problem):
        self.operations = self.count(problem.dim, problem.arms)
        rng = np.random.default_rng(problem.seed)
        self.left = rng.standard_normal((SIZE, SIZE))
        self.right = rng.standard_normal((SIZE, SIZE))
        self.product = np.empty((SIZE, SIZE))

    def seconds_per_round(self, rounds):
        begin = time.perf_counter()
        for _ in range(TIMES):
            np.matmul(self.left, self.right, out=self.product)
        seconds = time.perf_counter() - begin
        return self.operations * seconds / (TIMES * 2 * SIZE**3)


class Optimism(Floor):
    @staticmethod
    def count(dim, arms):
        """X F, X m, the rows' norms, and an update of one rank."""
        return 2 * arms * dim**2 + 2 * arms * dim + 2 * arms * dim + 6 * dim**2


class Thompson(Floor):
    @staticmethod
    def count(dim, arms):
        """F z, X θ̃, and an update of one rank."""
        return 2 * dim**2 + 2 * arms * dim + 6 * dim**2


VARIANTS = {"ucb": Optimism, "thompson": Thompson}
