"""What to fix in a log, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headstart.errors import visible
from headstart.fleet.reading.logs import Logs, advise
from headstart.fleet.summing.summary import ADVICE, Outlier, no_differences
from headstart.lab.text import count, join_words
from headstart.transfer.standardize import CONSTANT_SHARE
from headstart.transfer.task_levels import proportion_notes

if TYPE_CHECKING:
    from headstart.fleet.check.profile import Dependence, Profile

FAR_APART = 1e3  # how much one feature may vary more than another before it is told
STEADY_REWARDS = 1e-3  # of their mean: the noise is not estimated below this share of their size
NAMED = 5
FEW_TASKS = 34  # of which the share that evaluate predicts is below ten tasks
FEW_ROWS = 2  # of an item, on average, below which its id tells little


class Finding(NamedTuple):
    """One thing to fix: ``level`` is "stop" where nothing can be learned before, or "fix"."""

    level: str
    text: str


def find_problems(profile: Profile, logs: Logs) -> list[Finding]:
    """Everything there is to fix, the worst first."""
    stops = [Finding("stop", text) for text in reasons_to_stop(profile, logs)]
    return stops + [Finding("fix", text) for text in things_to_fix(profile, logs)]


def reasons_to_stop(profile: Profile, logs: Logs) -> Iterator[str]:
    """Why nothing can be learned before something is repaired."""
    if profile.bad and logs.on_bad_rows == "error":
        how = "repair them, or leave them out with --on-bad-rows skip"
        yield describe_bad_rows(profile, logs, how)
    if not profile.rows:
        yield "there is no row that can be used"
    elif not profile.shown:
        yield "no row was chosen, so that no reward was seen: is --chosen right?"
    if not profile.shown:
        return
    least, greatest, _, _ = profile.rewards
    yield from no_differences(profile.tasks, least, greatest)
    if (profile.lowest == profile.highest).all() and not profile.items:
        what = "0 everywhere" if not profile.lowest.any() else "constant"
        yield f"every feature is {what}: there is nothing to learn from"
    for outlier in profile.outliers:
        if outlier.drowns_others:
            text = describe_outlier(profile, outlier)
            yield f"{text}: all other rows are lost in rounding. Repair or remove such rows"


def things_to_fix(profile: Profile, logs: Logs) -> Iterator[str]:
    """What can be learned from, and should still be looked at."""
    if profile.bad and logs.on_bad_rows != "error":
        yield describe_bad_rows(profile, logs, "they are left out; find out why they are there")
    yield from profile.repeated
    if profile.shown < FEW_ROWS * profile.items:
        yield (
            f"{profile.items:,} items have {profile.shown:,} rows: ids that hardly recur say "
            f"little. Is the id column the right one?"
        )
    if profile.shown > 2 and profile.heaviest > 0.5:
        share = 100.0 * profile.heaviest
        yield f"one row has {share:.3g} % of all weight, more than all others together"
    if profile.shown and profile.single > profile.tasks / 2:
        yield (
            f"{profile.single:,} of {profile.tasks:,} tasks have one row only: they say little "
            f"about what tasks share; is the task column the right one?"
        )
    for outlier in profile.outliers:
        if not outlier.drowns_others:
            yield f"{describe_outlier(profile, outlier)}: {ADVICE}"
    # Sums of squares do not show what varies so little beside its mean.
    little = profile.deviations**2 <= CONSTANT_SHARE * profile.means**2
    for place in np.flatnonzero(little & (profile.lowest < profile.highest)).tolist():
        yield (
            f"{label(profile.features[place])} varies by less than a millionth of its mean "
            f"({profile.means[place]:.6g} ± {profile.deviations[place]:.2g}): fit takes it for "
            f"constant. Subtract a constant from it first"
        )
    least, greatest, mean, deviation = profile.rewards
    if profile.shown and least < greatest and deviation < STEADY_REWARDS * abs(mean):
        yield (
            f"rewards vary by less than a thousandth of their mean ({mean:.6g} ± {deviation:.2g}): "
            f"noise is not estimated below that share of their size. Subtract a constant first"
        )
    yield from rounds_to_fix(profile, logs)


def describe_bad_rows(profile: Profile, logs: Logs, how: str) -> str:
    """How many rows cannot be used, what is done about them, and what they may be."""
    bad = profile.bad.count
    every = bad + profile.rows + profile.weightless
    text = f"{bad:,} of {every:,} rows cannot be used (see above)"
    if profile.too_large:
        text += (
            f"; squares of {join_names(list(profile.too_large))} are beyond what a sum can "
            f"hold, so divide by a constant"
        )
    parts = [f"{text}: {how}", *advise(profile.bad, logs)]
    return ". ".join(part[0].upper() + part[1:] for part in parts)


def describe_outlier(profile: Profile, outlier: Outlier) -> str:
    """A column with values far out, the largest of them, and its task."""
    place = [*(f"feature {name}" for name in profile.features), "reward"].index(outlier.name)
    where = f" (task {label(profile.extremes[place])})" if profile.extremes[place] else ""
    # What the sums say of the largest value is an estimate; here it is known.
    lowest, highest = [*profile.lowest, profile.rewards[0]], [*profile.highest, profile.rewards[1]]
    reach = float(max(abs(lowest[place]), abs(highest[place])))
    return label(str(outlier._replace(reach=reach))) + where


def notes_on_columns(profile: Profile, logs: Logs) -> Iterator[str]:
    """What is true of tasks, rewards and features, and what fit and evaluate do about it."""
    if not profile.shown:
        return
    if 1 < profile.tasks < FEW_TASKS:
        yield (
            f"{profile.tasks} tasks are few: evaluate needs ten past and ten future tasks before "
            f"it gives a verdict"
        )
    if profile.binary and profile.rewards[0] < profile.rewards[1]:
        yield "every reward is 0 or 1: --reward-model binary fits a logistic model to such rewards"
    if profile.items:
        each = profile.shown / profile.items
        yield f"{count(profile.items, 'item')}; rows per item: {each:.3g}"
    yield from proportion_notes(profile.proportional)
    if logs.columns.schema is not None:
        others = [one for one in profile.dependences if not has_flag(one, profile)]
        rank = profile.rank + len(others)
        if rank < len(profile.features):
            yield (
                f"{rank} of the {len(profile.features)} columns that the schema makes are "
                f"independent, as it should be with categories: their columns add up to 1, and "
                f"one of other values is 0 where there are none (constant: "
                f"{len(profile.constant)}, combinations of others: "
                f"{len(profile.dependences) - len(others)})"
            )
        for one in others[:NAMED]:
            yield relation(one, profile)
        return
    steady = profile.lowest == profile.highest
    names = np.array(profile.features)
    zeros = names[steady & (profile.lowest == 0)].tolist()
    levels = names[steady & (profile.lowest != 0)].tolist()
    if zeros and not steady.all():
        verbs = ("is", "changes") if len(zeros) == 1 else ("are", "change")
        yield f"{join_names(zeros)} {verbs[0]} 0 everywhere, and {verbs[1]} nothing"
    if levels:
        which = "is constant" if len(levels) == 1 else "are constant"
        yield (
            f"{join_names(levels)} {which}, as is the intercept that fit and evaluate add "
            f"(--no-intercept leaves it out): predictions are the same without"
        )
    else:
        yield (
            "no feature is constant: fit and evaluate add an intercept (--no-intercept leaves it "
            "out)"
        )
    for one in profile.dependences[:NAMED]:
        yield relation(one, profile)
    if len(profile.dependences) > NAMED:
        more = [profile.features[one.feature] for one in profile.dependences[NAMED:]]
        verb = "is a linear combination" if len(more) == 1 else "are linear combinations"
        yield f"{join_names(more)} {verb} of others, too"
    scales, moving = profile.deviations[~steady], names[~steady]
    if len(scales) and scales.max() > FAR_APART * scales.min() > 0:
        much = scales.max() / scales.min()
        times = f"{much:,.0f}" if much < 1e6 else f"{much:.0e}"
        yield (
            f"{label(moving[scales.argmax()])} varies {times} times as much as "
            f"{label(moving[scales.argmin()])}: fit and evaluate standardize features "
            f"(--standardize)"
        )


def has_flag(one: Dependence, profile: Profile) -> bool:
    """Whether a feature or what it is made up of is 0 or 1, as the columns of a category are."""
    places = [one.feature, *(place for place, _ in one.terms)]
    return bool(((profile.lowest[places] == 0) & (profile.highest[places] == 1)).any())


def relation(one: Dependence, profile: Profile) -> str:
    """That a feature is made up of others, and what follows from it."""
    places = [one.feature, *(place for place, _ in one.terms)]
    flags = all(profile.lowest[place] == 0 and profile.highest[place] == 1 for place in places)
    whole = one.exact and abs(one.constant - 1.0) < 1e-6
    if len(places) > 1 and flags and whole and all(abs(f + 1.0) < 1e-6 for _, f in one.terms):
        names = join_names([profile.features[place] for place in sorted(places)])
        return (
            f"{names} are a full set of groups: they add up to 1, like the intercept. Predictions "
            f"do not suffer, but effects are divided between them and the intercept"
        )
    how = "is" if one.exact else "is nearly"
    name = label(profile.features[one.feature])
    return (
        f"{name} {how} {formula(one, profile)}. Predictions do not suffer, but its effect is "
        f"divided between it and what it is made up of"
    )


def rounds_to_fix(profile: Profile, logs: Logs) -> Iterator[str]:
    """Rounds that appear twice, arms that were chosen, propensities."""
    counts, columns = profile.rounds, logs.columns
    if counts is None:
        if columns.chosen is not None:
            yield (
                "there is a chosen column and no round column: name it, so that the arms that were "
                "on offer together are known"
            )
        return
    part = "" if counts.share == 1 else f" (of 1 in {round(1 / counts.share)} that was looked at)"
    if columns.chosen is None:
        if counts.repeated:
            yield (
                f"{count(counts.repeated, 'round')}{part} with more than one row: are rows "
                f"logged twice? If they are arms that were on offer together, say with --chosen "
                f"which one was shown"
            )
        return
    if counts.unchosen:
        yield f"{count(counts.unchosen, 'round')}{part} without a chosen arm"
    if counts.overchosen:
        yield f"{count(counts.overchosen, 'round')}{part} with more than one chosen arm"
    if counts.rounds and counts.arms < 1 + 1e-9:
        yield (
            "every round has one arm: only the arm that was shown was logged, which is not enough "
            "to estimate what another policy would have earned"
        )
    if columns.propensity is not None and counts.off:
        yield (
            f"the propensities of {counts.off:,} of {counts.summed:,} rounds{part} do not add up "
            f"to 1: is an arm not logged, or are they scores?"
        )


def label(name: str) -> str:
    """A name from elsewhere, safe to print in a line."""
    return visible(str(name), line=True)


def join_names(names: list[str]) -> str:
    """Some names, not too many.

    >>> join_names(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    shown, rest = [label(name) for name in names[:NAMED]], len(names) - NAMED
    return join_words([*shown, f"{rest} more"] if rest > 0 else shown)


def formula(one: Dependence, profile: Profile) -> str:
    """A linear combination as people write it: 1 + 2·x1 − x2."""
    terms = [(label(profile.features[place]), factor) for place, factor in one.terms[:NAMED]]
    pieces = []
    for name, factor in ([("", one.constant)] if one.constant else []) + terms:
        size, sign = f"{abs(factor):.4g}", "−" if factor < 0 else "+"
        product = name if name and size == "1" else f"{size}·{name}" if name else size
        pieces.append(f"{sign} {product}")
    text = " ".join(pieces).removeprefix("+ ")
    return text + (" + …" if len(one.terms) > NAMED else "")
