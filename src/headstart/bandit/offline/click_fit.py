"""A prior from rows whose rewards are 0 or 1, in a few passes over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart.model.evidence import Evidence
from headstart.model.logistic import posterior_evidence
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.transfer.partitions import Partitions
from headstart.transfer.pooled_fit import PooledFit, pool, usual_units
from headstart.transfer.standardize import Standardization

if TYPE_CHECKING:
    from headstart.bandit.offline.fitting import OneTask

CLICK_PASSES = 4  # over the rows


def no_progress(share: float) -> None:
    """Show nothing."""


def fit_clicks(
    transfer: Transfer,
    expand: Callable[[Prior, Standardization | None], Partitions],
    partitions: Partitions,
    pooled: Evidence,
    intercept: bool,
    standardize: bool,
    progress: Callable[[float], None] = no_progress,
) -> PooledFit:
    """Fit a transfer to rewards of 0 and 1, in a few passes over the rows.

    Every pass expands the rewards of each task around its posterior under a prior: first
    :func:`first_click_prior`, then the average of the priors of the passes before, the latest of
    which counts half. (A wide prior makes clicks look expected and a narrow one is learned from
    them, and the reverse: without the average, passes alternate between the two.) Priors are rough
    ones but for the last.

    Passes are fitted in the same units, those of all rows. In units that weight rows by their
    information on log-odds, a value that was never clicked on would get a smaller unit with every
    pass. Where a few tasks have values far out, units are those of the other tasks: in others, the
    first prior would take the coefficients of all tasks for 0. The order of rows does not matter.

    The mean of the intercept is not shrunk with those of the other coefficients. Were it, predicted
    rates would be too high where clicks are rare: the log-odds of 1 % are −4.6.

    Parameters
    ----------
    transfer
        The transfer.
    expand
        The evidence of all tasks under a prior, of features in the units if any are given
        (:func:`expand_tasks`).
    partitions, pooled
        The sums of contexts and rewards as they are, of every task and of all rows together.
    intercept, standardize
        As for :func:`~headstart.transfer.pooled_fit.fit_standardized`.
    progress
        Called with the share of the passes that are done.
    """
    units = usual_units(partitions, pooled, intercept).with_indicators(pooled)
    transfer = transfer.with_constant(intercept).with_free_intercept()
    prior, fixed = first_click_prior(pooled, intercept), transfer.in_given_units()
    for number in range(CLICK_PASSES - 1):
        latest = fixed.rough_prior(expand(prior, units), 1.0).as_gaussian()
        prior = average_priors(prior, latest) if number else latest
        progress((number + 1) / CLICK_PASSES)
    if standardize:
        partitions = expand(prior, units)
        return PooledFit(
            fixed.refit_partitions(partitions, 1.0), pool(partitions), units, partitions
        )
    prior = prior.replace(mean=units.matrix.T @ prior.mean, root=units.matrix.T @ prior.root)
    partitions = expand(prior, None)
    return PooledFit(transfer.refit_partitions(partitions, 1.0), pool(partitions), None, partitions)


def average_priors(first: Prior, second: Prior) -> Prior:
    """The prior halfway between two, with noise 1."""
    return Prior.gaussian(
        0.5 * (first.mean + second.mean), 0.5 * (first.covariance + second.covariance)
    )


def first_click_prior(pooled: Evidence, intercept: bool) -> Prior:
    """The prior of the first pass: the rate of all rows, and log-odds of a variance of about 2."""
    dim = pooled.dim
    variance, mean = np.full(dim, 1.0 / dim), np.zeros(dim)
    if intercept:
        variance[-1] = 1.0
        rate = (pooled.moment[-1] + 0.5) / (pooled.rounds + 1.0)
        mean[-1] = np.log(rate / (1.0 - rate))
    return Prior(mean, np.diag(np.sqrt(variance)))


def expand_tasks(tasks: Sequence[OneTask], prior: Prior, units: Standardization | None) -> Array:
    """The packed evidence of tasks, the rewards of each expanded around its posterior."""
    packed = []
    for task in tasks:
        contexts = task.contexts if units is None else units.contexts(task.contexts)
        sums = posterior_evidence(prior, contexts, task.rewards, task.weights)
        packed.append(sums.pack())
    return np.array(packed)
