"""Groups of tasks in the default? One population and a mixture, averaged by their predictions.

The default and ``Mixture`` are fitted to the same tasks. Each predicts every finished task before
it is learned from; weights are the softmax of the log-likelihoods, old ones fading by 3 % with
every task, and the mixture starts 4 nats behind. A new task starts from all of them side by side,
or from the default alone while the mixture has one group or counts for less than a thousandth:

    python benchmarks/groups.py --seeds 4 --tasks 100
"""

import argparse
import dataclasses

import numpy as np

from headstart.lab import simulate
from headstart.lab.policies import Policy
from headstart.model.mixture import MixturePrior
from headstart.model.prior import Prior
from headstart.rules import UCB
from headstart.transfer import EmpiricalBayes, Mixture, Transfer
from headstart.transfer.empirical_bayes.full_covariance.posteriors import log_likelihood
from headstart.worlds.synthetic import Synthetic

HANDICAP, DECAY, MAX_DEFICIT, MIN_WEIGHT = 4.0, 0.97, 25.0, 1e-3
WORLDS = {
    "mean off the plane": Synthetic(),
    "three dimensions": Synthetic(rank=3, inside=0.5, offset=1.0, mean="anywhere"),
    "no structure": Synthetic(rank=30, offset=0.0),
    "three groups": Synthetic(rank=3, offset=0.0, clusters=3, separation=1.0),
}


@dataclasses.dataclass(frozen=True, repr=False)
class Averaged(Transfer):
    """The default and a mixture of groups, each counting by how well it has predicted."""

    one: EmpiricalBayes = dataclasses.field(default_factory=EmpiricalBayes)
    several: Mixture = dataclasses.field(default_factory=Mixture)

    @property
    def unit_free(self):
        return True

    def with_constant(self, constant):
        return Averaged(self.one.with_constant(constant), self.several.with_constant(constant))

    def init(self, dim, noise=None, batch=()):
        return self.one.init(dim, noise), self.several.init(dim, noise), -HANDICAP

    def observe_contexts(self, state, contexts):
        one, several, score = state
        observed = self.one.observe_contexts(one, contexts)
        return observed, self.several.observe_contexts(several, contexts), score

    def single_task_prior(self, state, evidence):
        return self.one.single_task_prior(state[0], evidence)

    def fold(self, state, evidence, weight=1.0):
        one, several, score = state
        if one.task_count >= 2:
            priors = self.one.prior(one), self.several.prior(several)
            default, groups = (log_density(prior, evidence) for prior in priors)
            score = DECAY * score + np.clip(groups - default, -MAX_DEFICIT, MAX_DEFICIT)
        return self.one.fold(one, evidence), self.several.fold(several, evidence), score

    def weight(self, state):
        """What the mixture counts, 0 where it has one group."""
        if self.several.prior(state[1]).log_weights.size == 1:
            return 0.0
        return 1.0 / (1.0 + np.exp(-state[2]))

    def prior(self, state):
        one, weight = self.one.prior(state[0]), self.weight(state)
        if weight < MIN_WEIGHT:
            return one
        groups = self.several.prior(state[1])
        parts = [one, *group_priors(groups)]
        return MixturePrior(
            Prior.stack(parts),
            np.append(np.log1p(-min(weight, 1.0 - 1e-12)), np.log(weight) + groups.log_weights),
        )


def group_priors(mixture):
    """The prior of every group."""
    noise, dof = (
        np.broadcast_to(value, len(mixture.log_weights))
        for value in (mixture.parts.noise, mixture.parts.noise_dof)
    )
    return [
        Prior(mean, root, noise=float(noise[at]), noise_dof=float(dof[at]))
        for at, (mean, root) in enumerate(zip(mixture.parts.mean, mixture.parts.root, strict=True))
    ]


def log_density(prior, evidence):
    """The log density of a task's rewards under a prior or a mixture of priors."""
    parts = group_priors(prior) if isinstance(prior, MixturePrior) else [prior]
    logs = prior.log_weights if isinstance(prior, MixturePrior) else np.zeros(1)
    each = []
    for part in parts:
        variance = part.noise**2
        gain = float(log_likelihood(part.mean, part.covariance, variance, evidence))
        noise = evidence.rounds * np.log(variance) + evidence.squares / variance
        each.append(gain - 0.5 * noise)
    return float(np.logaddexp.reduce(logs + each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=250)
    chosen = parser.parse_args()
    seeds = list(range(chosen.first, chosen.first + chosen.seeds))
    policies = [
        Policy(name, transfer, UCB(), False, True)
        for name, transfer in (("default", EmpiricalBayes()), ("averaged", Averaged()))
    ]
    print("| world | averaged ÷ default | each seed | weight of groups, last quarter |")
    print("|---|---:|---|---:|")
    for name, world in WORLDS.items():
        traces = simulate(world, policies, seeds, chosen.tasks, chosen.rounds, probe=groups_weight)
        ours, base = (traces[each].regret[:, :, -1].sum(1) for each in ("averaged", "default"))
        weight = traces["averaged"].probes["weight"][:, -chosen.tasks // 4 :].mean()
        each = ", ".join(f"{ratio:.3f}" for ratio in ours / base)
        print(f"| {name} | {(ours / base).mean():.3f} | {each} | {weight:.3f} |", flush=True)


def groups_weight(transfer, state, episodes):
    """What the mixture counts, for every seed."""
    if not isinstance(state, tuple):
        return {}
    return {"weight": np.array([transfer.transfer.weight(each) for each in state])}


if __name__ == "__main__":
    main()
