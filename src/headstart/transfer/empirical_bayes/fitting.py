"""Fitting a Gaussian population θ_i ~ N(μ, Σ) to the evidence of tasks, noise included.

Only the tasks' sums are needed. In coordinates whitened by Σ = F F, with G_i = gram/R_i² and
b_i = moment/R_i², a task tells ::

    E_i = (I + F G_i F)⁻¹        K_i = I − E_i            what it knows, 0 … I
    z_i = E_i F (b_i − G_i μ)                             its posterior mean, whitened

and the marginal likelihood of all tasks is stationary where Σ z_i = 0 and Σ z_i z_iᵀ = Σ K_i. One
step of Fisher scoring towards that costs one pass over the tasks::

    μ ← μ + F (Σ K_i)⁻¹ Σ z_i        Σ ← F (I + D^-½ (Σ z_i z_iᵀ − K_i) D^-½) F,   D = Σ K_i²

EM takes the same pass but moves only K² as far where K is small, which is where it matters: in
directions in which tasks hardly differ. (D bounds the exact information from above, so that steps
do not overshoot, and the bracket is kept positive.)

The covariance is regularised by ``strength`` imaginary tasks of variance (tr Σ/d) I, and the mean
by a Gaussian of variance τ² around 0, with τ² from the mean itself (James and Stein). Every task
has a noise R_i of its own (:mod:`headstart.transfer.empirical_bayes.task_noise`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import float_if_scalar, matvec, trace, transpose
from headstart.model.evidence import Evidence
from headstart.model.information_form import (
    MAX_INFORMATION,
    InformationPosterior,
    information_posterior,
)
from headstart.model.prior import symmetric_root
from headstart.records import Array, Record
from headstart.transfer.empirical_bayes.many import Fit, Tasks
from headstart.transfer.empirical_bayes.task_noise import (
    expected_logs,
    population_noise,
    task_variance,
    usable,
)

__all__ = [
    "Past",
    "improve",
    "left_out",
    "log_likelihood",
    "noise_likelihood",
    "shrunk",
    "task_likelihoods",
    "with_own_noise",
]

CHUNK = 256  # tasks per batch of matrices
OWN = 3  # looks at a new task's residuals, each with the noise that the one before has found
ALIKE = 3.0  # tasks for which the regularising ones vary by the same along every feature
STEP = 3.0  # no variance grows by more than this factor (plus one) in one step


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Past(Record):
    """What is left of tasks whose evidence is no longer at hand.

    Each was replaced by its posterior when it left: ``count``, Σ m_i, Σ (C_i + m_i m_iᵀ),
    Σ E[1/R_i²] and Σ E[log R_i²].
    """

    count: Any
    first: Array
    second: Array
    precision: Any
    logs: Any

    @classmethod
    def nothing(cls, dim: int, batch: tuple[int, ...] = ()) -> Past:
        """No task."""
        flat: Any = np.zeros(batch) if batch else 0.0
        return cls.unchecked(
            flat, np.zeros((*batch, dim)), np.zeros((*batch, dim, dim)), flat, flat
        )

    def add(self, fit: Fit, tasks: Tasks, sign: float = 1.0, constant: bool = False) -> Past:
        """Replace tasks by their posteriors under a fit (or take them out again)."""
        root = symmetric_root(fit.covariance)
        known, z = posteriors(fit, root, tasks)
        mean = fit.mean[..., None, :] + matvec(root[..., None, :, :], z)
        weight = sign * tasks.weight
        left = np.eye(known.shape[-1]) - known
        spread = root @ np.einsum("...n,...nij->...ij", weight, left) @ root
        found = usable(tasks, *residuals(tasks, mean, known), constant, fit.noise)
        precision, logs = expected_logs(fit.noise, fit.freedom, found)
        return Past.unchecked(
            float_if_scalar(self.count + weight.sum(-1)),
            self.first + (weight[..., None] * mean).sum(-2),
            self.second + spread + transpose(mean) @ (weight[..., None] * mean),
            float_if_scalar(self.precision + (weight * precision).sum(-1)),
            float_if_scalar(self.logs + (weight * logs).sum(-1)),
        )

    def scaled(self, factor: Any) -> Past:
        """The same, counting less."""
        share = np.asarray(factor)
        return Past.unchecked(
            float_if_scalar(self.count * share),
            self.first * share[..., None],
            self.second * share[..., None, None],
            float_if_scalar(self.precision * share),
            float_if_scalar(self.logs * share),
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
    variance = variances(fit, tasks)[..., None]
    around = root[..., None, :, :]
    inner = around @ (tasks.gram / variance[..., None]) @ around
    huge = too_large(inner)
    if huge.any():
        inner = np.where(huge[..., None, None], 0.0, inner)
    left = np.linalg.inv(np.eye(root.shape[-1]) + inner)
    surprise = (tasks.moment - matvec(tasks.gram, fit.mean[..., None, :])) / variance
    if huge.any():  # unless its posterior is found below, such a task tells nothing
        surprise = np.where(huge[..., None], 0.0, surprise)
    z = matvec(left, matvec(around, surprise))
    for at, graded in graded_tasks(fit, root, tasks, huge):
        whiten = np.linalg.inv(root[at[:-1]])
        half = np.sqrt(variance[at][0]) * (whiten @ graded.root)
        left[at], z[at] = half @ half.T, whiten @ (graded.mean - fit.mean[at[:-1]])
    return np.eye(root.shape[-1]) - left, z


def too_large(inner: Array) -> npt.NDArray[np.bool_]:
    """Which F G F have lost digits: their tasks' evidence spans too many orders of magnitude."""
    return np.asarray(np.diagonal(inner, axis1=-2, axis2=-1).max(-1, initial=0.0) > MAX_INFORMATION)


def graded_tasks(
    fit: Fit, root: Array, tasks: Tasks, huge: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, ...], InformationPosterior]]:
    """The posteriors of such tasks."""
    if not huge.any():
        return
    shape = huge.shape
    variance = np.broadcast_to(variances(fit, tasks), shape)
    means = np.broadcast_to(fit.mean, root.shape[:-1])
    gram = np.broadcast_to(tasks.gram, (*shape, *tasks.gram.shape[-2:]))
    moment = np.broadcast_to(tasks.moment, (*shape, tasks.moment.shape[-1]))
    squares = np.broadcast_to(tasks.squares, shape)
    for place in np.argwhere(huge):
        at = tuple(int(number) for number in place)
        start = root[at[:-1]] / np.sqrt(variance[at])
        graded = information_posterior(
            means[at[:-1]], start, gram[at], moment[at], float(squares[at])
        )
        if graded is not None:
            yield at, graded


def variances(fit: Fit, tasks: Tasks) -> Array:
    """R_i² of every task: its own, or the population's where it has not been estimated."""
    own: Array = np.where(tasks.noise > 0, tasks.noise, np.asarray(fit.noise)[..., None])
    return own


def residuals(tasks: Tasks, mean: Array, known: Array) -> tuple[Array, Array]:
    """Squared residuals at the posterior means, and their degrees of freedom."""
    fitted = (mean * (2.0 * tasks.moment - matvec(tasks.gram, mean))).sum(-1)
    residual = np.maximum(tasks.squares - fitted, 0.0)
    return residual, np.maximum(tasks.rounds - trace(known), 0.0)


def with_own_noise(fit: Fit, tasks: Tasks, constant: bool = False) -> Tasks:
    """The tasks with R_i² as their residuals under a fit show it."""
    root = symmetric_root(fit.covariance)
    for _ in range(OWN):
        known, z = posteriors(fit, root, tasks)
        mean = fit.mean[..., None, :] + matvec(root[..., None, :, :], z)
        square, freedom, *_ = usable(tasks, *residuals(tasks, mean, known), constant, fit.noise)
        tasks = tasks.replace(noise=task_variance(fit.noise, fit.freedom, square, freedom))
    return tasks


def improve(
    fit: Fit,
    tasks: Tasks,
    past: Past,
    strength: Any,
    noise: float = 0.0,
    size: Any = None,
    *,
    constant: bool = False,
    even: bool = True,
) -> tuple[Fit, Pass, Tasks]:
    """One scoring step for μ, Σ and, unless ``noise`` gives R, for the tasks' noise.

    Also the pass it took, and the tasks with the noise that their residuals show. ``size`` and
    ``even`` say what the regularising tasks are like (:func:`regularising`); ``constant`` says that
    the last feature is the intercept.
    """
    dim = fit.mean.shape[-1]
    eye = np.eye(dim)
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    known, squared, outer, pull = (np.zeros(fit.covariance.shape) for _ in range(4))
    total = np.zeros(fit.mean.shape)
    found = []
    kept = []
    for at in range(0, len(tasks), CHUNK):
        part = tasks[at : at + CHUNK]
        k, z = posteriors(fit, root, part)
        weight = part.weight
        found.append(residuals(part, fit.mean[..., None, :] + matvec(root[..., None, :, :], z), k))
        total = total + (weight[..., None] * z).sum(-2)
        weighted = weight[..., None, None] * k
        known = known + weighted.sum(-3)
        squared = squared + side_by_side(weighted) @ transpose(side_by_side(k))
        kept.append((k, weighted, z, weight))
    # Tasks long past count as if they had been observed whole.
    count = np.asarray(past.count)[..., None, None]
    gone = past.first - np.asarray(past.count)[..., None] * fit.mean
    known, squared = known + count * eye, squared + count * eye
    total = total + matvec(inverse, gone)
    own, shift = recentred(fit, root, known, total)
    mean = fit.mean + matvec(root, shift)
    # The covariance, around the new mean.
    for k, weighted, z, weight in kept:
        z = z - matvec(k, shift[..., None, :])
        outer = outer + transpose(z) @ (weight[..., None] * z)
        pull = pull + side_by_side(weighted @ own[..., None, :, :]) @ transpose(side_by_side(k))
    away = past.first[..., :, None] * mean[..., None, :]
    scatter = past.second - away - transpose(away) + count * mean[..., :, None] * mean[..., None, :]
    outer = outer + inverse @ scatter @ inverse
    taken = Pass(
        root,
        known,
        squared,
        outer + pull + count * own - known,
        regularising(fit, root, inverse, known, size, even),
    )
    variance, freedom = fit.noise, fit.freedom
    if noise:
        variance = float_if_scalar(np.full(fit.mean.shape[:-1], noise**2))
    elif found:
        square, free = (np.concatenate(parts, -1) for parts in zip(*found, strict=True))
        residual = usable(tasks, square, free, constant, fit.noise)
        own_noise = (past.count, past.precision, past.logs)
        variance, freedom = population_noise(residual, own_noise, usual(fit, tasks), fit.noise)
        own_variance = task_variance(variance, freedom, residual.square, residual.freedom)
        tasks = tasks.replace(noise=own_variance)
    covariance = shrunk(taken, strength)
    return Fit.unchecked(mean, covariance, root @ own @ root, variance, freedom), taken, tasks


def regularising(
    fit: Fit, root: Array, inverse: Array, known: Array, size: Any = None, even: bool = True
) -> Array:
    """The covariance of the regularising tasks, whitened.

    They vary by ``size`` along every feature, tr Σ/d unless given. If they are not to stay
    ``even``, they come to vary along each feature as the tasks do, once some tasks have shown it:
    where all features are in units of their own, that need not be the same.
    """
    variance = np.diagonal(fit.covariance, axis1=-2, axis2=-1)
    target = np.asarray(variance.mean(-1) if size is None else size)[..., None]
    if even:
        return np.asarray(target[..., None] * (inverse @ inverse))
    tasks = np.diagonal(root @ known @ root, axis1=-2, axis2=-1) / variance
    share = tasks / (tasks + ALIKE)
    target = np.exp(share * np.log(variance) + (1.0 - share) * np.log(target))
    return np.asarray(inverse @ (target[..., None] * inverse))


def usual(fit: Fit, tasks: Tasks) -> Array:
    """The mean square reward, tasks counting by how precise they are: an odd one counts little."""
    share = tasks.weight / variances(fit, tasks)
    rounds = (share * tasks.rounds).sum(-1)
    energy: Array = (share * tasks.squares).sum(-1) / np.maximum(rounds, 1e-300)
    return energy


def recentred(fit: Fit, root: Array, known: Array, total: Array) -> tuple[Array, Array]:
    """(Σ K + F²/τ²)⁻¹ and the step of the mean, whitened.

    Generalised least squares, then shrunk by as much as it is uncertain. (A direction that no task
    has shown has no say in how large the mean is.)
    """
    dim = root.shape[-1]
    raw = np.linalg.inv(known + 0.1 * np.eye(dim))
    seen = np.maximum(trace(raw @ known), 1.0)
    centre = fit.mean + matvec(root @ raw, total)
    doubt = trace(root @ raw @ known @ raw @ root) / seen
    square = (centre**2).sum(-1) / seen
    tau = np.maximum(square - doubt, doubt * np.sqrt(2.0 / dim))
    spread = root @ root
    tau = np.maximum(tau, np.maximum(1e-30 * trace(spread), 1e-300))[..., None]
    own = np.linalg.inv(known + spread / tau[..., None])
    return own, matvec(own, total - matvec(root, fit.mean) / tau)


def shrunk(taken: Pass, strength: Any) -> Array:
    """Σ after a step from a pass, with so many regularising tasks."""
    many = np.asarray(strength)[..., None, None]
    # The regularising tasks are no likelier the smaller Σ gets: their curvature is that of target.
    curvature = taken.squared + many * taken.target
    return scored_step(
        taken.root, curvature, taken.excess + many * (taken.target - np.eye(taken.root.shape[-1]))
    )


def scored_step(root: Array, curvature: Array, excess: Array) -> Array:
    """Σ = F (I + D^-½ X D^-½) F from its root F, the curvature D and the gradient X."""
    eye = np.eye(root.shape[-1])
    values, vectors = np.linalg.eigh(curvature)
    whiten = (vectors / np.sqrt(np.maximum(values, 1e-300))[..., None, :]) @ transpose(vectors)
    change = whiten @ excess @ whiten
    values, vectors = np.linalg.eigh((change + transpose(change)) / 2)
    factor = 1.0 + np.clip(values, 0.0, STEP)
    factor = factor / (1.0 - np.minimum(values, 0.0))
    half = root @ (vectors * np.sqrt(factor)[..., None, :])
    sigma: Array = half @ transpose(half)
    # No direction is ever quite certain, or nothing could change it again.
    least = 1e-12 * trace(sigma) / len(eye)
    sigma = sigma + np.maximum(least, 1e-300)[..., None, None] * eye
    return sigma


def left_out(
    fit: Fit, squared: Array, task: Tasks, strength: Any, sign: float = 1.0, even: bool = True
) -> Fit:
    """The fit without one of its tasks (or, with ``sign`` −1, with one more): one scoring step.

    At the maximum the gradients of all tasks and of the regularisation sum to zero, so what is left
    without task i is minus its own: no other task need be looked at. O(d³).
    """
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    known, z = posteriors(fit, root, task)
    k, z = known[..., 0, :, :], z[..., 0, :]
    weight = (sign * task.weight[..., 0])[..., None]
    own = np.linalg.inv(np.linalg.inv(inverse @ fit.error @ inverse) - weight[..., None] * k)
    target = regularising(fit, root, inverse, squared, even=even)
    many = np.asarray(strength)[..., None, None]
    curvature = squared - weight[..., None] * (k @ k) + many * target
    excess = weight[..., None] * (k - z[..., :, None] * z[..., None, :])
    return fit.replace(
        mean=fit.mean - matvec(root, weight * matvec(own, z)),
        covariance=scored_step(root, curvature, excess),
        error=root @ own @ root,
    )


def task_likelihoods(fit: Fit, tasks: Tasks, root: Array | None = None) -> Array:
    """:func:`log_likelihood` of every task, under every population of a batch.

    ``root`` stands for that of the covariance, if another is meant.
    """
    root = symmetric_root(fit.covariance) if root is None else root
    around, mean = root[..., None, :, :], fit.mean[..., None, :]
    variance = variances(fit, tasks)
    pulled = matvec(tasks.gram, mean)
    offset = (mean * (2.0 * tasks.moment - pulled)).sum(-1) / (2.0 * variance)
    inner = around @ (tasks.gram / variance[..., None, None]) @ around
    surprise = matvec(around, (tasks.moment - pulled) / variance[..., None])
    huge = too_large(inner)
    if huge.any():
        inner = np.where(huge[..., None, None], 0.0, inner)
        surprise = np.where(huge[..., None], 0.0, surprise)
    gain: Array = offset + 0.5 * explained(inner, surprise)
    squares = np.broadcast_to(tasks.squares, gain.shape)
    for at, graded in graded_tasks(fit, root, tasks, huge):
        own = np.broadcast_to(variance, gain.shape)[at]
        gain[at] = 0.5 * ((squares[at] - graded.square) / own - graded.information)
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
        square = (matvec(transpose(vectors), surprise) ** 2 / values).sum(-1)
        return np.asarray(square - np.log(values).sum(-1))
    square = (lower[..., dim, :dim] ** 2).sum(-1) * length[..., 0] ** 2
    diagonal = np.diagonal(lower, axis1=-2, axis2=-1)[..., :dim]
    return np.asarray(square - 2.0 * np.log(diagonal).sum(-1))


def noise_likelihood(fit: Fit, tasks: Tasks) -> Array:
    """What :func:`task_likelihoods` leaves out: it depends on R alone, −½ (n log R² + Σr²/R²)."""
    variance = variances(fit, tasks)
    rest: Array = -0.5 * (tasks.rounds * np.log(variance) + tasks.squares / variance)
    return rest


def log_likelihood(mean: Array, covariance: Array, noise: Any, evidence: Evidence) -> Array:
    """The log density of a task's rewards under a prior, up to what all priors share.

    ``covariance`` may have one axis more than ``mean``: several priors with the same mean.
    """
    variance = np.asarray(noise)
    pulled = matvec(evidence.gram, mean)
    surprise = (evidence.moment - pulled) / variance[..., None]
    offset = (mean * (evidence.moment + (evidence.moment - pulled))).sum(-1) / (2.0 * variance)
    gram = evidence.gram / variance[..., None, None]
    if covariance.ndim > gram.ndim:
        gram, surprise, offset = gram[..., None, :, :], surprise[..., None, :], offset[..., None]
    try:
        half = np.linalg.cholesky(covariance)
        lower = np.linalg.cholesky(np.eye(covariance.shape[-1]) + transpose(half) @ gram @ half)
        u = np.linalg.solve(lower, matvec(transpose(half), surprise)[..., None])[..., 0]
        log_det = np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(-1)
    except np.linalg.LinAlgError:  # so unequal directions that rounding hides the small ones
        half = symmetric_root(covariance)
        values, vectors = np.linalg.eigh(half @ gram @ half)
        values = 1.0 + np.maximum(values, 0.0)
        u = matvec(transpose(vectors), matvec(half, surprise)) / np.sqrt(values)
        log_det = 0.5 * np.log(values).sum(-1)
    gain: Array = offset + 0.5 * (u**2).sum(-1) - log_det
    return gain


def side_by_side(matrices: Array) -> Array:
    """(..., n, d, d) → (..., d, n·d), so that a sum of products is one product."""
    moved = np.moveaxis(matrices, -3, -2)
    return moved.reshape(*moved.shape[:-2], moved.shape[-2] * moved.shape[-1])
