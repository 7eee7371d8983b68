"""What is believed of a task: its prior, corrected by its evidence.

With B_k = B₀ + Σ x xᵀ, the belief after k rounds is N(θ̂, R² B_k⁻¹). It is kept as the mean θ̂ and a
square root F of the inverse, F Fᵀ = B_k⁻¹. A reward changes both in O(d²), with nothing inverted,
and positive definiteness cannot be lost (Potter's square-root form)::

    u = Fᵀx        s = uᵀu        g = √(1+s)
    θ̂ ← θ̂ + F u (r − xᵀθ̂)/(1+s)
    F ← F − F u uᵀ / (g(1+g))
    log det B ← log det B + log(1+s)

The root is not unique, it depends on the order of the rewards: compare means and F Fᵀ, never F.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.evidence import Evidence
from headstart.prior import Prior
from headstart.records import Array, Record, frozen
from headstart.speed import loops

__all__ = ["Belief"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Belief(Record):
    """A Gaussian belief over θ, or a batch of them along leading axes.

    Make one with :meth:`start` or :meth:`of`; :meth:`learn` gives the next one.

    Attributes
    ----------
    mean
        θ̂, shape ``(..., d)``.
    root
        F with F Fᵀ = B⁻¹, shape ``(..., d, d)``.
    information
        log det B − log det B₀ = Σ log(1+s): what the rounds have taught.
    rounds
        How many rewards it has seen.
    noise
        R, the scale of the rewards' noise.
    prior
        Where it started.

    Examples
    --------
    One round of ridge regression with λ = 1 (so B = [[2, 0], [0, 1]]):

    >>> belief = Belief.start(Prior.isotropic(2)).learn([1.0, 0.0], 3.0)
    >>> belief.mean
    array([1.5, 0. ])
    >>> belief.covariance
    array([[0.5, 0. ],
           [0. , 1. ]])
    """

    mean: Array
    root: Array
    information: Any
    rounds: Any
    noise: Any
    prior: Prior

    @classmethod
    def start(cls, prior: Prior) -> Belief:
        """The belief before any reward."""
        batch = prior.batch
        return unchecked(
            prior.mean,
            prior.root,
            np.zeros(batch) if batch else 0.0,
            np.zeros(batch) if batch else 0.0,
            prior.noise,
            prior,
        ).sealed()

    @classmethod
    def of(cls, prior: Prior, evidence: Evidence) -> Belief:
        """Prior ⊕ evidence, directly: any prior, at any time.

        Equal in mean and covariance to learning the rounds one by one. With
        I + F₀ᵀ gram F₀ = L Lᵀ::

            F = F₀ L⁻ᵀ        θ̂ = θ̂₀ + F Fᵀ (moment − gram θ̂₀)
        """
        if prior.dim != evidence.dim:
            raise InputError(
                f"evidence must have the prior's dimension {prior.dim}; got {evidence.dim}"
            )
        if () not in (prior.batch, evidence.batch) and prior.batch != evidence.batch:
            raise InputError(
                f"evidence must have the prior's batch shape {prior.batch}, or none; "
                f"got {evidence.batch}"
            )
        start = prior.root
        inner = np.eye(prior.dim) + start.swapaxes(-1, -2) @ evidence.gram @ start
        inverse, information = inverse_root((inner + inner.swapaxes(-1, -2)) / 2)
        root = start @ inverse
        surprise = evidence.moment - (evidence.gram @ prior.mean[..., None])[..., 0]
        step = root @ (root.swapaxes(-1, -2) @ surprise[..., None])
        rounds = evidence.rounds
        if information.ndim:
            rounds = np.array(np.broadcast_to(rounds, information.shape))
        return unchecked(
            prior.mean + step[..., 0],
            np.ascontiguousarray(root),
            information if information.ndim else float(information),
            rounds,
            prior.noise,
            prior,
        ).sealed()

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.mean.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: ``()`` for one belief."""
        return self.mean.shape[:-1]

    @property
    def covariance(self) -> Array:
        """F Fᵀ = B⁻¹, the covariance in units of R²."""
        covariance: Array = self.root @ self.root.swapaxes(-1, -2)
        return covariance

    @property
    def log_det(self) -> Any:
        """Log det B."""
        return self.prior.log_det + self.information

    def learn(self, context: npt.ArrayLike, reward: Any) -> Belief:
        """The belief after one more round ``(x, r)``: the square-root update, O(d²)."""
        x = checks.finite_array("context", context, f"an array of shape {self.mean.shape}")
        if x.shape != self.mean.shape:
            raise checks.refuse("context", f"an array of shape {self.mean.shape}", x)
        r = checks.finite_array("reward", reward, f"finite, of shape {self.batch}")
        if r.shape != self.batch:
            raise checks.refuse("reward", f"finite, of shape {self.batch}", reward)
        return self.learn_unchecked(x, r if self.batch else float(r)).sealed()

    def learn_unchecked(self, x: Array, r: Any) -> Belief:
        """:meth:`learn` for arguments that were checked already.

        The new arrays can be written to: whoever hands the belief out must seal it first.
        """
        if self.mean.ndim == 1:
            return self.learn_one(x, r)
        root = self.root
        u = (x[..., None, :] @ root)[..., 0, :]
        s = (u * u).sum(-1)
        g = np.sqrt(1.0 + s)
        gain = (root @ u[..., None])[..., 0]
        error = (r - (x * self.mean).sum(-1)) / (1.0 + s)
        shrink = gain / (g * (1.0 + g))[..., None]
        return unchecked(
            self.mean + gain * error[..., None],
            root - shrink[..., :, None] * u[..., None, :],
            self.information + np.log1p(s),
            self.rounds + 1.0,
            self.noise,
            self.prior,
        )

    def learn_one(self, x: Array, r: float) -> Belief:
        """The update without batch axes, where plain floats are faster than arrays of one."""
        mean, root = self.mean, self.root
        compiled = loops()
        if compiled is not None and x.dtype == mean.dtype == root.dtype == np.float64:
            x, root = np.ascontiguousarray(x), np.ascontiguousarray(root)
            new_mean, new_root = np.empty_like(mean), np.empty_like(root)
            s = compiled.learn(mean, root, x, r, new_mean, new_root)
            mean, root = new_mean, new_root
        else:
            u = x @ root
            s = float(u @ u)
            g = math.sqrt(1.0 + s)
            gain = root @ u
            error = (r - float(x @ mean)) / (1.0 + s)
            mean = mean + gain * error
            gain *= 1.0 / (g * (1.0 + g))
            step = gain[:, None] * u
            root = np.subtract(root, step, out=step)
        information = self.information + math.log1p(s)
        return unchecked(mean, root, information, self.rounds + 1.0, self.noise, self.prior)

    def sealed(self) -> Belief:
        """The same belief, its arrays read-only."""
        for array in (self.mean, self.root, self.information, self.rounds):
            if isinstance(array, np.ndarray):
                frozen(array)
        return self

    def predict(self, contexts: Array) -> Array:
        """The expected reward xᵀθ̂ of each row: ``(..., K, d)`` to ``(..., K)``."""
        if self.mean.ndim == 1:
            scores: Array = contexts @ self.mean
            return scores
        batched: Array = (contexts @ self.mean[..., None])[..., 0]
        return batched

    def width(self, contexts: Array) -> Array:
        """‖x‖_{B⁻¹} = ‖Fᵀx‖ of each row; times R it is the standard deviation of xᵀθ."""
        projected = contexts @ self.root
        square: Array = vecdot(projected, projected)
        return np.sqrt(square, out=square)

    def draw(self, rng: np.random.Generator, scale: Any, size: int | None = None) -> Array:
        """θ̃ = θ̂ + v F z with z ~ N(0, I): one draw, or ``size`` of them along a new first axis.

        ``scale`` is v in rewards' units; v = R draws from the belief itself.
        """
        shape = self.mean.shape if size is None else (size, *self.mean.shape)
        z = rng.standard_normal(shape)
        if not self.batch and size is None:
            single: Array = self.mean + scale * (self.root @ z)
            return single
        step = (self.root @ z[..., None])[..., 0]
        draws: Array = self.mean + np.asarray(scale)[..., None] * step
        return draws


def einsum_vecdot(left: Array, right: Array) -> Array:
    """What NumPy has had a faster word for since version 2."""
    products: Array = np.einsum("...i,...i->...", left, right)
    return products


vecdot: Any = getattr(np, "vecdot", einsum_vecdot)


def inverse_root(matrix: Array) -> tuple[Array, Array]:
    """L⁻ᵀ of a matrix I + (positive semi-definite) = L Lᵀ, and the log of its determinant.

    Where rounding has pushed the smallest eigenvalues of a huge matrix below zero there is no L;
    they are 1 or more, and any other root will do.
    """
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values, 1.0)
        return vectors / np.sqrt(values)[..., None, :], np.log(values).sum(-1)
    inverse = np.linalg.solve(factor, np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape))
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    return inverse.swapaxes(-1, -2), 2.0 * np.log(diagonal).sum(-1)


def unchecked(
    mean: Array, root: Array, information: Any, rounds: Any, noise: Any, prior: Prior
) -> Belief:
    """A belief from fresh arrays that are known to be right."""
    belief: Belief = object.__new__(Belief)
    put(belief, "mean", mean)
    put(belief, "root", root)
    put(belief, "information", information)
    put(belief, "rounds", rounds)
    put(belief, "noise", noise)
    put(belief, "prior", prior)
    return belief


put = object.__setattr__
