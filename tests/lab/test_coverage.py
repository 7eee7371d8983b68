"""Coverage is counted as it is defined, and is nominal where the prior is the true one."""

import dataclasses
import functools

import numpy as np
import polars as pl
import pytest
from scipy import stats

import headstart as hs
from headstart.lab import Execution, figures, one_seed
from headstart.lab.one_seed import LEVELS, measure_coverage
from headstart.lab.report import VERDICTS
from headstart.lab.studies import calibration
from headstart.lab.studies.calibration import coverage_claim, coverage_rows
from headstart.lab.studies.runner import QUICK, Runner
from headstart.worlds import Synthetic

WORLD = Synthetic(dim=3, rank=2, arms=4, noise=0.2, inside=0.5)


def with_prior(factor):
    """The bandit with the true prior of seed 0, its variance multiplied by a factor."""
    truth = WORLD.population(0).truth
    return functools.partial(
        hs.Bandit,
        transfer=hs.Oracle(truth.mean, factor * truth.covariance),
        noise=WORLD.noise,
        intercept=False,
    )


def test_with_the_true_prior_every_level_is_covered_as_it_says(monkeypatch):
    """Intervals of 120 independent tasks, within four standard errors."""
    monkeypatch.setattr(one_seed, "Bandit", with_prior(1.0))
    shares = measure_coverage(WORLD, 0, 120, (0, 2, 8))
    assert shares.shape == (120, 3, 2, len(LEVELS))
    error = shares.std(0) / np.sqrt(len(shares))
    assert (np.abs(shares.mean(0) - LEVELS) < 4 * error).all()


def test_a_prior_that_is_too_narrow_covers_as_much_as_it_should(monkeypatch):
    """A new task under a third of the standard deviation: 2 Φ(q/3) − 1 in place of the level."""
    monkeypatch.setattr(one_seed, "Bandit", with_prior(1 / 9))
    shares = measure_coverage(WORLD, 0, 120, (0, 1))[:, 0, 0]
    wanted = 2 * stats.norm.cdf(stats.norm.ppf(0.5 + np.array(LEVELS) / 2) / 3) - 1
    error = shares.std(0) / np.sqrt(len(shares))
    assert (np.abs(shares.mean(0) - wanted) < 4 * error).all()


def test_the_default_predicts_arms_that_it_has_not_played():
    """Counted again, by hand, from the beliefs of a bandit that is played in the same way."""
    shares = measure_coverage(WORLD, 3, 4, (0, 5))
    population, bandit = WORLD.population(3), hs.Bandit(3, seed=3)
    for number in range(4):
        episode, task = population.episode(number, 15), bandit.task(number)
        contexts = np.column_stack([episode.contexts[5:, 0], np.ones(10)])
        for stage in (0, 1):
            mean, scale = contexts @ task.belief.mean, task.belief.noise
            covariance = task.belief.root @ task.belief.root.T
            variance = scale**2 * np.einsum("ki,ij,kj->k", contexts, covariance, contexts)
            for kind, (values, more) in enumerate(
                ((episode.values, 0.0), (episode.rewards, scale**2))
            ):
                away = np.abs(values[5:, 0] - mean) / np.sqrt(variance + more)
                inside = [2 * stats.norm.cdf(away) - 1 <= level for level in LEVELS]
                np.testing.assert_allclose(shares[number, stage, kind], np.mean(inside, axis=1))
            for k in range(5 if stage == 0 else 0):
                choice = task.choose(episode.contexts[k])
                task.learn(choice, episode.rewards[k, choice.arm])
        task.close()


def table(**means):
    """Shares of 90 % intervals on three seeds, .01 around a mean for each stage of one world."""
    return pl.DataFrame(
        [
            {"world": "w", "stage": stage, "level": 0.9, "seed": seed, "share": mean + away}
            for stage, mean in means.items()
            for seed, away in enumerate((-0.01, 0.0, 0.01))
        ]
    )


@pytest.mark.parametrize(
    ("means", "verdict", "off"),
    [
        ({"new": 0.9, "late": 0.91}, "holds", "–"),
        ({"new": 0.93, "late": 0.9}, "not settled", "too wide: new"),
        ({"new": 0.9, "late": 0.8}, "fails", "too narrow: late"),
        ({"new": 0.88, "late": 0.99}, "fails", "too wide: late"),
    ],
)
def test_a_claim_is_settled_only_where_the_interval_over_seeds_supports_it(means, verdict, off):
    """Half-widths are t(.975, 2) × .01/√3 = .025."""
    shares = table(**means)
    assert coverage_claim("w", shares).verdict == verdict
    (row,) = coverage_rows("11–20", shares)
    assert row["clearly off"] == off
    assert row["new"] == f"{means['new']:.3f} ± 0.025"


def test_the_figure_has_an_interval_for_every_world_stage_and_level():
    rng = np.random.default_rng(0)
    shares = pl.DataFrame(
        [
            {"world": world, "stage": stage, "level": level, "seed": seed, "share": rng.random()}
            for world in ("b <i>", "a $x$")
            for stage in ("new", "late")
            for level in (0.5, 0.9)
            for seed in range(3)
            if (world, stage) != ("a $x$", "late")  # its tasks are shorter
        ]
    )
    figure = figures.coverage(shares, "an arm's expected reward")
    assert len(figure.table) == 6
    assert figure.summary["world"].to_list() == ["b <i>", "b <i>", "a $x$"]
    own = shares.filter(world="a $x$", level=0.9)["share"].to_numpy()
    (row,) = figure.table.filter(world="a $x$", level=0.9).to_dicts()
    half = stats.t.ppf(0.975, 2) * own.std(ddof=1) / np.sqrt(3)
    assert row["mean"] == pytest.approx(own.mean())
    assert row["low"] == pytest.approx(max(0.0, own.mean() - half))
    drawing = figure.draw()
    assert [axes.get_title() for axes in drawing.axes] == ["nominal 50%", "nominal 90%"]
    assert {axes.get_xlabel() for axes in drawing.axes} == {"actual coverage"}
    assert len(figure.explore().data) == 4
    one = figures.coverage(shares.filter(seed=0), "a reward")
    assert "no intervals" in one.caption
    one.draw()
    one.explore()
    with pytest.raises(hs.InputError, match="stage"):
        figures.coverage(shares.drop("stage"), "a reward")


def test_a_single_task_is_enough_for_a_table_without_earlier_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "MORE_WORLDS", {})
    scale = dataclasses.replace(QUICK, tasks=1, seeds=2, rounds=7)
    study = Runner(tmp_path, scale, tune=False, execution=Execution(workers=1))
    (section,), (claim,) = calibration.calibration(study, {"here": (WORLD, 7)}, (1, 2))
    assert section.table["tasks"].to_list() == ["1–1"]
    assert section.table.columns == ["world", "tasks", "new task", "after 5 rewards", "clearly off"]
    assert claim.verdict in VERDICTS
