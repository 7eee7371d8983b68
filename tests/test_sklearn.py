"""scikit-learn habits: clone and get_params on settings, and TaskRidge as an estimator."""

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import headstart as hs
from headstart.sklearn import TaskRidge

SETTINGS = [
    hs.UCB("theory", delta=0.1, explore=0.2),
    hs.Thompson(0.5, probability=(0.1, 0.9)),
    hs.Greedy(),
    hs.Uniform(),
    hs.Forced(3, hs.UCB(2.0)),
    hs.EmpiricalBayes(running=False),
    hs.Mixture(2),
    hs.Bias(),
    hs.Independent(3.0),
    hs.Gaussian(),
    hs.Subspace(rank=2, pca=hs.CCIPCA("weng", amnesia=1.0)),
    hs.Oracle.gaussian([0.0, 1.0], np.eye(2)),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_settings_are_cloned_and_made_again_from_their_params(settings):
    copied = clone(settings)
    assert copied == settings
    assert copied is not settings
    params = settings.get_params(deep=False)
    assert type(settings)(**params) == settings
    assert settings.replace() == settings
    for name, value in settings.get_params().items():
        assert settings.replace(**{name: value}) == settings


def test_nested_settings_are_named_after_their_owner():
    rule = hs.Forced(3, hs.UCB(2.0))
    assert rule.get_params()["then__radius"] == 2.0
    assert "then__radius" not in rule.get_params(deep=False)
    changed = rule.replace(then__radius=1.5, then__explore=0.1, rounds=4)
    assert changed == hs.Forced(4, hs.UCB(1.5, explore=0.1))
    assert rule == hs.Forced(3, hs.UCB(2.0))
    for wrong in ({"radius": 1.0}, {"rounds__radius": 1.0}, {"then__round": 1.0}):
        with pytest.raises(hs.InputError, match="has the settings"):
            rule.replace(**wrong)
    with pytest.raises(hs.InputError, match="radius must be"):
        rule.replace(then__radius=-1.0)


@parametrize_with_checks([TaskRidge(), TaskRidge(hs.Independent(), fit_intercept=False)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def tasks_of(seed=0, tasks=60, rows=8):
    """Tasks whose coefficients vary in one direction, in features of different units."""
    rng = np.random.default_rng(seed)
    task = rng.permutation(np.repeat(np.arange(tasks), rows))
    units = np.array([1.0, 100.0, 0.01, 1.0, 1.0])
    X = rng.standard_normal((len(task), 5)) * units + units
    theta = np.outer(rng.standard_normal(tasks), [0, 0, 1, 1, 1]) + np.array([1, -1, 0.5, 0, 0])
    y = 3.0 + (X / units * theta[task]).sum(1) + 0.5 * rng.standard_normal(len(task))
    return X, y, task


class TestTaskRidge:
    def test_predicts_as_a_bandit_that_was_fitted(self):
        X, y, task = tasks_of()
        model = TaskRidge().fit(X, y, task=task)
        rows = {"t": task, "r": y} | {f"x{at}": X[:, at] for at in range(5)}
        bandit = hs.Bandit(5, seed=0).fit(rows, task="t", reward="r")
        expected = bandit.task("a new one").predict(X, level=0.6827, of_reward=True)
        mean, deviation = model.predict(X, task=["other"] * len(X), return_std=True)
        np.testing.assert_allclose(mean, expected.mean, rtol=1e-9)
        # Of a t distribution with some hundred degrees of freedom, nearly a normal one.
        np.testing.assert_allclose(deviation, expected.upper - mean, rtol=0.01)
        np.testing.assert_array_equal(model.predict(X), mean)  # of new tasks, unless it says
        np.testing.assert_allclose(mean, X @ model.coef_ + model.intercept_)
        assert set(model.tasks_) == {str(id) for id in range(60)}

    @pytest.mark.parametrize("transfer", [None, hs.Bias(), hs.Mixture(2)], ids=repr)
    def test_a_known_task_has_the_posterior_of_its_own_rows(self, transfer):
        X, y, task = tasks_of()
        model = TaskRidge(transfer).fit(X, y, task=task)
        own = task == 7
        evidence = hs.Evidence.of(np.column_stack([X, np.ones(len(X))])[own], y[own])
        belief = model.prior_.belief(evidence)
        expected = belief.predict(np.column_stack([X, np.ones(len(X))]))
        mean = model.predict(X, task=np.full(len(X), 7))
        np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-6)

    def test_tasks_with_few_rows_gain_from_the_others(self):
        X, y, task = tasks_of(tasks=120, rows=16)
        known = np.random.default_rng(0).random(len(task)) < 0.5
        model = TaskRidge().fit(X[known], y[known], task=task[known])
        mean, deviation = model.predict(X[~known], task=task[~known], return_std=True)
        error = np.sqrt(np.mean((mean - y[~known]) ** 2))
        pooled = LinearRegression().fit(X[known], y[known]).predict(X[~known])
        alone = np.empty(len(task))
        for id in range(120):
            own = task == id
            ridge = make_pipeline(StandardScaler(), Ridge()).fit(X[own & known], y[own & known])
            alone[own] = ridge.predict(X[own])
        for other in (pooled, alone[~known]):
            assert error < 0.8 * np.sqrt(np.mean((other - y[~known]) ** 2))
        inside = np.abs(mean - y[~known]) < 1.645 * deviation
        assert 0.86 < inside.mean() < 0.94
        assert model.score(X[~known], y[~known], task=task[~known]) > 0.9

    def test_weights_count_rows_several_times(self):
        X, y, task = tasks_of(tasks=20, rows=20)  # more rows than coefficients leave residuals
        weights = np.random.default_rng(0).integers(0, 4, len(task))
        weighted = TaskRidge().fit(X, y, task=task, sample_weight=weights)
        parts = (np.repeat(part, weights, axis=0) for part in (X, y, task))
        X2, y2, task2 = parts
        repeated = TaskRidge().fit(X2, y2, task=task2)
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)

    def test_ids_of_any_kind_name_the_same_tasks(self):
        X, y, task = tasks_of(tasks=10)
        frame = pd.DataFrame(X, columns=list("abcde"))
        models = [
            TaskRidge(hs.Bias()).fit(frame, y, task=ids)
            for ids in (task, task.tolist(), pd.Series(task), task.astype(str), task.astype(object))
        ]
        for model in models:
            np.testing.assert_allclose(
                model.predict(frame, task=task.astype(str)).sum(),
                models[0].predict(frame, task=task).sum(),
            )
        assert list(models[0].feature_names_in_) == list("abcde")
        mixed = models[0].predict(frame[:2], task=[3, "never seen"])
        assert mixed[1] == models[0].predict(frame[1:2])[0]

    def test_works_in_pipelines_searches_and_pickles(self):
        X, y, task = tasks_of(tasks=12)
        pipeline = make_pipeline(StandardScaler(), TaskRidge(standardize=False))
        pipeline.fit(X, y, taskridge__task=task)
        assert pipeline.predict(X, task=task).shape == y.shape
        search = GridSearchCV(
            TaskRidge(hs.Independent()), {"transfer__lam": [0.01, 1e6], "noise": [0.5, 0.6]}, cv=3
        )
        search.fit(X, y)
        assert search.best_params_["transfer__lam"] == 0.01
        assert search.best_estimator_.transfer == hs.Independent(0.01)
        model = pipeline[-1]
        with pytest.warns(UserWarning, match="scored as those of new tasks"):
            model.score(X, y)
        with sklearn.config_context(enable_metadata_routing=True):
            routed = TaskRidge().set_fit_request(task=True).set_score_request(task=True)
            scores = cross_val_score(routed, X, y, cv=3, params={"task": task})
        assert scores.min() > 0.5
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X, task=task), model.predict(X, task=task))
        given = TaskRidge(hs.Independent())
        with pytest.raises(hs.InputError, match="has the settings"):
            given.set_params(transfer__nothing=1)
        with pytest.raises(ValueError, match="Invalid parameter"):
            given.set_params(nothing=1)
        assert given.transfer == hs.Independent()

    @pytest.mark.parametrize(
        ("settings", "arguments", "message"),
        [
            ({"transfer": "subspace"}, {}, "transfer must be a Transfer"),
            ({"transfer": hs.Gaussian()}, {}, r"use Gaussian\(forced=False\)"),
            ({"noise": -1.0}, {}, "noise must be a positive"),
            ({"fit_intercept": "yes"}, {}, "fit_intercept must be True or False"),
            ({"standardize": 1}, {}, "standardize must be True or False"),
            ({}, {"task": [1, 2]}, "task must be 40 ids, one per row of X"),
            ({}, {"task": "a"}, "task must be 40 ids"),
            ({}, {"task": np.full(40, 1.5)}, "id must be text"),
            ({}, {"task": [None] * 40}, "id must be text"),
            ({}, {"sample_weight": -np.ones(40)}, "[Nn]egative"),
            ({}, {"sample_weight": np.zeros(40)}, "non-zero|above 0"),
        ],
        ids=str,
    )
    def test_bad_arguments_are_refused(self, settings, arguments, message):
        X, y, _ = tasks_of(tasks=5)
        with pytest.raises(ValueError, match=message):
            TaskRidge(**settings).fit(X, y, **arguments)

    @pytest.mark.parametrize("name", ["X", "y", "task", "sample_weight"])
    def test_so_are_masked_values(self, name):
        X, y, task = tasks_of(tasks=5)
        given = {"X": X, "y": y, "task": task, "sample_weight": np.ones(len(y))}
        masked = np.ma.array(given[name])
        masked[3] = np.ma.masked
        with pytest.raises(hs.InputError, match=f"{name} must have no masked"):
            TaskRidge().fit(**(given | {name: masked}))
        if name in ("X", "task"):
            model = TaskRidge().fit(**given)
            asked = {"X": X, "task": task} | {name: masked}
            with pytest.raises(hs.InputError, match=f"{name} must have no masked"):
                model.predict(**asked)


def test_without_scikit_learn_the_module_says_what_to_install(monkeypatch):
    for name in ("sklearn", "sklearn.base"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "headstart.sklearn")
    with pytest.raises(ImportError, match=r"pip install 'headstart\[sklearn\]'"):
        importlib.import_module("headstart.sklearn")
