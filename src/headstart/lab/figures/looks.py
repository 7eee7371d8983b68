"""How a policy looks: one colour, line and marker, the same in every figure.

The colours are Okabe and Ito's, which colour-blind readers can tell apart, with black and yellow
replaced so that all of them show on a white and on a dark page. Line styles and markers differ too,
so that a figure printed in grey can still be read. Policies that differ only in how they choose
(optimism or Thompson sampling) share a colour; the Thompson one is dashed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from headstart.algorithms import DEFAULT

__all__ = ["KNOWN", "Look", "in_order", "looks"]


class Look(NamedTuple):
    """A colour, a line style (Matplotlib's name for it) and a marker (likewise)."""

    colour: str
    line: str = "-"
    marker: str = "o"

    @property
    def dash(self) -> str:
        """Plotly's name for the line style."""
        return {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}[self.line]

    @property
    def symbol(self) -> str:
        """Plotly's name for the marker."""
        return SYMBOLS[self.marker]


SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "D": "diamond",
    "P": "cross",
    "X": "x",
    "*": "star",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "h": "hexagon",
}

#: The policies of the paper and of this library, in the order in which legends list them.
KNOWN = {
    DEFAULT: Look("#D55E00", "-", "X"),
    "headstart, Thompson": Look("#D55E00", "--", ">"),
    "LinUCB": Look("#E69F00", "-", "o"),
    "LinUCB, best λ": Look("#E69F00", ":", "o"),
    "LinTS": Look("#E69F00", "--", "s"),
    "B-OFUL": Look("#009E73", "-", "^"),
    "M-TS": Look("#CC79A7", "--", "v"),
    "M-TS, unforced": Look("#CC79A7", ":", "<"),
    "P-LinUCB": Look("#0072B2", "-", "D"),
    "P-LinUCB, tuned λ": Look("#0072B2", ":", "D"),
    "P-TS": Look("#0072B2", "--", "P"),
    "empirical Bayes": Look("#D55E00", ":", "X"),
    "mixture": Look("#A6761D", "-.", "*"),
    "projection oracle": Look("#56B4E9", "-.", "p"),
    "Bayes oracle": Look("#767676", ":", "h"),
}

# For names that nobody foresaw: colours that no known policy has, from Paul Tol's muted scheme.
SPARE = [
    Look(colour, line, marker)
    for line, marker in (("-", ">"), ("--", "<"), ("-.", "p"), (":", "h"))
    for colour in ("#AA4499", "#999933", "#44AA99", "#CC6677", "#7B68C8")
]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each name, in legend order.

    An unknown name's look follows from the name alone, so that it is the same in all figures; only
    where two unknown names of one figure would look alike does one of them take the next look.

    >>> list(looks(["mine", "P-TS", "LinUCB"]))
    ['LinUCB', 'P-TS', 'mine']
    >>> looks(["P-TS"])["P-TS"].colour == looks(["P-LinUCB"])["P-LinUCB"].colour
    True
    """
    chosen: dict[str, Look] = {}
    taken: set[int] = set()
    for name in in_order(names):
        if name in KNOWN:
            chosen[name] = KNOWN[name]
            continue
        at = zlib.crc32(name.encode()) % len(SPARE)
        while at in taken and len(taken) < len(SPARE):
            at = (at + 1) % len(SPARE)
        taken.add(at)
        chosen[name] = SPARE[at]
    return chosen


def in_order(names: Iterable[str]) -> list[str]:
    """Names without repetition: known ones in the order of :data:`KNOWN`, the rest by alphabet."""
    places = {name: place for place, name in enumerate(KNOWN)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))
