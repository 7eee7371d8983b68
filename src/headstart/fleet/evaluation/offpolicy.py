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
from headstart.fleet.engines.progress import no_progress
from headstart.fleet.engines.threads import MapJobs, map_here
from headstart.fleet.evaluation.forecasts import AnyPrior
from headstart.fleet.evaluation.measures import Bootstrap, Estimate
from headstart.fleet.evaluation.offers import Offers, Policy, Step, Whole, follow, replay
from headstart.fleet.reading.columns import Columns
from headstart.lab.figures.elements.text import join_words, number
from headstart.records import Array

__all__ = ["Terms", "Value", "estimate", "follow_terms", "replay_terms"]

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
    "logged of a task until then; they rest on all rounds. Effective rounds: how many would tell "
    "as much had the policy chosen the arms itself; where they are few, intervals are wide, and "
    "may be too narrow still."
)

#: By how much the propensities of a round may miss 1, and in which share of the rounds they may.
CLOSE = 1e-3
FEW = 0.01


class Terms(NamedTuple):
    """An estimate's two sums, round by round; the rounds' weights; and whose each round is."""

    above: Array
    below: Array
    weights: Array
    tasks: Whole

    @property
    def value(self) -> float:
        """The estimate."""
        return float(self.above.sum() / self.below.sum())

    @property
    def effective(self) -> float:
        """(Σw)²/Σw²; 0 where there are none."""
        square = float((self.weights**2).sum())
        return float(self.weights.sum()) ** 2 / square if square > 0 else 0.0

    def by_task(self, tasks: int) -> tuple[Array, Array]:
        """The sums of each of so many tasks."""
        above, below = (
            np.bincount(self.tasks, each, tasks).astype(np.float64)
            for each in (self.above, self.below)
        )
        return above, below


class Value(NamedTuple):
    """What a policy is estimated to earn per round, by one estimator.

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
    ones, rewards, owner = np.ones_like(weights), offers.rewards, offers.owner
    expected = np.add.reduceat(chances * modelled, offers.starts[:-1])
    return {
        "ips": Terms(weights * rewards, ones, weights, owner),
        "snips": Terms(weights * rewards, weights, weights, owner),
        "dr": Terms(expected + weights * (rewards - modelled[shown]), ones, weights, owner),
    }


def replay_terms(
    policy: Policy, offers: Offers, rng: np.random.Generator, weighted: bool = False
) -> Terms:
    """The terms of replay, or of its weighted form."""
    kept = replay(policy, offers, rng, None if weighted else float(offers.propensities.min()))
    weights = 1.0 / offers.propensities[kept] if weighted else np.ones(len(kept))
    return Terms(weights * offers.rewards[kept], weights, weights, offers.owner[kept])


def estimate(
    offers: Offers,
    policies: Sequence[Policy],
    model: AnyPrior,
    bootstrap: Bootstrap,
    *,
    seed: int = 0,
    clip: float | None = None,
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
    bootstrap
        The bootstrap over tasks.
    seed
        Of the policies' own randomness.
    clip
        The largest weight π/p that counts; larger ones count as this. Less variance, some bias.
    map_jobs
        Where the work is done, a job for each policy.
    progress
        Called with the share of policies that are done.
    """
    ones = np.ones(len(offers.rewards))
    terms = {("logged policy", "logged"): Terms(offers.rewards, ones, ones, offers.owner)}
    modelled = follow(offers, model, lambda belief, step: belief.predict(step.contexts))
    jobs = list(enumerate(policies))
    results = map_jobs(policy_terms, jobs, offers, modelled, seed, clip)
    for done, (policy, own) in enumerate(zip(policies, results, strict=True), 1):
        terms |= {(policy.name, name): each for name, each in own.items()}
        progress(done / len(jobs))
    sums = zip(*(each.by_task(bootstrap.tasks) for each in terms.values()), strict=True)
    above, below = (np.stack(parts, axis=1) for parts in sums)
    values = bootstrap.ratios(above, below)
    return [
        Value(
            policy,
            NAMES[name],
            value,
            rounds=len(ones),
            effective=each.effective,
            used=len(each.below),
            tasks=len(np.unique(each.tasks)),
        )
        for ((policy, name), each), value in zip(terms.items(), values, strict=True)
    ]


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
    To estimate what a policy would earn, the log must also hold the probability with which the
    shown arm was chosen (propensity).
    """
    wanted = {
        "round": "an id of the round, the same for all arms on offer in it (round)",
        "chosen": "one row for every arm on offer, marked if it was the one shown (chosen)",
        "propensity": "the probability with which the shown arm was chosen (propensity)",
    }
    lacking = [text for role, text in wanted.items() if getattr(columns, role) is None]
    if not lacking:
        return ""
    return f"To estimate what a policy would earn, the log must also hold {join_words(lacking)}."


def reason_to_withhold(offers: Offers) -> str:
    """Why estimates from these rounds could not be right, and what to log; empty where they can.

    Where only the arm shown has a propensity there is nothing to add up, and nothing to doubt.
    """
    if not len(offers.rewards):
        return "Off-policy estimates need rounds with exactly one chosen arm; the log has none."
    if int(offers.arms.max()) < 2:
        return (
            "Off-policy values are withheld: every round has one arm only, so that nobody knows "
            "what else was on offer. To estimate what a policy would earn, log one row for every "
            "arm on offer in a round, and mark the one that was shown (chosen)."
        )
    totals = np.zeros(0) if offers.totals is None else offers.totals
    known = totals[np.isfinite(totals)]
    off = int((np.abs(known - 1.0) > CLOSE).sum())
    if off > FEW * len(known):
        return (
            f"Off-policy values are withheld: in {off:,} of {len(known):,} rounds the "
            "propensities of the arms do not add up to 1 (the median of all sums is "
            f"{number(float(np.median(known)))}). Log every arm on offer in a round, and for each "
            "the probability with which it would be chosen (propensity); or give it for the arm "
            "that was shown and leave it empty for the others."
        )
    return ""
