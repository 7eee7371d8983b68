"""The belief of one task over its life: from a prior, through its rewards, to its evidence.

A reward updates the belief in O(d²). In two cases the belief is computed again from the prior and
the task's evidence, in O(d³): after 8, 16, 32, … rewards where the prior leaves the noise to the
task (the belief needs a rebuild), and after 1, 2, 4, … rewards where no other task tells the
noise. Bandits and experiments share these steps. What a bandit keeps of its tasks is in
:mod:`headstart.bandit.ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headstart.model.base import BaseBelief, BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.transfer import Transfer

__all__ = ["next_belief", "with_own_noise"]


def next_belief(
    belief: BaseBelief,
    context: Array,
    reward: Any,
    rewards: int,
    evidence: Callable[[], Evidence],
    alone: tuple[Transfer, Any] | None = None,
) -> BaseBelief:
    """The belief after one more reward, of one task or of a batch.

    Parameters
    ----------
    belief
        The belief before.
    context, reward
        The round, which was checked already.
    rewards
        How many rewards the task has seen with this one.
    evidence
        Gives the evidence of all of them; called where the belief is computed again.
    alone
        The transfer and its state, if no other task tells the noise.
    """
    after = belief.update(context, reward)
    if after.needs_rebuild:
        sums = evidence()
        after = belief.prior.belief(sums) if holds(belief.prior, sums) else after.as_scaled(belief)
    if alone is not None and rewards & (rewards - 1) == 0:
        return with_own_noise(*alone, after, evidence())
    return after


def with_own_noise(
    transfer: Transfer, state: Any, belief: BaseBelief, evidence: Evidence
) -> BaseBelief:
    """The belief of a task that alone tells the noise.

    The transfer may state a prior for it; otherwise the belief's own prior leaves the noise to the
    task. Between two calls the update of the belief estimates the noise.
    """
    prior = transfer.single_task_prior(state, evidence)
    if prior is None:
        prior = belief.prior.with_unknown_noise()
        if prior is None or prior == belief.prior:
            return belief
    return prior.belief(evidence) if holds(prior, evidence) else belief


def holds(prior: BasePrior, evidence: Evidence) -> bool:
    """Whether the sums of one task have kept the digits a posterior needs; not asked of a batch."""
    return bool(evidence.batch) or prior.determined_by(evidence)
