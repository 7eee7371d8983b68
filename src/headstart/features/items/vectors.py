"""The update of an item's vector by a task that is closed.

A task weighs the vector E of an item by w, the part of its parameter θ that belongs to these
columns. With its posterior N(θ̂, C), and z° the row without E, a reward r of the item adds::

    P += (w wᵀ + C_ww) / R²        H += (w (r − z°ᵀθ̂) − C_w· z°) / R²        E = P⁻¹ H

which is the mean-field update of E under the prior N(E₀, I), E₀ being small and random.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart import checks
from headstart.features.conversion import Features
from headstart.model.base import BaseBelief
from headstart.records import Array

RANK = 4
INITIAL_SIZE = 0.1  # root mean square of the entries of E₀


class Loading(NamedTuple):
    """How a task weighs the vectors of items.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        θ̂, for rows as they are encoded, with the intercept if there is one.
    cross : ndarray of shape (rank, d)
        The rows of C that belong to the vector.
    noise : float
        R.
    columns : slice
        The columns of the vector.
    """

    mean: Array
    cross: Array
    noise: float
    columns: slice

    @classmethod
    def of(
        cls, belief: BaseBelief, features: Features, columns: slice, influence: float
    ) -> Loading:
        """How a task with this belief weighs vectors, for rows as they are encoded.

        R is the task's own. Before it is known, or where all tasks have one R, a task that counts
        less than others has R/√ω.
        """
        noise = float(belief.noise)
        mean = belief.predict(np.eye(features.dim))
        parts, cross = belief.gaussian_parts(), np.zeros((RANK, len(mean)))
        if parts is not None and len(parts[0]) == 1:
            root = parts[2][0]
            cross = noise**2 * (root[columns] @ root.T)
        if features.units is not None:
            change = features.coefficient_matrix()
            mean, cross = change @ mean, (change[columns, columns] @ cross) @ change.T
        if influence < 1.0:
            noise = max(noise, float(belief.prior.noise) / math.sqrt(influence))
        return cls(mean, cross, noise, columns)

    def contribution(self, row: Array, reward: float, weight: float) -> tuple[Array, Array]:
        """What a mean row and reward of an item, that count ``weight`` times, add to P and H."""
        loads = self.mean[self.columns]
        rest = row.copy()
        rest[self.columns] = 0.0
        scale = weight / self.noise**2
        precision = scale * (np.outer(loads, loads) + self.cross[:, self.columns])
        moment = scale * (loads * (reward - float(rest @ self.mean)) - self.cross @ rest)
        return precision, moment


def initial_vectors(keys: Sequence[str]) -> Array:
    """E₀ of items: small pseudo-random numbers that depend on the item's id alone.

    >>> initial_vectors(["tea"]).shape
    (1, 4)
    """
    digests = b"".join(map(initial_digest, keys))
    uniform = np.frombuffer(digests, dtype="<u8").reshape(len(keys), RANK) / 2.0**64
    return INITIAL_SIZE * np.sqrt(12.0) * (uniform - 0.5)


@functools.lru_cache(maxsize=8192)
def initial_digest(key: str) -> bytes:
    """A digest of an item's id: eight bytes for each entry of its vector."""
    return hashlib.blake2b(checks.task_name(key).encode(), digest_size=8 * RANK).digest()
