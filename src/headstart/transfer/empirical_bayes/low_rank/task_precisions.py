"""What tasks, past ones included, contribute to a low-rank population.

The model is in :mod:`~headstart.transfer.empirical_bayes.low_rank.fitting`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headstart.arrays import array_namespace, transpose
from headstart.model.information_form import MAX_INFORMATION
from headstart.records import Array
from headstart.small_matrices import ridge_solve
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.tasks import Tasks


class TaskPrecisions(NamedTuple):
    """What tasks contribute to W and μ, for one σ² and their noise: A_i, a_i at μ = 0, weights."""

    precision: Array
    moment: Array
    weight: Array


def task_precisions(tasks: Tasks, noise_variance: Array, residual: Any) -> TaskPrecisions:
    """A_i and (R_i² I + σ² G_i)⁻¹ b_i of every task.

    A task without evidence has no weight, nor has one whose evidence spans so many orders of
    magnitude that digits are lost.
    """
    xp = array_namespace(tasks.gram)
    spread = xp.asarray(residual)
    diagonal = xp.diagonal(tasks.gram, axis1=-2, axis2=-1).max(-1, initial=0.0)
    accurate = (diagonal * spread[..., None] <= MAX_INFORMATION * noise_variance) & (diagonal > 0)
    precision = 1.0 / xp.where(accurate, noise_variance, xp.inf)
    solved = ridge_solve(tasks.gram, tasks.moment, precision, spread)
    return TaskPrecisions(*solved, tasks.weight * accurate)


class PastScatter(NamedTuple):
    """Tasks of the past around μ: how many, Σ (θ − μ) and Σ (θ − μ)(θ − μ)ᵀ."""

    number: Array
    first: Array
    second: Array


def scatter_around(past: Past, mean: Array) -> PastScatter:
    """The past around a mean."""
    xp = array_namespace(mean)
    count = xp.asarray(past.count)
    cross = past.first[..., :, None] * mean[..., None, :]
    square = mean[..., :, None] * mean[..., None, :]
    return PastScatter(
        count,
        past.first - count[..., None] * mean,
        past.second - cross - transpose(cross) + count[..., None, None] * square,
    )


def scale_tasks(tasks: Tasks, scale: Array) -> Tasks:
    """Tasks in features multiplied by a scale."""
    each = scale[..., None, :]
    gram = tasks.gram * (each[..., :, None] * each[..., None, :])
    return tasks.replace(gram=gram, moment=tasks.moment * each)


def scale_past(past: Past, scale: Array) -> Past:
    """Tasks of the past in features multiplied by a scale."""
    second = past.second / (scale[..., :, None] * scale[..., None, :])
    return past.replace(first=past.first / scale, second=second)
