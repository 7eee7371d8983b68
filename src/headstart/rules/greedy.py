"""The arm with the largest expected reward."""

from __future__ import annotations

import dataclasses

from headstart.model.base import BaseBelief
from headstart.records import Array
from headstart.rules.base import LoopForm
from headstart.rules.indexed import Indexed
from headstart.rules.ties import Rng


@dataclasses.dataclass(frozen=True, repr=False)
class Greedy(Indexed):
    """No exploration beyond ``explore``: the arm with the largest expected reward xᵀθ̂."""

    def index(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Array:
        """xᵀθ̂."""
        return belief.predict(contexts)

    @property
    def stackable(self) -> bool:
        """It looks at expected rewards alone."""
        return True

    @property
    def index_is_fixed(self) -> bool:
        """It draws nothing."""
        return True

    def loop_form(self) -> LoopForm | None:
        """UCB with γ = 0."""
        return self.loop_form_with("ucb", 0.0)
