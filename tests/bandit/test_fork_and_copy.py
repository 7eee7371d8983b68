"""Copies, pickles and forked processes: independent of the original, and deciding as it would."""

import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

import headstart as hs

# Other tests of the same process may have loaded JAX, which warns of every fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

DIM = 3


class Counted(hs.Bias):
    """A transfer of one's own."""


class Mine(hs.Rule):
    """A rule of one's own, which draws."""

    def choose(self, belief, contexts, rng, allowed=None):
        return hs.Uniform().choose(belief, contexts, rng, allowed)

    def propensities(self, belief, contexts, rng, allowed=None):
        return hs.Uniform().propensities(belief, contexts, rng, allowed)


ITEMS = hs.Schema(
    context={"hour": hs.category("am", "pm")},
    action={"price": hs.number(missing=False)},
    identity=True,
    crosses="all",
)
BANDITS = {
    "default": lambda: hs.Bandit(DIM, seed=2, cache_size=3),
    "Thompson": lambda: hs.Bandit(DIM, rule=hs.Thompson(), seed=2),
    "mixture": lambda: hs.Bandit(DIM, hs.Mixture(groups=2), seed=2),
    "forced": lambda: hs.meta_ts(DIM, seed=2, forced_rounds=3),
    "fading": lambda: hs.Bandit(DIM, seed=2, half_life=5.0, intercept=True),
    "items": lambda: hs.Bandit(ITEMS, seed=2, cache_size=3),
    "one's own": lambda: hs.Bandit(DIM, Counted(), Mine(), noise=0.3, seed=2),
}
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda bandit: pickle.loads(pickle.dumps(bandit)),
}
each_bandit = pytest.mark.parametrize("make", BANDITS.values(), ids=BANDITS)
each_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def go_on(bandit, rounds=5, start=0, ids="abcde"):
    trace = []
    for at in range(start, start + rounds):
        for id in ids:
            offer = np.random.default_rng([at, ord(id)]).standard_normal((4, DIM))
            context = None
            if bandit.schema is not None:
                offer = [{"id": (at + n) % 7, "price": row[0]} for n, row in enumerate(offer)]
                context = {"hour": "am" if at % 2 else "pm"}
            choice = bandit.task(id).choose(offer, context=context)
            trace.append((id, choice.number, choice.arm, choice.score.hex()))
            bandit.learn(choice, float(choice.context[0]) + 0.1 * at)
            if at % 3 == 2 and id in "bc":
                bandit.task(id).close()
    return trace


class TestCopies:
    @each_bandit
    @each_copy
    def test_decide_as_the_original_and_share_nothing(self, make, copied, books):
        bandit = make()
        go_on(bandit)
        before = books(bandit)
        twin = copied(bandit)
        assert type(twin) is type(bandit)
        assert books(twin) == before
        later = go_on(twin, start=5)
        assert books(bandit) == before  # the original has not noticed
        assert go_on(bandit, start=5) == later
        assert books(bandit) == books(twin)

    @each_copy
    def test_learn_from_the_originals_tokens_and_keep_their_own_apart(self, copied):
        bandit = hs.Bandit(DIM, seed=0)
        before = bandit.task("a").choose(np.eye(DIM))
        twin = copied(bandit)
        mine, theirs = bandit.task("a").choose(np.eye(DIM)), twin.task("a").choose(np.eye(DIM))
        assert mine.number == theirs.number
        assert mine != theirs
        assert mine.id != theirs.id
        for one in (bandit, twin):
            for choice in (before, mine.token, theirs.token):
                assert one.learn(choice, 1.0)
                with pytest.raises(hs.ChoiceError, match="already"):
                    one.learn(choice, 1.0)
            assert one.task("a").rounds == 3

    @each_copy
    def test_keep_what_is_frozen_and_what_features_are_called(self, copied):
        pandas = pytest.importorskip("pandas")
        bandit = hs.Bandit(2, seed=0, choice_window=7)
        bandit.task("a").choose(pandas.DataFrame({"x": [1.0, 0.0], "y": [0.0, 1.0]}))
        bandit.freeze()
        twin = copied(bandit)
        assert twin.frozen
        assert twin.feature_names == ("x", "y")
        assert repr(twin) == repr(bandit)

    def test_are_whole_while_threads_go_on(self):
        bandit = hs.Bandit(DIM, seed=0, cache_size=2)
        done = threading.Event()

        def work():
            at = 0
            while not done.is_set():
                go_on(bandit, 1, at, "abcd")
                at += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(10):
                for copied in COPIES.values():
                    twin = copied(bandit)
                    for id in twin:
                        assert twin.task(id).evidence.rounds == twin.task(id).rounds
        finally:
            done.set()
            thread.join()

    def test_a_task_and_its_choice_are_pickled_together(self):
        bandit = hs.Bandit(DIM, seed=0)
        task = bandit.task("a")
        twin, choice = pickle.loads(pickle.dumps((task, task.choose(np.eye(DIM)))))
        assert twin.learn(choice, 1.0)
        assert (twin.rounds, task.rounds) == (1, 0)


def child(work, seconds=20.0):
    """Fork, ``work`` in the child, and give what it returns: 0 where all is well."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(int(work()))
        except BaseException:
            os._exit(99)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "it hangs"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestForking:
    @pytest.mark.parametrize("name", ["Thompson", "items"])
    def test_while_another_thread_is_at_work(self, name):
        bandit = BANDITS[name]()
        go_on(bandit, 1)
        done = threading.Event()

        def work():
            at = 1
            while not done.is_set():
                go_on(bandit, 1, at)
                bandit.report()
                at += 1

        def in_child():
            for id in list(bandit):
                learned, rounds = bandit.task(id).evidence.rounds, bandit.task(id).rounds
                is_whole = 0 < learned <= rounds + 1e-9 if name == "items" else learned == rounds
                if not is_whole:  # repeats of items count less than a round
                    return 1
            total = sum(bandit.task(id).rounds for id in bandit)
            go_on(bandit, 2, 1000)
            return sum(bandit.task(id).rounds for id in bandit) != total + 10

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            statuses = [child(in_child) for _ in range(12)]
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert statuses == [0] * 12

    def test_while_the_lock_is_held(self):
        """For sure, and not only by chance."""
        bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0)
        held, let_go = threading.Event(), threading.Event()

        def hold():
            with bandit._state.lock:
                held.set()
                let_go.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        try:
            status = child(lambda: bandit.learn(bandit.task("a").choose(np.eye(DIM)), 1.0) - 1)
        finally:
            let_go.set()
            thread.join()
        assert status == 0

    def test_choices_of_parent_and_child_are_told_apart(self, tmp_path):
        bandit = hs.Bandit(DIM, seed=0)
        bandit.task("a")

        def in_child():
            (tmp_path / "token").write_text(bandit.task("a").choose(np.eye(DIM)).token)
            return 0

        assert child(in_child) == 0
        mine = bandit.task("a").choose(np.eye(DIM))
        token = (tmp_path / "token").read_text()
        assert mine.token != token
        assert bandit.learn(token, 1.0)
        assert bandit.learn(mine, 1.0)
        with pytest.raises(hs.ChoiceError, match="already"):
            bandit.learn(token, 1.0)

    def test_a_bandit_that_is_gone_is_not_kept_for_it(self):
        import gc
        import weakref

        gone = weakref.ref(hs.Bandit(DIM, seed=0))
        gc.collect()
        assert gone() is None
