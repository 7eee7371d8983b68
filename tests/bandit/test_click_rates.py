"""Rates that a fit of rare clicks predicts: those of its rows."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import headstart as hs

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
