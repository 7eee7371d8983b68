"""What an evaluation found, for people and for programs."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headstart.fleet.bootstrap import Estimate
from headstart.fleet.measures import Lead, Measures
from headstart.fleet.offpolicy import Value
from headstart.fleet.rows import BadRows
from headstart.fleet.verdict import Verdict
from headstart.lab.figures.text import with_interval
from headstart.mixture import MixturePrior
from headstart.prior import Prior

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Evaluation"]


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation found. Print it, read its fields, or write its page.

    Attributes
    ----------
    verdict
        The answer, with evidence.
    measures
        Errors, likelihoods and calibration on the first rewards of future tasks.
    leads
        How many rounds a task alone needs to catch up with the learned prior.
    values
        What policies are estimated to earn; empty where the log does not tell.
    advice
        What would have to be logged to tell; empty where it does.
    past, future
        How many tasks.
    rewards
        How many rewards were predicted.
    first
        How many of each task, at most.
    rounds
        How many rewards each task of the log has.
    bad
        Rows that cannot be used.
    priors
        The models, by name.
    settings
        What was asked for.
    seconds
        How long it took.
    """

    verdict: Verdict
    measures: Measures
    leads: dict[str, Lead]
    values: list[Value]
    advice: str
    past: int
    future: int
    rewards: int
    first: int
    rounds: npt.NDArray[np.int64]
    bad: BadRows
    priors: dict[str, Prior | MixturePrior]
    settings: dict[str, Any]
    seconds: float

    @property
    def table(self) -> list[dict[str, str]]:
        """One row per model, for people."""
        shown = []
        for name in self.priors:
            covered = self.measures.coverage[name][0.95].value
            shown.append(
                {
                    "model": name,
                    "squared error": brief(self.measures.errors[name]),
                    "log-likelihood": brief(self.measures.scores[name]),
                    "in 95 %": f"{covered:.1%}".replace("%", " %"),
                    "rounds behind": str(self.leads[name]) if name in self.leads else "–",
                }
            )
        return shown

    @property
    def frame(self) -> pl.DataFrame:
        """The same as a Polars table."""
        import polars as pl

        return pl.DataFrame(self.table)

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers and text, for programs."""
        found = self.measures
        return {
            "verdict": self.verdict.kind,
            "sentence": self.verdict.sentence,
            "findings": [finding._asdict() for finding in self.verdict.findings],
            "past_tasks": self.past,
            "future_tasks": self.future,
            "rewards": self.rewards,
            "bad_rows": self.bad.count,
            "models": {
                name: {
                    "squared_error": plain(found.errors[name]),
                    "log_likelihood": plain(found.scores[name]),
                    "squared_error_by_position": [plain(e) for e in found.by_position[name]],
                    "coverage": {str(level): plain(e) for level, e in found.coverage[name].items()},
                }
                for name in self.priors
            },
            "gains": [
                {"model": one, "against": other, "nats_per_reward": plain(gain)}
                for (one, other), gain in found.gains.items()
            ],
            "rounds_saved": {
                name: plain(lead.rounds) | {"looked_at": lead.looked}
                for name, lead in self.leads.items()
            },
            "off_policy": [
                value._asdict() | {"value": plain(value.value)} for value in self.values
            ],
            "off_policy_needs": self.advice,
            "settings": self.settings,
            "seconds": round(self.seconds, 1),
        }

    def __str__(self) -> str:
        titles = list(self.table[0])
        rows = [titles, *(list(row.values()) for row in self.table)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(titles))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", self.verdict.sentence])


def brief(found: Estimate) -> str:
    """An estimate for a table: intervals of means are about symmetric."""
    half = (found.high - found.low) / 2.0
    return with_interval(found.value, found.value - half, found.value + half)


def plain(found: Estimate) -> dict[str, float | None]:
    """An estimate for JSON, which knows no infinity."""
    return {name: part if math.isfinite(part) else None for name, part in found._asdict().items()}
