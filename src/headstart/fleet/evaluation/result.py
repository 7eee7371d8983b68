"""What an evaluation found, for people and for programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headstart.bandit.reports.gain import Gain
from headstart.errors import visible
from headstart.fleet.evaluation.forecasts import AnyPrior
from headstart.fleet.evaluation.measures import (
    ALONE,
    AVERAGE,
    LEARNED,
    OFFSET,
    POOLED,
    Estimate,
    Measures,
)
from headstart.fleet.evaluation.offpolicy import NAMES, Value
from headstart.fleet.evaluation.verdict import Verdict
from headstart.fleet.options import Origin
from headstart.fleet.reading.rows import BadRows, plain
from headstart.lab.figures.elements.text import format_interval

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
    gain
        What a prior learned from all these tasks is expected to save: the same figure as that of
        ``headstart fit`` and ``bandit.report()``.
    values
        What policies are estimated to earn; empty where the log does not tell.
    advice
        Why the log does not tell, and what would have to be logged; empty where it does.
    splits
        How often tasks were divided into past and future.
    past, future
        How many tasks each time.
    past_rows, future_rows
        How many rows of them, on average: those that were learned from, and those predicted.
    judged
        How many tasks were predicted in all, each in one split or more.
    rewards
        How many rewards of theirs were predicted.
    first
        How many of each task, at most.
    rounds
        How many rewards each task of the log has.
    bad
        Rows that cannot be used.
    priors
        The models, by name, of the first split.
    settings
        What was asked for.
    notes
        What is odd about the log's columns.
    origin
        The log, and the command that gives the same.
    seconds
        How long it took.
    """

    verdict: Verdict
    measures: Measures
    gain: Gain
    values: list[Value]
    advice: str
    splits: int
    past: int
    future: int
    past_rows: float
    future_rows: float
    judged: int
    rewards: int
    first: int
    rounds: npt.NDArray[np.int64]
    bad: BadRows
    priors: dict[str, AnyPrior]
    settings: dict[str, Any]
    notes: tuple[str, ...]
    origin: Origin
    seconds: float

    @property
    def table(self) -> list[dict[str, str]]:
        """One row per model, for people."""
        pooled, alone = self.gain.pooled, self.gain.alone
        regret = {LEARNED: self.gain.learned, POOLED: pooled, OFFSET: pooled, AVERAGE: alone}
        regret[ALONE] = alone
        measures = self.measures
        return [
            {
                "model": name,
                "squared error": format_estimate(measures.errors[name]),
                "log-likelihood": format_estimate(measures.scores[name]),
                "in 95 %": f"{100.0 * measures.coverage[name][0.95].value:.1f} %",
                "regret": f"{100.0 * regret[name]:.1f} %",
            }
            for name in self.priors
        ]

    @property
    def frame(self) -> pl.DataFrame:
        """The same as a Polars table."""
        import polars as pl

        return pl.DataFrame(self.table)

    @property
    def value_table(self) -> list[dict[str, str]]:
        """What policies are estimated to earn per round: one row per estimator, for people."""
        rows: dict[str, dict[str, str]] = {}
        for value in self.values:
            if value.estimator != NAMES["logged"]:
                row = rows.setdefault(value.estimator, {"estimator": value.estimator})
                row[value.policy] = format_estimate(value.value)
        return list(rows.values())

    @property
    def value_frame(self) -> pl.DataFrame:
        """The same as a Polars table."""
        import polars as pl

        return pl.DataFrame(self.value_table)

    @property
    def value_note(self) -> str:
        """What was earned as logged, and on how many rounds each estimate rests."""
        if not self.values:
            return ""
        by_name: dict[str, list[Value]] = {}
        for value in self.values:
            by_name.setdefault(value.estimator, []).append(value)
        logged = by_name[NAMES["logged"]][0]
        parts = [
            f"{NAMES[name]} on {format_range([value.used for value in by_name[NAMES[name]]])} of "
            f"{format_range([value.tasks for value in by_name[NAMES[name]]])} tasks"
            for name in ("replay", "weighted")
        ]
        return (
            f"As logged, a round earned {format_estimate(logged.value)}. Estimates rest on "
            f"different rounds: {' and '.join(parts)}, while the policy is new to them; "
            f"{NAMES['ips']}, {NAMES['snips']} and {NAMES['dr']} on all {logged.used:,} of "
            f"{logged.tasks:,} tasks. They answer different questions: compare policies by one "
            f"estimator."
        )

    @property
    def basis(self) -> str:
        """What the verdict rests on, in words."""
        which = "the first reward" if self.first == 1 else f"the first {self.first} rewards"
        text = (
            f"Learned from {self.past:,} past tasks ({self.past_rows:,.0f} rows); judged on "
            f"{which} of {self.future:,} future tasks ({self.future_rows:,.0f} rows)"
        )
        if self.splits == 1:
            return f"{text} that no model had seen."
        times = f"{self.splits * self.future / max(self.judged, 1):.2g}"
        often = "once" if times == "1" else f"{times} times on average"
        return (
            f"{text} that no model had seen, in each of {self.splits} random splits: "
            f"{self.judged:,} tasks, each predicted {often}."
        )

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers and text, for programs."""
        measures = self.measures
        summary = {
            "verdict": self.verdict.kind,
            "sentence": self.verdict.sentence,
            "findings": self.verdict.findings,
            "gain": self.gain.summary(),
            "splits": self.splits,
            "past_tasks": self.past,
            "past_rows": self.past_rows,
            "future_tasks": self.future,
            "future_rows": self.future_rows,
            "tasks_predicted": self.judged,
            "rewards": self.rewards,
            "bad_rows": self.bad.count,
            "models": {
                name: {
                    "squared_error": measures.errors[name],
                    "log_likelihood": measures.scores[name],
                    "squared_error_by_position": measures.by_position[name],
                    "coverage": measures.coverage[name],
                }
                for name in self.priors
            },
            "gains": [
                {
                    "model": one,
                    "against": other,
                    "squared_error_saved": measures.savings[one, other],
                    "nats_per_reward": gain,
                }
                for (one, other), gain in measures.gains.items()
            ],
            "off_policy": self.values,
            "off_policy_needs": self.advice,
            "notes": self.notes,
            "settings": self.settings,
            "seconds": round(self.seconds, 1),
        }
        return plain(summary)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        lines = [*align_columns(self.table), "", self.verdict.sentence, "", self.basis]
        if self.values:
            lines += ["", "What policies would earn per round", *align_columns(self.value_table)]
            lines += ["", self.value_note]
        elif self.advice:
            lines += ["", self.advice]
        lines += [line for note in self.notes for line in ("", f"Note: {note}")]
        return visible("\n".join(lines))


def align_columns(table: list[dict[str, str]]) -> list[str]:
    """A table as lines of text.

    >>> align_columns([{"model": "none", "error": "1.2"}, {"model": "pooled", "error": "0.9"}])
    ['model   error', 'none    1.2', 'pooled  0.9']
    """
    titles = list(table[0])
    rows = [titles, *(list(row.values()) for row in table)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(titles))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def format_range(counts: list[int]) -> str:
    """Several counts as one, or as a range.

    >>> format_range([24, 24]), format_range([1300, 74, 130])
    ('24', '74 to 1,300')
    """
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_estimate(estimate: Estimate) -> str:
    """An estimate for a table: ± where its interval is about symmetric.

    >>> format_estimate(Estimate(1.0, 0.89, 1.1)), format_estimate(Estimate(1.0, 0.5, 4.0))
    ('1.00 ± 0.10', '1.00 [0.500, 4.00]')
    """
    value, low, high = estimate
    half = (high - low) / 2.0
    if abs(high + low - 2.0 * value) > 0.2 * half:
        return format_interval(*estimate)
    return format_interval(estimate.value, estimate.value - half, estimate.value + half)
