"""How many components to keep: the paper's gap, the log gap, and the log gap with a noise test.

All take eigenvalues, largest first, with any leading batch axes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.arrays import array_namespace
from headstart.records import Array

Ranks = npt.NDArray[np.intp]

ROUNDING_SHARE = 1e-12  # eigenvalues below this share of the largest are rounding


def raw_gap(values: Array) -> Ranks:
    """The paper's rule: p = argmax σ_p − σ_{p+1}.

    With few tasks it often answers 1, which leaves most of what distinguishes tasks outside.

    >>> raw_gap(np.array([9.0, 4.0, 3.9, 0.1]))
    array(1)
    """
    dim = values.shape[-1]
    if dim == 1:
        return np.ones(values.shape[:-1], dtype=np.intp)
    gaps = values[..., :-1] - values[..., 1:]
    # Where no variance was seen at all there is no gap, and nothing to project.
    return array_namespace(values).where(values[..., 0] > 0.0, gaps.argmax(-1) + 1, dim)


def log_gap(values: Array, count: Any) -> Ranks:
    """The largest drop in ratio: p = argmax log(σ_p/σ_{p+1}), p ≤ 0.8·min(d, count−1).

    Answers d (no projection) while there are too few tasks to say anything. It can never answer d
    otherwise: where there is no structure it still finds some.

    >>> log_gap(np.array([9.0, 4.0, 3.9, 0.1]), 100)
    array(3)
    """
    return best_log_gap(values, count)[0]


def gated_log_gap(values: Array, count: Any) -> Ranks:
    """The log gap where it is larger than that of noise; d (no projection) otherwise.

    It is compared with the 99 % point of the largest log gap of ``count`` white vectors (parallel
    analysis), so that tasks without structure are not projected.

    >>> gated_log_gap(np.array([9.0, 4.0, 3.9, 0.1]), 100)
    array(3)
    >>> gated_log_gap(np.array([1.3, 1.1, 0.9, 0.7]), 100)
    array(4)
    """
    best, gap = best_log_gap(values, count)
    dim = values.shape[-1]
    xp = array_namespace(gap, count)
    return xp.where(gap > white_log_gap(dim, count), best, dim)


def best_log_gap(values: Array, count: Any) -> tuple[Ranks, Array]:
    """The rank with the largest admissible log gap, and that gap; (d, 0) where none is."""
    xp = array_namespace(values, count)
    dim = values.shape[-1]
    batch = np.broadcast_shapes(values.shape[:-1], np.shape(count))
    top = xp.floor(0.8 * xp.minimum(dim, xp.asarray(count) - 1))
    if dim == 1:
        return np.full(batch, dim, dtype=np.intp), np.zeros(batch)
    largest = xp.maximum(values[..., :1], 1e-300)
    logs = xp.log(xp.maximum(values, ROUNDING_SHARE * largest))
    gaps = xp.broadcast_to(logs[..., :-1] - logs[..., 1:], (*batch, dim - 1))
    gaps = xp.where(xp.arange(1, dim) <= top[..., None], gaps, -1.0)
    best = gaps.max(-1)
    return xp.where(best > 0.0, gaps.argmax(-1) + 1, dim), xp.maximum(best, 0.0)


def white_log_gap(dim: int, count: Any) -> Array:
    """The log gap that ``count`` white vectors exceed once in a hundred times.

    Interpolated in a table made by simulation (``tools/white_gap_table.py``). The gap peaks where
    there are as many vectors as dimensions, so rows of the table are compared at equal
    (count − 1)/dim. Beyond the largest count it falls like 1/√count; beyond the largest dimension
    that dimension's row is used, which errs on the side of no projection.
    """
    xp = array_namespace(count)
    table = white_table()
    dims = np.array(sorted(table))
    at = float(np.interp(np.log(dim), np.log(dims), np.arange(len(dims))))
    low = int(at)
    high = min(low + 1, len(dims) - 1)
    vectors = xp.asarray(count, dtype=float)
    lower, upper = (
        row_gap(*table[row], 1.0 + (vectors - 1.0) * row / dim) for row in (dims[low], dims[high])
    )
    return xp.exp(lower + (at - low) * (upper - lower))


def row_gap(counts: Array, logs: Array, count: Array) -> Array:
    """The logarithm of the tabulated gap at any count, for one dimension."""
    xp = array_namespace(count)
    inside = xp.clip(count, counts[0], counts[-1])
    beyond = xp.maximum(count, counts[-1]) / counts[-1]
    return xp.interp(xp.log(inside), np.log(counts), logs) - 0.5 * xp.log(beyond)


@functools.cache
def white_table() -> dict[int, tuple[Array, Array]]:
    """By dimension: counts, and the logarithms of the gaps there."""
    from importlib import resources

    text = resources.files("headstart.subspace").joinpath("white_gap.csv").read_text()
    dims, counts, gaps = np.loadtxt(text.splitlines(), delimiter=",", skiprows=1, unpack=True)
    return {int(dim): (counts[dims == dim], np.log(gaps[dims == dim])) for dim in np.unique(dims)}
