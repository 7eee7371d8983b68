"""A mixture of populations: several affine subspaces, found by EM, as many as predict best."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import float_if_scalar, matvec, trace
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixturePrior, normalize_log_weights
from headstart.model.prior import ONE_NOISE, Prior, symmetric_root
from headstart.records import Array, Record
from headstart.transfer.base import Explanation, Transfer, checked_evidence
from headstart.transfer.empirical_bayes.fitting import (
    Pass,
    Past,
    improve,
    noise_likelihood,
    posteriors,
    shrunk,
    task_likelihoods,
)
from headstart.transfer.empirical_bayes.many import Fit, Tasks, started_from
from headstart.transfer.empirical_bayes.passes import (
    SAMPLE,
    STEPS,
    Passes,
    Totals,
    added,
    as_tasks,
    past_from,
    stepped,
    totals_of_tasks,
)
from headstart.transfer.empirical_bayes.strength import (
    RECENT,
    bounded,
    first_scores,
    strength_in_use,
)
from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes
from headstart.transfer.empirical_bayes.units import (
    Offers,
    Units,
    changed,
    changed_fit,
    converted,
    far_apart,
)
from headstart.transfer.partitions import Partitions, chunks

__all__ = ["Mixture"]

GROUPS = (1, 2, 3, 4, 6, 8)
#: Strengths that are tried, as multiples of the dimension.
STRENGTHS = 10.0 ** np.arange(-2.5, 0.51, 0.5)
OFTEN = 16  # the fits are renewed whenever tasks have grown by this fraction of themselves
KEPT = 128  # tasks whose evidence is kept at hand
EACH = 4.0  # nats that one more group has to earn on the latest tasks


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Option(Record):
    """A mixture of so many groups: their populations, weights and past tasks.

    ``roots`` are those of the covariances that other strengths would give, the means' errors
    included.
    """

    fit: Fit
    log_weights: Array
    past: Past
    roots: Array


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class MixtureState(Record):
    """Tasks at hand, one option per number of groups, and how well each has predicted.

    ``scores`` has a row per option and a column per strength. The tasks' evidence is in the units
    given; the options are in ``units``, which tasks tell, or the contexts that were on offer.
    """

    given: float
    tasks: Tasks
    options: tuple[Option, ...]
    scores: Array
    finished: float
    renewed: float
    units: Units
    offers: Offers


@dataclasses.dataclass(frozen=True, repr=False)
class Mixture(Transfer):
    """Tasks come in groups, each near an affine subspace of its own.

    Every group is a Gaussian population as in :class:`EmpiricalBayes`; EM shares out the tasks.
    Mixtures of 1, 2, 3, 4, 6 and 8 groups are kept side by side, and the one that predicted recent
    tasks best is used. A new task starts in every group at once, and its rewards tell which it is
    in. Many small groups also follow a curved manifold, piece by piece.

    Parameters
    ----------
    groups
        The most groups to look for, 8 or fewer.
    units, constant
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
    units: str = "free"
    constant: bool = dataclasses.field(default=False, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.integer("groups", self.groups, 1, GROUPS[-1])
        checks.one_of("units", self.units, ("free", "given"))
        if not isinstance(self.constant, bool):
            raise checks.refuse("constant", "True or False", self.constant)

    @property
    def unit_free(self) -> bool:
        """As set."""
        return self.units == "free"

    def with_constant(self, constant: bool) -> Mixture:
        """The same, told whether the last feature is the intercept."""
        return dataclasses.replace(self, constant=constant)

    def numbers(self) -> list[int]:
        """The numbers of groups that are tried."""
        return [number for number in GROUPS if number <= self.groups]

    def init(
        self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()
    ) -> MixtureState:
        """The state before any task."""
        dim = checks.integer("dim", dim, 1)
        if batch:
            raise checks.refuse("batch", "() for a Mixture, which is not batched", batch)
        given = 0.0 if noise is None else checks.positive("noise", noise)
        size = given or 1.0
        options = []
        for number in self.numbers():
            flat = np.full(number, size**2)
            fit = Fit.isotropic(np.zeros((number, dim)), flat, flat)
            roots = np.repeat(symmetric_root(fit.covariance)[None], len(STRENGTHS), 0)
            weights = np.full(number, -np.log(number))
            options.append(Option.unchecked(fit, weights, Past.nothing(dim, (number,)), roots))
        scores = np.repeat(first_scores(STRENGTHS)[None], len(options), 0)
        nothing, offers = Tasks.none(dim), Offers.none(dim)
        units = self.units_of(nothing, offers)
        return MixtureState.unchecked(
            given, nothing, tuple(options), scores, 0.0, 0.0, units, offers
        )

    def units_of(self, tasks: Tasks, offers: Offers) -> Units:
        """The units to fit in."""
        if not self.unit_free:
            return Units.given(tasks.moment.shape[-1])
        return Units.of(tasks, offers, self.constant)

    def observe_contexts(self, state: MixtureState, contexts: Array) -> MixtureState:
        """Take the units of features from contexts on offer, where no reward has told them."""
        return self.in_new_units(state.replace(offers=state.offers.add(contexts)))

    def carry_contexts(self, state: MixtureState, earlier: MixtureState) -> MixtureState:
        """A state, told of the contexts on offer that an earlier one was told of."""
        return self.in_new_units(state.replace(offers=earlier.offers))

    def unscaled_features(self, state: MixtureState) -> npt.NDArray[np.bool_]:
        """Which features have not varied yet."""
        return np.asarray(state.units.inverse == 0.0)

    def in_new_units(self, state: MixtureState) -> MixtureState:
        """The same state in the units that its tasks tell."""
        units = self.units_of(state.tasks, state.offers)
        matrix = converted(state.units, units) if self.unit_free else None
        if matrix is None:
            return state
        options = tuple(
            option.replace(
                fit=changed_fit(option.fit, matrix),
                past=option.past.replace(
                    first=matvec(matrix, option.past.first),
                    second=changed(option.past.second, matrix),
                ),
                roots=matrix @ option.roots,
            )
            for option in state.options
        )
        started = 0.0 if far_apart(state.units, units).any() else state.renewed
        return state.replace(options=options, units=units, renewed=started)

    def fold(self, state: MixtureState, evidence: Evidence, weight: float = 1.0) -> MixtureState:
        """Score the predictions of a finished task, keep it, and renew the fits if due."""
        evidence = checked_evidence(evidence, (self.dim(state),)).replace(forced=None)
        weight = checks.non_negative("weight", weight)
        if weight == 0:
            return state
        task = Tasks.of(evidence, weight)
        local = state.units.tasks(task)
        state = scored(state, local, weight)
        tasks = state.tasks.join(task)
        options = state.options
        if len(tasks) > KEPT:
            gone, tasks = state.units.tasks(tasks[:1]), tasks[1:]
            options = tuple(
                option.replace(
                    past=option.past.add(
                        option.fit, shared_out(option, gone), constant=self.constant
                    )
                )
                for option in options
            )
        state = state.replace(tasks=tasks, options=options, finished=state.finished + 1.0)
        due = state.finished >= state.renewed * (1.0 + 1.0 / OFTEN)
        return self.fitted(state) if due else state

    def dim(self, state: MixtureState) -> int:
        """The number of features."""
        return int(state.tasks.moment.shape[-1])

    def fitted(self, state: MixtureState) -> MixtureState:
        """Renew every option; whenever the tasks have doubled, also try a fresh start."""
        if not (state.tasks.squares > 0).any():
            return state
        state = self.in_new_units(state)
        tasks = state.units.tasks(state.tasks).with_residuals()
        first = not state.renewed
        doubled = int(state.renewed).bit_length() < int(state.finished).bit_length()
        few = len(tasks) <= 8
        options: list[Option] = []
        for place, option in enumerate(state.options):
            strength = self.dim(state) * float(strength_in_use(state.scores[place], STRENGTHS))
            if first:
                fit, _ = started_from(tasks, state.given)
                option = option.replace(fit=repeated(fit, len(option.log_weights)))
            best = self.advanced(option, tasks, state.given, strength, 6 if few else 2)
            whole = state.options[0].past.count == 0  # a fresh start needs all tasks at hand
            if place and doubled and len(tasks) >= 2 * len(option.log_weights) and np.all(whole):
                start = spread_out(options[0], option, tasks)
                fresh = self.advanced(start, tasks, state.given, strength, 12)
                best = max(best, fresh, key=lambda one: total_likelihood(one, tasks))
            options.append(best)
        return state.replace(
            tasks=state.tasks.replace(residual=tasks.residual, freedom=tasks.freedom),
            options=tuple(options),
            renewed=state.finished,
        )

    def advanced(
        self, option: Option, tasks: Tasks, given: float, strength: float, steps: int
    ) -> Option:
        """So many steps of EM, each a scoring step for every group."""
        groups = len(option.log_weights)
        taken = None
        for _ in range(steps):
            shared = shared_out(option, tasks)
            count = shared.weight.sum(-1) + np.asarray(option.past.count)
            # Small groups are regularised by the size of all.
            each = count * trace(option.fit.covariance)
            size = each.sum() / count.sum() / option.fit.mean.shape[-1]
            fit, taken, _ = improve(
                option.fit,
                shared,
                option.past,
                np.full(groups, strength),
                given,
                size,
                constant=self.constant,
            )
            option = weighed(option, fit, count)
        assert taken is not None
        return with_roots(option, taken)

    @property
    def partition_passes(self) -> int:
        """One for each step."""
        return len(STEPS)

    def refit_partitions(self, partitions: Partitions, noise: float | None = None) -> MixtureState:
        """Fit very many tasks: the first of them one by one, then a few passes over all.

        The first decide how many groups there are; the passes fit the mixture of so many.
        """
        count, dim = len(partitions), partitions.dim
        if self.unit_free and count > SAMPLE:  # whoever has so many tasks has standardized them
            return dataclasses.replace(self, units="given").refit_partitions(partitions, noise)
        first = [Evidence.unpack(row, dim) for row in partitions.slice(0, min(count, SAMPLE))]
        state: MixtureState = self.refit(first, noise)
        if count <= SAMPLE or not state.renewed:
            return state.replace(finished=float(count), renewed=float(count))
        place = best_option(state)
        option = before = state.options[place]
        groups = len(option.log_weights)
        strength = np.full(groups, dim * float(strength_in_use(state.scores[place], STRENGTHS)))
        passes = Passes(partitions)
        for whole in STEPS:
            totals = passes.over(whole, shared_totals, option)
            size = (totals.count * trace(option.fit.covariance)).sum() / totals.count.sum() / dim
            before = option
            fit, taken = stepped(before.fit, totals, strength, state.given, size)
            option = weighed(before, fit, totals.count)
        at_hand = shared_out(before, state.tasks)
        past = past_from(before.fit, totals).add(before.fit, at_hand, -1.0, self.constant)
        option = with_roots(option, taken).replace(past=past)
        options = (*state.options[:place], option, *state.options[place + 1 :])
        return state.replace(options=options, finished=float(count), renewed=float(count))

    def prior(self, state: MixtureState) -> MixturePrior:
        """A mixture of as many groups as have predicted best."""
        option = state.options[best_option(state)]
        fit = option.fit
        noise = np.sqrt(np.asarray(fit.noise))
        root = symmetric_root(fit.covariance + fit.error) / noise[:, None, None]
        mean, root = state.units.undone(fit.mean, root)
        freedom = ONE_NOISE if state.given else fit.freedom
        parts = Prior(mean, root, noise=noise, noise_freedom=freedom)
        return MixturePrior(parts, option.log_weights)

    def single_task_prior(self, state: MixtureState, evidence: Evidence) -> Prior:
        """As for one population."""
        one = EmpiricalBayes(units=self.units, constant=self.constant)
        return one.single_task_prior(one.init(evidence.dim).replace(offers=state.offers), evidence)

    def explain(self, state: MixtureState) -> Explanation:
        """How many groups there are, and how large."""
        if state.finished < 1:
            return Explanation(note="no task has finished yet")
        option = state.options[best_option(state)]
        values = np.linalg.eigvalsh(self.prior(state).as_gaussian().covariance)[::-1]
        shares = np.sort(np.exp(option.log_weights))[::-1]
        groups = ", ".join(f"{share:.0%}" for share in shares)
        note = (
            f"{len(shares)} groups of tasks: {groups}" if len(shares) > 1 else "one group of tasks"
        )
        return Explanation(eigenvalues=values, note=note)


def best_option(state: MixtureState) -> int:
    """The option that has predicted best, at its best strength, less what its groups cost."""
    groups = np.array([len(option.log_weights) for option in state.options])
    return int((state.scores.max(-1) - EACH * (groups - 1.0)).argmax())


def shared_out(option: Option, tasks: Tasks) -> Tasks:
    """The tasks with a weight in every group: how likely they belong there."""
    logs = option.log_weights[:, None] + task_likelihoods(option.fit, tasks)
    return tasks.replace(weight=tasks.weight * np.exp(normalize_log_weights(logs.T)).T)


def total_likelihood(option: Option, tasks: Tasks) -> float:
    """The log-likelihood of all tasks at hand under a mixture."""
    logs = option.log_weights[:, None] + task_likelihoods(option.fit, tasks)
    logs = logs + noise_likelihood(option.fit, tasks)
    top = logs.max(0)
    return float((tasks.weight * (top + np.log(np.exp(logs - top).sum(0)))).sum())


def weighed(option: Option, fit: Fit, count: Array) -> Option:
    """The option with another fit: one noise for all groups, and each as large as it is."""
    share = count / count.sum()
    noise, freedom = (
        value if (value == value[0]).all() else np.full(len(count), np.exp(share @ np.log(value)))
        for value in (np.asarray(fit.noise), np.asarray(fit.freedom))
    )
    return option.replace(
        fit=fit.replace(noise=noise, freedom=freedom),
        log_weights=np.log((count + 1.0) / (count + 1.0).sum()),
    )


def with_roots(option: Option, taken: Pass) -> Option:
    """The option with what other strengths would give."""
    dim = option.fit.mean.shape[-1]
    groups = len(option.log_weights)
    tried = [shrunk(taken, np.full(groups, dim * value)) for value in STRENGTHS]
    return option.replace(roots=symmetric_root(np.stack(tried) + option.fit.error))


def shared_totals(rows: Array, dim: int, option: Option) -> Totals | None:
    """The sums of a pass over a partition's tasks, shared out among the groups."""
    parts = (shared_out(option, as_tasks(some)) for some in chunks(rows, dim))
    return added(totals_of_tasks(option.fit, part) for part in parts)


def scored(state: MixtureState, task: Tasks, weight: float) -> MixtureState:
    """Hold every option's prediction, at every strength, against a task that is new to it."""
    if not state.renewed or not task.rounds.any():
        return state
    scores = np.empty_like(state.scores)
    for place, option in enumerate(state.options):
        logs = option.log_weights + task_likelihoods(option.fit, task, option.roots)[..., 0]
        logs = logs + noise_likelihood(option.fit, task)[..., 0]
        top = logs.max(-1)
        scores[place] = top + np.log(np.exp(logs - top[:, None]).sum(-1))
    scores = bounded(scores, scores.max())
    new = RECENT**weight * state.scores + weight * scores
    return state.replace(scores=new - new.max())


def repeated(fit: Fit, number: int) -> Fit:
    """The same population, several times."""
    return Fit.unchecked(
        np.repeat(fit.mean[None], number, 0),
        np.repeat(fit.covariance[None], number, 0),
        np.repeat(fit.error[None], number, 0),
        np.repeat(np.atleast_1d(float_if_scalar(fit.noise)), number, 0),
        np.repeat(np.atleast_1d(float_if_scalar(fit.freedom)), number, 0),
    )


def spread_out(whole: Option, option: Option, tasks: Tasks) -> Option:
    """A fresh start: groups around tasks that lie far apart."""
    number = len(option.log_weights)
    fit, (root,) = whole.fit, symmetric_root(whole.fit.covariance)
    _, (z,) = posteriors(fit, root[None], tasks)
    points = matvec(root, z)
    owner = nearest_centres(points, number)
    held = np.array([owner == group for group in range(number)], dtype=float)
    count = np.maximum(held.sum(-1), 1.0)
    centres = held @ points / count[:, None]
    away = points - centres[owner]
    within = away.T @ away / len(points)
    # A little in every direction: what tasks of one group share is found by EM.
    size = max(float(np.trace(within)), 1e-6 * float(np.trace(fit.covariance[0]))) / len(within)
    covariance = 0.5 * within + 0.5 * size * np.eye(len(within))
    start = Fit.unchecked(
        fit.mean[0] + centres,
        np.repeat(covariance[None], number, 0),
        np.zeros_like(option.fit.error),
        np.repeat(fit.noise, number),
        np.repeat(fit.freedom, number),
    )
    return option.replace(fit=start, log_weights=np.log(count / count.sum()))


def nearest_centres(points: Array, number: int) -> npt.NDArray[np.intp]:
    """Which of so many centres each point is nearest to: far-apart points, then Lloyd's steps."""
    chosen = [int((points**2).sum(-1).argmax())]
    distance = np.full(len(points), np.inf)
    for _ in range(number - 1):
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(-1))
        chosen.append(int(distance.argmax()))
    centres = points[chosen]
    owner = np.zeros(len(points), dtype=np.intp)
    for _ in range(20):
        owner = ((points[:, None, :] - centres[None]) ** 2).sum(-1).argmin(-1)
        centres = np.array(
            [
                points[owner == group].mean(0) if (owner == group).any() else centres[group]
                for group in range(number)
            ]
        )
    return owner
