"""Rewards that are means of n rewards: are intervals right, and is the noise?

Forty tasks of two features. Each reward is the mean of 5 to 200 rewards of one context, whose noise
is R = 3. The priors are fitted with means as ``mean_of``, as weights, as weights with the noise
stated, as weights divided by their average, and with neither. Run as
``python benchmarks/means.py --seeds 16``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import headstart as hs

NOISE, TASKS = 3.0, 40
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mean_of": ({}, {"mean_of": "n"}),
    "weight, noise stated": ({"noise": NOISE}, {"weight": "n"}),
    "weight": ({}, {"weight": "n"}),
    "weight / average": ({}, {"weight": "relative"}),
    "neither": ({}, {}),
}


def draw(seed: int, days: int) -> tuple[dict[str, Any], Any]:
    """The rows, and the parameter of every task."""
    rng = np.random.default_rng(seed)
    own = np.array([1.0, -1.0]) + 0.3 * rng.normal(size=(TASKS, 2))
    x = rng.normal(size=(TASKS, days, 2))
    n = np.exp(rng.uniform(np.log(5.0), np.log(200.0), size=(TASKS, days))).round()
    means = 4.0 + (x @ own[:, :, None])[..., 0] + NOISE * rng.normal(size=n.shape) / np.sqrt(n)
    columns = {"x0": x[..., 0], "x1": x[..., 1], "rating": means, "n": n, "relative": n / n.mean()}
    rows = {name: column.ravel() for name, column in columns.items()}
    return rows | {"shop": np.repeat(np.arange(TASKS), days)}, own


def measure(seed: int, days: int, way: str) -> tuple[float, float, float]:
    """The share of slopes in their 90 % intervals, R, and the root mean square error of slopes."""
    rows, own = draw(seed, days)
    settings, columns = WAYS[way]
    bandit = hs.Bandit(dim=2, seed=0, **settings)
    bandit.fit(rows, task="shop", reward="rating", features=["x0", "x1"], **columns)
    points = np.vstack([np.eye(2), np.zeros(2)])
    found = [bandit.task(shop).predict(points, level=0.9) for shop in range(TASKS)]
    true = np.column_stack([own + 4.0, np.full(TASKS, 4.0)])
    inside = [(f.lower < t) & (t < f.upper) for f, t in zip(found, true, strict=True)]
    slopes = np.array([f.mean[:2] - f.mean[2] for f in found])
    error = float(np.sqrt(np.mean((slopes - own) ** 2)))
    return float(np.mean(np.array(inside)[:, :2])), float(bandit.prior.noise), error


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--days", type=int, nargs="+", default=[3, 10])
    options = parser.parse_args()
    print("| rows of a task | learned as | inside 90 % | R | error of slopes |")
    for days in options.days:
        for way in WAYS:
            seeds = range(options.first, options.first + options.seeds)
            found = np.array([measure(seed, days, way) for seed in seeds])
            (share, noise, error), half = found.mean(0), 2.0 * found.std(0) / len(found) ** 0.5
            cells = f"{share:.3f} ± {half[0]:.3f} | {noise:.2f} ± {half[1]:.2f} | {error:.3f}"
            print(f"| {days} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
