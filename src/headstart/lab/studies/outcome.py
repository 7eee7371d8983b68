"""What a study comes to: sections and claims for its report, and tables of total regret."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.intervals import paired_ratios
from headstart.lab.plan import Results
from headstart.lab.report import Claim, Section

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Findings", "Outcome", "ratios"]


@dataclasses.dataclass(frozen=True)
class Findings:
    """Sections, claims and tables that studies add to a report."""

    sections: list[Section] = dataclasses.field(default_factory=list)
    claims: list[Claim] = dataclasses.field(default_factory=list)
    totals: dict[str, pl.DataFrame] = dataclasses.field(default_factory=dict)

    def add(
        self,
        sections: Sequence[Section] = (),
        claims: Sequence[Claim] = (),
        totals: Mapping[str, pl.DataFrame] | None = None,
    ) -> None:
        """Add to them."""
        self.sections.extend(sections)
        self.claims.extend(claims)
        self.totals.update(totals or {})


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


def ratios(results: Results, baseline: str = "LinUCB") -> pl.DataFrame:
    """Total regret against a baseline's, for a table on the terminal."""
    return paired_ratios(results.totals(), baseline).select(
        "policy", "ratio", "low", "high", "worst"
    )
