"""A summary of what a bandit has learned."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.bandit.ledger.ledger import Ledger
from headstart.bandit.reports.explanation import feature_names
from headstart.features.conversion import Features
from headstart.model.evidence import Evidence
from headstart.records import Array, Record
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.noise import MIN_VARIANCE_SHARE
from headstart.transfer.task_levels import LEVEL_TASKS, features_in_proportion, proportion_notes

if TYPE_CHECKING:
    from headstart.bandit.reports.gain import Gain

__all__ = ["Report", "make_report"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Record):
    """What was learned so far; print it, or read its fields.

    Attributes
    ----------
    open_tasks, closed_tasks, rounds
        The numbers of running tasks, of tasks in the prior, and of rewards of all of them.
    counted_tasks
        The number of tasks that the other attributes are computed from: the finished ones, and the
        running ones that count.
    noise
        R, the scale of the rewards' noise; 1 where a logistic model stands for it.
    rewards
        The kind of rewards, unless they are numbers to be maximized. For a logistic model the
        eigenvalues are variances of log-odds.
    rank, rank_interval
        The dimension of the subspace that tasks share, and the range in which it may be; ``None``
        if the transfer has no subspace.
    weights
        The candidates that the prior averages, and their weights.
    eigenvalues
        The tasks' variances along their principal directions, largest first. Their 95 % intervals
        are from ``lower`` to ``upper``, where the transfer knows them.
    effective_rank
        The number of directions in which tasks differ, each weighted by how much it changes their
        rewards: (Σw)²/Σw², w the eigenvalues of FᵀMF with Σ = FFᵀ the tasks' covariance and M the
        contexts' mean Gram matrix. Units do not matter, and directions without data have no weight.
    explained
        The share of the tasks' variance inside the subspace.
    support
        The evidence for transfer, in nats: by how much the learned prior predicted new tasks
        better than an isotropic one, summed over all tasks (the logarithm of how
        many times likelier it made their rewards). Below 0, it predicted them worse.
    gain
        The gain that a new task is expected to have from the prior (:class:`Gain`).
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
    gain: Gain
    note: str
    lower: Array | None = None
    upper: Array | None = None
    effective_rank: float | None = None
    support: float | None = None
    counted_tasks: int = 0
    rewards: str = ""
    is_logistic: bool = False
    rank_interval: tuple[int, int] | None = None
    weights: dict[str, float] | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.closed_tasks} tasks finished, {self.open_tasks} running, "
            f"{self.rounds} rewards, {self.dim} feature{'' if self.dim == 1 else 's'}",
            f"learns by       {self.transfer}",
            f"chooses by      {self.rule}",
            f"rewards         {self.rewards}" if self.rewards else "",
            "" if self.is_logistic else f"noise           R ≈ {self.noise:.4g}",
        ]
        lines = [line for line in lines if line]
        if self.rank is not None:
            share = "" if self.explained is None else f", {self.explained:.0%} of the variance"
            bounds = self.rank_interval
            about = "" if bounds is None else f" ({bounds[0]}–{bounds[1]})"
            lines.append(f"subspace        {self.rank}{about} of {self.dim} dimensions{share}")
        if self.weights is not None and self.counted_tasks > 0:
            parts = sorted(self.weights.items(), key=lambda item: -item[1])
            shares = ", ".join(f"{share:.0%} {name}" for name, share in parts if share >= 0.005)
            lines.append(f"prior           {shares}")
        if self.eigenvalues is not None and self.counted_tasks > 0:
            values = " ".join(f"{value:.3g}" for value in self.eigenvalues[:8])
            lines.append(f"eigenvalues     {values}{' …' if len(self.eigenvalues) > 8 else ''}")
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
        if self.counted_tasks > 0:
            lines.append(f"a new task      is expected to save {self.gain}")
        if self.note:
            lines.append(f"note            {self.note}")
        return "\n".join(lines)


def effective_rank(root: Array, gram: Array) -> float | None:
    """(Σw)²/Σw² of the eigenvalues w of FᵀMF; ``None`` if all are 0.

    >>> import numpy as np
    >>> round(effective_rank(np.eye(3), np.diag([1.0, 1.0, 0.0])), 6)
    2.0
    >>> round(effective_rank(1e80 * np.eye(3), np.eye(3)), 6)
    3.0
    """
    spread = root.T @ gram @ root
    largest = float(abs(spread).max())
    if not largest > 0.0:
        return None
    spread = spread / largest  # squares of its entries may overflow
    return float(spread.trace()) ** 2 / float((spread**2).sum())


NEAR_BOUND = 4.0  # times the least R²
NO_NOISE = (
    "R is at its lower bound, as if rewards were exact: if they are not, state it (Bandit(noise=…))"
)


def make_report(ledger: Ledger, rule: str, features: Features) -> Report:
    """The report of a bandit; nothing is changed by this."""
    from headstart.bandit.reports.gain import expected_gain  # importing headstart must stay cheap

    ledger.finish()
    entries, prior_state = ledger.entries, ledger.prior_state
    with prior_state.temporary_changes():
        prior = prior_state.prior(keep=False)
        running = prior_state.running_tasks(None)
        explanation = prior_state.transfer.explain(
            prior_state.with_running(prior_state.state, None)
        )
    base = prior_state.base
    total = Evidence.zero(entries.dim) if base is None else base.pooled
    rounds = total.rounds + sum(entry.reward_count for entry in entries.values())
    for name in (*prior_state.closed, *running):
        total = total + entries.evidence(name).replace(forced=None)
    closed_tasks = len(prior_state.closed) + (0 if base is None else int(base.task_count))
    tasks = closed_tasks + len(running)
    gram, gaussian = total.gram / max(total.rounds, 1.0), prior.as_gaussian()
    usual = total.squares / max(total.rounds, 1.0)
    found, notes = explanation._asdict(), [explanation.note]
    if prior_state.noise is None and prior.noise**2 < NEAR_BOUND * MIN_VARIANCE_SHARE * usual:
        notes.append(NO_NOISE)
    notes += notes_on_sizes(prior_state.state, features)
    found["note"] = "; ".join(filter(None, notes))
    return Report(
        transfer=repr(prior_state.transfer),
        rule=rule,
        dim=entries.dim,
        open_tasks=len(entries) - len(prior_state.closed),
        closed_tasks=closed_tasks,
        rounds=int(rounds),
        noise=float(prior.noise),
        gain=expected_gain(
            gaussian,
            gram,
            total.rounds / max(tasks, 1),
            tasks,
            entries.dim - 1 if features.intercept else None,
        ),
        counted_tasks=tasks,
        effective_rank=None
        if explanation.eigenvalues is None
        else effective_rank(gaussian.root, gram),
        rewards=ledger.rewards.describe(),
        is_logistic=ledger.rewards.fixed_noise is not None,
        **found,
    )


def notes_on_sizes(state: Any, features: Features) -> list[str]:
    """Whether features differ much in size between the tasks that a fit has kept."""
    tasks = getattr(state, "tasks", None)
    if not features.intercept or not isinstance(tasks, Tasks) or not len(tasks):
        return []
    units = features.units or (0.0, 1.0)
    found = features_in_proportion(tasks.gram[-LEVEL_TASKS:], *units)
    return proportion_notes([feature_names(features)[at] for at in np.flatnonzero(found)])
