"""Policies that know items by their ids: each is played by bandits of its own, as it is served.

What is known of an item depends on what a policy has chosen, so that policies do not see the same
rows of numbers and cannot be played side by side as arrays (:mod:`headstart.lab.engine`). A bandit
for each policy and seed chooses, learns and closes its tasks one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.lab.policies import Policy
from headstart.records import Array
from headstart.worlds.base import Population


class BanditRun:
    """One policy in a simulation: a bandit for each seed, and what was measured."""

    def __init__(
        self, policy: Policy, populations: Sequence[Population], seeds: Sequence[int]
    ) -> None:
        self.regrets: list[Array] = []
        self.bandits = [
            player(policy, population, seed)
            for population, seed in zip(populations, seeds, strict=True)
        ]

    def measure(self, probe: Any, episodes: Any) -> None:
        """Probes look at states of a batch, which there are none of."""
        raise InputError("probe must be left out in a world with a schema that has identity=True")

    def play_task(self, batch: Any, is_first: bool, loops: Any, marks: Any) -> None:
        """Play a task, record the regret at the marks, and learn from it."""
        arms = np.empty(batch.values.shape[:2], dtype=np.intp)
        for at, bandit in enumerate(self.bandits):
            task = bandit.task(len(self.regrets))
            for place, offer in enumerate(batch.offers[at]):
                choice = task.choose(actions=offer.actions)
                arms[at, place] = offer.arms[choice.arm]
                task.learn(choice, float(batch.rewards[at, place, arms[at, place]]))
            task.close()
        self.regrets.append((batch.best - batch.select("values", arms)).cumsum(1)[:, marks - 1])

    def trace(self) -> tuple[Array, dict[str, Array]]:
        """The regret, and no probes."""
        return np.stack(self.regrets, 1), {}


def player(policy: Policy, population: Population, seed: int) -> Bandit:
    """The bandit of a policy and a seed."""
    assert population.schema is not None
    is_told = policy.knows_noise and policy.reward == "number"
    noise = population.noise if is_told else None
    numbers = np.random.SeedSequence([seed, 2, zlib.crc32(policy.name.encode())])
    return Bandit(
        population.schema,
        policy.transfer,
        policy.rule,
        "auto" if noise is None else noise,
        int(numbers.generate_state(1)[0]),
        intercept=policy.intercept or population.constant,
        reward=policy.reward,
    )
