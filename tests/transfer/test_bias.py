"""The row of the table for B-OFUL: N(h, (R²/λ) I), h a mean of estimates or one pooled ridge."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)
CROSS = ([1, 0], [-1, 0], [0, 1], [0, -1])


def exact_task(theta, gram=1.0, rounds=50):
    """A task whose least-squares estimate is θ, with the same information in every direction."""
    theta = np.asarray(theta, dtype=float)
    return hs.Evidence(gram * np.eye(len(theta)), gram * theta, rounds, gram * theta @ theta)


def random_task(rng, dim=4):
    rounds = int(rng.integers(1, 20))
    return hs.Evidence.of(rng.standard_normal((rounds, dim)), rng.standard_normal(rounds))


def prior_after(transfer, evidences, dim=2, noise=None):
    state = transfer.init(dim, noise)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return transfer.prior(state)


def two_tasks():
    """x = (1, 0), r = 4 once; x = (1, 0), r = 1 three times and x = (0, 1), r = 2 once."""
    return [
        hs.Evidence.of([[1.0, 0.0]], [4.0]),
        hs.Evidence.of([[1.0, 0.0]] * 3 + [[0.0, 1.0]], [1.0, 1.0, 1.0, 2.0]),
    ]


def test_average_by_hand():
    # Ridge with λ = 1: (4/2, 0) and (3/4, 2/2); their mean is (11/8, 1/2).
    prior = prior_after(hs.Bias(lam=4.0, ridge=1.0), two_tasks(), noise=0.5)
    np.testing.assert_allclose(prior.mean, [11 / 8, 1 / 2])
    np.testing.assert_allclose(prior.root, np.eye(2) / 2)
    np.testing.assert_allclose(prior.covariance, np.eye(2) / 16)


def test_pooled_by_hand():
    # gram = diag(4, 1), moment = (7, 2), λ = 1: (7/5, 2/2).
    prior = prior_after(hs.Bias("pooled", lam=4.0, ridge=1.0), two_tasks(), noise=0.5)
    np.testing.assert_allclose(prior.mean, [7 / 5, 1.0])
    np.testing.assert_allclose(prior.root, np.eye(2) / 2)


@on_random_instances
@given(seeds, st.sampled_from(["average", "pooled"]), st.floats(0.01, 100.0))
def test_prior_and_posterior_from_first_principles(seed, method, lam):
    rng = np.random.default_rng(seed)
    past, now = [random_task(rng) for _ in range(6)], random_task(rng)
    ridge, eye = 0.3, np.eye(4)
    if method == "average":
        h = np.mean([np.linalg.inv(ridge * eye + e.gram) @ e.moment for e in past], axis=0)
    else:
        gram, moment = sum(e.gram for e in past), sum(e.moment for e in past)
        h = np.linalg.inv(ridge * eye + gram) @ moment
    prior = prior_after(hs.Bias(method, lam=lam, ridge=ridge), past, dim=4, noise=0.7)
    start = lam * eye
    np.testing.assert_allclose(prior.mean, h, atol=1e-9)
    np.testing.assert_allclose(prior.covariance, 0.49 * np.linalg.inv(start), rtol=1e-9)
    b = start + now.gram
    belief = hs.Belief.of(prior, now)
    np.testing.assert_allclose(belief.covariance / 0.49, np.linalg.inv(b), atol=1e-9)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(b, start @ h + now.moment), atol=1e-8)


def test_bias_oful_is_this_transfer_with_optimism():
    bandit = hs.bias_oful(dim=2, seed=0, method="pooled", lam=2.0, radius=0.7)
    assert bandit.transfer == hs.Bias("pooled", lam=2.0)
    assert bandit.rule == hs.UCB(0.7)
    printed = hs.bias_oful(dim=2, seed=0, noise=0.1, paper=True)
    assert (printed.transfer.lam, printed.rule.radius) == ("theory", "theory")


def test_ridge_is_one_over_horizon_times_bound_squared_unless_given():
    tasks = two_tasks()
    default = prior_after(hs.Bias(lam=1.0, horizon=100, bound=2.0), tasks)
    given_ = prior_after(hs.Bias(lam=1.0, ridge=1 / 400), tasks)
    np.testing.assert_allclose(default.mean, given_.mean)


def test_plug_in_lambda_by_hand():
    # Four estimates (±1, 0), (0, ±1): variance per dimension, unbiased, is (4/2)/3 = 2/3. Gram 1
    # and R = ½ make each off by ¼ per dimension, which is taken off: 5/12. The mean itself is
    # uncertain by (2/3)/4 = 1/6. λ = R²/(7/12) = 3/7.
    past = [exact_task(theta) for theta in CROSS]
    prior = prior_after(hs.Bias(ridge=1e-12), past, noise=0.5)
    np.testing.assert_allclose(prior.root @ prior.root.T, np.eye(2) * 7 / 3, rtol=1e-6)
    np.testing.assert_allclose(prior.mean, 0.0, atol=1e-12)


def test_plug_in_lambda_survives_noise_larger_than_the_spread():
    # With R = 1 the correction (1) exceeds the variance (2/3): what is left is what the correction
    # is uncertain by, 2/3 · √(2/(2·3)), and the mean's 1/6.
    past = [exact_task(theta) for theta in CROSS]
    prior = prior_after(hs.Bias(ridge=1e-12), past, noise=1.0)
    variance = 2 / 3 * math.sqrt(1 / 3) + 1 / 6
    np.testing.assert_allclose(prior.root @ prior.root.T, np.eye(2) * variance, rtol=1e-6)


def test_theory_lambda_by_hand():
    # λ = R²/(n·Var) with Var = d · 7/12 the total variance: ¼/(100 · 7/6).
    past = [exact_task(theta) for theta in CROSS]
    prior = prior_after(hs.Bias(lam="theory", horizon=100, ridge=1e-12), past, noise=0.5)
    lam = 0.25 / (100 * 7 / 6)
    np.testing.assert_allclose(prior.root @ prior.root.T, np.eye(2) / lam, rtol=1e-6)


def test_plug_in_lambda_finds_the_tasks_spread():
    rng = np.random.default_rng(0)
    centre, past = rng.standard_normal(5), []
    for _ in range(300):
        contexts = rng.standard_normal((40, 5))
        theta = centre + 0.2 * rng.standard_normal(5)
        past.append(hs.Evidence.of(contexts, contexts @ theta + 0.5 * rng.standard_normal(40)))
    for method in ("average", "pooled"):
        prior = prior_after(hs.Bias(method), past, dim=5)
        assert prior.noise == pytest.approx(0.5, rel=0.03)
        np.testing.assert_allclose(prior.mean, centre, atol=0.06)
        assert prior.root[0, 0] ** -2 == pytest.approx(0.5**2 / 0.2**2, rel=0.1)


def test_before_two_tasks_plug_in_knows_only_size():
    start = prior_after(hs.Bias(), [], noise=0.5)
    assert (start.mean.tolist(), start.root.tolist()) == ([0.0, 0.0], np.eye(2).tolist())
    # One task θ = (2, 0), gram 1: mean square 2, less R² = ¼, never below 2·√(2/2): still 2.
    one = prior_after(hs.Bias(ridge=1e-12), [exact_task([2, 0])], noise=0.5)
    assert one.mean.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(one.root @ one.root.T, np.eye(2) * 2 / 0.25, rtol=1e-6)


def test_short_tasks_do_not_count_when_told():
    short, long = exact_task([5, 5], rounds=3), exact_task([1, 0], rounds=9)
    prior = prior_after(hs.Bias(lam=1.0, ridge=1e-12, min_rounds=5), [short, long])
    np.testing.assert_allclose(prior.mean, [1.0, 0.0], atol=1e-9)
    pooled = prior_after(hs.Bias("pooled", lam=1.0, ridge=1e-12, min_rounds=5), [short, long])
    np.testing.assert_allclose(pooled.mean, [1.0, 0.0], atol=1e-9)


def test_bias_term_is_the_most_that_a_task_can_be_off_by():
    # The mean of (3, 4) twice is at distance 5 from 0: a task of length V = 2 on the other side
    # of 0 is at distance 7, and √λ = 3.
    past = [exact_task([3.0, 4.0])] * 2
    prior = prior_after(hs.Bias(lam=9.0, ridge=1e-12, bound=2.0), past, noise=0.5)
    assert prior.bias == pytest.approx(21.0, rel=1e-6)
    worst = np.linalg.solve(prior.root, [-1.2, -1.6] - prior.mean)
    assert np.linalg.norm(worst) == pytest.approx(prior.bias)
    start = prior_after(hs.Bias(lam=9.0, bound=2.0), [], noise=0.5)
    assert start.bias == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.Bias("mean"), "method"),
        (lambda: hs.Bias(lam=0.0), "lam"),
        (lambda: hs.Bias(lam=-2.0), "lam"),
        (lambda: hs.Bias(lam="auto"), "lam"),
        (lambda: hs.Bias(lam=np.inf), "lam"),
        (lambda: hs.Bias(ridge=0.0), "ridge"),
        (lambda: hs.Bias(horizon=1), "horizon"),
        (lambda: hs.Bias(bound=-1.0), "bound"),
        (lambda: hs.Bias(min_rounds=0), "min_rounds"),
        (lambda: hs.Bias(min_rounds=1.5), "min_rounds"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
