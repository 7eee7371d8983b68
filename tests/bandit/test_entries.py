"""A live task's rounds are added to its evidence a block at a time: nobody may ever notice.

At any moment the evidence is the sum of the rounds; looking at it, saving and loading change no bit
of what comes later; and nothing is lost where a task is closed, goes idle or fades between blocks.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.bandit.ledger.entries import BLOCK_ROUNDS as BLOCK
from headstart.bandit.ledger.entries import CachedTask, TaskEntry
from headstart.records import flatten

DIM = 3
ROUNDS = 2 * BLOCK + 7  # so many cross two ends of a block
NEAR_ENDS = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1]

BANDITS = {
    "default": lambda **o: hs.Bandit(DIM, seed=2, **o),
    "Thompson": lambda **o: hs.Bandit(DIM, rule=hs.Thompson(), noise=0.3, seed=2, **o),
    "alone": lambda **o: hs.Bandit(DIM, hs.EmpiricalBayes(running=False), seed=2, **o),
    "linucb": lambda **o: hs.linucb(DIM, noise=0.3, seed=2, **o),
    "projected_ts": lambda **o: hs.projected_ts(DIM, seed=2, **o),
    "meta_ts": lambda **o: hs.meta_ts(DIM, seed=2, forced_rounds=BLOCK + 5, **o),
    "mixture": lambda **o: hs.Bandit(DIM, hs.Mixture(groups=2), seed=2, **o),
    "half-life": lambda **o: hs.Bandit(DIM, noise=0.3, seed=2, half_life=9.0, **o),
    "intercept": lambda **o: hs.Bandit(DIM, seed=2, intercept=True, **o),
}
each_bandit = pytest.mark.parametrize("make", BANDITS.values(), ids=BANDITS)


def offer(at, arms=4):
    return np.random.default_rng([5, at]).standard_normal((arms, DIM))


def reward_of(choice, at):
    return float(choice.context[0] - choice.context[1] + 0.3 * np.cos(37.0 * at))


def go_on(bandit, rounds, start=0, ids=("a",), look=lambda bandit: bandit):
    """Play tasks in turns; gives every decision to the last bit, and the bandit."""
    trace = []
    for at in range(start, start + rounds):
        for id in ids:
            choice = bandit.task(id).choose(offer(at))
            trace.append((choice.task, choice.number, choice.arm, choice.score.hex()))
            bandit.learn(choice, reward_of(choice, at))
            bandit = look(bandit)
    return trace, bandit


def sums_of(rounds, dim=DIM):
    contexts = np.array([x for x, *_ in rounds]).reshape(-1, dim)
    return hs.Evidence.of(contexts, [r for _, r, *_ in rounds])


def assert_same_sums(shown, expected):
    assert shown.rounds == expected.rounds
    size = max(float(np.abs(expected.gram).max(initial=0.0)), 1e-300)
    np.testing.assert_allclose(shown.gram, expected.gram, rtol=1e-12, atol=1e-14 * size)
    np.testing.assert_array_equal(shown.gram, shown.gram.T)
    level = max(float(np.sqrt(size * expected.squares)), 1e-300)
    np.testing.assert_allclose(shown.moment, expected.moment, rtol=1e-12, atol=1e-13 * level)
    np.testing.assert_allclose(shown.squares, expected.squares, rtol=1e-12)


class TestTheEvidenceOfATask:
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(
        st.integers(0, 2**32 - 1),
        st.integers(1, 7),
        st.integers(0, 3 * BLOCK),
        st.sampled_from([1e-30, 1.0, 1e30]),
        st.sampled_from([0.0, 1e-8, 1.0, 1e20]),
    )
    def test_is_the_sum_of_its_rounds_at_any_moment(self, seed, dim, rounds, length, unit):
        rng = np.random.default_rng(seed)
        task = hs.Bandit(dim, hs.Independent(), noise=1.0, seed=0).task("a")
        told = []
        for at in range(rounds):
            choice = task.choose(length * rng.standard_normal((2, dim)))
            told.append((choice.context, unit * float(rng.standard_normal())))
            task.learn(choice, told[-1][1])
            if at % 11 == 0 or at % BLOCK in (0, BLOCK - 1):
                assert_same_sums(task.evidence, sums_of(told, dim))
        assert_same_sums(task.evidence, sums_of(told, dim))
        assert task.rounds == rounds

    @each_bandit
    def test_whatever_the_algorithm(self, make):
        bandit, told = make(), []
        faded = bandit._state.ledger.decay
        task, expected = bandit.task("a"), bandit.task("a").evidence
        for at in range(ROUNDS):
            choice = task.choose(offer(at))
            told.append(
                (bandit._state.reader.features.transform(choice.context), reward_of(choice, at))
            )
            task.learn(choice, told[-1][1])
            expected = expected.discount(faded).add(*told[-1], forced=choice.forced)
            for name in ("gram", "moment", "squares", "rounds"):
                for shown, sums in (
                    (task.evidence, expected),
                    (task.evidence.forced, expected.forced),
                ):
                    if sums is not None:
                        found, right = getattr(shown, name), getattr(sums, name)
                        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-11)
        assert task.rounds == ROUNDS

    def test_with_rewards_in_any_order_and_many_at_once(self):
        rng = np.random.default_rng(0)
        bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=0)
        task, told = bandit.task("a"), []
        choices = [task.choose(offer(at)) for at in range(3 * BLOCK)]
        order = rng.permutation(len(choices))
        for some in np.split(order, [1, 5, BLOCK - 1, BLOCK, BLOCK + 50]):
            rewards = rng.standard_normal(len(some))
            task.learn([choices[at] for at in some], rewards)
            told += [(choices[at].context, r) for at, r in zip(some, rewards, strict=True)]
            assert_same_sums(task.evidence, sums_of(told))
        assert task.rounds == 3 * BLOCK

    @pytest.mark.parametrize("rounds", NEAR_ENDS)
    def test_closing_going_idle_and_coming_back_lose_nothing(self, rounds):
        bandit = hs.Bandit(DIM, hs.Bias(), noise=0.3, seed=0, cache_size=1)
        task, told = bandit.task("a"), []

        def play(times):
            for _ in range(times):
                choice = task.choose(offer(len(told)))
                told.append((choice.context, reward_of(choice, len(told))))
                task.learn(choice, told[-1][1])

        play(rounds)
        bandit.task("other").choose(offer(0))  # there is room for one: the task goes idle
        assert_same_sums(task.evidence, sums_of(told))
        play(3)
        late = task.choose(offer(99))
        task.close()
        assert_same_sums(task.evidence, sums_of(told))
        told.append((late.context, 0.5))
        task.learn(late, 0.5)
        assert task.closed
        assert_same_sums(task.evidence, sums_of(told))
        play(BLOCK)
        assert_same_sums(task.evidence, sums_of(told))

    @pytest.mark.parametrize("transfer", [hs.Bias(), hs.Subspace()], ids=repr)
    @pytest.mark.parametrize("rounds", [BLOCK - 1, BLOCK, BLOCK + 1])
    def test_the_prior_holds_all_of_a_closed_task(self, transfer, rounds, same_prior):
        bandit = hs.Bandit(DIM, transfer, noise=0.3, seed=0)
        late = []
        for id in "abcd":
            go_on(bandit, rounds, ids=(id,))
            late.append(bandit.task(id).choose(offer(77)))
            bandit.task(id).close()
        for count, choices in enumerate(([], late)):
            bandit.learn(choices, [0.5] * len(choices))
            evidences = [bandit.task(id).evidence for id in "abcd"]
            assert [evidence.rounds for evidence in evidences] == [rounds + count] * 4
            same_prior(bandit.prior, transfer.prior(transfer.refit(evidences, 0.3)))

    def test_belief_and_evidence_say_the_same(self, same_belief):
        bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=0)
        task = bandit.task("a")
        for at in range(ROUNDS):
            go_on(bandit, 1, at)
            same_belief(task.belief, hs.Belief.of(bandit.prior, task.evidence))


class TestForcedRounds:
    """Where a transfer wants them apart they stay apart, whichever block they fall into."""

    def test_across_the_ends_of_blocks(self):
        forced = BLOCK + 5
        bandit = hs.Bandit(DIM, hs.Gaussian(warmup=2), hs.Forced(forced, hs.UCB()), 0.3, 0)
        task, told = bandit.task("a"), []
        for at in range(ROUNDS):
            choice = task.choose(offer(at))
            assert choice.forced == (at < forced)
            told.append((choice.context, reward_of(choice, at), choice.forced))
            task.learn(choice, told[-1][1])
            assert_same_sums(task.evidence, sums_of(told))
            assert_same_sums(task.evidence.forced, sums_of([one for one in told if one[2]]))

    def test_mixed_within_a_block_and_late(self, tmp_path):
        bandit = hs.Bandit(DIM, hs.Gaussian(warmup=2), hs.Forced(10, hs.UCB()), 0.3, 0)
        task = bandit.task("a")
        forced = [task.choose(offer(at)) for at in range(40)]  # no reward yet: all are forced
        task.learn(forced[:10], [1.0] * 10)
        free = [task.choose(offer(at)) for at in range(40, 70)]
        assert {choice.forced for choice in forced} == {True}
        assert {choice.forced for choice in free} == {False}
        rest = [choice for pair in zip(forced[10:], free, strict=True) for choice in pair]
        told = [(choice.context, 1.0, True) for choice in forced[:10]]
        for at, choice in enumerate(rest):
            told.append((choice.context, float(at), choice.forced))
            bandit.learn(choice if at % 3 else choice.token, float(at))
            if at == 20:
                bandit.save(tmp_path / "b")
                bandit = hs.load(tmp_path / "b")
            if at == 45:
                bandit.task("a").close()
            task = bandit.task("a")
            assert_same_sums(task.evidence, sums_of(told))
            assert_same_sums(task.evidence.forced, sums_of([one for one in told if one[2]]))
        assert (task.evidence.rounds, task.evidence.forced.rounds) == (70, 40)

    def test_nobody_else_keeps_them(self):
        bandit = hs.Bandit(DIM, hs.Bias(), hs.Forced(BLOCK + 5, hs.UCB()), 0.3, 0)
        go_on(bandit, ROUNDS)
        assert bandit.task("a").evidence.forced is None


def look_at_everything(bandit):
    bandit.report(), bandit.prior, repr(bandit)
    for id in [*bandit, "a"]:
        task = bandit.task(id)
        task.evidence, task.belief, task.rounds, repr(task)
        task.predict(offer(0))
    return bandit


class TestLooking:
    @each_bandit
    def test_changes_no_bit_of_what_comes_later(self, make, books):
        plain, bandit = go_on(make(), ROUNDS // 2, ids="ab")
        asked, other = go_on(make(), ROUNDS // 2, ids="ab", look=look_at_everything)
        assert asked == plain
        assert books(other) == books(bandit)

    def test_nor_does_it_in_any_part_of_a_block(self, books):
        make = BANDITS["Thompson"]
        plain, bandit = go_on(make(), ROUNDS)
        asked, other = go_on(make(), ROUNDS, look=look_at_everything)
        assert asked == plain
        assert books(other) == books(bandit)

    @pytest.mark.parametrize("name", ["default", "linucb", "meta_ts", "half-life"])
    def test_nor_does_saving(self, name, books, tmp_path):
        def save(bandit):
            bandit.save(tmp_path / "b")
            return bandit

        plain, bandit = go_on(BANDITS[name](), BLOCK + 3)
        asked, other = go_on(BANDITS[name](), BLOCK + 3, look=save)
        assert asked == plain
        assert books(other) == books(bandit)

    @pytest.mark.parametrize("name", ["default", "linucb", "projected_ts", "meta_ts"])
    def test_nor_where_rewards_come_late(self, name):
        """Closed tasks whose rewards come in one by one, with somebody watching."""
        games = []
        for watching in (False, True):
            bandit, late = BANDITS[name](), []
            for id in "abc":
                go_on(bandit, 6, ids=(id,))
                late += [bandit.task(id).choose(offer(at)) for at in range(2)]
                bandit.task(id).close()
            for at, choice in enumerate(late):
                bandit.learn(choice, reward_of(choice, at))
                if watching:
                    bandit.report(), bandit.task("a").belief
            later, _ = go_on(bandit, 3, 50, ids=("new", "a"))
            games.append((later, bandit.prior))
        assert games[0] == games[1]

    def test_evidence_that_was_looked_at_stays_as_it_was(self):
        bandit = BANDITS["linucb"]()
        go_on(bandit, 5)
        early = bandit.task("a").evidence
        kept = early.pack()
        go_on(bandit, ROUNDS, 5)
        np.testing.assert_array_equal(early.pack(), kept)
        with pytest.raises(ValueError, match="read-only"):
            early.gram[0, 0] = 9.0

    @each_bandit
    def test_what_was_looked_at_cannot_be_written_to(self, make):
        """Records are shared, with the bandit itself too."""
        bandit = make()
        go_on(bandit, 5, ids="ab")
        bandit.task("b").close()
        go_on(bandit, 2, ids="a")
        for record in (bandit.task("a"), bandit.task("b"), bandit.task("new")):
            arrays = [*flatten(record.belief).items(), *flatten(record.evidence).items()]
            assert [name for name, array in arrays if array.ndim and array.flags.writeable] == []


class TestFiles:
    @each_bandit
    @pytest.mark.parametrize("rounds", [1, BLOCK - 1, BLOCK, BLOCK + 9])
    def test_in_the_middle_of_a_block_go_on_to_the_last_bit(self, make, rounds, books, tmp_path):
        _, bandit = go_on(make(), rounds, ids="ab")
        go_on(bandit, 3, ids="b", start=rounds)  # blocks of different lengths
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert books(loaded) == books(bandit)
        for id in "ab":
            assert loaded.task(id).evidence == bandit.task(id).evidence
        later, _ = go_on(bandit, BLOCK, 99, "abc")
        assert go_on(loaded, BLOCK, 99, "abc")[0] == later
        assert books(loaded) == books(bandit)

    def test_after_every_round(self, books, tmp_path):
        def reload(bandit):
            bandit.save(tmp_path / "b")
            return hs.load(tmp_path / "b")

        plain, bandit = go_on(BANDITS["projected_ts"](), BLOCK + 3)
        asked, other = go_on(BANDITS["projected_ts"](), BLOCK + 3, look=reload)
        assert asked == plain
        assert books(other) == books(bandit)

    def test_tasks_keep_their_own_rounds(self, tmp_path):
        """Live tasks with blocks of any length, some empty, beside idle and closed ones."""
        bandit = hs.Bandit(DIM, hs.Bias(), noise=0.3, seed=0, cache_size=4)
        lengths = {"a": 3, "b": BLOCK, "c": 0, "d": BLOCK + 7, "e": 1, "f": 40}
        for id, rounds in lengths.items():
            go_on(bandit, rounds, ids=(id,))
            bandit.task(id).choose(offer(0))
        bandit.task("e").close()
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        for id, rounds in lengths.items():
            assert loaded.task(id).evidence == bandit.task(id).evidence
            assert loaded.task(id).evidence.rounds == loaded.task(id).rounds == rounds

    def test_a_loaded_bandit_does_not_share_what_is_pending(self, tmp_path):
        _, bandit = go_on(BANDITS["linucb"](), 5)
        bandit.save(tmp_path / "b")
        one, other = hs.load(tmp_path / "b"), hs.load(tmp_path / "b")
        go_on(one, 5, 5)
        assert one.task("a").evidence.rounds == 10
        assert other.task("a").evidence.rounds == bandit.task("a").evidence.rounds == 5


class TestFading:
    @pytest.mark.parametrize("half_life", [0.5, 4.0, 100.0])
    def test_every_reward_counts_as_it_should_however_many_there_are(self, half_life, same_belief):
        bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=0, half_life=half_life)
        task, contexts, rewards = bandit.task("a"), [], []
        for at in range(ROUNDS):
            choice = task.choose(offer(at))
            contexts.append(choice.context)
            rewards.append(reward_of(choice, at))
            task.learn(choice, rewards[-1])
            weights = 0.5 ** (np.arange(at, -1, -1) / half_life)
            x, r = np.array(contexts), np.array(rewards)
            np.testing.assert_allclose(task.evidence.gram, (x.T * weights) @ x, atol=1e-12)
            np.testing.assert_allclose(task.evidence.moment, (weights * r) @ x, atol=1e-12)
            assert task.evidence.rounds == pytest.approx(weights.sum())
        expected = hs.Belief.of(bandit.prior, task.evidence).replace(rounds=float(ROUNDS))
        same_belief(task.belief, expected)


class TestOneEntry:
    def entry(self, rounds=(), forced=False):
        evidence = hs.Evidence.zero(DIM, forced=forced)
        entry = TaskEntry(None, CachedTask(evidence, (), None, False, 0))
        for x, r, *mark in rounds:
            self.add(entry, np.asarray(x, dtype=float), r, *mark)
        return entry

    def add(self, entry, context, reward, forced=False):
        evidence, pending = entry.cached.with_round(context, reward, forced)
        entry.set_task(None, entry.cached._replace(evidence=evidence, pending=pending), 0)

    def test_an_empty_one(self):
        idle = TaskEntry(hs.Evidence.zero(DIM).pack())
        for entry in (idle, self.entry()):
            assert entry.evidence(DIM) == hs.Evidence.zero(DIM)
            assert entry.rounds(DIM) == 0.0
            assert not entry.has_rewards(DIM)

    @pytest.mark.parametrize("count", NEAR_ENDS)
    def test_it_counts_what_is_pending(self, count):
        entry = self.entry([(np.ones(DIM), 0.0)] * count)
        assert entry.rounds(DIM) == count == entry.evidence(DIM).rounds
        assert not entry.has_rewards(DIM)  # all of them were zero
        self.add(entry, np.ones(DIM), -0.5)
        assert entry.has_rewards(DIM)
        assert entry.rounds(DIM) == count + 1

    def test_no_more_than_a_block_is_pending(self):
        entry = self.entry()
        for count in range(1, 3 * BLOCK):
            self.add(entry, np.ones(DIM), 1.0)
            assert len(entry.cached.pending) == count % BLOCK
            assert entry.rounds(DIM) == count
            assert entry.has_rewards(DIM)

    @pytest.mark.parametrize("count", NEAR_ENDS)
    def test_adding_up_is_a_matter_of_calls_not_of_looking(self, count):
        rng = np.random.default_rng(count)
        rounds = [
            (rng.standard_normal(DIM), rng.standard_normal(), bool(at % 2)) for at in range(count)
        ]
        plain, asked = self.entry(rounds, forced=True), self.entry(forced=True)
        for round in rounds:
            self.add(asked, *round)
            asked.evidence(DIM), asked.rounds(DIM), asked.has_rewards(DIM)
        assert asked.evidence(DIM) == plain.evidence(DIM)
        assert asked.evidence(DIM) == asked.evidence(DIM)
        assert asked.evidence(DIM).forced.rounds == count // 2


class TestTheOnlyTask:
    """It tells the noise itself, from evidence whose latest rounds are pending."""

    @pytest.mark.parametrize("transfer", [hs.Bias(), hs.Subspace()], ids=repr)
    def test_its_noise_comes_from_all_rounds(self, transfer):
        bandit = hs.Bandit(DIM, transfer, seed=0)
        task = bandit.task("a")
        for at in range(ROUNDS):
            go_on(bandit, 1, at)
            belief = task.belief
            assert belief.prior.noise_dof == 0.0
            noise = hs.Belief.of(belief.prior, task.evidence).noise
            assert belief.noise == pytest.approx(noise, rel=1e-6)

    def test_one_that_comes_back_finds_the_same(self, same_belief):
        bandit = hs.Bandit(DIM, hs.Bias(), seed=0)
        go_on(bandit, BLOCK + 5)
        running = bandit.task("a").belief
        bandit.task("a").close()
        same_belief(bandit.task("a").belief, running)

    @pytest.mark.parametrize("rounds", [3, BLOCK, BLOCK + 3])
    def test_rewards_of_zero_tell_nothing_even_if_they_are_pending(self, rounds):
        bandit = hs.Bandit(DIM, seed=0)
        silent, loud = bandit.task("silent"), bandit.task("loud")
        for at in range(rounds):
            silent.learn(silent.choose(offer(at)), 0.0)
        loud.learn(loud.choose(offer(99)), 1000.0)
        assert loud.belief.noise > 1.0  # by itself: the other one has no scale
