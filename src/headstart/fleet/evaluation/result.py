"""The result of an evaluation, as text and as data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headstart.bandit.reports.gain import Gain
from headstart.errors import visible
from headstart.fleet.evaluation.measures import LEARNED, OFFSET, POOLED, Estimate, Measures
from headstart.fleet.evaluation.offpolicy import ESTIMATOR_NOTE, NAMES, Value
from headstart.fleet.evaluation.rollouts import AnyPrior
from headstart.fleet.evaluation.verdict import Verdict
from headstart.fleet.options import Provenance
from headstart.fleet.reading.rows import BadRows, plain
from headstart.lab.text import format_interval, number

if TYPE_CHECKING:
    import polars as pl

#: What the columns of the table of models are.
LEGEND = (
    "Squared error and log-likelihood (in nats) are means per reward. 95 % coverage is the share "
    "of rewards inside their predictive intervals of 95 %. Expected regret is what choosing by the "
    "model is expected to lose, as a share of what choosing at random loses."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation. Print it, read its fields, or write its page.

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
        What policies are estimated to earn (with ``minimize=True``, to cost); empty where the log
        lacks what is needed.
    advice
        What is missing for that, and what would have to be logged; empty otherwise.
    splits
        How often tasks were divided into past and future.
    past, future
        How many tasks each time.
    past_rows, future_rows
        How many rows of them, on average: those that were learned from, each counted by its weight,
        and those predicted.
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
        The arguments of the evaluation.
    notes
        Notes on the log's columns.
    provenance
        The log, and the command that repeats the evaluation.
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
    provenance: Provenance
    seconds: float

    @property
    def frame(self) -> pl.DataFrame:
        """One row per model, for people; :data:`LEGEND` says what the columns are."""
        import polars as pl

        pooled, alone = self.gain.pooled, self.gain.alone
        regret = {LEARNED: self.gain.learned, POOLED: pooled, OFFSET: pooled}
        measures = self.measures
        return pl.DataFrame(
            {
                "model": name,
                "squared error": format_estimate(measures.errors[name]),
                "log-likelihood": format_estimate(measures.scores[name]),
                "95 % coverage": f"{100.0 * measures.coverage[name][0.95].value:.1f} %",
                "expected regret": f"{100.0 * regret.get(name, alone):.1f} %",
            }
            for name in self.priors
        )

    @property
    def value_title(self) -> str:
        """What :attr:`values` are."""
        return f"What policies would {'cost' if self.settings['minimize'] else 'earn'}"

    @property
    def value_frame(self) -> pl.DataFrame:
        """What policies are estimated to earn, or cost: one row per estimator and policy."""
        import polars as pl

        order = list(NAMES.values())
        return pl.DataFrame(
            {
                "estimator": value.estimator,
                "policy": value.policy,
                f"{'cost' if self.settings['minimize'] else 'reward'} per round": format_estimate(
                    value.value
                ),
                "rounds": number(value.used),
                "of tasks": number(value.tasks),
                "effective rounds": number(round(value.effective)),
            }
            for value in sorted(self.values, key=lambda value: order.index(value.estimator))
        )

    @property
    def basis(self) -> str:
        """What the verdict rests on, in words."""
        which = "the first reward" if self.first == 1 else f"the first {self.first} rewards"
        past_rows = f"{self.past_rows:,.0f} rows"
        if self.provenance.columns.weight is not None:
            past_rows = f"rows of weight {self.past_rows:,.0f} in all"
        text = (
            f"Learned from {self.past:,} past tasks ({past_rows}); judged on "
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
        return plain(summary)

    def __str__(self) -> str:
        parts = [text_table(self.frame), LEGEND, self.verdict.sentence, self.basis]
        if self.values:
            table = text_table(self.value_frame)
            parts += [f"{self.value_title} per round\n{table}", ESTIMATOR_NOTE]
        elif self.advice:
            parts.append(self.advice)
        return visible("\n\n".join([*parts, *(f"Note: {note}" for note in self.notes)]))


def text_table(frame: pl.DataFrame) -> str:
    """A table of texts, with columns aligned.

    >>> import polars as pl
    >>> print(text_table(pl.DataFrame({"model": ["none", "pooled"], "error": ["1.2", "0.9"]})))
    model   error
    none    1.2
    pooled  0.9
    """
    rows = [tuple(frame.columns), *frame.rows()]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


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
