"""A new task that starts ahead: a simulation of a minute.

Sixty shops, one after another. In each round a shop shows one of ten products, described by twenty
features, and observes its reward. The parameters of the shops vary along three directions around a
common mean. Three learners play the same shops:

- alone       LinUCB: every shop is learned alone
- headstart   learns the distribution of shops from those that have finished
- oracle      knows the distribution of shops: a lower bound for the regret

Run with ``python examples/starting_ahead.py``; ``--figure PATH`` also draws the picture.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import headstart as hs

DIM, RANK, SHOPS, ROUNDS, PRODUCTS, NOISE = 20, 3, 60, 60, 10, 0.1
LEARNERS = ("alone", "headstart", "oracle")


class Shops:
    """A population of shops near a three-dimensional affine subspace."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
        self.mean = 0.6 * basis[:, -1]
        spread = np.where(np.arange(DIM) < RANK, 0.4, 0.02)
        self.root = basis * spread
        self.covariance = self.root @ self.root.T
        self.rng = rng

    def shop(self):
        return self.mean + self.root @ self.rng.standard_normal(DIM)

    def products(self):
        contexts = self.rng.standard_normal((PRODUCTS, DIM))
        return contexts / np.maximum(1.0, np.linalg.norm(contexts, axis=1, keepdims=True))


def play(seed, progress):
    """Regret of every shop under every learner, shape (learners, shops)."""
    world = Shops(seed)
    bandits = (
        hs.linucb(dim=DIM, seed=seed),
        hs.Bandit(dim=DIM, seed=seed),
        hs.bayes_oracle(
            dim=DIM, seed=seed, mean=world.mean, covariance=world.covariance, noise=NOISE
        ),
    )
    regret = np.zeros((len(bandits), SHOPS))
    for shop in range(SHOPS):
        taste = world.shop()
        tasks = [bandit.task(f"shop-{shop}") for bandit in bandits]
        for _ in range(ROUNDS):
            contexts = world.products()  # all learners see the same products and the same noise
            noise = NOISE * world.rng.standard_normal()
            value = contexts @ taste
            for learner, task in enumerate(tasks):
                choice = task.choose(contexts)
                task.learn(choice, value[choice.arm] + noise)
                regret[learner, shop] += value.max() - value[choice.arm]
        for task in tasks:
            task.close()
        progress()
    return regret, bandits[1]


def show_table(regret):
    """Mean regret of ten shops at a time, with 95 % intervals over the populations."""
    print(f"\nRegret of a shop over its {ROUNDS} rounds (mean ± 95 %), {len(regret)} populations\n")
    print(
        f"{'shops':>9}" + "".join(f"{name:>18}" for name in LEARNERS) + f"{'headstart/alone':>19}"
    )
    for first in range(0, SHOPS, 10):
        part = regret[:, :, first : first + 10].mean(-1)
        mean = part.mean(0)
        half = 1.96 * part.std(0, ddof=1) / np.sqrt(len(part))
        cells = "".join(f"{m:>11.2f} ± {h:.2f}" for m, h in zip(mean, half, strict=True))
        print(f"{f'{first + 1}–{first + 10}':>9}{cells}{mean[1] / mean[0]:>19.2f}")


def draw(regret, path):
    """The picture of the README: regret per shop, with 95 % bands."""
    import matplotlib.pyplot as plt

    colours = {"alone": "#7f7f7f", "headstart": "#0072B2", "oracle": "#009E73"}
    titles = {
        "alone": "alone: every shop is learned alone (LinUCB)",
        "headstart": "headstart: learns from finished shops",
        "oracle": "oracle: knows the distribution of shops",
    }
    styles = {"alone": "-", "headstart": "-", "oracle": "--"}
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    shops = np.arange(1, SHOPS + 1)
    for learner, name in enumerate(LEARNERS):
        mean = regret[:, learner].mean(0)
        half = 1.96 * regret[:, learner].std(0, ddof=1) / np.sqrt(len(regret))
        axes.plot(shops, mean, styles[name], color=colours[name], label=titles[name])
        axes.fill_between(shops, mean - half, mean + half, color=colours[name], alpha=0.2, lw=0)
    axes.set_xlabel("shop (in order of arrival)")
    axes.set_ylabel(f"regret over {ROUNDS} rounds (reward)")
    axes.set_xlim(1, SHOPS)
    axes.set_ylim(0, None)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--populations", type=int, default=12, help="how many worlds to average")
    parser.add_argument("--figure", type=Path, help="where to draw the picture (.svg or .png)")
    options = parser.parse_args()
    if options.populations < 2:
        parser.error("--populations must be 2 or more, for intervals")
    total, done = options.populations * SHOPS, 0

    def progress():
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            bar = "█" * (30 * done // total)
            end = "\r" if done < total else "\n"
            print(f"  {bar:<30} {done}/{total} shops", end=end, file=sys.stderr)

    print(__doc__.partition("Run with")[0].strip())
    results = [play(1000 + seed, progress) for seed in range(options.populations)]
    regret = np.array([regret for regret, _ in results])
    show_table(regret)
    print("\nWhat headstart has learned after the last population (print(bandit.report())):\n")
    print(results[-1][1].report())
    if options.figure:
        draw(regret, options.figure)
        print(f"\nThe picture is in {options.figure}")


if __name__ == "__main__":
    main()
