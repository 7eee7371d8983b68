"""Costs in logs: what is fitted and evaluated with ``minimize=True`` is served with it."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.bandit.rewards import reward_model
from headstart.errors import InputError
from headstart.fleet import Columns, Logs, evaluate, fit
from headstart.fleet.reading.logs import Logs as AnyLogs

SCHEMA = hs.Schema(action={"km": hs.number(), "road": hs.category("a", "b")}, identity=True)


def trips(tasks=40, length=25, seed=0):
    """Trips of drivers: minutes, whether they came late, what road, and weights."""
    rng = np.random.default_rng(seed)
    count = tasks * length
    owner = rng.permutation(np.repeat(np.arange(tasks), length))
    km, road = rng.uniform(1.0, 20.0, count), rng.integers(0, 2, count)
    pace = 2.0 + 0.3 * rng.standard_normal(tasks)
    minutes = 30.0 + pace[owner] * km + 5.0 * road + rng.standard_normal(count)
    return {
        "driver": np.array([f"d{number}" for number in owner]),
        "km": km,
        "road": np.array(["a", "b"])[road],
        "id": np.array([f"route {number}" for number in rng.integers(0, 30, count)]),
        "minutes": minutes,
        "late": (minutes > 60.0 + 5.0 * rng.standard_normal(count)).astype(int),
        "weight": rng.integers(0, 4, count).astype(float),
    }


def logs_of(folder, rows, reward="minutes", name="log.parquet", features="km", **columns):
    pq.write_table(pa.table(rows), folder / name)
    given = {} if "schema" in columns else {"features": features}
    return Logs(folder / name, Columns("driver", reward, **given, **columns))


CASES = {
    "numbers": ("minutes", "number", {}, None),
    "weights": ("minutes", "number", {"weight": "weight"}, None),
    "failures": ("late", "binary", {}, None),
    "items": ("minutes", "number", {"schema": SCHEMA}, SCHEMA),
    "failures of items": ("late", "binary", {"schema": SCHEMA}, SCHEMA),
}


@pytest.mark.parametrize(("cost", "reward", "columns", "schema"), CASES.values(), ids=CASES)
def test_a_fit_of_costs_is_that_of_a_bandit_with_minimize(tmp_path, cost, reward, columns, schema):
    rows = trips()
    fitted = fit(logs_of(tmp_path, rows, cost, **columns), reward=reward, minimize=True)
    served = fitted.bandit(seed=0)
    bandit = hs.Bandit(schema or 1, reward=reward, minimize=True, seed=0)
    weight = columns.get("weight")
    used = ["driver", cost, *(["km"] if schema is None else ["km", "road", "id"])]
    frame = {name: rows[name] for name in [*used, *([weight] if weight else [])]}
    bandit.fit(frame, task="driver", reward=cost, weight=weight)
    for name in ("mean", "covariance", "noise"):
        ours, theirs = (getattr(one.prior, name) for one in (served, bandit))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-7 * np.abs(theirs).max())
    offers = [{"km": 3.0, "road": "b", "id": "route 1"}, {"km": 18.0, "road": "a", "id": "new"}]
    given = [[3.0], [18.0]] if schema is None else offers
    ask = {} if schema is None else {"actions": given}
    tasks = [one.task("new") for one in (served, bandit)]
    both = [task.predict(**ask) if ask else task.predict(given) for task in tasks]
    np.testing.assert_allclose(both[0].mean, both[1].mean, rtol=1e-6)
    choice = tasks[0].choose(**ask) if ask else tasks[0].choose(given)
    assert choice.arm == 0
    low, high = (0.0, 1.0) if reward == "binary" else (25.0, 80.0)
    assert low < both[0].mean[0] < both[0].mean[1] < high
    assert fitted.summary()["minimize"] is True


def test_the_command_writes_a_bandit_of_costs(tmp_path, capsys):
    from headstart import cli

    logs_of(tmp_path, trips())
    words = [str(tmp_path / "log.parquet"), "--task", "driver", "--reward", "minutes"]
    words += ["--features", "km", "--minimize", "--json"]
    out = tmp_path / "prior.headstart"
    cli.app(["fit", *words, "--out", str(out)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["minimize"] is True
    bandit = hs.load(out)
    assert "minimize=True" in repr(bandit)
    assert bandit.task("new").choose([[20.0], [2.0]]).arm == 1
    page = tmp_path / "page"
    cli.app(["evaluate", *words, "--out", str(page)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["settings"]["minimize"] is True
    assert "--features km --minimize" in (page / "report.html").read_text()


def test_an_interrupted_fit_of_costs_is_not_resumed_as_one_of_rewards(tmp_path, monkeypatch):
    logs = logs_of(tmp_path, trips())
    pq.write_table(pa.table(trips(seed=1)), tmp_path / "more.parquet")
    logs = Logs(tmp_path / "*.parquet", logs.columns)
    read, seen = AnyLogs.read, []

    def interrupted(self, part, **options):
        if seen:
            raise KeyboardInterrupt
        seen.append(part)
        return read(self, part, **options)

    place = tmp_path / "work"
    with monkeypatch.context() as patch:
        patch.setattr(AnyLogs, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(logs, minimize=True, checkpoint=place, workers=1)
    with pytest.raises(InputError, match="minimize was True and is False now"):
        fit(logs, checkpoint=place)
    fitted = fit(logs, minimize=True, checkpoint=place)
    np.testing.assert_allclose(fitted.prior.mean, fit(logs, minimize=True).prior.mean, rtol=1e-9)


def test_notes_and_errors_speak_of_costs_as_they_are_logged(tmp_path):
    rows = trips()
    rows["minutes"] = np.full(1000, 7.0)
    assert "every reward is 7: there is nothing to learn" in " ".join(
        fit(logs_of(tmp_path, rows), minimize=True).notes
    )
    found = evaluate(logs_of(tmp_path, rows), minimize=True, transfer=hs.Bias(), splits=1)
    assert "every reward is 7, and" in found.verdict.sentence
    found = evaluate(logs_of(tmp_path, trips(), "late"), minimize=True, transfer=hs.Bias())
    assert any("every reward is 0 or 1" in note for note in found.notes)
    with pytest.raises(InputError, match="column 'minutes': rewards must be 0 or 1"):
        fit(logs_of(tmp_path, trips()), reward="binary", minimize=True)
    with pytest.raises(InputError, match="minimize must be True or False"):
        fit(logs_of(tmp_path, trips()), minimize="yes")


@pytest.mark.parametrize("reward", ["number", "binary"])
def test_costs_are_evaluated_as_their_negatives(tmp_path, reward):
    rows = trips()
    cost = "minutes" if reward == "number" else "late"
    rows["gain"] = -rows[cost] if reward == "number" else 1 - rows[cost]
    how = {"transfer": hs.Bias(), "splits": 1, "reward": reward}
    found = evaluate(logs_of(tmp_path, rows, cost), minimize=True, **how)
    other = evaluate(logs_of(tmp_path, rows, "gain"), **how)
    assert found.verdict == other.verdict
    assert found.measures.errors == other.measures.errors
    assert found.measures.scores == other.measures.scores
    for name, places in found.measures.pit.items():
        mirrored = other.measures.pit[name][::-1]
        ours, theirs = ([point.value for point in side] for side in (places, mirrored))
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_values_of_policies_are_costs(tmp_path):
    rng = np.random.default_rng(0)
    rounds = 600
    km = rng.uniform(1.0, 5.0, (rounds, 3))
    shown = rng.integers(0, 3, rounds)
    minutes = 10.0 + 2.0 * km + 0.1 * rng.standard_normal(km.shape)
    rows = {
        "driver": np.repeat(np.arange(rounds) % 30, 3),
        "round": np.repeat(np.arange(rounds), 3),
        "km": km.ravel(),
        "chosen": (np.arange(3) == shown[:, None]).ravel(),
        "chance": np.full(3 * rounds, 1 / 3),
        "minutes": np.where(np.arange(3) == shown[:, None], minutes, np.nan).ravel(),
    }
    roles = {"round": "round", "chosen": "chosen", "propensity": "chance"}
    found = evaluate(logs_of(tmp_path, rows, **roles), transfer=hs.Bias(), minimize=True, splits=1)
    values = {(value.policy, value.estimator): value.value for value in found.values}
    good, plain = (values[name, "doubly robust"] for name in ("learned prior", "uniform"))
    assert 10.0 < good.low < good.value < good.high < plain.value - 1.0
    logged = values["logged policy", "as logged"]
    assert abs(logged.value - 16.0) < 0.5
    assert "cost per round" in found.value_frame.columns
    assert "What policies would cost per round" in str(found)


def test_workers_know_that_rewards_are_costs(tmp_path):
    logs = logs_of(tmp_path, trips()).for_fit(True, reward_model("number", True))
    sent = pickle.loads(pickle.dumps(logs))
    rewards = [rows.rewards.max() for part in logs.parts() for rows in sent.read(part)]
    assert max(rewards) < 0.0
