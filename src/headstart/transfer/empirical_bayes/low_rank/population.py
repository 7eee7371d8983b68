"""A population whose tasks differ along a few directions only: its record and where a fit starts.

The model and how it is fitted are in
:mod:`~headstart.transfer.empirical_bayes.low_rank.fitting`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.arrays import array_namespace, congruence, float_if_scalar, matvec, trace, transpose
from headstart.records import Array, Record
from headstart.small_matrices import eigh
from headstart.transfer.empirical_bayes.full_covariance.population import Fit

MAX_RANK = 16  # columns of W, at most
MAX_RELEVANCE = 1e80  # of a column that is all but 0: a state with more could not be read again
MIN_RESIDUAL_SHARE = 1e-6  # the least σ², as a share of the largest variance
RESIDUAL_START = 0.1  # σ² to start from, as a share of the usual variance outside W
TASKS_PER_DIRECTION = 2.0  # at least


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class LowRank(Record):
    """μ, W and σ², their uncertainty, and the covariance that predicts a new task.

    Everything is in features multiplied by ``scale``, so that parameters are divided by it.

    Attributes
    ----------
    scale
        √D, how much tasks are taken to vary along each feature.
    mean, loadings, residual
        μ, W with a column of zeros for every direction that was dropped, and σ².
    relevance
        σ² α_c, 0 for a column that was dropped.
    error
        C, the covariance of μ's own error.
    information
        σ² Σ A_i.
    curvature
        σ⁴ Σ ‖H_i‖².
    directions
        κ, the number of directions that count as observed in every task.
    signal
        ‖W_c‖² / Σ_j Var[c, j] of every column, before any was dropped.
    covariance
        S.
    """

    scale: Array
    mean: Array
    loadings: Array
    residual: Any
    relevance: Array
    error: Array
    information: Array
    curvature: Any
    directions: Any
    signal: Array
    covariance: Array

    @classmethod
    def initial(cls, dim: int, variance: Any, batch: tuple[int, ...] = ()) -> LowRank:
        """No direction yet, the same variance everywhere."""
        rank = max(1, min(MAX_RANK, dim - 1))
        spread = np.broadcast_to(np.asarray(variance, dtype=float), batch)
        zeros = np.zeros((*batch, dim, dim))
        return cls.unchecked(
            scale=np.ones((*batch, dim)),
            mean=np.zeros((*batch, dim)),
            loadings=np.zeros((*batch, dim, rank)),
            residual=float_if_scalar(np.array(spread)),
            relevance=np.zeros((*batch, rank)),
            error=zeros,
            information=zeros,
            curvature=float_if_scalar(np.zeros(batch)),
            directions=float_if_scalar(np.zeros(batch)),
            signal=np.zeros((*batch, rank)),
            covariance=spread[..., None, None] * np.eye(dim),
        )

    @classmethod
    def of_fit(cls, fit: Fit) -> LowRank:
        """The full population, where no low-rank one could be fitted."""
        xp = array_namespace(fit.mean)
        low = cls.initial(fit.mean.shape[-1], 1.0, fit.mean.shape[:-1])
        spread = trace(fit.covariance) / fit.mean.shape[-1]
        return low.replace(
            mean=fit.mean,
            residual=float_if_scalar(xp.maximum(spread, 1e-300)),
            error=fit.error,
            covariance=fit.covariance + fit.error,
        )

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        """Whether all numbers are, per batch element."""
        xp = array_namespace(self.mean)
        spread = xp.asarray(self.residual)
        moments = xp.isfinite(self.covariance).all((-2, -1)) & xp.isfinite(self.mean).all(-1)
        rest = xp.isfinite(self.relevance).all(-1) & xp.isfinite(self.information).all((-2, -1))
        return xp.asarray(moments & rest & xp.isfinite(spread) & (spread > 0))

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """Which columns of W are in use."""
        xp = array_namespace(self.mean)
        return xp.asarray((self.loadings != 0.0).any(-2))

    def transform(self, matrix: Array) -> LowRank:
        """The population of the parameters multiplied by a matrix (σ² is left as it is)."""
        xp = array_namespace(self.mean)
        inner = matrix * (self.scale[..., None, :] / self.scale[..., :, None])
        back = xp.linalg.inv(inner)
        return self.replace(
            mean=matvec(inner, self.mean),
            loadings=inner @ self.loadings,
            error=congruence(inner, self.error),
            information=congruence(transpose(back), self.information),
            covariance=congruence(inner, self.covariance),
        )

    def with_scale(self, scale: Array) -> LowRank:
        """The same population, in features multiplied by another scale (σ² is left as it is)."""
        ratio = self.scale / scale
        across = ratio[..., :, None] * ratio[..., None, :]
        return self.replace(
            scale=scale,
            mean=ratio * self.mean,
            loadings=ratio[..., :, None] * self.loadings,
            error=across * self.error,
            information=self.information / across,
            covariance=across * self.covariance,
        )

    def with_residual(self, residual: Array, **changes: Any) -> LowRank:
        """Other fields and another σ², of which the relevance and the information are multiples."""
        xp = array_namespace(residual)
        ratio = residual / xp.asarray(self.residual)
        return self.replace(
            residual=float_if_scalar(residual),
            relevance=xp.minimum(ratio[..., None] * self.relevance, MAX_RELEVANCE),
            information=ratio[..., None, None] * self.information,
            **changes,
        )

    def predictive(self, count: Any) -> LowRank:
        """The same with the covariance S that predicts a new task, after ``count`` tasks."""
        xp = array_namespace(self.mean)
        w, known = self.loadings, xp.asarray(self.directions) + 1.0
        p, q = eigh(self.information)
        scale = xp.asarray(self.residual)[..., None]
        variance = scale * column_variances(xp.maximum(p, 0.0), self.relevance, self.active).sum(-2)
        inflate = 1.0 + known / xp.maximum(xp.asarray(count) - known, known / 2.0)
        spread = inflate[..., None, None] * (w @ transpose(w))
        spread = spread + (q * variance[..., None, :]) @ transpose(q) + self.error
        isotropic = xp.asarray(self.residual)[..., None, None] * xp.eye(w.shape[-2])
        return self.replace(covariance=spread + isotropic)


def scale_fit(fit: Fit, scale: Array) -> Fit:
    """A full population in features multiplied by a scale."""
    across = scale[..., :, None] * scale[..., None, :]
    return fit.replace(
        mean=fit.mean / scale, covariance=fit.covariance / across, error=fit.error / across
    )


def start_low_rank(fit: Fit, tasks: Any, scale: Array | None = None) -> LowRank:
    """W and σ² from the eigenvalues of a full covariance, for ``tasks`` tasks.

    σ² starts at a tenth of the usual variance outside W. It grows within a few sweeps where it has
    to, but a direction that a large σ² has hidden does not come back. There are at least two tasks
    for each direction, or σ² would vanish wherever as many directions as tasks explain them all.
    """
    xp = array_namespace(fit.mean)
    dim = fit.mean.shape[-1]
    low = LowRank.initial(dim, 1.0, fit.mean.shape[:-1])
    if scale is not None:
        low, fit = low.replace(scale=scale), scale_fit(fit, scale)
    rank = low.loadings.shape[-1]
    values, vectors = eigh(fit.covariance)
    values, vectors = values[..., ::-1], vectors[..., ::-1]
    most = xp.floor((xp.asarray(tasks) - 1.0) / TASKS_PER_DIRECTION)
    most = xp.minimum(rank, xp.maximum(most, 1.0))[..., None]
    values = xp.maximum(values, MIN_RESIDUAL_SHARE * xp.maximum(values[..., :1], 1e-300))
    rest = xp.arange(dim) >= most
    share = rest / xp.maximum(rest.sum(-1, keepdims=True), 1)
    residual = RESIDUAL_START * xp.exp((share * xp.log(values)).sum(-1))
    top = xp.maximum(values[..., :rank] - residual[..., None], 0.0)
    used = xp.arange(rank) < most
    return low.replace(
        mean=fit.mean,
        loadings=vectors[..., :rank] * xp.sqrt(top * used)[..., None, :],
        residual=float_if_scalar(residual),
        relevance=xp.where(
            used & (top > 0.0),
            xp.minimum(dim * residual[..., None] / xp.maximum(top, 1e-300), MAX_RELEVANCE),
            0.0,
        ),
    )


def column_variances(p: Array, alpha: Array, active: npt.NDArray[np.bool_]) -> Array:
    """Var[c, j] = 1 / (p_j + α_c) of the columns in use."""
    xp = array_namespace(p)
    return active[..., :, None] / xp.maximum(p[..., None, :] + alpha[..., :, None], 1e-300)
