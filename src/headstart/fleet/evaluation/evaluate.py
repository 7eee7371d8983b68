"""Does it help on my data? Past tasks of a log are learned from, future ones predicted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headstart import checks
from headstart.bandit.gain import Gain, expected_gain
from headstart.errors import InputError
from headstart.fleet.evaluation import baselines, measures, offpolicy, splitting
from headstart.fleet.evaluation.bootstrap import Draws
from headstart.fleet.evaluation.forecasts import Forecast, forecast
from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED
from headstart.fleet.evaluation.provenance import Origin
from headstart.fleet.evaluation.result import Evaluation
from headstart.fleet.evaluation.splitting import Gathered, Sample
from headstart.fleet.evaluation.verdict import Basis, decide
from headstart.fleet.reading.logs import Logs
from headstart.fleet.summing.outliers import oddities
from headstart.fleet.summing.standardize import Units
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixturePrior
from headstart.model.prior import Prior
from headstart.rules import UCB, Rule, Uniform
from headstart.transfer import EmpiricalBayes, Transfer
from headstart.transfer.partitions import PartitionList

__all__ = ["evaluate", "learn"]

Bar = Callable[[float, float], None]

PORTION = 1024  # past tasks that are fitted at a time


def evaluate(
    logs: Logs,
    *,
    transfer: Transfer | None = None,
    future: float = 0.3,
    first: int = 10,
    splits: int | None = None,
    seed: int = 0,
    most_tasks: int = 20_000,
    intercept: bool = True,
    standardize: bool = True,
    horizon: int = 200,
    rule: Rule | None = None,
    clip: float | None = None,
    progress: Bar | None = None,
) -> Evaluation:
    """Fit on past tasks, predict the first rewards of future ones, and say what helps.

    Parameters
    ----------
    logs
        The rows, any number of files.
    transfer
        How a prior is learned; :class:`~headstart.EmpiricalBayes` unless given.
    future
        The share of tasks that are predicted. With a timestamp column they are those that start
        last, and what past tasks show after the first of them has begun does not count; otherwise a
        hash of their ids decides.
    first
        How many rewards of each future task count.
    splits
        How often tasks are divided at random, so that the answer does not hang on one division:
        3 to 5 times, the more the fewer tasks there are, unless given. A division by time is one.
    seed
        Of the splits, of the intervals and of the policies' choices.
    most_tasks
        If there are more tasks, so many are looked at, chosen by a hash of their ids.
    intercept
        Whether every model gets a constant feature. Without it a model cannot say that rewards
        are 3.6 on average, and whoever knows that looks good.
    standardize
        Whether features are centred and divided by their standard deviations, as
        :func:`~headstart.fleet.fit` does.
    horizon
        How many rounds of future tasks are looked at to run policies.
    rule
        How the policies choose whose value is estimated, where the log allows it;
        :class:`~headstart.UCB` unless given.
    clip
        The largest weight in IPS, SNIPS and doubly robust estimates; none unless given.
    progress
        Called with the work done and the work in all.
    """
    begun = time.monotonic()
    transfer = EmpiricalBayes() if transfer is None else transfer
    if not isinstance(transfer, Transfer):
        raise checks.refuse("transfer", "a Transfer, such as headstart.EmpiricalBayes()", transfer)
    rule = UCB() if rule is None else rule
    if not isinstance(rule, Rule):
        raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
    for name, value in (("intercept", intercept), ("standardize", standardize)):
        if not isinstance(value, bool):
            raise checks.refuse(name, "True or False", value)
    checks.fraction("future", future, open_ends=True)
    checks.integer("first", first, 1)
    if splits is not None:
        checks.integer("splits", splits, 1)
    checks.integer("seed", seed, 0, 2**63 - 1)
    checks.integer("most_tasks", most_tasks, 4)
    horizon = max(checks.integer("horizon", horizon, 1), first)
    if clip is not None:
        checks.positive("clip", clip)
    report = between(progress, 0.0, 1.0)

    found = splitting.census(logs, between(progress, 0.0, 0.2))
    if not found.names:
        raise InputError("logs must hold rows with rewards; these have none")
    parted = splitting.splits(found, future, seed, most_tasks, splits)
    constant = logs.dim if intercept else None
    # A second reward is read in any case: whether tasks have one matters to the verdict.
    gathered = splitting.gather(
        logs, parted, max(first, 2), horizon, constant, between(progress, 0.2, 0.4)
    )
    whole = splitting.summed(gathered.whole)
    notes = oddities(logs.feature_names, intercept, whole, gathered.sampled())
    gain = gain_of(gathered, transfer, standardize)
    steps = between(progress, 0.4, 0.85)
    work: list[Judged] = []
    for place, one in enumerate(parted):
        work.append(judged(gathered.part(one), transfer, standardize))
        steps((place + 1) / len(parted))
    owners = np.concatenate([one.sample.places for one in work])
    seen, owners = np.unique(owners, return_inverse=True)
    weights = np.concatenate([one.sample.episodes.weights for one in work])
    forecasts = {
        name: Forecast(
            *map(np.concatenate, zip(*(one.forecasts[name] for one in work), strict=True))
        )
        for name in work[0].priors
    }
    # Splits share most of their past: means over them vary as if only the past had been drawn.
    wider = 1.0 if len(parted) == 1 else (1.0 - future) ** -0.5
    draws = Draws.of(len(seen), seed, owners=owners, wider=wider)
    measured = measures.measure(forecasts, weights, first, draws)
    past, ahead = len(parted[0].past), len(parted[0].future)
    basis = basis_of(gathered, past, len(seen))
    verdict = decide(measured.savings, measured.gains, gain, basis, first)
    sample, priors, units = work[0].sample, work[0].priors, work[0].units
    advice = offpolicy.missing(logs.columns)
    if sample.offers is not None:
        advice = offpolicy.doubts(sample.offers)
    values: list[offpolicy.Value] = []
    if sample.offers is not None and not advice:
        policies = [
            *(offpolicy.Policy(name, priors[name], rule) for name in (LEARNED, POOLED, ALONE)),
            offpolicy.Policy("uniform", priors[ALONE], Uniform()),
        ]
        values = offpolicy.estimate(
            sample.offers,
            policies,
            priors[LEARNED],
            Draws.of(ahead, seed),
            seed=seed,
            clip=clip,
            progress=between(progress, 0.85, 1.0),
        )
    report(1.0)
    return Evaluation(
        verdict=verdict,
        measures=measured,
        gain=gain,
        values=values,
        advice=advice,
        splits=len(parted),
        past=past,
        future=ahead,
        past_rows=float(np.mean([one.sample.past.rounds.sum() for one in work])),
        future_rows=float((weights[:, :first] > 0).sum() / len(parted)),
        judged=len(seen),
        rewards=int((gathered.episodes.weights[seen, :first] > 0).sum()),
        first=first,
        rounds=found.rounds,
        bad=found.bad,
        priors={
            name: prior if units is None else units.undone(prior) for name, prior in priors.items()
        },
        settings={
            "transfer": repr(transfer),
            "rule": repr(rule),
            "columns": repr(logs.columns),
            "split": "by time" if parted[0].cut is not None else "by a hash of the task's id",
            "splits": len(parted),
            "future": future,
            "first": first,
            "horizon": horizon,
            "seed": seed,
            "tasks_in_the_log": len(found.names),
            "most_tasks": most_tasks,
            "intercept": intercept,
            "standardized": standardize,
            "clip": clip,
        },
        notes=tuple(notes),
        origin=Origin.of(
            logs,
            transfer=transfer,
            future=future,
            first=first,
            splits=splits,
            seed=seed,
            most_tasks=most_tasks,
            intercept=intercept,
            standardize=standardize,
            clip=clip,
            horizon=horizon,
            rule=rule,
        ),
        seconds=time.monotonic() - begun,
    )


class Judged(NamedTuple):
    """The models of one split, and how they predicted its future."""

    sample: Sample
    priors: dict[str, Prior | MixturePrior]
    forecasts: dict[str, Forecast]
    units: Units | None


def judged(sample: Sample, transfer: Transfer, standardize: bool) -> Judged:
    """Fit all models to the past of a split, and let them predict its future."""
    constant = sample.intercept
    units = splitting.units_of(sample.past, constant) if standardize else None
    sample = sample if units is None else splitting.in_units(sample, units)
    priors: dict[str, Prior | MixturePrior] = {LEARNED: learn(transfer, sample.past)}
    priors[POOLED] = baselines.pooled(sample.past, constant)
    if constant is not None:
        priors[OFFSET] = baselines.random_intercept(sample.past, constant)
        priors[AVERAGE] = baselines.alone(sample.past, constant, around_average=True)
    priors[ALONE] = baselines.alone(sample.past, constant)
    forecasts = {name: forecast(prior, sample.episodes) for name, prior in priors.items()}
    return Judged(sample, priors, forecasts, units)


def gain_of(gathered: Gathered, transfer: Transfer, standardize: bool) -> Gain:
    """What a prior learned from all tasks is expected to save, as ``headstart fit`` has it."""
    evidence, constant = gathered.whole, gathered.intercept
    if standardize:
        evidence = splitting.units_of(evidence, constant).evidence(evidence)
    prior = learn(transfer, evidence)
    whole = prior.as_gaussian()
    total, tasks = splitting.summed(evidence), len(gathered.names)
    rounds = float(total.rounds)
    return expected_gain(whole, total.gram / max(rounds, 1.0), rounds / tasks, tasks, constant)


def basis_of(gathered: Gathered, past: int, judged: int) -> Basis:
    """How many tasks there are, and how many have a reward that tells them from others."""
    least, most = float(gathered.lowest.min()), float(gathered.highest.max())
    above = int((gathered.highest > least).sum())
    below = int((gathered.lowest < most).sum())
    usual = least if above <= below else most
    several = int((gathered.episodes.lengths > 1).sum())
    return Basis(past, judged, min(above, below), usual, several)


def learn(transfer: Transfer, past: Evidence) -> Prior | MixturePrior:
    """The prior that a transfer learns from the evidence of past tasks, side by side.

    As ``headstart fit`` learns it: all together if they are few, in passes over portions otherwise.
    """
    rows = past.pack()
    parts = [rows[at : at + PORTION] for at in range(0, len(rows), PORTION)]
    prior: Prior | MixturePrior = transfer.prior(
        transfer.refit_partitions(PartitionList(parts, past.dim))
    )
    return prior


def between(report: Bar | None, low: float, high: float) -> Callable[[float], None]:
    """Progress of a part, from 0 to 1, as progress of the whole."""

    def tell(done: float) -> None:
        if report is not None:
            report(low + (high - low) * done, 1.0)

    return tell
