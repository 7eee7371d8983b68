"""Substitutes for a fit of groups that overflows, where rewards span many orders of magnitude."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from headstart.model.prior import symmetric_root
from headstart.records import flatten
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.refits.safe_update import (
    MAX_FITTED,
    MAX_SIZE_RATIO,
    are_bounded,
    are_covariances,
)
from headstart.transfer.mixture.groups import STRENGTHS, GroupFit

__all__ = ["first_guess", "first_sound_fit", "is_sound"]


def first_sound_fit(
    improve: Callable[[GroupFit], GroupFit], starts: Iterable[GroupFit], largest_size: float
) -> GroupFit | None:
    """The first of several starts that is sound when it was improved; ``None`` if none is.

    ``largest_size`` is the largest mean square of θ per dimension that a task alone shows.
    """
    for start in starts:
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                improved = improve(start)
                if is_sound(improved, largest_size):
                    return improved
        except np.linalg.LinAlgError:
            pass
    return None


def is_sound(mixture: GroupFit, largest_size: float) -> bool:
    """Whether a mixture is finite, of covariances, and of a size that its tasks have."""
    fit, noise = mixture.fit, np.asarray(mixture.fit.noise_variance)
    numbers = (*flatten(fit).values(), mixture.log_weights, mixture.roots)
    sound = bool(are_bounded(numbers, 0) and (noise > 0).all())
    sound = sound and bool(are_covariances((fit.covariance, fit.covariance + fit.error)).all())
    if sound and not np.any(mixture.past.count):
        sound = bool((fit.mean_square <= MAX_SIZE_RATIO * largest_size).all())
    return sound


def first_guess(mixture: GroupFit, fit: Fit) -> GroupFit:
    """The mixture with all groups alike, as the first guess of one population is."""
    fit = fit.replace(covariance=np.minimum(fit.covariance, MAX_FITTED)).repeat(mixture.groups)
    roots = np.repeat(symmetric_root(fit.covariance)[None], len(STRENGTHS), 0)
    weights = np.full(mixture.groups, -np.log(mixture.groups))
    return mixture.replace(fit=fit, log_weights=weights, roots=roots)
