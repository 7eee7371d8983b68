"""Candid covariance-free incremental PCA (Weng, Zhang and Hwang 2003), the paper's choice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.records import Array, Record
from headstart.subspace.base import PCA, Components, check_update, with_fixed_signs
from headstart.subspace.exact import Moments, sorted_eigh


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class CCIPCAState(Record):
    """``scaled`` holds v_j = σ_j u_j as rows; ``moments`` counts, centres and feeds a batch start.

    ``started`` is 1 once the v_j are in use.
    """

    moments: Moments
    scaled: Array
    started: Any


@dataclasses.dataclass(frozen=True, repr=False)
class CCIPCA(PCA):
    """Principal components without a covariance matrix.

    The i-th vector, centred by the running mean, is z₁; component by component::

        v_j ← (i−1−l)/i · v_j + (1+l)/i · z_j (z_jᵀv_j)/‖v_j‖
        z_{j+1} = z_j − (z_jᵀû_j) û_j        û_j = v_j/‖v_j‖        σ_j = ‖v_j‖

    The running mean contains the vector itself, which makes z₁ too short: its covariance is
    (1 − 1/i) times that of the vectors, and every eigenvalue comes out too small. Corrected, z₁ is
    multiplied by √(i/(i−1)), with which the recursion is that of the exact covariance: in one
    dimension σ₁ is the variance of all vectors so far.

    Parameters
    ----------
    start : str, default "batch"
        ``"batch"``: from the eigenvectors and eigenvalues of the first ``begin`` vectors (the
        paper's). ``"weng"``: from nothing, v_j ← z_j the first time a residual reaches j; its σ_j
        begin as lengths, not variances, an error that decays over hundreds of vectors.
    begin : int, optional
        How many vectors a batch start waits for; the dimension unless given.
    amnesia : float, default 0.0
        l ≥ 0: how much more the newest vector counts than an old one.
    deflate : str, default "before"
        Take û_j for the deflation ``"before"`` its update (the paper's equation) or ``"after"``
        (Weng's).
    form : str, default "corrected"
        ``"corrected"``: z₁ as above. ``"paper"``: as printed, without the factor.

    Notes
    -----
    The v_j are never exactly orthogonal and can change places: they are sorted and orthonormalised
    by :meth:`components`. An update cannot be undone.
    """

    start: str = "batch"
    begin: int | None = None
    amnesia: float = 0.0
    deflate: str = "before"
    form: str = "corrected"

    def __post_init__(self) -> None:
        checks.one_of("start", self.start, ("batch", "weng"))
        if self.begin is not None:
            checks.integer("begin", self.begin, 2)
        checks.non_negative("amnesia", self.amnesia)
        checks.one_of("deflate", self.deflate, ("before", "after"))
        checks.one_of("form", self.form, ("corrected", "paper"))

    def init(self, dim: int, batch: tuple[int, ...] = ()) -> CCIPCAState:
        """The state before any vector."""
        dim = checks.dimension(dim)
        started = np.zeros(batch) if batch else 0.0
        return CCIPCAState.unchecked(
            Moments.zero(dim, batch), np.zeros((*batch, dim, dim)), started
        )

    def update(self, state: CCIPCAState, vector: npt.ArrayLike, weight: Any = 1.0) -> CCIPCAState:
        """The state after one more vector, which counts ``weight`` times."""
        new, checked = check_update(state.moments.mean, vector, weight)
        if (checked < 0).any():
            raise InputError("weight must be 0 or more: CCIPCA cannot undo an update")
        moments = state.moments.add(new, weight)
        scaled = np.array(state.scaled)
        batch = new.shape[:-1]
        started = np.array(np.broadcast_to(state.started, batch))
        weights = np.broadcast_to(np.asarray(weight, dtype=float), batch)
        counts = np.broadcast_to(moments.count, batch)
        for at in np.ndindex(batch):
            if weights[at] == 0:
                continue
            if started[at] or self.start == "weng":
                started[at] = 1.0
                centred = new[at] - moments.mean[at]
                others = float(counts[at] - weights[at])
                if self.form == "corrected" and others > 0:
                    centred = centred * np.sqrt(float(counts[at]) / others)
                self.step(scaled[at], centred, float(counts[at]), float(weights[at]))
            elif counts[at] >= (self.begin or new.shape[-1]):
                started[at] = 1.0
                values, vectors = sorted_eigh(moments.covariance[at])
                # With fewer vectors than directions the last eigenvalues are rounding.
                positive = values > 1e-12 * max(values[0], 1e-300)
                scaled[at] = np.where(positive, values, 0.0)[:, None] * vectors.T
        return CCIPCAState.unchecked(moments, scaled, started if batch else float(started))

    def step(self, scaled: Array, residual: Array, count: float, weight: float) -> None:
        """One vector's update of all v_j (rows of ``scaled``), in place."""
        new_share = min((1.0 + self.amnesia) * weight / count, 1.0)  # old weights stay ≥ 0
        tiny = 1e-14 * np.linalg.norm(residual)
        for row in scaled:
            size = float(np.linalg.norm(residual))
            length = float(np.linalg.norm(row))
            if size <= tiny:  # nothing is left: this and the others only shrink
                row *= 1.0 - new_share
                continue
            if length == 0.0:
                # No component here yet. Weng's rule takes the residual itself; after a batch start
                # it enters with the variance that this one vector contributes.
                row[:] = residual if self.start == "weng" else residual * size * new_share
                return
            unit = row / length
            row[:] = (1.0 - new_share) * row + new_share * residual * float(residual @ unit)
            if self.deflate == "after":
                updated = float(np.linalg.norm(row))
                unit = row / updated if updated > 0.0 else unit
            residual = residual - float(residual @ unit) * unit

    def components(self, state: CCIPCAState) -> Components:
        """Mean, eigenvalues and eigenvectors: exact while a batch start still collects vectors."""
        batch = state.moments.mean.shape[:-1]
        values = np.empty(state.moments.mean.shape)
        vectors = np.empty(state.scaled.shape)
        started = np.broadcast_to(state.started, batch)
        for at in np.ndindex(batch):
            if started[at]:
                values[at], vectors[at] = orthonormal(state.scaled[at])
            else:
                values[at], vectors[at] = sorted_eigh(state.moments.covariance[at])
        return Components(state.moments.mean, values, vectors)


def orthonormal(scaled: Array) -> tuple[Array, Array]:
    """Sort the v_j by length and make them an orthonormal basis, completed where some are zero."""
    lengths = np.linalg.norm(scaled, axis=1)
    order = np.argsort(-lengths, kind="stable")
    values = lengths[order]
    rank = int((values > 1e-14 * max(values[0], 1e-300)).sum())
    units = (scaled[order[:rank]] / values[:rank, None]).T
    values = np.where(np.arange(len(values)) < rank, values, 0.0)
    basis, _ = np.linalg.qr(np.hstack([units, np.eye(len(values))]))
    return values, with_fixed_signs(basis)
