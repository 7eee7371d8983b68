"""Exceptions from outside (Ctrl-C, alarms, time limits) may come at any moment.

Whatever was interrupted happened as a whole or not at all; a retry never counts a reward twice, and
what is believed of a task always fits its evidence.
"""

import contextlib
import copy
import gc
import itertools
import linecache
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.model.mixture import MixturePrior

DIM = 3
PACKAGE = str(Path(hs.__file__).parent)
BOOKS = {
    str(path)
    for folder in ("bandit", "features/items")
    for path in Path(PACKAGE, folder).rglob("*.py")
    if path.stem not in ("report", "restored", "settings")
}


class Interrupt(BaseException):
    """What comes from outside."""


class Interruption:
    """Raises at one of the places that the modules that keep books pass, counted from 0.

    A place is a line or, with ``opcodes``, an instruction. Taking and giving back a lock is left
    out: CPython lets no exception in between. (What other modules do changes nothing in place.)
    """

    def __init__(self, place, opcodes=False):
        self.left, self.opcodes, self.came = place, opcodes, False

    def __enter__(self):
        sys.settrace(self.call)
        return self

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is Interrupt

    def call(self, frame, event, argument):
        if frame.f_code.co_filename not in BOOKS:
            return None
        frame.f_trace_opcodes = self.opcodes
        return self.step

    def step(self, frame, event, argument):
        if event == ("opcode" if self.opcodes else "line"):
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if not text.startswith("with "):
                self.left -= 1
                if self.left < 0 and not self.came:
                    self.came = True
                    raise Interrupt
        return self.step


def offer(at):
    return np.random.default_rng([7, at]).standard_normal((4, DIM))


def busy(make, rounds=4):
    """A bandit with running, idle and closed tasks, and choices that wait for their reward."""
    bandit = make()
    rng = np.random.default_rng(1)
    for at, id in itertools.product(range(rounds), "abcdefg"):
        bandit.learn(bandit.task(id).choose(offer(at)), float(rng.standard_normal()))
    for id in "bcd":
        bandit.task(id).close()
    bandit.task("empty").close()
    waiting = {}
    for id in "defga":
        waiting[id] = [bandit.task(id).choose(offer(at)) for at in range(4)]
    bandit.task("d").close()
    return bandit, waiting


BANDITS = {
    "default": lambda: hs.Bandit(DIM, seed=2, cache_size=4),
    "only live": lambda: hs.Bandit(DIM, seed=2),
    "Bias": lambda: hs.Bandit(DIM, hs.Bias(), noise=0.3, seed=2, cache_size=4),
    "ccipca": lambda: hs.Bandit(
        DIM, hs.Subspace(rank=1, pca="ccipca", warmup=2, lam1=25.0), noise=0.3, seed=2, cache_size=3
    ),
    "half-life": lambda: hs.Bandit(DIM, noise=0.3, seed=2, half_life=9.0, cache_size=4),
    "mixture": lambda: hs.Bandit(DIM, hs.Mixture(groups=2), seed=2, cache_size=4),
    "forced": lambda: hs.meta_ts(DIM, seed=2, forced_rounds=3),
}


def assert_sound(bandit, same_prior):
    """The books agree with each other."""
    ledger = bandit._state.ledger
    entries, cache, prior_state = ledger.entries, ledger.cache, ledger.prior_state
    assert len(bandit) == len(entries)  # finishes what was interrupted
    assert not ledger.changes.steps
    assert not ledger.batch
    assert set(cache.tasks) == {id for id, entry in entries.items() if entry.cached}
    assert len(cache) <= cache.size
    for id, entry in entries.items():
        evidence = bandit.task(id).evidence
        if ledger.decay == 1.0:
            assert evidence.rounds == entry.reward_count
        assert (entry.packed is None) == (entry.cached is not None)
        assert entry.cached is None or cache.tasks[id] is entry
        belief = entry.cached and entry.cached.belief
        if isinstance(belief, hs.Belief):
            rebuilt = hs.Belief.of(belief.prior, evidence)
            np.testing.assert_allclose(belief.mean, rebuilt.mean, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(belief.covariance, rebuilt.covariance, rtol=1e-9, atol=1e-9)
    closed = [bandit.task(id).evidence for id in prior_state.closed if entries.rounds(id)]
    with bandit._state.lock, prior_state.temporary_changes():
        prior_state.update()
        state = prior_state.state
    transfer = prior_state.transfer
    if transfer.removes_exactly:  # what the fit makes of tasks depends on when it was renewed
        assert sorted(state.tasks.squares) == sorted(evidence.squares for evidence in closed)
        moments = [evidence.moment for evidence in closed]
        np.testing.assert_allclose(state.tasks.moment.sum(0), sum(moments, np.zeros(entries.dim)))
    elif closed:
        refit = prior_state.keep_units(transfer.refit(closed, prior_state.noise))
        found, expected = (transfer.prior(each) for each in (state, refit))
        if isinstance(expected, MixturePrior):
            np.testing.assert_allclose(found.log_weights, expected.log_weights, rtol=1e-9)
            found, expected = found.as_gaussian(), expected.as_gaussian()
        same_prior(found, expected)


def interrupted(bandit, operate, opcodes=False, step=1):
    """``operate`` on copies of a bandit, interrupted at every place, one after another."""
    for place in itertools.count(0, step):
        twin = copy.deepcopy(bandit)
        with Interruption(place, opcodes) as interruption:
            operate(twin)
        yield twin, interruption.came
        if not interruption.came:
            assert place > 10
            return


class TestLearning:
    @pytest.mark.parametrize("id", ["a", "d", "e"])
    @pytest.mark.parametrize(
        ("name", "step"), [("default", 7), ("Bias", 1), ("half-life", 7), ("forced", 3)]
    )
    def test_a_retry_counts_the_reward_once(self, name, step, id, same_prior, books):
        """A task that runs, one that is closed, and one that may be idle."""
        bandit, waiting = busy(BANDITS[name])
        plain = copy.deepcopy(bandit)
        plain.learn(waiting[id][1], 0.5)
        expected = books(plain)

        def learn(twin):
            twin.learn(waiting[id][1], 0.5)

        outcomes = set()
        for twin, came in interrupted(bandit, learn, step=step):
            if came:
                try:
                    outcomes.add(twin.learn(waiting[id][1], 0.5))
                except hs.ChoiceError:
                    outcomes.add("learned already")
            assert twin.task(id).rounds == plain.task(id).rounds
            assert books(twin)["tasks"][id]["evidence"] == expected["tasks"][id]["evidence"]
            assert (
                twin._state.ledger.entries.reward_count == plain._state.ledger.entries.reward_count
            )
            assert_sound(twin, same_prior)
        assert outcomes == {True, "learned already"}

    @pytest.mark.parametrize("name", ["only live", "Bias"])
    def test_between_any_two_instructions(self, name, same_prior):
        bandit, waiting = busy(BANDITS[name])
        before = bandit.task("a").rounds

        def learn(twin):
            twin.task("a").learn(waiting["a"][0], 0.5)

        for twin, came in interrupted(bandit, learn, opcodes=True, step=3):
            if came:
                with contextlib.suppress(hs.ChoiceError):  # it was learned from already
                    twin.learn(waiting["a"][0], 0.5)
            assert twin.task("a").rounds == before + 1
            assert_sound(twin, same_prior)

    @pytest.mark.parametrize(
        ("name", "step"),
        [("default", 211), ("Bias", 41), ("half-life", 211), ("forced", 71), ("mixture", 701)],
    )
    def test_a_batch_is_learned_as_a_whole_or_not_at_all(self, name, step, same_prior):
        bandit, waiting = busy(BANDITS[name])
        choices = [choice for id in "defga" for choice in waiting[id]]
        counts = {id: bandit.task(id).rounds for id in waiting}

        def learn(twin):
            twin.learn(choices, np.arange(20.0))

        plain = copy.deepcopy(bandit)
        learn(plain)
        learned = 0
        for twin, came in interrupted(bandit, learn, step=step):
            now = {id: twin.task(id).rounds - counts[id] for id in waiting}
            assert set(now.values()) in ({0}, {4})
            learned += came and set(now.values()) == {4}
            if set(now.values()) == {0}:
                learn(twin)
            else:
                with pytest.raises(hs.ChoiceError, match="already"):
                    learn(twin)
            for id in waiting:
                evidence = twin.task(id).evidence
                np.testing.assert_allclose(evidence.gram, plain.task(id).evidence.gram)
                np.testing.assert_allclose(evidence.moment, plain.task(id).evidence.moment)
            assert_sound(twin, same_prior)
        assert learned

    def test_an_error_of_its_own_does_not_come_back_for_ever(self):
        """A transfer that always fails: the batch is given up after a few attempts."""

        class Failing(hs.Bias):
            def fold(self, state, evidence, weight=1.0):
                if weight < 0:
                    raise ArithmeticError("no")
                return super().fold(state, evidence, weight)

        bandit = hs.Bandit(DIM, Failing(), noise=0.3, seed=0)
        choices = [bandit.task(id).choose(offer(0)) for id in "ab"]
        first = bandit.task("b").choose(offer(1))
        bandit.learn(first, 1.0)
        bandit.task("b").close()
        with pytest.raises(ArithmeticError):
            bandit.learn(choices, [1.0, 2.0])
        for _ in range(5):
            try:
                len(bandit)
            except ArithmeticError:
                continue
            break
        else:
            pytest.fail("it fails for ever")
        assert (bandit.task("a").rounds, bandit.task("b").rounds) == (1, 1)


OPERATIONS = {
    "close": lambda bandit: bandit.task("a").close(),
    "close without a reward": lambda bandit: bandit.task("new").close(),
    "delete": lambda bandit: bandit.delete("a"),
    "delete closed": lambda bandit: bandit.delete("b"),
    "reopen": lambda bandit: bandit.task("c").choose(offer(9)),
    "choose": lambda bandit: bandit.task("a").choose(offer(9)),
    "new task": lambda bandit: bandit.task("x").choose(offer(9)),
    "choose many": lambda bandit: bandit.choose_many(["a", "c", "x"], [offer(9)] * 3),
    "choose several": lambda bandit: bandit.task("a").choose(offer(9), k=3),
    "observe": lambda bandit: bandit.task("e").observe(offer(9), np.arange(4.0)),
    "observe closed": lambda bandit: bandit.task("b").observe(offer(9), np.arange(4.0)),
    "choose many several": lambda bandit: bandit.choose_many(["a", "c"], [offer(9)] * 2, k=2),
    "add evidence": lambda bandit: bandit.add_evidence(
        "e", hs.Evidence.of(np.eye(bandit.prior.dim), np.arange(bandit.prior.dim))
    ),
    "refresh": lambda bandit: bandit.task("a").refresh(),
    "look": lambda bandit: (bandit.report(), bandit.prior, bandit.task("b").belief),
}


class TestEverythingElse:
    @pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS)
    @pytest.mark.parametrize(
        ("name", "step"), [("default", 109), ("Bias", 29), ("ccipca", 53), ("mixture", 307)]
    )
    def test_leaves_sound_books_and_can_be_repeated(self, name, step, operate, same_prior):
        bandit, _ = busy(BANDITS[name])
        for twin, came in interrupted(bandit, operate, step=step):
            assert_sound(twin, same_prior)
            if came:
                with contextlib.suppress(hs.TaskError):  # it was deleted already
                    operate(twin)
                assert_sound(twin, same_prior)

    def test_no_number_is_given_twice(self):
        bandit, _ = busy(BANDITS["default"])
        made = []

        def choose(twin):
            made.append(twin.task("a").choose(offer(9)).id)

        for twin, _ in interrupted(bandit, choose, step=3):
            made += [twin.task("a").choose(offer(at)).id for at in range(3)]
            assert len(set(made)) == len(made) >= 3
            made.clear()

    def test_a_fit_happens_as_a_whole_or_not_at_all(self, same_prior):
        rows = {f"x{at}": np.random.default_rng(at).standard_normal(40) for at in range(DIM)}
        rows |= {"task": np.arange(40) % 5, "reward": rows["x0"]}
        outcomes = set()

        def fit(twin):
            twin.fit(rows, task="task", reward="reward")

        bandit = hs.Bandit(DIM, hs.Bias(), noise=0.3, seed=0)
        for twin, came in interrupted(bandit, fit, step=7):
            outcomes.add((len(twin), came))
            assert twin._state.reader.features.scale is None or len(twin) == 5
            assert_sound(twin, same_prior)
            if not len(twin):
                fit(twin)
            assert twin.task(3).rounds == 8
        assert outcomes == {(0, True), (5, True), (5, False)}

    def test_what_is_noted_is_learned_from_and_what_is_learned_from_is_noted(self, tmp_path):
        """However often rounds were interrupted and observed again, the journal tells the same."""
        bandit = hs.Bandit(DIM, hs.Bias(), noise=0.3, seed=0)
        bandit.task("a").observe(offer(0), np.ones(4))
        bandit.save(tmp_path / "b")
        outcomes = set()
        with hs.Journal(tmp_path / "j") as journal:

            def observe(twin):
                twin.task("a").observe(offer(9), np.arange(4.0), journal=journal)

            for twin, came in interrupted(bandit, observe, step=3):
                outcomes.add((twin.task("a").rounds, came))
                again = hs.load(tmp_path / "b")
                again.replay(journal)
                assert again.task("a").rounds == twin.task("a").rounds
                if twin.task("a").rounds == 4:  # nothing was learned: once more
                    observe(twin)
                again = hs.load(tmp_path / "b")
                again.replay(journal)
                assert again.task("a").rounds == twin.task("a").rounds == 8
                assert again.task("a").evidence == twin.task("a").evidence
                (tmp_path / "j").write_bytes(b"")
        assert outcomes == {(4, True), (8, True), (8, False)}

    def test_saving_changes_nothing(self, tmp_path, books):
        bandit, _ = busy(BANDITS["default"])
        before = books(bandit)
        for place in range(0, 200, 3):
            with Interruption(place):
                bandit.save(tmp_path / "b")
            assert books(bandit) == before


def storm(bandit, seconds):
    """Choose and learn under a hail of exceptions, each retried; what was told is returned."""
    task, told, interruptions = bandit.task("a"), [], 0
    rng = np.random.default_rng(0)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        choice = None
        while choice is None:
            try:
                choice = task.choose(rng.standard_normal((3, DIM)))
            except Interrupt:
                interruptions += 1
        reward = float(len(told) % 7)
        done = False
        while not done:
            try:
                bandit.learn(choice, reward)
                done = True
            except hs.ChoiceError:
                done = True
            except Interrupt:
                interruptions += 1
        told.append((choice.context, reward))
    return told, interruptions


def test_real_signals(same_belief):
    """An alarm every millisecond or so, whose handler raises while the bandit is at work."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("no timers here")
    bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=0)
    waits = np.random.default_rng(0)

    def handler(number, frame):
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + float(waits.exponential(1e-3)))
        inside = frame
        while inside is not None:
            if inside.f_code.co_filename.startswith(PACKAGE):
                raise Interrupt
            inside = inside.f_back

    usual = signal.signal(signal.SIGALRM, handler)
    gc.disable()  # Hypothesis has a callback there, in which an exception would be lost
    try:
        told, interruptions = storm(bandit, 1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        gc.enable()
    assert interruptions > 10
    task = bandit.task("a")
    assert task.rounds == len(told)
    contexts, rewards = zip(*told, strict=True)
    expected = hs.Evidence.of(np.array(contexts), rewards)
    np.testing.assert_allclose(task.evidence.gram, expected.gram)
    np.testing.assert_allclose(task.evidence.moment, expected.moment)
    same_belief(task.belief, hs.Belief.of(task.belief.prior, task.evidence))


#: Calls that change what is known of items, each with every how many lines it is interrupted.
ITEM_CALLS = {
    "learn": (lambda bandit, waiting: bandit.learn(waiting["a"], 2.0), 5),
    "learn late": (lambda bandit, waiting: bandit.learn(waiting["b"], 2.0), 5),
    "learn all": (lambda bandit, waiting: bandit.learn([*waiting.values()], [1.0, 2.0, 3.0]), 13),
    "close": (lambda bandit, waiting: bandit.task("a").close(), 47),
    "delete": (lambda bandit, waiting: "b" in bandit and bandit.task("b").delete(), 5),
}


class TestItems:
    """Statistics of items change together with the task that a reward belongs to."""

    SCHEMA = hs.Schema(action={"price": hs.number(missing=False)}, identity=True)

    def busy(self):
        """A bandit with a running, a closed and a reopened task, and a choice of each."""
        bandit, rng = hs.Bandit(self.SCHEMA, seed=2), np.random.default_rng(0)
        waiting = {}
        for id in "abc":
            for at in range(5):
                choice = bandit.task(id).choose(actions=self.offer(at))
                bandit.learn(choice, float(rng.standard_normal()))
            waiting[id] = bandit.task(id).choose(actions=self.offer(7))
            if id != "a":
                bandit.task(id).close()
        bandit.task("c").choose(actions=self.offer(1))
        return bandit, waiting

    def offer(self, at):
        return [{"id": (at + step) % 6, "price": float(step)} for step in range(3)]

    def known(self, bandit):
        """What is known of all items, and of the tasks."""
        actions = [{"id": item, "price": 1.0} for item in range(6)]
        tasks = {id: bandit.task(id) for id in bandit}
        tables = {id: task.encode(actions=actions).table.tolist() for id, task in tasks.items()}
        facts = {id: (task.rounds, task.closed) for id, task in tasks.items()}
        moments = {id: task.evidence.moment.tolist() for id, task in tasks.items()}
        return tables, facts, moments

    @pytest.mark.parametrize("name", ITEM_CALLS)
    def test_a_retry_makes_the_change_once(self, name):
        call, step = ITEM_CALLS[name]
        bandit, waiting = self.busy()
        plain = copy.deepcopy(bandit)
        call(plain, waiting)
        before, expected = self.known(bandit), self.known(plain)
        assert before != expected
        for twin, came in interrupted(bandit, lambda twin: call(twin, waiting), step=step):
            assert self.known(twin) in (before, expected)
            if came:
                with contextlib.suppress(hs.ChoiceError):  # it was learned from already
                    call(twin, waiting)
            assert self.known(twin) == expected

    def test_rows_are_observed_as_a_whole_or_not_at_all(self):
        bandit, _ = self.busy()

        def observe(twin):
            twin.task("a").observe(self.offer(3), [1.0, 2.0, 3.0])

        plain = copy.deepcopy(bandit)
        observe(plain)
        before, expected = self.known(bandit), self.known(plain)
        for twin, _ in interrupted(bandit, observe, step=29):
            assert self.known(twin) in (before, expected)
        assert self.known(twin) == expected


class Meddling(hs.UCB):
    """A rule that uses the bandit while a task chooses, as a signal handler may."""

    act = None

    def index(self, belief, contexts, rng):
        act, Meddling.act = Meddling.act, None
        if act is not None:
            act()
        return super().index(belief, contexts, rng)


class TestWhileATaskChooses:
    def begin(self, **settings):
        bandit = hs.Bandit(DIM, rule=Meddling(), seed=0, **settings)
        task = bandit.task("a")
        for at in range(10):
            task.learn(task.choose(offer(at)), float(at % 3))
        return bandit, task

    def choose(self, task, act):
        Meddling.act = staticmethod(act)
        return task.choose(offer(0))

    def test_a_task_that_is_closed_is_open_again_afterwards(self):
        _, task = self.begin()
        choice = self.choose(task, task.close)
        assert not task.closed
        assert task.learn(choice, 1.0)
        assert task.rounds == 11

    def test_a_task_whose_belief_is_evicted_is_cached_again(self):
        bandit, task = self.begin(cache_size=1)
        choice = self.choose(task, lambda: bandit.task("b").choose(offer(0)))
        assert task.learn(choice, 1.0)
        assert task.rounds == 11
        assert task.evidence.rounds == 11

    def test_a_task_that_chooses_or_learns_is_refused(self):
        _, task = self.begin()
        waiting = task.choose(offer(1))
        for act in (lambda: task.choose(offer(0)), lambda: task.learn(waiting, 1.0)):
            with pytest.raises(hs.TaskError, match="while it was choosing"):
                self.choose(task, act)
        assert task.rounds == 11
