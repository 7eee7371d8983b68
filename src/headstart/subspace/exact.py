"""Exact principal components from a running mean and scatter matrix."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, float_if_scalar
from headstart.records import Array, Record
from headstart.small_matrices import eigh
from headstart.subspace.base import PCA, Components, check_update, with_fixed_signs


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moments(Record):
    """Count, mean and scatter Σ (v − mean)(v − mean)ᵀ of weighted vectors.

    Updated by Welford's recursion, which does not lose digits to a large mean and runs backwards
    with a negative weight::

        δ = v − mean    N' = N + w    mean ← mean + (w/N') δ    scatter ← scatter + w (N/N') δδᵀ
    """

    count: Any
    mean: Array
    scatter: Array

    @classmethod
    def zero(cls, dim: int, batch: tuple[int, ...] = ()) -> Self:
        """No vector yet."""
        count = np.zeros(batch) if batch else 0.0
        return cls.unchecked(count, np.zeros((*batch, dim)), np.zeros((*batch, dim, dim)))

    @property
    def covariance(self) -> Array:
        """Scatter / N; zero before the first vector."""
        xp = array_namespace(self.scatter)
        return self.scatter / xp.maximum(self.count, 1e-300)[..., None, None]

    def add(self, vector: Array, weight: Any) -> Self:
        """The moments with one more vector."""
        xp = array_namespace(self.mean, vector)
        total = xp.asarray(self.count + weight)
        # A total that rounding leaves just off zero is the empty state again.
        empty = total <= 1e-9
        share = weight / xp.where(empty, 1.0, total)
        delta = vector - self.mean
        outer = delta[..., :, None] * delta[..., None, :]
        keep = xp.where(empty, 0.0, 1.0)
        mean = (self.mean + share[..., None] * delta) * keep[..., None]
        scatter = self.scatter + (self.count * share)[..., None, None] * outer
        count = float_if_scalar(xp.where(empty, 0.0, total))
        return type(self).unchecked(count, mean, scatter * keep[..., None, None])

    @classmethod
    def of(cls, vectors: Array, weights: Array) -> Moments:
        """The moments of several vectors at once.

        >>> several = Moments.of(np.array([[1.0], [3.0]]), np.ones(2))
        >>> several.count, several.mean, several.scatter
        (2.0, array([2.]), array([[2.]]))
        """
        count = float(weights.sum())
        if count <= 0:
            return cls.zero(vectors.shape[-1])
        mean = weights @ vectors / count
        away = vectors - mean
        return cls.unchecked(count, mean, (away * weights[:, None]).T @ away)

    def merge(self, other: Moments) -> Moments:
        """The moments of the vectors of both (Chan, Golub and LeVeque)."""
        total = self.count + other.count
        if not other.count or not self.count:
            return self if self.count else other
        away = other.mean - self.mean
        apart = self.count * (other.count / total) * np.multiply.outer(away, away)
        mean = self.mean + (other.count / total) * away
        return Moments.unchecked(total, mean, self.scatter + other.scatter + apart)


@dataclasses.dataclass(frozen=True, repr=False)
class ExactPCA(PCA):
    """Eigenvectors of the running covariance: O(d²) a vector, O(d³) when asked.

    For d up to a few hundred this costs nothing next to the rounds of a task, and it has no
    approximation to worry about: the default.
    """

    reversible: ClassVar[bool] = True
    traceable: ClassVar[bool] = True

    def init(self, dim: int, batch: tuple[int, ...] = ()) -> Moments:
        """The state before any vector."""
        return Moments.zero(checks.dimension(dim), batch)

    def update(self, state: Moments, vector: npt.ArrayLike, weight: Any = 1.0) -> Moments:
        """The state after one more vector, which counts ``weight`` times."""
        new, _ = check_update(state.mean, vector, weight)
        return state.add(new, weight)

    def components(self, state: Moments) -> Components:
        """Mean, eigenvalues and eigenvectors of all vectors so far."""
        return Components(state.mean, *sorted_eigh(state.covariance))


def sorted_eigh(covariance: Array) -> tuple[Array, Array]:
    """Eigenvalues, largest first and none negative, and eigenvectors with fixed signs."""
    xp = array_namespace(covariance)
    values, vectors = eigh(covariance)
    return xp.maximum(values[..., ::-1], 0.0), with_fixed_signs(vectors[..., ::-1])
