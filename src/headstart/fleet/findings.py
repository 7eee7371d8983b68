"""What to fix in a log, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from headstart.fleet.collinear import Dependence
    from headstart.fleet.logs import Logs
    from headstart.fleet.profile import Profile

__all__ = ["Finding", "counted", "look_for", "to_know"]

FAR_APART = 1e3  # how much one feature may vary more than another before it is told
NAMED = 5


class Finding(NamedTuple):
    """One thing to fix: ``level`` is "stop" where nothing can be learned before, or "fix"."""

    level: str
    text: str


def look_for(profile: Profile, logs: Logs) -> list[Finding]:
    """Everything there is to fix, the worst first."""
    found = [*about_rows(profile, logs), *about_features(profile), *about_rounds(profile, logs)]
    return sorted(found, key=lambda finding: finding.level != "stop")


def about_rows(profile: Profile, logs: Logs) -> Iterator[Finding]:
    """Bad rows, too few of them, rewards."""
    if profile.bad:
        text = (
            f"{profile.bad.count:,} of {profile.bad.count + profile.rows + profile.weightless:,} "
            f"rows cannot be used (see above)"
        )
        flag = logs.flag
        if logs.columns.chosen is None and 2 * profile.missing.get("reward", 0) > profile.bad.count:
            text += (
                f"; if those without a reward are arms that were not shown, name the column that "
                f"says which was (--chosen {flag or 'COLUMN'})"
            )
        if profile.too_large:
            text += (
                f"; squares of {listed(list(profile.too_large))} are beyond what a sum can hold, "
                f"so divide by a constant"
            )
        if logs.on_bad_rows == "error":
            yield Finding("stop", f"{text}: repair them, or leave them out with --on-bad-rows skip")
        else:
            yield Finding("fix", f"{text}: they are left out; find out why they are there")
    if not profile.rows:
        yield Finding("stop", "there is no row that can be used")
        return
    if not profile.shown:
        yield Finding("stop", "no row was chosen, so that no reward was seen: is --chosen right?")
        return
    if profile.tasks < 2:
        yield Finding("stop", "there is one task only: what tasks share cannot be learned from one")
    least, greatest, _, _ = profile.rewards
    if least == greatest:
        yield Finding("stop", f"every reward is {least:g}: there is nothing to learn")
    if profile.single > profile.tasks / 2:
        yield Finding(
            "fix",
            f"{profile.single:,} of {profile.tasks:,} tasks have one row only: they say little "
            f"about what tasks share; is the task column the right one?",
        )


def about_features(profile: Profile) -> Iterator[Finding]:
    """Constant and collinear features, and their scales."""
    if not profile.shown:
        return
    steady = profile.lowest == profile.highest
    names = np.array(profile.features)
    zeros = names[steady & (profile.lowest == 0)].tolist()
    levels = names[steady & (profile.lowest != 0)].tolist()
    if zeros and len(zeros) == len(names):
        yield Finding("stop", "every feature is 0 everywhere: there is nothing to learn from")
    elif zeros:
        yield Finding("fix", f"{listed(zeros)} {plural(zeros)} 0 everywhere: leave it out")
    if len(levels) > 1:
        yield Finding(
            "fix", f"{listed(levels)} are all constant: one is an intercept, leave the others out"
        )
    for one in profile.dependences[:NAMED]:
        how = "is" if one.exact else "is nearly"
        yield Finding(
            "fix",
            f"{profile.features[one.feature]} {how} {formula(one, profile)}: leave it out, its "
            f"effect cannot be told from theirs",
        )
    if len(profile.dependences) > NAMED:
        more = [profile.features[one.feature] for one in profile.dependences[NAMED:]]
        yield Finding("fix", f"{listed(more)} are linear combinations of others, too")


def to_know(profile: Profile) -> Iterator[str]:
    """What fit and evaluate do about the features by default."""
    if not profile.shown:
        return
    steady = profile.lowest == profile.highest
    if not (steady & (profile.lowest != 0)).any():
        yield (
            "no feature is constant: fit and evaluate add an intercept (--no-intercept leaves it "
            "out)"
        )
    scales, names = profile.deviations[~steady], np.array(profile.features)[~steady]
    if len(scales) and scales.max() > FAR_APART * scales.min() > 0:
        much = scales.max() / scales.min()
        times = f"{much:,.0f}" if much < 1e6 else f"{much:.0e}"
        yield (
            f"{names[scales.argmax()]} varies {times} times as much as {names[scales.argmin()]}: "
            f"fit and evaluate standardize features (--standardize)"
        )


def about_rounds(profile: Profile, logs: Logs) -> Iterator[Finding]:
    """Rounds that appear twice, arms that were chosen, propensities."""
    turns, columns = profile.turns, logs.columns
    if turns is None:
        if columns.chosen is not None:
            yield Finding(
                "fix",
                "there is a chosen column and no round column: name it, so that the arms that were "
                "on offer together can be told",
            )
        return
    part = "" if turns.share == 1 else f" (of 1 in {round(1 / turns.share)} that was looked at)"
    if columns.chosen is None:
        if turns.repeated:
            yield Finding(
                "fix",
                f"{counted(turns.repeated, 'round')}{part} with more than one row: are rows logged "
                f"twice? If they are arms that were on offer together, say with --chosen "
                f"which one was shown",
            )
        return
    if turns.unchosen:
        yield Finding("fix", f"{counted(turns.unchosen, 'round')}{part} without a chosen arm")
    if turns.overchosen:
        yield Finding(
            "fix", f"{counted(turns.overchosen, 'round')}{part} with more than one chosen arm"
        )
    if turns.rounds and turns.arms < 1 + 1e-9:
        yield Finding(
            "fix",
            "every round has one arm: only the arm that was shown was logged, which is not enough "
            "to tell what another policy would have earned",
        )
    if columns.propensity is not None and turns.off:
        yield Finding(
            "fix",
            f"the propensities of {turns.off:,} of {turns.summed:,} rounds{part} do not add up to "
            f"1: is an arm not logged, or are they scores?",
        )


def counted(count: float, what: str) -> str:
    """So many of something.

    >>> counted(1, "row"), counted(1200, "row"), counted(2.5, "row")
    ('1 row', '1,200 rows', '2.5 rows')
    """
    text = f"{round(count):,}" if count == round(count) else f"{count:.3g}"
    return f"{text} {what}" + ("" if text == "1" else "s")


def listed(names: list[str]) -> str:
    """Some names, not too many.

    >>> listed(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    if len(names) <= NAMED:
        return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def plural(names: list[str]) -> str:
    """The verb for some names."""
    return "is" if len(names) == 1 else "are"


def formula(one: Dependence, profile: Profile) -> str:
    """A linear combination as people write it: 2·x1 − x2."""
    pieces = []
    for place, factor in one.terms[:NAMED]:
        digits = f"{abs(factor):.4g}"
        size = "" if digits == "1" else f"{digits}·"
        sign = "−" if factor < 0 else "+"
        pieces.append(f"{sign} {size}{profile.features[place]}")
    text = " ".join(pieces).removeprefix("+ ")
    return text + (" + …" if len(one.terms) > NAMED else "") if text else "constant"
