"""The noise of tasks that are too short for least squares, under a low-rank population.

A task with hardly more rounds than features has no residuals of its own: the information of its
rewards on R² depends on the population. A full covariance has so many parameters that it explains
part of the noise as differences between tasks; W and σ² have few. With V = X S Xᵀ + R² I the
covariance of a task's rewards, S = W Wᵀ + σ² I, H = Xᵀ V⁻¹ X, v = Xᵀ V⁻¹ (r − X μ), and ρ the
residual sum of squares at the posterior mean μ + S v, the gradient of the log marginal likelihood
in log R² and σ² and its expected information are, all times two, ::

    g_R = ρ/R² − (n − tr SH)           g_σ = ‖v‖² − tr H
    I_R = n − 2 tr SH + tr SHSH        I_σ = ‖H‖²        I_Rσ = tr (H − H S H)

What μ takes up, whose error has the covariance C, is added to the gradients: tr (H − H S H) C and
tr H C H (restricted maximum likelihood). One scoring step for both, all summed over tasks, is ::

    Δ log R² = (g_R − g_σ I_Rσ/I_σ) / I        I = I_R − I_Rσ²/I_σ

since what σ² could explain as well is no information on R². For the distribution of all tasks'
noise and for its own
(:mod:`~headstart.transfer.empirical_bayes.full_covariance.task_noise`)
a short task counts with the residual sum of squares ρ on f = n − tr SH degrees of freedom, which
have the gradient g_R. Σ f is more than I: these tasks have the weight I / Σ f, and ρ is shifted so
that the sum over them takes the step above.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headstart.arrays import array_namespace, matvec, trace, transpose
from headstart.records import Array
from headstart.small_matrices import woodbury
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.low_rank.task_precisions import (
    TaskPrecisions,
    scale_tasks,
    task_precisions,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

MIN_SHARE = 1e-3  # the least I / Σ f
MAX_STEP = 1.0  # of log R²
#: The gradient, beyond what any noise of this size gives, at which a task counts for R_i alone.
FAR_GRADIENT, FAR_GRADIENT_PER_DOF = 10.0, 3.0


class NoiseScores(NamedTuple):
    """The scores of R² and σ², of each task or of all together."""

    dof: Array  # n − tr SH
    gradient: Array  # g_R
    slope: Array  # g_σ
    information: Array  # I_R
    curvature: Array  # I_σ
    shared: Array  # I_Rσ


class MarginalResiduals(NamedTuple):
    """Residual sums of squares, their degrees of freedom, and what these tasks count."""

    square: Array
    dof: Array
    share: Array


def noise_scores(
    low: LowRank, tasks: Tasks, noise_variance: Array, given: TaskPrecisions
) -> NoiseScores:
    """The scores of every task with noise R_i², in features multiplied by the population's scale.

    ``given`` is what :func:`task_precisions` finds for the tasks; sums count by its weights.
    """
    xp = array_namespace(tasks.gram)
    a_matrix, b_vector, weight = given
    w, spread = low.loadings[..., None, :, :], xp.asarray(low.residual)[..., None]
    a = b_vector - matvec(a_matrix, low.mean[..., None, :])
    h, v, m = woodbury(a_matrix, low.loadings, a)
    xm, left = a_matrix @ w @ m, xp.eye(w.shape[-1]) - m  # H W and Wᵀ H W
    norm, inside = (h * transpose(h)).sum((-2, -1)), (xm**2).sum((-2, -1))
    known = spread * trace(h) + trace(left)
    known_squared = (
        spread**2 * norm + 2.0 * spread * inside + (left * transpose(left)).sum((-2, -1))
    )
    mean = low.mean[..., None, :] + spread[..., None] * v + matvec(w, matvec(transpose(w), v))
    fitted = (mean * (2.0 * tasks.moment - matvec(tasks.gram, mean))).sum(-1)
    square = xp.maximum(tasks.squares - fitted, 0.0)
    # What μ takes up.
    error = low.error[..., None, :, :]
    taken = h @ error
    slope = (taken * h).sum((-2, -1))
    gradient = trace(taken) - spread * slope - ((error @ xm) * xm).sum((-2, -1))
    scores = NoiseScores(
        tasks.rounds - known,
        square / noise_variance - (tasks.rounds - known) + gradient,
        (v**2).sum(-1) - trace(h) + slope,
        xp.maximum(tasks.rounds - 2.0 * known + known_squared, 0.0),
        norm,
        trace(h) - spread * norm - inside,
    )
    finite = xp.isfinite(sum(scores)) & (weight > 0)
    return NoiseScores(*(xp.where(finite, each, 0.0) for each in scores))


def noise_step(total: NoiseScores) -> tuple[Array, Array]:
    """Δ log R² and the information on it, from the sums over tasks."""
    xp = array_namespace(total.gradient)
    bend = xp.maximum(total.curvature, 1e-300)
    information = total.information - total.shared**2 / bend
    information = xp.maximum(information, MIN_SHARE * xp.maximum(total.dof, 1e-300))
    step = (total.gradient - total.slope * total.shared / bend) / information
    return xp.clip(step, -MAX_STEP, MAX_STEP), information


def marginal_residuals(low: LowRank, tasks: Tasks, noise_variance: Any) -> MarginalResiduals:
    """Residuals that carry the information of tasks' rewards on their noise R_i².

    Only tasks with a weight count, and all that the population was fitted to for what is known of
    σ². A task whose numbers span too many orders of magnitude is ignored.
    """
    xp = array_namespace(tasks.gram)
    tasks = scale_tasks(tasks, low.scale)
    given = task_precisions(tasks, noise_variance, low.residual)
    scores = noise_scores(low, tasks, noise_variance, given)
    far = scores.gradient > FAR_GRADIENT + FAR_GRADIENT_PER_DOF * scores.dof
    counted = given.weight * ~far
    total = NoiseScores(*((counted * each).sum(-1) for each in scores))
    squared_residual = xp.maximum(xp.asarray(low.residual) ** 2, 1e-300)  # σ² may all but vanish
    total_curvature = xp.asarray(low.curvature) / squared_residual
    total = total._replace(curvature=xp.maximum(total.curvature, total_curvature))
    step, information = noise_step(total)
    dof = xp.maximum(total.dof, 1e-300)
    shift = 1.0 + step - total.gradient / dof
    square = scores.gradient + scores.dof * shift[..., None]
    share = xp.minimum(information / dof, 1.0)
    return MarginalResiduals(noise_variance * xp.maximum(square, 0.0), scores.dof, share)
