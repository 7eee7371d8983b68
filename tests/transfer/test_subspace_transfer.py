"""Rows of the table for P-LinUCB and P-TS: N(P̂⊥θ̄, R² (λ₁⁻¹P̂⊥ + λ₂⁻¹P̂)), P̂ and θ̄ learned."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)
ALONG, ACROSS = np.array([0.6, 0.8]), np.array([0.8, -0.6])


def exact_task(theta, gram=1.0, rounds=50):
    """A task whose least-squares estimate is θ, with the same information in every direction."""
    theta = np.asarray(theta, dtype=float)
    return hs.Evidence(gram * np.eye(len(theta)), gram * theta, rounds, gram * theta @ theta)


def on_a_line(steps=(-1.0, 0.5, 2.0), gram=1.0):
    """Tasks on the line 2·ACROSS + s·ALONG, off the origin."""
    return [exact_task(2 * ACROSS + s * ALONG, gram) for s in steps]


def random_tasks(seed, count, dim=4, rounds=12):
    rng = np.random.default_rng(seed)
    thetas = rng.standard_normal(dim) + rng.standard_normal((count, dim)) * np.logspace(0, -1, dim)
    contexts = rng.standard_normal((count, rounds, dim))
    rewards = (contexts @ thetas[..., None])[..., 0] + 0.2 * rng.standard_normal((count, rounds))
    return [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]


def prior_after(transfer, evidences, noise=None):
    state = transfer.init(evidences[0].dim, noise)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return transfer.prior(state)


def lambdas(prior, rank):
    """(λ₁, λ₂) read off a prior: B₀ has λ₁ on one side and λ₂ on the other."""
    values = np.sort(np.linalg.eigvalsh(np.linalg.inv(prior.root @ prior.root.T)))
    return values[rank:].mean(), values[:rank].mean()


def test_prior_and_posterior_by_hand():
    # P̂ projects onto (0.6, 0.8); θ̄ = 2·ACROSS + ½·ALONG, so P̂⊥θ̄ = (1.6, −1.2).
    transfer = hs.Subspace(rank=1, lam1=100.0, lam2=4.0, ridge=1e-12)
    prior = prior_after(transfer, on_a_line(), noise=0.5)
    np.testing.assert_allclose(prior.mean, [1.6, -1.2], atol=1e-9)
    inside = np.outer(ALONG, ALONG)
    np.testing.assert_allclose(prior.root, 0.1 * (np.eye(2) - inside) + 0.5 * inside, atol=1e-9)
    # One round x = ALONG, r = 3: B = 100 P⊥ + 5 P, so θ̂ = 2·ACROSS + ⅗·ALONG.
    belief = hs.Belief.start(prior).learn(ALONG, 3.0)
    np.testing.assert_allclose(belief.mean, 2 * ACROSS + 0.6 * ALONG, atol=1e-9)


def test_shrinking_to_the_mean_by_hand():
    transfer = hs.Subspace(rank=1, shrink="mean", lam1=100.0, lam2=4.0, ridge=1e-12)
    prior = prior_after(transfer, on_a_line(), noise=0.5)
    np.testing.assert_allclose(prior.mean, 2 * ACROSS + 0.5 * ALONG, atol=1e-9)


@on_random_instances
@given(seeds, st.integers(0, 4), st.sampled_from(["zero", "mean"]))
def test_prior_and_posterior_from_first_principles(seed, rank, shrink):
    *past, now = random_tasks(seed, 9)
    lam1, lam2, ridge, noise = 30.0, 0.4, 0.1, 0.7
    thetas = np.array([np.linalg.inv(ridge * np.eye(4) + e.gram) @ e.moment for e in past])
    centre = thetas.mean(0)
    _, vectors = np.linalg.eigh((thetas - centre).T @ (thetas - centre) / 8)
    inside = vectors[:, 4 - rank :] @ vectors[:, 4 - rank :].T
    outside = np.eye(4) - inside
    start = lam1 * outside + lam2 * inside
    expected = centre if shrink == "mean" else outside @ centre

    transfer = hs.Subspace(rank, pca="exact", shrink=shrink, lam1=lam1, lam2=lam2, ridge=ridge)
    prior = prior_after(transfer, past, noise)
    np.testing.assert_allclose(prior.mean, expected, atol=1e-7)
    np.testing.assert_allclose(prior.covariance, noise**2 * np.linalg.inv(start), atol=1e-7)
    b = start + now.gram
    belief = hs.Belief.of(prior, now)
    np.testing.assert_allclose(belief.covariance / noise**2, np.linalg.inv(b), atol=1e-7)
    if shrink == "zero":  # the paper's closed form: (DᵀD + λ1P⊥ + λ2P)⁻¹ (Dᵀy + λ1 w)
        closed_form = np.linalg.solve(b, now.moment + lam1 * outside @ centre)
        np.testing.assert_allclose(belief.mean, closed_form, atol=1e-6)
    np.testing.assert_allclose(
        belief.mean, np.linalg.solve(b, start @ expected + now.moment), atol=1e-6
    )
    assert prior.log_det == pytest.approx((4 - rank) * math.log(lam1) + rank * math.log(lam2))


@pytest.mark.parametrize("make", [hs.projected_linucb, hs.projected_ts])
def test_named_algorithms_start_from_this_prior(make):
    bandit = make(dim=2, seed=0, rank=1, lam1=100.0, lam2=4.0, noise=0.5)
    for t, evidence in enumerate(on_a_line((-1.0, 0.5, 2.0), gram=4.0)):
        task = bandit.task(t)
        for axis in range(2):
            for _ in range(4):
                task.learn(task.choose([np.eye(2)[axis]]), evidence.moment[axis] / 4)
        task.close()
    np.testing.assert_allclose(bandit.prior.mean, 2 * ACROSS, atol=0.01)
    inside = np.outer(ALONG, ALONG)
    np.testing.assert_allclose(
        bandit.prior.root, 0.1 * (np.eye(2) - inside) + 0.5 * inside, atol=1e-9
    )


def test_until_enough_tasks_have_finished_it_is_linucb_with_lambda_two():
    past = random_tasks(0, 6)
    for warmup, learned_from in ((None, 4), (2, 2), (6, 6)):
        transfer = hs.Subspace(rank=1, lam1=50.0, lam2=4.0, warmup=warmup)
        for count in range(1, 7):
            prior = prior_after(transfer, past[:count])
            plain = (prior.root == np.eye(4) / 2).all() and (prior.mean == 0).all()
            assert plain == (count < learned_from)


def test_ccipca_may_take_the_place_of_exact_pca():
    past = random_tasks(1, 60)
    exact = prior_after(hs.Subspace(rank=1, lam1=100.0, lam2=1.0), past)
    for pca in ("ccipca", hs.CCIPCA(begin=30)):
        prior = prior_after(hs.Subspace(rank=1, pca=pca, lam1=100.0, lam2=1.0), past)
        np.testing.assert_allclose(prior.root, exact.root, atol=0.1)
        np.testing.assert_allclose(prior.mean, exact.mean, atol=0.2)


def test_ccipca_begins_when_the_warm_up_ends():
    assert hs.Subspace(pca="ccipca", warmup=7).pca_method() == hs.CCIPCA(begin=7)
    assert hs.Subspace(pca="ccipca").pca_method() == hs.CCIPCA()


def test_tasks_without_an_estimate_do_not_count():
    long = random_tasks(2, 6)
    short = [hs.Evidence.of(np.eye(4)[:3], [50.0, -50.0, 50.0])] * 3  # fewer rounds than dimensions
    transfer = hs.Subspace(rank=2, lam1=50.0, lam2=4.0)
    assert prior_after(transfer, long + short, 0.3) == prior_after(transfer, long, 0.3)
    counted = hs.Subspace(rank=2, lam1=50.0, lam2=4.0, min_rounds=3)
    assert prior_after(counted, long + short, 0.3) != prior_after(counted, long, 0.3)


def default_world(seed, tasks=400, outside=0.02, rank=15):
    """The paper's synthetic setting (spec §7), played at random: what the plug-ins must find."""
    rng = np.random.default_rng(seed)
    dim, rounds, noise = 30, 250, 0.1
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    basis, rest = turn[:, :rank], turn[:, rank:]
    mean = 0.5 * rest[:, 0] if rank < dim else np.zeros(dim)
    scales = np.sqrt(rng.uniform(0, 1, dim))
    evidences = []
    for _ in range(tasks):
        theta = mean + 0.25 * basis @ rng.standard_normal(rank)
        theta = theta + outside * rest @ rng.standard_normal(dim - rank)
        x = rng.standard_normal((rounds, dim)) * scales
        x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
        evidences.append(hs.Evidence.of(x, x @ theta + noise * rng.standard_normal(rounds)))
    return evidences, basis, mean


@pytest.fixture(scope="module")
def worlds():
    return [default_world(seed) for seed in range(3)]


def test_plug_in_lambdas_are_near_noise_over_variance_in_the_default_world(worlds):
    """True: λ1 = R²/0.02² = 25, λ2 = R²/0.25² = 0.16. Uncorrected, λ1 would be 3 to 5 here.

    λ1 errs on the careful side, by what 400 tasks leave unsure of the mean and the plane.
    """
    found = []
    for evidences, basis, mean in worlds:
        prior = prior_after(hs.Subspace(rank=15), evidences)
        assert prior.noise == pytest.approx(0.1, rel=0.02)
        lam1, lam2 = lambdas(prior, 15)
        assert 9 < lam1 < 40
        assert lam2 == pytest.approx(0.16, rel=0.15)
        found.append(lam1)
        assert np.linalg.norm(prior.mean - (mean - basis @ basis.T @ mean)) < 0.15
    assert 14 < np.exp(np.mean(np.log(found))) < 30


def test_shrinking_to_the_mean_takes_the_variance_for_lambda_two():
    # Far along the line: θ = 10 ± 1.5, 1, ½, 0 there (and ±0.1 across): mean square 101, unbiased
    # variance 7/6, less the estimates' own R²/gram = 0.0025, plus the mean's (7/6)/7.
    steps = zip([-1.5, -1, -0.5, 0, 0.5, 1, 1.5], [0.1, -0.1, 0, 0, 0, -0.1, 0.1], strict=True)
    past = [exact_task((10 + a) * ALONG + c * ACROSS, 100.0) for a, c in steps]
    noise = 0.5
    zero = lambdas(prior_after(hs.Subspace(rank=1, ridge=1e-9), past, noise), 1)[1]
    mean = lambdas(prior_after(hs.Subspace(rank=1, ridge=1e-9, shrink="mean"), past, noise), 1)[1]
    assert zero == pytest.approx(0.25 / (101 - 0.0025), rel=0.01)
    assert mean == pytest.approx(0.25 / (7 / 6 - 0.0025 + 1 / 6), rel=0.01)


def test_plug_in_lambdas_by_hand():
    # Deviations ±1 along, ±½ across, R = ½, gram 4 (errors R²/4 = 1/16 each), rank 1, shrink to 0.
    # Inside: mean square (4 · 1)/8 + (θ̄ along)² = ½ + 9, less 1/16.
    # Outside: one mean and one direction were fitted to 8 tasks, so ⅛/(1 − 2/8) · … : raw =
    # (1/8) · 8/6 = 1/6, less 1/16, plus raw · 2/8.
    steps = [(1, 0.5), (-1, 0.5), (1, -0.5), (-1, -0.5)] + [(0, 0)] * 4
    past = [exact_task(2 * ACROSS + 3 * ALONG + a * ALONG + c * ACROSS, 4.0) for a, c in steps]
    prior = prior_after(hs.Subspace(rank=1, ridge=1e-12), past, noise=0.5)
    lam1, lam2 = 0.25 / (1 / 6 - 1 / 16 + 1 / 24), 0.25 / (9.5 - 1 / 16)
    found = np.linalg.inv(prior.root @ prior.root.T)
    assert ALONG @ found @ ALONG == pytest.approx(lam2, rel=1e-6)
    assert ACROSS @ found @ ACROSS == pytest.approx(lam1, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("transfer", [None, hs.Subspace(rank=2), hs.Subspace(rank=1)], ids=repr)
def test_a_feature_that_no_task_has_shown_yet_can_still_be_learned(transfer, seed):
    """Its estimates are all exactly 0, which says nothing: that must not read as no variance."""
    rng = np.random.default_rng(seed)
    bandit = hs.Bandit(3, transfer, seed=0, intercept=False)
    for t in range(21):
        task, theta = bandit.task(t), rng.standard_normal(3)
        theta[2] = 5.0
        for _ in range(30 if t < 20 else 200):
            arms = rng.standard_normal((5, 3)) * [1.0, 1.0, t == 20]
            choice = task.choose(arms)
            task.learn(choice, arms[choice.arm] @ theta + 0.1 * rng.standard_normal())
        if t < 20:
            task.close()
    np.testing.assert_allclose(task.belief.mean, theta, atol=0.5)


def test_theory_and_paper_lambda_two():
    past = on_a_line()
    theory = prior_after(hs.Subspace(rank=1, lam1=100.0, lam2="theory", bound=2.0), past, noise=0.5)
    paper = prior_after(hs.Subspace(rank=1, lam1=100.0, lam2="paper", bound=2.0), past, noise=0.5)
    assert lambdas(theory, 1)[1] == pytest.approx(0.25 / 4)
    assert lambdas(paper, 1)[1] == pytest.approx(1 / 4)


def test_rank_is_found_in_the_default_world_and_not_where_there_is_none(worlds):
    evidences, basis, _ = worlds[0]
    transfer = hs.Subspace()
    found, rank, _ = transfer.structure(transfer.refit(evidences))
    assert rank == 15
    assert ((found.projection(15) - basis @ basis.T) ** 2).sum() < 0.5
    flat, _, _ = default_world(1, tasks=100, rank=30)
    assert transfer.structure(transfer.refit(flat))[1] == 30
    assert hs.Subspace(rank="ungated").structure(hs.Subspace().refit(flat))[1] < 30


@pytest.mark.parametrize("rank", ["log-gap", "ungated"])
def test_rank_rules_find_a_line(rank):
    rng = np.random.default_rng(3)
    past = [exact_task(2 * ACROSS + rng.standard_normal() * ALONG, 100.0) for _ in range(30)]
    prior = prior_after(hs.Subspace(rank=rank, lam1=100.0, lam2=1.0), past)
    np.testing.assert_allclose(prior.root @ ALONG, ALONG, atol=1e-6)
    np.testing.assert_allclose(prior.root @ ACROSS, 0.1 * ACROSS, atol=1e-6)


def test_theory_bias_is_the_joint_form():
    # θ̄ = 0 (the steps of the test above) and V = 2: at most W = V, and √(λ1 W² + λ2 V²).
    steps = [(1, 0.5), (-1, 0.5), (1, -0.5), (-1, -0.5)] + [(0, 0)] * 4
    past = [exact_task(a * ALONG + c * ACROSS) for a, c in steps]
    fixed = {"lam1": 9.0, "lam2": 4.0, "bound": 2.0, "ridge": 1e-12}
    prior = prior_after(hs.Subspace(rank=1, **fixed), past)
    assert prior.bias == pytest.approx(math.sqrt(9 * 4 + 16), rel=1e-6)
    given_ = prior_after(hs.Subspace(rank=1, residual=0.7, **fixed), past)
    assert given_.bias == pytest.approx(math.sqrt(9 * 0.49 + 16))
    # No plane: no V. No complement: no W.
    assert prior_after(hs.Subspace(rank=0, **fixed), past).bias == pytest.approx(6.0, rel=1e-6)
    assert prior_after(hs.Subspace(rank=2, **fixed), past).bias == pytest.approx(4.0)
    start = hs.Subspace(rank=1, warmup=0, **fixed)
    assert start.prior(start.init(2)).bias == pytest.approx(math.sqrt(9 * 4 + 16))


def test_theory_bias_counts_how_far_the_mean_is_from_zero():
    # θ̄ = 0.93 along the plane and 0.4 across it, V = 1: W ≤ 1.4; inside the plane a task is at
    # most 1 from 0, and 1.93 from the mean.
    past = [exact_task((0.93 + a) * ALONG + 0.4 * ACROSS) for a in (-0.5, 0.5, -0.2, 0.2)]
    fixed = {"rank": 1, "lam1": 9.0, "lam2": 4.0, "ridge": 1e-12, "warmup": 2}
    zero = prior_after(hs.Subspace(**fixed), past)
    mean = prior_after(hs.Subspace(shrink="mean", **fixed), past)
    assert zero.bias == pytest.approx(math.sqrt(9 * 1.4**2 + 4 * 1.0), rel=1e-6)
    assert mean.bias == pytest.approx(math.sqrt(9 * 1.4**2 + 4 * 1.93**2), rel=1e-6)
    assert mean.printed_bias == zero.printed_bias  # which knows of no such thing


def test_printed_bias_is_the_papers_with_w_at_its_bound():
    # √λ2 V + (λ1/√λ2)·2V, and √λ2 V alone while P̂ = I.
    fixed = {"lam1": 9.0, "lam2": 4.0, "bound": 2.0, "rank": 1}
    past = on_a_line()
    assert prior_after(hs.Subspace(**fixed), past).printed_bias == pytest.approx(4 + 9 / 2 * 4)
    assert prior_after(hs.Subspace(**fixed), past[:1]).printed_bias == pytest.approx(4.0)


def arms_played(transfer, rule, noise, tasks=8, rounds=25, dim=4, seed=5):
    """All decisions of a bandit over several tasks; contexts and noise are always the same."""
    bandit = hs.Bandit(dim, transfer, rule, noise=noise, seed=1)
    rng = np.random.default_rng(seed)
    centre, picked = rng.standard_normal(dim), []
    for t in range(tasks):
        task = bandit.task(t)
        theta = centre + 0.4 * rng.standard_normal(dim)
        for _ in range(rounds):
            arms, error = rng.standard_normal((6, dim)), rng.standard_normal()
            choice = task.choose(arms)
            task.learn(choice, arms[choice.arm] @ theta + 0.3 * error)
            picked.append(choice.arm)
        task.close()
    return picked


RULES = [hs.UCB(1.0), hs.UCB("theory"), hs.Thompson(0.5), hs.Greedy()]


EACH = [(rule, noise) for rule in RULES for noise in ("auto", 0.3)]
EACH.remove((hs.UCB("theory"), "auto"))  # which rests on R


@pytest.mark.parametrize(("rule", "noise"), EACH, ids=repr)
def test_with_the_identity_for_a_projection_it_is_linucb(rule, noise):
    """P̂ = I, decision for decision."""
    projected = hs.Subspace(rank=4, lam1=77.0, lam2=2.0, warmup=0, min_rounds=1)
    ours = arms_played(projected, rule, noise)
    assert ours == arms_played(hs.Independent(lam=2.0), rule, noise)
    assert ours != arms_played(hs.Independent(lam=0.002), rule, noise)


@pytest.mark.parametrize(("rule", "noise"), EACH, ids=repr)
def test_with_no_projection_it_is_bias_oful(rule, noise):
    """P̂ = 0, decision for decision, from the first task on."""
    projected = hs.Subspace(rank=0, lam1=2.0, lam2=77.0, warmup=0, min_rounds=1)
    ours = arms_played(projected, rule, noise)
    assert ours == arms_played(hs.Bias(lam=2.0), rule, noise)
    assert ours != arms_played(hs.Independent(lam=2.0), rule, noise)


def test_with_no_projection_its_prior_is_that_of_bias_oful_once_there_are_tasks():
    past = random_tasks(4, 6)
    ours = prior_after(hs.Subspace(rank=0, lam1=2.0, warmup=0, min_rounds=1), past)
    theirs = prior_after(hs.Bias(lam=2.0), past)
    assert ours.bias == pytest.approx(theirs.bias)
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(ours.root, theirs.root)


def test_explains_what_it_found():
    transfer = hs.Subspace(rank=1, lam1=100.0, lam2=4.0)
    state = transfer.refit(random_tasks(6, 12))
    explained = transfer.explain(state)
    values = explained.eigenvalues
    assert explained.rank == 1
    assert explained.explained == pytest.approx(values[0] / values.sum())
    early = transfer.explain(transfer.refit(random_tasks(6, 2)))
    assert early.rank is None
    assert "2 of the 4" in early.note


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hs.Subspace(rank=-1), "rank"),
        (lambda: hs.Subspace(rank=1.0), "rank"),
        (lambda: hs.Subspace(rank="gap"), "rank"),
        (lambda: hs.Subspace(rank=True), "rank"),
        (lambda: hs.Subspace(rank=3).init(2), "rank"),
        (lambda: hs.Subspace(pca="online"), "pca"),
        (lambda: hs.Subspace(pca=None), "pca"),
        (lambda: hs.Subspace(shrink="half"), "shrink"),
        (lambda: hs.Subspace(lam1=0.0), "lam1"),
        (lambda: hs.Subspace(lam1=-5.0), "lam1"),
        (lambda: hs.Subspace(lam2=np.nan), "lam2"),
        (lambda: hs.Subspace(lam2="auto"), "lam2"),
        (lambda: hs.Subspace(warmup=-1), "warmup"),
        (lambda: hs.Subspace(warmup=1.5), "warmup"),
        (lambda: hs.Subspace(ridge=0.0), "ridge"),
        (lambda: hs.Subspace(horizon=1), "horizon"),
        (lambda: hs.Subspace(bound=np.inf), "bound"),
        (lambda: hs.Subspace(residual=-1.0), "residual"),
        (lambda: hs.Subspace(min_rounds=-1), "min_rounds"),
    ],
)
def test_bad_settings_are_refused_by_name(make, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        make()
