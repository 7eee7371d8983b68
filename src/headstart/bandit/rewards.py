"""What rewards are: numbers or clicks, to be maximized or minimized.

A reward model stands between the rewards that users pass and the linear model of a task. It reads a
reward, says which round of the linear model stands for it, and gives scores and predictions in the
user's own units. Costs (``minimize=True``) are learned as rewards of the opposite sign.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from headstart import checks
from headstart.features.conversion import MAX_VALUE, check_reward
from headstart.model.base import BaseBelief
from headstart.model.logistic import MIN_WEIGHT, expected_probability, linearize, sigmoid
from headstart.model.own_noise import normal_quantile, reward_scale, t_quantile
from headstart.records import Array
from headstart.rules import Rule

WANT_BINARY = "0 or 1, or a boolean, with reward='binary'"
Interval = tuple[Array, Array, Array]  # expected rewards, and the ends of their intervals


@dataclasses.dataclass(frozen=True)
class RewardModel:
    """How rewards enter the linear model of a task: as they are, E r = xᵀθ.

    Rewards of this model are any finite numbers. A subclass overrides what is different.

    Attributes
    ----------
    minimize
        Whether the rewards are costs.
    """

    minimize: bool = False

    #: The name, as ``Bandit(reward=…)`` has it.
    name: ClassVar[str] = "number"
    #: R, where it follows from the model; ``None`` where it is given or estimated.
    fixed_noise: ClassVar[float | None] = None
    #: Whether a round of the linear model depends on the belief before it.
    needs_belief: ClassVar[bool] = False

    @property
    def sign(self) -> float:
        """−1 for costs, else 1."""
        return -1.0 if self.minimize else 1.0

    def read(self, reward: Any) -> float:
        """The reward that the model learns from, from one that a user passes; checked."""
        number = float(reward) if isinstance(reward, float) else check_reward(reward)
        if not -MAX_VALUE <= number <= MAX_VALUE:
            number = check_reward(reward)
        return -number if self.minimize else number

    def read_many(self, rewards: Array) -> Array:
        """The same of an array of finite numbers. It is its own inverse."""
        return self.sign * rewards

    def linearize(self, belief: Any, x: Array, r: Any, weight: float = 1.0) -> tuple[Array, Any]:
        """The round of the linear model that stands for a context and a reward as read.

        A ``weight`` of w counts the reward w times. The belief matters if :attr:`needs_belief`.
        """
        root = math.sqrt(weight)
        return root * x, root * r

    def working_reward(self, index: float, reward: float) -> tuple[float, float]:
        """What stands for a mean reward in the linear model near a value of it, and its weight."""
        return reward, 1.0

    def score(self, index: Any) -> Any:
        """A rule's index, a number or an array, in the units of the user's rewards."""
        return -index if self.minimize else index

    def interval(self, belief: BaseBelief, rows: Array, level: float, of_reward: bool) -> Interval:
        """Expected rewards with intervals, in the units of the user's rewards.

        ``level`` is their probability. With ``of_reward`` they are those of single rewards. Here:
        xᵀθ̂ ± q R ‖x‖, or with the noise ± q R √(1 + ‖x‖²), norms in B⁻¹. q is the quantile of the
        normal distribution. Where tasks differ in their noise it is that of a t distribution, and
        the scale of a reward follows from both parts
        (:func:`~headstart.model.own_noise.reward_scale`).
        """
        width, dof = belief.width(rows), belief.degrees_of_freedom()
        mean = self.sign * belief.predict(rows)
        scale, degrees = reward_scale(width, *dof) if of_reward else (width, dof[0])
        half = t_quantile(level, degrees) * belief.noise * scale
        return mean, mean - half, mean + half

    def check_noise(self, noise: object) -> float | None:
        """R as it was given; ``None`` if it is to be estimated, or follows from the model."""
        if isinstance(noise, str):
            checks.one_of("noise", noise, ("auto",))
            return None
        if self.fixed_noise is not None:
            raise checks.invalid("noise", f"'auto' with reward={self.name!r}", noise)
        return checks.positive("noise", noise)

    def check_rule(self, rule: Rule) -> None:
        """Refuse a rule that does not fit these rewards; here none."""

    def arguments(self, noise: float | None) -> str:
        """The arguments of a bandit that say what rewards are."""
        parts = [f"noise={'auto' if noise is None else noise!r}"]
        if self.fixed_noise is not None:
            parts = [f"reward={self.name!r}"]
        if self.minimize:
            parts.append("minimize=True")
        return ", ".join(parts)

    @property
    def quantity(self) -> str:
        """What the linear model is of, in the user's units."""
        return "expected cost" if self.minimize else "expected reward"

    def describe(self) -> str:
        """What the rewards are, for a report; empty for numbers to be maximized."""
        return "numbers, to be minimized (minimize=True)" if self.minimize else ""


class Binary(RewardModel):
    """0 or 1: P(r = 1) = σ(xᵀθ) (:mod:`headstart.model.logistic`).

    A cost of 1 is learned as a reward of 0.
    """

    name = "binary"
    fixed_noise = 1.0
    needs_belief = True  # a reward is expanded around it

    def check_rule(self, rule: Rule) -> None:
        """The radii and scales of the analysis are those of linear rewards."""
        if rule.analysis_setting is not None:
            name, value = rule.analysis_setting
            want = "a number with reward='binary': the analysis is of linear rewards"
            raise checks.invalid(name, want, value)

    @property
    def quantity(self) -> str:
        """Log-odds."""
        return f"log-odds of a {'cost' if self.minimize else 'reward'} of 1"

    def read(self, reward: Any) -> float:
        """0 or 1, or a boolean."""
        number = check_reward(reward)
        if number not in (0.0, 1.0):
            raise checks.invalid("reward", WANT_BINARY, reward)
        return 1.0 - number if self.minimize else number

    def read_many(self, rewards: Array) -> Array:
        """Every one 0 or 1."""
        other = (rewards != 0.0) & (rewards != 1.0)
        if other.any():
            raise checks.invalid("rewards", WANT_BINARY, float(rewards[other][0]))
        return 1.0 - rewards if self.minimize else rewards

    def linearize(self, belief: Any, x: Array, r: Any, weight: float = 1.0) -> tuple[Array, Any]:
        """One Gaussian observation of the log-odds."""
        return linearize(belief, x, r, weight)

    def working_reward(self, index: float, reward: float) -> tuple[float, float]:
        """Log-odds to first order around their value: e + (r − p)/w with w = p (1 − p)."""
        chance = float(sigmoid(index))
        weight = max(chance * (1.0 - chance), MIN_WEIGHT)
        return index + (reward - chance) / weight, weight

    def score(self, index: Any) -> Any:
        """σ of an index in log-odds: a probability."""
        return sigmoid(self.sign * index)

    def interval(self, belief: BaseBelief, rows: Array, level: float, of_reward: bool) -> Interval:
        """E σ(xᵀθ), with the quantiles of σ(xᵀθ); or those of a reward, which are 0 or 1."""
        odds, deviation = self.sign * belief.predict(rows), belief.width(rows)
        mean = expected_probability(odds, deviation)
        if of_reward:
            tail = (1.0 - level) / 2.0
            return mean, (1.0 - mean <= tail).astype(float), (mean > tail).astype(float)
        half = normal_quantile(level) * deviation
        return mean, sigmoid(odds - half), sigmoid(odds + half)

    def describe(self) -> str:
        """That the linear model is one of log-odds."""
        text = "0 or 1, by a logistic model"
        return f"{text}, to be minimized (minimize=True)" if self.minimize else text


#: Reward models by name.
REWARD_MODELS: dict[str, type[RewardModel]] = {kind.name: kind for kind in (RewardModel, Binary)}


def reward_model(reward: object, minimize: object) -> RewardModel:
    """The reward model of a name."""
    kind = REWARD_MODELS[checks.one_of("reward", reward, REWARD_MODELS)]
    return kind(checks.flag("minimize", minimize))
