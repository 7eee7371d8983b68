"""What a file says of a bandit, checked as if a user had passed it.

A file's digest has no key: anyone can change a file and make its digest right again. So nothing
that was read is taken for granted. Sizes are compared with the numbers that are there before
anything is allocated, and whatever no bandit can have is refused, by an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit import settings
from headstart.bandit.ledger.entries import EPOCHS, Window
from headstart.bandit.ledger.ledger import Base
from headstart.errors import InputError
from headstart.features.contexts import Features, Sizes
from headstart.model.base import BaseBelief, BasePrior
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence, fault_in, packed_size
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array, Record, check_like, flatten
from headstart.transfer import Transfer

__all__ = [
    "check_base",
    "check_belief",
    "check_evidence",
    "check_numbers",
    "check_prior",
    "check_size",
    "check_state",
    "checked_features",
    "count",
    "epochs",
    "flag",
    "key_of",
    "listed",
    "marks",
    "names",
    "seed_of",
    "sizes_of",
    "windows",
]

MOST = 2**62  # rounds, choices: what is counted stays far below what 64 bits hold
LARGEST = 1e150  # numbers whose squares are finite
BELIEVED = 1e120  # and that may be multiplied by contexts besides
KEY = 16  # bytes of the key that tokens are sealed with
SMALL, OWN = 256, 4096  # dimensions that no array need show: of our transfers, of a user's own
COUNTS = {"past.count", "past.precision", "finished", "fit.noise", "fit.freedom"}  # never below 0
COUNTS |= {"tasks.rounds", "tasks.squares", "tasks.weight", "tasks.noise"}
#: What is a sum of outer products, or a covariance, by the last part of its name.
SYMMETRIC = {"gram", "second", "covariance", "error", "errors", "blanks", "scatter", "squared"}
SYMMETRIC |= {"candidates", "roots"}
TASKS = 1e15  # more than anybody has
TRIED = 32  # the largest dimension in which a task is folded to try a state out
TOGETHER = 2**15  # numbers of evidence that are looked at together


def flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise checks.refuse(name, "true or false", value)
    return value


def count(name: str, value: object) -> int:
    """How many of something."""
    return checks.integer(name, value, 0, MOST)


def listed(name: str, value: object, length: int) -> list[Any]:
    """A list with so many entries."""
    if not isinstance(value, list) or len(value) != length:
        raise checks.refuse(name, f"a list of {length}", value)
    return value


def names(name: str, value: object, among: Mapping[str, Any] | None = None) -> list[str]:
    """Task ids, each once; all of them ``among`` some others, where these are given."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise checks.refuse(name, "a list of task ids", value)
    once = set(value)
    if len(once) < len(value):
        raise InputError(f"{name} must hold every task once; got some twice")
    if among is not None:
        if not once <= among.keys():
            odd = checks.describe(min(once - among.keys()))
            raise InputError(f"{name} must hold known task ids; got {odd}")
    elif value and not (min(map(len, value)) >= 1 and max(map(len, value)) <= 1000):
        raise InputError(f"{name} must hold task ids of 1 to 1000 characters; got others")
    else:
        "".join(value).encode()
    return value


def marks(value: object, tasks: Mapping[str, Any]) -> dict[str, int]:
    """The bits of choices that were learned from, by task."""
    if not isinstance(value, dict):
        raise checks.refuse("learned", "bits by task id", value)
    for name, bits in value.items():
        if name not in tasks:
            raise InputError(f"learned must hold known task ids; got {checks.describe(name)}")
        if not isinstance(bits, str) or not re.fullmatch("0x[0-9a-f]+", bits):
            raise checks.refuse("learned", "bits as hexadecimal numbers", bits)
    return {name: int(bits, 16) for name, bits in value.items()}


def epochs(column: npt.NDArray[Any], tasks: int) -> list[int]:
    """The epoch of every task's numbers."""
    if column.shape != (tasks,) or column.dtype != np.uint64:
        raise checks.refuse("epoch", f"{tasks} whole numbers", column)
    found: list[int] = column.tolist()
    return found


def windows(value: object, tasks: Mapping[str, Any], memory: int) -> dict[str, tuple[Window, ...]]:
    """What is known of the choices of other epochs, by task."""
    if not isinstance(value, dict):
        raise checks.refuse("others", "choices of other epochs by task id", value)
    found: dict[str, tuple[Window, ...]] = {}
    for name, listed_windows in value.items():
        if name not in tasks:
            raise InputError(f"others must hold known task ids; got {checks.describe(name)}")
        if not isinstance(listed_windows, list) or not 0 < len(listed_windows) <= EPOCHS:
            raise checks.refuse("others", f"up to {EPOCHS} epochs for a task", listed_windows)
        known = [window_of(window, memory) for window in listed_windows]
        if known != sorted(known, key=lambda window: window[0]):
            raise InputError("others must hold epochs in order; got others")
        found[name] = tuple(known)
    return found


def window_of(value: object, memory: int) -> Window:
    """What is known of the choices of one other epoch."""
    epoch, base, bits = listed("others", value, 3)
    if not isinstance(bits, str) or not re.fullmatch("0x[0-9a-f]+", bits):
        raise checks.refuse("others", "bits as hexadecimal numbers", bits)
    learned = int(bits, 16)
    if learned.bit_length() > memory:
        raise InputError(f"no more than {memory} choices of a task can be open; got more")
    return checks.integer("others", epoch, 0, 2**64 - 1), count("others", base), learned


def seed_of(value: object) -> int:
    """A seed, from its decimal digits."""
    if not isinstance(value, str) or not re.fullmatch("[0-9]+", value):
        raise checks.refuse("seed", "a whole number 0 or more, as text", value)
    return int(value)


def key_of(value: object) -> bytes:
    """The key of the bandit's tokens, from its hexadecimal digits."""
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * KEY}}}", value):
        raise checks.refuse("origin", f"a key of {KEY} bytes, as text", value)
    return bytes.fromhex(value)


def checked_features(value: object) -> Features:
    """What contexts are made of."""
    if not isinstance(value, dict):
        raise checks.refuse("features", "what the columns of a context are", value)
    known: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in value.items()
    }
    features = Features(**known)
    given = checks.integer("features.given", features.given, 1, MOST)
    flag("features.intercept", features.intercept)
    if features.names is not None:
        labels = listed("features.names", value["names"], given)
        if not all(isinstance(label, str) for label in labels) or len(set(labels)) < given:
            raise checks.refuse("features.names", "distinct texts", labels)
    if (features.shift is None) != (features.scale is None):
        raise InputError("features must have both a shift and a scale, or neither; got one")
    for name in ("shift", "scale"):
        if getattr(features, name) is not None:
            check = checks.real if name == "shift" else checks.positive
            for number in listed(f"features.{name}", value[name], given):
                check(f"features.{name}", number)
    return features


def sizes_of(array: npt.NDArray[Any], given: int) -> Sizes:
    """How large features usually are."""
    if array.shape != (5, given) or array.dtype != np.float64:
        raise checks.refuse("sizes", f"an array of shape {(5, given)}", array)
    array = checks.finite_array("sizes", array, "finite")
    seen, logs, origin = array[:2], array[2:4], array[4]
    wrong = (seen < 0) | (np.abs(logs) > 800.0 * np.maximum(seen, 0.0))
    if wrong.any() or (np.abs(origin) > LARGEST).any():
        raise InputError("sizes must be counts and logarithms of values; got others")
    return Sizes(seen, logs, origin)


def check_size(dim: int, transfer: Transfer, arrays: Collection[Any]) -> None:
    """Refuse a dimension that the numbers at hand do not bear out, before room is made for it.

    Any bandit with a task has evidence of d²/2 numbers, and the state of a transfer d² or more. An
    oracle has its truth instead. A transfer of a user's own may need less, and is believed up to
    d = 4,096.
    """
    known: dict[str, Any] = getattr(transfer, "__dataclass_fields__", {})
    given = [getattr(transfer, name) for name in known]
    shown = any(isinstance(value, np.ndarray) and value.shape[-1:] == (dim,) for value in given)
    numbers = sum(sum(part.size for part in array) for array in map(in_parts, arrays))
    free = SMALL if settings.is_known(transfer) else OWN
    if dim > free and not shown and numbers < dim * dim // 2:
        raise InputError(f"features must fit the {numbers} numbers in the file; got {dim} features")


def in_parts(array: Any) -> Sequence[npt.NDArray[Any]]:
    """An array, or the rows of a matrix."""
    return array if isinstance(array, list) else [array]


def check_evidence(rows: Any, tasks: Sequence[str], dim: int, forced: bool) -> None:
    """Refuse packed evidence of tasks that no rounds can have."""
    if len(rows) != len(tasks):
        raise InputError(
            f"evidence must have a row for each of {len(tasks)} tasks; got {len(rows)}"
        )
    width = packed_size(dim) * (2 if forced else 1)
    if not tasks:
        return
    if not isinstance(rows, list) or rows[0].shape != (width,) or rows[0].dtype != np.float64:
        raise checks.refuse("evidence", f"rows of {width} numbers", rows[0])
    several = max(1, TOGETHER // width)
    for start in range(0, len(rows), several):
        block = np.concatenate(rows[start : start + several]).reshape(-1, width)
        fault = fault_in(block, dim, LARGEST)
        if fault is not None:
            name = checks.describe(tasks[start + fault[0]])
            raise InputError(f"evidence of task {name} must be sums of rounds; got {fault[1]}")


def check_numbers(
    columns: dict[str, npt.NDArray[Any]], learned: dict[str, int], tasks: Sequence[str], memory: int
) -> None:
    """Refuse numbers of choices that do not fit each other."""
    for name, column in columns.items():
        if column.shape != (len(tasks),) or column.dtype != np.int64:
            raise checks.refuse(name, f"{len(tasks)} whole numbers", column)
        if column.size and not (column.min() >= 0 and column.max() <= MOST):
            raise InputError(f"{name} must be from 0 to {MOST} for every task; got another number")
    start, base, number = columns["start"], columns["base"], columns["number"]
    if not ((start <= base) & (base <= number)).all():
        raise InputError("the numbers of choices must be in order; got others")
    if ((number - base) > min(memory, MOST)).any():
        raise InputError(f"no more than {memory} choices of a task can be open; got more")
    room = dict(zip(tasks, (number - base).tolist(), strict=True)) if learned else {}
    for name, bits in learned.items():
        if bits.bit_length() > room[name]:
            raise InputError(f"learned must hold choices that were made; got others in {name!r}")


def rounds(columns: dict[str, npt.NDArray[Any]], total: int, dim: int) -> Iterator[Any]:
    """Rounds from their contexts, rewards and marks, if there are any."""
    if not total and not columns:
        return
    context, reward, forced = (columns[name] for name in ("context", "reward", "forced"))
    wanted = ((context, (total, dim)), (reward, (total,)))
    for array, shape in wanted:
        if array.shape != shape or array.dtype != np.float64:
            raise checks.refuse("pending", f"rounds, in an array of shape {shape}", array)
        if not np.abs(array).max(initial=0.0) <= LARGEST:
            raise InputError("pending must hold finite contexts and rewards; got others")
    if forced.shape != (total,) or forced.dtype != np.bool_:
        raise checks.refuse("pending", f"{total} marks of forced rounds", forced)
    yield from zip(context, reward.tolist(), forced.tolist(), strict=True)


def check_state(transfer: Transfer, state: Any, template: Any, dim: int) -> None:
    """Refuse a state that the transfer does not make; of a user's own, anything may be right.

    It must be built like the first one, and tell a prior. Where it takes little time, a task as the
    prior expects them is folded as well: what comes of it is thrown away.
    """
    if not settings.is_known(transfer):
        return
    check_like(state, template)
    check_symmetric(flatten(state))
    for name, array in flatten(state).items():
        if np.isfinite(array).all() and float(np.abs(array).max(initial=0.0)) > LARGEST:
            raise InputError(f"state.{name} must be below {LARGEST:g}; got more")
        # The rounding of what was subtracted is no fault.
        size = state.finished / state.fit.noise**2 if name == "past.precision" else 1.0
        if name in COUNTS and float(array.min(initial=0.0)) < -1e-6 * max(size, 1.0):
            raise InputError(f"state.{name} must be 0 or more; got less")
        if (
            name.endswith(("count", "finished", "tasks.weight"))
            and float(array.max(initial=0.0)) > TASKS
        ):
            raise InputError(f"state.{name} must be {TASKS:g} tasks at most; got more")
        if name.endswith(".log_weights"):
            check_weights(f"state.{name}", array)
        if name.startswith("options.") and name.endswith((".noise", ".freedom")):
            for number in array.flat:
                checks.positive(f"state.{name}", float(number))
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        prior = transfer.prior(state)
        if dim <= TRIED:
            task = Evidence.of(np.eye(dim), prior.mean + prior.noise)
            task = task.replace(forced=task if transfer.keeps_forced else None)
            folded = transfer.fold(state, task)
            transfer.prior(folded)
            if transfer.reversible:
                transfer.prior(transfer.fold(folded, task, -1.0))


def check_symmetric(arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Refuse matrices of a state that differ from their transposes, or negative variances.

    Sums from which all was subtracted are rounding: small beside the others, and not symmetric.
    """
    found = {
        name: array
        for name, array in arrays.items()
        if name.rpartition(".")[2] in SYMMETRIC and array.ndim > 1 and np.isfinite(array).all()
    }
    sizes = {name: float(np.abs(array).max(initial=0.0)) for name, array in found.items()}
    for name, array in found.items():
        others = max((size for other, size in sizes.items() if other != name), default=0.0)
        allowed = 1e-6 * np.maximum(np.abs(array).max((-1, -2), initial=0.0), others)
        gap = np.abs(array - array.swapaxes(-1, -2)).max((-1, -2), initial=0.0)
        if not (gap <= allowed).all():
            raise InputError(f"state.{name} must be symmetric; got a matrix that is not")
        if name.endswith("covariance") and float(array.diagonal(0, -2, -1).min(initial=0.0)) < 0:
            raise InputError(f"state.{name} must hold variances of 0 or more; got less")


def check_base(base: Any, dim: int) -> None:
    """Refuse tasks that a bandit cannot have begun with."""
    if base is None:
        return
    if not isinstance(base, Base):
        raise checks.refuse("base", "the state and the sums of tasks, or nothing", base)
    checks.non_negative("base.tasks", base.tasks)
    if not isinstance(base.pooled, Evidence):
        raise checks.refuse("base.pooled", "Evidence", base.pooled)
    pooled = base.pooled.replace()  # checked, as it is made anew
    if pooled.moment.shape != (dim,):
        raise checks.refuse("base.pooled", f"Evidence of dimension {dim}", pooled.moment)
    fault = fault_in(pooled.replace(forced=None).pack()[None], dim)
    if fault is not None:
        raise InputError(f"base.pooled must be sums of rounds; got {fault[1]}")


def check_prior(name: str, prior: Any, dim: int, groups: tuple[int, ...] = ()) -> None:
    """Refuse a prior that no task can start from."""
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    if not isinstance(parts, BasePrior):
        raise checks.refuse(name, "a prior", prior)
    if not isinstance(parts, Prior):
        check_own(name, parts, dim)
        return
    if isinstance(prior, MixturePrior):
        groups = check_weights(name, prior.log_weights)
    check_moderate(name, parts)
    anew = parts.replace()  # checked, as it is made anew
    if parts.mean.shape != (*groups, dim):
        raise checks.refuse(name, f"a prior whose mean has shape {(*groups, dim)}", anew.mean)


def check_own(name: str, own: BasePrior | BaseBelief, dim: int) -> None:
    """Refuse a prior or a belief of a user's own kind with impossible numbers or dimensions."""
    check_moderate(name, own)
    if own.dim != dim or own.batch != ():
        raise checks.refuse(name, f"one task's, with {dim} features", own)
    checks.positive(f"{name}.noise", own.noise)
    checks.non_negative(f"{name}.rounds", getattr(own, "rounds", 0.0))


def check_moderate(name: str, believed: Record) -> None:
    """Refuse numbers with which no reward could be predicted."""
    for field, array in flatten(believed).items():
        if field.endswith("bias"):  # which may be infinite, and is checked with the prior
            continue
        if array.ndim and array.dtype not in (np.float32, np.float64):
            raise checks.refuse(f"{name}.{field}", "floating-point numbers", array)
        if not float(np.abs(array).max(initial=0.0)) <= BELIEVED:
            raise InputError(f"{name} must have a {field} below {BELIEVED:g}; got more")


def check_weights(name: str, logs: Any) -> tuple[int, ...]:
    """How many groups there are, refused if these are no logarithms of their weights."""
    array = checks.finite_array(name, logs, "the logarithms of weights", ndim=1)
    if not array.size or abs(float(np.exp(np.minimum(array, 1.0)).sum()) - 1.0) > 1e-6:
        raise InputError(f"{name} must have weights that add up to 1; got others")
    return array.shape


def check_belief(name: str, belief: BaseBelief, prior: Any, dim: int) -> None:
    """Refuse a belief (without its prior) that cannot have come of a prior."""
    groups: tuple[int, ...] = ()
    parts: Any = belief
    if isinstance(belief, MixtureBelief):
        groups, parts = check_weights(name, belief.log_weights), belief.parts
        if check_weights(name, belief.log_start) != groups:
            raise checks.refuse(name, f"a belief with {groups[0]} groups", belief.log_start)
    if not isinstance(parts, BaseBelief):
        raise checks.refuse(name, "a belief", parts)
    check_prior(name, prior, dim, groups)
    if not isinstance(parts, Belief):
        check_own(name, parts.with_prior(prior), dim)
        return
    check_moderate(name, parts.replace(prior=None))
    shapes = {"mean": (*groups, dim), "root": (*groups, dim, dim)}
    for field in ("mean", "root", "information", "rounds", "noise", "square", "scale"):
        array: Array = checks.finite_array(f"{name}.{field}", getattr(parts, field), "numbers")
        shape = shapes.get(field, groups)
        if array.shape != shape and not (field == "noise" and array.shape == ()):
            raise checks.refuse(f"{name}.{field}", f"of shape {shape}", array)
        if field in ("rounds", "square", "scale") and (array < 0).any():
            raise InputError(f"{name}.{field} must be 0 or more; got less")
        if field == "noise" and (array <= 0).any():
            raise InputError(f"{name}.noise must be positive; got one that is not")
