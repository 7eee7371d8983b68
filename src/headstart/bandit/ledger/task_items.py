"""The items of one task, and what it has contributed to what is known of them."""

from __future__ import annotations

import copy
from typing import NamedTuple

from headstart.features.items.offers import Offers
from headstart.features.items.table import RewardSums
from headstart.features.items.vectors import Loading
from headstart.records import Array


class Pair(NamedTuple):
    """The rewards of one item in one task, and what they have contributed.

    Attributes
    ----------
    rewards, total
        How many rewards (the sum of their weights), and their sum.
    weight, share
        What of n and S of the item they are, before the task's influence.
    pending_weight, pending_total, pending_row
        Sums of the rewards that the item's vector has not learned from: of their weights, and with
        these of rewards and rows.
    precision, moment
        What of P and H of the item they are; ``None`` for nothing.
    """

    rewards: float = 0.0
    total: float = 0.0
    weight: float = 0.0
    share: float = 0.0
    pending_weight: float = 0.0
    pending_total: float = 0.0
    pending_row: Array | None = None
    precision: Array | None = None
    moment: Array | None = None


NO_REWARDS = Pair()


class TaskItems:
    """The items of one task."""

    __slots__ = ("influence", "last", "loading", "offers", "pairs", "totals")

    def __init__(self) -> None:
        self.pairs: dict[str, Pair] = {}
        self.totals = RewardSums()
        self.influence = 1.0  # ω: what it has contributed counts as often
        self.last: float | None = None  # its latest reward
        self.offers = Offers()
        self.loading: Loading | None = None  # of the last time it was closed, if it is closed

    def copy(self) -> TaskItems:
        """A copy that shares no mutable state."""
        clone = copy.copy(self)
        clone.pairs, clone.offers = self.pairs.copy(), self.offers.copy()
        return clone

    def set_state(self, totals: RewardSums, last: float | None, influence: float) -> None:
        """Set the sums over its rewards, the latest of them, and how much it counts."""
        self.totals, self.last, self.influence = totals, last, influence

    def set_loading(self, loading: Loading | None) -> None:
        """Set how it weighs vectors."""
        self.loading = loading
