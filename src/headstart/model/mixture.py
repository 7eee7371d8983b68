"""Priors and posteriors that are mixtures of Gaussians.

A task belongs to one of a few groups, each with its own Gaussian prior. The group is not known;
every reward multiplies a group's weight by its predictive density under that group::

    log w_j ← log w_j + log p(r),        p Student's t around xᵀθ̂_j, of scale R² (1 + ‖x‖²_{B_j⁻¹})

Rules use the mean and the standard deviation of the mixture; a draw is a draw from a random group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.model.base import BaseBelief, BasePrior
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.information_form import sums_are_accurate
from headstart.model.prior import SCALAR_FIELDS, Prior, symmetric_root
from headstart.records import Array, read_only_copy

__all__ = ["MixtureBelief", "MixturePrior"]


class Groups:
    """What priors and beliefs of mixtures share: Gaussians on the last batch axis, and weights."""

    __slots__ = ()

    if TYPE_CHECKING:
        parts: Any
        log_weights: Array

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.parts.dim)

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes, without the groups."""
        return self.parts.batch[:-1]

    @property
    def weights(self) -> Array:
        """The probability of each group."""
        return np.exp(self.log_weights)

    @property
    def mean(self) -> Array:
        """E θ."""
        return (self.weights[..., None] * self.parts.mean).sum(-2)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class MixturePrior(Groups, BasePrior):
    """Priors side by side along the last batch axis, and the logarithms of their weights."""

    parts: Prior
    log_weights: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_weights", read_only_copy(self.log_weights))

    @classmethod
    def stack(cls, priors: Sequence[Prior | MixturePrior]) -> MixturePrior:
        """Priors of several populations as one batch; those with fewer groups are filled up."""
        mixtures = [cls.of(prior) if isinstance(prior, Prior) else prior for prior in priors]
        groups = max(len(mixture.log_weights) for mixture in mixtures)
        mixtures = [mixture.with_groups(groups) for mixture in mixtures]
        parts = Prior.stack([one.parts for one in mixtures])
        return cls(parts, np.stack([one.log_weights for one in mixtures]))

    @classmethod
    def of(cls, prior: Prior) -> MixturePrior:
        """A mixture of one."""
        return cls(Prior.stack([prior]), np.zeros(1))

    def with_groups(self, groups: int) -> MixturePrior:
        """The same with groups of no weight at the end."""
        now = len(self.log_weights)
        more = groups - now
        arrays = {"mean": self.parts.mean, "root": self.parts.root}
        for name in SCALAR_FIELDS:
            arrays[name] = np.broadcast_to(getattr(self.parts, name), (now,))
        fields = {name: np.append(a, np.repeat(a[:1], more, 0), 0) for name, a in arrays.items()}
        weights = np.append(self.log_weights, np.full(more, LOG_ZERO))
        return MixturePrior(Prior(**fields), weights)

    @property
    def noise(self) -> Any:
        """R, the same for all groups."""
        return shared_value(self.parts.noise, self.parts.batch)

    @property
    def covariance(self) -> Array:
        """The covariance of θ, that of the groups' means included."""
        return self.as_gaussian().covariance

    def belief(self, evidence: Evidence | None = None) -> MixtureBelief:
        """The posterior given the evidence of a task; before any reward unless given."""
        if evidence is None:
            return MixtureBelief(Belief.start(self.parts), self.log_weights, self.log_weights)
        wide = Evidence(
            np.broadcast_to(evidence.gram[..., None, :, :], self.parts.root.shape),
            np.broadcast_to(evidence.moment[..., None, :], self.parts.mean.shape),
            np.broadcast_to(np.asarray(evidence.rounds)[..., None], self.parts.batch),
            np.broadcast_to(np.asarray(evidence.squares)[..., None], self.parts.batch),
        )
        return mixture_posterior(Belief.of(self.parts, wide), self.log_weights)

    def can_update_on(self, evidence: Evidence) -> bool:
        """Whether the sums of the evidence have kept the digits that the posteriors need."""
        return all(sums_are_accurate(root, evidence.gram) for root in self.parts.root)

    def as_gaussian(self) -> Prior:
        """The Gaussian with the mixture's mean and covariance."""
        mean = self.mean
        away = self.parts.mean - mean[..., None, :]
        spread = self.parts.covariance + away[..., :, None] * away[..., None, :]
        sigma = (self.weights[..., None, None] * spread).sum(-3)
        noise = np.asarray(self.noise)
        return Prior(mean, symmetric_root(sigma) / noise[..., None, None], noise=self.noise)


LOG_ZERO = -1e9  # the logarithm of no weight, but finite


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class MixtureBelief(Groups, BaseBelief):
    """The posterior of a task that belongs to one of several groups."""

    parts: Belief
    log_weights: Array
    log_start: Array

    def __post_init__(self) -> None:
        for name in ("log_weights", "log_start"):
            object.__setattr__(self, name, read_only_copy(getattr(self, name)))

    @property
    def rounds(self) -> Any:
        """How many rewards it has seen."""
        return shared_value(self.parts.rounds, self.parts.batch)

    @property
    def noise(self) -> Any:
        """R, the scale of the rewards' noise: the root mean square over the groups."""
        each = np.broadcast_to(self.parts.noise, self.parts.batch)
        if (each == each[..., :1]).all():
            return shared_value(each, self.parts.batch)
        noise = np.sqrt((self.weights * each**2).sum(-1))
        return noise if noise.ndim else float(noise)

    @property
    def needs_rebuild(self) -> bool:
        """Whether it must be recomputed from prior and evidence."""
        return bool(self.parts.needs_rebuild)

    def rebuild_due(self) -> Any:
        """The same for each element of a batch."""
        return np.any(self.parts.rebuild_due(), axis=-1)

    @property
    def prior(self) -> MixturePrior:
        """Where it started."""
        return MixturePrior(self.parts.prior, self.log_start)

    def set_read_only(self) -> MixtureBelief:
        """The same belief, its arrays read-only."""
        self.parts.set_read_only()
        return self

    def with_rounds(self, rounds: Any) -> MixtureBelief:
        """The same belief with another number of rewards."""
        each = np.array(np.broadcast_to(np.asarray(rounds)[..., None], self.parts.batch))
        return self.replace(parts=self.parts.with_rounds(each))

    def with_known(self, at: int, value: float) -> MixtureBelief:
        """The same belief with one coefficient that is known."""
        return self.replace(parts=self.parts.with_known(at, value))

    def split_prior(self) -> tuple[MixtureBelief, Prior]:
        """The belief without the priors of its groups, and these."""
        parts, prior = self.parts.split_prior()
        return self.replace(parts=parts), prior

    def with_prior(self, prior: Prior) -> MixtureBelief:
        """The inverse of :meth:`split_prior`."""
        return self.replace(parts=self.parts.with_prior(prior))

    def update(self, x: Array, r: Any) -> MixtureBelief:
        """The belief after one more round."""
        parts = self.parts
        context = np.broadcast_to(x[..., None, :], parts.mean.shape)
        reward = np.broadcast_to(np.asarray(r)[..., None], parts.batch)
        return mixture_posterior(parts.update(context, reward).set_read_only(), self.log_start)

    def predict(self, contexts: Array) -> Array:
        """The expected reward of each row."""
        return self.moments(contexts)[0]

    def width(self, contexts: Array) -> Array:
        """The standard deviation of each row's expected reward, in units of R."""
        return self.moments(contexts)[1]

    def moments(self, contexts: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of xᵀθ over the groups; the latter in units of R."""
        rows = contexts[..., None, :, :]
        means, widths = self.parts.predict(rows), self.parts.width(rows)
        weights = self.weights[..., None]
        mean = (weights * means).sum(-2)
        widths = widths * np.broadcast_to(self.parts.noise, self.parts.batch)[..., None]
        apart = means - mean[..., None, :]
        spread = np.sqrt((weights * (widths**2 + apart**2)).sum(-2))
        return mean, spread / np.asarray(self.noise)[..., None]

    def draw(self, rng: np.random.Generator, scale: Any, size: int | None = None) -> Array:
        """A draw from a group that is drawn by its weight; or ``size`` of them, on a new axis."""
        batch = self.batch if size is None else (size, *self.batch)
        if not batch:
            edges = np.cumsum(self.weights)
            at = min(int((edges < rng.random()).sum()), len(edges) - 1)
            z = rng.standard_normal(self.dim)
            return self.parts.mean[at] + scale * (self.parts.root[at] @ z)
        edges = np.cumsum(self.weights, -1)
        chance = rng.random(batch)
        at = np.minimum((edges < chance[..., None]).sum(-1), edges.shape[-1] - 1)
        z = rng.standard_normal((*batch, self.dim))
        mean = np.broadcast_to(self.parts.mean, (*batch, *self.parts.mean.shape[-2:]))
        root = np.broadcast_to(self.parts.root, (*batch, *self.parts.root.shape[-3:]))
        mean = np.take_along_axis(mean, at[..., None, None], -2)[..., 0, :]
        root = np.take_along_axis(root, at[..., None, None, None], -3)[..., 0, :, :]
        return mean + np.asarray(scale)[..., None] * (root @ z[..., None])[..., 0]

    def gaussian_parts(self) -> tuple[Array, Array, Array]:
        """The groups."""
        return self.weights, self.parts.mean, self.parts.root


def mixture_posterior(parts: Belief, log_start: Array) -> MixtureBelief:
    """Beliefs of the groups, each with the weight that its rewards give it.

    The logarithm of the rewards' marginal likelihood is, up to what all groups share,
    −½ (ν + k) log(1 + S/(ν R₀²)) − ½ (log det B − log det B₀); with ν → ∞ its first term is
    −S/(2 R₀²).
    """
    dof = np.asarray(parts.prior.noise_dof)
    surprise = parts.square / (dof * np.asarray(parts.prior.noise) ** 2)
    log_likelihood = -0.5 * (dof + parts.rounds) * np.log1p(surprise)
    log_likelihood = log_likelihood - 0.5 * np.asarray(parts.information)
    return MixtureBelief(parts, normalize_log_weights(log_start + log_likelihood), log_start)


def shared_value(value: Any, batch: tuple[int, ...]) -> Any:
    """What all groups of a task have in common: one number per task."""
    each = np.broadcast_to(value, batch)[..., 0]
    return each if each.ndim else float(each)


def normalize_log_weights(logs: Array) -> Array:
    """Logarithms of weights that sum to one."""
    top = logs.max(-1, keepdims=True)
    weights: Array = logs - top - np.log(np.exp(logs - top).sum(-1, keepdims=True))
    return np.maximum(weights, LOG_ZERO)
