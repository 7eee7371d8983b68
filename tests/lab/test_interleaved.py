"""Tasks that run at the same time: each gets its rounds, and they learn from each other."""

import numpy as np
import pytest

import headstart as hs
from headstart.lab.one_seed import play_interleaved
from headstart.worlds import Synthetic
from headstart.worlds.base import Population, World

WORLD = Synthetic(dim=4, rank=1, arms=4)


class Watched(World):
    """A world that notes which episodes are asked for, and for how many rounds."""

    def __init__(self):
        self.asked = []

    @property
    def name(self):
        return "watched"

    def population(self, seed):
        inner, asked = WORLD.population(seed), self.asked

        class Noting(Population):
            dim, noise, tasks, truth = inner.dim, inner.noise, None, None

            def episode(self, task, rounds):
                asked.append((task, rounds))
                return inner.episode(task, rounds)

        return Noting()


def one_after_another(seed, tasks, rounds):
    """The regret of every task, through a bandit by hand."""
    population = WORLD.population(seed)
    bandit = hs.Bandit(population.dim, hs.EmpiricalBayes(), hs.UCB(), seed=seed)
    regret = []
    for number in range(tasks):
        episode, task, lost = population.episode(number, rounds), bandit.task(number), 0.0
        for contexts, values, rewards in zip(*episode[:3], strict=True):
            choice = task.choose(contexts)
            task.learn(choice, float(rewards[choice.arm]))
            lost += values.max() - values[choice.arm]
        task.close()
        regret.append(lost)
    return regret


def counted(monkeypatch):
    """What every task chose and learned, and when it was closed."""
    calls = []
    for name in ("choose", "learn", "close"):
        plain = getattr(hs.Task, name)

        def noting(task, *arguments, name=name, plain=plain):
            calls.append((name, int(task.id)))
            return plain(task, *arguments)

        monkeypatch.setattr(hs.Task, name, noting)
    return calls


@pytest.mark.parametrize("seed", [0, 5])
def test_one_at_a_time_is_one_after_another(seed):
    regret = play_interleaved(WORLD, seed, tasks=6, rounds=10, at_once=1)
    np.testing.assert_array_equal(regret, one_after_another(seed, 6, 10))


@pytest.mark.parametrize(("tasks", "at_once"), [(7, 3), (6, 6), (3, 8), (1, 1)])
def test_every_task_gets_its_rounds_once(monkeypatch, tasks, at_once):
    calls, world = counted(monkeypatch), Watched()
    regret = play_interleaved(world, 0, tasks, rounds=5, at_once=at_once)
    assert regret.shape == (tasks,)
    assert (regret >= 0).all()
    assert sorted(world.asked) == [(task, 5) for task in range(tasks)]
    for task in range(tasks):
        own = [name for name, id in calls if id == task]
        assert own == ["choose", "learn"] * 5 + ["close"]


def test_so_many_run_at_once_in_turns_and_a_finished_one_makes_room(monkeypatch):
    calls = counted(monkeypatch)
    play_interleaved(WORLD, 0, tasks=7, rounds=4, at_once=3)
    chosen = [task for name, task in calls if name == "choose"]
    assert chosen == [0, 1, 2] * 4 + [3, 4, 5] * 4 + [6] * 4
    running, most = set(), 0
    for name, task in calls:
        running = running - {task} if name == "close" else running | {task}
        most = max(most, len(running))
    assert most == 3


def test_the_same_seed_gives_the_same_regret():
    first, second, other = (
        play_interleaved(WORLD, seed, tasks=6, rounds=8, at_once=3) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_tasks_that_overlap_lose_little_more_than_tasks_in_a_row():
    world = Synthetic(dim=6, rank=2, arms=6)
    in_a_row, overlapping = (
        sum(play_interleaved(world, seed, 40, 25, at_once) for seed in (0, 1)) for at_once in (1, 3)
    )
    assert overlapping.sum() < 1.3 * in_a_row.sum()
    # The first ones start from nothing, all at once; after these there is no difference.
    assert overlapping[8:].sum() < 1.15 * in_a_row[8:].sum()
