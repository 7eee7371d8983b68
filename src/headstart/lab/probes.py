"""Probes: what an experiment measures at the start of each task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.records import Array
from headstart.transfer import Bias, Subspace, Transfer
from headstart.worlds.base import Episode

__all__ = ["residual"]


def residual(transfer: Transfer, state: Any, episodes: Sequence[Episode]) -> dict[str, Array]:
    """W = ‖P̂⊥(θ* − θ̄)‖ of each seed's new task, and W²; NaN while nothing is learned.

    B-OFUL has no projection: its P̂⊥ is I.
    """
    truth = np.stack([np.asarray(episode.theta) for episode in episodes])
    if isinstance(transfer, Subspace):
        found, rank, learning = transfer.structure(state)
        outside = np.eye(truth.shape[-1]) - found.projection(rank)
    elif isinstance(transfer, Bias):
        learning = np.asarray(state.estimates.count) > 0
        outside = np.broadcast_to(np.eye(truth.shape[-1]), (len(truth), *2 * truth.shape[-1:]))
    else:
        return {}
    away = (outside @ (truth - state.estimates.mean)[..., None])[..., 0]
    squares = np.where(learning, (away**2).sum(-1), np.nan)
    return {"W": np.sqrt(squares), "W2": squares}
