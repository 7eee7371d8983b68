"""Reading contexts: arrays, lists, and pandas or Polars frames whose feature names are checked."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.kernels.switch import loops
from headstart.records import Array, set_read_only

MAX_VALUE = checks.MAX_MAGNITUDE  # of contexts and rewards, whose fourth powers are finite
DOUBLE = np.dtype(np.float64)
MAX_SQUARES = MAX_VALUE**2  # a sum of squares up to which no value is larger


@dataclasses.dataclass(frozen=True)
class Features:
    """The columns of a context, and how they become the features of the model.

    Attributes
    ----------
    context_dim
        How many columns a context has.
    names
        Their names, ``None`` until a data frame was passed.
    intercept
        Whether a column of ones is added at the end.
    shift, scale
        Where given, a feature is (x − shift) / scale.
    """

    context_dim: int
    names: tuple[str, ...] | None = None
    intercept: bool = False
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    @functools.cached_property
    def dim(self) -> int:
        """The dimension of θ: the features, and the intercept if there is one."""
        return self.context_dim + self.intercept

    def read(self, contexts: Any) -> tuple[Array, float, tuple[str, ...] | None]:
        """The contexts as a ``(K, context_dim)`` array, its sum of squares, and the feature names.

        >>> Features(2, intercept=True).read([[1, 2]])[0]
        array([[1., 2.]])
        """
        names = self.names
        if type(contexts) is np.ndarray and contexts.dtype is DOUBLE:
            table = np.ascontiguousarray(contexts) if contexts.ndim else contexts
        elif is_frame(contexts):
            table, names = self.from_frame(contexts)
        else:
            want = f"one row of {self.context_dim} numbers per arm"
            table = checks.finite_array("contexts", contexts, want)
            table = table.astype(np.float64, order="C", copy=False)
        self.check(table)
        return table, float(np.vdot(table, table)), names

    def read_rows(self, contexts: Any) -> tuple[Array, float, tuple[str, ...] | None, Array]:
        """What :meth:`read` returns, and the contexts as the model sees them."""
        if (
            type(contexts) is np.ndarray
            and contexts.dtype is DOUBLE
            and contexts.ndim == 2
            and contexts.shape[1] == self.context_dim
        ):
            table, compiled = np.ascontiguousarray(contexts), loops()
            # In the usual case one test is enough: NaN and infinities fail it as well.
            # (np.vdot does not warn where squares overflow, as the method dot does.)
            if compiled is not None and self.units is None:
                rows = np.empty((len(table), self.dim))
                squares = compiled.read(table, rows)
                if squares <= MAX_SQUARES and len(table):
                    return table, squares, self.names, rows
            elif (squares := float(np.vdot(table, table))) <= MAX_SQUARES and len(table):
                return table, squares, self.names, self.transform(table)
        table, squares, names = self.read(contexts)
        return table, squares, names, self.transform(table)

    @functools.cached_property
    def units(self) -> tuple[Array, Array] | None:
        """Shift and scale as arrays; ``None`` where features are not standardized."""
        if self.shift is None or self.scale is None:
            return None
        return set_read_only(np.array(self.shift)), set_read_only(np.array(self.scale))

    def coefficient_matrix(self) -> Array:
        """The rows whose products with θ are the coefficients of features as they were given.

        A feature is (x − shift)/scale, so that its coefficient is θ_f/scale_f, and the intercept is
        what is expected where all features are 0.
        """
        matrix = np.eye(self.dim)
        if self.units is not None:
            (shift, scale), columns = self.units, np.arange(self.context_dim)
            matrix[columns, columns] = 1.0 / scale
            if self.intercept:
                matrix[-1, columns] = -shift / scale
        return matrix

    def original_row(self, row: Array) -> Array:
        """A row of the model with its features as they were given: a new array.

        >>> Features(1, shift=(10.0,), scale=(2.0,)).original_row(np.array([2.0]))
        array([14.])
        """
        original = row.copy()
        if self.units is not None:
            original[: self.context_dim] *= self.units[1]
            original[: self.context_dim] += self.units[0]
        return original

    def transform(self, contexts: Array) -> Array:
        """Contexts as the model sees them, shifted and scaled and with the intercept: a new array.

        >>> Features(1, intercept=True, shift=(10.0,), scale=(2.0,)).transform(np.array([[14.0]]))
        array([[2., 1.]])
        """
        units, dim = self.units, self.context_dim
        if units is None and not self.intercept:
            return contexts.copy()
        table = np.empty(contexts.shape[:-1] + (self.dim,))  # noqa: RUF005 (faster)
        if units is None:
            table[..., :dim] = contexts
        else:
            np.subtract(contexts, units[0], table[..., :dim])
            table[..., :dim] /= units[1]
        if self.intercept:
            table[..., dim] = 1.0
        return table

    def read_many(self, contexts: Any, tasks: int) -> Array:
        """The contexts of several tasks as a new ``(tasks, K, context_dim)`` array."""
        want = f"an array of shape ({tasks}, arms, {self.context_dim}), one table per task"
        if type(contexts) is np.ndarray and contexts.dtype == np.float64:
            tables = contexts.copy(order="C")
            usual = tables.ndim == 3 and tables.shape[::2] == (tasks, self.context_dim)
            if usual and tables.size and np.vdot(tables, tables) <= MAX_SQUARES:
                return tables
        tables = checks.finite_array("contexts", contexts, want).astype(np.float64, copy=False)
        if tables.shape == (0,) and not tasks:
            tables = tables.reshape(0, 1, self.context_dim)
        if tables.ndim != 3 or tables.shape[0] != tasks or tables.shape[2] != self.context_dim:
            raise checks.invalid("contexts", want, tables)
        if tasks:
            self.check(tables.reshape(-1, self.context_dim))
        return np.array(tables, dtype=np.float64, order="C")

    def check(self, table: Array) -> None:
        """Refuse contexts of the wrong shape, or that are not finite."""
        want = f"of shape (arms, {self.context_dim}), one row per arm"
        if table.ndim == 1 and table.shape == (self.context_dim,):
            raise InputError(
                f"contexts must be {want}; got one vector of shape {table.shape}: "
                f"for a single arm pass [x]"
            )
        if table.ndim != 2 or table.shape[1] != self.context_dim:
            hint = ""
            if table.ndim == 2 and self.intercept and table.shape[1] == self.dim:
                hint = " (the intercept is added for you: leave it out)"
            raise InputError(f"contexts must be {want}; got shape {table.shape}{hint}")
        if not len(table):
            raise InputError("contexts must offer at least one arm; got none")
        # One comparison catches NaN, infinities and numbers whose squares overflow.
        if not np.abs(table).max() <= MAX_VALUE:
            row, column = np.argwhere(~(np.abs(table) <= MAX_VALUE))[0]
            raise InputError(
                f"contexts must be finite everywhere and below {MAX_VALUE:g} in size; "
                f"got {table[row, column]} at row {row}, column {self.column_label(int(column))}"
            )

    def column_label(self, column: int) -> str:
        """The name of a column in an error message."""
        return f"{column}" if self.names is None else f"{column} ({self.names[column]!r})"

    def from_frame(self, frame: Any) -> tuple[Array, tuple[str, ...]]:
        """The columns of a data frame, in the order of the first one that was passed."""
        names = tuple(frame_names("contexts", frame))
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
        if len(expected) != self.context_dim:
            raise InputError(
                f"contexts must have {self.context_dim} features (dim={self.context_dim}); "
                f"got a frame with {len(names)} columns"
            )
        columns = []
        for name in expected:
            columns.append(numeric_column(frame[frame.columns[names.index(name)]], name))
        return np.column_stack(columns) if len(frame) else np.empty((0, self.context_dim)), expected


def column_array(column: Any) -> npt.NDArray[Any]:
    """The values of a data frame's column; of a type that NumPy does not have, as objects."""
    try:
        return np.asarray(column.to_numpy())
    except Exception:  # Polars refuses whole numbers of 128 bits, with an error of its own
        return np.fromiter(column.to_list(), dtype=object)


def numeric_column(column: Any, name: str) -> Array:
    """A data frame's column as floats, with NaN for missing values."""
    values = column_array(column)
    if values.dtype.kind == "O":
        real = np.array([checks.is_real(value) for value in values])
        blank = np.array(
            [
                value is None or type(value).__name__ in ("NAType", "NaTType")
                for value in values.tolist()
            ]
        )
        if (blank | real).all():
            try:
                values = np.where(blank, np.nan, values).astype(np.float64)
            except OverflowError:
                raise InputError(
                    f"contexts must be finite everywhere; column {name!r} has a whole number that "
                    f"no floating-point number can hold"
                ) from None
    if values.dtype.kind not in "fiub" or values.ndim != 1:
        raise InputError(
            f"contexts must be numbers; column {name!r} has type {column.dtype}, which a bandit "
            f"with a schema can take: headstart.Bandit(headstart.Schema(…))"
        )
    return values.astype(np.float64)


def is_frame(value: object) -> bool:
    """Whether a value is a pandas or Polars frame; a lazy one is none."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def frame_names(argument: str, frame: Any) -> list[str]:
    """The names of a frame's columns, as texts; refused if two are the same."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise InputError(f"{argument} must have distinct column names; got {names}")
    return names


def arms_not_excluded(
    exclude: Any, arms: int, ids: Sequence[Any] | None = None
) -> npt.NDArray[np.bool_] | None:
    """Which arms may be picked: all but those in ``exclude``, given by row or by id.

    Texts are ids. Whole numbers are rows if any of the ``ids`` is text, and else ids.

    >>> arms_not_excluded([0, 2], 4)
    array([False,  True, False,  True])
    >>> arms_not_excluded(["tea"], 2, ["tea", "coffee"])
    array([False,  True])
    >>> arms_not_excluded(["7"], 2, [7, 8])
    array([False,  True])
    """
    if exclude is None:
        return None
    want = f"row numbers from 0 to {arms - 1}, or a mask of {arms} booleans"
    if ids is not None:
        want += ", or ids of actions on offer"
        exclude = rows_of_ids(exclude, ids)
    if checks.has_masked(exclude):
        raise InputError(f"exclude must be {want}; got masked values, which are missing")
    is_array = isinstance(exclude, np.ndarray) and exclude.ndim
    try:
        values = np.asarray(exclude if is_array else checks.entries("exclude", exclude, want))
    except ValueError:
        raise checks.invalid("exclude", want, exclude) from None
    if values.size == 0:
        return None
    allowed = np.ones(arms, dtype=bool)
    if values.dtype == bool and values.shape == (arms,):
        allowed = ~values
    elif values.dtype.kind in "iu" and values.ndim == 1:
        outside = values[(values < 0) | (values >= arms)]
        if outside.size:
            raise InputError(f"exclude must hold {want}; got {int(outside[0])}")
        allowed[values] = False
    else:
        raise checks.invalid("exclude", want, exclude if isinstance(exclude, str) else values)
    if not allowed.any():
        raise InputError(f"exclude must leave at least one arm; got all {arms} of them")
    return allowed


def rows_of_ids(exclude: Any, ids: Sequence[Any]) -> Any:
    """The rows of the actions with these ids; anything else is returned as it is."""
    is_array = isinstance(exclude, np.ndarray) and exclude.ndim
    items = (
        exclude.tolist()
        if is_array
        else checks.entries("exclude", exclude, "a list of rows or ids")
    )
    by_number = not any(isinstance(id, str) for id in ids)
    if any(isinstance(item, (bool, np.bool_)) for item in items):
        return exclude
    if not any(isinstance(item, str) or by_number for item in items):
        return exclude
    places: dict[Any, list[int]] = {}  # labels of an index may occur twice
    for row, id in enumerate(ids):
        places.setdefault(label_key(id), []).append(row)
    rows = []
    for item in items:
        if not isinstance(item, str) and not by_number:
            rows.append(item)
            continue
        if not checks.is_hashable(item) or label_key(item) not in places:
            raise InputError(
                f"exclude must hold ids of actions on offer; got {checks.describe(item)}"
            )
        rows += places[label_key(item)]
    return rows


def label_key(label: Any) -> Any:
    """What a label is compared by: 7 and "7" are one id."""
    return str(int(label)) if checks.is_whole(label) else label


def check_reward(value: Any) -> float:
    """A reward as a float; a click may be a boolean.

    >>> check_reward(True), check_reward(2)
    (1.0, 2.0)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0 and not checks.has_masked(value):
        value = value.item()
    number = float(value) if isinstance(value, (bool, np.bool_)) else checks.real("reward", value)
    if abs(number) > MAX_VALUE:
        raise checks.invalid("reward", f"below {MAX_VALUE:g} in size", value)
    return number
