"""What most transfers remember of the past: the tasks' estimates, and how wrong those are.

A task's ridge estimate θ(i) = (λI + gram)⁻¹ moment scatters around its true θ* with covariance
R² N_i, N_i = A⁻¹ gram A⁻¹. The scatter of the estimates is that of the tasks plus the mean of this
noise, and is corrected for it wherever a variance is wanted::

    variance of tasks  =  covariance of estimates − R² · mean N_i + s² · mean U_i²

The last term is what the estimates cannot show. A direction that a task's contexts never pointed
in has an estimate of exactly 0, which says nothing: U_i = I − A⁻¹ gram is 1 there (and about 0
where it was seen), and s², the mean square of θ per dimension that was seen, takes its place.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.model.evidence import Evidence
from headstart.records import Array, Record, rebuild
from headstart.subspace import Components, Moments, with_fixed_signs
from headstart.transfer.algebra import times, trace, turned
from headstart.transfer.base import checked_evidence
from headstart.transfer.noise import NoiseScale, Spectrum

__all__ = ["Estimates", "isotropic_root", "one_over_root"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimates(Record):
    """Moments of the tasks' estimates, the sums of their N_i and U_i², and the noise."""

    moments: Moments
    errors: Array
    blanks: Array
    noise: NoiseScale

    @classmethod
    def start(cls, dim: int, noise: float | None, batch: tuple[int, ...]) -> Estimates:
        """Before any task."""
        dim = checks.dimension(dim)
        zero = np.zeros((*batch, dim, dim))
        return state_of(Moments.zero(dim, batch), zero, zero, NoiseScale.start(noise, batch))

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

        A task of fewer than ``min_rounds`` rounds says something of the noise but is given no
        weight as an estimate. ``estimate_from`` is the evidence to estimate θ from, if not all.
        """
        evidence = checked_evidence(evidence, self.moments.mean.shape)
        weight = checks.real("weight", weight)
        source = evidence if estimate_from is None else estimate_from
        noise = self.noise
        if noise.given == 0:
            noise = noise.fold(evidence, Spectrum.of(evidence), weight)
        theta, error, unseen = solved(source, ridge)
        counts = np.asarray(source.rounds) >= max(min_rounds, 1)
        used: Any = np.where(counts, weight, 0.0) if counts.ndim else weight * float(counts)
        moments = self.moments.add(theta, used)
        share = np.asarray(used)[..., None, None]
        left = (np.asarray(moments.count) > 0)[..., None, None]  # nothing left is exactly nothing
        errors = (self.errors + share * error) * left
        blanks = (self.blanks + share * unseen) * left
        return state_of(moments, errors, blanks, noise), theta, used

    @classmethod
    def of(
        cls, evidence: Evidence, noise: float | None, *, ridge: float, min_rounds: int = 1
    ) -> tuple[Estimates, Array, Array]:
        """The tasks along a batch axis, as if each had been folded; their estimates and weights."""
        scale = NoiseScale.start(noise, evidence.batch)
        if scale.given == 0:
            scale = scale.fold(evidence, Spectrum.of(evidence), 1.0)
        theta, error, unseen = solved(evidence, ridge)
        used = (np.asarray(evidence.rounds) >= max(min_rounds, 1)).astype(float)
        flat = (used @ matrices.reshape(len(used), -1) for matrices in (error, unseen))
        errors, blanks = (matrix.reshape(error.shape[1:]) for matrix in flat)
        moments = Moments.of(theta, used)
        return state_of(moments, errors, blanks, scale.total()), theta, used

    def merge(self, other: Estimates) -> Estimates:
        """The estimates of the tasks of both."""
        return state_of(
            self.moments.merge(other.moments),
            self.errors + other.errors,
            self.blanks + other.blanks,
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

    @property
    def error(self) -> Array:
        """R² · mean N_i: the covariance of the estimates' own noise."""
        variance = np.asarray(self.noise.value) ** 2 / np.maximum(self.count, 1e-300)
        error: Array = variance[..., None, None] * self.errors
        return error

    @property
    def unseen(self) -> Array:
        """s² · mean U_i²: what the estimates leave out, taken to be like the rest."""
        blank = self.blanks / np.maximum(self.count, 1e-300)[..., None, None]
        square = trace(self.moments.covariance) + (self.mean**2).sum(-1) - trace(self.error)
        size = np.maximum(square, 0.0) / np.maximum(self.dim - trace(blank), 1e-9)
        unseen: Array = size[..., None, None] * blank
        return unseen

    def components(self) -> Components:
        """Principal components of the tasks, not of their estimates: noise is subtracted first.

        No variance is below what the subtraction itself is uncertain by, √(2/N) of what there was.
        """
        raw = self.moments.covariance + self.unseen
        values, vectors = np.linalg.eigh(raw - self.error)
        before = (vectors * (raw @ vectors)).sum(-2)
        unsure = np.minimum(np.sqrt(2.0 / np.maximum(self.count, 1.0)), 1.0)[..., None]
        values = np.maximum(np.maximum(values, unsure * before), 0.0)
        order = np.argsort(-values, axis=-1, kind="stable")
        vectors = np.take_along_axis(vectors, order[..., None, :], -1)
        sorted_values = np.take_along_axis(values, order, -1)
        return Components(self.mean, sorted_values, with_fixed_signs(vectors))

    def variance(self, projection: Array, fitted: Any = 0) -> Any:
        """The variance of a new task around θ̄, per dimension of the projection.

        Unbiased for the mean and the ``fitted`` directions that were estimated from the same tasks,
        corrected for estimation noise, never below what the correction itself is uncertain by, and
        widened by what the mean and those directions are uncertain by.
        """
        size = np.maximum(trace(projection), 1.0)
        count = np.maximum(self.count, 1.0)
        freedom = np.maximum(count - 1.0 - fitted, 1.0)
        raw = within(projection, self.moments.covariance) * count / freedom / size
        corrected = raw - within(projection, self.error) / size
        least = raw * np.minimum(np.sqrt(2.0 / (size * freedom)), 1.0)
        unseen = within(projection, self.unseen) / size
        return np.maximum(corrected, least) + raw * (1.0 + fitted) / count + unseen

    def second_moment(self, projection: Array) -> Any:
        """The mean square of a task's parameter, per dimension of the projection; likewise."""
        size = np.maximum(trace(projection), 1.0)
        count = np.maximum(self.count, 1.0)
        outer = self.mean[..., :, None] * self.mean[..., None, :]
        raw = within(projection, self.moments.covariance + outer) / size
        corrected = raw - within(projection, self.error) / size
        least = raw * np.minimum(np.sqrt(2.0 / (size * count)), 1.0)
        return np.maximum(corrected, least) + within(projection, self.unseen) / size


class Solved(NamedTuple):
    """A task's estimate, N and U²."""

    estimate: Array
    error: Array
    unseen: Array


def solved(evidence: Evidence, ridge: float) -> Solved:
    """The estimate of a task, by the inverse of A = gram + λI; tasks of a batch each as if alone.

    Without a ridge, or with one that is lost in rounding beside the gram, the gram's eigenvectors
    tell what was seen; they cost several times as much.
    """
    lost = lost_in_rounding(evidence.gram, ridge)
    if lost.any():
        spectrum = Spectrum.of(evidence)
        slow = Solved(spectrum.estimate(ridge), spectrum.error(ridge), spectrum.unseen(ridge))
        if lost.all():
            return slow
        safe = evidence.replace(
            gram=np.where(lost[..., None, None], 0.0, evidence.gram), forced=None
        )
        fast = solved(safe, ridge)
        return Solved(
            np.where(lost[..., None], slow.estimate, fast.estimate),
            np.where(lost[..., None, None], slow.error, fast.error),
            np.where(lost[..., None, None], slow.unseen, fast.unseen),
        )
    inverse = np.linalg.inv(evidence.gram + ridge * np.eye(evidence.dim))
    inverse = (inverse + turned(inverse)) / 2
    left_out = ridge * inverse  # U = I − A⁻¹ gram = λ A⁻¹
    return Solved(
        times(inverse, evidence.moment),
        inverse @ evidence.gram @ inverse,
        left_out @ left_out,
    )


def lost_in_rounding(gram: Array, ridge: float) -> Any:
    """Whether a ridge is too small to be added to each of these grams."""
    return np.asarray(~(ridge > 1e-9 * np.asarray(trace(gram))))


def state_of(moments: Moments, errors: Array, blanks: Array, noise: NoiseScale) -> Estimates:
    """Estimates from fresh arrays."""
    fields = {"moments": moments, "errors": errors, "blanks": blanks, "noise": noise}
    estimates: Estimates = rebuild(Estimates, fields)
    return estimates


def within(projection: Array, matrix: Array) -> Any:
    """tr(P M), for symmetric matrices."""
    return np.einsum("...ij,...ij->...", projection, matrix)


def one_over_root(lam: Any) -> Array:
    """λ^-½ with two axes more, to scale matrices by."""
    inverse: Array = 1.0 / np.sqrt(np.asarray(lam, dtype=float))[..., None, None]
    return inverse


def isotropic_root(lam: Any, dim: int, batch: tuple[int, ...]) -> Array:
    """λ^-½ I for one λ, or one per batch element."""
    return np.broadcast_to(one_over_root(lam) * np.eye(dim), (*batch, dim, dim))


def ratio(noise: Any, variance: Any, default: float = 1.0) -> Any:
    """λ = R²/variance, or ``default`` where there is no variance to speak of."""
    variance = np.asarray(variance)
    known = variance > 1e-300
    return np.where(known, np.asarray(noise) ** 2 / np.where(known, variance, 1.0), default)
