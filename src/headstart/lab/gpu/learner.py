"""All policies' transfers on a GPU, compiled by JAX: evidence in, priors out."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart.lab.policies import AnyPolicy
from headstart.model.evidence import Evidence
from headstart.model.own_noise import powers_of_two, rebuild_rounds
from headstart.rules import LoopForm
from headstart.transfer import Transfer
from headstart.worlds.synthetic import Synthetic

# JAX would otherwise take most of the GPU's memory for itself at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from headstart.lab.gpu import steps
from headstart.lab.gpu.pytrees import register

__all__ = ["Group", "Learner"]

MOST_ROUNDS = 2**31


class Group(NamedTuple):
    """Policies whose transfers are the same: one state, stacked along the seeds.

    ``noise`` is R where they are told it, ``dim`` the number of features with the intercept, and
    ``forced`` the number of first rounds whose evidence is kept apart, if it is.
    """

    places: tuple[int, ...]
    transfer: Transfer
    dim: int
    noise: float | None
    forced: int | None


class Learner:
    """All policies' transfers, each compiled.

    Where tasks start is in ``priors``: means of shape (policies, seeds, d), roots (policies, seeds,
    d, d), the rules' amounts and S, both (policies, seeds). Features that a policy does not have,
    which the intercept of another may be, have a mean and a root of 0.
    """

    def __init__(
        self,
        policies: Sequence[AnyPolicy],
        rules: Sequence[LoopForm],
        populations: Sequence[Any],
        world: Synthetic,
        *,
        wide: bool = True,
        shown: Any = None,
    ) -> None:
        """``shown`` are the contexts of the first round, (seeds, arms, d)."""
        real = jnp.float64 if wide else jnp.float32
        seeds = len(populations)
        own = [policy.for_populations(populations) for policy in policies]
        dim = world.dim + any(policy.intercept for policy in own)
        means, roots = np.zeros((len(own), seeds, dim)), np.zeros((len(own), seeds, dim, dim))
        amounts = np.zeros((len(own), seeds))
        found: dict[Any, Group] = {}
        for at, policy in enumerate(own):
            noise = world.noise if policy.knows_noise else None
            transfer = policy.transfer.with_constant(policy.intercept)
            forced = rules[at].forced_of(MOST_ROUNDS) if transfer.keeps_forced else None
            group = Group((at,), transfer, world.dim + policy.intercept, noise, forced)
            prior = transfer.prior(initial_state(group, seeds, shown))
            means[at, :, : group.dim], roots[at, :, : group.dim, : group.dim] = (
                prior.mean,
                prior.root,
            )
            amounts[at] = rules[at].multiplier * np.broadcast_to(prior.noise, (seeds,))
            if not transfer.prior_is_known(noise):
                # A rule with forced rounds leaves other evidence than one without.
                key = (steps.Constant(transfer), policy.intercept, noise, forced)
                known = found.setdefault(key, group._replace(places=()))
                found[key] = known._replace(places=(*known.places, at))
        self.members = list(found.values())
        self.folds = [steps.FoldStep(group.transfer) for group in self.members]
        states = [initial_state(group, seeds, shown) for group in self.members]
        starting = [
            group.transfer.prior(state) for group, state in zip(self.members, states, strict=True)
        ]
        register([states, starting, Evidence.zero(1)])
        # On the device from the start, or steps would be compiled twice.
        device = jax.devices()[0]
        self.states, self.starting = jax.device_put((states, starting), device)
        stacked = (means, roots, amounts, np.zeros_like(amounts))
        self.priors = jax.device_put(tuple(part.astype(real) for part in stacked), device)
        self.multipliers = np.array([rule.multiplier for rule in rules])
        self.finished = 0

    @property
    def groups(self) -> list[list[int]]:
        """The policies that learn, by their numbers; those of a group share a state."""
        return [list(group.places) for group in self.members]

    def stops(self, task: int, rounds: int) -> list[int]:
        """The rounds of a task after which beliefs are made anew, and the last one."""
        rebuilt = {
            stop
            for group, prior in zip(self.members, self.starting, strict=True)
            if group.noise is None
            for stop in (
                rebuild_rounds(prior.noise_dof, group.dim, rounds)
                if task
                else powers_of_two(rounds)
            )
        }
        return [*sorted(rebuilt), rounds]

    def prepare(self, tasks: int) -> None:
        """Start to compile what so many tasks will need, all sizes at once."""
        policies, seeds, dim = self.priors[0].shape
        array: Any = jax.ShapeDtypeStruct
        picked = array((policies, seeds, 1, dim), jnp.float32)
        earned = array((policies, seeds, 1), jnp.float32)
        for group, step, state in zip(self.members, self.folds, self.states, strict=True):
            sums = functools.partial(steps.sum_rounds, group.places, group.dim, group.forced)
            evidence = jax.eval_shape(sums, picked, earned, 1)
            for finished in growth(group, tasks):
                grow = functools.partial(group.transfer.reserve, finished=finished)
                step.prepare(jax.eval_shape(grow, state), evidence)

    def learn(self, picked: Any, earned: Any) -> None:
        """Take a task's rounds in; the new priors come when they are ready."""
        rounds = earned.shape[-1]
        for at, group in enumerate(self.members):
            state = group.transfer.reserve(self.states[at], self.finished)
            sizes = (group.places, group.dim, group.forced)
            evidence = steps.sum_rounds(*sizes, picked, earned, rounds)
            self.states[at], prior = self.folds[at](state, evidence)
            self.starting[at] = prior
            new = (prior.mean, prior.root, prior.noise, 0.0, True)
            self.priors = steps.put(group.places, self.multipliers, self.priors, *new)
        self.finished += 1

    def rebuild(self, beliefs: Any, picked: Any, earned: Any, stop: int) -> Any:
        """Beliefs in the middle of a task, as ``priors``, where these must be made anew."""
        for at, group in enumerate(self.members):
            if group.noise is None:
                evidence = steps.sum_rounds(group.places, group.dim, None, picked, earned, stop)
                state = self.states[at] if self.finished == 0 else None
                new = steps.rebuild(self.folds[at].transfer, state, self.starting[at], evidence)
                beliefs = steps.put(group.places, self.multipliers, beliefs, *new)
        return beliefs


def growth(group: Group, tasks: int) -> Iterator[int]:
    """After how many finished tasks the state of a group becomes larger, the first time at 0."""
    state = group.transfer.init(group.dim, group.noise, (1,))
    for finished in range(tasks - 1):
        larger = group.transfer.reserve(state, finished)
        if finished == 0 or larger is not state:
            yield finished
        state = larger


def initial_state(group: Group, seeds: int, shown: Any) -> Any:
    """A group's state before the first task, in which these contexts are on offer."""
    many = len(group.places)
    state = group.transfer.init(group.dim, group.noise, (many * seeds,))
    if shown is None:
        return state
    return group.transfer.observe_contexts(state, np.tile(shown[..., : group.dim], (many, 1, 1)))
