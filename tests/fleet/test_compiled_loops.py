"""The compiled loops over tasks, next to their references."""

import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.fleet.summing import tasks as fast_passes
from headstart.fleet.summing.tasks import Call, MemoryTasks
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.standardize import Standardization

tables = pytest.importorskip("headstart.kernels.tables", reason="needs Numba")

DIMS = [1, 2, 7, 8, 31]


def some_tasks(dim, tasks=9, rounds=40, seed=0):
    """Evidence of tasks whose features have means of their own; the last feature is constant."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tasks, rounds, dim)) * rng.uniform(0.5, 2.0, dim) + rng.normal(size=dim)
    x[..., -1] = 1.0
    rewards = np.einsum("tkd,td->tk", x, rng.normal(size=(tasks, dim))) + rng.normal(size=rounds)
    return hs.Evidence.of(x, rewards)


def population(dim, seed=1):
    """A fit, some of whose directions tasks hardly differ in."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    covariance = (turn * np.geomspace(1.0, 1e-6, dim)) @ turn.T
    return Fit(rng.normal(size=dim), covariance, np.zeros((dim, dim)), 0.3)


@pytest.mark.parametrize("dim", [8, 16, 40])
@pytest.mark.parametrize("spread", [1.0, 1e8])
def test_the_sweep_inverts(dim, spread):
    rng = np.random.default_rng(dim)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    matrix = (turn * np.geomspace(1.0, spread, dim)) @ turn.T
    matrix = (matrix + matrix.T) / 2
    found = matrix.copy()
    tables.invert(found, np.zeros(dim))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=0, atol=1e-15 * spread + 1e-11)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("units", [False, True])
def test_every_fast_pass_agrees_with_its_reference(dim, units, monkeypatch):
    tasks = some_tasks(dim)
    rows = tasks.pack()
    whole = hs.Evidence(*(part.sum(0) for part in sums_of(tasks)))
    change = Standardization.of(whole, dim - 1) if units else None
    before, places = rows.copy(), np.array([3, 1, 8, 0])
    for function in fast_passes.FAST_PASSES:
        calls = [Call(function, (population(dim),), change, count) for count in (0, 10**6)]
        want, found = (call.prepare(dim)(rows, places) for call in calls)
        np.testing.assert_array_equal(rows, before)
        for ours, theirs in zip(found, want, strict=True):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * scale)
        assert found.count == len(places)


def sums_of(tasks):
    """The four sums of evidence."""
    return tasks.gram, tasks.moment, tasks.rounds, tasks.squares


def test_the_first_tasks_are_the_same_in_any_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    table = some_tasks(3, tasks=300).pack()
    order = rng.permutation(300)
    for first in (1, 64, 65, 200, 300):
        for step in (1, 64, 300):
            tasks = MemoryTasks(3, table, order, pa.nulls(300, pa.large_string()))
            tasks.step = step
            tasks.sizes = [min(step, 300 - at) for at in range(0, 300, step)]
            found = sum(tasks.map(total, first=first))
            np.testing.assert_allclose(found, table[order[:first]].sum(0), rtol=1e-12)
            np.testing.assert_array_equal(tasks.slice(0, first), table[order[:first]])


def total(rows, dim):
    return rows.sum(0)
