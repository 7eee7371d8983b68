"""Very many tasks at once give what one after the other gives."""

import itertools

import numpy as np
import pytest

import headstart as hs
from headstart.records import flatten
from headstart.transfer.empirical_bayes.refits import passes
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


class CountedPartitions(PartitionList):
    """Partitions that count the passes over all of them."""

    passes = 0

    def map(self, function, *arguments, first=None):
        self.passes += first is None
        return super().map(function, *arguments, first=first)


@pytest.fixture
def few_tasks(monkeypatch):
    """Fits look at 128 tasks before they look at all, and at some more afterwards."""
    monkeypatch.setattr(passes, "FIRST_FIT_TASKS", 64)
    monkeypatch.setattr(passes, "SUBSET_TASKS", 128)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture(2)], ids=repr)
def test_all_tasks_are_looked_at_once(transfer, few_tasks):
    rows = np.array([task.pack() for task in population(1000)])
    partitions = CountedPartitions(np.array_split(rows, 3), dim=4)
    transfer.refit_partitions(partitions)
    assert partitions.passes == 1


@pytest.mark.parametrize("rounds", [(3, 6), (1, 30), (60, 80)], ids=str)
def test_looking_at_all_tasks_once_is_as_good_as_always(rounds, few_tasks, monkeypatch):
    tasks = population(3000, dim=6, rounds=rounds)
    transfer, fitted, new = hs.EmpiricalBayes(), tasks[:1500], tasks[1500:]

    def score():
        prior = transfer.prior(transfer.refit_partitions(in_partitions(fitted, 3)))
        return np.mean([log_density(prior, task) for task in new])

    once = score()
    monkeypatch.setattr(passes, "SUBSET_TASKS", 1500)
    always = score()
    monkeypatch.setattr(passes, "FURTHER_STEPS", [])
    monkeypatch.setattr(passes, "SUBSET_TASKS", 128)
    few = score()
    assert once > always - 1e-3 * abs(always)
    assert once > few


def log_density(prior, task):
    """The log density of a task's rewards under a prior, with one noise for all tasks."""
    variance, half = prior.noise**2, prior.noise * prior.root
    inner = np.eye(len(half)) + half.T @ task.gram @ half / variance
    pulled = task.gram @ prior.mean
    surprise = half.T @ (task.moment - pulled) / variance
    square = task.squares - prior.mean @ (2 * task.moment - pulled)
    gain = surprise @ np.linalg.solve(inner, surprise) - np.linalg.slogdet(inner)[1]
    return 0.5 * (gain - square / variance - task.rounds * np.log(2 * np.pi * variance))
