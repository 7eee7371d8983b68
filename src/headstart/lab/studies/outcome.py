"""The results of a study: sections and claims for its report, and tables of total regret."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from headstart.lab import figures
from headstart.lab.experiments.plan import Results
from headstart.lab.figures.elements.intervals import paired_ratios
from headstart.lab.report import Claim, Section
from headstart.lab.tuning import Tuning


class Findings(NamedTuple):
    """What a study adds to a report: sections and claims; and its main table with a title."""

    sections: Sequence[Section]
    claims: Sequence[Claim]
    title: str
    table: pl.DataFrame


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished study: its title, its report on disk, its main table and its claims."""

    title: str
    path: Path
    totals: pl.DataFrame
    claims: Sequence[Claim] = ()

    def summary(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "title": self.title,
            "report": str(self.path),
            "totals": self.totals.to_dicts(),
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
        }


def our_claim(claim: str, measured: str, holds: bool) -> Claim:
    """A claim of headstart's own."""
    return Claim(claim, "headstart", measured, "holds" if holds else "fails")


def regret_section(title: str, text: str, regret: pl.DataFrame, name: str) -> Section:
    """A section with total regret and the regret of each task."""
    drawings = [
        figures.totals(regret, name=f"{name}-totals"),
        figures.per_task_regret(regret, name=f"{name}-per-task"),
    ]
    return Section(title, text, drawings, level=2)


def tuning_sections(title: str, text: str, tuning: Tuning | None, name: str) -> list[Section]:
    """A section with every setting that was tried; none where nothing was tuned."""
    if tuning is None:
        return []
    table = tuning.table.drop("algorithm", "label")
    return [Section(title, text, figures.tuning(table, name=name))]


class Ratios:
    """Total regret of every policy divided by a baseline's, on the same seeds."""

    def __init__(self, totals: pl.DataFrame, baseline: str = "LinUCB") -> None:
        self.baseline = baseline
        rows = paired_ratios(totals, baseline).iter_rows(named=True)
        self.rows = {row["policy"]: row for row in rows}

    def __getitem__(self, policy: str) -> float:
        return float(self.rows[policy]["ratio"])

    def beats(self, policy: str, other: str) -> bool:
        """Whether a policy's interval lies below another's."""
        return float(self.rows[policy]["high"]) < float(self.rows[other]["low"])

    def text(self, policy: str) -> str:
        """A policy's ratio and its interval."""
        row = self.rows[policy]
        return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"

    def describe(self, *policies: str) -> str:
        """The ratios of several policies."""
        parts = (f"{policy} {self.text(policy)}" for policy in policies)
        return f"÷ {self.baseline}: " + ", ".join(parts)


def ratios(results: Results, baseline: str = "LinUCB") -> pl.DataFrame:
    """Total regret against a baseline's, for a table on the terminal."""
    table = paired_ratios(results.totals(), baseline)
    return table.select("policy", "ratio", "low", "high", "worst")
