"""Does it help on my data? Past tasks of a log are learned from, future ones predicted."""

from __future__ import annotations

import time
from collections.abc import Callable

from headstart import checks
from headstart.errors import InputError
from headstart.evidence import Evidence
from headstart.fleet import baselines, measures, offpolicy, sampling
from headstart.fleet.bootstrap import Draws
from headstart.fleet.evaluation import Evaluation
from headstart.fleet.forecasts import Forecast, forecast
from headstart.fleet.logs import Logs
from headstart.fleet.measures import ALONE, AVERAGE, LEARNED, POOLED
from headstart.fleet.origin import Origin
from headstart.fleet.verdict import decide
from headstart.mixture import MixturePrior
from headstart.prior import Prior
from headstart.rules import UCB, Rule, Uniform
from headstart.transfer import EmpiricalBayes, Transfer
from headstart.transfer.portions import Listed

__all__ = ["evaluate", "learn"]

Bar = Callable[[float, float], None]

PORTION = 1024  # past tasks that are fitted at a time


def evaluate(
    logs: Logs,
    *,
    transfer: Transfer | None = None,
    future: float = 0.3,
    first: int = 10,
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
    seed
        Of the split, of the intervals and of the policies' choices.
    most_tasks
        If there are more tasks, so many are looked at, chosen by a hash of their ids.
    intercept
        Whether every model gets a constant feature. Without it a model cannot say that rewards
        are 3.6 on average, and whoever knows that looks good.
    standardize
        Whether features are centred and divided by their standard deviations, as
        :func:`~headstart.fleet.fit` does.
    horizon
        How many rounds of future tasks are looked at to find the lead, and to run policies.
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
    checks.integer("seed", seed)
    checks.integer("most_tasks", most_tasks, 4)
    horizon = max(checks.integer("horizon", horizon, 1), first)
    if clip is not None:
        checks.positive("clip", clip)
    report = between(progress, 0.0, 1.0)

    found = sampling.census(logs, between(progress, 0.0, 0.2))
    if not found.names:
        raise InputError("logs must hold rows with rewards; these have none")
    parted = sampling.split(found, future, seed, most_tasks)
    constant = logs.dim if intercept else None
    sample = sampling.gather(logs, parted, horizon, constant, between(progress, 0.2, 0.4))
    units = sampling.units_of(sample) if standardize else None
    sample = sample if units is None else sampling.in_units(sample, units)
    episodes = sample.episodes

    priors: dict[str, Prior | MixturePrior] = {LEARNED: learn(transfer, sample.past)}
    report(0.7)
    priors[POOLED] = baselines.pooled(sample.past, constant)
    if constant is not None:
        priors[AVERAGE] = baselines.alone(sample.past, constant, around_average=True)
    priors[ALONE] = baselines.alone(sample.past, constant)
    steps = between(progress, 0.75, 0.85)
    forecasts: dict[str, Forecast] = {}
    for place, (name, prior) in enumerate(priors.items(), 1):
        forecasts[name] = forecast(prior, episodes)
        steps(place / len(priors))

    draws = Draws.of(len(episodes), seed)
    measured = measures.measure(forecasts, episodes, first, draws)
    start = priors[LEARNED].mean
    leads = {
        name: measures.lead(start, forecasts[name], episodes, draws)
        for name in (AVERAGE, ALONE)
        if name in priors
    }
    verdict = decide(measured.gains, leads, len(episodes), first)
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
            draws,
            seed=seed,
            clip=clip,
            progress=between(progress, 0.85, 1.0),
        )
    report(1.0)
    return Evaluation(
        verdict=verdict,
        measures=measured,
        leads=leads,
        values=values,
        advice=advice,
        past=len(parted.past),
        future=len(parted.future),
        rewards=int((episodes.weights[:, :first] > 0).sum()),
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
            "split": "by time" if parted.cut is not None else "by a hash of the task's id",
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
        origin=Origin.of(
            logs,
            transfer=transfer,
            future=future,
            first=first,
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


def learn(transfer: Transfer, past: Evidence) -> Prior | MixturePrior:
    """The prior that a transfer learns from the evidence of past tasks, side by side.

    As ``headstart fit`` learns it: all together if they are few, in passes over portions otherwise.
    """
    rows = past.pack()
    parts = [rows[at : at + PORTION] for at in range(0, len(rows), PORTION)]
    prior: Prior | MixturePrior = transfer.prior(transfer.refit_portions(Listed(parts, past.dim)))
    return prior


def between(report: Bar | None, low: float, high: float) -> Callable[[float], None]:
    """Progress of a part, from 0 to 1, as progress of the whole."""

    def tell(done: float) -> None:
        if report is not None:
            report(low + (high - low) * done, 1.0)

    return tell
