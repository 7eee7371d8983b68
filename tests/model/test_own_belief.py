"""A prior and a belief of one's own in a bandit: batched, rebuilt, saved and loaded like ours."""

import dataclasses

import numpy as np
import pytest

import headstart as hs
from headstart.model.base import BaseBelief, BasePrior

DIM, ARMS = 3, 4


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureWisePrior(BasePrior):
    precision: np.ndarray
    noise: float = 1.0

    @property
    def dim(self):
        return len(self.precision)

    def belief(self, evidence=None):
        if evidence is None:
            return FeatureWise(self, self.precision, np.zeros(self.dim), 0.0)
        precision = self.precision + np.diagonal(evidence.gram)
        return FeatureWise(self, precision, evidence.moment, evidence.rounds)

    def as_gaussian(self):
        return hs.Prior.gaussian(np.zeros(self.dim), np.diag(self.noise**2 / self.precision))


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureWise(BaseBelief):
    """Every feature judged on its own: O(d) numbers for a task."""

    prior: FeatureWisePrior
    precision: np.ndarray
    moment: np.ndarray
    rounds: float

    @property
    def noise(self):
        return self.prior.noise

    def predict(self, contexts):
        return contexts @ (self.moment / self.precision)

    def width(self, contexts):
        return np.sqrt(contexts**2 @ (1.0 / self.precision))

    def draw(self, rng, scale, size=None):
        shape = (self.dim,) if size is None else (size, self.dim)
        steps = rng.standard_normal(shape) / np.sqrt(self.precision)
        return self.moment / self.precision + scale * steps

    def update(self, x, r):
        return self.replace(
            precision=self.precision + x**2, moment=self.moment + r * x, rounds=self.rounds + 1.0
        )


@dataclasses.dataclass(frozen=True, repr=False)
class Sparse(hs.Transfer):
    start: float = 1.0

    def init(self, dim, noise=None, batch=()):
        return {"tasks": 0.0, "precision": np.full(dim, self.start)}

    def fold(self, state, evidence, weight=1.0):
        return state | {"tasks": state["tasks"] + weight}

    def prior(self, state):
        return FeatureWisePrior(state["precision"], 0.5)


def serve(bandit, seed, together):
    """The arms of a few tasks, one by one or in one call."""
    arms = []
    for at in range(12):
        tables = np.random.default_rng([seed, at]).standard_normal((5, ARMS, DIM))
        if together:
            choices = list(bandit.choose_many(range(5), tables))
        else:
            choices = [bandit.task(id).choose(table) for id, table in enumerate(tables)]
        bandit.learn(choices, [float(choice.context[0]) for choice in choices])
        arms.append([choice.arm for choice in choices])
    return arms


@pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
@pytest.mark.parametrize("noise", ["auto", 0.5])
@pytest.mark.parametrize("live", [2, 256])
def test_it_serves_is_saved_and_loaded(rule, noise, live, tmp_path):
    bandit, twin = (
        hs.Bandit(DIM, Sparse(), rule, noise, seed=3, cache_size=live) for _ in range(2)
    )
    arms = serve(bandit, 0, together=False)
    assert serve(twin, 0, together=True) == arms
    assert len({arm for row in arms for arm in row}) > 1
    bandit.task(1).close()
    assert isinstance(bandit.prior, FeatureWisePrior)
    assert isinstance(bandit.task(0).belief, FeatureWise)
    assert bandit.task(0).belief.rounds == 12
    assert bandit.task(0).predict(np.eye(DIM)).mean[0] == pytest.approx(1.0, abs=0.3)
    assert "Sparse" in str(bandit.report())
    bandit.save(tmp_path / "b")
    loaded = hs.load(tmp_path / "b")
    assert loaded.task(0).belief == bandit.task(0).belief
    assert serve(loaded, 1, together=True) == serve(bandit, 1, together=False)


def test_refused_where_the_file_has_another(tmp_path):
    bandit = hs.Bandit(DIM, Sparse(), noise=0.5, seed=3)
    serve(bandit, 0, together=False)
    bandit.save(tmp_path / "b")
    with pytest.raises(hs.FileError):
        hs.load(tmp_path / "b", transfer=hs.Independent())


def test_the_radii_of_an_analysis_are_refused():
    with pytest.raises(hs.InputError, match="radius must be a number"):
        hs.Bandit(DIM, Sparse(), hs.UCB("theory"), 0.5)
