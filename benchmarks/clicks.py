"""Clicks: ``reward="binary"`` beside the linear default, both with an intercept.

Total regret on paired seeds, the share of true click probabilities inside 90 % intervals, predicted
over true click rates, by how much the order of a task's rewards moves its predictions, and the
rates that ``bandit.fit`` predicts for a new task over those of its rows:

    python benchmarks/clicks.py
    python benchmarks/clicks.py --order
    python benchmarks/clicks.py --fit --first 300 --seeds 5

Both policies see the same tasks, contexts and draws of clicks. A ratio is that of the total regrets
of a seed; its interval, 95 %, is over seeds.
"""

import argparse
import dataclasses
import itertools
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

import headstart as hs
from headstart.lab import simulate
from headstart.lab.one_seed import play_logistic_oracle
from headstart.lab.policies import Policy, policy
from headstart.lab.studies.extensions import CLICKS
from headstart.model.evidence import Evidence
from headstart.model.logistic import expected_probability, linearize, sigmoid
from headstart.model.prior import Prior
from headstart.rules import UCB
from headstart.transfer import EmpiricalBayes
from headstart.worlds.clicks import Clicks


class Setting(NamedTuple):
    """A world, and how many tasks of how many rounds are played in it."""

    world: Any
    seeds: int = 20
    tasks: int = 200
    rounds: int = 200


SETTINGS = {
    "1 %": Setting(Clicks(base_rate=0.01), seeds=32),
    "1.5 %": Setting(Clicks(base_rate=0.015)),
    "5 %": Setting(Clicks(), seeds=96),
    "20 %": Setting(Clicks(base_rate=0.2)),
    "30 %": Setting(Clicks(base_rate=0.3)),
    "50 %": Setting(Clicks(base_rate=0.5)),
    "5 %, one in ten rewards random": Setting(Clicks(random=0.1)),
    "5 %, 30 rounds": Setting(Clicks(), seeds=32, tasks=400, rounds=30),
    "5 %, 10 tasks": Setting(Clicks(), seeds=32, tasks=10),
    "beyond": Setting(CLICKS),
}
ORDER_WORLDS = ("5 %", "30 %", "1.5 %", "5 %, one in ten rewards random")
SEEN_ROUNDS = (5, 25, 100, 190)  # at which predictions are recorded
WARM_UP = 10  # tasks before predictions are looked at, or half of them
QUANTILE = 1.6449  # of 90 % intervals
SEEN: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []


@dataclasses.dataclass(frozen=True, repr=False)
class Watched(UCB):
    """UCB that records mean and deviation of the log-odds of all arms, and its pick."""

    def choose(self, belief, contexts, rng, allowed=None):
        pick = super().choose(belief, contexts, rng, allowed)
        if int(np.max(belief.rounds)) in SEEN_ROUNDS:
            SEEN.append((belief.predict(contexts), belief.width(contexts), pick.arm))
        return pick

    def loop_form(self):
        """None: it is to be called."""
        return None


def interval(ratios: np.ndarray) -> str:
    """A mean with what it is uncertain by, 95 %."""
    return f"{ratios.mean():.3f} ± {1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios)):.3f}"


def calibration(world, seeds, tasks: int, rounds: int) -> list[str]:
    """The share of true probabilities inside their intervals, and predicted over true rates."""
    populations = [world.population(seed) for seed in seeds]
    inside, chosen, predicted, true = [], [], [], []
    seen = [k for k in SEEN_ROUNDS if k < rounds]
    for task in range(min(WARM_UP, tasks // 2), tasks):
        values = np.stack([population.episode(task, rounds).values for population in populations])
        for at, k in enumerate(seen):
            odds, width, arm = SEEN[task * len(seen) + at]
            low, high = sigmoid(odds - QUANTILE * width), sigmoid(odds + QUANTILE * width)
            hit = (low <= values[:, k]) & (values[:, k] <= high)
            inside.append(hit.mean(1))
            chosen.append(np.take_along_axis(hit, arm[:, None], 1)[:, 0])
            predicted.append(expected_probability(odds, width).mean(1))
            true.append(values[:, k].mean(1))
    rate = np.mean(predicted, 0) / np.mean(true, 0)
    return [interval(np.mean(part, 0)) for part in (inside, chosen)] + [interval(rate)]


def compare(chosen: argparse.Namespace) -> None:
    """The table of regret and calibration."""
    linear = policy("empirical_bayes")
    binary = Policy("binary", EmpiricalBayes(), Watched(), intercept=True, reward="binary")
    bare = policy("empirical_bayes", "no intercept", intercept=False)
    print("| world | binary ÷ linear | first ten tasks | inside 90 % | chosen arms | rate ÷ true |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in chosen.world or SETTINGS:
        world, count, tasks, rounds = SETTINGS[name]
        count, tasks, rounds = chosen.seeds or count, chosen.tasks or tasks, chosen.rounds or rounds
        seeds = list(range(chosen.first, chosen.first + count))
        SEEN.clear()
        found = simulate(world, [linear, binary], seeds, tasks, rounds)
        theirs, ours = (found[each.name].regret[:, :, -1] for each in (linear, binary))
        cells = [
            interval(ours.sum(1) / theirs.sum(1)),
            interval(ours[:, :10].sum(1) / theirs[:, :10].sum(1)),
            *calibration(world, seeds, tasks, rounds),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if world is CLICKS and chosen.oracle:
            other = simulate(world, [bare], seeds, tasks, rounds)[bare.name]
            oracle = np.array([play_logistic_oracle(world, seed, tasks, rounds) for seed in seeds])
            for label, regret in (
                ("linear, no intercept", other.regret[:, :, -1]),
                ("linear", theirs),
                ("binary", ours),
            ):
                print(f"{label} ÷ oracle: {interval(regret.sum(1) / oracle.sum(1))}", flush=True)


def order(chosen: argparse.Namespace) -> None:
    """How far predictions of a task move if its rewards come in another order."""
    for name in ORDER_WORLDS:
        world, moved = SETTINGS[name].world, []
        for seed in range(chosen.first, chosen.first + (chosen.seeds or 12)):
            population = world.population(seed)
            episode, rng = population.episode(0, 200), np.random.default_rng(seed)
            rows = np.hstack([episode.contexts[:, 0], np.ones((200, 1))])
            clicks, fresh = episode.rewards[:, 0], rng.standard_normal((50, rows.shape[1]))
            fresh[:, -1] = 1.0
            level = np.append(population.mean, population.intercept)
            spread = np.zeros((len(level), len(level)))
            spread[:-1, :-1], spread[-1, -1] = population.covariance, world.level**2
            prior = Prior.gaussian(level, spread)
            odds = []
            for _ in range(8):
                belief, evidence = prior.belief(), Evidence.zero(len(level))
                for k in rng.permutation(200):
                    row, target = linearize(belief, rows[k], clicks[k])
                    belief, evidence = belief.update(row, target), evidence.add(row, target)
                odds.append(belief.predict(fresh))
            moved.append(np.std(odds, 0, ddof=1) / belief.width(fresh))
        print(f"{name}: {np.sqrt(np.mean(np.square(moved))):.3f} of a posterior deviation")


def category_clicks(seed: int, rate: float, fields: int, tasks: int, rounds: int) -> dict[str, Any]:
    """Clicks at a rate on values of skewed categories, by tasks that differ in their level."""
    rng, rows = np.random.default_rng(seed), tasks * rounds
    frame: dict[str, Any] = {"user": np.repeat(np.arange(tasks), rounds)}
    odds = np.repeat(0.5 * rng.standard_normal(tasks), rounds)
    for number, size in enumerate((8, 6)[:fields]):
        values = rng.choice(size, rows, p=rng.dirichlet(np.full(size, 0.5)))
        odds += 0.7 * rng.standard_normal(size)[values]
        frame[f"field {number}"] = [f"v{value}" for value in values.tolist()]
    level = brentq(lambda level: sigmoid(odds + level).mean() - rate, -20.0, 20.0)
    return frame | {"click": (rng.random(rows) < sigmoid(odds + level)).astype(int)}


def fit_rates(chosen: argparse.Namespace) -> None:
    """The average prediction of a new task after a fit, divided by the rate of the rows."""
    print("| tasks | rate | fields | predicted ÷ rate, mean | least | most |")
    print("|---:|---:|---:|---:|---:|---:|")
    for tasks in [chosen.tasks] if chosen.tasks else (5, 12, 60, 300):
        for rate, fields in itertools.product((0.01, 0.03, 0.1), (1, 2)):
            ratios = []
            for seed in range(chosen.first, chosen.first + (chosen.seeds or 5)):
                frame = category_clicks(seed, rate, fields, tasks, chosen.rounds or 60)
                if not frame["click"].any():
                    continue
                names = [name for name in frame if name.startswith("field")]
                rows = list(zip(*(frame[name] for name in names), strict=True))
                kinds = {name: hs.category(*sorted(set(frame[name]))) for name in names}
                bandit = hs.Bandit(hs.Schema(action=kinds), reward="binary", seed=0)
                bandit.fit(frame, task="user", reward="click")
                counts = Counter(rows)
                actions = [dict(zip(names, row, strict=True)) for row in counts]
                predicted = bandit.task("new").predict(actions=actions).mean
                mean = np.average(predicted, weights=list(counts.values()))
                ratios.append(mean / frame["click"].mean())
            cells = f"{np.mean(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f}"
            print(f"| {tasks} | {rate:.0%} | {fields} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many, of each world")
    parser.add_argument("--first", type=int, default=20000, help="the first seed")
    parser.add_argument("--tasks", type=int, help="how many, in each world")
    parser.add_argument("--rounds", type=int, help="of each task")
    parser.add_argument("--world", action="append", choices=list(SETTINGS), help="only these")
    parser.add_argument("--oracle", action="store_true", help="the oracle of beyond as well")
    parser.add_argument("--order", action="store_true", help="only what the order changes")
    parser.add_argument("--fit", action="store_true", help="only the rates that a fit predicts")
    chosen = parser.parse_args()
    (order if chosen.order else fit_rates if chosen.fit else compare)(chosen)


if __name__ == "__main__":
    main()
