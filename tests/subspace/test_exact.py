"""Exact PCA, one vector at a time, is the eigendecomposition of the sample covariance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA as TheirPCA

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def fed(vectors, weights=None, dim=None):
    pca = hs.ExactPCA()
    state = pca.init(dim or np.shape(vectors)[-1])
    for at, vector in enumerate(vectors):
        state = pca.update(state, vector, 1.0 if weights is None else weights[at])
    return state


def found(vectors, weights=None):
    return hs.ExactPCA().components(fed(vectors, weights))


def random_vectors(seed, count=30, dim=4):
    rng = np.random.default_rng(seed)
    return 3.0 + rng.standard_normal((count, dim)) * np.linspace(2.0, 0.5, dim)


def assert_same(left, right, tolerance=1e-9):
    """Two Moments, to rounding."""
    for name in ("count", "mean", "scatter"):
        np.testing.assert_allclose(
            getattr(left, name), getattr(right, name), rtol=tolerance, atol=tolerance
        )


def test_three_points_on_a_line_by_hand():
    # Mean (2, 1), deviations −2, 0, 2 along the first axis: variance 8/3.
    components = found([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    assert components.mean.tolist() == [2.0, 1.0]
    np.testing.assert_allclose(components.values, [8 / 3, 0.0], atol=1e-15)
    np.testing.assert_allclose(components.vectors, np.eye(2), atol=1e-15)


@on_random_instances
@given(seeds, st.integers(1, 6), st.integers(1, 40))
def test_agrees_with_numpy(seed, dim, count):
    vectors = random_vectors(seed, count, dim)
    components = found(vectors)
    covariance = np.cov(vectors.T, bias=True).reshape(dim, dim)
    np.testing.assert_allclose(components.mean, vectors.mean(0), rtol=1e-10)
    np.testing.assert_allclose(components.values, np.linalg.eigvalsh(covariance)[::-1], atol=1e-9)
    rebuilt = (components.vectors * components.values) @ components.vectors.T
    np.testing.assert_allclose(rebuilt, covariance, atol=1e-9)


def test_agrees_with_scikit_learn():
    vectors = random_vectors(0, count=50)
    components, theirs = found(vectors), TheirPCA().fit(vectors)
    np.testing.assert_allclose(components.mean, theirs.mean_)
    np.testing.assert_allclose(components.values * 50 / 49, theirs.explained_variance_)
    for at in range(4):
        assert abs(components.vectors[:, at] @ theirs.components_[at]) == pytest.approx(1.0)


def test_first_vectors_give_zero_variance_and_a_basis():
    pca = hs.ExactPCA()
    for state in (pca.init(3), fed([[1.0, 2.0, 3.0]]), fed([[1.0, 2.0, 3.0]] * 4)):
        components = pca.components(state)
        np.testing.assert_allclose(components.values, 0.0, atol=1e-14)
        np.testing.assert_allclose(components.vectors.T @ components.vectors, np.eye(3), atol=1e-12)


def test_signs_are_fixed_by_the_largest_entry():
    for seed in range(20):
        vectors = found(random_vectors(seed)).vectors
        at = np.abs(vectors).argmax(0)
        assert (vectors[at, np.arange(4)] > 0).all()


def test_a_large_mean_costs_no_digits():
    vectors = random_vectors(1)
    np.testing.assert_allclose(found(vectors + 1e6).values, found(vectors).values, rtol=1e-8)


@on_random_instances
@given(seeds, st.permutations(range(12)))
def test_order_does_not_matter(seed, order):
    vectors = random_vectors(seed, 12)
    assert_same(fed(vectors), fed(vectors[order]))


@on_random_instances
@given(seeds)
def test_a_weight_counts_as_repetition(seed):
    vectors = random_vectors(seed, 6)
    weights = np.random.default_rng(seed).integers(1, 4, 6)
    assert_same(fed(vectors, weights), fed(np.repeat(vectors, weights, axis=0)))
    state = fed(vectors)
    assert_same(hs.ExactPCA().update(state, vectors[0] + 9.0, 0.0), state)


@on_random_instances
@given(seeds)
def test_fractional_weights_are_numpys_weighted_covariance(seed):
    vectors = random_vectors(seed, 8)
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, 8)
    state = fed(vectors, weights)
    np.testing.assert_allclose(state.mean, np.average(vectors, axis=0, weights=weights))
    np.testing.assert_allclose(
        state.covariance, np.cov(vectors.T, aweights=weights, bias=True), atol=1e-10
    )


@on_random_instances
@given(seeds, st.integers(0, 9))
def test_a_negative_weight_takes_a_vector_back(seed, out):
    vectors = random_vectors(seed, 10)
    state = hs.ExactPCA().update(fed(vectors), vectors[out], -1.0)
    assert_same(state, fed(np.delete(vectors, out, axis=0)))


def test_taking_everything_back_is_the_start():
    pca = hs.ExactPCA()
    vectors = random_vectors(2, 5)
    state = fed(vectors)
    for vector in vectors[[3, 0, 4, 1, 2]]:
        state = pca.update(state, vector, -1.0)
    assert state == pca.init(4)
    assert pca.reversible


def test_projection_is_orthogonal_with_the_rank_asked_for():
    components = found(random_vectors(3))
    for rank in range(5):
        p = components.projection(rank)
        np.testing.assert_allclose(p @ p, p, atol=1e-12)
        np.testing.assert_allclose(p, p.T, atol=1e-14)
        assert np.trace(p) == pytest.approx(rank)
    assert (components.projection(4) == np.eye(4)).all()  # to the last bit
    assert (components.projection(0) == 0).all()


def test_batch_axes_are_a_loop():
    pca = hs.ExactPCA()
    vectors = np.stack([random_vectors(seed, 7) for seed in range(6)], axis=1).reshape(7, 2, 3, 4)
    weights = np.random.default_rng(4).uniform(0.5, 1.5, (7, 2, 3))
    state = pca.init(4, (2, 3))
    for vector, weight in zip(vectors, weights, strict=True):
        state = pca.update(state, vector, weight)
    together = pca.components(state)
    ranks = np.array([[0, 1, 2], [3, 4, 1]])
    for at in np.ndindex(2, 3):
        alone = found(vectors[:, *at], weights[:, *at])
        np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-12)
        np.testing.assert_allclose(together.values[at], alone.values, atol=1e-12)
        np.testing.assert_allclose(
            together.projection(ranks)[at], alone.projection(ranks[at]), atol=1e-10
        )


def test_state_is_read_only_and_arguments_are_left_alone():
    pca, vector = hs.ExactPCA(), np.array([1.0, 2.0])
    before = fed([[0.0, 0.0]])
    after = pca.update(before, vector)
    assert vector.tolist() == [1.0, 2.0]
    vector[:] = 9.0
    assert before == fed([[0.0, 0.0]])
    assert after == fed([[0.0, 0.0], [1.0, 2.0]])
    for array in (after.mean, after.scatter):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


@pytest.mark.parametrize("pca", [hs.ExactPCA(), hs.CCIPCA(), hs.CCIPCA("weng")], ids=repr)
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda pca: pca.update(pca.init(2), [1.0]), "vector"),
        (lambda pca: pca.update(pca.init(2), [[1.0, 2.0]]), "vector"),
        (lambda pca: pca.update(pca.init(2), [1.0, np.nan]), "vector"),
        (lambda pca: pca.update(pca.init(2), [1.0, np.inf]), "vector"),
        (lambda pca: pca.update(pca.init(2), "ab"), "vector"),
        (lambda pca: pca.update(pca.init(2), [1.0, 2.0], np.nan), "weight"),
        (lambda pca: pca.init(0), "dim"),
        (lambda pca: pca.init(-1), "dim"),
    ],
)
def test_bad_input_is_refused_by_name(pca, call, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        call(pca)
