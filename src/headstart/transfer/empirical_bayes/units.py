"""The units of features, estimated from the tasks' own contexts.

With few tasks, the prior is shrunk towards one that treats all features alike. This is meaningful
only if the features have comparable units, so the default fits in standardized features z = T x.
With a constant feature c (the intercept, the last one)::

    z_j = (x_j − k_j x_c) / s_j        k_j the mean of x_j, s_j its standard deviation

and without one k = 0 and s_j is the root mean square. Evidence changes by Gram' = T Gram Tᵀ and
moment' = T moment, and parameters by θ = Tᵀ θ'. A feature that has not varied yet has no unit: it
counts as 0 until it does, so that decisions depend neither on the units nor on the origin of
features. If contexts on offer are the first to vary in a feature, while rounds have varied in
others, k_j is the value that it had in all rounds, and s_j the root mean square distance from it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.arrays import array_namespace, float_if_scalar, transpose
from headstart.model.evidence import Evidence
from headstart.records import Array, Record
from headstart.transfer.empirical_bayes.tasks import Tasks

Flags = npt.NDArray[np.bool_]

#: A variance below this share of the mean square is rounding: the feature is constant.
CONSTANT_SHARE = 1e-12
#: A variance below is taken for none: the squares of coefficients in such units would overflow.
MIN_VARIANCE = 1e-100
#: A task whose mean square exceeds the median task's by this factor is ignored.
OUTLIER_FACTOR = 1e4
#: So is one whose mean square is larger than most tasks' by the first, and values by the second.
LARGER_SQUARE, LARGER_VALUES = 100.0, 5.0
#: The share of tasks that most are, and the rounds that they must have.
MOST, MOST_ROUNDS = 0.9, 20.0
#: Units that differ by more than this factor have nothing to do with each other.
FAR_UNITS = 1e3


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class ContextMoments(Record):
    """Moments of contexts that were on offer, for features whose unit no reward has determined."""

    count: Any
    first: Array
    second: Array

    @classmethod
    def zero(cls, dim: int, batch: tuple[int, ...] = ()) -> ContextMoments:
        """No context yet."""
        count: Any = np.zeros(batch) if batch else 0.0
        return cls.unchecked(count, np.zeros((*batch, dim)), np.zeros((*batch, dim)))

    def add(self, contexts: Array) -> ContextMoments:
        """More contexts, of shape ``(..., arms, d)``."""
        xp = array_namespace(contexts, self.first)
        count = xp.asarray(self.count) + contexts.shape[-2]
        share = (contexts.shape[-2] / count)[..., None]
        return ContextMoments.unchecked(
            float_if_scalar(count),
            self.first + share * (contexts.mean(-2) - self.first),
            self.second + share * ((contexts**2).mean(-2) - self.second),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Units(Record):
    """The origin of every feature and one over its unit (0 where that is not known yet).

    >>> contexts = np.array([[10.0, 1.0], [14.0, 1.0]])
    >>> tasks = Tasks.of(Evidence.of(contexts, [1.0, 2.0]))
    >>> units = Units.of(tasks, ContextMoments.zero(2), constant=True)
    >>> units.shift, units.inverse
    (array([12.,  0.]), array([0.5, 1. ]))
    >>> units.convert_evidence(Evidence.of(contexts, [1.0, 2.0])).gram
    array([[2., 0.],
           [0., 2.]])
    """

    shift: Array
    inverse: Array

    @classmethod
    def identity(cls, dim: int, batch: tuple[int, ...] = ()) -> Units:
        """Features as they come."""
        return cls.unchecked(np.zeros((*batch, dim)), np.ones((*batch, dim)))

    @classmethod
    def of(cls, tasks: Tasks, contexts: ContextMoments, constant: bool) -> Units:
        """From what tasks have shown; where they have shown nothing, from what was on offer."""
        return cls.of_moments(pooled_moments(tasks, constant), contexts, constant)

    @classmethod
    def of_task(cls, evidence: Evidence, contexts: ContextMoments, constant: bool) -> Units:
        """The same from one task alone."""
        if array_namespace(evidence.gram) is not np or evidence.batch:
            return cls.of(Tasks.of(evidence), contexts, constant)
        return cls.of_moments(task_moments(evidence, constant), contexts, constant)

    @classmethod
    def of_moments(
        cls, moments: tuple[Array, Array], contexts: ContextMoments, constant: bool
    ) -> Units:
        """From the mean and the mean square of every feature in the tasks."""
        xp = array_namespace(*moments)
        shift, inverse = location_and_scale(*moments, constant)
        if constant:
            last = np.arange(shift.shape[-1]) == shift.shape[-1] - 1
            shift, inverse = xp.where(last, 0.0, shift), xp.where(last, 1.0, inverse)
        unknown = inverse == 0
        if xp is not np or unknown.any():
            other_shift, other = location_and_scale(contexts.first, contexts.second, constant)
            if constant:
                # From the value that all rounds had, if they differ in other features at all: else
                # the feature would be another intercept.
                has_varied = (inverse[..., :-1] > 0).any(-1, keepdims=True)
                other_shift = xp.where(has_varied, moments[0], other_shift)
                other = xp.where(has_varied, scale_around(moments[0], contexts), other)
            shift = xp.where(unknown, other_shift, shift)
            inverse = xp.where(unknown, other, inverse)
        return cls.unchecked(shift, inverse)

    def with_fallback(self, others: Units, past_count: Any) -> Units:
        """These units, and others for features without a unit where ``past_count`` is above 0."""
        xp = array_namespace(self.shift, past_count)
        is_unknown = (self.inverse == 0) & (xp.asarray(past_count) > 0)[..., None]
        if xp is np and not is_unknown.any():
            return self
        shift = xp.where(is_unknown, others.shift, self.shift)
        return Units.unchecked(shift, xp.where(is_unknown, others.inverse, self.inverse))

    @property
    def is_identity(self) -> bool:
        """Whether features are taken as they come."""
        if array_namespace(self.shift) is not np:  # while JAX compiles, arrays have no values
            return False
        return bool((self.inverse == 1.0).all() and not self.shift.any())

    def convert_gram(self, gram: Array) -> Array:
        """T Gram Tᵀ, of one matrix or of several for each batch element."""
        shift, inverse = self.with_axes(gram.ndim - 1 - self.shift.ndim)
        if array_namespace(shift) is not np or shift.any():
            across = gram[..., -1] - 0.5 * gram[..., -1, -1, None] * shift
            product = across[..., :, None] * shift[..., None, :]
            gram = gram - (product + transpose(product))
        return gram * (inverse[..., :, None] * inverse[..., None, :])

    def convert_moment(self, moment: Array) -> Array:
        """T moment, of one vector or of several for each batch element."""
        shift, inverse = self.with_axes(moment.ndim - self.shift.ndim)
        return (moment - moment[..., -1:] * shift) * inverse

    def with_axes(self, extra: int) -> tuple[Array, Array]:
        """Shift and inverse with more axes before the last."""
        if not extra:
            return self.shift, self.inverse
        shape = (*self.shift.shape[:-1], *(1,) * extra, self.shift.shape[-1])
        return self.shift.reshape(shape), self.inverse.reshape(shape)

    def convert_evidence(self, evidence: Evidence) -> Evidence:
        """One task's evidence in these units, without its forced part."""
        if self.is_identity:
            return evidence.replace(forced=None) if evidence.forced is not None else evidence
        return Evidence.unchecked(
            self.convert_gram(evidence.gram),
            self.convert_moment(evidence.moment),
            evidence.rounds,
            evidence.squares,
            None,
        )

    def convert_tasks(self, tasks: Tasks) -> Tasks:
        """Many tasks' evidence in these units."""
        if self.is_identity:
            return tasks
        gram, moment = self.convert_gram(tasks.gram), self.convert_moment(tasks.moment)
        return tasks.replace(gram=gram, moment=moment)

    def to_original(self, mean: Array, root: Array) -> tuple[Array, Array]:
        """Tᵀ mean and Tᵀ root: a prior over θ', as one over θ of features as they come."""
        if self.is_identity:
            return mean, root
        shift, inverse = self.shift, self.inverse
        mean, root = mean * inverse, root * inverse[..., :, None]
        if array_namespace(shift) is not np or shift.any():
            last = 1.0 * (np.arange(shift.shape[-1]) == shift.shape[-1] - 1)
            mean = mean - last * (shift * mean).sum(-1, keepdims=True)
            root = root - last[:, None] * (shift[..., :, None] * root).sum(-2, keepdims=True)
        return mean, root

    def isotropic_root(self, lam: Any) -> Array:
        """Tᵀ/√λ: the root of N(0, I/λ) over θ', as one over θ of features as they come."""
        xp = array_namespace(self.shift, lam)
        scale = 1.0 / xp.sqrt(xp.asarray(lam))[..., None]
        if xp is not np or self.shift.ndim > 1:
            eye = scale[..., None] * xp.eye(self.shift.shape[-1])
            return self.to_original(xp.zeros_like(self.shift), eye)[1]
        diagonal = scale * self.inverse
        root: Array = np.diag(diagonal)
        root[-1] -= self.shift * diagonal
        return root


def pooled_moments(tasks: Tasks, constant: bool) -> tuple[Array, Array]:
    """The mean and the mean square of every feature, over the rounds of all ordinary tasks.

    The constant feature gives the weight of a task's rounds: where rewards are 0 or 1, a
    round is in the sums with a weight.
    """
    xp = array_namespace(tasks.gram)
    rounds = xp.maximum(tasks.gram[..., -1, -1], 0.0) if constant else tasks.rounds
    rounds = rounds * ((tasks.weight > 0) & (rounds > 1e-100))
    each = xp.maximum(rounds, 1e-100)[..., None]
    diagonal = xp.maximum(xp.diagonal(tasks.gram, axis1=-2, axis2=-1), 0.0)
    square = xp.where(rounds[..., None] > 0, diagonal / each, 0.0)
    if not square.shape[-2]:
        nothing = xp.zeros(square.shape[:-2] + square.shape[-1:])
        return nothing, nothing
    each_rounds = rounds[..., None]
    is_odd = square > OUTLIER_FACTOR * ranked_task(square, square > 0, 0.5)
    centre = xp.zeros_like(square)
    if constant:
        centre = xp.where(each_rounds > 0, tasks.gram[..., -1] / each, 0.0)
        counts = each_rounds > 0
        is_odd = is_odd | has_larger_values(square, centre, tasks.rounds[..., None] * counts)
    share = xp.where(is_odd, 0.0, each_rounds)
    total = xp.maximum(share.sum(-2), 1e-300)
    return (share * centre).sum(-2) / total, (share * square).sum(-2) / total


def has_larger_values(square: Array, mean: Array, rounds: Array) -> Flags:
    """Which tasks have values of a feature that are far larger than most tasks', around the median.

    Alone the mean square s would not tell: that of a feature that is rarely not 0 differs a lot
    between tasks. With the mean m, s/|m| is the size of the values, however rare they are.

    Parameters
    ----------
    square, mean
        The mean square and the mean of every feature in every task.
    rounds
        How many rounds each task has.

    Examples
    --------
    >>> square = np.array([[1.0], [1.0], [1.0], [300.0]])
    >>> mean = np.array([[0.1], [-0.1], [0.2], [4.0]])
    >>> has_larger_values(square, mean, np.full((4, 1), 20.0)).ravel()
    array([False, False, False,  True])
    """
    xp = array_namespace(square)
    middle = ranked_task(mean, rounds > 0, 0.5)
    away, rounding = xp.abs(mean - middle), CONSTANT_SHARE * square
    square = square - middle * (2.0 * mean - middle)
    square = xp.where((rounds > 0) & (square > rounding), square, 0.0)
    most = ranked_task(square, square > 0, MOST)
    has_larger_square = square > LARGER_SQUARE * most
    if xp is np and not has_larger_square.any():
        return has_larger_square
    ordinary_rounds = (rounds * (square <= most)).sum(-2, keepdims=True)
    has_size = (square > 0) & (away > 0)  # not the median task, which may be odd nevertheless
    size = xp.where(has_size, square / xp.where(has_size, away, 1.0), xp.inf)
    is_larger = size > LARGER_VALUES * ranked_task(size, has_size, 0.5)
    is_odd: Flags = has_larger_square & is_larger & (ordinary_rounds >= MOST_ROUNDS)
    return is_odd


def ranked_task(values: Array, counts: Flags, share: float) -> Array:
    """The value that a share of the tasks that count have at most; 0 where none counts.

    >>> ranked_task(np.array([[3.0], [1.0], [2.0]]), np.ones((3, 1), bool), 0.5)
    array([[2.]])
    """
    xp = array_namespace(values)
    number = counts.sum(-2, keepdims=True)
    ranked = xp.sort(xp.where(counts, values, xp.inf), axis=-2)
    place = xp.maximum(number - 1, 0) * share
    return xp.asarray(xp.where(number > 0, xp.take_along_axis(ranked, place.astype(int), -2), 0.0))


def task_moments(evidence: Evidence, constant: bool) -> tuple[Array, Array]:
    """What :func:`pooled_moments` returns of a single task, to the last digit."""
    gram = evidence.gram
    rounds = max(float(gram[-1, -1]), 0.0) if constant else evidence.rounds
    if not rounds > 1e-100:
        return np.zeros(len(gram)), np.zeros(len(gram))
    second = np.maximum(gram.diagonal(), 0.0) / rounds * rounds / rounds
    first = gram[:, -1] / rounds * rounds / rounds if constant else np.zeros(len(gram))
    return first, second


def location_and_scale(first: Array, second: Array, constant: bool) -> tuple[Array, Array]:
    """The origin of each feature, and one over its standard deviation (0 if it has none)."""
    xp = array_namespace(first, second)
    shift = first if constant else xp.zeros_like(first)
    variance = second - shift**2
    known = variance > xp.maximum(CONSTANT_SHARE * second, MIN_VARIANCE)
    inverse = xp.where(known, 1.0 / xp.sqrt(xp.where(known, variance, 1.0)), 0.0)
    return xp.asarray(shift), inverse


def scale_around(centre: Array, contexts: ContextMoments) -> Array:
    """One over the root mean square distance of contexts from a centre (0 if there is none)."""
    xp = array_namespace(centre, contexts.first)
    square = contexts.second - 2.0 * centre * contexts.first + centre**2
    size = xp.maximum(contexts.second, centre**2)
    known = square > xp.maximum(CONSTANT_SHARE * size, MIN_VARIANCE)
    known = known & (xp.asarray(contexts.count) > 0)[..., None]
    return xp.where(known, 1.0 / xp.sqrt(xp.where(known, square, 1.0)), 0.0)


def change_of_units(before: Units, after: Units) -> tuple[Array, npt.NDArray[np.bool_]] | None:
    """The matrix that takes parameters from some units to others; ``None`` if it changes nothing.

    A feature without a unit, before or after, keeps its parameter: nothing depends on it. Also
    whether the units differ so much that nothing fitted in the old ones is of use.
    """
    xp = array_namespace(before.shift, after.shift)
    if xp is np and before == after:
        return None
    both = (before.inverse > 0) & (after.inverse > 0)
    ratio = xp.where(both, before.inverse / xp.where(both, after.inverse, 1.0), 1.0)
    moved = xp.where(both, (after.shift - before.shift) * before.inverse, 0.0)
    if xp is np and (ratio == 1.0).all() and not moved.any():
        return None
    eye = np.eye(ratio.shape[-1])
    matrix: Array = ratio[..., None] * eye + eye[:, -1:] * moved[..., None, :]
    far = (ratio < 1.0 / FAR_UNITS) | (ratio > FAR_UNITS) | (xp.abs(moved) > FAR_UNITS)
    return matrix, xp.asarray(far.any(-1))
