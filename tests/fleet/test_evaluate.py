"""Does it help on my data? Splits, forecasts, what they are measured by, and the command."""

import dataclasses
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.errors import InputError
from headstart.fleet import Columns, Logs, check, evaluate, fit
from headstart.fleet.engines.threads import map_here
from headstart.fleet.evaluation import models, sample
from headstart.fleet.evaluation.measures import (
    ALONE,
    AVERAGE,
    LEARNED,
    OFFSET,
    POOLED,
    Bootstrap,
    measure,
)
from headstart.fleet.evaluation.rollouts import Episodes, Forecast, forecast
from headstart.fleet.evaluation.sample import Plan
from headstart.fleet.evaluation.sampling import read_sample
from headstart.fleet.reading.hashing import hash_ids
from headstart.model.mixture import MixturePrior

PLAIN = Columns("task", "reward", "x*")
QUICK = hs.Bias()  # where it does not matter how a prior is learned


def log(tasks=60, dim=3, seed=0, offset=2.0):
    """Tasks around a common centre, whose rewards are 2 on average; ``when`` is later by task."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=dim)
    columns = {"task": [], "reward": [], "when": [], "weight": []}
    rows = []
    for task in range(tasks):
        size = int(rng.integers(1, 25))
        x = rng.normal(size=(size, dim))
        theta = centre + 0.5 * rng.normal(size=dim)
        columns["task"] += [f"t{task}"] * size
        columns["reward"] += (offset + x @ theta + 0.3 * rng.normal(size=size)).tolist()
        columns["when"] += (1000 * task + np.arange(size)).tolist()
        columns["weight"] += rng.integers(1, 3, size).astype(float).tolist()
        rows.append(x)
    x = np.vstack(rows)
    return pa.table(columns | {f"x{j}": x[:, j] for j in range(dim)})


@pytest.fixture
def opened(tmp_path, logbook):
    """``opened(table, columns, name)``: logs of one file."""

    def make(table, columns=PLAIN, name="log.parquet", **options):
        return Logs(logbook.write(tmp_path / name, table, 100), columns, **options)

    return make


def nothing(*done):
    pass


def drawn(logs, rounds=200, max_tasks=10**6, seed=0):
    """What is read of a log, and one split of it."""
    plan = Plan(seed, max_tasks, rounds, rounds)
    found, (split,) = read_sample(logs, plan, 0.3, 1, map_here, nothing)
    return found, split


def ids_of(table, keys, seed=0):
    """The ids of tasks with these hashes."""
    ids = table["task"].combine_chunks().unique()
    names = dict(zip(hash_ids(ids, seed).tolist(), ids.to_pylist(), strict=True))
    return [names[key] for key in keys.tolist()]


# Who is past and who is future.


def test_the_split_follows_ids_and_seed_alone(opened):
    table = log()
    mixed = table.take(np.random.default_rng(1).permutation(len(table)))
    one, split = drawn(opened(table))
    other, again = drawn(opened(mixed, name="mixed.parquet"))
    for left, right in zip((one.keys, *split), (other.keys, *again), strict=True):
        np.testing.assert_array_equal(left, right)
    assert len(split.future) == 18
    assert sorted([*split.past, *split.future]) == list(range(60))
    seeded, _ = drawn(opened(table), seed=1)
    assert ids_of(table, seeded.keys, 1) != ids_of(table, one.keys)


def test_with_timestamps_later_tasks_are_the_future(opened):
    table, columns = log(), Columns("task", "reward", "x*", timestamp="when")
    found, split = drawn(opened(table, columns))
    assert set(ids_of(table, found.keys[split.future])) == {f"t{at}" for at in range(42, 60)}
    assert found.cut == 42_000
    assert len(split.past) == 42


def test_what_the_past_shows_later_is_not_known_yet(opened):
    table = log()
    columns = Columns("task", "reward", "x*", timestamp="when")
    late = table.slice(0, 5).set_column(2, "when", [pa.array([10**9] * 5)])
    before, split = drawn(opened(table, columns))
    after, _ = drawn(opened(pa.concat_tables([table, late]), columns, "late.parquet"))
    known = before.early[split.past]
    np.testing.assert_allclose(after.early[split.past], known, rtol=1e-12, atol=1e-12)
    assert after.evidence.sum() > before.evidence.sum()


def test_tasks_that_start_together_are_split_at_random_and_in_the_order_of_time(opened):
    """A balanced panel: every task is seen in the same years, and filed from the last one on."""
    rows = []
    for at in range(60):
        for year in (2003, 2002, 2001):
            x = float(at % 7 + year % 3)
            rows.append({"task": f"t{at}", "reward": x + year, "when": year, "x": x})
    columns = Columns("task", "reward", "x", timestamp="when")
    logs = opened(pa.Table.from_pylist(rows), columns)
    found = evaluate(logs, transfer=QUICK, first=1)
    assert found.splits > 1
    assert any("most tasks start at the same time" in note for note in found.notes)
    sample, _ = drawn(logs)
    assert (np.diff(sample.episodes.rewards - sample.episodes.features[..., 0]) == 1.0).all()


def test_no_more_tasks_than_asked_for(opened):
    found = evaluate(opened(log()), most_tasks=40, splits=1)
    assert (found.past, found.future) == (28, 12)
    assert found.settings["tasks_in_the_log"] == 60
    assert found.notes == (
        "40 of 60 tasks were looked at, chosen by a hash of their ids (--most-tasks)",
    )


@pytest.mark.parametrize("tasks", [1, 3])
def test_too_few_tasks_are_refused(opened, tasks):
    with pytest.raises(InputError, match="at least 2 past and 2 future tasks"):
        evaluate(opened(log(tasks)))


# What is gathered.


@pytest.mark.parametrize("max_tasks", [10**6, 7])
@pytest.mark.parametrize("at_hand", [2**18, 20])
def test_one_read_gives_the_rows_of_the_tasks_with_the_smallest_hashes(
    opened, monkeypatch, max_tasks, at_hand
):
    monkeypatch.setattr(sample, "ROWS_AT_HAND", at_hand)  # of few, tasks come and go again
    table = log()
    found, _ = drawn(opened(table), rounds=5, max_tasks=max_tasks)
    x = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    ids, rewards = np.array(table["task"].to_pylist()), table["reward"].to_numpy()
    hashes = np.sort(hash_ids(table["task"].combine_chunks().unique()))
    np.testing.assert_array_equal(found.keys, hashes[:max_tasks])
    assert (found.tasks, found.exact) == (60, True)
    assert sorted(found.rounds) == sorted(np.unique(ids, return_counts=True)[1])
    for at, name in enumerate(ids_of(table, found.keys)):
        mine = ids == name
        np.testing.assert_allclose(
            found.evidence[at], hs.Evidence.of(x[mine], rewards[mine]).pack(), rtol=1e-9, atol=1e-9
        )
        assert (found.lowest[at], found.highest[at]) == (rewards[mine].min(), rewards[mine].max())
        size = found.episodes.lengths[at]
        assert size == min(5, mine.sum())
        np.testing.assert_array_equal(found.episodes.rewards[at, :size], rewards[mine][:5])
        np.testing.assert_array_equal(found.episodes.features[at, :size], x[mine][:5])


def test_rounds_are_in_the_order_of_time(opened, monkeypatch):
    table = log()
    columns = Columns("task", "reward", "x*", timestamp="when")
    straight, _ = drawn(opened(table, columns), rounds=4)
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    monkeypatch.setattr(sample, "ROWS_AT_HAND", 20)  # sorted repeatedly
    shuffled, _ = drawn(opened(mixed, columns, "mixed.parquet"), rounds=4)
    for one, other in zip(straight.episodes, shuffled.episodes, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_count_so_many_times(opened):
    table = log()
    weights = table["weight"].to_numpy().astype(int)
    columns = Columns("task", "reward", "x*", weight="weight")
    weighted, _ = drawn(opened(table, columns))
    repeated = table.take(np.repeat(np.arange(len(table)), weights))
    plain, _ = drawn(opened(repeated, PLAIN, "repeated.parquet"), rounds=400)
    np.testing.assert_allclose(weighted.evidence, plain.evidence, rtol=1e-9, atol=1e-9)
    # Learning a row of weight 2 is learning it twice.
    prior = hs.Prior.isotropic(3, noise=0.4)
    heavy = forecast(prior, weighted.episodes)
    twice = forecast(prior, plain.episodes)
    at = int(np.argmax(weighted.episodes.lengths))
    size = int(weighted.episodes.lengths[at])
    ends = np.cumsum(weighted.episodes.weights[at, :size]).astype(int)
    first = np.append(0, ends[:-1])
    np.testing.assert_allclose(heavy.errors[at, :size], twice.errors[at, first])
    found = evaluate(opened(table, columns), transfer=QUICK, splits=1)
    assert f"(rows of weight {found.past_rows:,.0f} in all)" in found.basis


def offered(tasks=30, arms=3, seed=0):
    """A log with all arms on offer, the rewards of those not shown missing."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        theta = np.array([1.0, -0.5]) + 0.3 * rng.normal(size=2)
        for place in range(int(rng.integers(2, 8))):
            x = rng.normal(size=(arms, 2))
            shown = int(rng.integers(arms))
            rows += [
                {
                    "task": f"t{task}",
                    "round": f"r{place}",
                    "chosen": arm == shown,
                    "propensity": 1 / arms if arm == shown else None,
                    "reward": float(x[arm] @ theta) if arm == shown else None,
                    "x0": x[arm, 0],
                    "x1": x[arm, 1],
                }
                for arm in range(arms)
            ]
    return pa.Table.from_pylist(rows)


WHOLE = Columns("task", "reward", "x*", round="round", chosen="chosen", propensity="propensity")


@pytest.mark.parametrize("at_hand", [2**18, 40])
def test_all_arms_on_offer_are_kept_together(opened, monkeypatch, at_hand):
    monkeypatch.setattr(sample, "ROWS_AT_HAND", at_hand)
    table = offered()
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    found, split = drawn(opened(mixed, WHOLE), rounds=4)
    offers, episodes = found.offers(split.future), found.episodes.take(split.future)
    assert set(offers.arms) == {3}
    np.testing.assert_array_equal(np.diff(offers.tasks), episodes.lengths)
    for task in range(len(split.future)):
        for place, at in enumerate(range(offers.tasks[task], offers.tasks[task + 1])):
            arm = offers.starts[at] + offers.chosen[at]
            np.testing.assert_array_equal(offers.features[arm], episodes.features[task, place])
            assert offers.rewards[at] == episodes.rewards[task, place]
    np.testing.assert_allclose(offers.propensities, 1 / 3)


def test_of_too_many_offers_those_of_fewer_tasks_are_kept(opened, monkeypatch):
    table = offered()
    found = evaluate(opened(table, WHOLE), transfer=QUICK, splits=1)
    monkeypatch.setattr(sample, "OFFER_BYTES", 60 * 3 * 8)
    fewer = evaluate(opened(table, WHOLE), transfer=QUICK, splits=1)
    assert 0 < fewer.values[0].tasks < found.values[0].tasks == 9
    assert fewer.values[0].used <= 20
    assert fewer.measures == found.measures  # predictions need only the arms shown
    assert "policies were valued on a part of the future tasks" in str(fewer)
    monkeypatch.setattr(sample, "OFFER_BYTES", 1)
    none = evaluate(opened(table, WHOLE), transfer=QUICK, splits=1)
    assert "a single task take more than the memory" in none.advice
    monkeypatch.setattr(sample, "OFFER_BYTES", 60 * 3 * 8)
    monkeypatch.setattr(sample, "ROWS_AT_HAND", 40)
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    one, split = drawn(opened(mixed, WHOLE, "mixed.parquet"), rounds=10)
    other, _ = drawn(opened(table, WHOLE, "whole.parquet"), rounds=10)
    np.testing.assert_array_equal(one.offers(split.future).tasks, other.offers(split.future).tasks)


def test_rounds_without_one_chosen_arm_are_left_out(opened):
    table = offered()
    table = table.filter(
        pa.array([not shown or at > 3 for at, shown in enumerate(table["chosen"].to_pylist())])
    )
    found, _ = drawn(opened(table, WHOLE))
    every = np.arange(len(found.keys))
    assert len(found.offers(every).rewards) == int(found.episodes.lengths.sum())
    assert len(found.offers(every).rewards) == sum(table["chosen"].to_pylist())


# Forecasts and measures.


@dataclasses.dataclass(frozen=True, repr=False)
class Given(hs.Transfer):
    """A prior that is known."""

    known: hs.Prior

    def init(self, dim, noise=None, batch=()):
        return ()

    def fold(self, state, evidence, *rest, **options):
        return state

    def prior(self, state, *rest, **options):
        return self.known


@pytest.mark.parametrize("noise_dof", [1e12, 3.0])
def test_forecasts_are_what_a_task_predicts_before_it_learns(noise_dof):
    rng = np.random.default_rng(0)
    root = np.diag([0.5, 2.0])
    prior = hs.Prior(rng.normal(size=2), root, noise=0.7, noise_dof=noise_dof)
    x, r = rng.normal(size=(1, 6, 2)), 2.0 * rng.normal(size=(1, 6))
    found = forecast(prior, Episodes(x, r, np.ones((1, 6)), np.array([6])))
    bandit = hs.Bandit(2, transfer=Given(prior), intercept=False)
    task, other = bandit.task("it"), bandit.task("another")
    other.observe([[1.0, 0.0]], [1.0])  # or the only task would tell the noise alone
    other.close()
    for at in range(6):
        level = 2.0 * abs(found.pit[0, at] - 0.5)
        prediction = task.predict(x[0, at : at + 1], max(level, 1e-9), of_reward=True)
        assert found.errors[0, at] == pytest.approx((r[0, at] - prediction.mean[0]) ** 2)
        # The reward is at the end of the interval that reaches just to it. The noise is estimated
        # again after every call of observe, in forecasts after 1, 2, 4, … rewards as by learn.
        ends = prediction.lower[0], prediction.upper[0]
        assert at in (3, 5) or min(abs(end - r[0, at]) for end in ends) < 1e-6
        task.observe(x[0, at : at + 1], r[0, at : at + 1])


@pytest.mark.parametrize("noise_dof", [1e12, 3.0])
def test_a_mixture_of_two_equal_groups_predicts_as_one(noise_dof):
    one = hs.Prior.gaussian([1.0], [[0.2]], noise=0.5).replace(noise_dof=noise_dof)
    twice = MixturePrior(hs.Prior.stack([one, one]), np.log([0.3, 0.7]))
    rng = np.random.default_rng(0)
    episodes = Episodes(rng.normal(size=(3, 5, 1)), rng.normal(size=(3, 5)),
                        np.ones((3, 5)), np.array([5, 3, 5]))  # fmt: skip
    for wanted, got in zip(forecast(one, episodes), forecast(twice, episodes), strict=True):
        np.testing.assert_allclose(got, wanted)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        sizes = rng.integers(1, 10, 60).astype(float)
        sums = sizes * (1.0 + rng.normal(size=60))
        found = Bootstrap(60, seed, 400).ratios(sums[:, None], sizes[:, None])[0]
        inside += found.low <= 1.0 <= found.high
    assert 0.9 <= inside / 200 <= 0.985


def test_measures_are_means_over_rewards(opened):
    drawn_sample, _ = drawn(opened(log()))
    draws = Bootstrap(len(drawn_sample.keys), 0)
    found = {
        name: forecast(hs.Prior.isotropic(3, noise=noise), drawn_sample.episodes)
        for name, noise in (("one", 1.0), ("other", 3.0))
    }
    measured = measure(found, drawn_sample.episodes.weights, 4, draws)
    here = drawn_sample.episodes.weights[:, :4] > 0
    assert measured.errors["one"].value == pytest.approx(found["one"].errors[:, :4][here].mean())
    gap = (found["one"].scores - found["other"].scores)[:, :4][here].mean()
    assert measured.gains["one", "other"].value == pytest.approx(gap)
    assert measured.gains["other", "one"].value == pytest.approx(-gap)
    assert len(measured.by_position["one"]) == 4
    assert sum(share.value for share in measured.pit["one"]) == pytest.approx(1.0)


def test_no_interval_has_what_is_impossible():
    """A dozen tasks, one of which a model misses by far: errors are positive, shares at most 1."""
    rng = np.random.default_rng(0)
    errors = rng.exponential(size=(2, 12, 3))
    errors[0, 3, 1] = 1e5
    forecasts = {
        name: Forecast(each, np.zeros((12, 3)), np.full((12, 3), 0.5))
        for name, each in zip(("one", "other"), errors, strict=True)
    }
    found = measure(forecasts, np.ones((12, 3)), 3, Bootstrap(12, 0, wider=1.5))
    for each in (*found.errors.values(), *found.by_position["one"], *found.by_position["other"]):
        assert 0.0 < each.low < each.value < each.high
    for pair in (("one", "other"), ("other", "one")):
        assert found.savings[pair].low < found.savings[pair].value < found.savings[pair].high < 1.0
    assert found.savings["one", "other"].low < -1e3
    covered = found.coverage["one"][0.95]
    assert covered == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("noise_dof", [np.inf, 3.0])
def test_calibrated_forecasts_cover_what_they_promise(noise_dof):
    rng = np.random.default_rng(0)
    tasks, rounds = 800, 5
    prior = hs.Prior.gaussian([1.0, 2.0], [[0.5, 0.2], [0.2, 0.4]], noise=0.6)
    theta = rng.multivariate_normal(prior.mean, prior.covariance, tasks)
    x = rng.normal(size=(tasks, rounds, 2))
    noise = np.full((tasks, 1), 0.6)
    if noise_dof < np.inf:
        noise *= np.sqrt(noise_dof / rng.chisquare(noise_dof, (tasks, 1)))
        prior = prior.replace(noise_dof=noise_dof)
    rewards = np.einsum("tnd,td->tn", x, theta) + noise * rng.normal(size=(tasks, rounds))
    episodes = Episodes(x, rewards, np.ones((tasks, rounds)), np.full(tasks, rounds))
    forecasts = {"it": forecast(prior, episodes)}
    found = measure(forecasts, episodes.weights, rounds, Bootstrap(tasks, 0))
    for level, share in found.coverage["it"].items():
        assert share.value == pytest.approx(level, abs=0.03)
    assert all(share.value == pytest.approx(0.1, abs=0.025) for share in found.pit["it"])


# What the learned prior is compared with.


def test_scales_are_found_by_the_likelihood_of_the_past():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 15, 4)) * [1.0, 1.0, 1.0, 0.0] + [0.0, 0.0, 0.0, 1.0]
    theta = rng.normal(size=(800, 4)) * [0.5, 0.5, 0.5, 1.5] + [0.0, 0.0, 0.0, 7.0]
    rewards = np.einsum("tnd,td->tn", x, theta) + 0.4 * rng.normal(size=(800, 15))
    past = hs.Evidence.of(x, rewards).pack()
    around = models.independent_model(past, 4, 3, around_average=True)
    np.testing.assert_allclose(np.sqrt(np.diag(around.covariance)), [0.5] * 3 + [1.5], rtol=0.1)
    assert around.mean[3] == pytest.approx(7.0, abs=0.2)
    assert around.noise == pytest.approx(0.4, rel=0.05)
    nothing_known = models.independent_model(past, 4, 3)
    assert not nothing_known.mean.any()
    assert nothing_known.covariance[3, 3] == pytest.approx(7.0**2 + 1.5**2, rel=0.1)


def test_features_of_very_different_size_are_no_handicap():
    rng = np.random.default_rng(0)
    size = np.array([1.0, 1000.0])
    x = rng.normal(size=(400, 15, 2))
    theta = rng.normal(size=(400, 2))
    rewards = np.einsum("tnd,td->tn", x, theta) + 0.4 * rng.normal(size=(400, 15))
    prior = models.independent_model(hs.Evidence.of(x * size, rewards).pack(), 2, None)
    np.testing.assert_allclose(np.sqrt(np.diag(prior.covariance)) * size, [1.0, 1.0], rtol=0.1)


def test_the_pooled_model_is_the_regression_over_all_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 10, 3))
    rewards = x @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=(40, 10))
    total = hs.Evidence.of(x, rewards).pack().sum(0)
    prior = models.pooled_model(models.independent_model(total[None], 3, None), total)
    wanted = np.linalg.lstsq(x.reshape(-1, 3), rewards.reshape(-1), rcond=None)[0]
    np.testing.assert_allclose(prior.mean, wanted, atol=1e-3)
    assert prior.noise == pytest.approx(0.1, rel=0.1)


def test_a_random_intercept_is_found_beside_the_slopes():
    """Slopes are those of a regression that allows for each task's offset, whatever its size."""
    rng = np.random.default_rng(0)
    tasks, rounds = 300, 8
    x = rng.normal(size=(tasks, rounds, 3))
    x[..., 0] += rng.normal(size=(tasks, 1))  # the first feature differs by task, too
    x[..., 2] = 1.0
    offsets = 5.0 * rng.normal(size=(tasks, 1)) + 2.0 * x[..., 0].mean(1, keepdims=True)
    noise = 0.5 * rng.normal(size=(tasks, rounds))
    rewards = x[..., 0] - 2.0 * x[..., 1] + 7.0 + offsets + noise
    past = hs.Evidence.of(x, rewards).pack()
    prior = models.random_intercept_model(past, 3, 2)
    np.testing.assert_allclose(prior.mean[:2], [1.0, -2.0], atol=0.05)
    assert prior.noise == pytest.approx(0.5, rel=0.05)
    assert math.sqrt(prior.covariance[2, 2]) == pytest.approx(math.sqrt(29.0), rel=0.1)
    np.testing.assert_allclose(np.diag(prior.covariance)[:2], 0.0, atol=1e-3)
    alike = models.random_intercept_model(hs.Evidence.of(x, rewards - offsets).pack(), 3, 2)
    assert math.sqrt(alike.covariance[2, 2]) < 0.05


# The whole.


@pytest.mark.parametrize("standardize", [True, False])
def test_one_gain_figure_everywhere(opened, tmp_path, standardize):
    """In evaluate, in fit, and in the report of the bandit that fit writes."""
    table = log(60)
    far = np.asarray(table["x0"]) * 20.0 + 100.0
    logs = opened(table.set_column(table.schema.get_field_index("x0"), "x0", pa.array(far)))
    found = evaluate(logs, splits=1, standardize=standardize)
    fitted = fit(logs, out=tmp_path / "prior", workers=1, standardize=standardize)
    for other in (fitted.report().gain, hs.load(tmp_path / "prior").report().gain):
        for name in ("saved", "low", "high", "learned", "pooled", "alone"):
            assert getattr(other, name) == pytest.approx(getattr(found.gain, name), rel=1e-6), name
        assert other.over == found.gain.over
    assert fitted.summary()["gain"]["regret_saved"] == fitted.report().gain.saved
    assert found.summary()["gain"]["sentence"] in found.verdict.sentence


def test_every_task_is_predicted_over_several_splits(opened):
    logs = opened(log(60))
    found = evaluate(logs, transfer=QUICK)
    assert (found.splits, found.past, found.future, found.judged) == (5, 42, 18, 60)
    once = evaluate(logs, transfer=QUICK, splits=1)
    assert (once.splits, once.judged) == (1, 18)
    assert found.rewards > 2 * once.rewards
    assert found.past_rows == pytest.approx(0.7 * found.rounds.sum(), rel=0.1)
    wanted = f"42 past tasks ({found.past_rows:,.0f} rows)"
    assert wanted in found.basis
    assert f"{found.future_rows:,.0f} rows) that no model had seen, in each of 5" in found.basis
    assert "random splits" not in once.basis
    assert OFFSET in found.priors
    timed = opened(log(20), Columns("task", "reward", "x*", timestamp="when"))
    by_time = evaluate(timed, transfer=QUICK, splits=9)
    assert by_time.splits == 1


def rows_of(tasks, rewards, dim=4, seed=0, **more):
    x = np.random.default_rng(seed).normal(size=(len(tasks), dim))
    return pa.table(
        {"task": tasks, "reward": rewards} | {f"x{j}": x[:, j] for j in range(dim)} | more
    )


RANDOM = np.random.default_rng(3).normal(size=400)
SCARCE = {
    "a time cut that leaves 45 rows": (np.arange(45) // 3, RANDOM[:45], {"when": np.arange(45)}),
    "overlapping tasks": (np.arange(90) % 12, RANDOM[:90], {"when": np.arange(90)}),
    "a hundred rewards without a click": (np.arange(100) % 20, np.zeros(100), {}),
    "one click in a hundred": (np.arange(100) % 20, (np.arange(100) == 7) * 1.0, {}),
    "rewards that are all 3": (np.arange(400) % 40, np.full(400, 3.0), {}),
    "tasks of a single row": (np.arange(200), RANDOM[:200], {}),
    "eight tasks of two rows": (np.arange(16) % 8, RANDOM[:16], {}),
    "nine late tasks of a row": (np.arange(30), RANDOM[:30], {"when": np.arange(30)}),
}


@pytest.mark.parametrize("name", SCARCE)
def test_too_little_data_decides_nothing(opened, name):
    tasks, rewards, more = SCARCE[name]
    columns = Columns("task", "reward", "x*", timestamp="when" if more else None)
    found = evaluate(opened(rows_of(tasks, rewards, **more), columns), splits=1)
    assert found.verdict.kind == "unknown"
    assert found.verdict.sentence.startswith("Too little data to tell")
    json.dumps(found.summary(), allow_nan=False)
    assert "nan" not in str(found)
    if len(set(rewards)) == 1:
        assert f"every reward is {rewards[0]:g}" in found.verdict.sentence
    told = any("of the rows of past tasks come before the first" in note for note in found.notes)
    assert told == (name == "overlapping tasks")


def test_values_far_out_are_refused_or_told(opened):
    table = log(40)
    place = table.schema.get_field_index("x1")
    values = table["x1"].to_numpy().copy()
    values[17] = 1e5
    found = evaluate(
        opened(table.set_column(place, "x1", [pa.array(values)]), name="far.parquet"), splits=1
    )
    (note,) = found.notes
    assert note.startswith("feature x1 has values of about 1.0e+05")
    assert note in str(found)
    assert found.summary()["notes"] == [note]
    values[17] = 1e16
    drowned = table.set_column(place, "x1", [pa.array(values)])
    with pytest.raises(InputError, match="feature x1 has values of about"):
        evaluate(opened(drowned, name="drowned.parquet"), splits=1)


def test_clicks_and_a_task_with_most_of_the_rows_are_told(opened):
    owner = np.append(np.zeros(600, int), np.arange(400) % 40)
    clicks = (np.arange(1000) % 3 == 0) * 1.0
    clicked, large = evaluate(opened(rows_of(owner, clicks)), transfer=QUICK, splits=1).notes
    assert clicked.startswith("every reward is 0 or 1: with --reward-model binary")
    assert large.startswith("one task has 61 % of all rewards")
    usual = evaluate(opened(rows_of(owner[600:], RANDOM), name="usual.parquet"), transfer=QUICK)
    assert usual.notes == ()


def test_amounts_that_follow_the_size_of_the_task_are_told_and_logarithms_help(opened):
    rng = np.random.default_rng(0)
    amount = np.geomspace(20.0, 5000.0, 40)[:, None] * rng.lognormal(0.0, 0.3, (40, 15))
    reward = np.log(amount).ravel() + 0.1 * rng.normal(size=600)
    columns = {"task": np.repeat(np.arange(40), 15), "reward": reward}
    errors = []
    for name, x in (("raw", amount.ravel()), ("logs", np.log1p(amount).ravel())):
        found = evaluate(opened(pa.table(columns | {"x0": x}), name=f"{name}.parquet"))
        errors.append(found.measures.errors[LEARNED].value)
        assert any("x0 differs tenfold" in note for note in found.notes) == (name == "raw")
    assert errors[1] < 0.05 * errors[0]


def test_weights_that_cannot_be_computed_with_are_refused(opened):
    rng = np.random.default_rng(0)
    table = rows_of(np.arange(300) % 30, RANDOM[:300], w=10.0 ** rng.uniform(-30, 30, 300))
    logs = opened(table, Columns("task", "reward", "x*", weight="w"))
    with pytest.raises(InputError, match="differ too much in size"):
        evaluate(logs, splits=1)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_features_that_tell_nothing_gain_nothing(opened, value):
    table = rows_of(np.arange(400) % 40, RANDOM)
    for j in range(4):
        table = table.set_column(2 + j, f"x{j}", [pa.array(np.full(400, value))])
    found = evaluate(opened(table), splits=1)
    assert found.verdict.kind in ("pooling", "unknown")
    assert (found.gain.saved, found.gain.high) == (0.0, 0.0)


def test_a_prior_helps_where_tasks_resemble_each_other(opened):
    told = []
    logs = opened(log(120))
    found = evaluate(logs, splits=2, progress=lambda done, total: told.append(done / total))
    assert found.verdict.kind == "transfer"
    errors = {name: error.value for name, error in found.measures.errors.items()}
    assert errors[LEARNED] < errors[POOLED] < errors[ALONE]
    assert errors[LEARNED] < errors[AVERAGE] < errors[ALONE]
    assert 0.1 < found.gain.low <= found.gain.saved <= found.gain.high < 1.0
    assert found.gain.learned < min(found.gain.pooled, found.gain.alone)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert f"a learned prior is expected to save {found.gain}" in str(found)


def test_the_same_twice_and_in_any_order(opened):
    table = log()
    columns = Columns("task", "reward", "x*", timestamp="when")
    one = evaluate(opened(table, columns), transfer=QUICK).summary()
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    other = evaluate(opened(mixed, columns, "mixed.parquet"), transfer=QUICK).summary()
    for found in (one, other):
        del found["seconds"]
    assert same_numbers(one, other)


def test_engines_give_the_same(tmp_path, logbook, machines):
    """On one core, on two, and on a Ray cluster; of several files, with a sample of the tasks."""
    table = log(50)
    for number in range(4):
        logbook.write(tmp_path / f"{number}.parquet", table.slice(150 * number, 150), 40)
    logs = Logs(str(tmp_path / "*.parquet"), Columns("task", "reward", "x*", timestamp="when"))
    engines = ({"workers": 1}, {"workers": 2}, {"cluster": "ray"})
    one, *others = (
        evaluate(logs, transfer=QUICK, most_tasks=40, **engine).summary() for engine in engines
    )
    profile, *profiles = (check(logs, **engine).summary() for engine in engines)
    for other in others:
        other["seconds"] = one["seconds"]
        assert same_numbers(one, other)
    for other in profiles:
        assert same_numbers(profile, other)
    with pytest.raises(InputError, match="workers must be"):
        check(logs, workers=0)


def same_numbers(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_numbers(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-6, abs=1e-9)
    return one == other


def test_units_change_no_verdict(tmp_path):
    rng = np.random.default_rng(5)
    tasks, rounds, dim = 80, 12, 4
    theta = rng.normal(size=(tasks, 1)) * np.linspace(1, 2, dim) + 0.5
    owner = np.repeat(np.arange(tasks), rounds)
    x = rng.normal(size=(len(owner), dim))
    reward = 3.0 + (x * theta[owner]).sum(1) + 0.5 * rng.normal(size=len(owner))
    found = []
    for scale, shift in ((1.0, 0.0), (1e-6, 0.0), (1.0, 1e4)):
        columns = {"x0": scale * x[:, 0] + shift} | {f"x{j}": x[:, j] for j in range(1, dim)}
        path = tmp_path / f"{len(found)}.parquet"
        pq.write_table(pa.table({"task": owner, "reward": reward, **columns}), path)
        found.append(evaluate(Logs(path, Columns("task", "reward", "x*")), splits=1))
    assert {each.verdict.kind for each in found} == {"transfer"}
    plain, *others = (each.measures.errors for each in found)
    for name, error in plain.items():
        for other in others:
            assert other[name].value == pytest.approx(error.value, rel=1e-5)


def test_a_constant_column_in_the_log_does_not_matter(opened):
    table = log()
    added = evaluate(opened(table), splits=1)
    for constant in (1000.0, 0.0):
        more = table.append_column("x9", pa.array(np.full(len(table), constant)))
        own = evaluate(opened(more, name="more.parquet"), splits=1)
        assert own.verdict.kind == added.verdict.kind
        for name, error in added.measures.errors.items():
            assert own.measures.errors[name].value == pytest.approx(error.value, rel=0.02)


def test_an_intercept_is_added_unless_it_is_not_wanted(opened):
    table = log()
    added = evaluate(opened(table), transfer=QUICK, splits=1)
    none = evaluate(opened(table), transfer=QUICK, intercept=False, splits=1)
    assert added.settings["intercept"] is True
    assert none.settings["intercept"] is False
    assert AVERAGE not in none.priors
    assert none.measures.errors[LEARNED].value > 2 * added.measures.errors[LEARNED].value


@pytest.mark.parametrize("transfer", [hs.Mixture(groups=2), hs.Bias(), hs.Subspace()])
def test_any_transfer_may_be_evaluated(opened, transfer):
    found = evaluate(opened(log(40)), transfer=transfer, splits=1)
    assert found.settings["transfer"] == repr(transfer)
    assert math.isfinite(found.measures.scores[LEARNED].value)


def test_policies_are_valued_where_all_arms_were_logged(opened):
    found = evaluate(opened(offered(60), WHOLE), transfer=QUICK, splits=2)
    assert found.advice == ""
    values = {(value.policy, value.estimator): value for value in found.values}
    assert len(values) == 21
    for estimator in ("replay", "IPS", "SNIPS", "doubly robust"):
        good, plain = (values[name, estimator].value.value for name in (LEARNED, "uniform"))
        assert good > plain + 0.3
    without = evaluate(opened(log(20)), transfer=QUICK, splits=1)
    assert without.values == []
    assert "(--propensity)" in without.advice
    printed = str(found)
    assert "What policies would earn per round" in printed
    table = found.value_frame
    assert table["estimator"].unique(maintain_order=True).to_list() == [
        "as logged", "replay", "weighted replay", "IPS", "SNIPS", "doubly robust"
    ]  # fmt: skip
    shown = table.filter(estimator="IPS")
    assert shown["policy"].to_list() == [LEARNED, POOLED, ALONE, "uniform"]
    assert set(shown["rounds"]) == {str(found.values[0].rounds)}
    assert all(row in printed for row in shown["reward per round"])


def test_values_that_cannot_be_right_are_withheld(opened):
    table = offered(60)
    shown = table.filter(table["chosen"])
    found = evaluate(opened(shown, WHOLE, "shown.parquet"), transfer=QUICK, splits=1)
    assert found.values == []
    assert "one arm only" in found.advice
    assert found.advice in str(found)
    place = table.schema.get_field_index("propensity")
    for each, fine in ((1 / 3, True), (1 / 6, False)):
        chances = pa.array([each] * len(table))
        whole = table.set_column(place, "propensity", [chances])
        found = evaluate(opened(whole, WHOLE, f"{fine}.parquet"), transfer=QUICK, splits=1)
        assert bool(found.values) is fine
        assert ("do not add up to 1 (the median of all sums is 0.500)" in found.advice) is not fine


def test_where_it_comes_from(opened, tmp_path):
    found = evaluate(opened(log(20)))
    path = str(tmp_path / "log.parquet")
    plain = f"headstart evaluate {path} --task task --reward reward --features 'x*'"
    assert found.provenance.command == plain
    assert found.provenance.order.startswith("as rows lie in the files")
    columns = Columns("task", "reward", ("x0", "x2"), timestamp="when")
    logs = opened(log(20), columns, "other.parquet", on_bad_rows="skip", format="parquet")
    logs.storage = {"key": "secret"}
    found = evaluate(
        logs, transfer=hs.Subspace(rank=1), first=3, intercept=False, clip=2.0, horizon=50,
        rule=hs.Greedy(),
    )  # fmt: skip
    command = found.provenance.command
    assert "--features x0,x2 --timestamp when" in command
    assert "--format parquet --on-bad-rows skip --storage " in command
    assert "secret" not in command
    assert "--transfer subspace:rank=1 --first 3 --no-intercept --clip 2.0  # " in command
    assert command.endswith("# horizon=50, rule=Greedy()")
    assert found.provenance.order.startswith("by the column 'when'")
    many = found.provenance._replace(paths=tuple(f"{at}.csv" for at in range(30)))
    assert many.files[-1] == "… and 10 more"
    assert "evaluate LOGS --task" in many.command
    assert "# LOGS: 30 files" in many.command


def test_rows_that_cannot_be_used_are_counted(opened):
    table = log()
    rewards = table["reward"].to_pylist()
    rewards[3] = None
    broken = table.set_column(1, "reward", [pa.array(rewards)])
    with pytest.raises(InputError, match="reward"):
        evaluate(opened(broken))
    found = evaluate(opened(broken, on_bad_rows="skip"), transfer=QUICK, splits=1)
    assert found.bad.count == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"future": 0.0}, "future must be"),
        ({"future": 1.0}, "future must be"),
        ({"first": 0}, "first must be"),
        ({"seed": -1}, "seed must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"transfer": "best"}, "transfer must be"),
        ({"transfer": hs.Gaussian()}, "forced=False"),
        ({"rule": "best"}, "rule must be"),
        ({"intercept": 1}, "intercept must be"),
    ],
)
def test_bad_arguments_are_named(opened, options, message):
    with pytest.raises(InputError, match=message):
        evaluate(opened(log(10)), **options)


def test_the_command_prints_a_table_a_verdict_and_where_the_page_is(
    tmp_path, logbook, monkeypatch, capsys
):
    path = logbook.write(tmp_path / "log.parquet", log(60))
    words = [path, "--task", "task", "--reward", "reward", "--features", "x*"]
    words += ["--first", "5"]
    monkeypatch.setenv("COLUMNS", "100")

    def run(*more):
        from headstart.cli import main

        monkeypatch.setattr(sys, "argv", ["headstart", "evaluate", *words, *more])
        with pytest.raises(SystemExit) as leave:
            main()
        return leave.value.code, *capsys.readouterr()

    code, out, err = run("--out", str(tmp_path / "out"))
    assert code == 0
    assert "earlier" not in err
    assert "pooled model" in out
    assert "a learned prior is expected to save" in out.replace("\n", " ")
    assert "in each of 5 random splits" in out.replace("\n", " ")
    assert (tmp_path / "out" / "report.html").exists()
    words += ["--out", str(tmp_path / "out")]
    code, out, err = run("--json", "--workers", "1", "--splits", "1")
    assert code == 0
    assert "has the report of an earlier evaluation; it will be replaced" in err.replace("\n", " ")
    assert json.loads(out)["past_tasks"] == 42
    assert json.loads(out)["models"]["no prior"]["squared_error"]["value"] > 0
