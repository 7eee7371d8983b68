"""From a block of a file to :class:`Rows`."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.fleet.reading.cells import Block, Cells
from headstart.fleet.reading.columns import Resolved
from headstart.fleet.reading.repeats import fingerprints
from headstart.fleet.reading.rows import Rows
from headstart.fleet.reading.task_ids import read_task
from headstart.fleet.reading.times import read_rounds, read_times
from headstart.fleet.reading.transpose import Upright

__all__ = ["to_rows"]


def to_rows(
    block: Block,
    resolved: Resolved,
    width: int,
    transposed: bool = True,
    share: float = 1.0,
    lenient: bool = False,
) -> Rows:
    """Check a block and turn it into arrays; rows that cannot be used are left out and counted.

    Parameters
    ----------
    block
        The rows as they came.
    resolved
        The columns of their file.
    width
        How many features there are.
    transposed
        Whether features are an array of rows. Otherwise they may stay columns.
    share
        Of which share of the rows fingerprints are taken.
    lenient
        Whether timestamps and rounds serve the fingerprints alone and may be anything.
    """
    cells, roles = Cells(block, resolved), resolved.columns.roles
    chosen = cells.chosen() if "chosen" in roles else None
    codes, ids, spaced = read_task(cells)
    rewards = cells.numbers("reward", chosen)
    features: Any = np.zeros((len(codes), 0), np.float32)
    if resolved.features:
        features = cells.features(width)
    if transposed and isinstance(features, Upright):
        features = features[:]
    times = Cells(block, resolved) if lenient else cells
    rows = Rows(
        codes,
        ids,
        rewards,
        features,
        weights=cells.weights() if "weight" in roles else None,
        timestamps=read_times(times, "timestamp") if "timestamp" in roles else None,
        rounds=read_rounds(times) if "round" in roles else None,
        chosen=chosen,
        propensities=cells.propensities(chosen) if "propensity" in roles else None,
        spaced=spaced,
    )
    kept = None if cells.mask is None else ~cells.mask
    weightless = 0
    if rows.weights is not None and not rows.weights.all():
        empty = rows.weights == 0
        weightless = int((empty if kept is None else empty & kept).sum())
        kept = ~empty if kept is None else kept & ~empty
    rows = rows.map(writable) if kept is None else rows.take(kept)
    return rows._replace(
        bad=cells.bad, weightless=weightless, fingerprints=fingerprints(rows, share)
    )


def writable(array: Any) -> Any:
    """An array that may be written to; what Arrow lends may not."""
    if isinstance(array, Upright) or array.flags.writeable:
        return array
    return array.copy()
