"""Matrices over the last two axes, whatever batch axes stand before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.records import Array

__all__ = ["norm", "plain", "times", "trace", "turned"]


def times(matrix: Array, vector: Array) -> Array:
    """Matrix times vector."""
    product: Array = (matrix @ vector[..., None])[..., 0]
    return product


def norm(vector: Array) -> Any:
    """The Euclidean length of a vector."""
    return np.sqrt((vector**2).sum(-1))


def turned(matrix: Array) -> Array:
    """The transpose."""
    return matrix.swapaxes(-1, -2)


def trace(matrix: Array) -> Any:
    """The trace."""
    return np.trace(matrix, axis1=-2, axis2=-1)


def plain(value: Any) -> Any:
    """A float where there are no batch axes."""
    array = np.asarray(value, dtype=float)
    return array if array.ndim else float(array)
