"""What a policy would have earned, from logs that another policy left.

Of every round the log must hold all arms on offer, which one was shown, and with what probability
p. With π the evaluated policy's probability of the arm that was shown, w = π/p and q̂ a model of
rewards, every estimate is a ratio of two sums over rounds::

    ips      Σ w r / n
    snips    Σ w r / Σ w
    dr       Σ (Σ_a π(a) q̂(a) + w (r − q̂)) / n
    replay   Σ r / m                     over the m rounds in which the policy picks the logged arm
                                         and which survive a coin of probability min(p)/p
    weighted Σ (r/p) / Σ (1/p)           over all rounds in which it picks the logged arm

They answer two questions. *ips*, *snips* and *dr* follow the log: the policy's belief of a task is
built from what was **logged** of it so far, and they estimate the mean reward of taking its choice
once at each of these histories. *replay* follows the policy: it learns from the rounds that it
agrees with and from no others, as it would alone, so that it estimates the value of running it from
a task's start; because every pick survives with the same probability, the rounds that are kept are
what it would have met itself. *weighted* keeps the rounds that the coin would have wasted; where
the log is not uniform, its histories then lean to arms that were logged often.

The model q̂ is the mean of the task's belief, the round's own reward not included: whatever it says,
dr has no bias where the propensities are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.fleet.engines.threads import MapJobs, map_here
from headstart.fleet.evaluation.measures import Bootstrap, Estimate
from headstart.fleet.evaluation.rollouts import AnyPrior, Mask, Offers, Policy, Step, follow, replay
from headstart.fleet.reading.columns import Columns
from headstart.fleet.summing.summary import no_progress
from headstart.lab.text import number
from headstart.records import Array

#: What each estimator is called in tables and figures.
NAMES = {
    "logged": "as logged",
    "replay": "replay",
    "weighted": "weighted replay",
    "ips": "IPS",
    "snips": "SNIPS",
    "dr": "doubly robust",
}

#: What to make of several estimators.
ESTIMATOR_NOTE = (
    "Estimators answer different questions, so compare policies by one estimator. Replay and "
    "weighted replay: what a policy earns that starts with a new task and learns from its own "
    "choices alone; they rest on the rounds in which it picks what was logged, when it still knows "
    "little of a task. IPS, SNIPS and doubly robust: what its choice earns after all that was "
    "logged of a task until then; they rest on all rounds. Effective rounds: how many would be as "
    "informative if the policy had chosen the arms itself; where they are few, intervals are wide, "
    "and may still be too narrow."
)

#: By how much the propensities of a round may miss 1, and in which share of the rounds they may.
MAX_SUM_ERROR = 1e-3
MAX_WRONG_SHARE = 0.01


class Terms(NamedTuple):
    """An estimate's two sums, round by round; the rounds' weights; and which rounds it is of."""

    above: Array
    below: Array
    weights: Array
    used: Mask

    @property
    def value(self) -> float:
        """The estimate."""
        return float(self.above.sum() / self.below.sum())

    @property
    def effective(self) -> float:
        """(Σw)²/Σw²; 0 where there are none."""
        square = float((self.weights**2).sum())
        return float(self.weights.sum()) ** 2 / square if square > 0 else 0.0


class Value(NamedTuple):
    """What a policy is estimated to earn, or to cost, per round, by one estimator.

    Of ``rounds`` rounds in the log the estimate is a mean over ``used``, which belong to ``tasks``
    tasks; ``effective`` is its effective sample size (Σw)²/Σw².
    """

    policy: str
    estimator: str
    value: Estimate
    rounds: int
    effective: float
    used: int
    tasks: int


def follow_terms(
    offers: Offers, chances: Array, modelled: Array, clip: float | None = None
) -> dict[str, Terms]:
    """The terms of ips, snips and dr.

    Parameters
    ----------
    offers
        The logged rounds.
    chances, modelled
        π and the modelled reward q̂ of every arm on offer.
    clip
        The largest weight, if it is limited.
    """
    shown = offers.starts[:-1] + offers.chosen
    weights = chances[shown] / offers.propensities
    if clip is not None:
        weights = np.minimum(weights, checks.positive("clip", clip))
    ones, rewards, used = np.ones_like(weights), offers.rewards, np.ones(len(weights), bool)
    expected = np.add.reduceat(chances * modelled, offers.starts[:-1])
    return {
        "ips": Terms(weights * rewards, ones, weights, used),
        "snips": Terms(weights * rewards, weights, weights, used),
        "dr": Terms(expected + weights * (rewards - modelled[shown]), ones, weights, used),
    }


def replay_terms(
    policy: Policy, offers: Offers, rng: np.random.Generator, weighted: bool = False
) -> Terms:
    """The terms of replay, or of its weighted form."""
    kept = replay(policy, offers, rng, None if weighted else float(offers.propensities.min()))
    weights = kept / offers.propensities if weighted else kept.astype(np.float64)
    return Terms(weights * offers.rewards, weights, weights, kept)


def estimate(
    offers: Offers,
    policies: Sequence[Policy],
    model: AnyPrior,
    *,
    seed: int = 0,
    clip: float | None = None,
    sign: float = 1.0,
    map_jobs: MapJobs = map_here,
    progress: Callable[[float], None] = no_progress,
) -> list[Value]:
    """Every policy by every estimator, with intervals over tasks; the logged policy first.

    Parameters
    ----------
    offers
        The logged rounds of tasks that no prior has seen.
    policies
        What to evaluate.
    model
        The prior whose beliefs model rewards for dr.
    seed
        Of the policies' own randomness, and of the bootstrap.
    clip
        The largest weight π/p that counts; larger ones count as this. Less variance, some bias.
    sign
        −1 where rewards are the negatives of costs: values are then costs.
    map_jobs
        Where the work is done, a job for each policy.
    progress
        Called with the share of policies that are done.
    """
    ones, all_rounds = np.ones(len(offers.rewards)), np.ones(len(offers.rewards), bool)
    terms = {("logged policy", "logged"): Terms(offers.rewards, ones, ones, all_rounds)}
    modelled = follow(offers, model, lambda belief, step: belief.predict(step.contexts))
    jobs = list(enumerate(policies))
    results = map_jobs(policy_terms, jobs, offers, modelled, seed, clip)
    for done, (policy, own) in enumerate(zip(policies, results, strict=True), 1):
        terms |= {(policy.name, name): each for name, each in own.items()}
        progress(done / len(jobs))
    owner = offers.owner
    bootstrap = Bootstrap(len(offers.tasks) - 1, seed, owners=owner)
    above, below, *_ = (np.stack(parts, axis=1) for parts in zip(*terms.values(), strict=True))
    intervals = bootstrap.ratios(sign * above, below)
    values = []
    for ((who, name), each), value in zip(terms.items(), intervals, strict=True):
        counts = len(ones), each.effective, int(each.used.sum()), len(np.unique(owner[each.used]))
        values.append(Value(who, NAMES[name], value, *counts))
    return values


def policy_terms(
    job: tuple[int, Policy], offers: Offers, modelled: Array, seed: int, clip: float | None
) -> dict[str, Terms]:
    """The terms of one policy by every estimator."""
    place, policy = job
    rng = np.random.default_rng([seed, 0x0FF, place])

    def propensities(belief: Any, step: Step) -> Array:
        return policy.rule.propensities(belief, step.contexts, rng, step.allowed).values

    terms = {
        "replay": replay_terms(policy, offers, rng),
        "weighted": replay_terms(policy, offers, rng, weighted=True),
    }
    chances = follow(offers, policy.prior, propensities)
    return terms | follow_terms(offers, chances, modelled, clip)


def missing(columns: Columns) -> str:
    """What would have to be logged to estimate what policies earn; empty where nothing is missing.

    >>> print(missing(Columns("user", "click", "x*", round="request", chosen="shown")))
    To estimate what a policy would earn, also log the probability with which the shown arm was
    chosen (--propensity).
    """
    wanted = {
        "round": "an id of the round, the same for all arms on offer in it (--round)",
        "chosen": "a row for every arm on offer, with a flag on the one that was shown (--chosen)",
        "propensity": "the probability with which the shown arm was chosen (--propensity)",
    }
    lacking = [text for role, text in wanted.items() if getattr(columns, role) is None]
    return (
        f"To estimate what a policy would earn, also log {'; '.join(lacking)}." if lacking else ""
    )


def reason_to_withhold(offers: Offers) -> str:
    """Why estimates from these rounds could not be right, and what to log; empty where they can.

    Where only the arm shown has a propensity there is nothing to add up, and nothing to doubt.
    """
    if not len(offers.rewards):
        return "Off-policy estimates need rounds with exactly one chosen arm; the log has none."
    if int(offers.arms.max()) < 2:
        return (
            "Off-policy values are withheld: every round has one arm only, so that the other "
            "arms on offer are unknown. To estimate what a policy would earn, log one row for "
            "every arm on offer in a round, and mark the one that was shown (chosen)."
        )
    totals = np.zeros(0) if offers.totals is None else offers.totals
    known = totals[np.isfinite(totals)]
    off = int((np.abs(known - 1.0) > MAX_SUM_ERROR).sum())
    if off > MAX_WRONG_SHARE * len(known):
        return (
            f"Off-policy values are withheld: in {off:,} of {len(known):,} rounds the "
            "propensities of the arms do not add up to 1 (the median of all sums is "
            f"{number(float(np.median(known)))}). Log every arm on offer in a round, and for each "
            "the probability with which it would be chosen (--propensity); or give it for the arm "
            "that was shown and leave it empty for the others."
        )
    return ""
