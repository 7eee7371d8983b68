"""What a bandit has learned, in words and numbers."""

from __future__ import annotations

import dataclasses

import numpy as np

from headstart.prior import Prior
from headstart.records import Array, Record

__all__ = ["Report", "rounds_saved"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Record):
    """What was learned so far; print it, or read its fields.

    Attributes
    ----------
    open_tasks, closed_tasks, rounds
        How many tasks are running, how many were folded into the prior, and their rewards in all.
    noise
        R, the scale of the rewards' noise.
    rank
        The dimension of the subspace that tasks share; ``None`` where the transfer has none.
    eigenvalues
        The tasks' variances along their principal directions, largest first. Their 95 % intervals
        are from ``lower`` to ``upper``, where the transfer knows them.
    effective_rank
        How many equal variances would spread tasks as widely: (Σv)²/Σv², v the eigenvalues.
    explained
        The share of the tasks' variance inside the subspace.
    support
        The evidence for transfer, in nats: by how much the learned prior predicted new tasks
        better than one that knows only the size of θ, summed over all tasks (the logarithm of how
        many times likelier it made their rewards). Below 0, it predicted them worse.
    rounds_saved
        The gain expected for a new task: how many rounds ahead it gets of a learner that knows
        only the tasks' size (:func:`rounds_saved`).
    """

    transfer: str
    rule: str
    dim: int
    open_tasks: int
    closed_tasks: int
    rounds: int
    noise: float
    rank: int | None
    eigenvalues: Array | None
    explained: float | None
    rounds_saved: float
    note: str
    lower: Array | None = None
    upper: Array | None = None
    effective_rank: float | None = None
    support: float | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.closed_tasks} tasks finished, {self.open_tasks} running, "
            f"{self.rounds} rewards, {self.dim} features",
            f"learns by       {self.transfer}",
            f"chooses by      {self.rule}",
            f"noise           R ≈ {self.noise:.4g}",
        ]
        if self.rank is not None:
            share = "" if self.explained is None else f", {self.explained:.0%} of the variance"
            lines.append(f"subspace        {self.rank} of {self.dim} dimensions{share}")
        if self.eigenvalues is not None and self.closed_tasks > 0:
            shown = " ".join(f"{value:.3g}" for value in self.eigenvalues[:8])
            lines.append(f"eigenvalues     {shown}{' …' if len(self.eigenvalues) > 8 else ''}")
            if self.lower is not None and self.upper is not None:
                ends = zip(self.lower[:4], self.upper[:4], strict=True)
                within = " ".join(f"{low:.2g}–{high:.2g}" for low, high in ends)
                lines.append(f"95 % intervals  {within}{' …' if len(self.lower) > 4 else ''}")
        if self.effective_rank is not None:
            lines.append(f"effective rank  {self.effective_rank:.1f} of {self.dim}")
        if self.support is not None and self.closed_tasks > 1:
            side = "for" if self.support > 0 else "against"
            each = abs(self.support) / self.closed_tasks
            lines.append(f"evidence        {side} transfer: {each:.3g} nats a task")
        if self.closed_tasks > 0:
            ahead = f"gets about {self.rounds_saved:.0f} rounds ahead of a lone one"
            lines.append(f"a new task      {ahead if self.rounds_saved else 'is not ahead yet'}")
        if self.note:
            lines.append(f"note            {self.note}")
        return "\n".join(lines)


def rounds_saved(prior: Prior, mean_gram: Array, rounds: float = 0.0) -> float:
    """How far ahead of a lone learner a new task is, in rounds.

    The lone learner starts from N(0, s² I) with the same mean square, s² = E‖θ‖²/d. Both see
    contexts of mean gram M. After n rounds a learner's doubt, the mean square width of a context
    δ = E tr M B_n⁻¹, solves (to leading order in d, for random contexts) ::

        δ = Σ_j w_j / (1 + n w_j/(1+δ))        w_j the eigenvalues of F₀ᵀ M F₀

    The lead after n rounds is how many rounds more the lone learner needs for the same δ; this is
    the largest lead over a task of ``rounds`` rounds, its start included.

    >>> flat = Prior.isotropic(2, lam=4.0)  # knows nothing: no lead
    >>> rounds_saved(flat, np.eye(2) / 2, rounds=100)
    0.0
    >>> sure = Prior.gaussian([1.0, 1.0], np.eye(2) / 10)  # spread 0.1 around a mean of size √2
    >>> round(rounds_saved(sure, np.eye(2) / 2), 6)
    20.0
    """
    square = float((prior.mean**2).sum() + np.trace(prior.covariance))
    contexts = np.maximum(np.linalg.eigvalsh(mean_gram), 0.0)
    if square <= 0.0 or contexts[-1] <= 0.0:
        return 0.0
    informed = np.maximum(np.linalg.eigvalsh(prior.root.T @ mean_gram @ prior.root), 0.0)
    lone = contexts * square / (prior.dim * prior.noise**2)
    lengths = [0.0]
    while lengths[-1] < rounds:
        lengths.append(min(max(1.0, 1.25 * lengths[-1]), rounds))
    lead = max(rounds_to(lone, doubt_after(informed, n)) - n for n in lengths)
    return lead if lead > 1e-6 else 0.0


def doubt_after(widths: Array, rounds: float) -> float:
    """δ after so many rounds, from the eigenvalues of F₀ᵀ M F₀."""
    low, high = 0.0, float(widths.sum())
    for _ in range(80):
        middle = (low + high) / 2.0
        above = float((widths / (1.0 + rounds * widths / (1.0 + middle))).sum()) > middle
        low, high = (middle, high) if above else (low, middle)
    return high


def rounds_to(widths: Array, doubt: float) -> float:
    """The inverse of :func:`doubt_after`: after how many rounds the doubt is as small."""
    if float(widths.sum()) <= doubt:
        return 0.0
    low, high = 0.0, 1.0
    while float((widths / (1.0 + high * widths)).sum()) > doubt and high < 1e12:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        above = float((widths / (1.0 + middle * widths)).sum()) > doubt
        low, high = (middle, high) if above else (low, middle)
    return high * (1.0 + doubt)
