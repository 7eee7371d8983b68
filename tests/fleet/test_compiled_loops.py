"""The compiled loops over tasks, next to their references."""

import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.fleet.summing.tasks import MemoryTasks
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.population import start_low_rank
from headstart.transfer.empirical_bayes.refits.partition_fit import (
    compiled_totals,
    partition_totals,
)

loops = pytest.importorskip("headstart.kernels.task_totals", reason="needs Numba")

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


@pytest.mark.parametrize("dim", [1, 2, 8, 13, 40])
@pytest.mark.parametrize("spread", [1.0, 1e8])
def test_the_sweep_inverts(dim, spread):
    rng = np.random.default_rng(dim)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    matrix = (turn * np.geomspace(1.0, spread, dim)) @ turn.T
    matrix = (matrix + matrix.T) / 2
    found = loops.padded(matrix, 2)
    loops.invert(found, dim, np.zeros(len(found)), np.zeros(len(found)))
    want = np.linalg.inv(matrix)
    np.testing.assert_allclose(found[:dim, :dim], want, rtol=0, atol=1e-15 * spread + 1e-11)


def low_rank_population(fit, columns):
    """A low-rank population with so many columns in use of those that it has room for."""
    dim, rng = len(fit.mean), np.random.default_rng(2)
    low = start_low_rank(fit, 200.0)
    used = np.arange(low.loadings.shape[-1]) < columns
    sums = rng.normal(size=(dim, dim))
    return low.replace(
        loadings=low.loadings * used,
        relevance=low.relevance * used,
        residual=0.2,
        information=100.0 * sums @ sums.T,
        error=0.01 * sums.T @ sums,
    )


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("columns", [0, 1, 3, 16])
def test_compiled_totals_agree_with_their_reference(dim, columns):
    rows = some_tasks(dim).pack()
    rows[3, -1] *= 1e4  # a task much noisier than the others
    rows[5] = 0.0
    before, fit = rows.copy(), population(dim)
    populations = (fit, low_rank_population(fit, columns), True) if columns else (fit,)
    found, want = (
        compiled_totals(rows, dim, *populations),
        partition_totals(rows, dim, *populations),
    )
    np.testing.assert_array_equal(rows, before)
    assert len(found) == len(want) == 1 + (columns > 0)
    for ours, theirs in zip(found, want, strict=True):
        for name, one, other in zip(theirs._fields, ours, theirs, strict=True):
            assert np.shape(one) == np.shape(other)
            scale = np.abs(other).max()
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * scale, err_msg=name)


def test_a_task_that_spans_many_orders_of_magnitude_is_left_to_the_reference():
    rows, fit = some_tasks(3).pack(), population(3)
    rows[4, :6] *= 1e25
    found, want = compiled_totals(rows, 3, fit), partition_totals(rows, 3, fit)
    np.testing.assert_array_equal(found[0].known, want[0].known)
    assert np.isfinite(want[0].known).all()


def test_the_first_tasks_are_the_same_in_any_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    table = some_tasks(3, tasks=300).pack()
    order = rng.permutation(300)
    for first in (1, 64, 65, 200, 300):
        for step in (1, 64, 300):
            tasks = MemoryTasks(3, pa.nulls(300, pa.large_string()), table, order)
            tasks.step = step
            tasks.sizes = [min(step, 300 - at) for at in range(0, 300, step)]
            found = sum(tasks.map(total, first=first))
            np.testing.assert_allclose(found, table[order[:first]].sum(0), rtol=1e-12)
            np.testing.assert_array_equal(tasks.slice(0, first), table[order[:first]])


def total(rows, dim):
    return rows.sum(0)
