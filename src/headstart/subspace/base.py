"""The interface of every way to find principal components one vector at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.records import Array, Settings

__all__ = ["PCA", "Components"]


class Components(NamedTuple):
    """Principal components: eigenvalues, largest first, and eigenvectors as columns."""

    mean: Array
    values: Array
    vectors: Array

    def projection(self, rank: Any) -> Array:
        """P̂ = U Uᵀ onto the first ``rank`` components (one number, or one per batch element)."""
        chosen = np.arange(self.values.shape[-1]) < np.asarray(rank)[..., None]
        basis = self.vectors * chosen[..., None, :]
        projection: Array = basis @ basis.swapaxes(-1, -2)
        # All of them is the identity, to the last bit.
        everything = np.asarray(chosen.all(-1))[..., None, None]
        return np.where(everything, np.eye(self.values.shape[-1]), projection)


class PCA(Settings, ABC):
    """Settings of an incremental PCA. The state is passed in and out, never held.

    Examples
    --------
    >>> import headstart as hs
    >>> pca = hs.ExactPCA()
    >>> state = pca.init(dim=2)
    >>> for vector in [[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]:
    ...     state = pca.update(state, vector)
    >>> found = pca.components(state)
    >>> found.mean, found.values.round(3), found.vectors[:, 0]
    (array([2., 1.]), array([2.667, 0.   ]), array([1., 0.]))
    """

    #: Whether updating with a negative weight takes an earlier update back.
    reversible: ClassVar[bool] = False

    @abstractmethod
    def init(self, dim: int, batch: tuple[int, ...] = ()) -> Any:
        """The state before any vector."""

    @abstractmethod
    def update(self, state: Any, vector: npt.ArrayLike, weight: Any = 1.0) -> Any:
        """The state after one more vector, which counts ``weight`` times."""

    @abstractmethod
    def components(self, state: Any) -> Components:
        """Mean, eigenvalues and eigenvectors of all vectors so far."""


def checked_vector(vector: npt.ArrayLike, like: Array) -> Array:
    """A finite vector of the state's shape."""
    array = checks.finite_array("vector", vector, f"an array of shape {like.shape}")
    if array.shape != like.shape:
        raise checks.refuse("vector", f"an array of shape {like.shape}", array)
    return array


def checked_weight(weight: Any) -> Array:
    """A finite weight, or one per batch element."""
    return checks.finite_array("weight", weight, "a finite number")


def with_fixed_signs(vectors: Array) -> Array:
    """Flip each column so that its largest entry (in absolute value) is positive."""
    at = np.abs(vectors).argmax(-2)
    signs = np.sign(np.take_along_axis(vectors, at[..., None, :], -2))
    fixed: Array = vectors * np.where(signs == 0, 1.0, signs)
    return fixed
