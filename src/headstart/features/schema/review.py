"""What was found of the columns of a table for which a schema is proposed."""

from __future__ import annotations

from typing import NamedTuple

from headstart.features.schema.fields import Field

MAX_CELL_WIDTH = 36  # characters of a cell of the review


class FieldReview(NamedTuple):
    """What was found of one column.

    Attributes
    ----------
    name, role
        The column, and whether it is a field of the context or of actions, the id, the task, the
        reward, or ignored.
    field
        The field that is proposed, if any.
    summary, notes
        What the values are, and what to look at.
    """

    name: str
    role: str
    field: Field | None
    summary: str
    notes: str = ""


class Review(NamedTuple):
    """What was found of all columns; printed as a table."""

    rows: int
    columns: tuple[FieldReview, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        cells = [["column", "role", "field", "values", ""]]
        for name, role, field, summary, notes in self.columns:
            texts = (name, role, repr(field or "–").strip("'"), summary)
            cells.append([*map(shorten, texts), notes])
        widths = [max(len(row[at]) for row in cells) for at in range(4)]
        lines = [f"{self.rows:,} rows"]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
            lines.append("  ".join([*padded, row[4]]).rstrip())
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return str(self)


def shorten(cell: str) -> str:
    """A cell of the table that is not too wide: the schema has all of it."""
    return cell if len(cell) <= MAX_CELL_WIDTH else cell[: MAX_CELL_WIDTH - 1] + "…"
