"""Reading contexts: arrays, lists, and pandas or Polars frames whose feature names are checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.records import Array

__all__ = ["Features", "Sizes", "allowed_arms", "checked_reward"]

LARGEST = 1e60  # fourth powers and their products must not overflow
SOUND = LARGEST**2  # where the sum of squares is below this, so is every square


class Features(NamedTuple):
    """What the columns of a context are.

    ``given`` is how many the caller gives; ``names`` is ``None`` until a frame has told them;
    ``intercept`` adds a column of ones at the end. Where a ``shift`` and a ``scale`` are known for
    each, a feature counts as (x − shift) / scale.
    """

    given: int
    names: tuple[str, ...] | None = None
    intercept: bool = False
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    @property
    def dim(self) -> int:
        """The dimension of θ: the features, and the intercept if there is one."""
        return self.given + self.intercept

    def read(self, contexts: Any) -> tuple[Array, float, tuple[str, ...] | None]:
        """The contexts as a ``(K, given)`` array, its sum of squares, and the feature names.

        >>> Features(2, intercept=True).read([[1, 2]])[0]
        array([[1., 2.]])
        """
        names = self.names
        if type(contexts) is np.ndarray and contexts.dtype == np.float64:
            table = np.ascontiguousarray(contexts) if contexts.ndim else contexts
            # The usual case, with one test for everything: NaN and infinities fail it as well.
            usual = table.ndim == 2 and table.shape[1] == self.given and len(table) > 0
            if usual and (energy := float(np.vdot(table, table))) <= SOUND:
                return table, energy, names
        elif hasattr(contexts, "columns") and hasattr(contexts, "to_numpy"):
            table, names = self.from_frame(contexts)
        else:
            want = f"one row of {self.given} numbers per arm"
            table = checks.finite_array("contexts", contexts, want)
            table = table.astype(np.float64, order="C", copy=False)
        self.check(table)
        return table, float(np.vdot(table, table)), names

    def changed(self, contexts: Array) -> Array:
        """Contexts in their units, with the intercept: always a new array.

        >>> Features(1, intercept=True, shift=(10.0,), scale=(2.0,)).changed(np.array([[14.0]]))
        array([[2., 1.]])
        """
        if self.shift is not None and self.scale is not None:
            contexts = (contexts - np.array(self.shift)) / np.array(self.scale)
        if self.intercept:
            wider = np.empty((*contexts.shape[:-1], self.given + 1))
            wider[..., :-1] = contexts
            wider[..., -1] = 1.0
            return wider
        return contexts.copy() if self.scale is None else contexts

    def read_many(self, contexts: Any, tasks: int) -> Array:
        """The contexts of so many tasks as a private ``(tasks, K, given)`` array."""
        want = f"an array of shape ({tasks}, arms, {self.given}), one table per task"
        if type(contexts) is np.ndarray and contexts.dtype == np.float64:
            tables = contexts.copy(order="C")
            usual = tables.ndim == 3 and tables.shape[::2] == (tasks, self.given) and tables.size
            if usual and np.vdot(tables, tables) <= SOUND:
                return tables
        if isinstance(contexts, Sequence) and any(hasattr(part, "columns") for part in contexts):
            raise InputError(f"contexts must be {want}; got a list of frames: stack their values")
        given = checks.finite_array("contexts", contexts, want).astype(np.float64, copy=False)
        if given.shape == (0,) and not tasks:
            given = given.reshape(0, 1, self.given)
        if given.ndim != 3 or given.shape[0] != tasks or given.shape[2] != self.given:
            raise checks.refuse("contexts", want, given)
        if tasks:
            self.check(given.reshape(-1, self.given))
        return np.array(given, dtype=np.float64, order="C")

    def check(self, table: Array) -> None:
        """Refuse contexts of the wrong shape, or that are not finite."""
        want = f"of shape (arms, {self.given}), one row per arm"
        if table.ndim == 1 and table.shape == (self.given,):
            raise InputError(
                f"contexts must be {want}; got one vector of shape {table.shape}: "
                f"for a single arm pass [x]"
            )
        if table.ndim != 2 or table.shape[1] != self.given:
            hint = ""
            if table.ndim == 2 and self.intercept and table.shape[1] == self.dim:
                hint = " (the intercept is added for you: leave it out)"
            raise InputError(f"contexts must be {want}; got shape {table.shape}{hint}")
        if not len(table):
            raise InputError("contexts must offer at least one arm; got none")
        # One comparison catches NaN, infinities and numbers whose squares overflow.
        if not np.abs(table).max() <= LARGEST:
            row, column = np.argwhere(~(np.abs(table) <= LARGEST))[0]
            raise InputError(
                f"contexts must be finite everywhere and below {LARGEST:g} in size; "
                f"got {table[row, column]} at row {row}, column {self.label(int(column))}"
            )

    def label(self, column: int) -> str:
        """A column as a message names it."""
        return f"{column}" if self.names is None else f"{column} ({self.names[column]!r})"

    def from_frame(self, frame: Any) -> tuple[Array, tuple[str, ...]]:
        """The columns of a frame, in the order they were first seen in."""
        names = tuple(str(name) for name in frame.columns)
        if len(set(names)) < len(names):
            raise InputError(f"contexts must have distinct feature names; got {list(names)}")
        expected = self.names or names
        if set(names) != set(expected):
            missing = [name for name in expected if name not in names]
            extra = [name for name in names if name not in expected]
            parts = []
            if missing:
                parts.append(f"missing {missing}")
            if extra:
                parts.append(f"not known {extra}")
            raise InputError(
                f"contexts must have the features {list(expected)}, as before; "
                f"got a frame with {' and '.join(parts)}"
            )
        if len(expected) != self.given:
            raise InputError(
                f"contexts must have {self.given} features (dim={self.given}); "
                f"got a frame with {len(names)} columns"
            )
        columns = []
        for name in expected:
            columns.append(numbers_of(frame[frame.columns[names.index(name)]], name))
        return np.column_stack(columns) if len(frame) else np.empty((0, self.given)), expected


class Sizes(NamedTuple):
    """How large each feature usually is, and how far it usually is from where it began.

    Both are geometric means over values that are not zero, which one absurd value hardly moves. A
    Gram matrix holds values up to a million times as large beside the usual ones without losing the
    latter; larger ones are refused.

    ``seen`` and ``logs`` are counts and sums of logarithms, the sizes in their first row and the
    distances from ``origin`` in the second.
    """

    seen: Array
    logs: Array
    origin: Array

    @classmethod
    def none(cls, dim: int) -> Sizes:
        """Nothing was seen yet."""
        return cls(np.zeros((2, dim)), np.zeros((2, dim)), np.zeros(dim))

    def with_offer(self, table: Array, features: Features) -> Sizes:
        """After one more offer, refused if a value in it is far out of its feature's range.

        >>> sizes = Sizes.none(1).with_offer(np.ones((3, 1)), Features(1))
        >>> sizes.with_offer(np.array([[1e9]]), Features(1))
        Traceback (most recent call last):
          ...
        headstart.errors.InputError: contexts must be within a million times the usual size ...
        """
        before = self.rebased(table)
        size = np.abs(np.stack([table, table - before.origin], 1))
        present = size > 0
        logs = before.logs + np.log(np.where(present, size, 1.0)).sum(0)
        seen = before.seen + present.sum(0)
        # A feature that is hardly known is measured by what is on offer as well; of one or two
        # values nobody knows whether they are large or the others small.
        known = before.seen >= ENOUGH
        total = np.where(known, before.logs, logs) / np.maximum(
            np.where(known, before.seen, seen), 1
        )
        usual = np.exp(total)
        told = before.seen >= SOME
        large, away = ((size > FAR_OUT * usual) & told).swapaxes(0, 1)
        # A time stamp may run far from where it began, as long as it is about as large as ever.
        far = large | (away & (size[:, 0] > 10.0 * usual[0]))
        if far.any():
            row, column = np.argwhere(far)[0]
            raise InputError(
                f"contexts must be within a million times the usual size of their feature; got "
                f"{table[row, column]:g} at row {row}, column {features.label(int(column))}, where "
                f"values are about {usual[0, column]:.3g} in size, and {usual[1, column]:.3g} apart"
            )
        return Sizes(seen, logs, before.origin)

    def rebased(self, table: Array) -> Sizes:
        """The same, with another origin where there is none, or where it was far out itself."""
        if not self.seen.any():
            return self._replace(origin=table.mean(0))
        usual = np.exp(self.logs[0] / np.maximum(self.seen[0], 1))
        astray = (self.seen[0] >= ENOUGH) & (np.abs(self.origin) > 10.0 * usual)
        astray &= np.abs(table.mean(0)) <= 10.0 * usual
        if not astray.any():
            return self
        keep = np.stack([np.ones_like(astray), ~astray])
        origin = np.where(astray, table.mean(0), self.origin)
        return Sizes(self.seen * keep, self.logs * keep, origin)

    def usual(self, features: Features) -> Array:
        """How large the features that beliefs see usually are; infinite where nothing tells."""
        size = np.full(features.dim, 1.0 if features.scale is not None else np.inf)
        if features.scale is None:
            known = self.seen[0] >= ENOUGH
            mean = np.exp(self.logs[0] / np.maximum(self.seen[0], 1))
            size[: features.given] = np.where(known, mean, np.inf)
        return size

    @property
    def limits(self) -> Array:
        """How large a value of each feature can be without being far out, whatever is beside it."""
        known = self.seen >= ENOUGH
        usual = np.exp(self.logs / np.maximum(self.seen, 1))
        # A feature that was the same so far may be up to ten times as large, wherever it began.
        limits: Array = np.where(known.all(0), FAR_OUT * usual.min(0), known[0] * 10.0 * usual[0])
        return limits


SOME = 3  # values of a feature before which none is refused
ENOUGH = 8  # values of a feature that tell its usual size
FAR_OUT = 1e6  # times the usual size


def numbers_of(column: Any, name: str) -> Array:
    """A frame's column as floats (missing ones as NaN), refused by name if it is no numbers."""
    values = np.asarray(column.to_numpy())
    if values.dtype.kind == "O":
        blank = np.array([value is None or value != value for value in values])
        real = np.array([checks.is_real(value) for value in values])
        if (blank | real).all():
            values = np.where(blank, np.nan, values).astype(np.float64)
    if values.dtype.kind not in "fiub" or values.ndim != 1:
        raise InputError(f"contexts must be numbers; column {name!r} has type {column.dtype}")
    return values.astype(np.float64)


def allowed_arms(exclude: Any, arms: int) -> npt.NDArray[np.bool_] | None:
    """Which arms may be picked: all but the rows in ``exclude``.

    >>> allowed_arms([0, 2], 4)
    array([False,  True, False,  True])
    """
    if exclude is None:
        return None
    want = f"row numbers from 0 to {arms - 1}, or a mask of {arms} booleans"
    if isinstance(exclude, (str, bytes)) or not isinstance(exclude, Iterable):
        raise checks.refuse("exclude", want, exclude)
    if checks.has_masked(exclude):
        raise InputError(f"exclude must be {want}; got masked values, which are missing")
    try:
        listed = np.asarray(exclude if isinstance(exclude, np.ndarray) else list(exclude))
    except ValueError:
        raise checks.refuse("exclude", want, exclude) from None
    if listed.size == 0:
        return None
    allowed = np.ones(arms, dtype=bool)
    if listed.dtype == bool and listed.shape == (arms,):
        allowed = ~listed
    elif listed.dtype.kind in "iu" and listed.ndim == 1:
        outside = listed[(listed < 0) | (listed >= arms)]
        if outside.size:
            raise InputError(f"exclude must hold {want}; got {int(outside[0])}")
        allowed[listed] = False
    else:
        raise checks.refuse("exclude", want, exclude if isinstance(exclude, str) else listed)
    if not allowed.any():
        raise InputError(f"exclude must leave at least one arm; got all {arms} of them")
    return allowed


def checked_reward(value: Any) -> float:
    """A reward as a float; a click may be a boolean.

    >>> checked_reward(True), checked_reward(2)
    (1.0, 2.0)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0 and not checks.has_masked(value):
        value = value.item()
    number = float(value) if isinstance(value, (bool, np.bool_)) else checks.real("reward", value)
    if abs(number) > LARGEST:
        raise checks.refuse("reward", f"below {LARGEST:g} in size", value)
    return number
