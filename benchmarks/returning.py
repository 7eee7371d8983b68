"""What a visit of a returning user costs, beside one of a running and of a new user.

    python benchmarks/returning.py [--dims 5 12 30] [--users 100 400 5000] [--visits 400]

A visit is ``choose``, ``learn`` and, unless the user is left running, ``close``. Every kind of
visitor has a bandit of its own, in which the same number of users are closed and eight are running;
all begin alike. They are visited in turns of random order. A user whose belief is cached was there
before, in a bandit that caches all beliefs. One whose belief is not cached comes back after so many
others that the small cache of that bandit has lost it. The columns are milliseconds of processor
time: the median, the 99th percentile, and the median of ``choose`` divided by that of a running
user.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import headstart as hs

ARMS, ROUNDS, NOISE, RUNNING, SMALL_CACHE = 10, 20, 0.3, 8, 4
MOST_FOLDED = 1000  # users that are closed one by one
#: Kind of visitor, whether all beliefs are cached, and whether the task is closed after a visit.
KINDS = {
    "running, cached": (True, False),
    "returning, cached": (True, True),
    "running, not cached": (False, False),
    "returning, not cached": (False, True),
    "new": (True, True),
}
CALLS = ("choose", "learn", "close")


class World:
    """Users around a mean, which differ along a few directions."""

    def __init__(self, dim: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.mean = self.rng.normal(size=dim) / np.sqrt(dim)
        self.directions = self.rng.normal(size=(dim, 3)) / np.sqrt(dim)
        self.parameters: dict[str, Any] = {}

    def rounds(self, user: str, count: int) -> tuple[Any, Any]:
        """Contexts of arms, and the rewards of all of them."""
        if user not in self.parameters:
            self.parameters[user] = self.mean + self.directions @ self.rng.normal(size=3)
        contexts = self.rng.normal(size=(count, ARMS, len(self.mean)))
        noise = NOISE * self.rng.normal(size=(count, 1))
        return contexts, contexts @ self.parameters[user] + noise


def first_bandit(world: World, dim: int, users: int, cache_size: int) -> hs.Bandit:
    """A bandit with closed users, many of them fitted together, and a few running ones."""
    bandit = hs.Bandit(dim, seed=0, cache_size=cache_size)
    names = [f"closed-{number}" for number in range(users)]
    if users > MOST_FOLDED:
        parts = [world.rounds(name, ROUNDS) for name in names]
        columns = {f"x{at}": np.concatenate([x[:, 0, at] for x, _ in parts]) for at in range(dim)}
        columns |= {"user": np.repeat(names, ROUNDS)}
        columns |= {"reward": np.concatenate([rewards[:, 0] for _, rewards in parts])}
        bandit.fit(columns, task="user", reward="reward")
        names = []
    for user in [*names, *(f"running-{number}" for number in range(RUNNING))]:
        task, (contexts, rewards) = bandit.task(user), world.rounds(user, ROUNDS)
        task.observe(contexts[:, 0], rewards[:, 0])
        if user in names:
            task.close()
    return bandit


def visitors(kind: str, users: int) -> Iterator[str]:
    """Who comes, visit by visit."""
    number = 0
    while True:
        if kind == "new":
            yield f"new-{number}"
        elif kind.startswith("running"):
            yield f"running-{number % RUNNING}"
        else:
            yield f"closed-{number % users}"
        number += 1


def visit(bandit: hs.Bandit, user: str, rounds: tuple[Any, Any], ends: bool) -> list[float]:
    """The milliseconds of each call of a visit of one round."""
    task, (contexts, rewards), times = bandit.task(user), rounds, []
    start = time.thread_time()
    choice = task.choose(contexts[0])
    times.append(time.thread_time() - start)
    start = time.thread_time()
    task.learn(choice, rewards[0, choice.arm])
    times.append(time.thread_time() - start)
    if ends:
        start = time.thread_time()
        task.close()
        times.append(time.thread_time() - start)
    return [1e3 * each for each in times]


def measure(dim: int, users: int, visits: int) -> dict[str, np.ndarray]:
    """The times of every visit, by kind."""
    world = World(dim, 0)
    small = first_bandit(world, dim, users, SMALL_CACHE)
    large = first_bandit(world, dim, users, users + RUNNING + 2 * visits)
    bandits = {kind: copy.copy(large if cached else small) for kind, (cached, _) in KINDS.items()}
    comers = {kind: visitors(kind, min(users, visits // 4)) for kind in KINDS}
    # Everybody has been there once, so that the first visits are like the others.
    for kind, (_, ends) in KINDS.items():
        for _ in range(max(RUNNING, visits // 4)):
            user = next(comers[kind])
            visit(bandits[kind], user, world.rounds(user, 1), ends)
    times: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for _ in range(visits):
        for kind in world.rng.permutation(list(KINDS)):  # whoever comes before warms the caches
            user = next(comers[kind])
            times[kind].append(visit(bandits[kind], user, world.rounds(user, 1), KINDS[kind][1]))
    return {kind: np.array(each) for kind, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[5, 12, 30])
    parser.add_argument("--users", type=int, nargs="+", default=[100, 400, 5000])
    parser.add_argument("--visits", type=int, default=400)
    options = parser.parse_args()
    header = [f"{call}, {q}" for call in CALLS for q in ("p50", "p99")]
    print(f"| features | closed users | visitor | {' | '.join(header)} | ÷ running |")
    print("|---:|---:|---|" + "---:|" * (len(header) + 1))
    for dim in options.dims:
        for users in options.users:
            times = measure(dim, users, options.visits)
            for kind, each in times.items():
                cells = [
                    f"{value:.3f}"
                    for column in each.T
                    for value in (np.median(column), np.percentile(column, 99))
                ]
                cells += [""] * (len(header) - len(cells))
                is_cached = KINDS[kind][0] and kind != "new"
                running = times["running, cached" if is_cached else "running, not cached"]
                ratio = np.median(each[:, 0]) / np.median(running[:, 0])
                print(
                    f"| {dim} | {users} | {kind} | {' | '.join(cells)} | {ratio:.2f} |", flush=True
                )


if __name__ == "__main__":
    main()
