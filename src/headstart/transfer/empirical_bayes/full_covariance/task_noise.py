"""Each task's own noise, shrunk towards the population's.

Users differ in how noisy their rewards are, and one broken sensor must not determine the noise of
all others. A task's variance is drawn from a scaled inverse χ² distribution::

    R_i² ~ ν s² / χ²_ν

With the residual sum of squares RSS_i of the task on f_i degrees of freedom, its posterior is of
the same kind, and R_i² is taken to be ::

    R_i² = (ν s² + RSS_i) / (ν + f_i)

RSS_i is that of least squares on the task alone, so that a task whose θ is unlike the others' is
not taken for a noisy one. Only a task hardly longer than its dimension has residuals around its
posterior mean instead (under the low-rank population where there is one:
:mod:`~headstart.transfer.empirical_bayes.low_rank.noise`), and these make it noisier by no more
than a factor of ten, unless its rewards are far larger than those of most tasks: whether that is
noise or an unusual θ, Σ is not to grow by it.

ν and s² are those that make all tasks' residuals likeliest: s² by Newton's method at every ν of a
grid, then the grid's average, weighted by likelihood. ν → ∞ is one noise for all.

Only sums up to Σr² are kept of a task, so a noisy task cannot be distinguished from one with a few
large rewards. Where this matters most it can be detected: the variance of clicks, counts and
amounts spent follows from their mean. If all rewards have one of two values, or the tasks' mean
rewards and residual variances have a high rank correlation (Spearman's), all tasks are given one
noise; otherwise tasks in which little happened would count for more than others. The two may also
have a high correlation by chance, or because both change with time, and the variance of a broken
sensor follows from no mean: a task with far more than the others has its own noise, and does not
count for theirs. Where noise is not shared, a task whose rewards are all equal has no information
on its noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import array_namespace, float_if_scalar, stable_argsort
from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.records import Array
from headstart.transfer.empirical_bayes.full_covariance.gamma import digamma, log_gamma
from headstart.transfer.empirical_bayes.full_covariance.population import lower_median
from headstart.transfer.empirical_bayes.tasks import Tasks

#: The degrees of freedom that are tried, and how likely each is before there are tasks.
DOF_GRID = 2.0 ** np.arange(0.0, 10.1, 0.5)
LOG_PRIOR = 0.3 * np.log2(DOF_GRID)
MIN_NOISE_SHARE = 1e-6  # the least s², as a share of the mean square reward
EXPECTED_NOISE_SHARE = 0.1  # of the variance of rewards, that s² is expected to be
PSEUDO_RESIDUALS = 5.0  # how many pseudo-residuals there are at first
SUFFICIENT_RESIDUALS = 20.0  # real residuals that make these superfluous
NEWTON_STEPS = 6
#: Degrees of freedom beyond which a task's noise is known as well as can be computed with: a
#: log-likelihood of more would lose the digits that distinguish populations.
MAX_DOF = 1e8
MAX_SHORT_TASK_RATIO = 100.0  # times s², for R_i² of a task too short for least squares
MIN_RANK_CORRELATION = 0.5  # at which the variance of rewards is taken to follow from their mean
MIN_STANDARD_ERRORS = 3.0  # that the correlation must be away from zero
NOISIEST_SHARE = 0.1  # of the tasks, beside whose variance
FAR_NOISIER = 1e3  # times as much is a task's own, even where all others are given one noise
FAR_LARGER_SQUARE = 1e3  # times the usual mean square reward, from which R_i² has no limit


class Residuals(NamedTuple):
    """Tasks' residual sums of squares, their degrees of freedom, and what each task counts.

    ``is_shared`` says that all tasks are given the same noise.
    """

    square: Array
    dof: Array
    weight: Array
    is_shared: Any = False


def usable_residuals(
    tasks: Tasks,
    square: Array,
    dof: Array,
    constant: bool,
    noise: Any,
    expected: Array | None = None,
) -> Residuals:
    """Residuals, with no degrees of freedom where they do not determine the noise.

    ``square`` and ``dof`` are those around the posterior means, for tasks that are too short
    for least squares; ``noise`` is s². ``constant`` says that the last feature is 1 in every
    context, so that Σr is known. ``expected`` is the mean square reward of each task that a
    population leads to expect, where it may be less than the median of these tasks.
    """
    xp = array_namespace(square)
    dof = xp.maximum(dof, 0.0)  # rounds of small weight can be fewer than what they determine
    square = xp.where(dof > 0, xp.maximum(square, 0.0), 0.0)
    size = tasks.squares / xp.maximum(tasks.rounds, 1e-300)
    usual = lower_median(size, (size > 0) & (tasks.weight > 0))
    usual = usual if expected is None else xp.minimum(usual, expected)
    most = MAX_SHORT_TASK_RATIO * dof * xp.asarray(noise)[..., None]
    square = xp.where(size > FAR_LARGER_SQUARE * usual, square, xp.minimum(square, most))
    long = tasks.dof >= MIN_RESIDUAL_DOF
    square = xp.where(long, tasks.residual, square)
    dof = xp.where(long, tasks.dof, dof)
    share = MAX_DOF / xp.maximum(dof, MAX_DOF)
    square, dof = share * square, share * dof
    if not constant:
        informative = tasks.squares > 0
        return Residuals(square * informative, dof * informative, tasks.weight)
    task_rewards, counted = tasks.moment[..., -1], tasks.weight > 0
    # Rewards of 0 and a: Σr² = a Σr for every task, with the same a.
    reward_sum = (counted * task_rewards).sum(-1)
    value = (counted * tasks.squares).sum(-1) / xp.where(reward_sum != 0, reward_sum, 1.0)
    deviation = xp.abs(tasks.squares - value[..., None] * task_rewards)
    is_shared = ((deviation <= 1e-9 * tasks.squares) | ~counted).all(-1) & (reward_sum != 0)
    total = xp.maximum(tasks.gram[..., -1, -1], 1e-300)  # where rewards are means, not the rounds
    spread = tasks.squares - task_rewards**2 / total
    informative = spread > 1e-12 * tasks.squares
    variance = square / xp.maximum(dof, 1e-300)
    is_shared = is_shared | are_correlated(
        task_rewards / total, variance, counted & informative & (dof > 0)
    )
    odd = are_far_noisier(variance, counted & informative & (dof > 0)) & is_shared[..., None]
    known = xp.where(odd, MAX_DOF / xp.maximum(dof, 1e-300), 1.0)  # by its own residuals alone
    known = known * (informative | is_shared[..., None])
    return Residuals(square * known, dof * known, tasks.weight * ~odd, is_shared)


def are_far_noisier(variance: Array, counted: Array) -> Array:
    """Which of the tasks that are counted have a variance far above that of the noisiest tenth.

    >>> are_far_noisier(np.array([1e6, 1.0, 2.0, 3.0]), np.array([True, True, True, True]))
    array([ True, False, False, False])
    """
    if not variance.shape[-1]:
        return counted
    xp, count = array_namespace(variance), counted.sum(-1, keepdims=True)
    above = xp.maximum((count * NOISIEST_SHARE).astype(int), count > 2)  # one may be odd
    ranked = xp.sort(xp.where(counted, variance, 0.0), axis=-1)
    usual = xp.take_along_axis(ranked, ranked.shape[-1] - 1 - above, -1)
    return xp.asarray(counted & (variance > FAR_NOISIER * usual))


def are_correlated(first: Array, second: Array, counted: Array) -> Any:
    """Whether the ranks of two numbers of the tasks that are counted have a high correlation.

    >>> mean = np.linspace(0.0, 1.0, 50)
    >>> are_correlated(mean, mean**3, mean >= 0), are_correlated(mean, np.sin(9 * mean), mean >= 0)
    (np.True_, np.False_)
    """
    xp, count = array_namespace(first), counted.sum(-1) * 1.0
    middle = (count - 1.0)[..., None] / 2.0

    def ranks(values: Array) -> Array:
        order = stable_argsort(xp.where(counted, values, xp.inf))
        return xp.where(counted, stable_argsort(order) - middle, 0.0)

    covariance = xp.abs((ranks(first) * ranks(second)).sum(-1))
    variance = count * (count**2 - 1.0) / 12.0
    least = xp.maximum(MIN_RANK_CORRELATION, MIN_STANDARD_ERRORS / xp.sqrt(xp.maximum(count, 1.0)))
    return covariance > least * variance


def task_variance(noise: Any, dof: Any, square: Array, residual_dof: Array) -> Array:
    """R_i² of every task, from its residuals and the population's noise."""
    xp = array_namespace(square)
    scale, population_dof = xp.asarray(noise)[..., None], xp.asarray(dof)[..., None]
    return (population_dof * scale + square) / (population_dof + residual_dof)


def pseudo_residuals(dof: Any, past: Any = 0.0) -> Any:
    """How many pseudo-residuals of the expected size are added to ``dof`` real ones.

    Each of the ``past`` tasks is worth a sufficient number.
    """
    real = SUFFICIENT_RESIDUALS + dof + past * SUFFICIENT_RESIDUALS
    return PSEUDO_RESIDUALS * (SUFFICIENT_RESIDUALS / real) ** 2


def population_noise(
    residuals: Residuals,
    past: tuple[Any, Any, Any],
    usual: Array,
    before: Any,
    spread: Any = None,
) -> tuple[Any, Any]:
    """s² and ν of the tasks with these residuals, and of those long past.

    ``past`` is how many these are, Σ E[1/R²] and Σ E[log R²] over them; ``usual`` is the mean
    square reward, ``before`` the s² to start from, and ``spread`` how much rewards vary: their mean
    square unless given.
    """
    xp = array_namespace(residuals.square)
    total_dof = xp.asarray((residuals.weight * residuals.dof).sum(-1))
    count, precision, logs = (xp.asarray(value) for value in past)
    # Tasks shorter than their dimension hardly separate noise from θ: a few pseudo-residuals.
    pseudo, expected = pseudo_residuals(total_dof, count), usual if spread is None else spread
    square = xp.concatenate(
        [residuals.square, (pseudo * EXPECTED_NOISE_SHARE * expected)[..., None]], -1
    )
    dof = xp.concatenate([residuals.dof, pseudo[..., None]], -1)
    weight = xp.concatenate([residuals.weight, xp.ones_like(pseudo)[..., None]], -1)
    # The unit of the rewards drops out: everything is in terms of the s² to start from.
    unit = xp.maximum(xp.asarray(before), 1e-300)
    square = square[..., None, :] / unit[..., None, None]
    dof, weight = dof[..., None, :], weight[..., None, :]
    grid = xp.broadcast_to(DOF_GRID, (*unit.shape, len(DOF_GRID)))
    half = (grid[..., None] + dof) / 2.0
    log_scale = xp.zeros_like(grid)
    past_precision = (precision * unit)[..., None]
    tasks = (weight * (dof > 0)).sum(-1) + count[..., None]
    for _ in range(NEWTON_STEPS):
        scale = xp.exp(log_scale)[..., None] * grid[..., None]
        share = scale / (scale + square)
        slope = (weight * (grid[..., None] / 2.0 - half * share) * (dof > 0)).sum(-1)
        slope = slope + (grid / 2.0) * (count[..., None] - xp.exp(log_scale) * past_precision)
        curvature = (weight * half * share * (1.0 - share) * (dof > 0)).sum(-1)
        curvature = curvature + (grid / 2.0) * xp.exp(log_scale) * past_precision
        step = slope / xp.maximum(curvature, 1e-3 * grid * xp.maximum(tasks, 1.0) / 2.0)
        log_scale = log_scale + xp.clip(step, -3.0, 3.0)
    scale = xp.exp(log_scale) * grid
    log_density = (
        weight
        * (
            log_gamma(half)
            - log_gamma(grid / 2.0)[..., None]
            + (grid / 2.0 * xp.log(scale))[..., None]
            - half * xp.log(scale[..., None] + square)
        )
        * (dof > 0)
    ).sum(-1)
    log_density = log_density + count[..., None] * (
        grid / 2.0 * xp.log(scale / 2.0) - log_gamma(grid / 2.0)
    )
    shifted = logs - count * xp.log(unit)
    log_density = log_density - grid / 2.0 * shifted[..., None] - scale / 2.0 * past_precision
    log_density = log_density + LOG_PRIOR
    is_excluded = xp.asarray(residuals.is_shared)[..., None] & (DOF_GRID[-1] > DOF_GRID)
    log_density = xp.where(is_excluded, -xp.inf, log_density)
    probability = xp.exp(log_density - log_density.max(-1, keepdims=True))
    probability = probability / probability.sum(-1, keepdims=True)
    noise = unit * xp.exp((probability * log_scale).sum(-1))
    noise = xp.where(usual > 0, xp.maximum(noise, MIN_NOISE_SHARE * usual), xp.asarray(before))
    return float_if_scalar(noise), float_if_scalar(xp.exp((probability * xp.log(grid)).sum(-1)))


def expected_precision_and_log(noise: Any, dof: Any, residuals: Residuals) -> tuple[Array, Array]:
    """E[1/R²] and E[log R²] of every task, given its residuals."""
    xp = array_namespace(residuals.square)
    scale, population_dof = xp.asarray(noise)[..., None], xp.asarray(dof)[..., None]
    total, half = population_dof * scale + residuals.square, (population_dof + residuals.dof) / 2.0
    return 2.0 * half / total, xp.log(total / 2.0) - digamma(half)
