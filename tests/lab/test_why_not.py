"""Which experiments a GPU can run: each reason why not, and that the others can be compiled."""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from headstart.lab import gpu, probes
from headstart.lab.gpu import LARGEST_DIM, missing, why_not
from headstart.lab.policies import PAPER, Policy, policy
from headstart.rules import UCB, Forced, Greedy, Thompson, Uniform
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
from headstart.worlds import Synthetic
from headstart.worlds.base import World

WORLD = Synthetic(dim=6, rank=2, arms=5)


@pytest.fixture(autouse=True)
def nothing_missing(monkeypatch):
    """As if there were a GPU."""
    monkeypatch.setattr(gpu, "missing", lambda: None)


def own_policy(transfer, rule=None):
    return Policy("mine", transfer, rule or UCB())


def test_the_papers_policies_can_all_run_on_a_gpu():
    for world in (Synthetic(), WORLD, Synthetic(dim=6, rank=2, arms=5, clusters=3)):
        chosen = [
            policy(name)
            for name in (*PAPER, "meta_ts_unforced")
            if world.clusters == 1 or "projection_o" not in name
        ]
        assert why_not(world, chosen) is None


def test_what_is_missing_is_said_where_nothing_else_is_in_the_way(monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: "it is at the dentist's")
    assert why_not(WORLD, [policy("linucb")]) == "it is at the dentist's"
    assert "probe" in why_not(WORLD, [policy("linucb")], probes.residual)


class Elsewhere(World):
    def population(self, seed):
        raise AssertionError("asked for a population")


@dataclasses.dataclass(frozen=True, repr=False)
class Mine(Synthetic):
    """It may change anything: here, everybody is the same."""

    def population(self, seed):
        return super().population(0)


@pytest.mark.parametrize(
    "world",
    [
        Elsewhere(),
        Synthetic(dim=6, rank=2, drift=0.1),
        Synthetic(dim=6, rank=2, contexts="sphere"),
        Synthetic(dim=6, rank=2, task_dof=3.5),
        Mine(dim=6, rank=2),
    ],
    ids=repr,
)
def test_a_world_that_the_gpu_does_not_know_is_refused(world):
    assert why_not(world, [policy("linucb")]) == f"{world!r} draws its tasks on the CPU"


def test_the_largest_dimension():
    assert why_not(Synthetic(dim=LARGEST_DIM, rank=2, arms=4), [policy("linucb")]) is None
    reason = why_not(Synthetic(dim=LARGEST_DIM + 1, rank=2, arms=4), [policy("linucb")])
    assert str(LARGEST_DIM + 1) in reason
    assert str(LARGEST_DIM) in reason


def most_arms(dim):
    """The most arms that are let through."""
    arms = 1
    while why_not(Synthetic(dim=dim, rank=0, arms=arms + 1), []) is None:
        arms += 1
    return arms


@pytest.mark.parametrize("dim", [2, 3, 4, 7, 8, 9, 30, 31, 32, 33, 60, 63])
def test_arms_that_are_let_through_fit_on_the_chip(dim):
    """What the kernel declares as shared memory, for eight policies in single precision."""
    arms, policies = most_arms(dim), 8
    quads = (dim + 3) // 4
    stride = 4 * (quads + (quads % 2 == 0))
    chunks = (arms + 31) // 32
    numbers = 2 * arms * stride + 2 * arms + 2 + 3
    numbers += policies * stride + policies * ((arms + chunks - 1) // chunks)
    assert 4 * numbers <= 48 * 1024
    reason = why_not(Synthetic(dim=dim, rank=0, arms=arms + 1), [])
    assert f"{arms + 1} arms of {dim} features" in reason


def test_the_papers_sizes_are_far_from_the_limits():
    assert most_arms(30) > 100
    assert most_arms(63) > 50


@dataclasses.dataclass(frozen=True, repr=False)
class Fixed(Bias):
    traceable = True

    def prior_is_known(self, noise):
        return True


def test_a_policy_may_find_out_the_noise_if_it_learns_at_all():
    assert why_not(WORLD, [policy("linucb"), policy("empirical_bayes")]) is None
    assert why_not(WORLD, [policy("empirical_bayes_ts")]) is None
    for transfer, reason in ((Bias(), None), (Fixed(), "mine must be given the noise")):
        unaware = dataclasses.replace(own_policy(transfer), knows_noise=False)
        assert why_not(WORLD, [unaware]) == reason


def test_clicks_have_no_noise_to_tell():
    assert "noise" in why_not(Synthetic(dim=6, rank=2, arms=5, logistic=2.0), [policy("linucb")])


@dataclasses.dataclass(frozen=True, repr=False)
class Doubled(Bias):
    """A subclass may change anything."""

    def prior(self, state):
        prior = super().prior(state)
        return prior.replace(mean=2 * prior.mean)


@dataclasses.dataclass(frozen=True, repr=False)
class Own(Transfer):
    def init(self, dim, noise=None, batch=()):
        raise AssertionError

    def fold(self, state, evidence, weight=1.0):
        raise AssertionError

    def prior(self, state):
        raise AssertionError


@pytest.mark.parametrize(
    "transfer",
    [
        Mixture(),
        Own(),
        Doubled(),
        Subspace(pca="ccipca"),
        Subspace(pca=CCIPCA(begin=3)),
    ],
    ids=repr,
)
def test_a_transfer_that_is_not_compiled_is_named(transfer):
    reason = why_not(WORLD, [policy("linucb"), own_policy(transfer)])
    assert reason is not None
    assert reason.startswith("mine learns by")
    assert repr(transfer) in reason


@pytest.mark.parametrize("lam1", ["theory", "paper"])
def test_a_strength_from_the_bound_is_not_compiled(lam1):
    with pytest.warns(UserWarning, match="bound"):
        made = policy("projected_linucb", lam1=lam1)
    assert why_not(WORLD, [made]).startswith(f"P-LinUCB learns by Subspace(lam1={lam1!r})")
    assert why_not(WORLD, [policy("projected_linucb", lam2=lam1)]) is None


@dataclasses.dataclass(frozen=True, repr=False)
class OwnRule(UCB):
    pass


@pytest.mark.parametrize(
    "rule", [UCB("theory"), UCB("paper"), UCB(explore=0.1), Thompson("paper"), OwnRule()], ids=repr
)
def test_a_rule_that_is_not_plain_is_named(rule):
    reason = why_not(WORLD, [policy("linucb"), own_policy(Bias(), rule)])
    assert reason == f"mine chooses by {rule!r}, which is not compiled for it"
    assert why_not(WORLD, [own_policy(Bias(), Forced(3, rule))]) is not None


def test_a_probe_looks_on_the_cpu():
    assert "CPU" in why_not(WORLD, [policy("linucb")], probes.residual)


def test_asking_computes_next_to_nothing():
    """It is asked before every run."""
    mean = np.zeros(6)
    chosen = [policy("bias_oful"), own_policy(Oracle.gaussian(mean, np.eye(6)))]
    assert why_not(WORLD, chosen) is None


# --- What is let through can be compiled --------------------------------------------------------

TRANSFERS = [
    Independent(),
    Independent("theory"),
    Independent("plug-in"),
    Bias(),
    Bias("pooled", lam="theory"),
    Subspace(),
    Subspace(rank=0),
    Subspace(pca="exact", rank="paper", shrink="mean", lam2="paper"),
    Subspace(pca="ccipca"),
    Subspace(pca=ExactPCA()),
    Subspace(pca=CCIPCA()),
    Gaussian(),
    Gaussian(False),
    Oracle.gaussian(np.zeros(6), np.eye(6)),
    Oracle.subspace(np.zeros(6), np.eye(6)[:, :2]),
    Doubled(),
    EmpiricalBayes(),
    Own(),
]
RULES = [UCB(), Thompson(0.5), Greedy(), Uniform(), Forced(4, Thompson()), Forced(0, UCB())]


@pytest.mark.parametrize("transfer", TRANSFERS, ids=repr)
def test_what_is_let_through_is_prepared_for_a_gpu(transfer):
    """Otherwise a run would stop with an error instead of going to the CPU."""
    from headstart.lab.gpu.engine import Learner, double_precision, loop_forms

    chosen = [
        dataclasses.replace(own_policy(transfer, rule), name=repr(rule))
        for rule in RULES
        if why_not(WORLD, [own_policy(transfer, rule)]) is None
    ]
    if not chosen:
        return
    assert len(loop_forms(chosen)) == len(chosen)
    with double_precision():
        learner = Learner(chosen, 2, WORLD)
    assert learner.priors[0].shape == (len(chosen), 2, 6)
    assert learner.priors[1].shape == (len(chosen), 2, 6, 6)


# --- What a machine may lack --------------------------------------------------------------------


class NoDriver(Exception):
    """As CuPy reports it."""


def fake_cupy(count=1, error=None):
    def devices():
        if error is not None:
            raise error
        return count

    runtime = SimpleNamespace(getDeviceCount=devices, CUDARuntimeError=NoDriver)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


def fake_jax(backend):
    return SimpleNamespace(default_backend=lambda: backend)


@pytest.fixture
def machine(monkeypatch):
    """``machine(cupy, jax)``: what this machine has; ``None`` for not installed."""

    def install(cupy, jax):
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "jax", jax)

    return install


def test_a_machine_with_everything_lacks_nothing(machine):
    machine(fake_cupy(), fake_jax("gpu"))
    assert missing() is None


@pytest.mark.parametrize(
    ("cupy", "jax", "lacks"),
    [
        (None, fake_jax("gpu"), "cupy is not installed: pip install 'headstart[gpu]'"),
        (fake_cupy(), None, "jax is not installed: pip install 'headstart[gpu]'"),
        (None, None, "cupy is not installed: pip install 'headstart[gpu]'"),
        (fake_cupy(0), fake_jax("gpu"), "there is no GPU"),
        (
            fake_cupy(error=NoDriver("driver too old")),
            fake_jax("gpu"),
            "the GPU does not work (driver too old)",
        ),
    ],
)
def test_what_a_machine_lacks_is_named(machine, cupy, jax, lacks):
    machine(cupy, jax)
    assert missing() == lacks


def test_a_jax_without_a_gpu_is_told_which_one_to_install(machine):
    machine(fake_cupy(), fake_jax("cpu"))
    assert "JAX sees no GPU" in missing()
    assert "jax[cuda12]" in missing()


def test_a_package_that_is_there_but_broken_is_not_called_none(machine, monkeypatch):
    """CuPy raises an ImportError of its own, with no name, where its libraries do not load."""

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "cupy":
                raise ImportError("libcudart.so.12: cannot open shared object file")

    machine(None, fake_jax("gpu"))
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    reason = missing()
    assert reason is not None
    assert "None" not in reason
    assert "cupy" in reason.lower() or "libcudart" in reason
