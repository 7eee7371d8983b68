"""An evaluation as one HTML page that asks nothing of the network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.fleet import plots
from headstart.fleet.measures import ALONE, AVERAGE, LEARNED, POOLED
from headstart.fleet.verdict import RELEVANT, TOLERATED
from headstart.lab.figures.text import count, number, with_interval
from headstart.lab.report import Section, write_report

if TYPE_CHECKING:
    import polars as pl

    from headstart.fleet.evaluation import Evaluation

__all__ = ["sections", "write_page"]

ANSWERS = {"yes": "✓ yes", "no": "✗ no", "open": "? open"}

TITLES = {
    "transfer": "✓ Learn a prior",
    "pooling": "= Use one pooled model",
    "independence": "✗ Let each task learn alone",
    "unknown": "? No verdict",
}

ABOUT = {
    LEARNED: "each task starts from what past tasks share, and learns",
    POOLED: "all tasks are taken for one and the same",
    AVERAGE: "each task learns alone, and knows the average reward of past tasks",
    ALONE: "each task learns alone and from nothing",
}


def write_page(found: Evaluation, folder: str | os.PathLike[str], source: str = "") -> Path:
    """Write ``report.html`` into a folder, and the figures beside it.

    Parameters
    ----------
    found
        What :func:`~headstart.fleet.evaluate` gave.
    folder
        Where to write; made if need be.
    source
        What was evaluated, for the page's title.
    """
    target = Path(folder)
    parts = sections(found)
    for part in parts:
        for figure in part.figures:
            figure.save(target / "figures")
    about = f" ({source})" if source else ""
    return write_report(
        target / "report.html",
        f"Does a learned prior help?{about}",
        parts,
        manifest(found),
        f"> **{TITLES[found.verdict.kind]}**\n>\n> {found.verdict.sentence}\n\n{counted(found)}",
    )


def counted(found: Evaluation) -> str:
    """What the verdict rests on."""
    return (
        f"Learned from {count(found.past, 'past task')}; judged on {number(found.rewards)} "
        f"rewards, the first {found.first} of each of {count(found.future, 'future task')} that "
        "no model had seen."
    )


def sections(found: Evaluation) -> list[Section]:
    """The page's parts."""
    parts = [
        Section(
            "Three answers",
            "Models are compared by the log-likelihood that they gave to rewards before they saw "
            f"them. The simplest model that none clearly beats is the answer.\n\n{answers(found)}",
        ),
        Section("Models", models_in_words(found), table=found.frame),
        Section("Error by position", "", plots.errors(found)),
        Section("Likelihood", "", plots.gains(found)),
        Section("Rounds saved", "", plots.catching_up(found)),
        Section("Calibration", "", plots.calibration(found)),
        Section("Tasks", bad_in_words(found), plots.rounds_per_task(found.rounds)),
    ]
    if found.values:
        parts.append(Section("Off-policy values", VALUES, plots.values(found), value_table(found)))
    else:
        parts.append(Section("Off-policy values", found.advice))
    parts.append(Section("What was done", DONE))
    return parts


VALUES = (
    "The *effective rounds* of an estimate say how many rounds would tell as much had the policy "
    "chosen the arms itself; where they are few, its interval is wide, and may be too narrow still."
)

DONE = f"""
Tasks were divided into past and future; whole tasks, so that nothing of a future task is known
beforehand. All models are Gaussian priors with a noise scale, fitted to the past: the learned prior
by the transfer below; the pooled model is one regression over all past rows, whose posterior is the
prior of a new task; tasks alone have a variance for the intercept and one for all features, chosen
by the marginal likelihood of the past tasks. Each future task is then gone through in order: a
reward is predicted, the prediction judged, the reward learned.

Tasks are what was drawn at random, so intervals come from drawing whole tasks anew, two thousand
times; the same draws for all models, so that differences are paired. A model is said to be better
only if the interval of the difference excludes 0 and the difference is at least {RELEVANT} nats per
reward, about 1 % of the squared error; one is said to do as well only if the interval also excludes
that another is better by more than {TOLERATED} nats.
"""


COLUMNS = (
    "*in 95 %* is the share of rewards inside their predictive intervals of 95 %; *rounds "
    "behind* is how many rounds a task alone needs to predict as well as the learned prior does "
    "with none."
)


def models_in_words(found: Evaluation) -> str:
    """What each model is."""
    lines = [f"- **{name}**: {ABOUT[name]}" for name in found.priors]
    lines.append(f"\nIntercept: {found.settings['intercept']}. {COLUMNS}")
    return "\n".join(lines)


def bad_in_words(found: Evaluation) -> str:
    """What was left out."""
    if not found.bad:
        return "Every row could be used."
    reasons = ", ".join(f"{reason} ({rows:,})" for reason, rows in found.bad.reasons.items())
    return f"{count(found.bad.count, 'row')} could not be used: {reasons}."


def answers(found: Evaluation) -> str:
    """The three answers with what is for and against them, as a table in Markdown."""
    rows = [
        f"| {finding.statement} | {ANSWERS[finding.holds]} | {finding.evidence} |"
        for finding in found.verdict.findings
    ]
    return "\n".join(
        [
            "| answer | holds | its model against the others, in nats per reward |",
            "|---|---|---|",
            *rows,
        ]
    )


def value_table(found: Evaluation) -> pl.DataFrame:
    """One row per policy and estimator."""
    import polars as pl

    return pl.DataFrame(
        [
            {
                "policy": value.policy,
                "estimator": value.estimator,
                "reward per round": with_interval(*value.value),
                "effective rounds": number(value.effective),
                "logged rounds": value.rounds,
            }
            for value in found.values
        ]
    )


def manifest(found: Evaluation) -> dict[str, Any]:
    """How it was made."""
    return {
        "past tasks": found.past,
        "future tasks": found.future,
        **{name: str(value) for name, value in found.settings.items()},
    }
