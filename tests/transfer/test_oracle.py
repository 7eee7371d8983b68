"""Rows of the table: the projection oracle and the Bayes oracle are told the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def random_task(rng, dim, rounds=9):
    return hs.Evidence.of(rng.standard_normal((rounds, dim)), rng.standard_normal(rounds))


def prior_of(oracle, dim, noise=None, evidences=()):
    state = oracle.init(dim, noise)
    for evidence in evidences:
        state = oracle.fold(state, evidence)
    return oracle.prior(state)


def assert_posterior(prior, start, centre, now):
    """Belief under the prior against B₀ inverted densely."""
    b = start + now.gram
    belief = hs.Belief.of(prior, now)
    np.testing.assert_allclose(belief.covariance / belief.noise**2, np.linalg.inv(b), atol=1e-8)
    mean = np.linalg.solve(b, start @ centre + now.moment)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-8)


def test_projection_oracle_by_hand():
    # The line along (0.6, 0.8); μ = (2, 1) = 2·(0.6, 0.8) + (0.8, −0.6), so P⊥μ = (0.8, −0.6).
    oracle = hs.Oracle.subspace([2.0, 1.0], [[0.6], [0.8]], lam1=100.0, lam2=4.0)
    prior = prior_of(oracle, 2, noise=0.5)
    inside = np.array([[0.36, 0.48], [0.48, 0.64]])
    np.testing.assert_allclose(prior.mean, [0.8, -0.6], atol=1e-12)
    np.testing.assert_allclose(prior.root, 0.1 * (np.eye(2) - inside) + 0.5 * inside, atol=1e-12)


def test_bayes_oracle_by_hand():
    prior = prior_of(hs.Oracle.gaussian([2.0, 1.0], [[4.0, 0.0], [0.0, 9.0]]), 2, noise=0.5)
    np.testing.assert_allclose(prior.mean, [2.0, 1.0])
    np.testing.assert_allclose(prior.root, [[4.0, 0.0], [0.0, 6.0]], atol=1e-12)
    np.testing.assert_allclose(prior.covariance, [[4.0, 0.0], [0.0, 9.0]], atol=1e-12)


@on_random_instances
@given(seeds, st.integers(0, 4))
def test_projection_oracle_from_first_principles(seed, rank):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((4, 4)))[0][:, :rank]
    mean = rng.standard_normal(4)
    inside = basis @ basis.T
    outside = np.eye(4) - inside
    start = 30.0 * outside + 0.2 * inside
    prior = prior_of(hs.Oracle.subspace(mean, basis, lam1=30.0, lam2=0.2), 4, noise=0.7)
    np.testing.assert_allclose(prior.mean, outside @ mean, atol=1e-12)
    np.testing.assert_allclose(prior.covariance, 0.49 * np.linalg.inv(start), atol=1e-10)
    assert_posterior(prior, start, outside @ mean, random_task(rng, 4))


@on_random_instances
@given(seeds, st.floats(0.05, 5.0))
def test_bayes_oracle_from_first_principles(seed, noise):
    rng = np.random.default_rng(seed)
    half, mean = rng.standard_normal((4, 4)), rng.standard_normal(4)
    sigma = half @ half.T + 0.1 * np.eye(4)
    prior = prior_of(hs.Oracle.gaussian(mean, sigma), 4, noise=noise)
    np.testing.assert_allclose(prior.mean, mean)
    np.testing.assert_allclose(prior.covariance, sigma, rtol=1e-8, atol=1e-8)
    assert_posterior(prior, noise**2 * np.linalg.inv(sigma), mean, random_task(rng, 4))


def test_with_the_mean_off_the_plane_the_two_are_one():
    """λ = R²/variance makes the projection oracle the Bayes oracle (spec §8)."""
    rng, noise = np.random.default_rng(0), 0.1
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    basis, mean = turn[:, :2], 0.5 * turn[:, 3]
    inside = basis @ basis.T
    sigma = 0.25**2 * inside + 0.02**2 * (np.eye(5) - inside)
    projected = hs.Oracle.subspace(mean, basis, lam1=noise**2 / 0.02**2, lam2=noise**2 / 0.25**2)
    left, right = prior_of(projected, 5, noise), prior_of(hs.Oracle.gaussian(mean, sigma), 5, noise)
    np.testing.assert_allclose(left.mean, right.mean, atol=1e-12)
    np.testing.assert_allclose(left.covariance, right.covariance, atol=1e-12)


def test_a_batch_of_truths_is_a_loop():
    rng = np.random.default_rng(2)
    means, half = rng.standard_normal((3, 4)), rng.standard_normal((3, 4, 4))
    sigmas = half @ half.swapaxes(-1, -2)
    bases = np.linalg.qr(rng.standard_normal((3, 4, 4)))[0][..., :2]
    tasks = hs.Evidence.of(rng.standard_normal((3, 30, 4)), rng.standard_normal((3, 30)))
    for make, truths in ((hs.Oracle.gaussian, sigmas), (hs.Oracle.subspace, bases)):
        oracle = make(means, truths)
        together = oracle.prior(oracle.fold(oracle.init(4, batch=(3,)), tasks))
        for at in range(3):
            task = hs.Evidence(
                tasks.gram[at], tasks.moment[at], tasks.rounds[at], tasks.squares[at]
            )
            alone = prior_of(make(means[at], truths[at]), 4, evidences=[task])
            np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-12)
            np.testing.assert_allclose(together.covariance[at], alone.covariance, atol=1e-10)
            assert together.noise[at] == pytest.approx(alone.noise)


def test_tasks_teach_it_nothing_but_the_noise():
    rng = np.random.default_rng(1)
    contexts = rng.standard_normal((400, 2))
    evidence = hs.Evidence.of(contexts, contexts @ [3.0, 3.0] + 0.2 * rng.standard_normal(400))
    oracle = hs.Oracle.gaussian([0.0, 1.0], np.eye(2))
    after = prior_of(oracle, 2, evidences=[evidence])
    assert after.mean.tolist() == [0.0, 1.0]
    np.testing.assert_allclose(after.covariance, np.eye(2))
    assert after.noise == pytest.approx(0.2, rel=0.1)


def test_theory_bias_by_hand():
    oracle = hs.Oracle.subspace(
        [0.0, 1.0], [[1.0], [0.0]], lam1=9.0, lam2=4.0, bound=2.0, residual=0.5
    )
    # √(λ1 W² + λ2 V²), and as printed √λ2 V + (λ1/√λ2) W.
    prior = prior_of(oracle, 2, noise=1.0)
    assert prior.bias == pytest.approx(np.sqrt(9 * 0.25 + 4 * 4))
    assert prior.printed_bias == pytest.approx(2 * 2 + 9 / 2 * 0.5)


def test_theory_bias_is_the_most_that_a_task_can_be_off_by_unless_told():
    # P⊥μ = (0, 1), V = 2: W ≤ 3. As printed W is 2V, as for P-LinUCB.
    oracle = hs.Oracle.subspace([5.0, 1.0], [[1.0], [0.0]], lam1=9.0, lam2=4.0, bound=2.0)
    prior = prior_of(oracle, 2, noise=1.0)
    assert prior.bias == pytest.approx(np.sqrt(9 * 9 + 4 * 4))
    assert prior.printed_bias == pytest.approx(2 * 2 + 9 / 2 * 4)
    default = hs.Oracle.subspace([5.0, 1.0], [[1.0], [0.0]])
    assert prior_of(default, 2, noise=1.0).printed_bias == pytest.approx(201.0)
    assert prior_of(hs.Oracle.gaussian([0.0], [[1.0]]), 1).bias == np.inf


def test_theory_bias_has_no_term_for_an_empty_side():
    full = hs.Oracle.subspace([0.0, 1.0], np.eye(2), lam1=9.0, lam2=4.0, bound=2.0, residual=0.5)
    none = hs.Oracle.subspace([0.0, 1.0], np.empty((2, 0)), lam1=9.0, residual=0.5)
    assert prior_of(full, 2, noise=1.0).bias == pytest.approx(4.0)
    assert prior_of(none, 2, noise=1.0).bias == pytest.approx(1.5)


def test_named_oracles_are_these_transfers_with_optimism():
    bandit = hs.projection_oracle(
        dim=2, seed=0, mean=[2.0, 1.0], basis=[[0.6], [0.8]], lam2=4.0, noise=0.5
    )
    np.testing.assert_allclose(bandit.prior.mean, [0.8, -0.6], atol=1e-12)
    assert isinstance(bandit.rule, hs.UCB)
    bandit = hs.bayes_oracle(dim=2, seed=0, mean=[2.0, 1.0], covariance=np.eye(2), noise=0.5)
    np.testing.assert_allclose(bandit.prior.root, 2 * np.eye(2))
    assert bandit.rule == hs.UCB()


def test_later_writes_of_the_caller_do_not_leak_in():
    mean, sigma, basis = np.array([1.0, 2.0]), np.eye(2), np.array([[1.0], [0.0]])
    oracles = hs.Oracle.gaussian(mean, sigma), hs.Oracle.subspace(mean, basis)
    before = [prior_of(oracle, 2) for oracle in oracles]
    mean[:] = 9.0
    sigma[:] = 0.25 * np.eye(2)
    basis[:] = [[0.0], [1.0]]
    assert [prior_of(oracle, 2) for oracle in oracles] == before


def test_arrays_cannot_be_written_to():
    oracle = hs.Oracle.gaussian([1.0, 2.0], np.eye(2))
    for array in (oracle.mean, oracle.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.Oracle.gaussian(1.0, np.eye(1)), "mean"),
        (lambda: hs.Oracle.gaussian([[0.0, 1.0]], np.eye(2)), "covariance"),
        (lambda: hs.Oracle.gaussian([0.0, np.nan], np.eye(2)), "mean"),
        (lambda: hs.Oracle.gaussian([0.0, 1.0], np.eye(3)), "covariance"),
        (lambda: hs.Oracle.gaussian([0.0, 1.0], [[1.0, 0.5], [0.0, 1.0]]), "covariance"),
        (lambda: hs.Oracle.gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, -1.0]]), "covariance"),
        (lambda: hs.Oracle.gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, np.inf]]), "covariance"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[2.0], [0.0]]), "basis"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [1.0, 0.0]), "basis"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[1.0], [0.0], [0.0]]), "basis"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[1.0], [0.0]], lam1=-1.0), "lam1"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[1.0], [0.0]], lam2=0.0), "lam2"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[1.0], [0.0]], bound=0.0), "bound"),
        (lambda: hs.Oracle.subspace([0.0, 1.0], [[1.0], [0.0]], residual=-1.0), "residual"),
        (lambda: hs.Oracle([0.0, 1.0]), "covariance"),
        (lambda: hs.Oracle([0.0, 1.0], np.eye(2), np.eye(2)), "covariance"),
        (lambda: hs.Oracle.gaussian([0.0, 1.0], np.eye(2)).init(3), "dim"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
