"""Is what a GPU plays what it should be? Every check is a function; without a GPU nothing runs.

From the repository's root, with NumPy, SciPy, CuPy and JAX and nothing else installed::

    PYTHONPATH=src python -m benchmarks.gpu.check

prints one line for each check and exits with 1 if one fails, with 2 if there is no GPU. The tests
(``tests/lab/test_gpu.py``) call the same functions.
"""

from __future__ import annotations

import itertools
import sys
import time
from types import SimpleNamespace

import numpy as np
from scipy import stats

from headstart.algorithms import DEFAULT
from headstart.lab.engine import seed_prior, simulate
from headstart.lab.policies import PAPER, parse
from headstart.model.evidence import Evidence
from headstart.model.own_noise import rebuild_rounds
from headstart.model.prior import Prior
from headstart.rules import LoopForm
from headstart.worlds import Synthetic

SIZES = ((30, 20), (18, 10), (5, 3), (40, 50), (31, 33), (63, 20), (1, 1))

OURS = ("linucb", "empirical_bayes", "empirical_bayes:units=given,intercept=false")

RULES = {
    "UCB": LoopForm("ucb", 1.0),
    "Thompson": LoopForm("thompson", 1.0),
    "forced, then Thompson": LoopForm("thompson", 0.5, 37),
    "Uniform": LoopForm("uniform", 0.0),
    "forced, then UCB": LoopForm("ucb", 2.0, 10),
    "greedy": LoopForm("ucb", 0.0),
}


# --- One task, with everything that happened ----------------------------------------------------


def world_of(dim: int, arms: int) -> Synthetic:
    """A world of this size, with so much noise that exploration decides as often as the mean."""
    return Synthetic(dim=dim, rank=dim // 2, arms=arms, noise=0.5)


def populations_of(world, seeds):
    """The populations of some seeds."""
    with np.errstate(invalid="ignore"):  # one dimension has nothing to turn in
        return [world.population(seed) for seed in seeds]


def record_task(
    world,
    rules=RULES,
    seeds=(3, 8),
    rounds=120,
    *,
    marks=None,
    double=False,
    task=0,
    priors=None,
    deviations=None,
    stops=(),
    estimates_noise=False,
):
    """One task on the GPU: contexts, rewards, draws, arms and all else, as NumPy's arrays.

    ``priors`` are means and roots, a random pair unless given. ``deviations`` of contexts take the
    place of the populations' own. The task is played in parts, up to each of ``stops``.
    """
    import cupy as cp

    from headstart.lab.gpu.rounds import Rounds

    populations = populations_of(world, seeds)
    marks = (rounds,) if marks is None else marks
    table = Rounds(
        world,
        populations,
        list(rules.values()),
        list(rules),
        task + 1,
        rounds,
        marks,
        double=double,
        record_all=True,
        estimates_noise=[estimates_noise] * len(rules),
    )
    if deviations is not None:
        table.deviations[...] = cp.asarray(deviations, table.deviations.dtype)
    if priors is None:
        priors = random_priors(len(rules), len(seeds), world.dim)
    real = np.float64 if double else np.float32
    means, roots = (cp.asarray(np.ascontiguousarray(part, real)) for part in priors)
    for start, stop in itertools.pairwise((0, *stops, rounds)):
        table.play(task, means.data.ptr, roots.data.ptr, start=start, stop=stop)
        table.wait()
        means, roots = table.means.copy(), table.roots.copy()
    record = {name: array.get() for name, array in table.recorded.items()}
    return SimpleNamespace(
        **record,
        chosen_contexts=table.chosen_contexts.get(),
        chosen_rewards=table.chosen_rewards.get(),
        regret=table.regret.get()[task],
        theta=table.thetas.get()[task].astype(float),
        means=np.asarray(priors[0], real).astype(float),
        roots=np.asarray(priors[1], real).astype(float),
        rules=list(rules.values()),
        marks=np.asarray(marks),
        noise=float(world.noise),
    )


def random_priors(policies, seeds, dim):
    """Means and roots without any symmetry."""
    rng = np.random.default_rng(dim)
    means = 0.2 * rng.standard_normal((policies, seeds, dim))
    return means, rng.standard_normal((policies, seeds, dim, dim)) / np.sqrt(dim)


def replay(record, policy, seed, near=0.0):
    """The rounds in which a plain loop in double precision would have picked another arm.

    ``near`` is how far apart two indices are that count as one.
    """
    rule = record.rules[policy]
    contexts, rewards = record.contexts[seed].astype(float), record.rewards[seed].astype(float)
    arms, draws = record.arms[policy, seed], record.draws[policy, seed].astype(float)
    mean, root = record.means[policy, seed].copy(), record.roots[policy, seed].copy()
    amount = rule.multiplier * record.noise
    others = []
    for k, offered in enumerate(contexts):
        arm = arms[k]
        if k >= rule.forced and rule.kind != "uniform":
            if rule.kind == "ucb":
                index = offered @ mean + amount * np.sqrt(np.square(offered @ root).sum(1))
            else:
                index = offered @ (mean + amount * (root @ draws[k]))
            if index[arm] < index.max() - near:
                others.append(k)
        x, reward = offered[arm], rewards[k, arm]
        u = root.T @ x
        s = u @ u
        g = np.sqrt(1.0 + s)
        gain = root @ u
        mean = mean + gain * (reward - x @ mean) / (1.0 + s)
        root = root - np.outer(gain, u) / (g * (1.0 + g))
    return others


# --- Decisions ----------------------------------------------------------------------------------


def check_choices(dim, arms, double):
    """A plain loop makes the same choices: all of them, or 99 % in single precision."""
    record = record_task(world_of(dim, arms), double=double)
    choices = wrong = 0
    for policy, name in enumerate(RULES):
        for seed in range(record.arms.shape[1]):
            others = replay(record, policy, seed, 1e-12 if double else 0.0)
            if record.rules[policy].kind != "uniform":
                choices += record.arms.shape[2] - record.rules[policy].forced
            wrong += len(others)
            assert not (double and others), f"{name}: other arms in rounds {others}"
    assert wrong <= 0.01 * choices, f"{wrong} of {choices} choices differ"
    assert_in_order(record)
    return f"{wrong} of {choices} choices differ"


def assert_in_order(record):
    """What comes back of a task is what its arms were offered, earned and cost."""
    policies, seeds, rounds = record.arms.shape
    at = (np.arange(seeds)[:, None], np.arange(rounds))
    values = np.einsum("srkd,sd->srk", record.contexts, record.theta)
    lost = values.max(-1)[None] - np.stack([values[(*at, arms)] for arms in record.arms])
    assert record.arms.min() >= 0
    assert record.arms.max() < record.contexts.shape[2]
    for policy in range(policies):
        arms = record.arms[policy]
        same(record.chosen_contexts[policy], record.contexts[(*at, arms)], 0.0, "chosen_contexts")
        same(record.chosen_rewards[policy], record.rewards[(*at, arms)], 1e-5, "chosen_rewards")
    same(record.regret, lost.cumsum(-1)[..., record.marks - 1], 1e-5 * rounds, "regret")


def same(left, right, near, what):
    """Equal up to ``near``."""
    assert left.shape == right.shape, f"{what}: {left.shape} and {right.shape}"
    assert np.isfinite(left).all(), f"{what} has numbers that are none"
    away = np.abs(left - right).max(initial=0.0)
    assert away <= near, f"{what} is off by {away:.2g}"


def check_marks(*marks):
    """Regret is recorded at every mark, since the task's start; in any order, as on a CPU."""
    record = record_task(world_of(18, 10), rounds=50, marks=marks)
    assert record.regret.shape[-1] == len(marks)
    assert_in_order(record)
    return f"{len(marks)} marks"


# --- Random numbers -----------------------------------------------------------------------------

#: One size and number of policies for most of these, so that one kernel is compiled for them.
WORLD = Synthetic(dim=18, rank=9, arms=10, noise=0.3)


def three(one, other, third):
    """Three rules under names of their own."""
    return {"one": one, "other": other, "third": third}


def check_all_normals():
    """Each of the 2²⁴ numbers that a normal is made from gives one, in both precisions."""
    from importlib import resources

    import cupy as cp

    source = resources.files("headstart.lab.gpu").joinpath("rounds.cu").read_text()
    source += """
    extern "C" __global__ void radii(float* result) {
      unsigned bits = blockIdx.x * blockDim.x + threadIdx.x;
      float2 pair = normals(bits << 8, bits * 2654435761u);
      result[bits] = pair.x * pair.x + pair.y * pair.y;
    }"""
    for options in (("--use_fast_math",), ()):
        sizes = (
            "-DREAL=float",
            "-DWIDE=0",
            "-DD=2",
            "-DK=2",
            "-DP=1",
            "-DBLOCKS=1",
            "-DINTERCEPT=0",
            "-DFREE=0",
        )
        module = cp.RawModule(code=source, options=("--std=c++17", *sizes, *options))
        result = cp.empty(2**24, cp.float32)
        module.get_function("radii")((2**16,), (256,), (result,))
        radii = result.get().astype(float)
        bad = int((~np.isfinite(radii)).sum())
        assert bad == 0, f"{bad} of them are not numbers"
        assert abs(radii.mean() - 2) < 1e-4, f"the mean square is {radii.mean() / 2}, not 1"
        assert radii.max() < 36
    return f"the largest is {np.sqrt(radii.max()):.2f}"


def assert_standard(numbers, what):
    """Mean 0, variance 1, kurtosis 3, and tails as they should be."""
    flat = np.asarray(numbers, dtype=float).ravel()
    count = flat.size
    assert np.isfinite(flat).all(), f"{what} has numbers that are none"
    for name, result, expected, error in (
        ("mean", flat.mean(), 0.0, 1.0),
        ("variance", (flat**2).mean(), 1.0, np.sqrt(2.0)),
        ("skewness", (flat**3).mean(), 0.0, np.sqrt(15.0)),
        ("kurtosis", (flat**4).mean(), 3.0, np.sqrt(96.0)),
        ("share beyond 2", (np.abs(flat) > 2).mean(), 0.0455003, 0.2084),
        ("share beyond 4", (np.abs(flat) > 4).mean(), 6.334e-5, 0.00796),
    ):
        off = abs(result - expected) * np.sqrt(count) / error
        assert off < 5, (
            f"{what}: {name} is {result:.5g}, {off:.1f} standard errors off {expected:g}"
        )


def assert_unrelated(left, right, what):
    """No correlation between two lists of as many standard numbers."""
    left, right = np.ravel(left).astype(float), np.ravel(right).astype(float)
    result = (left * right).mean() * np.sqrt(left.size)
    assert abs(result) < 5, f"{what} are correlated ({result:.1f} standard errors)"


def check_contexts(dim, arms, both):
    """Contexts are N(0, diag(c)) where they are short, and cut to length 1 where they are not."""
    world, seeds, rounds = world_of(dim, arms), tuple(range(8)), 200
    rules = {"UCB": RULES["UCB"]}
    deviations = np.tile(0.1 * np.linspace(0.2, 1.0, dim) / np.sqrt(dim), (len(seeds), 1))
    record = record_task(world, rules, seeds, rounds, deviations=deviations)
    numbers = record.contexts / deviations[:, None, None].astype(np.float32)
    assert np.linalg.norm(record.contexts, axis=-1).max() < 1, "all of these should be short"
    assert_standard(numbers, "contexts")
    for feature in range(dim):
        assert_standard(numbers[..., feature], f"feature {feature}")
    for axis, what in enumerate(("seeds", "rounds", "arms", "features")):
        size = numbers.shape[axis]
        for gap in (1, 2, 4, size // 2):
            if 0 < gap < size:
                pairs = (np.take(numbers, range(a, size - gap + a), axis) for a in (0, gap))
                assert_unrelated(*pairs, f"{what} that are {gap} apart")
    equal = record_task(
        world, rules, seeds, 5, deviations=np.full_like(deviations, 2.0**-8)
    ).contexts
    share = np.unique(equal).size / equal.size
    assert share > 0.98, f"{1 - share:.1%} of all numbers were there before"
    later = record_task(world, rules, seeds, rounds, deviations=deviations, task=1)
    assert_unrelated(numbers, later.contexts / deviations[:, None, None], "two tasks")
    if both:
        double = record_task(world, rules, seeds, rounds, deviations=deviations, double=True)
        same(record.contexts, double.contexts, 1e-6, "contexts in double precision")

    long = record_task(world, rules, seeds, rounds).contexts.astype(float)
    lengths = np.linalg.norm(long, axis=-1)
    assert lengths.max() < 1 + 1e-5, f"a context of length {lengths.max()}"
    here = np.stack([one.episode(0, rounds).contexts for one in populations_of(world, seeds)])
    for name, ours, theirs in (
        ("share that was cut", lengths > 1 - 1e-6, np.linalg.norm(here, axis=-1) > 1 - 1e-9),
        *((f"square of feature {i}", long[..., i] ** 2, here[..., i] ** 2) for i in range(dim)),
    ):
        # By seeds, whose contexts differ.
        for seed in range(len(seeds)):
            a, b = ours[seed].astype(float), theirs[seed].astype(float)
            error = np.sqrt((a.var() + b.var()) / a.size) + 1e-9
            off = abs(a.mean() - b.mean()) / error
            assert off < 5.5, f"{name}, seed {seed}: {a.mean():.4g}, on a CPU {b.mean():.4g}"
    return f"{numbers.size} numbers"


def check_noise():
    """Rewards are xᵀθ + N(0, R²), the noise of a round the same for all arms."""
    record = record_task(WORLD, three(*[RULES["Uniform"]] * 3), tuple(range(64)), 400)
    values = np.einsum("srkd,sd->srk", record.contexts.astype(float), record.theta)
    noise = (record.rewards - values) / WORLD.noise
    same(noise, np.broadcast_to(noise[..., :1], noise.shape), 1e-4, "noise of a round's arms")
    assert_standard(noise[..., 0], "noise")
    assert_unrelated(noise[:, 1:, 0], noise[:, :-1, 0], "rounds' noise")
    assert_unrelated(noise[1:, :, 0], noise[:-1, :, 0], "seeds' noise")
    direction = record.contexts[..., 0, :] / record.contexts[..., 0, :].std((0, 1))
    for feature in range(WORLD.dim):
        assert_unrelated(direction[..., feature], noise[..., 0], "contexts and noise")
    return f"sd {noise[..., 0].std() * WORLD.noise:.4f} for {WORLD.noise}"


def check_thetas():
    """Tasks' parameters are drawn from the population's truth."""
    from headstart.lab.gpu.rounds import Rounds

    population, tasks = WORLD.population(5), 20_000
    rules = three(*[RULES["Uniform"]] * 3)
    table = Rounds(WORLD, [population], list(rules.values()), list(rules), tasks, 1, (1,))
    thetas = table.thetas.get()[:, 0].astype(float)
    assert thetas.shape == (tasks, WORLD.dim)
    values, vectors = np.linalg.eigh(population.truth.covariance)
    scaled = (thetas - population.truth.mean) @ vectors / np.sqrt(values)
    assert_standard(scaled, "tasks' parameters")
    for i in range(1, WORLD.dim):
        assert_unrelated(scaled[:, i], scaled[:, i - 1], "directions")
    assert_unrelated(scaled[1:], scaled[:-1], "tasks")
    return f"{tasks} tasks"


def check_draws():
    """Thompson's normals are normals, of each policy its own."""
    drawn = LoopForm("thompson", 1.0)
    rules, seeds = three(drawn, drawn, drawn._replace(forced=7)), tuple(range(16))
    record = record_task(WORLD, rules, seeds, 200)
    one, other, forced = record.draws
    assert (forced[:, :7] == 0).all(), "forced rounds draw nothing"
    for name, numbers in (("one", one), ("other", other), ("forced", forced[:, 7:])):
        assert_standard(numbers, f"draws of {name}")
        for gap in (1, 2, 3, 4, 8):
            assert_unrelated(numbers[:, gap:], numbers[:, :-gap], f"rounds {gap} apart")
            assert_unrelated(numbers[..., gap:], numbers[..., :-gap], f"features {gap} apart")
        assert_unrelated(numbers[1:], numbers[:-1], "seeds' draws")
    assert_unrelated(one, other, "two policies' draws")
    assert_unrelated(one[:, 7:], forced[:, 7:], "two policies' draws")
    first = record.contexts[..., 0, :] / record.contexts[..., 0, :].std((0, 1))
    assert_unrelated(one, first, "draws and contexts")
    free = record_task(WORLD, three(drawn, drawn, drawn), seeds, 200).draws[2]
    same(forced[:, 7:], free[:, 7:], 1e-6, "draws after forced rounds")
    later = record_task(WORLD, rules, seeds, 200, task=1)
    assert_unrelated(one, later.draws[0], "two tasks' draws")
    return f"{one.size} numbers"


def check_forced_arms():
    """Forced arms are uniform, and nobody else's."""
    blind, arms = LoopForm("uniform", 0.0), WORLD.arms
    rules = three(blind, blind, LoopForm("ucb", 1.0, 150))
    record = record_task(WORLD, rules, tuple(range(64)), 300)
    one, other, forced = record.arms[0], record.arms[1], record.arms[2][:, :150]
    chances = []
    for result in (one, other, forced, one[:, 0], forced[:, 0], forced[:, -1]):
        counts = np.bincount(result.ravel(), minlength=arms)
        if result.size >= 5 * arms:
            chances.append(stats.chisquare(counts).pvalue)
    for left, right in (
        (one[:, 1:], one[:, :-1]),  # rounds
        (one[1:], one[:-1]),  # seeds
        (one, other),  # policies
        (one[:, :150], forced),
    ):
        pairs = np.bincount((left * arms + right).ravel(), minlength=arms**2)
        chances.append(stats.chisquare(pairs).pvalue)
    assert min(chances) > 1e-5, f"by chance once in {1 / min(chances):.3g} times"
    later = record_task(WORLD, rules, tuple(range(64)), 300, task=1)
    assert abs((later.arms[0] == one).mean() * arms - 1) < 0.2, "two tasks' arms are related"
    return f"the least likely of {len(chances)} tests has p = {min(chances):.3g}"


# --- Pairing ------------------------------------------------------------------------------------


def check_alone(dim, arms):
    """A seed's numbers and choices do not depend on who plays beside it."""
    world = world_of(dim, arms)
    seeds, kept = (4, 1, 9, 6), ("Thompson", "forced, then UCB")
    priors = random_priors(len(RULES), len(seeds), dim)
    whole = record_task(world, seeds=seeds, double=True, priors=priors)
    names = list(RULES)
    places = [names.index(name) for name in kept]
    few = {name: RULES[name] for name in kept}
    part = tuple(each[places][:, [2, 0]] for each in priors)
    alone = record_task(world, few, (9, 4), double=True, priors=part)
    same(alone.contexts, whole.contexts[[2, 0]], 1e-6, "contexts")
    same(alone.rewards, whole.rewards[[2, 0]], 1e-5, "rewards")
    for at, place in enumerate(places):
        same(alone.draws[at], whole.draws[place][[2, 0]], 1e-5, "draws")
        differ = int((alone.arms[at] != whole.arms[place][[2, 0]]).sum())
        assert differ == 0, f"{kept[at]}: {differ} choices differ"
    return f"{alone.arms.size} choices"


def check_parts(dim, arms):
    """A task that is played in parts is the same as in one go."""
    world = world_of(dim, arms)
    whole, parts = (
        record_task(
            world,
            rounds=90,
            marks=(5, 64, 90),
            double=True,
            task=1,
            stops=stops,
            estimates_noise=True,
        )
        for stops in ((), (1, 2, 38, 64))
    )
    for name in ("contexts", "draws", "arms", "chosen_contexts", "chosen_rewards"):
        same(getattr(parts, name), getattr(whole, name), 0.0, name)
    same(parts.regret, whole.regret, 1e-4, "regret")
    return f"{parts.arms.size} choices"


def check_alone_in_an_experiment():
    """Likewise over many tasks, where everybody learns."""
    from headstart.lab.gpu.engine import simulate as on_gpu

    world = world_of(8, 6)
    everybody = [parse(name) for name in PAPER]
    few = [everybody[at] for at in (5, 3)]
    sizes = {"tasks": 14, "rounds": 40, "marks": (7, 40), "double": True}
    whole = on_gpu(world, everybody, (4, 1, 9, 6), **sizes)
    alone = on_gpu(world, few, (9, 4), **sizes)
    for name, regret in alone.items():
        same(regret, whole[name][[2, 0]], 1e-4, name)
    again = on_gpu(world, everybody, (4, 1, 9, 6), **sizes)
    for name, regret in again.items():
        same(regret, whole[name], 0.0, f"{name}, again,")
    return f"{len(few)} of {len(everybody)} policies"


# --- Small matrices -----------------------------------------------------------------------------


def check_small_matrices(dim, rank, seeds=37, tasks=13):
    """The kernels that learning calls give what NumPy does, to 1e-9 of the largest number."""
    import jax

    from headstart import small_matrices
    from headstart.lab.gpu.engine import double_precision
    from headstart.lab.gpu.small_matrices import available_kernels

    rng = np.random.default_rng(dim)
    x = rng.standard_normal((seeds, tasks, 2 * dim, dim)) * np.linspace(0.01, 3.0, dim)
    gram, moment = x.swapaxes(-1, -2) @ x, rng.standard_normal((seeds, tasks, dim))
    gram[1, 2], moment[1, 2] = 0.0, 0.0  # an empty slot
    gram[2, 1, 0, 0] = 1e13  # which hides all other digits
    half = rng.standard_normal((seeds, dim, dim)) / dim
    root = half @ half.swapaxes(-1, -2) + 0.1 * np.eye(dim)
    weight = rng.uniform(0.0, 2.0, (seeds, tasks))
    directions = rng.standard_normal((seeds, dim, rank))
    directions[..., 1:2] = 0.0  # one that was dropped
    factors = rng.standard_normal((seeds, tasks, rank, rank))
    plain = np.delete(gram.reshape(-1, dim, dim), tasks * 2 + 1, 0)
    mild = 0.1 * np.where(gram < 1e12, gram, 1.0)
    cases = {
        "spd_inverse": (plain + 0.5 * np.eye(dim),),
        "cholesky": (plain + 0.5 * np.eye(dim),),
        "inverse_root": (plain + np.eye(dim),),
        "gaussian_gain": (mild, moment),
        "eigh": (gram - np.linspace(0.0, 9.0, dim)[:, None] * np.eye(dim),),
        "whitened_posteriors": (root, gram, moment, weight + 0.1, 1e10),
        "ridge_solve": (mild, moment, weight, rng.uniform(0.0, 3.0, seeds)),
        "projected_inverse": (mild, directions, 1.0 + rng.uniform(0.0, 1.0, (seeds, tasks, rank))),
        "woodbury": (mild, directions, moment),
        "symmetric_matvec": (mild, moment[:, :1]),
        "sum_of_products": (gram, directions, factors, weight),
    }
    worst = {}
    with double_precision():
        for name, arguments in cases.items():
            expected = getattr(small_matrices, name)(*arguments)
            with small_matrices.use_kernels(available_kernels()):
                result = jax.jit(getattr(small_matrices, name))(*map(jax.numpy.asarray, arguments))
            if name == "eigh":  # vectors have any sign
                values, vectors = map(np.asarray, result)
                back = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
                unit = vectors.swapaxes(-1, -2) @ vectors
                expected = (expected[0], arguments[0], np.broadcast_to(np.eye(dim), gram.shape))
                result = (values, back, unit)
            if not isinstance(expected, tuple):
                result, expected = (result,), (expected,)
            for ours, theirs in zip(result, expected, strict=True):
                away = np.abs(np.asarray(ours, dtype=float) - theirs)
                size = np.abs(1.0 * theirs).max(tuple(range(1, away.ndim)), keepdims=True)
                off = (away / np.where(size > 0, size, 1.0)).max()
                assert off < 1e-9, f"{name} is off by {off:.2g} of the largest number"
                worst[name] = max(off, worst.get(name, 0.0))
    return ", ".join(f"{name} {off:.1g}" for name, off in worst.items())


# --- A task's own noise -------------------------------------------------------------------------

DOFS = (0.5, 2.0, 8.0, 31.0, 32.0, 300.0, 1e12)  # ν, the last of them that of one noise for all


def check_own_noise(dim, rounds=70):
    """Beliefs in the middle of a task are the CPU's to 1e-9, where tasks have an R of their own."""
    import jax

    from headstart.lab.gpu import engine

    rng, seeds = np.random.default_rng(dim), 3 * len(DOFS)
    world = world_of(dim, 5)
    policies = [parse("empirical_bayes").for_populations(populations_of(world, range(seeds)))]
    multiplier = engine.loop_forms(policies)[0].multiplier
    x = rng.standard_normal((1, seeds, rounds, dim + 1))
    noise = rng.choice([0.05, 0.5, 5.0], (1, seeds, 1))
    r = x.sum(-1) / dim + noise * rng.standard_normal(x.shape[:-1])
    means, roots = random_priors(1, seeds, dim + 1)
    dof = np.resize(DOFS, seeds)
    prior = Prior(means[0], roots[0], noise=np.full(seeds, 0.5), noise_dof=dof)
    played = (1.0 + means, 2.0 * roots, np.full((1, seeds), 3.0), np.full((1, seeds), 4.0))
    worst, beliefs = 0.0, 0
    with engine.double_precision():
        shown = rng.standard_normal((seeds, 5, dim + 1))
        learner = engine.Learner(policies, seeds, world, first_contexts=shown)
        learner.starting, learner.finished = (jax.device_put(prior),), 1
        stops = learner.stops(1, rounds)
        assert stops == [1, 2, 4, 8, 16, 32, 64, rounds], f"beliefs are recomputed after {stops}"
        contexts, rewards = jax.numpy.asarray(x), jax.numpy.asarray(r)
        for stop in stops[:-1]:
            result = learner.rebuild(jax.device_put(played), contexts, rewards, stop)
            expected = [np.array(part) for part in played]
            for seed in range(seeds):
                own = seed_prior(prior, seed)
                if stop in rebuild_rounds(own.noise_dof, dim + 1, rounds):
                    belief = own.belief(Evidence.of(x[0, seed, :stop], r[0, seed, :stop]))
                    amount = multiplier * belief.noise
                    new = (belief.mean, belief.root, amount, belief.square)
                    for part, value in zip(expected, new, strict=True):
                        part[0, seed] = value
                    beliefs += 1
            for ours, theirs in zip(result, expected, strict=True):
                size = np.abs(theirs).max(tuple(range(2, theirs.ndim)), keepdims=True)
                worst = max(worst, (np.abs(np.asarray(ours) - theirs) / size).max())
                assert worst < 1e-9, f"after {stop} rewards they are off by {worst:.2g}"
    return f"{beliefs} beliefs, off by {worst:.1g}"


# --- Results ------------------------------------------------------------------------------------


def check_totals(names=PAPER, double=False, seeds=64, tasks=40, rounds=100):
    """Total regret agrees with the CPU's on the same populations, within 4 standard errors."""
    from headstart.lab.gpu.engine import simulate as on_gpu

    world = Synthetic(dim=10, rank=3, arms=10)
    policies = [parse(name) for name in names]
    there = on_gpu(world, policies, range(seeds), tasks, rounds, (rounds,), double=double)
    here = simulate(world, policies, range(seeds), tasks, rounds)
    messages, means = [], {}
    for name, trace in here.items():
        ours, theirs = there[name][..., -1].sum(1), trace.regret[..., -1].sum(1)
        assert np.isfinite(ours).all(), f"{name} has numbers that are none"
        means[name] = ours.mean()
        apart = ours - theirs  # paired: populations differ more than their tasks
        off = apart.mean() / (apart.std(ddof=1) / np.sqrt(seeds))
        text = f"{name} {ours.mean():.2f}, on a CPU {theirs.mean():.2f}, {off:+.1f} standard errors"
        messages.append((abs(off), text))
    assert max(messages)[0] < 4, "; ".join(text for off, text in messages if off >= 4)
    best = min(means[name] for name in ("P-LinUCB", DEFAULT) if name in means)
    assert best < 0.9 * means["LinUCB"], "nothing was learned from tasks"
    return f"the worst is {max(messages)[1]}"


# --- All of them --------------------------------------------------------------------------------

CHECKS = {
    **{
        f"choices, {dim} × {arms}, {'double' if double else 'single'}": (
            check_choices,
            (dim, arms, double),
        )
        for double in (True, False)
        for dim, arms in SIZES
    },
    "marks": (check_marks, (1, 2, 7, 31, 50)),
    "marks in any order": (check_marks, (50, 7, 7, 1)),
    "all normals": (check_all_normals, ()),
    "contexts, 30 × 20": (check_contexts, (30, 20, True)),
    "contexts, 40 × 50": (check_contexts, (40, 50, False)),
    "noise": (check_noise, ()),
    "tasks": (check_thetas, ()),
    "draws": (check_draws, ()),
    "forced arms": (check_forced_arms, ()),
    "alone, 18 × 10": (check_alone, (18, 10)),
    "alone, 31 × 33": (check_alone, (31, 33)),
    "in parts, 18 × 10": (check_parts, (18, 10)),
    "in parts, 40 × 20": (check_parts, (40, 20)),
    **{
        f"small matrices, {dim}, {rank}": (check_small_matrices, (dim, rank))
        for dim, rank in ((31, 16), (32, 16), (30, 7), (17, 16), (16, 15), (6, 5), (2, 1))
    },
    **{f"own noise, {dim}": (check_own_noise, (dim,)) for dim in (30, 5, 40)},
    "alone in an experiment": (check_alone_in_an_experiment, ()),
    "totals": (check_totals, ()),
    "totals of the default": (check_totals, (OURS,)),
}


def main() -> int:
    """Run every check; 1 if one fails, 2 if there is no GPU."""
    from headstart.lab.gpu import missing

    reason = missing()
    if reason is not None:
        print(f"nothing was checked: {reason}")
        return 2
    failed = 0
    for name, (check, sizes) in CHECKS.items():
        start = time.perf_counter()
        try:
            verdict, message = "ok    ", check(*sizes)
        except AssertionError as error:
            verdict, message, failed = "FAILED", str(error), failed + 1
        except Exception as error:  # whatever it is, the others are checked too
            verdict, message, failed = "FAILED", f"{type(error).__name__}: {error}", failed + 1
        print(f"{verdict} {name} ({time.perf_counter() - start:.1f} s): {message}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
