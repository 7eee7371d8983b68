"""The interface of incremental PCAs, which take one vector at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, transpose
from headstart.records import Array
from headstart.settings import Settings


class Components(NamedTuple):
    """Principal components: eigenvalues, largest first, and eigenvectors as columns."""

    mean: Array
    values: Array
    vectors: Array

    def projection(self, rank: Any) -> Array:
        """P̂ = U Uᵀ onto the first ``rank`` components (one number, or one per batch element)."""
        xp = array_namespace(self.vectors, rank)
        dim = self.values.shape[-1]
        inside = xp.arange(dim) < xp.asarray(rank)[..., None]
        basis = self.vectors * inside[..., None, :]
        # The projection onto all components is the identity, without rounding.
        everything = xp.asarray(inside.all(-1))[..., None, None]
        return xp.where(everything, xp.eye(dim), basis @ transpose(basis))


class PCA(Settings, ABC):
    """Settings of an incremental PCA. The state is an argument and a result.

    Examples
    --------
    >>> import headstart as hs
    >>> pca = hs.ExactPCA()
    >>> state = pca.init(dim=2)
    >>> for vector in [[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]:
    ...     state = pca.update(state, vector)
    >>> components = pca.components(state)
    >>> components.mean, components.values.round(3), components.vectors[:, 0]
    (array([2., 1.]), array([2.667, 0.   ]), array([1., 0.]))
    """

    #: Whether updating with a negative weight undoes an earlier update.
    reversible: ClassVar[bool] = False
    #: Whether it computes with the arrays of any namespace, and never looks at their values. Not
    #: inherited: a subclass may compute in another way.
    traceable: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.traceable = vars(cls).get("traceable", False)

    @abstractmethod
    def init(self, dim: int, batch: tuple[int, ...] = ()) -> Any:
        """The state before any vector."""

    @abstractmethod
    def update(self, state: Any, vector: npt.ArrayLike, weight: Any = 1.0) -> Any:
        """The state after one more vector, which counts ``weight`` times."""

    @abstractmethod
    def components(self, state: Any) -> Components:
        """Mean, eigenvalues and eigenvectors of all vectors so far."""


def check_update(mean: Array, vector: npt.ArrayLike, weight: Any) -> tuple[Array, Array]:
    """A finite vector of the shape of a state's mean, and a finite weight (or one per element).

    Where the state is another library's, so are they, and their values are not checked.
    """
    xp = array_namespace(mean)
    if xp is not np:
        return xp.asarray(vector), xp.asarray(weight)
    array = checks.shaped_array("vector", vector, mean.shape)
    return array, checks.finite_array("weight", weight, "a finite number")


def with_fixed_signs(vectors: Array) -> Array:
    """Flip each column so that its largest entry (in absolute value) is positive."""
    xp = array_namespace(vectors)
    largest = xp.abs(vectors).argmax(-2)
    signs = xp.sign(xp.take_along_axis(vectors, largest[..., None, :], -2))
    return vectors * xp.where(signs == 0, 1.0, signs)
