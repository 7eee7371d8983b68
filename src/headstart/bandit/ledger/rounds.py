"""A cached task after one more reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.bandit.ledger.entries import CachedTask, add_rounds
from headstart.bandit.ledger.optional_items import with_known_coefficient
from headstart.bandit.task_belief import is_refit_due, rebuilt_belief

if TYPE_CHECKING:
    from headstart.bandit.ledger.ledger import Ledger, RewardedChoice


def task_after_round(
    ledger: Ledger, task: CachedTask, choice: RewardedChoice, reward_count: int, weight: float
) -> CachedTask:
    """A cached task after one more reward, the last of ``reward_count``."""
    if ledger.decay < 1.0:
        return decayed_task_after_round(ledger, task, choice, reward_count, weight)
    if weight != 1.0:
        return task_after_weighted_round(ledger, task, choice, reward_count, weight)
    _, _, belief, alone, other_rewards, key = task
    _, _, _, context, reward, forced, _ = choice
    if ledger.rewards.needs_belief:
        context, reward = ledger.rewards.linearize(belief, context, reward)
    evidence, pending = task.with_round(context, reward, forced)
    before, belief = belief, belief.update(context, reward)
    decides = alone and is_refit_due(reward_count)
    if decides or belief.needs_rebuild:
        own = ledger.lone_task(ledger.prior_state) if decides else None
        belief = rebuilt_belief(before, belief, add_rounds(evidence, pending), own)
        belief = with_known_coefficient(ledger.items, belief)
    updated = evidence, pending, belief, alone, other_rewards, key
    return tuple.__new__(CachedTask, updated)  # three times as fast as a call of the class


def task_after_weighted_round(
    ledger: Ledger, task: CachedTask, choice: RewardedChoice, reward_count: int, weight: float
) -> CachedTask:
    """The same where the reward is of an item that the task has met, which adds less.

    It counts as a part of a round, so the number of rounds can be just past a power of two for many
    rewards, and the belief is computed again at the first of them only.
    """
    before, (context, reward, forced) = task.belief, choice[3:6]
    context, reward = ledger.rewards.linearize(before, context, reward, weight)
    evidence = add_rounds(task.evidence, task.pending)
    evidence = evidence.add_unchecked(context, reward, forced, weight)
    belief = before.update(context, reward).with_rounds(before.rounds + weight)
    was_rebuilt = before.needs_rebuild and int(before.rounds) == int(belief.rounds)
    if task.alone:  # the noise may follow from the number of rounds
        belief = before.prior.belief(evidence)
    decides = task.alone and is_refit_due(reward_count)
    if decides or (belief.needs_rebuild and not was_rebuilt):
        own = ledger.lone_task(ledger.prior_state) if decides else None
        belief = rebuilt_belief(before, belief, evidence, own)
    belief = with_known_coefficient(ledger.items, belief)
    return task._replace(evidence=evidence, pending=(), belief=belief)


def decayed_task_after_round(
    ledger: Ledger, task: CachedTask, choice: RewardedChoice, reward_count: int, weight: float
) -> CachedTask:
    """The same where earlier rewards count less with every new one."""
    belief, (context, reward, forced) = task.belief, choice[3:6]
    evidence = add_rounds(task.evidence, task.pending).discount(ledger.decay)
    if ledger.rewards.needs_belief:
        belief = belief.prior.belief(evidence)
    context, reward = ledger.rewards.linearize(belief, context, reward, weight)
    evidence = evidence.add_unchecked(context, reward, forced, weight)
    belief = belief.prior.belief(evidence)
    if task.alone and is_refit_due(reward_count):
        belief = ledger.lone_task(ledger.prior_state).belief(belief, evidence)
    belief = with_known_coefficient(ledger.items, belief).with_rounds(float(reward_count))
    return task._replace(evidence=evidence, pending=(), belief=belief)
