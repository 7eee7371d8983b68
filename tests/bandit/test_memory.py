"""Memory: an idle task is its evidence and little more, and forgotten choices leave nothing."""

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import headstart as hs

DIM = 30
WIDE = DIM + 1  # with the intercept, as a bandit has it unless told otherwise
NUMBERS = WIDE * (WIDE + 1) / 2 + WIDE + 2  # of a task's evidence
LIMIT = 1.2 * (NUMBERS + 6) * 8  # bytes


@pytest.fixture
def traced():
    """``traced()``: bytes in use by Python and NumPy now."""
    gc.collect()
    tracemalloc.start()

    def now():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    yield now
    tracemalloc.stop()


PLAY = """
import gc, sys, tracemalloc
import numpy as np
import headstart as hs
from headstart.transfer.empirical_bayes import state as empirical

# The default transfer keeps the evidence of some finished tasks at hand, 256 at most. Here it has
# its share before memory is measured: so many more tasks, so much more memory, is asked.
empirical.MAX_KEPT_TASKS = 16
dim, close = 30, sys.argv[1] == "closed"
tracemalloc.start()
rng = np.random.default_rng(0)
offers = rng.standard_normal((25, 5, dim))
bandit = hs.Bandit(dim=dim, seed=0, cache_size=1)

def in_use():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

def play(id, blocks):
    task = bandit.task(id)
    for _ in range(blocks):
        choices = [task.choose(offer) for offer in offers]
        task.learn(choices[1:-1], rng.standard_normal(23))  # the first and the last one never
        task.learn(task.choose(offers[0]), 1.0)
    if close:
        task.close()

for n in range(20):  # so that what is only needed once is there
    play(n, 1)
before = in_use()
for n in range(80):  # many: what NumPy keeps for its next arrays, a few kB, is not a task's
    play(f"user-{n:06}", 3)
each = (in_use() - before) / 80
assert bandit.report().rounds == 80 * 72 + 20 * 24
print(each)
"""


@pytest.mark.parametrize("state", ["open", "closed"])
def test_bytes_of_an_idle_task(state):
    """75 choices and more, a few never rewarded; all that Python adds is counted.

    In a process of its own, where nothing else allocates meanwhile.
    """
    done = subprocess.run(
        [sys.executable, "-c", PLAY, state], capture_output=True, text=True, check=True
    )
    each = float(done.stdout)
    print(f"\n{each:.0f} bytes for each idle task at dim = {DIM}; at most {LIMIT:.0f} are allowed")
    assert NUMBERS * 8 < each <= LIMIT


def test_tasks_that_were_only_made_are_no_larger(traced):
    bandit = hs.Bandit(dim=DIM, seed=0)
    before = traced()
    for n in range(500):
        bandit.task(f"user-{n:06}")
    assert (traced() - before) / 500 <= LIMIT


def test_a_loaded_bandit_is_no_larger_than_the_saved_one(traced, tmp_path):
    sizes = {}
    for tasks in (10, 60):
        bandit = hs.Bandit(dim=DIM, seed=0, cache_size=1)
        for n in range(tasks):
            bandit.learn(bandit.task(f"user-{n:06}").choose(np.eye(DIM)), 1.0)
        bandit.save(tmp_path / "b")
        hs.load(tmp_path / "b")
        before = traced()
        loaded = hs.load(tmp_path / "b")
        sizes[tasks] = traced() - before
        assert len(loaded) == tasks
    assert (sizes[60] - sizes[10]) / 50 <= LIMIT


def test_fifty_thousand_choices_that_are_never_rewarded_do_not_pile_up():
    resident = pytest.importorskip("resource").getpagesize()
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("reads memory in use as Linux tells it")

    def in_use():
        gc.collect()
        return int(statm.read_text().split()[1]) * resident

    bandit = hs.Bandit(dim=3, seed=0)
    task, offer = bandit.task("a"), np.eye(3)
    for _ in range(10_000):
        task.choose(offer)
    before = in_use()
    for _ in range(50_000):
        task.choose(offer)
    assert in_use() - before < 1_100_000  # 22 bytes a choice: less than any object


def test_choices_that_are_never_rewarded_do_not_pile_up(traced):
    bandit = hs.Bandit(dim=3, seed=0)
    task, offer = bandit.task("a"), np.eye(3)
    for _ in range(1_000):
        task.choose(offer)
    before = traced()
    for _ in range(7_000):
        task.choose(offer)
    assert traced() - before < 30_000  # 4 bytes a choice


def test_nor_do_they_where_some_are_rewarded(traced, tmp_path):
    bandit = hs.Bandit(dim=3, seed=0, choice_window=500)
    task, offer = bandit.task("a"), np.eye(3)

    def go_on(rounds):
        for at in range(rounds):
            choice = task.choose(offer)
            if at % 3:
                task.learn(choice, 1.0)
        bandit.save(tmp_path / "b")
        return (tmp_path / "b").stat().st_size

    early = go_on(1_000)
    before = traced()
    late = go_on(6_000)
    assert traced() - before < 40_000  # 20 bytes for each that was not rewarded
    assert late < early + 500


def test_deleted_tasks_leave_nothing(traced):
    bandit = hs.Bandit(dim=3, seed=0)

    def come_and_go(count):
        for n in range(count):
            task = bandit.task(f"visitor-{n}")
            task.learn(task.choose(np.eye(3)), 1.0)
            if n % 2:
                task.close()
            task.delete()

    come_and_go(100)
    before = traced()
    come_and_go(100)
    assert traced() - before < 10_000  # 100 bytes each


def test_only_so_many_beliefs_are_kept_at_hand(traced):
    """A live task also holds its belief, about 2 d² numbers more: there are at most ``live``."""
    offer = np.eye(DIM)
    sizes = {}
    for live in (1, 60):
        bandit = hs.Bandit(dim=DIM, seed=0, cache_size=live)
        bandit.task("first").choose(offer)
        before = traced()
        for n in range(60):
            bandit.learn(bandit.task(f"user-{n:06}").choose(offer), 1.0)
        sizes[live] = (traced() - before) / 60
    assert sizes[1] <= LIMIT
    assert sizes[60] > 2 * sizes[1]
