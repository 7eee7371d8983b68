"""Bounds on the probability of every arm: the nearest distribution within them.

Of p, the probabilities that a rule gives the arms, the clipped ones are the distribution q within
the bounds with the least Σ (q − p)². It is

    q_i = min(max(p_i + τ, floor), ceiling)    with the τ for which Σ q_i = 1.

The arms keep their order, equal ones stay equal, and probabilities within the bounds that sum to 1
are left as they are. An arm is drawn from q itself, so that q is its exact propensity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.records import Array
from headstart.rules.ties import Mask

Bounds = tuple[float, float] | None  # floor and ceiling of every probability
SLACK = 1e-12  # by which rounding may exceed a bound: ten arms of at least 0.1 are fine


def checked_bounds(bounds: Any) -> Bounds:
    """A floor and a ceiling, 0 ≤ floor < ceiling ≤ 1; the same object if it is a tuple of floats.

    >>> checked_bounds([0.1, 1])
    (0.1, 1.0)
    """
    if bounds is None:
        return None
    want = "a floor and a ceiling, such as (0.1, 0.9), or None"
    is_pair = isinstance(bounds, (tuple, list)) or getattr(bounds, "ndim", 0) == 1
    if not is_pair or len(bounds) != 2:
        raise checks.invalid("probability", want, bounds)
    floor, ceiling = (checks.fraction("probability", bound) for bound in bounds)
    if not floor < ceiling:
        raise InputError(f"probability must be {want}; got {floor!r}, not below {ceiling!r}")
    plain = type(bounds) is tuple and all(type(bound) is float for bound in bounds)
    return bounds if plain else (floor, ceiling)


def check_arms(bounds: Bounds, arms: int, where: str = "") -> None:
    """Refuse a number of arms whose probabilities cannot all be within the bounds.

    >>> check_arms((0.2, 1.0), 6)
    Traceback (most recent call last):
    headstart.errors.InputError: probability=(0.2, 1.0) cannot hold for 6 arms: 6 × 0.2 is above 1
    """
    if bounds is None:
        return
    floor, ceiling = bounds
    many = f"probability={bounds} cannot hold for {arms} arm{'s' * (arms != 1)}{where}: {arms} × "
    if arms * floor > 1.0 + SLACK:
        raise InputError(f"{many}{floor!r} is above 1")
    if arms * ceiling < 1.0 - SLACK:
        raise InputError(f"{many}{ceiling!r} is below 1")


def clip_probabilities(values: Array, bounds: tuple[float, float], is_allowed: Mask) -> Array:
    """The nearest distributions within the bounds over the arms that may be picked, ``(..., K)``.

    >>> clip_probabilities(np.array([1.0, 0.0, 0.0]), (0.1, 0.7), np.ones(3, dtype=bool))
    array([0.7 , 0.15, 0.15])
    """
    if values.ndim > 1:
        flat = values.reshape(-1, values.shape[-1])
        masks = np.broadcast_to(is_allowed, values.shape).reshape(flat.shape)
        pairs = zip(flat, masks, strict=True)
        rows = [clip_probabilities(row, bounds, mask) for row, mask in pairs]
        return np.array(rows).reshape(values.shape)
    allowed_values = values[is_allowed]
    check_arms(bounds, len(allowed_values))
    floor, ceiling = bounds
    # Σ q rises with τ, linearly between the points where an arm meets a bound.
    corners = np.unique(np.concatenate([floor - allowed_values, ceiling - allowed_values]))
    sums = np.clip(allowed_values + corners[:, None], floor, ceiling).sum(-1)
    clipped = np.zeros_like(values)
    clipped[is_allowed] = np.clip(allowed_values + np.interp(1.0, sums, corners), floor, ceiling)
    return clipped


def select_by_probability(values: Array, uniform: Any) -> npt.NDArray[np.intp]:
    """The arm that a number between 0 and 1 falls on, of arms with these probabilities.

    >>> select_by_probability(np.array([[0.0, 0.25, 0.75]] * 2), np.array([0.2, 0.3]))
    array([1, 2])
    """
    edges = values.cumsum(-1)
    arms = (edges <= np.asarray(uniform)[..., None] * edges[..., -1:]).sum(-1)
    last = values.shape[-1] - 1 - (values[..., ::-1] > 0).argmax(-1)  # rounding may pass it
    return np.minimum(arms, last)
