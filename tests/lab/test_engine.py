"""The engine: the same decisions as a plain implementation, on episodes that all policies share.

The plain implementation is all here: one seed, one task, one round after another, the matrix B
inverted anew in every round. It takes nothing from headstart but the world and the numbers in a
policy's settings.
"""

import dataclasses
import math
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

import headstart as hs
from headstart.lab import probes
from headstart.lab.engine import simulate
from headstart.lab.policies import Policy, policy
from headstart.rules import UCB, Rule
from headstart.transfer import Bias, Independent
from headstart.worlds import Synthetic
from headstart.worlds.base import Population, Truth, World

DIM, ARMS, TASKS, ROUNDS, SEEDS = 6, 5, 12, 25, (3, 8)
FORCED = 2 * DIM
RIDGE = 1 / 250  # the λ of a task's estimate, 1/(nV²), where nothing else is said
WORLD = Synthetic(dim=DIM, rank=2, arms=ARMS)


# --- The plain implementation -------------------------------------------------------------------


class Past:
    """What is kept of the finished tasks: contexts and rewards of every round, forced or not."""

    def __init__(self):
        self.tasks = []

    def add(self, contexts, rewards, forced):
        self.tasks.append((np.array(contexts), np.array(rewards), np.array(forced, dtype=bool)))

    def ridge_estimates(self):
        return np.array(
            [np.linalg.inv(x.T @ x + RIDGE * np.eye(DIM)) @ (x.T @ r) for x, r, _ in self.tasks]
        )


def no_learning(settings):
    """LinUCB and LinTS: θ ~ N(0, (R²/λ) I)."""
    return lambda past, population: (np.zeros(DIM), np.eye(DIM) / math.sqrt(settings.lam))


def around_the_mean(settings):
    """B-OFUL: around the mean of the tasks' ridge estimates."""

    def prior(past, population):
        mean = past.ridge_estimates().mean(0) if past.tasks else np.zeros(DIM)
        return mean, np.eye(DIM) / math.sqrt(settings.lam)

    return prior


def estimates_covariance(past, noise):
    """The covariance of the tasks' estimates."""
    return np.cov(past.ridge_estimates().T, bias=True)


def tasks_covariance(past, noise):
    """The same without what noise adds: S − R² mean(A⁻¹GA⁻¹) + s² mean (λA⁻¹)².

    Where it comes out smaller than √(2/N) of what it was before, it is no smaller than that.
    """
    count, estimates = len(past.tasks), past.ridge_estimates()
    error, blank = np.zeros((DIM, DIM)), np.zeros((DIM, DIM))
    for x, _, _ in past.tasks:
        inverse = np.linalg.inv(x.T @ x + RIDGE * np.eye(DIM))
        error += noise**2 * inverse @ x.T @ x @ inverse / count
        blank += (RIDGE * inverse) @ (RIDGE * inverse) / count
    seen = np.square(estimates).sum() / count - np.trace(error)
    raw = np.cov(estimates.T, bias=True) + max(seen, 0) / (DIM - np.trace(blank)) * blank
    values, vectors = np.linalg.eigh(raw - error)
    least = [math.sqrt(2 / count) * v @ raw @ v for v in vectors.T]
    return vectors @ np.diag(np.maximum(values, least)) @ vectors.T


def near_a_plane(settings):
    """P-LinUCB and P-TS: N(P⊥θ̄, R² (P⊥/λ₁ + P/λ₂)), and P = I until the warm-up is over."""

    def prior(past, population):
        inside, mean = np.eye(DIM), np.zeros(DIM)
        if len(past.tasks) >= settings.warmup:
            mean = past.ridge_estimates().mean(0)
            inside = top_components(settings.covariance(past, population.noise), settings.rank)
        outside = np.eye(DIM) - inside
        return outside @ mean, outside / math.sqrt(settings.lam1) + inside / math.sqrt(
            settings.lam2
        )

    return prior


def top_components(covariance, rank):
    """The projection onto the principal components."""
    _, vectors = np.linalg.eigh(covariance)
    return vectors[:, DIM - rank :] @ vectors[:, DIM - rank :].T


def from_forced_rounds(settings):
    """M-TS: mean and covariance of the least-squares estimates from forced rounds."""

    def prior(past, population):
        count = len(past.tasks)
        if count < DIM:
            return np.zeros(DIM), np.eye(DIM) / math.sqrt(settings.lam)
        estimates, errors = [], []
        for x, r, forced in past.tasks:
            inverse = np.linalg.inv(x[forced].T @ x[forced])
            estimates.append(inverse @ (x[forced].T @ r[forced]))
            errors.append(inverse)
        mean = np.mean(estimates, axis=0)
        sample = sum(np.outer(v - mean, v - mean) for v in estimates) / (count - 1)
        sigma = sample - population.noise**2 * np.mean(errors, axis=0)
        values, vectors = np.linalg.eigh(sigma)
        average = values.mean()
        assert average > 0
        values = np.maximum(values, 1e-3 * average)
        values = values + 0.1 * values.mean() * math.sqrt(DIM / count)
        return mean, vectors @ np.diag(np.sqrt(values)) @ vectors.T / population.noise

    return prior


def told_the_plane(settings):
    """The projection oracle."""

    def prior(past, population):
        basis = population.truth.basis
        inside = basis @ basis.T
        outside = np.eye(DIM) - inside
        root = outside / math.sqrt(settings.lam1) + inside / math.sqrt(settings.lam2)
        return outside @ population.truth.mean, root

    return prior


def told_the_covariance(settings):
    """The Bayes oracle."""

    def prior(past, population):
        values, vectors = np.linalg.eigh(population.truth.covariance)
        root = vectors @ np.diag(np.sqrt(np.maximum(values, 0))) @ vectors.T
        return population.truth.mean, root / population.noise

    return prior


def optimism(settings):
    """Play a round by the largest xᵀθ̂ + γ‖x‖_{B⁻¹}."""

    def index(state, contexts, noise, normals):
        inverse = np.linalg.inv(state.b)
        theta = inverse @ state.c
        gamma = settings.radius
        if gamma == "theory":
            gained = np.linalg.slogdet(state.b)[1] - np.linalg.slogdet(state.b0)[1]
            gamma = math.sqrt(gained + 2 * math.log(250)) + math.sqrt(settings.lam) / noise
        return [x @ theta + gamma * noise * math.sqrt(x @ inverse @ x) for x in contexts]

    return index


def sampling(settings):
    """Play a round by the largest xᵀθ̃, θ̃ = θ̂ + v F z: the draw goes through the root F."""

    def index(state, contexts, noise, normals):
        theta = np.linalg.inv(state.b) @ state.c
        drawn = theta + settings.scale * noise * (state.root @ normals)
        return [x @ drawn for x in contexts]

    return index


def play_plainly(name, make_prior, make_index, seed, settings, world=WORLD):
    """Regret of every task and round, the arms picked, and what is remembered at the end.

    A task's random numbers are drawn when it starts: a uniform for every round, which decides
    forced choices and ties, then the normals of every round, if the policy samples.
    """
    forced_rounds = getattr(settings, "forced_rounds", 0)
    population = world.population(seed)
    rng = np.random.default_rng([seed, 2, zlib.crc32(name.encode())])
    past, regret, arms = Past(), np.empty((TASKS, ROUNDS)), np.empty((TASKS, ROUNDS), dtype=int)
    for task in range(TASKS):
        episode = population.episode(task, ROUNDS)
        mean, root = make_prior(past, population)
        b0 = np.linalg.inv(root @ root.T)
        state = SimpleNamespace(b=b0.copy(), b0=b0, c=b0 @ mean, root=root.copy())
        picked, earned, forced = [], [], []
        uniforms = rng.random(ROUNDS)
        normals = rng.standard_normal((ROUNDS, DIM)) if hasattr(settings, "scale") else [None] * 99
        for k in range(ROUNDS):
            contexts = episode.contexts[k]
            leading = range(ARMS)
            if k >= forced_rounds:
                scores = np.array(make_index(state, contexts, population.noise, normals[k]))
                # Contexts of length 1 are all as uncertain in a task's first round: ties are
                # frequent.
                leading = np.flatnonzero(scores >= scores.max() - 1e-12)
            arm = int(leading[math.floor(uniforms[k] * len(leading))])
            x, r = contexts[arm], episode.rewards[k, arm]
            state.b = state.b + np.outer(x, x)
            state.c = state.c + r * x
            u = state.root.T @ x
            g = math.sqrt(1 + u @ u)
            state.root = state.root - np.outer(state.root @ u, u) / (g * (1 + g))
            regret[task, k] = episode.values[k].max() - episode.values[k, arm]
            arms[task, k] = arm
            picked.append(x)
            earned.append(r)
            forced.append(k < forced_rounds)
        past.add(picked, earned, forced)
    return SimpleNamespace(regret=regret, arms=arms, past=past)


PLANE = {"rank": 2, "lam1": 25.0, "lam2": 0.5, "warmup": 4}

#: A policy of the laboratory, and the same in the plain implementation.
PAIRS = {
    "LinUCB": (
        policy("linucb", lam=0.5, radius=0.8),
        no_learning,
        optimism,
        {"lam": 0.5, "radius": 0.8},
    ),
    "LinUCB, theory": (
        dataclasses.replace(policy("linucb", lam=0.5, radius="theory"), name="LinUCB, theory"),
        no_learning,
        optimism,
        {"lam": 0.5, "radius": "theory"},
    ),
    "LinTS": (
        policy("lints", lam=0.5, scale=0.6),
        no_learning,
        sampling,
        {"lam": 0.5, "scale": 0.6},
    ),
    "B-OFUL": (
        policy("bias_oful", lam=2.0, radius=0.8),
        around_the_mean,
        optimism,
        {"lam": 2.0, "radius": 0.8},
    ),
    "P-LinUCB": (
        policy("projected_linucb", radius=0.8, **PLANE),
        near_a_plane,
        optimism,
        {"radius": 0.8, "covariance": tasks_covariance, **PLANE},
    ),
    "P-LinUCB, exact": (
        dataclasses.replace(
            policy("projected_linucb", radius=0.8, pca="exact", **PLANE), name="P-LinUCB, exact"
        ),
        near_a_plane,
        optimism,
        {"radius": 0.8, "covariance": estimates_covariance, **PLANE},
    ),
    "P-TS": (
        policy("projected_ts", scale=0.6, **PLANE),
        near_a_plane,
        sampling,
        {"scale": 0.6, "covariance": tasks_covariance, **PLANE},
    ),
    "M-TS": (
        policy("meta_ts", lam=2.0, scale=0.6, forced_rounds=FORCED),
        from_forced_rounds,
        sampling,
        {"lam": 2.0, "scale": 0.6, "forced_rounds": FORCED},
    ),
    "projection oracle": (
        policy("projection_oracle", lam1=25.0, lam2=0.5, radius=0.8),
        told_the_plane,
        optimism,
        {"lam1": 25.0, "lam2": 0.5, "radius": 0.8},
    ),
    "Bayes oracle": (
        policy("bayes_oracle", radius=0.8),
        told_the_covariance,
        optimism,
        {"radius": 0.8},
    ),
}


@pytest.fixture(scope="module", params=["plain", "compiled"])
def traces(request):
    """The laboratory's regret since each task's start, after every round."""
    policies = [policy for policy, *_ in PAIRS.values()]
    every = range(1, ROUNDS + 1)
    return simulate(
        WORLD, policies, SEEDS, TASKS, ROUNDS, every, probes.residual, engine=request.param
    )


@pytest.fixture(scope="module")
def plain():
    """The plain implementation's games, by policy and seed."""

    def play(name, seed):
        _, make_prior, make_index, options = PAIRS[name]
        settings = SimpleNamespace(**options)
        return play_plainly(name, make_prior(settings), make_index(settings), seed, settings)

    return {(name, seed): play(name, seed) for name in PAIRS for seed in SEEDS}


@pytest.mark.parametrize("name", PAIRS)
def test_same_decisions_as_a_plain_implementation(traces, plain, name):
    for place, seed in enumerate(SEEDS):
        ours = np.diff(traces[name].regret[place], axis=-1, prepend=0.0)
        np.testing.assert_allclose(ours, plain[name, seed].regret, rtol=0, atol=1e-9)


def test_the_plain_games_differ_so_that_agreement_means_something(plain):
    totals = [plain[name, SEEDS[0]].regret.sum() for name in PAIRS]
    assert len(np.unique(np.round(totals, 6))) == len(PAIRS)
    learned = plain["P-LinUCB", SEEDS[0]].regret[PLANE["warmup"] :].sum()
    assert learned < plain["LinUCB", SEEDS[0]].regret[PLANE["warmup"] :].sum()


def test_the_residual_probe_is_a_new_tasks_distance_from_what_was_learned(traces, plain):
    for place, seed in enumerate(SEEDS):
        population = WORLD.population(seed)
        for name, start in (("P-LinUCB, exact", PLANE["warmup"]), ("B-OFUL", 1)):
            estimates = plain[name, seed].past.ridge_estimates()
            for task in range(TASKS):
                found = traces[name].probes["W"][place, task]
                if task < start:
                    assert np.isnan(found)
                    continue
                away = population.episode(task, 1).theta - estimates[:task].mean(0)
                if name == "P-LinUCB, exact":
                    inside = top_components(np.cov(estimates[:task].T, bias=True), PLANE["rank"])
                    away = away - inside @ away
                assert found == pytest.approx(np.linalg.norm(away), rel=1e-8)
        np.testing.assert_allclose(
            traces["P-LinUCB"].probes["W2"][place], traces["P-LinUCB"].probes["W"][place] ** 2
        )


def test_a_policy_without_a_subspace_has_no_residual(traces):
    for name in ("LinUCB", "LinTS", "M-TS", "projection oracle", "Bayes oracle"):
        assert traces[name].probes == {}


# --- Pairing ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class Recorded(Rule):
    """Notes what is offered and picked."""

    rule: Rule
    log: list = dataclasses.field(default_factory=list)

    def choose(self, belief, contexts, rng, allowed=None):
        pick = self.rule.choose(belief, contexts, rng, allowed)
        self.log.append((contexts.copy(), np.array(pick.arm)))
        return pick

    def propensities(self, belief, contexts, rng, allowed=None):
        return self.rule.propensities(belief, contexts, rng, allowed)


@dataclasses.dataclass(frozen=True, repr=False)
class Folded(Independent):
    """Notes the evidence of finished tasks, which nobody would fold if the prior were fixed."""

    log: list = dataclasses.field(default_factory=list)

    def prior_is_known(self, noise):
        return False

    def fold(self, state, evidence, weight=1.0):
        self.log.append(evidence)
        return super().fold(state, evidence, weight)


class Watched(World):
    """A world that notes which episodes are asked for."""

    def __init__(self, world):
        self.world, self.asked = world, []

    def population(self, seed):
        population, inner = self.world.population(seed), self.world.population(seed)

        def episode(task, rounds):
            self.asked.append((seed, task, rounds))
            return inner.episode(task, rounds)

        population.episode = episode
        return population


def test_all_policies_see_the_same_contexts_and_learn_from_their_own_picks():
    world = Watched(WORLD)
    eager, careful = (
        Policy(name, Folded(), Recorded(UCB(radius))) for name, radius in (("a", 0.1), ("b", 3.0))
    )
    seen = {}

    def look(transfer, state, episodes):
        seen.setdefault(len(transfer.log), []).append(episodes)
        return {}

    simulate(world, [eager, careful], SEEDS, 3, 10, probe=look)
    assert sorted(world.asked) == [(seed, task, 10) for seed in SEEDS for task in range(3)]
    for (offered, _), (other, _) in zip(eager.rule.log, careful.rule.log, strict=True):
        np.testing.assert_array_equal(offered, other)
    arms = [[arm for _, arm in policy.rule.log] for policy in (eager, careful)]
    assert (np.array(arms[0]) != np.array(arms[1])).any()
    for each in (eager, careful):
        for task, evidence in enumerate(each.transfer.log):
            for place in range(len(SEEDS)):
                episode = seen[task][0][place]
                arms = [arm[place] for _, arm in each.rule.log[10 * task : 10 * task + 10]]
                x, r = episode.contexts[range(10), arms], episode.rewards[range(10), arms]
                np.testing.assert_allclose(evidence.gram[place], x.T @ x, atol=1e-12)
                np.testing.assert_allclose(evidence.moment[place], r @ x, atol=1e-12)
                np.testing.assert_allclose(evidence.squares[place], r @ r)
    for episodes in seen.values():  # one look per policy: the very same episodes
        assert len(episodes) == 2
        assert all(a is b for a, b in zip(*episodes, strict=True))


EVERY = (
    policy("linucb"),
    policy("lints"),
    policy("bias_oful"),
    policy("projected_linucb", warmup=4),
    policy("projected_ts", rank="ungated", warmup=4),
    policy("meta_ts", forced_rounds=FORCED),
    policy("meta_ts_unforced"),
    policy("projection_oracle"),
    policy("bayes_oracle"),
)


@pytest.fixture(scope="module")
def together():
    return simulate(WORLD, EVERY, (1, 2, 3, 4), 8, 20, (5, 20), probes.residual)


def assert_same(trace, other, places=slice(None)):
    np.testing.assert_array_equal(trace.regret, other.regret[places])
    assert trace.probes.keys() == other.probes.keys()
    for key, values in trace.probes.items():
        np.testing.assert_array_equal(values, other.probes[key][places])


@pytest.mark.parametrize("seeds", [(3,), (4, 1), (9, 3, 2), (2, 3, 4, 5, 6, 7)])
def test_a_seeds_results_do_not_depend_on_its_batch(together, seeds):
    found = simulate(WORLD, EVERY, seeds, 8, 20, (5, 20), probes.residual)
    for name, trace in found.items():
        for place, seed in enumerate(seeds):
            if seed in (1, 2, 3, 4):
                np.testing.assert_array_equal(
                    trace.regret[place], together[name].regret[seed - 1], err_msg=f"{name} {seed}"
                )


def test_the_order_of_policies_does_not_matter(together):
    found = simulate(WORLD, EVERY[::-1], (1, 2, 3, 4), 8, 20, (5, 20), probes.residual)
    for name, trace in found.items():
        assert_same(trace, together[name])


def test_a_policy_alone_does_as_it_does_among_others(together):
    for each in EVERY:
        alone = simulate(WORLD, [each], (1, 2, 3, 4), 8, 20, (5, 20), probes.residual)
        assert_same(alone[each.name], together[each.name])


def test_fewer_tasks_are_the_first_of_more(together):
    found = simulate(WORLD, EVERY, (1, 2, 3, 4), 5, 20, (5, 20))
    for name, trace in found.items():
        np.testing.assert_array_equal(trace.regret, together[name].regret[:, :5])


def test_a_simulation_repeats_exactly(together):
    again = simulate(WORLD, EVERY, (1, 2, 3, 4), 8, 20, (5, 20), probes.residual)
    for name, trace in again.items():
        assert_same(trace, together[name])


def test_policies_with_different_names_draw_differently():
    twins = [policy("lints", name) for name in ("one", "other")]
    found = simulate(WORLD, twins, SEEDS, 2, 20)
    assert (found["one"].regret != found["other"].regret).any()
    # An oracle that chooses by optimism draws nothing but ties, which it does not have.
    twins = [policy("bayes_oracle", name) for name in ("one", "other")]
    found = simulate(WORLD, twins, SEEDS, 2, 20)
    np.testing.assert_array_equal(found["one"].regret, found["other"].regret)


# --- Noise that nobody knows --------------------------------------------------------------------


class Scaled(World):
    """The world in another unit of reward, its noise not told."""

    def __init__(self, scale):
        self.scale = scale

    def population(self, seed):
        population = WORLD.population(seed)
        inner, scale = WORLD.population(seed), self.scale

        def episode(task, rounds):
            found = inner.episode(task, rounds)
            return found._replace(values=scale * found.values, rewards=scale * found.rewards)

        population.episode = episode
        population.noise = None
        truth = population.truth
        population.truth = Truth(scale * truth.mean, scale**2 * truth.covariance, truth.basis)
        return population


#: All but the oracles: what those are told is in the unit of reward, and R counts as 1 until the
#: first reward has come.
LEARNERS = EVERY[:-2]


def noise_of(transfer, state, episodes):
    return {"noise": np.broadcast_to(transfer.prior(state).noise, len(episodes))}


def test_unknown_noise_is_estimated_from_finished_tasks():
    found = simulate(Scaled(1.0), EVERY, SEEDS, 10, 40, probe=noise_of)
    for name, trace in found.items():
        last = trace.probes["noise"][:, -1]
        np.testing.assert_allclose(last, WORLD.noise, rtol=0.15, err_msg=name)


def test_with_unknown_noise_the_unit_of_reward_does_not_matter():
    here, there = (
        simulate(Scaled(scale), LEARNERS, SEEDS, 10, 25, range(1, 26)) for scale in (1.0, 1000.0)
    )
    for name in here:
        np.testing.assert_allclose(
            there[name].regret, 1000.0 * here[name].regret, rtol=1e-9, atol=1e-9, err_msg=name
        )


def test_known_noise_is_what_policies_are_told():
    found = simulate(WORLD, EVERY, SEEDS, 2, 10, probe=noise_of)
    for trace in found.values():
        np.testing.assert_array_equal(trace.probes["noise"], WORLD.noise)


def told_nothing():
    return Policy("told nothing", hs.EmpiricalBayes(), UCB(), knows_noise=False)


def test_a_policy_that_should_find_the_noise_by_itself_is_not_told():
    """In a world whose noise is known, it decides as in one whose noise is not."""
    told = dataclasses.replace(told_nothing(), name="told", knows_noise=True)
    found = simulate(WORLD, [told_nothing(), told], SEEDS, 8, 25, probe=noise_of)
    np.testing.assert_allclose(found["told"].probes["noise"], WORLD.noise, rtol=1e-12)
    by_itself = found["told nothing"]
    assert (by_itself.probes["noise"][:, 0] == 1.0).all()
    np.testing.assert_allclose(by_itself.probes["noise"][:, -1], WORLD.noise, rtol=0.25)
    nobody_knows = simulate(Scaled(1.0), [told_nothing()], SEEDS, 8, 25)["told nothing"]
    np.testing.assert_array_equal(by_itself.regret, nobody_knows.regret)


def test_a_task_on_its_own_finds_the_scale_of_its_parameter_too():
    """From its first reward on, where a transfer can tell: whatever the unit of reward is."""
    here, there = (
        simulate(Scaled(scale), [told_nothing()], SEEDS, 6, 25, range(1, 26))["told nothing"]
        for scale in (1.0, 1000.0)
    )
    np.testing.assert_allclose(there.regret, 1000.0 * here.regret, rtol=1e-7, atol=1e-9)


class Uneven(World):
    """Every population has a noise of its own, as the interface allows."""

    def population(self, seed):
        return dataclasses.replace(WORLD, noise=0.05 * 3**seed).population(seed)


def test_populations_may_differ_in_their_noise():
    """A seed whose noise differs from its neighbour's plays as it would alone, or is refused."""
    policies = [policy("linucb"), policy("bias_oful")]
    try:
        both = simulate(Uneven(), policies, (0, 1), 4, 20)
    except hs.InputError:
        return
    alone = simulate(Uneven(), policies, (1,), 4, 20)
    for name, trace in alone.items():
        np.testing.assert_array_equal(trace.regret[0], both[name].regret[1])


# --- What is recorded ---------------------------------------------------------------------------


def test_checkpoints_are_regret_since_the_tasks_start(together):
    whole = simulate(WORLD, [policy("linucb")], (1, 2, 3, 4), 8, 20, range(1, 21))["LinUCB"].regret
    assert whole.shape == (4, 8, 20)
    assert (np.diff(whole, axis=-1) >= 0).all()
    assert (whole[..., 0] >= 0).all()
    np.testing.assert_array_equal(together["LinUCB"].regret, whole[..., [4, 19]])
    last = simulate(WORLD, [policy("linucb")], (1, 2, 3, 4), 8, 20)["LinUCB"].regret
    np.testing.assert_array_equal(last, whole[..., [19]])


def test_a_probe_looks_at_every_policy_when_a_task_starts():
    looks = []

    def probe(transfer, state, episodes):
        looks.append(len(episodes))
        if isinstance(transfer, Bias):
            return {"tasks": np.asarray(state.estimates.count)}
        return {}

    found = simulate(WORLD, [policy("linucb"), policy("bias_oful")], SEEDS, 4, 10, probe=probe)
    assert looks == [len(SEEDS)] * 8
    np.testing.assert_array_equal(found["B-OFUL"].probes["tasks"], [[0, 1, 2, 3]] * 2)
    assert found["LinUCB"].probes == {}


def test_progress_adds_up_to_all_policy_rounds():
    steps = []
    simulate(WORLD, EVERY[:3], SEEDS, 4, 10, progress=steps.append)
    assert steps == [10 * len(SEEDS) * 3] * 4


# --- What is refused ----------------------------------------------------------------------------


def test_two_policies_of_one_name_are_refused():
    with pytest.raises(hs.InputError, match="different names"):
        simulate(WORLD, [policy("linucb"), policy("linucb", lam=2.0)], SEEDS, 2, 5)


class Three(World):
    """A world of three tasks."""

    def population(self, seed):
        population: Population = WORLD.population(seed)
        population.tasks = 3
        return population


def test_more_tasks_than_a_world_has_are_refused():
    simulate(Three(), [policy("linucb")], SEEDS, 3, 5)
    with pytest.raises(hs.InputError, match="at most 3"):
        simulate(Three(), [policy("linucb")], SEEDS, 4, 5)


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        ({"tasks": 0}, "tasks"),
        ({"tasks": 1.5}, "tasks"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"checkpoints": [6]}, "checkpoints"),
        ({"checkpoints": [0]}, "checkpoints"),
        ({"checkpoints": [2.5]}, "checkpoints"),
        ({"seeds": [-1]}, "seed"),
        ({"seeds": []}, "seed"),
    ],
)
def test_bad_sizes_are_refused_by_name(sizes, word):
    usual = {"seeds": SEEDS, "tasks": 2, "rounds": 5}
    with pytest.raises(hs.InputError, match=word):
        simulate(WORLD, [policy("linucb")], **{**usual, **sizes})


def test_oracles_are_refused_where_there_is_no_truth():
    drifting = Synthetic(dim=DIM, rank=2, arms=ARMS, drift=0.01)
    with pytest.raises(hs.InputError, match="no known truth"):
        simulate(drifting, [policy("bayes_oracle")], SEEDS, 2, 5)
    clusters = Synthetic(dim=DIM, rank=2, arms=ARMS, clusters=2)
    with pytest.raises(hs.InputError, match="no single subspace"):
        simulate(clusters, [policy("projection_oracle")], SEEDS, 2, 5)
