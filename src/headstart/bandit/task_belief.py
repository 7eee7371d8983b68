"""The belief of one task over its life: from a prior, through its rewards, to its evidence.

A reward updates the belief in O(d²). In two cases the belief is computed again from the prior and
the task's evidence, in O(d³): after some of 1, 2, 4, … rewards where the prior leaves the noise to
the task (the belief needs a rebuild), and after most of these while the scale is known from this
task alone (:func:`is_refit_due`). Bandits and experiments share these steps. What a bandit keeps of
its tasks is in :mod:`headstart.bandit.ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headstart.model.base import BaseBelief, BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array, select
from headstart.transfer import Transfer


class LoneTask(NamedTuple):
    """What the belief of a task rests on while it alone determines the scale of θ and of the noise.

    ``noise_is_known`` says that R follows from the reward model, so that only the scale of θ is
    open.
    """

    transfer: Transfer
    state: Any
    noise_is_known: bool = False

    def belief(self, belief: BaseBelief, evidence: Evidence) -> BaseBelief:
        """The belief of a task that alone determines the scale.

        The transfer may state a prior for it; otherwise the belief's own prior leaves the noise to
        the task. Between two calls the update of the belief estimates the noise.
        """
        prior: BasePrior | None = self.transfer.single_task_prior(self.state, evidence)
        if prior is None and not self.noise_is_known:
            prior = belief.prior.with_unknown_noise()
        if prior is None or prior is belief.prior:
            return belief
        return prior.belief(evidence) if holds(prior, evidence) else belief


def next_belief(
    belief: BaseBelief,
    context: Array,
    reward: Any,
    rewards: int,
    evidence: Callable[[], Evidence],
    alone: LoneTask | None = None,
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
        Given if the task alone determines the scale of θ and of the noise.
    """
    after = belief.update(context, reward)
    if alone is not None and not is_refit_due(rewards):
        alone = None
    if alone is None and not after.needs_rebuild:
        return after
    return rebuilt_belief(belief, after, evidence(), alone)


def rebuilt_belief(
    before: BaseBelief, after: BaseBelief, evidence: Evidence, alone: LoneTask | None
) -> BaseBelief:
    """The belief after one more reward, computed again from the evidence of all of them."""
    if after.needs_rebuild:
        prior = before.prior
        if not holds(prior, evidence):
            after = after.as_scaled(before)
        elif not evidence.batch:
            after = prior.belief(evidence)
        else:  # an element of a batch is computed again when it would be alone
            after = select(after.rebuild_due(), prior.belief(evidence), after)
    return after if alone is None else alone.belief(after, evidence)


def holds(prior: BasePrior, evidence: Evidence) -> bool:
    """Whether the sums of one task have kept the digits a posterior needs; not asked of a batch."""
    return bool(evidence.batch) or prior.can_update_on(evidence)


def is_refit_due(rewards: int) -> bool:
    """Whether the prior of a task that alone determines the scale is computed again.

    >>> [rewards for rewards in range(1, 5000) if is_refit_due(rewards)]
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096]
    """
    if rewards & (rewards - 1):
        return False
    return rewards <= 256 or rewards.bit_length() % 2 == 1


def refresh_count(count: int) -> int:
    """How often a running task takes a new prior in ``count`` choices: after 8, 32, 128, … of them.

    >>> [count for count in range(1, 600) if refresh_count(count) > refresh_count(count - 1)]
    [8, 32, 128, 512]
    """
    return (count.bit_length() - 2) // 2 if count > 3 else 0
