"""The column of a task's own rewards of items: what is known of its coefficient, used exactly.

Rows of an item that the task has met hold s (m − m₀) (:mod:`~headstart.features.items.repeats`),
and a reward is expected to be xᵀθ + s (m − m₀) with the other columns x. So this is subtracted from
rewards that are learned, whose column becomes 0, and beliefs have the coefficient 1. An estimated
coefficient would need repeats, which add nothing where rewards are replayed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headstart.features.conversion import Features
from headstart.model.base import BaseBelief
from headstart.records import Array


class OwnColumn(NamedTuple):
    """The column, by its number; where it is not ``known``, its coefficient is learned.

    >>> import numpy as np
    >>> OwnColumn(1).subtract(Features(2), np.array([[3.0, 0.5]]), np.array([2.0]))
    (array([[3., 0.]]), array([1.5]))
    """

    at: int
    known: bool = True

    def units(self, features: Features) -> tuple[float, float]:
        """The shift and the scale of the column in rows of the model."""
        units = features.units
        return (0.0, 1.0) if units is None else (float(units[0][self.at]), float(units[1][self.at]))

    def subtract(self, features: Features, rows: Array, rewards: Any) -> tuple[Array, Any]:
        """Rows of the model, or one row, and rewards as they are learned."""
        if not self.known:
            return rows, rewards
        shift, scale = self.units(features)
        own = scale * rows[..., self.at] + shift
        if not own.any():
            return rows, rewards
        rows = rows.copy()
        rows[..., self.at] = (0.0 - shift) / scale
        return rows, rewards - own

    def set_in(self, features: Features, belief: BaseBelief) -> BaseBelief:
        """A belief with the coefficient, in units of the model."""
        return belief.with_known(self.at, self.units(features)[1]) if self.known else belief
