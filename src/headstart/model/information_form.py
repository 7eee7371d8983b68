"""Posteriors from evidence that spans many orders of magnitude.

A Gram matrix of contexts of size 10¹⁶ and of size 1 keeps the leading digits of every entry. A
product F Gram F mixes the entries and loses the small ones. Here the posterior is computed in
information form: B = B₀ + Gram is scaled to a unit diagonal, which loses no digits, and then
factored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headstart.records import Array

if TYPE_CHECKING:
    from headstart.model.evidence import Evidence
    from headstart.model.prior import Prior

#: Information in one direction, in prior units, above which products lose too many digits.
MAX_INFORMATION = 1e11
#: tr B⁻¹, with B scaled to a unit diagonal, above which too many of its digits are rounding.
MAX_INVERSE_TRACE = 1e10


class InformationPosterior(NamedTuple):
    """A root of B⁻¹, the posterior mean, log det B − log det B₀, and the quadratic form S.

    S is Σ(r − xᵀθ̂)² + (θ̂ − θ̂₀)ᵀB₀(θ̂ − θ̂₀).
    """

    root: Array
    mean: Array
    information: float
    square: float


def information_posterior(
    mean: Array, root: Array, gram: Array, moment: Array, squares: float
) -> InformationPosterior | None:
    """The posterior of one task; ``None`` where the prior is certain of a direction.

    Coordinates whose rows of the prior root are zero stay at their prior mean.

    >>> one = information_posterior(np.zeros(2), np.eye(2), np.diag([1e32, 3.0]), np.ones(2), 1.0)
    >>> one.mean, np.round(one.root @ one.root.T, 3)
    (array([1.0e-32, 2.5e-01]), array([[0.  , 0.  ],
           [0.  , 0.25]]))
    """
    free = (root != 0).any(-1)
    inner = root[free]
    precision = scaled_inverse(inner @ inner.T)
    if precision is None:
        return None
    start = mean[free]
    fixed_moment = gram[np.ix_(free, ~free)] @ mean[~free]
    target = precision.matrix @ start + moment[free] - fixed_moment
    posterior = scaled_inverse(precision.matrix + gram[np.ix_(free, free)])
    if posterior is None:
        return None
    centre = mean.copy()
    centre[free] = posterior.root @ (posterior.root.T @ target)
    away = centre[free] - start
    residual = squares - float(centre @ (2.0 * moment - gram @ centre))
    wide = np.zeros_like(root)
    wide[free, : len(inner)] = posterior.root
    return InformationPosterior(
        wide,
        centre,
        -posterior.log_det + precision.log_det,
        max(residual, 0.0) + max(float(away @ precision.matrix @ away), 0.0),
    )


def sums_are_accurate(root: Array, gram: Array) -> bool:
    """Whether a posterior can be found from a prior root and a task's Gram matrix.

    It cannot where contexts are so large, compared with the prior or with each other, that their
    sum has lost all digits of the smaller ones in a direction that matters.

    >>> row = np.array([1e9, 1e9])
    >>> (
    ...     sums_are_accurate(np.eye(2), np.outer(row, row)),
    ...     sums_are_accurate(1e-9 * np.eye(2), np.outer(row, row)),
    ... )
    (False, True)
    """
    # No information in a direction is more than the product of these norms.
    if np.vdot(root, root) * math.sqrt(np.vdot(gram, gram)) <= MAX_INFORMATION:
        return True
    inner = np.einsum("ij,ij->j", root, gram @ root)
    if inner.max(initial=0.0) <= MAX_INFORMATION:
        return True
    free = (root != 0).any(-1)
    precision = scaled_inverse(root[free] @ root[free].T)
    if precision is None or precision.is_inaccurate:
        return False
    posterior = scaled_inverse(precision.matrix + gram[np.ix_(free, free)])
    return posterior is not None and not posterior.is_inaccurate


class Inverse(NamedTuple):
    """The inverse of a matrix, a root of it, and the logarithm of its determinant.

    It is inaccurate if it is mostly rounding in some direction.
    """

    matrix: Array
    root: Array
    log_det: float
    is_inaccurate: bool


def scaled_inverse(matrix: Array) -> Inverse | None:
    """The inverse of a positive definite matrix, scaled to a unit diagonal first."""
    diagonal = np.diagonal(matrix)
    if not (diagonal > 0).all():
        return None
    scale = 1.0 / np.sqrt(diagonal)
    try:
        lower = np.linalg.cholesky(matrix * scale[:, None] * scale)
    except np.linalg.LinAlgError:
        return None
    unscaled = np.linalg.solve(lower, np.eye(len(matrix)))
    half = unscaled * scale
    log_det = 2.0 * float(np.log(scale).sum() - np.log(np.diagonal(lower)).sum())
    return Inverse(half.T @ half, half.T, log_det, bool((unscaled**2).sum() > MAX_INVERSE_TRACE))


def with_information_form(
    prior: Prior, start: Array, evidence: Evidence, posteriors: tuple[Array, ...], inner: Array
) -> tuple[Array, ...]:
    """The same posteriors, recomputed where products have lost too many digits."""
    mean, root, information, square = (np.array(part) for part in posteriors)
    shape = (*information.shape, prior.dim)
    centre, moment = np.broadcast_to(prior.mean, shape), np.broadcast_to(evidence.moment, shape)
    gram = np.broadcast_to(evidence.gram, (*shape, prior.dim))
    start = np.broadcast_to(start, (*shape, prior.dim))
    squares = np.broadcast_to(evidence.squares, information.shape)
    for at in np.ndindex(information.shape):
        if inner[at].diagonal().max() > MAX_INFORMATION:
            posterior = information_posterior(
                centre[at], start[at], gram[at], moment[at], float(squares[at])
            )
            if posterior is not None:
                root[at], mean[at], information[at], square[at] = posterior
    return mean, root, information, square
