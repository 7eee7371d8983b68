"""The arm with the largest expected reward."""

from __future__ import annotations

import dataclasses

import numpy as np

from headstart.records import Array
from headstart.rules.base import BeliefLike, Indexed

__all__ = ["Greedy"]


@dataclasses.dataclass(frozen=True, repr=False)
class Greedy(Indexed):
    """No exploration beyond ``explore``: the arm with the largest expected reward xᵀθ̂."""

    def index(self, belief: BeliefLike, contexts: Array, rng: np.random.Generator) -> Array:
        """xᵀθ̂."""
        return belief.predict(contexts)
