"""An experiment as a GPU runs it, but for the rounds: those are played here, on the CPU's world.

The learner compiles all policies' transfers into one step. Whoever plays the rounds gets the priors
as addresses and leaves what was picked and earned; here that is :class:`Table`, which does with
NumPy what the kernel does on a GPU. Then every decision must be the one that the CPU's engine
makes.
"""

import ctypes
import dataclasses
import sys
from types import SimpleNamespace
from typing import ClassVar

import jax
import numpy as np
import pytest

from headstart.bandit.rewards import RewardModel
from headstart.lab import engine as engines
from headstart.lab.gpu import engine as gpu
from headstart.lab.gpu import why_not
from headstart.lab.gpu.pytrees import evidence_of, register
from headstart.lab.gpu.steps import FoldStep
from headstart.lab.policies import PAPER, Policy, policy
from headstart.model.belief import Belief
from headstart.model.prior import Prior
from headstart.records import child_items, flatten
from headstart.rules import UCB, Forced, Greedy, LoopForm, Thompson, Uniform
from headstart.transfer import Bias, EmpiricalBayes, Gaussian, Independent, Oracle, Subspace
from headstart.worlds import Synthetic

WORLD = Synthetic(dim=6, rank=2, arms=5)
SEEDS, TASKS, ROUNDS, MARKS = (3, 8), 10, 18, (1, 5, 18)


class Table:
    """Plays rounds as the kernel does, on the CPU's own episodes."""

    made: ClassVar[list] = []
    memory: ClassVar[int] = 2**40

    def __init__(
        self,
        world,
        populations,
        rules,
        names,
        tasks,
        rounds,
        marks,
        *,
        double=False,
        intercept=False,
        estimates_noise=(),
    ):
        self.world, self.populations, self.rules = world, populations, rules
        self.rounds, self.marks, self.double = rounds, np.asarray(marks), double
        self.intercept, self.estimates_noise, self.dim = (
            intercept,
            estimates_noise,
            world.dim + intercept,
        )
        seeds = [population.seed for population in populations]
        self.stacks = [engines.SeedGenerators(seeds, name) for name in names]
        shape = (len(rules), len(seeds), rounds)
        real = float if double else np.float32
        self.chosen_contexts, self.chosen_rewards = (
            np.zeros((*shape, self.dim), real),
            np.zeros(shape, real),
        )
        self.means, self.squares = np.zeros((*shape[:2], self.dim), real), np.zeros(shape[:2], real)
        self.roots, self.losses = np.zeros((*shape[:2], self.dim, self.dim), real), np.zeros(shape)
        self.lost = np.full((tasks, len(rules), len(seeds), len(marks)), np.nan)
        self.started, self.waited = [], 0
        Table.made.append(self)

    @property
    def regret(self):
        """What a GPU holds has to be fetched."""
        return SimpleNamespace(get=lambda: self.lost)

    def episodes(self, task):
        """The episodes of a task for all seeds."""
        found = [each.episode(task, self.rounds) for each in self.populations]
        stacked = engines.EpisodeBatch(found)
        return stacked.with_intercept() if self.intercept else stacked

    @staticmethod
    def free_memory():
        return Table.memory

    def first_contexts(self):
        return self.episodes(0).contexts[:, 0]

    def play(self, task, means, roots, amounts, squares, start, stop):
        shape = (len(self.rules), len(self.populations), self.dim)
        means, roots = self.read(means, shape), self.read(roots, (*shape, self.dim))
        amounts, squares = self.read(amounts, shape[:2]), self.read(squares, shape[:2])
        if start == 0:
            self.started.append((means, roots))
        if any(self.estimates_noise):
            beliefs = zip(means, roots, amounts, squares, strict=True)
            for at, belief in enumerate(beliefs):
                self.play_part(task, at, *belief, start, stop)
            return
        assert (start, stop) == (0, self.rounds)
        stacked = self.episodes(task)
        noise = self.world.noise
        np.testing.assert_allclose(
            amounts, [[rule.multiplier * noise] * shape[1] for rule in self.rules]
        )
        for at, (plain, stack) in enumerate(zip(self.rules, self.stacks, strict=True)):
            belief = Belief.start(Prior(means[at], roots[at], noise=noise))
            player = engines.Player(None, rule_of(plain), plain, stack, noise, RewardModel())
            arms, _ = engines.play(player, belief, stacked, stacked, None)
            self.chosen_contexts[at] = stacked.select("contexts", arms)
            self.chosen_rewards[at] = stacked.select("rewards", arms)
            lost = stacked.best - stacked.select("values", arms)
            self.lost[task, at] = lost.cumsum(1)[:, self.marks - 1]

    def play_part(self, task, at, mean, root, amount, square, start, stop):
        """Some rounds of a policy that chooses by UCB, as the kernel plays them."""
        assert self.rules[at].kind == "ucb"
        stacked, seeds = self.episodes(task), np.arange(len(self.populations))
        for k in range(start, stop):
            x = stacked.contexts[:, k]
            width = np.sqrt(((x @ root) ** 2).sum(-1))
            arm = ((x @ mean[..., None])[..., 0] + amount[:, None] * width).argmax(-1)
            x, r = x[seeds, arm], stacked.rewards[seeds, k, arm]
            u = (x[:, None] @ root)[:, 0]
            s, gain = (u**2).sum(-1), (root @ u[..., None])[..., 0]
            away, g = r - (x * mean).sum(-1), np.sqrt(1 + s)
            mean = mean + gain * (away / (1 + s))[:, None]
            root = root - gain[:, :, None] * (u / (g * (1 + g))[:, None])[:, None]
            square = square + away**2 / (1 + s)
            if task == 0 and self.estimates_noise[at]:
                amount = self.rules[at].multiplier * np.sqrt(square / (k + 1))
            self.chosen_contexts[at, :, k], self.chosen_rewards[at, :, k] = x, r
            self.losses[at, :, k] = stacked.best[:, k] - stacked.values[seeds, k, arm]
        self.means[at], self.roots[at], self.squares[at] = mean, root, square
        self.lost[task, at] = self.losses[at].cumsum(-1)[:, self.marks - 1]

    def read(self, address, shape):
        """What lies at an address."""
        kind = ctypes.c_double if self.double else ctypes.c_float
        there = ctypes.cast(address, ctypes.POINTER(kind))
        return np.array(np.ctypeslib.as_array(there, shape), dtype=float)

    def wait(self):
        self.waited += 1


def rule_of(plain):
    """The library's rule that a plain one stands for."""
    later = Uniform() if plain.kind == "uniform" else None
    later = later or {"ucb": UCB, "thompson": Thompson}[plain.kind](plain.multiplier)
    return Forced(plain.forced, later) if plain.forced else later


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The kernel's place is taken; what was played is in ``Table.made``."""
    monkeypatch.setitem(sys.modules, "headstart.lab.gpu.rounds", SimpleNamespace(Rounds=Table))
    monkeypatch.setattr(Table, "made", [])
    monkeypatch.setattr(FoldStep, "compiled", {})
    monkeypatch.setattr("headstart.lab.gpu.missing", lambda: None)


@pytest.fixture(scope="module", autouse=True)
def compile_quickly(tmp_path_factory):
    """Compiling takes longer than anything else here; what is compiled is kept nowhere else."""
    changes = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("jax")),
    }
    before = {name: jax.config.values[name] for name in changes}
    for name, value in changes.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def started(transfer, state, episodes):
    """The prior of every task."""
    prior = transfer.prior(state)
    dof = np.broadcast_to(prior.noise_dof, prior.batch)
    return {"mean": prior.mean, "root": prior.root, "dof": dof}


def assert_agree(policies, world=WORLD, seeds=SEEDS, tasks=TASKS, rounds=ROUNDS, marks=MARKS):
    """The learner's experiment is the CPU's: every prior and every decision."""
    assert why_not(world, policies) is None
    wanted = engines.simulate(world, policies, seeds, tasks, rounds, marks, started, engine="plain")
    found = gpu.simulate(world, policies, seeds, tasks, rounds, marks, double=True)
    assert list(found) == [policy.name for policy in policies]
    played = Table.made[-1]
    assert len(played.started) == played.waited == tasks
    for at, (name, trace) in enumerate(wanted.items()):
        for task, (means, roots) in enumerate(played.started):
            for what, ours in (("mean", means), ("root", roots)):
                theirs = trace.probes[what][..., task]
                np.testing.assert_allclose(
                    ours[at], theirs, rtol=1e-8, atol=1e-9, err_msg=f"{name}: {what} of {task}"
                )
        np.testing.assert_allclose(found[name], trace.regret, rtol=0, atol=1e-9, err_msg=name)
    return found


def named(name, policy):
    return dataclasses.replace(policy, name=name)


EVERYBODY = [
    *(policy(name) for name in (*PAPER, "meta_ts_unforced")),
    named("plug-in", policy("linucb", lam="plug-in")),
    named("shared mean, TS", Policy("", Bias(), Thompson(0.5))),
    named("M-TS, 7", policy("meta_ts", forced_rounds=7)),
    named("M-TS, 7 again", policy("meta_ts", forced_rounds=7, scale=0.3)),
    named("three directions", Policy("", Subspace(rank=3, warmup=2), Greedy())),
    named("blind", Policy("", Bias(lam=3.0), Uniform())),
]


def test_every_policy_decides_as_on_the_cpu():
    found = assert_agree(EVERYBODY)
    assert {regret.shape for regret in found.values()} == {(len(SEEDS), TASKS, len(MARKS))}
    del found["Bayes oracle"]  # here it knows no more than the projection oracle
    assert len({regret.tobytes() for regret in found.values()}) == len(found)


class UnequalNoise(Synthetic):
    """The tasks of one seed differ much in their noise, those of another do not."""

    def population(self, seed):
        population = super().population(seed)
        if seed == 8:
            draw = population.episode

            def episode(task, rounds):
                drawn, scale = draw(task, rounds), 4.0 ** ((-1) ** task)
                rewards = drawn.values + scale * (drawn.rewards - drawn.values)
                return drawn._replace(rewards=rewards)

            population.episode = episode
        return population


def test_the_default_decides_as_on_the_cpu(monkeypatch):
    """It finds out units and noise, and replaces older tasks by their posteriors.

    (The probe looks at a prior before the first contexts have told the units.)
    """
    monkeypatch.setattr("headstart.transfer.empirical_bayes.state.MIN_KEPT_TASKS", 8)
    monkeypatch.setattr("headstart.transfer.empirical_bayes.state.MAX_KEPT_TASKS", 8)
    oracle = Oracle.gaussian(np.linspace(-1.0, 1.0, 5), np.diag([4.0, 2.0, 1.0, 2.0, 4.0]))
    other = Policy("oracle", oracle, UCB(0.5), knows_noise=False)
    policies = [policy("empirical_bayes"), other]
    sizes = ((3, 8), 13, 40, (1, 5, 40))
    world = UnequalNoise(dim=5, rank=2, arms=5)
    assert why_not(Synthetic(dim=5, rank=2, arms=5), policies) is None
    wanted = engines.simulate(world, policies, *sizes, started, engine="plain")
    found = gpu.simulate(world, policies, *sizes, double=True)
    even, uneven = wanted[policies[0].name].probes["dof"]
    assert even[2:].min() >= 32
    assert uneven[4:].max() < 32, "from the first reward on"
    for at, (name, trace) in enumerate(wanted.items()):
        for task, parts in enumerate(Table.made[-1].started[1:], 1):
            for what, ours in zip(("mean", "root"), parts, strict=True):
                theirs = trace.probes[what][..., task]
                ours = ours[at][(..., *(slice(size) for size in theirs.shape[1:]))]
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(found[name], trace.regret, rtol=0, atol=1e-9, err_msg=name)
    assert len({regret.tobytes() for regret in found.values()}) == 2
    assert len(FoldStep.compiled) == 2, "one for each transfer, prepared for the sizes it has"


def test_seeds_that_do_not_fit_into_memory_together_take_turns(monkeypatch):
    policies, sizes = [policy("bayes_oracle"), policy("lints")], (3, 5, (1, 5))
    whole = gpu.simulate(WORLD, policies, (4, 1, 9), *sizes, double=True)
    monkeypatch.setattr(Table, "memory", 0)
    alone = gpu.simulate(WORLD, policies, (4, 1, 9), *sizes, double=True)
    assert [len(table.populations) for table in Table.made] == [3, 1, 1, 1]
    for name, regret in whole.items():
        np.testing.assert_array_equal(alone[name], regret)


def test_what_was_compiled_is_used_by_other_worlds_and_rules():
    sizes = (SEEDS, 3, 5, (5,))
    shared = Policy("", Bias(), UCB(), knows_noise=False)
    gpu.simulate(WORLD, [shared], *sizes)
    assert len(FoldStep.compiled) == 1
    other = dataclasses.replace(shared, rule=UCB(0.5))
    world = Synthetic(dim=6, rank=3, arms=4, noise=0.3)
    gpu.simulate(world, [policy("linucb"), other], SEEDS, 3, 7, (7,))
    assert len(FoldStep.compiled) == 1
    unlike = dataclasses.replace(shared, transfer=Bias(lam=2.0))
    gpu.simulate(WORLD, [unlike], *sizes)
    assert len(FoldStep.compiled) == 2


def test_a_policy_alone_decides_as_among_others():
    assert_agree([policy("meta_ts")], seeds=(5,), tasks=8)


def test_other_worlds_and_sizes():
    policies = [policy("lints"), policy("projected_ts")]
    world = Synthetic(dim=5, arms=4, curve=1.0, noise=0.4, clusters=2)
    assert_agree(policies, world, seeds=(1, 2, 3), tasks=7, rounds=6, marks=(6,))
    policies = [policy("lints"), policy("bias_oful")]
    assert_agree(policies, Synthetic(dim=1, rank=0, arms=1), tasks=3, rounds=1, marks=(1,))
    assert_agree(policies, tasks=1)


@pytest.mark.parametrize(
    "rule",
    [
        Thompson(),
        Forced(0, UCB()),
        Forced(5, UCB()),
        Forced(2 * ROUNDS, Thompson()),
        Uniform(),
        Forced(5, Uniform()),
    ],
    ids=repr,
)
def test_forced_rounds_are_those_that_the_rule_forces(rule):
    """A Gaussian learns from them alone, be they none or all."""
    assert_agree([Policy("who", Gaussian(warmup=2), rule)], tasks=5)


# --- Groups -------------------------------------------------------------------------------------


def learner_of(policies, **options):
    populations = [WORLD.population(seed) for seed in SEEDS]
    own = [policy.for_populations(populations) for policy in policies]
    with gpu.double_precision():
        return gpu.Learner(own, len(populations), WORLD, **options)


def test_equal_transfers_are_one_group_and_fixed_ones_none():
    names = [policy.name for policy in EVERYBODY]
    groups = [{names[at] for at in group} for group in learner_of(EVERYBODY).groups]
    assert {"P-LinUCB", "P-TS"} in groups
    assert {"B-OFUL", "shared mean, TS"} in groups
    assert {"M-TS, 7", "M-TS, 7 again"} in groups
    assert {"M-TS"} in groups, "other rounds are forced"
    together = set().union(*groups)
    assert together == set(names) - {"LinUCB", "LinTS", "projection oracle", "Bayes oracle"}
    assert sum(map(len, groups)) == len(together)


def test_settings_that_differ_are_never_one_group():
    """Be it in the last digit."""
    for one, other in [
        (Bias(lam=2.0), Bias(lam=2.0 + 2**-51)),
        (Bias(), Bias(method="pooled")),
        (Subspace(rank=2), Subspace(rank=3)),
        (Subspace(lam1=3), Subspace(lam2=3)),
        (Gaussian(False), Gaussian(False, widen=0.2)),
        (Independent("plug-in"), Independent("plug-in", ridge=0.5)),
    ]:
        policies = [Policy("one", one, UCB()), Policy("other", other, UCB())]
        assert learner_of(policies).groups == [[0], [1]]


def test_forced_rounds_matter_only_to_those_that_learn_from_them():
    rules = (Forced(3, UCB()), Forced(5, UCB()))
    for transfer, groups in ((Bias(), [[0, 1]]), (Gaussian(), [[0], [1]])):
        policies = [Policy(f"{rule}", transfer, rule) for rule in rules]
        assert learner_of(policies).groups == groups


def test_where_nothing_is_learned_nothing_is_compiled(monkeypatch):
    def never(*arguments):
        raise AssertionError("learned")

    monkeypatch.setattr(gpu.Learner, "learn", never)
    assert_agree([policy("linucb"), policy("lints"), policy("bayes_oracle")], tasks=3)


def test_the_last_task_is_not_learned_from(monkeypatch):
    """Nothing comes after it."""
    learned = []
    original = gpu.Learner.learn
    monkeypatch.setattr(
        gpu.Learner, "learn", lambda self, *parts: [learned.append(1), original(self, *parts)]
    )
    assert_agree([policy("bias_oful")], tasks=4)
    assert len(learned) == 3


# --- Precision ----------------------------------------------------------------------------------


def test_priors_are_handed_out_in_the_kernels_precision_and_learned_in_double():
    for double, real in ((True, np.float64), (False, np.float32)):
        learner = learner_of([policy("linucb"), policy("bias_oful")], double=double)
        assert {part.dtype for part in learner.priors} == {np.dtype(real)}
        x = np.random.default_rng(0).standard_normal((2, len(SEEDS), 30, WORLD.dim))
        with gpu.double_precision():
            learner.learn(jax.numpy.asarray(x, real), jax.numpy.asarray(x[..., 0], real))
        assert {part.dtype for part in learner.priors} == {np.dtype(real)}
        for part in jax.tree_util.tree_leaves(learner.states):
            assert part.dtype == np.float64


def test_single_precision_costs_little():
    """The rounds are played with what float32 can tell: nearly all decisions are the same."""
    policies = [policy("linucb"), policy("lints"), policy("bias_oful")]
    sizes = (WORLD, policies, SEEDS, TASKS, ROUNDS, (ROUNDS,))
    double, narrow = (gpu.simulate(*sizes, double=double) for double in (True, False))
    for name, regret in double.items():
        assert narrow[name].dtype == np.float64
        assert narrow[name].sum() == pytest.approx(regret.sum(), rel=0.05)


def test_jax_is_left_as_it_was():
    """Whoever else uses it in this process notices nothing, where it is said what to keep."""
    before = dict(jax.config.values)
    gpu.simulate(WORLD, [policy("bias_oful")], SEEDS, 2, 5, (5,), double=True)
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(1).dtype == (np.float64 if before["jax_enable_x64"] else np.float32)


def test_what_is_compiled_is_kept_where_nobody_says_where(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = dict(jax.config.values)
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        gpu.simulate(WORLD, [policy("linucb")], SEEDS, 1, 5, (5,))
        after = dict(jax.config.values)
    finally:
        jax.config.update("jax_compilation_cache_dir", before["jax_compilation_cache_dir"])
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed <= {"jax_compilation_cache_dir"}


# --- What is told on the way --------------------------------------------------------------------


def test_progress_adds_up_to_all_policy_rounds():
    steps = []
    gpu.simulate(
        WORLD, [policy("linucb"), policy("lints")], SEEDS, 4, 5, (5,), steps.append, double=True
    )
    assert steps == [5 * len(SEEDS) * 2] * 4


def test_the_kernel_is_told_the_rules_in_their_order():
    policies = [
        policy("meta_ts", forced_rounds=4, scale=0.5),
        policy("linucb", radius=2.0),
        policy("lints", scale=0.25),
    ]
    gpu.simulate(WORLD, policies, SEEDS, 1, 5, (5,))
    assert Table.made[-1].rules == [
        LoopForm("thompson", 0.5, 4),
        LoopForm("ucb", 2.0),
        LoopForm("thompson", 0.25),
    ]
    assert not Table.made[-1].double, "single precision unless told otherwise"


def test_the_defaults_state_keeps_its_shape_from_task_to_task():
    """Or every task would be compiled; it has room for as many as are kept."""
    transfer = EmpiricalBayes()
    state = transfer.reserve(transfer.init(3, None, (2,)), 0)
    again = transfer.reserve(state, 7)
    assert again is state
    assert transfer.reserve(state, 8).tasks.weight.shape == (2, 32)
    assert transfer.reserve(state, 10_000).tasks.weight.shape == (2, 256)
    with gpu.double_precision():
        register(state)
        parts = [jax.ShapeDtypeStruct(shape, float) for shape in ((2, 9, 3), (2, 9))]
        fold = jax.eval_shape(lambda s, x, r: transfer.fold(s, evidence_of(x, r)), state, *parts)
    shapes = {name: part.shape for name, part in flatten(state).items()}
    assert {name: np.shape(part) for name, part in leaves(fold)} == shapes


def leaves(state, path=""):
    """Parts of a nested state and their paths, arrays or only their shapes."""
    for name, part in child_items(state):
        inside = list(leaves(part, f"{path}{name}."))
        yield from inside or [(path + name, part)]
