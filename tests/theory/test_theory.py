"""The formulas of the analysis: special cases, limits, units, and what they refuse."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import headstart as hs
from headstart import theory

positive = st.floats(1e-3, 1e3)
on_random_instances = settings(max_examples=60, deadline=None, derandomize=True)

PLANE = {"dim": 6, "rank": 2, "lam1": 20.0, "lam2": 0.5}
TASK = {"bound": 1.3, "residual": 0.2}
WHOLE = PLANE | {"rank": 6}
POINT = PLANE | {"rank": 0}


def projection_onto(rng, dim, rank):
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:, :rank]
    return basis @ basis.T


def test_variances_of_a_sample_are_those_of_its_own_mean_and_covariance():
    rng = np.random.default_rng(0)
    plane = projection_onto(rng, 5, 2)
    tasks = 2.0 + rng.standard_normal((50, 5)) @ rng.standard_normal((5, 5))
    found = theory.sample_variances(tasks, plane)
    gone = tasks - tasks.mean(0)
    assert found.outside == pytest.approx(np.mean(np.sum((gone - gone @ plane) ** 2, 1)))
    assert found.inside == pytest.approx(np.mean(np.sum((gone @ plane) ** 2, 1)))
    assert found.total == pytest.approx(np.mean(np.sum(gone**2, 1)))
    assert found.on_plane == pytest.approx(np.mean(np.sum((tasks @ plane) ** 2, 1)))
    same = theory.task_variances(tasks.mean(0), np.cov(tasks.T, bias=True), plane)
    np.testing.assert_allclose(found, same)


@pytest.mark.parametrize(
    ("projection", "covariance", "word"),
    [
        (np.ones((2, 2)), np.eye(2), "projection"),
        ([[0.0, 1.0], [0.0, 1.0]], np.eye(2), "projection"),
        (np.eye(3), np.eye(2), "projection"),
        (np.eye(2), np.eye(3), "covariance"),
    ],
)
def test_variances_refuse_what_is_not_a_projection_or_does_not_fit(projection, covariance, word):
    with pytest.raises(hs.InputError, match=word):
        theory.task_variances(np.zeros(2), covariance, projection)


def test_perfect_projection_ratio_is_one_less_half_of_one_over_q():
    q = np.arange(2, 60)
    ratios = np.array([theory.perfect_projection_ratio(int(each)) for each in q])
    np.testing.assert_array_less(np.abs(ratios - 1 + 1 / (2 * q)), 0.15 / q**2)
    assert theory.perfect_projection_ratio(1) == pytest.approx(2 / math.pi)


def test_information_bound_without_a_plane_or_without_an_outside_has_one_term():
    assert theory.information_bound(9, **WHOLE) == pytest.approx(6 * math.log1p(9 / 3))
    assert theory.information_bound(9, **POINT) == pytest.approx(6 * math.log1p(9 / 120))
    assert theory.information_bound(0, **PLANE) == 0.0
    for sizes in (WHOLE, POINT):
        exact = theory.information_bound(9, **sizes, tight=True)
        assert exact == theory.information_bound(9, **sizes)


@given(positive, positive, positive, st.integers(1, 5))
@on_random_instances
def test_tight_information_bound_is_the_best_way_to_spend_the_rounds(rounds, lam1, lam2, rank):
    def worth(inside):
        outside = (rounds - inside) / ((6 - rank) * lam1)
        return rank * math.log1p(inside / (rank * lam2)) + (6 - rank) * math.log1p(outside)

    sizes = {"dim": 6, "rank": rank, "lam1": lam1, "lam2": lam2}
    found = theory.information_bound(rounds, **sizes, tight=True)
    best = minimize_scalar(lambda k: -worth(k), bounds=(0, rounds), method="bounded")
    assert found == pytest.approx(max(worth(0), worth(rounds), -best.fun), rel=1e-6)
    assert found <= theory.information_bound(rounds, **sizes) + 1e-12


def test_quantities_take_arrays_of_rounds():
    rounds = np.array([1, 10, 100])
    for tight in (False, True):
        together = theory.information_bound(rounds, **PLANE, tight=tight)
        alone = [theory.information_bound(int(k), **PLANE, tight=tight) for k in rounds]
        np.testing.assert_allclose(together, alone)
    for bound, more in (
        (theory.ucb_regret_bound, {}),
        (theory.thompson_regret_bound, {"horizon": 100}),
    ):
        for printed in (False, True):
            options = PLANE | TASK | more | {"delta": 0.1, "printed": printed}
            np.testing.assert_allclose(
                bound(rounds, **options), [bound(int(k), **options) for k in rounds]
            )


def test_elliptical_bound_is_exact_for_one_round_and_below_two_for_large_lambda():
    for lam in (0.01, 0.3, 1.0, 50.0):
        s = theory.information_bound(1, dim=1, rank=1, lam1=1.0, lam2=lam)
        assert theory.elliptical_bound(s, smallest=lam) == pytest.approx(1 / lam)
    assert theory.elliptical_bound(1.0, smallest=1.0) == pytest.approx(1 / math.log(2))
    assert theory.elliptical_bound(1.0) == theory.elliptical_bound(1.0, printed=True) == 2.0


def test_radius_of_a_belief_is_what_the_theory_rule_uses():
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0][:, :2]
    oracle = hs.Oracle.subspace(
        rng.standard_normal(6), basis, PLANE["lam1"], PLANE["lam2"], bound=1.3, residual=0.2
    )
    belief = hs.Belief.start(oracle.prior(oracle.init(6, noise=0.3)))
    for _ in range(9):
        belief = belief.learn(rng.standard_normal(6) / 3, rng.standard_normal())
    gamma = theory.confidence_radius(belief.information, **PLANE, **TASK, noise=0.3, delta=0.05)
    assert hs.UCB("theory", delta=0.05).gamma(belief) == pytest.approx(gamma)


def test_printed_radius_is_what_the_paper_rule_uses():
    transfer = hs.Subspace(rank=1, lam1=9.0, lam2=4.0, warmup=3, ridge=1e-6, bound=1.5)
    state = transfer.init(dim=3, noise=0.3)
    rng = np.random.default_rng(2)
    for _ in range(5):
        contexts = rng.standard_normal((9, 3))
        state = transfer.fold(state, hs.Evidence.of(contexts, rng.standard_normal(9)))
    belief = hs.Belief.start(transfer.prior(state)).learn([0.3, 0.2, 0.1], 1.0)
    gamma = theory.confidence_radius(
        belief.information,
        dim=3,
        rank=1,
        lam1=9.0,
        lam2=4.0,
        bound=1.5,
        residual=2 * 1.5,
        noise=0.3,
        delta=0.05,
        form="algorithm",
    )
    assert hs.UCB("paper", delta=0.05).gamma(belief) == pytest.approx(gamma)


@pytest.mark.parametrize("form", ["corrected", "lemma", "algorithm"])
def test_whole_space_projected_gives_linucb_radius_whatever_lambda_1_and_w_are(form):
    radius = theory.confidence_radius(3.0, **WHOLE, **TASK, noise=0.3, delta=0.05, form=form)
    other = {"lam1": 7.0, "residual": 9.0}
    assert radius == theory.confidence_radius(
        3.0, **(WHOLE | TASK | other), noise=0.3, delta=0.05, form=form
    )
    chance = 3.0 + 2 * math.log(20)
    oful = {
        "corrected": 0.3 * math.sqrt(chance),
        "lemma": math.sqrt(chance),
        "algorithm": chance,
    }[form]
    assert radius == pytest.approx(oful + math.sqrt(0.5) * 1.3)


def test_nothing_projected_gives_bias_oful_radius_whatever_lambda_2_and_v_are():
    radius = theory.confidence_radius(3.0, **POINT, **TASK, delta=0.05)
    other = {"lam2": 7.0, "bound": 9.0}
    assert radius == theory.confidence_radius(3.0, **(POINT | TASK | other), delta=0.05)
    assert radius == pytest.approx(math.sqrt(3 + 2 * math.log(20)) + math.sqrt(20) * 0.2)


def test_projecting_everything_or_nothing_starts_linucb_or_bias_oful():
    mean = np.array([0.3, -0.2, 0.5])
    options = {"lam1": 20.0, "lam2": 0.5, "bound": 1.3, "residual": 0.2}
    priors = []
    for basis in (np.eye(3), np.eye(3)[:, :0]):
        oracle = hs.Oracle.subspace(mean, basis, **options)
        priors.append(oracle.prior(oracle.init(3, noise=0.1)))
    linucb, bias_oful = priors
    np.testing.assert_allclose(linucb.mean, 0.0)
    np.testing.assert_allclose(linucb.root, np.eye(3) / math.sqrt(0.5))
    np.testing.assert_allclose(bias_oful.mean, mean)
    np.testing.assert_allclose(bias_oful.root, np.eye(3) / math.sqrt(20.0))
    for prior, rank in ((linucb, 3), (bias_oful, 0)):
        bias = theory.bias_radius(dim=3, rank=rank, **options)
        assert prior.bias == pytest.approx(bias)


def test_projection_error_keeps_its_values():
    paper = {
        "dim": 30,
        "rank": 15,
        "tasks": 400,
        "horizon": 250,
        "bound": 1.0,
        "variance": 0.006,
        "gap": 0.06,
        "smallest": 0.5,
        "noise": 0.1,
    }
    small = {
        "dim": 5,
        "rank": 2,
        "tasks": 20,
        "horizon": 50,
        "bound": 2.0,
        "variance": 0.1,
        "gap": 1.5,
        "smallest": 9.0,
        "noise": 0.3,
    }

    # What the first implementation, in one piece, gave; corrected, with the terms for failures.
    def failures(p, t, n, v, gap):
        factor = 1 + 64 * math.sqrt(2 * p) * v**2 / gap
        spread = 128 * p * 16 * v**4 / t * v**2 / gap**2
        return factor**2 * 4 * v**2 / n + 4 * v**2 / t + spread

    values = (
        177779889.5168967 + failures(15, 400, 250, 1.0, 0.06),
        15924818020.110737,
        61535.72596178002 + failures(2, 20, 50, 2.0, 1.5),
        544585.2454097251,
    )
    for (sizes, printed), value in zip(
        itertools.product((paper, small), (False, True)), values, strict=True
    ):
        assert theory.projection_error(**sizes, printed=printed) == pytest.approx(value, rel=1e-14)
    for ill in ({"tasks": 0.0}, {"gap": 0.0}, {"rank": 0}, {"smallest": 1e300}):
        assert math.isfinite(theory.projection_error(**(paper | ill)))


def test_projection_error_is_the_square_of_the_errors_that_the_proof_adds():
    sizes = {"dim": 5, "horizon": 50, "bound": 2.0, "smallest": 900.0, "noise": 0.03}
    v, gap, rank, tasks, variance = 2.0, 500.0, 2, 10**6, 0.1
    beta = theory.ridge_error(**sizes)
    spread = theory.covariance_error(tasks)
    # 2V ‖P̂ − P‖ with ‖Σ̂ − Σ‖ ≤ 8Vβ + ε_Σ, split into its two parts.
    turned = 2 * v * theory.plane_error(8 * v * beta, rank=rank, gap=gap, printed=True)
    spread = 2 * v * theory.plane_error(spread, rank=rank, gap=gap, printed=True)
    parts = [math.sqrt(variance), beta + turned, theory.mean_error(tasks, variance, v), spread]
    y = theory.projection_error(**sizes, rank=rank, tasks=tasks, variance=variance, gap=gap)
    # Each holds with some probability only: with 1/n or 1/t it is 2V, 2V or 4V² at most.
    failures = [
        0.0,
        2 * v * (beta + turned) / beta,
        2 * v,
        4 * v**2 * spread / theory.covariance_error(tasks),
    ]
    chances = [0.0, 1 / 50, 1 / tasks, 1 / tasks]
    squares = [p**2 + c * f**2 for p, c, f in zip(parts, chances, failures, strict=True)]
    assert y == pytest.approx(sum(squares))
    assert sum(parts) <= theory.learned_residual(y, bound=1e9)


def test_errors_of_learning_vanish_with_tasks_and_cap_where_nothing_is_known():
    few, many = (theory.mean_error(t, 0.1, 2.0) for t in (10, 10**6))
    assert many < 1e-2 * few
    assert theory.covariance_error(10**6) < 1e-2 * theory.covariance_error(10)
    explicit = [
        theory.bernstein_covariance_error(t, dim=3, bound=1.0, largest=0.1, total=0.2)
        for t in (10, 10**6)
    ]
    assert explicit[1] < 1e-2 * explicit[0]
    assert theory.plane_error(1e9, rank=3, gap=0.0) == 1.0
    assert theory.learned_residual(1e9, 1.5) == 3.0


def test_regret_bound_with_everything_projected_is_linucbs():
    bound = theory.ucb_regret_bound(100, **WHOLE, **TASK, noise=0.3, delta=0.01)
    s = 6 * math.log1p(100 / 3)
    gamma = 0.3 * math.sqrt(s + 2 * math.log(100)) + math.sqrt(0.5) * 1.3
    assert gamma > 1.3
    assert bound == pytest.approx(2 * gamma * math.sqrt(200 * s) + 2 * 1.3)
    other = WHOLE | TASK | {"lam1": 3.0, "residual": 9.0}
    assert bound == theory.ucb_regret_bound(100, **other, noise=0.3, delta=0.01)


def test_regret_bound_with_nothing_projected_is_that_of_bias_oful():
    bound = theory.ucb_regret_bound(100, **POINT, **TASK, delta=0.01, expected=False)
    s = 6 * math.log1p(100 / 120)
    gamma = math.sqrt(s + 2 * math.log(100)) + math.sqrt(20) * 0.2
    assert bound == pytest.approx(2 * gamma * math.sqrt(200 * s))


def test_regret_bound_of_thompson_with_everything_projected_is_that_of_lints():
    options = {"horizon": 100, "delta": 0.01, "noise": 0.3}
    bound = theory.thompson_regret_bound(100, **WHOLE, **TASK, **options)
    other = WHOLE | TASK | {"lam1": 3.0, "residual": 9.0}
    assert bound == theory.thompson_regret_bound(100, **other, **options)
    s = 6 * math.log1p(100 / 3)
    length = 0.3 * math.sqrt(s + math.log(100**4 / 0.01**2)) + math.sqrt(0.5) * 1.3
    scale = 4 * 0.3 * math.sqrt(math.log(100) * 8 * math.log(100))
    reach = length + scale * math.sqrt(12 + 6 * math.log(100))
    luck = math.exp(-4 * length**2 / scale**2) / (4 * math.sqrt(math.pi))
    main = reach * (1 + reach / (length * luck)) * math.sqrt(200 * s)
    assert bound == pytest.approx(main + (reach / luck + 2.6 * 1.01) / 100)


def test_printed_bounds_are_the_last_lines_of_the_proofs():
    n, d, p, q, v, y = 250, 30, 15, 15, 1.2, 0.006
    lam1, lam2 = theory.regularisation(y, v, printed=True)
    sizes = {"dim": d, "rank": p, "lam1": lam1, "lam2": lam2}
    s = p * math.log(1 + n * v**2 / p) + q * math.log(1 + n * math.sqrt(y) / q)
    ucb = theory.ucb_regret_bound(
        n, **sizes, bound=v, residual=math.sqrt(y), delta=1 / n, noise=0.1, printed=True
    )
    first = math.sqrt(s + 2 * math.log(n)) + 1 + v
    assert ucb == pytest.approx(first * math.sqrt(2 * n * s))
    k = math.sqrt(lam1) * v + lam2 / math.sqrt(lam1) * 0.1
    length = math.sqrt(2 * math.log(n) ** 2 * (d + 2) + 2 * k**2)
    reach = math.sqrt(2 * d + 6 * math.log(n)) * 4 * math.log(n) * math.sqrt(d + 2) + length
    luck = 1 / (4 * math.e * math.sqrt(math.pi * n ** (1 / math.log(n))))
    ts = theory.thompson_regret_bound(
        n, horizon=n, **sizes, bound=v, residual=0.1, delta=1 / n, noise=0.1, printed=True
    )
    main = math.sqrt(18 * n * s) + math.sqrt(128 * n * math.log(2 * n))
    assert ts == pytest.approx(reach**2 / (luck * length) * main + 2 * reach / (luck * n**2))
    for rate, factor in (
        (theory.ucb_regret_rate, math.sqrt(s)),
        (
            theory.thompson_regret_rate,
            d**1.5 * math.log(n) + math.sqrt(d) * math.log(n) ** 2,
        ),
    ):
        found = rate(n, dim=d, rank=p, bound=v, error=y)
        assert found == pytest.approx(factor * math.sqrt(n * s))


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_corrected_quantities_change_with_the_unit_of_rewards_as_rewards_do(unit):
    y, v, w, r = 0.02, 1.3, 0.2, 0.3
    lams = theory.regularisation(y, v, r)
    np.testing.assert_allclose(theory.regularisation(unit**2 * y, unit * v, unit * r), lams)
    sizes = {"dim": 6, "rank": 2, "lam1": lams[0], "lam2": lams[1], "delta": 0.05}

    def scaled(scale):
        own = sizes | {"bound": scale * v, "residual": scale * w, "noise": scale * r}
        return (
            theory.confidence_radius(2.0, **own),
            theory.ucb_regret_bound(50, **own),
            theory.thompson_radius(50, **own),
            theory.thompson_regret_bound(50, horizon=50, **own),
            theory.mean_error(40, scale**2 * y, scale * v),
            math.sqrt(
                theory.bernstein_covariance_error(
                    40, dim=6, bound=scale * v, largest=scale**2 * y, total=3 * scale**2 * y
                )
            ),
        )

    np.testing.assert_allclose(scaled(unit), unit * np.array(scaled(1.0)))


def test_printed_quantities_depend_on_the_unit_of_rewards():
    # A thousand times the rewards: the same problem, and another λ₁, radius and ε_μ.
    small, large = (theory.regularisation(s**2 * 0.02, s * 1.3, printed=True) for s in (1, 1000))
    assert large[0] / large[1] == pytest.approx(1000 * small[0] / small[1])
    before, after = (theory.mean_error(40, 0.0, s * 1.3, printed=True) for s in (1, 1000))
    assert before == after


def test_regret_bound_is_concave_in_the_square_of_w():
    squares = np.linspace(0, 4, 41)
    for lam2 in (0.001, 0.5):
        sizes = PLANE | {"lam2": lam2, "bound": 1.3, "noise": 0.1, "delta": 0.01}
        values = theory.ucb_regret_bound(10, **sizes, residual=np.sqrt(squares))
        assert (np.diff(values, 2) <= 1e-9).all()
        assert (np.diff(values) > 0).all()


def test_chance_of_a_lucky_draw_is_below_the_tail_it_stands_for():
    z = np.linspace(0, 12, 400)
    assert (theory.anti_concentration(z) <= norm.sf(z)).all()
    # The printed constant is this one at Z² = 1 + (α/2) log n.
    printed = theory.printed_anti_concentration(250, alpha=0.7)
    assert printed == pytest.approx(theory.anti_concentration(math.sqrt(1 + 0.35 * math.log(250))))
    assert printed == pytest.approx(1 / (4 * math.e * math.sqrt(math.pi * 250**0.7)))
    never = theory.thompson_regret_bound(9, horizon=9, **PLANE, **TASK, delta=0.1, scale=1e-9)
    assert never == math.inf


def test_draw_radius_is_the_looser_form_of_the_tight_one():
    for n, d in itertools.product((1, 2, 50, 10**6), (1, 3, 100)):
        tight = theory.draw_radius(n, dim=d, tight=True)
        assert tight <= theory.draw_radius(n, dim=d) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: theory.information_bound(1, **(PLANE | {"rank": 7})), "rank"),
        (lambda: theory.information_bound(1, **(PLANE | {"lam1": 0.0})), "lam1"),
        (lambda: theory.noise_radius(1.0, delta=1.0), "delta"),
        (lambda: theory.noise_radius(1.0, delta=0.1, noise=0.0), "noise"),
        (lambda: theory.bias_radius(**PLANE, **TASK, form="best"), "form"),
        (lambda: theory.confidence_radius(1.0, delta=0.1, **PLANE, **TASK, form="x"), "form"),
        (lambda: theory.elliptical_bound(1.0, smallest=0.0), "smallest"),
        (
            lambda: theory.ridge_error(dim=1, horizon=9, bound=1.0, smallest=1.0, form="x"),
            "form",
        ),
        (lambda: theory.regularisation(0.0, 1.0), "error"),
        (lambda: theory.thompson_scale(1, delta=0.1, dim=3), "horizon"),
        (lambda: theory.perfect_projection_ratio(0), "codimension"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call, word):
    with pytest.raises(hs.InputError, match=word):
        call()
