"""What was read of logs: counts, what is odd, and a small sample of the rows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from headstart.errors import InputError
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.repeats import IdForms, repeated_rows
from headstart.fleet.reading.rows import BadRows, Example, Rows
from headstart.fleet.summing.outliers import Sampled

__all__ = ["ReadSummary"]


@dataclasses.dataclass
class ReadSummary:
    """What was read: rows that count, rows that were left out, and the parts they are in.

    Summaries of different rows add up, in any order.

    Attributes
    ----------
    rows
        How many rows count as evidence.
    bad, weightless, unchosen
        How many do not: those that cannot be used, have weight 0, or were not chosen.
    parts
        The keys of the parts.
    least, greatest
        The rewards' range.
    sampled
        A few of the rows, to tell what is usual.
    heaviest
        The largest weight; 0 where rows have none.
    ids
        How ids are written.
    fingerprints
        Of some rows, where a round or a timestamp is logged.
    """

    rows: int = 0
    bad: BadRows = dataclasses.field(default_factory=BadRows)
    weightless: int = 0
    parts: list[str] = dataclasses.field(default_factory=list)
    unchosen: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    sampled: Sampled = dataclasses.field(default_factory=Sampled)
    heaviest: float = 0.0
    ids: IdForms = dataclasses.field(default_factory=IdForms)
    fingerprints: list[Any] = dataclasses.field(default_factory=list)

    def add(self, other: ReadSummary) -> None:
        """Count another's too."""
        self.rows += other.rows
        self.bad = self.bad + other.bad
        self.weightless += other.weightless
        self.parts += other.parts
        self.unchosen += other.unchosen
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)
        self.sampled.add(other.sampled)
        self.heaviest = max(self.heaviest, other.heaviest)
        self.ids.merge(other.ids)
        self.fingerprints += other.fingerprints

    def count(self, rows: Rows) -> None:
        """Count a block."""
        rewards = rows.rewards if rows.chosen is None else rows.rewards[rows.chosen]
        self.rows += len(rewards)
        self.unchosen += rows.count - len(rewards)
        self.bad = self.bad + rows.bad
        self.weightless += rows.weightless
        self.ids.add(rows.ids, rows.spaced)
        if rows.fingerprints is not None:
            self.fingerprints.append(rows.fingerprints)
        if len(rewards):
            self.least = min(self.least, float(rewards.min()))
            self.greatest = max(self.greatest, float(rewards.max()))
            self.sampled.look(rows)
            if rows.weights is not None:
                heavy = rows.weights if rows.chosen is None else rows.weights[rows.chosen]
                self.heaviest = max(self.heaviest, float(heavy.max()))

    def notes(self, tasks: int, weight: float = math.inf, share: float = 1.0) -> list[str]:
        """What is odd about so many tasks of this weight in all, from which little is learned."""
        notes = [*self.ids.notes(), *repeated_rows(self.fingerprints, share)]
        if tasks == 1:
            notes.append("there is one task only: what tasks share cannot be learned from one")
        if self.least == self.greatest:
            notes.append(f"every reward is {self.least:g}: there is nothing to learn")
        if self.rows > 2 and self.heaviest > weight / 2.0:
            notes.append(f"a row of weight {self.heaviest:g} counts for more than all others")
        return notes

    def nothing(self, columns: Columns) -> InputError:
        """The error where no row is left to learn from."""
        reasons = []
        if self.bad:
            reasons.append(f"{self.bad.count:,} cannot be used:\n{self.bad}\n")
        if self.weightless:
            reasons.append(f"{self.weightless:,} have weight 0 (--weight {columns.weight})")
        if self.unchosen:
            reasons.append(f"{self.unchosen:,} were not chosen (--chosen {columns.chosen})")
        why = "of their rows, " + " and ".join(reasons) if reasons else "they have no rows"
        return InputError(f"logs must hold rows to learn from; {why}".rstrip())

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        examples = [list(example) for example in self.bad.examples]
        return {
            "rows": self.rows,
            "weightless": self.weightless,
            "bad": [self.bad.count, self.bad.reasons, examples],
            "unchosen": self.unchosen,
            "rewards": [self.least, self.greatest] if self.rows else None,
            "sampled": self.sampled.as_json(),
            "heaviest": self.heaviest,
            "ids": vars(self.ids),
            "fingerprints": [keys.astype("<u8").tobytes().hex() for keys in self.fingerprints],
            "parts": self.parts,
        }

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> ReadSummary:
        """And back."""
        count, reasons, examples = known["bad"]
        bad = BadRows(count, reasons, [Example(*example) for example in examples])
        unchosen, rewards = known.get("unchosen", 0), known.get("rewards") or (math.inf, -math.inf)
        sampled = known.get("sampled")
        rows = Sampled(None if sampled is None else np.array(sampled, dtype=np.float64))
        parts, (least, most) = list(known["parts"]), rewards
        heaviest = known.get("heaviest", 0.0)
        weightless = known["weightless"]
        ids = IdForms(**known.get("ids", {}))
        keys = [
            np.frombuffer(bytes.fromhex(text), "<u8").astype(np.uint64)
            for text in known.get("fingerprints", [])
        ]
        counts = known["rows"], bad, weightless, parts, unchosen
        return cls(*counts, least, most, rows, heaviest, ids, keys)
