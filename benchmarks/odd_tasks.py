"""What one task unlike all others costs the tasks after it.

    python benchmarks/odd_tasks.py [--seeds 32]

Two populations, and after half of their tasks an odd one, closed like the others: a task in which a
single context always earns a large reward, where others have small effects; and a user who clicks
on everything, where others click in 5 % of the rounds. Printed are the regrets of the next five,
five and further tasks, ÷ those without the odd one, with 95 % intervals over seeds.
"""

import argparse

import numpy as np

import headstart as hs


def effects(rng):
    """Tasks of ten rounds with noise of 0.5, whose first two coefficients are about 0.25."""
    mean = np.r_[0.25, 0.25, np.zeros(6)]

    def draw():
        theta = mean + 0.1 * rng.normal(size=8)
        return lambda contexts: contexts @ theta, lambda value: value + 0.5 * rng.normal()

    return draw, (8, 5, 10), np.tile(rng.normal(size=8), (10, 1))


def clicks(rng):
    """Users of 25 rounds, who click in about 5 % of them."""
    mean = 0.9 * rng.normal(size=6)

    def draw():
        theta = mean + 0.3 * rng.normal(size=6)
        return (
            lambda contexts: 1.0 / (1.0 + np.exp(3.3 - contexts @ theta)),
            lambda chance: float(rng.random() < chance),
        )

    return draw, (6, 8, 25), rng.normal(size=(40, 6))


def play(world, reward, odd, seed, tasks):
    """The regret of every task; ``odd`` is the reward of the odd one, or None without it."""
    rng = np.random.default_rng(seed)
    draw, (dim, arms, rounds), contexts = world(rng)
    bandit, regret = hs.Bandit(dim, reward=reward, seed=seed), np.zeros(tasks)
    for number in range(tasks):
        if number == tasks // 2 and odd is not None:
            bandit.task("odd").observe(contexts, np.full(len(contexts), odd))
            bandit.task("odd").close()
        values, draw_reward = draw()
        task = bandit.task(number)
        for _ in range(rounds):
            offer = rng.normal(size=(arms, dim))
            choice, expected = task.choose(offer), values(offer)
            task.learn(choice, draw_reward(expected[choice.arm]))
            regret[number] += expected.max() - expected[choice.arm]
        task.close()
    return regret


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=32)
    seeds = range(parser.parse_args().seeds)
    for world, reward, odd, tasks in (
        (effects, "number", 3.0, 40),
        (effects, "number", 10.0, 40),
        (effects, "number", 100.0, 40),
        (clicks, "number", 1.0, 60),
        (clicks, "binary", 1.0, 60),
    ):
        without, beside = (
            np.array([play(world, reward, value, seed, tasks) for seed in seeds])
            for value in (None, odd)
        )
        half, parts = tasks // 2, []
        for part in (slice(half, half + 5), slice(half + 5, half + 10), slice(half + 10, None)):
            ours, theirs = beside[:, part].sum(1), without[:, part].sum(1)
            ratio = ours.sum() / theirs.sum()
            error = 1.96 * (ours - ratio * theirs).std(ddof=1) / theirs.mean() / len(seeds) ** 0.5
            parts.append(f"{ratio:.2f} ± {error:.2f}")
        print(f"{world.__name__} ({reward}), odd reward {odd:g}: {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
