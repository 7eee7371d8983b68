"""No transfer: every task starts from the same isotropic prior (LinUCB, LinTS)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from headstart import checks
from headstart.arrays import array_namespace
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.theory import inner_regularisation
from headstart.transfer.base import Transfer, check_number_or_name
from headstart.transfer.estimates import Estimates, isotropic_root, plug_in_lambda, prior_of


@dataclasses.dataclass(frozen=True, repr=False)
class Independent(Transfer):
    """θ ~ N(0, (R²/λ) I) for every task.

    Parameters
    ----------
    lam : float or str, default 1.0
        λ: a number; ``"theory"`` for R²/V²; or ``"plug-in"`` for R² over the tasks' mean square per
        dimension, the one thing then learned from past tasks (1 until there is one).
    bound : float, default 1.0
        V, a bound on ‖θ*‖, for the theory.
    ridge : float, default 0.004
        The λ of the past tasks' estimates that ``"plug-in"`` looks at.

    Examples
    --------
    >>> transfer = Independent(lam=4.0)
    >>> transfer.prior(transfer.init(dim=2, noise=0.1)).root
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    fixed_layout: ClassVar[bool] = True

    lam: float | str = 1.0
    bound: float = 1.0
    ridge: float = 0.004

    batched = True
    traceable = True
    reversible = True
    additive = True

    def __post_init__(self) -> None:
        check_number_or_name("lam", self.lam, ("theory", "plug-in"))
        checks.positive("bound", self.bound)
        checks.positive("ridge", self.ridge)

    def prior_is_known(self, noise: float | None) -> bool:
        """With the noise and λ given, nothing is left to learn."""
        return noise is not None and self.lam != "plug-in"

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> Estimates:
        """The state before any task."""
        return Estimates.start(dim, noise, batch)

    def fold(self, state: Estimates, evidence: Evidence, weight: float = 1.0) -> Estimates:
        """Only the noise scale and the tasks' mean square are remembered."""
        return state.fold(evidence, weight, ridge=self.ridge, min_rounds=state.dim)[0]

    def summarize(self, evidence: Evidence, noise: float | None = None) -> Estimates:
        """Many tasks at once."""
        return Estimates.of(evidence, noise, ridge=self.ridge, min_rounds=evidence.dim)[0]

    def prior(self, state: Estimates) -> Prior:
        """N(0, (R²/λ) I); the bias is √λ V."""
        xp = array_namespace(state.mean)
        noise = state.noise.value
        lam: Any = self.lam
        if self.lam == "theory":
            lam = inner_regularisation(self.bound, noise)
        elif self.lam == "plug-in":
            lam = plug_in_lambda(noise, state.second_moment(xp.eye(state.dim)))
        mean = xp.zeros((*state.batch, state.dim))
        root = isotropic_root(lam, state.dim, state.batch)
        return prior_of(mean, root, noise, bias=xp.sqrt(lam) * self.bound)
