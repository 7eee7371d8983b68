"""All policies' transfers on a GPU, compiled by JAX: evidence in, priors out."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headstart.bandit.task_belief import is_refit_due
from headstart.lab.policies import Policy
from headstart.model.evidence import Evidence
from headstart.model.own_noise import powers_of_two, rebuild_rounds
from headstart.rules import LoopForm
from headstart.worlds.synthetic import Synthetic

# JAX would otherwise allocate most of the GPU's memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from headstart.lab.gpu import steps
from headstart.lab.gpu.pytrees import register
from headstart.lab.gpu.steps import Constant, Group

ALL_ROUNDS = 2**31


class Learner:
    """All policies' transfers, each compiled.

    Where tasks start is in ``priors``: means of shape (policies, seeds, d), roots (policies, seeds,
    d, d), the rules' amounts and S, both (policies, seeds). Features that a policy does not have,
    which the intercept of another may be, have a mean and a root of 0.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        seeds: int,
        world: Synthetic,
        *,
        double: bool = True,
        first_contexts: Any = None,
    ) -> None:
        """``first_contexts`` are the contexts of the first round, (seeds, arms, d)."""
        real = jnp.float64 if double else jnp.float32
        rules, shape = loop_forms(policies), (len(policies), seeds)
        dim = world.dim + any(policy.intercept for policy in policies)
        means, roots = np.zeros((*shape, dim)), np.zeros((*shape, dim, dim))
        amounts = np.zeros(shape)
        groups: dict[Any, Group] = {}
        for at, policy in enumerate(policies):
            noise = world.noise if policy.knows_noise else None
            transfer = policy.transfer.with_constant(policy.intercept)
            forced = rules[at].forced_rounds(ALL_ROUNDS) if transfer.keeps_forced else None
            group = Group((at,), Constant(transfer), world.dim + policy.intercept, noise, forced)
            prior = transfer.prior(initial_state(group, seeds, first_contexts))
            own_dim = slice(group.dim)
            means[at][:, own_dim], roots[at][:, own_dim, own_dim] = prior.mean, prior.root
            amounts[at] = rules[at].multiplier * np.broadcast_to(prior.noise, (seeds,))
            if not transfer.prior_is_known(noise):
                # A rule with forced rounds leaves other evidence than one without.
                key = group._replace(places=())
                places = groups[key].places if key in groups else ()
                groups[key] = group._replace(places=(*places, at))
        self.members = tuple(groups.values())
        self.folds = [steps.FoldStep(group.transfer) for group in self.members]
        states = [initial_state(group, seeds, first_contexts) for group in self.members]
        starting = [
            group.transfer.value.prior(state)
            for group, state in zip(self.members, states, strict=True)
        ]
        register([states, starting, Evidence.zero(1)])
        # On the device from the start, or steps would be compiled twice.
        device = jax.devices()[0]
        self.states, self.starting = jax.device_put((states, starting), device)
        stacked = (means, roots, amounts, np.zeros_like(amounts))
        self.priors = jax.device_put(tuple(part.astype(real) for part in stacked), device)
        self.multipliers = jax.device_put(np.array([rule.multiplier for rule in rules]), device)
        self.finished = 0

    @property
    def groups(self) -> list[list[int]]:
        """The policies that learn, by their numbers; those of a group share a state."""
        return [list(group.places) for group in self.members]

    def stops(self, task: int, rounds: int) -> list[int]:
        """The rounds of a task after which beliefs are recomputed, and the last one."""
        rebuilt = {
            stop
            for group, prior in zip(self.members, self.starting, strict=True)
            if group.noise is None
            for stop in (
                rebuild_rounds(prior.noise_dof, group.dim, rounds)
                if task
                else filter(is_refit_due, powers_of_two(rounds))
            )
        }
        return [*sorted(rebuilt), rounds]

    def prepare(self, tasks: int) -> None:
        """Start to compile the steps for all sizes that the state has in so many tasks."""
        policies, seeds, dim = self.priors[0].shape
        array: Any = jax.ShapeDtypeStruct
        contexts = array((policies, seeds, 1, dim), jnp.float32)
        rewards = array((policies, seeds, 1), jnp.float32)
        for group, step, state in zip(self.members, self.folds, self.states, strict=True):
            evidence = jax.eval_shape(functools.partial(steps.sum_rounds, group), contexts, rewards)
            for finished in growth(group, tasks):
                grow = functools.partial(group.transfer.value.reserve, finished=finished)
                step.prepare(jax.eval_shape(grow, state), evidence)

    def learn(self, contexts: Any, rewards: Any) -> None:
        """Learn from a task's rounds; the new priors are computed asynchronously."""
        evidences = steps.sum_tasks(self.members, contexts, rewards)
        for at, (group, evidence) in enumerate(zip(self.members, evidences, strict=True)):
            state = group.transfer.value.reserve(self.states[at], self.finished)
            resized = state is not self.states[at]
            self.states[at], self.starting[at] = self.folds[at](state, evidence, resized)
        self.priors = steps.start_tasks(self.members, self.multipliers, self.priors, self.starting)
        self.finished += 1

    def rebuild(self, beliefs: Any, contexts: Any, rewards: Any, stop: int) -> Any:
        """Beliefs in the middle of a task, as ``priors``, where these must be recomputed."""
        # Only the first task takes the states, whose many parts take long to pass.
        states = [None] * len(self.members) if self.finished else self.states
        return steps.rebuild(
            self.members, self.multipliers, beliefs, states, self.starting, contexts, rewards, stop
        )


def loop_forms(policies: Sequence[Policy]) -> list[LoopForm]:
    """The policies' rules, as the kernel knows them."""
    forms = [policy.rule.loop_form() for policy in policies]
    return [form for form in forms if form is not None]


def growth(group: Group, tasks: int) -> Iterator[int]:
    """The numbers of finished tasks at which the state of a group is reserved anew, 0 first."""
    transfer = group.transfer.value
    state = transfer.init(group.dim, group.noise, (1,))
    for finished in range(tasks - 1):
        larger = transfer.reserve(state, finished)
        if finished == 0 or larger is not state:
            yield finished
        state = larger


def initial_state(group: Group, seeds: int, first_contexts: Any) -> Any:
    """A group's state before the first task, in which these contexts are on offer."""
    transfer, many = group.transfer.value, len(group.places)
    state = transfer.init(group.dim, group.noise, (many * seeds,))
    if first_contexts is None:
        return state
    return transfer.observe_contexts(state, np.tile(first_contexts[..., : group.dim], (many, 1, 1)))
