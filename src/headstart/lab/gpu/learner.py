"""All policies' transfers on a GPU, compiled by JAX: evidence in, priors out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart.arrays import array_namespace
from headstart.lab.policies import AnyPolicy
from headstart.model.belief import Belief
from headstart.model.own_noise import is_noise_due, powers_of_two, rebuild_rounds
from headstart.model.prior import Prior
from headstart.records import fields_of
from headstart.rules import LoopForm
from headstart.small_matrices import use_kernels
from headstart.transfer import Transfer
from headstart.worlds.synthetic import Synthetic

# JAX would otherwise take most of the GPU's memory for itself at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from headstart.lab.gpu.pytrees import evidence_of, register
from headstart.lab.gpu.small_matrices import available_kernels

__all__ = ["Group", "Learner"]

LARGE = 2**20  # numbers of an array whose memory is used again for what comes of it


class Group(NamedTuple):
    """Policies whose transfers are the same: one state, stacked along the seeds.

    ``noise`` is R where they are told it, ``dim`` the number of features with the intercept.
    """

    places: list[int]
    transfer: Transfer
    dim: int
    noise: float | None


class Learner:
    """All policies' transfers, compiled into one step.

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
        self.real = jnp.float64 if wide else jnp.float32
        self.rules = rules
        seeds = len(populations)
        own = [policy.for_populations(populations) for policy in policies]
        self.dim = world.dim + any(policy.intercept for policy in own)
        parts: list[tuple[Any, ...]] = []
        found: dict[str, Group] = {}
        for at, policy in enumerate(own):
            noise = world.noise if policy.knows_noise else None
            transfer = policy.transfer.with_constant(policy.intercept)
            group = Group([at], transfer, world.dim + policy.intercept, noise)
            prior = transfer.prior(initial_state(group, seeds, shown))
            amount = rules[at].multiplier * np.broadcast_to(prior.noise, (seeds,))
            parts.append(self.padded(prior.mean, prior.root, amount, np.zeros(seeds)))
            if not transfer.prior_is_known(noise):
                # A rule with forced rounds leaves other evidence than one without.
                apart = rules[at]._replace(multiplier=0.0) if transfer.keeps_forced else ""
                key = f"{transfer!r} {policy.intercept} {noise} {apart}"
                found.setdefault(key, group._replace(places=[])).places.append(at)
        self.members = list(found.values())
        self.groups = [group.places for group in self.members]
        states = tuple(initial_state(group, seeds, shown) for group in self.members)
        starting = tuple(
            group.transfer.prior(state) for group, state in zip(self.members, states, strict=True)
        )
        register([states, starting])
        # On the device from the start, or the step would be compiled twice.
        device = jax.devices()[0]
        self.states, self.starting = jax.device_put((states, starting), device)
        stacked = tuple(np.stack(each).astype(self.real) for each in zip(*parts, strict=True))
        self.priors = jax.device_put(stacked, device)
        self.finished = 0
        with_kernels = use_kernels(available_kernels())
        self.step = jax.jit(with_kernels(self.advance), static_argnums=0, donate_argnums=1)
        self.rebuild_step = jax.jit(with_kernels(self.rebuilt), static_argnums=0)

    def padded(self, mean: Any, root: Any, amount: Any, square: Any) -> tuple[Any, Any, Any, Any]:
        """A policy's part of the priors, with as many features as there are."""
        xp, rest = array_namespace(mean), (0, self.dim - mean.shape[-1])
        return xp.pad(mean, ((0, 0), rest)), xp.pad(root, ((0, 0), rest, rest)), amount, square

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

    def learn(self, picked: Any, earned: Any) -> None:
        """Take a task's rounds in; the new priors come when they are ready."""
        states = tuple(
            group.transfer.reserve(state, self.finished)
            for group, state in zip(self.members, self.states, strict=True)
        )
        self.finished += 1
        leaves, structure = jax.tree_util.tree_flatten(states)
        large = {at: leaf for at, leaf in enumerate(leaves) if leaf.size >= LARGE}
        small = {at: leaf for at, leaf in enumerate(leaves) if leaf.size < LARGE}
        self.states, self.starting, self.priors = self.step(
            structure, large, small, self.priors, picked, earned
        )

    def rebuild(self, beliefs: Any, picked: Any, earned: Any, stop: int) -> Any:
        """Beliefs in the middle of a task, as ``priors``, where these must be made anew."""
        alone = self.finished == 0  # which takes the states, whose many parts are slow to hand over
        states = self.states if alone else tuple(None for _ in self.members)
        return self.rebuild_step(alone, states, self.starting, beliefs, picked, earned, stop)

    def rounds_of(self, group: Group, picked: Any, earned: Any) -> tuple[Any, Any]:
        """What the policies of a group have picked and earned, in double precision."""
        x = jnp.concatenate([picked[at, ..., : group.dim] for at in group.places])
        r = jnp.concatenate([earned[at] for at in group.places])
        return x.astype(jnp.float64), r.astype(jnp.float64)

    def advance(
        self, structure: Any, large: Any, small: Any, priors: Any, picked: Any, earned: Any
    ) -> Any:
        """The step that is compiled, from the parts of the states, the ``large`` ones written over.

        ``structure`` is how the parts are put together.
        """
        leaves = [leaf for _, leaf in sorted({**large, **small}.items())]
        states = jax.tree_util.tree_unflatten(structure, leaves)
        parts = [list(part) for part in priors]
        after, starting = [], []
        for group, state in zip(self.members, states, strict=True):
            transfer = group.transfer
            x, r = self.rounds_of(group, picked, earned)
            apart = None
            if transfer.keeps_forced:
                first = self.rules[group.places[0]].forced_of(r.shape[-1])
                apart = evidence_of(x[:, :first], r[:, :first])
            state = transfer.fold(state, evidence_of(x, r, apart))
            prior = transfer.prior(state)
            after.append(state)
            starting.append(prior)
            self.put(parts, group, prior)
        return tuple(after), tuple(starting), tuple(map(jnp.stack, parts))

    def rebuilt(
        self,
        alone: bool,
        states: Any,
        starting: Any,
        beliefs: Any,
        picked: Any,
        earned: Any,
        stop: Any,
    ) -> Any:
        """The beliefs after so many rounds, compiled; ``alone`` in the first task of all.

        As :func:`headstart.bandit.task_belief.next_belief` has it.
        """
        parts = [list(part) for part in beliefs]
        for group, state, prior in zip(self.members, states, starting, strict=True):
            if group.noise is not None:
                continue
            x, r = self.rounds_of(group, picked, earned)
            seen = 1.0 * (jnp.arange(r.shape[-1]) < stop)
            evidence = evidence_of(x * seen[:, None], r * seen, rounds=stop)
            due: Any = True
            if alone:
                told = group.transfer.single_task_prior(state, evidence)
                fields = {name: getattr(prior, name) for name in fields_of(Prior)}
                unknown = Prior.unchecked(**{**fields, "noise_dof": 0.0})
                prior = unknown if told is None else told
            else:
                due = is_noise_due(prior.noise_dof, group.dim, stop)
            self.put(parts, group, Belief.of(prior, evidence), due)
        return tuple(map(jnp.stack, parts))

    def put(self, parts: list[list[Any]], group: Group, found: Any, due: Any = True) -> None:
        """Replace the parts of a group's policies by those of a prior or belief, where due."""
        many, size = len(group.places), found.mean.shape[:1]
        noise, square, which = (
            jnp.broadcast_to(jnp.asarray(value), size)
            for value in (found.noise, getattr(found, "square", 0.0), due)
        )
        columns = (jnp.split(each, many) for each in (found.mean, found.root, noise, square, which))
        for at, mean, root, own, sum_, chosen in zip(group.places, *columns, strict=True):
            new = self.padded(mean, root, self.rules[at].multiplier * own, sum_)
            for part, value in zip(parts, new, strict=True):
                mask = chosen.reshape(-1, *(1,) * (value.ndim - 1))
                part[at] = jnp.where(mask, value.astype(self.real), part[at])


def initial_state(group: Group, seeds: int, shown: Any) -> Any:
    """A group's state before the first task, in which these contexts are on offer."""
    many = len(group.places)
    state = group.transfer.init(group.dim, group.noise, (many * seeds,))
    if shown is None:
        return state
    return group.transfer.observe_contexts(state, np.tile(shown[..., : group.dim], (many, 1, 1)))
