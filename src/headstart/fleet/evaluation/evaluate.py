"""Does it help on my data? Past tasks of a log are learned from, future ones predicted."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.bandit.reports.gain import Gain, expected_gain
from headstart.bandit.rewards import RewardModel, reward_model
from headstart.features.schema.encoder import Encoder
from headstart.fleet.click_fit import check_clicks
from headstart.fleet.engines.threads import MapJobs, job_runner
from headstart.fleet.evaluation import offpolicy
from headstart.fleet.evaluation.clicks import (
    fit_click_models,
    forecast_clicks,
    learn_clicks,
    tasks_with_rows,
)
from headstart.fleet.evaluation.forecasts import Forecast, forecast
from headstart.fleet.evaluation.items import with_items
from headstart.fleet.evaluation.measures import ALONE, LEARNED, POOLED, Draws, Measures, measure
from headstart.fleet.evaluation.models import fit_models, learn_prior
from headstart.fleet.evaluation.provenance import Origin
from headstart.fleet.evaluation.result import Evaluation
from headstart.fleet.evaluation.sample import ALL, Plan, Sample
from headstart.fleet.evaluation.sampling import Split, read_sample
from headstart.fleet.evaluation.verdict import Basis, decide
from headstart.fleet.reading.logs import Logs
from headstart.fleet.summing.summary import column_notes
from headstart.fleet.summing.tasks import Units
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixturePrior
from headstart.model.prior import Prior
from headstart.rules import UCB, Rule, Uniform
from headstart.transfer import EmpiricalBayes, Transfer

__all__ = ["evaluate"]

Progress = Callable[[float, float], None]

#: Arguments that are shown as they were given.
SETTINGS = ("reward", "future", "first", "seed", "most_tasks", "intercept", "clip")


def evaluate(
    logs: Logs,
    *,
    transfer: Transfer | None = None,
    reward: str = "number",
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
    cluster: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Fit on past tasks, predict the first rewards of future ones, and say what helps.

    Parameters
    ----------
    logs
        The rows, any number of files.
    transfer
        How a prior is learned; :class:`~headstart.EmpiricalBayes` unless given.
    reward
        What rewards are, as for :func:`~headstart.fleet.fit`. With ``"binary"`` all models are
        logistic and predict probabilities: errors are those of probabilities, and scores are log
        loss. All rows of the tasks looked at are kept in memory, and policies are not valued.
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
    cluster, workers
        As for :func:`~headstart.fleet.fit`: a Ray cluster, or this machine, and how many cores.
    progress
        Called with the work done and the work in all.
    """
    options, begun = dict(locals()), time.monotonic()
    transfer = EmpiricalBayes() if transfer is None else transfer
    if not isinstance(transfer, Transfer):
        raise checks.refuse("transfer", "a Transfer, such as headstart.EmpiricalBayes()", transfer)
    rule = UCB() if rule is None else rule
    if not isinstance(rule, Rule):
        raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
    checks.flag("intercept", intercept)
    checks.flag("standardize", standardize)
    checks.fraction("future", future, open_ends=True)
    checks.integer("first", first, 1)
    if splits is not None:
        checks.integer("splits", splits, 1)
    checks.integer("seed", seed, 0, 2**63 - 1)
    checks.integer("most_tasks", most_tasks, 4)
    horizon = max(checks.integer("horizon", horizon, 1), first)
    if clip is not None:
        checks.positive("clip", clip)
    model, encoder = reward_model(reward, False), logs.columns.encoder
    is_binary = model.needs_belief
    if encoder is not None and not encoder.schema.identity:
        encoder = None
    # A second reward is read in any case: whether tasks have one matters to the verdict.
    plan = Plan(seed, most_tasks, max(first, 2), horizon, all_rows=is_binary or encoder is not None)
    with job_runner(cluster, workers) as map_jobs:
        rows, advance = logs.replace(intercept=intercept), part(progress, 0.0, 0.5)
        sample, parted = read_sample(rows, plan, future, splits, map_jobs, advance)
        if is_binary and sample.rows is not None:
            check_clicks(sample.rows["reward"], logs)
        whole = Evidence.unpack(sample.evidence.sum(0), sample.dim)
        notes = column_notes(logs.feature_names, intercept, whole, sample.sampled_rows())
        advance, results = part(progress, 0.5, 0.9), list[Any]()
        shared = dataclasses.replace(sample, arms=None), transfer, standardize
        how = functools.partial(judge_clicks, seed=seed) if is_binary else judge
        if encoder is not None:
            how = functools.partial(judge_items, how=how, encoder=encoder, model=model)
        for result in map_jobs(how, [None, *parted], *shared):
            results.append(result)
            advance(len(results) / (1 + len(parted)))
        gain, *judged = results
        measures, places, weights = measure_splits(sample, parted, judged, first, seed, future)
        values, advice = list[offpolicy.Value](), NO_VALUES
        if not is_binary and encoder is None:
            advance = part(progress, 0.9, 1.0)
            values, advice = estimate_values(
                logs, sample, parted[0], judged[0], rule, seed, clip, map_jobs, advance
            )
    split = parted[0]
    basis = basis_of(sample, len(split.past), len(places))
    models, units = judged[0].models, judged[0].units
    part(progress, 0.0, 1.0)(1.0)
    return Evaluation(
        verdict=decide(measures.savings, measures.gains, gain, basis, first),
        measures=measures,
        gain=gain,
        values=values,
        advice=advice,
        splits=len(parted),
        past=len(split.past),
        future=len(split.future),
        past_rows=float(np.mean([each.past_rows for each in judged])),
        future_rows=float((weights[:, :first] > 0).sum() / len(parted)),
        judged=len(places),
        rewards=int((sample.episodes.weights[places, :first] > 0).sum()),
        first=first,
        rounds=sample.rounds,
        bad=sample.bad,
        priors={
            name: prior if units is None else units.undone(prior) for name, prior in models.items()
        },
        settings={name: options[name] for name in SETTINGS}
        | {
            "transfer": repr(transfer),
            "rule": repr(rule),
            "columns": repr(logs.columns),
            "split": "by a hash of the task's id" if sample.cut is None else "by time",
            "splits": len(parted),
            "horizon": horizon,
            "tasks_in_the_log": sample.tasks,
            "standardized": standardize,
        },
        notes=(*notes, *sample.notes()),
        origin=Origin.of(logs, options),
        seconds=time.monotonic() - begun,
    )


NO_VALUES = (
    "Off-policy values are withheld: they are those of linear models of features that every row "
    "has. Evaluate without --reward-model binary, and without identity in the schema, to get them."
)


class SplitResult(NamedTuple):
    """The models of one split, and how they predicted its future.

    Models and forecasts are of features in ``units``, if they were standardized.
    """

    models: dict[str, Prior | MixturePrior]
    forecasts: dict[str, Forecast]
    units: Units | None
    past_rows: float


def judge(
    split: Split | None, sample: Sample, transfer: Transfer, standardize: bool
) -> SplitResult | Gain:
    """Fit all models to the past of a split, and let them predict its future.

    Without a split: what a prior learned from all tasks is expected to save, as ``headstart fit``
    has it.
    """
    dim, intercept = sample.dim, sample.intercept
    past = sample.evidence.copy() if split is None else sample.early[split.past]
    units = None
    if standardize:
        units = Units.of(Evidence.unpack(past.sum(0), dim), intercept)
        past = units.packed(past)
    if split is None:
        total, tasks = Evidence.unpack(past.sum(0), dim), len(past)
        prior = learn_prior(transfer, past, dim).as_gaussian()
        rounds = float(total.rounds)
        return expected_gain(prior, total.gram / max(rounds, 1.0), rounds / tasks, tasks, intercept)
    models, rows = fit_models(past, dim, intercept, transfer), float(past[:, -2].sum())
    return predict_future(sample, split, models, units, rows, forecast)


def judge_clicks(
    split: Split | None, sample: Sample, transfer: Transfer, standardize: bool, seed: int
) -> SplitResult | Gain:
    """The same for rewards of 0 and 1."""
    places = np.arange(len(sample.keys)) if split is None else split.past
    sums = sample.evidence if split is None else sample.early[split.past]
    given = Evidence.unpack(sums.sum(0), sample.dim)
    tasks = tasks_with_rows(sample, places, early=split is not None)
    fit = learn_clicks(transfer, tasks, given, sample.intercept is not None, standardize)
    rounds = float(given.rounds)
    if split is None:
        prior, gram = transfer.prior(fit.state).as_gaussian(), fit.pooled.gram / max(rounds, 1.0)
        return expected_gain(prior, gram, rounds / len(tasks), len(tasks), sample.intercept)
    models = fit_click_models(fit, transfer, tasks, sample.intercept)
    units = None if fit.units is None else Units(*fit.units)
    predict = functools.partial(forecast_clicks, seed=seed)
    return predict_future(sample, split, models, units, rounds, predict)


def predict_future(
    sample: Sample,
    split: Split,
    models: dict[str, Prior | MixturePrior],
    units: Units | None,
    past_rows: float,
    predict: Callable[..., Forecast],
) -> SplitResult:
    """Let models, of features in these units, predict the future of a split."""
    episodes = sample.episodes.take(split.future)
    if units is not None:
        episodes = episodes._replace(features=units.contexts(episodes.features))
    forecasts = {name: predict(prior, episodes) for name, prior in models.items()}
    return SplitResult(models, forecasts, units, past_rows)


def judge_items(
    split: Split | None,
    sample: Sample,
    transfer: Transfer,
    standardize: bool,
    *,
    how: Callable[..., SplitResult | Gain],
    encoder: Encoder,
    model: RewardModel,
) -> SplitResult | Gain:
    """The same where items are known by their ids: first their columns, then as usual."""
    found = with_items(split, sample, encoder, model, transfer, standardize)
    return how(split, found, transfer, standardize)


def measure_splits(
    sample: Sample,
    parted: list[Split],
    judged: list[SplitResult],
    first: int,
    seed: int,
    future: float,
) -> tuple[Measures, Any, Any]:
    """Means over the forecasts of all splits; the tasks they are of, and the rewards' weights."""
    owners = np.concatenate([split.future for split in parted])
    places, owners = np.unique(owners, return_inverse=True)
    weights = np.concatenate([sample.episodes.weights[split.future] for split in parted])
    forecasts = {
        name: Forecast(
            *map(np.concatenate, zip(*(each.forecasts[name] for each in judged), strict=True))
        )
        for name in judged[0].models
    }
    # Splits share most of their past: means over them vary as if only the past had been drawn.
    wider = 1.0 if len(parted) == 1 else (1.0 - future) ** -0.5
    draws = Draws(len(places), seed, owners=owners, wider=wider)
    return measure(forecasts, weights, first, draws), places, weights


def estimate_values(
    logs: Logs,
    sample: Sample,
    split: Split,
    result: SplitResult,
    rule: Rule,
    seed: int,
    clip: float | None,
    map_jobs: MapJobs,
    progress: Callable[[float], None],
) -> tuple[list[offpolicy.Value], str]:
    """What policies would earn on the future of a split; or nothing, and why."""
    advice = offpolicy.missing(logs.columns)
    offers = sample.offers(split.future)
    if offers is not None:
        advice = offpolicy.reason_to_withhold(offers)
        if not len(offers.rewards) and sample.arms_limit < ALL:
            advice = (
                "Off-policy values are withheld: the arms on offer to a single task take more than "
                "the memory that is kept for them. Log fewer arms, or a sample of the rounds."
            )
    if offers is None or advice:
        return [], advice
    if result.units is not None:
        offers = offers._replace(features=result.units.contexts(offers.features))
    models = result.models
    policies = [
        *(offpolicy.Policy(name, models[name], rule) for name in (LEARNED, POOLED, ALONE)),
        offpolicy.Policy("uniform", models[ALONE], Uniform()),
    ]
    values = offpolicy.estimate(
        offers,
        policies,
        models[LEARNED],
        Draws(len(offers.tasks) - 1, seed),
        seed=seed,
        clip=clip,
        map_jobs=map_jobs,
        progress=progress,
    )
    return values, ""


def basis_of(sample: Sample, past: int, judged: int) -> Basis:
    """How many tasks there are, and how many have a reward that tells them from others."""
    least, most = float(sample.lowest.min()), float(sample.highest.max())
    above = int((sample.highest > least).sum())
    below = int((sample.lowest < most).sum())
    usual = least if above <= below else most
    several = int((sample.episodes.lengths > 1).sum())
    return Basis(past, judged, min(above, below), usual, several)


def part(progress: Progress | None, low: float, high: float) -> Callable[[float], None]:
    """Progress of a part of the work, from 0 to 1, as progress of the whole."""

    def advance(done: float) -> None:
        if progress is not None:
            progress(low + (high - low) * done, 1.0)

    return advance
