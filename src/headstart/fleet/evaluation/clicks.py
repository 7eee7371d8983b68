"""Rewards of 0 and 1: logistic models of past tasks, and forecasts of probabilities.

The models are those of :mod:`~headstart.fleet.evaluation.models`, of log-odds. Each is fitted in a
few passes, in which the rewards of every task are expanded around its posterior under the model of
the pass before, as ``headstart fit --reward-model binary`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headstart.bandit.offline.fitting import CLICK_PASSES, OneTask, expand_tasks, fit_clicks
from headstart.fleet.evaluation.forecasts import Episodes, Forecast, forecast
from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED
from headstart.fleet.evaluation.models import MOST, alone, random_intercept
from headstart.fleet.evaluation.sample import Sample
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.logistic import expected_probability, linearize
from headstart.model.mixture import MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.transfer.partitions import PartitionList
from headstart.transfer.pooled_fit import PooledFit
from headstart.transfer.standardize import Units
from headstart.transfer.task_order import PARTITION

__all__ = ["fit_click_models", "forecast_clicks", "learn_clicks"]

LEAST_CHANCE = 1e-12  # the least probability that a reward is scored by


def tasks_with_rows(sample: Sample, places: Any, *, early: bool) -> list[OneTask]:
    """Some tasks of the sample with all their rows; with ``early``, those before the cut."""
    rows = sample.rows
    assert rows is not None
    starts = np.searchsorted(rows["key"], sample.keys[places])
    stops = np.searchsorted(rows["key"], sample.keys[places], "right")
    found = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        own = np.arange(start, stop)
        if early and sample.cut is not None:
            own = own[rows["when"][own] < sample.cut]
        if len(own):
            features = rows["features"][own].astype(np.float64)
            found.append(OneTask("", features, rows["reward"][own], rows["weight"][own]))
    return found


def learn_clicks(
    transfer: Transfer, tasks: Sequence[OneTask], given: Evidence, intercept: bool, scaled: bool
) -> PooledFit:
    """The fit of a transfer to tasks; ``given`` are the sums of their rows."""

    def expand(prior: Prior, units: Units | None) -> PartitionList:
        packed = expand_tasks(tasks, prior, units)
        starts = range(0, len(packed), PARTITION)
        return PartitionList([packed[start : start + PARTITION] for start in starts], given.dim)

    return fit_clicks(transfer, expand, given, intercept, scaled)


def fit_click_models(
    fit: PooledFit, transfer: Transfer, tasks: Sequence[OneTask], intercept: int | None
) -> dict[str, Prior | MixturePrior]:
    """All models, by name, of features in the units of the fit."""
    dim, units = fit.pooled.dim, fit.units
    some = tasks[:: max(1, -(-len(tasks) // MOST))]
    names = ("contexts", "rewards", "weights")
    every = OneTask(
        "", *(np.concatenate([getattr(task, name) for task in tasks]) for name in names)
    )
    models: dict[str, Prior | MixturePrior] = {LEARNED: transfer.prior(fit.state)}

    def fitted(own: Sequence[OneTask], refit: Callable[[Array], Prior]) -> tuple[Prior, Array]:
        prior = Prior.isotropic(dim)
        for _ in range(CLICK_PASSES):
            packed = expand_tasks(own, prior, units)
            prior = refit(packed)
        return prior, packed

    start, packed = fitted([every], lambda packed: alone(packed, dim, intercept, known_noise=1.0))
    belief = Belief.of(start, Evidence.unpack(packed[0], dim))
    models[POOLED] = Prior(belief.mean, belief.root, noise=1.0)
    if intercept is not None:
        constant = intercept
        own = {
            OFFSET: lambda packed: random_intercept(packed, dim, constant, 1.0),
            AVERAGE: lambda packed: alone(packed, dim, constant, True, 1.0),
        }
        models |= {name: fitted(some, refit)[0] for name, refit in own.items()}
    models[ALONE] = fitted(some, lambda packed: alone(packed, dim, intercept, known_noise=1.0))[0]
    return models


def forecast_clicks(prior: Prior | MixturePrior, episodes: Episodes, seed: int) -> Forecast:
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
        likely = np.maximum(np.where(r > 0, chance, 1.0 - chance), LEAST_CHANCE)
        low = np.where(r > 0, 1.0 - chance, 0.0)
        return (r - chance) ** 2, np.log(likely), low + shares[at] * likely

    return forecast(
        prior, episodes, score, lambda belief, *round: belief.update(*linearize(belief, *round))
    )
