"""The engine: many seeds at once through one experiment, every policy on the same episodes.

The seeds of a batch are a leading axis of every record, so that the library's own rules, beliefs
and transfers do the work. That is the *plain* engine, the reference. The *compiled* engine plays
the rounds of a task in a loop compiled by Numba, where rule and belief have a form for it, and
makes the same decisions up to rounding; transfers are the same code in both. A seed's results do
not depend on the other seeds of its batch.
"""

from __future__ import annotations

import copy
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.rewards import RewardModel, reward_model
from headstart.bandit.task_belief import LoneTask, next_belief
from headstart.errors import InputError
from headstart.kernels.forms import load
from headstart.lab.bandit_run import BanditRun
from headstart.lab.per_seed import PerSeed
from headstart.lab.policies import AnyPolicy, Policy
from headstart.model.base import BaseBelief
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.own_noise import rebuild_rounds
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.rules import LoopForm, Rule
from headstart.transfer import Transfer
from headstart.worlds.base import Episode, Population, World

__all__ = ["Probe", "Trace", "simulate"]


class Trace(NamedTuple):
    """What an experiment measured for one policy.

    ``regret`` is the regret since the task's start at every checkpoint, of shape
    ``(seeds, tasks, checkpoints)``; ``probes`` holds what a probe measured at each task's start,
    ``(seeds, tasks)`` by name.
    """

    regret: Array
    probes: dict[str, Array]


#: Measures a policy when a task starts, from its transfer, its state and the episodes.
Probe = Callable[[Transfer, Any, Sequence[Episode]], dict[str, Array]]


class Player(NamedTuple):
    """A policy in a simulation: what does not change from task to task."""

    transfer: Transfer
    rule: Rule
    form: LoopForm | None
    rng: SeedGenerators
    noise: float | None
    rewards: RewardModel
    intercept: bool = False


class PredrawnNumbers:
    """The random numbers of a task for a rule in loop form: normals and a uniform per round.

    It returns those of the current ``round``, by the methods of a generator that rules use.
    """

    def __init__(self, stack: SeedGenerators, form: LoopForm, rounds: int, dim: int) -> None:
        seeds = len(stack.generators)
        self.uniforms = stack.random((seeds, rounds))
        size = rounds if form.kind == "thompson" else 0
        self.normals = stack.standard_normal((seeds, size, dim))
        self.round = 0

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """The normals of the round."""
        return self.normals[:, self.round]

    def random(self, shape: tuple[int, ...]) -> Array:
        """The uniforms of the round."""
        return self.uniforms[:, self.round]


class SeedGenerators:
    """The generators of a batch of seeds, with the methods of a generator that rules use.

    Each seed has its own, so that its numbers do not depend on the other seeds.
    """

    def __init__(self, seeds: Sequence[int], label: str) -> None:
        code = zlib.crc32(label.encode())
        self.generators = [np.random.default_rng([seed, 2, code]) for seed in seeds]

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Normals of a shape whose first axis is the seeds."""
        return np.stack([rng.standard_normal(shape[1:]) for rng in self.generators])

    def random(self, shape: tuple[int, ...]) -> Array:
        """Uniforms of a shape whose first axis is the seeds."""
        return np.stack([rng.random(shape[1:]) for rng in self.generators])


def simulate(
    world: World,
    policies: Sequence[AnyPolicy],
    seeds: Sequence[int],
    tasks: int,
    rounds: int,
    checkpoints: Sequence[int] | None = None,
    probe: Probe | None = None,
    progress: Callable[[int], None] | None = None,
    engine: str = "auto",
) -> dict[str, Trace]:
    """Play every policy on the same tasks, contexts and noise; each learns from its own choices.

    Parameters
    ----------
    world, seeds
        Where tasks come from: one population per seed.
    policies
        The policies; their names must differ.
    tasks, rounds
        The number of tasks, and of rounds in each.
    checkpoints
        Rounds at which regret is recorded; the last one unless given.
    probe
        Measures something at the start of every task.
    progress
        Called after each task with the number of policy-rounds played.
    engine
        ``"plain"``, ``"compiled"``, or ``"auto"``: compiled if Numba is installed.

    Returns
    -------
    dict of Trace
        The regret of each policy, by name, and what the probe measured.
    """
    loops = compiled_loops(engine)
    names = [policy.name for policy in policies]
    if len(set(names)) < len(names):
        raise InputError(f"policies must have different names; got {names}")
    marks = check_sizes(tasks, rounds, checkpoints)
    if not len(seeds):
        raise InputError("seeds must hold at least one seed; got none")
    populations = [world.population(seed) for seed in seeds]
    check_populations(populations, tasks)
    runs: dict[str, PolicyRun | BanditRun] = {}
    for policy in policies:
        kind = PolicyRun if populations[0].schema is None else BanditRun
        runs[policy.name] = kind(policy.for_populations(populations), populations, seeds)
    for task in range(tasks):
        episodes = [population.episode(task, rounds) for population in populations]
        batch = EpisodeBatch(episodes)
        for run in runs.values():
            if probe is not None:
                run.measure(probe, episodes)
            run.play_task(batch, task == 0, loops, np.asarray(marks))
        if progress is not None:
            progress(rounds * len(seeds) * len(policies))
    return {name: Trace(*run.trace()) for name, run in runs.items()}


class PolicyRun:
    """One policy in a simulation: its player, what it has learned, and what was measured."""

    def __init__(
        self, policy: Policy, populations: Sequence[Population], seeds: Sequence[int]
    ) -> None:
        dim, noise = populations[0].dim, populations[0].noise
        rewards = reward_model(policy.reward, False)
        transfer = policy.transfer.with_constant(policy.intercept)
        if rewards.needs_belief:
            transfer = transfer.with_free_intercept()
        if not transfer.batched:
            transfer = PerSeed(transfer)
        known_noise = rewards.fixed_noise or (noise if policy.knows_noise else None)
        rng, form = SeedGenerators(seeds, policy.name), policy.rule.loop_form()
        self.player = Player(
            transfer, policy.rule, form, rng, known_noise, rewards, policy.intercept
        )
        self.state = transfer.init(dim + policy.intercept, known_noise, (len(seeds),))
        self.regrets: list[Array] = []
        self.probes: dict[str, list[Array]] = {}

    def measure(self, probe: Probe, episodes: Sequence[Episode]) -> None:
        """Let a probe measure the policy before a task."""
        for name, values in probe(self.player.transfer, self.state, episodes).items():
            self.probes.setdefault(name, []).append(values)

    def play_task(self, batch: EpisodeBatch, is_first: bool, loops: Any, marks: Arms) -> None:
        """Play a task, record the regret at the marks, and learn from it."""
        player, transfer = self.player, self.player.transfer
        if player.intercept:
            batch = batch.with_intercept()
        if is_first:
            self.state = transfer.observe_contexts(self.state, batch.contexts[:, 0])
        belief = transfer.prior(self.state).belief()
        logistic = player.rewards.needs_belief
        alone = is_first and (player.noise is None or logistic)
        linear_batch = batch.copy() if logistic else batch
        if loops is None or alone or logistic or not player.form or not belief.loop_arrays():
            lone = LoneTask(transfer, self.state, logistic) if alone else None
            arms, forced = play(player, belief, batch, linear_batch, lone)
        else:
            arms = play_compiled(loops, player, belief, batch)
            first = player.form.forced_rounds(arms.shape[1])
            forced = np.broadcast_to(np.arange(arms.shape[1]) < first, arms.shape)
        self.regrets.append((batch.best - batch.select("values", arms)).cumsum(1)[:, marks - 1])
        if not transfer.prior_is_known(player.noise):
            evidence = linear_batch.evidence(arms, forced if transfer.keeps_forced else None)
            self.state = transfer.fold(self.state, evidence)

    def trace(self) -> Trace:
        """What was measured."""
        probes = {name: np.stack(values, -1) for name, values in self.probes.items()}
        return Trace(np.stack(self.regrets, 1), probes)


class EpisodeBatch:
    """The episodes of one task for a batch of seeds."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.contexts = stack([episode.contexts for episode in episodes])
        self.values = stack([episode.values for episode in episodes])
        self.rewards = stack([episode.rewards for episode in episodes])
        self.best = self.values.max(-1)
        self.offers = [episode.offers for episode in episodes]

    def copy(self) -> EpisodeBatch:
        """The same with contexts and rewards of its own."""
        other = copy.copy(self)
        other.contexts, other.rewards = self.contexts.copy(), self.rewards.copy()
        return other

    def with_intercept(self) -> EpisodeBatch:
        """The same with a constant feature after the others."""
        other = copy.copy(self)
        ones = np.ones((*self.contexts.shape[:-1], 1))
        other.contexts = np.concatenate([self.contexts, ones], -1)
        return other

    def select(self, name: str, arms: Arms) -> Array:
        """The ``contexts``, ``values`` or ``rewards`` of the chosen arms."""
        seeds, rounds = arms.shape
        everything: Array = getattr(self, name)
        return everything[np.arange(seeds)[:, None], np.arange(rounds), arms]

    def seed_evidence(self, seed: int, arms: Any) -> Evidence:
        """The evidence of the first choices of one seed."""
        past = np.arange(len(arms))
        return Evidence.of(self.contexts[seed, past, arms], self.rewards[seed, past, arms])

    def evidence(self, arms: Arms, forced: Any = None) -> Evidence:
        """The evidence of these choices; that of ``forced`` rounds also apart, if given."""
        contexts, rewards = self.select("contexts", arms), self.select("rewards", arms)
        evidence = Evidence.of(contexts, rewards)
        if forced is None:
            return evidence
        part = Evidence.of(contexts * forced[..., None], rewards * forced)
        return evidence.replace(forced=part.replace(rounds=forced.sum(-1).astype(float)))


Arms = npt.NDArray[np.intp]


def stack(parts: Sequence[Array]) -> Array:
    """Arrays of any type as one contiguous array of double precision."""
    return np.ascontiguousarray(np.stack(parts), dtype=np.float64)


def play(
    player: Player,
    belief: BaseBelief,
    batch: EpisodeBatch,
    linear_batch: EpisodeBatch,
    alone: LoneTask | None,
) -> tuple[Arms, Any]:
    """Play one task by the policy's own rule: arms ``(seeds, rounds)``, and which were forced.

    ``linear_batch`` is the batch itself, or a copy in which rounds are replaced by those of the
    linear model that stand for them. ``alone`` is given if no other task determines the scale.
    """
    seeds, rounds, _, dim = batch.contexts.shape
    rows = np.arange(seeds)
    arms = np.empty((seeds, rounds), dtype=np.intp)
    forced = np.zeros((seeds, rounds), dtype=bool)
    rng: Any = player.rng
    if player.form and belief.loop_arrays():
        rng = PredrawnNumbers(player.rng, player.form, rounds, dim)
    for k in range(rounds):
        rng.round = k
        contexts = batch.contexts[:, k]
        pick = player.rule.choose(belief, contexts, rng)
        arms[:, k], forced[:, k] = pick.arm, pick.forced
        context, reward = contexts[rows, pick.arm], batch.rewards[rows, k, pick.arm]
        if linear_batch is not batch:
            context, reward = player.rewards.linearize(belief, context, reward)
            linear_batch.contexts[rows, k, pick.arm] = context
            linear_batch.rewards[rows, k, pick.arm] = reward
        evidence_so_far = functools.partial(linear_batch.evidence, arms[:, : k + 1])
        belief = next_belief(belief, context, reward, k + 1, evidence_so_far, alone)
    return arms, forced


def play_compiled(loops: Any, player: Player, belief: BaseBelief, batch: EpisodeBatch) -> Arms:
    """Play one task by a compiled loop, one seed after another."""
    form = player.form
    assert form is not None
    seeds, rounds, _, dim = batch.contexts.shape
    draws = PredrawnNumbers(player.rng, form, rounds, dim)
    arms = np.empty((seeds, rounds), dtype=np.intp)
    for seed in range(seeds):
        prior = seed_prior(belief.prior, seed)
        own, start = Belief.start(prior), 0
        for stop in [*rebuild_rounds(prior.noise_dof, prior.dim, rounds), rounds]:
            loops.play(
                batch.contexts[seed],
                batch.rewards[seed],
                own.mean.copy(),
                own.root.copy(),
                form.code,
                form.multiplier,
                form.forced,
                draws.normals[seed],
                draws.uniforms[seed],
                own.noise,
                start,
                stop,
                arms[seed],
            )
            start = stop
            if start < rounds:
                own = Belief.of(prior, batch.seed_evidence(seed, arms[seed, :start]))
    return arms


def seed_prior(prior: Prior, seed: int) -> Prior:
    """The prior of one seed of a batch."""
    scalars = (prior.noise, prior.bias, prior.printed_bias, prior.noise_dof)
    each = (float(np.broadcast_to(value, prior.batch)[seed]) for value in scalars)
    return Prior(prior.mean[seed], prior.root[seed], *each)


def compiled_loops(engine: str) -> Any:
    """The compiled loops that an engine uses, if any."""
    checks.one_of("engine", engine, ("auto", "plain", "compiled"))
    if engine == "plain":
        return None
    compiled = load("headstart.kernels.compiled")
    if compiled is None and engine == "compiled":
        raise InputError(
            "engine 'compiled' needs Numba, which is not installed: pip install 'headstart[fast]'"
        )
    return compiled


def check_sizes(tasks: int, rounds: int, checkpoints: Sequence[int] | None) -> list[int]:
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
            raise checks.invalid("tasks", f"at most {population.tasks} in this world", tasks)
