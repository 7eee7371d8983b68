"""The row of the table for M-TS: N(μ̂, Σ̂) from forced rounds, corrected, floored, widened."""

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


def forced_task(theta, gram=1.0):
    """The same from its forced rounds; its other rounds say something else entirely."""
    part = exact_task(theta, gram)
    return (part + exact_task([40.0] * len(theta), 3.0)).replace(forced=part)


def random_task(rng, dim=3, forced=6, later=9):
    contexts = rng.standard_normal((forced + later, dim))
    rewards = contexts @ rng.standard_normal(dim) + 0.3 * rng.standard_normal(forced + later)
    return hs.Evidence.of(contexts, rewards).replace(
        forced=hs.Evidence.of(contexts[:forced], rewards[:forced])
    )


def prior_after(transfer, evidences, dim=2, noise=None):
    state = transfer.init(dim, noise)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return transfer.prior(state)


def estimated_covariance(thetas, error, widen=0.1, floor=1e-3):
    """Σ̂ as spec §7 has it: correct, floor, widen."""
    count, dim = thetas.shape
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(thetas.T)) - error)
    mean = max(values.mean(), floor * np.trace(np.atleast_2d(np.cov(thetas.T))) / dim)
    values = np.maximum(values, floor * mean)
    values = values + widen * values.mean() * math.sqrt(dim / count)
    return (vectors * values) @ vectors.T


def test_correction_and_widening_by_hand():
    # Sample covariance of the cross: ⅔ I. Gram 1, R = ½: less ¼. Widened by 0.1 · 5/12 · √(2/4).
    past = [forced_task(theta) for theta in CROSS]
    prior = prior_after(hs.Gaussian(), past, noise=0.5)
    np.testing.assert_allclose(prior.mean, [0.0, 0.0], atol=1e-12)
    sigma = 5 / 12 * (1 + 0.1 * math.sqrt(0.5))
    np.testing.assert_allclose(prior.covariance, sigma * np.eye(2))
    np.testing.assert_allclose(prior.root, math.sqrt(sigma) / 0.5 * np.eye(2), atol=1e-12)


def test_floor_by_hand():
    # (±1, 0) twice: sample covariance diag(4/3, 0), less ¼: diag(13/12, −1/4), whose mean is 5/12.
    # The second is floored at 0.01 · 5/12; no widening.
    past = [forced_task(theta) for theta in ([1, 0], [-1, 0], [1, 0], [-1, 0])]
    prior = prior_after(hs.Gaussian(floor=0.01, widen=0.0), past, noise=0.5)
    np.testing.assert_allclose(prior.covariance, np.diag([13 / 12, 0.01 * 5 / 12]), atol=1e-12)


def test_noise_that_explains_everything_leaves_a_sliver():
    # R = 1: ⅔ − 1 < 0 everywhere; what is left is floor² of the raw variance, and positive.
    past = [forced_task(theta) for theta in CROSS]
    prior = prior_after(hs.Gaussian(widen=0.0, floor=0.1), past, noise=1.0)
    np.testing.assert_allclose(prior.covariance, 0.1 * 0.1 * 2 / 3 * np.eye(2), atol=1e-12)


def test_warm_up_by_hand():
    past = [forced_task(theta, gram=9.0) for theta in ([1, 2], [3, 2], [2, 5])]
    transfer = hs.Gaussian(lam=4.0)
    for count in (0, 1):  # until d = 2 tasks have finished
        prior = prior_after(transfer, past[:count], noise=0.5)
        assert prior.mean.tolist() == [0.0, 0.0]
        np.testing.assert_allclose(prior.covariance, np.eye(2) * 0.25 / 4.0)
    np.testing.assert_allclose(prior_after(transfer, past[:2], noise=0.5).mean, [2.0, 2.0])
    longer = hs.Gaussian(lam=4.0, warmup=3)
    assert prior_after(longer, past[:2], noise=0.5).mean.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(prior_after(longer, past, noise=0.5).mean, [2.0, 3.0])


@on_random_instances
@given(seeds, st.sampled_from(["forced", "ridge", "control"]))
def test_prior_and_posterior_from_first_principles(seed, kind):
    rng = np.random.default_rng(seed)
    past, now = [random_task(rng) for _ in range(7)], random_task(rng)
    noise, lam = 0.3, 0.0 if kind == "forced" else 0.05
    sources = [e if kind == "control" else e.forced for e in past]
    inverses = [np.linalg.inv(e.gram + lam * np.eye(3)) for e in sources]
    thetas = np.array([a @ e.moment for a, e in zip(inverses, sources, strict=True)])
    errors = [a @ e.gram @ a for a, e in zip(inverses, sources, strict=True)]
    error = noise**2 * np.mean(errors, axis=0)
    # What ridge shrinks away is taken to be like the rest: s² · mean U², U = I − A⁻¹ gram.
    shrunk = [np.eye(3) - a @ e.gram for a, e in zip(inverses, sources, strict=True)]
    blank = np.mean([u @ u for u in shrunk], axis=0)
    seen = (thetas**2).sum(1).mean() - np.trace(error)
    sigma = estimated_covariance(thetas, error - blank * max(seen, 0) / (3 - np.trace(blank)))
    transfer = {
        "forced": hs.Gaussian(),
        "ridge": hs.Gaussian(estimate="ridge", ridge=0.05),
        "control": hs.Gaussian(forced=False, ridge=0.05),
    }[kind]
    prior = prior_after(transfer, past, dim=3, noise=noise)
    np.testing.assert_allclose(prior.mean, thetas.mean(0), atol=1e-8)
    np.testing.assert_allclose(prior.covariance, sigma, rtol=1e-6, atol=1e-8)
    # Posterior: precision Σ⁻¹ + gram/R², in units of R² here.
    start = noise**2 * np.linalg.inv(sigma)
    b = start + now.gram
    belief = hs.Belief.of(prior, now)
    np.testing.assert_allclose(belief.covariance / noise**2, np.linalg.inv(b), atol=1e-7)
    mean = np.linalg.solve(b, start @ thetas.mean(0) + now.moment)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-6)


def test_meta_ts_is_this_transfer_with_forced_thompson_sampling():
    bandit = hs.meta_ts(dim=3, seed=0)
    assert bandit.transfer == hs.Gaussian()
    assert bandit.rule == hs.Forced(6, hs.Thompson())  # τ = 2d
    assert hs.meta_ts(dim=3, seed=0, forced_rounds=4).rule.rounds == 4
    assert hs.meta_ts(dim=3, seed=0, intercept=True).rule.rounds == 8
    control = hs.meta_ts_unforced(dim=3, seed=0)
    assert control.transfer == hs.Gaussian(forced=False)
    assert control.rule == hs.Thompson()


def test_a_bandit_keeps_the_forced_rounds_apart():
    bandit = hs.meta_ts(dim=2, seed=0, forced_rounds=3, noise=0.1)
    task = bandit.task("a")
    picked = []
    for k in range(8):
        choice = task.choose(np.random.default_rng(k).standard_normal((4, 2)))
        task.learn(choice, float(k))
        picked.append(choice.context)
    expected = hs.Evidence.of(picked[:3], [0.0, 1.0, 2.0])
    np.testing.assert_allclose(task.evidence.forced.pack(), expected.pack())
    assert task.evidence.rounds == 8


def test_forced_evidence_is_required_by_the_one_and_ignored_by_the_control():
    plain = exact_task([1, 2])
    transfer = hs.Gaussian()
    assert transfer.keeps_forced
    with pytest.raises(hs.InputError, match="forced"):
        transfer.fold(transfer.init(2), plain)
    control = hs.Gaussian(forced=False)
    assert not control.keeps_forced
    with_part = [forced_task(theta) for theta in CROSS]
    without = [e.replace(forced=None) for e in with_part]
    assert prior_after(control, with_part) == prior_after(control, without)


def test_a_task_without_forced_rounds_has_no_estimate():
    empty = exact_task([40.0, 40.0]).replace(forced=hs.Evidence.zero(2))
    past = [forced_task(theta) for theta in CROSS]
    with_empty = prior_after(hs.Gaussian(), [*past, empty], noise=0.5)
    np.testing.assert_allclose(with_empty.mean, [0.0, 0.0], atol=1e-12)
    assert with_empty == prior_after(hs.Gaussian(), past, noise=0.5)


def test_a_singular_design_is_no_error():
    # Only the first feature was ever shown: the pseudo-inverse says nothing of the second, which
    # is then taken to be as large as the first: mean square (1 + 4 + 9)/3, less R²/4.
    past = []
    for size in (1.0, 2.0, 3.0):
        part = hs.Evidence.of([[1.0, 0.0]] * 4, [size] * 4)
        past.append(part.replace(forced=part))
    prior = prior_after(hs.Gaussian(widen=0.0), past, noise=0.1)
    np.testing.assert_allclose(prior.mean, [2.0, 0.0], atol=1e-12)
    expected = np.diag([1.0 - 0.01 / 4, 14 / 3 - 0.01 / 4])
    np.testing.assert_allclose(prior.covariance, expected, atol=1e-9)


def test_finds_mean_and_covariance_of_the_tasks():
    rng = np.random.default_rng(0)
    mean, half = rng.standard_normal(3), np.array([[0.6, 0, 0], [0.3, 0.4, 0], [0, 0.1, 0.2]])
    past = []
    for _ in range(600):
        contexts = rng.standard_normal((12, 3))
        theta = mean + half @ rng.standard_normal(3)
        part = hs.Evidence.of(contexts, contexts @ theta + 0.5 * rng.standard_normal(12))
        past.append(part.replace(forced=part))
    raw = np.cov(np.array([e.ridge(1e-9) for e in past]).T)
    prior = prior_after(hs.Gaussian(widen=0.0), past, dim=3)
    truth = half @ half.T
    np.testing.assert_allclose(prior.mean, mean, atol=0.1)
    np.testing.assert_allclose(prior.covariance, truth, atol=0.07)
    # Uncorrected it would be off by the noise of the estimates, R²/(n − d − 1) ≈ 0.03 each.
    assert np.trace(raw - truth) > 2 * abs(np.trace(prior.covariance - truth))
    assert prior.bias == math.inf  # nothing bounds a Gaussian


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.Gaussian(forced="yes"), "forced"),
        (lambda: hs.Gaussian(estimate="ols"), "estimate"),
        (lambda: hs.Gaussian(ridge=0.0), "ridge"),
        (lambda: hs.Gaussian(widen=-0.1), "widen"),
        (lambda: hs.Gaussian(widen=np.nan), "widen"),
        (lambda: hs.Gaussian(floor=0.0), "floor"),
        (lambda: hs.Gaussian(floor=1.0), "floor"),
        (lambda: hs.Gaussian(warmup=1), "warmup"),
        (lambda: hs.Gaussian(warmup=2.5), "warmup"),
        (lambda: hs.Gaussian(lam=-1.0), "lam"),
        (lambda: hs.meta_ts(dim=2, forced_rounds=-1), "rounds"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
