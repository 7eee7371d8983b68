"""A fit of empirical Bayes to all tasks together, with their evidence in memory.

How many steps it takes is decided here; a step is that of
:mod:`~headstart.transfer.empirical_bayes.full_covariance.fitting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart import checks
from headstart.arrays import float_if_scalar, max_abs
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.transfer.base import checked_evidence
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.scoring import WIDE_DIM, cross_validate
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState, capacity, evenly_spaced
from headstart.transfer.empirical_bayes.tasks import Tasks, canonical_order
from headstart.transfer.partitions import Partitions

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

FIRST_STEPS = 12  # of scoring, before the test of convergence
MAX_REPEATS, MAX_WIDE_REPEATS = 40, 4  # of two more steps each, with few and with many features
CONVERGED = 1e-9  # the change of the covariance, as a share of its largest entry
ROUGH_TASKS = 64  # that a rough fit chooses its strength by
ROUGH_SCHEDULE = 6, 2  # steps before strengths are scored
ROUGH_STEPS = 24  # after that
LOW_RANK_UPDATES = 4  # of a fit to all tasks: the noise of short tasks takes a step in each


def fit_together(
    transfer: EmpiricalBayes,
    evidences: Iterable[Evidence],
    noise: float | None,
    weights: Sequence[float] | None,
) -> EmpiricalBayesState:
    """The state of these tasks; their order matters only where older ones count less."""
    listed = list(evidences)
    if not listed:
        raise InputError("evidences must hold at least one task; got none")
    first = listed[0]
    state = transfer.init(first.dim, noise, first.batch)
    parts = []
    for position, evidence in enumerate(listed):
        weight = 1.0 if weights is None else checks.real("weight", weights[position])
        parts.append(Tasks.of(checked_evidence(evidence, state.fit.mean.shape), weight))
    tasks = Tasks.join(*parts)
    if not isinstance(transfer.decay_tasks, str):
        age = np.arange(len(listed))[::-1]
        tasks = tasks.replace(weight=tasks.weight * np.exp(-age / transfer.decay_tasks))
    order = canonical_order(tasks)
    arranged = tasks.take(order)
    scores, ensemble, support = cross_validate(
        transfer, state, evenly_spaced(arranged), len(arranged)
    )
    state = state.replace(scores=scores, ensemble=ensemble, support=support)
    count = float_if_scalar(np.full(first.batch, float(len(listed))))
    state = state.replace(tasks=arranged, task_count=count)
    state = transfer.update_fit(state, steps=FIRST_STEPS, low_rank=False)
    for _ in range(MAX_REPEATS if first.dim <= WIDE_DIM else MAX_WIDE_REPEATS):
        before = state.fit.covariance
        state = transfer.update_fit(state, steps=2, low_rank=False)
        if max_abs(state.fit.covariance - before) <= CONVERGED * max_abs(before):
            break
    for _ in range(LOW_RANK_UPDATES):
        state = transfer.update_fit(state, steps=1)
    excess = max(len(tasks) - capacity(first.dim), 0)
    if excess:
        tasks = tasks.replace(**state.tasks.take(np.argsort(order, -1)).noise_fields())
        state = state.replace(past=transfer.retire(state, tasks[:excess]))
    return state.replace(tasks=tasks[excess:])


def fit_roughly(
    transfer: EmpiricalBayes, partitions: Partitions, noise: float | None
) -> EmpiricalBayesState:
    """The state of tasks after few steps, in a fraction of the time of a whole fit.

    The strength is chosen by cross-validation on some of the tasks. With very many tasks this is
    the whole fit, which takes few steps on all of them anyway.
    """
    if len(partitions) > passes.FIRST_FIT_TASKS:
        return transfer.refit_partitions(partitions, noise)
    rows = partitions.slice(0, len(partitions))
    tasks = Tasks.from_batch(Evidence.unpack(rows, partitions.dim))
    tasks, state = tasks.take(canonical_order(tasks)), transfer.init(partitions.dim, noise)
    sample = tasks[:: -(-len(tasks) // ROUGH_TASKS)]
    scores, ensemble, support = cross_validate(
        transfer, state, sample, len(tasks), schedule=ROUGH_SCHEDULE
    )
    state = state.replace(scores=scores, ensemble=ensemble, support=support)
    state = state.replace(tasks=tasks, task_count=float(len(tasks)))
    return transfer.update_fit(state, ROUGH_STEPS)
