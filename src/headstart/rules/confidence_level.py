"""The confidence level δ of the rules that take it from an analysis."""

from __future__ import annotations

from headstart import checks

__all__ = ["check_confidence", "delta_or_default"]


def check_confidence(delta: float | None, horizon: int) -> None:
    """Refuse a δ outside (0, 1) and a horizon below 2."""
    if delta is not None:
        checks.fraction("delta", delta, open_ends=True)
    checks.integer("horizon", horizon, 2)


def delta_or_default(delta: float | None, horizon: int) -> float:
    """δ, or 1/n where it is not given."""
    return 1.0 / horizon if delta is None else delta
