"""The work that everyone does: contexts and rewards, drawn beforehand and the same for all.

θ ~ N(0, I/d); contexts are standard normal and divided by max(1, ‖x‖); rewards are xᵀθ + N(0, R²).
A few hundred rounds are drawn and played again and again: drawing is no part of what is timed.
"""

from __future__ import annotations

import numpy as np

NOISE = 0.1  # R, which those who can be told are told
RIDGE = 1.0  # λ of every model

MOST_NUMBERS = 1_000_000  # of all contexts together, so that large rounds still fit
MOST_ROUNDS, LEAST_ROUNDS = 250, 25


class Problem:
    """Rounds to play, over and over.

    ``contexts`` is ``(rounds, arms, dim)``; ``rewards`` is ``(rounds, arms)``: what each arm would
    have paid.
    """

    def __init__(self, dim: int, arms: int, seed: int) -> None:
        rng = np.random.default_rng([seed, dim, arms])
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, MOST_NUMBERS // (dim * arms)))
        contexts = rng.standard_normal((rounds, arms, dim))
        contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
        theta = rng.standard_normal(dim) / np.sqrt(dim)
        noise = NOISE * rng.standard_normal((rounds, arms))
        self.dim, self.arms, self.seed, self.rounds = dim, arms, seed, rounds
        self.contexts = contexts
        self.rewards = (contexts @ theta + noise).tolist()
