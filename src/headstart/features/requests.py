"""What callers pass to ``choose`` and ``choose_many``: contexts, or a context and actions by name.

Nothing is read here; :mod:`~headstart.features.reader` converts requests to arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.errors import InputError


class Request(NamedTuple):
    """What a caller of ``choose`` has passed by name: a context and the actions on offer."""

    context: Any
    actions: Any


def request_of(contexts: Any, context: Any, actions: Any) -> Any:
    """What was passed to ``choose``: contexts as they are, or a context and actions by name."""
    if context is None and actions is None:
        if contexts is None:
            raise InputError("contexts must be given, or actions; got None")
        return contexts
    if actions is None:
        return Request(context, contexts)
    if contexts is not None:
        raise InputError("contexts and actions must not both be given: they are the same argument")
    return Request(context, actions)


def requests_of(tasks: int, contexts: Any, context: Any, actions: Any) -> list[Request]:
    """What was passed to ``choose_many`` of a bandit with a schema, one request for each task."""
    actions = contexts if actions is None else actions
    if actions is None:
        raise InputError("actions must be given: what is on offer to each task")
    contexts_by_task = [context] * tasks
    if context is not None and not isinstance(context, Mapping):
        contexts_by_task = one_per_task("context", context, tasks, "a dict, or one for each task")
    if is_one_offer(actions):
        return [Request(each, actions) for each in contexts_by_task]
    want = "what is on offer to each task, or to all of them"
    pairs = zip(contexts_by_task, one_per_task("actions", actions, tasks, want), strict=True)
    return [Request(*pair) for pair in pairs]


def is_one_offer(actions: Any) -> bool:
    """Whether actions are those of one decision: a frame, or dicts or ids, not lists of them."""
    if not isinstance(actions, (list, tuple)):
        return True
    return any(isinstance(each, (Mapping, str)) or checks.is_whole(each) for each in actions[:1])


def one_per_task(name: str, value: Any, count: int, want: str) -> list[Any]:
    """A list with one entry for each task."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        got = f"{len(value)}" if isinstance(value, (list, tuple)) else checks.describe(value)
        raise InputError(f"{name} must be {want} ({count} of them); got {got}")
    return list(value)


def plain_contexts(contexts: Any) -> Any:
    """What was passed to a bandit without a schema, which takes contexts as they are."""
    if type(contexts) is not Request:
        return contexts
    if contexts.context is not None:
        raise InputError(
            "context must be part of the rows, or the bandit must have a schema: "
            "headstart.Bandit(headstart.Schema(…))"
        )
    return contexts.actions


def is_ragged(contexts: Any) -> bool:
    """Whether contexts are a list of tables that differ in their number of arms."""
    if isinstance(contexts, (np.ndarray, str, bytes)) or not isinstance(contexts, Sequence):
        return False
    tables = all(
        isinstance(part, (Sequence, np.ndarray)) and np.ndim(part) for part in contexts[:1]
    )
    have_lengths = tables and all(
        hasattr(part, "__len__") and getattr(part, "ndim", 1) > 0 for part in contexts
    )
    return have_lengths and len({len(part) for part in contexts}) > 1
