"""A mixture of populations: several affine subspaces, found by EM, as many as predict best."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import attempt
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixturePrior
from headstart.model.prior import ONE_NOISE, Prior, symmetric_root
from headstart.records import Array, Record, combine
from headstart.transfer.base import TaskStructure, checked_evidence
from headstart.transfer.empirical_bayes.base import StandardizedTransfer
from headstart.transfer.empirical_bayes.full_covariance.population import (
    Fit,
    is_far_larger,
)
from headstart.transfer.empirical_bayes.overflow import largest_size, warn_of_overflow
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.empirical_bayes.refits.passes import (
    FEW_STEPS,
    Passes,
    noise_from_totals,
    past_from_totals,
    step_from_totals,
)
from headstart.transfer.empirical_bayes.scoring import MAX_LIKELIHOOD
from headstart.transfer.empirical_bayes.strength import (
    SCORE_DECAY,
    clip_scores,
    initial_scores,
    mean_strength,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import ContextMoments, Units
from headstart.transfer.mixture.groups import (
    STRENGTHS,
    GroupFit,
    first_guess,
    first_sound_fit,
    group_totals,
)
from headstart.transfer.partitions import Partitions

GROUP_COUNTS = (1, 2, 3, 4, 6, 8)  # that are tried
REFIT_GROWTH = 1 / 16  # the fits are updated whenever tasks have grown by this share
KEPT_TASKS = 128  # whose evidence is kept
NATS_PER_GROUP = 4.0  # that one more group has to earn on the latest tasks
FEW_TASKS = 8  # with which the fits take several steps at a time


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class MixtureState(Record):
    """Tasks that are kept, one fit per number of groups, and how well each has predicted.

    ``scores`` has a row per fit and a column per strength. ``known_noise`` is R where the caller
    knows it, else 0; ``task_count`` counts the tasks, ``fitted_count`` those at the last fit. The
    tasks' evidence is in the units given; the fits are in ``units``, determined by tasks or else by
    the contexts that were on offer.
    """

    known_noise: float
    tasks: Tasks
    fits: tuple[GroupFit, ...]
    scores: Array
    task_count: float
    fitted_count: float
    units: Units
    contexts: ContextMoments

    @property
    def past_count(self) -> float:
        """How many tasks of which only the posteriors are left count."""
        return max(float(fit.past.count.sum()) for fit in self.fits)

    @property
    def best(self) -> int:
        """The fit that has predicted best, at its best strength, less what its groups cost."""
        groups = np.array([fit.groups for fit in self.fits])
        return int((self.scores.max(-1) - NATS_PER_GROUP * (groups - 1.0)).argmax())

    def strength(self, place: int) -> float:
        """How many regularising tasks count in one of the fits."""
        dim = self.tasks.moment.shape[-1]
        return float(dim * float(mean_strength(self.scores[place], STRENGTHS)))


@dataclasses.dataclass(frozen=True, repr=False)
class Mixture(StandardizedTransfer):
    """Tasks come in groups, each near an affine subspace of its own.

    Every group is a Gaussian population as in :class:`EmpiricalBayes`; EM assigns the tasks.
    Mixtures of 1, 2, 3, 4, 6 and 8 groups (up to ``groups``) are fitted side by side, and the one
    that predicted recent tasks best is used. A new task starts from the whole mixture, and its
    rewards determine the weights of the groups. Many small groups also follow a curved manifold,
    piece by piece.

    Parameters
    ----------
    groups : int, default 6
        The largest number of groups, at most 8.
    units, constant, free_intercept
        As for :class:`EmpiricalBayes`.

    Examples
    --------
    Two kinds of tasks, around 1 and around −1:

    >>> rng = np.random.default_rng(0)
    >>> transfer = Mixture(groups=2)
    >>> state = transfer.init(dim=1)
    >>> for n in range(40):
    ...     theta = (-1.0) ** n + 0.1 * rng.standard_normal()
    ...     contexts = rng.standard_normal((20, 1))
    ...     rewards = contexts[:, 0] * theta + 0.1 * rng.standard_normal(20)
    ...     state = transfer.fold(state, Evidence.of(contexts, rewards))
    >>> prior = transfer.prior(state)
    >>> np.sort(prior.parts.mean[:, 0]).round(1), np.exp(prior.log_weights).round(1)
    (array([-1.,  1.]), array([0.5, 0.5]))
    """

    fixed_layout: ClassVar[bool] = True

    groups: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("groups", self.groups, 1, GROUP_COUNTS[-1])

    def init(
        self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()
    ) -> MixtureState:
        """The state before any task."""
        dim = checks.integer("dim", dim, 1)
        if batch:
            raise checks.invalid("batch", "() for a Mixture, which is not batched", batch)
        known = 0.0 if noise is None else checks.positive("noise", noise)
        variance = (known or 1.0) ** 2
        counts = [number for number in GROUP_COUNTS if number <= self.groups]
        fits = tuple(GroupFit.initial(number, dim, variance) for number in counts)
        tasks, contexts = Tasks.empty(dim), ContextMoments.zero(dim)
        return MixtureState.unchecked(
            known_noise=known,
            tasks=tasks,
            fits=fits,
            scores=np.repeat(initial_scores(STRENGTHS)[None], len(fits), 0),
            task_count=0.0,
            fitted_count=0.0,
            units=self.units_of(tasks, contexts),
            contexts=contexts,
        )

    def transform(
        self, state: MixtureState, matrix: Array, lost: npt.NDArray[np.bool_]
    ) -> MixtureState:
        """A state in other units; where these have nothing to do with the old ones, a new start."""
        return state.replace(
            fits=tuple(fit.transform(matrix) for fit in state.fits),
            fitted_count=0.0 if lost.any() else state.fitted_count,
        )

    def fold(self, state: MixtureState, evidence: Evidence, weight: float = 1.0) -> MixtureState:
        """Score the predictions of a finished task, keep it, and update the fits if due."""
        dim = state.tasks.moment.shape[-1]
        evidence = checked_evidence(evidence, (dim,)).replace(forced=None)
        weight = checks.non_negative("weight", weight)
        if weight == 0:
            return state
        task = Tasks.of(evidence, weight)
        local = state.units.convert_tasks(task).with_residuals()
        state = score_task(state, local, weight, self.constant)
        tasks, fits = state.tasks.join(task), state.fits
        if len(tasks) > KEPT_TASKS:
            oldest, tasks = state.units.convert_tasks(tasks[:1]), tasks[1:]
            noisy = (state.known_noise, self.constant)
            fits = tuple(
                fit.replace(past=fit.retire(fit.with_noise_of_noisy(oldest, *noisy), self.constant))
                for fit in fits
            )
        state = state.replace(tasks=tasks, fits=fits, task_count=state.task_count + 1.0)
        due = state.task_count >= state.fitted_count * (1.0 + REFIT_GROWTH)
        return self.update_fits(state) if due else state

    def update_fits(self, state: MixtureState) -> MixtureState:
        """Improve every fit; whenever the tasks have doubled, also try a fresh start."""
        if not (state.tasks.squares > 0).any():
            return state
        state = self.in_current_units(state)
        tasks = state.units.convert_tasks(state.tasks).with_residuals()
        doubled = int(state.fitted_count).bit_length() < int(state.task_count).bit_length()
        # A fresh start needs the evidence of all tasks.
        restarts = doubled and bool(np.all(state.fits[0].past.count == 0))
        steps = 6 if len(tasks) <= FEW_TASKS else 2
        guess, largest = Fit.initial(tasks, state.known_noise)[0], float(largest_size(state))
        # Fits that began with an outlier are restarted.
        begins = state.fitted_count <= FEW_TASKS and is_far_larger(state.fits[0].fit, tasks).all()
        fits: list[GroupFit] = []
        overflows = False
        noisy = functools.partial(
            GroupFit.with_noise_of_noisy,
            tasks=tasks,
            known_noise=state.known_noise,
            constant=self.constant,
        )
        for place, fit in enumerate(state.fits):
            improve = functools.partial(
                GroupFit.improve,
                tasks=tasks,
                known_noise=state.known_noise,
                strength=state.strength(place),
                constant=self.constant,
                free_intercept=self.free_intercept,
            )
            anew = fit.replace(fit=guess.repeat(fit.groups))
            starts = [anew] if begins or not state.fitted_count else [fit, anew]
            best = first_sound_fit(functools.partial(improve, steps=steps), starts, largest)
            overflows |= best is None
            best = first_guess(fit, guess) if best is None else best
            if place and restarts and len(tasks) >= 2 * fit.groups:
                start = fit.restart(fits[0].fit, noisy(fits[0]))
                fresh = first_sound_fit(functools.partial(improve, steps=12), [start], largest)
                if fresh is not None:
                    best = max(best, fresh, key=lambda one: one.likelihood(noisy(one)))
            fits.append(best)
        if overflows:
            warn_of_overflow()
        return state.replace(
            tasks=state.tasks.replace(residual=tasks.residual, dof=tasks.dof),
            fits=tuple(fits),
            fitted_count=state.task_count,
        )

    def refit_partitions(self, partitions: Partitions, noise: float | None = None) -> MixtureState:
        """Fit very many tasks: the first of them one by one, then a few passes over all.

        The first decide how many groups there are; the passes fit the mixture with that number.
        """
        count, dim = len(partitions), partitions.dim
        large = count > passes.FIRST_FIT_TASKS
        if self.unit_free and large:  # callers with so many tasks have standardized their features
            return dataclasses.replace(self, units="given").refit_partitions(partitions, noise)
        rows = partitions.slice(0, min(count, passes.FIRST_FIT_TASKS))
        state: MixtureState = self.refit([Evidence.unpack(row, dim) for row in rows], noise)
        first = state.fitted_count
        state = state.replace(task_count=float(count), fitted_count=float(count))
        if not large or not first:
            return state
        place, largest = state.best, float(largest_size(state))
        improve = functools.partial(self.pass_over_all, state, partitions, state.strength(place))
        mixture = first_sound_fit(improve, [state.fits[place]], largest)
        if mixture is None:
            warnings.warn(
                "the population of all tasks overflows: their rewards or contexts span too many "
                f"orders of magnitude; it is that of the first {len(rows)} tasks",
                RuntimeWarning,
                stacklevel=2,
            )
            return state
        return state.replace(fits=(*state.fits[:place], mixture, *state.fits[place + 1 :]))

    def pass_over_all(
        self, state: MixtureState, partitions: Partitions, strength: float, mixture: GroupFit
    ) -> GroupFit:
        """A mixture after a few passes over all tasks."""
        before, passes_over_all = mixture, Passes(partitions, group_totals)
        strengths = np.full(mixture.groups, strength)
        for subset in [*FEW_STEPS, *passes_over_all.further_steps]:
            (totals,) = passes_over_all.sums(subset, mixture)
            before, size = mixture, mixture.size(totals.count)
            fit, sums = step_from_totals(
                before.fit, totals, strengths, state.known_noise, size, self.has_level
            )
            together = combine(lambda part: part.sum(0), totals)
            noise = noise_from_totals(fit, together, state.known_noise)
            fit = fit.replace(noise_variance=np.full(mixture.groups, noise))
            mixture = before.with_fit(fit, totals.count)
        before = before.replace(past=past_from_totals(before.fit, totals))
        past = before.past.subtract(before.fit, before.assign(state.tasks), self.constant)
        return mixture.with_roots(sums).replace(past=past)

    def prior(self, state: MixtureState) -> MixturePrior:
        """A mixture of as many groups as have predicted best."""
        mixture = state.fits[state.best]
        fit = mixture.fit
        noise = np.sqrt(np.asarray(fit.noise_variance))
        root = symmetric_root(fit.covariance + fit.error) / noise[:, None, None]
        mean, root = state.units.to_original(fit.mean, root)
        dof = ONE_NOISE if state.known_noise else fit.dof
        parts = Prior(mean, root, noise=noise, noise_dof=dof)
        return MixturePrior(parts, mixture.log_weights)

    def check_state(self, state: MixtureState) -> None:
        """Refuse weights, variances and degrees of freedom that groups of tasks cannot have."""
        super().check_state(state)
        for place, mixture in enumerate(state.fits):
            name, logs = f"state.fits.{place}", mixture.log_weights
            if not logs.size or not abs(np.exp(np.minimum(logs, 1.0)).sum() - 1.0) <= 1e-6:
                raise InputError(f"{name} must have weights that add up to 1; got others")
            for field in ("noise_variance", "dof"):
                if not (np.asarray(getattr(mixture.fit, field)) > 0).all():
                    raise InputError(f"{name}.fit.{field} must be above 0; got less")

    def explain(self, state: MixtureState) -> TaskStructure:
        """How many groups there are, and how large."""
        if state.task_count < 1:
            return TaskStructure(note="no task has finished yet")
        values = np.linalg.eigvalsh(self.prior(state).as_gaussian().covariance)[::-1]
        shares = np.sort(np.exp(state.fits[state.best].log_weights))[::-1]
        groups = ", ".join(f"{share:.0%}" for share in shares)
        several = f"{len(shares)} groups of tasks: {groups}"
        note = several if len(shares) > 1 else "one group of tasks"
        return TaskStructure(eigenvalues=values, note=note)


def score_task(state: MixtureState, task: Tasks, weight: float, constant: bool) -> MixtureState:
    """Score every fit's prediction, at every strength, of a task that is new to it."""
    if not state.fitted_count or not task.rounds.any():
        return state
    noisy = [fit.with_noise_of_noisy(task, state.known_noise, constant) for fit in state.fits]
    latest = attempt(
        lambda: np.stack([fit.predict(one) for fit, one in zip(state.fits, noisy, strict=True)])
    )
    # A task whose rewards are so large that their squares overflow is not scored.
    if latest is None or not (np.abs(latest) < MAX_LIKELIHOOD).all():
        return state
    new = SCORE_DECAY**weight * state.scores + weight * clip_scores(latest, latest.max())
    return state.replace(scores=new - new.max())
