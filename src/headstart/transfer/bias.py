"""A shared mean: tasks scatter around one vector (B-OFUL, Cella, Lazaric and Pontil 2020)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from headstart import checks
from headstart.arrays import array_namespace, norm
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array, Record
from headstart.theory import estimation_ridge
from headstart.transfer.base import TaskStructure, Transfer, check_number_or_name
from headstart.transfer.estimates import Estimates, isotropic_root, plug_in_lambda, prior_of


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class BiasState(Record):
    """The tasks' estimates, and their pooled gram and moment."""

    estimates: Estimates
    gram: Array
    moment: Array


@dataclasses.dataclass(frozen=True, repr=False)
class Bias(Transfer):
    """θ ~ N(h, (R²/λ) I) with h learned from past tasks.

    Parameters
    ----------
    method : str, default "average"
        ``"average"``: h is the mean of the tasks' ridge estimates. ``"pooled"``: h is one ridge
        regression over all tasks' rounds, which long tasks dominate.
    lam : float or str, default "plug-in"
        λ: a number; ``"plug-in"`` for R²d/Var, Var the tasks' variance around h; or ``"theory"``
        for R²/(n·Var), as Cella's analysis has it.
    ridge : float, optional
        The λ of the estimates that h is made from; 1/(nV²) unless given.
    horizon : int, default 250
        n, the number of rounds a task is expected to last.
    bound : float, default 1.0
        V, a bound on ‖θ*‖, on which the theory radius rests.
    min_rounds : int, default 1
        Tasks with fewer rounds do not count.

    Examples
    --------
    >>> transfer = Bias(lam=1.0, ridge=1.0)
    >>> state = transfer.init(dim=2)
    >>> state = transfer.fold(state, Evidence.of([[1.0, 0.0]], [4.0]))
    >>> transfer.prior(state).mean
    array([2., 0.])
    """

    fixed_layout: ClassVar[bool] = True

    method: str = "average"
    lam: float | str = "plug-in"
    ridge: float | None = None
    horizon: int = 250
    bound: float = 1.0
    min_rounds: int = 1

    batched = True
    traceable = True
    reversible = True
    additive = True

    def __post_init__(self) -> None:
        checks.one_of("method", self.method, ("average", "pooled"))
        check_number_or_name("lam", self.lam, ("plug-in", "theory"))
        if self.ridge is not None:
            checks.positive("ridge", self.ridge)
        checks.integer("horizon", self.horizon, 2)
        checks.positive("bound", self.bound)
        checks.integer("min_rounds", self.min_rounds, 1)

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> BiasState:
        """The state before any task."""
        estimates = Estimates.start(dim, noise, batch)
        return BiasState.unchecked(estimates, np.zeros((*batch, dim, dim)), np.zeros((*batch, dim)))

    def fold(self, state: BiasState, evidence: Evidence, weight: float = 1.0) -> BiasState:
        """Add a task's estimate, and its sums to the pool."""
        estimates, _, used = state.estimates.fold(
            evidence, weight, ridge=self.estimate_ridge(), min_rounds=self.min_rounds
        )
        share = array_namespace(evidence.gram).asarray(used)
        gram = state.gram + share[..., None, None] * evidence.gram
        return BiasState.unchecked(
            estimates, gram, state.moment + share[..., None] * evidence.moment
        )

    def summarize(self, evidence: Evidence, noise: float | None = None) -> BiasState:
        """Many tasks at once."""
        estimates, _, used = Estimates.of(
            evidence, noise, ridge=self.estimate_ridge(), min_rounds=self.min_rounds
        )
        gram = np.einsum("n,nij->ij", used, evidence.gram)
        return BiasState.unchecked(estimates, gram, used @ evidence.moment)

    def merge(self, left: BiasState, right: BiasState) -> BiasState:
        """The sums of both."""
        return BiasState.unchecked(
            left.estimates.merge(right.estimates),
            left.gram + right.gram,
            left.moment + right.moment,
        )

    def prior(self, state: BiasState) -> Prior:
        """N(h, (R²/λ) I); the bias is √λ (V + ‖h‖), the most that √λ ‖θ* − h‖ can be."""
        estimates, dim = state.estimates, state.estimates.dim
        xp = array_namespace(state.gram)
        noise, eye = estimates.noise.value, xp.eye(dim)
        # One task has no spread: until there are two, only its size is used.
        settled = xp.asarray(estimates.count) >= (2 if isinstance(self.lam, str) else 1)
        mean = xp.where(settled[..., None], self.centre(state), 0.0)
        variance = xp.where(settled, estimates.variance(eye), estimates.second_moment(eye))
        lam: Any = self.lam
        if self.lam == "plug-in":
            lam = plug_in_lambda(noise, variance)
        elif self.lam == "theory":
            lam = plug_in_lambda(noise, variance * dim * self.horizon)
        root = isotropic_root(lam, dim, estimates.batch)
        return prior_of(mean, root, noise, bias=xp.sqrt(lam) * (self.bound + norm(mean)))

    def centre(self, state: BiasState) -> Array:
        """h, by either method."""
        if self.method == "average":
            return state.estimates.mean
        xp = array_namespace(state.gram)
        regularised = state.gram + self.estimate_ridge() * xp.eye(state.estimates.dim)
        return xp.linalg.solve(regularised, state.moment[..., None])[..., 0]

    def estimate_ridge(self) -> float:
        """The λ of the estimates: given, or 1/(nV²)."""
        return estimation_ridge(self.horizon, self.bound) if self.ridge is None else self.ridge

    def residual_projection(self, state: BiasState) -> tuple[Array, Array, Any]:
        """There is no plane: P̂⊥ is I."""
        estimates = state.estimates
        eye = np.broadcast_to(np.eye(estimates.dim), (*estimates.batch, *2 * (estimates.dim,)))
        return eye, estimates.mean, np.asarray(estimates.count) > 0

    def explain(self, state: BiasState) -> TaskStructure:
        """How far the tasks' mean is from zero, next to their spread."""
        eye = np.eye(state.estimates.dim)
        square = float(state.estimates.second_moment(eye))
        variance = float(state.estimates.variance(eye))
        if state.estimates.count < 2 or square <= 0:
            return TaskStructure(note="too few tasks to distinguish their mean from their spread")
        share = max(0.0, 1.0 - variance / square)
        return TaskStructure(note=f"a shared mean explains {share:.0%} of the tasks' mean square")
