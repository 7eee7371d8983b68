"""Fitting a Gaussian population θ_i ~ N(μ, Σ) to the evidence of tasks, noise included.

Only the tasks' sums are needed. In coordinates whitened by Σ = F F, with G_i = gram/R_i² and
b_i = moment/R_i², task i contributes ::

    E_i = (I + F G_i F)⁻¹        K_i = I − E_i            the variance removed, 0 … I
    z_i = E_i F (b_i − G_i μ)                             its posterior mean, whitened

and the marginal likelihood of all tasks is stationary where Σ z_i = 0 and Σ z_i z_iᵀ = Σ K_i. One
step of Fisher scoring towards that costs one pass over the tasks::

    μ ← μ + F (Σ K_i)⁻¹ Σ z_i        Σ ← F (I + D^-½ (Σ z_i z_iᵀ − K_i) D^-½) F,   D = Σ K_i²

EM needs the same pass, but its steps are shorter by a factor K² where K is small: in directions in
which tasks hardly differ. (D bounds the exact information from above, so that steps do not
overshoot, and the bracket is kept positive.)

The covariance is regularised by ``strength`` pseudo-tasks of variance (tr Σ/d) I, and the mean by a
Gaussian of variance τ² around 0, with τ² from the mean itself (James and Stein). In fits of
log-odds the mean's intercept is not: where clicks are rare it is far from 0. Every task has its own
noise R_i (:mod:`headstart.transfer.empirical_bayes.full_covariance.task_noise`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import array_namespace, float_if_scalar, matvec, repeat, trace, transpose
from headstart.model.prior import symmetric_root
from headstart.records import Array, combine, select
from headstart.small_matrices import eigh, spd_inverse, sum_of_products, symmetric_matvec
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import (
    FAR_LARGER,
    Fit,
    lower_median,
)
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    noise_variances,
    posteriors,
    task_posteriors,
)
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    population_noise,
    task_variance,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

CHUNK_TASKS = 256  # tasks per batch of matrices
EVEN_TASKS = 3.0  # tasks for which the regularising ones vary by the same along every feature
EQUAL_SHARE = 1e-12  # of the mean square reward: a smaller variance is rounding of equal rewards
LEVEL_VARIANCE = 100.0  # a priori, of a mean intercept of log-odds that is not shrunk
MAX_GROWTH = 3.0  # no variance grows by more than this factor (plus one) in one step


class StepSums(NamedTuple):
    """The sums of one pass over the tasks: all that a step needs."""

    root: Array  # F
    known: Array  # Σ K
    known_squared: Array  # Σ K²
    excess: Array  # Σ z zᵀ − K, the mean's own error included
    target: Array  # (tr Σ/d) Σ⁻¹: the regularising tasks, whitened


def scoring_step(
    fit: Fit,
    tasks: Tasks,
    past: Past,
    strength: Any,
    noise: float = 0.0,
    size: Any = None,
    *,
    constant: bool = False,
    even: bool = True,
    keep_noise: Any = False,
    free_intercept: bool = False,
    are_groups: bool = False,
) -> tuple[Fit, StepSums, Tasks]:
    """One scoring step for μ, Σ and, unless ``noise`` gives R, for the tasks' noise.

    Also the sums it took, and the tasks with the noise that their residuals show. ``size`` and
    ``even`` say what the regularising tasks are like (:func:`regularisation_target`); ``constant``
    says that the last feature is the intercept, and ``free_intercept`` that its mean is not shrunk
    with the others. Where ``keep_noise`` holds, which may be for some elements of a batch, the
    noise stays as it was. With ``are_groups`` the batch are groups that share out the tasks, and
    have one noise.
    """
    xp = array_namespace(tasks.gram)
    dim = fit.mean.shape[-1]
    eye = xp.eye(dim)
    root = symmetric_root(fit.covariance)
    inverse = spd_inverse(root)
    known, squared, outer, pull = (xp.zeros(fit.covariance.shape) for _ in range(4))
    total = xp.zeros(fit.mean.shape)
    residuals = []
    chunks = []
    for at in range(0, len(tasks), CHUNK_TASKS):
        part = tasks[at : at + CHUNK_TASKS]
        k, z, _, *residual = task_posteriors(fit, root, part)
        weight = part.weight
        residuals.append(residual)
        total = total + (weight[..., None] * z).sum(-2)
        known = known + (weight[..., None, None] * k).sum(-3)
        squared = squared + sum_of_products(k, None, k, weight)
        chunks.append((k, z, weight))
    # Tasks whose evidence is no longer kept count as if θ had been observed.
    count = xp.asarray(past.count)[..., None, None]
    past_total = past.first - xp.asarray(past.count)[..., None] * fit.mean
    known, squared = known + count * eye, squared + count * eye
    total = total + matvec(inverse, past_total)
    mean_error, shift = mean_step(fit, root, known, total, constant and free_intercept)
    mean = fit.mean + matvec(root, shift)
    # The covariance, around the new mean.
    for k, z, weight in chunks:
        z = z - symmetric_matvec(k, shift[..., None, :])
        outer = outer + transpose(z) @ (weight[..., None] * z)
        pull = pull + sum_of_products(k, mean_error, k, weight)
    cross = past.first[..., :, None] * mean[..., None, :]
    square = count * mean[..., :, None] * mean[..., None, :]
    scatter = past.second - cross - transpose(cross) + square
    outer = outer + inverse @ scatter @ inverse
    sums = StepSums(
        root,
        known,
        squared,
        outer + pull + count * mean_error - known,
        regularisation_target(fit, root, inverse, known, size, even),
    )
    covariance = covariance_step(sums, strength)
    new = fit.replace(mean=mean, covariance=covariance, error=root @ mean_error @ root)
    if noise:
        new = new.replace(noise_variance=float_if_scalar(xp.full(fit.mean.shape[:-1], noise**2)))
    elif residuals and not (xp is np and np.all(keep_noise)):
        square, free = (xp.concatenate(parts, -1) for parts in zip(*residuals, strict=True))
        noise_fit = fit_noise_of_groups if are_groups else fit_noise
        new, tasks = select(
            xp.asarray(keep_noise),
            (new, tasks),
            noise_fit(new, tasks, past, square, free, constant),
        )
    return new, sums, tasks


def fit_noise(
    fit: Fit, tasks: Tasks, past: Past, square: Array, dof: Array, constant: bool = False
) -> tuple[Fit, Tasks]:
    """The fit with the distribution of the tasks' noise, and the tasks with their own.

    ``square`` and ``dof`` are residuals for tasks that are too short for least squares.
    """
    usable = usable_residuals(tasks, square, dof, constant, fit.noise_variance)
    past_sums, (typical, spread) = (
        (past.count, past.precision, past.logs),
        typical_squares(fit, tasks, constant),
    )
    variance, noise_dof = population_noise(usable, past_sums, typical, fit.noise_variance, spread)
    own = task_variance(variance, noise_dof, usable.square, usable.dof)
    return fit.replace(noise_variance=variance, dof=noise_dof), tasks.replace(noise_variance=own)


def fit_noise_of_groups(
    fit: Fit, tasks: Tasks, past: Past, square: Array, dof: Array, constant: bool = False
) -> tuple[Fit, Tasks]:
    """What :func:`fit_noise` returns, from the tasks of all groups together.

    A group of users without a click would have no noise of its own.
    """
    weight = tasks.weight.sum(-2)
    share = tasks.weight / np.maximum(weight, 1e-300)
    one, tasks = fit_noise(
        combine(lambda part: np.asarray(part)[0], fit),
        tasks.replace(weight=weight),
        combine(lambda part: np.asarray(part).sum(0), past),
        (share * square).sum(-2),
        (share * dof).sum(-2),
        constant,
    )
    alike = np.ones(len(fit.mean))
    return fit.replace(noise_variance=alike * one.noise_variance, dof=alike * one.dof), tasks


def scoring_steps(
    steps: Any, fit: Fit, tasks: Tasks, *given: Any, **options: Any
) -> tuple[Fit, StepSums, Tasks]:
    """Several of :func:`scoring_step`: a number of steps, or one for each batch element."""
    xp = array_namespace(tasks.gram)

    def step(at: Any, before: tuple[Fit, StepSums, Array]) -> Any:
        fit, _, noise = before
        fit, sums, after = scoring_step(fit, tasks.replace(noise_variance=noise), *given, **options)
        return select(at < steps, (fit, sums, after.noise_variance), before)

    # Only what changes: of the rest a compiled loop would make a copy.
    none = StepSums(*[xp.zeros_like(fit.covariance)] * len(StepSums._fields))
    fit, sums, noise = repeat(xp, xp.max(steps), step, (fit, none, tasks.noise_variance))
    return fit, sums, tasks.replace(noise_variance=noise)


def regularisation_target(
    fit: Fit, root: Array, inverse: Array, known: Array, size: Any = None, even: bool = True
) -> Array:
    """The covariance of the regularising tasks, whitened.

    They vary by ``size`` along every feature, tr Σ/d unless given. If they are not to stay
    ``even``, they come to vary along each feature as the tasks do, once some tasks have shown it:
    where all features are in units of their own, that need not be the same.
    """
    xp = array_namespace(root)
    target = feature_variances(fit, root, known, size, even)
    return xp.asarray(inverse @ (target[..., None] * inverse))


def feature_variances(
    fit: Fit, root: Array, known: Array, size: Any = None, even: bool = True
) -> Array:
    """How much the regularising tasks vary along each feature."""
    xp = array_namespace(root)
    variance = xp.diagonal(fit.covariance, axis1=-2, axis2=-1)
    target = xp.asarray(variance.mean(-1) if size is None else size)[..., None]
    if even:
        return target * xp.ones_like(variance)
    tasks = xp.diagonal(root @ known @ root, axis1=-2, axis2=-1) / variance
    share = tasks / (tasks + EVEN_TASKS)
    return xp.asarray(xp.exp(share * xp.log(variance) + (1.0 - share) * xp.log(target)))


def typical_squares(fit: Fit, tasks: Tasks, constant: bool) -> tuple[Array, Array]:
    """The mean square reward, and that around the mean reward where the last feature is 1.

    Tasks are weighted by their precision: an outlier counts little. A task whose rewards are far
    larger than those of most tasks does not count. The second is the first where all rewards are
    equal: these do not show how much rewards vary.
    """
    xp = array_namespace(tasks.gram)
    size = tasks.squares / xp.maximum(tasks.rounds, 1e-300)
    usual = lower_median(size, (size > 0) & (tasks.weight > 0))
    share = tasks.weight / noise_variances(fit, tasks) * (size <= FAR_LARGER * usual)
    rounds = xp.maximum((share * tasks.rounds).sum(-1), 1e-300)
    square = (share * tasks.squares).sum(-1) / rounds
    if not constant:
        return square, square
    spread = square - ((share * tasks.moment[..., -1]).sum(-1) / rounds) ** 2
    return square, xp.where(spread > EQUAL_SHARE * square, spread, square)


def mean_step(
    fit: Fit, root: Array, known: Array, total: Array, level: bool = False
) -> tuple[Array, Array]:
    """(Σ K + F T⁻¹ F)⁻¹ and the step of the mean, whitened.

    Generalised least squares, then shrunk by as much as it is uncertain: T = τ² I
    (:func:`mean_variance`). Where the last coefficient is the ``level`` of log-odds, T has
    :data:`LEVEL_VARIANCE` for it.
    """
    xp = array_namespace(root)
    dim = root.shape[-1]
    raw = spd_inverse(known + 0.1 * xp.eye(dim))
    shown, centre = raw @ known, fit.mean + matvec(root @ raw, total)
    least = xp.maximum(1e-30 * trace(root @ root), 1e-300)
    error = root @ shown @ raw @ root
    variance = mean_variance(centre, error, shown, least, level, LEVEL_VARIANCE)
    mean_error = spd_inverse(known + (root / variance[..., None, :]) @ root)
    return mean_error, matvec(mean_error, total - matvec(root, fit.mean / variance))


def mean_variance(
    estimate: Array, error: Array, shown: Array, least: Any, level: bool, level_variance: Any
) -> Array:
    """How much each coefficient of the mean varies a priori: τ², from an estimate of the mean.

    τ² is the mean square of the estimate beyond what noise gives it (James and Stein)::

        τ² = (‖estimate‖² − tr error) / tr shown

    ``shown`` says how far tasks have shown each direction. τ² is not below what it is uncertain by,
    nor below ``least``. The last coefficient is left out if it is a ``level``, and
    has a variance of its own.
    """
    xp = array_namespace(estimate)
    dim = estimate.shape[-1]
    slopes = 1.0 * (np.arange(dim) < dim - level)
    shown_directions = xp.maximum(trace(shown * slopes), 1.0)
    uncertainty = trace(error * slopes) / shown_directions
    square = (estimate**2 * slopes).sum(-1) / shown_directions
    tau = xp.maximum(square - uncertainty, uncertainty * xp.sqrt(2.0 / dim))
    return xp.where(slopes > 0, xp.maximum(tau, least)[..., None], level_variance)


def covariance_step(sums: StepSums, strength: Any) -> Array:
    """Σ after a step from the sums of a pass, with ``strength`` regularising tasks."""
    xp = array_namespace(sums.root)
    strengths = xp.asarray(strength)[..., None, None]
    # The pseudo-tasks do not become likelier as Σ shrinks: their curvature is that of target.
    curvature = sums.known_squared + strengths * sums.target
    return fisher_step(
        sums.root, curvature, sums.excess + strengths * (sums.target - xp.eye(sums.root.shape[-1]))
    )


def fisher_step(root: Array, curvature: Array, excess: Array) -> Array:
    """Σ = F (I + D^-½ X D^-½) F from its root F, the curvature D and the gradient X."""
    xp = array_namespace(root)
    eye = xp.eye(root.shape[-1])
    values, vectors = eigh(curvature)
    whiten = (vectors / xp.sqrt(xp.maximum(values, 1e-300))[..., None, :]) @ transpose(vectors)
    change = whiten @ excess @ whiten
    values, vectors = eigh((change + transpose(change)) / 2)
    factor = 1.0 + xp.clip(values, 0.0, MAX_GROWTH)
    factor = factor / (1.0 - xp.minimum(values, 0.0))
    half = root @ (vectors * xp.sqrt(factor)[..., None, :])
    sigma: Array = half @ transpose(half)
    # No direction becomes entirely certain: nothing could change it again.
    least = 1e-12 * trace(sigma) / len(eye)
    sigma = sigma + xp.maximum(least, 1e-300)[..., None, None] * eye
    return sigma


def leave_one_out(
    fit: Fit, squared: Array, task: Tasks, strength: Any, sign: float = 1.0, even: bool = True
) -> Fit:
    """The fit without one of its tasks (or, with ``sign`` −1, with one more): one scoring step.

    At the maximum the gradients of all tasks and of the regularisation sum to zero, so without task
    i the gradient is minus its own: no other task is needed. O(d³).
    """
    root = symmetric_root(fit.covariance)
    inverse = np.linalg.inv(root)
    known, z = posteriors(fit, root, task)
    k, z = known[..., 0, :, :], z[..., 0, :]
    weight = (sign * task.weight[..., 0])[..., None]
    mean_error = np.linalg.inv(np.linalg.inv(inverse @ fit.error @ inverse) - weight[..., None] * k)
    target = regularisation_target(fit, root, inverse, squared, even=even)
    strengths = np.asarray(strength)[..., None, None]
    curvature = squared - weight[..., None] * (k @ k) + strengths * target
    excess = weight[..., None] * (k - z[..., :, None] * z[..., None, :])
    return fit.replace(
        mean=fit.mean - matvec(root, weight * matvec(mean_error, z)),
        covariance=fisher_step(root, curvature, excess),
        error=root @ mean_error @ root,
    )
