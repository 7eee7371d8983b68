"""Rounds of tasks, counted: which appear twice, and whether their arms and propensities fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headstart.fleet.reading.hashing import hash_ids, mix_bits
from headstart.fleet.reading.rows import Rows

__all__ = ["TurnCounts", "Turns"]

MOST = 2_000_000  # rounds that are kept count of; beyond that, a part of them chosen by their key


class TurnCounts(NamedTuple):
    """What was found among the rounds that were kept count of.

    Attributes
    ----------
    rounds
        How many rounds that is.
    share
        Which share of all rounds was kept count of; 1 for all.
    repeated
        Rounds with more than one row.
    arms
        The mean number of rows of a round.
    unchosen, overchosen
        Rounds with no arm chosen, and with more than one.
    summed, off
        Rounds in which every arm has a propensity, and those of them whose sum is not 1.
    """

    rounds: int
    share: float
    repeated: int
    arms: float
    unchosen: int
    overchosen: int
    summed: int
    off: int


class Turns:
    """Counts of rounds, within a bounded memory."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.limit = 2**64  # rounds with a key below this are kept count of
        self.keys = np.zeros(0, dtype=np.uint64)
        self.sums = np.zeros((4, 0))  # rows, chosen, propensities, rows without a propensity

    def add(self, rows: Rows) -> None:
        """Count the rounds of a block."""
        if rows.rounds is None or not rows.count:
            return
        tasks = hash_ids(rows.ids)
        keys = mix_bits(tasks[rows.codes] + mix_bits(rows.rounds.view(np.uint64)))
        values = np.zeros((4, rows.count))
        values[0] = 1
        if rows.chosen is not None:
            values[1] = rows.chosen
        if rows.propensities is not None:
            values[2] = np.nan_to_num(rows.propensities)
            values[3] = np.isnan(rows.propensities)
        if self.limit < 2**64:
            near = keys < np.uint64(self.limit)
            keys, values = keys[near], values[:, near]
        self.keys, places = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        both = np.concatenate([self.sums, values], axis=1)
        self.sums = np.stack([np.bincount(places, line, len(self.keys)) for line in both])
        while len(self.keys) > self.most:
            self.limit //= 2
            near = self.keys < np.uint64(self.limit)
            self.keys, self.sums = self.keys[near], self.sums[:, near]

    def counts(self) -> TurnCounts:
        """What was found."""
        rows, chosen, propensities, without = self.sums
        known = without == 0
        off = known & (np.abs(propensities - 1) > 1e-3)
        return TurnCounts(
            rounds=len(self.keys),
            share=self.limit / 2**64,
            repeated=int((rows > 1).sum()),
            arms=float(rows.mean()) if len(rows) else 0.0,
            unchosen=int((chosen == 0).sum()),
            overchosen=int((chosen > 1).sum()),
            summed=int(known.sum()),
            off=int(off.sum()),
        )
