"""A population whose tasks differ along a few directions only, with the rank found from data.

The model is probabilistic PCA with automatic relevance determination (Bishop 1999)::

    θ_i = μ + W z_i + ε_i      z_i ~ N(0, I_k)      ε_i ~ N(0, σ² I)      W_c ~ N(0, I / α_c)

A full covariance has d (d + 1) / 2 parameters, W has d k: with many features and few tasks it is
learned much sooner. The same σ² and α_c for all features mean that tasks vary as much along one as
along another, so features are multiplied by √D first (``LowRank.scale``), D the variance of tasks
along each as far as it is known: nothing depends on the units given.

Of a task only G_i = Σ x xᵀ and b_i = Σ r x are used, and its noise R_i². Given z_i, its
contribution to W and μ is ::

    A_i = (R_i² I + σ² G_i)⁻¹ G_i           a_i = (R_i² I + σ² G_i)⁻¹ (b_i − G_i μ)

so that with p_j, q_j the eigenvalues and eigenvectors of Σ A_i one sweep of variational EM is ::

    Var[c, j] = 1 / (p_j + α_c)                     the variance of q_jᵀ W_c
    M_i = (I + Wᵀ A_i W + t_i diag_c(Σ_j Var[c, j] p_j / N))⁻¹       t_i = tr A_i / mean tr A
    z_i = M_i Wᵀ a_i        Z_i = M_i + z_i z_iᵀ
    W, z_i ← W L, L⁻¹ z_i   with mean Z_i = L Lᵀ                    (parameter expansion)
    W ← the solution of Σ A_i W Z_i + W diag(α) = Σ a_i z_iᵀ        (conjugate gradients)
    W ← W P with orthogonal columns       α_c = d / (‖W_c‖² + Σ_j Var[c, j])

and columns are dropped that are much smaller than what they are uncertain by. Then, with z_i
integrated out::

    M_i = (I + Wᵀ A_i W)⁻¹      H_i = A_i − A_i W M_i Wᵀ A_i      v_i = a_i − A_i W M_i Wᵀ a_i
    μ ← μ + δ       δ = C (Σ v_i − T⁻¹ μ)       C = (Σ H_i + T⁻¹)⁻¹         v_i ← v_i − H_i δ
    σ² ← σ² + s     s = (Σ (‖v_i‖² − tr H_i) + tr H C H / N) / Σ ‖H_i‖²      (one scoring step)

with H = Σ H_i and μ ~ N(0, T), T = τ² I + W Wᵀ
(:mod:`~headstart.transfer.empirical_bayes.low_rank.mean`).

The prediction of a new task includes the uncertainty of W and μ; κ = Σ_c (1 − mean M_cc) directions
count as observed in every task (N − κ − 1 is at least (κ + 1) / 2)::

    S = (1 + (κ + 1) / (N − κ − 1)) W Wᵀ + σ² I + Σ_c Cov(W_c) + C

Tasks whose evidence is gone stay as their posteriors (``Past``): they count as if their θ had been
observed, A = I / σ². All arrays may have leading batch axes, and every task a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import (
    array_namespace,
    congruence,
    float_if_scalar,
    matvec,
    repeat,
    trace,
    transpose,
)
from headstart.records import Array, select
from headstart.small_matrices import (
    cholesky,
    eigh,
    projected_inverse,
    spd_inverse,
    sum_of_products,
    symmetric_matvec,
    woodbury,
)
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import noise_variances
from headstart.transfer.empirical_bayes.low_rank.mean import mean_step
from headstart.transfer.empirical_bayes.low_rank.population import (
    MAX_RELEVANCE,
    MIN_RESIDUAL_SHARE,
    LowRank,
    column_variances,
)
from headstart.transfer.empirical_bayes.low_rank.task_precisions import (
    TaskPrecisions,
    scale_past,
    scale_tasks,
    scatter_around,
    task_precisions,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

MIN_SIGNAL = 0.3  # the least ‖W_c‖², as a share of what it is uncertain by
MAX_SIGNAL = 1e12  # of a column, more than which says nothing
MIN_FACTOR_SHARE = 1e-12  # the least second moment of a factor, as a share of all
CG_STEPS = 4  # of conjugate gradients in one sweep
MIN_COLUMN_SHARE = 1e-4  # the least ‖W_c‖², as a share of the largest


class RoundTerms(NamedTuple):
    """What sweeps of one round have in common, at the same μ and σ²."""

    surprise: Array  # a_i
    traces: Array  # tr A_i
    information: Array  # Σ A_i
    values: Array  # p_j
    vectors: Array  # q_j


def round_terms(low: LowRank, given: TaskPrecisions, past: Past) -> RoundTerms:
    """Those of a round that starts from a fit."""
    xp = array_namespace(low.mean)
    surprise = given.moment - symmetric_matvec(given.precision, low.mean[..., None, :])
    information = total_precision(given, xp.asarray(past.count), 1.0 / xp.asarray(low.residual))
    values, vectors = eigh(information)
    traces = trace(given.precision)
    return RoundTerms(surprise, traces, information, xp.maximum(values, 0.0), vectors)


def sweep_loadings(
    low: LowRank,
    given: TaskPrecisions,
    past: Past,
    automatic: bool = True,
    terms: RoundTerms | None = None,
) -> LowRank:
    """One sweep for W and α, at the same μ and σ².

    Without ``automatic`` relevance determination it is EM for the maximum of the marginal
    likelihood, and no column is dropped. ``terms`` are those of the round, if they are at hand.
    """
    xp = array_namespace(low.mean)
    a_matrix, weight = given.precision, given.weight
    a, traces, information, p, q = terms or round_terms(low, given, past)
    dim, rank = low.loadings.shape[-2:]
    eye, w, active = xp.eye(rank), low.loadings, low.active
    inverse = 1.0 / xp.asarray(low.residual)
    each = inverse[..., None, None]
    scatter = scatter_around(past, low.mean)
    count = xp.maximum(weight.sum(-1) + scatter.number, 1e-300)
    total = xp.maximum(p.sum(-1), 1e-300)
    alpha: Array = low.relevance * inverse[..., None] * automatic
    variance = column_variances(p, alpha, active & automatic)
    # The factors of every task, and of those of the past.
    uncertainty = (variance * p[..., None, :]).sum(-1) / count[..., None]
    share = (traces / total[..., None] * count[..., None])[..., None]
    across = transpose(w)[..., None, :, :]
    diagonal = 1.0 + share * uncertainty[..., None, :]
    m = projected_inverse(a_matrix, w, diagonal)
    z = matvec(m, matvec(across, a))
    second = m + z[..., :, None] * z[..., None, :]
    past_diagonal = 1.0 + (dim * inverse / total * count)[..., None] * uncertainty
    past_m = spd_inverse(each * (transpose(w) @ w) + eye * past_diagonal[..., None, :])
    past_map = each * (past_m @ transpose(w))
    past_second = scatter.number[..., None, None] * past_m + congruence(past_map, scatter.second)
    cross = transpose(a) @ (weight[..., None] * z) + each * (scatter.second @ transpose(past_map))
    # Parameter expansion: the factors get unit second moments.
    second = weight[..., None, None] * second
    second_moment = second.sum(-3) + past_second
    second_moment = xp.asarray(second_moment / count[..., None, None])
    second_moment = second_moment + MIN_FACTOR_SHARE * trace(second_moment)[..., None, None] * eye
    lower = cholesky(second_moment)
    lower_inverse = xp.linalg.inv(lower)
    w, cross = w @ lower, cross @ transpose(lower_inverse)
    past_second = congruence(lower_inverse, past_second)
    if automatic:
        alpha = relevance(w, matvec(transpose(lower**2), variance.sum(-1)), active)

    def operator(x: Array) -> Array:
        summed = sum_of_products(a_matrix, x @ lower_inverse, second) @ transpose(lower_inverse)
        return summed + each * (x @ past_second) + x * alpha[..., None, :]

    scale = active[..., None, :] / xp.maximum(p[..., :, None] + alpha[..., None, :], 1e-300)
    w = conjugate_gradients(operator, cross, w, lambda y: q @ (scale * (transpose(q) @ y)))
    variance = column_variances(p, alpha, active & automatic)
    residual = xp.asarray(low.residual)[..., None, None]
    low = low.replace(information=residual * information)
    return orthogonal_columns(low, w, variance, active, automatic)


def orthogonal_columns(
    low: LowRank, w: Array, variance: Array, active: npt.NDArray[np.bool_], automatic: bool
) -> LowRank:
    """The fit with W rotated to orthogonal columns, the longest first, and weak ones dropped.

    ``variance`` is Var[c, j], and ``active`` says which columns are in use.
    """
    xp = array_namespace(w)
    rank = w.shape[-1]
    rotation = eigh(transpose(w) @ w)[1][..., ::-1]
    active = xp.arange(rank) < active.sum(-1, keepdims=True)
    w, variance = w @ rotation * active[..., None, :], transpose(rotation**2) @ variance
    variance = variance * active[..., :, None]
    square, uncertainty = (w**2).sum(-2), variance.sum(-1)
    signal = xp.where(uncertainty > 0, square / xp.where(uncertainty > 0, uncertainty, 1.0), 0.0)
    if automatic:
        keep = (signal >= MIN_SIGNAL) & (square >= MIN_COLUMN_SHARE * square.max(-1, keepdims=True))
        keep = keep | (xp.arange(rank) == 0)
        w, active = w * keep[..., None, :], active & keep
    alpha = xp.asarray(low.residual)[..., None] * relevance(w, uncertainty, active)
    return low.replace(
        loadings=w,
        relevance=xp.minimum(alpha, MAX_RELEVANCE),
        signal=xp.minimum(signal, MAX_SIGNAL),
    )


def relevance(loadings: Array, uncertainty: Array, active: npt.NDArray[np.bool_]) -> Array:
    """α_c = d / (‖W_c‖² + Σ_j Var[c, j]) of the columns in use."""
    xp = array_namespace(loadings)
    square = xp.maximum((loadings**2).sum(-2) + uncertainty, 1e-300)
    return xp.where(active, loadings.shape[-2] / square, 0.0)


def total_precision(given: TaskPrecisions, past_count: Any, inverse: Any) -> Array:
    """Σ A_i, tasks of the past included, which have A = I / σ²."""
    xp = array_namespace(given.precision)
    dim = given.precision.shape[-1]
    total = (given.weight[..., None, None] * given.precision).sum(-3)
    total = (total + transpose(total)) / 2
    return total + xp.asarray(past_count * inverse)[..., None, None] * xp.eye(dim)


def conjugate_gradients(
    operator: Callable[[Array], Array],
    right: Array,
    start: Array,
    precondition: Callable[[Array], Array],
) -> Array:
    """A few steps towards operator(x) = right, over the last two axes."""
    xp = array_namespace(right)
    x = start
    residual = right - operator(x)
    preconditioned = precondition(residual)
    direction, power = preconditioned, (residual * preconditioned).sum((-2, -1))
    for _ in range(CG_STEPS):
        image = operator(direction)
        curvature = (direction * image).sum((-2, -1))
        length = xp.where(curvature > 0, power / xp.where(curvature > 0, curvature, 1.0), 0.0)
        step = length[..., None, None]
        x, residual = x + step * direction, residual - step * image
        preconditioned = precondition(residual)
        last_power, power = power, (residual * preconditioned).sum((-2, -1))
        ratio = xp.where(last_power > 0, power / xp.where(last_power > 0, last_power, 1.0), 0.0)
        direction = preconditioned + ratio[..., None, None] * direction
    return x


def sweep_mean(
    low: LowRank,
    given: TaskPrecisions,
    past: Past,
    terms: RoundTerms | None = None,
    level: bool = False,
) -> LowRank:
    """μ, σ² and the covariance that predicts a new task, at the same W; ``level`` as for μ."""
    xp = array_namespace(low.mean)
    weight = given.weight
    a = (terms or round_terms(low, given, past)).surprise
    dim, rank = low.loadings.shape[-2:]
    w, eye = low.loadings, xp.eye(rank)
    inverse = 1.0 / xp.asarray(low.residual)
    each = inverse[..., None, None]
    scatter = scatter_around(past, low.mean)
    count = xp.maximum(weight.sum(-1) + scatter.number, 1e-300)
    each_h, v, m = woodbury(given.precision, w, a)
    past_m = spd_inverse(eye + each * (transpose(w) @ w))
    past_h = each * (xp.eye(dim) - each * (w @ past_m @ transpose(w)))
    own = (weight[..., None, None] * each_h).sum(-3)
    h = (own + transpose(own)) / 2 + scatter.number[..., None, None] * past_h
    total = (weight[..., None] * v).sum(-2) + matvec(past_h, scatter.first)
    error, shift = mean_step(low, h, total, level)
    mean = low.mean + shift
    v = v - symmetric_matvec(each_h, shift[..., None, :])
    # σ²: one step of Fisher scoring.
    scatter = scatter_around(past, mean)
    square = (weight * (v**2).sum(-1)).sum(-1) + trace(past_h @ scatter.second @ past_h)
    pull = trace(h @ error @ h) / count
    norm = (each_h**2).sum((-2, -1))
    curvature = (weight * norm).sum(-1) + scatter.number * (past_h**2).sum((-2, -1))
    step = (square - trace(h) + pull) / xp.maximum(curvature, 1e-300)
    residual = bounded_step(low.residual, step, w)
    # The number of directions that count as observed in every task.
    known = (weight[..., None] * (1.0 - xp.diagonal(m, axis1=-2, axis2=-1))).sum(-2)
    past_known = scatter.number[..., None] * (1.0 - xp.diagonal(past_m, axis1=-2, axis2=-1))
    return low.with_residual(
        residual,
        mean=mean,
        error=error,
        curvature=float_if_scalar(residual**2 * curvature),
        directions=float_if_scalar(((known + past_known) / count[..., None]).sum(-1)),
    ).predictive(count)


def fit_low_rank(
    low: LowRank,
    fit: Fit,
    tasks: Tasks,
    past: Past,
    rounds: Any = 1,
    sweeps: int = 2,
    level: bool = False,
) -> LowRank:
    """The low-rank population of tasks, from a first guess.

    Every one of the ``rounds`` (a number, or one for each batch element) has a new σ², for which
    the tasks' evidence is looked at again; it has several ``sweeps`` for W, which cost less.
    ``level`` says that the last coefficient is the level of log-odds.
    """
    noise = noise_variances(fit, tasks)
    tasks, past = scale_tasks(tasks, low.scale), scale_past(past, low.scale)
    xp = array_namespace(tasks.gram)

    def one_round(at: Any, before: LowRank) -> Any:
        given = task_precisions(tasks, noise, before.residual)
        terms = round_terms(before, given, past)

        def sweep(_: Any, low: LowRank) -> LowRank:
            return sweep_loadings(low, given, past, terms=terms)

        after = repeat(xp, sweeps, sweep, before)
        return select(at < rounds, sweep_mean(after, given, past, terms, level), before)

    return repeat(xp, xp.max(rounds), one_round, low)


def leave_one_out(
    low: LowRank, task: Tasks, noise: Array, count: Any, sign: float = 1.0
) -> LowRank:
    """The population without one of its tasks (or, with ``sign`` −1, with one more).

    At the maximum the gradients of all tasks sum to zero, so what is left without a task is minus
    its own. ``count`` is the number of tasks without it. O(d³).
    """
    precisions, moments, weights = task_precisions(
        scale_tasks(task, low.scale), noise, low.residual
    )
    w, eye = low.loadings, np.eye(low.loadings.shape[-1])
    surprises = moments - symmetric_matvec(precisions, low.mean[..., None, :])
    every = precisions, surprises, *woodbury(precisions, w, surprises)
    precision, a, h, v, m = (part.squeeze(low.mean.ndim - 1) for part in every)
    weight = sign * weights
    z = matvec(m, matvec(transpose(w), a))
    second = m + z[..., :, None] * z[..., None, :]
    before = np.asarray(low.residual)
    scaled = before[..., None, None] * weight[..., None]
    information = low.information - scaled * (precision + transpose(precision)) / 2
    p, q = np.linalg.eigh(information)
    gradient = a[..., :, None] * z[..., None, :] - precision @ w @ second
    bend = np.maximum(p, 0.0)[..., :, None] + low.relevance[..., None, :]
    step = low.active[..., None, :] * (transpose(q) @ gradient) / np.maximum(bend, 1e-300)
    # The factors' second moments were I with all tasks: parameter expansion.
    counts = np.maximum(np.asarray(count), 1.0)[..., None, None]
    second_moment = eye + weight[..., None] * (eye - second) / counts
    values, vectors = np.linalg.eigh((second_moment + transpose(second_moment)) / 2)
    values = np.clip(values, 0.25, 4.0)
    loadings = (w - scaled * (q @ step)) @ (
        (vectors * np.sqrt(values)[..., None, :]) @ transpose(vectors)
    )
    error = np.linalg.inv(np.linalg.inv(low.error) - weight[..., None] * (h + transpose(h)) / 2)
    error = (error + transpose(error)) / 2
    square = weight[..., 0] * before**2 * (h**2).sum((-2, -1))
    curvature = np.maximum(np.asarray(low.curvature) - square, square)
    excess = weight[..., 0] * before**2 * (trace(h) - (v**2).sum(-1))
    residual = bounded_step(before, excess / np.maximum(curvature, 1e-300), loadings)
    return (
        low.replace(information=information)
        .with_residual(
            residual,
            mean=low.mean - weight * matvec(error, v),
            loadings=loadings,
            error=error,
            curvature=float_if_scalar((residual / before) ** 2 * curvature),
        )
        .predictive(count)
    )


def bounded_step(residual: Any, step: Array, loadings: Array) -> Array:
    """σ² after a step, never 0 or less."""
    xp = array_namespace(loadings)
    before = xp.asarray(residual)
    after = xp.where(step > 0, before + step, before / (1.0 - xp.minimum(step, 0.0) / before))
    return xp.asarray(xp.maximum(after, MIN_RESIDUAL_SHARE * (loadings**2).sum(-2).max(-1)))
