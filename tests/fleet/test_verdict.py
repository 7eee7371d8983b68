"""The verdict: what decides, in words, and how often it is wrong."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headstart.fleet import Columns, Logs
from headstart.fleet.bootstrap import Estimate
from headstart.fleet.evaluate import evaluate
from headstart.fleet.measures import ALONE, AVERAGE, LEARNED, POOLED, Lead
from headstart.fleet.verdict import decide

COLUMNS = Columns("task", "reward", "x*")


def gains(pooled, single, half, name=AVERAGE):
    """Paired differences from the learned prior's lead over the two others."""
    found = {}
    for one, other, value in (
        (LEARNED, POOLED, pooled),
        (LEARNED, name, single),
        (POOLED, name, single - pooled),
    ):
        found[one, other] = Estimate(value, value - half, value + half)
        found[other, one] = Estimate(-value, -value - half, -value + half)
    return found


def leads(rounds=37.0, high=45.0):
    return {name: Lead(Estimate(rounds, 30.0, high), 200, []) for name in (AVERAGE, ALONE)}


@pytest.mark.parametrize(
    ("pooled", "single", "half", "kind"),
    [
        (0.2, 0.3, 0.05, "transfer"),
        (0.0, 0.3, 0.01, "pooling"),
        (0.3, 0.0, 0.01, "independence"),
        (0.004, 0.3, 0.001, "pooling"),  # certain, but it does not matter
        (-0.2, 0.3, 0.05, "pooling"),  # one model is better than the learned prior
        (0.0, 0.0, 0.01, "pooling"),  # a tie goes to the simplest
        (0.1, 0.1, 0.2, "unknown"),  # anything is possible
        (0.02, 0.3, 0.04, "unknown"),
    ],
)
def test_the_simplest_model_that_none_clearly_beats(pooled, single, half, kind):
    found = decide(gains(pooled, single, half), leads(), 100, 10)
    assert found.kind == kind
    answers = {finding.kind: finding.holds for finding in found.findings}
    if kind == "unknown":
        assert set(answers.values()) == {"open"}
        assert "times as many tasks" in found.sentence
    else:
        assert [name for name, holds in answers.items() if holds == "yes"] == [kind]


def test_it_speaks_plainly():
    sure = gains(0.2, 0.3, 0.05)
    found = decide(sure, leads(), 100, 10).sentence
    assert "a new task starts as if it had already seen 37 rounds [30.0 to 45.0]" in found
    never = decide(sure, leads(math.inf, math.inf), 100, 10).sentence
    assert "more than 200 rounds" in never
    assert "less than a round" in decide(sure, leads(0.2), 100, 10).sentence
    without = decide(gains(0.3, 0.0, 0.01, ALONE), {ALONE: leads()[ALONE]}, 100, 10)
    assert "share nothing:" in without.sentence
    assert "average" not in without.sentence
    beyond = decide(gains(0.3, 0.0, 0.01), leads(), 100, 10).sentence
    assert "share nothing beyond their average reward" in beyond
    assert "learns as well alone as from a learned prior (+0.0000" in beyond
    once = {name: found._replace(looked=1) for name, found in leads(math.inf, math.inf).items()}
    assert "more than 1 round (more than 1 round if" in decide(sure, once, 100, 10).sentence


def test_it_names_the_rivals_and_explains_signs():
    found = decide(gains(0.2, 0.3, 0.05), leads(), 100, 10).sentence
    assert "beats the pooled model and tasks alone around the average reward" in found
    assert "by at least +0.2000 [+0.1500, +0.2500] nats of log-likelihood per reward" in found
    assert found.endswith("(+ is better).")


@pytest.mark.parametrize("first", [1, 10])
def test_better_is_not_called_as_well(first):
    alone = decide(gains(0.3, -0.48, 0.05), leads(), 100, first)
    assert alone.kind == "independence"
    assert "learns better alone than from a learned prior (+0.4800" in alone.sentence
    pooled = decide(gains(-0.2, 0.3, 0.05), leads(), 100, first)
    assert pooled.kind == "pooling"
    rewards = "first reward" if first == 1 else "first 10 rewards"
    assert f"new task's {rewards} better than a learned prior (+0.2000" in pooled.sentence


def test_a_handful_of_tasks_decides_nothing():
    found = decide(gains(0.2, 0.3, 0.05), leads(), 9, 10)
    assert found.kind == "unknown"
    assert "only 9 future tasks" in found.sentence


def haar(rng, dim):
    """A rotation that favours no direction (Q alone would, by the signs of R's diagonal)."""
    q, r = np.linalg.qr(rng.normal(size=(dim, dim)))
    return q * np.sign(np.diag(r))


def world(kind, seed, tasks=100, dim=4):
    """A log: tasks that share a plane, that are all alike, or that share nothing."""
    rng = np.random.default_rng([seed, len(kind)])
    centre, plane = rng.normal(size=dim), haar(rng, dim)[:, :2]
    names, rewards, rows = [], [], []
    for task in range(tasks):
        size = int(rng.integers(2, 20))
        x = rng.normal(size=(size, dim))
        theta = centre if kind == "pooling" else centre + 0.7 * plane @ rng.normal(size=2)
        if kind == "independence":
            theta = haar(rng, dim) @ theta
        names += [f"t{task}"] * size
        rewards.append(2.0 * (seed % 2) + x @ theta + 0.5 * rng.normal(size=size))
        rows.append(x)
    x = np.vstack(rows)
    features = {f"x{j}": x[:, j] for j in range(dim)}
    return pa.table({"task": names, "reward": np.concatenate(rewards), **features})


@pytest.mark.parametrize("kind", ["transfer", "pooling", "independence"])
def test_it_is_right_on_worlds_that_are_known(kind, tmp_path, logbook):
    found = Counter()
    for seed in range(12):
        path = logbook.write(tmp_path / f"{seed}.parquet", world(kind, seed))
        found[evaluate(Logs(path, COLUMNS), seed=seed).verdict.kind] += 1
    assert found[kind] >= 11, found


def test_with_shuffled_ids_tasks_are_alike(tmp_path, logbook):
    rng = np.random.default_rng(0)
    table = world("transfer", 0)
    ids = rng.permutation(table["task"].to_pylist())
    path = logbook.write(tmp_path / "log.parquet", table.set_column(0, "task", [pa.array(ids)]))
    assert evaluate(Logs(path, COLUMNS)).verdict.kind == "pooling"
