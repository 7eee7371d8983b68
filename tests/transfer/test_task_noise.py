"""The tasks' own noise, against SciPy's densities and an optimiser that knows nothing of it."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

import headstart as hs
from headstart.transfer.empirical_bayes.full_covariance.fitting import typical_squares
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    Residuals,
    expected_precision_and_log,
    population_noise,
    task_variance,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

NOTHING = (0.0, 0.0, 0.0)


def drawn(rng, dof, scale, tasks=400, residual_dof=30):
    """Residuals of tasks with R² = ν s²/χ²_ν."""
    variance = dof * scale / rng.chisquare(dof, tasks)
    free = rng.integers(1, 2 * residual_dof, tasks).astype(float)
    return Residuals(variance * rng.chisquare(free), free, np.ones(tasks))


def log_likelihood(found, dof, scale):
    """The density of the residual sums of squares: scaled F distributions."""
    half, own = found.dof / 2, dof / 2
    total = dof * scale + found.square
    each = gammaln(half + own) - gammaln(own) + own * np.log(dof * scale)
    return float((each - (half + own) * np.log(total)).sum())


@pytest.mark.parametrize(("dof", "scale"), [(2.5, 2.0), (6.0, 1e-4), (40.0, 1e6)])
def test_scale_and_freedom_are_about_the_likeliest(dof, scale):
    found = drawn(np.random.default_rng(0), dof, scale)
    best = minimize(
        lambda point: -log_likelihood(found, np.exp(point[0]), np.exp(point[1])),
        [0.0, np.log(scale)],
        method="Nelder-Mead",
        options={"maxiter": 2000, "xatol": 1e-6, "fatol": 1e-9},
    )
    noise, estimated = population_noise(found, NOTHING, np.asarray(10.0 * scale), 3.0 * scale)
    assert noise == pytest.approx(np.exp(best.x[1]), rel=0.03)
    assert -best.fun - log_likelihood(found, estimated, noise) < 1.0


def test_one_noise_for_all_is_found_to_be_one():
    rng = np.random.default_rng(1)
    free = np.full(200, 40.0)
    found = Residuals(0.09 * rng.chisquare(free), free, np.ones(200))
    noise, dof = population_noise(found, NOTHING, np.asarray(1.0), 1.0)
    assert noise == pytest.approx(0.09, rel=0.03)
    assert dof > 200
    own = task_variance(noise, dof, found.square, found.dof)
    assert np.abs(own / 0.09 - 1).max() < 0.12


def test_one_broken_task_leaves_the_others_alone():
    rng = np.random.default_rng(2)
    free = np.full(300, 40.0)
    clean = Residuals(rng.chisquare(free), free, np.ones(300))
    broken = clean._replace(square=np.where(np.arange(300) == 7, 1e6 * clean.square, clean.square))
    before, _ = population_noise(clean, NOTHING, np.asarray(1.0), 1.0)
    after, dof = population_noise(broken, NOTHING, np.asarray(1.0), 1.0)
    assert after == pytest.approx(before, rel=0.05)
    own = task_variance(after, dof, broken.square, broken.dof)
    assert own[7] > 1e5
    assert np.delete(own, 7).max() < 2.0


def test_the_unit_of_rewards_is_that_of_the_noise():
    found = drawn(np.random.default_rng(3), 5.0, 1.0)
    noise, dof = population_noise(found, NOTHING, np.asarray(1.0), 1.0)
    for unit in (1e-12, 1e12):
        scaled = found._replace(square=unit * found.square)
        other, same = population_noise(scaled, NOTHING, np.asarray(unit), unit)
        assert other == pytest.approx(unit * noise, rel=1e-9)
        assert same == pytest.approx(dof, rel=1e-9)


def test_tasks_long_past_count_as_they_did():
    found = drawn(np.random.default_rng(4), 5.0, 2.0)
    noise, dof = population_noise(found, NOTHING, np.asarray(1.0), 1.0)
    half = Residuals(*(part[:200] for part in found[:3]))
    rest = Residuals(*(part[200:] for part in found[:3]))
    precision, logs = expected_precision_and_log(noise, dof, half)
    past = (200.0, precision.sum(), logs.sum())
    other, same = population_noise(rest, past, np.asarray(1.0), 1.0)
    assert other == pytest.approx(noise, rel=0.05)
    assert np.log2(same / dof) == pytest.approx(0.0, abs=1.0)


def test_clicks_do_not_make_lucky_tasks_noisy():
    """Rewards of two values vary by their mean: that tasks differ in RSS says little of noise."""
    rng = np.random.default_rng(5)
    told = []
    for _ in range(300):
        clicks = (rng.random(25) < 0.05).astype(float)
        told.append(Tasks.of(hs.Evidence.of(np.ones((25, 1)), 3.0 * clicks)))
    tasks = told[0].join(*told[1:])
    mean = tasks.moment[:, 0] / tasks.rounds
    found = usable_residuals(
        tasks, tasks.squares - tasks.rounds * mean**2, tasks.rounds - 1, True, 0.45
    )
    noise, dof = population_noise(found, NOTHING, np.asarray(0.45), 0.45)
    assert noise == pytest.approx(9 * 0.05 * 0.95, rel=0.15)
    own = task_variance(noise, dof, found.square, found.dof)
    quiet, loud = own[tasks.squares == 0].mean(), own[tasks.squares > 0].mean()
    assert quiet > 0.9 * loud


def test_equal_rewards_say_nothing_of_noise():
    tasks = Tasks.of(hs.Evidence.of([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]], [4.5, 4.5, 4.5]))
    tasks = tasks.join(Tasks.of(hs.Evidence.of([[1.0, 1.0], [2.0, 1.0]], [4.0, 5.0])))
    found = usable_residuals(tasks, np.zeros(2), np.array([1.0, 1.0]), True, 1.0)
    np.testing.assert_array_equal(found.dof, [0.0, 1.0])
    assert not found.is_shared


def test_a_task_of_very_many_rounds_does_not_break_the_estimate():
    """A weight of 1e45 counts as that many rounds; the noise of the others is still estimated."""
    rng = np.random.default_rng(3)
    usual = hs.Evidence(
        gram=np.tile(30.0 * np.eye(2), (40, 1, 1)),
        moment=np.zeros((40, 2)),
        rounds=np.full(40, 30.0),
        squares=0.09 * rng.chisquare(28, 40),
    )
    fits = []
    for factor in (1e6, 1e45):
        packed = usual.pack()
        packed[0] *= factor
        evidences = [hs.Evidence.unpack(row, 2) for row in packed]
        transfer = hs.EmpiricalBayes()
        fits.append(transfer.prior(transfer.refit(evidences)).noise)
    assert fits[1] == pytest.approx(fits[0], rel=1e-3)
    assert fits[0] ** 2 == pytest.approx(0.09, rel=0.2)


AMOUNTS = {
    "amounts spent": lambda rng, clicks: clicks * rng.lognormal(size=clicks.shape),
    "counts": lambda rng, clicks: clicks * rng.integers(1, 4, clicks.shape),
    "profits": lambda rng, clicks: clicks - rng.uniform(0.01, 0.03, clicks.shape),
    "clicks with jitter": lambda rng, clicks: clicks + 1e-6 * rng.normal(size=clicks.shape),
    "clicks with rounding": lambda rng, clicks: clicks + 1e-17 * rng.normal(size=clicks.shape),
}


@pytest.mark.parametrize("how", AMOUNTS)
@pytest.mark.parametrize("online", [False, True], ids=["fitted", "folded"])
def test_a_variance_that_follows_from_the_mean_does_not_bias_the_mean(how, online):
    """Tasks in which little happened have hardly any variance, and are no surer for that."""
    rng = np.random.default_rng(6)
    contexts = np.concatenate([rng.normal(size=(200, 25, 2)), np.ones((200, 25, 1))], -1)
    clicks = rng.random((200, 25)) < 0.05 * (1.0 + np.clip(contexts[..., 0], -1.0, 1.0))
    rewards = AMOUNTS[how](rng, clicks.astype(float))
    tasks = list(map(hs.Evidence.of, contexts, rewards))
    transfer = hs.EmpiricalBayes().with_constant(True)
    state = transfer.init(3)
    if online:
        for task in tasks:
            state = transfer.fold(state, task)
    else:
        state = transfer.refit(tasks)
    prior = transfer.prior(state)
    rows, flat = contexts.reshape(-1, 3), rewards.ravel()
    pooled = np.linalg.lstsq(rows, flat, rcond=None)[0]
    spread = np.std(flat - rows @ pooled)
    np.testing.assert_allclose(prior.mean, pooled, atol=0.1 * np.abs(pooled).max())
    assert prior.noise == pytest.approx(spread, rel=0.1)


def test_noise_unrelated_to_rewards_remains_each_tasks_own():
    rng = np.random.default_rng(7)
    scale = np.exp(0.7 * rng.normal(size=60))
    contexts = np.concatenate([rng.normal(size=(60, 20, 2)), np.ones((60, 20, 1))], -1)
    rewards = contexts.sum(-1) + scale[:, None] * rng.normal(size=(60, 20))
    transfer = hs.EmpiricalBayes().with_constant(True)
    prior = transfer.prior(transfer.refit(list(map(hs.Evidence.of, contexts, rewards))))
    assert prior.noise_dof < 8


@pytest.mark.parametrize("offset", [20.0, -100.0])
@pytest.mark.parametrize("rounds", [3, 4, 6])
def test_the_noise_of_short_tasks_does_not_depend_on_the_level_of_rewards(rounds, offset):
    """Grades around 70 have the noise of grades around 0, although no task has residuals."""
    rng = np.random.default_rng(3)
    tasks, dim = 30, 5
    x = rng.normal(size=(tasks, rounds, dim))
    theta = 0.5 * rng.normal(size=dim) + 0.4 * rng.normal(size=(tasks, dim))
    r = np.einsum("nkd,nd->nk", x, theta) + 0.3 * rng.normal(size=(tasks, rounds))
    rows = {f"x{j}": x[..., j].ravel() for j in range(dim)}
    rows["task"] = np.repeat(np.arange(tasks), rounds)
    fits = [
        hs.Bandit(dim, seed=0).fit(rows | {"r": r.ravel() + level}, task="task", reward="r").prior
        for level in (0.0, offset)
    ]
    noise, same = (prior.noise for prior in fits)
    assert 0.15 < noise < 0.6
    assert same == pytest.approx(noise, rel=0.1)
    dof, alike = (prior.noise_dof for prior in fits)
    assert alike == pytest.approx(dof, rel=0.25)
    assert fits[1].mean[-1] - fits[0].mean[-1] == pytest.approx(offset, abs=0.2)


def test_rewards_that_are_all_equal_do_not_show_how_much_they_vary():
    evidence = hs.Evidence.of(np.array([[1.0, 1.0], [2.0, 1.0]]), [3.0, 3.0])
    tasks = Tasks.of(evidence)
    fit = Fit.isotropic(np.zeros(2), np.asarray(1.0), np.asarray(1.0))
    np.testing.assert_allclose(typical_squares(fit, tasks, True), (9.0, 9.0))
    varied = Tasks.of(hs.Evidence.of(np.array([[1.0, 1.0], [2.0, 1.0]]), [2.0, 4.0]))
    np.testing.assert_allclose(typical_squares(fit, varied, True), (10.0, 1.0))
    np.testing.assert_allclose(typical_squares(fit, varied, False), (10.0, 10.0))


@pytest.mark.parametrize("factor", [200.0, 1000.0])
@pytest.mark.parametrize("broken", [0, 7, 29])
def test_one_broken_task_leaves_the_others_alone_where_noise_is_shared(broken, factor):
    """Levels rise while noise falls: a correlation by which all tasks but one get one noise."""
    rng = np.random.default_rng(8)
    scale = np.linspace(1.5, 0.5, 30)
    scale[broken] *= factor
    contexts = np.concatenate([rng.normal(size=(30, 20, 2)), np.ones((30, 20, 1))], -1)
    rewards = contexts[..., 0] + 4.0 * np.linspace(0.0, 1.0, 30)[:, None]
    rewards += scale[:, None] * rng.normal(size=(30, 20))
    transfer = hs.EmpiricalBayes().with_constant(True)
    state = transfer.init(3)
    for task in map(hs.Evidence.of, contexts, rewards):
        state = transfer.fold(state, task)
    state = transfer.update_fit(state)
    prior = transfer.prior(state)
    assert prior.noise_dof == pytest.approx(1024.0)
    assert 0.8 < prior.noise < 1.3
    own = np.sqrt(state.tasks.noise_variance)
    assert own[broken] == pytest.approx(scale[broken], rel=0.4)
    assert np.delete(own, broken).max() < 1.5


@pytest.mark.parametrize("broken", [15, 25, 39])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_broken_task_leaves_the_others_alone_where_tasks_are_short(broken, seed):
    """Without residuals of least squares, the noise must not be taken for unusual tasks."""
    rng = np.random.default_rng(seed)
    transfer = hs.EmpiricalBayes().with_constant(True)
    state, mean = transfer.init(12), rng.normal(size=12)
    for task in range(45):
        contexts = np.concatenate([rng.normal(size=(10, 11)), np.ones((10, 1))], -1)
        rewards = contexts @ (mean + 0.7 * rng.normal(size=12))
        rewards += (1000.0 if task == broken else 1.0) * rng.normal(size=10)
        state = transfer.fold(state, hs.Evidence.of(contexts, rewards))
        if task >= broken:
            assert 0.3 < np.sqrt(state.fit.noise_variance) < 3.0
    assert np.trace(transfer.prior(state).covariance) / 12 < 3 * 0.7**2
