"""The synthetic worlds are what their docstring says, in distribution and seed by seed."""

import numpy as np
import pytest

import headstart as hs
from headstart.worlds import Synthetic

SMALL = {"dim": 6, "rank": 2, "arms": 3}


def thetas(population, tasks=2000):
    return np.array([population.episode(task, 1).theta for task in range(tasks)])


def assert_moments(drawn, mean, covariance):
    """Sample moments within five standard errors (a little more where θ is not Gaussian)."""
    tasks = len(drawn)
    error = np.sqrt(np.diagonal(covariance) / tasks)
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * error + 1e-12).all()
    spread = np.sqrt(np.diagonal(covariance))
    allowed = 7 * np.outer(spread, spread) / np.sqrt(tasks)
    assert (np.abs(np.cov(drawn.T, bias=True) - covariance) < allowed + 1e-12).all()


def test_defaults_are_the_papers():
    world = Synthetic()
    assert (world.dim, world.rank, world.arms, world.noise) == (30, 15, 20, 0.1)
    population = world.population(0)
    episode = population.episode(0, 250)
    assert episode.contexts.shape == (250, 20, 30)
    assert episode.values.shape == episode.rewards.shape == (250, 20)
    assert (population.dim, population.tasks, population.noise) == (30, None, 0.1)
    assert population.truth.basis.shape == (30, 15)
    assert np.linalg.norm(population.truth.mean) == pytest.approx(0.5)
    np.testing.assert_allclose(population.truth.basis.T @ population.truth.mean, 0, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(population.truth.covariance)
    np.testing.assert_allclose(eigenvalues, np.repeat([0.02**2, 0.25**2], 15), rtol=1e-9)


EVERY = [
    {},
    {"rank": 0},
    {"rank": 6, "offset": 0.0},
    {"mean": "anywhere", "offset": 2.0},
    {"clusters": 3, "separation": 1.0},
    {"curve": 0.4},
    {"curve": 0.4, "clusters": 2},
    {"task_dof": 12.0},
]


@pytest.mark.parametrize("settings", EVERY)
def test_tasks_have_the_mean_and_covariance_that_oracles_are_told(settings):
    population = Synthetic(**{**SMALL, **settings}).population(5)
    truth = population.truth
    assert_moments(thetas(population), truth.mean, truth.covariance)


@pytest.mark.parametrize("settings", EVERY)
def test_many_tasks_at_once_are_drawn_likewise(settings):
    """As a GPU draws them."""
    population = Synthetic(**{**SMALL, **settings}).population(5)
    rng = np.random.default_rng(1)
    assert_moments(
        population.draw_tasks(4000, rng), population.truth.mean, population.truth.covariance
    )
    one, many = (np.random.default_rng(2) for _ in range(2))
    np.testing.assert_allclose(population.draw_task(0, one), population.draw_tasks(1, many)[0])


def test_one_dimension_is_enough():
    population = Synthetic(dim=1, rank=0, arms=2).population(3)
    assert population.episode(0, 4).contexts.shape == (4, 2, 1)
    assert np.isfinite(population.drift_generator).all()


def test_tasks_spread_inside_the_plane_and_little_outside():
    population = Synthetic(**SMALL, inside=0.4, outside=0.03).population(2)
    basis = population.truth.basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    errors = thetas(population) - population.truth.mean
    inside = errors @ basis
    outside = errors - inside @ basis.T
    assert np.sqrt(np.mean(inside**2)) == pytest.approx(0.4, rel=0.05)
    assert np.sqrt(np.sum(outside**2) / (4 * len(errors))) == pytest.approx(0.03, rel=0.05)


@pytest.mark.parametrize(("where", "share"), [("off", 0.0), ("on", 1.0), ("anywhere", None)])
def test_the_mean_is_off_the_plane_on_it_or_anywhere(where, share):
    for seed in range(5):
        truth = Synthetic(**SMALL, mean=where, offset=0.7).population(seed).truth
        assert np.linalg.norm(truth.mean) == pytest.approx(0.7)
        on_plane = np.linalg.norm(truth.basis.T @ truth.mean) / 0.7
        if share is None:
            assert 0.01 < on_plane < 0.99
        else:
            assert on_plane == pytest.approx(share, abs=1e-12)


def test_contexts_are_gaussian_and_no_longer_than_one():
    population = Synthetic(dim=3, rank=1, arms=10).population(1)
    contexts = population.episode(0, 4000).contexts.reshape(-1, 3)
    lengths = np.linalg.norm(contexts, axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert 0.1 < np.mean(lengths > 1 - 1e-12) < 0.9
    sd = population.context_sd
    assert ((sd > 0) & (sd < 1)).all()
    again = np.random.default_rng(9).standard_normal((200_000, 3)) * sd
    again /= np.maximum(1, np.linalg.norm(again, axis=1, keepdims=True))
    np.testing.assert_allclose(contexts.mean(axis=0), 0, atol=5 / np.sqrt(len(contexts)))
    np.testing.assert_allclose(contexts.T @ contexts / 40_000, again.T @ again / 200_000, atol=0.01)
    # The variances are uniform on (0, 1), drawn once a population.
    many = np.concatenate(
        [Synthetic(dim=30).population(seed).context_sd ** 2 for seed in range(30)]
    )
    assert many.mean() == pytest.approx(0.5, abs=5 / np.sqrt(12 * 900))
    assert many.var() == pytest.approx(1 / 12, rel=0.15)


def test_values_are_linear_and_rewards_add_noise():
    population = Synthetic(**SMALL, noise=0.3).population(0)
    episode = population.episode(4, 5000)
    np.testing.assert_allclose(episode.values, episode.contexts @ episode.theta)
    errors = episode.rewards - episode.values
    # One draw a round: whatever a policy picks, it meets the same noise.
    np.testing.assert_allclose(errors, np.repeat(errors[:, :1], 3, axis=1), atol=1e-12)
    assert errors[:, 0].std() == pytest.approx(0.3, rel=0.05)
    assert abs(errors[:, 0].mean()) < 5 * 0.3 / np.sqrt(5000)


def test_episodes_repeat_whatever_was_asked_before():
    world = Synthetic(**SMALL, clusters=2)
    one, again, other = (world.population(seed) for seed in (0, 0, 1))
    again.episode(7, 3)
    for left, right in zip(one.episode(3, 9), again.episode(3, 9), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.episode(3, 9).contexts, one.episode(4, 9).contexts)
    assert not np.array_equal(one.episode(3, 9).contexts, other.episode(3, 9).contexts)


def test_worlds_that_differ_in_noise_are_paired():
    quiet, loud = (Synthetic(**SMALL, noise=noise).population(0).episode(2, 9) for noise in (1, 2))
    np.testing.assert_array_equal(quiet.contexts, loud.contexts)
    np.testing.assert_array_equal(quiet.values, loud.values)
    np.testing.assert_allclose(loud.rewards - loud.values, 2 * (quiet.rewards - quiet.values))


def test_clusters_have_planes_and_means_of_their_own():
    apart = []
    for seed in range(20):
        population = Synthetic(
            dim=40, rank=2, offset=0.0, clusters=3, separation=2.0, inside=0.1, outside=0.001
        ).population(seed)
        means = np.array(population.means)
        apart += [np.linalg.norm(means[i] - means[j]) for i, j in [(0, 1), (0, 2), (1, 2)]]
    assert np.mean(apart) == pytest.approx(2.0, rel=0.05)
    assert population.truth.basis is None
    drawn = thetas(population, 600)
    nearest = np.linalg.norm(drawn[:, None] - means, axis=2).argmin(axis=1)
    for cluster in range(3):
        own = drawn[nearest == cluster] - means[cluster]
        assert 150 < len(own) < 250
        plane = population.frames[cluster][:, :2]
        assert np.sqrt(np.mean((own @ plane) ** 2)) == pytest.approx(0.1, rel=0.2)
        assert np.abs(own - own @ plane @ plane.T).max() < 0.006


def test_a_curve_has_one_dimension():
    population = Synthetic(dim=8, rank=1, curve=0.5, outside=0.0, offset=0.3).population(3)
    drawn = thetas(population, 300) - population.truth.mean
    winding = drawn @ population.truth.basis
    assert population.truth.basis.shape == (8, 4)
    np.testing.assert_allclose(winding @ population.truth.basis.T, drawn, atol=1e-12)
    # All lie on one closed curve: the angle in the first two directions fixes the other two.
    np.testing.assert_allclose(np.linalg.norm(winding[:, :2], axis=1), 0.5)
    angle = np.arctan2(winding[:, 1], winding[:, 0])
    np.testing.assert_allclose(winding[:, 2], 0.25 * np.cos(2 * angle), atol=1e-12)
    np.testing.assert_allclose(winding[:, 3], 0.25 * np.sin(2 * angle), atol=1e-12)


def test_drift_turns_the_mean_a_little_from_task_to_task():
    world = Synthetic(dim=6, rank=2, inside=0.0, outside=0.0, offset=1.0, drift=0.01)
    population = world.population(0)
    assert population.truth is None
    drawn = thetas(population, 120)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0)
    steps = np.arccos(np.clip(np.sum(drawn[1:] * drawn[:-1], axis=1), -1, 1))
    assert 0 < steps.min() <= steps.max() <= 0.01 + 1e-6
    assert np.arccos(drawn[0] @ drawn[100]) > 10 * steps.max()
    still = Synthetic(dim=6, rank=2, inside=0.0, outside=0.0, offset=1.0).population(0)
    np.testing.assert_allclose(still.episode(119, 1).theta, drawn[0])


def test_logistic_rewards_are_zero_or_one():
    population = Synthetic(**SMALL, logistic=3.0, inside=1.0).population(0)
    assert population.noise is None
    episode = population.episode(0, 20_000)
    assert set(np.unique(episode.rewards)) == {0.0, 1.0}
    want = 1 / (1 + np.exp(-3.0 * episode.contexts @ episode.theta))
    np.testing.assert_allclose(episode.values, want)
    for low in (0.2, 0.4, 0.6):
        near = (episode.values > low) & (episode.values < low + 0.2)
        assert episode.rewards[near].mean() == pytest.approx(episode.values[near].mean(), abs=0.02)


def test_names_and_reprs_are_short():
    assert Synthetic().name == "synthetic"
    assert Synthetic(clusters=2).name == "clusters"
    assert Synthetic(curve=0.5).name == "curve"
    assert repr(Synthetic(rank=3)) == "Synthetic(rank=3)"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dim": 0}, ["dim", "1 or more", "0"]),
        ({"dim": 3.0}, ["dim", "whole number", "3.0"]),
        ({"rank": 31}, ["rank", "0 to 30", "31"]),
        ({"arms": 0}, ["arms"]),
        ({"clusters": 0}, ["clusters"]),
        ({"mean": "up"}, ["mean", "'off', 'on', 'anywhere'", "'up'"]),
        ({"noise": 0.0}, ["noise", "positive"]),
        ({"inside": -1.0}, ["inside", "0 or more"]),
        ({"outside": float("nan")}, ["outside", "nan"]),
        ({"drift": True}, ["drift", "True"]),
        ({"dim": 3, "rank": 1, "curve": 1.0}, ["dim", "4 or more", "3"]),
        ({"rank": 30}, ["offset", "0", "0.5"]),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(hs.InputError) as caught:
        Synthetic(**settings)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 0.5, None, True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(hs.InputError, match="seed must be"):
        Synthetic().population(seed)


def test_contexts_may_be_uniform_on_the_sphere():
    contexts = Synthetic(dim=3, rank=1, contexts="sphere").population(0).episode(0, 400).contexts
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=-1), 1.0)
    flat = contexts.reshape(-1, 3)
    # In three dimensions every coordinate is uniform on [-1, 1] (Archimedes).
    np.testing.assert_allclose(
        np.quantile(flat, [0.25, 0.5, 0.75], axis=0).T, [[-0.5, 0, 0.5]] * 3, atol=0.05
    )
    with pytest.raises(hs.InputError, match="contexts"):
        Synthetic(contexts="cube")


def test_heavy_tails_are_those_of_a_student_distribution_of_the_same_variance():
    """By scipy's quantiles; the largest of 4000 normal variables is less than 6 deviations away."""
    from scipy import stats

    dof, shares = 3.5, np.array([0.5, 0.9, 0.99])
    wanted = stats.t.ppf(0.5 + shares / 2, dof) * np.sqrt((dof - 2) / dof)
    for option in ("task_dof", "reward_dof"):
        world = Synthetic(**SMALL, **{option: dof})
        population = world.population(1)
        assert not world.gaussian
        if option == "task_dof":
            drawn = population.draw_tasks(4000, np.random.default_rng(3)) - population.truth.mean
            scaled = np.linalg.solve(np.linalg.cholesky(population.truth.covariance), drawn.T)[0]
        else:
            episode = population.episode(0, 4000)
            scaled = (episode.rewards - episode.values)[:, 0] / world.noise
        found = np.quantile(np.abs(scaled), shares)
        np.testing.assert_allclose(found, wanted, rtol=0.12)
        assert np.abs(scaled).max() > 6
    for dof in (-1.0, 1.0, 2.0, np.nan):
        with pytest.raises(hs.InputError, match="reward_dof"):
            Synthetic(**SMALL, reward_dof=dof)
