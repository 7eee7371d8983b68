"""Off-policy estimates: exact where everything can be enumerated, and the formulas of others."""

import itertools

import numpy as np
import pytest

import headstart as hs
from headstart.errors import InputError
from headstart.fleet import Columns
from headstart.fleet.evaluation.offpolicy import (
    estimate,
    follow_terms,
    missing,
    reason_to_withhold,
    replay_terms,
)
from headstart.fleet.evaluation.rollouts import Offers, Policy, follow, replay

PRIOR = hs.Prior.gaussian([0.4, 0.1], [[0.3, 0.1], [0.1, 0.2]], noise=0.5)
RULE = hs.Greedy(explore=0.3)  # its propensities are exact, and depend on what was learned
CONTEXTS = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.2, 1.0]]])  # two rounds, two arms
CHANCES = np.array([[0.8, 0.2], [0.3, 0.7]])  # of the policy that left the logs
SUCCESS = np.array([[0.3, 0.6], [0.9, 0.2]])  # probabilities of reward 1


def all_logs():
    """Every log of two rounds that can happen, with its probability: each one is a task."""
    found = []
    for arms in itertools.product((0, 1), repeat=2):
        for rewards in itertools.product((0.0, 1.0), repeat=2):
            chance = 1.0
            for at, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
                win = SUCCESS[at, arm]
                chance *= CHANCES[at, arm] * (win if reward else 1.0 - win)
            found.append((arms, rewards, chance))
    return found


def offers_of(logs, contexts=CONTEXTS, chances=CHANCES):
    """Logs (arms, rewards) over the same contexts as tasks side by side."""
    tasks, rounds, width = len(logs), len(contexts), contexts.shape[1]
    arms = np.array([log[0] for log in logs])
    places = np.arange(tasks * rounds)
    return Offers(
        np.tile(contexts.reshape(-1, contexts.shape[-1]), (tasks, 1)),
        np.arange(tasks * rounds + 1) * width,
        np.arange(tasks + 1) * rounds,
        arms.reshape(-1),
        np.array([log[1] for log in logs], dtype=float).reshape(-1),
        chances[places % rounds, arms.reshape(-1)],
    )


def chances_of(belief, at):
    return RULE.propensities(belief, CONTEXTS[at], np.random.default_rng(0)).values


def followed(offers, prior=PRIOR, rule=RULE):
    """The policy's probability of every arm on offer, along the log."""
    rng = np.random.default_rng(0)
    return follow(
        offers,
        prior,
        lambda belief, at: rule.propensities(belief, at.contexts, rng, at.allowed).values,
    )


def modelled(offers, model):
    """A model's reward of every arm on offer, along the log."""
    return follow(offers, model, lambda belief, at: belief.predict(at.contexts))


def test_ips_and_dr_are_unbiased_over_all_logs():
    logs = all_logs()
    assert sum(log[2] for log in logs) == pytest.approx(1.0)
    exact = 0.0
    for arms, rewards, chance in logs:
        belief = hs.Belief.start(PRIOR)
        for at in range(2):
            exact += chance * float(chances_of(belief, at) @ SUCCESS[at]) / 2
            belief = belief.learn(CONTEXTS[at, arms[at]], rewards[at])
    offers = offers_of(logs)
    for model in (PRIOR, hs.Prior.gaussian([3.0, -2.0], np.eye(2), noise=1.0)):  # good and absurd
        terms = follow_terms(offers, followed(offers), modelled(offers, model))
        for name in ("ips", "dr"):
            each = terms[name].above.reshape(-1, 2).mean(1)
            assert each @ [log[2] for log in logs] == pytest.approx(exact, abs=1e-12)


def sequential_values():
    """The exact expected reward of the policy's first and second round, run by itself."""
    start = hs.Belief.start(PRIOR)
    first = chances_of(start, 0)
    second = 0.0
    for arm in (0, 1):
        for reward, chance in ((1.0, SUCCESS[0, arm]), (0.0, 1.0 - SUCCESS[0, arm])):
            belief = start.learn(CONTEXTS[0, arm], reward)
            second += first[arm] * chance * float(chances_of(belief, 0) @ SUCCESS[0])
    return float(first @ SUCCESS[0]), second


@pytest.mark.parametrize("chances", [[0.5, 0.5], [0.8, 0.2]], ids=["uniform", "uneven"])
def test_replay_is_what_the_policy_would_have_met_itself(chances):
    rng = np.random.default_rng(1)
    tasks, rounds = 6000, 8
    contexts = np.repeat(CONTEXTS[:1], rounds, 0)
    table = np.tile(chances, (rounds, 1))
    arms = (rng.random((tasks, rounds)) < chances[1]).astype(int)
    rewards = (rng.random((tasks, rounds)) < SUCCESS[0][arms]).astype(float)
    offers = offers_of(list(zip(arms, rewards, strict=True)), contexts, table)
    kept = np.flatnonzero(replay(Policy("mine", PRIOR, RULE), offers, rng, min(chances)))
    owner = offers.owner[kept]
    place = np.arange(len(kept)) - np.searchsorted(owner, owner)
    for position, exact in enumerate(sequential_values()):
        seen = offers.rewards[kept][place == position]
        assert len(seen) > 1000
        assert seen.mean() == pytest.approx(exact, abs=4 * seen.std() / len(seen) ** 0.5)


def test_the_weighted_form_keeps_more_and_agrees():
    rng = np.random.default_rng(2)
    tasks, rounds = 4000, 6
    contexts = np.repeat(CONTEXTS[:1], rounds, 0)
    chances = np.tile([0.8, 0.2], (rounds, 1))
    arms = (rng.random((tasks, rounds)) < 0.2).astype(int)
    rewards = (rng.random((tasks, rounds)) < SUCCESS[0][arms]).astype(float)
    offers = offers_of(list(zip(arms, rewards, strict=True)), contexts, chances)
    policy = Policy("fixed", PRIOR, hs.Uniform())  # learns nothing: both estimate the same
    plain = replay_terms(policy, offers, np.random.default_rng(0))
    heavy = replay_terms(policy, offers, np.random.default_rng(0), weighted=True)
    assert heavy.used.sum() > 1.5 * plain.used.sum()
    assert plain.value == pytest.approx(SUCCESS[0].mean(), abs=0.02)
    assert heavy.value == pytest.approx(SUCCESS[0].mean(), abs=0.02)


@pytest.mark.parametrize("clip", [None, 1.7])
def test_formulas_are_those_of_open_bandit_pipeline(clip):
    rng = np.random.default_rng(3)
    rounds, arms = 500, 4
    action = rng.integers(0, arms, rounds)
    pscore = rng.uniform(0.1, 1.0, rounds)
    action_dist = rng.dirichlet(np.ones(arms), rounds)
    reward = rng.binomial(1, 0.4, rounds).astype(float)
    estimated = rng.uniform(0.0, 1.0, (rounds, arms))
    places = np.arange(rounds)
    # As InverseProbabilityWeighting, SelfNormalized… and DoublyRobust estimate_round_rewards does.
    iw = action_dist[places, action] / pscore
    if clip is not None:
        iw = np.minimum(iw, clip)
    wanted = {
        "ips": np.mean(reward * iw),
        "snips": np.mean(reward * iw / iw.mean()),
        "dr": np.mean(
            np.average(estimated, weights=action_dist, axis=1)
            + iw * (reward - estimated[places, action])
        ),
    }
    starts, tasks = arms * np.arange(rounds + 1), np.array([0, rounds // 2, rounds])
    offers = Offers(np.zeros((rounds * arms, 1)), starts, tasks, action, reward, pscore)
    found = follow_terms(offers, action_dist.ravel(), estimated.ravel(), clip)
    assert {name: terms.value for name, terms in found.items()} == pytest.approx(wanted)
    assert found["ips"].effective == pytest.approx(iw.sum() ** 2 / (iw**2).sum())
    assert found["ips"].effective <= rounds


def ragged(seed=4):
    """Tasks of different lengths, rounds of different numbers of arms."""
    rng = np.random.default_rng(seed)
    lengths, starts, rows, chosen = [3, 0, 5, 1], [0], [], []
    for _ in range(sum(lengths)):
        arms = int(rng.integers(1, 5))
        rows.append(rng.normal(size=(arms, 2)))
        starts.append(starts[-1] + arms)
        chosen.append(int(rng.integers(arms)))
    arms = np.diff(starts)
    return Offers(
        np.vstack(rows),
        np.array(starts),
        np.append(0, np.cumsum(lengths)),
        np.array(chosen),
        rng.normal(size=len(chosen)),
        1.0 / arms,
    )


def test_tasks_side_by_side_are_tasks_one_by_one():
    offers = ragged()
    model = hs.Prior.gaussian([1.0, 0.0], np.eye(2), noise=0.3)
    chances, rewards = followed(offers), modelled(offers, model)
    for task in range(len(offers.tasks) - 1):
        belief, other = hs.Belief.start(PRIOR), hs.Belief.start(model)
        for at in range(offers.tasks[task], offers.tasks[task + 1]):
            rows = slice(offers.starts[at], offers.starts[at + 1])
            x, arm, reward = offers.features[rows], offers.chosen[at], offers.rewards[at]
            chance = RULE.propensities(belief, x, np.random.default_rng(0)).values
            assert chances[rows] == pytest.approx(chance)
            assert rewards[rows] == pytest.approx(other.predict(x))
            belief, other = belief.learn(x[arm], reward), other.learn(x[arm], reward)


def test_forced_rounds_count_only_rounds_that_were_kept():
    offers = ragged()
    rule = hs.Forced(100, hs.Greedy())  # uniform as long as fewer than 100 rewards were seen
    kept = replay(Policy("forced", PRIOR, rule), offers, np.random.default_rng(0), None)
    assert 0 < kept.sum() < len(offers.rewards)
    np.testing.assert_allclose(
        followed(offers, rule=rule), np.repeat(1.0 / offers.arms, offers.arms)
    )


def test_every_policy_by_every_estimator_with_intervals():
    logs = [(log[0], log[1]) for log in all_logs()] * 5
    offers = offers_of(logs)
    policies = [Policy("mine", PRIOR, RULE), Policy("uniform", PRIOR, hs.Uniform())]
    values = estimate(offers, policies, PRIOR, clip=10.0)
    assert values[0].policy == "logged policy"
    assert values[0].value.value == pytest.approx(offers.rewards.mean())
    assert len(values) == 1 + 2 * 5
    for value in values:
        assert value.value.low <= value.value.value <= value.value.high
        assert 0 < value.effective <= value.used <= value.rounds == len(offers.rewards)
        assert 0 < value.tasks <= min(len(logs), value.used)
        assert (value.used < value.rounds) == ("replay" in value.estimator)
    with pytest.raises(InputError, match="clip must be a positive"):
        estimate(offers, policies, PRIOR, clip=0.0)


def test_it_says_what_would_have_to_be_logged():
    assert "(--round); a row for every arm" in missing(Columns("a", "b", "x*"))
    assert missing(Columns("a", "b", "x*", round="r", chosen="c", propensity="p")) == ""


def test_propensities_must_add_up_where_they_are_known():
    offers = offers_of([(log[0], log[1]) for log in all_logs()] * 10)
    rounds = len(offers.rewards)
    assert reason_to_withhold(offers) == ""  # nothing is known of the arms that were not shown
    assert reason_to_withhold(offers._replace(totals=np.full(rounds, np.nan))) == ""
    assert reason_to_withhold(offers._replace(totals=np.full(rounds, 1.0005))) == ""
    halves = reason_to_withhold(offers._replace(totals=np.full(rounds, 0.5)))
    assert f"in {rounds} of {rounds} rounds the propensities" in halves
    assert "median of all sums is 0.500" in halves
    assert "(--propensity)" in halves
    totals = np.ones(rounds)
    totals[: rounds // 100] = 0.7
    assert reason_to_withhold(offers._replace(totals=totals)) == ""
    totals[: rounds // 100 + 1] = 0.7
    assert reason_to_withhold(offers._replace(totals=totals)).startswith(
        "Off-policy values are withheld"
    )
    totals[:] = np.nan
    totals[:2] = 0.7
    assert "in 2 of 2 rounds" in reason_to_withhold(offers._replace(totals=totals))


def test_one_arm_a_round_tells_nothing():
    offers = offers_of(
        [((0, 0), (1.0, 0.0))] * 4, contexts=CONTEXTS[:, :1], chances=np.ones((2, 1))
    )
    assert "every round has one arm only" in reason_to_withhold(offers)
    none = offers._replace(
        starts=np.zeros(1, dtype=int), rewards=np.zeros(0), propensities=np.zeros(0)
    )
    assert "exactly one chosen arm; the log has none" in reason_to_withhold(none)
