"""The experiment on a GPU: tasks in a row, every seed and policy at once."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headstart.lab.policies import AnyPolicy
from headstart.rules import LoopForm
from headstart.transfer import Transfer
from headstart.worlds.base import World
from headstart.worlds.synthetic import Synthetic

# JAX would otherwise take most of the GPU's memory for itself at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from headstart.lab.gpu.pytrees import evidence_of, register

__all__ = ["Learner", "simulate"]


def simulate(
    world: World,
    policies: Sequence[AnyPolicy],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    marks: Sequence[int],
    progress: Callable[[int], None] | None = None,
    *,
    wide: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    """The regret of every policy at the marks, ``(seeds, tasks, marks)``.

    ``wide`` plays in double precision; transfers always learn in it.
    """
    from headstart.lab.gpu.rounds import Rounds

    assert isinstance(world, Synthetic)
    names = [policy.name for policy in policies]
    populations = [world.population(seed) for seed in seeds]
    rules = rules_of(policies, populations)
    with kept_compiled(), wide_numbers():
        learner = Learner(policies, rules, populations, world, wide=wide)
        table = Rounds(world, populations, rules, names, tasks, rounds, marks, wide=wide)
        for task in range(tasks):
            table.play(task, *(address(part) for part in learner.priors))
            table.wait()
            if learner.groups and task + 1 < tasks:
                learner.learn(
                    jax.dlpack.from_dlpack(table.picked), jax.dlpack.from_dlpack(table.earned)
                )
            if progress is not None:
                progress(rounds * len(seeds) * len(policies))
        regret = table.regret.get().astype(float)  # (tasks, policies, seeds, marks)
    return {name: regret[:, at].swapaxes(0, 1) for at, name in enumerate(names)}


@contextlib.contextmanager
def kept_compiled() -> Iterator[None]:
    """Keep what JAX compiles meanwhile on disk, unless the caller has said where.

    Compiling takes longer than a short experiment.
    """
    config: Any = jax.config
    before = config.jax_compilation_cache_dir
    if before is None and importlib.util.find_spec("platformdirs"):
        from platformdirs import user_cache_path

        config.update("jax_compilation_cache_dir", str(user_cache_path("headstart") / "jax"))
    try:
        yield
    finally:
        config.update("jax_compilation_cache_dir", before)


def address(array: Any) -> int:
    """Where on the GPU an array lies, once it is there."""
    return int(array.block_until_ready().unsafe_buffer_pointer())


class Learner:
    """All policies' transfers, compiled into one step: evidence in, priors out.

    ``priors`` are means of shape (policies, seeds, d) and roots (policies, seeds, d, d). Policies
    whose transfers are the same are one group, stacked along the seeds.
    """

    def __init__(
        self,
        policies: Sequence[AnyPolicy],
        rules: Sequence[LoopForm],
        populations: Sequence[Any],
        world: Synthetic,
        *,
        wide: bool = True,
    ) -> None:
        self.real = jnp.float64 if wide else jnp.float32
        self.rules = rules
        noise, dim, seeds = world.noise, world.dim, len(populations)
        means, roots = [], []
        found: dict[str, list[int]] = {}
        transfers: dict[str, Transfer] = {}
        for at, policy in enumerate(policies):
            transfer = policy.for_populations(populations).transfer
            prior = transfer.prior(transfer.init(dim, noise, (seeds,)))
            means.append(prior.mean)
            roots.append(prior.root)
            if not transfer.fixed(noise):
                # A rule with forced rounds leaves other evidence than one without.
                apart = rules[at]._replace(multiplier=0.0) if transfer.keeps_forced else ""
                key = f"{transfer!r} {apart}"
                found.setdefault(key, []).append(at)
                transfers[key] = transfer
        self.groups = list(found.values())
        self.transfers = list(transfers.values())
        states = tuple(
            transfer.init(dim, noise, (len(group) * seeds,))
            for transfer, group in zip(self.transfers, self.groups, strict=True)
        )
        register(states)
        # On the device from the start, or the step would be compiled twice.
        device = jax.devices()[0]
        self.states = jax.device_put(states, device)
        priors = [np.stack(means).astype(self.real), np.stack(roots).astype(self.real)]
        self.priors = jax.device_put(tuple(priors), device)
        self.step = jax.jit(self.advance)

    def learn(self, picked: Any, earned: Any) -> None:
        """Take a task's rounds in; the new priors come when they are ready."""
        self.states, self.priors = self.step(self.states, self.priors, picked, earned)

    def advance(self, states: Any, priors: Any, picked: Any, earned: Any) -> Any:
        """The step that is compiled."""
        means, roots = list(priors[0]), list(priors[1])
        after = []
        for transfer, group, state in zip(self.transfers, self.groups, states, strict=True):
            x = jnp.concatenate([picked[at] for at in group]).astype(jnp.float64)
            r = jnp.concatenate([earned[at] for at in group]).astype(jnp.float64)
            apart = None
            if transfer.keeps_forced:
                first = self.rules[group[0]].forced_of(r.shape[-1])
                apart = evidence_of(x[:, :first], r[:, :first])
            state = transfer.fold(state, evidence_of(x, r, apart))
            prior = transfer.prior(state)
            after.append(state)
            parts = len(group)
            for at, mean, root in zip(
                group, jnp.split(prior.mean, parts), jnp.split(prior.root, parts), strict=True
            ):
                means[at], roots[at] = mean.astype(self.real), root.astype(self.real)
        return tuple(after), (jnp.stack(means), jnp.stack(roots))


def rules_of(policies: Sequence[AnyPolicy], populations: Sequence[Any]) -> list[LoopForm]:
    """The policies' rules, as the kernel knows them."""
    rules = [policy.for_populations(populations).rule.loop_form() for policy in policies]
    return [rule for rule in rules if rule is not None]


def wide_numbers() -> Any:
    """Double precision in JAX, here and nowhere else."""
    enable: Any = getattr(jax, "enable_x64", None)
    if enable is None:  # older JAX has it elsewhere
        enable = vars(importlib.import_module("jax.experimental"))["enable_x64"]
    return enable(True)
