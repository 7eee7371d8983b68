"""How well priors of many strengths predict tasks that are new to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headstart.arrays import array_namespace, float_if_scalar, trace
from headstart.model.evidence import Evidence
from headstart.model.information_form import MAX_INFORMATION
from headstart.records import Array
from headstart.transfer.empirical_bayes.full_covariance.fitting import StepSums, covariance_step
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    estimate_task_noise,
    log_likelihood,
    noise_variances,
    task_likelihoods,
)
from headstart.transfer.empirical_bayes.low_rank.ensemble import (
    MAX_SCORE_TASKS,
    MIN_SCORE_TASKS,
    MIN_TASKS,
    add_ensemble_scores,
    initial_ensemble,
    low_rank_likelihoods,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.state import EmpiricalBayesState
from headstart.transfer.empirical_bayes.strength import (
    MAX_SCORE_DEFICIT,
    SCORE_DECAY,
    STRENGTHS,
    clip_scores,
    mean_strength,
)
from headstart.transfer.empirical_bayes.tasks import Tasks

if TYPE_CHECKING:
    from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

WIDE_DIM = 256  # features from which on steps are expensive
FOLDS = 4
#: Nats by which one task may prefer the isotropic prior: an outlier must not outvote the others.
MAX_ISOTROPIC_GAIN = 5.0
MAX_LIKELIHOOD = 1e100  # nats: more is no evidence but an overflow to come


def candidate_covariances(sums: StepSums, strength: Any, fit: Fit) -> Array:
    """Covariances that other strengths would give.

    With very many features every one of them would take seconds. There more regularising tasks are
    mixed in by their share, and fewer are not mixed.
    """
    xp = array_namespace(sums.root)
    dim = sums.root.shape[-1]
    strengths = dim * STRENGTHS
    if dim <= WIDE_DIM:
        each = StepSums(*(part[..., None, :, :] for part in sums))
        return covariance_step(each, strengths * xp.ones_like(xp.asarray(strength))[..., None])
    count = xp.asarray(trace(sums.known) / dim)[..., None] + 1.0
    current = xp.asarray(strength)[..., None]
    share = xp.minimum((count / (strengths + count)) / (count / (current + count)), 1.0)
    share = share[..., None, None]
    isotropic = xp.asarray(trace(fit.covariance) / dim)[..., None, None, None] * xp.eye(dim)
    return share * fit.covariance[..., None, :, :] + (1.0 - share) * isotropic


def with_task_noise(fit: Fit, tasks: Tasks, known_noise: float, constant: bool) -> Tasks:
    """The tasks with their own noise, unless R is given."""
    return tasks if known_noise else estimate_task_noise(fit, tasks.with_residuals(), constant)


def prefers_isotropic(state: EmpiricalBayesState) -> npt.NDArray[np.bool_]:
    """Whether the isotropic prior has predicted recent tasks best."""
    xp = array_namespace(state.scores)
    better = xp.asarray(state.scores[..., -1] > state.scores[..., :-1].max(-1) + 1.0)
    return xp.asarray(better & (xp.asarray(state.ready) > 0))


def score_task(
    state: EmpiricalBayesState, task: Tasks, weight: float, low_rank: bool = True
) -> EmpiricalBayesState:
    """Score every candidate's prediction of a task that is new to it, in the state's units.

    Without ``low_rank`` there are no such candidates.
    """
    xp = array_namespace(state.scores)
    if state.pending_readds > 0:
        return state.replace(pending_readds=state.pending_readds - 1.0)
    fit, evidence = state.fit, task.task(0)
    own_variance = task.noise_variance[..., 0]
    variance = xp.where(own_variance > 0, own_variance, fit.noise_variance)
    counts = (xp.asarray(state.ready) > 0) * (xp.asarray(evidence.rounds) > 0) * weight
    # A task with a context far out of range is not scored.
    spread = trace(fit.covariance + fit.error)[..., None]
    diagonal = xp.diagonal(evidence.gram, axis1=-2, axis2=-1)
    reach = diagonal / xp.asarray(variance)[..., None] * spread
    counts = counts * (reach.max(-1) <= MAX_INFORMATION)
    if xp is np and not counts.any():
        return state
    before = state
    informed = log_likelihood(
        fit.mean, state.candidates + fit.error[..., None, :, :], variance, evidence
    )
    alone = log_likelihood(*fit.isotropic_moments(), variance, evidence)
    latest = xp.concatenate([informed, xp.asarray(alone)[..., None]], -1)
    # Nor does one whose rewards are so far out of range that squares of them are not finite.
    counts = counts * (xp.abs(latest).max(-1) < MAX_LIKELIHOOD)
    latest = xp.where(counts[..., None] > 0, latest, 0.0)
    informed, alone = latest[..., :-1], latest[..., -1]
    most = informed.max(-1) + MAX_ISOTROPIC_GAIN
    latest = xp.concatenate([informed, xp.minimum(alone, most)[..., None]], -1)
    latest = clip_scores(latest, latest.max(-1, keepdims=True))
    new = SCORE_DECAY**weight * state.scores + counts[..., None] * latest
    new = new - new.max(-1, keepdims=True)
    used = mean_strength(state.scores[..., :-1], STRENGTHS)
    nearest = xp.abs(xp.log(STRENGTHS) - xp.log(used)[..., None]).argmin(-1)
    gain = xp.take_along_axis(informed, nearest[..., None], -1)[..., 0] - alone
    cusum = xp.minimum(state.cusum + counts * xp.maximum(gain, -MAX_SCORE_DEFICIT), 0.0)
    length = xp.where(cusum < 0, xp.asarray(state.cusum_length) + (counts > 0), 0.0)
    state = state.replace(
        scores=xp.where(counts[..., None] > 0, new, state.scores),
        cusum=float_if_scalar(cusum),
        cusum_length=float_if_scalar(length),
    )
    fitted = xp.asarray(state.restarted_count) > 0
    if not low_rank or (xp is np and not fitted.any()):
        return state.replace(support=float_if_scalar(state.support + counts * gain))
    return score_ensemble(before, state, variance, evidence, counts, gain + alone, alone)


def score_ensemble(
    before: EmpiricalBayesState,
    state: EmpiricalBayesState,
    variance: Array,
    evidence: Evidence,
    counts: Array,
    informed: Array,
    alone: Array,
) -> EmpiricalBayesState:
    """Score the full covariance, as it was used, and the low-rank candidates.

    ``informed`` and ``alone`` are the log-likelihoods of the full covariance and of the prior that
    is isotropic; the support is that of the average.
    """
    xp = array_namespace(state.scores)
    count, weights = before.counting_tasks, before.ensemble_weights
    full = xp.asarray(log_likelihood(*full_prior(before), variance, evidence))
    others = low_rank_likelihoods(before.low_rank, count, variance, evidence)
    counts = counts * (xp.abs(others).max(-1) < MAX_LIKELIHOOD) * (xp.abs(full) < MAX_LIKELIHOOD)
    others = xp.where(counts[..., None] > 0, others, 0.0)
    best = xp.maximum(informed, others.max(-1))[..., None]
    shares = xp.exp(xp.concatenate([informed[..., None], others], -1) - best)
    learned = best[..., 0] + xp.log(xp.maximum((weights * shares).sum(-1), 1e-300))
    latest = xp.concatenate([full[..., None], others], -1)
    fitted = xp.asarray(state.restarted_count) > 0
    scored = (counts > 0) & (xp.asarray(count) >= MIN_TASKS) & fitted
    ensemble = add_ensemble_scores(before.ensemble, latest, counts, count)
    return state.replace(
        ensemble=xp.where(scored[..., None], ensemble, before.ensemble),
        support=float_if_scalar(before.support + counts * (learned - alone)),
    )


def full_prior(state: EmpiricalBayesState) -> tuple[Array, Array]:
    """N(μ, Σ), what μ is uncertain by included; or N(0, s² I) where that has predicted better."""
    xp = array_namespace(state.fit.mean)
    fit, isotropic = state.fit, prefers_isotropic(state)
    zero, size = fit.isotropic_moments()
    mean = xp.where(isotropic[..., None], zero, fit.mean)
    return mean, xp.where(isotropic[..., None, None], size, fit.covariance + fit.error)


def score_held_out(
    start: EmpiricalBayesState, fit: Fit, candidates: Array, tasks: Tasks
) -> tuple[Array, float]:
    """Scores of all strengths on tasks that are new to a fit; every one of them counts.

    Also the support: by how much the strength that did best has predicted them better than the
    isotropic prior.
    """
    zeros = np.zeros_like(fit.error)
    populations = [fit.replace(covariance=sigma, error=zeros) for sigma in candidates + fit.error]
    mean, covariance = fit.isotropic_moments()
    populations.append(fit.replace(mean=mean, covariance=covariance, error=zeros))
    counts = (tasks.rounds > 0) * tasks.weight
    # One by one, to save memory.
    likelihoods = np.stack([task_likelihoods(each, tasks) for each in populations])
    total = clip_scores(likelihoods, likelihoods.max(0)) @ counts
    scores = start.scores + total
    best = scores[:-1].argmax()
    return scores - scores.max(), float((likelihoods[best] - likelihoods[-1]) @ counts)


def score_ensemble_held_out(
    start: EmpiricalBayesState, fit: Fit, low: LowRank, count: float, tasks: Tasks
) -> Array:
    """Scores of the full covariance and the low-rank candidates on tasks new to both."""
    whole = fit.replace(covariance=fit.covariance + fit.error, error=np.zeros_like(fit.error))
    full = task_likelihoods(whole, tasks)
    variance = noise_variances(fit, tasks)
    scores = start.ensemble
    for at in np.flatnonzero((tasks.rounds > 0) & (tasks.weight > 0)):
        others = low_rank_likelihoods(low, count, variance[at], tasks.task(int(at)))
        latest = np.append(full[at], others)
        scores = add_ensemble_scores(scores, latest, float(tasks.weight[at]), count)
    return scores


def rescore_ensemble(transfer: EmpiricalBayes, state: EmpiricalBayesState) -> Array:
    """Ensemble scores of the latest tasks kept, each predicted by the fits without it.

    For a fit that was repeated because removing a task had moved it: earlier scores are of other
    fits, and of that task.
    """
    scores, dim = initial_ensemble(np.shape(state.ready)), state.fit.mean.shape[-1]
    if not np.any(state.restarted_count):
        return scores
    local = state.units.convert_tasks(state.tasks)
    variances = noise_variances(state.fit, local)
    scored = int(MAX_SCORE_TASKS if dim <= WIDE_DIM else MIN_SCORE_TASKS)
    for at in range(max(len(local) - scored, 0), len(local)):
        others = np.arange(len(local)) != at
        left = state.replace(tasks=state.tasks.replace(weight=state.tasks.weight * others))
        without = transfer.leave_out(left, local[at : at + 1])
        evidence, variance = local.task(at), variances[..., at]
        full = np.asarray(log_likelihood(*full_prior(without), variance, evidence))
        count = left.counting_tasks
        low = low_rank_likelihoods(without.low_rank, count, variance, evidence)
        latest = np.concatenate([full[..., None], low], -1)
        counts = (np.asarray(evidence.rounds) > 0) & (local.weight[..., at] > 0)
        counts = counts & (np.asarray(state.ready) > 0) & (np.asarray(count) >= MIN_TASKS)
        counts = counts & np.isfinite(latest).all(-1)
        rescored = add_ensemble_scores(scores, latest, counts * 1.0, count)
        scores = np.where(counts[..., None], rescored, scores)
    return scores


def cross_validate(
    transfer: EmpiricalBayes,
    state: EmpiricalBayesState,
    sample: Tasks,
    tasks: int,
    schedule: Sequence[int] = (),
) -> tuple[Array, Array, Any]:
    """Scores of all strengths and of the ensemble on tasks left out, and the support.

    They are as if the latest tasks had given them.

    ``sample`` stands for ``tasks`` tasks. The ``schedule`` says after how many steps each the
    strengths are scored.
    """
    count, folds = len(sample), min(len(sample), FOLDS)
    if folds < 2:
        return state.scores, state.ensemble, state.support
    recent = min(count, 1.0 / (1.0 - SCORE_DECAY))
    parts = [np.arange(count) % folds == fold for fold in range(folds)]
    fitted = [state.replace(tasks=sample[~held]) for held in parts]
    scores, support = state.scores, state.support
    wide = sample.gram.shape[-1] > WIDE_DIM
    # Candidates are exact only near the strength of the fit: choose, fit, and choose again.
    for steps in schedule or ((4, 2, 2) if wide else (8, 8, 8)):
        total: Any = np.zeros_like(state.scores)
        average: Any = np.zeros_like(state.ensemble)
        support = np.zeros_like(np.asarray(state.support))
        for fold, held in enumerate(parts):
            start = fitted[fold].replace(scores=scores)
            fitted[fold] = transfer.update_fit(start, steps)
            judge = fitted[fold].replace(
                scores=np.zeros_like(scores), ensemble=np.zeros_like(state.ensemble)
            )
            local = with_task_noise(
                judge.fit,
                judge.units.convert_tasks(sample),
                state.known_noise,
                transfer.constant,
            )
            for at in np.flatnonzero(held):
                judged = score_task(judge, local[at : at + 1], 1.0)
                total += judged.scores
                average += judged.ensemble
                support = support + judged.support
        scores = state.scores + total * (recent / count)
    ensemble = state.ensemble + average * (recent / count)
    return scores, ensemble, float_if_scalar(support * (tasks / count))
