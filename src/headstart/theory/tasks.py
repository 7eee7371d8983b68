"""How the tasks are spread: the variances of Assumption 1."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.records import Array

__all__ = ["Variances", "perfect_projection_ratio", "sample_variances", "task_variances"]


class Variances(NamedTuple):
    """The four second moments that Assumption 1 compares.

    ``outside`` is Var_ρ = E‖(I − P)(θ* − μ)‖², ``inside`` E‖P(θ* − μ)‖², ``total`` their sum
    Var_max = E‖θ* − μ‖², and ``on_plane`` E‖Pθ*‖² = ``inside`` + ‖Pμ‖². The assumption is that
    ``outside`` is much smaller than ``inside`` and than ``on_plane``.
    """

    outside: float
    inside: float
    total: float
    on_plane: float


def task_variances(
    mean: npt.ArrayLike, covariance: npt.ArrayLike, projection: npt.ArrayLike
) -> Variances:
    """Assumption 1's variances of a distribution with this mean and covariance.

    ::

        Var_ρ = tr((I − P) Σ)        Var_max = tr Σ        E‖Pθ*‖² = tr(P Σ) + ‖Pμ‖²

    Parameters
    ----------
    mean, covariance
        μ and Σ.
    projection
        P, an orthogonal projection, shape ``(d, d)``.

    Examples
    --------
    >>> task_variances([0.0, 3.0], [[1.0, 0.0], [0.0, 0.1]], [[1.0, 0.0], [0.0, 0.0]])
    Variances(outside=0.1, inside=1.0, total=1.1, on_plane=1.0)
    """
    mu = checks.finite_array("mean", mean, "a vector", ndim=1)
    sigma = checks.finite_array("covariance", covariance, "a matrix", ndim=2)
    plane = orthogonal_projection(projection, len(mu))
    if sigma.shape != plane.shape:
        raise checks.invalid("covariance", f"an array of shape {plane.shape}", sigma)
    inside = float(np.sum(plane * sigma))
    outside = float(np.sum((np.eye(len(mu)) - plane) * sigma))
    on_plane = inside + float(np.sum((plane @ mu) ** 2))
    return Variances(outside, inside, outside + inside, on_plane)


def sample_variances(tasks: npt.ArrayLike, projection: npt.ArrayLike) -> Variances:
    """Assumption 1's variances of a sample of tasks, one in each row, around their mean.

    Parameters
    ----------
    tasks
        θ*(1) … θ*(t), shape ``(t, d)``.
    projection
        P, an orthogonal projection, shape ``(d, d)``.

    Examples
    --------
    >>> sample_variances([[1.0, 2.0], [-1.0, 2.0]], [[1.0, 0.0], [0.0, 0.0]])
    Variances(outside=0.0, inside=1.0, total=1.0, on_plane=1.0)
    """
    rows = checks.finite_array("tasks", tasks, "an array of shape (t, d)", ndim=2)
    centred = rows - rows.mean(0)
    return task_variances(rows.mean(0), centred.T @ centred / len(rows), projection)


def perfect_projection_ratio(codimension: int) -> float:
    """E[W]²/Var_ρ for Gaussian tasks that are equally spread in q directions, with P̂ and θ̄ exact.

    ::

        E[W]²/Var_ρ = (2/q) (Γ((q+1)/2) / Γ(q/2))² ≈ 1 − 1/(2q)

    so the paper's figure of abs(E[W]²/Var_ρ − 1) cannot fall below 1/(2q), however well the
    projection is learned; E[W²]/Var_ρ can.

    >>> round(perfect_projection_ratio(15), 4), round(1 - 1 / 30, 4)
    (0.9672, 0.9667)
    """
    q = checks.integer("codimension", codimension, 1)
    return 2.0 / q * math.exp(2.0 * (math.lgamma((q + 1) / 2) - math.lgamma(q / 2)))


def orthogonal_projection(projection: npt.ArrayLike, dim: int) -> Array:
    """P, checked: symmetric, idempotent and of this dimension."""
    plane = checks.finite_array("projection", projection, "a matrix", ndim=2)
    good = plane.shape == (dim, dim) and np.allclose(plane, plane.T, atol=1e-8)
    if not good or not np.allclose(plane @ plane, plane, atol=1e-8):
        raise checks.invalid("projection", f"an orthogonal {dim} × {dim} projection", plane)
    return plane
