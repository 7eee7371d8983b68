"""Threads: every call is atomic, no reward is lost, different tasks do not disturb each other."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headstart as hs

DIM = 4


@pytest.fixture(autouse=True)
def _switch_often():
    """Let threads interrupt each other as often as Python can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def together(*calls):
    """Run all calls at once; the first exception of any of them is raised here."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def same_sums(shown, contexts, rewards):
    expected = hs.Evidence.of(np.array(contexts).reshape(-1, DIM), rewards)
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(
            getattr(shown, name), getattr(expected, name), rtol=1e-10, atol=1e-10
        )


def test_the_documentation_says_what_is_safe():
    assert "thread" in hs.Bandit.__doc__
    assert "atomic" in hs.Bandit.__doc__


@pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_threads_on_different_tasks_decide_and_learn_as_if_alone(rule, noise, world, play):
    """Unless running tasks count or offers tell units, as by default: then they are not alone."""
    transfer = hs.EmpiricalBayes(running=False, units="given")
    tasks = {f"{n}": world(seed=n, rounds=25, dim=DIM) for n in range(8)}
    alone = hs.Bandit(DIM, transfer, rule, noise, seed=0)
    one_by_one = {id: play(alone, id, rounds) for id, rounds in tasks.items()}
    shared = hs.Bandit(DIM, transfer, rule, noise, seed=0)
    at_once = together(
        *(lambda id=id, rounds=rounds: play(shared, id, rounds) for id, rounds in tasks.items())
    )
    assert dict(zip(tasks, at_once, strict=True)) == one_by_one
    for id in tasks:
        assert shared.task(id).evidence == alone.task(id).evidence
        assert shared.task(id).belief == alone.task(id).belief


def test_threads_on_one_task_lose_no_reward():
    bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0, intercept=False)
    told = [[] for _ in range(6)]

    def work(mine, rng):
        task = bandit.task("shared")
        for _ in range(50):
            choice = task.choose(rng.standard_normal((3, DIM)))
            reward = float(rng.standard_normal())
            task.learn(choice.token if rng.random() < 0.5 else choice, reward)
            mine.append((choice.id, choice.context, reward))

    together(*(lambda n=n: work(told[n], np.random.default_rng(n)) for n in range(6)))
    every = [round for mine in told for round in mine]
    assert len({id for id, _, _ in every}) == 300
    assert bandit.task("shared").rounds == 300
    same_sums(bandit.task("shared").evidence, [x for _, x, _ in every], [r for *_, r in every])


def test_one_choice_from_many_threads_is_learned_once():
    bandit = hs.Bandit(DIM, seed=0)
    task = bandit.task("a")
    for _ in range(20):
        choice = task.choose(np.eye(DIM))

        def learn(choice=choice):
            try:
                return bandit.learn(choice, 1.0)
            except hs.ChoiceError:
                return False

        assert sum(together(*[learn] * 6)) == 1
    assert task.rounds == 20


def test_a_task_is_made_once():
    for _ in range(20):
        bandit = hs.Bandit(DIM, seed=0)
        together(*[lambda bandit=bandit: bandit.task("new").choose(np.eye(DIM))] * 6)
        assert list(bandit) == ["new"]
        assert bandit.task("new").choose(np.eye(DIM)).number == 6


@pytest.mark.parametrize(
    "transfer",
    [hs.Subspace(), hs.Subspace(rank=1, pca="ccipca", warmup=2, lam1=25.0), hs.EmpiricalBayes()],
    ids=["exact", "ccipca", "default"],
)
def test_everything_at_once_keeps_the_books_right(transfer, tmp_path, same_prior):
    """Choosing, late rewards, closing, reopening, asking, saving and deleting, all in parallel."""
    bandit = hs.Bandit(DIM, transfer, noise=0.5, seed=0, cache_size=3, intercept=False)
    told = {f"{n}": [] for n in range(6)}
    done = threading.Event()

    def work(id, rng):
        task, late = bandit.task(id), []
        for at in range(40):
            choice = task.choose(rng.standard_normal((3, DIM)))
            late.append((choice, float(rng.standard_normal())))
            if at % 5 == 4:
                task.close()
            for at_once in range(int(rng.integers(0, 3))):
                if late:
                    choice, reward = late.pop(at_once % len(late))
                    bandit.learn(choice, reward)
                    told[id].append((choice.context, reward))
        task.close()

    def look():
        while not done.is_set():
            bandit.report()
            assert np.isfinite(bandit.prior.root).all()
            for id in told:
                task = bandit.task(id)
                task.predict(np.eye(DIM))
                assert task.rounds >= 0
            bandit.save(tmp_path / "b")
            hs.load(tmp_path / "b")

    def come_and_go(rng):
        while not done.is_set():
            task = bandit.task("gone")
            choice = task.choose(rng.standard_normal((2, DIM)))
            task.learn(choice, 1.0)
            task.close()
            task.delete()

    def workers():
        try:
            together(*(lambda n=n: work(f"{n}", np.random.default_rng(n)) for n in range(6)))
        finally:
            done.set()

    together(workers, look, lambda: come_and_go(np.random.default_rng(9)))
    for id, rounds in told.items():
        same_sums(bandit.task(id).evidence, [x for x, _ in rounds], [r for _, r in rounds])
    evidences = [bandit.task(id).evidence for id in told]
    if isinstance(transfer, hs.EmpiricalBayes):  # each task once, whatever the fit makes of them
        assert np.isfinite(bandit.prior.root).all()
        bandit._state.ledger.prior_state.update()
        kept = bandit._state.ledger.prior_state.state.tasks
        np.testing.assert_array_equal(kept.weight, np.ones(6))
        assert set(kept.squares) == {evidence.squares for evidence in evidences}
        np.testing.assert_allclose(kept.gram.sum(0), sum(evidences).gram, rtol=1e-10)
        assert bandit._state.ledger.prior_state.state.past.count == 0.0
    elif transfer.reversible:  # the order of closing depends on the threads
        same_prior(bandit.prior, transfer.prior(transfer.refit(evidences, 0.5)))
    assert "gone" not in bandit


@pytest.mark.parametrize("seed", range(3))
def test_asking_for_propensities_disturbs_no_decision_of_another_thread(seed, world, play):
    rounds = world(seed=seed, rounds=300, dim=DIM)
    rule = hs.Thompson(draws=2)
    transfer = hs.EmpiricalBayes(units="given")  # or the offers to others would tell the units
    alone = play(hs.Bandit(DIM, transfer, rule, seed=0), "mine", rounds)
    bandit = hs.Bandit(DIM, transfer, rule, seed=0)
    choices = [[bandit.task(n).choose(np.eye(DIM)) for _ in range(500)] for n in range(3)]

    def ask(some):
        return [choice.propensities.sum() for choice in some]

    answers = together(
        lambda: play(bandit, "mine", rounds), *(lambda some=some: ask(some) for some in choices)
    )
    assert answers[0] == alone
    np.testing.assert_allclose(answers[1:], 1.0)


def test_choices_can_be_asked_for_propensities_from_any_thread():
    bandit = hs.Bandit(DIM, rule=hs.Thompson(draws=200), seed=0)
    task = bandit.task("a")
    choices = [task.choose(np.eye(DIM)) for _ in range(10)]
    expected = [hs.Bandit(DIM, rule=hs.Thompson(draws=200), seed=0).task("a").choose(np.eye(DIM))]
    answers = together(*[lambda: [choice.propensities.tolist() for choice in choices]] * 6)
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == expected[0].propensities.tolist()


def test_closing_keeps_nobody_waiting():
    """Fits are computed while others use the bandit: at first, of a task that returned, of two."""
    waited, together = [], threading.Barrier(2, timeout=30)

    class Watched(hs.EmpiricalBayes):
        def fold(self, state, evidence, weight=1.0):
            other = threading.Thread(target=lambda: bandit.task("other").rounds, daemon=True)
            other.start()
            other.join(5)
            waited.append(other.is_alive())
            if len(waited) in (5, 6):  # the last two: both begin with the same state
                together.wait()
            return super().fold(state, evidence, weight)

    bandit = hs.Bandit(2, Watched(), seed=0)
    for id in ("first", "second", "third", "other"):
        bandit.learn(bandit.task(id).choose(np.eye(2)), 1.0)
    for id in ("first", "other"):
        bandit.task(id).close()
    bandit.learn(bandit.task("first").choose(np.eye(2)), 2.0)
    assert len(waited) == 2
    bandit.task("first").close()
    assert len(waited) == 4  # taken out, and folded in again
    threads = [threading.Thread(target=bandit.task(id).close) for id in ("second", "third")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(waited) == 7
    assert not any(waited)
    assert bandit.report().closed_tasks == 4
    squares = sorted(bandit.task(id).evidence.squares for id in bandit)
    assert sorted(bandit._state.ledger.prior_state.state.tasks.squares) == squares
