"""The low-rank population of very many tasks: each step is one pass over partitions.

The fit starts from that of some of the tasks. A pass adds up, over all tasks, what one sweep of
:mod:`~headstart.transfer.empirical_bayes.low_rank.fitting` needs. The sweep's equation for W is not
solved but improved by one step, preconditioned by Σ A_i: with hundreds of tasks Σ A_i W Z_i is
nearly (Σ A_i) W once the factors have unit second moments. μ and σ² take their steps from the W of
the pass before. All sums are additive, so that they are the same however tasks are divided.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import attempt, congruence, float_if_scalar, matvec, trace, transpose
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.records import Array
from headstart.small_matrices import (
    projected_inverse,
    sum_of_products,
    symmetric_matvec,
    woodbury,
)
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.fitting import (
    bounded_step,
    orthogonal_columns,
    relevance,
)
from headstart.transfer.empirical_bayes.low_rank.mean import mean_step
from headstart.transfer.empirical_bayes.low_rank.noise import (
    NoiseScores,
    noise_scores,
    noise_step,
)
from headstart.transfer.empirical_bayes.low_rank.population import (
    LowRank,
    column_variances,
    start_low_rank,
)
from headstart.transfer.empirical_bayes.low_rank.task_precisions import scale_tasks, task_precisions
from headstart.transfer.empirical_bayes.low_rank.update import (
    FRESH_ROUNDS,
    SWEEPS,
    WARM_ROUNDS,
    safe_fit,
)
from headstart.transfer.empirical_bayes.refits.passes import Passes, Subset, counting_noise
from headstart.transfer.empirical_bayes.tasks import Tasks

FIRST_NOISE_STEPS = 4  # on the first tasks, where tasks are short


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

    def rotate(self, rotation: Array) -> LowRankSums:
        """The same sums for the loadings W Q with a rotation Q of the factors."""
        return self._replace(
            factors=congruence(transpose(rotation), self.factors),
            cross=self.cross @ rotation,
            product=self.product @ rotation,
        )


def low_rank_totals(
    fit: Fit, low: LowRank, tasks: Tasks, scores_noise: bool = False
) -> LowRankSums:
    """The sums over tasks in memory; those much noisier than the others count by their own noise.

    The scores of R² are summed over the others, where they are wanted.
    """
    noise, tasks = counting_noise(fit, tasks), scale_tasks(tasks, low.scale)
    given = task_precisions(tasks, noise, low.residual)
    precision, moment, weight = given
    w, each = low.loadings, weight[..., None, None]
    a = moment - symmetric_matvec(precision, low.mean)
    m = projected_inverse(
        precision, w, 1.0 + trace(precision)[..., None] * column_uncertainties(low)
    )
    z = matvec(m, matvec(transpose(w), a))
    second = m + z[..., :, None] * z[..., None, :]
    h, v, m = woodbury(precision, w, a)  # with the factors integrated out
    scores = np.zeros(len(NoiseScores._fields))
    if scores_noise:
        usual = weight * (noise == fit.noise_variance)
        scores = np.stack(noise_scores(low, tasks, noise, given)) @ usual
    return LowRankSums(
        weight.sum(-1),
        (each * precision).sum(-3),
        (each * second).sum(-3),
        transpose(a) @ (weight[..., None] * z),
        sum_of_products(precision, w, second, weight),
        (each * h).sum(-3),
        weight @ v,
        weight @ (v**2).sum(-1),
        weight @ (h**2).sum((-2, -1)),
        weight @ (w.shape[-1] - trace(m)),
        scores,
    )


def column_uncertainties(low: LowRank) -> Array:
    """Σ_j Var[c, j] p_j / Σ_j p_j of every column of W.

    Times tr A_i it is t_i diag_c(Σ_j Var[c, j] p_j / N) with t_i = tr A_i / mean tr A.
    """
    p = np.maximum(np.linalg.eigvalsh(low.information / np.asarray(low.residual)), 0.0)
    alpha = low.relevance / np.asarray(low.residual)
    variances = column_variances(p, alpha, low.active)
    return (variances * p).sum(-1) / np.maximum(p.sum(), 1e-300)


def factor_rotation(before: LowRank, after: LowRank) -> Array:
    """The rotation Q of the factors that brings the loadings before nearest to those after.

    After a step the columns of W are in another order or have other signs.
    """
    left, _, right = np.linalg.svd(transpose(before.loadings) @ after.loadings)
    return left @ right


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
    uncertainty = column_variances(p, low.relevance / np.asarray(low.residual), low.active).sum(-1)
    lower = np.linalg.cholesky(
        (totals.factors + transpose(totals.factors)) / (2 * count) + 1e-12 * eye
    )
    lower_inverse = np.linalg.inv(lower)
    w = low.loadings @ lower
    alpha = relevance(w, matvec(transpose(lower**2), uncertainty), low.active)
    gradient = (totals.cross - totals.product) @ transpose(lower_inverse) - w * alpha
    scale = low.active / np.maximum(p[:, None] + alpha, 1e-300)
    w = w + q @ (scale * (transpose(q) @ gradient))
    variance = column_variances(p, alpha, low.active)
    # μ and σ², at the W of the pass.
    known = (totals.known + transpose(totals.known)) / 2
    error, shift = mean_step(low, known, totals.total, level)
    # Around the new mean, with tasks as they are on average.
    shift_term = -2.0 * totals.total @ matvec(known, shift) / count
    shift_term = shift_term + (matvec(known, shift) ** 2).sum(-1) / count
    excess = totals.square + shift_term - trace(known) + trace(known @ error @ known) / count
    residual = bounded_step(low.residual, excess / np.maximum(totals.curvature, 1e-300), w)
    low = low.replace(information=np.asarray(low.residual) * information)
    low = orthogonal_columns(low, w, variance, low.active, automatic=True)
    return low.with_residual(
        residual,
        mean=low.mean + shift,
        error=error,
        curvature=float_if_scalar(residual**2 * totals.curvature),
        directions=float_if_scalar(totals.directions / count),
    ).predictive(count)


class LowRankSearch:
    """The low-rank population of the tasks of partitions, step by step.

    It starts from a fit to the first tasks.

    Parameters
    ----------
    passes
        The passes over all tasks, which sum for the full covariance and for this population.
    fit
        The population with a full covariance.
    first
        The first tasks.
    known_noise
        R where it is given, else 0.
    level
        Whether the last coefficient is the level of log-odds, whose mean is not shrunk.

    Attributes
    ----------
    population
        The population without the tasks that are left out.
    noise
        s², if tasks are too short on average to estimate it by least squares; else ``None``.
    """

    before: LowRank
    totals: LowRankSums
    noise: Any

    def __init__(
        self, passes: Passes, fit: Fit, first: Tasks, known_noise: float, level: bool = False
    ) -> None:
        self.passes, self.noise, self.level = passes, None, level
        past = Past.zero(fit.mean.shape[-1])
        first = first.replace(noise_variance=counting_noise(fit, first))
        low = start_low_rank(fit, float(len(first)))
        low = safe_fit(low, fit, first, past, FRESH_ROUNDS, SWEEPS, level)
        short = first.rounds.mean() < fit.mean.shape[-1] + MIN_RESIDUAL_DOF
        if short and not known_noise and low.active.any():
            for _ in range(FIRST_NOISE_STEPS):
                fit = noise_after_step(fit, low_rank_totals(fit, low, first, True))
                first = first.replace(noise_variance=counting_noise(fit, first))
                low = safe_fit(low, fit, first, past, WARM_ROUNDS, SWEEPS, level)
            self.noise = fit.noise_variance
        self.population, self.tasks = low, len(first)

    @property
    def active(self) -> bool:
        """Whether tasks differ along any direction."""
        return bool(self.population.active.any())

    @property
    def estimates_noise(self) -> bool:
        """Whether s² is that of this population."""
        return self.noise is not None

    def with_noise(self, fit: Fit) -> Fit:
        """The population with a full covariance, with s² where this one estimates it."""
        return fit if self.noise is None else fit.replace(noise_variance=self.noise)

    def arguments(self, subset: Subset) -> tuple[LowRank, bool]:
        """The population for the next pass, and whether it is to score the noise.

        Its information is that of as many tasks as the pass will stand for.
        """
        tasks = self.passes.stands_for(subset)
        information = self.population.information * (tasks / self.tasks)
        self.population, self.tasks = self.population.replace(information=information), tasks
        return self.population, self.estimates_noise

    def step(self, fit: Fit, totals: LowRankSums, others: LowRankSums) -> None:
        """One step from the sums of a pass with the population and a fit.

        ``others`` are the sums without the tasks that are left out, which then measure how well the
        population predicts.
        """
        self.before, self.totals = self.population, totals
        if self.estimates_noise:
            self.noise = noise_after_step(fit, totals).noise_variance
        self.population = step_if_sound(self.before, others, self.level)
        if self.passes.correction is not None:
            full, low_rank = self.passes.correction
            rotation = factor_rotation(self.before, self.population)
            self.passes.correction = full, low_rank.rotate(rotation)

    def finish(self) -> LowRank:
        """The population with the tasks that were left out: the last step once more, with them."""
        return step_if_sound(self.before, self.totals, self.level)


def step_if_sound(low: LowRank, totals: LowRankSums, level: bool) -> LowRank:
    """The population after a step, or before it where estimated sums allow none.

    They may be sums that no tasks have where a few tasks outweigh all others.
    """
    after = attempt(low_rank_step, low, totals, level)
    return low if after is None or not after.finite.all() else after
