"""Rows of actions that were encoded before, for catalogues that are offered again and again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from headstart.features.schema.rows import ActionSpec, check_ids
from headstart.records import Array

MAX_ROWS = 4096
MAX_NUMBERS = 2**20  # of all rows together


class RowCache:
    """What actions contribute to encoded rows, by the values of their fields.

    Values that are equal have the same columns, whatever their types, so that a row that was
    encoded once is right for every action whose values are equal. Only lists of dicts are looked
    up. When it is full, it is emptied.

    Parameters
    ----------
    spec
        The fields.
    width
        How many columns they have.
    """

    def __init__(self, spec: ActionSpec, width: int) -> None:
        self.spec = spec
        self.values_of: Callable[[Any], Any] | None = None
        if spec.fields:
            self.values_of = operator.itemgetter(*spec.fields)
        self.id_of = operator.itemgetter(spec.id)
        self.id_is_field = spec.id in spec.fields
        self.places: dict[Any, int] = {}
        self.capacity = max(64, min(MAX_ROWS, MAX_NUMBERS // max(width, 1)))
        self.rows = np.empty((0, width))

    def find(self, actions: Any) -> tuple[Array, Any, bool] | None:
        """The rows, labels, and whether these are ids; ``None`` if not all rows are known."""
        if type(actions) is not list or self.values_of is None or not self.places or not actions:
            return None
        labels = None
        try:
            places = list(map(self.places.__getitem__, map(self.values_of, actions)))
            if self.spec.id in actions[0]:
                labels = list(map(self.id_of, actions))
        except Exception:  # not known, not hashable, or no dicts: frames have errors of their own
            return None
        extra = labels is not None and not self.id_is_field
        if sum(map(len, actions)) != len(actions) * (len(self.spec.fields) + extra):
            return None
        if labels is not None:
            check_ids(labels)
        elif self.spec.identity:
            return None
        return self.rows.take(places, 0), labels, labels is not None

    def add(self, actions: list[dict[str, Any]], rows: Array) -> None:
        """Remember the rows of actions, which were encoded."""
        if self.values_of is None or len(actions) > self.capacity:
            return
        try:
            keys = list(map(self.values_of, actions))
            new = {key: place for place, key in enumerate(keys) if key not in self.places}
        except TypeError:  # ids alone, or values that are not hashable
            return
        if len(self.places) + len(new) > self.capacity:
            self.places, new = {}, {key: place for place, key in enumerate(keys)}
        first = len(self.places)
        if first + len(new) > len(self.rows):
            larger = np.empty((min(self.capacity, 2 * (first + len(new))), rows.shape[1]))
            larger[:first] = self.rows[:first]
            self.rows = larger
        self.rows[first : first + len(new)] = rows.take(list(new.values()), 0)
        self.places.update(zip(new, range(first, first + len(new)), strict=True))
