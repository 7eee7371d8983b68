"""Functions of many small matrices: what they compute, on NumPy and on JAX, and who computes it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import small_matrices
from headstart.lab.gpu.engine import double_precision

SIZES = st.tuples(*(st.integers(1, high) for high in (3, 4, 6, 5, 1000)))


def cases(seeds, tasks, dim, rank, seed):
    """Arguments of every function, and its results by loops over matrices."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((seeds, tasks, dim + 2, dim))
    gram, moment = x.swapaxes(-1, -2) @ x, rng.standard_normal((seeds, tasks, dim))
    gram[0, 0], moment[0, 0] = 0.0, 0.0  # a task without evidence
    half = rng.standard_normal((seeds, dim, dim))
    root, weight = half @ half.swapaxes(-1, -2), rng.uniform(0.0, 2.0, (seeds, tasks))
    w, spread = rng.standard_normal((seeds, dim, rank)), rng.uniform(0.0, 3.0, seeds)
    factors = rng.standard_normal((seeds, tasks, rank, rank))
    more = rng.uniform(1.0, 2.0, (seeds, tasks, rank))
    eye, limit = np.eye(dim), float(np.median(root @ root * 2.0)) * dim
    found = {name: [] for name in small_matrices.__all__}
    for s, n in np.ndindex(seeds, tasks):
        g, b, p, f = gram[s, n], moment[s, n], weight[s, n], root[s]
        inner = p * f @ g @ f
        huge = inner.diagonal().max() > limit
        left = np.linalg.inv(eye + (0.0 if huge else 1.0) * inner)
        found["whitened_posteriors"].append((left, left @ f @ b * (not huge), huge))
        system = eye + spread[s] * p * g
        found["ridge_solve"].append(
            (np.linalg.solve(system, p * g), np.linalg.solve(system, p * b))
        )
        found["projected_inverse"].append((np.linalg.inv(w[s].T @ g @ w[s] + np.diag(more[s, n])),))
        definite = g + eye  # which has an inverse
        update = np.linalg.inv(np.linalg.inv(definite) + w[s] @ w[s].T)
        inside = np.linalg.inv(np.eye(rank) + w[s].T @ definite @ w[s])
        found["woodbury"].append((update, update @ np.linalg.solve(definite, b), inside))
        found["spd_inverse"].append((np.linalg.inv(definite),))
        lower = np.linalg.cholesky(definite)
        log_det = np.linalg.slogdet(definite)[1]
        found["cholesky"].append((lower,))
        found["symmetric_matvec"].append((g @ moment[s, 0],))
        found["inverse_root"].append((np.linalg.inv(lower).T, log_det))
        found["gaussian_gain"].append((b @ np.linalg.solve(definite, b) - log_det,))
    for s in range(seeds):
        both = zip(gram[s], factors[s], weight[s], strict=True)
        found["sum_of_products"].append((sum(p * g @ w[s] @ z for g, z, p in both),))
    given = {
        "whitened_posteriors": (root, gram, moment, weight, limit),
        "ridge_solve": (gram, moment, weight, spread),
        "projected_inverse": (gram, w, more),
        "woodbury": (gram + eye, w, moment),
        "spd_inverse": (gram + eye,),
        "cholesky": (gram + eye,),
        "symmetric_matvec": (gram, moment[:, :1]),
        "inverse_root": (gram + eye,),
        "gaussian_gain": (gram, moment),
        "sum_of_products": (gram, w, factors, weight),
    }
    return {
        name: (given[name], [np.stack(part) for part in zip(*found[name], strict=True)])
        for name in given
    }


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_functions_are_what_loops_over_matrices_compute(sizes):
    for name, (arguments, wanted) in cases(*sizes).items():
        results = getattr(small_matrices, name)(*arguments)
        for ours, theirs in zip(listed(results), wanted, strict=True):
            flat = np.asarray(ours, dtype=float).reshape(theirs.shape)
            np.testing.assert_allclose(flat, theirs, rtol=1e-8, atol=1e-8, err_msg=name)


@given(SIZES)
@settings(max_examples=5, deadline=None)
def test_a_sum_of_products_may_leave_out_the_middle_and_weights(sizes):
    gram, _, _, weight = cases(*sizes)["sum_of_products"][0]
    eye = np.broadcast_to(np.eye(gram.shape[-1]), gram[:, 0].shape)
    function = small_matrices.sum_of_products
    np.testing.assert_allclose(
        function(gram, None, gram, weight), function(gram, eye, gram, weight)
    )
    np.testing.assert_allclose(
        function(gram, None, gram), function(gram, None, gram, np.ones_like(weight))
    )


def test_jax_computes_the_same():
    with double_precision():
        for name, (arguments, _) in cases(3, 4, 5, 2, 0).items():
            function = getattr(small_matrices, name)
            for ours, theirs in zip(
                listed(jax.jit(function)(*arguments)), listed(function(*arguments)), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10, err_msg=name)
        values, _ = jax.jit(small_matrices.eigh)(np.diag([3.0, -1.0]))
        np.testing.assert_allclose(values, [-1.0, 3.0])


def test_kernels_take_the_place_of_functions_for_jaxs_arrays_only_and_meanwhile():
    seen = []

    def doubled(matrix):
        seen.append(type(matrix).__module__)
        return None if matrix.shape[-1] > 2 else 2.0 * matrix

    small, large = 4.0 * np.eye(2), 4.0 * np.eye(3)
    with double_precision():
        with small_matrices.use_kernels({"spd_inverse": doubled}):
            np.testing.assert_array_equal(small_matrices.spd_inverse(small), np.eye(2) / 4.0)
            assert not seen
            compiled = jax.jit(small_matrices.spd_inverse)
            np.testing.assert_array_equal(compiled(small), 8.0 * np.eye(2))
            np.testing.assert_allclose(compiled(large), np.eye(3) / 4.0)  # it has none for these
            with pytest.raises(RuntimeError), small_matrices.use_kernels({}):
                raise RuntimeError
            assert dict(small_matrices.KERNELS) == {"spd_inverse": doubled}
        assert not small_matrices.KERNELS
        later = jax.jit(lambda matrix: small_matrices.spd_inverse(matrix))
        np.testing.assert_allclose(later(small), np.eye(2) / 4.0)
    assert len(seen) == 2


def listed(results):
    """Results as a list, of one or several arrays."""
    return list(results) if isinstance(results, (tuple, list)) else [results]
