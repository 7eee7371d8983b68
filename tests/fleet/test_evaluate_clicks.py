"""Evaluations of rewards of 0 and 1: probabilities, log loss, and logistic models to compare."""

import html
import json

import numpy as np
import polars as pl
import pytest
from scipy import optimize
from scipy.special import expit

import headstart as hs
from headstart.fleet import Columns, Logs, evaluate
from headstart.fleet.evaluation.rollouts import Episodes
from headstart.fleet.evaluation.validation import forecast_clicks

WORDS = ("--task", "user", "--reward", "click", "--features", "x*", "--reward-model", "binary")


@pytest.fixture(scope="module")
def frame():
    """A hundred and fifty tasks that differ in how they weigh two features."""
    rng = np.random.default_rng(0)
    theta = np.repeat([1.0, -1.0, -1.5] + 0.9 * rng.standard_normal((150, 3)), 30, 0)
    x = rng.standard_normal((4500, 2))
    click = rng.random(4500) < expit((x * theta[:, :2]).sum(1) + theta[:, 2])
    return pl.DataFrame(
        {
            "user": np.repeat(np.arange(150), 30),
            "x0": x[:, 0],
            "x1": 1000.0 * x[:, 1],
            "click": click.astype(int),
        }
    )


@pytest.fixture(scope="module")
def found(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("clicks") / "log.parquet"
    frame.write_parquet(path)
    return evaluate(Logs(path, Columns("user", "click", "x*")), reward="binary", splits=1)


def test_probabilities_are_scored_and_the_learned_prior_wins(found):
    scores = {name: each.value for name, each in found.measures.scores.items()}
    assert max(scores, key=scores.get) == "learned prior"
    assert found.measures.gains["learned prior", "pooled model"].low > 0
    assert -0.7 < scores["no prior"] < scores["learned prior"] < -0.3  # nats; a coin has −0.69
    for name, coverage in found.measures.coverage.items():
        assert abs(coverage[0.8].value - 0.8) < 0.06, name
    assert "Off-policy values are withheld" in found.advice


def test_the_pooled_model_is_a_logistic_regression(frame, found):
    x = np.column_stack([frame["x0"], frame["x1"] / 1000.0, np.ones(len(frame))])
    signs = 2.0 * frame["click"].to_numpy() - 1.0

    def loss(theta):
        return np.logaddexp(0.0, -signs * (x @ theta)).sum()

    best = optimize.minimize(loss, np.zeros(3)).x
    pooled = found.priors["pooled model"].mean * [1.0, 1000.0, 1.0]
    np.testing.assert_allclose(pooled, best, atol=0.15)  # of 105 of the 150 tasks
    learned = found.priors["learned prior"].mean * [1.0, 1000.0, 1.0]
    np.testing.assert_allclose(learned, [1.0, -1.0, -1.5], atol=0.3)  # not shrunken by averaging


def test_forecasts_are_those_of_the_exact_posterior():
    """Against quadrature, for a single log-odds e ~ N(−1, 1)."""
    rewards = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    grid = np.linspace(-9.0, 7.0, 4001)
    density, want = np.exp(-0.5 * (grid + 1.0) ** 2), []
    for r in rewards:
        likely = expit(grid if r else -grid)
        want.append(np.log((density * likely).sum() / density.sum()))
        density *= likely
    episodes = Episodes(np.ones((1, 6, 1)), rewards[None], np.ones((1, 6)), np.array([6]))
    found = forecast_clicks(hs.Prior.gaussian([-1.0], [[1.0]]), episodes, seed=0)
    np.testing.assert_allclose(found.scores[0], want, atol=0.02)
    np.testing.assert_allclose(found.errors[0], (1.0 - np.exp(want)) ** 2, atol=0.02)
    assert ((found.pit > 0) & (found.pit < 1)).all()


def test_the_command_takes_the_reward_model(headstart, frame, tmp_path):
    frame.head(900).write_parquet(tmp_path / "log.parquet")
    quick = ("--transfer", "bias", "--splits", 1, "--workers", 1, "--out", tmp_path / "page")
    shown = headstart("evaluate", tmp_path / "log.parquet", *WORDS, *quick, "--json")
    assert shown.code == 0, shown.err
    summary = json.loads(shown.out)
    assert summary["settings"]["reward"] == "binary"
    page = html.unescape((tmp_path / "page" / "report.html").read_text())
    assert "--transfer bias --reward-model binary" in page
    shown = headstart("evaluate", tmp_path / "log.parquet", *WORDS, "--reward", "x0", *quick)
    assert shown.code == 2
    assert "column 'x0': rewards must be 0 or 1" in shown.err
    shown = headstart("evaluate", tmp_path / "log.parquet", *WORDS, "--reward-model", "clicks")
    assert "reward-model must be one of 'number', 'binary'" in shown.err


def test_rows_that_do_not_fit_into_memory_are_refused(frame, tmp_path, monkeypatch):
    frame.write_parquet(tmp_path / "log.parquet")
    monkeypatch.setattr("headstart.fleet.evaluation.sample.ROW_BYTES", 1000)
    with pytest.raises(hs.InputError, match="look at fewer tasks"):
        evaluate(Logs(tmp_path / "log.parquet", Columns("user", "click", "x*")), reward="binary")
