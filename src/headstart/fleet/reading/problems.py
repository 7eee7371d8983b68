"""A block of a file as it came, and the rows of it that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.fleet.reading.arrays import as_array
from headstart.fleet.reading.rows import EXAMPLES, BadRows, Example, first_examples

__all__ = ["Block", "Mask", "Problems", "missing", "nulls", "one_chunk", "shows"]

Mask = npt.NDArray[np.bool_]


class Block(NamedTuple):
    """Some rows of a file, as they came.

    Attributes
    ----------
    table
        The columns that are used.
    file
        The file's name, for messages.
    first
        The number of the first row in the file.
    numbers
        The number of each row, where they do not simply follow each other.
    spoiled
        Cells that are not what their column must be: by column, by row of the table, their text.
        (They are missing in the table.)
    bad
        Rows that did not make it into the table.
    """

    table: pa.Table
    file: str
    first: int = 0
    numbers: npt.NDArray[np.int64] | None = None
    spoiled: Mapping[str, Mapping[int, str]] = {}
    bad: BadRows = BadRows()


class Problems:
    """The rows of a block that cannot be used, while they are being found."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.mask: Mask | None = None
        self.account = block.bad

    def add(self, reason: str, mask: Mask, text: Callable[[int], str] | str) -> None:
        """Rows that are bad for one reason, and what they hold."""
        places = np.flatnonzero(mask)
        if not len(places):
            return
        examples = []
        for place in places[:EXAMPLES].tolist():
            shown = text if isinstance(text, str) else text(place)
            examples.append(Example(self.block.file, self.number(place), reason, shown))
        fresh = len(places) if self.mask is None else int((mask & ~self.mask).sum())
        self.mask = mask.copy() if self.mask is None else self.mask | mask
        # A row is counted once, however many reasons there are.
        self.account = BadRows(
            self.account.count + fresh,
            dict(
                sorted(
                    {
                        **self.account.reasons,
                        reason: self.account.reasons.get(reason, 0) + len(places),
                    }.items()
                )
            ),
            first_examples([*self.account.examples, *examples]),
        )

    def number(self, place: int) -> int:
        """The number of a row in its file."""
        numbers = self.block.numbers
        return self.block.first + place if numbers is None else int(numbers[place])


def one_chunk(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece; nothing is copied where it is in one piece already."""
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def nulls(array: pa.Array) -> Mask:
    """Where an array has no value."""
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    mask: Mask = as_array(array.is_null())
    return mask


def missing(
    role: str, name: str, array: pa.Array, block: Block, problems: Problems, needed: Mask | None
) -> Mask:
    """Where a column has no value; rows that need one are bad."""
    mask = nulls(array)
    absent = mask if needed is None else mask & needed
    spoiled = block.spoiled.get(name, {})
    if spoiled:
        wrong = np.zeros(len(array), dtype=bool)
        wrong[list(spoiled)] = True
        problems.add(f"{role} is not {WANTED.get(role, 'a number')}", wrong, spoiled.__getitem__)
        absent = absent & ~wrong
    problems.add(f"{role} is missing", absent, "null")
    return mask


WANTED = {
    "task": "text or a whole number",
    "timestamp": "a time",
    "chosen": "true or false",
    "round": "text or a number",
}


def shows(values: npt.NDArray[Any]) -> Callable[[int], str]:
    """What an array holds at a place, for an example."""
    return lambda place: str(values[place])
