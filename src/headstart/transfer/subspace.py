"""A shared affine subspace: the paper's transfer (P-LinUCB, P-TS; Bilaj et al. 2024)."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar

import numpy as np

from headstart import checks
from headstart.arrays import array_namespace, float_if_scalar, matvec, norm
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array, Record
from headstart.subspace import CCIPCA, PCA, Components, ExactPCA, gated_log_gap, log_gap, raw_gap
from headstart.theory import (
    bias_term,
    estimation_ridge,
    inner_regularisation,
    outer_regularisation,
    projection_error,
)
from headstart.transfer.base import TaskStructure, Transfer, check_number_or_name
from headstart.transfer.estimates import Estimates, inverse_sqrt, plug_in_lambda, prior_of

LAMBDAS = ("plug-in", "theory", "paper")
RANKS = ("log-gap", "ungated", "paper")
PCAS = ("corrected", "exact", "ccipca", "paper")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubspaceState(Record):
    """The tasks' estimates, the state of the PCA, and the smallest eigenvalue of any gram + λI."""

    estimates: Estimates
    pca: Any
    smallest: Any


@dataclasses.dataclass(frozen=True, repr=False)
class Subspace(Transfer):
    """θ lies near an affine subspace, inside which most of the exploration takes place.

    With P̂ the projection onto the top p principal components of the tasks, P̂⊥ = I − P̂,
    and θ̄ their mean, a new task starts from::

        mean  P̂⊥θ̄        root  λ₁^-½ P̂⊥ + λ₂^-½ P̂

    Parameters
    ----------
    rank : int or str, default "log-gap"
        p: a number; ``"log-gap"`` for the largest ratio of successive eigenvalues, unless noise
        alone would give one as large (then p = d: no projection); ``"ungated"`` for the same
        without that check; ``"paper"`` for the largest difference, argmax σ_p − σ_{p+1}.
    pca : str or PCA, default "corrected"
        ``"corrected"``: components of the tasks' covariance, that of their estimates less what
        estimation noise adds to it. ``"exact"``, ``"ccipca"`` and ``"paper"`` (CCIPCA as printed):
        of the estimates themselves, where a direction that contexts hardly show is mostly noise and
        can displace one that tasks do differ in. Or a :class:`~headstart.subspace.PCA` of your own.
    shrink : str, default "zero"
        Inside the plane, shrink a task to ``"zero"`` (the paper's form) or to the ``"mean"``.
    lam1, lam2 : float or str, default "plug-in"
        λ₁ (outside the plane) and λ₂ (inside): numbers; ``"plug-in"`` for R² over the variance per
        dimension that past tasks show there, corrected for estimation noise; ``"theory"`` for
        R²/Y and R²/V²; ``"paper"`` for 1/√Y and 1/V² as printed. Y is a worst case in the millions,
        which makes λ₁ tiny: a warning says so.
    warmup : int, optional
        How many tasks must have finished before a subspace is used; until then P̂ = I (LinUCB with
        λ₂). The dimension unless given.
    ridge : float, optional
        The λ of the tasks' estimates; 1/(nV²) unless given.
    horizon : int, default 250
        n, the number of rounds a task is expected to last.
    bound : float, default 1.0
        V, a bound on ‖θ*‖, on which the theory radius rests.
    residual : float, optional
        W, a bound on ‖P̂⊥(θ* − θ̄)‖, for the theory radius; V + ‖P̂⊥θ̄‖, the most that it can be,
        unless given.
    min_rounds : int, optional
        Tasks with fewer rounds have no usable estimate and do not count; the dimension unless
        given.

    Examples
    --------
    Three tasks on a line through (0, 1), and the prior of a fourth:

    >>> transfer = Subspace(rank=1, lam1=100.0, lam2=1.0, warmup=3, ridge=1e-9)
    >>> state = transfer.init(dim=2)
    >>> for slope in (-1.0, 0.5, 2.0):
    ...     state = transfer.fold(state, Evidence.of([[1.0, 0.0], [0.0, 1.0]], [slope, 1.0]))
    >>> transfer.prior(state).mean.round(6)
    array([0., 1.])
    >>> transfer.prior(state).root.round(6)
    array([[1. , 0. ],
           [0. , 0.1]])
    """

    fixed_layout: ClassVar[bool] = True

    rank: int | str = "log-gap"
    pca: str | PCA = "corrected"
    shrink: str = "zero"
    lam1: float | str = "plug-in"
    lam2: float | str = "plug-in"
    warmup: int | None = None
    ridge: float | None = None
    horizon: int = 250
    bound: float = 1.0
    residual: float | None = None
    min_rounds: int | None = None

    batched = True

    def __post_init__(self) -> None:
        if isinstance(self.rank, str):
            checks.one_of("rank", self.rank, RANKS)
        else:
            checks.integer("rank", self.rank)
        if not isinstance(self.pca, PCA):
            checks.one_of("pca", self.pca, PCAS)
        checks.one_of("shrink", self.shrink, ("zero", "mean"))
        check_number_or_name("lam1", self.lam1, LAMBDAS)
        check_number_or_name("lam2", self.lam2, LAMBDAS)
        for name in ("warmup", "min_rounds"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name))
        for name in ("ridge", "residual"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        checks.integer("horizon", self.horizon, 2)
        checks.positive("bound", self.bound)
        if self.uses_bound:
            warnings.warn(
                f"lam1={self.lam1!r} takes λ₁ from the bound Y, which is in the millions at "
                f"ordinary settings: directions outside the plane will hardly be shrunk. Give "
                f"lam1 as a number, or use 'plug-in'.",
                stacklevel=3,
            )

    @property
    def uses_bound(self) -> bool:
        """Whether λ₁ comes from the bound Y."""
        return self.lam1 in ("theory", "paper")

    @property
    def traceable(self) -> bool:
        """With a PCA that is; the bound Y is computed task by task."""
        return self.pca_method().traceable and not self.uses_bound

    @property
    def reversible(self) -> bool:
        """Exact PCA can take a task back; CCIPCA and a running minimum cannot."""
        return self.pca_method().reversible and not self.uses_bound

    def pca_method(self) -> PCA:
        """The PCA in use."""
        if isinstance(self.pca, PCA):
            return self.pca
        if self.pca in ("corrected", "exact"):
            return ExactPCA()
        form = "paper" if self.pca == "paper" else "corrected"
        return CCIPCA(begin=None if self.warmup is None else max(self.warmup, 2), form=form)

    def init(
        self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()
    ) -> SubspaceState:
        """The state before any task."""
        dim = checks.dimension(dim)
        if not isinstance(self.rank, str):
            checks.integer("rank", self.rank, 0, dim)
        smallest = np.full(batch, np.inf) if batch else float("inf")
        return SubspaceState.unchecked(
            Estimates.start(dim, noise, batch), self.pca_method().init(dim, batch), smallest
        )

    def fold(self, state: SubspaceState, evidence: Evidence, weight: float = 1.0) -> SubspaceState:
        """Add a task's ridge estimate."""
        dim = state.estimates.dim
        least = dim if self.min_rounds is None else self.min_rounds
        ridge = self.estimate_ridge()
        estimates, theta, used = state.estimates.fold(
            evidence, weight, ridge=ridge, min_rounds=least
        )
        pca = self.pca_method().update(state.pca, theta, used)
        smallest = state.smallest
        if self.uses_bound:
            lowest = np.linalg.eigvalsh(evidence.gram)[..., 0] + ridge
            lower = np.where(np.asarray(used) > 0, np.minimum(smallest, lowest), smallest)
            smallest = float_if_scalar(lower)
        return SubspaceState.unchecked(estimates, pca, smallest)

    @property
    def additive(self) -> bool:
        """With exact PCA, sums add up."""
        return isinstance(self.pca_method(), ExactPCA)

    def summarize(self, evidence: Evidence, noise: float | None = None) -> SubspaceState:
        """Many tasks at once."""
        least = evidence.dim if self.min_rounds is None else self.min_rounds
        ridge = self.estimate_ridge()
        estimates, _, used = Estimates.of(evidence, noise, ridge=ridge, min_rounds=least)
        smallest = float("inf")
        if self.uses_bound and used.any():
            smallest = float(np.linalg.eigvalsh(evidence.gram)[used > 0, 0].min()) + ridge
        # Exact PCA keeps the very moments that the estimates have.
        return SubspaceState.unchecked(estimates, estimates.moments, smallest)

    def merge(self, left: SubspaceState, right: SubspaceState) -> SubspaceState:
        """The sums of both."""
        return SubspaceState.unchecked(
            left.estimates.merge(right.estimates),
            left.pca.merge(right.pca),
            min(left.smallest, right.smallest),
        )

    def prior(self, state: SubspaceState) -> Prior:
        """N(P̂⊥θ̄, R² (λ₁⁻¹P̂⊥ + λ₂⁻¹P̂)), with the bias √(λ₁W² + λ₂V²) of the theory.

        Where tasks are shrunk to the mean inside the plane too, V + ‖P̂θ̄‖ takes the place of V.
        """
        estimates, dim = state.estimates, state.estimates.dim
        xp = array_namespace(estimates.mean)
        noise = estimates.noise.value
        components, rank, learning = self.structure(state)
        inside = components.projection(rank)
        outside = xp.eye(dim) - inside
        lam1, lam2 = self.lambdas(state, components, rank, inside, outside)
        towards = outside
        if self.shrink == "mean":
            towards = xp.where(learning[..., None, None], xp.eye(dim), outside)
        mean = matvec(towards, estimates.mean)
        root = inverse_sqrt(lam1) * outside + inverse_sqrt(lam2) * inside
        some_outside, some_inside = rank < dim, rank > 0
        away = self.bound + norm(matvec(outside, mean)) if self.residual is None else self.residual
        w, v = some_outside * away, some_inside * self.bound
        off = some_inside * (self.bound + norm(matvec(inside, mean)))
        # The printed form needs λ₂ even where nothing lies inside; √λ₁ W is what it tends to.
        inner = xp.where(some_inside, lam2, lam1)
        return prior_of(
            mean,
            root,
            noise,
            bias=bias_term(off, w, lam1, lam2),
            printed_bias=bias_term(v, some_outside * 2.0 * self.bound, lam1, inner, "printed"),
        )

    def structure(self, state: SubspaceState) -> tuple[Components, Any, Any]:
        """The components, the rank (per batch element), and whether the warm-up is over."""
        xp = array_namespace(state.estimates.mean)
        count, dim = xp.asarray(state.estimates.count), state.estimates.dim
        corrected = self.pca == "corrected"
        components = (
            state.estimates.components() if corrected else self.pca_method().components(state.pca)
        )
        if not isinstance(self.rank, str):
            rank = xp.full(count.shape, int(self.rank))
        elif self.rank == "paper":
            rank = raw_gap(components.values)
        elif self.rank == "ungated":
            rank = log_gap(components.values, count)
        else:
            rank = gated_log_gap(components.values, count)
        learning = count >= (dim if self.warmup is None else self.warmup)
        return components, xp.where(learning, rank, dim), learning

    def lambdas(
        self, state: SubspaceState, components: Components, rank: Any, inside: Array, outside: Array
    ) -> tuple[Any, Any]:
        """λ₁ and λ₂."""
        estimates = state.estimates
        xp = array_namespace(estimates.mean)
        noise = estimates.noise.value
        lam1: Any = self.lam1
        lam2: Any = self.lam2
        if lam2 == "plug-in":
            to_mean = self.shrink == "mean"
            spread = estimates.variance(inside) if to_mean else estimates.second_moment(inside)
            early = xp.asarray(estimates.count) < 2
            spread = xp.where(early, estimates.second_moment(inside), spread)
            lam2 = plug_in_lambda(noise, spread)
        elif isinstance(lam2, str):
            lam2 = inner_regularisation(self.bound, noise, printed=lam2 == "paper")
        if lam1 == "plug-in":
            lam1 = plug_in_lambda(noise, estimates.variance(outside, fitted=rank))
        elif isinstance(lam1, str):
            worst = self.error_bound(state, components, rank, outside)
            lam1 = outer_regularisation(worst, noise, printed=lam1 == "paper")
        return lam1, lam2

    def error_bound(
        self, state: SubspaceState, components: Components, rank: Any, outside: Array
    ) -> Array:
        """The bound Y, per batch element."""
        batch, dim = state.estimates.batch, state.estimates.dim
        noise = np.broadcast_to(state.estimates.noise.value, batch)
        variance = np.broadcast_to(state.estimates.variance(outside), batch) * (dim - rank)
        count = np.broadcast_to(state.estimates.count, batch)
        smallest = np.broadcast_to(state.smallest, batch)
        worst = np.empty(batch)
        for at in np.ndindex(batch):
            p = int(rank[at])
            values = np.append(components.values[at], 0.0)
            worst[at] = projection_error(
                dim=dim,
                rank=p,
                tasks=float(count[at]),
                horizon=self.horizon,
                bound=self.bound,
                variance=float(variance[at]),
                gap=float(values[p - 1] - values[p]) if p > 0 else float(values[0]),
                smallest=min(float(smallest[at]), 1e300),
                noise=float(noise[at]),
                printed=self.lam1 == "paper",
            )
        return worst

    def estimate_ridge(self) -> float:
        """The λ of the estimates: given, or 1/(nV²)."""
        return estimation_ridge(self.horizon, self.bound) if self.ridge is None else self.ridge

    def residual_projection(self, state: SubspaceState) -> tuple[Array, Array, Any]:
        """P̂⊥ = I − P̂ as learned, once the warm-up is over."""
        components, rank, learning = self.structure(state)
        outside = np.eye(state.estimates.dim) - components.projection(rank)
        return outside, state.estimates.mean, learning

    def explain(self, state: SubspaceState) -> TaskStructure:
        """Rank, eigenvalues of the covariance in use, and the share the plane explains."""
        components, rank, learning = self.structure(state)
        if not learning:
            need = state.estimates.dim if self.warmup is None else self.warmup
            return TaskStructure(
                eigenvalues=components.values,
                note=f"{state.estimates.count:g} of the {need} tasks needed before a subspace "
                f"is looked for",
            )
        total = float(components.values.sum())
        p = int(rank)
        explained = float(components.values[:p].sum()) / total if total > 0 else None
        note = "" if p < state.estimates.dim else "no subspace stands out: nothing is projected"
        return TaskStructure(rank=p, eigenvalues=components.values, explained=explained, note=note)
