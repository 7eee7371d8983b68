"""The state of most transfers: moments of the tasks' estimates, and of the errors of these.

A task's ridge estimate θ(i) = (λI + gram)⁻¹ moment scatters around its true θ* with covariance
R² N_i, N_i = A⁻¹ gram A⁻¹. The scatter of the estimates is that of the tasks plus the mean of this
noise, and is corrected for it wherever a variance is wanted::

    variance of tasks  =  covariance of estimates − R² · mean N_i + s² · mean U_i²

The last term is the part that the estimates cannot contain. A direction that a task's contexts
never pointed in has an estimate of exactly 0, which says nothing: U_i = I − A⁻¹ gram is 1 there
(and about 0 where it was seen), and s², the mean square of θ per dimension that was seen, takes its
place.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.arrays import (
    array_namespace,
    matvec,
    stable_argsort,
    trace,
    transpose,
)
from headstart.model.evidence import Evidence
from headstart.model.prior import ONE_NOISE, Prior
from headstart.records import Array, Record
from headstart.small_matrices import eigh
from headstart.subspace import Components, Moments, with_fixed_signs
from headstart.transfer.base import checked_evidence
from headstart.transfer.noise import NoiseScale, Spectrum


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimates(Record):
    """Moments of the tasks' estimates, the sums of their N_i and U_i², and the noise."""

    moments: Moments
    errors: Array
    squared_bias: Array
    noise: NoiseScale

    @classmethod
    def start(cls, dim: int, noise: float | None, batch: tuple[int, ...]) -> Estimates:
        """Before any task."""
        dim = checks.dimension(dim)
        zero = np.zeros((*batch, dim, dim))
        return Estimates.unchecked(
            Moments.zero(dim, batch), zero, zero, NoiseScale.start(noise, batch)
        )

    def fold(
        self,
        evidence: Evidence,
        weight: float,
        *,
        ridge: float,
        min_rounds: int = 1,
        estimate_from: Evidence | None = None,
    ) -> tuple[Estimates, Array, Any]:
        """Add one task; also its estimate, and the weight it was given.

        A task of fewer than ``min_rounds`` rounds informs the noise but has no weight as an
        estimate. ``estimate_from`` is the evidence to estimate θ from, if not all.
        """
        evidence = checked_evidence(evidence, self.moments.mean.shape)
        weight = checks.real("weight", weight)
        source = evidence if estimate_from is None else estimate_from
        noise = self.noise
        if noise.given_noise == 0:
            noise = noise.fold(evidence, weight)
        theta, error, left_out = ridge_estimate(source, ridge)
        xp = array_namespace(theta)
        used = weight * (source.rounds >= max(min_rounds, 1))
        moments = self.moments.add(theta, used)
        share = xp.asarray(used)[..., None, None]
        left = (xp.asarray(moments.count) > 0)[..., None, None]  # nothing left is exactly nothing
        errors = (self.errors + share * error) * left
        squared_bias = (self.squared_bias + share * left_out) * left
        return Estimates.unchecked(moments, errors, squared_bias, noise), theta, used

    @classmethod
    def of(
        cls, evidence: Evidence, noise: float | None, *, ridge: float, min_rounds: int = 1
    ) -> tuple[Estimates, Array, Array]:
        """The tasks along a batch axis, as if each had been folded; their estimates and weights."""
        scale = NoiseScale.start(noise, evidence.batch)
        if scale.given_noise == 0:
            scale = scale.fold(evidence, 1.0)
        theta, error, left_out = ridge_estimate(evidence, ridge)
        used = (np.asarray(evidence.rounds) >= max(min_rounds, 1)).astype(float)
        flat = (used @ matrices.reshape(len(used), -1) for matrices in (error, left_out))
        errors, squared_bias = (matrix.reshape(error.shape[1:]) for matrix in flat)
        moments = Moments.of(theta, used)
        return Estimates.unchecked(moments, errors, squared_bias, scale.total()), theta, used

    def merge(self, other: Estimates) -> Estimates:
        """The estimates of the tasks of both."""
        return Estimates.unchecked(
            self.moments.merge(other.moments),
            self.errors + other.errors,
            self.squared_bias + other.squared_bias,
            self.noise.merge(other.noise),
        )

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.moments.mean.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.moments.mean.shape[:-1]

    @property
    def count(self) -> Any:
        """N, the (weighted) number of tasks with an estimate."""
        return self.moments.count

    @property
    def mean(self) -> Array:
        """θ̄, the mean estimate."""
        return self.moments.mean

    def covariances(self) -> tuple[Array, Array, Array]:
        """The covariance of the estimates, of their own noise, and of what they leave out.

        The second is R² · mean N_i; the third s² · mean U_i², taken to be like the rest.
        """
        xp = array_namespace(self.errors)
        count = xp.maximum(self.count, 1e-300)
        sample = self.moments.covariance
        variance = xp.asarray(self.noise.value) ** 2 / count
        error = variance[..., None, None] * self.errors
        squared_bias = self.squared_bias / count[..., None, None]
        square = trace(sample) + (self.mean**2).sum(-1) - trace(error)
        size = xp.maximum(square, 0.0) / xp.maximum(self.dim - trace(squared_bias), 1e-9)
        return sample, error, size[..., None, None] * squared_bias

    def components(self) -> Components:
        """Principal components of the tasks, not of their estimates: noise is subtracted first.

        No variance is below what the subtraction itself is uncertain by, √(2/N) of what there was.
        """
        sample, error, squared_bias = self.covariances()
        raw = sample + squared_bias
        xp = array_namespace(raw)
        values, vectors = eigh(raw - error)
        before = (vectors * (raw @ vectors)).sum(-2)
        uncertain = xp.minimum(xp.sqrt(2.0 / xp.maximum(self.count, 1.0)), 1.0)[..., None]
        values = xp.maximum(xp.maximum(values, uncertain * before), 0.0)
        order = stable_argsort(-values)
        vectors = xp.take_along_axis(vectors, order[..., None, :], -1)
        sorted_values = xp.take_along_axis(values, order, -1)
        return Components(self.mean, sorted_values, with_fixed_signs(vectors))

    def variance(self, projection: Array, fitted: Any = 0) -> Any:
        """The variance of a new task around θ̄, per dimension of the projection.

        Unbiased for the mean and the ``fitted`` directions that were estimated from the same tasks,
        corrected for estimation noise, never below what the correction itself is uncertain by, and
        widened by what the mean and those directions are uncertain by.
        """
        xp = array_namespace(projection, self.errors)
        size = xp.maximum(trace(projection), 1.0)
        count = xp.maximum(self.count, 1.0)
        dof = xp.maximum(count - 1.0 - fitted, 1.0)
        sample, error, squared_bias = (
            projected_trace(projection, each) for each in self.covariances()
        )
        raw = sample * count / dof / size
        corrected = variance_without_noise(raw, error / size, size * dof)
        return corrected + raw * (1.0 + fitted) / count + squared_bias / size

    def second_moment(self, projection: Array) -> Any:
        """The mean square of a task's parameter, per dimension of the projection; likewise."""
        xp = array_namespace(projection, self.errors)
        size = xp.maximum(trace(projection), 1.0)
        outer = self.mean[..., :, None] * self.mean[..., None, :]
        sample, error, squared_bias = self.covariances()
        raw = projected_trace(projection, sample + outer) / size
        dof = size * xp.maximum(self.count, 1.0)
        corrected = variance_without_noise(raw, projected_trace(projection, error) / size, dof)
        return corrected + projected_trace(projection, squared_bias) / size


def variance_without_noise(variance: Any, noise: Any, dof: Any) -> Any:
    """A variance less that of noise, and not below what it is uncertain by itself."""
    xp = array_namespace(variance)
    return xp.maximum(variance - noise, variance * xp.minimum(xp.sqrt(2.0 / dof), 1.0))


class RidgeEstimate(NamedTuple):
    """A task's estimate, N and U²."""

    estimate: Array
    error: Array
    squared_bias: Array


def ridge_estimate(evidence: Evidence, ridge: float) -> RidgeEstimate:
    """The estimate of a task, by the inverse of A = gram + λI; tasks of a batch each as if alone.

    Without a ridge, or with one that is lost in rounding next to the gram, the gram's eigenvectors
    determine what was seen; they cost several times as much.
    """
    lost = ridge_is_negligible(evidence.gram, ridge)
    if lost.any():
        spectrum = Spectrum.of(evidence)
        slow = RidgeEstimate(
            spectrum.estimate(ridge), spectrum.error(ridge), spectrum.squared_bias(ridge)
        )
        if lost.all():
            return slow
        safe = evidence.replace(
            gram=np.where(lost[..., None, None], 0.0, evidence.gram), forced=None
        )
        fast = ridge_estimate(safe, ridge)
        return RidgeEstimate(
            np.where(lost[..., None], slow.estimate, fast.estimate),
            np.where(lost[..., None, None], slow.error, fast.error),
            np.where(lost[..., None, None], slow.squared_bias, fast.squared_bias),
        )
    xp = array_namespace(evidence.gram)
    inverse = xp.linalg.inv(evidence.gram + ridge * xp.eye(evidence.dim))
    inverse = (inverse + transpose(inverse)) / 2
    left_out = ridge * inverse  # U = I − A⁻¹ gram = λ A⁻¹
    return RidgeEstimate(
        matvec(inverse, evidence.moment),
        inverse @ evidence.gram @ inverse,
        left_out @ left_out,
    )


def ridge_is_negligible(gram: Array, ridge: float) -> Any:
    """Whether a ridge is too small to be added to each of these grams.

    While JAX compiles, arrays have no values: there a gram's trace is taken to be 100,000 or less,
    which contexts no longer than 1 reach in 100,000 rounds.
    """
    size: Any = trace(gram) if array_namespace(gram) is np else 1e5
    return np.logical_not(ridge > 1e-9 * size)


def projected_trace(projection: Array, matrix: Array) -> Any:
    """tr(P M), for symmetric matrices."""
    return array_namespace(projection, matrix).einsum("...ij,...ij->...", projection, matrix)


def inverse_sqrt(lam: Any) -> Array:
    """λ^-½ with two axes more, to scale matrices by."""
    xp = array_namespace(lam)
    return 1.0 / xp.sqrt(xp.asarray(lam, dtype=float))[..., None, None]


def isotropic_root(lam: Any, dim: int, batch: tuple[int, ...]) -> Array:
    """λ^-½ I for one λ, or one per batch element."""
    root: Array = inverse_sqrt(lam) * np.eye(dim)
    return array_namespace(root).broadcast_to(root, (*batch, dim, dim))


def plug_in_lambda(noise: Any, variance: Any) -> Any:
    """λ = R²/variance, or 1 where the variance is 0."""
    xp = array_namespace(noise, variance)
    known = xp.asarray(variance) > 1e-300
    return xp.where(known, xp.asarray(noise) ** 2 / xp.where(known, variance, 1.0), 1.0)


def prior_of(
    mean: Array,
    root: Array,
    noise: Any,
    bias: Any = math.inf,
    printed_bias: Any = None,
    noise_dof: Any = ONE_NOISE,
) -> Prior:
    """A prior; its fields are checked if they are NumPy's.

    While JAX compiles, arrays have no values.
    """
    if array_namespace(mean, root) is np:
        return Prior(mean, root, noise, bias, printed_bias, noise_dof)
    fields = {"mean": mean, "root": root, "noise": noise, "bias": bias}
    fields["printed_bias"] = bias if printed_bias is None else printed_bias
    return Prior.unchecked(**fields, noise_dof=noise_dof)
