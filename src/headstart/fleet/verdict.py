"""Does transfer help? Three plain answers, each with its evidence, and the fourth: too little data.

Models are compared by the log-likelihood of rewards that none of them had seen, reward by reward
and task by task. The simplest model that no other clearly beats is the answer: one pooled model is
simpler than tasks that learn alone, and these are simpler than a learned prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from headstart.fleet.bootstrap import Estimate
from headstart.fleet.measures import ALONE, AVERAGE, LEARNED, POOLED, Lead

__all__ = ["Finding", "Verdict", "decide"]

#: Nats per reward below which a difference does not matter: about 1 % of the squared error.
RELEVANT = 0.005
#: Nats per reward by which a rival may yet be better when a model is said to do as well.
TOLERATED = 0.05
#: What differences are in.
UNIT = "nats of log-likelihood per reward"
#: Future tasks without which intervals cannot be trusted.
FEWEST = 10


class Finding(NamedTuple):
    """One of the three possible answers: whether it holds, and what says so.

    ``holds`` is ``"yes"``, ``"no"`` or ``"open"``.
    """

    kind: str
    statement: str
    holds: str
    evidence: str


class Verdict(NamedTuple):
    """The answer.

    Attributes
    ----------
    kind
        ``"transfer"``, ``"pooling"``, ``"independence"`` or ``"unknown"``.
    sentence
        The same in plain words.
    findings
        The evidence for and against each of the three.
    """

    kind: str
    sentence: str
    findings: tuple[Finding, ...]


def decide(
    gains: Mapping[tuple[str, str], Estimate],
    leads: Mapping[str, Lead],
    tasks: int,
    first: int,
) -> Verdict:
    """The verdict of paired differences of log-likelihood.

    Parameters
    ----------
    gains
        Nats per reward by which the first model of a pair is above the second.
    leads
        How many rounds a task alone needs to catch up with the learned prior, by what it knows.
    tasks, first
        How many future tasks, and how many rewards of each.
    """
    single = AVERAGE if (LEARNED, AVERAGE) in gains else ALONE
    models = {"pooling": POOLED, "independence": single, "transfer": LEARNED}
    kind = "unknown"
    if tasks >= FEWEST:
        for name, model in models.items():
            rivals = [gains[other, model] for other in models.values() if other != model]
            if any(clearly_better(rival) for rival in rivals):
                continue
            if all(rival.high <= TOLERATED for rival in rivals):
                kind = name
            break
    findings = tuple(
        Finding(name, STATEMENTS[name], holds(name, kind), evidence(name, models, gains))
        for name in ("transfer", "pooling", "independence")
    )
    return Verdict(kind, sentence(kind, single, gains, leads, tasks, first), findings)


STATEMENTS = {
    "transfer": "Tasks share structure: a learned prior helps",
    "pooling": "Tasks are all alike: one pooled model does at least as well",
    "independence": "Tasks share nothing: each learns at least as well alone",
}


def clearly_better(gain: Estimate) -> bool:
    """Whether a difference is certain, and large enough to matter.

    >>> clearly_better(Estimate(0.02, 0.01, 0.03)), clearly_better(Estimate(0.02, -0.01, 0.05))
    (True, False)
    >>> clearly_better(Estimate(0.002, 0.001, 0.003))
    False
    """
    return gain.low > 0.0 and gain.value >= RELEVANT


def holds(name: str, kind: str) -> str:
    """Whether one of the three answers is the answer."""
    return "open" if kind == "unknown" else "yes" if name == kind else "no"


def evidence(
    name: str, models: Mapping[str, str], gains: Mapping[tuple[str, str], Estimate]
) -> str:
    """What is for or against an answer: its model against the two others."""
    model = models[name]
    parts = [
        f"{signed(gains[model, other])} against {OTHERS[other]}"
        for other in models.values()
        if other != model
    ]
    return "; ".join(parts)


OTHERS = {
    LEARNED: "the learned prior",
    POOLED: "the pooled model",
    ALONE: "tasks alone",
    AVERAGE: "tasks alone around the average reward",
}


def signed(gain: Estimate) -> str:
    """A difference with its sign and interval.

    >>> signed(Estimate(0.0154, 0.011, 0.02))
    '+0.0154 [+0.0110, +0.0200]'
    """
    value, low, high = (f"{round(part, 4) + 0.0:+.4f}".replace("-", "−") for part in gain)
    return f"{value} [{low}, {high}]"


def compared(gain: Estimate) -> tuple[str, str]:
    """How a model does beside another, and the word that goes before the other.

    >>> compared(Estimate(0.01, -0.01, 0.03)), compared(Estimate(0.48, 0.4, 0.57))
    (('as well', 'as'), ('better', 'than'))
    """
    return ("better", "than") if clearly_better(gain) else ("as well", "as")


def sentence(
    kind: str,
    single: str,
    gains: Mapping[tuple[str, str], Estimate],
    leads: Mapping[str, Lead],
    tasks: int,
    first: int,
) -> str:
    """The verdict in plain words."""
    beyond = " beyond their average reward" if single == AVERAGE else ""
    if kind == "transfer":
        least = min(gains[LEARNED, POOLED], gains[LEARNED, single])
        return (
            f"Tasks share structure: a new task starts as if it had already seen {spelt(leads)}. "
            f"The learned prior beats {OTHERS[POOLED]} and {OTHERS[single]}, by at least "
            f"{signed(least)} {UNIT} (+ is better)."
        )
    if kind == "pooling":
        gain = gains[POOLED, LEARNED]
        well, than = compared(gain)
        rewards = "first reward" if first == 1 else f"first {first} rewards"
        return (
            f"Tasks are all alike: one pooled model predicts a new task's {rewards} {well} {than} "
            f"a learned prior ({signed(gain)} {UNIT}; + is better)."
        )
    if kind == "independence":
        gain = gains[single, LEARNED]
        well, than = compared(gain)
        return (
            f"Tasks share nothing{beyond}: each learns {well} alone {than} from a learned prior "
            f"({signed(gain)} {UNIT}; + is better)."
        )
    if tasks < FEWEST:
        return (
            f"Too little data to tell: only {tasks} future tasks, and fewer than {FEWEST} say "
            "nothing of how tasks differ."
        )
    widest = max(
        (gains[pair].high - gains[pair].low) / 2.0
        for pair in ((LEARNED, POOLED), (LEARNED, single), (POOLED, single))
    )
    times = max(2, math.ceil((widest / (TOLERATED / 2.0)) ** 2))
    return (
        f"Too little data to tell: {tasks} future tasks leave differences uncertain by "
        f"±{widest:.2g} {UNIT}. About {times} times as many tasks would settle it."
    )


def spelt(leads: Mapping[str, Lead]) -> str:
    """The lead over tasks alone, in words."""
    text = rounds_in_words(leads[ALONE])
    if AVERAGE in leads:
        text += f" ({rounds_in_words(leads[AVERAGE])} if the average reward is known anyway)"
    return text


def rounds_in_words(found: Lead) -> str:
    """A number of rounds with its interval."""
    value, low, high = found.rounds
    if math.isinf(value):
        return f"{found} {found.unit}"
    if value < 0.5:
        return "less than a round"
    top = f"more than {found.looked}" if math.isinf(high) else f"{high:.1f}"
    shown = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    return f"{shown} rounds [{low:.1f} to {top}]"
