"""Heavy tails: regret and the coverage of 90 % intervals, with and without low-rank candidates.

Tasks, or the noise of rewards, have a Student distribution of 3.5 degrees of freedom, with the same
variance as the normal one of the first world of ``headstart reproduce beyond``. Coverage is that of
the expected reward of an arm, for new tasks and after half of a task's rounds with random arms.
Seeds are paired; the interval of a ratio is over seeds:

    python benchmarks/heavy_tails.py --seeds 24 --tasks 120
"""

import argparse
import dataclasses

import numpy as np

from headstart.lab import simulate
from headstart.lab.engine import seed_prior
from headstart.lab.policies import policy
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.worlds.synthetic import Synthetic, SyntheticPopulation

DOF = 3.5
QUANTILE = 1.6449  # of the normal distribution: 90 % lie within so many standard deviations


class StudentPopulation(SyntheticPopulation):
    """Tasks, rewards or neither with heavy tails."""

    def student_factor(self, rng, shape):
        """What makes a normal variable Student's, of the same variance."""
        return np.sqrt((DOF - 2.0) / rng.chisquare(DOF, shape))

    def draw_task(self, task, rng):
        theta = super().draw_task(task, rng)
        if self.world.heavy != "tasks":
            return theta
        mean = self.means[0]
        return mean + self.student_factor(rng, ()) * (theta - mean)

    def episode(self, task, rounds):
        episode = super().episode(task, rounds)
        if self.world.heavy != "rewards":
            return episode
        rng = np.random.default_rng([self.seed, 3, task])
        noise = episode.rewards - episode.values
        return episode._replace(
            rewards=episode.values + self.student_factor(rng, (rounds, 1)) * noise
        )


@dataclasses.dataclass(frozen=True, repr=False)
class Student(Synthetic):
    """The synthetic world with heavy tails of ``"tasks"``, ``"rewards"`` or ``"nothing"``."""

    heavy: str = "nothing"

    def population(self, seed):
        return StudentPopulation(self, seed)


def covered(belief, contexts, values):
    """The share of arms whose expected reward is within its 90 % interval."""
    away = np.abs(values - contexts @ belief.mean)
    spread = belief.noise * np.linalg.norm(contexts @ belief.root, axis=-1)
    return float((away <= QUANTILE * spread).mean())


def coverage(transfer, state, episodes):
    """The coverage of new tasks, and of running ones after half of their rounds."""
    prior = transfer.prior(state)
    new, running = [], []
    for seed, episode in enumerate(episodes):
        own = seed_prior(prior, seed)
        contexts = episode.contexts
        if own.dim > contexts.shape[-1]:  # the intercept
            contexts = np.concatenate([contexts, np.ones((*contexts.shape[:-1], 1))], -1)
        half = len(contexts) // 2
        new.append(covered(Belief.start(own), contexts[0], episode.values[0]))
        seen = Evidence.of(contexts[:half, 0], episode.rewards[:half, 0])
        later = contexts[half:].reshape(-1, own.dim)
        running.append(covered(Belief.of(own, seen), later, episode.values[half:].ravel()))
    return {"new": np.array(new), "running": np.array(running)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    seeds = list(range(chosen.first, chosen.first + chosen.seeds))
    alone = policy("empirical_bayes", "full covariance", low_rank=False)
    policies = [policy("empirical_bayes"), alone]
    print("| heavy tails of | policy | regret | ÷ full covariance | new tasks | running tasks |")
    print("|---|---|---:|---:|---:|---:|")
    for heavy in ("nothing", "tasks", "rewards"):
        world = Student(heavy=heavy)
        traces = simulate(world, policies, seeds, chosen.tasks, chosen.rounds, probe=coverage)
        base = traces[alone.name].regret[:, :, -1].sum(1)
        for each in policies:
            trace = traces[each.name]
            total = trace.regret[:, :, -1].sum(1)
            # From the eleventh task on: before that there is little to learn a prior from.
            rates = [trace.probes[name][:, 10:].mean() for name in ("new", "running")]
            ratio = "1" if each is alone else interval(total / base)
            cells = [f"{total.mean():.1f}", ratio, *(f"{rate:.3f}" for rate in rates)]
            print(f"| {heavy} | {each.name} | {' | '.join(cells)} |", flush=True)


def interval(ratios: np.ndarray) -> str:
    """The mean over seeds with its 95 % interval, and the worst seed."""
    half = 1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.nan
    return f"{ratios.mean():.3f} ± {half:.3f} (worst seed {ratios.max():.3f})"


if __name__ == "__main__":
    main()
