"""The noise scale R, given or estimated from what past tasks leave unexplained.

With each task fitted by least squares, the residuals estimate the noise without assuming anything
of θ::

    R² = Σ_i RSS_i / Σ_i (rounds_i − rank gram_i)

Tasks shorter than their dimension leave no residuals. While there are only such tasks, R² is the
maximum of the marginal likelihood under θ ~ N(0, R² I), which cannot entirely separate the spread
of tasks from noise and is rather too large. R is at least a thousandth of the rewards' own scale:
rewards without noise must not give an infinitely precise prior.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.arrays import array_namespace, float_if_scalar, matvec, trace, transpose
from headstart.kernels.switch import loops
from headstart.model.evidence import Evidence
from headstart.records import Array, Record, combine
from headstart.small_matrices import eigh

SUFFICIENT_DOF = 20.0  # residual degrees of freedom at which least squares is trusted
MIN_VARIANCE_SHARE = 1e-6  # the least R², as a share of the marginal estimate
RANK_TOLERANCE = 1e-10  # eigenvalues of a gram below this share of the largest count as zero
MIN_EIGENVALUE = 1e-100  # so do these, because squares of their inverses overflow


class Spectrum(NamedTuple):
    """The eigendecomposition of a task's gram, from which its estimates follow cheaply.

    ``values`` are the eigenvalues, ``vectors`` the eigenvectors as columns, ``moment`` the moment
    in their coordinates.
    """

    values: Array
    vectors: Array
    moment: Array

    @classmethod
    def of(cls, evidence: Evidence) -> Spectrum:
        """Decompose, O(d³)."""
        xp = array_namespace(evidence.gram)
        values, vectors = eigh(evidence.gram)
        moment = matvec(transpose(vectors), evidence.moment)
        return cls(xp.maximum(values, 0.0), vectors, moment)

    def inverse(self, lam: float) -> Array:
        """1/(g + λ) by direction; with λ = 0 the pseudo-inverse."""
        if lam > 0:
            return 1.0 / (self.values + lam)
        xp = array_namespace(self.values)
        least = RANK_TOLERANCE * self.values.max(-1, keepdims=True)
        known = self.values > xp.maximum(least, MIN_EIGENVALUE)
        inverse: Array = xp.where(known, 1.0 / xp.where(known, self.values, 1.0), 0.0)
        return inverse

    def estimate(self, lam: float) -> Array:
        """The ridge (λ > 0) or least-squares (λ = 0) estimate of θ."""
        return matvec(self.vectors, self.moment * self.inverse(lam))

    def squared_bias(self, lam: float) -> Array:
        """U² with U = I − A⁻¹ gram: how much of θ the estimate leaves out, squared."""
        left_out = 1.0 - self.values * self.inverse(lam)
        return (self.vectors * (left_out**2)[..., None, :]) @ transpose(self.vectors)

    def error(self, lam: float) -> Array:
        """The covariance of that estimate's noise in units of R²: A⁻¹ gram A⁻¹, A = gram + λI."""
        scaled = self.vectors * (self.values * self.inverse(lam) ** 2)[..., None, :]
        return scaled @ transpose(self.vectors)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoiseScale(Record):
    """The sums from which R is estimated; additive, so that a task can be removed again.

    ``given_noise`` is R where the caller knows it, else 0. ``residual`` and ``dof`` sum the
    least-squares residuals and their degrees of freedom; ``marginal`` and ``rounds`` sum the
    quadratic form of the marginal likelihood and the rounds.
    """

    given_noise: float
    residual: Any
    dof: Any
    marginal: Any
    rounds: Any

    @classmethod
    def start(cls, noise: float | None, batch: tuple[int, ...] = ()) -> NoiseScale:
        """Before any task."""
        given = 0.0 if noise is None else checks.positive("noise", noise)
        sums = {name: np.zeros(batch) if batch else 0.0 for name in SUMS}
        return cls.unchecked(given_noise=given, **sums)

    def fold(self, evidence: Evidence, weight: Any) -> NoiseScale:
        """Add (or with a negative weight take out) one task."""
        xp, spectrum = array_namespace(evidence.gram), Spectrum.of(evidence)
        inverse, squares = spectrum.inverse(0.0), spectrum.moment**2
        fitted = (squares * inverse).sum(-1)
        shrunk = (squares * spectrum.inverse(1.0)).sum(-1)
        dof = xp.maximum(evidence.rounds - (inverse > 0).sum(-1), 0.0)
        # Where a task leaves no dof its residual is rounding: it must not count either.
        residual = xp.where(dof > 0, xp.maximum(evidence.squares - fitted, 0.0), 0.0)
        marginal = xp.maximum(evidence.squares - shrunk, 0.0)
        added = zip(SUMS, (residual, dof, marginal, evidence.rounds), strict=True)
        sums = {name: float_if_scalar(getattr(self, name) + weight * one) for name, one in added}
        return NoiseScale.unchecked(given_noise=self.given_noise, **sums)

    def merge(self, other: NoiseScale) -> NoiseScale:
        """The sums over the tasks of both."""
        both: NoiseScale = combine(operator.add, self, other)
        return both.replace(given_noise=self.given_noise)

    def total(self) -> NoiseScale:
        """The sums over all elements of a batch."""
        together: NoiseScale = combine(lambda part: float(np.sum(part)), self)
        return together.replace(given_noise=self.given_noise)

    @property
    def is_known(self) -> Any:
        """Whether there is anything to estimate R from."""
        return (self.given_noise > 0) | (array_namespace(self.rounds).asarray(self.rounds) >= 0.5)

    @property
    def value(self) -> Any:
        """R: given, estimated, or 1 while nothing is known (then no decision depends on it)."""
        if self.given_noise > 0:
            return self.given_noise
        xp = array_namespace(self.rounds)
        clean = xp.asarray(self.dof) >= SUFFICIENT_DOF
        residual = self.residual / xp.maximum(self.dof, 1.0)
        marginal = self.marginal / xp.maximum(self.rounds, 1.0)
        variance = xp.where(clean, xp.maximum(residual, MIN_VARIANCE_SHARE * marginal), marginal)
        # After the last task was removed, the sums hold nothing but rounding.
        return float_if_scalar(xp.sqrt(xp.where((variance > 0) & self.is_known, variance, 1.0)))


SUMS = ("residual", "dof", "marginal", "rounds")


def task_scale(evidence: Evidence) -> tuple[Any, Any]:
    """R and λ of one task by its marginal likelihood under θ ~ N(0, (R²/λ) I).

    With the gram's eigenvalues g_j and the moment's coordinates c_j along its eigenvectors::

        n R²(λ) = Σr² − Σ_j c_j²/(g_j + λ)        log p = −n log R(λ) − ½ Σ_j log(1 + g_j/λ)

    The best of a grid, held near λ = mean ‖x‖² by a log-normal prior of a factor of ten while there
    are few rounds.
    Both are 1 before the first reward that is not zero. O(d³).

    >>> rng = np.random.default_rng(0)
    >>> contexts, theta = rng.standard_normal((200, 5)), rng.standard_normal(5) * 3
    >>> noise, lam = task_scale(Evidence.of(contexts, contexts @ theta + rng.standard_normal(200)))
    >>> round(noise, 1), round(lam, 2)  # R = 1, and the mean square of this θ is 6
    (1.0, 0.19)
    """
    xp = array_namespace(evidence.gram)
    squares, rounds = (
        xp.asarray(evidence.squares)[..., None],
        xp.asarray(evidence.rounds)[..., None],
    )
    size = trace(evidence.gram)[..., None] / xp.maximum(rounds, 1e-300)
    lambdas = LAMBDA_GRID * xp.where(size > 0, size, 1.0)
    fitted, log_dets = ridge_terms(evidence, lambdas)
    variance = xp.maximum(squares - fitted, 1e-12 * squares) / xp.maximum(rounds, 1.0)
    fit = -0.5 * (rounds * xp.log(xp.maximum(variance, 1e-300)) + log_dets)
    best = (fit - HALF_SQUARED_LOG10).argmax(-1)
    if best.ndim == 0 and xp is np:
        known = evidence.squares > 0
        return (math.sqrt(variance[best]), float(lambdas[best])) if known else (1.0, 1.0)
    known = xp.asarray(evidence.squares) > 0
    square = xp.take_along_axis(variance, best[..., None], -1)[..., 0]
    noise = xp.sqrt(xp.where(known, square, 1.0))
    lam = xp.where(known, xp.take_along_axis(lambdas, best[..., None], -1)[..., 0], 1.0)
    return float_if_scalar(noise), float_if_scalar(lam)


def task_ridge(evidence: Evidence, noise: float) -> Any:
    """λ of one task by its marginal likelihood under θ ~ N(0, (R²/λ) I), where R is known.

    With g_j and c_j as in :func:`task_scale`::

        log p = ½ Σ_j c_j²/(R² (g_j + λ)) − ½ Σ_j log(1 + g_j/λ)

    The best of a grid, under a log-normal prior around λ = 1 of a factor of two. O(d³).

    >>> rng = np.random.default_rng(0)
    >>> contexts, theta = rng.standard_normal((200, 5)), rng.standard_normal(5) * 3
    >>> evidence = Evidence.of(contexts, contexts @ theta + rng.standard_normal(200))
    >>> round(task_ridge(evidence, 1.0), 2)  # the mean square of this θ is 6
    0.25
    """
    fitted, log_dets = ridge_terms(evidence, LAMBDA_GRID)
    fit = 0.5 * (fitted / noise**2 - log_dets)
    best = (fit - 0.5 * np.log2(LAMBDA_GRID) ** 2).argmax(-1)
    return float_if_scalar(LAMBDA_GRID[best])


def ridge_terms(evidence: Evidence, lambdas: Array) -> tuple[Array, Array]:
    """Momentᵀ (gram + λI)⁻¹ moment and log det(I + gram/λ) for each λ (the last axis). O(d³).

    >>> ridge_terms(Evidence.of([[1.0], [1.0]], [3.0, 0.0]), np.array([1.0]))
    (array([3.]), array([1.09861229]))
    """
    xp, gram = array_namespace(evidence.gram), evidence.gram
    if loops() is not None and xp is np and gram.ndim == 2:
        terms, moment = (np.empty_like(lambdas), np.empty_like(lambdas)), evidence.moment
        if gram.dtype == moment.dtype == np.float64 and gram.flags.c_contiguous:
            loops().ridge_terms(gram, np.ascontiguousarray(moment), lambdas, *terms)
            return terms
    spectrum, grid = Spectrum.of(evidence), lambdas[..., None]
    values, moment = spectrum.values[..., None, :], spectrum.moment[..., None, :]
    return (moment**2 / (values + grid)).sum(-1), xp.log1p(values / grid).sum(-1)


LAMBDA_GRID = np.logspace(-3.0, 3.0, 31)
HALF_SQUARED_LOG10 = 0.5 * np.log10(LAMBDA_GRID) ** 2
