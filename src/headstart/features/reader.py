"""Reading the contexts that are passed to a bandit, and what is remembered of earlier ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.features.conversion import Features
from headstart.features.sizes import UsualSizes
from headstart.records import Array

__all__ = ["ContextReader", "Offer"]

FIRST_OFFERS = 16  # offers that the usual sizes are computed from; later, every power of two


#: The contexts as they were passed and as the model sees them (in a new array), and the names and
#: the usual sizes of features from now on.
Offer = tuple[Array, Array, tuple[str, ...] | None, UsualSizes]


class ContextReader:
    """Checks contexts and transforms them, and remembers names and usual sizes of features."""

    def __init__(
        self, features: Features, sizes: UsualSizes | None = None, offer_count: int = 0
    ) -> None:
        self.features = features
        self.offer_count = offer_count
        self.set_sizes(sizes or UsualSizes.zero(features.context_dim))

    def set_sizes(self, sizes: UsualSizes) -> None:
        """Set the usual sizes of the features."""
        self.sizes, self.limits = sizes, sizes.limits
        self.max_squares = float(self.limits.min()) ** 2  # no sum of squares is below its terms
        self.usual_sizes = sizes.usual(self.features)

    def read(self, contexts: Any) -> Offer:
        """The contexts of one task, shape ``(K, context_dim)``."""
        given, squares, names = self.features.read(contexts)
        sizes = self.check_sizes(given, squares)
        return given, self.features.transform(given), names, sizes

    def read_many(self, contexts: Any, tasks: int) -> Offer:
        """The contexts of several tasks, shape ``(tasks, K, context_dim)``."""
        given, sizes = self.features.read_many(contexts, tasks), self.sizes
        if tasks:
            flat = given.reshape(-1, self.features.context_dim)
            sizes = self.check_sizes(flat, float(np.vdot(flat, flat)))
        return given, self.features.transform(given), self.features.names, sizes

    def check_sizes(self, contexts: Array, squares: float) -> UsualSizes:
        """The usual sizes from now on; contexts with values far out are refused.

        Most contexts pass a quick test by their sum of ``squares`` or by the limits.
        """
        count, sizes = self.offer_count, self.sizes
        due = count < FIRST_OFFERS or count & (count - 1) == 0
        if not due and (squares <= self.max_squares or (np.abs(contexts) <= self.limits).all()):
            return sizes
        updated = sizes.update(contexts, self.features)
        return updated if due else sizes

    def accept(self, offer: Offer, *, is_frozen: bool) -> bool:
        """Remember an offer that a choice was made from; returns whether the sizes have changed.

        As long as learning is frozen, they do not.
        """
        _, _, names, sizes = offer
        self.offer_count += 1
        if names is not self.features.names:
            self.features = self.features._replace(names=names)
        if sizes is self.sizes or is_frozen:
            return False
        self.set_sizes(sizes)
        return True
