"""Probes: what an experiment measures at the start of each task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.arrays import matvec
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.worlds.base import Episode


def residual(transfer: Transfer, state: Any, episodes: Sequence[Episode]) -> dict[str, Array]:
    """W = ‖P̂⊥(θ* − θ̄)‖ of each seed's new task, and W²; NaN while nothing is learned.

    B-OFUL has no projection: its P̂⊥ is I.
    """
    projection = transfer.residual_projection(state)
    if projection is None:
        return {}
    outside, mean, is_known = projection
    truth = np.stack([np.asarray(episode.theta) for episode in episodes])
    squares = np.where(is_known, (matvec(outside, truth - mean) ** 2).sum(-1), np.nan)
    return {"W": np.sqrt(squares), "W2": squares}
