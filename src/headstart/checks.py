"""Checks of arguments, with messages that name the argument, what is wanted and what was given."""

from __future__ import annotations

import contextlib
import datetime
import math
import numbers
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from headstart.errors import InputError

Array = npt.NDArray[np.floating[Any]]

MAX_FEATURES = 2**20  # features: the Gram matrix would take 8 TB
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
MAX_NESTING = 64  # axes of an array: what is nested deeper is no array

#: Parameters beyond these overflow, or vanish, where they are squared or multiplied.
MIN_POSITIVE, MAX_MAGNITUDE = 1e-60, 1e60


def describe(value: object) -> str:
    """Say what a value is, briefly enough for an error message.

    >>> describe([[1.0, 2.0]]), describe(np.float64("nan")), describe("x" * 99)[:12]
    ('a list', 'nan', "'xxxxxxxxxxx")
    """
    if isinstance(value, np.ma.MaskedArray):
        return f"a masked array of shape {value.shape}" if value.ndim else "a masked value"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if value is None or isinstance(value, (bool, str, bytes, numbers.Number)):
        if isinstance(value, int) and value.bit_length() > 1000:
            return "a whole number of hundreds of digits"
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= 60 else text[:57] + "…"
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeio" else "a"
    return f"{article} {kind}"


def invalid(name: str, want: str, got: object) -> InputError:
    """The error for an argument that is not what it must be.

    >>> str(invalid("level", "a number between 0 and 1", 2))
    'level must be a number between 0 and 1; got 2'
    """
    return InputError(f"{name} must be {want}; got {describe(got)}")


def is_real(value: object) -> TypeGuard[numbers.Real]:
    """Whether a value is a real number; booleans and spans of time are not.

    >>> is_real(0.5), is_real(np.int8(3)), is_real(np.timedelta64(3, "s")), is_real(True)
    (True, True, False, False)
    """
    # NumPy takes spans of time for whole numbers.
    other = isinstance(value, (bool, np.bool_, np.timedelta64))
    return isinstance(value, numbers.Real) and not other


def is_whole(value: object) -> TypeGuard[numbers.Integral]:
    """Whether a value is of a type of whole numbers; booleans and spans of time are not."""
    return isinstance(value, numbers.Integral) and is_real(value)


def plain_text(value: str) -> str:
    """A text as a ``str`` of its own value: ``str()`` gives the name of an enumeration's member."""
    return str.__str__(value)


def flag(name: str, value: object) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, (bool, np.bool_)):
        raise invalid(name, "True or False", value)
    return bool(value)


def real(name: str, value: object, want: str = "a finite number") -> float:
    """A finite real number, as a float; booleans, arrays and masked values are refused."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not has_masked(value):
        value = value.item()
    if not is_real(value):
        raise invalid(name, want, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise invalid(name, want, value)
    return number


def positive(name: str, value: object) -> float:
    """A finite number above zero, whose square is one too."""
    number = real(name, value, "a positive finite number")
    if number <= 0:
        raise invalid(name, "a positive finite number", value)
    if not MIN_POSITIVE <= number <= MAX_MAGNITUDE:
        raise invalid(name, f"a positive number from {MIN_POSITIVE:g} to {MAX_MAGNITUDE:g}", value)
    return number


def non_negative(name: str, value: object) -> float:
    """A finite number, zero or more, whose square is finite too."""
    number = real(name, value, "a finite number, 0 or more")
    if number < 0:
        raise invalid(name, "a finite number, 0 or more", value)
    if number > MAX_MAGNITUDE:
        raise invalid(name, f"a number from 0 to {MAX_MAGNITUDE:g}", value)
    return number


def fraction(name: str, value: object, *, open_ends: bool = False) -> float:
    """A number from 0 to 1, the ends included unless ``open_ends``."""
    want = "a number strictly between 0 and 1" if open_ends else "a number from 0 to 1"
    number = real(name, value, want)
    inside = MIN_POSITIVE <= number < 1 if open_ends else 0 <= number <= 1
    if not inside:
        raise invalid(name, want, value)
    return number


def integer(name: str, value: object, minimum: int = 0, maximum: int | None = None) -> int:
    """A whole number within bounds; booleans and floats are refused."""
    want = f"a whole number, {minimum} or more"
    if maximum is not None:
        want = f"a whole number from {minimum} to {maximum}"
    if not is_whole(value):
        raise invalid(name, want, value)
    number = int(value)
    if maximum is None and number >= 2**63:
        raise invalid(name, f"{want} (of 63 bits)", value)
    if number < minimum or (maximum is not None and number > maximum):
        raise invalid(name, want, value)
    return number


def dimension(value: object) -> int:
    """A number of features, at most :data:`MAX_FEATURES`.

    >>> dimension(2**31)
    Traceback (most recent call last):
    headstart.errors.InputError: dim must be a whole number from 1 to 1048576; got 2147483648
    """
    return integer("dim", value, 1, MAX_FEATURES)


def one_of(name: str, value: object, options: Collection[str]) -> str:
    """One of a few names."""
    if not isinstance(value, str) or value not in options:
        raise invalid(name, "one of " + ", ".join(repr(option) for option in options), value)
    return value


def finite_array(name: str, value: object, want: str, ndim: int | None = None) -> Array:
    """A floating-point array with no NaN and no infinity; float32 stays float32.

    >>> finite_array("mean", [1, 2], "a vector", ndim=1)
    array([1., 2.])
    """
    usual = type(value) is float or (type(value) is np.ndarray and value.dtype in FLOATS)
    array: Array = np.asarray(value) if usual else float_array(name, value, want)
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"{name} must be {want}; got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        where = f" at index {tuple(int(i) for i in bad)}" if array.ndim else ""
        offender = array[tuple(bad)]
        raise InputError(f"{name} must be finite everywhere; got {offender}{where}")
    return array


def shaped_array(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """:func:`finite_array` of one shape; a number where that is ``()``.

    >>> shaped_array("reward", "high", ())
    Traceback (most recent call last):
    headstart.errors.InputError: reward must be a finite number; got 'high' of type <U4, not numbers
    """
    want = f"an array of shape {shape}" if shape else "a finite number"
    array = finite_array(name, value, want)
    if array.shape != shape:
        raise invalid(name, want, value)
    return array


def float_array(name: str, value: object, want: str) -> Array:
    """What is passed as an array of numbers, as one of floating-point numbers."""
    if has_masked(value):
        raise InputError(f"{name} must be {want}; got masked values, which are missing")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be {want}; got {describe(value)} ({error})") from None
    if array.dtype.kind == "O" and all(isinstance(item, numbers.Real) for item in array.flat):
        array = np.array([real(name, item) for item in array.flat]).reshape(array.shape)
    if array.dtype.kind == "O":
        place = next(p for p, item in enumerate(array.flat) if not isinstance(item, numbers.Real))
        index = tuple(int(i) for i in np.unravel_index(place, array.shape))
        raise InputError(
            f"{name} must be {want}; got {describe(array.flat[place])}"
            f"{f' at index {index}' if index else ''}"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must be {want}; got {describe(value)} of type {array.dtype}, not numbers"
        )
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # a long double too large becomes infinite
        return array.astype(np.float64, copy=False)


def has_masked(value: object, depth: int = 0) -> bool:
    """Whether an array, or an array in a list, has masked values: NumPy would read what is behind.

    >>> has_masked([[1.0, np.ma.masked], [1.0, 2.0]]), has_masked(np.ma.array([1.0, 2.0]))
    (True, False)
    """
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.is_masked(value))
    if depth > MAX_NESTING:
        return False
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == "O"):
        parts = (list, tuple, np.ndarray)
        items = value.flat if isinstance(value, np.ndarray) else value
        return any(has_masked(part, depth + 1) for part in items if isinstance(part, parts))
    return False


def entries(name: str, value: Any, want: str) -> list[Any]:
    """The entries of a list, or of anything else that has some; texts are refused.

    >>> entries("names", ("a", "b"), "a list of names")
    ['a', 'b']
    >>> entries("names", "ab", "a list of names")
    Traceback (most recent call last):
    headstart.errors.InputError: names must be a list of names; got 'ab'
    """
    if isinstance(value, (str, bytes)):
        raise invalid(name, want, value)
    try:
        return list(value)
    except Exception as error:  # objects of other libraries raise errors of their own
        raise invalid(name, want, value) from error


def is_iterable(value: object) -> bool:
    """Whether a value has entries: it is no text, and no array without axes.

    >>> is_iterable([1]), is_iterable("ab"), is_iterable(np.array(1.0))
    (True, False, False)
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return False
    try:
        iter(value)
    except TypeError:
        return False
    return True


def is_hashable(value: object) -> bool:
    """Whether a value can be looked up in a dict."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def id_hint(id: object) -> str:
    """What to do with a value that is no id but could be made one; empty for all others."""
    if isinstance(id, (datetime.date, np.datetime64)) or type(id).__name__ == "UUID":
        return " (pass its text, str(id))"
    if isinstance(id, float) and id.is_integer():
        return " (frames turn whole numbers into such where some are missing: convert them back)"
    return ""


def task_name(id: object) -> str:
    """A task id as text: 1 to 1,000 characters."""
    want = "text of 1 to 1000 characters, or a whole number"
    if isinstance(id, (int, np.integer)) and is_whole(id):
        if abs(int(id)) >= 10**999:
            raise invalid("id", want, id)
        return str(int(id))
    if not isinstance(id, str) or not 1 <= len(id) <= 1000:
        raise InputError(f"{invalid('id', want, id)}{id_hint(id)}")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise invalid("id", want, id) from None
    return plain_text(id)


@contextlib.contextmanager
def errors_at(argument: str, at: int) -> Iterator[None]:
    """Errors about one entry of an argument, which name the entry."""
    try:
        yield
    except InputError as error:
        text = str(error).removeprefix(argument)
        raise InputError(f"{argument}[{at}]{text}") from None
