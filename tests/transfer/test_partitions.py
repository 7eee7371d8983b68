"""Very many tasks at once give what one after the other gives."""

import itertools

import numpy as np
import pytest

import headstart as hs
from headstart.records import flatten
from headstart.transfer.partitions import PartitionList


def population(count=300, dim=4, seed=0, rounds=(1, 30)):
    rng = np.random.default_rng(seed)
    plane = rng.normal(size=(2, dim))
    found = []
    for _ in range(count):
        n = int(rng.integers(*rounds))
        x = rng.normal(size=(n, dim))
        theta = 0.5 + rng.normal(size=2) @ plane
        found.append(hs.Evidence.of(x, x @ theta + 0.3 * rng.normal(size=n)))
    return found


def in_partitions(tasks, many):
    edges = np.linspace(0, len(tasks), many + 1).astype(int)
    rows = np.array([task.pack() for task in tasks])
    return PartitionList([rows[a:b] for a, b in itertools.pairwise(edges)], tasks[0].dim)


@pytest.mark.parametrize("noise", [None, 0.5])
@pytest.mark.parametrize(
    "transfer",
    [
        hs.Independent(),
        hs.Independent("plug-in"),
        hs.Bias(),
        hs.Bias("pooled", ridge=1e-12),
        hs.Subspace(rank=2),
        hs.Subspace(pca="exact", ridge=1e-3),
        hs.Subspace(pca="ccipca"),
        hs.Gaussian(forced=False),
    ],
    ids=repr,
)
def test_sums_of_many_tasks_are_the_folds_of_each(transfer, noise):
    tasks = population(60 if transfer == hs.Subspace(pca="ccipca") else 300)
    one_by_one = transfer.refit(tasks, noise)
    for many in (1, 7):
        together = transfer.refit_partitions(in_partitions(tasks, many), noise)
        found, want = flatten(together), flatten(one_by_one)
        assert found.keys() == want.keys()
        for name, array in found.items():
            scale = np.abs(want[name]).max(initial=1e-300)
            np.testing.assert_allclose(array, want[name], rtol=0, atol=1e-9 * scale, err_msg=name)
        prior, wanted = transfer.prior(together), transfer.prior(one_by_one)
        np.testing.assert_allclose(prior.covariance, wanted.covariance, rtol=1e-9, atol=1e-9)
        assert prior.noise == pytest.approx(wanted.noise, rel=1e-9)


def test_no_task_is_refused():
    with pytest.raises(hs.errors.InputError, match="at least one task"):
        hs.Bias().refit_partitions(PartitionList([], 2))
