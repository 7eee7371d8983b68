"""Compiled loops: the same decisions as the library's own rules, in every round of every task.

A policy's regret after every round tells which arm it picked, so that equal regret means equal
decisions. Where arms are equally good, a world of this file makes them tell themselves apart.
"""

import dataclasses
import inspect
import sys

import numpy as np
import pytest
from scipy import stats

import headstart as hs
from headstart.algorithms import ALGORITHMS
from headstart.lab import engine as engines
from headstart.lab.engine import simulate
from headstart.lab.per_seed import PerSeed
from headstart.lab.policies import Policy, policy
from headstart.model.evidence import Evidence
from headstart.rules import UCB, Forced, Greedy, Indexed, LoopForm, Rule, Thompson, Uniform
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
from headstart.worlds import Logged, Synthetic
from headstart.worlds.base import Episode, Population, World

WORLD = Synthetic(dim=6, rank=2, arms=5)
SEEDS, TASKS, ROUNDS = (3, 8), 9, 20
ENGINES = ("plain", "compiled")


def play(world, policies, engine, seeds=SEEDS, tasks=TASKS, rounds=ROUNDS, probe=None):
    """Regret after every round."""
    every = range(1, rounds + 1)
    return simulate(world, policies, seeds, tasks, rounds, every, probe, engine=engine)


def assert_agree(world, policies, **sizes):
    """Both engines decide alike; gives what they found."""
    plain, compiled = (play(world, policies, engine, **sizes) for engine in ENGINES)
    assert plain.keys() == compiled.keys() == {policy.name for policy in policies}
    for name, trace in plain.items():
        assert np.isfinite(trace.regret).all()
        np.testing.assert_allclose(
            compiled[name].regret, trace.regret, rtol=0, atol=1e-9, err_msg=name
        )
        assert compiled[name].probes.keys() == trace.probes.keys()
        for key, values in trace.probes.items():
            np.testing.assert_allclose(
                compiled[name].probes[key], values, rtol=1e-9, atol=1e-9, err_msg=f"{name} {key}"
            )
    return plain


# --- The same decisions -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_policy_decides_alike(name):
    assert_agree(WORLD, [policy(name)])


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize(
    "world",
    [
        Synthetic(dim=12, rank=3, arms=20),
        Synthetic(dim=5, rank=2, arms=33, inside=1.0, outside=0.5, noise=0.5),
        Synthetic(dim=6, rank=2, arms=4, clusters=3),
        Synthetic(dim=7, arms=6, curve=1.0),
        Synthetic(dim=6, rank=6, arms=5, offset=0.0),
        Synthetic(dim=4, rank=1, arms=3, logistic=2.0),
        Synthetic(dim=4, rank=1, arms=3, drift=0.05),
        Synthetic(dim=6, rank=2, arms=5, noise=1e-6),
    ],
    ids=lambda world: repr(world).replace("Synthetic", ""),
)
def test_every_world_is_played_alike(world, knows):
    """With the noise told or not; where a world has none to tell, it is never told."""
    made = [policy(name) for name in ALGORITHMS if "oracle" not in name]
    if not world.drift:
        made.append(policy("bayes_oracle"))
    populations = [world.population(seed) for seed in SEEDS]
    built = [each.for_populations(populations) for each in made]
    quick = [
        dataclasses.replace(each, knows_noise=knows)
        for each in built
        if not isinstance(each.transfer, (EmpiricalBayes, Mixture))
    ]
    assert_agree(world, quick, tasks=world.dim + 2, rounds=16)


@pytest.mark.parametrize(
    ("dim", "arms", "rounds", "seeds"),
    [
        (1, 1, 1, (0,)),
        (1, 5, 12, (0, 1)),
        (5, 1, 12, (0, 1)),
        (3, 2, 1, (4, 2, 9)),
        (2, 7, 3, (5,)),
        (40, 3, 10, (5,)),
        (6, 64, 12, (1, 2)),
    ],
)
def test_odd_sizes_are_played_alike(dim, arms, rounds, seeds):
    world = Synthetic(dim=dim, rank=min(dim - 1, 2), arms=arms)
    policies = [
        policy(name) for name in ALGORITHMS if name not in ("mixture", "empirical_bayes_ts")
    ]
    found = assert_agree(world, policies, seeds=seeds, tasks=4, rounds=rounds)
    for trace in found.values():
        assert trace.regret.shape == (len(seeds), 4, rounds)
        if arms == 1:
            np.testing.assert_array_equal(trace.regret, 0.0)


RULES = {
    "UCB": UCB(0.7),
    "UCB, nothing": UCB(0),
    "UCB, much": UCB(25.0),
    "UCB, theory": UCB("theory"),
    "UCB, paper": UCB("paper"),
    "UCB, explore": UCB(explore=0.3),
    "Thompson": Thompson(0.5),
    "Thompson, nothing": Thompson(0),
    "Thompson, paper": Thompson("paper"),
    "Thompson, explore": Thompson(explore=0.3),
    "Greedy": Greedy(),
    "Greedy, explore": Greedy(explore=0.3),
    "Uniform": Uniform(),
    "forced, then UCB": Forced(7, UCB()),
    "forced, then Thompson": Forced(7, Thompson()),
    "forced, then Greedy": Forced(1, Greedy()),
    "forced, then Uniform": Forced(7, Uniform()),
    "never forced": Forced(0, Thompson()),
    "always forced": Forced(10 * ROUNDS, UCB()),
    "forced all but one": Forced(ROUNDS - 1, UCB()),
    "forced twice": Forced(3, Forced(8, UCB())),
    "forced, then theory": Forced(7, UCB("theory")),
}
UNBOUNDED = ("paper", "theory")  # what a transfer that states no bound is refused with


def test_every_rule_decides_alike():
    policies = [Policy(name, Bias(lam=2.0), rule) for name, rule in RULES.items()]
    found = assert_agree(WORLD, policies)
    totals = {trace.regret[..., -1].sum().round(9) for trace in found.values()}
    assert len(totals) == len(RULES), "otherwise agreement means nothing"


def test_every_rule_decides_alike_where_the_noise_is_unknown():
    policies = [
        Policy(name, Bias(lam=2.0), rule, knows_noise=False) for name, rule in RULES.items()
    ]
    assert_agree(WORLD, policies)


def learned(transfer, state, episodes):
    """What a policy starts a task from: whatever goes into it shows here."""
    prior = transfer.prior(state)
    weights = np.arange(1.0, prior.dim + 1)
    return {"mean": prior.mean @ weights, "spread": (prior.root @ weights) @ weights}


@pytest.mark.parametrize("name", [name for name in RULES if name.split()[-1] not in UNBOUNDED])
def test_forced_rounds_are_told_apart_alike(name):
    """Gaussian learns from them alone: whatever rule there is, it is given the same ones."""
    policy = Policy(name, Gaussian(warmup=2), RULES[name])
    found = assert_agree(WORLD, [policy], probe=learned)[name]
    ever_forced = isinstance(policy.rule, (Uniform, Forced)) and name != "never forced"
    assert (found.probes["mean"][:, -1] != 0.0).all() == ever_forced


def test_the_loops_play_what_they_can_and_nothing_else(monkeypatch):
    """Otherwise the engines would agree because they are one."""
    played = []

    def noted(kind, original):
        def step(*arguments):
            player = next(part for part in arguments if isinstance(part, engines.Player))
            played.append((kind, player.rule))
            return original(*arguments)

        return step

    for kind, name in (("plain", "play"), ("compiled", "play_compiled")):
        monkeypatch.setattr(engines, name, noted(kind, getattr(engines, name)))
    policies = [Policy(name, Bias(), rule) for name, rule in RULES.items()]
    play(WORLD, policies, "plain", tasks=2)
    assert {kind for kind, _ in played} == {"plain"}
    played.clear()
    play(WORLD, policies, "compiled", tasks=2)
    for kind, rule in played:
        assert kind == ("plain" if rule.loop_form() is None else "compiled"), rule
    assert {kind for kind, _ in played} == set(ENGINES)
    played.clear()
    play(WORLD, [Policy("mixture", Mixture(), UCB())], "compiled", tasks=2)
    assert {kind for kind, _ in played} == {"plain"}, "a mixture is not one Gaussian"


def test_auto_is_compiled_where_numba_is_installed():
    auto, compiled = (
        play(WORLD, [policy("linucb"), policy("lints")], engine) for engine in ("auto", "compiled")
    )
    for name, trace in auto.items():
        np.testing.assert_array_equal(trace.regret, compiled[name].regret)


# --- Worlds of one's own ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class Changed(World):
    """A world whose episodes come in another form."""

    change: object

    def population(self, seed):
        population, inner = WORLD.population(seed), WORLD.population(seed)
        population.episode = lambda task, rounds: self.change(inner.episode(task, rounds))
        return population


def single(array):
    return array.astype(np.float32)


def in_columns(array):
    return np.asfortranarray(array)


def a_view(array):
    """The same numbers, but not side by side in memory."""
    return np.repeat(array, 2, axis=0)[::2]


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("form", [single, in_columns, a_view, read_only])
@pytest.mark.parametrize("part", ["contexts", "rewards", "values"])
def test_arrays_may_come_in_any_form(form, part):
    """What the plain engine can play, the compiled one can too."""
    world = Changed(lambda episode: episode._replace(**{part: form(getattr(episode, part))}))
    policies = [
        policy("linucb"),
        policy("lints"),
        policy("bias_oful"),
        policy("meta_ts", forced_rounds=12),
    ]
    assert_agree(world, policies)


@pytest.mark.parametrize("kind", [int, bool, np.int8])
def test_rewards_may_be_whole_numbers(kind):
    """Clicks are."""
    world = Changed(lambda episode: episode._replace(rewards=(episode.rewards > 0).astype(kind)))
    assert_agree(world, [policy("linucb"), policy("lints"), policy("bias_oful")])


def test_contexts_may_be_whole_numbers():
    world = Changed(lambda episode: episode._replace(contexts=np.rint(4 * episode.contexts)))
    whole = Changed(
        lambda episode: episode._replace(contexts=np.rint(4 * episode.contexts).astype(int))
    )
    policies = [policy("linucb"), policy("lints"), policy("bias_oful")]
    here, there = (assert_agree(each, policies) for each in (world, whole))
    for name, trace in here.items():
        np.testing.assert_allclose(there[name].regret, trace.regret, atol=1e-9)


def test_logged_data_is_played_alike():
    import polars as pl

    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "user": np.repeat(np.arange(4), 30),
            "x": rng.integers(0, 3, 120),
            "y": rng.standard_normal(120).astype(np.float32),
            "click": rng.integers(0, 2, 120),
        }
    )
    world = Logged(table, task="user", reward="click", contexts=["x", "y"], arms=3)
    policies = [policy("linucb"), policy("lints"), policy("bias_oful"), policy("empirical_bayes")]
    assert_agree(world, policies, tasks=3, rounds=10)


# --- Ties ---------------------------------------------------------------------------------------


class Rows(Population):
    """Arms that stand in rows of equals; what an arm is worth tells which one was picked."""

    dim, noise = 3, 0.5

    def __init__(self, seed, pattern, wobble):
        self.seed, self.pattern, self.wobble = seed, np.array(pattern), wobble

    def episode(self, task, rounds):
        rng = np.random.default_rng([self.seed, task])
        kinds = rng.random((rounds, self.pattern.max() + 1, self.dim))
        kinds[:, 0] = 0.0
        contexts = kinds[:, self.pattern]
        if self.wobble:
            contexts = (
                contexts * (1 + self.wobble * rng.integers(-1, 2, contexts.shape[:2]))[..., None]
            )
        values = np.tile(-np.arange(float(len(self.pattern))), (rounds, 1))
        rewards = kinds.sum(-1)[:, self.pattern]
        return Episode(np.ascontiguousarray(contexts), values, np.ascontiguousarray(rewards))


@dataclasses.dataclass(frozen=True, repr=False)
class Twins(World):
    """``pattern`` says which arms are equals; 0 is a context of zeros."""

    pattern: tuple
    wobble: float = 0.0

    def population(self, seed):
        return Rows(seed, self.pattern, self.wobble)


def arms_of(trace):
    """The arms, told by what they are worth."""
    lost = np.diff(trace.regret, axis=-1, prepend=0.0)
    return np.rint(lost).astype(int)


@pytest.mark.parametrize("wobble", [0.0, 2.0**-52])
@pytest.mark.parametrize(
    "rule",
    [UCB(), UCB(0.0), Greedy(), Thompson(), Uniform(), Forced(9, UCB()), UCB("theory")],
    ids=repr,
)
def test_equals_have_equal_chances_wherever_they_stand(rule, wobble):
    """Also where their contexts differ in the last bit alone."""
    world = Twins((1, 2, 1, 1, 2, 1, 2), wobble)
    policy = Policy("who", Independent(), rule)
    sizes = {"seeds": tuple(range(6)), "tasks": 4, "rounds": 60}
    plain, compiled = (arms_of(play(world, [policy], engine, **sizes)["who"]) for engine in ENGINES)
    np.testing.assert_array_equal(compiled, plain)
    assert set(np.unique(plain)) <= set(range(7))
    for kind in (1, 2):
        places = [place for place, row in enumerate(world.pattern) if row == kind]
        counts = np.array([(plain == place).sum() for place in places])
        assert stats.chisquare(counts).pvalue > 1e-3


def test_a_tie_is_broken_among_the_leaders_only():
    world = Twins((0, 1, 0, 1, 1, 0))
    policies = [Policy("who", Bias(lam=1.0), UCB(2.0))]
    found = assert_agree(world, policies, seeds=tuple(range(5)), tasks=3, rounds=40)["who"]
    assert set(np.unique(arms_of(found))) == {1, 3, 4}


def test_differences_beyond_rounding_are_no_ties():
    """A context that is better by a billionth wins every time."""
    better = Changed(
        lambda episode: Episode(
            np.ones((len(episode.contexts), 3, 6)) * np.array([1.0, 1.0 + 1e-9, 1.0])[:, None],
            np.tile([0.0, -1.0, -2.0], (len(episode.contexts), 1)),
            np.ones((len(episode.contexts), 3)),
        )
    )
    found = assert_agree(better, [Policy("who", Independent(), UCB())])["who"]
    np.testing.assert_array_equal(arms_of(found), 1)


# --- Pairing ------------------------------------------------------------------------------------

EVERY = [policy(name) for name in ALGORITHMS if name != "mixture"]


@pytest.fixture(scope="module", params=ENGINES)
def together(request):
    return request.param, play(WORLD, EVERY, request.param, seeds=(1, 2, 3, 4), tasks=8)


@pytest.mark.parametrize("seeds", [(3,), (9, 4, 2)])
def test_a_seeds_results_do_not_depend_on_its_batch(together, seeds):
    engine, whole = together
    for name, trace in play(WORLD, EVERY, engine, seeds=seeds, tasks=8).items():
        for place, seed in enumerate(seeds):
            if seed in (1, 2, 3, 4):
                np.testing.assert_array_equal(
                    trace.regret[place], whole[name].regret[seed - 1], err_msg=f"{name} {seed}"
                )


def test_a_policys_results_do_not_depend_on_who_else_plays(together):
    engine, whole = together
    others = [*EVERY[::-3], Policy("another", Bias(), Thompson())]
    for name, trace in play(WORLD, others, engine, seeds=(1, 2, 3, 4), tasks=8).items():
        if name != "another":
            np.testing.assert_array_equal(trace.regret, whole[name].regret, err_msg=name)


# --- Without Numba ------------------------------------------------------------------------------


@pytest.fixture
def no_numba(monkeypatch):
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "headstart.kernels.compiled", raising=False)
    monkeypatch.delattr("headstart.kernels.compiled", raising=False)


def test_without_numba_the_compiled_engine_says_how_to_get_it(no_numba):
    with pytest.raises(hs.InputError, match=r"compiled.*Numba.*pip install 'headstart\[fast\]'"):
        play(WORLD, [policy("linucb")], "compiled")


def test_without_numba_auto_is_plain(no_numba):
    auto, plain = (play(WORLD, EVERY[:6], engine) for engine in ("auto", "plain"))
    for name, trace in auto.items():
        np.testing.assert_array_equal(trace.regret, plain[name].regret)


def test_the_plain_engine_never_asks_for_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "headstart.kernels.compiled", None)
    monkeypatch.delattr("headstart.kernels.compiled", raising=False)
    play(WORLD, [policy("linucb")], "plain", tasks=1)


@pytest.mark.parametrize("engine", ["gpu", "numba", "", None, 3])
def test_an_engine_that_there_is_not_is_refused_with_those_there_are(engine):
    with pytest.raises(hs.InputError) as caught:
        play(WORLD, [policy("linucb")], engine)
    for word in ("engine", "auto", "plain", "compiled", repr(engine)):
        assert word in str(caught.value)


def test_an_engine_is_refused_before_anything_is_played():
    class Never(World):
        def population(self, seed):
            raise AssertionError("asked for a population")

    with pytest.raises(hs.InputError, match="engine"):
        play(Never(), [policy("linucb")], "fast")


# --- Priors that never change -------------------------------------------------------------------


def no_fold(transfer):
    """The same transfer, which must not be folded."""

    @dataclasses.dataclass(frozen=True, repr=False, eq=False)
    class Unfolded(type(transfer)):
        def prior_is_known(self, noise):
            return transfer.prior_is_known(noise)

        def fold(self, state, evidence, weight=1.0):
            raise AssertionError("folded")

    return same_settings(Unfolded, transfer)


def always_folded(transfer):
    """The same transfer, folded whether it learns or not."""

    @dataclasses.dataclass(frozen=True, repr=False, eq=False)
    class Folded(type(transfer)):
        def prior_is_known(self, noise):
            return False

    return same_settings(Folded, transfer)


def same_settings(kind, transfer):
    return kind(*(getattr(transfer, field.name) for field in dataclasses.fields(transfer)))


def truths(seeds=SEEDS):
    populations = [WORLD.population(seed) for seed in seeds]
    return [
        policy(name).for_populations(populations).transfer
        for name in ("projection_oracle", "bayes_oracle")
    ]


FIXED = [Independent(), Independent(lam=7.0), Independent(lam="theory"), *truths()]
LEARNING = [
    Independent(lam="plug-in"),
    Bias(),
    Bias(lam=3.0, method="pooled"),
    Subspace(),
    Subspace(rank=2, lam1=9.0, lam2=1.0),
    Gaussian(),
    Gaussian(forced=False),
    EmpiricalBayes(),
    Mixture(),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("transfer", FIXED, ids=repr)
def test_a_fixed_prior_is_not_folded_and_decides_the_same(transfer, engine):
    for rule in (UCB(), Thompson(), Forced(5, UCB())):
        found = [
            play(WORLD, [Policy("who", each, rule)], engine, tasks=4)["who"].regret
            for each in (transfer, no_fold(transfer), always_folded(transfer))
        ]
        np.testing.assert_array_equal(found[1], found[0])
        np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("noise", [0.3, None])
@pytest.mark.parametrize("transfer", [*FIXED, *LEARNING], ids=repr)
def test_what_says_that_it_is_fixed_is(transfer, noise):
    """Whatever tasks show, its prior stays as it was; every other one changes."""
    rng = np.random.default_rng(5)
    batch = () if not transfer.batched else (2,)
    used = PerSeed(transfer) if not batch else transfer
    state = used.init(6, noise, (2,))
    before = used.prior(state)
    changed = False
    for _ in range(8):
        x = rng.standard_normal((2, 15, 6))
        evidence = Evidence.of(x, x @ [1.0, 0, 2, 0, 0, 3] + rng.standard_normal((2, 15)))
        state = used.fold(state, evidence.replace(forced=evidence))
        after = used.prior(state)
        changed |= not (type(after) is type(before) and after == before)
    assert changed != transfer.prior_is_known(noise)


def test_an_unknown_noise_is_always_learned():
    for transfer in (*FIXED, *LEARNING):
        assert not transfer.prior_is_known(None)


def test_a_transfer_of_ones_own_is_folded():
    assert not inspect.isabstract(Independent)
    assert Transfer.prior_is_known(Independent(), 0.1) is False


@dataclasses.dataclass(frozen=True, repr=False)
class LastTask(Independent):
    """Starts from the last task's estimate: it learns, though what it is made from does not."""

    def init(self, dim, noise=None, batch=()):
        return (super().init(dim, noise, batch), np.zeros((*batch, dim)))

    def fold(self, state, evidence, weight=1.0):
        return (state[0], evidence.ridge(1.0))

    def prior(self, state):
        return super().prior(state[0]).replace(mean=state[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_made_from_a_fixed_one_may_learn(engine):
    """A subclass may change anything: it is folded unless it says itself that it need not be."""
    found = play(WORLD, [Policy("who", LastTask(), UCB())], engine, probe=learned)["who"]
    assert (found.probes["mean"][:, 0] == 0.0).all()
    assert (found.probes["mean"][:, 1:] != 0.0).all()


# --- Plain rules --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (UCB(), LoopForm("ucb", 1.0)),
        (UCB(0), LoopForm("ucb", 0.0)),
        (UCB(2.5, delta=0.1, horizon=9), LoopForm("ucb", 2.5)),
        (UCB(np.float64(0.5)), LoopForm("ucb", 0.5)),
        (UCB("theory"), None),
        (UCB("paper"), None),
        (UCB(explore=0.1), None),
        (Thompson(), LoopForm("thompson", 0.25)),
        (Thompson(0, draws=7), LoopForm("thompson", 0.0)),
        (Thompson("paper"), None),
        (Thompson(explore=1e-9), None),
        (Greedy(), LoopForm("ucb", 0.0)),
        (Greedy(explore=0.5), None),
        (Uniform(), LoopForm("uniform", 0.0)),
        (Forced(4, UCB(0.5)), LoopForm("ucb", 0.5, 4)),
        (Forced(4, Thompson(0.5)), LoopForm("thompson", 0.5, 4)),
        (Forced(4, Greedy()), LoopForm("ucb", 0.0, 4)),
        (Forced(0, UCB(0.5)), LoopForm("ucb", 0.5, 0)),
        (Forced(4, UCB("theory")), None),
        (Forced(4, UCB(explore=0.2)), None),
    ],
    ids=repr,
)
def test_what_a_rule_comes_down_to(rule, wanted):
    found = rule.loop_form()
    assert found == wanted
    if found is not None:
        assert found.code in (0, 1, 2)
        assert type(found.multiplier) is float
        assert type(found.forced) is int


@pytest.mark.parametrize(
    "rule",
    [
        Forced(3, Forced(8, UCB())),
        Forced(8, Forced(3, UCB())),
        Forced(0, Forced(3, UCB())),
        Forced(3, Forced(0, UCB())),
        Forced(2, Forced(3, Forced(4, Thompson()))),
    ],
    ids=repr,
)
def test_forced_rounds_within_forced_rounds_are_plain_only_where_that_is_right(rule):
    """They count from the task's start, not from each other's end."""
    found = rule.loop_form()
    longest, inner = 0, rule
    while isinstance(inner, Forced):
        longest, inner = max(longest, inner.rounds), inner.then
    assert found is None or found == inner.loop_form()._replace(forced=longest)


def subclass_of(kind):
    @dataclasses.dataclass(frozen=True, repr=False)
    class Mine(kind):
        """It may change anything."""

    return Mine


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(UCB, ()), (Thompson, ()), (Greedy, ()), (Uniform, ()), (Forced, (3, UCB()))],
)
def test_a_rule_made_from_another_is_not_plain(kind, settings):
    mine = subclass_of(kind)(*settings)
    assert mine.loop_form() is None
    assert Forced(3, mine).loop_form() is None


def test_a_rule_of_ones_own_is_not_plain_and_plays_its_own_game():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Backwards(Indexed):
        """The worst that it knows of."""

        def index(self, belief, contexts, rng):
            return -belief.predict(contexts)

    @dataclasses.dataclass(frozen=True, repr=False)
    class Timid(UCB):
        """Pessimism, under the name of optimism."""

        def gamma(self, belief):
            return -super().gamma(belief)

    rules = {"backwards": Backwards(), "timid": Timid(), "usual": UCB()}
    for rule in (Backwards(), Timid()):
        assert rule.loop_form() is None
    policies = [Policy(name, Independent(), rule) for name, rule in rules.items()]
    found = assert_agree(WORLD, policies)
    totals = {name: trace.regret[..., -1].sum() for name, trace in found.items()}
    assert totals["backwards"] > 2 * totals["usual"]
    assert totals["timid"] != totals["usual"]


def test_every_rule_of_the_library_was_thought_of():
    known = {UCB, Thompson, Greedy, Uniform, Forced}
    from headstart import rules

    concrete = {
        kind
        for kind in vars(rules).values()
        if inspect.isclass(kind) and issubclass(kind, Rule) and not inspect.isabstract(kind)
    }
    assert concrete == known


def test_policies_of_the_paper_are_plain_ones():
    """So that all of them are compiled."""
    populations = [Synthetic(dim=6, rank=2, arms=5).population(0)]
    for name in ALGORITHMS:
        assert policy(name).for_populations(populations).rule.loop_form() is not None, name
    forced = policy("meta_ts").for_populations(populations).rule
    assert forced.loop_form() == LoopForm("thompson", 0.25, 12)
    printed = policy("projected_ts", scale="paper").for_populations(populations).rule
    assert printed.loop_form() is None
    assert isinstance(truths()[0], Oracle)
