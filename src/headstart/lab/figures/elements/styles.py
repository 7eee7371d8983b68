"""The style of a policy: one colour, line and marker, the same in every figure.

The colours are Okabe and Ito's, which colour-blind readers can distinguish, with black and yellow
replaced so that all of them show on a white and on a dark page. Line styles and markers differ too,
so that a figure printed in grey can still be read. Policies that differ only in how they choose
(optimism or Thompson sampling) share a colour; the Thompson one is dashed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from headstart.algorithms import DEFAULT


class Style(NamedTuple):
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
KNOWN_STYLES = {
    DEFAULT: Style("#D55E00", "-", "X"),
    "headstart, Thompson": Style("#D55E00", "--", ">"),
    "LinUCB": Style("#E69F00", "-", "o"),
    "LinUCB, best λ": Style("#E69F00", ":", "o"),
    "LinTS": Style("#E69F00", "--", "s"),
    "B-OFUL": Style("#009E73", "-", "^"),
    "M-TS": Style("#CC79A7", "--", "v"),
    "M-TS, unforced": Style("#CC79A7", ":", "<"),
    "P-LinUCB": Style("#0072B2", "-", "D"),
    "P-LinUCB, tuned λ": Style("#0072B2", ":", "D"),
    "P-TS": Style("#0072B2", "--", "P"),
    "empirical Bayes": Style("#D55E00", ":", "X"),
    "mixture": Style("#A6761D", "-.", "*"),
    "projection oracle": Style("#56B4E9", "-.", "p"),
    "Bayes oracle": Style("#767676", ":", "h"),
}

# For other names: colours that no known policy has, from Paul Tol's muted scheme.
SPARE_STYLES = [
    Style(colour, line, marker)
    for line, marker in (("-", ">"), ("--", "<"), ("-.", "p"), (":", "h"))
    for colour in ("#AA4499", "#999933", "#44AA99", "#CC6677", "#7B68C8")
]


def assign_styles(names: Iterable[str]) -> dict[str, Style]:
    """The style of each name, in legend order.

    An unknown name's style follows from the name alone, so that it is the same in all figures; only
    where two unknown names of one figure would get the same style does one of them take the next.

    >>> list(assign_styles(["mine", "P-TS", "LinUCB"]))
    ['LinUCB', 'P-TS', 'mine']
    >>> assign_styles(["P-TS"])["P-TS"].colour == assign_styles(["P-LinUCB"])["P-LinUCB"].colour
    True
    """
    styles: dict[str, Style] = {}
    spare_indices: set[int] = set()
    for name in legend_order(names):
        if name in KNOWN_STYLES:
            styles[name] = KNOWN_STYLES[name]
            continue
        at = zlib.crc32(name.encode()) % len(SPARE_STYLES)
        while at in spare_indices and len(spare_indices) < len(SPARE_STYLES):
            at = (at + 1) % len(SPARE_STYLES)
        spare_indices.add(at)
        styles[name] = SPARE_STYLES[at]
    return styles


def legend_order(names: Iterable[str]) -> list[str]:
    """Distinct names: known ones in the order of :data:`KNOWN_STYLES`, then by alphabet."""
    places = {name: place for place, name in enumerate(KNOWN_STYLES)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))
