"""Transfers on JAX's arrays, compiled, give the same numbers as on NumPy's.

All transfers of a dimension are compiled into one step, as an experiment on a GPU does it, and
forty tasks go through it beside the same transfers on NumPy.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.arrays import array_namespace, float_if_scalar, stable_argsort
from headstart.lab.gpu.engine import double_precision
from headstart.lab.gpu.pytrees import evidence_of, register
from headstart.model.evidence import Evidence
from headstart.records import flatten
from headstart.subspace import CCIPCA, ExactPCA
from headstart.transfer import (
    Bias,
    EmpiricalBayes,
    Gaussian,
    Independent,
    Mixture,
    Oracle,
    Subspace,
    Transfer,
)
from headstart.transfer.estimates import ridge_estimate

SEEDS, TASKS, ROUNDS, FORCED, NOISE = 3, 40, 34, 16, 0.1
DIMS, FULL = (1, 8, 30), 8

#: Compiling quickly matters more than running quickly here.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def truth(dim):
    """A mean, a covariance and a basis for each seed."""
    rng = np.random.default_rng(dim)
    frames = np.linalg.qr(rng.standard_normal((SEEDS, dim, dim)))[0]
    spreads = np.where(np.arange(dim) < max(dim // 3, 1), 0.3, 0.02)
    covariance = (frames * spreads**2) @ frames.swapaxes(-1, -2)
    return 0.2 * rng.standard_normal((SEEDS, dim)), covariance, frames[..., : max(dim // 3, 1)]


def transfers(dim):
    """What is traceable: every kind of setting in eight dimensions, the main ones in others."""
    mean, covariance, basis = truth(dim)
    few = min(2, dim)
    main = [
        Independent("plug-in"),
        Bias(),
        Bias("pooled", 2.0),
        Subspace(),
        Subspace(rank=few, pca="exact", shrink="mean"),
        Subspace(rank="paper", warmup=3, lam1=3.0, lam2="theory", bound=2.0, min_rounds=2),
        Gaussian(),
        Gaussian(False),
        Oracle.gaussian(mean, covariance),
        Oracle.subspace(mean, basis, lam1=9.0, lam2=0.5, residual=0.3),
    ]
    if dim < FULL:
        return main[1:-1]
    if dim > FULL:
        return main
    return [
        *main,
        Independent(2.0),
        Independent("theory", bound=2.0),
        Independent("plug-in", ridge=0.5),
        Bias("average", 2.0),
        Bias("average", "theory"),
        Bias("pooled", "theory", ridge=0.3),
        Bias("pooled", min_rounds=ROUNDS + 1),
        Subspace(pca="exact"),
        Subspace(rank="ungated", pca="exact"),
        Subspace(rank="paper", pca="exact"),
        Subspace(rank=few),
        Subspace(rank=0),
        Subspace(rank=dim, shrink="mean"),
        Subspace(shrink="mean"),
        Subspace(shrink="mean", pca="exact", lam1=100.0, lam2=1.0),
        Subspace(lam2="paper", warmup=3, min_rounds=2, residual=1.0, ridge=0.1),
        Gaussian(estimate="ridge"),
        Gaussian(warmup=3, widen=0.0, floor=0.05),
        Oracle.subspace(mean[0], basis[0]),
    ]


#: Those whose noise is learned too, which an experiment on a GPU never asks for.
UNTOLD = (Independent(), Subspace(), Gaussian(), "oracle")


def settings(dim):
    """Transfers with the noise that they are told."""
    mean, covariance, _ = truth(dim)
    told = [(transfer, NOISE) for transfer in transfers(dim)]
    if dim == FULL:
        oracle = Oracle.gaussian(mean, covariance)
        told += [(oracle if each == "oracle" else each, None) for each in UNTOLD]
    return told


def tasks_of(dim):
    """Contexts no longer than 1 and rewards of every task, ``(SEEDS, ROUNDS, …)``."""
    mean, covariance, _ = truth(dim)
    rng = np.random.default_rng([dim, 1])
    for _ in range(TASKS):
        theta = np.stack(
            [rng.multivariate_normal(m, c) for m, c in zip(mean, covariance, strict=True)]
        )
        x = rng.standard_normal((SEEDS, ROUNDS, dim)) * np.linspace(1.0, 0.2, dim)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=-1, keepdims=True))
        yield x, (x @ theta[..., None])[..., 0] + NOISE * rng.standard_normal((SEEDS, ROUNDS))


@functools.cache
def played(dim):
    """States and priors after every task, on NumPy and compiled by JAX."""
    told = settings(dim)
    states = [transfer.init(dim, noise, (SEEDS,)) for transfer, noise in told]
    with double_precision():
        first = [transfer.prior(state) for (transfer, _), state in zip(told, states, strict=True)]
        register([states, first])
        others = jax.tree_util.tree_map(jnp.asarray, states)

        def advance(states, contexts, rewards):
            after, priors = [], []
            for (transfer, _), state in zip(told, states, strict=True):
                apart = evidence_of(contexts[:, :FORCED], rewards[:, :FORCED])
                after.append(transfer.fold(state, evidence_of(contexts, rewards, apart)))
                priors.append(transfer.prior(after[-1]))
                if dim == 30:
                    # One after another: jaxlib's eigh on a CPU shares the work of a batch of large
                    # matrices, and waits forever where as many of them run at once as there are
                    # cores.
                    contexts = contexts + 0.0 * priors[-1].root.sum()
            return after, priors

        step = None
        found = [[(states[at], first[at], others[at], first[at])] for at in range(len(told))]
        for x, r in tasks_of(dim):
            whole = Evidence.of(x, r).replace(forced=Evidence.of(x[:, :FORCED], r[:, :FORCED]))
            states = [t.fold(state, whole) for (t, _), state in zip(told, states, strict=True)]
            contexts, rewards = jnp.asarray(x), jnp.asarray(r)
            if step is None:
                step = jax.jit(advance).lower(others, contexts, rewards).compile(QUICKLY)
            others, priors = step(others, contexts, rewards)
            for at, (transfer, _) in enumerate(told):
                prior = transfer.prior(states[at])
                found[at].append((states[at], prior, others[at], priors[at]))
    return found


def assert_close(ours, theirs, what):
    """The same parts, with the same numbers up to rounding."""
    left, right = flatten(ours), flatten(theirs)
    assert left.keys() == right.keys(), what
    for name, wanted in left.items():
        scale = max(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0), 1e-12)
        np.testing.assert_allclose(
            right[name], wanted, rtol=1e-9, atol=1e-9 * scale, err_msg=f"{what} {name}"
        )


CASES = [
    pytest.param(dim, at, id=f"{dim}-{transfer!r}-{noise}")
    for dim in DIMS
    for at, (transfer, noise) in enumerate(settings(dim))
]


@pytest.mark.parametrize(("dim", "at"), CASES)
def test_a_transfer_learns_and_starts_tasks_on_jax_as_on_numpy(dim, at):
    story = played(dim)[at]
    for task in {*range(4), dim, dim + 1, TASKS}:
        state, prior, jax_state, jax_prior = story[task]
        assert_close(state, jax_state, f"state after {task} tasks:")
        assert_close(prior, jax_prior, f"prior after {task} tasks:")


def test_the_tasks_make_every_transfer_learn_something():
    """So that agreement means something: all have moved but the fixed ones, and most differ."""
    ends = []
    for (transfer, noise), story in zip(settings(FULL), played(FULL), strict=True):
        before, after = story[0][1], story[-1][1]
        never = getattr(transfer, "min_rounds", None) == ROUNDS + 1
        assert (before == after) == (transfer.prior_is_known(noise) or never), transfer
        ends.append(np.concatenate([after.mean.ravel(), after.root.ravel()]).round(9).tobytes())
    assert len(set(ends)) >= 0.75 * len(ends)


def test_everything_is_in_double_precision():
    for dim in DIMS:
        for story in played(dim):
            for part in jax.tree_util.tree_leaves(story[-1][2:]):
                assert np.asarray(part).dtype == np.float64


def test_every_traceable_transfer_of_the_library_is_tested():
    tested = {type(transfer) for transfer in transfers(8)}
    known = {
        kind
        for kind in vars(hs).values()
        if isinstance(kind, type) and issubclass(kind, Transfer) and kind is not Transfer
    }
    assert all(transfer.traceable for transfer in transfers(8))
    assert tested | {EmpiricalBayes, Mixture} == known  # the former in test_learner.py


# --- What is not traceable ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class Mine(Bias):
    """A subclass may change anything."""


@dataclasses.dataclass(frozen=True, repr=False)
class Willing(Bias):
    traceable = True


class MyPCA(ExactPCA):
    """So may that of a PCA."""


def test_a_subclass_must_promise_again():
    assert Bias().traceable
    assert not Mine().traceable
    assert Willing().traceable
    assert Independent().prior_is_known(NOISE)
    assert Subspace(pca=ExactPCA()).traceable
    assert not Subspace(pca=MyPCA()).traceable
    assert not Subspace(pca=CCIPCA()).traceable


@pytest.mark.parametrize("transfer", [Mixture(), Subspace(pca="ccipca")])
def test_a_transfer_that_looks_at_values_is_not_traceable(transfer):
    assert not transfer.traceable


def test_a_pca_given_as_an_object_is_the_one_that_is_used():
    with double_precision():
        transfer = Subspace(pca=ExactPCA())
        state = transfer.init(3, NOISE, (2,))
        register(state)
        x, r = next(tasks_of(3))
        evidence = Evidence.of(x[:2], r[:2])
        fold = jax.jit(lambda state, x, r: transfer.fold(state, evidence_of(x, r)))
        found = fold(state, jnp.asarray(x[:2]), jnp.asarray(r[:2]))
    assert_close(transfer.fold(state, evidence), found, "state")


def test_a_ridge_that_is_lost_in_rounding_does_no_harm():
    """Beside the gram of five contexts a ridge of 1e-12 is nothing: that is least squares."""
    transfer, rng = Bias(ridge=1e-12), np.random.default_rng(0)
    state = transfer.init(8, NOISE, (2,))
    with double_precision():
        register([state, transfer.prior(state)])
        other = jax.tree_util.tree_map(jnp.asarray, state)

        @jax.jit
        def step(state, x, r):
            after = transfer.fold(state, evidence_of(x, r))
            return after, transfer.prior(after)

        for _ in range(4):
            x = rng.standard_normal((2, 5, 8)) / 8
            r = x[..., 0] + NOISE * rng.standard_normal((2, 5))
            state = transfer.fold(state, Evidence.of(x, r))
            other, found = step(other, jnp.asarray(x), jnp.asarray(r))
    wanted = transfer.prior(state)
    np.testing.assert_allclose(found.root, wanted.root, rtol=1e-3)


# --- Evidence, records and JAX itself -----------------------------------------------------------


def test_evidence_of_jaxs_arrays_is_that_of_numpys():
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 7, 3)), rng.standard_normal((2, 7))
    wanted = Evidence.of(x, r)
    with double_precision():
        part = evidence_of(jnp.asarray(x[:, :0]), jnp.asarray(r[:, :0]))
        found = evidence_of(jnp.asarray(x), jnp.asarray(r), part)
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-12)
        np.testing.assert_array_equal(getattr(part, name), 0.0)
    assert found.forced is part


def test_numbers_of_a_record_are_compiled_in_and_records_may_be_registered_twice():
    state = Bias().init(2, NOISE, (3,))
    register(state)
    register(state)
    leaves, structure = jax.tree_util.tree_flatten(state)
    assert all(type(leaf) is np.ndarray for leaf in leaves)
    assert jax.tree_util.tree_unflatten(structure, leaves) == state


def test_jax_is_left_as_it_was():
    before = jax.config.jax_enable_x64
    with double_precision():
        assert jnp.ones(1).dtype == np.float64
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(1).dtype == (np.float64 if before else np.float32)
    with pytest.raises(ZeroDivisionError), double_precision():
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == before


def test_users_arrays_of_jax_are_checked_and_become_numpys():
    """Only what transfers compute from a state on JAX stays there."""
    assert type(hs.Prior(jnp.ones(1), jnp.eye(1)).mean) is np.ndarray
    with pytest.raises(hs.InputError, match="finite"):
        hs.Prior(jnp.array([jnp.nan]), jnp.eye(1))
    pca = ExactPCA()
    assert type(pca.update(pca.init(2), jnp.ones(2)).mean) is np.ndarray
    with pytest.raises(hs.InputError, match="finite"):
        pca.update(pca.init(1), jnp.array([jnp.nan]))


# --- The namespace ------------------------------------------------------------------------------


def test_the_namespace_is_numpys_unless_an_array_is_anothers():
    ours, theirs = np.ones(2), jnp.ones(2)
    assert array_namespace() is np
    assert array_namespace(ours, 1.0, 2, None, np.float64(3.0)) is np
    assert array_namespace(theirs) is jnp
    assert array_namespace(1.0, ours, theirs) is jnp


def test_values_being_traced_are_jaxs():
    found = []
    jax.jit(lambda value: found.append(array_namespace(value)) or value)(1.0)
    assert found == [jnp]


@pytest.mark.parametrize("library", [np, jnp])
def test_sorting_is_stable_on_every_library(library):
    order = stable_argsort(library.asarray([2.0, 1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(order, [1, 3, 0, 2])


def test_a_number_is_a_float_on_numpy_and_stays_an_array_on_jax():
    assert type(float_if_scalar(np.float64(2.0))) is float
    assert isinstance(float_if_scalar(jnp.asarray(2.0)), jax.Array)
    assert float_if_scalar(np.ones(2)).shape == (2,)


def test_an_ordinary_ridge_is_added_and_no_gram_is_decomposed():
    """Eigenvectors cost several times as much as an inverse, on a GPU too."""

    def estimate(contexts, rewards):
        return ridge_estimate(evidence_of(contexts, rewards), 0.01).estimate

    found = str(jax.make_jaxpr(estimate)(jnp.ones((2, 5, 3)), jnp.ones((2, 5))))
    assert "lu" in found
    assert "eigh" not in found
