"""Why an arm was chosen, and what sets its task apart: contributions of single features.

With the posterior of θ at the time of the choice, the arm x and another arm y (or the mean y of the
others), the difference of expected rewards is a sum over features::

    xᵀθ̂ − yᵀθ̂ = Σ_f (x_f − y_f) θ̂_f

Each term has an interval from the posterior of θ_f. With a schema, the terms of the columns of one
field are added up: those of a category are not identified apart from the intercept. A feature that
all arms share, such as the intercept, contributes nothing. The task is compared with the mean of
its prior, which the other tasks have determined, coefficient by coefficient, in the units in which
features were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.bandit.choices.choice import Choice
from headstart.bandit.choices.decision import Decision
from headstart.bandit.state import BanditState
from headstart.errors import ChoiceError, InputError
from headstart.features.conversion import Features
from headstart.model.base import BaseBelief
from headstart.model.own_noise import normal_quantile
from headstart.records import Array
from headstart.rules.ties import Mask, arm_mask

__all__ = ["Effects", "Explanation", "explain_choice"]

ROUNDING = 1e-9  # of a value that is 0 or 1
MAX_TABLE_ROWS = 12  # rows of a table that is printed


class Effects(NamedTuple):
    """Estimates with intervals, one for each feature, or for each field of a schema.

    Attributes
    ----------
    features : tuple of str
        The names of the features or fields; the intercept is last if there is one.
    estimate, lower, upper : ndarray of shape (features,)
        The estimates and the ends of their intervals.
    """

    features: tuple[str, ...]
    estimate: Array
    lower: Array
    upper: Array

    def largest_first(self) -> list[int]:
        """The places of the features by the size of their estimates, the largest first."""
        return np.argsort(-np.abs(self.estimate), kind="stable").tolist()


class Explanation(NamedTuple):
    """Why an arm was chosen, and what sets its task apart.

    Attributes
    ----------
    choice : str
        The choice's id.
    arm, other : int, and int or None
        The arm that was chosen, and the arm it is compared with; ``None`` for the mean of the
        others that could be picked (of the arm itself if there were none).
    action, other_action : object
        What the two are called: ids or labels, or the numbers of arms.
    values, other_values : ndarray of shape (features,)
        The features of both as they were given.
    contributions : Effects
        By how much each feature, or each field of a schema, raised the expected reward of the arm
        above that of the other.
    difference : (float, float, float)
        The sum of the contributions, and its interval.
    bonus : float or None
        By how much the rule favoured the arm beyond the expected reward, for being less well known;
        ``None`` for rules that draw at random.
    propensity : float
        The probability with which the arm was chosen.
    task : Effects
        The coefficients of the task: the change of the expected reward per unit of each feature.
    average : ndarray of shape (features,)
        The coefficients of an average task: the mean of the prior that the task had at the time
        (``task.refresh()`` takes the newest one).
    level : float
        The probability of each interval.
    fields : tuple of str
        Of each feature, the field of the schema that it is of, or else its name.
    quantity : str
        What differences and coefficients are of: the expected reward or cost, or log-odds.
    """

    choice: str
    arm: int
    other: int | None
    action: Any
    other_action: Any
    values: Array
    other_values: Array
    contributions: Effects
    difference: tuple[float, float, float]
    bonus: float | None
    propensity: float
    task: Effects
    average: Array
    level: float
    fields: tuple[str, ...]
    quantity: str = "expected reward"

    def __repr__(self) -> str:
        """Both tables, the largest effects first."""
        versus = "compared with the mean of the others"
        if self.other is not None:
            versus = f"compared with {arm_name(self.other, self.other_action)}"
        elif np.array_equal(self.values, self.other_values):
            versus = "was the only arm that could be picked"
        estimate, lower, upper = self.difference
        lines = [
            f"{self.choice}: {arm_name(self.arm, self.action)} {versus}"
            f" (intervals of {self.level:.0%})",
            f"  {self.quantity} {estimate:+.4g} [{lower:+.4g}, {upper:+.4g}]"
            + ("" if self.bonus is None else f", bonus for being less known {self.bonus:+.4g}")
            + f", propensity {self.propensity:.3g}",
        ]
        columns = ("feature", "chosen", "other", "contribution", "interval")
        order = [at for at in self.contributions.largest_first() if self.contributions.estimate[at]]
        parts = self.contributions
        lines += table(
            columns,
            [
                (
                    parts.features[at],
                    self.field_value(parts.features[at], self.values),
                    self.field_value(parts.features[at], self.other_values),
                    f"{parts.estimate[at]:+.4g}",
                    f"[{parts.lower[at]:+.4g}, {parts.upper[at]:+.4g}]",
                )
                for at in order
            ],
        )
        away = np.abs(self.task.estimate - self.average)
        spread = np.maximum(self.task.upper - self.task.lower, 1e-300)
        apart = [at for at in np.argsort(-away / spread, kind="stable").tolist() if away[at]]
        if not apart:
            return "\n".join([*lines, "nothing sets the task apart from an average one yet"])
        lines.append("what sets the task apart: coefficients compared with those of an average one")
        lines += table(
            ("feature", "task", "interval", "average", "difference"),
            [
                (
                    self.task.features[at],
                    f"{self.task.estimate[at]:.4g}",
                    f"[{self.task.lower[at]:.4g}, {self.task.upper[at]:.4g}]",
                    f"{self.average[at]:.4g}",
                    f"{self.task.estimate[at] - self.average[at]:+.4g}",
                )
                for at in apart
            ],
        )
        return "\n".join(lines)

    def field_value(self, field: str, values: Array) -> str:
        """What a field is, as text: its number, the name of its category, or that it is several."""
        there = [at for at, name in enumerate(self.fields) if name == field]
        if len(there) > 1:
            there = [at for at in there if abs(values[at]) > ROUNDING]
        if len(there) != 1:
            return "several" if there else "0"
        value, level = values[there[0]], self.task.features[there[0]].removeprefix(field)
        if not level:
            return f"{value:.4g}"
        # Of an item that the task has met before, the fields count less.
        share = "" if abs(value - 1.0) < ROUNDING else f"{value:.4g} × "
        return share + level.lstrip("= ")


def arm_name(arm: int, action: Any) -> str:
    """An arm in a text: by what it is called, or by its number."""
    return f"arm {arm}" if action == arm else f"{action!r}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, the first column to the left and the others to the right."""
    cells_by_row = [tuple(columns), *rows[:MAX_TABLE_ROWS]]
    widths = [max(len(row[at]) for row in cells_by_row) for at in range(len(columns))]
    lines = [
        "  " + row[0].ljust(widths[0]) + "".join(f"  {cell:>{width}}" for cell, width in cells)
        for row in cells_by_row
        for cells in [list(zip(row[1:], widths[1:], strict=True))]
    ]
    if len(rows) > MAX_TABLE_ROWS:
        lines.append(f"  … and {len(rows) - MAX_TABLE_ROWS} more")
    return lines


def explain_choice(
    state: BanditState, task: str, choice: Any, against: Any, level: Any
) -> Explanation:
    """Explain a choice of a task."""
    level = checks.fraction("level", level, open_ends=True)
    if not isinstance(choice, Choice):
        raise checks.invalid(
            "choice", "a Choice (a token does not carry what was on offer)", choice
        )
    if choice.origin != state.origin or choice.task != task:
        raise ChoiceError(f"choice {choice.id} is not one of task {task!r} of this bandit")
    decision = choice.compute_propensities
    if not isinstance(decision, Decision):
        raise ChoiceError(
            f"choice {choice.id} is a copy, or was read from a token, and does not carry what was "
            f"on offer: explain it in the process that made it"
        )
    belief, rows, arm = decision.belief, decision.table, choice.arm
    others = arm_mask(rows[:, 0], decision.allowed).copy()
    others[[arm, *decision.before]] = False
    index = decision.rule.fixed_index(belief, rows)
    other = other_arm(against, others, belief.predict(rows) if index is None else index)
    rivals = others if other is None else np.arange(len(rows)) == other
    if not rivals.any():  # the only one is compared with itself: all differences are 0
        rivals = np.arange(len(rows)) == arm
    y = rows[rivals].mean(0)
    quantile = normal_quantile(level)
    with state.lock:
        features, rewards = state.reader.features, state.ledger.rewards
        encoder = state.reader.encoder
    names, sign = feature_names(features), rewards.sign
    fields = names if encoder is None else (*encoder.column_fields, *names[features.context_dim :])
    gap = sign * (rows[arm] - y)
    gap[np.abs(gap) <= 1e-12 * (np.abs(rows[arm]) + np.abs(y))] = 0.0  # else it is rounding
    distinct = tuple(dict.fromkeys(fields))
    is_of = np.array(distinct)[:, None] == np.array(fields)
    mean, half = moments(belief, gap[None], quantile)
    bonus = None
    if index is not None:
        apart, size = sign * (index[arm] - index[rivals].mean()) - mean[0], np.abs(index).max()
        bonus = float(apart) if abs(apart) > 1e-12 * size else 0.0  # else it is rounding
    coefficient_rows = sign * features.coefficient_matrix()
    average = belief.prior.belief()
    return Explanation(
        choice.id,
        arm,
        other,
        choice.action,
        None if other is None else decision.label(other),
        features.original_row(rows[arm]),
        features.original_row(y),
        effects(belief, distinct, is_of * gap, quantile),
        (float(mean[0]), float(mean[0] - half[0]), float(mean[0] + half[0])),
        bonus,
        choice.propensity,
        effects(belief, names, coefficient_rows, quantile),
        average.predict(coefficient_rows),
        level,
        fields,
        rewards.quantity,
    )


def other_arm(against: Any, others: Mask, scores: Array) -> int | None:
    """The arm to compare with; ``None`` for the mean of those left, or if there is no other."""
    want = "'runner-up', 'average' or another arm that could be picked"
    if isinstance(against, str):
        checks.one_of("against", against, ("runner-up", "average"))
        if against == "average" or not others.any():
            return None
        return int(np.where(others, scores, -np.inf).argmax())
    number = checks.integer("against", against, 0, len(others) - 1)
    if not others[number]:
        raise InputError(f"against must be {want}; got {number}")
    return number


def moments(belief: BaseBelief, rows: Array, quantile: float) -> tuple[Array, Array]:
    """The expected value of each row times θ, and half the length of its interval."""
    return belief.predict(rows), quantile * belief.noise * belief.width(rows)


def effects(belief: BaseBelief, names: tuple[str, ...], rows: Array, quantile: float) -> Effects:
    """The same as effects of features, one per row."""
    mean, half = moments(belief, rows, quantile)
    return Effects(names, mean, mean - half, mean + half)


def feature_names(features: Features) -> tuple[str, ...]:
    """The names of the features that the model has; x0, x1, … where none are known."""
    names = features.names or tuple(f"x{at}" for at in range(features.context_dim))
    return (*names, "intercept") if features.intercept else names
