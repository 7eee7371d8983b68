"""Clicks in logs: ``headstart fit --reward-model binary``."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import headstart as hs
from headstart.fleet import Columns, Logs, fit

TRUTH = np.array([1.0, -1.0, -2.0])
WORDS = ("--task", "user", "--reward", "click", "--features", "x*", "--reward-model", "binary")


@pytest.fixture(scope="module")
def frame():
    """Sixty tasks of forty rows in random order, the second feature in awkward units."""
    rng = np.random.default_rng(0)
    theta = np.repeat(TRUTH + 0.5 * rng.standard_normal((60, 3)), 40, 0)
    x = rng.standard_normal((2400, 2))
    click = rng.random(2400) < expit((x * theta[:, :2]).sum(1) + theta[:, 2])
    columns = {
        "user": np.repeat([f"user {at}" for at in range(60)], 40),
        "x0": x[:, 0],
        "x1": 1000.0 * x[:, 1],
        "click": click.astype(int),
        "weight": np.ones(2400),
    }
    order = rng.permutation(2400)
    return {name: column[order] for name, column in columns.items()}


@pytest.fixture
def logs(frame, tmp_path):
    """The rows in three files."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(2400), 3)):
        table = pa.table({name: column[part] for name, column in frame.items()})
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def test_the_prior_is_that_of_the_same_rows_in_memory(frame, logs):
    shares = []
    fitted = fit(
        Logs(logs, Columns("user", "click", "x*")),
        reward="binary",
        progress=lambda what, done, total: what == "fitting" and shares.append(done / total),
    )
    assert shares == sorted(set(shares))
    assert len(shares) >= 8  # after every pass, and after every fit
    assert shares[-1] == 1.0
    rows = {name: column for name, column in frame.items() if name != "weight"}
    bandit = hs.Bandit(2, reward="binary", seed=0).fit(rows, task="user", reward="click")
    served = fitted.bandit(seed=0)
    np.testing.assert_allclose(served.prior.mean, bandit.prior.mean, rtol=1e-9)
    np.testing.assert_allclose(served.prior.covariance, bandit.prior.covariance, rtol=1e-9)
    np.testing.assert_allclose(fitted.prior.mean * (1, 1000, 1), TRUTH, atol=0.35)
    assert (fitted.tasks, fitted.rows, fitted.reward) == (60, 2400, "binary")


def test_one_value_far_out_costs_its_feature_nothing(frame, tmp_path):
    """Its coefficient was nearly 0 for all tasks."""
    rows = {name: column.copy() for name, column in frame.items() if name != "weight"}
    rows["x0"][7] = 1e4
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    fitted = fit(Logs(tmp_path / "log.parquet", Columns("user", "click", "x*")), reward="binary")
    np.testing.assert_allclose(fitted.prior.mean * (1, 1000, 1), TRUTH, atol=0.35)
    bandit = hs.Bandit(2, reward="binary", seed=0).fit(rows, task="user", reward="click")
    np.testing.assert_allclose(fitted.bandit().prior.mean, bandit.prior.mean, rtol=1e-9)


def test_tasks_are_expanded_some_at_a_time_however_much_memory_there_is(logs, monkeypatch):
    opened, shares = Logs(logs, Columns("user", "click", "x*")), []
    want = fit(opened, reward="binary").prior
    monkeypatch.setattr("headstart.fleet.row_fit.RANGE_ROWS", 300)
    note = lambda what, done, total: what == "fitting" and shares.append(done / total)  # noqa: E731
    found = fit(opened, reward="binary", progress=note).prior
    assert len(shares) > 4 * 8
    np.testing.assert_allclose(found.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, want.covariance, rtol=1e-9)


def test_the_command_writes_a_bandit_that_predicts_probabilities(headstart, logs, tmp_path):
    out = tmp_path / "prior.headstart"
    shown = headstart("fit", logs, *WORDS, "--out", out, "--keep-tasks", "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["reward_model"] == "binary"
    bandit = hs.load(out)
    assert len(bandit) == 60
    found = bandit.task("new").predict([[2.0, 0.0], [-2.0, 0.0]])
    assert found.mean[0] > 0.3 > 0.1 > found.mean[1] > 0
    task = bandit.task("user 7")
    assert task.rounds == 40
    task.learn(task.choose([[2.0, 0.0], [-2.0, 0.0]]), True)
    assert "reward='binary'" in repr(bandit)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--reward-model", "clicks"), "reward-model must be one of 'number', 'binary'"),
        (("--noise", "0.5"), "--noise must be left out with --reward-model binary"),
        (("--reward", "x0"), "column 'x0': rewards must be 0 or 1"),
    ],
)
def test_what_does_not_fit_is_refused(headstart, logs, tmp_path, words, message):
    shown = headstart("fit", logs, *WORDS, *words, "--out", tmp_path / "prior")
    assert shown.code == 2
    assert message in shown.err
    assert not (tmp_path / "prior").exists()


def test_files_order_memory_and_workers_do_not_matter(frame, logs, tmp_path, monkeypatch):
    columns = Columns("user", "click", "x*", weight="weight")
    want = fit(Logs(logs, columns), reward="binary", workers=1)
    order = np.random.default_rng(1).permutation(2400)
    other = tmp_path / "other"
    other.mkdir()
    for number, part in enumerate(np.array_split(order, 5)):
        table = pa.table({name: column[part] for name, column in frame.items()})
        pq.write_table(table, other / f"{number}.parquet", row_group_size=100)
    monkeypatch.setattr("headstart.fleet.reading.logs.ROWS", 100)
    monkeypatch.setitem(fit.__globals__, "MIN_MEMORY", 1)
    # So little memory that the rows are read in many ranges.
    found = fit(Logs(other, columns), reward="binary", workers=2, memory=100_000)
    np.testing.assert_allclose(found.prior.mean, want.prior.mean, rtol=1e-7)
    np.testing.assert_allclose(found.prior.covariance, want.prior.covariance, rtol=1e-6)
    assert (found.tasks, found.rows) == (60, 2400)


@pytest.mark.parametrize("name", ["cluster", "checkpoint"])
def test_what_sums_alone_can_do_is_refused(logs, name):
    with pytest.raises(hs.InputError, match=f"{name} must be left out with reward='binary'"):
        fit(Logs(logs, Columns("user", "click", "x*")), reward="binary", **{name: "ray"})


def test_a_full_temporary_folder_is_told(tmp_path):
    resource = pytest.importorskip("resource")
    rng = np.random.default_rng(0)
    columns = {f"x{at}": rng.standard_normal(6000).astype(np.float32) for at in range(20)}
    columns |= {"user": np.tile(np.arange(3000), 2), "click": rng.integers(0, 2, 6000)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    logs = Logs(tmp_path / "log.parquet", Columns("user", "click", "x*"))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, most[1]))  # less than the sums of all
    try:
        with pytest.raises(hs.FileError, match=r"could not be written .*more room \(TMPDIR\)"):
            fit(logs, reward="binary", workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
