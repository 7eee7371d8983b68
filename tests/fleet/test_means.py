"""Rewards that are means of n rewards: the noise is that of a single reward, stated or not."""

import numpy as np
import polars as pl
import pytest

import headstart as hs
from headstart.errors import InputError
from headstart.fleet import Columns, Logs, check, evaluate, fit

NOISE = 3.0


def shops(seed, count=60, days=6):
    """Mean ratings of days: of 5 to 200 ratings each, with fewer days than a task's noise needs."""
    rng = np.random.default_rng(seed)
    own = np.array([1.0, -1.0]) + 0.3 * rng.standard_normal((count, 2))
    x = rng.standard_normal((count, days, 2))
    n = np.exp(rng.uniform(np.log(5.0), np.log(200.0), (count, days))).round()
    mean = (x @ own[:, :, None])[..., 0] + NOISE * rng.standard_normal(n.shape) / np.sqrt(n)
    rows = {
        "shop": np.repeat(np.arange(count), days),
        "x0": x[..., 0].ravel(),
        "x1": x[..., 1].ravel(),
        "rating": mean.ravel() + 4.0,
        "n": n.ravel(),
    }
    return rows, own


def logs_of(folder, rows, **columns):
    pl.DataFrame(rows).write_parquet(folder / "log.parquet")
    given = {} if "schema" in columns else {"features": "x*"}
    return Logs(folder / "log.parquet", Columns("shop", "rating", **given, **columns))


def test_intervals_hold_the_truth_though_the_noise_is_not_stated():
    inside, noises = [], []
    for seed in range(3):
        rows, own = shops(seed)
        bandit = hs.Bandit(dim=2, seed=0).fit(rows, task="shop", reward="rating", mean_of="n")
        noises.append(bandit.prior.noise)
        for shop, true in enumerate(own):
            found = bandit.task(shop).predict([[1.0, 1.0], [0.0, 0.0]], level=0.9)
            inside += [found.lower[0] < true.sum() + 4.0 < found.upper[0]]
    assert 0.84 < np.mean(inside) < 0.96  # 180 intervals
    assert abs(np.mean(noises) / NOISE - 1.0) < 0.1


@pytest.mark.parametrize("intercept", [True, False])
def test_one_prior_by_every_way(tmp_path, intercept):
    rows, _ = shops(0)
    rows["weight"] = np.arange(len(rows["n"])) % 3 + 0.0  # some rows count twice, others not at all
    how = {"weight": "weight", "mean_of": "n"}
    fitted = fit(logs_of(tmp_path, rows, **how), intercept=intercept, keep_tasks=True)
    bandit = hs.Bandit(dim=2, seed=0, intercept=intercept)
    bandit.fit(rows, task="shop", reward="rating", features=["x0", "x1"], **how)
    served = fitted.bandit(seed=0)
    np.testing.assert_allclose(served.prior.mean, bandit.prior.mean, rtol=1e-8)
    np.testing.assert_allclose(served.prior.noise, bandit.prior.noise, rtol=1e-8)
    observed = hs.Bandit(dim=2, seed=0, intercept=intercept)
    use = rows["shop"] == 7
    x = np.column_stack([rows["x0"], rows["x1"]])[use]
    columns = (rows[name][use] for name in ("rating", "weight", "n"))
    rating, weight, n = columns
    observed.task(7).observe(x, rating, weight, mean_of=n)
    context = np.column_stack([x, np.ones(len(x))]) if intercept else x
    found = observed.task(7).evidence
    np.testing.assert_allclose(found.gram, (context.T * weight * n) @ context)
    np.testing.assert_allclose(found.moment, context.T @ (weight * n * rating))
    np.testing.assert_allclose(
        [found.rounds, found.squares], [weight.sum(), weight @ (n * rating**2)]
    )


def test_a_weight_of_three_is_three_equal_rows(tmp_path):
    rows, _ = shops(0)
    rows["weight"] = np.full(len(rows["n"]), 3.0)
    columns = [name for name in rows if name != "n"]
    once = fit(logs_of(tmp_path, {name: rows[name] for name in columns}, weight="weight"))
    thrice = {name: np.tile(rows[name], 3) for name in columns if name != "weight"}
    thrice = fit(logs_of(tmp_path, thrice))
    np.testing.assert_allclose(once.prior.mean, thrice.prior.mean, rtol=1e-8)
    np.testing.assert_allclose(
        once.prior.covariance, thrice.prior.covariance, rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(once.prior.noise, thrice.prior.noise, rtol=1e-8)


def test_means_of_one_are_rewards(tmp_path):
    rows, _ = shops(0)
    rows["n"] = np.ones(len(rows["n"]))
    one, other = (fit(logs_of(tmp_path, rows, **how)) for how in ({"mean_of": "n"}, {}))
    np.testing.assert_allclose(one.prior.mean, other.prior.mean, rtol=1e-10)
    one, other = (
        evaluate(logs_of(tmp_path, rows, **how), transfer=hs.Bias(), splits=1)
        for how in ({"mean_of": "n"}, {})
    )
    for name, error in one.measures.errors.items():
        assert error.value == pytest.approx(other.measures.errors[name].value, rel=1e-9)


def test_how_many_rewards_are_averaged_sets_no_unit(tmp_path):
    rows, _ = shops(0)
    priors = []
    for times in (1.0, 10_000.0):  # of ten thousand times as many, R is a hundred times as large
        given = {**rows, "n": times * rows["n"]}
        fitted = fit(logs_of(tmp_path, given, mean_of="n"))
        assert not fitted.notes
        priors.append((fitted.prior.mean, fitted.prior.covariance, fitted.prior.noise / times**0.5))
    for one, other in zip(*priors, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-6)


def test_evaluations_weigh_means_by_how_many_they_are_of(tmp_path):
    rows, _ = shops(1)
    found = evaluate(logs_of(tmp_path, rows, mean_of="n"), splits=2)
    covered = found.measures.coverage["learned prior"][0.95].value
    assert 0.92 < covered < 0.98
    assert found.priors["learned prior"].noise == pytest.approx(NOISE, rel=0.15)
    assert "without --mean-of" in found.advice
    assert "--mean-of n" in found.provenance.command


def test_observed_means_are_recorded_and_replayed(tmp_path):
    journal = hs.Journal(tmp_path / "journal")
    bandit = hs.Bandit(dim=1, seed=0)
    bandit.save(tmp_path / "before")
    bandit.task("a").observe([[1.0], [2.0]], [3.0, 4.0], mean_of=[5, 7], journal=journal)
    journal.close()
    restored = hs.load(tmp_path / "before")
    assert restored.replay(tmp_path / "journal").learned == 1
    np.testing.assert_array_equal(restored.task("a").evidence.gram, bandit.task("a").evidence.gram)


def test_items_learn_from_means(tmp_path):
    rows, _ = shops(2)
    rng = np.random.default_rng(0)
    rows["id"] = np.array([f"film {at}" for at in rng.integers(0, 20, len(rows["n"]))])
    schema = hs.Schema(action={"x0": hs.number(), "x1": hs.number()}, identity=True)
    logs = logs_of(tmp_path, rows, schema=schema, mean_of="n")
    bandit = hs.Bandit(schema, seed=0).fit(rows, task="shop", reward="rating", mean_of="n")
    served = fit(logs).bandit(seed=0)
    np.testing.assert_allclose(served.prior.mean, bandit.prior.mean, atol=1e-7)
    with pytest.raises(InputError, match="mean_of must be left out with a schema with identity"):
        evaluate(logs)


def test_what_is_no_number_of_rewards_is_refused(tmp_path):
    rows, _ = shops(0)
    task = hs.Bandit(dim=1, seed=0).task("a")
    for wrong in (0.0, [1.0, -2.0], [1.0]):
        with pytest.raises(InputError, match="mean_of must be a number, or 2 of them, above 0"):
            task.observe([[1.0], [2.0]], [3.0, 4.0], mean_of=wrong)
    assert task.rounds == 0
    with pytest.raises(InputError, match="mean_of is not above 0: 1 row"):
        fit(logs_of(tmp_path, {**rows, "n": np.append(rows["n"][:-1], 0.0)}, mean_of="n"))
    with pytest.raises(InputError, match="must be different columns"):
        Columns("shop", "rating", "x*", weight="n", mean_of="n")
    with pytest.raises(InputError, match="must be different columns"):
        hs.Bandit(dim=2).fit(rows, task="shop", reward="rating", weight="n", mean_of="n")
    with pytest.raises(InputError, match="mean_of must be left out where rewards are 0 or 1"):
        fit(logs_of(tmp_path, rows, mean_of="n"), reward="binary")
    with pytest.raises(InputError, match="mean_of must be left out where rewards are 0 or 1"):
        hs.Bandit(dim=1, reward="binary").task("a").observe([[1.0]], [1.0], mean_of=4)


def test_weights_that_seem_to_count_rewards_are_told(tmp_path):
    rows, _ = shops(0)
    told = "If rewards are means of so many, name the column by mean_of (--mean-of) instead"
    logs = logs_of(tmp_path, rows, weight="n")
    assert any(told in note for note in fit(logs, hs.Bias()).notes)
    assert any(told in note for note in check(logs).notes)
    assert any(told in note for note in evaluate(logs, transfer=hs.Bias(), splits=1).notes)
    whole = {**rows, "rating": rows["rating"].round()}  # equal rewards recur
    for given, columns in ((whole, {"weight": "n"}), (rows, {"mean_of": "n"})):
        fitted = fit(logs_of(tmp_path, given, **columns), hs.Bias())
        assert not any(told in note for note in fitted.notes)


def test_where_the_noise_is_stated_a_mean_of_n_is_a_weight_of_n():
    rng = np.random.default_rng(0)
    x = [1.0, 30.0] * rng.standard_normal((5, 2)) + [0.0, 50.0]
    rewards, n = 4.0 + x @ [1.0, 0.1] + rng.standard_normal(5), rng.integers(1, 200, 5)
    found = []
    for how in ({"mean_of": n}, {"weight": n}):
        bandit = hs.Bandit(dim=2, noise=10.0, seed=0)
        bandit.task(0).observe(x, rewards, **how)
        found.append(bandit.task(0).predict([[1.0, 30.0], [0.0, 0.0]]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
