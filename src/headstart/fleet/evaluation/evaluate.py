"""Does it help on my data? Past tasks of a log are learned from, future ones predicted."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headstart import checks
from headstart.bandit.offline.observation import refuse_means
from headstart.bandit.rewards import RewardModel, reward_model
from headstart.errors import InputError
from headstart.fleet.engines.threads import MapJobs, job_runner
from headstart.fleet.evaluation import offpolicy
from headstart.fleet.evaluation.measures import ALONE, LEARNED, POOLED, Bootstrap, Measures, measure
from headstart.fleet.evaluation.result import Evaluation
from headstart.fleet.evaluation.rollouts import Forecast, Policy
from headstart.fleet.evaluation.sample import ALL, Plan, Sample
from headstart.fleet.evaluation.sampling import Split, read_sample
from headstart.fleet.evaluation.validation import Setup, SplitResult, validate_split
from headstart.fleet.evaluation.verdict import Basis, decide
from headstart.fleet.fit import checked_transfer, refuse_scales
from headstart.fleet.options import Provenance
from headstart.fleet.reading.logs import Logs
from headstart.fleet.summing.summary import column_notes, no_progress
from headstart.model.evidence import Evidence
from headstart.rules import UCB, Rule, Uniform
from headstart.transfer import Transfer
from headstart.transfer.task_levels import LEVEL_TASKS, features_in_proportion, proportion_notes

Progress = Callable[[float, float], None]

#: Arguments that are shown as they were given.
SETTINGS = ("reward", "minimize", "future", "first", "seed", "most_tasks", "intercept", "clip")


def evaluate(
    logs: Logs,
    *,
    transfer: Transfer | None = None,
    reward: str = "number",
    minimize: bool = False,
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
        loss. All rows of the tasks looked at are kept in memory, and off-policy values are
        withheld.
    minimize
        Whether rewards are costs, as for :func:`~headstart.fleet.fit`. Values of policies are then
        costs; the models in ``priors`` are those of the reward −cost.
    future
        The share of tasks that are predicted. With a timestamp column they are those that start
        last, and rewards of past tasks after the first of these starts are not used; otherwise they
        are chosen by a hash of their ids.
    first
        The number of rewards of each future task that are predicted.
    splits
        The number of random splits, so that the result does not depend on one of them; by default 3
        to 5, more for fewer tasks. A split by time is a single one.
    seed
        Of the splits, of the intervals and of the policies' choices.
    most_tasks
        The maximum number of tasks; of more, a sample is chosen by a hash of their ids.
    intercept
        Whether every model has a constant feature. Without it, a model that can represent the
        average reward by its other features appears better.
    standardize
        Whether features are centred and divided by their standard deviations, as
        :func:`~headstart.fleet.fit` does.
    horizon
        The number of rounds of each future task on which policies are run.
    rule
        The rule of the policies whose value is estimated, where the log allows it;
        :class:`~headstart.UCB` unless given.
    clip
        The largest weight in IPS, SNIPS and doubly robust estimates; none unless given.
    cluster, workers
        As for :func:`~headstart.fleet.fit`: a Ray cluster, or this machine, and how many cores.
    progress
        Called with the work done and the work in all.
    """
    options, begun, progress = dict(locals()), time.monotonic(), progress or no_progress
    transfer = checked_transfer(logs, transfer, intercept)
    rule = UCB() if rule is None else rule
    if not isinstance(rule, Rule):
        raise checks.invalid("rule", "a Rule, such as headstart.UCB()", rule)
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
    model, encoder = reward_model(reward, minimize), logs.columns.encoder
    is_binary = model.needs_belief
    if encoder is not None and not encoder.schema.identity:
        encoder = None
    are_means = logs.columns.mean_of is not None
    if are_means:
        refuse_means(model)
        if encoder is not None:
            raise InputError("mean_of must be left out with a schema with identity=True")
    # A second reward is read in any case: whether tasks have one matters to the verdict.
    plan = Plan(seed, most_tasks, max(first, 2), horizon, all_rows=is_binary or encoder is not None)
    with job_runner(cluster, workers) as map_jobs:
        share, advance = logs.survey.share, part(progress, 0.0, 0.5)
        rows = logs.replace(intercept=intercept, share=share, rewards=model)
        sample, parted = read_sample(
            rows, plan, future, splits, map_jobs, lambda _, done, total: advance(done / total)
        )
        whole = Evidence.unpack(sample.evidence.sum(0), sample.dim)
        summary = sample.summary
        notes = [*logs.survey.copies, *summary.reading_notes(), *summary.repeats(share)]
        notes += column_notes(logs.feature_names, intercept, whole, summary.sampled)
        if intercept:
            some = Evidence.unpack(sample.evidence[:LEVEL_TASKS], sample.dim)
            found = features_in_proportion(some.gram)
            notes += proportion_notes(np.array(logs.feature_names)[found].tolist())
        has_times = logs.columns.timestamp is not None
        notes += sample_notes(sample, parted[0], has_times, model)
        advance, results = part(progress, 0.5, 0.9), list[Any]()
        shared = dataclasses.replace(sample, arms=None)
        how = seed, first, future, rule, clip
        setup = Setup(transfer, standardize, model, encoder, *how)
        try:
            for result in map_jobs(validate_split, [None, *parted], shared, setup):
                results.append(result)
                advance(len(results) / (1 + len(parted)))
        except np.linalg.LinAlgError as error:
            raise refuse_scales(whole, summary, model) from error
        gain, *judged = results
        measures, places, weights = measure_splits(sample, parted, judged, setup)
        values, advice = list[offpolicy.Value](), offpolicy.missing(logs.columns)
        if is_binary or encoder is not None or are_means:
            advice = reason_for_no_values(is_binary, encoder is not None, are_means, advice)
        elif not advice:
            values, advice = estimate_values(
                sample, parted[0], judged[0], setup, map_jobs, part(progress, 0.9, 1.0)
            )
    parameters = inspect.signature(evaluate).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    split = parted[0]
    basis = basis_of(sample, len(split.past), places, first, model)
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
        rewards=basis.rewards,
        first=first,
        rounds=sample.rounds,
        bad=summary.bad,
        priors={
            name: prior if units is None else units.original_prior(prior)
            for name, prior in models.items()
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
        provenance=Provenance.of(logs, options, defaults),
        seconds=time.monotonic() - begun,
    )


def sample_notes(sample: Sample, split: Split, has_times: bool, model: RewardModel) -> list[str]:
    """What is odd about rewards, tasks or times, where that is not what one would expect."""
    notes = []
    rewards = np.concatenate([sample.lowest, sample.highest, sample.episodes.rewards.ravel()])
    if not model.needs_belief and np.isin(model.read_many(rewards), (0.0, 1.0)).all():
        notes.append(
            "every reward is 0 or 1: with --reward-model binary all models are logistic, and "
            "predict probabilities"
        )
    share = sample.rounds.max() / sample.rounds.sum()
    if share > LARGE_TASK_SHARE and share * len(sample.rounds) > 1.0 / LARGE_TASK_SHARE:
        notes.append(
            f"one task has {100.0 * share:.0f} % of all rewards: pooled models describe this task "
            f"more than any other, and the mean length of a task is not that of most"
        )
    if has_times and sample.cut is None:
        notes.append(
            "most tasks start at the same time: they are split at random, and the rewards of each "
            "are in the order of time"
        )
    early, whole = (packed[split.past, -2].sum() for packed in (sample.early, sample.evidence))
    if early < 0.5 * whole:
        notes.append(
            f"only {100.0 * early / whole:.0f} % of the rows of past tasks come before the first "
            f"future task begins, and no others are learned from: tasks run side by side. Without "
            f"a timestamp tasks are split at random, and all rows of past tasks count"
        )
    return notes


LARGE_TASK_SHARE = 0.2  # of all rewards, for one task


def reason_for_no_values(is_binary: bool, has_items: bool, are_means: bool, missing: str) -> str:
    """Why no off-policy values are estimated, and what else is ``missing`` for them.

    >>> print(reason_for_no_values(True, False, False, ""))
    Off-policy values are withheld: they are those of linear models of single rewards, with features
    that every row has. To get them, evaluate without --reward-model binary.
    """
    options = ["--reward-model binary"] * is_binary + ["identity in the schema"] * has_items
    options += ["--mean-of"] * are_means
    reason = (
        "Off-policy values are withheld: they are those of linear models of single rewards, with "
        "features that every row has. To get them, evaluate without "
        f"{' and without '.join(options)}."
    )
    return f"{reason} {missing}".strip()


def measure_splits(
    sample: Sample, parted: list[Split], judged: list[SplitResult], setup: Setup
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
    wider = 1.0 if len(parted) == 1 else (1.0 - setup.future) ** -0.5
    bootstrap = Bootstrap(len(places), setup.seed, owners=owners, wider=wider)
    return measure(forecasts, weights, setup.first, bootstrap), places, weights


def estimate_values(
    sample: Sample,
    split: Split,
    result: SplitResult,
    setup: Setup,
    map_jobs: MapJobs,
    progress: Callable[[float], None],
) -> tuple[list[offpolicy.Value], str]:
    """What policies would earn on the future of a split; or nothing, and why."""
    offers = sample.offers(split.future)
    reason = offpolicy.reason_to_withhold(offers)
    if not len(offers.rewards) and sample.arms_limit < ALL:
        reason = (
            "Off-policy values are withheld: the arms on offer to a single task take more than "
            "the memory that is kept for them. Log fewer arms, or a sample of the rounds."
        )
    if reason:
        return [], reason
    if result.units is not None:
        offers = offers._replace(features=result.units.contexts(offers.features))
    models = result.models
    policies = [
        *(Policy(name, models[name], setup.rule) for name in (LEARNED, POOLED, ALONE)),
        Policy("uniform", models[ALONE], Uniform()),
    ]
    how: Any = {"seed": setup.seed, "clip": setup.clip, "map_jobs": map_jobs, "progress": progress}
    how["sign"] = setup.model.sign
    return offpolicy.estimate(offers, policies, models[LEARNED], **how), ""


def basis_of(sample: Sample, past: int, judged: Any, first: int, model: RewardModel) -> Basis:
    """How many tasks and rewards there are, and how many distinguish tasks."""
    least, most = float(sample.lowest.min()), float(sample.highest.max())
    above = int((sample.highest > least).sum())
    below = int((sample.lowest < most).sum())
    usual = least if above <= below else most
    several = int((sample.episodes.lengths > 1).sum())
    rewards, there = (
        values[judged, :first] for values in (sample.episodes.rewards, sample.episodes.weights > 0)
    )
    unusual = int((there & (rewards != usual)).sum())
    (shown,) = model.read_many(np.array([usual])).tolist()  # as the log has it
    return Basis(past, len(judged), min(above, below), shown, several, int(there.sum()), unusual)


def part(progress: Progress, low: float, high: float) -> Callable[[float], None]:
    """Progress of a part of the work, from 0 to 1, as progress of the whole."""

    def advance(done: float) -> None:
        progress(low + (high - low) * done, 1.0)

    return advance
