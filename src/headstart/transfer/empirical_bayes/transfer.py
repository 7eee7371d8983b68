"""Empirical Bayes: mean, covariance and noise of the population, learned from all tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import float_if_scalar, matvec, trace
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.graded import HUGE
from headstart.model.prior import ONE_NOISE, Prior, symmetric_root
from headstart.records import Array, Record
from headstart.transfer.base import Explanation, Transfer, checked_evidence
from headstart.transfer.empirical_bayes.fitting import (
    Pass,
    Past,
    improve,
    left_out,
    log_likelihood,
    shrunk,
    task_likelihoods,
    with_own_noise,
)
from headstart.transfer.empirical_bayes.many import (
    Fit,
    Tasks,
    chosen,
    fixed_order,
    mean_square,
    started_from,
)
from headstart.transfer.empirical_bayes.passes import (
    SAMPLE,
    STEPS,
    Passes,
    as_tasks,
    past_from,
    stepped,
    totals_of,
    totals_of_tasks,
)
from headstart.transfer.empirical_bayes.strength import (
    RECENT,
    WORST,
    bounded,
    first_scores,
    strength_in_use,
)
from headstart.transfer.empirical_bayes.units import (
    Offers,
    Units,
    changed,
    changed_fit,
    converted,
    far_apart,
)
from headstart.transfer.noise import own_scale
from headstart.transfer.partitions import Partitions

__all__ = ["EmpiricalBayes"]

#: Strengths that are tried, as multiples of the dimension.
STRENGTHS = 10.0 ** np.arange(-2.5, 1.01, 0.5)
OFTEN = 32  # the fit is renewed whenever tasks have grown by this fraction of themselves
KEPT = 256  # tasks whose evidence is kept at hand, at most
SPACE = 2**21  # numbers that it may take, about
WIDE = 256  # features from which on steps are dear
FAR = 0.2  # a change of the fit, as a share of the tasks' spread
OWN = ("noise", "residual", "freedom")  # what is found of each task
FEW = 8  # tasks with which the fit takes several steps at a time
JUDGED = 5, 11  # steps on a few of very many tasks after which strengths are judged
CHANGED = 60.0  # evidence, in nats, that tasks are no longer like those before


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmpiricalBayesState(Record):
    """What is kept of the tasks, the fit, and how well it has predicted.

    ``given`` is R where the caller knows it, else 0. ``candidates`` are covariances of other
    strengths; ``scores`` the recent log-likelihoods of new tasks under these and, last, under a
    prior that knows only the tasks' size. ``support`` is the sum of all evidence for transfer,
    ``against`` what the latest tasks hold against it, ``since`` how many they are. ``finished``
    counts the tasks, ``renewed`` those at the last fit; ``squared`` is Σ K² there. ``owed`` is how
    many tasks were taken out: as many folds are taken to be the same tasks again, which were scored
    before. The tasks' evidence is in the units given; everything else is in ``units``, which the
    evidence tells, or the contexts that were on offer (``offers``).
    """

    given: float
    tasks: Tasks
    past: Past
    fit: Fit
    candidates: Array
    scores: Array
    support: Any
    against: Any
    since: Any
    finished: float
    renewed: float
    ready: Any
    squared: Array
    owed: float
    units: Units
    offers: Offers


@dataclasses.dataclass(frozen=True, repr=False)
class EmpiricalBayes(Transfer):
    """θ ~ N(μ, Σ) with μ, Σ and R learned from all tasks: nothing to choose, nothing to tune.

    The maximum of the tasks' marginal likelihood, with as much regularisation as predicts best:
    each new task is first predicted by priors of many strengths, and those that did well recently
    decide. Where a prior that knows only the size of θ predicts as well, that is used: a task never
    fares worse for what others have shown.

    Evidence of up to 256 tasks is kept and fitted anew, whenever tasks have grown by a few per
    cent; older tasks stay as their posteriors, so that a finished task costs the same however many
    there were. :meth:`refit` fits all tasks together, in any order.

    Parameters
    ----------
    decay_tasks
        ``"auto"``: everything counts until the latest tasks clearly contradict it, then only they
        do. A number: besides, a task's weight falls by a factor e for every so many tasks that
        came after it.
    running
        Whether unfinished tasks count for what they know: new tasks learn from them, and they from
        each other. Then decisions depend on how tasks interleave.
    units
        ``"free"``: the fit is made in standardized features, so that no decision depends on
        the units of features, nor, with an intercept, on where their scales begin. ``"given"``:
        features count as they come.
    constant
        Whether the last feature is 1 in every context. A :class:`~headstart.Bandit` with an
        intercept sets this.

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

    decay_tasks: float | str = "auto"
    running: bool = True
    units: str = "free"
    constant: bool = dataclasses.field(default=False, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("running", "constant"):
            if not isinstance(getattr(self, name), bool):
                raise checks.refuse(name, "True or False", getattr(self, name))
        checks.one_of("units", self.units, ("free", "given"))
        if isinstance(self.decay_tasks, str):
            checks.one_of("decay_tasks", self.decay_tasks, ("auto",))
        elif checks.positive("decay_tasks", self.decay_tasks) < 1.0:
            raise checks.refuse("decay_tasks", "'auto', or 1 task or more", self.decay_tasks)

    @property
    def batched(self) -> bool:
        """Leading axes go through."""
        return True

    @property
    def reversible(self) -> bool:
        """A task whose evidence is at hand is dropped; an older one is subtracted."""
        return True

    @property
    def removes_exactly(self) -> bool:
        """A task is taken back without loss."""
        return True

    @property
    def counts_running(self) -> bool:
        """As set."""
        return self.running

    @property
    def unit_free(self) -> bool:
        """As set."""
        return self.units == "free"

    def with_constant(self, constant: bool) -> EmpiricalBayes:
        """The same, told whether the last feature is the intercept."""
        return dataclasses.replace(self, constant=constant)

    def init(
        self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()
    ) -> EmpiricalBayesState:
        """The state before any task."""
        dim = checks.integer("dim", dim, 1)
        given = 0.0 if noise is None else checks.positive("noise", noise)
        ones, zeros = float_if_scalar(np.ones(batch)), float_if_scalar(np.zeros(batch))
        size = given or 1.0
        fit = Fit.isotropic(np.zeros((*batch, dim)), size**2 * ones, size**2 * ones)
        scores = np.append(first_scores(STRENGTHS), 0.0)  # the last knows only a size
        several = np.repeat(fit.covariance[..., None, :, :], len(STRENGTHS), -3)
        return EmpiricalBayesState.unchecked(
            given,
            Tasks.none(dim, batch),
            Past.nothing(dim, batch),
            fit,
            several,
            np.array(np.broadcast_to(scores, (*batch, len(scores)))),
            zeros,
            zeros,
            zeros,
            0.0,
            0.0,
            zeros,
            np.zeros((*batch, dim, dim)),
            0.0,
            self.units_of(Tasks.none(dim, batch), Offers.none(dim, batch)),
            Offers.none(dim, batch),
        )

    def units_of(self, tasks: Tasks, offers: Offers) -> Units:
        """The units to fit in."""
        if not self.unit_free:
            return Units.given(tasks.moment.shape[-1], tasks.weight.shape[:-1])
        return Units.of(tasks, offers, self.constant)

    def observe_contexts(self, state: EmpiricalBayesState, contexts: Array) -> EmpiricalBayesState:
        """Take the units of features from contexts on offer, where no reward has told them."""
        return self.in_new_units(state.replace(offers=state.offers.add(contexts)))

    def carry_contexts(
        self, state: EmpiricalBayesState, earlier: EmpiricalBayesState
    ) -> EmpiricalBayesState:
        """A state, told of the contexts on offer that an earlier one was told of."""
        return self.in_new_units(state.replace(offers=earlier.offers))

    def unscaled_features(self, state: EmpiricalBayesState) -> npt.NDArray[np.bool_]:
        """Which features have not varied yet."""
        return np.asarray(state.units.inverse == 0.0)

    def in_new_units(self, state: EmpiricalBayesState) -> EmpiricalBayesState:
        """The same state in the units that its tasks tell."""
        if not self.unit_free:
            return state
        units = self.units_of(state.tasks, state.offers)
        matrix = converted(state.units, units)
        if matrix is None:
            return state
        past = state.past
        lost = far_apart(state.units, units)
        return state.replace(
            ready=float_if_scalar(np.where(lost, 0.0, state.ready)),
            fit=changed_fit(state.fit, matrix),
            past=past.replace(
                first=matvec(matrix, past.first), second=changed(past.second, matrix)
            ),
            candidates=changed(state.candidates, matrix[..., None, :, :]),
            units=units,
        )

    def fold(
        self, state: EmpiricalBayesState, evidence: Evidence, weight: float = 1.0
    ) -> EmpiricalBayesState:
        """Score the predictions of a finished task, keep its evidence, and renew the fit if due."""
        evidence = checked_evidence(evidence, state.fit.mean.shape).replace(forced=None)
        weight = checks.real("weight", weight)
        if weight < 0:
            return self.without(state, evidence, -weight)
        if weight == 0:
            return state
        task = Tasks.of(evidence, weight)
        alone = self.units_of(task, state.offers).tasks(task).with_residuals()
        task = task.replace(residual=alone.residual, freedom=alone.freedom)
        local = state.units.tasks(task)
        if not state.given and np.asarray(state.ready).all():
            local = with_own_noise(state.fit, local, self.constant)
            task = task.replace(noise=local.noise)
        again = state.owed > 0
        state = self.forgotten(scored(state, local, weight))
        tasks, past = state.tasks.join(task), state.past
        over = len(tasks) - capacity(evidence.dim)
        if over > 0:
            past, tasks = self.aged(state, past, tasks[:over]), tasks[over:]
        state = state.replace(tasks=tasks, past=past, finished=state.finished + 1.0)
        if again and len(tasks) > FEW:
            strength = self.strength(state)
            fit = left_out(state.fit, state.squared, local, strength, -1.0, even=not self.unit_free)
            state = state.replace(fit=fit)
        # How many tasks count, where they fade or were forgotten.
        counting = np.max(state.tasks.weight.sum(-1) + np.asarray(past.count))
        due = state.finished >= state.renewed + min(counting, state.renewed) / OFTEN
        return self.renewed(state) if due else state

    def aged(self, state: EmpiricalBayesState, past: Past, tasks: Tasks, sign: float = 1.0) -> Past:
        """The past with tasks whose evidence is no longer kept."""
        return past.add(state.fit, state.units.tasks(tasks), sign, self.constant)

    def strength(self, state: EmpiricalBayesState) -> Any:
        """How many regularising tasks count."""
        return state.fit.mean.shape[-1] * strength_in_use(state.scores[..., :-1], STRENGTHS)

    def forgotten(self, state: EmpiricalBayesState) -> EmpiricalBayesState:
        """Older tasks count less, or not at all if the latest ones contradict them."""
        changed = np.asarray((state.against < -CHANGED) & (np.asarray(state.since) >= 3))
        fade = 1.0 if isinstance(self.decay_tasks, str) else float(np.exp(-1.0 / self.decay_tasks))
        if fade == 1.0 and not changed.any():
            return state
        age = np.arange(len(state.tasks))[::-1]
        recent = age < np.asarray(state.since)[..., None] - 1.0  # the newest is not among them yet
        keep = np.where(changed[..., None] & ~recent, 0.0, fade)
        dim = state.fit.mean.shape[-1]
        fresh = self.init(dim, state.given or None, np.shape(state.against))
        return state.replace(
            tasks=state.tasks.replace(weight=state.tasks.weight * keep),
            past=state.past.scaled(float_if_scalar(np.where(changed, 0.0, fade))),
            scores=np.where(changed[..., None], fresh.scores, state.scores),
            ready=float_if_scalar(np.where(changed, 0.0, state.ready)),
            against=float_if_scalar(np.where(changed, 0.0, state.against)),
            since=float_if_scalar(np.where(changed, 0.0, state.since)),
            renewed=0.0 if changed.any() else state.renewed,
        )

    def renewed(
        self, state: EmpiricalBayesState, steps: int | None = None, survey: bool = True
    ) -> EmpiricalBayesState:
        """Fit again what is kept; without a ``survey``, other strengths are left as they were."""
        state = self.in_new_units(state)
        tasks = state.units.tasks(state.tasks).with_residuals()
        fit, ready = started(state, tasks)
        strength = self.strength(state)
        few = len(tasks) <= FEW or bool((np.asarray(ready) > np.asarray(state.ready)).any())
        taken = None
        wide = fit.mean.shape[-1] > WIDE
        for _ in range(steps or (6 if few and not wide else 1)):
            fit, taken, tasks = improve(
                fit,
                tasks,
                state.past,
                strength,
                state.given,
                constant=self.constant,
                even=not self.unit_free,
            )
        assert taken is not None
        fresh = Fit.isotropic(
            np.zeros_like(fit.mean), np.ones_like(strength), np.ones_like(strength)
        )
        use = np.asarray(ready) > 0
        return state.replace(
            fit=chosen(use, fit, fresh) if not use.all() else fit,
            tasks=state.tasks.replace(
                noise=tasks.noise, residual=tasks.residual, freedom=tasks.freedom
            ),
            candidates=surveyed(taken, strength, fit) if survey else state.candidates,
            renewed=state.finished,
            ready=ready,
            squared=taken.squared,
        )

    def without(
        self, state: EmpiricalBayesState, evidence: Evidence, weight: float
    ) -> EmpiricalBayesState:
        """Take a task out again: dropped where its evidence is at hand, subtracted otherwise.

        The fit takes one step against the task's own gradient; with few tasks it is made anew.
        """
        tasks, past = state.tasks, state.past
        task = Tasks.of(evidence, weight)
        same = (
            (tasks.squares == np.asarray(evidence.squares)[..., None])
            & (tasks.rounds == np.asarray(evidence.rounds)[..., None])
            & (tasks.moment == evidence.moment[..., None, :]).all(-1)
        )
        if same.any(-1).all():  # if it was forgotten there is nothing left to take
            at = np.asarray(np.where(same, 1.0 + tasks.weight, 0.0).argmax(-1))[..., None]
            task = tasks.taken(at)
            task = task.replace(weight=np.minimum(weight, task.weight))
            left = tasks.weight.copy()
            np.put_along_axis(left, at, np.take_along_axis(left, at, -1) - task.weight, -1)
            tasks = tasks.replace(weight=left)
            tasks = tasks[np.flatnonzero((left > 0).any(tuple(range(left.ndim - 1))))]
        else:  # as much as a task of the past counts on average
            older = max(state.finished - len(tasks), 1.0)
            share = np.clip(np.asarray(past.count) / older, 0.0, 1.0)
            task = Tasks.of(evidence, weight * share)
            past = self.aged(state, past, task, sign=-1.0)
        finished = max(state.finished - 1.0, 0.0)
        if not len(tasks) and not (np.asarray(past.count) > 0.5).any():  # none is left
            fresh = self.init(evidence.dim, state.given or None, evidence.batch)
            return self.carry_contexts(fresh.replace(owed=state.owed + 1.0), state)
        state = state.replace(tasks=tasks, past=past, finished=finished, owed=state.owed + 1.0)
        steps = 8 if evidence.dim <= WIDE else 1
        if len(tasks) <= FEW:
            return self.renewed(state, steps=steps)
        local, even = state.units.tasks(task), not self.unit_free
        fit = left_out(state.fit, state.squared, local, self.strength(state), even=even)
        if moved_far(state.fit, fit):  # further than one step can tell: from the beginning
            blank = float_if_scalar(np.zeros_like(np.asarray(state.ready)))
            return self.renewed(state.replace(ready=blank), steps=steps)
        return state.replace(fit=fit)

    def refit(
        self,
        evidences: Iterable[Evidence],
        noise: float | None = None,
        weights: Sequence[float] | None = None,
    ) -> EmpiricalBayesState:
        """Fit all tasks together, whatever their order; the strength by cross-validation."""
        found = list(evidences)
        if not found:
            raise InputError("evidences must hold at least one task; got none")
        first = found[0]
        state = self.init(first.dim, noise, first.batch)
        parts = []
        for position, evidence in enumerate(found):
            weight = 1.0 if weights is None else checks.real("weight", weights[position])
            evidence = checked_evidence(evidence, state.fit.mean.shape)
            parts.append(Tasks.of(evidence, weight))
        everything = Tasks.join(*parts)
        if not isinstance(self.decay_tasks, str):
            age = np.arange(len(found))[::-1]
            everything = everything.replace(
                weight=everything.weight * np.exp(-age / self.decay_tasks)
            )
        order = fixed_order(everything)
        arranged = everything[order]
        scores, support = cross_validated(self, state, arranged)
        state = state.replace(scores=scores, support=support)
        state = self.renewed(state.replace(tasks=arranged), steps=12)
        for _ in range(40):
            before = state.fit.covariance
            state = self.renewed(state, steps=2)
            if np.abs(state.fit.covariance - before).max() <= 1e-9 * np.abs(before).max():
                break
        over = max(len(everything) - capacity(first.dim), 0)
        count = float(len(found))
        if over:
            back = np.argsort(order)
            known = {name: getattr(state.tasks, name)[..., back] for name in OWN}
            everything = everything.replace(**known)
            state = state.replace(past=self.aged(state, state.past, everything[:over]))
        return state.replace(tasks=everything[over:], finished=count, renewed=count)

    @property
    def partition_passes(self) -> int:
        """One for each step."""
        return len(STEPS)

    def refit_partitions(
        self, partitions: Partitions, noise: float | None = None
    ) -> EmpiricalBayesState:
        """Fit very many tasks: some of them together, then in a few passes over all.

        Now and then the priors of all strengths predict the last tasks, which are left out of
        the fit for that; those that do well decide on the strength of the next, and whether tasks
        share anything at all. None counts less for being older, whatever ``decay_tasks`` says.
        """
        count, dim = len(partitions), partitions.dim
        if count <= SAMPLE:
            return dataclasses.replace(self, decay_tasks="auto").refit(partitions.each(), noise)
        if self.unit_free:  # whoever has so many tasks has standardized them
            return dataclasses.replace(self, units="given").refit_partitions(partitions, noise)
        start = self.init(dim, noise)
        first = as_tasks(Evidence.unpack(partitions.slice(0, SAMPLE), dim))
        state = self.renewed(start.replace(tasks=first), steps=6)
        if not state.ready:  # no reward at all
            return state.replace(finished=float(count), renewed=float(count))
        last = partitions.slice(count - min(capacity(dim), count // 4), count)
        held = as_tasks(Evidence.unpack(last, dim))
        fit, scores, support = state.fit, state.scores, state.support
        passes = Passes(partitions)
        for step, whole in enumerate(STEPS):
            totals = others = passes.over(whole, totals_of, fit)
            if passes.complete:
                others = totals.minus(totals_of_tasks(fit, held))
            before, strength = fit, dim * strength_in_use(scores[..., :-1], STRENGTHS)
            fit, taken = stepped(before, others, strength, state.given)
            if whole or step in JUDGED:
                held = own_noises(fit, held, state.given, self.constant)
                scores, support = judged(start, fit, surveyed(taken, strength, fit), held)
        # The last step once more, with these tasks and the strength that they have chosen.
        strength = dim * strength_in_use(scores[..., :-1], STRENGTHS)
        fit, taken = stepped(before, totals, strength, state.given)
        return state.replace(
            tasks=own_noises(fit, held, state.given, self.constant),
            past=past_from(before, others),
            fit=fit,
            candidates=surveyed(taken, strength, fit),
            scores=scores,
            support=support * count / len(held),
            squared=taken.squared,
            finished=float(count),
            renewed=float(count),
        )

    def prior(self, state: EmpiricalBayesState) -> Prior:
        """N(μ, Σ), what μ is uncertain by included; or N(0, s² I) if that has predicted better."""
        fit = state.fit
        noise = np.sqrt(np.asarray(fit.noise))
        dim = fit.mean.shape[-1]
        sigma = fit.covariance + fit.error
        lone = alone_is_better(state)
        mean = np.where(lone[..., None], 0.0, fit.mean)
        size = mean_square(fit)[..., None, None] * np.eye(dim)
        sigma = np.where(lone[..., None, None], size, sigma)
        root = symmetric_root(sigma) / noise[..., None, None]
        mean, root = state.units.undone(mean, root)
        freedom = ONE_NOISE if state.given else fit.freedom
        return Prior(mean, root, noise=noise, noise_freedom=freedom)

    def with_running(
        self, state: EmpiricalBayesState, running: Sequence[Evidence]
    ) -> EmpiricalBayesState:
        """Fit the running tasks too."""
        if not running:
            return state
        tasks = state.tasks.join(*(Tasks.of(evidence) for evidence in running))
        return self.renewed(state.replace(tasks=tasks), survey=False)

    def single_task_prior(self, state: EmpiricalBayesState, evidence: Evidence) -> Prior:
        """The prior of a task while no other can tell the scale of θ and of the noise."""
        units = self.units_of(Tasks.of(evidence), state.offers)
        noise, lam = own_scale(units.evidence(evidence))
        root = np.eye(evidence.dim) / np.sqrt(np.asarray(lam))[..., None, None]
        mean, root = units.undone(np.zeros_like(evidence.moment), root)
        return Prior(mean, root, noise=noise, noise_freedom=0.0)

    def explain(self, state: EmpiricalBayesState) -> Explanation:
        """Eigenvalues with intervals, the effective rank, and the evidence for transfer."""
        if not np.asarray(state.ready).all():
            return Explanation(note="no task has finished yet")
        values = np.linalg.eigvalsh(state.fit.covariance)[::-1]
        vectors = np.linalg.eigh(symmetric_root(state.fit.covariance))[1]
        information = (vectors * (state.squared @ vectors)).sum(-2)[..., ::-1]
        half = 1.96 * np.sqrt(2.0 / np.maximum(information + self.strength(state), 1e-9))
        total = float(values.sum())
        notes = []
        if bool(alone_is_better(state)):
            notes.append("a prior that knows only the size of θ predicts as well: it is used")
        if state.finished < 1:
            notes.append("no task has finished yet: all of this is from running ones")
        if self.unit_free and bool(self.unscaled_features(state).any()):
            many = int(self.unscaled_features(state).sum())
            notes.append(f"{many} features have not varied yet, and have no say")
        return Explanation(
            eigenvalues=values,
            lower=values * np.exp(-half),
            upper=values * np.exp(half),
            effective_rank=total**2 / float((values**2).sum()) if total > 0 else None,
            support=float(state.support),
            note="; ".join(notes),
        )


def surveyed(taken: Pass, strength: Any, fit: Fit) -> Array:
    """Covariances that other strengths would give.

    With very many features every one of them would take seconds. There more regularising tasks are
    mixed in by their share, and fewer are not tried.
    """
    dim = taken.root.shape[-1]
    many = dim * STRENGTHS
    if dim <= WIDE:
        return np.stack([shrunk(taken, each * np.ones_like(strength)) for each in many], -3)
    count = np.asarray(trace(taken.known) / dim)[..., None] + 1.0
    now = np.asarray(strength)[..., None]
    share = np.minimum((count / (many + count)) / (count / (now + count)), 1.0)[..., None, None]
    even = np.asarray(trace(fit.covariance) / dim)[..., None, None, None] * np.eye(dim)
    tried: Array = share * fit.covariance[..., None, :, :] + (1.0 - share) * even
    return tried


def moved_far(before: Fit, after: Fit) -> bool:
    """Whether a fit has moved by more than a small part of the tasks' spread."""
    spread = np.diagonal(before.covariance, axis1=-2, axis2=-1)
    scale = np.sqrt(spread[..., :, None] * spread[..., None, :])
    wider = np.abs(after.covariance - before.covariance) > FAR * scale
    return bool(wider.any() or ((after.mean - before.mean) ** 2 > FAR**2 * spread).any())


def own_noises(fit: Fit, tasks: Tasks, given: float, constant: bool) -> Tasks:
    """The tasks with their own noise, unless R is given."""
    return tasks if given else with_own_noise(fit, tasks.with_residuals(), constant)


def capacity(dim: int) -> int:
    """How many tasks' evidence is kept at hand."""
    return int(np.clip(SPACE // dim**2, OFTEN, KEPT))


def alone_is_better(state: EmpiricalBayesState) -> npt.NDArray[np.bool_]:
    """Whether the prior that knows only a size has predicted recent tasks best."""
    better = np.asarray(state.scores[..., -1] > state.scores[..., :-1].max(-1) + 1.0)
    return np.asarray(better & (np.asarray(state.ready) > 0))


def scored(state: EmpiricalBayesState, task: Tasks, weight: float) -> EmpiricalBayesState:
    """Hold every candidate's prediction against a task that is new to it, in the state's units."""
    if state.owed > 0:
        return state.replace(owed=state.owed - 1.0)
    fit, evidence = state.fit, task.task(0)
    noise = np.where(task.noise[..., 0] > 0, task.noise[..., 0], fit.noise)
    counts = (np.asarray(state.ready) > 0) * (np.asarray(evidence.rounds) > 0) * weight
    # A task with a context far out of all others' range says nothing of how well it was predicted.
    spread = trace(fit.covariance + fit.error)[..., None]
    reach = np.diagonal(evidence.gram, axis1=-2, axis2=-1) / np.asarray(noise)[..., None] * spread
    counts = counts * (reach.max(-1) <= HUGE)
    if not counts.any():
        return state
    informed = log_likelihood(
        fit.mean, state.candidates + fit.error[..., None, :, :], noise, evidence
    )
    size = mean_square(fit)[..., None, None] * np.eye(fit.mean.shape[-1])
    alone = log_likelihood(np.zeros_like(fit.mean), size, noise, evidence)
    all_scores = np.concatenate([informed, np.asarray(alone)[..., None]], -1)
    all_scores = bounded(all_scores, all_scores.max(-1, keepdims=True))
    new = RECENT**weight * state.scores + counts[..., None] * all_scores
    new = new - new.max(-1, keepdims=True)
    scores = np.where(counts[..., None] > 0, new, state.scores)
    used = strength_in_use(state.scores[..., :-1], STRENGTHS)
    nearest = np.abs(np.log(STRENGTHS) - np.log(used)[..., None]).argmin(-1)
    gain = np.take_along_axis(informed, nearest[..., None], -1)[..., 0] - alone
    against = np.minimum(state.against + counts * np.maximum(gain, -WORST), 0.0)
    since = np.where(against < 0, np.asarray(state.since) + (counts > 0), 0.0)
    return state.replace(
        scores=scores,
        support=float_if_scalar(state.support + counts * gain),
        against=float_if_scalar(against),
        since=float_if_scalar(since),
    )


def started(state: EmpiricalBayesState, tasks: Tasks) -> tuple[Fit, Any]:
    """The fit to improve on, and whether there is a scale yet; the tasks in the state's units."""
    begun = np.asarray(state.ready) > 0
    if begun.all() or not len(tasks):
        return state.fit, state.ready
    fresh, known = started_from(tasks, state.given)
    return chosen(begun, state.fit, fresh), float_if_scalar(np.where(begun | known, 1.0, 0.0))


def judged(
    start: EmpiricalBayesState, fit: Fit, candidates: Array, tasks: Tasks
) -> tuple[Array, float]:
    """Scores of all strengths on tasks that are new to a fit; every one of them counts.

    Also the support: by how much the strength that did best has predicted them better than a prior
    that knows only the size of θ.
    """
    dim, none = fit.mean.shape[-1], np.zeros_like(fit.error)
    populations = [
        Fit.unchecked(fit.mean, sigma, none, fit.noise, fit.freedom)
        for sigma in candidates + fit.error
    ]
    alone = mean_square(fit) * np.eye(dim)
    populations.append(Fit.unchecked(np.zeros_like(fit.mean), alone, none, fit.noise, fit.freedom))
    counts = (tasks.rounds > 0) * tasks.weight
    # One by one: all at once would take memory that is not at hand.
    found = np.stack([task_likelihoods(each, tasks) for each in populations])
    total = bounded(found, found.max(0)) @ counts
    scores = start.scores + total
    best = scores[:-1].argmax()
    return scores - scores.max(), float((found[best] - found[-1]) @ counts)


def cross_validated(
    transfer: EmpiricalBayes, state: EmpiricalBayesState, tasks: Tasks
) -> tuple[Array, Any]:
    """Scores of all strengths on tasks left out, as if the latest had given them; the support."""
    sample = tasks[:: max(1, len(tasks) // KEPT)][:KEPT]
    count, folds = len(sample), min(len(sample), 4)
    if folds < 2:
        return state.scores, state.support
    recent = min(count, 1.0 / (1.0 - RECENT))
    parts = [np.arange(count) % folds == fold for fold in range(folds)]
    fitted = [state.replace(tasks=sample.replace(weight=sample.weight * ~held)) for held in parts]
    scores, support = state.scores, state.support
    # Candidates are exact only near the strength of the fit: choose, fit, and choose again.
    for _ in range(3):
        total: Any = np.zeros_like(state.scores)
        support = np.zeros_like(np.asarray(state.support))
        for fold, held in enumerate(parts):
            start = fitted[fold].replace(scores=scores)
            fitted[fold] = transfer.renewed(start, steps=8)
            judge = fitted[fold].replace(scores=np.zeros_like(scores))
            local = own_noises(judge.fit, judge.units.tasks(sample), state.given, transfer.constant)
            for at in np.flatnonzero(held):
                judged = scored(judge, local[at : at + 1], 1.0)
                total += judged.scores
                support = support + judged.support
        scores = state.scores + total * (recent / count)
    return scores, float_if_scalar(support * (len(tasks) / count))
