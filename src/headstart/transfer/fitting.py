"""Fitting a Gaussian population θ_i ~ N(μ, Σ) to the evidence of tasks, noise included.

Only the tasks' sums are needed. In coordinates whitened by Σ = F F, with G_i = gram/R² and
b_i = moment/R², a task tells ::

    E_i = (I + F G_i F)⁻¹        K_i = I − E_i            what it knows, 0 … I
    z_i = E_i F (b_i − G_i μ)                             its posterior mean, whitened

and the marginal likelihood of all tasks is stationary where Σ z_i = 0 and Σ z_i z_iᵀ = Σ K_i. One
step of Fisher scoring towards that costs one pass over the tasks::

    μ ← μ + F (Σ K_i)⁻¹ Σ z_i        Σ ← F (I + D^-½ (Σ z_i z_iᵀ − K_i) D^-½) F,   D = Σ K_i²

EM takes the same pass but moves only K² as far where K is small, which is where it matters: in
directions in which tasks hardly differ. (D bounds the exact information from above, so that steps
do not overshoot, and the bracket is kept positive.)

The covariance is regularised by ``strength`` imaginary tasks of variance (tr Σ/d) I, and the mean
by a Gaussian of variance τ² around 0, with τ² from the mean itself (James and Stein).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from headstart.evidence import Evidence
from headstart.prior import symmetric_root
from headstart.records import Array, Record
from headstart.transfer.algebra import plain, times, trace, turned
from headstart.transfer.many import Fit, Tasks, record

__all__ = [
    "Past",
    "improve",
    "log_likelihood",
    "noise_likelihood",
    "shrunk",
    "task_likelihoods",
]

CHUNK = 256  # tasks per batch of matrices
LEAST_NOISE = 1e-6  # the least R², as a share of the mean square reward
SHARE, DOUBT = 0.1, 5.0  # the share expected of R², and how many residuals say so at first
ENOUGH = 20.0  # real residuals that make these superfluous
STEP = 3.0  # no variance grows by more than this factor (plus one) in one step


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Past(Record):
    """What is left of tasks whose evidence is no longer at hand.

    Each was replaced by its posterior when it left: ``count``, Σ m_i, Σ (C_i + m_i m_iᵀ), and the
    sums that R² is estimated from.
    """

    count: Any
    first: Array
    second: Array
    residual: Any
    freedom: Any

    @classmethod
    def nothing(cls, dim: int, batch: tuple[int, ...] = ()) -> Past:
        """No task."""
        flat: Any = np.zeros(batch) if batch else 0.0
        return record(cls, flat, np.zeros((*batch, dim)), np.zeros((*batch, dim, dim)), flat, flat)

    def add(self, fit: Fit, tasks: Tasks, sign: float = 1.0) -> Past:
        """Replace tasks by their posteriors under a fit (or take them out again)."""
        root = symmetric_root(fit.covariance)
        known, z = posteriors(fit, root, tasks)
        mean = fit.mean[..., None, :] + times(root[..., None, :, :], z)
        weight = sign * tasks.weight
        left = np.eye(known.shape[-1]) - known
        spread = root @ np.einsum("...n,...nij->...ij", weight, left) @ root
        residual, freedom = residuals(tasks, mean, known)
        return record(
            Past,
            plain(self.count + weight.sum(-1)),
            self.first + (weight[..., None] * mean).sum(-2),
            self.second + spread + turned(mean) @ (weight[..., None] * mean),
            plain(self.residual + (weight * residual).sum(-1)),
            plain(self.freedom + (weight * freedom).sum(-1)),
        )

    def scaled(self, factor: Any) -> Past:
        """The same, counting less."""
        share = np.asarray(factor)
        return record(
            Past,
            plain(self.count * share),
            self.first * share[..., None],
            self.second * share[..., None, None],
            plain(self.residual * share),
            plain(self.freedom * share),
        )


class Pass(NamedTuple):
    """The sums of one pass over the tasks: all that a step needs."""

    root: Array  # F
    known: Array  # Σ K
    squared: Array  # Σ K²
    excess: Array  # Σ z zᵀ − K, the mean's own error included
    target: Array  # (tr Σ/d) Σ⁻¹: the regularising tasks, whitened


def posteriors(fit: Fit, root: Array, tasks: Tasks) -> tuple[Array, Array]:
    """K_i and z_i of every task."""
    variance = np.asarray(fit.noise)[..., None, None]
    around = root[..., None, :, :]
    inner = around @ (tasks.gram / variance[..., None]) @ around
    left = np.linalg.inv(np.eye(root.shape[-1]) + inner)
    surprise = (tasks.moment - times(tasks.gram, fit.mean[..., None, :])) / variance
    z = times(left, times(around, surprise))
    return np.eye(root.shape[-1]) - left, z


def residuals(tasks: Tasks, mean: Array, known: Array) -> tuple[Array, Array]:
    """Squared residuals at the posterior means, and their degrees of freedom."""
    fitted = (mean * (2.0 * tasks.moment - times(tasks.gram, mean))).sum(-1)
    residual = np.maximum(tasks.squares - fitted, 0.0)
    return residual, np.maximum(tasks.rounds - trace(known), 0.0)


def improve(
    fit: Fit, tasks: Tasks, past: Past, strength: Any, noise: float = 0.0, size: Any = None
) -> tuple[Fit, Pass]:
    """One scoring step for μ, Σ and, unless ``noise`` gives R, for R²; also the pass it took.

    ``size`` is the variance of the regularising tasks, tr Σ/d unless given.
    """
    dim = fit.mean.shape[-1]
    eye = np.eye(dim)
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    known, squared, outer, pull = (np.zeros(fit.covariance.shape) for _ in range(4))
    total = np.zeros(fit.mean.shape)
    residual, freedom = past.residual, past.freedom
    energy, rounds = np.zeros(fit.mean.shape[:-1]), np.zeros(fit.mean.shape[:-1])
    kept = []
    for at in range(0, len(tasks), CHUNK):
        part = tasks[at : at + CHUNK]
        k, z = posteriors(fit, root, part)
        weight = part.weight
        rss, free = residuals(part, fit.mean[..., None, :] + times(root[..., None, :, :], z), k)
        residual = residual + (weight * rss).sum(-1)
        freedom = freedom + (weight * free).sum(-1)
        energy = energy + (weight * part.squares).sum(-1)
        rounds = rounds + (weight * part.rounds).sum(-1)
        total = total + (weight[..., None] * z).sum(-2)
        weighted = weight[..., None, None] * k
        known = known + weighted.sum(-3)
        squared = squared + side_by_side(weighted) @ turned(side_by_side(k))
        kept.append((k, weighted, z, weight))
    # Tasks long past count as if they had been observed whole.
    count = np.asarray(past.count)[..., None, None]
    gone = past.first - np.asarray(past.count)[..., None] * fit.mean
    known, squared = known + count * eye, squared + count * eye
    total = total + times(inverse, gone)
    own, shift = recentred(fit, root, known, total)
    mean = fit.mean + times(root, shift)
    # The covariance, around the new mean.
    for k, weighted, z, weight in kept:
        z = z - times(k, shift[..., None, :])
        outer = outer + turned(z) @ (weight[..., None] * z)
        pull = pull + side_by_side(weighted @ own[..., None, :, :]) @ turned(side_by_side(k))
    away = past.first[..., :, None] * mean[..., None, :]
    scatter = past.second - away - turned(away) + count * mean[..., :, None] * mean[..., None, :]
    outer = outer + inverse @ scatter @ inverse
    taken = Pass(
        root,
        known,
        squared,
        outer + pull + count * own - known,
        np.asarray(trace(fit.covariance) / dim if size is None else size)[..., None, None]
        * (inverse @ inverse),
    )
    variance = noise_found(fit, residual, freedom, energy, rounds, noise)
    covariance = shrunk(taken, strength)
    return (
        record(Fit, mean, covariance, root @ own @ root, variance),
        taken,
    )


def recentred(fit: Fit, root: Array, known: Array, total: Array) -> tuple[Array, Array]:
    """(Σ K + F²/τ²)⁻¹ and the step of the mean, whitened.

    Generalised least squares, then shrunk by as much as it is uncertain. (A direction that no task
    has shown has no say in how large the mean is.)
    """
    dim = root.shape[-1]
    raw = np.linalg.inv(known + 0.1 * np.eye(dim))
    seen = np.maximum(trace(raw @ known), 1.0)
    centre = fit.mean + times(root @ raw, total)
    doubt = trace(root @ raw @ known @ raw @ root) / seen
    square = (centre**2).sum(-1) / seen
    tau = np.maximum(square - doubt, doubt * np.sqrt(2.0 / dim))
    tau = np.maximum(tau, 1e-300)[..., None]
    own = np.linalg.inv(known + root @ root / tau[..., None])
    return own, times(own, total - times(root, fit.mean) / tau)


def noise_found(
    fit: Fit, residual: Any, freedom: Any, energy: Array, rounds: Array, given: float
) -> Any:
    """R², from the residuals unless it is given."""
    variance: Any = given**2
    if not given:
        # Tasks shorter than their dimension hardly tell noise from θ: a few imaginary residuals.
        usual = energy / np.maximum(rounds, 1e-300)
        doubt = DOUBT * (ENOUGH / (ENOUGH + freedom)) ** 2
        found = (residual + doubt * SHARE * usual) / (freedom + doubt)
        variance = np.where(usual > 0, np.maximum(found, LEAST_NOISE * usual), fit.noise)
    return plain(variance * np.ones_like(energy))


def shrunk(taken: Pass, strength: Any) -> Array:
    """Σ after a step from a pass, with so many regularising tasks."""
    eye = np.eye(taken.root.shape[-1])
    many = np.asarray(strength)[..., None, None]
    # The regularising tasks are no likelier the smaller Σ gets: their curvature is that of target.
    values, vectors = np.linalg.eigh(taken.squared + many * taken.target)
    whiten = (vectors / np.sqrt(np.maximum(values, 1e-300))[..., None, :]) @ turned(vectors)
    change = whiten @ (taken.excess + many * (taken.target - eye)) @ whiten
    values, vectors = np.linalg.eigh((change + turned(change)) / 2)
    factor = 1.0 + np.clip(values, 0.0, STEP)
    factor = factor / (1.0 - np.minimum(values, 0.0))
    half = taken.root @ (vectors * np.sqrt(factor)[..., None, :])
    sigma: Array = half @ turned(half)
    # No direction is ever quite certain, or nothing could change it again.
    least = 1e-12 * trace(sigma) / len(eye)
    sigma = sigma + np.maximum(least, 1e-300)[..., None, None] * eye
    return sigma


def task_likelihoods(fit: Fit, tasks: Tasks, root: Array | None = None) -> Array:
    """:func:`log_likelihood` of every task, under every population of a batch.

    ``root`` stands for that of the covariance, if another is meant.
    """
    root = symmetric_root(fit.covariance) if root is None else root
    around, mean = root[..., None, :, :], fit.mean[..., None, :]
    variance = np.asarray(fit.noise)[..., None]
    pulled = times(tasks.gram, mean)
    offset = (mean * (2.0 * tasks.moment - pulled)).sum(-1) / (2.0 * variance)
    inner = around @ (tasks.gram / variance[..., None, None]) @ around
    surprise = times(around, (tasks.moment - pulled) / variance[..., None])
    gain: Array = offset + 0.5 * explained(inner, surprise)
    return gain


def explained(inner: Array, surprise: Array) -> Array:
    """vᵀ (I + S)⁻¹ v − log det(I + S), of many S and v at once.

    One factor L Lᵀ of I + S with v as one row more (its length 1, so that 2 on the diagonal is
    enough): that row of the factor is L⁻¹ v.
    """
    dim = inner.shape[-1]
    length = np.sqrt((surprise**2).sum(-1, keepdims=True))
    more = np.empty((*inner.shape[:-2], dim + 1, dim + 1))
    more[..., :dim, :dim] = inner + np.eye(dim)
    more[..., dim, :dim] = surprise / np.where(length > 0, length, 1.0)
    more[..., dim, dim] = 2.0
    try:
        lower = np.linalg.cholesky(more)  # reads the lower triangle alone
    except np.linalg.LinAlgError:  # so unequal directions that rounding hides the small ones
        values, vectors = np.linalg.eigh(inner)
        values = 1.0 + np.maximum(values, 0.0)
        square = (times(turned(vectors), surprise) ** 2 / values).sum(-1)
        return np.asarray(square - np.log(values).sum(-1))
    square = (lower[..., dim, :dim] ** 2).sum(-1) * length[..., 0] ** 2
    diagonal = np.diagonal(lower, axis1=-2, axis2=-1)[..., :dim]
    return np.asarray(square - 2.0 * np.log(diagonal).sum(-1))


def noise_likelihood(fit: Fit, tasks: Tasks) -> Array:
    """What :func:`task_likelihoods` leaves out: it depends on R alone, −½ (n log R² + Σr²/R²)."""
    variance = np.asarray(fit.noise)[..., None]
    rest: Array = -0.5 * (tasks.rounds * np.log(variance) + tasks.squares / variance)
    return rest


def log_likelihood(mean: Array, covariance: Array, noise: Any, evidence: Evidence) -> Array:
    """The log density of a task's rewards under a prior, up to what all priors share.

    ``covariance`` may have one axis more than ``mean``: several priors with the same mean.
    """
    variance = np.asarray(noise)
    pulled = times(evidence.gram, mean)
    surprise = (evidence.moment - pulled) / variance[..., None]
    offset = (mean * (evidence.moment + (evidence.moment - pulled))).sum(-1) / (2.0 * variance)
    gram = evidence.gram / variance[..., None, None]
    if covariance.ndim > gram.ndim:
        gram, surprise, offset = gram[..., None, :, :], surprise[..., None, :], offset[..., None]
    try:
        half = np.linalg.cholesky(covariance)
        lower = np.linalg.cholesky(np.eye(covariance.shape[-1]) + turned(half) @ gram @ half)
        u = np.linalg.solve(lower, times(turned(half), surprise)[..., None])[..., 0]
        log_det = np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(-1)
    except np.linalg.LinAlgError:  # so unequal directions that rounding hides the small ones
        half = symmetric_root(covariance)
        values, vectors = np.linalg.eigh(half @ gram @ half)
        values = 1.0 + np.maximum(values, 0.0)
        u = times(turned(vectors), times(half, surprise)) / np.sqrt(values)
        log_det = 0.5 * np.log(values).sum(-1)
    gain: Array = offset + 0.5 * (u**2).sum(-1) - log_det
    return gain


def side_by_side(matrices: Array) -> Array:
    """(..., n, d, d) → (..., d, n·d), so that a sum of products is one product."""
    moved = np.moveaxis(matrices, -3, -2)
    return moved.reshape(*moved.shape[:-2], moved.shape[-2] * moved.shape[-1])
