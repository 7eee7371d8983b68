"""What is believed of a task: its prior, corrected by its evidence.

With B_k = B₀ + Σ x xᵀ, the belief after k rounds is N(θ̂, R² B_k⁻¹). It is kept as the mean θ̂ and a
square root F of the inverse, F Fᵀ = B_k⁻¹. A reward changes both in O(d²), with nothing inverted,
and positive definiteness cannot be lost (Potter's square-root form)::

    u = Fᵀx        s = uᵀu        g = √(1+s)
    θ̂ ← θ̂ + F u (r − xᵀθ̂)/(1+s)
    F ← F − F u uᵀ / (g(1+g))
    log det B ← log det B + log(1+s)

The root is not unique, it depends on the order of the rewards: compare means and F Fᵀ, never F.

Where the prior leaves room for a noise of the task's own (ν degrees of freedom around R₀), rewards
tell it as they come, in O(1)::

    S ← S + (r − xᵀθ̂)²/(1+s)        R² = (ν R₀² + S)/(ν + k)

The prior covariance of θ does not depend on R, so F₀ = Σ^½/R must follow it. It does so in steps of
a factor of two: F₀/c with c the power of two nearest to R/R₀. A belief whose c no longer fits its R
is *outgrown*, and is built anew from prior and evidence (:meth:`Belief.of`).
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
from headstart.graded import HUGE, graded_posterior
from headstart.prior import ONE_NOISE, Prior
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
    square
        S, what the rewards have told of R.
    scale
        c, what the prior's root was divided by; 0 if the root has lost too many digits.

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
    square: Any
    scale: Any

    @classmethod
    def start(cls, prior: Prior) -> Belief:
        """The belief before any reward."""
        if not isinstance(prior, Prior):
            raise checks.refuse("prior", "a Prior", prior)
        batch = prior.batch
        zero: Any = np.zeros(batch) if batch else 0.0
        one: Any = np.ones(batch) if batch else 1.0
        return unchecked(prior.mean, prior.root, zero, zero, prior.noise, prior, zero, one).sealed()

    @classmethod
    def of(cls, prior: Prior, evidence: Evidence) -> Belief:
        """Prior ⊕ evidence, directly: any prior, at any time.

        Equal in mean and covariance to learning the rounds one by one. With
        I + F₀ᵀ gram F₀ = L Lᵀ::

            F = F₀ L⁻ᵀ        θ̂ = θ̂₀ + F Fᵀ (moment − gram θ̂₀)
        """
        if not isinstance(prior, Prior):
            raise checks.refuse("prior", "a Prior", prior)
        if not isinstance(evidence, Evidence):
            raise checks.refuse("evidence", "Evidence", evidence)
        if prior.dim != evidence.dim:
            raise InputError(
                f"evidence must have the prior's dimension {prior.dim}; got {evidence.dim}"
            )
        if () not in (prior.batch, evidence.batch) and prior.batch != evidence.batch:
            raise InputError(
                f"evidence must have the prior's batch shape {prior.batch}, or none; "
                f"got {evidence.batch}"
            )
        scale: Any = np.ones(prior.batch) if prior.batch else 1.0
        for _ in range(STEPS):
            belief = scaled_belief(prior, evidence, scale)
            fitting = belief.fitting_scale()
            if np.all(fitting == scale):
                break
            scale = fitting
        return belief.sealed()

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
        wider = 2.0 * self.dim * np.log(np.maximum(self.scale, 1e-300))
        return self.prior.log_det + (wider if self.batch else float(wider)) + self.information

    def fitting_scale(self) -> Any:
        """The power of two nearest to R/R₀, where R is the task's own and R₀ tells its size."""
        own = is_own(self.prior)
        if not np.any(own):
            return self.scale
        ratio = np.log2(np.asarray(self.noise) / np.asarray(self.prior.noise))
        fitting = np.where(own, np.exp2(np.rint(ratio)), self.scale)
        return fitting if self.batch else float(fitting)

    @property
    def outgrown(self) -> Any:
        """Whether it must be built anew from prior and evidence (one answer for a whole batch)."""
        if self.mean.ndim > 1:
            return bool(np.any(np.asarray(self.fitting_scale()) != self.scale))
        prior = self.prior
        if self.scale == 0.0:
            return True
        if not 0.0 < prior.noise_freedom < ONE_NOISE:
            return False
        ratio = self.noise / (prior.noise * self.scale)
        return not 0.7071 < ratio < 1.4143

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
        away = r - (x * self.mean).sum(-1)
        error = away / (1.0 + s)
        shrink = gain / (g * (1.0 + g))[..., None]
        square, rounds = self.square + away * error, self.rounds + 1.0
        return unchecked(
            self.mean + gain * error[..., None],
            root - shrink[..., :, None] * u[..., None, :],
            self.information + np.log1p(s),
            rounds,
            own_noise(self.prior, square, rounds, self.noise),
            self.prior,
            square,
            self.scale,
        )

    def learn_one(self, x: Array, r: float) -> Belief:
        """The update without batch axes, where plain floats are faster than arrays of one."""
        mean, root = self.mean, self.root
        compiled = loops()
        if compiled is not None and x.dtype == mean.dtype == root.dtype == np.float64:
            x, root = np.ascontiguousarray(x), np.ascontiguousarray(root)
            new_mean, new_root = np.empty_like(mean), np.empty_like(root)
            s, away = compiled.learn(mean, root, x, r, new_mean, new_root)
            mean, root = new_mean, new_root
        else:
            u = x @ root
            s = float(u @ u)
            g = math.sqrt(1.0 + s)
            gain = root @ u
            away = r - float(x @ mean)
            mean = mean + gain * (away / (1.0 + s))
            gain *= 1.0 / (g * (1.0 + g))
            step = gain[:, None] * u
            root = np.subtract(root, step, out=step)
        information = self.information + math.log1p(s)
        rounds, square = self.rounds + 1.0, self.square + away * away / (1.0 + s)
        prior, noise = self.prior, self.noise
        freedom = prior.noise_freedom
        if freedom < ONE_NOISE:
            variance = (freedom * prior.noise**2 + square) / (freedom + rounds)
            noise = math.sqrt(variance) if variance > 0.0 else noise
        scale = self.scale if s < HUGE else 0.0
        return unchecked(mean, root, information, rounds, noise, prior, square, scale)

    def sealed(self) -> Belief:
        """The same belief, its arrays read-only."""
        for array in (self.mean, self.root, self.information, self.rounds, self.square):
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


def is_own(prior: Prior) -> Any:
    """Whether a task may have a noise of its own, and its size is known beforehand."""
    freedom = np.asarray(prior.noise_freedom)
    return (freedom > 0) & (freedom < ONE_NOISE)


def own_noise(prior: Prior, square: Any, rounds: Any, before: Any) -> Any:
    """R from the prior's and from S; as before where neither tells."""
    freedom = np.asarray(prior.noise_freedom)
    if not np.any(freedom < ONE_NOISE):
        return before
    variance = freedom * np.asarray(prior.noise) ** 2 + square
    variance = variance / np.maximum(freedom + rounds, 1e-300)
    told = (freedom < ONE_NOISE) & (variance > 0)
    noise = np.where(told, np.sqrt(np.where(told, variance, 1.0)), before)
    return noise if noise.ndim else float(noise)


def scaled_belief(prior: Prior, evidence: Evidence, scale: Any) -> Belief:
    """Prior ⊕ evidence, with the prior's root divided by ``scale``."""
    start = prior.root
    if np.any(scale != 1.0):
        start = start / np.asarray(scale)[..., None, None]
    inner = np.eye(prior.dim) + start.swapaxes(-1, -2) @ evidence.gram @ start
    inner = (inner + inner.swapaxes(-1, -2)) / 2
    inverse, log_det = inverse_root(inner)
    information: Any = log_det
    root: Array = np.ascontiguousarray(start @ inverse)
    surprise = evidence.moment - (evidence.gram @ prior.mean[..., None])[..., 0]
    step = (root @ (root.swapaxes(-1, -2) @ surprise[..., None]))[..., 0]
    mean: Array = prior.mean + step
    square: Any
    offset = (prior.mean * (evidence.moment + surprise)).sum(-1)
    # Below this share of the rewards' energy the difference is rounding.
    square = np.asarray(evidence.squares - offset - (step * surprise).sum(-1))
    square = np.maximum(square, 1e-12 * np.asarray(evidence.squares))
    if np.diagonal(inner, axis1=-2, axis2=-1).max(initial=0.0) > HUGE:
        mean, root, information, square = with_all_digits(
            prior, start, evidence, (mean, root, information, square), inner
        )
    batch = information.shape
    rounds = evidence.rounds
    if batch:
        rounds = np.array(np.broadcast_to(rounds, batch))
    else:
        information, square = float(information), float(square)
    noise = own_noise(prior, square, rounds, prior.noise)
    return unchecked(mean, root, information, rounds, noise, prior, square, scale)


def with_all_digits(
    prior: Prior, start: Array, evidence: Evidence, found: tuple[Array, ...], inner: Array
) -> tuple[Array, ...]:
    """The same posteriors, found anew where products have lost too many digits."""
    mean, root, information, square = (np.array(part) for part in found)
    shape = (*information.shape, prior.dim)
    centre, moment = np.broadcast_to(prior.mean, shape), np.broadcast_to(evidence.moment, shape)
    gram = np.broadcast_to(evidence.gram, (*shape, prior.dim))
    start = np.broadcast_to(start, (*shape, prior.dim))
    squares = np.broadcast_to(evidence.squares, information.shape)
    for at in np.ndindex(information.shape):
        if inner[at].diagonal().max() > HUGE:
            graded = graded_posterior(
                centre[at], start[at], gram[at], moment[at], float(squares[at])
            )
            if graded is not None:
                root[at], mean[at], information[at], square[at] = graded
    return mean, root, information, square


def unchecked(
    mean: Array,
    root: Array,
    information: Any,
    rounds: Any,
    noise: Any,
    prior: Prior,
    square: Any,
    scale: Any,
) -> Belief:
    """A belief from fresh arrays that are known to be right."""
    belief: Belief = object.__new__(Belief)
    put(belief, "mean", mean)
    put(belief, "root", root)
    put(belief, "information", information)
    put(belief, "rounds", rounds)
    put(belief, "noise", noise)
    put(belief, "prior", prior)
    put(belief, "square", square)
    put(belief, "scale", scale)
    return belief


put = object.__setattr__
STEPS = 16  # factors of two, at most, by which the prior's root follows the noise
