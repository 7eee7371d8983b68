"""Records as JAX pytrees, so that compiled functions take and return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from headstart.model.evidence import Evidence
from headstart.records import fields_of, types_in

REGISTERED: set[type[Any]] = set()  # JAX refuses a second registration


def register(state: object) -> None:
    """Let JAX take apart the records that a nested state is made of, and put them together."""
    for kind in types_in(state).values():
        if kind not in REGISTERED and not issubclass(kind, tuple):  # JAX knows named tuples
            REGISTERED.add(kind)
            jax.tree_util.register_pytree_node(kind, *pytree_functions(kind))


def pytree_functions(kind: type[Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How to take a type of record apart: its arrays are children, its numbers constants."""
    names = fields_of(kind)  # type: ignore[arg-type]

    def flatten(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        values = {name: getattr(record, name) for name in names}
        constants = {name: value for name, value in values.items() if is_constant(value)}
        children = [name for name in names if name not in constants]
        return [values[name] for name in children], (tuple(children), tuple(constants.items()))

    def unflatten(structure: Any, values: Any) -> Any:
        children, constants = structure
        return kind.unchecked(**dict(constants), **dict(zip(children, values, strict=True)))

    return flatten, unflatten


def is_constant(value: object) -> bool:
    """Whether a field holds a number or text, which is compiled into the function."""
    return value is None or isinstance(value, (bool, int, float, str))


def evidence_of(
    contexts: Any, rewards: Any, forced: Evidence | None = None, rounds: Any = None
) -> Evidence:
    """The evidence of rounds in JAX's arrays, of shapes ``(..., n, d)`` and ``(..., n)``.

    ``rounds`` is how many of them count, if not all do: the others are 0.
    """
    gram: Any = jnp.einsum("...ni,...nj->...ij", contexts, contexts)
    moment: Any = jnp.einsum("...n,...ni->...i", rewards, contexts)
    number = jnp.full(rewards.shape[:-1], 1.0 * (rewards.shape[-1] if rounds is None else rounds))
    return Evidence.unchecked(gram, moment, number, (rewards**2).sum(-1), forced)
