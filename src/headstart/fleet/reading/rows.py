"""Blocks of log rows, and the account of the rows that cannot be used."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.bandit.offline.observation import rounds_of_means
from headstart.errors import visible
from headstart.fleet.reading.arrays import FeatureColumns, as_arrow

EXAMPLES = 5  # of each reason; more are only counted

Floats = npt.NDArray[np.float64]


class Example(NamedTuple):
    """One row that cannot be used: where it is (the first row is 0), why, and what it holds."""

    file: str
    row: int
    reason: str
    text: str


@dataclasses.dataclass(frozen=True)
class BadRows:
    """How many rows cannot be used, and why.

    Accounts add up, in any order: of each reason the first examples are kept, by file and row.

    Attributes
    ----------
    count
        The number of rows.
    reasons
        How many rows there are for each reason; a row may be bad for several.
    examples
        Up to five for each reason.

    Examples
    --------
    >>> one = BadRows(1, {"reward is missing": 1}, [Example("a", 7, "reward is missing", "null")])
    >>> (one + one).reasons
    {'reward is missing': 2}
    >>> print(one)
    reward is missing: 1 row, such as row 7 of a (null)
    """

    count: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[Example] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return self.count > 0

    def __add__(self, other: BadRows) -> BadRows:
        if not isinstance(other, BadRows):
            return NotImplemented
        if not other.reasons:
            return self
        if not self.reasons:
            return other
        reasons = Counter(self.reasons) + Counter(other.reasons)
        examples = first_examples([*self.examples, *other.examples])
        return BadRows(self.count + other.count, dict(sorted(reasons.items())), examples)

    def __str__(self) -> str:
        lines = []
        for reason, count in sorted(self.reasons.items(), key=lambda item: (-item[1], item[0])):
            shown = [
                f"row {example.row} of {example.file} ({example.text})"
                for example in self.examples
                if example.reason == reason
            ]
            rows = f"{count:,} row" + ("s" if count != 1 else "")
            text = f"{reason}: {rows}, such as {'; '.join(shown[:3])}"
            lines.append(visible(text, line=True))
        return "\n".join(lines)


def plain(value: Any) -> Any:
    """A value as JSON has it: dicts, lists, text, and numbers, which are finite or ``None``.

    >>> plain({"bad": BadRows(), "mean": np.array([1.5, np.nan])})
    {'bad': {'count': 0, 'reasons': {}, 'examples': []}, 'mean': [1.5, None]}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        value = vars(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def first_examples(examples: Iterable[Example]) -> list[Example]:
    """The first few of each reason, by file and row: the same whatever order they came in."""
    ordered = sorted(set(examples), key=lambda one: (one.reason, one.file, one.row, one.text))
    groups = itertools.groupby(ordered, key=lambda one: one.reason)
    return [example for _, group in groups for example in itertools.islice(group, EXAMPLES)]


class Rows(NamedTuple):
    """A block of log rows, as arrays.

    Attributes
    ----------
    codes
        Which task each row belongs to: an index into ``ids``.
    ids
        The ids of the tasks in this block, an Arrow array of text or whole numbers; every one has
        a row.
    rewards
        The rewards; NaN where an arm that was not chosen has none.
    features
        One row for each row, C-contiguous, finite everywhere; or column by column, where that was
        asked for (:meth:`Logs.read`).
    weights
        How often each row counts, above 0; ``None`` for once.
    timestamps
        When: microseconds since 1970 (UTC) for times and dates, whole numbers as they are.
    rounds
        Which round of its task a row belongs to. The same round has the same number in every block
        and every file; rounds of different tasks may share a number.
    chosen
        Whether each row is the arm that was shown.
    propensities
        The probability with which each arm was chosen; NaN where an arm that was not has none.
    counts
        Of how many rewards each reward is the mean; ``None`` where each is one.
    items
        The ids of items, as text, where the schema knows items by their ids.
    bad
        The rows that were left out because they cannot be used.
    weightless
        How many rows were left out because their weight is 0.
    fingerprints
        Numbers that stand for some of the rows, to find rows that are logged twice; ``None`` where
        rows of a task cannot be distinguished (:mod:`headstart.fleet.reading.blocks`).
    spaced
        An id of the file that has white space around it, which was removed.
    """

    codes: npt.NDArray[np.int32]
    ids: pa.Array
    rewards: Floats
    features: npt.NDArray[np.float32] | npt.NDArray[np.float64] | FeatureColumns
    weights: Floats | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    rounds: npt.NDArray[np.int64] | None = None
    chosen: npt.NDArray[np.bool_] | None = None
    propensities: Floats | None = None
    counts: Floats | None = None
    items: npt.NDArray[Any] | None = None
    bad: BadRows = BadRows()
    weightless: int = 0
    fingerprints: npt.NDArray[np.uint64] | None = None
    spaced: str = ""

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple's count is no use here
        """How many rows there are (``len`` of a tuple is its number of fields)."""
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """The ids as Python's own text, which takes many times as long to look up as Arrow's."""
        names: list[str] = self.ids.cast(pa.string()).to_pylist()
        return names

    def take(self, index: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Rows:
        """Some of the rows, by a mask or by their places; ``ids`` is kept to what they need."""
        codes, ids = drop_unused_ids(self.codes[index], self.ids)
        return self.map(lambda array: array[index])._replace(codes=codes, ids=ids)

    def split(self, count: int) -> Iterator[Rows]:
        """The rows in blocks of at most so many; what was left out is counted with the first."""
        if self.count <= count:
            yield self
            return
        for start in range(0, self.count, count):
            block = self.take(np.arange(start, min(start + count, self.count)))
            if start:
                block = block._replace(bad=BadRows(), weightless=0, fingerprints=None)
            yield block

    def map(self, function: Callable[[Any], Any]) -> Rows:
        """The same function of every array with an entry for each row, but for the codes."""
        arrays = self._asdict()
        per_row = {name: arrays[name] for name in PER_ROW if arrays[name] is not None}
        return self._replace(**{name: function(array) for name, array in per_row.items()})

    def with_constant(self) -> Rows:
        """The same rows with a feature after the others that is 1 everywhere."""
        features: Any = self.features
        if isinstance(features, FeatureColumns):
            ones = np.broadcast_to(features.dtype.type(1.0), self.count)
            features = FeatureColumns([*features.columns, ones], features.dtype.type)
        else:
            features = np.hstack([features, np.ones((self.count, 1), dtype=features.dtype)])
        return self._replace(features=features)

    def as_rounds(self) -> Rows:
        """The rows as rounds whose noise is that of a single reward, where rewards are means."""
        if self.counts is None:
            return self
        features: Any = self.features[:]
        rounds: Any = rounds_of_means(features, self.rewards, self.counts)
        return self._replace(features=rounds[0], rewards=rounds[1], counts=None)

    def chosen_rows(self) -> Rows:
        """Only the rows that were chosen, which are the evidence; all where nothing says so."""
        if self.chosen is None or self.chosen.all():
            return self
        return self.take(self.chosen)


PER_ROW = Rows._fields[2:11]  # from the rewards to the items


def drop_unused_ids(
    codes: npt.NDArray[np.int32], ids: pa.Array
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The same tasks without ids that no row has."""
    used = np.zeros(len(ids), dtype=bool)
    used[codes] = True
    if used.all():
        return codes, ids
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return place[codes], ids.filter(as_arrow(used))
