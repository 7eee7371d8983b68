"""The compiled loops, next to NumPy: sums of rows, inverses, and passes over tasks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.fleet.summing.passes import Call
from headstart.fleet.summing.shelf import Shelf
from headstart.fleet.summing.standardize import Units
from headstart.transfer.empirical_bayes import passes
from headstart.transfer.empirical_bayes.population import Fit

pytest.importorskip("numba")
loops = pytest.importorskip("headstart.fleet.summing.compiled")

DIMS = [1, 2, 7, 8, 9, 16, 31, 33]


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


@given(
    dim=st.sampled_from(DIMS),
    count=st.integers(0, 200),
    tasks=st.integers(1, 6),
    weighted=st.booleans(),
    single=st.booleans(),
    more=st.sampled_from([0, 8, 24]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_rows_go_to_the_sums_of_their_tasks(dim, count, tasks, weighted, single, more, seed):
    rng = np.random.default_rng(seed)
    kind = np.float32 if single else np.float64
    features = np.zeros((count, loops.padded(dim) + more), kind)
    features[:, :dim] = rng.normal(size=(count, dim))
    rewards, owner = rng.normal(size=count), rng.integers(0, tasks, count)
    weights = rng.uniform(0.1, 3.0, count) if weighted else np.empty(0)
    start = rng.normal(size=(tasks, hs.Evidence.zero(dim).pack().size))
    sums = start.copy()
    order, starts = loops.grouped(owner, tasks)
    loops.accumulate(order, starts, np.arange(tasks), features, dim, rewards, weights, sums)
    x = features[:, :dim].astype(np.float64)
    for task in range(tasks):
        mine = owner == task
        w = weights[mine] if weighted else np.ones(mine.sum())
        heavy = w[:, None] * x[mine]
        pull = w * rewards[mine]
        gram = (heavy.T @ x[mine])[np.triu_indices(dim)]
        want = np.concatenate([gram, pull @ x[mine], [w.sum(), pull @ rewards[mine]]])
        np.testing.assert_allclose(sums[task], start[task] + want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dim", [8, 16, 40])
@pytest.mark.parametrize("spread", [1.0, 1e8])
def test_the_sweep_inverts(dim, spread):
    rng = np.random.default_rng(dim)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    matrix = (turn * np.geomspace(1.0, spread, dim)) @ turn.T
    matrix = (matrix + matrix.T) / 2
    found = matrix.copy()
    loops.invert(found, np.zeros((2, 8, dim)), np.zeros((3, 8, 8)))
    np.testing.assert_allclose(-found, np.linalg.inv(matrix), rtol=0, atol=1e-15 * spread + 1e-11)
    np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("stored", ["memory", "disk"])
def test_compiled_and_plain_passes_agree(dim, units, stored, tmp_path):
    tasks = some_tasks(dim)
    rows = tasks.pack()
    fit = population(dim)
    change = Units.of(hs.Evidence(*(part.sum(0) for part in parts(tasks))), dim - 1)
    change = change if units else None
    names = {str(task): task for task in range(len(rows))}
    shelf = Shelf.in_memory(dim, names, rows)
    if stored == "disk":
        shelf = Shelf.on_disk(dim, list(shelf), tmp_path)
    before = rows.copy()
    found = passes.sum_totals(
        map(Call(passes.partition_totals, (fit,), change, 10**6).of(shelf), range(64), [99] * 64)
    )
    want = passes.sum_totals(
        map(Call(passes.partition_totals, (fit,), change, 0).of(shelf), range(64), [99] * 64)
    )
    np.testing.assert_array_equal(rows, before)
    for ours, theirs in zip(found, want, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * scale)
    assert found.count == len(rows)


def parts(tasks):
    """The four sums of evidence."""
    return tasks.gram, tasks.moment, tasks.rounds, tasks.squares


def test_a_pass_over_no_task_is_nothing():
    shelf = Shelf.in_memory(3, {}, np.zeros((0, hs.Evidence.zero(3).pack().size)))
    assert Call(passes.partition_totals, (population(3),), None, 10**6).of(shelf)(0, 0) is None
