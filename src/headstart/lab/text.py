"""Formatting of numbers and names for readers."""

from __future__ import annotations

import html
import math

LARGEST_WRITTEN_OUT = 1e12


def number(value: float | int | None, digits: int = 3) -> str:
    """A number with as many digits as a reader needs.

    >>> number(0.63456), number(15432.1), number(0.0000123), number(-2e77), number(None)
    ('0.635', '15,432', '1.23e-05', '−2.00e+77', '–')
    """
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    size = abs(value)
    if (size and size < 1e-3) or size >= LARGEST_WRITTEN_OUT:
        return f"{value:.{digits - 1}e}".replace("-", "−", int(value < 0))
    if size >= 10**digits:
        return f"{value:,.0f}".replace("-", "−")
    places = digits - 1 - (math.floor(math.log10(size)) if size else digits - 1)
    return f"{value:.{places}f}".replace("-", "−")


def format_interval(mean: float | None, low: float | None, high: float | None) -> str:
    """A mean and its interval: ``±`` where the interval is symmetric, ``[low, high]`` elsewhere.

    >>> format_interval(12.3456, 12.1, 12.5912), format_interval(0.5, 0.2, 1.5)
    ('12.35 ± 0.25', '0.500 [0.200, 1.50]')
    >>> format_interval(12.3456, None, None), format_interval(-1.5e77, -1.7e77, -1.3e77)
    ('12.3', '−1.50e+77 ± 2.00e+76')
    """
    if mean is None or not math.isfinite(mean):
        return "–"
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return number(float(mean))
    half = (high - low) / 2
    if abs(high + low - 2 * mean) > 1e-6 * max(abs(mean), half):
        return f"{number(float(mean))} [{number(float(low))}, {number(float(high))}]"
    if half == 0:
        return number(float(mean))
    if max(abs(mean), half) >= LARGEST_WRITTEN_OUT:
        return f"{number(float(mean))} ± {number(half)}"
    # Two digits of the half-width; the mean to the same place.
    places = min(8, max(0, 1 - math.floor(math.log10(half))))
    return f"{mean:,.{places}f} ± {half:,.{places}f}".replace("-", "−")


def count(how_many: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(20, "seed")
    ('1 seed', '20 seeds')
    """
    return f"{how_many} {thing}" if how_many == 1 else f"{how_many:,} {thing}s"


def join_words(words: list[str]) -> str:
    """Words as part of a sentence.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def escape_matplotlib(name: str) -> str:
    """A name escaped for Matplotlib: no maths in it, and never left out of a legend."""
    text = name.replace("\\", "\\\\").replace("$", r"\$") if "$" in name else name
    return " " + text if text.startswith("_") else text


def escape_plotly(name: str) -> str:
    """A name escaped for Plotly: no markup in it."""
    return html.escape(name, quote=False)
