"""The state of empirical Bayes, and how many tasks it keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headstart.arrays import array_namespace
from headstart.records import Array, Record
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.ensemble import ensemble_weights
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import ContextMoments, Units

MIN_KEPT_TASKS, MAX_KEPT_TASKS = 32, 256  # tasks whose evidence is kept
KEPT_NUMBERS = 2**21  # numbers that it may take, about
FEW_TASKS, FEW_TASKS_STEPS = 8, 6  # up to so few tasks, the fit takes so many steps at a time
SLOTS = (FEW_TASKS, 32, 64, 128, 192)  # sizes of arrays that have room for more tasks


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmpiricalBayesState(Record):
    """What is kept of the tasks, the fit, and how well it has predicted.

    The tasks' evidence is in the units given; everything else is in ``units``.

    Attributes
    ----------
    known_noise
        R where the caller knows it, else 0.
    tasks, past
        The tasks whose evidence is kept, and the posteriors of older ones.
    fit
        The population.
    candidates
        Covariances of other strengths of regularisation.
    scores
        The recent log-likelihoods of new tasks under these and, last, under the isotropic
        prior.
    support
        The sum of all evidence for transfer, in nats.
    cusum, cusum_length
        The evidence of the latest tasks against the fit (a CUSUM statistic, 0 or less), and of how
        many tasks it is.
    task_count, fitted_count
        How many tasks there were, and how many at the last fit.
    ready
        1 where a reward has determined the scale, else 0.
    known_squared
        Σ K² at the last fit.
    pending_readds
        The number of tasks that were removed. As many of the next folds are taken to be these tasks
        again, which were scored before.
    readded_count
        How many tasks were added again since the fit was last updated.
    low_rank, ensemble
        The low-rank population, and the recent log-likelihoods of new tasks under the fit and the
        low-rank candidates (:mod:`~headstart.transfer.empirical_bayes.low_rank.ensemble`).
    restarted_count
        How many tasks there were when the low-rank population was last fitted from nothing; 0
        where it never was.
    units, contexts
        The units of features, and the moments of contexts that were on offer.
    """

    known_noise: float
    tasks: Tasks
    past: Past
    fit: Fit
    candidates: Array
    scores: Array
    support: Any
    cusum: Any
    cusum_length: Any
    task_count: Any
    fitted_count: Any
    ready: Any
    known_squared: Array
    pending_readds: float
    readded_count: float
    low_rank: LowRank
    ensemble: Array
    restarted_count: Any
    units: Units
    contexts: ContextMoments

    @property
    def past_count(self) -> Any:
        """How many tasks of which only the posteriors are left count."""
        return self.past.count

    @property
    def counting_tasks(self) -> Any:
        """How many tasks with rewards count, where they fade or were forgotten."""
        xp = array_namespace(self.fit.mean)
        weight = self.tasks.weight * (self.tasks.rounds > 0)
        return weight.sum(-1) + xp.asarray(self.past.count)

    @property
    def unfitted_count(self) -> Any:
        """How many of the tasks kept, the latest, are not in the fit yet."""
        return np.clip(np.asarray(self.task_count) - self.fitted_count, 0.0, len(self.tasks))

    @property
    def next_slot(self) -> Any:
        """Where the next task goes in arrays of fixed shape, whose slots are a ring."""
        xp = array_namespace(self.fit.mean)
        return xp.asarray(self.task_count).astype(int) % len(self.tasks)

    @property
    def task_ages(self) -> Any:
        """How many of the tasks kept are newer than each of them."""
        if array_namespace(self.fit.mean) is np:
            return np.arange(len(self.tasks))[::-1]
        return (self.next_slot[..., None] - 1 - np.arange(len(self.tasks))) % len(self.tasks)

    @property
    def ensemble_weights(self) -> Array:
        """What the full covariance and each of the low-rank candidates count."""
        xp = array_namespace(self.fit.mean)
        fitted = (xp.asarray(self.ready) > 0) & (xp.asarray(self.restarted_count) > 0)
        return ensemble_weights(self.ensemble, self.counting_tasks * fitted)


def slots(finished: int, dim: int) -> int:
    """The number of slots for tasks in arrays of fixed shape, after ``finished`` tasks.

    >>> slots(0, 30), slots(8, 30), slots(400, 30)
    (8, 32, 256)
    """
    most = capacity(dim)
    return next((number for number in SLOTS if finished < number < most), most)


def capacity(dim: int) -> int:
    """How many tasks' evidence is kept."""
    return int(np.clip(KEPT_NUMBERS // dim**2, MIN_KEPT_TASKS, MAX_KEPT_TASKS))


def evenly_spaced(tasks: Tasks) -> Tasks:
    """Evenly spaced tasks, at most as many as are kept of any."""
    return tasks[:: max(1, len(tasks) // MAX_KEPT_TASKS)][:MAX_KEPT_TASKS]
