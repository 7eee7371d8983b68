"""Tasks that drift: with a half-life, what a task has shown counts less as it ages."""

import numpy as np
import pytest

import headstart as hs

DIM, NOISE = 3, 0.3


def played(bandit, seed=0, rounds=20, id="a", scale=1.0, size=1.0):
    """Play a task at random and give its raw rounds."""
    rng, task = np.random.default_rng(seed), bandit.task(id)
    theta = rng.standard_normal(DIM)
    raw = []
    for _ in range(rounds):
        choice = task.choose(size * rng.standard_normal((4, DIM)))
        reward = scale * float(choice.context @ theta / size + NOISE * rng.standard_normal())
        task.learn(choice, reward)
        raw.append((choice.context, reward))
    return raw


def faded(raw, half_life):
    """By hand: Σ ρ^age x xᵀ and so on, with ρ = 2^(−1/half-life)."""
    ages = np.arange(len(raw))[::-1]
    share = 0.5 ** (ages / half_life)
    contexts, rewards = np.array([x for x, _ in raw]), np.array([r for _, r in raw])
    return hs.Evidence(
        (share[:, None] * contexts).T @ contexts,
        (share * rewards) @ contexts,
        share.sum(),
        share @ rewards**2,
    )


def same_belief(found, expected):
    """Equal in mean and covariance, up to rounding."""
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9, atol=1e-12)
    assert found.noise == expected.noise


def same_evidence(found, expected):
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("half_life", [0.5, 1.0, 7.3, 1000])
@pytest.mark.parametrize(
    "transfer",
    [hs.EmpiricalBayes(units="given"), hs.Independent(2.0), hs.Subspace()],
    ids=repr,
)
def test_the_belief_is_the_prior_and_the_faded_evidence(half_life, transfer):
    bandit = hs.Bandit(DIM, transfer, noise=NOISE, seed=0, half_life=half_life)
    prior = bandit.prior
    raw = played(bandit)
    same_evidence(bandit.task("a").evidence, faded(raw, half_life))
    same_belief(bandit.task("a").belief, hs.Belief.of(prior, faded(raw, half_life)))


def test_with_other_tasks_the_prior_is_theirs():
    """Their faded evidence, as it was when they finished: nothing ages while a task rests."""
    bandit = hs.Bandit(DIM, hs.Bias(), noise=NOISE, seed=0, half_life=5.0)
    told = []
    for id in range(6):
        told.append(faded(played(bandit, id, id=id), 5.0))
        bandit.task(id).close()
    prior = hs.Bias().prior(hs.Bias().refit(told, NOISE))
    raw = played(bandit, 9)
    same_belief(bandit.task("a").belief, hs.Belief.of(prior, faded(raw, 5.0)))


def test_an_idle_task_fades_as_a_live_one():
    beliefs = []
    for live in (1, 8):
        bandit = hs.Bandit(
            DIM, hs.Independent(), noise=NOISE, seed=0, half_life=4.0, cache_size=live
        )
        task = bandit.task("a")
        choices = [task.choose(np.eye(DIM)[n % 3 : n % 3 + 1]) for n in range(12)]
        for n, choice in enumerate(choices):
            bandit.task("b").choose(np.eye(DIM))
            task.learn(choice, float(n))
        beliefs.append(task.belief)
    same_belief(*beliefs)


def test_forced_rounds_fade_too():
    bandit = hs.Bandit(
        DIM, hs.Gaussian(), hs.Forced(5, hs.UCB()), noise=NOISE, seed=0, half_life=50.0
    )
    raw = played(bandit, rounds=5)
    evidence = bandit.task("a").evidence
    same_evidence(evidence, faded(raw, 50.0))
    same_evidence(evidence.forced, faded(raw, 50.0))


def error_after_a_jump(half_life, seed, rounds=40):
    """How far the estimate is off, so many rounds after θ has changed its sign."""
    rng = np.random.default_rng(seed)
    bandit = hs.Bandit(DIM, rule=hs.Uniform(), noise=NOISE, seed=0, half_life=half_life)
    task, theta = bandit.task("a"), rng.standard_normal(DIM)
    for at in range(100 + rounds):
        now = theta if at < 100 else -theta
        choice = task.choose(rng.standard_normal((4, DIM)))
        task.learn(choice, float(choice.context @ now + NOISE * rng.standard_normal()))
    return np.linalg.norm(task.belief.mean[:DIM] + theta) / np.linalg.norm(theta)


def test_a_task_that_jumps_is_followed_faster():
    for seed in range(3):
        with_it, without = (error_after_a_jump(half_life, seed) for half_life in (10.0, None))
        assert with_it < 0.5
        assert without > 1.0


def test_so_are_its_decisions():
    """Regret after the jump, next to a bandit that forgets nothing."""
    lost = {10.0: 0.0, None: 0.0}
    for half_life in lost:
        for seed in range(3):
            rng = np.random.default_rng(seed)
            bandit = hs.Bandit(DIM, noise=NOISE, seed=0, half_life=half_life)
            theta = rng.standard_normal(DIM)
            for at in range(160):
                now = theta if at < 80 else -theta
                offer = rng.standard_normal((4, DIM))
                choice = bandit.task("a").choose(offer)
                worth = offer @ now
                bandit.learn(choice, float(worth[choice.arm] + NOISE * rng.standard_normal()))
                lost[half_life] += (at >= 80) * (worth.max() - worth[choice.arm])
    assert lost[10.0] < 0.6 * lost[None]


def test_without_a_jump_it_costs_little():
    settled = error_after_a_jump(30.0, seed=0, rounds=300)
    assert settled < 0.2


def test_a_very_long_half_life_is_none():
    beliefs = []
    for half_life in (1e12, None):
        bandit = hs.Bandit(DIM, noise=NOISE, seed=0, half_life=half_life)
        played(bandit)
        beliefs.append(bandit.task("a").belief)
    same_belief(*beliefs)


def test_unless_given_nothing_is_forgotten(content):
    plain = hs.Bandit(DIM, seed=0, intercept=False)
    none = hs.Bandit(DIM, seed=0, intercept=False, half_life=None)
    raw, same = played(plain), played(none)
    assert [(x.tolist(), r) for x, r in raw] == [(x.tolist(), r) for x, r in same]
    contexts, rewards = np.array([x for x, _ in raw]), [r for _, r in raw]
    same_evidence(none.task("a").evidence, hs.Evidence.of(contexts, rewards))
    assert none.task("a").belief == plain.task("a").belief
    assert none.task("a").rounds == 20


def test_rewards_are_counted_whole_however_little_they_count():
    bandit = hs.Bandit(DIM, seed=0, half_life=2.0)
    played(bandit)
    assert bandit.task("a").rounds == 20
    assert bandit.report().rounds == 20


def test_forced_rounds_come_to_an_end():
    """``Forced`` counts rewards that were seen, not what is left of them."""
    bandit = hs.Bandit(DIM, rule=hs.Forced(8, hs.Greedy()), noise=NOISE, seed=0, half_life=3.0)
    task, forced = bandit.task("a"), []
    for _ in range(30):
        choice = task.choose(np.eye(DIM))
        task.learn(choice, float(choice.arm))
        forced.append(choice.forced)
    assert forced == [True] * 8 + [False] * 22


@pytest.mark.parametrize("half_life", [7, 2.5, np.float64(3.0), np.float32(20.0), np.int64(5)])
def test_it_is_saved_and_the_loaded_bandit_goes_on(half_life, tmp_path):
    bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0, half_life=half_life)
    played(bandit)
    played(bandit, 1, id="b")
    bandit.task("b").close()
    bandit.save(tmp_path / "b")
    loaded = hs.load(tmp_path / "b")
    for id in ("a", "b", "c"):
        first, second = (played(each, 5, id=id) for each in (bandit, loaded))
        assert [r for _, r in first] == [r for _, r in second]
    assert loaded.task("a").belief == bandit.task("a").belief


@pytest.mark.parametrize("unit", [1 / 1024, 1024.0])
def test_the_unit_of_rewards_still_changes_no_decision(unit):
    first, second = (
        played(hs.Bandit(DIM, seed=0, half_life=5.0), rounds=40, scale=scale)
        for scale in (1.0, unit)
    )
    assert [x.tolist() for x, _ in first] == [x.tolist() for x, _ in second]


@pytest.mark.parametrize("size", [1 / 1024, 1024.0])
def test_nor_does_the_unit_of_contexts(size):
    """A lone task goes by its own scale, however much of what it has shown has faded."""
    first, second = (
        played(hs.Bandit(DIM, seed=0, half_life=5.0), rounds=60, size=unit) for unit in (1.0, size)
    )
    assert [x.tolist() for x, _ in first] == [(x / size).tolist() for x, _ in second]


@pytest.mark.parametrize(
    "half_life",
    [0, -1, 0.0, float("nan"), float("inf"), "10", True, [10], 1j, np.array([1.0, 2.0])],
    ids=repr,
)
def test_bad_values_are_refused(half_life):
    with pytest.raises(hs.InputError, match=r"^half_life must be .*; got "):
        hs.Bandit(DIM, half_life=half_life)


def test_named_algorithms_take_it_too():
    bandit = hs.linucb(DIM, seed=0, noise=NOISE, half_life=5.0)
    raw = played(bandit)
    same_evidence(bandit.task("a").evidence, faded(raw, 5.0))
