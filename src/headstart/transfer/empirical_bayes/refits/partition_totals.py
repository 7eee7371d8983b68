"""The sums of a pass over a partition, in NumPy and compiled.

Fits of few tasks use NumPy; those of very many the loops of :mod:`headstart.kernels.task_totals`,
where Numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headstart.kernels import forms
from headstart.model.information_form import MAX_INFORMATION
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.passes import (
    LowRankSums,
    column_doubts,
    low_rank_totals,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.refits.passes import (
    NOISY_FACTOR,
    PassSums,
    add_up,
    task_totals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import Partitions, chunks

__all__ = ["compiled_totals", "partition_totals", "pass_function"]

LOOPS = "headstart.kernels.task_totals"
WORK_PER_ROW = 64  # products of features that are as much work as a row of a log

Sums = tuple[PassSums] | tuple[PassSums, LowRankSums]


def pass_function(partitions: Partitions) -> Callable[..., Sums]:
    """The function for passes over so many tasks with so many features."""
    work = len(partitions) * partitions.dim**2 // WORK_PER_ROW
    return partition_totals if forms.load_if_worth(LOOPS, work) is None else compiled_totals


def partition_totals(
    rows: Array, dim: int, fit: Fit, low: LowRank | None = None, scores_noise: bool = False
) -> Sums:
    """The sums over a partition's tasks, for one population or both.

    ``scores_noise`` says whether the scores of R² under the low-rank one are wanted.
    """
    some = list(map(Tasks.from_batch, chunks(rows, dim)))
    full = add_up(task_totals(fit, tasks) for tasks in some)
    if low is None:
        return (full,)
    return full, add_up(low_rank_totals(fit, low, tasks, scores_noise) for tasks in some)


def compiled_totals(
    rows: Array, dim: int, fit: Fit, low: LowRank | None = None, scores_noise: bool = False
) -> Sums:
    """:func:`partition_totals`, compiled; the same up to rounding."""
    loops = forms.load(LOOPS)
    if loops is None:  # on a machine of a cluster without Numba
        return partition_totals(rows, dim, fit, low, scores_noise)
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    mean, root = loops.padded(fit.mean), loops.padded(symmetric_root(fit.covariance), 2)
    noise, dof = float(fit.noise_variance), float(fit.dof)
    *sums, variances = loops.full_sums(
        rows, dim, mean, root, noise, dof, NOISY_FACTOR, MAX_INFORMATION
    )
    if not variances.all():  # a task's evidence spans too many orders of magnitude for the loops
        return partition_totals(rows, dim, fit, low, scores_noise)
    full = PassSums(np.asarray(float(len(rows))), *map(np.asarray, sums))
    if low is None:
        return (full,)
    active = np.flatnonzero(low.active)
    sums = loops.low_rank_sums(
        rows,
        dim,
        variances,
        loops.padded(low.mean),
        loops.padded(low.loadings[:, active]),
        float(low.residual),
        column_doubts(low)[active],
        MAX_INFORMATION,
        loops.padded(low.error, 2) if scores_noise else np.zeros((0, 0)),
        noise,
    )
    return full, all_columns(LowRankSums(*map(np.asarray, sums)), active, low.loadings.shape[-1])


def all_columns(totals: LowRankSums, active: Any, rank: int) -> LowRankSums:
    """The sums of some columns of W as those of all, of which the others are zero."""
    factors, shape = totals.count * np.eye(rank), (len(totals.cross), rank)
    cross, product = np.zeros(shape), np.zeros(shape)
    factors[np.ix_(active, active)] = totals.factors
    cross[:, active], product[:, active] = totals.cross, totals.product
    return totals._replace(factors=factors, cross=cross, product=product)
