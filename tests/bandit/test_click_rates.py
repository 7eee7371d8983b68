"""Rates that are predicted where clicks are rare: of a fit's rows, and of the population."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import headstart as hs
from headstart.lab.engine import EpisodeBatch, PolicyRun
from headstart.lab.policies import Policy
from headstart.model.logistic import expected_probability
from headstart.worlds.clicks import Clicks

TASKS, ROUNDS = 60, 60


def clicks_on_categories(seed, rate, sizes):
    """Clicks at a rate on values of skewed categories, by tasks that differ in their level."""
    rng = np.random.default_rng(seed)
    rows = TASKS * ROUNDS
    frame = {"user": np.repeat(np.arange(TASKS), ROUNDS)}
    odds = np.repeat(0.5 * rng.standard_normal(TASKS), ROUNDS)
    for number, size in enumerate(sizes):
        values = rng.choice(size, rows, p=rng.dirichlet(np.full(size, 0.5)))
        odds += 0.7 * rng.standard_normal(size)[values]
        frame[f"field {number}"] = np.array([f"v{value}" for value in range(size)])[values]
    levels = np.linspace(-12.0, 6.0, 1801)
    level = levels[np.searchsorted([expit(odds + level).mean() for level in levels], rate)]
    return frame | {"click": (rng.random(rows) < expit(odds + level)).astype(int)}


@pytest.mark.parametrize(
    ("rate", "sizes"), [(0.01, (8,)), (0.01, (8, 6)), (0.03, (8, 6)), (0.1, (8,))]
)
def test_the_average_prediction_of_a_fit_is_the_rate_of_its_rows(rate, sizes):
    frame = clicks_on_categories(1, rate, sizes)
    names = [name for name in frame if name.startswith("field")]
    values = list(zip(*(frame[name].tolist() for name in names), strict=True))
    distinct = sorted(set(values))
    places = np.array([distinct.index(value) for value in values])
    schema = hs.Schema(
        action={name: hs.category(*sorted(set(frame[name].tolist()))) for name in names}
    )
    bandit = hs.Bandit(schema, reward="binary", seed=0)
    bandit.fit(frame, task="user", reward="click")
    actions = [dict(zip(names, value, strict=True)) for value in distinct]
    predicted = bandit.task("new").predict(actions=actions).mean[places].mean()
    # Logistic regression with an intercept predicts the rate of its rows exactly.
    columns = np.eye(len(distinct))[places]
    other = LogisticRegression(C=10.0, tol=1e-8, max_iter=1000).fit(columns, frame["click"])
    expected = other.predict_proba(columns)[:, 1].mean()
    assert expected == pytest.approx(frame["click"].mean(), rel=1e-4)
    clicks = np.bincount(frame["user"], frame["click"], TASKS)
    assert (clicks == 0).any() == (rate < 0.1)
    assert predicted == pytest.approx(expected, rel=0.05)


def test_a_prior_learned_from_choices_predicts_the_rate_of_the_population():
    """Clicks at 1 %: rates were too high by a quarter."""
    world, dim, tasks, rounds, seeds = Clicks(6, 2, 4, base_rate=0.01), 7, 60, 100, range(12)
    populations = [world.population(seed) for seed in seeds]
    policy = Policy("clicks", hs.EmpiricalBayes(), hs.UCB(), intercept=True, reward="binary")
    run = PolicyRun(policy, populations, seeds)
    for task in range(tasks):
        episodes = [population.episode(task, rounds) for population in populations]
        run.play_task(EpisodeBatch(episodes), task == 0, None, np.array([rounds]))
    prior = run.player.transfer.prior(run.state)
    rows = np.c_[np.random.default_rng(0).standard_normal((2000, dim - 1)), np.ones(2000)]

    def rate(mean, covariance):
        width = np.sqrt(((rows @ covariance) * rows).sum(1))
        return expected_probability(rows @ mean, width).mean()

    ratios = []
    for seed, population in enumerate(populations):
        covariance = np.diag(np.full(dim, world.level**2))
        covariance[:-1, :-1] = population.covariance
        expected = rate(np.append(population.mean, population.intercept), covariance)
        ratios.append(rate(prior.mean[seed], prior.covariance[seed]) / expected)
    assert 0.9 < np.mean(ratios) < 1.1


def test_the_mean_intercept_of_clicks_is_never_shrunk(tmp_path):
    bandit = hs.Bandit(2, reward="binary", seed=0)
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit", transfer=hs.EmpiricalBayes(decay_tasks=50))
    assert bandit.transfer.free_intercept
    assert loaded.transfer.free_intercept
    assert not hs.Bandit(2).transfer.free_intercept
