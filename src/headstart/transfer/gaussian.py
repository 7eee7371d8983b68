"""A learned Gaussian prior from unbiased estimates (M-TS; Peleg, Pearl and Meir 2022)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from headstart import checks
from headstart.arrays import array_namespace, trace, transpose
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.small_matrices import eigh
from headstart.transfer.base import TaskStructure, Transfer, checked_evidence
from headstart.transfer.estimates import Estimates, isotropic_root, prior_of


@dataclasses.dataclass(frozen=True, repr=False)
class Gaussian(Transfer):
    """θ ~ N(μ̂, Σ̂), both from the tasks' estimates.

    Each task begins with forced, uniformly random rounds (:class:`~headstart.rules.Forced`), and
    its θ is estimated by least squares from those alone, without bias from choosing. With D_i
    the contexts of those rounds::

        Σ̂ = sample covariance − R² · mean (DᵀD)⁻¹        (noise correction; directions that a
                                                          task never saw count as average)
        eigenvalues of Σ̂ floored at ``floor`` × their mean
        Σ̂ ← Σ̂ + widen · (tr Σ̂ / d) √(d/t) · I             (for few tasks)

    Parameters
    ----------
    forced : bool, default True
        Estimate from the forced rounds alone. ``False`` is the control: ridge estimates from all
        rounds, no forcing needed.
    estimate : str, default "least-squares"
        ``"least-squares"`` (by pseudo-inverse, so a singular DᵀD is no error) or ``"ridge"``.
    ridge : float, default 0.004
        The λ of ridge estimates.
    widen, floor : float, defaults 0.1 and 0.001
        As above.
    warmup : int, optional
        How many tasks must have finished before the prior is learned; until then it is
        N(0, (R²/λ) I). The dimension unless given.
    lam : float, default 1.0
        That λ.
    """

    fixed_layout: ClassVar[bool] = True

    forced: bool = True
    estimate: str = "least-squares"
    ridge: float = 0.004
    widen: float = 0.1
    floor: float = 1e-3
    warmup: int | None = None
    lam: float = 1.0

    batched = True
    traceable = True
    reversible = True

    def __post_init__(self) -> None:
        checks.flag("forced", self.forced)
        checks.one_of("estimate", self.estimate, ("least-squares", "ridge"))
        checks.positive("ridge", self.ridge)
        checks.non_negative("widen", self.widen)
        checks.fraction("floor", self.floor, open_ends=True)
        if self.warmup is not None:
            checks.integer("warmup", self.warmup, 2)
        checks.positive("lam", self.lam)

    @property
    def keeps_forced(self) -> bool:
        """Forced rounds apart, unless this is the control."""
        return self.forced

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> Estimates:
        """The state before any task."""
        return Estimates.start(dim, noise, batch)

    def fold(self, state: Estimates, evidence: Evidence, weight: float = 1.0) -> Estimates:
        """Add a task's estimate and its error matrix."""
        evidence = checked_evidence(evidence, state.moments.mean.shape)
        source = None
        if self.forced:
            source = evidence.forced
            if source is None:
                raise InputError(
                    "evidence must keep its forced rounds apart (Evidence.zero(dim, forced=True)) "
                    "for Gaussian(forced=True); got evidence that does not"
                )
        exact = self.forced and self.estimate == "least-squares"
        ridge = 0.0 if exact else self.ridge
        return state.fold(evidence, weight, ridge=ridge, estimate_from=source)[0]

    @property
    def additive(self) -> bool:
        """Sums add up, where no rounds are kept apart."""
        return not self.forced

    def summarize(self, evidence: Evidence, noise: float | None = None) -> Estimates:
        """Many tasks at once."""
        return Estimates.of(evidence, noise, ridge=self.ridge)[0]

    def prior(self, state: Estimates) -> Prior:
        """N(μ̂, Σ̂), which states no bound: a Gaussian does not bound θ."""
        xp = array_namespace(state.mean)
        dim = state.dim
        noise = xp.asarray(state.noise.value)
        ready = self.ready(state)
        variances, vectors = self.spread(state)
        scaled = vectors * (xp.sqrt(variances) / noise[..., None])[..., None, :]
        root = scaled @ transpose(vectors)
        start = isotropic_root(self.lam, dim, state.batch)
        mean = xp.where(ready[..., None], state.mean, 0.0)
        return prior_of(mean, xp.where(ready[..., None, None], root, start), noise)

    def ready(self, state: Estimates) -> Array:
        """Whether the warm-up is over, and the tasks have shown any spread at all."""
        need = max(state.dim, 2) if self.warmup is None else self.warmup
        spread = trace(state.moments.scatter) > 1e-300
        return (array_namespace(spread).asarray(state.count) >= need) & spread

    def spread(self, state: Estimates) -> tuple[Array, Array]:
        """Σ̂ (corrected, floored, widened) as its eigenvalues, rising, and eigenvectors."""
        dim = state.dim
        xp = array_namespace(state.mean)
        count = xp.maximum(state.count, 2.0)
        sample, error, unseen = state.covariances()
        sample = sample * (count / (count - 1.0))[..., None, None]
        values, vectors = eigh(sample - error + unseen)
        # Where the correction leaves no variance, a small part of the raw variance is kept.
        mean = xp.maximum(values.mean(-1), self.floor * trace(sample) / dim)
        floored = xp.maximum(values, xp.maximum(self.floor * mean, 1e-300)[..., None])
        widened = floored + (self.widen * floored.mean(-1) * xp.sqrt(dim / count))[..., None]
        return widened, vectors

    def explain(self, state: Estimates) -> TaskStructure:
        """Eigenvalues of Σ̂ once there is one."""
        if not self.ready(state):
            need = max(state.dim, 2) if self.warmup is None else self.warmup
            return TaskStructure(
                note=f"{state.count:g} of the {need} tasks needed for a covariance"
            )
        return TaskStructure(eigenvalues=self.spread(state)[0][..., ::-1])
