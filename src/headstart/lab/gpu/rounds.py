"""The CUDA kernel that plays the rounds: compiled for a problem's size, and called."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import cupy as cp
import numpy as np

from headstart.rules import LoopForm
from headstart.worlds.synthetic import Synthetic, SyntheticPopulation

HEAVY_FIRST = {"uniform": 0, "thompson": 1, "ucb": 2}  # light warps draw the contexts


class Rounds:
    """Plays one task after another for some seeds, all policies side by side.

    After a task, ``chosen_contexts`` (policies, seeds, rounds, d) and ``chosen_rewards`` (policies,
    seeds, rounds) have its rounds, and ``regret`` (tasks, policies, seeds, marks) its regret. Where
    it was played in parts, ``means``, ``roots`` and ``squares`` have the beliefs in between. With
    an ``intercept`` the last feature of all contexts is 1; policies without one have priors that
    are certain of 0 there. With ``record_all``, ``recorded`` has all contexts, rewards, draws and
    arms of the last task.

    ``estimates_noise`` says of every policy whether it may have to estimate the noise.
    """

    def __init__(
        self,
        world: Synthetic,
        populations: Sequence[SyntheticPopulation],
        rules: Sequence[LoopForm],
        names: Sequence[str],
        tasks: int,
        rounds: int,
        marks: Sequence[int],
        *,
        double: bool = False,
        record_all: bool = False,
        intercept: bool = False,
        estimates_noise: Sequence[bool] = (),
    ) -> None:
        seeds, policies = len(populations), len(rules)
        self.real = cp.float64 if double else cp.float32
        dim = world.dim + intercept
        self.kernel = kernel(dim, world.arms, policies, double, intercept, any(estimates_noise))
        self.shape = (policies, seeds, rounds)
        noise = float(world.noise)
        amounts = np.repeat([[rule.multiplier * noise] for rule in rules], seeds, 1)
        self.amounts = cp.asarray(amounts, self.real)
        self.multipliers = cp.zeros(policies, self.real)
        if estimates_noise:
            multipliers = np.array([rule.multiplier for rule in rules])
            self.multipliers = cp.asarray(multipliers * np.array(estimates_noise), self.real)
        self.means = cp.zeros((policies, seeds, dim), self.real)
        self.roots = cp.zeros((policies, seeds, dim, dim), self.real)
        self.squares, self.regret_so_far = cp.zeros((2, policies, seeds), self.real)
        thetas = np.stack([one.draw_tasks(tasks, rng_of(one.seed)) for one in populations], 1)
        order = sorted(range(policies), key=lambda at: HEAVY_FIRST[rules[at].kind])
        self.settings = [
            cp.asarray([rule.code for rule in rules], cp.int32),
            cp.asarray([rule.forced for rule in rules], cp.int32),
            cp.asarray(order, cp.int32),
        ]
        self.thetas = cp.asarray(thetas, cp.float32)
        self.deviations = cp.asarray(
            np.stack([population.context_sd for population in populations]), cp.float32
        )
        keys = [int(rng_of(population.seed).integers(2**63)) for population in populations]
        self.keys = cp.asarray(keys, cp.uint64)
        self.names = cp.asarray([zlib.crc32(name.encode()) for name in names], cp.uint32)
        self.world = [np.float32(noise), np.float32(world.logistic)]
        self.arms, self.no_multipliers = world.arms, cp.zeros_like(self.multipliers)
        rising = sorted(set(marks))  # the kernel meets them in this order
        self.marks = cp.asarray(rising, cp.int32)
        self.places = cp.asarray(np.searchsorted(rising, marks))
        self.chosen_contexts = cp.empty((*self.shape, dim), cp.float32)
        self.chosen_rewards = cp.empty(self.shape, cp.float32)
        self.regrets = cp.empty((tasks, policies, seeds, len(rising)), cp.float32)
        self.recorded: dict[str, Any] = {}
        if record_all:
            self.recorded = {
                "contexts": cp.empty((seeds, rounds, world.arms, dim), cp.float32),
                "rewards": cp.empty((seeds, rounds, world.arms), cp.float32),
                "draws": cp.zeros((*self.shape, dim), cp.float32),
                "arms": cp.empty(self.shape, cp.int32),
            }

    @staticmethod
    def free_memory() -> int:
        """The bytes of the GPU's memory that are free."""
        return int(cp.cuda.runtime.memGetInfo()[0])

    def first_contexts(self) -> Any:
        """The contexts on offer in the first round of all, (seeds, arms, d)."""
        _, seeds, _ = self.shape
        arms, dim = self.arms, self.means.shape[-1]
        offered = cp.empty((seeds, 1, arms, dim), cp.float32)
        seen = [offered, cp.empty((seeds, 1, arms), cp.float32), np.uintp(0), np.uintp(0)]
        beliefs = [np.uintp(part.data.ptr) for part in (self.means, self.roots)]
        self.call(0, 1, 0, 1, [*beliefs, self.amounts, self.squares], seen)
        self.wait()
        return offered[:, 0].get().astype(float)

    def play(
        self,
        task: int,
        means: int,
        roots: int,
        amounts: int | None = None,
        squares: int | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Play rounds of a task from beliefs at these addresses; returns before they are played.

        ``amounts`` are those of rules in rewards' units (of the world's R unless given).
        """
        rounds = self.shape[-1]
        beliefs = [
            np.uintp(means),
            np.uintp(roots),
            self.amounts if amounts is None else np.uintp(amounts),
            self.squares if squares is None else np.uintp(squares),
        ]
        watched = list(self.recorded.values()) or [np.uintp(0)] * 4
        self.call(task, rounds, start, rounds if stop is None else stop, beliefs, watched)

    def call(
        self, task: int, rounds: int, start: int, stop: int, beliefs: list[Any], seen: list[Any]
    ) -> None:
        """Call the kernel."""
        policies, seeds, _ = self.shape
        arguments = (
            *beliefs,
            self.multipliers if task == 0 else self.no_multipliers,
            *self.settings,
            self.thetas[task],
            self.deviations,
            self.keys,
            self.names,
            *self.world,
            np.uint32(task),
            np.int32(rounds),
            np.int32(start),
            np.int32(stop),
            self.marks,
            np.int32(len(self.marks)),
            self.chosen_contexts,
            self.chosen_rewards,
            self.regrets[task],
            self.regret_so_far,
            self.means,
            self.roots,
            self.squares,
            *seen,
        )
        self.kernel((seeds,), (32 * policies,), arguments)

    @property
    def regret(self) -> Any:
        """The regret at the marks, in the order they were passed."""
        return self.regrets[..., self.places]

    def wait(self) -> None:
        """Wait until the task is finished."""
        cp.cuda.get_current_stream().synchronize()


def rng_of(seed: int) -> np.random.Generator:
    """The generator of a seed's tasks and random numbers on a GPU; populations are as on a CPU."""
    return np.random.default_rng([seed, 3])


@functools.cache
def kernel(
    dim: int,
    arms: int,
    policies: int,
    double: bool,
    intercept: bool = False,
    estimates_noise: bool = False,
) -> Any:
    """The kernel, compiled for these sizes."""
    source = resources.files("headstart.lab.gpu").joinpath("rounds.cu").read_text()
    # Two blocks of 256 threads with 128 registers each fill a multiprocessor's registers.
    blocks = 2 if dim < 32 and policies <= 8 and not double else 1
    options = [
        "--std=c++17",
        f"-DREAL={'double' if double else 'float'}",
        f"-DWIDE={int(double)}",
        f"-DD={dim}",
        f"-DK={arms}",
        f"-DP={policies}",
        f"-DBLOCKS={blocks}",
        f"-DINTERCEPT={int(intercept)}",
        f"-DFREE={int(estimates_noise)}",
    ]
    if not double:
        options.append("--use_fast_math")
    return cp.RawModule(code=source, options=tuple(options)).get_function("play")
