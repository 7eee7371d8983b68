"""What could be reached if the truth were known: the paper's oracle, and the Bayes oracle."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.evidence import Evidence
from headstart.prior import Prior, symmetric_root
from headstart.records import Array, same_fields
from headstart.transfer.base import Explanation, Transfer
from headstart.transfer.noise import NoiseScale, Spectrum

__all__ = ["Oracle"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Oracle(Transfer):
    """The true prior, given; only the noise scale is learned, unless that is given too.

    Make one with :meth:`subspace` or :meth:`gaussian`.

    Examples
    --------
    >>> oracle = Oracle.subspace(mean=[0.5, 2.0], basis=[[1.0], [0.0]], lam1=100.0, lam2=1.0)
    >>> prior = oracle.prior(oracle.init(dim=2))
    >>> prior.mean, prior.root
    (array([0., 2.]), array([[1. , 0. ],
           [0. , 0.1]]))
    """

    mean: npt.ArrayLike
    covariance: npt.ArrayLike | None = None
    basis: npt.ArrayLike | None = None
    lam1: float = 100.0
    lam2: float = 1.0
    bound: float = 1.0
    residual: float = 0.0

    def __post_init__(self) -> None:
        mean = checks.finite_array("mean", self.mean, "a vector", ndim=1)
        dim = len(mean)
        object.__setattr__(self, "mean", mean)
        if (self.covariance is None) == (self.basis is None):
            raise InputError("an Oracle needs either a covariance or a basis, and not both")
        if self.covariance is not None:
            sigma = checks.finite_array("covariance", self.covariance, "a matrix", ndim=2)
            if sigma.shape != (dim, dim) or not np.allclose(sigma, sigma.T):
                raise checks.refuse("covariance", f"a symmetric {dim} × {dim} matrix", sigma)
            if np.linalg.eigvalsh(sigma)[0] < -1e-10 * max(np.trace(sigma), 1e-300):
                raise InputError("covariance must be positive semi-definite; got one that is not")
            object.__setattr__(self, "covariance", sigma)
        else:
            basis = checks.finite_array("basis", self.basis, "a matrix", ndim=2)
            orthonormal = basis.shape[0] == dim and np.allclose(
                basis.T @ basis, np.eye(basis.shape[1]), atol=1e-8
            )
            if not orthonormal:
                raise checks.refuse("basis", f"a {dim} × p matrix with orthonormal columns", basis)
            object.__setattr__(self, "basis", basis)
        checks.positive("lam1", self.lam1)
        checks.positive("lam2", self.lam2)
        checks.positive("bound", self.bound)
        checks.non_negative("residual", self.residual)

    def __eq__(self, other: object) -> bool:
        return same_fields(self, other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def subspace(
        cls,
        mean: npt.ArrayLike,
        basis: npt.ArrayLike,
        lam1: float = 100.0,
        lam2: float = 1.0,
        bound: float = 1.0,
        residual: float = 0.0,
    ) -> Self:
        """The projection oracle: N(P⊥μ, R² (λ₁⁻¹P⊥ + λ₂⁻¹P)).

        Parameters
        ----------
        mean
            μ, the tasks' true mean.
        basis
            Orthonormal columns that span the plane's directions, shape ``(d, p)``.
        lam1, lam2
            R²/variance of the tasks outside and inside the plane make it the Bayes oracle when the
            mean is off the plane.
        bound, residual
            V and W, for the theory radius.
        """
        return cls(mean, basis=basis, lam1=lam1, lam2=lam2, bound=bound, residual=residual)

    @classmethod
    def gaussian(cls, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Self:
        """The Bayes oracle: N(μ, Σ), the floor for everything that learns a Gaussian prior."""
        return cls(mean, covariance=covariance)

    @property
    def reversible(self) -> bool:
        """Sums can be taken back."""
        return True

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> NoiseScale:
        """The state before any task."""
        if dim != len(np.asarray(self.mean)):
            raise checks.refuse("dim", f"the oracle's dimension {len(np.asarray(self.mean))}", dim)
        return NoiseScale.start(noise, batch)

    def fold(self, state: NoiseScale, evidence: Evidence, weight: float = 1.0) -> NoiseScale:
        """Nothing to learn but the noise."""
        if evidence.dim != len(np.asarray(self.mean)):
            raise checks.refuse("evidence", f"of dimension {len(np.asarray(self.mean))}", evidence)
        return state.fold(evidence, Spectrum.of(evidence), checks.real("weight", weight))

    def prior(self, state: NoiseScale) -> Prior:
        """The truth."""
        noise = np.asarray(state.value)
        mean, root = np.asarray(self.mean), self.root(noise)
        batch = np.shape(state.rounds)
        dim = len(mean)
        rank = 0 if self.basis is None else np.shape(self.basis)[1]
        bias: Any = noise * np.sqrt(dim)
        if self.basis is not None:
            outside = self.lam1 * self.residual**2 * (rank < dim)
            bias = np.sqrt(outside + self.lam2 * self.bound**2 * (rank > 0))
            mean = mean - np.asarray(self.basis) @ (np.asarray(self.basis).T @ mean)
        return Prior(
            np.broadcast_to(mean, (*batch, dim)),
            np.broadcast_to(root, (*batch, dim, dim)),
            noise=noise,
            bias=bias,
        )

    def root(self, noise: Array) -> Array:
        """F₀ of either oracle."""
        if self.basis is None:
            root: Array = symmetric_root(np.asarray(self.covariance)) / noise[..., None, None]
            return root
        inside = np.asarray(self.basis) @ np.asarray(self.basis).T
        projected: Array = (
            self.lam1**-0.5 * (np.eye(len(inside)) - inside) + self.lam2**-0.5 * inside
        )
        return projected

    def explain(self, state: NoiseScale) -> Explanation:
        """The truth, as given."""
        if self.basis is not None:
            return Explanation(rank=np.shape(self.basis)[1], note="the true subspace, given")
        values = np.linalg.eigvalsh(np.asarray(self.covariance))[::-1]
        return Explanation(eigenvalues=values, note="the true covariance, given")
