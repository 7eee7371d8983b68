"""Random draws of a Gaussian parameter given that they rank some arms first, in a given order.

θ = θ̂ + v F z with z ~ N(0, I) gives the arms the scores X θ. That the arms b₁, …, b_j come first in
this order, of all arms that may be picked, means that

    score(b₁) ≥ score(b₂) ≥ … ≥ score(b_j) ≥ score(a)    for every other arm a,

which are linear inequalities in z. Draws of z under them come from elliptical slice sampling whose
steps are exact (Gessner, Kanjilal and Hennig, 2020): with ν ~ N(0, I), every point of the ellipse
z cos φ + ν sin φ is as probable as any other, an inequality allows an arc of it, and φ is uniform
on the arc around φ = 0 that all inequalities allow. Chains start from unrestricted draws. At first
they may violate the inequalities by as much as half of the chains do, then by less, until none
does: this reaches orders of small probability. Where the parameter is drawn from one of several
Gaussians, the group is drawn given z after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.arrays import max_abs
from headstart.records import Array
from headstart.rules.ties import Mask, Rng

CHAINS = 100
BURN_IN = 40  # steps of every chain under the final inequalities before the first draw is taken
THINNING = 5  # steps between two draws of a chain
LEVEL_STEPS = 3  # steps at each level of violation
MAX_LEVELS = 200  # levels of violation: an order is then less probable than 2^-200


class ScoreOrder(NamedTuple):
    """Which arms come first: for each inequality, an arm and one with a score no larger."""

    upper: npt.NDArray[np.intp]
    lower: npt.NDArray[np.intp]

    def slack(self, scores: Array) -> Array:
        """By how much each inequality holds, ``(..., K)`` to ``(..., inequalities)``."""
        return scores[..., self.upper] - scores[..., self.lower]


def draws_in_order(
    parts: tuple[Array, Array, Array],
    scale: float,
    contexts: Array,
    rng: Rng,
    before: Sequence[int],
    left: Mask | None,
    count: int,
) -> Array:
    """The scores of the arms under draws that rank the arms ``before`` first, ``(count, K)``.

    Parameters
    ----------
    parts, scale, contexts
        As for :func:`~headstart.rules.best_arm.best_arm_probabilities`.
    rng
        Source of the draws.
    before
        The arms that come first, in this order; at least one.
    left
        The arms that may come next; all but those before if ``None``.
    count
        How many draws.
    """
    weights, means, roots = parts
    centres = means @ contexts.T  # (G, K)
    slopes = scale * (contexts @ roots).swapaxes(-1, -2)  # (G, d, K)
    others = np.setdiff1d(np.arange(len(contexts)) if left is None else left.nonzero()[0], before)
    order = ScoreOrder(
        np.array([*before[:-1], *[before[-1]] * len(others)], dtype=np.intp),
        np.array([*before[1:], *others], dtype=np.intp),
    )
    # Arms that are equal are tied in every draw, and their order is no information on θ.
    apart = np.abs(order.slack(slopes)).max((0, 1)) + np.abs(order.slack(centres)).max(0)
    distinct = apart > 1e-12 * (max_abs(slopes) + max_abs(centres))
    order = ScoreOrder(order.upper[distinct], order.lower[distinct])
    chains = Chains(weights, centres, slopes, order, rng)
    chains.descend()
    chains.step(BURN_IN)
    draws = [chains.scores()]
    while len(draws) * CHAINS < count:
        chains.step(THINNING)
        draws.append(chains.scores())
    return np.concatenate(draws)[:count]


class Chains:
    """Chains of elliptical slice sampling, each with its z and its group."""

    def __init__(
        self, weights: Array, centres: Array, slopes: Array, order: ScoreOrder, rng: Rng
    ) -> None:
        self.weights, self.centres, self.slopes = weights, centres, slopes
        self.order, self.rng = order, rng
        self.allowance = np.inf  # by which inequalities may be violated
        self.z = rng.standard_normal((CHAINS, slopes.shape[1]))
        self.group = rng.choice(len(weights), CHAINS, p=weights / weights.sum())

    def scores(self) -> Array:
        """The scores of the arms, ``(CHAINS, K)``."""
        return self.centres[self.group] + self.score_change(self.z)

    def score_change(self, z: Array) -> Array:
        """What z adds to the scores."""
        return (z[:, None, :] @ self.slopes[self.group])[:, 0, :]

    def violation(self) -> Array:
        """By how much each chain violates the inequality that it violates most."""
        return -self.order.slack(self.scores()).min(-1, initial=0.0)

    def descend(self) -> None:
        """Bring all chains to where every inequality holds, by way of levels of violation."""
        for _ in range(MAX_LEVELS):
            violation = self.violation()
            middle = float(np.median(violation))
            self.allowance = min(middle, self.allowance) if middle > 0.0 else 0.0
            good = np.flatnonzero(violation <= self.allowance)
            bad = np.flatnonzero(violation > self.allowance)
            copies = self.rng.choice(good, len(bad))
            self.z[bad], self.group[bad] = self.z[copies], self.group[copies]
            if self.allowance == 0.0:
                return
            self.step(LEVEL_STEPS)

    def step(self, count: int) -> None:
        """Move every chain ``count`` times."""
        for _ in range(count):
            self.move_on_ellipse()
            if len(self.weights) > 1:
                self.change_group()

    def move_on_ellipse(self) -> None:
        """Move along a random ellipse: c + p cos φ + q sin φ ≥ 0 for every inequality."""
        velocity = self.rng.standard_normal(self.z.shape)
        p, q = (self.order.slack(self.score_change(part)) for part in (self.z, velocity))
        c = self.order.slack(self.centres)[self.group] + self.allowance
        radius = np.hypot(p, q)
        binding = radius > c
        peak = np.arctan2(q, p)
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.arccos(np.clip(-c / radius, -1.0, 1.0))
        low = np.where(binding, peak - half, -np.inf).max(-1, initial=-np.inf)
        high = np.where(binding, peak + half, np.inf).min(-1, initial=np.inf)
        free = np.isinf(low) | (high - low >= 2.0 * np.pi)
        low = np.where(free, -np.pi, np.minimum(low, 0.0))  # rounding may exclude φ = 0
        high = np.where(free, np.pi, np.maximum(high, 0.0))
        angle = (low + (high - low) * self.rng.random(len(low)))[:, None]
        self.z = self.z * np.cos(angle) + velocity * np.sin(angle)

    def change_group(self) -> None:
        """Draw the group given z: by weight, among those in which every inequality holds."""
        scores = self.centres + np.einsum("nd,gdk->ngk", self.z, self.slopes)
        holds = self.order.slack(scores).min(-1, initial=0.0) >= -self.allowance
        holds[np.arange(CHAINS), self.group] = True  # rounding may say otherwise
        edges = np.cumsum(holds * self.weights, -1)
        chance = self.rng.random(CHAINS) * edges[:, -1]
        self.group = np.minimum((edges <= chance[:, None]).sum(-1), len(self.weights) - 1)
