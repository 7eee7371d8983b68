"""What 3,000 rounds of one task cost beside the bare arithmetic, and where the time goes.

    python benchmarks/one_task.py [--numba] [--repetitions 12]

Every round is timed by itself, in each of several repetitions, and its shortest time counts: what
other processes of a busy machine add to some repetitions is left out. The usual round is the median
of these. The rest is what some rounds take beyond it: the first ones, which prepare a task, those
that compute prior and belief anew (after 1, 2, 4, … rewards), and every 32nd, which adds a block of
rounds to the evidence.
"""

import argparse
import math
import time

import numpy as np

import headstart as hs

DIM, ARMS, ROUNDS, NOISE = 30, 20, 3000, 0.1
BANDITS = {
    "hs.linucb(30, noise=0.1)": lambda: hs.linucb(DIM, seed=0, noise=NOISE),
    "hs.linucb(30)": lambda: hs.linucb(DIM, seed=0),
    "hs.Bandit(30)": lambda: hs.Bandit(DIM, seed=0),
}


class Bare:
    """What a good NumPy programmer writes for one model: nothing checked, nothing kept."""

    def __init__(self):
        self.mean, self.root = np.zeros(DIM), np.eye(DIM)

    def play(self, contexts, rewards):
        mean, root = self.mean, self.root
        projected = contexts @ root
        width = np.sqrt(np.einsum("ij,ij->i", projected, projected))
        arm = int((contexts @ mean + NOISE * width).argmax())
        x = contexts[arm]
        u = x @ root
        square = u @ u
        gain = math.sqrt(1.0 + square)
        v = root @ u
        mean += v * ((rewards[arm] - x @ mean) / (1.0 + square))
        v /= gain * (1.0 + gain)
        root -= v[:, None] * u


class Public:
    """The same by ``task.choose`` and ``task.learn``."""

    def __init__(self, bandit):
        self.task = bandit.task("a")

    def play(self, contexts, rewards):
        choice = self.task.choose(contexts)
        self.task.learn(choice, rewards[choice.arm])


def shortest(make, offers, rewards, repetitions):
    """The shortest time of every round, in microseconds."""
    best = np.full(ROUNDS, np.inf)
    for _ in range(repetitions):
        player = make()
        for at in range(ROUNDS):
            contexts, paid = offers[at], rewards[at]
            start = time.perf_counter()
            player.play(contexts, paid)
            best[at] = min(best[at], time.perf_counter() - start)
    return 1e6 * best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numba", action="store_true", help="with compiled loops")
    parser.add_argument("--repetitions", type=int, default=12)
    options = parser.parse_args()
    if options.numba:
        hs.use_numba()
    rng = np.random.default_rng(0)
    offers = rng.standard_normal((ROUNDS, ARMS, DIM))
    theta = 0.3 * rng.standard_normal(DIM)
    rewards = offers @ theta + NOISE * rng.standard_normal((ROUNDS, ARMS))
    bare = shortest(Bare, offers, rewards, options.repetitions)
    print(f"bare loop: {bare.mean():.1f} µs a round")
    every = np.arange(1, ROUNDS + 1)
    powers = np.isin(every, 2 ** np.arange(12)) | np.isin(every - 1, 2 ** np.arange(12))
    groups = {"first 16": every <= 16, "powers of two": powers, "blocks": every % 32 == 0}
    for name, make in BANDITS.items():
        times = shortest(lambda make=make: Public(make()), offers, rewards, options.repetitions)
        usual = np.median(times)
        left, parts = np.ones(ROUNDS, dtype=bool), []
        for label, rounds in groups.items():
            parts.append(f"{label} {(times - usual)[rounds & left].sum() / ROUNDS:.1f}")
            left &= ~rounds
        ratios = times.mean() / bare.mean(), usual / np.median(bare)
        print(
            f"{name}: {times.mean():.1f} µs, {ratios[0]:.2f} of the bare loop; usual round "
            f"{usual:.1f} µs, {ratios[1]:.2f}; the rest in µs a round: {', '.join(parts)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
