"""How much a task's own evidence, among that of many others, has moved its own prior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.model.belief import Belief
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.state import EmpiricalBayesState


def own_influence(state: EmpiricalBayesState, belief: Any) -> float:
    """By how much a belief would change if its task were left out of the fit, to first order.

    ``belief`` is from a prior N(μ, F Fᵀ) that counts the task. In coordinates whitened by F, with
    the task's posterior mean z and covariance E = A Aᵀ, K = I − E and V the covariance of μ's own
    error, its gradient moves μ and Σ by ::

        δ = V z        Δ = N V (K − z zᵀ) V

    because V is about (Σ_j K_j)⁻¹, and (Σ_j K_j²)⁻¹ about N V². The belief is moved by Aᵀ(δ + Δ z)
    and Aᵀ Δ A in units of its own standard deviations; the result is the larger of their norms, and
    so about the change in the direction in which it is largest. V is that of the full covariance
    and of the low-rank candidates, averaged by their weights. O(d³), without eigenvalues.
    """
    if not isinstance(belief, Belief) or belief.batch:
        return math.inf
    prior, count = belief.prior, float(state.counting_tasks)
    try:
        whiten = np.linalg.inv(prior.root) / prior.noise
    except np.linalg.LinAlgError:  # the prior is certain of a direction: a unit is not known
        whiten = np.linalg.pinv(prior.root) / prior.noise
    half = state.units.convert_moment(whiten)
    with np.errstate(all="ignore"):
        error = half @ mean_error(state) @ half.T
        z = whiten @ (belief.mean - prior.mean)
        own = (whiten * belief.noise) @ belief.root
        excess = np.eye(belief.dim) - own @ own.T - z[:, None] * z
        change = own.T @ (count * (error @ excess @ error))
        shift = np.linalg.norm(own.T @ (error @ z)) + np.linalg.norm(change @ z)
        influence = max(float(shift), float(np.linalg.norm(change @ own)))
    return influence if math.isfinite(influence) else math.inf


def mean_error(state: EmpiricalBayesState) -> Array:
    """The covariance of the mean's own error, in the state's units."""
    low, full = state.low_rank, state.ensemble_weights[0]
    across = low.scale[:, None] * low.scale
    return np.asarray(full * state.fit.error + (1.0 - full) * across * low.error)
