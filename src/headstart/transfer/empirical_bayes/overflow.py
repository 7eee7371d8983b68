"""Substitutes for fits that overflow, where rewards span many orders of magnitude."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headstart.arrays import array_namespace, attempt, float_if_scalar, transpose
from headstart.records import Array, flatten, select
from headstart.transfer.empirical_bayes.full_covariance.population import Fit, begin_fit
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState

MAX_FITTED = 1e140  # a number of a fit beyond which its squares, or products with it, overflow
MAX_ASYMMETRY = 1e-7  # of a covariance, as a share of its largest entry
MAX_SIZE_RATIO = 1e12  # of the mean square of θ, to the largest that a task alone shows


def sound_fit(
    update: Callable[[EmpiricalBayesState], EmpiricalBayesState], state: EmpiricalBayesState
) -> EmpiricalBayesState:
    """``update(state)`` where that is finite; otherwise a guess from the tasks' sizes alone.

    A fit that overflows is repeated from the start, and where that overflows too, the population is
    the first guess: mean 0 and a variance from the geometric mean of the tasks' sizes.
    """
    if array_namespace(state.fit.mean) is not np:
        return update(state)
    updated, sound = attempt_update(update, state)
    if updated is not None and sound.all():
        return updated
    unready = float_if_scalar(np.zeros_like(np.asarray(state.ready)))
    anew, sound_anew = attempt_update(update, state.replace(ready=unready))
    if anew is None or not sound_anew.all():
        warn_of_overflow()
        guess = first_guess(state.replace(ready=unready))
        anew = guess if anew is None else select(sound_anew, anew, guess)
    return anew if updated is None else select(sound, updated, anew)


def sound_step(
    step: Callable[[EmpiricalBayesState], EmpiricalBayesState], state: EmpiricalBayesState
) -> EmpiricalBayesState | None:
    """``step(state)``; ``None`` if that overflows for any batch element."""
    after, sound = attempt_update(step, state)
    return after if sound.all() else None


def warn_of_overflow() -> None:
    """Warn that the first guess of a population is used."""
    warnings.warn(
        "no population fits the tasks (it overflows, or is far larger than they are): their "
        "rewards or contexts span too many orders of magnitude, or rewards repeat without any "
        "noise; new tasks start from the tasks' sizes alone",
        RuntimeWarning,
        stacklevel=3,
    )


def attempt_update(
    update: Callable[[EmpiricalBayesState], EmpiricalBayesState], state: EmpiricalBayesState
) -> tuple[EmpiricalBayesState | None, Any]:
    """The updated state and for which batch elements it is sound; no state if it fails."""

    def checked(before: EmpiricalBayesState) -> tuple[EmpiricalBayesState, Any]:
        updated = update(before)
        return updated, is_sound(updated)

    return attempt(checked, state) or (None, np.asarray(False))


def is_sound(state: EmpiricalBayesState) -> Any:
    """Whether a fit is finite, of covariances, and of a size that its tasks have.

    Per batch element.
    """
    ready, low = np.asarray(state.ready), state.low_rank
    begun = (ready > 0) & (np.asarray(state.past.count) == 0)
    largest = np.where(begun, largest_size(state), np.inf) if len(state.tasks) else np.inf
    sound = is_sound_fit(state.fit, largest) & np.isfinite(low.relevance).all(-1)
    # The relevance of a column of zeros is unbounded, and multiplies nothing but zeros.
    low = low.replace(relevance=np.minimum(low.relevance, MAX_FITTED))
    sound &= are_bounded((state.candidates, *flatten(low).values()), ready.ndim)
    return sound & are_covariances((low.covariance,))


def is_sound_fit(fit: Fit, largest: Any) -> Any:
    """Whether a population is finite, of covariances, and not too large beside the largest task.

    Per batch element.
    """
    # The error of the mean may be negative by rounding where a feature hardly varies beside its
    # mean; what the prior takes is the sum.
    sound = are_covariances((fit.covariance, fit.covariance + fit.error))
    sound &= are_bounded(flatten(fit).values(), fit.mean.ndim - 1)
    return sound & (fit.mean_square <= MAX_SIZE_RATIO * largest)


def are_bounded(numbers: Iterable[Any], batch_axes: int) -> Any:
    """Whether numbers are finite and their squares do not overflow, per batch element."""
    sound: Any = True
    for array in numbers:
        size = np.abs(np.asarray(array, dtype=float))
        sound = sound & (size <= MAX_FITTED).all(tuple(range(batch_axes, size.ndim)))
    return sound


def are_covariances(matrices: Iterable[Array]) -> Any:
    """Whether matrices are symmetric, with variances of 0 or more, per batch element."""
    sound: Any = True
    for matrix in matrices:
        sound = sound & (np.diagonal(matrix, axis1=-2, axis2=-1) >= 0).all(-1)
        gap, size = np.abs(matrix - transpose(matrix)), np.abs(matrix)
        sound = sound & (gap.max((-1, -2)) <= MAX_ASYMMETRY * size.max((-1, -2)))
    return sound


def largest_size(state: Any) -> Any:
    """The largest of the tasks' mean squares of θ per dimension, Σr² d / tr Gram, in its units."""
    gram, (shift, inverse) = state.tasks.gram, state.units.with_axes(1)
    across = gram[..., -1]
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1) - 2.0 * shift * across
    diagonal = inverse**2 * (diagonal + shift**2 * across[..., -1:])
    reach = np.maximum(diagonal, 0.0).mean(-1)
    seen = reach > 0
    return np.where(seen, state.tasks.squares / np.where(seen, reach, 1.0), 0.0).max(-1)


def first_guess(state: EmpiricalBayesState) -> EmpiricalBayesState:
    """A state whose population is the first guess from its tasks."""
    tasks = state.units.convert_tasks(state.tasks)
    fit, ready = begin_fit(state.fit, state.ready, tasks, state.known_noise)
    fit = fit.where_ready(ready)
    fit = fit.replace(covariance=np.minimum(fit.covariance, MAX_FITTED))
    number = state.candidates.shape[-3]
    none = float_if_scalar(np.zeros_like(np.asarray(state.ready)))
    return state.replace(
        fit=fit,
        ready=ready,
        candidates=np.repeat(fit.covariance[..., None, :, :], number, -3),
        known_squared=np.zeros_like(state.known_squared),
        low_rank=LowRank.of_fit(fit),
        restarted_count=none,
        fitted_count=state.task_count,
    )
