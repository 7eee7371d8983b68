"""Empirical Bayes: mean, covariance and noise of the population, learned from all tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, congruence, float_if_scalar
from headstart.model.evidence import Evidence
from headstart.model.prior import ONE_NOISE, Prior, symmetric_root
from headstart.records import Array, select
from headstart.transfer.base import TaskStructure, check_number_or_name, checked_evidence
from headstart.transfer.empirical_bayes import folding
from headstart.transfer.empirical_bayes.base import StandardizedTransfer
from headstart.transfer.empirical_bayes.full_covariance.fitting import leave_one_out, scoring_steps
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit, begin_fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import estimate_task_noise
from headstart.transfer.empirical_bayes.influence import own_influence
from headstart.transfer.empirical_bayes.low_rank.ensemble import average_prior, initial_ensemble
from headstart.transfer.empirical_bayes.low_rank.population import LowRank
from headstart.transfer.empirical_bayes.low_rank.update import (
    feature_scale,
    remove_from_low_rank,
    update_low_rank,
    update_noise,
)
from headstart.transfer.empirical_bayes.overflow import sound_fit, sound_step
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.refits.joint_fit import fit_roughly, fit_together
from headstart.transfer.empirical_bayes.scoring import (
    WIDE_DIM,
    candidate_covariances,
    full_prior,
    rescore_ensemble,
    score_task,
)
from headstart.transfer.empirical_bayes.state import (
    FEW_TASKS,
    FEW_TASKS_STEPS,
    EmpiricalBayesState,
    capacity,
    slots,
)
from headstart.transfer.empirical_bayes.strength import STRENGTHS, initial_scores, mean_strength
from headstart.transfer.empirical_bayes.structure import explain
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import ContextMoments
from headstart.transfer.estimates import prior_of
from headstart.transfer.partitions import Partitions


@dataclasses.dataclass(frozen=True, repr=False)
class EmpiricalBayes(StandardizedTransfer):
    """θ ~ N(μ, Σ) with μ, Σ and R learned from all tasks, without tuning parameters.

    The marginal likelihood of the tasks is maximized, with the amount of regularisation that
    predicts best: each new task is first predicted by priors of several strengths, which are
    weighted by their recent scores. Where an isotropic prior has predicted recent tasks better, by
    a nat in all, it is used instead.

    The evidence of up to 256 tasks is kept, and the fit is updated when the number of tasks has
    grown by 1/32. Older tasks are replaced by their posteriors, so that the cost of a finished task
    does not grow with their number. :meth:`refit` fits all tasks together, in any order.

    Parameters
    ----------
    decay_tasks : float or "auto", default "auto"
        ``"auto"``: all tasks count until the latest ones clearly contradict them; then only these
        do. A number: in addition, the weight of a task falls by a factor e per this many later
        tasks.
    running : bool, default True
        Whether running tasks contribute to the prior of new tasks and of each other. Decisions then
        depend on how tasks interleave.
    low_rank : bool, default True
        Whether to fit, beside the full covariance, populations in which tasks differ along a few
        directions only. The prior is an average, weighted by how well each has predicted the latest
        tasks. With many features and few tasks the low-rank populations need fewer tasks; where
        they are wrong their weight vanishes. A finished task takes about twice as long with them.
    units : {"free", "given"}, default "free"
        ``"free"``: the fit is made in standardized features, so that no decision depends on the
        units of features nor, with an intercept, on their origin. ``"given"``: the fit is made in
        the units given.
    constant : bool, default False
        Whether the last feature is 1 in every context. A :class:`~headstart.Bandit` with an
        intercept sets this.
    free_intercept : bool, default False
        Whether the population's mean intercept is not shrunk with the other coefficients. A
        :class:`~headstart.Bandit` with rewards of 0 and 1 sets this: log-odds of rare clicks are
        far from 0.

    Examples
    --------
    Tasks around (1, 2), which differ in the first coordinate only:

    >>> rng = np.random.default_rng(0)
    >>> transfer = EmpiricalBayes()
    >>> state = transfer.init(dim=2)
    >>> for _ in range(50):
    ...     contexts = rng.standard_normal((20, 2))
    ...     rewards = contexts @ (1.0 + rng.standard_normal(), 2.0) + 0.1 * rng.standard_normal(20)
    ...     state = transfer.fold(state, Evidence.of(contexts, rewards))
    >>> prior = transfer.prior(state)
    >>> prior.mean.round(1), np.sqrt(np.diag(prior.covariance)).round(1), round(prior.noise, 2)
    (array([0.8, 2. ]), array([1.3, 0. ]), 0.1)
    """

    fixed_layout: ClassVar[bool] = True

    decay_tasks: float | str = "auto"
    running: bool = True
    low_rank: bool = True

    batched = True
    traceable = True
    reversible = True
    removes_exactly = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("running", "low_rank"):
            checks.flag(name, getattr(self, name))
        check_number_or_name("decay_tasks", self.decay_tasks, ("auto",))
        if not isinstance(self.decay_tasks, str) and self.decay_tasks < 1.0:
            raise checks.invalid("decay_tasks", "'auto', or 1 task or more", self.decay_tasks)

    @property
    def counts_running(self) -> bool:
        """As set."""
        return self.running

    def init(
        self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()
    ) -> EmpiricalBayesState:
        """The state before any task."""
        dim = checks.integer("dim", dim, 1)
        known = 0.0 if noise is None else checks.positive("noise", noise)
        ones, zeros = float_if_scalar(np.ones(batch)), float_if_scalar(np.zeros(batch))
        variance = (known or 1.0) ** 2 * ones
        fit = Fit.isotropic(np.zeros((*batch, dim)), variance, variance)
        scores = np.append(initial_scores(STRENGTHS), 0.0)  # the last is of the isotropic prior
        tasks, contexts = Tasks.empty(dim, batch), ContextMoments.zero(dim, batch)
        return EmpiricalBayesState.unchecked(
            known_noise=known,
            tasks=tasks,
            past=Past.zero(dim, batch),
            fit=fit,
            candidates=np.repeat(fit.covariance[..., None, :, :], len(STRENGTHS), -3),
            scores=np.array(np.broadcast_to(scores, (*batch, len(scores)))),
            support=zeros,
            cusum=zeros,
            cusum_length=zeros,
            task_count=zeros,
            fitted_count=zeros,
            ready=zeros,
            known_squared=np.zeros((*batch, dim, dim)),
            pending_readds=0.0,
            readded_count=0.0,
            low_rank=LowRank.initial(dim, variance, batch),
            ensemble=initial_ensemble(batch),
            restarted_count=zeros,
            units=self.units_of(tasks, contexts),
            contexts=contexts,
        )

    def transform(
        self, state: EmpiricalBayesState, matrix: Array, lost: npt.NDArray[np.bool_]
    ) -> EmpiricalBayesState:
        """A state in other units; where these have nothing to do with the old ones, a new start."""
        xp = array_namespace(matrix)
        return state.replace(
            ready=float_if_scalar(xp.where(lost, 0.0, state.ready)),
            fit=state.fit.transform(matrix),
            past=state.past.transform(matrix),
            candidates=congruence(matrix[..., None, :, :], state.candidates),
            low_rank=state.low_rank.transform(matrix),
        )

    def fold(
        self, state: EmpiricalBayesState, evidence: Evidence, weight: float = 1.0
    ) -> EmpiricalBayesState:
        """Score the predictions of a finished task, keep it, and update the fit if due."""
        evidence = checked_evidence(evidence, state.fit.mean.shape)
        xp = array_namespace(evidence.gram)
        weight = checks.real("weight", weight)
        if weight < 0:
            return self.remove(state, evidence, -weight)
        if weight == 0:
            return state
        task = Tasks.of(evidence, weight)
        in_own_units = self.units_of(task, state.contexts).convert_tasks(task).with_residuals()
        task = task.replace(residual=in_own_units.residual, dof=in_own_units.dof)
        local = state.units.convert_tasks(task)
        ready = xp.asarray(state.ready)[..., None] > 0
        if not state.known_noise and (xp is not np or ready.any()):
            estimated = estimate_task_noise(state.fit, local, self.constant)
            local = local.replace(noise_variance=xp.where(ready, estimated.noise_variance, 0.0))
            task = task.replace(noise_variance=local.noise_variance)
        is_readded = state.pending_readds > 0
        state = folding.forget(self, score_task(state, local, weight, self.low_rank))
        tasks, past, most = state.tasks, state.past, capacity(evidence.dim)
        if xp is np:
            at = len(tasks) - int(is_readded * np.max(state.unfitted_count))
            tasks = tasks[:at].join(task, tasks[at:])
            if (excess := len(tasks) - most) > 0:
                past, tasks = self.retire(state, tasks[:excess]), tasks[excess:]
        else:  # the slots are a ring (see reserve), and an empty one leaves nothing to the past
            place = state.next_slot
            if len(tasks) == most:
                past = self.retire(state, tasks.take(place[..., None]))
            tasks = tasks.put(task, place)
        state = state.replace(tasks=tasks, past=past, task_count=state.task_count + 1.0)
        if is_readded and len(tasks) > FEW_TASKS:
            state = folding.join_again(self, state, local)
        return folding.update_if_due(self, state)

    def reserve(self, state: EmpiricalBayesState, finished: int) -> EmpiricalBayesState:
        """The same state with empty slots after the tasks, which count for nothing.

        The first tasks fill them one by one, and then each one that comes replaces the oldest.
        """
        empty = slots(finished, state.fit.mean.shape[-1]) - len(state.tasks)
        return state.replace(tasks=state.tasks.with_empty(empty)) if empty > 0 else state

    def retire(self, state: EmpiricalBayesState, tasks: Tasks) -> Past:
        """The past with tasks whose evidence is no longer kept."""
        return state.past.add(state.fit, state.units.convert_tasks(tasks), self.constant)

    def leave_out(
        self, state: EmpiricalBayesState, local: Tasks, sign: float = 1.0
    ) -> EmpiricalBayesState:
        """The fits without a task (or with one more), in the state's units."""
        strength, even = self.strength(state), not self.unit_free
        fit = leave_one_out(state.fit, state.known_squared, local, strength, sign, even=even)
        return state.replace(fit=fit, low_rank=remove_from_low_rank(state, local, sign))

    def strength(self, state: EmpiricalBayesState) -> Any:
        """How many regularising tasks count."""
        return state.fit.mean.shape[-1] * mean_strength(state.scores[..., :-1], STRENGTHS)

    def update_fit(
        self,
        state: EmpiricalBayesState,
        steps: int | None = None,
        survey: bool = True,
        low_rank: bool = True,
    ) -> EmpiricalBayesState:
        """Fit again what is kept.

        Without a ``survey`` other strengths are left as they were, and without ``low_rank`` that
        population is.
        """
        state = self.in_current_units(state)
        return sound_fit(lambda before: self.next_fit(before, steps, survey, low_rank), state)

    def next_fit(
        self, state: EmpiricalBayesState, steps: int | None, survey: bool, low_rank: bool
    ) -> EmpiricalBayesState:
        """The fit after its next steps, in the state's units."""
        xp = array_namespace(state.fit.mean)
        tasks = state.units.convert_tasks(state.tasks)
        if xp is np:  # elsewhere there are only tasks that were folded, which have residuals
            tasks = tasks.with_residuals()
        state = folding.restart_if_odd(state, tasks)
        fit, ready = begin_fit(state.fit, state.ready, tasks, state.known_noise)
        strength = self.strength(state)
        low_rank = low_rank and self.low_rank
        keep_noise = (xp.asarray(state.restarted_count) > 0) & low_rank
        few = (len(tasks) <= FEW_TASKS) | (xp.asarray(ready) > xp.asarray(state.ready))
        fit, sums, tasks = scoring_steps(
            steps or xp.where(few & (fit.mean.shape[-1] <= WIDE_DIM), FEW_TASKS_STEPS, 1),
            fit,
            tasks,
            state.past,
            strength,
            state.known_noise,
            constant=self.constant,
            even=not self.unit_free,
            keep_noise=keep_noise & (xp.asarray(state.ready) > 0),
            free_intercept=self.free_intercept,
        )
        fit = fit.where_ready(ready)
        low, restarted = state.low_rank, state.restarted_count
        if low_rank:
            scale = feature_scale(fit, sums, not self.unit_free)
            low, restarted = update_low_rank(state, fit, tasks, scale, self.has_level)
            if not state.known_noise:
                fitted = update_noise(low, fit, tasks, state.past, self.constant)
                fit, tasks = select(xp.asarray(restarted) > 0, fitted, (fit, tasks))
        return state.replace(
            fit=fit,
            low_rank=low,
            restarted_count=restarted,
            tasks=state.tasks.replace(**tasks.noise_fields()),
            candidates=candidate_covariances(sums, strength, fit) if survey else state.candidates,
            fitted_count=state.task_count,
            ready=ready,
            known_squared=sums.known_squared,
        )

    def remove(
        self, state: EmpiricalBayesState, evidence: Evidence, weight: float
    ) -> EmpiricalBayesState:
        """Remove a task: it is dropped where its evidence is kept, and subtracted otherwise.

        The fit takes one step against the task's gradient, if it includes the task. With few tasks,
        or where the task has moved it far, it is refitted; in the latter case the latest tasks
        score the candidates again.
        """
        tasks, past, is_fitted = state.tasks, state.past, np.ones_like(np.asarray(state.ready))
        position = tasks.find(evidence)
        if position is not None:  # if it was forgotten there is nothing to remove
            is_fitted = 1.0 * (position[..., 0] < len(tasks) - np.asarray(state.unfitted_count))
            task, tasks = tasks.pop(position, weight)
        else:  # as much as a task of the past counts on average
            older = np.maximum(state.task_count - len(tasks), 1.0)
            share = np.clip(np.asarray(past.count) / older, 0.0, 1.0)
            task = Tasks.of(evidence, weight * share)
            past = past.subtract(state.fit, state.units.convert_tasks(task), self.constant)
        readds = state.pending_readds + 1.0
        if not len(tasks) and not (np.asarray(past.count) > 0.5).any():  # none is left
            fresh = self.init(evidence.dim, state.known_noise or None, evidence.batch)
            fresh = fresh.replace(pending_readds=readds, contexts=state.contexts)
            return fresh.replace(units=self.units_of(fresh.tasks, fresh.contexts))
        count = float_if_scalar(np.maximum(state.task_count - 1.0, 0.0))
        fitted = float_if_scalar(np.maximum(state.fitted_count - is_fitted, 0.0))
        state = state.replace(tasks=tasks, past=past, task_count=count, fitted_count=fitted)
        state = state.replace(pending_readds=readds)
        steps = 8 if evidence.dim <= WIDE_DIM else 1
        if len(tasks) <= FEW_TASKS:
            return self.update_fit(state, steps)
        local = state.units.convert_tasks(task.replace(weight=task.weight * is_fitted[..., None]))
        without = sound_step(lambda before: self.leave_out(before, local), state)
        # Too far for one step: fit again from the start.
        if without is None or state.fit.differs_from(without.fit, folding.REFIT_SHIFT):
            unready = float_if_scalar(np.zeros_like(np.asarray(state.ready)))
            anew = self.update_fit(state.replace(ready=unready), steps)
            return anew.replace(ensemble=rescore_ensemble(self, anew)) if self.low_rank else anew
        return without

    def own_influence(self, state: EmpiricalBayesState, belief: Any) -> float:
        """To first order (:mod:`~headstart.transfer.empirical_bayes.influence`)."""
        return own_influence(state, belief)

    def refit(
        self,
        evidences: Iterable[Evidence],
        noise: float | None = None,
        weights: Sequence[float] | None = None,
    ) -> EmpiricalBayesState:
        """Fit all tasks together, in any order; the strength is chosen by cross-validation."""
        return fit_together(self, evidences, noise, weights)

    def refit_partitions(
        self, partitions: Partitions, noise: float | None = None
    ) -> EmpiricalBayesState:
        """Fit very many tasks: some of them together, then in a few passes over all.

        All tasks count alike: ``decay_tasks`` has no effect.
        """
        if len(partitions) <= passes.FIRST_FIT_TASKS:
            transfer = dataclasses.replace(self, decay_tasks="auto")
            return transfer.refit(partitions.evidences(), noise)
        # Callers with more tasks than that have standardized their features.
        from headstart.transfer.empirical_bayes.refits.partition_fit import fit_partitions

        return fit_partitions(dataclasses.replace(self, units="given"), partitions, noise)

    def rough_prior(self, partitions: Partitions, noise: float | None = None) -> Prior:
        """From few steps."""
        return self.prior(fit_roughly(self, partitions, noise))

    def prior(self, state: EmpiricalBayesState) -> Prior:
        """The average of the full covariance and the low-rank candidates."""
        xp = array_namespace(state.fit.mean)
        fit, count = state.fit, state.counting_tasks
        noise = xp.sqrt(xp.asarray(fit.noise_variance))
        weights = state.ensemble_weights
        mean, sigma = average_prior(weights, count, *full_prior(state), state.low_rank)
        root = symmetric_root(sigma) / noise[..., None, None]
        mean, root = state.units.to_original(mean, root)
        dof = ONE_NOISE if state.known_noise else fit.dof
        return prior_of(mean, root, float_if_scalar(noise), noise_dof=dof)

    def with_running(
        self, state: EmpiricalBayesState, running: Sequence[Evidence]
    ) -> EmpiricalBayesState:
        """Fit the running tasks too."""
        if not running:
            return state
        tasks = state.tasks.join(*(Tasks.of(evidence) for evidence in running))
        return self.update_fit(state.replace(tasks=tasks), survey=False)

    def explain(self, state: EmpiricalBayesState) -> TaskStructure:
        """Eigenvalues, ranks, the evidence for transfer, and what the prior is averaged from."""
        return explain(self, state)
