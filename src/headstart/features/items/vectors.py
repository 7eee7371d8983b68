"""The update of an item's vector by a task that is closed.

A task weighs the vector E of an item by w, the part of its parameter θ that belongs to these
columns. With its posterior N(θ̂, C), and z° the row without E, a reward r of the item adds::

    P += (w wᵀ + C_ww) / R²        H += (w (r − z°ᵀθ̂) − C_w· z°) / R²        E = P⁻¹ H

which is the mean-field update of E under the prior N(E₀, I), E₀ being small and random.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart import checks
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
