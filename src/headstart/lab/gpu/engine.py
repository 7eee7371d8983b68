"""The experiment on a GPU: tasks in a row, every seed and policy at once."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from headstart.errors import HeadstartError
from headstart.lab.gpu.learner import Learner, loop_forms
from headstart.lab.gpu.steps import double_precision
from headstart.lab.policies import AnyPolicy, Policy
from headstart.records import flatten
from headstart.worlds.base import World
from headstart.worlds.synthetic import Synthetic

#: The approximate number of copies of a state that learning needs, and the share of memory for all.
WORKING_COPIES, MEMORY_SHARE = 20, 0.8


def simulate(
    world: World,
    policies: Sequence[AnyPolicy],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    marks: Sequence[int],
    progress: Callable[[int], None] | None = None,
    *,
    double: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    """The regret of every policy at the marks, ``(seeds, tasks, marks)``.

    With ``double``, rounds are played in double precision; transfers always learn in it. Seeds that
    do not fit into the GPU's memory together are played one batch after another.
    """
    from headstart.lab.gpu.rounds import Rounds

    assert isinstance(world, Synthetic)
    populations = [world.population(seed) for seed in seeds]
    own = [policy.for_populations(populations[:1]) for policy in policies]
    states = [state_bytes(policy, world, tasks) for policy in own]
    size = sum(states) + WORKING_COPIES * max(states)  # one learns after the other
    most = max(1, int(MEMORY_SHARE * (Rounds.free_memory() + idle_bytes()) / max(size, 1)))
    many = math.ceil(len(seeds) / math.ceil(len(seeds) / most))  # batches of one size, or two
    regrets = []
    with compilation_cache(), double_precision():
        for at in range(0, len(seeds), many):
            some = populations[at : at + many]
            regrets.append(
                play_seeds(world, policies, some, tasks, rounds, marks, progress, double)
            )
    regret = np.concatenate(regrets, 2)  # (tasks, policies, seeds, marks)
    return {policy.name: regret[:, at].swapaxes(0, 1) for at, policy in enumerate(policies)}


def state_bytes(policy: Policy, world: Synthetic, tasks: int) -> int:
    """How much memory the state of a policy takes for every seed."""
    dim, noise = world.dim + policy.intercept, world.noise if policy.knows_noise else None
    state = policy.transfer.reserve(policy.transfer.init(dim, noise, (1,)), tasks - 1)
    return sum(part.nbytes for part in flatten(state).values())


def idle_bytes() -> int:
    """The bytes of the GPU's memory that JAX holds and does not use."""
    stats: dict[str, int] = jax.devices()[0].memory_stats() or {}
    return max(0, stats.get("pool_bytes", 0) - stats.get("bytes_in_use", 0))


def play_seeds(
    world: Synthetic,
    policies: Sequence[AnyPolicy],
    populations: Sequence[Any],
    tasks: int,
    rounds: int,
    marks: Sequence[int],
    progress: Callable[[int], None] | None,
    double: bool,
) -> np.ndarray[Any, Any]:
    """Regret (tasks, policies, seeds, marks) of seeds that all fit on the GPU."""
    from headstart.lab.gpu.rounds import Rounds

    own = [policy.for_populations(populations) for policy in policies]
    table = Rounds(
        world,
        populations,
        loop_forms(own),
        [policy.name for policy in own],
        tasks,
        rounds,
        marks,
        double=double,
        intercept=any(policy.intercept for policy in own),
        estimates_noise=[not policy.knows_noise for policy in own],
    )
    needed = any(policy.transfer.unit_free for policy in own)
    first_contexts = table.first_contexts() if needed else None
    learner = Learner(own, len(populations), world, double=double, first_contexts=first_contexts)
    learner.prepare(tasks)
    for task in range(tasks):
        play_task(table, learner, task, rounds)
        if learner.groups and task + 1 < tasks:
            learner.learn(on_jax(table.chosen_contexts), on_jax(table.chosen_rewards))
        if progress is not None:
            progress(rounds * len(populations) * len(policies))
    if not all(np.isfinite(np.asarray(part)).all() for part in learner.priors):
        raise HeadstartError("a prior on the GPU is not finite: run it on the CPU")
    return table.regret.get().astype(float)


def play_task(table: Any, learner: Learner, task: int, rounds: int) -> None:
    """Play a task, in parts where policies recompute their beliefs in between."""
    beliefs, start = learner.priors, 0
    for stop in learner.stops(task, rounds):
        table.play(task, *(address(part) for part in beliefs), start=start, stop=stop)
        table.wait()
        if stop < rounds:
            means, roots, squares = map(on_jax, (table.means, table.roots, table.squares))
            played = (means, roots, beliefs[2], squares)
            beliefs = learner.rebuild(
                played, on_jax(table.chosen_contexts), on_jax(table.chosen_rewards), stop
            )
        start = stop


def on_jax(array: Any) -> Any:
    """An array of the kernel as one of JAX's, without a copy."""
    return jax.dlpack.from_dlpack(array)


@contextlib.contextmanager
def compilation_cache() -> Iterator[None]:
    """Cache what JAX compiles meanwhile on disk, unless the caller has set a folder.

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
