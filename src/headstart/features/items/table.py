"""The statistics of items over all tasks, and the columns that they become.

With n effective rewards of an item that sum to S, and the mean r̄ and standard deviation sd of all
rewards::

    known  K = n / (n + 5)        value  q = (S − n r̄) / (n + 5) / (0.3 sd)

how often it has been on offer (:mod:`~headstart.features.items.offers`), and the vector E. A new
item has q = K = 0. Where the task has rewards of the item itself, with mean m and share s
(:mod:`~headstart.features.items.repeats`), a column holds s (m − m₀), m₀ being the task's mean
reward, which counts the mean over all tasks as one reward. The coefficient of this column is 1; for
clicks, it is learned. The columns q, those of offers and of E, and those x of the action alone are
multiplied by 1 − s; a number becomes (1 − s) x + s x̄, x̄ being its mean over the task's rewards: if
it is shifted, so is the row. (Categories stay 0 where they were: columns that are rarely not 0 have
their units from the tasks that have met them.)

What a task contributes to n, S and the totals counts as often as its influence ω says
(:mod:`~headstart.features.items.influence`).
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.features.items.influence import Settled
from headstart.features.items.offers import Offers
from headstart.features.items.repeats import Repeats
from headstart.features.items.vectors import RANK, initial_vectors
from headstart.records import Array

COLUMN_NAMES = (
    "id value",
    "id known",
    "id offered",
    "id own",
    *(f"id vector {at + 1}" for at in range(RANK)),
)
VECTOR = len(COLUMN_NAMES) - RANK  # the first column of the vector
OWN = VECTOR - 1  # the column of the task's own rewards
PRIOR_COUNT = 5.0  # rewards of an average item that every item begins with
MIN_COUNT = 1e-9  # rewards, up to which an item is not known
VALUE_UNIT = 0.3  # of q, in standard deviations of rewards
MIN_SPREAD = 1e-9  # of rewards, in their size: below, they are constant


class RewardSums(NamedTuple):
    """Sums over all rewards, and those from which the weight of repeats is estimated.

    Attributes
    ----------
    rewards, total, squares
        How many rewards, their sum, and that of their squares.
    repeats
        What the weight of repeats is estimated from.
    change_squares, changes
        D and d, from which ω follows.
    fields
        The sum of the numbers of the actions that were rewarded.
    """

    rewards: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    repeats: Repeats = Repeats()
    change_squares: float = 0.0
    changes: float = 0.0
    fields: Array | float = 0.0

    def add(self, other: RewardSums, weight: float = 1.0) -> RewardSums:
        """The sums of both, the other with a weight, which may be negative."""
        return RewardSums(
            self.rewards + weight * other.rewards,
            self.total + weight * other.total,
            self.squares + weight * other.squares,
            self.repeats.add(other.repeats, weight),
            max(self.change_squares + weight * other.change_squares, 0.0),
            max(self.changes + weight * other.changes, 0.0),
            self.fields + weight * other.fields,
        )

    @property
    def mean(self) -> float:
        """r̄, 0 without rewards."""
        return self.total / self.rewards if self.rewards > 0 else 0.0

    @property
    def variance(self) -> float:
        """V, 0 before rewards have changed."""
        return self.change_squares / self.changes if self.changes > 0 else 0.0

    @property
    def mean_fields(self) -> Array | float:
        """The mean numbers of the actions that were rewarded, 0 without rewards."""
        return self.fields / self.rewards if self.rewards > 0 else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of rewards, 0 if they are constant."""
        if self.rewards <= 0:
            return 0.0
        square = self.squares / self.rewards
        variance = square - self.mean**2
        return math.sqrt(variance) if variance > MIN_SPREAD * square else 0.0


class ItemUpdate(NamedTuple):
    """The statistics of an item after a change: n and S, and P and H if they have changed."""

    weight: float
    total: float
    precision: Array | None = None
    moment: Array | None = None


class ItemTable:
    """The statistics of all items that have had a reward, in arrays that grow by doubling."""

    def __init__(self) -> None:
        self.totals = RewardSums()
        self.forgotten = RewardSums()  # of tasks that are not known any more
        self.settled = Settled()
        self.offers = Offers()
        self.places: dict[str, int] = {}
        self.size = 0  # places that are or were taken
        self.free: list[int] = []  # those of items without any reward left
        self.counts = np.zeros(0)
        self.sums = np.zeros(0)
        self.precisions = np.zeros((0, RANK, RANK))
        self.moments = np.zeros((0, RANK))
        self.vectors = np.zeros((0, RANK))

    def copy(self) -> ItemTable:
        """A copy that shares no mutable state."""
        clone = copy.copy(self)
        clone.places, clone.free = self.places.copy(), self.free.copy()
        clone.offers = self.offers.copy()
        for name in ("counts", "sums", "precisions", "moments", "vectors"):
            setattr(clone, name, getattr(self, name).copy())
        return clone

    def __len__(self) -> int:
        return len(self.places)

    def count_and_sum(self, key: str) -> tuple[float, float]:
        """N and S of an item."""
        at = self.places.get(key)
        return (0.0, 0.0) if at is None else (float(self.counts[at]), float(self.sums[at]))

    def precision_and_moment(self, key: str) -> tuple[Array, Array]:
        """P and H of an item."""
        at = self.places.get(key)
        if at is None:
            return np.eye(RANK), initial_vectors([key])[0]
        return self.precisions[at].copy(), self.moments[at].copy()

    def put(self, key: str, update: ItemUpdate) -> None:
        """Set the statistics of an item, which is forgotten if it has no reward left.

        Doing so twice is the same as once.
        """
        at = self.places.get(key)
        if update.weight <= MIN_COUNT:
            if at is not None:
                self.counts[at] = self.sums[at] = 0.0
                self.free.append(self.places.pop(key))
            return
        if at is None:
            at = self.free[-1] if self.free else self.size
            if at >= len(self.counts):
                self.grow()
            self.size = max(self.size, at + 1)
        self.counts[at], self.sums[at] = update.weight, update.total
        if key not in self.places:
            self.precisions[at] = np.eye(RANK)
            self.moments[at] = self.vectors[at] = initial_vectors([key])[0]
        if update.precision is not None and update.moment is not None:
            # Rewards of extreme sizes can leave no digits of a precision: the vector then stays.
            with contextlib.suppress(np.linalg.LinAlgError):
                np.linalg.cholesky(update.precision)
                vector = np.linalg.solve(update.precision, update.moment)
                if np.isfinite(vector).all():
                    self.precisions[at], self.moments[at] = update.precision, update.moment
                    self.vectors[at] = vector
        if key not in self.places:
            self.places[key] = at
            if self.free and self.free[-1] == at:
                self.free.pop()

    def set_totals(self, totals: RewardSums) -> None:
        """Set the sums over all rewards."""
        self.totals = totals

    def grow(self) -> None:
        """Make room for twice as many items."""
        size = max(64, 2 * len(self.counts))
        for name in ("counts", "sums", "precisions", "moments", "vectors"):
            old = getattr(self, name)
            larger = np.zeros((size, *old.shape[1:]))
            larger[: len(old)] = old
            setattr(self, name, larger)

    def columns(self, keys: Sequence[str]) -> Array:
        """The columns of items, shape ``(len(keys), len(COLUMN_NAMES))``."""
        places = list(map(self.places.get, keys, itertools.repeat(-1)))
        columns_by_item = np.zeros((len(keys), len(COLUMN_NAMES)))
        if self.size:
            self.write_known(np.array(places), columns_by_item)
        if -1 in places:  # new items, for which the last place was read
            new = [at for at, number in enumerate(places) if number < 0]
            initial = np.zeros((len(new), len(COLUMN_NAMES)))
            initial[:, VECTOR:] = initial_vectors([keys[at] for at in new])
            columns_by_item[new] = initial
        self.offers.write(keys, columns_by_item[:, 2])
        return columns_by_item

    def write_known(self, places: npt.NDArray[np.intp], out: Array) -> None:
        """Write q, K and E of items that are in the table into columns of zeros."""
        counts = self.counts.take(places)
        divisor = counts + PRIOR_COUNT
        deviation = self.totals.deviation
        if deviation:
            above = self.sums.take(places) - counts * self.totals.mean
            np.divide(above, VALUE_UNIT * deviation * divisor, out=out[:, 0])
        np.divide(counts, divisor, out=out[:, 1])
        out[:, VECTOR:] = self.vectors.take(places, 0)
