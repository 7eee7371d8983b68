"""A task's estimate, its noise and what it has not seen: by an inverse, or by eigenvectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.transfer.estimates import Estimates, ridge_estimate, ridge_is_negligible
from headstart.transfer.noise import Spectrum

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=60, deadline=None, derandomize=True)


def evidence_of(seed, dim=4, rounds=9, length=1.0, rank=None, batch=()):
    """Rounds whose contexts lie in a plane of that rank, and are about so long."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((*batch, rounds, dim))
    if rank is not None:
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:, :rank]
        contexts = contexts @ basis @ basis.T
    return hs.Evidence.of(length * contexts, rng.standard_normal((*batch, rounds)))


def by_eigenvectors(evidence, ridge):
    spectrum = Spectrum.of(evidence)
    return spectrum.estimate(ridge), spectrum.error(ridge), spectrum.squared_bias(ridge)


def dense(evidence, ridge):
    """As it is written: θ = A⁻¹ moment, N = A⁻¹ gram A⁻¹, U² with U = I − A⁻¹ gram."""
    identity = np.eye(evidence.dim)
    solve = np.linalg.solve
    regular = evidence.gram + ridge * identity
    seen = solve(regular, evidence.gram)
    left_out = identity - seen
    return solve(regular, evidence.moment), solve(regular, seen.T), left_out @ left_out


def assert_agree(found, right, tolerance=1e-8):
    for name, one, other in zip(("estimate", "error", "squared_bias"), found, right, strict=True):
        size = max(float(np.abs(other).max()), 1e-300)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * size, err_msg=name)


class TestBothWaysAgree:
    @on_random_instances
    @given(
        seeds,
        st.integers(1, 8),
        st.integers(1, 20),
        st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
        st.sampled_from([0.004, 0.1, 1.0, 50.0]),
    )
    def test_where_a_ridge_is_felt(self, seed, dim, rounds, length, ridge):
        """Also with fewer rounds than dimensions, when the gram alone has no inverse."""
        evidence = evidence_of(seed, dim, rounds, length)
        assert not ridge_is_negligible(evidence.gram, ridge)
        found = ridge_estimate(evidence, ridge)
        size = float(np.trace(evidence.gram))
        # Rounding of the gram itself is magnified by as much as it is larger than the ridge.
        tolerance = 1e-8 + 1e-15 * (size / ridge) ** 2
        assert_agree(found, by_eigenvectors(evidence, ridge), tolerance)
        assert_agree(found, dense(evidence, ridge), tolerance)

    @on_random_instances
    @given(seeds, st.integers(2, 8), st.integers(1, 6))
    def test_where_a_plane_was_never_left(self, seed, dim, rank):
        evidence = evidence_of(seed, dim, 12, rank=min(rank, dim - 1))
        assert_agree(ridge_estimate(evidence, 0.1), by_eigenvectors(evidence, 0.1))
        assert_agree(ridge_estimate(evidence, 0.1), dense(evidence, 0.1))

    def test_by_hand(self):
        # gram = diag(3, 0), moment = (6, 0), λ = 1: A⁻¹ = diag(1/4, 1).
        evidence = hs.Evidence.of([[1.0, 0.0]] * 3, [2.0, 2.0, 2.0])
        estimate, error, squared_bias = ridge_estimate(evidence, 1.0)
        np.testing.assert_allclose(estimate, [1.5, 0.0])
        np.testing.assert_allclose(error, np.diag([3 / 16, 0.0]))
        np.testing.assert_allclose(squared_bias, np.diag([1 / 16, 1.0]))

    @pytest.mark.parametrize("ridge", [0.0, 0.004, 1.0])
    def test_nothing_seen_is_nothing_known(self, ridge):
        estimate, error, squared_bias = ridge_estimate(hs.Evidence.zero(3), ridge)
        np.testing.assert_array_equal(estimate, np.zeros(3))
        np.testing.assert_array_equal(error, np.zeros((3, 3)))
        np.testing.assert_allclose(squared_bias, np.eye(3))

    def test_without_a_ridge_it_is_least_squares(self):
        evidence = evidence_of(3)
        estimate, error, squared_bias = ridge_estimate(evidence, 0.0)
        np.testing.assert_allclose(estimate, np.linalg.solve(evidence.gram, evidence.moment))
        np.testing.assert_allclose(error, np.linalg.inv(evidence.gram))
        np.testing.assert_allclose(squared_bias, np.zeros((4, 4)), atol=1e-12)

    def test_matrices_are_symmetric(self):
        for ridge in (0.0, 1e-12, 0.004, 1.0):
            _, error, squared_bias = ridge_estimate(evidence_of(5, length=30.0), ridge)
            for matrix in (error, squared_bias):
                np.testing.assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12)
                assert np.linalg.eigvalsh(matrix).min() > -1e-9


class TestExtremes:
    @pytest.mark.parametrize("length", [1e-60, 1e-20, 1e-3, 1.0, 1e3, 1e6, 1e20, 1e60])
    @pytest.mark.parametrize("ridge", [0.0, 1e-100, 1e-12, 0.004, 1.0, 1e12])
    @pytest.mark.parametrize("rank", [1, 2, None])
    def test_all_is_finite_and_within_bounds(self, length, ridge, rank):
        evidence = evidence_of(7, dim=4, rounds=6, length=length, rank=rank)
        estimate, error, squared_bias = ridge_estimate(evidence, ridge)
        for array in (estimate, error, squared_bias):
            assert np.isfinite(array).all()
        # 0 ≤ U ≤ 1: no direction can be left out more than entirely, up to what rounding magnifies.
        assert np.linalg.eigvalsh((squared_bias + squared_bias.T) / 2).min() > -1e-6
        assert np.linalg.eigvalsh((squared_bias + squared_bias.T) / 2).max() < 1.001

    @pytest.mark.parametrize("length", [1e3, 1e6, 1e30])
    def test_a_ridge_that_is_lost_in_rounding_leaves_what_was_seen_alone(self, length):
        evidence = evidence_of(8, length=length)
        assert ridge_is_negligible(evidence.gram, 1e-6)
        estimate, _, squared_bias = ridge_estimate(evidence, 1e-6)
        right = np.linalg.solve(evidence.gram, evidence.moment)
        np.testing.assert_allclose(estimate, right, rtol=1e-6)
        assert np.abs(squared_bias).max() < 1e-9

    @pytest.mark.parametrize("ridge", [0.004, 1e-6])
    def test_there_is_no_step_where_one_way_gives_way_to_the_other(self, ridge):
        """Just below and just above the length at which the ridge counts as lost."""
        unit = evidence_of(9)
        edge = np.sqrt(ridge / (1e-9 * np.trace(unit.gram)))
        below, above = (
            hs.Evidence(f**2 * unit.gram, f * unit.moment, unit.rounds, unit.squares)
            for f in (edge * (1 - 1e-6), edge * (1 + 1e-6))
        )
        assert not ridge_is_negligible(below.gram, ridge)
        assert ridge_is_negligible(above.gram, ridge)
        for one, other in zip(
            ridge_estimate(below, ridge), ridge_estimate(above, ridge), strict=True
        ):
            size = float(np.abs(other).max())
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * size)

    @pytest.mark.parametrize(
        "transfer",
        [
            hs.Independent("plug-in"),
            hs.Bias(),
            hs.Subspace(),
            hs.Subspace(rank=1, warmup=2),
            hs.Gaussian(forced=False, warmup=2),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("length", [1e-30, 1e-3, 1e3, 1e9, 1e30])
    @pytest.mark.parametrize("rank", [1, None])
    def test_priors_from_such_tasks_can_be_worked_with(self, transfer, length, rank):
        state = transfer.init(4, 0.3)
        for seed in range(6):
            state = transfer.fold(state, evidence_of(seed, 4, 7, length, rank))
        prior = transfer.prior(state)
        assert np.isfinite(prior.mean).all()
        assert np.isfinite(prior.root).all()
        belief = hs.Belief.of(prior, evidence_of(99, 4, 7, length, rank))
        assert np.isfinite(belief.mean).all()


class TestBatches:
    @pytest.mark.parametrize("ridge", [0.0, 0.004, 1.0])
    def test_are_a_loop(self, ridge):
        batch = evidence_of(1, batch=(3, 2))
        found = ridge_estimate(batch, ridge)
        for place in np.ndindex(3, 2):
            alone = hs.Evidence(*(getattr(batch, name)[place] for name in SUMS))
            for one, other in zip(found, ridge_estimate(alone, ridge), strict=True):
                np.testing.assert_allclose(one[place], other, rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("length", [1.0, 1e9])
    def test_a_task_is_solved_the_same_way_whoever_is_in_its_batch(self, length):
        """To the last bit: experiments are split and merged by seed."""
        mine, other = evidence_of(1), evidence_of(2, length=length)
        both = hs.Evidence(*(np.stack([getattr(e, name) for e in (mine, other)]) for name in SUMS))
        single = hs.Evidence(*(np.stack([getattr(mine, name)]) for name in SUMS))
        together, alone = ridge_estimate(both, 0.004), ridge_estimate(single, 0.004)
        for one, two in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one[0], two[0])


SUMS = ("gram", "moment", "rounds", "squares")


class TestFolding:
    def test_sums_are_those_of_the_tasks(self):
        evidences = [evidence_of(seed) for seed in range(5)]
        state = Estimates.start(4, 0.3, ())
        for evidence in evidences:
            state, theta, weight = state.fold(evidence, 1.0, ridge=0.1)
            np.testing.assert_allclose(theta, evidence.ridge(0.1), rtol=1e-9)
            assert weight == 1.0
        thetas, errors, blanks = zip(*(dense(evidence, 0.1) for evidence in evidences), strict=True)
        np.testing.assert_allclose(state.mean, np.mean(thetas, axis=0), rtol=1e-9)
        np.testing.assert_allclose(state.errors, np.sum(errors, axis=0), rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(
            state.squared_bias, np.sum(blanks, axis=0), rtol=1e-8, atol=1e-12
        )
        np.testing.assert_allclose(
            state.moments.covariance, np.cov(np.array(thetas).T, bias=True), rtol=1e-8, atol=1e-12
        )

    @pytest.mark.parametrize("length", [1.0, 1e6])
    def test_what_was_folded_can_be_taken_back(self, length):
        first, second = evidence_of(1, length=length), evidence_of(2, length=length)
        once, *_ = Estimates.start(4, None, ()).fold(first, 1.0, ridge=0.1)
        twice, *_ = once.fold(second, 1.0, ridge=0.1)
        back, *_ = twice.fold(second, -1.0, ridge=0.1)
        for name in ("errors", "squared_bias"):
            size = float(np.abs(getattr(twice, name)).max())
            np.testing.assert_allclose(getattr(back, name), getattr(once, name), atol=1e-12 * size)
        np.testing.assert_allclose(back.mean, once.mean, rtol=1e-9)
        assert back.noise.value == pytest.approx(once.noise.value)

    def test_noise_that_is_given_needs_no_residuals(self):
        state = Estimates.start(4, 0.3, ())
        assert state.fold(evidence_of(1), 1.0, ridge=0.1)[0].noise == state.noise
        unknown = Estimates.start(4, None, ())
        assert unknown.fold(evidence_of(1), 1.0, ridge=0.1)[0].noise != unknown.noise
