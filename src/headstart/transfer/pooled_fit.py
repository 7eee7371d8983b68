"""The fit of very many tasks: pool their evidence, standardize the features, fit the transfer.

Fits in memory and fits of logs share these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart.errors import InputError
from headstart.model.evidence import Evidence, packed_size
from headstart.records import Array
from headstart.transfer.base import Transfer
from headstart.transfer.empirical_bayes.refits.passes import SUBSET_TASKS
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import (
    location_and_scale,
    pooled_moments,
)
from headstart.transfer.partitions import Partitions
from headstart.transfer.standardize import Standardization

FAR_VARIANCE = 10.0  # of all rows, as a multiple of that of ordinary tasks: few rows make it up


class PooledFit(NamedTuple):
    """A fit of tasks.

    Attributes
    ----------
    state
        The transfer's state, of features in their units.
    pooled
        The sums of all tasks together, of features in their units.
    units
        The origin and the units of features, if they were standardized.
    partitions
        The tasks, of features in their units.
    """

    state: Any
    pooled: Evidence
    units: Standardization | None
    partitions: Partitions

    def packed_evidence(self, ids: Sequence[Sequence[str]]) -> dict[str, Array]:
        """The packed evidence of every task, given the ids of the tasks of each partition."""
        return {
            name: row
            for partition, names in enumerate(ids)
            for name, row in zip(names, self.partitions.rows(partition), strict=True)
        }


def refuse_forced_rounds(transfer: Transfer) -> None:
    """Refuse a transfer that learns from forced rounds alone, which rows do not mark."""
    if transfer.keeps_forced:
        raise InputError(
            f"transfer must learn from all rounds; {transfer!r} learns from forced rounds alone, "
            f"which rows do not mark: use Gaussian(forced=False)"
        )


def pool(partitions: Partitions) -> Evidence:
    """The sums of all tasks together."""
    total = sum(partitions.map(partition_sum), np.zeros(packed_size(partitions.dim)))
    return Evidence.unpack(total, partitions.dim)


def partition_sum(rows: Array, dim: int) -> Array:
    """The sums of all tasks of a partition."""
    return rows.sum(0)


def fit_standardized(
    transfer: Transfer,
    partitions: Partitions,
    pooled: Evidence,
    noise: float | None,
    *,
    intercept: bool,
    standardize: bool,
    refits_lone_task: bool = True,
) -> PooledFit:
    """Fit a transfer to tasks whose sums together are ``pooled``.

    Parameters
    ----------
    transfer
        The transfer, with the setting whether there is a constant feature.
    partitions, pooled
        The tasks, and the sums of all of them (:func:`pool`).
    noise
        R; ``None`` to estimate it.
    intercept
        Whether the last feature is constant.
    standardize
        Whether to centre features (with an intercept) and to divide them by their standard
        deviations (without, by their root mean squares), as :func:`usual_units` gives them.
    refits_lone_task
        Whether a single task is fitted like several. Otherwise it is folded once, which is faster:
        a single task says little about what tasks share.
    """
    units = None
    if standardize:
        units = usual_units(partitions, pooled, intercept)
        partitions, pooled = partitions.in_units(units), units.evidence(pooled)
    if len(partitions) == 1 and not refits_lone_task:
        state = transfer.fold(transfer.init(partitions.dim, noise), pooled)
    else:
        state = transfer.refit_partitions(partitions, noise)
    return PooledFit(state, pooled, units, partitions)


def usual_units(partitions: Partitions, pooled: Evidence, intercept: bool) -> Standardization:
    """The mean and the standard deviation of every feature.

    They are those of all rows, or where a few tasks have values so far out that they make up the
    variance, those of ordinary tasks. Otherwise the coefficients of the others would be too large
    for the few steps of a fit.
    """
    units = Standardization.of(pooled, constant=partitions.dim - 1 if intercept else None)
    rows = partitions.slice(0, min(len(partitions), SUBSET_TASKS))
    tasks = Tasks.from_batch(Evidence.unpack(rows, partitions.dim))
    first, second = pooled_moments(tasks, intercept)
    shift, inverse = location_and_scale(first, second, intercept)
    far = (inverse * units.scale) ** 2 > FAR_VARIANCE
    if intercept:
        far[-1] = False
    scale = np.where(far, 1.0 / np.where(far, inverse, 1.0), units.scale)
    return units._replace(shift=np.where(far, shift, units.shift), scale=scale)
