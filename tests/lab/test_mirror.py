"""Mirrored transfers: the library's own source on JAX's arrays, compiled, gives the same numbers.

All transfers of a dimension are compiled into one step, as an experiment on a GPU does it, and
forty tasks go through it beside the originals.
"""

import dataclasses
import functools
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.lab.gpu.engine import wide_numbers
from headstart.lab.gpu.mirror import MODULES, Arrays, Mirror, is_traced
from headstart.model.evidence import Evidence
from headstart.records import flatten
from headstart.subspace import ExactPCA
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

SEEDS, TASKS, ROUNDS, FORCED, NOISE = 3, 40, 34, 16, 0.1
DIMS, FULL = (1, 2, 8, 30), 8

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
    """What is mirrored: every kind of setting in eight dimensions, the main ones in others."""
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
    """States and priors after every task, by the originals and by their compiled twins."""
    told = settings(dim)
    states = [transfer.init(dim, noise, (SEEDS,)) for transfer, noise in told]
    with wide_numbers():
        mirror = Mirror()
        twins = [mirror.transfer(transfer) for transfer, _ in told]
        others = [
            twin.init(dim, noise, (SEEDS,)) for twin, (_, noise) in zip(twins, told, strict=True)
        ]
        first = [twin.prior(state) for twin, state in zip(twins, others, strict=True)]
        others = jax.tree_util.tree_map(jnp.asarray, others)

        def advance(states, picked, earned):
            after, priors = [], []
            for twin, state in zip(twins, states, strict=True):
                apart = mirror.evidence(picked[:, :FORCED], earned[:, :FORCED])
                after.append(twin.fold(state, mirror.evidence(picked, earned, apart)))
                priors.append(twin.prior(after[-1]))
                if dim == 30:
                    # One after another: jaxlib's eigh on a CPU shares the work of a batch of large
                    # matrices, and waits forever where as many of them run at once as there are
                    # cores.
                    picked = picked + 0.0 * priors[-1].root.sum()
            return after, priors

        step = None
        found = [
            [(states[at], told[at][0].prior(states[at]), others[at], first[at])]
            for at in range(len(told))
        ]
        for x, r in tasks_of(dim):
            whole = Evidence.of(x, r).replace(forced=Evidence.of(x[:, :FORCED], r[:, :FORCED]))
            states = [t.fold(state, whole) for (t, _), state in zip(told, states, strict=True)]
            picked, earned = jnp.asarray(x), jnp.asarray(r)
            if step is None:
                step = jax.jit(advance).lower(others, picked, earned).compile(QUICKLY)
            others, priors = step(others, picked, earned)
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
def test_a_twin_learns_and_starts_tasks_as_the_original_does(dim, at):
    story = played(dim)[at]
    for task in {*range(4), dim, dim + 1, TASKS}:
        state, prior, twin_state, twin_prior = story[task]
        assert_close(state, twin_state, f"state after {task} tasks:")
        assert_close(prior, twin_prior, f"prior after {task} tasks:")


def test_the_tasks_make_every_transfer_learn_something():
    """So that agreement means something: all have moved but the fixed ones, and most differ."""
    ends = []
    for (transfer, noise), story in zip(settings(FULL), played(FULL), strict=True):
        before, after = story[0][1], story[-1][1]
        never = getattr(transfer, "min_rounds", None) == ROUNDS + 1
        assert (before == after) == (transfer.fixed(noise) or never), transfer
        ends.append(np.concatenate([after.mean.ravel(), after.root.ravel()]).round(9).tobytes())
    assert len(set(ends)) >= 0.75 * len(ends)


def test_everything_is_in_double_precision():
    for dim in DIMS:
        for story in played(dim):
            for part in jax.tree_util.tree_leaves(story[-1][2:]):
                assert np.asarray(part).dtype == np.float64


def test_every_transfer_of_the_library_is_mirrored_or_refused():
    mirrored = {type(transfer) for transfer in transfers(8)}
    known = {
        kind
        for kind in vars(hs).values()
        if isinstance(kind, type) and issubclass(kind, Transfer) and kind is not Transfer
    }
    refused = {EmpiricalBayes, Mixture}
    assert mirrored | refused == known


# --- What is not mirrored -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class Mine(Bias):
    """A subclass may change anything, and its source is not among those that are loaded."""


@pytest.mark.parametrize("transfer", [EmpiricalBayes(), Mixture(), Mine()], ids=repr)
def test_a_transfer_that_is_not_mirrored_is_refused(transfer):
    with pytest.raises(hs.InputError, match="cannot be compiled") as caught:
        Mirror().transfer(transfer)
    assert repr(transfer) in str(caught.value)


def test_a_ridge_that_is_lost_in_rounding_is_refused_or_does_no_harm(monkeypatch):
    """Beside the gram of five contexts a ridge of 1e-12 is nothing: that is least squares."""
    from headstart.lab import gpu
    from headstart.lab.policies import Policy
    from headstart.rules import UCB
    from headstart.worlds import Synthetic

    monkeypatch.setattr(gpu, "missing", lambda: None)
    transfer, rng = Bias(ridge=1e-12), np.random.default_rng(0)
    if gpu.why_not(Synthetic(dim=8, rank=2), [Policy("who", transfer, UCB())]) is not None:
        return
    state = transfer.init(8, NOISE, (2,))
    with wide_numbers():
        mirror = Mirror()
        twin = mirror.transfer(transfer)
        other = jax.tree_util.tree_map(jnp.asarray, twin.init(8, NOISE, (2,)))

        @jax.jit
        def step(state, x, r):
            after = twin.fold(state, mirror.evidence(x, r))
            return after, twin.prior(after)

        for _ in range(4):
            x = rng.standard_normal((2, 5, 8)) / 8
            r = x[..., 0] + NOISE * rng.standard_normal((2, 5))
            state = transfer.fold(state, Evidence.of(x, r))
            other, found = step(other, jnp.asarray(x), jnp.asarray(r))
    wanted = transfer.prior(state)
    np.testing.assert_allclose(found.root, wanted.root, rtol=1e-3)


def test_settings_are_still_checked():
    twin = type(Mirror().transfer(Bias()))
    with pytest.raises(hs.InputError, match="lam"):
        twin(lam=-1.0)


# --- Nobody else notices ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mirror():
    """A mirror with everything loaded."""
    mirror = Mirror()
    for name in MODULES:
        mirror.load(name)
    return mirror


def test_the_originals_are_as_they_were(mirror):
    for name in MODULES:
        original = sys.modules[name]
        assert mirror.modules[name] is not original
        assert vars(original).get("np", np) is np
        assert vars(original).get("checks", sys.modules["headstart.checks"]) is hs.checks
        for own in vars(original).values():
            if isinstance(own, type) and own.__module__ == name:
                assert own is not getattr(mirror.modules[name], own.__name__)
    import headstart.transfer.estimates as estimates

    assert estimates.np is np
    assert estimates.lost_in_rounding(np.eye(2), 1e-12)
    assert not estimates.lost_in_rounding(np.eye(2), 1e-3)
    with pytest.raises(hs.InputError, match="finite"):
        hs.Prior([np.nan], [[1.0]])
    with pytest.raises(hs.InputError, match="contexts"):
        Evidence.of([[np.inf]], [1.0])


def test_twins_and_originals_are_not_taken_for_each_other(mirror):
    twin = mirror.transfer(Bias(lam=2.0))
    assert not isinstance(twin, Bias)
    assert not isinstance(twin, Transfer)
    assert not isinstance(Bias(), type(twin))
    assert isinstance(hs.Bias(), Bias)
    assert isinstance(Bias().prior(Bias().init(2)), hs.Prior)
    assert repr(twin) == repr(Bias(lam=2.0))


def test_mirrors_do_not_disturb_each_other(mirror):
    other = Mirror()
    assert type(other.transfer(Bias())) is not type(mirror.transfer(Bias()))
    assert type(mirror.transfer(Bias())) is type(mirror.transfer(Bias(lam=3.0)))


def test_jax_is_left_as_it_was():
    before = jax.config.jax_enable_x64
    with wide_numbers():
        assert jnp.ones(1).dtype == np.float64
        Mirror().transfer(Subspace())
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(1).dtype == (np.float64 if before else np.float32)
    with pytest.raises(ZeroDivisionError), wide_numbers():
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == before


def test_a_mirror_computes_with_numpy_what_numpy_holds(mirror):
    """Nothing is sent to a device that need not go there."""
    twin = mirror.transfer(Subspace(rank=1))
    state = twin.init(3, 0.1, (2,))
    assert all(type(part) in (np.ndarray, float) for part in jax.tree_util.tree_leaves(state))
    assert type(twin.prior(state).root) is np.ndarray


def test_evidence_of_a_mirror_is_that_of_the_library(mirror):
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 7, 3)), rng.standard_normal((2, 7))
    wanted = Evidence.of(x, r)
    with wide_numbers():
        part = mirror.evidence(jnp.asarray(x[:, :0]), jnp.asarray(r[:, :0]))
        found = mirror.evidence(jnp.asarray(x), jnp.asarray(r), part)
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-12)
        np.testing.assert_array_equal(getattr(part, name), 0.0)
    assert found.forced is part


# --- Arrays -------------------------------------------------------------------------------------


@pytest.fixture
def either():
    return Arrays()


def test_numpys_arguments_go_to_numpy_and_jaxs_to_jax(either):
    ours, theirs = np.array([1.0, 4.0]), jnp.array([1.0, 4.0])
    assert type(either.sqrt(ours)) is np.ndarray
    assert isinstance(either.sqrt(theirs), jax.Array)
    assert type(either.maximum(ours, 2.0)) is np.ndarray
    assert isinstance(either.maximum(2.0, theirs), jax.Array)
    assert isinstance(either.maximum(ours, theirs), jax.Array)
    assert isinstance(either.where(theirs > 2, ours, 0.0), jax.Array)
    assert type(either.zeros(3)) is np.ndarray
    assert type(either.asarray(2.0)) is np.ndarray
    assert isinstance(either.asarray(theirs), jax.Array)


def test_a_list_that_holds_jaxs_is_jaxs(either):
    theirs = jnp.ones(2)
    assert isinstance(either.stack([np.ones(2), theirs]), jax.Array)
    assert isinstance(either.concatenate((theirs, np.ones(2)), axis=0), jax.Array)
    assert isinstance(either.block([[np.eye(2), jnp.eye(2)]]), jax.Array)
    assert type(either.stack([np.ones(2), np.ones(2)])) is np.ndarray
    assert is_traced([np.ones(1), (1.0, [theirs])])
    assert not is_traced([np.ones(1), (1.0, ["text"])])


def test_named_arguments_count_too(either):
    theirs = jnp.eye(2)
    assert isinstance(either.linalg.inv(a=theirs), jax.Array)
    assert isinstance(either.clip(np.ones(2), 0.0, max=jnp.ones(2)), jax.Array)
    assert float(either.max(theirs, initial=9.0)) == 9.0


def test_modules_within_are_dispatched_likewise(either):
    assert type(either.linalg.eigh(np.eye(2)).eigenvalues) is np.ndarray
    assert isinstance(either.linalg.eigh(jnp.eye(2))[0], jax.Array)
    assert either.linalg.LinAlgError is np.linalg.LinAlgError


def test_types_and_numbers_are_numpys(either):
    assert either.ndarray is np.ndarray
    assert either.float64 is np.float64
    assert either.intp is np.intp
    assert either.inf == np.inf
    assert either.pi == np.pi
    assert isinstance(np.ones(1), either.ndarray)


def test_sorting_is_stable_whatever_holds_the_numbers(either):
    values = np.array([2.0, 1.0, 2.0, 1.0])
    for array in (values, jnp.asarray(values)):
        order = either.argsort(array, axis=-1, kind="stable")
        np.testing.assert_array_equal(order, [1, 3, 0, 2])


def test_what_jax_does_not_have_is_numpys(either):
    wanted = SimpleNamespace(only_ours=lambda value: ("ours", value), number=3)
    mixed = Arrays(wanted, SimpleNamespace())
    assert mixed.only_ours(1) == ("ours", 1)
    assert mixed.number == 3
    with pytest.raises(AttributeError):
        _ = either.nonsense


def test_values_still_being_traced_are_jaxs(either):
    seen = []

    @jax.jit
    def step(value):
        seen.append(is_traced(value))
        return either.exp(value) + either.exp(0.0)

    assert float(step(1.0)) == pytest.approx(np.e + 1)
    assert seen == [True]


def test_a_pca_of_ones_own_is_not_silently_replaced():
    """It has no twin: it is refused, or used for what it is."""
    with pytest.raises(hs.InputError):
        Mirror().transfer(Subspace(pca=ExactPCA()))
