"""A choice: what it says, and how it is learned from, here or elsewhere, once."""

import base64
import copy
import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

import headstart as hs

X = np.array([[1.0, 0.0, 0.2], [0.0, 1.0, 0.1], [0.6, 0.6, 0.0], [0.1, 0.2, 0.9]])


@pytest.fixture
def bandit():
    return hs.Bandit(dim=3, seed=0)


def in_another_process(script, *arguments):
    """Run Python code elsewhere; gives what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestWhatItSays:
    def test_plain_values(self, bandit):
        choice = bandit.task("a").choose(X)
        assert type(choice.arm) is int
        assert type(choice.score) is float
        assert type(choice.id) is str
        assert type(choice.token) is str
        assert type(choice.propensity) is float
        assert choice.task == "a"
        np.testing.assert_array_equal(choice.context, X[choice.arm])

    def test_ids_are_unique_within_the_bandit(self, bandit):
        ids = [bandit.task(task).choose(X).id for _ in range(20) for task in ("a", "b", "c")]
        assert len(set(ids)) == 60

    def test_the_score_is_the_rules_index(self, bandit):
        task = bandit.task("a")
        task.learn(task.choose(X), 1.0)
        belief = task.belief
        table = np.column_stack([X, np.ones(len(X))])  # with the intercept
        index = belief.predict(table) + belief.noise * belief.width(table)
        choice = task.choose(X)
        assert choice.arm == index.argmax()
        assert choice.score == pytest.approx(index.max(), rel=1e-12)

    def test_a_choice_cannot_be_changed(self, bandit):
        choice = bandit.task("a").choose(X)
        with pytest.raises(AttributeError):
            choice.arm = 0
        with pytest.raises(ValueError, match="read-only"):
            choice.context[0] = 7.0

    def test_it_prints_briefly(self, bandit):
        choice = bandit.task("a").choose(X)
        assert repr(choice).startswith(f"Choice(id={choice.id!r}, arm={choice.arm}")

    def test_equality_is_identity_of_the_decision(self, bandit):
        first, second = bandit.task("a").choose(X), bandit.task("a").choose(X)
        assert first != second
        assert first == copy.copy(first)
        assert len({first, copy.copy(first), second}) == 2
        assert first != "a#0"

    def test_tokens_are_safe_in_addresses_and_logs(self, bandit):
        token = bandit.task("ü/任 务").choose(X).token
        assert token.isascii()
        assert not set(token) - set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
        )


class TestPropensity:
    def test_optimism_is_certain_and_exact(self, bandit):
        task = bandit.task("a")
        task.learn(task.choose(X), 1.0)
        choice = task.choose(X)
        assert choice.propensity == 1.0
        assert choice.propensity_is_estimate is False
        assert choice.propensity_draws is None
        np.testing.assert_array_equal(choice.propensities, np.arange(4) == choice.arm)

    def test_ties_share_it(self, bandit):
        choice = bandit.task("a").choose(np.ones((4, 3)))
        np.testing.assert_allclose(choice.propensities, 0.25)

    def test_exploration_gives_every_arm_some(self):
        bandit = hs.Bandit(dim=3, rule=hs.UCB(explore=0.2), seed=0)
        task = bandit.task("a")
        task.learn(task.choose(X), 1.0)
        choice = task.choose(X)
        np.testing.assert_allclose(np.sort(choice.propensities), [0.05, 0.05, 0.05, 0.85])
        assert not choice.propensity_is_estimate

    def test_uniform_is_one_over_the_open_arms(self):
        choice = hs.Bandit(dim=3, rule=hs.Uniform(), seed=0).task("a").choose(X, exclude=[1])
        np.testing.assert_allclose(choice.propensities, [1 / 3, 0, 1 / 3, 1 / 3])
        assert choice.propensity == pytest.approx(1 / 3)

    def test_thompson_is_estimated_and_says_from_how_many_draws(self):
        bandit = hs.Bandit(dim=3, rule=hs.Thompson(draws=300), seed=0)
        choice = bandit.task("a").choose(X)
        assert choice.propensity_is_estimate
        assert choice.propensity_draws == 300
        assert choice.propensities.sum() == pytest.approx(1.0)
        assert (choice.propensities > 0).all()

    @pytest.mark.parametrize(
        "rule",
        [hs.Thompson(draws=4000), hs.Thompson(0.5, explore=0.3, draws=4000), hs.UCB(explore=0.5)],
        ids=repr,
    )
    def test_stated_and_actual_frequencies_agree(self, rule):
        bandit = hs.Bandit(dim=3, rule=rule, seed=0, noise=1.0)
        task = bandit.task("a")
        task.learn(task.choose(X, exclude=[0]), 0.7)
        choices = [task.choose(X, exclude=[3]) for _ in range(3000)]
        counts = np.bincount([choice.arm for choice in choices], minlength=4) / len(choices)
        stated = choices[0].propensities
        assert counts[3] == stated[3] == 0.0
        np.testing.assert_allclose(counts, stated, atol=4 * np.sqrt(0.25 / 3000 + 0.25 / 4000))

    def test_forced_rounds_are_uniform_then_what_follows(self):
        bandit = hs.Bandit(dim=3, rule=hs.Forced(1, hs.Greedy()), seed=0)
        task = bandit.task("a")
        choice = task.choose(X)
        np.testing.assert_allclose(choice.propensities, 0.25)
        task.learn(choice, 1.0)
        assert task.choose(X).propensity == 1.0

    def test_it_is_that_of_the_moment_of_choosing(self):
        """Asked later, after the task has learned, it is still what it was."""
        early, late = (hs.Bandit(dim=3, rule=hs.Thompson(), seed=0, noise=0.1) for _ in range(2))
        stated = early.task("a").choose(X).propensities
        choice = late.task("a").choose(X)
        late.task("a").learn(choice, 5.0)
        for _ in range(10):
            late.task("a").learn(late.task("a").choose(X), 5.0)
        late.task("a").close()
        np.testing.assert_array_equal(choice.propensities, stated)

    def test_excluded_arms_have_none(self, bandit):
        choice = bandit.task("a").choose(np.ones((4, 3)), exclude=[0, 2])
        np.testing.assert_allclose(choice.propensities, [0, 0.5, 0, 0.5])

    def test_a_token_carries_none_and_says_so(self, bandit):
        origin = bandit.task("a").choose(X)
        read = hs.Choice.from_token(origin.token, origin.origin)
        assert (read.arm, read.id) == (origin.arm, origin.id)
        with pytest.raises(hs.ChoiceError, match="log them where the choice was made"):
            read.propensity  # noqa: B018


class TestLearningElsewhere:
    LEARN = """
import sys, headstart as hs
path, *pairs = sys.argv[1:]
bandit = hs.load(path)
for token, reward in zip(pairs[::2], pairs[1::2]):
    bandit.learn(token, float(reward))
bandit.save(path)
"""

    def test_by_token_in_another_process(self, bandit, tmp_path):
        tokens = [bandit.task(task).choose(X).token for task in "abab"]
        path = tmp_path / "bandit"
        bandit.save(path)
        rewards = [1.5, -0.25, 3.0, 0.125]
        pairs = [item for pair in zip(tokens, rewards, strict=True) for item in pair]
        in_another_process(self.LEARN, path, *pairs)
        there = hs.load(path)
        bandit.learn(tokens, rewards)
        for task in "ab":
            assert there.task(task).evidence == bandit.task(task).evidence
            assert there.task(task).belief == bandit.task(task).belief

    def test_by_token_made_in_another_process(self, bandit, tmp_path):
        bandit.task("a")
        path = tmp_path / "bandit"
        bandit.save(path)
        script = """
import sys, headstart as hs
bandit = hs.load(sys.argv[1])
for _ in range(3):
    print(bandit.task("a").choose([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]).token)
"""
        tokens = in_another_process(script, path).split()
        bandit.learn(tokens, [1.0, 2.0, 3.0])
        assert bandit.task("a").rounds == 3
        fresh = bandit.task("a").choose(X)
        assert fresh.token not in tokens
        bandit.learn(fresh, 1.0)
        for token in tokens:
            with pytest.raises(hs.ChoiceError):
                bandit.learn(token, 1.0)

    def test_a_pickled_choice_is_as_good_as_the_choice(self, bandit, tmp_path):
        bandit = hs.Bandit(dim=3, rule=hs.Thompson(), seed=0)
        choice = bandit.task("a").choose(X)
        bandit.save(tmp_path / "bandit")
        (tmp_path / "choice").write_bytes(pickle.dumps(choice))
        script = """
import pickle, sys, headstart as hs
choice = pickle.load(open(sys.argv[1], "rb"))
bandit = hs.load(sys.argv[2])
bandit.learn(choice, 2.0)
print(choice.id, choice.arm, choice.propensity.hex(), choice.propensity_draws, choice.token,
      bandit.task("a").rounds)
"""
        told = in_another_process(script, tmp_path / "choice", tmp_path / "bandit").split()
        expected = [choice.id, choice.arm, choice.propensity.hex(), 1000, choice.token, 1]
        assert told == [str(item) for item in expected]

    @pytest.mark.parametrize(
        "clone", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
    )
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
    def test_copies_say_the_same_and_count_once(self, clone, rule):
        bandit = hs.Bandit(dim=3, rule=rule, seed=0)
        choice = bandit.task("a").choose(X)
        twin = clone(choice)
        assert twin == choice
        assert (twin.arm, twin.score, twin.id, twin.token) == (
            choice.arm,
            choice.score,
            choice.id,
            choice.token,
        )
        np.testing.assert_array_equal(twin.propensities, choice.propensities)
        assert twin.propensity_is_estimate == choice.propensity_is_estimate
        assert clone(twin).propensity == choice.propensity
        bandit.learn(twin, 1.0)
        with pytest.raises(hs.ChoiceError):
            bandit.learn(choice, 1.0)

    def test_a_choice_read_from_a_token_can_be_pickled(self, bandit):
        choice = bandit.task("a").choose(X)
        read = hs.Choice.from_token(choice.token, choice.origin)
        assert pickle.loads(pickle.dumps(read)) == choice

    def test_choices_after_loading_do_not_collide_with_earlier_ones(self, bandit, tmp_path):
        earlier = [bandit.task("a").choose(X) for _ in range(3)]
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        later = [loaded.task("a").choose(X) for _ in range(3)]
        loaded.learn([*later, *earlier], np.arange(6.0))
        assert loaded.task("a").rounds == 6


class TestOnce:
    @pytest.mark.parametrize("first", ["choice", "token"])
    @pytest.mark.parametrize("second", ["choice", "token"])
    @pytest.mark.parametrize("later", [False, True])
    def test_learning_twice_is_refused(self, bandit, first, second, later, refused):
        task = bandit.task("a")
        choice = task.choose(X)
        ways = {"choice": choice, "token": choice.token}
        task.learn(ways[first], 1.0)
        if later:
            for _ in range(5):
                task.learn(task.choose(X), 1.0)
            task.close()
        with refused(bandit, choice.id, "already", error=hs.ChoiceError):
            task.learn(ways[second], 1.0)

    def test_still_refused_after_saving_and_loading(self, bandit, tmp_path):
        choices = [bandit.task("a").choose(X) for _ in range(6)]
        bandit.learn(choices[1::2], [1.0, 2.0, 3.0])
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        for choice in choices[1::2]:
            with pytest.raises(hs.ChoiceError, match="already"):
                loaded.learn(choice, 1.0)
        loaded.learn(choices[::2], [1.0, 2.0, 3.0])
        assert loaded.task("a").rounds == 6

    def test_any_order_and_any_delay(self, bandit):
        rng = np.random.default_rng(0)
        task = bandit.task("a")
        choices = [task.choose(rng.standard_normal((3, 3))) for _ in range(200)]
        for at in rng.permutation(200):
            task.learn(choices[at], 1.0)
            with pytest.raises(hs.ChoiceError):
                task.learn(choices[at], 1.0)
        assert task.rounds == 200

    def test_choices_beyond_the_memory_are_refused_and_the_message_says_so(self, refused):
        bandit = hs.Bandit(dim=3, seed=0, choice_window=5)
        task = bandit.task("a")
        choices = [task.choose(X) for _ in range(8)]
        for choice in choices[:3]:
            with refused(bandit, "older than the 5 choices", error=hs.ChoiceError):
                task.learn(choice, 1.0)
        for choice in choices[3:]:
            assert task.learn(choice, 1.0)
        assert task.rounds == 5

    def test_an_old_reward_within_the_memory_is_learned_whatever_came_between(self):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        first = task.choose(X)
        for _ in range(3000):
            task.learn(task.choose(X[:1]), 0.0)
        assert task.learn(first, 1.0)
        with pytest.raises(hs.ChoiceError):
            task.learn(first, 1.0)


class TestUnknown:
    def test_another_bandits_choice(self, bandit, refused):
        for other in (hs.Bandit(dim=3, seed=0), hs.Bandit(dim=3, seed=1), hs.Bandit(dim=4)):
            bandit.task("a"), other.task("a")
            choice = other.task("a").choose(np.ones((2, other.dim)))
            with refused(bandit, "another bandit", error=hs.ChoiceError):
                bandit.learn(choice, 1.0)
            with refused(bandit, "another bandit", error=hs.ChoiceError):
                bandit.learn(choice.token, 1.0)

    def test_another_tasks_choice(self, bandit, refused):
        choice = bandit.task("a").choose(X)
        other = bandit.task("b")
        with refused(bandit, "'a'", "'b'", error=hs.ChoiceError):
            other.learn(choice, 1.0)
        with refused(bandit, "'a'", "'b'", error=hs.ChoiceError):
            other.learn(choice.token, 1.0)

    def test_a_deleted_tasks_choice(self, bandit, refused):
        choice = bandit.task("a").choose(X)
        bandit.delete("a")
        with refused(bandit, "'a'", error=hs.HeadstartError):
            bandit.learn(choice.token, 1.0)

    def test_every_way_to_cut_a_token_short(self, bandit, content):
        token = bandit.task("a").choose(X).token
        before = content(bandit)
        for length in range(len(token)):
            with pytest.raises(hs.ChoiceError):
                bandit.learn(token[:length], 1.0)
        for longer in (token + token, "A" + token, token + "AAAA", token[::-1], token.lower()):
            with pytest.raises(hs.ChoiceError):
                bandit.learn(longer, 1.0)
        assert content(bandit) == before

    def test_every_byte_of_a_token_is_sealed(self, bandit, content):
        raw = base64.urlsafe_b64decode(bandit.task("a").choose(X).token)
        before = content(bandit)
        for at in range(len(raw)):
            for bit in (0, 3, 7):
                damaged = bytearray(raw)
                damaged[at] ^= 1 << bit
                with pytest.raises(hs.ChoiceError):
                    bandit.learn(base64.urlsafe_b64encode(damaged).decode(), 1.0)
        assert content(bandit) == before

    @pytest.mark.parametrize(
        "token", ["", "a", "hello", "=" * 8, "ä" * 12, "\ud800", "A" * 400, "\n", "x" * 10_000]
    )
    def test_random_text(self, bandit, token, refused):
        bandit.task("a")
        with refused(bandit, "token", error=hs.ChoiceError) as caught:
            bandit.learn(token, 1.0)
        assert len(str(caught.value)) < 200


class TestMany:
    def test_choices_and_tokens_of_several_tasks_at_once(self, bandit):
        one, two = bandit.task("one"), bandit.task("two")
        choices = [one.choose(X), two.choose(X).token, one.choose(X).token, two.choose(X)]
        assert bandit.learn(choices, [1.0, 2.0, 3.0, 4.0])
        assert (one.evidence.squares, two.evidence.squares) == (1 + 9, 4 + 16)

    @pytest.mark.parametrize("kind", [tuple, list, np.array])
    def test_any_sequence_of_rewards(self, bandit, kind):
        task = bandit.task("a")
        task.learn(tuple(task.choose(X) for _ in range(3)), kind([1, 2, 3]))
        assert task.evidence.squares == 14.0

    def test_a_batch_is_the_same_as_one_by_one(self, bandit, tmp_path):
        choices = [bandit.task(task).choose(X) for task in "abcab"]
        bandit.save(tmp_path / "b")
        other = hs.load(tmp_path / "b")
        bandit.learn(choices, np.arange(5.0))
        for choice, reward in zip(choices, np.arange(5.0), strict=True):
            other.learn(choice, reward)
        for task in "abc":
            assert bandit.task(task).belief == other.task(task).belief

    def test_nothing_at_all_is_fine(self, bandit, content):
        bandit.task("a")
        before = content(bandit)
        assert bandit.learn([], [])
        assert content(bandit) == before

    @pytest.mark.parametrize("closed", [False, True])
    def test_all_or_nothing(self, bandit, closed, refused):
        task = bandit.task("a")
        old = task.choose(X)
        task.learn(old, 1.0)
        choices = [task.choose(X) for _ in range(3)]
        gone = bandit.task("gone")
        stray = gone.choose(X)
        gone.delete()
        if closed:
            task.close()
        alien = hs.Bandit(dim=3, seed=0).task("a").choose(X)
        for bad in (old, old.token, alien, alien.token, stray, "nonsense", None, 3):
            with refused(bandit, error=hs.HeadstartError):
                bandit.learn([*choices, bad], [1.0, 2.0, 3.0, 4.0])
        with refused(bandit, "reward"):
            bandit.learn(choices, [1.0, 2.0, float("nan")])
        assert bandit.learn(choices, [1.0, 2.0, 3.0])

    def test_the_same_choice_twice_in_one_batch(self, bandit, refused):
        task = bandit.task("a")
        choice, other = task.choose(X), task.choose(X)
        for pair in ([choice, choice], [choice, choice.token], [choice.token, choice.token]):
            with refused(bandit, choice.id, error=hs.ChoiceError):
                task.learn([*pair, other], [1.0, 1.0, 1.0])

    @pytest.mark.parametrize("rewards", [[1.0], [1.0, 2.0, 3.0], [], 1.0, None, "12"])
    def test_as_many_rewards_as_choices(self, bandit, rewards, refused):
        task = bandit.task("a")
        choices = [task.choose(X), task.choose(X)]
        with refused(bandit, "reward must"):
            task.learn(choices, rewards)


CONTEXTS = [
    np.zeros(3),
    np.zeros(1),
    np.zeros((1, 2)),
    np.array([np.nan, 1.0]),
    np.array([np.inf, 1.0]),
    np.array([1e99, 1.0]),
    np.zeros(2, dtype=np.float32),
    np.zeros(2, dtype=int),
    np.ma.array([1.0, 2.0], mask=[True, False]),
    np.array(["1", "2"]),
    np.array([None, 1.0]),
    [1.0, 2.0],
    None,
]


class TestHandMadeChoices:
    """Anybody can make a ``Choice``: what no choice of the bandit can hold is refused at once."""

    @pytest.mark.parametrize("context", CONTEXTS, ids=repr)
    @pytest.mark.parametrize("closed", [False, True])
    def test_contexts_that_do_not_fit(self, context, closed, refused):
        bandit = hs.Bandit(dim=2, seed=0)
        task = bandit.task("a")
        task.learn(task.choose(np.eye(2)), 1.0)
        choice = task.choose(np.eye(2))
        if closed:
            task.close()
        forged = dataclasses.replace(choice, context=context)
        for learn in (
            lambda: task.learn(forged, 1.0),
            lambda: bandit.learn(forged, 1.0),
            lambda: bandit.learn([choice, forged], [1.0, 1.0]),
        ):
            with refused(bandit, "choice.context"):
                learn()
        assert task.learn(choice, 1.0)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("number", -1),
            ("number", 1.0),
            ("number", True),
            ("number", 2**63),
            ("number", None),
            ("epoch", -1),
            ("epoch", 2**64),
            ("epoch", "0"),
            ("forced", 1),
        ],
    )
    def test_other_parts(self, field, value, refused):
        bandit = hs.Bandit(dim=2, seed=0)
        choice = bandit.task("a").choose(np.eye(2))
        forged = dataclasses.replace(choice, **{field: value})
        with refused(bandit, f"choice.{field}"):
            bandit.learn(forged, 1.0)

    def test_a_number_far_ahead_takes_no_memory(self):
        bandit = hs.Bandit(dim=2, seed=0)
        choice = bandit.task("a").choose(np.eye(2))
        forged = dataclasses.replace(choice, number=2**60)
        assert bandit.learn(forged, 1.0)
        assert bandit.task("a").rounds == 1

    def test_one_that_fits_is_learned_from(self):
        bandit = hs.Bandit(dim=2, seed=0)
        choice = bandit.task("a").choose(np.eye(2))
        assert bandit.learn(dataclasses.replace(choice, context=np.array([3.0, 4.0])), 1.0)
        np.testing.assert_array_equal(bandit.task("a").evidence.moment, [3.0, 4.0, 1.0])
        with pytest.raises(hs.ChoiceError, match="already"):
            bandit.learn(choice, 1.0)


def test_digests_are_compared_in_constant_time(monkeypatch):
    """Whoever guesses digests must learn nothing from how long a refusal takes."""
    import hmac

    bandit = hs.Bandit(dim=2, seed=0)
    token = bandit.task("a").choose(np.eye(2)).token
    compared = []
    usual = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two) or usual(*two))
    assert bandit.learn(token, 1.0)
    assert len(compared) == 1
