"""Fields that are categories, listed or hashed into buckets, and the columns they become."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, ClassVar

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.features.schema.fields import MAX_WIDTH, Field, FieldError, Values, is_missing
from headstart.records import Array

MAX_TABLE_WIDTH = 256  # columns up to which the rows of all places are kept
MAX_BITS = 3300  # of a whole number, which has fewer than 1,000 digits


@dataclasses.dataclass(frozen=True, repr=False)
class Category(Field):
    """One of several values; see :func:`category`."""

    kind: ClassVar[str] = "category"
    is_discrete: ClassVar[bool] = True
    values: tuple[str | int, ...] = ()
    buckets: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple):
            raise checks.invalid("category", "a list of values", self.values)
        if (self.buckets is None) == (not self.values):
            raise InputError(
                "category must have either values, category('a', 'b'), or a number of buckets, "
                "category(buckets=32)"
            )
        if self.buckets is not None:
            buckets = checks.integer("buckets", self.buckets, 2, MAX_WIDTH)
            object.__setattr__(self, "buckets", buckets)
            return
        if len(self.values) == 1 and checks.is_iterable(self.values[0]):
            raise InputError(
                "category must have its values one by one, category('a', 'b') or "
                f"category(*values); got {checks.describe(self.values[0])}"
            )
        texts = all(type(value) is str for value in self.values)
        kind = str if texts else int
        for value in self.values:
            if type(value) is not kind or not is_encodable(value):
                raise checks.invalid(
                    "category", "values that are all texts or all whole numbers", value
                )
        if len(set(self.values)) < len(self.values):
            places = {value: place for place, value in enumerate(self.values)}
            twice = next(v for place, v in enumerate(self.values) if places[v] != place)
            raise checks.invalid("category", "distinct values", twice)
        if len(self.values) >= MAX_WIDTH:
            raise InputError(f"category must have fewer than {MAX_WIDTH} values: use buckets")

    def __repr__(self) -> str:
        if self.buckets is not None:
            return f"category(buckets={self.buckets})"
        values = [repr(value) for value in self.values[:6]]
        more = len(self.values) - len(values)
        return f"category({', '.join(values)}{f', … {more} more' if more else ''})"

    @property
    def places(self) -> int:
        """How many columns values have, without the one of unknown values."""
        return len(self.values) if self.buckets is None else self.buckets

    @property
    def width(self) -> int:
        """One column for each value or bucket, and one for what is unknown or missing."""
        return self.places + 1

    def column_names(self, name: str) -> list[str]:
        """The field's name with the value or the number of the bucket."""
        if self.buckets is None:
            return [*(f"{name}={value}" for value in self.values), f"{name} other"]
        return [*(f"{name}#{bucket}" for bucket in range(self.buckets)), f"{name} missing"]

    @functools.cached_property
    def codes(self) -> dict[Any, int]:
        """The column of each listed value."""
        return {value: place for place, value in enumerate(self.values)}

    @functools.cached_property
    def rows(self) -> Array:
        """The columns of a value in each place."""
        return np.eye(self.width)

    def write(self, values: Values, out: Array) -> None:
        """A one in the column of each value."""
        codes = self.encode(values)
        if self.width <= MAX_TABLE_WIDTH:
            out[:] = self.rows.take(codes, 0)
        else:
            out[np.arange(len(codes)), codes] = 1.0

    def write_one(self, value: Any, out: Array) -> None:
        """The same for one value."""
        out[self.encode_one(value, 0)] = 1.0

    def encode(self, values: Values) -> list[int]:
        """The column of each value."""
        items: Any = values.tolist() if isinstance(values, np.ndarray) else values
        kinds = set(map(type, items))
        if kinds == {str} and (self.buckets is not None or type(self.values[0]) is str):
            if self.buckets is not None:
                count = self.buckets
                return [bucket_of(value, count) for value in items]
            codes, other = self.codes, self.places
            return [codes.get(value, other) for value in items]
        return [self.encode_one(value, place) for place, value in enumerate(items)]

    def encode_one(self, value: Any, place: int) -> int:
        """The column of a value of any type."""
        if is_missing(value):
            return self.places
        if isinstance(value, str):
            value = checks.plain_text(value)
        elif checks.is_whole(value) or isinstance(value, (bool, np.bool_)):
            value = int(value)
        elif isinstance(value, (float, np.floating)) and value.is_integer():
            value = int(value)  # frames have whole numbers as floats where some are missing
        if self.buckets is not None:
            if type(value) not in (str, int) or (type(value) is int and not is_encodable(value)):
                raise FieldError(place, "a category: text, or a whole number", value)
            return bucket_of(str(value), self.buckets)
        if type(value) is not type(self.values[0]):
            kind = "text" if type(self.values[0]) is str else "a whole number"
            raise FieldError(place, f"a category, which is {kind} here", value)
        return self.codes.get(value, self.places)


def is_encodable(value: str | int) -> bool:
    """Whether a value can be written to a file: text without surrogates, or up to 999 digits."""
    if isinstance(value, int):
        return value.bit_length() < MAX_BITS
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@functools.lru_cache(maxsize=2**16)
def bucket_of(text: str, count: int) -> int:
    """The bucket of a text among ``count``, the same on every machine.

    >>> bucket_of("tea", 32), bucket_of("coffee", 32)
    (26, 25)
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % count
