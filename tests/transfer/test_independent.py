"""Rows of the table: LinUCB and LinTS start every task from N(0, (R²/λ) I)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def exact_task(theta, gram=1.0, rounds=50):
    """A task whose least-squares estimate is θ, with the same information in every direction."""
    theta = np.asarray(theta, dtype=float)
    return hs.Evidence(gram * np.eye(len(theta)), gram * theta, rounds, gram * theta @ theta)


def random_task(rng, dim=4, rounds=15):
    return hs.Evidence.of(rng.standard_normal((rounds, dim)), rng.standard_normal(rounds))


def prior_after(transfer, evidences, dim=2, noise=None):
    state = transfer.init(dim, noise)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return transfer.prior(state)


@pytest.mark.parametrize("make", [hs.linucb, hs.lints])
def test_prior_and_posterior_by_hand(make):
    # λ = 4, R = 0.5: covariance R²/λ I = I/16. One round x = (1, 0), r = 5: B = diag(5, 4).
    bandit = make(dim=2, seed=0, lam=4.0, noise=0.5)
    assert bandit.prior.mean.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(bandit.prior.covariance, np.eye(2) / 16)
    np.testing.assert_allclose(bandit.prior.root, np.eye(2) / 2)
    task = bandit.task("a")
    task.learn(task.choose([[1.0, 0.0]]), 5.0)
    np.testing.assert_allclose(task.belief.mean, [1.0, 0.0])
    np.testing.assert_allclose(task.belief.covariance, np.diag([1 / 5, 1 / 4]) / 4)
    task.close()
    np.testing.assert_allclose(bandit.prior.root, np.eye(2) / 2)  # and the next starts the same


def test_the_rules_are_optimism_and_thompson_sampling():
    assert isinstance(hs.linucb(dim=2, seed=0).rule, hs.UCB)
    assert isinstance(hs.lints(dim=2, seed=0).rule, hs.Thompson)


@on_random_instances
@given(seeds, st.floats(0.01, 100.0), st.floats(0.1, 10.0))
def test_prior_and_posterior_from_first_principles(seed, lam, noise):
    rng = np.random.default_rng(seed)
    past, now = [random_task(rng) for _ in range(5)], random_task(rng)
    prior = prior_after(hs.Independent(lam=lam), past, dim=4, noise=noise)
    start = lam * np.eye(4)
    np.testing.assert_allclose(prior.mean, 0.0)
    np.testing.assert_allclose(prior.covariance, noise**2 * np.linalg.inv(start))
    b = start + now.gram
    belief = hs.Belief.of(prior, now)
    np.testing.assert_allclose(belief.covariance / noise**2, np.linalg.inv(b), atol=1e-10)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(b, now.moment), atol=1e-10)


def test_theory_lambda_is_noise_variance_over_the_bound_squared():
    prior = prior_after(hs.Independent("theory", bound=3.0), [], noise=0.6)
    np.testing.assert_allclose(prior.root @ prior.root.T, np.eye(2) * 9 / 0.36)
    assert prior.bias == pytest.approx(0.6)  # √λ V = R


def test_bias_term_is_root_lambda_times_the_bound():
    prior = prior_after(hs.Independent(lam=9.0, bound=2.0), [], noise=0.1)
    assert prior.bias == pytest.approx(6.0)
    assert prior.printed_bias == pytest.approx(6.0)


def test_plug_in_lambda_by_hand():
    # θ = (±1, 0), (0, ±1): mean square per dimension ½. Least squares with gram 4 and R = 1 is off
    # by R²/4 in each, which is taken off: ½ − ¼. λ = R²/¼ = 4.
    past = [exact_task(theta, gram=4.0) for theta in ([1, 0], [-1, 0], [0, 1], [0, -1])]
    prior = prior_after(hs.Independent("plug-in", ridge=1e-12), past, noise=1.0)
    np.testing.assert_allclose(prior.root, np.eye(2) / 2, rtol=1e-6)
    assert prior.mean.tolist() == [0.0, 0.0]


def test_plug_in_lambda_takes_a_direction_never_shown_to_be_like_the_rest():
    # θ = (±1, ?), gram diag(4, 0), R = 1: mean square 1 − ¼ along the first, and as much along the
    # second, whose estimates are all 0. λ = 1/¾.
    gram = np.diag([4.0, 0.0])
    past = [hs.Evidence(gram, [4.0 * sign, 0.0], 50, 4.0) for sign in (1, -1, 1, -1)]
    prior = prior_after(hs.Independent("plug-in", ridge=1e-9), past, noise=1.0)
    np.testing.assert_allclose(prior.root @ prior.root.T, 0.75 * np.eye(2), rtol=1e-6)


def test_plug_in_lambda_is_one_before_any_task():
    prior = prior_after(hs.Independent("plug-in"), [], noise=0.3)
    assert prior.root.tolist() == np.eye(2).tolist()


def test_plug_in_lambda_finds_the_tasks_spread():
    rng = np.random.default_rng(0)
    past = []
    for _ in range(300):
        contexts = rng.standard_normal((40, 5))
        rewards = contexts @ (0.4 * rng.standard_normal(5)) + 0.5 * rng.standard_normal(40)
        past.append(hs.Evidence.of(contexts, rewards))
    prior = prior_after(hs.Independent("plug-in"), past, dim=5)
    assert prior.noise == pytest.approx(0.5, rel=0.03)
    assert prior.root[0, 0] ** -2 == pytest.approx(0.5**2 / 0.4**2, rel=0.1)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.Independent(0.0), "lam"),
        (lambda: hs.Independent(-1.0), "lam"),
        (lambda: hs.Independent(np.nan), "lam"),
        (lambda: hs.Independent("auto"), "lam"),
        (lambda: hs.Independent(None), "lam"),
        (lambda: hs.Independent(bound=0.0), "bound"),
        (lambda: hs.Independent(bound=np.inf), "bound"),
        (lambda: hs.Independent(ridge=-1.0), "ridge"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
