"""The parts of a report: sections, claims and verdicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from headstart import checks
from headstart.lab.figures import Figure


class Verdict(NamedTuple):
    """How a verdict is shown: its symbol and colour, and its name in the summary."""

    symbol: str
    kind: str
    singular: str
    plural: str


#: The verdicts on a claim.
VERDICTS = {
    "holds": Verdict("✓", "good", "holds", "hold"),
    "holds with changes": Verdict("≈", "fair", "holds with changes", "hold with changes"),
    "fails": Verdict("✗", "bad", "fails", "fail"),
    "not settled": Verdict("?", "open", "is not settled", "are not settled"),
}


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper and its verdict.

    Parameters
    ----------
    claim
        What is claimed, in a sentence.
    where
        Where in the paper.
    measured
        What we measured.
    verdict
        One of :data:`VERDICTS`.
    remark
        Under what conditions, or what fixes it.

    Examples
    --------
    >>> Claim("q = 15 is best", "Figure 3a", "least at q = 15", "holds").verdict
    'holds'
    """

    claim: str
    where: str
    measured: str
    verdict: str
    remark: str = ""

    def __post_init__(self) -> None:
        checks.one_of("verdict", self.verdict, tuple(VERDICTS))


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: prose, and optionally claims, figures and a table.

    Parameters
    ----------
    title
        Its heading, and its line in the table of contents.
    text
        Prose in Markdown: paragraphs, lists, tables, emphasis, code, and links to other sections
        (``[tuning](#tuning)``). HTML is escaped and addresses are not linked: a report has no
        links to other pages.
    figure
        A figure, or several.
    table
        A table to show in full.
    claims
        Rows of a claims table.
    level
        1 for a section, 2 for a part of the section before it.
    """

    title: str
    text: str = ""
    figure: Figure | Sequence[Figure] | None = None
    table: pl.DataFrame | None = None
    claims: Sequence[Claim] | None = None
    level: int = 1

    def __post_init__(self) -> None:
        checks.integer("level", self.level, 1, 2)

    @property
    def figures(self) -> list[Figure]:
        """Its figures, none or more."""
        if self.figure is None:
            return []
        return list(self.figure) if isinstance(self.figure, Sequence) else [self.figure]
