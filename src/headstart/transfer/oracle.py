"""Oracles, which are given the distribution of tasks: the paper's and the Bayes oracle."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, matvec, max_abs, norm, transpose
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior, checked_covariance, symmetric_root
from headstart.records import equal_fields, read_only_copy
from headstart.theory import bias_term
from headstart.transfer.base import TaskStructure, Transfer, checked_evidence
from headstart.transfer.estimates import prior_of
from headstart.transfer.noise import NoiseScale


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Oracle(Transfer):
    """The true prior, given; only the noise scale is learned, unless that is given too.

    Make one with :meth:`subspace` or :meth:`gaussian`; leading batch axes give one truth each.

    Examples
    --------
    >>> oracle = Oracle.subspace(mean=[0.5, 2.0], basis=[[1.0], [0.0]], lam1=100.0, lam2=1.0)
    >>> prior = oracle.prior(oracle.init(dim=2))
    >>> prior.mean, prior.root
    (array([0., 2.]), array([[1. , 0. ],
           [0. , 0.1]]))
    """

    fixed_layout: ClassVar[bool] = True

    mean: npt.ArrayLike
    covariance: npt.ArrayLike | None = None
    basis: npt.ArrayLike | None = None
    lam1: float = 100.0
    lam2: float = 1.0
    bound: float = 1.0
    residual: float | None = None

    batched = True
    traceable = True
    reversible = True

    def __post_init__(self) -> None:
        mean = checks.finite_array("mean", self.mean, "an array of shape (..., d)")
        if mean.ndim < 1:
            raise checks.invalid("mean", "an array of shape (..., d)", mean)
        if not max_abs(mean) <= checks.MAX_MAGNITUDE:
            raise InputError(f"mean must be below {checks.MAX_MAGNITUDE:g} in size; got more")
        object.__setattr__(self, "mean", read_only_copy(mean))
        dim, batch = mean.shape[-1], mean.shape[:-1]
        if (self.covariance is None) == (self.basis is None):
            raise InputError("an Oracle needs either a covariance or a basis, and not both")
        if self.covariance is not None:
            sigma = checked_covariance(self.covariance, (*batch, dim, dim))
            object.__setattr__(self, "covariance", read_only_copy(sigma))
        else:
            want = f"orthonormal columns, of shape {(*batch, dim, 'p')}"
            basis = checks.finite_array("basis", self.basis, want)
            fits = basis.ndim == mean.ndim + 1 and basis.shape[:-1] == mean.shape
            if not fits or not np.allclose(
                transpose(basis) @ basis, np.eye(basis.shape[-1]), atol=1e-8
            ):
                raise checks.invalid("basis", want, basis)
            object.__setattr__(self, "basis", read_only_copy(basis))
        checks.positive("lam1", self.lam1)
        checks.positive("lam2", self.lam2)
        checks.positive("bound", self.bound)
        if self.residual is not None:
            checks.non_negative("residual", self.residual)

    def __eq__(self, other: object) -> bool:
        return equal_fields(self, other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def subspace(
        cls,
        mean: npt.ArrayLike,
        basis: npt.ArrayLike,
        lam1: float = 100.0,
        lam2: float = 1.0,
        bound: float = 1.0,
        residual: float | None = None,
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
            V and W, bounds on ‖θ*‖ and ‖P⊥(θ* − μ)‖, for the theory radius. Unless given, W is
            V + ‖P⊥μ‖, the most that it can be (2V in the printed radius, as printed).
        """
        return cls(mean, basis=basis, lam1=lam1, lam2=lam2, bound=bound, residual=residual)

    @classmethod
    def gaussian(cls, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Self:
        """The Bayes oracle: N(μ, Σ), the floor for everything that learns a Gaussian prior.

        A Gaussian has no bound on ‖θ* − μ‖: the theory radius is refused.
        """
        return cls(mean, covariance=covariance)

    def prior_is_known(self, noise: float | None) -> bool:
        """With the noise given, nothing is left to learn."""
        return noise is not None

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> NoiseScale:
        """The state before any task."""
        if dim != np.shape(self.mean)[-1]:
            raise checks.invalid("dim", f"the oracle's dimension {np.shape(self.mean)[-1]}", dim)
        return NoiseScale.start(noise, batch)

    def fold(self, state: NoiseScale, evidence: Evidence, weight: float = 1.0) -> NoiseScale:
        """Nothing to learn but the noise."""
        evidence = checked_evidence(evidence, (*np.shape(state.rounds), np.shape(self.mean)[-1]))
        weight = checks.real("weight", weight)
        return state if state.given_noise > 0 else state.fold(evidence, weight)

    def prior(self, state: NoiseScale) -> Prior:
        """The truth."""
        xp = array_namespace(state.rounds)
        noise = xp.asarray(state.value)
        mean = np.asarray(self.mean)
        dim = mean.shape[-1]
        if self.basis is None:
            bias: Any = np.inf
            printed = bias
            root = symmetric_root(np.asarray(self.covariance)) / noise[..., None, None]
        else:
            basis = np.asarray(self.basis)
            rank = basis.shape[-1]
            inside = basis @ transpose(basis)
            outside = np.eye(dim) - inside
            root = self.lam1**-0.5 * outside + self.lam2**-0.5 * inside
            mean = matvec(outside, mean)
            v, some_outside = self.bound * (rank > 0), float(rank < dim)
            away = self.bound + norm(mean) if self.residual is None else self.residual
            bias = bias_term(v, some_outside * away, self.lam1, self.lam2)
            w = 2.0 * self.bound if self.residual is None else self.residual
            inner = self.lam2 if rank > 0 else self.lam1
            printed = bias_term(v, some_outside * w, self.lam1, inner, "printed")
        batch = np.broadcast_shapes(mean.shape[:-1], np.shape(state.rounds))
        return prior_of(
            xp.broadcast_to(mean, (*batch, dim)),
            xp.broadcast_to(root, (*batch, dim, dim)),
            noise,
            bias=bias,
            printed_bias=printed,
        )

    def explain(self, state: NoiseScale) -> TaskStructure:
        """The truth, as given."""
        if self.basis is not None:
            return TaskStructure(rank=np.shape(self.basis)[-1], note="the true subspace, given")
        values = np.linalg.eigvalsh(np.asarray(self.covariance))[..., ::-1]
        return TaskStructure(eigenvalues=values, note="the true covariance, given")
