"""The engine: many seeds at once through one experiment, every policy on the same episodes.

The seeds of a batch are a leading axis of every record, so that the library's own rules, beliefs
and transfers do all the work, and no algorithm is written twice. A seed's results do not depend on
which other seeds share its batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.belief import Belief
from headstart.errors import InputError
from headstart.evidence import Evidence
from headstart.lab.policies import Policy
from headstart.lab.seedwise import SeedBySeed
from headstart.mixture import MixtureBelief, believe
from headstart.records import Array
from headstart.rules import Rule
from headstart.transfer import Transfer
from headstart.transfer.noise import own_noise
from headstart.worlds.base import Episode, Population, World

__all__ = ["Probe", "Trace", "simulate"]


class Trace(NamedTuple):
    """What an experiment measured for one policy.

    ``regret`` is the regret since the task's start at every checkpoint, of shape
    ``(seeds, tasks, checkpoints)``; ``probed`` holds what a probe measured at each task's start,
    ``(seeds, tasks)`` by name.
    """

    regret: Array
    probed: dict[str, Array]


#: Looks at a policy's state when a task starts: transfer, state and episodes in, numbers out.
Probe = Callable[[Transfer, Any, Sequence[Episode]], dict[str, Array]]


class Player(NamedTuple):
    """A policy at work: settings that do not change during a simulation."""

    transfer: Transfer
    rule: Rule
    rng: SeedStack
    noise: float | None


class SeedStack:
    """The generators of a batch of seeds, drawn from side by side.

    It has the methods that rules use. Each seed has its own generator, so what it draws does not
    depend on its neighbours.
    """

    def __init__(self, seeds: Sequence[int], label: str) -> None:
        mark = zlib.crc32(label.encode())
        self.generators = [np.random.default_rng([seed, 2, mark]) for seed in seeds]

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Normals of a shape whose first axis is the seeds."""
        return np.stack([rng.standard_normal(shape[1:]) for rng in self.generators])

    def random(self, shape: tuple[int, ...]) -> Array:
        """Uniforms of a shape whose first axis is the seeds."""
        return np.stack([rng.random(shape[1:]) for rng in self.generators])


def simulate(
    world: World,
    policies: Sequence[Policy],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    checkpoints: Sequence[int] | None = None,
    probe: Probe | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Trace]:
    """Play every policy on the same tasks, contexts and noise; each learns from its own choices.

    Parameters
    ----------
    world, seeds
        Where tasks come from: one population per seed.
    policies
        Who plays; names must differ.
    tasks, rounds
        How many tasks, and rounds in each.
    checkpoints
        Rounds at which regret is recorded; the last one unless given.
    probe
        Measures something at the start of every task.
    progress
        Called after each task with the number of policy-rounds played.
    """
    names = [policy.name for policy in policies]
    if len(set(names)) < len(names):
        raise InputError(f"policies must have different names; got {names}")
    marks = check_plan(tasks, rounds, checkpoints)
    if not len(seeds):
        raise InputError("seeds must hold at least one seed; got none")
    populations = [world.population(seed) for seed in seeds]
    check_populations(populations, tasks)
    dim, noise, batch = populations[0].dim, populations[0].noise, (len(seeds),)
    players = {}
    for policy in policies:
        transfer = policy.prepared(populations)
        if not transfer.batched:
            transfer = SeedBySeed(transfer)
        rng = SeedStack(seeds, policy.name)
        told = noise if policy.knows_noise else None
        players[policy.name] = Player(transfer, policy.rule_for(dim), rng, told)
    states = {
        name: player.transfer.init(dim, player.noise, batch) for name, player in players.items()
    }
    regret = {name: np.empty((len(seeds), tasks, len(marks))) for name in names}
    probed: dict[str, dict[str, list[Array]]] = {name: {} for name in names}
    for task in range(tasks):
        episodes = [population.episode(task, rounds) for population in populations]
        stacked = Stacked(episodes)
        for name, player in players.items():
            if probe is not None:
                for key, value in probe(player.transfer, states[name], episodes).items():
                    probed[name].setdefault(key, []).append(value)
            belief = believe(player.transfer.prior(states[name]))
            alone = player.noise is None and task == 0
            lost, evidence = play(player, belief, stacked, alone)
            regret[name][:, task] = lost.cumsum(0)[np.asarray(marks) - 1].T
            states[name] = player.transfer.fold(states[name], evidence)
        if progress is not None:
            progress(rounds * len(seeds) * len(policies))
    return {
        name: Trace(
            regret[name], {key: np.stack(values, -1) for key, values in probed[name].items()}
        )
        for name in names
    }


class Stacked:
    """The episodes of a batch, rounds first, so that a round is a slice."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.contexts = np.stack([episode.contexts for episode in episodes], axis=1)
        self.values = np.stack([episode.values for episode in episodes], axis=1)
        self.rewards = np.stack([episode.rewards for episode in episodes], axis=1)
        self.best = self.values.max(-1)

    def rounds(self) -> Iterator[tuple[int, Array]]:
        """Round numbers and contexts."""
        return iter(enumerate(self.contexts))


def play(
    player: Player, belief: Belief | MixtureBelief, stacked: Stacked, alone: bool
) -> tuple[Array, Evidence]:
    """One task for one policy: the regret of every round, and the evidence it leaves.

    ``alone`` says that nothing but this task can tell the noise.
    """
    rounds, seeds, _, dim = stacked.contexts.shape
    rows = np.arange(seeds)
    picked = np.empty((seeds, rounds, dim))
    earned = np.empty((seeds, rounds))
    forced = np.zeros((seeds, rounds), dtype=bool)
    lost = np.empty((rounds, seeds))
    rng: Any = player.rng
    for k, contexts in stacked.rounds():
        pick = player.rule.choose(belief, contexts, rng)
        x = contexts[rows, pick.arm]
        r = stacked.rewards[k, rows, pick.arm]
        belief = belief.learn_unchecked(x, r)
        picked[:, k], earned[:, k], forced[:, k] = x, r, pick.forced
        lost[k] = stacked.best[k] - stacked.values[k, rows, pick.arm]
        if alone and (k + 1) & k == 0:  # rounds 1, 2, 4, 8, …
            seen = Evidence.of(picked[:, : k + 1], earned[:, : k + 1])
            belief = on_its_own(player.transfer, belief, seen)
    evidence = Evidence.of(picked, earned)
    if player.transfer.keeps_forced:
        part = Evidence.of(picked * forced[..., None], earned * forced)
        evidence = evidence.replace(forced=part.replace(rounds=forced.sum(-1).astype(float)))
    return lost, evidence


def on_its_own(transfer: Transfer, belief: Any, seen: Evidence) -> Any:
    """The belief of a task that alone tells the noise."""
    prior = transfer.alone(seen)
    if prior is not None:
        return Belief.of(prior, seen)
    noise = own_noise(seen, belief.prior.mean, belief.mean)
    return belief.replace(noise=np.where(noise > 0, noise, 1.0))


def check_plan(tasks: int, rounds: int, checkpoints: Sequence[int] | None) -> list[int]:
    """The checkpoints, refused if they do not fit."""
    checks.integer("tasks", tasks, 1)
    checks.integer("rounds", rounds, 1)
    marks = [rounds] if checkpoints is None else list(checkpoints)
    for mark in marks:
        checks.integer("checkpoints", mark, 1, rounds)
    return marks


def check_populations(populations: Sequence[Population], tasks: int) -> None:
    """Refuse more tasks than a population has, and populations that differ in their noise."""
    if len({population.noise for population in populations}) > 1:
        raise InputError("the populations of a world must have the same noise; they differ")
    for population in populations:
        if population.tasks is not None and population.tasks < tasks:
            raise checks.refuse("tasks", f"at most {population.tasks} in this world", tasks)
