"""A crash loses nothing: the last file, and a journal of what came after it."""

import json
import os
import threading

import numpy as np
import pytest

import headstart as hs
from headstart.bandit.offline.observation import seal_of

DIM = 3


def offer(at):
    return np.random.default_rng([3, at]).standard_normal((4, DIM))


def play(bandit, rounds, journal=None, start=0, ids="abc", late=()):
    """Choose and learn; every third reward waits."""
    waiting = list(late)
    for at in range(start, start + rounds):
        for id in ids:
            waiting.append((bandit.task(id).choose(offer(at)), float(at % 5)))
        while len(waiting) > 3:
            choice, reward = waiting.pop(0)
            if journal is not None:
                journal.append(choice, reward)
            bandit.learn(choice, reward)
    return waiting


def same_evidence(bandit, other):
    assert list(bandit) == list(other)
    for id in bandit:
        mine, theirs = bandit.task(id), other.task(id)
        assert mine.rounds == theirs.rounds
        np.testing.assert_allclose(mine.evidence.gram, theirs.evidence.gram, rtol=1e-12)
        np.testing.assert_allclose(mine.evidence.moment, theirs.evidence.moment, rtol=1e-12)


class TestRestartingFromAnOlderFile:
    """Without a journal: late tokens are what they were, and never taken for new choices."""

    @pytest.fixture
    def crashed(self, tmp_path):
        """A bandit that was saved, went on, and was lost; tokens of its last choices are left."""
        bandit = hs.Bandit(DIM, seed=0)
        play(bandit, 5)
        bandit.save(tmp_path / "b")
        lost = [bandit.task(id).choose(offer(50 + at)) for at in range(4) for id in "ab"]
        return hs.load(tmp_path / "b"), [choice.token for choice in lost], bandit

    def test_new_choices_are_others_than_the_lost_ones(self, crashed):
        bandit, lost, _ = crashed
        made = [bandit.task(id).choose(offer(90 + at)) for at in range(4) for id in "ab"]
        before = bandit.task("a").rounds, bandit.task("b").rounds
        assert not {choice.token for choice in made} & set(lost)
        for at in range(8):
            order = (lost[at], made[at]) if at % 3 else (made[at], lost[at])
            for choice in order:
                assert bandit.learn(choice, 1.0)
        for choice in (*made, *lost):
            with pytest.raises(hs.ChoiceError, match="already"):
                bandit.learn(choice, 1.0)
        assert (bandit.task("a").rounds, bandit.task("b").rounds) == (before[0] + 8, before[1] + 8)

    def test_a_late_token_teaches_what_it_was(self, crashed):
        bandit, lost, _ = crashed
        bandit.task("a").choose(offer(90))
        before = bandit.task("a").evidence
        bandit.learn(lost[0], 2.0)
        context = hs.Choice.from_token(lost[0], bandit._state.origin).context
        after, expected = bandit.task("a").evidence, before.add([*context, 1.0], 2.0)
        np.testing.assert_allclose(after.gram, expected.gram, rtol=1e-12)
        np.testing.assert_allclose(after.moment, expected.moment, rtol=1e-12)

    def test_decisions_are_those_that_the_lost_one_made(self, tmp_path):
        bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0)
        play(bandit, 5)
        bandit.save(tmp_path / "b")
        lost = [bandit.task("a").choose(offer(at)) for at in range(5)]
        again = hs.load(tmp_path / "b")
        for at, choice in enumerate(lost):
            now = again.task("a").choose(offer(at))
            assert (now.number, now.arm, now.score) == (choice.number, choice.arm, choice.score)
            assert now != choice

    def test_over_many_restarts(self, tmp_path):
        """Each life makes choices whose rewards come in a later one, after a file or none."""
        bandit, tokens = hs.Bandit(DIM, seed=0), []
        for life in range(12):
            tokens += [bandit.task("a").choose(offer(life)).token for _ in range(3)]
            if life % 3 == 0:
                bandit.save(tmp_path / "b")
            bandit = hs.load(tmp_path / "b")
        assert len(set(tokens)) == 36
        rng = np.random.default_rng(0)
        for at, token in enumerate(rng.permutation(tokens)):
            assert bandit.learn(str(token), 1.0)
            if at % 5 == 0:  # what is known of other lives is saved too
                bandit.save(tmp_path / "b")
                bandit = hs.load(tmp_path / "b")
        for token in tokens:
            with pytest.raises(hs.ChoiceError, match="already"):
                bandit.learn(token, 1.0)
        assert bandit.task("a").rounds == 36

    def test_memory_of_other_lives_is_bounded_and_errs_on_the_safe_side(self, tmp_path):
        bandit, tokens = hs.Bandit(DIM, seed=0), []
        bandit.task("a")
        bandit.save(tmp_path / "b")
        size = (tmp_path / "b").stat().st_size
        for _ in range(60):
            token = bandit.task("a").choose(offer(0)).token
            bandit.learn(token, 1.0)
            tokens.append(token)
            bandit.save(tmp_path / "b")
            bandit = hs.load(tmp_path / "b")
        for token in tokens:
            with pytest.raises(hs.ChoiceError, match="already"):
                bandit.learn(token, 1.0)
        assert (tmp_path / "b").stat().st_size < size + 8000

    def test_tokens_of_a_deleted_task_stay_refused(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        token = bandit.task("a").choose(offer(0)).token
        bandit.save(tmp_path / "b")
        bandit = hs.load(tmp_path / "b")
        bandit.delete("a")
        bandit.task("a").choose(offer(1))
        with pytest.raises(hs.ChoiceError):
            bandit.learn(token, 1.0)


class TestReplaying:
    def test_recovers_exactly_what_was_lost(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        with hs.Journal(tmp_path / "j") as journal:
            late = play(bandit, 10, journal)
            bandit.save(tmp_path / "b")
            play(bandit, 20, journal, start=10, ids="abcd", late=late)  # "d" is new
        again = hs.load(tmp_path / "b")
        had = sum(again.task(id).rounds for id in again)
        result = again.replay(tmp_path / "j")
        total = sum(bandit.task(id).rounds for id in bandit)
        assert result == (total - had, had, {}, [])
        same_evidence(again, bandit)
        assert again.replay(tmp_path / "j") == (0, total, {}, [])  # and once more
        same_evidence(again, bandit)

    def test_late_rewards_from_before_the_crash_still_count(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        bandit.save(tmp_path / "b")
        with hs.Journal(tmp_path / "j") as journal:
            waiting = play(bandit, 10, journal)
        again = hs.load(tmp_path / "b")
        again.replay(tmp_path / "j")
        for choice, reward in waiting:
            assert again.learn(choice.token, reward)
            bandit.learn(choice, reward)
        same_evidence(again, bandit)

    def test_new_choices_before_replaying_do_no_harm(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        play(bandit, 3)
        bandit.save(tmp_path / "b")
        with hs.Journal(tmp_path / "j") as journal:
            for at in range(5):
                choice = bandit.task("a").choose(offer(at))
                journal.append(choice.token, 1.0)
        again = hs.load(tmp_path / "b")
        before = again.task("a").rounds
        for at in range(5):
            again.learn(again.task("a").choose(offer(60 + at)), 0.5)
        assert again.replay(tmp_path / "j").learned == 5
        assert again.task("a").rounds == before + 10

    @pytest.mark.parametrize("cut", [1, 2, 10, 60])
    def test_a_torn_last_line_is_reported_and_later_ones_are_read(self, cut, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        bandit.save(tmp_path / "b")
        choices = [bandit.task("a").choose(offer(at)) for at in range(6)]
        with hs.Journal(tmp_path / "j") as journal:
            for choice in choices[:3]:
                journal.append(choice, 1.0)
        whole = (tmp_path / "j").read_bytes()
        (tmp_path / "j").write_bytes(whole[:-cut])
        torn = [] if cut == 1 else [3]
        result = hs.load(tmp_path / "b").replay(tmp_path / "j")
        assert (result.learned, result.damaged) == (3 - len(torn), torn)
        with hs.Journal(tmp_path / "j") as journal:
            for choice in choices[3:]:
                journal.append(choice, 1.0)
        result = hs.load(tmp_path / "b").replay(tmp_path / "j")
        assert (result.learned, result.damaged) == (6 - len(torn), torn)

    def test_foreign_and_senseless_lines_change_nothing(self, tmp_path, content):
        bandit, other = hs.Bandit(DIM, seed=0), hs.Bandit(DIM, seed=0)
        foreign = other.task("a").choose(offer(0)).token
        mine = bandit.task("a").choose(offer(0)).token
        texts = [
            json.dumps({"token": foreign, "reward": 1.0}),
            json.dumps({"token": mine[:-3], "reward": 1.0}),
            json.dumps({"token": mine, "reward": "1"}),
            json.dumps({"token": mine, "reward": float("nan")}),
            json.dumps({"token": mine, "reward": None}),
            json.dumps({"token": mine, "reward": 1e99}),
            json.dumps({"token": 7, "reward": 1.0}),
            json.dumps({"token": mine}),
            json.dumps([mine, 1.0]),
            "[" * 100_000,
            "\x00\xff",
            "__import__('os')",
        ]
        (tmp_path / "j").write_text("\n".join(texts), encoding="utf-8")
        before = content(bandit)
        result = bandit.replay(tmp_path / "j")
        assert content(bandit) == before
        assert (result.learned, result.known) == (0, 0)
        assert list(result.refused) == [1, 2, 3, 4, 5, 6]
        assert "another bandit" in result.refused[1]
        assert "reward" in result.refused[3]
        assert result.damaged == [7, 8, 9, 10, 11, 12]

    def test_deleted_tasks_are_not_made_again(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        with hs.Journal(tmp_path / "j") as journal:
            play(bandit, 5, journal)
        bandit.delete("a")
        result = bandit.replay(tmp_path / "j")
        assert "a" not in bandit
        assert result.learned == 0
        assert len(result.refused) > 3
        assert all("deleted" in reason for reason in result.refused.values())

    def test_a_frozen_bandit_refuses(self, tmp_path, refused):
        bandit = hs.Bandit(DIM, seed=0)
        with hs.Journal(tmp_path / "j") as journal:
            journal.append(bandit.task("a").choose(offer(0)), 1.0)
        bandit.freeze()
        with refused(bandit, "frozen", error=hs.HeadstartError):
            bandit.replay(tmp_path / "j")

    def test_no_journal_there(self, tmp_path):
        with pytest.raises(hs.MissingFileError, match="journal"):
            hs.Bandit(DIM).replay(tmp_path / "none")


ITEMS = hs.Schema(action={"price": hs.number(missing=False)}, identity=True)
OBSERVERS = {
    "numbers": lambda: hs.Bandit(DIM, seed=0),
    "half-life": lambda: hs.Bandit(DIM, seed=0, half_life=9.0),
    "clicks": lambda: hs.Bandit(DIM, seed=0, reward="binary"),
    "costs": lambda: hs.Bandit(DIM, hs.Bias(), seed=0, minimize=True, choice_window=5),
    "items": lambda: hs.Bandit(ITEMS, seed=0),
}


class TestObservedRounds:
    def offer(self, bandit, at):
        rows = offer(at)
        if bandit.schema is None:
            return rows
        return [{"id": f"item {(at + n) % 6}", "price": row[0]} for n, row in enumerate(rows)]

    def play(self, bandit, rounds, journal=None):
        """Observe four rounds and learn from a choice, in turn."""
        for at in rounds:
            task, offered = bandit.task("ab"[at % 2]), self.offer(bandit, at)
            weight = [1.0, 0.0, 2.0, 0.5] if at % 3 else None
            task.observe(offered, (np.arange(4) + at) % 2, weight, journal=journal)
            choice = task.choose(offered)
            if journal is not None:
                journal.append(choice, 1.0)
            bandit.learn(choice, 1.0)

    @pytest.mark.parametrize("name", OBSERVERS)
    def test_are_recovered_exactly_once(self, name, tmp_path):
        bandit = OBSERVERS[name]()
        with hs.Journal(tmp_path / "j") as journal:
            self.play(bandit, range(3), journal)
            bandit.save(tmp_path / "b")
            self.play(bandit, range(3, 9), journal)
        again = hs.load(tmp_path / "b")
        result = again.replay(tmp_path / "j")
        assert (result.learned, result.known) == (12, 6)
        assert (result.refused, result.damaged) == ({}, [])
        same_evidence(again, bandit)
        if bandit.schema is not None:
            offered = self.offer(bandit, 1)
            tables = [each.task("a").encode(offered).table for each in (again, bandit)]
            known = [np.delete(table, 3, axis=1) for table in tables]  # offers are not noted
            np.testing.assert_allclose(*known, rtol=1e-9)
        for each in (again, bandit):
            assert each.replay(tmp_path / "j").known == 18
        same_evidence(again, bandit)

    def test_of_a_restarted_bandit_are_others_than_the_lost_ones(self, tmp_path):
        lost = hs.Bandit(DIM, seed=0)
        self.play(lost, range(2))
        lost.save(tmp_path / "b")
        with hs.Journal(tmp_path / "lost") as journal:
            self.play(lost, range(2, 6), journal)
        bandit = hs.load(tmp_path / "b")
        with hs.Journal(tmp_path / "j") as journal:
            self.play(bandit, range(2, 6), journal)
        rounds = bandit.task("a").rounds
        assert bandit.replay(tmp_path / "j").known == 8
        assert bandit.replay(tmp_path / "lost").learned == 8
        before = hs.load(tmp_path / "b").task("a").rounds
        assert bandit.task("a").rounds - rounds == rounds - before

    def test_need_a_journal_that_can_be_written(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        task, journal = bandit.task("a"), hs.Journal(tmp_path / "j")
        task.observe(offer(0), np.ones(4))
        journal.close()
        for wrong, error in ((journal, hs.FileError), ("j", hs.InputError)):
            with pytest.raises(error):
                task.observe(offer(1), np.ones(4), journal=wrong)
            assert task.rounds == 4
        with hs.Journal(tmp_path / "j") as journal:
            with pytest.raises(hs.InputError, match="rewards"):
                task.observe(offer(1), np.ones(3), journal=journal)
            bandit.freeze()
            assert not task.observe(offer(1), np.ones(4), journal=journal)
        assert not (tmp_path / "j").read_bytes()
        bandit.unfreeze()
        assert task.observe(offer(1), np.ones(4))

    def test_that_were_changed_are_refused(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        bandit.save(tmp_path / "b")
        with hs.Journal(tmp_path / "j") as journal:
            bandit.task("a").observe(offer(0), np.ones(4), journal=journal)
        entry = json.loads((tmp_path / "j").read_text())
        senseless = {
            "task": ["b", 7, None],
            "epoch": [-1, "0", 2**70],
            "number": [1, -1, None, 2**70],
            "contexts": [[[1.0] * DIM] * 3, [[1.0]], "x", None, [[float("nan")] * DIM] * 4],
            "rewards": [[2.0] * 4, [1.0], None, [1e99] * 4],
            "weights": [[-1.0] * 4, "x", [0.0]],
            "labels": [7, ["a"]],
            "seal": ["", "é", "00"],
        }
        changed = [entry | {key: each} for key, values in senseless.items() for each in values]
        texts = [json.dumps(each) for each in changed]
        again = hs.load(tmp_path / "b")
        # Whoever has the key can seal anything.
        for each in changed:
            each.pop("seal")
            texts.append(json.dumps(each | {"seal": seal_of(each, again._state.origin)}))
        sealed = range(len(changed) + 1, 2 * len(changed) + 1)
        (tmp_path / "j").write_text("\n".join(texts), encoding="utf-8")
        result = again.replay(tmp_path / "j")
        assert not result.damaged
        assert set(range(1, len(changed) + 1)) <= set(result.refused)
        accepted = [number for number in sealed if number not in result.refused]
        assert result.learned + result.known == len(accepted)
        assert again.task("a").rounds <= 8
        again.save(tmp_path / "b")
        assert hs.load(tmp_path / "b").prior == again.prior


class TestAppending:
    @pytest.mark.parametrize("reward", [None, "1", float("nan"), np.ma.masked, 1e99, [1.0]])
    def test_what_is_no_reward_is_refused_and_not_written(self, reward, tmp_path):
        choice = hs.Bandit(DIM, seed=0).task("a").choose(offer(0))
        with hs.Journal(tmp_path / "j") as journal:
            with pytest.raises(hs.InputError, match="reward"):
                journal.append(choice, reward)
            with pytest.raises(hs.InputError, match="choice"):
                journal.append(None, 1.0)
        assert (tmp_path / "j").read_bytes() == b""

    @pytest.mark.parametrize("reward", [True, 0.1 + 0.2, 5e-324, -3, np.float32(0.1)])
    def test_rewards_are_kept_to_the_last_bit(self, reward, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        with hs.Journal(tmp_path / "j", sync=True) as journal:
            journal.append(bandit.task("a").choose(offer(0)), reward)
        assert bandit.replay(tmp_path / "j").learned == 1
        assert bandit.task("a").evidence.squares == float(reward) ** 2

    def test_each_line_is_there_at_once_and_threads_do_not_mix(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        choices = [bandit.task("a").choose(offer(at)) for at in range(80)]
        journal = hs.Journal(tmp_path / "j")

        def append(part):
            for choice in part:
                journal.append(choice, 1.0)

        threads = [threading.Thread(target=append, args=(choices[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bandit.replay(journal) == (80, 0, {}, [])  # it is open still
        journal.close()

    def test_where_nothing_can_be_written(self, tmp_path):
        choice = hs.Bandit(DIM, seed=0).task("a").choose(offer(0))
        with pytest.raises(hs.FileError):
            hs.Journal(tmp_path)
        with pytest.raises(hs.FileError):
            hs.Journal(tmp_path / "no folder" / "j")
        with pytest.raises(hs.InputError, match="path"):
            hs.Journal(7)
        journal = hs.Journal(tmp_path / "j")
        journal.close()
        with pytest.raises(hs.FileError, match="append"):
            journal.append(choice, 1.0)
        if hasattr(os, "mkfifo"):
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(hs.FileError, match="another kind"):
                hs.Journal(tmp_path / "pipe")
