"""Very many tasks: a noisy one counts by its own noise, compiled or not."""

import numpy as np
import pytest

import headstart as hs
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.refits.partition_fit import (
    compiled_totals,
    partition_totals,
)
from headstart.transfer.partitions import PartitionList

pytest.importorskip("numba")


def rows_of(seed, tasks, spoiled=(), dim=3, rounds=20):
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(tasks):
        contexts = rng.normal(size=(rounds, dim))
        noise = 0.2 * rng.normal(size=rounds) * (1000.0 if number in spoiled else 1.0)
        theta = 1.0 + 0.3 * rng.normal(size=dim)
        rows.append(hs.Evidence.of(contexts, contexts @ theta + noise).pack())
    return np.stack(rows)


def test_the_compiled_pass_is_the_plain_one():
    rows, usual = rows_of(0, 40, spoiled={3, 17}), [n for n in range(40) if n not in {3, 17}]
    fit = Fit(np.ones(3), 0.1 * np.eye(3), np.zeros((3, 3)), 0.04, 64.0)
    (plain,), (found,) = (sums(rows, 3, fit) for sums in (partition_totals, compiled_totals))
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert found.energy == pytest.approx(rows[usual, -1].sum())  # the noisy two tell no noise


def test_one_of_very_many_does_not_spoil_the_fit():
    transfer = hs.EmpiricalBayes()
    clean = transfer.prior(transfer.refit_partitions(PartitionList([rows_of(1, 700)], dim=3)))
    odd = transfer.prior(transfer.refit_partitions(PartitionList([rows_of(1, 700, {500})], dim=3)))
    assert odd.noise == pytest.approx(clean.noise, rel=0.03)
    np.testing.assert_allclose(odd.mean, clean.mean, atol=0.03)
    np.testing.assert_allclose(odd.covariance, clean.covariance, atol=0.03)
