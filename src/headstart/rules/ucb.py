"""Upper confidence bounds: the arm with the largest optimistic estimate."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.kernels.switch import loops
from headstart.model.base import BaseBelief
from headstart.records import Array
from headstart.rules.base import LoopForm
from headstart.rules.indexed import (
    Indexed,
    arrays_for_loops,
    check_confidence,
    delta_or_default,
)
from headstart.rules.ties import DOUBLE, Rng
from headstart.theory import radius_with_bias


@dataclasses.dataclass(frozen=True, repr=False)
class UCB(Indexed):
    """Optimism: the arm with the largest xᵀθ̂ + γ‖x‖_{B⁻¹}.

    Parameters
    ----------
    radius : float or {"theory", "paper"}, default 1
        The exploration multiplier: a number is a multiple of the noise, γ = number × R.
        ``"theory"`` is the confidence radius of the corrected analysis::

            γ = R √(log det B − log det B₀ + 2 log(1/δ)) + bias

        with the bias that the prior states. With probability 1 − δ, no arm of any round of a task
        has abs(xᵀ(θ̂ − θ*)) > γ ‖x‖_{B⁻¹}, if the noise is R-sub-Gaussian and ‖θ*‖ is no larger
        than the transfer's ``bound``. It is refused where this cannot be guaranteed: for a prior
        that states no bound (:class:`~headstart.transfer.Gaussian`,
        :class:`~headstart.transfer.EmpiricalBayes`, mixtures, the Bayes oracle), and a bandit that
        estimates R or has a ``half_life``. ``"paper"`` is Algorithm 2 as printed, without the
        square root and without R.
    delta : float, optional
        δ, the probability with which the theory's interval may fail; 1/``horizon`` by default.
    horizon : int, default 250
        n, the number of rounds a task is expected to last.
    explore : float, default 0
        The probability of a uniformly random choice.
    probability : (float, float), optional
        A floor and a ceiling for every arm's probability, such as ``(0.1, 0.9)``. The arm is drawn
        from the nearest distribution within these bounds, so that its propensity is exact.

    See Also
    --------
    headstart.theory.confidence_radius : the formulas of the two named radii.

    Examples
    --------
    >>> import headstart as hs
    >>> belief = hs.Belief.start(hs.Prior.isotropic(2)).learn([1.0, 0.0], 0.2)
    >>> UCB().choose(belief, np.eye(2), np.random.default_rng(0)).arm  # the arm not tried yet
    1
    """

    radius: float | str = 1.0
    delta: float | None = None
    horizon: int = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.radius, str):
            checks.one_of("radius", self.radius, ("theory", "paper"))
        else:
            checks.non_negative("radius", self.radius)
        check_confidence(self.delta, self.horizon)

    def index(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Array:
        """xᵀθ̂ + γ‖x‖_{B⁻¹}."""
        gamma, index = self.gamma(belief), belief.width(contexts)
        if type(gamma) is float and index.dtype is DOUBLE:
            index = index.dot(gamma)  # for a number it is faster than the operator
        else:
            index *= gamma[..., None] if isinstance(gamma, np.ndarray) else gamma
        index += belief.predict(contexts)
        return index

    @property
    def stackable(self) -> bool:
        """The radii of an analysis need the belief's information and prior, which no stack has."""
        return not isinstance(self.radius, str)

    @property
    def index_is_fixed(self) -> bool:
        """It draws nothing."""
        return True

    def compiled(self, belief: BaseBelief, contexts: Array, rng: Rng) -> Any:
        """By compiled loops."""
        arrays = arrays_for_loops(belief, contexts)
        if arrays is None:
            return None
        gamma, scores = self.gamma(belief), np.empty(len(contexts))
        return *loops().choose_ucb(contexts, *arrays, gamma, scores), scores

    def loop_form(self) -> LoopForm | None:
        """A γ that is a multiple of R, unless some choices are uniformly random."""
        return self.loop_form_with("ucb", self.radius)

    def check_bandit(
        self, prior: Any, transfer: object, noise: float | None, half_life: float | None
    ) -> None:
        """A radius of an analysis needs a bound on the bias; that of the theory also needs R."""
        if not isinstance(self.radius, str):
            return
        stated_bias(self.radius, prior, transfer)
        if self.radius == "theory" and noise is None:
            want = "a number with the theory radius, which rests on R"
            raise checks.invalid("noise", want, "auto")
        if self.radius == "theory" and half_life is not None:
            raise checks.invalid("half_life", "None with the theory radius", half_life)

    @property
    def analysis_setting(self) -> tuple[str, str] | None:
        """A named radius."""
        return ("radius", self.radius) if isinstance(self.radius, str) else None

    def gamma(self, belief: BaseBelief) -> Any:
        """γ, in rewards' units."""
        if not isinstance(self.radius, str):
            return self.radius * belief.noise
        information = getattr(belief, "information", None)
        if information is None:
            raise InputError(
                f"radius must be a number for a {type(belief).__name__}, which states no bias; "
                f"got {self.radius!r}"
            )
        bias = stated_bias(self.radius, belief.prior)
        delta = delta_or_default(self.delta, self.horizon)
        form = "algorithm" if self.radius == "paper" else "corrected"
        return radius_with_bias(information, delta=delta, bias=bias, noise=belief.noise, form=form)


def stated_bias(radius: str, prior: Any, of: object = None) -> Any:
    """The bias that a prior states for a radius; refused if there is none. ``of`` is its source.

    >>> import headstart as hs
    >>> stated_bias("theory", hs.Prior.isotropic(2, bias=0.5))
    0.5
    """
    bias = getattr(prior, "printed_bias" if radius == "paper" else "bias", math.inf)
    if not np.isfinite(bias).all():
        which = "a prior that" if of is None else f"{of!r}, which"
        want = f"a number with {which} states no bound on how far θ may be from the prior's mean"
        raise checks.invalid("radius", want, radius)
    return bias
