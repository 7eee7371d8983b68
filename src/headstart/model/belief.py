"""The Gaussian posterior of one task.

With B_k = B₀ + Σ x xᵀ, the posterior after k rounds is N(θ̂, R² B_k⁻¹), represented by the mean θ̂
and a square root F of the inverse, F Fᵀ = B_k⁻¹. A reward updates both in O(d²) without inverting a
matrix, and the covariance stays positive semidefinite (Potter's square-root form)::

    u = Fᵀx        s = uᵀu        g = √(1+s)
    θ̂ ← θ̂ + F u (r − xᵀθ̂)/(1+s)
    F ← F − F u uᵀ / (g(1+g))
    log det B ← log det B + log(1+s)

The root is not unique: it depends on the order of the rewards. Compare means and F Fᵀ, not F.

Where the prior allows a task its own noise (ν degrees of freedom around R₀), it is estimated from
the task's rewards (:mod:`headstart.model.own_noise`); after many of them from the residuals of
least squares on the task alone, with f = k − rank degrees of freedom::

    R² = (ν R₀² + RSS)/(ν + f)

These do not depend on the prior, so that a task unlike the others is not taken for a noisy one. The
prior covariance of θ does not depend on R, so F₀ = Σ^½/R must follow it. It does so in steps of a
factor of two: F₀/c with c the power of two nearest to R/R₀. Both take O(d³), and are renewed when
a belief needs a rebuild: after 1, 2, 4, … rewards, the first of them only where ν is small
(:meth:`Belief.of`). With ν = 0 there is no R₀;
then R follows in O(1) from S ← S + (r − xᵀθ̂)²/(1+s) as R² = S/k.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from headstart import checks
from headstart.arrays import array_namespace
from headstart.errors import InputError
from headstart.kernels.switch import loops
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence
from headstart.model.information_form import MAX_INFORMATION, with_information_form
from headstart.model.own_noise import (
    has_own_noise,
    is_noise_due,
    nearest_noise_ratio,
    noise_from_rewards,
    rounds_before_noise,
    task_noise,
)
from headstart.model.prior import ONE_NOISE, Prior, covariance_of
from headstart.records import Array, draft_class
from headstart.small_matrices import inverse_root

__all__ = ["Belief"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Belief(BaseBelief):
    """The Gaussian posterior of θ, or a batch of them along leading axes.

    Obtain one from :meth:`Prior.belief`; :meth:`learn` returns the next one.

    Attributes
    ----------
    mean : array of shape (..., d)
        θ̂.
    root : array of shape (..., d, d)
        F with F Fᵀ = B⁻¹.
    information : float or array of shape (...)
        The information gain log det B − log det B₀ = Σ log(1+s).
    rounds : float or array of shape (...)
        The number of rewards.
    noise : float or array of shape (...)
        R, the scale of the rewards' noise.
    prior : Prior
        The prior it started from.
    square : float or array of shape (...)
        S = Σ (r − xᵀθ̂)² + (θ̂ − θ̂₀)ᵀB₀(θ̂ − θ̂₀), from which R is estimated where ν = 0.
    noise_ratio : float or array of shape (...)
        c, a power of two near R/R₀, by which the prior's root was divided; 0 if the root has lost
        too many digits.

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
    noise_ratio: Any

    @classmethod
    def start(cls, prior: Prior) -> Self:
        """The posterior before any reward, which is the prior."""
        if not isinstance(prior, Prior):
            raise checks.invalid("prior", "a Prior", prior)
        batch = prior.batch
        zero: Any = np.zeros(batch) if batch else 0.0
        one: Any = np.ones(batch) if batch else 1.0
        return cls(
            prior.mean, prior.root, zero, zero, prior.noise, prior, zero, one
        ).set_read_only()

    @classmethod
    def of(cls, prior: Prior, evidence: Evidence) -> Self:
        """The posterior given the evidence, computed directly.

        Equal in mean and covariance to learning the rounds one by one. With
        I + F₀ᵀ gram F₀ = L Lᵀ::

            F = F₀ L⁻ᵀ        θ̂ = θ̂₀ + F Fᵀ (moment − gram θ̂₀)
        """
        if not isinstance(prior, Prior):
            raise checks.invalid("prior", "a Prior", prior)
        if not isinstance(evidence, Evidence):
            raise checks.invalid("evidence", "Evidence", evidence)
        if prior.dim != evidence.dim:
            raise InputError(
                f"evidence must have the prior's dimension {prior.dim}; got {evidence.dim}"
            )
        if () not in (prior.batch, evidence.batch) and prior.batch != evidence.batch:
            raise InputError(
                f"evidence must have the prior's batch shape {prior.batch}, or none; "
                f"got {evidence.batch}"
            )
        noise = task_noise(prior, evidence)
        return cls.unchecked(*posterior(prior, evidence, noise, nearest_noise_ratio(prior, noise)))

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
        """R² F Fᵀ = R² B⁻¹: the covariance of θ in rewards' own units."""
        return covariance_of(self.root, self.noise)

    @property
    def log_det(self) -> Any:
        """Log det B."""
        wider = 2.0 * self.dim * np.log(np.maximum(self.noise_ratio, 1e-300))
        return self.prior.log_det + (wider if self.batch else float(wider)) + self.information

    @property
    def needs_rebuild(self) -> bool:
        """Whether it must be recomputed from prior and evidence (one answer for a whole batch)."""
        if self.mean.ndim == 1:
            if self.noise_ratio == 0.0:
                return True
            dof = self.prior.noise_dof
            if not 0.0 < dof < ONE_NOISE:
                return False
            rounds = int(self.rounds)
            if rounds & (rounds - 1):
                return False
            return bool(rounds >= rounds_before_noise(dof, self.dim))
        return bool(np.any(self.rebuild_due()))

    def rebuild_due(self) -> Any:
        """The same for each element of a batch."""
        if not self.batch:
            return self.needs_rebuild
        each = np.asarray(self.rounds).astype(np.int64)
        return is_noise_due(self.prior.noise_dof, self.dim, each) & (each & (each - 1) == 0)

    def degrees_of_freedom(self) -> tuple[Any, Any]:
        """After k rewards ν + k, as in the conjugate model, and ν + k − Σ λ/(1 + λ) or less.

        The sum counts the parameters that the rewards have determined, and is at most d and Σ log
        (1 + λ). Without rewards R does not matter to θ.
        """
        dof = self.prior.noise_dof
        dof = np.where(has_own_noise(dof), dof, np.inf)
        residual = np.maximum(self.rounds - np.minimum(self.dim, self.information), 0.0)
        of_mean = np.where(np.greater(self.rounds, 0), dof + self.rounds, np.inf)
        return of_mean, dof + residual

    def as_scaled(self, before: Self) -> Self:
        """The same belief at the noise ratio of ``before``."""
        return self.replace(noise_ratio=before.noise_ratio)

    def with_known(self, at: int, value: float) -> Self:
        """With one coefficient that is known: its row of F is zero, and stays so."""
        mean, root = self.mean.copy(), self.root.copy()
        mean[..., at], root[..., at, :] = value, 0.0
        return self.replace(mean=mean, root=root)

    def update(self, x: Array, r: Any) -> Self:
        """The belief after one more round: the square-root update, O(d²).

        The new arrays can be written to: :meth:`sealed` must come before the belief is handed out.
        """
        mean, root = self.mean, self.root
        if mean.ndim > 1:
            return self.update_batch(x, r)
        # Plain floats are faster than arrays of one.
        compiled = loops()
        if compiled is not None and x.dtype is mean.dtype is root.dtype is DOUBLE:
            x, root = np.ascontiguousarray(x), np.ascontiguousarray(root)
            new_mean, new_root = np.empty(mean.shape), np.empty(root.shape)
            s, away = compiled.learn(mean, root, x, r, new_mean, new_root)
            mean, root = new_mean, new_root
        else:
            # The method dot takes half the time of the operator @ on vectors this short.
            u = x.dot(root)
            s = float(u.dot(u))
            g = math.sqrt(1.0 + s)
            gain = root.dot(u)
            away = r - float(x.dot(mean))
            times = gain.dot if gain.dtype is DOUBLE else gain.__mul__  # dot would widen others
            mean = mean + times(away / (1.0 + s))
            step = times(1.0 / (g * (1.0 + g)))[:, None].dot(u[None, :])
            root = np.subtract(root, step, step)
        information = self.information + math.log1p(s)
        rounds, square = self.rounds + 1.0, self.square + away * away / (1.0 + s)
        prior, noise = self.prior, self.noise
        if prior.noise_dof == 0.0 and square > 0.0:
            noise = math.sqrt(square / rounds)
        noise_ratio = self.noise_ratio if s < MAX_INFORMATION else 0.0
        kind = type(self)
        make = DRAFT if kind is Belief else kind
        belief: Any = make(mean, root, information, rounds, noise, prior, square, noise_ratio)
        if make is DRAFT:
            belief.__class__ = Belief
        return belief

    def update_batch(self, x: Array, r: Array) -> Self:
        """The update along batch axes."""
        root = self.root
        u = (x[..., None, :] @ root)[..., 0, :]
        s = (u * u).sum(-1)
        g = np.sqrt(1.0 + s)
        gain = (root @ u[..., None])[..., 0]
        away = r - (x * self.mean).sum(-1)
        error = away / (1.0 + s)
        shrink = gain / (g * (1.0 + g))[..., None]
        square, rounds = self.square + away * error, self.rounds + 1.0
        return type(self)(
            self.mean + gain * error[..., None],
            root - shrink[..., :, None] * u[..., None, :],
            self.information + np.log1p(s),
            rounds,
            noise_from_rewards(self.prior, square, rounds, self.noise),
            self.prior,
            square,
            self.noise_ratio,
        )

    def predict(self, contexts: Array) -> Array:
        """The expected reward xᵀθ̂ of each row: ``(..., K, d)`` to ``(..., K)``."""
        if self.mean.ndim == 1:
            return contexts.dot(self.mean)
        return (contexts @ self.mean[..., None])[..., 0]

    def width(self, contexts: Array) -> Array:
        """‖x‖_{B⁻¹} = ‖Fᵀx‖ of each row; times R it is the standard deviation of xᵀθ."""
        root = self.root
        products = contexts.dot(root) if root.ndim == 2 else contexts @ root
        square: Array = vecdot(products, products)
        return np.sqrt(square, square)

    def draw(self, rng: np.random.Generator, scale: Any, size: int | None = None) -> Array:
        """θ̃ = θ̂ + v F z with z ~ N(0, I): one draw, or ``size`` of them along a new first axis.

        ``scale`` is v in rewards' units; v = R draws from the belief itself.
        """
        shape = self.mean.shape if size is None else (size, *self.mean.shape)
        z = rng.standard_normal(shape)
        if not self.batch and size is None:
            return self.mean + scale * (self.root @ z)
        step = (self.root @ z[..., None])[..., 0]
        return self.mean + np.asarray(scale)[..., None] * step

    @classmethod
    def stack(cls, beliefs: Sequence[Belief]) -> Self:
        """Beliefs side by side along a new first axis: their means, roots and noises."""
        mean, root, noise = (
            np.array([getattr(belief, name) for belief in beliefs])
            for name in ("mean", "root", "noise")
        )
        return cls(mean, root, None, None, noise, beliefs[0].prior, None, None)

    def loop_arrays(self) -> tuple[Array, Array] | None:
        """θ̂ and F, where they are in double precision and contiguous."""
        mean, root = self.mean, self.root
        # Double precision has other type objects too, those of arrays made by ctypes for example.
        if not mean.dtype == root.dtype == DOUBLE:
            return None
        return (mean, root) if mean.flags.c_contiguous and root.flags.c_contiguous else None

    def gaussian_parts(self) -> tuple[Array, Array, Array]:
        """One Gaussian."""
        return np.ones((*self.batch, 1)), self.mean[..., None, :], self.root[..., None, :, :]


DOUBLE = np.dtype(np.float64)
DRAFT = draft_class(Belief)


def einsum_vecdot(left: Array, right: Array) -> Array:
    """The form of :func:`numpy.vecdot` for NumPy 1."""
    return np.einsum("...i,...i->...", left, right)


vecdot: Any = getattr(np, "vecdot", einsum_vecdot)


def posterior(prior: Prior, evidence: Evidence, noise: Any, ratio: Any) -> tuple[Any, ...]:
    """The fields of a belief, with the task's own noise and the prior's root over ``ratio``."""
    xp = array_namespace(prior.root, evidence.gram)
    start = prior.root
    if xp is not np or (ratio != 1.0 if type(ratio) is float else (ratio != 1.0).any()):
        start = start / xp.asarray(ratio)[..., None, None]
    if loops() is not None and xp is np and start.ndim == evidence.gram.ndim == 2:
        found = posterior_by_loops(prior, start, evidence, noise)
        if found is not None:
            return *found, ratio
    inner = xp.eye(prior.dim) + start.swapaxes(-1, -2) @ evidence.gram @ start
    inverse, log_det = inverse_root(inner)
    information: Any = log_det
    root: Array = start @ inverse
    root = np.ascontiguousarray(root) if xp is np else root
    surprise = evidence.moment - (evidence.gram @ prior.mean[..., None])[..., 0]
    step = (root @ (root.swapaxes(-1, -2) @ surprise[..., None]))[..., 0]
    mean: Array = prior.mean + step
    square: Any
    offset = (prior.mean * (evidence.moment + surprise)).sum(-1)
    # Below this share of the rewards' energy the difference is rounding.
    square = xp.asarray(evidence.squares - offset - (step * surprise).sum(-1))
    square = xp.maximum(square, 1e-12 * xp.asarray(evidence.squares))
    if xp is np and np.diagonal(inner, axis1=-2, axis2=-1).max(initial=0.0) > MAX_INFORMATION:
        mean, root, information, square = with_information_form(
            prior, start, evidence, (mean, root, information, square), inner
        )
    batch = information.shape
    rounds = evidence.rounds
    if batch:
        rounds = xp.array(xp.broadcast_to(rounds, batch))
    else:
        information, square = float(information), float(square)
    noise = noise_from_rewards(prior, square, rounds, noise)
    return mean, root, information, rounds, noise, prior, square, ratio


def posterior_by_loops(
    prior: Prior, start: Array, evidence: Evidence, noise: Any
) -> tuple[Any, ...] | None:
    """The same but for ``ratio``, by compiled loops; ``None`` where these lose digits."""
    arrays = start, prior.mean, evidence.gram, evidence.moment
    if not all(array.flags.c_contiguous and array.dtype == DOUBLE for array in arrays):
        return None
    mean, root, squares = np.empty(prior.dim), np.empty(start.shape), float(evidence.squares)
    information, square, most = loops().posterior(*arrays, squares, mean, root)
    if not most <= MAX_INFORMATION:
        return None
    square, rounds = max(square, 1e-12 * squares), evidence.rounds
    noise = noise_from_rewards(prior, square, rounds, noise)
    return mean, root, information, rounds, noise, prior, square
