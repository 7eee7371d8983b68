"""What the ledger of a bandit does with items that are known by their ids, if it has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headstart.bandit.ledger.changes import Step
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.rewards import RewardModel
from headstart.features.conversion import Features
from headstart.features.schema.encoder import Encoder
from headstart.features.transformer import AnyEncoder
from headstart.model.base import BaseBelief

if TYPE_CHECKING:
    from headstart.bandit.ledger.ledger import RewardedChoice


def new_items(
    encoder: AnyEncoder | None, features: Features, rewards: RewardModel
) -> ItemLedger | None:
    """The ledger of items of a bandit, if its schema knows items by their ids."""
    if not isinstance(encoder, Encoder) or not encoder.schema.identity:
        return None
    return ItemLedger(features, encoder.action_columns, encoder.number_columns, rewards)


def item_round(
    items: ItemLedger, choice: RewardedChoice
) -> tuple[float, RewardedChoice, list[Step]]:
    """The weight of a rewarded choice of an item, what its task learns, and how the items learn."""
    name, epoch, number, row, reward, forced, item = choice
    assert item is not None
    weight, steps = items.steps_to_learn(name, item, row, reward)
    row, target = items.own.subtract(items.features, row, np.float64(reward))
    return weight, (name, epoch, number, row, float(target), forced, item), steps


def with_known_coefficient(items: ItemLedger | None, belief: BaseBelief) -> BaseBelief:
    """A belief that was computed from a prior, with the coefficient of own rewards of items."""
    return belief if items is None else items.own.set_in(items.features, belief)
