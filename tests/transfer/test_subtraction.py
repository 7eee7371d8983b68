"""Tasks of the past that are taken out again, by another fit than they were added by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.transfer.empirical_bayes import state as kept_state
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.tasks import Tasks


def task_of(rng, scale, dim, rounds):
    theta = scale * (1.0 + rng.standard_normal(dim))
    contexts = rng.standard_normal((rounds, dim))
    noise = 0.1 * scale * rng.standard_normal(rounds)
    return hs.Evidence.of(contexts, contexts @ theta + noise)


def assert_sums_of_tasks(past):
    """Some tasks have these sums."""
    assert past.count >= 0
    if past.count == 0:
        assert not past.first.any()
        assert not past.second.any()
        assert past.precision == past.logs == 0
        return
    moments = np.block([[past.count, past.first], [past.first[:, None], past.second]])
    size = np.sqrt(np.diagonal(moments))
    assert np.linalg.eigvalsh(moments / np.outer(size, size)).min() > -1e-9
    assert past.precision > 0
    assert past.logs + past.count * np.log(past.precision / past.count) > -1e-7 * past.count


@pytest.mark.parametrize("factor", [30.0, 1 / 30.0])
@pytest.mark.parametrize(
    ("kept", "number", "dim", "low_rank"),
    [(4, 20, 3, True), (4, 20, 3, False), (256, 300, 2, False)],
)
def test_deleting_tasks_after_a_change_leaves_a_sound_prior(
    monkeypatch, kept, number, dim, low_rank, factor
):
    monkeypatch.setattr(kept_state, "MIN_KEPT_TASKS", min(kept, 32))
    monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", kept)
    rng = np.random.default_rng(2)
    transfer = hs.EmpiricalBayes(low_rank=low_rank)
    state = transfer.init(dim)
    scales = np.repeat([1.0, factor], number)
    tasks = [task_of(rng, scale, dim, 3 * dim) for scale in scales]
    for evidence in tasks:
        state = transfer.fold(state, evidence)
    for at in rng.permutation(2 * number)[: int(1.9 * number)]:
        state = transfer.fold(state, tasks[at], -1.0)
        assert_sums_of_tasks(state.past)
        prior = transfer.prior(state)
        spread = np.sqrt(np.diag(prior.covariance))
        largest, least = max(scales), min(scales)
        assert (np.abs(prior.mean) < 5.0 * largest).all()
        assert (spread < 5.0 * largest).all()
        assert 1e-2 * least < prior.noise < largest


def fit_of(rng, dim, size):
    half = size * rng.standard_normal((dim, dim))
    fit = Fit.isotropic(size * rng.standard_normal(dim), 0.1 * size**2, size**2 * rng.random())
    return fit.replace(covariance=fit.covariance + half @ half.T, dof=float(rng.choice([2, 99])))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dim=st.integers(1, 4),
    number=st.integers(1, 9),
    sizes=st.lists(st.sampled_from([1e-12, 0.03, 1.0, 30.0, 1e12]), min_size=2, max_size=2),
)
def test_what_is_left_are_sums_over_tasks(seed, dim, number, sizes):
    rng = np.random.default_rng(seed)
    early, late = (fit_of(rng, dim, size) for size in sizes)
    tasks = [
        Tasks.of(task_of(rng, rng.choice(sizes), dim, int(rng.integers(1, 9))), rng.uniform(0.1, 1))
        for _ in range(number)
    ]
    past = Past.zero(dim)
    for task in tasks:
        past = past.add(early, task)
    for at in rng.permutation(number):
        past = past.subtract(late, tasks[at])
        assert_sums_of_tasks(past)
    assert past.count == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_several_pasts_at_once_are_as_each_alone(seed):
    rng = np.random.default_rng(seed)
    fit, other = fit_of(rng, 2, 1.0), fit_of(rng, 2, 5.0)
    tasks = [Tasks.of(task_of(rng, scale, 2, 6)) for scale in (1.0, 20.0, 3.0)]
    alone = [Past.zero(2).add(fit, task.join(*tasks)) for task in tasks[:2]]
    joint = Past.unchecked(
        *(np.stack([getattr(past, name) for past in alone]) for name in Past.__slots__)
    )
    both = joint.subtract(other.repeat(2), tasks[2])
    for at, past in enumerate(alone):
        expected = past.subtract(other, tasks[2])
        for name in Past.__slots__:
            np.testing.assert_allclose(
                getattr(both, name)[at], getattr(expected, name), rtol=1e-6, atol=1e-9
            )


@pytest.mark.parametrize("low_rank", [True, False])
def test_what_a_fit_has_not_seen_is_not_subtracted_from_it(low_rank):
    rng = np.random.default_rng(4)
    transfer = hs.EmpiricalBayes(low_rank=low_rank)
    tasks = [task_of(rng, 1.0, 3, 9) for _ in range(42)]
    state = transfer.init(3)
    for task in tasks[:40]:
        state = transfer.fold(state, task)
    state = transfer.update_fit(state)

    def assert_fits_agree(one, other, rtol=1e-6):
        for fit, want in ((one.fit, other.fit), (one.low_rank, other.low_rank)):
            np.testing.assert_allclose(fit.mean, want.mean, rtol=rtol, atol=rtol)
            np.testing.assert_allclose(fit.covariance, want.covariance, rtol=rtol, atol=rtol)

    # The next task is not fitted at once, so that there is nothing of it to take out.
    newer = transfer.fold(state, tasks[40])
    assert newer.fit == state.fit
    assert_fits_agree(transfer.fold(newer, tasks[40], -1.0), state)
    # A task that is taken out and added again is in the fit, the newer one still is not.
    without = transfer.fold(newer, tasks[7], -1.0)
    again = transfer.fold(without, tasks[7])
    assert not np.allclose(without.fit.covariance, newer.fit.covariance, rtol=1e-3)
    assert_fits_agree(transfer.fold(again, tasks[40], -1.0), again)
    assert_fits_agree(transfer.fold(again, tasks[7], -1.0), without, rtol=1e-2)
