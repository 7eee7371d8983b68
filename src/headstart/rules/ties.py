"""The best arms by score; ties up to rounding are broken uniformly at random."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headstart.records import Array

Mask = npt.NDArray[np.bool_]
Allowed = Mask | None  # the arms that may be chosen; all of them if None
Rng: TypeAlias = "np.random.Generator"  # as text: importing numpy.random takes a while

DOUBLE = np.dtype(np.float64)
# 64 × the distance from 1 to the next number, in double and in single precision
TIE_ULPS, TIE_ULPS_SINGLE = 64 * 2.220446049250313e-16, 64 * 1.1920928955078125e-07


def best_arms(scores: Array, allowed: Allowed, noise: Any = 0.0) -> Mask:
    """The arms whose score is the largest up to rounding.

    Equal contexts can differ in the last bits of their scores, depending on where they stand in the
    matrix; a few ulps, of the score or of R where scores cancel to nothing, must not decide.
    """
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    scale = np.asarray(noise)[..., None] if np.ndim(noise) else noise
    return scores >= top - tie_tolerance(top, scale, scores.dtype)


def best_two(scores: Array) -> tuple[int, float, float]:
    """The arm with the largest score, that score, and the second largest.

    >>> best_two(np.array([1.0, 3.0, 2.0]))
    (1, 3.0, 2.0)
    """
    arm = int(scores.argmax())
    others = scores.copy() if scores.dtype is DOUBLE else scores.astype(np.float64)
    others[arm] = -np.inf
    return arm, scores.item(arm), others.item(others.argmax())


def tie_tolerance(top: Any, noise: Any, kind: Any = np.float64) -> Any:
    """How far below the largest score counts as equal to it."""
    double = kind is DOUBLE or kind == np.float64
    return (TIE_ULPS if double else TIE_ULPS_SINGLE) * (abs(top) + noise)


def select_by_uniform(mask: Mask, uniform: Array) -> npt.NDArray[np.intp]:
    """The marked arm that a number between 0 and 1 falls on; all marked ones are equally likely.

    >>> select_by_uniform(np.array([[False, True, False, True]] * 2), np.array([0.4, 0.6]))
    array([1, 3])
    """
    counts = mask.cumsum(-1)
    total = counts[..., -1]
    position = np.minimum((uniform * total).astype(np.intp), total - 1)
    return (counts > position[..., None]).argmax(-1)


def arm_mask(like: npt.NDArray[Any], allowed: Allowed) -> Mask:
    """The arms that may be picked, in the shape of ``like``."""
    if allowed is None:
        return np.ones(like.shape, dtype=bool)
    return np.broadcast_to(allowed, like.shape)


def draw_arm(mask: Mask, rng: Rng) -> int:
    """One of the marked arms, uniformly; no random number is drawn if there is only one."""
    candidates = mask.nonzero()[0]
    if len(candidates) == 1:
        return int(candidates[0])
    return int(candidates[rng.integers(len(candidates))])
