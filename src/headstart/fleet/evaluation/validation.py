"""The models of a split of tasks, and how they predict its future.

Rewards of 0 and 1 have logistic models, of log-odds. Each is fitted in a few passes, in which the
rewards of every task are expanded around its posterior under the model of the pass before, as
``headstart fit --reward-model binary`` does.

Where items are known by their ids, the rows of past tasks are learned from in the order of time,
each with what was known of its item before it. The rows of future tasks have what all past tasks
have shown, and what the task itself has met before.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.offline.click_fit import CLICK_PASSES, expand_tasks, fit_clicks
from headstart.bandit.offline.fitting import OneTask, TaskRows, rows_by_task, sums_by_task
from headstart.bandit.reports.gain import Gain, expected_gain
from headstart.bandit.rewards import RewardModel
from headstart.features.conversion import Features
from headstart.features.items.table import COLUMN_NAMES
from headstart.features.schema.encoder import Encoder
from headstart.fleet.evaluation.models import MAX_FITTED_TASKS, fit_models
from headstart.fleet.evaluation.rollouts import AnyPrior, Episodes, Forecast, forecast
from headstart.fleet.evaluation.sample import Columns, Places, Sample, take_rows
from headstart.fleet.evaluation.sampling import Split
from headstart.fleet.row_fit import ItemRows, learn_items
from headstart.model.evidence import Evidence, packed_size
from headstart.model.logistic import expected_probability, linearize
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.rules import Rule
from headstart.transfer import Transfer
from headstart.transfer.partitions import PartitionList
from headstart.transfer.pooled_fit import PooledFit, fit_standardized
from headstart.transfer.standardize import Standardization

MIN_PROBABILITY = 1e-12  # the least probability that a reward is scored by


class Setup(NamedTuple):
    """How models are fitted and compared, as in :func:`headstart.fleet.evaluate`.

    ``model`` says what rewards are; with an ``encoder``, items are known by their ids.
    """

    transfer: Transfer
    standardize: bool
    model: RewardModel
    encoder: Encoder | None
    seed: int
    first: int
    future: float
    rule: Rule
    clip: float | None


class SplitResult(NamedTuple):
    """The models of one split, and how they predicted its future.

    Models and forecasts are of features in ``units``, if they were standardized.
    """

    models: dict[str, AnyPrior]
    forecasts: dict[str, Forecast]
    units: Standardization | None
    past_rows: float


def validate_split(split: Split | None, sample: Sample, setup: Setup) -> SplitResult | Gain:
    """Fit all models to the past of a split, and let them predict its future.

    Without a split: what a prior learned from all tasks is expected to save, as ``headstart fit``
    has it.
    """
    transfer, is_binary = setup.transfer, setup.model.needs_belief
    fit: PooledFit | None = None
    if setup.encoder is not None:
        sample, fit = with_items(split, sample, setup, setup.encoder)
    dim, intercept = sample.dim, sample.intercept
    past = sample.evidence if split is None else sample.early[split.past]
    given, partitions = Evidence.unpack(past.sum(0), dim), PartitionList([past], dim)
    rounds, is_constant = float(given.rounds), intercept is not None
    if is_binary:
        tasks = tasks_with_rows(sample, split)
    if fit is None and is_binary:

        def expand(prior: Prior, units: Standardization | None) -> PartitionList:
            return PartitionList([expand_tasks(tasks, prior, units)], dim)

        fit = fit_clicks(transfer, expand, partitions, given, is_constant, setup.standardize)
    elif fit is None:
        how = {"intercept": is_constant, "standardize": setup.standardize}
        fit = fit_standardized(transfer, partitions, given, None, **how)
    learned, units, count = transfer.prior(fit.state), fit.units, len(fit.partitions)
    if split is None:
        gram = fit.pooled.gram / max(rounds, 1.0)
        return expected_gain(learned.as_gaussian(), gram, rounds / count, count, intercept)
    if is_binary:
        _, *columns = zip(*tasks, strict=True)
        as_one, some = (
            [OneTask("", *map(np.concatenate, columns))],
            tasks[:: max(1, -(-len(tasks) // MAX_FITTED_TASKS))],
        )
        models = fit_models(
            learned,
            lambda prior, whole: expand_tasks(as_one if whole else some, prior, units),
            CLICK_PASSES,
            dim,
            intercept,
            known_noise=1.0,
        )
    else:
        past = past if units is None else units.packed(past)
        as_one = past.sum(0)[None]
        models = fit_models(learned, lambda _, whole: as_one if whole else past, 1, dim, intercept)
    episodes = sample.episodes.take(split.future)
    if units is not None:
        episodes = episodes._replace(features=units.contexts(episodes.features))
    predict = functools.partial(forecast_clicks, seed=setup.seed) if is_binary else forecast
    forecasts = {name: predict(prior, episodes) for name, prior in models.items()}
    if setup.model.minimize:  # the places of costs, where rewards are their negatives
        forecasts = {name: each._replace(pit=1.0 - each.pit) for name, each in forecasts.items()}
    return SplitResult(models, forecasts, units, rounds)


def past_rows(sample: Sample, split: Split | None) -> Places:
    """The places of the rows of past tasks before the cut; without a split, of all rows."""
    rows = sample.rows
    assert rows is not None  # they were kept
    use = np.isin(rows["key"], sample.keys if split is None else sample.keys[split.past])
    if split is not None and sample.cut is not None:
        use &= rows["when"] < sample.cut
    return np.flatnonzero(use)


def tasks_with_rows(sample: Sample, split: Split | None) -> list[OneTask]:
    """The past tasks of a split with all their rows before the cut; without a split, all tasks."""
    assert sample.rows is not None
    rows = take_rows(sample.rows, past_rows(sample, split))
    features = rows["features"].astype(np.float64)
    return rows_by_task(TaskRows(rows["key"], features, rows["reward"], rows["weight"], ()), 1.0)


def forecast_clicks(prior: AnyPrior, episodes: Episodes, seed: int) -> Forecast:
    """Predict the probability of a reward of 1, then learn the reward, round after round.

    ``errors`` are (r − p)², ``scores`` log p of the reward that came. The place of a reward in its
    predicted distribution is drawn between the two ends of its probability, the same share for all
    models, so that places are uniform if probabilities are right.

    >>> episodes = Episodes(np.ones((1, 1, 1)), np.array([[1.0]]), np.ones((1, 1)), [1])
    >>> np.exp(forecast_clicks(Prior.gaussian([0.0], [[1e-9]]), episodes, 0).scores).round(3)
    array([[0.5]])
    """
    shares = np.random.default_rng([seed, 0]).random(episodes.rewards.shape)

    def score(belief: Any, x: Array, r: Array, at: tuple[slice, int]) -> tuple[Array, Array, Array]:
        row = x[:, None, :]
        chance = expected_probability(belief.predict(row)[:, 0], belief.width(row)[:, 0])
        likely = np.maximum(np.where(r > 0, chance, 1.0 - chance), MIN_PROBABILITY)
        low = np.where(r > 0, 1.0 - chance, 0.0)
        return (r - chance) ** 2, np.log(likely), low + shares[at] * likely

    return forecast(prior, episodes, score, linearize)


def with_items(
    split: Split | None, sample: Sample, setup: Setup, encoder: Encoder
) -> tuple[Sample, PooledFit]:
    """The sample of a split with the columns of items; without a split, all tasks are the past.

    Also the fit of the past.
    """
    rows, intercept = sample.rows, sample.intercept is not None
    assert rows is not None
    order = past_rows(sample, split)
    order = order[np.lexsort((rows["order"][order], rows["when"][order]))]
    past = take_rows(rows, order)
    tasks = np.array([str(key) for key in past["key"].tolist()], dtype=object)
    fields = past["features"][:, : encoder.width].astype(np.float64)
    ones = np.ones(len(tasks))
    numbers = past["reward"], past["weight"], ones, past["when"]
    known = ItemRows(tasks, past["item"], fields, *numbers)
    learned = learn_items(
        encoder, known, setup.transfer, None, setup.model, intercept, setup.standardize
    )
    dim = learned.rows.contexts.shape[1]
    features = np.zeros((len(rows["key"]), dim))
    features[order] = learned.rows.contexts
    evidence = np.zeros((len(sample.keys), packed_size(dim)))
    names, packed = sums_by_task(learned.rows, 1.0)
    evidence[np.searchsorted(sample.keys, np.array(list(map(int, names)), np.uint64))] = packed
    episodes, targets = (
        np.zeros((*sample.episodes.rewards.shape, dim)),
        sample.episodes.rewards.copy(),
    )
    for place in [] if split is None else split.future.tolist():
        first = int(np.searchsorted(rows["key"], sample.keys[place]))
        own = take_rows(rows, np.arange(first, first + int(sample.episodes.lengths[place])))
        count = len(own["key"])
        episodes[place, :count], targets[place, :count] = future_rows(
            learned.items, own, encoder, intercept
        )
    with_columns = dataclasses.replace(
        sample,
        dim=dim,
        intercept=dim - 1 if intercept else None,
        evidence=evidence,
        early=evidence,
        episodes=sample.episodes._replace(features=episodes, rewards=targets),
        rows={**rows, "features": features},
    )
    return with_columns, learned.fit


def future_rows(
    items: ItemLedger, own: Columns, encoder: Encoder, intercept: bool
) -> tuple[Array, Array]:
    """The rows of one task that nobody has learned from, each with what the task has met before.

    Also their rewards, less what the task's own rewards of the items predict.
    """
    fields = own["features"][:, : encoder.width].astype(np.float64)
    table = np.hstack([fields, np.zeros((len(fields), len(COLUMN_NAMES)))])
    rewards, weights = own["reward"].tolist(), own["weight"].tolist()
    items.write_rounds(own["item"].tolist(), rewards, weights, table)
    features = Features(table.shape[1], intercept=intercept)
    return items.own.subtract(features, features.transform(table), np.array(rewards))
