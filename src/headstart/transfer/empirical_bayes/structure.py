"""What empirical Bayes reports of how tasks differ: eigenvalues, rank, weights, intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.model.prior import symmetric_root
from headstart.transfer.base import TaskStructure
from headstart.transfer.empirical_bayes.scoring import prefers_isotropic
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

MAX_SURE_SIGNAL = 10.0  # times the detection limit, from which on a direction is taken for sure


def explain(transfer: EmpiricalBayes, state: EmpiricalBayesState) -> TaskStructure:
    """Eigenvalues with intervals, and the evidence for transfer."""
    if not np.asarray(state.ready).all():
        if state.task_count < 1:
            return TaskStructure(note="no task has finished yet")
        return TaskStructure(note="no finished task has had a reward other than 0")
    values = np.linalg.eigvalsh(state.fit.covariance)[::-1]
    vectors = np.linalg.eigh(symmetric_root(state.fit.covariance))[1]
    information = (vectors * (state.known_squared @ vectors)).sum(-2)[..., ::-1]
    half = 1.96 * np.sqrt(2.0 / np.maximum(information + transfer.strength(state), 1e-9))
    notes = []
    if bool(prefers_isotropic(state)):
        notes.append("an isotropic prior predicts as well: it is used")
    if state.task_count < 1:
        notes.append("no task has finished yet: all of this is from running ones")
    if transfer.unit_free and bool(transfer.unscaled_features(state).any()):
        many = int(transfer.unscaled_features(state).sum())
        verbs = ("feature has", "is") if many == 1 else ("features have", "are")
        notes.append(f"{many} {verbs[0]} not varied yet, and {verbs[1]} ignored")
    return TaskStructure(
        eigenvalues=values,
        lower=values * np.exp(-half),
        upper=values * np.exp(half),
        support=float(state.support),
        note="; ".join(notes),
        **low_rank_findings(state),
    )


def low_rank_findings(state: EmpiricalBayesState) -> dict[str, Any]:
    """What the prior is averaged from and, where low-rank candidates count most, the rank.

    A direction c has a signal ‖W_c‖² / Σ_j Var[c, j]. Noise alone gives the largest of d directions
    one of about 1 + √(N/d), the detection limit of principal components (Baik, Ben Arous and Péché
    2005). The rank counts the directions above it; its interval is from those that are far above to
    all that are in use.
    """
    full = float(state.ensemble_weights[..., 0])
    findings: dict[str, Any] = {"weights": {"full covariance": full, "low rank": 1.0 - full}}
    if full >= 0.5:
        return findings
    low, dim = state.low_rank, state.fit.mean.shape[-1]
    limit = 1.0 + np.sqrt(float(state.counting_tasks) / dim)
    signal = np.where(low.active, low.signal, 0.0)
    sure, rank = (int((signal >= many * limit).sum()) for many in (MAX_SURE_SIGNAL, 1.0))
    most = int(low.active.sum())
    return findings | {"rank": max(rank, 1), "rank_interval": (sure, max(most, 1))}
