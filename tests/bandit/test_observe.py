"""Learning from rounds that were not choices: the same evidence as choosing and learning."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

DIM = 3
MAKE = {
    "default": lambda: hs.Bandit(DIM, seed=0),
    "noise": lambda: hs.Bandit(DIM, seed=0, noise=0.5),
    "half-life": lambda: hs.Bandit(DIM, seed=0, half_life=4.0),
    "mixture": lambda: hs.Bandit(DIM, hs.Mixture(2), seed=0),
    "forced": lambda: hs.Bandit(DIM, hs.Gaussian(), hs.Forced(2, hs.Thompson()), seed=0),
    "subspace": lambda: hs.Bandit(DIM, hs.Subspace(), seed=0),
}
each_bandit = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def rounds(seed, count=12):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, DIM)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
    return contexts, contexts @ [1.0, -0.2, 3.0] + 0.3 * rng.standard_normal(count)


def play(task, contexts, rewards):
    for context, reward in zip(contexts, rewards, strict=True):
        task.learn(task.choose([context]), reward)


def assert_same_evidence(one, other):
    for name in ("gram", "moment", "rounds", "squares"):
        ours, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@each_bandit
def test_observing_leaves_the_evidence_of_choosing_and_learning(make):
    observed, played = make(), make()
    for id in range(3):
        observed.task(id).observe(*rounds(id))
        play(played.task(id), *rounds(id))
        assert_same_evidence(observed.task(id).evidence, played.task(id).evidence)
        assert observed.task(id).rounds == played.task(id).rounds == 12


def test_observing_moves_belief_and_prior_as_learning_does():
    """The running tasks that observed count for the prior of a new one, before they close."""
    observed, played = (hs.Bandit(DIM, seed=0, noise=0.5) for _ in "12")
    for id in range(20):
        for start in (0, 7):
            part = [values[start : start + 7] for values in rounds(id)]
            observed.task(id).observe(*part)
            play(played.task(id), *part)
    for bandit in (observed, played):
        for id in range(10):
            bandit.task(id).close()
    np.testing.assert_allclose(observed.prior.mean, played.prior.mean, atol=0.05)
    offer = rounds(99)[0]
    for id in (3, 15, "new"):  # closed, running and new
        ours, theirs = (bandit.task(id).predict(offer) for bandit in (observed, played))
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=0.1)
        np.testing.assert_allclose(ours.upper, theirs.upper, atol=0.1)


def test_the_belief_is_the_posterior_of_its_prior_given_the_evidence():
    bandit = hs.Bandit(DIM, hs.Independent(), noise=0.5, seed=0)
    task = bandit.task("a")
    task.learn(task.choose(np.eye(DIM)), 1.0)
    task.observe(*rounds(1), weight=2.0)
    expected = hs.Belief.of(task.belief.prior, task.evidence)
    np.testing.assert_allclose(task.belief.mean, expected.mean)
    np.testing.assert_allclose(task.belief.covariance, expected.covariance)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.sampled_from(["default", "half-life", "noise"]),
    st.lists(st.integers(0, 12), max_size=3),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=12, max_size=12),
)
def test_how_rounds_are_divided_into_calls_does_not_matter(kind, cuts, weights):
    whole, parts = (MAKE[kind]().task("a") for _ in "12")
    contexts, rewards = rounds(5)
    whole.observe(contexts, rewards, weights)
    edges = [0, *sorted(cuts), 12]
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            some = slice(start, stop)
            parts.observe(contexts[some], rewards[some], weights[some])
    assert_same_evidence(whole.evidence, parts.evidence)
    assert whole.rounds == parts.rounds == sum(weight > 0 for weight in weights)


def test_weights_count_rounds_several_times():
    contexts, rewards = rounds(2)
    weights = np.arange(12) % 4
    weighted, repeated = (hs.Bandit(DIM, seed=0).task("a") for _ in "12")
    weighted.observe(contexts, rewards, weight=weights)
    repeated.observe(np.repeat(contexts, weights, 0), np.repeat(rewards, weights))
    assert_same_evidence(weighted.evidence, repeated.evidence)
    assert weighted.rounds == 9


def test_rounds_of_small_weight_say_little_of_the_noise_and_spoil_no_fit(recwarn):
    """Three rounds of four features that count as one and a half: fewer than they determine."""
    rng = np.random.default_rng(0)
    bandit, mean = hs.Bandit(4, seed=0), rng.normal(size=4)
    for task in range(12):
        contexts = rng.normal(size=(3, 4))
        rewards = contexts @ (mean + 0.2 * rng.normal(size=4)) - 300.0 + 0.1 * rng.normal(size=3)
        bandit.task(task).observe(contexts, rewards, weight=[1.0, 0.2, 0.3])
        assert 0.01 < bandit.prior.noise < 3.0
    assert not recwarn.list


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pd.DataFrame.to_dict, list])
def test_frames_and_series_are_read_by_name(make):
    contexts, rewards = rounds(4)
    bandit = hs.Bandit(DIM, seed=0)
    frame = pd.DataFrame(contexts, columns=["a", "b", "c"])
    bandit.task(0).choose(frame)
    if make in (pd.DataFrame, pl.DataFrame):
        turned = make(frame[["c", "a", "b"]].to_dict("list"))
        bandit.task("x").observe(turned, pl.Series(rewards))
    else:
        bandit.task("x").observe(contexts.tolist(), pd.Series(rewards, index=range(12, 0, -1)))
    np.testing.assert_allclose(bandit.task("x").evidence.moment[:DIM], rewards @ contexts)


@each_bandit
def test_late_rounds_of_a_closed_task_change_the_prior_as_if_they_had_come_before(make):
    early, late = make(), make()
    for bandit in (early, late):
        for id in range(5):
            bandit.task(id).observe(*rounds(id))
    contexts, rewards = rounds(50, 30)
    early.task(2).observe(contexts, rewards)
    for bandit in (early, late):
        for id in range(5):
            bandit.task(id).close()
    late.task(2).observe(contexts, rewards)
    assert late.task(2).closed
    assert_same_evidence(early.task(2).evidence, late.task(2).evidence)
    ours, theirs = (bandit.prior.as_gaussian() for bandit in (early, late))
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=0.02, atol=0.02)


def test_evidence_can_be_added_to_a_task():
    contexts, rewards = rounds(3)
    rows = np.column_stack([contexts, np.ones(12)])
    bandit, other = (hs.Bandit(DIM, seed=0) for _ in "12")
    assert bandit.add_evidence(7, hs.Evidence.of(rows, rewards))
    other.task("7").observe(contexts, rewards)
    assert_same_evidence(bandit.task("7").evidence, other.task("7").evidence)
    assert bandit.task(7).rounds == 12
    bandit.add_evidence("7", hs.Evidence.zero(DIM + 1))
    assert bandit.task(7).rounds == 12
    choice = bandit.task(7).choose(contexts)
    bandit.learn(choice, 1.0)
    assert bandit.task(7).rounds == 13


def test_a_frozen_bandit_checks_but_learns_nothing(books):
    bandit = hs.Bandit(DIM, seed=0)
    task = bandit.task("a")
    bandit.freeze()
    before = books(bandit)
    assert task.observe(*rounds(0)) is False
    assert bandit.add_evidence("new", hs.Evidence.zero(DIM + 1)) is False
    with pytest.raises(hs.InputError, match="rewards must be"):
        task.observe(rounds(0)[0], [1.0])
    assert books(bandit) == before


def test_observed_rounds_are_saved(tmp_path):
    bandit = hs.Bandit(DIM, seed=0)
    bandit.task("a").observe(*rounds(0))
    bandit.task("b").observe(*rounds(1))
    bandit.task("b").close()
    bandit.save(tmp_path / "bandit")
    loaded = hs.load(tmp_path / "bandit")
    assert loaded.task("a").evidence == bandit.task("a").evidence
    assert loaded.task("a").choose(rounds(9)[0]).arm == bandit.task("a").choose(rounds(9)[0]).arm


X, R = np.ones((2, DIM)), [1.0, 2.0]
BAD = {
    "one vector": ((np.ones(DIM), 1.0), "contexts must be of shape"),
    "no rounds": ((np.ones((0, DIM)), []), "at least one"),
    "other width": ((np.ones((2, 2)), R), "contexts must be of shape"),
    "nan": ((np.full((2, DIM), np.nan), R), "contexts must be finite"),
    "huge": ((np.full((2, DIM), 1e61), R), "contexts must be finite everywhere and below"),
    "one reward": ((X, 1.0), "rewards must be 2 numbers"),
    "too few rewards": ((X, [1.0]), "rewards must be 2 numbers, one per row of contexts; got 1"),
    "missing reward": ((X, [1.0, np.nan]), "rewards must be finite"),
    "none as reward": ((X, [1.0, None]), "rewards must be 2 numbers"),
    "text": ((X, ["a", "b"]), "rewards must be 2 numbers"),
    "huge reward": ((X, [1.0, 1e61]), "rewards must be below 1e"),
    "two weights too few": ((X, R, [1.0]), "weight must be a number, or 2 of them, 0 or more"),
    "negative weight": ((X, R, [1.0, -1.0]), "weight must be .* 0 or more; got -1"),
    "infinite weight": ((X, R, np.inf), "weight must be finite"),
    "huge weight": ((1e59 * X, R, 1e15), "weight must leave weighted rounds below"),
    "more weight than can be counted": ((X, R, 1e30), "weight must add up to 2.53 rounds"),
    "more weight than there is": ((X, R, 1e308), "weight must add up to 2.53 rounds"),
    "text as weight": ((X, R, "2"), "weight must be a number"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_rounds_are_refused_and_change_nothing(arguments, message, books):
    bandit = hs.Bandit(DIM, seed=0)
    task = bandit.task("a")
    before = books(bandit)
    with pytest.raises(hs.InputError, match=message):
        task.observe(*arguments)
    assert books(bandit) == before


@pytest.mark.parametrize(
    "evidence",
    [
        None,
        hs.Evidence.zero(DIM),
        hs.Evidence.zero(DIM + 1, (2,)),
        hs.Evidence.of(np.full((1, DIM + 1), 1e100), [1.0]),
        hs.Evidence.zero(DIM + 1).replace(rounds=1e17),
    ],
    ids=["none", "no intercept", "two tasks", "huge", "too many rounds"],
)
def test_bad_evidence_is_refused_and_makes_no_task(evidence, books):
    bandit = hs.Bandit(DIM, seed=0)
    before = books(bandit)
    with pytest.raises(hs.InputError, match="evidence must be"):
        bandit.add_evidence("a", evidence)
    assert books(bandit) == before


def test_the_context_of_all_rounds_can_be_passed_once(tmp_path):
    schema = hs.Schema(
        context={"device": hs.category("phone", "desktop")},
        action={"price": hs.number(missing=False)},
        crosses="all",
        identity=True,
    )
    rows = [{"id": "tea", "price": 1.0}, {"id": "mug", "price": 3.0}, {"id": "tea", "price": 2.0}]
    one, other = hs.Bandit(schema, seed=0), hs.Bandit(schema, seed=0)
    context = {"device": "phone"}
    one.task("ann").observe([row | context for row in rows], [1.0, 0.0, 2.0])
    other.save(tmp_path / "bandit")
    with hs.Journal(tmp_path / "journal") as journal:
        other.task("ann").observe(rows, [1.0, 0.0, 2.0], context=context, journal=journal)
    assert_same_evidence(one.task("ann").evidence, other.task("ann").evidence)
    again = hs.load(tmp_path / "bandit")
    assert again.replay(tmp_path / "journal").learned == 1
    assert_same_evidence(again.task("ann").evidence, other.task("ann").evidence)
    with pytest.raises(hs.InputError, match="context"):
        hs.Bandit(2, seed=0).task("ann").observe([[1.0, 2.0]], [1.0], context=context)


def test_a_reward_that_is_missing_is_named():
    task = hs.Bandit(1, seed=0).task("ann")
    with pytest.raises(
        hs.InputError, match=r"rewards must be 2 numbers.*; got None at index \(1,\)"
    ):
        task.observe([[1.0], [2.0]], [1.0, None])
    assert task.rounds == 0
