"""Checks of what was read from a file, as if a user had passed it.

The digest of a file has no key: anyone can change a file and compute its digest again. So nothing
that was read is trusted. Sizes are compared with the numbers that are present before anything is
allocated, and whatever no bandit can have is refused by an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import max_abs
from headstart.bandit.ledger.entries import (
    MAX_EPOCHS,
    ChoiceWindow,
    Round,
    TaskEntry,
)
from headstart.bandit.ledger.prior_state import StartingFit
from headstart.errors import InputError
from headstart.features.conversion import MAX_VALUE, Features
from headstart.features.transformer import AnyEncoder
from headstart.features.usual_sizes import UsualSizes
from headstart.model.base import BaseBelief, BasePrior
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence, find_fault, packed_size
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.prior import MAX_ENTRY, Prior
from headstart.records import Array, Record, check_like, flatten
from headstart.transfer import Transfer

MAX_COUNT = 2**62  # of rounds and choices: far below what 64 bits hold
MAX_BELIEF_NUMBER = 1e120  # which may be multiplied by contexts besides
KEY_BYTES = 16  # of the key of tokens
MAX_UNPROVEN_DIM = 256  # a dimension that no array needs to show,
MAX_UNPROVEN_DIM_FOREIGN = 4096  # and the same with a transfer that is not of this library
#: Sums of outer products and covariances, by the last part of their names.
SYMMETRIC = {"gram", "second", "covariance", "error", "errors", "squared_bias", "scatter"}
SYMMETRIC |= {"known_squared", "candidates", "information"}
MAX_TASKS = 1e15
MAX_TRIAL_DIM = 32  # in which a task is folded to try a state
BLOCK_NUMBERS = 2**15  # of evidence that are checked at a time


def check_count(name: str, value: object) -> int:
    """A number of things."""
    return checks.integer(name, value, 0, MAX_COUNT)


def check_list(name: str, value: object, length: int | None = None) -> list[Any]:
    """A list, of this length where it is given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise checks.invalid(name, "a list" if length is None else f"a list of {length}", value)
    return value


def check_task_ids(name: str, value: object, known_ids: Container[str] | None = None) -> list[str]:
    """Task ids, each once; only ``known_ids``, where these are given."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise checks.invalid(name, "a list of task ids", value)
    if len(set(value)) < len(value):
        raise InputError(f"{name} must hold every task once; got some twice")
    if known_ids is not None:
        for each in value:
            if each not in known_ids:
                raise InputError(f"{name} must hold known task ids; got {checks.describe(each)}")
    elif value and not (min(map(len, value)) >= 1 and max(map(len, value)) <= 1000):
        raise InputError(f"{name} must hold task ids of 1 to 1000 characters; got others")
    else:
        "".join(value).encode()
    return value


def check_text(name: str, value: object, pattern: str, want: str) -> str:
    """Text that matches a regular expression as a whole."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise checks.invalid(name, want, value)
    return value


def parse_bits(name: str, value: object) -> int:
    """The bits of choices that were learned from, from hexadecimal digits."""
    return int(check_text(name, value, "0x[0-9a-f]+", "bits as hexadecimal numbers"), 16)


def parse_windows(value: object, size: int) -> tuple[ChoiceWindow, ...]:
    """The windows of the other epochs of a task, each of at most ``size`` choices."""
    name = "other_windows"
    if not isinstance(value, list) or not 0 < len(value) <= MAX_EPOCHS:
        raise checks.invalid(name, f"up to {MAX_EPOCHS} epochs for a task", value)
    windows = []
    for window in value:
        epoch, start, bits = check_list(name, window, 3)
        epoch = checks.integer(name, epoch, 0, 2**64 - 1)
        windows.append(ChoiceWindow(epoch, check_count(name, start), parse_bits(name, bits)))
        check_window_size(windows[-1].learned_bits.bit_length(), size)
    if windows != sorted(windows, key=lambda window: window.epoch):
        raise InputError(f"{name} must hold epochs in order; got others")
    return tuple(windows)


def check_window_size(choices: int, size: int) -> None:
    """Refuse more open choices than the window holds."""
    if choices > size:
        raise InputError(f"no more than {size} choices of a task can be open; got more")


def parse_seed(value: object) -> int:
    """A seed, from its decimal digits."""
    return int(check_text("seed", value, "[0-9]+", "a whole number 0 or more, as text"))


def parse_key(value: object) -> bytes:
    """The key of the bandit's tokens, from its hexadecimal digits."""
    want = f"a key of {KEY_BYTES} bytes, as text"
    return bytes.fromhex(check_text("origin", value, f"[0-9a-f]{{{2 * KEY_BYTES}}}", want))


def parse_features(value: object) -> Features:
    """The columns of contexts."""
    if not isinstance(value, dict):
        raise checks.invalid("features", "what the columns of a context are", value)
    fields: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in value.items()
    }
    features = Features(**fields)
    dim = checks.integer("features.context_dim", features.context_dim, 1, MAX_COUNT)
    checks.flag("features.intercept", features.intercept)
    if features.names is not None:
        labels = check_list("features.names", value["names"], dim)
        if not all(isinstance(label, str) for label in labels) or len(set(labels)) < dim:
            raise checks.invalid("features.names", "distinct texts", labels)
    if (features.shift is None) != (features.scale is None):
        raise InputError("features must have both a shift and a scale, or neither; got one")
    for name in ("shift", "scale"):
        if getattr(features, name) is not None:
            check = checks.real if name == "shift" else checks.positive
            for number in check_list(f"features.{name}", value[name], dim):
                check(f"features.{name}", number)
    return features


def check_encoder(encoder: AnyEncoder | None, features: Features) -> None:
    """Refuse a schema whose columns are not the features."""
    if encoder is not None and encoder.feature_names != features.names:
        raise InputError("schema must have the columns that features names; got others")


def check_array(
    name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: type[np.generic] = np.float64
) -> npt.NDArray[Any]:
    """An array of this shape and type."""
    if array.shape != shape or array.dtype != dtype:
        raise checks.invalid(name, f"an array of shape {shape} and type {dtype.__name__}", array)
    return array


def parse_sizes(array: npt.NDArray[Any], dim: int) -> UsualSizes:
    """The usual sizes of features."""
    array = checks.finite_array("sizes", check_array("sizes", array, (5, dim)), "finite")
    counts, log_sums, origin = array[:2], array[2:4], array[4]
    wrong = (counts < 0) | (np.abs(log_sums) > 800.0 * np.maximum(counts, 0.0))
    if wrong.any() or (np.abs(origin) > MAX_ENTRY).any():
        raise InputError("sizes must be counts and logarithms of values; got others")
    return UsualSizes(counts, log_sums, origin)


def check_dimension(dim: int, transfer: Transfer, arrays: Collection[Any]) -> None:
    """Refuse a dimension that does not fit the numbers in the file, before memory is allocated.

    Any bandit with a task has evidence of d²/2 numbers, and the state of a transfer d² or more. An
    oracle has its truth instead. A user's own transfer may need less, and is accepted up to d =
    4,096.
    """
    fields: dict[str, Any] = getattr(transfer, "__dataclass_fields__", {})
    settings = [getattr(transfer, name) for name in fields]
    has_truth = any(
        isinstance(value, np.ndarray) and value.shape[-1:] == (dim,) for value in settings
    )
    parts = (array if isinstance(array, list) else [array] for array in arrays)
    numbers = sum(part.size for several in parts for part in several)
    free = MAX_UNPROVEN_DIM if transfer.fixed_layout else MAX_UNPROVEN_DIM_FOREIGN
    if dim > free and not has_truth and numbers < dim * dim // 2:
        raise InputError(f"features must fit the {numbers} numbers in the file; got {dim} features")


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
        raise checks.invalid("evidence", f"rows of {width} numbers", rows[0])
    several = max(1, BLOCK_NUMBERS // width)
    for start in range(0, len(rows), several):
        block = np.concatenate(rows[start : start + several]).reshape(-1, width)
        fault = find_fault(block, dim, MAX_ENTRY)
        if fault is not None:
            name = checks.describe(tasks[start + fault[0]])
            raise InputError(f"evidence of task {name} must be sums of rounds; got {fault[1]}")


def check_columns(
    columns: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, type[np.generic]], length: int
) -> None:
    """Refuse columns of numbers that are not one for each task."""
    for name, column in columns.items():
        check_array(name, column, (length,), dtypes[name])
        if column.dtype == np.int64 and not ((column >= 0) & (column <= MAX_COUNT)).all():
            raise InputError(f"{name} must be from 0 to {MAX_COUNT}; got another number")


def check_windows(entries: Mapping[str, TaskEntry], size: int) -> None:
    """Refuse numbers of choices that do not fit each other."""
    for name, entry in entries.items():
        if not entry.first_number <= entry.window_start <= entry.next_number:
            raise InputError("the numbers of choices must be in order; got others")
        choice_count = entry.next_number - entry.window_start
        check_window_size(choice_count, size)
        if entry.learned_bits.bit_length() > choice_count:
            raise InputError(
                f"learned_bits must hold choices that were made; got others in {name!r}"
            )


def parse_rounds(columns: Mapping[str, npt.NDArray[Any]], total: int, dim: int) -> Iterator[Round]:
    """Rounds from their contexts, rewards and marks, if there are any."""
    if not total and not columns:
        return
    context, reward, forced = (columns[name] for name in ("context", "reward", "forced"))
    for array, shape in ((context, (total, dim)), (reward, (total,))):
        if not max_abs(check_array("pending", array, shape)) <= MAX_ENTRY:
            raise InputError("pending must hold finite contexts and rewards; got others")
    check_array("pending", forced, (total,), np.bool_)
    yield from zip(context, reward.tolist(), forced.tolist(), strict=True)


def check_state(transfer: Transfer, state: Any, template: Any, dim: int) -> None:
    """Refuse a state that the transfer cannot have; that of a user's own is not restricted.

    It must be built like the first one, and give a prior. Where it takes little time, a task as the
    prior expects them is folded as well, and the result is discarded.
    """
    if not transfer.fixed_layout:
        return
    check_like(state, template)
    check_symmetric(flatten(state))
    for name, array in flatten(state).items():
        if np.isfinite(array).all() and max_abs(array) > MAX_ENTRY:
            raise InputError(f"state.{name} must be below {MAX_ENTRY:g}; got more")
        given = name.endswith(("given_noise", "known_noise"))  # 0 where it is not given
        if given and 0.0 < float(array.max(initial=0.0)) < checks.MIN_POSITIVE:
            raise InputError(
                f"state.{name} must be 0, or {checks.MIN_POSITIVE:g} or more; got less"
            )
        tasks = name.endswith(("count", "tasks.weight"))
        if tasks and float(array.max(initial=0.0)) > MAX_TASKS:
            raise InputError(f"state.{name} must be {MAX_TASKS:g} tasks at most; got more")
        if tasks and float(array.min(initial=0.0)) < -1e-6:  # beyond the rounding of subtraction
            raise InputError(f"state.{name} must be 0 or more; got less")
    transfer.check_state(state)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        prior = transfer.prior(state)
        if dim <= MAX_TRIAL_DIM:
            # Contexts so small that rewards are no larger than those that are accepted.
            size = 1.0 / np.maximum(np.abs(prior.mean) / MAX_VALUE, 1.0)
            task = Evidence.of(np.diag(size), size * prior.mean + prior.noise)
            task = task.replace(forced=task if transfer.keeps_forced else None)
            state_with_task = transfer.fold(state, task)
            transfer.prior(state_with_task)
            if transfer.reversible:
                transfer.prior(transfer.fold(state_with_task, task, -1.0))


def check_symmetric(arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Refuse matrices of a state that differ from their transposes, or negative variances.

    Sums from which all was subtracted are rounding: small beside the others, and not symmetric.
    """
    matrices = {
        name: array
        for name, array in arrays.items()
        if name.rpartition(".")[2] in SYMMETRIC and array.ndim > 1 and np.isfinite(array).all()
    }
    sizes = {name: max_abs(array) for name, array in matrices.items()}
    for name, array in matrices.items():
        others = max((size for other, size in sizes.items() if other != name), default=0.0)
        allowed = 1e-6 * np.maximum(np.abs(array).max((-1, -2), initial=0.0), others)
        gap = np.abs(array - array.swapaxes(-1, -2)).max((-1, -2), initial=0.0)
        if not (gap <= allowed).all():
            raise InputError(f"state.{name} must be symmetric; got a matrix that is not")
        if name.endswith("covariance") and float(array.diagonal(0, -2, -1).min(initial=0.0)) < 0:
            raise InputError(f"state.{name} must hold variances of 0 or more; got less")


def check_starting_fit(base: Any, dim: int) -> None:
    """Refuse a fit that no bandit can have started from."""
    if base is None:
        return
    if not isinstance(base, StartingFit):
        raise checks.invalid("base", "the state and the sums of tasks, or nothing", base)
    checks.non_negative("base.task_count", base.task_count)
    if not isinstance(base.pooled, Evidence):
        raise checks.invalid("base.pooled", "Evidence", base.pooled)
    pooled = base.pooled.replace()  # the constructor checks it
    if pooled.moment.shape != (dim,):
        raise checks.invalid("base.pooled", f"Evidence of dimension {dim}", pooled.moment)
    fault = find_fault(pooled.replace(forced=None).pack()[None], dim)
    if fault is not None:
        raise InputError(f"base.pooled must be sums of rounds; got {fault[1]}")


def check_prior(name: str, prior: Any, dim: int, groups: tuple[int, ...] = ()) -> None:
    """Refuse a prior that no task can start from."""
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    if not isinstance(parts, BasePrior):
        raise checks.invalid(name, "a prior", prior)
    if not isinstance(parts, Prior):
        check_custom_record(name, parts, dim)
        return
    if isinstance(prior, MixturePrior):
        groups = check_weights(name, prior.log_weights)
    check_magnitudes(name, parts)
    checked = parts.replace()  # the constructor checks it
    if parts.mean.shape != (*groups, dim):
        raise checks.invalid(name, f"a prior whose mean has shape {(*groups, dim)}", checked.mean)


def check_custom_record(name: str, own: BasePrior | BaseBelief, dim: int) -> None:
    """Refuse a prior or a belief of a user's own class with impossible numbers or dimensions."""
    check_magnitudes(name, own)
    if own.dim != dim or own.batch != ():
        raise checks.invalid(name, f"one task's, with {dim} features", own)
    checks.positive(f"{name}.noise", own.noise)
    checks.non_negative(f"{name}.rounds", getattr(own, "rounds", 0.0))


def check_magnitudes(name: str, record: Record) -> None:
    """Refuse numbers with which no reward could be predicted."""
    for field, array in flatten(record).items():
        if field.endswith("bias"):  # which may be infinite, and is checked with the prior
            continue
        if array.ndim and array.dtype not in (np.float32, np.float64):
            raise checks.invalid(f"{name}.{field}", "floating-point numbers", array)
        # A sum of squares of rewards is multiplied by nothing.
        limit = MAX_ENTRY if field.endswith("square") else MAX_BELIEF_NUMBER
        if not max_abs(array) <= limit:
            raise InputError(f"{name} must have a {field} below {limit:g}; got more")


def check_weights(name: str, logs: Any) -> tuple[int, ...]:
    """How many groups there are, refused unless these are logarithms of their weights."""
    array = checks.finite_array(name, logs, "the logarithms of weights", ndim=1)
    if not array.size or abs(float(np.exp(np.minimum(array, 1.0)).sum()) - 1.0) > 1e-6:
        raise InputError(f"{name} must have weights that add up to 1; got others")
    return array.shape


def check_belief(name: str, belief: BaseBelief, prior: Any, dim: int) -> None:
    """Refuse a belief (without its prior) that no prior can lead to."""
    groups: tuple[int, ...] = ()
    parts: Any = belief
    if isinstance(belief, MixtureBelief):
        groups, parts = check_weights(name, belief.log_weights), belief.parts
        if check_weights(name, belief.log_start) != groups:
            raise checks.invalid(name, f"a belief with {groups[0]} groups", belief.log_start)
    if not isinstance(parts, BaseBelief):
        raise checks.invalid(name, "a belief", parts)
    check_prior(name, prior, dim, groups)
    if not isinstance(parts, Belief):
        check_custom_record(name, parts.with_prior(prior), dim)
        return
    check_magnitudes(name, parts.replace(prior=None))
    shapes = {"mean": (*groups, dim), "root": (*groups, dim, dim)}
    for field in ("mean", "root", "information", "rounds", "noise", "square", "noise_ratio"):
        array: Array = checks.finite_array(f"{name}.{field}", getattr(parts, field), "numbers")
        shape = shapes.get(field, groups)
        if array.shape != shape and not (field == "noise" and array.shape == ()):
            raise checks.invalid(f"{name}.{field}", f"of shape {shape}", array)
        if field in ("rounds", "square", "noise_ratio") and (array < 0).any():
            raise InputError(f"{name}.{field} must be 0 or more; got less")
        if field == "noise" and (array <= 0).any():
            raise InputError(f"{name}.noise must be positive; got one that is not")
