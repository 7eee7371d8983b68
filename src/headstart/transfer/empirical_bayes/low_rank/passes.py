"""Fitting the low-rank population to very many tasks: each step is one pass over partitions.

The fit starts from that of some of the tasks. A pass adds up, over all tasks, what one sweep of
:mod:`~headstart.transfer.empirical_bayes.low_rank.fitting` needs. The sweep's equation for W is not
solved but improved by one step, preconditioned by Σ A_i: with hundreds of tasks Σ A_i W Z_i is
nearly (Σ A_i) W once the factors have unit second moments. μ and σ² take their steps from the W of
the pass before. All sums are additive, so that they are the same however tasks are divided.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import congruence, float_if_scalar, matvec, trace, transpose
from headstart.records import Array
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.fitting import (
    bounded_step,
    orthogonal_columns,
)
from headstart.transfer.empirical_bayes.low_rank.mean import mean_step
from headstart.transfer.empirical_bayes.low_rank.noise import (
    NoiseScores,
    noise_scores,
    noise_step,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, column_variances
from headstart.transfer.empirical_bayes.low_rank.task_precisions import scale_tasks, task_precisions
from headstart.transfer.empirical_bayes.refits.passes import counting_noise
from headstart.transfer.empirical_bayes.tasks import Tasks

__all__ = [
    "LowRankSums",
    "column_doubts",
    "factor_rotation",
    "low_rank_step",
    "low_rank_totals",
    "noise_after_step",
]


class LowRankSums(NamedTuple):
    """The sums of a pass over some tasks."""

    count: Any
    precision: Array  # Σ A
    factors: Array  # Σ Z
    cross: Array  # Σ a zᵀ
    product: Array  # Σ A W Z
    known: Array  # Σ H
    total: Array  # Σ v
    square: Any  # Σ ‖v‖²
    curvature: Any  # Σ ‖H‖²
    directions: Any  # Σ tr (I − M)
    noise: Array  # Σ of the scores of R², in the order of ``NoiseScores``, or zeros

    def rotate(self, turn: Array) -> LowRankSums:
        """The same sums for the loadings W Q with a rotation Q of the factors."""
        return self._replace(
            factors=congruence(transpose(turn), self.factors),
            cross=self.cross @ turn,
            product=self.product @ turn,
        )


def low_rank_totals(
    fit: Fit, low: LowRank, tasks: Tasks, scores_noise: bool = False
) -> LowRankSums:
    """The sums over tasks at hand; those much noisier than the others count by their own noise.

    The scores of R² are summed over the others, where they are wanted.
    """
    noise, tasks = counting_noise(fit, tasks), scale_tasks(tasks, low.scale)
    given = task_precisions(tasks, noise, low.residual)
    a_matrix, b_vector, weight = given
    w, eye = low.loadings, np.eye(low.loadings.shape[-1])
    a = b_vector - matvec(a_matrix, low.mean)
    x = a_matrix @ w
    inner = transpose(w) @ x
    m = np.linalg.inv(
        inner + eye * (1.0 + trace(a_matrix)[..., None] * column_doubts(low))[..., None, :]
    )
    z = matvec(m, matvec(transpose(w), a))
    second = weight[..., None, None] * (m + z[..., :, None] * z[..., None, :])
    # With the factors integrated out.
    plain = np.linalg.inv(inner + eye)
    xm = x @ plain
    v = a - matvec(xm, matvec(transpose(w), a))
    xx = transpose(x) @ x
    norm = (a_matrix**2).sum((-2, -1)) - 2.0 * (plain * (transpose(x) @ (a_matrix @ x))).sum(
        (-2, -1)
    )
    norm = np.maximum(norm + trace(plain @ xx @ plain @ xx), 0.0)
    precision = (weight[..., None, None] * a_matrix).sum(-3)
    removed = np.einsum("n,nik,njk->ij", weight, xm, x)
    scores = np.zeros(len(NoiseScores._fields))
    if scores_noise:
        usual = weight * (noise == fit.noise_variance)
        scores = np.stack(noise_scores(low, tasks, noise, given)) @ usual
    return LowRankSums(
        weight.sum(-1),
        precision,
        second.sum(-3),
        transpose(a) @ (weight[..., None] * z),
        (x @ second).sum(-3),
        precision - removed,
        (weight[..., None] * v).sum(-2),
        (weight * (v**2).sum(-1)).sum(-1),
        (weight * norm).sum(-1),
        (weight * (len(eye) - trace(plain))).sum(-1),
        scores,
    )


def column_doubts(low: LowRank) -> Array:
    """Σ_j Var[c, j] p_j / Σ_j p_j of every column of W.

    Times tr A_i it is t_i diag_c(Σ_j Var[c, j] p_j / N) with t_i = tr A_i / mean tr A.
    """
    p = np.maximum(np.linalg.eigvalsh(low.information / np.asarray(low.residual)), 0.0)
    alpha = low.relevance / np.asarray(low.residual)
    variances = column_variances(p, alpha, low.active)
    doubts: Array = (variances * p).sum(-1) / np.maximum(p.sum(), 1e-300)
    return doubts


def factor_rotation(before: LowRank, after: LowRank) -> Array:
    """The rotation Q of the factors that brings the loadings before nearest to those after.

    After a step the columns of W are in another order or have other signs.
    """
    left, _, right = np.linalg.svd(transpose(before.loadings) @ after.loadings)
    turn: Array = left @ right
    return turn


def noise_after_step(fit: Fit, totals: LowRankSums) -> Fit:
    """The fit with the noise of the usual tasks after one scoring step from the sums of a pass."""
    step, _ = noise_step(NoiseScores(*totals.noise))
    return fit.replace(noise_variance=float_if_scalar(fit.noise_variance * np.exp(step)))


def low_rank_step(low: LowRank, totals: LowRankSums, level: bool = False) -> LowRank:
    """The fit after one step from the sums of a pass; ``level`` as in ``fit_low_rank``."""
    count = np.maximum(totals.count, 1e-300)
    eye = np.eye(low.loadings.shape[-1])
    information = (totals.precision + transpose(totals.precision)) / 2
    p, q = np.linalg.eigh(information)
    p = np.maximum(p, 0.0)
    doubt = column_variances(p, low.relevance / np.asarray(low.residual), low.active).sum(-1)
    lower = np.linalg.cholesky(
        (totals.factors + transpose(totals.factors)) / (2 * count) + 1e-12 * eye
    )
    back = np.linalg.inv(lower)
    w = low.loadings @ lower
    square = (w**2).sum(-2) + matvec(transpose(lower**2), doubt)
    alpha = np.where(low.active, w.shape[-2] / np.maximum(square, 1e-300), 0.0)
    gradient = (totals.cross - totals.product) @ transpose(back) - w * alpha
    scale = low.active / np.maximum(p[:, None] + alpha, 1e-300)
    w = w + q @ (scale * (transpose(q) @ gradient))
    variance = column_variances(p, alpha, low.active)
    # μ and σ², at the W of the pass.
    known = (totals.known + transpose(totals.known)) / 2
    error, shift = mean_step(low, known, totals.total, level)
    # Around the new mean, with tasks as they are on average.
    moved = -2.0 * totals.total @ matvec(known, shift) / count
    moved = moved + (matvec(known, shift) ** 2).sum(-1) / count
    excess = totals.square + moved - trace(known) + trace(known @ error @ known) / count
    residual = bounded_step(low.residual, excess / np.maximum(totals.curvature, 1e-300), w)
    low = orthogonal_columns(low, w, variance, low.active, automatic=True)
    ratio = residual / np.asarray(low.residual)
    return low.replace(
        mean=low.mean + shift,
        residual=float_if_scalar(residual),
        relevance=ratio * low.relevance,
        error=error,
        information=residual * information,
        curvature=float_if_scalar(residual**2 * totals.curvature),
        directions=float_if_scalar(totals.directions / count),
    ).predictive(count)
