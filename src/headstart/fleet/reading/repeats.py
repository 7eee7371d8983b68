"""Rows that are logged twice, and ids that are easily taken for each other.

Where a round or a timestamp is logged, two rows of a task that agree in it, in the reward and in
every feature are most likely the same row. Fingerprints of 64 bits tell them; of a large log, those
of a share of the rows, which is chosen by the task and the time, so that all copies of a row are in
it or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.fleet.reading.arrays import FeatureColumns
from headstart.fleet.reading.hashing import Hashes, hash_ids, mix_bits
from headstart.fleet.reading.rows import Rows

__all__ = ["MOST", "IdForms", "fingerprints", "repeated_rows"]

MOST = 1 << 18  # fingerprints of a log, about


def fingerprints(rows: Rows, share: float = 1.0) -> Hashes | None:
    """The fingerprints of a share of the rows; ``None`` without a round and a timestamp."""
    when = [part for part in (rows.rounds, rows.timestamps) if part is not None]
    if not when or not share:
        return None
    keys = hash_ids(rows.ids)[rows.codes]
    for part in when:
        keys = mix_bits(keys ^ mix_bits(part.view(np.uint64)))
    use = np.flatnonzero(keys < np.uint64(min(share * 2.0**64, 2.0**64 - 2048)))
    keys = keys[use]
    features: Any = rows.features
    columns = features.columns if isinstance(features, FeatureColumns) else features.T
    for column in (rows.rewards, *columns):
        bits = np.ascontiguousarray(column[use], dtype=np.float64).view(np.uint64)
        keys = mix_bits(keys ^ mix_bits(bits + np.uint64(1)))
    return keys


def repeated_rows(found: Iterable[Hashes], share: float = 1.0) -> list[str]:
    """A sentence where rows are logged more than once, from all fingerprints of a log.

    >>> repeated_rows([np.array([1, 2, 3], np.uint64), np.array([2], np.uint64)])[0][:42]
    '1 row is there again with the same task, t'
    """
    keys = np.concatenate([np.zeros(0, np.uint64), *found])
    copies = len(keys) - len(np.unique(keys))
    if not copies:
        return []
    if share < 1:
        count = f"about {copies / share:,.0f} rows are"
    else:
        count = "1 row is" if copies == 1 else f"{copies:,} rows are"
    return [
        f"{count} there again with the same task, time or round, reward and features, and count "
        f"again: are rows logged twice?"
    ]


@dataclasses.dataclass
class IdForms:
    """How ids are written: whole numbers, such with ``.0``, and with white space around them.

    >>> forms = IdForms()
    >>> forms.add(pa.array([7, 8]))
    >>> forms.add(pa.array(["7.0", "b"]))
    >>> forms.notes()[0][:58]
    "task ids such as '7.0' are there beside whole numbers such"
    """

    whole: str = ""
    fraction: str = ""
    spaced: str = ""

    def add(self, ids: pa.Array, spaced: str = "") -> None:
        """Look at the ids of a block: at all for ``.0``, at the first for whole numbers."""
        self.spaced = self.spaced or spaced
        if not self.whole:
            self.whole = first_match(ids[:1000].cast(pa.string()), r"^-?[0-9]+$")
        if not self.fraction and not pa.types.is_integer(ids.type):
            self.fraction = first_match(ids.filter(pc.ends_with(ids, ".0")), r"^-?[0-9]+\.0$")

    def merge(self, other: IdForms) -> None:
        """What another has seen too."""
        for name, seen in vars(other).items():
            setattr(self, name, getattr(self, name) or seen)

    def notes(self) -> list[str]:
        """What is easily taken for something else."""
        notes = []
        if self.whole and self.fraction:
            notes.append(
                f"task ids such as {self.fraction!r} are there beside whole numbers such as "
                f"{self.whole!r}: ids are compared as text, so that 7.0 and 7 are different tasks"
            )
        if self.spaced:
            notes.append(
                f"white space around task ids is removed, as in {self.spaced!r}: it is not part of "
                f"an id"
            )
        return notes


def first_match(texts: pa.Array, pattern: str) -> str:
    """The first text that matches a pattern, or nothing."""
    found = texts.filter(pc.match_substring_regex(texts, pattern))
    return found[0].as_py() if len(found) else ""
