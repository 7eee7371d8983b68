"""Does a learned prior help? The possible answers, each with its evidence.

Two things are looked at. How well models predict rewards that none of them had seen, by squared
error, which is what choices depend on; and what a learned prior is expected to save of the regret
of the best simpler way to choose, by simulation from what was learned
(:func:`headstart.bandit.reports.gain.expected_gain`). An answer is given only if the intervals of
both support it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from headstart.bandit.reports.gain import Gain
from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED, Estimate

#: The share of squared error below which a difference does not matter.
MIN_RELEVANT_SHARE = 0.01
#: The share of squared error that a rival may yet save when a model is said to do as well.
MAX_RIVAL_SAVING = 0.05
#: Nats per reward by which a prior may lose to every special case of itself.
MAX_LOST_NATS = 0.05
#: The share of regret that is worth a learned prior.
MIN_GAIN = 0.05
#: The share of regret that it may yet save when something simpler is said to do as well. Less where
#: slopes are pooled: a task alone catches up in time, pooled slopes never do.
MAX_MISSED_GAIN = {"pooling": 0.05, "offset": 0.05, "independence": 0.1}
#: The share of what choosing at random loses that pooled slopes may lose when tasks are said to be
#: alike, or to differ by an offset only.
MAX_POOLED_REGRET = 0.1
#: What differences are in.
UNIT = "of the squared error"
#: Tasks of each kind without which intervals cannot be trusted.
MIN_TASKS = 10


Savings = Mapping[tuple[str, str], Estimate]


class Finding(NamedTuple):
    """One of the possible answers: whether it holds, and what says so.

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
        ``"transfer"``, ``"pooling"``, ``"offset"``, ``"independence"``, ``"misfit"`` (the fit has
        failed) or ``"unknown"`` (too little data, or models that predict equally well).
    sentence
        The same in plain words.
    findings
        The evidence for and against each of the first four.
    """

    kind: str
    sentence: str
    findings: tuple[Finding, ...]


class Basis(NamedTuple):
    """What a verdict rests on.

    Attributes
    ----------
    past, judged
        How many tasks a prior was learned from, and how many were predicted.
    informative
        How many tasks have a reward other than the usual one, where most are the same.
    usual
        That reward.
    several
        How many tasks have more than one reward.
    rewards, unusual
        How many rewards were predicted, and how many of them are other than the usual one.
    """

    past: int
    judged: int
    informative: int
    usual: float
    several: int
    rewards: int
    unusual: int


def decide(savings: Savings, scores: Savings, gain: Gain, basis: Basis, first: int) -> Verdict:
    """The verdict.

    Parameters
    ----------
    savings
        Which share of the squared error of the second model of a pair the first one saves.
    scores
        Nats per reward by which the first model of a pair is above the second.
    gain
        What the learned prior is expected to save.
    basis
        How much data there is.
    first
        How many rewards of each future task were predicted.
    """
    single = AVERAGE if (LEARNED, AVERAGE) in savings else ALONE
    models = {"pooling": POOLED, "offset": OFFSET, "independence": single, "transfer": LEARNED}
    if (LEARNED, OFFSET) not in savings:
        del models["offset"]
    if doubt := too_little(basis):
        kind, words = "unknown", f"Too little data to tell: {doubt}."
    elif words := misfit(scores, models):
        kind = "misfit"
    else:
        answers = (name for name in models if supported(name, models, savings, gain))
        kind = next(answers, "unknown")
        words = sentence(kind, models, savings, gain, first)
    findings = []
    for name in ("transfer", *(name for name in models if name != "transfer")):
        model = models[name]
        others = [other for other in models.values() if other != model]
        is_refuted = any(clearly_better(savings[other, model]) for other in others)
        is_decided = kind in models or (is_refuted and not doubt and kind != "misfit")
        holds = "yes" if name == kind else "no" if is_decided else "open"
        against = (f"{format_saving(savings[model, it])} against {OTHERS[it]}" for it in others)
        statement = STATEMENTS[name]
        if name == "pooling" and "offset" not in models:
            statement = statement.replace("all alike", ALIKE_BUT_OFFSETS)
        findings.append(Finding(name, statement, holds, "; ".join(against)))
    return Verdict(kind, words, tuple(findings))


#: The statement of *pooling* for models without an intercept, which cannot detect offsets.
ALIKE_BUT_OFFSETS = "all alike up to an offset, which models without an intercept do not look for"
STATEMENTS = {
    "transfer": "Tasks share structure: a learned prior helps",
    "pooling": "Tasks are all alike: one pooled model does at least as well",
    "offset": "Tasks differ by an offset only: pooled slopes choose at least as well",
    "independence": "Tasks share nothing: each learns at least as well alone",
}


def too_little(basis: Basis) -> str:
    """Why there are too few tasks or rewards for a verdict; empty if there are enough."""
    if basis.informative == 0:
        return f"every reward is {basis.usual:g}, and nothing can be learned from that"
    few = min(basis.past, basis.judged)
    if few < MIN_TASKS:
        side = "past" if basis.past <= basis.judged else "future"
        least = f"fewer than {MIN_TASKS} say nothing about how tasks differ"
        return f"only {few} {side} tasks, and {least}"
    single = "and a single one does not distinguish a task from noise"
    for tasks, what in (
        (basis.informative, f"a reward other than {basis.usual:g}"),
        (basis.several, f"more than one reward, {single}"),
    ):
        if tasks < MIN_TASKS:
            who = {0: "no task has", 1: "only 1 task has"}.get(tasks, f"only {tasks} tasks have")
            return f"{who} {what}"
    if basis.unusual < MIN_TASKS:
        return (
            f"only {basis.unusual:,} of the {basis.rewards:,} rewards that were predicted "
            f"{'is' if basis.unusual == 1 else 'are'} other than {basis.usual:g}. Where rewards "
            f"are so rare, predict more of each task (--first), or log more rounds"
        )
    return ""


def misfit(scores: Savings, models: Mapping[str, str]) -> str:
    """That the learned prior cannot be right, in a sentence; empty if it may be.

    The simpler models are special cases of it: it may lose a little to each, but not much to all.
    """
    rivals = [scores[model, LEARNED] for model in models.values() if model != LEARNED]
    if all(rival.low > MAX_LOST_NATS for rival in rivals):
        return (
            f"The fit has failed: by log-likelihood the learned prior predicts worse than every "
            f"simpler model, by {min(rivals).value:.3g} nats per reward or more. These models are "
            f"special cases of it, so that its fit cannot be trusted, whatever its squared error: "
            f"look for repeated rows and outliers with headstart check."
        )
    return ""


def supported(name: str, models: Mapping[str, str], savings: Savings, gain: Gain) -> bool:
    """Whether the intervals support an answer."""
    model = models[name]
    others = [other for other in models.values() if other != model]
    if name == "transfer":
        ahead = all(savings[model, other].low > 0.0 for other in others)
        return ahead and gain.low > 0.0 and gain.saved >= MIN_GAIN
    rivals = [savings[other, model] for other in others]
    if any(clearly_better(rival) or not rival.high <= MAX_RIVAL_SAVING for rival in rivals):
        return False
    # Tasks that share nothing must differ for certain; tasks that are alike must not differ much.
    if name == "independence" and not savings[model, POOLED].low > 0.0:
        return False
    if name != "independence" and gain.pooled_high > MAX_POOLED_REGRET:
        return False
    if clearly_better(savings[model, LEARNED]) and gain.low < MIN_GAIN:
        return True
    # The gain is that over the better of the two ways to choose; this model's may be the other.
    regret = gain.alone if name == "independence" else gain.pooled
    return gain.high <= MAX_MISSED_GAIN[name] and gain.over_rival(regret) <= MAX_MISSED_GAIN[name]


def nearest(models: Mapping[str, str], savings: Savings) -> str:
    """The simpler model that predicts best."""
    rivals = [model for model in models.values() if model != LEARNED]
    return min(rivals, key=lambda rival: savings[LEARNED, rival])


def is_tie(saved: Estimate) -> bool:
    """Whether the interval of a difference excludes differences that matter.

    >>> is_tie(Estimate(0.001, -0.002, 0.004)), is_tie(Estimate(0.001, -0.02, 0.022))
    (True, False)
    """
    return saved.low > -MIN_RELEVANT_SHARE and saved.high < MIN_RELEVANT_SHARE


def clearly_better(saved: Estimate) -> bool:
    """Whether a difference is certain, and large enough to matter.

    >>> clearly_better(Estimate(0.02, 0.01, 0.03)), clearly_better(Estimate(0.02, -0.01, 0.05))
    (True, False)
    >>> clearly_better(Estimate(0.002, 0.001, 0.003))
    False
    """
    return saved.low > 0.0 and saved.value >= MIN_RELEVANT_SHARE


OTHERS = {
    LEARNED: "the learned prior",
    POOLED: "the pooled model",
    OFFSET: "pooled slopes with a random intercept",
    ALONE: "tasks alone",
    AVERAGE: "tasks that learn alone and know the average reward",
}


def format_saving(saved: Estimate) -> str:
    """A difference in per cent, with its sign and interval.

    >>> format_saving(Estimate(0.0154, 0.011, 0.02))
    '+1.54 % [+1.10, +2.00]'
    >>> format_saving(Estimate(-0.0328, -67.611, 0.0216))
    '−3.28 % [−6,761, +2.16]'
    """
    value, low, high = (
        f"{round(100.0 * part, 2) + 0.0:+{'.2f' if abs(part) < 10.0 else ',.0f'}}".replace("-", "−")
        if math.isfinite(part)
        else "?"
        for part in saved
    )
    return f"{value} % [{low}, {high}]"


def sentence(kind: str, models: Mapping[str, str], savings: Savings, gain: Gain, first: int) -> str:
    """The verdict in plain words."""
    single = models["independence"]
    rewards = "first reward" if first == 1 else f"first {first} rewards"
    rival = nearest(models, savings)
    lead = savings[LEARNED, rival]
    if kind == "transfer":
        return (
            f"Tasks share structure: a learned prior is expected to save {gain}. It predicts a new "
            f"task's {rewards} better than every simpler model, and saves "
            f"{format_saving(lead)} {UNIT} of the best of them, {OTHERS[rival]}."
        )
    if kind != "unknown":
        saved = savings[models[kind], LEARNED]
        well, than = ("better", "than") if clearly_better(saved) else ("as well", "as")
        beyond = " beyond their average reward" if single == AVERAGE else ""
        alike = "all alike" if "offset" in models else ALIKE_BUT_OFFSETS
        what = {
            "pooling": f"Tasks are {alike}: one pooled model predicts a new task's {rewards} "
            f"{well} {than} a learned prior",
            "offset": f"Tasks differ by an offset only: pooled slopes with a random intercept "
            f"predict a new task's {rewards} {well} {than} a learned prior, and choose as one "
            f"pooled model does",
            "independence": f"Tasks share nothing{beyond}: each learns {well} alone {than} from a "
            f"learned prior",
        }[kind]
        return f"{what} (saving {format_saving(saved)} of its squared error)."
    if is_tie(lead):
        return (
            f"The models predict equally well: a new task's {rewards} are predicted by the learned "
            f"prior as by {OTHERS[rival]}, within {100.0 * MIN_RELEVANT_SHARE:g} % {UNIT} "
            f"({format_saving(lead)}). At choosing, the learned prior is expected to save {gain}."
        )
    if lead.high < 0.0:
        worse = (
            f"a new task's {rewards} are predicted worse by the learned prior than by "
            f"{OTHERS[rival]} ({format_saving(lead)} {UNIT})"
        )
        if gain.low > 0.0:
            return (
                f"Predictions and the expected gain disagree: {worse}, but at choosing it is "
                f"expected to save {gain}. The gain assumes that the learned population is right."
            )
        return (
            f"It is open which simpler model is best: {worse}, and at choosing it is expected to "
            f"save {gain}."
        )
    return (
        f"Too little data to tell: at predicting a new task's {rewards} the learned prior saves "
        f"{format_saving(lead)} {UNIT} of {OTHERS[rival]}, and at choosing it is expected to "
        f"save {gain}.{more_tasks(lead)}"
    )


def more_tasks(saved: Estimate) -> str:
    """How many more tasks would separate a difference from 0, if it is as large as estimated.

    That is known to a factor of 2 or so at best, and rounded accordingly.
    """
    half = (saved.high - saved.low) / 2.0
    if not math.isfinite(half) or half <= 0.0:
        return ""
    times = (half / max(abs(saved.value), MIN_RELEVANT_SHARE)) ** 2
    if times <= 1.0:
        return ""
    enough = next((many for many in (2, 5, 10, 20, 50, 100) if times <= many), None)
    if enough is None:
        return (
            " Even 100 times as many tasks would not settle it: the difference is too small for "
            "the noise of these rewards."
        )
    times_as_many = "twice" if enough == 2 else f"{enough} times"
    return f" About {times_as_many} as many tasks would settle it."
