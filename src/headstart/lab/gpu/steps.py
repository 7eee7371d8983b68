"""What JAX compiles of the learning on a GPU: functions of arrays and records alone.

A compiled function is used again by later experiments of a process with the same transfer and
sizes, whatever their worlds and rules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from headstart.lab.gpu.pytrees import evidence_of
from headstart.lab.gpu.small_matrices import available_kernels
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.own_noise import is_noise_due
from headstart.model.prior import Prior
from headstart.records import fields_of
from headstart.small_matrices import use_kernels

#: Elements from which an array is donated, so that its memory is used for the result.
MIN_DONATED_SIZE = 2**20
COMPILERS = 8  # threads that compile at once


class Constant:
    """A value that is compiled in. Equal values share what is compiled, if they have a hash."""

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            self.key: Any = (type(value), hash(value))
        except TypeError:
            self.key = None

    def __hash__(self) -> int:
        return id(self.value) if self.key is None else hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        if self.value is other.value:
            return True
        return self.key is not None and self.key == other.key and bool(self.value == other.value)


def double_precision() -> Any:
    """Double precision in JAX, here and nowhere else."""
    enable: Any = getattr(jax, "enable_x64", None)
    if enable is None:  # older JAX has it elsewhere
        from jax import experimental

        enable = vars(experimental)["enable_x64"]
    return enable(True)


def with_kernels(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled with the kernels for small matrices that are available."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with use_kernels(available_kernels()):
            return function(*arguments)

    return call


class Group(NamedTuple):
    """Policies whose transfers are the same: one state, stacked along the seeds.

    ``noise`` is R where it is given, ``dim`` the number of features with the intercept, and
    ``forced`` the number of first rounds whose evidence is kept apart, if it is.
    """

    places: tuple[int, ...]
    transfer: Constant
    dim: int
    noise: float | None
    forced: int | None


def sum_rounds(group: Group, contexts: Any, rewards: Any, stop: Any = None) -> Evidence:
    """The evidence of the rounds of a group's policies, or of the first ``stop`` ones."""
    x = jnp.concatenate([contexts[at, ..., : group.dim] for at in group.places]).astype(jnp.float64)
    r = jnp.concatenate([rewards[at] for at in group.places]).astype(jnp.float64)
    if stop is not None:
        seen = 1.0 * (jnp.arange(r.shape[-1]) < stop)
        x, r = x * seen[:, None], r * seen
    apart, first = None, group.forced
    if first is not None:
        apart = evidence_of(x[:, :first], r[:, :first])
    return evidence_of(x, r, apart, stop)


@functools.partial(jax.jit, static_argnums=0)
def sum_tasks(groups: tuple[Group, ...], contexts: Any, rewards: Any) -> list[Evidence]:
    """The evidence of a task, of every group."""
    return [sum_rounds(group, contexts, rewards) for group in groups]


@functools.partial(jax.jit, static_argnums=0)
def start_tasks(groups: tuple[Group, ...], multipliers: Any, parts: Any, priors: Any) -> Any:
    """Means, roots, amounts and S of all policies, where the groups' tasks start from priors."""
    lines = [list(part) for part in parts]
    for group, prior in zip(groups, priors, strict=True):
        put(lines, group, multipliers, prior.mean, prior.root, prior.noise, 0.0, True)
    return tuple(map(jnp.stack, lines))


@functools.partial(jax.jit, static_argnums=0)
@with_kernels
def rebuild(
    groups: tuple[Group, ...],
    multipliers: Any,
    parts: Any,
    states: Any,
    priors: Any,
    contexts: Any,
    rewards: Any,
    stop: Any,
) -> Any:
    """The beliefs in the middle of a task, as :func:`headstart.bandit.task_belief.next_belief`.

    ``states`` are given in the first task, in which no other determines the scale. The result is
    that of :func:`start_tasks`, in which those that are not due stay as they were.
    """
    lines = [list(part) for part in parts]
    for group, state, prior in zip(groups, states, priors, strict=True):
        if group.noise is not None:
            continue
        evidence, due = sum_rounds(group._replace(forced=None), contexts, rewards, stop), True
        if state is None:
            due = is_noise_due(prior.noise_dof, prior.dim, stop)
        else:
            lone = group.transfer.value.single_task_prior(state, evidence)
            fields = {name: getattr(prior, name) for name in fields_of(Prior)}
            prior = Prior.unchecked(**{**fields, "noise_dof": 0.0}) if lone is None else lone
        belief = Belief.of(prior, evidence)
        new = (belief.mean, belief.root, belief.noise, belief.square, due)
        put(lines, group, multipliers, *new)
    return tuple(map(jnp.stack, lines))


def put(lines: Any, group: Group, multipliers: Any, mean: Any, root: Any, *others: Any) -> None:
    """Replace the means, roots, amounts and S of a group's policies, where due.

    ``others`` are R, S, and which are due. Features that a policy does not have get 0.
    """
    rest = (0, lines[0][0].shape[-1] - mean.shape[-1])
    mean, root = jnp.pad(mean, ((0, 0), rest)), jnp.pad(root, ((0, 0), rest, rest))
    whole = (jnp.broadcast_to(jnp.asarray(value), mean.shape[:1]) for value in others)
    columns = (jnp.split(each, len(group.places)) for each in (mean, root, *whole))
    for at, own_mean, own_root, noise, square, due in zip(group.places, *columns, strict=True):
        new = (own_mean, own_root, multipliers[at] * noise, square)
        for line, value in zip(lines, new, strict=True):
            mask = due.reshape(-1, *(1,) * (value.ndim - 1))
            line[at] = jnp.where(mask, value.astype(line[at].dtype), line[at])


def fold(transfer: Constant, structure: Any, large: Any, small: Any, evidence: Evidence) -> Any:
    """The state after a task, and its prior, from the arrays of the state by their indices.

    ``structure`` is the state's pytree structure; the memory of ``large`` arrays is reused.
    """
    leaves = [leaf for _, leaf in sorted({**large, **small}.items())]
    state = transfer.value.fold(jax.tree_util.tree_unflatten(structure, leaves), evidence)
    return state, transfer.value.prior(state)


class FoldStep:
    """Folds a task's evidence into a transfer's state, by a function compiled for its sizes.

    Compiling takes long and has no need for the GPU: :meth:`prepare` starts it in other threads.
    """

    compiled: dict[Any, Future[Any]] = {}  # noqa: RUF012  (shared by all)
    threads: ThreadPoolExecutor | None = None

    def __init__(self, transfer: Constant) -> None:
        self.transfer = transfer
        self.function: Any = None

    def __call__(self, state: Any, evidence: Evidence, resized: bool) -> tuple[Any, Prior]:
        """The state after a task, and its prior; ``resized`` says that the state has a new size."""
        structure, large, small = split(state)
        if resized or self.function is None:
            self.function = self.compile(structure, large, small, evidence).result()
        after, prior = self.function(large, small, evidence)
        return after, prior

    def prepare(self, state: Any, evidence: Any) -> None:
        """Start to compile for a state and evidence whose arrays have the shapes of these."""
        self.compile(*split(state), evidence)

    def compile(self, structure: Any, large: Any, small: Any, evidence: Any) -> Future[Any]:
        """The function compiled for these shapes: an earlier one, or one from another thread."""
        leaves, kind = jax.tree_util.tree_flatten((large, small, evidence))
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = (self.transfer, structure, kind, shapes)
        if key not in self.compiled:
            function = functools.partial(with_kernels(fold), self.transfer, structure)
            lowered = jax.jit(function, donate_argnums=0).lower(large, small, evidence)
            if FoldStep.threads is None:
                FoldStep.threads = ThreadPoolExecutor(COMPILERS, "compile")
            self.compiled[key] = FoldStep.threads.submit(compile_in_double_precision, lowered)
        return self.compiled[key]


def split(state: Any) -> tuple[Any, dict[int, Any], dict[int, Any]]:
    """The pytree structure of a state, its large arrays and its small ones, by their indices."""
    leaves, structure = jax.tree_util.tree_flatten(state)
    is_large = [leaf.size >= MIN_DONATED_SIZE for leaf in leaves]
    large = {at: leaf for at, leaf in enumerate(leaves) if is_large[at]}
    return structure, large, {at: leaf for at, leaf in enumerate(leaves) if not is_large[at]}


def compile_in_double_precision(lowered: Any) -> Any:
    """Compile a lowered function in double precision, which threads do not inherit."""
    with double_precision():
        return lowered.compile()
