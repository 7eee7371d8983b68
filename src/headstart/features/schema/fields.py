"""Fields that are numbers, booleans and vectors, and the columns they become."""

from __future__ import annotations

import dataclasses
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.features.conversion import MAX_VALUE
from headstart.records import Array

MAX_WIDTH = 2**16  # columns of one field
FLOATS = {float, int, np.float64}  # types whose values NumPy converts as they are
Values = Sequence[Any] | npt.NDArray[Any]


class FieldError(Exception):
    """A value that a field does not take: the place among the values, and what is wrong.

    ``description`` says what the value is where :func:`~headstart.checks.describe` is too brief.
    """

    def __init__(self, place: int, want: str, got: object, description: str = "") -> None:
        super().__init__(place, want, got, description)
        self.place, self.want, self.got = place, want, got
        self.description = description or checks.describe(got)


@dataclasses.dataclass(frozen=True)
class Field(ABC):
    """What the kinds of fields have in common.

    Values that are equal (1, 1.0 and True) have the same columns.

    Attributes
    ----------
    kind
        The name of the kind in JSON.
    is_discrete
        Whether many rows have equal values, so that in a log each value is encoded once.
    """

    kind: ClassVar[str] = ""
    is_discrete: ClassVar[bool] = False

    @property
    @abstractmethod
    def width(self) -> int:
        """How many columns the field becomes."""

    @abstractmethod
    def column_names(self, name: str) -> list[str]:
        """The names of the columns of a field of this name."""

    @abstractmethod
    def write(self, values: Values, out: Array) -> None:
        """Write the columns of some values into ``out``, of shape ``(len(values), width)``.

        ``out`` holds zeros. A value that is refused raises a :class:`FieldError`.
        """

    @property
    def is_bounded(self) -> list[bool]:
        """Of each column, whether it holds only zeros and ones."""
        return [True] * self.width

    def write_one(self, value: Any, out: Array) -> None:
        """Write the columns of one value into ``out``, of shape ``(width,)``."""
        self.write((value,), out[None])

    def to_json(self) -> dict[str, Any]:
        """The field as JSON."""
        settings = {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return {"type": self.kind, **settings}


@dataclasses.dataclass(frozen=True, repr=False)
class OneColumn(Field):
    """A field that is one number and, where it may be missing, an indicator."""

    missing: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", checks.flag("missing", self.missing))

    def __repr__(self) -> str:
        return f"{self.kind}({'' if self.missing else 'missing=False'})"

    @property
    def width(self) -> int:
        """The number and, where it may be missing, an indicator."""
        return 1 + self.missing

    def column_names(self, name: str) -> list[str]:
        """The number, and whether it is missing."""
        return [name, f"{name} missing"][: self.width]


@dataclasses.dataclass(frozen=True, repr=False)
class Number(OneColumn):
    """A number; see :func:`number`."""

    kind: ClassVar[str] = "number"

    @property
    def is_bounded(self) -> list[bool]:
        """The indicator is."""
        return [False, True][: self.width]

    def write(self, values: Values, out: Array) -> None:
        """The numbers, 0 where they are missing, and the indicator."""
        column = number_column(values)
        if np.vdot(column, column) <= MAX_VALUE**2:  # neither NaN nor infinite
            out[:, 0] = column
            return
        missing = np.isnan(column)
        write_missing(values, missing, out, self.missing, "a number")
        out[:, 0] = np.where(missing, 0.0, column)
        if not np.abs(out[:, 0]).max() <= MAX_VALUE:
            place = int(np.argmax(np.abs(out[:, 0])))
            raise FieldError(place, f"a number below {MAX_VALUE:g} in size", values[place])

    def write_one(self, value: Any, out: Array) -> None:
        """The same for one value, but faster."""
        if type(value) in FLOATS and -MAX_VALUE <= value <= MAX_VALUE:
            out[0] = value
        else:
            self.write((value,), out[None])


@dataclasses.dataclass(frozen=True, repr=False)
class Boolean(OneColumn):
    """True or False; see :func:`boolean`."""

    kind: ClassVar[str] = "boolean"
    is_discrete: ClassVar[bool] = True

    def write(self, values: Values, out: Array) -> None:
        """1 for true, 0 for false and for missing, and the indicator."""
        items: Any = values.tolist() if isinstance(values, np.ndarray) else values
        if set(map(type, items)) == {bool}:
            out[:, 0] = items
            return
        missing = np.array([is_missing(value) for value in items], dtype=bool)
        for place, value in enumerate(items):
            if not missing[place]:
                if not isinstance(value, (numbers.Real, np.bool_)) or value not in (0, 1):
                    raise FieldError(place, "True or False", value)
                out[place, 0] = float(value)
        write_missing(items, missing, out, self.missing, "True or False")


@dataclasses.dataclass(frozen=True, repr=False)
class Vector(Field):
    """Several numbers; see :func:`vector`."""

    kind: ClassVar[str] = "vector"
    length: int = 0
    missing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", checks.integer("length", self.length, 1, MAX_WIDTH))
        object.__setattr__(self, "missing", checks.flag("missing", self.missing))

    def __repr__(self) -> str:
        return f"vector({self.length}{', missing=True' if self.missing else ''})"

    @property
    def width(self) -> int:
        """The numbers and, where they may be missing, an indicator."""
        return self.length + self.missing

    @property
    def is_bounded(self) -> list[bool]:
        """The indicator is."""
        return [False] * self.length + [True] * self.missing

    def column_names(self, name: str) -> list[str]:
        """The field's name with the place of each number, and whether they are missing."""
        return [f"{name}[{at}]" for at in range(self.length)] + [f"{name} missing"] * self.missing

    def write(self, values: Values, out: Array) -> None:
        """The numbers, 0 where they are missing, and the indicator."""
        if isinstance(values, np.ndarray) and values.shape == (len(out), self.length):
            is_whole = values.dtype.kind == "f" and not checks.has_masked(values)
            if is_whole and np.vdot(values, values) <= MAX_VALUE**2:
                out[:, : self.length] = values
                return
        elif set(map(type, values)) == {np.ndarray} and {(self.length,)} == {
            value.shape for value in values
        }:
            table = np.concatenate(values).reshape(out.shape[0], -1)
            if table.dtype == np.float64 and np.vdot(table, table) <= MAX_VALUE**2:
                out[:, : self.length] = table
                return
        missing = np.array([is_missing(value) for value in values], dtype=bool)
        want = f"a vector of {self.length} finite numbers"
        for place, value in enumerate(values):
            if missing[place]:
                continue
            try:
                row = checks.finite_array("vector", value, want, ndim=1)
            except InputError as error:
                description = str(error).rpartition("; got ")[2]
                raise FieldError(place, want, value, description) from None
            if len(row) != self.length:
                raise FieldError(place, want, value, f"{len(row)} numbers")
            if not np.abs(row).max() <= MAX_VALUE:
                raise FieldError(place, f"{want} below {MAX_VALUE:g} in size", value)
            out[place, : self.length] = row
        if missing.any():
            write_missing(values, missing, out, self.missing, want)


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: ``None``, NaN, and pandas' NA and NaT.

    >>> [is_missing(value) for value in (None, float("nan"), 0, "", "nan")]
    [True, True, False, False, False]
    """
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_qnan()
    return type(value).__name__ in ("NAType", "NaTType")


def number_column(values: Values) -> Array:
    """Numbers as an array of floats, NaN where they are missing."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub" and values.ndim == 1:
        column = values.astype(np.float64)
        return column.filled(np.nan) if isinstance(column, np.ma.MaskedArray) else column
    if not isinstance(values, np.ndarray) and FLOATS.issuperset(map(type, values)):
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError:
            pass
    column = np.empty(len(values))
    for place, value in enumerate(values):
        if is_missing(value):
            column[place] = np.nan
        elif isinstance(value, (bool, np.bool_, Decimal)) or checks.is_real(value):
            try:
                column[place] = float(value)
            except (OverflowError, ValueError):  # too large, or a signaling NaN
                raise FieldError(place, "a finite number", value) from None
        else:
            raise FieldError(place, "a number", value)
    return column


def write_missing(values: Values, missing: Any, out: Array, allowed: bool, want: str) -> None:
    """Write the indicator of missing values into the last column, or refuse them."""
    if allowed:
        out[:, -1] = missing
    elif missing.any():
        place = int(np.argmax(missing))
        raise FieldError(place, f"{want}, which may not be missing here", values[place])
