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
        The tasks' variances along their principal directions, largest first.
    explained
        The share of the tasks' variance inside the subspace.
    rounds_saved
        The gain expected for a new task: how many rounds a learner that knew only the tasks' size
        would have to play to be as sure as a new task is at its start.
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
        if self.closed_tasks > 0:
            saved = f"about {self.rounds_saved:.0f} rounds" if self.rounds_saved else "nothing yet"
            lines.append(f"a new task      starts ahead by {saved}")
        if self.note:
            lines.append(f"note            {self.note}")
        return "\n".join(lines)


def rounds_saved(prior: Prior, mean_gram: Array) -> float:
    """How many rounds an uninformed learner needs to be as sure as this prior.

    The uninformed learner starts from N(0, s² I) with the same mean square, s² = E‖θ‖²/d. After n
    rounds with contexts of mean gram M, its mean square width δ = E tr M(λI + Σxxᵀ)⁻¹, λ = R²/s²,
    solves (to leading order in d, for random contexts) ::

        δ = Σ_j m_j / (λ + n m_j/(1+δ))        m_j the eigenvalues of M

    The prior starts at δ = tr M F₀F₀ᵀ; solved for n that is how far ahead it is.

    >>> flat = Prior.isotropic(2, lam=4.0)                 # knows nothing: as sure as itself
    >>> rounds_saved(flat, np.eye(2) / 2)
    0.0
    >>> sure = Prior.gaussian([1.0, 1.0], np.eye(2) / 10)  # spread 0.1 around a mean of size √2
    >>> round(rounds_saved(sure, np.eye(2) / 2), 6)
    20.0
    """
    target = float(np.einsum("ij,jk,ik->", mean_gram, prior.root, prior.root))
    square = float((prior.mean**2).sum() + np.trace(prior.covariance))
    values = np.maximum(np.linalg.eigvalsh(mean_gram), 0.0)
    if target <= 0.0 or square <= 0.0 or values[-1] <= 0.0:
        return 0.0
    lam = prior.noise**2 * prior.dim / square
    low, high = 0.0, 1.0

    def doubt(rounds: float) -> float:
        return float((values / (lam + rounds * values)).sum())

    if doubt(low) <= target * (1 + 1e-9):
        return 0.0
    while doubt(high) > target and high < 1e9:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if doubt(middle) > target else (low, middle)
    return high * (1.0 + target)
