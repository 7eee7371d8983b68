"""A mixture with a given number of groups of tasks, fitted by EM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from headstart.arrays import attempt, matvec, trace
from headstart.model.mixture import normalize_log_weights
from headstart.model.prior import symmetric_root
from headstart.records import Array, Record
from headstart.transfer.empirical_bayes import strength
from headstart.transfer.empirical_bayes.full_covariance.fitting import (
    StepSums,
    covariance_step,
    scoring_step,
)
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    noise_likelihood,
    posteriors,
    task_likelihoods,
)
from headstart.transfer.empirical_bayes.full_covariance.task_noise import (
    task_variance,
    usable_residuals,
)
from headstart.transfer.empirical_bayes.overflow import MAX_FITTED, are_bounded, is_sound_fit
from headstart.transfer.empirical_bayes.refits.passes import (
    NOISY_FACTOR,
    PassSums,
    add_up,
    task_totals,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.partitions import chunks

STRENGTHS = strength.STRENGTHS[:-1]  # that are tried, as multiples of the dimension
LLOYD_STEPS = 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupFit(Record):
    """A mixture of groups of tasks: their populations, weights and past tasks.

    ``roots`` are those of the covariances that other strengths would give, the means' errors
    included.
    """

    fit: Fit
    log_weights: Array
    past: Past
    roots: Array

    @classmethod
    def initial(cls, groups: int, dim: int, variance: float) -> GroupFit:
        """Before any task: all groups alike."""
        return cls.equal_groups(Fit.isotropic(np.zeros(dim), variance, variance), groups)

    @classmethod
    def equal_groups(cls, fit: Fit, groups: int) -> GroupFit:
        """All groups alike, of as many tasks each, and no task of the past."""
        fit, dim = fit.repeat(groups), fit.mean.shape[-1]
        roots = np.repeat(symmetric_root(fit.covariance)[None], len(STRENGTHS), 0)
        weights = np.full(groups, -np.log(groups))
        return cls.unchecked(fit, weights, Past.zero(dim, (groups,)), roots)

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self.log_weights)

    def transform(self, matrix: Array) -> GroupFit:
        """The mixture of the parameters multiplied by a matrix."""
        return self.replace(
            fit=self.fit.transform(matrix),
            past=self.past.transform(matrix),
            roots=matrix @ self.roots,
        )

    def assign(self, tasks: Tasks) -> Tasks:
        """The tasks with a weight in every group: how likely they belong there."""
        logs = self.log_weights[:, None] + task_likelihoods(self.fit, tasks)
        return tasks.replace(weight=tasks.weight * np.exp(normalize_log_weights(logs.T)).T)

    def likelihood(self, tasks: Tasks) -> float:
        """The log-likelihood of tasks."""
        logs = self.log_weights[:, None] + task_likelihoods(self.fit, tasks)
        logs = logs + noise_likelihood(self.fit, tasks)
        top = logs.max(0)
        return float((tasks.weight * (top + np.log(np.exp(logs - top).sum(0)))).sum())

    def predict(self, task: Tasks) -> Array:
        """The log-likelihood of one task at every strength."""
        logs = self.log_weights + task_likelihoods(self.fit, task, self.roots)[..., 0]
        logs = logs + noise_likelihood(self.fit, task)[..., 0]
        top = logs.max(-1)
        return top + np.log(np.exp(logs - top[:, None]).sum(-1))

    def with_noise_of_noisy(self, tasks: Tasks, known_noise: float, constant: bool) -> Tasks:
        """The tasks that are much noisier than others with their own noise, unless R is given.

        It is that of least squares, so that a task far from its group does not count as noisy.
        """
        if known_noise:
            return tasks
        noise, dof = np.asarray(self.fit.noise_variance)[0], np.asarray(self.fit.dof)[0]
        none = np.zeros_like(tasks.rounds)
        usable = usable_residuals(tasks, none, none, constant, noise)
        own = task_variance(noise, dof, usable.square, usable.dof)
        return tasks.replace(noise_variance=np.where(own > NOISY_FACTOR * noise, own, 0.0))

    def retire(self, tasks: Tasks, constant: bool) -> Past:
        """The past with tasks whose evidence is no longer kept."""
        return self.past.add(self.fit, self.assign(tasks), constant)

    def improve(
        self,
        tasks: Tasks,
        known_noise: float,
        strength: float,
        steps: int,
        constant: bool,
        free_intercept: bool,
    ) -> GroupFit:
        """So many steps of EM, each a scoring step for every group."""
        mixture, sums = self, None
        for _ in range(steps):
            shared = mixture.assign(mixture.with_noise_of_noisy(tasks, known_noise, constant))
            count = shared.weight.sum(-1) + np.asarray(mixture.past.count)
            fit, sums, _ = scoring_step(
                mixture.fit,
                shared,
                mixture.past,
                np.full(self.groups, strength),
                known_noise,
                mixture.size(count),
                constant=constant,
                free_intercept=free_intercept,
                are_groups=True,
            )
            mixture = mixture.with_fit(fit, count)
        assert sums is not None
        return mixture.with_roots(sums)

    def size(self, count: Array) -> float:
        """The variance per dimension of all groups, by which small ones are regularised."""
        each = count * trace(self.fit.covariance)
        return float(each.sum() / count.sum() / self.fit.mean.shape[-1])

    def with_fit(self, fit: Fit, count: Array) -> GroupFit:
        """The mixture with other populations, and weights by their tasks."""
        return self.replace(fit=fit, log_weights=np.log((count + 1.0) / (count + 1.0).sum()))

    def with_roots(self, sums: StepSums) -> GroupFit:
        """The mixture with what other strengths would give."""
        dim = self.fit.mean.shape[-1]
        candidates = [
            covariance_step(sums, np.full(self.groups, dim * value)) for value in STRENGTHS
        ]
        return self.replace(roots=symmetric_root(np.stack(candidates) + self.fit.error))

    def restart(self, whole: Fit, tasks: Tasks) -> GroupFit:
        """A fresh start: groups around tasks that lie far apart; ``whole`` is the one group's."""
        number = self.groups
        (root,) = symmetric_root(whole.covariance)
        _, (z,) = posteriors(whole, root[None], tasks)
        points = matvec(root, z)
        owner = nearest_centres(points, number)
        held = np.array([owner == group for group in range(number)], dtype=float)
        count = np.maximum(held.sum(-1), 1.0)
        centres = held @ points / count[:, None]
        away = points - centres[owner]
        within = away.T @ away / len(points)
        # A small variance in every direction; EM then estimates what tasks of one group share.
        least = 1e-6 * float(np.trace(whole.covariance[0]))
        size = max(float(np.trace(within)), least) / len(within)
        covariance = 0.5 * within + 0.5 * size * np.eye(len(within))
        start = Fit.unchecked(
            whole.mean[0] + centres,
            np.repeat(covariance[None], number, 0),
            np.zeros_like(self.fit.error),
            np.repeat(whole.noise_variance, number),
            np.repeat(whole.dof, number),
        )
        return self.replace(fit=start, log_weights=np.log(count / count.sum()))


def group_totals(rows: Array, dim: int, mixture: GroupFit) -> tuple[PassSums]:
    """The sums of a pass over a partition's tasks, shared out among the groups."""
    parts = (mixture.assign(Tasks.from_batch(some)) for some in chunks(rows, dim))
    return (add_up(task_totals(mixture.fit, part) for part in parts),)


def nearest_centres(points: Array, number: int) -> npt.NDArray[np.intp]:
    """The nearest of ``number`` centres to each point: far-apart points, then Lloyd's steps."""
    chosen = [int((points**2).sum(-1).argmax())]
    distance = np.full(len(points), np.inf)
    for _ in range(number - 1):
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(-1))
        chosen.append(int(distance.argmax()))
    centres = points[chosen]
    owner = np.zeros(len(points), dtype=np.intp)
    for _ in range(LLOYD_STEPS):
        owner = ((points[:, None, :] - centres[None]) ** 2).sum(-1).argmin(-1)
        centres = np.array(
            [
                points[owner == group].mean(0) if (owner == group).any() else centres[group]
                for group in range(number)
            ]
        )
    return owner


def first_sound_fit(
    improve: Callable[[GroupFit], GroupFit], starts: Iterable[GroupFit], largest: float
) -> GroupFit | None:
    """The first of several starts that is sound when it was improved; ``None`` if none is.

    ``largest`` is the largest mean square of θ per dimension that a task alone shows.
    """

    def sound(start: GroupFit) -> GroupFit | None:
        improved = improve(start)
        return improved if is_sound(improved, largest) else None

    return next(filter(None, (attempt(sound, start) for start in starts)), None)


def is_sound(mixture: GroupFit, largest: float) -> bool:
    """Whether a mixture is finite, of covariances, and of a size that its tasks have."""
    fit, noise = mixture.fit, np.asarray(mixture.fit.noise_variance)
    sound = is_sound_fit(fit, np.inf if np.any(mixture.past.count) else largest).all()
    bounded = are_bounded((mixture.log_weights, mixture.roots), 0)
    return bool(sound and bounded and (noise > 0).all())


def first_guess(mixture: GroupFit, fit: Fit) -> GroupFit:
    """The mixture with all groups alike, as the first guess of one population is."""
    fit = fit.replace(covariance=np.minimum(fit.covariance, MAX_FITTED))
    return GroupFit.equal_groups(fit, mixture.groups).replace(past=mixture.past)
