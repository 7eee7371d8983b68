"""The bound Y on a learned projection's error, and the λ₁ that the paper takes from it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.theory import projection_error

some = settings(max_examples=60, deadline=None, derandomize=True)


def corrected(d, p, t, n, v, var, gap, smallest, r):
    """Y with β of the body, 2 log n, R, V in ε_μ, and a term for where each fails; C = 1 in ε_Σ."""
    beta = r * math.sqrt(d * math.log(1 + n**2 * v**2 / d) + 2 * math.log(n)) + math.sqrt(1 / n)
    beta /= math.sqrt(smallest)
    eps_mu = 2 * v * math.log(2 * t) / t + math.sqrt(2 * math.log(2 * t) * var / t)
    eps_sigma2 = math.log(2 * t) / t
    b = 1 + 64 * math.sqrt(2 * p) * v**2 / gap
    estimates, means = beta**2 + 4 * v**2 / n, eps_mu**2 + 4 * v**2 / t
    spreads = eps_sigma2 + 16 * v**4 / t
    return var + b**2 * estimates + means + 128 * p * spreads * v**2 / gap**2


def printed(d, p, t, n, v, var, gap, smallest):
    """Y as the body of the paper prints it."""
    beta = math.sqrt(d * math.log(1 + n**2 * v**2 / d) + 2) + math.sqrt(1 / n)
    beta /= math.sqrt(smallest)
    eps_mu = 2 * math.log(2 * t) / t + math.sqrt(2 * math.log(2 * t) * var / t)
    eps_sigma2 = math.log(2 * t) / t
    b = 1 + 64 * math.sqrt(2 * p) * v**2 / gap
    return var + beta**2 * b**2 + eps_mu**2 + 128 * p * eps_sigma2 * v**2 / gap**2


@some
@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(1, 1000),
    st.integers(2, 1000),
    st.floats(0.1, 10.0),
    st.floats(0.0, 5.0),
    st.floats(1e-3, 2.0),
    st.floats(0.01, 100.0),
    st.floats(0.01, 3.0),
)
def test_bound_is_the_formula(d, p, t, n, v, var, gap, smallest, r):
    settings_ = {
        "dim": d,
        "rank": p,
        "tasks": t,
        "horizon": n,
        "bound": v,
        "variance": var,
        "gap": gap,
        "smallest": smallest,
        "noise": r,
    }
    assert projection_error(**settings_) == pytest.approx(
        corrected(d, p, t, n, v, var, gap, smallest, r), rel=1e-10
    )
    assert projection_error(**settings_, printed=True) == pytest.approx(
        printed(d, p, t, n, v, var, gap, smallest), rel=1e-10
    )


def test_bound_is_in_the_billions_at_the_papers_setting():
    """Why λ₁ from it is warned about (spec §4: about 4.5e9)."""
    bound = projection_error(
        dim=30, rank=15, tasks=400, horizon=250, bound=1.0, variance=15 * 0.02**2,
        gap=0.25**2 - 0.02**2, smallest=1.0, printed=True,
    )  # fmt: skip
    assert 1e9 < bound < 1e11


@pytest.mark.parametrize("lam1", ["theory", "paper"])
def test_lambda_from_the_bound_warns(lam1):
    with pytest.warns(UserWarning, match="lam1"):
        hs.Subspace(lam1=lam1)


def test_other_settings_do_not_warn():
    hs.Subspace()
    hs.Subspace(lam2="theory")
    hs.Subspace(lam1=3.0, lam2="paper")
    hs.projected_linucb(dim=3, paper=True)


@pytest.mark.filterwarnings("ignore:lam1")
@pytest.mark.parametrize("lam1", ["theory", "paper"])
def test_lambda_one_is_taken_from_the_bound_as_measured(lam1):
    rng = np.random.default_rng(0)
    options = {"warmup": 3, "ridge": 0.5, "horizon": 50, "bound": 1.5, "min_rounds": 1}
    transfer = hs.Subspace(rank=1, pca="exact", lam1=lam1, lam2=2.0, **options)
    contexts = rng.standard_normal((6, 20, 3))
    thetas = rng.standard_normal((6, 3)) * [1.0, 0.2, 0.1]
    rewards = (contexts @ thetas[..., None])[..., 0] + 0.3 * rng.standard_normal((6, 20))
    evidences = [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]
    state = transfer.refit(evidences, noise=0.3)
    estimates = np.array([e.ridge(0.5) for e in evidences])
    values, vectors = np.linalg.eigh(np.cov(estimates.T, bias=True))
    outside = vectors[:, :2] @ vectors[:, :2].T
    smallest = min(np.linalg.eigvalsh(e.gram)[0] + 0.5 for e in evidences)
    variance = 2 * state.estimates.variance(outside)
    measured = (3, 1, 6, 50, 1.5, variance, values[2] - values[1], smallest)
    if lam1 == "theory":
        expected = 0.3**2 / corrected(*measured, 0.3)
    else:
        expected = 1 / math.sqrt(printed(*measured))
    prior = transfer.prior(state)
    inverse = np.linalg.inv(prior.root @ prior.root.T)
    start = expected * outside + 2.0 * (np.eye(3) - outside)
    np.testing.assert_allclose(inverse, start, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:lam1")
@pytest.mark.parametrize("lam1", ["theory", "paper"])
@pytest.mark.parametrize("warmup", [0, None])
def test_the_bound_is_finite_before_any_task(lam1, warmup):
    transfer = hs.Subspace(rank=1, lam1=lam1, lam2=1.0, warmup=warmup)
    prior = transfer.prior(transfer.init(3))
    assert np.isfinite(prior.root).all()
    assert np.linalg.matrix_rank(prior.root) == 3
